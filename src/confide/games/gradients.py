"""The guide's own worst case: one unit, all its labels in one leaf, opposite ones at the two bits.

Everybody sees the noisy sums. With nobody else's labels in them they are one Gaussian whose mean is that of bit 0 or of
bit 1, so the likelihood ratio is Gaussian too, and what any test can do is known exactly. Proof page:
docs/proofs/guide.md, "Tight".
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from confide.arrays import Floats, Ints
from confide.games.laws import Curve, Law
from confide.games.moves import Batch, Round, View
from confide.guide.columns import Columns
from confide.guide.linear import first_lesson
from confide.guide.maps import FeatureMap
from confide.planning.guided import GuidePlan
from confide.planning.plan import Plan

_CELLS = 2000
_REACH = 9.0  # deviations on either side of the means that are told apart


@dataclass(frozen=True)
class OppositeLabels:
    """Teaches a guide as much as one unit may, in its first leaf: label 0 at bit 0, label 1 at bit 1.

    It plays against a POP without copies, of one numeric feature whose range is not declared. At θ = 0 both gradients
    are as long as the clip, and opposite. Nobody else brings a label; then rounds are asked until the last leaf that
    closes. `score` is the log-likelihood ratio of all released sums, `law()` its exact curve; a second number is the
    noise in the coordinates that the unit does not touch, so that other noise than the plan's is found at once.

    Parameters
    ----------
    plan
        The plan of the POP that it plays against; its guide counts no ranges, and answers alone.
    person
        Play against a POP for people: the rounds are one person's, as many as the guide learns from.
    """

    plan: Plan
    person: bool = False

    def __post_init__(self) -> None:
        guide = self.plan.guide
        if guide is None or self.plan.copies or guide.range_rounds or guide.labels != 2:
            raise ValueError("OppositeLabels plays against a guide alone, of two labels, that counts no ranges")
        if guide.unit_labels > (guide.first if self.person else 1):
            raise ValueError("a unit's labels must fit in one leaf: for several of them take person=True")

    def __repr__(self) -> str:
        return f"OppositeLabels({self.plan.guarantee}{', person' if self.person else ''})"

    @property
    def guide(self) -> GuidePlan:
        """The guide's numbers."""
        assert self.plan.guide is not None
        return self.plan.guide

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        unit = "alice" if self.person else None
        for _ in range(self.guide.unit_labels):
            yield Round(((1.0,), 0), ((1.0,), 1), challenge=True, unit=unit)
        others = self.plan.rounds - self.guide.unit_labels
        yield Batch(np.ones((others, 1)), None, [f"{i}" for i in range(others)] if self.person else None)

    # ------------------------------------------------------------------ what is known of it

    @cached_property
    def _means(self) -> tuple[Ints, Ints]:
        """The unit's sum in its leaf at bit 0 and bit 1."""
        guide, features = self.guide, FeatureMap(Columns.of_array(1))
        shape, row = (features.width, 1), features.encode((1.0,))
        zero, one = (first_lesson(shape, *row, label, guide.clip, guide.scale) for label in (0, 1))
        return guide.unit_labels * zero, guide.unit_labels * one

    @cached_property
    def _factor(self) -> Floats:
        """What of the unit's leaf is in each node that is released."""
        closed = sum(end < self.plan.rounds for end in self.guide.main.ends)
        return self.guide.root.column(0)[:closed].astype(np.float64)

    @cached_property
    def distance(self) -> float:
        """How far the two means are apart, in deviations of the noise."""
        apart = (self._means[1] - self._means[0]).astype(np.float64)
        return math.sqrt(float((self._factor**2).sum() * (apart**2).sum()) / self.guide.sigma2)

    @cached_property
    def _edges(self) -> Floats:
        """The log-likelihood ratio is told apart in cells between these."""
        spread = self.distance * (_REACH + self.distance / 2)
        return np.linspace(-spread, spread, _CELLS + 1)

    @cached_property
    def _curve(self) -> Curve:
        mu = self.distance
        cells = []
        for mean in (-mu * mu / 2, mu * mu / 2):
            places = norm.cdf(np.concatenate([[-np.inf], self._edges, [np.inf]]), mean, mu)
            upper = norm.sf(np.concatenate([[-np.inf], self._edges, [np.inf]]), mean, mu)
            cells.append(np.where(places[:-1] < 0.5, np.diff(places), -np.diff(upper)))
        return Curve(cells[0], cells[1])

    @cached_property
    def _free(self) -> NDArray[np.bool_]:
        """The coordinates that the unit does not touch."""
        return np.asarray((self._means[0] == 0) & (self._means[1] == 0))

    def law(self) -> Curve:
        """The exact curve of the score."""
        return self._curve

    def laws(self) -> tuple[Law, ...]:
        """The exact laws of `numbers`."""
        return self._laws

    @cached_property
    def _laws(self) -> tuple[Law, Law]:
        n = int(self._free.sum()) * self._factor.size
        values = np.linspace(n - 9 * math.sqrt(2 * n), n + 9 * math.sqrt(2 * n), _CELLS)
        cells = np.diff(np.concatenate([[0.0], chi2.cdf(values, n)]))
        return Law("score", self._curve.scores, self._curve.zero, self._curve.one), Law("noise", values, cells, cells)

    # ------------------------------------------------------------------ what was seen

    def numbers(self, view: View) -> list[float]:
        """The score, and the squares of the noise where the unit has no part, in units of the plan's variance."""
        rows = np.array(view.released, dtype=np.float64)
        squares = float((rows[:, self._free] ** 2).sum()) / self.guide.sigma2
        values = self._laws[1].values
        return [self.score(view), float(values[min(int(np.searchsorted(values, squares)), values.size - 1)])]

    def score(self, view: View) -> float:
        """The log-likelihood ratio of what was released, as one of its cells."""
        zero, one = (mean.astype(np.float64) for mean in self._means)
        rows = np.array(view.released, dtype=np.float64)
        if rows.shape != (self._factor.size, zero.size):
            raise ValueError("another number of sums was released than this plan's rounds say: play it to its end")
        middle = np.outer(self._factor, (zero + one) / 2)
        ratio = float(((rows - middle) @ (one - zero) * self._factor).sum()) / self.guide.sigma2
        return float(self._curve.scores[int(np.searchsorted(self._edges, ratio))])
