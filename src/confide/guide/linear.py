"""The guide's arithmetic: scores, integer gradients, and a leaf of rounds in one compiled loop.

A row's score and gradient are computed from that row and θ alone, feature by feature in the order in which the map
gives them. No matrix product: its last bit may depend on the other rows of a batch, and the proof needs that nothing
of one unit's row reaches another's gradient (docs/proofs/guide.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.kernels.compile import jit

_TRIES = 64

WINDOWS = 3
"""Windows over which θ is averaged, the usual one first: candidates for the answering θ."""

MODELS = WINDOWS + 1
"""Candidates for the answering θ, beside the frequent label: the windows and a straight line (`confide.guide.line`)."""


class Thetas(NamedTuple):
    """All that a row meets: functions of released rows."""

    theta: Floats
    """Where gradients are taken."""
    answering: Floats
    models: Floats
    """The candidates, one after the other in each line."""
    frequent: int
    """The frequent label's number."""
    units: Ints
    """What a whole loss is in each of its coordinates."""


def units(clip: int, vectors: int, leaf: int = 0, warm: bool = False, loud: int = 0) -> Ints:
    """For the other models, the frequent label, the scale, and the labels' counts: less than .6 of clip² is theirs.

    Labels are what can be known first: in the first leaf their counts have half of the clip, later less. In a warm-up
    nearly all of it at first, since little else will be known in it. Where a row's losses and gradient may be as long
    as `loud`, labels have what the others and a gradient of `clip` leave, if that is more.
    """
    early, first = warm and leaf < 4, (5, 2, 4) if warm else (4, 1, 1)
    others = [part * clip // (20 if early else 10) for part in (*(3,) * (MODELS - 1), 2, 1)]
    label = max(clip // 10, math.isqrt(clip * clip * first[2] // (first[0] + first[1] * leaf)))
    left = loud * loud - clip * clip - sum(part * part for part in others)
    label = max(label, math.isqrt(max(0, left)))
    return np.array([*others, *(label,) * vectors], dtype=np.int64)


@jit
def exponential(value: float) -> float:
    """About e to this power: by products alone, so that its bits are the same on every machine."""
    out = 1.0 + value / 1024
    for _ in range(10):
        out *= out
    return out


@jit
def scores(theta: Floats, indices: Ints, values: Floats, out: Floats) -> None:
    """One score a vector of θ: each sum in the order of the features, in a register."""
    fours = out.size - out.size % 4
    for v in range(0, fours, 4):
        one, two, three, four = 0.0, 0.0, 0.0, 0.0
        for a in range(indices.size):
            here, value = theta[indices[a]], values[a]
            one += here[v] * value
            two += here[v + 1] * value
            three += here[v + 2] * value
            four += here[v + 3] * value
        out[v], out[v + 1], out[v + 2], out[v + 3] = one, two, three, four
    for v in range(fours, out.size):
        one = 0.0
        for a in range(indices.size):
            one += theta[indices[a], v] * values[a]
        out[v] = one


@jit
def _residuals(score: Floats, y: int) -> None:
    """Turn scores into probabilities less the label: what a gradient is before it meets the features."""
    if score.size == 1:
        score[0] = 1.0 / (1.0 + np.exp(-score[0])) - (1.0 if y == 1 else 0.0)
        return
    top, total = score[0], 0.0
    for v in range(score.size):
        top = max(top, score[v])
    for v in range(score.size):
        score[v] = np.exp(score[v] - top)
        total += score[v]
    for v in range(score.size):
        score[v] /= total
    score[y] -= 1.0


@jit
def ordered(indices: Ints, width: int) -> bool:
    """Whether each feature is one of the map's, and comes once."""
    last = np.int64(-1)
    for a in range(indices.size):
        if indices[a] <= last or indices[a] >= width:
            return False
        last = indices[a]
    return True


@jit
def _fits(residual: Floats, values: Floats, factor: float, clip: int, room: int) -> bool:
    """Whether the integers of residual ⊗ values times factor have Σg² ≤ room ≤ clip², clip < 2³¹: nothing overflows."""
    left = np.int64(room)
    for a in range(values.size):
        for v in range(residual.size):
            wanted = residual[v] * factor * values[a]
            if not abs(wanted) <= clip:  # before it becomes an integer: one that does not fit has no square to check
                return False
            g = np.int64(wanted)
            left -= g * g
            if left < 0:
                return False
    return True


@jit
def _gradient(
    theta: Floats, indices: Ints, values: Floats, y: int, weight: float, clip: int, room: int, scale: int, leaf: Ints
) -> bool:
    """`add_gradient` of a row in order with Σg² ≤ room: what the losses of the row leave of clip²."""
    vectors, squares = theta.shape[1], 0.0
    for a in range(indices.size):
        squares += values[a] * values[a]
    residual = np.empty(vectors)
    scores(theta, indices, values, residual)
    _residuals(residual, y)
    length = 0.0
    for v in range(vectors):
        length += residual[v] * residual[v]
    length = np.sqrt(length * squares) * weight
    if not length < 1e300:  # not a number, infinite, or absurd: no gradient
        return False
    factor, longest = weight * scale, np.sqrt(float(room))
    if length * scale > longest:
        factor = longest / length * weight
    for _ in range(_TRIES):
        if _fits(residual, values, factor, clip, room):
            for a in range(indices.size):
                for v in range(vectors):
                    leaf[indices[a] * vectors + v] += np.int64(residual[v] * factor * values[a])  # toward zero
            return True
        factor *= 1.0 - 2.0**-10
    return False


@jit
def add_gradient(
    theta: Floats, indices: Ints, values: Floats, y: int, weight: float, clip: int, scale: int, leaf: Ints
) -> bool:
    """Add one clipped integer gradient to the open leaf; False, and nothing added, if there is none.

    The integers are those that are checked: Σg² ≤ clip², in 64-bit integers, before any of them is added. Indices must
    increase, since two entries of one coordinate would add up to more than their squares say.
    """
    known = ordered(indices, theta.shape[0])
    return known and _gradient(theta, indices, values, y, weight, clip, clip * clip, scale, leaf)


@jit
def _label(score: Floats, first: int, vectors: int) -> int:
    """The label of one model's scores, which begin at `first`."""
    if vectors == 1:
        return 1 if score[first] > 0.0 else 0
    best = 0
    for v in range(1, vectors):
        if score[first + v] > score[first + best]:
            best = v
    return best


@jit
def _overconfidence(score: Floats, y: int) -> float:
    """The derivative of the squared error of the said probabilities by the logarithm of their scale, from −1 to 1.

    Unlike that of the logarithmic loss it is bounded by itself, so that it need not be clipped, which would tell wrong.
    """
    if score.size == 1:
        p = 1.0 / (1.0 + np.exp(-score[0]))
        slope = 4.0 * (p - (1.0 if y == 1 else 0.0)) * p * (1.0 - p) * score[0]
    else:
        top, total, mean, slope = score[0], 0.0, 0.0, 0.0
        for v in range(score.size):
            top = max(top, score[v])
        for v in range(score.size):
            total += np.exp(score[v] - top)
        for v in range(score.size):
            mean += np.exp(score[v] - top) / total * score[v]
        for v in range(score.size):
            p = np.exp(score[v] - top) / total
            slope += 2.0 * (p - (1.0 if v == y else 0.0)) * p * (score[v] - mean)
    return min(max(slope, -1.0), 1.0) if slope == slope else 0.0


@jit
def _losses(thetas: Thetas, said: Floats, indices: Ints, values: Floats, y: int, weight: float, out: Ints) -> None:
    """What one row tells of the models: by how much another errs more than the usual one, and so on (`add_lesson`)."""
    vectors, models, units = said.size, thetas.models, thetas.units
    score = np.empty(models.shape[1])
    scores(models, indices, values, score)
    share = weight if 0.0 <= weight <= 1.0 else 1.0
    usual = 1 if _label(score, 0, vectors) != y else 0
    for k in range(1, MODELS):
        wrong = 1 if _label(score, k * vectors, vectors) != y else 0
        out[k - 1] = np.int64(share * units[k - 1]) * (wrong - usual)
    out[MODELS - 1] = np.int64(share * units[MODELS - 1]) * ((1 if thetas.frequent != y else 0) - usual)
    out[MODELS] = np.int64(share * units[MODELS] * _overconfidence(said, y))
    count = np.int64(share * units[MODELS + 1])
    for v in range(vectors):
        out[MODELS + 1 + v] = count if v == y else 0
    if vectors == 1:
        out[MODELS + 1] = count if y == 1 else -count


@jit
def _lesson(
    thetas: Thetas,
    said: Floats,
    indices: Ints,
    values: Floats,
    y: int,
    weight: float,
    clip: int,
    scale: int,
    leaf: Ints,
) -> bool:
    """`add_lesson` of a row in order."""
    first = leaf.size - thetas.units.size
    losses, room = np.zeros(thetas.units.size, np.int64), np.int64(clip) * np.int64(clip)
    _losses(thetas, said, indices, values, y, weight, losses)
    for k in range(losses.size):
        room -= losses[k] * losses[k]
    if room < 0:  # of a record in the first leaves: it teaches, and tells of no candidate
        losses[:] = 0
        room = np.int64(clip) * np.int64(clip)
    if not _gradient(thetas.theta, indices, values, y, weight, clip, int(room), scale, leaf):
        return False
    for k in range(losses.size):
        leaf[first + k] += losses[k]
    return True


@jit
def add_lesson(
    thetas: Thetas,
    said: Floats,
    indices: Ints,
    values: Floats,
    y: int,
    weight: float,
    clip: int,
    scale: int,
    leaf: Ints,
) -> bool:
    """Add one row's losses and its gradient to the open leaf, of joint norm at most clip; False if nothing was added.

    The losses are the leaf's last coordinates. For each other window its errors less the usual window's, for the
    frequent label the same; the slope of the said probabilities' squared error by their scale; and the label's count.
    The gradient is clipped to what they leave: Σ losses² + Σg² ≤ clip², in the integers that are added. A clip that is
    shorter than the losses has none of them.
    """
    known = ordered(indices, thetas.theta.shape[0])
    return known and _lesson(thetas, said, indices, values, y, weight, clip, scale, leaf)


@jit
def teach_row(
    theta: Floats,
    answering: Floats,
    models: Floats,
    frequent: int,
    units: Ints,
    indices: Ints,
    values: Floats,
    y: int,
    weights: Floats,
    clip: int,
    scale: int,
    leaf: Ints,
) -> bool:
    """One row by the answering θ, then `add_lesson`; whether its features are the map's, and come once.

    For one row alone: a kernel takes arrays sooner than a tuple of them.
    """
    if not ordered(indices, theta.shape[0]):
        return False
    said = np.empty(theta.shape[1])
    scores(answering, indices, values, said)
    thetas = Thetas(theta, answering, models, frequent, units)
    _lesson(thetas, said, indices, values, y, weights[y], clip, scale, leaf)
    return True


@jit
def label_scores(theta: Floats, indices: Ints, values: Floats, out: Floats) -> None:
    """One score a label, of two labels with one vector that of the first is 0."""
    out[0] = 0.0
    scores(theta, indices, values, out[out.size - theta.shape[1] :])


def first_lesson(shape: tuple[int, int], indices: Ints, values: Floats, y: int, clip: int, scale: int) -> Ints:
    """What a row adds to a leaf of a guide that has released nothing: θ, which has this shape, is 0."""
    theta, vectors = np.zeros(shape), shape[1]
    thetas = Thetas(theta, theta, np.zeros((shape[0], MODELS * vectors)), 0, units(clip, vectors))
    leaf = np.zeros(theta.size + thetas.units.size, dtype=np.int64)
    add_lesson(thetas, np.zeros(vectors), indices, values, y, 1.0, clip, scale, leaf)
    return leaf


@jit
def run_rows(
    thetas: Thetas,
    starts: Ints,
    indices: Ints,
    values: Floats,
    labels: Ints,
    weights: Floats,
    clip: int,
    scale: int,
    leaf: Ints,
    out: Floats,
) -> None:
    """Rounds of one leaf: score by the answering θ, then learn. A label below 0 is one that never comes.

    A row that is taught is looked at first: one with other features than the map's, or one of them twice, is neither
    scored nor learned, and its label becomes −1.
    """
    for i in range(labels.size):
        a, b, y = starts[i], starts[i + 1], labels[i]
        if y < 0:
            scores(thetas.answering, indices[a:b], values[a:b], out[i])
        elif ordered(indices[a:b], thetas.theta.shape[0]):
            scores(thetas.answering, indices[a:b], values[a:b], out[i])
            _lesson(thetas, out[i], indices[a:b], values[a:b], y, weights[y], clip, scale, leaf)
        else:
            labels[i] = -1


@jit
def follow(decoded: Floats, rate: float, momentum: float, mean: Floats, share: float, theta: Floats) -> None:
    """θ from the decoded sums: −rate · sums, but for a `share` of what they have along the `mean` row, of norm 1.

    θ is the mean of these that forgets with `momentum`: the same as steepest descent with a heavy ball, whose steps may
    be longer by (1 + momentum) / (1 − momentum) before they swing.
    """
    width, vectors = theta.shape
    along = np.zeros(vectors)
    for a in range(mean.size):
        for v in range(vectors):
            along[v] += mean[a] * decoded[a * vectors + v]
    for a in range(width):
        for v in range(vectors):
            wanted = decoded[a * vectors + v]
            if mean.size:
                wanted -= share * mean[a] * along[v]
            theta[a, v] = momentum * theta[a, v] - (1.0 - momentum) * rate * wanted


def unfollowed(theta: Floats, rate: float, mean: Floats, share: float) -> Floats:
    """The decoded sums, one line a feature, of which `follow` makes this θ, without momentum; `share` is below 1."""
    along = np.zeros((1, theta.shape[1]))
    for a in range(mean.size):  # in this order: what θ follows from must have the same bits everywhere
        along += mean[a] * theta[a]
    out = theta + share / (1.0 - share) * mean[:, None] * along if mean.size else theta
    return np.asarray(-out / rate)


@jit
def average(theta: Floats, keeps: Floats, models: Floats) -> None:
    """The models are running means of θ: each comes as near to it as `keeps` says."""
    width, vectors = theta.shape
    for a in range(width):
        for k in range(keeps.size):
            for v in range(vectors):
                models[a, k * vectors + v] += keeps[k] * (theta[a, v] - models[a, k * vectors + v])
