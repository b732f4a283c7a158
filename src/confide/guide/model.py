"""What a guide is to the world: a feature map and θ. It was released privately as a whole, so it may be shipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats, Ints
from confide.guide.columns import Row
from confide.guide.hashed import HashedMap
from confide.guide.linear import scores
from confide.guide.maps import Encoded, FeatureMap
from confide.guide.rows import Table, read_many

Map = FeatureMap | HashedMap


class Question(NamedTuple):
    """A row as a guide takes it."""

    stage: int
    """The stage whose map encoded it: no other learns from it."""
    encoded: Encoded
    asked: Encoded | None = None
    """By the map of the stage that answers, while that is another one."""
    read: Row | None = None
    """As it was read, while what is taught is kept for another map."""


class Batch(NamedTuple):
    """Rows encoded by a map, one after the other: row i has the features starts[i] to starts[i+1], none if refused."""

    features: Map
    starts: Ints
    indices: Ints
    values: Floats
    refused: NDArray[np.bool_]

    def __repr__(self) -> str:
        return f"Batch({self.refused.size})"

    def rows(self) -> list[Encoded | None]:
        """All rows, which keep this batch in memory; None for one that was refused."""
        starts, indices, values, n = self.starts.tolist(), self.indices, self.values, self.refused.size
        if n and starts == [*range(0, n * starts[1] + 1, starts[1] or 1)]:  # all are equally long
            return list(map(Encoded, indices.reshape(n, -1), values.reshape(n, -1)))
        return [
            None if refused else Encoded(indices[a:b], values[a:b])
            for a, b, refused in zip(starts, starts[1:], self.refused.tolist(), strict=False)
        ]


def encode_batch(features: Map, rows: Iterable[Any] | Table) -> Batch:
    """Encode rows, the same bits as `encode` gives one by one. Whatever a row is, or raises, is refused by itself.

    A map of columns takes rows that were read already, too.
    """
    if isinstance(features, FeatureMap):
        table = rows if isinstance(rows, Table) else read_many(features.columns, rows)
        (encoded, sizes), refused = features.encode_table(table), table.refused
    else:
        encoded, sizes, refused = features.encode_many(rows)
    starts = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return Batch(features, starts, *encoded, refused)


def score_of(theta: Floats, encoded: Encoded) -> Floats:
    """Log-odds by θ, one a label, up to a constant."""
    out = np.zeros(theta.shape[1])
    scores(theta, encoded.indices, encoded.values, out)
    return np.array([0.0, out[0]]) if out.size == 1 else out


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model over a feature map: one vector of θ for two labels, else one for each.

    Examples
    --------
    >>> model = Model(HashedMap(8), np.zeros((8, 1)))
    >>> model.probabilities({"age": 41})
    array([0.5, 0.5])
    >>> Model.from_params(model.params()).probabilities({"age": 41})
    array([0.5, 0.5])
    """

    features: Map
    theta: Floats

    def score(self, encoded: Encoded, /) -> Floats:
        """Log-odds, one a label, up to a constant."""
        return score_of(self.theta, encoded)

    def probabilities(self, x: Any, /) -> Floats:
        """One a label. Public and free: it takes no round and changes nothing."""
        score = self.score(self.features.encode(x))
        weights = np.exp(score - score.max())
        return np.asarray(weights / weights.sum())

    def params(self) -> dict[str, Any]:
        """What makes the same model again: JSON's kinds of values only."""
        return {"features": map_params(self.features), "theta": self.theta.tolist()}

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Model:
        """The model that `params` describes."""
        features, theta = map_from_params(params["features"]), np.array(params["theta"], dtype=np.float64)
        if theta.ndim != 2 or theta.shape[0] != features.width or not np.isfinite(theta).all():
            raise ValueError("theta does not fit its feature map: export the guide again")
        return cls(features, theta)


def map_params(features: Map) -> dict[str, Any]:
    """A map's parameters with its kind."""
    return {"map": "hashed" if isinstance(features, HashedMap) else "columns", **features.params()}


def map_from_params(params: Mapping[str, Any]) -> Map:
    """The map that `map_params` described."""
    rest = {name: value for name, value in params.items() if name != "map"}
    if params.get("map") == "hashed":
        return HashedMap(**rest)
    if params.get("map") == "columns":
        return FeatureMap.from_params(rest)
    raise ValueError("this is no feature map that Confide knows: export it again")
