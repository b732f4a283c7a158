"""The owner of a model's desk: whatever waits is served together, in groups that only counts of requests bound.

Questions, labels and the operator's work have queues of their own, and each is served in the order in which it came.
While one group is brought to the disk the next one gathers, so that many single questions share a commit. Neither what
a group holds nor whether somebody is refused depends on anything but how many requests of its kind wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast

from confide.errors import StateError
from confide.service.base import Asked, Desk, Later, Question, Refusal, Taught

__all__ = ["Busy", "CallRefused", "Expired", "Observer", "Owner", "Unavailable"]

Work = Literal["ask", "label", "call"]
KINDS: tuple[Work, ...] = ("ask", "label", "call")
LONG = 600.0
"""Seconds that an operator's work may take before nobody waits for it."""

R = TypeVar("R")


class Busy(Exception):
    """Too many requests wait: come again later."""


class Unavailable(Exception):
    """The model serves nobody of this kind now; the message says why, and is the same for all."""


class Expired(Exception):
    """The waiting is over; the work goes on, and a retry by its id finds the stored answer."""


class CallRefused(Exception):
    """The operator asked for something that this model does not do; the message says what to do."""


class Observer(Protocol):
    """Told what a model's owner does: for metrics and logs, in numbers that say nothing of anybody."""

    def served(self, model: str, work: Work, rows: int, seconds: float) -> None:
        """A group was served."""

    def failed(self, model: str, work: Work, error: BaseException) -> None:
        """A group was not: the error's words are not to be passed on."""


@dataclass(slots=True, repr=False)
class _Job:
    what: Any
    rows: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Owner:
    """Serves a desk.

    Parameters
    ----------
    desk
        The model, which is this owner's from now on; `close` closes it.
    observer
        Told of every group.
    room
        Rows of each kind that may wait or be served. Labels have a room of their own, so that a refused question does
        not tell that others bring labels.
    group
        Rows of each kind that are served together at most; a single batch may be larger.
    threads
        For questions, and as many for labels: while one waits for the disk another computes.
    timeout
        Seconds that anybody waits. A timeout ends the waiting, never the work.
    """

    def __init__(
        self, desk: Desk, observer: Observer, *, room: int = 4096, group: int = 256, threads: int = 1,
        timeout: float = 10.0,
    ) -> None:  # fmt: skip
        self.name = desk.name
        self.failure: str | None = None
        """Why the model answers nobody any more, until it is opened again; None while it does."""
        self._desk, self._observer, self._room, self._group, self._timeout = desk, observer, room, group, timeout
        self._served, self._shown = 0, (-1, dict[str, Any]())  # what everyone may see, after so many groups
        self._queues: dict[Work, deque[_Job]] = {kind: deque() for kind in KINDS}
        self._rows: dict[Work, int] = dict.fromkeys(KINDS, 0)
        self._draining = self._closing = False
        self._lock = threading.Lock()
        self._changed = {kind: threading.Condition(self._lock) for kind in KINDS}
        self._threads = [
            threading.Thread(target=self._run, args=(kind,), name=f"{kind} {self.name}", daemon=True)
            for kind in KINDS
            for _ in range(1 if kind == "call" else threads)
        ]
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------------ for the event loop

    async def ask(self, questions: Sequence[Question]) -> list[Asked]:
        """What the desk answers, when it is durable."""
        return cast(list[Asked], await self._submit("ask", questions, len(questions)))

    async def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """What the desk says to these labels, when they are durable."""
        return cast(list[Refusal | None], await self._submit("label", lessons, len(lessons)))

    async def call(self, work: Callable[[Desk], R], *, timeout: float = LONG) -> R:
        """Something else done with the desk, by its owner: the operator's."""
        return cast(R, await self._submit("call", work, 1, timeout))

    async def look(self) -> Mapping[str, Any]:
        """What everyone may see of the model; computed once for all who look between two groups."""
        served, shown = self._shown
        return shown if served == self._served else await self.call(self._look, timeout=self._timeout)

    @property
    def waiting(self) -> dict[str, int]:
        """Rows of each kind that wait or are being served."""
        with self._lock:
            return {kind: self._rows[kind] for kind in KINDS}

    @property
    def draining(self) -> bool:
        """Whether questions are refused, while labels are still taken."""
        return self._draining

    def drain(self, on: bool = True) -> None:
        """Take no further questions; those that wait are answered, and labels are taken."""
        with self._lock:
            self._draining = on

    # ------------------------------------------------------------------ for whoever made it

    def close(self) -> None:
        """Serve what waits, end the threads, and close the desk."""
        with self._lock:
            closed, self._closing = self._closing, True
            for changed in self._changed.values():
                changed.notify_all()
        for thread in self._threads:
            thread.join()
        if not closed:
            self._desk.close()

    async def _submit(self, kind: Work, what: Any, rows: int, timeout: float | None = None) -> Any:
        loop = asyncio.get_running_loop()
        job = _Job(what, rows, loop, loop.create_future())
        with self._lock:
            if self._closing:
                raise Unavailable("the service is stopping: ask again in a moment, with the same id")
            if kind == "ask" and self._draining:
                raise Unavailable("this model takes no questions now: ask again later, with the same id")
            if self._rows[kind] + rows > max(self._room, rows):
                raise Busy
            self._queues[kind].append(job)
            self._rows[kind] += rows
            self._changed[kind].notify()
        timer = loop.call_later(self._timeout if timeout is None else timeout, _expire, job.future)
        try:
            return await job.future
        finally:
            timer.cancel()

    # ------------------------------------------------------------------ the threads

    def _run(self, kind: Work) -> None:
        while jobs := self._next(kind):
            parts = self._served_by(kind, jobs)
            with self._lock:
                self._rows[kind] -= sum(job.rows for job in jobs)
            _deliver(parts)

    def _next(self, kind: Work) -> list[_Job]:
        """What is served next; nothing when all is served and it is time to go."""
        queue, taken, rows = self._queues[kind], list[_Job](), 0
        with self._lock:
            while not queue and not self._closing:
                self._changed[kind].wait()
            most = 1 if kind == "call" else self._group
            while queue and (not taken or rows + queue[0].rows <= most):
                taken.append(queue.popleft())
                rows += taken[-1].rows
        return taken

    def _served_by(self, kind: Work, jobs: list[_Job]) -> list[tuple[_Job, Any]]:
        """What comes of each job."""
        if kind == "call":
            return [(job, self._done(kind, 1, partial(job.what, self._desk))) for job in jobs]
        rows = [row for job in jobs for row in job.what]
        serve: Callable[[Any], Any] = self._desk.ask if kind == "ask" else self._desk.learn
        results = self._done(kind, len(rows), partial(serve, rows))
        at, parts = 0, list[tuple[_Job, Any]]()
        for job in jobs:
            parts.append((job, results if isinstance(results, Exception) else results[at : at + job.rows]))
            at += job.rows
        return parts

    def _done(self, kind: Work, rows: int, work: Callable[[], Any]) -> Any:
        """What work gives, or the error that all who wait for it are told alike."""
        began = time.perf_counter()
        try:
            result = work()
        except Later:
            return Unavailable("this could not be made durable: bring it again")
        except Exception as error:  # nobody may be told what it was
            if kind == "call" and isinstance(error, ValueError) and not isinstance(error, StateError):
                return CallRefused(str(error))
            self._observer.failed(self.name, kind, error)
            if isinstance(error, StateError):
                self.failure = str(error)
                return Unavailable("this model's state cannot be written or read: nobody is answered until it can be")
            return Unavailable("this model could not serve the request: the operator has been told")
        if kind == "ask":
            self.failure = None
        if kind != "call":
            self._served += 1
        self._observer.served(self.name, kind, rows, time.perf_counter() - began)
        return result

    def _look(self, desk: Desk) -> Mapping[str, Any]:
        served, shown = self._shown
        if served != self._served:
            served = self._served
            shown = dict(desk.public())
            self._shown = served, shown
        return shown


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(Expired("this takes longer than anybody waits: come again with the same id or ticket"))


def _deliver(parts: list[tuple[_Job, Any]]) -> None:
    """Hand results over to the event loops that wait for them: one wake-up for a group."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, Any]]] = {}
    for part in parts:
        by_loop.setdefault(part[0].loop, []).append(part)
    for loop, some in by_loop.items():
        with contextlib.suppress(RuntimeError):  # nobody waits there any more: what was done stays done
            loop.call_soon_threadsafe(_set, some)


def _set(parts: list[tuple[_Job, Any]]) -> None:
    for job, result in parts:
        if job.future.done():  # who waited has gone; a retry by its id finds the stored answer
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
