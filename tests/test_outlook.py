"""What a plan says of the future: its numbers are those that the planner gives for twice the rounds or twice ε."""

from __future__ import annotations

import re
from typing import Any

import pytest

from confide import POP
from confide.learners import Features
from confide.planning.design import reach
from confide.planning.outlook import lead_at_twice_epsilon
from confide.planning.plan import Plan

pytestmark = pytest.mark.claim("guide.md")

COPIES: dict[str, Any] = {"copies": 900, "unsure": 900, "polls": 101, "silent": 10_000}


def numbers(sentence: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", sentence)]


def line(plan: Plan, start: str) -> str:
    found = [line for line in plan.explain().splitlines() if line.startswith(start)]
    assert len(found) == 1, plan.explain()
    return found[0]


def test_a_guides_future_is_what_the_planner_gives() -> None:
    plan = Plan.tight(1.0, 1e-6, 200_000, guide=1.0)
    more, louder = (Plan.tight(e, 1e-6, t, guide=1.0).guide for e, t in ((1.0, 400_000), (2.0, 200_000)))
    assert plan.guide is not None and more is not None and louder is not None
    rounds, epsilon = numbers(line(plan, "That would be"))
    assert rounds == pytest.approx(more.strength, rel=0.02) and epsilon == pytest.approx(louder.strength, rel=0.02)
    assert rounds > 1.5 * plan.guide.strength and epsilon > 1.5 * plan.guide.strength
    said = f"The fallback answers the first {plan.guide.first} rounds; the guide all others."
    assert line(plan, "The fallback answers") == said


def test_the_round_from_which_on_a_guide_answers_is_that_of_its_first_release_whatever_is_declared() -> None:
    plan = Plan.tight(2.0, 1e-6, 20_000)
    first, finds = numbers(line(plan, "The guide is a linear"))[:2]
    declared, none, free = {"numeric": {"a": (0, 1)}}, {"categorical": {"a": 8}}, {"numeric": ["a"]}
    for feature in declared, none, free:
        pop = POP(None, plan, labels=[0, 1], features=Features(**feature))  # type: ignore[arg-type]
        answers = pop.predict_many([{"a": 0.5 if "numeric" in feature else "x"}] * int(first))
        assert [answer.source for answer in answers] == ["fallback"] * (int(first) - 1) + ["guide"]
    assert f"finds where numbers lie in {int(finds):,} rounds" in str(plan)


def test_what_people_teach_is_told_with_its_condition() -> None:
    """20 000 rounds of 6000 people are not 20 000 labels."""
    asked = {"epsilon": 2.0, "delta": 1e-6, "rounds": 20_000}
    one, four = (Plan.tight(**asked, units="people", unit_labels=c).explain() for c in (1, 4))  # type: ignore[arg-type]
    assert "deviation of their noise, if every round is another person's: of each person one label teaches" in one
    assert "if nobody brings more than 4 labels" in four
    assert "person" not in Plan.tight(**asked, units="rounds").explain()  # type: ignore[arg-type]


def test_history_comes_before_the_first_answer() -> None:
    plan = Plan.tight(1.0, 1e-6, 100_000, guide=1.0, history=100_000)
    assert "It answers from round 1 on" in plan.explain() and "The guide answers all rounds." in plan.explain()


@pytest.mark.parametrize("asked", [{}, {"lean": "fill"}, {"guide": None}], ids=str)
def test_the_copies_future_is_what_the_planner_gives(asked: dict[str, Any]) -> None:
    plan, twice = (Plan.tight(epsilon, 1e-5, 30_000, **COPIES, **asked) for epsilon in (8.0, 16.0))
    lead = reach(twice.tables.gate, 0.5)
    assert lead_at_twice_epsilon(plan) == pytest.approx(lead, rel=0.15)
    assert reach(plan.tables.gate, 0.5) > 1.2 * lead, "the tolerance tells it from what is now"
    said = line(plan, "With twice the rounds")
    assert "taught about 67 labels" in said
    assert f"lead of about {lead_at_twice_epsilon(plan) / 101:.0%}" in said
    assert f"one of {reach(plan.tables.gate, 0.5) / 101:.0%} is now" in said


@pytest.mark.parametrize(
    ("asked", "unsure", "after"),
    [
        ({}, "the guide", "the guide"),
        ({"lean": "fill"}, "the lean", "the guide"),
        ({"guide": None}, "the fallback", "the fallback"),
        ({"guide": None, "lean": "fill"}, "the lean", "the fallback"),
    ],
    ids=str,
)
def test_who_will_answer(asked: dict[str, Any], unsure: str, after: str) -> None:
    plan = Plan.tight(8.0, 1e-5, 30_000, **COPIES, **asked)
    text = plan.explain()
    assert f"which {unsure} answers; if they are unsure more often, {after} answers" in text
    assert "unsure in less than 4.50% of the rounds put to them" in text
    shares = numbers(line(plan, "Of all rounds"))
    assert sum(shares) == pytest.approx(100, abs=0.11) and shares[-1] == 66.7
    assert ("Where they are unsure the lean answers" in text) == (plan.lean is not None)
    if plan.lean is not None:
        score = "" if plan.guide is None else " and the score of the guide"
        assert f"drawn from the votes{score}, so that a lead too small" in text
    assert "person" not in line(plan, "While they")


def test_people_are_told_of_their_cap() -> None:
    plan = Plan.tight(8.0, 1e-5, 30_000, **COPIES, units="people", unit_unsure=2)
    assert "A person to whom they were unsure 2 times is answered by the guide from then on." in plan.explain()
    assert "A person" not in Plan.tight(8.0, 1e-5, 30_000, **COPIES).explain()


def test_a_plan_with_a_certificate_says_nothing_of_other_budgets() -> None:
    text = Plan.certified(8.0, 1e-4, 100_000, 1, copies=600).explain()
    assert "twice" not in text and "the fallback answers all that come after" in text
