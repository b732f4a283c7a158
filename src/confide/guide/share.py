"""A partition's share of a guide: sums of its own people's gradients, over a model that many partitions have in common.

What was released is one and the same for all partitions of a process, and is computed once. A share has what is private
to it: the open leaf's sum, the counts of ranges, what was kept. It releases nothing: what is due is offered, and it
goes on when the release is known. Proof page: docs/proofs/partitions.md.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from confide.arrays import Ints
from confide.errors import StateError
from confide.guide.guide import Guide
from confide.guide.leaves import Kept, Leaves
from confide.guide.model import Question

__all__ = ["Share"]

SEALED = "the leaf is sealed, and its release is not known here yet: nothing is taken until it is"


class Share(Guide):
    """What one partition adds to a guide.

    Parameters
    ----------
    public
        The model that everybody may see, as far as it was released (`Guide.take`).
    """

    def __init__(self, public: Guide) -> None:
        vars(self).update(vars(public))
        self.public, self.store = public, None
        self.sealed = False
        """Whether the open leaf was offered: no label is taken until its release is known (public)."""
        self._teaches = False
        if self.finding:
            self._counted = copy(public._counted)
            self._counted.counts = np.zeros_like(public._counted.counts)
        self._leaves = self._own([])

    def _own(self, kept: list[Kept]) -> Leaves:
        public = self.public
        leaves = copy(public._leaves)
        leaves.open, leaves.kept, leaves._older = np.zeros_like(leaves.open), kept, {}
        self._warm = leaves if public.finding else public._warm
        return leaves

    def seal(self) -> Ints:
        """The sum of the open leaf, or the counts, that are due: from now on nothing is added to them."""
        self._check()
        self.sealed = True
        counts = self.finding and self._leaves.full
        return self._counted.counts.ravel().copy() if counts else self._leaves.open.copy()

    def renew(self) -> None:
        """The model has been released once more: the next leaf begins, with what was kept for it."""
        found, public = self.finding, self.public
        self._leaves = self._own(self._leaves.kept)
        self.ranges, self._first, self._handover = public.ranges, public._first, public._handover
        self.rounds = max(self.rounds, public.rounds)
        self._teaches |= found and not self.finding and self._keeping
        if self._teaches:
            self._teach_kept()
        self.sealed = False

    def close_next(self) -> bool:
        """Nothing is ever released here; a round after what is due must not be taken."""
        self._check()
        if self.sealed or self._due() is not None:
            raise StateError(SEALED)
        return False

    def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
        """As a guide's; never into a leaf that was offered."""
        if self.sealed:
            raise StateError(SEALED)
        super().gradient(question, y, counted=counted)
