"""What to expect of a plan, and what would change it: sentences from the numbers that the plan has, and no others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from confide.planning.design import reach
from confide.privacy.exact import most_mu2
from confide.privacy.gate import Gate
from confide.privacy.renyi import renyi_from_epsilon

if TYPE_CHECKING:
    from confide.planning.guided import GuidePlan
    from confide.planning.plan import Plan

_ORDERS = range(2, 513)


def taught(plan: Plan) -> int:
    """Labels that may come in all: one a round, and the history before them. In a relay those of a leg."""
    return plan.relay if plan.relay else plan.horizon + (0 if plan.guide is None else plan.guide.history)


def who_answers(plan: Plan) -> list[str]:
    """Which share of the rounds each source will answer, as far as the plan decides it."""
    first, rest = min(plan.horizon, plan.waits), plan.rest
    if not plan.copies:
        if first == plan.horizon:
            return ["The fallback answers all rounds."]
        waits = f"The fallback answers the first {first:,} rounds; {rest} all others."
        return [waits if first else f"{rest[0].upper()}{rest[1:]} answers all rounds."]
    if plan.relay:
        gap = plan.silent - plan.live
        when = f"after {gap:,} more, which {rest} answers" if gap > 0 else "at once"
        return [
            f"While they are unsure in less than {plan.unsure / plan.live:.2%} of the rounds put to them, a half votes "
            f"for {plan.live:,} rounds, and the other goes on {when}; if they are unsure more often, {rest} answers "
            f"until the next half has learned for {plan.silent:,} rounds."
        ]
    said = []
    if plan.silent:
        early = min(plan.silent, first) / plan.rounds
        before = [("the fallback", early), (rest, plan.silent / plan.rounds - early)]
        silent = " and ".join(f"{name} answers {share:.1%}" for name, share in before if share)
        live = f"{plan.live / plan.rounds:.1%} are put to them"
        said.append(f"Of all rounds {silent} while the copies are silent; {live}.")
    then = rest if plan.lean is None else "the lean"
    said.append(
        f"While they are unsure in less than {plan.unsure / plan.live:.2%} of the rounds put to them, the copies last "
        f"to the end, and answer all but those, which {then} answers; if they are unsure more often, {rest} answers "
        "all that come after."
    )
    if plan.units == "people" or plan.unit_unsure > 1:
        times = "once" if plan.unit_unsure == 1 else f"{plan.unit_unsure:,} times"
        said.append(f"A person to whom they were unsure {times} is answered by {rest} from then on.")
    return said


def waiting(guide: GuidePlan) -> int:
    """Rounds before the guide has an answer; history comes before the first."""
    return max(0, guide.first - guide.history)


def begins(guide: GuidePlan) -> str:
    """From which round on the guide answers, and how: a plan knows no features, and so says when it finds ranges."""
    said = f"It answers from round {waiting(guide) + 1:,} on"
    finds = max(0, guide.range_rounds - guide.history)
    return said + (f", in the first {finds:,} without ranges of numbers that have none declared" if finds else "")


def more_for_guide(plan: Plan) -> list[str]:
    """What twice the rounds, and twice ε, would do for the guide: its labels for each deviation of the noise."""
    if plan.guide is None or (twice := strength_at_twice(plan.guide)) is None:
        return []
    quiet = plan.guide.strength * _quieter(plan)
    return [f"That would be {twice:,.0f} with twice the rounds, and {quiet:,.0f} with twice ε."]


def more_for_copies(plan: Plan) -> list[str]:
    """What they would do for the copies, where the budget is shared as it is."""
    if not plan.copies or plan.kind != "tight":
        return []
    lead, now = lead_at_twice_epsilon(plan), reach(plan.tables.gate, 0.5)
    return [
        f"With twice the rounds each of as many copies would be taught about {2 * taught(plan) / plan.copies:,.0f} "
        f"labels; with twice ε a lead of about {lead / plan.polls:.0%} of the poll would be heard as often as one of "
        f"{now / plan.polls:.0%} is now, every second time."
    ]


def strength_at_twice(guide: GuidePlan) -> float | None:
    """Labels for each deviation of the noise with twice the rounds; None where so many fit in no guide."""
    ranges = guide.range_rounds > 0
    try:
        rounds = 2 * (guide.length - guide.history)
        other = guide.at(float(guide.mu2), rounds, guide.labels, guide.unit_labels, guide.history, ranges, guide.apart)
    except ValueError:
        return None
    return other.strength


def _order(epsilon: float, delta: float) -> int:
    return max(_ORDERS, key=lambda order: renyi_from_epsilon(epsilon, order, delta) / order)


def _quieter(plan: Plan) -> float:
    """By how much twice ε lessens the guide's noise, its part of the budget staying what it is."""
    epsilon, delta = plan.guarantee.epsilon, plan.guarantee.delta
    if not plan.copies:
        return math.sqrt(most_mu2(2 * epsilon, delta) / most_mu2(epsilon, delta))
    now, then = _order(epsilon, delta), _order(2 * epsilon, delta)
    ratio = renyi_from_epsilon(2 * epsilon, then, delta) / then / (renyi_from_epsilon(epsilon, now, delta) / now)
    return float(ratio**0.5)


def lead_at_twice_epsilon(plan: Plan) -> float:
    """The lead, in votes, with which the copies would be heard half of the time, all else staying what it is."""
    epsilon, delta, gate = plan.guarantee.epsilon, plan.guarantee.delta, plan.tables.gate
    old = plan.renyi_order
    cost, order = gate.cost(order=old, poll_fraction=plan.poll_fraction), _order(2 * epsilon, delta)
    more = renyi_from_epsilon(2 * epsilon, order, delta) / renyi_from_epsilon(epsilon, old, delta)

    def lead(order: int, cost: float) -> float:
        made = Gate.best(
            order=order, cost=cost, poll_fraction=plan.poll_fraction, margins=plan.polls, tie_sure=gate.tie_sure
        )
        return reach(made, 0.5)

    # A lean's gate is its envelope, less often sure than the steepest of its cost: so the ratio is what counts.
    return reach(gate, 0.5) * lead(order, cost * more) / lead(old, cost)
