"""What to change after a run that ran out of budget: one sentence, and a command to try."""

from __future__ import annotations

import math

from confide.planning.plan import Plan
from confide.runs.runner import Outcome
from confide.runs.settings import EPSILON, Settings

__all__ = ["next_settings", "what_happened"]

LABELS_A_COPY = 30
"""Labels that a copy should see at least before its vote is worth much."""

MOST_UNSURE = 0.4
"""The share of live rounds up to which planning for more unsure answers is worth it."""

AGAIN = "A second run over the same people is a second promise to them: what both may reveal adds up."


def what_happened(outcome: Outcome) -> str:
    """Why the run ended, in one sentence. Operator only."""
    plan, tally = outcome.pop.plan, outcome.tally
    return (
        f"The privacy budget was used up after {tally.live:,} of {plan.live:,} live rounds: the copies disagreed in "
        f"{tally.unsure:,} of them, and the plan was made for {plan.unsure:,} in all."
    )


def next_settings(outcome: Outcome) -> Settings | None:
    """Settings with which the same stream should last: more unsure answers planned, at a larger ε if need be."""
    settings, plan, tally = outcome.settings, outcome.pop.plan, outcome.tally
    share = min(MOST_UNSURE, 1.5 * tally.unsure / max(1, tally.live))
    unsure = _round_up(max(2 * plan.unsure, math.ceil(share * plan.live)))
    epsilon = EPSILON if settings.epsilon is None else settings.epsilon
    if settings.plan is not None:
        epsilon = plan.guarantee.epsilon
    free = settings.but(plan=None, copies=None, polls=None, unsure=min(unsure, plan.live), rounds=plan.rounds)
    for factor in (1, 2, 4, 8, 16):
        asked = free.but(epsilon=float(f"{epsilon * factor:.3g}"), silent=plan.silent, unit_unsure=plan.unit_unsure)
        try:
            found: Plan = asked.tight(plan.labels, plan.rounds)
        except ValueError:
            continue
        if found.rounds / found.copies >= LABELS_A_COPY:
            return asked.but(
                epsilon=settings.epsilon if factor == 1 and settings.plan is None else asked.epsilon,
                silent=settings.silent,
                unit_unsure=settings.unit_unsure,
                rounds=settings.rounds,
            )
    return None


def _round_up(number: int) -> int:
    """A number with two digits that matter."""
    step = int(10 ** max(0, len(str(number)) - 2))
    return -(-number // step) * step
