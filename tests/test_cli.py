"""The command line: what it shows, what it writes, and how it refuses."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from confide.cli import terminal
from confide.cli.app import app
from confide.cli.main import main as entry
from confide.planning.plan import Plan
from tests.forging import filed, flat

EASY = ["-e", "8", "-d", "1e-4", "-T", "30000"]
"""A promise that is planned quickly."""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide terminal without colours."""
    for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "200"), ("TERMINAL_WIDTH", "200")):
        monkeypatch.setenv(name, value)


def shown(*arguments: str) -> str:
    """What a command prints when all is well."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


Main = Callable[..., tuple[int, str, str]]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Main:
    """`confide …` as a terminal runs it: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["confide", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            entry()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return run


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    path.write_text(Plan.tight(8.0, 1e-4, 30_000, guide=None).to_json())
    return path


# --- plan


@pytest.mark.parametrize("guide", ["auto", None])
def test_plan_prints_the_promise_and_what_it_costs(guide: Any) -> None:
    text = shown("plan", *EASY, *(() if guide else ("--no-guide",)))
    plan = Plan.tight(8.0, 1e-4, 30_000, guide=guide)
    assert str(plan) in text
    assert plan.guarantee.sentence in " ".join(text.split())


def test_plan_has_good_defaults() -> None:
    text = shown("plan")
    assert "1,000,000" in text and "(1, 1e-06)-challenge-DP" in text


def test_plan_takes_every_option() -> None:
    text = shown(
        *("plan", *EASY, "--copies", "700", "--polls", "101", "--unsure", "200", "--silent", "5000"),
        *("--unit-unsure", "2", "--unit-labels", "3", "--labels", "7", "--beta", "0.05"),
    )
    asked = Plan.tight(
        8.0,
        1e-4,
        30_000,
        copies=700,
        polls=101,
        unsure=200,
        silent=5000,
        unit_unsure=2,
        labels=7,
        beta=0.05,
        unit_labels=3,
    )
    assert str(asked) in text


def test_plan_with_a_mistake_bound_prints_its_certificate() -> None:
    text = shown("plan", "-e", "8", "-d", "1e-4", "-T", "100000", "--mistakes", "1", "--labels", "3", "--beta", "0.1")
    plan = Plan.certified(8.0, 1e-4, 100_000, 1, labels=3, beta=0.1)
    assert str(plan) in text and "with probability 0.9" in text


def test_plan_with_the_papers_constants() -> None:
    text = shown("plan", "-e", "30", "-d", "1e-3", "-T", "5000", "--paper", "--copies", "400", "--unsure", "100")
    assert "Plan.paper" in text and "400 copies asked in a round (all)" in text


def test_a_plan_is_written_and_verified(tmp_path: Path, main: Main) -> None:
    path = tmp_path / "plan.json"
    text = shown("plan", *EASY, "--no-guide", "--json", str(path))
    assert str(path) in text and "confide verify" in text
    plan = Plan.from_json(path)
    assert plan == Plan.tight(8.0, 1e-4, 30_000, guide=None)
    code, out, err = main("verify", str(path))
    assert code == 0 and not err
    assert "certified" in out and f"{plan.guarantee.epsilon:.6g}" in out and f"{plan.copies:,} copies" in out


def test_of_a_guide_alone_delta_is_computed_again(tmp_path: Path, main: Main) -> None:
    path = tmp_path / "plan.json"
    plan = Plan.tight(1.0, 1e-6, 20_000, guide=1.0)
    assert plan.guide is not None
    path.write_text(plan.to_json())
    _, out, _ = main("verify", str(path))
    assert f"exactly, δ = {plan.guide.delta(plan.guarantee.epsilon):.6g} at the ε claimed" in " ".join(out.split())
    body = flat(plan)
    body["guide"]["sigma2"] -= body["guide"]["sigma2"] // 10**6
    path.write_text(filed(body))
    assert "do not run this plan" in one_sentence(*main("verify", str(path)))


def test_certified_and_paper_plans_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for options in (("-e", "8", "--mistakes", "1"), ("-e", "30", "--paper", "--copies", "500", "--unsure", "100")):
        shown("plan", "-d", "1e-4", "-T", "100000", *options, "--json", str(path))
        assert "certified" in shown("verify", str(path))


# --- frontier


def test_the_frontier_is_a_table_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.cli.plan.UNSURE", (30, 300))
    path = tmp_path / "frontier.png"
    text = shown("plan", *EASY, "--frontier", "--unsure", "77", "--plot", str(path))
    for heading in ("unsure tolerated", "copies", "labels per copy", "lead needed"):
        assert heading in text
    for number in ("30", "77", "300"):
        assert re.search(rf"\b{number}\b", text)
    assert "1,000" not in text, "no other numbers than these were planned for"
    assert str(path) in " ".join(text.split())
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000


# --- refusals


def one_sentence(code: int, out: str, err: str) -> str:
    """A refusal is exit code 2 and one sentence on standard error, never a traceback."""
    assert code == 2 and not out.strip(), (code, out, err)
    assert "Traceback" not in err and err.startswith("confide: ")
    said = err.strip()
    assert "\n" not in said and len(said) < 500
    return said


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["plan", "-e", "0"], "epsilon"),
        (["plan", "-e", "nan"], "epsilon"),
        (["plan", "-d", "0"], "delta"),
        (["plan", "-d", "1"], "delta"),
        (["plan", "-T", "0"], "rounds"),
        (["plan", "-T", "-5"], "rounds"),
        (["plan", *EASY, "--copies", "10", "--polls", "11"], "polls"),
        (["plan", *EASY, "--labels", "1"], "labels"),
        (["plan", *EASY, "--silent", "30000"], "silent"),
        (["plan", *EASY, "--beta", "2"], "beta"),
        (["plan", *EASY, "--copies", "40"], "copies"),
        (["plan", *EASY, "--copies", "1"], "copies"),
        (["plan", *EASY, "--mistakes", "0"], "mistakes"),
        (["plan", *EASY, "--mistakes", "1", "--copies", "5"], "copies"),
        (["plan", *EASY, "--mistakes", "1", "--silent", "5"], "--silent"),
        (["plan", *EASY, "--mistakes", "1", "--unit-unsure", "2"], "--unit-unsure"),
        (["plan", *EASY, "--paper", "--copies", "5", "--unsure", "10"], "leak"),
        (["plan", *EASY, "--paper", "--polls", "5"], "--polls"),
        (["plan", *EASY, "--plot", "x.png"], "--frontier"),
        (["plan", *EASY, "--frontier", "--copies", "500"], "--copies"),
        (["plan", *EASY, "--frontier", "--json", "x.json"], "--json"),
        (["plan", *EASY, "--frontier", "--beta", "0.2"], "beta"),
        (["plan", "-e", "8", "-d", "1e-4", "-T", "20", "--frontier"], "rounds"),
        (["verify", "missing-folder/plan.json"], "missing-folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert word in one_sentence(*main(*arguments))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "missing-folder/plan.json"],
        ["--frontier", "--plot", "missing-folder/x.png"],
        ["--frontier", "--plot", "x.nonsense"],
    ],
    ids=" ".join,
)
def test_files_that_cannot_be_written_are_refused(
    main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """Whether or not the plan was shown before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("confide.cli.plan.UNSURE", (30,))
    code, _, err = main("plan", *EASY, *arguments)
    assert code == 2 and err.startswith("confide: ") and err.count("\n") == 1
    assert arguments[-1].split("/")[0] in err or "nonsense" in err


def test_a_plan_that_lies_is_refused(main: Main, saved: Path, tmp_path: Path) -> None:
    body = json.loads(saved.read_text())
    body["guarantee"]["epsilon"] *= 0.9
    path = tmp_path / "lie.json"
    path.write_text(json.dumps(body))
    assert "do not run this plan" in one_sentence(*main("verify", str(path)))
    path.write_text(saved.read_text()[:500])
    one_sentence(*main("verify", str(path)))
    path.write_bytes(b"\xff\xfe\x00\x80 not text")
    one_sentence(*main("verify", str(path)))
    path.write_text("")
    one_sentence(*main("verify", str(path)))
    assert str(tmp_path) in one_sentence(*main("verify", str(tmp_path)))


def test_an_error_inside_is_no_advice(main: Main, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text("a,label\n1,yes\n2,no\n")
    monkeypatch.setattr("confide.cli.schema.HEAD", "{")
    code, _, err = main("schema", str(file), "--label", "label")
    err = " ".join(err.split())
    assert code == 1 and "encountered" not in err and "Traceback" not in err
    assert re.search(r"not in what you gave it: ValueError in schema\.py, line \d+; please report it", err)


@pytest.mark.parametrize(
    "arguments",
    [["plan", "-e", "much"], ["plan", "-T", "1e6"], ["plan", "--nonsense"], ["verify"], ["nonsense"]],
    ids=str,
)
def test_what_is_no_command_is_a_usage_error(main: Main, arguments: list[str]) -> None:
    code, _, err = main(*arguments)
    assert code == 2 and "Usage" in err and "Traceback" not in err


# --- help


def commands() -> list[str]:
    group = typer.main.get_command(app)
    return sorted(group.commands)  # type: ignore[attr-defined]


def test_the_commands_are_there() -> None:
    assert {"plan", "verify"} <= set(commands())
    text = shown("--help")
    for name in commands():
        assert name in text
    assert "Start with" in text


@pytest.mark.parametrize("name", commands())
def test_every_command_says_what_to_do(name: str) -> None:
    text = " ".join(shown(name, "--help").split())
    assert re.search(r"confide \w+", text.replace(f"confide {name} [OPTIONS]", "")), "no example of use"


def test_alone_it_shows_its_help(main: Main) -> None:
    _, out, err = main()
    assert "plan" in out + err and "Traceback" not in out + err


# --- as a program


def test_the_program_runs_and_refuses(saved: Path) -> None:
    def program(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; from confide.cli.main import main; sys.argv[0] = 'confide'; main()"
        return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)

    good = program("verify", str(saved))
    assert good.returncode == 0 and "certified" in good.stdout and not good.stderr
    bad = program("plan", "--epsilon", "-1")
    assert bad.returncode == 2 and not bad.stdout
    assert bad.stderr.startswith("confide: epsilon=-1") and bad.stderr.count("\n") == 1


def test_whoever_waits_for_a_long_plan_sees_that_it_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def status(text: str) -> contextlib.AbstractContextManager[None]:
        seen.append(text)
        return contextlib.nullcontext()

    monkeypatch.setattr(terminal.console, "status", status)
    shown("plan", *EASY)
    assert seen == ["planning 30,000 rounds: a moment"]
