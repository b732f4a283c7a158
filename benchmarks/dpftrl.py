"""DP-FTRL logistic regression on one page, written apart from Confide: what the guide is measured against.

Kairouz, McMahan, Song, Thakkar, Thakurta and Xu, "Practical and Private (Deep) Learning without Sampling or Shuffling"
(2021): θ follows the prefix sums of clipped gradients. Their noise is that of the square root of the matrix of prefix
sums (Fichtenberger, Henzinger and Upadhyay, 2022), exactly as much of it as one Gaussian release needs. It shares no
code with `confide.guide`. It has three advantages that Confide does not allow itself: ranges from the stream's first
rows, floating-point noise, and the best of several learning rates and maps, chosen after the fact. Its noise protects
nobody; its errors are what such a method reaches.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import log_ndtr, ndtr

RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
STEPS = 500
WORDS = 8192


def noise_multiplier(epsilon: float, delta: float) -> float:
    """sigma/sensitivity of one Gaussian release at (ε, δ), exactly (Balle and Wang, 2018), by halving."""
    low, high = 0.01, 1000.0
    for _ in range(100):
        sigma = math.sqrt(low * high)
        a, b = 1 / (2 * sigma), epsilon * sigma
        spent = float(ndtr(a - b)) - math.exp(min(700.0, epsilon + float(log_ndtr(-a - b))))
        low, high = (sigma, high) if spent > delta else (low, sigma)
    return high


def design(
    numbers: NDArray[np.float64],
    categories: Sequence[Sequence[str]],
    texts: Sequence[str],
    bins: int = 16,
    places: int = 256,
) -> sparse.csr_matrix:
    """Standardised and, unless bins = 0, binned columns, hashed categories, hashed words; every row of norm 1."""
    n = max(len(numbers), len(texts))
    parts = [sparse.csr_matrix(np.ones((n, 1)))]
    for column in np.nan_to_num(numbers).T:
        column = np.sign(column) * np.log1p(np.abs(column)) if np.abs(column).max() > 1000 else column
        first = column[: n // 20]
        parts.append(sparse.csr_matrix(np.clip((column - first.mean()) / (first.std() + 1e-9), -2, 2)[:, None] / 2))
        if bins:
            cuts = np.unique(np.quantile(first, np.linspace(0, 1, bins + 1)[1:-1]))
            parts.append(_one_hot(np.searchsorted(cuts, column, side="right"), bins + 1))
    for j, values in enumerate(categories):
        parts.append(_one_hot(np.array([zlib.crc32(f"{j}{v}".encode()) % places for v in values]), places))
    if texts:
        rows = [[zlib.crc32(word.encode()) % WORDS for word in text.lower().split()] for text in texts]
        starts = np.cumsum([0] + [len(row) for row in rows])
        flat = np.array([word for row in rows for word in row])
        parts.append(sparse.csr_matrix((np.ones(len(flat)), flat, starts), shape=(n, WORDS)))
    x = sparse.hstack(parts, format="csr")
    lengths = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags(1 / lengths) @ x)


def _one_hot(places: NDArray[np.int64], width: int) -> sparse.csr_matrix:
    n = len(places)
    return sparse.csr_matrix((np.ones(n), places, np.arange(n + 1)), shape=(n, width))


def noise(seed: int, size: int, steps: int = STEPS) -> NDArray[np.float64]:
    """One row a step: the noise in the prefix sum after it, for a sensitivity of 1 and a noise multiplier of 1."""
    root = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, steps))])  # of the power series of 1/(1−z)
    k = np.arange(steps)
    lower = np.where(k[:, None] >= k, root[np.abs(k[:, None] - k)], 0.0)
    drawn = np.random.default_rng(seed).normal(0, math.sqrt(float(root @ root)), (steps, size))
    return np.asarray(lower @ drawn)


def run(
    x: sparse.csr_matrix,
    labels: NDArray[np.int64],
    taught: NDArray[np.bool_],
    epsilon: float,
    delta: float,
    rate: float,
    seed: int,
    drawn: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """The answer to each row, before it was learned; `taught` says which labels may be used.

    Two labels are told apart by one vector, more by one for each (softmax). A residual is clipped to ½, and to 1, as
    the guide's is. `drawn` is `noise` for this seed, where it is wanted more than once.
    """
    n, many = x.shape[0], int(labels.max()) + 1
    vectors, clip = (1, 0.5) if many == 2 else (many, 1.0)
    batch = -(-n // STEPS)
    drawn = noise(seed, x.shape[1] * vectors) if drawn is None else drawn
    sigma = noise_multiplier(epsilon, delta) * 2 * clip
    total, theta = np.zeros((x.shape[1], vectors)), np.zeros((x.shape[1], vectors))
    answers = np.zeros(n, dtype=np.int64)
    for step, start in enumerate(range(0, n, batch)):
        part, y = x[start : start + batch], labels[start : start + batch]
        score = part @ theta
        answers[start : start + batch] = score[:, 0] > 0 if vectors == 1 else score.argmax(axis=1)
        residual = _residuals(score, y)
        length = np.sqrt((residual**2).sum(axis=1, keepdims=True))
        residual *= np.minimum(1, clip / np.maximum(length, 1e-12)) * taught[start : start + batch, None]
        total += part.T @ residual
        theta = -rate * (total + sigma * drawn[step].reshape(theta.shape))
    return answers


def _residuals(score: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probabilities less the label."""
    if score.shape[1] == 1:
        return np.asarray(1 / (1 + np.exp(-np.clip(score, -500, 500))) - y[:, None])
    likely = np.exp(score - score.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    likely[np.arange(len(y)), y] -= 1
    return np.asarray(likely)
