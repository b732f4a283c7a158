"""Points: the functions that are 1 at one place."""

from __future__ import annotations

import numpy as np

from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout
from confide.learners.classes import ClassLearner, Words


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

    def vote(self, arrays: Arrays, slots: Slots, x: Floats, counts: Ints) -> None:
        _vote(arrays["point"], slots, _inverted(x), counts)

    def teach(self, arrays: Arrays, slot: int, seen: int, x: Floats, y: int) -> None:
        if y == 1 and arrays["point"][slot] == 0:
            arrays["point"][slot] = _inverted(x)


def _inverted(x: Floats) -> np.uint64:
    inverted: np.uint64 = ~(x[:1] + 0.0).view(np.uint64)[0]  # + 0.0: there is one zero
    return inverted


@jit
def _vote(points: Words, slots: Slots, point: np.uint64, counts: Ints) -> None:
    if not points.size:
        return
    asked, ones = 0, 0
    for slot in slots:  # no branches: in a young bank they would be taken at random
        votes = slot >= 0
        asked += votes
        ones += votes & (points[max(slot, 0)] == point)
    counts[0] += asked - ones
    counts[1] += ones


_points = compiled.view(np.uint64, 0)


def _vote_compiled(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    _vote(_points(memory, 1), slots, ~(x[:1] + 0.0).view(np.uint64)[0], counts)


def _teach_compiled(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    points = _points(memory, 1)
    if y == 1 and points[slot] == 0:
        points[slot] = ~(x[:1] + 0.0).view(np.uint64)[0]


Points.kernels = (_vote_compiled, _teach_compiled)
