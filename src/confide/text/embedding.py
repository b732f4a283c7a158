"""One text, one vector of norm at most 1: what an encoder says, made safe to use.

An encoder is somebody else's program, and what people send reaches it. So it is asked about one text at a time: a
vector can then not depend on what others sent, not even in its last bit, as it would where texts of a batch are padded
to one length. Whatever an encoder raises or returns for a text, the text has a vector; nobody's row is refused for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from confide.contained import contained, tried
from confide.text.names import encoder_named

GRID = 1 << 20
"""Coordinates are whole multiples of 1/GRID: then a norm can be checked in integers, and is."""

LONGEST = 1 << 16
"""Characters of a text that are read: one unit's row must not take for ever."""

_UNDER = 1 - 2.0**-20  # what is scaled by it stays below 1 however floating point rounds
_WIDEST = 1 << 14
_PROBE = ("a text", "")


@runtime_checkable
class TextEncoder(Protocol):
    """Whatever turns texts into vectors: Confide's own, a sentence-transformers model, or one of yours.

    It must be *public and frozen*: of an encoder that was trained or tuned on protected texts, what it learned of them
    is outside the guarantee. It must keep nothing of the texts that it is asked about.
    """

    def encode(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """One row a text, all of one width."""


class Embedding:
    """An encoder as Confide asks it.

    Parameters
    ----------
    encoder
        The name of one (`confide.text.NAMES`, or what was registered), or an encoder itself. Only a name can be
        written into a saved state.

    Examples
    --------
    >>> class Length:
    ...     def encode(self, texts):
    ...         return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)
    >>> Embedding(Length()).vector("four")
    array([0.97014141, 0.24253464])
    """

    def __init__(self, encoder: str | TextEncoder) -> None:
        self.name = encoder if isinstance(encoder, str) else None
        self.encoder: TextEncoder = encoder_named(encoder) if isinstance(encoder, str) else encoder
        if not isinstance(self.encoder, TextEncoder):
            raise ValueError("an encoder must have a method encode(texts) that returns one row of numbers a text")
        self.width = self._probe()
        self.asked = self.failed = 0
        """Texts that it was asked about since it was made, and those that it failed on: private, for the operator."""

    def _probe(self) -> int:
        """The width of the vectors; an encoder that cannot do its work is refused before anybody depends on it."""
        found, failed = tried(lambda: [np.asarray(self.encoder.encode([text]), dtype=np.float64) for text in _PROBE])
        if failed is not None:
            raise ValueError("the encoder failed on a plain text: try encode(['a text']) by itself first") from failed
        shapes = {each.shape for each in found}
        shape, *others = shapes
        if others or len(shape) != 2 or shape[0] != 1 or not 1 <= shape[1] <= _WIDEST:
            raise ValueError(f"an encoder must return one row of 1 to {_WIDEST} numbers for one text, always as many")
        if not np.isfinite(found[0]).all():
            raise ValueError("the encoder returns numbers that are not finite, even for a plain text: take another one")
        return int(shape[1])

    def vector(self, text: str, /) -> NDArray[np.float64]:
        """The text's direction, of norm at most 1; zeros, and counted, for one that the encoder fails on."""
        self.asked += 1
        with contained:  # its errors are between it and this one text
            plain = text[:LONGEST].encode("utf-8", "replace").decode()  # lone surrogates are no text to most encoders
            found = np.asarray(self.encoder.encode([plain]), dtype=np.float64).reshape(self.width)
            if np.isfinite(found).all():
                return _direction(found)
        self.failed += 1
        return np.zeros(self.width)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Embedding):
            return NotImplemented
        return self.encoder is other.encoder if self.name is None else self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name or id(self.encoder))

    def __deepcopy__(self, memo: dict[int, Any]) -> Embedding:
        return self  # public and frozen

    def __repr__(self) -> str:
        return f"Embedding({self.name or type(self.encoder).__name__!r})"


def _direction(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The unit vector, cut to whole multiples of 1/GRID whose squares sum to at most 1: checked in integers."""
    largest = np.abs(values).max()
    if not 0 < largest < np.inf:  # false for NaN too
        return np.zeros(values.size)
    values = values / largest
    whole = (values * (GRID * _UNDER / np.sqrt((values * values).sum()))).astype(np.int64)  # toward zero
    if int((whole * whole).sum()) > GRID * GRID:
        raise ArithmeticError("a direction's norm exceeds 1: it was scaled wrongly")
    return np.asarray(whole / GRID)
