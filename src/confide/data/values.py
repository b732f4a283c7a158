"""What one value says, by a rule that looks at it alone: missing, a number, a date, a category, or words.

A date is an ISO date, 2024-02-29, with or without a time, 2024-02-29T18:30:00Z. As a number it is the days since
2020-01-01 in UTC, negative before; as a category the day of the week. Dates in any other
form are categories, unless their column is declared as one of dates (`confide.data.dates`).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from confide.frames import Unreadable
from confide.values import MISSING, number_in

__all__ = ["LARGEST", "MISSING", "SOME_WORDS", "WORDS", "Value", "day_of", "read", "sort_key", "text_of"]

LARGEST = 3.4e38
"""Numbers above it do not fit into float32, and no learner takes them."""

SOME_WORDS, WORDS = 2, 4
"""Words from which on a value that nobody declared is a text too, and from which on it is no category any more."""

_WHOLE = 1e15
_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?", re.ASCII)
_FIRST_DAY = datetime(2020, 1, 1, tzinfo=UTC)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Value(NamedTuple):
    """What a value says."""

    number: float | None
    category: str | None
    """A text; of a whole number its digits, of a date its weekday, of what stands for nothing its own letters."""
    kind: str
    """"missing", "number", "date" or "text"."""


_NOTHING = Value(None, None, "missing")


def read(value: Any, comma: bool = False) -> Value:
    """What this value says; `comma` where 3,14 is a number.

    Examples
    --------
    >>> read("41"), read("infinity").kind
    (Value(number=41.0, category='41', kind='number'), 'text')
    >>> read("2020-02-01T12:00:00Z")
    Value(number=31.5, category='Saturday', kind='date')
    """
    if isinstance(value, str):
        return _read(value, comma)
    if value is None or isinstance(value, Unreadable):
        return _NOTHING
    if isinstance(value, date):
        return _date(value if isinstance(value, datetime) else datetime(value.year, value.month, value.day))
    return _number(float(value))


@lru_cache(maxsize=1 << 16)  # files repeat themselves; what is kept is a function of the value
def _read(value: str, comma: bool) -> Value:
    value = value.strip()
    if value.lower() in MISSING:
        return Value(None, value, "missing") if value else _NOTHING
    if _DATE.fullmatch(value):
        try:
            return _date(datetime.fromisoformat(value))
        except ValueError:
            return Value(None, value, "text")
    try:
        number = number_in(value.replace(",", ".") if comma and _COMMA.fullmatch(value) else value)
    except ValueError:
        return Value(None, value, "text")
    return _NOTHING if number is None else _number(number)


def _number(number: float) -> Value:
    whole = abs(number) < _WHOLE and number.is_integer()
    return Value(number, str(int(number)) if whole else None, "number")


def _date(when: datetime) -> Value:
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    return Value((when - _FIRST_DAY).total_seconds() / 86_400, _DAYS[when.weekday()], "date")


def day_of(days: float) -> str | None:
    """The ISO date that reads as so many days; None where it is no whole one that a calendar has.

    Examples
    --------
    >>> day_of(31.0), read("2020-02-01").number, day_of(0.5)
    ('2020-02-01', 31.0, None)
    """
    if not float(days).is_integer():
        return None
    try:
        return (_FIRST_DAY + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return None


def text_of(value: Any) -> str:
    """A label or a unit as text; a whole number looks the same from every kind of file."""
    if value is None or isinstance(value, Unreadable):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def sort_key(said: Value) -> tuple[int, float, str]:
    """How a value is ordered: numbers and dates by size, then texts by their letters, then what is missing."""
    if said.number is not None and said.number == said.number:
        return 0, said.number, ""
    return (1, 0.0, said.category or "") if said.kind == "text" else (2, 0.0, "")
