"""No copies at all: the bank of a plan whose guide answers alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from confide.arrays import Ints
from confide.banks.base import State


class NoBank:
    """Takes every x, votes for nothing, and learns nothing.

    Examples
    --------
    >>> NoBank(2).votes(None, np.empty(0, dtype=np.int64))
    array([0, 0])
    """

    copies, nbytes = 0, 0

    def __init__(self, labels: int) -> None:
        self.labels = labels

    def encode(self, x: Any) -> Any:
        """Nothing: whether x can be read is the guide's to say."""

    def votes(self, x: Any, poll: Ints) -> Ints:
        """None for any label."""
        return np.zeros(self.labels, dtype=np.int64)

    def learn(self, copy: int, x: Any, y: int) -> None:
        """There is nobody to learn."""

    def encode_many(self, xs: Any) -> tuple[Any, dict[int, str]]:
        """As `encode`."""
        return [None] * len(xs), {}

    def votes_many(self, xs: Any, polls: Ints) -> Ints:
        """As `votes`."""
        return np.zeros((len(xs), self.labels), dtype=np.int64)

    def learn_many(self, copies: Ints, xs: Any, ys: Ints) -> int:
        """As `learn`."""
        return 0

    def reset(self, copies: Iterable[int]) -> None:
        """There is nothing to forget."""

    def state(self, trusted: bool = False) -> State:
        """Nothing."""
        return {}

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Nothing is taken over."""
        if state:
            raise ValueError("this is the state of a bank with copies, and the plan has none")

    def __repr__(self) -> str:
        return "NoBank()"
