"""The command line: `confide plan` and `confide verify`, beside those of cli_run.py and cli_audit.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from confide.cli import audit as cli_audit
from confide.cli import run as cli_run
from confide.planning.frontier import DISSENT, UNSURE, draw, frontier
from confide.planning.plan import Plan

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Confide makes any online learner private between its users. Start with `confide plan`.",
)
console = Console()

Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The promise ε; 1 is strong, 4 is moderate.")]
Delta = Annotated[float, typer.Option("--delta", "-d", help="Probability that the promise fails; far below 1/people.")]
Rounds = Annotated[int, typer.Option("--rounds", "-T", help="How many questions will be asked in all.")]


@app.command()
def plan(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    rounds: Rounds = 1_000_000,
    copies: Annotated[int | None, typer.Option(help="Copies of the learner; chosen for you if left out.")] = None,
    polls: Annotated[int | None, typer.Option(help="Copies asked in a round.")] = None,
    unsure: Annotated[int | None, typer.Option(help="Unsure answers the run is planned to have.")] = None,
    silent: Annotated[int | None, typer.Option(help="Rounds at the start in which copies only learn.")] = None,
    unit_unsure: Annotated[int, typer.Option(help="Unsure answers one person may receive (person-level).")] = 1,
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
    if plot is not None and not show_frontier:
        raise ValueError("--plot draws the frontier: add --frontier")
    if show_frontier:
        if copies is not None or mistakes is not None or paper or json is not None or beta is not None:
            raise ValueError(
                "--frontier chooses for itself: leave out --copies, --mistakes, --paper, --json and --beta"
            )
        _show_frontier(epsilon, delta, rounds, polls, silent, unit_unsure, labels, unsure, plot)
        return
    if paper:
        if polls is not None or silent is not None or unit_unsure != 1:
            raise ValueError("the paper's plan asks every copy for rounds: leave out --polls, --silent, --unit-unsure")
        made = Plan.paper(
            epsilon,
            delta,
            rounds,
            1 if mistakes is None else mistakes,
            beta=0.05 if beta is None else beta,
            copies=copies,
            unsure=unsure,
            labels=labels,
        )
    elif mistakes is not None:
        if unsure is not None or silent is not None or unit_unsure != 1:
            raise ValueError("a certificate fixes --unsure, --silent and --unit-unsure itself: leave them out")
        made = Plan.certified(
            epsilon,
            delta,
            rounds,
            mistakes,
            beta=0.05 if beta is None else beta,
            copies=copies,
            polls=polls,
            labels=labels,
        )
    else:
        made = Plan.tight(
            epsilon,
            delta,
            rounds,
            copies=copies,
            unsure=unsure,
            polls=polls,
            silent=silent,
            unit_unsure=unit_unsure,
            labels=labels,
            beta=0.01 if beta is None else beta,
        )
    console.print(str(made), highlight=False, markup=False, soft_wrap=True)
    console.print(f"\n{made.guarantee.sentence}", highlight=False, markup=False)
    if json is not None:
        json.write_text(made.to_json())
        text = f"\nwritten to {json}; check it with: confide verify {json}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _show_frontier(
    epsilon: float,
    delta: float,
    rounds: int,
    polls: int | None,
    silent: int | None,
    unit_unsure: int,
    labels: int,
    unsure: int | None,
    plot: Path | None,
) -> None:
    numbers = tuple(sorted({*UNSURE, unsure})) if unsure is not None else UNSURE
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("planning", total=len(numbers) * len(DISSENT))
        points = frontier(
            epsilon,
            delta,
            rounds,
            unsure=numbers,
            polls=polls,
            silent=silent,
            unit_unsure=unit_unsure,
            labels=labels,
            progress=lambda: bar.advance(task),
        )
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
        draw(points, title, rounds, plot)
        console.print(f"picture written to {plot}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan written by `confide plan --json`.")],
) -> None:
    """Re-certify a plan from its tables alone, trusting no number that it states."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    read = Plan.from_json(text)
    got = read.verify()
    console.print(
        f"certified: the tables keep ε = {got.epsilon:.6g} at δ = {got.delta:.3g} "
        f"(claimed {read.guarantee.epsilon:.6g}); order {read.order}, {read.copies:,} copies, {read.polls:,} polled",
        highlight=False,
        markup=False,
    )


cli_run.register(app)
cli_audit.register(app)


def main() -> None:
    """Run the command line; a refusal is one sentence on standard error and exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        Console(stderr=True).print(f"confide: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
