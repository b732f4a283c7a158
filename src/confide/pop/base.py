"""What a mechanism is: something that answers people, learns from them, and promises each of them something."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from confide.notebook import card
from confide.planning.plan import Guarantee

__all__ = [
    "COPIES", "FALLBACK", "GUIDE", "LEAN", "MODEL", "OWN_SOURCES", "SOURCES", "TICKET_LIFE", "WHO", "Answer", "Durable",
    "Followed", "Mechanism", "Told", "Unit", "Xs", "source_number",
]  # fmt: skip

Unit = str | bytes
Xs = Any
"""Questions: sequences, arrays, or tables of pandas, polars or Arrow; see `confide.frames.rows_of`."""

TICKET_LIFE = 10_000
"""Public rounds after which a ticket expires, unless the user says otherwise."""


OWN_SOURCES = ("fallback", "guide", "lean", "copies", "model")
"""Where an answer may come from in Confide's own plans."""

SOURCES = [*OWN_SOURCES]
"""Where an answer may come from; inside, its number here. A part with another source adds its own."""

FALLBACK, GUIDE, LEAN, COPIES, MODEL = range(5)

WHO = {
    "copies": "the copies agreed",
    "lean": "votes and guide together",
    "guide": "the guide",
    "fallback": "the fallback, which knows nothing private",
    "model": "the model that is taught randomized labels",
}
"""Who answers, in words."""


def source_number(name: str) -> int:
    """The number of a source, which is added where it is new."""
    if name not in SOURCES:
        SOURCES.append(name)
        WHO.setdefault(name, name)
    return SOURCES.index(name)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the asker gets: for their eyes only."""

    label: Any
    sure: bool
    """Whether the copies answered; `source` says who did if not."""
    ticket: str
    """Bring it back once with the right label: `pop.learn(ticket, y)`. Empty where the question was refused."""
    error: str | None = None
    """In a batch: what was wrong with this row, which was then not answered and has no ticket."""
    source: str = "fallback"
    """Who answered: "copies", "lean", "guide", "model" (labels alone) or "fallback", or what another part is called."""
    guide: Any = None
    """The guide's own label for x, whoever answered; None where it has none. It is public: everyone may compute it."""

    def _repr_html_(self) -> str:
        """For a notebook; without the ticket, since whoever has it may teach the label, and notebooks are passed on."""
        if self.error is not None:
            return card("not answered", alarms=(self.error,))
        own = [] if self.guide is None else [("the guide’s own", self.guide)]
        return card(f"{self.label}", [("answered by", WHO[self.source]), *own])


@dataclass(frozen=True, slots=True)
class Told(Answer):
    """An answer where labels alone are protected, with the probability of every label if the model knows them."""

    probabilities: Mapping[Hashable, float] | None = None
    """All of it is public."""


class Followed(NamedTuple):
    """What came of rows that were asked and taught in order: as many as there were rounds left."""

    answers: NDArray[np.int64]
    """The number of the label shown; −1 where the row was refused."""
    sure: NDArray[np.bool_]
    margins: NDArray[np.int64]
    """The vote's margin; −1 in silent rounds, and where the mechanism does not tell its operator."""
    source: NDArray[np.int8]
    """Where the answer came from, a number of `SOURCES`; −1 where the row was refused."""
    guide: NDArray[np.int64]
    """The guide's own answer; −1 where it has none."""

    @classmethod
    def of(cls, given: Sequence[Answer] = (), labels: Sequence[Hashable] = ()) -> Followed:
        """What came of these answers, with all labels: their margins are not known."""
        index = {label: i for i, label in enumerate(labels)}
        answers = [-1 if one.error is not None else index[one.label] for one in given]
        source = [-1 if one.error is not None else SOURCES.index(one.source) for one in given]
        guide = [-1 if one.guide is None else index[one.guide] for one in given]
        sure, none = [one.sure for one in given], np.full(len(given), -1)
        return cls(np.array(answers, int), np.array(sure, bool), none, np.array(source, np.int8), np.array(guide, int))

    @property
    def rounds(self) -> int:
        """Rounds taken."""
        return self.answers.size

    @property
    def refused(self) -> NDArray[np.bool_]:
        """Rows that could not be read."""
        return self.answers < 0


@runtime_checkable
class Mechanism(Protocol):
    """Answers questions, learns labels, and promises each unit something: what games, runs and adapters build on.

    POP is one, and so is whatever is made of POPs. What a mechanism must keep to is tested by one suite for all of
    them (tests/test_mechanisms.py).
    """

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """All labels, public."""

    @property
    def units(self) -> Literal["rounds", "people"]:
        """Whose privacy is protected; people come with an id in every call."""

    @property
    def rounds(self) -> int:
        """Rounds taken so far (public)."""

    @property
    def state(self) -> Literal["silent", "live", "halted"]:
        """Where the run stands (public)."""

    @property
    def halt_reason(self) -> str | None:
        """None, "budget" or "rounds" (public)."""

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to each unit."""

    def predict(self, x: Any, unit: Unit | None = None) -> Answer:
        """Answer one round. An x that cannot be read takes its round too, then raises ValueError to its asker."""

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round. A ticket is good once."""

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> None:
        """Teach a labelled record that was never asked."""

    def predict_many(self, xs: Xs, units: Sequence[Unit] | None = None) -> list[Answer]:
        """Answer many rounds: what `predict` would answer one after the other, errors in the answers."""

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels; all good ones are learned, then ValueError tells of the bad ones."""

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> None:
        """Teach many records; all good ones are learned, then ValueError tells of the bad ones."""


@runtime_checkable
class Durable(Mechanism, Protocol):
    """A mechanism whose spending outlives its process."""

    def save(self, path: str | Path) -> None:
        """Write the state to this folder, and from now on keep a ledger there of everything that is spent."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Go on from a folder that `save` wrote: nothing that was spent is forgotten."""

    def close(self) -> None:
        """Give the folder back; another process may load it then."""
