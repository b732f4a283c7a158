"""The command `confide run`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from confide.cli import options as given
from confide.cli.summary import bar, summary
from confide.cli.terminal import planning, reading, say
from confide.runs import report, runner
from confide.runs.checkpoints import check_place, read_run
from confide.runs.hints import hints
from confide.runs.names import declared, fallback_named, learner_of, streams, weights_named
from confide.runs.settings import Settings

SHOWCASE = 1_000_000
"""Rounds of what `confide run` does alone."""

HALTED, INTERRUPTED = 3, 130
"""Exit codes of a run with nothing left that learns, and of one that was stopped by Ctrl-C."""

ON_RESUME = {"state", "resume", "report_file", "json", "trusted", "no_twin", "strict", "ray"}

EXAMPLES = """
Examples:

* `confide run` — the showcase

* `confide run visits.csv --label outcome --labels yes,no` — your own file

* `confide schema sample.csv --public -o visits.toml`, then `confide run visits.csv --schema visits.toml`

* `confide run payments.csv --label-weights fraud=20` — find more of a rare label

* `confide run visits/ --label outcome --state run1` — all Parquet files of a folder, however large

* `confide run visits.parquet --unit patient` — protect people over all their rows

* `confide run mails.csv --protect labels` — only the labels are secret: another promise, and fewer errors

* `confide run visits.csv --drop id,notes --order day` — leave columns out, sort the rows

* `confide run today.csv --history lastyear.csv --delay 500` — learn from history, labels come late

* `confide run visits.csv --no-guide --learner "trees(memory=128)" --copies 4000` — copies of a learner alone

* `confide plan -T 200000 --json plan.json && confide run sea --plan plan.json` — a plan made before

* `confide run sea -T 200000 --state run1`, Ctrl-C, `confide run --state run1 --resume` — stop and go on
"""


def run(
    context: typer.Context,
    stream: given.Stream = None,
    epsilon: given.Epsilon = None,
    delta: given.Delta = None,
    protect: given.Protect = "rows",
    rounds: given.Rounds = None,
    unit: given.Unit = None,
    unit_unsure: given.UnitUnsure = None,
    unit_labels: given.UnitLabels = None,
    monitor: given.Monitor = None,
    label: given.Label = None,
    labels: given.Labels = None,
    label_weights: given.LabelWeights = None,
    schema: given.SchemaFile = None,
    public: given.Public = None,
    drop: given.Drop = None,
    order: given.Order = None,
    history: given.History = None,
    strict: given.Strict = False,
    stream_seed: given.StreamSeed = 0,
    guide: given.Guide = True,
    lean: given.Lean = None,
    learner: given.Learner = "trees",
    plan: given.PlanFile = None,
    copies: given.Copies = None,
    polls: given.Polls = None,
    unsure: given.Unsure = None,
    silent: given.Silent = None,
    beta: given.Beta = None,
    fallback: given.Fallback = "coin",
    delay: given.Delay = 0,
    state: given.State = None,
    resume: given.Resume = False,
    trusted: given.Trusted = False,
    ray: given.Ray = False,
    report_file: given.Report = Path("confide-report.html"),
    json: given.Json = None,
    no_twin: given.NoTwin = False,
    seed: given.Seed = None,
) -> None:
    """Answer a stream privately, learn from it, and report to the operator.

    Alone it runs the showcase: a million visits of a made-up clinic, with labels that are partly chance, at
    (1, 10⁻⁶). It ends with exit code 0 when every row was answered, with 3 when the privacy budget of the copies was
    used up, or the learner always failed, and no guide was there to go on, and with 130 after Ctrl-C or a `kill`.
    """
    check_place(report_file, json)
    if trusted and not resume:
        raise ValueError("--trusted is for --resume, which loads copies: leave it out")
    if resume:
        outcome = _resume(_folder(context, state), trusted, strict, no_twin, ray)
    else:
        outcome = _start(_settings(context.params), state)
    report.write_html(outcome, report_file)
    report.write_json(outcome, json or report_file.with_suffix(".json"))
    summary(outcome, report_file)
    if outcome.unanswered or outcome.interrupted:
        raise typer.Exit(INTERRUPTED if outcome.interrupted else HALTED)


def _settings(asked: dict[str, Any]) -> Settings:
    """What was asked for on the command line."""
    known = {field.name: asked[field.name] for field in fields(Settings) if asked.get(field.name) is not None}
    known |= {name: str(known[name]) for name in ("plan", "history", "schema", "public") if name in known}
    for name in ("labels", "label_weights", "drop", "order"):
        if name in known:
            known[name] = tuple(part.strip() for part in known[name].split(","))
    if not known.keys() & {"stream", "rounds", "plan"}:
        known["rounds"] = SHOWCASE
    return Settings(**known, twin=not asked["no_twin"])


def _start(settings: Settings, folder: Path | None) -> runner.Outcome:
    settings, learner = declared(settings), learner_of(settings)  # refused before anything is said or read
    filed = settings.filed()
    if filed is not None and not filed.endless:
        settings = settings.but(rounds=filed.rounds)
    with reading(settings.stream) as told:
        stream, history = streams(settings, told)
    fallback = fallback_named(settings.fallback, stream)
    weights_named(settings.label_weights, stream)  # refused before a plan is searched
    if settings.seed is not None:
        say("insecure: seeded. Nothing is promised in this run; seeds are for tests and replays.", "bold red")
    for note in stream.notes:
        say(f"note: {note}", "yellow")
    records = 0 if history is None else history.length or 0
    with planning(settings.rounds or stream.length):
        plan = settings.tight(len(stream.labels), stream.length, records) if filed is None else filed
    if not plan.copies and settings.learner != Settings.learner and settings.protect == "rows":
        why = plan.notes[0].partition(": ")[2] if plan.notes else "the plan has no copies"
        raise ValueError(
            f"--learner {settings.learner} would never answer: {why}. Leave it out, and the guide answers; or say "
            "--protect labels, and it answers itself, which protects labels and not rows; or ask for copies of it, "
            "with --copies and --unsure, or with --no-guide"
        )
    if settings.ray and not plan.copies:
        raise ValueError("--ray is for copies, and this plan has none: leave it out, or ask for --copies")
    for hint in hints(stream, plan):
        say(f"note: {hint}", "yellow")
    said = plan.explain().splitlines()
    say(f"{stream.name}: {' '.join(said[: 2 if settings.protect == 'labels' else 1])}")
    who = [f"{plan.rest} answers"] if plan.public else []
    if plan.copies:
        who.insert(0, f"{plan.copies:,} copies, {plan.polls:,} asked in a round")
    say("; ".join(who))
    with bar(settings.lasts(plan, stream.length), stream) as hooks:
        rescue = _free_folder() if folder is None else None
        more: dict[str, Any] = {"learner": learner, "fallback": fallback, "history": history, "hooks": hooks}
        return runner.run(stream, plan=plan, settings=settings, state=folder, rescue=rescue, **more)


def _folder(context: typer.Context, folder: Path | None) -> Path:
    """The folder to go on from; everything that belongs to the run itself is refused."""
    if folder is None:
        raise ValueError("--resume needs --state: the folder of the run to go on with")
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in ON_RESUME:
            raise ValueError(f"--resume goes on with the settings of the run: leave out {name.replace('_', '-')}")
    return folder


def _resume(folder: Path, trusted: bool, strict: bool, no_twin: bool, ray: bool) -> runner.Outcome:
    saved = read_run(folder).settings
    settings = saved.but(strict=saved.strict or strict, twin=saved.twin and not no_twin, ray=ray)
    learner = learner_of(settings)
    with reading(settings.stream) as told:
        stream, history = streams(settings, told)
    fallback = fallback_named(settings.fallback, stream)
    with bar(settings.rounds or stream.length or 1, stream) as hooks:
        more: dict[str, Any] = {"learner": learner, "fallback": fallback, "history": history, "hooks": hooks}
        return runner.resume(folder, stream, trusted=trusted, settings=settings, **more)


def _free_folder() -> Path:
    """Where an interrupt leaves its checkpoint when no folder was named."""
    for number in range(1, 1000):
        folder = Path("confide-state" if number == 1 else f"confide-state-{number}")
        if not folder.exists():
            return folder
    raise ValueError("there are too many folders called confide-state: remove some, or name one with --state")
