"""Features: fixed columns, the same everywhere, and nothing learned from data."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.learners import Columns, DecisionTree, Features, HashedFeatures
from confide.learners.features import AsGiven

ALL = Features(numeric=["a", "b"], log=["c"], categorical={"d": 3}, text={"e": 5})
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6))


def test_columns_are_where_they_were_declared() -> None:
    row = ALL.encode({"b": 2, "c": -np.e + 1, "d": "x", "e": "One, two; one!", "unknown": 9})
    assert row.shape == (ALL.width,) == (11,)
    assert row[:3].tolist() == [0.0, 2.0, -1.0]
    assert sorted(row[3:6]) == [0, 0, 1]
    assert row[6:].sum() == 3


def test_missing_features_are_zero() -> None:
    assert not ALL.encode({}).any() and not ALL.encode({"a": None, "d": None, "e": None}).any()


def test_a_category_is_its_value_whatever_its_type() -> None:
    seven = [ALL.encode({"d": value}).tolist() for value in (7, 7.0, "7", np.int64(7))]
    assert seven.count(seven[0]) == 4


@given(st.dictionaries(st.text(), st.one_of(VALUES, st.text())))
@settings(deadline=None)
def test_hashing_takes_any_dict_and_depends_on_no_other(x: dict[str, object]) -> None:
    features = HashedFeatures(7)
    row = features.encode(x)
    assert row.shape == (7,) and np.isfinite(row).all() and not row.flags.writeable
    HashedFeatures(7).encode({"another": 1.0})
    assert features.encode(dict(reversed(x.items()))) == pytest.approx(row)


def test_hashes_are_the_same_in_every_process() -> None:
    code = "from confide.learners import HashedFeatures as H; print(H(99).encode({'a': 'b', 'c': 2}).tolist())"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.strip() == str(HashedFeatures(99).encode({"a": "b", "c": 2}).tolist())


@pytest.mark.parametrize(
    ("features", "x", "reason"),
    [
        (ALL, [1.0, 2.0], "dict"),
        (ALL, {"a": "text"}, "'a'"),
        (ALL, {"a": float("nan")}, "'a'"),
        (ALL, {"c": float("inf")}, "'c'"),
        (ALL, {"a": 1e39}, "float32"),
        (ALL, {"d": float("nan")}, "'d'"),
        (ALL, {"e": 3}, "text"),
        (HashedFeatures(4), {"a": float("nan")}, "'a'"),
        (HashedFeatures(1), {"a": 3e38, "b": 3e38}, "float32"),
        (HashedFeatures(4), [1.0], "dict"),
        (Columns(2), {"a": 1}, "array"),
        (Columns(2), [1.0], "1 features where 2"),
        (Columns(2), [1.0, "x"], "numbers"),
        (Columns(1), [float("nan")], "NaN"),
        (AsGiven(), {"a": float("nan")}, "'a'"),
        (AsGiven(), {"a": [1, 2]}, "'a'"),
        (AsGiven(), "text", "numbers"),
    ],
)
def test_malformed_x_is_refused_with_the_reason(features: Features, x: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        features.encode(x)


@pytest.mark.parametrize("bad", [{}, {"numeric": ["a", "a"]}, {"numeric": "ab"}, {"text": {"a": 0}}])
def test_declarations_without_meaning_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"declare|list|width"):
        Features(**bad)  # type: ignore[arg-type]


def test_a_pipeline_is_a_learner_and_its_clone_is_fresh() -> None:
    learner = ALL | DecisionTree(memory=16)
    for i in range(16):
        learner.learn({"a": i, "e": "word"}, int(i > 7))
    assert [learner.predict({"a": i}) for i in (1, 14)] == [0, 1]
    assert learner.clone().predict({"a": 1}) is None
    assert learner.clone().features.encode({"a": 1}).tolist() == ALL.encode({"a": 1}).tolist()
