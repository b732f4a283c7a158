"""What all doubles are made of: a POP with another loop, another bank, or other parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.arrays import Ints
from confide.banks.base import Bank
from confide.banks.stacked import StackedBank
from confide.guide.guide import Guide
from confide.guide.leaves import Leaves
from confide.planning.guided import GuidePlan
from confide.pop.base import COPIES, LEAN
from confide.pop.guiding import Guiding
from confide.pop.lessons import Lessons
from confide.pop.loop import SILENCE, Loop, Scores
from confide.pop.pop import POP
from confide.pop.settings import Settings
from confide.privacy.gate import is_sure, lead
from confide.privacy.halting import Halting, goes_on
from confide.privacy.random import Random

__all__ = ["Broken", "Compiled", "Counting", "OpenLoop", "WithGuide"]


class Broken(POP):
    """A POP to be broken: by `loop_type`, by `bank_type`, or by `spoil`, which puts in parts of its own."""

    bank_type: type[StackedBank] | None = None

    def _make_loop(self, settings: Settings, rng: Random, bank: Bank | None) -> Loop:
        plan, kind = settings.plan, self.bank_type
        if bank is None and kind is not None:
            bank = kind(
                settings.learner, plan.copies, plan.labels, settings.features, settings.public_start, rng.spawn()
            )
        loop = super()._make_loop(settings, rng, bank)
        self.spoil(loop, settings)
        return loop

    def spoil(self, loop: Loop, settings: Settings) -> None:
        """Put broken parts into a fresh loop."""


class _Leaving(Guide):
    """A guide with leaves of its own kind."""

    leaves_type: type[Leaves] = Leaves

    def __init__(self, plan: GuidePlan, features: Any, *args: Any, **named: Any) -> None:
        super().__init__(plan, features, *args, **named)
        self._leaves.__class__ = self.leaves_type  # the noise that was drawn ahead stays drawn once

    def _found(self, row: Ints) -> None:
        super()._found(row)
        self._leaves.__class__ = self.leaves_type


class WithGuide(Broken):
    """A POP whose guide is broken: as it stands in the loop (`guiding`), by itself (`guide`), or in its `leaves`."""

    guiding_type: type[Guiding] = Guiding

    def __init_subclass__(
        cls,
        guiding: type[Guiding] = Guiding,
        guide: type[Guide] | None = None,
        leaves: type[Leaves] | None = None,
        **more: Any,
    ) -> None:
        super().__init_subclass__(**more)
        if leaves is not None:
            guide = type("_OfLeaves", (_Leaving,), {"leaves_type": leaves})
        cls.guiding_type = guiding if guide is None else type("_OfGuide", (guiding,), {"guide_type": guide})

    def spoil(self, loop: Loop, settings: Settings) -> None:
        plan = settings.plan.guide
        assert plan is not None
        inputs, weights = settings.inputs, settings.label_weights
        loop.parts.swap(self.guiding_type(plan, inputs, weights, loop.rng.spawn(), loop.account))


class OpenLoop(Loop):
    """A live round as it should be, with its decisions laid open for doubles to take them otherwise."""

    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Scores) -> tuple[int, int]:
        plan, account, leaning = self.plan, self.account, self.leaning
        assert leaning is not None
        poll = self.poll()
        counts = np.zeros(plan.labels, dtype=np.int64) if malformed else self.votes(x, poll)
        top, margin = lead(counts)
        word = self.gate_word(margin)
        lean_word = 0 if plan.lean is None else self.rng.word()
        offsets = leaning.offsets(None if scores is None else scores[None, :])[0]
        decided = leaning.decide(counts, word, lean_word, offsets)
        leaned = leaning.decide(self.lean_counts(x, counts), word, lean_word, offsets).leaned
        sure, capped = self.sure(word, margin) if plan.lean is None else decided.sure, account.capped(who)
        halting_word = self.rng.word() if self.draws(malformed, capped, sure) else 0
        self.last = counts
        account.spend(who, self.counts(malformed, capped, sure), halting_word)
        halting = plan.halting
        if isinstance(halting, Halting) and not goes_on(np.uint64(halting_word), halting.go, self.count()):
            account.halted = "budget"
        if sure:
            return (top, COPIES) if not (malformed or capped) else SILENCE
        return (leaned, LEAN) if self.leans(malformed, capped) else SILENCE

    def lean_counts(self, x: Any, counts: Ints) -> Ints:
        """The votes that the lean looks at."""
        return counts

    def leans(self, malformed: bool, capped: bool) -> bool:
        """Whether the lean may answer."""
        return not (malformed or capped)

    def gate_word(self, margin: int) -> int:
        """The gate's word."""
        return self.rng.word()

    def sure(self, word: int, margin: int) -> bool:
        """What the gate says."""
        return bool(is_sure(np.uint64(word), self.plan.tables.gate.sure, margin))

    def draws(self, malformed: bool, capped: bool, sure: bool) -> bool:
        """Whether there is a halting draw."""
        return True

    def counts(self, malformed: bool, capped: bool, sure: bool) -> bool:
        """Whether the round adds to the count."""
        return not (sure or malformed or capped)

    def count(self) -> int:
        """The count that the halting draw is made at."""
        return self.account.unsure


class Compiled(StackedBank):
    """A stacked bank whose compiled rounds are to be broken: `run` of a subclass does something else besides."""

    lessons = 0
    """Labels taught: private."""
    latest = 0
    """The last label taught: private."""

    @property
    def fuses(self) -> bool:
        return self._learner.compiled() is not None

    def learn(self, copy: int, x: Any, y: int) -> None:
        super().learn(copy, x, y)
        self.lessons, self.latest = self.lessons + 1, y

    def learn_many(self, copies: Ints, xs: Any, ys: Ints) -> int:
        self.lessons += ys.size
        self.latest = int(ys[-1]) if ys.size else self.latest
        return super().learn_many(copies, xs, ys)


class Counting(Lessons):
    """Lessons that keep a count of each label taught: private."""

    def __init__(self, bank: Bank) -> None:
        super().__init__(bank)
        self.tally = np.zeros(bank.labels, dtype=np.int64)

    def add(self, copy: int, x: Any, label: int) -> None:
        super().add(copy, x, label)
        self.tally[label] += 1
