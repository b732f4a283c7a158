"""Lower bounds from counts: Clopper–Pearson, one-sided, all bounds of a report true together.

Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainccinv, betaincinv

from confide._checks import integer, probability
from confide.arrays import Floats

CURVE = 12
"""Points of the curve besides the two that are chosen for advantage and ε."""

BACKWARDS = 0.1
"""Share of the failure probability for the tests in the other direction."""


def at_most(hits: int, games: int, level: float) -> float:
    """An upper bound of a probability that fails with probability at most `level`: Clopper and Pearson (1934)."""
    hits, games = integer(hits, "hits", 0), integer(games, "games", 1)
    return 1.0 if hits >= games else float(betainccinv(hits + 1, games - hits, probability(level, "level")))


def at_least(hits: int, games: int, level: float) -> float:
    """A lower bound of a probability that fails with probability at most `level`."""
    hits, games = integer(hits, "hits", 0), integer(games, "games", 1)
    return 0.0 if hits <= 0 else float(betaincinv(hits, games - hits + 1, probability(level, "level")))


@dataclass(frozen=True)
class Choice:
    """A threshold fixed before the test games, and its share of the failure probability."""

    threshold: float
    share: float
    aim: str
    below: bool = False
    """Whether bit 1 is said where the score is *not* above the threshold."""


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

    @property
    def advantage(self) -> float:
        """A lower bound of the total variation distance."""
        return max(0.0, self.true - self.false)

    def epsilon(self, delta: float) -> float:
        """A lower bound of ε at δ, from the event and from its complement."""
        best = 0.0
        for more, less in ((self.true, self.false), (1 - self.false, 1 - self.true)):
            if more - delta > 0 and less > 0:
                best = max(best, math.log((more - delta) / less))
        return best


def measure(choices: Sequence[Choice], zero: Floats, one: Floats, failure: float) -> list[Point]:
    """The points at the chosen thresholds; all bounds hold together but for probability `failure`."""
    total = sum(choice.share for choice in choices)
    points = []
    for choice in choices:
        level = failure * choice.share / total / 2
        hits = tuple(int(((scores > choice.threshold) ^ choice.below).sum()) for scores in (zero, one))
        false, true = at_most(hits[0], zero.size, level), at_least(hits[1], one.size, level)
        points.append(Point(choice.threshold, choice.aim, (zero.size, one.size), (hits[0], hits[1]), false, true))
    return points


def both_ways(choices: Sequence[Choice]) -> list[Choice]:
    """Every test, and its opposite: a score that was given may point the wrong way for a mechanism that is wrong."""
    total = sum(choice.share for choice in choices)
    share = BACKWARDS / (1 - BACKWARDS) * total / len(choices)
    return [*choices, *(Choice(choice.threshold, share, "backwards", True) for choice in choices)]


def choose(thresholds: Floats, zero: Floats, one: Floats, games: int, failure: float, delta: float) -> list[Choice]:
    """Which thresholds to test, from P(score > threshold) at both bits as a law or *other* games say they are.

    One for the advantage, one for ε at δ (at the bounds that so many games are expected to give), and a dozen along
    the curve. Whatever is chosen, the bounds hold: the choice only makes them better.
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
    rates = np.geomspace(max(10 / games, 1e-6), 0.5, CURVE // 2)
    for tail in (p, 1 - q):  # along both ends of the curve
        for rate in rates:
            at = int(np.argmin(np.abs(np.log(np.maximum(tail, 1e-12)) - math.log(rate))))
            chosen.append(Choice(float(cuts[at]), shares["curve"], "curve"))
    return chosen
