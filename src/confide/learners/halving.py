"""Halving."""

from __future__ import annotations

import numpy as np

from confide.learners.classes import VersionSpace, Words
from confide.learners.theory.search import pack


class Halving(VersionSpace):
    """Halving: answers what most hypotheses say that have never been wrong.

    Every mistake rules out at least half of those left: at most **⌊log₂N⌋ mistakes** for N hypotheses. Proof page:
    docs/proofs/learners.md.

    Parameters
    ----------
    H
        The class: one row for each hypothesis, one column for each point, of 0 and 1.

    Examples
    --------
    >>> learner = Halving(np.tri(8, 7, -1))  # thresholds
    >>> learner.learn([5], 0)
    >>> learner.predict([4]), learner.predict([1]), learner.mistake_bound()
    (0, 1, 3)
    """

    def mistake_bound(self) -> int:
        """⌊log₂N⌋."""
        return self.H.hypotheses.bit_length() - 1

    def answers(self, alive: Words) -> Words:
        ones = np.bitwise_count(self.H.columns & alive).sum(axis=1, dtype=np.int64)
        majority = 2 * ones > np.bitwise_count(alive).sum(dtype=np.int64)
        words: Words = pack(majority[None].view(np.uint8))[0]
        return words
