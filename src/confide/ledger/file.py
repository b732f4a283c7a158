"""The ledger's file: how SQLite is opened, locked and checked, and what is said when that fails.

    ledger.db              the tables
    ledger.db-wal          what was written last: SQLite moves it into the tables from time to time
    ledger.db-shm          SQLite's index of it, made anew when it is gone
    ledger.db.NAME.lock    held while a process owns the model NAME; the system releases it when that process dies

The first two belong together: without its `-wal` a ledger would forget what was spent last. So a model is marked while
it is owned, and one that is still marked without a `-wal` beside it is refused. SQLite removes the `-wal` when the
last connection is closed; a second connection that only reads, closed after the first, keeps it from doing so.
"""

from __future__ import annotations

import os
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from confide.errors import StateError
from confide.ledger.wal import lost

__all__ = ["CHECKSUM", "WIDE", "File", "Lock", "Reader", "check_name", "note_checksum", "trouble"]

VERSION = 3
"""Version 2 lacked the tables `life`, `sealed` and `journal`, and gets them when it is opened for writing."""
_APPLICATION = 0x434F4E46  # "CONF": SQLite keeps it in the file's header, for `file` and for us
_PATIENCE = 30.0  # seconds that a write waits for another model's write
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

WIDE = 1 << 32
"""Added to what must not show by its size: SQLite stores all numbers from here to 2⁴⁷ in six bytes."""

CHECKSUM = "checksum"
"""The SQL function behind every row's checksum: SQLite notices a damaged page, but not a changed number in it."""

_SCHEMA = """
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
_ADDED = ("life", "sealed", "journal")


def check_name(model: str) -> str:
    """`model`, if it can be a model's name; it becomes part of a file's name."""
    if not isinstance(model, str) or not _NAME.fullmatch(model):
        raise ValueError("a model's name is 1 to 100 letters, digits, dots, dashes and underscores, not first a dot")
    return model


def trouble(error: sqlite3.Error | OSError) -> str:
    """What went wrong, in words, without anything that was in the statement."""
    if isinstance(error, OSError):
        return error.strerror or "an error of the system"
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if name == "SQLITE_FULL":
        return "the disk is full"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process holds it"
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN")):
        return "it may not be opened so"
    return f"SQLite says {name}"


def _damaged(path: Path) -> StateError:
    return StateError(f"the ledger {path} is damaged: this state must not be used; restore its newest whole backup")


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _create(path: Path) -> None:
    """An empty file for its owner alone. One that exists is not touched: closing it would drop this process's locks."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StateError(f"{path} cannot be made ({trouble(error)}): give a folder that may be written") from None


def _checksum(*values: Any) -> int:
    return zlib.crc32(repr(values).encode()) + WIDE


def note_checksum(body: bytes, *values: Any) -> int:
    """The checksum of a note, whose body is long: its repr would take longer than writing it."""
    return zlib.crc32(body, zlib.crc32(repr(values).encode())) + WIDE


class Reader:
    """A ledger's file opened for reading only, while its owners go on writing.

    Raises
    ------
    StateError
        If there is no ledger, or it is damaged, of a later version, or without its `-wal`.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise StateError(f"there is no ledger {path}: without it nothing may be answered")
        self.path = path
        self.whole = _wal(path).is_file() and _wal(path).stat().st_size > 0
        """Whether there was a `-wal` beside it, before SQLite makes an empty one."""
        self.version = VERSION
        self.db = self._connect("ro")
        try:
            self._check_kind()
        except BaseException:
            self.db.close()
            raise

    def _connect(self, mode: str) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(
                f"{self.path.as_uri()}?mode={mode}",
                uri=True,
                timeout=_PATIENCE,
                isolation_level=None,
                check_same_thread=False,
            )
            db.create_function(CHECKSUM, -1, _checksum, deterministic=True)
        except sqlite3.Error as error:
            raise StateError(f"the ledger {self.path} cannot be opened: {trouble(error)}") from None
        return db

    def _check_kind(self, empty: bool = False) -> None:
        """Refuse what is not a ledger; `empty`: nothing at all will do too."""
        try:
            kind = self.db.execute("PRAGMA application_id").fetchone()[0]
            if empty and not self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return
            version = self.db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError as error:
            raise StateError(f"the ledger {self.path} cannot be read: {trouble(error)}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            raise StateError(f"{self.path} is not a ledger, or it is damaged: this state must not be used") from None
        if kind != _APPLICATION:
            raise StateError(f"{self.path} is not a ledger: give the path of one, or of a new file")
        self.version = int(version)
        if version not in (2, VERSION):
            raise StateError(
                f"the ledger {self.path} has version {version}, and this Confide reads {VERSION}: "
                "use the Confide that wrote it"
            )

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            return self.db.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            raise StateError(f"the ledger {self.path} cannot be read: {trouble(error)}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            raise _damaged(self.path) from None

    def model(self, name: str) -> list[Any]:
        """The row of a model: id, name, epoch, sequence, rounds, unsure, halted, history."""
        columns = "id, name, epoch, sequence, rounds, unsure, halted, history"
        rows = self.checked(columns, "model", "name = ?", check_name(name))
        if not rows:
            raise StateError(f"the ledger {self.path} has no model {name!r}: create it first")
        if not self.whole and self.rows("SELECT owned FROM model WHERE name = ?", name)[0][0]:
            raise StateError(
                f"{_wal(self.path).name} is missing beside {self.path}: what was spent last is in it; bring it back"
            )
        return rows[0]

    def checked(self, columns: str, table: str, where: str, *values: Any) -> list[list[Any]]:
        """All rows of a table that a condition picks, each as it was written: a changed one is refused."""
        if self.version < VERSION and table in _ADDED:
            return []
        rows = [list(row) for row in self.rows(f"SELECT {columns}, checksum FROM {table} WHERE {where}", *values)]
        if any(row.pop() != _checksum(*row) for row in rows):
            raise _damaged(self.path)
        return rows

    def notes(self, key: int) -> list[tuple[str, int, int, bytes]]:
        """The journal of a model: (kind, sequence, width, body), in the order in which they were written."""
        if self.version < VERSION:
            return []
        columns = "kind, sequence, width, body, checksum"
        rows = self.rows(f"SELECT {columns} FROM journal WHERE model = ? ORDER BY sequence, kind", key)
        if any(note_checksum(body, key, *about) != checksum for *about, body, checksum in rows):
            raise _damaged(self.path)
        return [(kind, sequence, width, body) for kind, sequence, width, body, _ in rows]

    def close(self) -> None:
        """Close it."""
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class File(Reader):
    """A ledger's file opened for writing. What is committed is on the disk; what is not was never there.

    Parameters
    ----------
    path
        The file; there must be one.
    new
        Make it first, if it is not there.
    """

    def __init__(self, path: Path, new: bool = False) -> None:
        if new:
            _create(path)
        self._new = new
        super().__init__(path)
        self._guard = self.db  # only reads, is closed last, and so keeps the -wal
        try:
            self.db = self._connect("rw")
            try:
                self._prepare()
            except BaseException:
                self.db.close()
                raise
        except BaseException:
            self._guard.close()
            raise

    def _check_kind(self, empty: bool = False) -> None:
        super()._check_kind(self._new)

    def _prepare(self) -> None:
        try:
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = FULL")
            self.db.execute("PRAGMA fullfsync = ON")  # macOS: ask the disk, not only the system
            self.db.execute("PRAGMA checkpoint_fullfsync = ON")
            self.db.execute("PRAGMA secure_delete = ON")  # what was forgotten, or expired, leaves no bytes
            self._check_wal()
            if self._new or self.version < VERSION:
                self.db.executescript(
                    f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_APPLICATION};"
                    f"PRAGMA user_version = {VERSION}; COMMIT"
                )
                self.version = VERSION
            self._guard.execute("SELECT count(*) FROM sqlite_master").fetchone()  # it holds on to the file from now on
        except sqlite3.OperationalError as error:
            raise StateError(f"the ledger {self.path} cannot be written: {trouble(error)}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            raise StateError(f"{self.path} is not a ledger, or it is damaged: this state must not be used") from None

    def _check_wal(self) -> None:
        """Refuse a `-wal` that is damaged, before anything is written over it."""
        with self.transaction(), closing(self._connect("rw")) as other:  # nobody else writes meanwhile
            busy, frames, _ = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if not busy and lost(_wal(self.path), max(frames, 0)) > 1:
                raise _damaged(self.path)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything inside is written and on the disk, or nothing is. SQLite's own errors come through."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield self.db
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def check_whole(self) -> None:
        """Read every page, and refuse a file that is damaged anywhere."""
        if self.rows("PRAGMA integrity_check(1)") != [("ok",)]:
            raise _damaged(self.path)

    def settle(self) -> None:
        """Move everything from the `-wal` into the tables; the `-wal` stays."""
        if self.db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0]:
            raise sqlite3.OperationalError("a reader is in the way")

    def close(self) -> None:
        """Close it; the `-wal` stays."""
        self.db.close()
        self._guard.close()


class Lock:
    """One owner at a time, between processes and within one; the system gives it back when the owner dies.

    A transaction held open on an empty SQLite file is the one lock that the standard library has on every system.

    Raises
    ------
    StateError
        If somebody holds it.
    """

    def __init__(self, path: Path) -> None:
        _create(path)
        self._db = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode = MEMORY")  # nothing is ever written: no file for it
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            self._db.close()
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                raise StateError(
                    f"{path.name.removesuffix('.lock')} in {path.parent} is in use by another process: "
                    "two of them must not spend one budget; close the other first"
                ) from None
            raise StateError(f"{path} cannot be locked: {trouble(error)}") from None

    def release(self) -> None:
        """Give it back."""
        self._db.close()
