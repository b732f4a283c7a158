"""Which of a few models answers, and how sure it may be: by losses that are released with the sums.

A taught row adds, beside its gradient, what it tells of the candidates (`confide.guide.linear.add_lesson`): θ averaged
over other windows, a straight line instead of it, and the frequent label for every row. The candidate with the least
decayed count answers. The usual window has one deviation of the noise in its favour; while noise is all that is known
of it, the frequent label has, if it is frequent enough. One more coordinate tells whether what was said is too sure,
and scales it: what a leaf tells is told of who answered in it, a model or the frequent label, and scales that one
alone. All of this is a function of released rows and public constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from confide.arrays import Floats, Ints
from confide.guide.linear import MODELS, WINDOWS, exponential
from confide.planning.stages import Stage
from confide.privacy.sums import overlap

_FAST, _SLOW = 1000.0, 5.0  # of the past: hardly a mean, for drift; and a fifth, where noise is all
_WINDOW, _LABELS = 2.0, 0.5  # losses are counted over about half of the past, labels over nearly all of it
_SURER, _LEAST, _MOST = 0.1, -2.0, 3.0  # the noise of a scale's logarithm; and how far that goes
_TOWARDS = 4.0  # as `STEADY`, for the scale: its curvature is below ½
_COMMON = 0.25  # of a row: what it has in common with others of its label
_RARE = 0.01  # no label is taken to be rarer


def keeps(stage: Stage, leaf: int, anew: int = 0) -> Floats:
    """How near each window's mean comes to θ at the end of a leaf: the usual one first.

    `anew` are the rounds after which the model began anew.
    """
    past = stage.weight(leaf, anew)
    windows = (stage.memory, _FAST, _SLOW)
    return np.array([min(1.0, (memory + 1) / (memory + past)) if memory > 0 else 1.0 for memory in windows])


@dataclass(frozen=True, eq=False)
class Choice:
    """What the releases of one stage say about its candidates.

    Parameters
    ----------
    counts
        Decayed sums of the losses as they were released: in rows, but for the labels', which are in units of the sums.
    weights
        What each released row weighs in them, before they are divided by their units: the noise is σ·‖weights‖.
    rounds
        The rounds in them, each as much as a label's unit was, decayed alike.
    chosen
        0 for the usual window, 1 and 2 for the fast and the slow one, 3 for the line, 4 for the frequent label.
    surer
        The logarithms of what scores are multiplied by: a model's, and those that the frequent label has.
    older
        The variance of the noise that earlier epochs left in the counts, before they are divided by their units.
    rows
        The rounds in the other losses, decayed as they are.
    """

    counts: Floats
    weights: Floats
    rounds: float = 0.0
    chosen: int = 0
    surer: tuple[float, float] = (0.0, 0.0)
    older: float = 0.0
    rows: float = 0.0

    @classmethod
    def first(cls, stage: Stage, vectors: int) -> Choice:
        """Before anything is released."""
        return cls(np.zeros(MODELS + 1 + vectors), np.zeros(stage.leaves))

    @property
    def odds(self) -> Floats:
        """The logarithms of the labels' shares, up to a constant; of the odds where two labels have one vector."""
        counts = (self.counts[MODELS + 1 :] / max(self.rounds, 1.0)).tolist()
        if len(counts) > 1:
            return np.array([_logarithm(max(share, _RARE)) for share in counts])
        one = min(max(0.5 + counts[0] / 2, _RARE), 1 - _RARE)
        return np.array([_logarithm(one) - _logarithm(1 - one)])

    @property
    def scale(self) -> float:
        """What the chosen scores are multiplied by."""
        return exponential(self.surer[self.chosen == MODELS])

    @cached_property
    def frequent(self) -> int:
        """The frequent label's number."""
        odds = self.odds
        return int(odds[0] > 0) if odds.size == 1 else int(odds.argmax())

    def after(self, stage: Stage, units: Ints, leaf: int, decoded: Floats, before: Floats, anew: int = 0) -> Choice:
        """What one more leaf's row adds: `decoded` are the losses up to its end, `before` those up to its beginning.

        `units` are those of the losses, `anew` the rounds after which the model began anew.
        """
        past, length, decoder = stage.weight(leaf, anew), stage.length(leaf), stage.root.decoder
        keep, keep_labels = max(0.0, 1.0 - _WINDOW / past), max(0.0, 1.0 - _LABELS / past)
        unit, labels = np.maximum(units, 1).astype(np.float64), slice(MODELS + 1, None)  # a clip below 10 has no room
        weights = keep * self.weights + decoder[leaf] - (decoder[leaf - 1] if leaf else 0.0)
        counts, older = keep * self.counts + (decoded - before) / unit, keep * keep * self.older
        counts[labels] = keep_labels * self.counts[labels] + decoded[labels] - before[labels]
        rounds, rows = keep_labels * self.rounds + length * float(unit[-1]), keep * self.rows + length
        deviation = math.sqrt(stage.sigma2 * math.fsum((weights**2).tolist()) + older)
        told = [0.0, *(counts[:MODELS] + deviation / unit[:MODELS]).tolist()]
        told[WINDOWS] = told[WINDOWS] if units[WINDOWS - 1] else math.inf  # there is no line
        told[MODELS] += _expected(counts[labels], deviation, rounds) * float(deviation / unit[MODELS - 1]) ** 2 / rows
        surer, answered = list(self.surer), self.chosen == MODELS
        least = 0.0 if answered and counts.size == MODELS + 2 else _LEAST  # a label that never came is half of each
        too_sure = _towards(stage, unit) * float((decoded[MODELS] - before[MODELS]) / unit[MODELS])
        surer[answered] = min(max(surer[answered] - too_sure, least), _MOST)
        return Choice(counts, weights, rounds, told.index(min(told)), (surer[0], surer[1]), older, rows)

    def prior(self, stage: Stage, leaf: int, clip: int) -> float:
        """What the shares of two labels add, at the end of a leaf, to the log-odds that a model says.

        Before a model is heard a row's log-odds are those of the shares, L, as far as they stand out of their noise.
        What a model says has ρ deviations of its noise, if a quarter of a row is what it has in common with others of
        its label. Of two normal laws the mean is (L + ρ²·said)/(1 + ρ²): it has the sign of said + L/ρ².
        """
        noise = stage.sigma2 * overlap(stage.root.decoder, leaf + 1, leaf + 1)
        told = stage.sigma2 * math.fsum((self.weights**2).tolist()) + self.older
        found = float(self.counts[MODELS + 1])
        known = max(0.0, 1.0 - told / max(found * found, 1.0))
        return known * float(self.odds[0]) * noise / (_COMMON * stage.ends[leaf] * clip) ** 2

    def anew(self) -> Choice:
        """Nothing is known of any candidate, and what is said is as sure as it was in the beginning."""
        return Choice(np.zeros_like(self.counts), np.zeros_like(self.weights))

    def over(self, stage: Stage) -> Choice:
        """The same when the next epoch begins: its nodes have noise of their own."""
        older = self.older + stage.sigma2 * math.fsum((self.weights**2).tolist())
        return replace(self, weights=np.zeros_like(self.weights), older=older)


def _towards(stage: Stage, unit: Floats) -> float:
    """How far the logarithm of the scale goes for each row that is too sure."""
    return min(_TOWARDS / stage.longest, _SURER * float(unit[MODELS]) / stage.deviation)


def _expected(labels: Floats, deviation: float, rounds: float) -> float:
    """What to expect of a model, against the frequent label, before any row tells; at most 0.

    A model may be better than a coin by anything up to always being right, all of it equally likely, and by how much
    the frequent label is better is known. Of two normal laws the mean of the difference, over its variance: times the
    variance of what was counted this is what the count must be moved by to be the likeliest, both known.
    """
    one = labels.size == 1
    most = 0.5 if one else 1 - 1 / labels.size
    found = float(labels[0]) if one else float(labels.max()) - math.fsum(labels.tolist()) / labels.size
    ahead = math.sqrt(max(0.0, found * found - deviation * deviation)) / rounds * (most if one else 1.0)
    return min(0.0, most / 2 - ahead) * 12 / most**2


def _logarithm(value: float) -> float:
    """What `exponential` undoes, by square roots, which are rounded correctly everywhere."""
    for _ in range(10):
        value = math.sqrt(value)
    return (value - 1.0) * 1024
