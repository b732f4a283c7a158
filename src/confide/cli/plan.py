"""The command `confide plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from rich.box import SIMPLE
from rich.progress import Progress
from rich.table import Table

from confide.cli.terminal import console, planning, say
from confide.extras import need
from confide.planning.frontier import DISSENT, UNSURE, frontier
from confide.planning.plan import Plan
from confide.planning.promise import Protect
from confide.planning.text import expect
from confide.runs.settings import LEANS

MILLION = 1_000_000
"""Rounds that are planned for where nothing is said."""

Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The promise ε; 1 is strong, 4 is moderate.")]
Delta = Annotated[float, typer.Option("--delta", "-d", help="Probability that the promise fails; far below 1/people.")]
Rounds = Annotated[
    int | None, typer.Option("--rounds", "-T", help="How many questions will be asked in all.  [default: 1000000]")
]
Lean = Annotated[
    str | None, typer.Option(help="What unsure copies answer by: none, fill or additive; chosen if left out.")
]
Units = Annotated[str | None, typer.Option(help="Who is protected: rounds or people; left open if left out.")]


def plan(
    context: typer.Context,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    rounds: Rounds = None,
    endless: Annotated[bool, typer.Option("--endless", help="No last round: a guide alone.")] = False,
    units: Units = None,
    copies: Annotated[int | None, typer.Option(help="Copies of the learner; chosen for you if left out.")] = None,
    polls: Annotated[int | None, typer.Option(help="Copies asked in a round.")] = None,
    unsure: Annotated[int | None, typer.Option(help="Unsure answers the run is planned to have.")] = None,
    silent: Annotated[int | None, typer.Option(help="Rounds at the start in which copies only learn.")] = None,
    relay: Annotated[bool, typer.Option("--relay", help="Copies without an end: --rounds are those of a leg.")] = False,
    unit_unsure: Annotated[int, typer.Option(help="Unsure answers one person may receive (person-level).")] = 1,
    unit_labels: Annotated[int, typer.Option(help="Labels of one person that the guide learns from.")] = 1,
    per: Annotated[int | None, typer.Option(help="ε is for what one person told within so many rounds.")] = None,
    periods: Annotated[int | None, typer.Option(help="With --per: periods in which one person teaches.")] = None,
    history: Annotated[int, typer.Option(help="Labelled rows that will be taught before the first question.")] = 0,
    lean: Lean = None,
    guide: Annotated[bool, typer.Option(help="Whether a guide may have the budget, or a part of it.")] = True,
    labels: Annotated[int, typer.Option(help="How many labels there are.")] = 2,
    protect: Annotated[str, typer.Option(help="rows, or labels alone: another promise, see below.")] = "rows",
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

    * `confide plan --protect labels --units people --unit-labels 3` — only what was answered as right is secret

    * `confide plan --endless --units people --per 1000000 --periods 5` — ε for a period, and for five of them

    * `confide plan -e 4 -T 40000 --copies 1600 --unsure 1500 --relay` — copies without an end

    * `confide plan --json plan.json && confide verify plan.json` — re-certify from the tables alone

    Must nobody learn what was asked, or only what was answered as right? A plan is for the first, unless you say
    `--protect labels`. Then any model can be taught and nothing ends; rows are not protected.
    """
    if protect != "rows":
        _labels_alone(context, epsilon, labels, units, unit_labels, json)
        return
    certified = paper or show_frontier or mistakes is not None
    promise = epsilon, delta, MILLION if rounds is None else rounds
    given, ours = _for_any(context.params, certified), _for_ours(context.params, certified)
    if show_frontier:
        _show_frontier(promise, given, plot, mistakes is not None or paper or json is not None)
        return
    _show(_certified(promise, given, mistakes, paper) if certified else _ours(promise, given, ours), json, "")


WHICH = (
    "Must nobody learn what was asked, or only what was answered as right? This plan is for the first. If the second "
    "is enough, `confide plan --protect labels` is another promise: it protects labels and not rows, and errs less "
    "where a person brings few labels."
)
"""Asked once, where a promise is made."""


def _for_any(asked: dict[str, Any], certified: bool) -> dict[str, Any]:
    """What was asked of copies and labels, as `Plan.tight` takes it; what was left out is left out."""
    if asked["relay"] and (asked["endless"] or asked["rounds"] is None or certified):
        raise ValueError("--relay is for copies of a plan of ours without a certificate: give --rounds, those of a leg")
    if asked["plot"] is not None and not asked["show_frontier"]:
        raise ValueError("--plot draws the frontier: add --frontier")
    given = {name: asked[name] for name in ("copies", "polls", "unsure", "silent", "beta") if asked[name] is not None}
    given |= {"unit_unsure": asked["unit_unsure"]} if asked["unit_unsure"] != 1 else {}
    given |= {"relay": True} if asked["relay"] else {}
    return {**given, "labels": asked["labels"], **_lean(asked["lean"])}


def _for_ours(asked: dict[str, Any], certified: bool) -> dict[str, Any]:
    """The same of what only a plan of ours heeds; refused where it is another, or for a guide where there is none."""
    ours = {name: asked[name] for name in ("unit_labels", "history", "endless", "units", "per", "periods", "guide")}
    if ours["endless"] and asked["rounds"] is not None:
        raise ValueError("--endless means that there is no last round: leave --rounds out")
    heeded = {name: value for name, value in ours.items() if name != "guide"}
    if certified:
        said = "is for a guide, or for a plan of ours without a certificate, and this is neither: leave it out"
        _refuse(heeded, said)
    elif not ours["guide"]:
        _refuse({**heeded, "units": None}, "is for a guide, and this plan has none: leave it out")
    return ours


def _ours(promise: tuple[float, float, int], given: dict[str, Any], ours: dict[str, Any]) -> Plan:
    """The plan that `confide.Private` would take."""
    epsilon, delta, rounds = promise
    own = {"unit_labels": ours["unit_labels"], "history": ours["history"]} if ours["guide"] else {"guide": None}
    last = None if ours["endless"] else rounds
    by_period = {name: ours[name] for name in ("per", "periods") if ours[name] is not None}
    own |= {"guide": 1.0} if by_period else {}  # they have a price of their own, and copies have none
    with planning(last):
        made = Plan.tight(epsilon, delta, last, units=ours["units"], **given, **own)
    return made.but(**by_period) if by_period else made


def _certified(promise: tuple[float, float, int], given: dict[str, Any], mistakes: int | None, paper: bool) -> Plan:
    """A plan with a mistake bound: the paper's own, or ours."""
    if paper:
        if given.keys() & {"polls", "silent", "unit_unsure", "lean"}:
            options = "--polls, --silent, --unit-unsure and --lean"
            raise ValueError(f"the paper's plan asks every copy for rounds, and does not lean: leave out {options}")
        return Plan.paper(*promise, 1 if mistakes is None else mistakes, **given)
    assert mistakes is not None
    if given.keys() & {"unsure", "silent", "unit_unsure"}:
        raise ValueError("a certificate fixes --unsure, --silent and --unit-unsure itself: leave them out")
    return Plan.certified(*promise, mistakes, **given)


def _labels_alone(
    context: typer.Context, epsilon: float, labels: int, units: str | None, unit_labels: int, json: Path | None
) -> None:
    """Show the plan for labels alone; whatever would be ignored is refused."""
    if context.params["protect"] not in get_args(Protect):
        raise ValueError("--protect must be rows, what was asked and what was right, or labels, only what was right")
    taken = {"epsilon", "labels", "protect", "units", "unit_labels", "json"}
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in taken and source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"--{name.replace('_', '-')} has no meaning with --protect labels: leave it out")
    if units not in (None, "rounds", "people"):
        raise ValueError(f"--units {units} must be rounds or people")
    who: Literal["rounds", "people"] = "people" if units == "people" else "rounds"
    made = Plan.labels_alone(epsilon, labels, units=who, unit_labels=unit_labels)
    _show(made, json, " --protect labels")


def _show(made: Plan, json: Path | None, option: str) -> None:
    say("\n".join([str(made), "", *expect(made)]))
    console.print(f"\n{made.guarantee.sentence}", highlight=False, markup=False)
    if json is not None:
        json.write_text(made.to_json())
        run = f"confide run{option} --plan {json}"
        say(f"\nwritten to {json}; check it with: confide verify {json}; run it with: {run}")
    if made.kind == "tight":
        say(f"\n{WHICH}", "dim")


def _lean(asked: str | None) -> dict[str, Any]:
    if asked not in (None, *LEANS):
        raise ValueError(f"--lean {asked} must be one of {', '.join(LEANS)}")
    return {} if asked is None else {"lean": None if asked == "none" else asked}


def _refuse(given: dict[str, Any], said: str) -> None:
    for name, value in given.items():
        if value not in (None, False, 1 if name == "unit_labels" else 0):
            raise ValueError(f"--{name.replace('_', '-')} {said}")


def _show_frontier(promise: tuple[float, float, int], given: dict[str, Any], plot: Path | None, more: bool) -> None:
    """Show what fewer copies cost; `more` says that something was asked for which it chooses for itself."""
    if more or given.keys() & {"copies", "beta", "lean"}:
        raise ValueError(
            "--frontier chooses for itself: leave out --copies, --mistakes, --paper, --json, --beta and --lean"
        )
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
