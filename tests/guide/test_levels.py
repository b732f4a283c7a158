"""What a grid says about a column: its usual level says nothing, and cuts lie beside atoms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.guide.columns import Columns
from confide.guide.levels import STEPS, below, bin_cuts, centre_and_inverse, cut_at, reference
from confide.guide.maps import FeatureMap
from confide.guide.partitions import DEPTH, draw_partitions, find_parts, usual_parts
from confide.guide.ranges import COUNTS, add_counts, from_counts, from_sample, weights_of

pytestmark = pytest.mark.claim("guide.md")

MOSTLY_0 = (0.0,) * 60 + (1.0,) * 5
RNG = np.random.default_rng(3)


def sparse_rows(n: int, width: int) -> NDArray[np.float64]:
    """Columns of 0 and 1, 1 in 4 % of the rows."""
    return (RNG.random((n, width)) < 0.04).astype(np.float64)


def test_zeros_and_ones_are_found_as_atoms() -> None:
    rows = (np.random.default_rng(1).random((4000, 2)) < [0.2, 0.9]).astype(np.float64)
    counts = np.zeros((2, COUNTS), dtype=np.int64)
    add_counts(rows, *weights_of(1 << 16, 2), counts)
    noisy = counts + np.rint(np.random.default_rng(2).normal(0, 1e5, counts.shape)).astype(np.int64)
    for grid, share in zip(from_counts(noisy, 1e5), (0.2, 0.9), strict=True):
        assert grid is not None and set(grid) == {0.0, 1.0}
        assert abs(1 - below(grid, 0.5) - share) < 0.05


def test_what_is_left_of_a_column_of_zeros_or_ones_is_known_too() -> None:
    """Of 100 rows 15 count 3 deviations: too few to be shown, and yet the map must know that they are there."""
    rare, scattered = [1.0] * 15 + [0.0] * 85, [*2.0 ** np.arange(-20, 25, 3)] + [0.0] * 85
    often, missing = [0.0] * 15 + [1.0] * 85, [0.0] * 15 + [1.0] * 17 + [math.nan] * 68
    rows = np.array([[0.0] * 100, rare, scattered, often, missing, [math.nan] * 100]).T.copy()
    counts = np.zeros((6, COUNTS), dtype=np.int64)
    add_counts(rows, 200, 0, counts)
    never, rarely, anywhere, mostly, either, unknown = from_counts(counts, 1000.0)
    assert never is not None and set(never) == {0.0} and unknown is None
    assert rarely is not None and set(rarely) == {0.0, 1.0} and below(rarely, 0.5) == pytest.approx(0.85, abs=0.02)
    assert mostly is not None and set(mostly) == {0.0, 1.0} and below(mostly, 0.5) == pytest.approx(0.15, abs=0.02)
    assert either is not None and set(either) == {0.0, 1.0} and below(either, 0.5) == pytest.approx(15 / 32, abs=0.02)
    assert anywhere is not None and np.mean(np.array(anywhere) == 0.0) == pytest.approx(0.85, abs=0.02)
    centre, inverse = centre_and_inverse(anywhere)
    assert centre == 0.0 and 2.0**-20 * inverse > 1.0, "whatever is not 0 is written alike"
    fewer = from_counts(counts, 1000.0, most=17_500.0)[1:3]
    assert all(grid is not None and set(grid) == {0.0} for grid in fewer), "of so few rows nothing is left"


def test_the_tails_of_a_column_are_held_by_fewer_deviations_than_its_body() -> None:
    """Half octaves from 32,768 on stand out; the ones before it count 3 and 1, and by itself neither would be seen."""
    rows = np.repeat([40_000.0, 50_000.0, 30_000.0, 20_000.0, -30_000.0, 2.0**-24], [40, 50, 30, 10, 30, 30])
    counts = np.zeros((1, COUNTS), dtype=np.int64)
    add_counts(rows[:, None], 100, 0, counts)
    (grid,) = from_counts(counts, 1000.0)
    assert grid is not None and grid[0] == pytest.approx(2**14.5, rel=1e-3), "and nothing next to 0, which is an atom"
    assert below(grid, 2.0**15) == pytest.approx(30 / 120, abs=0.02)


def test_cuts_lie_beside_an_atom_and_never_inside() -> None:
    cuts = bin_cuts(MOSTLY_0)
    zero, one = (int(np.searchsorted(cuts, v, side="right")) for v in (0.0, 1.0))
    assert cuts[zero - 1] == 0.0 and cuts[zero] == math.nextafter(0.0, 1.0)
    assert reference(MOSTLY_0, cuts) == zero != one
    for part in np.linspace(0, 0.999, 40).tolist():
        assert 0.0 < cut_at(MOSTLY_0, part) <= 1.0  # a cut at 0 would tell nobody apart


def test_the_usual_level_of_a_column_has_the_value_0() -> None:
    features = FeatureMap(Columns.of_array(3), (MOSTLY_0,) * 3, partitions=0)
    usual, other = features.encode([0.0, 0.0, 0.0]), features.encode([0.0, 1.0, 0.0])
    rest = 1 + features.lined  # after the constant and the line
    assert not usual.values[rest:].any() and usual.values[0] > 0
    assert (usual.values[1:rest] ** 2).sum() < 1e-6, "the line never takes what a row leaves unused"
    assert np.count_nonzero(other.values[rest:]) == 2  # a number and its bin


@pytest.mark.parametrize("grid", [MOSTLY_0, tuple(np.linspace(0, 1, STEPS + 1).tolist())])
def test_the_likeliest_part_is_the_one_most_rows_fall_into(grid: Any) -> None:
    grids = (grid,) * 8
    parts = draw_partitions(grids, 0, 48, seed=1)
    usual, rng = usual_parts(parts, grids), np.random.default_rng(4)
    found = np.zeros((4000, 48), dtype=np.int64)
    for row in found:
        numbers = np.array([np.interp(u, np.linspace(0, 1, STEPS + 1), grid) for u in rng.random(8)])
        find_parts(np.rint(numbers) if grid is MOSTLY_0 else numbers, np.zeros(0, dtype=np.uint64), *parts, row)
    for i in range(48):
        shares = np.bincount(found[:, i], minlength=1 << DEPTH) / 4000
        assert usual[i] == (int(shares.argmax()) if shares.max() > 0.27 else -1) or abs(shares.max() - 0.25) < 0.05


def test_sparse_rows_of_many_columns_are_rows_of_few_features() -> None:
    rows = sparse_rows(2000, 200)
    features = FeatureMap(Columns.of_array(200), from_sample(rows[:1000]))
    squares = np.zeros(features.width)
    for row in rows[1000:1200]:
        encoded = features.encode(row)
        squares[encoded.indices] += encoded.values**2 / 200
    first, _ = features.parts
    assert squares[1:201].sum() > 0.3  # what the columns say as numbers
    assert squares[first:].sum() < 0.3  # partitions of columns that hardly vary
