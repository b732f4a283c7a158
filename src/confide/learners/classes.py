"""What the learners of a known class share: two labels, a vote from the first round on, and a mistake bound.

An abstention counts as an error in the certificate, so these learners do not wait for their first label: a copy that
was taught nothing votes with the hypothesis that its class starts from. A label that no function of the class can give
any more is not learned.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from confide.arrays import Floats, Ints, Slots, Words
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout, Stacked, vector
from confide.learners.theory.littlestone import FiniteClass

__all__ = ["MOST_VARIABLES", "ClassLearner", "FiniteLearner", "VersionSpace", "Words", "bits", "width"]

MOST_VARIABLES = 1 << 14


class ClassLearner(Stacked):
    """Base of the learners of a known class of functions with labels 0 and 1."""

    def __init__(self, features: int) -> None:
        super().__init__(2, 1, None)
        self.warmup = 0
        self._features = features
        self._arrays = self.allocate(features, 1)
        self.begin(self._arrays)

    @abstractmethod
    def memory(self) -> Layout:
        """Shape and type of each array of one slot."""

    @abstractmethod
    def mistake_bound(self) -> int:
        """The most mistakes on any sequence that the class can label without error."""

    def begin(self, arrays: Arrays) -> None:
        """Make the one slot of `arrays`, which are zeros, that of a learner which has learned nothing."""
        return

    def layout(self, features: int) -> Layout:
        if features != self._features:
            raise ValueError(f"{type(self).__name__} takes an x of length {self._features}")
        return self.memory()

    def clone(self, **changes: Any) -> Self:
        """A fresh learner with the same parameters but for `changes`; there are always two labels."""
        if changes.pop("labels", 2) != 2:
            raise ValueError(f"{type(self).__name__} learns functions with two labels, 0 and 1")
        return super().clone(**changes)


class FiniteLearner(ClassLearner):
    """Base of the learners of a finite class. x is the number of a point, as an array of length one.

    What a copy would answer on every point is worked out when it is taught, so a vote reads one bit. Where x is no
    point of the class, a bank's copies abstain, and a learner by itself raises ValueError.
    """

    H: FiniteClass

    def __init__(self, H: ArrayLike | FiniteClass) -> None:
        self.H = H if isinstance(H, FiniteClass) else FiniteClass(H)
        super().__init__(1)

    @abstractmethod
    def knowledge(self) -> Layout:
        """Shape and type of each array of one slot, besides its answers."""

    @abstractmethod
    def update(self, arrays: Arrays, slot: int, seen: int, point: int, y: int) -> None:
        """Teach one slot, and work out its answers."""

    def memory(self) -> Layout:
        return {"answers": ((width(self.H.points),), np.uint64), **self.knowledge()}

    def vote(self, arrays: Arrays, slots: Slots, x: Floats, counts: Ints) -> None:
        if (point := self._point(x)) is not None:
            _vote(arrays["answers"], slots, point, counts)

    def teach(self, arrays: Arrays, slot: int, seen: int, x: Floats, y: int) -> None:
        self.update(arrays, slot, seen, self._known(x), y)

    def predict(self, x: Any, /) -> int | None:
        """The label of the point x."""
        self._known(vector(x, 1))
        return super().predict(x)

    def _point(self, x: Floats) -> int | None:
        value = float(x[0])
        return int(value) if value.is_integer() and 0 <= value < self.H.points else None

    def _known(self, x: Floats) -> int:
        point = self._point(x)
        if point is None:
            raise ValueError(f"x must be the number of a point, a whole number from 0 to {self.H.points - 1}")
        return point


class VersionSpace(FiniteLearner):
    """Base of the learners that remember which hypotheses have never been wrong."""

    @abstractmethod
    def answers(self, alive: Words) -> Words:
        """A bit for each point: what is answered while the hypotheses in `alive` are left."""

    def knowledge(self) -> Layout:
        return {"dead": ((width(self.H.hypotheses),), np.uint64)}

    def begin(self, arrays: Arrays) -> None:
        arrays["answers"][0] = self.answers(self.H.everyone)

    def update(self, arrays: Arrays, slot: int, seen: int, point: int, y: int) -> None:
        before = self.H.everyone & ~arrays["dead"][slot]
        alive = self.H.restrict(before, point, y)
        if alive.any() and (alive != before).any():
            arrays["dead"][slot] = self.H.everyone & ~alive
            arrays["answers"][slot] = self.answers(alive)

    def sound(self, arrays: Arrays) -> bool:
        alive = self.H.everyone & ~arrays["dead"]
        within = (self.H.everyone & arrays["dead"]) == arrays["dead"]
        return super().sound(arrays) and bool(alive.any(axis=1).all() and within.all())


def width(number: int) -> int:
    """The words that hold so many bits."""
    return -(-number // 64)


@jit
def bits(x: Floats) -> Words:
    """Which entries of `x` are there, that is above ½: a bit each."""
    words = np.zeros((x.size + 63) >> 6, np.uint64)
    for i in range(x.size):
        if x[i] > 0.5:
            words[i >> 6] |= np.uint64(1) << np.uint64(i & 63)
    return words


@jit
def _vote(answers: Words, slots: Slots, point: int, counts: Ints) -> None:
    word, bit = point >> 6, np.uint64(point & 63)
    if not answers.size:
        return
    asked, ones = 0, 0
    for slot in slots:  # no branches: in a young bank they would be taken at random
        votes = slot >= 0
        asked += votes
        ones += votes & ((answers[max(slot, 0), word] >> bit) & np.uint64(1) == 1)
    counts[0] += asked - ones
    counts[1] += ones
