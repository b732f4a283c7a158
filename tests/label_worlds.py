"""Two worlds for labels alone: they differ in one label, and no bit that anybody sees, stores or counts may differ.

The words that are drawn are forced to those whose output is the same for every label (docs/proofs/labels.md: the first
L·o words). Then both worlds are one and the same function of rows, times and outputs, so whatever differs saw the true
label. What is compared after each step: the answer and its probabilities, the error, what the model knows, when it was
fitted, its ledger and journal, and how many words were used.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from confide import POP
from confide.ledger import Ledger
from confide.privacy.response import Response
from tests.label_pops import Full, part

Make = Callable[[], POP]


class Step(NamedTuple):
    """Ask a row, teach a record, or bring the label of question `of`: in each world its own, None for none at all."""

    what: str
    of: int = 0
    labels: tuple[Any, Any] = (None, None)
    disk_full: bool = False


class Forced:
    """Words below L·o: what comes out is the same for every label. They depend on the step, and not on those before.

    With a deadline a label that came has a word of its own, and the declared one another: all say the same output.
    """

    secure = False

    def __init__(self, response: Response, one_output: bool = False) -> None:
        self._response, self._one, self.used = response, one_output, 0
        self._step = self._within = 0

    def begin(self, step: int) -> None:
        self._step, self._within = step, 0

    def word(self) -> int:
        self.used, self._within = self.used + 1, self._within + 1
        at = random.Random(f"{self._step}, {self._within}").randrange(1000)
        return (0 if self._one else at % self._response.labels) * self._response.other + at

    def words(self, n: int) -> Any:
        return np.array([self.word() for _ in range(n)], dtype=np.uint64)

    fresh_word, fresh_words = word, words


class World:
    """One of the two."""

    def __init__(self, make: Make, folder: Path | None) -> None:
        self.mechanism, self.folder = make(), folder
        if folder is not None:
            self.mechanism.save(folder)
            self.mechanism.operator.loop.tickets.lives = {}  # the mark of a life is random
        self.part = part(self.mechanism)
        self.words = Forced(self.part.part.response, self.part.part.deadline is not None)
        self.part.rng = self.words  # type: ignore[assignment]
        self.tickets: list[str] = []
        self.brought: set[int] = set()
        self.fits = 0
        self._last: Any = None

    def _moments(self) -> int:
        """How often a fitted model was replaced so far."""
        fitted = getattr(self.part.model, "_model", None)
        self.fits += fitted is not self._last
        self._last = fitted
        return self.fits

    def do(self, step: Step, which: int) -> dict[str, Any]:
        said: Any = None
        error = ""
        try:
            if step.what == "ask":
                answer = self.mechanism.predict([float(len(self.tickets)), 1.0])
                self.tickets.append(answer.ticket)
                said = (answer.label, getattr(answer, "probabilities", None), answer.source, answer.ticket)
            elif step.labels[which] is not None:
                self.mechanism.learn(self.tickets[step.of], step.labels[which])
        except ValueError as raised:
            error = f"{type(raised).__name__}: {raised}".replace(f"{self.folder}", "folder")
        return {
            "an answer": said,
            "a message": error,
            "when it was fitted": self._moments(),
            "what the model knows": {k: v.tobytes() for k, v in sorted(self.part.model.state().items())},
            "a file": None if step.what == "ask" else self._written(),
            "public numbers": (self.mechanism.rounds, self.part.outputs.tolist()),
        }

    def _written(self) -> Any:
        if self.folder is None:
            return None
        ledger = Ledger(self.folder / "ledger.db")
        return ledger.read("pop"), ledger.journal("pop")


def violated(make: Make, script: Sequence[Step], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What differs first, and after which step; or that a label was drawn for twice; "" where nothing is wrong."""
    durable = part(make()).part.deadline is None  # with one the ledger knows that a ticket was used: the operator does
    worlds = [World(make, tmp_path / f"{i}" if durable else None) for i in range(2)]
    disk = Full(monkeypatch)
    try:
        for number, step in enumerate(script):
            disk.full = step.disk_full
            for world in worlds:
                world.words.begin(number)
            lines = [world.do(step, which) for which, world in enumerate(worlds)]
            for what in lines[0]:
                if lines[0][what] != lines[1][what]:
                    return f"step {number}: {what} differs between the worlds"
        asked = sum(step.what == "ask" for step in script)
        for world in worlds:  # with a deadline each question has a draw for the declared label too
            if world.words.used > asked * (1 if world.part.part.deadline is None else 2):
                return "a label was drawn for twice"
    finally:
        disk.full = False
        for world in worlds:
            world.mechanism.close()
    return ""
