"""States of version 1: read for ever, and moved so that no two versions could spend one budget."""

import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import StateError
from confide.ledger import Entry, Ledger, old, snapshot
from confide.ledger.sqlite import SqliteStore

V1 = Path(__file__).parent / "states" / "v1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """See tests/states/README.md: a snapshot, and a journal that goes on after it."""
    return Path(shutil.copytree(V1, tmp_path / "v1"))


@pytest.fixture
def ledger(folder: Path) -> Ledger:
    return Ledger(folder / "ledger.db")


def spent_by_0_1(folder: Path) -> dict[str, Any] | None:
    """What Confide 0.1 would go on from; None where it refuses. Its rules, written down once more."""
    with np.load(folder / "snapshot.npz") as file:
        header = json.loads(file["header"].tobytes())
    if header["version"] != 1:
        return None
    entries: list[dict[str, Any]] = []
    for line in (folder / "journal").read_bytes().split(b"\n")[:-1]:
        body, _, checksum = line.rpartition(b" ")
        if len(checksum) != 8 or f"{zlib.crc32(body):08x}".encode() != checksum:
            return None
        entries.append(json.loads(body))
        if entries[-1]["number"] != len(entries):
            return None
    return None if len(entries) < header["journal"] else {"unsure": max(entry.get("unsure", 0) for entry in entries)}


def add_line(folder: Path, number: int, **entry: Any) -> None:
    body = json.dumps({"number": number, **entry})
    with open(folder / "journal", "ab") as file:
        file.write(f"{body} {zlib.crc32(body.encode()):08x}\n".encode())


def test_a_state_of_version_1_is_read_for_ever(folder: Path) -> None:
    assert old.is_old(folder)
    state = old.read(folder)
    spent = state.spent
    assert (spent.rounds, spent.unsure, spent.halted, spent.epoch, spent.sequence) == (11, 6, None, 0, 10)
    assert sorted(spent.shares.values()) == [1, 1, 1, 1, 2] and sum(spent.watched.values()) == 11
    assert spent.used == frozenset() and [copy for _, copy, _ in spent.forgot] == [3]
    assert spent.forgot[0][0] > state.header["sequence"] == 1, "forgotten after the snapshot"
    assert state.header["version"] == snapshot.VERSION and state.header["open"] == []
    assert not {"journal", "round", "unsure", "halted", "epoch", "unit_unsure", "unit_counted"} & state.header.keys()
    assert all(name.startswith("bank/") for name in state.arrays) and state.goes_to is None
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == [
        path.read_bytes() for path in sorted(V1.iterdir())
    ], "reading changes nothing"


def test_a_moved_state_is_one_of_today(folder: Path, ledger: Ledger) -> None:
    before = old.read(folder)
    old.move(folder, ledger, "pop")
    assert not old.is_old(folder) and ledger.read("pop") == before.spent
    header, arrays = snapshot.read(folder)
    assert header == before.header and arrays.keys() == before.arrays.keys()
    assert all(np.array_equal(arrays[name], before.arrays[name]) for name in arrays)
    with ledger.claim("pop") as book:
        assert (book.epoch, book.sequence) == (1, 10)
        book.wait(book.add(Entry(12, 7)))
    assert ledger.read("pop").rounds == 12


def test_version_0_1_refuses_a_moved_state(folder: Path, ledger: Ledger) -> None:
    """Also when somebody puts its old snapshot back."""
    assert spent_by_0_1(folder) == {"unsure": 6}
    old.move(folder, ledger, "pop")
    assert spent_by_0_1(folder) is None
    shutil.copy(V1 / "snapshot.npz", folder)
    assert spent_by_0_1(folder) is None


class Crash(BaseException):
    """The power goes."""


def crash(*_: Any, **__: Any) -> Any:
    raise Crash


def stop_in(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "half a closing line":

        def half(handle: int) -> None:
            os.ftruncate(handle, os.fstat(handle).st_size - 20)
            raise Crash

        monkeypatch.setattr(os, "fsync", half)
    elif where == "before the ledger":
        monkeypatch.setattr(Ledger, "create", crash)
    elif where == "an empty ledger":
        monkeypatch.setattr(SqliteStore, "insert", crash)
    elif where == "before the snapshot":
        monkeypatch.setattr(snapshot, "write", crash)
    else:
        monkeypatch.setattr(os, "replace", crash)


@pytest.mark.parametrize(
    "where",
    ["half a closing line", "before the ledger", "an empty ledger", "before the snapshot", "before it has its name"],
)
def test_a_move_can_be_interrupted_anywhere(
    where: str, folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At no moment could both versions spend; and called again it comes to the same end."""
    spent = old.read(folder).spent
    for _ in range(2):
        with monkeypatch.context() as broken, pytest.raises(Crash):
            stop_in(broken, where)
            old.move(folder, ledger, "pop")
        known = ledger.path.exists() and "pop" in ledger.models()
        assert not (known and spent_by_0_1(folder)), "both could spend"
        assert old.is_old(folder)
    old.move(folder, ledger, "pop")
    assert ledger.read("pop") == spent and spent_by_0_1(folder) is None and not old.is_old(folder)


def test_what_0_1_spent_after_an_interrupted_move_counts(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The closing line never got whole, so 0.1 went on; its spending is moved too."""
    with monkeypatch.context() as broken, pytest.raises(Crash):
        stop_in(broken, "half a closing line")
        old.move(folder, ledger, "pop")
    os.truncate(folder / "journal", (V1 / "journal").stat().st_size)  # as 0.1 does with a torn line
    add_line(folder, 11, unsure=9, halted="budget")
    old.move(folder, ledger, "pop")
    assert (ledger.read("pop").unsure, ledger.read("pop").halted) == (9, "budget")


def test_a_torn_last_line_was_never_answered(folder: Path, ledger: Ledger) -> None:
    with open(folder / "journal", "ab") as file:
        file.write(b'{"number":11,"unsure":7')
    old.move(folder, ledger, "pop")
    assert ledger.read("pop").unsure == 6 and spent_by_0_1(folder) is None


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "changed": lambda whole: whole.replace(b'"unsure":3', b'"unsure":1'),
    "gone": lambda whole: b"".join(whole.splitlines(keepends=True)[1:]),
    "twice": lambda whole: whole + whole.splitlines(keepends=True)[-1],
    "older": lambda whole: b"",
    "on after the end": lambda whole: (
        whole + b'{"closed":["ledger.db","pop"]} --------\n' + whole.splitlines(keepends=True)[-1]
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_refused(how: str, folder: Path, ledger: Ledger) -> None:
    whole = (folder / "journal").read_bytes()
    (folder / "journal").write_bytes(DAMAGE[how](whole))
    assert (folder / "journal").read_bytes() != whole
    with pytest.raises(StateError, match="journal"):
        old.move(folder, ledger, "pop")
    assert not ledger.path.exists()


def test_a_missing_journal_is_refused(folder: Path, ledger: Ledger) -> None:
    (folder / "journal").unlink()
    with pytest.raises(StateError, match="journal"):
        old.move(folder, ledger, "pop")


def test_a_name_that_is_taken_is_refused(folder: Path, ledger: Ledger) -> None:
    ledger.create("pop")
    with pytest.raises(StateError, match="already"):
        old.move(folder, ledger, "pop")
    assert ledger.read("pop").rounds == 0 and spent_by_0_1(folder), "nothing was done"
    old.move(folder, ledger, "second")


def test_a_state_is_moved_to_one_place(folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to a second ledger, or under a second name: each of them could spend the budget."""
    with monkeypatch.context() as broken, pytest.raises(Crash):
        stop_in(broken, "before the snapshot")
        old.move(folder, ledger, "pop")
    elsewhere = Ledger(folder.parent / "elsewhere.db")
    for other, name in ((ledger, "second"), (elsewhere, "pop")):
        with pytest.raises(StateError, match=r"ledger\.db as pop: go on there"):
            old.move(folder, other, name)
    assert ledger.models() == ["pop"] and not elsewhere.path.exists()
    old.move(folder, ledger, "pop")
    ledger.claim("pop").close()
    shutil.copy(V1 / "snapshot.npz", folder)
    with pytest.raises(StateError, match="moved before"):
        old.move(folder, ledger, "pop")


def test_a_living_process_of_0_1_is_noticed(folder: Path, ledger: Ledger) -> None:
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(StateError, match="in use by another process"):
        old.move(folder, ledger, "pop")
    assert spent_by_0_1(folder) == {"unsure": 6} and not ledger.path.exists()
    os.close(handle)
    old.move(folder, ledger, "pop")


def test_halts_and_loads_of_version_1_are_kept(folder: Path) -> None:
    add_line(folder, 11, rounds=267)
    add_line(folder, 12, epoch=3)
    add_line(folder, 13, unsure=8, halted="budget")
    add_line(folder, 14, rounds=20)  # a clean end gives back what was only reserved
    spent = old.read(folder).spent
    assert (spent.rounds, spent.epoch, spent.unsure, spent.halted, spent.sequence) == (20, 3, 8, "budget", 14)
    add_line(folder, 15, rounds=10**6)
    assert old.read(folder).spent.rounds == 500, "no more than the plan has"
