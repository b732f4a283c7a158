"""What a row says, column by column, as the guide takes it. `confide.reading` reads it; categories are digests here."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.reading import Malformed, Reader
from confide.text import Embedding

__all__ = ["Columns", "Malformed", "Row", "code_of", "digest", "parts_of", "words_of"]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_GRAM = 4
_NO_CODES = np.zeros(0, dtype=np.uint64)
_LONGEST = 1 << 16  # characters of a text that are read: one unit's row must not take for ever


class Row(NamedTuple):
    """One row, read: a missing number is NaN; a category is a 64-bit digest of its column and value."""

    numbers: NDArray[np.float64]
    codes: NDArray[np.uint64]
    texts: tuple[str, ...]

    def __repr__(self) -> str:
        return "Row(…)"


@dataclass(frozen=True)
class Columns(Reader):
    """The declared columns of x, a dict by name or an array by position. What is not declared is ignored.

    Parameters
    ----------
    numeric, categorical, text
        As for `Reader`.
    encoders
        For each text its public encoder, or None; left out where no text has one.

    Examples
    --------
    >>> columns = Columns(numeric=("age",), categorical=("city",))
    >>> columns.read({"age": 41, "city": "Rome"}).numbers
    array([41.])
    """

    encoders: tuple[Embedding | None, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "encoders", tuple(self.encoders))
        if self.encoders and len(self.encoders) != len(self.text):
            raise ValueError("give one encoder, or None, for each text")

    def read(self, x: Any, /) -> Row:
        """The row that `x` is, or a `Malformed` that says what is wrong with it and shows nothing of it."""
        numbers, categories, texts = self.values(x)
        if not (categories or texts):
            return Row(numbers, _NO_CODES, ())
        codes = [code_of(name, category) for name, category in zip(self.categorical, categories, strict=True)]
        return Row(numbers, np.array(codes, dtype=np.uint64), tuple(text or "" for text in texts))


def digest(key: str) -> int:
    """64 bits of a fixed hash: the same in every process, and unrelated for unrelated keys."""
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def words_of(text: str) -> list[str]:
    """The words of a text, and its other signs."""
    return _TOKEN.findall(text[:_LONGEST].lower())


def parts_of(word: str) -> list[str]:
    """A word, and every four characters inside it: related words share some of these."""
    padded = f"<{word}>"
    return [f"w {word}", *(f"c {padded[i : i + _GRAM]}" for i in range(len(padded) - _GRAM + 1))]


def code_of(name: str, category: str | None) -> int:
    """The digest of a column's category; 0 where it is missing."""
    return 0 if category is None else digest(f"{name}={category}") or 1
