"""Tables as rows: what pandas, polars and Arrow hold, without needing any of them.

Values are taken column by column and each by itself, so that nothing that stands in one row changes what another row
is read as: no column is converted to another type as a whole. A value that its own library cannot hand over (a date
beyond Python's, bytes that are no text) is unreadable in its row, and in no other.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from confide.contained import contained
from confide.errors import ConfideWarning
from confide.extras import need

__all__ = ["rows_of", "values_of"]

_NUMBERS = "biuf"
_NAMED = 8  # names that are shown


class Unreadable:
    """Stands for a value that could not be handed over: no feature, no label, nobody's id."""


class _Table(NamedTuple):
    names: list[Any]
    columns: list[list[Any]]


def rows_of(xs: Any, named: bool, declared: Sequence[Hashable] = ()) -> Any:
    """Questions as something with a length and rows; a table gives dicts where x is `named`, else an array.

    A table is a data frame of pandas or polars, a table or batch of Arrow, or anything that Arrow's stream or the
    interchange protocol of data frames hands over. Its rows have the names in the order of the columns; missing values
    are None, in arrays of numbers NaN. Names must be different. A table that has none of the `declared` names is
    refused, since every row of it would say nothing, and one that lacks most of them is warned of: a table's names are
    those of whoever hands it over, and of no single row.

    Examples
    --------
    >>> rows_of([[1.0, 2.0]], named=False)
    [[1.0, 2.0]]
    >>> import pyarrow
    >>> rows_of(pyarrow.table({"age": [41, None], "city": ["Rome", "Oslo"]}), named=True)
    [{'age': 41, 'city': 'Rome'}, {'age': None, 'city': 'Oslo'}]
    """
    if isinstance(xs, str | bytes | Mapping):
        raise ValueError("xs must be a sequence of questions, or an array or a table with a row for each")
    if isinstance(xs, np.ndarray):
        return xs
    if (table := _table(xs)) is None:
        return np.asarray(xs) if hasattr(xs, "__array__") else list(xs)
    if named:
        _check_names(table.names, declared)
        return [dict(zip(table.names, row, strict=True)) for row in zip(*table.columns, strict=True)]
    if (array := _numbers(xs)) is not None:
        return array
    rows = np.empty((len(table.columns[0]), len(table.names)), dtype=np.object_)
    for column, values in enumerate(table.columns):
        rows[:, column] = np.fromiter(values, dtype=np.object_, count=len(values))
    return rows


def _check_names(names: Sequence[Any], declared: Sequence[Hashable]) -> None:
    """Refuse a table with none of the declared names; warn of one that has few of them."""
    missing = [name for name in declared if name not in set(names)]
    if not declared or 2 * len(missing) <= len(declared):
        return
    said = f"the columns of the table are {_few(names)}, and the declared ones {_few(declared)}"
    if len(missing) == len(declared):
        raise ValueError(f"{said}: none is the same; rename the columns, or declare them as they are called")
    words = f"{said}: {len(missing)} of {len(declared)} are missing in every row, {_few(missing)}"
    warnings.warn(words, ConfideWarning, stacklevel=4)


def _few(names: Sequence[Any]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(repr(name) for name in names[:_NAMED]) + more


def values_of(column: Any) -> Any:
    """Labels, units or tickets as a sequence of plain values; missing ones of a column are None.

    Examples
    --------
    >>> values_of(np.array([1, 2]))
    [1, 2]
    """
    for name in ("to_pylist", "to_list", "tolist"):  # Arrow; pandas and polars; NumPy
        if hasattr(column, name):
            with contained:
                return _handed(column, name)
            return [_one(column, name, i) for i in range(len(column))]
    return column


def _handed(column: Any, name: str) -> Sequence[Any]:
    return _without_missing(column, getattr(column, name)())


def _one(column: Any, name: str, i: int) -> Any:
    """One value of a column of which some cannot be handed over."""
    with contained:
        return _handed(getattr(column, "iloc", column)[i : i + 1], name)[0]
    return Unreadable()


def _numbers(xs: Any) -> Any:
    """A table as one array, if its columns' own types make it one of numbers; else None."""
    if not hasattr(xs, "__array__"):
        return None
    with contained:  # types that have none in common, or a value that cannot be handed over
        array = np.asarray(xs)
        return array if array.dtype.kind in _NUMBERS else None
    return None


def _table(xs: Any) -> _Table | None:
    """The names and columns of a table; None for what is none. Refused if its names say no row."""
    if hasattr(xs, "collect_schema") and not hasattr(xs, "to_dicts"):
        raise ValueError("xs is a query that has not been run: call its collect() first")
    if hasattr(xs, "get_columns"):  # polars
        names, columns = list(xs.columns), xs.get_columns()
    elif hasattr(xs, "iloc") and hasattr(xs, "columns"):  # pandas
        names = list(xs.columns)
        columns = [xs.iloc[:, i] for i in range(len(names))]
    elif hasattr(xs, "column_names") and hasattr(xs, "columns"):  # Arrow
        names, columns = list(xs.column_names), xs.columns
    elif hasattr(xs, "to_pylist") or hasattr(xs, "to_list"):
        raise ValueError("xs is one column: give a table, or an array with a row for each question")
    elif hasattr(xs, "__arrow_c_stream__") or hasattr(xs, "__dataframe__"):
        return _table(_handed_over(xs))
    else:
        return None
    if not names:
        raise ValueError("xs is a table with no columns: there is nothing to ask about")
    if len(set(names)) < len(names):
        raise ValueError("two columns of the table have one name: rename them, so that rows can be read by name")
    return _Table(names, [values_of(column) for column in columns])


def _handed_over(xs: Any) -> Any:
    """A table that nobody here knows, as Arrow's."""
    what = "reading this kind of table"
    if hasattr(xs, "__arrow_c_stream__"):
        return need("pyarrow", "parquet", what).table(xs)
    return need("pyarrow.interchange", "parquet", what).from_dataframe(xs)


def _without_missing(column: Any, values: list[Any]) -> Sequence[Any]:
    """pandas has marks of its own for what is missing; polars and Arrow say None already."""
    if not hasattr(column, "iloc"):
        return values
    missing = np.asarray(column.isna())
    return [None if gone else value for gone, value in zip(missing, values, strict=True)] if missing.any() else values
