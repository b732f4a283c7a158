"""Streams: what is read, what is refused, and what is never dropped."""

import datetime
import gzip
import itertools
import json
import os
import tomllib
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from river.datasets import synth

from benchmarks.agrawal import AGRAWAL, agrawal_label, agrawal_rows
from benchmarks.kdd99 import FILE, KDD99, KDD99_WEIGHTS, kdd99
from confide.data.datasets import open_stream
from confide.data.files import draft, open_file
from confide.data.layout import Column, Layout
from confide.data.lines import form_of
from confide.data.rows import BadRow, Row
from confide.data.schema import Schema, read_schema
from confide.data.values import read
from confide.data.visits import block, chances
from confide.learners import Features

CSV = """age,city,who,outcome
41,Rome,ann,yes
17.5,Oslo,bob,no
oops
,Rome,cat,yes
1e99,Rome,dan,yes
33,Rome,,no
33,Rome,eve,maybe
33,Rome,eve,
NaN,infinity,fay,no
1_000,Rome,gus,no
1e99,Rome,hal,perhaps
"""


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(CSV)
    return path


@pytest.mark.parametrize("function", range(10))
def test_agrawal_labels_are_rivers(function: int) -> None:
    theirs = list(islice(synth.Agrawal(classification_function=function, seed=function), 3000))
    rows = np.array([[x[name] for name in AGRAWAL] for x, _ in theirs])
    assert agrawal_label(function, rows).tolist() == [bool(y) for _, y in theirs]


def test_agrawal_rows_are_distributed_like_rivers() -> None:
    """Range, mean and deviation of each feature; the seeds are fixed, so nothing fails by chance."""
    theirs = np.array([list(x.values()) for x, _ in islice(synth.Agrawal(seed=1), 20_000)])
    ours = agrawal_rows(np.random.default_rng(1), 20_000)
    spread = np.ptp(theirs, axis=0)
    for measure in (np.min, np.max, np.mean, np.std):
        assert (np.abs(measure(ours, axis=0) - measure(theirs, axis=0)) / spread < 0.01).all()
    assert ((ours[:, 1] == 0) == (ours[:, 0] >= 75_000)).all()


def test_a_generated_stream_repeats_itself_and_ends() -> None:
    stream = open_stream("agrawal:2", rows=5000, seed=7)
    first, again = list(stream.rows()), list(stream.rows())
    assert len(first) == stream.length == 5000
    assert all((a.x == b.x).all() and a.y == b.y for a, b in zip(first, again, strict=True))
    assert any((a.x != b.x).any() for a, b in zip(first, open_stream("agrawal:2", rows=9, seed=8).rows(), strict=False))
    as_dict = next(iter(stream.rows(dicts=True)))
    assert list(as_dict.x.values()) == first[0].x.tolist() and tuple(as_dict.x) == AGRAWAL


def test_every_line_of_a_csv_comes_out_as_a_row_or_a_bad_row(csv: Path) -> None:
    stream = open_file(csv, labels=["yes", "no"], unit="who")
    items = list(stream.rows(dicts=True))
    assert len(items) == stream.length == 11
    good = {i + 2: item for i, item in enumerate(items) if isinstance(item, Row)}
    bad = {item.line: item.reason for item in items if isinstance(item, BadRow)}
    assert good[2] == Row({"age": 41.0, "city": "Rome"}, "yes", "ann", 2)
    assert good[5] == Row({"age": None, "city": "Rome"}, "yes", "cat", 5)
    assert good[10].x == {"age": None, "city": "infinity"} and good[11].x["age"] == "1_000"
    assert bad == {
        4: "it has 1 fields where 4 are expected",
        6: "its 'age' is not a finite number that float32 can hold",
        7: "its unit ('who') is missing",
        8: "its label is not one of the declared labels",
        9: "its label is missing",
        12: "its 'age' is not a finite number that float32 can hold",
    }
    assert not any(private in str(bad) for private in ("maybe", "eve", "1e99", "Rome"))
    left = {item.line: (item.x, item.y, item.unit) for item in items if isinstance(item, BadRow)}
    fine = {"age": 33.0, "city": "Rome"}
    assert left[6] == (None, "yes", "dan") and left[12] == (None, None, "hal"), "what can be used of them is kept"
    assert left[8] == left[9] == (fine, None, "eve") and left[4] == left[7] == (None, None, None)


def test_what_is_read_from_the_file_as_a_whole_is_said_to_be_public(csv: Path) -> None:
    stream = open_file(csv)
    assert stream.labels == ("maybe", "no", "perhaps", "yes")
    assert any("treated as public" in note for note in stream.notes)
    assert any("4 labels" in line for line in stream.public)
    declared = open_file(csv, label="outcome", labels=["yes", "no"])
    assert not any("labels" in line for line in (*declared.public, *declared.notes))
    assert any("11" in line for line in declared.public), "the number of rows is the number of rounds"
    told = " ".join(open_file(csv, unit="who", order=["age"]).public)
    assert "sorted" in told and "'who'" in told


def test_gzipped_csv_and_parquet_read_like_the_csv(tmp_path: Path) -> None:
    plain, zipped, parquet = (tmp_path / name for name in ("a.csv", "a.csv.gz", "a.parquet"))
    plain.write_text("n,c,y\n1,red,0\n2.5,blue,1\n,red,1\n")
    with gzip.open(zipped, "wt") as file:
        file.write(plain.read_text())
    pq.write_table(pa.table({"n": [1.0, 2.5, None], "c": ["red", "blue", "red"], "y": [0, 1, 1]}), parquet)
    streams = [open_file(path) for path in (plain, zipped, parquet)]
    rows = [list(stream.rows(dicts=True)) for stream in streams]
    assert rows[0] == rows[1] and [row[:3] for row in rows[0]] == [row[:3] for row in rows[2]]
    assert {stream.labels for stream in streams} == {("0", "1")}
    assert [[row.x for row in stream.rows()] for stream in streams] == [[row.x for row in streams[0].rows()]] * 3


@pytest.mark.parametrize("others", ["", "x,0\n7,1\nz,1\n", "a note of many words,0\n2020-01-01,1\n1e99,1\n,0\n"])
def test_what_one_row_holds_does_not_change_how_another_is_read(tmp_path: Path, others: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"f,y\n{others}red,1\n0,0\n")
    stream = open_file(path, labels=["0", "1"])
    assert [row.x for row in stream.rows()][-2:] == [{"f=": "red"}, {"f": 0.0, "f=": "0"}]
    assert stream.features.names == Features(["f"], (), {"f=": 32}, {"words =": 128}).names


def test_every_column_has_hashes_of_its_own() -> None:
    """What one column holds never falls on another's places. In 16 places for all of them, these rows of the hotel file
    met: a refundable deposit of a transient guest, and no deposit of one with a contract."""
    values = {
        "deposit_type": ("No Deposit", "Non Refund", "Refundable"),
        "customer_type": ("Transient", "Contract", "Group"),
        "market_segment": ("Groups", "Online TA"),
    }
    layout = Layout(tuple(Column(name) for name in values))
    rows = [layout.features.encode(layout.x(row)) for row in itertools.product(*values.values())]
    assert len({row.tobytes() for row in rows}) == 18
    for row in rows:
        assert [row[start : start + 32].sum() for start in (3, 35, 67)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("columns", "width"), [(1, 32), (8, 32), (9, 16), (32, 8), (33, 4), (257, 4), (1000, 4)])
def test_however_many_columns_nobody_declared_each_has_its_places(columns: int, width: int) -> None:
    features = Layout(tuple(Column(f"c{i}") for i in range(columns))).features
    assert len(features.names) == columns + columns * width + 128


def test_a_value_is_read_by_its_own_form() -> None:
    assert [read(text).kind for text in ("41", "-1.5e3", "infinity", "NaN", "2024-02-30", "1_000", "")] == [
        *("number", "number", "text", "missing", "text", "text", "missing"),
    ]
    assert read("2020-01-02").number == 1.0 == read("2020-01-02T01:00:00+01:00").number
    assert read("2019-12-31T12:00:00Z")[:2] == (-0.5, "Tuesday")
    layout = Layout((Column("c"),))
    said = {text: layout.x([text]) for text in ("NA", "infinity", "7", "7.5", "one two three", "one two three nan")}
    assert said == {
        "NA": {"c=": "NA"},
        "infinity": {"c=": "infinity"},
        "7": {"c": 7.0, "c=": "7"},
        "7.5": {"c": 7.5},
        "one two three": {"c=": "one two three", "words =": "one two three"},
        "one two three nan": {"words =": "one two three nan"},
    }


def test_a_declared_column_is_read_as_declared() -> None:
    assert Layout((Column("c", "mixed"),)).x(["one two three four"]) == {"c=": "one two three four"}
    kinds = ("number", "category", "text", "date", "log", "drop")
    layout = Layout(tuple(Column(kind, kind) for kind in kinds))
    assert layout.x(["nan", "nan", "infinity", "nan", "x", "y"]) == {"category": "nan", "text": "infinity"}
    found = layout.x(["3", "3", "3", "2020-01-04", "3", "3"])
    assert found == {"number": 3.0, "category": "3", "text": "3", "date": 3.0, "date=": "Saturday", "log": 3.0}
    assert layout.plain(["nan", "nan", "nan", "nan", "x", "y"]) == {
        **dict.fromkeys(("number", "date", "log")), "category": "nan", "text": "nan",
    }  # fmt: skip
    assert "drop" not in layout.names


def test_no_name_of_ours_is_a_columns() -> None:
    layout = Layout((Column("a"), Column("a="), Column(""), Column("words =")))
    assert layout.mark == "==" and len(layout.features.names) == 4 + 4 * 32 + 128
    assert layout.x(["u", "v", "w", "x"]) == {"a==": "u", "a===": "v", "==": "w", "words ===": "x"}


SCHEMA = """
label = "outcome"
labels = ["yes", "no"]
unit = "who"
[columns]
age = { kind = "number", low = 0, high = 120 }
city = "category"
"""


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_schema_says_what_columns_are(csv: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"s.{form}"
    path.write_text(SCHEMA if form == "toml" else json.dumps(tomllib.loads(SCHEMA)))
    stream = open_file(csv, schema=read_schema(path))
    assert stream.labels == ("yes", "no") and stream.names == ("age", "city")
    assert isinstance(stream.features, Features) and stream.features.ranges == {"age": (0.0, 120.0)}
    first = next(stream.rows())
    assert (first.x, first.y, first.unit) == ({"age": 41.0, "city": "Rome"}, "yes", "ann")
    assert open_file(csv, schema=read_schema(path), labels=["no", "maybe"]).labels == ("no", "maybe")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("columns = 3", "must be a table"),
        ("colour = 'red'", "an entry 'colour'"),
        ("[columns]\nage = 'nummer'", "declared as 'nummer'"),
        ("[columns]\nage = { kind = 'number', low = 3 }", "both"),
        ("[columns]\nage = { kind = 'number', low = 'a', high = 2 }", "must be a number"),
        ("[columns]\nage = 'number'", "says nothing of column 'city'"),
        ("labels = 'a,b'", "must be a list"),
        ("label = ", "not valid TOML"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_in_a_sentence(csv: Path, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=says) as caught:
        open_file(csv, schema=read_schema(path))
    assert "\n" not in str(caught.value)


def sample(rows: int) -> str:
    lines = ["id,when,size,room,nights,code,note,empty,y"]
    for i in range(rows):
        note = "all went well today" if i % 3 else "no"
        code = (9, 9, 240, 9, 240, 7, 14, 9, 240, 300 + i % 40)[i % 10]
        lines.append(f"k{i},2024-01-{1 + i % 28:02},{i % 50 / 7:.3f},{'AB'[i % 2]},{i % 9},{code},{note},,{i % 2}")
    return "\n".join(lines) + "\n"


def test_a_schema_is_drafted_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(sample(1200))
    schema, comments = draft(path)
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {
        "id": "drop", "when": "date", "size": "number", "room": "category", "nights": "number",
        "code": "mixed", "note": "text", "empty": "drop",
    }  # fmt: skip
    assert schema.labels == ("0", "1") and schema.label == "y" and set(comments) == {"id", "code", "empty"}
    assert all(column.low is None for column in schema.columns), "ranges of a private file are nobody's to see"
    (tmp_path / "s.toml").write_text(schema.to_toml(comments))
    again = read_schema(tmp_path / "s.toml")
    assert (again.columns, again.label, again.labels) == (schema.columns, schema.label, schema.labels)
    public, _ = draft(path, ranges=True)
    size = next(column for column in public.columns if column.name == "size")
    assert size.low == pytest.approx(0.0) and size.high == pytest.approx(7.0, abs=0.01)


def test_any_name_survives_a_schema(tmp_path: Path) -> None:
    names = ["a b", 'q"u', "ß\x7f", "new\tline", "😀", "#"]
    schema = Schema(tuple(Column(name, "category") for name in names), "y", ("l 1", '"'))
    (tmp_path / "s.toml").write_text(schema.to_toml({"#": "a comment"}))
    assert read_schema(tmp_path / "s.toml").columns == schema.columns


def test_rows_come_in_the_order_asked_for_and_equal_ones_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("d,n,y\n2024-02-01,10,a\n2024-01-05,9,b\noops\n2024-01-05,x,a\n,1,b\n2024-01-05,9,a\n")
    stream = open_file(path, labels=["a", "b"], order=["d", "n"])
    assert [item.line for item in stream.rows()] == [3, 7, 5, 2, 6, 4] and stream.length == 6
    assert [item.line for item in open_file(path, labels=["a", "b"], drop=["d"]).rows()] == [2, 3, 4, 5, 6, 7]
    assert open_file(path, labels=["a", "b"], drop=["d"]).names == ("n",)
    with pytest.raises(ValueError, match="no column 'when'"):
        open_file(path, order=["when"])
    with pytest.raises(ValueError, match="--drop names the label"):
        open_file(path, drop=["y"])


def test_dates_of_a_parquet_file_are_those_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("day,at,y\n2024-02-29,2024-02-29T12:00:00Z,a\n,,b\n")
    day, at = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    pq.write_table(pa.table({"day": [day, None], "at": [at, None], "y": ["a", "b"]}), tmp_path / "a.parquet")
    rows = [[row.x for row in open_file(tmp_path / name).rows()] for name in ("a.csv", "a.parquet")]
    assert rows[0] == rows[1] == [{"day": 1520.0, "day=": "Thursday", "at": 1520.5, "at=": "Thursday"}, {}]


def test_integer_ids_are_units_the_same_in_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,n,y\n29872499824296,1,a\n7,2,b\n29872499824296,3,a\n")
    ids = [29872499824296, 7, 29872499824296]
    pq.write_table(pa.table({"who": ids, "n": [1, 2, 3], "y": ["a", "b", "a"]}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        units = [row.unit for row in open_file(tmp_path / name, unit="who").rows()]
        assert units == ["29872499824296", "7", "29872499824296"]


def test_the_showcase_has_noise_that_nobody_can_learn() -> None:
    """The seed is fixed. A third of the visits is missed, and knowing each chance leaves about 15 % wrong."""
    made = block(np.random.default_rng(1), 50_000)
    p = chances(made)
    assert 0.27 < p.mean() < 0.33 and 0.14 < np.minimum(p, 1 - p).mean() < 0.165
    stream = open_stream("visits", rows=5000, seed=3)
    rows = list(stream.rows())
    assert len(rows) == 5000 and rows == list(stream.rows()) != list(open_stream("visits", rows=5000, seed=4).rows())
    assert 0.25 < sum(row.y == "missed" for row in rows) / 5000 < 0.35
    assert isinstance(stream.features, Features) and stream.features.encode(rows[0].x).shape == (stream.features.width,)


def test_how_a_file_is_written_is_read_from_its_first_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for first, form in {
        "a,b;c,d": (",", True),
        '"a,b,c";d': (";", True),
        "a\tb, c": ("\t", True),
        "a|b": ("|", True),
        "a": (";", True),
    }.items():
        path.write_text(f"{first}\n1;2;3;4;5;6\t7\t8\n")
        assert (form_of(path).separator, form_of(path).quoted) == form
    table = tmp_path / "a.tsv"
    table.write_text('text\ty\n"an open quote\t1\nand the next line\t0\n')
    assert [row.x["text"] for row in open_file(table).rows(dicts=True)] == ['"an open quote', "and the next line"]


def test_a_number_is_told_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n;y\n1,5;a\n-2,25e1;b\n1,2,3;a\n1.5;b\nNA;a\n?;b\nnull;a\ninf;b\n7;a\n")
    numbers = [row.x["n"] for row in open_file(path).rows(dicts=True)]
    assert numbers == [1.5, -22.5, "1,2,3", 1.5, None, None, None, "inf", 7.0]
    path.write_text('n,y\n"1,5",a\n1.5,b\n')
    assert [row.x["n"] for row in open_file(path).rows(dicts=True)] == ["1,5", 1.5]


@pytest.mark.parametrize(
    ("name", "labels"),
    [("shuttle", (0, 1)), ("sea:2", (False, True)), ("led", tuple(range(10))), ("phishing", (False, True))],
)
def test_rivers_streams_come_by_name(name: str, labels: tuple[object, ...]) -> None:
    stream = open_stream(name, rows=50)
    rows = list(stream.rows())
    assert stream.labels == labels and len(rows) == 50
    assert all(row.x.shape == (stream.features,) and row.y in labels for row in rows)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "no stream is called"),
        ("nowhere.csv", "cannot read"),
        ("agrawal:10", "from 0 to 9"),
        ("led", "has no end"),
        ("led:3", "takes no number"),
        ("bikes", "not for classification"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_sentence(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        open_stream(name)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_what_they_say_are_refused(tmp_path: Path, csv: Path) -> None:
    (tmp_path / "b.parquet").write_bytes(b"no parquet")
    (tmp_path / "b.csv.gz").write_bytes(b"no gzip")
    (tmp_path / "empty.csv").write_text("")
    for name in ("b.parquet", "b.csv.gz", "empty.csv"):
        with pytest.raises(ValueError):
            open_file(tmp_path / name)
    with pytest.raises(ValueError, match="no column 'nothing'"):
        open_file(csv, label="nothing")
    with pytest.raises(ValueError, match="declared twice"):
        open_file(csv, labels=["yes", "yes"])


def test_missing_data_sets_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFIDE_DATA", raising=False)
    with pytest.raises(ValueError, match="CONFIDE_DATA"):
        open_stream("elec")


def test_kdd99_in_blocks_is_kdd99_record_by_record() -> None:
    folder = os.environ.get("CONFIDE_DATA")
    if not folder or not (Path(folder) / FILE).is_file():
        pytest.skip(f"needs {FILE} from the UCI repository in the folder that CONFIDE_DATA names")
    stream = kdd99()
    assert stream.length == 494_021
    for fast, slow in islice(zip(stream.rows(), stream.rows(dicts=True), strict=True), 500):
        np.testing.assert_allclose(fast.x, KDD99.encode(slow.x) * KDD99_WEIGHTS)
        assert fast.y == slow.y


@pytest.mark.parametrize(
    ("low", "high"),
    [("2020-02-01", "2030-12-31"), ("'2020-02-01'", '"2030-12-31"'), ("31", "4017"), ("2020-02-01T00:00:00", "4017.0")],
)
def test_the_range_of_a_date_is_two_dates(tmp_path: Path, low: str, high: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"[columns]\nwhen = {{ kind = 'date', low = {low}, high = {high} }}")
    schema = read_schema(path)
    assert (schema.columns[0].low, schema.columns[0].high) == (31.0, 4017.0)
    assert 'low = "2020-02-01", high = "2030-12-31"' in schema.to_toml()
    path.write_text(schema.to_toml())
    assert read_schema(path).columns == schema.columns


@pytest.mark.parametrize(
    "column", ["{ kind = 'date', low = 'soon', high = 3 }", "{ kind = 'date', low = 1, high = true }"]
)
def test_a_range_that_is_no_date_is_refused_with_a_form_that_works(tmp_path: Path, column: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"[columns]\nwhen = {column}")
    with pytest.raises(ValueError, match=r"of column 'when' must be a date, as 2024-02-29$"):
        read_schema(path)


def test_a_number_has_no_dates_for_ends(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("[columns]\nage = { kind = 'number', low = 2020-01-01, high = 2021-01-01 }")
    with pytest.raises(ValueError, match="must be a number"):
        read_schema(path)


def test_a_public_sample_gives_whole_days_for_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(sample(1200))
    text = draft(path, ranges=True)[0].to_toml()
    assert '"when" = { kind = "date", low = "2024-01-01", high = "2024-01-28" }' in text


def test_a_draft_says_what_a_mixed_column_holds_and_which_labels_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = [f"2024-01-{1 + i % 28:02}" if i % 10 else "unknown" for i in range(200)]
    queues = ("Billing", "billing", "x")
    path.write_text("when,y\n" + "".join(f"{day},{queues[i % 3]}\n" for i, day in enumerate(lines)))
    schema, comments = draft(path)
    assert comments["when"].startswith("dates and texts:") and '"date" if' in comments["when"]
    text = schema.to_toml(comments)
    assert '# "Billing" and "billing" differ by case only' in text and tomllib.loads(text)["label"] == "y"


# --- what is said of a stranger's file before it is run


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_first_line_that_holds_somebodys_numbers_is_refused_and_not_shown(tmp_path: Path) -> None:
    for first in ("41.5,Rome,1", "-3,Rome,1", "1e5,Rome,1", "2024-02-29,Rome,1"):
        with pytest.raises(ValueError, match="must name its columns") as caught:
            open_file(written(tmp_path / "rows.csv", first, *["17.5,Oslo,0"] * 5, "18.5,Oslo,1"))
        said = str(caught.value).replace(str(tmp_path), "")
        assert "Rome" not in said and first.split(",")[0] not in said


def test_columns_may_be_called_by_numbers_and_a_note_asks_whether_they_are(tmp_path: Path) -> None:
    stream = open_file(written(tmp_path / "rows.csv", "0,1,2", *["17.5,Oslo,0", "18.5,Oslo,1"] * 3))
    assert stream.names == ("0", "1")
    assert any("Put a line of names before it" in note for note in stream.notes)


def test_a_label_that_was_not_named_is_said_and_a_wrong_guess_names_the_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "age,left", *["17,yes", "18,no"] * 3)
    assert any("last column, 'left', is taken" in note for note in open_file(path).notes)
    assert not any("last column" in note for note in open_file(path, label="left").notes)
    many = written(tmp_path / "many.csv", "left,paid", *(f"{i % 2},{i}.5" for i in range(1200)))
    with pytest.raises(ValueError, match=r"'paid'.*no --label was given.*one of left, paid; is it a number .* ranges"):
        open_file(many)


def test_a_file_with_one_label_says_that_nothing_can_be_learned_from_it(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "age,left", *["17,no"] * 5)
    with pytest.raises(ValueError, match=r"every row has the same label in column 'left'.*--labels"):
        open_file(path)
    with pytest.raises(ValueError, match=r"column 'left' is empty in every row"):
        open_file(written(tmp_path / "empty.csv", "age,left", *["17,"] * 5))
    assert open_file(path, labels=["no", "yes"]).length == 5
    with pytest.raises(ValueError, match="one label alone is declared"):
        open_file(path, labels=["yes"])


def test_columns_without_a_name_get_one_that_can_be_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", ",age,,left", *["1,17,a,no", "2,18,b,yes"] * 3)
    stream = open_file(path)
    assert stream.names == ("column 1", "age", "column 3")
    assert any("column 1" in note and "column 3" in note for note in stream.notes)
    assert open_file(path, drop=["column 1"]).names == ("age", "column 3")


def test_columns_that_look_like_ids_are_named_to_the_owner_alone(tmp_path: Path) -> None:
    lines = [f"u{i},{i},{i % 90},{i / 7:.4f},{'ab'[i % 2]} word number {i} of all,{i % 2}" for i in range(1500)]
    path = written(tmp_path / "rows.csv", "user,row,age,paid,note,left", *lines)
    stream = open_file(path)
    forms, ids = stream.hints
    assert "numbers in 'row', 'age', 'paid'; categories in 'user'; words in 'note'" in forms
    assert "--drop user,row," in ids
    assert not any("user" in said for said in (*stream.notes, *stream.public))
    assert len(open_file(path, drop=["user", "row"]).hints) == 1
    few = written(tmp_path / "few.csv", "user,left", *(f"u{i},{i % 2}" for i in range(900)))
    assert len(open_file(few).hints) == 1


def test_a_decimal_comma_makes_no_id_and_what_is_to_be_dropped_can_be_typed(tmp_path: Path) -> None:
    lines = [f"{i},47;u {i};{'ab'[i % 2]}" for i in range(1200)]
    _, hint = open_file(written(tmp_path / "rows.csv", "paid;user name;left", *lines)).hints
    assert "--drop 'user name'," in hint and "paid" not in hint
