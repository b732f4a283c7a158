"""A linear rule in plain numbers, fitted to randomized labels by the likelihood of what came out.

Cells and trees approach a weighing of a few numbers in steps; this says it at once. A column is put to mean 0 and
spread 1 as the kept rows have it, what is missing stands at the mean, and nothing stands further out than `_FAR`.
Weights are found by L-BFGS (`confide.labels.downhill`) for the same loss as the trees' (docs/proofs/labels.md,
“Undoing the channel”), with a normal prior wide enough for a sharp rule: where labels lie, a rule that says its labels
timidly predicts outputs hardly worse, and is believed too late. Nothing is drawn and everything is summed in one order:
equal rows and outputs make an equal rule, on however many threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.kernels.compile import jit
from confide.labels.downhill import lowest
from confide.labels.softmax import normalized
from confide.privacy.response import Response

__all__ = ["Linear", "fit_linear"]

_FAR, _STEPS = 8.0, 100
_PRIOR = 0.01
_SMALL = 1e-300


class Linear(NamedTuple):
    """A fitted rule; a label's last weight is its own, beside those of the columns."""

    middle: Floats
    scale: Floats
    """One over a column's spread; 0 where it has none."""
    weights: Floats

    def probabilities(self, numbers: Floats) -> Floats:
        """Those of every label, by row."""
        out = np.empty((len(numbers), len(self.weights)))
        _tell(numbers, self.middle, self.scale, self.weights, out)
        return out


def fit_linear(numbers: Floats, outs: Ints, response: Response) -> Linear:
    """The rule for these rows and outputs.

    Examples
    --------
    >>> response = Response.best(1.0, labels=2)
    >>> rows = np.random.default_rng(5).normal(size=(4000, 3))
    >>> outs = response.draw_many((rows[:, 0] > rows[:, 1]).astype(int), np.arange(4000, dtype=np.uint64) << 52)
    >>> fit_linear(rows, outs, response).probabilities(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])).argmax(axis=1)
    array([1, 0])
    """
    middle, scale = _standing(numbers)
    shape = response.labels, middle.size + 1
    places = np.empty((len(numbers), middle.size + 1))
    for row, place in zip(numbers, places, strict=True):
        _put(row, middle, scale, place)

    def loss(flat: Floats) -> tuple[float, Floats]:
        slope = _PRIOR * flat.reshape(shape)
        lost = _loss(places, outs, flat.reshape(shape), response.truth, response.lie, slope)
        return lost + 0.5 * _PRIOR * float((flat * flat).sum()), slope.ravel()

    return Linear(middle, scale, lowest(loss, np.zeros(shape[0] * shape[1]), _STEPS).reshape(shape))


def _standing(numbers: Floats) -> tuple[Floats, Floats]:
    """The mean of each column's finite numbers and one over their spread, without their outermost hundredths."""
    middle, scale = np.zeros(numbers.shape[1]), np.zeros(numbers.shape[1])
    for j, column in enumerate(numbers.T):
        known = column[np.isfinite(column)]
        if known.size:
            # Of halves, as between two numbers of the largest size there is more than a number can say.
            known = np.clip(known, *2.0 * np.quantile(0.5 * known, [0.01, 0.99]))
            most = max(float(np.abs(known).max()), _SMALL)  # so that no sum of large numbers overflows
            middle[j], spread = most * (known / most).mean(), most * (known / most).std()
            scale[j] = 1.0 / spread if spread > _SMALL else 0.0
    return middle, scale


@jit
def _put(numbers: Floats, middle: Floats, scale: Floats, place: Floats) -> None:
    """A row as the rule reads it: its columns, and a one."""
    for j in range(numbers.size):
        far = (numbers[j] - middle[j]) * scale[j]
        place[j] = min(max(far, -_FAR), _FAR) if far == far else 0.0
    place[-1] = 1.0


@jit
def _softmax(place: Floats, weights: Floats, p: Floats) -> None:
    for y in range(p.size):
        p[y] = 0.0
        for j in range(place.size):
            p[y] += weights[y, j] * place[j]
    normalized(p, p)


@jit
def _tell(numbers: Floats, middle: Floats, scale: Floats, weights: Floats, out: Floats) -> None:
    """Row by row, so that a row is told the same alone and among others."""
    place = np.empty(middle.size + 1)
    for i in range(out.shape[0]):
        _put(numbers[i], middle, scale, place)
        _softmax(place, weights, out[i])


@jit
def _loss(places: Floats, outs: Ints, weights: Floats, keep: float, other: float, slope: Floats) -> float:
    """Minus the outputs' log-likelihood; its slope is added to what `slope` holds."""
    total, p = 0.0, np.empty(weights.shape[0])
    for i in range(outs.size):
        _softmax(places[i], weights, p)
        out = outs[i]
        likely = other + (keep - other) * p[out]
        total -= np.log(likely)
        weight = (keep - other) * p[out] / likely
        for y in range(p.size):
            g = weight * (p[y] - (1.0 if y == out else 0.0))
            for j in range(places.shape[1]):
                slope[y, j] += g * places[i, j]
    return total
