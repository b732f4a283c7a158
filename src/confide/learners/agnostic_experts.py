"""Experts for a Littlestone class without a perfect hypothesis."""

from __future__ import annotations

import math
import weakref
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide._checks import integer, probability
from confide.arrays import Floats, Ints
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout
from confide.learners.classes import FiniteLearner, Words
from confide.learners.theory.littlestone import FiniteClass
from confide.learners.weighted_majority import BETA, majority_bound

_MOST_STATES = 1 << 16


class AgnosticExperts(FiniteLearner):
    """The weighted majority of experts that make a Littlestone class learnable whatever the labels are.

    An expert runs the Standard Optimal Algorithm and overrules it in at most d of T rounds, which it has fixed
    beforehand; the algorithm takes an overruled answer for its mistake and learns from nothing else. For every
    hypothesis there is an expert that always says the same. There are N = Σ_{i≤d} C(T, i) ≤ (eT/d)^d of them, so on
    *any* T rounds, if the best hypothesis errs OPT times, there are at most **(OPT·ln(1/β) + ln N)/ln(2/(1+β))
    mistakes**, with β = 1/e at most 2.633·(OPT + d·ln(eT/d)) (after Ben-David, Pál and Shalev-Shwartz, "Agnostic Online
    Learning", 2009; there with randomised experts). Proof page: docs/proofs/learners.md.

    Experts that overruled the same answers are alike, so what is kept is a weight for each set of hypotheses that can
    be left, at most Σ_{i≤d} m^i for m points, whatever T is. Which sets these are depends on the class alone. Where the
    class has fewer than N hypotheses, `WeightedMajority` has the smaller bound.

    Parameters
    ----------
    H
        The class: one row for each hypothesis, one column for each point, of 0 and 1.
    rounds
        T: the labels that it may be taught under this bound. After these no expert overrules any more.
    beta
        β, what an error multiplies a weight by: strictly between 0 and 1.

    Examples
    --------
    >>> learner = AgnosticExperts(np.eye(50), rounds=1000)
    >>> for label in (1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1):
    ...     learner.learn([3], label)
    >>> learner.predict([3]), learner.predict([4])
    (1, 0)
    >>> learner.mistake_bound(), learner.mistake_bound(opt=1)
    (18, 20)
    """

    def __init__(self, H: ArrayLike | FiniteClass, rounds: int, beta: float = BETA) -> None:
        self.rounds = integer(rounds, "rounds", 1, 1 << 40)
        self.beta = probability(beta, "beta")
        super().__init__(H)

    @property
    def _states(self) -> _States:
        """Made once for all copies, from the class alone: see `FiniteClass` for why that shares nothing."""
        states = _MADE.get(self.H)
        if states is None:
            states = _MADE[self.H] = _make_states(self.H)
        return states

    def knowledge(self) -> Layout:
        return {"weight": ((self._states.dimension.size,), np.float64)}  # logarithms

    def mistake_bound(self, opt: int = 0) -> int:
        """The most mistakes in `rounds` rounds where the best hypothesis makes `opt`."""
        dimension = int(self._states.dimension[0])
        experts = sum(math.comb(self.rounds, overruled) for overruled in range(dimension + 1))
        return majority_bound(self.beta, opt, math.log(experts))

    def begin(self, arrays: Arrays) -> None:
        arrays["weight"][0, 1:] = -np.inf
        self._answer(arrays, 0, 0)

    def update(self, arrays: Arrays, slot: int, seen: int, point: int, y: int) -> None:
        said, child = self._states.said[:, point], self._states.child[:, point]
        _teach(arrays["weight"][slot], said, child, y, math.log(self.beta), seen < self.rounds)
        self._answer(arrays, slot, seen + 1)

    def _answer(self, arrays: Arrays, slot: int, seen: int) -> None:
        later = _completions(self.rounds - seen - 1, int(self._states.dimension[0]))
        _answer(arrays["weight"][slot], *self._states, later, seen < self.rounds, arrays["answers"][slot])

    def sound(self, arrays: Arrays) -> bool:
        return super().sound(arrays) and bool((arrays["weight"] < np.inf).all())


class _States(NamedTuple):
    """Sets of hypotheses that can be left of a class, the whole class first."""

    said: NDArray[np.uint8]
    """What the Standard Optimal Algorithm says, by state and point."""
    child: Ints
    """The state after it was overruled, by state and point; −1 where nothing would be left."""
    dimension: Ints


_MADE: weakref.WeakKeyDictionary[FiniteClass, _States] = weakref.WeakKeyDictionary()


def _make_states(H: FiniteClass) -> _States:
    """All states, breadth first: an order that depends on the class alone."""
    number = {H.everyone.tobytes(): 0}
    reached = [H.everyone]
    said, child, memo = [], [], H.memo()
    for alive in reached:  # grows on the way
        answers = H.standard(alive, memo).astype("<u8").view(np.uint8)
        said.append(np.unpackbits(answers, count=H.points, bitorder="little"))
        row = np.full(H.points, -1, dtype=np.int64)
        for point in range(H.points):
            left = H.restrict(alive, point, 1 - int(said[-1][point]))
            if left.any():
                name = left.tobytes()
                if name not in number:
                    if len(reached) >= _MOST_STATES:
                        raise ValueError(
                            f"what can be left of this class takes more than {_MOST_STATES} sets: use WeightedMajority"
                        )
                    number[name] = len(reached)
                    reached.append(left)
                row[point] = number[name]
        child.append(row)
    dimension = np.array([H.dimension(alive, memo) for alive in reached], dtype=np.int64)
    states = _States(np.array(said), np.array(child), dimension)
    for array in states:
        array.flags.writeable = False
    return states


def _completions(rounds: int, dimension: int) -> Floats:
    """For each number of overrulings left: in how many ways they can still fall on so many rounds."""
    ways = [float(math.comb(max(rounds, 0), i)) for i in range(dimension + 1)]
    return np.cumsum(ways)


@jit
def _teach(weight: Floats, said: NDArray[np.uint8], child: Ints, y: int, price: float, overrule: bool) -> None:
    """Let every expert that was wrong pay, and move those that overruled to their new state."""
    before = weight.copy()
    for state in range(weight.size):
        if said[state] != y:
            weight[state] += price
    for state in range(weight.size):
        if overrule and child[state] >= 0 and before[state] > -np.inf:
            moved = before[state] + (price if said[state] == y else 0.0)
            there = weight[child[state]]
            top = max(moved, there)
            weight[child[state]] = top + np.log(np.exp(moved - top) + np.exp(there - top))


@jit
def _answer(
    weight: Floats, said: NDArray[np.uint8], child: Ints, dimension: Ints, later: Floats, overrule: bool, answers: Words
) -> None:
    top = weight.max()
    ones, total = np.zeros(said.shape[1]), np.zeros(said.shape[1])
    for state in range(weight.size):
        share = np.exp(weight[state] - top)
        if share == 0.0:
            continue
        stays = share * later[dimension[state]]
        for x in range(said.shape[1]):
            goes = share * later[dimension[child[state, x]]] if overrule and child[state, x] >= 0 else 0.0
            total[x] += stays + goes
            ones[x] += stays if said[state, x] == 1 else goes
    answers[:] = 0
    for x in range(said.shape[1]):
        if 2.0 * ones[x] > total[x]:
            answers[x >> 6] |= np.uint64(1) << np.uint64(x & 63)
