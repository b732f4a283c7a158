"""The operator's report of a run: one HTML file that needs nothing else, and the same numbers as JSON.

It is exact, so it is outside the guarantee, says so at the top, and is readable by its owner alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from confide.runs.advice import next_settings
from confide.runs.checkpoints import write_private
from confide.runs.page import notes_of, page
from confide.runs.runner import Outcome
from confide.runs.verdict import state_of
from confide.runs.worth import worth

_PLAN = ("kind", "silent", "copies", "polls", "unsure", "unit_unsure", "labels", "beta")


def numbers(outcome: Outcome) -> dict[str, Any]:
    """Everything the report shows, in two parts: what is public, and what is for the operator alone."""
    return {
        "format": "confide-report",
        "version": 4,
        "public": _public(outcome),
        "operator_only": _operator_only(outcome),
        "settings": outcome.settings.to_json(),
        "command": outcome.settings.command,
    }


def _public(outcome: Outcome) -> dict[str, Any]:
    pop, plan, guarantee = outcome.pop, outcome.pop.plan, outcome.pop.guarantee
    return {
        "guarantee": {
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "secure": guarantee.secure,
            "units": pop.units,
            "sentence": guarantee.sentence,
            "protect": plan.promise.protect,
            "protected": guarantee.protected,
        },
        "plan": {"rounds": plan.promise.rounds, **{name: getattr(plan, name) for name in _PLAN}},
        "guide": None if plan.guide is None else plan.guide.params(),
        "stream": outcome.stream.name,
        "labels": [str(label) for label in outcome.stream.labels],
        "label_weights": None if pop.label_weights is None else list(pop.label_weights),
        "notes": list(outcome.stream.notes),
        "treated_as_public": list(outcome.stream.public),
        "explained": plan.explain(),
        "rounds": pop.rounds,
        "rows_of_nobody": outcome.tally.nobodys,
        "state": state_of(outcome),
        "monitor": None if pop.monitor is None else pop.monitor.numbers(pop.units),
        "importance": {} if pop.guide is None else pop.guide.importance(),
        "epochs": [] if pop.guide is None else pop.guide.epochs(pop.rounds),
    }


def _operator_only(outcome: Outcome) -> dict[str, Any]:
    pop, tally = outcome.pop, outcome.tally
    advised = next_settings(outcome) if outcome.out_of_budget else None
    return {
        "warning": "exact numbers, outside the guarantee: never to be shown to others",
        "error": _number(tally.error),
        "late_error": _number(tally.late_error),
        "live_error": _number(tally.live_error),
        "guide_error": _number(tally.guide_error) if pop.plan.guide is not None else None,
        "frequent_error": _number(tally.frequent_error),
        "late_frequent_error": _number(tally.late(tally.curve_frequent)),
        "verdict": worth(outcome),
        "notes": notes_of(outcome),
        "failures": pop.operator.failures.counts(),
        "labels_brought": tally.brought,
        "twin": outcome.twin if outcome.settings.twin else None,
        "twin_error": _number(tally.twin_error) if outcome.settings.twin else None,
        "balanced_error": _number(tally.balanced_error),
        "recalls": [_number(recall) for recall in tally.recalls],
        "precisions": [_number(precision) for precision in tally.precisions],
        "guide_labels": pop.operator.guide_labels,
        "labels_over": None if pop.operator.randomizing is None else pop.operator.randomizing.over,
        "bad": tally.bad,
        "memory_bytes": pop.operator.nbytes,
        "rounds_per_second": _number(outcome.rounds_per_second),
        "next_command": None if advised is None else advised.command,
        **asdict(tally),
    }


def write_json(outcome: Outcome, path: Path) -> None:
    """Write `numbers` to a file."""
    write_private(path, json.dumps(numbers(outcome), indent=1, ensure_ascii=False) + "\n")


def write_html(outcome: Outcome, path: Path) -> None:
    """Write the page: nothing in it is fetched from anywhere."""
    write_private(path, page(outcome))


def _number(value: float) -> float | None:
    return value if value == value else None
