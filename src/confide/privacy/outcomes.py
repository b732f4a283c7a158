"""Rigorous cost of three outcomes: the top for sure, and, where unsure, one of two labels. Rounded outward throughout.

A table gives two 64-bit integers for each public row and each integer state (a signed margin): the probability of
*sure*, and that of the first label where unsure. Neighbouring worlds see states at most two apart in the same row. The
kernels bound inequality (**) of docs/proofs/lean.md for every such pair, and with polls for every triple.

The arithmetic is that of `confide.privacy.intervals`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Words
from confide.kernels.compile import jit
from confide.privacy.intervals import WIDEN, Interval, add, complement, difference, gain, mixture, mul, share

LEAST_FRACTION = Fraction(1, 2**100)
"""With a smaller share of the copies, asked or not, a product of probabilities might leave the range of doubles."""

_BUCKETS = 4 * 128 + 1
_SPAN = 3  # states of a window: one vote moves a margin by at most 2


@jit
def _mixed(own: Interval, other: Interval, part: Interval, rest: Interval) -> Interval:
    return add(mul(own, part), mul(other, rest))


@jit
def three_outcomes(
    p: tuple[np.uint64, np.uint64],
    q: tuple[np.uint64, np.uint64],
    m: tuple[np.uint64, np.uint64],
    order: int,
    part: Interval,
    rest: Interval,
) -> tuple[float, float, float]:
    """(excess, low, high): A_u/(1 − A_s) − 1 ≤ excess, and low ≤ 1 − A_s ≤ high.

    Each of p, q, m is (sure, first) of one state; the laws are rest·m + part·p and rest·m + part·q. A_u is the sum
    over both labels. excess is +inf where 1 − A_s may not be positive.
    """
    t_p, t_q, f_p, g_p = complement(p[0]), complement(q[0]), share(p[1]), complement(p[1])
    s_shift, f_shift = difference(p[0], q[0]), difference(p[1], q[1])
    t_shift, g_shift = (-s_shift[1], -s_shift[0]), (-f_shift[1], -f_shift[0])
    s_p, s_q = share(p[0]), share(q[0])
    a_p, a_q, a_shift = mul(t_p, f_p), mul(t_q, share(q[1])), add(mul(t_shift, f_p), mul(f_shift, t_q))
    b_p, b_q, b_shift = mul(t_p, g_p), mul(t_q, complement(q[1])), add(mul(t_shift, g_p), mul(g_shift, t_q))
    if rest[1] > 0.0:
        s_m, t_m = share(m[0]), complement(m[0])
        a_m, b_m = mul(t_m, share(m[1])), mul(t_m, complement(m[1]))
        s_p, s_q, t_p = _mixed(s_p, s_m, part, rest), _mixed(s_q, s_m, part, rest), _mixed(t_p, t_m, part, rest)
        a_p, a_q = _mixed(a_p, a_m, part, rest), _mixed(a_q, a_m, part, rest)
        b_p, b_q = _mixed(b_p, b_m, part, rest), _mixed(b_q, b_m, part, rest)
        s_shift, a_shift, b_shift = mul(s_shift, part), mul(a_shift, part), mul(b_shift, part)
    s_gain = gain(s_shift, s_p, s_q, order)
    both = add(add(gain(a_shift, a_p, a_q, order), gain(b_shift, b_p, b_q, order)), s_gain)[1]
    room = add(t_p, (-s_gain[1], -s_gain[0]))
    # Where an end is not a number nothing is known: the outermost value stands for it.
    low = room[0] if room[0] > -math.inf else -math.inf
    high = room[1] if room[1] < math.inf else math.inf
    if not (low > 0.0 and both < math.inf):
        return math.inf, low, high
    return (both / low * (1.0 + WIDEN) if both > 0.0 else 0.0), low, high


class Points(NamedTuple):
    """Points (ρ, D) that bound every pair of a table in the joint programme of docs/proofs/halting.md."""

    rho: Floats
    """At least A_u/(1 − A_s)."""
    d: Floats
    """1 − A_s."""


class Survey(NamedTuple):
    """What a table costs: its worst pair, and the points of all pairs."""

    excess: float
    """At least e^((order−1)τ) − 1 for the smallest τ that (**) allows; +inf where none does."""
    place: tuple[int, int, int]
    """(row, P, Q) of the worst pair, as indices."""
    points: Points


@jit
def _bucket(d: float) -> int:
    """Quarter octaves of D; how they are cut does not matter for soundness."""
    octaves = -np.log2(min(max(d, 2.0**-128), 1.0))
    return min(int(np.ceil(4.0 * octaves)), _BUCKETS - 1)


@jit
def _survey(
    sure: Words, first: Words, order: int, part: Interval, rest: Interval, rho: Floats, low: Floats, high: Floats
) -> tuple[float, int, int, int]:
    """Fill the buckets with largest ρ, smallest and largest D; the worst excess and where it is."""
    rows, states = sure.shape
    span = min(_SPAN, states)
    middles = span if rest[1] > 0.0 else 1
    worst, at_row, at_p, at_q = 0.0, 0, 0, 0
    for row in range(rows):
        for start in range(states - span + 1):
            for i in range(span):
                for j in range(span):
                    p = sure[row, start + i], first[row, start + i]
                    q = sure[row, start + j], first[row, start + j]
                    if p[0] == q[0] and p[1] == q[1]:
                        continue  # equal laws cost nothing: the points (1, 0) and (1, 1) bound them
                    for k in range(middles):
                        m = sure[row, start + k], first[row, start + k]
                        excess, d_low, d_high = three_outcomes(p, q, m, order, part, rest)
                        if excess > worst:
                            worst, at_row, at_p, at_q = excess, row, start + i, start + j
                        bucket = _bucket(d_high)
                        rho[bucket] = max(rho[bucket], 1.0 + excess)
                        low[bucket], high[bucket] = min(low[bucket], d_low), max(high[bucket], d_high)
    return worst, at_row, at_p, at_q


def survey(sure: Words, first: Words, *, order: int, poll_fraction: Fraction) -> Survey:
    """All pairs, with polls all triples, of each row's windows of three states. Both arrays are (rows, states)."""
    if poll_fraction < LEAST_FRACTION or 0 < 1 - poll_fraction < LEAST_FRACTION:
        raise ValueError(
            f"poll_fraction={float(poll_fraction):g} is too near to 0 or 1 to certify: ask more of the copies, or all"
        )
    part, rest = mixture(poll_fraction)
    rho, low, high = np.zeros(_BUCKETS), np.full(_BUCKETS, np.inf), np.zeros(_BUCKETS)
    excess, *place = _survey(sure, first, order, part, rest, rho, low, high)
    used = rho > 0
    if not math.isfinite(excess):
        return Survey(excess, (place[0], place[1], place[2]), Points(np.array([np.inf]), np.array([1.0])))
    up = np.repeat(rho[used], 2) * (1 + 2.0**-50)
    ends = np.column_stack([np.maximum(low[used], 0.0), np.minimum(high[used], 1.0)]).ravel()
    points = Points(np.concatenate([np.ones(2), up]), np.concatenate([[0.0, 1.0], ends]))
    return Survey(excess, (place[0], place[1], place[2]), points)
