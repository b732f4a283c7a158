"""A desk in memory around a seeded POP, and a service around it: what the doors are tested against."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from confide import POP, Halted, Plan, StateError, TicketError
from confide.learners import LogisticRegression
from confide.service.app import Limits, Model, Service
from confide.service.base import Question, Refusal, Reply, Said, Taught
from confide.service.doors import Keys, Tokens
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.owner import Owner

PLAN = Plan.tight(60.0, 1e-2, 60, copies=30, unsure=45, silent=10, guide=None)
LIMITS = Limits()
ASKERS, OPERATORS = Keys({"k1": b"a" * 32}), Keys({"k1": b"o" * 32})


def pop(**options: Any) -> POP:
    settings: dict[str, Any] = {"labels": ["no", "yes"], "features": 2, "seed": 1, "after_halt": "raise", **options}
    return POP(LogisticRegression(), settings.pop("plan", PLAN), **settings)


class MemoryDesk:
    """Answers from a POP and remembers in dicts: for tests of what is in front of a desk."""

    def __init__(self, name: str = "spam", pop_: POP | None = None) -> None:
        self.name, self.pop = name, pop() if pop_ is None else pop_
        self.stored: dict[tuple[str, str], tuple[str, Reply]] = {}
        self.holders: dict[str, str] = {}
        self.groups: list[tuple[str, int]] = []
        self.gate = threading.Event()
        """Every call waits for it."""
        self.gate.set()
        self.broken = False
        self.lock = threading.RLock()
        self.closed = self.saved = self.looks = 0
        self.life, self.waits = (1, 2, 3), False

    @property
    def ended(self) -> bool:
        return self.broken

    def again(self) -> MemoryDesk:
        """Itself, opened again."""
        self._enter("open", 1)
        return self

    def follows(self, life: Any) -> None:
        assert life == self.life

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        self._enter("ask", len(questions))
        with self.lock:
            return [self._one(question) for question in questions]

    def _one(self, question: Question) -> Reply:
        key, digest = (question.subject, question.id), repr(question.x)
        if key in self.stored:
            before, asked = self.stored[key]
            if before != digest:
                return Reply(None, asked.round, Refusal("conflict", "this id was used with another question"))
            return Reply(asked.answer, asked.round, asked.refusal, again=True)
        unit = {"unit": question.subject} if self.pop.units == "people" else {}
        asked = Reply(None, self.pop.rounds)
        try:
            one = self.pop.predict(question.x, **unit)
            asked = Reply(Said(one.label, one.sure, one.ticket, one.source, one.guide), self.pop.rounds)
            self.holders[asked.answer.ticket] = question.subject  # type: ignore[union-attr]
        except Halted as error:
            asked = Reply(None, self.pop.rounds, Refusal("halted", str(error)))
        except ValueError as error:
            asked = Reply(None, self.pop.rounds, Refusal("malformed", str(error)))
        self.stored[key] = digest, asked
        return asked

    def refused(self, questions: Sequence[Question]) -> Mapping[int, Reply]:
        return {}

    def not_theirs(self, lessons: Sequence[Taught]) -> Mapping[int, Refusal]:
        return {}

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        self._enter("label", len(lessons))
        with self.lock:
            return [self._lesson(one) for one in lessons]

    def _lesson(self, lesson: Taught) -> Refusal | None:
        if self.holders.get(lesson.ticket) not in (None, lesson.subject):
            return Refusal("ticket", "this ticket is somebody else's")
        try:
            self.pop.learn(lesson.ticket, lesson.label)
        except TicketError as error:
            return Refusal("ticket", str(error))
        except ValueError as error:
            return Refusal("label", str(error))
        return None

    def teaching(self, rows: Any, id: str | None = None) -> Iterator[list[Refusal | None]]:
        yield self.teach(rows, id)

    def teach(self, rows: Sequence[tuple[str | None, Any, Hashable]], id: str | None = None) -> list[Refusal | None]:
        self._enter("teach", len(rows))
        told: list[Refusal | None] = []
        for subject, x, label in rows:
            unit = {"unit": subject} if self.pop.units == "people" else {}
            try:
                self.pop.teach(x, label, **unit)  # type: ignore[arg-type]
                told.append(None)
            except ValueError as error:
                told.append(Refusal("malformed", str(error)))
        return told

    def forget(self, subject: str) -> bool:
        self._enter("forget", 1)
        self.pop.forget(subject)
        return any(who == subject for who, _ in self.stored)

    @property
    def moment(self) -> Hashable:
        return self.pop.rounds, self.pop.state

    def public(self) -> Mapping[str, Any]:
        self.looks += 1
        promise = self.pop.guarantee
        return {
            "name": self.name, "units": self.pop.units, "labels": list(self.pop.labels), "state": self.pop.state,
            "halt_reason": self.pop.halt_reason, "rounds": self.pop.rounds, "ticket_life": 10_000, "monitor": None,
            "guarantee": {**asdict(promise), "text": str(promise), "sentence": promise.sentence},
            "plan": str(self.pop.plan), "guide": None,
        }  # fmt: skip

    @property
    def plan(self) -> Plan:
        return self.pop.plan

    def private(self) -> Mapping[str, Any]:
        return {"unsure": self.pop.operator.unsure, "taught": self.pop.operator.taught, "ledger": {"commits": 1}}

    def person(self, subject: str) -> Mapping[str, Any]:
        return {"rounds": sum(who == subject for who, _ in self.stored)}

    def save(self) -> None:
        self.saved += 1

    def beat(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1

    def _enter(self, kind: str, rows: int) -> None:
        self.gate.wait(10)
        self.groups.append((kind, rows))
        if self.broken:
            raise StateError("the disk is full: make room, and open the model again")


def service(*desks: MemoryDesk, limits: Limits = LIMITS, **more: Any) -> Service:
    """A service with these models, whose log is `service.written`."""
    written = io.StringIO()
    log = more.pop("log", None) or Log(written)
    metrics = Metrics(log)
    owner = {name: more.pop(name) for name in ("room", "requests", "group", "threads") if name in more}
    models = {
        desk.name: Model(Owner(desk, metrics, timeout=limits.timeout, reopen=desk.again, **owner))
        for desk in desks or (MemoryDesk(),)
    }
    asker, operator = Tokens("asker", ASKERS), Tokens("operator", OPERATORS)
    made = Service(models, asker, operator, metrics, log, limits, **more)
    made.written = written  # type: ignore[attr-defined]
    return made


def token(subject: str = "ann", models: list[str] | None = None, expires: float = 3600.0) -> dict[str, str]:
    """An asker's header."""
    return {"authorization": f"Bearer {Tokens('asker', ASKERS).sign(subject, expires=expires, models=models)}"}


def operator(models: list[str] | None = None) -> dict[str, str]:
    """An operator's header."""
    return {"authorization": f"Bearer {Tokens('operator', OPERATORS).sign('op', expires=3600.0, models=models)}"}


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for it, however long a busy machine takes."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
