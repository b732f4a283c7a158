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
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from confide.errors import StateError
from confide.ledger.store import ABOUT, SCHEMA, TABLES, VERSION, Reader, checksum, damaged, in_use
from confide.ledger.wal import lost

__all__ = ["CHECKSUM", "File", "FileReader", "Lock", "trouble"]

_APPLICATION = 0x434F4E46  # "CONF": SQLite keeps it in the file's header, for `file` and for us
_PATIENCE = 30.0  # seconds that a write waits for another model's write
_PAUSES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 0.0)  # seconds until it is tried again

CHECKSUM = "checksum"
"""The SQL function behind every row's checksum."""

_MADE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"


@cache
def _tables() -> list[tuple[Any, ...]]:
    """What SQLite has of the tables, in a file in which nothing was changed."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return db.execute(_MADE).fetchall()


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


class FileReader(Reader):
    """A ledger's file opened for reading only, while its owners go on writing.

    Raises
    ------
    StateError
        If there is no ledger, or it is damaged, of a later version, or without its `-wal`.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise StateError(f"there is no ledger {path}: without it nothing may be answered")
        self.path, self.name = path, str(path)
        self.whole = _wal(path).is_file() and _wal(path).stat().st_size > 0
        """Whether there was a `-wal` beside it, before SQLite makes an empty one."""
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
            db.create_function(CHECKSUM, -1, checksum, deterministic=True)
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
        self.check_version(int(version))
        if self.rows(_MADE) != _tables():  # a table whose name lost a bit would be made anew, and empty
            raise damaged(self.name)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            return self.db.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            raise StateError(f"the ledger {self.path} cannot be read: {trouble(error)}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            raise damaged(self.name) from None

    def model(self, name: str) -> list[Any]:
        """The row of a model; without the `-wal` that it counts on it is refused."""
        row = super().model(name)
        if not self.whole and self.rows("SELECT owned FROM model WHERE name = ?", name)[0][0]:
            raise StateError(
                f"{_wal(self.path).name} is missing beside {self.path}: what was spent last is in it; bring it back"
            )
        return row

    def hold(self) -> None:
        """From now on everything is read as of one moment."""
        self.rows("BEGIN")

    def close(self) -> None:
        """Close it."""
        self.db.close()


class File(FileReader):
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
            if self._new:
                self.db.executescript(
                    f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {_APPLICATION};"
                    f"PRAGMA user_version = {VERSION}; COMMIT"
                )
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
                raise damaged(self.name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written and on the disk, or nothing is. SQLite's own errors come through."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def check_whole(self) -> None:
        """Read every page and every row, whoever's it is, and refuse a file that is damaged anywhere.

        A changed bit may give a row to no model, or to another one, and leave the table in order: whoever claims the
        model that it was taken from does not miss it.
        """
        wrong = [f"SELECT 1 FROM model WHERE checksum IS NOT {CHECKSUM}(id, name, {ABOUT})"]
        for name, row in TABLES.items():
            lost = f"model NOT IN (SELECT id FROM model) OR checksum IS NOT {CHECKSUM}({row})"
            wrong.append(f"SELECT 1 FROM {name} WHERE {lost}")
        found = f"SELECT {', '.join(f'EXISTS({one})' for one in wrong)}"
        if self.rows("PRAGMA integrity_check(1)") != [("ok",)] or any(self.rows(found)[0]):
            raise damaged(self.name)

    def settle(self) -> None:
        """Move everything from the `-wal` into the tables; the `-wal` stays.

        For readers SQLite waits by itself; where another model's owner does the same at this moment, it does not.
        """
        for pause in _PAUSES:
            if not self.db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()[0]:
                return
            time.sleep(pause)
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
                raise in_use(f"{path.name.removesuffix('.lock')} in {path.parent}") from None
            raise StateError(f"{path} cannot be locked: {trouble(error)}") from None

    def release(self) -> None:
        """Give it back."""
        self._db.close()
