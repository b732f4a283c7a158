"""Rows that a map makes up, as far as released grids tell, and their mean: along it steps swing first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats
from confide.guide.columns import digest
from confide.guide.maps import Encoded, FeatureMap
from confide.guide.model import Map
from confide.guide.rows import Table

ROWS = 512
_NOTHING = np.zeros(0)


def mean_row(features: Map) -> Floats:
    """The mean of rows whose columns are independent, each as its grid says; empty where rows cannot be made up.

    Examples
    --------
    >>> from confide.guide.columns import Columns
    >>> from confide.guide.ranges import declared
    >>> columns = Columns(numeric=("age",))
    >>> mean = mean_row(FeatureMap(columns, declared({"age": (0, 120)}, columns.numeric)))
    >>> mean.size, bool(0.02 < mean @ mean < 0.2)
    (64, True)
    """
    if not isinstance(features, FeatureMap) or features.columns.text:
        return _NOTHING
    indices, values = made_up(features)
    return np.asarray(np.bincount(indices.ravel(), values.ravel(), features.width) / ROWS)


def made_up(features: FeatureMap, rows: int = ROWS, edge: float = 0.0) -> Encoded:
    """Rows without texts whose columns are independent, each as its grid says: one line a row.

    A function of the map alone, the same on every machine: a column's values are its grid's, in a hashed order, but for
    this share at each `edge`. Of categories nothing is known, so that each says something else in every row.
    """
    numbers, shares = np.zeros((rows, len(features.columns.numeric))), (np.arange(rows) + 0.5) / rows
    for j, grid in enumerate(features.grids):
        if grid is not None:
            values = np.interp(edge + (1 - 2 * edge) * shares, np.linspace(0, 1, len(grid)), grid)
            numbers[np.argsort(_hashed(f"column {j}", rows), kind="stable"), j] = values
    categories = [_hashed(f"category {j}", rows) for j in range(len(features.columns.categorical))]
    codes = np.array(categories, dtype=np.uint64).reshape(-1, rows).T.copy()
    table = Table(numbers, codes, np.empty((rows, 0), dtype=np.object_), np.zeros(rows, dtype=np.bool_))
    (indices, values), _ = features.encode_table(table)
    return Encoded(indices.reshape(rows, -1), values.reshape(rows, -1))


def _hashed(name: str, rows: int) -> NDArray[np.uint64]:
    """One number a row, by a fixed hash."""
    mixed = (np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(digest(name))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
