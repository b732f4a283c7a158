"""What came out, written down before it is taught: one line for each label, with its row and never with the label.

A line is on the disk before anybody is taught. A write that fails, or is interrupted, is cut off again, so that an
output which was not taught now is not taught later either; where even that fails the journal takes nothing more. A line
that was torn by the end of a process ends the journal, and only the last can be torn. Lines are numbered through all
journals of a model, so that a state says which of them it has.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from confide.errors import StateError
from confide.guide.columns import Row
from confide.guide.maps import Encoded

__all__ = ["Entry", "Journal", "check_writable", "row_of", "written"]


class Entry(NamedTuple):
    """What came out for one question: which one, the output, the person if any, and the row as it was read.

    An output below 0 is none: rounds up to this one of this life may have been asked.
    """

    key: tuple[int, int]
    out: int
    who: bytes | None
    row: Any


class Journal:
    """An append-only file of entries.

    Parameters
    ----------
    path
        The file; made if there is none.
    first
        The number of its first entry among all that the model ever wrote.
    """

    def __init__(self, path: Path, first: int = 0) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        try:
            self._file: int | None = os.open(path, flags, 0o600)
        except OSError as error:
            raise StateError(f"{path} cannot be opened: {error.strerror}") from None
        self.path, self.first = path, first
        found = list(self._lines())
        self._at = sum(len(line) for line, _ in found), first + len(found)
        self._torn = False

    @property
    def next(self) -> int:
        """The number of the entry that is written next."""
        return self._at[1]

    @property
    def closed(self) -> bool:
        """Whether nothing is written any more."""
        return self._file is None

    def add(self, entries: Sequence[Entry]) -> None:
        """Write entries, in one piece; afterwards they are on the disk, or none of them ever was."""
        body = b"".join(map(_line, entries))
        if self._torn:
            self._cut()  # an interrupt left something behind the end
        if self._file is None:
            raise StateError("the journal is closed, or could not be written before: load the model again")
        self._torn = True
        try:
            self._write(body)
            self._at = self._at[0] + len(body), self._at[1] + len(entries)
            self._torn = False
        except BaseException as error:
            self._cut()
            if not isinstance(error, OSError):
                raise
            raise StateError(f"{self.path} could not be written: {error.strerror or 'the disk may be full'}") from None

    def _write(self, body: bytes) -> None:
        assert self._file is not None
        os.lseek(self._file, self._at[0], os.SEEK_SET)
        left = memoryview(body)
        while left:
            left = left[os.write(self._file, left) :]
        os.fsync(self._file)

    def _cut(self) -> None:
        """Take back what a failed write may have left; where that fails, nothing is written any more."""
        if self._file is None:
            return
        try:
            os.ftruncate(self._file, self._at[0])
            os.fsync(self._file)
            self._torn = False
        except OSError:
            self.close()

    def entries(self, since: int = 0) -> Iterator[Entry]:
        """All entries from this number on, in order."""
        for number, (_, entry) in enumerate(self._lines(), start=self.first):
            if number >= since:
                yield entry

    def _lines(self) -> Iterator[tuple[bytes, Entry]]:
        lines = self.path.read_bytes().split(b"\n")
        for i, line in enumerate(lines[:-1]):
            entry = _entry(line)
            if entry is None:
                if i + 2 < len(lines):
                    raise StateError(f"{self.path} is damaged in line {i + 1}: take the folder from a backup")
                return
            yield line + b"\n", entry

    def close(self) -> None:
        """Close the file: nothing is written any more."""
        if self._file is not None:
            os.close(self._file)
        self._file = None


def check_writable(row: Any) -> None:
    """ValueError for a row that cannot be written down: to be said when it is asked, before anybody has its label."""
    _line(Entry((0, 0), 0, None, row))


def _line(entry: Entry) -> bytes:
    who = None if entry.who is None else entry.who.hex()
    try:
        text = json.dumps([*entry.key, entry.out, who, _written(entry.row)], separators=(",", ":")).encode()
    except (TypeError, ValueError):
        raise ValueError("this row cannot be written down: give plain numbers and texts") from None
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _entry(line: bytes) -> Entry | None:
    check, _, text = line.partition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        return None
    epoch, number, out, who, row = json.loads(text)
    return Entry((epoch, number), out, None if who is None else bytes.fromhex(who), _read(row))


def _written(row: Any) -> Any:
    if row is None:
        return ["none"]
    if isinstance(row, Row):
        return ["row", row.numbers.tolist(), row.codes.tolist(), list(row.texts)]
    if isinstance(row, Encoded):
        return ["encoded", row.indices.tolist(), row.values.tolist()]
    if isinstance(row, dict):
        return ["dict", {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}]
    return ["array", str(row.dtype), row.tolist()]


def _read(written: Any) -> Any:
    kind, *parts = written
    if kind == "none":
        return None
    if kind == "row":
        numbers, codes, texts = parts
        return Row(np.array(numbers, dtype=np.float64), np.array(codes, dtype=np.uint64), tuple(texts))
    if kind == "encoded":
        return Encoded(np.array(parts[0], dtype=np.int64), np.array(parts[1]))
    if kind == "dict":
        return parts[0]
    row = np.empty(len(parts[1]), dtype=np.dtype(parts[0]))
    row[:] = parts[1]
    return row


def written(row: Any) -> Any:
    """A row that a model has read, as JSON's kinds of values."""
    return _written(row)


def row_of(written: Any) -> Any:
    """The row that `written` gave."""
    return _read(written)
