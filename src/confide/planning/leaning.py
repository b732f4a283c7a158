"""Tables with a lean: `confide.planning.design.build` once more, with a lean for the gate, or beside it.

Claims and proofs: docs/proofs/lean.md, docs/proofs/halting.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide.planning.design import Budget, Built, Split, beside, build, certify, gate_for
from confide.planning.parts import Unreachable
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.weigh import Weights

SHARE = 0.3
"""Share of the cost of an unsure answer that the lean takes where there are many labels."""


def build_lean(budget: Budget, split: Split, labels: int = 2, make: Callable[..., Lean] = Lean.fill) -> Built:
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
    gate, halting, got, _ = build(budget, split)
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
) -> Built:
    order, share = split.order, budget.poll_fraction
    lean = make(order=order, cost=tau, poll_fraction=share, margins=budget.margins, tie_sure=gate.tie_sure)
    kept = beside(budget, split)
    gate = lean.envelope()
    how: dict[str, Any] = {"order": order, "delta": budget.delta, "poll_fraction": share, "beside": kept}
    got = certify(gate, halting, **how, lean=lean, relay=budget.relay)
    return Built(gate, halting, got, lean)


def _many(budget: Budget, split: Split, halting: Halting, tau: float, labels: int) -> Built:
    order, share = split.order, budget.poll_fraction
    gate = gate_for(budget, split, tau * (1 - SHARE), halting.visible)
    weights = Weights.beside(gate, order=order, cost=tau * SHARE, poll_fraction=share)
    kept = beside(budget, split)
    how: dict[str, Any] = {"order": order, "delta": budget.delta, "poll_fraction": share, "beside": kept}
    got = certify(gate, halting, **how, lean=weights, labels=labels, relay=budget.relay)
    return Built(gate, halting, got, weights)
