"""From what people ask to what learners take: fixed columns, and nothing that is learned from data.

A vocabulary or a scaler in front of the copies would be shared between people, and would leak. So columns are
declared by name or found by a fixed hash (CRC-32: the same in every process), and scaling happens inside the
copies.
"""

from __future__ import annotations

import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.contained import contained
from confide.learners.base import Base, vector
from confide.text import Embedding, TextEncoder
from confide.values import number_in, plain_number

__all__ = ["AsGiven", "Columns", "Encoder", "Features", "HashedFeatures", "Pipeline", "encoder_for"]

_WORD = re.compile(r"\w+")
_NUMBER = "a feature must be a finite number that float32 can hold"
_FORM = "x is not of a form that these features take: give plain numbers and texts"


@runtime_checkable
class Encoder(Protocol):
    """Turns what people ask into what a learner takes, by a rule that was fixed beforehand."""

    def encode(self, x: Any, /) -> Any:
        """A new object that shares nothing with `x`, or a ValueError that says what is wrong with it."""


class _Malformed(ValueError):
    """What is wrong with x, in words of ours: they quote nothing of it."""


class _Encoding(Base, ABC):
    @abstractmethod
    def _encode(self, x: Any) -> Any:
        """What `encode` gives; whatever it raises is turned into a ValueError that quotes nothing of x."""

    def encode(self, x: Any, /) -> Any:
        """See `Encoder`."""
        said = _FORM
        with contained:  # x may be any object at all, and raise anything when it is looked at
            try:
                return self._encode(x)
            except _Malformed as error:
                said = str(error)
        raise ValueError(said)

    def __or__(self, learner: Any) -> Pipeline:
        return Pipeline(self, learner)


class Columns(_Encoding):
    """x is an array of `width` numbers.

    Examples
    --------
    >>> Columns(3).encode([1, 2, 3])
    array([1., 2., 3.])
    >>> Columns(3).encode([1, 2, float("nan")])
    Traceback (most recent call last):
    ...
    ValueError: x has a NaN, an infinity or a number above float32's range: clean it first
    """

    def __init__(self, width: int) -> None:
        self.width = integer(width, "the number of features", 1)

    def _encode(self, x: Any) -> NDArray[np.float64]:
        if isinstance(x, Mapping):
            raise _Malformed("x is a dict where an array is expected: declare its names with Features")
        return _vector(x, self.width)


class Features(_Encoding):
    """x is a dict, and its names are declared. Names that were not declared are ignored.

    Parameters
    ----------
    numeric
        Names of numbers, one column each; a missing one is 0, and a text such as "41" is that number. With a mapping
        name → (low, high), or None, the ranges are public: the guide starts from them, until private counts show where
        a column lies; the copies take numbers as they come.
    log
        Names of numbers of very different sizes, as sign(v)·ln(1+|v|); a missing one is 0.
    categorical
        Names of categories, each with its number of columns: the value is hashed to one of them.
    text
        Names of texts, each with its number of columns: how often words fall on each, by their hash. Or with a public
        frozen encoder, by its name or itself (`confide.text`): the copies take its vectors, the guide these and the
        hashed words.

    Examples
    --------
    >>> features = Features(numeric=["age"], categorical={"city": 4}, text={"note": 8})
    >>> features.encode({"age": 41, "city": "Rome", "note": "so far so good"})
    array([41.,  0.,  1.,  0.,  0.,  0.,  0.,  1.,  2.,  0.,  0.,  1.,  0.])
    >>> features.encode({"age": float("nan")})
    Traceback (most recent call last):
    ...
    ValueError: feature 'age' must be a finite number that float32 can hold
    """

    def __init__(
        self,
        numeric: Sequence[str] | Mapping[str, tuple[float, float] | None] = (),
        log: Sequence[str] = (),
        categorical: Mapping[str, int] | None = None,
        text: Mapping[str, int | str | TextEncoder] | None = None,
    ) -> None:
        if isinstance(numeric, str) or isinstance(log, str):
            raise ValueError("numeric and log take a list of names, not one string")
        for what, given in (("categorical", categorical), ("text", text)):
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(f"{what} takes names with their widths, as {what}={{'name': 64}}")
        if isinstance(numeric, Mapping):
            numeric = {name: _ends(ends, name) for name, ends in numeric.items()}
        self.numeric, self.log = numeric, log
        self.categorical, self.text = categorical, text
        column = len(numeric) + len(log)
        self.embeddings = {name: Embedding(kind) for name, kind in (text or {}).items() if _is_encoder(kind)}
        """The encoders of those texts that have one, as they are asked."""
        self._hashed: list[tuple[str, int, int, bool]] = []
        widths = {name: each.width for name, each in self.embeddings.items()}
        texts: dict[str, Any] = {**(text or {}), **widths}
        for group, words in ((categorical or {}, False), (texts, True)):
            for name, width in group.items():
                self._hashed.append((name, column, integer(width, f"the width of {name!r}", 1), words))
                column += width
        names = [*numeric, *log, *(name for name, *_ in self._hashed)]
        if not names or len(set(names)) < len(names):
            raise ValueError("declare at least one feature, and each name once")
        self.width = column

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The declared ranges of numbers; empty where there are none."""
        numeric = self.numeric if isinstance(self.numeric, Mapping) else {}
        return {name: ends for name, ends in numeric.items() if ends is not None}

    @property
    def declared(self) -> tuple[str, ...]:
        """The names that x may have, as they were given."""
        return tuple(dict.fromkeys((*self.numeric, *self.log, *(name for name, *_ in self._hashed))))

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each column: a number's own, and for hashed ones the name and a count."""
        hashed = [f"{name} {column}" for name, _, width, _ in self._hashed for column in range(width)]
        return (*self.numeric, *self.log, *hashed)

    def _encode(self, x: Any) -> NDArray[np.float64]:
        _dict(x)
        row = np.zeros(self.width)
        column = 0
        for name in self.numeric:
            row[column] = _number(x.get(name), name)
            column += 1
        for name in self.log:
            value = _number(x.get(name), name)
            row[column] = math.copysign(math.log1p(abs(value)), value)
            column += 1
        for name, first, width, words in self._hashed:
            value = x.get(name)
            if value is None:
                continue
            if not words:
                row[first + _column(_category(value, name), width)] = 1.0
            elif not isinstance(value, str):
                raise _Malformed(f"feature {name!r} must be a text")
            elif name in self.embeddings:
                row[first : first + width] = self.embeddings[name].vector(_text(value))
            else:
                for word in _WORD.findall(_text(value).lower()):
                    row[first + _column(word, width)] += 1.0
        row.flags.writeable = False
        return row


class HashedFeatures(_Encoding):
    """x is a dict with any names: each is hashed to one of `width` columns, and those that meet are added.

    A number is added to its name's column; a category counts 1 in the column of its name and value.

    Parameters
    ----------
    width
        The number of columns: more of them, fewer collisions.

    Examples
    --------
    >>> HashedFeatures(8).encode({"age": 41, "city": "Rome"})
    array([ 1.,  0., 41.,  0.,  0.,  0.,  0.,  0.])
    """

    def __init__(self, width: int) -> None:
        self.width = integer(width, "width", 1)

    def _encode(self, x: Any) -> NDArray[np.float64]:
        _dict(x)
        row = np.zeros(self.width)
        for name, value in x.items():
            if isinstance(value, str):
                row[_column(f"{name}={_text(value)}", self.width)] += 1.0
            else:
                row[_column(str(name), self.width)] += _number(value)
        return _vector(row)  # sums may be too large where their parts were not


class AsGiven(_Encoding):
    """x goes to the learner as it is, copied and checked: for River's models and for learners of your own.

    A dict of numbers, texts and None, named by texts or whole numbers, stays a dict; anything else must be an array of
    numbers. Names and values come out as plain Python objects, whole numbers as integers however they were given:
    nothing that behaves in its own way reaches a copy, and no other row changes what this one is.

    Examples
    --------
    >>> AsGiven().encode({"age": 41, "city": "Rome"})
    {'age': 41, 'city': 'Rome'}
    """

    def _encode(self, x: Any) -> Any:
        return {_name(name): _plain(value) for name, value in x.items()} if isinstance(x, Mapping) else _vector(x)


class Pipeline(Base):
    """Features in front of a learner, written `features | learner`: a learner that takes what people ask.

    In a bank the features are encoded once a round, not once a copy.

    Examples
    --------
    >>> from confide.learners import LogisticRegression
    >>> learner = Features(numeric=["age"], categorical={"city": 16}) | LogisticRegression()
    >>> for age in range(20, 60):
    ...     learner.learn({"age": age, "city": "Rome"}, int(age > 40))
    >>> learner.predict({"age": 25}), learner.predict({"age": 55})
    (0, 1)
    """

    def __init__(self, features: Encoder, learner: Any) -> None:
        if not isinstance(features, Encoder):
            raise ValueError("features must have an encode method: use Features or HashedFeatures")
        self.features, self.learner = features, learner
        self.numbered = bool(getattr(learner, "numbered", False))

    def predict(self, x: Any, /) -> Any:
        """What the learner says of `x`."""
        return self.learner.predict(self.features.encode(x))

    def learn(self, x: Any, y: Any, /) -> None:
        """Teach the learner that the label of `x` is `y`."""
        self.learner.learn(self.features.encode(x), y)


def encoder_for(features: int | Sequence[str] | Encoder | None) -> Encoder:
    """The encoder meant: a number of columns, the names of numbers, an encoder itself, or none.

    Examples
    --------
    >>> encoder_for(["age", "income"]).encode({"income": 2.5})
    array([0. , 2.5])
    """
    if features is None:
        return AsGiven()
    if isinstance(features, list | tuple):
        return Features(numeric=list(features))
    return features if isinstance(features, Encoder) else Columns(features)  # type: ignore[arg-type]  # checked there


def _ends(ends: Any, name: str) -> tuple[float, float] | None:
    if ends is None:
        return None
    try:
        low, high = map(float, ends)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"the range of {name!r} must be two finite numbers, the smaller one first")
    return low, high


def _is_encoder(kind: Any) -> TypeGuard[str | TextEncoder]:
    return not isinstance(kind, Integral | float)  # a number that is no width is refused as such


def _column(key: str, width: int) -> int:
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % width


def _dict(x: Any) -> None:
    if not isinstance(x, Mapping):
        raise _Malformed("x must be a dict of features, as declared")


def _vector(x: Any, width: int | None = None) -> NDArray[np.float64]:
    try:
        return vector(x, width)
    except ValueError as error:  # its words quote nothing
        raise _Malformed(str(error)) from None


def _number(value: Any, declared: str | None = None) -> float:
    """`value` as a float. Only a declared name, which is public, may be quoted."""
    number = math.nan
    with contained:  # no number's text, too large an integer, or an object that only claims to be a number
        if isinstance(value, str) and declared is not None:
            value = number_in(value)
        if value is None:
            return 0.0
        number = float(value) if isinstance(value, Real | np.bool_) else math.nan
    if abs(number) <= 3.4e38:  # false for NaN too
        return number
    raise _Malformed(_NUMBER if declared is None else _NUMBER.replace("a feature", f"feature {declared!r}"))


def _text(value: str) -> str:
    return str.__str__(value)  # a subclass may answer otherwise every time


def _name(name: Any) -> str | int:
    if isinstance(name, str):
        return _text(name)
    if isinstance(name, int | np.integer):
        return int(name)
    raise _Malformed("a feature's name must be a text or a whole number")


def _plain(value: Any) -> str | float | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _text(value)
    number = _number(value)
    return bool(number) if isinstance(value, bool | np.bool_) else plain_number(number)


def _category(value: Any, declared: str) -> str:
    if isinstance(value, str):
        return _text(value)
    number = _number(value, declared)
    return str(int(number)) if number.is_integer() else repr(number)
