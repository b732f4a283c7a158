"""One batch of a run: rows asked of a mechanism through its public calls, and what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.data.rows import Item
from confide.errors import Halted
from confide.pop.pop import POP

__all__ = ["Shown", "ask_and_teach", "ask_only", "questions"]

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Shown:
    """What was shown for each row that was asked; fewer rows than given where the mechanism halted. Operator only."""

    answers: Ints
    """Numbers of labels; −1 where the row could not be read."""
    sure: Flags
    margins: Ints
    """Vote margins; −1 where nobody knows."""
    tickets: Sequence[str] = ()

    @property
    def rounds(self) -> int:
        """Rounds taken."""
        return self.answers.size

    @property
    def refused(self) -> Flags:
        """Rows that could not be read."""
        return self.answers < 0


def ask_and_teach(pop: POP, rows: Sequence[Item], right: Ints) -> Shown:
    """Ask each row and teach its label before the next; a row without one (−1) is asked alike, and teaches nothing.

    This is `confide.evaluate` for a part of a stream. Evaluate refuses a stream that begins with bad rows only; in the
    middle of a run that would let a few rows decide what becomes of the others.
    """
    done = pop.follow_many(questions(pop, rows), right, _units(pop, rows))
    return Shown(done.answers, done.sure, done.margins)


def ask_only(pop: POP, rows: Sequence[Item]) -> Shown:
    """Ask the rows; their labels come later, with the tickets."""
    before, index = pop.rounds, {label: i for i, label in enumerate(pop.labels)}
    try:
        given = pop.predict_many(questions(pop, rows), _units(pop, rows))[: pop.rounds - before]
    except Halted:
        given = []
    answers = np.array([-1 if one.error is not None else index[one.label] for one in given], dtype=np.int64)
    margins = np.full(len(given), -1)
    if given and pop.rounds > pop.plan.silent and (margin := pop.operator.margin) is not None:
        margins[-1] = margin  # the last round's is known: a sample
    sure = np.array([one.sure for one in given], dtype=np.bool_)
    return Shown(answers, sure, margins, [one.ticket for one in given])


def questions(pop: POP, rows: Sequence[Item]) -> Any:
    """The rows' x; where they are arrays in one, with NaN, which no learner takes, for a row that cannot be read."""
    if pop.named:
        return [row.x for row in rows]
    nothing = np.full(next((row.x.size for row in rows if row.x is not None), 1), np.nan)
    return np.array([nothing if row.x is None else row.x for row in rows])


def _units(pop: POP, rows: Sequence[Item]) -> list[Any] | None:
    return [row.unit for row in rows] if pop.units == "people" else None
