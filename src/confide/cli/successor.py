"""The command `confide successor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confide.cli.options import Delta, Epsilon, Labels, PlanFile, SchemaFile, UnitLabels
from confide.cli.places import MODEL, Ledger, Model
from confide.cli.terminal import OPERATOR, say
from confide.data.layout import Layout
from confide.data.schema import read_schema
from confide.planning.lives import Life
from confide.planning.plan import Plan
from confide.planning.promise import DELTA
from confide.pop.heirs import options_of
from confide.pop.pop import POP
from confide.runs.settings import EPSILON

__all__ = ["successor"]


def successor(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The folder of a saved POP: it is over afterwards.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A new folder for its successor.")],
    life_epsilon: Annotated[
        float | None, typer.Option(help="What all models together may cost one person; declared once, for good.")
    ] = None,
    life_delta: Annotated[float | None, typer.Option(help="… and with which probability it fails.")] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit_labels: UnitLabels = None,
    labels: Labels = None,
    schema: SchemaFile = None,
    plan: PlanFile = None,
    ledger: Ledger = None,
    model: Model = MODEL,
    name: Annotated[str, typer.Option(help="With --ledger: what the successor is called there.")] = "successor",
) -> None:
    """Begin a new model under a new promise: other ε, other columns, a label added. People's lives go on.

    It begins with what the old one released, as far as it fits, and says what is lost. What a person may still teach
    follows from what they taught before. A model that would break somebody's life is refused, and the old one goes on.

    Example: `confide successor state/spam state/spam2 --epsilon 0.5 --life-epsilon 2`
    """
    options = options_of(old)
    if labels is not None:
        options["labels"] = _labels(labels, options["labels"])
        options["label_weights"] = None
    if schema is not None:
        options["features"] = Layout(read_schema(schema).columns).features
    if plan is not None and (epsilon, delta, unit_labels) != (None, None, None):
        raise ValueError("--plan has all numbers of the promise: leave --epsilon, --delta and --unit-labels out")
    planned = Plan.from_json(plan) if plan is not None else Plan.tight(
        EPSILON if epsilon is None else epsilon, DELTA if delta is None else delta,
        labels=len(options["labels"]), units=options["units"], unit_labels=unit_labels,
    )  # fmt: skip
    if life_epsilon is None and life_delta is not None:
        raise ValueError("--life-delta is of --life-epsilon: give both, or neither")
    life = None if life_epsilon is None else Life(life_epsilon, DELTA if life_delta is None else life_delta)
    pop = POP(None, planned, **options)
    called = MODEL if ledger is None else name
    found = pop.succeed(old, new, life, ledger=ledger, model=called, old_ledger=ledger, old_model=model)
    pop.close()
    say(f"{new}: {pop.guarantee}")
    say(f"  {found.kept}")
    say(OPERATOR, "bold red")
    say(f"  people    {found.people:,} with a life that goes on, {found.spent:,} of them teach nothing any more")


def _labels(given: str, before: list[object]) -> list[object]:
    """The labels that were named; one that the old model had is the same one, whatever its kind."""
    known = {str(label): label for label in before}
    return [known.get(one, one) for one in (part.strip() for part in given.split(",")) if one]
