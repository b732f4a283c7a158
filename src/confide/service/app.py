"""What both doors of the service share: the models behind them, and what every request goes through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from confide import __version__
from confide.service.doors import Caller, Door, NotAdmitted, Tokens, subject_of
from confide.service.forms import BadForm, F, Forms, failure
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.owner import Busy, CallRefused, Expired, Owner, Unavailable, Work
from confide.service.pace import Ticks
from confide.service.proxy import Proxy

__all__ = ["Guard", "Limits", "Model", "Problem", "Service", "body", "make_app", "read", "said"]

RETRY = 1
"""Seconds after which to come again, where nobody knows better."""

LARGE = 50_000
"""Bytes of a body that is not read between two other requests."""

KNOWN = "confide.known"
"""In a request's `state`: what to call when the door has let its sender in, for the connection to be kept rather."""

AGAIN = frozenset({429, 503, 504})
"""Statuses that mean: come again, with the same id or ticket. None of them leaves without `Retry-After`."""


BUSY = "too many requests wait: come again in a moment, with the same id"

QUEUED: Mapping[str, Work] = {"ask": "ask", "ask-many": "ask", "label": "label", "label-many": "label"}
"""Operations that wait in a model's queue, and in which."""


class Problem(Exception):
    """A request that is not served, and why."""

    def __init__(self, status: int, kind: str, message: str, retry: int = RETRY) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry = status, kind, retry


@dataclass(frozen=True)
class Limits:
    """How much may be asked at once: public numbers."""

    body: int = 1_000_000
    """Bytes of a request."""
    batch: int = 1024
    """Rows of a batch."""
    history: int = 100_000
    """Rows of an operator's import, and …"""
    history_body: int = 100_000_000
    """… its bytes."""
    timeout: float = 10.0
    """Seconds that anybody waits for an answer, or for the rest of a request."""


@dataclass(frozen=True)
class Model:
    """One model of the deployment."""

    owner: Owner
    ticks: Ticks | None = None


@dataclass
class Service:
    """All models, who may come in, and what is told to whom."""

    models: Mapping[str, Model]
    door: Door
    operators: Tokens
    metrics: Metrics
    log: Log
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.perf_counter
    elsewhere: Mapping[str, Proxy] = field(default_factory=dict)
    """Models that other processes own."""

    def asker(self, request: Request) -> tuple[Model, Caller]:
        """Who asks, and which model."""
        caller = self.caller(request)
        return self.model(request), caller

    def caller(self, request: Request) -> Caller:
        """Who asks, if they may use the model that the path names."""
        caller = self.door.admit(request.headers, request.client.host if request.client else None)
        caller.check(request.path_params["model"])
        return caller

    def operator(self, request: Request) -> Caller:
        """Let an operator in, and nobody else; where the path names no model, they see those that are theirs alone."""
        caller = self.operators.admit(request.headers, None)
        if "model" in request.path_params:
            caller.check(request.path_params["model"])
        return caller

    def named(self, subject: str) -> str:
        """Somebody whom an operator names, as the askers' door knows them."""
        try:
            return self.door.named(subject_of(subject))
        except ValueError as error:
            raise Problem(422, "form", str(error)) from None

    def model(self, request: Request) -> Model:
        """The model that the path names."""
        model = self.models.get(request.path_params["model"])
        if model is None and (away := self.elsewhere.get(request.path_params["model"])) is not None:
            raise Problem(421, "owner", f"go to the operator's port of the process that owns this model: {away.url}")
        if model is None:
            raise Problem(404, "model", "there is no such model: GET /models lists them")
        return model

    @property
    def slowest(self) -> Ticks | None:
        """The ticks by which everything leaves that is of no paced model; None where no model is paced."""
        known = (one.ticks for one in self.models.values() if one.ticks is not None)
        return max(known, key=lambda one: one.every, default=None)

    def knows(self, name: str) -> bool:
        """Whether there is a model of this name, here or elsewhere."""
        return name in self.models or name in self.elsewhere

    def check_batch(self, rows: int, most: int | None = None) -> None:
        """Refuse a batch that is too long, or empty."""
        most = self.limits.batch if most is None else most
        if not 0 < rows <= most:
            raise Problem(413 if rows else 422, "size", f"a batch has 1 to {most:,} rows")

    async def missing(self, here_only: bool) -> dict[str, str]:
        """The models that are not ready, and why."""
        failed = {name: "failed" for name, model in self.models.items() if model.owner.failure is not None}
        taught = {name: "history" for name, model in self.models.items() if model.owner.waits}
        here = taught | {name: "draining" for name, model in self.models.items() if model.owner.draining} | failed
        others = {} if here_only else self.elsewhere
        there = await asyncio.gather(*(one.missing() for one in others.values()))
        return here | {name: why for name, why in zip(others, there, strict=True) if why is not None}


def said(content: Mapping[str, Any], status: int = 200, retry: int = RETRY) -> Response:
    """A response in JSON; one that means "come again" says after how many seconds."""
    headers = {"retry-after": str(retry)} if status in AGAIN else None
    return Response(to_json(content), status, headers, "application/json")


def _stopped(problem: Problem) -> Response:
    """To a request whose body was not read to its end."""
    response = said(failure(problem.kind, str(problem)), problem.status, problem.retry)
    if problem.status == 408:  # nobody waits for the rest
        response.headers["connection"] = "close"
    return response


def _outside(error: NotAdmitted) -> Response:
    response = said(failure("token", str(error)), error.status)
    response.headers["www-authenticate"] = "Bearer"
    return response


def body(request: Request) -> bytes:
    """The request's body, which the guard has read."""
    content: bytes = request.scope["confide.body"]
    return content


async def read(request: Request, form: Forms[F], check: Callable[[int], None] | None = None) -> F:
    """The request's body in its form (`Forms.read`); a large one is read while others are served."""
    content = body(request)
    return form.read(content, check) if len(content) <= LARGE else await asyncio.to_thread(form.read, content, check)


def make_app(title: str, about: str, log: Log) -> FastAPI:
    """An app without operations."""
    options: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    # No redirects: they would name the host that the sender named, and a scheme that a proxy has taken off.
    app = FastAPI(title=title, version=__version__, description=about, redirect_slashes=False, **options)
    app.router.route_class = Direct
    _handlers(app, log)
    return app


def _handlers(app: FastAPI, log: Log) -> None:
    """How errors become responses: each in our own words, and none quotes a request."""

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return said(failure(error.kind, str(error)), error.status, error.retry)

    async def form(request: Request, error: Exception) -> Response:
        return said(failure("form", str(error)), 422)

    async def refused(request: Request, error: Exception) -> Response:
        return said(failure("refused", str(error)), 422)

    async def outside(request: Request, error: Exception) -> Response:
        assert isinstance(error, NotAdmitted)
        return _outside(error)

    async def busy(request: Request, error: Exception) -> Response:
        return said(failure("busy", BUSY), 429)

    async def away(request: Request, error: Exception) -> Response:
        return said(failure("unavailable", str(error)), 503)

    async def expired(request: Request, error: Exception) -> Response:
        return said(failure("timeout", str(error)), 504)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = {404: "there is nothing here: see /docs", 405: "this is not how it is asked: see /docs"}
        response = said(failure("path", words.get(error.status_code, "see /docs")), error.status_code)
        if error.status_code == 405:
            response.headers["allow"] = ", ".join(sorted(_methods(app, request.scope["path"])))
        return response

    async def unknown(request: Request, error: Exception) -> Response:
        log.error("error", error)
        return said(failure("internal", "something went wrong here: the operator has been told"), 500)

    for kind, handler in (
        (Problem, problem), (BadForm, form), (NotAdmitted, outside), (Busy, busy), (Unavailable, away),
        (Expired, expired), (CallRefused, refused),
        (HTTPException, http), (Exception, unknown),
    ):  # fmt: skip
        app.add_exception_handler(kind, handler)


def _methods(app: FastAPI, path: str) -> set[str]:
    """What may be done with a path."""
    routes = (route for route in app.routes if isinstance(route, Route) and route.path_regex.match(path))
    found = {method for route in routes for method in route.methods or ()}
    return found | ({"HEAD"} if "GET" in found else set())


class Direct(APIRoute):
    """An operation that takes the request as it is: nothing of it is FastAPI's to read, so its part is left out."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = request_response(endpoint)


class Guard:
    """Around everything: reads the body within its limits, keeps errors in, counts, and lets responses leave at ticks.

    Nothing is read from somebody whom the door does not let in. The response is complete before any of it leaves, and
    nothing is held while it waits for its tick.
    """

    def __init__(
        self, app: ASGIApp, service: Service, door: Door, operations: frozenset[str], *, paced: bool, most: int
    ) -> None:
        self._app, self._service, self._door, self._operations = app, service, door, operations
        self._paced, self._most = paced, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        service = self._service
        name, operation = self._names(scope["path"])
        sent, ticks = list[Message](), self._ticks(name)
        turn, began = None, service.clock()
        if scope["method"] == "HEAD":  # as GET; the server leaves the content out
            scope = {**scope, "method": "GET"}
        try:
            scope["confide.body"] = await self._body(scope, receive, partial(self._check, name, operation))
            began = service.clock()
            turn = None if ticks is None else ticks.turn(began)  # before any work
            await self._app(scope, receive, _Keep(sent))
        except Problem as problem:
            began = service.clock()
            await _stopped(problem)(scope, receive, _Keep(sent))
        except NotAdmitted as error:
            began = service.clock()
            await _outside(error)(scope, receive, _Keep(sent))
        except Exception as error:
            if not sent:  # otherwise it was handled already, and passes by here once more
                service.log.error("error", error)
                await said(failure("internal", "something went wrong here"), 500)(scope, receive, _Keep(sent))
        service.metrics.responded(name, operation, sent[0]["status"], service.clock() - began)
        if ticks is not None:
            await (turn or ticks.turn(began)).leave()
        for message in sent:
            await send(message)

    def _ticks(self, name: str) -> Ticks | None:
        """What a response leaves by: its model's ticks; for anything else the slowest of all.

        Every request takes time from the same process, so that an unpaced one would tell what a paced model does.
        """
        model = self._service.models.get(name)
        own = None if model is None else model.ticks
        return (own or self._service.slowest) if self._paced else None

    def _names(self, path: str) -> tuple[str, str]:
        """Model and operation, for counting: names that we know, never what somebody made up."""
        parts = path.split("/")
        model = parts[2] if len(parts) > 2 and parts[1] == "models" and self._service.knows(parts[2]) else ""
        operation = parts[-1] if parts[-1] in self._operations else "model" if model else "other"
        return model, operation

    def _check(self, name: str, operation: str, caller: Caller) -> None:
        """Refuse who may not use the model, and then what would only wait, before anything of it is read."""
        if name:
            caller.check(name)
        model, work = self._service.models.get(name), QUEUED.get(operation)
        if model is not None and work is not None and model.owner.full(work, whose=caller.subject):
            raise Problem(429, "busy", BUSY)

    async def _body(self, scope: Scope, receive: Receive, check: Callable[[Caller], None]) -> bytes:
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return b""
        client = scope.get("client")
        caller = self._door.admit(Headers(scope=scope), client[0] if client else None)
        scope.get("state", {}).get(KNOWN, _nothing)()
        check(caller)
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not length.isdigit() or len(length) > 12 or int(length) > self._most:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._service.limits.timeout):
                return await self._read(receive)
        except TimeoutError:
            raise Problem(408, "timeout", "the request came too slowly") from None

    async def _read(self, receive: Receive) -> bytes:
        parts, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "form", "the request ended early")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                raise self._too_large()
            more = message.get("more_body", False)
        return b"".join(parts)

    def _too_large(self) -> Problem:
        return Problem(413, "size", f"a request has at most {self._most:,} bytes")


def _nothing() -> None:
    """Of a connection that need not know."""


class _Keep:
    """Takes a response instead of sending it, and says that nobody may store it."""

    def __init__(self, sent: list[Message]) -> None:
        self._sent = sent

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"cache-control", b"no-store")]
        self._sent.append(message)
