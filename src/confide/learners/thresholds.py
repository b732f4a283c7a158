"""Thresholds, by bisection."""

from __future__ import annotations

import numpy as np

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout
from confide.learners.classes import ClassLearner


class Thresholds(ClassLearner):
    """Thresholds: x is one number, and the label is 1 from some whole number a on, 0 ≤ a ≤ points.

    It answers what most of the thresholds say that are left, so every mistake leaves at most half of them: at most
    **⌊log₂(points + 1)⌋ mistakes**, the Littlestone dimension of thresholds on x = 0 … points − 1. Any other x may be
    asked too. Proof page: docs/proofs/learners.md.

    Parameters
    ----------
    points
        How many points there are to tell apart.

    Examples
    --------
    >>> learner = Thresholds(points=1023)
    >>> learner.learn([300], 0)
    >>> learner.learn([400], 1)
    >>> learner.predict([349]), learner.predict([351]), learner.mistake_bound()
    (0, 1, 10)
    """

    def __init__(self, points: int) -> None:
        self.points = integer(points, "points", 1, 1 << 52)
        super().__init__(1)

    def memory(self) -> Layout:
        return {"cut": ((2,), np.int64)}  # how many thresholds are ruled out at the lower and at the upper end

    def mistake_bound(self) -> int:
        """⌊log₂(points + 1)⌋."""
        return (self.points + 1).bit_length() - 1

    def sound(self, arrays: Arrays) -> bool:
        cut = arrays["cut"]
        within = (cut >= 0).all() and (cut <= self.points).all() and (cut.sum(axis=1) <= self.points).all()
        return super().sound(arrays) and bool(within)

    def constants(self) -> Floats:
        return np.array([self.points], dtype=np.float64)


@jit
def place_of(x: Floats, points: int) -> int:
    """The number of the point that x belongs to, which is the largest threshold at which x has label 1; −1 below all.

    From `points` on x lies above all of them.
    """
    return int(min(max(x[0], -1.0), float(points)) // 1.0)


@jit
def teach_cut(cut: Ints, place: int, points: int, y: int) -> None:
    """Rule out the thresholds that disagree, unless none would be left."""
    low, high = cut[0], points - cut[1]  # the least and the largest that are left
    if y == 1 and place >= low:
        cut[1] = points - min(high, place)
    elif y == 0 and place < high:
        cut[0] = max(low, place + 1)


_cuts = compiled.view(np.int64, 1)


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    cut, points, asked, ones = _cuts(memory, 1), int(constants[0]), 0, 0
    twice = 2 * place_of(x, points) + 1 - points  # above low + high − points, most of what is left says 1
    for slot in slots:  # no branches: in a young bank they would be taken at random
        votes, here = slot >= 0, max(slot, 0)
        asked += votes
        ones += votes & (twice > cut[here, 0] - cut[here, 1])
    counts[0] += asked - ones
    counts[1] += ones


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    points = int(constants[0])
    teach_cut(_cuts(memory, 1)[slot], place_of(x, points), points, y)


Thresholds.kernels = (_vote, _teach)
