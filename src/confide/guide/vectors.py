"""The vectors that public encoders make of texts, as the last features of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.text import Embedding


class Encoded(NamedTuple):
    """The active features of a row: increasing indices, and values whose squares sum to at most 1."""

    indices: Ints
    values: Floats

    def __repr__(self) -> str:
        return "Encoded(…)"


class Vectors:
    """Each text's vector, of norm at most 1, times the value of this part: a row's own, whatever others send.

    Parameters
    ----------
    encoders
        One a text, or None.
    first
        The first feature of this part.
    value
        What a vector of norm 1 is scaled to.
    """

    def __init__(self, encoders: Sequence[Embedding | None], first: int, value: float) -> None:
        self._encoders, self._value = encoders, value
        self.width = sum(encoder.width for encoder in encoders if encoder is not None)
        """How many features."""
        self._indices = np.arange(first, first + self.width)

    def encode(self, texts: Sequence[Sequence[str]]) -> tuple[Ints, Encoded]:
        """How many features each row has, always all, and the features of all."""
        if not self.width:
            return np.zeros(len(texts), dtype=np.int64), Encoded(np.zeros(0, dtype=np.int64), np.zeros(0))
        values = [
            encoder.vector(text)
            for row in texts
            for encoder, text in zip(self._encoders, row, strict=True)
            if encoder is not None
        ]
        indices = np.tile(self._indices, len(texts))
        return np.full(len(texts), self.width), Encoded(indices, self._value * np.concatenate([np.zeros(0), *values]))

    def names(self) -> list[str | None]:
        """The encoders by name, one a text; ValueError where one has none."""
        if any(encoder is not None and encoder.name is None for encoder in self._encoders):
            raise ValueError("an encoder without a name cannot be written down: give it one with confide.text.register")
        return [None if encoder is None else encoder.name for encoder in self._encoders]


def weave(parts: Sequence[tuple[Ints, Encoded]]) -> tuple[Ints, Encoded]:
    """Rows whose parts were encoded apart: how many features each has, and these, row after row, part after part."""
    sizes = np.column_stack([sizes for sizes, _ in parts])
    of = np.repeat(np.tile(np.arange(len(parts)), len(sizes)), sizes.ravel())
    whole = Encoded(np.empty(of.size, dtype=np.int64), np.empty(of.size))
    for number, (_, part) in enumerate(parts):
        here = of == number
        whole.indices[here], whole.values[here] = part
    return sizes.sum(axis=1), whole
