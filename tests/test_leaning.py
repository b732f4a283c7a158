"""POP with a lean: plans that are certified from their integers, and rounds that lean alike one by one and compiled."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide import POP, Plan, evaluate
from confide.banks import rounds as compiled
from confide.games.replay import Ask, AskMany, Follow, Hidden, Step, Teach, replay
from confide.learners import LogisticRegression
from confide.pop.base import COPIES, GUIDE, LEAN
from confide.pop.leaning import Leaning
from confide.privacy.lean import Lean
from confide.privacy.random import Random
from tests.forging import filed, flat

pytestmark = pytest.mark.claim("lean.md")

ROUNDS = 500


@cache
def plan(kind: str) -> Plan:
    asked: dict[str, Any] = {"epsilon": 60.0, "delta": 1e-2, "rounds": ROUNDS, "copies": 60, "polls": 9, "unsure": 200}
    if kind == "alone":
        return Plan.tight(**asked, silent=50, guide=None, lean="fill")
    if kind == "guided":
        return Plan.tight(**asked, silent=50, guide=0.3, lean="fill")
    if kind == "additive":
        return Plan.tight(**asked, silent=0, guide=0.3, lean="additive")
    if kind == "people":
        return Plan.tight(**asked, silent=20, guide=None, lean="fill", units="people", unit_unsure=2)
    if kind == "three":
        return Plan.tight(**{**asked, "unsure": 300}, silent=50, guide=0.3, lean="additive", labels=3)
    assert kind == "three alone"
    return Plan.tight(**{**asked, "unsure": 300}, silent=50, guide=None, lean="additive", labels=3)


KINDS = ["alone", "guided", "additive", "people", "three", "three alone"]


def rows(n: int, seed: int, labels: int) -> tuple[Any, list[int]]:
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(n, 3))
    noisy = xs[:, 0] + 0.5 * rng.normal(size=n)
    return xs, [int(v > 0) + int(labels == 3 and v > 1) for v in noisy]


def make(kind: str, **options: Any) -> POP:
    made = plan(kind)
    units = made.units or "rounds"
    return POP(LogisticRegression(), made, labels=range(made.labels), features=3, seed=3, units=units, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_that_leans_is_certified_from_its_integers(kind: str) -> None:
    made = plan(kind)
    assert made.lean is not None and made.verify().epsilon <= 60
    text = made.to_json()
    assert Plan.from_json(text) == made and len(text) < 5_000_000
    changed = flat(made)
    if isinstance(made.lean, Lean):
        changed["lean"]["first"][0][len(changed["lean"]["first"][0]) // 2] //= 8
    else:
        weights = changed["lean"]["weights"]
        changed["lean"]["weights"] = [weights[0], *(w // 64 + 1 for w in weights[1:])]
    with pytest.raises(ValueError):
        Plan.from_json(filed(changed))


def test_a_gate_that_is_not_its_leans_envelope_is_refused() -> None:
    changed = flat(plan("guided"))
    changed["gate"] = flat(plan("alone"))["gate"]
    with pytest.raises(ValueError, match="envelope"):
        Plan.from_json(filed(changed))


def test_a_lean_that_there_is_not_is_refused() -> None:
    for wrong in ({"lean": "much"}, {"lean": "fill", "labels": 3}):
        with pytest.raises(ValueError, match="lean="):
            Plan.tight(60.0, 1e-2, ROUNDS, copies=60, unsure=200, **wrong)


def units_of(kind: str, n: int) -> list[str] | None:
    return [f"u{i % 40}" for i in range(n)] if kind == "people" else None


@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_loop_leans_as_the_plain_one(kind: str) -> None:
    first, second = make(kind), make(kind)
    xs, ys = rows(ROUNDS + 20, 1, first.plan.labels)
    units = units_of(kind, len(ys))
    done = evaluate(first, xs, ys, units)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        answer = second.predict(x, None if units is None else units[i])
        assert (answer.label, answer.sure, answer.source) == (
            done.answers[i], done.sure[i], ("fallback", "guide", "lean", "copies")[done.source[i]],
        )  # fmt: skip
        second.learn(answer.ticket, y)
    assert first.operator.unsure == second.operator.unsure and (done.source == LEAN).sum() > 10
    counted = int((done.source == LEAN).sum())
    assert counted == first.operator.unsure, "what leans is what is charged, and nothing else"


def test_one_compiled_loop_serves_every_plan() -> None:
    """It takes seconds to compile: also where tables may be written to, or only some, it is not compiled anew."""
    loop: Any = compiled.ask
    back = pickle.loads(pickle.dumps(plan("alone")))
    assert back == plan("alone")
    for made in (Plan.tight(60.0, 1e-2, 100, copies=60, unsure=40, guide=None), *map(plan, KINDS), back):
        units = made.units or "rounds"
        pop = POP(LogisticRegression(), made, labels=range(made.labels), features=3, seed=3, units=units)
        evaluate(pop, *rows(20, 1, made.labels), units_of(units, 20))
    assert len(loop.signatures) == 1


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.integers(1, 120), min_size=1, max_size=4), st.integers(0, 5))
def test_batches_lean_as_single_calls(kind: str, sizes: list[int], wrong: int) -> None:
    first, second = make(kind), make(kind)
    xs, ys = rows(sum(sizes), 2, first.plan.labels)
    units, at = units_of(kind, len(ys)), 0
    asked = [None if i % 50 == wrong else x for i, x in enumerate(xs)]
    for size in sizes:
        part = slice(at, at + size)
        for i, a in zip(range(at, at + size), first.predict_many(asked[part], units and units[part]), strict=True):
            if a.error:
                with pytest.raises(ValueError):
                    second.predict(asked[i], units and units[i])
                continue
            b = second.predict(asked[i], units and units[i])
            assert a == b
            assert a.error is None
        at += size
    assert first.operator.unsure == second.operator.unsure


def test_rounds_that_are_not_charged_do_not_lean() -> None:
    done = evaluate(make("people"), *rows(ROUNDS, 1, 2), units_of("people", ROUNDS))
    assert (done.source[:20] != LEAN).all(), "silent"
    spent: dict[int, int] = {}
    for i in np.flatnonzero(done.source == LEAN):
        spent[i % 40] = spent.get(int(i) % 40, 0) + 1
    assert max(spent.values()) == 2, "and no more often than a unit may be unsure"


def test_the_guide_leads_the_lean() -> None:
    """With the votes tied, a guide that is certain of a label has it answered nearly always."""
    leaning = Leaning(plan("guided"))
    tie = np.array([4, 4])
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**64, size=(400, 2), dtype=np.uint64)
    for score, label in ((9.0, 1), (-9.0, 0)):
        offsets = leaning.offsets(np.array([[score]]))[0]
        drawn = [leaning.decide(tie, 2**64 - 1, int(w), offsets).leaned for w in words[:, 1]]
        assert np.mean(np.array(drawn) == label) > 0.9


def test_a_lean_is_better_than_a_coin() -> None:
    xs, ys = rows(ROUNDS, 1, 2)
    done = evaluate(make("alone"), xs, ys)
    assert done.errors["lean"] < 0.4 and done.coverage["copies"] > 0
    led = evaluate(make("guided"), xs, ys)
    assert (led.source == GUIDE).any() and (led.source == COPIES).any() and led.error < done.error


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_and_both_loops_say_the_same_on_the_same_coins(kind: str) -> None:
    """One by one and in batches that lessons follow, against the reference of a replay: answers, sources, counts."""
    made, people = plan(kind), kind == "people"

    def maker(rng: Random) -> POP:
        units: Any = "people" if people else "rounds"
        return POP(LogisticRegression(), made, labels=range(made.labels), features=3, units=units, seed=rng)

    xs, ys = rows(200, 4, made.labels)
    asked: list[Any] = [[float(v) for v in x] for x in xs]
    who = [f"u{i % 40}" for i in range(200)] if people else None
    parts: list[Step | Hidden] = [
        Follow(asked[i : i + 10], ys[i : i + 10], who and who[i : i + 10]) for i in range(0, 150, 10)
    ]
    parts += [AskMany(asked[150:180], who and who[150:180])]
    parts += [Ask(x, who and who[i]) for i, x in enumerate(asked[180:])]
    unit = "the unit" if people else None
    outcome = replay(maker, [Hidden(Teach(asked[0], 0, unit), Teach(asked[0], 1, unit)), *parts])
    assert outcome.leaned > 10 and outcome.apart > 0
    assert (outcome.led > 10) == (made.guide is not None)
