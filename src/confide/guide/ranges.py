"""Where a numeric column lies: declared, from a public sample, or from private counts of half octaves.

A *grid* is a column's 65 values at equal steps of probability, as far as known; cuts are taken from it. Private counts
go to fixed bins, sign × half octave: one row of a unit adds one weight a column, so the counts' sensitivity does not
depend on the data; they are released once, with noise (docs/proofs/guide.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit

__all__ = ["BINS", "Grid", "add_counts", "declared", "from_counts", "from_sample", "weight_of"]

Grid = tuple[float, ...] | None
"""None where nothing is known: such a column has bins of quarter octaves, and no other part."""

STEPS = 64
_LOW, _HIGH = -24, 40  # octaves: from 6·10⁻⁸ to 10¹²; what lies outside falls in the last bin
OCTAVES = _HIGH - _LOW
_PARTS = 2
_SIDE = _PARTS * OCTAVES
BINS = 2 * _SIDE + 1
"""Half octaves: negative ones from the largest down, zero, positive ones from the smallest up."""
_CLEAR, _WIDEST = 4.0, 16  # deviations of its noise that a sum of counts must exceed; the most bins of a sum
QUARTERS = 4 * OCTAVES


def weight_of(norm: int, columns: int) -> int:
    """What a row adds for each of its columns, so that its contribution has norm at most `norm`."""
    return math.isqrt(norm * norm // max(columns, 1))


def declared(ranges: Mapping[str, tuple[float, float]], names: Sequence[str]) -> tuple[Grid, ...]:
    """Grids of equal steps between declared ends; None for a column without."""
    grids: list[Grid] = []
    for name in names:
        if name not in ranges:
            grids.append(None)
            continue
        low, high = map(float, ranges[name])
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"the range of {name!r} must be two finite numbers, the smaller one first")
        grids.append(tuple(np.linspace(low, high, STEPS + 1).tolist()))
    return tuple(grids)


def from_sample(rows: NDArray[np.float64]) -> tuple[Grid, ...]:
    """Grids from public rows: their quantiles."""
    grids: list[Grid] = []
    for column in np.asarray(rows, dtype=np.float64).T:
        known = column[np.isfinite(column)]
        grids.append(None if known.size == 0 else tuple(np.quantile(known, np.linspace(0, 1, STEPS + 1)).tolist()))
    return tuple(grids)


def from_counts(counts: NDArray[np.int64], deviation: float) -> tuple[Grid, ...]:
    """Grids from noisy counts, one row of `BINS` a column; `deviation` is that of their noise.

    Bins are joined by twos, fours, … until a sum stands out of its noise; what never does is left out. Inside a bin
    values are taken to be spread evenly.

    Examples
    --------
    >>> counts = np.zeros((1, BINS), dtype=np.int64)
    >>> add_counts(np.array([[20.0], [40.0], [40.0], [63.0]]), 1000, counts)
    >>> [round(v, 1) for v in from_counts(counts, 10.0)[0][::16]]
    [16.0, 32.0, 38.6, 45.3, 64.0]
    """
    edges = 2.0 ** (_LOW + np.arange(_SIDE + 1) / _PARTS)
    ends = np.concatenate([-edges[::-1], edges])  # bin i lies between ends[i] and ends[i+1]; the middle one is zero
    grids: list[Grid] = []
    for column in counts:
        held = _denoised(column.astype(np.float64), deviation, np.sqrt(np.diff(ends)))
        places = np.flatnonzero(held)
        if places.size == 0:
            grids.append(None)
            continue
        share = np.concatenate([[0.0], np.cumsum(held)]) / held.sum()
        x = np.column_stack([ends[places], ends[places + 1]]).ravel()
        p = np.column_stack([share[places], share[places + 1]]).ravel()
        grids.append(tuple(np.interp(np.linspace(0, 1, STEPS + 1), p, x).tolist()))
    return tuple(grids)


def _denoised(counts: NDArray[np.float64], deviation: float, spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """The counts of bins, then of blocks of two, four, … of the others, that noise alone would hardly ever make.

    A block's count is shared out by `spread`: between even in the logarithm and even in the value.
    """
    out, size = np.zeros(counts.size), 1
    while size <= _WIDEST:
        for low in range(0, counts.size, size):
            block = low + np.flatnonzero(out[low : low + size] == 0)
            total = float(counts[block].sum())
            if block.size and total > _CLEAR * deviation * math.sqrt(block.size):
                out[block] = total * spread[block] / spread[block].sum()
        size *= 2
    return out


@jit
def octave(value: float, parts: int) -> int:
    """The place of |value| among octaves cut in `parts`, from 1; 0 for zero and what is next to it."""
    size = abs(value)
    if size < 2.0**_LOW:
        return 0
    if size >= 2.0**_HIGH:
        return (_HIGH - _LOW) * parts
    fraction, exponent = math.frexp(size)  # size = fraction·2^exponent, ½ ≤ fraction < 1
    part = 0
    for k in range(1, parts):  # exact comparisons with constants: no logarithm's last bit
        if fraction >= 0.5 * 2.0 ** (k / parts):
            part = k
    return (exponent - 1 - _LOW) * parts + part + 1


@jit
def add_counts(rows: NDArray[np.float64], weight: int, counts: NDArray[np.int64]) -> None:
    """Add one weight a column and row to its bin; a missing number adds nothing."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            value = rows[i, j]
            if value == value:
                place = octave(value, _PARTS)
                counts[j, _SIDE + place if value >= 0 else _SIDE - place] += weight
