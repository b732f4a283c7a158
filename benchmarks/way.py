"""The way of one question: how many of Confide's own functions it calls, and in how many modules.

    python benchmarks/way.py             `POP.predict` in process, and an ask over HTTP from its body to its response
    python benchmarks/way.py --calls     and every call, in order

An ask over HTTP goes through the app of the public port, the model's owner and its desk with a ledger on the disk. The
server's own part, before the app and behind it, is not counted, and of libraries nothing is. A function counts each
time that it begins, in whichever thread; a comprehension is no function. Each way is taken a few times before it is
counted, so that nothing is counted which happens once.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import confide
from confide.service.app import Model, Service
from confide.service.desk import PopDesk
from confide.service.doors import Keys, Tokens
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.owner import Owner
from confide.service.public import public_app

HOME = str(Path(confide.__file__).parent)
FEATURES, WARM = 8, 5
X = [0.1 * i for i in range(FEATURES)]
RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Calls = list[tuple[str, str]]
"""Module and function of each."""


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    """Write down every call of Confide's own functions, in all threads that begin meanwhile and in this one."""

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(HOME) or code.co_name.startswith("<"):
            return
        if code.co_flags & RESUMED and code.co_code[frame.f_lasti + 1]:  # it goes on where it stopped
            return
        calls.append((code.co_filename[len(HOME) + 1 :].removesuffix(".py"), code.co_qualname))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def make() -> confide.POP:
    """The model of both ways: the one that a plan gives where nothing is said of copies."""
    plan = confide.Plan.tight(2.0, 1e-6, 100_000, units="people")
    return confide.POP(None, plan, labels=[0, 1], features=FEATURES, units="people")


def in_process() -> Calls:
    """One `POP.predict`."""
    pop, calls = make(), Calls()
    for _ in range(WARM):
        pop.predict(X, "ann")
    with counted(calls):
        pop.predict(X, "ann")
    return calls


def over_http(folder: Path) -> Calls:
    """One ask, through the app, the owner and the desk."""
    calls = Calls()
    with counted(calls):  # the owner's threads begin here
        desk = PopDesk.open(folder, make, name="m")
        metrics = Metrics(Log(io.StringIO()))
        owner = Owner(desk.limited(10_000), metrics)
    tokens = Tokens("asker", Keys({"k": bytes(32)})), Tokens("operator", Keys({"k": bytes(32)}))
    service = Service({"m": Model(owner)}, *tokens, metrics, Log(io.StringIO()))
    app, token = public_app(service), tokens[0].sign("ann", expires=3600.0, models=["m"])
    asyncio.run(_asked(app, token, calls))
    owner.close()
    return calls


async def _asked(app: Any, token: str, calls: Calls) -> None:
    for i in range(WARM):
        await _sent(app, token, f"q{i}")
    await asyncio.sleep(0.2)
    calls.clear()
    with counted(calls):
        await _sent(app, token, "last")
        found = list(calls)
    await asyncio.sleep(0.2)
    calls[:] = found


async def _sent(app: Any, token: str, name: str) -> None:
    """What a server gives the app for one request, and what it gets."""
    body = json.dumps({"x": X, "id": name}).encode()
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-length", str(len(body)).encode())]
    path = "/models/m/ask"
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {},
    }  # fmt: skip
    told = list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    await app(scope, receive, send)
    assert told[0]["status"] == 200, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", action="store_true", help="print every call, in order")
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        ways: dict[str, Callable[[], Calls]] = {
            "POP.predict": in_process, "an ask over HTTP": lambda: over_http(Path(name) / "model"),
        }  # fmt: skip
        for what, way in ways.items():
            calls = way()
            print(f"{what}: {len(calls)} calls in {len({module for module, _ in calls})} modules")
            for module, function in calls if args.calls else ():
                print(f"    {module}: {function}")


if __name__ == "__main__":
    main()
