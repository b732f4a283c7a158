"""Files as streams: CSV and TSV, gzipped or not, and Parquet.

Each value is read by a rule that looks at it alone; the names, and how the file is written, come from its first line.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from confide.data.extras import need
from confide.data.lines import Fields, Lines, form_of
from confide.data.lines import lines as text_lines
from confide.data.rows import HASHED, BadRow, Item, Row, Stream, Table

__all__ = ["MISSING", "open_file"]

MOST_LABELS = 1000
"""Labels that a first pass may find before it asks whether this is the label column."""

FIRST = 100
"""Rows of which at least one must be good: a wrong column or label set is an error before anything is asked."""

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""What stands for nothing, in any case of letters."""

_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)


def open_file(
    path: Path,
    *,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    unit: str | None = None,
    hashed: int = HASHED,
) -> Stream:
    """A file with named columns as a stream; labels are its texts.

    Parameters
    ----------
    path
        A .csv or .tsv file (also .gz) whose first line names the columns, or a .parquet file. A comma, a semicolon, a
        tab or | separates, whichever the first line has most of.
    label
        The label's column; the last one if left out.
    labels
        All labels. If left out they are read from the file in a first pass, and then the label set counts as public:
        the stream's notes say so.
    unit
        The column that names whose row it is; it is no feature.
    hashed
        Columns for categories, see `Table`; 0 where every feature is a number.
    """
    try:
        read, comma = _reading(path)
        header = _header(path, next(read())[1])
        label = header[-1] if label is None else label
        for asked in (label, *(() if unit is None else (unit,))):
            if asked not in header:
                raise ValueError(_no_column(path, asked, header))
        if unit == label:
            raise ValueError(f"--unit and --label both name column {label!r}: a label is nobody's name")
        rows, found = _survey(read, path, header.index(label), len(header), labels is None)
        named = found if labels is None else tuple(labels)
        notes = _notes(path, named if labels is None else None, comma)
        if len(set(named)) < max(2, len(named)):
            raise ValueError(f"a stream needs at least two different labels; column {label!r} has {len(set(named))}")
        names = tuple(name for name in header if name not in (label, unit))
        if not names:
            raise ValueError(f"{path} has no column left that could be a feature")
        reader = _Reader(tuple(header), label, frozenset(named), unit, hashed > 0, comma)
        _check_first(path, reader, list(islice(_body(read), FIRST)), named)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or 'it is damaged'}") from None
    except (EOFError, zlib.error):
        raise ValueError(f"cannot read {path}: it is damaged, or not what its name says") from None
    table = Table(names, hashed)

    def source(dicts: bool) -> Iterator[Item]:
        items = (reader.item(line, fields) for line, fields in _body(read))
        return items if dicts else table.rows(items)

    return Stream(str(path), named, names, table.width, source, rows, notes)


def _reading(path: Path) -> tuple[Callable[[], Lines], bool]:
    """What opens the file from its first line, and whether numbers may have decimal commas."""
    if path.suffix == ".parquet":
        lines = need("confide.data.parquet", "parquet", "reading .parquet files").lines
        return partial(lines, path), False
    form = form_of(path)
    return partial(text_lines, path, form), form.decimal_comma


def _header(path: Path, names: Fields) -> list[str]:
    assert isinstance(names, list)
    if len(names) < 2:
        raise ValueError(
            f"{path} has one column: a stream needs a label and a feature, separated by a comma, a semicolon or a tab"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path} has two columns called {twice!r}: rename one of them in its first line")
    return names


def _no_column(path: Path, asked: str, header: list[str]) -> str:
    """What to say when a column is missing; a first line that may be somebody's row is not shown."""
    if any(isinstance(_value(name, True), float) for name in header):
        return f"{path} has no column {asked!r}: its first line must name the columns, and there are numbers in it"
    return f"{path} has no column {asked!r}; it has {', '.join(header)}"


def _notes(path: Path, found: tuple[str, ...] | None, comma: bool) -> tuple[str, ...]:
    notes = []
    if found is not None:
        notes.append(
            f"the {len(found)} labels were read from {path.name} and are treated as public; --labels declares them"
        )
    if comma:
        notes.append(f"semicolons separate the columns of {path.name}, so 3,14 is read as a number")
    return tuple(notes)


_NO_LABEL, _OTHER_LABEL = "its label is missing", "its label is not one of the declared labels"


@dataclass(frozen=True)
class _Reader:
    """From the values of a line to a row."""

    header: tuple[str, ...]
    label: str
    labels: frozenset[str]
    unit: str | None
    texts: bool
    comma: bool

    def item(self, line: int, fields: Fields) -> Item:
        if isinstance(fields, str):
            return BadRow(line, fields)
        unit = None
        if self.unit is not None:
            at = self.header.index(self.unit)
            unit = (_text(fields[at]) if at < len(fields) else "") or None
        if len(fields) != len(self.header):
            return BadRow(line, f"it has {len(fields)} fields where {len(self.header)} are expected", unit=unit)
        if self.unit is not None and unit is None:
            return BadRow(line, f"its unit ({self.unit!r}) is missing")
        x: dict[str, Any] | None = {}
        y, reason = "", ""
        for name, value in zip(self.header, fields, strict=True):
            if name == self.label:
                y = _text(value)
            elif name != self.unit and x is not None:
                x[name] = read = _value(value, self.comma)
                if isinstance(read, float) and not abs(read) <= 3.4e38:
                    x, reason = None, f"its {name!r} is not a finite number that float32 can hold"
                elif isinstance(read, str) and not self.texts:
                    x, reason = None, f"its {name!r} is not a number"
        if y not in self.labels:
            reason = reason or (_OTHER_LABEL if y else _NO_LABEL)
        right = y if y in self.labels else None
        return BadRow(line, reason, x, right, unit) if reason else Row(x, y, unit, line)


def _check_first(path: Path, reader: _Reader, first: list[tuple[int, Fields]], labels: Sequence[str]) -> None:
    """Refuse a file of which no row could be answered and learned: then a column, a label or the file is wrong."""
    items = [reader.item(line, fields) for line, fields in first]
    bad = [item for item in items if isinstance(item, BadRow)]
    if not items:
        raise ValueError(f"{path} has no rows after the line that names its columns")
    if len(bad) < len(items):
        return
    if all(item.reason in (_NO_LABEL, _OTHER_LABEL) for item in bad):
        some = ", ".join(labels[:5]) + (", …" if len(labels) > 5 else "")
        raise ValueError(
            f"none of the first {len(items)} rows of {path} has one of the labels {some} in its column "
            f"{reader.label!r}: labels are compared letter by letter, so check --labels and --label"
        )
    raise ValueError(f"none of the first {len(items)} rows of {path} can be used; line {bad[0].line}: {bad[0].reason}")


def _text(value: Any) -> str:
    """A label or a unit as text; a whole number looks the same from every kind of file."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _value(value: Any, comma: bool = False) -> Any:
    """A number if it reads as one, None if there is nothing, else a category."""
    if not isinstance(value, str):
        return value if value is None else float(value)
    value = value.strip()
    if value.lower() in MISSING:
        return None
    if "_" in value or not any(map(str.isdecimal, value)):  # Python reads 1_000 and infinity as numbers
        return value
    try:
        return float(value.replace(",", ".") if comma and _COMMA.fullmatch(value) else value)
    except ValueError:
        return value


def _survey(
    read: Callable[[], Lines], path: Path, label: int, columns: int, collect: bool
) -> tuple[int, tuple[str, ...]]:
    """The number of rows and, if asked for, the labels: a first pass."""
    rows, found = 0, set[str]()
    for _, fields in _body(read):
        rows += 1
        if collect and isinstance(fields, list) and len(fields) == columns:
            found.add(_text(fields[label]))
            if len(found) > MOST_LABELS:
                raise ValueError(f"{path} has more than {MOST_LABELS} labels: is --label the right column?")
    return rows, tuple(sorted(found - {""}, key=_order))


def _order(label: str) -> tuple[float, str]:
    number = _value(label)
    return (number, label) if isinstance(number, float) and math.isfinite(number) else (math.inf, label)


def _body(read: Callable[[], Lines]) -> Lines:
    lines = read()
    next(lines)
    return lines
