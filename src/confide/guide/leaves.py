"""The sums of a guide's leaves, the rows released of them, and θ, which follows from those rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.guide.linear import follow
from confide.guide.maps import FeatureMap
from confide.guide.model import Map
from confide.guide.partitions import DEPTH, renewals
from confide.planning.guided import GuidePlan
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random
from confide.privacy.sums import decode, encode

__all__ = ["Leaves"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_RENEWED = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2)  # of the leaves: then partitions may be drawn anew


class Leaves:
    """The leaves of a guide whose map is known.

    `open` and `sums`, the exact sums of the open leaf and of the closed ones, are private; all else is a function of
    released rows and public constants. The noise of the next row is drawn ahead: its time betrays it.
    """

    def __init__(self, plan: GuidePlan, features: Map, rng: Random) -> None:
        size = features.width * plan.vectors
        self.plan, self.features = plan, features
        self.closed = 0
        self.open = np.zeros(size, dtype=np.int64)
        self.sums = np.zeros((plan.leaves, size), dtype=np.int64)
        self.rows = np.zeros((plan.leaves, size), dtype=np.int64)
        self.theta = np.zeros((features.width, plan.vectors))
        self.answering = np.zeros((features.width, plan.vectors))
        self._decoded, self._base = np.zeros(size), np.zeros(size)
        self._born: dict[int, int] = {}  # when a renewed partition began, in closed leaves
        self._noise, self._rng = GaussianNoise(plan.sigma2), rng
        self._ahead = self._noise.draw(rng, size)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # what came from a read-only file must be writable again
            own = np.require(value, requirements=["C", "W"]) if isinstance(value, np.ndarray) else value
            setattr(self, name, own)

    def node(self) -> tuple[Ints, Ints]:
        """The open leaf's node, noise included, and its exact sum: to be made durable, then given to `close`."""
        i, row = self.closed, self._ahead.copy()
        self.sums[i] = self.open
        encode(self.plan.root.factor, self.sums, i, row)
        return row, self.open.copy()

    def close(self, row: Ints) -> None:
        """The next leaf begins, and θ follows the released row."""
        self.open[:] = 0
        self._learn_from(row)
        self._ahead = self._noise.draw(self._rng, self.open.size)

    def load(self, rows: Sequence[Ints], sums: Sequence[Ints]) -> None:
        """Rows that were released before, and their leaves' exact sums: θ is computed again, bit for bit."""
        for row, exact in zip(rows, sums, strict=True):
            self.sums[self.closed] = exact
            self._learn_from(row)

    def renewing(self) -> list[int]:
        """After which numbers of leaves partitions, if the map has any, may be drawn anew: public."""
        parted = isinstance(self.features, FeatureMap) and len(self.features.parts[1])
        return [max(1, round(part * self.plan.leaves)) for part in _RENEWED] if parted else []

    def _learn_from(self, row: Ints) -> None:
        plan = self.plan
        self.rows[self.closed] = row
        decode(plan.root.decoder, self.rows, self.closed, self._decoded)
        self.closed += 1
        since = self._decoded - self._base
        rate = plan.step / plan.scale
        follow(since, rate, plan.momentum, plan.memory, self.closed, self.theta, self.answering)
        if isinstance(self.features, FeatureMap) and self.closed in self.renewing():
            self._renew(self.features, since)

    def _renew(self, features: FeatureMap, since: Floats) -> None:
        """Draw partitions anew that stand for nothing, by what was released: their sums begin again at 0."""
        first, columns = features.parts
        number, size, vectors = columns.shape[0], 1 << DEPTH, self.plan.vectors
        sums = since[first * vectors : (first + number * size) * vectors].reshape(number, size * vectors)
        noise = np.array([self._variance(self._born.get(i, 0)) for i in range(number)])
        standing = ((sums**2).sum(axis=1) / noise - size * vectors) / np.sqrt(2 * size * vectors)
        changed = renewals(columns, standing, self.closed, features.seed)
        if changed:
            self.features = replace(features, renewed=features.renewed + changed)
        for i, _, _ in changed:
            part = slice(first + i * size, first + (i + 1) * size)
            flat = slice(part.start * vectors, part.stop * vectors)
            self._base[flat] = self._decoded[flat]
            self.theta[part], self.answering[part] = 0.0, 0.0
            self._born[i] = self.closed

    def _variance(self, born: int) -> float:
        """The variance of the noise in a prefix sum now less that after `born` leaves."""
        decoder, now = self.plan.root.decoder, self.closed
        weights = decoder[:now][::-1].copy()
        weights[:born] -= decoder[:born][::-1]
        return self.plan.sigma2 * float((weights**2).sum())
