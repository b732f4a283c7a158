"""The way of one question is short: counted, so that it stays so."""

from __future__ import annotations

from pathlib import Path

from benchmarks.way import over_http


def test_an_ask_over_http_takes_few_calls_in_few_modules(tmp_path: Path) -> None:
    """242 in 38 where this was first counted."""
    calls = over_http(tmp_path / "model")
    assert 50 < len(calls) <= 205 and len({module for module, _ in calls}) <= 42
