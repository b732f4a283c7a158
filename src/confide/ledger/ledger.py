"""The ledger: what every model of a deployment has spent, always ahead of the answers.

It is one SQLite file, or a schema of a PostgreSQL server (confide.ledger.store).

A mechanism puts an `Entry` into its `Book` for each call, and shows nothing before `Book.wait` has returned. Numbers
are absolute and only ever grow: a write that came late, or twice, lowers nothing.

One process owns a model at a time. `Ledger.claim` holds a lock for as long as the process lives, and begins a
new *term*; every write names its term (`epoch` here: a column's name), so that an owner that lost its lock writes
nothing more. Anybody may `Ledger.read`. See docs/state.md; what must be durable, and why: docs/proofs/people.md.
"""

from __future__ import annotations

import importlib
import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self, cast

from confide.errors import StateError
from confide.ledger.book import Book
from confide.ledger.entries import Spent
from confide.ledger.moving import fenced, move
from confide.ledger.sqlite import Disk
from confide.ledger.store import TABLES, WIDE, Image, Place, Trouble, check_name

__all__ = ["Ledger", "Spent", "ledger_of"]

_all_books: weakref.WeakSet[Book] = weakref.WeakSet()


class Ledger:
    """The ledger of a deployment: a row a model.

    Nothing is opened or made until it is needed. All methods raise StateError when the file cannot be used, with a
    sentence that says what to do, and ValueError for a name that no model can have.

    Parameters
    ----------
    place
        A file, on a disk of this machine: SQLite's locks do not hold on network file systems. Or a PostgreSQL server,
        as `postgresql://host/database`; its schema is then the ledger's alone.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from confide.ledger import Entry, Ledger
    >>> with TemporaryDirectory() as folder, Ledger(folder + "/ledger.db") as ledger:
    ...     ledger.create("shop")
    ...     book = ledger.claim("shop")
    ...     book.wait(book.add(Entry(rounds=1, unsure=1, shares=((b"ann", 1),))))
    ...     spent = ledger.read("shop")
    >>> spent.rounds, spent.shares, spent.epoch
    (1, {b'ann': 1}, 1)
    """

    def __init__(self, place: str | Path) -> None:
        self._place = _place(place)
        self.name = self._place.name
        """Where it is, for messages; no password is in it."""
        self._books: weakref.WeakSet[Book] = weakref.WeakSet()

    @property
    def path(self) -> Path:
        """The file, where it is one."""
        if not isinstance(self._place, Disk):
            raise StateError(f"the ledger {self.name} is no file: load the state with the ledger in its folder")
        return self._place.path

    def models(self) -> list[str]:
        """The names of all models, in order."""
        self._check_fork()
        with self._place.reader() as reader:
            return reader.models()

    def create(self, model: str, spent: Spent | None = None) -> None:
        """A row for a model that has spent nothing, or this much. A name that is taken is refused."""
        check_name(model)
        self._check_fork()
        with self._place.store() as store, self._place.lock():
            if model in store.models():
                raise StateError(f"the ledger {self.name} has a model {model!r} already: choose another name")
            try:
                store.insert(model, Image.of(Spent() if spent is None else spent))
            except Trouble as error:
                raise self._unwritten(error) from None

    def read(self, model: str) -> Spent:
        """What a model has spent, up to the last entry that is durable. Its owner may go on meanwhile.

        One that was moved to another ledger is refused.
        """
        self._check_fork()
        with self._place.reader() as file:
            file.hold()
            key, _, epoch, sequence, rounds, unsure, halted, history = file.model(model)
            sealed = file.sealed(key)
            people, released, used, forgot, lives = (
                file.checked(TABLES[table], table, "model = ?", key)
                for table in ("person", "released", "used", "forgot", "life")
            )
        if fenced(sealed):
            raise StateError(str(sealed))
        return Spent(
            rounds=rounds,
            unsure=unsure,
            halted=halted,
            shares={who: counts[0] - WIDE for _, who, *counts in people if counts[0] > WIDE},
            watched={who: counts[1] - WIDE for _, who, *counts in people if counts[1] > WIDE},
            labels={who: counts[2] - WIDE for _, who, *counts in people if counts[2] > WIDE},
            history=history,
            released=tuple((kind, number, noisy, exact) for _, kind, number, noisy, exact in sorted(released)),
            epoch=epoch,
            sequence=sequence,
            used=frozenset((epoch, number) for _, number, epoch in used),
            forgot=tuple(sorted((at, copy, who) for _, at, copy, who in forgot)),
            lives={epoch: (mark, rounds) for _, epoch, mark, rounds in lives},
            sealed=sealed,
        )

    def people(self, model: str, since: int = -1) -> set[bytes]:
        """Everybody who was in a model after the entry with this number, whatever was counted of them."""
        self._check_fork()
        with self._place.reader() as file:
            key = file.model(model)[0]
            rows = file.rows("SELECT who FROM person WHERE model = ? AND sequence > ?", key, since)
            return {bytes(who) for (who,) in rows}

    def journal(self, model: str) -> list[tuple[str, int, int, bytes]]:
        """A model's notes (kind, sequence, width, body), in the order in which they were written."""
        return list(self.each_note(model))

    def each_note(self, model: str) -> Iterator[tuple[str, int, int, bytes]]:
        """The same, one after the other."""
        self._check_fork()
        with self._place.reader() as file:
            yield from file.each_note(file.model(model)[0])

    def claim(self, model: str) -> Book:
        """Own a model: no other process does, and none writes for it, until the book is closed or this process dies.

        One that was moved to another ledger is refused.
        """
        check_name(model)
        self._check_fork()
        try:
            claim = self._place.claim(model)
        except Trouble as error:
            raise self._unwritten(error) from None
        book = Book(claim, self._place.lock())
        try:
            if fenced(why := claim.store.sealed(claim.key)):
                raise StateError(str(why))
        except BaseException:
            book.close()
            raise
        self._books.add(book)
        _all_books.add(book)
        return book

    def discard(self, model: str) -> None:
        """Take away a model for which nothing was ever counted, and which nobody owns; any other is refused."""
        check_name(model)
        self._check_fork()
        try:
            claim = self._place.claim(model)
            try:
                if self.read(model).counted:
                    raise StateError(
                        f"the ledger {self.name} has counted something for {model!r}, which is never taken away: "
                        "restore the newest backup of its snapshot, or choose another name"
                    )
                with self._place.lock():
                    claim.store.discard(claim.key)
            finally:
                claim.store.release(claim.key, claim.epoch)
        except Trouble as error:
            raise self._unwritten(error) from None

    def move(self, target: Ledger, names: Mapping[str, str]) -> None:
        """Move models to another ledger, each to the name that it gets there (`confide.ledger.moving`).

        Nothing can be spent from both at any moment. What was interrupted is finished by the same call.
        """
        for name in (*names, *names.values()):
            check_name(name)
        self._check_fork()
        move(self._place, target._place, names)

    def _unwritten(self, error: Trouble) -> StateError:
        return StateError(f"the ledger {self.name} could not be written ({error}): make room, then try again")

    def close(self) -> None:
        """Close all books that were claimed here."""
        for book in list(self._books):
            book.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_fork(self) -> None:
        # SQLite takes the locks that a fork left in its memory for its own, though the system gave them to the parent.
        mine = os.getpid()
        if any(book.pid != mine and not book.closed and book.place == self.name for book in _all_books):
            raise StateError(
                f"the ledger {self.name} was open when this process was forked: use it where it was opened"
            )


def ledger_of(folder: Path, place: str | None) -> Ledger:
    """The ledger of the state in a folder: its own there, or one elsewhere."""
    return Ledger(folder / "ledger.db" if place is None else place)


def _place(where: str | Path) -> Place:
    """A file, or a server for what is written like one."""
    if not str(where).startswith(("postgresql://", "postgres://")):
        return Disk(Path(where).resolve())
    try:
        postgres = importlib.import_module("confide.ledger.postgres")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("confide"):
            raise
        raise StateError('a ledger in PostgreSQL needs one more package: pip install "confide[postgres]"') from None
    return cast(Place, postgres.Server(str(where)))
