"""Bounds are never below exact arithmetic, and hardly above it."""

from __future__ import annotations

import math
import sys
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from confide.privacy.cost import (
    ONE,
    cost_from_excess,
    float_up,
    log_up,
    moment_excess,
    power_moments,
    triples,
    worst_excess,
)

pytestmark = pytest.mark.claim("gate.md", "polls.md")

LAST = ONE - 1
FULL = Fraction(1)
CALM = settings(derandomize=True, deadline=None)


class Exact(NamedTuple):
    """The terms of (*) in rational arithmetic; None stands for infinity."""

    unsure: Fraction
    sure: Fraction | None
    excess: Fraction | None
    condition: Fraction
    """How many times larger than their sums the terms are that cancel: what outward rounding is multiplied by."""


def exact(p: int, q: int, order: int, mixed: int = 0, fraction: Fraction = FULL) -> Exact:
    """Both terms of (*) for one ordered pair of entries, from the definition."""
    p_s, q_s = ((1 - fraction) * mixed + fraction * p) / ONE, ((1 - fraction) * mixed + fraction * q) / ONE
    p_u, q_u = 1 - p_s, 1 - q_s
    unsure = p_u**order / q_u ** (order - 1)
    if p == q:
        return Exact(unsure, p_s, Fraction(0), Fraction(1))
    if q_s == 0:
        return Exact(unsure, None, None, Fraction(1))
    sure = p_s**order / q_s ** (order - 1)
    if sure >= 1:
        return Exact(unsure, sure, None, Fraction(1))
    gain_u, gain_s = unsure - p_u, sure - p_s
    in_gain = (abs(gain_u) + abs(gain_s)) / (gain_u + gain_s)
    in_room = (p_u + abs(gain_s)) / (1 - sure)
    return Exact(unsure, sure, unsure / (1 - sure) - 1, in_gain * in_room)


def words(*values: int) -> NDArray[np.uint64]:
    return np.array(values, dtype=np.uint64)


EXTREMES = st.sampled_from(
    [0, 1, 2, 2**32, 2**53 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, LAST - 1, LAST]
)
ENTRIES = st.one_of(
    EXTREMES,
    st.integers(0, LAST),
    st.integers(0, 63).flatmap(lambda bits: st.integers(2**bits >> 1, 2**bits)),
    st.integers(0, 63).flatmap(lambda bits: st.integers(LAST - 2**bits, LAST)),
)
FRACTIONS = st.one_of(
    st.just(FULL),
    st.sampled_from([Fraction(1, 2), Fraction(201, 3200), Fraction(10**9 - 1, 10**9), Fraction(1, 10**9)]),
    st.integers(2, 5000).flatmap(lambda k: st.integers(1, k - 1).map(lambda m: Fraction(m, k))),
    st.floats(1e-6, 1, exclude_max=True).map(Fraction),
)


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[int, int]:
    """Two entries: anything at all, or as near to each other as neighbours in a table are."""
    p = draw(ENTRIES)
    kind = draw(st.sampled_from(["any", "steps", "ratio of sure", "ratio of unsure"]))
    if kind == "any":
        return p, draw(ENTRIES)
    if kind == "steps":
        q = p + draw(st.integers(-3, 3))
    else:
        percent = draw(st.integers(-300, 300))
        q = p + p * percent // 1000 if kind == "ratio of sure" else p + (ONE - p) * percent // 1000
    return p, min(max(q, 0), LAST)


@given(neighbours(), st.integers(2, 60), ENTRIES, FRACTIONS)
@example((0, 0), 60, 0, FULL)
@example((LAST, LAST), 60, LAST, FULL)
@example((1, 0), 2, 0, FULL)
@example((0, 1), 2, 0, Fraction(1, 2))
@example((2**63, 2**63 + 1), 60, 2**63, FULL)
@example((LAST, LAST - 1), 60, LAST, Fraction(1, 2))
@example((LAST - 1, LAST), 2, LAST, FULL)
@settings(CALM, max_examples=600)
def test_bounds_are_never_below_exact_arithmetic(
    pair: tuple[int, int], order: int, mixed: int, fraction: Fraction
) -> None:
    p, q = pair
    truth = exact(p, q, order, mixed, fraction)
    bound = power_moments(words(p), words(q), order, words(mixed), fraction)
    unsure, room, excess = (float(each[0]) for each in (bound.unsure, bound.room, bound.excess))
    assert not np.isnan([unsure, room, excess]).any()
    assert unsure == np.inf or Fraction(unsure) >= truth.unsure
    if truth.sure is None:
        assert room == -np.inf
    else:
        assert room == -np.inf or Fraction(room) <= 1 - truth.sure
    if truth.excess is None:
        assert excess == np.inf
    else:
        assert excess == np.inf or Fraction(excess) >= max(truth.excess, Fraction(0))
    assert moment_excess(words(p), words(q), order, words(mixed), fraction)[0] == excess


@given(neighbours(), st.integers(2, 60), ENTRIES, FRACTIONS)
@example((2**63 - 1, 1), 18, 0, FULL)
@settings(CALM, max_examples=200)
def test_the_upper_bound_of_room_is_one(
    pair: tuple[int, int], order: int, mixed: int, fraction: Fraction
) -> None:
    p, q = pair
    truth = exact(p, q, order, mixed, fraction)
    high = float(power_moments(words(p), words(q), order, words(mixed), fraction).room_high[0])
    assert not np.isnan(high)
    assert high == np.inf or truth.sure is None or Fraction(high) >= 1 - truth.sure


@pytest.mark.parametrize("fraction", [FULL, Fraction(201, 3200)])
@pytest.mark.parametrize("order", [2, 7, 19, 60])
def test_bounds_are_tight_away_from_degenerate_cases(order: int, fraction: Fraction) -> None:
    """Where no terms cancel by more than a factor of 1000, at most 10⁻⁹ of the excess is given away."""
    draw = np.random.default_rng(order)
    logit = draw.uniform(-20, 20, size=200)
    step = (
        draw.choice([-1, 1], size=200) * 10 ** draw.uniform(-2.5, 0.3, size=200) / (order * float(fraction))
    )
    entries = [[int(ONE / (1 + np.exp(-value))) for value in values] for values in (logit, logit + step)]
    p, q = words(*entries[0]), words(*entries[1])
    bound = moment_excess(p, q, order, q, fraction)
    checked = 0
    for first, second, value in zip(*entries, bound, strict=True):
        truth = exact(first, second, order, second, fraction)
        if truth.excess is not None and truth.condition < 1000:
            assert Fraction(float(value)) - truth.excess <= truth.excess * Fraction(1, 10**9)
            checked += 1
    assert checked >= 60


def test_equal_entries_cost_nothing_and_impossible_ones_everything() -> None:
    entries = words(0, 1, 2**63, LAST)
    assert not moment_excess(entries, entries, 12).any()
    assert np.isinf(moment_excess(words(1, 2**63, LAST), words(0, 0, 0), 2)).all()


def test_mixtures_need_the_third_entry() -> None:
    with pytest.raises(ValueError, match="third vote count"):
        power_moments(words(5), words(7), 2, None, Fraction(1, 2))


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize("states", [1, 2, 3, 4, 9])
def test_every_pair_and_triple_of_near_states_is_looked_at(states: int, polled: bool) -> None:
    """The slices that `worst_excess` cuts, read back as states, are all triples with pairwise distances ≤ step."""
    step = 2
    table = words(*range(states))
    seen = set()
    for i, j, m in triples(table, step, polled):
        for at in range(max(states - step, 1)):
            seen.add((at + i, at + j, at + m if polled else 0))
    near = range(states)
    wanted = {
        (p, q, m if polled else 0)
        for p in near
        for q in near
        for m in (near if polled else range(1))
        if p != q and abs(p - q) <= step and (not polled or max(abs(p - m), abs(q - m)) <= step)
    }
    assert seen == wanted


def test_worst_excess_names_the_place_and_takes_batches() -> None:
    draw = np.random.default_rng(5)
    unsure = 1 / (1 + np.exp(np.cumsum(draw.uniform(-0.02, 0.05, size=(7, 3, 9)), axis=-1)))
    sure = ((1 - unsure) * 2.0**64).astype(np.uint64)
    for fraction in (FULL, Fraction(1, 3)):
        worst, place = worst_excess(sure, 5, 2, fraction)
        assert worst.shape == (7, 3) and place.shape == (7, 3, 3)
        for batch in np.ndindex(7, 3):
            p, q, m = (words(sure[batch][state]) for state in place[batch])
            assert moment_excess(p, q, 5, m, fraction)[0] == worst[batch]
            alone, where = worst_excess(sure[batch], 5, 2, fraction)
            assert alone == worst[batch] and (where == place[batch]).all()
        assert np.isfinite(worst).all() and worst.min() > 0


POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)


@given(POSITIVE, st.integers(2, 300))
@example(5e-324, 2)
@example(1e-17, 2)
@example(1.7e308, 2)
@settings(CALM, max_examples=200)
def test_cost_from_excess_rounds_up(excess: float, order: int) -> None:
    with mpmath.workdps(700):
        truth = mpmath.log1p(mpmath.mpf(excess)) / (order - 1)
        cost = mpmath.mpf(cost_from_excess(excess, order))
        assert cost >= truth
        if excess >= 1e-20:
            assert cost <= truth * (1 + mpmath.mpf(2) ** -52)


def test_cost_from_excess_at_the_ends() -> None:
    assert cost_from_excess(0.0, 7) == 0.0
    assert cost_from_excess(np.inf, 7) == np.inf


@given(POSITIVE)
@example(1.0)
@example(5.0)
@example(1e-5)
@settings(CALM, max_examples=200)
def test_log_up_is_an_upper_bound_good_to_30_digits(value: float) -> None:
    with mpmath.workdps(60):
        truth = mpmath.log(mpmath.mpf(value))
        result = mpmath.mpf(str(log_up(value)))
        assert truth <= result <= truth + abs(truth) * mpmath.mpf(10) ** -30


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_log_up_refuses_what_has_no_logarithm(value: float) -> None:
    with pytest.raises(ValueError, match="log of"):
        log_up(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None))
@example(Decimal("0.1"))
@example(Decimal("1e-400"))
@example(Decimal("-1e-400"))
@example(Decimal("1e400"))
@example(Decimal("-1e400"))
@example(Decimal(sys.float_info.max) + 1)
@settings(CALM, max_examples=200)
def test_float_up_is_the_smallest_double_not_below(value: Decimal) -> None:
    result = float_up(value)
    assert Decimal(result) >= value
    assert Decimal(math.nextafter(result, -math.inf)) < value


@pytest.mark.parametrize("excess", [0.013, 0.7, 123.0])
def test_the_callers_decimal_context_changes_nothing(excess: float) -> None:
    """The rounding of `decimal` is a thread's global setting; a bound must not depend on it."""
    bounds = cost_from_excess(excess, 20), log_up(excess)
    with localcontext(Context(prec=3, rounding=ROUND_FLOOR)):
        assert (cost_from_excess(excess, 20), log_up(excess)) == bounds
