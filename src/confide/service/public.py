"""The public door: askers ask and bring labels; everyone may see what a model promises and where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import ASGIApp

from confide.service import forms
from confide.service.app import CALLER, Guard, Model, Served, Service, body, make_app, read, said
from confide.service.base import Problem, Refusal
from confide.service.doors import Caller
from confide.service.metrics import public_text
from confide.service.owner import Owner, Work
from confide.service.pages import add_description
from confide.service.partitioned import ELSEWHERE
from confide.service.proxy import PASSED, Proxy, Routed
from confide.service.words import OVER

__all__ = ["public_app"]

Asking = Callable[[Owner, str, Any], Awaitable[Response]]
"""Does something with a model for somebody: its owner, who asks, and the body that they sent."""

Looking = Callable[[Model], Awaitable[Response]]

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
    asking = _asking(app, service)
    _looking(app, service)
    add_description(app, bearer="An asker's token.")
    return Guard(app, service, service.door, OPERATIONS, paced=True, most=service.limits.body, direct=asking)


async def _passed(request: Request, away: Proxy | Routed, work: Work, operation: str, whose: str) -> Response:
    """What the process that owns a model says. It asks again who it is; whom it would refuse does not reach it."""
    if PASSED in request.headers and isinstance(away, Routed):
        raise Problem(503, "unavailable", ELSEWHERE)  # whoever passed it on has another file than this process
    if PASSED in request.headers:
        raise Problem(508, "owner", "the owner that was named does not own this model: name the one that does")
    return await away.passed(work, operation, request.headers, None if work == "look" else body(request), whose)


def _asking(app: FastAPI, service: Service) -> Mapping[str, Served]:
    """What needs an asker's token; by its name, what the guard may call without the app's way to it."""
    most, served = f"{service.limits.batch:,}", dict[str, Served]()

    def operation(
        work: Work, name: str, form: forms.Forms[Any], summary: str, told: type[BaseModel], *statuses: int
    ) -> Callable[[Asking], Asking]:
        """An operation on a model: done here, or, for a model that another process owns, passed on to it."""
        check = service.check_batch if name.endswith("-many") else None
        responses: dict[int | str, dict[str, Any]] = {one: {"model": forms.Failure} for one in (401, 403, *statuses)}

        def add(endpoint: Asking) -> Asking:
            async def serve(request: Request, model: str) -> Response:
                caller: Caller = request.scope[CALLER]  # whom the guard has let in, for a model that is known
                found = service.models.get(model)
                if found is None and (away := service.elsewhere.get(model)) is not None:
                    return await _passed(request, away, work, name, caller.subject)
                if (route := service.routed.get(model)) is not None and not route.here(caller.subject):
                    return await _passed(request, route, work, name, caller.subject)
                if found is None:
                    caller.check(model)
                    found = service.model(model)
                return await endpoint(found.owner, caller.subject, await read(request, form, check))

            async def operate(request: Request) -> Response:
                return await serve(request, request.path_params["model"])

            served[name], operate.__doc__ = serve, endpoint.__doc__
            app.post(
                f"/models/{{model}}/{name}", name=endpoint.__name__, summary=summary,
                openapi_extra={"x-form": form.name}, responses={200: {"model": told}, **responses},
            )(operate)  # fmt: skip
            return endpoint

        return add

    @operation("ask", "ask", forms.ASK, "Ask one question", forms.Answer, 409, 422)
    async def ask(owner: Owner, subject: str, form: forms.Ask) -> Response:
        """Takes one round, whether x can be read or not, and returns the label and a ticket."""
        (question,) = questions = form.asked(subject)
        (reply,) = await owner.ask(questions)
        if reply.refusal is None:
            return said(forms.answer(question, reply))
        return said(forms.answer(question, reply), STATUS[reply.refusal.kind], reply.refusal.after)

    @operation("ask", "ask-many", forms.ASK_MANY, f"Ask up to {most} questions", forms.Answers, 413, 422)
    async def ask_many(owner: Owner, subject: str, form: forms.AskMany) -> Response:
        """The rounds are taken in order; a question that is refused has an `error` where its answer would be."""
        questions = form.asked(subject)
        replies = await owner.ask(questions)
        over = [one.refusal.after for one in replies if one.refusal is not None and one.refusal.kind == "quota"]
        told = {"answers": list(map(forms.answer, questions, replies))}
        if len(over) == len(replies):  # none took a round, nor ever did
            return said({**told, **forms.failure("quota", OVER)}, 429, over[0])
        return said(told)

    @operation("label", "label", forms.LABEL, "Bring the label of an answered question", forms.Taken, 404, 422)
    async def label(owner: Owner, subject: str, form: forms.LabelOne) -> Response:
        """Durable when it returns. A ticket is good once, in time, and for the asker who got it."""
        (refusal,) = await owner.learn(form.taught(subject))
        return said(_taken(refusal), 200 if refusal is None else STATUS[refusal.kind])

    @operation("label", "label-many", forms.LABEL_MANY, f"Bring up to {most} labels", forms.Takens, 413, 422)
    async def label_many(owner: Owner, subject: str, form: forms.LabelMany) -> Response:
        """All good ones are taken, whatever the others are."""
        refused = await owner.learn(form.taught(subject))
        return said({"results": [_TAKEN if one is None else _taken(one) for one in refused]})

    return served


_TAKEN = {"taken": True}


def _taken(refusal: Refusal | None) -> dict[str, Any]:
    if refusal is None:
        return _TAKEN
    return {"taken": False, **forms.failure(refusal.kind, refusal.message)}


def _looking(app: FastAPI, service: Service) -> None:
    """What everyone may see, without a token."""

    def operation(part: str, summary: str) -> Callable[[Looking], Looking]:
        """A look at one model: here, or, for a model that another process owns, there."""

        def add(endpoint: Looking) -> Looking:
            async def operate(request: Request) -> Response:
                name = request.path_params["model"]
                if (away := service.elsewhere.get(name)) is not None:
                    return await _passed(request, away, "look", part, "")
                return await endpoint(service.model(name))

            operate.__doc__ = endpoint.__doc__
            path = f"/models/{{model}}/{part}" if part else "/models/{model}"
            app.get(path, openapi_extra={"x-open": True}, name=endpoint.__name__, summary=summary)(operate)
            return endpoint

        return add

    async def all_shown() -> dict[str, Mapping[str, Any] | None]:
        there = await asyncio.gather(*(one.look() for one in service.elsewhere.values()))
        here = {name: await model.owner.look() for name, model in service.models.items()}
        return {**here, **dict(zip(service.elsewhere, there, strict=True))}

    @app.get("/models", summary="All models", openapi_extra={"x-open": True})
    async def models(request: Request) -> Response:
        """Their names, states and promises; of a model whose owner is away, that it is."""
        parts, told = ("state", "rounds", "units", "labels", "guarantee"), dict[str, Any]()
        for name, look in (await all_shown()).items():
            told[name] = {"state": "away"} if look is None else {part: look[part] for part in parts}
        return said({"models": told})

    @operation("", "One model")
    async def model(found: Model) -> Response:
        """What it promises in one sentence, its plan, where it stands, and the private monitor's number."""
        every = None if found.ticks is None else found.ticks.every
        return said({**await found.owner.look(), "draining": found.owner.draining, "release_every": every})

    @operation("plan", "One model's plan")
    async def plan(found: Model) -> Response:
        """All its numbers and tables, as a plan file: enough for anybody to certify the promise anew."""
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
