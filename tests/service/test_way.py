"""The way of one question is short: counted, so that it stays so."""

from __future__ import annotations

from pathlib import Path

from benchmarks.way import in_process, over_http


def test_a_question_takes_few_calls_in_few_modules(tmp_path: Path) -> None:
    """Over HTTP 242 in 38 where this was first counted, and 138 in 30 before older questions left the memory."""
    asked, predicted = over_http(tmp_path / "model"), in_process()
    assert 50 < len(asked) <= 144 and len({module for module, _ in asked}) <= 30
    assert 20 < len(predicted) <= 50 and len({module for module, _ in predicted}) <= 16
