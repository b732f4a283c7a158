"""Phases: fresh copies after every halt, bounds that hold, tickets that end with their phase."""

from __future__ import annotations

import math

import numpy as np
import pytest

from confide import Halted, Monitor, TicketError
from confide.learners import Points
from confide.phases import Phases, agnostic_plan

ROUNDS = 6000


@pytest.fixture(scope="module")
def small():
    return agnostic_plan(200.0, 1e-3, ROUNDS, factor=1.0, extra=1.0, beta=0.2)


def test_bound_grows_with_twice_opt_times_slope(small) -> None:
    _, bound = small
    slope = bound.rates.wrong_slope * bound.factor
    assert bound.mistakes(10) - bound.mistakes(0) == pytest.approx(2 * 10 * slope)
    assert bound.phases(0) == 2 + 2 * bound.beta


def test_plan_leaves_room_for_twice_what_the_copies_may_err(small) -> None:
    plan, bound = small
    need = bound.rates.unsure_floor * ROUNDS + 2 * bound.rates.unsure_slope * bound.copies
    assert plan.unsure >= need
    assert plan.verify().epsilon <= 200


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
    assert mistakes <= ROUNDS
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
