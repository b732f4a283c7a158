"""The command `confide run`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from confide.cli.terminal import OPERATOR, console, say, warn
from confide.pop.pop import POP
from confide.runs import advice, report, runner
from confide.runs.checkpoints import read_run
from confide.runs.names import LEARNERS, fallback_named, learner_named, streams
from confide.runs.settings import DELTA, EPSILON, Settings
from confide.runs.tally import Tally

__all__ = ["run"]

SHOWCASE = 1_000_000
"""Rounds of what `confide run` does alone."""

HALTED, INTERRUPTED = 3, 130
"""Exit codes of a run that ran out of budget, and of one that was stopped by Ctrl-C."""

ON_RESUME = {"state", "resume", "report_file", "json", "trusted", "no_twin", "strict"}


def run(
    context: typer.Context,
    stream: Annotated[
        str | None,
        typer.Argument(help="A .csv, .tsv (also .gz) or .parquet file, or agrawal, agrawal:3, sea, led, shuttle …"),
    ] = None,
    learner: Annotated[
        str, typer.Option(help=f"{', '.join(LEARNERS)}, each with (key=value) if wanted, or module:Name.")
    ] = "trees",
    plan: Annotated[
        Path | None, typer.Option(help="A plan of `confide plan --json`: its numbers win; --monitor comes on top.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", "-e", help=f"The promise ε, all in all.  [default: {EPSILON:g}]")
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", "-d", help=f"Probability that it fails.  [default: {DELTA:g}]")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", "-T", help="Rounds; a file's rows if left out.")] = None,
    copies: Annotated[int | None, typer.Option(help="Copies of the learner; chosen if left out.")] = None,
    polls: Annotated[int | None, typer.Option(help="Copies asked in a round.")] = None,
    unsure: Annotated[int | None, typer.Option(help="Unsure answers the run is planned to have.")] = None,
    silent: Annotated[int | None, typer.Option(help="Rounds at the start in which copies only learn.")] = None,
    unit: Annotated[str | None, typer.Option(help="The column that names the person to protect.")] = None,
    unit_unsure: Annotated[int | None, typer.Option(help="Unsure answers one person may receive.")] = None,
    beta: Annotated[float | None, typer.Option(help="Probability of halting early, by chance.")] = None,
    history: Annotated[Path | None, typer.Option(help="Labelled rows to teach first, in the same columns.")] = None,
    delay: Annotated[int, typer.Option(help="Labels come this many rounds later.")] = 0,
    label: Annotated[str | None, typer.Option(help="The label's column; the last one if left out.")] = None,
    labels: Annotated[str | None, typer.Option(help="All labels, a,b,c: public. Else read from the file.")] = None,
    fallback: Annotated[str, typer.Option(help="What answers when unsure: coin, a label, or module:Name.")] = "coin",
    monitor: Annotated[
        float | None, typer.Option(help="Spend this ε, out of --epsilon, on an accuracy that may be shown to others.")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="A new folder for checkpoints: private data and keys.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --state.")] = False,
    trusted: Annotated[bool, typer.Option("--trusted", help="With --resume: load pickled copies.")] = False,
    report_file: Annotated[Path, typer.Option("--report", help="The operator's report.")] = Path("confide-report.html"),
    json: Annotated[Path | None, typer.Option(help="Its numbers; beside the report if left out.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a stream with a bad row.")] = False,
    no_twin: Annotated[bool, typer.Option("--no-twin", help="Leave out the non-private twin.")] = False,
    stream_seed: Annotated[int, typer.Option(help="Seed of a generated stream: public.")] = 0,
    seed: Annotated[int | None, typer.Option(help="INSECURE: replays a run, and promises nothing.")] = None,
) -> None:
    """Answer a stream privately, learn from it, and report to the operator.

    Alone it runs the showcase: a million rounds of a public generator at (1, 10⁻⁶), with decision trees. It ends with
    exit code 3 when the privacy budget was used up before the rounds were, and with 130 after Ctrl-C.

    Examples:

    * `confide run` — the showcase

    * `confide run visits.csv --label outcome --labels yes,no --learner logistic` — your own file

    * `confide run visits.parquet --unit patient --unit-unsure 3` — protect people over all their rows

    * `confide run today.csv --history lastyear.csv --silent 0 --delay 500` — learn from history, labels come late

    * `confide run kdd99 --learner "trees(memory=128)" --copies 4000` — parameters of the learner

    * `confide plan -T 200000 --json plan.json && confide run sea --plan plan.json` — a plan made before

    * `confide run sea -T 200000 --state run1`, Ctrl-C, `confide run --state run1 --resume` — stop and go on
    """
    for path in (report_file, json):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if resume:
        outcome = _resume(_folder(context, state), trusted, strict, no_twin)
    else:
        outcome = _start(_settings(context.params), state)
    report.write_html(outcome, report_file)
    report.write_json(outcome, json or report_file.with_suffix(".json"))
    _summary(outcome, report_file)
    if outcome.out_of_budget or outcome.interrupted:
        raise typer.Exit(HALTED if outcome.out_of_budget else INTERRUPTED)


def _settings(given: dict[str, Any]) -> Settings:
    """What was asked for on the command line."""
    asked = {field.name: given[field.name] for field in fields(Settings) if given.get(field.name) is not None}
    asked |= {name: str(asked[name]) for name in ("plan", "history") if name in asked}
    if "labels" in asked:
        asked["labels"] = tuple(part.strip() for part in asked["labels"].split(","))
    if not asked.keys() & {"stream", "rounds", "plan"}:
        asked["rounds"] = SHOWCASE
    return Settings(**asked, twin=not given["no_twin"])


def _start(settings: Settings, folder: Path | None) -> runner.Outcome:
    filed = settings.filed()
    if filed is not None:
        settings = settings.but(rounds=filed.rounds)
    stream, history = streams(settings)
    prototype, fallback = learner_named(settings.learner), fallback_named(settings.fallback, stream)
    if settings.seed is not None:
        say("insecure: seeded. Nothing is promised in this run; seeds are for tests and replays.", "bold red")
    for note in stream.notes:
        say(f"note: {note}", "yellow")
    plan = settings.tight(len(stream.labels), stream.length) if filed is None else filed
    warn(plan)
    about = f"{plan.rounds:,} rounds, {plan.copies:,} copies, {plan.polls:,} asked in a round; {plan.guarantee}"
    say(f"{stream.name}: {about}")
    with _bar(plan.rounds) as hooks:
        rescue = _free_folder() if folder is None else None
        more: dict[str, Any] = {"fallback": fallback, "history": history, "hooks": hooks}
        return runner.run(stream, prototype, plan, settings, state=folder, rescue=rescue, **more)


def _folder(context: typer.Context, folder: Path | None) -> Path:
    """The folder to go on from; everything that belongs to the run itself is refused."""
    if folder is None:
        raise ValueError("--resume needs --state: the folder of the run to go on with")
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in ON_RESUME:
            raise ValueError(f"--resume goes on with the settings of the run: leave out {name.replace('_', '-')}")
    return folder


def _resume(folder: Path, trusted: bool, strict: bool, no_twin: bool) -> runner.Outcome:
    saved = read_run(folder).settings
    settings = saved.but(strict=saved.strict or strict, twin=saved.twin and not no_twin)
    stream, history = streams(settings)
    prototype, fallback = learner_named(settings.learner), fallback_named(settings.fallback, stream)
    with _bar(settings.rounds or stream.length or 1) as hooks:
        more: dict[str, Any] = {"fallback": fallback, "history": history, "hooks": hooks}
        return runner.resume(folder, stream, prototype, trusted=trusted, settings=settings, **more)


def _free_folder() -> Path:
    """Where an interrupt leaves its checkpoint when no folder was named."""
    for number in range(1, 1000):
        folder = Path("confide-state" if number == 1 else f"confide-state-{number}")
        if not folder.exists():
            return folder
    raise ValueError("there are too many folders called confide-state: remove some, or name one with --state")


@contextmanager
def _bar(rounds: int) -> Iterator[runner.Hooks]:
    columns = (
        *(SpinnerColumn(), TextColumn("{task.fields[state]:>6}"), BarColumn(None)),
        *(TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[speed]}"), TimeRemainingColumn()),
        TextColumn("{task.fields[spent]}", style="dim"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=rounds, state="", speed="", spent="")

        def update(pop: POP, tally: Tally) -> None:
            speed = f"{tally.rounds / max(tally.seconds, 1e-9):,.0f} rounds/s"
            spent = f"unsure {tally.unsure:,}/{pop.plan.unsure:,} (operator only)"
            bar.update(task, completed=pop.rounds, state=pop.state, speed=speed, spent=spent)

        yield runner.Hooks(update, lambda sentence: say(f"note: {sentence}", "yellow"))


def _summary(outcome: runner.Outcome, path: Path) -> None:
    pop, tally, plan = outcome.pop, outcome.tally, outcome.pop.plan
    halted = outcome.out_of_budget
    ended = "[bold red]out of budget[/]" if halted else "interrupted" if outcome.interrupted else "finished"
    rows = [
        ("promise", f"{pop.guarantee} for each {'person' if pop.units == 'people' else 'round'}"),
        ("rounds", f"{pop.rounds:,} of {plan.rounds:,}, the first {plan.silent:,} silent; {ended}"),
        ("speed", f"{outcome.rounds_per_second:,.0f} rounds/s, {tally.seconds:,.1f} s"),
    ]
    if tally.nobodys:
        rows.append(("nobody's", f"{tally.nobodys:,} rows name no unit and took no round"))
    if pop.monitor is not None and pop.monitor.estimate is not None:
        seen = pop.monitor.estimate
        about = f"{max(0, seen.mistakes):,} ± {seen.error:,.0f}"
        rows.append(("monitor", f"(may be shown) {about} mistakes in {seen.rounds:,} rounds, silent ones too"))
    rows += [("", ""), ("", f"[bold red]{OPERATOR}[/]"), *_private_rows(outcome), ("report", escape(str(path)))]
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


def _private_rows(outcome: runner.Outcome) -> list[tuple[str, str]]:
    tally, plan = outcome.tally, outcome.pop.plan
    rows = [("error", f"[bold]{tally.sentence}[/]")]
    if outcome.settings.twin and tally.live:
        rows.append(("twin", f"{tally.twin_error:.3%} for one non-private learner taught everything"))
    rows.append(("unsure", f"{tally.unsure:,} of {plan.unsure:,} planned"))
    if tally.bad:
        line, reason = tally.first_bad[0]
        counts = f"{tally.refused:,} unreadable, {tally.unlabelled:,} without a usable label"
        rows.append(("bad rows", escape(f"{counts}; the first is line {line}: {reason}")))
    return rows


def _advise(outcome: runner.Outcome) -> None:
    say(advice.what_happened(outcome), "red")
    advised = advice.next_settings(outcome)
    if advised is None:
        say(advice.NOTHING, "red")
    else:
        say(f"To try next: {advised.command}", "bold")
    say(advice.AGAIN, "dim")
