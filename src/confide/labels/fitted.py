"""What is fitted to the rows that are kept, at the same moments: boosted trees, and a linear rule of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats, Ints
from confide.guide.rows import Table
from confide.labels.boosted import Binning, Trees, fit_trees, tree_scores
from confide.labels.linear import Linear, fit_linear
from confide.privacy.response import Response

__all__ = ["STOPS", "Fitted"]

STOPS = (16, 8, 4, 2, 1)
"""Boosting is stopped after such a part of its trees: each is believed by how likely it made the outputs so far, so
that how far to go where labels lie is found from what came out."""


class Fitted(NamedTuple):
    """Trees and a rule."""

    binning: Binning
    trees: Trees
    rule: Linear

    @classmethod
    def to(cls, numbers: Floats, codes: NDArray[np.uint64], outs: Ints, response: Response) -> Fitted:
        """Those of these rows and outputs."""
        binning = Binning.of(numbers, codes)
        trees = fit_trees(binning.bins(numbers, codes), outs, response, numbers.shape[1])
        return cls(binning, trees, fit_linear(numbers, outs, response))

    def tell(self, rows: Table, out: Floats) -> None:
        """The probabilities of fewer trees, of all trees and, where there is room for it, of the rule: by row."""
        bins, scores, at = self.binning.bins(rows.numbers, rows.codes), np.tile(self.trees.first, (len(out), 1)), 0
        for k, part in enumerate(STOPS):
            until = self.trees.after(part)
            tree_scores(bins, self.trees, at, until, scores)
            said = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, k], at = said / said.sum(axis=1, keepdims=True), until
        if out.shape[1] > len(STOPS):
            out[:, len(STOPS)] = self.rule.probabilities(rows.numbers)

    # ------------------------------------------------------------------ files: arrays and numbers, no pickle

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """All of it, under this name."""
        parts = {"cuts": self.binning.cuts, "kinds": self.binning.kinds, "trees": self.trees, "rule": self.rule}
        return {f"{name}/{part}/{i}": np.asarray(one) for part, some in parts.items() for i, one in enumerate(some)}

    @classmethod
    def of(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Fitted | None:
        """What `arrays` gave under this name; None where nothing is."""
        if f"{name}/rule/0" not in arrays:
            return None
        cuts, kinds, trees, rule = (_numbered(f"{name}/{part}", arrays) for part in ("cuts", "kinds", "trees", "rule"))
        first, column, cut, leaf, label, categories = trees
        return cls(Binning(cuts, kinds), Trees(first, column, cut, leaf, label, int(categories)), Linear(*rule))


def _numbered(name: str, arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    return tuple(arrays[f"{name}/{i}"] for i in range(sum(key.startswith(f"{name}/") for key in arrays)))
