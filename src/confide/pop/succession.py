"""Successors: a new model under a new promise that begins with what an old one released, while people's lives go on.

The old model is sealed for good, for this one heir; what each person may still teach follows from what they taught it.
Claims and proofs: docs/proofs/composition.md, Theorem 9‴.

A line of models in a ledger: the new model's own row, in which what a person may not teach any more counts as taught;
and a row NAME.before that nobody writes to, with each person's account when the model began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from confide.errors import StateError
from confide.ledger import snapshot
from confide.ledger.book import Entry
from confide.ledger.ledger import Ledger, Spent, ledger_of
from confide.planning.lives import Cost, Life, check_whole, cost_of, noises_of
from confide.planning.plan import Plan

__all__ = [
    "Inherited", "Line", "Older", "Predecessor", "account", "accounts", "before_of", "check_line", "check_same",
    "line_of", "prepare_key", "seal", "unfinished",
]  # fmt: skip

_KEY = 96  # bytes of a successor's key (`confide.pop.routing.Routing`)

_SEALED = "this model has a successor, and its people's lives go on there: nobody is asked or taught here any more"


class Older(NamedTuple):
    """An earlier model of a line."""

    plan: Plan
    counts: bool
    """Whether rows were counted for its ranges."""


@dataclass(frozen=True)
class Line:
    """What a model and those before it promise together. Public, but for `taken`.

    Parameters
    ----------
    life
        What a unit is promised over all of them.
    older
        The earlier ones, in order.
    counts
        Whether rows are counted for the ranges of this one.
    people
        Whether people are the units; else rounds.
    taken
        How many labels counted as taught, over all people, when this one began.
    """

    life: Life
    older: tuple[Older, ...]
    counts: bool
    people: bool
    taken: int = 0

    def personal(self, plan: Plan) -> bool:
        """Whether each person has an account: where there are guides alone; else whole prices are added."""
        return self.people and all(each.parts == (each.guide,) for each in (plan, *(one.plan for one in self.older)))

    def to_json(self) -> dict[str, Any]:
        """JSON's kinds of values."""
        older = [{"plan": one.plan.to_json(), "counts": one.counts} for one in self.older]
        return {
            "epsilon": self.life.epsilon, "delta": self.life.delta, "older": older, "counts": self.counts,
            "people": self.people, "taken": self.taken,
        }  # fmt: skip

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Line:
        """What `to_json` wrote."""
        older = tuple(Older(Plan.from_json(one["plan"]), bool(one["counts"])) for one in given["older"])
        life = Life(given["epsilon"], given["delta"])
        return cls(life, older, bool(given["counts"]), bool(given["people"]), int(given["taken"]))

    def cost(self, plan: Plan) -> Cost:
        """What the newest model costs one person."""
        assert plan.guide is not None
        return cost_of(plan.guide, self.counts)

    def check(self, plan: Plan) -> None:
        """ValueError where a model with this plan, the newest of the line, would break somebody's life."""
        plans = [*(one.plan for one in self.older), plan]
        if not self.personal(plan):
            check_whole(self.life, plans)
            return
        self.life.check_noise(noises_of(plans))
        cost = self.cost(plan)
        if (cost.left(self.life.budget) or 0) < cost.most:
            raise ValueError(
                f"this model alone costs ε = {self.life.epsilon_at(cost.of(cost.most)):.4g}, and all of a life is to "
                f"cost {self.life.epsilon:g}: declare a larger one, or plan with a smaller epsilon"
            )


class Inherited(NamedTuple):
    """What a successor was given, for the operator."""

    people: int
    """People with an account from earlier models."""
    spent: int
    """Of these, people who teach nothing any more."""
    kept: str
    """What of the old model goes on, and what is lost."""
    insecure: bool
    """Whether one of the models was made with a seed, so that nothing is promised."""


class Predecessor(NamedTuple):
    """Where the old model is."""

    folder: Path
    ledger: str | None
    model: str

    def place(self) -> Ledger:
        """Its ledger."""
        return ledger_of(self.folder, self.ledger)


def line_of(header: Mapping[str, Any]) -> Line | None:
    """The line that a snapshot's header names; None for a first model."""
    given = header.get("line")
    return None if given is None else Line.from_json(given)


def before_of(model: str) -> str:
    """The name of the row that has people's accounts when a model began."""
    return f"{model}.before"


def account(cost: Cost, line: Line | None, moved: int, labels: int) -> int:
    """The account of a person who was in a model, by what it was before, in units (`confide.planning.lives.UNIT`).

    `labels` are those that count as taught. StateError where they are fewer than the model began with.
    """
    taken = 0 if line is None else cost.taken(line.life.budget - moved)
    if labels < taken:
        raise StateError("a person may teach more here than their earlier models left them: do not use this state")
    now = moved if taken > cost.most else moved + cost.of(labels - taken)
    if line is not None and now > line.life.budget:
        raise StateError("a person has taught more than their life allows: do not use this state")
    return now


def accounts(cost: Cost, line: Line | None, spent: Spent, before: Spent, people: set[bytes]) -> dict[bytes, int]:
    """Each person's account over all models of a line up to now: of those in the newest, and of those before."""
    moved, labels = before.labels, spent.labels
    return dict(moved) | {who: account(cost, line, moved.get(who, 0), labels.get(who, 0)) for who in people}


def check_line(line: Line, plan: Plan, ledger: Ledger, model: str, spent: Spent) -> None:
    """StateError where somebody's account is beyond their life, or a cap was raised since the model began."""
    line.check(plan)
    if not line.personal(plan):
        return
    cost, before = line.cost(plan), ledger.read(before_of(model))
    taken = sum(cost.taken(line.life.budget - moved) for moved in before.labels.values())
    accounts(cost, line, spent, before, {*spent.labels, *before.labels})
    if taken != line.taken:
        raise StateError("a person could teach more here than their earlier models left them: do not use this state")


def unfinished(folder: Path) -> bool:
    """Whether a folder has an heir's key and no snapshot: its succession was cut off, or the snapshot was lost."""
    return (folder / "key").is_file() and not snapshot.exists(folder) and len(snapshot.read_key(folder)) == _KEY


def prepare_key(folder: Path, old_secret: bytes, own: bytes) -> bytes:
    """The successor's key, durable before the old model is sealed for whoever has it; after a crash the same again."""
    if (folder / "key").is_file():
        if not unfinished(folder):
            raise StateError(f"{folder} has a model already: a successor needs a folder of its own")
        return snapshot.read_key(folder)
    snapshot.make_folder(folder)
    secret = own[:64] + (old_secret[64:] or old_secret[32:64])
    snapshot.write_key(folder, secret)
    return secret


def check_same(folder: Path, header: Mapping[str, Any], spent: Spent) -> None:
    """Refuse a ledger that does not know what this snapshot knows."""
    if spent.sequence < header["sequence"]:
        raise StateError(f"the ledger in {folder} is older than its snapshot: this state must not be used")
    epoch, mark = header.get("life", (0, 0))
    if epoch and spent.lives.get(epoch, (0, 0))[0] != mark:
        raise StateError(
            f"the snapshot in {folder} was written in a life that its ledger does not know: the ledger was rolled "
            "back, or is another model's; bring back the newest one"
        )


def seal(old: Predecessor, header: Mapping[str, Any], secret: bytes, name: str) -> None:
    """Seal the old model for the heir with this key, and name on a server: nobody is asked or taught there any more.

    StateError where it has another heir: two would spend what is left of a life twice.
    """
    why = f"{_SEALED} ({blake2b(secret + name.encode(), digest_size=8).hexdigest()})"
    ledger = old.place()
    with ledger.claim(old.model) as book:
        spent = ledger.read(old.model)
        check_same(old.folder, header, spent)
        if spent.sealed not in (None, why):
            raise StateError(f"{old.folder} is sealed: it has another successor, or must not be used")
        if spent.sealed is None:
            entry = Entry(spent.rounds, spent.unsure, spent.halted, history=spent.history, sealed=why)
            book.wait(book.add(entry))
