"""Certificates hold at worst-case orders; where the promise of d mistakes is false, privacy holds and the run halts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from confide import POP, Plan, evaluate
from confide.games.replay import Ask, Hidden, Label, replay
from confide.learners import Conjunctions, Parities, Points, Thresholds
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("certificate.md")

ROUNDS = 4000
RISK = 2e-8
"""The certificates' β. With all runs of this file a false alarm has probability below 10⁻⁶."""


def _benchmark() -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "realizable.py"
    spec = importlib.util.spec_from_file_location("realizable", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["realizable"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


realizable = _benchmark()
CLASSES = ["points", "thresholds", "conjunctions", "parities"]
orders = pytest.mark.parametrize("order", realizable.ORDERS)


@pytest.fixture(scope="module")
def plans() -> dict[int, Plan]:
    return {d: Plan.certified(16.0, 1e-6, ROUNDS, d, beta=RISK) for d in (1, 3)}


def play(plans: dict[int, Plan], promised: int, true: int, number: int, order: str) -> dict[str, Any]:
    task = realizable.tasks(true)[number]
    assert task.name == CLASSES[number]
    found: dict[str, Any] = realizable.play(task, plans[promised], order, lambda _: None)
    return found


@orders
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("number", range(4), ids=CLASSES)
def test_measured_mistakes_are_certified(plans: dict[int, Plan], number: int, d: int, order: str) -> None:
    """Each run is above its certificate, or halts early, with probability at most β = 2·10⁻⁸."""
    found, certificate = play(plans, d, d, number, order), plans[d].certificate
    assert certificate is not None
    assert found["rounds"] == ROUNDS and not found["halted"]
    assert found["mistakes"] <= certificate.mistakes
    assert found["twin"] <= d
    if order == "one by one":
        assert found["twin"] == d
        # A copy errs d times, and privacy costs about k times that: a much better bound would be false.
        assert found["mistakes"] > 0.4 * d * plans[d].copies


@pytest.mark.parametrize("number", [0, 2, 3], ids=["points", "conjunctions", "parities"])
def test_a_false_promise_breaks_the_certificate(plans: dict[int, Plan], number: int) -> None:
    """Copies that err four times, under a plan for one: the test above can fail (14 standard deviations above it)."""
    found, certificate = play(plans, 1, 4, number, "one by one"), plans[1].certificate
    assert certificate is not None
    assert found["halted"] or found["mistakes"] > certificate.mistakes


def noise(plan: Plan) -> tuple[POP, NDArray[np.int64]]:
    """A run on labels that no hypothesis gives; the count of unsure answers after each round."""
    pop = POP(Thresholds(points=1), plan, labels=[0, 1], features=1, after_halt="raise")
    labels = np.random.default_rng().integers(0, 2, plan.rounds)
    done = evaluate(pop, np.zeros((plan.rounds, 1)), labels)
    return pop, np.cumsum(~done.sure)


def test_a_false_promise_halts_as_planned() -> None:
    """Noise, where every copy stands by its first label: half of them err, always.

    The run halts, at a count between those of the plan, by the law of its halting table: then U below is uniform. With
    300 runs the test of Kolmogorov and Smirnov gives a false alarm with probability 10⁻⁷, and it must tell the table
    from one that is 20 counts off.
    """
    plan = Plan.certified(16.0, 1e-6, ROUNDS, 1, beta=RISK)
    halt = plan.halting.table
    draw, right, wrong = np.random.default_rng(), [], []
    for _ in range(300):
        pop, counts = noise(plan)
        assert pop.halt_reason == "budget" and pop.rounds < ROUNDS
        assert plan.unsure < counts[-1] <= plan.halting.stop
        for found, shift in ((right, 0), (wrong, 20)):
            h = halt[np.maximum(counts - shift, 0)]
            found.append(np.prod(1 - h[:-1]) * (1 - draw.random() * h[-1]))
    assert kstest(right, "uniform").pvalue > 1e-7
    assert kstest(wrong, "uniform").pvalue < 1e-7
    assert plan.verify().epsilon <= plan.guarantee.epsilon <= 16.0
    assert pop.guarantee == plan.guarantee


@pytest.mark.parametrize("learner", [Points(), Thresholds(3), Conjunctions(2, negations=False), Parities(2)])
def test_a_false_promise_leaves_one_copy_and_one_vote_between_the_worlds(learner: Any) -> None:
    """What the privacy proofs assume of a POP, checked step by step, on labels that contradict each other."""
    plan = Plan.certified(60.0, 1e-2, 400, 1, beta=1e-3)
    width = learner._features
    draw = np.random.default_rng(5)

    def make(rng: Random) -> POP:
        return POP(learner, plan, labels=[0, 1], features=width, seed=rng, after_halt="raise")

    apart = 0
    for label in (0, 1):
        script: list[Any] = [Hidden(Ask(np.zeros(width)), Ask(np.ones(width)))]
        script.append(Hidden(Label(1, label), Label(1, 1 - label)))
        for i in range(2, 80):
            script += [Ask(draw.integers(0, 2, width).astype(float)), Label(i, int(draw.integers(2)))]
        apart += replay(make, script, seed=5 + label).apart
    assert apart > 0
