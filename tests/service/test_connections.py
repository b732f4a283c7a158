"""One client without a token cannot take a service down: connections, heads and bodies have bounds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import confide
from confide.service import connections
from confide.service.connections import HEAD, Places
from confide.service.files import room_for
from confide.service.pace import Ticks
from confide.service.public import public_app
from confide.service.server import _server
from tests.service.desks import MemoryDesk, service, token
from tests.service.nursery import Nursery, free_ports

PATIENCE, SOON = 0.5, 20.0
"""Seconds that a connection has, and until it must be ended on a busy machine; without such bounds it would be 30."""
TOKEN = f"authorization: {token()['authorization']}\r\n".encode()
ASK = b"POST /models/spam/ask HTTP/1.1\r\nhost: a\r\n" + TOKEN
LOOK = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"


class Port:
    """The public app at a real port with few places."""

    def __init__(self, **places: Any) -> None:
        self.desk = MemoryDesk()
        self.service = service(self.desk)
        options = {"most": 8, "each": 4, "proxies": ["127.0.0.1"], "body": 10_000, "patience": PATIENCE, **places}
        self.places = Places(**options)
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listening.getsockname()[1]
        self.server = _server(public_app(self.service), self.places, 64)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        async def main() -> None:
            watching = asyncio.create_task(self.places.watch())
            await self.server.serve([self.listening])
            watching.cancel()

        asyncio.run(main())

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 60, (source, 0))

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        for model in self.service.models.values():
            model.owner.close()


@pytest.fixture
def port() -> Iterator[Port]:
    with contextlib.closing(Port()) as made:
        yield made


def told(connection: socket.socket, most: float = 60.0) -> bytes:
    """All that comes until the connection is closed."""
    connection.settimeout(most)
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def one(connection: socket.socket, request: bytes = LOOK) -> bytes:
    """One response."""
    connection.sendall(request)
    connection.settimeout(60)
    text = b""
    while part := connection.recv(65536):
        text += part
        head, ended, body = text.partition(b"\r\n\r\n")
        if ended and len(body) >= int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            break
    return text


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: a\r\n"])
def test_a_head_that_does_not_end_is_not_waited_for(port: Port, begun: bytes) -> None:
    with contextlib.closing(port.connect()) as slow:
        began = time.monotonic()
        slow.sendall(begun)
        assert told(slow) == b"" and time.monotonic() - began < SOON


def test_dripping_does_not_help(port: Port) -> None:
    with contextlib.closing(port.connect()) as slow:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for i in range(2000):
                slow.sendall(b"G" if not i else b"ET / HTTP/1.1\r\n" if i == 1 else b"a: b\r\n")
                time.sleep(0.02)
                if time.monotonic() - began > SOON:
                    break
        assert time.monotonic() - began < SOON


@pytest.mark.parametrize("begun", [b"", b"{"])
@pytest.mark.parametrize("length", [b"content-length: 50\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n1\r\n"])
def test_a_body_that_does_not_come_is_not_waited_for(port: Port, length: bytes, begun: bytes) -> None:
    with contextlib.closing(port.connect()) as slow:
        began = time.monotonic()
        slow.sendall(ASK + length + begun)
        assert told(slow) == b"" and time.monotonic() - began < SOON
    assert port.desk.pop.rounds == 0


ENDLESS = {
    "one header": [b"GET / HTTP/1.1\r\na: ", b"x" * 8192],
    "many headers": [b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 1000],
    "an address": [b"GET /", b"x" * 8192],
    "headers after the body": [ASK + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n", b"a: b\r\n" * 1000],
    "one header after the body": [ASK + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\na: ", b"x" * 8192],
    "a body that was refused": [b"POST /models/spam/ask HTTP/1.1\r\ncontent-length: 900000000\r\n\r\n", b"x" * 8192],
    "a body of a look": [b"GET /healthz HTTP/1.1\r\ncontent-length: 900000000\r\n\r\n", b"x" * 8192],
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_does_not_end_is_not_read(port: Port, what: str) -> None:
    """A megabyte at most is taken of a hundred, buffers of the system included."""
    begin, more = ENDLESS[what]
    sent, said = 0, b""
    with contextlib.closing(port.connect()) as loud:
        loud.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        with contextlib.suppress(ConnectionError, TimeoutError):
            loud.sendall(begin)
            while sent < 100_000_000:
                loud.sendall(more)
                sent += len(more)
        said = told(loud)
    assert sent < 20_000_000
    if what in ("one header", "many headers", "an address"):
        assert not said or (said.startswith(b"HTTP/1.1 431") and b"at most 32,768 bytes" in said)
    with contextlib.closing(port.connect()) as other:
        assert one(other).startswith(b"HTTP/1.1 200")


def test_headers_that_come_at_once_have_the_same_bound(port: Port) -> None:
    for size, status in ((HEAD - 1000, b"HTTP/1.1 200"), (HEAD + 1, b"HTTP/1.1 431")):
        with contextlib.closing(port.connect()) as connection:
            request = LOOK.replace(b"\r\n\r\n", b"\r\na: " + b"x" * size + b"\r\n\r\n")
            assert one(connection, request).startswith(status)


def test_many_requests_at_once_on_one_connection_are_refused(port: Port) -> None:
    port.desk.gate.clear()
    body = b"content-length: 13\r\n\r\n" + b'{"x": [1, 2]}'
    with contextlib.closing(port.connect()) as loud:
        loud.sendall((ASK + body) * 100)
        assert b"400" in told(loud)
    port.desk.gate.set()


def test_those_that_wait_make_room_for_whoever_comes(port: Port) -> None:
    """Also: whoever was let in is kept rather than a stranger."""
    body = b"content-length: 13\r\n\r\n" + b'{"x": [1, 2]}'
    with contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(contextlib.closing(port.connect()))

        known = connect()
        assert one(known, ASK + body).startswith(b"HTTP/1.1 200")
        idle = [connect() for _ in range(7)]
        assert all(one(connection).startswith(b"HTTP/1.1 200") for connection in idle)
        assert len(port.places) == 8
        others = [connect() for _ in range(3)]
        assert all(one(connection).startswith(b"HTTP/1.1 200") for connection in others)
        assert len(port.places) == 8 and [told(connection, 0.2) for connection in idle[:3]] == [b""] * 3
        assert one(known, ASK + body).startswith(b"HTTP/1.1 200")


def test_where_all_places_work_a_newcomer_is_told_to_come_again(port: Port) -> None:
    port.desk.gate.clear()
    body = b"content-length: 13\r\n\r\n" + b'{"x": [1, 2]}'
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(contextlib.closing(port.connect())) for _ in range(8)]
        for connection in busy:
            connection.sendall(ASK + body)
        deadline = time.monotonic() + 60
        while port.service.models["spam"].owner.waiting["ask"] < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        with contextlib.closing(port.connect()) as newcomer:
            said = told(newcomer)
        assert said.startswith(b"HTTP/1.1 503") and b"retry-after: 1\r\n" in said and b"too many connections" in said
        port.desk.gate.set()
        assert all(connection.recv(65536).startswith(b"HTTP/1.1 200") for connection in busy)


def test_one_address_has_its_share_and_proxies_are_not_bounded(port: Port) -> None:
    with contextlib.ExitStack() as stack:
        loud = [stack.enter_context(contextlib.closing(port.connect("127.0.0.2"))) for _ in range(6)]
        assert all(one(connection).startswith(b"HTTP/1.1 200") for connection in loud[:4])
        assert all(told(connection).startswith(b"HTTP/1.1 503") for connection in loud[4:])
        others = [stack.enter_context(contextlib.closing(port.connect())) for _ in range(8)]
        assert all(one(connection).startswith(b"HTTP/1.1 200") for connection in others)


class Peer:
    """Stands for a connection."""

    def __init__(self) -> None:
        self.aborted, self.transport = False, self

    def abort(self) -> None:
        self.aborted = True


def test_places_come_free_again() -> None:
    places: Any = Places(2, 1, patience=10.0)
    first, second, third = Peer(), Peer(), Peer()
    assert places.enter(first, "a") and not places.enter(second, "a") and places.enter(second, "b")
    assert not places.enter(third, "c")  # both work
    places.waits(first, True, 0.0)
    places.sweep(10.0)
    assert not first.aborted
    assert places.enter(third, "c") and first.aborted
    places.waits(first, True, 0.0)  # it has no place any more
    places.leave(first)
    places.waits(second, False, 0.0)
    places.sweep(10.1)
    assert second.aborted and len(places) == 1 and places.enter(first, "a")


def test_addresses_that_are_one_persons_are_counted_together() -> None:
    places: Any = Places(9, 1, ["127.0.0.1", "2001:db8:1::/48"])
    assert places.enter(Peer(), "2001:db8::1") and not places.enter(Peer(), "2001:db8::2:1")
    assert places.enter(Peer(), "2001:db8:0:1::1")
    assert places.enter(Peer(), "192.0.2.1") and not places.enter(Peer(), "::ffff:192.0.2.1")
    assert all(places.enter(Peer(), one) for one in ("2001:db8:1::1", "2001:db8:1::1", "127.0.0.1", "::ffff:127.0.0.1"))


def test_a_response_that_is_not_taken_is_not_kept() -> None:
    """Of a peer that asks on and reads nothing, the connection is ended, and what waits for it with it."""
    with contextlib.closing(Port()) as port, contextlib.closing(socket.socket()) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port.port))
        slow.settimeout(0.2)
        plan = b"GET /models/spam/plan HTTP/1.1\r\nhost: a\r\n\r\n"
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - began < 60:
                with contextlib.suppress(TimeoutError):
                    slow.sendall(plan)
                time.sleep(0.001)


def test_what_strangers_send_writes_no_line(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    for junk in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET /a b c HTTP/9\r\n\r\n", LOOK[:-2] + upgrade):
        with contextlib.closing(port.connect()) as connection:
            connection.sendall(junk)
            said = told(connection)
            assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 200")) and junk not in said
    assert port.service.written.getvalue() == "" and not caplog.records  # type: ignore[attr-defined]


EVERY = 0.3


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"XX\r\n\r\n", b" 400 "), (b"GET / HTTP/1.1\r\na: " + b"b" * (HEAD + 9), b" 431 "), (b"", b" 503 ")],
)
def test_what_is_said_without_a_request_leaves_at_a_tick_where_there_are_any(sent: bytes, status: bytes) -> None:
    ticks = Ticks(EVERY, lambda: None)
    with contextlib.closing(Port(most=8 if sent else 0, patience=30.0, ticks=ticks)) as port:
        began = time.perf_counter()
        with port.connect() as connection:
            connection.sendall(sent)
            connection.sendall(b"more\r\n\r\n")
            content = told(connection)
        assert status in content and content.count(b"HTTP/1.1") == 1 and time.perf_counter() - began >= EVERY
    assert not port.places.refused and not len(port.places)


def test_those_that_wait_for_the_tick_of_their_refusal_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REFUSED", 2)
    ticks = Ticks(EVERY, lambda: None)
    with contextlib.closing(Port(most=0, patience=30.0, ticks=ticks)) as port, contextlib.ExitStack() as stack:
        some = [stack.enter_context(port.connect()) for _ in range(5)]
        assert sorted(b" 503 " in told(each) for each in some) == [False, False, False, True, True]


@pytest.mark.parametrize("every", [None, EVERY])
def test_nobody_is_told_to_go_on_with_a_body_where_responses_leave_at_ticks(every: float | None) -> None:
    ticks = None if every is None else Ticks(every, lambda: None)
    with contextlib.closing(Port(ticks=ticks, patience=30.0)) as port, port.connect() as connection:
        content = b'{"x": [1.0, 2.0]}'
        connection.sendall(ASK + b"content-length: %d\r\nexpect: 100-continue\r\n\r\n" % len(content))
        time.sleep(0.2)
        connection.sendall(content)
        first = connection.recv(65536)
        assert first.startswith(b"HTTP/1.1 100 Continue") == (every is None)


def test_files_are_kept_for_what_is_not_a_connection() -> None:
    assert room_for(20_000, 5000, 1, 0).public == 5000
    assert room_for(1024, None, 1, 0).public < 1024 - 128 - 2 * 128
    with pytest.raises(ValueError, match="LimitNOFILE"):
        room_for(20_000, 19_000, 1, 0)
    with pytest.raises(ValueError, match=r"256 files may be open, and 16 connections need"):
        room_for(256, None, 2, 0)


SMALL = """
[public]
port = {0}
[operator]
port = {1}
[models.spam]
folder = "state"
labels = ["no", "yes"]
columns = 2
epsilon = 8.0
rounds = 600
"""


def test_a_process_with_few_files_lives_through_a_flood(tmp_path: Path) -> None:
    """More connections than there may be files, before the first question: the ledger has its own all the same."""
    path = tmp_path / "confide.toml"
    path.write_text(SMALL.format(*free_ports(2)))
    nursery = Nursery(path, fault="few files")
    nursery.start()
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(700):
                made = stack.enter_context(contextlib.closing(socket.socket()))
                made.settimeout(5)
                with contextlib.suppress(OSError):
                    made.connect(("127.0.0.1", nursery.config.public.port))
            with confide.Client(nursery.public, nursery.asker.sign("ann", expires=600.0), "spam") as client:
                for _ in range(40):
                    client.learn(client.predict([1.0, 2.0]).ticket, "yes")
                assert client.rounds == 40
            request = urllib.request.Request(
                f"{nursery.private}/models/spam", headers={"authorization": f"Bearer {nursery.operator}"}
            )
            with urllib.request.urlopen(request, timeout=60) as seen:
                assert json.load(seen)["private"]["labels"] == 40
    finally:
        nursery.close()
