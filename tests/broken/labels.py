"""Labels alone, broken: the true label reaches a model, a file, a message or a moment, or is drawn for twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confide.errors import StateError
from confide.pop.lessons import Lesson
from confide.pop.loop import Loop
from confide.pop.randomizing import Randomizing
from confide.pop.running import Who
from confide.pop.tickets import Key

__all__ = [
    "AnewAtRetry", "CountedAfterWriting", "ErrorQuotes", "OnlyWhenItCame", "RefitByLabel", "TaughtBeforeDeadline",
    "TruthInJournal", "WeightSawTruth",
]  # fmt: skip


class AnewAtRetry(Loop):
    """A label that could not be written is drawn for anew when it is brought again: two looks cost 2ε."""

    def learn(self, key: Key, label: int) -> Lesson:
        waiting = dict(self.tickets).get(key)
        try:
            return super().learn(key, label)
        except StateError:
            if waiting is not None:
                self.tickets.restore(key, waiting)
            raise


class ErrorQuotes(Loop):
    """The message of a refused label quotes it, and messages end in logs."""

    def learn(self, key: Key, label: int) -> Lesson:
        try:
            return super().learn(key, label)
        except ValueError as error:
            raise type(error)(f"{error} (label: {label})") from None


class _Peeking(Randomizing):
    """Remembers the true label between the draw and the lesson."""

    peeked = -1

    def receive(self, label: int, who: Who) -> int:
        self.peeked = label
        return super().receive(label, who)


class WeightSawTruth(_Peeking):
    """An output that is a lie is taught with no weight: the model never hears it, which tells the truth."""

    def _learn(self, row: Any, out: int) -> None:
        if out == self.peeked:
            super()._learn(row, out)
        else:
            self.outputs[out] += 1


class OnlyWhenItCame(Randomizing):
    """At its deadline a label that did not come is left out: then that it came is what it was."""

    def teach(self, question: Any, label: int, who: Who) -> int:
        self.__dict__.setdefault("came", set()).add(question.number)
        return super().teach(question, label, who)

    def _settle(self) -> None:
        came = self.__dict__.get("came", set())
        self.drop([n for n in self._held if n + self.part.deadline <= self._at and n not in came])
        super()._settle()


class TaughtBeforeDeadline(Randomizing):
    """A label is taught when it comes, and not at its deadline: who watches the model sees that it came."""

    def teach(self, question: Any, label: int, who: Who) -> int:
        number = super().teach(question, label, who)
        self._teach([self._held.pop(number)[:2]])
        return number


class TruthInJournal(_Peeking):
    """The line in the journal has the true label beside what came out, “for debugging”."""

    def _write(self, lessons: Sequence[tuple[Any, int]]) -> None:
        super()._write([*lessons, (lessons[0][0], self.peeked)])


class RefitByLabel(_Peeking):
    """The model is fitted anew as soon as so many positive labels came: when it is says how many there were."""

    positives = 0

    def _learn(self, row: Any, out: int) -> None:
        super()._learn(row, out)
        self.positives += self.peeked
        if self.positives == 2:
            self.model._model = self.model._begun().result()  # type: ignore[attr-defined]


class CountedAfterWriting(Randomizing):
    """A person's cap is counted after the write: cut off in between, the next label of theirs is one too many."""

    whose: Who = None

    def receive(self, label: int, who: Who) -> int:
        if who is not None and self._account.labels.get(who, 0) >= self.part.unit_labels:
            raise ValueError("for life")
        self.whose = who
        return self.part.response.draw(label, self.rng.fresh_word())

    def _write(self, lessons: Sequence[tuple[Any, int]]) -> None:
        super()._write(lessons)
        self._account.learns(self.whose)
