"""The search behind `confide.learners.theory.littlestone`: does a set of hypotheses shatter a tree of a given depth?

A set is a stretch of the array `rows`: one row of bits for each hypothesis, one bit for each point. Going to a child
partitions the stretch in place. Every set met is what some labelled points leave of the class, so it consists of all
rows between its bitwise AND and its bitwise OR: these two are its exact name in the memo. The memo has a fixed size,
and a new entry replaces the old one in its place; names are kept whole and compared whole, so a hit is never wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Words
from confide.kernels.compile import jit

_ONE, _LOW = np.uint64(1), np.uint64(63)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def pack(bits: NDArray[np.uint8]) -> Words:
    """Rows of 0 and 1 as rows of words, the first column in the lowest bit."""
    width = -(-bits.shape[1] // 64) * 8
    octets = np.zeros((bits.shape[0], width), dtype=np.uint8)
    packed = np.packbits(bits, axis=1, bitorder="little")
    octets[:, : packed.shape[1]] = packed
    return octets.view("<u8").astype(np.uint64)


def sauer(columns: int, depth: int) -> NDArray[np.int64]:
    """Σ_{i≤j} C(v, i) for v ≤ columns and j ≤ depth, cut off at 2⁶²: the most rows without a shattered set of j+1."""
    sums = np.zeros((columns + 1, depth + 1), dtype=np.int64)
    for v in range(columns + 1):
        total, term = 0, 1
        for j in range(depth + 1):
            total += term
            sums[v, j] = min(total, 1 << 62)
            term = term * (v - j) // (j + 1)
    return sums


@jit
def _ones(word: np.uint64) -> int:
    """The number of ones in a word."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))


@jit
def _place(both: Words, size: int) -> int:
    mixed = np.uint64(0)
    for word in both:
        mixed = (mixed ^ word) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return int(np.int64(mixed & np.uint64(size - 1)))


@jit
def _partition(rows: Words, lo: int, hi: int, column: int) -> int:
    """Rows with 0 in `column` first; returns where those with 1 begin."""
    word, bit = column >> 6, np.uint64(column) & _LOW
    left, right = lo, hi
    while True:
        while left < right and (rows[left, word] >> bit) & _ONE == 0:
            left += 1
        while left < right and (rows[right - 1, word] >> bit) & _ONE == 1:
            right -= 1
        if left >= right:
            return left
        for w in range(rows.shape[1]):
            rows[left, w], rows[right - 1, w] = rows[right - 1, w], rows[left, w]


@jit
def _known(keys: Words, bounds: NDArray[np.int8], place: int, name: Words) -> bool:
    same = bool(bounds[place, 1] > 0)
    for w in range(name.size):
        same = same and bool(keys[place, w] == name[w])
    return same


@jit
def _remember(keys: Words, bounds: NDArray[np.int8], name: Words, level: int, shattered: bool) -> None:
    """Note that the set of this name does, or does not, shatter a tree of this depth."""
    place = _place(name, keys.shape[0])
    if not _known(keys, bounds, place, name):
        for w in range(name.size):
            keys[place, w] = name[w]
        bounds[place, 0], bounds[place, 1] = 0, 127
    if shattered:
        bounds[place, 0] = max(bounds[place, 0], level)
    else:
        bounds[place, 1] = min(bounds[place, 1], level - 1)


@jit
def _far(rows: Words, lo: int, hi: int, majority: Words, want: int) -> bool:
    """Whether some row differs from the majority in `want` points or more."""
    for r in range(lo, hi):
        differs = 0
        for w in range(majority.size):
            differs += _ones(rows[r, w] ^ majority[w])
        if differs >= want:
            return True
    return False


@jit
def _quick(
    rows: Words,
    lo: int,
    hi: int,
    want: int,
    sums: NDArray[np.int64],
    keys: Words,
    bounds: NDArray[np.int8],
    side: NDArray[np.int64],
    scratch: Words,
) -> int:
    """1 or 0 where bounds or the memo tell whether rows[lo:hi] shatter a tree of depth `want`, and −1 where not.

    Leaves the set's name in `scratch` and, with −1, the size of the smaller side of each column in `side`.
    """
    n, width = hi - lo, rows.shape[1]
    if want == 0:
        return 1 if n > 0 else 0
    if n < 1 << want:  # a tree of this depth takes one hypothesis for each of its leaves
        return 0
    if want == 1:
        return 1
    name, majority = scratch[: 2 * width], scratch[2 * width :]
    for w in range(width):
        name[w] = name[width + w] = rows[lo, w]
    for r in range(lo + 1, hi):
        for w in range(width):
            name[w] &= rows[r, w]
            name[width + w] |= rows[r, w]
    place = _place(name, keys.shape[0])
    if _known(keys, bounds, place, name):
        if bounds[place, 0] >= want:
            return 1
        if bounds[place, 1] < want:
            return 0
    varying = 0
    for w in range(width):
        varying += _ones(name[w] ^ name[width + w])
    if varying < want:  # a branch asks each point once
        return 0
    if n > sums[varying, want - 1]:  # Sauer and Shelah: a set of `want` points is shattered
        return 1
    side[:] = 0
    for w in range(width):
        ones = side[64 * w : 64 * w + 64]
        for r in range(lo, hi):
            word = rows[r, w]
            for b in range(64):
                ones[b] += np.int64((word >> np.uint64(b)) & _ONE)
        majority[w] = 0
        for b in range(64):
            if 2 * ones[b] > n:
                majority[w] |= _ONE << np.uint64(b)
    if not _far(rows, lo, hi, majority, want):
        return 0  # who answers as the majority until corrected errs no more often than a row differs from it
    for c in range(side.size):
        side[c] = min(side[c], n - side[c])
    return -1


@jit
def search(rows: Words, want: int, sums: NDArray[np.int64], keys: Words, bounds: NDArray[np.int8]) -> bool:
    """Whether all `rows` together shatter a tree of depth `want`. Changes the order of the rows.

    The memo: `keys` holds names, `bounds` what is known of their dimensions, at least and at most; zeros are an
    empty place. `sums` comes from `sauer`.
    """
    width = rows.shape[1]
    lows, highs, middles = np.zeros(want + 1, np.int64), np.zeros(want + 1, np.int64), np.zeros(want + 1, np.int64)
    sides, scratch = np.zeros((want + 1, 64 * width), np.int64), np.zeros((want + 1, 3 * width), np.uint64)
    step = np.zeros(want + 1, np.int64)  # 0: just come; 1, 2: its smaller side, its larger side was asked for
    highs[want] = rows.shape[0]
    level = want  # one frame for each depth of a tree; the frame below looks for trees of one less
    while True:
        lo, hi, side, name = lows[level], highs[level], sides[level], scratch[level, : 2 * width]
        if step[level] == 0:
            answer = _quick(rows, lo, hi, level, sums, keys, bounds, side, scratch[level])
            if answer >= 0:
                if level == want:
                    return answer == 1
                level += 1
                continue
            answer = 0
            step[level] = 2  # as if a column had just failed
        if answer == 1 and step[level] == 1:
            step[level] = 2
            step[level - 1] = 0
            smaller_first = middles[level] - lo < hi - middles[level]
            lows[level - 1] = middles[level] if smaller_first else lo
            highs[level - 1] = hi if smaller_first else middles[level]
            level -= 1
            continue
        column = 0
        for c in range(side.size):
            if side[c] > side[column]:
                column = c
        if answer == 0 and side[column] >= 1 << (level - 1):
            side[column] = 0
            middle = _partition(rows, lo, hi, column)
            step[level] = 1
            step[level - 1] = 0
            middles[level] = middle
            smaller_first = middle - lo < hi - middle
            lows[level - 1] = lo if smaller_first else middle
            highs[level - 1] = middle if smaller_first else hi
            level -= 1
            continue
        _remember(keys, bounds, name, level, answer == 1)
        if level == want:
            return answer == 1
        level += 1
