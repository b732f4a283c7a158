"""Exact trade-off curves: of any two discrete laws, and of the constant-query adversary with its halt.

The constant-query adversary asks where the margin is always the same. Its view then is a sequence of sure and unsure
answers that ends with the halt. With u unsure and s sure answers, each world's probability of the sequence is
p^u·(1−p)^s times what the halting table makes of the order, so (u, s, halted or not) has an exact law in each world. It
is sufficient for the sequence where the hidden rounds were equally often unsure in both worlds, and never for a view
that has turns in it: `Turned` is the whole likelihood. Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import logsumexp, xlogy
from scipy.stats import hypergeom

from confide._checks import integer
from confide.arrays import Floats
from confide.planning.plan import Plan
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.renyi import check_delta


@dataclass(frozen=True)
class Curve:
    """Two laws on the same outcomes, in the order of their likelihood ratio: everything a test can do.

    Parameters
    ----------
    zero, one
        The probabilities of each outcome at bit 0 and bit 1.

    Examples
    --------
    >>> curve = Curve(np.array([0.25, 0.75]), np.array([0.75, 0.25]))  # randomized response
    >>> round(curve.advantage, 3), round(curve.epsilon(0.1), 3), round(curve.power(0.25), 3)
    (0.5, 0.956, 0.75)
    """

    zero: Floats
    one: Floats

    @cached_property
    def scores(self) -> Floats:
        """ln(one/zero) of each outcome; ±inf where one of them is impossible, 0 where both are."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(self.one) - np.log(self.zero)
        return np.where(np.isnan(ratio), 0.0, ratio)

    @cached_property
    def corners(self) -> tuple[Floats, Floats]:
        """(false positives, true positives) of the tests "score ≥ c", c falling, from (0, 0) to (1, 1)."""
        order = np.argsort(-self.scores.ravel(), kind="stable")
        false, true = np.cumsum(self.zero.ravel()[order]), np.cumsum(self.one.ravel()[order])
        return np.concatenate([[0.0], false]), np.concatenate([[0.0], true])

    def tails(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """P(score > c) at bit 0 and at bit 1 for each threshold c."""
        law = Law("score", self.scores.ravel(), self.zero.ravel(), self.one.ravel())
        return law.tails(0, thresholds), law.tails(1, thresholds)

    @property
    def advantage(self) -> float:
        """The total variation distance: the largest true minus false positives."""
        return float(np.abs(self.one - self.zero).sum() / 2)

    def delta(self, epsilon: float) -> float:
        """The smallest δ at this ε, both ways."""
        grow = math.exp(min(epsilon, 700.0))
        return max(float(np.maximum(a - grow * b, 0).sum()) for a, b in ((self.one, self.zero), (self.zero, self.one)))

    def epsilon(self, delta: float) -> float:
        """The smallest ε at this δ, both ways: by bisection, to 10⁻⁹; +inf where no ε will do."""
        low, high = 0.0, 1.0
        if self.delta(0.0) <= check_delta(delta):
            return 0.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
            if high > 700:
                return math.inf
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def power(self, false: float) -> float:
        """The most true positives at this rate of false positives, coins allowed."""
        return float(np.interp(false, *self.corners))


@dataclass(frozen=True)
class Law:
    """The exact law of one number at both bits."""

    name: str
    values: Floats
    zero: Floats
    one: Floats

    def tails(self, bit: int, thresholds: Floats) -> Floats:
        """P(number > c) at this bit for each threshold c."""
        tails: Floats = self._above[bit][np.searchsorted(self.values[self._order], thresholds, side="right")]
        return np.clip(tails, 0.0, 1.0)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self.values, kind="stable")

    @cached_property
    def _above(self) -> tuple[Floats, Floats]:
        zero, one = (np.concatenate([np.cumsum(law[self._order][::-1])[::-1], [0.0]]) for law in (self.zero, self.one))
        return zero, one


@dataclass(frozen=True)
class Outcomes:
    """The law of what a constant-query adversary sees: by unsure answers u and sure answers s."""

    halted: Floats
    """P(halted after u unsure and s sure answers)."""
    alive: Floats
    """P(all rounds answered, u of them unsure)."""

    @property
    def flat(self) -> Floats:
        """All of it in a row: first the halted ones."""
        return np.concatenate([self.halted.ravel(), self.alive])

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """u and u + s of each of these."""
        u, s = np.indices(self.halted.shape)
        every = np.arange(self.alive.size)
        rounds = np.concatenate([(u + s).ravel(), np.full(self.alive.size, self.halted.shape[1] - 1)])
        return np.concatenate([u.ravel(), every]).astype(np.float64), rounds.astype(np.float64)


def outcomes(
    unsure: float, halting: Halting, hidden: int, rounds: int, drawn: bool = True, skipped: float = 0.0
) -> Outcomes:
    """The exact law of (u, s) when every visible round is unsure with probability `unsure`.

    Parameters
    ----------
    halting
        The halting table.
    hidden
        Unsure answers that were counted before, in hidden rounds.
    rounds
        Visible rounds at most.
    drawn
        Whether a halting draw is made before the first visible round, as after a hidden one.
    skipped
        Share of the halting draws after sure answers that are left out: 0 of the mechanism, more of a wrong one.
    """
    table, stop = halting.table, halting.stop
    rounds, levels = integer(rounds, "rounds", 1), min(stop + 1, rounds + 1)
    halted, alive = np.zeros((levels + 1, rounds + 1)), np.zeros(levels + 1)
    first = table[min(hidden, stop)] if drawn else 0.0
    halted[0, 0] = first
    arrived = np.zeros(rounds + 1)
    arrived[0] = 1.0 - first
    for u in range(levels):
        here, after = table[min(u + hidden, stop)], table[min(u + 1 + hidden, stop)]
        here *= 1 - skipped
        there = lfilter([1.0], [1.0, -(1 - unsure) * (1 - here)], arrived)  # alive with u and s, before a round
        last = rounds - u
        alive[u] = there[last]
        asked = there.copy()
        asked[last:] = 0.0
        halted[u, 1:] += asked[:-1] * (1 - unsure) * here
        halted[u + 1] += asked * unsure * after
        arrived = asked * unsure * (1 - after)
        if arrived.sum() < 1e-300:
            break
    return Outcomes(halted, alive)


def unsure_share(plan: Plan, ones: int) -> float:
    """P(unsure) in a round where `ones` of the copies vote 1 and the others 0: by gate and lean, polls included."""
    return shares(plan, ones)[0]


def shares(plan: Plan, ones: int) -> tuple[float, float]:
    """P(unsure), and P(unsure and label 0), which is 0 but for a lean of two labels. No guide has an opinion."""
    hits = np.arange(plan.polls + 1)
    weights = hypergeom.pmf(hits, plan.copies, ones, plan.polls) if plan.polls < plan.copies else hits == ones
    signed, lean = plan.polls - 2 * hits, plan.lean
    if not isinstance(lean, Lean):
        margins = np.minimum(np.abs(signed), plan.tables.gate.sure.size - 1)
        return float((weights * plan.tables.gate.table[margins]).sum()), 0.0
    row, columns = len(lean.offsets) // 2, np.clip(signed, -lean.margins, lean.margins) + lean.margins
    unsure, first = lean.unsure[row, columns], lean.first[row, columns].astype(np.float64) * 2.0**-64
    return float((weights * unsure).sum()), float((weights * unsure * first).sum())


@dataclass(frozen=True)
class Turned:
    """The exact log-likelihood ratio of everything that the worst-margin adversary sees, its own turns included.

    One copy of `copies`, at a uniform place on the circle, votes 1 at bit 0 and 0 at bit 1. A question with turn j is
    for `ones` votes: the copies at places c with (c + j) mod `copies` < `ones`. Given the place every round's law is
    known; the place is the same in all rounds, so the turns tell something, and the likelihood is a sum over places.

    Parameters
    ----------
    shares
        P(unsure) with one vote more than `ones`, with `ones`, and with one vote less.
    halting
        The halting table.
    hidden
        For each bit the probabilities of 0, 1, … unsure answers counted before, in hidden rounds.
    """

    copies: int
    ones: int
    shares: tuple[float, float, float]
    halting: Halting
    hidden: tuple[tuple[float, ...], tuple[float, ...]]

    @classmethod
    def of(cls, plan: Plan, ones: int, hidden: tuple[tuple[float, ...], tuple[float, ...]]) -> Self:
        """For a plan with a halting table."""
        if not isinstance(plan.halting, Halting):
            raise ValueError("the exact law needs a halting table: the paper's plan has a noisy counter instead")
        more, same, fewer = (unsure_share(plan, ones + change) for change in (1, 0, -1))
        return cls(plan.copies, ones, (more, same, fewer), plan.halting, hidden)

    def score(self, turns: NDArray[np.int64], unsure: NDArray[np.bool_], halted: bool) -> float:
        """ln(P₁/P₀) of the rounds with these turns and outcomes, in order, and of the halt after the last or not."""
        turns, unsure = np.asarray(turns, dtype=np.int64), np.asarray(unsure, dtype=np.bool_)
        inside = [self._inside(turns[kind]) for kind in (unsure, ~unsure)]
        totals = int(unsure.sum()), int((~unsure).sum())
        more, same, fewer = self.shares
        logs = []
        for bit, (here, elsewhere) in enumerate(((same, more), (fewer, same))):
            path = self._path(np.cumsum(unsure), halted, self.hidden[bit])
            places = np.zeros(self.copies)
            for held, total, p, q in zip(inside, totals, (here, 1 - here), (elsewhere, 1 - elsewhere), strict=True):
                places += xlogy(held, p) + xlogy(total - held, q)
            logs.append(path + float(logsumexp(places)))
        return 0.0 if logs[1] == logs[0] else logs[1] - logs[0]  # both −inf: what neither world shows says nothing

    def _inside(self, turns: NDArray[np.int64]) -> Floats:
        """For every place c: in how many of these rounds (c + turn) mod `copies` < `ones`."""
        counts = np.bincount(turns, minlength=self.copies)
        sums = np.concatenate([[0], np.cumsum(np.tile(counts, 2))])
        start = (-np.arange(self.copies)) % self.copies
        return np.asarray(sums[start + self.ones] - sums[start], dtype=np.float64)

    def _path(self, counts: NDArray[np.int64], halted: bool, weights: tuple[float, ...]) -> float:
        """ln of what the halting table makes of the counts after each round, a draw before the first included."""
        logs = []
        for before, weight in enumerate(weights):
            levels = np.minimum(np.concatenate([[0], counts]) + before, self.halting.stop)
            stops = self.halting.table[levels]
            factors = 1 - stops
            if halted:
                factors[-1] = stops[-1]
            with np.errstate(divide="ignore"):
                logs.append(np.log(weight) + np.log(factors).sum())
        return float(logsumexp(logs))


def constant_query(plan: Plan, fewer: int, more: int, shift: int = 0, rounds: int | None = None) -> Curve:
    """The exact curve between a constant query with `more` copies for the winner (bit 0) and one with `fewer` (bit 1).

    Parameters
    ----------
    shift
        Unsure answers that hidden rounds add in the second world.
    rounds
        Visible live rounds; by default the plan's, less one for the challenge.
    """
    if not isinstance(plan.halting, Halting):
        raise ValueError("the exact law needs a halting table: the paper's plan has a noisy counter instead")
    rounds = plan.rounds - plan.silent - 1 if rounds is None else rounds
    zero = outcomes(unsure_share(plan, more), plan.halting, 0, rounds)
    one = outcomes(unsure_share(plan, fewer), plan.halting, shift, rounds)
    return Curve(zero.flat, one.flat)


def yardstick(plan: Plan, shift: int | None = None, step: int = 1) -> tuple[Curve, int]:
    """The best constant-query adversary against this plan, by total variation, and how many copies it splits off.

    `shift` is what hidden unsure answers add to the count at bit 1: as many as the plan hides, unless given. Returns
    the exact curve and s, the copies for the winning label at bit 1; at bit 0 there are s + `step`.
    """
    shift = plan.unit_unsure if shift is None else shift
    half = plan.copies // 2 + 2
    candidates = range(half, plan.copies - step + 1)
    tried: dict[int, float] = {}

    def value(ones: int) -> float:
        if ones not in tried:
            p = unsure_share(plan, ones)
            enough = p * (plan.rounds - plan.silent) > plan.unsure / 4
            tried[ones] = constant_query(plan, ones, ones + step, shift).advantage if enough else 0.0
        return tried[ones]

    stride = max(1, len(candidates) // 12)
    best = max(candidates[::stride], key=value)
    while stride > 1:
        stride = max(1, stride // 3)
        near = [best + i * stride for i in range(-2, 3) if best + i * stride in candidates]
        best = max(near, key=value)
    return constant_query(plan, best, best + step, shift), best
