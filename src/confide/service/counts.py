"""What an operator sees of a model's past: counts over public rounds, in few bins. Private: for their eyes alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from confide.pop.base import SOURCES

__all__ = ["Counts"]

_COLUMNS = (*SOURCES, "refused", "labels", "wrong", "unsure")
_BINS = 256


class Counts:
    """Rounds by source, labels that came and how many differed from the answer, by the round of the question.

    At most 256 bins: when they are full each takes twice as many rounds.

    Parameters
    ----------
    saved
        What `dump` gave; None to begin with nothing.
    """

    def __init__(self, saved: bytes | None = None) -> None:
        about: dict[str, Any] = {"width": 64, "last": 0, "bins": []} if saved is None else json.loads(saved)
        self._width, self._last = int(about["width"]), int(about["last"])
        self._bins = np.zeros((_BINS, len(_COLUMNS)), dtype=np.int64)
        self._bins[: len(about["bins"])] = np.array(about["bins"], dtype=np.int64).reshape(-1, len(_COLUMNS))

    def asked(self, numbers: Sequence[int], sources: Sequence[int], unsure: int) -> None:
        """Rounds were answered from these sources, −1 where they were refused; so many unsure answers were counted."""
        if not numbers:
            return
        last = self._bin(max(numbers))  # first: it may make the bins wider
        columns = np.array(sources)
        rows = (np.array(numbers) - 1) // self._width
        np.add.at(self._bins, (rows, np.where(columns < 0, len(SOURCES), columns)), 1)
        self._bins[last, -1] = max(unsure, self._bins[last, -1])
        self._last = max(self._last, *numbers)

    def labelled(self, number: int, wrong: bool) -> None:
        """The label of a round came."""
        row = self._bin(number)
        self._bins[row, len(SOURCES) + 1] += 1
        self._bins[row, len(SOURCES) + 2] += wrong

    def _bin(self, number: int) -> int:
        while (found := (number - 1) // self._width) >= _BINS:
            pairs = self._bins.reshape(_BINS // 2, 2, -1)
            self._bins = np.zeros_like(self._bins)
            self._bins[: _BINS // 2] = pairs.sum(axis=1)
            self._bins[: _BINS // 2, -1] = pairs.max(axis=1)[:, -1]
            self._width *= 2
        return int(found)

    @property
    def empty(self) -> bool:
        """Whether nothing was counted yet."""
        return self._last == 0

    def totals(self) -> dict[str, int]:
        """All bins together."""
        return dict(zip(_COLUMNS[:-1], self._bins[:, :-1].sum(axis=0).tolist(), strict=True))

    def series(self) -> dict[str, Any]:
        """The bins: `round` is the first round of each, `unsure` the count at its end, 0 where nothing was asked."""
        used = self._bin(self._last) + 1 if self._last else 0
        columns = dict(zip(_COLUMNS, self._bins[:used].T.tolist(), strict=True))
        return {"width": self._width, "round": [1 + i * self._width for i in range(used)], **columns}

    def dump(self) -> bytes:
        """Everything, as JSON."""
        used = self._bin(self._last) + 1 if self._last else 0
        about = {"width": self._width, "last": self._last, "bins": self._bins[:used].tolist()}
        return json.dumps(about).encode()
