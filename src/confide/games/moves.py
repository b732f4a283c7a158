"""The moves of the OnlineGame, what the adversary sees of them, and what both sides must be able to do."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np

__all__ = [
    "BOTTOM",
    "Adversary",
    "Batch",
    "Label",
    "Mechanism",
    "Move",
    "Record",
    "Records",
    "Round",
    "RuleBroken",
    "Seen",
    "View",
    "same",
]


class RuleBroken(ValueError):
    """The adversary did what the game does not allow."""


class _Bottom(Enum):
    BOTTOM = "⊥"

    def __repr__(self) -> str:
        return "⊥"


BOTTOM = _Bottom.BOTTOM
"""What the adversary sees of a challenge round: nothing."""


class Seen(NamedTuple):
    """What the adversary sees of an answer to somebody it controls."""

    label: Any
    sure: bool
    error: str | None = None


@dataclass
class View:
    """The adversary's view: what it saw, round by round, and its own coins. Nothing else may be scored."""

    answers: list[Any] = field(default_factory=list)
    """A `Seen` (or what the game's mechanism answers), or BOTTOM."""
    halted: bool = False
    """Whether the mechanism halted; that is public."""
    coins: int = 0
    """The seed of the adversary's own coins."""


class Mechanism(Protocol):
    """What can be played against: POP, or anything that answers and learns like it.

    Optional: `teach`, `predict_many`, `state` ("halted" ends the game), `rounds`, and `unit=` in the calls.
    """

    def predict(self, x: Any, /) -> Any: ...

    def learn(self, ticket: Any, y: Any, /) -> None: ...


@dataclass(frozen=True)
class Round:
    """One round: the two labelled inputs (x, y), the same one unless it is a challenge; y is None for no label (yet).

    With `unit` the round belongs to that person; all rounds of a challenged person are challenges.
    """

    first: tuple[Any, Any]
    second: tuple[Any, Any] | None = None
    challenge: bool = False
    unit: str | None = None


@dataclass(frozen=True)
class Batch:
    """Many visible rounds, chosen together: their answers come back together. With `ys` each has its label at once."""

    xs: Any
    ys: Any = None
    units: Sequence[str] | None = None


@dataclass(frozen=True)
class Label:
    """The label of round number `round` (from 1), late; two of them where that round was a challenge."""

    round: int
    first: Any
    second: Any = None


@dataclass(frozen=True)
class Record:
    """A labelled record to teach, never asked: history. A challenge where the two differ; None teaches nothing."""

    first: tuple[Any, Any] | None
    second: tuple[Any, Any] | None = None
    challenge: bool = False
    unit: str | None = None


@dataclass(frozen=True)
class Records:
    """Many visible records to teach."""

    xs: Any
    ys: Any
    units: Sequence[str] | None = None


Move = Round | Batch | Label | Record | Records


class Adversary(Protocol):
    """The other side: a generator of moves that is sent what it may see of each.

    It is sent a `Seen` for a round, a list of them for a batch, BOTTOM for a challenge, None for labels and records.
    All its coins come from the generator it is given. Optional, for `audit`: `score(view)`, larger where bit 1 is more
    likely; `law()`, the exact curve of that score; `summary(view)`, numbers to learn a score from.
    """

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]: ...


def same(first: Any, second: Any) -> bool:
    """Whether two inputs are equal, arrays included."""
    if first is second:
        return True
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(np.asarray(first), np.asarray(second))
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    return bool(first == second)
