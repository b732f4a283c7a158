"""Snapshots: the old one or the new one, whole, for its owner alone, without pickle."""

import json
import os
import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import StateError
from confide.ledger import snapshot

HEADER = {"sequence": 7, "labels": ["no", 1, True], "bank": {"copies": 30}, "learner": None}
ARRAYS: dict[str, Any] = {
    "bank/weights": np.linspace(0, 1, 60).reshape(5, 12),
    "bank/seen": np.arange(5, dtype=np.int32),
    "bank/none": np.empty((0, 3), dtype=np.float32),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a" / "state"
    snapshot.make_folder(folder)
    return folder


def same(arrays: dict[str, Any]) -> bool:
    return arrays.keys() == ARRAYS.keys() and all(
        arrays[name].dtype == array.dtype and np.array_equal(arrays[name], array) for name, array in ARRAYS.items()
    )


def test_what_is_written_is_read(folder: Path) -> None:
    assert not snapshot.exists(folder)
    for sequence in (7, 8):
        snapshot.write(folder, HEADER | {"sequence": sequence}, ARRAYS)
        header, arrays = snapshot.read(folder)
        assert header == HEADER | {"sequence": sequence, "format": "confide-state", "version": 2} and same(arrays)
    assert snapshot.exists(folder) and snapshot.VERSION == 2
    snapshot.write_key(folder, b"k" * 64)
    assert snapshot.read_key(folder) == b"k" * 64
    assert sorted(path.name for path in folder.iterdir()) == ["key", "snapshot.npz"]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = tmp_path / "state"
        snapshot.make_folder(folder)
        for name in ("snapshot.npz.new", "key.new"):
            (folder / name).touch(mode=0o666)  # what somebody else may have left
        snapshot.write(folder, HEADER, ARRAYS)
        snapshot.write_key(folder, b"secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_state_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="not empty"):
        snapshot.make_folder(tmp_path)
    with pytest.raises(StateError, match="cannot be made"):
        snapshot.make_folder(tmp_path / "file" / "state")


def fail(*args: Any, **kwargs: Any) -> Any:
    raise OSError(28, "no space left")


@pytest.mark.parametrize("name", ["open", "fsync", "replace"])
def test_an_interrupted_write_leaves_the_old_one(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot.write(folder, HEADER, ARRAYS)
    snapshot.write_key(folder, b"old")
    with monkeypatch.context() as broken:
        broken.setattr(os, name, fail)
        with pytest.raises(StateError, match="no space left"):
            snapshot.write(folder, HEADER | {"sequence": 9}, ARRAYS)
        with pytest.raises(StateError, match="no space left"):
            snapshot.write_key(folder, b"new")
    assert snapshot.read(folder)[0]["sequence"] == 7 and snapshot.read_key(folder) == b"old"
    snapshot.write(folder, HEADER | {"sequence": 10}, ARRAYS)
    assert snapshot.read(folder)[0]["sequence"] == 10


def test_it_is_on_the_disk_before_it_takes_the_old_ones_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its name is too: first the file is synced, then it gets its name, then the folder is synced."""
    order: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"file {os.fstat(handle).st_size > 1000}")
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *paths: order.append("name") or replace(*paths))
    snapshot.write(folder, HEADER, ARRAYS)
    assert order == ["file True", "name", "folder"]


def test_nothing_is_pickled(folder: Path) -> None:
    with pytest.raises(StateError, match="numbers"):
        snapshot.write(folder, HEADER, {"evil": np.array([print], dtype=object)})
    with pytest.raises(StateError, match="JSON"):
        snapshot.write(folder, {"evil": print}, ARRAYS)
    assert not list(folder.iterdir())
    text = json.dumps(HEADER | {"format": "confide-state", "version": 2}).encode()
    np.savez(folder / "snapshot.npz", header=np.frombuffer(text, np.uint8), evil=np.array([print], dtype=object))
    with pytest.raises(StateError, match="damaged"):
        snapshot.read(folder)


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(StateError, match="no saved state"):
        snapshot.read(folder)
    with pytest.raises(StateError, match="key"):
        snapshot.read_key(folder)


@pytest.mark.parametrize(
    "header", [{"version": 2}, {"format": "x", "version": 2}, {"format": "confide-state"}, []], ids=str
)
def test_another_header_is_refused(header: Any, folder: Path) -> None:
    np.savez(folder / "snapshot.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    with pytest.raises(StateError):
        snapshot.read(folder)


def test_another_version_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot.write(folder, HEADER, ARRAYS)
    monkeypatch.setattr(snapshot, "VERSION", 1)
    with pytest.raises(StateError, match="version 2, and this Confide reads 1"):
        snapshot.read(folder)


def test_damage_is_noticed(folder: Path) -> None:
    """Cut short or changed anywhere: it is refused, or says the same as before."""
    snapshot.write(folder, HEADER, ARRAYS)
    path = folder / "snapshot.npz"
    whole, header = path.read_bytes(), snapshot.read(folder)[0]
    coins, refused = random.Random(1), 0
    for i in range(300):
        at = coins.randrange(len(whole))
        path.write_bytes(
            whole[:at] if i % 2 else whole[:at] + bytes([whole[at] ^ 1 << coins.randrange(8)]) + whole[at + 1 :]
        )
        try:
            found, arrays = snapshot.read(folder)
            assert found == header and same(arrays)
        except StateError:
            refused += 1
    assert refused > 200
