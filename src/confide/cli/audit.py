"""The command `confide audit`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from confide.cli.terminal import console, say
from confide.extras import need

if TYPE_CHECKING:
    from confide.games.report import Report


def audit(
    only: Annotated[str | None, typer.Argument(help="Which, separated by commas; `list` lists them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few games: a look in a minute or two.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Keep finished games here, and go on with them later.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores if left out.")] = None,
    games: Annotated[float, typer.Option(help="Play so many times the usual number of games.")] = 1.0,
    json: Annotated[Path | None, typer.Option(help="Write all numbers here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the measured curves here: .png, .svg or .pdf.")] = None,
) -> None:
    """Attack Confide with its own adversaries, and say how much it leaks at least.

    Every number is a lower bound that holds with 99 % confidence, all of one audit's together. The command fails if
    more leaks than is promised, or if games do not follow the plan's tables; where all is well, that happens with
    probability at most one in a million, for all audits of one command together.

    Examples:

    * `confide audit --quick` — a first look

    * `confide audit --folder audit` — all of it; stop it with Ctrl-C, and the same command goes on

    * `confide audit eps4,eps8 --plot curves.png` — two of them, with a picture
    """
    rooms: Any = need("confide.games.scenarios", "report", "the audit")  # heavy, and no other command needs it
    known = {scenario.key: scenario for scenario in rooms.SCENARIOS}
    asked = list(known) if only is None else only.split(",")
    if asked == ["list"]:
        say(", ".join(known))
        return
    if unknown := [key for key in asked if key not in known]:
        raise ValueError(f"no audit is called {unknown[0]!r}: take {', '.join(known)}")
    if not games > 0:
        raise ValueError(f"--games {games:g} must be a positive factor")
    picture: Any = None if plot is None else need("confide.games.draw", "report", "drawing a picture")
    done: dict[str, Report] = {}
    level: float = need("confide.games.report", "report", "the audit").ALARM / len(asked)
    shown = console.is_terminal
    for key in asked:
        report = known[key].run(quick=quick, folder=folder, workers=workers, progress=shown, times=games, alarm=level)
        console.print(str(report) + "\n", highlight=False, soft_wrap=True)
        done[key] = report
    console.print(_table(done))
    reports = list(done.values())
    if json is not None:
        json.write_text(json_module.dumps([r.as_dict() for r in reports], indent=1, ensure_ascii=False) + "\n")
    if plot is not None:
        picture.draw(reports, plot)
    if any(report.alarm for report in reports):
        raise ValueError("ALARM: more was measured than is certified; do not use this mechanism")
    if any(report.misfit is not None for report in reports):
        raise ValueError("MISFIT: a mechanism does not follow its plan's tables; do not use it before you know why")


def _table(reports: dict[str, Report]) -> Table:
    """Narrow enough for a terminal of 80 columns; all numbers are above it."""
    level = sum(report.alarm_level for report in reports.values())
    table = Table(title=f"Lower bounds at 99 %; alarm level {level:g}, all together", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("audit", no_wrap=True)
    for heading in ("games", "adv. ≥", "exact", "ratio", "ε ≥", "promised", "ratio", "alarm"):
        table.add_column(heading, justify="right", no_wrap=True)
    for key, report in reports.items():
        certified = report.certified
        advantage = None if report.yardstick is None else report.yardstick.advantage
        table.add_row(
            key,
            f"{report.games:,}",
            f"{report.advantage:.4f}",
            "" if advantage is None else f"{advantage:.4f}",
            "" if not advantage else f"{report.advantage / advantage:.2f}",
            f"{report.epsilon:.3f}",
            "" if certified is None else f"{certified[0]:.2f}",
            "" if certified is None else f"{report.epsilon / certified[0]:.2f}",
            "ALARM" if report.alarm else "MISFIT" if report.misfit is not None else "none",
        )
    return table
