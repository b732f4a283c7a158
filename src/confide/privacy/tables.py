"""Kernels that design tables: greedy steps in logit space, rounded to the grid of 2⁻⁶⁴ as they go.

Nothing here is trusted: `confide.privacy.cost` certifies the finished integers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit


@jit
def _excess(p_u: float, p_s: float, q_u: float, q_s: float, fall: float, order: int) -> float:
    """e^c − 1 that one ordered pair needs; `fall` = P(unsure) − Q(unsure). For design: bounds.py certifies."""
    ratio_s, ratio_u = -fall / q_s, fall / q_u
    if ratio_s <= -1.0 or ratio_u <= -1.0:
        return np.inf
    gain_s = p_s * math.expm1((order - 1) * math.log1p(ratio_s))
    gain_u = p_u * math.expm1((order - 1) * math.log1p(ratio_u))
    room = p_u - gain_s
    if room <= 0.0:
        return np.inf
    return (gain_u + gain_s) / room


@jit
def _step_excess(theta: float, delta: float, order: int, q: float) -> float:
    """Largest excess of the step from logit θ to θ − δ, both orders, both mixtures."""
    a_u, a_s = 1.0 / (1.0 + math.exp(-theta)), 1.0 / (1.0 + math.exp(theta))
    b_u, b_s = 1.0 / (1.0 + math.exp(delta - theta)), 1.0 / (1.0 + math.exp(theta - delta))
    fall = a_u * b_s * -math.expm1(-delta) * q
    worst = 0.0
    for mixed in range(2 if q < 1.0 else 1):
        m_u, m_s = (1.0 - q) * (a_u if mixed == 0 else b_u), (1.0 - q) * (a_s if mixed == 0 else b_s)
        x_u, x_s, y_u, y_s = m_u + q * a_u, m_s + q * a_s, m_u + q * b_u, m_s + q * b_s
        worst = max(worst, _excess(x_u, x_s, y_u, y_s, fall, order), _excess(y_u, y_s, x_u, x_s, -fall, order))
    return worst


@jit
def widest_step(theta: float, guess: float, order: int, q: float, target: float, up: bool) -> float:
    """The widest allowed step of the logit down from θ (or up), by bracketing and false position in ln δ."""
    low, f_low, high, f_high = 0.0, 0.0, 0.0, 0.0  # f = ln(excess/target): ≤ 0 allowed, > 0 not
    step = guess
    for _ in range(200):
        excess = _step_excess(theta + step if up else theta, step, order, q)
        f = math.log(excess / target) if excess > 0.0 else -800.0
        if f <= 0.0:
            low, f_low = step, f
            if f > -1e-8:
                break
        else:
            high, f_high = step, f
        if high == 0.0:
            if low > 64.0:
                break
            step = low * 1.1
        elif low == 0.0:
            step = high / 1.1
        elif high - low < 1e-10 * high:
            break
        elif f_high > 1.0 or f_low < -1.0:
            step = 0.5 * (low + high)
        else:
            share = (0.0 - f_low) / (f_high - f_low)
            step = low + (high - low) * min(max(share * 0.999, 1e-3), 1.0 - 1e-3)
    return low


@jit
def on_grid(theta: float, up: bool) -> tuple[float, float]:
    """P(unsure), P(sure) at logit θ as the shipped integers will have them, unsure rounded up or down."""
    if theta > 0.0:
        sure = 2.0**64 / (1.0 + math.exp(theta))
        sure = (math.floor(sure) if up else math.ceil(sure)) * 2.0**-64
        return 1.0 - sure, sure
    unsure = 2.0**64 / (1.0 + math.exp(-theta))
    unsure = (math.ceil(unsure) if up else math.floor(unsure)) * 2.0**-64
    return unsure, 1.0 - unsure


@jit
def descend(
    order: int, target: float, q: float, tie_sure: float, floor: float, most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Greedy descent in logit space: each level is the lowest that the level before allows, on the grid of 2⁻⁶⁴."""
    size = 1024
    unsure, sure = np.empty(size), np.empty(size)
    theta = math.log1p(-tie_sure) - math.log(tie_sure)
    lowest = math.log(floor) - math.log1p(-floor)
    unsure[0], sure[0] = on_grid(theta, True)
    theta = math.log(unsure[0]) - math.log(sure[0])
    count, delta = 1, 1.0
    while count < most and theta > lowest:
        delta = widest_step(theta, delta, order, q, target, False)
        if delta == 0.0:
            break
        theta = max(theta - delta, lowest)
        if count == size:
            unsure, sure = np.append(unsure, np.empty(size)), np.append(sure, np.empty(size))
            size *= 2
        unsure[count], sure[count] = on_grid(theta, True)
        if unsure[count] == unsure[count - 1] and sure[count] == sure[count - 1]:
            break  # the step is below the grid
        if theta > lowest:
            theta = math.log(unsure[count]) - math.log(sure[count])
        count += 1
    return unsure[:count], sure[:count]


@jit
def climb(
    order: int, target: float, start: float, survive: float, shift: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Greedy ascent in logit space until Π(1 − h) over blocks of `shift` counts is below `survive`, and one more."""
    size = 256
    halt, go = np.empty(size), np.empty(size)
    halt[0], go[0] = on_grid(math.log(start) - math.log1p(-start), False)
    theta = math.log(halt[0]) - math.log(go[0])
    count, delta, log_left, extra = 1, 0.1, 0.0, 0
    goal = math.log(survive)
    while extra < 2:
        delta = widest_step(theta, delta, order, 1.0, target, True)
        if delta == 0.0:
            break
        theta += delta
        if count == size:
            halt, go = np.append(halt, np.empty(size)), np.append(go, np.empty(size))
            size *= 2
        halt[count], go[count] = on_grid(theta, False)
        if halt[count] == halt[count - 1] and go[count] == go[count - 1]:
            break
        theta = math.log(halt[count]) - math.log(go[count])
        log_left += shift * math.log(go[count])
        if log_left < goal:
            extra += 1
        count += 1
    return halt[:count], go[:count]
