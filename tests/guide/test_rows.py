"""Many rows at once: the bits of one by one, and each row's errors its own."""

from __future__ import annotations

from collections import UserDict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from confide.guide.columns import Columns, Malformed, code_of, digest, parts_of, words_of
from confide.guide.hashed import HashedMap
from confide.guide.maps import FeatureMap
from confide.guide.model import Batch, Map, encode_batch
from confide.guide.ranges import declared
from confide.guide.rows import read_many
from confide.reading import category_of

pytestmark = pytest.mark.claim("guide.md")


class Evil:
    """A key that raises when it is compared with "a", and a value that raises when it is looked at."""

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("mine")

    def __float__(self) -> float:
        raise RuntimeError("mine")


class Odd(str):
    def __hash__(self) -> int:
        raise RuntimeError("mine")

    __eq__ = __len__ = __hash__  # type: ignore[assignment]


COLUMNS = Columns(numeric=("a", "b"), categorical=("k", "l"), text=("t", "u"))
MIXED = FeatureMap(COLUMNS, declared({"a": (0, 1)}, COLUMNS.numeric), partitions=12, words=64)
NUMBERS = Columns.of_array(3)
ARRAYS = FeatureMap(NUMBERS, declared({"0": (-1, 1), "2": (0, 1e9)}, NUMBERS.numeric), partitions=12)
KINDS = FeatureMap(Columns(numeric=("0",), categorical=("1", "2")), partitions=12)
VALUES = st.one_of(
    st.none(), st.booleans(), st.floats(), st.floats(0, 2), st.integers(), st.integers(-(10**400), 10**400),
    st.sampled_from(["x", "y", "so far so good", "So  far!", "1", b"x", Fraction(1, 2), np.float32(0.1), np.int64(7)]),
    st.sampled_from([np.bool_(True), np.float64("nan"), 1j, [], {}, "evil", "odd", np.zeros(2), -0.0, 0, "𝒙ß"]),
)  # fmt: skip
DICTS = st.dictionaries(st.sampled_from(["a", "b", "k", "l", "t", "u", "zzz"]), VALUES)
ROWS = st.one_of(
    DICTS, DICTS.map(UserDict), st.lists(VALUES, max_size=4), st.just({"evil": 1}), st.just(None), st.just("text")
)


def armed(x: Any) -> Any:
    """Hypothesis looks at what it makes: objects that raise are put in afterwards."""
    if isinstance(x, dict | UserDict):
        return type(x)({armed(name): armed(value) for name, value in x.items()})
    if isinstance(x, list):
        return [armed(value) for value in x]
    return Evil() if isinstance(x, str) and x == "evil" else Odd("x") if isinstance(x, str) and x == "odd" else x


def assert_same_bits(features: Map, batch: Batch, rows: Any) -> None:
    assert batch.features is features and batch.starts.size == len(rows) + 1 and batch.starts[0] == 0
    for i, x in enumerate(rows):
        part = slice(batch.starts[i], batch.starts[i + 1])
        try:
            one = features.encode(x)
        except ValueError:
            assert batch.refused[i] and part.start == part.stop
            continue
        assert not batch.refused[i]
        assert np.array_equal(one.indices, batch.indices[part])
        assert one.values.tobytes() == batch.values[part].tobytes()
    assert batch.indices.size == batch.values.size == batch.starts[-1]


@pytest.mark.parametrize("features", [MIXED, FeatureMap(Columns(text=("t",)), words=8), HashedMap(64), ARRAYS, KINDS])
@settings(deadline=None, max_examples=60)
@given(st.lists(ROWS, max_size=12))
def test_many_rows_have_the_bits_of_one_by_one(features: Map, rows: list[Any]) -> None:
    rows = armed(rows)
    assert_same_bits(features, encode_batch(features, rows), rows)


@pytest.mark.parametrize("features", [ARRAYS, KINDS, MIXED, HashedMap(64)])
@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["f8", "f4", "f2", "i8", "u8", "i1", "?", "O", "c16", "U3", "M8[s]", "longdouble"]).flatmap(
        lambda dtype: npst.arrays(np.dtype(dtype), st.tuples(st.integers(0, 6), st.integers(2, 4)))
    )
)
def test_arrays_of_any_type_have_the_bits_of_one_by_one(features: Map, rows: Any) -> None:
    assert_same_bits(features, encode_batch(features, rows), rows)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_any_order_have_the_bits_of_one_by_one(order: Any) -> None:
    rows = np.array(np.random.default_rng(1).normal(size=(40, 6)) * 10, order=order)
    for part in (rows[:, :3], rows[::2, ::2], rows[::-1, 3:]):
        assert_same_bits(ARRAYS, encode_batch(ARRAYS, part), part)


def test_a_row_that_raises_anything_is_refused_by_itself() -> None:
    good = {"a": 0.5, "b": 7, "k": "x", "l": 2, "t": "so far", "u": None}
    bad = [{"a": Evil()}, {Evil(): 1}, {"k": Evil()}, {"t": 5}, {"a": "one"}, {"k": Odd("x"), "a": []}, None, [1], 7]
    alone = encode_batch(MIXED, [good])
    for x in bad:
        batch = encode_batch(MIXED, [good, x, good])
        assert batch.refused.tolist() == [False, True, False]
        for i in (0, 2):
            part = slice(batch.starts[i], batch.starts[i + 1])
            assert np.array_equal(batch.indices[part], alone.indices)
            assert np.array_equal(batch.values[part], alone.values)


def test_equal_categories_of_other_types_have_equal_digests() -> None:
    """The reason why one of them may stand for all in a batch."""
    for same in ([1, 1.0, True], [0, 0.0, -0.0, False], [2**53, float(2**53)], [10**400], [0.5], ["x"], [b"x"]):
        assert len({category_of("k", value) for value in same}) == 1
    assert code_of("k", "x") != code_of("k", category_of("k", b"x")) != code_of("l", category_of("l", b"x"))


def test_a_table_holds_what_is_read_one_by_one() -> None:
    table = read_many(COLUMNS, [{"a": 1, "k": "x", "t": "T"}, UserDict(b=10**400), {"a": 1j}])
    assert np.array_equal(table.numbers[:2], [[1, np.nan], [np.nan, np.inf]], equal_nan=True)
    assert table.codes[0, 0] == digest("k=x") and not table.codes[1].any()
    assert table.texts[:2].tolist() == [["T", ""], ["", ""]]
    assert table.refused.tolist() == [False, False, True]


def test_words_share_parts_and_long_texts_end() -> None:
    assert set(parts_of("walking")) & set(parts_of("walked"))
    assert not set(parts_of("yes")) & set(parts_of("no"))
    assert words_of("So far, so good!") == ["so", "far", ",", "so", "good", "!"]
    assert len(words_of("a " * 10**6)) <= 1 << 16


@pytest.mark.parametrize(("kind", "value"), [("numeric", "41.secret"), ("categorical", ["secret"]), ("text", 7.25)])
def test_what_is_refused_names_the_declared_column_and_quotes_nothing(kind: str, value: Any) -> None:
    """A CSV reader gives strings, and this is the first thing that its user hears."""
    columns = Columns(**{kind: ("age",)})
    with pytest.raises(Malformed, match=r"^feature 'age' must be a ") as caught:
        columns.read({"age": value, "undeclared secret": "secret"})
    assert "secret" not in str(caught.value) and "7" not in str(caught.value)
