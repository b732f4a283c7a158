"""A model's book: entries that many threads add, and one of them writes for all."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self

from confide.errors import StateError
from confide.ledger.entries import Batch, Entry
from confide.ledger.store import Claim, Store, Trouble

__all__ = ["Book", "Entry"]


class Book:
    """One model, owned by this process: the only thing that writes to its row. Made by `Ledger.claim`.

    `add` is cheap and may be called under a lock; `wait` goes to the disk and is called by many threads outside of it:
    whoever comes first writes everything that was added, in one transaction, and the others find theirs written.

    After a write that failed, for whatever reason, the book is broken for good: `add` and `wait` raise the same
    sentence to everybody, whatever was in the entry. What was in the failed write never counts as durable.
    """

    def __init__(self, claim: Claim, writing: threading.Lock) -> None:
        store, key, epoch, mark = claim.store, claim.key, claim.epoch, claim.mark
        self.place = store.name
        """Where the ledger is, for messages."""
        self.home: Path | None = None
        """The folder with the snapshot that belongs to it, once there is one."""
        self.pid = os.getpid()
        self.epoch = epoch
        """How often the model was claimed, this time included."""
        self.mark = mark
        """A random number that no other life of the model has: a ledger that was rolled back does not know it."""
        self.clock: Callable[[], float] = float  # nothing here looks at a clock, unless its owner gives it one
        self.commits, self.seconds = 0, 0.0
        """Writes that were made, and how long they took by that clock: for the operator's eyes."""
        self._store, self._key = store, key
        self._adding, self._writing = threading.Lock(), writing
        self._pending: list[tuple[int, Entry]] = []
        self._sequence = self._durable = claim.sequence
        self._released: dict[tuple[str, int], int] = {}  # of this life: those on the disk
        self._tear: dict[str, int] = {}
        self._owed: tuple[int, dict[str, int]] = -1, {}
        self._ended: str | None = None
        self._release = weakref.finalize(self, _release, store, key, epoch, self.pid)

    @property
    def sequence(self) -> int:
        """The number of the last entry that was added: what a snapshot taken now remembers."""
        return self._sequence

    @property
    def durable(self) -> int:
        """The number of the last entry that is on the disk, with all before it. Reading it takes no lock."""
        return self._durable

    @property
    def ended(self) -> bool:
        """Whether nothing is written any more: after a public write that failed, or a close."""
        return self._ended is not None

    @property
    def closed(self) -> bool:
        """Whether the model was given back."""
        return not self._release.alive

    def add(self, entry: Entry) -> int:
        """Put in an entry, and get its number for `wait`. Nothing goes to the disk yet.

        Raises
        ------
        StateError
            If a write failed before, if the book was closed, or if this process was forked from its owner.
        """
        with self._adding:
            self.check()
            self._sequence += 1
            self._pending.append((self._sequence, entry))
            return self._sequence

    def released(self, kind: str, number: int) -> int | None:
        """The number of the entry that has this release of a guide's; None where this life added none."""
        with self._adding:
            pending = _releases(self._pending)
            return {**self._released, **pending}.get((kind, number))

    def wait(self, sequence: int, *, private: bool = False) -> None:
        """Return when the entry with this number, and all before it, are on the disk.

        Parameters
        ----------
        private
            That there was this call is not public, such as a label's: then a write that fails is told to this caller
            alone. What is pending stays so, and goes out with the next public call's write, or ends the book with it.

        Raises
        ------
        StateError
            As `add`, and if this write fails.
        ValueError
            If there is no entry with this number.
        """
        self.check()
        if sequence <= self._durable:
            return
        if sequence > self._sequence:
            raise ValueError(f"no entry has the number {sequence}: wait for what add returned")
        with self._writing:
            self.check()
            if sequence <= self._durable:
                return
            began = self.clock()
            try:
                self._write()
                self.commits, self.seconds = self.commits + 1, self.seconds + self.clock() - began
            except BaseException as error:
                if private and isinstance(error, Exception):
                    raise StateError(f"the ledger {self.place} could not be written: try again") from None
                self._ended = self._why(error)
                if not isinstance(error, Exception):
                    raise
            self.check()

    def look(self, kind: str, sequence: int) -> tuple[int, bytes] | None:
        """The width and the body of a note that is durable; None where there is none. StateError if it is not read."""
        self.check()
        return self._store.look(self._key, kind, sequence)

    def beat(self) -> None:
        """Find out whether the ledger is there, by a transaction that holds nothing of what waits; end if it is not.

        To be called at public times: a private call, which may be all there is, does not end a book.

        Raises
        ------
        StateError
            If it is not, or the book had ended.
        """
        self.check()
        with self._writing:
            self.check()
            try:
                self._store.beat(self._key, self.epoch)
            except BaseException as error:
                self._ended = self._why(error)
                if not isinstance(error, Exception):
                    raise
            self.check()

    def sweep(self, prune: int = -1, tear: Mapping[str, int] | None = None) -> bool:
        """Drop what is needed no more, now and in a write of its own: how much there is may be private.

        False if it could not be. It is dropped with the next sweep then, and with nobody else's write.

        Parameters
        ----------
        prune
            Used tickets up to this number, which have expired anyway.
        tear
            Up to which entry notes go, by their kinds.
        """
        self.check()
        with self._writing:
            self.check()
            owed, given = self._owed[1], tear or {}
            prune = max(prune, self._owed[0])
            tear = {kind: max(owed.get(kind, -1), given.get(kind, -1)) for kind in {**owed, **given}}
            try:
                if prune < 0 and not tear:
                    return True
                self._store.sweep(self._key, self.epoch, prune, tuple(tear.items()))
                self._owed = -1, {}
            except Exception:  # the beat finds out why
                self._owed = prune, tear
            return self._owed == (-1, {})

    @property
    def owes(self) -> bool:
        """Whether something that is needed no more could not be dropped: for the operator's eyes."""
        return self._owed != (-1, {})

    def tear(self, kind: str, before: int) -> None:
        """With the next write, drop the journal's notes of this kind up to this sequence number."""
        with self._adding:
            self.check()
            self._tear[kind] = max(self._tear.get(kind, -1), before)

    def end(self, why: str) -> None:
        """Write nothing any more: what was added and is not on the disk is lost. Not for anything private."""
        with self._adding:
            self._ended = self._ended or why

    def close(self) -> None:
        """Write what is pending and give the model back; in a forked process, nothing.

        Raises
        ------
        StateError
            If what was pending could not be written; the model is given back all the same.
        """
        if os.getpid() != self.pid or self.closed:
            return
        try:
            if self._ended is None:
                self.wait(self._sequence)
        finally:
            with self._writing:
                self._ended = self._ended or "this book was closed: load the state again"
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """StateError if nothing is written any more, or this process was forked from its owner."""
        if os.getpid() != self.pid:  # before any lock: another thread may have held it when the process was forked
            raise StateError("this book was forked: two processes must not spend one budget; use it where it was made")
        if self._ended is not None:
            raise StateError(self._ended)

    def _why(self, error: BaseException) -> str:
        if isinstance(error, StateError):
            return str(error)
        if not isinstance(error, Exception):
            return (
                f"a write to the ledger {self.place} was interrupted ({type(error).__name__}), so nobody knows whether "
                "it is there: nothing is answered any more; load the state again, and it goes on after what is there"
            )
        told = error.strerror if isinstance(error, OSError) else str(error) if isinstance(error, Trouble) else None
        reason = told or type(error).__name__
        return (
            f"the ledger {self.place} could not be written ({reason}): nothing is answered any more; "
            "make room, then load the state again"
        )

    def _write(self) -> None:
        """Everything pending, in one transaction."""
        with self._adding:
            batch = Batch(self._key, self.epoch, self._durable, tuple(self._pending), tuple(self._tear.items()))
        self._store.write(batch)
        with self._adding:
            self._released |= _releases(self._pending[: len(batch.entries)])
            dropped = dict(one for _, entry in batch.entries for one in entry.dropped)
            if dropped:  # they are never asked for again
                own = self._released.items()
                self._released = {key: at for key, at in own if key[1] >= dropped.get(key[0], 0)}
            del self._pending[: len(batch.entries)]
            self._tear = {kind: at for kind, at in self._tear.items() if (kind, at) not in batch.tear}
        self._durable = batch.last


def _releases(entries: Iterable[tuple[int, Entry]]) -> dict[tuple[str, int], int]:
    return {(kind, number): sequence for sequence, entry in entries for kind, number, *_ in entry.released}


def _release(store: Store, key: int, epoch: int, pid: int) -> None:
    """Give a model back. It also runs when the book is dropped, or the process ends, without a `close`."""
    if os.getpid() == pid:
        store.release(key, epoch)
