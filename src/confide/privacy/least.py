"""The least value of a bound that holds wherever it is taken.

By hand, and not with SciPy's minimiser: that one takes 0.3 s to import, and its last digits change between versions,
while a plan file is checked against the number that was found when it was made.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_GOLD = (math.sqrt(5) - 1) / 2


def least(bound: Callable[[float], float], low: float, high: float) -> float:
    """The least value of `bound` met by a golden-section search on [low, high], to nine digits of the place.

    Exact for a bound with one valley. For any other it is still a value of the bound, and so a bound.

    Examples
    --------
    >>> round(least(lambda s: (s - 2) ** 2 + 1, 0.0, 10.0), 12)
    1.0
    """
    a, b = low, high
    c, d = b - _GOLD * (b - a), a + _GOLD * (b - a)
    at_c, at_d = bound(c), bound(d)
    best = min(at_c, at_d)
    while b - a > 1e-9 * (abs(a) + abs(b)):
        if at_c <= at_d:
            b, d, at_d = d, c, at_c
            c = b - _GOLD * (b - a)
            at_c = bound(c)
        else:
            a, c, at_c = c, d, at_d
            d = a + _GOLD * (b - a)
            at_d = bound(d)
        best = min(best, at_c, at_d)
    return best
