"""Softmax learned online from randomized labels, at several paces at once, and mixed by the likelihood of outputs.

A model p(y | x) of true labels is fitted to outputs by −ln Σ_y p(y | x)·Q(out | y), Q being the known law of the
response (docs/proofs/labels.md, “Undoing the channel”). Steps are AdaGrad's. The right pace depends on the stream and
on ε, so several are run; they and whoever else predicts are weighed by how likely they made the outputs so far, which
are public. So no constant is tuned, and nothing is drawn.

Of many labels a rare one can be lost: once it is held for unlikely, its outputs are held for replacements and have next
to no weight, and so it stays unlikely. So there an output has a least weight (`Pace.least`). It makes every label
likelier by about least·lie/advantage; as much is taken off again before anything is said, mixed or weighed.

What is said of chances is believed in part, s of it, and for the rest all labels are held for equally likely. Each s
of a small grid is weighed by how likely it made the outputs so far, and at first most by far is on 0. So where outputs
say next to nothing, or too little was learned, all labels are nearly equally likely. The likeliest stays the likeliest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.kernels.compile import jit

__all__ = ["Pace", "Softmax", "follow_rows", "normalized"]

_LEAST = 1e-12
_SOME = 0.01
_PARTS = np.array([0.0, 0.125, 0.25, 0.5, 1.0])
_FIRST = np.array([0.75, 0.0625, 0.0625, 0.0625, 0.0625])
"""How much of what is said of chances may be believed, and how likely each is before anything came out."""


class Pace(NamedTuple):
    """How steps are taken, by how many labels there are."""

    rates: Floats
    least: float
    """What an output weighs at least."""
    share: float
    """Of their weight that all give to each other after a row, so that who was bad may be good later."""

    @classmethod
    def of(cls, labels: int) -> Pace:
        """An output of many labels says less than one of two: trust moves slowly by it."""
        if labels == 2:
            return cls(np.array([0.02, 0.1, 0.5]), 0.0, 2e-4)
        return cls(np.array([0.02, 0.1, 0.5]), 0.01, 2e-5)


class Softmax(NamedTuple):
    """Weights and sums of squared slopes, by feature and then by pace and label; and the weights of who predicts."""

    theta: Floats
    squares: Floats
    trust: Floats
    """How much each is believed: one for each pace, then one for each of the others."""
    held: Floats
    """How likely each of `_PARTS` is."""

    @classmethod
    def zeros(cls, width: int, labels: int, others: int = 0) -> Softmax:
        """One that has learned nothing."""
        paces = len(Pace.of(labels).rates)
        shape = width, paces * labels
        trust = np.full(paces + others, 1.0 / (paces + others))
        return cls(np.zeros(shape), np.zeros(shape), trust, _FIRST.copy())


@jit
def follow_rows(
    model: Softmax,
    pace: Pace,
    starts: Ints,
    indices: Ints,
    values: Floats,
    others: Floats,
    outs: Ints,
    keep: float,
    other: float,
    out: Floats,
) -> None:
    """For each row: the probability of every label, then learn what came out of the response; below 0 is nothing.

    `others` has the probabilities of the other predictors, by row, predictor and label; one whose numbers are not
    finite takes no part.
    """
    labels, paces = out.shape[1], pace.rates.size
    width, excess = paces * labels, pace.least * other / (keep - other)
    score, p, told = np.empty(width), np.empty((paces, labels)), np.empty((paces + others.shape[1], labels))
    for i in range(outs.size):
        a, b = starts[i], starts[i + 1]
        score[:] = 0.0
        for at in range(a, b):
            f, v = indices[at], values[at]
            for c in range(width):
                score[c] += v * model.theta[f, c]
        for k in range(paces):
            normalized(score[k * labels : (k + 1) * labels], p[k])
            _told(p[k], excess, told[k])
        for k in range(others.shape[1]):
            told[paces + k] = others[i, k]
        total = 0.0
        out[i] = 0.0
        for k in range(told.shape[0]):
            if told[k, 0] == told[k, 0]:
                total += model.trust[k]
                for y in range(labels):
                    out[i, y] += model.trust[k] * told[k, y]
        for y in range(labels):
            out[i, y] /= total
        said = outs[i]
        likely = out[i, said] if said >= 0 else 0.0
        _believed(out[i], model.held)
        if said < 0:
            continue
        _believe(model.held, likely, labels, keep, other, pace.share)
        _weigh(model.trust, told, said, keep, other, pace.share)
        for k in range(paces):
            weight = max(pace.least, (keep - other) * p[k, said] / (other + (keep - other) * p[k, said]))
            for y in range(labels):
                score[k * labels + y] = weight * (p[k, y] - (1.0 if y == said else 0.0))
        for at in range(a, b):
            f, v = indices[at], values[at]
            if v == 0.0:
                continue
            for k in range(paces):
                for c in range(k * labels, (k + 1) * labels):
                    g = score[c] * v
                    model.squares[f, c] += g * g
                    model.theta[f, c] -= pace.rates[k] * g / np.sqrt(model.squares[f, c] + _LEAST)


@jit
def normalized(score: Floats, p: Floats) -> None:
    """The softmax of the scores, into `p`, which may be the scores themselves."""
    top, total = score.max(), 0.0
    for y in range(score.size):
        p[y] = np.exp(score[y] - top)
        total += p[y]
    for y in range(score.size):
        p[y] /= total


@jit
def _told(p: Floats, excess: float, told: Floats) -> None:
    """Probabilities without what the least weight added; their order stays, and none is quite 0."""
    told[:] = p
    if excess > 0.0:
        total = 0.0
        for y in range(p.size):
            told[y] = max(p[y] - excess, _SOME * p[y])
            total += told[y]
        for y in range(p.size):
            told[y] /= total


@jit
def _weigh(trust: Floats, p: Floats, said: int, keep: float, other: float, share: float) -> None:
    """Bayes' rule for who predicts, and a little for everybody; who takes no part is as good as all on average."""
    before, mean = 0.0, 0.0
    for k in range(trust.size):
        if p[k, said] == p[k, said]:
            before += trust[k]
            mean += trust[k] * (other + (keep - other) * p[k, said])
    mean /= before
    total = 0.0
    for k in range(trust.size):
        trust[k] *= (other + (keep - other) * p[k, said]) / mean if p[k, said] == p[k, said] else 1.0
        total += trust[k]
    for k in range(trust.size):
        trust[k] = (1.0 - share) * trust[k] / total + share / trust.size


@jit
def _believed(p: Floats, held: Floats) -> None:
    """Probabilities as far as they are believed; the first of the likeliest stays the first of the likeliest."""
    part, top = 0.0, p.argmax()
    for k in range(held.size):
        part += held[k] * _PARTS[k]
    for y in range(p.size):
        p[y] = part * p[y] + (1.0 - part) / p.size
    for y in range(top):
        if p[y] >= p[top]:  # by rounding
            p[top] = np.nextafter(p[y], 2.0)


@jit
def _believe(held: Floats, p: float, labels: int, keep: float, other: float, share: float) -> None:
    """Bayes' rule for each part; as much as an output says, so much of what others said is forgotten."""
    total = 0.0
    for k in range(held.size):
        held[k] *= other + (keep - other) * (_PARTS[k] * p + (1.0 - _PARTS[k]) / labels)
        total += held[k]
    share *= (keep - other) ** 2
    for k in range(held.size):
        held[k] = (1.0 - share) * held[k] / total + share * _FIRST[k]
