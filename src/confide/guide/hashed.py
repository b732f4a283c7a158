"""A map for rows whose names were not declared: every name and value finds its place by a fixed hash.

Nothing is known beforehand, so nothing needs a range: a number is its sign and quarter octave, a short text a category,
a long one its words. Pairs of a row's values have places too: what two columns say together, one alone may not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np

from confide._checks import integer
from confide.guide.columns import FORM, Malformed, by_position, digest, tokens
from confide.guide.maps import Encoded
from confide.guide.ranges import octave

__all__ = ["HashedMap"]

_BIAS, _SINGLE, _PAIR = 0.1, 1.0, 1.0  # shares of the squared norm, up to scale
_UNDER = 1 - 2.0**-20
_LONG = 4  # blanks in a text from which on it is read word by word
_MOST = 1 << 12  # names of a row that are read, in the order of their names


@dataclass(frozen=True)
class HashedMap:
    """The range-free map of rows with any names.

    Parameters
    ----------
    width
        The number of places: more of them, fewer collisions.
    pairs
        How many pairs of a row's values are used, at most: those whose names come first by a fixed hash.

    Examples
    --------
    >>> features = HashedMap(1 << 13)
    >>> encoded = features.encode({"age": 41, "city": "Rome"})
    >>> encoded.indices.size, bool((encoded.values**2).sum() <= 1)
    (4, True)
    """

    width: int = 1 << 13
    pairs: int = 64

    def __post_init__(self) -> None:
        integer(self.width, "width", at_least=2, at_most=1 << 24)
        integer(self.pairs, "pairs", at_least=0, at_most=1 << 12)

    def encode(self, x: Any, /) -> Encoded:
        """The active features of `x`, or a `Malformed` that says what is wrong with it and shows nothing of it."""
        try:
            return self._encode(x if isinstance(x, Mapping) else by_position(x))
        except Malformed:
            raise
        except Exception:  # x may be any object at all, and raise anything when it is looked at
            raise Malformed(FORM) from None

    def _encode(self, x: Mapping[Any, Any]) -> Encoded:
        singles: dict[str, list[str]] = {}
        for name, value in sorted(((str(name), value) for name, value in x.items()), key=lambda item: item[0])[:_MOST]:
            found = _tokens(name, value)
            if found:
                singles[name] = found
        weights = {0: _BIAS}
        self._add(weights, Counter(token for found in singles.values() for token in found), _SINGLE)
        short = sorted((name for name, found in singles.items() if len(found) == 1), key=digest)
        crossed = list(combinations(short[: 2 + math.isqrt(2 * self.pairs)], 2))[: self.pairs]
        self._add(weights, Counter(f"{singles[a][0]}\n{singles[b][0]}" for a, b in crossed), _PAIR)
        total = sum(weights.values())
        places = sorted(weights)
        values = np.array([math.sqrt(weights[place] / total) for place in places]) * _UNDER
        return Encoded(np.array(places, dtype=np.int64), values)

    def _add(self, weights: dict[int, float], counts: Counter[str], share: float) -> None:
        """Share out one part of the squared norm by counts; those that meet in one place are added."""
        total = sum(counts.values())
        for token, count in counts.items():
            place = 1 + digest(token) % (self.width - 1)
            weights[place] = weights.get(place, 0.0) + share * count / total

    def params(self) -> dict[str, Any]:
        """What makes the same map again: JSON's kinds of values only."""
        return {"width": self.width, "pairs": self.pairs}


def _tokens(name: str, value: Any) -> list[str]:
    """What a value says: nothing if it is missing, one token, or a long text's words."""
    if value is None:
        return []
    if isinstance(value, str):
        value = str.__str__(value)  # a subclass may answer otherwise every time
        if value.count(" ") >= _LONG:
            return [f"{name} {token}" for token in tokens(value)]
        return [f"{name}={value}"]
    if isinstance(value, bytes):
        return [f"{name}={value.hex()}"]
    if not isinstance(value, Real | np.bool_):
        raise Malformed("a feature must be a number, a text, bytes, or None where it is missing")
    try:
        number = float(value)
    except OverflowError:
        return [f"{name}#huge"]
    if math.isnan(number):
        return []
    place = int(octave(number, 4))
    return [f"{name}#{place if number >= 0 else -place}"]
