"""What the linear learners share: kernels on columns of weights, and a scale of its own in every copy.

Features are standardised inside the copy by its own running mean and deviation: nothing is shared, and
unscaled data do no harm. The weights are kept in the units of x, so a vote is one dot product; a lesson turns
them into standardised units, takes its step there, and turns them back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from confide.arrays import Floats, Ints, Singles, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.kernels.machine import LINE, dot, prefetch
from confide.learners.base import Layout, Stacked

LOGISTIC, PERCEPTRON, PASSIVE_AGGRESSIVE = 0, 1, 2


class Linear(Stacked):
    """One weight a feature for two labels, one for each label otherwise; the bias comes after the features."""

    rule: int

    def __init__(
        self, rate: float, l2: float, scale: bool, labels: int, warmup: int, class_weight: Sequence[float] | None
    ) -> None:
        super().__init__(labels, warmup, class_weight)
        self.scale = bool(scale)
        self._rate, self._l2 = rate, l2

    def layout(self, features: int) -> Layout:
        width = -(-(features + 1) // LINE) * LINE
        return {
            "weights": ((width, 1 if self.labels == 2 else self.labels), np.float32),
            "mean": ((features,), np.float32),
            "spread": ((features,), np.float32),  # sum of squared deviations
        }

    def constants(self) -> Floats:
        return np.array([self.rule, self._rate, self._l2, self.scale, *self._weight], dtype=np.float64)


_weights, _moments = compiled.view(np.float32, 2), compiled.view(np.float32, 1)


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    """While the slots vote, the rows of those that vote next are sent for: they lie anywhere in memory."""
    weights = _weights(memory, 1)
    width, columns = weights.shape[1], weights.shape[2]
    padded = np.zeros(width, np.float32)
    for i in range(x.size):
        padded[i] = x[i]
    padded[x.size] = 1.0
    if columns == 1:
        first, given, row, lines = weights.ctypes.data, padded.ctypes.data, 4 * width, width // LINE
        asked, ones = 0, 0
        for j in range(slots.size):
            if j < ahead.size:
                for line in range(lines):
                    prefetch(first + row * max(ahead[j], 0) + 64 * line)
            if slots[j] >= 0:
                asked += 1
                ones += dot(first + row * slots[j], given, lines) > 0.0
        counts[0] += asked - ones
        counts[1] += ones
        return
    present, sums = np.flatnonzero(padded), np.empty(columns, np.float32)
    for slot in slots:
        if slot < 0:
            continue
        for j in range(columns):
            sums[j] = 0.0
        for there in present:  # a feature that is 0, as most hashed ones are, costs nothing
            for j in range(columns):
                sums[j] += weights[slot, there, j] * padded[there]
        best = 0
        for j in range(columns):
            if sums[j] > sums[best]:
                best = j
        counts[best] += 1


@jit
def _pulls(scores: Floats, y: int, norm: float, rule: int, rate: float, pulls: Floats) -> None:
    """How far each column moves along the standardised x, into `pulls` (zeros)."""
    columns = scores.size
    if rule == LOGISTIC:
        step, top, total = min(rate, 4.0 / norm), -np.inf, 0.0
        for j in range(columns):
            top = max(top, scores[j])
        for j in range(columns):
            pulls[j] = np.exp(scores[j] - top)
            total += pulls[j]
        for j in range(columns):
            pulls[j] *= -step / total
        pulls[y] += step
        return
    rival = -1
    for j in range(columns):
        if j != y and (rival < 0 or scores[j] > scores[rival]):
            rival = j
    margin = scores[y] - scores[rival]
    step = min(rate, max(0.0, 1.0 - margin) / (2.0 * norm))
    if rule == PERCEPTRON:
        step = rate if margin <= 0.0 else 0.0
    pulls[y], pulls[rival] = step, -step


@jit
def _deviation(spread: float, n: int, centre: float) -> float:
    """The standard deviation; 0 for a feature that varied no more than rounding, or too much for float32."""
    deviation, least = np.sqrt(np.float64(spread) / n), max(1e-15, 1e-6 * abs(np.float64(centre)))
    return float(deviation) if (least < deviation) & (deviation < 1e15) else 0.0


@jit
def _pull(score: float, y: int, norm: float, rule: int, rate: float) -> float:
    """How far a single column, which scores label 1, moves along the standardised x."""
    sign = 1.0 if y == 1 else -1.0
    margin = sign * score
    if rule == LOGISTIC:
        return float(sign * min(rate, 4.0 / norm) / (1.0 + np.exp(margin)))
    if rule == PERCEPTRON:
        return sign * rate if margin <= 0.0 else 0.0
    return sign * min(rate, max(0.0, 1.0 - margin) / norm)


@jit
def _numbers(constants: Floats, y: int) -> tuple[int, float, float, bool]:
    """Rule, rate, l2, and whether to scale."""
    return int(constants[0]), constants[1] * constants[4 + y], constants[2], constants[3] > 0.0


@jit
def _teach_one(
    weights: Singles, mean: Singles, spread: Singles, constants: Floats, seen: int, x: Floats, y: int
) -> None:
    """A lesson of two labels: one column, in loops without branches that the compiler turns into vector code."""
    rule, rate, l2, scale = _numbers(constants, y)
    features, before, now = x.size, max(seen, 1), seen + 1
    room = np.empty((5, features))
    inner, centre, width, z, part = room[0], room[1], room[2], room[3], room[4]
    bias = np.float64(weights[features, 0])
    for i in range(features):
        inner[i], centre[i], width[i], z[i] = weights[i, 0], 0.0, 1.0, np.float64(np.float32(x[i]))
    if scale:
        for i in range(features):
            part[i] = inner[i] * mean[i]
            inner[i] *= _deviation(spread[i], before, mean[i])
        for i in range(features):
            bias += part[i]
        for i in range(features):
            off = z[i] - mean[i]
            moved = mean[i] + off / now
            spread[i] += np.float32(off * (z[i] - moved))
            mean[i] = np.float32(moved)
            centre[i] = mean[i]
            width[i] = _deviation(spread[i], now, centre[i])
            z[i] = (z[i] - centre[i]) / width[i] if width[i] > 0.0 else 0.0
    norm, score = 1.0, bias
    for i in range(features):
        norm += z[i] * z[i]
        score += inner[i] * z[i]
    pull, keep = _pull(score, y, norm, rule, rate), max(0.0, 1.0 - rate * l2)
    bias += pull
    for i in range(features):
        w = inner[i] * keep + pull * z[i]
        weights[i, 0] = np.float32(w / width[i]) if width[i] > 0.0 else np.float32(0.0)
        part[i] = weights[i, 0] * centre[i]
    for i in range(features):
        bias -= part[i]
    weights[features, 0] = np.float32(bias)


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    weights, mean, spread = _weights(memory, 1)[slot], _moments(memory, 2)[slot], _moments(memory, 3)[slot]
    features, columns = x.size, weights.shape[1]
    if columns == 1:
        _teach_one(weights, mean, spread, constants, seen, x, y)
        return
    rule, rate, l2, scale = _numbers(constants, y)
    room = np.empty((3, features + 1))  # one piece of memory for three: making it takes longer than filling it
    centre, width, z = room[0], room[1], room[2]
    z[features] = 1.0
    inner, scores, pulls = np.empty((features + 1, columns)), np.zeros(columns), np.zeros(columns)
    for i in range(features + 1):
        for j in range(columns):
            inner[i, j] = weights[i, j]
    for i in range(features):
        value = np.float64(np.float32(x[i]))  # else a constant would differ from its own rounded mean
        centre[i], width[i] = 0.0, 1.0
        if scale:
            centre[i] = mean[i]
            width[i] = _deviation(spread[i], max(seen, 1), centre[i])
            for j in range(columns):  # a feature that never varied has weight 0 and stays out
                inner[features, j] += inner[i, j] * centre[i]
                inner[i, j] *= width[i]
            off = value - centre[i]
            centre[i] += off / (seen + 1)
            spread[i] += np.float32(off * (value - centre[i]))
            mean[i] = np.float32(centre[i])
            centre[i] = mean[i]
            width[i] = _deviation(spread[i], seen + 1, centre[i])
        z[i] = (value - centre[i]) / width[i] if width[i] > 0.0 else 0.0
    norm = 0.0
    for i in range(features + 1):
        norm += z[i] * z[i]
        for j in range(columns):
            scores[j] += inner[i, j] * z[i]
    _pulls(scores, y, norm, rule, rate, pulls)
    for j in range(columns):
        inner[features, j] += pulls[j]
    for i in range(features):
        for j in range(columns):
            w = inner[i, j] * max(0.0, 1.0 - rate * l2) + pulls[j] * z[i]
            weights[i, j] = np.float32(w / width[i]) if width[i] > 0.0 else np.float32(0.0)
            inner[features, j] -= weights[i, j] * centre[i]
    for j in range(columns):
        weights[features, j] = np.float32(inner[features, j])


Linear.kernels = (_vote, _teach)
