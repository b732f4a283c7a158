"""One reader of x: whether a row is refused, and with which words, depends on the declaration alone.

The same rows are asked of three POPs with one declaration: a guide alone, copies alone, and both. One by one, in
batches and as taught records, each row must be taken by all of them, or refused by all of them in the same words.
"""

from __future__ import annotations

import functools
from collections import UserDict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide import POP, Plan
from confide.learners import Columns, Features, HashedFeatures, LogisticRegression

pytestmark = pytest.mark.filterwarnings("ignore:the first question has none of the declared names")

ROUNDS = 4000
COPIES: dict[str, Any] = {"copies": 40, "polls": 40, "unsure": 100, "silent": 100}
PLANS = {
    "guide": Plan.tight(60.0, 1e-2, ROUNDS, guide=1.0),
    "copies": Plan.tight(60.0, 1e-2, ROUNDS, **COPIES, guide=None),
    "both": Plan.tight(60.0, 1e-2, ROUNDS, **COPIES, guide=0.5),
}


class Frequent:
    """A learner that takes any x."""

    pure = True

    def predict(self, x: Any) -> Any:
        return 0

    def learn(self, x: Any, y: Any) -> None:
        return None


DECLARED: dict[str, tuple[Any, Any]] = {
    "array": (Columns(3), LogisticRegression()),
    "names of numbers": (["a", "b"], Frequent()),
    "numeric": (Features(numeric=["a", "b"]), LogisticRegression()),
    "ranges": (Features(numeric={"a": (0, 1), "b": None}), LogisticRegression()),
    "log": (Features(log=["a", "b"]), LogisticRegression()),
    "categorical": (Features(categorical={"a": 8, "b": 8}), LogisticRegression()),
    "text": (Features(text={"a": 8, "b": 8}), LogisticRegression()),
    "mixed": (
        Features(numeric=["a"], log=["b"], categorical={"k": 8}, text={"t": 8}),
        LogisticRegression(),
    ),
    "positions": (Features(numeric=["0"], categorical={"1": 8}), LogisticRegression()),
    "hashed": (HashedFeatures(16), LogisticRegression()),
    "undeclared": (None, Frequent()),
}


class Raising(float):
    """A number that raises whenever it is looked at."""

    def raises(self, *_: Any) -> Any:
        raise RuntimeError("SECRET")

    __float__ = __lt__ = __le__ = __abs__ = __eq__ = __hash__ = __str__ = raises


class Text(str):
    """A text that answers in its own way."""

    def raises(self, *_: Any) -> Any:
        raise RuntimeError("SECRET")

    __str__ = __format__ = lower = strip = encode = raises  # type: ignore[assignment]


class Dict(dict[Any, Any]):
    """A dict that raises whatever it is asked for."""

    def raises(self, *_: Any) -> Any:
        raise OSError("SECRET")

    get = items = keys = __iter__ = __getitem__ = __contains__ = raises  # type: ignore[assignment]


ODD = [
    None, float("nan"), float("inf"), -float("inf"), 10**400, -(10**400), 1e39, -3.5e38, 3.4028235e38, 1e300, 0.0, -0.0,
    True, np.True_, np.float32("nan"), np.float16("inf"), np.longdouble("1e400"), np.int64(7), np.uint64(2**64 - 1),
    Fraction(1, 2), Fraction(-(10**500), 3), Decimal("1.5"), Decimal("NaN"), 1j, b"SECRET", b"", bytearray(b"x"), "",
    "x", "41", " 4.1e1 ", "1e400", "NaN", "?", "infinity", "1_000", "so far so good so far", "\ud800SECRET", [], [1.0],
    {}, (), object, np.zeros(1), np.array(3.0), np.array(["x"]), np.datetime64("NaT"), pd.NaT, pd.NA, "raising", "text",
]  # fmt: skip
CHOSEN = st.sampled_from(range(len(ODD))).map(lambda i: ODD[i])
VALUES = st.one_of(CHOSEN, CHOSEN, st.floats(), st.integers(), st.text(max_size=5))
NAMES = st.sampled_from(["a", "b", "k", "t", "0", "1", "2", "other", 0, 1, ("a", 1), None, 0.5, 10**400])
DICTS = st.dictionaries(NAMES, VALUES, max_size=5)
LISTS = st.lists(VALUES, max_size=4)
NUMBERS = st.lists(st.floats(width=32), min_size=1, max_size=4)
ROWS = st.one_of(
    DICTS, DICTS, DICTS.map(UserDict), DICTS.map(Dict), LISTS, LISTS, LISTS.map(tuple), NUMBERS, NUMBERS.map(np.array),
    NUMBERS.map(pd.Series), st.lists(NUMBERS, max_size=2), VALUES, st.just(range(3)),
)  # fmt: skip


def armed(x: Any) -> Any:
    """Hypothesis looks at what it makes: objects that raise are put in afterwards."""
    if isinstance(x, Dict):
        return x
    if isinstance(x, dict | UserDict):
        return type(x)({name: armed(value) for name, value in x.items()})
    if isinstance(x, list | tuple):
        return type(x)(armed(value) for value in x)
    return {"raising": Raising(1.0), "text": Text("SECRET")}.get(x, x) if type(x) is str else x


@functools.cache
def pops(kind: str) -> dict[str, POP]:
    features, learner = DECLARED[kind]
    ours = isinstance(learner, LogisticRegression) and not isinstance(features, Columns)
    brought = features | learner if ours else learner
    given = None if ours else features
    alone = None if isinstance(features, HashedFeatures) else features  # a guide alone hashes by itself
    made = {"guide": POP(None, PLANS["guide"], labels=[0, 1], features=alone)}
    return made | {name: POP(brought, PLANS[name], labels=[0, 1], features=given) for name in ("copies", "both")}


def said(pop: POP, x: Any) -> str | None:
    try:
        pop.predict(x)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", DECLARED)
@settings(deadline=None, max_examples=40)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_the_declaration_alone_says_who_is_refused_and_in_which_words(kind: str, rows: list[Any]) -> None:
    rows = [armed(x) for x in rows]
    everyone = pops(kind)
    alone = {name: [said(pop, x) for x in rows] for name, pop in everyone.items()}
    batch = {name: [answer.error for answer in pop.predict_many(rows)] for name, pop in everyone.items()}
    for i, words in enumerate(alone["guide"]):
        heard = {words, *(each[i] for each in (*alone.values(), *batch.values()))}
        assert len(heard) == 1, (rows[i], {name: (alone[name][i], batch[name][i]) for name in alone})
        assert words is None or "SECRET" not in words


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u8", "?", "longdouble", "O", "U3", "c16"])
def test_a_whole_array_is_refused_where_its_rows_are(dtype: str) -> None:
    rows = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    if rows.dtype.kind in "fcO":
        rows[0, 1] = float("nan")
        rows[1, 2] = float("inf")
    everyone = pops("array")
    heard = {
        (*(said(pop, x) for x in rows), *(answer.error for answer in pop.predict_many(rows)))
        for pop in everyone.values()
    }
    assert len(heard) == 1
    first, *_ = heard
    assert first[:2] == first[2:]


@pytest.mark.parametrize("kind", ["numeric", "categorical", "text", "array", "undeclared", "hashed"])
def test_a_missing_value_is_none_or_nan_and_refuses_nobody(kind: str) -> None:
    for missing in (None, float("nan"), np.float32("nan")):
        x: Any = [missing] * 3 if kind == "array" else {"a": missing, "b": missing}
        for pop in pops(kind).values():
            assert said(pop, x) is None


@pytest.mark.parametrize("kind", ["numeric", "log", "categorical", "array", "undeclared", "hashed"])
def test_a_number_beyond_float32_is_its_end_and_refuses_nobody(kind: str) -> None:
    for large in (float("inf"), -float("inf"), 10**400, 1e39, Fraction(-(10**500), 3), np.longdouble("1e400")):
        x: Any = [large] * 3 if kind == "array" else {"a": large, "b": large}
        for pop in pops(kind).values():
            assert said(pop, x) is None
