"""A stage of a guide: leaves that grow, and the matrix, noise and steps of their sums."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from confide._checks import Numbers
from confide.privacy.sums import MOST_LEAVES, SquareRoot

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
    start
        Rounds of the stage before the first of these leaves: those of earlier epochs. `ends` count them too.
    epoch
        The epoch's number, from 0 on: each has noise and sums of its own.
    """

    kind: str
    number: int
    ends: tuple[int, ...]
    sigma2: int
    root: SquareRoot
    step: float
    memory: float
    momentum: float
    start: int = 0
    epoch: int = 0

    @cached_property
    def leaves(self) -> int:
        """How many leaves."""
        return len(self.ends)

    @cached_property
    def longest(self) -> int:
        """Rounds of the longest leaf."""
        return max(b - a for a, b in zip((self.start, *self.ends), self.ends, strict=False))

    @cached_property
    def deviation(self) -> float:
        """The rms deviation of a prefix sum's noise, in the units of the sums."""
        squares = math.fsum(map(math.fsum, (self.root.decoder**2).tolist()))  # no library's sum: a choice follows it
        return math.sqrt(self.sigma2 * squares / self.leaves)

    def steady(self, mean2: float, unplaced: float = 0.0) -> Stage:
        """The stage with steps that do not swing on a map whose mean row has this squared norm.

        What is `unplaced` may be a part of it, too, and nobody knows in which direction: there steps are shorter still.

        All rows of a leaf meet one θ: along their mean, whose curvature is at most mean2/4, steps of more than 8/mean2
        in all swing. Where that is less than a plan allows, steps are shorter, down to half, and without momentum.
        """
        most = min(max(STEADY / 2, 8 / max(mean2, 2.0**-20)), 8 / max(unplaced, 2.0**-20))
        if most >= STEADY:
            return self
        return replace(self, step=min(self.step, most / self.longest), momentum=0.0, memory=MEMORY)

    def along(self, mean2: float) -> float:
        """What of the sums is left out along the mean row, so that steps of this stage come halfway at most there."""
        return 0.0 if self.momentum else max(0.0, 1 - 4 / max(mean2 * self.step * self.longest, 2.0**-20))

    def length(self, leaf: int) -> int:
        """The rounds of a leaf."""
        return self.ends[leaf] - (self.ends[leaf - 1] if leaf else self.start)

    def weight(self, leaf: int, anew: int = 0) -> float:
        """The rounds up to the end of a leaf, from those on after which a model began anew, in leaves of its length."""
        return (self.ends[leaf] - anew) / self.length(leaf)

    @cached_property
    def before(self) -> int:
        """Leaves of earlier epochs: all epochs of a stage have equally many."""
        return self.epoch * self.leaves

    def reaching(self, rounds: float) -> int:
        """After how many of these leaves so many of the stage's rounds, or more, are over; at least one leaf."""
        return reaching(self.ends, rounds)


def reaching(ends: tuple[int, ...], rounds: float) -> int:
    """After how many leaves with these ends so many rounds, or more, are over; at least one leaf."""
    return min(bisect_left(ends, rounds) + 1, len(ends))


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
        ends.append(min(rounds, _next_end(ends[-1], longest, growth)))
    return tuple(ends[1:])


def _next_end(past: int, longest: int, growth: int) -> int:
    """After how many rounds the leaf ends that begins after `past` of them."""
    return past + (min(longest, max(SHORTEST, past // growth)) if growth else longest)


@lru_cache(maxsize=64)
def epoch_ends(epoch: int, leaves: int, longest: int, growth: int) -> tuple[int, ...]:
    """After how many rounds of its stage each leaf of an epoch ends: epochs of equally many leaves, without an end.

    A leaf is as long as all rounds before it, those of earlier epochs too, divided by `growth`, within the same limits.

    Examples
    --------
    >>> epoch_ends(0, 3, 40, 2), epoch_ends(1, 3, 40, 2), epoch_ends(2, 3, 40, 2)
    ((16, 32, 48), (72, 108, 148), (188, 228, 268))
    """
    ends = [epoch_start(epoch, leaves, longest, growth)]
    for _ in range(leaves):
        ends.append(_next_end(ends[-1], longest, growth))
    return tuple(ends[1:])


@lru_cache(maxsize=256)
def epoch_start(epoch: int, leaves: int, longest: int, growth: int) -> int:
    """The rounds of a stage before an epoch."""
    past, left = 0, epoch * leaves
    while left and (_next_end(past, longest, growth) - past < longest):
        past, left = _next_end(past, longest, growth), left - 1
    return past + left * longest  # once leaves are as long as they may be, they stay so


def epoch_of(past: int, leaves: int, longest: int, growth: int) -> int:
    """The epoch to which the round belongs that comes after so many of its stage."""
    epoch = max(0, past) // (leaves * longest)  # no epoch is longer
    while epoch_start(epoch + 1, leaves, longest, growth) <= past:
        epoch += 1
    return epoch
