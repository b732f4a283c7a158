"""One batch of a run: rows asked of a mechanism through its public calls, and what came back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.data.rows import Item
from confide.errors import Halted
from confide.pop.batches import evaluate
from confide.pop.pop import POP

__all__ = ["Shown", "ask_and_teach", "ask_only"]

NOTHING = -1


@dataclass(frozen=True)
class Shown:
    """What was shown for each row that was asked; fewer rows than given where the mechanism halted. Operator only."""

    answers: NDArray[np.int64]
    """Label indices; −1 where the row could not be read."""
    sure: NDArray[np.bool_]
    margins: NDArray[np.int64]
    """Vote margins; −1 where nobody knows."""
    refused: NDArray[np.bool_]
    """Rows that could not be read."""
    tickets: Sequence[str] = ()

    @property
    def rounds(self) -> int:
        """Rounds taken."""
        return self.answers.size


def ask_and_teach(pop: POP, rows: Sequence[Item]) -> Shown:
    """Ask each row and teach its label before the next; a row without a label is asked alike, and teaches nothing."""
    parts: list[Shown] = []
    start = 0
    for i, row in enumerate(rows):  # a label that is none must not refuse the others: such a row is asked by itself
        if row.y is None:
            parts += [_evaluated(pop, rows[start:i]), ask_only(pop, rows[i : i + 1])]
            start = i + 1
            if pop.state == "halted":
                break
    else:
        parts.append(_evaluated(pop, rows[start:]))
    return Shown(
        np.concatenate([part.answers for part in parts]),
        np.concatenate([part.sure for part in parts]),
        np.concatenate([part.margins for part in parts]),
        np.concatenate([part.refused for part in parts]),
    )


def _evaluated(pop: POP, rows: Sequence[Item]) -> Shown:
    if not rows or pop.state == "halted":
        return _nothing(0)
    done = evaluate(pop, [row.x for row in rows], [row.y for row in rows], _units(pop, rows))
    return Shown(done.answers, done.sure, done.margins, done.answers == NOTHING)


def ask_only(pop: POP, rows: Sequence[Item]) -> Shown:
    """Ask the rows; their labels come later, with the tickets."""
    before, index = pop.rounds, _index(pop)
    try:
        answers = pop.predict_many([row.x for row in rows], _units(pop, rows))
    except Halted:
        return _nothing(0)
    answers = answers[: pop.rounds - before]
    shown = _nothing(len(answers))
    for i, answer in enumerate(answers):
        if answer.error is None:
            shown.answers[i], shown.sure[i], shown.refused[i] = index[answer.label], answer.sure, False
    if answers and pop.rounds > pop.plan.silent and (margin := pop.operator.margin) is not None:
        shown.margins[-1] = margin  # the last round's is known, a sample
    return Shown(shown.answers, shown.sure, shown.margins, shown.refused, [answer.ticket for answer in answers])


def _index(pop: POP) -> dict[Hashable, int]:
    return {label: i for i, label in enumerate(pop.labels)}


def _units(pop: POP, rows: Sequence[Item]) -> list[Any] | None:
    return [row.unit for row in rows] if pop.units == "people" else None


def _nothing(rows: int) -> Shown:
    false = np.zeros(rows, dtype=np.bool_)
    return Shown(np.full(rows, NOTHING), false, np.full(rows, NOTHING), ~false)
