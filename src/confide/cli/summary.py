"""What `confide run` shows while it runs, and when it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from confide.cli.terminal import OPERATOR, console, say
from confide.data.rows import Stream
from confide.pop.base import SOURCES
from confide.pop.pop import POP
from confide.runs import advice, runner
from confide.runs.tally import LATE, Tally, percent
from confide.runs.verdict import failed, rare, recalls, state_of, taught_of_brought
from confide.runs.worth import worth


@contextmanager
def bar(rounds: int, stream: Stream) -> Iterator[runner.Hooks]:
    """A bar that moves, and what moves it; of a folder it says which row of which file was asked last."""
    columns = (
        *(SpinnerColumn(), TextColumn("{task.fields[state]:>6}"), BarColumn(None)),
        *(TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[speed]}"), TimeRemainingColumn()),
        *(TextColumn("{task.fields[place]}", markup=False), TextColumn("{task.fields[spent]}", style="dim")),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=rounds, state="", speed="", spent="", place="")
        begun = {""}

        def update(pop: POP, tally: Tally) -> None:
            speed = f"{tally.rounds / max(tally.seconds, 1e-9):,.0f} rounds/s"
            spent = f"unsure {tally.unsure:,}/{pop.plan.unsure:,} (operator only)" if pop.plan.copies else ""
            place = stream.where(tally.position) if len(stream.files) > 1 and tally.position else ""
            if not console.is_terminal and (name := place.partition(" of ")[2]) not in begun:
                begun.add(name)
                say(f"{tally.position:,} rows read; now in {name}")
            progress.update(task, completed=pop.rounds, state=pop.state, speed=speed, spent=spent, place=place)

        yield runner.Hooks(update, lambda sentence: say(f"note: {sentence}", "yellow"))


def summary(outcome: runner.Outcome, path: Path) -> None:
    """How the run ended: first what is public, then what is not."""
    halted = outcome.out_of_budget
    rows = [
        *_public_rows(outcome),
        *(("", ""), ("", f"[bold red]{OPERATOR}[/]")),
        *_private_rows(outcome),
        ("report", escape(str(path))),
    ]
    if outcome.folder is not None:
        onward = f"; go on: confide run --state {outcome.folder} --resume" if outcome.interrupted else ""
        rows.append(("state", escape(f"{outcome.folder}{onward}")))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for row in rows:
        table.add_row(*row)
    frame: dict[str, Any] = {"border_style": "red"} if halted else {}
    title = escape(f"confide run {outcome.stream.name}")
    console.print(Panel(table, title=title, title_align="left", expand=False, **frame))
    if halted:
        _advise(outcome)


def _public_rows(outcome: runner.Outcome) -> list[tuple[str, str]]:
    pop, tally, plan = outcome.pop, outcome.tally, outcome.pop.plan
    ended = state_of(outcome)
    ended = f"[bold red]{ended}[/]" if outcome.out_of_budget else ended
    silent = f", the first {plan.silent:,} silent" if plan.silent else ""
    last = ", and no last one" if plan.endless else f" of {plan.rounds:,}"
    rows = [
        ("promise", f"{pop.guarantee.brief} for each {'person' if pop.units == 'people' else 'round'}"),
        *([("protected", pop.guarantee.protected)] if plan.promise.protect == "labels" else []),
        ("rounds", f"{pop.rounds:,}{last}{silent}; {ended}"),
        ("speed", f"{outcome.rounds_per_second:,.0f} rounds/s, {tally.seconds:,.1f} s"),
    ]
    if tally.nobodys:
        rows.append(("nobody's", f"{tally.nobodys:,} rows name no unit and took no round"))
    if pop.monitor is not None and pop.monitor.estimate is not None:
        seen = pop.monitor.estimate
        about = f"{max(0, seen.mistakes):,} ± {seen.error:,.0f}"
        rows.append(("monitor", f"(may be shown) {about} mistakes {pop.monitor.among(pop.units)}"))
    return rows


def _private_rows(outcome: runner.Outcome) -> list[tuple[str, str]]:
    tally, plan = outcome.tally, outcome.pop.plan
    late = f"after the first {LATE:.0%}"
    rows = [("error", f"[bold]{tally.sentence}[/]; {percent(tally.late_error)} {late}")]
    errors, called = tally.errors(), {"guide": "model"} if plan.promise.protect == "labels" else {}
    answered = [
        f"{called.get(name, name)} {counts[0] / max(1, tally.rounds):.1%} (wrong {percent(errors[name])})"
        for name, counts in sorted(tally.sources.items(), key=lambda item: -SOURCES.index(item[0]))
    ]
    if tally.refused:
        answered.append(f"nobody {tally.refused / max(1, tally.rounds):.1%}: unreadable rows")
    rows.append(("answers by", ", ".join(answered)))
    if (lost := outcome.pop.rounds - tally.rounds) > 0:
        rows.append(("not counted", f"{lost:,} rounds, after the last checkpoint of a run that was cut off"))
    if plan.guide is not None and plan.copies and tally.guided:  # alone, its answers are the answers
        rows.append(("guide", f"{percent(tally.late(tally.curve_guide))} of its own answers wrong {late}"))
    if said := taught_of_brought(outcome):
        rows.append(("taught", said))
    if outcome.settings.twin and tally.rounds:
        rows.append(("twin", f"{percent(tally.late(tally.curve_twin))} wrong {late}: {outcome.twin}"))
    frequent = escape(repr(str(outcome.stream.labels[tally.frequent])))
    always = f"{percent(tally.late(tally.curve_frequent))} wrong {late} if always the most frequent label"
    rows.append(("frequent", f"{always}, {frequent} in the end, were answered"))
    rows.append(("balanced", f"{percent(tally.balanced_error)} balanced error: every label as heavy as any other"))
    rows.append(("recall", escape(recalls(outcome))))
    if (least := rare(outcome)) is not None:
        rows.append(("rare", escape(" ".join(least))))
    if plan.copies:
        rows.append(("unsure", f"{tally.unsure:,} of {plan.unsure:,} planned"))
    if tally.bad:
        line, reason = tally.first_bad[0]
        counts = f"{tally.refused:,} unreadable, {tally.unlabelled:,} without a usable label"
        counts += f", {tally.nobodys:,} of nobody, which took no round" if tally.nobodys else ""
        place = f"{outcome.stream.where(line)}: " if line else ""
        rows.append(("bad rows", escape(f"{counts}; the first is {place}{reason}")))
    alarms = ("learner", failed(outcome)), ("worth", worth(outcome))
    rows += [(name, f"[bold red]{escape(said)}[/]") for name, said in alarms if said]
    return rows


def _advise(outcome: runner.Outcome) -> None:
    say(advice.what_happened(outcome), "red")
    advised = advice.next_settings(outcome)
    if advised is None:
        say(advice.NOTHING, "red")
    else:
        say(f"To try next: {advised.command}", "bold")
    say(advice.AGAIN, "dim")
