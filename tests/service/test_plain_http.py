"""Small things that HTTP expects: methods, redirects, and when to come again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from confide.service.app import Limits, Service
from confide.service.base import Refusal
from confide.service.operators import operator_app
from confide.service.public import STATUS, public_app
from tests.service.desks import MemoryDesk, operator, service, token
from tests.service.test_http import X, at, go, post

AGAIN = {429, 503, 504}
"""When the page says that somebody is told to come again."""


@pytest.mark.parametrize("path", ["/models/", "/models/spam/", "/models/spam/plan/", "/healthz/", "/docs/"])
@pytest.mark.parametrize("app", [public_app, operator_app])
def test_nobody_is_redirected(app: Any, path: str) -> None:
    """A redirect would be built from what the sender says the host is, and from a scheme that the proxy took off."""

    async def main() -> None:
        async with at(service(), app) as client:
            told = await client.get(path, headers={"host": "evil.example", **operator()})
            assert told.status_code == 404 and "location" not in told.headers and "evil" not in told.text

    go(main())


def test_head_is_get_without_the_content() -> None:
    async def main() -> None:
        async with at(service()) as client:
            for path in ("/healthz", "/models", "/models/spam", "/models/spam/plan", "/docs", "/nowhere"):
                got, head = await client.get(path), await client.head(path)
                assert head.status_code == got.status_code and head.content == b""
                assert head.headers["content-length"] == str(len(got.content))
            assert "head" not in (await client.get("/openapi.json")).json()["paths"]["/models"]

    go(main())


def test_what_may_be_done_with_a_path_is_said_where_something_else_was_tried() -> None:
    async def main() -> None:
        made = service()
        async with at(made) as client:
            assert (await client.put("/models", headers=token())).headers["allow"] == "GET, HEAD"
            assert (await client.get("/models/spam/ask")).headers["allow"] == "POST"
        async with at(made, operator_app) as client:
            told = await client.delete("/models/spam/audit", headers=operator())
            assert told.status_code == 405 and told.headers["allow"] == "GET, HEAD, POST"

    go(main())


class Later(MemoryDesk):
    """Could not write a label down."""

    def learn(self, lessons: Any) -> Any:
        return [Refusal("later", "bring it again")] * len(lessons)


def test_whoever_is_told_to_come_again_is_told_when() -> None:
    async def main() -> None:
        stuck = MemoryDesk()
        stuck.gate.clear()
        async with at(service(stuck, limits=Limits(timeout=0.05))) as client:
            told = [await post(client, "ask", X)]
        stuck.gate.set()
        made = service(Later())
        async with at(made) as client, at(made, operator_app) as private:
            ticket = (await post(client, "ask", X)).json()["ticket"]
            told.append(await post(client, "label", {"ticket": ticket, "label": "yes"}))
            assert (await private.post("/models/spam/drain", headers=operator())).status_code == 200
            told += [await post(client, "ask", X), await client.get("/readyz")]
        assert [one.status_code for one in told] == [504, 503, 503, 503]
        assert all(int(one.headers["retry-after"]) >= 1 for one in told)

    go(main())
    assert {STATUS["later"]} <= AGAIN


def asked(made: Service, *messages: dict[str, Any], **headers: str) -> tuple[int, dict[str, str]]:
    """Status and headers of a POST whose body comes in these messages, and then nothing more."""
    sent, parts = list[Any](), list(messages)

    async def receive() -> Any:
        return parts.pop(0) if parts else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    given = {**token(), "content-length": "9", **headers}
    scope = {
        "type": "http", "method": "POST", "path": "/models/spam/ask", "raw_path": b"", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()], "client": ("127.0.0.1", 1),
    }  # fmt: skip
    go(public_app(made)(scope, receive, send))
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@pytest.mark.parametrize("begun", [[], [{"type": "http.request", "body": b"{", "more_body": True}]])
def test_a_body_that_does_not_come_is_not_waited_for(begun: list[dict[str, Any]]) -> None:
    status, headers = asked(service(limits=Limits(timeout=0.05)), *begun)
    assert status == 408 and headers["connection"] == "close"


def test_who_hangs_up_before_the_body_takes_no_round() -> None:
    desk = MemoryDesk()
    status, _ = asked(service(desk), {"type": "http.disconnect"})
    assert status == 400 and desk.pop.rounds == 0
