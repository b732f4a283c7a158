"""Games against the doubles: for each a promise, a maker of mechanisms (broken or correct), and an adversary.

`confide.games.audit_game` plays a fresh mechanism many times at both bits and raises its alarm, at level 10⁻⁶, when a
measured test lies outside the region that was promised. The same hunt on the correct mechanism must stay silent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide import POP, Plan
from confide.games import BOTTOM, Batch, OnlineGame, Region, Report, Round, View, audit_game
from confide.games.others import AdaptiveQuery, OnData, Query, Start
from confide.learners import LogisticRegression, Points
from confide.planning.copies import Copies
from confide.planning.design import certify
from confide.planning.promise import Promise
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.random import Random
from confide.privacy.renyi import delta_from_renyi
from confide.privacy.sparse import AboveThreshold, threshold_cost
from tests.broken import coins, compiled, leans, tables
from tests.broken.variants import VARIANTS, SparseVector

Moves = Generator[Any, Any, None]

# ---------------------------------------------------------------------- adversaries against POP


def _seen(view: View) -> list[Any]:
    return [answer for answer in view.answers if answer is not BOTTOM]


@dataclass(frozen=True)
class Unanimous:
    """All copies of `Points` vote 0; the unit's votes with them, or against them. How often is the gate unsure?"""

    rounds: int

    def play(self, coins: Any) -> Moves:
        yield Round(([8.0], 1), ([7.0], 1), challenge=True)
        yield Batch(np.full((self.rounds, 1), 7.0))

    def score(self, view: View) -> float:
        return sum(1.0 for answer in _seen(view) if not answer.sure)


@dataclass(frozen=True)
class Likely(Unanimous):
    """The same, where sure answers count too: the odds of a table's two entries."""

    without: float
    """P(unsure) where the unit's copy votes with the others."""
    against: float
    cut: float | None = None
    """Where given, only whether the odds are beyond this."""

    def score(self, view: View) -> float:
        unsure = super().score(view)
        sure = len(_seen(view)) - unsure
        odds = unsure * math.log(self.against / self.without)
        odds += sure * math.log((1 - self.against) / (1 - self.without))
        return odds if self.cut is None else float(odds > self.cut)


@dataclass(frozen=True)
class Dissent(Unanimous):
    """The same, and the question is whether the one vote against all others is ever the answer."""

    def score(self, view: View) -> float:
        return sum(1.0 for answer in _seen(view) if answer.sure and answer.label == 1)


@dataclass(frozen=True)
class Ties(Dissent):
    """Only the unit's copy votes, all others abstain, so every round is a near-tie: is its label ever shown?"""

    def play(self, coins: Any) -> Moves:
        yield Round(([1.0], 0), ([1.0], 1), challenge=True)
        for _ in range(self.rounds // 50):
            yield Batch(np.full((50, 1), 1.0))
        for _ in range(self.rounds % 50):
            yield Round(([1.0], None))


@dataclass(frozen=True)
class LastUnsure:
    """One unsure answer is left when the unit asks: does its round end the run? A malformed question is not counted."""

    at: int

    def play(self, coins: Any) -> Moves:
        for _ in range(1 + self.at):  # the first round is silent
            yield Round(([1.0], None))
        yield Round((["x"], None), ([1.0], None), challenge=True)

    def score(self, view: View) -> float:
        return float(view.halted and view.answers[-1] is BOTTOM)


# ---------------------------------------------------------------------- queries


def _pair(zero: int, one: int) -> Query:
    """A query of sensitivity 1 whose value depends on the one person in the data, who is 0 or 1."""
    assert abs(zero - one) <= 1
    return Query(lambda data: (zero, one)[data[0]])


_START = Start([0], [1])


@dataclass(frozen=True)
class Constant:
    """The same query, at the threshold or one below it, until the last report: how many answers does it take?"""

    most: int

    def play(self, coins: Any) -> Moves:
        yield _START
        for _ in range(self.most):
            yield _pair(0, -1)

    def score(self, view: View) -> float:
        return float(len(view.answers))


@dataclass(frozen=True)
class Revealed:
    """A shown value bounds the threshold's noise from above, and then every answer before it tells of its query."""

    before: int = 5

    def play(self, coins: Any) -> Moves:
        yield _START
        for _ in range(self.before):
            yield _pair(0, -1)
        yield _pair(-1, 0)

    def score(self, view: View) -> float:
        *first, last = view.answers or [None]
        return float(len(first) == self.before and last is not None and int(last) <= 0)


@dataclass(frozen=True)
class Swap:
    """Two values change places: without noise of their own, "below, then above" is possible for one order only."""

    def play(self, coins: Any) -> Moves:
        yield _START
        yield _pair(1, 0)
        yield _pair(0, 1)

    def score(self, view: View) -> float:
        return float(len(view.answers) == 2 and view.answers[0] is None and view.answers[1] is not None)


@dataclass(frozen=True)
class Contrast:
    """At each level many queries that would move up and as many that would move down: the threshold's noise cancels."""

    levels: tuple[int, ...] = (-3, -2, -1, 0, 1, 2, 3)
    times: int = 10

    def play(self, coins: Any) -> Moves:
        yield _START
        for level in self.levels:
            for _ in range(self.times):
                yield _pair(level + 1, level)
                yield _pair(level - 1, level)

    def score(self, view: View) -> float:
        reports = [answer is not None for answer in view.answers]
        return float(sum(reports[1::2]) - sum(reports[::2]))


@dataclass(frozen=True)
class Rising(Contrast):
    """The same from far below: reports are rare there, and nearly all of them come from the queries that moved up."""

    levels: tuple[int, ...] = tuple(range(-9, 12))


# ---------------------------------------------------------------------- plans


def make_plan(
    gate: Gate, halting: Halting, *, order: int, delta: float, copies: int, polls: int, rounds: int, unsure: int,
    silent: int,
) -> Plan:  # fmt: skip
    """A plan with these tables, and what they certify."""
    got = certify(gate, halting, order=order, delta=delta, poll_fraction=Fraction(polls, copies))
    beta = max(0.01, rounds * float(halting.table[: unsure + 1].max()))  # they halt early, and say so
    part = Copies(copies, polls, unsure, silent, halting.shift, 2, order, beta, gate, halting)
    return Plan(Promise(got.epsilon, got.delta, rounds), (part,), "tight")


@functools.cache
def full_plan() -> Plan:
    """Every copy is asked, and all of them agreeing is a margin at which the gate is unsure half of the time."""
    halting = Halting.best(order=4, cost=0.2, unsure=2, start=0.03, survive=0.005)
    gate = Gate.best(order=4, cost=0.02, tie_sure=0.03 / halting.visible)
    copies = int(np.argmax(gate.table <= 0.5)) + 2
    gate = Gate.from_integers(gate.sure[: copies + 1])
    return make_plan(gate, halting, order=4, delta=0.05, copies=copies, polls=copies, rounds=1000, unsure=2, silent=1)


@functools.cache
def polled_plan() -> Plan:
    """A tenth of the copies is asked, so that a vote is worth ten times as much in a poll that stays."""
    halting = Halting.best(order=4, cost=0.1, unsure=10, start=1e-3, survive=0.002)
    gate = Gate.best(order=4, cost=0.02, poll_fraction=Fraction(1, 10), margins=10, tie_sure=0.002 / halting.visible)
    return make_plan(gate, halting, order=4, delta=0.02, copies=100, polls=10, rounds=100, unsure=10, silent=1)


LAPLACE = {"scale": 8.0, "threshold": 77.0, "margins": 154}


@functools.cache
def laplace_plan() -> Plan:
    """The paper's noise in the gate: all copies agreeing is unsure half of the time."""
    halting = Halting.best(order=3, cost=0.1, unsure=20, start=3e-3, survive=0.002)
    gate = Gate.laplace(**LAPLACE)  # type: ignore[arg-type]
    return make_plan(gate, halting, order=3, delta=0.02, copies=154, polls=154, rounds=200, unsure=20, silent=1)


PAPER = 2.0, 0.05, 8
"""ε, δ and rounds of the paper's own plan."""


@functools.cache
def paper_plan() -> Plan:
    return Plan.paper(*PAPER, 1, copies=1032, unsure=1)


@functools.cache
def threshold() -> AboveThreshold:
    return AboveThreshold(epsilon=2.0, delta=0.05, threshold=0, reports=10, rng=Random(seed=1))


@functools.cache
def threshold_region() -> Region:
    """Everything that is certified of AboveThreshold's table, at several Rényi orders."""
    sparse, pairs = threshold(), []
    for epsilon in (0.1 * i for i in range(40)):
        costs = [(order, sparse.reports * threshold_cost(sparse.scale, order=order)) for order in (2, 3, 4, 6)]
        pairs.append((epsilon, min(delta_from_renyi(cost, order, epsilon) for order, cost in costs)))
    return Region(((sparse.epsilon, sparse.delta), *pairs))


# ---------------------------------------------------------------------- hunts

QUERIES = 1000
"""The most queries of a game."""


@dataclass(frozen=True)
class Hunt:
    """How one double is caught by playing."""

    name: str
    promise: Callable[[], Region]
    make: Callable[[bool, Random], Any]
    adversary: Any
    games: int
    """At each bit."""
    rounds: int = 0
    """Of an OnlineGame; 0 for queries."""
    slow: bool = False
    """Too slow for the tests, where the double is caught in another way; played by benchmarks/tables.py."""

    def run(self, seed: int, broken: bool = True, games: int | None = None) -> Report:
        rng = Random(seed=seed)
        game: Any
        if self.rounds:
            game = OnlineGame(lambda: self.make(broken, rng), self.adversary, self.rounds)
        else:
            game = AdaptiveQuery(lambda data: OnData(data, self.make(broken, rng)), self.adversary, QUERIES)
        return audit_game(game, games or self.games, certificate=self.promise(), delta=0.01, name=self.name)


@functools.cache
def _region(plan: Callable[[], Plan]) -> Region:
    plan().verify()
    return Region.of(plan())


def _pop(plan: Plan, rng: Random, kind: type[POP], learner: Any) -> POP:
    return kind(learner, plan, labels=[0, 1], features=1, fallback=0, seed=rng.below(1 << 62))


def _tables(plan: Callable[[], Plan], change: Callable[[Plan], Plan], learner: Any) -> Callable[[bool, Random], POP]:
    """POPs with the plan's tables or, broken, with those that `change` makes of them."""
    both = functools.cache(lambda broken: change(plan()) if broken else tables.unchecked(plan()))
    return lambda broken, rng: _pop(both(broken), rng, POP, learner)


def _kinds(plan: Callable[[], Plan], kind: type[POP], learner: Any) -> Callable[[bool, Random], POP]:
    """POPs or, broken, another kind of them."""
    whole = functools.cache(lambda: tables.unchecked(plan()))
    return lambda broken, rng: _pop(whole(), rng, kind if broken else POP, learner)


def _threshold(broken: bool, rng: Random) -> AboveThreshold:
    made = AboveThreshold.__new__(AboveThreshold)  # the search for the scale is the same each time: done once
    vars(made).update(vars(threshold()), _rng=rng)
    return tables.half_noise(made) if broken else made


def _hunt(name: str, plan: Callable[[], Plan], make: Any, adversary: Any, games: int, **more: Any) -> Hunt:
    rounds = getattr(adversary, "rounds", 4) + 1
    return Hunt(name, lambda: _region(plan), make, adversary, games, rounds, **more)


def _likely(plan: Plan, table: Any, rounds: int, cut: float | None = None) -> Likely:
    """The adversary that knows this table."""
    return Likely(rounds, float(table[plan.polls]), float(table[plan.polls - 2]), cut)


EPSILON = Fraction(2)
"""What each variant of the sparse vector technique promises."""


def sparse_vector(number: int, adversary: Any, reports: int, games: int, sound: int = 1) -> Hunt:
    """A variant by its number, with the private one of number `sound` as the correct mechanism."""

    def make(broken: bool, rng: Random) -> SparseVector:
        return SparseVector(VARIANTS[number if broken else sound], EPSILON, reports, rng)

    promise = Region(((float(EPSILON), 0.0),))
    return Hunt(f"sparse vector technique, variant {number}", lambda: promise, make, adversary, games)


def _halved(plan: Plan) -> Plan:
    return tables.half_scale(plan, **LAPLACE)


def hunts() -> list[Hunt]:
    """Every double that is caught by playing."""
    full, polled = full_plan(), polled_plan()
    points, abstaining = Points(), LogisticRegression()
    return [
        Hunt("noise of half the scale (AboveThreshold)", threshold_region, _threshold, Constant(60), 6000),
        _hunt(
            "noise of half the scale (POP's gate)",
            laplace_plan,
            _tables(laplace_plan, _halved, points),
            _likely(laplace_plan(), _halved(laplace_plan()).gate.table, rounds=98),
            8000,
            slow=True,
        ),
        _hunt(
            "one table entry too steep",
            full_plan,
            _tables(full_plan, lambda plan: tables.steep_entry(plan, plan.copies), points),
            Unanimous(12),
            200,
        ),
        _hunt("halting ignored", full_plan, _tables(full_plan, tables.halting_ignored, abstaining), Ties(400), 350),
        _hunt(
            "the exact count instead of the halting gate",
            full_plan,
            _tables(full_plan, tables.exact_count, abstaining),
            LastUnsure(full.unsure - 1),
            200,
        ),
        _hunt(
            "the same poll in every round",
            polled_plan,
            _kinds(polled_plan, coins.SamePoll, points),
            _likely(polled, polled.gate.table, rounds=50, cut=4.8),
            5000,
            slow=True,
        ),
        _hunt(
            "one poll for a whole batch",
            polled_plan,
            _kinds(polled_plan, coins.OnePollABatch, points),
            _likely(polled, polled.gate.table, rounds=50, cut=4.8),
            5000,
            slow=True,
        ),
        _hunt(
            "k = 1 with the paper's majority",
            paper_plan,
            lambda broken, rng: _pop(_paper(broken), rng, POP, points),
            Dissent(6),
            250,
        ),
        _hunt(
            "the wrong inequality", full_plan, _kinds(full_plan, coins.WrongInequality, abstaining), Ties(1), 200
        ),
        _hunt(
            "the wrong inequality, compiled",
            full_plan,
            _kinds(full_plan, compiled.WrongInequalityCompiled, abstaining),
            Ties(50),
            200,
        ),
        sparse_vector(3, Revealed(), 1, 10_000),
        sparse_vector(4, Rising(), 20, 400),
        sparse_vector(5, Swap(), 1, 3000),
        sparse_vector(6, Contrast(), 1, 400),
    ]


# ---------------------------------------------------------------------- leans that cost more than they say


@functools.cache
def leaning(labels: int) -> Plan:
    return Plan.tight(
        4.0, 1e-6, 20_000, copies=800, polls=101, unsure=500, silent=8000, guide=None, lean="additive", labels=labels
    )


REFUSED: dict[str, tuple[Callable[[Plan], Plan], int]] = {
    "w = q for the lean's mixture": (leans.by_polls, 2),
    "w = q for the lean's mixture, three labels": (leans.by_polls, 3),
    "γ of the lean halved": (leans.half_width, 2),
    "γ of the lean halved, three labels": (leans.half_width, 3),
    "λ over pairs with the same top only": (leans.same_top, 2),
}
"""Doubles that the certificate refuses: what is broken, and of how many labels."""


def refused(name: str) -> str:
    """What `Plan.verify` says of a double that claims what the right tables keep."""
    double, labels = REFUSED[name]
    right = leaning(labels)
    right.verify()
    wrong = double(right)
    assert wrong.guarantee == right.guarantee and wrong.lean != right.lean
    try:
        Plan.verify(wrong)
    except ValueError as said:
        return str(said)
    return ""


@functools.cache
def _paper(broken: bool) -> Plan:
    return tables.one_copy(*PAPER) if broken else tables.unchecked(paper_plan())
