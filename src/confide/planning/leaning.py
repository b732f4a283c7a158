"""What a lean and a halting gate cost together: read from the finished integers, as `confide.planning.design` does.

Claims and proofs: docs/proofs/lean.md, docs/proofs/halting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from confide.planning.design import (
    MOST_JOINT,
    Budget,
    Certified,
    Spending,
    Split,
    beside,
    build,
    converted,
    gate_for,
    spending,
)
from confide.planning.parts import Unreachable
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean, joint_lean
from confide.privacy.weigh import MOST_LABELS, Weights, joint_weights

__all__ = ["Led", "build_lean", "certify_lean", "certify_weights", "spends_lean", "spends_weights"]


SHARE = 0.3
"""Share of the cost of an unsure answer that the lean takes where there are many labels."""


class Led(NamedTuple):
    """Finished tables with a lean."""

    gate: Gate
    """For two labels the envelope: the largest P(unsure) over all offsets."""
    halting: Halting
    got: Certified
    lean: Lean | Weights


def build_lean(budget: Budget, split: Split, labels: int = 2, make: Callable[..., Lean] = Lean.fill) -> Led:
    """Finished tables whose certified ε is at most the budget's: `build`'s, with a lean for the gate, or beside it.

    An unsure answer costs as much as with the gate alone, and so the halting gate is the same.

    Parameters
    ----------
    budget, split
        As for `confide.planning.design.build`.
    labels
        How many labels; more than two have weights beside a gate.
    make
        For two labels: `Lean.fill` or `Lean.additive`, perhaps with offsets, clip and share filled in.
    """
    gate, halting, got = build(budget, split)
    tau = got.gate_cost
    for _ in range(8):
        if labels == 2:
            led = _two(budget, split, gate, halting, tau, make)
        else:
            led = _many(budget, split, halting, tau, labels)
        if led.got.epsilon <= budget.epsilon:
            return led
        tau *= min(1.0, got.renyi / led.got.renyi) * (1 - 1e-5)
    raise Unreachable(f"no lean was found for epsilon={budget.epsilon:g} at delta={budget.delta:g}")


def _two(
    budget: Budget, split: Split, gate: Gate, halting: Halting, tau: float, make: Callable[..., Lean]
) -> Led:
    order, share = split.order, budget.poll_fraction
    lean = make(order=order, cost=tau, poll_fraction=share, margins=budget.margins, tie_sure=gate.tie_sure)
    kept = beside(budget, split)
    got = certify_lean(lean, halting, order=order, delta=budget.delta, poll_fraction=share, beside=kept)
    return Led(lean.envelope(), halting, got, lean)


def _many(budget: Budget, split: Split, halting: Halting, tau: float, labels: int) -> Led:
    order, share = split.order, budget.poll_fraction
    gate = gate_for(budget, split, tau * (1 - SHARE), halting.visible)
    weights = Weights.beside(gate, order=order, cost=tau * SHARE, poll_fraction=share)
    kept = beside(budget, split)
    got = certify_weights(
        weights, gate, halting, order=order, delta=budget.delta, poll_fraction=share, labels=labels, beside=kept
    )
    return Led(gate, halting, got, weights)


def spends_lean(lean: Lean, halting: Halting, *, order: int, poll_fraction: Fraction) -> Spending:
    """What these very tables cost, two labels; `gate_cost` is that of gate and lean together."""
    tau, joint = lean.cost(order=order, poll_fraction=poll_fraction), math.inf
    if halting.shift <= MOST_JOINT:
        joint = joint_lean(lean, halting, order=order, poll_fraction=poll_fraction)
    return spending(tau, joint, lean.tie_sure, halting, order)


def spends_weights(
    lean: Weights, gate: Gate, halting: Halting, *, order: int, poll_fraction: Fraction, labels: int = MOST_LABELS
) -> Spending:
    """The same for many labels: a gate, and beside it a lean by weights."""
    tau = gate.cost(order=order, poll_fraction=poll_fraction)
    extra = lean.cost(gate, order=order, poll_fraction=poll_fraction, labels=labels)
    joint = math.inf
    if halting.shift <= MOST_JOINT:
        joint = joint_weights(lean, gate, halting, order=order, poll_fraction=poll_fraction, labels=labels)
    return spending(math.nextafter(tau + extra, math.inf), joint, gate.tie_sure, halting, order)


def certify_lean(
    lean: Lean, halting: Halting, *, order: int, delta: float, poll_fraction: Fraction, beside: float = 0.0
) -> Certified:
    """The (ε, δ) of these very tables at this total δ, as `confide.planning.design.certify` has it."""
    return converted(spends_lean(lean, halting, order=order, poll_fraction=poll_fraction), order, delta, beside)


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
    """The same for many labels."""
    spent = spends_weights(lean, gate, halting, order=order, poll_fraction=poll_fraction, labels=labels)
    return converted(spent, order, delta, beside)
