"""A value is read by itself: nothing that stands in another row, or in another column's type, changes what it says."""

from __future__ import annotations

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import confide
from confide.data.files import open_file
from confide.data.rows import BadRow
from confide.frames import rows_of
from confide.guide.columns import Columns, Malformed
from confide.guide.hashed import HashedMap
from confide.guide.rows import read_many
from confide.learners import Features, HashedFeatures
from confide.learners.features import AsGiven
from confide.pop.evaluate import label_numbers
from confide.sklearn import PrivateClassifier

KINDS = [int, float, np.int8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.longdouble]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_three_is_read_alike_at_every_door(kind: Any) -> None:
    one, three = {"a": kind(3)}, {"a": 3}
    declared = Features(numeric=["a"]), Features(log=["a"]), Features(categorical={"a": 8}), HashedFeatures(8)
    for encoder in declared:
        assert encoder.encode(one).tolist() == encoder.encode(three).tolist()
    given = AsGiven().encode(one)["a"]
    assert given == 3 and type(given) is int
    assert HashedMap().encode(one).indices.tolist() == HashedMap().encode(three).indices.tolist()
    for columns in (Columns(numeric=("a",)), Columns(categorical=("a",))):
        alone, other = columns.read(one), columns.read(three)
        assert (alone.numbers.tolist(), alone.codes.tolist()) == (other.numbers.tolist(), other.codes.tolist())
    assert label_numbers([1, 3], [kind(3)]).tolist() == [1]


def test_numbers_come_out_plain_and_truths_stay_truths() -> None:
    row = {"a": np.float32(0.5), "b": np.True_, "c": True, "d": -0.0, "e": 2.0**60, "f": 1 << 60, "g": np.int64(-7)}
    assert [repr(value) for value in AsGiven().encode(row).values()] == [
        "0.5", "True", "True", "0", "1.152921504606847e+18", "1.152921504606847e+18", "-7",
    ]  # fmt: skip


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_value_of_one_row_changes_no_other_row(missing: Any) -> None:
    """pandas makes floats of integers that stand beside a missing value."""
    whole, holed = pd.DataFrame({"a": [*range(60), 1]}), pd.DataFrame({"a": [*range(60), missing]})
    encoder = AsGiven()
    for frame in (whole, holed):
        rows = [encoder.encode(row) for row in rows_of(frame, named=True)]
        assert [str(row["a"]) for row in rows[:60]] == [str(i) for i in range(60)]


def csv(ages: list[str]) -> str:
    return "age,city,outcome\n" + "".join(f"{age},Rome,{'yes' if i % 2 else 'no'}\n" for i, age in enumerate(ages))


@pytest.mark.parametrize("odd", ["unknown", "", "?", "1_000", "inf", "2024-01-01"])
@pytest.mark.parametrize("read", ["as pandas likes", "as the page says", "polars"])
def test_one_odd_value_of_a_file_refuses_no_other_row(odd: str, read: str) -> None:
    """One "unknown" made texts of all ages, and 3,500 others were refused."""
    text = csv([*map(str, range(20, 60)), odd])
    if read == "polars":
        frame = pl.read_csv(io.StringIO(text), infer_schema=False)
    else:
        frame = pd.read_csv(io.StringIO(text), **({"dtype": str} if read == "as the page says" else {}))
    features, columns = Features(numeric={"age": (0, 120)}), Columns(numeric=("age",))
    rows = rows_of(frame, named=True)
    assert [features.encode(row)[0] for row in rows[:40]] == list(range(20, 60))
    table = read_many(columns, rows)
    assert table.numbers[:40, 0].tolist() == list(range(20, 60)) and not table.refused[:40].any()
    for row, refused in zip(rows, table.refused, strict=True):
        try:
            columns.read(row)
        except Malformed as error:
            assert refused and odd not in str(error).split()
        else:
            assert not refused


def test_the_pages_example_answers_everybody_beside_one_unknown() -> None:
    text = csv([*[str(20 + i % 60) for i in range(299)], "unknown"])
    frame = pd.read_csv(io.StringIO(text), dtype=str)
    pop = confide.POP(
        None, confide.Plan.tight(epsilon=4.0, delta=1e-6, rounds=2000), labels=["no", "yes"],
        features=Features(numeric={"age": (0, 120)}, categorical={"city": 8}),
    )  # fmt: skip
    answers = pop.predict_many(frame.drop(columns="outcome"))
    assert [i for i, answer in enumerate(answers) if answer.error is not None] == [299]
    assert "unknown" not in str(answers[299].error)


def model() -> PrivateClassifier:
    first = np.linspace(-1, 1, 40).reshape(-1, 1)
    promise = confide.Promise(8.0, rounds=3000)
    made = PrivateClassifier(promise=promise, history=40, ranges=(-1, 1), classes=[0, 1], seed=1)
    return made.partial_fit(first, (first[:, 0] > 0).astype(int))


@pytest.mark.parametrize("odd", ["unknown", None, 7, 0.5, [0]])
def test_one_label_decides_for_nobody_else(odd: Any) -> None:
    """One text made texts of all labels: nobody was taught, and the error said that all others were."""
    xs, ys = np.linspace(-1, 1, 30).reshape(-1, 1), [int(i > 14) for i in range(30)]
    with_it, without = model(), model()
    with pytest.raises(ValueError, match="row 29 was refused, and all good rows were learned") as told:
        with_it.partial_fit(xs, [*ys[:29], odd])
    assert "unknown" not in str(told.value)
    with pytest.raises(ValueError):
        without.partial_fit(xs, [*ys[:29], 2])
    loops: list[Any] = [made.pop_._loop for made in (with_it, without)]
    one, other = (loop.guiding.guide._leaves.open for loop in loops)
    assert one.any() and (one == other).all()


# --- Parquet: a value that cannot be handed over


FAR = 10**18  # microseconds: beyond the last year that Python knows


def parquet(path: Path) -> Path:
    seen = pa.array([0, FAR, 86_400_000_000] * 20, pa.int64()).cast(pa.timestamp("us"))
    table = pa.table({"seen": seen, "age": list(range(60)), "y": ["a", "b", "b"] * 20})
    pq.write_table(table, path)
    return path


def test_a_date_beyond_pythons_is_unreadable_in_its_own_row_of_a_parquet_file(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"out of range|overflow"):
        pa.array([FAR], pa.int64()).cast(pa.timestamp("us")).to_pylist()
    stream = open_file(parquet(tmp_path / "a.parquet"), label="y", labels=["a", "b"])
    for dicts in (True, False):
        items: list[Any] = list(stream.source(dicts))
        assert [isinstance(item, BadRow) for item in items] == [False, True, False] * 20
        assert items[1].reason == "its 'seen' is a value that cannot be handed over" and items[1].y == "b"
    assert items[0].x["seen"] == (datetime(1970, 1, 1) - datetime(2020, 1, 1)).days


def test_such_a_value_may_be_the_label_the_unit_or_what_is_sorted_by(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    assert sum(isinstance(item, BadRow) for item in open_file(path, label="y", order=["seen"]).source(True)) == 20
    assert sum(isinstance(item, BadRow) for item in open_file(path, label="y", unit="seen").source(True)) == 20
    days = ["1970-01-01 00:00:00", "1970-01-02 00:00:00"]
    assert sum(isinstance(item, BadRow) for item in open_file(path, label="seen", labels=days).source(True)) == 20
    assert json.dumps(open_file(path, label="seen").labels) == json.dumps(days)
