"""Rows that models have read, as JSON's kinds of values: beside what came out they are written down."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from confide.guide.columns import Row
from confide.guide.maps import Encoded

__all__ = ["UNWRITTEN", "Unwritable", "as_text", "row_of", "written"]


UNWRITTEN = "their rows cannot be written down: give plain numbers and texts"
"""What is said to who saves."""


class Unwritable(ValueError):
    """A row has things in it that are neither numbers nor texts."""


def written(row: Any) -> Any:
    """A row that a model has read."""
    if isinstance(row, Row):
        return ["row", row.numbers.tolist(), row.codes.tolist(), list(row.texts)]
    if isinstance(row, Encoded):
        return ["encoded", row.indices.tolist(), row.values.tolist()]
    if isinstance(row, dict):
        return ["dict", {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}]
    return ["array", str(row.dtype), row.tolist()]


def as_text(written: Any) -> bytes:
    """JSON; `Unwritable` for a row that has other things in it."""
    try:
        return json.dumps(written, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        raise Unwritable("this row cannot be written down: give plain numbers and texts") from None


def row_of(written: Any) -> Any:
    """The row that `written` gave."""
    kind, *parts = written
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
