"""The trade between copies, labels per copy, unsure answers and the lead that the gate needs, for one promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from confide._checks import Numbers
from confide.planning.design import reach
from confide.planning.plan import Plan

UNSURE = (30, 100, 300, 1000, 3000, 10_000)
"""Numbers of tolerated unsure answers that the frontier shows by default."""


DISSENT = (0.0, 0.1, 0.2)
"""Shares of the poll that may disagree and still be answered."""


@dataclass(frozen=True)
class Point(Numbers):
    """One plan of the frontier."""

    unsure: int
    dissent: float
    copies: int
    labels_per_copy: float
    half_lead: float
    """Lead of the winning label, as a share of the poll, at which the gate is unsure half of the time."""
    lead: float
    """Lead at which unsure answers are rare enough for the plan."""


def frontier(
    epsilon: float,
    delta: float,
    rounds: int,
    *,
    unsure: Sequence[int] = UNSURE,
    dissent: Sequence[float] = DISSENT,
    polls: int | None = None,
    silent: int | None = None,
    unit_unsure: int = 1,
    labels: int = 2,
    progress: Callable[[], None] = lambda: None,
) -> list[Point]:
    """The smallest plan for each number of tolerated unsure answers and each share of dissent.

    Examples
    --------
    >>> few, many = frontier(1.0, 1e-6, 100_000, unsure=(30, 1000), dissent=(0.1,))
    >>> few.copies < many.copies
    True
    """
    points = []
    for number, share in product(unsure, dissent):
        if number * 2 < rounds:
            given: dict[str, Any] = {"polls": polls, "silent": silent, "unit_unsure": unit_unsure, "labels": labels}
            plan = Plan.tight(epsilon, delta, rounds, unsure=number, dissent=share, guide=None, **given)
            half, rare = reach(plan.tables.gate, 0.5), reach(plan.tables.gate, number / (2 * plan.live))
            leads = half / plan.polls, rare / plan.polls
            points.append(Point(number, share, plan.copies, rounds / plan.copies, *leads))
        progress()
    return points
