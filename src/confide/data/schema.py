"""A schema: what is known of a file's columns before anybody's row is read. Written by hand, or reviewed by hand.

    label = "outcome"
    labels = ["no", "yes"]

    label_weights = { yes = 5 }     # how much is made of a rare label; the others have 1

    [columns]
    age = { kind = "number", low = 0, high = 120 }
    city = "category"
    note = "text"
    asked = { kind = "date", low = 2020-01-01, high = 2030-12-31 }
    number = "drop"

TOML, or JSON with the same names. What stands in a schema is public.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Self

from confide.data.layout import Column
from confide.data.values import day_of, read

_ENTRIES = {"label", "labels", "label_weights", "unit", "separator", "columns"}
_PARTS = {"kind", "low", "high", "width", "encoder", "format"}
_ENDS = ("low", "high")


@dataclass(frozen=True)
class Schema:
    """What is known of a file.

    Parameters
    ----------
    columns
        The columns' kinds; where any are given, all that are neither label nor unit must be.
    label
        The label's column; None for the last one.
    labels
        All labels; None to read them from the file.
    label_weights
        Labels and how much the guide makes of each, the others having 1.
    unit
        The column that names whose row it is.
    separator
        What separates columns; None to read it from the file's first line.
    source
        Where this is from, for the report.

    Examples
    --------
    >>> age = {"kind": "number", "low": 0, "high": 120}
    >>> Schema.of({"label": "y", "columns": {"age": age, "city": "category"}}).columns[0]
    Column(name='age', kind='number', low=0.0, high=120.0, width=None, encoder=None, format=None)
    """

    columns: tuple[Column, ...] = ()
    label: str | None = None
    labels: tuple[str, ...] | None = None
    unit: str | None = None
    separator: str | None = None
    source: str = ""
    label_weights: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any], source: str = "the schema") -> Self:
        """The schema that these entries describe; ValueError says which of them is wrong."""
        if unknown := sorted(set(given) - _ENTRIES):
            raise ValueError(f"{source} has an entry {unknown[0]!r}: there are {', '.join(sorted(_ENTRIES))}")
        columns = given.get("columns", {})
        if not isinstance(columns, Mapping):
            raise ValueError(f"{source}: columns must be a table of names and kinds")
        for name in ("label", "unit", "separator"):
            if not isinstance(given.get(name, ""), str):
                raise ValueError(f"{source}: {name} must be a text")
        labels = given.get("labels")
        if labels is not None and not isinstance(labels, list):
            raise ValueError(f"{source}: labels must be a list of all labels")
        weights = given.get("label_weights", {})
        if not isinstance(weights, Mapping) or not all(_is_number(weight) for weight in weights.values()):
            raise ValueError(f"{source}: label_weights must be a table of labels and numbers, as {{ yes = 5 }}")
        if len(given.get("separator", ",")) != 1:
            raise ValueError(f"{source}: separator must be one character")
        return cls(
            tuple(_column(name, column, source) for name, column in columns.items()),
            given.get("label"),
            None if labels is None else tuple(str(label) for label in labels),
            given.get("unit"),
            given.get("separator"),
            source,
            tuple((str(label), float(weight)) for label, weight in weights.items()),
        )

    def but(self, **given: Any) -> Self:
        """The same with what was asked for on the command line; what was not (None) stays."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def for_names(self, names: Sequence[str], drop: Sequence[str], path: Path) -> tuple[Column, ...]:
        """The columns of these names, in their order; ValueError where one is not declared and others are."""
        declared = {column.name: column for column in self.columns}
        missing = [name for name in names if name not in declared and name not in drop]
        if declared and missing:
            raise ValueError(
                f"{self.source} says nothing of column {missing[0]!r} of {path}: give its kind, or declare it as drop"
            )
        dropped = {name: Column(name, "drop") for name in drop}
        return tuple((declared | dropped).get(name) or Column(name) for name in names)

    def to_toml(self, comments: Mapping[str, str] | None = None) -> str:
        """The text that `read_schema` reads, with a comment behind some columns."""
        comments, lines = comments or {}, []
        for name in ("label", "labels", "unit", "separator"):
            value = getattr(self, name)
            if value is not None:
                pair = alike(value) if name == "labels" else None
                alarm = f"  # {' and '.join(map(_toml, pair))} differ by case only: are they one?" if pair else ""
                lines.append(f"{name} = {_toml(value)}{alarm}")
        if self.label_weights:
            pairs = ", ".join(f"{_toml(label)} = {weight!r}" for label, weight in self.label_weights)
            lines.append(f"label_weights = {{ {pairs} }}")
        lines += ["", "[columns]"]
        for column in self.columns:
            parts = {part: getattr(column, part) for part in ("kind", "low", "high", "width", "encoder", "format")}
            if column.kind == "date":
                parts |= {part: day_of(parts[part]) or parts[part] for part in _ENDS if parts[part] is not None}
            known = {part: value for part, value in parts.items() if value is not None}
            body = ", ".join(f"{part} = {_toml(value)}" for part, value in known.items())
            text = f"{{ {body} }}" if len(known) > 1 else _toml(column.kind)
            comment = f"  # {comments[column.name]}" if column.name in comments else ""
            lines.append(f"{_toml(column.name)} = {text}{comment}")
        return "\n".join(lines) + "\n"


def read_schema(path: Path) -> Schema:
    """The schema in a .toml or .json file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        given = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"{path} must hold a table of entries: label, labels, columns")
    return Schema.of(given, str(path))


def _column(name: str, given: Any, source: str) -> Column:
    parts: Any = {"kind": given} if isinstance(given, str) else given
    if not isinstance(parts, Mapping) or set(parts) - _PARTS or not isinstance(parts.get("kind"), str):
        raise ValueError(f"{source}: column {name!r} must be a kind, or a table of {', '.join(sorted(_PARTS))}")
    low, high = (_end(parts.get(part), parts["kind"], f"{source}: {part} of column {name!r}") for part in _ENDS)
    if not isinstance(parts.get("width", 1), int) or isinstance(parts.get("width"), bool):
        raise ValueError(f"{source}: width of column {name!r} must be a number")
    for part, example in (("encoder", "wordllama"), ("format", "%d/%m/%Y")):
        if not isinstance(parts.get(part, ""), str):
            raise ValueError(f"{source}: {part} of column {name!r} must be a text, as {example!r}")
    return Column(name, parts["kind"], low, high, parts.get("width"), parts.get("encoder"), parts.get("format"))


def _end(given: Any, kind: str, what: str) -> float | None:
    """An end of a range: a number, or of a date an ISO date."""
    if kind == "date" and isinstance(given, str | date) and (said := read(given)).kind == "date":
        return said.number
    if given is not None and not _is_number(given):
        raise ValueError(f"{what} must be " + ("a date, as 2024-02-29" if kind == "date" else "a number"))
    return None if given is None else float(given)


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def listed(names: Sequence[str], most: int) -> str:
    """Names in a sentence, the first ones of many.

    Examples
    --------
    >>> listed(["age", "city", "fare"], 2)
    "'age', 'city' and 1 more"
    """
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def alike(labels: Sequence[str]) -> tuple[str, str] | None:
    """Two labels that differ by case only; None where there are none.

    Examples
    --------
    >>> alike(["Billing", "billing", "sales"]), alike(["a", "b"])
    (('Billing', 'billing'), None)
    """
    seen: dict[str, str] = {}
    for label in labels:
        if (other := seen.setdefault(label.casefold(), label)) != label:
            return other, label
    return None


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # a JSON string is a TOML one, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
