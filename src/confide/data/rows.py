"""Streams: rows of features with their labels, read lazily, with everything public about them declared beforehand.

What a stream says about itself (feature names, labels, number of rows) is treated as public by whoever runs it. Rows
that cannot be read come out as `BadRow`, never dropped in silence, and never with the value that was wrong in them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from confide._checks import integer
from confide.learners.base import Base, Floats, vector

__all__ = ["HASHED", "BadRow", "Item", "Row", "Stream", "Table"]

HASHED = 16
"""Columns for the categories of a file, all names together."""


class Row(NamedTuple):
    """One round to ask, its right label, whose it is, and where it stood."""

    x: Any
    y: Hashable
    unit: str | None = None
    line: int = 0


class BadRow(NamedTuple):
    """A row with something wrong: where, what, and what of it can still be used.

    It takes its round like any other. Without `x` the question is malformed; without `y` nothing is taught.
    """

    line: int
    reason: str
    x: Any = None
    y: Hashable = None
    unit: str | None = None


Item = Row | BadRow


@dataclass(frozen=True)
class Stream:
    """Rows of (x, y), and what is public about them.

    Parameters
    ----------
    name
        What opens it again.
    labels
        All labels; None is none.
    names
        The names of the features.
    width
        The number of columns of x as an array.
    source
        Makes the rows, from the first one: x is a dict when True, else an array of numbers.
    length
        The number of rows, good and bad; None where nobody knows.
    notes
        Sentences that must be said when this stream is run.

    Examples
    --------
    >>> from confide.data.datasets import open_stream
    >>> stream = open_stream("agrawal", rows=3)
    >>> stream.labels, stream.length
    ((0, 1), 3)
    >>> [row.y for row in stream.rows()]
    [0, 1, 1]
    """

    name: str
    labels: tuple[Hashable, ...]
    names: tuple[Hashable, ...]
    width: int
    source: Callable[[bool], Iterator[Item]]
    length: int | None = None
    notes: tuple[str, ...] = ()

    def rows(self, dicts: bool = False) -> Iterator[Item]:
        """All rows from the first one; x is an array of `width` numbers, or a dict if asked for."""
        return self.source(dicts)


class Table(Base):
    """x is a dict of numbers and categories, told apart value by value: by a rule, not by what else is in the data.

    Each name has one column for its numbers. A text counts 1 in one of `hashed` further columns, by the hash of its
    name and itself. What is missing is 0 everywhere.

    Parameters
    ----------
    names
        The names, in the order of their columns.
    hashed
        Columns for categories; with 0 every text is refused.

    Examples
    --------
    >>> Table(["age", "city"], hashed=4).encode({"age": 41.0, "city": "Rome"})
    array([41.,  0.,  1.,  0.,  0.,  0.])
    """

    def __init__(self, names: Sequence[Hashable], hashed: int = HASHED) -> None:
        self.names, self.hashed = list(names), integer(hashed, "hashed", at_least=0)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError("a table needs at least one feature, and each name once")
        self.width = len(self.names) + self.hashed

    def encode(self, x: Any, /) -> Floats:
        """One row of numbers; ValueError says which feature is wrong."""
        if not isinstance(x, dict):
            raise ValueError("x must be a dict of features, as declared")
        row = np.zeros(self.width)
        for column, name in enumerate(self.names):
            value = x.get(name)
            if value is None:
                continue
            if not isinstance(value, str):
                row[column] = value
            elif self.hashed:
                place = zlib.crc32(f"{name}={value}".encode("utf-8", "surrogatepass")) % self.hashed
                row[len(self.names) + place] += 1.0
            else:
                raise ValueError(f"feature {name!r} must be a number")
        return vector(row)

    def rows(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same rows with x encoded; one whose x cannot be is bad, and goes on without it."""
        for number, item in enumerate(items, 1):
            if item.x is None:
                yield item
                continue
            try:
                x = self.encode(item.x)
            except (ValueError, TypeError, OverflowError):
                reason = "one of its features is not what was declared"
                yield BadRow(item.line or number, reason, None, item.y, item.unit)
                continue
            if isinstance(item, BadRow):
                yield BadRow(item.line, item.reason, x, item.y, item.unit)
            else:
                yield Row(x, item.y, item.unit, item.line)
