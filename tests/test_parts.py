"""A part is added in one file: it joins a plan, is priced, verified, saved, resumed, served, explained and attacked.

Two toys: both release, at public rounds, how many rows of the last block had a positive first number. One adds Gaussian
noise, so that a plan of it and a guide is converted exactly; one adds Laplace noise, which sends all to a Rényi order.
Nothing in Confide knows either.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide._checks import Numbers, integer
from confide.errors import StateError
from confide.games import audit
from confide.games.moves import Batch, Round, View
from confide.planning.guided import GuidePlan
from confide.planning.parts import Cap, Part, Price, price_of
from confide.planning.promise import Promise
from confide.pop.base import SOURCES
from confide.pop.running import Released, Running
from confide.pop.several import Parts
from confide.pop.state import check
from confide.privacy.draws import exact_gaussian
from confide.privacy.exact import Noise, delta_of
from confide.privacy.random import discrete_laplace
from confide.privacy.renyi import epsilon_from_renyi
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk

pytestmark = pytest.mark.claim("parts.md")

# ---------------------------------------------------------------------- the two toys: a part, and how it runs

ROW = 1000
"""What a row adds to the count: exact accounting is proved for noise of a deviation of at least 100."""


@dataclass(frozen=True)
class Count(Part, Numbers, kind="toy-count"):
    """Counts of blocks of rounds, in units of 1/1000, with discrete Gaussian noise of this variance."""

    rounds: int
    block: int
    sigma2: int
    answers = "the count"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rounds", "block", "sigma2"):
            integer(getattr(self, name), name, at_least=1)

    def price(self) -> Price:
        """A round is in one block, and moves its count by at most ROW."""
        return Price(Fraction(ROW**2, self.sigma2), (Noise(self.rounds // self.block + 1, self.sigma2),))

    def check(self, promise: Promise) -> None:
        if self.rounds != promise.rounds or promise.units == "people":
            raise ValueError("the count was made for other rounds, or for rounds and not people: do not run this plan")

    @property
    def waits(self) -> int:
        return self.block

    def rows(self, plan: Plan) -> list[tuple[str, str]]:
        return [("count", f"one every {self.block:,} rounds")]

    def sentences(self, plan: Plan) -> list[str]:
        return ["The count says how many rows of the last block were positive."]

    def noise(self, rng: Any) -> int:
        return exact_gaussian(rng.below, self.sigma2, 1)


@dataclass(frozen=True)
class LaplaceCount(Count, kind="toy-laplace"):
    """The same with discrete Laplace noise of scale `sigma2`."""

    answers = ""

    def price(self) -> Price:
        """ε = ROW/b, so that D_α ≤ min(ε, α·ε²/2)."""
        epsilon = ROW / self.sigma2

        def curve(order: int) -> float:
            return math.nextafter(min(epsilon, order * epsilon**2 / 2) * (1 + 1e-14), math.inf)

        return Price(curve=curve)

    def noise(self, rng: Any) -> int:
        return discrete_laplace(rng, self.sigma2)


class Counting(Running, runs=Count):
    """Runs both."""

    source = "count"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.at, self.open, self.rows = 0, 0, list[tuple[int, int]]()

    def go_to(self, rounds: int) -> None:
        self.at = max(self.at, rounds)

    def begin(self) -> None:
        if self.at // self.part.block > len(self.rows):
            row = self.open + self.part.noise(self.rng), self.open
            self.keep("block", len(self.rows), *(np.array([one]) for one in row))
            self.rows.append(row)
            self.open = 0
        self.at += 1

    def encode(self, x: Any, who: bytes | None) -> bool:
        positive = bool(x[0] > 0)
        self.open += ROW * positive
        return positive

    def propose(self, question: Any) -> tuple[int, None]:
        return (int(2 * self.rows[-1][0] > ROW * self.part.block) if self.rows else -1), None

    def releases(self) -> tuple[Released, ...]:
        made = [(np.array(one).astype("<i8").tobytes() for one in row) for row in self.rows]
        return tuple((f"{self.part.kind}/block", i, *row) for i, row in enumerate(made))

    def resume(self, rounds: int, released: Sequence[Released]) -> int:
        self.rows = [tuple(int(np.frombuffer(row, "<i8")[0]) for row in one[2:]) for one in released]  # type: ignore[misc]
        self.at, self.open = max(rounds, len(self.rows) * self.part.block), 0
        return self.at


# ---------------------------------------------------------------------- plans with them

ROUNDS, DELTA = 400, 1e-4
GUIDE = GuidePlan.best(4.0, DELTA, ROUNDS, private_ranges=False)
PLANS: dict[str, Callable[[], tuple[Part, ...]]] = {
    "count": lambda: (Count(ROUNDS, 50, 9 * ROW**2),),
    "laplace": lambda: (LaplaceCount(ROUNDS, 50, 3 * ROW),),
    "guide and count": lambda: (GUIDE, Count(ROUNDS, 50, 9 * ROW**2)),
    "guide and laplace": lambda: (GUIDE, LaplaceCount(ROUNDS, 50, 3 * ROW)),
    "count first": lambda: (Count(ROUNDS, 50, 9 * ROW**2), GUIDE),
}


def plan_of(name: str, epsilon: float = 12.0) -> Plan:
    return Plan(Promise(epsilon, DELTA, ROUNDS), PLANS[name]())


def make(plan: Plan, **options: Any) -> POP:
    return POP(None, plan, labels=[0, 1], features=2, **{"fallback": 0, **options})


def stream(n: int, seed: int = 1) -> tuple[list[list[float]], list[int]]:
    rng = np.random.default_rng(seed)
    xs = rng.uniform(-1, 1, (n, 2)).tolist()
    return xs, [int(x[0] > 0) for x in xs]


def test_gaussian_parts_are_converted_exactly_and_one_other_sends_all_to_one_order() -> None:
    both = plan_of("guide and count")
    mu2 = GUIDE.mu2 + Fraction(1, 9)
    assert both.order is None and both.price().mu2 == mu2
    assert delta_of(both.guarantee.epsilon, mu2, both.price().noises) <= DELTA
    mixed = plan_of("guide and laplace")
    assert mixed.order is not None and mixed.price().mu2 is None
    parts = [part.price().at(mixed.order) for part in mixed.parts]
    assert mixed.guarantee.epsilon == pytest.approx(epsilon_from_renyi(sum(parts), mixed.order, DELTA), rel=1e-12)


def test_prices_about_different_things_are_never_added() -> None:
    @dataclass(frozen=True)
    class Labels(Count, kind="toy-labels"):
        protects = "labels"

    mixed = (Count(ROUNDS, 50, 9 * ROW**2), Labels(ROUNDS, 50, 9 * ROW**2))
    with pytest.raises(ValueError, match="do not add up"):
        price_of(mixed)
    with pytest.raises(ValueError, match="the promise is about rows"):
        Plan(Promise(4.0, DELTA, ROUNDS), mixed[1:]).verify()
    assert Plan(Promise(4.0, DELTA, ROUNDS, protect="labels"), mixed[1:]).verify().epsilon <= 4


@pytest.mark.parametrize("name", PLANS)
def test_a_part_is_verified_written_and_read_and_a_forged_one_is_refused(name: str) -> None:
    plan = plan_of(name)
    assert plan.verify() == plan.guarantee and Plan.from_json(plan.to_json()) == plan
    body = json.loads(plan.to_json())
    toy = next(part for part in body["parts"] if part["part"].startswith("toy"))
    less = toy["sigma2"] * 9 // 10
    for change in ({"sigma2": less}, {"sigma2": 0}, {"rounds": 401}, {"part": "toy-nothing"}, {"more": 1}):
        forged = json.loads(plan.to_json())
        next(part for part in forged["parts"] if part["part"].startswith("toy")).update(change)
        with pytest.raises(ValueError):
            Plan.from_json(json.dumps(forged))
    for other in (plan.but(guarantee=replace(plan.guarantee, epsilon=plan.guarantee.epsilon * 0.9)),
                  replace(plan, promise=replace(plan.promise, epsilon=plan.guarantee.epsilon * 0.9))):  # fmt: skip
        with pytest.raises(ValueError, match="do not run this plan"):
            other.verify()


@pytest.mark.parametrize("name", PLANS)
def test_a_part_is_explained(name: str) -> None:
    plan = plan_of(name)
    assert "one every 50 rounds" in str(plan) and "rows of the last block" in plan.explain()
    assert ("exactly" in str(plan)) is ("laplace" not in name)
    if name == "count":
        assert "The fallback answers the first 50 rounds; the count all others." in plan.explain()


@pytest.mark.parametrize("name", PLANS)
def test_one_by_one_and_in_batches_it_answers_alike(name: str) -> None:
    plan, (xs, ys) = plan_of(name), stream(ROUNDS)
    one, many, follow = (make(plan, seed=3) for _ in range(3))
    single = []
    for x, y in zip(xs, ys, strict=True):
        answer = one.predict(x)
        single.append((answer.label, answer.source))
        one.learn(answer.ticket, y)
    done = follow.follow_many(np.array(xs), np.array(ys))
    assert single == [(int(a), SOURCES[s]) for a, s in zip(done.answers, done.source, strict=True)]
    who = {"count": {"count"}, "laplace": {"count"}, "count first": {"guide", "count"}}.get(name, {"guide"})
    assert {source for _, source in single} == {"fallback"} | who
    for i in range(0, ROUNDS, 7):
        got = many.predict_many(xs[i : i + 7])
        many.learn_many([answer.ticket for answer in got], ys[i : i + 7])
    rows = [[row.tolist() for _, _, row in pop.released] for pop in (one, follow)]
    assert rows[0] == rows[1]
    toys = [[row.tolist() for part, _, row in pop.released if part.startswith("toy")] for pop in (one, many)]
    assert toys[0] == toys[1] and len(toys[0]) == (ROUNDS - 1) // 50


@pytest.mark.parametrize("name", PLANS)
def test_a_part_is_saved_and_resumed_and_its_ledger_is_checked(name: str, tmp_path: Path) -> None:
    plan, (xs, ys) = plan_of(name), stream(ROUNDS)
    pop = make(plan)
    pop.save(tmp_path / "s")
    for x, y in zip(xs[:130], ys[:130], strict=True):
        pop.learn(pop.predict(x).ticket, y)
    pop.save(tmp_path / "s")
    open_ticket = pop.predict(xs[130]).ticket
    pop.save(tmp_path / "s")
    before = [(part, number, row.tolist()) for part, number, row in pop.released]
    pop.close()
    found = check(tmp_path / "s")
    toy = next(part.kind for part in plan.public if part.kind.startswith("toy"))
    assert found.guarantee == plan.guarantee and found.parts[toy][0] == 2
    with POP.load(tmp_path / "s") as again:
        assert [(part, number, row.tolist()) for part, number, row in again.released] == before
        again.learn(open_ticket, ys[130])
        again.predict_many(xs[131:])
        assert sum(part.startswith("toy") for part, _, _ in again.released) == (ROUNDS - 1) // 50
        running = again.operator.loop.parts.get(Counting)
        assert running is not None
        running.rows[0] = running.rows[0][0] + 1, 0
        again.save(tmp_path / "s")
    with pytest.raises(StateError, match="not what was in use"):
        check(tmp_path / "s")


def open_leaf(pop: POP) -> list[int]:
    guiding = pop.operator.loop.guiding
    return [] if guiding is None else guiding.guide._leaves.open.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", PLANS)
def test_a_part_is_served_by_a_desk_and_comes_back_after_a_crash(name: str, tmp_path: Path) -> None:
    plan, (xs, ys) = plan_of(name), stream(ROUNDS)
    desk = PopDesk.open(tmp_path / "s", lambda: make(plan))
    tickets, who = [], Counter[str]()
    for i in range(120):
        asked = desk.ask([Question(f"ann{i}", "one", xs[i])])[0]
        assert asked.answer is not None
        who[asked.answer.source] += 1
        tickets.append((asked.answer.ticket, f"ann{i}"))
    desk.save()
    desk.learn([Taught(whose, ticket, ys[i]) for i, (ticket, whose) in enumerate(tickets)])
    before = [(part, number, row.tolist()) for part, number, row in desk.pop.released]
    taught = open_leaf(desk.pop)
    desk._book._release()  # the process is gone: nothing is saved
    again = PopDesk.open(tmp_path / "s", lambda: make(plan))
    assert [(part, number, row.tolist()) for part, number, row in again.pop.released] == before
    assert open_leaf(again.pop) == taught, "what was in no release is taught again, once"
    assert again.ask([Question("ann0", "one", xs[0])])[0].again
    assert again.public()["rounds"] == 120
    shares = {name: share for name, share in again.private()["shares"].items() if share}
    assert shares == {name: many / 120 for name, many in who.items()}, "each under the name of its part"
    again.close()


def test_a_plan_has_a_part_of_each_kind_once(tmp_path: Path) -> None:
    """Ledgers and journals name what was released by its part's kind: of two of one kind one would be lost."""
    for parts in ((GUIDE, GUIDE), (Count(ROUNDS, 50, 9 * ROW**2), GUIDE, Count(ROUNDS, 20, 9 * ROW**2))):
        twice = Plan(Promise(12.0, DELTA, ROUNDS), parts)
        with pytest.raises(ValueError, match="each kind once"):
            twice.verify()
        with pytest.raises(ValueError, match="each kind once"):
            Plan.from_json(twice.to_json())
        with pytest.raises(ValueError, match="each kind once"):
            make(twice)


@dataclass(frozen=True)
class Learned(Count, kind="toy-learned"):
    """Counts labels, of each person at most one."""

    def check(self, promise: Promise) -> None:
        pass

    @property
    def cap(self) -> Cap:
        return Cap(1, "1 label for the count", "adds at most 1 label to the count")


def test_two_parts_that_learn_from_labels_are_refused_for_people() -> None:
    """A person's labels have one counter: each would be counted twice, and the second part learn nothing of anybody."""
    plan = Plan(Promise(12.0, DELTA, ROUNDS), (GUIDE, Learned(ROUNDS, 50, 9 * ROW**2)))
    with pytest.raises(ValueError, match="two parts of this plan learn from labels"):
        make(plan, units="people")
    pop = make(plan, seed=1)  # a round has one label, and needs no counter
    pop.learn(pop.predict([1.0, 1.0]).ticket, 1)
    one = Plan(Promise(12.0, DELTA, ROUNDS), (GUIDE,))
    named = make(one, units="people", seed=1)
    for _ in range(2):
        named.learn(named.predict([1.0, 1.0], "ann").ticket, 1)
    assert named.operator.loop.account.labels == {named.operator.loop.routing.who("ann"): 1}


NOISE = (Noise(10**6, 10**12),)


@pytest.mark.parametrize(
    "price",
    [
        {"pure": -1.0},
        {"bad": Fraction(-1, 10**6)},
        {"bad": -1},
        {"part_of_delta": Fraction(-1, 4)},
        {"mu2": Fraction(1), "noises": NOISE, "pure": 0.5},
        {"mu2": Fraction(1), "noises": NOISE, "bad": Fraction(1, 10**7)},
        {"mu2": Fraction(1), "noises": NOISE, "part_of_delta": Fraction(1, 4)},
        {"mu2": Fraction(1), "noises": NOISE, "curve": lambda order: 1.0},
        {"mu2": Fraction(1), "noises": NOISE, "order": 8},
        {"mu2": Fraction(1)},
        {"bad": 1e-7},
    ],
    ids=lambda price: " ".join(price) if isinstance(price, dict) else None,
)
def test_a_price_that_would_not_be_counted_whole_is_refused(price: dict[str, Any]) -> None:
    """A negative one would pay for another part; what stands beside μ² would be left out of the exact conversion."""
    with pytest.raises(ValueError):
        Price(**price)


@pytest.mark.parametrize("value", [-0.1, math.nan, -math.inf])
def test_a_curve_that_is_no_divergence_is_refused_also_beside_a_larger_one(value: float) -> None:
    wrong, right = Price(curve=lambda order: value), Price(curve=lambda order: 5.0)
    for price in (wrong, right.plus(wrong), wrong.plus(Price(Fraction(1), NOISE))):
        with pytest.raises(ValueError):
            price.at(8)
        with pytest.raises(ValueError):
            price.epsilon(1e-6)


def test_what_is_durable_is_never_released_again_with_other_noise(tmp_path: Path) -> None:
    """An interrupt comes when the count is written; the part, asked again, draws anew: that would be two releases."""
    pop = make(plan_of("count"))
    pop.save(tmp_path / "s")
    xs, _ = stream(51)
    pop.predict_many(xs[:50])
    book = pop.operator.loop.account.book
    assert book is not None
    wait, book.wait = book.wait, interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pop.predict(xs[50])
    book.wait = wait  # type: ignore[method-assign]
    with pytest.raises(StateError, match="other noise"):
        pop.predict(xs[50])
    assert not pop.released
    pop.close()
    with POP.load(tmp_path / "s") as again:
        assert len(again.released) == 1
        again.predict(xs[50])
        assert len(again.released) == 1


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


class Counts(Running):
    """Says how many releases there are, and remembers what it is taught again."""

    def __init__(self, most: int, closed: int) -> None:
        self._most, self._closed, self.told = most, closed, list[int]()

    @property
    def most(self) -> int:
        return self._most

    @property
    def closed(self) -> int:
        return self._closed

    def again(self, x: Any, label: int, number: int) -> None:
        self.told.append(number)


def test_a_stamp_never_says_that_a_lesson_waits_which_was_released() -> None:
    """Without an end there are more releases than a digit of a stamp holds: such a lesson is taught to nobody again."""
    for leaf in (0, 3, 9, 10, 11, 12, 1000):
        first, second = Counts(10, leaf), Counts(4, 3)
        parts = Parts([first, second])
        assert parts.leaves(parts.stamp([leaf, 2])) == [leaf if leaf <= 10 else -1, 2]
        parts.again(None, 0, 7, parts.stamp([leaf, 2]))
        assert second.told == [] and first.told == ([7] if leaf <= 10 else [])


def test_beside_another_part_a_guide_without_an_end_is_taught_again_what_it_lost() -> None:
    guide = GuidePlan.best(4.0, DELTA, None, private_ranges=False)
    pop = POP(None, Plan(Promise(4.0, DELTA), (guide,)), labels=[0, 1], features=2, fallback=0)
    guiding = pop.operator.loop.guiding
    assert guiding is not None
    parts = Parts([guiding, Counts(100, 0)])
    assert parts.leaves(parts.stamp([50 * guide.leaves, 7])) == [50 * guide.leaves, 7]


# ---------------------------------------------------------------------- attacked


class OneRow:
    """Hides one row, positive or not, among negative ones of one block; everybody sees the block's noisy count."""

    rounds = 51

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        yield Round(((-1.0, 0.0), None), ((1.0, 0.0), None), challenge=True)
        yield Batch(-np.ones((50, 2)), None)

    def score(self, view: View) -> float:
        return float(np.ravel(view.released[0])[0])


@pytest.mark.parametrize("name", ["count", "laplace"])
def test_a_part_keeps_its_price_against_an_adversary_and_less_noise_is_noticed(name: str) -> None:
    """At alarm level 10⁻⁶. Without noise every game tells the bit: 100 at each show more than three times this ε."""
    plan = Plan(Promise(12.0, 1e-2, ROUNDS), (PLANS[name]()[0],))
    report = audit(lambda: make(plan), OneRow(), games=100, certificate=plan)
    assert not report.alarm and report.epsilon <= plan.guarantee.epsilon
    silent = replace(plan.parts[0])  # type: ignore[type-var]
    object.__setattr__(silent, "noise", lambda rng: 0)
    broken = Plan(plan.promise, (silent,), guarantee=plan.guarantee)
    report = audit(lambda: make(broken), OneRow(), games=100, certificate=plan)
    assert report.alarm and report.epsilon > plan.guarantee.epsilon
