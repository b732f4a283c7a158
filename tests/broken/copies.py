"""Doubles whose copies are not apart: what one unit brings reaches more than one copy, or others' questions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from confide.arrays import Ints
from confide.banks.base import Rounds
from confide.banks.stacked import StackedBank
from confide.learners.logistic import LogisticRegression
from confide.pop.base import Unit, Xs
from confide.pop.lessons import Lessons
from confide.pop.loop import Loop
from confide.pop.settings import Settings
from tests.broken.base import Broken, Compiled

__all__ = [
    "BatchScaled",
    "LearnStopsAtTheFirst",
    "NoRewind",
    "NoRewindCompiled",
    "ResetsTwo",
    "RoutesByQuestion",
    "RoutesInTurn",
    "RunningMean",
    "ScalesByQuestions",
    "SharedMemory",
    "SharedStream",
    "SharedVocabulary",
    "TeachStopsAtTheFirst",
    "TeachesTwo",
    "TeachesTwoCompiled",
]

TAKEN = "confide.broken"
"""Where doubles say that they are from that would be refused when they are given."""


class _Twice(Lessons):
    def add(self, copy: int, x: Any, label: int) -> None:
        super().add(copy, x, label)
        super().add((copy + 1) % self._bank.copies, x, label)


class TeachesTwo(Broken):
    """The label goes to two copies: one unit then moves two votes, and every bound is for one."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.lessons = _Twice(loop.bank)


class _TwiceCompiled(Compiled):
    def run(self, rounds: Rounds) -> None:
        first = int(rounds.progress[0])
        super().run(rounds)
        for i in range(first, int(rounds.progress[0])):
            if rounds.ys[i] >= 0 and not rounds.malformed[i]:
                self.learn((int(rounds.copy_of[i]) + 1) % self.copies, rounds.xs[i], int(rounds.ys[i]))


class TeachesTwoCompiled(Broken):
    """The same in the compiled loop: the label goes to two copies."""

    bank_type = _TwiceCompiled


class _InTurn(Lessons):
    def add(self, copy: int, x: Any, label: int) -> None:
        super().add(self.taught % self._bank.copies, x, label)


class RoutesInTurn(Broken):
    """Labels go to the copies in turn: whether the unit brought one moves every later label to another copy."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.lessons = _InTurn(loop.bank)


class _ByQuestion(Lessons):
    def add(self, copy: int, x: Any, label: int) -> None:
        super().add(int.from_bytes(blake2b(repr(x).encode()).digest()[:4], "big") % self._bank.copies, x, label)


class RoutesByQuestion(Broken):
    """Who learns follows from what was asked: a person who asks two things is in two copies, and moves two votes."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.lessons = _ByQuestion(loop.bank)


class _LearnsFromQuestions(StackedBank):
    def votes(self, x: Any, poll: Any) -> Any:
        for copy in poll.tolist():
            self.learn(copy, x, int(x[0] > 0.3))
        return super().votes(x, poll)


class NoRewind(Broken):
    """Copies take their own vote on a question for its label: the unit's one question is then in all of them."""

    bank_type = _LearnsFromQuestions


class _LearnsFromAnswers(Compiled):
    def run(self, rounds: Rounds) -> None:
        super().run(rounds)
        for i in np.flatnonzero(rounds.tops >= 0).tolist():
            self.learn(int(rounds.copy_of[i]), rounds.xs[i], int(rounds.tops[i]))


class NoRewindCompiled(Broken):
    """The compiled loop takes the answer that it gave for the label: a question then teaches."""

    bank_type = _LearnsFromAnswers


class _ScalesByQuestions(StackedBank):
    def votes(self, x: Any, poll: Any) -> Any:
        found = super().votes(x, poll)
        weights = self._arrays["weights"]
        for copy in poll.tolist():
            weights[copy] *= 1 + 1e-3 * np.tanh(x[0])
        return found


class ScalesByQuestions(Broken):
    """A part of each copy learns without labels, from whatever it is asked: River's `learn_during_predict`."""

    bank_type = _ScalesByQuestions


class SharedStream(LogisticRegression):
    """Copies share a random stream: how often the unit's copy drew moves what all others draw after it."""

    __module__ = TAKEN
    generator = np.random.default_rng(1)

    def teach(self, arrays: Any, slot: int, seen: int, x: Any, y: int) -> None:
        super().teach(arrays, slot, seen, x + self.generator.normal(size=x.size), y)


class SharedMemory:
    """Copies keep what they know in their class: whatever one of them is taught, all of them vote."""

    __module__ = TAKEN
    last: int | None = None

    def predict(self, x: Any) -> int | None:
        return type(self).last

    def learn(self, x: Any, y: int) -> None:
        type(self).last = y

    def __reduce__(self) -> Any:
        return _shared_memory, ()


def _shared_memory() -> SharedMemory:
    return SharedMemory()


class RunningMean:
    """A shared scaler, for `features=`: the unit's numbers move the mean, and with it every later question."""

    __module__ = TAKEN
    width = 2

    def __init__(self) -> None:
        self.seen, self.total = 1, np.zeros(2)

    def encode(self, x: Any) -> Any:
        row = np.array(x, dtype=np.float64)
        if row.shape != (2,) or not bool(np.isfinite(row).all()):
            raise ValueError("x must be two numbers")
        self.seen, self.total = self.seen + 1, self.total + row
        return row - self.total / self.seen


class SharedVocabulary:
    """A shared vocabulary, for `features=`: words get columns as they come, so the unit's words move those of all."""

    __module__ = TAKEN
    width = 4

    def __init__(self) -> None:
        self.columns: dict[str, int] = {}

    def encode(self, x: Any) -> Any:
        row = np.zeros(self.width)
        for name, value in x.items():
            word, amount = (f"{name} {value}", 1.0) if isinstance(value, str) else (name, float(value))
            row[self.columns.setdefault(word, len(self.columns)) % self.width] += amount
        if not bool(np.isfinite(row).all()):
            raise ValueError("x has a NaN or an infinity")
        return row


class _ScaledTogether(StackedBank):
    def votes_many(self, xs: Any, polls: Ints) -> Ints:
        return super().votes_many(xs - xs.mean(axis=0) if len(xs) else xs, polls)


class BatchScaled(Broken):
    """The rows of a batch are centred together: what the unit asks in it moves the questions of all others there."""

    bank_type = _ScaledTogether


class _ResetsTwo(Loop):
    def forget(self, who: bytes) -> int:
        copy = super().forget(who)
        self.bank.reset([(copy + 1) % self.plan.copies])
        return copy


class ResetsTwo(Broken):
    """Forgetting a person resets a second copy, too: that somebody was forgotten then moves two votes."""

    loop_type = _ResetsTwo


class TeachStopsAtTheFirst(Broken):
    """A batch of records ends at its first bad row: one person's row decides whether everybody else's is taught."""

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> None:
        for i in range(len(xs)):
            self.teach(xs[i], ys[i], None if units is None else units[i])


class LearnStopsAtTheFirst(Broken):
    """A batch of labels ends at its first bad one: one person's label decides whether everybody else's is learned."""

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        for ticket, y in zip(tickets, ys, strict=True):
            self.learn(ticket, y)
