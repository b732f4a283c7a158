"""Which columns a guide's model has learned from: a function of released sums and public constants, so public itself.

θ is a multiple of the released sums, and how much noise is in them is known. What of a column's coordinates is more
than noise explains is what was learned of that column. A partition cuts several columns: each has its part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from confide.guide.leaves import Leaves
from confide.guide.maps import FeatureMap
from confide.guide.partitions import DEPTH

__all__ = ["importance", "told"]

_CLEAR = 4.0  # deviations of noise alone: what is below stands for nothing
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
    found, noise = np.zeros(len(names)), np.zeros(len(names))
    owners = features.owners
    own = owners >= 0
    np.add.at(found, owners[own], squares[own] - vectors * plain)
    np.add.at(noise, owners[own], 2 * vectors * plain**2)
    first, cut = features.parts
    for i, (level, variance) in enumerate(zip(cut, parted, strict=True)):
        each, size = np.unique(level), 1 << DEPTH
        part = squares[first + i * size : first + (i + 1) * size]
        found[each] += (part.sum() - size * vectors * variance) / each.size
        noise[each] += 2 * size * vectors * variance**2 / each.size**2
    clear = found > _CLEAR * np.sqrt(noise)
    order = [j for j in np.argsort(-found, kind="stable").tolist() if clear[j] and found[j] > 0]
    whole = float(found[order].sum())
    return {names[j]: float(found[j]) / whole for j in order}


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
    first, *rest = list(shares.items())[:_SHOWN]
    said = [f"{first[0]} has {first[1]:.0%}", *(f"{name} {share:.0%}" for name, share in rest)]
    more = f", {len(shares) - _SHOWN} others the rest" if len(shares) > _SHOWN else ""
    words = ", ".join(said).replace("%", " %")
    return f"Of what the guide has learned by now, which everyone may see, {words}{more}."
