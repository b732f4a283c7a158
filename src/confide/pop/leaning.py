"""The lean in the loop: which offsets a round has, and what its words decide. Proof page: docs/proofs/lean.md."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit
from confide.planning.plan import Plan
from confide.privacy.gate import is_sure, lead, passes, signed
from confide.privacy.lean import Lean, lean_answer, offset_of
from confide.privacy.weigh import Weights, offsets_of, weigh

__all__ = ["Decided", "Leaning"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NONE, FILL, WEIGHTS = range(3)
"""How a plan leans."""

_NOTHING = np.zeros(0, dtype=np.int64)


@jit
def _offset_rows(scores: Floats, scale: float, reach: int, out: Ints) -> None:
    for i in range(out.shape[0]):  # the guide's score is the log-odds of label 1
        out[i, 0] = offset_of(-scores[i, 0], scale, reach)


@jit
def _offsets_rows(scores: Floats, width: float, clip: int, out: Ints) -> None:
    for i in range(out.shape[0]):
        offsets_of(scores[i], width, clip, out[i])


@jit
def _gate(counts: Ints, word: int, table: NDArray[np.uint64]) -> tuple[int, int, bool]:
    top, margin = lead(counts)
    return top, margin, is_sure(np.uint64(word), table, margin)


class Decided(NamedTuple):
    """What gate and lean say of a round's votes."""

    top: int
    margin: int
    sure: bool
    leaned: int
    """The lean's label, whether it is needed or not; −1 where the plan has no lean."""


class Leaning:
    """The gate of a plan, with its lean if it has one: the same decisions one by one and, as arrays, compiled."""

    def __init__(self, plan: Plan) -> None:
        self.lean = plan.lean
        self.labels = plan.labels
        self.rule = plan.tables.gate.rule
        self.kind = NONE if plan.lean is None else FILL if isinstance(plan.lean, Lean) else WEIGHTS
        self.width = {NONE: 0, FILL: 1, WEIGHTS: plan.labels}[self.kind]
        """Offsets a row."""
        nothing = np.ones((1, 1), dtype=np.uint64)
        self.sure = self.lean.sure if isinstance(self.lean, Lean) else nothing
        self.first = self.lean.first if isinstance(self.lean, Lean) else nothing
        self.weights = self.lean.weights if isinstance(self.lean, Weights) else nothing[0]
        self.clip = self.weights.size - 1

    def offsets(self, scores: Floats | None, rows: int = 1) -> Ints:
        """The public offsets of rows with these scores of the guide, zeros where it has none: a row each.

        A row's offsets are computed from its own scores alone, in one order of operations.
        """
        out = np.zeros((rows, self.width), dtype=np.int64)
        if self.kind == NONE:
            return out
        if isinstance(self.lean, Lean):
            reach = len(self.lean.offsets) // 2
            out[:] = reach
            if scores is not None:
                _offset_rows(scores, self.lean.scale, reach, out)
        elif self.lean is not None and scores is not None:
            _offsets_rows(scores, self.lean.width, self.clip, out)
        return out

    def offsets_of(self, scores: Floats | None) -> Ints:
        """The offsets of one row."""
        return _NOTHING if self.kind == NONE else self.offsets(None if scores is None else scores[None, :])[0]

    def decide(self, counts: Ints, gate_word: int, lean_word: int, offsets: Ints) -> Decided:
        """Gate and lean of one round."""
        if self.kind == FILL:
            gate, word = np.uint64(gate_word), np.uint64(lean_word)
            label, sure = lean_answer(gate, word, self.sure, self.first, int(offsets[0]), int(counts[0] - counts[1]))
            return Decided(*lead(counts), bool(sure), int(label))
        if self.rule.centre < 0:  # a kernel takes one table sooner than the whole rule
            top, margin, sure = _gate(counts, signed(gate_word), self.rule.table)
        else:
            top, margin = lead(counts)
            sure = bool(passes(np.uint64(gate_word), self.rule, margin))
        if self.kind == NONE:
            return Decided(top, margin, sure, -1)
        return Decided(top, margin, sure, int(weigh(np.uint64(lean_word), self.weights, counts, offsets)))
