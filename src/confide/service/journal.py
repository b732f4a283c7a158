"""The journal's rows: a question with what came of it, or a lesson, always of the same width.

A row's width is a public number of the model. Neither the answer nor the length of x shows in it: x is padded, and one
that does not fit is refused. So what a call writes depends on how many rows it has, and on nothing else.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ASKED", "COUNTED", "IMPORT", "MOST_LABELS", "NOBODY", "NUMBERED", "PAST", "STANDS", "TAUGHT", "Columns", "Row",
    "Rows", "Unreadable", "canonical", "head", "pack", "stands_of", "unpack",
]  # fmt: skip

ASKED, TAUGHT, COUNTED = "asked", "taught", "counted"
"""The kinds of notes: questions, lessons, and what the operator is shown of all that came before it."""

NOBODY = bytes(16)
"""Whose row it is once it was erased."""

IMPORT = -1
"""The epoch, which no ticket has, in the rows that name an import of history."""

PAST = -2
"""The copy, which there is none of, of a question whose label is past its person's cap: none is ever taken for it."""

STANDS = -3
"""From here down, a copy that there is none of says what came out for the label that stands for a missing one."""

NUMBERED = 0
"""The source, which a lesson has none of, of a record that took a row's number, and may be counted for ranges."""

MOST_LABELS = 2**15 - 1
"""Labels that a row can name."""

_NUMBERS = frozenset({float, int})
_FIELDS = "<16s16s16sqiiihhbI"
_HEAD = Struct(_FIELDS)


class Row(NamedTuple):
    """One row."""

    whose: bytes
    """16 bytes that stand for the subject; all zeros once they were forgotten."""
    id: bytes
    """16 bytes that stand for the request's id, or the import's; zeros in a lesson."""
    digest: bytes
    """16 bytes that stand for x, or for all records of an import."""
    number: int
    """The round; 0 for none; of an import, the rounds before it."""
    epoch: int
    copy: int
    """−1 for none, `PAST`, or `STANDS` less what stands for the label."""
    leaf: int
    """Of a lesson: the guide's leaf that has its gradient; −1 for none. Of a question, the minute it came (public)."""
    label: int
    """Of a question the answer's, −1 for none; of a lesson the one that was brought."""
    guided: int
    """Of a question the guide's own answer; of a label's lesson what had been answered."""
    source: int
    """Of a question; of a record `NUMBERED`, or −1."""
    x: bytes | None
    """Packed; None where it could not be."""

    def __repr__(self) -> str:
        return f"Row(number={self.number}, epoch={self.epoch})"

    @property
    def stands(self) -> int:
        """What came out for the declared label, where labels have a deadline; −1 for nothing."""
        return stands_of(self.copy)

    @property
    def forgotten(self) -> bool:
        """Whether it is what a question leaves behind whose person was forgotten."""
        return self.digest == NOBODY

    def left(self, name: bytes, counted: bytes) -> Row:
        """What stays of a question when its person is forgotten: the request's name, its round, and when it was.

        `name` stands for the person and the request's id together, and for neither of them alone; `counted` for the
        person, to whom the round counts for a day. Nothing stays of a question that took no round.
        """
        if self.number <= 0:
            return Row(NOBODY, NOBODY, NOBODY, 0, 0, -1, -1, -1, -1, -1, None)
        return Row(name, counted, NOBODY, self.number, self.epoch, -1, self.leaf, -1, -1, -1, None)


class Columns(NamedTuple):
    """Rows by columns, each as in `Row`: a batch is read and written a column at a time."""

    whose: Sequence[bytes]
    id: Sequence[bytes]
    digest: Sequence[bytes]
    number: Sequence[int]
    epoch: Sequence[int]
    copy: Sequence[int]
    leaf: Sequence[int]
    label: Sequence[int]
    guided: Sequence[int]
    source: Sequence[int]
    x: Sequence[bytes | None]

    def __repr__(self) -> str:
        return f"Columns({len(self.number)} rows)"

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Columns:
        """The columns of these rows."""
        found = list(zip(*rows, strict=True))
        return cls(*found) if found else cls(*[()] * len(cls._fields))

    def row(self, i: int) -> Row:
        """One of the rows."""
        fields: list[Any] = [column[i] for column in self]
        return Row(*fields)

    def but(self, others: Mapping[int, Row]) -> Columns:
        """The same with other rows at these places."""
        changed: list[Any] = [[*column] for column in self]
        for i, row in others.items():
            for column, one in zip(changed, row, strict=True):
                column[i] = one
        return Columns(*changed)

    def some(self, places: Sequence[int]) -> Columns:
        """Some of the rows."""
        found: list[Any] = [[column[i] for i in places] for column in self]
        return Columns(*found)


class Rows:
    """Rows of one width, as the ledger holds them.

    Parameters
    ----------
    room
        Bytes for a packed x.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._struct = Struct(f"{_FIELDS}{room}s")
        self.width = self._struct.size

    def body(self, rows: Columns) -> bytes:
        """All rows, one behind the other."""
        xs = [b"" if x is None else x for x in rows.x]
        sizes = [0 if x is None else len(x) + 1 for x in rows.x]
        return b"".join(map(self._struct.pack, *rows[:-1], sizes, xs))

    def read(self, body: bytes) -> Iterator[Row]:
        """The rows of a body that were not erased."""
        return (row for _, row in self.placed(body))

    def placed(self, body: bytes) -> Iterator[tuple[int, Row]]:
        """The same, each with its place."""
        for at, (*fields, size, x) in enumerate(self._struct.iter_unpack(body)):
            if fields[0] != NOBODY:
                read: list[Any] = [*fields, x[: size - 1] if size else None]
                yield at, Row(*read)

    def at(self, body: bytes, place: int) -> Row | None:
        """The row at a place; None where there is none."""
        if not 0 <= place < len(body) // self.width:
            return None
        *fields, size, x = self._struct.unpack_from(body, place * self.width)
        read: list[Any] = [*fields, x[: size - 1] if size else None]
        return Row(*read)

    @classmethod
    @cache
    def of(cls, width: int) -> Rows:
        """The rows of this width."""
        return cls(width - _HEAD.size)


def stands_of(copy: int) -> int:
    """What came out for the declared label, by what is in the place of a copy; −1 for nothing."""
    return STANDS - copy if copy <= STANDS else -1


def head(row: Row) -> bytes:
    """A row without x, with which a row of any width begins."""
    return _HEAD.pack(*row[:10], 0)


class Unreadable:
    """Stands for an x, or a label, that was refused before it came to the POP: its round is taken all the same."""


def pack(x: Any) -> bytes | None:
    """x as bytes: numbers as they are, else JSON; None where x has no such form."""
    try:
        if type(x) is list and x and _NUMBERS.issuperset(map(type, x)):
            return b"d" + array("d", x).tobytes()
        if isinstance(x, np.ndarray):
            return b"d" + np.asarray(x, dtype="<f8").tobytes() if x.ndim == 1 and x.dtype.kind in "fiub" else None
        if isinstance(x, Mapping) and not all(type(name) is str for name in x):
            return None
        return b"j" + json.dumps(x, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def unpack(packed: bytes) -> Any:
    """What was packed; numbers come back as an array."""
    return np.frombuffer(packed[1:], dtype="<f8") if packed[:1] == b"d" else json.loads(packed[1:])


def canonical(x: Any, packed: bytes | None) -> bytes:
    """What stands for x where a retry's is compared with it: the order of a dict's names does not count."""
    if packed is not None and type(x) is not list and isinstance(x, Mapping):
        return json.dumps(x, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    return packed or b""
