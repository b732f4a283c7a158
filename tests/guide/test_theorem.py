"""Theorem 13 by enumeration: the best adaptive adversary in small cases, against the certified bound."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from confide.privacy.sums import SquareRoot, divergence
from tests.guide.binary_tree import BinaryTree

pytestmark = pytest.mark.claim("guide.md")

ORDER, SIGMA2, REACH = 4, 9, 60
GRID = np.arange(-REACH, REACH + 1)


def law(centre: int) -> np.ndarray:
    weights = np.exp(-((GRID - centre) ** 2) / (2.0 * SIGMA2))
    return weights / weights.sum()


def moment(shift: int) -> float:
    """Σ P^α·Q^{1−α} of one node whose centres differ by `shift`."""
    wide = np.arange(-4 * REACH, 4 * REACH + 1)
    p, q = -((wide - shift) ** 2) / (2.0 * SIGMA2), -(wide**2) / (2.0 * SIGMA2)
    return float(np.exp(ORDER * p + (1 - ORDER) * q).sum() / np.exp(q).sum())


MOMENTS = {shift: moment(shift) for shift in range(-16, 17)}


def root_matrix(leaves: int, scale: int) -> np.ndarray:
    root = SquareRoot(leaves, scale, 2)
    rows = [[root.factor[i - s] * root.weights[s] if s <= i else 0 for s in range(leaves)] for i in range(leaves)]
    return np.array(rows)


def tree_matrix(leaves: int) -> np.ndarray:
    tree, rows = BinaryTree(leaves), []
    for i in range(1, leaves + 1):
        for level, number in tree.closing(i):
            rows.append([1 if number << level <= s < (number + 1) << level else 0 for s in range(leaves)])
    return np.array(rows)


def closes(matrix: np.ndarray) -> list[int]:
    """The leaf with which each node closes."""
    return [int(np.flatnonzero(row)[-1]) for row in matrix]


def best(matrix: np.ndarray, budget: int) -> float:
    """The largest moment over all adversaries who choose each leaf's difference from what they have seen.

    A node's moment depends on its shift alone, not on what is seen, so the best answer to every past is the same: the
    dynamic programme over adaptive choices is the maximum over fixed ones.
    """
    top = 0.0
    for moves in product(range(-budget, budget + 1), repeat=matrix.shape[1]):
        if sum(map(abs, moves)) <= budget:
            top = max(top, math.prod(MOMENTS[int(shift)] for shift in matrix @ np.array(moves)))
    return math.log(top) / (ORDER - 1)


def played(matrix: np.ndarray, budget: int) -> float:
    """Two leaves, played out: every first outcome, the best second move after each, and a visible gradient that
    answers what was seen. Nothing is factored: views are enumerated."""
    total = 0.0
    tops = []
    for first in range(-budget, budget + 1):
        total = 0.0
        for z, p, q in zip(GRID, law(int(matrix[0, 0]) * first), law(0), strict=True):
            visible = int(np.sign(z)) * int(matrix[1, 1])
            left = budget - abs(first)
            inner = []
            for second in range(-left, left + 1):
                shift = int(matrix[1, 0]) * first + int(matrix[1, 1]) * second
                a, b = law(shift + visible), law(visible)
                inner.append(float((a**ORDER * b ** (1 - ORDER)).sum()))
            total += p**ORDER * q ** (1 - ORDER) * max(inner)
        tops.append(total)
    return math.log(max(tops)) / (ORDER - 1)


@pytest.mark.parametrize("leaves", [1, 2, 3, 4])
@pytest.mark.parametrize("budget", [1, 2])
def test_no_adversary_passes_the_bound_and_the_best_comes_close(leaves: int, budget: int) -> None:
    for matrix in (root_matrix(leaves, 4), tree_matrix(leaves)):
        load = int((matrix**2).sum(axis=0).max())
        bound = divergence(ORDER, Fraction(budget**2 * load, SIGMA2))
        assert 0.99 * bound < best(matrix, budget) <= bound * (1 + 1e-9)


def test_a_wrong_load_is_found_out() -> None:
    for matrix in (root_matrix(4, 4), tree_matrix(4)):
        load = int((matrix**2).sum(axis=0).max())
        rows = int((matrix**2).sum(axis=1).max())  # the norm of a row is not what a leaf costs
        for wrong in {load - 1, min(rows, load - 1), load // 2}:
            assert best(matrix, 2) > divergence(ORDER, Fraction(4 * wrong, SIGMA2)) * (1 + 1e-9)


def test_views_played_out_agree_with_the_programme() -> None:
    matrix = root_matrix(2, 2)
    assert played(matrix, 2) == pytest.approx(best(matrix, 2), rel=1e-9)
    assert played(matrix, 2) <= divergence(ORDER, Fraction(4 * int((matrix**2).sum(axis=0).max()), SIGMA2)) * (1 + 1e-9)


def test_a_label_that_comes_in_different_leaves_costs_no_more_than_opposite_labels() -> None:
    """Σ_t ‖D_t‖ is what counts: +κC in one leaf and −κC in another stay within 2κC."""
    matrix = root_matrix(3, 4)
    bound = divergence(ORDER, Fraction(4 * int((matrix**2).sum(axis=0).max()), SIGMA2))
    for moves in ([1, -1, 0], [1, 0, -1], [0, 1, 1], [2, 0, 0]):
        reached = math.log(math.prod(MOMENTS[int(s)] for s in matrix @ np.array(moves))) / (ORDER - 1)
        assert reached <= bound * (1 + 1e-9)
