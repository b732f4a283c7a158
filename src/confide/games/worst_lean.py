"""The worst case of gate and lean together: one vote moves both how often answers are unsure and which label they are.

An adversary that always asks the same sees each round one of three outcomes: sure, or unsure with either label. Given
how many were unsure, the number of first labels is binomial, whatever came in which order; so the law of all counts is
that of the worst margin (`confide.games.laws`) times a binomial one. Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import binom

from confide.arrays import Floats, Ints
from confide.games.adversaries import WorstMargin
from confide.games.laws import Curve, Law, Outcomes, outcomes, shares
from confide.games.moves import BOTTOM, View
from confide.planning.plan import Plan
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean

GRAIN = 0.01
"""Log-likelihoods are told apart in steps of this, so that scores that add up are whole numbers of steps."""

MOST = 6000
"""Steps on either side beyond which they are not."""

NOTHING = 1e-18
"""What is less likely is left out of the laws."""


@dataclass(frozen=True)
class Tilt:
    """What labels of unsure answers tell of the bit: P(label 0 | unsure) at either."""

    zero: float
    one: float

    def steps(self, unsure: Ints | int, first: Ints | int) -> Ints:
        """ln(P₁/P₀) of so many first labels among so many unsure answers, in whole steps."""
        of_first, of_second = np.log(self.one / self.zero), np.log((1 - self.one) / (1 - self.zero))
        steps = np.rint((np.multiply(first, of_first) + np.subtract(unsure, first) * of_second) / GRAIN)
        return np.asarray(steps, dtype=np.int64)

    def law(self, unsure: int, bit: int) -> tuple[Ints, Floats]:
        """First labels that are likely among so many unsure answers, and how likely each is."""
        first = np.arange(unsure + 1)
        chance = binom.pmf(first, unsure, (self.zero, self.one)[bit])
        likely = chance > NOTHING
        return first[likely], chance[likely]


def _cells(steps: Ints) -> Ints:
    return np.clip(steps, -MOST, MOST) + MOST


def leaned_curve(worlds: tuple[Outcomes, Outcomes], tilt: Tilt) -> tuple[Curve, Ints, Ints]:
    """The exact curve of the score, cell by cell, and the steps of the counts alone: halted, and alive."""
    plain = np.rint(np.clip(Curve(*(law.flat for law in worlds)).scores, -60.0, 60.0) / GRAIN).astype(np.int64)
    halted, alive = plain[: worlds[0].halted.size].reshape(worlds[0].halted.shape), plain[worlds[0].halted.size :]
    laws = []
    for bit, world in enumerate(worlds):
        cells = np.zeros(2 * MOST + 1)
        for u in range(world.alive.size):
            chances = np.append(world.halted[u], world.alive[u])
            some = chances > NOTHING
            if not some.any():
                continue
            counted, at = np.append(halted[u], alive[u])[some], tilt.law(u, bit)
            steps, labels = _binned(counted, chances[some]), _binned(tilt.steps(u, at[0]), at[1])
            both = np.convolve(steps[1], labels[1])
            np.add.at(cells, _cells(steps[0] + labels[0] + np.arange(both.size)), both)
        laws.append(cells)
    return Curve(laws[0], laws[1]), halted, alive


def _binned(steps: Ints, chances: Floats) -> tuple[int, Floats]:
    """The least of these steps, and the probability of each step from there on."""
    least = int(steps.min())
    return least, np.bincount(steps - least, weights=chances).astype(np.float64)


def lean_yardstick(plan: Plan, shift: int | None = None) -> tuple[Curve, int]:
    """The best constant-query adversary against gate and lean, by total variation, and how many copies vote 1 for it.

    As `confide.games.yardstick`, with the labels of unsure answers: at bit 0 one copy more votes 1 than at bit 1.
    """
    shift = plan.unit_unsure if shift is None else shift
    tried: dict[int, Curve] = {}

    def value(ones: int) -> float:
        if ones not in tried:
            tried[ones] = _constant(plan, ones, shift)
        return tried[ones].advantage

    candidates = range(plan.copies // 2, plan.copies - 1)
    stride = max(1, len(candidates) // 8)
    enough = [ones for ones in candidates[::stride] if shares(plan, ones)[0] * plan.live > plan.unsure / 4]
    best = max(enough, key=value)
    while stride > 1:
        stride = max(1, stride // 3)
        best = max((best + i * stride for i in (-1, 0, 1) if best + i * stride in candidates), key=value)
    return tried[best], best


def _constant(plan: Plan, ones: int, shift: int) -> Curve:
    assert isinstance(plan.halting, Halting)
    worlds, tilts = [], []
    for votes, hidden in ((ones + 1, 0), (ones, shift)):
        unsure, first = shares(plan, votes)
        worlds.append(outcomes(unsure, plan.halting, hidden, plan.live - 1))
        tilts.append(first / unsure)
    return leaned_curve((worlds[0], worlds[1]), Tilt(*tilts))[0]


@dataclass(frozen=True, repr=False)
class WorstLean(WorstMargin):
    """The worst margin's play against a plan with a lean of two labels and without a guide, with the labels read too.

    Parameters
    ----------
    plan
        The plan of the POP that it plays against; the learner is `SplitVote()`, with x of two features.
    ones
        Copies asked to vote 1; by default those of `lean_yardstick`.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.plan.lean, Lean) or self.plan.guide is not None:
            raise ValueError("WorstLean plays against a lean of two labels without a guide")
        if not self.ones:
            object.__setattr__(self, "ones", lean_yardstick(self.plan)[1])
        if self.challenges != 1 or self.late or self.turned:
            raise ValueError("WorstLean has one challenge that is labelled at once, and reads no turns")
        if not 0 < self.ones < self.plan.copies:
            raise ValueError(f"ones={self.ones} must leave copies on both sides: take 1 to {self.plan.copies - 1}")

    @cached_property
    def _tilt(self) -> Tilt:
        already, told = self.ones / self.plan.copies, []  # the changed vote was 1 before with this probability
        for one, other in ((0, 1), (-1, 0)):
            pairs = [shares(self.plan, self.ones + step) for step in (one, other)]
            unsure, first = (already * a + (1 - already) * b for a, b in zip(*pairs, strict=True))
            told.append(first / unsure)
        return Tilt(*told)

    @cached_property
    def _known(self) -> tuple[Curve, Ints, Ints]:
        return leaned_curve(self.worlds, self._tilt)

    def law(self) -> Curve:
        """The exact curve of the score."""
        return self._known[0]

    def laws(self) -> tuple[Law, ...]:
        """The exact laws of `numbers`."""
        curve = self.law()
        kept = np.flatnonzero(curve.zero + curve.one > 0)
        score = Law("score", curve.scores[kept], curve.zero[kept], curve.one[kept])
        return score, *super().laws()[1:], self._labels

    @cached_property
    def _labels(self) -> Law:
        most = self.worlds[0].alive.size
        laws = np.zeros((2, most + 1))
        for bit, world in enumerate(self.worlds):
            for u, chance in enumerate((world.halted.sum(axis=1) + world.alive).tolist()):
                first, likely = self._tilt.law(u, bit) if chance > NOTHING else (np.empty(0, int), np.empty(0))
                laws[bit, first] += chance * likely
        return Law("first labels", np.arange(most + 1.0), laws[0], laws[1])

    def numbers(self, view: View) -> list[float]:
        """The score and the counts, that of first labels among unsure answers too."""
        unsure, sure = self._tally(view)
        return [self.score(view), float(unsure), float(unsure + sure), float(self._first(view))]

    def _first(self, view: View) -> int:
        live = view.answers[self.plan.silent :]
        return sum(1 for answer in live if answer is not BOTTOM and not answer.sure and answer.label == 0)

    def score(self, view: View) -> float:
        """The log-likelihood ratio of the counts; what neither world should show counts for bit 1, as far as it can."""
        (unsure, sure), (curve, halted, alive) = self._tally(view), self._known
        if unsure >= halted.shape[0] or sure >= halted.shape[1]:
            return 60.0
        steps = halted[unsure, sure] if view.halted else alive[unsure]
        cell = int(_cells(steps + self._tilt.steps(unsure, self._first(view))))
        return float(curve.scores[cell]) if curve.zero[cell] + curve.one[cell] > 0 else 60.0
