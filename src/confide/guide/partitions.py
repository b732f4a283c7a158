"""Random partitions: each cuts a few columns at public places, and a row falls into one of its 2⁶ parts.

Many of them together are a kernel that knows which rows are alike in which columns. A partition depends on public seeds
and grids only, and adds one active feature, so the noise of a score does not grow with their number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.guide.columns import digest
from confide.guide.levels import USUAL, Grid, below, cut_at
from confide.kernels.compile import jit

DEPTH = 6
_SETS = (2, 3, 6)  # columns of a partition: cut three times, twice, or once each
_MANY = 4096  # sets of columns beyond which they are drawn one by one, not dealt
_STRONG, _WEAK = 3.5, 1.0  # deviations by which a partition's weights stand out of their noise, or do not
_SINGLED, _TWICE = 4.0, 2.0  # a column's partitions stand out more than all others, by so many deviations, and so often
_MODELS, _EACH = 2, 8  # partitions that must stand out, and how many are modelled on each at a time, at most
_IDLE, _LEAST = 0.4, 0.02  # before the first are renewed, half must stand for no more: deviations; of what models do
_LITTLE = 0.1  # … of what the models stand out: where there is little noise, everything stands out of it
_CHANGED = 1 / 3  # of the renewed: a column more or less than their model


class Partitions(NamedTuple):
    """One row a partition, one entry a cut: on column `column` at `cut`, or by a bit of a category's digest."""

    column: NDArray[np.int64]
    cut: NDArray[np.float64]
    salt: NDArray[np.uint64]


class Renewal(NamedTuple):
    """Partition `number` drawn anew, of these columns, for the `deal`-th time."""

    number: int
    columns: tuple[int, ...]
    deal: int


def draw_partitions(
    grids: Sequence[Grid], categories: int, number: int, seed: int, renewed: Sequence[Renewal] = ()
) -> Partitions:
    """`number` partitions of numeric columns that have a grid, and of categorical ones, which are numbered after them.

    Every value is a fixed hash of the public seed and its place, so that anyone can draw them again.
    """
    usable = _usable(grids, categories)
    number = number if usable else 0
    column = np.zeros((number, DEPTH), dtype=np.int64)
    cut, salt = np.zeros((number, DEPTH)), np.zeros((number, DEPTH), dtype=np.uint64)
    parts = Partitions(column, cut, salt)
    last = {one.number: one for one in renewed}
    if not all(0 <= i < number and columns and set(columns) <= set(usable) for i, columns, _ in renewed):
        raise ValueError("a renewed partition must be one of the map's, of columns whose place is known")
    for i in range(number):
        if i in last:
            _draw(parts, i, last[i].columns, grids, f"{seed} {i} {last[i].deal}")
        else:
            _draw(parts, i, _columns(usable, _SETS[i % len(_SETS)], i, seed), grids, f"{seed} {i}")
    return parts


def _usable(grids: Sequence[Grid], categories: int) -> list[int]:
    """The columns that a partition may cut."""
    known = [j for j, grid in enumerate(grids) if grid is not None and grid[0] < grid[-1]]
    return [*known, *range(len(grids), len(grids) + categories)]


def again(grids: Sequence[Grid], categories: int, number: int, seed: int, deal: int) -> tuple[Renewal, ...]:
    """All partitions drawn anew, of the columns that they had in the beginning."""
    usable = _usable(grids, categories)
    return tuple(
        Renewal(i, tuple(_columns(usable, _SETS[i % len(_SETS)], i, seed)), deal)
        for i in range(number if usable else 0)
    )


def _draw(parts: Partitions, i: int, chosen: Sequence[int], grids: Sequence[Grid], key: str) -> None:
    """Fill row i: the chosen columns in turn, each one's cuts spread over its grid."""
    places = [chosen[level % len(chosen)] for level in range(DEPTH)]
    often, met = Counter(places), Counter[int]()
    for level, j in enumerate(places):
        part = (met[j] + _unit(f"cut {key} {level}")) / often[j]
        met[j] += 1
        parts.column[i, level] = j
        parts.salt[i, level] = digest(f"salt {key} {level}") | 1
        grid = grids[j] if j < len(grids) else None
        if grid is not None:
            parts.cut[i, level] = cut_at(grid, part)


def usual_parts(parts: Partitions, grids: Sequence[Grid]) -> NDArray[np.int64]:
    """The part of each partition that has more than a quarter of the rows, columns taken as independent; −1 for none.

    Of a category nothing is known: each of its bits halves.
    """
    out = np.full(parts.column.shape[0], -1)
    for i, (columns, cuts) in enumerate(zip(parts.column.tolist(), parts.cut.tolist(), strict=True)):
        share, likely = 1.0, 0
        for j in sorted(set(columns)):
            levels = [level for level in range(DEPTH) if columns[level] == j]
            grid = grids[j] if j < len(grids) else None
            if grid is None:
                share /= 1 << len(levels)
                continue
            ends = sorted({cuts[level] for level in levels})
            mass = np.diff([0.0, *(below(grid, end) for end in ends), 1.0])
            best = int(mass.argmax())
            share *= float(mass[best])
            likely += sum(1 << (DEPTH - 1 - level) for level in levels if ends.index(cuts[level]) < best)
        if share > USUAL:
            out[i] = likely
    return out


def renewals(
    column: NDArray[np.int64],
    standing: NDArray[np.float64],
    young: NDArray[np.bool_],
    deal: int,
    seed: int,
    begun: bool = False,
) -> tuple[Renewal, ...]:
    """Which partitions are drawn anew, given by how many deviations each stands out of its noise: released, so public.

    Where two or more stand out, and of their columns one is singled out, those that do not, or far less, are modelled
    on them: the same columns cut elsewhere, or a column more or less. At most half; a few for each model, as one of
    them may stand out by chance; none that is young. Where none stand out, nothing is known yet; where no column is
    singled out, all matter alike; where most stand for a little before any was renewed (`begun`), many columns matter,
    and few models would forget them: no change.
    """
    order, singled = np.argsort(-standing, kind="stable").tolist(), _singled_out(column, standing)
    clear = np.isin(column, singled).any(axis=1) & (standing > _STRONG)
    models = [i for i in order[: len(order) // 4] if clear[i]]
    if len(models) < _MODELS:
        return ()
    if not begun and np.median(standing) > max(_IDLE, _LEAST * float(np.median(standing[models]))):
        return ()
    weak = max(_WEAK, _LITTLE * float(np.median(standing[models])))
    pool = [j for i in models for j in sorted(set(column[i].tolist()))]
    out = []
    most = min(len(order) // 2, _EACH * len(models))
    for turn, i in enumerate([i for i in reversed(order) if standing[i] < weak and not young[i]][:most]):
        key, chosen = f"{seed} {i} {deal}", sorted(set(column[models[turn % len(models)]].tolist()))
        lot = _unit(f"change {key}")
        if lot < _CHANGED / 2 and len(chosen) > 1:
            del chosen[int(_unit(f"less {key}") * len(chosen))]
        elif lot < _CHANGED:
            chosen = sorted({*chosen, pool[int(_unit(f"more {key}") * len(pool))]})[:DEPTH]
        out.append(Renewal(i, tuple(chosen), deal))
    return tuple(out)


def _singled_out(column: NDArray[np.int64], standing: NDArray[np.float64]) -> list[int]:
    """The columns whose partitions stand out more than all others: a deviation of noise alone is 1 for each.

    The means of many tell earlier than the largest, and a map whose columns matter alike has none.
    """
    out = []
    for j in np.unique(column).tolist():
        has = (column == j).any(axis=1)
        of, others = int(has.sum()), int((~has).sum())
        if others:
            mean, rest = float(standing[has].mean()), float(standing[~has].mean())
            if mean - rest > _SINGLED * math.sqrt(1 / of + 1 / others) and mean > _TWICE * rest:
                out.append(j)
    return out


def _columns(usable: Sequence[int], size: int, i: int, seed: int) -> Sequence[int]:
    """The columns of partition i: all sets of this size in turn while they are few, so that none is missed."""
    size = min(size, len(usable))
    turn = i // len(_SETS)
    if math.comb(len(usable), size) > _MANY:
        return sorted(usable, key=lambda j: digest(f"set {seed} {i} {j}"))[:size]
    deal, at = divmod(turn, math.comb(len(usable), size))
    return _dealt(tuple(usable), size, deal, seed)[at]


@lru_cache(maxsize=16)
def _dealt(usable: tuple[int, ...], size: int, deal: int, seed: int) -> list[tuple[int, ...]]:
    """All sets of this size, in the order of one deal."""
    return sorted(combinations(usable, size), key=lambda s: digest(f"deal {seed} {deal} {s}"))


def _unit(key: str) -> float:
    return digest(key) / 2.0**64


@jit
def _add_squares(values: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            out[i] += values[i, j] * values[i, j]


def mean_squares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row, always added up in the same order: θ follows from them."""
    out = np.zeros(values.shape[0])
    _add_squares(values, out)
    return np.asarray(out / values.shape[1])


@jit
def find_parts(
    numbers: NDArray[np.float64],
    codes: NDArray[np.uint64],
    column: NDArray[np.int64],
    cut: NDArray[np.float64],
    salt: NDArray[np.uint64],
    parts: NDArray[np.int64],
) -> None:
    """Which part of each partition a row falls into; a missing number lies below every cut.

    No slices, no calls and no branches by value: each costs more than the comparison itself.
    """
    d = numbers.size
    for i in range(column.shape[0]):
        part = np.int64(0)
        for level in range(column.shape[1]):
            j = column[i, level]
            if j < d:
                above = np.int64(numbers[j] >= cut[i, level])
            else:
                mixed = (codes[j - d] ^ salt[i, level]) * np.uint64(0x9E3779B97F4A7C15)
                above = np.int64((mixed >> np.uint64(40)) & np.uint64(1))
            part = 2 * part + above
        parts[i] = part
