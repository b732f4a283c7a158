"""Lines of a text file as lists of fields: the separator, the encoding and the names come from the first line alone.

Nothing here looks at two lines at once, so what stands in one row never decides how another is read. What a row *is*
follows from the file's quoting, which is its writer's: a quote that somebody left open swallows the lines after it.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, cast

TEXTS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
"""How the names of text files end."""

Fields = list[Any] | str
"""The values of a line, or what is wrong with it."""

Lines = Iterator[tuple[int, Fields]]
"""Lines with their numbers, the one with the names first."""

_SEPARATORS = (";", "\t", "|", ",")  # where two are as frequent, the first: commas also stand inside names
_LONGEST = (1 << 31) - 1
_FIRST = 1 << 20
_NO_TEXT = "{} is not a text file: save it as CSV, with a first line that names the columns"


@dataclass(frozen=True)
class Form:
    """How a text file is written, as its first line tells."""

    encoding: str
    separator: str
    quoted: bool = True

    @property
    def decimal_comma(self) -> bool:
        """Where semicolons separate, commas are free to be decimal ones."""
        return self.separator == ";"


def form_of(path: Path) -> Form:
    """How this file is written; ValueError where it is no table of text."""
    with _open(path) as file:
        line = file.readline(_FIRST)
    if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
        with TextIOWrapper(_open(path), encoding, errors="replace") as text_file:
            line = text_file.readline(_FIRST).encode()
    else:
        encoding = "utf-8-sig"
    if b"\0" in line:
        raise ValueError(_NO_TEXT.format(path))
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        encoding, text = "cp1252", line.decode("cp1252", "replace")
    if not text.strip():
        what = "begins with an empty line" if line else "is empty"
        raise ValueError(f"{path} {what}: its first line must name the columns")
    if text.lower().startswith("sep="):
        raise ValueError(f"{path} begins with sep=, a line for spreadsheets: remove it, the first line names columns")
    if path.name.endswith((".tsv", ".tsv.gz")):
        return Form(encoding, "\t", quoted=False)  # text/tab-separated-values knows no quotes
    bare = "".join(text.split('"')[::2])  # without what is quoted
    separator = max(_SEPARATORS, key=bare.count)
    if separator not in bare and encoding == "cp1252":
        raise ValueError(_NO_TEXT.format(path))
    return Form(encoding, separator)


def lines(path: Path, form: Form) -> Lines:
    """All lines but empty ones."""
    csv.field_size_limit(_LONGEST)  # a field of any length is a field: nobody's long text may unmake their row
    with TextIOWrapper(_open(path), form.encoding, errors="replace", newline="") as text:
        reader = csv.reader(
            text, delimiter=form.separator, quoting=csv.QUOTE_MINIMAL if form.quoted else csv.QUOTE_NONE
        )
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


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
