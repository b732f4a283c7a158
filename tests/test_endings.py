"""A POP that halts, has no planned rounds left, or learns no more says so: once, and from what is public alone."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import confide
from confide.cli.app import app
from confide.learners import DecisionTree
from confide.pop.look import learns
from confide.pop.pop import POP


@cache
def guided(rounds: int = 120) -> confide.Plan:
    return confide.Plan.tight(8.0, 1e-3, rounds, guide=1.0)


@cache
def copies() -> confide.Plan:
    """Copies that know nothing: their budget is used up soon."""
    return confide.Plan.tight(8.0, 1e-3, 2000, copies=100, unsure=20, silent=0, guide=None, beta=0.01)


def heard(pop: POP, rounds: int, *, label: Any = None, many: bool = False) -> list[str]:
    """What is warned of in so many rounds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for start in range(0, rounds if many else 0, 40):
            pop.predict_many([[0.0]] * min(40, rounds - start))
        for _ in range(0 if many else rounds):
            answer = pop.predict([0.0])
            if label is not None:
                pop.learn(answer.ticket, label)
    assert all(issubclass(one.category, confide.ConfideWarning) for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("many", [False, True])
def test_a_pop_whose_planned_rounds_are_over_says_so_once(many: bool) -> None:
    pop = confide.POP(None, guided(), labels=[0, 1], features=1)
    assert heard(pop, 120, many=many) == [] and pop.standing == "live"
    said = heard(pop, 5, many=many) + heard(pop, 5)
    assert said == [
        "this POP stands still: the planned rounds are over: the guide answers on as it is, and learns no more"
    ]
    assert pop.standing in said[0] and "learns no more" in repr(pop) and "learns no more" in pop._repr_html_()


def test_labels_that_teach_nothing_any_more_are_warned_of_in_each_call_that_brings_some() -> None:
    pop = confide.POP(None, guided(), labels=[0, 1], features=1)
    assert heard(pop, 120, label=1) == []
    said = heard(pop, 3, label=1)
    assert len(said) == 4 and all(one.endswith("labels brought now teach nothing") for one in said[1:])
    with pytest.warns(confide.ConfideWarning, match="labels brought now teach nothing"):
        pop.teach([0.0], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pop.teach_many([[0.0]], [1])


@pytest.mark.parametrize("many", [False, True])
def test_copies_that_halt_say_so_once_and_who_answers_then(many: bool) -> None:
    pop = confide.POP(DecisionTree(), copies(), labels=[0, 1], features=1, fallback=0)
    said = heard(pop, 400, many=many)
    assert pop.halt_reason == "budget" and said == [
        "this POP stands still: the copies have halted, their budget used up: the fallback answers, and nothing is "
        "learned any more"
    ]
    assert heard(pop, 5) == [] and "budget used up" in repr(pop)


def test_where_a_halt_raises_only_labels_in_vain_are_warned_of() -> None:
    pop = confide.POP(DecisionTree(), copies(), labels=[0, 1], features=1, fallback=0, after_halt="raise")
    tickets = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(confide.Halted):
            for _ in range(2000):
                tickets.append(pop.predict([0.0]).ticket)
    with pytest.warns(confide.ConfideWarning, match="nothing is answered any more; labels brought now teach nothing"):
        pop.learn(tickets[-1], 1)


def test_after_a_halt_a_guide_learns_until_the_planned_rounds_are_over() -> None:
    plan = guided()
    assert learns(plan, 120, None) and learns(plan, 119, "budget") and not learns(plan, 121, "budget")
    assert not learns(copies(), 30, "budget") and not learns(plan, 121, "rounds")


def test_nothing_is_warned_of_before_it_may_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A halt is public once it is durable: a ledger that cannot be written shows nobody one."""
    pop = confide.POP(None, guided(), labels=[0, 1], features=1)
    pop.save(tmp_path / "pop")
    pop.predict_many([[0.0]] * 120)

    def full(*_: object, **__: object) -> None:
        raise confide.StateError("the disk is full")

    monkeypatch.setattr(pop.operator.loop.account.book, "wait", full)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(confide.StateError):
            pop.predict([0.0])
    assert pop.state == "live"


def test_status_says_in_words_what_has_ended_and_whether_the_learner_failed(tmp_path: Path) -> None:
    class Failing:
        def predict(self, x: Any) -> int:
            return 1 // int(x[0])

        def learn(self, x: Any, y: Any) -> None:
            pass

    pop = confide.POP(Failing(), copies(), labels=[0, 1], features=1, fallback=0)
    pop.predict_many([[0.0]] * 400)
    pop.save(tmp_path / "pop")
    pop.close()
    said = CliRunner().invoke(app, ["status", str(tmp_path / "pop")]).output
    public, _, private = said.partition("perator")
    assert "the fallback answers, and nothing is learned any more" in " ".join(public.split())
    assert "the learner failed" in private and "the learner failed" not in public
