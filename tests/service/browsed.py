"""A service with two models that have a past, served for a browser: what the dashboard is tested against."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from confide import POP, Plan
from confide.learners import LogisticRegression
from confide.pop.monitor import Monitor
from confide.service.app import Model, Service
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from confide.service.doors import Tokens
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.owner import Owner
from confide.service.past import Past
from confide.service.public import public_app
from tests.service.desks import ASKERS, OPERATORS, token

COPIES = Plan.tight(40.0, 1e-3, 3000, copies=60, unsure=400, silent=300, units="people", unit_unsure=8, unit_labels=8)
GUIDE = Plan.tight(8.0, 1e-6, 2000, units="rounds")


def pop(plan: Plan) -> POP:
    people = plan.units == "people"
    monitor = Monitor(1.0, rounds_per_unit=8, delay=50) if people else None
    return POP(
        LogisticRegression() if plan.copies else None, plan, labels=["ham", "spam"], features=2, seed=1,
        monitor=monitor, units=plan.units or "rounds",
    )  # fmt: skip


def past(desk: PopDesk, rounds: int) -> Past:
    """So many rounds of made-up people; two of three bring a label, and a tenth of the labels is wrong."""
    coins, minutes = random.Random(1), itertools.count(1_900_000_000, 60)
    seen = Past(clock=lambda: float(next(minutes)))
    for start in range(0, rounds, 100):
        asked = []
        for i in range(start, start + 100):
            x = [coins.uniform(-1, 1), coins.uniform(-1, 1)]
            asked.append(Question(f"tokens:person {i % 150}", f"{i}", x if i % 97 else [1.0]))
        answers = desk.ask(asked)
        lessons = []
        for question, one in zip(asked, answers, strict=True):
            if one.answer is not None and coins.random() < 2 / 3:
                right = (question.x[0] > 0) != (coins.random() < 0.1)
                lessons.append(Taught(question.subject, one.answer.ticket, "spam" if right else "ham"))
        desk.learn(lessons)
        seen.note(desk.public(), desk.private())
    return seen


def made(folder: Path) -> Service:
    """The service; its models are closed with their owners."""
    log = Log(io.StringIO())
    metrics = Metrics(log)
    models = {}
    for name, plan, rounds in (("spam", COPIES, 1500), ("queue", GUIDE, 400)):
        desk = PopDesk.open(folder / name, lambda plan=plan: pop(plan), name=name)  # type: ignore[misc]
        models[name] = Model(past=past(desk, rounds), owner=Owner(desk, metrics))
    service = Service(models, Tokens("asker", ASKERS), Tokens("operator", OPERATORS), metrics, log)
    asyncio.run(_asked(service))
    return service


async def _asked(service: Service) -> None:
    transport = httpx.ASGITransport(public_app(service))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for i in range(10):
            told = await client.post("/models/spam/ask", json={"x": [0.1, 0.2 * i]}, headers=token("ann"))
            await client.post(
                "/models/spam/label", json={"ticket": told.json()["ticket"], "label": "spam"}, headers=token("ann")
            )


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """An app on a free port of this machine."""
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
