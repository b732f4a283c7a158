"""The scikit-learn adapter: scikit-learn's own checks, its conventions, and what must not leak through it."""

import copy
import pickle
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, make_blobs, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import confide
from confide import Plan, Promise, learners
from confide.errors import ConfideWarning
from confide.sklearn import PrivateClassifier

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

# No check is expected to fail. One asks for 83 % accuracy after 200 rows: so few can teach enough copies at a large ε
# only. Most data sets of the checks are smaller still, which is warned about, and rightly so; for a guide alone it is
# refused, so that one has an ε at which ten rows say something.
COPIES = PrivateClassifier(
    learners.GaussianNB(), plan=partial(Plan.tight, 40.0, 0.01, 600, copies=36, unsure=80, silent=0, guide=None), seed=1
)
GUIDE = PrivateClassifier(promise=Promise(500.0, 0.01), seed=1)


@pytest.mark.filterwarnings("ignore:.*copies know nothing", "ignore:halted")
@parametrize_with_checks([COPIES, GUIDE], expected_failed_checks=lambda estimator: {})
def test_every_check_of_scikit_learn_passes(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def planned(epsilon: float = 20.0, rounds: int = 1000, **numbers: Any) -> Any:
    """What makes a plan of 60 copies for however many labels there are."""
    given: dict[str, Any] = {"copies": 60, "unsure": 50, "silent": 0, **numbers}
    return partial(Plan.tight, epsilon, 0.01, rounds, **given)


def small(estimator: Any = None, plan: Any = None, **settings: Any) -> PrivateClassifier:
    learner = learners.GaussianNB() if estimator is None else estimator
    return PrivateClassifier(learner, plan=plan or planned(), **{"seed": 1, **settings})


def blobs(rows: int = 1500, seed: int = 1) -> tuple[Rows, Labels]:
    X, y = make_blobs(rows, centers=3, random_state=seed)
    return X, y


# ------------------------------------------------------------------ learning and answering


def test_a_plans_guide_learns_from_all_rows_of_fit_or_somebody_is_told() -> None:
    X, y = blobs()
    numbers: dict[str, Any] = {"copies": 200, "unsure": 20, "silent": 0, "guide": 0.5}
    made = PrivateClassifier(learners.GaussianNB(), plan=partial(Plan.tight, 20.0, 0.01, 100, **numbers), seed=1)
    made.fit(X, y)
    assert made.pop_.plan.guide is not None and made.pop_.plan.guide.history == len(X)
    assert (made.predict_proba(X).argmax(axis=1) == y).mean() > 0.9
    short = Plan.tight(20.0, 0.01, 100, labels=3, **numbers)
    with pytest.warns(confide.ConfideWarning, match="the plan is for 0 rows of history, and fit has 1,500"):
        PrivateClassifier(learners.GaussianNB(), plan=short, seed=1).fit(X, y)


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
    model = small(learners.DecisionTree(memory=8), planned(rounds=2000, unsure=900, copies=80)).fit(X, y)
    answers = model.predict(X)
    assert set(answers.tolist()) == {0, 1} and model.pop_.rounds == 400
    assert 1 < model.pop_.operator.unsure <= 400


def test_rows_after_the_halt_are_answered() -> None:
    X, y = blobs()
    going = small(plan=planned(rounds=100, unsure=10, guide=None), fallback=2).fit(X, y)
    with pytest.warns(UserWarning, match="rounds used up: the fallback answers all further rows"):
        answers = going.predict(X[:150])
    assert (answers[:100] == y[:100]).mean() > 0.9 and (answers[100:] == 2).all()
    with pytest.warns(UserWarning, match="the fallback answers"):
        assert (going.predict(X[:3]) == 2).all()
    assert going.pop_.rounds == 153
    guided = small(plan=planned(rounds=100, copies=200, unsure=20, guide=0.5), fallback=2).fit(X, y)
    with pytest.warns(UserWarning, match="rounds used up: the guide answers all further rows"):
        answers = guided.predict(X[:150])
    assert (answers[100:] == guided.classes_[guided.predict_proba(X[100:150]).argmax(axis=1)]).all()
    assert (answers == y[:150]).mean() > 0.8
    model = small(plan=planned(rounds=100, unsure=10, guide=None), fallback=2, after_halt="raise").fit(X, y)
    with pytest.warns(UserWarning, match="the fallback answers"):
        assert (model.predict(X[:150])[100:] == 2).all()
    with pytest.raises(confide.Halted, match="rounds used up"):
        model.predict(X[:1])


def test_a_halt_for_the_budget_delivers_its_own_answer() -> None:
    X = blobs(100)[0]
    with pytest.warns(UserWarning, match="know nothing"):
        model = small(plan=planned(copies=100, guide=None), fallback=1).fit(X[:5], np.array([0, 1, 2, 0, 1]))
    with pytest.warns(UserWarning, match="budget used up: the fallback answers"):
        answers = model.predict(np.tile(X, (3, 1)))
    assert model.pop_.halt_reason == "budget" and model.pop_.rounds == 300
    assert (answers[100:] == 1).all()  # it halts within a hundred rows that are all unsure


@cache
def fitted() -> tuple[PrivateClassifier, PrivateClassifier, PrivateClassifier]:
    """With copies, with copies that have halted, and a guide alone: for those who copy them."""
    finished = small(plan=planned(rounds=10, unsure=2), after_halt="raise").fit(*blobs())
    with pytest.warns(UserWarning):
        finished.predict(blobs()[0][:11])
    return small().fit(*blobs()), finished, PrivateClassifier(seed=1).fit(*blobs())


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
        (None, 1),
    ],
)
def test_what_cannot_be_read_takes_its_rounds(bad: Any, rounds: int) -> None:
    model, finished, alone = copy.deepcopy(fitted())
    with pytest.raises(ValueError):
        model.predict(bad)
    assert model.pop_.rounds == rounds
    with pytest.raises(confide.Halted):
        finished.predict(bad)
    assert finished.pop_.rounds == 11
    with pytest.raises(ValueError):
        alone.predict(bad)
    assert alone.pop_.rounds == rounds


def test_a_row_too_large_for_float32_is_taught_and_asked_by_copies_and_guide_alike() -> None:
    X, y = blobs(300)
    X[3] = 1e39
    for model in (small(), PrivateClassifier(seed=1)):
        model.fit(X, y)
        model.predict([[1.0, 1e39], [1.0, 2.0], [3.0, 4.0]])
        assert model.pop_.rounds == 3
    assert small().fit(X, y).pop_.operator.taught == 300


def test_columns_are_named() -> None:
    X, y = blobs()
    model = small().fit(pa.table({"a": X[:, 0], "b": X[:, 1]}), y)
    assert model.feature_names_in_.tolist() == ["a", "b"] and model.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pa.table({"b": X[:7, 1], "a": X[:7, 0]}))
    assert model.pop_.rounds == 7


# ------------------------------------------------------------------ the guide


def noisy(rows: int = 3000) -> tuple[Rows, Labels]:
    """A table in which one label in twenty is wrong."""
    X, y = make_classification(rows, flip_y=0.1, random_state=1)
    return X, y


def test_the_guide_alone_is_useful_on_a_noisy_table() -> None:
    X, y = noisy(12_000)
    public = LogisticRegression().fit(X[:10_000], y[:10_000]).score(X[10_000:], y[10_000:])
    for model in (PrivateClassifier(ranges=(-5, 5), seed=1), PrivateClassifier(promise=Promise(4.0), seed=1)):
        plan = model.fit(X[:10_000], y[:10_000]).pop_.plan
        assert plan.copies == 0 and plan.guide is not None and plan.guide.history == 10_000
        assert model.score(X[10_000:], y[10_000:]) > public - 0.03
    X, y = load_breast_cancer(return_X_y=True)
    small_table = PrivateClassifier(promise=Promise(4.0), seed=1).fit(X[:450], y[:450])
    assert small_table.score(X[450:], y[450:]) > 0.85


def test_declared_ranges_are_the_guides() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    ranges = np.stack([X.min(axis=0), X.max(axis=0)], axis=1)  # as if they were public
    none, own = (PrivateClassifier(ranges=given, seed=1).fit(X[:450], y[:450]).pop_ for given in (None, ranges))
    assert none.guide.export()["features"]["grids"] == [None] * 30, "450 rows are too few to find any"
    ends = [(grid[0], grid[-1]) for grid in own.guide.export()["features"]["grids"]]
    assert np.allclose(ends, ranges)
    PrivateClassifier(ranges=(-10, 10), promise=Promise(4.0)).fit(*blobs())
    for bad in ((0, 1, 2), "wide", ranges[:3], (1, 1)):
        with pytest.raises(ValueError, match="range"):
            PrivateClassifier(ranges=bad).fit(X, y)
    with pytest.raises(ValueError, match="leave ranges out"):
        small(ranges=(0, 1)).fit(*blobs())


def test_probabilities_are_the_guides_and_take_no_round() -> None:
    X, y = blobs(3000)
    model = PrivateClassifier(promise=Promise(4.0), seed=1)
    assert hasattr(model, "predict_proba")
    with pytest.raises(NotFittedError):
        model.predict_proba(X)
    model.fit(X, y)
    shares = model.predict_proba(X[:200])
    assert shares.shape == (200, 3) and np.allclose(shares.sum(axis=1), 1) and model.pop_.rounds == 0
    assert (np.exp(model.predict_log_proba(X[:200])) == pytest.approx(shares)) and model.pop_.rounds == 0
    assert (model.decision_function(X[:200]).argmax(axis=1) == shares.argmax(axis=1)).all()
    answers = model.predict(X[:200])
    assert (answers == model.predict_proba(X[:200]).argmax(axis=1)).all() and (answers == y[:200]).mean() > 0.9
    assert (model.predict(X[:200]) == answers).all()  # it has learned all it was to learn
    assert model.pop_.rounds == 400
    two = PrivateClassifier(promise=Promise(4.0), seed=1).fit(X, y == 1)
    assert ((two.decision_function(X[:50]) > 0) == (two.predict_proba(X[:50])[:, 1] > 0.5)).all()
    with pytest.raises(ValueError, match="NaN"):
        model.predict_proba([[np.nan, 0.0]])


def test_beside_copies_probabilities_are_the_guides_too() -> None:
    X, y = blobs()
    model = small(plan=planned(copies=200, guide=0.5)).fit(X, y)
    assert model.pop_.plan.copies == 200 and model.predict_proba(X[:7]).shape == (7, 3)
    assert {answer.source for answer in model.pop_.predict_many(X[:100])} <= {"copies", "guide"}


def test_an_estimator_that_would_never_answer_is_refused_with_the_three_ways_on() -> None:
    X, y = blobs()
    for given, why in (
        ({"promise": Promise(1.0, rounds=100_000)}, "copies would see"),
        ({}, "planned for a number of rounds"),
        ({"plan": partial(Plan.tight, 1.0, 1e-6, 100_000, guide=1.0)}, "the plan has no copies"),
    ):
        with pytest.raises(ValueError, match=f"GaussianNB would never answer: .*{why}") as refused:
            PrivateClassifier(learners.GaussianNB(), **given).fit(X, y)
        for way in ("leave the learner out", 'protect="labels" to confide.Private', "a plan of your own to plan="):
            assert way in str(refused.value)
    with pytest.raises(ValueError, match="needs a learner"):
        PrivateClassifier(plan=planned(guide=None)).fit(X, y)


def test_a_plan_is_taken_as_it_is() -> None:
    X, y = blobs()
    leaning = planned(rounds=2000, copies=200, unsure=100, guide=0.3, lean="additive", history=1500)(labels=3)
    model = small(plan=leaning).fit(X, y)
    assert model.pop_.plan is leaning and clone(model).plan is leaning and model.predict(X[:20]).shape == (20,)
    with pytest.raises(ValueError, match="the plan is for 3 labels, and there are 2"):
        small(plan=leaning).fit(X, y == 1)
    online = PrivateClassifier(plan=Plan.tight(4.0, 1e-6, history=700), classes=[0, 1], seed=1)
    assert online.partial_fit(X[:700], y[:700] == 1).pop_.plan.endless
    assert online.score(X[700:], y[700:] == 1) > 0.8


def test_a_model_that_was_fitted_takes_no_other_promise() -> None:
    X, y = blobs()
    model = PrivateClassifier(promise=Promise(4.0), seed=1).fit(X, y)
    model.set_params(promise=Promise(40.0))
    for call in (model.predict, model.predict_proba, lambda rows: model.partial_fit(rows, y[:5])):
        with pytest.raises(ValueError, match="made with another promise"):
            call(X[:5])
    assert model.set_params(promise=Promise(4.0)).predict(X[:5]).shape == (5,)
    assert model.set_params(promise=Promise(2.0)).fit(X, y).pop_.guarantee.epsilon <= 2  # a new promise


def test_history_in_parts_is_learned_as_at_once() -> None:
    X, y = noisy()
    whole = PrivateClassifier(seed=1).fit(X, y)
    parts = PrivateClassifier(history=len(y), classes=[0, 1], seed=1)
    for at in range(0, len(y), 700):
        parts.partial_fit(X[at : at + 700], y[at : at + 700])
    assert (parts.predict_proba(X) == whole.predict_proba(X)).all()


def test_partial_fit_adds_to_the_open_leaf() -> None:
    X, y = noisy()
    model = PrivateClassifier(promise=Promise(4.0, rounds=2000), ranges=(-5, 5), classes=[0, 1], seed=1)
    model.partial_fit(X[:1000], y[:1000])
    before = model.predict_proba(X[:20])
    leaf = model.pop_.plan.guide.leaf
    for at in range(1000, 2000, 100):
        model.partial_fit(X[at : at + 100], y[at : at + 100])
        model.predict(X[at : at + 100])
    assert (model.predict_proba(X[:20]) != before).any() and leaf < 100
    assert model.score(X[2000:], y[2000:]) > 0.75


def test_rows_that_would_teach_nothing_are_spoken_of() -> None:
    X, y = noisy()
    frozen = PrivateClassifier(seed=1).fit(X, y)
    before = frozen.predict_proba(X[:20])
    with pytest.warns(UserWarning, match="teach it nothing: promise rounds="):
        frozen.partial_fit(X, 1 - y)
    frozen.predict(X[:100])
    assert (frozen.predict_proba(X[:20]) == before).all()
    short = PrivateClassifier(promise=Promise(1.0, rounds=50), seed=1).fit(X, y)
    short.partial_fit(X[:10], y[:10]).predict(X[:50])
    with pytest.warns(UserWarning, match="teach it nothing"):
        short.partial_fit(X[:10], y[:10])


def test_a_guide_alone_halts_only_where_rounds_were_said() -> None:
    X, y = noisy()
    with pytest.raises(ValueError, match="never halts: leave after_halt out"):
        PrivateClassifier(after_halt="raise", seed=1).fit(X, y)
    model = PrivateClassifier(seed=1).fit(X, y)
    assert (model.predict(X[:200]) == model.predict(X[:200])).all()
    said = PrivateClassifier(promise=Promise(1.0, rounds=100), after_halt="raise", seed=1).fit(X, y)
    said.predict(X[:200])
    with pytest.raises(confide.Halted, match="rounds used up"):
        said.predict(X[:1])


def test_too_few_rows_are_refused() -> None:
    X, y = blobs(100)
    with pytest.raises(ValueError, match=r"100 rows are too few for epsilon=1 .* give more than [0-9]+ rows"):
        PrivateClassifier().fit(X, y)
    PrivateClassifier(promise=Promise(8.0)).fit(X, y)


def test_label_weights_are_passed_on() -> None:
    X, y = noisy()
    plain, heavy = (PrivateClassifier(label_weights=weights, seed=1).fit(X, y) for weights in (None, [1.0, 5.0]))
    assert heavy.predict_proba(X[:500])[:, 1].mean() > plain.predict_proba(X[:500])[:, 1].mean() + 0.05
    with pytest.raises(ValueError, match="label_weights"):
        PrivateClassifier(label_weights=[1.0, 2.0, 3.0]).fit(X, y)


def test_ranges_go_on_being_counted_in_a_model_from_a_read_only_file(tmp_path: Path) -> None:
    X, y = noisy()
    model = PrivateClassifier(promise=Promise(1.0, rounds=100_000), classes=[0, 1], seed=1).partial_fit(X[:9], y[:9])
    joblib.dump(model, tmp_path / "model")
    loaded = joblib.load(tmp_path / "model", mmap_mode="r")
    assert (loaded.predict(X[:50]) == model.predict(X[:50])).all()


def test_one_row_moves_the_released_sums_by_its_own_gradients() -> None:
    """Two worlds with the same noise that differ in a row after the ranges were found: its own leaf moves by it."""
    X, y = noisy(2000)
    worlds = []
    for label in (0, 1):
        y[1500] = label
        worlds.append(PrivateClassifier(promise=Promise(4.0), ranges=(-5, 5), seed=1).fit(X, y))
    plan = worlds[0].pop_.plan.guide
    given = [one.pop_.operator.loop.guiding.guide.releases() for one in worlds]
    before = [[release.row for release in one if release.kind != "node"] for one in given]
    assert all((a == b).all() for a, b in zip(*before, strict=True)) and plan.range_rounds < 1500
    nodes = [[release.row for release in one if release.kind == "node"] for one in given]
    same = [(a == b).all() for a, b in zip(*nodes, strict=True)]
    first = sum(end <= 1500 for end in plan.main.ends)
    assert all(same[:first]) and not same[first]
    moved = (nodes[0][first] - nodes[1][first]) / plan.root.column(first)[0]
    assert 0 < np.sqrt((moved**2).sum()) <= 2 * plan.clip


# ------------------------------------------------------------------ privacy


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba", "decision_function"])
def test_without_a_guide_scores_are_refused_with_the_reason(method: str) -> None:
    made = small(plan=planned(guide=None)(labels=3))
    for model in (made, made.fit(*blobs())):
        assert not hasattr(model, method)
        with pytest.raises(AttributeError, match=f"has no attribute '{method}'") as caught:
            getattr(model, method)
        assert "would show how the copies voted" in str(caught.value.__cause__)


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
    chosen = PrivateClassifier(learners.GaussianNB(), plan=planned(2.0, 500, copies=None, unsure=None, guide=None))
    pop = chosen.fit(X, y).pop_
    assert pop.guarantee.epsilon <= 2 and pop.guarantee.secure and pop.plan.silent == 0 and pop.plan.guide is None
    assert not small().fit(X, y).pop_.guarantee.secure
    default = PrivateClassifier().fit(X, y).pop_
    assert default.guarantee.epsilon <= 1 and default.guarantee.delta <= 1e-6 and default.guarantee.secure
    online = PrivateClassifier(classes=[0, 1, 2]).partial_fit(X[:9], y[:9]).pop_
    assert online.plan.endless and online.plan.guide.history == 9


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


def test_a_scaler_in_front_of_a_guide_alone_is_to_be_left_out() -> None:
    with pytest.warns(UserWarning, match="Leave it out: the guide needs no scaler"):
        make_pipeline(StandardScaler(), PrivateClassifier(promise=Promise(100.0))).fit(*blobs(100))


def test_fits_of_one_object_add_up() -> None:
    X, y = blobs(100)
    model = PrivateClassifier(promise=Promise(100.0)).fit(X, y)
    with pytest.warns(ConfideWarning, match="was fitted before: .* ε is 1.* by now, not"):
        model.set_params(promise=Promise(50.0)).fit(X, y)
    assert model._promised > 1.1 * model.pop_.guarantee.epsilon


def test_nobody_is_told_to_impute() -> None:
    X, y = blobs(100)
    X[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN\..*in each row by itself") as told:
        PrivateClassifier(promise=Promise(100.0)).fit(X, y)
    assert "Imputer" not in str(told.value) and "HistGradient" not in str(told.value)


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
    twin = clone(model.set_params(estimator__metric="manhattan", plan=None, promise=Promise(30.0)))
    assert twin.estimator is not inner and twin.estimator.metric == "manhattan" and twin.promise == Promise(30.0)
    assert not hasattr(clone(small().fit(*blobs())), "pop_")
    assert "epsilon=20.0" in repr(PrivateClassifier(promise=Promise(20.0)))
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


def test_where_labels_alone_are_protected_the_estimator_itself_is_taught_randomized_labels() -> None:
    xs = np.arange(1200.0)[:, None] % 5
    ys = (xs[:, 0] > 2).astype(int)
    for estimator in (None, DecisionTreeClassifier(max_depth=2)):
        private = PrivateClassifier(estimator, promise=Promise(4.0, protect="labels"), seed=1).fit(xs[:800], ys[:800])
        private.partial_fit(xs[800:], ys[800:])
        assert private.predict(xs[:5]).tolist() == [0, 0, 0, 1, 1] and private.predict_proba(xs[4:5])[0, 1] > 0.8
        assert private.pop_.operator.taught == 1200 and private.pop_.guarantee.delta == 0
