"""The scikit-learn adapter: scikit-learn's own checks, its conventions, and what must not leak through it."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import confide
from confide import learners
from confide.sklearn import PrivateClassifier

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

# No check is expected to fail. One asks for 83 % accuracy after 200 rows: so few can teach enough copies at a large ε
# only. Most data sets of the checks are smaller still, which is warned about, and rightly so.
CHECKED = PrivateClassifier(learners.GaussianNB(), epsilon=40.0, delta=0.01, rounds=600, copies=36, unsure=80, seed=1)


@pytest.mark.filterwarnings("ignore:.*copies know nothing", "ignore:halted")
@parametrize_with_checks([CHECKED], expected_failed_checks=lambda estimator: {})
def test_every_check_of_scikit_learn_passes(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def small(estimator: Any = None, **settings: Any) -> PrivateClassifier:
    chosen = {"epsilon": 20.0, "delta": 0.01, "rounds": 1000, "copies": 60, "unsure": 50, "seed": 1, **settings}
    return PrivateClassifier(learners.GaussianNB() if estimator is None else estimator, **chosen)


def blobs(rows: int = 1500, seed: int = 1) -> tuple[Rows, Labels]:
    X, y = make_blobs(rows, centers=3, random_state=seed)
    return X, y


# ------------------------------------------------------------------ learning and answering


TREE = DecisionTreeClassifier()


@pytest.mark.parametrize("estimator", [None, TREE, make_pipeline(StandardScaler(), TREE)])
def test_fit_teaches_history_and_predict_answers(estimator: Any) -> None:
    X, y = blobs(1000)
    model = small(estimator)
    assert model.fit(X[:900], y[:900]) is model
    assert model.pop_.rounds == 0 and model.pop_.operator.taught == 900 and model.pop_.state == "live"
    assert model.score(X[900:930], y[900:930]) > 0.8
    assert model.pop_.rounds == 30
    model.fit(X[:70], y[:70])
    assert model.pop_.rounds == 0 and model.pop_.operator.taught == 70  # anew


def test_labels_come_back_as_they_were_given() -> None:
    X, y = blobs()
    names = np.array(["low", "middle", "high"])[y]
    answers = small().fit(X, names).predict(X[:50])
    assert answers.dtype == names.dtype and (answers == names[:50]).mean() > 0.9
    booleans = small().fit(X, y == 0).predict(X[:50])
    assert booleans.dtype == bool and (booleans == (y[:50] == 0)).mean() > 0.9


def test_partial_fit_teaches_more() -> None:
    X, y = blobs()
    model = small()
    with pytest.raises(ValueError, match="first partial_fit needs all classes"):
        model.partial_fit(X[:10], y[:10])
    model.partial_fit(X[:10], np.zeros(10, dtype=int), classes=[0, 1, 2])
    pop = model.pop_
    model.partial_fit(X[10:], y[10:]).partial_fit(X[:10], y[:10], classes=[2, 1, 0])
    assert model.pop_ is pop and pop.operator.taught == 1510 and pop.rounds == 0
    assert model.score(X[:100], y[:100]) > 0.9
    with pytest.raises(ValueError, match="classes differ"):
        model.partial_fit(X[:10], y[:10], classes=[0, 1])
    with pytest.raises(ValueError, match="all good rows were learned"):  # one unknown label keeps no other from it
        model.partial_fit(X[:10], [7, *y[1:10]])
    assert pop.operator.taught == 1519
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit([[float("nan"), 0.0], *X[1:10].tolist()], y[:10])
    assert pop.operator.taught == 1528
    declared = small(classes=(0, 1, 2)).partial_fit(X[:10], np.zeros(10, dtype=int))
    assert declared.classes_.tolist() == [0, 1, 2]


def test_declared_classes_need_not_all_be_seen() -> None:
    X, y = blobs()
    model = small(classes=[3, 2, 1, 0]).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 3] and model.pop_.plan.labels == 4
    with pytest.raises(ValueError, match="declare them all"):
        small(classes=[0, 1]).fit(X, y)
    with pytest.raises(ValueError, match="two classes"):
        small(classes=[0]).fit(X, np.zeros_like(y))


def test_every_row_is_a_round_of_its_own() -> None:
    """The same row asked 400 times, of copies that do not agree: answers differ, as one shared draw would not let them.

    Each answer is a coin's at a margin where the gate is unsure; 400 equal ones have probability below 2^-100.
    """
    X = np.zeros((400, 1))
    y = np.arange(400) % 2
    model = small(learners.DecisionTree(memory=8), rounds=2000, unsure=900, copies=80).fit(X, y)
    answers = model.predict(X)
    assert set(answers.tolist()) == {0, 1} and model.pop_.rounds == 400
    assert 1 < model.pop_.operator.unsure <= 400


def test_rows_after_the_halt_are_the_fallbacks() -> None:
    X, y = blobs()
    model = small(rounds=100, unsure=10, fallback=2).fit(X, y)
    with pytest.warns(UserWarning, match="rounds used up: the last 50 of 150 rows"):
        answers = model.predict(X[:150])
    assert (answers[:100] == y[:100]).mean() > 0.9 and (answers[100:] == 2).all()
    with pytest.raises(confide.Halted, match="rounds used up"):
        model.predict(X[:1])
    going = small(rounds=100, unsure=10, fallback=2, after_halt="fallback").fit(X, y)
    with pytest.warns(UserWarning, match="the last 50 of 150 rows"):
        going.predict(X[:150])
    with pytest.warns(UserWarning, match="the last 3 of 3 rows"):
        assert (going.predict(X[:3]) == 2).all()


def test_a_halt_for_the_budget_delivers_its_own_answer() -> None:
    X = blobs(100)[0]
    with pytest.warns(UserWarning, match="know nothing"):
        model = small(copies=100, fallback=1).fit(X[:5], np.array([0, 1, 2, 0, 1]))
    with pytest.warns(UserWarning, match="budget used up: the last"):
        model.predict(np.tile(X, (3, 1)))
    assert model.pop_.halt_reason == "budget" and 50 <= model.pop_.rounds <= 100


@pytest.mark.parametrize(
    ("bad", "rounds"),
    [
        (np.array([[1.0, np.nan], [1.0, 2.0]]), 2),
        (np.ones((3, 5)), 3),
        (np.ones(4), 4),
        ([[10**401, 0.0], [1.0, 2.0]], 2),
        ([None, [1.0, 2.0]], 2),
        (["text", [1.0, 2.0]], 2),
        ([{}, [1.0, 2.0], [1.0, 2.0]], 3),
        ([[1.0, "x"]], 1),
        ([[1.0, 1e39], [1.0, 2.0], [3.0, 4.0]], 3),
        (None, 1),
    ],
)
def test_what_cannot_be_read_takes_its_rounds(bad: Any, rounds: int) -> None:
    model = small().fit(*blobs())
    with pytest.raises(ValueError):
        model.predict(bad)
    assert model.pop_.rounds == rounds
    finished = small(rounds=10, unsure=2).fit(*blobs())
    with pytest.warns(UserWarning):
        finished.predict(blobs()[0][:11])
    with pytest.raises(confide.Halted):
        finished.predict(bad)
    assert finished.pop_.rounds == 10


def test_a_row_too_large_keeps_no_other_from_being_taught() -> None:
    X, y = blobs(300)
    X[3] = 1e39
    model = small()
    with pytest.raises(ValueError, match="float32"):
        model.fit(X, y)
    assert model.pop_.operator.taught == 299


def test_columns_are_named() -> None:
    X, y = blobs()
    model = small().fit(pa.table({"a": X[:, 0], "b": X[:, 1]}), y)
    assert model.feature_names_in_.tolist() == ["a", "b"] and model.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pa.table({"b": X[:7, 1], "a": X[:7, 0]}))
    assert model.pop_.rounds == 7


# ------------------------------------------------------------------ privacy


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba", "decision_function"])
def test_scores_are_refused_with_the_reason(method: str) -> None:
    model = small().fit(*blobs())
    assert not hasattr(model, method)
    with pytest.raises(AttributeError, match="would show how the copies voted"):
        getattr(model, method)


def test_one_row_moves_one_copy() -> None:
    """Two worlds with the same coins that differ in one row of history."""
    X, y = blobs(300)
    changed = X.copy()
    changed[17] = 50.0
    worlds = []
    for rows in (X, changed):
        state = dict(small().fit(rows, y).pop_.operator.bank.state())
        arrays = [value for name, value in sorted(state.items()) if name.startswith("array ")]
        worlds.append({int(c): b"".join(a[i].tobytes() for a in arrays) for i, c in enumerate(state["taught"])})
    one, two = worlds
    assert len([c for c in one.keys() | two.keys() if one.get(c) != two.get(c)]) == 1


def test_promise_and_seed() -> None:
    X, y = blobs()
    chosen = PrivateClassifier(learners.GaussianNB(), epsilon=2.0, rounds=500).fit(X, y).pop_
    assert chosen.guarantee.epsilon <= 2 and chosen.guarantee.delta <= 1e-6 and chosen.guarantee.secure
    assert chosen.plan.silent == 0
    assert not small().fit(X, y).pop_.guarantee.secure
    with pytest.warns(UserWarning, match="1500 records for"):
        default = PrivateClassifier(learners.GaussianNB()).fit(X, y).pop_
    assert default.plan.rounds == 100_000 and default.guarantee.epsilon <= 1


SHARED = "in front of PrivateClassifier learns from everybody"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: make_pipeline(StandardScaler(), small()), "PrivateClassifier(make_pipeline(StandardScaler(), model)"),
        (lambda: make_pipeline(FunctionTransformer(), StandardScaler(), small()), "make_pipeline(StandardScaler(), m"),
        (lambda: make_pipeline(StandardScaler(), make_pipeline(Normalizer(), small())), "StandardScaler()"),
        (lambda: make_pipeline(FeatureUnion([("s", StandardScaler())]), small()), "FeatureUnion"),
        (lambda: make_pipeline(make_column_transformer((StandardScaler(), [0])), small()), "ColumnTransformer"),
    ],
)
def test_a_shared_preprocessor_is_warned_about(make: Callable[[], Pipeline], named: str) -> None:
    with pytest.warns(UserWarning, match=SHARED) as caught:
        make().fit(*blobs())
    assert len(caught) == 1 and named in str(caught[0].message)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "make",
    [
        lambda: small(),
        lambda: make_pipeline(small()),
        lambda: make_pipeline(FunctionTransformer(), Normalizer(), small()),
        lambda: Pipeline([("nothing", "passthrough"), ("private", small())]),
        lambda: make_pipeline(FeatureUnion([("n", Normalizer())]), small()),
        lambda: small(make_pipeline(StandardScaler(), NearestCentroid())),
    ],
)
def test_what_does_not_learn_or_is_inside_is_not_warned_about(make: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(*blobs(100))


# ------------------------------------------------------------------ scikit-learn's ways


def test_parameters() -> None:
    inner = NearestCentroid()
    model = small(inner)
    assert model.get_params()["estimator"] is inner and model.get_params()["estimator__metric"] == "euclidean"
    twin = clone(model.set_params(estimator__metric="manhattan", epsilon=30.0))
    assert twin.estimator is not inner and twin.estimator.metric == "manhattan" and twin.epsilon == 30.0
    assert not hasattr(clone(small().fit(*blobs())), "pop_")
    assert "epsilon=20.0" in repr(small())
    with pytest.raises(ValueError, match="after_halt='stop'"):
        small(after_halt="stop").fit(*blobs(100))


def test_the_estimator_given_is_never_taught() -> None:
    inner = NearestCentroid()
    small(inner).fit(*blobs(200))
    assert not hasattr(inner, "centroids_")


def test_cross_validation_works() -> None:
    X, y = blobs()
    assert cross_val_score(small(), X, y, cv=3).min() > 0.9


def test_seeded_ones_are_copied_and_secure_ones_are_not() -> None:
    X, y = blobs()
    seeded = small().fit(X, y)
    twin = pickle.loads(pickle.dumps(seeded))
    assert (twin.predict(X[:100]) == seeded.predict(X[:100])).all()
    secure = small(seed=None)
    pickle.dumps(secure)  # nothing to spend yet
    secure.fit(X, y)
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="not copied or pickled"):
            attempt(secure)
