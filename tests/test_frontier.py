"""The frontier: each of its points is a plan, it moves the right way, and it can be drawn."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from confide.planning.frontier import DISSENT, Point, frontier
from confide.planning.pictures import draw
from confide.planning.plan import Plan

ROUNDS = 100_000


@pytest.fixture(scope="session")
def points() -> list[Point]:
    return frontier(8.0, 1e-6, ROUNDS, unsure=(100, 1000, 10_000))


def test_every_number_and_every_dissent_has_a_point(points: list[Point]) -> None:
    assert [(p.unsure, p.dissent) for p in points] == [(n, s) for n in (100, 1000, 10_000) for s in DISSENT]


def test_each_point_is_a_plan(points: list[Point]) -> None:
    for point in points[1:4]:
        plan = Plan.tight(8.0, 1e-6, ROUNDS, unsure=point.unsure, dissent=point.dissent, guide=None)
        assert point.copies == plan.copies
        assert point.labels_per_copy == ROUNDS / plan.copies
        half, rare = plan.gate.margin(unsure=0.5), plan.gate.margin(unsure=point.unsure / (2 * plan.live))
        assert abs(point.half_lead * plan.polls - half) <= 2 and abs(point.lead * plan.polls - rare) <= 2


def test_room_for_dissent_costs_copies(points: list[Point]) -> None:
    for one, other in pairwise(points):
        if one.unsure == other.unsure:
            assert one.copies < other.copies and one.labels_per_copy > other.labels_per_copy
            assert one.lead > other.lead and one.half_lead > other.half_lead


def test_the_lead_leaves_room_for_the_dissent(points: list[Point]) -> None:
    for point in points:
        assert 0 < point.half_lead < point.lead <= 1 - 2 * point.dissent + 1e-9


def test_many_unsure_answers_cost_copies(points: list[Point]) -> None:
    """Each is paid for; only where they are few does tolerating more of them help, by allowing a flatter gate."""
    for share in DISSENT:
        copies = [p.copies for p in points if p.dissent == share]
        assert copies == sorted(copies)


def test_a_stronger_promise_costs_copies() -> None:
    def copies(epsilon: float, delta: float, rounds: int = ROUNDS, unit_unsure: int = 1) -> int:
        (point,) = frontier(epsilon, delta, rounds, unsure=(300,), dissent=(0.1,), unit_unsure=unit_unsure)
        return point.copies

    base = copies(8.0, 1e-6)
    assert copies(4.0, 1e-6) > base and copies(8.0, 1e-9) > base
    assert copies(8.0, 1e-6, rounds=10 * ROUNDS) > base and copies(8.0, 1e-6, unit_unsure=2) > base


def test_more_polls_need_fewer_copies() -> None:
    few, many = (frontier(8.0, 1e-6, ROUNDS, unsure=(300,), dissent=(0.1,), polls=m)[0] for m in (31, 151))
    assert few.copies > many.copies


def test_numbers_beyond_the_rounds_are_left_out() -> None:
    seen: list[int] = []
    points = frontier(8.0, 1e-4, 500, unsure=(30, 400), dissent=(0.1,), progress=lambda: seen.append(1))
    assert [p.unsure for p in points] == [30] and len(seen) == 2


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        frontier(math.nan, 1e-6, ROUNDS)
    with pytest.raises(ValueError, match="labels"):
        frontier(8.0, 1e-6, ROUNDS, labels=1)
    with pytest.raises(ValueError, match="unsure"):
        frontier(8.0, 1e-6, ROUNDS, unsure=(0,))


def test_it_is_drawn(points: list[Point], tmp_path: Path) -> None:
    one, all_of_them = tmp_path / "one.png", tmp_path / "all.png"
    draw(points[:1], "one", ROUNDS, one)
    draw(points, "all", ROUNDS, all_of_them)
    for path in (one, all_of_them):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000
    assert one.read_bytes() != all_of_them.read_bytes()
