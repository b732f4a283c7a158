"""The guide's arithmetic: scores, integer gradients, and a leaf of rounds in one compiled loop.

A row's score and gradient are computed from that row and θ alone, feature by feature in the order in which the map
gives them. No matrix product: its last bit may depend on the other rows of a batch, and the proof needs that nothing
of one unit's row reaches another's gradient (docs/proofs/guide.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit

__all__ = ["add_gradient", "follow", "run_rows", "scores"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TRIES = 64


@jit
def scores(theta: Floats, indices: Ints, values: Floats, out: Floats) -> None:
    """One score a vector of θ."""
    for v in range(out.size):
        out[v] = 0.0
    for a in range(indices.size):
        for v in range(out.size):
            out[v] += theta[indices[a], v] * values[a]


@jit
def _residuals(score: Floats, y: int) -> None:
    """Turn scores into probabilities less the label: what a gradient is before it meets the features."""
    if score.size == 1:
        score[0] = 1.0 / (1.0 + np.exp(-score[0])) - (1.0 if y == 1 else 0.0)
        return
    top, total = score[0], 0.0
    for v in range(score.size):
        top = max(top, score[v])
    for v in range(score.size):
        score[v] = np.exp(score[v] - top)
        total += score[v]
    for v in range(score.size):
        score[v] /= total
    score[y] -= 1.0


@jit
def _fits(residual: Floats, values: Floats, factor: float, clip: int) -> bool:
    """Whether the integers of residual ⊗ values times factor have Σg² ≤ clip², for clip < 2³¹: nothing can overflow."""
    room = np.int64(clip * clip)
    for a in range(values.size):
        for v in range(residual.size):
            wanted = residual[v] * factor * values[a]
            if not abs(wanted) <= clip:  # before it becomes an integer: one that does not fit has no square to check
                return False
            g = np.int64(wanted)
            room -= g * g
            if room < 0:
                return False
    return True


@jit
def add_gradient(
    theta: Floats, indices: Ints, values: Floats, y: int, weight: float, clip: int, scale: int, leaf: Ints
) -> bool:
    """Add one clipped integer gradient to the open leaf; False, and nothing added, if there is none.

    The integers are those that are checked: Σg² ≤ clip², in 64-bit integers, before any of them is added. Indices must
    increase, since two entries of one coordinate would add up to more than their squares say.
    """
    width, vectors = theta.shape
    squares, last = 0.0, np.int64(-1)
    for a in range(indices.size):
        if indices[a] <= last or indices[a] >= width:
            return False
        last = indices[a]
        squares += values[a] * values[a]
    residual = np.empty(vectors)
    scores(theta, indices, values, residual)
    _residuals(residual, y)
    length = 0.0
    for v in range(vectors):
        length += residual[v] * residual[v]
    length = np.sqrt(length * squares) * weight
    if not length < 1e300:  # not a number, infinite, or absurd: no gradient
        return False
    factor = weight * scale
    if length * scale > clip:
        factor = clip / length * weight
    for _ in range(_TRIES):
        if _fits(residual, values, factor, clip):
            for a in range(indices.size):
                for v in range(vectors):
                    leaf[indices[a] * vectors + v] += np.int64(residual[v] * factor * values[a])  # toward zero
            return True
        factor *= 1.0 - 2.0**-10
    return False


@jit
def run_rows(
    theta: Floats,
    answering: Floats,
    starts: Ints,
    indices: Ints,
    values: Floats,
    labels: Ints,
    weights: Floats,
    clip: int,
    scale: int,
    leaf: Ints,
    out: Floats,
) -> None:
    """Rounds of one leaf: score by the answering θ, then learn. A label below 0 is one that never comes."""
    for i in range(labels.size):
        a, b, y = starts[i], starts[i + 1], labels[i]
        scores(answering, indices[a:b], values[a:b], out[i])
        if y >= 0:
            add_gradient(theta, indices[a:b], values[a:b], y, weights[y], clip, scale, leaf)


@jit
def follow(
    decoded: Floats, rate: float, momentum: float, memory: float, past: float, theta: Floats, answering: Floats
) -> None:
    """θ from the decoded sums, and the answering θ, its running mean: `past` counts rounds in leaves like the last one.

    θ is the mean of −rate · sums that forgets with `momentum`: the same as steepest descent with a heavy ball, whose
    steps may be longer by (1 + momentum) / (1 − momentum) before they swing.
    """
    keep = 1.0 if memory <= 0.0 else min(1.0, (memory + 1.0) / (memory + past))
    width, vectors = theta.shape
    for a in range(width):
        for v in range(vectors):
            theta[a, v] = momentum * theta[a, v] - (1.0 - momentum) * rate * decoded[a * vectors + v]
            answering[a, v] += keep * (theta[a, v] - answering[a, v])
