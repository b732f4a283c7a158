"""Confide's own methods: the defaults, labels alone, each part by itself, the paper's plan, the guide in hindsight."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from guide_streams import Stream

from confide import POP, Plan, evaluate
from confide.learners import DecisionTree
from confide.pop.evaluate import Evaluation

from .cells import DELTA, LATE, Cell
from .streams import asked, labels_of, load

MEMORY = 2048
"""Records that a copy of the tree keeps."""
NOTHING = 500.0
"""ε whose noise is nothing beside the data: the largest that can be planned."""
SCALES = (0.5, 1.0, 2.0)
"""Of the guide's step, for its best in hindsight."""


class Missing(Exception):
    """There is no such run, and why."""


def plan_of(stream: Stream, epsilon: float, **given: Any) -> Plan:
    """The plan of somebody who says nothing but what they promise, for how long, and to whom; and what is given."""
    units: Any = "rounds" if stream.units is None else "people"
    return _plan(epsilon, len(stream.labels), labels_of(stream), units, tuple(given.items()))


@lru_cache(maxsize=64)
def _plan(epsilon: float, rounds: int, labels: int, units: Any, given: tuple[tuple[str, Any], ...]) -> Plan:
    return Plan.tight(epsilon, DELTA, rounds, labels=labels, units=units, **dict(given))


@lru_cache(maxsize=1)
def _asked(name: str, rows: int | None) -> tuple[Any, Any, list[str] | None]:
    stream = load(name, rows)
    return *asked(stream), None if stream.units is None else [str(unit) for unit in stream.units]


def answered(cell: Cell, plan: Plan) -> Evaluation:
    """A run of the cell's stream with that plan."""
    stream = load(cell.stream, cell.rows)
    rows, features, units = _asked(cell.stream, cell.rows)
    pop = POP(
        DecisionTree(memory=MEMORY) if plan.copies else None,
        plan,
        labels=range(plan.labels),
        features=features,
        units=plan.units or "rounds",
        seed=cell.seed,
    )
    return evaluate(pop, rows, stream.labels, units)


def told(run: Evaluation, plan: Plan, **more: Any) -> dict[str, Any]:
    """Answers, who gave them, and the plan's numbers."""
    numbers: dict[str, Any] = {"copies": plan.copies, **more}
    if plan.copies:
        numbers |= {"polls": plan.polls, "unsure": plan.unsure, "silent": plan.silent}
        numbers |= {"lean": plan.lean and getattr(plan.lean, "kind", "weights"), "halted": run.halted_at}
    if plan.guide is not None:
        numbers |= {"step": round(plan.guide.step, 6), "leaves": plan.guide.leaves}
    shares = {name: round(share, 5) for name, share in run.coverage.items() if share or name != "model"}
    shares["nobody"] = abs(round(1 - sum(run.coverage.values()), 5))
    return {"answers": run.answers, "answered": shares, "parameters": numbers}


def defaults(cell: Cell) -> dict[str, Any]:
    plan = plan_of(load(cell.stream, cell.rows), _epsilon(cell))
    return told(answered(cell, plan), plan)


def labels_alone(cell: Cell) -> dict[str, Any]:
    """Our own model under `protect="labels"`: rows are not protected."""
    stream = load(cell.stream, cell.rows)
    units: Any = "rounds" if stream.units is None else "people"
    return told(answered(cell, plan := Plan.labels_alone(_epsilon(cell), labels_of(stream), units=units)), plan)


def guide(cell: Cell) -> dict[str, Any]:
    plan = plan_of(load(cell.stream, cell.rows), _epsilon(cell), guide=1.0)
    return told(answered(cell, plan), plan)


def guide_without_noise(cell: Cell) -> dict[str, Any]:
    """The guide at an ε that promises nothing."""
    plan = plan_of(load(cell.stream, cell.rows), NOTHING, guide=1.0)
    return told(answered(cell, plan), plan, epsilon=NOTHING)


def copies(cell: Cell) -> dict[str, Any]:
    try:
        plan = plan_of(load(cell.stream, cell.rows), _epsilon(cell), guide=None)
    except ValueError as error:
        raise Missing(f"no plan: {error}") from None
    return told(answered(cell, plan), plan)


def hindsight(cell: Cell, tuned: dict[str, Any] | None = None) -> dict[str, Any]:
    """The guide alone with the best of several steps: the scale is chosen at seed 1, by the errors that are told."""
    plan = plan_of(load(cell.stream, cell.rows), _epsilon(cell), guide=1.0)
    best, run = (tuned["scale"], None) if tuned else _best_step(cell.stream, cell.rows, _epsilon(cell))
    plan = _scaled(plan, best)
    if run is None or cell.seed != 1:
        run = answered(cell, plan)
    return told(run, plan, scale=best, tried=list(SCALES))


@lru_cache(maxsize=8)
def _best_step(name: str, rows: int | None, epsilon: float) -> tuple[float, Evaluation]:
    cell, plan = Cell(name, rows, epsilon, "guide", 1), plan_of(load(name, rows), epsilon, guide=1.0)
    runs = [(scale, answered(cell, _scaled(plan, scale))) for scale in SCALES]
    return min(runs, key=lambda run: run[1].error_after(LATE))


def _scaled(plan: Plan, scale: float) -> Plan:
    assert plan.guide is not None
    return plan.but(guide=replace(plan.guide, step=scale * plan.guide.step))


def paper(cell: Cell) -> dict[str, Any]:
    """The paper's own numbers: every copy needs a label of its own before it can vote."""
    stream = load(cell.stream, cell.rows)
    rounds = len(stream.labels)
    try:
        copies = float(Plan.paper(_epsilon(cell), DELTA, rounds, labels=labels_of(stream)).copies)
    except ValueError as error:
        number = re.search(r"ask for ([\d.e+]+) copies", str(error))
        if number is None:
            raise
        copies = float(number[1])
    if copies <= rounds:
        raise AssertionError("the paper's plan can be run here: write the run")
    raise Missing(f"needs {copies:.2g} copies, and {rounds:,} rounds teach {rounds:,} of them one label each")


def _epsilon(cell: Cell) -> float:
    assert cell.epsilon is not None
    return cell.epsilon
