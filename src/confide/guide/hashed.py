"""A map for rows whose names were not declared: every name and value finds its place by a fixed hash.

Nothing is known beforehand, so nothing needs a range: a number is its sign and quarter octave, a short text a category,
a long one its words. Pairs of a row's values have places too: what two columns say together, one alone may not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints
from confide.contained import contained
from confide.guide.columns import digest, parts_of, words_of
from confide.guide.maps import Encoded
from confide.guide.ranges import octave
from confide.kernels.compile import jit
from confide.reading import Plain, read_anything

Digests = NDArray[np.uint64]

_BIAS, _SINGLE, _PAIR = 0.1, 1.0, 1.0  # shares of the squared norm, up to scale
_UNDER = 1 - 2.0**-20
_LONG = 4  # blanks in a text from which on it is read word by word
_KEPT = 1 << 16
_NOTHING = Encoded(np.zeros(0, dtype=np.int64), np.zeros(0))
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

    @property
    def constant(self) -> float:
        """The value of the first feature, the same for all rows that have single values and pairs."""
        return math.sqrt(_BIAS / (_BIAS + _SINGLE + _PAIR))

    def encode(self, x: Any, /) -> Encoded:
        """The active features of `x`, or a `Malformed` that says what is wrong with it and shows nothing of it."""
        return self._encode(x, _Digests())

    def encode_many(self, rows: Iterable[Any]) -> tuple[Encoded, Ints, NDArray[np.bool_]]:
        """The features of rows, one after the other, how many each has, and which were refused: the bits of `encode`.

        Equal values of one call are hashed once, which others may notice by the clock alone.
        """
        known, found, sizes = _Digests(), [_NOTHING], []
        for x in rows:
            one = _NOTHING
            with contained:
                one = self._encode(x, known)
            found.append(one)
            sizes.append(one.indices.size)
        every = Encoded(*(np.concatenate(part) for part in zip(*found, strict=True)))
        return every, np.array(sizes, dtype=np.int64), np.array(sizes, dtype=np.int64) == 0

    def _encode(self, x: Any, known: _Digests) -> Encoded:
        said = read_anything(x)
        named = said.items() if isinstance(said, dict) else enumerate(said)
        singles: list[int] = []
        short: list[tuple[int, int]] = []  # digests of names and of what they say in one token
        for name, value in sorted(((str(name), value) for name, value in named), key=lambda item: item[0])[:_MOST]:
            found = _tokens(name, value)
            singles += [known[token] for token in found]
            if len(found) == 1:
                short.append((known[name], singles[-1]))
        crossed = [said for _, said in sorted(short)[: 2 + math.isqrt(2 * self.pairs)]]
        digests = np.array(singles, dtype=np.uint64), np.array(crossed, dtype=np.uint64)
        return Encoded(*_share_out(*digests, self.pairs, self.width - 1))

    def params(self) -> dict[str, Any]:
        """What makes the same map again: JSON's kinds of values only."""
        return {"width": self.width, "pairs": self.pairs}


@jit
def _share_out(singles: Digests, crossed: Digests, pairs: int, places: int) -> tuple[Ints, Floats]:
    """The places of a bias, of single values and of pairs, and the roots of their shares; those that meet are added."""
    many = min(pairs, crossed.size * (crossed.size - 1) // 2)
    total = _BIAS + (_SINGLE if singles.size else 0.0) + (_PAIR if many else 0.0)
    found, shares = np.zeros(1 + singles.size + many, np.int64), np.full(1 + singles.size + many, _BIAS / total)
    at = 1
    for digest_ in singles:
        found[at], shares[at] = 1 + np.int64(digest_ % np.uint64(places)), _SINGLE / singles.size / total
        at += 1
    for i in range(crossed.size):
        for j in range(i + 1, crossed.size):
            if at < found.size:
                mixed = crossed[i] * np.uint64(0x9E3779B97F4A7C15) + crossed[j] * np.uint64(0xC2B2AE3D27D4EB4F)
                mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
                mixed ^= mixed >> np.uint64(32)
                found[at], shares[at] = 1 + np.int64(mixed % np.uint64(places)), _PAIR / many / total
                at += 1
    order = np.argsort(found, kind="mergesort")
    last = 0
    indices, sums = np.zeros(found.size, np.int64), np.zeros(found.size)
    for k in order:
        if found[k] != indices[last]:
            last += 1
            indices[last] = found[k]
        sums[last] += shares[k]
    return indices[: last + 1].copy(), np.sqrt(sums[: last + 1]) * _UNDER


class _Digests(dict[str, int]):
    """Digests of tokens by what they were made of, as many as are kept."""

    def __missing__(self, token: str) -> int:
        if len(self) >= _KEPT:
            self.clear()
        found = self[token] = digest(token)
        return found


def _tokens(name: str, value: Plain) -> list[str]:
    """What a value says: nothing if it is missing, one token, or a long text's words."""
    if value is None:
        return []
    if isinstance(value, str):
        if value.count(" ") >= _LONG:
            return [f"{name} {part}" for word in words_of(value) for part in parts_of(word)]
        return [f"{name}={value}"]
    place = int(octave(float(value), 4))
    return [f"{name}#{place if value >= 0 else -place}"]
