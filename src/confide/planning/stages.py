"""A stage of a guide: leaves that grow, and the matrix, noise and steps of their sums."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

from confide._checks import Numbers
from confide.privacy.sums import MOST_LEAVES, SquareRoot

__all__ = ["SHORTEST", "Stage", "ends_of"]

SHORTEST = 16
"""Rounds of the first leaves."""


@dataclass(frozen=True)
class Stage(Numbers):
    """Leaves that follow each other on one map, as a plan says.

    Parameters
    ----------
    kind
        What its releases are called: "warm" for the stage that learns while ranges are counted, "node" for the other.
    number
        0 for the warm-up, 1 for the other: what was encoded for one stage never teaches another.
    ends
        After how many of the stage's rounds each leaf ends.
    sigma2
        The variance of the noise in every coordinate of a node.
    root
        The integer matrix of its nodes.
    step, memory, momentum
        As in `GuidePlan`.
    """

    kind: str
    number: int
    ends: tuple[int, ...]
    sigma2: int
    root: SquareRoot
    step: float
    memory: float
    momentum: float

    @property
    def leaves(self) -> int:
        """How many leaves."""
        return len(self.ends)

    def weight(self, leaf: int) -> float:
        """The rounds up to the end of a leaf, counted in leaves of its length."""
        return self.ends[leaf] / (self.ends[leaf] - (self.ends[leaf - 1] if leaf else 0))

    def reaching(self, rounds: float) -> int:
        """After how many leaves so many of the stage's rounds, or more, are over; at least one leaf."""
        return min(bisect_left(self.ends, rounds) + 1, self.leaves)


@lru_cache(maxsize=256)
def ends_of(rounds: int, longest: int, growth: int) -> tuple[int, ...]:
    """After how many rounds each leaf ends: a leaf is as long as the rounds before it divided by `growth`.

    At least `SHORTEST` and at most `longest`; with no growth all are alike. The last ends with the rounds. Where that
    takes more leaves than a matrix can have, one more than these are named.

    Examples
    --------
    >>> ends_of(100, 20, 4)
    (16, 32, 48, 64, 80, 100)
    >>> ends_of(33, 8, 0)
    (8, 16, 24, 32, 33)
    """
    ends = [0]
    while ends[-1] < rounds and len(ends) <= MOST_LEAVES + 1:
        length = min(longest, max(SHORTEST, ends[-1] // growth)) if growth else longest
        ends.append(min(rounds, ends[-1] + length))
    return tuple(ends[1:])
