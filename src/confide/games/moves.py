"""The moves of the OnlineGame, what the adversary sees of them, and what both sides must be able to do."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np

from confide.pop.base import Unit


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
    errors: list[tuple[int, str]] = field(default_factory=list)
    """What those under control were told of labels and records that were refused, and after how many answers."""
    coins: int = 0
    """The seed of the adversary's own coins."""
    released: list[Any] = field(default_factory=list)
    """The noisy sums that the mechanism's guide released, in order: everybody may see them."""


class Mechanism(Protocol):
    """The least that can be played against: `confide.pop.base.Mechanism`, POP for one, is more.

    Optional: `teach`, `predict_many` with `rounds`, `follow_many` with `labels`, `state` ("halted" ends the game), and
    `unit=` in the calls.
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
    unit: Unit | None = None


@dataclass(frozen=True)
class Batch:
    """Many rounds, chosen together: their answers come back together. With `ys` each has its label at once.

    The rows that `second` names are challenges: what is in `xs` and `ys` at bit 0, and what it says, (x, y), at bit 1.
    """

    xs: Any
    ys: Any = None
    units: Sequence[Unit] | None = None
    second: Mapping[int, tuple[Any, Any]] | None = None


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
    unit: Unit | None = None


@dataclass(frozen=True)
class Records:
    """Many visible records to teach."""

    xs: Any
    ys: Any
    units: Sequence[Unit] | None = None


Move = Round | Batch | Label | Record | Records


class Adversary(Protocol):
    """The other side: a generator of moves that is sent what it may see of each.

    It is sent a `Seen` for a round, a list of them for a batch, BOTTOM for a challenge, for labels and records None, or
    the text of the error where they were refused.
    All its coins come from the generator it is given. Optional, for `audit`: `score(view)`, larger where bit 1 is more
    likely; `law()`, the exact curve of that score; `summary(view)`, numbers to learn a score from.
    """

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]: ...


def flag(challenge: Any) -> bool:
    """Whether a move is a challenge: True or False, and no number, of which a negative one would buy more of them."""
    if not isinstance(challenge, bool | np.bool_):
        raise RuleBroken("a move's `challenge` is True or False")
    return bool(challenge)


def name_of(unit: Any) -> bytes:
    """A person's name as mechanisms read it: text is its UTF-8, so that "alice" and b"alice" are one person."""
    if isinstance(unit, str):
        return unit.encode("utf-8", "surrogatepass")
    if isinstance(unit, bytes):
        return unit
    raise RuleBroken("a unit's id is a str or bytes")


def same(first: Any, second: Any) -> bool:
    """Whether two inputs are one and the same to any mechanism: equal types and bits, so 0.0 is not −0.0."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, dict):
        return same([*first.items()], [*second.items()])
    if isinstance(first, float | complex | np.ndarray | np.generic):
        a, b = np.asarray(first), np.asarray(second)
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return same(a.ravel().tolist(), b.ravel().tolist()) if a.dtype.hasobject else a.tobytes() == b.tobytes()
    return bool(first == second)
