"""What a column's grid says about it: its atoms, where it is cut, and which of its levels is the usual one.

A *grid* is a column's 65 values at equal steps of probability, as far as known. A value that takes a bin's worth of
steps or more is an *atom*, like the 0 of a column that is nearly always 0: cuts lie beside it, never inside. A level
that has more than a quarter of the mass is the *reference*, and says nothing: its feature has the value 0. So a row
of many columns, most of them as usual, is a row of few features, and its norm is that of what it has to say.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from confide.arrays import Floats

Grid = tuple[float, ...] | None
"""None where nothing is known: such a column has a line between powers of two, and bins of quarter octaves."""


STEPS = 64
USUAL = 0.25  # of the mass: a level that has more is the reference
EDGE = 3  # steps left out at each end, where noise decides, when a column's spread is told or a line is drawn
_NUMBER_BINS = 16
_WORTH = STEPS // _NUMBER_BINS  # steps of a bin
_FAR = 4.0 ** np.arange(-6, 20)
_NEXT = 2.0**24  # 1/spread of a column of which one value only is known: every other is as far as can be


def below(grid: Sequence[float], value: float) -> float:
    """The share of a column below `value`, values between two of its grid being spread evenly.

    Examples
    --------
    >>> grid = [0.0] * 33 + [float(i) for i in range(1, 33)]
    >>> below(grid, 0.0), below(grid, math.nextafter(0.0, 1.0)), below(grid, 16.0), below(grid, 99.0)
    (0.0, 0.5, 0.75, 1.0)
    """
    i = bisect_left(grid, value)
    if i == 0 or i == len(grid):
        return float(i > 0)
    low, high = grid[i - 1], grid[i]
    return (i - 1 + (value - low) / (high - low)) / (len(grid) - 1)


def atoms(grid: Sequence[float]) -> list[float]:
    """The values that take a bin's worth of steps or more."""
    return sorted({grid[k] for k in range(len(grid) - _WORTH) if grid[k] == grid[k + _WORTH]})


def usual_value(grid: Sequence[float]) -> float | None:
    """The atom that has most of the mass, if it has more than a quarter."""
    shares = [(below(grid, math.nextafter(value, math.inf)) - below(grid, value), value) for value in atoms(grid)]
    share, value = max(shares, default=(0.0, 0.0))
    return value if share > USUAL else None


def bin_cuts(grid: Grid) -> Floats:
    """The ends of a column's bins: every fourth of its grid, each value once, and both sides of atoms.

    Beyond the grid one every two octaves: a grid from noisy counts may miss a long tail, and the tail may be what
    matters.
    """
    if grid is None:
        return np.zeros(0)
    beside = [end for value in atoms(grid) for end in (value, math.nextafter(value, math.inf))]
    far = np.concatenate([-_FAR[::-1], [0.0], _FAR])
    return np.unique(np.concatenate([far[far < grid[0]], grid[::_WORTH], beside, far[far > grid[-1]]]))


def reference(grid: Grid, cuts: Floats) -> int:
    """Which of the bins between `cuts`, numbered from 0 below the first, is the usual one; −1 for none."""
    if grid is None:
        return -1
    mass = np.diff([0.0, *(below(grid, float(cut)) for cut in cuts), 1.0])
    best = int(mass.argmax())
    return best if mass[best] > USUAL else -1


def centre_and_inverse(grid: Grid) -> tuple[float, float]:
    """Where a column is 0 as a number, and 1/its spread: from its usual value, if it has one, else from its middle."""
    if grid is None:
        return 0.0, 0.0
    usual = usual_value(grid)
    if usual is None:
        spread = (grid[STEPS - EDGE] - grid[EDGE]) / 2
        return grid[STEPS // 2], 1 / spread if spread > 1e-300 else 0.0
    spread = max(grid[-1] - usual, usual - grid[0])
    return usual, 1 / spread if spread > 1 / _NEXT else _NEXT


def middle_and_inverse(grid: Grid) -> tuple[float, float]:
    """The middle between a column's edges, and 1/half of what lies there: a straight line knows no usual value.

    Where the edges are one value, the ends stand for them. An end by itself may be noise, at any distance.
    """
    if grid is None:
        return 0.0, 0.0
    low, high = grid[EDGE], grid[STEPS - EDGE]
    if not high > low:
        low, high = grid[0], grid[-1]
    half = (high - low) / 2
    return (low + high) / 2, 1 / half if half > 1e-300 else 0.0


def cut_at(grid: Sequence[float], part: float) -> float:
    """The value below which lies this part of a column; on an atom the side of it that tells something apart."""
    place = part * STEPS
    i = int(place)
    value = grid[i] if i == place else (grid[i + 1] - grid[i]) * STEPS * (part - i / STEPS) + grid[i]
    after = math.nextafter(value, math.inf)
    low, high = below(grid, value), below(grid, after)
    if high - low < 1 / STEPS:
        return value
    return after if low == 0.0 or (high < 1.0 and part > (low + high) / 2) else value
