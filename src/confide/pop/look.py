"""How a POP looks to who prints it: what is public, in words."""

from __future__ import annotations

from confide.notebook import card
from confide.planning.plan import Guarantee, Plan
from confide.pop.legs import Legs

__all__ = ["card_of", "learns", "quiet", "standing"]


def quiet(plan: Plan, legs: Legs | None) -> int:
    """The last silent round so far."""
    return plan.silent if legs is None else legs.start


def learns(plan: Plan, rounds: int, halt_reason: str | None) -> bool:
    """Whether labels still teach anything: not past the planned rounds, and without public parts not after a halt."""
    return rounds <= plan.horizon and (halt_reason is None or (halt_reason == "budget" and bool(plan.public)))


def standing(plan: Plan, rounds: int, halt_reason: str | None, goes_on: bool, legs: Legs | None = None) -> str:
    """Where a run stands, in words: from what is public alone.

    Examples
    --------
    >>> plan = Plan.tight(1.0, 1e-6, 9000)
    >>> standing(plan, 20, None, True), standing(plan, 9001, "rounds", True)
    ('live', 'the planned rounds are over: the guide answers on as it is, and learns no more')
    """
    if halt_reason is None:
        said = "silent" if rounds < quiet(plan, legs) else "live"
        return said if legs is None else f"{said} in leg {legs.number + 1:,}, which began with round {legs.began + 1:,}"
    ended = "the planned rounds are over" if halt_reason == "rounds" else "the copies have halted, their budget used up"
    if not goes_on:
        return f"{ended}: nothing is answered any more"
    if not plan.public:
        return f"{ended}: the fallback answers, and nothing is learned any more"
    frozen = "" if learns(plan, rounds, halt_reason) else " as it is, and learns no more"
    return f"{ended}: {plan.rest} answers on{frozen}"


def card_of(plan: Plan, guarantee: Guarantee, units: str, rounds: int, stands: str) -> str:
    """The same for a notebook."""
    alarms = () if guarantee.secure else ("Insecure: seeded, so nothing is promised.",)
    rows = [
        ("promise", str(guarantee)),
        ("to each", "person" if units == "people" else "round"),
        ("rounds", f"{rounds:,}; planned for {plan.length}"),
        ("state", stands),
        ("copies", f"{plan.copies:,}" if plan.copies else f"none: {plan.rest} answers alone"),
    ]
    return card("POP", rows, alarms=alarms)
