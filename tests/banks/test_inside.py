"""River's models that are asked without rewinding do stay as they are."""

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import river
from river import base, compose, datasets, linear_model, preprocessing
from sklearn.dummy import DummyClassifier

from confide.banks import ReplicaBank
from confide.banks.inside import _PURE_IN_RIVER, is_pure
from confide.learners import DecisionTree, Refit, as_learner
from confide.privacy.random import Random

NAMES = _PURE_IN_RIVER.split()


def river_models() -> Iterator[Any]:
    """Every classifier and transformer of River that is asked without rewinding."""
    for module in pkgutil.iter_modules(river.__path__):
        if module.name.startswith("_") or module.name == "api":
            continue
        for name, kind in inspect.getmembers(importlib.import_module(f"river.{module.name}"), inspect.isclass):
            if name in NAMES and issubclass(kind, base.Classifier | base.Transformer):
                yield from (kind(**params) for params in kind._unit_test_params())


@pytest.mark.parametrize("model", list(river_models()), ids=lambda model: type(model).__name__)
def test_a_model_that_is_not_rewound_stays_as_it_is(model: Any) -> None:
    """Also when features come that it never saw, and when those it knows stay away."""
    if not hasattr(model, "predict_one"):
        model = model | linear_model.LogisticRegression()
    bank = ReplicaBank(model, 2, 2, None, Random())
    assert is_pure(bank._prototype)
    for i, (x, y) in enumerate(datasets.Phishing().take(60)):
        bank.learn(0, bank.encode(x), int(y))
        if i % 10 == 0:
            before = pickle.dumps(bank._replicas[0])
            for question in (x, {**x, "new": 1.0}, {"new": 2.0}, dict(list(x.items())[:3])):
                votes = bank.votes(bank.encode(question), np.array([0]))
                assert i == 0 or votes.sum() == 1 or question != x
                assert pickle.dumps(bank._replicas[0]) == before


def test_every_model_in_the_list_exists() -> None:
    found = {type(model).__name__ for model in river_models()} | {"Pipeline"}
    assert found == set(NAMES)


def test_what_is_not_known_is_rewound() -> None:
    class Mine:
        def predict(self, x: Any) -> int:
            return 0

        def learn(self, x: Any, y: int) -> None: ...

    scaled = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    assert is_pure(as_learner(scaled)) and is_pure(DecisionTree()) and is_pure(Refit(DummyClassifier()))
    assert not is_pure(Mine())
    assert not is_pure(as_learner(compose.FuncTransformer(len) | linear_model.LogisticRegression()))
    with compose.learn_during_predict():
        assert not is_pure(as_learner(scaled))
