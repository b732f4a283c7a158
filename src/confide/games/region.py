"""What is certified, as a region of the trade-off plane: no test of the mechanism may lie outside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from confide.planning.plan import Guarantee, Plan
from confide.privacy.renyi import check_delta, check_epsilon, compose, delta_from_renyi, group

ORDERS = (2, 3, 4, 5, 6, 8, 11, 16, 24, 40)
EPSILONS = tuple(0.01 * 1.12**i for i in range(70))


@dataclass(frozen=True)
class Region:
    """All (ε, δ) that hold at once: a test with false positives a and true positives b has b ≤ e^ε·a + δ, both ways.

    Parameters
    ----------
    pairs
        The (ε, δ); ε = 0 is allowed.

    Examples
    --------
    >>> region = Region.of(Guarantee(1.0, 1e-6))
    >>> round(region.advantage, 3), region.holds(0.1, 0.28), region.holds(0.1, 0.27)
    (0.462, False, True)
    """

    pairs: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, certified: Plan | Guarantee | tuple[float, float]) -> Region:
        """A guarantee's one pair, or all that a plan certifies at every ε: exactly, or at several Rényi orders.

        Proof pages: docs/proofs/exact.md; docs/proofs/halting.md, docs/proofs/conversion.md.
        """
        if isinstance(certified, Plan):
            return cls(tuple(_pairs(certified)))
        epsilon, delta = certified if isinstance(certified, tuple) else (certified.epsilon, certified.delta)
        return cls(((check_epsilon(epsilon), check_delta(delta)),))

    def of_group(self, size: int) -> Region:
        """The region of so many challenges: docs/proofs/composition.md."""
        return Region(tuple(group(epsilon, delta, size) for epsilon, delta in self.pairs if epsilon > 0))

    def of_composition(self, times: int, slack: float) -> Region:
        """The region of so many games one after the other, by the paper's theorem: docs/proofs/composition.md."""
        pairs = [compose(epsilon, delta, times, slack) for epsilon, delta in self.pairs if epsilon > 0]
        return Region(tuple((epsilon, min(1.0, delta)) for epsilon, delta in pairs))

    def power(self, false: float) -> float:
        """The most true positives that a test with this rate of false positives may have."""
        most = 1.0
        for epsilon, delta in self.pairs:
            grow = math.exp(min(epsilon, 700.0))
            most = min(most, grow * false + delta, 1 - (1 - false - delta) / grow)
        return max(most, false)

    def holds(self, false: float, true: float) -> bool:
        """Whether a test may have these rates."""
        return true <= self.power(false)

    @property
    def advantage(self) -> float:
        """The largest true minus false positives that the region allows."""
        return min(math.tanh(epsilon / 2) * (1 - delta) + delta for epsilon, delta in self.pairs)


def _pairs(plan: Plan) -> Iterable[tuple[float, float]]:
    said, price = plan.guarantee, plan.life_price() or plan.price()  # a game hides all that its unit tells
    yield said.epsilon if said.life is None else said.life, said.delta
    if price.mu2 is not None:
        yield from ((epsilon, delta) for epsilon in EPSILONS if (delta := price.delta(epsilon)) < 1)
        return
    if price.pure or price.part_of_delta:
        return  # the paper's counter
    best = dict.fromkeys(EPSILONS, 1.0)
    for order in sorted({*ORDERS, plan.renyi_order}):
        try:
            renyi = price.at(order)
        except ValueError:  # this order certifies nothing
            continue
        for epsilon in EPSILONS if math.isfinite(renyi) else ():
            delta = delta_from_renyi(renyi, order, epsilon) + float(price.bad)
            best[epsilon] = min(best[epsilon], delta * (1 + 1e-12))
    yield from ((epsilon, delta) for epsilon, delta in best.items() if delta < 1)
