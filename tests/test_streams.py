"""Streams: what is read, what is refused, and what is never dropped."""

import gzip
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from river.datasets import synth

from confide.data.agrawal import AGRAWAL, agrawal_label, agrawal_rows
from confide.data.datasets import open_stream
from confide.data.files import open_file
from confide.data.kdd99 import KDD99, KDD99_WEIGHTS
from confide.data.lines import form_of
from confide.data.rows import BadRow, Row, Table

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


def test_labels_read_from_the_file_are_said_to_be_public(csv: Path) -> None:
    stream = open_file(csv)
    assert stream.labels == ("maybe", "no", "perhaps", "yes")
    assert "treated as public" in stream.notes[0]
    assert open_file(csv, labels=["yes", "no"]).notes == ()


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
    arrays = [np.array([row.x for row in stream.rows()]) for stream in streams]
    assert (arrays[0] == arrays[1]).all() and (arrays[0] == arrays[2]).all()


def test_a_row_is_encoded_without_looking_at_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    encoded = []
    for others in ("", "x,0\n7,1\nz,1\n"):
        path.write_text(f"f,y\n{others}red,1\n0,0\n")
        rows = [row for row in open_file(path, labels=["0", "1"]).rows() if isinstance(row, Row)]
        encoded.append(rows[-2].x)
    assert (encoded[0] == encoded[1]).all() and encoded[0].sum() == 1


def test_a_table_refuses_texts_where_it_has_no_columns_for_them() -> None:
    table = Table(["age", "city"], hashed=0)
    with pytest.raises(ValueError, match="'city' must be a number"):
        table.encode({"age": 1.0, "city": "Rome"})
    given = [Row({"age": 1.0}, "a", "ann"), Row({"city": "Rome"}, "b", "bob"), BadRow(7, "why", {}, "c")]
    rows = list(table.rows(given))
    assert isinstance(rows[0], Row) and rows[1][2:] == (None, "b", "bob") and "Rome" not in rows[1].reason
    assert rows[2].reason == "why" and rows[2].x.tolist() == [0.0, 0.0]


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
    assert all(row.x.shape == (stream.width,) and row.y in labels for row in rows)


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
    with pytest.raises(ValueError, match="at least two different labels"):
        open_file(csv, labels=["yes", "yes"])


def test_missing_data_sets_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFIDE_DATA", raising=False)
    for name in ("kdd99", "elec"):
        with pytest.raises(ValueError, match="CONFIDE_DATA"):
            open_stream(name)


def test_kdd99_in_blocks_is_kdd99_record_by_record() -> None:
    folder = os.environ.get("CONFIDE_DATA")
    if not folder or not (Path(folder) / "kddcup.data_10_percent.gz").is_file():
        pytest.skip("needs kddcup.data_10_percent.gz from the UCI repository in the folder that CONFIDE_DATA names")
    stream = open_stream("kdd99")
    assert stream.length == 494_021
    for fast, slow in islice(zip(stream.rows(), stream.rows(dicts=True), strict=True), 500):
        np.testing.assert_allclose(fast.x, KDD99.encode(slow.x) * KDD99_WEIGHTS)
        assert fast.y == slow.y
