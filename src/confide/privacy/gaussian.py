"""Exact discrete Gaussian noise for large sigma, millions of values a second.

A value is ±(k·w + j): a *cell* k is drawn from a table of integer weights, j is uniform in the cell of w = 2ᵇ integers,
and the pair is accepted with the probability that makes exp(−x²/2σ²) out of the table's step function. The test u < p
is decided in floating point only where its error bound decides it, else by as many digits as it takes. So the draw
is exact, not close: the proof is in `docs/proofs/guide.md`.

Why not OpenDP's sampler or `exact_gaussian`: both take tens of microseconds a value (benchmarks/guide.py), and a
guide of a thousand features draws a million values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.kernels.compile import jit
from confide.privacy.draws import exact_bernoulli_exp, exact_gaussian
from confide.privacy.random import Random

_WORD = 1 << 64
_FINE = 5  # a cell is between sigma/2⁶ and sigma/2⁵ wide: few pairs are refused
_SMALL = 1 << 20  # below this variance cells would be too short to be worth it
LARGEST = 1 << 84
"""The largest variance: above it float64 might not hold a value exactly."""
_REACH = 9.5  # in sigmas: beyond it all values together have less than one word in 2⁶⁴
_DOUBT = 2.0**-46  # relative: eight times the floating-point error of `_fill`'s test (docs/proofs/guide.md)
_BITS = 10  # of a word: where the search for its cell begins
_DIGITS = 60
_MORE, _UNDECIDED, _FAR = 0, 1, 2


class GaussianNoise:
    """Integers X with P(X = x) proportional to exp(−x²/(2·sigma2)), exactly (`docs/proofs/guide.md`).

    Added to an integer vector that one unit moves by at most Δ in Euclidean norm, it has Rényi divergence at most
    αΔ²/(2·sigma2) at every order α > 1.

    Parameters
    ----------
    sigma2
        The square of sigma: a positive integer, at most 2⁸⁴.

    Examples
    --------
    >>> noise = GaussianNoise(10**12)
    >>> values = noise.draw(Random(seed=1), 100_000)
    >>> round(float(values.std()) / 10**6, 2)
    1.0
    """

    def __init__(self, sigma2: int) -> None:
        self.sigma2 = integer(sigma2, "sigma2", at_least=1, at_most=LARGEST)
        self._doubt = _DOUBT
        if self.sigma2 >= _SMALL:
            (
                self._bits, self._cells, self._scale, self._total, self._weights, self._far_weight, self._ends,
                self._ratios, self._guess,
            ) = _tables(self.sigma2, _REACH)  # fmt: skip

    def draw(self, rng: Random, size: int) -> NDArray[np.int64]:
        """`size` independent values. Draw them before they are needed: the time of a draw tells of its value."""
        out = np.empty(integer(size, "size", at_least=0), dtype=np.int64)
        if self.sigma2 < _SMALL:
            out[:] = [exact_gaussian(rng.below, self.sigma2, 1) for _ in range(out.size)]
            return out
        done, inverse = 0, 0.5 / self.sigma2
        while done < out.size:
            words, cursor = rng.reserve(4 * min(out.size - done, 1 << 12) + 16)
            done, cursor, state = _fill(
                words, cursor, self._ends, self._guess, self._ratios, self._bits, inverse, self._doubt, out, done
            )
            rng.commit(cursor)
            value = None
            if state == _UNDECIDED:
                value = self._decide(rng, *words[cursor - 3 : cursor].tolist())
            elif state == _FAR:
                value = self._far(rng)
            if value is not None:
                out[done], done = value, done + 1
        return out

    def _decide(self, rng: Random, first: int, second: int, third: int) -> int | None:
        """The value that three words stand for, None if refused, where floating point could not tell."""
        k = int(np.searchsorted(self._ends, np.uint64(first), side="right"))
        x = (k << self._bits) + (second & ((1 << self._bits) - 1))

        def limit(digits: int) -> Decimal:
            return _height(self.sigma2, x, digits) * _WORD / (self._total * self._weights[k])

        if not _below(rng, third, limit):
            return None
        return -x if second >> 63 else x

    def _far(self, rng: Random) -> int | None:
        """One trial of the tail: about one draw in 2⁶⁰ comes here, and is exact like the others."""
        rest, steps = rng.below(self._scale), 0
        while not exact_bernoulli_exp(rng.below, rest, self._scale):
            rest = rng.below(self._scale)
        while exact_bernoulli_exp(rng.below, 1, 1):
            steps += 1
        beyond = rest + self._scale * steps  # has probability (1 − r)·r^beyond, r = exp(−1/scale)
        x = (self._cells << self._bits) + beyond

        def limit(digits: int) -> Decimal:
            less = 1 - (Decimal(-1) / self._scale).exp()
            tail = less * (Decimal(-beyond) / self._scale).exp() * self._far_weight
            return _height(self.sigma2, x, digits) * _WORD / (self._total * (1 << self._bits) * tail)

        if not _below(rng, rng.word(), limit):
            return None
        return -x if rng.below(2) else x


@lru_cache(maxsize=64)  # many guides have one variance
def _tables(
    sigma2: int, reach: float
) -> tuple[int, int, int, Decimal, list[int], int, NDArray[np.uint64], NDArray[np.float64], NDArray[np.int64]]:
    """Integer weights W_k ≥ E_k·2⁶⁴/S with E_k = exp(−(kw)²/2σ²); S leaves room for the tail's weight.

    Every digit kept here is beyond the sixtieth's reach: a weight too large by one is only less efficient.
    """
    bits = math.isqrt(sigma2).bit_length() - 1 - _FINE
    cells = (math.ceil(reach * math.sqrt(sigma2)) >> bits) + 1
    width, edge = 1 << bits, cells << bits
    scale = sigma2 // edge + 1
    with localcontext(Context(prec=_DIGITS)):
        up = 1 + Decimal(10) ** -50
        heights = _heights(sigma2, width, cells)
        beyond = _height(sigma2, edge, _DIGITS) * (scale + 1) / width
        total = sum(heights, beyond) * (1 + Decimal(2) ** -48)
        unit = up * _WORD / total
        weights = [int(height * unit) + 1 for height in heights]
        far = int(beyond * unit) + 1
        ratios = [h * _WORD / total / weight for h, weight in zip(heights, weights, strict=True)]
    if sum(weights) + far > _WORD:
        raise ArithmeticError("the weights of the noise's cells exceed 2⁶⁴: the table was built wrongly")
    ends = np.cumsum(np.array([*weights, far], dtype=np.uint64))
    starts = np.arange(1 << _BITS, dtype=np.uint64) << np.uint64(64 - _BITS)
    guess = np.searchsorted(ends, starts, side="right").astype(np.int64)
    return bits, cells, scale, total, weights, far, ends, np.array([float(ratio) for ratio in ratios]), guess


def _height(sigma2: int, x: int, digits: int) -> Decimal:
    """exp(−x²/2σ²), correct to all but the last few of so many digits."""
    context = Context(prec=digits + 10)
    return context.divide(Decimal(-x * x), Decimal(2 * sigma2)).exp(context)


def _heights(sigma2: int, width: int, cells: int) -> list[Decimal]:
    """`_height` of each cell: E_{k+1} = E_k·e^{2k+1} with e = E_1; at two roundings each, more digits than asked."""
    context, heights = Context(prec=_DIGITS + 20), [Decimal(1)]
    ratio = context.divide(Decimal(-width * width), Decimal(2 * sigma2)).exp(context)
    step = context.multiply(ratio, ratio)
    for _ in range(1, cells):
        heights.append(context.multiply(heights[-1], ratio))
        ratio = context.multiply(ratio, step)
    return heights


def _below(rng: Random, word: int, limit: Callable[[int], Decimal]) -> bool:
    """Whether a uniform real number whose first 64 bits are `word` lies below `limit`; more of both as needed."""
    bits, digits = 64, _DIGITS
    while True:
        with localcontext(Context(prec=digits + 20)):
            value = limit(digits + 20)
            error = value * Decimal(10) ** -digits
            low, high = Decimal(word) / (1 << bits), Decimal(word + 1) / (1 << bits)
            if high <= value - error:
                return True
            if low >= value + error:
                return False
        word, bits, digits = (word << 64) | rng.word(), bits + 64, digits + 20


@jit
def _fill(
    words: NDArray[np.uint64],
    cursor: int,
    ends: NDArray[np.uint64],
    guess: NDArray[np.int64],
    ratios: NDArray[np.float64],
    bits: int,
    inverse: float,
    doubt: float,
    out: NDArray[np.int64],
    done: int,
) -> tuple[int, int, int]:
    """Fill out[done:] from three words a trial; stop when they run out, or at a trial that only Python can end."""
    mask, last = (np.uint64(1) << np.uint64(bits)) - np.uint64(1), ends.size - 1
    while done < out.size and cursor + 3 <= words.size:
        first, second, third = words[cursor], words[cursor + 1], words[cursor + 2]
        cursor += 3
        k = guess[np.int64(first >> np.uint64(54))]
        while k <= last and first >= ends[k]:
            k += 1
        if k > last:
            continue
        if k == last:
            return done, cursor, 2
        start, j = np.int64(k) << bits, np.int64(second & mask)
        z = np.float64(j) * np.float64(2 * start + j) * inverse
        decay = 1.0
        for i in range(14, 0, -1):  # exp(−z) by its series, z < 1/3
            decay = 1.0 - z / i * decay
        limit = ratios[k] * decay * 18446744073709551616.0
        given = np.float64(third)
        if given > limit + limit * doubt + 2.0:
            continue
        x, minus = start + j, (second >> np.uint64(63)) != np.uint64(0)
        if minus and x == 0:
            continue  # else 0 would count twice
        if given >= limit - limit * doubt - 2.0:
            return done, cursor, 1
        out[done] = -x if minus else x
        done += 1
    return done, cursor, 0
