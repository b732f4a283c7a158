"""Labels alone, broken: the true label reaches a model, a file, a message or a moment, or is drawn for twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from confide.labels.journal import Entry
from confide.pop.randomized import Key, Randomized, Unlabelled

__all__ = [
    "AnewAtRetry", "CountedAfterWriting", "ErrorQuotes", "OnlyWhenItCame", "RefitByLabel", "TaughtBeforeDeadline",
    "TruthInJournal", "WeightSawTruth",
]  # fmt: skip


class AnewAtRetry(Randomized):
    """A label that could not be written is drawn for anew when it is brought again: two looks cost 2ε."""

    def _learn(self, key: Key, asked: Unlabelled, number: int) -> None:
        try:
            super()._learn(key, asked, number)
        except BaseException:
            asked.out = -1
            raise


class _Peeking(Randomized):
    """Remembers the true label between the draw and the lesson."""

    peeked = -1

    def _draw(self, number: int, word: int) -> int:
        self.peeked = number
        return super()._draw(number, word)


class WeightSawTruth(_Peeking):
    """An output that is a lie is taught with no weight: the model never hears it, which tells the truth."""

    def _teach(self, row: Any, out: int) -> None:
        if out == self.peeked:
            super()._teach(row, out)
        else:
            self._counts[out] += 1


class OnlyWhenItCame(Randomized):
    """At its deadline a label that did not come is left out: then that it came is what it was."""

    def _settle(self, key: Key, asked: Unlabelled) -> None:
        if asked.counted:
            super()._settle(key, asked)

    def _draw(self, number: int, word: int) -> int:
        for key, asked in self._pending.items():
            asked.counted |= key not in dict(self._tickets)  # it was redeemed just now
        return super()._draw(number, word)


class TaughtBeforeDeadline(Randomized):
    """A label is taught when it comes, and not at its deadline: who watches the model sees that it came."""

    def learn(self, ticket: str, y: Hashable) -> None:
        key = tuple(int(part) for part in ticket.split("-")[:2])
        super().learn(ticket, y)
        self._settle((key[0], key[1]), self._pending[key[0], key[1]])


class TruthInJournal(_Peeking):
    """The line in the journal has the true label beside what came out, “for debugging”."""

    def _write(self, entries: Sequence[Entry]) -> None:
        super()._write([*entries, Entry((-2, self.rounds), self.peeked, None, None)])


class RefitByLabel(_Peeking):
    """The model is fitted anew as soon as so many positive labels came: when it is says how many there were."""

    positives = 0

    def _teach(self, row: Any, out: int) -> None:
        super()._teach(row, out)
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


class CountedAfterWriting(Randomized):
    """A person's cap is counted after the write: cut off in between, the next label of theirs is one too many."""

    def _allow(self, asked: Unlabelled) -> bool:
        return asked.who is None or self._taken.get(asked.who, 0) < self._cap

    def _write(self, entries: Sequence[Entry]) -> None:
        super()._write(entries)
        for entry in entries:
            if entry.who is not None:
                self._taken[entry.who] = self._taken.get(entry.who, 0) + 1
