"""What is certified, as a region of the trade-off plane: no test of the mechanism may lie outside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confide.planning.design import Certified, certify
from confide.planning.leaning import certify_lean, certify_weights
from confide.planning.plan import Guarantee, Plan
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.renyi import check_delta, check_epsilon, compose, delta_from_renyi, group, sum_up
from confide.privacy.weigh import Weights

__all__ = ["Region"]

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
    yield plan.guarantee.epsilon, plan.guarantee.delta
    gate, halting, guide = plan.gate, plan.halting, plan.guide
    best = dict.fromkeys(EPSILONS, 1.0)
    if gate is None and guide is not None:
        yield from ((epsilon, delta) for epsilon in EPSILONS if (delta := guide.delta(epsilon)) < 1)
    if gate is None or not isinstance(halting, Halting):
        return
    for order in sorted({*ORDERS, plan.renyi_order}):
        try:
            beside = 0.0 if guide is None else guide.certify(order)
            share = plan.poll_fraction
            how: dict[str, Any] = {"order": order, "delta": 0.5, "poll_fraction": share, "beside": beside}
            got = _certified(plan.lean, gate, halting, plan.labels, how)
        except ValueError:  # this order certifies nothing
            continue
        if not math.isfinite(got.renyi):
            continue
        for epsilon in EPSILONS:
            delta = delta_from_renyi(sum_up(got.renyi, beside), order, epsilon) + got.tie_delta + got.survive_delta
            best[epsilon] = min(best[epsilon], delta * (1 + 1e-12))
    yield from ((epsilon, delta) for epsilon, delta in best.items() if delta < 1)


def _certified(
    lean: Lean | Weights | None, gate: Gate, halting: Halting, labels: int, how: dict[str, Any]
) -> Certified:
    if lean is None:
        return certify(gate, halting, **how)
    if isinstance(lean, Lean):
        return certify_lean(lean, halting, **how)
    return certify_weights(lean, gate, halting, labels=labels, **how)
