"""The audit: play many games, and say how much the mechanism leaks at least, with a stated confidence.

Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from confide._checks import integer, probability
from confide.arrays import Floats
from confide.games.bounds import Choice, Point, both_ways, choose, measure
from confide.games.engine import Game, play_many
from confide.games.fit import misfit
from confide.games.laws import Curve, Law
from confide.games.learned import Learned
from confide.games.moves import Adversary, Mechanism
from confide.games.play import OnlineGame
from confide.games.region import Region
from confide.games.report import ALARM, Report
from confide.planning.plan import Guarantee, Plan
from confide.privacy.exact import MOST_MU, Noise, epsilon_of
from confide.privacy.renyi import check_delta

PARTS = 100
"""So many times the audit is also made with a hundredth of its games."""

_SMOOTH = Noise(1, 1 << 200)  # as good as Gaussian


def audit(
    make_mechanism: Callable[[], Mechanism],
    adversary: Adversary,
    games: int = 10_000,
    *,
    rounds: int | None = None,
    challenges: int = 1,
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
    options
        See `audit_game` and `Terms`.

    Examples
    --------
    >>> import confide
    >>> from confide.games import SplitVote, WorstMargin
    >>> plan = confide.Plan.tight(8, 1e-6, 160, copies=160, polls=160, unsure=20, silent=0, guide=None)
    >>> def make():
    ...     return confide.POP(SplitVote(), plan, labels=[0, 1], features=2, after_halt="raise")
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
    return audit_game(game, games, **options)


@dataclass(frozen=True)
class Terms:
    """What an audit is held to, fixed before the first game.

    Parameters
    ----------
    certificate
        What is promised, to compare with; a plan gives the whole region that its tables certify.
    delta
        δ at which ε is bounded.
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
    alarm
        Probability of a false alarm: half for the certificate, half for the laws where they are known.
    """

    certificate: Region | Plan | Guarantee | tuple[float, float] | None = None
    delta: float = 1e-6
    confidence: float = 0.99
    training: float = 0.3
    learned: bool = False
    yardstick: Curve | None = None
    alarm: float = ALARM

    def __post_init__(self) -> None:
        check_delta(self.delta)
        for name in ("confidence", "training", "alarm"):
            probability(getattr(self, name), name)

    @cached_property
    def region(self) -> Region | None:
        """The certified region."""
        given = self.certificate
        return given if given is None or isinstance(given, Region) else Region.of(given)


def audit_game(
    game: Game,
    games: int,
    *,
    workers: int | None = 1,
    folder: Path | str | None = None,
    name: str = "audit",
    progress: bool = False,
    **terms: Any,
) -> Report:
    """The same for any of the games.

    Parameters
    ----------
    workers
        Processes; None for all cores.
    folder
        Where finished batches are kept: the same call goes on where it was stopped. Other games, mechanisms, tables or
        code have a place of their own in it, and are played anew.
    progress
        Show a bar.
    terms
        See `Terms`.
    """
    held, games = Terms(**terms), integer(games, "games", 20)
    where = None if folder is None else Path(folder)
    rows = play_many(game, games, learned=held.learned, workers=workers, folder=where, name=name, progress=progress)
    zero, one = (np.concatenate(part) for part in rows)
    law, laws = (None, ()) if held.learned else _laws(game.adversary)
    return _report(name, game.adversary, zero, one, law, laws, held)


def _report(
    name: str, adversary: Any, zero: Floats, one: Floats, law: Curve | None, laws: tuple[Law, ...], terms: Terms
) -> Report:
    region, failure, level = terms.region, 1 - terms.confidence, terms.alarm / (2 if laws else 1)
    test = _test(zero, one, law, hasattr(adversary, "score") and not terms.learned, terms)
    sounded = None if region is None else _alarm(region, measure(test.choices, test.zero, test.one, level, joint=False))
    repeated, alarms = _repeat(test, law, terms, level)
    return Report(
        name=name,
        adversary=repr(adversary),
        games=len(test.zero),
        training=test.training,
        confidence=terms.confidence,
        delta=terms.delta,
        points=tuple(measure(test.choices, test.zero, test.one, failure)),
        gaussian_epsilon=_gaussian(test.zero, test.one, terms.delta),
        region=region,
        certified=None if region is None else _pair(region, terms.delta),
        law=law,
        yardstick=law if terms.yardstick is None else terms.yardstick,
        alarm=sounded is not None,
        alarm_point=sounded,
        misfit=misfit(laws, zero, one, level) if laws else None,
        alarm_level=terms.alarm,
        repetitions=tuple(repeated),
        repetition_alarms=alarms,
    )


@dataclass(frozen=True)
class _Test:
    """Scores of the games that are tested, and the tests, which come from elsewhere."""

    zero: Floats
    one: Floats
    choices: list[Choice]
    training: int


def _laws(adversary: Any) -> tuple[Curve | None, tuple[Law, ...]]:
    """The exact law of the score, and those of all numbers, where the adversary knows them."""
    law = adversary.law() if hasattr(adversary, "law") else None
    return law, adversary.laws() if law is not None and hasattr(adversary, "laws") else ()


def _test(zero: Floats, one: Floats, law: Curve | None, scored: bool, terms: Terms) -> _Test:
    if law is not None:
        return _Test(zero[:, 0], one[:, 0], planned(law, len(zero), terms), 0)
    used = max(10, round(len(zero) * terms.training))
    return _Test(*_learned(zero, one, used, scored, 1 - terms.confidence, terms.delta), used)


def planned(law: Curve, games: int, terms: Terms) -> list[Choice]:
    """The tests of an audit whose score has this law: known before its first game."""
    thresholds = np.unique(law.scores)
    return both_ways(choose(thresholds, *law.tails(thresholds), games, 1 - terms.confidence, terms.delta))


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
    choices = choose(thresholds, tails[0], tails[1], len(test0), failure, delta)
    return scores[2], scores[3], both_ways(choices) if scored else choices


def _repeat(test: _Test, law: Curve | None, terms: Terms, level: float) -> tuple[list[float], int]:
    """The same audit on each hundredth of the games: its bounds on ε, and the alarms."""
    games, region, failure = min(test.zero.size, test.one.size) // PARTS, terms.region, 1 - terms.confidence
    if games < 20:
        return [], 0
    choices = test.choices if law is None else planned(law, games, terms)
    bounds, alarms = [], 0
    for part in range(PARTS):
        here = slice(part * games, (part + 1) * games)
        zero, one = test.zero[here], test.one[here]
        bounds.append(max(point.epsilon(terms.delta) for point in measure(choices, zero, one, failure)))
        alarms += region is not None and _alarm(region, measure(choices, zero, one, level, joint=False)) is not None
    return bounds, alarms


def _alarm(region: Region, points: list[Point]) -> Point | None:
    """A point that lies outside the region, if there is one: the points hold together but for the alarm's level."""
    outside = [point for point in points if not region.holds(point.false, point.true)]
    return max(outside, key=lambda point: point.true - region.power(point.false), default=None)


def _pair(region: Region, delta: float) -> tuple[float, float]:
    """The smallest certified ε at this δ (or at the smallest δ above it)."""
    enough = [pair for pair in region.pairs if pair[1] <= delta * (1 + 1e-9)]
    return min(enough) if enough else min(region.pairs, key=lambda pair: pair[1])


def _gaussian(zero: Floats, one: Floats, delta: float) -> float:
    """ε at δ of two unit Gaussians as far apart as the scores' means are in standard deviations."""
    spread = math.sqrt((np.var(zero) + np.var(one)) / 2)
    mu = min(abs(float(one.mean() - zero.mean())) / spread, MOST_MU) if spread > 0 else 0.0
    return epsilon_of(delta, Fraction(mu) ** 2, (_SMOOTH,)) if mu > 1e-9 else 0.0
