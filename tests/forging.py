"""Plan files for forgers: all numbers of a plan by their own names, whichever part has them, and back to a file."""

from __future__ import annotations

import json
from typing import Any

from confide.planning.plan import Plan

__all__ = ["changed", "filed", "flat"]

_PROMISE = ("rounds", "units", "protect", "unit_labels")


def flat(plan: Plan) -> dict[str, Any]:
    """A plan's file with all names on one level; a guide is one dict of its own."""
    body = json.loads(plan.to_json())
    promise, said = body.pop("promise"), body.pop("guarantee")
    parts = {part.pop("part"): part for part in body.pop("parts")}
    body |= {name: promise[name] for name in (*_PROMISE, "labels")}
    body |= parts.get("copies", {"gate": None, "halting": None, "lean": None})
    body["guarantee"] = {"epsilon": said["epsilon"], "delta": promise["delta"]}
    body["asked"] = [promise["epsilon"], said["epsilon"]]
    body["guide"] = parts.get("linear")
    return body


def filed(body: dict[str, Any]) -> str:
    """The file of what `flat` laid open; whoever claims another ε promises it too."""
    said, (asked, kept) = dict(body["guarantee"] or {}), body["asked"]
    promise = {name: body[name] for name in (*_PROMISE, "labels") if name in body}
    promise["epsilon"] = asked if said.get("epsilon") == kept else said.get("epsilon")
    promise["delta"] = said.get("delta")
    names = ("copies", "polls", "unsure", "silent", "unit_unsure", "labels", "order", "beta", "gate", "halting", "lean")
    parts = [] if body["gate"] is None else [{"part": "copies", **{n: body[n] for n in names if n in body}}]
    parts += [] if body["guide"] is None else [{"part": "linear", **body["guide"]}]
    own = {name: body[name] for name in ("format", "version", "kind", "certificate", "mistakes", "notes")}
    return json.dumps({**own, "promise": promise, "parts": parts, "guarantee": {"epsilon": promise["epsilon"]}
                       if promise["epsilon"] != asked else {"epsilon": kept}})  # fmt: skip


def changed(plan: Plan, **changes: Any) -> str:
    """The file of a plan with other numbers."""
    return filed({**flat(plan), **changes})
