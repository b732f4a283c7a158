"""The audits that `confide audit` runs: mechanisms, adversaries, certificates, and how many games each needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from confide.data.datasets import open_stream
from confide.games.adversaries import LastDrop, WorstMargin
from confide.games.auditor import audit_game
from confide.games.gradients import OppositeLabels
from confide.games.laws import Curve, unsure_share, yardstick
from confide.games.meta import Membership, Repeated
from confide.games.others import CompositionGame
from confide.games.play import OnlineGame
from confide.games.region import Region
from confide.games.report import ALARM, Report
from confide.games.split import SplitVote
from confide.games.worst_lean import WorstLean, lean_yardstick
from confide.learners import LogisticRegression
from confide.planning.guided import GuidePlan
from confide.planning.plan import Plan
from confide.planning.promise import Promise
from confide.pop.pop import POP

__all__ = [
    "SCENARIOS", "GuidedPOP", "Prepared", "Scenario", "SplitPOP", "TaughtPOP", "guide_plan", "split_plan",
]  # fmt: skip

DELTA = 1e-6
"""δ of every plan here."""

BETA = 1e-3
"""Early halts: an attack loses next to nothing by them."""

SLACK = 1e-6
"""δ' of the composition theorem."""


@dataclass(frozen=True)
class SplitPOP:
    """Makes POPs of `SplitVote` copies, in this process or another one."""

    plan: Plan
    units: Literal["rounds", "people"] = "rounds"

    def __call__(self) -> POP:
        return POP(SplitVote(), self.plan, labels=[0, 1], features=2, fallback=0, units=self.units, after_halt="raise")


@dataclass(frozen=True)
class Prepared:
    """An audit ready to run."""

    game: Any
    region: Region
    exact: Curve | None
    """The yardstick's exact curve."""


@dataclass(frozen=True)
class Scenario:
    """One audit: `games` at each bit, `quick` for a first look."""

    name: str
    key: str
    """Its folder and files."""
    games: int
    quick: int
    prepare: Callable[[], Prepared]

    def run(
        self,
        *,
        quick: bool = False,
        folder: Path | None = None,
        workers: int | None = None,
        progress: bool = False,
        times: float = 1.0,
        alarm: float = ALARM,
    ) -> Report:
        """Play it, `times` its number of games, at this level of alarm; with a folder go on with what is there."""
        ready = self.prepare()
        return audit_game(
            ready.game,
            max(40, round(times * (self.quick if quick else self.games))),
            certificate=ready.region,
            yardstick=ready.exact,
            alarm=alarm,
            workers=workers,
            folder=None if folder is None else folder / (self.key + ("-quick" if quick else "")),
            name=self.name,
            progress=progress,
        )


def split_plan(
    epsilon: float,
    unsure: int,
    rounds: int,
    copies: int,
    unit_unsure: int = 1,
    polls: int | None = None,
    silent: int = 0,
    lean: Literal["fill", "additive"] | None = None,
) -> Plan:
    """A plan to attack, δ = 10⁻⁶: unless said otherwise every copy is polled, and there is no silent start."""
    polls = copies if polls is None else polls
    return Plan.tight(
        epsilon,
        DELTA,
        rounds,
        unsure=unsure,
        copies=copies,
        polls=polls,
        silent=silent,
        unit_unsure=unit_unsure,
        beta=BETA,
        guide=None,
        lean=lean,
    )


@dataclass(frozen=True)
class GuidedPOP:
    """Makes POPs whose guide answers alone."""

    plan: Plan
    units: Literal["rounds", "people"] = "rounds"
    label_weights: tuple[float, float] | None = None

    def __call__(self) -> POP:
        return POP(
            None, self.plan, labels=[0, 1], features=1, fallback=0, units=self.units, label_weights=self.label_weights
        )


def guide_plan(epsilon: float, labels: int = 1, rounds: int = 33, leaf: int = 8) -> Plan:
    """A guide alone to attack, δ = 10⁻⁶, that counts no ranges: few and short leaves, since the first is the worst."""
    usual = GuidePlan.best(epsilon, DELTA, rounds, unit_labels=labels, private_ranges=False)
    short = replace(usual, leaf=leaf, leaves=-(-rounds // leaf), growth=0)
    guide = replace(short, sigma2=-(-usual.sigma2 * short.load // usual.load))
    return Plan(Promise(guide.epsilon(DELTA), DELTA, rounds, unit_labels=labels), (guide,), "tight")


def _opposite(epsilon: float, labels: int) -> Prepared:
    plan, person = guide_plan(epsilon, labels), labels > 1
    adversary = OppositeLabels(plan, person)
    game = OnlineGame(GuidedPOP(plan, "people" if person else "rounds"), adversary, plan.rounds)
    return Prepared(game, Region.of(plan), adversary.law())


def _near(plan: Plan) -> int:
    """Copies to ask for where four of five answers are unsure: about as good as the best place, with fewer rounds."""
    return next(ones for ones in range(plan.copies, plan.copies // 2, -1) if unsure_share(plan, ones) >= 0.8)


def _worst(epsilon: float, unsure: int, rounds: int, copies: int) -> Prepared:
    plan = split_plan(epsilon, unsure, rounds, copies)
    game = OnlineGame(SplitPOP(plan), WorstMargin(plan, ones=_near(plan)), rounds)
    return Prepared(game, Region.of(plan), yardstick(plan)[0])


def _leaning(epsilon: float, unsure: int, rounds: int, copies: int) -> Prepared:
    plan = split_plan(epsilon, unsure, rounds, copies, lean="fill")
    exact, ones = lean_yardstick(plan)
    return Prepared(OnlineGame(SplitPOP(plan), WorstLean(plan, ones=ones), rounds), Region.of(plan), exact)


def _group(size: int) -> Prepared:
    plan = split_plan(1.0, 100, 800, 1000)
    adversary = WorstMargin(plan, ones=_near(plan), challenges=size)
    game = OnlineGame(SplitPOP(plan), adversary, plan.rounds, challenges=size)
    return Prepared(game, Region.of(plan).of_group(size), yardstick(plan, shift=size, step=size)[0])


def _person(most: int) -> Prepared:
    plan = split_plan(4.0, 100, 900, 400, unit_unsure=most)
    adversary = WorstMargin(plan, ones=_near(plan), challenges=50, person=True, late=True)
    game = OnlineGame(SplitPOP(plan, "people"), adversary, plan.rounds, challenges=1)
    return Prepared(game, Region.of(plan), yardstick(plan)[0])


def _polls() -> Prepared:
    plan = split_plan(8.0, 100, 800, 400, polls=101, silent=320)
    exact, ones = yardstick(plan)
    return Prepared(OnlineGame(SplitPOP(plan), WorstMargin(plan, ones=ones), plan.rounds), Region.of(plan), exact)


def _polled_person() -> Prepared:
    plan = split_plan(8.0, 100, 800, 400, unit_unsure=3, polls=101, silent=320)
    exact, ones = yardstick(plan)
    adversary = WorstMargin(plan, ones=ones, challenges=20, person=True, late=True)
    return Prepared(OnlineGame(SplitPOP(plan, "people"), adversary, plan.rounds), Region.of(plan), exact)


def _batch() -> Prepared:
    plan = split_plan(8.0, 100, 800, 160, silent=320)
    adversary = WorstMargin(plan, ones=_near(plan), person=True, together=True)
    game = OnlineGame(SplitPOP(plan, "people"), adversary, plan.rounds)
    return Prepared(game, Region.of(plan), yardstick(plan)[0])


def _composition(times: int) -> Prepared:
    plan = split_plan(1.0, 50, 500, 900)
    make, adversary = SplitPOP(plan), WorstMargin(plan, ones=_near(plan))
    game = CompositionGame(Repeated(make, adversary, times), times)
    return Prepared(game, Region.of(plan).of_composition(times, SLACK), None)


def _last_drop() -> Prepared:
    plan = split_plan(8.0, 20, 300, 160)
    return Prepared(OnlineGame(SplitPOP(plan), LastDrop(plan), plan.rounds), Region.of(plan), None)


@dataclass(frozen=True)
class TaughtPOP:
    """Makes POPs of logistic regressions for people."""

    plan: Plan
    features: int

    def __call__(self) -> POP:
        return POP(
            LogisticRegression(), self.plan, labels=[0, 1], features=self.features, units="people", after_halt="raise"
        )


def _membership() -> Prepared:
    plan = split_plan(8.0, 100, 400, 160)
    attack = Membership.of_stream(open_stream("agrawal", rows=2001), records=2000)
    game = OnlineGame(TaughtPOP(plan, 9), attack, 100)
    return Prepared(game, Region.of(plan), None)


SCENARIOS = (
    Scenario("worst margin, eps 1", "eps1", 100_000, 1200, partial(_worst, 1.0, 100, 800, 1000)),
    Scenario("worst margin, eps 2", "eps2", 40_000, 1200, partial(_worst, 2.0, 100, 800, 500)),
    Scenario("worst margin, eps 4", "eps4", 220_000, 1500, partial(_worst, 4.0, 300, 1200, 400)),
    Scenario("worst margin, eps 8", "eps8", 140_000, 1500, partial(_worst, 8.0, 400, 1600, 200)),
    Scenario("worst lean, eps 1", "lean1", 60_000, 1200, partial(_leaning, 1.0, 100, 700, 1200)),
    Scenario("worst lean, eps 4", "lean4", 20_000, 1200, partial(_leaning, 4.0, 200, 500, 400)),
    Scenario("worst lean, eps 8", "lean8", 20_000, 1200, partial(_leaning, 8.0, 300, 600, 240)),
    Scenario("opposite labels of a guide, eps 1", "guide1", 60_000, 1200, partial(_opposite, 1.0, 1)),
    Scenario("opposite labels of a guide, eps 4", "guide4", 20_000, 1200, partial(_opposite, 4.0, 1)),
    Scenario("opposite labels of a guide, eps 8", "guide8", 20_000, 1200, partial(_opposite, 8.0, 1)),
    Scenario("person of 4 labels against a guide, eps 4", "guided4", 20_000, 1200, partial(_opposite, 4.0, 4)),
    Scenario("last drop, eps 8", "drop8", 20_000, 500, _last_drop),
    Scenario("membership in a stream, eps 8", "member8", 3000, 150, _membership),
    Scenario("group of 3, eps 1 each", "group3", 20_000, 500, partial(_group, 3)),
    Scenario("composition of 3, eps 1 each", "composition3", 10_000, 300, partial(_composition, 3)),
    Scenario("person of 50 rounds, G = 1, eps 4", "person1", 10_000, 300, partial(_person, 1)),
    Scenario("person of 50 rounds, G = 3, eps 4", "person3", 10_000, 300, partial(_person, 3)),
    Scenario("person of 50 rounds, G = 10, eps 4", "person10", 10_000, 300, partial(_person, 10)),
    Scenario("polls of 101 of 400, silence, eps 8", "polls8", 20_000, 500, _polls),
    Scenario("person of 20 rounds, polls, silence, G = 3, eps 8", "people8", 10_000, 300, _polled_person),
    Scenario("person in a batch of others, silence, eps 8", "batch8", 20_000, 500, _batch),
)
