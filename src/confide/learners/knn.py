"""Nearest neighbours with bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout, Stacked
from confide.learners.tree import keep_record


class KNNClassifier(Stacked):
    """The vote of the nearest of its own last records.

    Parameters
    ----------
    n_neighbors
        Records that vote.
    memory
        Records kept; the oldest is replaced first.
    scale
        Measure each feature in its own running standard deviations.
    class_weight, warmup, labels
        As for `Stacked`.

    Examples
    --------
    >>> learner = KNNClassifier(n_neighbors=3)
    >>> for i in range(30):
    ...     learner.learn([i, 1000 * (i % 2)], int(i > 14))
    >>> learner.predict([5, 0]), learner.predict([25, 0])
    (0, 1)
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        memory: int = 256,
        scale: bool = True,
        class_weight: Sequence[float] | None = None,
        warmup: int = 1,
        labels: int = 2,
    ) -> None:
        super().__init__(labels, warmup, class_weight)
        self.memory = integer(memory, "memory", 1)
        self.n_neighbors = integer(n_neighbors, "n_neighbors", 1, memory)
        self.scale = bool(scale)

    def layout(self, features: int) -> Layout:
        return {
            "records": ((self.memory, features), np.float32),
            "targets": ((self.memory,), np.int16),
            "mean": ((features,), np.float32),
            "spread": ((features,), np.float32),  # sum of squared deviations
        }

    def sound(self, arrays: Arrays) -> bool:
        targets = arrays["targets"]
        return super().sound(arrays) and bool(((targets >= 0) & (targets < self.labels)).all())

    def constants(self) -> Floats:
        return np.array([self.n_neighbors, self.scale, *self._weight], dtype=np.float64)


_seen, _targets = compiled.view(np.int64, 0), compiled.view(np.int16, 1)
_records, _moments = compiled.view(np.float32, 2), compiled.view(np.float32, 1)


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    records, mean, spread = _records(memory, 1)[slot], _moments(memory, 3)[slot], _moments(memory, 4)[slot]
    keep_record(records, _targets(memory, 2)[slot], seen % records.shape[0], x, y)
    x = x.astype(np.float32).astype(np.float64)  # else a constant would differ from its own rounded mean
    for i in range(x.size):
        off = x[i] - mean[i]
        mean[i] += np.float32(off / (seen + 1))
        spread[i] += np.float32(off * (x[i] - mean[i]))


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    seen, mean, spread = _seen(memory, 0), _moments(memory, 3), _moments(memory, 4)
    records, targets = _records(memory, 1), _targets(memory, 2)
    neighbours, scale, weight = int(constants[0]), constants[1] > 0.0, constants[2:]
    x = x.astype(np.float32).astype(np.float64)
    most, features = records.shape[1], records.shape[2]
    precision = np.ones(features)
    nearest, distance = np.empty(neighbours, np.int64), np.empty(neighbours)
    tally = np.empty(weight.size)
    for slot in slots:
        if slot < 0:
            continue
        if scale:
            for i in range(features):
                variance = spread[slot, i] / seen[slot]
                varied = variance > max(1e-30, 1e-12 * np.float64(mean[slot, i]) ** 2)
                precision[i] = 1.0 / variance if varied else 0.0
        found = 0
        for record in range(min(seen[slot], most)):
            far = 0.0
            for i in range(features):
                off = x[i] - records[slot, record, i]
                far += precision[i] * off * off
            if found < neighbours:
                place = found
                found += 1
            elif far < distance[found - 1]:
                place = found - 1
            else:
                continue
            while place > 0 and far < distance[place - 1]:
                distance[place], nearest[place] = distance[place - 1], nearest[place - 1]
                place -= 1
            distance[place], nearest[place] = far, targets[slot, record]
        for label in range(weight.size):
            tally[label] = 0.0
        for place in range(found):
            tally[nearest[place]] += weight[nearest[place]]
        best = nearest[0]  # the nearest record decides ties
        for label in range(weight.size):
            if tally[label] > tally[best]:
                best = label
        counts[best] += 1


KNNClassifier.kernels = (_vote, _teach)
