"""Doubles that show others something private: an answer, an error, a ticket, a number that everybody sees."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.banks.base import ROW, Rounds
from confide.learners.logistic import LogisticRegression
from confide.planning.plan import Guarantee
from confide.pop.base import Answer, Unit, Xs
from confide.pop.fallback import Fallback
from confide.pop.lessons import Lesson, Lessons
from confide.pop.loop import SILENCE, Loop, Outcome, Scores
from confide.pop.settings import Settings
from confide.pop.tickets import Key, Tickets, Waiting
from confide.privacy.gate import lead
from confide.privacy.random import Random
from tests.broken.base import Broken, Compiled, Counting

__all__ = [
    "BatchRefused",
    "CopiesAsFallback",
    "ErrorsTellOfOthers",
    "EvictsByCount",
    "MajorityFallback",
    "ShowsExceptions",
    "ShowsSpending",
    "ShowsTheCount",
    "ShowsTheLastLabel",
    "ShowsTheLastLabelCompiled",
    "SilentByLabels",
    "TellsOfForgetting",
    "TicksWhereReadable",
    "Touchy",
    "WatchesReadable",
    "WatchesTheTaught",
]


# ---------------------------------------------------------------------- answers


class _LastLabel(Loop):
    def ask(self, x: Any, who: bytes | None) -> Outcome:
        outcome = super().ask(x, who)
        lessons = self.lessons
        assert isinstance(lessons, _Last)
        return outcome if outcome.error is not None else replace(outcome, label=lessons.last)


class _Last(Lessons):
    last = 0

    def add(self, copy: int, x: Any, label: int) -> None:
        super().add(copy, x, label)
        self.last = label


class ShowsTheLastLabel(Broken):
    """Every answer is the last label that anybody brought: the unit's own, to whoever asks next."""

    loop_type = _LastLabel

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.lessons = _Last(loop.bank)


class _LastLabelCompiled(Compiled):
    def run(self, rounds: Rounds) -> None:
        first = int(rounds.progress[ROW])
        super().run(rounds)
        taken = slice(first, int(rounds.progress[ROW]))
        rounds.tops[taken] = np.where(rounds.tops[taken] >= 0, self.latest, -1)


class ShowsTheLastLabelCompiled(Broken):
    """The same in the compiled loop, where the copies are sure: the last label that anybody brought."""

    bank_type = _LastLabelCompiled


class _Majority(Fallback):
    def __init__(self, given: Any, index: Mapping[Hashable, int], rng: Random, lessons: Counting) -> None:
        super().__init__(given, index, rng)
        self.lessons = lessons

    def answer(self, x: Any) -> int | ValueError:
        return int(self.lessons.tally.argmax())

    def answers(self, xs: Any) -> tuple[NDArray[np.int64], dict[int, ValueError]]:
        return np.array([self.answer(xs[i]) for i in range(len(xs))], dtype=np.int64), {}


class MajorityFallback(Broken):
    """The fallback is the label that was brought most often so far: a count of private labels, without noise."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.lessons = lessons = Counting(loop.bank)
        loop.fallback = _Majority(settings.fallback, settings.index, loop.rng.spawn(), lessons)


class _ShowsTop(Loop):
    def ask(self, x: Any, who: bytes | None) -> Outcome:
        outcome = super().ask(x, who)
        if outcome.error is not None or self.last is None:
            return outcome
        return replace(outcome, label=lead(self.last)[0])


class CopiesAsFallback(Broken):
    """Where the gate is unsure the copies' top label is shown all the same, and only said to be the fallback's."""

    loop_type = _ShowsTop


# ---------------------------------------------------------------------- errors and tickets


class Touchy(LogisticRegression):
    """A learner, sound by itself, that fails once it has learned from a large number."""

    def teach(self, arrays: Any, slot: int, seen: int, x: Any, y: int) -> None:
        if seen and abs(float(arrays["weights"][slot].ravel()[0])) > 1e3:
            raise ArithmeticError("the weights have left all bounds")
        super().teach(arrays, slot, seen, x, y)
        if abs(x[0]) > 100:
            arrays["weights"][slot] = 1e6


class _AtOnce(Lessons):
    def add(self, copy: int, x: Any, label: int) -> None:
        self._bank.learn(copy, x, label)


class ShowsExceptions(Broken):
    """An exception of the taught copy is shown to its asker: it tells of what others taught that copy."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.lessons = _AtOnce(loop.bank)


class _Tells(Loop):
    def encode(self, x: Any) -> tuple[Any, BaseException | None]:
        encoded, error = super().encode(x)
        if error is None:
            return encoded, None
        return None, ValueError(f"x cannot be read; {self.lessons.taught} labels were learned before it")


class ErrorsTellOfOthers(Broken):
    """An error quotes a number that others' data made: how many labels were taught."""

    loop_type = _Tells


class _Few(Tickets):
    def take(self, key: Key, now: int) -> Waiting:
        while len(self._open) > 6:
            self._open.pop(next(iter(self._open)))
        return super().take(key, now)


class EvictsByCount(Broken):
    """Tickets are evicted by count: whether the unit's own are still open decides whose is refused."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.tickets = _Few(loop.routing.ticket_key, loop.tickets.life)


class _Refusing(Lessons):
    gone = frozenset[int]()

    def add(self, copy: int, x: Any, label: int) -> None:
        if copy in self.gone:
            raise ValueError("this copy was reset")
        super().add(copy, x, label)


class TellsOfForgetting(Broken):
    """A copy that was reset refuses the labels of others: they see that somebody was forgotten."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.lessons = _Refusing(loop.bank)

    def forget(self, unit: Unit) -> None:
        super().forget(unit)
        loop = self.operator.loop
        lessons = loop.lessons
        assert isinstance(lessons, _Refusing)
        lessons.gone = lessons.gone | {loop.routing.copy_for(loop.routing.who(unit))}


class BatchRefused(Broken):
    """One bad row refuses a whole batch, and no round is taken: what one person sends decides others' rounds."""

    def predict_many(self, xs: Xs, units: Any = None) -> list[Answer]:
        for said in self.readable(xs).values():
            raise ValueError(said)
        return super().predict_many(xs, units)


# ---------------------------------------------------------------------- what everybody sees


class _SilentByLabels(Loop):
    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Scores) -> tuple[int, int]:
        taught = self.lessons.taught >= 2 * self.plan.silent
        return super().live(x, malformed, who, scores) if taught else SILENCE


class SilentByLabels(Broken):
    """Silence ends on a count of labels: when the others get answers tells whether the unit brought its label."""

    loop_type = _SilentByLabels


class ShowsTheCount(Broken):
    """The number of rounds that everybody sees has the private count of unsure answers in it, the unit's too."""

    @property
    def rounds(self) -> int:
        return super().rounds + self.operator.unsure


class ShowsSpending(Broken):
    """The guarantee that everybody sees is what was spent so far: it follows the private count."""

    @property
    def guarantee(self) -> Guarantee:
        promised = super().guarantee
        return replace(promised, epsilon=promised.epsilon * self.operator.unsure / self.plan.unsure)


class _WatchesReadable(Loop):
    def ask(self, x: Any, who: bytes | None) -> Outcome:
        saved = dict(self.account.watched)
        outcome = super().ask(x, who)
        if outcome.error is not None:
            self.account.watched = saved
        return outcome


class WatchesReadable(Broken):
    """The monitor counts a person's first rounds that could be read: which these are is private."""

    loop_type = _WatchesReadable


class _TicksWhereReadable(Loop):
    def ask(self, x: Any, who: bytes | None) -> Outcome:
        monitor = self.monitor
        if self.encode(x)[1] is not None:
            self.monitor = None
        try:
            return super().ask(x, who)
        finally:
            self.monitor = monitor


class TicksWhereReadable(Broken):
    """The monitor does not tick in a round that cannot be read: its noisy numbers come at other rounds then."""

    loop_type = _TicksWhereReadable


class _WatchesTheTaught(Loop):
    def learn(self, key: Key, label: int) -> Lesson:
        waiting = self.tickets.take(key, self.account.rounds)
        votes = self.bank.votes(waiting.x, np.array([waiting.copy]))
        if self.monitor is not None and waiting.counted and (not votes.any() or votes.argmax() != label):
            self.monitor.wrong(self.account.rounds - key[1])
        self.lessons.add(waiting.copy, waiting.x, label)
        return Lesson(key, waiting, label, -1)


class WatchesTheTaught(Broken):
    """The monitor counts the errors of the taught copy, not those of answers: the unit's lesson moves many of them."""

    loop_type = _WatchesTheTaught
