"""Six variants of the sparse vector technique, some of which promise what they do not keep (docs/doubles.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from confide.privacy.random import Random, discrete_laplace

__all__ = ["VARIANTS", "SparseVector", "Variant"]



@dataclass(frozen=True)
class Variant:
    """One of the six algorithms of Lyu, Su and Li, "Understanding the Sparse Vector Technique for Differential
    Privacy" (2017), for whole-number queries of sensitivity 1 and a threshold of 0."""

    number: int
    what: str
    shares: tuple[Fraction, Fraction]
    """What ε₁ and ε₂ are of ε."""
    threshold_noise: str = "1/e1"
    noise: str = "2c/e2"
    redraws: bool = False
    """Whether the threshold's noise is drawn again after each report."""
    shows: bool = False
    """Whether a report shows the noisy value."""
    stops: bool = True
    """Whether it stops after c reports."""

    def true_epsilon(self, epsilon: float, reports: int) -> float:
        """The right verdict: what it costs."""
        return {1: epsilon, 2: epsilon, 4: (1 + 6 * reports) / 4 * epsilon}.get(self.number, math.inf)

    def scales(self, epsilon: Fraction, reports: int) -> tuple[Fraction, Fraction]:
        """The scales of the noise on the threshold and on a query."""
        one, two = (share * epsilon for share in self.shares)
        scale = {"1/e1": 1 / one, "c/e1": reports / one, "0": Fraction(0), "1/e2": 1 / two}
        scale |= {"c/e2": reports / two, "2c/e2": 2 * reports / two}
        return scale[self.threshold_noise], scale[self.noise]


_HALF, _QUARTER = (Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 4), Fraction(3, 4))
VARIANTS = {
    1: Variant(1, "theirs: private", _HALF),
    2: Variant(2, "Dwork and Roth (2014): private", _HALF, threshold_noise="c/e1", redraws=True),
    3: Variant(3, "lecture notes of Roth (2011): shows the noisy value, which bounds the threshold's noise", _HALF,
               noise="c/e2", shows=True),
    4: Variant(4, "Lee and Clifton (2014): noise for one report, c of them given", _QUARTER, noise="1/e2"),
    5: Variant(5, "Stoddard, Chen and Machanavajjhala (2014): no noise on queries, no end", _HALF, noise="0",
               stops=False),
    6: Variant(6, "Chen, Xiao, Zhang and Xu (2015): no end", _HALF, noise="1/e2", stops=False),
}  # fmt: skip


class SparseVector:
    """The technique as a variant has it. `query` gives None for a value below, True or the noisy value for a report."""

    def __init__(self, variant: Variant, epsilon: Fraction, reports: int, rng: Random) -> None:
        self._variant, self._left, self._rng = variant, reports, rng
        self._threshold_scale, self._scale = variant.scales(epsilon, reports)
        self._rho = discrete_laplace(rng, self._threshold_scale)

    @property
    def halted(self) -> bool:
        """Whether the last report was given."""
        return self._variant.stops and self._left <= 0

    def query(self, value: int) -> int | None:
        """Whether the value, with noise, is at least the noisy threshold."""
        noisy = value + (discrete_laplace(self._rng, self._scale) if self._scale else 0)
        if noisy < self._rho:
            return None
        self._left -= 1
        if self._variant.redraws:
            self._rho = discrete_laplace(self._rng, self._threshold_scale)
        return noisy if self._variant.shows else True
