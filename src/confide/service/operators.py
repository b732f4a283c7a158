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
from confide.service.app import Guard, Model, Operations, Service, make_app, said
from confide.service.base import Desk, Problem, Records
from confide.service.dashboard import add_dashboard
from confide.service.pages import add_description
from confide.service.public import health

__all__ = ["both", "operator_app"]

OPERATIONS = frozenset(
    {
        "models", "history", "forget", "person", "drain", "save", "metrics", "healthz", "readyz", "docs", "audit",
        "stop", "dashboard",
    }
)  # fmt: skip

UNKNOWN = "nothing is stored or counted under this name: is it spelled as the askers' door spells it?"
RESET = " The copy that would have learned from them was reset all the same"

ABOUT = """For the operator's eyes: exact, private numbers that are outside every guarantee. Show them to nobody."""


def operator_app(service: Service) -> ASGIApp:
    """The app for the operator's port."""
    app = make_app("Confide, the operator's door", ABOUT, service.log)
    operation = Operations(app, service)
    _looking(app, service, operation)
    _doing(service, operation)
    health(app, service)
    add_dashboard(app, operation)
    add_description(app, bearer="An operator's token.")
    return Guard(app, service, service.operators, OPERATIONS, paced=False, most=service.limits.history_body)


def both(desk: Desk) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What of a model may be shown, and what may not."""
    return desk.public(), desk.private()


async def _seen(service: Service, model: Model) -> dict[str, Any]:
    """Everything there is to see of a model."""
    owner = model.owner
    public, private = await owner.call(both)
    model.past.note(public, private)
    return {
        "name": owner.name,
        "public": public,
        "private": private,
        "service": {
            "waiting": owner.waiting, "draining": owner.draining, "failure": owner.failure,
            "late": service.metrics.lates(owner.name),
            "release_every": None if model.ticks is None else model.ticks.every,
            "past": model.past.moments, "deeds": service.deeds.of(owner.name),
        },
    }  # fmt: skip


def _looking(app: FastAPI, service: Service, operation: Operations) -> None:
    @app.get("/models", summary="All models, with their private numbers")
    async def models(request: Request) -> Response:
        """Each with `public`, what may be shown, `private`, what may not, and `service`: how the queue does, how the
        model did since the service began, and which operator did what.

        `elsewhere` says where the owners of the other models are.
        """
        may = service.operator(request).may
        seen = [await _seen(service, model) for name, model in service.models.items() if may(name)]
        away = {name: one.url for name, one in service.elsewhere.items() if may(name)}
        return said({"models": seen, "elsewhere": away})

    @operation("GET", "", "One model, with its private numbers")
    async def model(found: Model, _: None) -> Mapping[str, Any]:
        """The same for one model."""
        return await _seen(service, found)

    @operation("POST", "/person", "One person's rounds", forms.PERSON)
    async def person(found: Model, form: forms.Person) -> Mapping[str, Any]:
        """A person's rounds and shares. By POST, so that no name stands in an address."""
        subject = service.named(form.subject)
        return {"person": await found.owner.call(lambda desk: desk.person(subject))}

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


def _whose(service: Service, subject: Any) -> str | None:
    """Whose a record is; nobody's where that is no name: it is refused by itself then, where people are protected."""
    try:
        return service.named(subject) if isinstance(subject, str) else None
    except Problem:
        return None


def _records(service: Service, rows: Sequence[forms.Record]) -> Records:
    return [(_whose(service, row.subject), row.x, row.label) for row in rows]


def _doing(service: Service, operation: Operations) -> None:
    check = partial(service.check_batch, most=service.limits.history)

    @operation(
        "POST", "/history", "Teach labelled records that were never asked", forms.HISTORY, forms.ImportResult, check
    )
    async def history(found: Model, form: forms.History) -> Mapping[str, Any]:
        """Free of charge; where people are protected every row says whose it is. Send it again with the same id."""
        rows = await asyncio.to_thread(_records, service, form.rows)
        told = await found.owner.teach(rows, form.id)
        if told[0] is not None and told[0].kind == "conflict":
            raise Problem(409, "conflict", told[0].message)
        refused = [{"row": i, **forms.failure(one.kind, one.message)} for i, one in enumerate(told) if one is not None]
        return {"taken": len(rows) - len(refused), "refused": refused}

    @operation("POST", "/forget", "Forget a person", forms.PERSON)
    async def forget(found: Model, form: forms.Person) -> Mapping[str, Any]:
        """Resets the copy that knows them; deletes their stored questions and answers.

        False, with a sentence, where nothing is known of them: names are as the askers' door has them.
        """
        subject = service.named(form.subject)
        known, copies = await found.owner.call(lambda desk: (desk.forget(subject), desk.plan.copies))
        if known:
            return {"forgotten": True}
        return {"forgotten": False, "message": UNKNOWN + (RESET if copies else "")}

    @operation("POST", "/drain", "Take no further questions", forms.DRAIN)
    async def drain(found: Model, form: forms.Drain) -> Mapping[str, Any]:
        """Those that wait are answered, and labels are still taken; `{"on": false}` ends it."""
        found.owner.drain(form.on)
        return {"draining": found.owner.draining}

    @operation("POST", "/save", "Write a snapshot")
    async def save(found: Model, _: None) -> Mapping[str, Any]:
        """What is loaded next starts from here."""
        await found.owner.call(lambda desk: desk.save())
        return {"saved": True}
