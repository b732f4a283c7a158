"""Which of a few models answers, and how sure it may be: by losses that are released with the sums.

A taught row adds, beside its gradient, what it tells of the candidates (`confide.guide.linear.add_lesson`): θ averaged
over other windows, and the frequent label for every row. The candidate with the least decayed count answers, and the
usual window has one deviation of the noise in its favour. One more coordinate tells whether what was said is too sure,
and scales it. All of this is a function of released rows and public constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from confide.arrays import Floats, Ints
from confide.guide.linear import MODELS
from confide.planning.stages import Stage

_FAST, _SLOW = 1000.0, 5.0  # of the past: hardly a mean, for drift; and a fifth, where noise is all
_WINDOW = 2.0  # losses are counted over about half of the past
_SURER, _LEAST, _MOST = 0.1, -2.0, 3.0  # the noise of a scale's logarithm; and how far that goes
_TOWARDS = 4.0  # as `STEADY`, for the scale: its curvature is below ½
_RARE = 0.01  # no label is taken to be rarer


def keeps(stage: Stage, leaf: int) -> Floats:
    """How near each window's mean comes to θ at the end of a leaf: the usual one first."""
    past = stage.weight(leaf)
    windows = (stage.memory, _FAST, _SLOW)
    return np.array([min(1.0, (memory + 1) / (memory + past)) if memory > 0 else 1.0 for memory in windows])


@dataclass(frozen=True, eq=False)
class Choice:
    """What the releases of one stage say about its candidates.

    Parameters
    ----------
    counts
        Decayed sums of the losses as they were released.
    weights
        What each released row weighs in them, before they are divided by their units: the noise is σ·‖weights‖.
    rounds
        The rounds in them, decayed alike.
    chosen
        0 for the usual window, 1 and 2 for the fast and the slow one, 3 for the frequent label.
    scale
        What the chosen scores are multiplied by.
    surer, before
        The logarithm of that scale, and what of it is from earlier epochs.
    older
        The variance of the noise that earlier epochs left in the counts, before they are divided by their units.
    """

    counts: Floats
    weights: Floats
    rounds: float = 0.0
    chosen: int = 0
    scale: float = 1.0
    surer: float = 0.0
    before: float = 0.0
    older: float = 0.0

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

    @cached_property
    def frequent(self) -> int:
        """The frequent label's number."""
        odds = self.odds
        return int(odds[0] > 0) if odds.size == 1 else int(odds.argmax())

    def after(self, stage: Stage, units: Ints, leaf: int, decoded: Floats, before: Floats) -> Choice:
        """What one more leaf's row adds: `decoded` are the losses up to its end, `before` those up to its beginning.

        `units` are those of the losses.
        """
        keep = max(0.0, 1.0 - _WINDOW / stage.weight(leaf))
        decoder, length, older = stage.root.decoder, stage.length(leaf), keep * keep * self.older
        unit = np.maximum(units, 1).astype(np.float64)  # a clip below 10 leaves no room for losses
        weights = keep * self.weights + decoder[leaf] - (decoder[leaf - 1] if leaf else 0.0)
        counts = keep * self.counts + (decoded - before) / unit
        deviation = math.sqrt(stage.sigma2 * math.fsum((weights**2).tolist()) + older)
        told = [0.0, *(counts + deviation / unit)[:MODELS].tolist()]
        towards = min(_TOWARDS / stage.longest, _SURER * float(unit[MODELS]) / stage.deviation)
        surer = min(max(self.before - towards * float(decoded[MODELS] / unit[MODELS]), _LEAST), _MOST)
        chosen, scale = told.index(min(told)), _exponential(surer)
        return Choice(counts, weights, keep * self.rounds + length, chosen, scale, surer, self.before, older)

    def over(self, stage: Stage) -> Choice:
        """The same when the next epoch begins: its nodes have noise of their own."""
        older = self.older + stage.sigma2 * math.fsum((self.weights**2).tolist())
        return replace(self, weights=np.zeros_like(self.weights), before=self.surer, older=older)


def _exponential(value: float) -> float:
    """About e to this power: by products alone, so that its bits are the same on every machine."""
    out = 1.0 + value / 1024
    for _ in range(10):
        out *= out
    return out


def _logarithm(value: float) -> float:
    """What `_exponential` undoes, by square roots, which are rounded correctly everywhere."""
    for _ in range(10):
        value = math.sqrt(value)
    return (value - 1.0) * 1024
