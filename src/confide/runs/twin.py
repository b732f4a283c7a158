"""The twin: one non-private learner of the same kind, taught everything, to compare with. Outside the guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.contained import contained
from confide.data.rows import Item
from confide.labels.models import model_for
from confide.learners import DecisionTree, Features, Learner, Stacked, as_learner
from confide.learners.called import Labels, called_by
from confide.pop.randomizing import read_by
from confide.privacy.response import Response

MEMORY = 4096
"""Records that the twin of a decision tree keeps: it is one, and learns everything."""


class Twin:
    """A learner that never fails. A row that it cannot answer counts as wrong; a row that it cannot learn is left out.

    Parameters
    ----------
    learner
        The prototype of the copies.
    labels
        All labels, or their number. In its own calls labels are numbers.
    features
        How x is encoded for it, where it does not do so itself.
    """

    what = "one learner of the same kind, without privacy and taught everything"

    def __init__(self, learner: Any, labels: Labels, features: Features | None = None) -> None:
        if isinstance(learner, DecisionTree):
            learner = learner.clone(memory=max(MEMORY, learner.memory))
        self._learner: Learner = as_learner(learner, labels)
        self._called = called_by(self._learner, labels)
        self._encode: Any = (lambda x: x) if features is None else features.encode

    def predict(self, rows: Sequence[Item]) -> NDArray[np.int64]:
        """The label index of each row; −1 for none."""
        return np.array([self._predict(row.x) for row in rows], dtype=np.int64)

    def learn(self, x: Any, y: int) -> None:
        """Learn one row; a negative label is none."""
        if y < 0:
            return
        with contained:  # it is somebody else's learner: the run goes on without this lesson
            self._learner.learn(self._encode(x), self._called.values[y])

    def follow(self, rows: Sequence[Item], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it predicts of each row before it learns it."""
        if isinstance(self._learner, Stacked) and rows:
            return self._learner.follow(np.array([self._encode(row.x) for row in rows]), right)
        predicted = np.empty(len(rows), dtype=np.int64)
        for i, row in enumerate(rows):
            predicted[i] = self._predict(row.x)
            self.learn(row.x, int(right[i]))
        return predicted

    def _predict(self, x: Any) -> int:
        with contained:
            return self._called.number(self._learner.predict(self._encode(x)))
        return -1


class LabelTwin:
    """The model of a run that protects labels alone, taught the labels as they are.

    Parameters
    ----------
    learner
        As for the run; None for our own model.
    labels
        All labels.
    features
        How x is read.
    """

    what = "the same model, taught labels that were not randomized"

    def __init__(self, learner: Any, labels: Sequence[Any], features: Any) -> None:
        self._encoder, own = read_by(learner, features)
        # Once in 2**64 a label would be replaced; nothing is drawn here, and the model undoes as good as nothing.
        self._model = model_for(learner, labels, Response(len(labels), 1), own)

    def predict(self, rows: Sequence[Item]) -> NDArray[np.int64]:
        """The label index of each row; −1 for none."""
        return self.follow(rows, np.full(len(rows), -1))

    def learn(self, x: Any, y: int) -> None:
        """Learn one row; a negative label is none."""
        with contained:
            self._model.follow(self._read([x]), np.array([y]))

    def follow(self, rows: Sequence[Item], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it predicts of each row before it learns it."""
        return self._model.follow(self._read([row.x for row in rows]), right) if rows else right

    def _read(self, xs: list[Any]) -> Any:
        return self._model.read_many(xs if self._encoder is None else [self._encoder.encode(x) for x in xs])
