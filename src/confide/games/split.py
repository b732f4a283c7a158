"""A learner made for attacks: x says how many copies vote 1, and a copy that was taught votes what it was taught."""

from __future__ import annotations

import numpy as np

from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout, Stacked
from confide.privacy.random import Random


class SplitVote(Stacked):
    """Each copy draws its own threshold at birth, so that x sets any split of the votes.

    x has two numbers from 0 to 1, a *share* and a *turn*. The thresholds of k copies are (i + ½)/k in a random order; a
    copy whose threshold, turned around the circle, lies below the share votes 1, the others vote 0. So a share of s/k
    makes exactly s copies vote 1, and the turn says which. It learns only from rounds with a whole turn (1), and a copy
    that did votes the last label that it learned, whatever x is. It is the worst learner for privacy: one label moves
    one vote in every later round.

    Examples
    --------
    >>> import confide
    >>> plan = confide.Plan.tight(8, 1e-6, 160, copies=160, polls=160, unsure=20, silent=0, guide=None)
    >>> pop = confide.POP(SplitVote(), plan, labels=[0, 1], features=2)
    >>> answer = pop.predict([100 / 160, 0.25])
    >>> pop.operator.counts
    array([ 60, 100])
    """

    def __init__(self, labels: int = 2) -> None:
        super().__init__(labels, 1, None)

    def layout(self, features: int) -> Layout:
        return {"threshold": ((), np.float64), "mind": ((), np.int64)}

    def birth(self, arrays: Arrays, rng: Random) -> None:
        """Spread the thresholds evenly, in an order of their own for this bank."""
        k = arrays["seen"].size
        arrays["threshold"][:] = (np.argsort(rng.words(k)) + 0.5) / k
        arrays["mind"][:] = -1


_thresholds, _minds = compiled.view(np.float64, 0), compiled.view(np.int64, 0)


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    if x[1] >= 1.0:
        _minds(memory, 2)[slot] = y


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    threshold, mind, share, turn, asked, ones = _thresholds(memory, 1), _minds(memory, 2), x[0], x[1], 0, 0
    for slot in slots:  # no branches: most of them would be taken at random
        here = max(slot, 0)
        place = threshold[here] + turn
        place -= place >= 1.0
        free, votes = mind[here] < 0, slot >= 0
        asked += votes & (free | (mind[here] < 2))
        ones += votes & ((free & (place < share)) | (mind[here] == 1))
    counts[0] += asked - ones
    counts[1] += ones
    if counts.size > 2:
        for slot in slots:
            if slot >= 0 and mind[slot] >= 2:
                counts[mind[slot]] += 1


SplitVote.kernels = (_vote, _teach)
