"""Tables with a lean: `confide.planning.design.build` once more, with a lean for the gate, or beside it.

Claims and proofs: docs/proofs/lean.md, docs/proofs/halting.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from confide.planning.design import Budget, Built, Split, beside, build, certify, gate_for
from confide.planning.parts import Unreachable
from confide.privacy.lean import Lean
from confide.privacy.weigh import Weights

SHARE = 0.3
"""Share of the cost of an unsure answer that the lean takes where there are many labels."""


def built(budget: Budget, split: Split, kind: str | None, labels: int, **design: Any) -> Built:
    """Finished tables with a lean of this kind, "fill" or "additive", and this design; without one for None."""
    if kind is None:
        return build(budget, split)
    return build_lean(budget, split, labels, partial(Lean.fill if kind == "fill" else Lean.additive, **design))


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
    tau, order, share, kept = got.spent.gate_cost, split.order, budget.poll_fraction, beside(budget, split)
    how: dict[str, Any] = {"order": order, "poll_fraction": share}
    lean: Lean | Weights
    for _ in range(8):
        if labels == 2:
            lean = make(**how, cost=tau, margins=budget.margins, tie_sure=gate.tie_sure)
            led = lean.envelope()
        else:
            led = gate_for(budget, split, tau * (1 - SHARE), halting.visible)
            lean = Weights.beside(led, **how, cost=tau * SHARE)
        cost = certify(
            led, halting, **how, delta=budget.delta, beside=kept, lean=lean, labels=labels, relay=budget.relay
        )
        if cost.epsilon <= budget.epsilon:
            return Built(led, halting, cost, lean)
        tau *= min(1.0, got.spent.renyi / cost.spent.renyi) * (1 - 1e-5)
    raise Unreachable(f"no lean was found for epsilon={budget.epsilon:g} at delta={budget.delta:g}")
