"""Plans as files: JSON out and in. What is read is checked for its form here, and re-certified by `Plan.from_json`."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from confide._checks import integer, real
from confide.planning import paper
from confide.planning.arguments import check
from confide.planning.guarantee import Guarantee
from confide.planning.guided import GuidePlan
from confide.planning.mistakes import HYPOTHESES, Certificate
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.renyi import check_delta, check_epsilon
from confide.privacy.sparse import CounterBudget
from confide.privacy.weigh import Weights

if TYPE_CHECKING:
    from confide.planning.plan import Plan

Kind = Literal["tight", "certified", "paper", "agnostic"]

VERSION = 3
"""Written, and the only one that is read."""
MOST_SCALE = 3e6
"""A file whose gate's noise is wider is refused: no number of copies that can be run needs it."""
MOST_ENTRIES = 50_000_000
"""A file whose tables are longer is refused."""

_PLAIN = ("kind", "rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "labels", "beta", "order", "mistakes")


def write(plan: Plan) -> str:
    """The plan as JSON, tables as run-length lists of integers in decimal."""
    halting: dict[str, Any] | None
    if plan.halting is None:
        halting = None
    elif isinstance(plan.halting, Halting):
        halting = {"go": _runs(plan.halting.go), "shift": plan.halting.shift}
    else:
        c = plan.halting
        halting = {"counter_epsilon": c.epsilon, "scale": str(c.scale), "unsure": c.unsure}
        halting |= {"late": c.late, "over": c.over}
    body = {
        "format": "confide-plan",
        "version": VERSION,
        **{name: getattr(plan, name) for name in _PLAIN},
        "notes": plan.notes,
        "guarantee": {"epsilon": plan.guarantee.epsilon, "delta": plan.guarantee.delta},
        "certificate": None if plan.certificate is None else vars(plan.certificate),
        "gate": None if plan.gate is None else _gate_params(plan.gate),
        "halting": halting,
        "guide": None if plan.guide is None else plan.guide.params(),
        "units": plan.units,
        "lean": None if plan.lean is None else plan.lean.params(),
    }
    return json.dumps(body, indent=1, default=int)  # NumPy's integers are integers


def read(text: str | Path) -> dict[str, Any]:
    """The fields of a plan that `write` wrote, checked one by one; whether they keep what they say is not."""
    try:
        body = json.loads(text.read_text() if isinstance(text, Path) else text)
        known = integer(body["version"], "version") == VERSION and body["kind"] in get_args(Kind)
        if body["format"] != "confide-plan" or not known:
            raise ValueError("this is not a plan of a version that this Confide reads; make it again")
        fields = _fields(body)
    except (KeyError, TypeError, OverflowError, ZeroDivisionError, json.JSONDecodeError) as error:
        kind = "JSON" if isinstance(error, json.JSONDecodeError) else "a plan, or one that was changed"
        raise ValueError(f"this is not {kind}: give a file that `confide plan --json` wrote") from None
    said = fields["guarantee"]
    whole = ["silent", "unit_unsure", "labels", "beta"] + ["copies", "unsure", "polls"] * (fields["copies"] != 0)
    check(said.epsilon, said.delta, fields["rounds"], **{name: fields[name] for name in whole})
    return fields


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    whole = ("rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "labels")
    saved, units, leaning = body["guide"], body["units"], body["lean"]
    guide = None if saved is None else GuidePlan.from_params(saved)
    if units not in (None, "rounds", "people"):
        raise ValueError("a plan's units are rounds or people")
    epsilon, delta = check_epsilon(body["guarantee"]["epsilon"]), check_delta(body["guarantee"]["delta"])
    return {
        "kind": body["kind"],
        **{name: integer(body[name], name) for name in whole},
        "order": None if body["order"] is None else integer(body["order"], "order"),
        "beta": real(body["beta"], "beta"),
        "gate": None if body["gate"] is None else _gate(body["gate"]),
        "halting": None if body["halting"] is None else _halting(body["halting"]),
        "guarantee": Guarantee(
            epsilon, delta, body["unit_unsure"], unit_labels=None if guide is None else guide.unit_labels
        ),
        "guide": guide,
        "units": units,
        "lean": None if leaning is None else _lean(leaning),
        "certificate": None if body["certificate"] is None else _certificate(body["certificate"], body["kind"]),
        "mistakes": body["mistakes"],
        "notes": tuple(str(note) for note in body["notes"]),
    }


def _gate_params(gate: Gate) -> dict[str, Any]:
    """A gate's integers, or the two numbers from which all integers of a Laplace gate follow."""
    if gate.laplace_numbers is None:
        return {"sure": _runs(gate.sure)}
    scale, quarters = gate.laplace_numbers
    return {"laplace_scale": scale, "laplace_quarters": quarters}


def _gate(saved: dict[str, Any]) -> Gate:
    if "sure" in saved:
        return Gate.from_integers(_expand(saved["sure"]))
    scale, quarters = real(saved["laplace_scale"], "laplace_scale"), integer(saved["laplace_quarters"], "a threshold")
    if not (0 < scale <= MOST_SCALE and 0 <= quarters <= paper.MOST_COPIES):
        raise ValueError("a gate's noise or threshold is larger than any that can be run")
    return Gate.laplace(scale=scale, threshold=quarters / 4)


def _lean(saved: dict[str, Any]) -> Lean | Weights:
    return Weights.from_params(saved) if "weights" in saved else Lean.from_params(saved)


def _halting(saved: dict[str, Any]) -> Halting | CounterBudget:
    if "go" in saved:
        return Halting(_expand(saved["go"]), saved["shift"])
    return CounterBudget(
        saved["counter_epsilon"], Fraction(str(saved["scale"])), saved["unsure"], saved["late"], saved["over"]
    )


def _certificate(saved: dict[str, Any], kind: str) -> Certificate:
    return Certificate(
        saved["expected_mistakes"],
        saved["mistakes"],
        saved["beta"],
        saved["early_halt"],
        saved["fallback_error"],
        # What is assumed follows from the proof and not from the file, which could leave some of it out.
        paper.HYPOTHESES if kind == "paper" else HYPOTHESES,
    )


def _runs(values: Any) -> list[list[Any]]:
    """Run-length form [[value, times], …] with values in decimal strings (64-bit integers do not fit JSON numbers)."""
    changes = np.flatnonzero(np.diff(values)) + 1
    starts = np.concatenate([[0], changes])
    ends = np.concatenate([changes, [len(values)]])
    return [[str(int(values[s])), int(e - s)] for s, e in zip(starts, ends, strict=True)]


def _expand(runs: list[list[Any]]) -> list[int]:
    lengths = [integer(times, "a table's runs") for _, times in runs]
    if min(lengths, default=0) < 1 or sum(lengths) > MOST_ENTRIES:
        raise ValueError("a table's runs are at least 1 long, and 50 million together at most")
    return [entry for (value, _), times in zip(runs, lengths, strict=True) for entry in [_entry(value)] * times]


def _entry(value: Any) -> int:
    """A table's entry, which stands there in decimal digits."""
    if not (isinstance(value, str) and value.isascii() and value.isdigit()):
        raise ValueError("a table's entries are whole numbers in decimal digits")
    return int(value)
