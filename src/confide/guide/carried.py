"""What one epoch of a guide leaves to the next: all of it follows from released rows, so all of it is public."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.guide.candidates import Choice
from confide.guide.linear import MODELS
from confide.guide.maps import FeatureMap
from confide.guide.model import Map
from confide.guide.partitions import Renewal
from confide.guide.silence import Kept, Silence, Span
from confide.planning.stages import Stage

_SIZES, _NUMBERS = 6, 12  # integers before all else, floats after it


class Carried(NamedTuple):
    """Where an epoch begins. `Leaves.carried` makes it, `pack` writes it down as the integers of one row."""

    theta: Floats
    models: Floats
    answering: Floats
    choice: Choice
    since_round: Ints
    """After how many rounds each partition was drawn anew; 0 for never."""
    sums: Floats
    """The decoded sums of all earlier epochs, in the units of `step`."""
    noise: Floats
    """The variance of the noise in them, for each partition."""
    step: float
    anew: int
    """After how many rounds the model began anew; 0 for never."""
    silence: Silence

    def for_heir(self, stage: Stage) -> Carried:
        """The same for a stage of a successor, whose rounds are other ones."""
        choice = replace(self.choice, weights=np.zeros(stage.leaves))
        return self._replace(choice=choice, since_round=np.zeros_like(self.since_round), anew=0)

    def pack(self, features: Map, first: int) -> Ints:
        """These numbers, that of the epoch's first node, and the map's renewals, as integers: floats by their bits."""
        choice, renewed = self.choice, features.renewed if isinstance(features, FeatureMap) else ()
        flat = [np.array([len(one.columns), one.number, one.deal, *one.columns], dtype=np.int64) for one in renewed]
        sizes = [first, choice.weights.size, self.since_round.size, choice.counts.size, choice.chosen, len(renewed)]
        chosen = choice.rounds, *choice.surer, choice.older, choice.rows
        quiet, window, trial = self.silence, self.silence.window, self.silence.trial
        floats = [self.theta.ravel(), self.models.ravel(), self.answering.ravel(), self.sums, self.noise, choice.counts]
        floats += [*(each.ravel() for each in (quiet.kept.answering, quiet.kept.models)), quiet.base]
        floats += [window.rows, window.variance, trial.rows, trial.variance]
        more = quiet.often, quiet.quiet, quiet.epochs, window.rounds, trial.rounds
        bits = np.concatenate([*floats, np.array([*chosen, self.step, self.anew, *more])]).view(np.int64)
        return np.concatenate([np.array(sizes, dtype=np.int64), self.since_round, *flat, bits])

    @classmethod
    def unpack(cls, row: Ints, features: Map, vectors: int, stage: Stage) -> tuple[Carried, Map] | None:
        """What `pack` wrote when this epoch began, and the map; None where that cannot be."""
        row, models = np.ascontiguousarray(row, dtype=np.int64), MODELS
        if row.size < _SIZES or row[:2].tolist() != [stage.before, stage.leaves]:
            return None
        (partitions, counts, chosen, changes), at = row[2:_SIZES].tolist(), _SIZES
        if not all(0 <= size <= row.size for size in (partitions, counts, chosen, changes)):
            return None
        since_round, at = row[at : at + partitions].copy(), at + partitions
        renewed = []
        for _ in range(changes):
            size = int(row[at]) if at < row.size else -1
            if not 0 < size <= row.size - at - 3:
                return None
            columns = row[at + 3 : at + 3 + size].tolist()
            renewed.append(Renewal(int(row[at + 1]), tuple(columns), int(row[at + 2])))
            at += 3 + size
        width, floats = features.width, row[at:].view(np.float64)
        theta = width * vectors
        sizes = [theta, models * theta, theta, theta + counts, partitions, counts]
        sizes += [theta, models * theta, theta, counts + 1, counts, counts + 1, counts]
        numbers = floats.size - sum(sizes)
        fits = counts > 0 and np.isfinite(floats).all() and chosen <= models and numbers == _NUMBERS
        if not fits or (renewed and not isinstance(features, FeatureMap)):
            return None
        ends = np.cumsum([0, *sizes, numbers])
        parts = [floats[a:b].copy() for a, b in pairwise(ends.tolist())]
        rounds, model, frequent, older, rows, step, anew, often, quiet, epochs, *spans = parts[-1].tolist()
        choice = Choice(parts[5], np.zeros(stage.leaves), rounds, chosen, (model, frequent), older, rows)
        first, answering = parts[0].reshape(width, vectors), parts[2].reshape(width, vectors)
        many = parts[1].reshape(width, models * vectors)
        window, trial = Span(parts[9], parts[10], int(spans[0])), Span(parts[11], parts[12], int(spans[1]))
        kept = Kept(parts[6].reshape(width, vectors), parts[7].reshape(width, models * vectors))
        silence = Silence(bool(often), bool(quiet), kept, parts[8], int(epochs), window, trial)
        found = cls(first, many, answering, choice, since_round, parts[3], parts[4], step, int(anew), silence)
        return found, replace(features, renewed=tuple(renewed)) if isinstance(features, FeatureMap) else features
