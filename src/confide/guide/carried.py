"""What one epoch of a guide leaves to the next: all of it follows from released rows, so all of it is public."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.guide.candidates import Choice
from confide.guide.maps import FeatureMap
from confide.guide.model import Map
from confide.guide.partitions import Renewal

__all__ = ["Carried"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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

    def pack(self, features: Map) -> Ints:
        """These numbers, and which partitions the map has drawn anew, as integers: floats by their bits."""
        choice, renewed = self.choice, features.renewed if isinstance(features, FeatureMap) else ()
        flat = [np.array([len(one.columns), one.number, one.deal, *one.columns], dtype=np.int64) for one in renewed]
        sizes = np.array([self.since_round.size, choice.counts.size, choice.chosen, len(renewed)], dtype=np.int64)
        told = np.array([choice.rounds, choice.scale, choice.surer, choice.before, choice.older, self.step])
        floats = [self.theta.ravel(), self.models.ravel(), self.answering.ravel(), self.sums, self.noise]
        bits = np.concatenate([*floats, choice.counts, told]).view(np.int64)
        return np.concatenate([sizes, self.since_round, *flat, bits])

    @classmethod
    def unpack(cls, row: Ints, features: Map, vectors: int, models: int, leaves: int) -> tuple[Carried, Map] | None:
        """What `pack` wrote, and the map; None where that cannot be."""
        row = np.ascontiguousarray(row, dtype=np.int64)
        if row.size < 4 or row[:4].min() < 0 or row[:4].max() > row.size:
            return None
        (partitions, counts, chosen, changes), at = row[:4].tolist(), 4
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
        sizes = (width * vectors, width * models * vectors, width * vectors, None, partitions, counts, 6)
        rest = floats.size - sum(size for size in sizes if size is not None)
        fits = np.isfinite(floats).all() and chosen <= models and counts == rest - width * vectors > 0
        if not fits or (renewed and not isinstance(features, FeatureMap)):
            return None
        ends = np.cumsum([0, *(rest if size is None else size for size in sizes)])
        parts = [floats[a:b].copy() for a, b in pairwise(ends.tolist())]
        rounds, scale, surer, before, older, step = parts[6].tolist()
        choice = Choice(parts[5], np.zeros(leaves), rounds, chosen, scale, surer, before, older)
        theta, answering = parts[0].reshape(width, vectors), parts[2].reshape(width, vectors)
        many = parts[1].reshape(width, models * vectors)
        known = replace(features, renewed=tuple(renewed)) if isinstance(features, FeatureMap) else features
        return cls(theta, many, answering, choice, since_round, parts[3], parts[4], step), known
