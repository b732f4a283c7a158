"""scikit-learn's models asked about many rows at once, where no row can move another's answer.

A matrix product rounds a row's sums otherwise as the number of rows changes, and whether another person's row came
along would then be felt in mine. So a model is given many rows at once only if it works on each by itself: by
comparisons, by operations on single numbers, and by sums along one contiguous row, whose order depends on its length
alone. Linear models are asked here by such sums, in the order of the columns. All others are asked row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.kernels.compile import jit

__all__ = ["ABSTAINS", "ask", "ask_each", "is_linear", "is_rowwise"]

# Each is tried in the tests, score by score. CategoricalNB is not here: one row that it refuses would refuse them all.
_BY_ROW = {
    "GaussianNB",
    "DecisionTreeClassifier",
    "ExtraTreeClassifier",
    "RandomForestClassifier",
    "ExtraTreesClassifier",
    "HistGradientBoostingClassifier",
}
_LINEAR = {
    "SGDClassifier",
    "Perceptron",
    "PassiveAggressiveClassifier",
    "LogisticRegression",
    "RidgeClassifier",
    "LinearSVC",
}
_SCALERS = {"StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"}

ABSTAINS = -1


def ask(model: Any, rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """What a fitted scikit-learn model predicts of rows: of one, or of many if it `is_rowwise` or `is_linear`."""
    with sys.modules["sklearn"].config_context(assume_finite=True) if "sklearn" in sys.modules else nullcontext():
        if not is_linear(model):
            return np.asarray(model.predict(rows)).astype(np.int64)
        *scalers, last = _steps(model)
        for scaler in scalers:
            rows = scaler.transform(rows)
        weights = np.atleast_2d(np.asarray(last.coef_, dtype=np.float64, order="C"))
        if weights.shape[1:] != rows.shape[1:]:
            raise ValueError("x has another number of features than the model has learned from")
        bias = np.broadcast_to(np.asarray(last.intercept_, dtype=np.float64), weights.shape[:1]).copy()
        which = _highest(np.ascontiguousarray(rows, dtype=np.float64), weights, bias)
        labels: NDArray[np.int64] = np.asarray(last.classes_)[which].astype(np.int64)
        return labels


def ask_each(model: Any, rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """What a fitted scikit-learn model predicts of each row, as if it had been asked about that one alone.

    ABSTAINS where it fails.
    """
    if is_rowwise(model) or is_linear(model):
        try:
            return ask(model, rows)
        except Exception:  # then one by one: whichever fails, fails alone
            pass
    labels = np.full(len(rows), ABSTAINS)
    for i in range(len(rows)):
        with suppress(Exception):
            labels[i] = ask(model, rows[i : i + 1])[0]
    return labels


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
