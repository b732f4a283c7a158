"""What the linear learners share: kernels on rows of weights, and a scale of its own in every copy.

Features are standardised inside the copy by its own running mean and deviation: nothing is shared, and
unscaled data do no harm. The weights are kept in the units of x, so a vote is one dot product; a lesson turns
them into standardised units, takes its step there, and turns them back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from confide._jit import jit
from confide.learners.base import Arrays, Floats, Ints, Layout, Singles, Stacked

__all__ = ["LOGISTIC", "PASSIVE_AGGRESSIVE", "PERCEPTRON", "Linear"]

LOGISTIC, PERCEPTRON, PASSIVE_AGGRESSIVE = 0, 1, 2
_LINE = 16  # float32 numbers in a cache line


class Linear(Stacked):
    """One row of weights for two labels, one for each label otherwise; the bias comes after the features."""

    rule: int

    def __init__(
        self,
        rate: float,
        l2: float,
        scale: bool,
        labels: int,
        warmup: int,
        class_weight: Sequence[float] | None,
    ) -> None:
        super().__init__(labels, warmup, class_weight)
        self.scale = bool(scale)
        self._rate, self._l2 = rate, l2

    def layout(self, features: int) -> Layout:
        rows = 1 if self.labels == 2 else self.labels
        width = -(-(features + 1) // _LINE) * _LINE
        return {
            "weights": ((rows, width), np.float32),
            "mean": ((features,), np.float32),
            "spread": ((features,), np.float32),  # sum of squared deviations
        }

    def vote(self, arrays: Arrays, slots: Ints, x: Floats, counts: Ints) -> None:
        _vote(arrays["weights"], slots, x, counts)

    def teach(self, arrays: Arrays, slot: int, seen: int, x: Floats, y: int) -> None:
        rate = self._rate * float(self._weight[y])
        weights, mean, spread = arrays["weights"], arrays["mean"], arrays["spread"]
        _teach(weights, mean, spread, slot, seen, x, y, self.rule, rate, self._l2, self.scale)


@jit
def _vote(weights: Singles, slots: Ints, x: Floats, counts: Ints) -> None:
    rows, width = weights.shape[1], weights.shape[2]
    padded = np.zeros(width, np.float32)
    for i in range(x.size):
        padded[i] = x[i]
    padded[x.size] = 1.0
    sums = np.empty(_LINE, np.float32)  # as many at once as a line has: a single one would wait for itself
    for slot in slots:
        if slot < 0:
            continue
        best, top = 0, 0.0 if rows == 1 else -np.inf
        for row in range(rows):
            for j in range(_LINE):
                sums[j] = weights[slot, row, j] * padded[j]
            for i in range(_LINE, width, _LINE):
                for j in range(_LINE):
                    sums[j] += weights[slot, row, i + j] * padded[i + j]
            score = np.float32(0.0)
            for j in range(_LINE):
                score += sums[j]
            if score > top:
                best, top = 1 if rows == 1 else row, score
        counts[best] += 1


@jit
def _pulls(scores: Floats, y: int, norm: float, rule: int, rate: float, pulls: Floats) -> None:
    """How far each row moves along the standardised x, into `pulls` (zeros). One row alone scores label 1."""
    rows = scores.size
    if rows == 1:
        sign = 1.0 if y == 1 else -1.0
        margin = sign * scores[0]
        if rule == LOGISTIC:
            pulls[0] = sign * min(rate, 4.0 / norm) / (1.0 + np.exp(margin))
        elif rule == PERCEPTRON:
            pulls[0] = sign * rate if margin <= 0.0 else 0.0
        else:
            pulls[0] = sign * min(rate, max(0.0, 1.0 - margin) / norm)
        return
    if rule == LOGISTIC:
        step, top, total = min(rate, 4.0 / norm), -np.inf, 0.0
        for row in range(rows):
            top = max(top, scores[row])
        for row in range(rows):
            pulls[row] = np.exp(scores[row] - top)
            total += pulls[row]
        for row in range(rows):
            pulls[row] *= -step / total
        pulls[y] += step
        return
    rival = -1
    for row in range(rows):
        if row != y and (rival < 0 or scores[row] > scores[rival]):
            rival = row
    margin = scores[y] - scores[rival]
    step = min(rate, max(0.0, 1.0 - margin) / (2.0 * norm))
    if rule == PERCEPTRON:
        step = rate if margin <= 0.0 else 0.0
    pulls[y], pulls[rival] = step, -step


@jit
def _deviation(spread: float, n: int, centre: float) -> float:
    """The standard deviation; 0 for a feature that varied no more than rounding, or too much for float32."""
    deviation = np.sqrt(spread / n)
    return float(deviation) if max(1e-15, 1e-6 * abs(centre)) < deviation < 1e15 else 0.0


@jit
def _teach(
    weights: Singles,
    mean: Singles,
    spread: Singles,
    slot: int,
    seen: int,
    x: Floats,
    y: int,
    rule: int,
    rate: float,
    l2: float,
    scale: bool,
) -> None:
    x = x.astype(np.float32).astype(np.float64)  # else a constant would differ from its own rounded mean
    features, rows = x.size, weights.shape[1]
    inner = weights[slot, :, : features + 1].astype(np.float64)
    centre = np.zeros(features)
    width = np.ones(features)
    z = np.ones(features + 1)
    for i in range(features):
        if scale:
            centre[i] = mean[slot, i]
            width[i] = _deviation(spread[slot, i], max(seen, 1), centre[i])
            for row in range(rows):  # a feature that never varied has weight 0 and stays out
                inner[row, features] += inner[row, i] * centre[i]
                inner[row, i] *= width[i]
            off = x[i] - centre[i]
            centre[i] += off / (seen + 1)
            spread[slot, i] += np.float32(off * (x[i] - centre[i]))
            mean[slot, i] = np.float32(centre[i])
            centre[i] = mean[slot, i]
            width[i] = _deviation(spread[slot, i], seen + 1, centre[i])
        z[i] = (x[i] - centre[i]) / width[i] if width[i] > 0.0 else 0.0
    scores = np.zeros(rows)
    norm = 1.0
    for i in range(features):
        norm += z[i] * z[i]
    for row in range(rows):
        for i in range(features + 1):
            scores[row] += inner[row, i] * z[i]
    pulls = np.zeros(rows)
    _pulls(scores, y, norm, rule, rate, pulls)
    for row in range(rows):
        bias = inner[row, features] + pulls[row]
        for i in range(features):
            w = inner[row, i] * max(0.0, 1.0 - rate * l2) + pulls[row] * z[i]
            weights[slot, row, i] = np.float32(w / width[i]) if width[i] > 0.0 else np.float32(0.0)
            bias -= weights[slot, row, i] * centre[i]
        weights[slot, row, features] = np.float32(bias)
