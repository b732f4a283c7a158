"""A POP without a last round: epochs pass in its ledger, its states and its people's caps, and nobody notices."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan, Private, Promise, evaluate
from confide.learners import Features
from confide.planning.guided import GuidePlan
from confide.planning.stages import ends_of
from confide.pop.guiding import Guiding
from confide.pop.state import check

pytestmark = pytest.mark.claim("guide.md", "exact.md")

LEAVES, LEAF, GROWTH, COUNTED = 12, 40, 8, 100
ROUNDS = 2400
RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(ROUNDS, 2)) * [1.0, 50.0]
LABELS = (ROWS[:, 0] + ROWS[:, 1] / 50 > 0).astype(np.int64)
COLUMNS = Features(numeric=["a", "b"])


def plan(units: Any = "rounds", unit_labels: int = 1) -> Plan:
    """An endless plan with small epochs: the first end after 292 and 772 rounds of the stage after the warm-up."""
    best = GuidePlan.best(40.0, 1e-6, unit_labels=unit_labels, apart=False)
    small = replace(best, leaves=LEAVES, leaf=LEAF, growth=GROWTH)
    guide = replace(small, range_rounds=COUNTED, warm_leaves=len(ends_of(COUNTED, LEAF, GROWTH)))
    return Plan(Promise(guide.epsilon(1e-6), 1e-6, units=units, unit_labels=unit_labels), (guide,), "tight")


def make(units: Any = "rounds", **more: Any) -> POP:
    return POP(None, plan(units, more.pop("unit_labels", 1)), labels=[0, 1], features=COLUMNS, units=units, **more)


def x(i: int) -> dict[str, float]:
    return {"a": float(ROWS[i, 0]), "b": float(ROWS[i, 1])}


def lead(pop: POP, first: int, last: int, people: bool = False) -> list[int]:
    answers = []
    for i in range(first, last):
        answer = pop.predict(x(i), **({"unit": f"p{i}"} if people else {}))
        pop.learn(answer.ticket, int(LABELS[i]))
        answers.append(answer.label)
    return answers


def epoch(pop: POP) -> int:
    guiding = pop.operator.loop.parts.get(Guiding)
    assert guiding is not None
    return guiding.guide.epoch


def test_no_round_is_the_last_and_it_learns_over_epochs() -> None:
    pop = make(seed=1)
    answers = lead(pop, 0, ROUNDS)
    assert pop.state == "live" and pop.halt_reason is None and epoch(pop) >= 3
    assert np.mean(np.array(answers[-600:]) != LABELS[-600:]) < 0.15


def test_one_by_one_and_all_at_once_are_the_same_to_the_last_bit() -> None:
    one, many = make(seed=1), make(seed=1)
    answers = lead(one, 0, ROUNDS)
    run = evaluate(many, [x(i) for i in range(ROUNDS)], LABELS)
    assert run.answers.tolist() == answers
    assert one.guide is not None and many.guide is not None
    assert [row.tobytes() for row in one.guide.sums] == [row.tobytes() for row in many.guide.sums]


@pytest.mark.parametrize("saved_after", [0, 60, 350, 1000])
def test_wherever_it_is_saved_and_loaded_the_model_is_the_same(saved_after: int, tmp_path: Path) -> None:
    """Before the ranges, in the first epoch and in later ones; also where its ledger begins in the midst of a life."""
    pop = make()
    lead(pop, 0, saved_after)
    pop.save(tmp_path / "pop")
    for first, last in ((saved_after, saved_after + 333), (saved_after + 333, saved_after + 800)):
        lead(pop, first, last)
        before, closed = pop.guide and pop.guide.probabilities(x(0)).tolist(), epoch(pop)
        pop.operator.loop.account.book.close()  # type: ignore[union-attr]
        seen = check(tmp_path / "pop")
        assert seen.guarantee.epsilon <= 40.0 * (1 + 1e-9)
        pop = POP.load(tmp_path / "pop")
        assert epoch(pop) == closed and pop.rounds == last
        assert pop.guide and pop.guide.probabilities(x(0)).tolist() == before
        pop.save(tmp_path / "pop")
    pop.close()


def test_what_a_person_may_teach_is_counted_for_life(tmp_path: Path) -> None:
    """Over epochs, a load and a forgetting: the cap is spent once."""
    pop = make("people", unit_labels=2)
    pop.save(tmp_path / "pop")
    taught = []
    for i in range(1500):
        name = "ann" if i % 100 == 0 else f"p{i}"
        answer = pop.predict(x(i), unit=name)
        pop.learn(answer.ticket, int(LABELS[i]))
        if i in (500, 900):
            pop.close()
            pop = POP.load(tmp_path / "pop")
        if i == 700:
            pop.forget("ann")
        taught.append(max(pop.operator.loop.account.labels.values()))
    assert taught[-1] == 2 and epoch(pop) >= 2
    pop.close()


def test_a_plan_without_an_end_is_written_read_and_certified() -> None:
    small = plan()
    assert Plan.from_json(small.to_json()) == small and small.endless
    with pytest.raises(ValueError, match="no last round"):
        _ = small.rounds
    forged = small.to_json().replace(f'"sigma2": {small.guide.sigma2}', f'"sigma2": {small.guide.sigma2 // 2}')  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="do not run this plan"):
        Plan.from_json(forged)


def test_copies_need_a_number_of_rounds() -> None:
    with pytest.raises(ValueError, match="give rounds"):
        Plan.tight(4.0, 1e-6, copies=100)
    with pytest.raises(ValueError, match="give rounds"):
        Plan.tight(4.0, 1e-6, guide=None)


def test_the_front_has_no_last_round_unless_it_is_told_one() -> None:
    assert Private(labels=[0, 1], epsilon=1.0, features=2).plan.endless
    assert Private(labels=[0, 1], epsilon=1.0, features=2, rounds=5000).plan.rounds == 5000
    assert "no last round" in Private(labels=[0, 1], epsilon=1.0, features=2).explain()
