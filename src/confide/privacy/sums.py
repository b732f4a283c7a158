"""Noisy prefix sums of integer vectors: what a guide learns from (docs/proofs/guide.md).

The inputs are *leaves*, integer vectors g₀, g₁, …; released are *nodes*, integer combinations of leaves plus discrete
Gaussian noise; everything else is computed from nodes. Node i is Σ_s F_is·g_s with F the square root of the prefix
matrix, its columns made equally long, in integers: the best known factorisation up to small constants (Henzinger,
Upadhyay, Upadhyay 2023; Fichtenberger, Henzinger, Upadhyay 2023). The binary tree has four times the variance.

*Load* is the price: the largest squared column norm of the integer matrix, so that a unit that moves its leaves by at
most Δ in total norm moves all nodes by at most μ = Δ·√load/σ deviations. It is computed in integers.
"""

from __future__ import annotations

import math
from collections import deque
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from itertools import accumulate
from operator import mul
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints
from confide.kernels.compile import jit
from confide.privacy.cost import UP, float_up

_Array = TypeVar("_Array", Ints, Floats)

MOST_LEAVES = 1024
_TOGETHER, _NEAR = 8, 2048  # sums that are begun at once, and coordinates of them: what a core keeps near
_EXACT = 1 << 62  # sums below this fit in 64-bit integers, with room for their noise


def divergence(order: int, mu2: Fraction) -> float:
    """Rényi divergence of noisy sums that one unit moves by √mu2 deviations in all: order·mu2/2, rounded up.

    Examples
    --------
    >>> divergence(order=10, mu2=Fraction(1, 20))
    0.25
    """
    order = integer(order, "order", at_least=2)
    if not mu2 >= 0:
        raise ValueError(f"mu2={mu2} must be at least 0")
    return float_up(UP.divide(Decimal(order * mu2.numerator), Decimal(2 * mu2.denominator)))


class SquareRoot:
    """The square root of the prefix matrix, in integers, its columns of one length: F_is = factor[i−s]·weights[s].

    `factor` holds the coefficients of (1−x)^(−1/2) times `scale`, rounded. Columns of that matrix become shorter, and
    the longest alone is paid for; so column s is multiplied by weights[s], rounded down, which makes it as long as the
    first is with its weight of `columns`. Decoding inverts the *rounded* matrix, so that the decoded sums are unbiased
    whatever the rounding did.

    Parameters
    ----------
    leaves
        How many, at most 1024.
    scale
        What the first coefficient is; larger, finer.
    columns
        The weight of the first column; larger, finer. With 1 there are no weights but 1.

    Examples
    --------
    >>> root = SquareRoot(1000)
    >>> root.factor[:4].tolist(), root.weights[[0, 500, 999]].tolist(), root.load
    ([512, 256, 192, 160], [1024, 1060, 1850], 897765605376)
    >>> round(float(root.load * root.variances().mean()), 2)
    8.91
    """

    def __init__(self, leaves: int, scale: int = 1 << 9, columns: int = 1 << 10) -> None:
        self.leaves = integer(leaves, "leaves", at_least=1, at_most=MOST_LEAVES)
        self.scale = integer(scale, "scale", at_least=1, at_most=1 << 20)
        self.columns = integer(columns, "columns", at_least=1, at_most=1 << 20)
        self.factor, self.weights, self.load = _square_root(self.leaves, self.scale, self.columns)

    @property
    def matrix(self) -> Ints:
        """F itself: row i is what of each leaf is in node i."""
        return _matrix(self.leaves, self.scale, self.columns)

    @property
    def decoder(self) -> Floats:
        """Row i turns the nodes up to i into the prefix sum up to leaf i."""
        return _inverse(self.leaves, self.scale, self.columns)

    def column(self, s: int) -> Ints:
        """What of leaf s is in each node from s on."""
        return np.asarray(self.factor[: self.leaves - s] * self.weights[s])

    def variances(self) -> Floats:
        """The variance of each decoded prefix sum, for noise of variance 1 in every node."""
        return np.asarray((self.decoder**2).sum(axis=1))

    def room(self, largest: int) -> bool:
        """Whether nodes of leaves with coordinates up to `largest` fit in 64 bits."""
        return largest * int(self.factor.sum()) * int(self.weights.max()) < _EXACT

    def __reduce__(self) -> tuple[Any, ...]:
        return SquareRoot, (self.leaves, self.scale, self.columns)


@cache
def _square_root(leaves: int, scale: int, columns: int) -> tuple[Ints, Ints, int]:
    factor, coefficient = [scale], Fraction(1)
    for k in range(1, leaves):
        coefficient *= Fraction(2 * k - 1, 2 * k)
        factor.append(max(1, round(scale * coefficient)))
    lengths = list(accumulate(value * value for value in factor))[::-1]  # squared, of the columns without weights
    load = columns * columns * lengths[0]
    weights = [math.isqrt(load // length) for length in lengths]
    first, second = np.array(factor, dtype=np.int64), np.array(weights, dtype=np.int64)
    return _fixed(first), _fixed(second), load


@lru_cache(maxsize=16)  # a megabyte or eight each
def _matrix(leaves: int, scale: int, columns: int) -> Ints:
    factor, weights, _ = _square_root(leaves, scale, columns)
    out = np.zeros((leaves, leaves), dtype=np.int64)
    for i in range(leaves):
        out[i, : i + 1] = factor[i::-1] * weights[: i + 1]
    return _fixed(out)


@lru_cache(maxsize=16)
def _inverse(leaves: int, scale: int, columns: int) -> Floats:
    """Rows that turn nodes into prefix sums: row i is row i−1 and the i-th of those that turn nodes into leaves."""
    factor, weights, _ = _square_root(leaves, scale, columns)
    series, out = _inverted([float(value) for value in factor]), np.zeros((leaves, leaves))
    for i in range(leaves):
        out[i] = out[i - 1] if i else 0.0
        out[i, : i + 1] += series[i::-1] / float(weights[i])
    return _fixed(out)


def _inverted(factor: list[float]) -> Floats:
    """The series of 1/factor(x)."""
    out = deque([1.0 / factor[0]])  # the newest first
    for _ in factor[1:]:  # no library's dot product: θ must have the same bits on every machine
        out.appendleft(-math.fsum(map(mul, factor[1:], out)) / factor[0])
    return np.array(out)[::-1].copy()


def _fixed(array: _Array) -> _Array:
    array.flags.writeable = False
    return array


class Products:
    """Nodes of leaves, or prefix sums of nodes, one after the other: Σ_{s ≤ i} M_is·x_s for i = 0, 1, …

    `product` defines the result: for each i it reads all vectors before i from memory. Here a few i are begun at once,
    when the first of them comes, so that each vector is read once for all of them. That is three times as fast. The
    terms and their order are the same, and so are the bits. No term is skipped because it is 0: the time would tell.

    Parameters
    ----------
    root
        The matrix.
    decoding
        Whether M is its decoder, and not the matrix itself.

    Examples
    --------
    >>> root, leaves = SquareRoot(3, scale=8, columns=1), np.array([[1], [10], [100]])
    >>> nodes, prefixes = Products(root), Products(root, decoding=True)
    >>> rows = np.array([nodes.at(i, leaves) for i in range(3)])
    >>> rows.tolist(), [round(float(prefixes.at(i, rows)[0]), 6) for i in range(3)]
    ([[8], [84], [843]], [1.0, 11.0, 111.0])
    """

    def __init__(self, root: SquareRoot, decoding: bool = False) -> None:
        self.root, self.decoding = root, decoding
        self._begun: tuple[int, NDArray[Any]] | None = None

    def at(self, i: int, x: Ints) -> NDArray[Any]:
        """The i-th sum, of x[0], …, x[i]; they are those of the calls before, and x[i]."""
        matrix: NDArray[Any] = self.root.decoder if self.decoding else self.root.matrix
        first = i - i % _TOGETHER
        if self._begun is None or self._begun[0] != first:
            begun = np.zeros((min(_TOGETHER, self.root.leaves - first), x.shape[1]), dtype=matrix.dtype)
            if first:  # of no columns there is nothing to add, and a slice of none is of another type to the compiler
                _begin(matrix[first : first + begun.shape[0], :first], x, begun)
            self._begun = first, begun
        out: NDArray[Any] = self._begun[1][i - first].copy()
        product(matrix[i], x, first, i + 1, out)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return Products, (self.root, self.decoding)


@jit
def _add(weight: float, x: Ints, out: NDArray[Any]) -> None:
    for j in range(out.size):
        out[j] += weight * x[j]


@jit
def _add_four(row: NDArray[Any], a: Ints, b: Ints, c: Ints, d: Ints, out: NDArray[Any]) -> None:
    first, second, third, fourth = row[0], row[1], row[2], row[3]
    for j in range(out.size):
        out[j] = (((out[j] + first * a[j]) + second * b[j]) + third * c[j]) + fourth * d[j]


@jit
def product(row: NDArray[Any], x: Ints, first: int, end: int, out: NDArray[Any]) -> None:
    """out += Σ_{first ≤ s < end} row[s]·x[s], always added up in this order; integers modulo 2⁶⁴."""
    for s in range(first, end):
        _add(row[s], x[s], out)


@jit
def _begin(rows: NDArray[Any], x: Ints, out: NDArray[Any]) -> None:
    """out[k] += Σ_s rows[k, s]·x[s], each in the order of s: `product` for several rows at once."""
    terms, fours = rows.shape[1], rows.shape[1] - rows.shape[1] % 4
    for low in range(0, out.shape[1], _NEAR):
        high = min(out.shape[1], low + _NEAR)
        for s in range(0, fours, 4):
            a, b, c, d = x[s, low:high], x[s + 1, low:high], x[s + 2, low:high], x[s + 3, low:high]
            for k in range(out.shape[0]):
                _add_four(rows[k, s : s + 4], a, b, c, d, out[k, low:high])
        for s in range(fours, terms):
            for k in range(out.shape[0]):
                _add(rows[k, s], x[s, low:high], out[k, low:high])


@jit
def overlap(decoder: Floats, first: int, second: int) -> float:
    """The covariance of the prefix sums of so many leaves, decoded, for noise of variance 1: always in this order."""
    total = 0.0
    for s in range(min(first, second)):
        total += decoder[first - 1, s] * decoder[second - 1, s]
    return total
