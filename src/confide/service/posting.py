"""How places reach the merger in another process: small requests over HTTP, for a private network alone.

The merger's port is for the model's own processes, which all know one secret. Sums are private: nobody else may listen
on the way (docs/deploy.md). Whatever goes wrong with a request is an OSError to the place, which asks again.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import json
import socket
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from confide.errors import StateError
from confide.service.merging import Lease, Life, Merger, Offer, Standing, Told

__all__ = ["HttpPost", "MergerServer"]

NEWS = 10.0
"""Seconds that a place waits for something new."""

PATIENCE = 30.0
"""Seconds that it waits for anything else."""

LARGEST = 1 << 28
"""Bytes of a request."""


def _word(secret: bytes) -> str:
    return f"Bearer {blake2b(key=secret, digest_size=32, person=b'post').hexdigest()}"


class HttpPost:
    """`confide.service.merging.Post` over HTTP.

    Parameters
    ----------
    url
        The merger's port, like http://10.0.0.5:8002.
    secret
        What the model's processes know each other by.
    """

    def __init__(self, url: str, secret: bytes) -> None:
        parts = urlsplit(url)
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._where, self._word, self._mine = parts.netloc, _word(secret), threading.local()
        self._all = list[http.client.HTTPConnection]()
        self._closed = False

    def _sent(self, call: str, timeout: float = PATIENCE, **given: Any) -> Any:
        connection: http.client.HTTPConnection | None = getattr(self._mine, call, None)
        if connection is None:
            connection = self._kind(self._where, timeout=timeout)
            setattr(self._mine, call, connection)
            self._all.append(connection)
        try:
            if self._closed:
                raise ConnectionError
            connection.request("POST", f"/{call}", json.dumps(given), {"authorization": self._word})
            response = connection.getresponse()
            told = json.loads(response.read())
        except (http.client.HTTPException, OSError, ValueError) as error:
            connection.close()
            raise ConnectionError("the merger cannot be reached") from error
        if response.status == 409:
            raise StateError(str(told["why"]))
        if response.status != 200:
            raise ConnectionError(f"the merger does not answer: {told.get('why', '')}")
        return told["told"]

    def standing(self) -> Standing:
        """Where the merger stands."""
        return Standing(*self._sent("standing"))

    def news(self, known: Standing | None) -> Standing:
        """The same, as soon as it is another than what is known, or after some seconds."""
        return Standing(*self._sent("news", PATIENCE + NEWS, known=known))

    def hello(self, place: str, lives: Mapping[int, Life]) -> Standing:
        """These partitions are open at this place."""
        return Standing(*self._sent("hello", place=place, lives=[[number, *life] for number, life in lives.items()]))

    def lend(self, place: str, need: int) -> Lease | None:
        """Numbers for so many questions."""
        lent = self._sent("lend", place=place, need=need)
        return None if lent is None else Lease(*lent)

    def offer(self, epoch: int, made: int, offers: Sequence[Offer]) -> Standing:
        """Sums for the release after so many."""
        given = [[one.partition, *one.life, b64encode(one.sums).decode()] for one in offers]
        return Standing(*self._sent("offer", epoch=epoch, made=made, offers=given))

    def releases(self, since: int) -> list[Told]:
        """All releases after so many."""
        return [Told(kind, number, b64decode(row)) for kind, number, row in self._sent("releases", since=since)]

    def close(self) -> None:
        """End all connections, whoever waits: nothing is sent any more."""
        self._closed = True
        for connection in self._all:
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()


class MergerServer:
    """A merger at a port of its own; one that has failed is opened again when it is next asked.

    Parameters
    ----------
    opens
        Opens the merger.
    host, port
        Where; port 0 for any that is free.
    secret
        What the model's processes know each other by.
    """

    def __init__(self, opens: Callable[[], Merger], host: str, port: int, secret: bytes) -> None:
        self._opens, self._word, self._lock = opens, _word(secret), threading.Lock()
        self._merger: Merger | None = opens()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                owner.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """No access log: it would say when partitions write."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="merger", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive()

    def merger(self) -> Merger:
        """The merger, opened again where it had failed."""
        with self._lock:
            if self._merger is not None and self._merger.ended:
                self._merger.pop.close()
                self._merger = None
            if self._merger is None:
                self._merger = self._opens()
            return self._merger

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One request: its words are ours, and never say what is in a sum."""
        length, word = request.headers.get("content-length", ""), request.headers.get("authorization", "")
        size = int(length) if length.isdecimal() and len(length) < 12 else LARGEST + 1
        if not hmac.compare_digest(word.encode(), self._word.encode()) or size > LARGEST:
            request.close_connection = True
            _tell(request, 401, {"why": "this port is for the processes of one model"})
            return
        body = request.rfile.read(size)
        try:
            merger = self.merger()
        except (StateError, OSError, ValueError) as error:
            _tell(request, 503, {"why": str(error)})
            return
        try:
            told = _call(merger, request.path[1:], json.loads(body))
        except StateError as error:
            _tell(request, 503 if merger.ended else 409, {"why": str(error)})
        except (KeyError, TypeError, ValueError):
            _tell(request, 400, {"why": "this is no request that a place makes"})
        else:
            _tell(request, 200, {"told": told})

    def close(self) -> None:
        """Serve nobody any more, and give the merger's state back."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            if self._merger is not None:
                self._merger.close()


def _call(merger: Merger, call: str, given: Mapping[str, Any]) -> Any:
    if call == "standing":
        return merger.standing()
    if call == "news":
        return merger.news(None if given["known"] is None else Standing(*given["known"]), NEWS)
    if call == "hello":
        return merger.hello(str(given["place"]), {int(one[0]): Life(*map(int, one[1:])) for one in given["lives"]})
    if call == "lend":
        return merger.lend(str(given["place"]), int(given["need"]))
    if call == "offer":
        offers = [Offer(int(one[0]), Life(int(one[1]), int(one[2])), b64decode(one[3])) for one in given["offers"]]
        return merger.offer(int(given["epoch"]), int(given["made"]), offers)
    if call == "releases":
        return [[one.kind, one.number, b64encode(one.row).decode()] for one in merger.releases(int(given["since"]))]
    raise KeyError(call)


def _tell(request: BaseHTTPRequestHandler, status: int, content: Mapping[str, Any]) -> None:
    body = json.dumps(content).encode()
    request.send_response(status)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
