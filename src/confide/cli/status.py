"""The command `confide status`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from confide.cli.terminal import OPERATOR, say
from confide.ledger import state
from confide.planning.plan import Guarantee, Plan
from confide.runs.checkpoints import read_run

__all__ = ["status"]


@dataclass(frozen=True)
class _Seen:
    """What a saved mechanism says about itself."""

    plan: Plan
    guarantee: Guarantee
    units: str
    rounds: int
    halted: str | None
    unsure: int
    taught: int

    @property
    def where(self) -> str:
        if self.halted:
            return f"halted: {'its privacy budget is used up' if self.halted == 'budget' else 'its rounds are over'}"
        if self.rounds >= self.plan.rounds:
            return "all rounds are over"
        return "silent" if self.rounds < self.plan.silent else "live"


def _look(folder: Path) -> _Seen:
    seen = state.look(folder)
    plan = Plan.from_json(seen["plan"])
    monitor = seen["monitor"]
    spent = 0.0 if monitor is None else monitor["epsilon"]
    promise = replace(plan.guarantee, epsilon=plan.guarantee.epsilon + spent, secure=not seen["insecure"])
    rounds = min(seen["round"], plan.rounds)  # rounds are reserved in blocks, and the last block goes beyond the end
    return _Seen(plan, promise, seen["units"], rounds, seen["halted"], seen["unsure"], seen["taught"])


def status(
    folder: Annotated[Path, typer.Argument(metavar="STATE", help="The folder of a run, or of a saved POP.")],
) -> None:
    """Say where a run stands, from what it last wrote: first what is public, then what is not.

    Example: `confide run sea -T 200000 --state run1`, and in another window `confide status run1`
    """
    run = read_run(folder) if (folder / "run.json").exists() else None
    seen = _look(folder if run is None else folder / "pop")
    say("public", "bold")
    say(f"  promise   {seen.guarantee}")
    say(f"  units     {seen.units}")
    say(f"  state     {seen.where}")
    say(f"  rounds    {seen.rounds:,} of {seen.plan.rounds:,}, the first {seen.plan.silent:,} silent")
    say(OPERATOR, "bold red")
    say(f"  unsure    {seen.unsure:,} of {seen.plan.unsure:,} planned")
    say(f"  taught    {seen.taught:,} labels when it was last saved")
    if run is not None:
        tally = run.tally
        say(f"  error     {tally.error:.3%} of {tally.live:,} live rounds; {tally.bad:,} bad rows")
        say(f"  run       {run.settings.command}")
