"""A ledger in a file of SQLite: what is written into its tables, and who owns a model of it.

What is written does not depend on an outcome, nor does its size or the pages it touches: every entry of a person's
round changes that person's row, sure or not, and numbers of any size take the same room.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confide.errors import StateError
from confide.ledger.entries import Batch, Entry
from confide.ledger.file import CHECKSUM, File, FileReader, Lock, trouble
from confide.ledger.store import (
    ABOUT,
    DISCARD,
    DROPPED,
    LOOK,
    TABLES,
    WIDE,
    Claim,
    Image,
    Place,
    Store,
    Trouble,
    checksum,
    taken_over,
    without,
)

__all__ = ["PERSON", "Disk", "SqliteStore"]

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
_RELEASED = f"""
INSERT INTO released(model, kind, number, noisy, exact, checksum)
SELECT m, k, n, a, b, {CHECKSUM}(m, k, n, a, b) FROM (SELECT ? AS m, ? AS k, ? AS n, ? AS a, ? AS b)"""
"""What a guide released: once, never again with other noise."""
_SIGN = f"""
UPDATE model SET checksum = {CHECKSUM}(id, name, epoch, sequence, rounds, unsure, halted, history) WHERE id = ?"""
"""Renew the checksum of a model's row."""
_USED = f"""
INSERT OR IGNORE INTO used(model, number, epoch, checksum)
SELECT m, n, e, {CHECKSUM}(m, n, e) FROM (SELECT ? AS m, ? AS n, ? AS e)"""
"""A ticket that was learned."""
_FORGOT = f"""
INSERT OR IGNORE INTO forgot(model, sequence, copy, who, checksum)
SELECT m, s, c, w, {CHECKSUM}(m, s, c, w) FROM (SELECT ? AS m, ? AS s, ? AS c, ? AS w)"""
"""A copy that was reset for a person."""
_LIFE = f"""
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


@contextmanager
def _troubled() -> Iterator[None]:
    """What SQLite and the system say, in our words."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise Trouble(trouble(error)) from None


class SqliteStore(File, Store):
    """A file that is opened for writing (`confide.ledger.store.Store`)."""

    def __init__(self, path: Path, new: bool = False) -> None:
        super().__init__(path, new)
        self._identity = _identity(path)
        self._lock: Lock | None = None

    def check_durable(self) -> None:
        """Every commit here is on the disk."""

    def insert(self, model: str, image: Image, instead: int | None = None) -> None:
        """All rows of a new model."""
        with _troubled(), self.transaction() as db:
            for statement in () if instead is None else DISCARD:
                db.execute(statement, (instead,))
            key = db.execute(
                f"INSERT INTO model(name, {ABOUT}, owned, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)",
                (model, *image.about),
            ).lastrowid
            db.execute(_SIGN, (key,))
            for table, rows in image.tables.items():
                columns = TABLES[table]
                places = ", ".join("?" * (columns.count(",") + 2))
                signed = ((key, *row, checksum(key, *row)) for row in rows)
                db.executemany(f"INSERT INTO {table}({columns}, checksum) VALUES ({places})", signed)

    def seal(self, key: int, why: str | None) -> None:
        """Say why nobody is to be answered any more, or that somebody is again."""
        with _troubled():
            with self.transaction() as db:
                db.execute("DELETE FROM sealed WHERE model = ?", (key,))
                db.executemany(_SEALED, [] if why is None else [(key, why)])
            self.settle()  # nobody owns it who would miss the -wal

    def own(self, model: str, writing: threading.Lock) -> Claim:
        """Own a model: its lock is this store's until it is released."""
        self._lock = Lock(self.path.with_name(f"{self.path.name}.{model}.lock"))
        try:
            self.check_whole()
            key, _, epoch, sequence, rounds, *_ = self.model(model)
            mark = int.from_bytes(os.urandom(5))
            with _troubled(), writing:
                with self.transaction() as db:
                    db.execute("UPDATE model SET epoch = ?, owned = 1 WHERE id = ?", (epoch + 1, key))
                    db.execute(_SIGN, (key,))
                    db.execute(_LIFE, (key, epoch + 1, mark, rounds))
                self.settle()  # from here on the -wal must be there
        except BaseException:
            self._lock.release()
            raise
        return Claim(self, key, epoch + 1, sequence, mark)

    def write(self, batch: Batch) -> None:
        """All of it in one transaction."""
        key, last, entries = batch.key, batch.last, batch.entries
        people = batch.people()
        with self._owned() as db:
            grown = db.execute(_GROW, (*batch.grown(), last, key, batch.epoch, batch.before))
            if grown.rowcount != 1:
                raise taken_over(self.name)
            db.execute(_SIGN, (key,))
            many = (
                (PERSON, [(key, who, *[n + WIDE for n in ns], last) for who, ns in people.items()]),
                (DROPPED, [(key, *one) for _, entry in entries for one in entry.dropped]),
                (_RELEASED, [(key, *one) for _, entry in entries for one in entry.released]),
                (_USED, [(key, number, epoch) for _, entry in entries for epoch, number in entry.used]),
                (_FORGOT, [(key, at, copy, who) for at, entry in entries for copy, who in entry.forgot]),
                (_PRUNE, [(key, batch.prune)] if batch.prune >= 0 else []),
                (_SEALED, [(key, entry.sealed) for _, entry in entries if entry.sealed is not None]),
                (_TORN, [(key, kind, before) for kind, before in batch.tear]),
            )
            for statement, rows in many:
                if rows:
                    db.executemany(statement, rows)
            for at, entry in entries:  # after what is dropped: new notes are then written over the same pages
                self._note(db, key, at, entry)

    def look(self, key: int, kind: str, sequence: int) -> tuple[int, bytes] | None:
        """One note, by the connection that only reads: no write holds it up."""
        try:
            row = self._guard.execute(LOOK, (key, kind, sequence)).fetchone()
        except sqlite3.Error as error:
            raise StateError(f"the ledger {self.path} cannot be read: {trouble(error)}") from None
        return None if row is None else self.sound(key, row)[2:]

    def beat(self, key: int, epoch: int) -> None:
        """A transaction that changes nothing."""
        with self._owned() as db:
            if db.execute("SELECT 1 FROM model WHERE id = ? AND epoch = ?", (key, epoch)).fetchone() is None:
                raise taken_over(self.name)

    @contextmanager
    def _owned(self) -> Iterator[sqlite3.Connection]:
        """A transaction in the file that was claimed, and in no other that has its name now."""
        with _troubled():
            if _identity(self.path) != self._identity:
                raise StateError(
                    f"the ledger {self.path} was moved or replaced: nothing is answered any more; load it again"
                )
            with self.transaction() as db:
                yield db

    def _note(self, db: sqlite3.Connection, key: int, at: int, entry: Entry) -> None:
        """The journal's part of an entry."""
        for kind, width, body in entry.notes:
            db.execute(_NOTE, (key, kind, at, width, body, checksum(key, kind, at, width, body)))
        for kind, sequence, whose, left in entry.erased:
            found = db.execute(_NOTED, (key, kind, sequence)).fetchone()
            if found is not None:
                width, body = found[0], without(whose, left, *found)
                db.execute(_ERASED, (body, checksum(key, kind, sequence, width, body), key, kind, sequence))

    def discard(self, key: int) -> None:
        """Take a model away, with all rows of it."""
        with _troubled(), self.transaction() as db:
            for statement in DISCARD:
                db.execute(statement, (key,))

    def release(self, key: int, epoch: int) -> None:
        """Give the model back, and close."""
        try:
            self.db.execute("UPDATE model SET owned = 0 WHERE id = ? AND epoch = ?", (key, epoch))
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # then the file alone is the whole ledger
        except sqlite3.Error:
            pass  # the model stays marked, and its -wal stays beside it
        self.close()
        if self._lock is not None:
            self._lock.release()


class Disk(Place):
    """A file on a disk of this machine: SQLite's locks do not hold on network file systems."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self._writing = threading.Lock()

    def lock(self) -> threading.Lock:
        """One for all models: SQLite has one writer a file."""
        return self._writing

    def reader(self) -> FileReader:
        """The file, for reading."""
        return FileReader(self.path)

    def store(self) -> SqliteStore:
        """The file, for writing; made first, if it is not there."""
        return SqliteStore(self.path, new=True)

    def claim(self, model: str) -> Claim:
        """Own a model of the file, which must be there."""
        with ExitStack() as undo:
            claim = undo.enter_context(SqliteStore(self.path)).own(model, self._writing)
            undo.pop_all()
        return claim


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
