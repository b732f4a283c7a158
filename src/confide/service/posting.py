"""How places reach the merger in another process: small requests over HTTP, for a private network alone.

The merger's port is for the model's own processes, which all know one secret. It is never sent: every request, and what
is told to it, is signed with it. Sums are private: nobody else may listen on the way (docs/deploy.md). Whoever does may
send a request again, and repeats change nothing. Whatever goes wrong with a request is an OSError to the place, which
asks again. Strangers find few places at the port, and little time.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import io
import json
import secrets
import socket
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from confide.errors import StateError
from confide.service.logs import Log
from confide.service.merging import Lease, Life, Merger, Offer, Standing, Told

__all__ = ["HttpPost", "MergerServer"]

NEWS = 10.0
"""Seconds that a place waits for something new."""

PATIENCE = 30.0
"""Seconds that it waits for anything else."""

LARGEST = 1 << 28
"""Bytes of a request."""

PLACES = 512
"""Connections that the merger's port takes at once; one more is closed without a word."""

HEAD, IDLE = 10.0, 120.0
"""Seconds that a connection has for its first request's head, and for a further one."""


def _word(secret: bytes, *parts: str) -> str:
    """What only the model's own processes can say of these."""
    return blake2b("\n".join(parts).encode(), key=secret, digest_size=32, person=b"post").hexdigest()


def _signed(secret: bytes, call: str, body: bytes) -> str:
    """A request's word: it begins with a number that no other has, and is for this call with this body."""
    about = f"{secrets.token_hex(16)} {len(body)} {blake2b(body, digest_size=32).hexdigest()}"
    return f"{about} {_word(secret, call, about)}"


def _told_word(secret: bytes, word: str, status: int, body: bytes) -> str:
    return _word(secret, word, str(status), blake2b(body, digest_size=32).hexdigest())


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
        self._where, self._secret, self._mine = parts.netloc, secret, threading.local()
        self._all = list[http.client.HTTPConnection]()
        self._closed = False

    def _sent(self, call: str, timeout: float = PATIENCE, **given: Any) -> Any:
        """What is told; a connection that the merger had closed meanwhile is opened again, once."""
        body, name = json.dumps(given).encode(), f"connection{timeout}"
        connection: http.client.HTTPConnection | None = getattr(self._mine, name, None)
        used = connection is not None
        if connection is None:
            connection = self._kind(self._where, timeout=timeout)
            connection.auto_open = 0  # what was closed by another thread stays closed
            setattr(self._mine, name, connection)
            self._all.append(connection)
        try:
            try:
                status, told = self._exchanged(connection, call, body)
            except (http.client.HTTPException, ConnectionError):
                connection.close()
                if not used:
                    raise
                status, told = self._exchanged(connection, call, body)
        except (http.client.HTTPException, OSError, ValueError) as error:
            connection.close()
            raise ConnectionError("the merger cannot be reached") from error
        if status == 409:
            raise StateError(str(told["why"]))
        if status != 200:
            raise ConnectionError(f"the merger does not answer: {told.get('why', '')}")
        return told["told"]

    def _exchanged(self, connection: http.client.HTTPConnection, call: str, body: bytes) -> tuple[int, Any]:
        if connection.sock is None:
            connection.connect()
        if self._closed:  # looked at when it is open: whoever closes later finds it open
            raise OSError
        word = _signed(self._secret, call, body)
        connection.request("POST", f"/{call}", body, {"authorization": word})
        response = connection.getresponse()
        content, said = response.read(), response.headers.get("authentication-info", "")
        mine = _told_word(self._secret, word, response.status, content)
        if response.status != 401 and not hmac.compare_digest(said.encode(), mine.encode()):
            raise ValueError("this is not the model's merger")
        return response.status, json.loads(content)

    def standing(self) -> Standing:
        """Where the merger stands; if that was told with the answer before this, as of then."""
        known: Standing | None = self._mine.__dict__.pop("standing", None)
        return Standing(*self._sent("standing")) if known is None else known

    def news(self, known: Standing | None) -> Standing:
        """The same, as soon as it is another than what is known, or after some seconds."""
        return Standing(*self._sent("news", PATIENCE + NEWS, known=known))

    def hello(self, place: str, lives: Mapping[int, Life], rounds: int = 0) -> Standing:
        """These partitions are open at this place, and know of so many rounds."""
        given = [[number, *life] for number, life in lives.items()]
        return Standing(*self._sent("hello", place=place, lives=given, rounds=rounds))

    def lend(self, place: str, need: int) -> Lease | None:
        """Numbers for so many questions; where there are none, it is told where the merger stands."""
        lent, standing = self._sent("lend", place=place, need=need)
        if lent is None:
            self._mine.standing = Standing(*standing)
        return None if lent is None else Lease(*lent)

    def offer(self, epoch: int, made: int, offers: Sequence[Offer]) -> Standing:
        """Sums for the release after so many."""
        given = [[one.partition, *one.life, b64encode(one.sums).decode()] for one in offers]
        standing, told = self._sent("offer", epoch=epoch, made=made, offers=given)
        self._mine.releases = made, told
        return Standing(*standing)

    def releases(self, since: int) -> list[Told]:
        """All releases after so many; if they were told with the answer to an offer, as of then."""
        known, told = self._mine.__dict__.pop("releases", (-1, []))
        if known != since or not told:
            told = self._sent("releases", since=since)
        return [Told(kind, number, b64decode(row)) for kind, number, row in told]

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
        self._opens, self._secret, self._lock = opens, secret, threading.Lock()
        self._merger: Merger | None = opens()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize, disable_nagle_algorithm = -1, True  # one packet a response, at once: nobody waits for another
            timed: _Timed

            def setup(self) -> None:
                super().setup()
                self.timed = _Timed(self.connection, HEAD)
                self.rfile = io.BufferedReader(self.timed)

            def do_POST(self) -> None:
                owner.answer(self, self.timed)
                self.timed.within(IDLE)

            def log_message(self, format: str, *args: object) -> None:
                """No access log: it would say when partitions write."""

        self._server = _Server((host, port), Handler)
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

    def answer(self, request: BaseHTTPRequestHandler, timed: _Timed) -> None:
        """One request: our words never say what is in a sum. Its body is read when its sender is known."""
        call, given = request.path[1:], request.headers.get("authorization", "")
        about, _, word = given.rpartition(" ")
        size = _size(request.headers.get("content-length", ""))
        known = hmac.compare_digest(word.encode(), _word(self._secret, call, about).encode())
        timed.within(PATIENCE)
        body = request.rfile.read(size) if known and size is not None else b""
        if not known or about.split(" ")[1:] != [str(len(body)), blake2b(body, digest_size=32).hexdigest()]:
            request.close_connection = True
            _tell(request, 401, json.dumps({"why": "this port is for the processes of one model"}).encode())
            return
        status, content = self._answered(call, body)
        told = json.dumps(content).encode()
        timed.within(PATIENCE)
        _tell(request, status, told, _told_word(self._secret, given, status, told))

    def _answered(self, call: str, body: bytes) -> tuple[int, Mapping[str, Any]]:
        try:
            merger = self.merger()
        except (StateError, OSError, ValueError) as error:
            return 503, {"why": str(error)}
        try:
            return 200, {"told": _call(merger, call, json.loads(body))}
        except StateError as error:
            return 503 if merger.ended else 409, {"why": str(error)}
        except (KeyError, TypeError, ValueError):
            return 400, {"why": "this is no request that a place makes"}

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
        lives = {int(one[0]): Life(*map(int, one[1:])) for one in given["lives"]}
        return merger.hello(str(given["place"]), lives, int(given["rounds"]))
    if call == "lend":
        lent = merger.lend(str(given["place"]), int(given["need"]))
        return lent, merger.standing() if lent is None else None
    if call == "offer":
        offers = [Offer(int(one[0]), Life(int(one[1]), int(one[2])), b64decode(one[3])) for one in given["offers"]]
        epoch, made = int(given["epoch"]), int(given["made"])
        standing = merger.offer(epoch, made, offers)
        return standing, _releases(merger, made) if standing.epoch == epoch and standing.made == made + 1 else []
    if call == "releases":
        return _releases(merger, int(given["since"]))
    raise KeyError(call)


def _releases(merger: Merger, since: int) -> list[Any]:
    return [[one.kind, one.number, b64encode(one.row).decode()] for one in merger.releases(since)]


def _size(length: str) -> int | None:
    size = int(length) if length.isdecimal() and len(length) < 12 else LARGEST + 1
    return None if size > LARGEST else size


def _tell(request: BaseHTTPRequestHandler, status: int, body: bytes, word: str = "") -> None:
    request.send_response_only(status)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(body)))
    request.send_header("authentication-info", word)
    request.end_headers()
    request.wfile.write(body)
    request.wfile.flush()


class _Server(ThreadingHTTPServer):
    """One thread a connection, of which there are not more than `PLACES`."""

    daemon_threads = True

    def __init__(self, where: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(PLACES)
        super().__init__(where, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, if there is a place."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Until the connection ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who sent a request sends it again; what is no lost connection is told to the operator, by its kind alone."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            Log().error("merger", error)


class _Timed(io.RawIOBase):
    """What comes on a connection, as long as there is time: in all, and not from byte to byte."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._until = connection, 0.0
        self.within(seconds)

    def within(self, seconds: float) -> None:
        """So many seconds from now on: for all that is read until this is said again, and for a write."""
        self._until = time.monotonic() + seconds
        self._connection.settimeout(seconds)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, into: Any) -> int:
        """As a socket's."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(into)
