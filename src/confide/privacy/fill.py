"""The design of leans: how wide a logistic lean must be, and the gate that takes what it leaves of the cost.

Nothing here is trusted: `confide.privacy.outcomes` certifies the finished integers. Claims: docs/proofs/lean.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from confide._checks import integer
from confide.arrays import Floats, Words
from confide.kernels.compile import jit
from confide.privacy.cost import ONE
from confide.privacy.gate import check_cost, check_fraction, check_order, check_ties, integers
from confide.privacy.tables import on_grid

MOST_OFFSETS = 65
"""Rows of a table: offsets are quantised to this many values at most."""

FAR = 24.0
"""Log-odds at which a lean stops: beyond it 64-bit rounding would cost more than the last wrong answers are worth."""

State = tuple[float, float, float, float]
"""P(unsure), P(sure), and where unsure P(first), P(second)."""


@jit
def _gain(p: float, q: float, shift: float, order: int) -> float:
    """P^α·Q^{1−α} − P, `shift` = P − Q."""
    if shift == 0.0:
        return 0.0
    ratio = shift / q
    return p * math.expm1((order - 1) * math.log1p(ratio)) if ratio > -1.0 else -p


@jit
def _excess(p: State, q: State, m: State, order: int, part: float) -> float:
    """e^c − 1 that one ordered pair needs, mixed with a third state."""
    rest = 1.0 - part
    s_shift = part * (p[1] - q[1] if p[1] < 0.5 else q[0] - p[0])
    a_shift, b_shift = part * (p[0] * p[2] - q[0] * q[2]), part * (p[0] * p[3] - q[0] * q[3])
    s_p, s_q = part * p[1] + rest * m[1], part * q[1] + rest * m[1]
    a_p, a_q = part * p[0] * p[2] + rest * m[0] * m[2], part * q[0] * q[2] + rest * m[0] * m[2]
    b_p, b_q = part * p[0] * p[3] + rest * m[0] * m[3], part * q[0] * q[3] + rest * m[0] * m[3]
    s_gain = _gain(s_p, s_q, s_shift, order)
    room = part * p[0] + rest * m[0] - s_gain
    if room <= 0.0:
        return np.inf
    return (s_gain + _gain(a_p, a_q, a_shift, order) + _gain(b_p, b_q, b_shift, order)) / room


@jit
def _window(states: tuple[State, State, State], order: int, part: float) -> float:
    """The worst ordered pair of three neighbouring states, and with polls the worst triple."""
    worst = 0.0
    for i in range(3):
        for j in range(3):
            if i != j:
                for k in range(3 if part < 1.0 else 1):
                    worst = max(worst, _excess(states[i], states[j], states[k], order, part))
    return worst


@jit
def _state(unsure: float, sure: float, log_odds: float) -> State:
    z = min(max(log_odds, -FAR), FAR)
    return unsure, sure, 1.0 / (1.0 + math.exp(-z)), 1.0 / (1.0 + math.exp(z))


@jit
def _flat_excess(width: float, order: int, part: float) -> float:
    """What a logistic lean needs where the gate is always unsure: the worst place is near its centre."""
    worst, vote = 0.0, 1.0 / width
    stride = max(1, int(4.0 * width / 600.0))
    for k in range(-600, 601):
        u = vote * (k * stride)
        states = _state(1.0, 0.0, u - vote), _state(1.0, 0.0, u), _state(1.0, 0.0, u + vote)
        worst = max(worst, _window(states, order, part))
    return worst


@jit
def lean_width(order: int, target: float, part: float) -> float:
    """γ: votes of signed margin for each unit of log-odds, the least for which the lean alone needs `target`."""
    guess = part * math.sqrt(0.5 * order * (order - 1) / math.log1p(target))  # to leading order
    low, high = guess, guess
    while _flat_excess(high, order, part) > target:
        high *= 1.25
    while _flat_excess(low, order, part) <= target:
        low *= 0.8
    while high / low > 1.0 + 1e-8:
        middle = 0.5 * (low + high)
        if _flat_excess(middle, order, part) > target:
            low = middle
        else:
            high = middle
    return high


@jit
def _block_excess(before: tuple[float, float], after: tuple[float, float], z: Floats, order: int, part: float) -> float:
    """The step from one doubled entry to the next: log-odds `z` at two states of each."""
    a, b = _state(before[0], before[1], z[0]), _state(before[0], before[1], z[1])
    c, d = _state(after[0], after[1], z[2]), _state(after[0], after[1], z[3])
    return max(_window((a, b, c), order, part), _window((b, c, d), order, part))


@jit
def _next_logit(theta: float, guess: float, target: float, z: Floats, order: int, part: float) -> float:
    """The widest step of the logit down from θ that the target allows, by false position (Illinois)."""
    before = on_grid(theta, True)
    f_low = _block_excess(before, before, z, order, part) / target - 1.0
    if f_low >= 0.0:
        return 0.0
    low, high, f_high, step = 0.0, np.inf, 0.0, guess
    for _ in range(100):
        f = _block_excess(before, on_grid(theta - step, True), z, order, part) / target - 1.0
        if f <= 0.0:
            low, f_low = step, f
            f_high *= 0.5
            if f > -1e-7:
                break
        else:
            high, f_high = step, min(f, 1e3)
            f_low *= 0.5
        if high == np.inf:
            if low > 64.0:
                break
            step = low * 1.5
        elif high - low < 1e-10 * high:
            break
        elif f_high > 4.0 or low == 0.0:
            step = 0.5 * (low + high)
        else:
            share = f_low / (f_low - f_high)
            step = low + (high - low) * min(max(share * 0.9999, 1e-3), 1.0 - 1e-3)
    return low


@jit
def fill_row(
    order: int, target: float, part: float, tie_sure: float, floor: float, width: float, offset: float, unsure: Floats
) -> Floats:
    """Write P(unsure) by signed margin −V … V over `unsure`; return P(sure). One row: the offset in votes is public.

    From the tie outwards on both sides every doubled entry is the lowest that the one before and the lean allow.
    """
    sure = np.empty(unsure.size)
    reach = unsure.size // 2
    theta_tie = math.log1p(-tie_sure) - math.log(tie_sure)
    lowest = math.log(floor) - math.log1p(-floor)
    t, s = on_grid(theta_tie, True)
    for v in range(-min(2, reach), min(2, reach) + 1):
        unsure[reach + v], sure[reach + v] = t, s
    z = np.empty(4)
    for side in (1, -1):
        theta, step = math.log(t) - math.log(s), 1.0
        for v in range(3, reach + 1, 2):
            for k in range(4):
                z[k] = (side * (v - 2 + k) + offset) / width
            if theta > lowest:
                step = _next_logit(theta, max(step, 1e-6), target, z, order, part)
                theta = max(theta - step, lowest)
            t_now, s_now = on_grid(theta, True)
            if theta > lowest:
                theta = math.log(t_now) - math.log(s_now)
            for k in range(v, min(v + 2, reach + 1)):
                unsure[reach + side * k], sure[reach + side * k] = t_now, s_now
    return sure


def check_design(order: int, cost: float, fraction: float | Fraction, share: float, tie_sure: float) -> Fraction:
    """The poll fraction, where these are numbers that a lean can be designed for."""
    check_cost(cost, check_order(order))
    if not 0 < share < 1:
        raise ValueError(f"share={share} must lie strictly between 0 and 1")
    check_ties(tie_sure)
    return check_fraction(fraction)


def whole_offsets(count: int, clip: float, width: float) -> tuple[int, ...]:
    """Whole votes, symmetric, at most `count` of them, up to about `clip` in log-odds."""
    reach = integer(count, "offsets", at_least=1, at_most=MOST_OFFSETS) // 2
    if not 0 < clip <= FAR:
        raise ValueError(f"clip={clip} must be log-odds between 0 and {FAR:g}")
    if reach == 0:
        return (0,)
    step = max(1, math.ceil(clip * width / reach))
    reach = max(1, min(reach, round(clip * width / step)))
    return tuple(step * i for i in range(-reach, reach + 1))


def logistic_rows(offsets: Sequence[int], reach: int, width: float) -> Words:
    """P(label 0 | unsure) = 1/(1 + e^(−(v+s)/width)) as integers; both signs of v + s add up to 2⁶⁴ exactly."""
    most = reach + offsets[-1]
    small = 1.0 / (1.0 + np.exp(np.minimum(np.arange(1, most + 1) / width, FAR)))
    below = integers(1.0 - small, small)
    row = np.concatenate([below[::-1], [np.uint64(ONE // 2)], np.uint64(0) - below])
    return np.stack([row[most + s - reach : most + s + reach + 1] for s in offsets])
