"""States of version 1, as Confide 0.1 wrote them: read, and moved into a ledger so that 0.1 refuses them from then on.

Such a state is a folder with `snapshot.npz` (version 1), `key`, a `journal` of what was spent, a line each with its
checksum, and a `lock`. The move is safe to be interrupted anywhere, and goes on where it was: first the journal gets a
last line that 0.1 takes for damage, so that nothing more can be spent from it; then the ledger gets what was spent;
then the snapshot becomes one of version 2. At no moment could both versions spend.

Questions that wait for their label expire with the move: version 1 does not say which of them were answered, or whose
were forgotten, after its snapshot, and to refuse only some would tell their askers about others.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from confide.errors import StateError
from confide.ledger import snapshot
from confide.ledger.ledger import Ledger, Spent

try:
    import fcntl
except ImportError:  # then no process of 0.1 can be alive here: it needs fcntl itself
    fcntl = None  # type: ignore[assignment]

__all__ = ["Old", "is_old", "move", "read"]

_VERSION = 1
_CLOSED = (b'{"closed":', b"} --------")  # how the last line of a closed journal begins and ends
_SPENDING = ("journal", "round", "unsure", "halted", "epoch", "unit_unsure", "unit_counted")


@dataclass(frozen=True)
class Old:
    """A state of version 1, in the form that today's have."""

    header: dict[str, Any]
    """As in a snapshot of today: `sequence` is in it, what was spent is not."""
    arrays: dict[str, NDArray[Any]]
    spent: Spent
    goes_to: list[str] | None
    """The ledger and the name for which a move has closed the journal; None if none has."""


def is_old(folder: Path) -> bool:
    """Whether a folder holds a state of version 1 that was not moved, or not to the end."""
    return snapshot.exists(folder) and snapshot.version(folder) == _VERSION


def read(folder: Path) -> Old:
    """A state of version 1, without changing anything.

    Raises
    ------
    StateError
        If it is damaged, or if its journal is older than its snapshot.
    """
    header, arrays = snapshot.read(folder, _VERSION)
    entries, _, goes_to = _journal(folder)
    if len(entries) < header["journal"]:
        raise StateError(f"the journal in {folder} is older than its snapshot: this state must not be used")
    today = {name: value for name, value in header.items() if name not in _SPENDING}
    today |= {"sequence": header["journal"], "version": snapshot.VERSION, "open": []}
    arrays.pop("open", None)
    return Old(today, arrays, _spent(header, entries), goes_to)


def move(folder: Path, ledger: Ledger, model: str) -> None:
    """Move a state of version 1 into a ledger, under this name. Interrupted anywhere, it can be called again.

    Raises
    ------
    StateError
        If a process of 0.1 is using it, if it is damaged, or if the name is taken by another model.
    """
    inside = ledger.path.is_relative_to(folder.resolve())
    target = [str(ledger.path.relative_to(folder.resolve()) if inside else ledger.path), model]
    with _lock(folder):
        old = read(folder)
        if old.goes_to is None:
            if ledger.path.exists() and model in ledger.models():
                raise StateError(f"the ledger {ledger.path} has a model {model!r} already: choose another name")
            _close(folder, target)
        elif old.goes_to != target:
            raise StateError(f"the state in {folder} is being moved into {' as '.join(old.goes_to)}: go on there")
        try:
            ledger.create(model, old.spent)  # also where an earlier move left a file with nothing in it
        except StateError:
            if model not in ledger.models():
                raise
            if ledger.read(model) != old.spent:
                raise StateError(
                    f"the state in {folder} was moved before: bring back the snapshot that was saved since then"
                ) from None
        snapshot.write(folder, old.header, old.arrays)


def _spent(header: dict[str, Any], entries: list[dict[str, Any]]) -> Spent:
    """What was spent: the snapshot's counts, and the journal's where they are higher."""
    rounds, unsure, halted, epoch = (header[name] for name in ("round", "unsure", "halted", "epoch"))
    tables = {
        name: {bytes.fromhex(who): n for who, n in header[name].items()} for name in ("unit_unsure", "unit_counted")
    }
    forgot = []
    for entry in entries:
        rounds = max(header["round"], entry.get("rounds", rounds))  # a clean end gives back what was only reserved
        unsure = max(unsure, entry.get("unsure", 0))
        halted = halted or entry.get("halted")
        epoch = max(epoch, entry.get("epoch", 0))
        for name, table in tables.items():
            if name in entry:
                who = bytes.fromhex(entry["unit"])
                table[who] = max(table.get(who, 0), entry[name])
        if "forgot" in entry:
            forgot.append((entry["number"], entry["forgot"], b""))
    return Spent(
        rounds=min(rounds, json.loads(header["plan"])["rounds"]),
        unsure=unsure,
        halted=halted,
        shares={who: n for who, n in tables["unit_unsure"].items() if n},
        watched={who: n for who, n in tables["unit_counted"].items() if n},
        epoch=epoch,
        sequence=len(entries),
        forgot=tuple(forgot),
    )


def _journal(folder: Path) -> tuple[list[dict[str, Any]], int, list[str] | None]:
    """All complete lines, how many bytes they are, and for which ledger and name the journal was closed after them.

    A torn last line was never synced, so its answer never left; any other damage is refused.
    """
    try:
        lines = (folder / "journal").read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise StateError(
            f"the journal in {folder} cannot be read ({error.strerror}): without it nothing may be answered"
        ) from None
    closed = bool(lines) and lines[-1].startswith(_CLOSED[0]) and lines[-1].endswith(_CLOSED[1])
    goes_to = json.loads(lines.pop().removesuffix(b" --------"))["closed"] if closed else None
    entries: list[dict[str, Any]] = []
    size = 0
    for line in lines:
        body, _, checksum = line.rpartition(b" ")
        entry = json.loads(body) if checksum == f"{zlib.crc32(body):08x}".encode() else {}
        if entry.get("number") != len(entries) + 1:
            raise StateError(
                f"line {len(entries) + 1} of the journal in {folder} is damaged: this state must not be used"
            )
        entries.append(entry)
        size += len(line) + 1
    return entries, size, goes_to


def _close(folder: Path, target: list[str]) -> None:
    """Add the line that 0.1 refuses, after the last whole one."""
    try:
        with open(folder / "journal", "r+b") as file:
            file.truncate(_journal(folder)[1])
            file.seek(0, os.SEEK_END)
            file.write(json.dumps({"closed": target}, separators=(",", ":")).encode() + b" --------\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StateError(
            f"the journal in {folder} could not be closed ({error.strerror}): make room, try again"
        ) from None


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """The lock of 0.1, so that one of its processes is noticed and none starts meanwhile."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateError(
                f"the state in {folder} is in use by another process: two of them must not spend one budget"
            ) from None
        yield
    finally:
        os.close(handle)
