"""The files of a stream: one, or all files of a folder, read one after another in the order of their names.

How the first file is written says how all are: a file of a folder whose columns have other names, another order or
other types is refused before anything is read of it, so that no file changes how another one's values are read.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from confide.data.lines import TEXTS, Fields, Form, Lines, form_of
from confide.data.lines import lines as text_lines
from confide.data.rows import Piece
from confide.data.values import read as read_value
from confide.extras import need

FILES = (*TEXTS, ".parquet")
"""How the names of files end that can be read."""

Told = Callable[[str], None]
"""Called with what is read at the moment, in words."""


class Pieces:
    """The rows of one file, or of all files of a folder, as often as they are asked for.

    The first whole pass notes what each file was. A later one that finds it changed raises ValueError.

    Parameters
    ----------
    path
        A file, or a folder with files of one kind; names that begin with a dot or an underscore are passed over.
    separator
        What separates the columns of text files; each first line tells if left out.
    told
        Called as each file is begun in the first pass.
    """

    def __init__(self, path: Path, separator: str | None, told: Told | None = None) -> None:
        self.path, self._told = path, told
        self.folder = path.is_dir()
        self._paths = _files_of(path) if self.folder else [path]
        self._opened = [_opened(one, separator) for one in self._paths]
        first = self._opened[0]
        self.header, self.unnamed = first.header, first.unnamed
        """The names of the columns, and those of them that are ours because the first line gives none."""
        self.comma = first.form is not None and first.form.decimal_comma
        """Whether numbers may have decimal commas."""
        _check_alike(self._paths, self._opened)
        self.seen: list[Piece] = []
        self._stamps: list[tuple[int, int]] = []

    @property
    def first(self) -> Path:
        """The file that is read first."""
        return self._paths[0]

    def lines(self) -> Lines:
        """All rows: with the numbers of their lines in a file, or with their numbers in a folder, from 1."""
        before = 0
        for at in range(len(self._paths)):
            rows = 0
            for line, fields in self._rows(at):
                rows += 1
                yield before + rows if self.folder else line, fields
            before += rows

    def _rows(self, at: int) -> Lines:
        """The rows of one file, which must be what it was in the pass before."""
        path, rows = self._paths[at], 0
        with readable(path):
            stamp, fresh = _stamp(path), at == len(self.seen)
            if fresh and self._told is not None:
                self._told(f"{path.name}, file {at + 1:,} of {len(self._paths):,}" if self.folder else path.name)
            if not fresh and stamp != self._stamps[at]:
                raise _changed(path)
            for line in islice(self._opened[at].read(), 1, None):
                rows += 1
                yield line
            if fresh:
                with path.open("rb") as file:
                    self.seen.append(Piece(path.name, rows, hashlib.file_digest(file, "sha256").hexdigest()))
                self._stamps.append(stamp)
            if _stamp(path) != stamp or rows != self.seen[at].rows:
                raise _changed(path)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """ValueError in place of what the system says of a file that cannot be read."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or 'it is damaged'}") from None
    except (EOFError, zlib.error):
        raise ValueError(f"cannot read {path}: it is damaged, or not what its name says") from None


class _One(NamedTuple):
    """A file whose first line was read."""

    read: Callable[[], Lines]
    form: Form | None
    """How it is written, where it is text."""
    types: dict[str, str]
    """What its columns hold, where the file says so; a column of nothing but missing values is left out."""
    header: list[str]
    unnamed: tuple[str, ...]


def _files_of(folder: Path) -> list[Path]:
    """The files of a folder in order; ValueError where there is none, or something else among them."""
    with readable(folder):
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    found = [path for path in paths if not path.name.startswith((".", "_"))]
    if not found:
        raise ValueError(f"{folder} has no files that can be read: their names must end in {', '.join(FILES)}")
    for path in found:
        if path.is_dir():
            raise ValueError(f"{folder} has a folder {path.name!r} in it: all files must stand in {folder} itself")
        if not path.name.endswith(FILES):
            raise ValueError(
                f"{folder} has {path.name!r}, which cannot be read: its name must end in {', '.join(FILES)}; move it "
                "away, or let it begin with an underscore"
            )
        if (path.suffix == ".parquet") != (found[0].suffix == ".parquet"):
            raise ValueError(f"{folder} has {found[0].name!r} and {path.name!r}: files of one stream are of one kind")
    return found


def _opened(path: Path, separator: str | None) -> _One:
    with readable(path):
        form, types = None, dict[str, str]()
        if path.suffix == ".parquet":
            parquet = need("confide.data.parquet", "parquet", "reading .parquet files")
            read, types = partial(parquet.lines, path), parquet.types(path)
        else:
            form = form_of(path)
            if separator is not None:
                form = replace(form, separator=separator)
            read = partial(text_lines, path, form)
        return _One(read, form, types, *_header(path, next(read())[1]))


def _check_alike(paths: list[Path], opened: list[_One]) -> None:
    """Refuse a file whose columns are not those of the first one."""
    first, names, known = paths[0].name, opened[0].header, dict[str, tuple[str, str]]()
    for path, one in zip(paths, opened, strict=True):
        if lost := [name for name in names if name not in one.header]:
            raise ValueError(f"{path} has no column {lost[0]!r}, which {first} has: {_ALIKE}")
        if more := [name for name in one.header if name not in names]:
            raise ValueError(f"{path} has a column {more[0]!r}, which {first} has not: {_ALIKE}")
        if one.header != names:
            here, there = next(pair for pair in zip(one.header, names, strict=True) if pair[0] != pair[1])
            raise ValueError(f"{path}: column {here!r} stands where {first} has {there!r}: {_ALIKE}, in one order")
        for name, kind in one.types.items():
            other, where = known.setdefault(name, (kind, path.name))
            if kind != other:
                raise ValueError(f"{path}: column {name!r} is {kind}, and {other} in {where}: give it one type in all")
        if one.form != opened[0].form:
            raise ValueError(f"{path} has another separator or encoding than {first}: save all files in one form")


_ALIKE = "all files of a folder have the same columns"


def _header(path: Path, names: Fields) -> tuple[list[str], tuple[str, ...]]:
    """The columns' names, and which of them are ours because the first line gives none."""
    assert isinstance(names, list)
    if len(names) < 2:
        raise ValueError(
            f"the first line of {path} names one column: a stream needs a label and a feature, separated by a comma, a "
            "semicolon or a tab, and nothing may stand before the line that names them"
        )
    if any(_is_value(str(name)) for name in names):
        raise ValueError(
            f"the first line of {path} must name its columns, and there is a number or a date in it: if it is "
            "somebody's row, put a line of names before it"
        )
    own = {i: f"column {i + 1}" for i, name in enumerate(names) if not str(name).strip()}
    names, unnamed = [own.get(i, name) for i, name in enumerate(names)], tuple(own.values())
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path} has two columns called {twice!r}: rename one of them in its first line")
    return names, unnamed


def _is_value(name: str) -> bool:
    """Whether nobody calls a column so: a date, or a number that is no plain count, as 41.5 or -3."""
    said = read_value(name, True)
    return said.kind == "date" or (said.kind == "number" and not name.strip().isdecimal())


def _stamp(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def _changed(path: Path) -> ValueError:
    return ValueError(f"{path} was changed while it was read: bring back what it was, or start anew")
