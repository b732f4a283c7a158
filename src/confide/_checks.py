"""Checks of arguments that several modules share. They refuse with ValueError and never show the value."""

import operator
import os
from fractions import Fraction
from numbers import Rational
from typing import SupportsIndex

__all__ = ["integer", "own_process", "positive_rational", "probability"]


def integer(value: SupportsIndex, name: str, at_least: int | None = None, at_most: int | None = None) -> int:
    """`value` as an int, from the given range; True and False are no numbers here.

    Examples
    --------
    >>> integer(3.0, "copies")
    Traceback (most recent call last):
    ...
    ValueError: copies must be an integer, not float
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer, not {type(value).__name__}") from None
    if isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, not bool")
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} must be at least {at_least}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most}")
    return number


def positive_rational(value: Fraction | int, name: str) -> Fraction:
    """`value` as a positive Fraction; floats are refused, since exact noise has no use for them."""
    if type(value) is not Fraction:
        if isinstance(value, bool) or not isinstance(value, Rational):
            raise ValueError(f"{name} must be an int or a Fraction, not {type(value).__name__}")
        value = Fraction(int(value.numerator), int(value.denominator))
    if value.numerator <= 0:
        raise ValueError(f"{name} must be positive")
    return value


def probability(value: float, name: str) -> float:
    """`value`, if it lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1")
    return value


def own_process(pid: int, name: str) -> None:
    """Refuse in a forked child what was made by process `pid`: two processes must not spend one budget."""
    if os.getpid() != pid:
        raise RuntimeError(
            f"this {name} was forked: two processes must not spend one budget; make it in the process that uses it"
        )
