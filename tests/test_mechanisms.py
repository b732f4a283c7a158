"""One suite that every mechanism passes: what games, runs, adapters and services may rely on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Halted, Plan, TicketError, evaluate
from confide.learners import DecisionTree, LogisticRegression
from confide.planning.agnostic import agnostic_plan
from confide.pop.base import Answer, Durable, Mechanism
from confide.pop.phases import Phases

pytestmark = pytest.mark.claim("people.md")

ROUNDS = 60
PLAN = Plan.tight(60.0, 1e-2, ROUNDS, copies=30, unsure=45, silent=10, guide=None)
SHORT, _ = agnostic_plan(8.0, 1e-2, 4000, factor=1.0, extra=1.0)


def pop(**options: Any) -> POP:
    settings: dict[str, Any] = {"labels": ["no", "yes"], "features": 2, "seed": 1, **options}
    return POP(options.pop("learner", LogisticRegression()), PLAN, **{"after_halt": "raise", **settings})


MECHANISMS: dict[str, Callable[[], Any]] = {
    "POP for rounds": pop,
    "POP for people": lambda: pop(units="people"),
    "POP of trees": lambda: POP(DecisionTree(), PLAN, labels=["no", "yes"], features=2, seed=1, after_halt="raise"),
    "POP that falls back": lambda: pop(fallback="no"),
    "Phases": lambda: Phases(LogisticRegression(), SHORT, labels=["no", "yes"], features=2, seed=1),
}

every = pytest.mark.parametrize("make", MECHANISMS.values(), ids=MECHANISMS)


def unit(mechanism: Mechanism, name: str = "ann") -> dict[str, Any]:
    return {"unit": name} if mechanism.units == "people" else {}


def units(mechanism: Mechanism, rows: int) -> list[str] | None:
    return [f"p{i}" for i in range(rows)] if mechanism.units == "people" else None


@every
def test_it_has_everything_a_mechanism_has(make: Callable[[], Any]) -> None:
    mechanism = make()
    assert isinstance(mechanism, Mechanism)
    for name, method in inspect.getmembers(Mechanism, inspect.isfunction):
        if not name.startswith("_"):
            asked, given = inspect.signature(method), inspect.signature(getattr(type(mechanism), name))
            more = [p.name for p in given.parameters.values() if p.kind == p.KEYWORD_ONLY]  # its own, by name alone
            names = [p for p in given.parameters if not p.startswith("_") and p not in more]
            assert list(asked.parameters) == names, name
    assert mechanism.labels == ("no", "yes") and mechanism.units in ("rounds", "people")
    assert mechanism.rounds == 0 and mechanism.halt_reason is None and mechanism.state in ("silent", "live")
    assert mechanism.guarantee.epsilon > 0


@every
def test_a_question_takes_a_round_and_its_ticket_is_good_once(make: Callable[[], Any]) -> None:
    mechanism = make()
    answer = mechanism.predict([1.0, 2.0], **unit(mechanism))
    assert isinstance(answer, Answer) and answer.label in ("no", "yes") and answer.ticket and answer.error is None
    assert mechanism.rounds == 1
    with pytest.raises(ValueError, match="label"):
        mechanism.learn(answer.ticket, "maybe")
    mechanism.learn(answer.ticket, "yes")
    with pytest.raises(TicketError, match="used"):
        mechanism.learn(answer.ticket, "yes")
    with pytest.raises(TicketError):
        mechanism.learn("nonsense", "yes")
    assert mechanism.rounds == 1


QUESTIONS: list[Any] = [None, [1.0], ["x", 1.0], "text", {"a": 1.0}, [1j, 0], object()]


@every
@pytest.mark.parametrize("x", QUESTIONS, ids=lambda x: type(x).__name__)
def test_what_cannot_be_read_takes_its_round(make: Callable[[], Any], x: Any) -> None:
    mechanism = make()
    with pytest.raises(ValueError):
        mechanism.predict(x, **unit(mechanism))
    assert mechanism.rounds == 1
    with pytest.raises(ValueError):
        mechanism.teach(x, "yes", **unit(mechanism))
    assert mechanism.rounds == 1


@every
def test_many_are_as_one_by_one(make: Callable[[], Any]) -> None:
    mechanism = make()
    xs = [[1.0, 2.0], None, [0.5, 0.5], [1.0]]
    answers = mechanism.predict_many(xs, units(mechanism, 4))
    assert [answer.error is None for answer in answers] == [True, False, True, False]
    assert [bool(answer.ticket) for answer in answers] == [True, False, True, False] and mechanism.rounds == 4
    with pytest.raises(ValueError, match="row 1 was refused"):
        mechanism.learn_many([answers[0].ticket, "nonsense", answers[2].ticket], ["yes", "yes", "no"])
    with pytest.raises(TicketError, match="used"):
        mechanism.learn(answers[2].ticket, "no")
    with pytest.raises(ValueError, match="row 1 was refused"):
        mechanism.teach_many(xs[:3], ["yes", "yes", "no"], units(mechanism, 3))
    for call in (mechanism.learn_many, mechanism.teach_many):
        with pytest.raises(ValueError, match="one label for each"):
            call([[1.0, 2.0]], [])


@every
def test_rounds_run_out(make: Callable[[], Any]) -> None:
    mechanism = make()
    rounds = mechanism.plan.rounds
    mechanism.predict_many(np.ones((rounds - 1, 2)), units(mechanism, rounds - 1))
    if mechanism.halt_reason is None:
        answers = mechanism.predict_many(np.ones((3, 2)), units(mechanism, 3))
        assert [answer.error is None for answer in answers] == [True, False, False]
    assert mechanism.rounds <= rounds and mechanism.state == "halted" and mechanism.halt_reason is not None
    with pytest.raises(Halted):
        mechanism.predict([1.0, 2.0], **unit(mechanism))


@every
def test_it_can_be_evaluated(make: Callable[[], Any]) -> None:
    mechanism = make()
    xs, ys = [[i % 2, 1.0] for i in range(40)], [("no", "yes", "unheard of")[i % 2 + (i == 7)] for i in range(40)]
    xs[3] = ["x", 1.0]
    result = evaluate(mechanism, xs, ys, units(mechanism, 40))
    assert result.rounds == mechanism.rounds == 40
    assert result.refused.tolist() == [i == 3 for i in range(40)]
    assert result.wrong[3] and not result.wrong[7], "a row without a usable label is in no error"
    with pytest.raises(ValueError, match="none of the first"):
        evaluate(make(), xs, ["unheard of"] * 40, units(mechanism, 40))


@pytest.mark.parametrize("make", [pop, lambda: pop(units="people")])
def test_a_durable_one_goes_on_where_it_was(make: Callable[[], POP], tmp_path: Path) -> None:
    mechanism = make()
    assert isinstance(mechanism, Durable)
    mechanism.save(tmp_path / "state")
    answer = mechanism.predict([1.0, 2.0], **unit(mechanism))
    mechanism.save(tmp_path / "state")
    mechanism.close()
    again = type(mechanism).load(tmp_path / "state")
    assert again.rounds == 1 and not again.guarantee.secure
    again.learn(answer.ticket, "yes")
    again.close()
