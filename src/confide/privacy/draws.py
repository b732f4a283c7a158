"""Exact draws from uniform words, compiled, and once more in Python's unbounded integers.

A kernel reads words[cursor:] in order and returns the cursor where it stopped. A negative cursor says that
nothing was drawn: call again with more words *after the same ones*, as `Random.reserve` gives them. Every
draw is then a function of one endless stream, however the stream is cut into buffers. The proofs are in
`docs/proofs/samplers.md`.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit
from confide.kernels.machine import high_product

SHORT = -1  # the words ran out
LARGE = -2  # a value did not fit in 64 bits


@jit
def draw_below(words: NDArray[np.uint64], cursor: int, n: np.uint64) -> tuple[np.uint64, int]:
    """A uniform integer in [0, n), 1 ≤ n ≤ 2⁶³, and the new cursor."""
    while cursor < words.size:
        x = words[cursor]
        cursor += 1
        low = x * n  # modulo 2⁶⁴
        if low >= n or low >= (np.uint64(0) - n) % n:
            return high_product(x, n), cursor
    return np.uint64(0), SHORT


@jit
def fill_below(words: NDArray[np.uint64], cursor: int, n: np.uint64, out: NDArray[np.int64]) -> int:
    """Fill `out` with `draw_below`."""
    for i in range(out.size):
        value, cursor = draw_below(words, cursor, n)
        if cursor < 0:
            return cursor
        out[i] = np.int64(value)
    return cursor


@jit
def draw_subset(words: NDArray[np.uint64], cursor: int, k: int, m: int, out: NDArray[np.int64]) -> int:
    """Write a uniform m-subset of 0 … k−1 over out[:m] (Floyd's algorithm), and return the new cursor."""
    bits = 4
    while (1 << bits) < 2 * m:
        bits += 1
    size = 1 << bits  # a hash table at most half full remembers what was taken
    shift = np.uint64(64 - bits)
    table = np.full(size, -1, dtype=np.int64)
    for i in range(m):
        last = k - m + i
        value, cursor = draw_below(words, cursor, np.uint64(last + 1))
        if cursor < 0:
            return cursor
        chosen = np.int64(value)
        while True:
            slot = np.int64((np.uint64(chosen) * np.uint64(0x9E3779B97F4A7C15)) >> shift)
            while table[slot] != -1 and table[slot] != chosen:
                slot = (slot + 1) & (size - 1)
            if table[slot] == -1:
                break
            chosen = np.int64(last)  # taken already: the new last element is not
        table[slot] = chosen
        out[i] = chosen
    return cursor


@jit
def draw_marked(
    words: NDArray[np.uint64], cursor: int, k: int, m: int, out: NDArray[np.int64], taken: NDArray[np.uint64]
) -> int:
    """The same as `draw_subset`, faster where many are drawn: `taken` has k bits, all 0 before and after."""
    one, drawn = np.uint64(1), 0
    for i in range(m):
        last = k - m + i
        value, cursor = draw_below(words, cursor, np.uint64(last + 1))
        if cursor < 0:
            break
        chosen = np.int64(value)
        if (taken[chosen >> 6] >> np.uint64(chosen & 63)) & one:
            chosen = np.int64(last)
        taken[chosen >> 6] |= one << np.uint64(chosen & 63)
        out[i] = chosen
        drawn += 1
    for i in range(drawn):
        taken[out[i] >> 6] = np.uint64(0)
    return cursor


@jit
def _draw_bernoulli_e(words: NDArray[np.uint64], cursor: int) -> tuple[bool, int]:
    """True with probability 1/e."""
    k = 2
    while True:
        value, cursor = draw_below(words, cursor, np.uint64(k))
        if cursor < 0 or value != 0:
            return k % 2 == 1, cursor
        k += 1


@jit
def draw_laplace(words: NDArray[np.uint64], cursor: int, t: int, s: int) -> tuple[np.int64, int]:
    """One discrete Laplace value of scale t/s, for t, s < 2³¹, and the new cursor."""
    while True:
        u, cursor = draw_below(words, cursor, np.uint64(t))
        if cursor < 0:
            return np.int64(0), cursor
        k = 1
        while True:  # True with probability exp(−u/t)
            if k > 1:
                value, cursor = draw_below(words, cursor, np.uint64(k))
                if cursor < 0:
                    return np.int64(0), cursor
                if value != 0:
                    break
            value, cursor = draw_below(words, cursor, np.uint64(t))
            if cursor < 0:
                return np.int64(0), cursor
            if value >= u:
                break
            k += 1
        if k % 2 == 0:
            continue
        v = 0
        while True:
            more, cursor = _draw_bernoulli_e(words, cursor)
            if cursor < 0:
                return np.int64(0), cursor
            if not more:
                break
            v += 1
            if v >= 1 << 31:
                return np.int64(0), LARGE
        y = (np.int64(u) + t * v) // s
        value, cursor = draw_below(words, cursor, np.uint64(2))
        if cursor < 0:
            return np.int64(0), cursor
        if value == 0:
            return y, cursor
        if y != 0:
            return -y, cursor


@jit
def fill_laplace(words: NDArray[np.uint64], cursor: int, t: int, s: int, out: NDArray[np.int64]) -> int:
    """Fill `out` with `draw_laplace`."""
    for i in range(out.size):
        out[i], cursor = draw_laplace(words, cursor, t, s)
        if cursor < 0:
            return cursor
    return cursor


# The same draws for numbers of any size. `below(n)` gives a uniform integer in [0, n).


def exact_bernoulli_exp(below: Callable[[int], int], a: int, b: int) -> bool:
    """True with probability exp(−a/b), for integers a ≥ 0 and b ≥ 1."""
    while a > b:
        if not _exact_bernoulli_e(below):
            return False
        a -= b
    k = 1
    while (k == 1 or below(k) == 0) and below(b) < a:
        k += 1
    return k % 2 == 1


def _exact_bernoulli_e(below: Callable[[int], int]) -> bool:
    k = 2
    while below(k) == 0:
        k += 1
    return k % 2 == 1


def exact_laplace(below: Callable[[int], int], t: int, s: int) -> int:
    """One discrete Laplace value of scale t/s: it reads the words that `draw_laplace` reads, and agrees."""
    while True:
        u = below(t)
        if not exact_bernoulli_exp(below, u, t):
            continue
        v = 0
        while _exact_bernoulli_e(below):
            v += 1
        y = (u + t * v) // s
        negative = below(2) == 1
        if not (negative and y == 0):
            return -y if negative else y


def exact_gaussian(below: Callable[[int], int], p: int, q: int) -> int:
    """One discrete Gaussian value with sigma² = p/q."""
    t = math.isqrt(p // q) + 1
    while True:
        y = exact_laplace(below, t, 1)
        if exact_bernoulli_exp(below, (abs(y) * q * t - p) ** 2, 2 * p * q * t * t):
            return y
