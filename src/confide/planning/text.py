"""A plan as a person reads it: what is promised, to whom, what it costs, and what to think twice about."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from confide.notebook import card
from confide.planning import outlook
from confide.planning.mistakes import Certificate
from confide.privacy.exact import MOST_MU
from confide.privacy.renyi import group

if TYPE_CHECKING:
    from confide.planning.plan import Plan

WEAK = 10.0
"""Beyond this ε a promise is hardly one."""

MANY = 1_000_000
"""Rounds of a plan without an end that are spoken of."""

LOOSE = 1e-3
"""Beyond this δ too many are promised nothing."""


def describe(plan: Plan) -> str:
    """The whole plan, a row a number, then its warnings and its notes."""
    rows = _rows(plan)
    width = max(len(name) for name, _ in rows)
    lines = [_name(plan), *(f"  {name:<{width}}  {value}" for name, value in rows)]
    return "\n".join([*lines, *(f"  ! {line}" for line in plan.warnings), *(f"  · {note}" for note in plan.notes)])


def html(plan: Plan) -> str:
    """The same for a notebook."""
    return card(_name(plan), _rows(plan), alarms=plan.warnings, notes=plan.notes)


def _name(plan: Plan) -> str:
    return "Plan" if plan.kind == "parts" else f"Plan.{plan.kind}"


def _rows(plan: Plan) -> list[tuple[str, str]]:
    rows = [
        ("promise", str(plan.guarantee)),
        ("to whom", _whom(plan)),
        *_periods(plan),
        ("rounds", f"{_rounds(plan)}, the first {plan.silent:,} silent" if plan.silent else _rounds(plan)),
        *(row for part in plan.parts for row in part.rows(plan)),
        ("labels", f"{plan.labels}"),
        ("accounted for", "exactly" if plan.order is None else f"at Rényi order {plan.order}"),
        ("mistakes", _mistakes(plan.certificate, plan.labels)),
    ]
    if _whom(plan) == "each round":
        rows.append(("ten rounds of one person", _ten(plan)))
    return rows


def _periods(plan: Plan) -> list[tuple[str, str]]:
    said = plan.guarantee
    if said.life is None:
        return []
    many = f"{said.per:,} rounds each; a person teaches in {said.periods:,} of them, and then no more"
    return [("periods", many), ("all periods of one person", f"({said.life:.4g}, {said.delta:.3g}), exactly")]


def _rounds(plan: Plan) -> str:
    return "as many as there will be" if plan.endless else f"{plan.rounds:,}"


def _ten(plan: Plan) -> str:
    """What ten units together are promised: of Gaussian parts exactly, else by group privacy."""
    delta, price = plan.guarantee.delta, plan.price()
    if price.mu2 is not None and 100 * price.mu2 <= MOST_MU**2:
        return f"({price.epsilon(delta, people=10):.3g}, {delta:.2g}), exactly; see unit_labels"
    if price.only_pure:
        return f"{10 * plan.guarantee.epsilon:.3g} by group privacy; see unit_labels"
    epsilon, delta = group(plan.guarantee.epsilon, delta, 10)
    return f"({epsilon:.3g}, {delta:.2g}) by group privacy; see unit_unsure"


def _whom(plan: Plan) -> str:
    caps = [part.cap for part in plan.parts if part.cap is not None]
    each = "" if plan.promise.per is None else " a period"
    people = f"each person, up to {' and '.join(cap.short for cap in caps)}{each}" if caps else "each person"
    if plan.units is not None:
        return people if plan.units == "people" else "each round"
    return people if any(cap.most > 1 for cap in caps) else "each round"


def explain(plan: Plan) -> str:
    """What to expect, in plain words, then what was chosen and why: one sentence a line."""
    lines = [f"{plan.guarantee.brief} over {_rounds(plan)}{'' if plan.endless else ' rounds'}.", *expect(plan)]
    if plan.promise.protect == "labels":
        lines.insert(1, f"{plan.guarantee.protected[0].upper()}{plan.guarantee.protected[1:]}.")
    return "\n".join([*lines, *(f"! {line}" for line in plan.warnings), *(f"· {note}" for note in plan.notes)])


def expect(plan: Plan) -> list[str]:
    """Who answers what, how much is taught, and what twice the rounds or twice ε would change."""
    public_first = reversed(plan.parts)
    return [*(line for part in public_first for line in part.sentences(plan)), *outlook.who_answers(plan)]


def warnings(plan: Plan) -> tuple[str, ...]:
    """What to think twice about, each in a sentence with what to do; read from the plan's numbers alone."""
    found = [line for part in plan.parts for line in part.warnings(plan)]
    if plan.certificate is not None and plan.certificate.mistakes >= plan.horizon:
        found.append("the mistake bound is not below the number of rounds: it says nothing; plan more rounds")
    if plan.guarantee.delta > LOOSE:
        rounds = MANY if plan.endless else plan.rounds
        safe = 10.0 ** -math.ceil(math.log10(10 * rounds))
        found.append(
            f"delta={plan.guarantee.delta:.2g}: nothing is promised with that probability, so that of {rounds:,} "
            f"rounds about {plan.guarantee.delta * rounds:,.0f} may be told; take {safe:.0e} or less"
        )
    if plan.guarantee.life is not None and plan.guarantee.life > WEAK >= plan.guarantee.epsilon:
        found.append(
            f"periods={plan.guarantee.periods}: all of them together are epsilon={plan.guarantee.life:.4g} for who "
            "teaches in each, which is hardly a promise; take fewer periods, longer ones, or a smaller epsilon"
        )
    if plan.guarantee.epsilon > WEAK:
        found.append(f"epsilon={plan.guarantee.epsilon:.4g} is hardly a promise; 1 is strong, 8 already weak")
    return tuple(found)


def _mistakes(stated: Certificate | None, labels: int) -> str:
    if stated is None:
        return "no mistake certificate"
    if stated.covers("constant", labels):
        fallback = "any fallback"
    elif stated.covers("coin", labels):
        fallback = "a coin as fallback, and with no constant or model"
    else:
        fallback = f"a fallback that errs with probability at most {stated.fallback_error:.3g}"
    most = f"{stated.mistakes:,} with probability {1 - stated.beta:g}"
    return f"at most {stated.expected_mistakes:,.0f} expected, {most}; with {fallback}"
