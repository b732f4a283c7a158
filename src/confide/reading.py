"""The one reader of x: what a row says, for the guide, for the copies, and for whatever else answers.

Whether a row is refused, and in which words, depends on the row and on what was declared, never on who reads it:

- None and NaN are missing, in columns of every kind, and so is a name that x does not have.
- A number is any real number, a truth value, or a text such as "41"; one that is too large for a float is an infinity.
- A category is a text, a number (equal numbers are equal categories), or bytes, by their hexadecimal digits.
- A text is a text.
- Where no names are declared, a value is a text, bytes or a number, and its name a text or a whole number.

Whatever else a value is, or raises when it is looked at, refuses its row. What is said of it quotes nothing of it but
names that were declared.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from confide.contained import Contained, by_signal, contained
from confide.values import number_in

__all__ = ["FORM", "Malformed", "Plain", "Reader", "Values", "category_of", "number_of", "read_anything", "text_of"]

FORM = "x is not of a form that these features take: give plain numbers and texts"
"""What is said of an x that raises something of its own: what that was stays untold."""

Plain = str | float | bool | None
"""A value of which nothing was declared, as Python's own."""

_MISSING = float("nan")
_PLAIN = frozenset({float, int, bool, type(None)})
_NAMES = 1 << 63  # a whole number that is a name is smaller


class Malformed(ValueError):
    """What is wrong with x, in words of ours: they quote nothing of it but the names that were declared."""


class Values(NamedTuple):
    """One row, read. A missing number is NaN, a missing category or text is None."""

    numbers: NDArray[np.float64]
    categories: tuple[str | None, ...]
    texts: tuple[str | None, ...]


@dataclass(frozen=True)
class Reader:
    """Reads declared columns of x, a dict by name or an array by position. What is not declared is ignored.

    Where names are positions, a dict of other names only is refused: it was meant for another model.

    Parameters
    ----------
    numeric, categorical, text
        Names of columns by kind; for arrays their positions, as "0", "1", ….

    Examples
    --------
    >>> Reader(numeric=("age",), categorical=("city", "zip")).values({"age": "41", "city": "Rome", "zip": 184.0})
    Values(numbers=array([41.]), categories=('Rome', '184'), texts=())
    >>> Reader.of_array(3).values([1, 2, None]).numbers
    array([ 1.,  2., nan])
    """

    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    positions: int | None = field(init=False, repr=False, compare=False)
    """The length of an array that is read by position; None where names are no positions."""
    straight: bool = field(init=False, repr=False, compare=False)
    """Whether x is an array of numbers, in the order of their positions."""

    def __post_init__(self) -> None:
        for kind in ("numeric", "categorical", "text"):
            if isinstance(getattr(self, kind), str):
                raise ValueError(f"{kind} takes a list of names, not one string")
            object.__setattr__(self, kind, tuple(getattr(self, kind)))
        names = [*self.numeric, *self.categorical, *self.text]
        if not names or len(set(names)) < len(names):
            raise ValueError("declare at least one feature, and each name once")
        positions = set(names) == set(map(str, range(len(names))))
        object.__setattr__(self, "positions", len(names) if positions else None)
        object.__setattr__(self, "straight", positions and self.numeric == _places(len(names)))

    @classmethod
    def of_array(cls, width: int) -> Self:
        """All numbers, by position."""
        return cls(numeric=_places(width))

    def values(self, x: Any, /) -> Values:
        """What `x` says, or a `Malformed` that says what is wrong with it."""
        try:
            if type(x) is np.ndarray or not isinstance(x, Mapping):  # to ask for an abstract class takes longer
                if self.straight and (numbers := _numbers(x)) is not None and numbers.size == self.positions:
                    return Values(numbers, (), ())
                x = self._by_position(x)
            else:
                self.check(x)
            return Values(
                np.array([number_of(name, x.get(name)) for name in self.numeric], dtype=np.float64),
                tuple([category_of(name, x.get(name)) for name in self.categorical]),
                tuple([text_of(name, x.get(name)) for name in self.text]),
            )
        except BaseException as error:  # x may be any object at all, and raise anything when it is looked at
            if isinstance(error, Malformed) or by_signal(error):
                raise
        raise Malformed(FORM)

    def check(self, x: Mapping[Any, Any], /) -> None:
        """Refuse names of which none is a column where columns are positions: nothing would be left of such an x."""
        if self.positions is not None and x and not any(str(i) in x for i in range(self.positions)):
            raise Malformed("x has none of the features that were declared: give an array, or their positions as names")

    def _by_position(self, x: Any) -> Mapping[str, Any]:
        if self.positions is None:
            raise Malformed("x must be a dict of features, as declared; of a pandas row: x.to_dict()")
        values = _row_of(x)
        if len(values) != self.positions:
            raise Malformed(f"x has another number of features than the {self.positions} that were declared")
        return {str(i): value for i, value in enumerate(values)}


def read_anything(x: Any) -> dict[str | int, Plain] | list[Plain]:
    """What `x` says where no names were declared: a dict's values by their names, or an array's in their order.

    Examples
    --------
    >>> import numpy as np
    >>> read_anything({"age": np.int8(41), "city": "Rome", "zip": float("nan")})
    {'age': 41.0, 'city': 'Rome', 'zip': None}
    >>> read_anything((True, b"so"))
    [True, '736f']
    """
    with Contained(Malformed):
        if isinstance(x, Mapping):
            return {_name(name): _plain(value) for name, value in x.items()}
        return [_plain(value) for value in _row_of(x)]
    raise Malformed(FORM)


def number_of(name: str, value: Any) -> float:
    """The number that `value` is in the declared column `name`; NaN where it is missing."""
    if type(value) is float:
        return value
    if type(value) is int:
        return _float(value)
    if value is None:
        return _MISSING
    with contained:
        if isinstance(value, str):
            found = number_in(value)
            return _MISSING if found is None else found
        if isinstance(value, Real | np.bool_):
            return _float(value)
    raise Malformed(f"feature {name!r} must be a number, or None where it is missing")


def category_of(name: str, value: Any) -> str | None:
    """The category that `value` is in the declared column `name`; None where it is missing."""
    if value is None or type(value) is str:
        return value
    with contained:
        found = _text_or_number(value)
        if isinstance(found, float):
            return None if math.isnan(found) else str(int(found)) if found.is_integer() else repr(found)
        if found is not None:
            return found
    raise Malformed(f"feature {name!r} must be a text, bytes, a number, or None where it is missing")


def text_of(name: str, value: Any) -> str | None:
    """The text that `value` is in the declared column `name`; None where it is missing."""
    if value is None or type(value) is str:
        return value
    with contained:
        if isinstance(value, str):
            return str.__str__(value)  # a subclass may answer otherwise every time
        if isinstance(value, Real) and math.isnan(_float(value)):
            return None
    raise Malformed(f"feature {name!r} must be a text, or None where it is missing")


def _text_or_number(value: Any) -> str | float | None:
    """A text, bytes as one, or a number; None for what is neither."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.hex(value)
    return _float(value) if isinstance(value, Real | np.bool_) else None


def _plain(value: Any) -> Plain:
    if value is None:
        return None
    with contained:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        found = _text_or_number(value)
        if found is not None:
            return None if found != found else found
    raise Malformed("a feature must be a number, a text, bytes, or None where it is missing")


def _name(name: Any) -> str | int:
    with contained:
        if isinstance(name, str):
            return str.__str__(name)
        if isinstance(name, int | np.integer) and abs(int(name)) < _NAMES:
            return int(name)
    raise Malformed("a feature's name must be a text or a whole number")


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return float("-inf") if value < 0 else float("inf")


@functools.cache
def _places(width: int) -> tuple[str, ...]:
    return tuple(map(str, range(width)))


def _numbers(x: Any) -> NDArray[np.float64] | None:
    """An array of plain numbers at once, by the rules of `number_of`; None where values are to be read one by one."""
    if type(x) is np.ndarray:
        plain = x.ndim == 1 and x.dtype.kind in "fiub" and x.dtype.itemsize <= 8
    else:
        plain = type(x) in (list, tuple) and _PLAIN.issuperset(map(type, x))
    try:
        return np.array(x, dtype=np.float64) if plain else None  # None is NaN here too
    except OverflowError:  # an integer of hundreds of digits
        return None


def _row_of(x: Any) -> Sequence[Any]:
    """The values of a one-dimensional array, or of a list of any kind."""
    if isinstance(x, Sequence) and not isinstance(x, str | bytes):
        return x
    array = x if isinstance(x, np.ndarray) else np.asarray(None if isinstance(x, str | bytes) else x)
    if array.ndim != 1:
        raise Malformed("x must be a dict of features, or a one-dimensional array")
    return array.tolist() if array.dtype.kind in "fiub" else list(array)
