"""Tables of pandas, polars and Arrow are rows wherever questions are taken; a bad one is refused before any round."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import confide
from confide.frames import rows_of, values_of
from confide.learners import Features, LogisticRegression
from confide.sklearn import PrivateClassifier

pytestmark = pytest.mark.filterwarnings("ignore:1[0-9] records for:UserWarning")


class Stream:
    """A table that nobody knows, but for Arrow's own way of handing it over."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class Interchange:
    """A table that nobody knows, but for the interchange protocol of data frames."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self._table.__dataframe__(nan_as_null, allow_copy)


def _pandas_nullable(columns: dict[str, list[Any]]) -> Any:
    return pd.DataFrame(columns).convert_dtypes()


def _shuffled(columns: dict[str, list[Any]]) -> Any:
    frame = pd.DataFrame(columns)
    return frame.set_axis(range(len(frame), 0, -1), axis=0)


MAKERS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas, an index of its own": _shuffled,
    "pandas, nullable": _pandas_nullable,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "arrow batch": pa.RecordBatch.from_pydict,
    "arrow stream": lambda columns: Stream(pa.table(columns)),
    "interchange": lambda columns: Interchange(pa.table(columns)),
}
MIXED = {"age": [41, None, 7], "city": ["Rome", "Oslo", None], "paid": [True, False, True], "sum": [0.5, 1.5, None]}
ROWS = [
    {"age": 41, "city": "Rome", "paid": True, "sum": 0.5},
    {"age": None, "city": "Oslo", "paid": False, "sum": 1.5},
    {"age": 7, "city": None, "paid": True, "sum": None},
]
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@every
def test_rows_of_a_table_are_dicts_in_the_order_of_its_columns(make: Callable[..., Any]) -> None:
    rows = rows_of(make(MIXED), named=True)
    assert rows == ROWS and [list(row) for row in rows] == [list(MIXED)] * 3
    assert {type(value) for row in rows for value in row.values()} <= {int, float, str, bool, type(None)}


@every
def test_rows_of_a_table_of_numbers_are_an_array_where_x_is_one(make: Callable[..., Any]) -> None:
    rows = rows_of(make({"a": [1, 2, None], "b": [0.5, 1.5, 2.5]}), named=False)
    assert rows.shape == (3, 2) and rows.astype(float)[:2].tolist() == [[1.0, 0.5], [2.0, 1.5]]
    assert math.isnan(rows.astype(float)[2, 0])


@every
def test_a_table_without_rows_is_no_rows(make: Callable[..., Any]) -> None:
    nothing: dict[str, Any] = {"a": np.empty(0), "b": np.empty(0)}
    assert list(rows_of(make(nothing), named=True)) == [] == list(rows_of(make(nothing), named=False))
    assert _named().predict_many(make(nothing)) == []


def _twice(kind: str) -> Any:
    columns = [pa.array([1.0, 2.0]), pa.array([3.0, 4.0])]
    table = pa.Table.from_arrays(columns, names=["private", "private"])
    makers = {"pandas": table.to_pandas, "arrow": lambda: table, "stream": lambda: Stream(table)}
    return makers[kind]()


PLAN = confide.Plan.tight(60.0, 1e-2, 400, copies=30, polls=30, unsure=60, silent=0, guide=None)
TWO = {"a": [1.0, 2.0, 3.0, 4.0] * 5, "b": [0.0, 1.0, 0.0, 1.0] * 5}


def _named() -> confide.POP:
    return confide.POP(Features(numeric=["a", "b"]) | LogisticRegression(), PLAN, labels=["no", "yes"], seed=1)


def _plain() -> confide.POP:
    return confide.POP(LogisticRegression(), PLAN, labels=["no", "yes"], features=2, seed=1)


@pytest.mark.parametrize("pop", [_named, _plain])
@pytest.mark.parametrize("kind", ["pandas", "arrow", "stream"])
def test_a_bad_table_is_refused_before_any_round(kind: str, pop: Callable[[], confide.POP]) -> None:
    one = pop()
    for call in (
        lambda: one.predict_many(_twice(kind)),
        lambda: one.teach_many(_twice(kind), ["no", "yes"]),
        lambda: confide.evaluate(one, _twice(kind), ["no", "yes"]),
        lambda: one.predict_many(pd.DataFrame(index=[1, 2])),
        lambda: one.predict_many(pl.LazyFrame(TWO)),
        lambda: one.predict_many(pd.Series([1.0, 2.0])),
        lambda: one.predict_many(pa.chunked_array([[1.0, 2.0]])),
    ):
        with pytest.raises(ValueError, match=r"two columns|no columns|collect\(\)|one column") as refused:
            call()
        assert "private" not in str(refused.value)
    assert one.rounds == 0 and one.operator.taught == 0


@every
@pytest.mark.parametrize("pop", [_named, _plain])
def test_every_kind_of_table_is_answered_and_learned_like_its_rows(
    pop: Callable[[], confide.POP], make: Callable[..., Any]
) -> None:
    rows = [dict(zip(TWO, row, strict=True)) for row in zip(*TWO.values(), strict=True)]
    ys = ["no", "yes"] * 10
    plain, framed = pop(), pop()
    given: Any = rows if plain.named else [list(row.values()) for row in rows]
    for one, xs in ((plain, given), (framed, make(TWO))):
        one.teach_many(xs, ys)
    assert [a.label for a in plain.predict_many(given)] == [a.label for a in framed.predict_many(make(TWO))]
    results = [confide.evaluate(plain, given, ys), confide.evaluate(framed, make(TWO), ys)]
    assert results[0].answers.tolist() == results[1].answers.tolist() and not results[1].refused.any()


COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "pandas": lambda values: pd.Series(values, index=range(len(values), 0, -1)),
    "polars": pl.Series,
    "arrow": pa.array,
    "chunked": lambda values: pa.chunked_array([values]),
    "numpy": np.array,
    "tuple": tuple,
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_labels_and_units_may_be_columns(column: Callable[[list[Any]], Any]) -> None:
    plan = confide.Plan.tight(4.0, 1e-3, 2000, units="people")
    pop = confide.POP(None, plan, labels=["no", "yes"], features=Features(numeric=["a", "b"]), units="people")
    ys, units = ["no", "yes"] * 10, [f"person {i}" for i in range(20)]
    result = confide.evaluate(pop, pd.DataFrame(TWO), column(ys), column(units))
    assert result.rounds == 20 and result.labels.tolist() == [0, 1] * 10
    answers = pop.predict_many(pl.DataFrame(TWO), column(units))
    pop.learn_many(column([answer.ticket for answer in answers]), column(ys))
    pop.teach_many(pa.table(TWO), column(ys), column(units))
    assert list(values_of(column(ys))) == ys


def test_a_column_is_read_by_its_values_and_not_by_its_index() -> None:
    assert values_of(pd.Series([3, None, 5], dtype="Int64", index=[7, 7, 7])) == [3, None, 5]
    assert values_of(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize("make", [np.array, pd.DataFrame, pl.DataFrame, pa.table], ids=lambda make: str(make.__name__))
def test_one_bad_row_of_a_table_changes_nothing_for_the_others(make: Callable[..., Any]) -> None:
    """A round of scikit-learn's predict is a good one, whatever stands in another row of the same table."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12, 3))
    bad = X.copy()
    bad[4, 1] = np.nan
    frame = bad if make is np.array else make({f"c{i}": bad[:, i] for i in range(3)})
    seen: list[list[Any]] = []

    def public(x: Any) -> int:
        seen.append(np.asarray(x, dtype=float).tolist())
        return 0

    plan = confide.Plan.tight(60.0, 1e-2, 400, copies=30, unsure=60, silent=0, guide=None)
    model = PrivateClassifier(LogisticRegression(), plan=plan, fallback=public, seed=1)
    model.fit(X if make is np.array else make({f"c{i}": X[:, i] for i in range(3)}), [0, 1] * 6)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(frame)
    assert model.pop_.rounds == 12
    good = [i for i in range(12) if i != 4]
    assert [seen[i] for i in good] == X[good].tolist()


def _text_that_is_none() -> Any:
    places = pa.py_buffer(np.array([0, 1, 2], dtype=np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 2, [None, places, pa.py_buffer(b"\xffb")])


UNTOLD: dict[str, Callable[[], Any]] = {
    "pandas, a signalling NaN": lambda: pd.DataFrame({"a": [1.0, 2.0], "t": [Decimal("sNaN"), "b"]}),
    "arrow, a time": lambda: pa.table({"a": [1.0, 2.0], "t": pa.array([2**62, 0], pa.timestamp("us"))}),
    "arrow, a time of pandas": lambda: pa.table({"a": [1.0, 2.0], "t": pa.array([1, 0], pa.timestamp("ns"))}),
    "arrow, bytes for a text": lambda: pa.table({"a": [1.0, 2.0], "t": _text_that_is_none()}),
    "polars, a time": lambda: pl.DataFrame({"a": [1.0, 2.0], "t": pl.Series([2**62, 0]).cast(pl.Datetime("us"))}),
    "polars, a date": lambda: pl.DataFrame({"a": [1.0, 2.0], "t": pl.Series([2**31 - 1, 0]).cast(pl.Date)}),
}


@pytest.mark.parametrize("kind", UNTOLD)
def test_a_value_that_cannot_be_handed_over_is_its_own_row_s(kind: str) -> None:
    """Else one row would decide whether another's round is taken, and an error of its library would quote it."""
    plan = confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=400)
    table = UNTOLD[kind]()
    pop = confide.POP(None, plan, labels=[0, 1], features=Features(numeric=["a"], categorical={"t": 8}), seed=1)
    told = pop.predict_many(table)
    assert pop.rounds == 2 and told[0].error is not None and "148108" not in told[0].error
    fine = rows_of(table, named=True)[1]["t"]
    assert (told[1].error is None) == isinstance(fine, str)
    assert rows_of(table, named=True)[1]["a"] == rows_of(table, named=False)[1][0] == 2.0


@pytest.mark.parametrize("kind", UNTOLD)
def test_a_label_that_cannot_be_handed_over_is_refused_alone(kind: str) -> None:
    plan = confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=400)
    table = UNTOLD[kind]()
    ys = table.column("t") if isinstance(table, pa.Table) else table["t"]
    good = rows_of(table, named=True)[1]["t"]
    pop = confide.POP(None, plan, labels=[good, "other"], features=1, seed=1)
    tickets = [answer.ticket for answer in pop.predict_many([[0.0], [1.0]])]
    with pytest.raises(ValueError, match=r"row 0 was refused, and all good rows were learned: this is not one"):
        pop.learn_many(tickets, ys)
    with pytest.raises(ValueError, match="used"):
        pop.learn(tickets[1], good)


def test_advice_takes_a_table() -> None:
    xs = np.arange(1500).reshape(500, 3) % [7, 11, 13]
    frame = pl.DataFrame({name: xs[:, i] for i, name in enumerate("abc")})
    asked: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-4, "rounds": 1000, "learners": []}
    ys = pl.Series((xs[:, 0] > xs[:, 1] - 3).tolist())
    advice = confide.advise(frame, ys, features=Features(numeric=list("abc")), **asked)
    assert advice.rows == 500 and advice.labels == (False, True)


def test_a_table_that_needs_a_package_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install .confide\[parquet\]."):
        rows_of(Stream(pa.table(TWO)), named=True)


def _declared() -> confide.POP:
    features = Features(numeric=["age", "minutes"], categorical={"day": 8}, text={"note": 16})
    return confide.POP(None, confide.Plan.tight(8.0, 1e-3, 100, guide=1.0), labels=[0, 1], features=features)


@pytest.mark.parametrize("call", ["predict_many", "teach_many", "evaluate"])
def test_a_table_with_none_of_the_declared_names_is_refused_before_any_round(call: str) -> None:
    pop, frame = _declared(), pd.DataFrame({"Age": [41, 50], "min": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"'Age', 'min', and the declared ones 'age', 'minutes', 'day', 'note': none"):
        if call == "evaluate":
            confide.evaluate(pop, frame, [0, 1])
        else:
            getattr(pop, call)(frame, *([[0, 1]] if call == "teach_many" else []))
    assert pop.rounds == 0


class _Unwilling(dict[str, Any]):
    """A row that raises where it is asked for a name."""

    def __contains__(self, name: object) -> bool:
        raise RuntimeError("a secret")


@pytest.mark.parametrize("many", [False, True])
def test_a_first_row_that_cannot_be_looked_at_keeps_no_answer_from_the_others(many: bool) -> None:
    pop, odd = _declared(), _Unwilling(age=41)
    said = pop.predict_many([odd, {"age": 50}]) if many else [pop.predict(odd)]
    assert [one.error for one in said] == [None] * len(said)


def test_a_table_that_lacks_most_declared_names_is_said_to() -> None:
    pop = _declared()
    with pytest.warns(confide.ConfideWarning, match="3 of 4 are missing in every row, 'minutes', 'day', 'note'"):
        pop.predict_many(pd.DataFrame({"age": [41, 50], "other": [1, 2]}))
    pop.predict_many(pd.DataFrame({"age": [41, 50], "minutes": [1, 2]}))
    assert pop.rounds == 4


@pytest.mark.parametrize("many", [False, True])
def test_a_first_question_with_none_of_the_declared_names_is_said_to_its_asker(many: bool) -> None:
    pop, odd = _declared(), {"Age": 41}
    with pytest.warns(confide.ConfideWarning, match="has none of the declared names 'age', 'minutes', 'day', 'note'"):
        pop.predict_many([odd]) if many else pop.predict(odd)
    pop.predict_many([odd]) if many else pop.predict(odd)
    fine = _declared()
    fine.predict({"age": 41})
    fine.predict(odd)
    assert pop.rounds == fine.rounds == 2
