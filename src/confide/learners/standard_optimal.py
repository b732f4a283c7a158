"""The Standard Optimal Algorithm."""

from __future__ import annotations

from confide.learners.classes import VersionSpace, Words


class StandardOptimal(VersionSpace):
    """The Standard Optimal Algorithm: answers the label that leaves the class with the larger Littlestone dimension.

    Every mistake lowers the dimension of what is left: at most **d mistakes** for a class of Littlestone dimension d,
    and no learner has a smaller bound (Littlestone, "Learning Quickly When Irrelevant Attributes Abound", 1988). Proof
    page: docs/proofs/learners.md.

    All dimensions are exact. Those of what a copy's labels leave of the class are worked out anew in every lesson that
    changes it: see `FiniteClass` for why nothing of that is shared between copies.

    Parameters
    ----------
    H
        The class: one row for each hypothesis, one column for each point, of 0 and 1; or a `FiniteClass`.

    Examples
    --------
    >>> import numpy as np
    >>> learner = StandardOptimal(np.eye(100))  # points: dimension 1, where Halving may err 6 times
    >>> [learner.predict([x]) for x in (3, 50)], learner.mistake_bound()
    ([0, 0], 1)
    >>> learner.learn([3], 1)
    >>> [learner.predict([x]) for x in (3, 50)]
    [1, 0]
    """

    def mistake_bound(self) -> int:
        """d, the Littlestone dimension."""
        return self.H.dimension()

    def answers(self, alive: Words) -> Words:
        return self.H.standard(alive)
