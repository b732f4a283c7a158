"""Columns of a file and what becomes of their values: declared kinds, or one rule for whatever nobody declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confide.data.dates import check_format, date_in
from confide.data.values import LARGEST, SOME_WORDS, WORDS, Value, read, text_of
from confide.frames import Unreadable
from confide.learners import Features
from confide.text import TextEncoder

KINDS = ("number", "log", "category", "text", "date", "mixed", "any", "drop")
"""What a column may be declared as; see `Layout`."""

_CATEGORY, _TEXT = 64, 512  # columns of the copies for each; the guide has places of its own
_SPLIT = ("date", "mixed", "any")  # kinds with a number and a category
_MIXED, _WORDS = 256, 128  # for all of these together, and for their words: copies are many, and memory is not


class UnreadableError(ValueError):
    """A value that nothing can be made of; its words name the column and quote nothing of the value."""


@dataclass(frozen=True)
class Column:
    """One column of a file.

    Parameters
    ----------
    name
        As in the first line.
    kind
        One of `KINDS`.
    low, high
        Of a number or a date (as days since 2020-01-01): public, and what the guide starts from, until it has found in
        private where the column lies.
    width
        Of a category or a text: the columns into which the copies hash it; None for the usual number.
    encoder
        Of a text: the name of a public encoder (`confide.text`), whose vectors are used beside its words.
    format
        Of a date: how it is written, as Python's `strptime` has it, "%d/%m/%Y". ISO dates need none, nor do forms that
        have one reading: 31.12.2024, 2024/12/31, 20241231, Dec 31 2024.
    """

    name: str
    kind: str = "any"
    low: float | None = None
    high: float | None = None
    width: int | None = None
    encoder: str | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            if self.kind != "date":
                raise ValueError(f"column {self.name!r}: only a date has a format")
            check_format(self.format)
        if self.kind not in KINDS:
            raise ValueError(f"column {self.name!r} is declared as {self.kind!r}: take one of {', '.join(KINDS)}")
        ends = [end for end in (self.low, self.high) if end is not None]
        if len(ends) == 1 or (ends and (self.kind not in ("number", "date") or not ends[0] < ends[1])):
            raise ValueError(f"column {self.name!r}: only a number or a date has low and high, both, the smaller first")
        if self.width is not None and not (self.width >= 1 and self.kind in ("category", "text", "mixed", "any")):
            raise ValueError(f"column {self.name!r}: only a category or a text has a width, of at least 1")
        if self.encoder is not None and (self.kind != "text" or self.width is not None):
            raise ValueError(f"column {self.name!r}: only a text has an encoder, and then no width")


@dataclass(frozen=True)
class Layout:
    """From the values of a line to x, value by value: nothing that stands in one row changes how another is read.

    - number, log: the number, 0 for the copies where it is missing; what is no number is missing.
    - category: the value as it is, hashed into columns of its own; only an empty one is missing.
    - text: its words, hashed; only an empty one is missing.
    - date: its days as a number, and its weekday as a category (see `confide.data.values`), in the column's `format`,
      in ISO's, or in one that has one reading.
    - mixed: by the form of each value alone. A number is a number, and a whole one a category too; a date is a date;
      what is left is a category.
    - any: the same, but two or three words are a category and words, and more are words alone, in columns that all
      these columns share. This is the rule for columns that nobody declared.
    - drop: nothing.

    Parameters
    ----------
    columns
        In the order of the file.
    comma
        Whether 3,14 is a number.

    Examples
    --------
    >>> layout = Layout((Column("age"), Column("city"), Column("note", "text")))
    >>> layout.x(["41", "Rome", "so far, so good"])
    {'age': 41.0, 'age=': '41', 'city=': 'Rome', 'note': 'so far, so good'}
    >>> layout.plain(["41", "Rome", "so far, so good"])
    {'age': 41.0, 'city': 'Rome', 'note': 'so far, so good'}
    """

    columns: tuple[Column, ...]
    comma: bool = False
    mark: str = field(init=False, repr=False)
    """What is written behind a name to name its category: longer than any name ends in, so no other column's."""

    def __post_init__(self) -> None:
        ends = [len(column.name) - len(column.name.rstrip("=")) for column in self.columns]
        object.__setattr__(self, "mark", "=" * (1 + max(ends, default=0)))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are used."""
        return tuple(column.name for column in self.columns if column.kind != "drop")

    @property
    def features(self) -> Features:
        """What x holds, for copies and guide."""
        mark, numeric, log = self.mark, dict[str, tuple[float, float] | None](), list[str]()
        categorical, text = dict[str, int](), dict[str, int | str | TextEncoder]()
        mixed = sum(column.kind in _SPLIT for column in self.columns)
        usual = next((width for width in (32, 16, 8) if width * mixed <= _MIXED), 4)
        for column in self.columns:
            name = column.name
            if column.kind == "number" or column.kind in _SPLIT:
                numeric[name] = None if column.low is None or column.high is None else (column.low, column.high)
            if column.kind in _SPLIT:
                categorical[name + mark] = column.width or usual
            if column.kind == "log":
                log.append(name)
            if column.kind == "category":
                categorical[name] = column.width or _CATEGORY
            if column.kind == "text":
                text[name] = column.encoder or column.width or _TEXT
        if any(column.kind == "any" for column in self.columns):
            text[f"words {mark}"] = _WORDS
        known = any(ends is not None for ends in numeric.values())
        return Features(numeric if known else list(numeric), log, categorical, text)

    def x(self, values: Sequence[Any]) -> dict[str, Any]:
        """The row for `features`; `UnreadableError` where a number is too large for anybody."""
        mark, x, words = self.mark, dict[str, Any](), list[str]()
        for column, value in zip(self.columns, values, strict=True):
            kind, name = column.kind, column.name
            if kind == "drop":
                continue
            _handed(name, value)
            if kind in ("category", "text"):
                found = _own(value)
                if found:
                    x[name] = found
                continue
            said = _checked(name, reading(column, value, self.comma))
            if said.number is not None:
                x[name] = said.number
            if kind == "any" and said.kind == "text":
                count = len(str(said.category).split())
                if count >= SOME_WORDS:
                    words.append(str(said.category))
                if count >= WORDS:
                    continue
            if said.category is not None and (kind in ("mixed", "any") or said.kind == kind == "date"):
                x[name + mark] = said.category
        if words:
            x[f"words {mark}"] = " \n ".join(words)
        return x

    def plain(self, values: Sequence[Any]) -> dict[str, Any]:
        """The row by the names of its columns, for models that take dicts as they come."""
        x: dict[str, Any] = {}
        for column, value in zip(self.columns, values, strict=True):
            if column.kind != "drop":
                _handed(column.name, value)
            if column.kind in ("category", "text"):
                x[column.name] = _own(value) or None
            elif column.kind != "drop":
                said = _checked(column.name, reading(column, value, self.comma))
                whole = said.kind == "text" and column.kind in ("mixed", "any")
                x[column.name] = said.category if whole else said.number
        return x


def reading(column: Column, value: Any, comma: bool) -> Value:
    """What a value of this column says: a date may be written in other forms than ISO's where one was declared.

    A date in a column of numbers, or a number in one of dates, is missing, and not some number of days.
    """
    said = read(value, comma)
    if column.kind == "date" and said.kind in ("number", "text"):
        found = date_in(text_of(value), column.format)
        said = said if found is None else read(found)
    other = {"number": "date", "log": "date", "date": "number"}.get(column.kind)
    return read(None) if said.kind == other else said


def _handed(name: str, value: Any) -> None:
    if isinstance(value, Unreadable):
        raise UnreadableError(f"its {name!r} is a value that cannot be handed over")


def _own(value: Any) -> str:
    """A value as the text that it is."""
    if isinstance(value, str):
        return value.strip()
    return "" if value is None else read(value).category or str(value)


def _checked(name: str, said: Value) -> Value:
    if said.number is not None and not abs(said.number) <= LARGEST:
        raise UnreadableError(f"its {name!r} is not a finite number that float32 can hold")
    return said
