"""What `confide run` can be asked: one option a name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confide.planning.promise import DELTA
from confide.runs.names import LEARNERS
from confide.runs.settings import EPSILON

_FILES = "A .csv, .tsv (also .gz) or .parquet file, a folder of them (data/), or visits, sea, led, agrawal:3, shuttle…"
_LEARNERS = f"{', '.join(LEARNERS)}, each with (key=value) if wanted, or module:Name."

# How the options are told apart in --help.
_PROMISE, _FILE, _PLAN, _END = "The promise", "Reading a file", "The plan", "How it goes"


def _option(text: str, panel: str, *names: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(*names, help=text, rich_help_panel=panel)
    return option


Stream = Annotated[str | None, typer.Argument(help=_FILES)]
Epsilon = Annotated[
    float | None, _option(f"The promise ε, all in all.  [default: {EPSILON:g}]", _PROMISE, "--epsilon", "-e")
]
Delta = Annotated[
    float | None, _option(f"Probability that it fails.  [default: {DELTA:g}]", _PROMISE, "--delta", "-d")
]
Protect = Annotated[
    str,
    _option(
        "rows: nobody learns what was asked, nor what was right. labels: only what was right is kept secret.", _PROMISE
    ),
]
Rounds = Annotated[int | None, _option("Rounds; a file's rows if left out.", _PROMISE, "--rounds", "-T")]
Unit = Annotated[str | None, _option("The column that names the person to protect.", _PROMISE)]
UnitUnsure = Annotated[int | None, _option("Unsure answers of the copies that one person may receive.", _PROMISE)]
UnitLabels = Annotated[int | None, _option("Labels of one person that are learned from, ever.", _PROMISE)]
Monitor = Annotated[
    float | None, _option("Spend this ε, out of --epsilon, on an accuracy that may be shown to others.", _PROMISE)
]
Seed = Annotated[int | None, _option("INSECURE: replays a run, and promises nothing.", _PROMISE)]

Label = Annotated[str | None, _option("The label's column; the last one if left out.", _FILE)]
Labels = Annotated[str | None, _option("All labels, a,b,c: public. Else read from the file.", _FILE)]
LabelWeights = Annotated[
    str | None, _option("Make more of rare labels: fraud=20, the others 1. Public.", _FILE, "--label-weights")
]
SchemaFile = Annotated[
    Path | None, _option("What the columns are, as TOML or JSON: see `confide schema`.", _FILE, "--schema")
]
Public = Annotated[Path | None, _option("A public file with the same columns: kinds, labels, ranges.", _FILE)]
Drop = Annotated[str | None, _option("Columns to leave out, a,b,c.", _FILE)]
Order = Annotated[str | None, _option("Columns to sort the rows by, a,b,c: then public.", _FILE)]
History = Annotated[Path | None, _option("Labelled rows to teach first, in the same columns.", _FILE)]
Strict = Annotated[bool, _option("Refuse a stream with a bad row.", _FILE, "--strict")]
StreamSeed = Annotated[int, _option("Seed of a generated stream: public.", _FILE)]

Guide = Annotated[
    bool, _option("Whether a guide may have the budget, or a part of it.", _PLAN, "--guide/--no-guide")
]
Lean = Annotated[
    str | None, _option("What copies that are unsure answer by: none, fill or additive; chosen if left out.", _PLAN)
]
Learner = Annotated[
    str,
    _option(f"What the copies are, where the plan has any; with --protect labels the model itself: {_LEARNERS}", _PLAN),
]
PlanFile = Annotated[
    Path | None, _option("A plan of `confide plan --json`: its numbers win; --monitor comes on top.", _PLAN, "--plan")
]
Copies = Annotated[int | None, _option("Copies of the learner; chosen if left out.", _PLAN)]
Polls = Annotated[int | None, _option("Copies asked in a round.", _PLAN)]
Unsure = Annotated[int | None, _option("Unsure answers the run is planned to have.", _PLAN)]
Silent = Annotated[int | None, _option("Rounds at the start in which copies only learn.", _PLAN)]
Beta = Annotated[float | None, _option("Probability of halting early, by chance.", _PLAN)]
Fallback = Annotated[str, _option("What answers when nothing else may: coin, a label, or module:Name.", _PLAN)]

Delay = Annotated[int, _option("Labels come this many rounds later.", _END)]
State = Annotated[Path | None, _option("A new folder for checkpoints: private data and keys.", _END)]
Resume = Annotated[bool, _option("Go on with the run in --state.", _END, "--resume")]
Trusted = Annotated[bool, _option("With --resume: load pickled copies.", _END, "--trusted")]
Ray = Annotated[bool, _option("Keep the copies on a Ray cluster: RAY_ADDRESS, or one started here.", _END, "--ray")]
Report = Annotated[Path, _option("The operator's report.", _END, "--report")]
Json = Annotated[Path | None, _option("Its numbers; beside the report if left out.", _END)]
NoTwin = Annotated[bool, _option("Leave out what is not private, for comparison.", _END, "--no-twin")]
