"""The audit: play many games, and say how much the mechanism leaks at least, with a stated confidence.

Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from confide._checks import integer, probability
from confide.games.bounds import Choice, Point, choose, measure
from confide.games.engine import Game, play_many
from confide.games.laws import Curve
from confide.games.learned import Learned
from confide.games.moves import Adversary, Mechanism
from confide.games.play import OnlineGame
from confide.games.region import Region
from confide.planning.plan import Guarantee, Plan
from confide.privacy.renyi import check_delta

__all__ = ["ALARM", "Report", "audit", "audit_game"]

Floats = NDArray[np.float64]
ALARM = 1e-6
"""Probability of a false alarm."""

PARTS = 100
"""So many times the audit is also made with a hundredth of its games."""


@dataclass(frozen=True)
class Report:
    """What an audit found. All lower bounds hold together with probability `confidence`."""

    name: str
    adversary: str
    games: int
    """Test games at each bit."""
    training: int
    """Games at each bit that the score and the thresholds were made from, and not tested on."""
    confidence: float
    delta: float
    points: tuple[Point, ...]
    """The measured curve: each point is a lower bound."""
    gaussian_epsilon: float
    """ε at δ if the scores were Gaussian with equal variance: an assumption, not a bound."""
    region: Region | None
    certified: tuple[float, float] | None
    law: Curve | None
    """The exact curve of this adversary's score."""
    yardstick: Curve | None
    alarm: bool
    """Whether a point lies above the certificate, at level 10⁻⁶."""
    alarm_point: Point | None = None
    repetitions: tuple[float, ...] = ()
    """The bounds on ε of a hundred audits, each of its own hundredth of the games."""
    repetition_alarms: int = 0
    """How many of those sounded the alarm."""

    @property
    def advantage(self) -> float:
        """A lower bound of the total variation distance; 0 where nothing was found."""
        return max(point.advantage for point in self.points)

    @property
    def epsilon(self) -> float:
        """A lower bound of ε at `delta`; 0 where nothing was found."""
        return max(point.epsilon(self.delta) for point in self.points)

    @property
    def best(self) -> Point:
        """The point with the largest advantage."""
        return max(self.points, key=lambda point: point.advantage)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the exact laws, for JSON."""
        exact = self.yardstick or self.law
        return {
            "name": self.name,
            "adversary": self.adversary,
            "games at each bit": self.games,
            "training games at each bit": self.training,
            "confidence": self.confidence,
            "delta": self.delta,
            "advantage at least": self.advantage,
            "epsilon at least": self.epsilon,
            "epsilon if Gaussian (an assumption)": self.gaussian_epsilon,
            "exact advantage": None if exact is None else exact.advantage,
            "exact epsilon": None if exact is None else exact.epsilon(self.delta),
            "certified": self.certified,
            "alarm": self.alarm,
            "repetitions": len(self.repetitions),
            "largest epsilon of the repetitions": max(self.repetitions, default=None),
            "alarms of the repetitions": self.repetition_alarms,
            "curve": [
                {
                    "aim": point.aim,
                    "threshold": point.threshold,
                    "hits": list(point.hits),
                    "false positives at most": point.false,
                    "true positives at least": point.true,
                }
                for point in self.points
            ],
        }

    def write_json(self, path: Path | str) -> None:
        """The numbers, for machines."""
        Path(path).write_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n")

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.adversary}",
            f"{self.games:,} games at each bit, {self.training:,} more to learn from; all bounds together with "
            f"probability {self.confidence:.2%}",
            f"advantage ≥ {self.advantage:.4f}"
            + ("" if self.yardstick is None else f"   (yardstick, exactly: {self.yardstick.advantage:.4f})"),
            f"ε ≥ {self.epsilon:.3f} at δ = {self.delta:g}"
            + ("" if self.yardstick is None else f"   (yardstick, exactly: {self.yardstick.epsilon(self.delta):.3f})"),
            f"ε = {self.gaussian_epsilon:.3f} if the scores were Gaussian: an assumption, not a bound",
        ]
        if self.certified is not None:
            lines.append(f"certified: ε = {self.certified[0]:.3f} at δ = {self.certified[1]:g}")
            lines.append(
                "ALARM: more was measured than is certified"
                if self.alarm
                else "no measured point lies above the certificate"
            )
        if self.repetitions:
            lines.append(
                f"{len(self.repetitions)} repetitions with a part of the games each: ε ≥ {max(self.repetitions):.3f} "
                f"at most, {self.repetition_alarms} alarms"
            )
        return "\n".join(lines)


def audit(
    make_mechanism: Callable[[], Mechanism],
    adversary: Adversary,
    games: int = 10_000,
    *,
    rounds: int | None = None,
    challenges: int = 1,
    certificate: Region | Plan | Guarantee | tuple[float, float] | None = None,
    delta: float = 1e-6,
    **options: Any,
) -> Report:
    """A lower bound of what a mechanism leaks to this adversary in the OnlineGame.

    Parameters
    ----------
    make_mechanism
        Makes a fresh mechanism for each game. For several workers it must be picklable.
    adversary
        Plays against it; see `confide.games.Adversary`.
    games
        Games at each bit.
    rounds
        Rounds of a game; by default the adversary's plan's.
    challenges
        How many challenges the adversary may pose.
    certificate
        What is promised, to compare with; a plan gives the whole region that its tables certify.
    delta
        δ at which ε is bounded.
    options
        See `audit_game`.

    Examples
    --------
    >>> import confide
    >>> from confide.games import SplitVote, WorstMargin
    >>> plan = confide.Plan.tight(epsilon=8, delta=1e-6, rounds=160, copies=160, polls=160, unsure=20, silent=0)
    >>> def make():
    ...     return confide.POP(SplitVote(), plan, labels=[0, 1], features=2)
    >>> report = audit(make, WorstMargin(plan), games=300, certificate=plan)
    >>> report.advantage > 0.05, report.alarm
    (True, False)
    """
    if rounds is None:
        plan = getattr(adversary, "plan", None)
        rounds = plan.rounds if isinstance(plan, Plan) else getattr(adversary, "rounds", None)
        if rounds is None:
            raise ValueError("say how many rounds a game has: this adversary does not know")
    game = OnlineGame(make_mechanism, adversary, rounds, challenges)
    return audit_game(game, games, certificate=certificate, delta=delta, **options)


def audit_game(
    game: Game,
    games: int,
    *,
    certificate: Region | Plan | Guarantee | tuple[float, float] | None = None,
    delta: float = 1e-6,
    confidence: float = 0.99,
    training: float = 0.3,
    learned: bool = False,
    yardstick: Curve | None = None,
    workers: int | None = 1,
    folder: Path | str | None = None,
    name: str = "audit",
    progress: bool = False,
) -> Report:
    """The same for any of the games.

    Parameters
    ----------
    confidence
        Probability with which all bounds hold together.
    training
        Share of the games that only serve to learn a score and to choose thresholds. An adversary that knows the exact
        law of its score needs none.
    learned
        Learn the score even where the adversary has one: an exact likelihood of the *right* mechanism may miss what a
        wrong one shows.
    yardstick
        An exact curve to print beside; by default the adversary's own law.
    workers
        Processes; None for all cores.
    folder
        Where finished batches are kept: the same call goes on where it was stopped.
    progress
        Show a bar.
    """
    games, failure = integer(games, "games", 20), 1 - probability(confidence, "confidence")
    check_delta(delta)
    adversary = game.adversary
    zeros, ones = play_many(
        game,
        games,
        learned=learned,
        workers=workers,
        folder=None if folder is None else Path(folder),
        name=name,
        progress=progress,
    )
    law: Curve | None = adversary.law() if hasattr(adversary, "law") and not learned else None
    zero, one = np.concatenate(zeros), np.concatenate(ones)
    if law is not None:
        used = 0
        score0, score1 = zero[:, 0], one[:, 0]
        thresholds = np.unique(law.scores)
        choices = choose(thresholds, *law.tails(thresholds), games, failure, delta)
    else:
        used = max(10, round(games * training))
        score0, score1, choices = _learned(zero, one, used, hasattr(adversary, "score") and not learned, failure, delta)
    points = measure(choices, score0, score1, failure)
    region = certificate if certificate is None or isinstance(certificate, Region) else Region.of(certificate)
    alarm = None if region is None else _alarm(region, measure(choices, score0, score1, ALARM))
    repeated, alarms = _repeat(score0, score1, choices, law, region, failure, delta)
    return Report(
        name=name,
        adversary=repr(adversary),
        games=len(score0),
        training=used,
        confidence=confidence,
        delta=delta,
        points=tuple(points),
        gaussian_epsilon=_gaussian(score0, score1, delta),
        region=region,
        certified=None if region is None else _pair(region, delta),
        law=law,
        yardstick=law if yardstick is None else yardstick,
        alarm=alarm is not None,
        alarm_point=alarm,
        repetitions=tuple(repeated),
        repetition_alarms=alarms,
    )


def _learned(
    zero: Floats, one: Floats, used: int, scored: bool, failure: float, delta: float
) -> tuple[Floats, Floats, list[Choice]]:
    """Scores of the test games, and thresholds; score and thresholds come from the first `used` games alone."""
    train0, train1, test0, test1 = zero[:used], one[:used], zero[used:], one[used:]
    if scored:
        scores = [rows[:, 0] for rows in (train0, train1, test0, test1)]
    else:
        half = used // 2  # thresholds from games that the score has not seen either
        learned = Learned.fit(train0[:half], train1[:half])
        scores = [learned.scores(rows) for rows in (train0[half:], train1[half:], test0, test1)]
    thresholds = np.unique(np.concatenate(scores[:2]))
    tails = [1 - np.searchsorted(np.sort(part), thresholds, side="right") / part.size for part in scores[:2]]
    return scores[2], scores[3], choose(thresholds, tails[0], tails[1], len(test0), failure, delta)


def _repeat(
    zero: Floats,
    one: Floats,
    choices: list[Choice],
    law: Curve | None,
    region: Region | None,
    failure: float,
    delta: float,
) -> tuple[list[float], int]:
    """The same audit on each hundredth of the games: its bounds on ε, and the alarms."""
    games = min(zero.size, one.size) // PARTS
    if games < 20:
        return [], 0
    if law is not None:
        thresholds = np.unique(law.scores)
        choices = choose(thresholds, *law.tails(thresholds), games, failure, delta)
    bounds, alarms = [], 0
    for part in range(PARTS):
        here = slice(part * games, (part + 1) * games)
        bounds.append(max(point.epsilon(delta) for point in measure(choices, zero[here], one[here], failure)))
        sounded = region is not None and _alarm(region, measure(choices, zero[here], one[here], ALARM)) is not None
        alarms += sounded
    return bounds, alarms


def _alarm(region: Region, points: list[Point]) -> Point | None:
    """A point that lies outside the region, if there is one: the tests' errors add up to ALARM at most."""
    outside = [point for point in points if not region.holds(point.false, point.true)]
    return max(outside, key=lambda point: point.true - region.power(point.false), default=None)


def _pair(region: Region, delta: float) -> tuple[float, float]:
    """The smallest certified ε at this δ (or at the smallest δ above it)."""
    enough = [pair for pair in region.pairs if pair[1] <= delta * (1 + 1e-9)]
    return min(enough) if enough else min(region.pairs, key=lambda pair: pair[1])


def _gaussian(zero: Floats, one: Floats, delta: float) -> float:
    """ε at δ of two unit Gaussians as far apart as the scores' means are in standard deviations."""
    spread = math.sqrt((np.var(zero) + np.var(one)) / 2)
    if not spread > 0:
        return 0.0
    mu = abs(float(one.mean() - zero.mean())) / spread
    low, high = 0.0, 200.0
    if mu < 1e-9:
        return 0.0
    while high - low > 1e-6:
        e = (low + high) / 2
        log_second = e + norm.logcdf(-e / mu - mu / 2)
        over = norm.cdf(mu / 2 - e / mu) - math.exp(min(log_second, 0.0)) > delta
        low, high = (e, high) if over else (low, e)
    return high
