"""From Rényi divergence to (ε, δ), sums that round up, composition and group privacy.

Claims and proofs: docs/proofs/conversion.md, docs/proofs/composition.md. Everything fails closed: NaN, negative or
impossible values raise, and what is returned is rounded up.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction
from numbers import Real

from confide._checks import integer
from confide.privacy.cost import UP, float_up, log_up
from confide.privacy.gate import check_order

_PRECISE = Context(prec=50)
_ROUND = 1 + 1e-12
"""Rounds a few float operations up."""


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_epsilon(epsilon: float) -> float:
    """`epsilon` as a float, if it is a positive number."""
    if not (_is_number(epsilon) and epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon={epsilon} must be a positive number; 1.0 is a usual promise")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """`delta` as a float, if it lies strictly between 0 and 1."""
    if not (_is_number(delta) and 0 < delta < 1):
        raise ValueError(f"delta={delta} must lie strictly between 0 and 1; 1e-6 is usual, far below 1/people")
    return float(delta)


def check_beta(beta: float) -> float:
    """`beta` as a float, if it lies strictly between 0 and 1."""
    if not (_is_number(beta) and 0 < beta < 1):
        raise ValueError(f"beta={beta} must lie strictly between 0 and 1; 0.01 is usual")
    return float(beta)


def sum_up(*values: float) -> float:
    """The sum, rounded up: the smallest double that is not below the exact sum of the given doubles.

    Examples
    --------
    >>> 0.1 + 0.7 < sum_up(0.1, 0.7)
    True
    >>> sum_up(0.5, 0.25)
    0.75
    """
    if math.inf in values:
        return math.inf
    return fraction_up(sum((Fraction(value) for value in values), Fraction(0)))


def fraction_up(exact: Fraction) -> float:
    """The smallest double that is not below it."""
    rounded = float(exact)
    return rounded if Fraction(rounded) >= exact else math.nextafter(rounded, math.inf)


def _check_renyi(renyi: float, order: int) -> int:
    """The order, as an int."""
    if not renyi >= 0:
        raise ValueError(f"a Rényi divergence is never {renyi}; the computation before this one is wrong")
    return check_order(order)


def epsilon_from_renyi(renyi: float, order: int, delta: float) -> float:
    """ε of a mechanism whose Rényi divergence of this order is at most `renyi`, at this δ; rounded up.

    ε = R + ln(1 − 1/α) − ln(αδ)/(α − 1), never below 0. Proof page: docs/proofs/conversion.md.

    Examples
    --------
    >>> round(epsilon_from_renyi(0.5, 20, 1e-6), 4)
    1.0182
    """
    order = _check_renyi(renyi, order)
    delta = check_delta(delta)
    if math.isinf(renyi):
        return math.inf
    alpha = Decimal(order)
    keep = log_up(UP.subtract(Decimal(1), _PRECISE.divide(Decimal(1), alpha)))
    price = UP.divide(log_up(UP.divide(Decimal(1), _PRECISE.multiply(alpha, Decimal(delta)))), Decimal(order - 1))
    return max(0.0, float_up(UP.add(UP.add(Decimal(renyi), keep), price)))


def renyi_from_epsilon(epsilon: float, order: int, delta: float) -> float:
    """The largest Rényi divergence (up to rounding) that still gives (ε, δ); negative when the order cannot."""
    order, epsilon, delta = check_order(order), check_epsilon(epsilon), check_delta(delta)
    return epsilon - (math.log1p(-1 / order) - math.log(order * delta) / (order - 1))


def delta_from_renyi(renyi: float, order: int, epsilon: float) -> float:
    """δ at this ε ≥ 0: (1 − 1/α)^α/(α−1)·e^{(α−1)(R−ε)}, at most 1. Proof page: docs/proofs/conversion.md."""
    order = _check_renyi(renyi, order)
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon} must not be negative")
    if math.isinf(renyi):
        return 1.0
    log = (order - 1) * (renyi - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)
    return min(1.0, math.nextafter(math.exp(min(log, 0.0)) * (1 + 1e-12), 1.0))


def compose(epsilon: float, delta: float, times: int, slack: float) -> tuple[float, float]:
    """(ε, δ) of `times` (ε, δ)-challenge-DP mechanisms one after the other: the paper's composition theorem.

    `slack` is its δ'. The smaller of the advanced and the simple sum is returned; both are theorems. Sequential
    only: see docs/proofs/composition.md for mechanisms that run at the same time.
    """
    check_epsilon(epsilon), check_delta(delta), check_delta(slack)
    times = integer(times, "times", at_least=1)
    growth = math.expm1(min(epsilon, 700.0))
    advanced = math.sqrt(2 * times * math.log(1 / slack)) * epsilon + times * epsilon * growth
    if advanced < times * epsilon:
        return advanced * _ROUND, (times * delta + slack) * _ROUND
    return times * epsilon * _ROUND, times * delta * _ROUND


def group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """(ε, δ) for a group of `size` units: (gε, δ(e^{gε} − 1)/(e^ε − 1)).

    The paper states g·e^{gε}·δ; the geometric sum is what its proof gives. Proof page: docs/proofs/composition.md.
    """
    check_epsilon(epsilon), check_delta(delta)
    size = integer(size, "size", at_least=1)
    exponent = size * epsilon * (_ROUND if size > 1 else 1.0)
    total = math.inf if exponent > 700 else delta * math.expm1(exponent) / math.expm1(epsilon)
    return exponent, min(1.0, total * _ROUND)
