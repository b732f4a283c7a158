"""The process that serves a deployment: two ports, one owner for each model, an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from confide.runs.names import learner_named
from confide.service.app import Limits, Model, Service
from confide.service.base import Desk
from confide.service.config import Config, DoorsConfig, ModelConfig, PartitionsConfig, Port
from confide.service.connections import PATIENCE, Connection, Places
from confide.service.doors import Door, Keys, Tokens
from confide.service.files import Room, raised, room_for
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.models import open_merger, partition_key, taken
from confide.service.operators import both, operator_app
from confide.service.owner import Owner
from confide.service.pace import Ticks
from confide.service.past import EVERY
from confide.service.posting import MergerServer
from confide.service.proxy import Proxy, Routed
from confide.service.public import public_app
from confide.service.verifiers import JwtDoor, ProxyDoor

__all__ = ["OpenDesk", "build", "door_of", "serve"]

OpenDesk = Callable[[str, ModelConfig, int | None], Desk]
"""Opens a model by its name and its part of the file, with a seed for tests."""

SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one run: requests should not wait for a whole vote."""

YOUNG = 10_000
"""New objects after which the youngest are searched for cycles."""

SWEEP = 600.0
"""Seconds between searches of everything: open tickets are many objects, and everybody waits meanwhile."""

GRACE = 10
"""Seconds that open connections have when the service stops."""


def door_of(config: DoorsConfig) -> Door:
    """How askers are known."""
    if config.kind == "tokens":
        return Tokens("asker", Keys.make(config.asker_keys))
    if config.kind == "jwt":
        assert config.jwt is not None
        options = config.jwt.model_dump(exclude={"key"})
        return JwtDoor.of(config.jwt.key, **options)
    if config.kind == "proxy":
        assert config.proxy is not None
        return ProxyDoor(config.proxy.header, config.proxy.trusted)
    door: Door = learner_named(config.kind)  # an object, or what makes one, by its import path
    return door


def build(config: Config, open_desk: OpenDesk, log: Log) -> Service:
    """Open all models; where one cannot be, those that were are closed again."""
    metrics, models, mergers = Metrics(log), dict[str, Model](), dict[str, MergerServer]()
    door, operators = door_of(config.doors), Tokens("operator", Keys.make(config.doors.operator_keys))
    if config.insecure_seed is not None:
        log.event("insecure: seeded, so nothing is promised")
    limits = config.limits
    try:
        for name, model in config.models.items():
            if (cut := model.partitions) is not None and cut.merges is not None:
                opens = partial(open_merger, name, model, config.insecure_seed)
                mergers[name] = MergerServer(opens, cut.merges.host, cut.merges.port, partition_key(cut.key))
                log.event("merges", model=name, port=mergers[name].port)
            if cut is not None and not cut.here:
                continue
            changed = taken(model)
            reopen = partial(open_desk, name, model, config.insecure_seed)
            desk = reopen()
            for entry in changed:
                log.event("taken", model=name, entry=entry)
            ticks = None if model.release_every is None else Ticks(model.release_every, partial(metrics.late, name))
            owner = Owner(
                desk, metrics, room=limits.room, requests=limits.requests, group=limits.group, timeout=limits.timeout,
                reopen=reopen,
            )  # fmt: skip
            models[name] = Model(owner, ticks)
            log.event("open", model=name)
            if (learned := _learned(desk)) is not None:
                log.event("learns", model=name, learns=learned)
            if desk.plan.promise.protect == "labels":
                log.event("protects", model=name, protects=desk.plan.guarantee.protected)
            for warning in desk.plan.warnings:
                log.event("warning", model=name, warning=warning)
    except BaseException:
        for opened in models.values():
            opened.owner.close()
        for merger in mergers.values():
            merger.close()
        raise
    passed = getattr(door, "passed", ("authorization",))
    proxy = partial(Proxy, headers=passed, room=limits.requests, timeout=limits.timeout)
    routed = {
        name: _routed(proxy, name, model.partitions)
        for name, model in config.models.items()
        if model.partitions is not None and model.partitions.there
    }
    elsewhere: dict[str, Proxy | Routed] = {name: proxy(name, one.owner) for name, one in config.elsewhere.items()}
    elsewhere |= {name: one for name, one in routed.items() if name not in models}
    numbers = Limits(limits.body, limits.batch, limits.history, limits.history_body, limits.timeout)
    return Service(
        models, door, operators, metrics, log, numbers, elsewhere=elsewhere, routed=routed, mergers=mergers
    )


def _routed(proxy: Callable[[str, str], Proxy], name: str, cut: PartitionsConfig) -> Routed:
    """To whom each person's requests go."""
    each = {url: proxy(name, url) for url in cut.there.values()}
    return Routed(partition_key(cut.key), cut.number, {number: each[url] for number, url in cut.there.items()})


def _learned(desk: Desk) -> str | None:
    """How much of one person is learned, in words (public); None where people are not protected."""
    guide, many = desk.plan.guide, desk.plan.promise.unit_labels
    if desk.plan.units != "people" or not desk.plan.public:
        return None
    most = "the first label" if many == 1 else f"the first {many:,} labels"
    if guide is None:
        return f"{most} of each person, ever: a further one is refused; unit_labels in a new model's file says how many"
    if (periods := desk.plan.promise.counted) is not None:
        often = f"in each period of {periods.per:,} rounds, in at most {periods.most:,} of them"
        return f"the guide learns {most} of each person {often}; unit_labels, per and periods in a new file say so"
    return f"the guide learns {most} of each person, ever; unit_labels in a new model's file says how many"


def serve(config: Config, open_desk: OpenDesk, log: Log, again: Callable[[], Config] | None = None) -> None:
    """Serve until a signal comes; then answer what waits, save, and give the models back.

    `again` reads the deployment's file anew, when a signal asks for it.
    """
    log.capture()
    sys.setswitchinterval(SWITCH)
    gc.set_threshold(YOUNG, 10, 1_000_000)  # everything is searched by `_sweep`, at times of its own
    ledgers = sum(1 if (cut := one.partitions) is None else len(cut.here) + 1 for one in config.models.values())
    room = room_for(raised(), config.limits.connections, ledgers, len(config.elsewhere))
    _outlive_terminal()
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_bound(port, room.backlog)) for port in (config.public, config.operator)]
        service = build(config, open_desk, log)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                hangup = partial(_hangup, service, config, again or (lambda: config))
                runner.run(_run(service, sockets, _places(config, room, service.slowest), room.backlog, hangup))
        finally:
            _outlive_terminal()  # the event loop has put back what was there before
            failures = list(_closed(service, log))
        if failures:
            raise failures[0]


def _closed(service: Service, log: Log) -> Iterator[BaseException]:
    for name, model in service.models.items():
        try:
            model.owner.close()
            log.event("closed", model=name)
        except BaseException as error:
            log.error("not closed", error, model=name)
            yield error
    for name, merger in service.mergers.items():
        try:
            merger.close()
            log.event("closed", merger=name)
        except BaseException as error:
            log.error("not closed", error, model=name)
            yield error


def _outlive_terminal() -> None:
    """SIGHUP ends nothing, whenever it comes; while the service serves, it reads the keys anew and saves."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


async def _hangup(service: Service, config: Config, again: Callable[[], Config]) -> None:
    """Read file and keys anew, then write a snapshot of every model, as the operator's door does."""
    try:
        _renew(service, config, again())
    except ValueError as error:  # our own sentences: they name files, and quote nothing that is in them
        service.log.event("not reloaded", why=str(error))
    for name, model in service.models.items():
        try:
            await model.owner.call(lambda desk: desk.save())
            service.log.event("saved", model=name)
        except Exception as error:
            service.log.error("not saved", error, model=name)


def _renew(service: Service, config: Config, fresh: Config) -> None:
    """Take all keys as the file names them now, or none of them; what else it says now is for the next start."""
    door, doors = service.door, fresh.doors
    operators = Keys.read(doors.operator_keys)
    if doors.kind != config.doors.kind:
        raise ValueError(f"doors.kind is {doors.kind!r} in the file, and {config.doors.kind!r} here: start it again")
    if isinstance(door, Tokens):
        door.renew(Keys.read(doors.asker_keys))
    elif isinstance(door, JwtDoor) and doors.jwt is not None:
        door.renew(doors.jwt.key, doors.jwt.algorithms)
    service.operators.renew(operators)
    service.log.event("reloaded")
    for entry in _changed(config, fresh):
        service.log.event("for the next start", entry=entry)


def _changed(config: Config, fresh: Config) -> list[str]:
    """The entries of the file that are not as they were, but for the places of keys, which are taken."""
    was, now = config.model_dump(), fresh.model_dump()
    for one in (was, now):
        del one["doors"]["asker_keys"], one["doors"]["operator_keys"]
        (one["doors"]["jwt"] or {}).pop("key", None)
    tables = [(name, was[name], now[name]) for name in was]
    found = list[str]()
    for name, old, new in tables:
        if old == new:
            continue
        if not (isinstance(old, dict) and isinstance(new, dict)):
            found.append(name)
            continue
        found += [f"{name}.{part}" for part in sorted(old.keys() | new.keys()) if old.get(part) != new.get(part)]
    return found


class _Server(uvicorn.Server):
    """One of two servers in a process: signals are for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to `_run`."""
        yield


def _places(config: Config, room: Room, ticks: Ticks | None = None) -> list[Places]:
    """Those of the two ports."""
    limits, doors = config.limits, config.doors
    proxies = [*limits.proxies, *(doors.proxy.trusted if doors.proxy is not None else ())]
    patience = max(PATIENCE, 1.5 * limits.timeout)  # a body has `timeout`, and is told so
    return [
        Places(room.public, limits.per_address, proxies, body=limits.body, patience=patience, ticks=ticks),
        Places(room.operator, room.operator, body=limits.history_body, patience=patience),
    ]


async def _run(
    service: Service, sockets: list[socket.socket], places: list[Places], backlog: int,
    hangup: Callable[[], Coroutine[Any, Any, None]],
) -> None:  # fmt: skip
    loop, log = asyncio.get_running_loop(), service.log
    loop.set_exception_handler(log.loop_error)
    apps = public_app(service), operator_app(service)
    servers = [_server(app, some, backlog) for app, some in zip(apps, places, strict=True)]

    def stop() -> None:
        log.event("stopping")
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    saving = set[asyncio.Task[None]]()
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, lambda: saving.add(asyncio.create_task(hangup())))
    ports = [one.getsockname()[1] for one in sockets]
    gc.collect()
    gc.freeze()  # what was opened stays until the end
    log.event("serving", public=ports[0], operator=ports[1])
    tasks = [asyncio.create_task(one) for one in (_sweep(), _remember(service), *(some.watch() for some in places))]
    await asyncio.gather(*(server.serve([one]) for server, one in zip(servers, sockets, strict=True)))
    for task in tasks:
        task.cancel()
    for one in {*service.elsewhere.values(), *service.routed.values()}:
        one.close()
    log.event("stopped")


async def _sweep() -> None:
    while True:
        await asyncio.sleep(SWEEP)
        gc.collect()


async def _remember(service: Service) -> None:
    """Look at every model now and then, so that the operator's page has a past to show."""
    while True:
        for model in service.models.values():
            if model.owner.failure is None:
                with contextlib.suppress(Exception):  # it is told where it is asked for
                    model.past.note(*await model.owner.call(both))
        await asyncio.sleep(EVERY)


def _server(app: ASGIApp, places: Places, backlog: int) -> _Server:
    # The access log would write who came from where; proxies' headers are for `ProxyDoor` to judge.
    config = uvicorn.Config(
        app, lifespan="off", access_log=False, log_config=None, log_level="warning", server_header=False,
        proxy_headers=False, ws="none", timeout_graceful_shutdown=GRACE, timeout_keep_alive=30, backlog=backlog,
        http=cast(type[asyncio.Protocol], partial(Connection, places)),
    )  # fmt: skip
    return _Server(config)


def _bound(port: Port, backlog: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in port.host else socket.AF_INET
        bound = socket.create_server((port.host, port.port), family=family, backlog=backlog)
    except OSError as error:
        raise ValueError(f"cannot listen on {port.host}:{port.port}: {error.strerror}") from None
    bound.setblocking(False)
    return bound


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A faster event loop, where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
