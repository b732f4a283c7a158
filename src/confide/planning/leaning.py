"""What a lean and a halting gate cost together: read from the finished integers, as `confide.planning.design` does.

Claims and proofs: docs/proofs/lean.md, docs/proofs/halting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from confide.planning.design import MOST_JOINT, Budget, Certified, Split, TooRare, Unreachable, build, renyi_budget
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean, joint_lean
from confide.privacy.renyi import epsilon_from_renyi, sum_up
from confide.privacy.weigh import MOST_LABELS, Weights, joint_weights

__all__ = ["build_lean", "certify_lean", "certify_weights"]


def build_lean(budget: Budget, split: Split, make: Callable[..., Lean] = Lean.fill) -> tuple[Lean, Halting, Certified]:
    """Finished tables, two labels, whose certified ε is at most the budget's: `build`'s, with a lean for the gate.

    An unsure answer costs as much as with the gate alone, and so the halting gate is the same.

    Parameters
    ----------
    budget, split
        As for `confide.planning.design.build`.
    make
        `Lean.fill` or `Lean.additive`, perhaps with offsets, clip and share filled in.
    """
    gate, halting, got = build(budget, split)
    tau, beside = got.gate_cost, budget.guide / (1 - budget.guide) * renyi_budget(budget, split)
    for _ in range(8):
        lean = make(
            order=split.order,
            cost=tau,
            poll_fraction=budget.poll_fraction,
            margins=budget.margins,
            tie_sure=gate.tie_sure,
        )
        led = certify_lean(
            lean, halting, order=split.order, delta=budget.delta, poll_fraction=budget.poll_fraction, beside=beside
        )
        if led.epsilon <= budget.epsilon:
            return lean, halting, led
        tau *= min(1.0, got.renyi / led.renyi) * (1 - 1e-5)
    raise Unreachable(f"no lean was found for epsilon={budget.epsilon:g} at delta={budget.delta:g}")


def certify_lean(
    lean: Lean, halting: Halting, *, order: int, delta: float, poll_fraction: Fraction, beside: float = 0.0
) -> Certified:
    """The (ε, δ) of these very tables at this total δ, two labels; `gate_cost` is that of gate and lean together.

    Parameters
    ----------
    lean, halting
        The finished tables.
    order, delta, poll_fraction, beside
        As for `confide.planning.design.certify`.
    """
    tau = lean.cost(order=order, poll_fraction=poll_fraction)
    joint = math.inf
    if halting.shift <= MOST_JOINT:
        joint = joint_lean(lean, halting, order=order, poll_fraction=poll_fraction)
    return _certified(tau, joint, lean.tie_sure, halting, order, delta, beside)


def certify_weights(
    lean: Weights,
    gate: Gate,
    halting: Halting,
    *,
    order: int,
    delta: float,
    poll_fraction: Fraction,
    labels: int = MOST_LABELS,
    beside: float = 0.0,
) -> Certified:
    """The same for many labels: a gate, and beside it a lean by weights."""
    tau = gate.cost(order=order, poll_fraction=poll_fraction)
    extra = lean.cost(gate, order=order, poll_fraction=poll_fraction, labels=labels)
    joint = math.inf
    if halting.shift <= MOST_JOINT:
        joint = joint_weights(lean, gate, halting, order=order, poll_fraction=poll_fraction, labels=labels)
    return _certified(math.nextafter(tau + extra, math.inf), joint, gate.tie_sure, halting, order, delta, beside)


def _certified(
    tau: float, joint: float, tie_sure: float, halting: Halting, order: int, delta: float, beside: float
) -> Certified:
    halt = halting.cost(order=order)
    summed = math.nextafter((halting.visible * tau + halt) * (1 + 1e-15), math.inf)
    renyi = min(joint, summed)
    ties = math.nextafter(halting.visible * tie_sure * (1 + 1e-15), math.inf)
    # Exact subtraction, then one rounding down: the three may nearly cancel.
    rest = math.nextafter(float(Fraction(delta) - Fraction(ties) - Fraction(halting.survive)), -math.inf)
    if not rest > 0:
        raise TooRare(
            f"the tables' bad events alone have probability {ties + halting.survive:.3g}, which is not below "
            f"delta={delta:g}"
        )
    epsilon = epsilon_from_renyi(sum_up(renyi, beside), order, rest)
    return Certified(epsilon, delta, order, renyi, tau, halt, rest, ties, halting.survive)
