"""A schema from a whole file: for a public sample, or for a person to review before anything is run with it.

It looks at every row. So of a private file it is a draft that private rows have shaped: read it, mend it, and prefer a
public sample with the same columns.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from confide.data.dates import Sample, formats_of
from confide.data.layout import Column
from confide.data.lines import Fields
from confide.data.looks import PLAIN, THOUSANDS
from confide.data.schema import Schema
from confide.data.values import LARGEST, WORDS, Value, read, text_of

HEAD = """\
# How {name} is read. Drafted by looking at the whole file: check every line before you use it, since
# what stands here counts as public. Kinds: number, log (a number of very different sizes), category, text, date,
# mixed (each value by its own form; a whole number is a category too), drop. Where you know the range of a number or a
# date, say so:
#   age = {{ kind = "number", low = 0, high = 120 }}
#   asked = {{ kind = "date", low = 2020-01-01, high = 2030-12-31 }}
# and the guide starts from it, until it has found more in private. Drop what gives the label away.

"""

ID_ROWS, ID_SHARE = 1000, 0.95
"""Rows from which on a column may be called an id, and the share of its values that must then be different."""

_MOST = 0.95  # the share of a column's values that makes its kind
_MAINLY = 0.5  # the share of dates from which on a column may be meant as one
_ROUGH = 0.3  # how many peaks make whole numbers names of things
_TAIL = 0.005  # what a range from a public sample leaves out at each end
_WIDEST = 256


def survey(
    path: Path, header: list[str], rows: Iterable[tuple[int, Fields]], asked: Schema, comma: bool, ranges: bool
) -> tuple[Schema, dict[str, str]]:
    """The schema that fits all rows, and comments on columns to look at; `ranges` where the file is public."""
    label = header[-1] if asked.label is None else asked.label
    seen = {name: _Seen(name) for name in header if name not in (label, asked.unit)}
    labels: set[str] = set()
    places = [(header.index(name), column) for name, column in seen.items()]
    for _, fields in rows:
        if isinstance(fields, list) and len(fields) == len(header):
            labels.add(text_of(fields[header.index(label)]))
            for place, column in places:
                column.add(fields[place], comma)
    found = asked.labels or tuple(sorted(labels - {""}, key=lambda name: (read(name).number is None, name)))
    columns = tuple(column.judge(ranges) for column in seen.values())
    comments = {column.name: column.comment for column in seen.values() if column.comment}
    return Schema(columns, label, found, asked.unit, asked.separator, f"the public file {path.name}"), comments


class _Seen:
    """What was seen of one column."""

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.longer, self.split = name, 0, 0, 0
        self.kinds = {"missing": 0, "number": 0, "date": 0, "text": 0}
        self.whole, self.different, self.numbers = True, Counter[Any](), array("d")
        self.comment = ""
        self.texts = Sample()

    def add(self, value: Any, comma: bool) -> None:
        said: Value = read(value, comma)
        self.rows += 1
        self.kinds[said.kind] += 1
        if said.kind == "number":
            self.whole = self.whole and said.category is not None
        if said.number is not None and abs(said.number) <= LARGEST:
            self.numbers.append(said.number)
        if said.kind != "missing":
            self.texts.add(text_of(value))
        if said.kind == "text":
            self.split += THOUSANDS.fullmatch(str(said.category)) is not None
            self.longer += len(str(said.category).split()) >= WORDS
        self.different[said.number if said.category is None else said.category] += 1

    def judge(self, ranges: bool) -> Column:
        """The column's kind."""
        present = max(1, self.rows - self.kinds["missing"])
        number, date, text = (self.kinds[kind] / present for kind in ("number", "date", "text"))
        different = len(self.different)
        if date >= _MOST:
            return Column(self.name, "date", *_days(self._ends(ranges)))
        if forms := formats_of(self.texts.texts):
            return self._dates(forms)
        if different == 1 and self.rows > 1 and not self.kinds["missing"]:
            self.comment = "every row has the same: it says nothing, unless others may come"
        if self.split and number + self.split / present >= _MOST:
            self.comment = (
                f"{self.split:,} of {present:,} values are numbers with separators of thousands, and each is read as a "
                f'category of its own: {PLAIN}, and declare "number"'
            )
            return Column(self.name, "mixed")
        if self.longer > 0.2 * present:
            return Column(self.name, "text")
        every = self.rows >= ID_ROWS and different >= ID_SHARE * self.rows
        if every and (text >= _MOST or (number >= _MOST and self.whole)):
            self.comment = "nearly every row has another one: an id? It would say nothing of the next row"
            return Column(self.name, "drop")
        if number >= _MOST:
            if self.whole and self._rough() > _ROUGH:
                self.comment = f'{different:,} whole numbers: "number" if they count, "category" if they name things'
                return Column(self.name, "mixed")
            return Column(self.name, "number", *self._ends(ranges))
        if text >= _MOST:
            return Column(self.name, "category", width=_width(different))
        if not (number or date or text):
            self.comment = "it is empty in every row"
            return Column(self.name, "drop")
        found = [kind + "s" for kind in ("number", "date", "text") if self.kinds[kind]]
        self.comment = f"{' and '.join(found)}: each value is read by its own form"
        if date > _MAINLY:
            self.comment += '; "date" if all others may count as missing'
        return Column(self.name, "mixed")

    def _dates(self, forms: list[str]) -> Column:
        """A column of dates in one of these forms."""
        if len(forms) > 1:
            self.comment = f"or {forms[1]}: no value tells which is the day"
        return Column(self.name, "date", format=forms[0] or None)

    def _rough(self) -> float:
        """How far whole numbers are from having one peak: counts and sizes have one, names of things have many."""
        counts = [n for _, n in sorted((int(value), n) for value, n in self.different.items() if _is_whole(value))]
        steps = sum(abs(a - b) for a, b in pairwise([0, *counts, 0]))
        return (steps - 2 * max(counts, default=0)) / max(1, self.kinds["number"])

    def _ends(self, ranges: bool) -> tuple[float, float] | tuple[()]:
        if not (ranges and self.numbers):
            return ()
        low, high = map(float, np.quantile(np.frombuffer(self.numbers), (_TAIL, 1 - _TAIL)))
        return (low, high) if low < high else ()


def _days(ends: tuple[float, float] | tuple[()]) -> tuple[float, float] | tuple[()]:
    """Whole days around a range of dates, which a schema writes as dates."""
    return (float(math.floor(ends[0])), float(math.ceil(ends[1]))) if ends else ()


def _is_whole(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip("-").isdecimal()


def _width(different: int) -> int:
    """Columns for so many categories: few of them meet."""
    return int(min(_WIDEST, max(16, 2 ** (4 * different - 1).bit_length())))
