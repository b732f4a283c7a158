"""Files as streams: CSV and TSV, gzipped or not, and Parquet; a file, or a folder of them.

Each value is read by a rule that looks at it alone; the names, and how the file is written, come from its first line;
kinds of columns and labels from a schema or a public sample. What is taken from the file as a whole all the same, the
number of its rows and perhaps its labels, is said to be public.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from confide.data.layout import Column, Layout, UnreadableError, reading
from confide.data.lines import Fields
from confide.data.looks import Look
from confide.data.pieces import Pieces, Told, readable
from confide.data.rows import BadRow, Item, Row, Stream
from confide.data.schema import Schema, listed
from confide.data.survey import ID_ROWS, ID_SHARE, survey
from confide.data.values import SOME_WORDS, WORDS, Value, sort_key, text_of
from confide.data.values import read as read_value

MOST_LABELS = 1000
"""Labels that a first pass may find before it asks whether this is the label column."""

MANY_LABELS = 100
"""Labels from which on an owner is asked whether they are numbers."""

LOOKED, SPARSE = 10_000, 32
"""Rows whose values are looked at for what is odd in them: the first ones, and one in so many of the rest."""

IDS_LOOKED = 100_000
"""Rows that tell whether a column names them: their values are kept, so a large file must not have all of them."""

FIRST = 100
"""Rows of which at least one must be good: a wrong column or label set is an error before anything is asked."""


def open_file(
    path: Path,
    *,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    unit: str | None = None,
    schema: Schema | None = None,
    drop: Sequence[str] = (),
    order: Sequence[str] = (),
    told: Told | None = None,
) -> Stream:
    """A file with named columns as a stream, or the files of a folder as one; labels are their texts.

    Parameters
    ----------
    path
        A .csv or .tsv file (also .gz) whose first line names the columns, or a .parquet file. A comma, a semicolon, a
        tab or | separates, whichever the first line has most of. Or a folder of such files, all of one kind and with
        the same columns: they are read in the order of their names, and no more than a row group of one is in memory.
    label
        The label's column; the schema's, or the last one, if left out.
    labels
        All labels. If neither these nor the schema's are given, they are read from the file in a first pass, and then
        the label set counts as public: the stream says so.
    unit
        The column that names whose row it is; it is no feature.
    schema
        The columns' kinds; if left out, every column is `any` (see `confide.data.layout.Layout`).
    drop
        Columns to leave out.
    order
        Columns to sort the rows by, the first one first; rows that are equal in them stay as they stand. Numbers and
        dates go by size, before texts, before what is missing; a row that cannot be read comes last. When each row is
        asked is public, and so is then what this order tells. Not for a folder: all its rows would be in memory.
    told
        Called with the name of each file when its first pass begins.
    """
    schema = (schema or Schema()).but(label=label, labels=None if labels is None else tuple(labels), unit=unit)
    with readable(path):
        read = _opened(_File(path, schema.separator, told), schema, drop, order)

    def source(dicts: bool) -> Iterator[Item]:
        lines = _sorted(read.file, order, read.reader.layout) if order else read.file.lines()
        return (read.reader.item(line, fields, dicts) for line, fields in lines)

    layout, found, named = read.reader.layout, read.found, read.labels
    public = _public(read.file, found, None if schema.labels is not None else named, order, schema.unit)
    alarm, odd = _odd_labels(read)
    about = _notes(read.file, schema, public), public, (*odd, *_hints(read)), schema.unit, schema.label_weights
    return Stream(
        str(path), named, layout.names, layout.features, source, found.rows, *about, tuple(read.file.seen), alarm
    )


class _Opened(NamedTuple):
    """A file whose columns and labels are known."""

    file: _File
    reader: _Reader
    found: _Found
    labels: tuple[str, ...]
    looks: list[Look]
    undeclared: list[str]
    """Columns, where the schema says nothing of any."""


def _opened(file: _File, schema: Schema, drop: Sequence[str], order: Sequence[str]) -> _Opened:
    """Read all rows once; ValueError where something asked for does not fit the file."""
    path = file.path
    if order and file.folder:
        raise ValueError(f"{path} is a folder, whose files are read one after another: sort them before; no --order")
    label, unit = file.header[-1] if schema.label is None else schema.label, schema.unit
    file.check(label, *(() if unit is None else (unit,)), *drop, *order)
    if unit == label:
        raise ValueError(f"--unit and --label both name column {label!r}: a label is nobody's name")
    if label in drop:
        raise ValueError(f"--drop names the label's column {label!r}: say with --label which one it is")
    names = [name for name in file.header if name not in (label, unit)]
    layout = Layout(schema.for_names(names, drop, path), file.comma)
    if not layout.names:
        raise ValueError(f"{path} has no column left that could be a feature")
    looks = [Look(column, file.comma) for column in layout.columns if column.kind != "drop"]
    found = file.count(label, schema.labels, looks, schema.label is None)
    named = found.labels if schema.labels is None else schema.labels
    _check_rows(file, found)
    if 2 * len(found.labels) > max(found.rows, MANY_LABELS):
        raise ValueError(
            f"column {label!r} of {path} has {len(found.labels):,} different values in {found.rows:,} rows, so that "
            "hardly any label comes twice: name the label with --label, or cut a number into a few ranges first"
        )
    if len(set(named)) < max(2, len(named)):
        raise ValueError(_few_labels(file, label, named, schema.labels is not None))
    for look in looks:
        if said := look.refusal():
            raise ValueError(f"{path}: {said}")
    reader = _Reader(tuple(file.header), label, frozenset(named), unit, layout)
    _check_first(path, reader, list(islice(file.lines(), FIRST)), named)
    undeclared = [look.column.name for look in looks] if not schema.columns else []
    return _Opened(file, reader, found, named, looks, undeclared)


def draft(path: Path, asked: Schema | None = None, ranges: bool = False) -> tuple[Schema, dict[str, str]]:
    """A schema for this file from all of its rows, and comments by column; `ranges` where the file is public."""
    asked = asked or Schema()
    with readable(path):
        file = _File(path, asked.separator)
        if file.folder:
            raise ValueError(f"{path} is a folder: a schema is drafted from one file, such as {file.first}")
        file.check(*(name for name in (asked.label, asked.unit) if name is not None))
        return survey(path, file.header, file.lines(), asked, file.comma, ranges)


@dataclass(frozen=True)
class _Found:
    """What a first pass takes from the file as a whole."""

    rows: int
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    """Columns in which nearly every row has another value."""
    ragged: int
    """Rows with more or fewer fields than the first line."""
    came: Counter[str]
    """How often each label comes; of labels that were declared, and of the first others."""


class _File(Pieces):
    """A file, or all files of a folder, whose first line was read."""

    def check(self, *names: str) -> None:
        """Refuse names that no column has; a first line that may be somebody's row is not shown."""
        for asked in names:
            if asked in self.header:
                continue
            if any(read_value(name, True).kind == "number" for name in self.header):
                here = "its first line must name the columns, and there are numbers in it"
                raise ValueError(f"{self.path} has no column {asked!r}: {here}")
            raise ValueError(f"{self.path} has no column {asked!r}; it has {', '.join(self.header)}")

    def count(self, label: str, declared: Sequence[str] | None, looks: Sequence[Look], guessed: bool) -> _Found:
        """The number of rows; labels, and how often each comes; which columns that nobody declared look like ids."""
        rows, ragged, came, place = 0, 0, Counter[str](), self.header.index(label)
        places = [(look, self.header.index(look.column.name)) for look in looks]
        undeclared = [(look.column.name, at) for look, at in places if look.column.kind == "any"]
        seen = {name: _Different(at, self.comma) for name, at in undeclared}
        for _, fields in self.lines():
            rows += 1
            if not isinstance(fields, list) or len(fields) != len(self.header):
                ragged += 1
                continue
            y = text_of(fields[place])
            if y in came or len(came) < MOST_LABELS or y in (declared or ()):
                came[y] += 1
            elif declared is None:
                raise ValueError(self._no_label(label, guessed))
            if rows <= LOOKED or rows % SPARSE == 0:
                for look, at in places:
                    look.add(fields[at])
            if rows <= IDS_LOOKED:
                seen = {name: one for name, one in seen.items() if one.add(fields, rows)}
        dates = {look.column.name for look in looks if look.dates}  # which are no ids, however many
        many = [name for name, one in seen.items() if rows >= ID_ROWS and one.nearly_all(min(rows, IDS_LOOKED))]
        ids = tuple(name for name in many if name not in dates)
        found = () if declared is not None else tuple(sorted(came.keys() - {""}, key=_label_order))
        return _Found(rows, found, ids, ragged, came)

    def _no_label(self, label: str, guessed: bool) -> str:
        how = "no --label was given, so the last one was taken" if guessed else "is it the right column"
        return (
            f"column {label!r} of {self.path} has more than {MOST_LABELS} different values, too many for labels; "
            f"{how}: name the label with --label, one of {', '.join(self.header)}; is it a number to predict, cut it "
            "into a few ranges first, each a label"
        )


class _Different:
    """Whether nearly every row has another text or whole number here; given up as soon as it is clear that not."""

    def __init__(self, place: int, comma: bool) -> None:
        self.place, self.comma, self.values = place, comma, set[int]()

    def add(self, fields: Sequence[Any], rows: int) -> bool:
        """Look at one more row, the `rows`-th; False when this is no id."""
        said = read_value(fields[self.place], self.comma)
        if said.kind in ("number", "text") and said.category is not None and len(said.category.split()) < WORDS:
            self.values.add(hash(said.category))
        return rows < ID_ROWS or self.nearly_all(rows)

    def nearly_all(self, rows: int) -> bool:
        return len(self.values) >= ID_SHARE * rows


def _check_rows(file: _File, found: _Found) -> None:
    """Refuse a file without rows, or most of whose rows do not fit its first line."""
    if not found.rows:
        raise ValueError(f"{file.path} has no rows after the line that names its columns")
    if 2 * found.ragged > found.rows:
        raise ValueError(
            f"{found.ragged:,} of {found.rows:,} rows of {file.path} have more or fewer fields than its first line, "
            f"which names {len(file.header)} columns: it must hold nothing but their names, with the separator of all "
            "rows; or a quote is left open"
        )


def _few_labels(file: _File, label: str, named: Sequence[str], declared: bool) -> str:
    if len(set(named)) < len(named):
        return "a label is declared twice: name each label once"
    if declared:
        return "one label alone is declared, and nothing can be told apart by one: name all that may come with --labels"
    alone = f"every row has the same label in column {label!r}" if named else f"column {label!r} is empty in every row"
    return (
        f"{file.path}: {alone}, so that nothing can be learned from it: name another column with --label, "
        "or all labels that may come with --labels"
    )


def _sorted(file: _File, order: Sequence[str], layout: Layout) -> Iterator[tuple[int, Fields]]:
    """All lines in the order of these columns; equal ones as they stand."""
    kinds = {column.name: column for column in layout.columns}
    places = [(file.header.index(name), kinds.get(name, Column(name))) for name in order]

    def key(line: tuple[int, Fields]) -> tuple[bool, list[tuple[int, float, str]]]:
        fields = line[1]
        if isinstance(fields, str) or len(fields) != len(file.header):
            return True, []
        return False, [sort_key(reading(column, fields[place], file.comma)) for place, column in places]

    return iter(sorted(file.lines(), key=key))


def _public(
    file: _File, found: _Found, labels: tuple[str, ...] | None, order: Sequence[str], unit: str | None
) -> tuple[str, ...]:
    """What is taken from the file as a whole, or from all its rows together."""
    public = [
        f"the names of the columns of {file.path.name}, and how it is written, by its first line",
        f"the number of its rows, {found.rows:,}, and in which order they come",
    ]
    if file.folder:
        public.append(f"the names of its {len(file.seen):,} files, and the number of rows in each")
    if labels is not None:
        public.append(f"its {len(labels)} labels, which were read from all its rows; --labels declares them")
    if order:
        public.append(f"what the order by {', '.join(order)} tells: the rows were sorted by it, whoever they belong to")
    if unit is not None:
        public.append(f"whose row each is, by column {unit!r}, and which rows name nobody")
    return tuple(public)


def _notes(file: _File, schema: Schema, public: tuple[str, ...]) -> tuple[str, ...]:
    notes, path = [], file.path
    if file.folder:
        ends = f"{file.seen[0].name} first, {file.seen[-1].name} last"
        order = "in the order of their names, letter by letter, so that 10 comes before 9"
        notes.append(f"the {len(file.seen):,} files of {path} are read {order}: {ends}")
    if schema.label is None:
        last = repr(file.header[-1])
        notes.append(f"no label was named, so the last column, {last}, is taken for it; --label names another")
    if file.unnamed:
        notes.append(f"columns without a name in the first line are called {', '.join(file.unnamed)}, for --drop too")
    if any(name.strip().isdecimal() for name in file.header):
        notes.append(f"names in the first line of {path.name} are numbers: is it a row? Put a line of names before it")
    if schema.labels is None:
        notes.append(f"the labels were read from {path.name} and are treated as public; --labels declares them")
    if any("sorted" in line for line in public):
        notes.append("the rows were sorted, and when each is asked is treated as public")
    if file.comma:
        notes.append(f"semicolons separate the columns of {path.name}, so 3,14 is read as a number")
    if not schema.columns:
        drafts = f"`confide schema {file.first}` drafts kinds to declare"
        notes.append(f"no column was declared, so each value is read by its own form; {drafts}")
    return tuple(notes)


def _forms(read: _Opened) -> tuple[str, ...]:
    """What the columns that nobody declared look like, by most values of the first rows: it decides nothing."""
    file = read.file
    first = [fields for _, fields in islice(file.lines(), FIRST)]
    whole = [fields for fields in first if isinstance(fields, list) and len(fields) == len(file.header)]
    taken = dict[str, list[str]]()
    for name in read.undeclared:
        place = file.header.index(name)
        forms = Counter(_form(read_value(fields[place], file.comma)) for fields in whole)
        del forms["nothing"]
        taken.setdefault(max(forms, key=lambda form: forms[form], default="nothing"), []).append(name)
    said = "; ".join(f"{form} in {listed(taken[form], _NAMED)}" for form in _FORMS if form in taken)
    how = "each value is read by itself; a schema can declare what a whole column is"
    return (f"most values of the first {len(whole)} rows are {said}: {how}",) if said else ()


_NAMED = 8  # columns of one form that are named
_FORMS = ("numbers", "dates", "categories", "words", "nothing")


def _form(said: Value) -> str:
    if said.kind == "text":
        return "words" if len(str(said.category).split()) >= SOME_WORDS else "categories"
    return {"missing": "nothing", "number": "numbers", "date": "dates"}[said.kind]


_ODD = 0.01  # the share of rows with labels that are not declared from which on no error is read without it


def _odd_labels(read: _Opened) -> tuple[str, tuple[str, ...]]:
    """What the owner should hear of labels that are not as they were declared; first, where that makes errors void."""
    came = read.found.came
    there = [label for label in read.labels if came[label]]
    absent = [label for label in read.labels if not came[label]]
    others = sorted((label for label in came if label and label not in read.labels), key=lambda one: -came[one])
    said = list[str]()
    if others:
        said += [f"the label {listed(absent, _NAMED)} never comes"] if absent else []
        some = ", ".join(f"{label!r} comes {came[label]:,} time{'s' * (came[label] > 1)}" for label in others[:_NAMED])
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        said.append(f"{some}{more}, not declared: those rows teach nothing and are in no error; check the labels")
    if len(there) == 1:
        said.append(f"{there[0]!r} is the only declared label that comes: to be right by it says nothing")
    hint = "; ".join(said)
    void = len(there) == 1 or (others and (absent or sum(came[one] for one in others) >= _ODD * read.found.rows))
    return hint if void else "", (hint,) if hint else ()


def _hints(read: _Opened) -> tuple[str, ...]:
    """What the owner should hear: ids, values that their kind cannot read, letters of another encoding."""
    said = [hint for look in read.looks if (hint := look.hint())]
    if ids := read.found.ids:
        named, those = " and ".join(map(repr, ids)), "them" if len(ids) > 1 else "it"
        said.insert(
            0,
            f"nearly every row has another value of {named}: an id says nothing of the next row and takes room from "
            f"what does; leave {those} out with --drop {quote(','.join(ids))}, or name the people with --unit",
        )
    if ragged := read.found.ragged:
        said.append(
            f"{ragged:,} of {read.found.rows:,} rows have more or fewer fields than the first line and are unreadable: "
            "is a separator inside a value that is not quoted?"
        )
    if len(read.found.labels) > MANY_LABELS:
        said.append(
            f"{len(read.found.labels):,} different labels were found in column {read.reader.label!r}: if it is a "
            "number, cut it into a few ranges first, since each value is learned by itself"
        )
    broken = [look.column.name for look in read.looks if look.broken]
    broken += [read.reader.label] * any("\ufffd" in label for label in read.labels)
    return (*_forms(read), *said, *_broken(read.file.path, broken))


def _broken(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Of bytes that are no text in the encoding that the first line tells."""
    if not names:
        return ()
    return (
        f"values of {', '.join(map(repr, names))} hold letters that are not written in UTF-8, all read as one: "
        f"save {path.name} as UTF-8, or two values that differ in these letters alone are the same",
    )


_NO_LABEL, _OTHER_LABEL = "its label is missing", "its label is not one of the declared labels"


@dataclass(frozen=True)
class _Reader:
    """From the values of a line to a row."""

    header: tuple[str, ...]
    label: str
    labels: frozenset[str]
    unit: str | None
    layout: Layout

    def item(self, line: int, fields: Fields, dicts: bool) -> Item:
        """The row, by the names of its columns (`dicts`), or as the layout's features take it."""
        if isinstance(fields, str):
            return BadRow(line, fields)
        unit = None
        if self.unit is not None:
            at = self.header.index(self.unit)
            unit = (text_of(fields[at]) if at < len(fields) else "") or None
        if len(fields) != len(self.header):
            return BadRow(line, f"it has {len(fields)} fields where {len(self.header)} are expected", unit=unit)
        if self.unit is not None and unit is None:
            return BadRow(line, f"its unit ({self.unit!r}) is missing")
        y = text_of(fields[self.header.index(self.label)])
        values = [value for name, value in zip(self.header, fields, strict=True) if name not in (self.label, self.unit)]
        x, reason = None, ""
        try:
            x = self.layout.plain(values) if dicts else self.layout.x(values)
        except UnreadableError as error:
            reason = str(error)
        if y not in self.labels:
            reason = reason or (_OTHER_LABEL if y else _NO_LABEL)
        right = y if y in self.labels else None
        return BadRow(line, reason, x, right, unit) if reason else Row(x, y, unit, line)


def _check_first(path: Path, reader: _Reader, first: list[tuple[int, Fields]], labels: Sequence[str]) -> None:
    """Refuse a file of which no row could be answered and learned: then a column, a label or the file is wrong."""
    items = [reader.item(line, fields, True) for line, fields in first]
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


def _label_order(label: str) -> tuple[float, str]:
    number = read_value(label).number
    return (number, label) if number is not None and math.isfinite(number) else (math.inf, label)
