"""A person who spreads labels over epochs, and over successors: an exact law for all that is ever released.

Nobody else brings a label. So every noisy sum lies around what the person's own labels make of it, at bit 0 or bit 1,
and how far these two are apart is known before its noise is drawn, whatever the person does with what they have seen.
The log-likelihood ratio of everything, with normal noise for what of the budget B was not moved, is then normal: its
variance is B, and its mean −B/2 or B/2. Proof pages: docs/proofs/exact.md (step 1), docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from confide.guide.guide import Guide, Release
from confide.pop.pop import POP

__all__ = ["Verdict", "Witness", "law_of"]

Ints = NDArray[np.int64]


class Witness:
    """What everybody sees of the guides that one person teaches, and what the person knows of their own part in it.

    Parameters
    ----------
    bit
        The label that the person brings, always.
    budget
        B: by how much the person may move all of it, in squared deviations.
    """

    def __init__(self, bit: int, budget: float) -> None:
        self.bit, self.budget = bit, budget
        self.ratio = 0.0
        """The log-likelihood ratio of bit 1 against bit 0, of all that was released."""
        self.moved = 0.0
        """By how much the two bits move it, in squared deviations."""
        self.taught = 0
        """Labels that were learned."""
        self.seen: list[tuple[str, int, int]] = []
        """What was released (kind, number), and after how many rounds: the same at both bits."""
        self.fault = ""
        self._open: list[Ints] | None = None  # what the person's label adds to the open leaf, at either bit
        self._sums: list[list[Ints]] = [[], []]  # … and to the closed leaves of the epoch

    def meet(self, pop: POP) -> None:
        """Listen to the guide of a POP from now on, and to no earlier one."""
        guide, self._open, self._sums = _guide(pop), None, [[], []]
        hear = guide.store

        def listen(release: Release) -> None:
            if hear is not None:
                hear(release)
            self._see(guide, release)

        guide.store = listen

    def teach(self, pop: POP, x: Sequence[float], name: str = "ann") -> None:
        """Ask x, and bring its label, once a leaf; what either label would add follows from what was released."""
        guide, ticket = _guide(pop), pop.predict(x, name).ticket
        self._open = [guide.lesson(guide.encode(x), label) for label in (0, 1)]
        pop.learn(ticket, self.bit)

    def _see(self, guide: Guide, release: Release) -> None:
        self.seen.append((release.kind, release.number, guide.rounds))
        if release.kind != "node":
            return
        plan, mine = guide.plan, self._open if release.exact.any() else None  # else its cap was reached
        leaf, nothing = release.number % plan.leaves, np.zeros_like(release.exact)
        if not np.array_equal(release.exact, nothing if mine is None else mine[self.bit]):
            self.fault = self.fault or "a sum holds something else than the one label that was brought"
        self.taught += mine is not None
        for b in (0, 1):
            self._sums[b] = [*(self._sums[b] if leaf else ()), nothing if mine is None else mine[b]]
        self._open = None
        zero, one = (plan.root.matrix[leaf, : leaf + 1] @ np.array(self._sums[b]) for b in (0, 1))
        apart = (one - zero).astype(np.float64)
        self.moved += float(apart @ apart) / plan.sigma2
        self.ratio += float(apart @ (release.row - (zero + one) / 2)) / plan.sigma2

    def deviate(self, coins: np.random.Generator) -> float:
        """How far the ratio is from its mean, in deviations: standard normal, at either bit."""
        if self.moved > self.budget * (1 + 1e-9):
            self.fault = self.fault or "the person moved more than the promise allows"
        left, sign = max(0.0, self.budget - self.moved), 2 * self.bit - 1
        whole = self.ratio + sign * left / 2 + math.sqrt(left) * coins.standard_normal()
        return (whole - sign * self.budget / 2) / math.sqrt(self.budget)


class Verdict(NamedTuple):
    """What many lives say of a mechanism."""

    fault: str
    """What is wrong; empty where nothing is."""
    games: int
    moved: float
    """The most that anybody moved, as a part of the budget."""


def law_of(lives: Sequence[Witness], coins: np.random.Generator, alarm: float = 1e-6) -> Verdict:
    """Whether lives of both bits have the law that the promise says; a right mechanism fails in one of 1/`alarm`."""
    z = np.array([life.deviate(coins) for life in lives])
    fault = next((life.fault for life in lives if life.fault), "")
    if not fault and len({tuple(life.seen) for life in lives}) != 1:
        fault = "when something is released depends on what was learned"
    squares, total = float(z @ z), float(z.sum())
    tails = [2 * min(chi2.cdf(squares, z.size), chi2.sf(squares, z.size)), 2 * norm.sf(abs(total) / math.sqrt(z.size))]
    if not fault and 2 * min(tails) < alarm:
        fault = "the noise in what was released is not the noise that was promised"
    return Verdict(fault, len(lives), max(life.moved / life.budget for life in lives))


def _guide(pop: POP) -> Guide:
    guiding = pop.operator.loop.guiding
    if guiding is None:
        raise ValueError("a witness watches a guide, and this POP has none")
    return guiding.guide
