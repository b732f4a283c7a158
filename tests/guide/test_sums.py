"""Noisy prefix sums: the integer matrices, what they cost, and what they decode to."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from confide.privacy.sums import BinaryTree, SquareRoot, decode, divergence, encode

pytestmark = pytest.mark.claim("guide.md")


def matrix(root: SquareRoot) -> np.ndarray:
    n = root.leaves
    return np.array([[int(root.factor[i - s]) if s <= i else 0 for s in range(n)] for i in range(n)], dtype=object)


@pytest.mark.parametrize(("leaves", "tree", "root"), [(250, 31.6, 7.1), (1000, 49.4, 9.6)])
def test_load_times_mean_variance(leaves: int, tree: float, root: float) -> None:
    assert BinaryTree(leaves).load * BinaryTree(leaves).variances().mean() == pytest.approx(tree, abs=0.06)
    assert SquareRoot(leaves).load * SquareRoot(leaves).variances().mean() == pytest.approx(root, abs=0.06)


@pytest.mark.parametrize(("leaves", "scale"), [(1, 1), (7, 2), (40, 64), (200, 4096)])
def test_load_is_the_largest_squared_column_norm(leaves: int, scale: int) -> None:
    root = SquareRoot(leaves, scale)
    columns = (matrix(root) ** 2).sum(axis=0)
    assert root.load == max(columns)
    assert isinstance(root.load, int)


def test_the_rounded_factor_is_within_a_half_of_the_square_root() -> None:
    root = SquareRoot(300)
    exact = [Fraction(1)]
    for k in range(1, 300):
        exact.append(exact[-1] * Fraction(2 * k - 1, 2 * k))
    assert all(abs(int(f) - 4096 * e) <= Fraction(1, 2) for f, e in zip(root.factor, exact, strict=True))


def test_nodes_are_exact_and_decode_to_prefix_sums() -> None:
    root, rng = SquareRoot(60), np.random.default_rng(1)
    sums = rng.integers(-(2**40), 2**40, (60, 3))
    rows = np.zeros((60, 3), dtype=np.int64)
    for i in range(60):
        encode(root.factor, sums, i, rows[i])
        assert rows[i].tolist() == (matrix(root)[i] @ sums.astype(object)).tolist()
        out = np.zeros(3)
        decode(root.decoder, rows, i, out)
        assert out == pytest.approx(sums[: i + 1].sum(axis=0), rel=1e-9, abs=2**10)


def test_decoded_noise_has_the_stated_variance() -> None:
    root, rng = SquareRoot(32), np.random.default_rng(2)
    noise = rng.normal(0, 2**20, (32, 20_000)).astype(np.int64)
    out = np.zeros(20_000)
    decode(root.decoder, noise, 31, out)
    assert out.std() == pytest.approx(2**20 * np.sqrt(root.variances()[31]), rel=0.05)


@pytest.mark.parametrize("leaves", [1, 2, 13, 64])
def test_the_tree_closes_what_it_adds_up(leaves: int) -> None:
    tree, spans, closed = BinaryTree(leaves), {}, set()
    hold = [0] * leaves
    for i in range(1, leaves + 1):
        for level, number in tree.closing(i):
            spans[level, number] = range(number << level, (number + 1) << level)
            closed.add((level, number))
            for leaf in spans[level, number]:
                hold[leaf] += 1
        assert sorted(leaf for node in tree.prefix(i) for leaf in spans[node]) == list(range(i))
        assert len(tree.prefix(i)) == tree.variances()[i - 1]
    assert max(hold) <= tree.load


def test_divergence_is_rounded_up_and_never_down() -> None:
    for order, shift2, load, sigma2 in [(3, 7, 11, 13), (22, 2**32, 51193827, 10**18 + 1), (2, 0, 5, 1)]:
        exact = Fraction(order * shift2 * load, 2 * sigma2)
        value = divergence(order, shift2, load, sigma2)
        assert Fraction(value) >= exact
        assert value == 0 or Fraction(float(np.nextafter(value, 0))) < exact


@pytest.mark.parametrize("bad", [dict(order=1), dict(sigma2=0), dict(load=-1), dict(shift2=1.5)])
def test_divergence_of_nonsense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        divergence(**{"order": 2, "shift2": 1, "load": 1, "sigma2": 1, **bad})  # type: ignore[arg-type]


def test_room_is_refused_before_it_overflows() -> None:
    root = SquareRoot(1024)
    assert root.room(10**9 * 2**15 // 10**3)
    assert not root.room(2**62)
    with pytest.raises(ValueError, match="leaves"):
        SquareRoot(1025)
