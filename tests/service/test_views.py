"""What everyone may see of a model: numbers that nobody takes for what they are not."""

from __future__ import annotations

from typing import Any

import pytest

from confide import POP, Monitor, Plan
from confide.learners import Features
from confide.privacy import exact
from confide.service.counts import Counts
from confide.service.journal import NOBODY, Columns, Row
from confide.service.metrics import public_text
from confide.service.views import private, public

PLANS = {units: Plan.tight(8.0, 1e-4, 600, units=units) for units in ("rounds", "people")}  # type: ignore[arg-type]


def monitored(units: str) -> POP:
    pop = POP(
        None, PLANS[units], labels=["a", "b"], features=1, units=units,  # type: ignore[arg-type]
        monitor=Monitor(1.0, rounds_per_unit=3 if units == "people" else 1, delay=1),
    )  # fmt: skip
    for i in range(20):
        pop.predict([1.0], unit=f"p{i % 2}" if units == "people" else None)
    return pop


def test_nobody_can_make_a_rate_of_a_count_that_holds_only_each_persons_first_rounds() -> None:
    """20 rounds of two people, of which 6 can be counted: the number 20 stands nowhere beside the mistakes."""
    shown = public("spam", monitored("people"), 10, 24, 100, 10)
    assert set(shown["monitor"]) == {"mistakes", "error", "rounds_per_unit"}
    assert shown["monitor"]["rounds_per_unit"] == 3
    text = public_text({"spam": shown}).decode()
    assert 'confide_monitor{model="spam",number="rounds_per_unit"} 3.0' in text
    assert 'number="rounds"' not in text and "among the first rounds_per_unit of each" in text


def test_of_rounds_the_monitor_says_of_how_many() -> None:
    shown = public("spam", monitored("rounds"), 10, 24, 100, 10)
    assert set(shown["monitor"]) == {"mistakes", "rounds", "error"} and shown["monitor"]["rounds"] == 19
    assert 'number="rounds"} 19.0' in public_text({"spam": shown}).decode()


def test_a_look_does_not_compute_the_price_of_the_plan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """That was nearly all that a look took, and everybody may look as often as they like."""
    pop, other, computed = monitored("rounds"), Plan.tight(7.0, 1e-4, 600), list[Any]()
    first = public("spam", pop, 10, 24, 100, 10)
    monkeypatch.setattr(exact, "hockey_stick", lambda *numbers: computed.append(numbers))
    assert public("spam", pop, 10, 24, 100, 10) == first and not computed
    with pytest.raises(TypeError):
        str(other)
    assert computed, "what another plan promises is computed"


class Failing:
    """Works when it is tried, and fails on 8."""

    def predict(self, x: Any) -> str:
        if x[0] == 8:
            raise RuntimeError("the secret is 42")
        return "a"

    def learn(self, x: Any, y: str) -> None:
        return


def test_a_learner_that_fails_is_an_alarm_for_the_operator_alone() -> None:
    plan = Plan.tight(20.0, 1e-2, 400, copies=40, unsure=100, silent=0, guide=None)
    pop = POP(Failing(), plan, labels=["a", "b"], features=1, fallback="a")
    pop.predict_many([[0.0], [8.0]])
    held, shown = private(pop, Counts(), 0, ["another"]), public("spam", pop, 10, 24, None, 10)
    none = dict.fromkeys(("no_label", "lessons", "texts", "unread", "silent", "rows", "labels"), 0)
    assert held["failures"] == {"votes": 80, "raised": 40, **none}
    assert held["alarms"][0] == "another" and held["alarms"][1].startswith("the learner failed: of 80 votes 40")
    assert "fail" not in str({name: value for name, value in shown.items() if name != "plan"})
    pop.predict([0.0])
    assert private(POP(None, PLANS["rounds"], labels=["a", "b"], features=1), Counts(), 0, [])["alarms"] == []


def test_labels_learned_of_labels_brought_are_for_the_operator_alone() -> None:
    plan = Plan.tight(8.0, 1e-4, 600, units="people", unit_labels=2)
    pop = POP(None, plan, labels=["a", "b"], features=Features(numeric={"n": (0, 1)}), units="people")
    for _ in range(5):
        pop.learn(pop.predict({"n": 1.0}, unit="ann").ticket, "a")
    held, shown = private(pop, Counts(), 0, []), public("spam", pop, 10, 24, None, 10)
    assert (held["guide_labels"], held["most_guide_labels"]) == (2, 2) and "guide_labels" not in shown
    assert held["alarms"] == [] and "labels that came" not in str(shown)
    counts = Counts()
    counts.labelled(Columns.of([Row(NOBODY, NOBODY, NOBODY, 1, 1, -1, -1, 1, 1, -1, None)] * 200), [1] * 200)
    (alarm,) = private(pop, counts, 0, [])["alarms"]
    assert alarm.startswith("the guide learned 2 of 200 labels that came, of each person at most 2: a new model")


def test_where_a_model_stands_is_public_in_words() -> None:
    pop = POP(None, PLANS["rounds"], labels=["a", "b"], features=1)
    assert public("spam", pop, 10, 24, None, 10)["standing"] == "live"
    pop.predict_many([[1.0]] * 601)
    assert "learns no more" in public("spam", pop, 10, 24, None, 10)["standing"]
