"""`make bench` comes to its end, and says in words what missed its target and what could not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.run import ALL, HERE, run

CASES = {
    "well": ("print('fine')", "done", ""),
    "short": ("raise SystemExit('0.3 instead of 0.5')", "missed", "0.3 instead of 0.5"),
    "silent": ("raise SystemExit(1)", "missed", "see its table above"),
    "without data": ("raise SystemExit('could not run: a.csv is missing')", "could not run", "a.csv is missing"),
    "broken": ("open('/nowhere/at/all')", "could not run", "FileNotFoundError"),
    "killed": ("import os; os.kill(os.getpid(), 9)", "could not run", "exit status -9"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_that_ends_badly_stops_no_other(name: str, tmp_path: Path) -> None:
    text, status, words = CASES[name]
    script = tmp_path / f"{name}.py"
    script.write_text(text)
    ran = run(script, logs=tmp_path / "logs")
    assert ran.status == status and words in ran.words
    assert "Traceback" not in ran.words
    assert (tmp_path / "logs" / f"{name}.log").exists() == (name in ("broken", "killed"))


@pytest.mark.parametrize("name", ALL)
def test_every_benchmark_has_a_short_form(name: str) -> None:
    assert "--quick" in (HERE / f"{name}.py").read_text()
