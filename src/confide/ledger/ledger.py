"""The ledger: what every model of a deployment has spent, in one SQLite file, always ahead of the answers.

A mechanism puts an `Entry` into its `Book` for each call, and shows nothing before `Book.wait` has returned. Numbers
are absolute and only ever grow: a write that came late, or twice, lowers nothing.

One process owns a model at a time. `Ledger.claim` holds a lock for as long as the process lives, and counts the
model's *epoch* up; every write names its epoch, so that an owner that lost its lock writes nothing more. Anybody may
`Ledger.read`. See docs/state.md; what must be durable, and why: docs/proofs/people.md.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confide.errors import StateError
from confide.ledger.book import FORGOT, LIFE, PERSON, RELEASED, SIGN, USED, Book
from confide.ledger.file import WIDE, File, Lock, Reader, check_name, trouble

__all__ = ["Ledger", "Spent"]

_all_books: weakref.WeakSet[Book] = weakref.WeakSet()


@dataclass(frozen=True)
class Spent:
    """What a model has spent, as the ledger has it. Private: for the mechanism and its operator alone."""

    rounds: int = 0
    unsure: int = field(default=0, repr=False)
    halted: str | None = None
    shares: Mapping[bytes, int] = field(default_factory=dict, repr=False)
    watched: Mapping[bytes, int] = field(default_factory=dict, repr=False)
    epoch: int = 0
    """How often the model was claimed."""
    sequence: int = 0
    """The number of the last entry."""
    used: frozenset[tuple[int, int]] = field(default=frozenset(), repr=False)
    forgot: tuple[tuple[int, int, bytes], ...] = field(default=(), repr=False)
    """(sequence, copy, who) of every forgetting, in order."""
    labels: Mapping[bytes, int] = field(default_factory=dict, repr=False)
    history: int = 0
    released: tuple[tuple[str, int, bytes, bytes], ...] = field(default=(), repr=False)
    """(kind, number, noisy row, exact sums) of everything the guide released, in order."""
    lives: Mapping[int, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    """(mark, rounds before it) of every life, by its epoch."""
    sealed: str | None = None
    """Why nobody is to be answered any more."""


class Ledger:
    """The ledger of a deployment: one file, a row a model.

    Nothing is opened or made until it is needed. All methods raise StateError when the file cannot be used, with a
    sentence that says what to do, and ValueError for a name that no model can have.

    Parameters
    ----------
    path
        The file, on a disk of this machine: SQLite's locks do not hold on network file systems.

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

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self._books: weakref.WeakSet[Book] = weakref.WeakSet()
        self._writing = threading.Lock()

    def models(self) -> list[str]:
        """The names of all models, in order."""
        self._check_fork()
        with Reader(self.path) as file:
            return [name for (name,) in file.rows("SELECT name FROM model ORDER BY name")]

    def create(self, model: str, spent: Spent | None = None) -> None:
        """A row for a model that has spent nothing, or this much. A name that is taken is refused."""
        spent = Spent() if spent is None else spent
        check_name(model)
        self._check_fork()
        with File(self.path, new=True) as file, self._writing:
            if file.rows("SELECT 1 FROM model WHERE name = ?", model):
                raise StateError(f"the ledger {self.path} has a model {model!r} already: choose another name")
            try:
                self._insert(file, model, spent)
            except sqlite3.Error as error:
                raise self._unwritten(error) from None

    def _insert(self, file: File, model: str, spent: Spent) -> None:
        with file.transaction() as db:
            key = db.execute(
                "INSERT INTO model(name, epoch, sequence, rounds, unsure, halted, history, owned, checksum) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)",
                (model, spent.epoch, spent.sequence, spent.rounds, spent.unsure, spent.halted, spent.history),
            ).lastrowid
            db.execute(SIGN, (key,))
            for who in spent.shares.keys() | spent.watched.keys() | spent.labels.keys():
                counts = (kind.get(who, 0) + WIDE for kind in (spent.shares, spent.watched, spent.labels))
                db.execute(PERSON, (key, who, *counts, spent.sequence))
            db.executemany(USED, ((key, number, epoch) for epoch, number in spent.used))
            db.executemany(FORGOT, ((key, *one) for one in spent.forgot))
            db.executemany(RELEASED, ((key, *one) for one in spent.released))

    def read(self, model: str) -> Spent:
        """What a model has spent, up to the last entry that is durable. Its owner may go on meanwhile."""
        self._check_fork()
        with Reader(self.path) as file:
            file.rows("BEGIN")  # all of it as of one moment
            key, _, epoch, sequence, rounds, unsure, halted, history = file.model(model)
            people = file.checked("model, who, unsure, watched, labels, sequence", "person", "model = ?", key)
            released = file.checked("model, kind, number, noisy, exact", "released", "model = ?", key)
            used = file.checked("model, number, epoch", "used", "model = ?", key)
            forgot = file.checked("model, sequence, copy, who", "forgot", "model = ?", key)
            lives = file.checked("model, epoch, mark, rounds", "life", "model = ?", key)
            sealed = file.checked("model, why", "sealed", "model = ?", key)
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
            sealed=sealed[0][1] if sealed else None,
        )

    def journal(self, model: str) -> list[tuple[str, int, int, bytes]]:
        """A model's notes (kind, sequence, width, body), in the order in which they were written."""
        self._check_fork()
        with Reader(self.path) as file:
            return file.notes(file.model(model)[0])

    def claim(self, model: str) -> Book:
        """Own a model: no other process does, and none writes for it, until the book is closed or this process dies."""
        check_name(model)
        self._check_fork()
        with ExitStack() as undo:
            file = undo.enter_context(File(self.path))
            lock = Lock(self.path.with_name(f"{self.path.name}.{model}.lock"))
            undo.callback(lock.release)
            file.check_whole()
            key, _, epoch, sequence, rounds, *_ = file.model(model)
            mark = int.from_bytes(os.urandom(5))
            try:
                with self._writing:
                    with file.transaction() as db:
                        db.execute("UPDATE model SET epoch = ?, owned = 1 WHERE id = ?", (epoch + 1, key))
                        db.execute(SIGN, (key,))
                        db.execute(LIFE, (key, epoch + 1, mark, rounds))
                    file.settle()  # from here on the -wal must be there
            except sqlite3.Error as error:
                raise self._unwritten(error) from None
            undo.pop_all()
        book = Book(file, lock, self._writing, key, epoch + 1, sequence, mark)
        self._books.add(book)
        _all_books.add(book)
        return book

    def _unwritten(self, error: sqlite3.Error) -> StateError:
        return StateError(f"the ledger {self.path} could not be written ({trouble(error)}): make room, then try again")

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
        if any(book.pid != mine and not book.closed and book.path == self.path for book in _all_books):
            raise StateError(
                f"the ledger {self.path} was open when this process was forked: use it where it was opened"
            )
