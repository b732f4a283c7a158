"""The command `confide plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.progress import Progress
from rich.table import Table

from confide.cli.terminal import console, planning, say
from confide.extras import need
from confide.planning.frontier import DISSENT, UNSURE, frontier
from confide.planning.plan import Plan
from confide.planning.text import expect

Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The promise ε; 1 is strong, 4 is moderate.")]
Delta = Annotated[float, typer.Option("--delta", "-d", help="Probability that the promise fails; far below 1/people.")]
Rounds = Annotated[int, typer.Option("--rounds", "-T", help="How many questions will be asked in all.")]


def plan(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    rounds: Rounds = 1_000_000,
    copies: Annotated[int | None, typer.Option(help="Copies of the learner; chosen for you if left out.")] = None,
    polls: Annotated[int | None, typer.Option(help="Copies asked in a round.")] = None,
    unsure: Annotated[int | None, typer.Option(help="Unsure answers the run is planned to have.")] = None,
    silent: Annotated[int | None, typer.Option(help="Rounds at the start in which copies only learn.")] = None,
    unit_unsure: Annotated[int, typer.Option(help="Unsure answers one person may receive (person-level).")] = 1,
    unit_labels: Annotated[int, typer.Option(help="Labels of one person that the guide learns from.")] = 1,
    guide: Annotated[bool, typer.Option(help="Whether a guide may have the budget, or a part of it.")] = True,
    labels: Annotated[int, typer.Option(help="How many labels there are.")] = 2,
    beta: Annotated[float | None, typer.Option(help="Probability of halting early; of the mistake bound.")] = None,
    mistakes: Annotated[int | None, typer.Option(help="The learner's mistake bound d: gives a certificate.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's own constants instead of ours.")] = False,
    show_frontier: Annotated[bool, typer.Option("--frontier", help="Show the trade-off instead of one plan.")] = False,
    plot: Annotated[Path | None, typer.Option(help="With --frontier: save a picture here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the plan here, tables included.")] = None,
) -> None:
    """Choose every number of a run and say what is promised.

    Examples:

    * `confide plan -e 1 -d 1e-6 -T 1000000` — a plan for a million questions

    * `confide plan --mistakes 1` — with a certified mistake bound

    * `confide plan --frontier --plot frontier.png` — what fewer copies cost

    * `confide plan --json plan.json && confide verify plan.json` — re-certify from the tables alone
    """
    promise = (epsilon, delta, rounds)
    given: dict[str, Any] = {"copies": copies, "polls": polls, "unsure": unsure, "silent": silent, "beta": beta}
    given = {name: value for name, value in given.items() if value is not None}
    given |= {"labels": labels} | ({} if unit_unsure == 1 else {"unit_unsure": unit_unsure})
    if unit_labels != 1 and (paper or show_frontier or mistakes is not None or not guide):
        raise ValueError("--unit-labels is for a guide, and this plan has none: leave it out")
    if plot is not None and not show_frontier:
        raise ValueError("--plot draws the frontier: add --frontier")
    if show_frontier:
        if mistakes is not None or paper or json is not None or given.keys() & {"copies", "beta"}:
            raise ValueError(
                "--frontier chooses for itself: leave out --copies, --mistakes, --paper, --json and --beta"
            )
        _show_frontier(promise, given, plot)
        return
    if paper:
        if given.keys() & {"polls", "silent", "unit_unsure"}:
            raise ValueError("the paper's plan asks every copy for rounds: leave out --polls, --silent, --unit-unsure")
        made = Plan.paper(*promise, 1 if mistakes is None else mistakes, **given)
    elif mistakes is not None:
        if given.keys() & {"unsure", "silent", "unit_unsure"}:
            raise ValueError("a certificate fixes --unsure, --silent and --unit-unsure itself: leave them out")
        made = Plan.certified(*promise, mistakes, **given)
    else:
        given |= {"unit_labels": unit_labels} if guide else {"guide": None}
        with planning(promise[2]):
            made = Plan.tight(*promise, **given)
    say("\n".join([str(made), "", *expect(made)]))
    console.print(f"\n{made.guarantee.sentence}", highlight=False, markup=False)
    if json is not None:
        json.write_text(made.to_json())
        say(f"\nwritten to {json}; check it with: confide verify {json}; run it with: confide run --plan {json}")


def _show_frontier(promise: tuple[float, float, int], given: dict[str, Any], plot: Path | None) -> None:
    epsilon, delta, rounds = promise
    asked = given.pop("unsure", None)
    numbers = UNSURE if asked is None else tuple(sorted({*UNSURE, asked}))
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("planning", total=len(numbers) * len(DISSENT))
        points = frontier(*promise, unsure=numbers, progress=lambda: bar.advance(task), **given)
    if not points:
        raise ValueError(f"rounds={rounds} are too few for a frontier: plan for a thousand or more")
    title = f"What ({epsilon:g}, {delta:g}) costs over {rounds:,} rounds"
    table = Table(title=title, caption="lead: by how much of the poll the winning label must be ahead", box=SIMPLE)
    for heading in ("unsure tolerated", "dissent", "copies", "labels per copy", "lead needed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for p in points:
        table.add_row(
            *(f"{p.unsure:,}" if p.dissent == points[0].dissent else "", f"{p.dissent:.0%}", f"{p.copies:,}"),
            *(f"{p.labels_per_copy:,.0f}", f"{p.lead:.0%}"),
        )
    console.print(table)
    if plot is not None:
        pictures: Any = need("confide.planning.pictures", "report", "a picture")
        pictures.draw(points, title, rounds, plot)
        say(f"picture written to {plot}")
