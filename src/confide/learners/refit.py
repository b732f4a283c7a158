"""Any batch model as an online learner: keep the last records, and fit anew now and then."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.kernels.compile import jit
from confide.learners.base import Base, fresh, vector
from confide.learners.called import ABSTAINS, Called, Labels, NoLabel
from confide.learners.rowwise import Heard, ask, ask_each


def classifies(estimator: Any) -> None:
    """Refuse a scikit-learn estimator that predicts something else than labels, or shares a cache between copies.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> classifies(LinearRegression())
    Traceback (most recent call last):
    ...
    ValueError: LinearRegression does not predict labels: give one of scikit-learn's classifiers
    """
    known = sys.modules.get("sklearn.base")
    ours = known is not None and isinstance(estimator, known.BaseEstimator)
    tags = sys.modules["sklearn.utils"].get_tags(estimator) if ours else None
    kind = getattr(estimator, "_estimator_type", None) if tags is None else tags.estimator_type
    if kind not in (None, "classifier"):
        raise ValueError(f"{type(estimator).__name__} does not predict labels: give one of scikit-learn's classifiers")
    if isinstance(getattr(estimator, "steps", None), list) and getattr(estimator, "memory", None) is not None:
        raise ValueError("a pipeline's cache on disk would be shared by all copies: make it without memory")


@jit
def due(seen: int, fitted: int, memory: int) -> bool:
    """Whether to fit anew after `seen` records, the last fit having been after `fitted`.

    The records must have grown by a quarter, or a quarter of a full memory must have been replaced.

    Examples
    --------
    >>> fitted, fits = 0, []
    >>> for seen in range(1, 41):
    ...     if due(seen, fitted, memory=16):
    ...         fitted = seen
    ...         fits.append(seen)
    >>> fits
    [1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 23, 27, 31, 35, 39]
    """
    return 4 * (seen - fitted) >= min(fitted, memory)


class Refit(Base):
    """A scikit-learn classifier that keeps its last records and is fit from scratch as they grow.

    Before `memory` is full it is refit whenever a quarter more records have come; afterwards, whenever a quarter of the
    memory has been replaced. While all records have one label, it answers that label. When the classifier refuses to be
    fit (it has too few records, say), the error goes up, the last fit stays, and the next attempt comes with the next
    quarter.

    Parameters
    ----------
    estimator
        Anything with scikit-learn's `fit(X, y)` and `predict(X)`; it is cloned for every fit.
    memory
        Records kept; the oldest is replaced first.
    warmup
        Abstain until this many labels were learned.
    labels
        All labels, or their number, and then they are 0 … L−1; POP and the banks set it.

    Examples
    --------
    >>> from sklearn.neighbors import NearestCentroid
    >>> learner = Refit(NearestCentroid(), memory=32)
    >>> for i in range(32):
    ...     learner.learn([i, -i], int(i > 15))
    >>> learner.predict([3, -3]), learner.predict([30, -30])
    (0, 1)
    """

    numbered = False

    def __init__(self, estimator: Any, memory: int = 256, warmup: int = 1, labels: Labels = 2) -> None:
        if not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
            raise ValueError("estimator must have scikit-learn's fit and predict")
        classifies(estimator)
        self.estimator = estimator
        self.memory = integer(memory, "memory", 2)
        self.warmup = integer(warmup, "warmup", 1)
        self.labels = labels
        self._called = Called(labels)
        integer(len(self._called.values), "labels", 2)
        self._heard = Heard(labels)
        self._records: NDArray[np.float64] | None = None
        self._targets = np.zeros(memory, dtype=np.int64)
        self._seen = self._fitted = 0
        self._model: Any = None
        self._only: int | None = None

    def predict(self, x: Any, /) -> Any:
        """The label of `x`, or None before `warmup` labels were learned and a first fit succeeded."""
        row = self._vector(x)
        if self._seen < self.warmup:
            return None
        if self._model is None:
            return None if self._only is None else self._called.values[self._only]
        number = int(self._heard.numbers(ask(self._model, row[None]))[0])
        if number < 0:
            raise NoLabel(f"{type(self.estimator).__name__} answered something else than a label")
        return self._called.values[number]

    def predict_numbers(self, xs: Any, /) -> NDArray[np.int64]:
        """The number of `predict` of each of several rows; negative where it abstains or fails."""
        if self._seen < self.warmup or self._model is None:
            only = ABSTAINS if self._seen < self.warmup or self._only is None else self._only
            return np.full(len(xs), only)
        return ask_each(self._model, np.asarray(xs, dtype=np.float64), self._heard)

    def learn(self, x: Any, y: Any, /) -> None:
        """Keep the record, and fit anew when that is due."""
        row = self._vector(x)
        number = self._called.learned(y)
        if self._records is None:
            self._records = np.zeros((self.memory, row.size))
        self._records[self._seen % self.memory] = row
        self._targets[self._seen % self.memory] = number
        self._seen += 1
        if due(self._seen, self._fitted, self.memory):
            self._fitted = self._seen
            self._fit(self._records[: self._seen], self._targets[: self._seen])

    def _fit(self, records: NDArray[np.float64], targets: NDArray[np.int64]) -> None:
        if (targets == targets[0]).all():
            self._model, self._only = None, int(targets[0])
        else:
            model = fresh(self.estimator)
            model.fit(records.copy(), self._heard.array[targets])
            self._model = model

    def _vector(self, x: Any) -> NDArray[np.float64]:
        return vector(x, None if self._records is None else self._records.shape[1])
