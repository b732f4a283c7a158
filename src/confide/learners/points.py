"""Points: the functions that are 1 at one place."""

from __future__ import annotations

import numpy as np

from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Layout
from confide.learners.classes import ClassLearner


class Points(ClassLearner):
    """Points: x is one number, and the label is 1 for one number only.

    It answers 0 until it is told a 1, and then knows everything: at most **1 mistake**, which is the Littlestone
    dimension of points on any domain of two or more. Proof page: docs/proofs/learners.md.

    Examples
    --------
    >>> learner = Points()
    >>> learner.predict([7])
    0
    >>> learner.learn([7], 1)
    >>> learner.predict([7]), learner.predict([8]), learner.mistake_bound()
    (1, 0, 1)
    """

    def __init__(self) -> None:
        super().__init__(1)

    def memory(self) -> Layout:
        # The bits of the point as a double, inverted: 0 then stands for a NaN, which is no point.
        return {"point": ((), np.uint64)}

    def mistake_bound(self) -> int:
        """1."""
        return 1


_points = compiled.view(np.uint64, 0)


@jit
def _inverted(x: Floats) -> np.uint64:
    inverted: np.uint64 = ~(x[:1] + 0.0).view(np.uint64)[0]  # + 0.0: there is one zero
    return inverted


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    points, point, asked, ones = _points(memory, 1), _inverted(x), 0, 0
    for slot in slots:  # no branches: in a young bank they would be taken at random
        votes = slot >= 0
        asked += votes
        ones += votes & (points[max(slot, 0)] == point)
    counts[0] += asked - ones
    counts[1] += ones


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    points = _points(memory, 1)
    if y == 1 and points[slot] == 0:
        points[slot] = _inverted(x)


Points.kernels = (_vote, _teach)
