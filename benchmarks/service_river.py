"""What `benchmarks/service.py` compares with: one plain River model, in the service's own app or in the barest one.

    python benchmarks/service_river.py "same app" KEYS
    python benchmarks/service_river.py "bare app" KEYS

Neither is private, and neither writes anything to a disk.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import BaseModel
from river import linear_model

from confide.service.app import Model, Service
from confide.service.base import Question, Refusal, Reply, Said, Taught
from confide.service.doors import Keys, Tokens
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.owner import Owner
from confide.service.public import public_app


class RiverDesk:
    """A desk around one River model: what it is asked it answers, what it is told it learns, and nothing else."""

    name = "m"

    def __init__(self) -> None:
        self.model, self.waiting, self.rounds = linear_model.LogisticRegression(), dict[str, Any](), 0
        self.lock = threading.Lock()

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        with self.lock:
            return [self._one(one.x) for one in questions]

    def _one(self, row: Any) -> Reply:
        self.rounds += 1
        x, ticket = dict(enumerate(row)), str(self.rounds)
        self.waiting[ticket] = x
        return Reply(Said(int(bool(self.model.predict_one(x))), True, ticket, "copies", None), self.rounds)

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        with self.lock:
            for one in lessons:
                self.model.learn_one(self.waiting.pop(one.ticket), bool(one.label))
        return [None] * len(lessons)

    def refused(self, questions: Sequence[Question]) -> Mapping[int, Reply]:
        return {}

    def not_theirs(self, lessons: Sequence[Taught]) -> Mapping[int, Refusal]:
        return {}

    def beat(self) -> None:
        pass

    def close(self) -> None:
        pass


class Ask(BaseModel):
    x: list[float]


class AskMany(BaseModel):
    questions: list[Ask]


class Label(BaseModel):
    ticket: str
    label: int


class LabelMany(BaseModel):
    labels: list[Label]


def bare() -> FastAPI:
    """The same operations as FastAPI's first page would have them: no tokens, no queue, no limits."""
    app, desk = FastAPI(), RiverDesk()

    def asked(questions: list[Ask]) -> list[dict[str, Any]]:
        told = desk.ask([Question("", "", one.x) for one in questions])
        return [{"label": one.answer.label, "ticket": one.answer.ticket} for one in told if one.answer]

    @app.post("/models/m/ask")
    async def ask(question: Ask) -> dict[str, Any]:
        return asked([question])[0]

    @app.post("/models/m/ask-many")
    async def ask_many(questions: AskMany) -> dict[str, Any]:
        return {"answers": asked(questions.questions)}

    @app.post("/models/m/label-many")
    async def label_many(labels: LabelMany) -> dict[str, Any]:
        desk.learn([Taught("", one.ticket, one.label) for one in labels.labels])
        return {"results": [{"taken": True} for _ in labels.labels]}

    return app


def same(keys: Path) -> Any:
    """The service's own public app."""
    log = Log()
    metrics = Metrics(log)
    models = {"m": Model(Owner(RiverDesk(), metrics))}  # type: ignore[arg-type]
    asker, operator = (Tokens(kind, Keys.read(keys / f"{kind}s")) for kind in ("asker", "operator"))  # type: ignore[arg-type]
    return public_app(Service(models, asker, operator, metrics, log))


def main() -> None:
    kind, keys = sys.argv[1], Path(sys.argv[2])
    app: Any = bare() if kind == "bare app" else same(keys)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    Log().event("serving", public=listening.getsockname()[1], operator=0)
    config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, ws="none")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve([listening]))


if __name__ == "__main__":
    main()
