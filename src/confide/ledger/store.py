"""What a ledger is kept in: a file of SQLite, or a PostgreSQL server. The same tables, checksums and refusals in both.

A `Place` says where that is. A `Reader` reads there, a `Store` writes there too, and a `Claim` is a store that owns a
model: nobody else writes for it. What a store writes does not depend on an outcome, nor does the room it takes.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from heapq import merge
from struct import Struct
from typing import Any, Self

from confide.errors import StateError
from confide.ledger.entries import Batch, Erased, Spent

__all__ = [
    "ABOUT", "LOOK", "SCHEMA", "TABLES", "VERSION", "WIDE", "Claim", "Image", "Place", "Reader", "Row", "Store",
    "Trouble", "check_name", "checksum", "damaged", "in_use", "taken_over", "without",
]  # fmt: skip

VERSION = 5
"""Of a ledger: written, and the only one that is read."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

WIDE = 1 << 32
"""Added to what must not show by its size: SQLite stores all numbers from here to 2⁴⁷ in six bytes."""

_VALUE = Struct("<qq").pack  # what kind of value, and how many bytes it has, or which number it is

SCHEMA = """
CREATE TABLE IF NOT EXISTS model(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL,
    rounds INTEGER NOT NULL, unsure INTEGER NOT NULL, halted TEXT, history INTEGER NOT NULL, owned INTEGER NOT NULL,
    checksum INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS person(
    model INTEGER NOT NULL, who BLOB NOT NULL, unsure INTEGER NOT NULL, watched INTEGER NOT NULL,
    labels INTEGER NOT NULL, sequence INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY(model, who)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used(
    model INTEGER NOT NULL, number INTEGER NOT NULL, epoch INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY(model, number, epoch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgot(
    model INTEGER NOT NULL, sequence INTEGER NOT NULL, copy INTEGER NOT NULL, who BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY(model, sequence, copy, who)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS released(
    model INTEGER NOT NULL, kind TEXT NOT NULL, number INTEGER NOT NULL, noisy BLOB NOT NULL, exact BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY(model, kind, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS life(
    model INTEGER NOT NULL, epoch INTEGER NOT NULL, mark INTEGER NOT NULL, rounds INTEGER NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY(model, epoch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sealed(model INTEGER PRIMARY KEY, why TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal(
    model INTEGER NOT NULL, kind TEXT NOT NULL, sequence INTEGER NOT NULL, width INTEGER NOT NULL, body BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY(model, kind, sequence));
"""
"""The tables, in SQLite's words; PostgreSQL's are made from them."""


TABLES = {
    "person": "model, who, unsure, watched, labels, sequence",
    "used": "model, number, epoch",
    "forgot": "model, sequence, copy, who",
    "released": "model, kind, number, noisy, exact",
    "life": "model, epoch, mark, rounds",
    "sealed": "model, why",
    "journal": "model, kind, sequence, width, body",
}
"""The tables that have rows of a model beside its own one, and their columns, without the checksum."""

ABOUT = "epoch, sequence, rounds, unsure, halted, history"
"""What a model's own row says of it."""

LOOK = f"SELECT {TABLES['journal']}, checksum FROM journal WHERE model = ? AND kind = ? AND sequence = ?"
"""What finds one note."""

_PAGE = 16  # notes that are read at once
_MODEL = "SELECT 1 FROM model WHERE id = ? AND epoch = ?"
_ONCE = "DO NOTHING"

Row = Sequence[Any]


class Trouble(Exception):
    """A store could not be read or written: why, in words, without anything that was in the statement."""


def check_name(model: str) -> str:
    """`model`, if it can be a model's name; it becomes part of a file's name."""
    if not isinstance(model, str) or not _NAME.fullmatch(model):
        raise ValueError("a model's name is 1 to 100 letters, digits, dots, dashes and underscores, not first a dot")
    return model


def checksum(*values: object) -> int:
    """What stands beside every row: a store notices a damaged page, but not a changed number in it.

    It is of raw bytes and of what kind of value each is: one changed bit makes a text of a row's bytes. How long it
    takes depends on how long the values are, and a number has eight bytes whatever it is. So it does not tell what was
    counted, nor what the exact sums are.
    """
    parts = list[bytes]()
    for value in values:
        if isinstance(value, int):
            parts.append(_VALUE(8, value))
        elif value is None:
            parts.append(_VALUE(0, 0))
        elif isinstance(value, str):
            raw = value.encode()
            parts += _VALUE(1, len(raw)), raw
        elif isinstance(value, bytes):
            parts += _VALUE(2, len(value)), value
        else:  # none that we write: no row has this checksum
            return -1
    return zlib.crc32(b"".join(parts)) + WIDE


def without(whose: bytes, left: Iterable[bytes], width: int, body: bytes) -> bytes:
    """A note with one person's rows overwritten, each with what is left of it, and zeros."""
    rows, parts = bytearray(body), iter(left)
    for at in range(0, len(rows), width):
        if rows[at : at + len(whose)] == whose:
            rows[at : at + width] = next(parts, b"").ljust(width, b"\0")
    return bytes(rows)


@dataclass(frozen=True)
class Image:
    """All that a ledger has of a model, row by row as it stands there, whatever its number is in it. Private."""

    about: tuple[Any, ...] = field(repr=False)
    """As `ABOUT`."""
    tables: Mapping[str, Sequence[tuple[Any, ...]]] = field(repr=False)
    """By the names of `TABLES`: rows in order, without the model's number."""

    @classmethod
    def of(cls, spent: Spent) -> Self:
        """Of a model that has spent so much, before its first life."""
        kinds = spent.shares, spent.watched, spent.labels
        everybody = sorted({who for kind in kinds for who in kind})
        return cls(
            (spent.epoch, spent.sequence, spent.rounds, spent.unsure, spent.halted, spent.history),
            {
                "person": [(who, *(kind.get(who, 0) + WIDE for kind in kinds), spent.sequence) for who in everybody],
                "used": [(number, epoch) for epoch, number in spent.used],
                "forgot": spent.forgot,
                "released": spent.released,
            },
        )

    @property
    def sealed(self) -> str | None:
        """Why nobody is to be answered any more."""
        return next((why for (why,) in self.tables["sealed"]), None)

    @property
    def lives(self) -> set[tuple[int, int]]:
        """(epoch, mark) of every life: no two models have one in common."""
        return {(epoch, mark) for epoch, mark, _ in self.tables["life"]}

    def but(self, sealed: str | None) -> Image:
        """The same, sealed for another reason, or for none."""
        return Image(self.about, {**self.tables, "sealed": [] if sealed is None else [(sealed,)]})


def damaged(name: str) -> StateError:
    """What is said of rows that are not as they were written."""
    return StateError(f"the ledger {name} is damaged: this state must not be used; restore its newest whole backup")


def in_use(what: str) -> StateError:
    """What is said to a second owner."""
    return StateError(
        f"{what} is in use by another process, or by an object of this one that was not closed: two of them must not "
        "spend one budget; close the other first"
    )


def taken_over(name: str) -> StateError:
    """What is said to an owner whose term is over."""
    return StateError(
        f"another process has taken over this model of the ledger {name}: "
        "nothing is answered here any more; go on where it was loaded last"
    )


class Reader(ABC):
    """A ledger that is opened for reading, while its owners go on writing."""

    name: str
    """Where it is, for messages; no password is in it."""

    @abstractmethod
    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query; StateError if it cannot be read."""

    @abstractmethod
    def hold(self) -> None:
        """From now on everything is read as of one moment."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def check_version(self, version: int) -> None:
        """Refuse tables of another version."""
        if version != VERSION:
            raise StateError(
                f"the ledger {self.name} has version {version}, and this Confide reads {VERSION}: "
                "use the Confide that wrote it"
            )

    def models(self) -> list[str]:
        """The names of all models, in order."""
        return sorted(name for (name,) in self.rows("SELECT name FROM model"))

    def model(self, name: str) -> list[Any]:
        """The row of a model: id, name, epoch, sequence, rounds, unsure, halted, history."""
        rows = self.checked(f"id, name, {ABOUT}", "model", "name = ?", check_name(name))
        if not rows:
            raise StateError(f"the ledger {self.name} has no model {name!r}: create it first")
        return rows[0]

    def sealed(self, key: int) -> str | None:
        """Why nobody is to be answered any more by a model."""
        return next((why for _, why in self.checked(TABLES["sealed"], "sealed", "model = ?", key)), None)

    def image(self, name: str) -> Image:
        """All that there is of a model, each row as it was written."""
        key, _, *about = self.model(name)
        tables = {table: self.checked(columns, table, "model = ?", key) for table, columns in TABLES.items()}
        return Image(tuple(about), {name: sorted(tuple(row[1:]) for row in rows) for name, rows in tables.items()})

    def checked(self, columns: str, table: str, where: str, *values: Any) -> list[list[Any]]:
        """All rows of a table that a condition picks, each as it was written: a changed one is refused."""
        return self.sound(self.rows(f"SELECT {columns}, checksum FROM {table} WHERE {where}", *values))

    def sound(self, rows: Iterable[Row]) -> list[list[Any]]:
        """Rows without their checksums, if those are right."""
        found = [list(row) for row in rows]
        if not all(row.pop() == checksum(*row) for row in found):
            raise damaged(self.name)
        return found

    def notes(self, key: int) -> list[tuple[str, int, int, bytes]]:
        """The journal of a model: (kind, sequence, width, body), in the order in which they were written."""
        return list(self.each_note(key))

    def each_note(self, key: int) -> Iterator[tuple[str, int, int, bytes]]:
        """The same, one after the other: a day's journal need not fit into the memory."""
        kinds = [kind for (kind,) in self.rows("SELECT DISTINCT kind FROM journal WHERE model = ?", key)]
        return merge(*(self._of_kind(key, kind) for kind in kinds), key=lambda note: (note[1], note[0]))

    def _of_kind(self, key: int, kind: str) -> Iterator[tuple[str, int, int, bytes]]:
        where, last = "model = ? AND kind = ? AND sequence > ? ORDER BY sequence LIMIT ?", -1
        while rows := self.checked(TABLES["journal"], "journal", where, key, kind, last, _PAGE):
            for _, _, last, width, body in rows:
                yield kind, last, width, body

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store(Reader):
    """A ledger that is opened for writing. What is committed is on the disk; what is not was never there.

    A store says how a statement is sent, and how counts are raised; all else is here, once. What is there already is
    asked for in one go, then everything is written: on a server that is two ways there and back.
    """

    alone = ""
    """What keeps others from a row that is read until the transaction ends, where they may write at once."""

    @abstractmethod
    def check_durable(self) -> None:
        """StateError where a commit may be forgotten."""

    @abstractmethod
    def run(self, statement: str, *values: Any) -> Any:
        """Send a statement, with ? for values; its cursor."""

    @abstractmethod
    def put(self, table: str, rows: Collection[Row], conflict: str = "") -> None:
        """Insert rows, however many there are, each with its checksum."""

    @abstractmethod
    def count(self, batch: Batch, people: Mapping[bytes, Sequence[int]]) -> None:
        """Raise the counts of the model and of these people, each of whom changes, sure or not; none becomes less.

        StateError if the model has another owner by now.
        """

    @abstractmethod
    def look(self, key: int, kind: str, sequence: int) -> tuple[int, bytes] | None:
        """The width and the body of a note that was committed; None where there is none. StateError if it is not to be
        read. Others may write meanwhile.
        """

    @abstractmethod
    def changing(self) -> AbstractContextManager[None]:
        """Everything inside is written and on the disk, or nothing is; `Trouble` if it could not be."""

    @abstractmethod
    def release(self, key: int, epoch: int) -> None:
        """Give a claimed model back, and close. It never raises."""

    def insert(self, model: str, image: Image, instead: int | None = None) -> None:
        """All rows of a new model, `instead` of the one with this number, in one transaction; or `Trouble`."""
        with self.changing():
            if instead is not None:
                self._discard(instead)
            self.run(
                f"INSERT INTO model(name, {ABOUT}, owned, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)",
                *(model, *image.about),
            )
            ((key,),) = self.run("SELECT id FROM model WHERE name = ?", model).fetchall()
            self.run("UPDATE model SET checksum = ? WHERE id = ?", checksum(key, model, *image.about), key)
            for table, rows in image.tables.items():
                self.put(table, [(key, *row) for row in rows])

    def discard(self, key: int) -> None:
        """Take a model away, with all rows of it, or `Trouble`."""
        with self.changing():
            self._discard(key)

    def _discard(self, key: int) -> None:
        for table in TABLES:
            self.run(f"DELETE FROM {table} WHERE model = ?", key)
        self.run("DELETE FROM model WHERE id = ?", key)

    def seal(self, key: int, why: str | None) -> None:
        """Say why nobody is to be answered any more, or that somebody is again; or `Trouble`."""
        with self.changing():
            self.run("DELETE FROM sealed WHERE model = ?", key)
            self.put("sealed", [] if why is None else [(key, why)])

    def begin(self, model: str, locked: int | None = None) -> Claim:
        """A new term of a model, which nobody else owns: of the one that is locked, if another has its name by now."""
        key, _, epoch, sequence, rounds, *more = self.model(model)
        if locked not in (None, key):
            raise taken_over(self.name)
        mark = int.from_bytes(os.urandom(5))
        with self.changing():
            if not self.run(_MODEL + self.alone, key, epoch).fetchall():
                raise taken_over(self.name)
            signed = checksum(key, model, epoch + 1, sequence, rounds, *more)
            self.run("UPDATE model SET epoch = ?, owned = 1, checksum = ? WHERE id = ?", epoch + 1, signed, key)
            self.put("life", [(key, epoch + 1, mark, rounds)])
        return Claim(self, key, epoch + 1, sequence, mark)

    def beat(self, key: int, epoch: int) -> None:
        """A transaction that changes nothing: raises as `write` does."""
        with self.changing():
            if not self.run(_MODEL, key, epoch).fetchall():
                raise taken_over(self.name)

    def write(self, batch: Batch) -> None:
        """All of it in one transaction, durable when this returns.

        `Trouble` if it could not be; StateError if the model has another owner by now, or a row is not as it was
        written.
        """
        key, entries = batch.key, [entry for _, entry in batch.entries]
        fresh = {(kind, at): (width, body) for at, entry in batch.entries for kind, width, body in entry.notes}
        if len(fresh) < sum([len(entry.notes) for entry in entries]):
            raise ValueError("an entry has one note of a kind")
        erased = list[Erased]()
        for kind, at, whose, left in [one for entry in entries for one in entry.erased]:
            if (kind, at) in fresh:
                fresh[kind, at] = fresh[kind, at][0], without(whose, left, *fresh[kind, at])
            else:
                erased.append((kind, at, whose, left))
        with self.changing():
            noted = [self.run(LOOK, key, kind, at) for kind, at, *_ in erased]
            self.count(batch, batch.people())
            # What is dropped goes first: what is new is then written over the same pages.
            for kind, before in sorted({one for entry in entries for one in entry.dropped}):
                self.run("DELETE FROM released WHERE model = ? AND kind = ? AND number < ?", key, kind, before)
            if batch.tear:
                self._tear(key, batch.tear)
            if erased:
                self._erase(key, erased, noted)
            rows: tuple[tuple[str, Collection[Row], str], ...] = (
                ("released", [(key, *one) for entry in entries for one in entry.released], ""),
                ("used", {(key, number, epoch) for entry in entries for epoch, number in entry.used}, _ONCE),
                ("forgot", {(key, at, *one) for at, entry in batch.entries for one in entry.forgot}, _ONCE),
                ("sealed", [(key, entry.sealed) for entry in entries if entry.sealed is not None][:1], _ONCE),
                ("journal", [(key, kind, at, width, body) for (kind, at), (width, body) in fresh.items()], ""),
            )
            for table, some, conflict in rows:
                if some:
                    self.put(table, some, conflict)

    def sweep(self, key: int, epoch: int, prune: int, tear: Sequence[tuple[str, int]]) -> None:
        """Drop used tickets and notes that are needed no more (`Book.sweep`); raises as `write` does."""
        with self.changing():
            if not self.run(_MODEL, key, epoch).fetchall():
                raise taken_over(self.name)
            self._tear(key, tear)
            if prune >= 0:
                self.run("DELETE FROM used WHERE model = ? AND number <= ?", key, prune)

    def _tear(self, key: int, tear: Sequence[tuple[str, int]]) -> None:
        for kind, before in tear:
            self.run("DELETE FROM journal WHERE model = ? AND kind = ? AND sequence <= ?", key, kind, before)

    def _erase(self, key: int, erased: list[Erased], noted: list[Any]) -> None:
        """Overwrite rows of notes that are there already, as they were written: no changed one is signed anew."""
        bodies = {(kind, at): (width, body) for one in noted for _, kind, at, width, body in self.sound(one)}
        for kind, at, whose, left in erased:
            if (kind, at) in bodies:
                width, body = bodies[kind, at]
                bodies[kind, at] = width, without(whose, left, width, body)
        for (kind, at), (width, body) in bodies.items():
            signed = body, checksum(key, kind, at, width, body)
            where = "model = ? AND kind = ? AND sequence = ?"
            self.run(f"UPDATE journal SET body = ?, checksum = ? WHERE {where}", *signed, key, kind, at)


@dataclass(frozen=True)
class Claim:
    """A store that owns a model: no other process does, until it is released or this one dies."""

    store: Store
    key: int
    epoch: int
    sequence: int
    mark: int
    """A random number that no other life of the model has."""


class Place(ABC):
    """Where a ledger is."""

    name: str

    @abstractmethod
    def reader(self) -> Reader:
        """StateError if there is no ledger, or it is damaged, or of a later version."""

    @abstractmethod
    def store(self) -> Store:
        """Made first, if it is not there."""

    @abstractmethod
    def claim(self, model: str) -> Claim:
        """StateError if somebody owns the model; `Trouble` if it could not be written down."""

    @abstractmethod
    def lock(self) -> threading.Lock:
        """Held by whoever writes: one lock for all whose writes would wait for each other anyway."""
