"""Intervals of doubles in compiled loops: every operation widens its result (docs/proofs/gate.md, "One widening")."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from confide.kernels.compile import jit

WIDEN = 10 * 2.0**-53
"""An operation rounds at most three times, correctly and without cancellation: its relative error is below 4·2⁻⁵³."""

_UNIT = 2.0**-64

Interval = tuple[float, float]


@jit
def wide(low: float, high: float) -> Interval:
    """The ends, each moved outward by more than an operation rounds."""
    return low - abs(low) * WIDEN, high + abs(high) * WIDEN


@jit
def add(a: Interval, b: Interval) -> Interval:
    """Sum of two intervals."""
    return wide(a[0] + b[0], a[1] + b[1])


@jit
def mul(a: Interval, b: Interval) -> Interval:
    """Product of any interval `a` with a non-negative interval `b`."""
    return wide(a[0] * (b[0] if a[0] >= 0.0 else b[1]), a[1] * (b[1] if a[1] >= 0.0 else b[0]))


@jit
def div(a: Interval, b: Interval) -> Interval:
    """Quotient of any interval `a` by a positive interval `b`."""
    return wide(a[0] / (b[1] if a[0] >= 0.0 else b[0]), a[1] / (b[0] if a[1] >= 0.0 else b[1]))


@jit
def power_end(y: float, exponent: int, sign: float) -> float:
    """One end of (1+y)^exponent − 1, y ≥ −1: doubling and stepping, each widened outward and cut at −1."""
    value, bit = y, 1
    while bit * 2 <= exponent:
        bit *= 2
    bit //= 2
    while bit > 0:
        value *= 2.0 + value
        value = max(value + sign * abs(value) * WIDEN, -1.0)
        if exponent & bit:
            value = y + value * (1.0 + y)
            value = max(value + sign * abs(value) * WIDEN, -1.0)
        bit //= 2
    return value


@jit
def gain(shift: Interval, p: Interval, q: Interval, order: int) -> Interval:
    """Encloses P^α·Q^{1−α} − P where P − Q lies in `shift`; no change is no gain, also of what never happens."""
    if shift[0] == 0.0 and shift[1] == 0.0:
        return 0.0, 0.0
    ratio = div(shift, q)
    power = power_end(max(ratio[0], -1.0), order - 1, -1.0), power_end(ratio[1], order - 1, 1.0)
    return mul(power, p)


@jit
def share(word: np.uint64) -> Interval:
    """Encloses word/2⁶⁴."""
    value = np.float64(word) * _UNIT
    return wide(value, value)


@jit
def complement(word: np.uint64) -> Interval:
    """Encloses 1 − word/2⁶⁴: 2⁶⁴ − word is exact in 64 bits unless word = 0."""
    value = 1.0 if word == np.uint64(0) else np.float64(np.uint64(0) - word) * _UNIT
    return wide(value, value)


@jit
def difference(a: np.uint64, b: np.uint64) -> Interval:
    """Encloses (a − b)/2⁶⁴: the subtraction is exact, and 0 stays 0."""
    value = np.float64(a - b) * _UNIT if a >= b else -(np.float64(b - a) * _UNIT)
    return wide(value, value)


def mixture(poll_fraction: Fraction) -> tuple[Interval, Interval]:
    """Enclosures of q and 1 − q; exact for a full poll, where nothing is mixed."""
    if poll_fraction == 1:
        return (1.0, 1.0), (0.0, 0.0)
    part, rest = float(poll_fraction), float(1 - poll_fraction)
    return wide(part, part), wide(rest, rest)
