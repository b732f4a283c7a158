"""What the page on the paper says of runs is what was run, and the runs show what they must."""

from __future__ import annotations

import pytest

from benchmarks import paper
from benchmarks.paper import Cell
from confide.learners import Intervals, Thresholds

pytestmark = pytest.mark.claim("paper-plan.md")


def test_the_page_has_the_table_of_what_was_run() -> None:
    assert paper.table(paper.kept()) in paper.PAGE.read_text()


def test_every_run_that_a_theorem_covers_is_below_its_bound() -> None:
    for row in paper.kept().values():
        assert not row["halted"] and (row["mistakes"] <= row["bound"] or not row["covered"])
        assert row["unsure"] <= row["planned_unsure"]


def test_a_thousand_million_rounds_of_points_were_run_as_the_paper_is_written() -> None:
    """Bound at most 0.4 × rounds, mistakes at most 0.1 × the best constant's, two million rounds a second, 8 bytes."""
    long = [row for row in paper.kept().values() if row["rounds"] == 10**9 and row["kind"] == "paper"]
    assert long
    for row in long:
        assert row["bound"] <= 0.4 * row["rounds"] and row["mistakes"] <= 0.1 * row["constant"]
        assert row["rounds"] / row["seconds"] >= 2e6 and row["bytes_a_copy"] <= 8


@pytest.mark.parametrize(
    ("learner", "points"), [("thresholds", 3), ("thresholds", 7), ("intervals", 2), ("intervals", 4)]
)
def test_in_its_worst_order_a_copy_errs_as_often_as_its_bound(learner: str, points: int) -> None:
    cell = Cell(learner, points, 20.0, 10**6, "worst")
    order = paper.worst_order(cell)[0]
    bound = (Thresholds(points) if learner == "thresholds" else Intervals(points)).mistake_bound()
    assert len(order) == bound


def test_a_run_of_the_benchmark_is_a_pop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one, at an ε that nobody would run."""
    monkeypatch.setattr(paper, "DELTA", 0.1)
    monkeypatch.setattr(paper, "CHUNK", 10_000)
    for stream in ("uniform", "late", "missing"):
        found = paper.run(Cell("points", 10, 450.0, 200_000, stream))  # type: ignore[arg-type]
        assert found["curve"][-1] == [200_000, found["mistakes"]] and 0 < found["mistakes"] < found["constant"]
    assert "no bound" in paper.table({"x": found}) and "not covered" in paper.said(found)
