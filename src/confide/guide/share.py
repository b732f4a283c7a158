"""A partition's share of a guide: sums of its own people's gradients, over a model that many partitions have in common.

What was released is one and the same for all partitions of a process, and is computed once. A share has what is private
to it: the open leaf's sum, the counts of ranges, what was kept. It releases nothing: what is due is offered, and it
goes on when the release is known. Proof page: docs/proofs/partitions.md.
"""

from __future__ import annotations

from confide.arrays import Ints
from confide.errors import StateError
from confide.guide.guide import Guide

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
        vars(self).update(public.shared())

    def seal(self) -> Ints:
        """The sum of the open leaf, or the counts, that are due: from now on nothing is added to them."""
        self._check()
        self.sealed = True
        counts = self.finding and self._leaves.full
        return self._counted.counts.ravel().copy() if counts else self._leaves.open.copy()

    def renew(self) -> None:
        """The model has been released once more: the next leaf begins, with what was kept for it."""
        found = self.finding
        vars(self).update(self.public.shared(self._leaves.kept))
        self.rounds = max(self.rounds, self.public.rounds)
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

    def _taking(self) -> None:
        """Nothing is taught to a leaf that was offered."""
        super()._taking()
        if self.sealed:
            raise StateError(SEALED)
