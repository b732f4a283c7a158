"""Run a stream through POP: ask, learn, keep the operator's tallies, leave checkpoints, go on from them.

Everything tallied here is exact, for the operator's eyes only, and outside the guarantee.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.data.rows import BadRow, Item, Row, Stream
from confide.errors import Halted, TicketError
from confide.learners import Columns, DecisionTree, Learner, Pipeline, Stacked, as_learner
from confide.planning.plan import Plan
from confide.pop import batches
from confide.pop.base import TICKET_LIFE
from confide.pop.evaluate import evaluate
from confide.pop.monitor import Monitor
from confide.pop.pop import POP
from confide.runs.tally import Tally

__all__ = ["Outcome", "resume", "run", "saved_run"]

BLOCKS = 200
"""Points of a curve."""

MARGINS = 20_000
"""Vote margins sampled in a run, about."""

CLAIM = 5_000
"""Rows that are claimed on disk before they are asked: after a crash none of them is asked a second time."""

PROGRESS = 1000
"""Rounds between two looks at the progress."""

CHECKPOINT = 100_000
"""Rounds between checkpoints."""

TWIN_MEMORY = 4096
"""Records that the twin of a decision tree keeps: it is one, and learns everything."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    pop: POP
    stream: Stream
    tally: Tally
    settings: dict[str, Any]
    twin: bool
    interrupted: bool
    folder: Path | None
    """Where the checkpoint is."""

    @property
    def rounds_per_second(self) -> float:
        """Rounds a second, everything included."""
        return self.tally.rounds / self.tally.seconds if self.tally.seconds else float("nan")


Progress = Callable[[POP, Tally], None]


def run(
    stream: Stream,
    learner: Any,
    plan: Plan,
    *,
    fallback: Any = "coin",
    people: bool = False,
    delay: int = 0,
    history: Stream | None = None,
    monitor: Monitor | None = None,
    state: Path | None = None,
    rescue: Path | None = None,
    twin: bool = True,
    strict: bool = False,
    seed: int | None = None,
    settings: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Ask every row of the stream, teach its label, and count.

    Parameters
    ----------
    stream
        The rows; its labels and width are public.
    learner
        The prototype of the copies.
    plan
        Made for as many labels as the stream has; the run ends after its rounds at the latest.
    fallback
        As for `POP`.
    people
        Protect the units that the stream's rows name, instead of single rounds.
    delay
        Labels come this many rounds later.
    history
        Labelled rows to teach first.
    monitor
        A private accuracy monitor.
    state
        A folder for checkpoints; None keeps none.
    rescue
        A folder for the one checkpoint that an interrupt leaves where `state` is None.
    twin
        Teach one non-private learner of the same kind everything, for comparison.
    strict
        Stop at the first bad row.
    seed
        For tests and replays only: nothing is promised then.
    settings
        Kept in the checkpoints and the report, so that the run can be repeated.
    progress
        Called every thousand rounds or so.

    Examples
    --------
    >>> import confide
    >>> from confide.data.datasets import open_stream
    >>> from confide.learners import DecisionTree
    >>> plan = confide.Plan.tight(8.0, 1e-4, 9000, copies=100, unsure=100, silent=8000)
    >>> outcome = run(open_stream("agrawal", rows=9000), DecisionTree(), plan)
    >>> outcome.tally.live
    1000
    """
    if delay < 0:
        raise ValueError(f"delay={delay} must be at least 0 rounds")
    dicts = _takes_dicts(learner)
    pop = POP(
        learner,
        plan,
        labels=stream.labels,
        fallback=fallback,
        features=None if dicts else stream.width,
        units="people" if people else "rounds",
        ticket_life=max(TICKET_LIFE, delay + 1),
        monitor=monitor,
        seed=seed,
    )
    tally = Tally(len(stream.labels), max(1, plan.rounds // BLOCKS))
    work = _Work(pop, stream, _twin(learner, stream) if twin else None, dicts, delay, strict, tally, settings or {})
    if history is not None:
        work.teach_history(history)
    if state is not None:
        work.open_folder(state)
    return work.go(progress, rescue)


def resume(
    folder: Path,
    stream: Stream,
    learner: Any,
    *,
    fallback: Any = None,
    delay: int = 0,
    history: Stream | None = None,
    trusted: bool = False,
    twin: bool = True,
    strict: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Go on from a checkpoint, after the last row that may have been asked; the arguments are those of `run`.

    The history is not taught again; the twin, which is not kept on disk, is taught from the start.
    """
    saved = saved_run(folder)
    ours = type(learner).__module__.startswith("confide.")
    pop = POP.load(folder / "pop", learner=None if ours else learner, fallback=fallback, trusted=trusted)
    try:
        if tuple(pop.labels) != stream.labels:
            raise ValueError("the stream has other labels than the saved run: give the stream that it was started with")
        dicts = _takes_dicts(learner)
        tally = Tally(**saved["tally"])
        other = _twin(learner, stream) if twin else None
        work = _Work(pop, stream, other, dicts, delay, strict, tally, saved["settings"])
        if history is not None:
            work.teach_history(history, twin_only=True)
        work.catch_up(int((folder / "claimed").read_text()), saved["waiting"])
        work.folder = folder
        return work.go(progress, None)
    except BaseException:
        pop.close()
        raise


class _Work:
    """One run in progress."""

    def __init__(
        self,
        pop: POP,
        stream: Stream,
        twin: Learner | None,
        dicts: bool,
        delay: int,
        strict: bool,
        tally: Tally,
        settings: dict[str, Any],
    ) -> None:
        self.pop, self.stream, self.twin, self.dicts = pop, stream, twin, dicts
        self.delay, self.strict, self.tally, self.settings = delay, strict, tally, settings
        self.index: dict[Hashable, int] = {label: i for i, label in enumerate(stream.labels)}
        self.items: Iterator[Item] = stream.rows(dicts)
        self.waiting: deque[tuple[str, int, Any, Hashable]] = deque()  # ticket, row, x, y
        self.folder: Path | None = None
        self.claimed = self.resumed = 0
        self.confusion = np.array(tally.confusion, dtype=np.int64)

    def teach_history(self, history: Stream, twin_only: bool = False) -> None:
        people = self.pop.units == "people"
        for item in history.rows(self.dicts):
            if isinstance(item, BadRow):
                if not twin_only:
                    self._bad(history, BadRow(item.line, f"in the history, {item.reason}"))
                continue
            if self.twin is not None:
                self.twin.learn(item.x, self.index[item.y])
            if not twin_only:
                self.pop.teach(item.x, item.y, item.unit if people else None)
                self.tally.taught_before += 1

    def open_folder(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: go on with --resume, or name a new folder")
        self.folder = folder
        self.checkpoint()

    def checkpoint(self) -> None:
        """The state first, then where the run stands: a crash in between loses rows, and asks none twice."""
        assert self.folder is not None
        self.pop.save(self.folder / "pop")
        waiting = [(ticket, row) for ticket, row, _, _ in self.waiting]
        body = {"format": "confide-run", "version": 1, "tally": asdict(self.tally), "waiting": waiting}
        _write(self.folder / "run.json", json.dumps({**body, "settings": self.settings}))
        self._claim(self.tally.position)

    def catch_up(self, claimed: int, waiting: list[tuple[str, int]]) -> None:
        """Pass the rows that were asked, or may have been; those that wait for their label wait again."""
        tickets = {row: ticket for ticket, row in waiting}
        for row in range(claimed):
            item = next(self.items, None)
            if isinstance(item, Row):
                if row in tickets:
                    self.waiting.append((tickets[row], row, item.x, item.y))
                elif self.twin is not None:
                    self.twin.learn(item.x, self.index[item.y])
        self.claimed = self.resumed = self.tally.position = claimed

    def go(self, progress: Progress | None, rescue: Path | None) -> Outcome:
        started, before = time.perf_counter(), self.tally.seconds
        with _interrupts() as stop:
            try:
                finished = self._loop(stop, progress, started - before)
                while finished and self.waiting:
                    self._label()
            finally:
                self.tally.seconds = before + time.perf_counter() - started
                self.tally.point(self.pop.operator.unsure)
                if self.folder is not None and self.pop.halt_reason != "closed":
                    self.checkpoint()
            if not finished and self.folder is None and rescue is not None:
                self.open_folder(rescue)
        if self.folder is not None:
            self.pop.close()
        twin = self.twin is not None
        return Outcome(self.pop, self.stream, self.tally, self.settings, twin, not finished, self.folder)

    def _loop(self, stop: threading.Event, progress: Progress | None, started: float) -> bool:
        """Ask row after row; False when interrupted."""
        pop, plan, tally, twin = self.pop, self.pop.plan, self.tally, self.twin
        index, waiting, people = self.index, self.waiting, self.pop.units == "people"
        silent, stride = plan.silent, max(1, plan.live // MARGINS)
        unknown = len(index)
        while pop.rounds < plan.rounds:
            if stop.is_set():
                return False
            if self.delay == 0 and batches.compiles(pop):
                if self._many(self._until_due()):
                    self._report(progress, started)
                    continue
                break
            if self.folder is not None and tally.position >= self.claimed:
                self._claim(tally.position + CLAIM)
            item = next(self.items, None)
            if item is None:
                break
            tally.position += 1
            if isinstance(item, BadRow):
                self._bad(self.stream, item)
                continue
            x, y, unit = item
            try:
                answer = pop.predict(x, unit if people else None)
            except Halted:
                tally.position -= 1
                break
            right = index[y]
            tally.rounds += 1
            if pop.rounds > silent:
                tally.live += 1
                tally.mistakes += answer.label != y
                tally.twin_mistakes += twin is not None and twin.predict(x) != right
                tally.confusion[right][index[answer.label] if answer.sure else unknown] += 1
                if tally.live % stride == 0 and (margin := pop.operator.margin) is not None:
                    tally.margins[margin] = tally.margins.get(margin, 0) + 1
            waiting.append((answer.ticket, tally.position - 1, x, y))
            if len(waiting) > self.delay:
                self._label()
            self._report(progress, started)
        return True

    def _report(self, progress: Progress | None, started: float) -> None:
        """Points, progress and checkpoints, where they are due."""
        tally, unsure = self.tally, self.pop.operator.unsure
        if tally.rounds % tally.block == 0:
            tally.point(unsure)
        if progress is not None and tally.rounds % PROGRESS == 0:
            tally.seconds = time.perf_counter() - started
            tally.unsure = unsure
            progress(self.pop, tally)
        if self.folder is not None and tally.rounds % CHECKPOINT == 0:
            self.checkpoint()

    def _until_due(self) -> int:
        """Rounds until something is due."""
        steps = (self.tally.block, PROGRESS, CHECKPOINT)
        return min(self.pop.plan.rounds - self.pop.rounds, *(step - self.tally.rounds % step for step in steps))

    def _many(self, most: int) -> bool:
        """So many rounds in one compiled chunk; False when rows or budget are used up."""
        tally, bad = self.tally, None
        rows: list[Row] = []
        ends: list[int] = []  # where the stream stood after each row
        while len(rows) < most:
            if self.folder is not None and tally.position >= self.claimed:
                self._claim(tally.position + CLAIM)
            item = next(self.items, None)
            if item is None:
                break
            tally.position += 1
            if isinstance(item, BadRow):
                if self.strict:
                    bad = item
                    break
                self._bad(self.stream, item)
                continue
            rows.append(item)
            ends.append(tally.position)
        whole = self._ask(rows, ends) if rows else False
        if bad is not None and (whole or not rows):
            self._bad(self.stream, bad)  # raises
        return whole and len(rows) == most

    def _ask(self, rows: list[Row], ends: list[int]) -> bool:
        """Ask the rows and teach their labels; False when the budget is used up before the last one."""
        pop, tally, index = self.pop, self.tally, self.index
        right = np.array([index[row.y] for row in rows], dtype=np.int64)
        first_live = max(0, pop.plan.silent - pop.rounds)
        units = [row.unit for row in rows] if pop.units == "people" else None
        done = evaluate(pop, [row.x for row in rows], [row.y for row in rows], units)  # type: ignore[arg-type]
        if done.rounds < len(rows):
            tally.position = ends[done.rounds - 1] if done.rounds else ends[0] - 1
        twin = self._follow(rows[: done.rounds], right[: done.rounds])
        live = slice(min(first_live, done.rounds), done.rounds)
        given = np.where(done.sure, done.answers, len(index))[live]
        np.add.at(self.confusion, (right[live], given), 1)
        tally.confusion = self.confusion.tolist()
        stride = max(1, pop.plan.live // MARGINS)
        for margin in done.margins[live][stride - 1 - tally.live % stride :: stride].tolist():
            tally.margins[margin] = tally.margins.get(margin, 0) + 1
        tally.mistakes += int((done.answers[live] != right[live]).sum())
        tally.twin_mistakes += int((twin[live] != right[live]).sum()) if self.twin is not None else 0
        tally.live += done.live
        tally.rounds += done.rounds
        return done.rounds == len(rows)

    def _follow(self, rows: list[Row], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the twin predicts of each row before it learns it; −1 for nothing."""
        twin = self.twin
        if isinstance(twin, Stacked) and rows:
            return twin.follow(np.array([row.x for row in rows]), right)
        predicted = np.full(len(rows), -1)
        if twin is not None:
            for i, row in enumerate(rows):
                label = twin.predict(row.x)
                predicted[i] = -1 if label is None else label
                twin.learn(row.x, int(right[i]))
        return predicted

    def _label(self) -> None:
        ticket, row, x, y = self.waiting.popleft()
        try:
            self.pop.learn(ticket, y)
        except TicketError:
            if row >= self.resumed:  # a crash between two files may leave a used ticket behind
                raise
        if self.twin is not None:
            self.twin.learn(x, self.index[y])

    def _bad(self, stream: Stream, bad: BadRow) -> None:
        self.tally.spoiled(bad)
        if self.strict:
            raise ValueError(f"line {bad.line} of {stream.name} is bad: {bad.reason}")

    def _claim(self, position: int) -> None:
        assert self.folder is not None
        _write(self.folder / "claimed", str(position))
        self.claimed = position


def _takes_dicts(learner: Any) -> bool:
    """River's models take dicts, and so do learners with declared features in front."""
    if isinstance(learner, Pipeline):
        return not isinstance(learner.features, Columns)
    return hasattr(learner, "predict_one")


def _twin(learner: Any, stream: Stream) -> Learner:
    if isinstance(learner, DecisionTree):
        learner = learner.clone(memory=max(TWIN_MEMORY, learner.memory))
    return as_learner(learner, len(stream.labels))


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that a round is never torn; the second one interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def first(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _write(path: Path, text: str) -> None:
    """Replace a file atomically, readable by its owner alone."""
    fresh = path.with_name(path.name + ".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def saved_run(folder: Path) -> dict[str, Any]:
    """What a run wrote beside its state: its `settings`, its `tally`, and which rows wait for labels."""
    try:
        saved: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no saved run in {folder}: --state named another folder, or none") from None
    except (OSError, ValueError):
        raise ValueError(f"the run saved in {folder} cannot be read: run.json is damaged") from None
    if saved.get("format") != "confide-run" or saved.get("version") != 1:
        raise ValueError(f"the run saved in {folder} has another version than this Confide reads")
    return saved
