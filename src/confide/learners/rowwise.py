"""scikit-learn's models asked about many rows at once, where no row can move another's answer.

A matrix product rounds a row's sums otherwise as the number of rows changes, and whether another person's row came
along would then be felt in mine. So a model is given many rows at once only if it works on each by itself: by
comparisons, by operations on single numbers, and by sums along one contiguous row, whose order depends on its length
alone. Linear models are asked here by such sums, in the order of the columns. All others are asked row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.contained import contained
from confide.kernels.compile import jit
from confide.learners.called import NO_LABEL, RAISED, Called, Labels, values_of

# Each is tried in the tests, score by score. CategoricalNB is not here: one row that it refuses would refuse them all.
_BY_ROW = {
    *("GaussianNB", "DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier"),
    "HistGradientBoostingClassifier",
}
_LINEAR = {
    *("SGDClassifier", "Perceptron", "PassiveAggressiveClassifier", "LogisticRegression", "RidgeClassifier"),
    "LinearSVC",
}
_SCALERS = {"StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"}


class Heard:
    """The labels as models of others hear them, who sort them: in an array of one kind, or by number if none can be.

    Examples
    --------
    >>> heard = Heard(["no", "yes"])
    >>> heard.array.tolist(), heard.numbers(np.array(["yes", "perhaps"])).tolist()
    (['no', 'yes'], [1, -3])
    """

    def __init__(self, labels: Labels) -> None:
        values = values_of(labels)
        self.array = np.array(values) if len({type(value) for value in values}) == 1 else np.arange(len(values))
        if self.array.ndim != 1 or self.array.dtype.kind not in "biuU" or self.array.tolist() != list(values):
            self.array = np.arange(len(values))
        self._called = Called(self.array.tolist())
        self._plain = self.array.tolist() == list(range(len(values)))

    def numbers(self, answers: NDArray[Any]) -> NDArray[np.int64]:
        """The numbers of a model's answers; NO_LABEL where one is none of the labels."""
        if self._plain and answers.dtype.kind in "iu":
            return np.where((answers >= 0) & (answers < self.array.size), answers, NO_LABEL).astype(np.int64)
        return self._called.numbers(answers.tolist())


def ask(model: Any, rows: NDArray[np.float64]) -> NDArray[Any]:
    """What a fitted scikit-learn model predicts of rows: of one, or of many if it `is_rowwise` or `is_linear`."""
    with sys.modules["sklearn"].config_context(assume_finite=True) if "sklearn" in sys.modules else nullcontext():
        if not is_linear(model):
            return np.asarray(model.predict(rows))
        *scalers, last = _steps(model)
        for scaler in scalers:
            rows = scaler.transform(rows)
        weights = np.atleast_2d(np.asarray(last.coef_, dtype=np.float64, order="C"))
        if weights.shape[1:] != rows.shape[1:]:
            raise ValueError("x has another number of features than the model has learned from")
        bias = np.broadcast_to(np.asarray(last.intercept_, dtype=np.float64), weights.shape[:1]).copy()
        which = _highest(np.ascontiguousarray(rows, dtype=np.float64), weights, bias)
        labels: NDArray[Any] = np.asarray(last.classes_)[which]
        return labels


def ask_each(model: Any, rows: NDArray[np.float64], heard: Heard) -> NDArray[np.int64]:
    """The number of what a fitted model predicts of each row, as if it had been asked about that one alone.

    RAISED where it fails, NO_LABEL where it answers something else.
    """
    if is_rowwise(model) or is_linear(model):
        with contained:
            return heard.numbers(ask(model, rows))
    numbers = np.full(len(rows), RAISED)
    for i in range(len(rows)):  # whichever fails, fails alone
        with contained:
            numbers[i] = heard.numbers(ask(model, rows[i : i + 1]))[0]
    return numbers


def is_rowwise(model: Any) -> bool:
    """Whether the model itself treats each row of a matrix by itself, to the last bit."""
    *scalers, last = _steps(model)
    alone = getattr(last, "n_jobs", None) in (None, 1)  # a forest of many threads adds up in any order
    return alone and all(_is(step, _SCALERS) for step in scalers) and _is(last, _BY_ROW)


def is_linear(model: Any) -> bool:
    """Whether the model compares weighted sums of the columns, which `ask` works out row by row."""
    *scalers, last = _steps(model)
    return _is(last, _LINEAR) and isinstance(last.coef_, np.ndarray) and all(_is(step, _SCALERS) for step in scalers)


def _steps(model: Any) -> Iterator[Any]:
    if not _is(model, {"Pipeline"}):
        yield model
        return
    for _, step in model.steps:
        if step is not None and step != "passthrough":
            yield from _steps(step)


def _is(model: Any, names: set[str]) -> bool:
    """Whether the model is one of scikit-learn's of these names, and no subclass that may do otherwise."""
    return type(model).__module__.partition(".")[0] == "sklearn" and type(model).__name__ in names


@jit
def _highest(rows: NDArray[np.float64], weights: NDArray[np.float64], bias: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row the label with the largest sum, the first of equals; with one sum, whether it is above 0."""
    best = np.zeros(rows.shape[0], np.int64)
    for i in range(rows.shape[0]):
        most = 0.0
        for label in range(weights.shape[0]):
            total = 0.0
            for j in range(rows.shape[1]):
                total += rows[i, j] * weights[label, j]
            total += bias[label]
            if weights.shape[0] == 1:
                best[i] = 1 if total > 0.0 else 0
            elif label == 0 or total > most:
                best[i], most = label, total
    return best
