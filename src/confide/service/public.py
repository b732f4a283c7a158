"""The public door: askers ask and bring labels; everyone may see what a model promises and where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import ASGIApp

from confide.service import forms
from confide.service.app import Guard, Model, Problem, Service, body, make_app, read, said
from confide.service.base import Refusal, Taught
from confide.service.metrics import public_text
from confide.service.pages import add_description
from confide.service.proxy import PASSED, Work
from confide.service.words import OVER

__all__ = ["public_app"]

Endpoint = Callable[[Request], Awaitable[Response]]

STATUS = {"malformed": 422, "label": 422, "conflict": 409, "ticket": 404, "halted": 410, "later": 503, "quota": 429}
"""How the refusal of one request looks from outside."""

OPERATIONS = frozenset(
    {"ask", "ask-many", "label", "label-many", "plan", "models", "metrics", "healthz", "readyz", "docs"}
)

ABOUT = """Ask a model, get an answer and a ticket; bring the right label back with the ticket, and it learns.
What one person tells it, nobody else finds out from their own answers: `GET /models/{model}` says what is promised.
"""


def public_app(service: Service) -> ASGIApp:
    """The app for the public port."""
    app = make_app("Confide", ABOUT, service.log)
    _asking(app, service)
    _looking(app, service)
    add_description(app, bearer="An asker's token.")
    return Guard(app, service, service.door, OPERATIONS, paced=True, most=service.limits.body)


def _passing(service: Service, work: Work, operation: str) -> Callable[[Endpoint], Endpoint]:
    """An operation on a model: done here, or, for a model that another process owns, passed on to it."""

    def either(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def operate(request: Request) -> Response:
            away = service.elsewhere.get(request.path_params["model"])
            if away is None:
                return await endpoint(request)
            # The owner asks again who it is; whom it would refuse does not reach it.
            whose = "" if work == "look" else service.caller(request).subject
            if PASSED in request.headers:
                raise Problem(508, "owner", "the owner that was named does not own this model: name the one that does")
            return await away.passed(work, operation, request.headers, None if work == "look" else body(request), whose)

        return operate

    return either


def _asking(app: FastAPI, service: Service) -> None:
    """What needs an asker's token."""
    passing = partial(_passing, service)
    most = f"{service.limits.batch:,}"

    def told(form: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
        failures: dict[int | str, dict[str, Any]] = {one: {"model": forms.Failure} for one in (401, 403, *statuses)}
        return {200: {"model": form}, **failures}

    @app.post(
        "/models/{model}/ask", summary="Ask one question", openapi_extra={"x-form": "ASK"},
        responses=told(forms.Answer, 409, 422),
    )  # fmt: skip
    @passing("ask", "ask")
    async def ask(request: Request) -> Response:
        """Takes one round, whether x can be read or not, and returns the label and a ticket."""
        model, caller = service.asker(request)
        question = (await read(request, forms.ASK)).question(caller.subject)
        (asked,) = await model.owner.ask([question])
        if asked.refusal is None:
            return said(forms.answer(question, asked))
        return said(forms.answer(question, asked), STATUS[asked.refusal.kind], asked.refusal.after)

    @app.post(
        "/models/{model}/ask-many", summary=f"Ask up to {most} questions", openapi_extra={"x-form": "ASK_MANY"},
        responses=told(forms.Answers, 413, 422),
    )  # fmt: skip
    @passing("ask", "ask-many")
    async def ask_many(request: Request) -> Response:
        """The rounds are taken in order; a question that is refused has an `error` where its answer would be."""
        model, caller = service.asker(request)
        given = (await read(request, forms.ASK_MANY, service.check_batch)).questions
        questions = [one.question(caller.subject) for one in given]
        asked = await model.owner.ask(questions)
        over = [one.refusal.after for one in asked if one.refusal is not None and one.refusal.kind == "quota"]
        told = {"answers": [forms.answer(*pair) for pair in zip(questions, asked, strict=True)]}
        if len(over) == len(asked):  # none took a round, nor ever did
            return said({**told, **forms.failure("quota", OVER)}, 429, over[0])
        return said(told)

    @app.post(
        "/models/{model}/label", summary="Bring the label of an answered question", openapi_extra={"x-form": "LABEL"},
        responses=told(forms.Taken, 404, 422),
    )  # fmt: skip
    @passing("label", "label")
    async def label(request: Request) -> Response:
        """Durable when it returns. A ticket is good once, in time, and for the asker who got it."""
        model, caller = service.asker(request)
        given = await read(request, forms.LABEL)
        (refusal,) = await model.owner.learn([Taught(caller.subject, given.ticket, given.label)])
        return said(_taken(refusal), 200 if refusal is None else STATUS[refusal.kind])

    @app.post(
        "/models/{model}/label-many", summary=f"Bring up to {most} labels", openapi_extra={"x-form": "LABEL_MANY"},
        responses=told(forms.Takens, 413, 422),
    )  # fmt: skip
    @passing("label", "label-many")
    async def label_many(request: Request) -> Response:
        """All good ones are taken, whatever the others are."""
        model, caller = service.asker(request)
        given = (await read(request, forms.LABEL_MANY, service.check_batch)).labels
        lessons = [Taught(caller.subject, one.ticket, one.label) for one in given]
        return said({"results": [_taken(one) for one in await model.owner.learn(lessons)]})


def _taken(refusal: Refusal | None) -> dict[str, Any]:
    if refusal is None:
        return {"taken": True}
    return {"taken": False, **forms.failure(refusal.kind, refusal.message)}


def _looking(app: FastAPI, service: Service) -> None:
    """What everyone may see, without a token."""

    passing = partial(_passing, service)

    async def shown(model: Model) -> Mapping[str, Any]:
        return await model.owner.look()

    async def all_shown() -> dict[str, Mapping[str, Any] | None]:
        there = await asyncio.gather(*(one.look() for one in service.elsewhere.values()))
        here = {name: await shown(model) for name, model in service.models.items()}
        return {**here, **dict(zip(service.elsewhere, there, strict=True))}

    @app.get("/models", summary="All models", openapi_extra={"x-open": True})
    async def models(request: Request) -> Response:
        """Their names, states and promises; of a model whose owner is away, that it is."""
        parts, told = ("state", "rounds", "units", "labels", "guarantee"), dict[str, Any]()
        for name, look in (await all_shown()).items():
            told[name] = {"state": "away"} if look is None else {part: look[part] for part in parts}
        return said({"models": told})

    @app.get("/models/{model}", summary="One model", openapi_extra={"x-open": True})
    @passing("look", "")
    async def model(request: Request) -> Response:
        """What it promises in one sentence, its plan, where it stands, and the private monitor's number."""
        found = service.model(request)
        every = None if found.ticks is None else found.ticks.every
        return said({**await shown(found), "draining": found.owner.draining, "release_every": every})

    @app.get("/models/{model}/plan", summary="One model's plan", openapi_extra={"x-open": True})
    @passing("look", "plan")
    async def plan(request: Request) -> Response:
        """All its numbers and tables, as a plan file: enough for anybody to certify the promise anew."""
        found = service.model(request)
        return Response(await found.owner.plan(), media_type="application/json")

    @app.get("/metrics", summary="For Prometheus", openapi_extra={"x-open": True})
    async def metrics(request: Request) -> Response:
        """Rounds, state, guarantee and monitor of every model: what everyone may see."""
        looks = {name: look for name, look in (await all_shown()).items() if look is not None}
        return Response(public_text(looks), media_type="text/plain; version=0.0.4; charset=utf-8")

    health(app, service)


def health(app: FastAPI, service: Service) -> None:
    """Whether the process lives, and whether it should be sent requests: on both ports, without a token."""

    @app.get("/healthz", summary="Whether the process lives", openapi_extra={"x-open": True})
    async def healthz(request: Request) -> Response:
        """503 if a thread that serves a model is gone, which only a restart mends; else 200."""
        if dead := [name for name, model in service.models.items() if not model.owner.alive]:
            return said({"status": "dead", "models": dead}, 503)
        return said({"status": "ok"})

    @app.get("/readyz", summary="Whether all models answer", openapi_extra={"x-open": True})
    async def readyz(request: Request) -> Response:
        """503 with the models that do not: while they drain, or until one that failed could be opened again."""
        if missing := await service.missing(here_only=PASSED in request.headers):
            return said({"status": "not ready", "models": missing}, 503)
        return said({"status": "ready"})
