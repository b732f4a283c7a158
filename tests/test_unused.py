"""No number is accepted and ignored: what changes nothing in a plan, a model or a command is refused with a sentence.

Each optional argument is given alone beside each mode; the signatures say which there are, so that a new one must be
looked at here.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import confide
from confide import POP, Plan
from confide.banks.choose import bank_for
from confide.cli.app import app
from confide.learners import DecisionTree, Features, HashedFeatures, LogisticRegression
from confide.planning.agnostic import agnostic_plan
from confide.planning.arguments import Unused
from confide.planning.promise import Promise
from confide.pop.monitor import Monitor
from confide.pop.settings import Options
from confide.privacy.random import Random

Given = dict[str, Any]

ECHOED = ("beta", "mistakes", "unit_labels")
"""Numbers that a plan also writes down as they were given: that alone is no effect."""

OTHER: Given = {
    "copies": 1500, "unsure": 90, "polls": 64, "silent": 700, "unit_unsure": 2, "labels": 3, "beta": 0.002,
    "dissent": 0.2, "guide": 0.4, "lean": "additive", "units": "people", "unit_labels": 2, "history": 500,
    "mistakes": 2, "fallback_error": 1.0, "counter_share": 0.3, "reserve": 2.0, "rounds": 9000, "relay": True,
}  # fmt: skip

TIGHT: dict[str, Given] = {
    "copies": {"guide": None},
    "copies that are given": {"guide": None, "copies": 1200, "unsure": 300},
    "a lean": {"guide": None, "lean": "fill"},
    "a guide": {"guide": 1.0},
    "a guide that is chosen": {},
    "a share": {"guide": 0.3},
    "a share beside copies that are given": {"guide": 0.3, "copies": 1200, "unsure": 300},
    "copies that are given, and a guide that is chosen": {"copies": 1200, "unsure": 300},
    "copies that leave nothing for a guide": {"copies": 500, "unsure": 150},
    "people": {"guide": 0.3, "units": "people"},
    "people and a guide": {"guide": 1.0, "units": "people"},
    "people and copies": {"guide": None, "units": "people"},
}

PAPER: dict[str, Given] = {"given": {"copies": 60_000, "unsure": 2000}}  # what is chosen takes a minute

CERTIFIED: dict[str, Given] = {
    "chosen": {"mistakes": 1},
    "copies": {"mistakes": 1, "copies": 700},
    "a lean": {"mistakes": 1, "lean": "fill"},
}

AGNOSTIC: dict[str, Given] = {"chosen": {}, "copies": {"copies": 900}, "a lean": {"lean": "fill"}}


@cache
def tight(given: str) -> Any:
    return attempt(lambda: Plan.tight(8.0, 1e-4, **{"rounds": 20_000, **json.loads(given)}))


def attempt(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError as error:
        return error


def effect(plan: Plan) -> Given:
    """All that a plan does: its file, without what it only repeats."""
    body = json.loads(plan.to_json())
    for each in (body, body["promise"], *body["parts"]):
        for name in ECHOED if each.get("part") != "linear" else ():
            each.pop(name, None)
    return dict(body)


def optional(function: Callable[..., Any]) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [one.name for one in found if one.default is not inspect.Parameter.empty]


def told(without: Any, made: Any, name: str) -> None:
    """The argument has an effect, or a sentence names it."""
    assert isinstance(without, Plan), f"the mode itself is no plan: {without}"
    if isinstance(made, ValueError):
        assert re.search(rf"\b{name}\b", str(made)), f"{name} is refused in words that do not name it: {made}"
    elif effect(without) == effect(made):
        notes = " ".join(made.notes)
        assert name == "history" and "history costs copies nothing" in notes, f"{name} is accepted and ignored"


@pytest.mark.parametrize("mode", TIGHT)
@pytest.mark.parametrize("name", optional(Plan.tight))
def test_every_argument_of_a_tight_plan_has_an_effect_or_is_refused(mode: str, name: str) -> None:
    given = TIGHT[mode]
    if name in given:
        pytest.skip("it is what the mode is")
    told(tight(json.dumps(given)), tight(json.dumps({**given, name: OTHER[name]})), name)


@pytest.mark.parametrize("name", optional(Plan.certified))
@pytest.mark.parametrize("mode", CERTIFIED)
def test_every_argument_of_a_certified_plan_has_an_effect_or_is_refused(mode: str, name: str) -> None:
    given = CERTIFIED[mode]
    if name in given:
        pytest.skip("it is what the mode is")
    plans = (attempt(lambda more=more: Plan.certified(8.0, 1e-4, 20_000, **given, **more))
             for more in ({}, {name: OTHER[name]}))  # fmt: skip
    told(*plans, name)


@pytest.mark.parametrize("name", optional(Plan.paper))
@pytest.mark.parametrize("mode", PAPER)
def test_every_argument_of_the_papers_plan_has_an_effect_or_is_refused(mode: str, name: str) -> None:
    given = PAPER[mode]
    if name in given:
        pytest.skip("it is what the mode is")
    plans = (attempt(lambda more=more: Plan.paper(8.0, 1e-4, 20_000, **given, **more))
             for more in ({}, {name: OTHER[name]}))  # fmt: skip
    told(*plans, name)


@pytest.mark.parametrize("name", optional(agnostic_plan))
@pytest.mark.parametrize("mode", AGNOSTIC)
def test_every_argument_of_a_plan_in_phases_has_an_effect_or_is_refused(mode: str, name: str) -> None:
    given = AGNOSTIC[mode]
    if name in given:
        pytest.skip("it is what the mode is")
    plans = (attempt(lambda more=more: agnostic_plan(8.0, 1e-4, 20_000, factor=2.633, extra=1.0, **given, **more)[0])
             for more in ({}, {name: OTHER[name]}))  # fmt: skip
    told(*plans, name)


def test_what_is_so_anyway_may_be_said() -> None:
    for given in ({"guide": 1.0, "silent": 0, "lean": None, "unit_unsure": 1}, {"guide": None, "unit_labels": 1}):
        assert isinstance(tight(json.dumps(given)), Plan)
    refused = tight(json.dumps({"guide": 1.0, "beta": 0.5}))
    assert isinstance(refused, Unused) and refused.name == "beta"


# ---------------------------------------------------------------------- a POP


@cache
def plans() -> dict[str, Plan]:
    copies = {"copies": 40, "unsure": 100, "silent": 100}
    return {
        "copies": Plan.tight(20.0, 1e-2, 400, **copies, guide=None),  # type: ignore[arg-type]
        "a guide": Plan.tight(20.0, 1e-2, 400, guide=1.0),
        "both": Plan.tight(60.0, 1e-2, 400, **copies, guide=0.3),  # type: ignore[arg-type]
    }


def fallback_of(pop: POP) -> Any:
    return pop._loop.fallback.kind


POPS: dict[str, tuple[Any, Callable[[POP], Any]]] = {
    "fallback": (1, fallback_of),
    "features": (Features(numeric=["a", "b"]), lambda pop: pop.named),
    "units": ("people", lambda pop: pop.guarantee.sentence),
    "after_halt": ("raise", lambda pop: past_the_end(pop)),
    "ticket_life": (1, lambda pop: late(pop)),
    "monitor": (Monitor(0.1), lambda pop: pop.guarantee.epsilon),
    "public_start": (True, lambda pop: pop._loop.bank.votes(np.ones(2), np.arange(5)).sum()),
    "label_weights": ([1.0, 3.0], lambda pop: pop._loop.guiding.guide._weights.tolist()),  # type: ignore[union-attr]
    "seed": (7, lambda pop: pop._insecure),
    "bank": (None, lambda pop: None),
}


def past_the_end(pop: POP) -> str:
    outcome = attempt(lambda: pop.predict_many([[0.0, 0.0]] * 401))
    return str(outcome) if isinstance(outcome, ValueError) else str(outcome[-1].error)


def late(pop: POP) -> str:
    ticket = pop.predict([0.0, 0.0]).ticket
    pop.predict_many([[0.0, 0.0]] * 3)
    return str(attempt(lambda: pop.learn(ticket, 0)))


def test_every_argument_of_a_pop_is_looked_at() -> None:
    assert {*optional(POP.__init__), *Options.__annotations__} == set(POPS)
    with pytest.raises(TypeError, match="no option 'rng'"):
        POP(None, plans()["a guide"], labels=[0, 1], rng=Random(seed=7))


@pytest.mark.parametrize("mode", ["copies", "a guide", "both"])
@pytest.mark.parametrize("name", [name for name in POPS if name != "bank"])
def test_every_argument_of_a_pop_has_an_effect_or_is_refused(mode: str, name: str) -> None:
    plan, (value, look) = plans()[mode], POPS[name]
    learner = None if mode == "a guide" else taught()
    common: Given = {"labels": [0, 1], "features": 2}
    made = attempt(lambda: POP(learner, plan, **{**common, name: value}))
    if isinstance(made, ValueError):
        assert name in str(made) or name.replace("_", " ") in str(made)
        return
    assert look(made) != look(POP(learner, plan, **common)), f"{name} is accepted and ignored"


def taught() -> LogisticRegression:
    learner = LogisticRegression()
    for i in range(40):
        learner.learn(np.array([float(i % 2), 1.0]), i % 2)
    return learner


def test_features_beside_a_learner_that_brings_its_own_are_refused() -> None:
    learner = Features(numeric=["a"]) | DecisionTree()
    for mode in ("copies", "both"):
        with pytest.raises(ValueError, match="brings its own features"):
            POP(learner, plans()[mode], labels=[0, 1], features=Features(numeric=["b"]))


def test_a_learner_that_the_plan_never_asks_is_refused_with_the_ways_on() -> None:
    with pytest.raises(ValueError, match="LogisticRegression would never answer: the plan has no copies"):
        POP(LogisticRegression(), plans()["a guide"], labels=[0, 1], features=2)


# ---------------------------------------------------------------------- the adapters


def test_what_an_adapter_would_not_use_is_refused() -> None:
    river, sklearn = pytest.importorskip("confide.river"), pytest.importorskip("confide.sklearn")
    promise, guide = Promise(20.0, 1e-2, 2000), plans()["a guide"]
    with pytest.raises(ValueError, match="not both"):
        river.PrivateClassifier(promise=promise, plan=guide)
    with pytest.raises(ValueError, match="no copies, so none has a public start"):
        _ = river.PrivateClassifier(promise=Promise(8.0, rounds=2000), public_start=True).pop
    xs, ys = np.random.default_rng(1).normal(size=(2000, 2)), np.arange(2000) % 2
    copies: Given = {"estimator": LogisticRegression(), "plan": plans()["copies"]}
    refused: list[tuple[Given, str]] = [
        ({"after_halt": "raise"}, "never halts: leave after_halt out"),
        ({"promise": promise, "plan": guide}, "not both"),
        ({**copies, "history": 2000}, "leave history out"),
        ({**copies, "ranges": (0, 1)}, "ranges are for a guide alone"),
        ({**copies, "label_weights": [1, 2]}, "label_weights are the guide's"),
        ({"promise": Promise(20.0, 1e-2, labels=3)}, "for 3 labels, and there are 2"),
        ({"promise": Promise(20.0, 1e-2, units="people")}, "protects rows: for people"),
        ({"plan": Plan.tight(20.0, 1e-2, 400, guide=1.0, units="people")}, "protects rows: for people"),
    ]
    for given, said in refused:
        with pytest.raises(ValueError, match=said):
            sklearn.PrivateClassifier(**given).fit(xs, ys)
    labels = Promise(1.0, protect="labels")
    with pytest.raises(ValueError, match="label_weights are the guide's"):
        _ = river.PrivateClassifier(promise=labels, label_weights=[1, 2]).pop
    for given, said in (({"history": 5}, "leave history out"), ({"after_halt": "raise"}, "never halts")):
        with pytest.raises(ValueError, match=said):
            sklearn.PrivateClassifier(promise=labels, **given).fit(xs, ys)
    for wrong in ({"promise": 1.0}, {"plan": 1.0}):
        with pytest.raises(ValueError, match="must be a confide"):
            river.PrivateClassifier(**wrong)
        with pytest.raises(ValueError, match="must be a confide"):
            sklearn.PrivateClassifier(**wrong).fit(xs, ys)


# ---------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan -e 8 -T 20000 --no-guide --unit-labels 5", "--unit-labels is for a guide"),
        ("plan -e 8 -T 20000 --mistakes 1 --unit-labels 5", "--unit-labels is for a guide"),
        ("plan -e 8 -T 20000 --paper --unit-labels 5", "--unit-labels is for a guide"),
        ("plan -e 8 -T 20000 --frontier --unit-labels 5", "--unit-labels is for a guide"),
        ("plan -e 8 -T 20000 --paper --lean fill", "does not lean: leave out"),
        ("plan -e 8 -T 20000 --frontier --lean fill", "--frontier chooses for itself"),
        ("plan -e 8 -T 20000 --lean often", "must be one of none, fill, additive"),
        ("plan -e 8 -T 20000 --no-guide --history 9", "--history is for a guide"),
        ("plan -e 8 -T 20000 --endless", "leave --rounds out"),
        ("plan -e 8 --endless --no-guide", "--endless is for a guide"),
        ("plan -e 8 -T 20000 --mistakes 1 --units people", "--units is for a guide, or for a plan of ours"),
        ("plan -e 8 -T 20000 --lean fill", "lean=fill is for copies"),
        ("plan -e 8 -T 20000 --silent 5", "silent=5 is for copies"),
        ("run sea -e 8 -T 2000 --lean fill", "lean=fill is for copies"),
        ("plan -e 8 -T 20000 --beta 0.5", "beta=0.5 is for copies"),
        ("plan -e 8 -T 20000 --unit-unsure 5", "unit_unsure=5 is for copies"),
        ("run sea -e 8 -T 2000 --silent 5", "silent=5 is for copies"),
        ("run sea -e 8 -T 2000 --beta 0.5", "beta=0.5 is for copies"),
        ("run sea -e 8 -T 2000 --trusted", "--trusted is for --resume"),
        ("run phishing -e 8 --stream-seed 4", "--stream-seed is for generated streams"),
        ("run sea -e 8 -T 2000 --label a", "are for files"),
        ("serve confide.toml --example", "--example prints a file"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(words: str, said: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code != 0 and said in " ".join((done.output + str(done.exception)).split())


def test_the_package_has_no_other_planner() -> None:
    made = {name for name, one in inspect.getmembers(Plan, inspect.ismethod) if one.__self__ is Plan}
    assert made == {"tight", "certified", "paper", "labels_alone", "from_json"} and confide.Plan is Plan


class _Own:
    width = 1

    def encode(self, x: Any, /) -> Any:
        return np.zeros(1)


@pytest.mark.parametrize("encoder", [_Own(), HashedFeatures(64)], ids=["own", "hashed"])
def test_an_encoder_is_refused_where_no_copy_reads_by_it(encoder: Any) -> None:
    """The guide reads by columns, or hashes to places of its own: it would not ask the encoder, nor heed a width."""
    with pytest.raises(ValueError, match="HashedFeatures or an encoder of your own, which copies alone read by"):
        POP(None, Plan.tight(8.0, 1e-3, 200, guide=1.0), labels=[0, 1], features=encoder)


def test_a_public_start_is_refused_beside_a_bank_of_ones_own() -> None:
    plan = Plan.tight(8.0, 1e-3, 2000, copies=100, unsure=20, silent=0, guide=None, beta=0.01)
    bank = bank_for(LogisticRegression(), 100, 2, 1, Random(1))
    with pytest.raises(ValueError, match="leave public_start out"):
        POP(LogisticRegression(), plan, labels=[0, 1], features=1, bank=bank, public_start=True)
