"""A ledger on a PostgreSQL server: the same tables and checksums as SQLite's, in a schema that is the ledger's alone.

An owner has one connection, and with it a lock that the server gives back when the connection ends. There is no second
one: an owner whose connection is lost has lost its lock, so its write has failed, and nothing is answered any more.

A group of entries goes to the server in two ways there and back: what is there already, under a lock of the model's
row; then everything that is written. Numbers travel and are stored in eight bytes whatever they are, and bodies are
not compressed: neither the messages nor the rows tell an outcome by their size.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg

from confide.errors import StateError
from confide.ledger.entries import Batch, Erased
from confide.ledger.server import ServerReader, trouble, troubled, wide
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
    damaged,
    in_use,
    taken_over,
    without,
)

__all__ = ["Server", "ServerStore"]

_PATIENCE = 30.0  # seconds that a write waits for somebody else's hand on the tables
_HANDOVER = 2.0  # seconds that a claim waits for the server to notice that the last owner was killed
_MODEL, _PEOPLE = f"id, name, {ABOUT}", TABLES["person"]
_NOTED = "SELECT kind, sequence, width, body FROM journal WHERE model = ? AND kind = ? AND sequence = ?"
_GROW = "UPDATE model SET rounds = ?, unsure = ?, halted = ?, history = ?, sequence = ?, checksum = ? WHERE id = ?"
_RAISED = "(model, who) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in ("unsure", "watched", "labels", "sequence", "checksum")
)
_ERASED = "UPDATE journal SET body = ?, checksum = ? WHERE model = ? AND kind = ? AND sequence = ?"
_PRUNE = "DELETE FROM used WHERE model = ? AND number <= ?"
_TORN = "DELETE FROM journal WHERE model = ? AND kind = ? AND sequence <= ?"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

Row = Sequence[Any]


class ServerStore(ServerReader, Store):
    """A ledger on a server, opened for writing (`confide.ledger.store.Store`)."""

    def __init__(self, url: str, name: str, new: bool = False) -> None:
        self._using = threading.Lock()  # a transaction, or a look between two
        super().__init__(url, name, new)

    def insert(self, model: str, image: Image, instead: int | None = None) -> None:
        """All rows of a new model."""
        with self._transaction():
            for statement in () if instead is None else DISCARD:
                self.run(statement, instead)
            ((key,),) = self.run(
                f"INSERT INTO model(name, {ABOUT}, owned, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0) RETURNING id",
                *(model, *image.about),
            ).fetchall()
            self.run("UPDATE model SET checksum = ? WHERE id = ?", checksum(key, model, *image.about), key)
            for table, rows in image.tables.items():
                self._put(table, TABLES[table], ((key, *row) for row in rows))

    def seal(self, key: int, why: str | None) -> None:
        """Say why nobody is to be answered any more, or that somebody is again."""
        with self._transaction():
            self.run("DELETE FROM sealed WHERE model = ?", key)
            self._put("sealed", TABLES["sealed"], [] if why is None else [(key, why)])

    def own(self, model: str) -> Claim:
        """Own a model: this connection has its lock until it ends."""
        self.check_durable()
        key = self.model(model)[0]
        self._lock(key, model)
        _, _, epoch, sequence, rounds, *more = self.model(model)  # as the last owner left it
        mark = int.from_bytes(os.urandom(5))
        with self._transaction():
            row = (key, model, epoch + 1, sequence, rounds, *more)
            claimed = self.run(
                "UPDATE model SET epoch = ?, owned = 1, checksum = ? WHERE id = ? AND epoch = ? RETURNING id",
                *(epoch + 1, checksum(*row), key, epoch),
            )
            if not claimed.fetchall():
                raise taken_over(self.name)
            self._put("life", TABLES["life"], [(key, epoch + 1, mark, rounds)])
        return Claim(self, key, epoch + 1, sequence, mark)

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

    def write(self, batch: Batch) -> None:
        """All of it in one transaction."""
        people, fresh, erased = batch.people(), _notes(batch), list[Erased]()
        for _, entry in batch.entries:
            for kind, at, whose, left in entry.erased:
                if (kind, at) in fresh:
                    fresh[kind, at] = fresh[kind, at][0], without(whose, left, *fresh[kind, at])
                else:
                    erased.append((kind, at, whose, left))
        with self._transaction():
            owner = "WHERE id = ? AND epoch = ? AND sequence = ? FOR UPDATE"
            model = self.run(f"SELECT {_MODEL}, checksum FROM model {owner}", batch.key, batch.epoch, batch.before)
            known = self.run(
                f"SELECT {_PEOPLE}, checksum FROM person WHERE model = ? AND who = ANY(?)", batch.key, list(people)
            )
            noted = [self.run(_NOTED, batch.key, kind, at) for kind, at, *_ in erased]
            before = model.fetchall()
            if not before:
                raise taken_over(self.name)
            self._grow(batch, self._sound(before)[0])
            self._raise(batch, people, self._sound(known.fetchall()))
            self._add(batch)
            self._note(batch, fresh, [row for cursor in noted for row in cursor.fetchall()], erased)

    def look(self, key: int, kind: str, sequence: int) -> tuple[int, bytes] | None:
        """One note, between two transactions: there is one connection."""
        with self._using:
            rows = self.rows(LOOK, key, kind, sequence)
        return self.sound(key, rows[0])[2:] if rows else None

    def beat(self, key: int, epoch: int) -> None:
        """A transaction that changes nothing."""
        with self._transaction():
            if not self.run("SELECT 1 FROM model WHERE id = ? AND epoch = ?", key, epoch).fetchall():
                raise taken_over(self.name)

    def _sound(self, rows: Iterable[Row]) -> list[Row]:
        """Rows without their checksums, if those are right."""
        found = [(row[:-1], row[-1]) for row in rows]
        if not all(sum_ == checksum(*row) for row, sum_ in found):
            raise damaged(self.name)
        return [row for row, _ in found]

    def _grow(self, batch: Batch, row: Row) -> None:
        """The model's own row."""
        key, name, epoch, _, *had = row
        rounds, unsure, halted, history = batch.grown()
        now = max(had[0], rounds), max(had[1], unsure), halted if had[2] is None else had[2], max(had[3], history)
        self.run(_GROW, *now, batch.last, checksum(key, name, epoch, batch.last, *now), key)

    def _raise(self, batch: Batch, people: dict[bytes, list[int]], known: list[Row]) -> None:
        """The rows of all people who are in it: each changes, sure or not."""
        had = {bytes(row[1]): row[2:5] for row in known}
        zero = (WIDE, WIDE, WIDE)
        rows = (
            (batch.key, who, *(max(n + WIDE, m) for n, m in zip(counts, had.get(who, zero), strict=True)), batch.last)
            for who, counts in people.items()
        )
        self._put("person", _PEOPLE, rows, _RAISED)

    def _add(self, batch: Batch) -> None:
        """What is only ever added, and what is dropped: tickets that have expired, sums of ended epochs."""
        key, entries = batch.key, batch.entries
        for kind, before in sorted({one for _, entry in entries for one in entry.dropped}):
            self.run(DROPPED, key, kind, before)
        self._put(
            "released", TABLES["released"],
            ((key, *one) for _, entry in entries for one in entry.released),
        )  # fmt: skip
        used = {(key, number, epoch) for _, entry in entries for epoch, number in entry.used}
        self._put("used", TABLES["used"], used, "DO NOTHING")
        forgot = {(key, at, copy, who) for at, entry in entries for copy, who in entry.forgot}
        self._put("forgot", TABLES["forgot"], forgot, "DO NOTHING")
        if batch.prune >= 0:
            self.run(_PRUNE, key, batch.prune)
        sealed = [(key, entry.sealed) for _, entry in entries if entry.sealed is not None]
        self._put("sealed", TABLES["sealed"], sealed[:1], "DO NOTHING")

    def _note(
        self, batch: Batch, fresh: dict[tuple[str, int], tuple[int, bytes]], noted: list[Row],
        erased: list[Erased],
    ) -> None:  # fmt: skip
        """The journal's part."""
        key = batch.key
        for kind, before in batch.tear:
            self.run(_TORN, key, kind, before)
        bodies = {(kind, at): (width, body) for kind, at, width, body in noted}
        for kind, at, whose, left in erased:
            if (kind, at) in bodies:
                width, body = bodies[kind, at]
                bodies[kind, at] = width, without(whose, left, width, body)
        for (kind, at), (width, body) in bodies.items():
            self.run(_ERASED, body, checksum(key, kind, at, width, body), key, kind, at)
        rows = [(key, kind, at, width, body) for (kind, at), (width, body) in fresh.items()]
        self._put("journal", TABLES["journal"], rows)

    def _put(self, table: str, columns: str, rows: Iterable[Row], conflict: str = "") -> None:
        """Insert rows as one statement, however many there are, each with its checksum."""
        given = list(rows)
        if not given:
            return
        sums = [checksum(*row) for row in given]
        types = (_TYPES[type(value)] for value in (*given[0], 0))
        values = [[wide(value) for value in column] for column in (*zip(*given, strict=True), sums)]
        self.run(
            f"INSERT INTO {table}({columns}, checksum) SELECT * FROM unnest({', '.join(f'?::{one}' for one in types)})"
            + (f" ON CONFLICT {conflict}" if conflict else ""),
            *values,
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
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

    def _undo(self) -> None:
        """Nothing of a transaction stays; where even that cannot be said, the connection ends."""
        try:
            self.run("ROLLBACK")
        except psycopg.Error:
            self.db.close()

    def discard(self, key: int) -> None:
        """Take a model away, with all rows of it."""
        with self._transaction():
            for statement in DISCARD:
                self.run(statement, key)

    def release(self, key: int, epoch: int) -> None:
        """Give the model back, and close."""
        with suppress(psycopg.Error):  # else the connection is gone, and the lock with it
            self.run("UPDATE model SET owned = 0 WHERE id = ? AND epoch = ?", key, epoch)
        self.close()


_TYPES = {int: "bigint[]", bytes: "bytea[]", str: "text[]"}


def _notes(batch: Batch) -> dict[tuple[str, int], tuple[int, bytes]]:
    """(width, body) of the batch's own notes, by kind and number."""
    notes = [((kind, at), (width, body)) for at, entry in batch.entries for kind, width, body in entry.notes]
    if len(dict(notes)) < len(notes):
        raise ValueError("an entry has one note of a kind")
    return dict(notes)


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
