"""State on disk: a snapshot that is safe to read, and a journal of what was spent that is always ahead of the answers.

A state is a folder, readable by its owner alone:

    snapshot.npz   arrays and a JSON header, no pickle; replaced atomically
    journal        one line per thing spent, each with its checksum, synced before the answer leaves
    key            the keys of the routing and of the tickets (mode 0600)
    lock           held while a POP is alive, so that two processes cannot spend one budget

Loading takes the snapshot's copies and the journal's spending, so an old snapshot can neither lower what was spent nor
revive what was forgotten. All randomness is new; only the routing key persists. See docs/state.md.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import zlib
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from confide import learners
from confide.errors import StateError
from confide.learners.base import Base
from confide.planning.plan import Plan
from confide.pop.monitor import Monitor
from confide.privacy.halting import Halting

if TYPE_CHECKING:
    from confide.pop.pop import POP

VERSION = 1
BLOCK = 256
"""Rounds are journalled in blocks of this many, so that what a load goes on from is a function of public rounds."""

P = TypeVar("P", bound="POP")


class Journal:
    """The open journal of a POP's folder. Whatever goes in is on disk before the call returns."""

    def __init__(self, folder: Path, lock: int, number: int, size: int) -> None:
        self.folder = folder
        self._lock = lock
        self._file = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.number = number
        """Lines written so far; a snapshot remembers it."""
        self._size = size
        os.ftruncate(self._file, size)  # a torn last line would spoil the next one
        self._reserved = 0
        self._owed: set[bytes] = set()  # units whose shares an earlier write did not bring to disk

    def _write(self, *entries: dict[str, Any]) -> None:
        lines = b""
        for number, entry in enumerate(entries, start=self.number + 1):
            body = json.dumps({"number": number, **entry}, separators=(",", ":"))
            lines += f"{body} {zlib.crc32(body.encode()):08x}\n".encode()
        os.ftruncate(self._file, self._size)  # what an earlier attempt left behind
        if os.write(self._file, lines) != len(lines):
            raise OSError("the journal could not be written: the disk may be full")
        os.fdatasync(self._file)
        self.number, self._size = self.number + len(entries), self._size + len(lines)

    def reserve(self, rounds: int) -> None:
        """Rounds up to here may be taken: in blocks, so that the number that a load goes on from is public."""
        if rounds > self._reserved:
            self._reserved = rounds + BLOCK
            self._write({"rounds": self._reserved})

    def reached(self, rounds: int) -> None:
        """No further round will be taken."""
        self._write({"rounds": rounds})

    def spent(self, pop: POP, *units: bytes) -> None:
        """The count of unsure answers, the units' shares of it, and whether the run halted."""
        entry: dict[str, Any] = {"unsure": pop._unsure, "halted": pop._halt_reason}
        self._owed.update(units)
        shares = [{"unit": who.hex(), "unit_unsure": pop._unit_unsure.get(who, 0)} for who in sorted(self._owed)]
        self._write(*(entry | share for share in shares or [{}]))
        self._owed.clear()

    def forgot(self, copy: int) -> None:
        """A copy was reset: it stays reset, whatever an older snapshot says."""
        self._write({"forgot": copy})

    def watched(self, pop: POP, who: bytes) -> None:
        """The monitor counts another round of this unit."""
        self._write({"unit": who.hex(), "unit_counted": pop._unit_counted[who]})

    def loaded(self, epoch: int) -> None:
        """A new process took over."""
        self._write({"epoch": epoch})

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._file)
        os.close(self._lock)


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """All complete lines of the journal."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """All complete lines, and how many bytes they are.

    A torn last line was never synced, so its answer never left; any other damage is refused.
    """
    try:
        lines = (folder / "journal").read_bytes().split(b"\n")
    except OSError as error:
        raise StateError(
            f"the journal in {folder} cannot be read ({error.strerror}): without it nothing may be answered"
        ) from None
    entries: list[dict[str, Any]] = []
    size = 0
    for at, line in enumerate(lines[:-1]):
        body, _, checksum = line.rpartition(b" ")
        good = len(checksum) == 8 and f"{zlib.crc32(body):08x}".encode() == checksum
        if good:
            entry = json.loads(body)
            good = entry["number"] == len(entries) + 1
        if not good:
            raise StateError(f"line {at + 1} of the journal in {folder} is damaged: this state must not be used")
        entries.append(entry)
        size += len(line) + 1
    return entries, size


def _take_lock(folder: Path) -> int:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StateError(
            f"the state in {folder} is in use by another process: two of them must not spend one budget"
        ) from None
    return lock


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(path: Path, data: bytes) -> None:
    """Write atomically: the file is the old one or the new one, whatever happens."""
    fresh = path.with_name(path.name + ".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(fresh, path)
    _sync_folder(path.parent)


def _spec(thing: Any) -> Any:
    """A Confide learner or its features as plain JSON, or None for anything else."""
    if isinstance(thing, learners.Pipeline):
        parts = _spec(thing.features), _spec(thing.learner)
        return None if None in parts else {"features": parts[0], "learner": parts[1]}
    if isinstance(thing, (int, np.integer)):
        return int(thing)
    if isinstance(thing, Base) and type(thing).__name__ in learners.__all__:
        params = thing.params()
        try:
            plain = json.loads(json.dumps(params))
        except TypeError:
            return None
        # JSON has no tuples, and a bank goes by the learner's repr: keep them apart from lists.
        plain |= {name: {"tuple": plain[name]} for name, value in params.items() if isinstance(value, tuple)}
        return {"class": type(thing).__name__, "params": plain}
    return None


def _unspec(spec: Any) -> Any:
    if isinstance(spec, dict) and "class" in spec:
        if spec["class"] not in learners.__all__:
            raise StateError(f"the state names an unknown learner {spec['class']!r}")
        params = {
            name: tuple(value["tuple"]) if isinstance(value, dict) and set(value) == {"tuple"} else value
            for name, value in spec["params"].items()
        }
        return getattr(learners, spec["class"])(**params)
    if isinstance(spec, dict):
        return learners.Pipeline(_unspec(spec["features"]), _unspec(spec["learner"]))
    return spec


def save(pop: POP, folder: Path) -> None:
    """See `POP.save`."""
    if not isinstance(pop.plan.halting, Halting):
        raise StateError("the paper's plan halts by a noisy counter that must not be restarted: it cannot be saved")
    if any(not isinstance(label, (str, int, bool)) for label in pop.labels):
        raise StateError("only labels that are str or int can be saved")
    if pop._features is not None and _spec(pop._features) is None:
        raise StateError("features= is an encoder of your own, which cannot be saved: use confide.learners.Features")
    journal = pop._journal
    if journal is None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"{folder} cannot be made: {error.strerror}") from None
        if any(folder.iterdir()):
            raise StateError(f"{folder} is not empty: a POP's state needs a folder of its own")
        pop._bank.state(trusted=True)
        _open_tickets(pop, {})
        folder.chmod(0o700)
        lock = _take_lock(folder)
        _replace(folder / "key", pop._secret)
        journal = Journal(folder, lock, 0, 0)
        journal.spent(pop)
    elif folder.resolve() != journal.folder.resolve():
        raise StateError(f"this POP lives in {journal.folder}: a second copy elsewhere could spend the budget again")
    arrays, bank = {}, {}
    for name, value in pop._bank.state(trusted=True).items():
        if isinstance(value, np.ndarray):
            arrays[f"bank/{name}"] = value
        else:
            bank[name] = value
    fallback = pop._fallback_given
    plain_fallback = fallback if isinstance(fallback, (str, int, bool)) else None
    monitor = pop._monitor_asked
    header = {
        "format": "confide-state",
        "version": VERSION,
        "plan": pop.plan.to_json(),
        "labels": list(pop.labels),
        "fallback": plain_fallback,
        "units": pop.units,
        "after_halt": pop.after_halt,
        "ticket_life": pop.ticket_life,
        "monitor": None if monitor is None else vars(monitor),
        "public_start": pop._public_start,
        "learner": None if pop._public_start else _spec(pop._learner),
        "features": _spec(pop._features),
        "insecure": pop._insecure,
        "key": blake2b(pop._secret).hexdigest(),
        "round": pop._round,
        "unsure": pop._unsure,
        "taught": pop._taught,
        "halted": pop._halt_reason,
        "epoch": pop._epoch,
        "journal": journal.number,
        "unit_unsure": {key.hex(): n for key, n in pop._unit_unsure.items()},
        "unit_counted": {key.hex(): n for key, n in pop._unit_counted.items()},
        "bank": bank,
        "open": _open_tickets(pop, arrays),
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    _replace(folder / "snapshot.npz", buffer.getvalue())
    pop._journal = journal


def _open_tickets(pop: POP, arrays: dict[str, Any]) -> list[list[Any]]:
    """Open tickets whose x can be stored without pickle; others expire with this process."""
    rows, kept = [], []
    for (epoch, number), waiting in pop._open.items():
        entry = [epoch, number, waiting.copy, waiting.answered, None, waiting.who and waiting.who.hex()]
        if isinstance(waiting.x, np.ndarray):
            kept.append(waiting.x)
            entry[4] = waiting.x.size
        else:
            try:
                entry[4] = json.loads(json.dumps(waiting.x))
            except (TypeError, ValueError):
                continue
            if entry[4] != waiting.x:
                continue
        rows.append(entry)
    if kept:
        arrays["open"] = np.concatenate(kept)
    return rows


def load(cls: type[P], folder: Path, *, learner: Any, fallback: Any, trusted: bool) -> P:
    """See `POP.load`."""
    from confide.pop.pop import _Open

    if not (folder / "snapshot.npz").exists():
        raise StateError(f"there is no saved state in {folder}")
    lock = _take_lock(folder)
    try:
        try:
            with open(folder / "snapshot.npz", "rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays.pop("header").tobytes())
        except Exception:
            raise StateError(
                f"the snapshot in {folder} is damaged: restore nothing older without its journal"
            ) from None
        if header.get("format") != "confide-state":
            raise StateError(f"{folder} does not hold a Confide state")
        if header["version"] != VERSION:
            raise StateError(f"the state in {folder} has version {header['version']}; this Confide reads {VERSION}")
        entries, size = _read(folder)
        if len(entries) < header["journal"]:
            raise StateError(f"the journal in {folder} is older than its snapshot: this state must not be used")
        given = learner if learner is not None else _unspec(header["learner"])
        if given is None:
            raise StateError("the learner is not one of Confide's own: give it again, load(path, learner=…)")
        refill = fallback if fallback is not None else header["fallback"]
        if refill is None:
            raise StateError("the fallback was a callable or a model: give it again, load(path, fallback=…)")
        plan = Plan.from_json(header["plan"])
        pop = cls(
            given,
            plan,
            labels=header["labels"],
            fallback=refill,
            features=_unspec(header["features"]),
            units=header["units"],
            after_halt=header["after_halt"],
            ticket_life=header["ticket_life"],
            monitor=None if header["monitor"] is None else Monitor(**header["monitor"]),
            public_start=header["public_start"],
        )
        key = (folder / "key").read_bytes()
        if blake2b(key).hexdigest() != header["key"]:
            raise StateError(f"the key in {folder} is not the one this state was made with")
        pop._set_secret(key)
        stored = {name.removeprefix("bank/"): value for name, value in arrays.items() if name.startswith("bank/")}
        pop._bank.load_state({**header["bank"], **stored}, trusted=trusted)
    except BaseException:
        os.close(lock)
        raise
    pop._insecure = bool(header["insecure"])
    pop._round, pop._unsure, pop._taught = header["round"], header["unsure"], header["taught"]
    pop._halt_reason = header["halted"]
    pop._unit_unsure = {bytes.fromhex(key): n for key, n in header["unit_unsure"].items()}
    pop._unit_counted = {bytes.fromhex(key): n for key, n in header["unit_counted"].items()}
    waiting, at = arrays.get("open", np.empty(0)), 0
    for epoch, number, copy, answered, x, who in header["open"]:
        if isinstance(x, int):
            x, at = waiting[at : at + x], at + x
        pop._open[(epoch, number)] = _Open(copy, x, answered, False, who and bytes.fromhex(who))
    _replay(pop, entries, header["journal"])
    journal = Journal(folder, lock, len(entries), size)
    pop._epoch = max([header["epoch"], *(entry.get("epoch", 0) for entry in entries)]) + 1
    journal.loaded(pop._epoch)
    pop._journal = journal
    return pop


def _replay(pop: POP, entries: list[dict[str, Any]], seen: int) -> None:
    """Bring what was spent up to date: counts only grow, halts stay, forgotten copies are reset."""
    header_round = pop._round
    for entry in entries:
        if "rounds" in entry:
            pop._round = min(max(header_round, entry["rounds"]), pop.plan.rounds)
        pop._unsure = max(pop._unsure, entry.get("unsure", 0))
        pop._halt_reason = entry.get("halted") or pop._halt_reason
        if "unit" in entry:
            key = bytes.fromhex(entry["unit"])
            for table, name in ((pop._unit_unsure, "unit_unsure"), (pop._unit_counted, "unit_counted")):
                if name in entry:
                    table[key] = max(table.get(key, 0), entry[name])
        if "forgot" in entry and entry["number"] > seen:
            pop._bank.reset([entry["forgot"]])


def look(folder: Path) -> dict[str, Any]:
    """What a state says about itself, without loading it: for `confide status`. Operator-only where marked."""
    if not (folder / "snapshot.npz").exists():
        raise StateError(f"there is no saved state in {folder}")
    with np.load(folder / "snapshot.npz", allow_pickle=False) as file:
        header: dict[str, Any] = json.loads(file["header"].tobytes())
    for entry in read_journal(folder):
        header["round"] = entry.get("rounds", header["round"])
        header["unsure"] = max(header["unsure"], entry.get("unsure", 0))
        header["halted"] = entry.get("halted") or header["halted"]
    keep = ("labels", "units", "round", "unsure", "taught", "halted", "insecure", "plan")
    return {name: header[name] for name in keep}
