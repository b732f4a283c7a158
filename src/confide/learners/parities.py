"""Parities, by elimination over GF(2)."""

from __future__ import annotations

import numpy as np

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Layout
from confide.learners.classes import ClassLearner, Words, bits, width


class Parities(ClassLearner):
    """Parities: the label says whether an odd number of certain variables is true.

    x holds the variables, true above ½. Every label is a linear equation over GF(2) for the set of variables that
    count. It answers with one solution of all equations so far, so a mistake is an equation that does not follow from
    the others: at most **n mistakes**, the Littlestone dimension. Proof page: docs/proofs/learners.md.

    Parameters
    ----------
    variables
        n, the length of x. A copy's memory grows with n².

    Examples
    --------
    >>> learner = Parities(variables=3)
    >>> learner.learn([1, 1, 0], 1)
    >>> learner.learn([0, 1, 1], 0)
    >>> learner.predict([1, 0, 1]), learner.mistake_bound()
    (1, 3)
    """

    def __init__(self, variables: int) -> None:
        self.variables = integer(variables, "variables", 1, 1 << 10)
        super().__init__(variables)

    def memory(self) -> Layout:
        words = width(self.variables)
        return {
            "parity": ((words,), np.uint64),  # the solution: free variables do not count, so it is the right-hand sides
            "rows": ((self.variables, words), np.uint64),  # reduced: row i is 0, or the one equation with variable i
        }

    def mistake_bound(self) -> int:
        """n."""
        return self.variables


_parity, _rows = compiled.view(np.uint64, 1), compiled.view(np.uint64, 2)


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    parity, there, asked, ones = _parity(memory, 1), bits(x), 0, 0
    for slot in slots:  # no branches: in a young bank they would be taken at random
        votes, here = slot >= 0, max(slot, 0)
        word = parity[here, 0] & there[0]
        for w in range(1, there.size):
            word ^= parity[here, w] & there[w]
        word ^= word >> np.uint64(32)
        word ^= word >> np.uint64(16)
        word ^= word >> np.uint64(8)
        word ^= word >> np.uint64(4)
        odd = (0x6996 >> int(np.int64(word & np.uint64(15)))) & 1  # bit i: is the number of ones in i odd
        asked += votes
        ones += votes & (odd == 1)
    counts[0] += asked - ones
    counts[1] += ones


@jit
def _has(row: Words, i: int) -> bool:
    return bool((row[i >> 6] >> np.uint64(i & 63)) & np.uint64(1) == 1)


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    parity, rows, there = _parity(memory, 1)[slot], _rows(memory, 2)[slot], bits(x)
    n, side = rows.shape[0], y == 1
    for i in range(n):
        if _has(there, i) and _has(rows[i], i):
            for w in range(there.size):
                there[w] ^= rows[i, w]
            side ^= _has(parity, i)
    pivot = 0
    while pivot < n and not _has(there, pivot):
        pivot += 1
    if pivot == n:  # it follows from what is known, or contradicts it
        return
    for w in range(there.size):
        rows[pivot, w] = there[w]
    for i in range(n):
        if _has(rows[i], pivot):
            for w in range(there.size):
                rows[i, w] ^= there[w] if i != pivot else np.uint64(0)
            if side:
                parity[i >> 6] ^= np.uint64(1) << np.uint64(i & 63)


Parities.kernels = (_vote, _teach)
