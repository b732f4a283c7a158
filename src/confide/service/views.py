"""A model as everyone may see it, and as its operator alone may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from confide.pop.base import SOURCES
from confide.pop.guiding import PublicGuide
from confide.pop.pop import POP
from confide.service.asked import Stored
from confide.service.counts import Counts

__all__ = ["person", "private", "public"]

MANY = 100
"""Labels from which on it is said that most of them taught nothing."""


def public(name: str, pop: POP, life: int, hours: int, quota: int | None, room: int) -> dict[str, Any]:
    """Nothing here depends on what anybody said, but for what the plan charges: the halt, the monitor, the guide."""
    guarantee, monitor = pop.guarantee, pop.monitor
    return {
        "name": name,
        "guarantee": {
            **asdict(guarantee),
            "text": str(guarantee),
            "sentence": guarantee.sentence,
        },
        "protect": pop.plan.promise.protect,
        "protected": guarantee.protected,
        "plan": str(pop.plan),
        "labels": list(pop.labels),
        "columns": [str(name) for name in pop.names],
        "units": pop.units,
        "state": pop.state,
        "halt_reason": pop.halt_reason,
        "standing": pop.standing,
        "rounds": pop.rounds,
        "planned_rounds": None if pop.plan.endless else pop.plan.rounds,
        "ticket_life": life,
        "ticket_hours": hours,
        "quota": quota,
        "room": room,
        "monitor": None if monitor is None else monitor.numbers(pop.units),
        "guide": None if pop.guide is None else _guide(pop.guide, pop.rounds),
        "deadline": getattr(guarantee, "deadline", None),
    }


def _guide(guide: PublicGuide, rounds: int) -> dict[str, Any]:
    return {"released": guide.released, "epochs": guide.epochs(rounds), "importance": guide.importance()}


def private(pop: POP, counts: Counts, waiting: int, alarms: Sequence[str]) -> dict[str, Any]:
    """Exact numbers, outside the guarantee: never to be shown to others."""
    account, plan = pop.operator.loop.account, pop.plan
    unsure, book, failures = account.count, account.book, pop.operator.failures
    totals, series, own = counts.totals(), counts.series(), pop.operator.randomizing
    wrong: float | None = totals["wrong"]
    if own is not None:  # they were counted against what came out
        series["differed"] = series["wrong"]
        series["wrong"] = [own.wrongs(*both) for both in zip(series["labels"], series["wrong"], strict=True)]
        wrong = own.wrongs(totals["labels"], totals["wrong"])
    answered = sum(totals[source] for source in counts.sources)
    return {
        "unsure": unsure,
        "planned_unsure": plan.unsure,
        "spent": unsure / plan.unsure if plan.unsure else 0.0,
        "rounds": account.rounds,
        "taught": pop.operator.taught,
        "guide_labels": pop.operator.guide_labels if own is None else None,
        "most_guide_labels": None if plan.guide is None else plan.guide.unit_labels * (plan.promise.periods or 1),
        "people_ended": pop.operator.ended,
        "failures": failures.counts(),
        "open_tickets": waiting,
        "shares": {source: totals[source] / answered if answered else 0.0 for source in counts.sources},
        "labels": totals["labels"],
        "error": None if wrong is None or not totals["labels"] else wrong / totals["labels"],
        "series": series,
        "response": None if own is None else {"truth": own.part.response.truth, "lie": own.part.response.lie},
        "labels_over": None if own is None else own.over,
        "most_labels": None if own is None else plan.promise.unit_labels,
        "nbytes": pop.operator.nbytes,
        "ledger": None if book is None else {"commits": book.commits, "seconds": book.seconds},
        "late_labels": pop.operator.late.labels,
        "alarms": [*alarms, *(f"{said}." for said in _said(pop, totals["labels"]) if said)],
    }


def _said(pop: POP, brought: int) -> tuple[str, ...]:
    """What an operator should hear of a model that answers."""
    operator, guide = pop.operator, pop.plan.guide
    learned, capped, ended = operator.guide_labels, "", ""
    if operator.ended:
        ended = (
            f"{operator.ended:,} people have taught in all of their {pop.plan.promise.periods:,} periods, and teach "
            "nothing any more"
        )
    each = "" if pop.plan.promise.per is None else " a period"
    if learned is not None and guide is not None and brought >= MANY and 2 * learned < brought:
        capped = (
            f"the guide learned {learned:,} of {brought:,} labels that came, of each person at most "
            f"{guide.unit_labels:,}{each}: a new model with a larger unit_labels learns more of each, with more noise"
        )
    if (own := operator.randomizing) is not None and own.over >= MANY and own.over > own.learned:
        capped = (
            f"{own.over:,} labels came past a person's cap and were not taken, {own.learned:,} were: a new model with "
            "a larger unit_labels takes more of each person, each with more noise"
        )
    return operator.failures.sentence, operator.late.sentence, capped, ended


def person(pop: POP, whose: bytes, life: int, stored: Sequence[Stored]) -> dict[str, Any]:
    """One person's rounds within a ticket's life, by source, and what was counted of them for good."""
    account, plan = pop.operator.loop.account, pop.plan
    sources = Counter(SOURCES[one.row.source] if one.row.label >= 0 else "refused" for one in stored)
    return {
        "rounds": len(stored),
        "within": life,
        "sources": dict(sources),
        "labels": sum(one.taught >= 0 for one in stored),
        "open_tickets": sum(one.open for one in stored),
        "unsure": account.shares.get(whose, 0),
        "most_unsure": plan.unit_unsure,
        "guide_labels": account.learned(whose),
        "most_guide_labels": plan.promise.unit_labels * (plan.promise.periods or 1) if plan.public else None,
        "periods": None if account.periods is None else account.periods.used(account.labels.get(whose, 0)),
        "most_periods": plan.promise.periods,
        "monitored": account.watched.get(whose, 0),
    }
