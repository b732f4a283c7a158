"""Models of others as learners: classifiers only, and no row moves another's answer."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from river import anomaly, cluster, linear_model, preprocessing
from sklearn import ensemble, naive_bayes, svm, tree
from sklearn import linear_model as sklearn_linear
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler
from sklearn.utils import all_estimators

from confide.learners import Refit, as_learner
from confide.learners.called import RAISED
from confide.learners.rowwise import _BY_ROW, _LINEAR, Heard, ask, ask_each, is_linear, is_rowwise

RNG = np.random.default_rng(1)


@pytest.mark.parametrize(
    "model",
    [
        linear_model.LinearRegression(),
        preprocessing.StandardScaler() | linear_model.LinearRegression(),
        cluster.KMeans(),
        preprocessing.StandardScaler() | (preprocessing.StandardScaler() | linear_model.LinearRegression()),
        sklearn_linear.LinearRegression(),
        sklearn_linear.SGDRegressor(),
        make_pipeline(StandardScaler(), sklearn_linear.Ridge()),
        KMeans(),
        MiniBatchKMeans(),
        IsolationForest(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_predicts_no_labels_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="does not predict labels: give one of"):
        as_learner(model, labels=2)


def test_what_predicts_labels_is_taken_and_a_shared_cache_is_not() -> None:
    for model in (svm.SVC(), make_pipeline(StandardScaler(), tree.DecisionTreeClassifier()), DummyClassifier()):
        assert isinstance(as_learner(model), Refit)
    with pytest.raises(ValueError, match="without memory"):
        as_learner(make_pipeline(StandardScaler(), svm.SVC(), memory="folder"))
    with pytest.raises(ValueError, match="no learner"):
        as_learner(anomaly.HalfSpaceTrees())


KINDS = dict(all_estimators())
SHAPES = ((1, 2, None), (7, 3, StandardScaler()), (33, 2, RobustScaler()), (130, 4, None))


@pytest.mark.parametrize(("ours", "theirs"), [("confide.river", "river"), ("confide.sklearn", "sklearn")])
def test_without_the_library_its_adapter_says_what_to_install(
    ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == ours or name.partition(".")[0] == theirs]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, theirs, None)  # type: ignore[arg-type]
    with pytest.raises(ModuleNotFoundError, match=re.escape(f'pip install "confide[{theirs}]"')):
        importlib.import_module(ours)


def fitted(name: str) -> Iterator[tuple[Any, Any]]:
    """A model on few and many columns and labels, by itself and behind scalers, with rows to ask about."""
    for width, labels, scaler in SHAPES:
        model: Any = KINDS[name]()
        model.set_params(**{key: 5 for key in ("n_estimators", "max_iter") if key in model.get_params()})
        model = model if scaler is None else make_pipeline(MinMaxScaler(), MaxAbsScaler(), scaler, model)
        xs = RNG.normal(size=(80, width)) * 10.0 ** RNG.uniform(-3, 3, size=width)
        yield model.fit(xs, np.arange(80) % labels), xs


def scores(model: Any, rows: Any) -> Any:
    """What the labels are made from, so that a last bit shows."""
    for step in model[:-1] if hasattr(model, "steps") else ():
        rows = step.transform(rows)
    last = model[-1] if hasattr(model, "steps") else model
    bayes = isinstance(last, naive_bayes.GaussianNB)
    return last.predict_joint_log_proba(rows) if bayes else last.predict_proba(rows)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(_BY_ROW))
def test_a_model_that_is_asked_in_batches_scores_each_row_as_if_alone(name: str) -> None:
    for model, xs in fitted(name):
        assert is_rowwise(model) and not is_linear(model)
        alone = np.concatenate([scores(model, xs[i : i + 1]) for i in range(40)])
        for number in (2, 3, 17, 40):
            assert scores(model, xs[:number]).tobytes() == alone[:number].tobytes()
            assert scores(model, xs[40 - number : 40]).tobytes() == alone[40 - number :].tobytes()
        one_by_one = [ask(model, xs[i : i + 1])[0] for i in range(40)]
        assert ask_each(model, xs[:40], Heard(9)).tolist() == one_by_one == model.predict(xs[:40]).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(_LINEAR))
def test_linear_models_are_asked_by_sums_that_know_one_row(name: str) -> None:
    for model, xs in fitted(name):
        assert is_linear(model) and not is_rowwise(model)
        alone = [ask(model, xs[i : i + 1])[0] for i in range(80)]
        for number in (2, 17, 80):
            assert ask_each(model, xs[:number], Heard(9)).tolist() == alone[:number]
        assert alone == model.predict(xs).tolist()  # none of these is decided by a last bit


def test_a_matrix_product_does_know_the_other_rows() -> None:
    """Why linear models are not simply given a matrix: else all of this would be idle."""
    model = sklearn_linear.SGDClassifier(random_state=1).fit(RNG.normal(size=(80, 33)), np.arange(80) % 4)
    xs = RNG.normal(size=(80, 33))
    alone = np.concatenate([model.decision_function(xs[i : i + 1]) for i in range(80)])
    assert (model.decision_function(xs) != alone).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: naive_bayes.CategoricalNB(),
        lambda: naive_bayes.BernoulliNB(),
        lambda: ensemble.RandomForestClassifier(5, n_jobs=2),
        lambda: make_pipeline(PolynomialFeatures(), tree.DecisionTreeClassifier()),
        lambda: type("Mine", (tree.DecisionTreeClassifier,), {})(),
    ],
)
def test_all_others_are_asked_row_by_row_and_fail_alone(make: Callable[[], Any]) -> None:
    model = make().fit(np.arange(12.0).reshape(6, 2) % 4, [0, 1, 0, 1, 0, 1])
    assert not is_rowwise(model) and not is_linear(model)
    rows = np.array([[0.0, 1.0], [99.0, 99.0], [2.0, 3.0]])
    answers = ask_each(model, rows, Heard(9))
    assert (answers[1] == RAISED) == isinstance(model, naive_bayes.CategoricalNB)
    assert [answers[0], answers[2]] == [ask(model, rows[:1])[0], ask(model, rows[2:])[0]]
