"""A straight line instead of a model: what the model says, as far as one line can say it.

A model has thousands of coordinates, and each has its own noise. Where a line is all that there is to know (few
numbers, a linear rule), most of them know nothing and shake every answer. Rows are made up from released grids; of
them the model says how likely each label is, and the line that says nearly the same, of all lines, is found. What
shakes the model's coordinates each by itself hardly moves a line. Everything here follows from θ, which was released,
and from public constants; the losses tell whether the line errs less than the model on the rows that people ask, and
only then does it answer (`confide.guide.candidates`).

The line's bits follow from those of θ on every machine: products, quotients and square roots, in one order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.guide.levels import EDGE, STEPS
from confide.guide.linear import WINDOWS, exponential, scores
from confide.guide.maps import FAINT, FeatureMap
from confide.guide.middle import made_up
from confide.guide.model import Map
from confide.kernels.compile import jit

_EVERY, _STEPS = 4, 16  # after how many leaves it is drawn again; and in how many steps, from where it was
_ROWS = 2048  # that are made up: of fewer, columns that have nothing to do with each other seem to have
_RIDGE = 2.0**-30  # of the mean square: columns that say the same share what they say
_SURE = 30.0  # no score says more


class _Known(NamedTuple):
    """What the line is found by: made-up rows, what of them is its own, and the root of the curvature's bound."""

    indices: Ints
    values: Floats
    numbers: Floats
    """The constant and the line's numbers, in `units`: all of about the same size."""
    root: Floats
    units: Floats


def draw_line(features: Map, models: Floats, vectors: int, closed: int, source: int) -> None:
    """Move the line, the last of the models, towards what another one says; without a line it is the first one.

    After so many closed leaves: the first and every fourth from there, since what one leaf adds hardly moves it. Where
    the model began anew, the line is the model until then.
    """
    known = _known(features) if isinstance(features, FeatureMap) and features.lined else None
    usual, line = slice(0, vectors), slice(WINDOWS * vectors, (WINDOWS + 1) * vectors)
    if known is None:
        models[:, line] = models[:, usual]
    if known is None or (closed - 1) % _EVERY:
        return
    own, units = slice(0, known.units.size), known.units[:, None]
    weights = models[own, line] * units
    said = slice(source * vectors, (source + 1) * vectors)
    _follow(np.ascontiguousarray(models[:, said]), known.indices, known.values, known.numbers, known.root, weights)
    models[:, line] = 0.0
    models[own, line] = weights / units


@lru_cache(maxsize=4)
def _known(features: FeatureMap) -> _Known:
    indices, values = made_up(features, _ROWS, EDGE / STEPS)
    units = np.array([features.constant] + [FAINT] * features.lined)
    numbers = values[:, : units.size] / units
    return _Known(indices, values, numbers, _root(numbers), units)


@jit
def _root(numbers: Floats) -> Floats:
    """The lower triangle whose square is the sum of the rows' products, with a ridge that makes it regular."""
    n, d = numbers.shape
    out, trace = np.zeros((d, d)), 0.0
    for i in range(n):
        for j in range(d):
            trace += numbers[i, j] * numbers[i, j]
            for k in range(j + 1):
                out[j, k] += numbers[i, j] * numbers[i, k]
    for j in range(d):
        out[j, j] += _RIDGE * trace
        for k in range(j + 1):
            for m in range(k):
                out[j, k] -= out[j, m] * out[k, m]
            out[j, k] = out[j, k] / out[k, k] if k < j else np.sqrt(max(out[j, j], _RIDGE * _RIDGE * trace))
    return out


@jit
def _likely(score: Floats) -> None:
    """Turn rows' scores, a line a vector, into probabilities: of the second of two labels where there is one vector."""
    vectors, n = score.shape
    if vectors == 1:
        only = score[0]
        for i in range(n):
            only[i] = 1.0 / (1.0 + exponential(-min(max(only[i], -_SURE), _SURE)))
        return
    for i in range(n):
        top, total = score[0, i], 0.0
        for v in range(vectors):
            top = max(top, score[v, i])
        for v in range(vectors):
            score[v, i] = exponential(max(score[v, i] - top, -_SURE))
            total += score[v, i]
        for v in range(vectors):
            score[v, i] /= total


@jit
def _follow(theta: Floats, indices: Ints, values: Floats, numbers: Floats, root: Floats, weights: Floats) -> None:
    """Steps towards the line whose probabilities differ least from those of θ, by their cross entropy.

    A step divides by what the curvature is at most everywhere, ¼ of the products' sum for two labels, ½ of it for more
    (Böhning, 1992): the cross entropy never rises, and nothing can swing. Sums are in the order of columns and rows;
    loops go along memory, so that the compiler turns them into vector code.
    """
    n, d = numbers.shape
    vectors, most, columns = theta.shape[1], 4.0 if theta.shape[1] == 1 else 2.0, np.ascontiguousarray(numbers.T)
    said, now, slope, one = np.empty((vectors, n)), np.empty((vectors, n)), np.empty((vectors, d)), np.empty(vectors)
    for i in range(n):
        scores(theta, indices[i], values[i], one)
        said[:, i] = one
    _likely(said)
    for _ in range(_STEPS):
        now[:] = 0.0
        slope[:] = 0.0
        for v in range(vectors):
            for j in range(d):
                for i in range(n):
                    now[v, i] += weights[j, v] * columns[j, i]
        _likely(now)
        for v in range(vectors):
            for i in range(n):
                more = said[v, i] - now[v, i]
                for j in range(d):
                    slope[v, j] += more * numbers[i, j]
            for j in range(d):
                for k in range(j):
                    slope[v, j] -= root[j, k] * slope[v, k]
                slope[v, j] /= root[j, j]
            for j in range(d - 1, -1, -1):
                for k in range(j + 1, d):
                    slope[v, j] -= root[k, j] * slope[v, k]
                slope[v, j] /= root[j, j]
                weights[j, v] += most * slope[v, j]
