"""Streams: rows of features with their labels, read lazily, with everything public about them declared beforehand.

What a stream says about itself (feature names, labels, number of rows) is treated as public by whoever runs it. Rows
that cannot be read come out as `BadRow`, never dropped in silence, and never with the value that was wrong in them.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from confide._checks import integer
from confide.learners.base import Base, Floats, vector

__all__ = ["BadRow", "Row", "Stream", "Table", "open_file"]

HASHED = 16
"""Columns for the categories of a CSV file, all names together."""

MOST_LABELS = 1000
"""Labels that a first pass may find before it asks whether this is the label column."""


class Row(NamedTuple):
    """One round to ask, its right label, and whose it is."""

    x: Any
    y: Hashable
    unit: str | None = None


class BadRow(NamedTuple):
    """A row that cannot be used: where, and why."""

    line: int
    reason: str


Item = Row | BadRow


@dataclass(frozen=True)
class Stream:
    """Rows of (x, y), and what is public about them.

    Parameters
    ----------
    name
        What opens it again.
    labels
        All labels.
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
        """The same rows with x encoded."""
        encode = self.encode
        return (item if type(item) is BadRow else Row(encode(item[0]), *item[1:]) for item in items)


def open_file(
    path: Path,
    *,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    unit: str | None = None,
    hashed: int = HASHED,
) -> Stream:
    """A CSV file with a header (also gzipped) or a Parquet file as a stream; labels are its texts.

    Parameters
    ----------
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
    read = _parquet if path.suffix == ".parquet" else _csv
    try:
        header = next(read(path))[1]
        if not isinstance(header, list) or len(set(header)) < len(header) or len(header) < 2:
            raise ValueError(f"{path} needs a first line that names at least two columns, each differently")
        label = header[-1] if label is None else label
        for asked in (label, *(() if unit is None else (unit,))):
            if asked not in header:
                raise ValueError(f"{path} has no column {asked!r}; it has {', '.join(header)}")
        rows, found = _survey(read, path, header.index(label), len(header), labels is None)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or 'it is damaged'}") from None
    except (EOFError, zlib.error, pa.ArrowInvalid):
        raise ValueError(f"cannot read {path}: it is damaged, or not what its name says") from None
    notes: tuple[str, ...] = ()
    if labels is None:
        labels = found
        notes = (
            f"the {len(found)} labels were read from {path.name} and are treated as public; --labels declares them",
        )
    if len(set(labels)) < max(2, len(labels)):
        raise ValueError(f"a stream needs at least two different labels; {label!r} has {len(set(labels))}")
    names = tuple(name for name in header if name not in (label, unit))
    if not names:
        raise ValueError(f"{path} has no column left that could be a feature")
    reader = _Reader(header, label, frozenset(labels), unit, hashed > 0)
    table = Table(names, hashed)

    def source(dicts: bool) -> Iterator[Item]:
        items = (reader.item(line, fields) for line, fields in _body(read, path))
        return items if dicts else table.rows(items)

    return Stream(str(path), tuple(labels), names, table.width, source, rows, notes)


Fields = list[Any] | str
"""The values of a line, or what is wrong with it."""

Lines = Iterator[tuple[int, Fields]]


@dataclass(frozen=True)
class _Reader:
    """From the values of a line to a row."""

    header: list[str]
    label: str
    labels: frozenset[str]
    unit: str | None
    texts: bool

    def item(self, line: int, fields: Fields) -> Item:
        if isinstance(fields, str):
            return BadRow(line, fields)
        if len(fields) != len(self.header):
            return BadRow(line, f"it has {len(fields)} fields where {len(self.header)} are expected")
        x: dict[str, Any] = {}
        y, unit = "", None
        for name, value in zip(self.header, fields, strict=True):
            if name == self.label:
                y = _text(value)
            elif name == self.unit:
                unit = _text(value)
                if not unit:
                    return BadRow(line, f"its unit ({name!r}) is missing")
            else:
                read = _value(value)
                if isinstance(read, float) and not abs(read) <= 3.4e38:
                    return BadRow(line, f"its {name!r} is not a finite number that float32 can hold")
                if isinstance(read, str) and not self.texts:
                    return BadRow(line, f"its {name!r} is not a number")
                x[name] = read
        if y not in self.labels:
            return BadRow(line, "its label is missing" if not y else "its label is not one of the declared labels")
        return Row(x, y, unit)


def _text(value: Any) -> str:
    """A label or a unit as text; a whole number looks the same from every kind of file."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _value(value: Any) -> Any:
    """A number if it reads as one, None if there is nothing, else a category."""
    if not isinstance(value, str):
        return value if value is None else float(value)
    value = value.strip()
    if not value:
        return None
    try:
        return value if "_" in value else float(value)  # Python would read 1_000 as a number
    except ValueError:
        return value


def _survey(
    read: Callable[[Path], Lines], path: Path, label: int, columns: int, collect: bool
) -> tuple[int, tuple[str, ...]]:
    """The number of rows and, if asked for, the labels: a first pass."""
    rows, found = 0, set[str]()
    for _, fields in _body(read, path):
        rows += 1
        if collect and isinstance(fields, list) and len(fields) == columns:
            found.add(_text(fields[label]))
            if len(found) > MOST_LABELS:
                raise ValueError(f"{path} has more than {MOST_LABELS} labels: is --label the right column?")
    return rows, tuple(sorted(found - {""}, key=_order))


def _order(label: str) -> tuple[float, str]:
    number = _value(label)
    return (number, label) if isinstance(number, float) and math.isfinite(number) else (math.inf, label)


def _body(read: Callable[[Path], Lines], path: Path) -> Lines:
    lines = read(path)
    next(lines)
    return lines


def _csv(path: Path) -> Lines:
    """Lines with their numbers, the header first; an empty line is none."""
    text: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "replace", "newline": ""}
    opened: TextIO
    with gzip.open(path, "rt", **text) if path.suffix == ".gz" else path.open(**text) as opened:
        reader = csv.reader(opened)
        yield 1, [name.strip() for name in next(reader, [])]
        while True:
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error:
                yield reader.line_num, "it is not valid CSV"
                continue
            if fields:
                yield reader.line_num, fields


def _parquet(path: Path) -> Lines:
    """Rows with their numbers from 1, the names first. Numbers, texts and booleans; others are refused."""
    with pq.ParquetFile(path) as file:
        for column in file.schema_arrow:
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            if not (plain or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
                raise ValueError(f"{path}: column {column.name!r} is {kind}; make it a number or a text, or drop it")
        yield 0, list(file.schema_arrow.names)
        line = 0
        for batch in file.iter_batches(batch_size=4096):
            columns = [column.to_pylist() for column in batch.columns]
            for fields in zip(*columns, strict=True):
                line += 1
                yield line, list(fields)
