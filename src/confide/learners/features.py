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
from numbers import Integral
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.learners.base import LARGEST, Base, held
from confide.reading import Plain, Reader, read_anything
from confide.text import Embedding, TextEncoder
from confide.values import plain_number

_WORD = re.compile(r"\w+")


@runtime_checkable
class Encoder(Protocol):
    """Turns what people ask into what a learner takes, by a rule that was fixed beforehand."""

    def encode(self, x: Any, /) -> Any:
        """A new object that shares nothing with `x`, or a ValueError that says what is wrong with it."""


class _Encoding(Base, ABC):
    @abstractmethod
    def encode(self, x: Any, /) -> Any:
        """See `Encoder`."""

    def __or__(self, learner: Any) -> Pipeline:
        return Pipeline(self, learner)


class Columns(_Encoding):
    """x is an array of `width` numbers; a missing one is 0.

    Examples
    --------
    >>> Columns(3).encode([1, 2, None])
    array([1., 2., 0.])
    >>> Columns(3).encode([1, 2])
    Traceback (most recent call last):
    ...
    confide.reading.Malformed: x has another number of features than the 3 that were declared
    """

    def __init__(self, width: int) -> None:
        self.width = integer(width, "the number of features", 1)
        self._reader = Reader.of_array(self.width)

    def encode(self, x: Any, /) -> NDArray[np.float64]:
        """See `Encoder`."""
        return _fixed(held(self._reader.values(x).numbers))


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
    >>> features.encode({"age": "forty"})
    Traceback (most recent call last):
    ...
    confide.reading.Malformed: feature 'age' must be a number, or None where it is missing
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
        self._hashed: list[tuple[str, int, int]] = []
        widths = {name: each.width for name, each in self.embeddings.items()}
        hashed: list[tuple[str, Any]] = [*(categorical or {}).items(), *{**(text or {}), **widths}.items()]
        for name, width in hashed:
            self._hashed.append((name, column, integer(width, f"the width of {name!r}", 1)))
            column += width
        self.width = column
        self._reader = Reader((*numeric, *log), tuple(categorical or ()), tuple(text or ()))

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
        hashed = [f"{name} {column}" for name, _, width in self._hashed for column in range(width)]
        return (*self.numeric, *self.log, *hashed)

    def encode(self, x: Any, /) -> NDArray[np.float64]:
        """See `Encoder`."""
        numbers, categories, texts = self._reader.values(x)
        row = np.zeros(self.width)
        row[: numbers.size] = held(numbers)
        for column in range(len(self.numeric), numbers.size):
            row[column] = math.copysign(math.log1p(abs(row[column])), row[column])
        for (_, first, width), category in zip(self._hashed, categories, strict=False):
            if category is not None:
                row[first + _column(category, width)] = 1.0
        for (name, first, width), text in zip(self._hashed[len(categories) :], texts, strict=True):
            if text is not None and name in self.embeddings:
                row[first : first + width] = self.embeddings[name].vector(text)
            elif text is not None:
                for word in _WORD.findall(text.lower()):
                    row[first + _column(word, width)] += 1.0
        return _fixed(row)


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

    def encode(self, x: Any, /) -> NDArray[np.float64]:
        """See `Encoder`."""
        said = read_anything(x)
        row = np.zeros(self.width)
        for name, value in said.items() if isinstance(said, dict) else enumerate(said):
            if isinstance(value, str):
                row[_column(f"{name}={value}", self.width)] += 1.0
            elif value is not None:
                row[_column(str(name), self.width)] += _within(value)
        return _fixed(held(row))  # sums may be too large where their parts were not


class AsGiven(_Encoding):
    """x goes to the learner as it is, copied and checked: for River's models and for learners of your own.

    A dict of numbers, texts and None, named by texts or whole numbers, stays a dict. An array of numbers is an array,
    with NaN where one is missing; one that holds anything else is a tuple. Names and values come out as plain Python
    objects, whole numbers as integers however they were given: nothing that behaves in its own way reaches a copy, and
    no other row changes what this one is.

    Examples
    --------
    >>> AsGiven().encode({"age": 41, "city": "Rome"})
    {'age': 41, 'city': 'Rome'}
    """

    def encode(self, x: Any, /) -> Any:
        """See `Encoder`."""
        said = read_anything(x)
        if isinstance(said, dict):
            return {name: _own(value) for name, value in said.items()}
        numbers = [math.nan if value is None else _within(value) for value in said if not isinstance(value, str)]
        if len(numbers) < len(said):
            return tuple(map(_own, said))
        return _fixed(np.array(numbers, dtype=np.float64))


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


def _fixed(row: NDArray[np.float64]) -> NDArray[np.float64]:
    row.setflags(write=False)
    return row


def _within(number: float) -> float:
    """The nearest number that float32 can hold."""
    return min(max(float(number), -LARGEST), LARGEST)


def _own(value: Plain) -> Plain:
    return value if value is None or isinstance(value, str | bool) else plain_number(_within(value))
