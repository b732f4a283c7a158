"""The audits that `confide audit` runs: mechanisms, adversaries, certificates, and how many games each needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

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
    given: dict[str, Any] = {"unsure": unsure, "copies": copies, "polls": polls, "silent": silent, "lean": lean}
    return Plan.tight(epsilon, DELTA, rounds, **given, unit_unsure=unit_unsure, beta=BETA, guide=None)


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


def _margin(
    *numbers: Any,
    best: bool = False,
    units: Literal["rounds", "people"] = "rounds",
    group: int = 1,
    how: Mapping[str, Any] = MappingProxyType({}),
    **planned: Any,
) -> Prepared:
    """The worst margin against a plan of these numbers: asked for where it is best, or near it."""
    plan = split_plan(*numbers, **planned)
    exact, ones = yardstick(plan) if group == 1 else yardstick(plan, shift=group, step=group)
    adversary = WorstMargin(plan, ones=ones if best else _near(plan), **how)
    game = OnlineGame(SplitPOP(plan, units), adversary, plan.rounds, challenges=group)
    return Prepared(game, Region.of(plan) if group == 1 else Region.of(plan).of_group(group), exact)


def _late(most: int, rounds: int, *numbers: Any, **planned: Any) -> Prepared:
    """A person of so many rounds, whose labels all come after them."""
    how = {"challenges": rounds, "person": True, "late": True}
    return _margin(*numbers, unit_unsure=most, units="people", how=how, **planned)


def _leaning(epsilon: float, unsure: int, rounds: int, copies: int) -> Prepared:
    plan = split_plan(epsilon, unsure, rounds, copies, lean="fill")
    exact, ones = lean_yardstick(plan)
    return Prepared(OnlineGame(SplitPOP(plan), WorstLean(plan, ones=ones), rounds), Region.of(plan), exact)


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
    """Nine numbers a person, of which the third decides: in its outer thirds the label is 1."""
    plan, xs = split_plan(8.0, 100, 400, 160), np.random.default_rng(0).uniform(size=(2001, 9))
    ys = (np.abs(xs[:, 2] - 0.5) > 1 / 6).astype(int)
    wrong = (xs[-1], 1 - ys[-1])
    attack = Membership(xs[:-1], ys[:-1], [wrong] * 10, np.tile(xs[-1], (20, 1)), people=True)
    game = OnlineGame(TaughtPOP(plan, 9), attack, 100)
    return Prepared(game, Region.of(plan), None)


_POLLED = (8.0, 100, 800, 400)
_SILENT: dict[str, Any] = {"polls": 101, "silent": 320}

SCENARIOS = (
    Scenario("worst margin, eps 1", "eps1", 100_000, 1200, partial(_margin, 1.0, 100, 800, 1000)),
    Scenario("worst margin, eps 2", "eps2", 40_000, 1200, partial(_margin, 2.0, 100, 800, 500)),
    Scenario("worst margin, eps 4", "eps4", 220_000, 1500, partial(_margin, 4.0, 300, 1200, 400)),
    Scenario("worst margin, eps 8", "eps8", 140_000, 1500, partial(_margin, 8.0, 400, 1600, 200)),
    Scenario("worst lean, eps 1", "lean1", 60_000, 1200, partial(_leaning, 1.0, 100, 700, 1200)),
    Scenario("worst lean, eps 4", "lean4", 20_000, 1200, partial(_leaning, 4.0, 200, 500, 400)),
    Scenario("worst lean, eps 8", "lean8", 20_000, 1200, partial(_leaning, 8.0, 300, 600, 240)),
    Scenario("opposite labels of a guide, eps 1", "guide1", 60_000, 1200, partial(_opposite, 1.0, 1)),
    Scenario("opposite labels of a guide, eps 4", "guide4", 20_000, 1200, partial(_opposite, 4.0, 1)),
    Scenario("opposite labels of a guide, eps 8", "guide8", 20_000, 1200, partial(_opposite, 8.0, 1)),
    Scenario("person of 4 labels against a guide, eps 4", "guided4", 20_000, 1200, partial(_opposite, 4.0, 4)),
    Scenario("last drop, eps 8", "drop8", 20_000, 500, _last_drop),
    Scenario("membership in a stream, eps 8", "member8", 3000, 150, _membership),
    Scenario("group of 3, eps 1 each", "group3", 20_000, 500,
             partial(_margin, 1.0, 100, 800, 1000, group=3, how={"challenges": 3})),
    Scenario("composition of 3, eps 1 each", "composition3", 10_000, 300, partial(_composition, 3)),
    Scenario("person of 50 rounds, G = 1, eps 4", "person1", 10_000, 300, partial(_late, 1, 50, 4.0, 100, 900, 400)),
    Scenario("person of 50 rounds, G = 3, eps 4", "person3", 10_000, 300, partial(_late, 3, 50, 4.0, 100, 900, 400)),
    Scenario("person of 50 rounds, G = 10, eps 4", "person10", 10_000, 300, partial(_late, 10, 50, 4.0, 100, 900, 400)),
    Scenario("polls of 101 of 400, silence, eps 8", "polls8", 20_000, 500,
             partial(_margin, *_POLLED, best=True, **_SILENT)),
    Scenario("person of 20 rounds, polls, silence, G = 3, eps 8", "people8", 10_000, 300,
             partial(_late, 3, 20, *_POLLED, best=True, **_SILENT)),
    Scenario("person in a batch of others, silence, eps 8", "batch8", 20_000, 500,
             partial(_margin, 8.0, 100, 800, 160, silent=320, units="people", how={"person": True, "together": True})),
)  # fmt: skip
