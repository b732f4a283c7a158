"""Connections that no stranger can use up: how many there may be, how long they may say nothing, how much they may say.

uvicorn bounds none of this where httptools reads for it: its limit refuses requests and keeps the connection, its only
timeout is for a connection that has been served before, and headers are read as long as they come. So its protocol is
extended here by hand. A connection either waits for its peer (for a head, for a body, for a response to be taken) or
works for it. One that waits may be closed at any moment, for clients send a request again with its id; when all places
are taken, the one that has waited longest makes room, those whose sender nobody knows first.

Where a model of the process is paced, what is said here leaves at ticks as well, and nobody is told to go on with a
body: when either came would tell what the process was doing.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import httptools
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from confide.service.app import KNOWN, WHOLE
from confide.service.base import AGAIN, RETRY
from confide.service.forms import failure
from confide.service.pace import Ticks, Turn

__all__ = ["HEAD", "PATIENCE", "Connection", "Places"]

HEAD = 32_768
"""Bytes of a request's first line and headers, at most."""

PIPELINE = 8
"""Requests on one connection that may wait for the response to the one before."""

REFUSED = 64
"""Connections that may wait for the tick of their refusal: those beyond are closed without a word."""

PATIENCE = 15.0
"""Seconds that a peer has for a head, for a body, and for taking a response; an idle one is kept so long, too."""


class Places:
    """The places for connections at one port.

    Parameters
    ----------
    most
        Connections in all.
    each
        Connections of one address, or of one /64 of IPv6.
    proxies
        Addresses and networks through which many people come: `each` does not bound them.
    body
        Bytes of a request's body: who sends on after a refusal is listened to for as many more.
    patience
        Seconds that a connection may wait for its peer.
    ticks
        By which refusals leave; None for at once.
    """

    def __init__(
        self, most: int, each: int, proxies: Sequence[str] = (), *, body: int = 1_000_000, patience: float = PATIENCE,
        ticks: Ticks | None = None,
    ) -> None:  # fmt: skip
        self.ticks = ticks
        self.refused = 0
        """Connections that wait for the tick at which they are told that they are refused."""
        self._most, self._each, self._patience = most, each, patience
        self._proxies = [ipaddress.ip_network(one) for one in proxies]
        self._taken: dict[Connection, str] = {}
        self._addresses: Counter[str] = Counter()
        self._waiting: tuple[dict[Connection, float], ...] = ({}, {})  # strangers and known ones, the longest first
        self.bytes = HEAD + 2 * body
        """Of one request, with all that is around its body."""

    def __len__(self) -> int:
        return len(self._taken)

    def enter(self, connection: Connection, address: str) -> bool:
        """Give it a place, if there is one or one can be made."""
        address, bounded = self._source(address)
        if bounded and self._addresses[address] >= self._each:
            return False
        if len(self._taken) >= self._most and not self._make_room():
            return False
        self._taken[connection] = address
        self._addresses[address] += 1
        return True

    def leave(self, connection: Connection) -> None:
        """Its place is free; nothing happens if it had none."""
        self.works(connection)
        address = self._taken.pop(connection, None)
        if address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def waits(self, connection: Connection, known: bool, now: float) -> None:
        """It waits for its peer, from now on."""
        self.works(connection)
        if connection in self._taken:
            self._waiting[known][connection] = now

    def works(self, connection: Connection) -> None:
        """It does not wait for its peer."""
        for waiting in self._waiting:
            waiting.pop(connection, None)

    def sweep(self, now: float) -> None:
        """Close those that have waited too long."""
        for waiting in self._waiting:
            while waiting and now - next(iter(waiting.values())) > self._patience:
                self._close(next(iter(waiting)))

    async def watch(self) -> None:
        """Sweep for good."""
        while True:
            await asyncio.sleep(self._patience / 10)
            self.sweep(asyncio.get_running_loop().time())

    def _make_room(self) -> bool:
        longest = next((next(iter(waiting)) for waiting in self._waiting if waiting), None)
        if longest is not None:
            self._close(longest)
        return longest is not None

    def _close(self, connection: Connection) -> None:
        self.leave(connection)
        connection.transport.abort()

    def _source(self, address: str) -> tuple[str, bool]:
        """Whose connections are counted together, and whether they are bounded: of IPv6, a household has a /64."""
        try:
            known = ipaddress.ip_address(address)
        except ValueError:
            return address, True
        known = getattr(known, "ipv4_mapped", None) or known
        bounded = not any(known in network for network in self._proxies)
        return str(known if known.version == 4 else ipaddress.ip_network((known, 64), strict=False)), bounded


class Whole:
    """A transport whose writes leave in one piece, within its context: each takes the system as long as a question.

    uvicorn writes the head of a response and its body one after the other.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._held = transport, cast(list[bytes] | None, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def __enter__(self) -> None:
        self._held = []

    def __exit__(self, *_: object) -> None:
        held, self._held = self._held, None
        if held:
            self._transport.write(b"".join(held))

    def write(self, data: bytes) -> None:
        """As a transport's, or when the context ends."""
        if self._held is None:
            self._transport.write(data)
        else:
            self._held.append(data)

    def close(self) -> None:
        """As a transport's: what was written leaves first."""
        self.__exit__()
        self._transport.close()


class Connection(HttpToolsProtocol):
    """One connection, with its place. What a stranger sends never writes a line into the log."""

    def __init__(self, places: Places, **options: Any) -> None:
        super().__init__(**options)
        self._places = places
        self._known = self._waits = self._reading = self._refused = False
        self._size = self._head = 0  # bytes of this request: as they came, and of its headers

    # ------------------------------------------------------------------ told by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or say that there is none."""
        super().connection_made(cast(asyncio.Transport, Whole(transport)))
        if self._places.enter(self, self.client[0] if self.client else ""):
            self._wait()
        else:
            self._refuse(503, "busy", "there are too many connections: come again in a moment, with the same id")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._places.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, as much as a request may be."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._size += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # answered as what else it is; what follows is no HTTP
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            if self._head > HEAD:
                self._too_large()
            else:
                self._refuse(400, "form", "this is no HTTP request")
            return
        if self._reading and self._size > HEAD:
            self._too_large()
        elif self._size > self._places.bytes:
            self.transport.abort()
        self._settle()

    def pause_writing(self) -> None:
        """The peer does not take its response."""
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        """It does."""
        super().resume_writing()
        self._settle()

    # ------------------------------------------------------------------ told by the parser and the app

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][KNOWN], self.scope["state"][WHOLE] = self._know, self.transport
        self._head, self._reading = 0, True
        if self._waits:
            self._wait()

    def on_url(self, url: bytes) -> None:
        """A part of the first line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one after the body."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Head is read, body is not."""
        self._reading = False
        if len(self.pipeline) >= PIPELINE:
            raise ValueError("too many")
        if self._waits:
            self._wait()
        if self._places.ticks is not None:
            self.expect_100_continue = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it is read."""
        super().on_message_complete()
        self._size = 0

    def on_response_complete(self) -> None:
        """The response was handed over."""
        super().on_response_complete()
        self._settle()

    # ------------------------------------------------------------------ parts

    def _know(self) -> None:
        """The door has let its sender in."""
        self._known = True

    def _count(self, size: int) -> None:
        self._head += size + 4
        if self._head > HEAD:
            raise ValueError("too large")

    def _settle(self) -> None:
        """Say whether it waits for its peer, where that has changed."""
        cycle = cast(Any, self.cycle)  # None before the first request
        idle = cycle is None or cycle.more_body or (cycle.response_complete and not self.pipeline)
        waits = self.flow.write_paused or idle
        if waits and not self._waits:
            self._wait()
        elif self._waits and not waits:
            self._waits = False
            self._places.works(self)

    def _wait(self) -> None:
        self._waits = True
        self._places.waits(self, self._known, self.loop.time())

    def _too_large(self) -> None:
        self._refuse(431, "size", f"a request's headers have at most {HEAD:,} bytes")

    def _refuse(self, status: int, kind: str, message: str) -> None:
        """Say why, and close; at a tick, where there are any."""
        self._refused = True
        content = to_json(failure(kind, message))
        again = b"retry-after: %d\r\n" % RETRY if status in AGAIN else b""
        head = b"content-type: application/json\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n"
        told, places = STATUS_LINE[status] + head % (len(content), again) + content, self._places
        if places.ticks is None:
            self.transport.write(told)
            self.transport.close()
        elif places.refused >= REFUSED:
            self.transport.abort()
        else:
            self.flow.pause_reading()
            places.refused += 1
            task = self.loop.create_task(self._refuse_at(places.ticks.turn(), told))
            self.tasks.add(task)
            task.add_done_callback(self._refused_at)

    def _refused_at(self, task: asyncio.Task[None]) -> None:
        self._places.refused -= 1
        self.tasks.discard(task)

    async def _refuse_at(self, turn: Turn, told: bytes) -> None:
        await turn.leave()
        if not self.transport.is_closing():
            self.transport.write(told)
            self.transport.close()
