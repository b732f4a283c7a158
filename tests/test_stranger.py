"""What somebody meets who runs Confide on a file of their own for the first time; only the command line is used."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from confide import POP, Monitor, Plan
from confide.cli.main import main as entry
from confide.data.files import open_file
from confide.learners import LogisticRegression
from confide.runs import runner

ROWS, SILENT = 3000, 2000
SMALL = (
    "-e",
    "8",
    "-d",
    "1e-4",
    "--copies",
    "120",
    "--unsure",
    "100",
    "--silent",
    str(SILENT),
    "--no-twin",
    "--no-guide",
    "--beta",
    "1e-6",
)
"""A small run with copies alone."""

Main = Callable[..., tuple[int, str, str]]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Main:
    """`confide …` in an empty folder: (exit code, standard output without frames, standard error)."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "400")):
        monkeypatch.setenv(name, value)

    monkeypatch.setattr("confide.runs.page._pictures", lambda outcome: [])  # slow, and tested elsewhere

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["confide", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            entry()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), " ".join(out.replace("│", " ").split()), err  # whatever the width

    return run


def table(rows: int = ROWS, separator: str = ",", people: int = 40) -> list[str]:
    """A header and rows that any copy learns: the label says whether n is above 4."""
    body = [separator.join(("n", "m", "who", "y"))]
    return body + [separator.join((str(i % 10), "1.5", f"p{i % people}", "NY"[i % 10 > 4])) for i in range(rows)]


def write(name: str, lines: list[str], encoding: str = "utf-8") -> None:
    Path(name).write_bytes(("\n".join(lines) + "\n").encode(encoding))


def refusal(result: tuple[int, str, str]) -> str:
    """A refusal is exit code 2 and one sentence on standard error, never a traceback."""
    code, out, err = result
    assert code == 2 and err.startswith("confide: ") and err.strip().count("\n") == 0, (code, out, err)
    return err.strip()


def numbers() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path("confide-report.json").read_text())
    return read


# --- one person's row decides nothing for others


@pytest.mark.parametrize("people", [True, False], ids=["people", "rounds"])
def test_a_row_that_cannot_be_read_takes_its_round(main: Main, people: bool) -> None:
    """The same file with one person's rows spoilt, before and after silence ends: all that is public stays the same."""
    units = ("--unit", "who") if people else ()
    seen = []
    for spoils in ({}, {8: "1e99,1.5,p7,Y", 48: "5,1.5,p7,Y,more", 1008: "5,1.5,p7,Q", 2808: "5,1.5,p7"}):
        rows = table()
        for line, spoil in spoils.items():
            rows[line] = spoil
        write("a.csv", rows)
        code, _, _ = main("run", "a.csv", "--labels", "N,Y", *SMALL, *units, "--monitor", "1", "--seed", "3")
        public, private = numbers()["public"], numbers()["operator_only"]
        assert code == 0 and private["bad"] == len(spoils)
        seen.append({**public, "monitor": {**public["monitor"], "mistakes": None}})
    assert seen[0] == seen[1] and seen[0]["rounds"] == ROWS


def test_a_row_without_a_unit_is_nobodys_and_takes_no_round(main: Main) -> None:
    rows = table()
    rows[30] = rows[2500] = "5,1.5,,Y"
    write("a.csv", rows)
    code, out, _ = main("run", "a.csv", *SMALL, "--unit", "who")
    public, _ = out.split("operator only, outside")
    assert code == 0 and numbers()["public"]["rounds"] == ROWS - 2 == numbers()["operator_only"]["rounds"]
    assert numbers()["public"]["rows_of_nobody"] == 2 and "2 rows name no unit" in public
    assert main("run", "a.csv", *SMALL)[0] == 0
    assert numbers()["public"]["rounds"] == ROWS and numbers()["public"]["rows_of_nobody"] == 0


def test_of_a_person_only_so_many_labels_teach_and_the_operator_is_told_how_many_did(main: Main) -> None:
    """40 people, 3000 labels: 40 of them teach. And no count of first answers stands beside a number of rounds."""
    write("a.csv", table())
    code, out, _ = main("run", "a.csv", "-e", "8", "-d", "1e-4", "--unit", "who", "--no-twin", "--monitor", "1")
    public, private = out.split("operator only, outside")
    assert code == 0 and "learned from 40 of 3,000 labels: of each person at most 1" in private
    assert numbers()["operator_only"]["guide_labels"] == 40 and "learned from" not in public
    assert "mistakes among the first answer to each person" in public and "rounds" not in numbers()["public"]["monitor"]
    assert "if every round is another person's" in numbers()["public"]["explained"]
    assert main("run", "a.csv", "-e", "8", "-d", "1e-4", "--no-twin")[0] == 0
    assert numbers()["operator_only"]["guide_labels"] is None


@pytest.mark.parametrize("declared", [False, True])
def test_ranges_that_nobody_declared_are_told_with_their_price(main: Main, declared: bool) -> None:
    """A date alone is without its range in the first tenth of the rounds; alike labels are told to the file's owner."""
    days = [f"{date(2024, 1, 1) + timedelta(days=i % 300)},{('Y', 'y')[i % 2]}" for i in range(6000)]
    write("a.csv", ["day,label", *days])
    ends = ", low = 2024-01-01, high = 2024-12-31" if declared else ""
    write("s.toml", ["[columns]", f'day = {{ kind = "date"{ends} }}'])
    code, out, _ = main("run", "a.csv", "--schema", "s.toml", "-e", "4", "-d", "1e-6", "--no-twin")
    answered = numbers()["operator_only"]["sources"]["fallback"][0] / 6000
    assert code == 0 and answered < 0.02
    told = re.search(r"no range is declared of 'day', so that .* answers the first ([\d.]+)% of the rounds", out)
    assert (told is None) is declared
    assert told is None or 0.03 < float(told[1]) / 100 < 0.15
    assert "the labels 'Y' and 'y' differ by case only" in out
    assert "differ by case" not in json.dumps(numbers()["public"])


def test_what_the_columns_look_like_is_said_to_the_owner_before_the_run(main: Main) -> None:
    """Nothing is decided by it: each value is read by its own form."""
    days = [date(2024, 1, 1) + timedelta(days=i % 300) for i in range(3000)]
    rows = [f"{day},{i % 7},red,New team wins,,{'NY'[i % 2]}" for i, day in enumerate(days)]
    write("a.csv", ["day,size,colour,headline,nobody,label", *rows])
    code, out, _ = main("run", "a.csv", "-e", "8", "-d", "1e-4", "--no-twin")
    said = "numbers in 'size'; dates in 'day'; categories in 'colour'; words in 'headline'; nothing in 'nobody'"
    assert code == 0 and said in " ".join(out.split())
    assert "headline" not in json.dumps(numbers()["public"]).replace("names of the columns", "")
    write("s.toml", ["[columns]", *(f'{name} = "any"' for name in ("day", "size", "colour", "headline", "nobody"))])
    assert said not in " ".join(main("run", "a.csv", "--schema", "s.toml", "-e", "8", "--no-twin")[1].split())


def test_rows_that_cannot_be_read_are_wrong_and_rows_without_a_label_are_in_no_error(main: Main) -> None:
    rows = table()
    for line in range(2502, 3001):
        rows[line] = "1e99,1.5,p7,Y" if line % 2 else "5,1.5,p7,Q"
    write("a.csv", rows)
    arguments = [word for word in SMALL if word != "--no-twin"]
    code, out, _ = main("run", "a.csv", "--labels", "N,Y", *arguments)
    private = numbers()["operator_only"]
    assert code == 0 and "of 2,750 rounds" in out and "250 more have no usable label" in out
    assert (private["refused"], private["unlabelled"], private["bad"], private["live"]) == (249, 250, 499, 1000)
    assert private["unknown"] == private["live_unknown"] == 250 and private["error"] == private["wrong"] / 2750
    assert private["wrong"] >= private["live_wrong"] >= 249 and 2000 > private["twin_wrong"] >= 249
    assert private["wrong"] == 2750 - private["confusion"][0][0] - private["confusion"][1][1]
    assert private["guide_wrong"] >= 249 and private["live_error"] == private["live_wrong"] / 750
    assert private["late_error"] <= 1 and "250 rows had no usable label" in Path("confide-report.html").read_text()
    assert sum(map(sum, private["confusion"])) == 2750, "rounds without a label have no row in the table"
    assert sum(n for n, *_ in private["sources"].values()) == 3000 - 249


# --- files as people have them


@pytest.mark.parametrize(
    ("name", "separator", "encoding"),
    [
        ("a.csv", ";", "utf-8"),
        ("a.csv", "\t", "utf-8"),
        ("a.csv", "|", "utf-8"),
        ("a.csv", ";", "utf-8-sig"),
        ("a.csv", "\t", "utf-16"),
        ("a.csv", ";", "cp1252"),
        ("a.tsv", "\t", "utf-8"),
    ],
)
def test_the_first_line_says_how_a_file_is_written(main: Main, name: str, separator: str, encoding: str) -> None:
    rows = table(separator=separator)
    rows[0] = rows[0].replace("m", "größe, m" if encoding != "utf-8" else "m, cm")
    write(name, rows, encoding)
    code, out, err = main("run", name, *SMALL)
    assert code == 0, (out, err)
    assert numbers()["operator_only"]["bad"] == 0 and numbers()["operator_only"]["live_error"] < 0.2


def test_a_decimal_comma_is_read_where_semicolons_separate(main: Main) -> None:
    rows = ["a;y"] + [f"{i % 10},25;{'NY'[i % 10 > 4]}" for i in range(ROWS)]
    write("a.csv", rows)
    code, out, _ = main("run", "a.csv", *SMALL, "--learner", "trees(memory=64)")
    assert code == 0 and "3,14" in out, "what was assumed is said"
    assert numbers()["operator_only"]["live_error"] < 0.1


def test_files_that_are_no_tables_each_have_their_sentence(main: Main) -> None:
    files = {
        "nothing.csv": (b"", "is empty"),
        "blank.csv": (b"\n\na,b\n", "empty line"),
        "picture.csv": (b"\x89PNG\r\n\x1a\n\x00\x00", "not a text file"),
        "sheet.csv": (b"PK\x03\x04\x14\x00\x06\x00", "not a text file"),
        "one.csv": (b"a\n1\n2\n", "one column"),
        "twice.csv": (b"a,b,a\n1,2,3\n", "two columns called 'a'"),
        "header.csv": (b"a,b\n", "no rows"),
        "torn.csv": (b"a,b\n" + b"1\n" * 50, "50 of 50 rows"),
    }
    said = set()
    for name, (content, words) in files.items():
        Path(name).write_bytes(content)
        sentence = refusal(main("run", name, "--labels", "1,2", *SMALL))
        assert words in sentence and name in sentence
        said.add(sentence.replace(name, ""))
    assert len(said) == len(files) - 1
    Path("notes.txt").write_text("a,b\n1,2\n")
    assert ".csv" in refusal(main("run", "notes.txt", *SMALL))


def test_a_first_line_that_may_be_somebodys_row_is_not_shown(main: Main) -> None:
    write("a.csv", ["51,Rome,ann,yes", "17,Oslo,bob,no"])
    assert "Rome" not in refusal(main("run", "a.csv", "--label", "outcome", *SMALL))


def test_labels_that_none_of_the_first_rows_has_are_an_error_at_once(main: Main) -> None:
    write("ok.csv", [*table()[:1], *(row.replace("N", "no").replace("Y", "yes") for row in table()[1:])])
    sentence = refusal(main("run", "ok.csv", "--labels", "Yes,No", *SMALL))
    assert "'y'" in sentence and "Yes, No" in sentence and "first 100 rows" in sentence
    assert "yes" not in sentence.replace("Yes", ""), "what the file holds is not shown"
    assert not Path("confide-report.html").exists()


QUICK = ("-e", "8", "-d", "1e-4")
"""A promise that a guide keeps up with in a few thousand rows."""


def bookings(rows: int = 4000) -> list[str]:
    """Semicolons, decimal commas, ISO dates; whether somebody stays is decided by room and weekday."""
    lines = ["Ankunft;Zimmer;Preis;bleibt"]
    for i in range(rows):
        day = date(2023, 1, 1) + timedelta(days=i * 37 % 700)
        room = ("Einzel", "Doppel", "Suite")[i % 3]
        stays = (room == "Suite") ^ (day.weekday() == 6)
        lines.append(f"{day};{room};{50 + i * 7 % 90},50;{'ja' if stays else 'nein'}")
    return lines


def reviews(rows: int = 4000) -> list[str]:
    """One column of texts; a word decides."""
    words = ("film", "about", "the", "old", "house", "near", "its", "river", "and", "two", "friends", "who", "talk")
    lines = ["text\tlabel"]
    for i in range(rows):
        chosen = [words[(i * 7 + 5 * j) % len(words)] for j in range(5 + i % 4)]
        chosen.insert(i % 5, ("dull", "moving")[i % 2])
        lines.append(f"{' '.join(chosen)}\t{i % 2}")
    return lines


def patients(rows: int = 4000) -> list[str]:
    """People with ids that are whole numbers, one to many rows each."""
    lines = ["PatientId,Age,Reason,NoShow"]
    for i in range(rows):
        lines.append(f"{29872499820000 + i * i % 3001},{i % 90},{'AB'[i % 7 > 3]},{'Yes' if i % 7 > 3 else 'No'}")
    return lines


def heroes(rows: int = 4000) -> list[str]:
    """Names that read as bad numbers, and values that are missing in every way."""
    lines = ["name,power,home,wins"]
    for i in range(rows):
        name = ("infinity", "nan", "NA", "inf", "Blaze")[i % 5]
        lines.append(f"{name},{('', '?', 'null', i % 50)[i % 4]},{('NA', 'US', '')[i % 3]},{int(i % 5 < 2)}")
    return lines


@pytest.mark.parametrize(
    ("name", "lines", "encoding", "options", "worst"),
    [
        ("bookings.csv", bookings, "utf-8-sig", (), 0.2),
        ("reviews.tsv", reviews, "utf-8", (), 0.2),
        ("patients.csv", patients, "utf-8", ("--unit", "PatientId"), 0.2),
        ("heroes.csv", heroes, "utf-8", (), 0.2),
    ],
)
def test_a_strangers_file_runs_as_it_is(
    main: Main, name: str, lines: Callable[[], list[str]], encoding: str, options: tuple[str, ...], worst: float
) -> None:
    """Nothing is declared, every row is answered, nothing is refused, and something was learned."""
    write(name, lines(), encoding)
    code, out, err = main("run", name, *QUICK, *options, "--seed", "1")
    assert code == 0, (out, err)
    private, public = numbers()["operator_only"], numbers()["public"]
    assert public["rounds"] == 4000 and private["bad"] == 0 and public["state"] == "finished"
    assert sum(n for n, *_ in private["sources"].values()) == 4000
    assert private["late_error"] < worst and private["twin_error"] < worst
    assert any("4,000" in line for line in public["treated_as_public"])
    assert "without privacy" in Path("confide-report.html").read_text()


def test_a_schema_is_drafted_reviewed_and_used(main: Main) -> None:
    write("reviews.tsv", reviews())
    code, out, _ = main("schema", "reviews.tsv", "-o", "s.toml")
    assert code == 0 and "review it" in out and '"text" = "text"' in Path("s.toml").read_text()
    assert "check every line" in Path("s.toml").read_text()
    assert "is there already" in refusal(main("schema", "reviews.tsv", "-o", "s.toml"))
    code, out, _ = main("run", "reviews.tsv", *QUICK, "--schema", "s.toml", "--no-twin", "--seed", "1")
    assert code == 0 and "no column was declared" not in out and "labels were read" not in out
    assert numbers()["operator_only"]["late_error"] < 0.1 and "--schema s.toml" in numbers()["command"]
    code, out, _ = main("schema", "reviews.tsv")
    assert code == 0 and "[columns]" in out


def test_a_public_sample_declares_kinds_labels_and_ranges(main: Main) -> None:
    write("public.csv", bookings(300), "utf-8-sig")
    write("a.csv", bookings(), "utf-8-sig")
    code, out, _ = main("run", "a.csv", *QUICK, "--public", "public.csv", "--no-twin", "--seed", "1")
    assert code == 0 and "labels were read" not in out and "no column was declared" not in out
    assert numbers()["operator_only"]["late_error"] < 0.2
    assert not any("labels" in line for line in numbers()["public"]["treated_as_public"])
    write("other.csv", ["x;bleibt", "1;ja", "2;nein"])
    assert "says nothing of column 'Ankunft'" in refusal(main("run", "a.csv", "--public", "other.csv"))
    assert "give one of them" in refusal(main("run", "a.csv", "--public", "public.csv", "--schema", "s.toml"))


def test_columns_are_dropped_and_rows_sorted_and_it_is_said(main: Main) -> None:
    write("a.csv", bookings(), "utf-8-sig")
    words = ("--drop", "Preis", "--order", "Ankunft,Zimmer", "--no-twin", "--seed", "1")
    code, out, _ = main("run", "a.csv", *QUICK, *words)
    assert code == 0 and "sorted" in out and "sorted" in Path("confide-report.html").read_text()
    assert "--drop Preis --order Ankunft,Zimmer" in numbers()["command"]
    assert "no column 'Price'" in refusal(main("run", "a.csv", "--drop", "Price"))


@pytest.mark.parametrize("people", [True, False], ids=["people", "rounds"])
def test_what_one_person_sends_changes_nothing_public_with_a_guide(main: Main, people: bool) -> None:
    """The same file with one person's rows spoilt: rounds, plan, all that is public stays the same.

    But for what the guide has learned from, which follows from released sums: noise hides there what one person sent.
    """
    units = ("--unit", "who") if people else ()
    seen = []
    for spoils in ({}, {8: "x,1e99,p7,Y", 48: "5,1.5,p7,Y,more", 1008: "a text of many words,1.5,p7,Q", 2808: "5,,p7"}):
        rows = table()
        for line, spoil in spoils.items():
            rows[line] = spoil
        write("a.csv", rows)
        code, _, _ = main("run", "a.csv", "--labels", "N,Y", *QUICK, *units, "--no-twin", "--seed", "3")
        assert code == 0 and numbers()["operator_only"]["bad"] == len(spoils)
        seen.append(numbers()["public"])
        assert seen[-1].pop("importance").keys() <= {"n", "n=", "m", "m=", "who", "who="}
    assert seen[0] == seen[1] and seen[0]["rounds"] == ROWS


def test_a_budget_too_small_for_anything_is_said_and_not_run(main: Main) -> None:
    write("a.csv", table(400))
    sentence = refusal(main("run", "a.csv", "-e", "0.1"))
    assert "epsilon" in sentence or "rounds" in sentence
    assert not Path("confide-report.html").exists()


def test_a_learner_that_would_never_answer_is_refused_before_the_run(main: Main) -> None:
    write("a.csv", table())
    sentence = refusal(main("run", "a.csv", *QUICK, "--learner", "logistic", "--no-twin"))
    assert "--learner logistic would never answer" in sentence and "--no-guide" in sentence
    assert not Path("confide-report.html").exists()


# --- what is asked for


@pytest.mark.parametrize("epsilon", ["-1", "0", "nan", "inf"])
@pytest.mark.parametrize("command", ["run", "plan"])
def test_an_epsilon_that_is_none_is_called_epsilon(main: Main, command: str, epsilon: str) -> None:
    sentence = refusal(main(command, "-e", epsilon, "-T", "3000"))
    assert "epsilon" in sentence and "monitor" not in sentence


def test_a_parameter_that_a_learner_does_not_have_is_one_sentence(main: Main) -> None:
    sentence = refusal(main("run", "agrawal", "-T", "3000", "--learner", "trees(foo=1)"))
    assert "'foo'" in sentence and "memory" in sentence


@pytest.mark.parametrize("words", [(), ("-T", "6000")], ids=["the file's rows", "as many asked for"])
def test_one_promise_gives_one_plan(main: Main, words: tuple[str, ...]) -> None:
    write("a.csv", table(6000))
    main("run", "a.csv", "-e", "6", "-d", "1e-5", "--no-twin", *words)
    plan = Plan.tight(6.0, 1e-5, 6000, units="rounds")
    assert numbers()["public"]["plan"] == {name: getattr(plan, name) for name in numbers()["public"]["plan"]}
    assert plan.guide is not None and numbers()["public"]["guide"] == plan.guide.params()
    assert numbers()["public"]["guarantee"]["epsilon"] == plan.guarantee.epsilon


def test_a_plan_file_is_run_and_nothing_contradicts_it(main: Main) -> None:
    write("a.csv", table())
    plan = Plan.tight(8.0, 1e-4, ROWS, copies=130, unsure=90, silent=SILENT, beta=1e-6, guide=None)
    Path("p.json").write_text(plan.to_json())
    assert main("run", "a.csv", "--plan", "p.json", "--no-twin", "--copies", "130", "-e", "8", "--no-guide")[0] == 0
    assert numbers()["public"]["plan"] == {name: getattr(plan, name) for name in numbers()["public"]["plan"]}
    assert "--plan p.json" in numbers()["command"]
    for option, value in (("--copies", "131"), ("-e", "2"), ("-T", "2999"), ("--unit-unsure", "2"), ("--silent", "0")):
        sentence = refusal(main("run", "a.csv", "--plan", "p.json", option, value))
        assert "contradicts p.json" in sentence and "leave it out" in sentence
    forged = json.loads(plan.to_json())
    forged["guarantee"]["epsilon"] *= 0.9
    Path("p.json").write_text(json.dumps(forged))
    assert "do not run this plan" in refusal(main("run", "a.csv", "--plan", "p.json"))
    assert "cannot read nowhere.json" in refusal(main("run", "a.csv", "--plan", "nowhere.json"))


def test_the_saved_settings_are_those_of_the_run(main: Main) -> None:
    write("a.csv", table())
    assert main("run", "a.csv", *SMALL, "--labels", "N,Y", "--delay", "16", "--monitor", "0.5", "--state", "s")[0] == 0
    saved = json.loads(Path("s/run.json").read_text())["settings"]
    assert saved == numbers()["settings"] and saved["version"] == 3
    assert (saved["copies"], saved["labels"], saved["delay"], saved["twin"]) == (120, ["N", "Y"], 16, False)
    _, out, _ = main("status", "s")
    assert numbers()["command"] in out


# --- how it ends


def test_a_run_out_of_budget_ends_with_its_own_code_and_says_what_to_try(main: Main) -> None:
    rows = [f"{i * 7919 % 1000},{(i * 7919 % 1000 > 500) ^ (i * 104729 % 997 < 200)}" for i in range(8000)]
    write("a.csv", ["a,y", *rows])  # a fifth of the labels is noise
    small = ("-e", "8", "-d", "1e-4", "--copies", "150", "--unsure", "20", "--no-twin", "--beta", "1e-6", "--seed", "1")
    code, out, _ = main("run", "a.csv", *small, "--no-guide")
    assert code == 3 and "out of budget" in out
    tried = re.search(r"To try next: (confide run a\.csv .*?--unsure \d+)", out)
    assert tried is not None, out
    page = Path("confide-report.html").read_text()
    assert 'class="halted"' in page and tried[1] in re.sub("<[^>]+>", "", page)
    assert numbers()["operator_only"]["next_command"].startswith(tried[1])
    again = ("--no-guide", "--no-twin", "--beta", "1e-6", "--seed", "2")
    assert main(*tried[1].split()[1:], *again)[0] == 0, "what is advised lasts"
    code, out, _ = main("run", "a.csv", *small)
    assert code == 0 and "out of budget" in out and "the guide answered on" in out, "with a guide nothing stops"
    assert 'class="halted"' in Path("confide-report.html").read_text()
    assert sum(n for n, *_ in numbers()["operator_only"]["sources"].values()) == 8000


def test_where_no_copies_last_the_guide_is_advised(main: Main) -> None:
    write("a.csv", ["a,y"] + [f"{i * 7919 % 1000},{i * 104729 % 997 % 2}" for i in range(ROWS)])
    small = ("-e", "8", "-d", "1e-4", "--copies", "120", "--unsure", "100", "--no-twin", "--beta", "1e-6")
    assert main("run", "a.csv", *small, "--no-guide")[0] == 3
    assert numbers()["operator_only"]["next_command"] == (
        "confide run a.csv --epsilon 8 --delta 0.0001 --beta 1e-06 --no-twin"
    )
    code, out, _ = main("run", "a.csv", *small)
    assert code == 0 and "To try next: confide run a.csv --epsilon 8 --delta 0.0001 --beta 1e-06 --no-twin" in out


def test_a_run_that_halts_by_chance_says_so(main: Main) -> None:
    write("a.csv", table())
    small = (*SMALL[:-1], "0.99", "--seed", "1")
    code, out, _ = main("run", "a.csv", *small)
    assert code == 3 and "halted by chance" in out and "disagreed" not in out
    assert numbers()["operator_only"]["next_command"].endswith("--no-guide --beta 1e-06 --no-twin --seed 1")


def test_a_run_without_a_silent_start_is_told_to_have_one(main: Main) -> None:
    write("a.csv", table())
    promise = ("-e", "8", "-d", "1e-4", "--no-twin", "--beta", "1e-6")
    assert main("run", "a.csv", *promise, "--copies", "150", "--silent", "0", "--no-guide")[0] == 3
    assert (
        numbers()["operator_only"]["next_command"]
        == "confide run a.csv --epsilon 8 --delta 0.0001 --no-guide --beta 1e-06 --no-twin"
    )


def test_a_finished_run_ends_well_and_advises_nothing(main: Main) -> None:
    write("a.csv", table())
    code, out, _ = main("run", "a.csv", *SMALL)
    assert code == 0 and "To try next" not in out and 'class="halted"' not in Path("confide-report.html").read_text()


def test_an_interrupted_run_ends_with_130_and_goes_on(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.csv", table())
    signalled = []
    counted = POP.rounds.fget  # type: ignore[attr-defined]

    def rounds(self: POP) -> int:
        number: int = counted(self)
        if number >= 1000 and not signalled:
            signalled.append(number)
            signal.raise_signal(signal.SIGINT)
        return number

    monkeypatch.setattr(POP, "rounds", property(rounds))
    code, out, _ = main("run", "a.csv", *SMALL)
    assert code == 130 and "interrupted" in out and "--resume" in out
    assert main("run", "--state", "confide-state", "--resume")[0] == 0
    assert numbers()["public"]["rounds"] == ROWS


def test_reports_are_for_their_owner_alone(main: Main) -> None:
    write("a.csv", table())
    Path("confide-report.html").write_text("an old one, which anybody may read, and longer than the new one" * 10_000)
    Path("confide-report.html").chmod(0o644)
    main("run", "a.csv", *SMALL, "--state", "s")
    for name in ("confide-report.html", "confide-report.json", "s/run.json"):
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(Path("s").stat().st_mode) == 0o700
    assert Path("confide-report.html").read_text().endswith("</html>\n")


def test_a_report_that_cannot_be_written_is_refused_before_the_run(main: Main) -> None:
    write("a.csv", table())
    assert "nowhere" in refusal(main("run", "a.csv", *SMALL, "--report", "nowhere/r.html", "--state", "s"))
    assert not Path("s").exists()


MODEL = """
import warnings
from confide.learners import Features

class Model:
    labels = 2
    def __init__(self): self.seen = {}
    def predict(self, x): return self.seen.get(float(x[0]))
    def learn(self, x, y): warnings.warn(f"odd lesson {x[0]}", stacklevel=2); self.seen[float(x[0])] = y

declared = Features(numeric=["n"]) | Model()
"""


def test_a_learner_with_declared_features_resumes_and_warns_once(main: Main) -> None:
    write("a.csv", table(400))
    small = (*SMALL[:4], "--copies", "100", "--unsure", "50", "--silent", "350", "--no-twin", "--no-guide")
    small = (*small, "--beta", "1e-6")
    Path("mine.py").write_text(MODEL)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = main("run", "a.csv", *small, "--learner", "mine:declared", "--state", "s")
    assert code == 0 and (out + err).count("UserWarning") <= 1
    assert "odd lesson" not in out + err, "its words may quote private data"
    code, out, err = main("run", "--state", "s", "--resume", "--trusted")
    assert code == 0 and "400 of 400" in out, err


# --- status


def test_status_says_what_the_pop_says(main: Main) -> None:
    plan = Plan.tight(60.0, 0.01, 300, copies=40, unsure=10, silent=200, guide=None)
    pop = POP(LogisticRegression(), plan, labels=[0, 1], features=1, monitor=Monitor(5.0), after_halt="raise")
    pop.save("s")
    for i in range(3):
        pop.predict([float(i)])
    code, out, _ = main("status", "s")
    assert code == 0 and str(pop.guarantee) in out and f"({pop.guarantee.epsilon:.4g}," in out
    taken = re.search(r"rounds ([\d,]+) of 300", out)
    assert taken is not None and 3 <= int(taken[1]) <= 300
    pop.close()


# --- around the commands


def test_the_program_says_its_version_and_can_be_completed(main: Main) -> None:
    assert re.fullmatch(r"confide \d+\.\d+\S*", main("--version")[1])
    assert "--install-completion" in main("--help")[1]
    done = subprocess.run([sys.executable, "-m", "confide", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("confide ")


@pytest.mark.parametrize(("typed", "offered"), [("ver", {"verify"}), ("s", {"schema", "serve", "status", "successor"})])
def test_the_shell_completes_commands(typed: str, offered: set[str]) -> None:
    asked = {"_CONFIDE_COMPLETE": "complete_bash", "COMP_WORDS": f"confide {typed}", "COMP_CWORD": "1"}
    program = "import sys; sys.argv[0] = 'confide'; from confide.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={**os.environ, **asked}
    )
    assert set(done.stdout.split()) == offered


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from confide.cli.main import main
for sys.argv in {commands!r}:
    try:
        main()
    except SystemExit as left:
        print("exit", left.code or 0, file=sys.stderr)
"""


def without(packages: set[str], *commands: str) -> list[str]:
    """What commands write to standard error where these packages are missing: what they say, and their exit codes."""
    given = [["confide", *command.split()] for command in commands]
    code = BLOCKED.format(packages=packages, commands=given)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_without_its_packages_the_program_says_what_to_install() -> None:
    said, code = without({"typer", "rich"}, "run")
    assert code == "exit 2" and "confide[cli]" in said


def test_a_run_needs_neither_pyarrow_nor_matplotlib_nor_river(main: Main) -> None:
    write("a.csv", table())
    Path("a.parquet").write_bytes(b"")
    lean = {"pyarrow", "matplotlib", "river", "sklearn"}
    code, *said = without(lean, f"run a.csv {' '.join(SMALL)}", "run a.parquet", "run sea -T 3000")
    assert code == "exit 0" and "confide[report]" in Path("confide-report.html").read_text()
    assert "confide[parquet]" in said[0] and "confide[river]" in said[2] and said[1::2] == ["exit 2"] * 2


# --- what is declared is never dropped; what is absurd is said


def test_a_schemas_unit_is_whom_the_run_protects(main: Main) -> None:
    """It said "for each round" where the schema declares whose row each is."""
    write("a.csv", table())
    write("s.toml", ['label = "y"', 'unit = "who"'])
    code, _, _ = main("run", "a.csv", "--schema", "s.toml", "-e", "8", "-d", "1e-4", "--no-twin")
    declared = numbers()
    assert code == 0 and "one person, who" in json.dumps(declared["public"]) and "--unit who" in declared["command"]
    assert main("run", "a.csv", "--label", "y", "--unit", "who", "-e", "8", "-d", "1e-4", "--no-twin")[0] == 0
    assert "one person, who" in json.dumps(numbers()["public"])


def test_a_stream_of_people_is_not_run_for_rounds(tmp_path: Path) -> None:
    """Whoever calls the runner with a stream whose unit is declared must say so too."""
    path = tmp_path / "a.csv"
    path.write_text("\n".join(table()) + "\n")
    stream = open_file(path, label="y", unit="who")
    with pytest.raises(ValueError, match="names people, and this run protects rounds"):
        runner.run(stream, None, Plan.tight(8.0, 1e-4, ROWS))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--learner", "oracle"), "no learner is called 'oracle'"),
        (("--learner", "trees(colour=3)"), "--learner"),
        (("--fallback", "maybe"), "--fallback 'maybe' must be coin"),
        (("--stream-seed", "3"), "--stream-seed is for generated streams"),
        (("-d", "0.5"), "delta=0.5 promises nothing"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_said(main: Main, options: tuple[str, ...], words: str) -> None:
    write("a.csv", table())
    code, out, err = main("run", "a.csv", "-e", "8", *options)
    assert code == 2 and words in err and not out.strip() and not Path("confide-report.html").exists()


def test_no_range_is_asked_of_a_text(main: Main) -> None:
    notes = ["so far so good it is", "never again if you ask me", "well it was fine in the end", "not for me at all"]
    write("a.csv", ["n,note,y", *(f"{i % 97},{notes[i % 4]},{'NY'[i % 2]}" for i in range(6000))])
    _, out, _ = main("run", "a.csv", "-e", "4", "--no-twin")
    assert "no range is declared of 'n', so that" in out


def test_a_plan_that_the_file_cannot_fill_is_told(main: Main) -> None:
    write("a.csv", table(600))
    _, out, _ = main("run", "a.csv", "-e", "8", "-T", "10000000", "--no-twin")
    told = "the plan is for 10,000,000 rounds and the stream has 600 rows: no copy will answer"
    assert told in out and "--rounds 600" in out


@pytest.mark.parametrize(("people", "told"), [(3, True), (3000, False)])
def test_people_who_are_too_few_to_learn_from_are_told(main: Main, people: int, told: bool) -> None:
    write("a.csv", table(people=people))
    _, out, _ = main("run", "a.csv", "-e", "8", "-d", "1e-4", "--unit", "who", "--no-twin")
    assert ("column 'who' names 3 people, of whom 3 labels teach the guide at most" in out) is told
    assert "names 3 people" not in json.dumps(numbers()["public"])
