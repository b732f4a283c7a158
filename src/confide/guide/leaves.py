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
from confide.guide.partitions import DEPTH, Renewal, renewals
from confide.planning.guided import GuidePlan
from confide.planning.stages import Stage
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random
from confide.privacy.sums import decode, encode

__all__ = ["Leaves"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_RENEWED = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2)  # of the rounds: then partitions may be drawn anew


class Leaves:
    """The leaves of one stage of a guide, and its map.

    `open` and `sums`, the exact sums of the open leaf and of the closed ones, are private; all else is a function of
    released rows and public constants. The noise of the next row is drawn ahead: its time betrays it.
    """

    def __init__(self, plan: GuidePlan, stage: Stage, features: Map, rng: Random) -> None:
        size = features.width * plan.vectors
        if size > plan.node_values:
            raise ValueError(
                f"the map has {size:,} coordinates, and the plan's noise is certified for {plan.node_values:,}: take "
                "fewer features or labels"
            )
        self.plan, self.stage, self.features = plan, stage, features
        self.closed = 0
        self.open = np.zeros(size, dtype=np.int64)
        self.sums = np.zeros((stage.leaves, size), dtype=np.int64)
        self.rows = np.zeros((stage.leaves, size), dtype=np.int64)
        self.theta = np.zeros((features.width, plan.vectors))
        self.answering = np.zeros((features.width, plan.vectors))
        self._decoded, self._base = np.zeros(size), np.zeros(size)
        self._born: dict[int, int] = {}  # when a renewed partition began, in closed leaves
        self._older: dict[tuple[Renewal, ...], FeatureMap] = {}  # maps of earlier rounds
        self._noise, self._rng = GaussianNoise(stage.sigma2), rng
        self._ahead = self._noise.draw(rng, size)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # what came from a read-only file must be writable again
            own = np.require(value, requirements=["C", "W"]) if isinstance(value, np.ndarray) else value
            setattr(self, name, own)

    def node(self) -> tuple[Ints, Ints]:
        """The open leaf's node, noise included, and its exact sum: to be made durable, then given to `close`."""
        i, row = self.closed, self._ahead.copy()
        self.sums[i] = self.open
        encode(self.stage.root.factor, self.stage.root.weights, self.sums, i, row)
        return row, self.open.copy()

    def close(self, row: Ints) -> None:
        """The next leaf begins, and θ follows the released row."""
        later = self._after(row)
        later |= {"open": np.zeros_like(self.open), "_ahead": self._noise.draw(self._rng, self.open.size)}
        vars(self).update(later)  # at once: whatever interrupts it, the leaf is closed or open, and nothing between

    def load(self, rows: Sequence[Ints], sums: Sequence[Ints]) -> None:
        """Rows that were released before, and their leaves' exact sums: θ is computed again, bit for bit."""
        for row, exact in zip(rows, sums, strict=True):
            self.sums[self.closed] = exact
            vars(self).update(self._after(row))

    def map_after(self, rounds: int) -> Map:
        """The map as it was after so many rounds of this stage, before later partitions were drawn."""
        features, closed = self.features, int(np.searchsorted(self.stage.ends, rounds, side="right"))
        if not isinstance(features, FeatureMap) or all(one.deal <= closed for one in features.renewed):
            return features
        known = tuple(one for one in features.renewed if one.deal <= closed)
        if known not in self._older:
            self._older[known] = replace(features, renewed=known)
        return self._older[known]

    def renewing(self) -> list[int]:
        """After which numbers of leaves partitions, if the map has any, may be drawn anew: public."""
        parted = isinstance(self.features, FeatureMap) and len(self.features.parts[1])
        return [self.stage.reaching(part * self.stage.ends[-1]) for part in _RENEWED] if parted else []

    def _after(self, row: Ints) -> dict[str, Any]:
        """What is otherwise after this row is released; `rows` is a place that nothing reads before."""
        stage, closed = self.stage, self.closed + 1
        decoded, theta, answering = np.empty_like(self._decoded), self.theta.copy(), self.answering.copy()
        self.rows[self.closed] = row
        decode(stage.root.decoder, self.rows, self.closed, decoded)
        since = decoded - self._base
        rate, past = stage.step / self.plan.scale, stage.weight(self.closed)
        follow(since, rate, stage.momentum, stage.memory, past, theta, answering)
        later = {"closed": closed, "theta": theta, "answering": answering, "_decoded": decoded}
        if isinstance(self.features, FeatureMap) and closed in self.renewing():
            later |= self._renewed(self.features, since, later)
        return later

    def _renewed(self, features: FeatureMap, since: Floats, later: dict[str, Any]) -> dict[str, Any]:
        """Draw partitions anew that stand for nothing, by what was released: their sums begin again at 0."""
        first, columns = features.parts
        number, size, vectors, closed = columns.shape[0], 1 << DEPTH, self.plan.vectors, later["closed"]
        sums = since[first * vectors : (first + number * size) * vectors].reshape(number, size * vectors)
        noise = np.array([self._variance(self._born.get(i, 0), closed) for i in range(number)])
        standing = ((sums**2).sum(axis=1) / noise - size * vectors) / np.sqrt(2 * size * vectors)
        changed = renewals(columns, standing, closed, features.seed)
        base, born = self._base.copy(), dict(self._born)
        for i, _, _ in changed:
            part = slice(first + i * size, first + (i + 1) * size)
            flat = slice(part.start * vectors, part.stop * vectors)
            base[flat] = later["_decoded"][flat]
            later["theta"][part], later["answering"][part] = 0.0, 0.0
            born[i] = closed
        renewed = replace(features, renewed=features.renewed + changed) if changed else features
        return {"_base": base, "_born": born, "features": renewed}

    def _variance(self, born: int, now: int) -> float:
        """The variance of the noise in a prefix sum after `now` leaves less that after `born` leaves."""
        decoder = self.stage.root.decoder
        weights = decoder[now - 1].copy()
        if born:
            weights -= decoder[born - 1]
        return self.stage.sigma2 * float((weights**2).sum())
