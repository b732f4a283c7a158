"""A ledger in a file of SQLite: what is written into its tables, and who owns a model of it.

What is written does not depend on an outcome, nor does its size or the pages it touches: every entry of a person's
round changes that person's row, sure or not, and numbers of any size take the same room.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from confide.errors import StateError
from confide.ledger.entries import Batch
from confide.ledger.file import CHECKSUM, File, FileReader, Lock, trouble
from confide.ledger.store import ABOUT, LOOK, TABLES, WIDE, Claim, Place, Store, Trouble, checksum, damaged, taken_over

__all__ = ["PERSON", "Disk", "SqliteStore"]

PERSON = f"""
INSERT INTO person(model, who, unsure, watched, labels, sequence, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(model, who) DO UPDATE SET
    unsure = MAX(unsure, excluded.unsure), watched = MAX(watched, excluded.watched),
    labels = MAX(labels, excluded.labels), sequence = excluded.sequence,
    checksum = {CHECKSUM}(
        model, who, MAX(unsure, excluded.unsure), MAX(watched, excluded.watched), MAX(labels, excluded.labels),
        excluded.sequence)
WHERE checksum = {CHECKSUM}({TABLES["person"]})"""
"""Raise a person's counts: model, who, unsure, watched, labels, sequence, which changes even if nothing else does, and
the checksum of these, for somebody new. A row that is not as it was written stays as it is."""
_GROW = f"""
UPDATE model SET rounds = MAX(rounds, :rounds), unsure = MAX(unsure, :unsure), halted = COALESCE(halted, :halted),
    history = MAX(history, :history), sequence = :last,
    checksum = {CHECKSUM}(
        id, name, epoch, :last, MAX(rounds, :rounds), MAX(unsure, :unsure), COALESCE(halted, :halted),
        MAX(history, :history))
WHERE id = :key AND epoch = :epoch AND sequence = :before AND checksum = {CHECKSUM}(id, name, {ABOUT})"""


@cache
def _put(table: str, conflict: str) -> str:
    """What inserts a row with its checksum."""
    columns = f"{TABLES[table]}, checksum"
    places = ", ".join("?" * (columns.count(",") + 1))
    return f"INSERT INTO {table}({columns}) VALUES ({places}){f' ON CONFLICT {conflict}' if conflict else ''}"


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

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Send a statement; SQLite's own errors come through."""
        return self.db.execute(statement, values)

    def put(self, table: str, rows: Collection[Sequence[Any]], conflict: str = "") -> None:
        """Insert rows, each with its checksum."""
        if rows:
            self.db.executemany(_put(table, conflict), [(*row, checksum(*row)) for row in rows])

    def count(self, batch: Batch, people: Mapping[bytes, Sequence[int]]) -> None:
        """Raise the counts of the model and of these people, or find that it has another owner."""
        key, last, (rounds, unsure, halted, history) = batch.key, batch.last, batch.grown()
        grown = {
            "rounds": rounds, "unsure": unsure, "halted": halted, "history": history, "last": last,
            "key": key, "epoch": batch.epoch, "before": batch.before,
        }  # fmt: skip
        if self.db.execute(_GROW, grown).rowcount != 1:
            self.checked(f"id, name, {ABOUT}", "model", "id = ?", key)  # a changed row is no other owner's
            raise taken_over(self.name)
        if people:
            counts = list[tuple[int | bytes, ...]]()
            counts += [(key, who, *[n + WIDE for n in ns], last) for who, ns in people.items()]
            if self.db.executemany(PERSON, [(*one, checksum(*one)) for one in counts]).rowcount != len(counts):
                raise damaged(self.name)

    def look(self, key: int, kind: str, sequence: int) -> tuple[int, bytes] | None:
        """One note, by the connection that only reads: no write holds it up."""
        try:
            row = self._guard.execute(LOOK, (key, kind, sequence)).fetchone()
        except sqlite3.Error as error:
            raise StateError(f"the ledger {self.path} cannot be read: {trouble(error)}") from None
        if row is None:
            return None
        ((*_, width, body),) = self.sound([row])
        return width, body

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction in the file that was opened, and in no other that has its name now."""
        with _troubled():
            if _identity(self.path) != self._identity:
                raise StateError(
                    f"the ledger {self.path} was moved or replaced: nothing is answered any more; load it again"
                )
            with self.transaction():
                yield

    def seal(self, key: int, why: str | None) -> None:
        """Say why nobody is to be answered any more, or that somebody is again."""
        super().seal(key, why)
        with _troubled():
            self.settle()  # nobody owns it who would miss the -wal

    def own(self, model: str, writing: threading.Lock) -> Claim:
        """Own a model: its lock is this store's until it is released."""
        self._lock = Lock(self.path.with_name(f"{self.path.name}.{model}.lock"))
        try:
            self.check_whole()
            with writing, _troubled():
                claim = self.begin(model)
                self.settle()  # from here on the -wal must be there
        except BaseException:
            self._lock.release()
            raise
        return claim

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
