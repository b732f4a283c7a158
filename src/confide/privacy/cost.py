"""Rigorous cost of an integer table: every number here is rounded outward.

A *table* gives, for each integer state (a vote margin, a count), the probability of one of two outcomes as a 64-bit
integer. Neighbouring worlds see neighbouring states. The functions below compute an upper bound of the smallest τ for
which inequality (*) of docs/proofs/gate.md holds for every pair of states a neighbour can reach, in both orders.

Why by hand and not with an interval library: a table has up to 10⁵ states and eighteen triples per state, and the
arithmetic needed is +, −, ×, ÷ and integer powers only. The first four are correctly rounded by IEEE 754, so widening
each result by a few units in the last place encloses the true value without trusting the platform's `exp` or `log`.
The one logarithm at the end is `decimal`'s, which is correctly rounded by specification.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit
from confide.privacy.intervals import WIDEN, complement, difference, gain, share, wide

ONE = 2**64
"""Probabilities are integers out of this many: `sure / ONE`."""

Interval = tuple[NDArray[np.float64], NDArray[np.float64]]


def _wide(low: NDArray[np.float64], high: NDArray[np.float64]) -> Interval:
    return low - np.abs(low) * WIDEN, high + np.abs(high) * WIDEN


def _add(a: Interval, b: Interval) -> Interval:
    return _wide(a[0] + b[0], a[1] + b[1])


def _mul(a: Interval, b: Interval) -> Interval:
    """Product of any interval `a` with a non-negative interval `b`."""
    low = np.where(a[0] >= 0, a[0] * b[0], a[0] * b[1])
    high = np.where(a[1] >= 0, a[1] * b[1], a[1] * b[0])
    return _wide(low, high)


def _div(a: Interval, b: Interval) -> Interval:
    """Quotient of any interval `a` by a positive interval `b`."""
    low = np.where(a[0] >= 0, a[0] / b[1], a[0] / b[0])
    high = np.where(a[1] >= 0, a[1] / b[0], a[1] / b[1])
    return _wide(low, high)


def _power_minus_one(y: Interval, exponent: int) -> Interval:
    """Encloses (1+y)^exponent − 1 for y ≥ −1, without cancellation for small y.

    Doubling: E(2n) = E(n)·(2+E(n)); stepping: E(n+1) = y + E(n)·(1+y). Both are increasing in E and in y, and y and E
    have the same sign, so the ends of the interval may be followed separately.
    """
    ends = []
    for end, sign in ((np.maximum(y[0], -1.0), -1.0), (y[1], 1.0)):
        value = end
        for bit in bin(exponent)[3:]:
            value = value * (2.0 + value)
            value = value + sign * np.abs(value) * WIDEN
            value = np.maximum(value, -1.0)
            if bit == "1":
                value = end + value * (1.0 + end)
                value = value + sign * np.abs(value) * WIDEN
                value = np.maximum(value, -1.0)
        ends.append(value)
    return ends[0], ends[1]


def _as_interval(integers: NDArray[np.uint64]) -> Interval:
    value = integers.astype(np.float64) * 2.0**-64
    return _wide(value, value)


def _difference(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> Interval:
    """Encloses (a − b)/2⁶⁴: the subtraction is exact, only the conversion rounds."""
    value = np.where(a >= b, (a - b).astype(np.float64), -(b - a).astype(np.float64)) * 2.0**-64
    return _wide(value, value)


def _unsure_interval(sure: NDArray[np.uint64]) -> Interval:
    """Encloses 1 − sure/2⁶⁴; 2⁶⁴ − sure is exact in 64 bits unless sure = 0, and then the answer is 1."""
    value = np.where(sure == 0, 1.0, (np.uint64(0) - sure).astype(np.float64) * 2.0**-64)
    return _wide(value, value)


def log_up(value: float) -> Decimal:
    """An upper bound of ln(value), good to 30 digits."""
    if not value > 0:
        raise ValueError(f"log of {value} is undefined")
    result = Decimal(value).ln(Context(prec=50))
    return UP.add(result, UP.multiply(result.copy_abs(), Decimal("1e-38")))


def float_up(value: Decimal) -> float:
    """The smallest double that is not below `value`."""
    result = float(value)
    return result if Decimal(result) >= value else float(np.nextafter(result, np.inf))


UP = Context(prec=40, rounding=ROUND_CEILING)
DOWN = Context(prec=40, rounding=ROUND_FLOOR)


class Moments(NamedTuple):
    """Bounds of the two terms of (*) for pairs of entries."""

    unsure: NDArray[np.float64]
    """Upper bounds of A_u = P(unsure)^α Q(unsure)^{1−α}."""
    room: NDArray[np.float64]
    """Lower bounds of 1 − A_s, A_s = P(sure)^α Q(sure)^{1−α}; −inf where A_s is infinite."""
    room_high: NDArray[np.float64]
    """Upper bounds of 1 − A_s."""
    excess: NDArray[np.float64]
    """Upper bounds of A_u/(1 − A_s) − 1, at least 0; +inf where 1 − A_s may not be positive."""


def power_moments(
    p_sure: NDArray[np.uint64],
    q_sure: NDArray[np.uint64],
    order: int,
    mixed_sure: NDArray[np.uint64] | None = None,
    poll_fraction: Fraction = Fraction(1),
) -> Moments:
    """Bounds of both terms of (*) for each pair of entries.

    `p_sure`, `q_sure` are the two worlds' entries. With a poll fraction q < 1 the worlds' distributions are the
    mixtures (1−q)·G(mixed) + q·G(p) and (1−q)·G(mixed) + q·G(q) of docs/proofs/polls.md.
    """
    shift = _difference(p_sure, q_sure)  # P(sure) − Q(sure) = Q(unsure) − P(unsure), before the factor q
    p_s, q_s = _as_interval(p_sure), _as_interval(q_sure)
    p_u, q_u = _unsure_interval(p_sure), _unsure_interval(q_sure)
    if poll_fraction != 1:
        if mixed_sure is None:
            raise ValueError("a poll fraction below 1 needs the third vote count's entries")
        share = np.array(float(poll_fraction))
        rest = np.array(float(1 - poll_fraction))
        q_part, q_rest = _wide(share, share), _wide(rest, rest)
        m_s, m_u = _mul(_as_interval(mixed_sure), q_rest), _mul(_unsure_interval(mixed_sure), q_rest)
        p_s, q_s = _add(m_s, _mul(p_s, q_part)), _add(m_s, _mul(q_s, q_part))
        p_u, q_u = _add(m_u, _mul(p_u, q_part)), _add(m_u, _mul(q_u, q_part))
        shift = _mul(shift, q_part)
    equal = p_sure == q_sure
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        up_s = _power_minus_one(_div(shift, q_s), order - 1)
        up_u = _power_minus_one(_div((-shift[1], -shift[0]), q_u), order - 1)
        sure_gain, unsure_gain = _mul(up_s, p_s), _mul(up_u, p_u)
        # A_u = P_u + unsure_gain and 1 − A_s = P_u − sure_gain, so that
        # A_u/(1 − A_s) − 1 = (unsure_gain + sure_gain)/(1 − A_s).
        # Equal entries have ratio 1 exactly, also where an outcome is impossible in both worlds (0/0).
        unsure = np.where(equal, p_u[1], _add(p_u, unsure_gain)[1])
        left = _add(p_u, (-sure_gain[1], -sure_gain[0]))
        room, room_high = np.where(equal, p_u[0], left[0]), np.where(equal, p_u[1], left[1])
        gain = _add(unsure_gain, sure_gain)[1]
        excess = np.where(gain <= 0, 0.0, gain / room * (1 + WIDEN))
        excess = np.where(equal, 0.0, np.where(room > 0, excess, np.inf))
    # Where an end is not a number (0·inf), nothing is known: the outermost value stands for it.
    return Moments(
        np.where(np.isnan(unsure), np.inf, unsure),
        np.where(np.isnan(room), -np.inf, room),
        np.where(np.isnan(room_high), np.inf, room_high),
        np.where(np.isnan(excess), np.inf, excess),
    )


def moment_excess(
    p_sure: NDArray[np.uint64],
    q_sure: NDArray[np.uint64],
    order: int,
    mixed_sure: NDArray[np.uint64] | None = None,
    poll_fraction: Fraction = Fraction(1),
) -> NDArray[np.float64]:
    """Upper bounds of e^((order−1)τ) − 1 for the smallest τ that (*) allows each pair; +inf where none does."""
    return power_moments(p_sure, q_sure, order, mixed_sure, poll_fraction).excess


@jit
def pair_excess(p_sure: np.uint64, q_sure: np.uint64, order: int) -> float:
    """`moment_excess` of one pair with full polls, compiled: the same operations, and the same bits.

    For gates whose entries are too many to be held in arrays.
    """
    if p_sure == q_sure:
        return 0.0
    shift, unsure = difference(p_sure, q_sure), complement(p_sure)
    sure_gain = gain(shift, share(p_sure), share(q_sure), order)
    unsure_gain = gain((-shift[1], -shift[0]), unsure, complement(q_sure), order)
    room = wide(unsure[0] - sure_gain[1], 0.0)[0]
    both = wide(0.0, unsure_gain[1] + sure_gain[1])[1]
    if not room > 0.0 or np.isnan(both):
        return np.inf
    return 0.0 if both <= 0.0 else both / room * (1 + WIDEN)


def triples(sure: NDArray[np.uint64], step: int, polled: bool) -> list[tuple[int, int, int]]:
    """Offsets (P, Q, mixed) inside a window of step+1 neighbouring states, without those that cost nothing."""
    span = range(min(step, sure.shape[-1] - 1) + 1)
    middle = span if polled else range(1)
    return [(i, j, m) for i, j, m in product(span, span, middle) if i != j]


def worst_excess(
    sure: NDArray[np.uint64], order: int, step: int, poll_fraction: Fraction = Fraction(1)
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Largest `moment_excess` over all states at most `step` apart, and where it is.

    `sure` may carry leading batch axes. Returns (worst, place) with `place[..., :]` = (P, Q, mixed) states.
    """
    batch, states = sure.shape[:-1], sure.shape[-1]
    worst = np.zeros(batch)
    place = np.zeros((*batch, 3), dtype=np.int64)
    polled = poll_fraction != 1
    windows = max(states - step, 1)
    for i, j, m in triples(sure, step, polled):
        p, q = sure[..., i : i + windows], sure[..., j : j + windows]
        mixed = sure[..., m : m + windows] if polled else None
        bound = moment_excess(p, q, order, mixed, poll_fraction)
        at = bound.argmax(axis=-1)
        value = np.take_along_axis(bound, at[..., None], axis=-1)[..., 0]
        better = value > worst
        worst = np.where(better, value, worst)
        place = np.where(better[..., None], np.stack([at + i, at + j, at + m], axis=-1), place)
    return worst, place


def cost_from_excess(excess: float, order: int) -> float:
    """τ = ln(1 + excess)/(order − 1), rounded up."""
    if excess == 0:
        return 0.0
    one_plus = UP.add(Decimal(1), Decimal(excess))
    log = one_plus.ln(Context(prec=50))
    log = UP.add(log, UP.multiply(log.copy_abs(), Decimal("1e-38")))
    return float_up(UP.divide(log, Decimal(order - 1)))
