"""The OpenAPI description of an app, and a page that shows it: no scripts, and nothing from other hosts.

FastAPI describes what an app returns. It does not read requests here (`confide.service.app.Direct`), so that who may
send them, and in which form, is added by hand: its own reading takes longer than ours, and its errors quote values.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from jinja2 import Environment
from starlette.responses import Response

from confide.runs import style
from confide.service.app import said
from confide.service.forms import FORMS

__all__ = ["add_description"]


def add_description(app: FastAPI, bearer: str) -> None:
    """Give a door its `/openapi.json` and `/docs`; after all its operations."""
    described = describe(app, bearer)
    shown = page(described)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return said(described)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return Response(shown, media_type="text/html")


def describe(app: FastAPI, bearer: str) -> dict[str, Any]:
    """What the app's operations take and return: their forms, who may use them, and worked examples."""
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "description": bearer}}
    for path, operations in found["paths"].items():
        for operation in operations.values():
            form, is_open = operation.pop("x-form", None), operation.pop("x-open", False)
            if not is_open:
                operation["security"] = [{"token": []}]
            if "{model}" in path:
                name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
                operation["parameters"] = [name]
            if form is not None:
                schema = FORMS[form].schema
                schemas |= schema.pop("$defs", {})
                content = {"schema": schema, "examples": {"worked": {"value": _example(schema, schemas)}}}
                operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return found


def _example(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """A worked example: its own, or made of its parts'; None where there is none."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[-1]]
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("type") == "array":
        return [_example(schema["items"], schemas)]
    parts = {name: _example(part, schemas) for name, part in schema.get("properties", {}).items()}
    return {name: part for name, part in parts.items() if part is not None} or None


def page(described: dict[str, Any]) -> str:
    """The description as a page."""

    def sent(operation: dict[str, Any]) -> str:
        value = operation["requestBody"]["content"]["application/json"]["examples"]["worked"]["value"]
        return json.dumps(value, ensure_ascii=False)

    def told(operation: dict[str, Any]) -> str:
        content = operation["responses"]["200"].get("content", {}).get("application/json", {})
        example = _example(content.get("schema", {}), described["components"]["schemas"])
        return "" if example is None else json.dumps(example, ensure_ascii=False)

    text = (files("confide.service") / "docs.html").read_text(encoding="utf-8")
    pages = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    pages.filters["said"] = style.said
    return pages.from_string(text).render(**described, sent=sent, told=told)
