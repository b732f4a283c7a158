"""What an operator sees of a model's past: counts over public rounds, in few bins. Private: for their eyes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.pop.base import SOURCES

__all__ = ["Counts"]

_COLUMNS = (*SOURCES, "refused", "labels", "wrong", "unsure")
_BINS = 256


class Counts:
    """Rounds by source, labels that came and how many differed from the answer, by the round of the question.

    At most 256 bins: when they are full each takes twice as many rounds.

    Parameters
    ----------
    first
        The round before the first that is counted.
    """

    def __init__(self, first: int = 0) -> None:
        self._first, self._width = first, 64
        self._bins: NDArray[np.int64] = np.zeros((_BINS, len(_COLUMNS)), dtype=np.int64)
        self._last = first

    def asked(self, numbers: Sequence[int], sources: Sequence[int], unsure: int) -> None:
        """Rounds were answered from these sources, −1 where they were refused; so many unsure answers were counted."""
        if not numbers:
            return
        last = self._bin(max(numbers))  # first: it may make the bins wider
        rows = np.maximum(0, (np.array(numbers) - self._first - 1) // self._width)
        columns = np.array(sources)
        np.add.at(self._bins, (rows, np.where(columns < 0, len(SOURCES), columns)), 1)
        self._bins[last, -1] = max(unsure, self._bins[last, -1])
        self._last = max(self._last, *numbers)

    def labelled(self, number: int, wrong: bool) -> None:
        """The label of a round came."""
        if number > self._first:
            self._add(number, len(SOURCES) + 1)
            if wrong:
                self._add(number, len(SOURCES) + 2)

    def _add(self, number: int, column: int) -> None:
        self._bins[self._bin(number), column] += 1

    def _bin(self, number: int) -> int:
        while (found := (number - self._first - 1) // self._width) >= _BINS:
            pairs = self._bins.reshape(_BINS // 2, 2, -1)
            self._bins = np.zeros_like(self._bins)
            self._bins[: _BINS // 2] = pairs.sum(axis=1)
            self._bins[: _BINS // 2, -1] = pairs.max(axis=1)[:, -1]
            self._width *= 2
        return max(0, found)

    def totals(self) -> dict[str, int]:
        """All bins together."""
        return dict(zip(_COLUMNS[:-1], self._bins[:, :-1].sum(axis=0).tolist(), strict=True))

    def series(self) -> dict[str, Any]:
        """The bins: `round` is the first round of each; `unsure` is the count at its end, 0 where none was counted."""
        used = max(1, self._bin(self._last) + 1) if self._last > self._first else 0
        columns = dict(zip(_COLUMNS, self._bins[:used].T.tolist(), strict=True))
        return {"width": self._width, "round": [self._first + 1 + i * self._width for i in range(used)], **columns}

    def params(self) -> dict[str, Any]:
        """As JSON's kinds of values."""
        return {"first": self._first, "width": self._width, "last": self._last, "bins": self._bins.tolist()}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> Counts:
        """What `params` gave."""
        made = cls(params["first"])
        made._width, made._last = params["width"], params["last"]
        made._bins = np.array(params["bins"], dtype=np.int64).reshape(_BINS, len(_COLUMNS))
        return made
