"""Doubles with other tables than were paid for. No replay sees them, both worlds have the same: games do."""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.planning import paper
from confide.planning.copies import Copies
from confide.planning.plan import Guarantee, Plan
from confide.planning.promise import Promise
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.sparse import AboveThreshold, threshold_table

__all__ = [
    "Unchecked",
    "exact_count",
    "half_noise",
    "half_scale",
    "halting_ignored",
    "one_copy",
    "steep_entry",
    "unchecked",
]

MOST = (1 << 64) - 1


class Unchecked(Plan):
    """A plan that is not verified: for tables that the library would refuse, and to save games the time."""

    def verify(self) -> Guarantee:
        return self.guarantee


def unchecked(plan: Plan, **changes: Any) -> Plan:
    """The same plan, changed, with the guarantee that it no longer keeps."""
    other = plan.but(**changes)
    return Unchecked(**{name: getattr(other, name) for name in other.__dataclass_fields__})


class _AnyTable(Halting):
    """A halting gate with this very table, whatever Halting thinks of it."""

    def __init__(self, go: list[int], shift: int) -> None:
        self._go, self.shift = np.array(go, dtype=np.uint64), shift


def steep_entry(plan: Plan, margin: int) -> Plan:
    """One table entry too steep: between this margin and the one a vote below, the gate leaps from unsure to sure."""
    sure = plan.tables.gate.sure.copy()
    sure[margin:] = np.maximum(sure[margin:], np.uint64(MOST - (MOST >> 10)))
    return unchecked(plan, gate=Gate.from_integers(sure))


def half_noise(sparse: AboveThreshold) -> AboveThreshold:
    """Noise of half the scale in AboveThreshold: every report costs twice what was paid for."""
    sparse.table = threshold_table(sparse.scale / 2)
    return sparse


def half_scale(plan: Plan, scale: float, **laplace: Any) -> Plan:
    """Noise of half the scale in the gate: every unsure answer costs twice what was paid for."""
    return unchecked(plan, gate=Gate.laplace(scale=scale / 2, **laplace))


def halting_ignored(plan: Plan) -> Plan:
    """Halting ignored: N unsure answers were paid for, and the run goes on for ever."""
    return unchecked(plan, halting=_AnyTable([MOST] * 4, plan.unit_unsure))


def exact_count(plan: Plan) -> Plan:
    """The exact count instead of the halting gate: the run stops at the r-th unsure answer, hidden ones included."""
    return unchecked(plan, halting=_AnyTable([MOST] * plan.unsure + [0], plan.unit_unsure))


def one_copy(epsilon: float, delta: float, rounds: int) -> Plan:
    """k = 1 with the paper's majority: noise decides whether to answer, but the answer is the only copy's own vote."""
    size = paper.size(paper.PaperRequest(epsilon, delta, rounds, 1, 0.05, 1, 1, None))
    gate = Gate.laplace(scale=size.scale, threshold=size.copies / 4)
    part = Copies(1, 1, 1, 0, 1, 2, size.order, 0.05, gate, size.counter)
    return Unchecked(Promise(epsilon, delta, rounds), (part,), "paper", Guarantee(epsilon, delta))
