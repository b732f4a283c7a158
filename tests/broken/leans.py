"""Doubles of the lean: tables that cost more than they say, and a lean that looks, answers or shows where it must not.

The tables are refused by `Plan.verify`, and seen by games; everything else a replay sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.guide.guide import Guide
from confide.guide.model import Batch
from confide.planning.plan import Plan
from confide.pop.base import Answer, Unit
from confide.privacy.fill import lean_width, logistic_rows
from confide.privacy.gate import Gate
from confide.privacy.lean import Lean
from confide.privacy.weigh import Weights
from tests.broken.base import Broken, OpenLoop, WithGuide
from tests.broken.guides import product
from tests.broken.tables import unchecked

__all__ = [
    "LeansWhereCapped",
    "OffsetsOfAProduct",
    "PollsForTheLean",
    "ShowsTheOdds",
    "by_polls",
    "half_width",
    "same_top",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# ---------------------------------------------------------------------- tables


def half_width(plan: Plan) -> Plan:
    """γ halved: a lean twice as steep as was certified, so that an unsure answer costs up to four times as much."""
    lean = plan.lean
    if isinstance(lean, Weights):
        return unchecked(plan, lean=Weights.of_width(lean.width / 2))
    assert lean is not None
    return _leaning(plan, lean.width / 2, lean.sure, logistic_rows(lean.offsets, lean.margins, lean.width / 2))


def same_top(plan: Plan) -> Plan:
    """λ over pairs with the same top only: P(first | unsure) steps from 1/5 to 4/5 where the top changes, for free."""
    lean = plan.lean
    assert isinstance(lean, Lean)
    steps = np.where(np.arange(-lean.margins, lean.margins + 1) >= 0, 4 * (2**64 // 5), 2**64 // 5 + 1)
    return _leaning(plan, lean.width, lean.sure, np.tile(steps.astype(np.uint64), (len(lean.offsets), 1)))


def by_polls(plan: Plan) -> Plan:
    """w = q: the label's law given unsure is taken for a mixture of weight q, and next to the gate's steps it is more.

    Counted so, gate and lean cost what those of the plan do, by the same shares.
    """
    lean, order, q = plan.lean, plan.renyi_order, plan.poll_fraction
    assert plan.gate is not None and lean is not None
    if isinstance(lean, Weights):
        cost = lean.cost(plan.gate, order=order, poll_fraction=q, labels=plan.labels)
        step = 1 + math.expm1(math.sqrt(2 * cost / order)) / float(q)
        return unchecked(plan, lean=Weights.of_width(1 / math.log(step)))
    cost, reach = lean.cost(order=order, poll_fraction=q), lean.margins
    tie, left = plan.gate.tie_sure, cost * (1 - lean.share)
    gate = Gate.best(order=order, cost=left, poll_fraction=q, margins=reach, tie_sure=tie)
    width = lean_width(order, math.expm1((order - 1) * cost * lean.share), float(q))
    sure = np.tile(gate.sure[np.abs(np.arange(-reach, reach + 1))], (len(lean.offsets), 1))
    return _leaning(plan, width, sure, logistic_rows(lean.offsets, reach, width))


def _leaning(plan: Plan, width: float, sure: NDArray[np.uint64], first: NDArray[np.uint64]) -> Plan:
    assert isinstance(plan.lean, Lean)
    lean = Lean(plan.lean.kind, plan.lean.share, width, plan.lean.offsets, sure, first)
    return unchecked(plan, lean=lean, gate=lean.envelope())


# ---------------------------------------------------------------------- the loop


class _PollsForTheLean(OpenLoop):
    def lean_counts(self, x: Any, counts: Ints) -> Ints:
        return self.votes(x, self.poll())


class PollsForTheLean(Broken):
    """A second poll for the lean: two looks at the copies in one round, and one of them is paid for."""

    loop_type = _PollsForTheLean


class _LeansWhereCapped(OpenLoop):
    def leans(self, malformed: bool, capped: bool) -> bool:
        return not malformed


class LeansWhereCapped(Broken):
    """The lean answers those past their cap: their rounds are not counted, and tell of the votes all the same."""

    loop_type = _LeansWhereCapped


@dataclass(frozen=True, slots=True)
class Odds(Answer):
    """An answer with the lean's probability beside it."""

    odds: float = 0.5


class ShowsTheOdds(Broken):
    """Answers come with P(first | unsure): that is the margin, without any noise."""

    def predict(self, x: Any, unit: Unit | None = None) -> Answer:
        answer, loop = super().predict(x, unit), self.operator.loop
        assert isinstance(loop.plan.lean, Lean)
        lean, votes = loop.plan.lean, loop.last
        column = lean.margins if votes is None else lean.margins + int(votes[0] - votes[1])
        odds = float(lean.first[len(lean.offsets) // 2, column]) * 2.0**-64
        return Odds(**{field.name: getattr(answer, field.name) for field in fields(Answer)}, odds=odds)


# ---------------------------------------------------------------------- offsets


class _ProductScores(Guide):
    def _ask(self, batch: Batch, labels: Ints, answers: Ints, scores: Floats, other: Batch | None) -> None:
        theta = None if self.closed == 0 else self.model.theta.copy()
        super()._ask(batch, labels, answers, scores, other)
        if theta is not None:  # where θ is still that of the first row; the last bits alone are others
            found = product(batch if other is None else other, theta)
            scores[:] = np.where(np.isclose(found, scores, rtol=1e-9, atol=0.0), found, scores)


class OffsetsOfAProduct(WithGuide, guide=_ProductScores):
    """The guide answers by each row's own score, and the lean's offsets come from one product of the whole batch."""
