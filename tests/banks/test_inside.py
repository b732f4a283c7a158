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
from river import base, compose, datasets, linear_model, multiclass, preprocessing
from sklearn.dummy import DummyClassifier

from confide.banks import ReplicaBank
from confide.banks.inside import _PURE_IN_RIVER, hold_still, is_pure
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


PHISHING = [(x, int(y)) for x, y in datasets.Phishing().take(60)]


@pytest.mark.parametrize("model", list(river_models()), ids=lambda model: type(model).__name__)
def test_a_model_that_is_not_rewound_stays_as_it_is(model: Any) -> None:
    """From its first lesson on, whatever it is asked, and also where River is told to learn when asked."""
    if not hasattr(model, "predict_one"):
        model = model | linear_model.LogisticRegression()
    names = list(PHISHING[0][0])
    bank = ReplicaBank(model, 2, 2, names, Random())
    assert bank._pure
    for i, (x, y) in enumerate(PHISHING):
        bank.learn(0, bank.encode(x), y)
        if i % 10 == 0:
            before = pickle.dumps(bank._replicas[0])
            for question in (x, {**x, names[0]: 1e30, "new": 1.0}, {}, {names[1]: -1.0}):
                with compose.learn_during_predict():
                    votes = bank.votes(bank.encode(question), np.array([0]))
                assert i == 0 or votes.sum() == 1 or question is not x
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
    invents = preprocessing.OneHotEncoder() | linear_model.LogisticRegression()
    wrapped = multiclass.OneVsRestClassifier(scaled)  # clones its pipelines as labels come
    assert is_pure(DecisionTree()) and is_pure(Refit(DummyClassifier()))
    assert not is_pure(Mine())
    held = {}
    for name, model in {"scaled": scaled, "invents": invents, "wrapped": wrapped}.items():
        held[name] = as_learner(model)
        assert not is_pure(held[name], fixed=True)
        hold_still(held[name])
        assert not is_pure(held[name], fixed=False)
    assert is_pure(held["scaled"], fixed=True)
    assert not is_pure(held["invents"], fixed=True) and not is_pure(held["wrapped"], fixed=True)
    assert not is_pure(as_learner(compose.FuncTransformer(len) | linear_model.LogisticRegression()), fixed=True)


def test_a_public_model_is_not_held_still_itself() -> None:
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    ReplicaBank(model, 2, 2, ["a"], Random(), public_start=True)
    with compose.learn_during_predict():
        model.predict_one({"a": 3.0})
    assert model["StandardScaler"].counts["a"] == 1
