"""Requests that are no longer in memory: where the journal has each, by its name and by its round.

The journal has everything for as long as a ticket is good, so memory need not have it too. This index says which of its
notes has a request, what came of its label, and which notes have rows of a person. It is a file of SQLite without a
name, which nobody else can open and which ends with the process: a desk that is opened makes it anew from the journal.
So nothing in it must be durable, and a question costs some 110 to 190 bytes of a disk, and four of the memory.

Rounds come in bunches, in their order: what leaves the memory together is one row, as nearly all of them are only ever
counted and dropped. A name stands for a person and an id together, whether or not the person was forgotten
(`confide.service.asked.Asking`), so that one look finds both; half of it is enough to find a round by, and what is
found is compared whole.

Who is looked for here asked a fixed number of public rounds ago, or more (`confide.service.requests.RECENT`): whether
a request is found in memory or here tells nobody anything. Every question is looked for: in a filter, and on the disk
if its name may be there, as a retry's is (`confide.service.names`). How long that takes depends on which pages the
system has at hand, so on what others looked for lately, late labels among it: that is time, which ticks hide
(docs/threat-model.md, "Time").
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, repeat
from operator import add
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from confide.errors import StateError
from confide.ledger.book import Book
from confide.service.base import Later
from confide.service.journal import ASKED, TAUGHT, Row, Rows
from confide.service.names import SCHEMA, Names
from confide.service.words import AGAIN

__all__ = ["ABOUT", "Bunch", "Left", "Noted", "Older", "Place", "halves_of"]

_NAME = "asked.db"
_SCHEMA = f"""
{SCHEMA}
CREATE TABLE bunch(first INTEGER PRIMARY KEY, width INTEGER NOT NULL, about BLOB NOT NULL);
CREATE TABLE asker(counted BLOB NOT NULL, first INTEGER NOT NULL, PRIMARY KEY(first, counted)) WITHOUT ROWID;
CREATE INDEX asker_counted ON asker(counted);
CREATE TABLE note(
    sequence INTEGER PRIMARY KEY, rounds INTEGER NOT NULL, minute INTEGER NOT NULL, leaf INTEGER NOT NULL,
    stamp INTEGER, rows INTEGER NOT NULL);
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

class Place(NamedTuple):
    """Where the journal has a question, and what came of it."""

    number: int
    half: int
    """Of its name."""
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
        nothing: dict[str, Any] = {"label": -1, "source": -1, "taught": -1, "lesson": 0, "counted": False}
        return self._replace(key=key, forgotten=True, shares=None, **nothing)

    def pack(self, width: int) -> bytes:
        """In so many bytes."""
        return ABOUT.pack(*self[:-1]) + _shares(self.shares, (width - ABOUT.size) // 8)


class Left(NamedTuple):
    """Questions of a note that leave the memory, in their order."""

    numbers: Sequence[int]
    names: Sequence[bytes]
    counted: Sequence[bytes]
    """As in `confide.service.asked.Asking`."""
    about: Sequence[bytes]
    """As `Place` has them, but for the shares."""
    shares: Sequence[tuple[float, ...] | None]

    def __repr__(self) -> str:
        return f"Left({len(self.numbers)} questions)"


ABOUT = Struct("<qq32sqiiiihhhq??")
"""A place but for its shares."""
_TYPES = ("i8", "i8", "V32", "i8", "i4", "i4", "i4", "i4", "i2", "i2", "i2", "i8", "?", "?")


def _shares(shares: tuple[float, ...] | None, most: int) -> bytes:
    """So many probabilities; nan for each where none were told."""
    return Struct(f"<{most}d").pack(*(shares or (np.nan,) * most))


@cache
def _columns(width: int) -> np.dtype[Any]:
    """The places of a bunch, each of so many bytes, as columns."""
    fields = [(name, f"<{kind}") for name, kind in zip(Place.__match_args__, _TYPES, strict=False)]
    return np.dtype([*fields, ("shares", f"V{width - ABOUT.size}")])


@dataclass(frozen=True)
class Bunch:
    """Rounds that left the memory together, in their order: each takes the same room, whatever came of it."""

    first: int
    width: int
    about: bytes = field(repr=False)

    @classmethod
    def of(cls, left: Sequence[Left]) -> Bunch:
        """These rounds."""
        first, about = left[0].numbers[0], chain.from_iterable([one.about for one in left])
        shares = [*chain.from_iterable([one.shares for one in left])]
        most = max([0 if one is None else len(one) for one in shares], default=0)
        told = map(_shares, shares, repeat(most)) if most else ()
        return cls(first, ABOUT.size + 8 * most, b"".join(map(add, about, told) if most else about))

    @cached_property
    def columns(self) -> NDArray[Any]:
        """All places, by what they are made of."""
        return np.frombuffer(self.about, _columns(self.width))

    def __len__(self) -> int:
        return len(self.about) // self.width

    @property
    def places(self) -> list[Place]:
        """All places."""
        return [self.place(i) for i in range(len(self))]

    def place(self, i: int) -> Place:
        """One of them."""
        at, most = i * self.width, (self.width - ABOUT.size) // 8
        shares = Struct(f"<{most}d").unpack_from(self.about, at + ABOUT.size) if most else None
        told = None if shares is None or np.isnan(shares[0]) else shares
        return Place(*(*ABOUT.unpack_from(self.about, at), told))

    def find(self, number: int) -> int | None:
        """Which of them is this round."""
        numbers = self.columns["number"]
        i = int(numbers.searchsorted(number))
        return i if i < numbers.size and numbers[i] == number else None

    # What a bunch has of the one of its rounds that has most.

    @cached_property
    def number(self) -> int:
        """Its last round."""
        return int(self.columns["number"][-1])

    @cached_property
    def minute(self) -> int:
        """By the public clock."""
        return int(self.columns["minute"].max())

    @cached_property
    def sequence(self) -> int:
        """The last note of questions."""
        return int(self.columns["sequence"].max())

    @property
    def open(self) -> int:
        """How many were answered and wait for a label."""
        columns = self.columns
        return int(((columns["label"] >= 0) & (columns["taught"] < 0)).sum())


class Noted(NamedTuple):
    """A note of questions."""

    sequence: int
    rounds: int
    """Taken by then."""
    minute: int
    """The public clock's."""
    leaf: int
    """The last of which it has a lesson, as what stands for a label is one; −1 for none."""
    stamp: int | None
    """No lesson before it has a later one (public); None where nobody looked."""
    rows: int


class Older:
    """The index of what left the memory.

    Its owner holds the desk's lock, but for `find`. In a public call an error of the disk ends the book: the desk is
    opened again then, with another index. Whatever is new goes to the disk in public calls alone, at public times
    (`note`, `add`), or in an import's (`lessons`): what labels change, and forgetting, takes no new place. Should one
    of these fail all the same, its caller alone is told (`Later`), and the next public call does what was left to be
    done, or ends the book: it must, where the transaction is lost with what labels changed.

    Parameters
    ----------
    folder
        The model's, where the file is made.
    book
        The ledger, which has the journal.
    """

    def __init__(self, folder: Path, book: Book) -> None:
        self._book, self._lock, path = book, threading.Lock(), folder / _NAME
        self._last = self._kept = -1
        self.undone: list[tuple[int | bytes, Callable[[], object]]] = []
        """What private calls could not write, with the round or the person that it is about."""
        self.size = 0
        """How many questions it has."""
        with self._guarded():
            path.unlink(missing_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for pragma in _PRAGMAS:
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_SCHEMA)
            self._names = Names(self._db)
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

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is done within is done, or the book ends: it does at once where it has ended."""
        if self._book.ended:
            self._book.check()
        try:
            yield
        except BaseException:
            self._book.end("a call was cut off while questions left the memory: load the state again")
            raise

    @contextmanager
    def _privately(self) -> Iterator[None]:
        """A look of a private call: where it fails, its caller is to come again."""
        if not self._db.in_transaction:  # what labels changed may be gone: nothing here is believed any more
            raise Later(AGAIN)
        try:
            yield
        except (sqlite3.Error, OSError):
            raise Later(AGAIN) from None

    def _do(self, write: Callable[[], object], about: int | bytes) -> None:
        """A write of a private call, or the next public one's: after one about the same that could not be made."""
        if self._db.in_transaction and all(one != about for one, _ in self.undone):
            with suppress(sqlite3.Error, OSError), self._lock:
                write()
                return
        self.undone.append((about, write))

    def redo(self) -> None:
        """A public call begins: what private ones could not write is written, or the book ends."""
        while self.undone:
            with self._guarded(), self._lock:
                if not self._db.in_transaction:
                    raise sqlite3.DatabaseError
                self.undone[0][1]()
            self.undone.pop(0)

    def _keep(self) -> None:
        """Everything that changed has its place on the disk from now on."""
        self._db.execute("COMMIT")
        self._db.execute("BEGIN")

    def close(self) -> None:
        """It is gone."""
        with self._lock:
            self._close()

    # ------------------------------------------------------------------ questions

    def add(self, left: Sequence[Left]) -> None:
        """Questions leave the memory, in the order of their rounds."""
        if left[0].numbers[0] <= self._last:
            raise RuntimeError("rounds leave the memory in their order")
        self._last, bunch = left[-1].numbers[-1], Bunch.of(left)
        askers = [(one, bunch.first) for one in sorted(set[bytes]().union(*[one.counted for one in left]))]
        with self._guarded(), self._lock:
            for one in left:
                self._names.add(halves_of(one.names), one.numbers)
            self._db.execute("INSERT INTO bunch VALUES (?, ?, ?)", (bunch.first, bunch.width, bunch.about))
            self._db.executemany("INSERT INTO asker VALUES (?, ?)", askers)
            self._keep()
        self.size += len(bunch)

    def find(self, names: Sequence[bytes]) -> dict[bytes, int]:
        """The last rounds of those names that may be known. It may be called without the desk's lock."""
        halves = halves_of(names)
        with self._guarded(), self._lock:
            found = self._names.find(halves)
        return {name: found[half] for name, half in zip(names, halves, strict=True) if half in found} if found else {}

    def after(self, number: int) -> Bunch | None:
        """The next rounds after this one, of which no bunch has others too."""
        with self._guarded(), self._lock:
            row = self._db.execute("SELECT * FROM bunch WHERE first > ? ORDER BY first LIMIT 1", (number,)).fetchone()
        return None if row is None else Bunch(*row)

    def _with(self, number: int) -> tuple[Bunch, int] | None:
        """The bunch that has a round, and where in it."""
        select = "SELECT * FROM bunch WHERE first <= ? ORDER BY first DESC LIMIT 1"
        row = self._db.execute(select, (number,)).fetchone()
        bunch = None if row is None else Bunch(*row)
        at = None if bunch is None else bunch.find(number)
        return None if bunch is None or at is None else (bunch, at)

    def at(self, number: int, *, private: bool = False) -> Place | None:
        """The question of a round."""
        if private:
            self.check_done((number,))
        with self._privately() if private else self._guarded(), self._lock:
            found = self._with(number)
        return None if found is None else found[0].place(found[1])

    def change(self, place: Place) -> None:
        """Something came of a question."""
        self._do(lambda: self._put(place), place.number)

    def _put(self, place: Place) -> None:
        found = self._with(place.number)
        if found is not None:
            bunch, at = found
            with self._db.blobopen("bunch", "about", bunch.first) as blob:
                blob.seek(at * bunch.width)
                blob.write(place.pack(bunch.width))

    def drop(self, bunch: Bunch) -> None:
        """No note has these any more."""
        with self._guarded(), self._lock:
            self._db.execute("DELETE FROM bunch WHERE first = ?", (bunch.first,))
            self._names.drop(bunch.number)
            self._db.execute("DELETE FROM asker WHERE first = ?", (bunch.first,))
        self.size -= len(bunch)

    def of(self, whose: bytes, counted: bytes) -> list[Place]:
        """Somebody's questions, in order; `counted` stands for them in a day's rounds, forgotten or not."""
        select = "SELECT bunch.* FROM asker JOIN bunch USING (first) WHERE counted = ? ORDER BY first"
        with self._privately(), self._lock:
            rows = self._db.execute(select, (counted,)).fetchall()
        every = (one for row in rows for one in Bunch(*row).places)
        theirs = [one for one in every if one.key[:16] == whose and not one.forgotten]
        self.check_done({one.number for one in theirs})
        return theirs

    def check_done(self, about: Collection[int | bytes]) -> None:
        """`Later` where a write about one of these could not be made yet."""
        if any(undone in about for undone, _ in self.undone):
            raise Later(AGAIN)

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

    def note(self, about: Noted, others: set[bytes], loading: bool) -> None:
        """A note of questions was written, or is read; `others` have rows in it that took no round.

        What changed since goes to the disk once a minute of the public clock, and whenever questions leave the memory.
        """
        with self._guarded(), self._lock:
            self._db.execute("INSERT INTO note VALUES (?, ?, ?, ?, ?, ?)", about)
            if others:
                self._others(ASKED, about.sequence, others)
            if not loading and about.minute != self._kept:
                self._kept = about.minute
                self._keep()

    def lessons(self, sequence: int, others: Iterable[bytes]) -> None:
        """A note of lessons was written that has rows of these, of whose questions nothing is known."""
        with self._guarded(), self._lock:
            self._others(TAUGHT, sequence, others)
            self._keep()

    def _others(self, kind: str, sequence: int, others: Iterable[bytes]) -> None:
        theirs = [(kind, sequence, whose) for whose in others]
        self._db.executemany("INSERT OR IGNORE INTO other VALUES (?, ?, ?)", theirs)

    def notes(self, after: int) -> Iterator[Noted]:
        """Notes of questions after this one, in their order."""
        while True:
            with self._guarded(), self._lock:
                select = "SELECT * FROM note WHERE sequence > ? ORDER BY sequence LIMIT 64"
                some = [Noted(*row) for row in self._db.execute(select, (after,))]
            if not some:
                return
            yield from some
            after = some[-1].sequence

    def before(self, sequence: int, stamp: int) -> Noted | None:
        """The last note up to this one of which it is known that no lesson before it has a stamp from `stamp` on."""
        with self._guarded(), self._lock:
            first = self._db.execute("SELECT sequence FROM note WHERE stamp >= ? ORDER BY sequence LIMIT 1", (stamp,))
            late = first.fetchone()
            until = sequence if late is None else min(sequence, late[0] - 1)
            select = "SELECT * FROM note WHERE sequence <= ? AND stamp IS NOT NULL ORDER BY sequence DESC LIMIT 1"
            row = self._db.execute(select, (until,)).fetchone()
        return None if row is None else Noted(*row)

    def torn(self, kind: str, sequence: int) -> None:
        """Notes of this kind up to this one are dropped; when some of questions were is known until lessons' are."""
        with self._guarded(), self._lock:
            self._db.execute("DELETE FROM other WHERE kind = ? AND sequence <= ?", (kind, sequence))
            gone = "stamp IS NULL AND " if kind == ASKED else ""
            self._db.execute(f"DELETE FROM note WHERE {gone}sequence <= ?", (sequence,))

    def others(self, whose: bytes) -> list[tuple[str, int]]:
        """Notes (kind, sequence) that have other rows of somebody than questions with rounds."""
        self.check_done((whose,))
        with self._privately(), self._lock:
            return self._db.execute("SELECT kind, sequence FROM other WHERE whose = ?", (whose,)).fetchall()

    def forget(self, whose: bytes) -> None:
        """Nothing is known of theirs any more, after `change` of each; the next commit writes it over."""
        self._do(lambda: self._db.execute("DELETE FROM other WHERE whose = ?", (whose,)), whose)


def halves_of(names: Sequence[bytes]) -> list[int]:
    """Half of each name, as a number."""
    return cast(list[int], np.frombuffer(b"".join(names), "<i8")[::2].tolist())
