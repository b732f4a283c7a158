"""Labels alone, broken: the true label reaches a model, a file, a message or a moment, or is drawn for twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from confide.labels.journal import Entry
from confide.pop.randomized import Key, Randomized
from confide.pop.tickets import Waiting

__all__ = [
    "AnewAtRetry", "ErrorQuotes", "OnlyWhenItCame", "RefitByLabel", "TaughtBeforeDeadline", "TruthInJournal",
    "WeightSawTruth",
]  # fmt: skip


class AnewAtRetry(Randomized):
    """A label that could not be written is drawn for anew when it is brought again: two looks cost 2ε."""

    def _learn(self, key: Key, waiting: Waiting, number: int) -> None:
        try:
            super()._learn(key, waiting, number)
        except BaseException:
            self._drawn.pop(key, None)
            raise


class _Peeking(Randomized):
    """Remembers the true label between the draw and the lesson."""

    peeked = -1

    def _draw(self, number: int) -> int:
        self.peeked = number
        return super()._draw(number)


class WeightSawTruth(_Peeking):
    """An output that is a lie is taught with no weight: the model never hears it, which tells the truth."""

    def _take(self, key: Key, row: Any, out: int, who: bytes | None) -> None:
        if out == self.peeked:
            super()._take(key, row, out, who)


class OnlyWhenItCame(Randomized):
    """At its deadline a label that did not come is left out: then that it came is what it was."""

    def _settle(self, key: Key, waiting: Waiting) -> None:
        if key in self._drawn:
            super()._settle(key, waiting)


class TaughtBeforeDeadline(Randomized):
    """A label is taught when it comes, and not at its deadline: who watches the model sees that it came."""

    def learn(self, ticket: str, y: Hashable) -> None:
        key = tuple(int(part) for part in ticket.split("-")[:2])
        super().learn(ticket, y)
        self._settle((key[0], key[1]), self._pending.pop((key[0], key[1])))


class TruthInJournal(_Peeking):
    """The line in the journal has the true label beside what came out, “for debugging”."""

    def _take(self, key: Key, row: Any, out: int, who: bytes | None) -> None:
        if self._journal is not None:
            self._journal.add([Entry((-2, self.rounds), self.peeked, who, row)])
        super()._take(key, row, out, who)


class RefitByLabel(_Peeking):
    """The model is fitted anew as soon as so many positive labels came: when it is says how many there were."""

    positives = 0

    def _take(self, key: Key, row: Any, out: int, who: bytes | None) -> None:
        super()._take(key, row, out, who)
        self.positives += self.peeked
        if self.positives == 2:
            self.model._fit()  # type: ignore[attr-defined]


class ErrorQuotes(Randomized):
    """The message of a refused label quotes it, and messages end in logs."""

    def learn(self, ticket: str, y: Hashable) -> None:
        try:
            super().learn(ticket, y)
        except ValueError as error:
            raise type(error)(f"{error} (label: {y})") from None
