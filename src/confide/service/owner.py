"""One thread that owns a model's desk: whatever waits is served together, in groups that only counts of requests bound.

While one group is brought to the disk the next one gathers, so that many single questions share a commit. Questions
come before labels, in the order in which they arrived, and the operator's work comes last. Neither what a group holds
nor whether somebody is refused depends on anything but how many requests wait.
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
from confide.service.base import Asked, Desk, Question, Refusal, Taught

__all__ = ["Busy", "CallRefused", "Observer", "Owner", "Unavailable"]

Work = Literal["ask", "label", "call"]
KINDS: tuple[Work, ...] = ("ask", "label", "call")
R = TypeVar("R")


class Busy(Exception):
    """Too many requests wait: come again later."""


class Unavailable(Exception):
    """The model serves nobody of this kind now; the message says why, and is the same for all."""


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
    """Serves a desk from one thread.

    Parameters
    ----------
    desk
        The model, which is this owner's from now on; `close` closes it.
    observer
        Told of every group.
    room
        Rows of each kind that may wait. Labels have a room of their own, so that a refused question does not tell that
        others bring labels.
    group
        Rows of each kind that are served together at most; a single batch may be larger.
    """

    def __init__(self, desk: Desk, observer: Observer, *, room: int = 4096, group: int = 256) -> None:
        self.name = desk.name
        self.failure: str | None = None
        """Why the model answers nobody any more, until it is opened again; None while it does."""
        self._desk, self._observer, self._room, self._group = desk, observer, room, group
        self._shown: Mapping[str, Any] | None = None
        self._queues: dict[Work, deque[_Job]] = {kind: deque() for kind in KINDS}
        self._rows: dict[Work, int] = dict.fromkeys(KINDS, 0)
        self._draining = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"owner of {self.name}", daemon=True)
        self._closed: BaseException | None = None
        self._thread.start()

    # ------------------------------------------------------------------ for the event loop

    async def ask(self, questions: Sequence[Question]) -> list[Asked]:
        """What the desk answers, when it is durable."""
        return cast(list[Asked], await self._submit("ask", questions, len(questions)))

    async def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """What the desk says to these labels, when they are durable."""
        return cast(list[Refusal | None], await self._submit("label", lessons, len(lessons)))

    async def call(self, work: Callable[[Desk], R]) -> R:
        """Something else done with the desk, by its owner: the operator's."""
        return cast(R, await self._submit("call", work, 1))

    async def look(self) -> Mapping[str, Any]:
        """What everyone may see of the model; computed once for all who look between two groups."""
        shown = self._shown
        return shown if shown is not None else await self.call(self._look)

    @property
    def waiting(self) -> dict[str, int]:
        """Rows of each kind that wait."""
        with self._changed:
            return {kind: self._rows[kind] for kind in KINDS}

    @property
    def draining(self) -> bool:
        """Whether questions are refused, while labels are still taken."""
        return self._draining

    def drain(self, on: bool = True) -> None:
        """Take no further questions; those that wait are answered, and labels are taken."""
        with self._changed:
            self._draining = on

    # ------------------------------------------------------------------ for whoever made it

    def close(self) -> None:
        """Serve what waits, close the desk, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        if self._closed is not None:
            raise self._closed

    async def _submit(self, kind: Work, what: Any, rows: int) -> Any:
        loop = asyncio.get_running_loop()
        job = _Job(what, rows, loop, loop.create_future())
        with self._changed:
            if self._closing:
                raise Unavailable("the service is stopping: ask again in a moment, with the same id")
            if kind == "ask" and self._draining:
                raise Unavailable("this model takes no questions now: ask again later, with the same id")
            if self._rows[kind] + rows > max(self._room, rows):
                raise Busy
            self._queues[kind].append(job)
            self._rows[kind] += rows
            self._changed.notify()
        return await job.future

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while jobs := self._next():
            for kind, some in jobs.items():
                if some:
                    self._serve(kind, some)
        try:
            self._desk.close()
        except BaseException as error:  # told to who closes; a thread has nobody to raise it to
            self._closed = error

    def _next(self) -> dict[Work, list[_Job]] | None:
        """What is served next; None when all is served and it is time to go."""
        with self._changed:
            while not any(self._queues.values()):
                if self._closing:
                    return None
                self._changed.wait()
            return {kind: self._take(kind) for kind in KINDS}

    def _take(self, kind: Work) -> list[_Job]:
        queue, taken, rows = self._queues[kind], list[_Job](), 0
        while queue and (not taken or rows + queue[0].rows <= self._group):
            taken.append(queue.popleft())
            rows += taken[-1].rows
        self._rows[kind] -= rows
        return taken

    def _serve(self, kind: Work, jobs: list[_Job]) -> None:
        if kind == "call":
            for job in jobs:
                _deliver([(job, self._done(kind, 1, partial(job.what, self._desk)))])
            return
        rows = [row for job in jobs for row in job.what]
        serve: Callable[[Any], Any] = self._desk.ask if kind == "ask" else self._desk.learn
        results = self._done(kind, len(rows), partial(serve, rows))
        at, parts = 0, list[tuple[_Job, Any]]()
        for job in jobs:
            parts.append((job, results if isinstance(results, Exception) else results[at : at + job.rows]))
            at += job.rows
        _deliver(parts)

    def _done(self, kind: Work, rows: int, work: Callable[[], Any]) -> Any:
        """What work gives, or the error that all who wait for it are told alike."""
        if kind != "call":
            self._shown = None
        began = time.perf_counter()
        try:
            result = work()
            self.failure = None if kind == "ask" else self.failure
        except StateError as error:
            self.failure = str(error)
            self._observer.failed(self.name, kind, error)
            return Unavailable("this model's state could not be written or read: nobody is answered until it can be")
        except ValueError as error:
            if kind == "call":
                return CallRefused(str(error))
            self._observer.failed(self.name, kind, error)
        except Exception as error:  # nobody may be told what it was
            self._observer.failed(self.name, kind, error)
        else:
            self._observer.served(self.name, kind, rows, time.perf_counter() - began)
            return result
        return Unavailable("this model could not serve the request: the operator has been told")

    def _look(self, desk: Desk) -> Mapping[str, Any]:
        if self._shown is None:
            self._shown = desk.public()
        return self._shown


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
