"""Which columns a guide's model has learned from: a function of released sums and public constants, so public itself.

θ is a multiple of the released sums, and how much noise is in them is known. What of a column's coordinates is more
than noise explains is what was learned of that column. A partition cuts several columns: each has its part. What does
not stand out by itself, a feature, a column's own features or a partition, counts for nothing: all of them have noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from confide.arrays import Floats
from confide.guide.leaves import Leaves
from confide.guide.maps import FeatureMap
from confide.guide.partitions import DEPTH

__all__ = ["importance", "told"]

_CLEAR = 5.0  # deviations of noise alone: what is below stands for nothing
_ALONE = 24.0  # … and variances of one feature by itself: of thousands none has so much by chance
_SHOWN = 5


def importance(leaves: Leaves) -> dict[str, float]:
    """The share that each column has of all that stands out of the noise, largest first; they add up to 1.

    Columns that do not stand out are left out. Empty where none does, and where the map knows no columns.
    """
    features, vectors = leaves.features, leaves.plan.vectors
    if not isinstance(features, FeatureMap):
        return {}
    columns = features.columns
    names = (*columns.numeric, *columns.categorical, *columns.text)
    squares, plain, parted = leaves.standing()
    found = np.array([_clear(squares[features.owners == j], vectors, plain) for j in range(len(names))])
    (first, cut), size = features.parts, 1 << DEPTH
    for i, variance in enumerate(parted.tolist()):
        each = np.unique(cut[i])
        found[each] += _clear(squares[first + i * size : first + (i + 1) * size], vectors, variance) / each.size
    by = dict.fromkeys(names, 0.0)
    for name, beyond in zip(names, found.tolist(), strict=True):  # a column may be of two kinds
        by[name] += beyond / float(found.sum()) if beyond else 0.0
    return {name: share for name, share in sorted(by.items(), key=lambda one: -one[1]) if share > 0}


def _clear(squares: Floats, vectors: int, variance: float) -> float:
    """What these features have beyond their noise; 0 where noise alone might have it."""
    beyond, spread = squares - vectors * variance, math.sqrt(2 * vectors) * variance
    whole, alone = float(beyond.sum()), beyond > _ALONE * variance + _CLEAR * spread
    return whole if whole > _CLEAR * spread * math.sqrt(squares.size) else float(beyond[alone].sum())


def told(shares: Mapping[str, float]) -> str:
    """The same as a sentence.

    Examples
    --------
    >>> told({"amount": 0.8, "shop": 0.2})
    'Of what the guide has learned by now, which everyone may see, amount has 80 %, shop 20 %.'
    >>> told({})
    'No column stands out of the noise of the guide yet, or its columns have no names.'
    """
    if not shares:
        return "No column stands out of the noise of the guide yet, or its columns have no names."
    first, *rest = ((f"column {name}" if name.isdigit() else name, share) for name, share in shares.items())
    said = [f"{first[0]} has {first[1]:.0%}", *(f"{name} {share:.0%}" for name, share in rest[: _SHOWN - 1])]
    more = f", {len(shares) - _SHOWN} others the rest" if len(shares) > _SHOWN else ""
    words = ", ".join(said).replace("%", " %")
    return f"Of what the guide has learned by now, which everyone may see, {words}{more}."
