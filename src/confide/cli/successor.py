"""The command `confide successor`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from confide.cli import options as given
from confide.cli.places import MODEL, Ledger, Model
from confide.cli.terminal import OPERATOR, say
from confide.data.layout import Layout
from confide.data.schema import Schema, read_schema
from confide.planning.lives import Life
from confide.planning.plan import Plan
from confide.planning.promise import DELTA
from confide.pop.heirs import Made, made_of
from confide.pop.pop import POP
from confide.runs.names import fallback_of, learner_named, weights_of
from confide.runs.settings import Settings, leaning

__all__ = ["successor"]

_PROMISED = ("epsilon", "delta", "rounds", "unit_labels")
_COPIES = ("copies", "polls", "unsure", "silent", "unit_unsure", "beta")
_NUMBERS = (*_PROMISED, *_COPIES, "guide", "lean", "history")
_KEPT = ("after_halt", "ticket_life")
_SAME = "what is not said anew is the old model's"


def successor(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The folder of a saved POP: it is over afterwards.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A new folder for its successor.")],
    life_epsilon: Annotated[
        float | None, typer.Option(help="What all models together may cost one person; declared once, for good.")
    ] = None,
    life_delta: Annotated[float | None, typer.Option(help="… and with which probability it fails.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go on and what would be lost, and leave the old one be.")
    ] = False,
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help=f"The promise ε; {_SAME}.")] = None,
    delta: Annotated[float | None, typer.Option("--delta", "-d", help="Probability that it fails.")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", "-T", help="Rounds, where there is to be a last.")] = None,
    endless: Annotated[bool, typer.Option("--endless", help="No last round, where the old model has one.")] = False,
    unit_unsure: given.UnitUnsure = None,
    unit_labels: given.UnitLabels = None,
    labels: Annotated[str | None, typer.Option(help="All labels, a,b,c: public.")] = None,
    label_weights: given.LabelWeights = None,
    schema: given.SchemaFile = None,
    plan: Annotated[Path | None, typer.Option("--plan", help="A plan of `confide plan --json`.")] = None,
    history: Annotated[int | None, typer.Option(help="Labelled rows that will be taught first.")] = None,
    guide: Annotated[bool | None, typer.Option("--guide/--no-guide", help="Whether there is to be a guide.")] = None,
    lean: given.Lean = None,
    learner: Annotated[str | None, typer.Option(help="What the copies are, where the plan has any.")] = None,
    copies: given.Copies = None,
    polls: given.Polls = None,
    unsure: given.Unsure = None,
    silent: given.Silent = None,
    beta: given.Beta = None,
    fallback: Annotated[str | None, typer.Option(help="What answers when nothing else may.")] = None,
    after_halt: Annotated[str | None, typer.Option(help="After a halt: fallback or raise.")] = None,
    ticket_life: Annotated[int | None, typer.Option(help="Rounds after which a ticket expires.")] = None,
    ledger: Ledger = None,
    model: Model = MODEL,
    name: Annotated[str, typer.Option(help="With --ledger: what the successor is called there.")] = "successor",
) -> None:
    """Begin a new model under a new promise: other ε, other columns, a label added. People's lives go on.

    What is not said anew is the old model's. It begins with what that one released, as far as it fits. What changes and
    what is lost is said before the old model is over, which is for good: try `--dry-run` first. What a person may still
    teach follows from what they taught before. A model that would break somebody's life is refused, and the old one
    goes on.

    Example: `confide successor state/spam state/spam2 --epsilon 0.5 --life-epsilon 2`
    """
    asked = {key: value for key, value in locals().items() if value not in (None, False) or key == "guide"}
    if life_epsilon is None and life_delta is not None:
        raise ValueError("--life-delta is of --life-epsilon: give both, or neither")
    if endless and rounds is not None:
        raise ValueError("--endless means that there is no last round: leave --rounds out")
    made = made_of(old)
    heir = _heir(made, asked)
    pop = POP(heir.learner, heir.plan, **heir.options)
    for line in _changes(made, heir, pop):
        say(line)

    def told(kept: str) -> None:
        say(f"  {kept}")
        if dry_run:
            raise typer.Exit

    life = None if life_epsilon is None else Life(life_epsilon, DELTA if life_delta is None else life_delta)
    called = MODEL if ledger is None else name
    found = pop.succeed(old, new, life, ledger=ledger, model=called, old_ledger=ledger, old_model=model, told=told)
    pop.close()
    say(f"{new}: {pop.guarantee}")
    say(OPERATOR, "bold red")
    say(f"  people    {found.people:,} with a life that goes on, {found.spent:,} of them teach nothing any more")


class _Heir(NamedTuple):
    """What the successor is made of."""

    learner: Any
    plan: Plan
    options: dict[str, Any]
    lost: list[str]
    """What the old model had, and this one cannot have."""


def _heir(made: Made, asked: dict[str, Any]) -> _Heir:
    """The old model's, but for what was asked for."""
    options, lost = dict(made.options), list[str]()
    found = read_schema(asked["schema"]) if "schema" in asked else Schema()
    if found.unit is not None and options["units"] != "people":
        raise ValueError(f"{asked['schema']} declares a unit, and the old model protects rounds: so must its successor")
    if found.columns:
        options["features"] = Layout(found.columns).features
    before = options["labels"]
    named = asked["labels"].split(",") if "labels" in asked else list(found.labels or map(str, before))
    options["labels"] = labels = _same(named, before)
    plan = _plan(made, asked, len(labels))
    options["label_weights"] = _weights(made, asked, found, labels, plan, lost)
    if "fallback" in asked:
        options["fallback"] = fallback_of(asked["fallback"], labels)
    elif options["fallback"] not in ("coin", *labels):
        lost.append("the fallback, which is no label of the new model: a coin is thrown instead; see --fallback")
        options["fallback"] = "coin"
    options |= {key: asked[key] for key in _KEPT if key in asked}
    learner = learner_named(asked["learner"]) if "learner" in asked else made.learner if plan.copies else None
    if plan.copies and learner is None:
        raise ValueError("the new plan has copies, and the old model says not of what: name it with --learner")
    if made.plan.copies and not plan.copies:
        lost.append(f"the {made.plan.copies:,} copies, with all that they learned")
    elif plan.copies:
        lost.append("what the copies learned: theirs begin anew")
    return _Heir(learner, plan, options, lost)


def _same(named: Sequence[str], before: Sequence[Hashable]) -> list[Hashable]:
    """The labels that were named; one that the old model had is the same one, whatever its kind."""
    known = {str(label): label for label in before}
    return [known.get(one, one) for one in (part.strip() for part in named) if one]


def _weights(
    made: Made, asked: dict[str, Any], found: Schema, labels: list[Hashable], plan: Plan, lost: list[str]
) -> dict[Hashable, float] | None:
    """Each label's weight: as asked for, as the schema says, or as it was."""
    if "label_weights" in asked:
        return weights_of(asked["label_weights"].split(","), labels)
    if found.label_weights:
        return weights_of([f"{label}={weight!r}" for label, weight in found.label_weights], labels)
    if made.options["label_weights"] is None:
        return None
    before = dict(zip(made.options["labels"], made.options["label_weights"], strict=True))
    gone = [label for label in before if plan.guide is None or label not in labels]
    lost += [f"the weight {before[label]:g} of label {str(label)!r}" for label in gone if before[label] != 1]
    kept = {label: weight for label, weight in before.items() if label not in gone}
    return kept or None


def _plan(made: Made, asked: dict[str, Any], labels: int) -> Plan:
    """The plan that was named; or the old one, where no number changes; or one with the old one's other numbers."""
    old, numbers = made.plan, [key for key in (*_NUMBERS, "endless") if asked.get(key) is not None]
    if "plan" in asked:
        if numbers:
            options = ", ".join(f"--{key.replace('_', '-')}" for key in numbers)
            raise ValueError(f"--plan has all numbers of the promise: leave {options} out")
        return Plan.from_json(asked["plan"])
    if not numbers and labels == old.labels:
        return old
    promise = old.promise
    mine: dict[str, Any] = {"epsilon": promise.epsilon, "delta": promise.delta, "rounds": promise.rounds}
    mine |= {"unit_labels": promise.unit_labels} if promise.unit_labels > 1 else {}
    if old.copies and "endless" not in asked:
        mine |= {"copies": old.copies, "beta": old.beta, "lean": leaning(old)}
        mine |= {"unit_unsure": old.unit_unsure} if old.unit_unsure > 1 else {}
    mine |= {"rounds": None} if "endless" in asked else {}
    mine |= {"guide": old.guide is not None}
    if "copies" in asked or mine["rounds"] is None:  # another number has another lean
        mine.pop("lean", None)
    history = 0 if old.guide is None else old.guide.history
    mine |= {key: asked[key] for key in numbers if key not in ("endless", "history")}
    unit = "subject" if made.options["units"] == "people" else None
    return Settings("a successor", unit=unit, **mine).tight(labels, None, asked.get("history", history), endless=True)


def _changes(made: Made, heir: _Heir, pop: POP) -> list[str]:
    """What is otherwise in the new model than it was in the old one, and what is lost, in words."""
    before, now = _told(made.plan, made.options), _told(pop.plan, {**heir.options, "label_weights": pop.label_weights})
    changed = [key for key in now if now[key] != before[key]]
    said = [f"  {key.replace('_', ' ')}: {before[key]} before, now {now[key]}" for key in changed]
    return ["changes:", *(said or ["  nothing that was promised"]), *(f"  lost: {one}" for one in heir.lost)]


def _told(plan: Plan, options: dict[str, Any]) -> dict[str, str]:
    """A model's promise and what it was made with, each in words."""
    promise, weights, labels = plan.promise, options["label_weights"], options["labels"]
    of = [1.0] * len(labels) if weights is None else weights
    said = {
        **{key: f"{value:g}" for key, value in (("epsilon", promise.epsilon), ("delta", promise.delta))},
        "rounds": "no last one" if promise.rounds is None else f"{promise.rounds:,}",
        "labels of a person": f"{promise.unit_labels:,}",
        **{key: f"{getattr(plan, key):,}" for key in ("copies", "polls", "unsure", "silent", "unit_unsure")},
        "lean": leaning(plan), "guide": "none" if plan.guide is None else "one",
        "rows taught first": f"{0 if plan.guide is None else plan.guide.history:,}",
        "mistake bound": "none" if plan.certificate is None else f"{plan.mistakes}",
        "labels": ", ".join(map(str, labels)),
        "label weights": ", ".join(f"{label} {weight:g}" for label, weight in zip(labels, of, strict=True)),
        "columns": repr(options["features"]),
    }  # fmt: skip
    return said | {key: str(options[key]) for key in ("fallback", *_KEPT)}
