"""Lower bounds from counts: Clopper–Pearson, one-sided, all bounds of a report true together.

The advantage has a bound of its own: right guesses at both bits are one count, whose bound is nearer than two together.

Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betainccinv, betaincinv

from confide._checks import integer, probability
from confide.arrays import Floats

CURVE = 12
"""Points of the curve besides the two that are chosen for advantage and ε."""

JOINT = 0.25
"""Weight of the bound of the advantage alone, beside 1 for all points."""

BACKWARDS = 0.1
"""Share of the points' failure probability for the tests in the other direction."""


def at_most(hits: int, games: int, level: float) -> float:
    """An upper bound of a probability that fails with probability at most `level`: Clopper and Pearson (1934)."""
    hits, games = integer(hits, "hits", 0), integer(games, "games", 1)
    return 1.0 if hits >= games else float(betainccinv(hits + 1, games - hits, probability(level, "level")))


def at_least(hits: int, games: int, level: float) -> float:
    """A lower bound of a probability that fails with probability at most `level`."""
    hits, games = integer(hits, "hits", 0), integer(games, "games", 1)
    return 0.0 if hits <= 0 else float(betaincinv(hits, games - hits + 1, probability(level, "level")))


def gap_at_least(hits: tuple[int, int], games: tuple[int, int], level: float) -> float:
    """A lower bound of true less false positives that fails with probability at most `level`, which is at most 1/4.

    All games together are one count of right guesses, n₁ hits and n₀ games without one. It is no binomial variable, and
    its tails are lighter than those of one with the same mean (Hoeffding 1956). 0 where the bits had unequal games.
    """
    if games[0] != games[1] or level > 0.25:
        return 0.0
    return max(0.0, 2 * at_least(hits[1] + games[0] - hits[0], 2 * games[0], level) - 1)


@dataclass(frozen=True)
class Choice:
    """A threshold fixed before the test games, and its share of the failure probability."""

    threshold: float
    share: float
    aim: str
    below: bool = False
    """Whether bit 1 is said where the score is *not* above the threshold."""
    joint: float = 0.0
    """The weight of the bound of the advantage alone, from both bits together."""


@dataclass(frozen=True)
class Point:
    """One measured point of the trade-off curve: "score > threshold", or "score ≤ threshold", as a test for bit 1."""

    threshold: float
    aim: str
    games: tuple[int, int]
    hits: tuple[int, int]
    false: float
    """Upper bound of the false positives."""
    true: float
    """Lower bound of the true positives."""
    gap: float = 0.0
    """Lower bound of true less false positives, from all games together."""

    @property
    def advantage(self) -> float:
        """A lower bound of the total variation distance."""
        return max(0.0, self.true - self.false, self.gap)

    def epsilon(self, delta: float) -> float:
        """A lower bound of ε at δ, from the event and from its complement."""
        best = 0.0
        for more, less in ((self.true, self.false), (1 - self.false, 1 - self.true)):
            if more - delta > 0 and less > 0:
                best = max(best, math.log((more - delta) / less))
        return best


def measure(choices: Sequence[Choice], zero: Floats, one: Floats, failure: float, joint: bool = True) -> list[Point]:
    """The points at the chosen thresholds; all bounds hold together but for probability `failure`.

    Without `joint` no bound of the advantage alone is made, and nothing is spent on it.
    """
    total = sum(choice.share + joint * choice.joint for choice in choices)
    points = []
    for choice in choices:
        level = failure * choice.share / total / 2
        above = [int(((scores > choice.threshold) ^ choice.below).sum()) for scores in (zero, one)]
        hits, games = (above[0], above[1]), (zero.size, one.size)
        false, true = at_most(hits[0], games[0], level), at_least(hits[1], games[1], level)
        gap = gap_at_least(hits, games, failure * choice.joint / total) if joint and choice.joint else 0.0
        points.append(Point(choice.threshold, choice.aim, games, hits, false, true, gap))
    return points


def both_ways(choices: Sequence[Choice]) -> list[Choice]:
    """Every test, and its opposite: a score that was given may point the wrong way for a mechanism that is wrong."""
    total = sum(choice.share for choice in choices)
    share = BACKWARDS / (1 - BACKWARDS) * total / len(choices)
    return [*choices, *(Choice(choice.threshold, share, "backwards", True) for choice in choices)]


def choose(thresholds: Floats, zero: Floats, one: Floats, games: int, failure: float, delta: float) -> list[Choice]:
    """Which thresholds to test, from P(score > threshold) at both bits as a law or *other* games say they are.

    One for the advantage, one for ε at δ (at the bounds that so many games are expected to give), and a dozen along
    the curve; one that is chosen several times has all its shares. Whatever is chosen, the bounds hold: the choice only
    makes them better.
    """
    shares = {"advantage": 0.25, "epsilon": 0.5, "curve": 0.25 / CURVE}
    keep = np.flatnonzero(np.isfinite(thresholds))
    if not keep.size:
        return [Choice(0.0, 1.0, "advantage")]
    cuts, p, q = thresholds[keep], np.clip(zero[keep], 0, 1), np.clip(one[keep], 0, 1)
    false, true = np.floor(p * games).astype(np.int64), np.floor(q * games).astype(np.int64)
    found: dict[str, int] = {}
    for aim in ("advantage", "epsilon"):
        level = failure * shares[aim] / 2
        upper = np.where(false < games, betainccinv(false + 1, np.maximum(games - false, 1), level), 1.0)
        lower = np.where(true > 0, betaincinv(np.maximum(true, 1), games - true + 1, level), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.log(np.maximum(lower - delta, 0) / upper)
            down = np.log(np.maximum(1 - upper - delta, 0) / (1 - lower))
        worth = lower - upper if aim == "advantage" else np.fmax(up, down)
        found[aim] = int(np.nanargmax(worth)) if np.isfinite(worth).any() else int(np.argmax(q - p))
    chosen = [Choice(float(cuts[at]), shares[aim], aim) for aim, at in found.items()]
    chosen[0] = replace(chosen[0], joint=JOINT)
    rates = np.geomspace(max(10 / games, 1e-6), 0.5, CURVE // 2)
    for tail in (p, 1 - q):  # along both ends of the curve
        for rate in rates:
            at = int(np.argmin(np.abs(np.log(np.maximum(tail, 1e-12)) - math.log(rate))))
            chosen.append(Choice(float(cuts[at]), shares["curve"], "curve"))
    return _merged(chosen)


def _merged(choices: Sequence[Choice]) -> list[Choice]:
    """Each threshold once, under its first name."""
    found: dict[float, Choice] = {}
    for one in choices:
        first = found.get(one.threshold)
        found[one.threshold] = one if first is None else replace(first, share=first.share + one.share)
    return list(found.values())
