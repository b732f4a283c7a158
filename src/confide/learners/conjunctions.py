"""Conjunctions, by elimination."""

from __future__ import annotations

import numpy as np

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout
from confide.learners.classes import MOST_VARIABLES, ClassLearner, Words, bits, width


class Conjunctions(ClassLearner):
    """Conjunctions: the label is 1 where some variables are true and some others false.

    x holds the variables, true above ½. It keeps all literals that no 1 has contradicted, and answers 1 where all of
    them hold: it errs on ones only. The first mistake strikes out half of the 2n literals, every other one at least
    one: at most **n + 1 mistakes**, or **n** without negations, the Littlestone dimension then. Proof page:
    docs/proofs/learners.md.

    Parameters
    ----------
    variables
        n, the length of x.
    negations
        Whether variables may have to be false; if not, the conjunctions are monotone.

    Examples
    --------
    >>> learner = Conjunctions(variables=4)
    >>> learner.learn([1, 0, 1, 1], 1)
    >>> learner.learn([1, 0, 0, 1], 1)
    >>> learner.predict([1, 0, 1, 1]), learner.predict([1, 1, 1, 1]), learner.mistake_bound()
    (1, 0, 5)
    """

    def __init__(self, variables: int, negations: bool = True) -> None:
        self.variables = integer(variables, "variables", 1, MOST_VARIABLES)
        self.negations = bool(negations)
        super().__init__(variables)

    def memory(self) -> Layout:
        return {"gone": ((2, width(self.variables)), np.uint64)}  # literals struck out: first x_i, then not x_i

    def begin(self, arrays: Arrays) -> None:
        if not self.negations:
            arrays["gone"][0, 1] = ~np.uint64(0)

    def mistake_bound(self) -> int:
        """n + 1, or n without negations."""
        return self.variables + int(self.negations)


_gone = compiled.view(np.uint64, 2)


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    gone, there = _gone(memory, 1), bits(x)
    absent, asked, ones = _absent(x, there), 0, 0
    for slot in slots:  # no branches: in a young bank they would be taken at random
        votes, here = slot >= 0, max(slot, 0)
        wrong = (~gone[here, 0, 0] & absent[0]) | (~gone[here, 1, 0] & there[0])
        for w in range(1, there.size):
            wrong |= (~gone[here, 0, w] & absent[w]) | (~gone[here, 1, w] & there[w])
        asked += votes
        ones += votes & (wrong == 0)
    counts[0] += asked - ones
    counts[1] += ones


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    gone, there = _gone(memory, 1)[slot], bits(x)
    absent = _absent(x, there)
    for w in range(there.size if y == 1 else 0):
        gone[0, w] |= absent[w]
        gone[1, w] |= there[w]


@jit
def _absent(x: Floats, there: Words) -> Words:
    """The variables of x that are not there."""
    absent = ~there
    if x.size & 63:
        absent[-1] &= (np.uint64(1) << np.uint64(x.size & 63)) - np.uint64(1)
    return absent


Conjunctions.kernels = (_vote, _teach)
