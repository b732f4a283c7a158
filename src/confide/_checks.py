"""Checks of arguments that several modules share. They refuse with ValueError and never show the value."""

import math
import operator
import os
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import fields
from fractions import Fraction
from functools import cache
from numbers import Rational, Real
from typing import Any, SupportsIndex, cast

import numpy as np

__all__ = ["Numbers", "integer", "label_weights", "own_process", "positive_rational", "probability", "real"]


def integer(value: SupportsIndex, name: str, at_least: int | None = None, at_most: int | None = None) -> int:
    """`value` as an int, from the given range; True and False are no numbers here.

    Examples
    --------
    >>> integer(3.0, "copies")
    Traceback (most recent call last):
    ...
    ValueError: copies must be an integer, not float
    """
    if type(value) is int:  # as most are
        number = value
    else:
        try:
            number = int(operator.index(value))
        except TypeError:
            raise ValueError(f"{name} must be an integer, not {type(value).__name__}") from None
        if isinstance(value, bool):
            raise ValueError(f"{name} must be an integer, not bool")
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} must be at least {at_least}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most}")
    return number


def real(value: Any, name: str) -> float:
    """`value` as a float; what is no number is refused.

    Examples
    --------
    >>> real(float("nan"), "epsilon")
    Traceback (most recent call last):
    ...
    ValueError: epsilon must be a number, not nan
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that a double holds") from None
    if math.isnan(number):
        raise ValueError(f"{name} must be a number, not nan")
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


def _whole(value: Any, name: str) -> int:
    return integer(value, name, at_most=1 << 100)  # so that it, and what is made of it, is within a double's range


def _truth(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, not {type(value).__name__}")
    return bool(value)


_PLAIN: dict[Any, Callable[[Any, str], Any]] = {
    "int": _whole, "float": real, "bool": _truth, "Fraction": positive_rational,
}  # fmt: skip


class Numbers:
    """A dataclass whose numbers are Python's own after construction, whatever kind they were given as.

    What is declared `int`, `float`, `bool` or `Fraction` (or one of them, or None) is checked and converted here, in
    one place. NumPy's integers wrap, so that a certificate computed with them could state too small a cost.
    """

    def __post_init__(self) -> None:
        for name, made, optional in _numbers_of(cast(Any, type(self))):
            value = getattr(self, name)
            if not (optional and value is None):
                object.__setattr__(self, name, made(value, name))


@cache
def _numbers_of(kind: Any) -> tuple[tuple[str, Callable[[Any, str], Any], bool], ...]:
    """The fields that are numbers: name, how one is made, and whether there may be none."""
    declared = [(each.name, *str(each.type).partition(" | ")) for each in fields(kind)]
    numbers = [one for one in declared if one[1] in _PLAIN and one[3] in ("", "None")]
    return tuple((name, _PLAIN[plain], other == "None") for name, plain, _, other in numbers)


def all_labels(given: Any) -> tuple[Hashable, ...]:
    """All labels, each one of them; a text alone would be taken for its letters.

    Examples
    --------
    >>> all_labels("yes")
    Traceback (most recent call last):
    ...
    ValueError: labels must be a sequence of all labels, as ["no", "yes"], and not a text
    """
    kind = "a text" if isinstance(given, str | bytes) else "a set, which has no order" if isinstance(given, Set) else ""
    try:
        found = tuple(given)
    except TypeError:
        kind, found = type(given).__name__, ()
    if kind or isinstance(given, Mapping):
        raise ValueError(f'labels must be a sequence of all labels, as ["no", "yes"], and not {kind or "a mapping"}')
    if len(found) < 2:
        raise ValueError('labels must be two or more, all that there may be, as ["no", "yes"]')
    for label in found:
        if not isinstance(label, Hashable):
            raise ValueError(f"labels: each must be a text, a number or a truth value, not {type(label).__name__}")
        if label is None or label != label:
            raise ValueError("labels: None and NaN are no labels; name what stands for a missing one, as 'none'")
    same = {str(label): label for label in reversed(found)}
    for label in found:
        if label != same[str(label)]:
            raise ValueError(
                f"labels: {same[str(label)]!r} and {label!r} are two labels that are written alike: give each another "
                "text, or only one of them"
            )
    return found


def label_weights(given: Any, labels: Sequence[Hashable]) -> list[float] | None:
    """One positive weight a label, in their order: given as such, or by label, where one that is not named has 1.

    Examples
    --------
    >>> label_weights({"fraud": 20}, ["genuine", "fraud"]), label_weights([1, 5], [False, True])
    ([1.0, 20.0], [1.0, 5.0])
    >>> label_weights({"frod": 20}, ["genuine", "fraud"])
    Traceback (most recent call last):
    ...
    ValueError: label_weights: 'frod' is none of the labels 'genuine', 'fraud'
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in labels]:
            raise ValueError(f"label_weights: {unknown[0]!r} is none of the labels {', '.join(map(repr, labels))}")
        given = [given.get(label, 1.0) for label in labels]
    weights = [real(weight, "each of label_weights") for weight in np.atleast_1d(given).tolist()]
    if len(weights) != len(labels) or not all(0 < weight < math.inf for weight in weights):
        raise ValueError(f"label_weights must hold {len(labels)} positive numbers, one for each label")
    return weights
