"""What a row says, column by column: numbers, categories and texts, by a rule that was fixed beforehand."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.contained import Contained
from confide.text import Embedding
from confide.values import number_in

__all__ = [
    "FORM",
    "Columns",
    "Malformed",
    "Row",
    "by_position",
    "category_of",
    "digest",
    "number_of",
    "parts_of",
    "text_of",
    "words_of",
]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_GRAM = 4
_LONGEST = 1 << 16  # characters of a text that are read: one unit's row must not take for ever


FORM = "x is not of a form that the guide takes: give plain numbers and texts"


class Malformed(ValueError):
    """What is wrong with x, in words of ours: they quote nothing of it but the names that were declared."""


class Row(NamedTuple):
    """One row, read: a missing number is NaN; a category is a 64-bit digest of its column and value."""

    numbers: NDArray[np.float64]
    codes: NDArray[np.uint64]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """The declared columns of x, a dict by name or an array by position. What is not declared is ignored.

    Where columns are positions, a dict of other names only is refused: it was meant for another model.

    Parameters
    ----------
    numeric, categorical, text
        Names of columns by kind; for arrays their positions, as "0", "1", ….
    encoders
        For each text its public encoder, or None; left out where no text has one.

    Examples
    --------
    >>> columns = Columns(numeric=("age",), categorical=("city",))
    >>> columns.read({"age": 41, "city": "Rome"}).numbers
    array([41.])
    >>> Columns.of_array(3).read([1, 2, None]).numbers
    array([ 1.,  2., nan])
    """

    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    encoders: tuple[Embedding | None, ...] = field(default=(), repr=False)
    positions: int | None = field(init=False, repr=False, compare=False)
    """The length of an array that is read by position; None where names are no positions."""

    def __post_init__(self) -> None:
        for kind in ("numeric", "categorical", "text"):
            if isinstance(getattr(self, kind), str):
                raise ValueError(f"{kind} takes a list of names, not one string")
            object.__setattr__(self, kind, tuple(getattr(self, kind)))
        object.__setattr__(self, "encoders", tuple(self.encoders))
        if self.encoders and len(self.encoders) != len(self.text):
            raise ValueError("give one encoder, or None, for each text")
        names = [*self.numeric, *self.categorical, *self.text]
        if not names or len(set(names)) < len(names):
            raise ValueError("declare at least one column, and each name once")
        positions = set(names) == {str(i) for i in range(len(names))}
        object.__setattr__(self, "positions", len(names) if positions else None)

    @classmethod
    def of_array(cls, width: int) -> Columns:
        """All numbers, by position."""
        return cls(numeric=tuple(str(i) for i in range(width)))

    def read(self, x: Any, /) -> Row:
        """The row that `x` is, or a `Malformed` that says what is wrong with it and shows nothing of it."""
        with Contained(Malformed):  # x may be any object at all, and raise anything when it is looked at
            if not isinstance(x, Mapping):
                x = self._by_position(x)
            self.check(x)
            numbers = np.array([number_of(name, x.get(name)) for name in self.numeric], dtype=np.float64)
            codes = np.array([category_of(name, x.get(name)) for name in self.categorical], dtype=np.uint64)
            return Row(numbers, codes, tuple(text_of(name, x.get(name)) for name in self.text))
        raise Malformed(FORM)

    def check(self, x: Mapping[Any, Any], /) -> None:
        """Refuse names of which none is a column where columns are positions: nothing would be left of such an x."""
        if self.positions is not None and x and not any(str(i) in x for i in range(self.positions)):
            raise Malformed("x has none of the features that were declared: give an array, or their positions as names")

    def _by_position(self, x: Any) -> Mapping[str, Any]:
        if self.positions is None:
            raise Malformed("x must be a dict of features, as declared")
        values = by_position(x)
        if len(values) != self.positions:
            raise Malformed("x has another number of features than were declared")
        return values


def by_position(x: Any) -> Mapping[str, Any]:
    """The values of a one-dimensional array, named "0", "1", …."""
    if isinstance(x, str | bytes) or not isinstance(x, Sequence | np.ndarray) or getattr(x, "ndim", 1) != 1:
        raise Malformed("x must be a dict of features, or a one-dimensional array")
    return {str(i): value for i, value in enumerate(x)}


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


def number_of(name: str, value: Any) -> float:
    """The number that `value` is in the declared column `name`; NaN where it is missing."""
    if isinstance(value, str):
        with suppress(ValueError):  # else it is refused below
            value = number_in(value)
    if value is None:
        return float("nan")
    if isinstance(value, float | Real | np.bool_):
        try:
            return float(value)
        except OverflowError:  # an integer of hundreds of digits
            return float("-inf") if value < 0 else float("inf")
    raise Malformed(f"feature {name!r} must be a number, or None where it is missing")


def category_of(name: str, value: Any) -> int:
    """The digest of a column's category; 0 where it is missing. Equal numbers are equal categories."""
    if value is None:
        return 0
    if isinstance(value, bytes):
        return digest(f"{name}={value.hex()}")
    if isinstance(value, float | Real | np.bool_):
        number = number_of(name, value)
        value = str(int(number)) if np.isfinite(number) and number.is_integer() else repr(number)
    if not isinstance(value, str):
        raise Malformed(f"feature {name!r} must be a text, bytes, a number, or None where it is missing")
    return digest(f"{name}={str.__str__(value)}") or 1  # a subclass may answer otherwise every time


def text_of(name: str, value: Any) -> str:
    """The text that `value` is; empty where it is missing."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"feature {name!r} must be a text, or None where it is missing")
    return str.__str__(value)
