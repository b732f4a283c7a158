"""Exact accounting for noisy sums alone: from μ to (ε, δ) and back, rounded outward (docs/proofs/exact.md).

Releases of Gaussian noise whose centres one unit moves by at most μ deviations, in all and however adaptively, are as
private as one Gaussian that is moved by μ: δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ). Discrete noise costs a *slack* on
top of that, which is tiny where deviations are large.

Everything is computed with `decimal`: +, −, ×, ÷ in contexts that round one way, and its exp and square root, which are
correctly rounded and then widened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from confide.privacy.cost import DOWN, UP, float_up
from confide.privacy.renyi import check_delta, check_epsilon

MOST_MU = 100
"""The proof asks for a μ of at most this."""

LEAST_DEVIATION = 100
"""… and for noise of at least this deviation."""

_LEAST_VALUES = 10**6  # fewer values of one deviation are counted as so many
_MOST_SLACK = 1  # beyond it nothing worth a promise is left
_FAR = 1000  # deviations: beyond them the hockey stick is taken as 1 or e^(−_FAR²/2), which it is not above
_RARE = Decimal(-1800)  # ln of the probability that values of one deviation are larger, in all, than the proof assumes
_PRECISE = Context(prec=50)
_WIDER, _NARROWER = UP.add(1, Decimal("1e-38")), DOWN.subtract(1, Decimal("1e-38"))
_ROOT = Decimal("1.25331413731550025120788264240552262650349337030496915831496178817")  # √(π/2), cut off
_SERIES = 3  # below it Mills' ratio is computed by a series, above it by a continued fraction


class Noise(NamedTuple):
    """Values of discrete Gaussian noise of one variance."""

    values: int
    """How many are released in all, at most."""
    variance: int


def delta_of(epsilon: float, mu2: Fraction, noises: Sequence[Noise]) -> float:
    """δ at this ε of noisy sums that one unit moves by at most √mu2 deviations in all; rounded up.

    Examples
    --------
    >>> large = Noise(values=10**6, variance=10**18)
    >>> f"{delta_of(1.0, Fraction(1, 20), [large]):.4g}"
    '2.915e-07'
    >>> f"{delta_of(2.0, Fraction(1), [large]):.4g}"
    '0.02092'
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon={epsilon} must be a finite number of at least 0")
    return float_up(min(Decimal(1), _bound(Fraction(epsilon), mu2, noises)))


def _bound(epsilon: Fraction, mu2: Fraction, noises: Sequence[Noise]) -> Decimal:
    if not 0 < mu2 <= MOST_MU**2:
        raise ValueError(f"exact accounting is proved for μ from above 0 to {MOST_MU}: take more noise")
    if not noises or min(noise.variance for noise in noises) < LEAST_DEVIATION**2:
        raise ValueError(f"exact accounting is proved for noise of a deviation of at least {LEAST_DEVIATION}")
    slack = slack_of(noises)
    if slack > _MOST_SLACK:
        raise ValueError("too many values have too little noise for exact accounting: take more noise or fewer values")
    mu = UP.multiply(_PRECISE.sqrt(_quotient(UP, mu2)), _WIDER)
    likely = hockey_stick(_quotient(DOWN, epsilon - slack), mu)
    rare = UP.multiply(Decimal(len(noises)), _exp(UP, _RARE))
    return UP.multiply(_exp(UP, _quotient(UP, slack / 4)), UP.add(likely, rare))


def slack_of(noises: Sequence[Noise]) -> Fraction:
    """By how much ε falls, and four times the logarithm by which δ grows, because the noise is discrete."""
    return sum((Fraction(max(n, _LEAST_VALUES), 2 * variance) for n, variance in noises), Fraction(0))


def epsilon_of(delta: float, mu2: Fraction, noises: Sequence[Noise]) -> float:
    """The smallest ε, to some fifteen digits and from above, at which `delta_of` is at most δ.

    Examples
    --------
    >>> round(epsilon_of(1e-6, Fraction(1, 20), [Noise(10**6, 10**18)]), 4)
    0.9405
    """
    most, high = Decimal(check_delta(delta)), 1.0
    if _bound(Fraction(0), mu2, noises) <= most:
        return 0.0
    while _bound(Fraction(high), mu2, noises) > most:
        high *= 2
    mu, slack = math.sqrt(mu2), float(slack_of(noises))
    return _bisect(
        0.0,
        high,
        lambda epsilon: _bound(Fraction(epsilon), mu2, noises) <= most,
        lambda epsilon: _roughly(epsilon - slack, mu) <= delta * math.exp(-slack / 4),
    )[1]


@lru_cache(maxsize=256)  # whoever plans once plans again
def most_mu2(epsilon: float, delta: float) -> float:
    """The largest μ² with which noise without slack keeps (ε, δ), to some fifteen digits: for design only.

    Examples
    --------
    >>> round(most_mu2(1.0, 1e-6), 5)
    0.05603
    """
    at, most = Decimal(check_epsilon(epsilon)), Decimal(check_delta(delta))
    if hockey_stick(at, Decimal(MOST_MU)) <= most:
        return float(MOST_MU) ** 2
    found = _bisect(
        0.0, float(MOST_MU), lambda mu: hockey_stick(at, Decimal(mu)) > most, lambda mu: _roughly(epsilon, mu) > delta
    )
    return found[0] ** 2


def _bisect(
    low: float, high: float, beyond: Callable[[float], bool], roughly: Callable[[float], bool] | None = None
) -> tuple[float, float]:
    """Neighbours, to some fifteen digits, between which `beyond` becomes true; it is true at `high`.

    `beyond` becomes true once and stays so: what it is computed from is rounded in the 36th digit, and changes in the
    14th from one neighbour to the next. So it is asked where `roughly` changes first, and then only of what that leaves
    open. The neighbours are the same with any `roughly`: a bad one costs time alone.
    """
    no, yes = -math.inf, math.inf
    guess = low if roughly is None else _bisect(low, high, roughly)[1]
    for away in (-1e-9, 1e-9, -1e-12, 1e-12):
        near = guess * (1 + away)
        if max(low, no) < near < min(yes, high):
            no, yes = (no, near) if beyond(near) else (near, yes)
    while high - low > 2e-15 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if middle >= yes or (middle > no and beyond(middle)) else (middle, high)
    return low, high


def _roughly(epsilon: float, mu: float) -> float:
    """`hockey_stick` in floats."""
    first, second = (math.erfc((epsilon / mu + side * mu / 2) / math.sqrt(2)) / 2 for side in (-1, 1))
    return first - math.exp(min(epsilon, 700)) * second


def hockey_stick(epsilon: Decimal, mu: Decimal) -> Decimal:
    """Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) for μ > 0 and any ε; rounded up.

    It is φ(z)·(m(z) − m(z+μ)) with z = ε/μ − μ/2, φ the normal density and m Mills' ratio.
    """
    half = UP.multiply(mu, Decimal("0.5")), DOWN.multiply(mu, Decimal("0.5"))
    low = DOWN.subtract(DOWN.divide(epsilon, mu), half[0])
    high = UP.subtract(UP.divide(epsilon, mu), half[1])
    end = UP.add(UP.divide(epsilon, mu), half[0])
    if not -_FAR < low < _FAR:
        return Decimal(1) if low < 0 else _exp(UP, Decimal(-_FAR * _FAR // 2))
    least = Decimal(0) if low <= 0 <= high else min(low.copy_abs(), high.copy_abs())
    exponent = UP.multiply(DOWN.multiply(least, least), Decimal("-0.5"))  # of a negative number: toward zero
    density = UP.divide(_exp(UP, exponent), DOWN.multiply(2, _ROOT))
    return UP.multiply(density, max(Decimal(0), UP.subtract(mills(low)[1], mills(end)[0])))


def mills(x: Decimal) -> tuple[Decimal, Decimal]:
    """A lower and an upper bound of Mills' ratio (1 − Φ(x))/φ(x).

    Examples
    --------
    >>> low, high = mills(Decimal(2))
    >>> f"{low:.30f}", high - low < Decimal("1e-36")
    ('0.421369229288054473224934333542', True)
    """
    if x >= _SERIES:
        return _fraction(x)
    square = UP.multiply(x, x), DOWN.multiply(x, x)
    grown = tuple(_exp(c, c.multiply(s, Decimal("0.5"))) for c, s in zip((DOWN, UP), square[::-1], strict=True))
    whole = DOWN.multiply(grown[0], _ROOT), UP.multiply(grown[1], UP.plus(_ROOT))
    if x < 0:  # m(x) + m(−x) = 1/φ(x)
        other = mills(x.copy_negate())
        return DOWN.subtract(DOWN.multiply(2, whole[0]), other[1]), UP.subtract(UP.multiply(2, whole[1]), other[0])
    low, high = _odd_series(x)
    return DOWN.subtract(whole[0], high), UP.subtract(whole[1], low)


def _odd_series(x: Decimal) -> tuple[Decimal, Decimal]:
    """Bounds of x + x³/3 + x⁵/(3·5) + …, which is (Φ(x) − ½)/φ(x), for 0 ≤ x < 3."""
    low = high = below = above = x
    for odd in range(3, 201, 2):
        below = DOWN.divide(DOWN.multiply(DOWN.multiply(below, x), x), Decimal(odd))
        above = UP.divide(UP.multiply(UP.multiply(above, x), x), Decimal(odd))
        low, high = DOWN.add(low, below), UP.add(high, above)
    return low, UP.add(high, above)  # from odd = 18 on every term is below half of the one before


def _fraction(x: Decimal) -> tuple[Decimal, Decimal]:
    """Bounds by the continued fraction 1/(x + 1/(x + 2/(x + 3/…))), for x ≥ 3."""
    levels = 20 + math.ceil(1800 / float(x) ** 2)
    low, high = x, UP.add(x, UP.divide(Decimal(levels), x))
    for k in range(levels - 1, 0, -1):
        low, high = DOWN.add(x, DOWN.divide(Decimal(k), high)), UP.add(x, UP.divide(Decimal(k), low))
    return DOWN.divide(Decimal(1), high), UP.divide(Decimal(1), low)


def _exp(context: Context, x: Decimal) -> Decimal:
    """e^x, rounded as the context rounds."""
    return context.multiply(x.exp(_PRECISE), _WIDER if context is UP else _NARROWER)


def _quotient(context: Context, value: Fraction) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))
