"""The command `confide status`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.cli.places import MODEL, Ledger, Model
from confide.cli.terminal import OPERATOR, say
from confide.pop.look import standing
from confide.pop.state import look
from confide.runs.checkpoints import read_run


def _where(seen: dict[str, Any]) -> str:
    plan, rounds, halted = seen["plan"], seen["rounds"], seen["halted"]
    if halted is None and rounds >= plan.horizon:
        halted = "rounds"  # which the next question would find
    return standing(plan, rounds, halted, seen["after_halt"] == "fallback", seen["legs"])


def status(
    folder: Annotated[Path, typer.Argument(metavar="STATE", help="The folder of a run, or of a saved POP.")],
    ledger: Ledger = None,
    model: Model = MODEL,
) -> None:
    """Say where a run stands, from what it last wrote: first what is public, then what is not.

    Example: `confide run sea -T 200000 --state run1`, and in another window `confide status run1`

    A served model's: `confide status state/spam`, with `--ledger postgresql://… --model spam` if its ledger is there
    """
    run = read_run(folder) if (folder / "run.json").exists() else None
    seen = look(folder if run is None else folder / "pop", ledger, model)
    plan = seen["plan"]
    say("public", "bold")
    say(f"  promise   {replace(seen['guarantee'], secure=not seen['insecure'])}")
    say(f"  units     {seen['units']}")
    say(f"  state     {_where(seen)}")
    silent = f", the first {plan.silent:,} silent" if plan.silent else ""
    planned = ", and no last one" if plan.endless else f" of {plan.rounds:,}"
    say(f"  rounds    {seen['rounds']:,}{planned}{silent}")
    if plan.copies or seen["failures"].sentence or run is not None:
        say(OPERATOR, "bold red")
    if plan.copies:
        say(f"  unsure    {seen['unsure']:,} of {plan.unsure:,} planned{' in this leg' if plan.relay else ''}")
        say(f"  taught    {seen['taught']:,} labels when it was last saved")
    if seen["failures"].sentence:
        say(f"  learner   {seen['failures'].sentence}", "bold red")
    if run is not None:
        say(f"  error     {run.tally.sentence}; {run.tally.bad:,} bad rows")
        say(f"  run       {run.settings.command}")
