"""A POP that has not begun becomes the successor of a saved one: what is checked, carried over, sealed and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confide.errors import StateError
from confide.guide.carried import Carried
from confide.guide.model import Map
from confide.learners import Pipeline
from confide.learners.spec import from_spec
from confide.ledger import snapshot
from confide.ledger.ledger import Spent
from confide.planning.lives import Life, cost_of
from confide.planning.plan import Plan
from confide.pop import state
from confide.pop.guiding import Guiding, guide_from, release_of
from confide.pop.loop import Loop
from confide.pop.routing import Routing
from confide.pop.settings import Settings
from confide.pop.several import released_of
from confide.pop.succession import (
    Inherited,
    Line,
    Older,
    Predecessor,
    accounts,
    before_of,
    line_of,
    prepare_key,
    seal,
    unfinished,
)
from confide.pop.tickets import Tickets

__all__ = ["Made", "made_of", "succeed"]


class _Old(NamedTuple):
    """The old model, as it stands."""

    plan: Plan
    line: Line | None
    counts: bool
    spent: Spent
    before: Spent
    people: set[bytes]
    left: tuple[Map, Carried | None, int] | None
    """Its map, what it had learned, and its epoch."""


def succeed(
    settings: Settings, loop: Loop, folder: Path, about: Mapping[str, bool], old: Predecessor, life: Life | None,
    *, ledger: str | None, model: str, told: Callable[[str], object] | None = None,
) -> Inherited:  # fmt: skip
    """See `POP.succeed`. All that can be refused is refused before the old model is sealed."""
    header, _ = snapshot.read(old.folder)
    state.check_savable(settings)
    _check(settings, loop, header)
    if unfinished(folder):
        state.clear(folder, ledger, model, heir=True)
    if ledger is not None and ledger == old.ledger and {model, before_of(model)} & set(old.place().models()):
        raise StateError(f"the ledger {old.place().name} has a model {model!r} already: choose another name")
    found = _read(old, header)
    life = _life(found, life)
    kept = _inherit(settings, loop, header, found)
    counts = loop.guiding is not None and loop.guiding.guide.finding
    older = (*(() if found.line is None else found.line.older), Older(found.plan, found.counts))
    line = Line(life, older, counts, settings.units == "people")
    line.check(settings.plan)
    _bring(line, settings.plan, found)
    if told is not None:
        told(kept)
    secret = prepare_key(folder, state.key_of(old.folder, header), loop.routing.secret)
    seal(old, header, secret, "" if ledger is None else model)
    found = _read(old, header)  # as it stays
    moved, taken = _bring(line, settings.plan, found)
    loop.line = Line(life, older, counts, line.people, sum(taken.values()))
    loop.account.labels = dict(taken)
    loop.routing = Routing(loop.routing.units, loop.routing.copies, loop.rng, secret)
    loop.tickets = _rekeyed(loop.tickets, loop.routing.ticket_key)
    about = {**about, "insecure": about["insecure"] or header["insecure"]}
    personal = line.personal(settings.plan)
    state.save(settings, loop, folder, about, ledger=ledger, model=model, before=moved if personal else None)
    most = settings.plan.promise.unit_labels
    lived = sum(units > 0 for units in moved.values())
    return Inherited(lived, sum(labels >= most for labels in taken.values()), kept, about["insecure"])


class Made(NamedTuple):
    """What a saved POP was made with, for one like it."""

    learner: Any
    """None where it has no copies, or those of a learner that is written nowhere."""
    plan: Plan
    options: dict[str, Any]
    """By name; a fallback that was none of the labels is None."""


def made_of(folder: Path) -> Made:
    """What the POP in this folder was made with; ValueError where nothing is proved for a successor of such a one."""
    header, _ = snapshot.read(folder)
    plan = Plan.from_json(header["plan"])
    _check_proved(plan, header["monitor"])
    names = ("labels", "units", "after_halt", "ticket_life", "label_weights", "fallback")
    options = {name: header[name] for name in names} | {"features": from_spec(header["inputs"])}
    learner = from_spec(header["learner"])
    learner = learner.learner if isinstance(learner, Pipeline) else learner  # its features are those of the model
    return Made(learner, plan, options)


def _check(settings: Settings, loop: Loop, header: Mapping[str, Any]) -> None:
    """Refuse what no theorem covers."""
    account, lessons = loop.account, loop.lessons
    begun = account.rounds or account.history or account.labels or lessons.taught or lessons.failed
    if begun or account.book is not None or loop.line is not None:
        raise ValueError("a successor is a POP that has not begun: make a new one")
    if header["units"] != settings.units:
        raise ValueError(f"the old model protects {header['units']}: so must its successor")
    _check_proved(Plan.from_json(header["plan"]), header["monitor"])
    _check_proved(settings.plan, settings.monitor)


def _check_proved(plan: Plan, monitor: object) -> None:
    """Refuse a model that can be neither end of a succession."""
    if plan.promise.protect != "rows":
        raise ValueError("where labels alone are protected there is no successor yet: begin a new model")
    if plan.promise.per is not None:
        raise ValueError("labels that are counted by periods have no account over models yet: begin a new model")
    if plan.relay:
        raise ValueError("a relay's price over several models is not proved: begin a new model")
    if monitor is not None:
        raise ValueError("a monitor's price over several models is not proved: plan both without one")


def _read(old: Predecessor, header: Mapping[str, Any]) -> _Old:
    plan, line, ledger = Plan.from_json(header["plan"]), line_of(header), old.place()
    spent, left = ledger.read(old.model), None
    personal = line is not None and line.personal(plan)
    before = ledger.read(before_of(old.model)) if personal else Spent()
    people = ledger.people(old.model, 0 if personal else -1)  # a successor begins with rows of all who were before
    counts = False
    if plan.guide is not None:
        releases = [release_of(one) for one in released_of(spent, plan.guide)]
        guide = guide_from(plan.guide, from_spec(header["inputs"]), releases)
        counts = guide.finding or guide.ranges is not None
        found = guide.left()
        left = None if found is None else (*found, guide.epoch)
    return _Old(plan, line, counts, spent, before, people, left)


def _life(old: _Old, life: Life | None) -> Life:
    declared = None if old.line is None else old.line.life
    if life is None and declared is None:
        raise ValueError(
            "declare what all models together may cost one person, a life's epsilon and delta: --life-epsilon, "
            "life_epsilon in a service's file, or life=Life(epsilon, delta)"
        )
    if life is not None and declared is not None and life != declared:
        raise ValueError(
            f"people were promised ε = {declared.epsilon:g}, δ = {declared.delta:g} for life: a promise that was made "
            "stays; leave it out"
        )
    found = declared or life
    assert found is not None
    return found


def _bring(line: Line, plan: Plan, old: _Old) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Each person's account, and the labels that count as taught when the successor begins.

    Of everybody who was ever in the old model: what is written must not tell by its size who brought a label.
    """
    if not line.personal(plan):
        return {}, {}
    assert old.plan.guide is not None
    cost, budget = line.cost(plan), line.life.budget
    earlier = cost_of(old.plan.guide, old.counts)
    whole = earlier.of(earlier.most)
    if old.line is None and whole > budget:  # whoever has taught less: the refusal must not tell
        raise ValueError(
            f"the old model may have cost somebody ε = {line.life.epsilon_at(whole):.4g}, and all of a life is to cost "
            f"{line.life.epsilon:g}: declare a larger one"
        )
    moved = accounts(earlier, old.line, old.spent, old.before, old.people)
    return moved, {who: cost.taken(budget - units) for who, units in moved.items()}


def _inherit(settings: Settings, loop: Loop, header: Mapping[str, Any], old: _Old) -> str:
    """Begin with what the old one released, as far as it fits; what goes on and what is lost, in words."""
    guiding = loop.parts.get(Guiding)
    if guiding is None or old.left is None:
        return f"nothing goes on: the {'new model has no guide' if guiding is None else 'old one had no map yet'}"
    features, carried, epoch = old.left
    if not guiding.reads(features):
        return "nothing goes on: the columns are others, so both the map and what was learned on it are lost"
    same = list(header["labels"]) == list(settings.labels)
    guiding.inherit(features, carried if same else None, epoch)
    if guiding.guide.epoch:
        return "the map and what was learned go on"
    why = "the labels are others" if not same else (
        "the new plan has a last round" if carried is not None else "nothing was released on it yet"
    )  # fmt: skip
    return f"the map goes on, and what was learned is lost: {why}"


def _rekeyed(tickets: Tickets, key: bytes) -> Tickets:
    made = Tickets(key, tickets.life)
    made.kept = tickets.kept
    return made
