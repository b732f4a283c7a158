"""A model's book: entries that many threads add, and one of them writes for all.

What is written does not depend on an outcome, nor does its size or the pages it touches: every entry of a person's
round changes that person's row, sure or not, and numbers of any size take the same room.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

from confide.errors import StateError
from confide.ledger.file import CHECKSUM, WIDE, File, Lock, note_checksum, trouble

__all__ = ["FORGOT", "LIFE", "PERSON", "RELEASED", "SIGN", "USED", "Book", "Entry"]

PERSON = f"""
INSERT INTO person(model, who, unsure, watched, labels, sequence, checksum)
SELECT m, w, u, d, l, s, {CHECKSUM}(m, w, u, d, l, s)
FROM (SELECT ? AS m, ? AS w, ? AS u, ? AS d, ? AS l, ? AS s) WHERE true
ON CONFLICT(model, who) DO UPDATE SET
    unsure = MAX(unsure, excluded.unsure), watched = MAX(watched, excluded.watched),
    labels = MAX(labels, excluded.labels), sequence = excluded.sequence,
    checksum = {CHECKSUM}(
        model, who, MAX(unsure, excluded.unsure), MAX(watched, excluded.watched), MAX(labels, excluded.labels),
        excluded.sequence)"""
"""Raise a person's counts: model, who, unsure, watched, labels, sequence, which changes even if nothing else does."""
RELEASED = f"""
INSERT INTO released(model, kind, number, noisy, exact, checksum)
SELECT m, k, n, a, b, {CHECKSUM}(m, k, n, a, b) FROM (SELECT ? AS m, ? AS k, ? AS n, ? AS a, ? AS b)"""
"""What a guide released: once, never again with other noise."""
SIGN = f"""
UPDATE model SET checksum = {CHECKSUM}(id, name, epoch, sequence, rounds, unsure, halted, history) WHERE id = ?"""
"""Renew the checksum of a model's row."""
USED = f"""
INSERT OR IGNORE INTO used(model, number, epoch, checksum)
SELECT m, n, e, {CHECKSUM}(m, n, e) FROM (SELECT ? AS m, ? AS n, ? AS e)"""
"""A ticket that was learned."""
FORGOT = f"""
INSERT OR IGNORE INTO forgot(model, sequence, copy, who, checksum)
SELECT m, s, c, w, {CHECKSUM}(m, s, c, w) FROM (SELECT ? AS m, ? AS s, ? AS c, ? AS w)"""
"""A copy that was reset for a person."""
LIFE = f"""
INSERT INTO life(model, epoch, mark, rounds, checksum)
SELECT m, e, k, r, {CHECKSUM}(m, e, k, r) FROM (SELECT ? AS m, ? AS e, ? AS k, ? AS r)"""
"""An owner's life begins: its epoch, a mark that no other life has, and the rounds taken before it."""
_SEALED = f"""
INSERT OR IGNORE INTO sealed(model, why, checksum)
SELECT m, w, {CHECKSUM}(m, w) FROM (SELECT ? AS m, ? AS w)"""
_NOTE = "INSERT INTO journal(model, kind, sequence, width, body, checksum) VALUES (?, ?, ?, ?, ?, ?)"
_NOTED = "SELECT width, body FROM journal WHERE model = ? AND kind = ? AND sequence = ?"
_ERASED = "UPDATE journal SET body = ?, checksum = ? WHERE model = ? AND kind = ? AND sequence = ?"
_TORN = "DELETE FROM journal WHERE model = ? AND kind = ? AND sequence <= ?"
_GROW = """
UPDATE model SET rounds = MAX(rounds, ?), unsure = MAX(unsure, ?), halted = COALESCE(halted, ?),
    history = MAX(history, ?), sequence = ?
WHERE id = ? AND epoch = ? AND sequence = ?"""
_PRUNE = "DELETE FROM used WHERE model = ? AND number <= ?"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one call of a mechanism adds. All numbers are absolute; the form never depends on an outcome.

    Parameters
    ----------
    rounds, unsure
        Rounds taken, and unsure answers counted, up to and with this call.
    halted
        Why the run halted; None while it has not.
    shares
        (who, their unsure answers so far), for every round of a person, sure or not.
    watched
        (who, their rounds that the monitor has counted).
    used
        Tickets (epoch, number) whose label was learned.
    forgot
        (copy, who): the copy was reset and the person's open questions were dropped.
    labels
        (who, labels of theirs that the guide learned): before the sum that holds them is released.
    history
        Rows of history taken.
    released
        (kind, number, noisy row, exact sums) of what the guide releases, as bytes.
    notes
        (kind, width, body) for the journal: rows of one width, each beginning with the 16 bytes that say whose it is.
    erased
        (kind, sequence, whose): rows of the journal to be overwritten with zeros.
    sealed
        Why nobody is to be answered any more, for good.
    """

    rounds: int
    unsure: int
    halted: str | None = None
    shares: tuple[tuple[bytes, int], ...] = ()
    watched: tuple[tuple[bytes, int], ...] = ()
    used: tuple[tuple[int, int], ...] = ()
    forgot: tuple[tuple[int, bytes], ...] = ()
    labels: tuple[tuple[bytes, int], ...] = ()
    history: int = 0
    released: tuple[tuple[str, int, bytes, bytes], ...] = ()
    notes: tuple[tuple[str, int, bytes], ...] = ()
    erased: tuple[tuple[str, int, bytes], ...] = ()
    sealed: str | None = None


class Book:
    """One model, owned by this process: the only thing that writes to its row. Made by `Ledger.claim`.

    `add` is cheap and may be called under a lock; `wait` goes to the disk and is called by many threads outside of it:
    whoever comes first writes everything that was added, in one transaction, and the others find theirs written.

    After a write that failed, for whatever reason, the book is broken for good: `add` and `wait` raise the same
    sentence to everybody, whatever was in the entry. What was in the failed write never counts as durable.
    """

    def __init__(
        self, file: File, lock: Lock, writing: threading.Lock, key: int, epoch: int, sequence: int, mark: int = 0
    ) -> None:
        self.path = file.path
        self.pid = os.getpid()
        self.epoch = epoch
        """How often the model was claimed, this time included."""
        self.mark = mark
        """A random number that no other life of the model has: a ledger that was rolled back does not know it."""
        self.clock: Callable[[], float] = float  # nothing here looks at a clock, unless its owner gives it one
        self.commits, self.seconds = 0, 0.0
        """Writes that were made, and how long they took by that clock: for the operator's eyes."""
        self._file, self._key = file, key
        self._adding, self._writing = threading.Lock(), writing
        self._pending: list[tuple[int, Entry]] = []
        self._sequence = self._durable = sequence
        self._prune = -1
        self._tear: dict[str, int] = {}
        self._ended: str | None = None
        self._identity = _identity(file.path)
        self._release = weakref.finalize(self, _release, file, lock, key, epoch, self.pid)

    @property
    def sequence(self) -> int:
        """The number of the last entry that was added: what a snapshot taken now remembers."""
        return self._sequence

    @property
    def durable(self) -> int:
        """The number of the last entry that is on the disk, with all before it. Reading it takes no lock."""
        return self._durable

    @property
    def ended(self) -> bool:
        """Whether nothing is written any more: after a public write that failed, or a close."""
        return self._ended is not None

    @property
    def closed(self) -> bool:
        """Whether the model was given back."""
        return not self._release.alive

    def add(self, entry: Entry) -> int:
        """Put in an entry, and get its number for `wait`. Nothing goes to the disk yet.

        Raises
        ------
        StateError
            If a write failed before, if the book was closed, or if this process was forked from its owner.
        """
        with self._adding:
            self._check()
            self._sequence += 1
            self._pending.append((self._sequence, entry))
            return self._sequence

    def wait(self, sequence: int, *, private: bool = False) -> None:
        """Return when the entry with this number, and all before it, are on the disk.

        Parameters
        ----------
        private
            That there was this call is not public, such as a label's: then a write that fails is told to this caller
            alone. What is pending stays so, and goes out with the next public call's write, or ends the book with it.

        Raises
        ------
        StateError
            As `add`, and if this write fails.
        ValueError
            If there is no entry with this number.
        """
        self._check()
        if sequence <= self._durable:
            return
        if sequence > self._sequence:
            raise ValueError(f"no entry has the number {sequence}: wait for what add returned")
        with self._writing:
            self._check()
            if sequence <= self._durable:
                return
            began = self.clock()
            try:
                self._write()
                self.commits, self.seconds = self.commits + 1, self.seconds + self.clock() - began
            except BaseException as error:
                if private and isinstance(error, Exception):
                    raise StateError(f"the ledger {self.path} could not be written: try again") from None
                self._ended = self._why(error)
                if not isinstance(error, Exception):
                    raise
            self._check()

    def prune(self, before: int) -> None:
        """With the next write, drop used tickets whose number is at most this: they have expired anyway."""
        with self._adding:
            self._check()
            self._prune = max(self._prune, before)

    def tear(self, kind: str, before: int) -> None:
        """With the next write, drop the journal's notes of this kind up to this sequence number."""
        with self._adding:
            self._check()
            self._tear[kind] = max(self._tear.get(kind, -1), before)

    def close(self) -> None:
        """Write what is pending and give the model back; in a forked process, nothing.

        Raises
        ------
        StateError
            If what was pending could not be written; the model is given back all the same.
        """
        if os.getpid() != self.pid or self.closed:
            return
        try:
            if self._ended is None:
                self.wait(self._sequence)
        finally:
            with self._writing:
                self._ended = self._ended or "this book was closed: load the state again"
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if os.getpid() != self.pid:  # before any lock: another thread may have held it when the process was forked
            raise StateError("this book was forked: two processes must not spend one budget; use it where it was made")
        if self._ended is not None:
            raise StateError(self._ended)

    def _why(self, error: BaseException) -> str:
        if isinstance(error, StateError):
            return str(error)
        reason = trouble(error) if isinstance(error, sqlite3.Error | OSError) else type(error).__name__
        return (
            f"the ledger {self.path} could not be written ({reason}): nothing is answered any more; "
            "make room, then load the state again"
        )

    def _write(self) -> None:
        """Everything pending, in one transaction."""
        with self._adding:
            batch, prune, tear = list(self._pending), self._prune, tuple(self._tear.items())
        last, key = batch[-1][0], self._key
        entries = [entry for _, entry in batch]
        people: dict[bytes, list[int]] = {}
        for column, (who, count) in chain(
            ((0, share) for entry in entries for share in entry.shares),
            ((1, share) for entry in entries for share in entry.watched),
            ((2, share) for entry in entries for share in entry.labels),
        ):
            counts = people.setdefault(who, [0, 0, 0])
            counts[column] = max(counts[column], count)
        if _identity(self.path) != self._identity:
            raise StateError(
                f"the ledger {self.path} was moved or replaced: nothing is answered any more; load it again"
            )
        with self._file.transaction() as db:
            grown = db.execute(
                _GROW,
                (
                    max(entry.rounds for entry in entries),
                    max(entry.unsure for entry in entries),
                    next((entry.halted for entry in entries if entry.halted is not None), None),
                    max(entry.history for entry in entries),
                    *(last, key, self.epoch, self._durable),
                ),
            )
            if grown.rowcount != 1:
                raise StateError(
                    f"another process has taken over this model of the ledger {self.path}: "
                    "nothing is answered here any more; go on where it was loaded last"
                )
            db.execute(SIGN, (key,))
            db.executemany(PERSON, ((key, who, *(n + WIDE for n in counts), last) for who, counts in people.items()))
            db.executemany(RELEASED, ((key, *one) for entry in entries for one in entry.released))
            db.executemany(USED, ((key, number, epoch) for entry in entries for epoch, number in entry.used))
            db.executemany(FORGOT, ((key, at, copy, who) for at, entry in batch for copy, who in entry.forgot))
            if prune >= 0:
                db.execute(_PRUNE, (key, prune))
            db.executemany(_SEALED, ((key, entry.sealed) for entry in entries if entry.sealed is not None))
            self._note(db, batch, tear)
        with self._adding:
            del self._pending[: len(batch)]
            self._tear = {kind: at for kind, at in self._tear.items() if (kind, at) not in tear}
        self._durable = last

    def _note(self, db: sqlite3.Connection, batch: list[tuple[int, Entry]], tear: tuple[tuple[str, int], ...]) -> None:
        """The journal's part. What is dropped goes first: new notes are then written over the same pages."""
        key = self._key
        db.executemany(_TORN, ((key, kind, before) for kind, before in tear))
        for at, entry in batch:
            for kind, width, body in entry.notes:
                db.execute(_NOTE, (key, kind, at, width, body, note_checksum(body, key, kind, at, width)))
            for kind, sequence, whose in entry.erased:
                found = db.execute(_NOTED, (key, kind, sequence)).fetchone()
                if found is not None:
                    width, body = found[0], _without(whose, *found)
                    checksum = note_checksum(body, key, kind, sequence, width)
                    db.execute(_ERASED, (body, checksum, key, kind, sequence))


def _without(whose: bytes, width: int, body: bytes) -> bytes:
    """A note with one person's rows overwritten."""
    rows = bytearray(body)
    for at in range(0, len(rows), width):
        if rows[at : at + len(whose)] == whose:
            rows[at : at + width] = bytes(width)
    return bytes(rows)


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _release(file: File, lock: Lock, key: int, epoch: int, pid: int) -> None:
    """Give a model back. It also runs when the book is dropped, or the process ends, without a `close`."""
    if os.getpid() != pid:
        return
    try:
        file.db.execute("UPDATE model SET owned = 0 WHERE id = ? AND epoch = ?", (key, epoch))
        file.db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # then the file alone is the whole ledger
    except sqlite3.Error:
        pass  # the model stays marked, and its -wal stays beside it
    file.close()
    lock.release()
