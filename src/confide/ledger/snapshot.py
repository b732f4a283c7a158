"""Snapshots: what a mechanism has learned, in a folder that is its owner's alone.

    snapshot.npz   arrays and a JSON header, no pickle; replaced as a whole
    key            the secret that routes people and signs tickets

A snapshot may be old: what was spent since then is in the ledger, which is the only judge of that. See docs/state.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import StateError

__all__ = [
    "VERSION", "exists", "make_folder", "read", "read_extra", "read_key", "write", "write_extra",
    "write_key",
]  # fmt: skip

VERSION = 2
_FORMAT = "confide-state"
_SNAPSHOT, _KEY = "snapshot.npz", "key"


def exists(folder: Path) -> bool:
    """Whether a snapshot was ever finished here."""
    return (folder / _SNAPSHOT).is_file()


def make_folder(folder: Path) -> None:
    """An empty folder for its owner alone, or a StateError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise StateError(f"{folder} is not empty: a state needs a folder of its own")
        folder.chmod(0o700)
    except OSError as error:
        raise StateError(f"{folder} cannot be made: {error.strerror}") from None


def write(folder: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put a snapshot in the place of the last one: afterwards the folder has the old one or the new one, whole.

    Parameters
    ----------
    header
        Anything that JSON can hold; `format` and `version` are added.
    arrays
        Arrays by name; "header" is taken.

    Raises
    ------
    StateError
        If it could not be written, or if there is something that only pickle could hold; the old one is still there.
    """
    if "header" in arrays or any(array.dtype.hasobject for array in arrays.values()):
        raise StateError("a snapshot holds arrays of numbers: give others another form first")
    try:
        text = json.dumps({**header, "format": _FORMAT, "version": VERSION}).encode()
    except (TypeError, ValueError):
        raise StateError("a snapshot's header holds what JSON can hold: give anything else another form") from None
    whole = {**arrays, "header": np.frombuffer(text, dtype=np.uint8)}
    _replace(folder / _SNAPSHOT, lambda file: np.savez(file, **whole))  # type: ignore[arg-type]


def read(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of the snapshot in a folder.

    Raises
    ------
    StateError
        If there is none, or it is damaged, or of another version.
    """
    if not exists(folder):
        raise StateError(f"there is no saved state in {folder}")
    try:
        with open(folder / _SNAPSHOT, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = dict(file)
        header = json.loads(arrays.pop("header").tobytes())
        kind, number = header["format"], header["version"]
    except OSError as error:
        raise StateError(f"the snapshot in {folder} cannot be read: {error.strerror}") from None
    except Exception:  # a damaged file can make its readers raise anything
        raise StateError(f"the snapshot in {folder} is damaged: restore its newest backup beside the ledger") from None
    if kind != _FORMAT or not isinstance(number, int):
        raise StateError(f"{folder} does not hold a Confide state")
    if number != VERSION:
        raise StateError(
            f"the state in {folder} has version {number}, and this Confide reads {VERSION}: load it with the Confide "
            "that wrote it"
        )
    return header, arrays


def write_key(folder: Path, key: bytes) -> None:
    """Keep the secret of a state."""
    _replace(folder / _KEY, lambda file: file.write(key))


def read_key(folder: Path) -> bytes:
    """The secret of a state."""
    try:
        return (folder / _KEY).read_bytes()
    except OSError as error:
        raise StateError(
            f"the key in {folder} cannot be read ({error.strerror}): without it people would reach other copies"
        ) from None


def write_extra(folder: Path, name: str, body: bytes) -> None:
    """Keep something beside a snapshot that no promise depends on."""
    _replace(folder / name, lambda file: file.write(body))


def read_extra(folder: Path, name: str) -> bytes | None:
    """What was kept under this name; None for nothing."""
    try:
        return (folder / name).read_bytes()
    except OSError:
        return None


def _replace(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that it is the old one or the new one, whatever happens."""
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)  # what an interrupted save left, with whatever mode it had
        with open(
            os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600), "wb"
        ) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StateError(f"{path} could not be written: {error.strerror or 'the disk may be full'}") from None


def _sync_folder(folder: Path) -> None:
    """Make a file's new name durable, where the system lets one say so."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
