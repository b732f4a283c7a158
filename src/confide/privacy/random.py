"""Randomness: a secure generator, a keyed choice of copy, and samplers that are exact.

Every draw here is a function of one stream of independent uniform 64-bit words, computed in integers. The
proofs are in `docs/proofs/samplers.md`.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from fractions import Fraction
from typing import Any, overload

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from confide._checks import integer, positive_rational
from confide.privacy.draws import (
    SHORT,
    draw_below,
    draw_laplace,
    draw_subset,
    exact_laplace,
    fill_below,
    fill_laplace,
)

__all__ = [
    "FAST", "Prf", "Random", "discrete_laplace", "draw_below", "draw_laplace", "draw_subset", "fits",
]  # fmt: skip

_WORD = 1 << 64
_MASK = _WORD - 1
_BUFFER = 4096  # words held ready: 32 KiB, refilled in about 6 µs
_BLOCK = 128  # noise values drawn at once
FAST = 1 << 31  # below this the compiled Laplace sampler's integers fit in 64 bits
_ZEROS = memoryview(bytes(1 << 18))  # what is encrypted, so that the cipher's key stream itself comes out


class Random:
    """A generator of independent uniform words: AES-256 in counter mode under a secret key.

    Without a seed the key comes from the operating system, a forked child takes a new key before its first
    draw, and the generator can be neither copied nor pickled: two generators in one state would draw the same
    noise twice, and the difference of two answers would then be exact. With a seed it is reproducible, may be
    copied, protects nobody, and says so.

    One generator serves one thread; give another thread its own by `spawn`.

    Parameters
    ----------
    seed
        Any integer, for tests, benchmarks and replays only; None for the operating system's entropy.

    Examples
    --------
    >>> rng = Random(seed=7)
    >>> rng
    Random(insecure: seeded)
    >>> rng.below(6)
    5
    >>> rng.subset(1_000_000, 3).size
    3
    >>> Random().secure
    True
    """

    __slots__ = ("__weakref__", "_buffer", "_cursor", "_key", "_produced", "_secure", "_stream", "_view")

    one_stream = True
    """Whether all draws are read from one stream of words, as compiled loops read it."""

    def __init__(self, seed: int | None = None) -> None:
        self._secure = seed is None
        if seed is None:
            self._start(os.urandom(32))
            _secure_generators.add(self)
        else:
            self._start(hashlib.sha256(b"confide seed %d" % integer(seed, "seed")).digest())

    def _start(self, key: bytes, position: int = 0) -> None:
        """Place the generator at word `position` of the stream that belongs to `key`."""
        self._key = key if not self._secure else b""  # the cipher holds a secret key; nothing else does
        counter = (position // 2).to_bytes(16, "big")
        self._stream: CipherContext = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
        self._stream.update(_ZEROS[: 8 * (position % 2)])
        self._produced = position  # words taken from the cipher so far
        self._hold(np.zeros(_BUFFER, dtype=np.uint64), cursor=_BUFFER)  # nothing unread

    def _hold(self, buffer: NDArray[np.uint64], cursor: int) -> None:
        self._buffer, self._view, self._cursor = buffer, buffer.data, cursor

    def _fill(self, out: NDArray[np.uint64]) -> None:
        """Write the cipher's next words over `out`."""
        target = out.data.cast("B")
        for start in range(0, len(target), len(_ZEROS)):
            part = target[start : start + len(_ZEROS)]
            self._stream.update_into(_ZEROS[: len(part)], part)
        self._produced += out.size

    @property
    def secure(self) -> bool:
        """Whether the key came from the operating system."""
        return self._secure

    def reserve(self, n: int) -> tuple[NDArray[np.uint64], int]:
        """Words and cursor for a kernel: at least `n` unread words begin at `words[cursor]`.

        Unread words keep their order and stay ahead of new ones, so a kernel that ran out may start again
        on more words and reads the same ones first. Tell the generator by `commit` where the kernel stopped.
        """
        old, start = self._buffer, self._cursor
        unread = old.size - start
        if unread < n:
            self._cursor = old.size  # an interrupt from here on loses words; it never repeats one
            buffer = old if n <= old.size else np.zeros(2 * n, dtype=np.uint64)
            buffer[:unread] = old[start:]
            self._fill(buffer[unread:])
            self._hold(buffer, cursor=0)
        return self._buffer, self._cursor

    def commit(self, cursor: int) -> None:
        """Mark the reserved words before `cursor` as used."""
        if not self._cursor <= cursor <= self._buffer.size:
            raise ValueError("the cursor lies outside the reserved words: pass the one the kernel returned")
        self._cursor = cursor

    def lend(self, n: int) -> tuple[NDArray[np.uint64], int]:
        """As `reserve`, for a kernel whose work stays: until `give_back`, all of the words are used."""
        words, cursor = self.reserve(n)
        self._cursor = words.size  # an interrupt from here on loses words; it never repeats one
        return words, cursor

    def give_back(self, cursor: int) -> None:
        """Of the words that were lent last, those from `cursor` on were not read."""
        if not 0 <= cursor <= self._buffer.size:
            raise ValueError("the cursor lies outside the words that were lent: pass the one the kernel returned")
        self._cursor = cursor

    @property
    def position(self) -> int:
        """Words used so far."""
        return self._produced - (self._buffer.size - self._cursor)

    def words(self, n: int) -> NDArray[np.uint64]:
        """`n` uniform 64-bit words."""
        n = integer(n, "n", at_least=0)
        out = np.empty(n, dtype=np.uint64)
        held = min(n, self._buffer.size - self._cursor)
        out[:held] = self._buffer[self._cursor : self._cursor + held]
        self._cursor += held
        if n - held > _BUFFER // 2:
            self._fill(out[held:])
        elif held < n:
            self.reserve(n - held)
            out[held:] = self._buffer[: n - held]
            self._cursor = n - held
        return out

    def word(self) -> int:
        """One uniform 64-bit word."""
        cursor = self._cursor
        if cursor == len(self._view):
            self.reserve(1)
            cursor = 0
        self._cursor = cursor + 1
        return self._view[cursor]

    def fresh_word(self) -> int:
        """One uniform word that nothing keeps: of a secure generator from the system itself.

        For randomized labels. Whoever found a generator's state later could compute all its earlier words, and so which
        outputs were replacements.
        """
        return int.from_bytes(os.urandom(8)) if self._secure else self.word()

    def fresh_words(self, n: int) -> NDArray[np.uint64]:
        """`n` of them."""
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64).copy() if self._secure else self.words(n)

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), without bias, for any n ≥ 1.

        The word is scaled by a multiplication, and the few words that would favour some results are rejected
        (Lemire, "Fast Random Integer Generation in an Interval", 2019).
        """
        if type(n) is not int or n < 1:
            n = integer(n, "n", at_least=1)
        if n > _WORD:
            return self._below_large(n)
        while True:
            x = self.word() * n
            low = x & _MASK
            if low >= n or low >= _WORD % n:
                return x >> 64

    def _below_large(self, n: int) -> int:
        """`below` with as many words as n needs."""
        width = -(-n.bit_length() // 64)
        while True:
            x = int.from_bytes(self.words(width).tobytes(), "little") * n
            if x % (1 << 64 * width) >= (1 << 64 * width) % n:
                return x >> 64 * width

    def below_many(self, n: int, size: int) -> NDArray[np.int64]:
        """`size` independent uniform integers in [0, n), without bias, for 1 ≤ n ≤ 2⁶³."""
        n, size = integer(n, "n", at_least=1, at_most=1 << 63), integer(size, "size", at_least=0)
        out = np.empty(size, dtype=np.int64)
        for start in range(0, size, _BUFFER // 4):
            part = out[start : start + _BUFFER // 4]
            need, cursor = part.size + 8, -1
            while cursor < 0:
                words, cursor = self.reserve(need)
                cursor = fill_below(words, cursor, np.uint64(n), part)
                need *= 2
            self.commit(cursor)
        return out

    def subset(self, k: int, m: int) -> NDArray[np.int64]:
        """A uniformly random set of `m` of the numbers 0 … k−1, in no particular order.

        Time and memory grow with m, not with k.
        """
        if type(k) is not int or type(m) is not int or not 0 <= m <= k < 1 << 62:
            k = integer(k, "k", at_least=0, at_most=(1 << 62) - 1)
            m = integer(m, "m", at_least=0)
            if m > k:
                raise ValueError(f"cannot choose {m} of {k} numbers without repetition: take m ≤ k")
        out = np.empty(m, dtype=np.int64)
        need, cursor = m + 8, draw_subset(self._buffer, self._cursor, k, m, out)
        while cursor < 0:  # what is held was too little
            words, cursor = self.reserve(need)
            cursor = draw_subset(words, cursor, k, m, out)
            need *= 2
        self._cursor = cursor
        return out

    def spawn(self) -> Random:
        """An independent generator with its own key: secure from a secure one, seeded from a seeded one."""
        if self._secure:
            return Random()
        other = Random.__new__(Random)
        other.__setstate__((hashlib.sha256(b"confide spawn " + self.words(4).tobytes()).digest(), 0))
        return other

    def __repr__(self) -> str:
        return "Random(secure)" if self._secure else "Random(insecure: seeded)"

    def __reduce__(self) -> tuple[Any, ...]:  # copy and pickle both come here
        if self._secure:
            raise ValueError(
                "a secure generator is neither copied nor pickled, since two in one state draw one noise: "
                "call spawn() for another one"
            )
        return Random.__new__, (Random,), (self._key, self.position)

    def __setstate__(self, state: tuple[bytes, int]) -> None:
        self._secure = False
        self._start(*state)

    def rekey(self) -> None:
        """Take a fresh secret key, so that two processes never draw the same words."""
        self._start(os.urandom(32))


_secure_generators: weakref.WeakSet[Random] = weakref.WeakSet()


def _rekey_after_fork() -> None:
    for generator in _secure_generators:
        generator.rekey()


if hasattr(os, "register_at_fork"):  # a system without fork has nothing to re-key
    os.register_at_fork(after_in_child=_rekey_after_fork)


class Prf:
    """A secret, fixed choice of copy for every unit: keyed BLAKE2b.

    All rounds of a unit go to the same copy, and without the key nobody can tell which. A 128-bit digest is
    reduced modulo the number of copies, so each copy's probability is within 2⁻¹²⁸ of uniform, and the whole
    distribution within copies/2¹²⁸. A str is the unit of its UTF-8 bytes: "a" and b"a" are the *same* unit.
    Nothing is normalised: "A" and "a" are two units.

    Parameters
    ----------
    key
        32 secret bytes, or None for fresh ones. Keep `prf.key` with the state: with another key the same
        unit would reach a second copy.

    Examples
    --------
    >>> prf = Prf(bytes(32))
    >>> prf.copy_of("alice", 4000) == prf.copy_of(b"alice", 4000)
    True
    >>> prf
    Prf(128-bit)
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes | None = None) -> None:
        if key is None:
            key = os.urandom(32)
        if not isinstance(key, bytes) or len(key) != 32:
            raise ValueError("the key must be 32 bytes: omit it for a fresh one")
        self._key = key

    @property
    def key(self) -> bytes:
        """The secret key, for the operator to store; never for a log."""
        return self._key

    def copy_of(self, unit: str | bytes, copies: int) -> int:
        """The number, in [0, copies), of the one copy that `unit` teaches."""
        if isinstance(unit, str):
            try:
                unit = unit.encode()
            except UnicodeEncodeError:
                raise ValueError("a unit's id is not valid Unicode: pass bytes instead") from None
        if not isinstance(unit, bytes) or not unit:
            raise ValueError("a unit's id must be a non-empty str or bytes")
        copies = integer(copies, "copies", at_least=1, at_most=1 << 63)
        digest = hashlib.blake2b(unit, digest_size=16, key=self._key, person=b"confide copy").digest()
        return int.from_bytes(digest, "big") % copies

    def __repr__(self) -> str:
        return "Prf(128-bit)"


@overload
def discrete_laplace(rng: Random, scale: Fraction | int, size: None = None) -> int: ...
@overload
def discrete_laplace(rng: Random, scale: Fraction | int, size: int) -> NDArray[np.int64]: ...
def discrete_laplace(rng: Random, scale: Fraction | int, size: int | None = None) -> int | NDArray[np.int64]:
    """Integers X with P(X = x) proportional to exp(−|x| / scale), exactly (`docs/proofs/samplers.md`).

    Added to an integer that one unit moves by at most Δ, it is Δ/scale-differentially private. The sampler
    is Algorithm 2 of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020).
    Its running time depends on the value drawn: who can time a draw learns something about the noise.

    Parameters
    ----------
    rng
        The generator.
    scale
        A positive rational, never a float.
    size
        None for one int, or the length of an int64 array (then scale < 2³¹).

    Examples
    --------
    >>> discrete_laplace(Random(seed=1), Fraction(7, 2), size=5).tolist()
    [-2, -6, -3, 2, -5]
    """
    scale = positive_rational(scale, "scale")
    t, s = scale.numerator, scale.denominator
    fast = fits(scale)
    if size is None:
        one = np.empty(1, dtype=np.int64)
        return int(one[0]) if fast and _laplace_into(rng, t, s, one) else exact_laplace(rng.below, t, s)
    size = integer(size, "size", at_least=0)
    if scale >= FAST:
        raise ValueError("the values would not fit in 64 bits: draw one at a time, or take scale < 2³¹")
    out = np.empty(size, dtype=np.int64)
    for start in range(0, size, _BLOCK):
        part = out[start : start + _BLOCK]
        if not (fast and _laplace_into(rng, t, s, part)):
            part[:] = [exact_laplace(rng.below, t, s) for _ in part]
    return out


def fits(scale: Fraction) -> bool:
    """Whether the compiled sampler draws noise of this scale."""
    return scale.numerator < FAST and scale.denominator < FAST


def _laplace_into(rng: Random, t: int, s: int, out: NDArray[np.int64]) -> bool:
    """Fill `out` with compiled draws; False, with no word used, when a value does not fit."""
    need, cursor = 16 * out.size + 48, SHORT
    while cursor == SHORT:
        words, cursor = rng.reserve(need)
        cursor = fill_laplace(words, cursor, t, s, out)
        need *= 2
    if cursor >= 0:
        rng.commit(cursor)
    return cursor >= 0
