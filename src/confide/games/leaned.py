"""What gate and lean must say in a replay, worked out without the loop that is watched (docs/proofs/lean.md).

The offsets of a question are whole votes, computed from what the guide, which is public, says of that question by
itself. An ear on the watched loop hears which scores it made its offsets of: they must be these, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from confide.games.tape import LEAST, MOST
from confide.planning.plan import Plan
from confide.pop.leaning import Leaning
from confide.privacy.gate import lead, passes
from confide.privacy.lean import Lean
from confide.privacy.weigh import Weights

Scores = NDArray[np.float64] | None
"""The guide's scores of one row; None where it has none."""

Offsets = tuple[int, ...]


def offsets_for(plan: Plan, scores: Scores) -> Offsets:
    """The public offsets of a question: for two labels the row of the table, else whole votes behind the best label."""
    lean = plan.lean
    if lean is None:
        return ()
    if isinstance(lean, Lean):  # the guide's score is the log-odds of label 1, the table's row that of label 0
        return (lean.row(0.0 if scores is None else -float(scores[0])),)
    if scores is None or np.isnan(scores).any():
        return (0,) * plan.labels
    return tuple(-_behind(lean, float(scores.max()) - float(score)) for score in scores)


def _behind(lean: Weights, odds: float) -> int:
    votes, most = odds * lean.width, lean.weights.size - 1
    return most if math.isnan(votes) else int(min(math.floor(min(votes, 2.0 * most) + 0.5), most))


def decided(plan: Plan, counts: NDArray[np.int64], gate: int, word: int, offsets: Offsets) -> tuple[bool, int]:
    """Whether the gate is sure, and if not which label the lean draws: −1 where there is no lean."""
    lean = plan.lean
    if isinstance(lean, Lean):
        label, sure = lean.draw(gate, word, offsets[0], int(counts[0] - counts[1]))
        return sure, -1 if sure else label
    sure = bool(passes(np.uint64(gate), plan.tables.gate.rule, lead(counts)[1]))
    return sure, -1 if sure or lean is None else lean.draw(word, counts.tolist(), list(offsets))


def word_for(plan: Plan, label: int, counts: tuple[int, ...], offsets: Offsets) -> int:
    """A word with which the lean draws this label from these votes."""
    lean = plan.lean
    if not isinstance(lean, Weights):
        return LEAST if label == 0 else MOST
    votes = [count + offset for count, offset in zip(counts, offsets, strict=True)]
    shares = [int(lean.weights[min(max(votes) - each, lean.weights.size - 1)]) for each in votes]
    return max(LEAST, -(-(sum(shares[:label]) << 64) // sum(shares)))


@dataclass
class Ear:
    """What a watched loop made its offsets of, call by call; one call may hold all rows of a batch."""

    heard: list[tuple[Scores, NDArray[np.int64]]] = field(default_factory=list)

    @classmethod
    def on(cls, leaning: Leaning | None) -> Self:
        """Listen to a loop that leans."""
        ear = cls()
        if leaning is None or leaning.lean is None:
            return ear
        make = leaning.offsets

        def hear(scores: Scores, rows: int = 1) -> NDArray[np.int64]:
            made = make(scores, rows)
            ear.heard.append((None if scores is None else scores.copy(), made.copy()))
            return made

        leaning.offsets = hear  # type: ignore[method-assign]
        return ear

    def row(self, row: int, live: int, rows: int) -> tuple[Scores, Offsets] | None:
        """Scores and offsets of a row of a step, the `live`-th of its live ones; None where nothing was heard of it."""
        if len(self.heard) == 1 and len(self.heard[0][1]) == rows:
            (scores, made), at = self.heard[0], row
        elif live < len(self.heard) and len(self.heard[live][1]) == 1:
            (scores, made), at = self.heard[live], 0
        else:
            return None
        return None if scores is None else scores[at], tuple(made[at].tolist())

    def fault(self, row: int, live: int, rows: int, scores: Scores, offsets: Offsets) -> str:
        """What the loop leant by otherwise than the public score of this question says."""
        heard = self.row(row, live, rows)
        if heard is None:
            return ""
        found, made = heard
        if _bits(found, len(offsets)) != _bits(scores, len(offsets)):
            return "the lean's offsets come from scores that are not, bit for bit, what the question has by itself"
        return "" if made == offsets else f"the lean's offsets are {made}, and the public score says {offsets}"


def _bits(scores: Scores, size: int) -> bytes:
    """No scores are zeros: no opinion."""
    return (np.zeros(size) if scores is None else np.ascontiguousarray(scores) + 0.0).tobytes()
