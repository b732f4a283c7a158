"""Run a stream through POP: ask, learn, keep the operator's tallies, leave checkpoints, go on from them.

A row that cannot be read takes its round like any other, as a malformed question of its unit; so what one unit sends
decides nothing for others (docs/proofs/people.md). Everything tallied is exact, for the operator's eyes only, and
outside the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from confide._checks import label_weights
from confide.banks.ray import place_named
from confide.data.looks import LOST
from confide.data.rows import BadRow, Stream
from confide.learners import Columns, Features, Pipeline
from confide.planning.plan import Plan
from confide.pop.base import TICKET_LIFE
from confide.pop.monitor import Monitor
from confide.pop.pop import POP
from confide.pop.randomizing import takes_rows
from confide.pop.state import look
from confide.runs.asking import questions
from confide.runs.checkpoints import check_files, read_run
from confide.runs.names import weights_named
from confide.runs.regression import Regression
from confide.runs.settings import Settings
from confide.runs.tally import Tally
from confide.runs.twin import LabelTwin, Twin
from confide.runs.work import Progress, Work, interrupts, warned_once

BLOCKS = 200
"""Points of a curve."""

FIRST = 128
"""Rows of which at least one must fit the learner."""

LABEL_TIME = 1000
"""Rounds that the private monitor waits for a label, or longer where labels come later."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    pop: POP
    stream: Stream
    tally: Tally
    settings: Settings
    interrupted: bool
    folder: Path | None
    """Where the checkpoint is."""
    heard: tuple[str, ...] = ()
    """What was said while it ran."""

    @property
    def rounds_per_second(self) -> float:
        """Rounds a second, everything included."""
        return self.tally.rounds / self.tally.seconds if self.tally.seconds else float("nan")

    @property
    def out_of_budget(self) -> bool:
        """Whether the copies' privacy budget was used up before the rounds were."""
        return self.tally.halted_at is not None and self.tally.halted_at < self.pop.plan.horizon

    @property
    def unasked(self) -> int:
        """Rows that were left when the planned rounds were over, as far as their number is known."""
        left = (self.stream.length or 0) - self.tally.position
        return max(0, left) if self.pop.rounds >= self.settings.last(self.pop.plan) else 0

    @property
    def twin(self) -> str:
        """What the twin is, in words."""
        if self.pop.plan.promise.protect == "labels":
            return LabelTwin.what
        return Twin.what if self.pop.plan.copies else Regression.what

    @property
    def unanswered(self) -> bool:
        """Whether nothing that learns was left to answer: no guide, and copies that halted or a learner that failed."""
        return (self.out_of_budget or self.in_vain) and self.pop.plan.guide is None

    @property
    def in_vain(self) -> bool:
        """Whether the learner never learned, or never answered, and failed whenever it was to."""
        own, failures = self.pop.operator.randomizing, self.pop.operator.failures
        if own is not None:
            return bool(own.in_vain)
        mute = 0 < failures.votes <= failures.raised + failures.no_label
        return mute or (failures.lessons > 0 and not self.pop.operator.taught)


def _quiet(_: str) -> None:
    return None


@dataclass(frozen=True)
class Hooks:
    """What a run tells while it goes on.

    Parameters
    ----------
    progress
        Called after every thousand rounds, or several times a second.
    say
        Called with a sentence that the operator should read.
    """

    progress: Progress | None = None
    say: Callable[[str], None] = _quiet


def run(
    stream: Stream,
    learner: Any,
    plan: Plan,
    settings: Settings | None = None,
    *,
    fallback: Any = "coin",
    history: Stream | None = None,
    state: Path | None = None,
    rescue: Path | None = None,
    hooks: Hooks | None = None,
) -> Outcome:
    """Ask every row of the stream, teach its label, and count.

    Parameters
    ----------
    stream
        The rows; its labels and features are public.
    learner, fallback
        As for `POP`; where rows are protected and the plan has no copies the learner is not used.
    plan
        Made for as many labels as the stream has; the run ends after its rounds at the latest.
    settings
        Whom to protect, when labels come, the monitor, the twin; kept in checkpoints and report.
    history
        Labelled rows to teach first.
    state, rescue
        A folder for checkpoints, or only for the one that an interrupt leaves.
    hooks
        What to call while the run goes on.

    Examples
    --------
    >>> import confide
    >>> from confide.data.datasets import open_stream
    >>> from confide.learners import DecisionTree
    >>> plan = confide.Plan.tight(4.0, 1e-4, 9000)
    >>> run(open_stream("visits", rows=9000), DecisionTree(), plan).tally.rounds
    9000
    """
    settings = settings or Settings(stream.name)
    _check_unit(stream, settings)
    learner = learner if plan.copies or plan.promise.protect == "labels" else None
    dicts = _takes_dicts(learner)
    if settings.strict:
        _check_all(stream)
    features = None if dicts else stream.features
    weights = weights_named(settings.label_weights, stream)
    given = {"labels": stream.labels, "fallback": fallback, "features": features, "label_weights": weights}
    if plan.relay:
        raise ValueError("a run's report knows copies that halt, and no relay: use confide.evaluate, or serve the plan")
    pop = POP(learner, plan, **given, **_asked(settings), bank=place_named("ray" if settings.ray else "local"))
    _check_first(pop, stream, dicts)
    tally = Tally(len(stream.labels), max(1, settings.lasts(plan, stream.length) // BLOCKS))
    work = Work(pop, stream, settings, tally, _twin(learner, stream, settings), dicts)
    if history is not None:
        work.teach_history(history)
    if state is not None:
        work.open_folder(state)
    return _go(work, rescue, hooks or Hooks())


def resume(
    folder: Path,
    stream: Stream,
    learner: Any,
    *,
    fallback: Any = None,
    history: Stream | None = None,
    trusted: bool = False,
    settings: Settings | None = None,
    hooks: Hooks | None = None,
) -> Outcome:
    """Go on from a checkpoint, after the last row that was asked; the arguments are those of `run`.

    Rows are counted by the ledger, which has every round before its answer. The history is not taught again; the twin,
    which is not kept on disk, is taught from the start.
    """
    saved = read_run(folder)
    settings = settings or saved.settings
    check_files(saved.files, stream.files)
    _check_unit(stream, settings)
    if settings.strict:
        _check_all(stream)
    plan = look(folder / "pop")["plan"]
    learner = learner if plan.copies or plan.promise.protect == "labels" else None
    where = place_named("ray" if settings.ray else "local")
    pop = POP.load(folder / "pop", learner=learner, fallback=fallback, trusted=trusted, bank=where)
    try:
        if tuple(pop.labels) != stream.labels:
            raise ValueError("the stream has other labels than the saved run: give the stream that it was started with")
        work = Work(pop, stream, settings, saved.tally, _twin(learner, stream, settings), _takes_dicts(learner))
        if history is not None:
            work.teach_history(history, twin_only=True)
        work.catch_up(saved.waiting)
        work.folder = folder
        return _go(work, None, hooks or Hooks())
    except BaseException:
        pop.close()
        raise


def _go(work: Work, rescue: Path | None, hooks: Hooks) -> Outcome:
    heard: list[str] = []

    def say(sentence: str) -> None:
        heard.append(sentence)
        hooks.say(sentence)

    with interrupts() as stop, warned_once(say):
        finished = work.go(hooks.progress, stop)
        if not finished and work.folder is None and rescue is not None:
            work.open_folder(rescue)
    if work.folder is not None:
        work.pop.close()
    return Outcome(work.pop, work.stream, work.tally, work.settings, not finished, work.folder, tuple(heard))


def _asked(settings: Settings) -> dict[str, Any]:
    """What the settings ask of the POP."""
    wait = settings.latest + 1
    monitor = None if settings.monitor is None else Monitor(settings.monitor, delay=max(LABEL_TIME, wait))
    units = "people" if settings.people else "rounds"
    return {"units": units, "ticket_life": max(TICKET_LIFE, wait), "monitor": monitor, "seed": settings.seed}


def _check_unit(stream: Stream, settings: Settings) -> None:
    """Refuse to protect rounds where people were declared: whoever has many rows would be promised less."""
    if stream.unit is not None and not settings.people:
        raise ValueError(f"column {stream.unit!r} names people, and this run protects rounds: say unit={stream.unit!r}")


def _check_all(stream: Stream) -> None:
    """Refuse a stream with a bad row before anything is asked: later, one row would decide what becomes of others."""
    if lost := next((hint for hint in stream.hints if LOST in hint), None):
        raise ValueError(f"{stream.name}: {lost}; or leave out --strict")
    for item in stream.rows(dicts=True):
        if isinstance(item, BadRow):
            where = f"{stream.where(item.line)} of {stream.name}" if len(stream.files) < 2 else stream.where(item.line)
            raise ValueError(f"{where} is bad: {item.reason}; mend it, or leave out --strict")


def _check_first(pop: POP, stream: Stream, dicts: bool) -> None:
    """Refuse a stream of which no row at the start fits the learner, before anything is asked."""
    first = list(islice(stream.rows(dicts), FIRST))
    errors = pop.readable(questions(pop, first)) if first else {}
    if first and len(errors) == len(first):
        raise ValueError(f"none of the first {len(first)} rows of {stream.name} fits the learner: {errors[0]}")


def _takes_dicts(learner: Any) -> bool:
    """River's models take dicts, and so do learners with declared features in front."""
    if isinstance(learner, Pipeline):
        return not isinstance(learner.features, Columns)
    return takes_rows(learner)


def _twin(learner: Any, stream: Stream, settings: Settings) -> Twin | LabelTwin | Regression | None:
    """What to compare with: the learner itself, or, where the guide is alone, what it would be without noise."""
    if not settings.twin:
        return None
    if settings.protect == "labels":
        return LabelTwin(learner, stream.labels, None if _takes_dicts(learner) else stream.features)
    if learner is None:
        weights = label_weights(weights_named(settings.label_weights, stream), stream.labels)
        return Regression(stream.features, len(stream.labels), weights)
    declared = isinstance(stream.features, Features) and not _takes_dicts(learner)
    return Twin(learner, stream.labels, stream.features if declared else None)  # type: ignore[arg-type]
