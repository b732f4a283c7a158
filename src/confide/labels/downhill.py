"""The lowest point of a smooth loss, by L-BFGS: the same bits from the same loss, on however many threads.

Libraries for linear algebra add up long products in as many parts as they have threads, so what they find depends on
where it is looked for. Here every sum has one order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from confide.arrays import Floats
from confide.kernels.compile import jit

__all__ = ["lowest"]

_KEPT, _TRIES = 10, 20
_LESS, _FLATTER = 1e-4, 0.9  # of what the slope promises, that a step must bring; of the slope, that it may leave
_SAME, _FLAT = 2.2e-9, 1e-5

Loss = Callable[[Floats], tuple[float, Floats]]


def lowest(loss: Loss, start: Floats, steps: int) -> Floats:
    """Where so many steps lead from `start`, or fewer if nothing is left to be won.

    Parameters
    ----------
    loss
        Its value at a point, and its slope there.

    Examples
    --------
    >>> lowest(lambda at: (float(((at - 3.0) ** 2).sum()), 2.0 * (at - 3.0)), np.zeros(2), 100)
    array([3., 3.])
    """
    at, (value, slope), past = start, loss(start), list[tuple[Floats, Floats, float]]()
    for _ in range(steps):
        if not np.abs(slope).max(initial=0.0) > _FLAT:
            break
        step = _towards(slope, past)
        along = _product(step, slope)
        size = 1.0 if past else 1.0 / math.sqrt(-along)
        low, high, found = 0.0, math.inf, None
        for _ in range(_TRIES):
            there = at + size * step
            lost, bent = loss(there)
            if not lost <= value + _LESS * size * along:
                high = size
            else:
                found = there, lost, bent
                if _product(step, bent) >= _FLATTER * along:
                    break
                low = size
            size = (low + high) / 2 if high < math.inf else 2 * low
        if found is None:
            break
        moved, turned = found[0] - at, found[2] - slope
        gained, (at, value, slope) = value - found[1], found
        if (curve := _product(moved, turned)) > 0.0:
            past = [*past[1 - _KEPT :], (moved, turned, curve)]
        if gained <= _SAME * max(abs(value), abs(value + gained), 1.0):
            break
    return at


def _towards(slope: Floats, past: list[tuple[Floats, Floats, float]]) -> Floats:
    """Downhill, as the last steps have found the loss to bend."""
    step, shares = -slope, list[float]()
    for moved, turned, curve in reversed(past):
        shares.append(_product(moved, step) / curve)
        step = step - shares[-1] * turned
    if past:
        _, turned, curve = past[-1]
        step = step * (curve / _product(turned, turned))
    for moved, turned, curve in past:
        step = step + (shares.pop() - _product(turned, step) / curve) * moved
    return step


@jit
def _product(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total
