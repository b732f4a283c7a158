"""What `confide run` says of files as people have them, before the run, or how it reads them: nothing is lost."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from confide.data.files import draft, open_file
from confide.data.layout import Column, Layout
from confide.data.rows import Row, Stream
from confide.data.schema import Schema, read_schema
from confide.planning.plan import Plan
from confide.runs.page import notes_of
from confide.runs.report import numbers as numbers_of
from confide.runs.runner import run
from confide.runs.settings import Settings
from confide.runs.worth import worth

DAYS = [date(2023, 1, 1) + timedelta(days=i * 7 % 700) for i in range(600)]
NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def written(path: Path, header: str, *lines: str, encoding: str = "utf-8") -> Path:
    path.write_bytes("\n".join([header, *lines, ""]).encode(encoding))
    return path


def dated(path: Path, form: str) -> Path:
    """600 rows with a day in this form, quoted, and a label."""
    lines = [f'"{day.strftime(form)}",{"ab"[i % 2]}' for i, day in enumerate(DAYS)]
    return written(path, "day,label", *lines)


def odd(stream: Stream) -> tuple[str, ...]:
    """What is said of the file, but for what its columns look like."""
    return tuple(hint for hint in stream.hints if not hint.startswith("most values of the first"))


def numbers(stream: Stream) -> list[float]:
    return [row.x["day"] for row in stream.rows() if isinstance(row, Row) and "day" in row.x]


ISO = [float((day - date(2020, 1, 1)).days) for day in DAYS]


@pytest.mark.parametrize("form", ["%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%b %d %Y", "%b %d, %Y", "%d %B %Y", "%d-%b-%Y"])
def test_a_declared_date_is_read_in_every_form_that_has_one_reading(tmp_path: Path, form: str) -> None:
    schema = Schema.of({"columns": {"day": "date"}})
    stream = open_file(dated(tmp_path / "a.csv", form), schema=schema)
    assert numbers(stream) == ISO and stream.hints == ()
    assert [row.x["day"] for row in stream.rows(dicts=True)] == ISO


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m-%d-%Y", "%d/%m/%Y %H:%M"])
def test_a_date_with_two_readings_is_refused_with_its_form_and_read_with_it(tmp_path: Path, form: str) -> None:
    path = dated(tmp_path / "a.csv", form)
    with pytest.raises(ValueError, match="no value reads as a date") as refused:
        open_file(path, schema=Schema.of({"columns": {"day": "date"}}))
    assert f'format = "{form}"' in str(refused.value)
    stream = open_file(path, schema=Schema.of({"columns": {"day": {"kind": "date", "format": form}}}))
    assert numbers(stream) == ISO
    (hint,) = (one for one in odd(open_file(path)) if "'day'" in one and "--drop" not in one)
    assert "looks like dates, each of which is read as a category of its own" in hint and f'format = "{form}"' in hint
    assert not any(day.isoformat()[:4] in hint for day in DAYS), "no value is quoted"


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%y", "%Y%m%d", "%b %d, %Y"])
def test_a_drafted_schema_knows_the_form_of_dates(tmp_path: Path, form: str) -> None:
    path = dated(tmp_path / "a.csv", form)
    drafted, comments = draft(path)
    (tmp_path / "s.toml").write_text(drafted.to_toml(comments))
    assert numbers(open_file(path, schema=read_schema(tmp_path / "s.toml"))) == ISO


def test_a_draft_says_of_separators_of_thousands_and_of_a_column_that_never_changes_what_they_are(
    tmp_path: Path,
) -> None:
    lines = [f'"{i * 37 % 5000:,}.50",SAP,{i},{"ab"[i % 2]}' for i in range(40)]
    drafted, comments = draft(written(tmp_path / "a.csv", "amount,source,n,label", *lines))
    many = sum(i * 37 % 5000 >= 1000 for i in range(40))
    assert drafted.columns[0] == Column("amount", "mixed") and drafted.columns[2].kind == "number"
    assert comments == {
        "amount": f"{many} of 40 values are numbers with separators of thousands, and each is read as a category of "
        'its own: write them without separators of thousands, 1234.5, and declare "number"',
        "source": "every row has the same: it says nothing, unless others may come",
    }


def test_days_and_months_that_nothing_tells_apart_are_said_to_be_so(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "day,label", *(f"{1 + i % 9}/{1 + i % 7}/2024,{'ab'[i % 2]}" for i in range(50)))
    assert "no value tells which is the day" in draft(path)[1]["day"]
    (hint,) = odd(open_file(path))
    assert 'format = "%d/%m/%Y", or format = "%m/%d/%Y"' in hint


def test_dates_in_order_are_told_apart_by_the_whole_file_and_are_no_ids(tmp_path: Path) -> None:
    days = [
        (date(2024, 1, 1) + timedelta(days=i // 12)).strftime("%m/%d/%Y") + f" {2 * i % 24:02}:{i % 60:02}"
        for i in range(3000)
    ]
    lines = [f"{day},{'ab'[i % 2]}" for i, day in enumerate(days)]
    (hint,) = odd(open_file(written(tmp_path / "a.csv", "day,label", *lines)))
    assert 'format = "%m/%d/%Y %H:%M" }' in hint and "an id" not in hint


def test_rows_are_ordered_by_dates_in_their_declared_form(tmp_path: Path) -> None:
    path = dated(tmp_path / "a.csv", "%d/%m/%Y")
    schema = Schema.of({"columns": {"day": {"kind": "date", "format": "%d/%m/%Y"}}})
    assert numbers(open_file(path, schema=schema, order=["day"])) == sorted(ISO)


@pytest.mark.parametrize("wrong", [{"kind": "date", "format": "dd/mm"}, {"kind": "number", "format": "%d/%m/%Y"}])
def test_a_wrong_format_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="format"):
        Schema.of({"columns": {"day": wrong}})


def test_one_value_that_is_no_number_is_said_and_a_strict_run_refuses_it(tmp_path: Path) -> None:
    schema = Schema.of({"columns": {"paid": "number"}})
    lines = [f"{'unknown' if i == 50 else i},{'ab'[i % 2]}" for i in range(100)]
    stream = open_file(written(tmp_path / "a.csv", "paid,label", *lines), schema=schema)
    (hint,) = odd(stream)
    assert hint.startswith("1 of 100 values looked at in column 'paid' do not read as a number and count as missing")
    plan = Plan.tight(8.0, 1e-4, 100)
    with pytest.raises(ValueError, match=r"a\.csv: 1 of 100 values .* or leave out --strict"):
        run(stream, None, plan, Settings(stream.name, rounds=100, strict=True, twin=False))


@pytest.mark.parametrize("kind", ["number", "log"])
def test_a_declared_number_that_is_never_one_is_refused_and_one_that_sometimes_is_not_is_said(
    tmp_path: Path, kind: str
) -> None:
    schema = Schema.of({"columns": {"paid": kind}})
    lines = [f'"{1 + i % 9},{100 + i}.50",{"ab"[i % 2]}' for i in range(100)]
    with pytest.raises(ValueError, match="no value reads as a number: write them without separators"):
        open_file(written(tmp_path / "a.csv", "paid,label", *lines), schema=schema)
    lines[20:] = [f"{i},{'ab'[i % 2]}" for i in range(80)]
    (hint,) = odd(open_file(written(tmp_path / "a.csv", "paid,label", *lines), schema=schema))
    assert hint.startswith("20 of 100 values looked at in column 'paid' do not read as a number and count as missing")
    (other,) = odd(open_file(written(tmp_path / "b.csv", "paid,label", *lines)))
    assert other.startswith("20 of 100 values looked at in column 'paid' look like numbers, each of which is read as a")


@pytest.mark.parametrize(("kind", "other"), [("number", "2024-02-29"), ("log", "2024-02-29"), ("date", "45000")])
def test_a_date_among_numbers_and_a_number_among_dates_is_missing_as_it_is_said_to_be(kind: str, other: str) -> None:
    layout = Layout((Column("a", kind), Column("b", "category")))
    assert layout.x([other, "z"]) == {"b": "z"} and layout.plain([other, "z"]) == {"a": None, "b": "z"}


def test_letters_of_another_encoding_are_said_where_the_first_line_has_none(tmp_path: Path) -> None:
    lines = [f"{('Köln', 'Ulm')[i % 2]},{'ab'[i % 2]}" for i in range(50)]
    for encoding, said in (("latin-1", True), ("utf-8", False), ("utf-8-sig", False), ("utf-16", False)):
        stream = open_file(written(tmp_path / "a.csv", "city,label", *lines, encoding=encoding))
        assert any("not written in UTF-8" in hint for hint in stream.hints) is said, encoding
        assert stream.names == ("city",) and stream.labels == ("a", "b")
    named = open_file(written(tmp_path / "a.csv", "größe,label", *lines, encoding="latin-1"))
    assert odd(named) == () and named.names == ("größe",)
    assert {row.x["größe="] for row in named.rows() if isinstance(row, Row)} == {"Köln", "Ulm"}


def test_empty_lines_and_quoted_newlines_are_nobodys_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "note,label", "", '"two', 'lines, one row",a', "", "x,b", "", "")
    stream = open_file(path)
    assert stream.length == 2 and [row.y for row in stream.rows()] == ["a", "b"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["a,b,c"], "has no rows after the line"),
        (["sep=;", "a;b", "1;x", "2;y"], "begins with sep="),
        (["# exported", "a,b", "1,x"], "nothing may stand before the line that names them"),
        (["a,b,c", *["1,2"] * 30, "1,2,x"], "30 of 31 rows of .* have more or fewer fields"),
        (["a,c", '"open,x', *["1,y"] * 30], "a quote is left open"),
        (["a,price", *[f"1,{i}.5" for i in range(300)]], "hardly any label comes twice: .* a few ranges"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_what_to_do(tmp_path: Path, lines: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_file(written(tmp_path / "a.csv", *lines))


def test_rows_that_do_not_fit_and_labels_that_look_like_numbers_are_said(tmp_path: Path) -> None:
    ragged = [f"{i},x,{'ab'[i % 2]}" + ",more" * (i % 10 == 0) for i in range(200)]
    (hint,) = odd(open_file(written(tmp_path / "a.csv", "n,k,label", *ragged)))
    assert hint.startswith("20 of 200 rows have more or fewer fields than the first line and are unreadable")
    prices = [f"{i % 7},{i % 150}" for i in range(3000)]
    (hint,) = odd(open_file(written(tmp_path / "b.csv", "n,price", *prices)))
    assert hint.startswith("150 different labels were found in column 'price': if it is a number, cut it")


# ---------------------------------------------------------------------- labels


def labelled(path: Path, *labels: str) -> Path:
    return written(path, "a,label", *(f"{i % 9},{label}" for i, label in enumerate(labels)))


def test_a_misspelt_label_is_said_by_name_before_the_run_and_first_in_the_verdict(tmp_path: Path) -> None:
    labels = ["fraud" if i % 150 == 3 else "genuine" for i in range(3000)]
    path = labelled(tmp_path / "a.csv", *labels)
    for given in ({"labels": ["genuine", "fruad"]}, {"schema": Schema(labels=("genuine", "fruad"))}):
        stream = open_file(path, **given)  # type: ignore[arg-type]
        said = (
            "the label 'fruad' never comes; 'fraud' comes 20 times, not declared: those rows teach nothing and are in "
            "no error; check the labels; 'genuine' is the only declared label that comes: to be right by it says "
            "nothing"
        )
        assert odd(stream) == (said,) and stream.alarm == said
    assert open_file(path, labels=["genuine", "fraud"]).alarm == ""
    settings = Settings(str(path), labels=("genuine", "fruad"), twin=False)
    outcome = run(stream, None, Plan.tight(1.0, 1e-6, 3000), settings)
    assert worth(outcome).startswith(f"T{said[1:]}.") and said in notes_of(outcome)
    assert numbers_of(outcome)["operator_only"]["verdict"] == worth(outcome)
    assert said not in str(numbers_of(outcome)["public"])


def test_a_few_labels_that_are_not_declared_are_said_and_many_are_alarming(tmp_path: Path) -> None:
    few = open_file(labelled(tmp_path / "a.csv", *["a", "b"] * 500, "", "c"), labels=["a", "b"])
    assert odd(few)[0].startswith("'c' comes 1 time, not declared") and few.alarm == ""
    many = open_file(labelled(tmp_path / "b.csv", *["a", "b"] * 500, *"c" * 20), labels=["a", "b"])
    assert many.alarm == odd(many)[0] != ""
    rare = open_file(labelled(tmp_path / "c.csv", *["a", "b"] * 50), labels=["a", "b", "other"])
    assert odd(rare) == () and rare.alarm == "", "a label that may come, and has not"
    alone = open_file(labelled(tmp_path / "d.csv", *"a" * 50), labels=["a", "b"])
    assert alone.alarm == "'a' is the only declared label that comes: to be right by it says nothing"
