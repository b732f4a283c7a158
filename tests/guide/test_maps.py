"""Feature maps: norm at most 1 whatever is asked, by public constants alone."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.guide.columns import Columns, digest
from confide.guide.hashed import HashedMap
from confide.guide.maps import Encoded, FeatureMap
from confide.guide.partitions import DEPTH, draw_partitions
from confide.guide.ranges import (
    COUNTS,
    NODES,
    OCTAVES,
    add_counts,
    between,
    declared,
    from_counts,
    from_sample,
    octave,
    weights_of,
)

pytestmark = pytest.mark.claim("guide.md")

COLUMNS = Columns(numeric=("a", "b", "c"), categorical=("k", "l"), text=("t",))
MAP = FeatureMap(COLUMNS, declared({"a": (0, 1), "b": (-5, 1e9)}, COLUMNS.numeric), partitions=12, words=64)
NUMBERS = st.one_of(st.none(), st.floats(allow_nan=True), st.integers(-(10**400), 10**400), st.booleans())
VALUES = st.one_of(st.none(), st.text(max_size=8), st.integers(), st.floats(), st.binary(max_size=4))


def proper(encoded: Encoded, width: int) -> bool:
    """Distinct places of the map, and a norm of at most 1."""
    inside = encoded.indices.min() >= 0 and encoded.indices.max() < width
    return bool(inside and (np.diff(encoded.indices) > 0).all() and (encoded.values**2).sum() <= 1)


@settings(deadline=None, max_examples=200)
@given(NUMBERS, NUMBERS, NUMBERS, VALUES, VALUES, st.one_of(st.none(), st.text(max_size=200)))
def test_whatever_is_asked_has_norm_at_most_one(a: Any, b: Any, c: Any, k: Any, m: Any, t: Any) -> None:
    assert proper(MAP.encode({"a": a, "b": b, "c": c, "k": k, "l": m, "t": t}), MAP.width)


@settings(deadline=None, max_examples=200)
@given(NUMBERS, NUMBERS, NUMBERS, VALUES, VALUES)
def test_no_row_leaves_norm_unused(a: Any, b: Any, c: Any, k: Any, m: Any) -> None:
    """The noise is that of norm 1: numbers near the middle of their ranges must not learn more slowly than others."""
    tabular = FeatureMap(Columns(numeric=("a", "b", "c"), categorical=("k", "l")), MAP.grids, partitions=12)
    x = {"a": a, "b": b, "c": c, "k": k, "l": m}
    assert 1 - 1e-5 < (tabular.encode(x).values ** 2).sum() <= 1
    for text in (None, "", "so far so good"):
        assert 1 - 1e-5 < (MAP.encode({**x, "t": text}).values ** 2).sum() <= 1


def test_what_is_missing_takes_no_room() -> None:
    """A file's column that nobody declared is a number, a category and perhaps words: some are always missing."""
    columns = Columns(numeric=("a", "b"), categorical=("k", "l"), text=("t",))
    features = FeatureMap(columns, (None, declared({"b": (0, 1)}, ["b"])[0]), partitions=12, words=64)
    assert features.active == 1 + 3 + 2 + 2 + 12
    said = features.encode({"b": 0.3, "t": "so far so good"}).values ** 2
    assert not said[[1, 2, 4, 6, 7]].any(), "the number a, the categories k and l"
    assert said[features.active :].sum() > 0.8, "one number beside a text"
    alone = features.encode({"t": "so far so good"}).values ** 2
    assert alone[features.active :].sum() > 0.8
    only = features.encode({"k": "x"})
    parts = only.values[8 : features.active]
    cut = [2 in row for row in features.parts[1].tolist()]
    assert [bool(value) for value in parts] == cut, "partitions that do not cut k have nothing to tell rows apart by"


@pytest.mark.parametrize(
    "kinds", [{"numeric": ["a"]}, {"categorical": ["k"]}, {"text": ["t"]}, {"numeric": ["a", "b"], "text": ["t"]}]
)
def test_every_mixture_of_kinds_has_a_map(kinds: dict[str, list[str]]) -> None:
    features = FeatureMap(Columns(**kinds))
    encoded = features.encode({"a": 3.0, "k": "x", "t": "so far so good"})
    assert proper(encoded, features.width)
    assert (encoded.values**2).sum() > 0.3


def test_names_not_declared_and_missing_ones_do_no_harm() -> None:
    assert np.array_equal(MAP.encode({"zzz": object()}).indices, MAP.encode({}).indices)


@pytest.mark.parametrize("x", [{"a": "one"}, {"k": []}, {"t": 5}, "text", 7, [1.0], np.zeros((2, 2)), {"a": 1j}])
def test_malformed_rows_are_refused_without_their_values(x: object) -> None:
    with pytest.raises(ValueError, match=r"must be|number of features|as declared"):
        MAP.encode(x)


def test_arrays_are_read_by_position() -> None:
    columns = Columns.of_array(2)
    features = FeatureMap(columns, from_sample(np.random.default_rng(1).normal(size=(100, 2))))
    assert np.array_equal(features.encode(np.array([0.5, -1])).indices, features.encode({"0": 0.5, "1": -1}).indices)


def test_a_map_is_made_again_from_json() -> None:
    again = FeatureMap.from_params(json.loads(json.dumps(MAP.params())))
    x = {"a": 0.3, "b": 7, "c": -2, "k": "u", "l": 4, "t": "words"}
    assert again == MAP
    assert np.array_equal(again.encode(x).indices, MAP.encode(x).indices)
    assert np.array_equal(again.encode(x).values, MAP.encode(x).values)


def test_each_category_has_places_of_its_own() -> None:
    features = FeatureMap(Columns(categorical=("k", "l")), partitions=0)
    same = features.encode({"k": "x", "l": "x"}).indices
    assert same[1] < 1 + 256 <= same[2]
    assert digest("k=x") != digest("l=x")


def test_partitions_are_public_balanced_and_use_known_columns_only() -> None:
    grids = declared({f"{i}": (0, 1) for i in range(5) if i != 2}, [str(i) for i in range(5)])
    parts = draw_partitions(grids, 1, 60, seed=3)
    again = draw_partitions(grids, 1, 60, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert parts.column.shape == (60, DEPTH)
    assert set(parts.column.ravel().tolist()) == {0, 1, 3, 4, 5}
    pairs = {tuple(sorted(set(row))) for row in parts.column[::3].tolist()}
    assert len(pairs) == 10  # all pairs of five columns among twenty partitions of pairs
    assert not np.array_equal(parts.cut, draw_partitions(grids, 1, 60, seed=4).cut)
    assert draw_partitions((None,), 0, 60, seed=3).column.shape[0] == 0


# Names that were not declared


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.text(max_size=6), st.one_of(NUMBERS, VALUES, st.just("so far so good so")), max_size=12))
def test_whatever_names_come_the_norm_is_at_most_one(x: dict[str, Any]) -> None:
    features = HashedMap(64)
    encoded = features.encode(x)
    assert proper(encoded, 64)
    again = features.encode(dict(reversed(x.items())))
    assert np.array_equal(encoded.indices, again.indices)
    assert np.array_equal(encoded.values, again.values)


def test_pairs_tell_apart_what_single_values_do_not() -> None:
    features = HashedMap(1 << 16)
    rows = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)]
    encoded = [set(features.encode(x).indices.tolist()) for x in rows]
    assert all(encoded[i] - set().union(*(e for j, e in enumerate(encoded) if j != i)) for i in range(4))
    assert len(HashedMap(1 << 16, pairs=5).encode({str(i): i for i in range(20)}).indices) == 1 + 20 + 5


@pytest.mark.parametrize("x", [{"a": []}, {"a": {}}, 7, "text", {"a": 1j}])
def test_values_of_no_kind_are_refused(x: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        HashedMap(64).encode(x)


# Ranges


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_octaves_agree_with_logarithms(value: float) -> None:
    place = octave(value, 4)
    if 2.0**-24 <= abs(value) < 2.0**64:
        low, high = (-24 + (place - 1) / 4), (-24 + place / 4)
        assert low - 1e-9 <= math.log2(abs(value)) <= high + 1e-9
    else:
        assert place == (0 if abs(value) < 1 else 4 * OCTAVES)


@settings(deadline=None)
@given(st.floats())
def test_a_number_whose_place_is_unknown_lies_on_a_line_between_powers_of_two(value: float) -> None:
    node, here, there = between(value)
    assert 0 <= node < NODES - 1
    if 2.0**-24 <= abs(value) < 2.0**64:
        low = 2.0 ** (node - 24)
        assert here * low + there * 2 * low == pytest.approx(value, rel=1e-12)
        assert abs(here) + abs(there) == pytest.approx(1.0) and here * there >= 0.0
    else:
        assert (here, there) == ((0.0, math.copysign(1.0, value)) if abs(value) > 1 else (0.0, 0.0))


def test_rows_of_numbers_that_nobody_knows_are_alike_where_they_are_near() -> None:
    """With bins alone 40 and 49 would have nothing in common."""
    features = FeatureMap(Columns(numeric=("a",)))
    rows = np.zeros((5, features.width))
    for row, value in zip(rows, (40.0, 49.0, 63.0, -40.0, 0.0), strict=True):
        encoded = features.encode({"a": value})
        row[encoded.indices] = encoded.values
    rows = rows[:, 1:]
    near, far, opposite, nothing = rows[0] @ rows[1:].T
    assert near > 1.1 * far > 0.0 > opposite and nothing == 0.0
    assert 0.5 < features.unplaced < 1.0 == 1.0 - FeatureMap(Columns(numeric=("a",)), from_sample(rows[:, :1])).unplaced


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(), min_size=1, max_size=50), st.lists(st.floats(), min_size=1, max_size=50))
def test_one_row_moves_the_counts_by_at_most_root_two_times_the_norm(first: list[float], second: list[float]) -> None:
    d = min(len(first), len(second))
    norm = 1 << 16
    counts = []
    for row in (first, second):
        table = np.zeros((d, COUNTS), dtype=np.int64)
        add_counts(np.array([row[:d]]), *weights_of(norm, d), table)
        assert int((table.astype(object) ** 2).sum()) <= norm**2
        counts.append(table.astype(object))
    assert ((counts[0] - counts[1]) ** 2).sum() <= 2 * norm**2


def test_grids_from_counts_lie_where_the_values_are() -> None:
    rng = np.random.default_rng(1)
    n = 5000
    rows = np.column_stack([rng.uniform(20, 80, n), -rng.exponential(1000, n), np.zeros(n), rng.uniform(0, 1, n)])
    counts = np.zeros((4, COUNTS), dtype=np.int64)
    add_counts(rows, 100, 15, counts)
    noisy = counts + np.rint(rng.normal(0, 2000, counts.shape)).astype(np.int64)
    age, owed, zero, share = from_counts(noisy, 2000.0)
    assert age is not None and age[0] >= 16 and age[-1] <= 128 and abs(age[32] - 50) < 8
    assert owed is not None and abs(owed[32] + 693) < 150
    assert zero is not None and max(map(abs, zero)) < 1e-6
    assert share is not None and abs(share[32] - 0.5) < 0.1


def test_counts_of_noise_alone_say_nothing() -> None:
    noise = np.rint(np.random.default_rng(2).normal(0, 1000, (3, COUNTS)) * 0.9).astype(np.int64)
    assert from_counts(np.minimum(noise, 2999), 1000.0) == (None, None, None)


def found(column: Any, deviation: float) -> Any:
    """The grid of one of ten columns, by counts with noise."""
    counts = np.zeros((1, COUNTS), dtype=np.int64)
    add_counts(np.asarray(column, dtype=np.float64)[:, None], *weights_of(1 << 16, 10), counts)
    noise = np.rint(np.random.default_rng(2).normal(0, deviation, counts.shape)).astype(np.int64)
    return from_counts(counts + noise, deviation)[0]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("low", "high", "widest"),
    [
        (2015, 2017, 20),
        (990, 1010, 140),
        (16_850, 16_950, 600),
        (1.6e12, 1.601e12, 2e10),
        (0.05, 0.0501, 0.001),
        (7, 7, 0.1),
    ],
)
def test_a_narrow_band_far_from_zero_is_found(low: float, high: float, widest: float, sign: int) -> None:
    """Half octaves alone would put all of it into one bin."""
    values = sign * np.random.default_rng(1).uniform(low, high, 5000)
    grid = found(values, 5e5)
    assert grid is not None
    near = 0.005 * (high - low)  # cells have ends of their own
    assert grid[0] <= np.quantile(values, 0.1) + near and np.quantile(values, 0.9) - near <= grid[-1]
    assert grid[-1] - grid[0] <= widest


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("middle", "spread"), [(61.8, 1.4), (57.5, 2.2), (98.2, 0.7), (1016, 7), (0.998, 0.003)])
def test_a_band_is_found_wherever_an_octave_ends(middle: float, spread: float, sign: int) -> None:
    """Depths of diamonds around 64, temperatures, pressures around 1024: most columns are not of one octave alone."""
    values = sign * np.random.default_rng(1).normal(middle, spread, 5000)
    grid = found(values, 5e5)
    off = np.abs(np.array(grid) - np.quantile(values, np.linspace(0, 1, 65)))[3:-3]
    assert off.mean() < 0.35 * spread and off.max() < spread


@pytest.mark.parametrize("deviation", [1e5, 2e6, 8e6])
def test_columns_that_are_wide_are_not_taken_for_narrow_ones(deviation: float) -> None:
    rng = np.random.default_rng(1)
    wide = [rng.uniform(16, 32, 5000), rng.uniform(0, 1, 5000), rng.normal(0, 1, 5000), rng.lognormal(3, 1, 5000)]
    for column in wide:
        grid = found(column, deviation)
        assert grid is None or grid[-1] - grid[0] > 0.25 * max(map(abs, grid))


def test_most_rows_at_one_place_are_not_all() -> None:
    rng = np.random.default_rng(1)
    grid = found(np.where(rng.random(5000) < 0.6, 20.0, rng.uniform(16, 32, 5000)), 1e5)
    assert grid is not None and grid[0] == 16 and grid[-1] == pytest.approx(32)


@pytest.mark.parametrize("ends", [(1, 0), (0, math.inf), (0, 0), (math.nan, 1)])
def test_impossible_ranges_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="range"):
        declared({"a": ends}, ["a"])


@pytest.mark.parametrize(("share", "missing"), [(1.0, 0.0), (0.25, 0.0), (1.0, 0.8)])
def test_a_column_is_known_by_the_rows_that_were_counted_of_it(share: float, missing: float) -> None:
    """Of people one row is counted, and numbers may be missing: a third of all rounds would be too much to ask for."""
    rng, rounds = np.random.default_rng(1), 20_000
    rows = rng.normal(50, 15, (int(share * rounds), 4))
    rows[rng.random(len(rows)) < missing, 0] = np.nan
    weights, counts = weights_of(1 << 16, 4), np.zeros((4, COUNTS), dtype=np.int64)
    add_counts(rows, *weights, counts)
    noise = 25.0 * weights[0]
    grids = from_counts(counts + rng.normal(0, noise, counts.shape).astype(np.int64), noise, rounds * weights[0])
    assert all(grid is not None and 0 < grid[0] < 50 < grid[-1] < 130 for grid in grids)


def test_a_column_of_which_little_is_shown_is_not_known() -> None:
    counts = np.zeros((1, COUNTS), dtype=np.int64)
    counts[0, 200], counts[0, 210:235] = 100, 15  # most of it lies below the noise
    assert from_counts(counts, 20.0)[0] is not None, "where nobody knows how many rows there were"
    assert from_counts(counts, 20.0, 2000.0) == (None,)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_a_map_reads_its_own_tables(again: Callable[[FeatureMap], FeatureMap]) -> None:
    """A row is encoded by addresses, and a copy has its own: it is good whatever becomes of its original."""
    columns = Columns(numeric=("a", "b"), categorical=("city",))
    features = FeatureMap(columns, declared({"a": (0.0, 9.0)}, columns.numeric), partitions=7)
    row, other = {"a": 4.0, "b": -3.0, "city": "Rome"}, again(features)
    wanted = features.encode(row)
    features._held.arrays["shares"][:] = 0.0
    found = other.encode(row)
    assert np.array_equal(found.indices, wanted.indices) and found.values.tobytes() == wanted.values.tobytes()
    assert features.encode(row).values.tobytes() != wanted.values.tobytes()
