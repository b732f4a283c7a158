"""The generator's stream, its secrecy, and the exactness of every draw from it.

Statistical checks run on fixed seeds. Each compares counts with their exact probabilities by a chi-square
test at level 10⁻⁷, at most ten times in a test: a false alarm, had the seed not been fixed, has probability
at most 10⁻⁶. Each test also shows that the same check rejects a wrong mechanism.
"""

import copy
import hashlib
import itertools
import math
import os
import pickle
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from confide.privacy import random as randomness
from confide.privacy.draws import SHORT, draw_marked, exact_bernoulli_exp, exact_gaussian, exact_laplace
from confide.privacy.random import Prf, Random, discrete_laplace, draw_below, draw_subset

pytestmark = pytest.mark.claim("samplers.md", "polls.md")

LEVEL = 1e-7


def rejected(counts: Sequence[float], probabilities: Sequence[float], level: float = LEVEL) -> bool:
    """Whether a chi-square test says that `counts` do not have these probabilities (the rest is one cell)."""
    n = sum(counts)
    cells: list[tuple[float, float]] = []
    pool = np.zeros(2)
    for observed, p in zip(counts, probabilities, strict=True):
        if p * n >= 20:
            cells.append((observed, p * n))
        else:
            pool += (observed, p * n)
    pool[1] += n * max(0.0, 1 - math.fsum(probabilities))
    if pool[1] >= 20:
        cells.append((pool[0], pool[1]))
    statistic = sum((observed - expected) ** 2 / expected for observed, expected in cells)
    return bool(statistic > chi2.isf(level, len(cells) - 1))


def integer_rejected(values: NDArray[np.int64], weight: Callable[[int], float], level: float = LEVEL) -> bool:
    """Whether a chi-square test says that `values` do not have probabilities proportional to `weight`."""
    reach = 1
    while weight(reach) > 1e-12:
        reach *= 2
    norm = math.fsum(weight(x) for x in range(-reach, reach + 1))
    width = max(1, int(np.std(values)) // 8)  # cells of several integers when the distribution is wide
    starts = range(-reach, reach + 1, width)
    inside = np.abs(values) <= reach
    counts = np.bincount((values[inside] + reach) // width, minlength=len(starts)).tolist()
    cells = [math.fsum(weight(x) for x in range(s, min(s + width, reach + 1))) / norm for s in starts]
    return not inside.all() or rejected(counts, cells, level)


def laplace_weight(scale: float) -> Callable[[int], float]:
    return lambda x: math.exp(-abs(x) / scale)


def gaussian_weight(sigma2: float) -> Callable[[int], float]:
    return lambda x: math.exp(-x * x / (2 * sigma2))


# The stream


def key_stream(seed: int, n: int) -> list[int]:
    """The words a seed stands for, computed block by block."""
    key = hashlib.sha256(f"confide seed {seed}".encode()).digest()
    block = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    stream = b"".join(block.update(i.to_bytes(16, "big")) for i in range(n // 2 + 1))
    return np.frombuffer(stream, dtype=np.uint64)[:n].tolist()


def test_words_are_aes_in_counter_mode() -> None:
    assert Random(seed=5).words(9001).tolist() == key_stream(5, 9001)
    assert Random(seed=-5).words(3).tolist() == key_stream(-5, 3)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.integers(0, 40), st.sampled_from([2047, 2049, 4095, 4096, 9001])), max_size=12))
def test_stream_does_not_depend_on_how_it_is_read(sizes: list[int]) -> None:
    rng, whole = Random(seed=1), Random(seed=1).words(sum(sizes) + 1)
    read: list[int] = []
    for i, size in enumerate(sizes):
        read += rng.words(size).tolist() if i % 2 else [rng.word() for _ in range(size)]
    assert [*read, rng.word()] == whole.tolist()


def test_reserve_keeps_unread_words_in_front() -> None:
    rng, whole = Random(seed=1), Random(seed=1).words(30_000).tolist()
    rng.words(4000)
    for need in (10, 96, 97, 5000, 9000):
        words, cursor = rng.reserve(need)
        assert words[cursor : cursor + need].tolist() == whole[4000 : 4000 + need]
    rng.commit(cursor + 8999)
    assert rng.word() == whole[12_999]
    with pytest.raises(ValueError, match="cursor"):
        rng.commit(-1)


@pytest.mark.parametrize("need", [4000, 5000])
@pytest.mark.parametrize("late", [False, True])
def test_interrupted_refill_repeats_no_word(need: int, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, whole = Random(seed=1), Random(seed=1).words(20_000).tolist()
    used = rng.words(1000).tolist()
    fill = Random._fill

    def interrupted(self: Random, out: NDArray[np.uint64]) -> None:
        if late:
            fill(self, out)
        raise KeyboardInterrupt

    monkeypatch.setattr(Random, "_fill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rng.reserve(need)
    monkeypatch.undo()
    later = rng.words(6000).tolist()
    assert set(later) <= set(whole) - set(used)
    assert len(set(later)) == 6000


def test_seeds_and_secure_generators_differ() -> None:
    streams = [Random(seed=s).words(4).tolist() for s in (0, 1, -1, 2**70)]
    streams += [Random().words(4).tolist() for _ in range(4)]
    streams.append(Random(seed=0).spawn().words(4).tolist())
    assert len({tuple(stream) for stream in streams}) == len(streams)


def test_spawn_is_reproducible_from_a_seed_only() -> None:
    a, b = Random(seed=3), Random(seed=3)
    first, second = a.spawn(), a.spawn()
    assert first.words(3).tolist() == b.spawn().words(3).tolist() != second.words(3).tolist()
    assert not first.secure
    parent = Random()
    assert parent.spawn().secure
    assert parent.spawn().words(2).tolist() != parent.spawn().words(2).tolist()


def test_repr_says_what_it_is_and_no_more() -> None:
    assert repr(Random()) == "Random(secure)"
    assert repr(Random(seed=7)) == "Random(insecure: seeded)"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_secure_generator_refuses_to_be_copied(duplicate: Callable[[Random], object]) -> None:
    with pytest.raises(ValueError, match="two in one state"):
        duplicate(Random())


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 9000))
def test_seeded_generator_is_copied_where_it_stands(position: int) -> None:
    rng = Random(seed=2)
    rng.words(position)
    copies = [copy.copy(rng), copy.deepcopy(rng), pickle.loads(pickle.dumps(rng))]
    expected = rng.words(5000).tolist()
    for twin in copies:
        assert twin.words(5000).tolist() == expected
        assert not twin.secure


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_child_draws_its_own_words() -> None:
    """Two secure streams agree in 16 words with probability 2⁻¹⁰²⁴."""
    secure, seeded = Random(), Random(seed=4)
    secure.word(), seeded.word()

    def child_words() -> bytes:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn when a process with threads forks
            pid = os.fork()
        if pid == 0:
            try:
                os.write(write, secure.words(16).tobytes() + seeded.words(16).tobytes())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            sent = pipe.read()
        os.waitpid(pid, 0)
        return sent

    first, second = child_words(), child_words()
    parent = secure.words(16).tobytes() + seeded.words(16).tobytes()
    assert len(first) == len(second) == len(parent) == 256
    assert len({first[:128], second[:128], parent[:128]}) == 3
    assert first[128:] == second[128:] == parent[128:]  # a seeded replay stays a replay


# Bounded integers


def thirds(values: list[int], n: int) -> tuple[list[int], list[int]]:
    """Counts by third of the range, and by remainder modulo 3."""
    return [sum(3 * v // n == i for v in values) for i in range(3)], [
        sum(v % 3 == i for v in values) for i in range(3)
    ]


@pytest.mark.parametrize("n", [3 * 2**62, 3 * 2**61, 3 * 2**100, 3])
def test_below_is_unbiased_where_shortcuts_are_not(n: int) -> None:
    """False-positive rate 8·10⁻⁷; remainders and plain scaling of a word are rejected."""
    rng = Random(seed=11)
    values = [rng.below(n) for _ in range(20_000)]
    assert all(0 <= v < n for v in values)
    for counts in thirds(values, n):
        assert not rejected(counts, [1 / 3] * 3)
    if 2**61 < n < 2**64:
        words = rng.words(20_000).tolist()
        assert rejected(thirds([w % n for w in words], n)[0], [1 / 3] * 3)
        assert rejected(thirds([w * n >> 64 for w in words], n)[1], [1 / 3] * 3)


def test_below_many_is_unbiased() -> None:
    """False-positive rate 2·10⁻⁷; remainders are rejected."""
    n = 3 * 2**61
    values = Random(seed=12).below_many(n, 30_000)
    assert values.dtype == np.int64 and values.min() >= 0 and values.max() < n
    for counts in thirds(values.tolist(), n):
        assert not rejected(counts, [1 / 3] * 3)
    wrong = (Random(seed=12).words(30_000) % np.uint64(n)).tolist()
    assert rejected(thirds(wrong, n)[0], [1 / 3] * 3)


@settings(deadline=None, max_examples=100)
@given(st.one_of(st.integers(1, 2**63), st.integers(1, 50)), st.integers(0, 5))
def test_compiled_and_python_bounded_integers_agree(n: int, seed: int) -> None:
    words, rng = Random(seed=seed).words(400), Random(seed=seed)
    cursor = 0
    for _ in range(20):
        value, cursor = draw_below(words, cursor, np.uint64(n))
        assert int(value) == rng.below(n)
    assert rng.word() == words[cursor]
    many, twin = Random(seed=seed).below_many(n, 20), Random(seed=seed)
    assert many.tolist() == [twin.below(n) for _ in range(20)]


@settings(deadline=None)
@given(st.integers(1, 2**200))
def test_below_stays_below(n: int) -> None:
    rng = Random(seed=n % 7)
    assert all(0 <= rng.below(n) < n for _ in range(5))


# Subsets


@settings(deadline=None)
@given(st.integers(0, 300), st.data())
def test_subset_has_m_different_elements(k: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(0, k))
    chosen = Random(seed=m).subset(k, m)
    assert chosen.dtype == np.int64 and chosen.shape == (m,)
    assert len(set(chosen.tolist())) == m
    assert all(0 <= c < k for c in chosen.tolist())


def floyd_without_its_second_half(rng: Random, k: int, m: int) -> frozenset[int]:
    """Wrong: on a collision take the next free number."""
    taken: set[int] = set()
    for last in range(k - m, k):
        value = rng.below(last + 1)
        while value in taken:
            value = (value + 1) % k
        taken.add(value)
    return frozenset(taken)


def test_subsets_are_uniform() -> None:
    """False-positive rate 10⁻⁷: all 35 three-element subsets of seven; a wrong collision rule is rejected."""
    cells = {frozenset(c): i for i, c in enumerate(itertools.combinations(range(7), 3))}

    def counts(draw: Callable[[], frozenset[int]]) -> list[int]:
        found = np.zeros(35, dtype=int)
        for _ in range(35_000):
            found[cells[draw()]] += 1
        return found.tolist()

    rng = Random(seed=21)
    assert not rejected(counts(lambda: frozenset(rng.subset(7, 3).tolist())), [1 / 35] * 35)
    assert rejected(counts(lambda: floyd_without_its_second_half(rng, 7, 3)), [1 / 35] * 35)


def test_elements_and_pairs_of_large_subsets_are_uniform() -> None:
    """False-positive rate 10⁻⁶: each element and each pair within Hoeffding's bound, for 20 of 50.

    Each of the 50 + 1225 frequencies stays within √(ln(2·1275/10⁻⁶)/2n) of its probability. Sets that
    swap number 0 for number 1 in one case of four do not.
    """
    n = 20_000
    rng = Random(seed=22)
    held = np.zeros((n, 50))
    for row in held:
        row[rng.subset(50, 20)] = 1
    pairs = held.T @ held / n
    expected = np.full((50, 50), 20 * 19 / (50 * 49))
    np.fill_diagonal(expected, 20 / 50)
    bound = math.sqrt(math.log(2 * 1275 / 1e-6) / (2 * n))
    assert np.abs(pairs - expected).max() <= bound
    swapped = (held[:, 0] > held[:, 1]) & (np.arange(n) % 4 == 0)
    held[swapped, :2] = 0, 1
    assert np.abs(held.T @ held / n - expected).max() > bound


@pytest.mark.parametrize(("k", "m"), [(4000, 129), (2**61, 129), (5000, 5000), (100_000, 20_000)])
def test_subset_is_a_function_of_the_stream(k: int, m: int) -> None:
    """However the words are cut into buffers, and however large k is."""
    out = np.empty(m, dtype=np.int64)
    stream = Random(seed=23).words(4090 + m + 100)
    assert draw_subset(stream, 4090, k, m, out) >= 4090 + m
    rng = Random(seed=23)
    rng.words(4090)  # six words left in the buffer
    assert rng.subset(k, m).tolist() == out.tolist()
    assert draw_subset(stream[: 4090 + m - 1], 4090, k, m, out) == SHORT
    assert len(set(rng.subset(k, m).tolist())) == m


# The keyed choice of copy


def test_prf_is_fixed_by_its_key() -> None:
    prf = Prf(b"k" * 32)
    assert [prf.copy_of(u, 1000) for u in ("a", b"a", "é", "é".encode())] == [
        prf.copy_of(u, 1000) for u in (b"a", "a", "é".encode(), "é")
    ]
    assert Prf(prf.key).copy_of("a", 10**9) == prf.copy_of("a", 10**9)
    assert len({p.copy_of("a", 2**60) for p in (prf, Prf(b"l" * 32), Prf(), Prf())}) == 4


def test_prf_spreads_units_over_copies() -> None:
    """False-positive rate 10⁻⁷; a digest reduced to too few copies is rejected."""
    prf = Prf(b"k" * 32)
    chosen = [prf.copy_of(f"person {i}", 20) for i in range(20_000)]
    assert not rejected(np.bincount(chosen, minlength=20).tolist(), [1 / 20] * 20)
    assert rejected(np.bincount([c % 19 for c in chosen], minlength=20).tolist(), [1 / 20] * 20)


def test_prf_keeps_its_key_to_itself() -> None:
    prf = Prf(bytes(range(32)))
    assert repr(prf) == str(prf) == "Prf(128-bit)"


@pytest.mark.parametrize("unit", ["", b"", 3, None, 1.5, ("a",), bytearray(b"a"), "\ud800"])
def test_prf_refuses_other_ids(unit: str) -> None:
    with pytest.raises(ValueError, match="unit's id") as refusal:
        Prf().copy_of(unit, 10)
    assert "ud800" not in str(refusal.value)


@pytest.mark.parametrize("key", [b"", b"k" * 31, b"k" * 33, "k" * 32, 7])
def test_prf_refuses_other_keys(key: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Prf(key)


# Noise


@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, Fraction(7, 2), Fraction(200, 3)])
def test_discrete_laplace_has_its_distribution(scale: Fraction | int) -> None:
    """False-positive rate 10⁻⁷; a scale that is 5 % off is rejected in both directions."""
    values = discrete_laplace(Random(seed=31), scale, size=200_000)
    assert not integer_rejected(values, laplace_weight(float(scale)))
    assert integer_rejected(values, laplace_weight(1.05 * float(scale)))
    assert integer_rejected(values, laplace_weight(float(scale) / 1.05))


def test_discrete_laplace_is_exact_beyond_the_compiled_range() -> None:
    """False-positive rate 10⁻⁷, on terms above 2³¹; a scale that is 20 % off is rejected."""
    scale = Fraction(2**41 + 1, 2**39 - 3)
    values = discrete_laplace(Random(seed=32), scale, size=10_000)
    assert not integer_rejected(values, laplace_weight(float(scale)))
    assert integer_rejected(values, laplace_weight(1.2 * float(scale)))
    assert abs(discrete_laplace(Random(seed=1), 2**80)) > 2**64


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1), st.integers(0, 99))
def test_compiled_and_python_laplace_agree(t: int, s: int, seed: int) -> None:
    scale = Fraction(t, s)
    rng, twin = Random(seed=seed), Random(seed=seed)
    values = [*discrete_laplace(rng, scale, size=150).tolist(), discrete_laplace(rng, scale)]
    assert values == [exact_laplace(twin.below, scale.numerator, scale.denominator) for _ in range(151)]
    assert rng.word() == twin.word()


def test_laplace_that_does_not_fit_is_drawn_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "fill_laplace", lambda *_: -2)
    rng, twin = Random(seed=33), Random(seed=33)
    assert discrete_laplace(rng, 5, size=3).tolist() == [exact_laplace(twin.below, 5, 1) for _ in range(3)]


def gaussian(rng: Random, sigma2: Fraction | int, size: int) -> NDArray[np.int64]:
    return np.array([exact_gaussian(rng.below, sigma2.numerator, sigma2.denominator) for _ in range(size)])


@pytest.mark.parametrize("sigma2", [Fraction(1, 4), 2, Fraction(1000, 3)])
def test_discrete_gaussian_has_its_distribution(sigma2: Fraction | int) -> None:
    """False-positive rate 10⁻⁷; a sigma that is 5 % off is rejected in both directions."""
    values = gaussian(Random(seed=34), sigma2, 40_000)
    assert not integer_rejected(values, gaussian_weight(float(sigma2)))
    assert integer_rejected(values, gaussian_weight(1.05**2 * float(sigma2)))
    assert integer_rejected(values, gaussian_weight(float(sigma2) / 1.05**2))


def test_discrete_gaussian_of_any_size() -> None:
    assert 2**70 < abs(exact_gaussian(Random(seed=35).below, 2**160, 1)) < 2**84


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 3), (1, 1), (5, 2), (2**70, 2**70 + 1)])
def test_bernoulli_exp_has_its_probability(a: int, b: int) -> None:
    """False-positive rate 10⁻⁷; exp(−1.1·a/b) is rejected."""
    rng, n = Random(seed=37), 20_000
    hits = sum(exact_bernoulli_exp(rng.below, a, b) for _ in range(n))
    if a == 0:
        assert hits == n
        return
    p, wrong = math.exp(-a / b), math.exp(-1.1 * a / b)
    assert not rejected([hits, n - hits], [p, 1 - p])
    assert rejected([hits, n - hits], [wrong, 1 - wrong])


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noise_agrees_with_opendp(kind: str) -> None:
    """Two-sample chi-square against 50 000 draws of OpenDP's samplers.

    OpenDP draws from the system's entropy, so the rate 10⁻⁷ of a false alarm is real; our own draws at a
    scale 20 % off are told apart (this fails with probability below 10⁻⁹).
    """
    dp = pytest.importorskip("opendp.prelude", reason="needs opendp: pip install opendp")
    dp.enable_features("contrib")
    domain, n = dp.vector_domain(dp.atom_domain(T="i64")), 50_000
    if kind == "laplace":
        oracle = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=3.5)
        ours = discrete_laplace(Random(seed=41), Fraction(7, 2), size=n)
        wrong = discrete_laplace(Random(seed=42), Fraction(42, 10), size=n)
    else:
        oracle = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=3.5)
        ours = gaussian(Random(seed=41), Fraction(49, 4), n)
        wrong = gaussian(Random(seed=42), Fraction(1764, 100), n)
    theirs = np.array(oracle([0] * n))

    def told_apart(a: NDArray[np.int64], b: NDArray[np.int64]) -> bool:
        edges = [-(10**9), *range(-9, 11), 10**9]
        counts = np.array([np.histogram(x, edges)[0] for x in (a, b)])
        statistic = ((counts[0] - counts[1]) ** 2 / counts.sum(axis=0)).sum()
        return bool(statistic > chi2.isf(LEVEL, len(edges) - 2))

    assert not told_apart(ours, theirs)
    assert told_apart(wrong, theirs)


# Refusals


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: Random(seed=1.5),
        lambda rng: Random(seed="7"),
        lambda rng: Random(seed=True),
        lambda rng: rng.words(-1),
        lambda rng: rng.words(2.0),
        lambda rng: rng.below(0),
        lambda rng: rng.below(-3),
        lambda rng: rng.below(2.5),
        lambda rng: rng.below(True),
        lambda rng: rng.below_many(0, 3),
        lambda rng: rng.below_many(2**63 + 1, 3),
        lambda rng: rng.below_many(3, -1),
        lambda rng: rng.subset(3, 4),
        lambda rng: rng.subset(-1, 0),
        lambda rng: rng.subset(3, -1),
        lambda rng: rng.subset(2**62, 1),
        lambda rng: rng.subset(3.0, 1),
        lambda rng: Prf().copy_of("a", 0),
        lambda rng: discrete_laplace(rng, 0),
        lambda rng: discrete_laplace(rng, Fraction(-1, 2)),
        lambda rng: discrete_laplace(rng, 0.5),
        lambda rng: discrete_laplace(rng, True),
        lambda rng: discrete_laplace(rng, math.nan),
        lambda rng: discrete_laplace(rng, 2**31, size=3),
        lambda rng: discrete_laplace(rng, 3, size=-1),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[Random], object]) -> None:
    with pytest.raises(ValueError):
        call(Random(seed=1))


def test_numpy_integers_are_integers() -> None:
    rng = Random(seed=1)
    assert 0 <= rng.below(np.int64(5)) < 5
    assert rng.subset(np.int64(9), np.int32(2)).size == 2
    assert isinstance(discrete_laplace(rng, np.int64(5)), int)


@settings(deadline=None)
@given(k=st.integers(1, 300), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_marked_subsets_are_the_same_subsets(k: int, share: float, seed: int) -> None:
    """The poll of the compiled loop, draw for draw, and its marks are gone afterwards, also where the words ran out."""
    m, words = int(share * k), Random(seed).words(400)
    first, second = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
    taken = np.zeros((k + 63) // 64, dtype=np.uint64)
    assert draw_subset(words, 0, k, m, first) == draw_marked(words, 0, k, m, second, taken)
    assert first.tolist() == second.tolist() and not taken.any()
    assert m == 0 or draw_marked(words[: m - 1], 0, k, m, second, taken) < 0
    assert not taken.any()
