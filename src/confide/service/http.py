"""Connections to an owner: a request out, its response in, once; whatever goes wrong in between ends the connection.

No general client is used: the one that was tried took more time for a question than the owner does, and what such a
client does where a connection is lost is its own affair. Here a request must not be sent again.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from typing import cast
from urllib.parse import urlsplit

import httptools

from confide.service.talk import Told

__all__ = ["Pool", "Told"]

LARGEST = 1 << 26
"""Bytes of a response that are read."""

IDLE = 10.0
"""Seconds after which a connection is not used again: less than its owner keeps it, which must not end it meanwhile."""

_PLAIN = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class _Connection(asyncio.Protocol):
    """A connection, with one request on it at a time."""

    def __init__(self) -> None:
        self.open, self.since = False, 0.0
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Told] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.open = cast(asyncio.Transport, transport), True

    async def send(self, request: bytes) -> Told:
        """Send it, and wait for the response."""
        assert self._transport is not None
        self._told, self._size, self._parts = Told(), 0, list[bytes]()
        self._parser = httptools.HttpResponseParser(self)
        waiting: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        try:
            self._transport.write(request)
            return await waiting
        except BaseException:  # also where nobody waits any more: what comes late must not meet another request
            self.abort()
            raise
        finally:
            self._waiting = None

    def abort(self) -> None:
        """End the connection."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        try:
            if self._waiting is None or self._size > LARGEST:
                raise ConnectionError
            self._parser.feed_data(data)
        except (ConnectionError, httptools.HttpParserError):
            self._fail()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail()

    def _fail(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the connection was lost"))
        self.abort()

    # ------------------------------------------------------------------ told by the parser

    def on_message_begin(self) -> None:
        """A response begins: one that nobody waits for ends the connection, and is nobody's."""
        if self._waiting is None or self._waiting.done():
            self.open = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._told.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        """A part of the content."""
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """All of it."""
        told, self._told = self._told, Told()
        told.status, told.content = self._parser.get_status_code(), b"".join(self._parts)
        if told.status < 200:  # another one follows
            self._parts.clear()
            return
        self.open = self.open and self._parser.should_keep_alive()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(told)


class Pool:
    """Connections to one place, so many at most; who comes when all are in use waits in line.

    Parameters
    ----------
    url
        Where to: scheme, host and port.
    most
        Connections at most.
    """

    def __init__(self, url: str, most: int) -> None:
        parts = urlsplit(url)
        self._host, self._netloc = parts.hostname or "", parts.netloc
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._ssl else 80)
        self._idle, self._room = list[_Connection](), asyncio.Semaphore(most)

    async def send(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> Told:
        """The response to a request that is sent once; `OSError` where none came."""
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._netloc}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers if _PLAIN.fullmatch(value)]
        request = "\r\n".join((*lines, "", "")).encode("latin-1") + body
        async with self._room:
            connection = await self._connection()
            told = await connection.send(request)
            if connection.open:
                connection.since = asyncio.get_running_loop().time()
                self._idle.append(connection)
            else:
                connection.abort()
            return told

    async def _connection(self) -> _Connection:
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.open and loop.time() - connection.since < IDLE:
                return connection
            connection.abort()
        return (await loop.create_connection(_Connection, self._host, self._port, ssl=self._ssl))[1]

    def close(self) -> None:
        """End the connections that nobody uses now."""
        while self._idle:
            self._idle.pop().abort()
