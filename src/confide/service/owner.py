"""The owner of a model's desk: whatever waits is served together, in groups that only counts of requests bound.

Questions, labels, public looks and the operator's work have queues of their own, and each is served in the order in
which it came. While one group is brought to the disk the next one gathers, so that many single questions share a
commit. Whether a question is refused depends on how many questions wait, which is public; how many labels wait is not,
so that a label is refused for other labels of its sender alone, and waits until it is durable, however many others'
are before it. A model that failed is opened again (`confide.service.mending`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast

from confide.errors import StateError
from confide.service import mending
from confide.service.base import Desk, Later, NotYet, Problem, Question, Records, Refusal, Reply, Taught
from confide.service.mending import Gone, Mender, Reopen

__all__ = ["LONG", "Busy", "CallRefused", "Expired", "Lane", "Observer", "Owner", "Unavailable", "Work", "lane"]

Work = Literal["ask", "label", "look", "call"]
KINDS: tuple[Work, ...] = ("ask", "label", "look", "call")
LONG = 600.0
"""Seconds that an operator's work, or a label, may take before nobody waits for it."""

GATHER, SEVERAL, ENOUGH = 0.002, 2, 64
"""Seconds for which questions gather where the last group had so many requests or more: they share a commit, and all
that a group costs however large it is. So many rows wait for no others. How many questions there are is public. How
many labels there are is not, and labels never wait for others."""

R = TypeVar("R")


class Busy(Problem):
    """Too many requests wait: come again later."""

    def __init__(self) -> None:
        super().__init__(429, "busy", "too many requests wait: come again in a moment, with the same id")


class Unavailable(Problem):
    """The model serves nobody of this kind now; the message says why, and is the same for all."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "unavailable", message)


class Expired(Problem):
    """The waiting is over; the work goes on, and a retry by its id finds the stored answer."""

    def __init__(self) -> None:
        super().__init__(504, "timeout", "this takes longer than anybody waits: come again with the same id or ticket")


class CallRefused(Problem):
    """The operator asked for something that this model does not do; the message says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(422, "refused", message)


Lane = tuple[Work, str]
"""What is counted together where requests wait: the kind of work, and whose it is."""


def lane(kind: Work, whose: str) -> Lane:
    """Where a sender's requests wait: with all others of their kind; labels with the sender's own alone.

    So no refusal of a label tells how many labels others bring, which is private.
    """
    return kind, whose if kind == "label" else ""


class Observer(Protocol):
    """Told what a model's owner does: for metrics and logs, in numbers that say nothing of anybody."""

    def served(self, model: str, work: Work, rows: int, seconds: float) -> None:
        """A group was served."""

    def failed(self, model: str, work: Work, error: BaseException) -> None:
        """A group was not: the error's words are not to be passed on."""

    def ready(self, model: str, why: str | None) -> None:
        """Whether the model serves anybody: None, or why it does not. It may be told again while nothing changes."""


@dataclass(slots=True, repr=False)
class _Job:
    what: Any
    rows: int
    lane: Lane
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
    room, requests
        Rows of each kind, and requests, that may wait or be served: what is beyond is refused at once, before it waits
        for seconds. For labels everybody has a room of their own, so that no refusal tells that others bring labels.
    group
        Rows of each kind that are served together at most; a single batch may be larger.
    threads
        For questions, and as many for labels: while one waits for the disk another computes.
    timeout
        Seconds that anybody waits for an answer or a look. A timeout ends the waiting, never the work. A label has
        none: it would be refused for what others bring.
    reopen
        Opens the model again when its ledger could not be written; without it a failed model stays so.
    """

    def __init__(
        self, desk: Desk, observer: Observer, *, room: int = 4096, requests: int = 512, group: int = 256,
        threads: int = 1, timeout: float = 10.0, reopen: Reopen | None = None,
    ) -> None:  # fmt: skip
        self.name = desk.name
        self.failure: str | None = None
        """Why the model answers nobody, until it could be opened again; None while it does."""
        self._desk, self._observer, self._group, self._timeout = desk, observer, group, timeout
        self._room, self._requests = room, requests
        self._reopen, self._mender = reopen, cast(Mender | None, None)
        self._shown: tuple[Desk | None, Hashable, Mapping[str, Any]] = None, None, {}
        self._plan: str | None = None
        self._queues: dict[Work, deque[_Job]] = {kind: deque() for kind in KINDS}
        self._rows, self._jobs = Counter[Lane](), Counter[Lane]()
        self._draining = self._closing = self._several = False
        self._lock, self._ending = threading.Lock(), threading.Event()
        self._changed = {kind: threading.Condition(self._lock) for kind in KINDS}
        self._threads = [
            threading.Thread(target=self._run, args=(kind,), name=f"{kind} {self.name}", daemon=True)
            for kind in KINDS
            for _ in range(threads if kind in ("ask", "label") else 1)
        ]
        self._threads.append(threading.Thread(target=self._beat, name=f"beat {self.name}", daemon=True))
        observer.ready(self.name, None)
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------------ for the event loop

    async def ask(self, questions: Sequence[Question]) -> list[Reply]:
        """What the desk answers, when it is durable; what it would only refuse takes no place that others wait for."""
        refused = self._desk.refused(questions)
        if not refused and questions:
            return cast(list[Reply], await self._submit(("ask", ""), questions, len(questions)))
        rest = [one for i, one in enumerate(questions) if i not in refused]
        told = iter(cast(list[Reply], await self._submit(("ask", ""), rest, len(rest))) if rest else ())
        return [refused[i] if i in refused else next(told) for i in range(len(questions))]

    async def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """What the desk says to one sender's labels, when they are durable; who brings none of theirs does not wait."""
        refused = self._desk.not_theirs(lessons)
        if not refused and lessons:
            mine = lane("label", lessons[0].subject)
            return cast(list[Refusal | None], await self._submit(mine, lessons, len(lessons), LONG))
        rest = [one for i, one in enumerate(lessons) if i not in refused]
        said = iter(await self._submit(lane("label", rest[0].subject), rest, len(rest), LONG) if rest else ())
        return [refused[i] if i in refused else next(said) for i in range(len(lessons))]

    async def call(self, work: Callable[[Desk], R], *, timeout: float = LONG) -> R:
        """Something else done with the desk, by its owner: the operator's."""
        return cast(R, await self._submit(("call", ""), work, 1, timeout))

    async def teach(self, rows: Records, id: str | None) -> list[Refusal | None]:
        """History, slice by slice, with others' work between them: see `Desk.teaching`."""
        told, desk = list[Refusal | None](), self._desk
        # Reading so many records takes long, needs nothing of the model, and holds up nobody in a thread of its own.
        slices = await asyncio.to_thread(self._done, "call", 1, desk, partial(desk.teaching, rows, id))
        if isinstance(slices, Exception):
            raise slices
        try:
            while (part := await self.call(lambda _: next(slices, None))) is not None:
                told += part
        finally:
            with contextlib.suppress(ValueError):  # one that nobody waits for any more ends by itself
                slices.close()
        return told

    async def look(self) -> Mapping[str, Any]:
        """What everyone may see of the model; computed anew when it shows something else, and at no other time."""
        shown = self._known(self._desk)
        return await self._submit(("look", ""), self._look, 1) if shown is None else shown

    async def plan(self) -> str:
        """Every number and table of the plan, as a plan file has them."""
        if self._plan is None:
            self._plan = cast(str, await self._submit(("look", ""), lambda desk: desk.plan.to_json(), 1))
        return self._plan

    @property
    def alive(self) -> bool:
        """Whether all threads are there that serve anybody; a model that failed and is opened again is alive."""
        return self._closing or all(thread.is_alive() for thread in self._threads)

    @property
    def ended(self) -> bool:
        """Whether the model answers nobody, also where nobody found out yet."""
        return self.failure is not None or self._desk.ended

    @property
    def waits(self) -> bool:
        """Whether the first question waits for the end of an import of history."""
        return self._desk.waits

    @property
    def waiting(self) -> dict[str, int]:
        """Rows of each kind that wait or are being served."""
        with self._lock:
            return {kind: sum(rows for lane, rows in self._rows.items() if lane[0] == kind) for kind in KINDS}

    def full(self, lane: Lane, rows: int = 1) -> bool:
        """Whether a request of so many rows is refused now: by how many there are in its lane."""
        return self._rows[lane] + rows > max(self._room, rows) or self._jobs[lane] >= self._requests

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
            mender = self._mender
        self._ending.set()
        for thread in self._threads:
            thread.join()
        if mender is not None:
            mender.end()
        if not closed:
            self._desk.close()

    async def _submit(self, lane: Lane, what: Any, rows: int, timeout: float | None = None) -> Any:
        loop, kind = asyncio.get_running_loop(), lane[0]
        job = _Job(what, rows, lane, loop, loop.create_future())
        with self._lock:
            if self._closing:
                raise Unavailable("the service is stopping: ask again in a moment, with the same id")
            if kind == "ask" and self._draining:
                raise Unavailable("this model takes no questions now: ask again later, with the same id")
            if self.full(lane, rows):
                raise Busy
            self._queues[kind].append(job)
            self._rows[lane] += rows
            self._jobs[lane] += 1
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
                for job in jobs:
                    self._rows[job.lane] -= job.rows
                    self._jobs[job.lane] -= 1
                    if not self._jobs[job.lane]:
                        del self._rows[job.lane], self._jobs[job.lane]
            _deliver(parts)

    def _beat(self) -> None:
        """At public times: where nobody asks, a lost ledger shows in nothing else, as a label fails for its bringer."""
        while not self._ending.wait(mending.BEAT):
            desk = self._desk
            try:
                desk.beat()
            except StateError as error:
                self._fail(desk, str(error))

    def _next(self, kind: Work) -> list[_Job]:
        """What is served next; nothing when all is served and it is time to go."""
        queue, taken, rows = self._queues[kind], list[_Job](), 0
        while not taken:
            with self._lock:
                while not queue and not self._closing:
                    self._changed[kind].wait()
                if not queue:
                    return taken
                enough = self._rows[queue[0].lane] >= ENOUGH
            if kind == "ask" and self._several and not enough and not self._closing:
                time.sleep(GATHER)
            with self._lock:
                most = 1 if kind == "call" else self._group  # looks that wait together find the first one's
                while queue and (not taken or rows + queue[0].rows <= most):
                    taken.append(queue.popleft())
                    rows += taken[-1].rows
                if kind == "ask":
                    self._several = len(taken) >= SEVERAL
        return taken

    def _served_by(self, kind: Work, jobs: list[_Job]) -> list[tuple[_Job, Any]]:
        """What comes of each job."""
        desk = self._desk
        if kind in ("call", "look"):
            return [(job, self._done(kind, 1, desk, partial(job.what, desk))) for job in jobs]
        rows = jobs[0].what if len(jobs) == 1 else [row for job in jobs for row in job.what]
        serve: Callable[[Any], Any] = desk.ask if kind == "ask" else desk.learn
        results = self._done(kind, len(rows), desk, partial(serve, rows))
        at, parts = 0, list[tuple[_Job, Any]]()
        for job in jobs:
            parts.append((job, results if isinstance(results, Exception) else results[at : at + job.rows]))
            at += job.rows
        return parts

    def _done(self, kind: Work, rows: int, desk: Desk, work: Callable[[], Any]) -> Any:
        """What work gives, or the error that all who wait for it are told alike."""
        began = time.perf_counter()
        try:
            result = work()
        except NotYet as error:
            return Unavailable(str(error))
        except Later:
            return Unavailable("this could not be made durable: bring it again")
        except BaseException as error:  # nobody may be told what it was, nor does a thread end by it that others need
            if isinstance(error, StateError) and desk.ended:
                self._fail(desk, str(error))
                return Unavailable("this model's state cannot be written or read: nobody is answered until it can be")
            if kind == "call" and isinstance(error, ValueError) and not isinstance(error, StateError):
                return CallRefused(str(error))
            self._observer.failed(self.name, kind, error)
            return Unavailable("this model could not serve the request: the operator has been told")
        self._observer.served(self.name, kind, rows, time.perf_counter() - began)
        return result

    def _fail(self, desk: Desk, why: str) -> None:
        """The desk ended, for everybody alike: it is closed and opened again, in a thread of its own."""
        if self._desk is desk and not isinstance(desk, Gone):
            gone = Gone(desk, why)
            with self._lock:
                if self._desk is not desk:  # another thread was quicker
                    return
                self._desk, self.failure, self._shown = gone, why, (None, None, {})
                mended = self._reopen is not None and not self._closing
                if mended:
                    self._mender = Mender(desk, cast(Reopen, self._reopen), self._still, self._mended)
            if not mended:
                with contextlib.suppress(Exception):  # it could not be written: that is why it is closed
                    desk.close()
        self._observer.ready(self.name, self.failure)

    def _still(self, why: str) -> None:
        self.failure = why
        self._observer.ready(self.name, why)

    def _mended(self, desk: Desk) -> None:
        with self._lock:
            self._desk, self.failure = desk, None
        self._observer.ready(self.name, None)

    def _known(self, desk: Desk) -> Mapping[str, Any] | None:
        """What was shown of this desk last, if it still shows that."""
        whose, moment, shown = self._shown
        return shown if whose is desk and moment == desk.moment else None

    def _look(self, desk: Desk) -> Mapping[str, Any]:
        shown = self._known(desk)
        if shown is None:
            moment = desk.moment  # first: what changes meanwhile is looked at again
            shown = dict(desk.public())
            self._shown = desk, moment, shown
        return shown


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(Expired())


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
