"""Many rows read at once: column by column, and to the last bit as one by one.

Whatever a row is, or raises, is refused by itself. Equal categories of one call are hashed once: whoever sends them
shortens the call a little, and changes nothing else for the others. Nothing is kept from one call to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.contained import contained
from confide.guide.columns import Columns, Row, code_of
from confide.reading import category_of, number_of, text_of

_NUMBERS = frozenset({float, int, bool, type(None), np.float64, np.float32, np.int64, np.int32, np.bool_})
_CATEGORIES = frozenset({str, bytes, float, int, bool, type(None)})  # of these, equal ones have equal digests


class Table(NamedTuple):
    """Rows by column, as `Columns.read` gives them; what stands in a refused row means nothing."""

    numbers: NDArray[np.float64]
    codes: NDArray[np.uint64]
    texts: NDArray[np.object_]
    refused: NDArray[np.bool_]

    def __repr__(self) -> str:
        return f"Table({self.refused.size})"

    def row(self, i: int) -> Row:
        """One row, sharing nothing with the others."""
        return Row(self.numbers[i].copy(), self.codes[i].copy(), tuple(self.texts[i].tolist()))

    def part(self, some: slice) -> Table:
        """Some of the rows."""
        return Table(self.numbers[some], self.codes[some], self.texts[some], self.refused[some])

    @classmethod
    def of(cls, columns: Columns, rows: Sequence[Row]) -> Table:
        """Rows that were read one by one."""
        table = _empty(columns, len(rows))
        for i, row in enumerate(rows):
            table.numbers[i], table.codes[i], table.texts[i] = row
        return table


def read_many(columns: Columns, rows: Iterable[Any]) -> Table:
    """Read an array of numbers at once, dicts column by column, anything else row by row.

    Examples
    --------
    >>> table = read_many(Columns(numeric=("age",)), [{"age": 41}, {"age": "old"}, {}])
    >>> table.numbers[:, 0], table.refused
    (array([41., nan, nan]), array([False,  True, False]))
    """
    if type(rows) is np.ndarray and rows.ndim == 2 and rows.dtype.kind in "fiub" and rows.dtype.itemsize <= 8:
        return _read_array(columns, rows)
    rows = list(rows)
    table = _empty(columns, len(rows))
    plain = np.array([type(x) is dict for x in rows], dtype=np.bool_)
    for whole, part in zip(table, _read_dicts(columns, [x for x in rows if type(x) is dict]), strict=True):
        whole[plain] = part
    for i in np.flatnonzero(~plain):
        table.refused[i] = True
        with contained:
            table.numbers[i], table.codes[i], table.texts[i] = columns.read(rows[i])
            table.refused[i] = False
    return table


def _empty(columns: Columns, n: int) -> Table:
    return Table(
        np.full((n, len(columns.numeric)), np.nan),
        np.zeros((n, len(columns.categorical)), dtype=np.uint64),
        np.full((n, len(columns.text)), "", dtype=np.object_),
        np.zeros(n, dtype=np.bool_),
    )


def _read_array(columns: Columns, rows: NDArray[Any]) -> Table:
    table = _empty(columns, len(rows))
    if columns.positions != rows.shape[1] or columns.text:  # a number is no text
        table.refused[:] = True
        return table
    numbers = np.ascontiguousarray(rows[:, [int(name) for name in columns.numeric]], dtype=np.float64)
    for j, name in enumerate(columns.categorical):
        table.codes[:, j] = _codes(name, rows[:, int(name)].tolist(), table.refused)
    return Table(numbers, table.codes, table.texts, table.refused)


def _read_dicts(columns: Columns, rows: Sequence[dict[Any, Any]]) -> Table:
    table = _empty(columns, len(rows))
    if columns.positions is not None:
        _each(columns.check, rows, None, table.refused)
    for j, name in enumerate(columns.numeric):
        table.numbers[:, j] = _numbers(name, _values(rows, name, table.refused), table.refused)
    for j, name in enumerate(columns.categorical):
        table.codes[:, j] = _codes(name, _values(rows, name, table.refused), table.refused)
    for j, name in enumerate(columns.text):
        table.texts[:, j] = _each(partial(_text, name), _values(rows, name, table.refused), "", table.refused)
    return table


def _values(rows: Sequence[dict[Any, Any]], name: str, refused: NDArray[np.bool_]) -> list[Any]:
    with contained:
        return [x.get(name) for x in rows]
    return _each(lambda x: x.get(name), rows, None, refused)  # a key may be an object that raises when it is compared


def _numbers(name: str, values: Sequence[Any], refused: NDArray[np.bool_]) -> Any:
    if set(map(type, values)) <= _NUMBERS:
        with contained:  # an integer may have hundreds of digits
            return np.array(values, dtype=np.float64)  # None is NaN here too
    return _each(partial(number_of, name), values, np.nan, refused)


def _codes(name: str, values: Sequence[Any], refused: NDArray[np.bool_]) -> list[int]:
    if set(map(type, values)) <= _CATEGORIES:
        with contained:
            known = {value: _code(name, value) for value in set(values)}
            return [known[value] for value in values]
    return _each(partial(_code, name), values, 0, refused)


def _code(name: str, value: Any) -> int:
    return code_of(name, category_of(name, value))


def _text(name: str, value: Any) -> str:
    return text_of(name, value) or ""


def _each(read: Callable[[Any], Any], values: Sequence[Any], otherwise: Any, refused: NDArray[np.bool_]) -> list[Any]:
    """What is read of each value; where that raises anything, its row is refused."""
    out = [otherwise] * len(values)
    for i, value in enumerate(values):
        found = False
        with contained:
            out[i] = read(value)
            found = True
        refused[i] |= not found
    return out
