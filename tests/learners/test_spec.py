"""Learners as JSON: what comes back is what went in, or there is no spec."""

import json
from inspect import signature
from typing import Any

import numpy as np
import pytest
from river import linear_model

from confide import StateError, learners
from confide.learners import Columns, Features, GaussianNB, HashedFeatures, LogisticRegression, Pipeline, Stacked
from confide.learners.spec import from_spec, to_spec

KNOWN = [
    5,
    np.int64(5),
    LogisticRegression(),
    LogisticRegression(learning_rate=0.25, class_weight=(1.0, 2.0)),
    LogisticRegression(class_weight=[1.0, 2.0]),
    GaussianNB(warmup=3),
    Features(numeric=("a", "b")),
    Features(numeric=["a"], log=("c",), categorical={"d": 4}, text={"e": 8}),
    Features(categorical={"tuple": 4}),
    HashedFeatures(16),
    Columns(3),
    Features(numeric=["a"], categorical={"b": 4}) | LogisticRegression(),
    Pipeline(HashedFeatures(8), GaussianNB()),
    Pipeline(Columns(2), Pipeline(Columns(2), LogisticRegression())),
]


@pytest.mark.parametrize("thing", KNOWN, ids=lambda thing: type(thing).__name__)
def test_there_and_back(thing: Any) -> None:
    spec = json.loads(json.dumps(to_spec(thing)))
    back = from_spec(spec)
    assert repr(back) == repr(int(thing) if isinstance(thing, np.integer) else thing) and to_spec(back) == spec


def plain(kind: Any) -> bool:
    """Whether it is a learner that can be made without arguments."""
    return (
        isinstance(kind, type)
        and issubclass(kind, Stacked)
        and all(one.default is not one.empty for one in signature(kind).parameters.values())
    )


PLAIN = [kind for kind in (getattr(learners, name) for name in learners.__all__) if plain(kind)]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_every_learner_with_defaults_has_a_spec(kind: Any) -> None:
    assert len(PLAIN) >= 6 and repr(from_spec(to_spec(kind()))) == repr(kind())


class Mine:
    """Somebody's own learner."""

    def predict(self, x: Any) -> int:
        return 0

    def learn(self, x: Any, y: int) -> None:
        pass


class Subclass(LogisticRegression):
    """A learner of somebody who took ours as a start."""


Namesake = type("LogisticRegression", (LogisticRegression,), {})


@pytest.mark.parametrize(
    "thing",
    [
        None,
        Mine(),
        Subclass(),
        Namesake(),
        linear_model.LogisticRegression(),
        Features(numeric=["a"]) | Mine(),
        Pipeline(Features(numeric=["a"]), linear_model.LogisticRegression()),
        LogisticRegression(learning_rate=np.float64(0.25)),
        Features(categorical={1: 4}),  # type: ignore[dict-item]
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_would_come_back_as_another_has_no_spec(thing: Any) -> None:
    """It is given again where the state is loaded: a spec that makes another would lose all that was learned."""
    assert to_spec(thing) is None


@pytest.mark.parametrize(
    "name", ["eval", "as_learner", "Learner", "__init__", "base", "Nothing", None, ["x"]], ids=str
)
def test_only_learners_are_named(name: Any) -> None:
    with pytest.raises(StateError, match="unknown learner"):
        from_spec({"class": name, "params": {}})


def test_other_parameters_are_refused() -> None:
    with pytest.raises(StateError, match="other parameters"):
        from_spec({"class": "LogisticRegression", "params": {"no_such": 1}})
    with pytest.raises(StateError, match="other parameters"):
        from_spec({"class": "LogisticRegression", "params": {"warmup": -1}})
