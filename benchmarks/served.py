"""What is timed of a service: when a response leaves its tick, and looks without a token while labels come.

`benchmarks/timing.py` has these among its channels. Each trial runs in an event loop of its own thread, as a server's
does, and the work in another thread, as the owner of a model does it.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import confide
from confide.learners import DecisionTree
from confide.service.app import Model, Service
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from confide.service.doors import Keys, Tokens
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.owner import Owner
from confide.service.pace import Ticks
from confide.service.public import public_app

Trial = Callable[[int, Callable[..., Any]], float]

EVERY = 0.03
"""Seconds between a service's ticks."""

REMAINDERS = 0.0011, 0.0019
"""Seconds of work, by the secret: apart by most of the millisecond that an event loop's timers have as their grain."""


def at_ticks(*_: Any) -> None:
    """Says that a response is to leave at the service's own ticks; in any other `run` it leaves when it is done."""


@contextmanager
def looping(kind: str) -> Iterator[Callable[[Coroutine[Any, Any, float]], float]]:
    """An event loop in a thread of its own; what is given back runs something in it."""
    if kind == "uvloop":
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def released(kind: str, every: float = EVERY) -> Iterator[Trial]:
    """How long after its tick a response leaves; without ticks, how long after its beginning."""
    ticks = Ticks(every, lambda: None)

    def busy(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    async def one(bit: int, paced: bool) -> float:
        began = time.perf_counter()
        turn = ticks.turn(began) if paced else None
        await asyncio.get_running_loop().run_in_executor(owner, busy, REMAINDERS[bit])
        if turn is not None:
            await turn.leave()
        return (time.perf_counter() - began) % every

    with ThreadPoolExecutor(1) as owner, looping(kind) as run:
        yield lambda bit, how: run(one(bit, how is at_ticks))


def _service(desk: PopDesk, ticks: Ticks) -> Service:
    log, keys = Log(io.StringIO()), Keys({"k1": bytes(32)})
    metrics = Metrics(log)
    models = {"m": Model(Owner(desk, metrics), ticks)}
    return Service(models, Tokens("asker", keys), Tokens("operator", keys), metrics, log)


@contextmanager
def looks(path: str, when: Literal["before", "beside"]) -> Iterator[Trial]:
    """A look without a token, with or without a label that somebody has brought, or brings at that moment."""
    plan = confide.Plan.tight(200.0, 1e-2, 10**6, copies=300, polls=300, unsure=30_000, silent=0, beta=0.1, guide=None)
    numbers, late = itertools.count(), list[int]()
    ticks = Ticks(EVERY, lambda: late.append(1))

    def make() -> confide.POP:
        return confide.POP(DecisionTree(), plan, labels=[0, 1], features=2, fallback=0, units="people")

    async def get(app: Any) -> None:
        scope = {
            "type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", "root_path": "",
            "client": ("127.0.0.1", 1), "server": ("here", 80), "scheme": "http", "http_version": "1.1",
        }  # fmt: skip

        async def send(message: Any) -> None:
            pass

        await app(scope, None, send)

    async def one(bit: int, service: Service, app: Any) -> float:
        owner, number = service.models["m"].owner, next(numbers)
        (asked,) = await owner.ask([Question("ann", str(number), [number % 7 / 7, 1.0])])
        await owner.look()
        assert asked.answer is not None
        lesson = Taught("ann", asked.answer.ticket, number % 2)
        label: Any = owner.learn([lesson] if bit else [])
        if when == "before":
            await label
        else:
            label = asyncio.create_task(label)
            await asyncio.sleep(0)  # it has begun
        began = time.perf_counter()
        await get(app)
        took = time.perf_counter() - began
        if when == "beside":
            await label
        return took

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, looping("uvloop") as run:
        service = _service(PopDesk.open(Path(folder) / "model", make), ticks)
        paced = public_app(service)
        plain = public_app(Service({"m": Model(service.models["m"].owner)}, service.door, service.operators,
                                   service.metrics, service.log))  # fmt: skip
        try:
            yield lambda bit, how: run(one(bit, service, paced if how is at_ticks else plain))
        finally:
            service.models["m"].owner.close()
