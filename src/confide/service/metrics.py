"""Numbers for Prometheus: a few that everyone may see, and the operator's own.

How many requests, labels and refusals there were, and how long they took, tells of people: unsure answers are slower,
and that somebody brought a label is private. So the public port has the round counter, the state, the guarantee and the
private monitor's number of each model, and nothing else.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from confide.service.logs import Log
from confide.service.owner import Work

__all__ = ["Metrics", "public_text"]

STATES = ("silent", "live", "halted", "failed")
MINUTE = 60.0
"""Seconds between two lines in the log about a model that is not ready."""
_TIMES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_MONITOR = "The private monitor's numbers; where people are protected, mistakes among the first rounds_per_unit of each"
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)


class Metrics:
    """The operator's numbers; also what owners tell of their groups, and the alarms for late work and failed models.

    Parameters
    ----------
    clock
        Seconds, for what is written once a minute; for tests.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "confide_requests", "Requests by model, operation and status", ["model", "operation", "status"],
            registry=registry,
        )  # fmt: skip
        self._latency = Histogram(
            "confide_request_seconds", "From the request's end to the response, without pacing", ["model", "operation"],
            buckets=_TIMES, registry=registry,
        )  # fmt: skip
        self._rows = Counter("confide_rows", "Questions, labels and calls served", ["model", "work"], registry=registry)
        self._desk = Histogram(
            "confide_desk_seconds", "What a group took at the desk, its commit included", ["model", "work"],
            buckets=_TIMES, registry=registry,
        )  # fmt: skip
        self._group = Histogram(
            "confide_group_rows", "Rows that shared a commit", ["model", "work"], buckets=_SIZES, registry=registry
        )
        self._late = Counter("confide_late", "Responses that missed their first tick", ["model"], registry=registry)
        self._failed = Counter(
            "confide_failed_groups", "Groups that could not be served", ["model", "work"], registry=registry
        )
        self._ready = Gauge(
            "confide_ready", "0 for a model that failed and serves nobody", ["model"], registry=registry
        )
        self._waiting = Gauge("confide_waiting_rows", "Rows that wait", ["model", "work"], registry=registry)
        self._ledger = Gauge("confide_ledger", "The ledger's own numbers", ["model", "number"], registry=registry)
        self._lates = defaultdict[str, int](int)
        self._told: dict[str, float] = {}  # when the log was told of a model that failed
        self._seen: dict[tuple[str, str], tuple[Counter, Histogram, Histogram]] = {}
        self._asked: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def responded(self, model: str, operation: str, status: int, seconds: float) -> None:
        """A request was responded to."""
        key = (model, operation, status)
        if key not in self._asked:
            self._asked[key] = (self._requests.labels(*map(str, key)), self._latency.labels(model, operation))
        counter, histogram = self._asked[key]
        counter.inc()
        histogram.observe(seconds)

    def served(self, model: str, work: Work, rows: int, seconds: float) -> None:
        """See `confide.service.owner.Observer`."""
        if (model, work) not in self._seen:
            made = (self._rows, self._desk, self._group)
            self._seen[model, work] = tuple(one.labels(model, work) for one in made)  # type: ignore[assignment]
        counter, times, sizes = self._seen[model, work]
        counter.inc(rows)
        times.observe(seconds)
        sizes.observe(rows)

    def failed(self, model: str, work: Work, error: BaseException) -> None:
        """See `confide.service.owner.Observer`."""
        self._failed.labels(model, work).inc()
        self._log.error("failed", error, model=model, work=work)

    def ready(self, model: str, why: str | None) -> None:
        """See `confide.service.owner.Observer`: one line when a model fails, one a minute while it does, one after."""
        self._ready.labels(model).set(why is None)
        now, told = self._clock(), self._told.get(model)
        if why is None:
            if self._told.pop(model, None) is not None:
                self._log.event("recovered", model=model)
        elif told is None or now - told >= MINUTE:
            self._told[model] = now
            self._log.event("failed", model=model, why=why)

    def late(self, model: str) -> None:
        """A response missed its tick: an alarm, since that it did may tell something."""
        self._late.labels(model).inc()
        self._lates[model] += 1
        self._log.event("late", model=model)

    def lates(self, model: str) -> int:
        """How often that was."""
        return self._lates[model]

    def text(
        self, waiting: Mapping[str, Mapping[str, int]], ledgers: Mapping[str, Mapping[str, Any]],
        models: Container[str] | None = None,
    ) -> bytes:  # fmt: skip
        """Everything, for the operator's port; of these models alone, where some are given."""
        for model, rows in waiting.items():
            for work, number in rows.items():
                self._waiting.labels(model, work).set(number)
        for model, numbers in ledgers.items():
            for name, value in numbers.items():
                if isinstance(value, int | float):
                    self._ledger.labels(model, name).set(value)
        if models is None:
            return generate_latest(self.registry)
        chosen = CollectorRegistry()
        chosen.register(_Of(self.registry, models))
        return generate_latest(chosen)


class _Of:
    """The numbers of some models alone."""

    def __init__(self, registry: CollectorRegistry, models: Container[str]) -> None:
        self._registry, self._models = registry, models

    def collect(self) -> Iterable[Metric]:
        """Those numbers that name one of the models."""
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if one.labels.get("model") in self._models]
            yield metric


class _Public:
    """What everyone may see, as Prometheus collects it."""

    def __init__(self, models: Mapping[str, Mapping[str, Any]]) -> None:
        self._models = models

    def collect(self) -> Iterable[Metric]:
        """The numbers of all models."""
        rounds = CounterMetricFamily("confide_rounds", "Rounds taken", labels=["model"])
        state = GaugeMetricFamily("confide_state", "1 for the state the model is in", labels=["model", "state"])
        promise = GaugeMetricFamily("confide_guarantee", "What is promised to each unit", labels=["model", "part"])
        monitor = GaugeMetricFamily("confide_monitor", _MONITOR, labels=["model", "number"])
        for name, shown in self._models.items():
            rounds.add_metric([name], shown["rounds"])
            for one in STATES:
                state.add_metric([name, one], float(shown["state"] == one))
            for part in ("epsilon", "delta"):
                promise.add_metric([name, part], shown["guarantee"][part])
            for number, value in (shown.get("monitor") or {}).items():
                monitor.add_metric([name, number], value)
        return [rounds, state, promise, monitor]


def public_text(models: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Everything, for the public port: from what each model shows to everyone."""
    registry = CollectorRegistry()
    registry.register(_Public(models))
    return generate_latest(registry)
