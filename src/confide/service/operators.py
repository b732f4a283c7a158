"""The operator's door: history, forgetting, draining, saving, and numbers that nobody else may see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from confide.service import forms
from confide.service.app import Guard, Model, Problem, Service, body, make_app, read, said
from confide.service.base import Desk, Records
from confide.service.dashboard import add_dashboard
from confide.service.pages import add_description
from confide.service.public import health

__all__ = ["operator_api", "operator_app"]

OPERATIONS = frozenset(
    {
        "models", "history", "forget", "person", "drain", "save", "metrics", "healthz", "readyz", "docs", "audit",
        "stop", "dashboard",
    }
)  # fmt: skip

UNKNOWN = (
    "nothing is stored or counted under this name: is it spelled as the askers' door spells it? The copy that would "
    "have learned from them was reset all the same"
)

ABOUT = """For the operator's eyes: exact, private numbers that are outside every guarantee. Show them to nobody."""


def operator_app(service: Service) -> ASGIApp:
    """The app for the operator's port."""
    app, most = operator_api(service), service.limits.history_body
    return Guard(app, service, service.operators, OPERATIONS, paced=False, most=most)


def operator_api(service: Service) -> FastAPI:
    """The same without what is around it, for more pages to be added."""
    app = make_app("Confide, the operator's door", ABOUT, service.log)
    _looking(app, service)
    _doing(app, service)
    health(app, service)
    add_dashboard(app, service)
    add_description(app, bearer="An operator's token.")
    return app


def _both(desk: Desk) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return desk.public(), desk.private()


async def _seen(service: Service, name: str, model: Model) -> dict[str, Any]:
    """Everything there is to see of a model."""
    public, private = await model.owner.call(_both)
    owner = model.owner
    return {
        "name": name,
        "public": public,
        "private": private,
        "service": {
            "waiting": owner.waiting, "draining": owner.draining, "failure": owner.failure,
            "late": service.metrics.lates(name), "release_every": None if model.ticks is None else model.ticks.every,
        },
    }  # fmt: skip


def _looking(app: FastAPI, service: Service) -> None:
    @app.get("/models", summary="All models, with their private numbers")
    async def models(request: Request) -> Response:
        """Each with `public`, what may be shown, `private`, what may not, and `service`, how the queue does.

        `elsewhere` says where the owners of the other models are.
        """
        may = service.operator(request).may
        seen = [await _seen(service, name, model) for name, model in service.models.items() if may(name)]
        away = {name: one.url for name, one in service.elsewhere.items() if may(name)}
        return said({"models": seen, "elsewhere": away})

    @app.get("/models/{model}", summary="One model, with its private numbers")
    async def model(request: Request) -> Response:
        """The same for one model."""
        service.operator(request)
        return said(await _seen(service, request.path_params["model"], service.model(request)))

    @app.post("/models/{model}/person", summary="One person's rounds", openapi_extra={"x-form": "PERSON"})
    async def person(request: Request) -> Response:
        """A person's rounds and shares. By POST, so that no name stands in an address."""
        service.operator(request)
        found = service.model(request)
        subject = service.named((await read(request, forms.PERSON)).subject)
        return said({"person": await found.owner.call(lambda desk: desk.person(subject))})

    @app.get("/metrics", summary="For Prometheus: requests, labels, status codes, latencies, the ledger")
    async def metrics(request: Request) -> Response:
        """The operator's own numbers: of the models that their token is for."""
        caller = service.operator(request)
        waiting, ledgers = {}, {}
        for name, model in service.models.items():
            if not caller.may(name):
                continue
            waiting[name] = model.owner.waiting
            private = await model.owner.call(lambda desk: desk.private())
            ledgers[name] = private.get("ledger") or {}
        text = service.metrics.text(waiting, ledgers, caller.models)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _whose(service: Service, subject: str | None) -> str | None:
    """Whose a record is; nobody's where that is no name: it is refused by itself then, where people are protected."""
    try:
        return None if subject is None else service.named(subject)
    except Problem:
        return None


def _records(service: Service, rows: Sequence[forms.Record]) -> Records:
    return [(_whose(service, row.subject), row.x, row.label) for row in rows]


def _doing(app: FastAPI, service: Service) -> None:
    @app.post(
        "/models/{model}/history", summary="Teach labelled records that were never asked",
        openapi_extra={"x-form": "HISTORY"}, responses={200: {"model": forms.ImportResult}},
    )  # fmt: skip
    async def history(request: Request) -> Response:
        """Free of charge; where people are protected every row says whose it is. Send it again with the same id."""
        service.operator(request)
        model = service.model(request)
        form = await read(request, forms.HISTORY, partial(service.check_batch, most=service.limits.history))
        rows = await asyncio.to_thread(_records, service, form.rows)
        told = await model.owner.teach(rows, form.id)
        if told[0] is not None and told[0].kind == "conflict":
            raise Problem(409, "conflict", told[0].message)
        refused = [{"row": i, **forms.failure(one.kind, one.message)} for i, one in enumerate(told) if one is not None]
        return said({"taken": len(rows) - len(refused), "refused": refused})

    @app.post("/models/{model}/forget", summary="Forget a person", openapi_extra={"x-form": "PERSON"})
    async def forget(request: Request) -> Response:
        """Resets the copy that knows them; deletes their stored questions and answers.

        False, with a sentence, where nothing is known of them: names are as the askers' door has them.
        """
        service.operator(request)
        model = service.model(request)
        subject = service.named((await read(request, forms.PERSON)).subject)
        if await model.owner.call(lambda desk: desk.forget(subject)):
            return said({"forgotten": True})
        return said({"forgotten": False, "message": UNKNOWN})

    @app.post("/models/{model}/drain", summary="Take no further questions", openapi_extra={"x-form": "DRAIN"})
    async def drain(request: Request) -> Response:
        """Those that wait are answered, and labels are still taken; `{"on": false}` ends it."""
        service.operator(request)
        owner = service.model(request).owner
        owner.drain(forms.DRAIN.read(body(request) or b"{}").on)
        return said({"draining": owner.draining})

    @app.post("/models/{model}/save", summary="Write a snapshot")
    async def save(request: Request) -> Response:
        """What is loaded next starts from here."""
        service.operator(request)
        await service.model(request).owner.call(lambda desk: desk.save())
        return said({"saved": True})
