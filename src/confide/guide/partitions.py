"""Random partitions: each cuts a few columns at public places, and a row falls into one of its 2⁶ parts.

Many of them together are a kernel that knows which rows are alike in which columns. A partition depends on public seeds
and grids only, and adds one active feature, so the noise of a score does not grow with their number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.guide.columns import digest
from confide.guide.ranges import Grid
from confide.kernels.compile import jit

__all__ = ["DEPTH", "Partitions", "draw_partitions", "part_of"]

DEPTH = 6
_SETS = (2, 3, 6)  # columns of a partition: cut three times, twice, or once each
_MANY = 4096  # sets of columns beyond which they are drawn one by one, not dealt


class Partitions(NamedTuple):
    """One row a partition, one entry a cut: on column `column` at `cut`, or by a bit of a category's digest."""

    column: NDArray[np.int64]
    cut: NDArray[np.float64]
    salt: NDArray[np.uint64]


def draw_partitions(grids: Sequence[Grid], categories: int, number: int, seed: int) -> Partitions:
    """`number` partitions of numeric columns that have a grid, and of categorical ones, which are numbered after them.

    Every value is a fixed hash of the public seed and its place, so that anyone can draw them again.
    """
    usable = [j for j, grid in enumerate(grids) if grid is not None and grid[0] < grid[-1]]
    usable += range(len(grids), len(grids) + categories)
    number = number if usable else 0
    column = np.zeros((number, DEPTH), dtype=np.int64)
    cut, salt = np.zeros((number, DEPTH)), np.zeros((number, DEPTH), dtype=np.uint64)
    for i in range(number):
        chosen = _columns(usable, _SETS[i % len(_SETS)], i, seed)
        places = [chosen[level % len(chosen)] for level in range(DEPTH)]
        often, met = Counter(places), Counter[int]()
        for level, j in enumerate(places):
            part = (met[j] + _unit(f"cut {seed} {i} {level}")) / often[j]  # a column's cuts are spread over its grid
            met[j] += 1
            column[i, level] = j
            salt[i, level] = digest(f"salt {seed} {i} {level}") | 1
            grid = grids[j] if j < len(grids) else None
            if grid is not None:
                cut[i, level] = np.interp(part, np.linspace(0, 1, len(grid)), grid)
    return Partitions(column, cut, salt)


def _columns(usable: Sequence[int], size: int, i: int, seed: int) -> Sequence[int]:
    """The columns of partition i: all sets of this size in turn while they are few, so that none is missed."""
    size = min(size, len(usable))
    turn = i // len(_SETS)
    if math.comb(len(usable), size) > _MANY:
        return sorted(usable, key=lambda j: digest(f"set {seed} {i} {j}"))[:size]
    deal, at = divmod(turn, math.comb(len(usable), size))
    return sorted(combinations(usable, size), key=lambda s: digest(f"deal {seed} {deal} {s}"))[at]


def _unit(key: str) -> float:
    return digest(key) / 2.0**64


@jit
def part_of(
    numbers: NDArray[np.float64],
    codes: NDArray[np.uint64],
    column: NDArray[np.int64],
    cut: NDArray[np.float64],
    salt: NDArray[np.uint64],
) -> int:
    """Which part of one partition a row falls into; a missing number lies below every cut."""
    part = 0
    for level in range(column.size):
        j, above = column[level], False
        if j < numbers.size:
            above = numbers[j] >= cut[level]
        else:
            mixed = (codes[j - numbers.size] ^ salt[level]) * np.uint64(0x9E3779B97F4A7C15)
            above = (mixed >> np.uint64(40)) & np.uint64(1) != np.uint64(0)
        part = 2 * part + (1 if above else 0)
    return part
