"""Whoever asks everything first and teaches everything then is told so, in words, at the call that makes it certain."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import confide
from confide.data.datasets import open_stream
from confide.learners import DecisionTree, Features
from confide.pop.pop import POP
from confide.river import PrivateClassifier as River
from confide.runs.runner import Hooks
from confide.runs.runner import run as run_stream
from confide.runs.settings import Settings
from confide.runs.verdict import taught_of_brought
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from confide.sklearn import PrivateClassifier as Sklearn
from tests.saved import make, small_plan

ROUNDS = 400
PROMISE = confide.Promise(5.0, 1e-3, ROUNDS)


@cache
def planned(rounds: int = ROUNDS) -> confide.Plan:
    return confide.Plan.tight(5.0, 1e-3, rounds, guide=1.0)


def made(**more: Any) -> POP:
    return confide.POP(None, planned(), labels=[0, 1], features=1, **more)


def heard(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if issubclass(one.category, confide.ConfideWarning)]


XS, YS = [[float(i % 5)] for i in range(ROUNDS)], [int(i % 5 > 2) for i in range(ROUNDS)]


def test_a_first_batch_with_most_of_the_rounds_is_said_to_teach_nothing() -> None:
    pop = made()
    (said,) = heard(lambda: pop.predict_many(XS))
    assert said.startswith("400 of 400 planned rounds were asked in one call, and nothing was learned in them")
    assert "bring the labels of some hundred rows" in said
    few, history = made(), confide.Plan.tight(5.0, 1e-3, ROUNDS, guide=1.0, history=100)
    assert heard(lambda: few.predict_many(XS[:150])) == []
    taught = confide.POP(None, history, labels=[0, 1], features=1)
    taught.teach_many(XS[:100], YS[:100])
    assert heard(lambda: taught.predict_many(XS)) == [], "what was taught before answers"


@pytest.mark.parametrize("many", [False, True])
def test_labels_that_come_when_all_rounds_were_asked_are_said_to_teach_nothing_at_the_first(many: bool) -> None:
    pop = made()
    tickets = [pop.predict(x).ticket for x in XS]
    if many:
        said = heard(lambda: pop.learn_many(tickets, YS))
        assert len(said) == 1 and " of 400 labels of this call came too late to teach anything" in said[0]
    else:
        said = heard(lambda: pop.learn(tickets[0], YS[0]))
        assert len(said) == 1 and said[0].startswith("the label of this call came too late to teach anything")
        said = heard(lambda: pop.learn_many(tickets[1:], YS[1:]))
        assert len(said) == 1 and " of 399 labels of this call came too late" in said[0], "who brings theirs next, too"
    guide = pop.plan.guide
    assert guide is not None
    last = ROUNDS - guide.main.ends[-2]
    assert pop.operator.late.labels == ROUNDS - last, "all but those of the open leaf, which had no other chance"


@pytest.mark.parametrize("many", [False, True])
def test_of_copies_whose_rounds_are_over_all_labels_are_late_but_the_last_rounds_own(many: bool) -> None:
    """That one had no other chance; one by one and all at once they are counted alike."""
    pop = make(plan=small_plan(unsure=400, rounds=20))
    tickets = [pop.predict([float(i % 5), 0.0], unit=str(i)).ticket for i in range(20)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", confide.ConfideWarning)
        if many:
            pop.learn_many(tickets, ["yes"] * 20)
        else:
            for ticket in tickets:
                pop.learn(ticket, "yes")
    assert pop.operator.late.labels == 19


@pytest.mark.parametrize("over", [0, 1], ids=["all rounds are asked", "they are over"])
def test_what_is_said_to_who_brings_a_late_label_does_not_tell_whether_others_did(over: int) -> None:
    def second(others: bool) -> list[str]:
        pop = made()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tickets = [pop.predict([0.0]).ticket for _ in range(ROUNDS + over)]
            if others:
                pop.learn(tickets[0], 1)
        return heard(lambda: pop.learn(tickets[1], 0)) + heard(lambda: pop.teach([0.0], 0))

    assert second(True) == second(False) != []


def test_a_late_label_is_shown_once_a_place_by_pythons_own_filter() -> None:
    pop = made()
    tickets = [pop.predict(x).ticket for x in XS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for ticket in tickets[:5]:
            pop.learn(ticket, 1)
    assert len(caught) == 1


@pytest.mark.parametrize("delay", [0, 10, 30])
def test_labels_that_come_in_turn_with_questions_are_not_warned_of(delay: int) -> None:
    plan = confide.Plan.tight(2.0, 1e-3, ROUNDS, guide=1.0)
    assert plan.guide is not None and plan.guide.range_rounds == 0  # a warm-up's labels come in it, or not at all
    pop = confide.POP(None, plan, labels=[0, 1], features=1)

    def turn() -> None:
        tickets = list[str]()
        for i, x in enumerate(XS):
            tickets.append(pop.predict(x).ticket)
            if i >= delay:
                pop.learn(tickets[i - delay], YS[i - delay])
        pop.learn_many(tickets[ROUNDS - delay :], YS[ROUNDS - delay :])

    assert heard(turn) == []


def test_labels_of_the_warm_up_that_come_after_it_are_said_to_be_too_late() -> None:
    plan = confide.Plan.tight(4.0, 1e-6, 20_000, guide=1.0)
    assert plan.guide is not None and plan.guide.range_rounds
    rows = plan.guide.range_rounds + 500
    xs = np.arange(float(rows))[:, None] % 7
    found = confide.POP(None, plan, labels=[0, 1], features=1)
    tickets = [one.ticket for one in found.predict_many(xs)]
    (said,) = heard(lambda: found.learn_many(tickets, [0] * rows))
    assert said.startswith(f"{plan.guide.range_rounds:,} of {rows:,} labels of this call came too late")
    short = confide.Plan.tight(1.0, 1e-6, 7_000, guide=1.0)  # counts would take a tenth: what is declared stands
    declared = confide.POP(None, short, labels=[0, 1], features=Features(numeric={"a": (0, 7)}))
    tickets = [one.ticket for one in declared.predict_many([{"a": float(x[0])} for x in xs])]
    assert heard(lambda: declared.learn_many(tickets, [0] * rows)) == [], "without a warm-up they are in the next sum"


def test_copies_whose_rounds_are_over_say_so_too() -> None:
    plan = confide.Plan.tight(8.0, 1e-3, 300, copies=60, unsure=60, silent=0, guide=None, beta=0.01)
    pop = confide.POP(DecisionTree(), plan, labels=[0, 1], features=1, fallback=0)
    tickets = [pop.predict(x).ticket for x in XS[:300]]
    said = heard(lambda: pop.learn_many(tickets, YS[:300]))
    assert said and ("came too late to teach anything" in said[-1] or "teach nothing" in said[-1])


def test_river_is_told_after_a_tenth_of_the_labels_and_in_turn_nothing() -> None:
    rows = [({"a": x[0]}, y) for x, y in zip(XS, YS, strict=True)]
    model = River(features=Features(numeric={"a": (0, 5)}), labels=(0, 1), promise=PROMISE)
    assert heard(lambda: [model.predict_one(x) for x, _ in rows]) == []
    said = heard(lambda: [model.learn_one(x, y) for x, y in rows])
    assert len(said) == 1
    assert said[0].startswith("40 labels came after the last of 400 planned rounds, and teach nothing")
    other = River(features=Features(numeric={"a": (0, 5)}), labels=(0, 1), promise=PROMISE)
    assert heard(lambda: [(other.predict_one(x), other.learn_one(x, y)) for x, y in rows]) == []


def test_scikit_learn_is_told_in_its_own_words() -> None:
    model = Sklearn(promise=PROMISE).partial_fit(XS[:50], YS[:50], classes=[0, 1])
    model.predict(XS)
    with pytest.warns(UserWarning, match="these rows teach it nothing"):
        model.partial_fit(XS, YS)


def test_an_expired_ticket_says_what_to_do() -> None:
    pop = made(ticket_life=100)
    ticket = pop.predict_many(XS[:150])[0].ticket
    with pytest.raises(confide.TicketError, match=r"taken for 100 rounds; bring them sooner, or .* ticket_life"):
        pop.learn(ticket, 1)


def test_a_run_says_how_many_labels_came_too_late() -> None:
    stream = open_stream("agrawal", rows=2000)
    said = list[str]()
    plan = confide.Plan.tight(4.0, 1e-4, 2000)
    settings = Settings("agrawal", rounds=2000, delay=1500, twin=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        outcome = run_stream(stream, None, plan, settings, hooks=Hooks(say=said.append))
    late = outcome.pop.operator.late.labels
    assert late > 100 and any("came too late" in one for one in said)
    assert taught_of_brought(outcome) == f"{late:,} of 2,000 labels came too late to teach anything, by --delay"


def test_an_operator_sees_late_labels_and_nobody_else_does(tmp_path: Path) -> None:
    with PopDesk.open(tmp_path / "m", made, save_every=None) as desk:
        answers = desk.ask([Question("ann", f"{i}", x) for i, x in enumerate(XS)])
        before = desk.public()
        given = [one.answer for one in answers if one.answer is not None]
        desk.learn([Taught("ann", one.ticket, y) for one, y in zip(given, YS, strict=True)])
        private = desk.private()
        assert private["late_labels"] > 300 and any("labels came too late" in one for one in private["alarms"])
        assert desk.public() == before
