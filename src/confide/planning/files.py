"""Plans as files: JSON out and in. What is read is checked for its form here, and re-certified by `Plan.from_json`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from confide._checks import integer
from confide.planning import paper
from confide.planning.guarantee import Guarantee
from confide.planning.mistakes import HYPOTHESES, Certificate
from confide.planning.parts import read_part
from confide.planning.promise import Promise
from confide.privacy.renyi import check_epsilon

if TYPE_CHECKING:
    from confide.planning.plan import Plan

Kind = Literal["tight", "certified", "paper", "agnostic", "parts"]

VERSION = 4
"""The version of plan files: this one is written, and no other is read."""


def write(plan: Plan) -> str:
    """The plan as JSON: its promise, its parts by their own numbers, and what is stated of them."""
    body = {
        "format": "confide-plan",
        "version": VERSION,
        "kind": plan.kind,
        "promise": plan.promise.params(),
        "parts": [{"part": part.kind, **part.params()} for part in plan.parts],
        "guarantee": _stated(plan.guarantee),
        "certificate": None if plan.certificate is None else vars(plan.certificate),
        "mistakes": plan.mistakes,
        "notes": plan.notes,
    }
    return json.dumps(body, indent=1, default=int)  # NumPy's integers are integers


def _stated(guarantee: Guarantee) -> dict[str, float]:
    life = {} if guarantee.life is None else {"life": guarantee.life}
    return {"epsilon": guarantee.epsilon, **life}


def read(text: str | Path) -> dict[str, Any]:
    """The fields of a plan that `write` wrote, checked one by one; whether they keep what they say is not."""
    try:
        body = json.loads(text.read_text() if isinstance(text, Path) else text)
        known = integer(body["version"], "version") == VERSION and body["kind"] in get_args(Kind)
        if body["format"] != "confide-plan" or not known:
            raise ValueError("this is not a plan of a version that this Confide reads; make it again")
        return _fields(body)
    except (KeyError, TypeError, AttributeError, OverflowError, ZeroDivisionError, json.JSONDecodeError) as error:
        kind = "JSON" if isinstance(error, json.JSONDecodeError) else "a plan, or one that was changed"
        raise ValueError(f"this is not {kind}: give a file that `confide plan --json` wrote") from None


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    promise = Promise.from_params(body["promise"])
    if promise.labels is None:
        raise TypeError("a plan says how many labels there are")
    return {
        "promise": promise,
        "parts": tuple(read_part(part) for part in body["parts"]),
        "kind": body["kind"],
        "guarantee": _guarantee(body["guarantee"], promise),
        "certificate": None if body["certificate"] is None else _certificate(body["certificate"], body["kind"]),
        "mistakes": body["mistakes"],
        "notes": tuple(str(note) for note in body["notes"]),
    }


def _guarantee(saved: dict[str, Any], promise: Promise) -> Guarantee:
    said = Guarantee(check_epsilon(saved["epsilon"]), promise.delta)
    return said if promise.per is None else replace(said, life=check_epsilon(saved["life"]))


def _certificate(saved: dict[str, Any], kind: str) -> Certificate:
    stated = {name: saved[name] for name in ("expected_mistakes", "mistakes", "beta", "early_halt", "fallback_error")}
    # What is assumed follows from the proof and not from the file, which could leave some of it out.
    return Certificate(**stated, hypotheses=paper.HYPOTHESES if kind == "paper" else HYPOTHESES)
