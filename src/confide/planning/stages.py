"""A stage of a guide: leaves that grow, and the matrix, noise and steps of their sums."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from confide._checks import Numbers
from confide.privacy.sums import MOST_LEAVES, SquareRoot

__all__ = ["MEMORY", "SHORTEST", "STEADY", "Stage", "ends_of"]

SHORTEST = 16
"""Rounds of the first leaves."""

STEADY = 64.0
"""step · rounds of a leaf, at most, without momentum: θ waits for a leaf to end, and longer steps would swing."""

MEMORY = 60.0
"""The answering θ forgets all but about the last sixtieth of the past: it sheds noise, and follows drift."""


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

    @cached_property
    def longest(self) -> int:
        """Rounds of the longest leaf."""
        return max(b - a for a, b in zip((0, *self.ends), self.ends, strict=False))

    @cached_property
    def deviation(self) -> float:
        """The rms deviation of a prefix sum's noise, in the units of the sums."""
        squares = math.fsum(map(math.fsum, (self.root.decoder**2).tolist()))  # no library's sum: a choice follows it
        return math.sqrt(self.sigma2 * squares / self.leaves)

    def steady(self, mean2: float) -> Stage:
        """The stage with steps that do not swing on a map whose mean row has this squared norm.

        All rows of a leaf meet one θ: along their mean, whose curvature is at most mean2/4, steps of more than 8/mean2
        in all swing. Where that is less than a plan allows, steps are shorter, down to half, and without momentum.
        """
        most = max(STEADY / 2, 8 / max(mean2, 2.0**-20))
        if most >= STEADY:
            return self
        return replace(self, step=min(self.step, most / self.longest), momentum=0.0, memory=MEMORY)

    def along(self, mean2: float) -> float:
        """What of the sums is left out along the mean row, so that steps of this stage come halfway at most there."""
        return 0.0 if self.momentum else max(0.0, 1 - 4 / max(mean2 * self.step * self.longest, 2.0**-20))

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
