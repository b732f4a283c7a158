"""Dates as people write them: in a form that was declared, or in one that can be read in one way only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

_TIMES = ("", " %H:%M", " %H:%M:%S")
_PLAIN = ("%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d %b %Y", "%d %B %Y", "%b %d %Y", "%B %d %Y")
"""Forms that have one reading; commas, and points after words, are left out before."""
_TWO_READINGS = ("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y")
_SHAPE = re.compile(r"\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}\b.*|\d{8}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}\b.*|"
                    r"\d{1,2}\.?[ -][A-Za-z]{3,9}\.?,?[ -]\d{4}\b.*", re.ASCII)  # fmt: skip
_YEARS = range(1900, 2100)


class Sample:
    """Some of a column's values, from all of it: files are ordered by their dates, and the first ones may be January's.

    Examples
    --------
    >>> some = Sample(2)
    >>> for text in "abcdefgh":
    ...     some.add(text)
    >>> some.texts
    ['a', 'e']
    """

    def __init__(self, most: int = 500) -> None:
        self.texts: list[str] = []
        self._most, self._seen, self._every = most, 0, 1

    def add(self, text: str) -> None:
        """One more value."""
        if self._seen % self._every == 0:
            if len(self.texts) == self._most:
                self.texts, self._every = self.texts[::2], 2 * self._every
            if self._seen % self._every == 0:
                self.texts.append(text)
        self._seen += 1


def check_format(given: str) -> None:
    """Refuse a form in which a date cannot be written and read back.

    Examples
    --------
    >>> check_format("%d/%m/%Y")
    >>> check_format("dd/mm/yyyy")
    Traceback (most recent call last):
    ...
    ValueError: format 'dd/mm/yyyy' must say where day, month and year stand, as %d/%m/%Y
    """
    try:
        if datetime.strptime(datetime(2024, 12, 31).strftime(given), given).date() == datetime(2024, 12, 31).date():
            return
    except ValueError:
        pass
    raise ValueError(f"format {given!r} must say where day, month and year stand, as %d/%m/%Y")


def date_in(text: str, form: str | None = None) -> datetime | None:
    """The date that this text is: in this form, or in any that has one reading; None where it is none.

    Examples
    --------
    >>> [str(date_in(text).date()) for text in ("31.12.2024", "Dec 31, 2024", "20241231", "2024/12/31 18:30")]
    ['2024-12-31', '2024-12-31', '2024-12-31', '2024-12-31']
    >>> date_in("1/2/2024") is None, str(date_in("1/2/2024", "%d/%m/%Y").date())
    (True, '2024-02-01')
    """
    text = text.strip()
    if form is not None:
        return _parsed(text, form)
    if not _SHAPE.fullmatch(text):
        return None
    bare = _bare(text)
    return next((found for one in _PLAIN for time in _TIMES if (found := _parsed(bare, one + time))), None)


def formats_of(values: Iterable[str]) -> list[str]:
    """The forms in which nearly all of these values are dates; "" for those that need none to be declared.

    Examples
    --------
    >>> formats_of(["31/12/2024", "1/2/2024"]), formats_of(["1/2/2024"]), formats_of(["Dec 31 2024"]), formats_of(["x"])
    (['%d/%m/%Y'], ['%d/%m/%Y', '%m/%d/%Y'], [''], [])
    """
    texts = [text.strip() for text in values]
    if not texts or sum(_SHAPE.fullmatch(text) is not None for text in texts) < 0.95 * len(texts):
        return []
    forms = ["", *(one + time for one in _TWO_READINGS for time in _TIMES)]
    counts = [(form, sum(date_in(text, form or None) is not None for text in texts)) for form in forms]
    found = [form for form, count in counts if count >= 0.95 * len(texts)]
    return [""] if "" in found else found


def _bare(text: str) -> str:
    return re.sub(r"([A-Za-z])\.|,|(?<=\d)-(?=[A-Za-z])|(?<=[A-Za-z])-(?=\d)", r"\1 ", text).replace("  ", " ")


@lru_cache(maxsize=1 << 16)
def _parsed(text: str, form: str) -> datetime | None:
    try:
        found = datetime.strptime(text, form)
    except ValueError:
        return None
    return found if found.year in _YEARS else None
