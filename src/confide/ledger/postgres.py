"""A ledger on a PostgreSQL server: the same tables and checksums as SQLite's, in a schema that is the ledger's alone.

An owner has one connection, and with it a lock that the server gives back when the connection ends. There is no second
one: an owner whose connection is lost has lost its lock, so its write has failed, and nothing is answered any more.

A group of entries goes to the server in two ways there and back: what is there already, under a lock of the model's
row; then everything that is written. Numbers travel and are stored in eight bytes whatever they are, and bodies are
not compressed: neither the messages nor the rows tell an outcome by their size.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg

from confide.errors import StateError
from confide.ledger.entries import Batch
from confide.ledger.server import ServerReader, trouble, troubled, wide
from confide.ledger.store import (
    ABOUT,
    LOOK,
    TABLES,
    WIDE,
    Claim,
    Place,
    Row,
    Store,
    Trouble,
    checksum,
    in_use,
    taken_over,
)

__all__ = ["Server", "ServerStore"]

_PATIENCE = 30.0  # seconds that a write waits for somebody else's hand on the tables
_HANDOVER = 2.0  # seconds that a claim waits for the server to notice that the last owner was killed
_MODEL = f"""
SELECT id, name, {ABOUT}, checksum FROM model WHERE id = ? AND epoch = ? AND sequence = ? FOR UPDATE"""
_GROW = "UPDATE model SET rounds = ?, unsure = ?, halted = ?, history = ?, sequence = ?, checksum = ? WHERE id = ?"
_RAISED = "(model, who) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in ("unsure", "watched", "labels", "sequence", "checksum")
)
_PEOPLE = f"SELECT {TABLES['person']}, checksum FROM person WHERE model = ? AND who = ANY(?)"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_TYPES = {int: "bigint[]", bytes: "bytea[]", str: "text[]"}


class ServerStore(ServerReader, Store):
    """A ledger on a server, opened for writing (`confide.ledger.store.Store`)."""

    alone = " FOR UPDATE"

    def __init__(self, url: str, name: str, new: bool = False) -> None:
        self._using = threading.Lock()  # a transaction, or a look between two
        super().__init__(url, name, new)

    def own(self, model: str) -> Claim:
        """Own a model: this connection has its lock until it ends."""
        self.check_durable()
        key = self.model(model)[0]
        self._lock(key, model)
        return self.begin(model, key)  # as the last owner left it

    def check_durable(self) -> None:
        """Refuse a server for which a commit is not on the disk; hold it to that for as long as we are connected."""
        with self.readable():
            self._check_settings()

    def _check_settings(self) -> None:
        fsync, pages, commit, compressed = self.run(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'), "
            "current_setting('synchronous_commit'), current_setting('wal_compression')"
        ).fetchall()[0]
        for setting, good in (
            ("fsync = on", fsync == "on"), ("full_page_writes = on", pages == "on"),
            ("synchronous_commit = on", commit in ("on", "remote_apply")),
        ):  # fmt: skip
            if not good:
                raise StateError(f"the server of the ledger {self.name} may forget what it committed: set {setting}")
        if compressed != "off":
            raise StateError(f"what {self.name} writes shows by its size what is in it: set wal_compression = off")
        for setting, value in (
            ("synchronous_commit", commit), ("idle_session_timeout", "0"), ("lock_timeout", f"{_PATIENCE:g}s"),
            ("tcp_keepalives_idle", "20"), ("tcp_keepalives_interval", "5"), ("tcp_keepalives_count", "4"),
        ):  # fmt: skip
            self.run("SELECT set_config(?, ?, false)", setting, value)

    def _lock(self, key: int, model: str) -> None:
        """One owner at a time, between all processes that use this server."""
        try:
            with self.db.transaction():
                self.run("SELECT set_config('lock_timeout', ?, true)", f"{_HANDOVER:g}s")
                self.run("SELECT pg_advisory_lock('model'::regclass::oid::int, ?::int)", key)
        except psycopg.errors.LockNotAvailable:
            raise in_use(f"{model} of the ledger {self.name}") from None
        except psycopg.Error as error:
            raise Trouble(trouble(error)) from None

    def count(self, batch: Batch, people: Mapping[bytes, Sequence[int]]) -> None:
        """Raise the counts of the model and of these people, by what is there already."""
        key, last = batch.key, batch.last
        model = self.run(_MODEL, key, batch.epoch, batch.before)
        known = self.run(_PEOPLE, key, list(people))
        mine = self.sound(model.fetchall())
        if not mine:
            raise taken_over(self.name)
        had = {bytes(who): counts for _, who, *counts, _ in self.sound(known.fetchall())}
        (_, name, epoch, _, *before), (rounds, unsure, halted, history) = mine[0], batch.grown()
        now = (
            *(max(before[0], rounds), max(before[1], unsure), halted if before[2] is None else before[2]),
            max(before[3], history),
        )
        self.run(_GROW, *now, last, checksum(key, name, epoch, last, *now), key)
        most = {who: map(max, [n + WIDE for n in ns], had.get(who, ns)) for who, ns in people.items()}
        self.put("person", [(key, who, *counts, last) for who, counts in most.items()], _RAISED)

    def put(self, table: str, rows: Collection[Row], conflict: str = "") -> None:
        """Insert rows as one statement, however many there are, each with its checksum."""
        if not rows:
            return
        signed = [(*row, checksum(*row)) for row in rows]
        types = (_TYPES[type(value)] for value in signed[0])
        values = [[wide(value) for value in column] for column in zip(*signed, strict=True)]
        self.run(
            f"INSERT INTO {table}({TABLES[table]}, checksum) "
            f"SELECT * FROM unnest({', '.join(f'?::{one}' for one in types)})"
            + (f" ON CONFLICT {conflict}" if conflict else ""),
            *values,
        )

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Everything inside is written and on the disk, or nothing is.

        A COMMIT whose answer does not come has perhaps been done: the connection is gone then, and the owner with it.
        """
        done: psycopg.Cursor[Any] | None = None
        with self._using, troubled():
            try:
                with self.db.pipeline():  # what nobody waits for inside goes out together
                    self.run(_BEGIN)
                    yield
                    done = self.run("COMMIT")
            except BaseException:
                self._undo()
                raise
        if done is None or done.statusmessage != "COMMIT":  # PostgreSQL's answer for a transaction that had failed
            raise Trouble("the server did not commit it")

    def look(self, key: int, kind: str, sequence: int) -> tuple[int, bytes] | None:
        """One note, between two transactions: there is one connection."""
        with self._using:
            rows = self.sound(self.rows(LOOK, key, kind, sequence))
        return (rows[0][3], rows[0][4]) if rows else None

    def _undo(self) -> None:
        """Nothing of a transaction stays; where even that cannot be said, the connection ends."""
        try:
            self.run("ROLLBACK")
        except psycopg.Error:
            self.db.close()

    def release(self, key: int, epoch: int) -> None:
        """Give the model back, and close."""
        with suppress(psycopg.Error):  # else the connection is gone, and the lock with it
            self.run("UPDATE model SET owned = 0 WHERE id = ? AND epoch = ?", key, epoch)
        self.close()


class Server(Place):
    """A schema of a PostgreSQL server, by its URL: the first of the connection's search_path."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        where = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
        self._url, self.name = url, f"{parts.scheme}://{where}{parts.path}"

    def lock(self) -> threading.Lock:
        """One for each: the server lets all models write at once."""
        return threading.Lock()

    def reader(self) -> ServerReader:
        """The schema, for reading."""
        return ServerReader(self._url, self.name)

    def store(self) -> ServerStore:
        """The schema, for writing; the tables are made first, if they are not there."""
        return ServerStore(self._url, self.name, new=True)

    def claim(self, model: str) -> Claim:
        """Own a model of a ledger, which must be there."""
        with ExitStack() as undo:
            claim = undo.enter_context(ServerStore(self._url, self.name)).own(model)
            undo.pop_all()
        return claim
