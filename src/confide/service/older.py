"""Requests that are no longer in memory: where the journal has each, by its id and by its round.

The journal has everything for as long as a ticket is good, so memory need not have it too. This index says which of its
notes has a request, what came of its label, and which notes have rows of a person. It is a file of SQLite without a
name, which nobody else can open and which ends with the process: a desk that is opened makes it anew from the journal.
So nothing in it must be durable, and a question costs some 130 bytes of a disk, and none of the memory.

Who is looked for here asked a fixed number of public rounds ago, or more (`confide.service.requests.RECENT`): whether
a request is found in memory or here tells nobody anything. Every question is looked for under both names that it may
have, its own and the one it leaves behind when its person is forgotten. How long a look takes depends on which pages
the system has at hand, so on what others looked for lately, late labels among it: that is time, which ticks hide
(docs/threat-model.md, "Time").
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from confide.errors import StateError
from confide.ledger.book import Book
from confide.service.journal import ASKED, Row, Rows

__all__ = ["Older", "Place"]

_NAME = "asked.db"
_SCHEMA = """
CREATE TABLE round(number INTEGER PRIMARY KEY, about BLOB NOT NULL);
CREATE TABLE asked(key BLOB NOT NULL, number INTEGER NOT NULL, PRIMARY KEY(key, number)) WITHOUT ROWID;
CREATE TABLE note(
    kind TEXT NOT NULL, sequence INTEGER NOT NULL, rounds INTEGER NOT NULL, minute INTEGER NOT NULL,
    leaf INTEGER NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY(kind, sequence)) WITHOUT ROWID;
CREATE TABLE other(
    kind TEXT NOT NULL, sequence INTEGER NOT NULL, whose BLOB NOT NULL,
    PRIMARY KEY(kind, sequence, whose)) WITHOUT ROWID;
CREATE INDEX other_whose ON other(whose);
BEGIN;
"""
_PRAGMAS = (
    "page_size = 4096", "journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "temp_store = MEMORY",
    "secure_delete = ON", "cache_size = -8192", "cache_spill = OFF",
)  # fmt: skip
_MANY = 250
"""Keys that are looked for at once: everybody who looks without the desk's lock waits for one piece at most."""
_ABOUT = Struct("<32sqiiiihhhq??")


class Place(NamedTuple):
    """Where the journal has a question, and what came of it."""

    key: bytes
    """Whose it is and its id, as in `Row`; once its person was forgotten what stands for both, as `Row.left` has it."""
    sequence: int
    """The note."""
    at: int
    """The row in it."""
    epoch: int
    leaf: int
    """As in `Row`: the minute it came, by the machine's clock."""
    minute: int
    """The same by the public clock."""
    label: int
    """What was answered; −1 for nothing."""
    source: int
    taught: int
    """The label that was brought; −1 for none."""
    lesson: int
    """The entry that made that durable; 0 for none."""
    counted: bool
    """Whether the monitor counts it."""
    forgotten: bool
    number: int
    shares: tuple[float, ...] | None
    """The probabilities that were told with it."""

    def __repr__(self) -> str:
        return f"Place(number={self.number})"

    @property
    def open(self) -> bool:
        """Whether it was answered and waits for a label."""
        return self.label >= 0 and self.taught < 0

    def brought(self, label: int, lesson: int) -> Place:
        """The same once its label came, and which entry made that durable."""
        return self._replace(taught=label, lesson=lesson)

    def left(self, key: bytes) -> Place:
        """What is left of it once its person was forgotten."""
        return self._replace(key=key, label=-1, source=-1, taught=-1, forgotten=True, shares=None)

    def pack(self) -> bytes:
        """Of one length, whatever came of it."""
        shares = () if self.shares is None else self.shares
        return _ABOUT.pack(*self[:12]) + Struct(f"<{len(shares)}d").pack(*shares)

    @classmethod
    def of(cls, number: int, about: bytes) -> Place:
        """What was packed."""
        told = len(about) - _ABOUT.size
        shares = Struct(f"<{told // 8}d").unpack_from(about, _ABOUT.size) if told else None
        return cls._make((*_ABOUT.unpack_from(about), number, shares))


class Older:
    """The index of what left the memory.

    Its owner holds the desk's lock, but for `find`. An error of the disk ends the book: the desk is opened again then,
    with another index. What labels change is written with the next question's round: where the disk is full, nobody
    finds out at a label.

    Parameters
    ----------
    folder
        The model's, where the file is made.
    book
        The ledger, which has the journal.
    """

    def __init__(self, folder: Path, book: Book) -> None:
        self._book, self._lock, path = book, threading.Lock(), folder / _NAME
        self.size = 0
        """How many questions it has."""
        with self._guarded():
            path.unlink(missing_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for pragma in _PRAGMAS:
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_SCHEMA)
            self._keep()
            self._close = weakref.finalize(self, self._db.close)
            with suppress(OSError):  # where an open file keeps its name, the next desk takes it away
                path.unlink()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            why = getattr(error, "sqlite_errorname", None) or type(error).__name__
            said = f"the index of older requests cannot be used ({why}): make room, then load the state again"
            self._book.end(said)
            raise StateError(said) from None

    def _keep(self) -> None:
        """Everything that changed has its place on the disk from now on."""
        self._db.execute("COMMIT")
        self._db.execute("BEGIN")

    def close(self) -> None:
        """It is gone."""
        with self._lock:
            self._close()

    # ------------------------------------------------------------------ questions

    def add(self, places: Sequence[Place]) -> None:
        """Questions leave the memory, in the order of their rounds."""
        rounds = [(one.number, one.pack()) for one in places]
        keys = sorted((one.key, one.number) for one in places)  # neighbours are on one page
        with self._guarded():
            for at in range(0, len(places), _MANY):
                with self._lock:
                    self._db.executemany("INSERT INTO round VALUES (?, ?)", rounds[at : at + _MANY])
                    self._db.executemany("INSERT INTO asked VALUES (?, ?)", keys[at : at + _MANY])
            with self._lock:
                self._keep()
        self.size += len(places)

    def find(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The last rounds of those keys that are known. It may be called without the desk's lock."""
        found, left = dict[bytes, int](), iter(keys)
        with self._guarded():
            while some := list(islice(left, _MANY)):
                with self._lock:
                    places = ", ".join("?" * len(some))
                    last = f"SELECT key, max(number) FROM asked WHERE key IN ({places}) GROUP BY key"
                    found.update(self._db.execute(last, some))
        return found

    def at(self, number: int) -> Place | None:
        """The question of a round."""
        with self._guarded(), self._lock:
            row = self._db.execute("SELECT number, about FROM round WHERE number = ?", (number,)).fetchone()
        return None if row is None else Place.of(*row)

    def change(self, place: Place) -> None:
        """Something came of a question."""
        with self._guarded(), self._lock:
            self._db.execute("UPDATE round SET about = ? WHERE number = ?", (place.pack(), place.number))

    def after(self, number: int, most: int) -> list[Place]:
        """The next questions after a round, so many at most."""
        with self._guarded(), self._lock:
            rows = self._db.execute(
                "SELECT number, about FROM round WHERE number > ? ORDER BY number LIMIT ?",
                (number, most),
            ).fetchall()
        return [Place.of(*row) for row in rows]

    def drop(self, places: Sequence[Place]) -> None:
        """No note has these any more."""
        with self._guarded(), self._lock:
            self._db.executemany("DELETE FROM round WHERE number = ?", [(one.number,) for one in places])
            keys = sorted((one.key, one.number) for one in places)
            self._db.executemany("DELETE FROM asked WHERE key = ? AND number = ?", keys)
        self.size -= len(places)

    def of(self, whose: bytes) -> list[Place]:
        """Somebody's questions, in order."""
        with self._guarded(), self._lock:
            rows = self._db.execute(
                "SELECT round.number, about FROM asked JOIN round USING (number) WHERE key BETWEEN ? AND ?",
                (whose, whose + b"\xff" * 17),
            ).fetchall()
        return sorted((Place.of(*row) for row in rows), key=lambda one: one.number)

    def rename(self, places: Sequence[tuple[Place, bytes]]) -> None:
        """The person of these questions was forgotten: each has this key from now on."""
        with self._guarded(), self._lock:
            gone = [(one.key, one.number) for one, _ in places]
            self._db.executemany("DELETE FROM asked WHERE key = ? AND number = ?", gone)
            new = [(key, one.number) for one, key in places]
            self._db.executemany("INSERT INTO asked VALUES (?, ?)", new)
            about = [(one.left(key).pack(), one.number) for one, key in places]
            self._db.executemany("UPDATE round SET about = ? WHERE number = ?", about)

    def rows(self, places: Iterable[Place]) -> dict[int, Row]:
        """What the journal has of these questions, by their rounds, but for those that cannot be read now."""
        found, notes = dict[int, Row](), dict[int, list[Place]]()
        for one in places:
            notes.setdefault(one.sequence, []).append(one)
        for sequence, theirs in notes.items():
            try:
                note = self._book.look(ASKED, sequence)
            except StateError:
                if self._book.ended:
                    raise
                note = None  # its bringers are told to come again, and nobody else
            for one in theirs:
                row = None if note is None else Rows.of(note[0]).at(note[1], one.at)
                if row is not None and (row.whose + row.id, row.number) == (one.key, one.number):
                    found[one.number] = row
        return found

    # ------------------------------------------------------------------ notes

    def note(self, kind: str, sequence: int, about: tuple[int, int, int, int], others: Iterable[bytes] = ()) -> None:
        """A note was written: rounds taken by then, the public clock's minute, its last leaf, and how many rows it has.

        `others` are those whose rows are in it beside the questions that have rounds.
        """
        with self._guarded(), self._lock:
            self._db.execute("INSERT INTO note VALUES (?, ?, ?, ?, ?, ?)", (kind, sequence, *about))
            theirs = [(kind, sequence, whose) for whose in others]
            self._db.executemany("INSERT OR IGNORE INTO other VALUES (?, ?, ?)", theirs)

    def first(self, kind: str) -> Iterator[tuple[int, int, int, int, int]]:
        """Notes of this kind (sequence, rounds, minute, leaf, rows), from the first one that is there."""
        last = -1
        while True:
            with self._guarded(), self._lock:
                some = self._db.execute(
                    "SELECT sequence, rounds, minute, leaf, rows FROM note WHERE kind = ? AND sequence > ? "
                    "ORDER BY sequence LIMIT 64",
                    (kind, last),
                ).fetchall()
            if not some:
                return
            yield from some
            last = some[-1][0]

    def torn(self, kind: str, sequence: int) -> None:
        """Notes of this kind up to this one are dropped."""
        with self._guarded(), self._lock:
            for table in ("note", "other"):
                self._db.execute(f"DELETE FROM {table} WHERE kind = ? AND sequence <= ?", (kind, sequence))

    def others(self, whose: bytes) -> list[tuple[str, int]]:
        """Notes (kind, sequence) that have other rows of somebody than questions with rounds."""
        with self._guarded(), self._lock:
            return self._db.execute("SELECT kind, sequence FROM other WHERE whose = ?", (whose,)).fetchall()

    def forget(self, whose: bytes) -> None:
        """No note has other rows of theirs any more; what `rename` changed is written over on the disk, too."""
        with self._guarded(), self._lock:
            self._db.execute("DELETE FROM other WHERE whose = ?", (whose,))
            self._keep()
