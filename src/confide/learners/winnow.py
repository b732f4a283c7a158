"""Winnow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout
from confide.learners.classes import MOST_VARIABLES, ClassLearner

_LEAST = -1000  # the smallest power of two that is kept; one below stands for 0


class Winnow(ClassLearner):
    """Winnow: the label is 1 where at least one of a few variables is true, among many that do not matter.

    x holds the variables, true above ½. Every variable has a weight, 1 at first; the answer is 1 where the weights of
    the true ones add up to more than n/2. A missed 1 doubles these weights; a wrong 1 halves them, or takes them away.
    If at most r variables matter, with s = ⌊log₂n⌋ and n ≥ 3, it makes at most **r·s + ⌊2r·s + 4 − r·2^{s+2}/n⌋
    mistakes**, or with `eliminate` **r·s + ⌈r·s + 2 − r·2^{s+1}/n⌉ − 1**, which can be reached (after Littlestone,
    "Learning Quickly When Irrelevant Attributes Abound", 1988). Proof page: docs/proofs/learners.md.

    Parameters
    ----------
    variables
        n, the length of x.
    relevant
        r, how many variables matter at most; used for the bound alone.
    eliminate
        Take weights away instead of halving them: fewer mistakes, but one wrong label can do lasting harm.

    Examples
    --------
    >>> learner = Winnow(variables=8, relevant=1)
    >>> for _ in range(2):
    ...     learner.learn([0, 0, 1, 0, 0, 0, 0, 1], 1)
    ...     learner.learn([1, 1, 0, 1, 1, 1, 1, 1], 0)
    >>> learner.learn([0, 0, 1, 0, 0, 0, 0, 0], 1)
    >>> learner.predict([0, 0, 1, 0, 0, 0, 0, 0]), learner.predict([0, 0, 0, 0, 0, 0, 0, 1]), learner.mistake_bound()
    (1, 0, 9)
    """

    def __init__(self, variables: int, relevant: int = 1, eliminate: bool = False) -> None:
        self.variables = integer(variables, "variables", 1, MOST_VARIABLES)
        self.relevant = integer(relevant, "relevant", 1, variables)
        self.eliminate = bool(eliminate)
        super().__init__(variables)

    def memory(self) -> Layout:
        return {"power": ((self.variables,), np.int16)}  # of two

    def mistake_bound(self) -> int:
        """r·s + ⌊2r·s + 4 − r·2^{s+2}/n⌋, or r·s + ⌈r·s + 2 − r·2^{s+1}/n⌉ − 1 with `eliminate`, where s = ⌊log₂n⌋."""
        return max(self._bound(0), self._bound(self.relevant))  # fewer may matter; this counts for n ≤ 2 only

    def _bound(self, r: int) -> int:
        n, s = self.variables, self.variables.bit_length() - 1
        largest = r << s  # what the weights that matter can add up to
        if self.eliminate:
            return r * s + max(0, (n * (r * s + 2) - 2 * largest - 1) // n)
        return r * s + (n * (2 * r * s + 4) - 4 * largest) // n

    def sound(self, arrays: Arrays) -> bool:
        power = arrays["power"]
        return super().sound(arrays) and bool(((power >= _LEAST - 1) & (power <= self.variables.bit_length())).all())

    def constants(self) -> Floats:
        return np.array([self.eliminate], dtype=np.float64)


_POWERS = np.array([0.0, *(2.0**power for power in range(_LEAST, 32))])  # from the power _LEAST − 1 on
_POWERS.flags.writeable = False

_power = compiled.view(np.int16, 1)


@jit
def _answer(power: NDArray[np.int16], there: Ints) -> int:
    total = 0.0
    for i in there:
        total += _POWERS[power[i] - (_LEAST - 1)]
    return 1 if 2 * total > power.size else 0


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    power, there = _power(memory, 1), np.flatnonzero(x > 0.5)
    for slot in slots:
        if slot >= 0:
            counts[_answer(power[slot], there)] += 1


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    power, there = _power(memory, 1)[slot], np.flatnonzero(x > 0.5)
    if _answer(power, there) == y:
        return
    for i in there:
        if y == 0:
            power[i] = _LEAST - 1 if constants[0] > 0.0 else max(_LEAST, power[i] - 1)
        elif power[i] >= _LEAST:
            power[i] += 1


Winnow.kernels = (_vote, _teach)
