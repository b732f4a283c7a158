"""What a run was worth, in words: against the most frequent label, by each label, and by what was learned of what came.

Everything here is exact, for the operator's eyes only, and outside the guarantee.
"""

from __future__ import annotations

import math

from confide.learners import Features
from confide.runs.runner import Outcome
from confide.runs.tally import LATE, Tally, percent

FEWEST = 100
"""Late rounds below which nothing is said."""

CHANCE = 2.0
"""Standard errors by which fewer mistakes must be fewer to count as fewer."""

BALANCED = 0.02
"""How far a balanced error must be below that of a constant answer to count as lower."""

RARE = 0.2
"""The share of the rounds up to which a label is rare."""

SHOWN = 6
"""Labels whose recall the terminal shows."""


MISSING = 0.2
"""If this share of the rounds, or more, has no usable label, that is said first."""


def verdict(outcome: Outcome) -> str:
    """Whether labels were of no use, or answers no better than the most frequent label, and what to do about it.

    Where the learner always failed neither ε nor columns are to blame: `failed` says it.
    """
    if outcome.in_vain:
        return _unlabelled(outcome)
    return " ".join(said for said in (_unlabelled(outcome), _late(outcome) or _against_constant(outcome)) if said)


def _unlabelled(outcome: Outcome) -> str:
    tally = outcome.tally
    if tally.unlabelled < max(1.0, MISSING * tally.rounds):
        return ""
    known = ", ".join(repr(str(label)) for label in outcome.stream.labels[:SHOWN])
    return (
        f"Of {tally.rounds:,} rows {tally.unlabelled:,} have no label, or none of those that are declared ({known}"
        f"{', …' * (len(outcome.stream.labels) > SHOWN)}): they taught nothing and are in no error. See --labels."
    )


def _late(outcome: Outcome) -> str:
    """Whether most labels came too late. It is said first: answers may look good by chance all the same."""
    late, brought = outcome.pop.operator.late.labels, outcome.tally.brought
    if 2 * late <= brought:
        return ""
    return f"{late:,} of {brought:,} labels came too late to teach anything: shorten --delay."


def _against_constant(outcome: Outcome) -> str:
    tally = outcome.tally
    own, rounds = tally.late_counts(tally.curve_wrong)
    constant, known = tally.late_counts(tally.curve_frequent)
    if rounds < FEWEST or not known or not _no_better(own, constant):
        return ""
    label = str(outcome.stream.labels[tally.frequent])
    said = (
        f"{percent(own / rounds)} wrong after the first {LATE:.0%}, where always answering the most frequent label, "
        f"{label!r}, is {percent(constant / rounds)} wrong"
    )
    seen = sum(any(row) for row in tally.confusion)
    if seen > 1 and tally.balanced_error < 1 - 1 / seen - BALANCED:
        found = f"a balanced error of {percent(tally.balanced_error)} against {percent(1 - 1 / seen)}"
        more = "More often wrong than" if own - constant > CHANCE * math.sqrt(constant) else "About as often wrong as"
        less = "" if outcome.pop.label_weights is None else " Smaller --label-weights err less often."
        return f"{more} a constant answer, but it finds the rarer labels: {said}; {found}.{less}"
    return f"No better than a constant answer: {said}. {_ways_on(outcome, own, constant)}"


def state_of(outcome: Outcome) -> str:
    """Where the run stands (public)."""
    if outcome.interrupted:
        return "interrupted"
    if not outcome.out_of_budget:
        left = f": the planned rounds are over, and {outcome.unasked:,} rows were not asked" if outcome.unasked else ""
        return f"finished{left}"
    then = "the fallback" if outcome.pop.plan.guide is None else "the guide"
    return f"finished: the copies were out of budget, and {then} answered on"


def _no_better(wrong: int, constant: int) -> bool:
    return constant > 0 and wrong + CHANCE * math.sqrt(constant) >= constant


def _ways_on(outcome: Outcome, own: int, constant: int) -> str:
    tally, plan, features = outcome.tally, outcome.pop.plan, outcome.stream.features
    least = _rarest(tally)
    twin = tally.late_counts(tally.curve_twin)[0]
    drowned = outcome.settings.twin and not _no_better(twin, own)  # by the noise: the rows say enough
    nor = outcome.settings.twin and not drowned and _no_better(twin, constant)
    ways = []
    if least is not None and outcome.pop.label_weights is None and plan.promise.protect == "rows":
        label = outcome.stream.labels[least[1]]
        ways.append(f"make more of the rare {str(label)!r} (--label-weights {label}=10), see the balanced error")
    if nor and ways:
        return f"Nor is the twin without privacy, which is taught to be right most often: {ways[0]}."
    if nor:
        return "Nor is the twin without privacy, so a larger ε would hardly help: better columns might."
    if plan.guide is not None and isinstance(features, Features) and len(features.ranges) < len(features.numeric):
        ways.append("declare the ranges of numbers in a schema")
    alone = plan.promise.protect == "labels"
    if alone and plan.promise.unit_labels > 1:
        ways.append("take fewer labels of each person (--unit-labels), each with less noise")
    elif not alone and plan.promise.units == "people" and taught_of_brought(outcome):
        ways.append("learn more labels of each person (--unit-labels)")
    ways += ["bring more rows or a history", "take a larger --epsilon"]
    asked = "" if outcome.settings.twin else " Without --no-twin this says whether more ε or better columns would help."
    if drowned:
        asked = f" The twin without privacy is {percent(tally.late(tally.curve_twin))} wrong: the noise is what costs."
    return f"Useless at ε = {outcome.pop.guarantee.epsilon:.3g}: {', '.join(ways[:-1])}, or {ways[-1]}.{asked}"


def recalls(outcome: Outcome) -> str:
    """Of the rounds with each label, the share answered with it; of many labels those found least."""
    tally, labels = outcome.tally, outcome.stream.labels
    found = [(recall, i) for i, recall in enumerate(tally.recalls) if recall == recall]
    few = found if len(labels) <= SHOWN else sorted(found)[:SHOWN]
    more = "" if len(labels) <= SHOWN else "; these are the lowest, the report has all"
    return ", ".join(f"{labels[i]} {percent(recall)}" for recall, i in few) + more


def _rarest(tally: Tally) -> tuple[int, int] | None:
    """How often the rarest label came, and its number; None where it is not rare."""
    counts = [(sum(row), i) for i, row in enumerate(tally.confusion) if any(row)]
    return None if not counts or (least := min(counts))[0] > RARE * tally.known else least


def rare(outcome: Outcome) -> tuple[str, str] | None:
    """The recall of the rarest label that came, and what it is of; None where it is not rare."""
    tally = outcome.tally
    if (least := _rarest(tally)) is None:
        return None
    weights, alone = outcome.pop.label_weights, outcome.pop.plan.promise.protect == "labels"
    how = f"--label-weights {outcome.stream.labels[least[1]]}=10 makes more of it, and errs more elsewhere"
    weighed = how if weights is None else f"its weight is {weights[least[1]] / min(weights):g} times the least"
    name = f"{str(outcome.stream.labels[least[1]])!r}, the rarest label ({least[0]:,} of {tally.known:,})"
    return percent(tally.recalls[least[1]]), f"recall of {name}" + ("" if alone else f"; {weighed}")


def taught_of_brought(outcome: Outcome) -> str:
    """How many of the labels that came the guide learned from, where a cap kept it from some."""
    learned, guide, brought = outcome.pop.operator.guide_labels, outcome.pop.plan.guide, outcome.tally.brought
    if (own := outcome.pop.operator.randomizing) is not None:
        cap = f"of each person at most {outcome.pop.plan.promise.unit_labels:,}"
        return f"{own.learned:,} of {brought:,} labels were taken: {cap}" if own.over else ""
    if learned is None and (late := outcome.pop.operator.late.labels):
        return f"{late:,} of {brought:,} labels came too late to teach anything, by --delay"
    if learned is None or guide is None or learned >= brought:
        return ""
    most = f"of each person at most {guide.unit_labels:,}{_by_period(outcome.pop.plan.promise.periods)}"
    return f"the guide learned from {learned:,} of {brought:,} labels: {most}"


def _by_period(periods: int | None) -> str:
    return "" if periods is None else f" a period, in at most {periods:,} of them"


def failed(outcome: Outcome) -> str:
    """How often the learner failed."""
    said = outcome.pop.operator.failures.sentence
    return f"{said[0].upper()}{said[1:]}." if said else ""
