"""How a POP looks to who prints it: what is public, in words."""

from __future__ import annotations

from confide.notebook import card
from confide.planning.plan import Guarantee, Plan

__all__ = ["card_of", "standing"]


def standing(state: str, halt_reason: str | None, goes_on: bool, guided: bool) -> str:
    """Where a run stands, in words.

    Examples
    --------
    >>> standing("live", None, True, True), standing("halted", "rounds", True, True)
    ('live', 'rounds used up: answers on, learns no more')
    """
    if halt_reason == "rounds":
        return "rounds used up" + (": answers on, learns no more" if goes_on else ": answers no more")
    if halt_reason is not None:
        after = ("the guide" if guided else "the fallback") + " answers on" if goes_on else "answers no more"
        return f"halted, the budget is used up: {after}"
    return state


def card_of(plan: Plan, guarantee: Guarantee, units: str, rounds: int, stands: str) -> str:
    """The same for a notebook."""
    alarms = () if guarantee.secure else ("Insecure: seeded, so nothing is promised.",)
    rows = [
        ("promise", str(guarantee)),
        ("to each", "person" if units == "people" else "round"),
        ("rounds", f"{rounds:,}; planned for {plan.rounds:,}"),
        ("state", stands),
        ("copies", f"{plan.copies:,}" if plan.copies else "none: the guide answers alone"),
    ]
    return card("POP", rows, alarms=alarms)
