"""All that a learner of a small finite class can come to know, worked out beforehand from the class alone.

What labels leave of the class is a *state*; a label leads from one to another. The states are those that a Littlestone
tree of the class passes through, and all others that labels can lead to. Nothing is worked out when a copy is taught,
so that the time of a lesson does not tell whether another copy had the same one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.learners.classes import VersionSpace

MOST = 1 << 22
"""Moves, states × points × labels, beyond which a class is not enumerated."""


class Automaton(NamedTuple):
    """What a class's learner can come to know; a copy that was taught nothing is in state 0."""

    moves: NDArray[np.int32]
    """The state after [state, point, label]."""
    answers: NDArray[np.uint8]
    """What is answered at [state, point]."""


def automaton(learner: VersionSpace) -> Automaton:
    """Every state that labels can lead to; ValueError where there are too many.

    Examples
    --------
    >>> from confide.learners import StandardOptimal
    >>> automaton(StandardOptimal(np.eye(3))).answers.tolist()[:2]
    [[0, 0, 0], [0, 0, 0]]
    """
    H = learner.H
    alive = [H.everyone]
    known = {H.everyone.tobytes(): 0}
    moves: list[list[list[int]]] = []
    while len(moves) < len(alive):
        before = alive[len(moves)]
        moves.append([])
        for point in range(H.points):
            after = []
            for label in (0, 1):
                left = H.restrict(before, point, label)
                if not left.any():
                    left = before  # a label that no function can give any more is not learned
                if left.tobytes() not in known:
                    known[left.tobytes()] = len(alive)
                    alive.append(left)
                after.append(known[left.tobytes()])
            moves[-1].append(after)
        if len(alive) * H.points * 2 > MOST:
            raise ValueError("the class is too large to be enumerated, and its votes to be tallied: leave the bank out")
    bits = np.array([learner.answers(left) for left in alive]).reshape(len(alive), -1)
    shifts = np.arange(H.points, dtype=np.uint64)
    answers = (bits[:, (shifts >> np.uint64(6)).astype(np.int64)] >> (shifts & np.uint64(63))) & np.uint64(1)
    # In rows, as the tables of other banks: another order is another type to the compiler, and seconds of compiling.
    return Automaton(np.array(moves, dtype=np.int32), answers.astype(np.uint8, order="C"))
