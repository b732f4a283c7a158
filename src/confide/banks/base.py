"""What a bank is: all copies of a learner behind one interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bank", "State"]

State = Mapping[str, NDArray[Any] | str | int]


@runtime_checkable
class Bank(Protocol):
    """All copies of one learner, isolated from each other: the ground that the guarantee stands on.

    A lesson touches one copy. No other copy's votes, memory or randomness may depend on it, and asking
    for votes changes nothing at all. `confide.banks.checks` tells whether a bank keeps to that.
    """

    @property
    def copies(self) -> int:
        """The number of copies, k."""

    @property
    def labels(self) -> int:
        """The number of labels, L; inside a bank they are the integers 0 … L−1."""

    @property
    def nbytes(self) -> int:
        """The memory held for the copies, in bytes, native parts included. Private: for the operator."""

    def encode(self, x: Any) -> Any:
        """What the methods below take for `x`: it shares nothing with `x`. Malformed x raises ValueError."""

    def votes(self, x: Any, poll: NDArray[np.int64]) -> NDArray[np.int64]:
        """The votes of the polled copies by label, for an encoded x, in whatever order the copies come.

        A copy that abstains adds to no label; so does one whose learner fails.
        """

    def learn(self, copy: int, x: Any, y: int) -> None:
        """Teach one copy an encoded x.

        An exception of its learner goes up, the lesson learned in part or not at all: POP swallows it.
        """

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything: each is as if it had never been taught."""

    def state(self, trusted: bool = False) -> State:
        """Everything the copies know, as plain arrays, numbers and strings.

        `trusted` allows pickled models inside: only for a state that nobody else can write.
        """

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Take over a state of a bank that was made in the same way; anything else raises ValueError."""
