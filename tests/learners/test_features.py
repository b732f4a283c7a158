"""Features: fixed columns, the same everywhere, and nothing learned from data."""

import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.learners import Columns, DecisionTree, Features, HashedFeatures
from confide.learners.features import AsGiven, encoder_for
from confide.reading import Malformed

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
        (ALL, {"c": b"1"}, "'c'"),
        (ALL, {"d": []}, "'d'"),
        (ALL, {"e": 3}, "text"),
        (HashedFeatures(4), {"a": 1j}, "a feature must be a number"),
        (HashedFeatures(4), 7, "dict"),
        (Columns(2), {"a": 1}, "array"),
        (Columns(2), [1.0], "another number of features than the 2"),
        (Columns(2), [1.0, "x"], "number"),
        (AsGiven(), {"a": [1, 2]}, "a feature must be a number"),
        (AsGiven(), {("a", 1): 1.0}, "name"),
        (AsGiven(), "text", "array"),
    ],
)
def test_malformed_x_is_refused_with_the_reason(features: Features, x: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        features.encode(x)


def test_what_is_missing_is_zero_and_what_is_too_large_is_the_end_of_float32() -> None:
    largest = float(np.finfo(np.float32).max)
    assert not ALL.encode({"a": float("nan"), "c": np.float32("nan"), "d": float("nan"), "e": float("nan")}).any()
    assert ALL.encode({"a": 10**401, "b": -float("inf")})[:2].tolist() == [largest, -largest]
    assert ALL.encode({"c": float("inf")})[2] == np.log1p(largest)
    assert Columns(3).encode([None, float("nan"), 1e39]).tolist() == [0.0, 0.0, largest]
    assert HashedFeatures(1).encode({"a": 3e38, "b": 3e38, "c": float("nan")}).tolist() == [largest]
    assert AsGiven().encode({"a": float("nan"), "b": -1e39, "c": b"so"}) == {"a": None, "b": -largest, "c": "736f"}
    assert AsGiven().encode([1, "x", None]) == (1, "x", None)
    assert repr(AsGiven().encode([1, None, -1e39]).tolist()) == repr([1.0, float("nan"), -largest])


class Odd(float):
    """A number, a text, an array, a dict: it claims anything, and raises when it is looked at."""

    def __init__(self, raises: type[Exception]) -> None:
        self.raises = raises

    def __new__(cls, *_: Any) -> Self:
        return super().__new__(cls, 1.0)

    def odd(self, *_: Any, **__: Any) -> Any:
        raise self.raises("SECRET")

    __float__ = __int__ = __index__ = __str__ = __format__ = __len__ = __iter__ = __bool__ = odd
    __array__ = __getitem__ = __abs__ = __le__ = __lt__ = __hash__ = __eq__ = get = items = keys = lower = odd


class OddText(str):
    def odd(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("SECRET")

    __str__ = __format__ = lower = encode = odd


class OddDict(dict[Any, Any]):
    def odd(self, *_: Any) -> Any:
        raise OSError("SECRET")

    get = items = keys = __iter__ = odd  # type: ignore[assignment]


LOOP: dict[str, Any] = {}
LOOP["a"] = LOOP
NEST: list[Any] = [1.0]
for _ in range(5000):
    NEST = [NEST]
RAISED = (ValueError, TypeError, OverflowError, RecursionError, MemoryError, KeyError, RuntimeError, ZeroDivisionError)
THINGS = [
    *map(Odd, RAISED),
    *(10**401, -(10**5000), Fraction(10**500, 3), Decimal("NaN"), 1j, b"SECRET", LOOP, NEST, [], object),
    *(OddText("SECRET"), "SECRET" * 10**5, "\ud800SECRET", np.array(["SECRET"]), np.datetime64("NaT")),
]
KEYS: list[Any] = [*"abcde", OddText("SECRET"), ("SECRET", 1), 10**5000, None, 7]
HOSTILE = st.one_of(VALUES, st.integers(0, len(THINGS) - 1).map(lambda i: THINGS[i]), st.floats(), st.text(max_size=5))
NAMES = st.one_of(st.integers(0, len(KEYS) - 1).map(lambda i: KEYS[i]), st.text(max_size=3))
QUESTIONS = st.one_of(
    HOSTILE,
    st.lists(HOSTILE, max_size=3),
    st.dictionaries(NAMES, HOSTILE, max_size=4),
    st.dictionaries(NAMES, HOSTILE, max_size=4).map(OddDict),
    st.lists(HOSTILE, min_size=1, max_size=3).map(lambda values: np.array([*values, None], dtype=object)[:-1]),
)
ENCODERS = (ALL, HashedFeatures(7), Columns(2), AsGiven(), encoder_for(["a", "b"]))


@given(QUESTIONS)
@settings(deadline=None, max_examples=400)
def test_whatever_x_is_an_encoder_gives_plain_numbers_or_one_of_our_sentences(x: object) -> None:
    """No other exception, none of the words in x, and nothing in what comes out that could act on its own."""
    for features in ENCODERS:
        try:
            row = features.encode(x)
        except ValueError as error:
            assert type(error) is Malformed and "SECRET" not in str(error) and len(str(error)) < 120
            continue
        if isinstance(row, dict):
            assert {type(name) for name in row} <= {str, int}
            assert {type(value) for value in row.values()} <= {str, int, float, bool, type(None)}
        elif isinstance(row, tuple):
            assert {type(value) for value in row} <= {str, int, float, bool, type(None)}
        else:
            assert type(row) is np.ndarray and row.ndim == 1 and not row.flags.writeable
            missing = np.isnan(row) if isinstance(features, AsGiven) else np.zeros(row.size, bool)
            assert (np.isfinite(row.astype(np.float32)) | missing).all()


def test_names_that_came_with_x_are_not_quoted() -> None:
    for features in (HashedFeatures(4), AsGiven()):
        for x in ({"has-cancer": "yes", "hiv": 1j}, {"hiv": [1]}, {"hiv": object()}):
            with pytest.raises(ValueError, match="must be a number") as caught:
                features.encode(x)
            assert "hiv" not in str(caught.value)


def test_columns_have_the_declared_names() -> None:
    assert ALL.names == ("a", "b", "c", "d 0", "d 1", "d 2", "e 0", "e 1", "e 2", "e 3", "e 4")
    assert encoder_for(["a", "b"]).encode({"b": 2, "c": 9}).tolist() == [0.0, 2.0]


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


@pytest.mark.parametrize("kind", ["categorical", "text"])
def test_names_without_widths_are_refused_in_words(kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} takes names with their widths"):
        Features(**{kind: ["shop"]})
