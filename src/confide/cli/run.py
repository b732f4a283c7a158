"""The commands `confide run` and `confide status`."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from confide import learners
from confide.data.datasets import open_stream
from confide.data.rows import Stream
from confide.ledger import state
from confide.planning.plan import Plan
from confide.pop.monitor import Monitor
from confide.pop.pop import POP
from confide.runs import report, runner
from confide.runs.tally import Tally

__all__ = ["learner_named", "register"]

LEARNERS: dict[str, Any] = {
    "trees": learners.DecisionTree,
    "logistic": learners.LogisticRegression,
    "perceptron": learners.Perceptron,
    "pa": learners.PAClassifier,
    "gaussian-nb": learners.GaussianNB,
    "bernoulli-nb": learners.BernoulliNB,
    "knn": learners.KNNClassifier,
}
EARLY = 1e-6
"""Probability that a run halts although its unsure answers were not used up."""

SHOWCASE = {"rounds": 1_000_000, "copies": 5000, "polls": 129, "unsure": 1000, "silent": 400_000}
"""What `confide run` alone does, on Agrawal's function 0."""

OPERATOR = "operator only, outside the guarantee"
ON_RESUME = {"state", "resume", "report_file", "json", "trusted", "no_twin", "strict"}
console = Console()


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command()(run)
    app.command()(status)


def learner_named(text: str) -> Any:
    """A learner by name, with parameters if wanted, or by import path.

    Examples
    --------
    >>> learner_named("logistic(learning_rate=0.3)").learning_rate
    0.3
    >>> learner_named("confide.learners:Perceptron")
    Perceptron(l2=0.0, scale=True, class_weight=None, warmup=1, labels=2)
    """
    name, opened, _ = text.partition("(")
    if name in LEARNERS:
        thing = LEARNERS[name]
    elif ":" in name:
        module, _, attribute = name.partition(":")
        if "" not in sys.path:
            sys.path.insert(0, "")  # modules in the folder one stands in
        try:
            thing = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"--learner {text!r} cannot be imported: {error}") from None
    else:
        raise ValueError(f"no learner is called {name!r}: take {', '.join(LEARNERS)}, or module:Name")
    options = _options(text) if opened else {}
    made = thing(**options) if isinstance(thing, type) or (callable(thing) and not hasattr(thing, "predict")) else thing
    if opened and made is thing:
        raise ValueError(f"--learner {text!r} is made already and takes no parameters")
    return made


def _options(text: str) -> dict[str, Any]:
    """The parameters in name(key=value, …), plain values only."""
    try:
        call = ast.parse("f(" + text.partition("(")[2], mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
    except (SyntaxError, ValueError, AssertionError):
        raise ValueError(f"--learner {text!r}: write parameters as name(key=value, key=value)") from None


def run(
    context: typer.Context,
    stream: Annotated[
        str | None,
        typer.Argument(
            help="A .csv, .csv.gz or .parquet file, or agrawal, agrawal:3, sea, led, shuttle, kdd99, elec …"
        ),
    ] = None,
    learner: Annotated[
        str, typer.Option(help=f"{', '.join(LEARNERS)}, each with (key=value) if wanted, or module:Name.")
    ] = "trees",
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The promise ε, all in all.")] = 1.0,
    delta: Annotated[float, typer.Option("--delta", "-d", help="Probability that the promise fails.")] = 1e-6,
    rounds: Annotated[int | None, typer.Option("--rounds", "-T", help="Rounds; a file's rows if left out.")] = None,
    copies: Annotated[int | None, typer.Option(help="Copies of the learner; chosen if left out.")] = None,
    polls: Annotated[int | None, typer.Option(help="Copies asked in a round.")] = None,
    unsure: Annotated[int | None, typer.Option(help="Unsure answers the run is planned to have.")] = None,
    silent: Annotated[int | None, typer.Option(help="Rounds at the start in which copies only learn.")] = None,
    unit: Annotated[str | None, typer.Option(help="The column that names the person to protect.")] = None,
    unit_unsure: Annotated[int, typer.Option(help="Unsure answers one person may receive.")] = 1,
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
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad row.")] = False,
    no_twin: Annotated[bool, typer.Option("--no-twin", help="Leave out the non-private twin.")] = False,
    stream_seed: Annotated[int, typer.Option(help="Seed of a generated stream: public.")] = 0,
    seed: Annotated[int | None, typer.Option(help="INSECURE: replays a run, and promises nothing.")] = None,
) -> None:
    """Answer a stream privately, learn from it, and report to the operator.

    Alone it runs the showcase: a million rounds of a public generator at (1, 10⁻⁶), with decision trees.

    Examples:

    * `confide run` — the showcase

    * `confide run visits.csv --label outcome --labels yes,no --learner logistic` — your own file

    * `confide run visits.parquet --unit patient --unit-unsure 3` — protect people over all their rows

    * `confide run today.csv --history lastyear.csv --silent 0 --delay 500` — learn from history, labels come late

    * `confide run kdd99 --learner "trees(memory=128)" --copies 4000` — parameters of the learner

    * `confide run sea -T 200000 --state run1`, Ctrl-C, `confide run --state run1 --resume` — stop and go on
    """
    if resume:
        outcome = _resume(context, state, trusted, strict, no_twin)
    else:
        settings: dict[str, Any] = {
            "stream": stream or "agrawal",
            **{"learner": learner, "epsilon": epsilon, "delta": delta, "rounds": rounds, "copies": copies},
            **{"polls": polls, "unsure": unsure, "silent": silent, "unit": unit, "unit-unsure": unit_unsure},
            **{"history": None if history is None else str(history), "delay": delay, "label": label, "labels": labels},
            **{"fallback": fallback, "monitor": monitor, "strict": strict, "no-twin": no_twin},
            **{"stream-seed": stream_seed, "seed": seed},
        }
        if stream is None and rounds is None:
            settings.update({name: value for name, value in SHOWCASE.items() if settings[name] is None})
        outcome = _start(settings, state)
    report.write_html(outcome, report_file)
    report.write_json(outcome, json or report_file.with_suffix(".json"))
    _summary(outcome, report_file)


def _start(settings: dict[str, Any], folder: Path | None) -> runner.Outcome:
    rows, prototype = _streams(settings), learner_named(settings["learner"])
    stream, history = rows
    if stream.length is None:
        raise ValueError("say how many rounds there will be with --rounds")
    rounds = settings["rounds"] or stream.length
    spent = settings["monitor"] or 0.0
    if not spent < settings["epsilon"]:
        raise ValueError("--monitor is a part of --epsilon and must be smaller: a tenth of it is usual")
    if settings["seed"] is not None:
        _say("insecure: seeded. Nothing is promised in this run; seeds are for tests and replays.", "bold red")
    for note in stream.notes:
        _say(f"note: {note}", "yellow")
    people = settings["unit"] is not None
    plan = Plan.tight(
        settings["epsilon"] - spent,
        settings["delta"],
        rounds,
        copies=settings["copies"],
        unsure=settings["unsure"],
        polls=settings["polls"],
        silent=settings["silent"],
        unit_unsure=settings["unit-unsure"],
        labels=len(stream.labels),
        beta=EARLY,
    )
    _say(f"{stream.name}: {rounds:,} rounds, {plan.copies:,} copies, {plan.polls:,} asked in a round; {plan.guarantee}")
    with _bar(rounds) as progress:
        return runner.run(
            stream,
            prototype,
            plan,
            fallback=_fallback(settings["fallback"], stream),
            people=people,
            delay=settings["delay"],
            history=history,
            monitor=None if not spent else Monitor(spent, delay=max(1000, settings["delay"] + 1)),
            state=folder,
            rescue=_free_folder() if folder is None else None,
            twin=not settings["no-twin"],
            strict=settings["strict"],
            seed=settings["seed"],
            settings=settings,
            progress=progress,
        )


def _resume(context: typer.Context, folder: Path | None, trusted: bool, strict: bool, no_twin: bool) -> runner.Outcome:
    if folder is None:
        raise ValueError("--resume needs --state: the folder of the run to go on with")
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in ON_RESUME:
            raise ValueError(f"--resume goes on with the settings of the run: leave out {name.replace('_', '-')}")
    settings = runner.saved_run(folder)["settings"]
    stream, history = _streams(settings)
    fallback = _fallback(settings["fallback"], stream)
    with _bar(settings["rounds"] or stream.length or 1) as progress:
        return runner.resume(
            folder,
            stream,
            learner_named(settings["learner"]),
            fallback=fallback,
            delay=settings["delay"],
            history=history,
            trusted=trusted,
            twin=not (no_twin or settings["no-twin"]),
            strict=strict or settings["strict"],
            progress=progress,
        )


def _streams(settings: dict[str, Any]) -> tuple[Stream, Stream | None]:
    given = settings["labels"]
    labels = None if given is None else [part.strip() for part in given.split(",")]
    columns = {"label": settings["label"], "unit": settings["unit"]}
    options: dict[str, Any] = {"rows": settings["rounds"], "seed": settings["stream-seed"]}
    stream = open_stream(settings["stream"], **options, labels=labels, **columns)
    if settings["history"] is None:
        return stream, None
    known = [str(label) for label in stream.labels]
    history = open_stream(settings["history"], labels=known, **columns)
    if history.names != stream.names or history.width != stream.width:
        raise ValueError("--history has other columns than the stream: they must be the same, in the same order")
    return stream, history


def _fallback(text: str, stream: Stream) -> Any:
    """The fallback meant: one of the labels first, else a coin or something to import."""
    for label in stream.labels:
        if str(label) == text:
            return label
    if ":" in text:
        return learner_named(text)
    if text != "coin":
        raise ValueError(f"--fallback {text!r} must be coin, module:Name or one of the labels")
    return text


def _free_folder() -> Path:
    """Where an interrupt leaves its checkpoint when no folder was named."""
    for number in range(1, 1000):
        folder = Path("confide-state" if number == 1 else f"confide-state-{number}")
        if not folder.exists():
            return folder
    raise ValueError("there are too many folders called confide-state: remove some, or name one with --state")


@contextmanager
def _bar(rounds: int) -> Iterator[runner.Progress]:
    columns = (
        *(SpinnerColumn(), TextColumn("{task.fields[state]:>6}"), BarColumn(None)),
        *(
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[spent]}", style="dim"),
        ),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=rounds, state="", speed="", spent="")

        def update(pop: POP, tally: Tally) -> None:
            speed = f"{tally.rounds / max(tally.seconds, 1e-9):,.0f} rounds/s"
            spent = f"unsure {tally.unsure:,}/{pop.plan.unsure:,} (operator only)"
            bar.update(task, completed=pop.rounds, state=pop.state, speed=speed, spent=spent)

        yield update


def _summary(outcome: runner.Outcome, path: Path) -> None:
    pop, tally, plan = outcome.pop, outcome.tally, outcome.pop.plan
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("promise", f"{pop.guarantee} for each {'person' if pop.units == 'people' else 'round'}")
    ended = "out of budget" if pop.halt_reason == "budget" else "interrupted" if outcome.interrupted else "finished"
    table.add_row("rounds", f"{pop.rounds:,} of {plan.rounds:,}, the first {plan.silent:,} silent; {ended}")
    table.add_row("speed", f"{outcome.rounds_per_second:,.0f} rounds/s, {tally.seconds:,.1f} s")
    if pop.monitor is not None and pop.monitor.estimate is not None:
        seen = pop.monitor.estimate
        about = f"{max(0, seen.mistakes):,} ± {seen.error:,.0f}"
        table.add_row("monitor", f"(may be shown) {about} mistakes in {seen.rounds:,} rounds, silent ones too")
    table.add_row("", "")
    table.add_row("", f"[bold red]{OPERATOR}[/]")
    table.add_row("error", f"[bold]{tally.error:.3%}[/] of {tally.live:,} live rounds ({tally.mistakes:,} mistakes)")
    if outcome.twin:
        table.add_row("twin", f"{tally.twin_error:.3%} for one non-private learner taught everything")
    table.add_row("unsure", f"{tally.unsure:,} of {plan.unsure:,} planned")
    if tally.bad:
        line, reason = tally.first_bad[0]
        table.add_row("bad rows", f"{tally.bad:,}; the first is line {line}: {reason}")
    table.add_row("report", str(path))
    if outcome.folder is not None:
        onward = f"; go on: confide run --state {outcome.folder} --resume" if outcome.interrupted else ""
        table.add_row("state", f"{outcome.folder}{onward}")
    console.print(Panel(table, title=f"confide run {outcome.stream.name}", title_align="left", expand=False))


def status(
    folder: Annotated[Path, typer.Argument(metavar="STATE", help="The folder of a run, or of a saved POP.")],
) -> None:
    """Say where a run stands, from what it last wrote: first what is public, then what is not.

    Example: `confide run sea -T 200000 --state run1`, and in another window `confide status run1`
    """
    inside = folder / "pop" if (folder / "run.json").exists() else folder
    seen = state.look(inside)
    plan = Plan.from_json(seen["plan"])
    where = (
        "silent" if seen["round"] < plan.silent else "live" if seen["round"] < plan.rounds else "all rounds are over"
    )
    where = f"halted: {seen['halted']}" if seen["halted"] else where
    saved = None if inside == folder else runner.saved_run(folder)
    spent = 0.0 if saved is None else saved["settings"].get("monitor") or 0.0
    promise = replace(plan.guarantee, epsilon=plan.guarantee.epsilon + spent, secure=not seen["insecure"])
    _say("public", "bold")
    _say(f"  promise   {promise}")
    _say(f"  units     {seen['units']}")
    _say(f"  state     {where}")
    _say(f"  rounds    {seen['round']:,} of {plan.rounds:,}, the first {plan.silent:,} silent")
    _say(OPERATOR, "bold red")
    _say(f"  unsure    {seen['unsure']:,} of {plan.unsure:,} planned")
    _say(f"  taught    {seen['taught']:,} labels")
    if saved is not None:
        tally = Tally(**saved["tally"])
        _say(f"  error     {tally.error:.3%} of {tally.live:,} live rounds; {tally.bad:,} bad rows")
        _say(f"  run       {report.command(saved['settings'])}")


def _say(text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
