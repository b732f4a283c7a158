"""One batch of a run: rows asked of a mechanism through its public calls, and what came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from confide.arrays import Ints
from confide.data.rows import Item
from confide.pop.base import Followed
from confide.pop.pop import POP


def ask_and_teach(pop: POP, rows: Sequence[Item], right: Ints) -> Followed:
    """Ask each row and teach its label before the next; a row without one (−1) is asked alike, and teaches nothing.

    This is `confide.evaluate` for a part of a stream. Evaluate refuses a stream that begins with bad rows only; in the
    middle of a run that would let a few rows decide what becomes of the others.
    """
    return pop.follow_many(questions(pop, rows), right, _units(pop, rows))


def ask_only(pop: POP, rows: Sequence[Item]) -> tuple[Followed, list[str]]:
    """Ask the rows; their labels come later, with the tickets."""
    before = pop.rounds
    given = pop.predict_many(questions(pop, rows), _units(pop, rows))[: pop.rounds - before]
    shown = Followed.of(given, pop.labels)
    if given and pop.state == "live" and (margin := pop.operator.margin) is not None:
        shown.margins[-1] = margin  # the last round's is known: a sample
    return shown, [one.ticket for one in given]


def questions(pop: POP, rows: Sequence[Item]) -> Any:
    """The rows' x, as one array where that can be: None stands for a row that cannot be read, which nobody takes."""
    given = [row.x for row in rows]
    return given if pop.named or any(x is None for x in given) else np.array(given)


def _units(pop: POP, rows: Sequence[Item]) -> list[Any] | None:
    return [row.unit for row in rows] if pop.units == "people" else None
