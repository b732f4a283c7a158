"""The OpenAPI description of an app, and a page that shows it: no scripts, and nothing from other hosts."""

from __future__ import annotations

import html
import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from confide.service.app import said
from confide.service.forms import FORMS

__all__ = ["add_description"]

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
section { border-top: 1px solid #8888; padding: .5rem 0 }
pre { overflow-x: auto; padding: .7rem; background: #8882; border-radius: .3rem }
code { font-size: .9em }
.open { opacity: .7 }
"""


def add_description(app: FastAPI, bearer: str) -> None:
    """Give a door its `/openapi.json` and `/docs`; after all its operations."""
    described = describe(app, bearer)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return said(described)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return Response(page(described), media_type="text/html")


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
    """A worked example: its own, or made of its parts'."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[-1]]
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("type") == "array":
        return [_example(schema["items"], schemas)]
    return {name: _example(part, schemas) for name, part in schema.get("properties", {}).items()}


def page(described: dict[str, Any]) -> str:
    """The description as a page."""
    schemas, parts = described["components"]["schemas"], []
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(method.upper(), path, operation, schemas))
    info = described["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style><h1>{escape(info['title'])}</h1>"
        f"<p>{escape(info.get('description', ''))}</p><p><a href='openapi.json'>OpenAPI</a></p>{''.join(parts)}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    needs = "token" if operation.get("security") else "open to everyone"
    text = f"<h2>{escape(operation['summary'])}</h2><p><code>{method} {escape(path)}</code> "
    text += f"<span class=open>{needs}</span></p><p>{escape(operation.get('description', ''))}</p>"
    asked = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if asked:
        sent = json.dumps(asked["examples"]["worked"]["value"], ensure_ascii=False)
        text += f"<pre>{escape(_curl(method, path, sent))}</pre>"
    told = operation.get("responses", {}).get("200", {}).get("content", {}).get("application/json", {}).get("schema")
    if told:
        example = json.dumps(_example(told, schemas), ensure_ascii=False)
        text += f"<pre>{escape(example)}</pre>" if example not in ("{}", "null") else ""
    return f"<section>{text}</section>"


def _curl(method: str, path: str, sent: str) -> str:
    return f"curl -X {method} -H 'Authorization: Bearer …' \\\n  -d '{sent}' \\\n  https://…{path}"


def escape(text: str) -> str:
    """Text between tags."""
    return html.escape(text, quote=False)
