"""From a deployment's file to its models: plan, features, learner, POP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confide import learners
from confide.data.layout import Layout
from confide.data.schema import Schema, read_schema
from confide.planning.plan import Plan
from confide.pop.monitor import Monitor
from confide.pop.pop import POP
from confide.runs.names import learner_named
from confide.runs.settings import Settings
from confide.service.base import Desk
from confide.service.config import ModelConfig
from confide.service.desk import PopDesk

__all__ = ["features", "maker", "open_desk", "planned"]

KINDS = ("number", "log", "category", "text", "drop")
"""What a column may be: those kinds whose x needs no reading of a file's text."""


def open_desk(name: str, config: ModelConfig, seed: int | None = None) -> Desk:
    """The model's desk, from its folder or new; a folder that holds something else than the file says is refused."""
    foreign = learner_named(config.learner) if ":" in config.learner else None
    fallback = learner_named(config.fallback) if ":" in config.fallback else None
    desk = PopDesk.open(
        config.folder, maker(name, config, seed), name=name, room=config.room, save_every=config.save_every,
        learner=foreign, fallback=fallback, trusted=config.trusted,
        ledger=None if config.ledger is None else config.ledger.get_secret_value(),
    )  # fmt: skip
    desk.timed_by(time.perf_counter)
    try:
        _check(name, config, desk)
    except ValueError:
        desk.close()
        raise
    return desk


def _check(name: str, config: ModelConfig, desk: Desk) -> None:
    """What was promised stays promised: a changed file does not change a model that has begun."""
    shown, plan = desk.public(), desk.plan
    held = {
        "labels": list(shown["labels"]) == _labels(config), "units": shown["units"] == config.units,
        "ticket_life": shown["ticket_life"] == config.ticket_life, "rounds": config.rounds in (None, plan.rounds),
        "epsilon": config.epsilon is None or shown["guarantee"]["epsilon"] <= config.epsilon * (1 + 1e-9),
        "delta": config.delta is None or shown["guarantee"]["delta"] <= config.delta * (1 + 1e-9),
    }  # fmt: skip
    for entry, kept in held.items():
        if not kept:
            raise ValueError(
                f"models.{name}.{entry} is not what the model in {config.folder} was made with: "
                "change the file back, or take a new folder for a new model"
            )


def maker(name: str, config: ModelConfig, seed: int | None = None) -> Callable[[], POP]:
    """What makes this model's POP, for a folder that is new."""

    def make() -> POP:
        try:
            plan, labels = planned(config), _labels(config)
            monitor = None
            if config.monitor is not None:
                most = plan.unit_unsure if config.units == "people" else 1
                monitor = Monitor(config.monitor, rounds_per_unit=most, delay=config.monitor_delay)
            return POP(
                learner_named(config.learner) if plan.copies else None, plan, labels=labels, monitor=monitor,
                features=features(config), fallback=_fallback(config, labels), units=config.units,
                after_halt=config.after_halt, ticket_life=config.ticket_life, seed=seed,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"models.{name}: {error}") from None

    return make


def planned(config: ModelConfig) -> Plan:
    """The plan that was asked for."""
    names = (
        "epsilon", "delta", "rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "unit_labels", "guide",
        "beta", "monitor",
    )  # fmt: skip
    given: dict[str, Any] = {name: getattr(config, name) for name in names}
    unit, plan = "subject" if config.units == "people" else None, None if config.plan is None else str(config.plan)
    settings = Settings("a service", plan=plan, unit=unit, **given)
    return settings.filed() or settings.tight(len(_labels(config)), None, config.history)


def features(config: ModelConfig) -> int | learners.Features:
    """What x holds."""
    if isinstance(config.columns, int):
        return config.columns
    columns = _schema(config).columns
    if wrong := [column for column in columns if column.kind not in KINDS]:
        raise ValueError(f"column {wrong[0].name!r} is {wrong[0].kind}: x comes as JSON, so take {', '.join(KINDS)}")
    return Layout(columns).features


def _schema(config: ModelConfig) -> Schema:
    if config.schema_file is not None:
        return read_schema(config.schema_file)
    assert isinstance(config.columns, dict)
    return Schema.of({"columns": config.columns}, "columns")


def _labels(config: ModelConfig) -> list[Any]:
    labels = config.labels or (list(_schema(config).labels or ()) if config.schema_file is not None else [])
    if len(labels) < 2:
        raise ValueError("say which labels there are: two or more")
    return labels


def _fallback(config: ModelConfig, labels: list[Any]) -> Any:
    for label in labels:
        if str(label) == config.fallback:
            return label
    return learner_named(config.fallback) if ":" in config.fallback else config.fallback
