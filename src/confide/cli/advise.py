"""The command `confide advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from confide.cli import options as given
from confide.cli.terminal import console, say
from confide.data.pieces import FILES
from confide.data.rows import Stream
from confide.planning.promise import DELTA
from confide.runs.advising import LEARNERS, MOST_ROWS, WARNING, Advice, Deployment, advise_sample
from confide.runs.checkpoints import check_place, write_private
from confide.runs.names import declared, streams
from confide.runs.page import HEADINGS, cells, proposal
from confide.runs.rehearsal import Sample
from confide.runs.settings import EPSILON, Settings

_FILE = "A public .csv, .tsv (also .gz) or .parquet file with rows like the stream's, or visits, sea …"
_ROUNDS = "How many rounds the real stream will have."
_LEARNERS = f"What copies are tried of; may be repeated.  [default: {', '.join(LEARNERS)}]"
_UNIT = "The column that names the person to protect; the file then has all rows of its people."


def advise(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help=_FILE)],
    public: Annotated[bool, typer.Option("--public", help="Confirm that the file is nobody's secret.")] = False,
    epsilon: given.Epsilon = None,
    delta: given.Delta = None,
    rounds: Annotated[int | None, typer.Option("--rounds", "-T", help=_ROUNDS)] = None,
    history: Annotated[int, typer.Option(help="Labelled rows that will be taught before the first round.")] = 0,
    unit: Annotated[str | None, typer.Option(help=_UNIT)] = None,
    unit_unsure: given.UnitUnsure = None,
    unit_labels: given.UnitLabels = None,
    label: given.Label = None,
    labels: given.Labels = None,
    schema: given.SchemaFile = None,
    drop: given.Drop = None,
    order: given.Order = None,
    learner: Annotated[list[str] | None, typer.Option(help=_LEARNERS)] = None,
    report_file: Annotated[Path, typer.Option("--report", help="The advice as a page.")] = Path("confide-advice.html"),
    json: Annotated[Path, typer.Option(help="Write the proposed plan here.")] = Path("confide-plan.json"),
) -> None:
    """NEVER for protected data: propose a plan from a public sample, by rehearsing several on it.

    The proposal depends on every row of the file, and a plan is public. So the file must be nobody's secret: a public
    data set, made-up rows, or old ones whose people need no protection any more. `--public` confirms that.

    Examples:

    * `confide advise sample.csv --public --label outcome -e 2 -T 500000` — for half a million rounds at ε = 2

    * `confide advise sample.csv --public --unit patient -T 200000` — to protect people over all their rows

    * `confide run visits.csv --plan confide-plan.json --public sample.csv` — then run what it proposed
    """
    if not public:
        raise ValueError(
            f"{file} may be measured only if it is nobody's secret, since the proposal depends on every row of it: "
            "confirm that with --public"
        )
    if rounds is None:
        raise ValueError("say with --rounds how many rounds the real stream will have")
    check_place(report_file, json)
    settings = declared(_settings(context.params))
    if not settings.people and {unit_unsure, unit_labels} - {None, 1}:
        raise ValueError("--unit-unsure and --unit-labels are for people: say with --unit which column names them")
    promise = EPSILON if epsilon is None else epsilon, DELTA if delta is None else delta, rounds
    asked = Deployment(*promise, history, unit_unsure, unit_labels, settings.people)
    stream, _ = streams(settings)
    say(WARNING, "bold red")
    advice = _with_bar(_sample(stream, asked), asked, learner or LEARNERS)
    command = _command(settings, advice, json)
    _show(advice, command)
    write_private(json, advice.plan.to_json())
    write_private(report_file, proposal(advice, stream.name, command))
    say(f"plan written to {json}, page to {report_file}")


def _settings(asked: dict[str, Any]) -> Settings:
    """How the sample is read; a file that is public tells kinds and ranges of its columns too."""
    known: dict[str, Any] = {name: asked[name] for name in ("label", "unit") if asked[name] is not None}
    for name in ("labels", "drop", "order"):
        if asked[name] is not None:
            known[name] = tuple(part.strip() for part in asked[name].split(","))
    file, schema = asked["file"], asked["schema"]
    if schema is not None:
        known["schema"] = str(schema)
    elif file.endswith(FILES):
        known["public"] = file
    return Settings(file, rounds=MOST_ROWS, **known)


def _sample(stream: Stream, asked: Deployment) -> Sample:
    """The rows that can be used, as many as are read."""
    xs, ys, units, left = [], [], [], 0
    index = {label: i for i, label in enumerate(stream.labels)}
    for item in stream.rows():
        if item.x is None or item.y is None or (asked.people and item.unit is None):
            left += 1
            continue
        xs.append(item.x)
        ys.append(index[item.y])
        units.append(item.unit)
        if len(xs) == MOST_ROWS:
            say(f"note: the first {MOST_ROWS:,} rows are used", "yellow")
            break
    if left:
        say(f"note: {left:,} rows of the sample cannot be read, or have no usable label, and are left out", "yellow")
    rows: Any = np.array(xs) if isinstance(stream.features, int) else xs
    people = tuple(unit for unit in units if unit is not None) if asked.people else None
    return Sample(rows, np.array(ys, dtype=np.int64), stream.labels, stream.features, people)


def _with_bar(sample: Sample, asked: Deployment, learners: Any) -> Advice:
    columns = (SpinnerColumn(), BarColumn(30), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")

        def progress(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        return advise_sample(sample, asked, learners, progress)


def _command(settings: Settings, advice: Advice, plan: Path) -> str:
    """How to run the plan on the real stream."""
    stream = "YOUR.csv" if settings.public or settings.schema else settings.stream
    history = "HISTORY.csv" if advice.asked.history else None
    learner = advice.learner or Settings.learner
    return settings.but(stream=stream, rounds=None, plan=str(plan), learner=learner, history=history).command


def _show(advice: Advice, command: str) -> None:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for i, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if i else "left", no_wrap=bool(i))
    for one in (*advice.table, *advice.changes):
        table.add_row(*cells(one), style="bold" if one is advice.chosen else None)
    console.print(table)
    say("\n".join(advice.explain().splitlines()[1:]))
    say(f"To run it: {command}", "bold")
