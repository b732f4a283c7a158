"""Ranges after a restart: rows that were counted, and are in no release, are not lost in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from confide import POP, Plan
from confide.service.desk import PopDesk
from tests.service.opened import again, ask, folder
from tests.test_endless_hostile import LABELS, ROWS, endless, guide_of, make

pytestmark = pytest.mark.claim("people.md", "guide.md")
__all__ = ["folder"]

HISTORY = 6


def _plan() -> Plan:
    plan = endless()
    return replace(plan, parts=(replace(plan.guide, history=HISTORY),))  # type: ignore[type-var]


def _counts(pop: POP) -> np.ndarray:
    guide = guide_of(pop)
    assert guide.finding
    return np.array(guide._counted.counts)


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_rows_of_history_are_counted_again_after_a_restart(units: str, folder: Path) -> None:
    """Ann is in the history twice, and asks: a person's first row counts; one is refused, one comes after them all."""
    desk = PopDesk.open(folder, lambda: make(_plan(), units=units, ticket_life=1))
    whos = ["ann", "bob", "ann", "carl", "dora", "emil", "fritz"]
    sent = [(who, ROWS[i].tolist(), int(LABELS[i])) for i, who in enumerate(whos)]
    sent[3] = ("carl", [1.0], 1)
    desk.teach(sent, "import")
    for i, who in enumerate(["ann", "gerd"]):
        ask(desk, who, f"q{i}", ROWS[10 + i].tolist())
    desk.save()  # which drops nothing that is still to be counted
    before = _counts(desk.pop)
    assert before.any()
    other = again(desk)
    assert (_counts(other.pop) == before).all()
    ask(other, "hans", "q9", ROWS[20].tolist())
    assert (_counts(other.pop) == before).all() == (units == "rounds"), "a question may be a row of history"


@pytest.mark.parametrize("how", ["taken", "refused", "forgotten"])
def test_what_became_of_one_record_decides_about_nobody_elses_count(how: str, folder: Path) -> None:
    """Neither whether it can be read nor whether its person was forgotten: else one unit would change all counts."""
    desk = PopDesk.open(folder, lambda: make(_plan()))
    desk.teach([("ann", [1.0] if how == "refused" else [1.0, 2.0], 1)])
    if how == "forgotten":
        desk.forget("ann")
    ask(desk, "bob", "q1", ROWS[1].tolist())
    assert _counts(again(desk).pop).any() == (how == "taken")


def test_a_record_that_was_not_counted_is_not_counted_for_another_who_was_forgotten(folder: Path) -> None:
    desk = PopDesk.open(folder, lambda: make(_plan(), units="people"))
    whos = [f"person {i}" for i in range(HISTORY + 1)]
    desk.teach([(who, ROWS[i].tolist(), 1) for i, who in enumerate(whos)])
    kept = _counts(desk.pop)
    desk.forget(whos[0])
    other = again(desk)
    weight = kept.sum() // HISTORY
    assert _counts(other.pop).sum() == kept.sum() - weight
    assert len(other.pop.operator.loop.guiding._counted) == HISTORY - 1  # type: ignore[union-attr]


@pytest.mark.parametrize("loads", [False, True])
def test_questions_are_counted_where_the_counts_of_history_were_lost(loads: bool, tmp_path: Path) -> None:
    """Else the ranges would be noise alone, and every later answer a guess."""
    pop = make(_plan())
    pop.teach_many(ROWS[:HISTORY], LABELS[:HISTORY].tolist())
    pop.save(tmp_path / "s")
    if loads:
        pop.close()
        pop = POP.load(tmp_path / "s")
    before = _counts(pop)
    assert before.any() != loads
    pop.predict(ROWS[HISTORY])
    pop.predict_many(ROWS[HISTORY + 1 : HISTORY + 3])
    assert (_counts(pop) != before).any() == loads
    pop.close()
