"""Streams: rows of features with their labels, read lazily, with everything public about them declared beforehand.

What a stream says about itself (feature names, labels, number of rows) is treated as public by whoever runs it. Rows
that cannot be read come out as `BadRow`, never dropped in silence, and never with the value that was wrong in them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confide.learners import Features


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


class Piece(NamedTuple):
    """A file of a stream as it was when all its rows were first read."""

    name: str
    rows: int
    digest: str
    """SHA-256 of its bytes. Private: whoever guesses the file can check the guess."""


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
    features
        What x holds: the number of columns of an array, or the features of a dict.
    source
        Makes the rows, from the first one: x is a dict by the names when True, else as `features` says.
    length
        The number of rows, good and bad; None where nobody knows.
    notes
        Sentences that must be said when this stream is run.
    public
        What was taken from all rows together, and is treated as public.
    hints
        What the owner of the rows should hear before they are run. Made of people's rows: for the operator alone.
    unit
        The column that names whose row it is, where one was declared: then people are to be protected.
    label_weights
        Labels and how much is to be made of each, where a schema declares it.
    files
        Where the rows come from files: those, in the order in which they are read.
    alarm
        What is so wrong with the rows' labels that no error can be read without it; one of the hints, or nothing.

    Examples
    --------
    >>> from confide.data.datasets import open_stream
    >>> stream = open_stream("visits", rows=3)
    >>> stream.labels, stream.length, next(stream.rows()).y
    (('kept', 'missed'), 3, 'kept')
    """

    name: str
    labels: tuple[Hashable, ...]
    names: tuple[Hashable, ...]
    features: int | Features
    source: Callable[[bool], Iterator[Item]]
    length: int | None = None
    notes: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    unit: str | None = None
    label_weights: tuple[tuple[Hashable, float], ...] = ()
    files: tuple[Piece, ...] = field(default=(), repr=False)
    alarm: str = ""

    def rows(self, dicts: bool = False) -> Iterator[Item]:
        """All rows from the first one; x is what `features` says, or a dict by the names if asked for."""
        return self.source(dicts)

    def where(self, line: int) -> str:
        """A row in words, by the number that it has in `rows`: a line of one file, or a row of one of many."""
        if len(self.files) < 2:
            return f"line {line:,}"
        for piece in self.files:
            if line <= piece.rows:
                break
            line -= piece.rows
        return f"row {line:,} of {piece.name}"
