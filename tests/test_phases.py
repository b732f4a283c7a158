"""Phases: fresh copies after every halt, bounds that hold, tickets that end with their phase."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from confide import Halted, Monitor, Plan, TicketError, evaluate
from confide.learners import Points
from confide.planning.agnostic import agnostic_plan
from confide.pop.phases import Phases
from confide.privacy.counters import SmoothCounter

pytestmark = pytest.mark.claim("phases.md")

ROUNDS = 6000


@pytest.fixture(scope="module")
def small():
    return agnostic_plan(200.0, 1e-3, ROUNDS, factor=1.0, extra=1.0, beta=0.2)


def test_bound_is_what_the_page_says(small) -> None:
    """The closed forms on the page are upper bounds of what is computed, and meet it where u(0) = g(0) = 0."""
    plan, bound = small
    rate, cost = bound.rates, bound.rates.unsure_slope * bound.copies
    reserve = (bound.unsure - rate.unsure_floor * ROUNDS) / cost
    for opt in (0, 10, 1000):
        phases = max(2 + bound.beta, reserve * (1 + bound.beta) / (reserve - 1)) + opt / ((reserve - 1) * bound.copies)
        assert 1 <= bound.phases(opt) <= phases
        most = rate.wrong_floor * ROUNDS + rate.wrong_slope * (opt + bound.copies * bound.phases(opt))
        assert bound.mistakes(opt) == pytest.approx(min(ROUNDS, most))
        assert bound.mistakes(opt) <= bound.mistakes(opt, stop_after=plan.unsure) <= ROUNDS
    bare = replace(bound, rates=replace(rate, unsure_floor=0.0), beta=0.0)
    share = bound.unsure / cost
    assert bare.phases(30) == pytest.approx(share / (share - 1) + 30 / ((share - 1) * bound.copies))
    assert bound.phases(0, stop_after=1) == math.inf and bound.mistakes(0, stop_after=1) == ROUNDS


def test_likely_mistakes(small) -> None:
    _, bound = small
    found = [bound.likely_mistakes(opt, beta) for opt, beta in ((0, 0.01), (0, 0.05), (500, 0.05), (ROUNDS, 0.05))]
    assert found[1] <= found[0] and found[1] < found[2] < found[3] == ROUNDS
    with pytest.raises(ValueError, match="larger beta"):
        bound.likely_mistakes(0, bound.beta)


def test_plan_leaves_room_for_more_than_the_copies_may_err(small) -> None:
    plan, bound = small
    need = bound.rates.unsure_floor * ROUNDS + 3 * bound.rates.unsure_slope * bound.copies
    assert need <= plan.unsure == bound.unsure
    assert plan.verify().epsilon <= 200
    other, looser = agnostic_plan(200.0, 1e-3, ROUNDS, factor=1.0, extra=1.0, beta=0.2, reserve=2.0)
    assert other.unsure < plan.unsure and looser.mistakes(600) > bound.mistakes(600)


def test_phases_start_anew_and_refuse_old_tickets(small) -> None:
    plan, _ = small
    run = Phases(Points(), plan, labels=[0, 1], features=1, seed=3)
    rng = np.random.default_rng(3)
    mistakes, first = 0, None
    for _ in range(ROUNDS):
        x, y = float(rng.integers(2)), int(rng.integers(2))  # noise: copies take sides, every phase runs out
        answer = run.predict([x])
        first = first or answer.ticket
        mistakes += answer.label != y
        run.learn(answer.ticket, y)
    assert run.phase > 1
    with pytest.raises(TicketError):
        run.learn(first, 0)
    with pytest.raises(Halted):
        run.predict([1.0])
    assert not run.guarantee.secure


def test_realizable_run_stays_below_the_bound(small) -> None:
    """The bound holds in expectation; this seeded run is far below it."""
    plan, bound = small
    run = Phases(Points(), plan, labels=[0, 1], features=1, seed=4)
    rng = np.random.default_rng(4)
    mistakes = 0
    for _ in range(ROUNDS):
        x = float(rng.integers(3))
        answer = run.predict([x])
        mistakes += answer.label != int(x == 1.0)
        run.learn(answer.ticket, int(x == 1.0))
    assert mistakes <= bound.mistakes(0)
    assert run.phase <= 3


def test_mistake_counter_ends_phases_too(small) -> None:
    plan, _ = small
    run = Phases(
        Points(), plan, labels=[0, 1], features=1, stop_after=50, monitor=Monitor(20.0, delay=1), fallback=0, seed=5
    )
    for i in range(1500):
        answer = run.predict([float(i % 50)])
        run.learn(answer.ticket, 1 - int(answer.label))
    assert run.phase > 2
    assert run.guarantee.epsilon == pytest.approx(plan.guarantee.epsilon + 20.0)


def test_refusals(small) -> None:
    plan, _ = small
    with pytest.raises(ValueError, match="monitor"):
        Phases(Points(), plan, labels=[0, 1], features=1, stop_after=5)
    with pytest.raises(ValueError, match="factor"):
        agnostic_plan(1.0, 1e-6, 1000, factor=0.5, extra=1.0)
    with pytest.raises(ValueError, match="factor"):
        agnostic_plan(1.0, 1e-6, 1000, factor=2.0, extra=math.nan)
    with pytest.raises(ValueError, match="reserve"):
        agnostic_plan(1.0, 1e-6, 1000, factor=2.0, extra=1.0, reserve=1.0)


class Stubborn:
    """Says 0 whatever it is told."""

    def predict(self, x: object) -> int:
        return 0

    def learn(self, x: object, y: int) -> None:
        return


@pytest.mark.parametrize("late", [0, 3, 50])
def test_a_round_changes_one_input_of_the_mistake_counters_of_all_phases(small, monkeypatch, late: int) -> None:
    """Its label may come late, or after its phase has ended, which is refused: never a second input."""
    plan, _ = small
    heard: list[int] = []
    step = SmoothCounter.step
    monkeypatch.setattr(SmoothCounter, "step", lambda self, value: heard.append(value) or step(self, value))

    def inputs(label: int) -> tuple[list[int], int]:
        heard.clear()
        monitor = Monitor(20.0, delay=5)
        run = Phases(Stubborn(), plan, labels=[0, 1], features=1, stop_after=20, monitor=monitor, fallback=0, seed=8)
        hidden = ""
        for i in range(200):
            answer = run.predict([0.0])
            if i == 7:
                hidden = answer.ticket
            else:
                run.learn(answer.ticket, 1)
            if i == 7 + late:
                with pytest.raises(TicketError) if late > 40 else nullcontext():
                    run.learn(hidden, label)
        return list(heard), run.phase

    (one, phases), (other, same) = inputs(0), inputs(1)
    assert phases == same > 3
    assert sum(a != b for a, b in zip(one, other, strict=True)) == (late < 40)
    assert 200 - 5 * phases - 1 <= len(one) <= 200 - 5 * (phases - 1)


class Failing:
    """Raises whenever it is asked about 8."""

    pure = True

    def predict(self, x: Any) -> Any:
        if x[0] == 8:
            raise RuntimeError("the secret is 42")
        return 0

    def learn(self, x: Any, y: Any) -> None:
        pass


def test_failures_of_all_phases_are_counted_for_the_operator() -> None:
    """A phase that ends takes its POP with it, and not what the operator is to know."""
    plan = Plan.tight(60.0, 1e-2, 300, copies=30, unsure=10, silent=0, guide=None)
    phases = Phases(Failing(), plan, labels=[0, 1], features=1)
    for _ in range(60):
        phases.learn(phases.predict([1.0]).ticket, 0)
    done = evaluate(phases, np.full((200, 1), 8.0), [0] * 200)
    assert phases.phase > 1 and "the learner failed" in repr(done)
    assert done.failures.raised == phases.failures.raised > phases.pop.operator.failures.raised


class Angry:
    """A ticket that fails whoever reads it."""

    def __str__(self) -> str:
        raise RuntimeError("mine")


def test_one_bad_ticket_decides_for_no_other_label() -> None:
    plan = Plan.tight(60.0, 1e-2, 300, copies=30, unsure=100, silent=0, guide=None)
    phases = Phases(Failing(), plan, labels=[0, 1], features=1)
    tickets: list[Any] = [phases.predict([1.0]).ticket for _ in range(3)]
    with pytest.raises(ValueError, match="row 1 was refused, and all good rows were learned"):
        phases.learn_many([tickets[0], Angry(), tickets[2]], [0, 0, 0])
    assert phases.pop.operator.taught == 2
