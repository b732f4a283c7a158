"""Naive Bayes: Gaussian and Bernoulli, as counts and moments in stacked arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.kernels.machine import prefetch
from confide.learners.base import Layout, Stacked, positive


class GaussianNB(Stacked):
    """Naive Bayes with a normal distribution for each feature and label.

    The variance of a label is smoothed with the variance of all records, as if `smoothing` more records had
    it: a label that was seen once is not infinitely sure of itself. A feature that never varied is left out.

    Parameters
    ----------
    smoothing
        Weight of the variance of all records, in records.
    class_weight, warmup, labels
        As for `Stacked`; the weight multiplies its prior.

    Examples
    --------
    >>> learner = GaussianNB()
    >>> for i in range(20):
    ...     learner.learn([i % 5, 1000.0], 0)
    ...     learner.learn([i % 5 + 10, 1000.0], 1)
    >>> learner.predict([3, 1000.0]), learner.predict([11, 1000.0])
    (0, 1)
    """

    def __init__(
        self, smoothing: float = 1.0, class_weight: Sequence[float] | None = None, warmup: int = 1, labels: int = 2
    ) -> None:
        super().__init__(labels, warmup, class_weight)
        self.smoothing = smoothing
        self._smoothing = positive("smoothing", smoothing)

    def layout(self, features: int) -> Layout:
        return {
            "count": ((self.labels,), np.int64),
            "mean": ((self.labels, features), np.float32),
            "spread": ((self.labels, features), np.float32),  # sum of squared deviations
            "precision": ((self.labels, features), np.float32),  # half of 1/variance
            "constant": ((self.labels,), np.float32),
        }

    def constants(self) -> Floats:
        return np.array([self._smoothing, *self._weight])


class BernoulliNB(Stacked):
    """Naive Bayes on features that are there or not, such as the words of a text.

    Parameters
    ----------
    alpha
        Smoothing: how often each feature counts as seen, and as not seen, before the first record.
    true_threshold
        A feature is there when it is above this.
    class_weight, warmup, labels
        As for `Stacked`; the weight multiplies its prior.

    Examples
    --------
    >>> from confide.learners import Features
    >>> learner = Features(text={"message": 256}) | BernoulliNB()
    >>> for _ in range(3):
    ...     learner.learn({"message": "cheap pills, buy now"}, 1)
    ...     learner.learn({"message": "lunch on Monday?"}, 0)
    >>> learner.predict({"message": "buy cheap lunch pills"})
    1
    """

    def __init__(
        self,
        alpha: float = 1.0,
        true_threshold: float = 0.0,
        class_weight: Sequence[float] | None = None,
        warmup: int = 1,
        labels: int = 2,
    ) -> None:
        super().__init__(labels, warmup, class_weight)
        self.alpha, self.true_threshold = alpha, true_threshold
        self._alpha, self._threshold = positive("alpha", alpha), float(true_threshold)
        if not np.isfinite(self._threshold):
            raise ValueError("true_threshold must be a finite number")

    def layout(self, features: int) -> Layout:
        return {
            "count": ((self.labels,), np.int64),
            "ones": ((self.labels, features), np.int32),
            "weights": ((self.labels, features), np.float32),
            "constant": ((self.labels,), np.float32),
        }

    def constants(self) -> Floats:
        return np.array([self._alpha, self._threshold, *self._weight])


# What a vote needs is worked out when a copy is taught, for all its labels: a vote then takes no logarithm. A
# label that the copy never saw has the constant −∞ and is not answered.

_counts, _hits = compiled.view(np.int64, 1), compiled.view(np.int32, 2)
_by_label, _by_feature = compiled.view(np.float32, 1), compiled.view(np.float32, 2)


@jit
def _vote_gaussian(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    """While the slots vote, the numbers of those that vote next are sent for: they lie anywhere in memory."""
    mean, precision, constant = _by_feature(memory, 2), _by_feature(memory, 4), _by_label(memory, 5)
    x = x.astype(np.float32).astype(np.float64)
    labels, features = mean.shape[1], mean.shape[2]
    size, first, second, third = 4 * labels * features, mean.ctypes.data, precision.ctypes.data, constant.ctypes.data
    for j in range(slots.size):
        if j < ahead.size:
            there = max(ahead[j], 0)
            prefetch(third + 4 * labels * there)
            for line in range(min(size // 64 + 1, 4)):
                prefetch(first + size * there + 64 * line)
                prefetch(second + size * there + 64 * line)
        slot = slots[j]
        if slot < 0:
            continue
        best, top = -1, -np.inf
        for label in range(labels):
            score = np.float64(constant[slot, label])
            if score == -np.inf:
                continue
            for i in range(features):
                off = x[i] - mean[slot, label, i]
                score -= precision[slot, label, i] * off * off
            if best < 0 or score > top:
                best, top = label, score
        counts[best] += 1


@jit
def _teach_gaussian(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    count, mean, spread = _counts(memory, 1)[slot], _by_feature(memory, 2)[slot], _by_feature(memory, 3)[slot]
    precision, constant = _by_feature(memory, 4)[slot], _by_label(memory, 5)[slot]
    smoothing, weight = constants[0], constants[1:]
    x = x.astype(np.float32).astype(np.float64)  # else a constant would differ from its own rounded mean
    labels, features = mean.shape
    count[y] += 1
    total_seen = 0
    for label in range(labels):
        total_seen += count[label]
        constant[label] = np.log(count[label] * weight[label]) if count[label] > 0 else -np.inf
    for i in range(features):
        off = x[i] - mean[y, i]
        mean[y, i] += np.float32(off / count[y])
        spread[y, i] += np.float32(off * (x[i] - mean[y, i]))
        centre, total = 0.0, 0.0
        for label in range(labels):
            centre += count[label] * mean[label, i] / total_seen
        for label in range(labels):
            total += spread[label, i] + count[label] * (mean[label, i] - centre) ** 2
        for label in range(labels):
            if count[label] == 0:
                continue
            variance = (spread[label, i] + smoothing * total / total_seen) / (count[label] + smoothing)
            if max(1e-30, 1e-12 * centre**2) < variance < 1e30:  # else rounding, or too much
                precision[label, i] = np.float32(0.5 / variance)
                constant[label] -= np.float32(0.5 * np.log(variance))
            else:
                precision[label, i] = np.float32(0.0)


@jit
def _vote_bernoulli(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    weights, constant, on = _by_feature(memory, 3), _by_label(memory, 4), np.flatnonzero(x > constants[1])
    for slot in slots:
        if slot < 0:
            continue
        best, top = -1, -np.inf
        for label in range(weights.shape[1]):
            score = np.float64(constant[slot, label])
            for i in on:
                score += weights[slot, label, i]
            if best < 0 or score > top:
                best, top = label, score
        counts[best] += 1


@jit
def _teach_bernoulli(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    count, ones = _counts(memory, 1)[slot], _hits(memory, 2)[slot]
    weights, constant = _by_feature(memory, 3)[slot], _by_label(memory, 4)[slot]
    there, alpha, weight = x > constants[1], constants[0], constants[2:]
    labels, features = weights.shape
    count[y] += 1
    for i in range(features):
        ones[y, i] += there[i]
    absent = 0.0
    for i in range(features):
        p = (ones[y, i] + alpha) / (count[y] + 2.0 * alpha)
        weights[y, i] = np.float32(np.log(p / (1.0 - p)))
        absent += np.log(1.0 - p)
    for label in range(labels):
        if count[label] == 0:
            constant[label] = -np.inf
    constant[y] = np.float32(np.log(count[y] * weight[y]) + absent)


GaussianNB.kernels = (_vote_gaussian, _teach_gaussian)
BernoulliNB.kernels = (_vote_bernoulli, _teach_bernoulli)
