"""Rigorous cost of an integer table: every number here is rounded outward.

A *table* gives, for each integer state (a vote margin, a count), the probability of one of two outcomes as a 64-bit
integer. Neighbouring worlds see neighbouring states. The functions below compute an upper bound of the smallest τ for
which inequality (*) of docs/proofs/gate.md holds for every pair of states a neighbour can reach, in both orders.

Why by hand and not with an interval library: a table has up to 10⁵ states and eighteen triples per state, and the
arithmetic needed is +, −, ×, ÷ and integer powers only (`confide.privacy.intervals`). The first four are correctly
rounded by IEEE 754, so widening each result by a few units in the last place encloses the true value without trusting
the platform's `exp` or `log`. The one logarithm at the end is `decimal`'s, which is correctly rounded by specification.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit
from confide.privacy.intervals import WIDEN, Interval, add, complement, difference, gain, mixture, mul, share

ONE = 2**64
"""Probabilities are integers out of this many: `sure / ONE`."""


def rest_of(integers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """What these integers out of 2⁶⁴ leave of 1, rounded to doubles for reading."""
    return np.where(integers == 0, 1.0, (np.uint64(0) - integers).astype(np.float64) * 2.0**-64)


def log_up(value: Decimal | float) -> Decimal:
    """An upper bound of ln(value), good to 30 digits: correctly rounded at 50 digits, then moved outward."""
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


@jit
def pair_moments(
    p: np.uint64, q: np.uint64, mixed: np.uint64, order: int, part: Interval, rest: Interval
) -> tuple[float, float, float, float]:
    """The fields of `Moments` for one pair of entries; the worlds' laws are rest·G(mixed) + part·G(p or q)."""
    p_u = complement(p)
    shift = difference(p, q)  # P(sure) − Q(sure) = Q(unsure) − P(unsure)
    p_s, q_s, q_u = share(p), share(q), complement(q)
    if rest[1] > 0.0:
        m_s, m_u = mul(share(mixed), rest), mul(complement(mixed), rest)
        p_s, q_s = add(m_s, mul(p_s, part)), add(m_s, mul(q_s, part))
        p_u, q_u = add(m_u, mul(p_u, part)), add(m_u, mul(q_u, part))
        shift = mul(shift, part)
    if p == q:  # ratio 1 exactly, also where an outcome is impossible in both worlds (0/0)
        return p_u[1], p_u[0], p_u[1], 0.0
    sure_gain, unsure_gain = gain(shift, p_s, q_s, order), gain((-shift[1], -shift[0]), p_u, q_u, order)
    # A_u = P_u + unsure_gain and 1 − A_s = P_u − sure_gain, so A_u/(1 − A_s) − 1 = (unsure_gain + sure_gain)/(1 − A_s).
    unsure, room = add(p_u, unsure_gain)[1], add(p_u, (-sure_gain[1], -sure_gain[0]))
    both, excess = add(unsure_gain, sure_gain)[1], np.inf
    if room[0] > 0.0 and both == both:
        excess = 0.0 if both <= 0.0 else both / room[0] * (1 + WIDEN)
    # Where an end is not a number (0·inf), nothing is known: the outermost value stands for it.
    low = room[0] if room[0] == room[0] else -np.inf
    return unsure if unsure == unsure else np.inf, low, room[1] if room[1] == room[1] else np.inf, excess


@jit
def pair_excess(p_sure: np.uint64, q_sure: np.uint64, order: int) -> float:
    """`moment_excess` of one pair with full polls: for gates whose entries are too many to be held in arrays."""
    return pair_moments(p_sure, q_sure, q_sure, order, (1.0, 1.0), (0.0, 0.0))[3]


@jit
def _fill(
    p: NDArray[np.uint64], q: NDArray[np.uint64], mixed: NDArray[np.uint64], order: int, part: Interval, rest: Interval,
    out: NDArray[np.float64],
) -> None:  # fmt: skip
    for i in range(p.size):
        out[0, i], out[1, i], out[2, i], out[3, i] = pair_moments(p[i], q[i], mixed[i], order, part, rest)


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
    if poll_fraction != 1 and mixed_sure is None:
        raise ValueError("a poll fraction below 1 needs the third vote count's entries")
    p, q, mixed = (np.array(one).ravel() for one in (p_sure, q_sure, q_sure if mixed_sure is None else mixed_sure))
    (part, rest), out = mixture(poll_fraction), np.empty((4, p.size))
    _fill(p, q, mixed, order, part, rest, out)
    return Moments(*out.reshape(4, *p_sure.shape))


def moment_excess(
    p_sure: NDArray[np.uint64],
    q_sure: NDArray[np.uint64],
    order: int,
    mixed_sure: NDArray[np.uint64] | None = None,
    poll_fraction: Fraction = Fraction(1),
) -> NDArray[np.float64]:
    """Upper bounds of e^((order−1)τ) − 1 for the smallest τ that (*) allows each pair; +inf where none does."""
    return power_moments(p_sure, q_sure, order, mixed_sure, poll_fraction).excess


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
    return float_up(UP.divide(log_up(UP.add(Decimal(1), Decimal(excess))), Decimal(order - 1)))
