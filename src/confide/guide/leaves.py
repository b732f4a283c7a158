"""The sums of a guide's leaves, the rows released of them, and θ, which follows from those rows alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.guide.candidates import Choice, keeps
from confide.guide.linear import MODELS, Thetas, average, follow, units
from confide.guide.maps import FeatureMap
from confide.guide.middle import mean_row
from confide.guide.model import Map
from confide.guide.partitions import DEPTH, renewals
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
        self._units = units(plan.clip, plan.vectors)
        size = features.width * plan.vectors + self._units.size
        if size > plan.node_values:
            raise ValueError(
                f"the map has {size:,} coordinates, and the plan's noise is certified for {plan.node_values:,}: take "
                "fewer features or labels"
            )
        self.plan, self.planned, self.features = plan, stage, features
        self._mean, self._along, self.stage = _steady(stage, features)
        self.closed = 0
        self.open = np.zeros(size, dtype=np.int64)
        self.sums = np.zeros((stage.leaves, size), dtype=np.int64)
        self.rows = np.zeros((stage.leaves, size), dtype=np.int64)
        self.theta = np.zeros((features.width, plan.vectors))
        self.models = np.zeros((features.width, MODELS * plan.vectors))
        self.answering = np.zeros((features.width, plan.vectors))
        self.choice = Choice.first(stage, plan.vectors)
        self._decoded, self._base = np.zeros(size), np.zeros(size)
        self._born: dict[int, int] = {}  # when a renewed partition began, in closed leaves
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

    @property
    def thetas(self) -> Thetas:
        """What a row meets."""
        return Thetas(self.theta, self.answering, self.models, self.choice.frequent, self._units)

    def renewing(self) -> list[int]:
        """After which numbers of leaves partitions, if the map has any, may be drawn anew: public."""
        parted = isinstance(self.features, FeatureMap) and len(self.features.parts[1])
        return [self.stage.reaching(part * self.stage.ends[-1]) for part in _RENEWED] if parted else []

    def _after(self, row: Ints) -> dict[str, Any]:
        """What is otherwise after this row is released; `rows` is a place that nothing reads before."""
        stage, closed = self.stage, self.closed + 1
        decoded, theta, models = np.empty_like(self._decoded), self.theta.copy(), self.models.copy()
        self.rows[self.closed] = row
        decode(stage.root.decoder, self.rows, self.closed, decoded)
        since = decoded - self._base
        follow(since, stage.step / self.plan.scale, stage.momentum, self._mean, self._along, theta)
        average(theta, keeps(stage, self.closed), models)
        told = slice(decoded.size - self._units.size, decoded.size)
        choice = self.choice.after(stage, self._units, self.closed, decoded[told], self._decoded[told])
        later = {"closed": closed, "theta": theta, "models": models, "_decoded": decoded, "choice": choice}
        if isinstance(self.features, FeatureMap) and closed in self.renewing():
            later |= self._renewed(self.features, since, later)
        return later | {"answering": self._chosen(choice, models)}

    def _chosen(self, choice: Choice, models: Floats) -> Floats:
        """The answering θ: the chosen candidate's, as sure as it may be."""
        vectors = self.plan.vectors
        if choice.chosen < MODELS:
            return models[:, choice.chosen * vectors : (choice.chosen + 1) * vectors] * choice.scale
        out = np.zeros_like(self.answering)
        out[0] = choice.odds / self.features.constant * choice.scale  # the first feature is the constant
        return out

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
            later["theta"][part], later["models"][part] = 0.0, 0.0
            born[i] = closed
        if not changed:
            return {}
        renewed = replace(features, renewed=features.renewed + changed)
        mean, along, stage = _steady(self.planned, renewed)
        later = {"_mean": mean, "_along": along, "stage": stage}
        return later | {"_base": base, "_born": born, "features": renewed}

    def _variance(self, born: int, now: int) -> float:
        """The variance of the noise in a prefix sum after `now` leaves less that after `born` leaves."""
        decoder = self.stage.root.decoder
        weights = decoder[now - 1].copy()
        if born:
            weights -= decoder[born - 1]
        return self.stage.sigma2 * float((weights**2).sum())


def _steady(stage: Stage, features: Map) -> tuple[Floats, float, Stage]:
    """The map's mean row, of norm 1, how much of the sums along it is left out, and the stage with steady steps."""
    mean = mean_row(features)
    mean2 = math.fsum((mean**2).tolist())
    steady = stage.steady(mean2)
    return (mean / math.sqrt(mean2) if mean2 else mean), steady.along(mean2), steady
