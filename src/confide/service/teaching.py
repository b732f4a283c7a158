"""How a desk takes history: slice by slice, each durable by itself, one import at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from confide.ledger.book import Book
from confide.pop.account import Mark
from confide.pop.batches import Records as Taken
from confide.pop.keeping import Keeper, Note
from confide.pop.pop import POP
from confide.service.base import Records, Refusal, Slices
from confide.service.history import Import
from confide.service.journal import TAUGHT, Columns, Row, Rows
from confide.service.requests import Requests
from confide.service.words import ONE_IMPORT, OTHER_RECORDS

__all__ = ["Teacher"]


class Teacher:
    """Teaches imports for a desk.

    Parameters
    ----------
    long
        What is said of an x that cannot be stored.
    lock
        The desk's, held while a slice is computed, and not while it goes to the disk.
    check
        Raises where nobody is answered any more, and ends what is a ticket's life old.
    """

    def __init__(
        self, pop: POP, keeper: Keeper, book: Book, requests: Requests, rows: Rows, long: str,
        lock: AbstractContextManager[object], check: Callable[[], None],
    ) -> None:  # fmt: skip
        self._pop, self._keeper, self._book, self._requests, self._rows = pop, keeper, book, requests, rows
        self._long, self._lock, self._check = long, lock, check
        self.busy = False
        """Whether an import is being taught (public)."""

    def slices(self, rows: Records, id: str | None) -> Slices:
        """See `confide.service.desk.PopDesk.teaching`: the records are read at once, with nothing held meanwhile."""
        whose = {"people": self._pop.units == "people", "alone": self._pop.plan.promise.protect == "labels"}
        return self._slices(Import(self._keeper, rows, id, room=self._rows.room, **whose), len(rows))

    def _slices(self, given: Import, size: int) -> Slices:
        with self._lock:
            self._check()
            if self.busy:
                raise ValueError(ONE_IMPORT)
            before = self._requests.imports.get(given.name)
            self.busy = True
        try:
            if before is not None and not given.same(before):
                self._book.wait(before.sequence)
                yield [Refusal("conflict", OTHER_RECORDS) for _ in range(size)]
                return
            done = 0 if before is None else before.done
            for part in given.slices(done):
                if part.start < done:
                    unreadable = self._pop.readable(given.xs(part))
                    self._book.wait(0 if before is None else before.sequence)
                else:
                    unreadable = self.take(given, part)
                yield given.said(part, unreadable, self._long)
        finally:
            self.busy = False

    def take(self, given: Import, part: slice) -> dict[int, str]:
        """Teach a slice; what is wrong with those of its records that cannot be read.

        It is noted piece by piece: the note of a record is never later than a release of the guide that has it.
        """
        unreadable, at = dict[int, str](), part.start
        with self._lock:
            self._check()
            while at < part.stop:
                piece = slice(at, min(part.stop, at + self._keeper.together))
                records, entered = self._take(given, piece)
                unreadable.update((at - part.start + i, str(error)) for i, error in records.refused.items())
                at = piece.stop
        self._keeper.settle(entered)  # the operator's, at times that are public
        return unreadable

    def _take(self, given: Import, piece: slice) -> tuple[Taken, Mark]:
        noted = list[Row]()

        def note(taught: Taken) -> Note:
            noted.extend(given.rows(piece, taught, self._keeper.rounds))
            return TAUGHT, self._rows.width, self._rows.body(Columns.of(noted))

        records, entered = self._keeper.teach(given.xs(piece), given.ys(piece), given.whos[piece], note)
        self._requests.taught(noted, entered.sequence)
        return records, entered
