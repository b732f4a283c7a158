"""Noisy prefix sums of integer vectors: what a guide learns from (docs/proofs/guide.md).

The inputs are *leaves*, integer vectors g₀, g₁, …; released are *nodes*, integer combinations of leaves plus discrete
Gaussian noise; everything else is computed from nodes. Two ways to combine:

- `SquareRoot`: node i is Σ_s F_is·g_s with F the square root of the prefix matrix, scaled to integers. The best known
  factorisation up to small constants (Henzinger, Upadhyay, Upadhyay 2023; Fichtenberger, Henzinger, Upadhyay 2023).
- `BinaryTree`: a node is a block of 2ʲ leaves. Four times the variance; it is here as the reference one can read.

*Load* is the price: the largest squared column norm of the integer matrix, so that a unit that moves its leaves by at
most Δ in total norm pays αΔ²·load/(2σ²) at Rényi order α. It is computed in integers.
"""

from __future__ import annotations

import math
from collections import deque
from decimal import Decimal
from fractions import Fraction
from functools import cache
from operator import mul

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.kernels.compile import jit
from confide.privacy.cost import UP, float_up

__all__ = ["BinaryTree", "SquareRoot", "divergence"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_LEAVES = 1024
_EXACT = 1 << 62  # sums below this fit in 64-bit integers, with room for their noise


def divergence(order: int, shift2: int, load: int, sigma2: int) -> float:
    """Rényi divergence of all nodes: order·shift2·load/(2·sigma2) from integers, rounded up.

    `shift2` is the square of the most by which a unit moves the leaves, summed in norm over leaves.

    Examples
    --------
    >>> divergence(order=10, shift2=4, load=5, sigma2=400)
    0.25
    """
    order = integer(order, "order", at_least=2)
    shift2, load = integer(shift2, "shift2", at_least=0), integer(load, "load", at_least=0)
    sigma2 = integer(sigma2, "sigma2", at_least=1)
    return float_up(UP.divide(Decimal(order * shift2 * load), Decimal(2 * sigma2)))


class SquareRoot:
    """The square root of the prefix matrix, in integers: node i is Σ_{s ≤ i} factor[i−s]·g_s.

    The coefficients of (1−x)^(−1/2) times `scale`, rounded; decoding divides by the *rounded* series, so that the
    decoded sums are unbiased whatever the rounding did.

    Parameters
    ----------
    leaves
        How many, at most 1024.
    scale
        What the first coefficient is; larger, finer.

    Examples
    --------
    >>> root = SquareRoot(1000)
    >>> root.factor[:4].tolist(), root.load
    ([4096, 2048, 1536, 1280], 54780380)
    >>> round(float(root.load * root.variances().mean()), 1)
    9.6
    """

    def __init__(self, leaves: int, scale: int = 1 << 12) -> None:
        self.leaves = integer(leaves, "leaves", at_least=1, at_most=MOST_LEAVES)
        self.scale = integer(scale, "scale", at_least=1, at_most=1 << 20)
        self.factor, self.decoder, self.load = _square_root(self.leaves, self.scale)

    def variances(self) -> Floats:
        """The variance of each decoded prefix sum, for noise of variance 1 in every node."""
        return np.cumsum(self.decoder**2)

    def room(self, largest: int) -> bool:
        """Whether nodes of leaves with coordinates up to `largest` fit in 64 bits."""
        return largest * int(self.factor.sum()) < _EXACT


@cache
def _square_root(leaves: int, scale: int) -> tuple[Ints, Floats, int]:
    factor, coefficient = [scale], Fraction(1)
    for k in range(1, leaves):
        coefficient *= Fraction(2 * k - 1, 2 * k)
        factor.append(max(1, round(scale * coefficient)))
    decoder = _divide([float(value) for value in factor])
    load = sum(value * value for value in factor)
    array = np.array(factor, dtype=np.int64)
    array.flags.writeable = decoder.flags.writeable = False
    return array, decoder, load


def _divide(factor: list[float]) -> Floats:
    """The series of 1/((1−x)·factor(x)): what turns nodes into prefix sums."""
    out = deque[float]()  # the newest first
    for _ in factor:  # no library's dot product: θ must have the same bits on every machine
        out.appendleft((1.0 - math.fsum(map(mul, factor[1:], out))) / factor[0])
    return np.array(out)[::-1].copy()


class BinaryTree:
    """The binary tree: node (j, i) is the sum of the i-th block of 2ʲ leaves; a prefix is a sum of few nodes.

    Examples
    --------
    >>> tree = BinaryTree(1000)
    >>> tree.load, round(float(tree.load * tree.variances().mean()), 1)
    (10, 49.4)
    >>> tree.closing(4), tree.prefix(6)
    ([(0, 3), (1, 1), (2, 0)], [(2, 0), (1, 2)])
    """

    def __init__(self, leaves: int) -> None:
        self.leaves = integer(leaves, "leaves", at_least=1)
        self.load = self.leaves.bit_length()

    def closing(self, leaves: int) -> list[tuple[int, int]]:
        """The nodes (level, number) that close with leaf number `leaves`, counted from 1."""
        return [(j, (leaves >> j) - 1) for j in range(leaves.bit_length()) if leaves % (1 << j) == 0]

    def prefix(self, leaves: int) -> list[tuple[int, int]]:
        """The nodes whose sum is the first `leaves` leaves: one for each binary one."""
        return [(j, (leaves >> j) - 1) for j in reversed(range(leaves.bit_length())) if leaves >> j & 1]

    def variances(self) -> Floats:
        """The variance of each decoded prefix sum, for noise of variance 1 in every node."""
        return np.array([i.bit_count() for i in range(1, self.leaves + 1)], dtype=np.float64)


@jit
def encode(factor: Ints, sums: Ints, i: int, out: Ints) -> None:
    """out += node i of the closed leaves sums[0..i], exactly."""
    for s in range(i + 1):
        weight = factor[i - s]
        for j in range(out.size):
            out[j] += weight * sums[s, j]


@jit
def decode(decoder: Floats, rows: Ints, i: int, out: Floats) -> None:
    """out = the prefix sum up to leaf i, from the released rows[0..i], always added up in this order."""
    for j in range(out.size):
        out[j] = 0.0
    for s in range(i + 1):
        weight = decoder[i - s]
        for j in range(out.size):
            out[j] += weight * rows[s, j]
