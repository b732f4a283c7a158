"""A plan as a person reads it: what is promised, to whom, what it costs, and what to think twice about."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from confide.notebook import card
from confide.planning import outlook
from confide.planning.design import reach
from confide.planning.guided import GuidePlan
from confide.planning.mistakes import Certificate
from confide.planning.tight import labels_each
from confide.privacy.exact import MOST_MU
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.renyi import group

if TYPE_CHECKING:
    from confide.planning.plan import Plan

WEAK = 10.0
"""Beyond this ε a promise is hardly one."""

LOOSE = 1e-3
"""Beyond this δ too many are promised nothing."""

FAINT = 300.0
"""Labels for each deviation of the noise in their sum: with fewer, a guide of two labels may gain little. Measured, on
six streams without declared ranges: with 136 three have an error within a point of the more frequent label's, with 407
five are better by at least five points."""

MANY_POLLS = 10_000
"""Copies asked in a round beyond which rounds are slow and hardly anything is gained."""

MANY_COPIES = 1_000_000
"""Copies beyond which a round that asks all of them takes milliseconds."""


def describe(plan: Plan) -> str:
    """The whole plan, a row a number, then its warnings and its notes."""
    rows = _rows(plan)
    width = max(len(name) for name, _ in rows)
    lines = [f"Plan.{plan.kind}", *(f"  {name:<{width}}  {value}" for name, value in rows)]
    return "\n".join([*lines, *(f"  ! {line}" for line in plan.warnings), *(f"  · {note}" for note in plan.notes)])


def html(plan: Plan) -> str:
    """The same for a notebook."""
    return card(f"Plan.{plan.kind}", _rows(plan), alarms=plan.warnings, notes=plan.notes)


def _rows(plan: Plan) -> list[tuple[str, str]]:
    rows = [
        ("promise", str(plan.guarantee)),
        ("to whom", _whom(plan)),
        ("rounds", f"{plan.rounds:,}, the first {plan.silent:,} silent" if plan.silent else f"{plan.rounds:,}"),
        *(_copies(plan) if plan.copies else [("copies", "none: the guide answers alone, and nothing halts")]),
        *([] if plan.guide is None else [("guide", _guide(plan, plan.guide))]),
        ("labels", f"{plan.labels}"),
        ("accounted for", "exactly" if plan.order is None else f"at Rényi order {plan.order}"),
        ("mistakes", _mistakes(plan.certificate, plan.labels)),
    ]
    if _whom(plan) == "each round":
        rows.append(("ten rounds of one person", _ten(plan)))
    return rows


def _ten(plan: Plan) -> str:
    """What ten units together are promised: of a guide alone exactly, else by group privacy."""
    delta = plan.guarantee.delta
    if plan.guide is not None and plan.order is None and 100 * plan.guide.mu2 <= MOST_MU**2:
        return f"({plan.guide.epsilon(delta, people=10):.3g}, {delta:.2g}), exactly; see unit_labels"
    epsilon, delta = group(plan.guarantee.epsilon, delta, 10)
    return f"({epsilon:.3g}, {delta:.2g}) by group privacy; see unit_unsure"


def _copies(plan: Plan) -> list[tuple[str, str]]:
    gate, halting = plan.tables
    if isinstance(halting, Halting):
        stop = f"halts for certain by {halting.stop:,}"
    else:
        stop = f"halts at a noisy count of {halting.limit:,}"
    return [
        ("copies", f"{plan.copies:,}, each taught {labels_each(outlook.taught(plan), plan.copies)}"),
        ("polls", f"{plan.polls:,} copies asked in a round" + (" (all)" if plan.polls == plan.copies else "")),
        ("unsure answers", f"planned for {plan.unsure:,}; {stop}"),
        ("gate", _gate(gate, plan.polls)),
        ("when unsure", _lean(plan)),
    ]


def _lean(plan: Plan) -> str:
    if plan.lean is None:
        return "the guide answers" if plan.guide is not None else "the fallback answers"
    return f"drawn from the votes{' and the score of the guide' if plan.guide is not None else ''}"


def _whom(plan: Plan) -> str:
    caps = [f"{plan.unit_unsure} unsure answer{'s' * (plan.unit_unsure > 1)}"] if plan.copies else []
    if plan.guide is not None:
        caps.append(f"{plan.guide.unit_labels} label{'s' * (plan.guide.unit_labels > 1)} for the guide")
    people = f"each person, up to {' and '.join(caps)}"
    if plan.units is not None:
        return people if plan.units == "people" else "each round"
    return people if plan.unit_unsure > 1 or (plan.guide is not None and plan.guide.unit_labels > 1) else "each round"


def _guide(plan: Plan, guide: GuidePlan) -> str:
    first, ranges = guide.main.ends[0], f", and finds where numbers lie in {guide.range_rounds:,} rounds"
    often = f"one every {guide.leaf:,} rounds" + (f", and every {first:,} at first" if first < guide.leaf else "")
    return f"{guide.leaves:,} noisy sums, {often}{ranges if guide.range_rounds else ''}"


def explain(plan: Plan) -> str:
    """What to expect, in plain words, then what was chosen and why: one sentence a line."""
    lines = [f"{plan.guarantee} over {plan.rounds:,} rounds.", *expect(plan)]
    return "\n".join([*lines, *(f"! {line}" for line in plan.warnings), *(f"· {note}" for note in plan.notes)])


def expect(plan: Plan) -> list[str]:
    """Who answers what, how much is taught, and what twice the rounds or twice ε would change."""
    lines = []
    if plan.guide is not None:
        lines += [
            "The guide is a linear model that learns from noisy sums of what people teach. It is private itself, so "
            f"everyone may see it. {outlook.begins(plan.guide)}; before that the fallback does.",
            f"At the end its sums hold {plan.guide.strength:,.0f} labels for each deviation of their noise"
            f"{_if_taught(plan, plan.guide)}.",
            *outlook.more_for_guide(plan),
        ]
    if plan.copies:
        lines += [
            f"{plan.copies:,} copies of the learner vote from round {plan.silent + 1:,} on, each taught "
            f"{labels_each(outlook.taught(plan), plan.copies)}; {plan.unsure:,} of the votes may be unsure before they "
            "stop.",
            _when_unsure(plan),
            *outlook.more_for_copies(plan),
        ]
    return [*lines, *outlook.who_answers(plan)]


def _if_taught(plan: Plan, guide: GuidePlan) -> str:
    """Under which condition: of a person no more labels teach than the plan says."""
    if plan.units != "people":
        return ""
    if guide.unit_labels == 1:
        return ", if every round is another person's: of each person one label teaches, and no other"
    return f", if nobody brings more than {guide.unit_labels:,} labels: no more of one person teach"


def _when_unsure(plan: Plan) -> str:
    rest = "the fallback" if plan.guide is None else "the guide"
    if plan.lean is None:
        return f"Where they are unsure, and once they have stopped, {rest} answers."
    return (
        f"Where they are unsure the lean answers: its label is {_lean(plan)}, so that a lead too small to be sure of "
        f"still counts, within the same budget. Once they have stopped {rest} answers."
    )


def warnings(plan: Plan) -> tuple[str, ...]:
    """What to think twice about, each in a sentence with what to do; read from the plan's numbers alone."""
    found = []
    if plan.copies > plan.rounds:
        found.append(
            f"copies={plan.copies:,} over rounds={plan.rounds:,}: most copies learn nothing in this run, so nearly "
            "every answer will be unsure unless history is taught first; plan with fewer copies or more rounds"
        )
    if plan.polls > MANY_POLLS and plan.kind == "tight":
        found.append(
            f"polls={plan.polls:,}: every round asks so many copies, and takes as long; 129 to 1,000 are usual"
        )
    if plan.kind == "paper" and plan.polls > MANY_COPIES:
        found.append(
            f"polls={plan.polls:,}: every round asks so many copies; it runs where their votes are tallied, with "
            "bank=confide.banks.TallyBank(...), else take Plan.certified"
        )
    if plan.certificate is not None and plan.certificate.mistakes >= plan.rounds:
        found.append("the mistake bound is not below the number of rounds: it says nothing; plan more rounds")
    if plan.guide is not None and plan.guide.strength < faint(plan.labels):
        enough = float(f"{plan.rounds * faint(plan.labels) / plan.guide.strength:.2g}")
        found.append(
            f"rounds={plan.rounds:,} at epsilon={plan.guarantee.epsilon:.3g} are few for the noise: the guide may do "
            "little better than the most frequent label; declare kinds and ranges of the columns, take fewer of them, "
            f"or plan with about {enough:,.0f} rounds"
        )
    if plan.guarantee.delta > LOOSE:
        safe = 10.0 ** -math.ceil(math.log10(10 * plan.rounds))
        found.append(
            f"delta={plan.guarantee.delta:.2g}: nothing is promised with that probability, so that of {plan.rounds:,} "
            f"rounds about {plan.guarantee.delta * plan.rounds:,.0f} may be told; take {safe:.0e} or less"
        )
    if plan.guarantee.epsilon > WEAK:
        found.append(f"epsilon={plan.guarantee.epsilon:.4g} is hardly a promise; 1 is strong, 8 already weak")
    return tuple(found)


def faint(labels: int) -> float:
    """`FAINT` for so many labels: the more there are, the less the most frequent one says.

    Measured: with 47 the guide tells the ten digits of LED apart in 40 % of the rounds, one label in 11 %.
    """
    return FAINT if labels == 2 else FAINT / 10


def _gate(gate: Gate, polls: int) -> str:
    half, rare = reach(gate, 0.5), reach(gate, 1e-3)
    rare_text = f"{rare / polls:.0%}" if rare <= polls else "more than all"
    half_text = f"{half / polls:.0%}" if half <= polls else "more than all"
    return f"unsure half of the time at a lead of {half_text} of the poll, one in 1000 at {rare_text}"


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
