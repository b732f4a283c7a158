"""The operator's dashboard: a page of the operator's port, and audits of fresh POPs.

The page is a few files without anything secret in them, so everybody who reaches the port may load them; all that they
show comes through the operator's door, with the token that is typed into the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from confide.planning.plan import Plan
from confide.service import forms
from confide.service.app import Model, Operations
from confide.service.base import Desk, Problem
from confide.service.dashboard.audits import AuditRunning, Audits

__all__ = ["add_dashboard"]

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
"""Nothing from elsewhere, nothing inline, nowhere else to send anything, and no frame around it."""


NO_AUDIT = (
    "these attacks are for promises about rows; where labels alone are protected the law of what comes out is known "
    "exactly, and attacked by confide.games on confide.Private"
)


def add_dashboard(app: FastAPI, operation: Operations) -> None:
    """Add the page, and what it needs beside the operator's other operations."""
    audits = Audits()
    _pages(app)

    @operation("GET", "/audit", "How the audit of a fresh POP stands")
    async def audit(found: Model, _: None) -> Mapping[str, Any]:
        """Null if there was none since the service began. Nothing in it comes from people: it may be shown."""
        return {"audit": audits.look(found.owner.name)}

    @operation("POST", "/audit", "Audit a fresh POP", forms.AUDIT)
    async def begin(found: Model, form: forms.Audit) -> Mapping[str, Any]:
        """Attack POPs that have this model's plan, and learn from rows that are made up; never the model itself."""
        plan, units = await found.owner.call(_recipe)
        if plan.promise.protect == "labels":
            raise Problem(422, "refused", NO_AUDIT)
        try:
            audits.start(found.owner.name, plan, units, form.games)
        except AuditRunning:
            raise Problem(409, "audit", "an audit is running: wait for its end, or stop it") from None
        return {"audit": audits.look(found.owner.name)}

    @operation("POST", "/audit/stop", "Stop the audit")
    async def stop(found: Model, _: None) -> Mapping[str, Any]:
        """What it has found so far is not kept."""
        audits.stop(found.owner.name)
        return {"audit": audits.look(found.owner.name)}


def _recipe(desk: Desk) -> tuple[Plan, str]:
    """All that an audit takes from a model: both are public."""
    return desk.plan, desk.public()["units"]


def _pages(app: FastAPI) -> None:
    """The page's files: these and no others, read once."""
    pages = {file.name: file.read_bytes() for file in (files(__name__) / "static").iterdir() if file.is_file()}

    @app.get("/", include_in_schema=False)
    @app.get("/dashboard/{file}", include_in_schema=False)
    async def page(request: Request) -> Response:
        name = request.path_params.get("file", "index.html")
        if name not in pages:
            raise Problem(404, "path", "there is nothing here: the dashboard is at /")
        return Response(pages[name], 200, HEADERS, KINDS[name.rpartition(".")[2]])
