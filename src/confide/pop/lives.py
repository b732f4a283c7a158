"""What a model and those before it have cost its people: for `confide ledger`. Operator-only where it is private."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from confide.ledger import snapshot
from confide.ledger.ledger import Spent, ledger_of
from confide.planning.labels import RandomizedLabels
from confide.planning.lives import Life, cost_of
from confide.planning.periods import Periods
from confide.planning.plan import Plan
from confide.pop.routing import Routing
from confide.pop.succession import Line, account, accounts, before_of, line_of
from confide.privacy.random import Random
from confide.privacy.response import together

__all__ = ["Seen", "look"]

_DOORS = ("tokens:", "proxy:")
"""What doors of a service put before a person's name; that of `jwt` has the issuer in it."""


class Seen(NamedTuple):
    """Sentences."""

    public: list[str]
    private: list[str]


def look(folder: Path, place: str | None, model: str, person: str | None = None) -> Seen:
    """What a saved POP's ledger says, of all of its people or of one."""
    header, _ = snapshot.read(folder)
    plan, line = Plan.from_json(header["plan"]), line_of(header)
    ledger = ledger_of(folder, place)
    spent = ledger.read(model)
    public = _public(plan, line)
    alone = next((part for part in plan.parts if isinstance(part, RandomizedLabels)), None)
    if header["units"] == "people" and alone is not None:
        return Seen(public, _randomized(alone, spent, None if person is None else _who(folder, person, spent.labels)))
    if header["units"] != "people" or plan.parts != (plan.guide,):
        if person is not None:
            raise ValueError("people have accounts where they are the units and a guide answers alone")
        return Seen(public, [f"rounds    {spent.rounds:,}; every unit is charged its model's whole price"])
    if (periods := plan.promise.counted) is not None:
        who = None if person is None else _who(folder, person, spent.labels)
        return Seen(public, _by_period(periods, spent, who))
    life = Life(plan.guarantee.epsilon, plan.guarantee.delta) if line is None else line.life
    personal = line is not None and line.personal(plan)
    before = ledger.read(before_of(model)) if personal else Spent()
    assert plan.guide is not None
    cost = cost_of(plan.guide, _counts(line, spent))
    whole = cost.of(cost.most) if line is None else 0  # what this plan's own certificate is for: its life is its own
    lined, people = line if personal else None, ledger.people(model, 0 if personal else -1)
    if person is not None:
        who = _who(folder, person, {*people, *before.labels})
        known = who in people
        moved, labels = before.labels.get(who, 0), spent.labels.get(who, 0)
        now = account(cost, lined, moved, labels) if known else moved
        left = min(cost.most, labels)
        return Seen(public, [
            f"person    {'was here' if known else 'was never here'}: ε = {_used(life, now, whole):.4g} of "
            f"{life.epsilon:g} so far, {_used(life, moved, whole):.4g} of it before this model",
            f"labels    {cost.most - left:,} more of theirs are learned here, of {cost.most:,}",
        ])  # fmt: skip
    found = accounts(cost, lined, spent, before, people)
    most, charged = max(found.values(), default=0), sum(units > 0 for units in found.values())
    over = sum(labels >= cost.most for labels in spent.labels.values())
    return Seen(public, [
        f"people    {charged:,} who were charged, of whom {over:,} teach nothing any more",
        f"most      ε = {_used(life, most, whole):.4g} of {life.epsilon:g}, at δ = {life.delta:g}, so far",
    ])  # fmt: skip


def _used(life: Life, account: int, whole: int) -> float:
    """What an account has used, rounded up; no more than is promised for the `whole` that a plan certifies, or less."""
    found = life.epsilon_at(account)
    return min(found, life.epsilon) if account <= whole else found


def _who(folder: Path, person: str, known: Container[bytes]) -> bytes:
    """Whom the name means: as it is given or, where nobody is called so, as a door of a service would call them."""
    routing = Routing("people", 0, Random(), snapshot.read_key(folder))
    hashed = {name: routing.who(name) or b"" for name in (person, *(door + person for door in _DOORS))}
    found = [name for name, who in hashed.items() if who in known]
    if len(found) > 1 and person not in found:
        raise ValueError(f"{person!r} may be {' or '.join(map(repr, found))}: give one of these names")
    return hashed[person if person in found or not found else found[0]]


def _by_period(periods: Periods, spent: Spent, who: bytes | None) -> list[str]:
    """In how many periods people have taught, and who teaches no more."""
    now = periods.at(spent.rounds)
    said = [f"period    number {now + 1:,}, of {periods.per:,} rounds each"]
    if who is None:
        counts = spent.labels.values()
        over = sum(periods.over(count, now) for count in counts)
        most = max((periods.used(count) for count in counts), default=0)
        return [
            *said,
            f"people    {len(spent.labels):,} who taught, of whom {over:,} teach nothing any more",
            f"most      {most:,} of {periods.most:,} periods used by one person",
        ]
    count = spent.labels.get(who, 0)
    return [
        *said,
        f"person    taught {periods.taught(count):,} labels, in {periods.used(count):,} of {periods.most:,} periods",
        f"labels    {periods.left(count, now):,} more of theirs are learned in this period, of {periods.labels:,}",
    ]


def _randomized(part: RandomizedLabels, spent: Spent, who: bytes | None) -> list[str]:
    """How many labels of people were taken, each randomized once, of those that ever are."""
    most, each = part.unit_labels, part.response.cost()
    if who is not None:
        used = spent.labels.get(who, 0)
        return [
            f"person    ε = {together(each, used) if used else 0.0:.4g} of {together(each, most):.4g} so far",
            f"labels    {used:,} of {most:,} used; {max(0, most - used):,} more of theirs are taken",
        ]
    over, used = sum(count >= most for count in spent.labels.values()), max(spent.labels.values(), default=0)
    return [
        f"people    {len(spent.labels):,} who brought labels, of whom {over:,} have used all",
        f"most      {used:,} of {most:,} labels used by one person",
    ]


def _counts(line: Line | None, spent: Spent) -> bool:
    """Whether rows were, or are, counted for the ranges of the newest model."""
    kinds = {kind.rpartition("/")[2] for kind, *_ in spent.released}
    return line.counts if line is not None else not kinds or bool(kinds & {"warm", "ranges"})


def _public(plan: Plan, line: Line | None) -> list[str]:
    said = [f"promise   {plan.guarantee}"]
    if plan.guarantee.life is not None:
        life = f"ε = {plan.guarantee.life:.4g}, δ = {plan.guarantee.delta:g}"
        return [*said, f"life      {life}: all {plan.guarantee.periods:,} periods of one person, together"]
    if line is None:
        return [*said, "life      that of this model alone: it has no predecessor"]
    older = ", ".join(f"ε = {one.plan.guarantee.epsilon:.4g}" for one in line.older)
    said.append(f"life      ε = {line.life.epsilon:g}, δ = {line.life.delta:g}: this model and all before it, together")
    return [*said, f"before    {len(line.older):,}: {older}"]
