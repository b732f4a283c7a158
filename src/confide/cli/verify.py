"""The command `confide verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confide.cli.places import MODEL, Ledger, Model
from confide.cli.terminal import say
from confide.planning.plan import Guarantee, Plan
from confide.pop.state import check


def verify(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN.json|STATE", help="A plan written by `confide plan --json`, or the folder of a saved POP."
        ),
    ],
    ledger: Ledger = None,
    model: Model = MODEL,
) -> None:
    """Re-certify a plan, or a saved state, from its integers alone, trusting no number that it states.

    Of a state what its parts answer by is computed again too, bit for bit, from what its ledger says was released.
    """
    if path.is_dir():
        found = check(path, ledger, model)
        say(_certified(found.plan, found.guarantee))
        for kind, again in found.parts.items():
            if found.plan.promise.protect == "labels":
                say("labels: the ledger has what came out for them, and nothing else of them")
                continue
            say(f"{kind}: {again.released:,} releases; computed again from the ledger it is "
                f"{'what is in use' if again.compared else 'compared with nothing'}, "
                f"digest {again.digest or 'none yet'}")  # fmt: skip
            if not again.compared:
                say(f"{kind}: the snapshot is older than the epoch that runs, and of earlier ones the ledger keeps no "
                    "more than that began with: save the state, and verify it again")  # fmt: skip
        return
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    read = Plan.from_json(text)
    say(_certified(read, read.verify()))


def _certified(plan: Plan, got: Guarantee) -> str:
    price, how = plan.price(), f"Rényi order {plan.order}"
    if price.only_pure:
        how = "exactly"
    elif price.mu2 is not None:
        how = f"exactly, δ = {price.delta(plan.guarantee.epsilon):.6g} at the ε claimed"
        if got.life is not None:
            how += f"; for all {got.periods:,} periods of one person ε = {got.life:.6g}"
    return (
        f"certified: the integers keep ε = {got.epsilon:.6g} at δ = {got.delta:.3g} "
        f"(claimed {plan.guarantee.epsilon:.6g}); {how}; {', '.join(part.certified(plan) for part in plan.parts)}"
    )
