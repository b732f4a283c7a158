"""An ordinary logistic regression over the guide's map: what the guide would be if nothing had to be hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from confide.arrays import Floats, Ints
from confide.data.rows import Item
from confide.guide.columns import Columns
from confide.guide.inputs import columns_for
from confide.guide.linear import scores
from confide.guide.maps import FeatureMap
from confide.guide.model import Map, encode_batch
from confide.guide.ranges import from_sample
from confide.kernels.compile import jit

FIRST = 1000
"""Rows that show where the numbers lie; until then the most frequent label is answered."""

RATE = 0.3


class Regression:
    """Online logistic regression with AdaGrad's steps. It sees every row as it is. Its map takes its ranges from the
    first rows. Outside the guarantee.

    Parameters
    ----------
    features
        As POP is given them.
    labels
        The number of labels.
    weights
        One a label, or None: as the guide's.
    """

    what = "an ordinary logistic regression over the guide’s features, without noise and taught everything"

    def __init__(self, features: Any, labels: int, weights: Sequence[float] | None = None) -> None:
        self._weights = np.ones(labels) if weights is None else np.array(weights) / max(weights)
        found, _ = columns_for(features)
        self._columns = found if isinstance(found, Columns) else None
        self._labels, self._seen = labels, Counter[int]()
        self._waiting: list[tuple[Any, int]] = []
        if not isinstance(found, Columns):
            self._start(found)
        elif not found.numeric:
            self._start(FeatureMap(found))

    def _start(self, features: Map) -> None:
        self._map: Map = features
        vectors = 1 if self._labels == 2 else self._labels
        self._theta = np.zeros((features.width, vectors))
        self._squares = np.full((features.width, vectors), 1e-8)
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._run([x for x, _ in waiting], np.array([y for _, y in waiting]))

    def predict(self, rows: Sequence[Item]) -> Ints:
        """The label index of each row; −1 for none."""
        return self._run([row.x for row in rows], np.full(len(rows), -1))

    def learn(self, x: Any, y: int) -> None:
        """Learn one row."""
        self._run([x], np.array([y]))

    def follow(self, rows: Sequence[Item], right: Ints) -> Ints:
        """What it predicts of each row before it learns it."""
        return self._run([row.x for row in rows], right)

    def _run(self, xs: Sequence[Any], right: Ints) -> Ints:
        """Answer each row, then learn its label; a label below 0 never comes."""
        said = np.empty(len(xs), dtype=np.int64)
        done = 0
        while done < len(xs) and not hasattr(self, "_map"):
            said[done] = self._seen.most_common(1)[0][0] if self._seen else -1
            self._look(xs[done], int(right[done]))
            done += 1
        if done < len(xs):
            batch = encode_batch(self._map, xs[done:])
            taught = np.where(batch.refused, -1, right[done:])
            rows = batch.starts, batch.indices, batch.values
            _follow(self._theta, self._squares, *rows, taught, self._weights, RATE, said[done:])
            said[done:][batch.refused] = -1
        return said

    def _look(self, x: Any, y: int) -> None:
        """One of the first rows."""
        if y < 0:
            return
        self._seen[y] += 1
        self._waiting.append((x, y))
        if len(self._waiting) == FIRST:
            self._start(self._found())

    def _found(self) -> FeatureMap:
        assert self._columns is not None
        numbers = []
        for x, _ in self._waiting:
            try:
                numbers.append(self._columns.read(x).numbers)
            except ValueError:
                continue
        return FeatureMap(self._columns, from_sample(np.array(numbers)) if numbers else ())


@jit
def _follow(
    theta: Floats,
    squares: Floats,
    starts: Ints,
    indices: Ints,
    values: Floats,
    right: Ints,
    weights: Floats,
    rate: float,
    said: Ints,
) -> None:
    vectors = theta.shape[1]
    score = np.empty(vectors)
    for i in range(right.size):
        a, b, y = starts[i], starts[i + 1], right[i]
        scores(theta, indices[a:b], values[a:b], score)
        if vectors == 1:
            said[i] = 1 if score[0] > 0.0 else 0
            score[0] = 1.0 / (1.0 + np.exp(-score[0])) - (1.0 if y == 1 else 0.0)
        else:
            said[i] = score.argmax()
            score[:] = np.exp(score - score.max())
            score /= score.sum()
            score[max(y, 0)] -= 1.0
        if y < 0:
            continue
        for j in range(a, b):
            for v in range(vectors):
                g = weights[y] * score[v] * values[j]
                squares[indices[j], v] += g * g
                theta[indices[j], v] -= rate * g / np.sqrt(squares[indices[j], v])
