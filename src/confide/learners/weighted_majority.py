"""The weighted majority of a finite class."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide._checks import integer, probability
from confide.arrays import Ints
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout
from confide.learners.classes import FiniteLearner, Words
from confide.learners.theory.littlestone import FiniteClass

BETA = math.exp(-1)


def majority_bound(beta: float, opt: int, log_experts: float) -> int:
    """⌊(opt·ln(1/β) + ln N)/ln(2/(1+β))⌋, rounded up where it is an integer but for rounding."""
    opt = integer(opt, "opt", 0)
    return math.floor((opt * -math.log(beta) + log_experts) / math.log(2 / (1 + beta)) * (1 + 1e-9) + 1e-9)


class WeightedMajority(FiniteLearner):
    """Weighted majority: answers what the heavier half of the hypotheses says; each weighs β for every error it made.

    Nothing is drawn. On *any* sequence, if the best of N hypotheses errs OPT times, it makes at most
    **(OPT·ln(1/β) + ln N)/ln(2/(1+β)) mistakes**; with β = 1/e that is 2.633·(OPT + ln N), and no other β has a
    smaller factor for both (after Littlestone and Warmuth, "The Weighted Majority Algorithm", 1994). Proof page:
    docs/proofs/learners.md.

    Parameters
    ----------
    H
        The class: one row for each hypothesis, one column for each point, of 0 and 1.
    beta
        β, what an error multiplies a weight by: strictly between 0 and 1.

    Examples
    --------
    >>> learner = WeightedMajority(np.tri(8, 7, -1))
    >>> for point, label in [(5, 0), (5, 1), (5, 0)]:  # no hypothesis agrees
    ...     learner.learn([point], label)
    >>> learner.predict([5]), learner.mistake_bound(), learner.mistake_bound(opt=1)
    (0, 5, 8)
    """

    def __init__(self, H: ArrayLike | FiniteClass, beta: float = BETA) -> None:
        self.beta = probability(beta, "beta")
        super().__init__(H)

    def knowledge(self) -> Layout:
        return {"errors": ((self.H.hypotheses,), np.int64)}

    def mistake_bound(self, opt: int = 0) -> int:
        """The most mistakes on a sequence where the best hypothesis makes `opt`."""
        return majority_bound(self.beta, opt, math.log(self.H.hypotheses))

    def begin(self, arrays: Arrays) -> None:
        _answer(arrays["errors"][0], self.H.table, self.beta, arrays["answers"][0])

    def update(self, arrays: Arrays, slot: int, seen: int, point: int, y: int) -> None:
        errors = arrays["errors"][slot]
        errors += self.H.table[:, point] != y
        _answer(errors, self.H.table, self.beta, arrays["answers"][slot])

    def sound(self, arrays: Arrays) -> bool:
        return super().sound(arrays) and bool((arrays["errors"] >= 0).all())


@jit
def _answer(errors: Ints, table: NDArray[np.uint8], beta: float, answers: Words) -> None:
    least, total = errors.min(), 0.0
    ones = np.zeros(table.shape[1])
    for h in range(table.shape[0]):
        weight = beta ** (errors[h] - least)
        total += weight
        for x in range(table.shape[1]):
            ones[x] += weight * table[h, x]
    answers[:] = 0
    for x in range(table.shape[1]):
        if 2.0 * ones[x] > total:
            answers[x >> 6] |= np.uint64(1) << np.uint64(x & 63)
