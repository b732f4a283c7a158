"""From a deployment's file to its models: plan, features, learner, POP."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from confide import learners
from confide._checks import label_weights
from confide.banks.ray import place_named
from confide.data.layout import Layout
from confide.data.schema import Schema, read_schema
from confide.errors import StateError
from confide.learners.spec import to_spec
from confide.ledger.snapshot import exists, read_extra, write_extra
from confide.planning.arguments import Unused
from confide.planning.lives import Life
from confide.planning.plan import Plan
from confide.planning.promise import DELTA
from confide.pop.monitor import Monitor
from confide.pop.pop import POP
from confide.pop.succession import Inherited
from confide.runs.names import learner_named
from confide.runs.settings import Settings
from confide.service.base import Desk
from confide.service.config import ModelConfig, PartitionsConfig
from confide.service.desk import PopDesk
from confide.service.doors import check_private
from confide.service.following import Follower
from confide.service.merging import Merger
from confide.service.parting import PartitionDesk
from confide.service.partitioned import PartitionedDesk, open_partitions
from confide.service.posting import HttpPost
from confide.service.quota import usual

D = TypeVar("D", bound=PopDesk)

__all__ = [
    "SERVING", "features", "maker", "open_desk", "open_merger", "partition_key", "planned", "promised", "room", "taken",
]

SERVING = ("save_every", "release_every", "trusted", "quota", "ticket_hours", "bank")
"""Entries of a model that may change: they are taken as the file says at each start, and the log says so."""

_ELSEWHERE = (  # read below
    "predecessor", "folder", "ledger", "schema_file", "columns", "labels", "label_weights", "plan", "partitions",
)  # fmt: skip
_ENTRIES = "entries.json"

KINDS = ("number", "log", "category", "text", "drop")
"""What a column may be: those kinds whose x needs no reading of a file's text."""


WAITS, PATIENCE = 5.0, 60.0
"""Seconds that a question waits for a number, and that a process that is started waits for the merger."""

ROOM, MAIL, NUMBER = 512, 16_384, 25
"""Bytes for a stored question: of numbers and categories, with a text, which may be an ordinary mail, and for each
number of one that has nothing else: as JSON, where one is missing, it has at most so many with the comma."""


def open_desk(name: str, config: ModelConfig, seed: int | None = None) -> Desk:
    """The model's desk, from its folder or new; a folder that holds something else than the file says is refused."""
    with _named(name):
        if config.partitions is not None:
            return _open_partitions(name, config, config.partitions, seed)
        return _open_one(name, config, seed, PopDesk.open)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Whatever is refused of a model's entries is refused with its name."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, StateError) or str(error).startswith("models."):
            raise
        raise ValueError(f"models.{name}: {error}") from None


def _open_partitions(name: str, config: ModelConfig, cut: PartitionsConfig, seed: int | None) -> PartitionedDesk:
    """The desks of this process's partitions, as one."""
    key = partition_key(cut.key)
    assert cut.merger is not None
    post = HttpPost(cut.merger, key)
    follower = Follower(post, secrets.token_hex(8))

    def opened(number: int) -> PartitionDesk:
        mine = config.model_copy(update={"folder": config.folder / f"p{number}"})
        return _open_one(
            f"{name}.{number}", mine, seed, partial(PartitionDesk.of, follower, number, patience=WAITS)
        )

    desks = open_partitions(opened, cut.here, PATIENCE)
    desk = PartitionedDesk(name, key, cut.number, desks, follower, post)
    return desk.limited(config.quota or usual(None if desk.plan.endless else desk.plan.rounds))


def open_merger(name: str, config: ModelConfig, seed: int | None = None) -> Merger:
    """The merger of a model over partitions, from its folder or new."""
    with _named(name):
        return _open_merger(name, config, seed)


def _open_merger(name: str, config: ModelConfig, seed: int | None) -> Merger:
    assert config.partitions is not None
    mine = config.model_copy(update={"folder": config.folder / "merger"})
    ledger = None if config.ledger is None else config.ledger.get_secret_value()
    merger = Merger.open(
        mine.folder, maker(name, config, seed), config.partitions.number, name=f"{name}.merger", ledger=ledger,
    )  # fmt: skip
    try:
        _check_entries(name, mine, {})
    except ValueError:
        merger.close()
        raise
    return merger


def partition_key(path: Path) -> bytes:
    """The secret that all processes of a model over partitions have; ValueError where others could read it."""
    check_private(path)
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != 32:
        raise ValueError(f"{path} must have 64 hexadecimal digits, the same in every process: openssl rand -hex 32")
    return key


def _open_one(name: str, config: ModelConfig, seed: int | None, opens: Callable[..., D]) -> D:
    foreign = _learner(config) if config.protect == "labels" or ":" in config.learner else None
    fallback = learner_named(config.fallback) if ":" in config.fallback else None
    desk = opens(
        config.folder, maker(name, config, seed), name=name, room=room(config), save_every=config.save_every,
        learner=foreign, fallback=fallback, trusted=config.trusted,
        ticket_hours=config.ticket_hours, bank=place_named(config.bank),
        ledger=None if config.ledger is None else config.ledger.get_secret_value(), succeeds=_succeeds(config),
    )  # fmt: skip
    desk.timed_by(time.perf_counter).limited(config.quota or usual(None if desk.plan.endless else desk.plan.rounds))
    try:
        _check(name, config, desk)
        desk.pop.rehearse()
    except ValueError:
        desk.close()
        raise
    return desk


def _succeeds(config: ModelConfig) -> Callable[[POP, str | None, str], Inherited] | None:
    """What saves a new model as its predecessor's successor; None where it names none."""
    old = config.predecessor
    if old is None:
        return None
    where = None if old.ledger is None else old.ledger.get_secret_value()
    epsilon, delta = config.life_epsilon, DELTA if config.life_delta is None else config.life_delta
    life = None if epsilon is None else Life(epsilon, delta)
    return lambda pop, ledger, model: pop.succeed(
        old.folder, config.folder, life, ledger=ledger, model=model, old_ledger=where, old_model=old.name
    )


def promised(config: ModelConfig) -> dict[str, Any]:
    """All that the promise and the reading of rows depend on, by entry: every entry but those that only serve.

    What a file names (a schema, a plan) counts by what is in it.
    """
    plain = {name: getattr(config, name) for name in ModelConfig.model_fields if name not in (*SERVING, *_ELSEWHERE)}
    plan = None if config.plan is None else Plan.from_json(config.plan).to_json()
    cut = config.partitions
    over = None if cut is None else [cut.number, blake2b(partition_key(cut.key), person=b"promise").hexdigest()]
    given = {
        **plain, "labels": _labels(config), "label_weights": _weights(config), "columns": to_spec(features(config)),
        "room": room(config), "plan": plan, "partitions": over,
    }  # fmt: skip
    made: dict[str, Any] = json.loads(json.dumps(given))
    return made


def taken(config: ModelConfig) -> list[str]:
    """The entries that only serve, and that are not what they were when the model was last opened."""
    before = (_written(config) or {}).get("serving", {})
    return [name for name, value in _serving(config).items() if name in before and before[name] != value]


def _serving(config: ModelConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in SERVING}


def _written(config: ModelConfig) -> dict[str, Any] | None:
    """What was written when the model in this folder was made; None where it was made before that was done."""
    body = read_extra(config.folder, _ENTRIES) if exists(config.folder) else None
    try:
        return None if body is None else dict(json.loads(body))
    except ValueError:
        raise ValueError(f"{config.folder / _ENTRIES} is damaged: take it from a backup of the folder") from None


def _write(config: ModelConfig, promise: dict[str, Any]) -> None:
    body = {"promise": promise, "serving": _serving(config)}
    if body != _written(config):
        write_extra(config.folder, _ENTRIES, json.dumps(body, indent=1).encode())


def _check(name: str, config: ModelConfig, desk: PopDesk) -> None:
    """What was promised stays promised: a changed file does not change a model that has begun."""
    if config.predecessor is not None and desk.pop.operator.loop.line is None:
        raise ValueError(
            f"models.{name}.predecessor: the model in {config.folder} began without one: leave it out, or take a new "
            "folder"
        )
    _check_entries(name, config, _held(config, desk))


def _check_entries(name: str, config: ModelConfig, held: dict[str, Any]) -> None:
    now, before = promised(config), (_written(config) or {}).get("promise", {})
    before = {**now, **held, **before}  # an older Confide wrote fewer entries, or none
    for entry, value in now.items():
        if entry in before and before[entry] != value:
            raise ValueError(
                f"models.{name}.{entry} is not what the model in {config.folder} was made with: "
                "change the file back, or begin its successor (`confide successor`), which counts what each person "
                "told this one; a new folder alone is a second promise to the same people, and both add up"
            )
    _write(config, before)


def _held(config: ModelConfig, desk: PopDesk) -> dict[str, Any]:
    """What the model itself says of its entries: for folders in which they were not written."""
    shown, plan, options = desk.public(), desk.plan, desk.pop.options
    least = plan.promise.unit_labels if plan.promise.protect == "labels" else None
    least = least if plan.guide is None else plan.guide.unit_labels
    epsilon, monitor = shown["guarantee"]["epsilon"], options["monitor"]
    counted = 1 if monitor is None else monitor.rounds_per_unit
    near = config.epsilon is None or 0.98 * config.epsilon <= epsilon <= config.epsilon * (1 + 1e-9)
    return {
        "protect": plan.promise.protect, "labels": list(shown["labels"]), "units": shown["units"],
        "ticket_life": shown["ticket_life"] if config.deadline is None else config.ticket_life,
        "columns": json.loads(json.dumps(to_spec(options["features"]))), "after_halt": options["after_halt"],
        "rounds": None if config.rounds is None else plan.rounds, "epsilon": config.epsilon if near else epsilon,
        "delta": None if config.delta is None else shown["guarantee"]["delta"],
        "unit_labels": None if config.unit_labels is None else least,
        "unit_unsure": None if config.unit_unsure is None else max(plan.unit_unsure, counted),
        "per": None if config.per is None else plan.promise.per,
        "periods": None if config.periods is None else plan.promise.periods,
        "monitor": None if monitor is None else monitor.epsilon,
        "label_weights": None if options["label_weights"] is None else list(options["label_weights"]),
    }  # fmt: skip


def maker(name: str, config: ModelConfig, seed: int | None = None) -> Callable[[], POP]:
    """What makes this model's POP, for a folder that is new."""

    def make() -> POP:
        try:
            plan, labels = planned(config), _labels(config)
            learner = _learner(config)
            if config.protect == "rows":
                _check_copies(config, plan)
            monitor = None
            if config.monitor is not None:
                most = (config.unit_unsure or plan.unit_unsure) if config.units == "people" else 1
                monitor = Monitor(config.monitor, rounds_per_unit=most, delay=config.monitor_delay)
            return POP(
                learner if plan.copies or config.protect == "labels" else None, plan, labels=labels, monitor=monitor,
                features=features(config), fallback=_fallback(config, labels), units=config.units,
                after_halt=config.after_halt, ticket_life=config.deadline or config.ticket_life, seed=seed,
                label_weights=_weights(config), bank=place_named(config.bank),
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"models.{name}: {error}") from None

    return make


def _check_copies(config: ModelConfig, plan: Plan) -> None:
    """Refuse what would be taken and ignored: entries about copies that the plan does not have."""
    for entry in ("polls", "unsure", "silent", "learner", *(() if _monitored(config) else ("unit_unsure",))):
        if not plan.copies and getattr(config, entry) != ModelConfig.model_fields[entry].default:
            own = ', or say protect = "labels", which protects labels and not rows' if entry == "learner" else ""
            raise ValueError(f"{entry} is for copies, and this plan has none: leave it out, or set copies{own}")


def _monitored(config: ModelConfig) -> bool:
    """Whether `unit_unsure` is also of the monitor, which counts so many rounds of a person."""
    return config.monitor is not None and config.units == "people"


def planned(config: ModelConfig) -> Plan:
    """The plan that was asked for."""
    names = (
        "epsilon", "delta", "rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "unit_labels", "guide",
        "lean", "beta", "monitor",
    )  # fmt: skip
    given: dict[str, Any] = {name: getattr(config, name) for name in names}
    if config.schema_file is not None and _schema(config).unit is not None and config.units != "people":
        raise ValueError(f'{config.schema_file} declares a unit, so people are to be protected: say units = "people"')
    if config.protect == "labels":
        return _labels_alone(config)
    unit, plan = "subject" if config.units == "people" else None, None if config.plan is None else str(config.plan)
    settings = Settings("a service", plan=plan, unit=unit, **given)
    filed = settings.filed()
    if filed is not None and filed.endless and config.rounds is not None:
        raise ValueError(f"rounds = {config.rounds} contradicts {config.plan}, which has no last one: leave it out")
    if filed is not None and config.history not in (0, 0 if filed.guide is None else filed.guide.history):
        raise ValueError(f"history = {config.history} contradicts {config.plan}: leave it out")
    if config.history and not config.guide:
        raise ValueError("history is for a guide, and guide is false: leave it out, copies are taught without it")
    by_period = {"per": config.per, "periods": config.periods}
    if filed is not None:
        if {*by_period.values()} != {None} and by_period.items() - vars(filed.promise).items():
            raise ValueError(f"per and periods contradict {config.plan}: leave them out")
        return filed
    made = _tight(config, settings)
    return made if {*by_period.values()} == {None} else made.but(**by_period)


def _tight(config: ModelConfig, settings: Settings) -> Plan:
    asked = len(_labels(config)), None, config.history
    try:
        return settings.tight(*asked, endless=True)
    except Unused as unused:
        if unused.name != "unit_unsure" or not _monitored(config):
            raise
        return settings.but(unit_unsure=None).tight(*asked)


def _labels_alone(config: ModelConfig) -> Plan:
    """The plan that protects labels and not rows."""
    if config.epsilon is None:
        raise ValueError("say epsilon: how much all labels of one person, or the one of a round, may tell")
    labels, due = _labels(config), None
    if config.deadline is not None:
        found = [i for i, label in enumerate(labels) if label == config.missing and type(label) is type(config.missing)]
        if not found:
            raise ValueError("missing is none of the labels: say which one a label is taken to be that has not come")
        due = config.deadline, found[0]
    most = 1 if config.unit_labels is None else config.unit_labels
    return Plan.labels_alone(config.epsilon, len(labels), units=config.units, unit_labels=most, due=due)


def _learner(config: ModelConfig) -> Any:
    """The learner that is named; None, which is our own model, where labels alone are protected and none is."""
    if config.protect == "labels" and "learner" not in config.model_fields_set:
        return None
    return learner_named(config.learner)


def features(config: ModelConfig) -> int | learners.Features:
    """What x holds."""
    if isinstance(config.columns, int):
        return config.columns
    columns = _schema(config).columns
    if wrong := [column for column in columns if column.kind not in KINDS]:
        raise ValueError(f"column {wrong[0].name!r} is {wrong[0].kind}: x comes as JSON, so take {', '.join(KINDS)}")
    return Layout(columns).features


def room(config: ModelConfig) -> int:
    """Bytes for a stored question, the same for all: as the file says, or enough for what its columns are.

    Where the file says nothing a model keeps what it was made with. What is stored is written twice, and more than
    once again when it is dropped: so a question of a few numbers has no more room than it needs.
    """
    if config.room is not None:
        return config.room
    if (made := (_written(config) or {}).get("promise", {}).get("room")) is not None:
        return int(made)
    if isinstance(config.columns, int):
        return min(ROOM, 2 + NUMBER * config.columns)
    return MAIL if any(column.kind == "text" for column in _schema(config).columns) else ROOM


def _schema(config: ModelConfig) -> Schema:
    if config.schema_file is not None:
        return read_schema(config.schema_file)
    assert isinstance(config.columns, dict)
    return Schema.of({"columns": config.columns}, "columns")


def _labels(config: ModelConfig) -> list[Any]:
    declared = list(_schema(config).labels or ()) if config.schema_file is not None else []
    if config.labels and declared and config.labels != declared:
        raise ValueError(f"labels contradicts {config.schema_file}, which declares others: leave one of them out")
    labels = config.labels or declared
    if len(labels) < 2:
        raise ValueError("say which labels there are: two or more, labels = [...]")
    return labels


def _weights(config: ModelConfig) -> list[float] | None:
    """One weight a label, in their order."""
    declared = dict(_schema(config).label_weights) if config.schema_file is not None else {}
    if config.label_weights and declared and config.label_weights != declared:
        raise ValueError(f"label_weights contradicts {config.schema_file}, which declares others: leave one out")
    return label_weights(config.label_weights or declared or None, [str(label) for label in _labels(config)])


def _fallback(config: ModelConfig, labels: list[Any]) -> Any:
    for label in labels:
        if str(label) == config.fallback:
            return label
    return learner_named(config.fallback) if ":" in config.fallback else config.fallback
