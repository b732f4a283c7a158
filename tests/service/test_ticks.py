"""Responses leave at ticks, whatever they are and however long they took; late ones at the next, and with an alarm."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from confide.service.app import Limits, Model, Service
from confide.service.pace import LAST, Ticks
from confide.service.public import public_app
from tests.service.desks import MemoryDesk, service, token

EVERY = 0.1


class Clock:
    """A clock that only work and sleep move on; a sleeper may wake late by a part of what it slept."""

    def __init__(self, late: float = 0.0) -> None:
        self.now, self.late = 1000.0, late
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds * (1 + self.late)


def wait(work: float, clock: Clock, alarms: list[int] | None = None) -> None:
    ticks = Ticks(EVERY, lambda: (alarms if alarms is not None else []).append(1), clock=clock, sleep=clock.sleep)
    began = clock.now
    clock.now += work
    asyncio.run(ticks.wait(began))


@pytest.mark.parametrize(
    ("work", "ticks"), [(0.0, 1), (0.03, 1), (0.0949, 1), (0.0951, 2), (0.12, 2), (0.1949, 2), (0.1951, 3), (5.0, 51)]
)
def test_work_of_any_length_leaves_at_a_tick_and_late_work_raises_an_alarm(work: float, ticks: int) -> None:
    clock, alarms = Clock(), list[int]()
    wait(work, clock, alarms)
    assert clock.now == pytest.approx(1000 + ticks * EVERY, abs=1e-9) and len(alarms) == (ticks > 1)


def test_a_late_sleeper_is_as_late_whatever_the_work_took() -> None:
    lates, once = [], []
    for work in (0.001, 0.04, 0.09):
        clock = Clock(late=0.02)
        wait(work, clock)
        lates.append(clock.now - 1000 - EVERY)
        assert len(clock.slept) == 2 and clock.slept[1] <= LAST
        once.append(0.02 * (EVERY - work))  # what one sleep would be late
    assert max(lates) - min(lates) <= 0.02 * LAST + 1e-9 < (max(once) - min(once)) / 15


def paced(desk: MemoryDesk, clock: Clock, **more: Any) -> Service:
    made = service(desk, clock=clock, **more)
    ticks = Ticks(EVERY, lambda: made.metrics.late(desk.name), clock=clock, sleep=clock.sleep)
    made.models = {desk.name: Model(made.models[desk.name].owner, ticks)}
    return made


async def call(made: Service, path: str, content: Any, headers: dict[str, str], work: float = 0.0) -> tuple[int, float]:
    """Status, and when it left after the request's end, which comes 0.037 s after its beginning."""
    clock: Any = made.clock
    body, sent = json.dumps(content).encode(), list[tuple[Any, float]]()

    async def receive() -> Any:
        clock.now += 0.037
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append((message, clock.now))

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": raw, "query_string": b"",
        "client": ("127.0.0.1", 1), "server": ("test", 80), "scheme": "http", "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    began = clock.now
    await public_app(made)(scope, receive, send)
    assert len({when for _, when in sent}) == 1  # all of it at once
    return sent[0][0]["status"], sent[0][1] - began - 0.037


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/models/spam/ask", {"x": [1.0, 2.0]}, token(), 200),
        ("/models/spam/ask", {"x": None}, token(), 422),
        ("/models/spam/ask", {"no": "question"}, token(), 422),
        ("/models/spam/ask", {"x": "a" * 3000}, token(), 413),
        ("/models/spam/ask", {"x": [1.0, 2.0]}, {}, 401),
        ("/models/spam/ask", {"x": [1.0, 2.0]}, token(models=["news"]), 403),
        ("/models/spam/ask-many", {"questions": [{"x": [1.0, 2.0]}] * 3}, token(), 200),
        ("/models/spam/label", {"ticket": "nonsense", "label": "yes"}, token(), 404),
        ("/models/spam/label-many", {"labels": [{"ticket": "nonsense", "label": "yes"}]}, token(), 200),
        ("/models/spam/nothing", {}, token(), 404),
    ],
)
def test_answers_acknowledgements_and_errors_leave_at_the_tick(
    path: str, content: Any, headers: dict[str, str], status: int
) -> None:
    made = paced(MemoryDesk(), Clock(), limits=Limits(body=2000))
    told, after = asyncio.run(call(made, path, content, headers))
    unread = 0.037 if status == 401 else 0.0  # who is not let in sends a head, and no body is waited for
    assert told == status and after + unread == pytest.approx(EVERY, abs=1e-9)


def test_refusals_and_timeouts_leave_at_ticks_too() -> None:
    desk = MemoryDesk()
    made = paced(desk, Clock(), limits=Limits(timeout=0.05))
    desk.gate.clear()
    question = "/models/spam/ask", {"x": [1.0, 2.0]}, token()
    told, after = asyncio.run(call(made, *question))
    assert told == 504 and after == pytest.approx(EVERY, abs=1e-9)
    made.models["spam"].owner.drain()
    told, after = asyncio.run(call(made, *question))
    assert told == 503 and after == pytest.approx(EVERY, abs=1e-9)
    desk.gate.set()


def test_late_work_leaves_at_the_next_tick_and_the_operator_is_told() -> None:
    desk, clock = MemoryDesk(), Clock()
    made = paced(desk, clock)
    answer = desk.pop.predict

    def slow(x: Any) -> Any:
        clock.now += 0.13
        return answer(x)

    desk.pop.predict = slow  # type: ignore[method-assign]
    told, after = asyncio.run(call(made, "/models/spam/ask", {"x": [1.0, 2.0]}, token()))
    assert told == 200 and after == pytest.approx(2 * EVERY, abs=1e-9) and made.metrics.lates("spam") == 1
    assert json.loads(made.written.getvalue())["event"] == "late"  # type: ignore[attr-defined]


def test_nothing_is_held_while_a_response_waits_for_its_tick() -> None:
    """Two requests of two models, and two of one, wait side by side: real time is one tick, not two."""
    desk = MemoryDesk()
    made = service(desk)
    ticks = Ticks(0.15, lambda: made.metrics.late("spam"))
    made.models = {"spam": replace(made.models["spam"], ticks=ticks)}

    async def main() -> float:
        loop = asyncio.get_running_loop()
        made.clock = time.perf_counter
        began = loop.time()

        async def one() -> None:
            sent = list[Any]()

            async def receive() -> Any:
                return {"type": "http.request", "body": b'{"x": [1.0, 2.0]}', "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            raw = [(name.encode(), value.encode()) for name, value in token().items()]
            scope = {
                "type": "http", "method": "POST", "path": "/models/spam/ask", "headers": raw, "query_string": b"",
                "client": ("127.0.0.1", 1), "server": ("test", 80), "scheme": "http", "root_path": "",
            }  # fmt: skip
            await app(scope, receive, send)
            assert sent[0]["status"] == 200

        app = public_app(made)
        await one()  # the first one compiles
        began = loop.time()
        await asyncio.gather(*(one() for _ in range(20)))
        return loop.time() - began

    assert 0.149 < asyncio.run(main()) < 1.5 and desk.pop.rounds == 21
