"""DP-FTRL logistic regression on one page, written apart from Confide: what the guide is measured against.

Kairouz, McMahan, Song, Thakkar, Thakurta and Xu, "Practical and Private (Deep) Learning without Sampling or Shuffling"
(2021): θ follows the prefix sums of clipped gradients, made private by a binary tree. It shares no code with
`confide.guide`. It has three advantages that Confide does not allow itself: ranges from the stream's first rows,
floating-point noise, and the best of several learning rates, chosen after the fact. Its noise protects nobody; its
errors are what such a method reaches.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def noise_multiplier(epsilon: float, delta: float) -> float:
    """sigma/sensitivity of one Gaussian release at (ε, δ), by its Rényi divergence."""
    best = math.inf
    for order in range(2, 300):
        room = epsilon - math.log1p(-1 / order) + math.log(order * delta) / (order - 1)
        if room > 0:
            best = min(best, math.sqrt(order / (2 * room)))
    return best


def design(
    numbers: NDArray[np.float64],
    categories: Sequence[Sequence[str]],
    texts: Sequence[str],
    bins: int = 16,
    places: int = 256,
) -> sparse.csr_matrix:
    """Standardised and binned columns, hashed categories, hashed words; every row of norm 1."""
    n = max(len(numbers), len(texts))
    parts = [sparse.csr_matrix(np.ones((n, 1)))]
    for column in np.nan_to_num(numbers).T:
        column = np.sign(column) * np.log1p(np.abs(column)) if np.abs(column).max() > 1000 else column
        first = column[: n // 20]
        parts.append(sparse.csr_matrix(np.clip((column - first.mean()) / (first.std() + 1e-9), -2, 2)[:, None] / 2))
        cuts = np.unique(np.quantile(first, np.linspace(0, 1, bins + 1)[1:-1]))
        parts.append(_one_hot(np.searchsorted(cuts, column, side="right"), bins + 1))
    for j, values in enumerate(categories):
        parts.append(_one_hot(np.array([zlib.crc32(f"{j}{v}".encode()) % places for v in values]), places))
    if texts:
        rows = [[zlib.crc32(word.encode()) % 8192 for word in text.lower().split()] for text in texts]
        starts = np.cumsum([0] + [len(row) for row in rows])
        flat = np.array([word for row in rows for word in row])
        parts.append(sparse.csr_matrix((np.ones(len(flat)), flat, starts), shape=(n, 8192)))
    x = sparse.hstack(parts, format="csr")
    lengths = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags(1 / lengths) @ x)


def _one_hot(places: NDArray[np.int64], width: int) -> sparse.csr_matrix:
    n = len(places)
    return sparse.csr_matrix((np.ones(n), places, np.arange(n + 1)), shape=(n, width))


def run(
    x: sparse.csr_matrix,
    labels: NDArray[np.int64],
    taught: NDArray[np.bool_],
    epsilon: float,
    delta: float,
    rate: float,
    seed: int,
    steps: int = 500,
    clip: float = 0.5,
) -> NDArray[np.bool_]:
    """Which rows were answered wrongly, each before it was learned; `taught` says which labels may be used."""
    rng, n = np.random.default_rng(seed), x.shape[0]
    batch = -(-n // steps)
    levels = steps.bit_length()
    sigma = noise_multiplier(epsilon, delta) * 2 * clip * math.sqrt(levels)
    nodes: list[tuple[int, NDArray[np.float64]]] = []  # (level, noise) of the tree's nodes that make up the past
    total, theta = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    wrong = np.zeros(n, dtype=np.bool_)
    for start in range(0, n, batch):
        part, y = x[start : start + batch], labels[start : start + batch]
        score = part @ theta
        wrong[start : start + batch] = (score > 0) != (y == 1)
        residual = np.clip(1 / (1 + np.exp(-score)) - y, -clip, clip) * taught[start : start + batch]
        total += part.T @ residual
        level = 0
        while nodes and nodes[-1][0] == level:
            nodes.pop()
            level += 1
        nodes.append((level, rng.normal(0, sigma, x.shape[1])))
        theta = -rate * (total + sum(noise for _, noise in nodes))
    return wrong
