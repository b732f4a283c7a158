"""One batch of a run: rows asked of a mechanism through its public calls, and what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Ints
from confide.data.rows import Item
from confide.pop.base import SOURCES, Answer
from confide.pop.pop import POP


@dataclass(frozen=True)
class Shown:
    """What was shown for each row that was asked; fewer rows than given where the rounds were over. Operator only."""

    answers: Ints
    """Numbers of labels; −1 where the row could not be read."""
    margins: Ints
    """Vote margins; −1 where nobody knows."""
    source: NDArray[np.int8]
    """Numbers of `SOURCES`; −1 where the row could not be read."""
    guide: Ints
    """The guide's own answers; −1 where it has none."""
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
    return Shown(done.answers, done.margins, done.source, done.guide)


def ask_only(pop: POP, rows: Sequence[Item]) -> Shown:
    """Ask the rows; their labels come later, with the tickets."""
    before, index = pop.rounds, {label: i for i, label in enumerate(pop.labels)}
    given: list[Answer] = pop.predict_many(questions(pop, rows), _units(pop, rows))[: pop.rounds - before]
    answers = np.array([-1 if one.error is not None else index[one.label] for one in given], dtype=np.int64)
    margins = np.full(len(given), -1)
    if given and pop.state == "live" and (margin := pop.operator.margin) is not None:
        margins[-1] = margin  # the last round's is known: a sample
    whence = [-1 if one.error is not None else SOURCES.index(one.source) for one in given]
    guide = [-1 if one.guide is None else index[one.guide] for one in given]
    return Shown(answers, margins, np.array(whence, np.int8), np.array(guide, np.int64), [one.ticket for one in given])


def questions(pop: POP, rows: Sequence[Item]) -> Any:
    """The rows' x, as one array where that can be: None stands for a row that cannot be read, which nobody takes."""
    given = [row.x for row in rows]
    return given if pop.named or any(x is None for x in given) else np.array(given)


def _units(pop: POP, rows: Sequence[Item]) -> list[Any] | None:
    return [row.unit for row in rows] if pop.units == "people" else None
