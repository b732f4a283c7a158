"""Where a numeric column lies: declared, from a public sample, or from private counts of half octaves.

What is declared stands until counts are released that show where the column lies: most columns are not spread evenly
over their range, and many are nearly always 0.

A *grid* is a column's 65 values at equal steps of probability, as far as known; cuts are taken from it. Private counts
go to fixed bins: 0, 1, and sign × half octave for the rest; and, for columns that lie in a narrow band far from 0
(years, a temperature, days since 1970), to one of eight bins at each of some finer scales. One row of a unit adds the
same weights whatever it says, so the counts' sensitivity does not depend on the data; they are released once, with
noise (docs/proofs/guide.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from confide.guide.levels import STEPS, Grid
from confide.kernels.compile import jit

__all__ = ["BINS", "COUNTS", "Grid", "add_counts", "declared", "from_counts", "from_sample", "weights_of"]

_LOW, _HIGH = -24, 64  # octaves: from 6·10⁻⁸ to 10¹⁹; what lies outside falls in the last bin
OCTAVES = _HIGH - _LOW
_PARTS = 2
_HALF = math.sqrt(2.0)  # rounded correctly everywhere, unlike a power: a map must be the same on every machine
_SIDE = _PARTS * OCTAVES
_ONE = 2 * _SIDE + 1
BINS = _ONE + 1
"""Half octaves: negative ones from the largest down, zero, positive ones from the smallest up; and exactly 1.

Of the columns that strangers have, most are 0 and 1: these two are atoms, and known as such.
"""
_FROM_ONE = _SIDE + 1 - _PARTS * _LOW  # the half octave from 1 on
_SCALES = 5
"""Finer scales 1, 2, …: at scale s an octave has 4ˢ cells, and a row counts in one of eight bins, its cell modulo 8."""
COUNTS = BINS + 8 * _SCALES
_CELLS = 4**_SCALES  # of an octave, at the finest scale
_SPLIT = int((_HALF - 1) * _CELLS)  # … in its lower half
_OTHER = 1 << 20  # the place of negative numbers, beyond all others: a multiple of every scale's eight cells
_FINE = 0.1  # of the squared norm for the finer scales
_INSIDE, _SURE = 0.7, 2.0  # of a column in eight cells in a row, and in bins that reach so many deviations of noise
_FILLS = 1 / 16  # of a column: what is left of it counts from a bin's worth on
_SHOWN = 1 / 3  # of the rows that have a number: a column of which less is shown is not known
_CLEAR, _WIDEST = 4.0, 16  # deviations of its noise that a sum of counts must exceed; the most bins of a sum
QUARTERS = 4 * OCTAVES
NODES = OCTAVES + 1
"""Powers of two: between two of them a column of which nothing is known has a linear part."""


def weights_of(norm: int, columns: int) -> tuple[int, int]:
    """What a row adds in each of its columns, to its bin and at each finer scale: together of norm at most `norm`.

    Examples
    --------
    >>> weights_of(1000, 4)
    (474, 70)
    """
    columns = max(columns, 1)
    fine = math.isqrt(int(_FINE * norm * norm) // (columns * _SCALES))
    return math.isqrt(norm * norm // columns - _SCALES * fine * fine), fine


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


def from_counts(counts: NDArray[np.int64], deviation: float, most: float = math.inf) -> tuple[Grid, ...]:
    """Grids from noisy counts, one row of `COUNTS` a column; `deviation` is that of their noise.

    Bins are joined by twos, fours, … until a sum stands out of its noise; what never does is left out, but for what is
    left of a column of which 0 or 1 alone is shown. Inside a bin values are spread as the finer scales say, where they
    stand out of their noise, else evenly. `most` is what the counts of one column add up to at most. A column is not
    known if less is shown of it than a third of its rows, as many as they may be by all its counts.

    Examples
    --------
    >>> counts = np.zeros((2, COUNTS), dtype=np.int64)
    >>> add_counts(np.array([[20.0, 2015], [40.0, 2016], [40.0, 2016], [63.0, 2017]]), *weights_of(9999, 2), counts)
    >>> [[round(v, 1) for v in grid[::16]] for grid in from_counts(counts, 10.0)]
    [[20.0, 22.6, 43.1, 56.0, 64.0], [2015.0, 2016.0, 2016.5, 2017.0, 2018.0]]
    """
    edges = np.array([math.ldexp(_HALF if k % _PARTS else 1.0, _LOW + k // _PARTS) for k in range(_SIDE + 1)])
    low = np.insert(np.concatenate([-edges[:0:-1], [0.0], edges[:-1]]), _FROM_ONE, 1.0)
    high = np.insert(np.concatenate([-edges[-2::-1], [0.0], edges[1:]]), _FROM_ONE, 1.0)
    columns, spread = counts.astype(np.float64), np.sqrt(np.maximum(high - low, edges[0]))
    shown = [_held(column[:BINS], deviation, spread) for column in columns]
    whole = min(most, max((float(held.sum()) for held in shown), default=0.0))
    sums = columns[:, :BINS].sum(axis=1)
    rows = min(most, float(sums.mean()) + 2 * deviation * math.sqrt(BINS / len(sums))) if len(sums) else 0.0
    grids: list[Grid] = []
    for column, held in zip(columns, shown, strict=True):
        _add_rest(held, float(column[_SIDE]), float(column[_ONE]), deviation, whole)
        own = min(rows, float(column[:BINS].sum()) + 2 * deviation * math.sqrt(BINS))
        if not held.any() or (most < math.inf and float(held.sum()) < _SHOWN * own):
            grids.append(None)
            continue
        ends, mass = _refined(held, column[BINS:].reshape(-1, 8), deviation)
        share = np.concatenate([[0.0], np.cumsum(mass)])
        p = np.column_stack([share[:-1], share[1:]]).ravel() / share[-1]
        grids.append(tuple(np.interp(np.linspace(0, 1, STEPS + 1), p, ends.ravel()).tolist()))
    return tuple(grids)


def _held(counts: NDArray[np.float64], deviation: float, spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """The counts that stand out of their noise, in the order of values; 1 counts with its octave if it does not."""
    ones, octaves = float(counts[_ONE]), counts[:_ONE].copy()
    if ones <= _CLEAR * deviation:
        joint, ones = octaves[_FROM_ONE] + ones, 0.0
        octaves[_FROM_ONE] = joint if joint > _CLEAR * deviation * math.sqrt(2) else octaves[_FROM_ONE]
    return np.insert(_denoised(octaves, deviation, np.delete(spread, _FROM_ONE)), _FROM_ONE, ones)


def _add_rest(held: NDArray[np.float64], zeros: float, ones: float, deviation: float, whole: float) -> None:
    """Add to what is held of a column of which 0 or 1 alone is shown what is left of the `whole`, if it fills a bin.

    The map must know how often such a column says something, wherever that lies: the other of 0 and 1, if its count is
    nearer to all that is left than to nothing; else, beside 0, the smallest numbers, from which on all are alike. Where
    neither is shown, but both together are, the column is taken to be these two.
    """
    left = whole - float(held.sum())
    if not held.any():
        if zeros + ones > _CLEAR * deviation * math.sqrt(2):
            held[_SIDE], held[_FROM_ONE] = max(zeros, 0.0), max(ones, 0.0)
    elif np.count_nonzero(held) == 1 and held[_SIDE] + held[_FROM_ONE] > 0 and left > max(deviation, whole * _FILLS):
        if held[_SIDE] > 0:
            held[_FROM_ONE if ones > left / 2 else _SIDE + 1] = left
        elif zeros > left / 2:
            held[_SIDE] = left


def _refined(
    held: NDArray[np.float64], fine: NDArray[np.float64], deviation: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends and the mass of cells, in the order of values: what is held of bins, spread as the finer scales say.

    A scale tells cells apart that lie less than eight of them from each other. So from scale to scale, as long as most
    of what is known of a column lies in eight cells, what is known is scaled to what its eight bins say, if that stands
    out of its noise. Bins that do not are empty, unless most of the column would be lost with them: then the scale says
    nothing.
    """
    ends, line, mass = _cells_of(held)
    heard = np.flatnonzero(line >= 0)
    heard = heard[np.argsort(line[heard], kind="stable")]
    line, known = line[heard], mass[heard]
    louder = math.sqrt((1 - _FINE) * _SCALES / _FINE)  # a bin's weight, in that of a finer scale's
    noise, total = deviation * louder, math.fsum(known.tolist())
    for scale, row in enumerate(fine * louder, start=1):
        width, run = _CELLS >> (2 * scale), np.concatenate([[0.0], np.cumsum(known)])
        inside = run[np.searchsorted(line, line + 8 * width)] - run[:-1]
        if not line.size or inside.max() < _INSIDE * total:
            break
        of = line // width % 8
        before = np.bincount(of, known, minlength=8)
        there = before > 0
        number, off = int(there.sum()), (row - before)[there]
        if math.fsum((off * off).tolist()) <= (number + _CLEAR * math.sqrt(2 * number)) * noise**2:
            continue
        sure = there & (row >= min(_SURE * noise, float(row[there].max())))
        after = np.where(sure, np.maximum(row, 0.0), 0.0)
        if math.fsum(after.tolist()) >= _INSIDE * total:
            known = known * (after / np.where(there, before, 1.0))[of]
            known *= total / math.fsum(known.tolist())
    mass[heard] = known
    return ends[mass > 0], mass[mass > 0]


def _cells_of(held: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """The finest cells of bins that hold something, in the order of values: ends, place on the line, mass even.

    The line is that of sizes, an octave after the other; −1 for zero, which is on none.
    """
    found = []
    for place in np.flatnonzero(held).tolist():
        if place in (_SIDE, _FROM_ONE):
            value, at = (0.0, -1) if place == _SIDE else (1.0, -_LOW * _CELLS)
            found.append((np.array([[value, value]]), np.array([at]), held[place : place + 1]))
            continue
        side = place - (place > _FROM_ONE) - _SIDE
        exponent, upper = divmod(abs(side) - 1, _PARTS)
        cells = np.arange(_SPLIT, _CELLS) if upper else np.arange(_SPLIT)
        ends = np.ldexp(1 + np.column_stack([cells, cells + 1]) / _CELLS, exponent + _LOW)
        line, mass = exponent * _CELLS + cells, np.full(cells.size, held[place] / cells.size)
        found.append((ends, line, mass) if side > 0 else (-ends[::-1, ::-1], line[::-1] + _OTHER, mass))
    ends, line, mass = (np.concatenate(each) for each in zip(*found, strict=True))
    return ends, line, mass


def _denoised(counts: NDArray[np.float64], deviation: float, spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """The counts of bins, then of blocks of two, four, … of the others, that noise alone would hardly ever make.

    A block's count is shared out by `spread`: between even in the logarithm and even in the value. What is next to a
    bin that is held is likely the column's tail, and fewer deviations show it.
    """
    out, size = np.zeros(counts.size), 1
    while size <= _WIDEST:
        for low in range(0, counts.size, size):
            block = low + np.flatnonzero(out[low : low + size] == 0)
            total = float(counts[block].sum())
            if block.size and total > _CLEAR * deviation * math.sqrt(block.size):
                out[block] = total * spread[block] / spread[block].sum()
        size *= 2
    for side in (slice(None, _SIDE), slice(_SIDE + 1, None)):
        for way in (slice(None), slice(None, None, -1)):
            _add_tails(out[side][way], counts[side][way], deviation)
    return out


def _add_tails(held: NDArray[np.float64], counts: NDArray[np.float64], deviation: float) -> None:
    """Add to what is held of one side of 0, in this order, what comes right after it and stands out a little."""
    for place in range(1, held.size):
        if held[place - 1] and not held[place] and counts[place] > _SURE * deviation:
            held[place] = counts[place]


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
def between(value: float) -> tuple[int, float, float]:
    """Which node is next below |value|, from 0, and what the value has of it and of the next, with its sign.

    Nothing of either for zero and for what is next to it, and for a value that is missing.
    """
    size, sign = abs(value), -1.0 if value < 0.0 else 1.0
    if not size >= 2.0**_LOW:
        return 0, 0.0, 0.0
    if size >= 2.0**_HIGH:
        return NODES - 2, 0.0, sign
    fraction, exponent = math.frexp(size)
    part = 2.0 * fraction - 1.0
    return exponent - 1 - _LOW, sign * (1.0 - part), sign * part


@jit
def add_counts(rows: NDArray[np.float64], weight: int, fine: int, counts: NDArray[np.int64]) -> None:
    """Add each row's weights in each column, to its bin and to one bin of each scale; a missing number adds nothing."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            value = rows[i, j]
            if value == value:
                place = octave(value, _PARTS)
                place = _SIDE + place if value >= 0 else _SIDE - place
                counts[j, _ONE if value == 1.0 else place] += weight
                if 2.0**_LOW <= abs(value) < 2.0**_HIGH:
                    fraction, exponent = math.frexp(abs(value))
                    for at in range(_SCALES):
                        cell = (exponent << (2 * at + 2)) + int(fraction * 2.0 ** (2 * at + 3))  # powers of two: exact
                        counts[j, BINS + 8 * at + cell % 8] += fine
