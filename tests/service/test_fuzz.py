"""Whatever is sent, made from the OpenAPI description or against it: no error of ours, and nothing is echoed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from confide import Plan
from confide.service import forms
from confide.service.app import Limits
from confide.service.operators import operator_app
from confide.service.public import public_app
from tests.service.desks import MemoryDesk, operator, pop, service, token

CANARY = "canary\N{SNOWMAN}"
LONG = Plan.tight(60.0, 1e-2, 20_000, copies=30, unsure=45, silent=19_950, guide=None)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=8), st.just(CANARY)
)
NAMES = st.text(max_size=6)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))
HEADERS = [token("ann"), token("bob"), operator(), {}, {"authorization": f"Bearer {CANARY.encode().hex()}"}]
RESPONSES = {"ask": forms.Answer, "ask-many": forms.Answers, "label": forms.Taken, "label-many": forms.Takens}
RESPONSES |= {"history": forms.ImportResult}  # type: ignore[dict-item]
ROWS = [{"x": [1.0, 2.0], "label": "yes", "subject": "ann"}]
OURS = {400, 401, 403, 404, 405, 408, 409, 410, 413, 422, 429}


def made_from(schema: dict[str, Any], schemas: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What a description allows, mostly."""
    if "$ref" in schema:
        return made_from(schemas[schema["$ref"].rsplit("/", 1)[-1]], schemas)
    if "anyOf" in schema:
        return st.one_of(*(made_from(one, schemas) for one in schema["anyOf"]))
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        needed = schema.get("required", [])
        parts = {name: made_from(part, schemas) for name, part in schema["properties"].items()}
        optional = {name: part for name, part in parts.items() if name not in needed}
        return st.fixed_dictionaries({name: parts[name] for name in needed}, optional=optional)
    if kind == "array":
        return st.lists(made_from(schema["items"], schemas), max_size=6)
    plain = {
        "string": st.sampled_from(["yes", "no", "ann", "a" if schema.get("minLength") else "", CANARY]),
        "integer": st.integers(), "number": st.floats(), "boolean": st.booleans(), "null": st.none(),
    }  # fmt: skip
    rows = st.lists(st.floats(-10, 10), min_size=2, max_size=2)
    return plain.get(kind, st.one_of(rows, JSON))  # type: ignore[arg-type]


class Doors:
    """Both doors of one service, in one event loop."""

    def __init__(self) -> None:
        self.service = service(MemoryDesk(pop_=pop(units="people", plan=LONG)), limits=Limits(body=20_000, batch=5))
        self.apps = {"public": public_app(self.service), "operator": operator_app(self.service)}
        self.loop = asyncio.new_event_loop()
        described = {name: self.send(name, "GET", "/openapi.json").json() for name in self.apps}
        self.operations = [
            (door, method.upper(), path, self.bodies(operation, told["components"]["schemas"]))
            for door, told in described.items()
            for path, operations in told["paths"].items()
            for method, operation in operations.items()
            for _ in range(3 if "requestBody" in operation else 1)
        ]

    @staticmethod
    def bodies(operation: dict[str, Any], schemas: dict[str, Any]) -> st.SearchStrategy[bytes]:
        wild = JSON.map(lambda x: json.dumps(x).encode()) | st.binary(max_size=60)
        if "requestBody" not in operation:
            return st.just(b"") | wild
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        fitting = made_from(schema, schemas).map(lambda x: json.dumps(x).encode())
        return st.one_of(fitting, fitting, fitting, wild)

    def send(self, door: str, method: str, path: str, **more: Any) -> httpx.Response:
        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(self.apps[door])
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **more)

        return self.loop.run_until_complete(main())


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def any_request(doors: Doors, data: st.DataObject) -> None:
    door, method, path, bodies = data.draw(st.sampled_from(doors.operations))
    right = [token("ann"), token("bob")] if door == "public" else [operator()] * 2
    body, header = data.draw(bodies), data.draw(st.sampled_from([*right * 3, *HEADERS]))
    model = data.draw(st.sampled_from([*["spam"] * 8, "nix", "%00", CANARY, "..", "a/b"]))
    method = data.draw(st.sampled_from([*[method] * 8, "GET", "POST", "PUT", "DELETE", "OPTIONS"]))
    told = doors.send(door, method, path.replace("{model}", model), content=body, headers=header)
    doors.service.models["spam"].owner.drain(False)
    assert told.status_code == 200 or told.status_code in OURS, (door, method, path, body)
    if told.status_code != 200:
        said = told.json()
        assert said["error"].keys() == {"kind", "message"}
        said.pop("id", None)  # what the sender calls it, so that the sender knows which it was
        assert CANARY not in json.dumps(said, ensure_ascii=False)
    elif (shape := RESPONSES.get(path.rsplit("/", 1)[-1])) is not None:
        shape.model_validate_json(told.content)


def test_no_request_makes_an_error_of_ours_or_comes_back() -> None:
    doors = Doors()
    any_request(doors)
    doors.send("operator", "POST", "/models/spam/audit/stop", headers=operator())
    taught = doors.send("operator", "POST", "/models/spam/history", headers=operator(), json={"rows": ROWS})
    assert taught.status_code == 200, taught.text
    own = doors.send("operator", "GET", "/metrics", headers=operator()).text
    for operation in ("ask", "ask-many", "label-many", "history", "person", "forget"):  # not all is refused at the door
        assert f'operation="{operation}",status="200"' in own, operation
    assert 'operation="ask",status="422"' in own and 'operation="label",status="404"' in own
    assert "confide_failed_groups_total{" not in own
    for model in doors.service.models.values():
        model.owner.close()
    doors.loop.close()
