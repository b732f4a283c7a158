"""What a run writes, anywhere but into the asker's own response, has nothing of what people sent."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import Any

import httpx
import pytest

from confide.service.logs import Log
from confide.service.operators import operator_app
from confide.service.public import public_app
from tests.service.desks import MemoryDesk, operator, pop, service, token

CANARIES = ["canary-subject", "canary-id", "canary-x", "canary-label", "canary-ticket", "canary-key", "8675309.25"]


def people() -> dict[str, str]:
    return token("canary-subject")


async def everything(client: httpx.AsyncClient, door: httpx.AsyncClient) -> tuple[list[httpx.Response], list[str]]:
    """Every operation with canaries in every place; all responses, and the tickets and labels that were given out."""
    told, given = list[httpx.Response](), list[str]()

    async def send(operation: str, content: Any, at: httpx.AsyncClient = client, **more: Any) -> httpx.Response:
        headers = people() if at is client else operator()
        told.append(await at.post(f"/models/spam/{operation}", json=content, headers=headers, **more))
        return told[-1]

    good, bad = [8675309.25, 2.0], {"canary-key": "canary-x"}
    ticket = (await send("ask", {"x": good, "id": "canary-id"})).json()["ticket"]
    given.append(ticket)
    named = {"id": "canary-id"}
    for content in ({"x": good, **named}, {"x": bad, **named}, {"x": bad}, {"canary-key": "canary-x"}):
        await send("ask", content)
    answers = await send("ask-many", {"questions": [{"x": good}, {"x": bad, "id": "canary-id"}, {"x": "canary-x"}]})
    given += [one["ticket"] for one in answers.json()["answers"] if "ticket" in one]
    for content in ({"ticket": ticket, "label": "canary-label"}, {"ticket": "canary-ticket", "label": "yes"}):
        await send("label", content)
        await send("label-many", {"labels": [content, content]})
    await send("label", {"ticket": {"canary-key": "canary-ticket"}, "label": ["canary-label"]})
    await send("label", {"ticket": ticket, "label": "yes"})
    rows = [{"x": good, "label": "yes", "subject": "canary-subject"}, {"x": bad, "label": "canary-label"}]
    await send("history", {"rows": rows}, door)
    await send("history", {"rows": [{"canary-key": "canary-x"}]}, door)
    for operation in ("person", "forget"):
        await send(operation, {"subject": "canary-subject"}, door)
        await send(operation, {"canary-key": "canary-subject"}, door)
    for path in ("/models/canary-x/ask", "/models/spam/canary-x", "/canary-x", "/models/spam/ask?canary-key=canary-x"):
        told.append(await client.post(path, json={"x": "canary-x"}, headers=people()))
    for headers in ({"authorization": "Bearer canary-key"}, {"authorization": "canary-key canary-x"}):
        told.append(await client.post("/models/spam/ask", content=b"canary-x", headers=headers))
    told.append(await client.post("/models/spam/ask", content=b'{"x": canary-x', headers=people()))
    return told, given


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_private_is_written_and_nothing_is_echoed(capfd: Any, broken: bool) -> None:
    desk = MemoryDesk(pop_=pop(units="people"))
    made = service(desk, log=Log())  # standard error, as in a deployment
    logger = logging.getLogger()
    before = logger.handlers[:], logger.level
    made.log.capture()

    async def main() -> tuple[list[httpx.Response], list[str], str]:
        transports = [httpx.ASGITransport(public_app(made)), httpx.ASGITransport(operator_app(made))]
        async with (
            httpx.AsyncClient(transport=transports[0], base_url="http://test") as client,
            httpx.AsyncClient(transport=transports[1], base_url="http://test") as door,
        ):
            told, given = await everything(client, door)
            if broken:  # whatever goes wrong inside has a canary in its words

                def fail(*_: Any) -> Any:
                    raise RuntimeError("canary-x")

                desk.ask = desk.learn = desk.forget = fail  # type: ignore[method-assign]
                made.door.named = fail  # type: ignore[method-assign]
                told += [
                    await client.post("/models/spam/ask", json={"x": "canary-x"}, headers=people()),
                    await client.post("/models/spam/label", json={"ticket": "t", "label": "yes"}, headers=people()),
                    await door.post("/models/spam/forget", json={"subject": "canary-x"}, headers=operator()),
                ]
            logging.getLogger("uvicorn.error").warning("no such thing as %s", "canary-x")
            logging.getLogger("uvicorn.error").error("failed", exc_info=ValueError("canary-x"))
            logging.getLogger("somebody's").error("canary-x canary-label")
            public = (await client.get("/metrics")).text + (await client.get("/models")).text
            public += (await client.get("/models/spam")).text + (await client.get("/docs")).text
            private = await door.get("/metrics", headers=operator())
            return told, given, public + private.text

    try:
        told, given, shown = asyncio.run(main())
    finally:
        logger.handlers, logger.level = before[0], before[1]
        threading_hook()
    out, err = capfd.readouterr()
    assert err.count("\n") >= 3 + 3 * broken  # it does write
    headers = "".join(str(one.headers) for one in told)
    errors = "".join(one.text for one in told if one.status_code >= 400)
    for canary in (*CANARIES, *given):
        for name, text in (("out", out), ("err", err), ("pages", shown), ("headers", headers)):
            assert canary not in text, (canary, name)
    for canary in CANARIES:  # an asker's own id comes back to them, and nothing else does
        assert canary not in errors or canary == "canary-id", canary
    assert "canary-x" not in "".join(one.text for one in told)


def threading_hook() -> None:
    threading.excepthook = threading.__excepthook__


def test_a_leak_would_be_noticed(capfd: Any) -> None:
    print("canary-x", file=sys.stderr)
    assert "canary-x" in capfd.readouterr()[1]
