"""Intervals, by bisection at both ends."""

from __future__ import annotations

import numpy as np

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout
from confide.learners.classes import ClassLearner
from confide.learners.thresholds import place_of


class Intervals(ClassLearner):
    """Intervals: x is one number, and the label is 1 from some whole number a on and below b, 0 ≤ a ≤ b ≤ points.

    It answers 0 until it is told a 1, at p: then a ≤ p < b, and each end is a threshold of its own. It answers what
    most of the ends say that are left, so every later mistake leaves at most half of the ends on its side: at most
    **1 + the largest ⌊log₂(p + 1)⌋ + ⌊log₂(points − p)⌋ mistakes**. Proof page: docs/proofs/learners.md.

    Parameters
    ----------
    points
        How many points there are to tell apart.

    Examples
    --------
    >>> learner = Intervals(points=100)
    >>> learner.predict([50])
    0
    >>> learner.learn([50], 1)
    >>> learner.learn([40], 0)
    >>> [learner.predict([x]) for x in (44, 46, 74, 76)], learner.mistake_bound()
    ([0, 1, 1, 0], 12)
    """

    def __init__(self, points: int) -> None:
        self.points = integer(points, "points", 1, 1 << 52)
        super().__init__(1)

    def memory(self) -> Layout:
        return {"ends": ((4,), np.int64)}  # the least and the largest a and b that are left; zeros before the first 1

    def mistake_bound(self) -> int:
        """1 + max over p of ⌊log₂(p + 1)⌋ + ⌊log₂(points − p)⌋: it is largest where p + 1 is a power of two."""
        n = self.points
        return 1 + max(i + (n + 1 - (1 << i)).bit_length() - 1 for i in range(n.bit_length()))

    def sound(self, arrays: Arrays) -> bool:
        return super().sound(arrays) and sound_ends(arrays["ends"], self.points)

    def constants(self) -> Floats:
        return np.array([self.points], dtype=np.float64)


def sound_ends(ends: Ints, points: int) -> bool:
    """Whether these are ends that labels may leave, or zeros."""
    known = ends[ends[:, 3] > 0]
    first, last, least, most = known.T
    within = (first >= 0) & (first <= last) & (last < least) & (least <= most) & (most <= points)
    return bool(within.all()) and not ends[ends[:, 3] <= 0].any()


@jit
def teach_ends(ends: Ints, place: int, points: int, y: int) -> None:
    """Rule out the ends that disagree, unless none would be left."""
    if place < 0 or place >= points:
        return
    if ends[3] == 0:
        if y == 1:
            ends[0], ends[1], ends[2], ends[3] = 0, place, place + 1, points
    elif y == 1:
        if ends[0] <= place < ends[1]:
            ends[1] = place
        elif ends[2] <= place < ends[3]:
            ends[2] = place + 1
    elif place < ends[1]:
        ends[0] = max(ends[0], place + 1)
    elif place >= ends[2]:
        ends[3] = min(ends[3], place)


_ends = compiled.view(np.int64, 1)


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    ends, place, asked, ones = _ends(memory, 1), place_of(x, int(constants[0])), 0, 0
    for slot in slots:
        votes, here = slot >= 0, max(slot, 0)
        asked += votes
        first, end = (ends[here, 0] + ends[here, 1] + 1) >> 1, (ends[here, 2] + ends[here, 3]) >> 1
        ones += votes & (first <= place) & (place < end)
    counts[0] += asked - ones
    counts[1] += ones


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    points = int(constants[0])
    teach_ends(_ends(memory, 1)[slot], place_of(x, points), points, y)


Intervals.kernels = (_vote, _teach)
