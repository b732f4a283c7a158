"""Private ranges: counts of where numeric columns lie, and the map that follows from them and from what is declared."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Ints
from confide.guide.columns import Columns
from confide.guide.maps import FeatureMap
from confide.guide.ranges import COUNTS, add_counts, declared, from_counts, weights_of


class RangeCounts:
    """Exact counts of rows, until they are released with noise and the map is made.

    A row adds the same weights in each numeric column, declared or not, to bins that its value names: a vector without
    negative entries and of norm at most `norm`.
    """

    def __init__(self, columns: Columns, ranges: Mapping[str, tuple[float, float]], norm: int) -> None:
        self.columns, self._declared = columns, declared(ranges, columns.numeric)
        self._weights = weights_of(norm, len(columns.numeric))
        self.counts = np.zeros((len(columns.numeric), COUNTS), dtype=np.int64)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.counts = np.require(self.counts, requirements=["C", "W"])  # it may come from a read-only file

    def emptied(self) -> RangeCounts:
        """The same bins, without counts."""
        own = copy(self)
        own.counts = np.zeros_like(self.counts)
        return own

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Count rows of all numeric columns; a missing number adds nothing."""
        add_counts(np.ascontiguousarray(numbers, dtype=np.float64), *self._weights, self.counts)

    def map(self, released: Ints, deviation: float, rows: int) -> FeatureMap:
        """The map that released counts of at most so many rows give: a function of them and of public constants.

        Where they show nothing of a column, what is declared of it stands.
        """
        found = from_counts(released.reshape(self.counts.shape), deviation, rows * self._weights[0])
        grids = (given if grid is None else grid for given, grid in zip(self._declared, found, strict=True))
        return FeatureMap(self.columns, tuple(grids))
