"""What a first pass over a file sees in one column, for the file's owner: values that its kind cannot read.

Everything here is made from people's rows. The operator hears it before a run. It changes how no row is read.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from confide.data.dates import Sample, formats_of
from confide.data.layout import Column, reading
from confide.data.values import read, text_of

_DIGITS = 8
_SOME = 0.05  # the share of values in another form from which on that is said, where no kind was declared
THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,' ]\d{3})+([.,]\d+)?", re.ASCII)
PLAIN = "write them without separators of thousands, 1234.5"
_WHAT = {"number": "a number", "log": "a number", "date": "a date"}


LOST = "and count as missing"
"""What hints of values that their declared kind cannot read have in them: a strict run refuses these."""


class Look:
    """One column: how many values its kind cannot read, and what the others may be meant as.

    Parameters
    ----------
    column
        As it was declared, or not.
    comma
        Whether 3,14 is a number.
    """

    def __init__(self, column: Column, comma: bool) -> None:
        self.column, self._comma = column, comma
        self._present = self._unread = self._broken = 0
        self._numbers = self._split = 0  # of what was not declared: numbers, and those with separators of thousands
        self._sample = Sample()

    def add(self, value: Any) -> None:
        """Look at one more value."""
        column, said = self.column, read(value, self._comma)
        if said.kind == "missing":
            return
        self._present += 1
        if isinstance(value, str):
            self._broken += "\ufffd" in value
        if column.kind in ("number", "log"):
            unread = said.kind != "number"
        elif column.kind == "date":
            unread = reading(column, value, self._comma).kind != "date"
        else:
            compact = said.kind == "number" and len(said.category or "") == _DIGITS  # 20241231
            unread = column.kind in ("any", "mixed") and (compact or said.kind == "text")
        self._numbers += said.kind == "number"
        if unread:
            self._unread += 1
            self._sample.add(text_of(value))
            self._split += said.kind == "text" and THOUSANDS.fullmatch(text_of(value)) is not None

    @property
    def broken(self) -> bool:
        """Whether a value holds bytes that the file's encoding does not have."""
        return self._broken > 0

    def refusal(self) -> str:
        """Why this column cannot be used as it is declared: it would be missing in every row. Else nothing."""
        if self.column.kind not in _WHAT or not self._present or self._unread < self._present:
            return ""
        name, what = self.column.name, _WHAT[self.column.kind]
        return f"column {name!r} is declared as {self.column.kind}, and no value reads as {what}{self._how()}"

    def hint(self) -> str:
        """What the owner should hear of this column; else nothing."""
        name, kind = self.column.name, self.column.kind
        if kind in _WHAT and self._unread:
            share = f"{self._unread:,} of {self._present:,} values looked at in column {name!r}"
            return f"{share} do not read as {_WHAT[kind]} {LOST}{self._how()}"
        if self._unread < max(1, _SOME * self._present) and not self._thousands():
            return ""
        if self.dates:
            return f"column {name!r} looks like dates, each of which is read as a category of its own{self._how()}"
        if kind in ("any", "mixed") and self._thousands():
            some = f"{self._split:,} of {self._present:,} values looked at in column {name!r} look like numbers"
            return f"{some}, each of which is read as a category of its own{self._how()}"
        return ""

    @cached_property
    def dates(self) -> bool:
        """Whether a column that nobody declared looks like dates."""
        most = self.column.kind in ("any", "mixed") and self._unread >= max(1, 0.5 * self._present)
        return most and bool(formats_of(self._sample.texts))

    def _thousands(self) -> bool:
        return self._split > 0 and self._numbers + self._split >= 0.95 * self._present

    def _how(self) -> str:
        """What to do."""
        forms = formats_of(self._sample.texts)
        if forms == [""]:
            return "" if self.column.kind == "date" else ': declare it as "date" in a schema'
        if forms:
            either = ", or ".join(f'format = "{form}"' for form in forms[:2])
            return f': give their form in a schema, {{ kind = "date", {either} }}'
        if self.column.kind == "date":
            return ': give their form in a schema, as { kind = "date", format = "%d/%m/%Y" }'
        if self._thousands():
            return f": {PLAIN}"
        return ': write them as plain numbers, 1234.5, or declare it as "category" or "text"'
