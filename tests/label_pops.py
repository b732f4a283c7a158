"""POPs of labels alone, by what tests say of them, and what is seen inside of them."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

from confide import POP, Plan
from confide.games.laws import Curve
from confide.games.moves import Round
from confide.ledger.sqlite import SqliteStore
from confide.pop.base import TICKET_LIFE
from confide.pop.loop import Loop
from confide.pop.randomizing import Randomizing

LABELS = ["no", "yes"]

_plan = cache(Plan.labels_alone)  # games make thousands of POPs


def alone(
    learner: Any = None,
    *,
    labels: Sequence[Hashable] = LABELS,
    epsilon: float = 1.0,
    features: Any = 2,
    units: Literal["rounds", "people"] = "rounds",
    unit_labels: int = 1,
    due: tuple[int, Hashable] | None = None,
    runs: type[Randomizing] = Randomizing,
    loop: type[Loop] = Loop,
    seed: int | None = None,
) -> POP:
    """One that protects labels alone; `runs` and `loop` are for doubles."""
    labels = list(labels)
    numbered = None if due is None else (due[0], labels.index(due[1]))
    plan = _plan(epsilon, len(labels), units=units, unit_labels=unit_labels, due=numbered)
    kind = type("Double", (POP,), {"loop_type": loop}) if loop is not Loop else POP
    life = TICKET_LIFE if due is None else due[0]
    pop: POP = kind(learner, plan, labels=labels, features=features, seed=seed, ticket_life=life)
    if runs is not Randomizing:
        own, inside = part(pop), pop.operator.loop
        double = runs(own.part, features, None, own.rng, inside.account)
        double.given(learner, labels)
        inside.parts.swap(double)
    return pop


def part(pop: POP) -> Randomizing:
    """What randomizes its labels."""
    found = pop.operator.randomizing
    assert found is not None
    return found


def taught(pop: POP) -> Any:
    """The model of one's own that is taught."""
    model: Any = part(pop).model
    return model.learner


class Full:
    """A disk that is full now and then: what is written to a ledger fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self._write = False, SqliteStore.write
        monkeypatch.setattr(SqliteStore, "write", lambda store, batch: self.write(store, batch))

    def write(self, store: Any, batch: Any) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self._write(store, batch)


class Last:
    """Repeats the last label that it was taught: it shows what came out."""

    def __init__(self) -> None:
        self.said: Any = None

    def predict(self, x: Any) -> Any:
        return self.said

    def learn(self, x: Any, y: Any) -> None:
        self.said = y


class Listening:
    """Writes down all that it is taught."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, Any]] = []

    def predict(self, x: Any) -> Any:
        return "no"

    def learn(self, x: Any, y: Any) -> None:
        self.heard.append((tuple(x), y))


class Asker:
    """Challenges with one label in each world, then asks what the model was taught."""

    rounds = 2

    def __init__(self, response: Any) -> None:
        self._curve = Curve(response.law(0), response.law(1))

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        yield Round(([0.0, 0.0], "no"), ([0.0, 0.0], "yes"), challenge=True)
        yield Round(([0.0, 0.0], None), ([0.0, 0.0], None))

    def score(self, view: Any) -> float:
        seen = next(answer for answer in reversed(view.answers) if hasattr(answer, "label"))
        return float(self._curve.scores[LABELS.index(seen.label)])

    def law(self) -> Curve:
        return self._curve
