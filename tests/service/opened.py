"""Desks of small models, opened, left as a killed process would leave them, and opened again."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from confide import POP, Plan
from confide.service.base import Question, Refusal, Reply, Taught
from confide.service.desk import PopDesk
from tests.saved import make


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such a place: most tests are not about the disk."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        yield Path(name) / "model"


def open_desk(folder: Path, **settings: Any) -> PopDesk:
    options = {name: settings.pop(name) for name in ("room", "save_every") if name in settings}
    return PopDesk.open(folder, lambda: make(**settings), **options)


def guided(units: str, rounds: int = 600, epsilon: float = 8.0, **settings: Any) -> POP:
    """A guide alone, with leaves of a few rounds; x is two numbers."""
    plan = Plan.tight(epsilon=epsilon, delta=1e-5, rounds=rounds, guide=1.0, units=units)
    features = settings.pop("features", 2)
    return POP(None, plan, labels=["no", "yes"], features=features, units=units, **settings)  # type: ignore[arg-type]


_numbers = count(1)


def killed(desk: PopDesk) -> Path:
    """The disk as it is now, elsewhere: what is found after a kill -9. The desk itself is then of no use any more."""
    copy = desk.folder.with_name(f"after {next(_numbers)}")
    shutil.copytree(desk.folder, copy)
    desk.pop.close()
    return copy


def again(desk: PopDesk, **options: Any) -> PopDesk:
    """Kill it, and open what it left."""
    return PopDesk.open(killed(desk), _never, **options)


def both(desk: PopDesk) -> Iterator[PopDesk]:
    """As it is, and after a kill."""
    yield desk
    yield again(desk)


def _never() -> POP:
    raise AssertionError("there is a state already")


def ask(desk: PopDesk, subject: str, name: str, x: Any) -> Reply:
    return desk.ask([Question(subject, name, x)])[0]


def ticket(asked: Reply) -> str:
    assert asked.answer is not None
    return asked.answer.ticket


def learn(desk: PopDesk, subject: str, brought: str, label: Any) -> Refusal | None:
    return desk.learn([Taught(subject, brought, label)])[0]


def kind(refusal: Refusal | None) -> str | None:
    return None if refusal is None else refusal.kind
