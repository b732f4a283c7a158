"""One run in progress: batches asked, labels brought, everything counted, checkpoints left where they are due."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from confide.arrays import Flags, Ints
from confide.data.rows import BadRow, Item, Stream
from confide.errors import ConfideWarning, TicketError
from confide.pop.base import SOURCES, Followed
from confide.pop.batches import Unread
from confide.pop.pop import POP
from confide.runs.asking import ask_and_teach, ask_only, questions
from confide.runs.checkpoints import Checkpoint, write_run
from confide.runs.regression import Regression
from confide.runs.settings import Settings
from confide.runs.tally import Tally
from confide.runs.twin import LabelTwin, Twin

MARGINS = 20_000
"""Vote margins sampled in a run, about."""

BATCH = 1000
"""Rounds asked at once, at most; fewer where labels come late."""

FIRST = 128
"""Rounds of the first batch; later ones take about `PATIENCE` seconds, so that an interrupt is heard.

Not where labels come late: they come when a batch ends, and so would teach others' leaves by how long one row took.
"""

PATIENCE = 0.25

CHECKPOINT = 100_000
"""Rounds between checkpoints."""

TAUGHT_AT_ONCE = 4096
"""Records of a history taught at once."""

MISFIT = "its features do not fit the learner"
"""What is said of a row that was read, and that the mechanism refused."""

Progress = Callable[[POP, Tally], None]


class _Waiting(NamedTuple):
    """A row whose label comes late."""

    ticket: str
    row: int
    round: int
    item: Item


class Work:
    """One run in progress.

    Parameters
    ----------
    pop
        The mechanism; only its public calls are used.
    stream
        The rows.
    settings
        What was asked for.
    tally
        The counts so far.
    twin
        Something non-private to compare with, or None.
    dicts
        Whether x comes as dicts.
    """

    def __init__(
        self, pop: POP, stream: Stream, settings: Settings, tally: Tally, twin: Twin | LabelTwin | Regression | None,
        dicts: bool,
    ) -> None:  # fmt: skip
        self.pop, self.stream, self.settings, self.tally = pop, stream, settings, tally
        self.twin, self.dicts, self.people = twin, dicts, pop.units == "people"
        self.index: dict[Hashable, int] = {label: i for i, label in enumerate(stream.labels)}
        self.items: Iterator[Item] = stream.rows(dicts)
        self.waiting: deque[_Waiting] = deque()
        self.folder: Path | None = None
        self.resumed = 0
        self.largest = BATCH if settings.delay == 0 else min(BATCH, settings.batch)
        self.size, self.seen = self.largest if settings.delay else min(FIRST, self.largest), time.perf_counter()

    # ------------------------------------------------------------------ before the first round

    def teach_history(self, history: Stream, twin_only: bool = False) -> None:
        """Teach labelled rows that are not asked. Each that is somebody's takes its row, bad ones teach nothing."""
        items = history.rows(self.dicts)
        while chunk := list(islice(items, TAUGHT_AT_ONCE)):
            owned = [item for item in chunk if self._owned(item)]
            if self.twin is not None:
                for item in filter(_whole, owned):
                    self.twin.learn(item.x, self.index[item.y])
            if not twin_only:
                self._teach(history, chunk, owned)

    def _teach(self, history: Stream, chunk: list[Item], owned: list[Item]) -> None:
        """A chunk of the history: records are counted before anybody looks at what is in them."""
        xs = questions(self.pop, owned)
        unfit = self.pop.readable(xs) if owned else {}
        taught = sum(_whole(item) and i not in unfit for i, item in enumerate(owned))
        if owned and not taught and not self.tally.taught_before:
            why = unfit.get(0, "its labels are not those of the stream")
            raise ValueError(f"nothing of the history can be taught: {why}")
        units: Any = [item.unit for item in owned] if self.people else None
        try:
            self.pop.teach_many(xs, [item.y if _whole(item) else None for item in owned], units)
        except ValueError:  # some were refused, and all others taught
            if any(i in unfit and not isinstance(item, BadRow) for i, item in enumerate(owned)):
                self.tally.spoiled(0, "records of the history do not fit the learner")
        self.tally.taught_before += taught
        self.tally.history_bad += len(chunk) - taught
        for item in chunk:
            if isinstance(item, BadRow):
                self.tally.spoiled(0, f"in the history, {history.where(item.line)}: {item.reason}")

    def open_folder(self, folder: Path) -> None:
        """Leave checkpoints here from now on."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{folder} cannot be made: {error.strerror}") from None
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: go on with --resume, or name a new folder")
        self.folder = folder
        self.checkpoint()

    def catch_up(self, waiting: list[list[Any]]) -> None:
        """Pass the rows whose rounds the ledger has; those that wait for their label wait again."""
        tickets = {row: (ticket, number) for ticket, row, number in waiting}
        tally, taken = self.tally, 0
        tally.position = tally.nobodys = 0
        while taken < self.pop.rounds and (item := next(self.items, None)) is not None:
            row, tally.position = tally.position, tally.position + 1
            if not self._owned(item):
                tally.nobodys += 1
                continue
            taken += 1
            if row in tickets:
                self.waiting.append(_Waiting(tickets[row][0], row, tickets[row][1], item))
            elif self.twin is not None and _whole(item):
                self.twin.learn(item.x, self.index[item.y])
        self.resumed = tally.position

    # ------------------------------------------------------------------ the loop

    def go(self, progress: Progress | None, stop: threading.Event) -> bool:
        """Ask row after row until rows or rounds are used up; False when it was told to stop."""
        started = time.perf_counter() - self.tally.seconds
        try:
            while self.pop.rounds < self.settings.last(self.pop.plan):
                if stop.is_set():
                    return False
                began, rounds = time.perf_counter(), self.tally.rounds
                whole = self._batch()
                now = time.perf_counter()
                self.size = self._next_size(self.tally.rounds - rounds, now - began)
                self._due(progress, now - started)
                if not whole:
                    break
            self._labels(0)
            self._due(progress, time.perf_counter() - started, last=True)
            return True
        finally:
            self.tally.seconds = time.perf_counter() - started
            self.tally.point(self.pop.operator.unsure)
            if self.folder is not None:
                self.checkpoint()

    def _batch(self) -> bool:
        """Ask as many rows as fit until something is due; False when the rows are used up."""
        steps = (self.tally.block, BATCH, CHECKPOINT)
        left = self.settings.last(self.pop.plan) - self.pop.rounds
        most = min(left, self.size, *(step - self.tally.rounds % step for step in steps))
        rows, ends = self._read(most)
        if not rows:
            return False
        late, before = self.settings.delay > 0, self.pop.rounds
        right = np.array([self.index.get(row.y, -1) for row in rows], dtype=np.int64)
        shown, tickets = ask_only(self.pop, rows) if late else (ask_and_teach(self.pop, rows, right), [])
        if shown.rounds < len(rows):
            self.tally.position = ends[shown.rounds - 1] if shown.rounds else ends[0] - 1
        asked, right = rows[: shown.rounds], right[: shown.rounds]
        self._spoiled(asked, ends, shown)
        self._count(asked, right, shown, max(0, self.pop.plan.silent - before))
        if late:
            for i, row in enumerate(asked):
                if not shown.refused[i] and right[i] >= 0:
                    number = self.tally.rounds - shown.rounds + i + 1
                    self.waiting.append(_Waiting(tickets[i], ends[i] - 1, number, row))
            self._labels(self.settings.delay)
        return shown.rounds == len(rows) == most

    def _read(self, most: int) -> tuple[list[Item], list[int]]:
        """The next rows that take a round, and where the stream stood after each."""
        tally = self.tally
        rows: list[Item] = []
        ends: list[int] = []
        while len(rows) < most:
            item = next(self.items, None)
            if item is None:
                break
            tally.position += 1
            if not self._owned(item):
                tally.nobodys += 1
                tally.spoiled(item.line, getattr(item, "reason", "it names no unit"))
                continue
            rows.append(item)
            ends.append(tally.position)
        return rows, ends

    def _owned(self, item: Item) -> bool:
        """Whether a row takes part: where people are protected, one without a unit is nobody's."""
        return not self.people or item.unit is not None

    def _labels(self, delay: int) -> None:
        """Bring the labels of all rows that have waited so many rounds."""
        due: list[_Waiting] = []
        while self.waiting and self.waiting[0].round <= self.tally.rounds - delay:
            due.append(self.waiting.popleft())
        if not due:
            return
        try:
            self.pop.learn_many([one.ticket for one in due], [one.item.y for one in due])
        except TicketError:
            if due[0].row >= self.resumed:  # a crash between two files may leave used tickets behind
                raise
        if self.twin is not None:
            for one in due:
                self.twin.learn(one.item.x, self.index[one.item.y])

    def _next_size(self, rounds: int, seconds: float) -> int:
        if self.settings.delay:
            return self.size
        if seconds > PATIENCE:
            return max(1, self.size // 2)
        return self.size if rounds < self.size else min(self.largest, self.size * 2)

    # ------------------------------------------------------------------ counting

    def _spoiled(self, rows: list[Item], ends: list[int], shown: Followed) -> None:
        if not shown.refused.any() and not any(type(row) is BadRow for row in rows):
            return
        for i, row in enumerate(rows):
            if shown.refused[i]:
                self.tally.refused += 1
                reason = MISFIT
                if isinstance(row, BadRow) and row.x is None:
                    reason = row.reason
                self.tally.spoiled(row.line or ends[i], reason)
            elif isinstance(row, BadRow):
                self.tally.unlabelled += 1
                self.tally.spoiled(row.line, row.reason)

    def _count(self, rows: list[Item], right: Ints, shown: Followed, silent: int) -> None:
        """Tally a batch whose first `silent` rounds were silent; a refused row is wrong, one without label neither."""
        tally, labels = self.tally, len(self.index)
        seen, refused = right >= 0, shown.refused
        wrong = seen & (refused | (shown.answers != right))
        live = self._live(shown, silent)
        if self.twin is not None:
            tally.twin_wrong += int((seen & (self._twin(rows, right, seen & ~refused) != right)).sum())
        tally.unknown += int((~seen).sum())
        tally.wrong += int(wrong.sum())
        tally.frequent_wrong += int((seen & (refused | (right != tally.frequent))).sum())
        tally.guided += int((seen & (shown.guide >= 0)).sum())
        tally.guide_wrong += int((seen & (refused | (shown.guide != right))).sum())
        tally.live_wrong += int((live & wrong).sum())
        tally.live_unknown += int((live & ~seen).sum())
        for number in np.unique(shown.source[shown.source >= 0]).tolist():
            at = shown.source == number
            before = tally.sources.get(SOURCES[number], [0, 0, 0])
            tally.sources[SOURCES[number]] = [
                n + int((at & which).sum()) for n, which in zip(before, (at, wrong, ~seen), strict=True)
            ]
        table = np.array(tally.confusion, dtype=np.int64)
        np.add.at(table, (right[seen], np.where(refused, labels, shown.answers)[seen]), 1)
        tally.confusion = table.tolist()
        self._sample(shown.margins[live & (shown.margins >= 0)])
        tally.live += int(live.sum())
        tally.rounds += shown.rounds

    def _live(self, shown: Followed, silent: int) -> Flags:
        """In which rounds of a batch the copies were asked; remembers when they halted."""
        tally, number = self.tally, np.arange(shown.rounds)
        if not self.pop.plan.copies or tally.halted_at is not None:
            return np.zeros(shown.rounds, dtype=np.bool_)
        last = shown.rounds
        if self.pop.halt_reason == "budget":
            if not self.settings.delay:  # one batch at once tells the margins, up to the halt
                last = int(np.flatnonzero(shown.margins >= 0)[-1:].sum()) + 1
            tally.halted_at = tally.rounds + last
        return (number >= silent) & (number < last)

    def _sample(self, margins: Ints) -> None:
        tally = self.tally
        stride = max(1, self.pop.plan.live // MARGINS)
        first = 0 if self.settings.delay else stride - 1 - tally.live % stride
        for margin in margins[first::stride].tolist():
            tally.margins[margin] = tally.margins.get(margin, 0) + 1

    def _twin(self, rows: list[Item], right: Ints, judged: Flags) -> Ints:
        """What the twin says of each row; −2, which is no label, where there is nothing to judge."""
        assert self.twin is not None
        said = np.full(len(rows), -2)
        good = [row for row, fine in zip(rows, judged.tolist(), strict=True) if fine]
        said[judged] = self.twin.predict(good) if self.settings.delay else self.twin.follow(good, right[judged])
        return said

    def _due(self, progress: Progress | None, seconds: float, last: bool = False) -> None:
        """Points, progress and checkpoints, where they are due."""
        tally, now = self.tally, time.perf_counter()
        tally.seconds, tally.unsure = seconds, self.pop.operator.unsure
        if tally.rounds % tally.block == 0:
            tally.point(tally.unsure)
        if progress is not None and (last or tally.rounds % BATCH == 0 or now - self.seen > PATIENCE):
            self.seen = now
            progress(self.pop, tally)
        if self.folder is not None and not last and tally.rounds % CHECKPOINT == 0:
            self.checkpoint()

    # ------------------------------------------------------------------ on disk

    def checkpoint(self) -> None:
        """The state first, then what was counted: a crash in between loses counts, and asks no row twice."""
        assert self.folder is not None
        self.pop.save(self.folder / "pop")
        waiting = [[one.ticket, one.row, one.round] for one in self.waiting]
        write_run(self.folder, Checkpoint(self.settings, self.tally, waiting, self.stream.files))


def _whole(item: Item) -> bool:
    """Whether a row can be taught: it has both x and a label."""
    return item.x is not None and item.y is not None


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or `kill` sets, so that a round is never torn; the second one ends it at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def first(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def warned_once(say: Callable[[str], None]) -> Iterator[None]:
    """Confide's own warnings, and of others each kind once: a learner's words may quote private data."""
    kinds: set[type[Warning]] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, Unread):
            return  # a run counts the rows that cannot be read
        if issubclass(category, ConfideWarning):
            say(str(message))
        elif category not in kinds:
            kinds.add(category)
            say(f"the learner warned ({category.__module__}.{category.__qualname__}); such a warning is shown once")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
