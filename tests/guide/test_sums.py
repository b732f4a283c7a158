"""Noisy prefix sums: the integer matrices, what they cost, and what they decode to."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide.planning.guided import _SCALES
from confide.privacy.sums import Products, SquareRoot, divergence, overlap, product
from tests.guide.binary_tree import BinaryTree

pytestmark = pytest.mark.claim("guide.md")


def matrix(root: SquareRoot) -> np.ndarray:
    n = root.leaves
    f, w = root.factor.tolist(), root.weights.tolist()
    return np.array([[f[i - s] * w[s] if s <= i else 0 for s in range(n)] for i in range(n)], dtype=object)


@pytest.mark.parametrize(("leaves", "tree", "plain", "root"), [(250, 31.6, 7.08, 6.51), (512, 45.0, 8.35, 7.70)])
def test_load_times_mean_variance(leaves: int, tree: float, plain: float, root: float) -> None:
    """Columns of one length make the sums better for nothing: by a twelfth of the variance, at the end by a third."""
    toeplitz, weighed = SquareRoot(leaves, 4096, 1), SquareRoot(leaves)
    assert BinaryTree(leaves).load * BinaryTree(leaves).variances().mean() == pytest.approx(tree, abs=0.06)
    assert toeplitz.load * toeplitz.variances().mean() == pytest.approx(plain, abs=0.01)
    assert weighed.load * weighed.variances().mean() == pytest.approx(root, abs=0.01)
    last = (weighed.load * weighed.variances()[-1]) / (toeplitz.load * toeplitz.variances()[-1])
    assert last**0.5 == pytest.approx(0.81, abs=0.01)


@pytest.mark.parametrize("leaves", [64, 512, 1000])
def test_the_coarser_matrices_that_much_noise_leaves_room_for_lose_little(leaves: int) -> None:
    finest, *coarser, toeplitz = (SquareRoot(leaves, *scales) for scales in (*_SCALES, (4096, 1)))
    best, plain = (float(root.load * root.variances().mean()) for root in (finest, toeplitz))
    costs = [float(root.load * root.variances().mean()) / best for root in coarser]
    assert costs[0] < 1.01 and costs[1] < 1.06 and costs[1] * best < plain


@pytest.mark.parametrize(("leaves", "scale", "columns"), [(1, 1, 1), (7, 2, 3), (40, 64, 16), (200, 512, 1024)])
def test_load_is_the_largest_squared_column_norm_and_no_column_is_much_shorter(
    leaves: int, scale: int, columns: int
) -> None:
    root = SquareRoot(leaves, scale, columns)
    norms = (matrix(root) ** 2).sum(axis=0)
    assert root.load == max(norms) and isinstance(root.load, int)
    assert min(norms) > root.load * (1 - 1 / columns) ** 2 or columns == 1
    for s in range(leaves):
        assert root.column(s).tolist() == matrix(root)[s:, s].tolist()


def test_the_rounded_factor_is_within_a_half_of_the_square_root() -> None:
    root = SquareRoot(300)
    exact = [Fraction(1)]
    for k in range(1, 300):
        exact.append(exact[-1] * Fraction(2 * k - 1, 2 * k))
    assert all(abs(int(f) - 512 * e) <= Fraction(1, 2) for f, e in zip(root.factor, exact, strict=True))


def test_nodes_are_exact_and_decode_to_prefix_sums() -> None:
    root, rng = SquareRoot(60), np.random.default_rng(1)
    sums = rng.integers(-(2**40), 2**40, (60, 3))
    rows, nodes, prefixes = np.zeros((60, 3), dtype=np.int64), Products(root), Products(root, decoding=True)
    for i in range(60):
        rows[i] = nodes.at(i, sums)
        assert rows[i].tolist() == (matrix(root)[i] @ sums.astype(object)).tolist()
        out = prefixes.at(i, rows)
        assert out == pytest.approx(sums[: i + 1].sum(axis=0), rel=1e-9, abs=2**10)


@pytest.mark.parametrize("leaves", [1, 7, 8, 45])
@pytest.mark.parametrize("values", [1, 3, 5000])
@pytest.mark.parametrize("decoding", [False, True])
def test_sums_that_are_begun_together_have_the_bits_of_one_by_one(leaves: int, values: int, decoding: bool) -> None:
    root, rng = SquareRoot(leaves), np.random.default_rng(3)
    x = rng.integers(-(2**63), 2**63, (leaves, values))  # integers go round at 2⁶⁴, in any order alike
    rows = root.decoder if decoding else root.matrix
    running, seen = Products(root, decoding), np.zeros_like(x)
    for i in range(leaves):
        seen[i] = x[i]
        expected = np.zeros(values, dtype=rows.dtype)
        product(rows[i], x, 0, i + 1, expected)
        assert running.at(i, seen).tobytes() == expected.tobytes()
        late = pickle.loads(pickle.dumps(running))  # one that begins in the midst
        assert late.at(i, seen).tobytes() == expected.tobytes()


def test_the_matrix_is_that_of_its_columns() -> None:
    root = SquareRoot(40)
    for s in range(40):
        assert root.matrix[s:, s].tolist() == root.column(s).tolist() and not root.matrix[:s, s].any()


def test_decoded_noise_has_the_stated_variance_and_covariance() -> None:
    root, rng = SquareRoot(32), np.random.default_rng(2)
    noise = rng.normal(0, 2**20, (32, 20_000)).astype(np.int64)
    last, early = (Products(root, decoding=True).at(i, noise) for i in (31, 7))
    assert last.std() == pytest.approx(2**20 * np.sqrt(root.variances()[31]), rel=0.05)
    assert root.variances()[31] == pytest.approx(overlap(root.decoder, 32, 32))
    assert (last * early).mean() == pytest.approx(2**40 * overlap(root.decoder, 8, 32), rel=0.1)
    assert overlap(root.decoder, 8, 32) == overlap(root.decoder, 32, 8)


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
    for order, mu2 in [(3, Fraction(77, 13)), (22, Fraction(2**32 * 51193827, 10**18 + 1)), (2, Fraction(0))]:
        exact = order * mu2 / 2
        value = divergence(order, mu2)
        assert Fraction(value) >= exact
        assert value == 0 or Fraction(float(np.nextafter(value, 0))) < exact


@pytest.mark.parametrize("bad", [dict(order=1), dict(mu2=Fraction(-1)), dict(order=1.5)])
def test_divergence_of_nonsense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        divergence(**{"order": 2, "mu2": Fraction(1), **bad})


def test_room_is_refused_before_it_overflows() -> None:
    root = SquareRoot(1024)
    assert root.room(10**7 * 2**15 // 10**3)
    assert SquareRoot(1024, *_SCALES[-1]).room(10**10 // 1024 * 2**16)  # the most rounds that are planned
    assert not root.room(2**62)
    with pytest.raises(ValueError, match="leaves"):
        SquareRoot(1025)
