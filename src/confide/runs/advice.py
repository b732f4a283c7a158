"""What to change after a run that ran out of budget: one sentence, and a command to try. Operator only."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import numpy as np

from confide.planning.plan import Plan
from confide.runs.runner import Outcome
from confide.runs.settings import EPSILON, Settings

LABELS_A_COPY = 15
"""Labels that a copy should see at least before its vote is worth anything."""

SHARES = (0.03, 0.1, 0.3)
"""Shares of the live rounds to plan as unsure."""

COPIES = (1, 2, 2)
"""Factors for the number of copies, one after the other. More copies make the gate narrower."""

FACTORS = (1, 2, 4, 8)
"""Factors for the ε that was asked for. The smallest ε that should last is advised."""

USUAL_SILENCE = 0.2
"""A silence that was asked for, without a history, and is a smaller share of the rounds is the likely cause."""

RARELY = 1e-6
"""The probability of halting by chance that is advised where it happened."""

SPARE, SPREAD = 1.2, 5.0
"""Room for other margins than the ones that were seen, and for luck."""

AGAIN = (
    "A second run over the same people is a second promise to them, and what both may reveal adds up; "
    "that its settings were chosen by their votes is outside of both."
)

NOTHING = (
    f"By the votes that were seen, no plan lasts on this stream at up to {FACTORS[-1]} times this ε: "
    "try another --learner, or more rounds."
)


def what_happened(outcome: Outcome) -> str:
    """Why the run ended, in one sentence."""
    plan, tally = outcome.pop.plan, outcome.tally
    if tally.unsure < plan.unsure:
        return (
            f"The run halted by chance after {tally.live:,} of {plan.live:,} live rounds, with fewer unsure answers "
            f"than planned: this plan does so with probability {plan.beta:g}."
        )
    return (
        f"The privacy budget was used up after {tally.live:,} of {plan.live:,} live rounds: the copies disagreed too "
        f"much to answer {tally.unsure:,} of them, and {plan.unsure:,} such rounds were planned in all."
    )


def next_settings(outcome: Outcome) -> Settings | None:
    """Settings with which the same stream should last, by the margins that were seen; None where none should."""
    plan, settings = outcome.pop.plan, outcome.settings
    if outcome.tally.unsure < plan.unsure:
        return settings.but(plan=None, beta=RARELY)
    chosen = settings.but(plan=None, guide=True, copies=None, polls=None, unsure=None, silent=None)
    if plan.guide is not None and chosen != settings:
        return chosen  # the planner shares the budget out by itself, and gives the guide all where copies cannot pay
    if settings.silent is not None and plan.silent < USUAL_SILENCE * plan.rounds and settings.history is None:
        return settings.but(
            plan=None, silent=None, copies=None, polls=None, unsure=None
        )  # copies that know nothing disagree
    epsilon = plan.guarantee.epsilon if settings.plan is not None else settings.epsilon or EPSILON
    margins = tuple(sorted(outcome.tally.margins.items()))
    found = _search(settings, epsilon, plan.rounds, plan.silent, plan.labels, plan.polls, margins)
    return chosen if found is None and not settings.guide else found


@lru_cache(maxsize=1)  # the terminal, the page and the JSON ask for the same one
def _search(
    settings: Settings,
    epsilon: float,
    rounds: int,
    silent: int,
    labels: int,
    polls: int,
    margins: tuple[tuple[int, int], ...],
) -> Settings | None:
    free = settings.but(plan=None, copies=None, polls=None)
    for factor, share in product(FACTORS, SHARES):
        asked = free.but(
            unsure=_round(share * (rounds - silent)),
            epsilon=float(f"{epsilon * factor:.3g}") if factor > 1 else settings.epsilon,
        )
        try:
            plan = asked.but(rounds=rounds, silent=silent).tight(labels, rounds)
            for more in COPIES:
                if more > 1:
                    asked = asked.but(copies=_round(more * plan.copies))
                    plan = asked.but(rounds=rounds, silent=silent).tight(labels, rounds)
                if plan.copies == 0 or rounds < LABELS_A_COPY * plan.copies:
                    break
                expected = _expected(plan, polls, margins)
                if SPARE * expected + SPREAD * math.sqrt(expected) <= plan.unsure:
                    return asked
        except ValueError:
            continue
    return None


def _expected(plan: Plan, polls: int, margins: tuple[tuple[int, int], ...]) -> float:
    """Unsure answers to expect of this plan, if its copies agree as those that were seen."""
    seen = np.array(margins, dtype=np.float64).reshape(-1, 2)
    lead = np.minimum(seen[:, 0] * plan.polls / polls, plan.tables.gate.table.size - 1).astype(np.int64)
    return float(plan.live * (plan.tables.gate.table[lead] @ seen[:, 1]) / max(1.0, seen[:, 1].sum()))


def _round(number: float) -> int:
    """A number with two digits that matter."""
    return max(1, round(float(f"{number:.2g}")))
