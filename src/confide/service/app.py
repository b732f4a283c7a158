"""What both doors of the service share: the models behind them, and what every request goes through."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from confide import __version__
from confide.service.base import AGAIN, RETRY, Problem
from confide.service.doors import Caller, Door, Tokens, subject_of
from confide.service.forms import F, Forms, failure
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.owner import Busy, Owner, Work, lane
from confide.service.pace import Ticks
from confide.service.past import Deeds, Past
from confide.service.posting import MergerServer
from confide.service.proxy import Proxy, Routed

__all__ = [
    "CALLER", "KNOWN", "WHOLE", "Guard", "Limits", "Model", "Operations", "Served", "Service", "body", "make_app",
    "read", "said",
]  # fmt: skip

LARGE = 50_000
"""Bytes of a body that is not read between two other requests."""

KNOWN = "confide.known"
"""In a request's `state`: what to call when the door has let its sender in, for the connection to be kept rather."""

WHOLE = "confide.whole"
"""In a request's `state`: a context; what is sent within it leaves in one piece when it ends."""

BODY, CALLER = "confide.body", "confide.caller"
"""In a request's scope, where the guard puts them: the body, and who sends it; None where the guard asks nobody."""

QUEUED: Mapping[str, Work] = {"ask": "ask", "ask-many": "ask", "label": "label", "label-many": "label"}
"""Operations that wait in a model's queue, and in which."""


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
    past: Past = field(default_factory=Past)


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
    elsewhere: Mapping[str, Proxy | Routed] = field(default_factory=dict)
    """Models that other processes own."""
    routed: Mapping[str, Routed] = field(default_factory=dict)
    """Models over partitions of which other processes own some."""
    mergers: Mapping[str, MergerServer] = field(default_factory=dict)
    """Of models whose sums this process adds up."""
    deeds: Deeds = field(default_factory=Deeds)

    def operator(self, request: Request) -> Caller:
        """Let an operator in, and nobody else; where the path names no model, they see those that are theirs alone."""
        known: Caller | None = request.scope[CALLER]  # None where there is no body: the guard asked nobody
        caller = known or self.operators.admit(request.headers, None)
        if "model" in request.path_params:
            caller.check(request.path_params["model"])
        return caller

    def named(self, subject: str) -> str:
        """Somebody whom an operator names, as the askers' door knows them."""
        try:
            return self.door.named(subject_of(subject))
        except ValueError as error:
            raise Problem(422, "form", str(error)) from None

    def model(self, name: str) -> Model:
        """The model of this name."""
        model = self.models.get(name)
        if model is None and (away := self.elsewhere.get(name)) is not None:
            raise Problem(421, "owner", f"go to the operator's port of the process that owns this model: {away.url}")
        if model is None:
            raise Problem(404, "model", "there is no such model: GET /models lists them")
        return model

    @property
    def slowest(self) -> Ticks | None:
        """The ticks by which everything leaves that is of no paced model; None where no model is paced."""
        known = (one.ticks for one in self.models.values() if one.ticks is not None)
        return max(known, key=lambda one: one.every, default=None)

    def check_batch(self, rows: int, most: int | None = None) -> None:
        """Refuse a batch that is too long, or empty."""
        most = self.limits.batch if most is None else most
        if not 0 < rows <= most:
            raise Problem(413 if rows else 422, "size", f"a batch has 1 to {most:,} rows")

    async def missing(self, here_only: bool) -> dict[str, str]:
        """The models that are not ready, and why."""
        owners = {name: model.owner for name, model in self.models.items()}
        failed = {name: "failed" for name, owner in owners.items() if owner.ended or not owner.alive}
        taught = {name: "history" for name, owner in owners.items() if owner.waits}
        here = taught | {name: "draining" for name, owner in owners.items() if owner.draining} | failed
        others = {} if here_only else self.elsewhere
        there = await asyncio.gather(*(one.missing() for one in others.values()))
        return here | {name: why for name, why in zip(others, there, strict=True) if why is not None}


def said(content: Mapping[str, Any], status: int = 200, retry: int = RETRY) -> Response:
    """A response in JSON; one that means "come again" says after how many seconds."""
    headers = {"retry-after": str(retry)} if status in AGAIN else None
    return Response(to_json(content), status, headers, "application/json")


def _told(problem: Problem) -> Response:
    """What the sender of a request that is not served is told."""
    response = said(failure(problem.kind, str(problem)), problem.status, problem.retry)
    if problem.kind == "token":
        response.headers["www-authenticate"] = "Bearer"
    if problem.status == 408:  # nobody waits for the rest
        response.headers["connection"] = "close"
    return response


def body(request: Request) -> bytes:
    """The request's body, which the guard has read."""
    content: bytes = request.scope[BODY]
    return content


async def read(request: Request, form: Forms[F], check: Callable[[int], None] | None = None) -> F:
    """The request's body in its form (`Forms.read`); a large one is read while others are served."""
    content: bytes = request.scope[BODY]
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
        return _told(error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = {404: "there is nothing here: see /docs", 405: "this is not how it is asked: see /docs"}
        response = _told(Problem(error.status_code, "path", words.get(error.status_code, "see /docs")))
        if error.status_code == 405:
            response.headers["allow"] = ", ".join(sorted(_methods(app, request.scope["path"])))
        return response

    async def unknown(request: Request, error: Exception) -> Response:
        return _told(_internal(error, log))

    for kind, handler in ((Problem, problem), (HTTPException, http), (Exception, unknown)):
        app.add_exception_handler(kind, handler)


def _internal(error: Exception, log: Log) -> Problem:
    """What everybody else is told of an error of ours: its words might quote a value."""
    log.error("error", error)
    return Problem(500, "internal", "something went wrong here: the operator has been told")


def _methods(app: FastAPI, path: str) -> set[str]:
    """What may be done with a path."""
    routes = (route for route in app.routes if isinstance(route, Route) and route.path_regex.match(path))
    found = {method for route in routes for method in route.methods or ()}
    return found | ({"HEAD"} if "GET" in found else set())


Served = Callable[[Request, str], Awaitable[Response]]
"""Serves a request for the model of this name."""

Operated = Callable[["Model", Any], Awaitable[Mapping[str, Any]]]
"""Does something with a model for its operator, with the form that was sent or None; gives what is told of it."""


class Operations:
    """Adds an operator's operations on one model to an app: lets an operator in, finds the model, reads the body."""

    def __init__(self, app: FastAPI, service: Service) -> None:
        self._app, self._service = app, service

    def __call__(
        self, method: str, part: str, summary: str, form: Forms[Any] | None = None,
        told: type[BaseModel] | None = None, check: Callable[[int], None] | None = None,
    ) -> Callable[[Operated], Operated]:  # fmt: skip
        """To be put before what does the operation."""
        service = self._service

        def add(endpoint: Operated) -> Operated:
            async def operate(request: Request) -> Response:
                caller, name = service.operator(request), request.path_params["model"]
                model = service.model(name)
                if method == "POST":
                    service.deeds.note(caller.subject, part.strip("/"), name)
                return said(await endpoint(model, None if form is None else await read(request, form, check)))

            operate.__doc__ = endpoint.__doc__
            self._app.add_api_route(
                f"/models/{{model}}{part}", operate, methods=[method], name=endpoint.__name__, summary=summary,
                openapi_extra=None if form is None else {"x-form": form.name},
                responses=None if told is None else {200: {"model": told}},
            )  # fmt: skip
            return endpoint

        return add


class Direct(APIRoute):
    """An operation that takes the request as it is: nothing of it is FastAPI's to read, so its part is left out."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = request_response(endpoint)


class Guard:
    """Around everything: reads the body within its limits, keeps errors in, counts, and lets responses leave at ticks.

    Nothing is read from somebody whom the door does not let in. The response is complete before any of it leaves, and
    nothing is held while it waits for its tick. What is asked most (`direct`, by operation) is called without the way
    through the app, which takes longer than a question does.
    """

    def __init__(
        self, app: ASGIApp, service: Service, door: Door, operations: frozenset[str], *, paced: bool, most: int,
        direct: Mapping[str, Served] | None = None,
    ) -> None:  # fmt: skip
        self._app, self._service, self._door, self._operations = app, service, door, operations
        self._most, self._known = most, {*service.models, *service.elsewhere}
        self._direct = {f"/models/{name}/{one}": f for name in self._known for one, f in (direct or {}).items()}
        # What is of no paced model leaves by the slowest of all ticks: every request takes time from the same process,
        # so that an unpaced one would tell what a paced model does.
        self._slowest = service.slowest if paced else None
        self._ticks = {name: model.ticks for name, model in service.models.items() if paced and model.ticks is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        service, sent, refused = self._service, list[Message](), cast(Problem | None, None)
        parts = scope["path"].split("/")  # for counting: names that we know, never what somebody made up
        name = parts[2] if len(parts) > 2 and parts[1] == "models" and parts[2] in self._known else ""
        operation = parts[-1] if parts[-1] in self._operations else "model" if name else "other"
        if scope["method"] == "HEAD":  # as GET; the server leaves the content out
            scope = {**scope, "method": "GET"}

        async def keep(message: Message) -> None:
            """Take a part of the response instead of sending it, and say that nobody may store it."""
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"cache-control", b"no-store")]
            sent.append(message)

        try:
            scope[CALLER] = self._admitted(scope, name, operation)
            scope[BODY] = b"" if scope[CALLER] is None else await self._body(scope, receive)
        except Exception as error:
            refused = error if isinstance(error, Problem) else _internal(error, service.log)
        began, ticks = service.clock(), self._ticks.get(name, self._slowest)
        turn = None if ticks is None else ticks.turn(began)  # before any work
        direct = self._direct.get(scope["path"]) if scope["method"] == "POST" else None
        if refused is None and direct is not None:
            try:
                await (await direct(Request(scope), name))(scope, receive, keep)
            except Exception as error:
                refused = error if isinstance(error, Problem) else _internal(error, service.log)
        elif refused is None:
            try:
                await self._app(scope, receive, keep)
            except Exception as error:
                if not sent:  # otherwise it was handled already, and passes by here once more
                    refused = _internal(error, service.log)
        if refused is not None:
            await _told(refused)(scope, receive, keep)
        service.metrics.responded(name, operation, sent[0]["status"], service.clock() - began)
        if turn is not None:
            await turn.leave()
        with scope.get("state", {}).get(WHOLE) or contextlib.nullcontext():
            for message in sent:
                await send(message)

    def _admitted(self, scope: Scope, name: str, operation: str) -> Caller | None:
        """Who sends a body, before anything of it is read; who may not use the model, or would only wait, is refused.

        None for a request without a body: what it asks for may be open to everyone.
        """
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return None
        client = scope.get("client")
        caller = self._door.admit(Headers(scope=scope), client[0] if client else None)
        if (known := scope.get("state", {}).get(KNOWN)) is not None:
            known()
        if name:
            caller.check(name)
        model, work = self._service.models.get(name), QUEUED.get(operation)
        if model is not None and work is not None and model.owner.full(lane(work, caller.subject)):
            raise Busy
        return caller

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        length = b"0"
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
                break
        if not length.isdigit() or len(length) > 12 or int(length) > self._most:
            raise self._too_large()
        if getattr(getattr(receive, "__self__", None), "more_body", True) is False:
            return await self._read(receive)  # by uvicorn's word all of it has come: nothing is waited for
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
