"""What is taught randomized labels: one model, whatever it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from confide.privacy.response import Response

__all__ = ["Taught"]


class Taught(Protocol):
    """A model that is asked rows, and taught what came out of the response for their labels, never the labels.

    A row is read once, when it is asked; what was read waits for its label. All that a model knows comes from rows and
    outputs, so all of it may be shown.
    """

    beside: bool
    """Whether fits run beside the answers, as in a service (`confide.labels.fitting`)."""

    @property
    def response(self) -> Response:
        """The known law of what it is taught."""

    def read(self, x: Any) -> Any:
        """The row that x is, or a ValueError that says what is wrong with it."""

    def read_many(self, xs: Any) -> Any:
        """Many rows at once; their `refused` says which could not be read."""

    def answer(self, row: Any) -> tuple[int, NDArray[np.float64] | None]:
        """The number of the label, −1 where it has none; and the probability of every label, where it knows them."""

    def answer_many(self, rows: Sequence[Any]) -> list[tuple[int, NDArray[np.float64] | None]]:
        """The same of each of several rows, between which nothing is taught."""

    def teach(self, row: Any, out: int) -> None:
        """Learn what came out for the label of this row."""

    def follow(self, rows: Any, outs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The label of each row, which is taught before the next is asked; a negative output is none."""

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Everything it knows, as arrays."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from there."""
