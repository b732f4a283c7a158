"""How a client talks: what is sent, when it is sent again, and what errors mean; how bytes travel is not known here.

A conversation is a generator. It yields a `Send`, and is given what was `Told` or an `OSError`; or it yields seconds to
wait. So a client that blocks and one that does not follow the same rules.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from confide.errors import Halted, StateError, TicketError
from confide.pop.base import Unit

__all__ = [
    "AGAIN",
    "Place",
    "Send",
    "Steps",
    "Told",
    "error_of",
    "go_on",
    "label_of",
    "person_of",
    "plain",
    "settled",
    "text_of",
]

AGAIN = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same request is sent again: the service's own, and those of a proxy before it."""

FIRST, LONGEST = 0.05, 2.0
"""Seconds to wait before the second try, and at most, where nobody says when to come again; doubled each time."""

R = TypeVar("R")
_MOST_INTEGER = 2**63
_LARGEST = sys.float_info.max


@dataclass
class Told:
    """A response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""


@dataclass(frozen=True)
class Place:
    """A port of the service: scheme, host, and what stands before every path."""

    secure: bool
    host: str
    port: int | None
    base: str
    url: str

    @classmethod
    def of(cls, url: str) -> Place:
        """The place that a url names."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must be like https://confide.example.org or http://127.0.0.1:8000")
        return cls(parts.scheme == "https", parts.hostname, parts.port, parts.path.rstrip("/"), url)


@dataclass(frozen=True, repr=False)
class Send:
    """A request that is to be sent."""

    operator: bool
    """To the operator's port, not to the public one."""
    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]

    @classmethod
    def of(cls, method: str, path: str, content: Any, token: str | None, operator: bool = False) -> Send:
        """With this content as JSON."""
        body = None if content is None else json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
        headers = {"content-type": "application/json"} | ({} if token is None else {"authorization": f"Bearer {token}"})
        return cls(operator, method, path, body, headers)


Steps = Generator[Send | float, Told | None, R]
"""A conversation that ends in an R."""


def go_on(steps: Steps[R], came: Told | OSError | None) -> Send | float:
    """The next step of a conversation, given what came of the last one; `StopIteration` has its end."""
    return steps.throw(came) if isinstance(came, OSError) else steps.send(came)


def settled(request: Send, deadline: float, clock: Callable[[], float] = time.monotonic) -> Steps[dict[str, Any]]:
    """What the service says to a request in the end. The same bytes are sent again, so an id or a ticket is the same.

    No try begins later than `deadline` seconds after the first, and who is told to come again later than that gives up
    at once.
    """
    end, wait, told, asked = clock() + deadline, FIRST, None, 0.0
    while True:
        try:
            told = yield request
        except OSError:
            told = None
        content = None if told is None else _content(told)
        if told is not None and not _is_again(told.status, content):
            break
        left = end - clock()
        asked = 0.0 if told is None else _retry_after(told.headers)
        if left <= 0 or asked > left:
            break
        yield min(max(wait * random.uniform(0.5, 1.0), asked), left)
        wait = min(2 * wait, LONGEST)
    if told is None or (content is None and told.status in AGAIN):
        raise ConnectionError("the service cannot be reached: try again later")
    if content is None:
        raise ConnectionError("what answered is no Confide service: check the url")
    if told.status != 200:
        raise error_of(told.status, content, asked)
    return content


def _content(told: Told) -> dict[str, Any] | None:
    try:
        content = json.loads(told.content)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _is_again(status: int, content: dict[str, Any] | None) -> bool:
    """Whether the same request is to be sent again: also for a row of a batch that could not be made durable."""
    if status != 200 or content is None:
        return status in AGAIN
    rows = content.get("answers") or content.get("results") or []
    return any(isinstance(row, dict) and (row.get("error") or {}).get("kind") == "later" for row in rows)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds until one may come again, as HTTP says it: a number or a date."""
    said = headers.get("retry-after", "")
    try:
        seconds = float(said) if said.strip().isdigit() else parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, seconds)


def error_of(status: int, told: Mapping[str, Any], after: float = 0.0) -> Exception:
    """What a mechanism raises in such a case; `after` so many seconds one may come again."""
    error = told.get("error") or {}
    kind, message = error.get("kind"), str(error.get("message", f"the service refused with status {status}"))
    if kind == "halted":
        return Halted(message)
    if status in AGAIN:
        return StateError(f"{message}; come again in {_long(after)}" if after >= 1 else message)
    return TicketError(message) if kind == "ticket" else ValueError(message)


def _long(seconds: float) -> str:
    """A time in the two units that say it best.

    Examples
    --------
    >>> _long(86_040), _long(90.2), _long(7)
    ('23 hours 54 minutes', '1 minute 31 seconds', '7 seconds')
    """
    whole, words = math.ceil(seconds), list[str]()
    for unit, size in (("hour", 3600), ("minute", 60), ("second", 1)):
        count, whole = divmod(whole, size)
        words += [f"{count:,} {unit}{'s' * (count > 1)}"] if count else []
    return " ".join(words[:2])


def plain(x: Any) -> Any:
    """x as JSON holds it; None, which no model can read, where it cannot: the round is taken all the same."""
    try:
        return _value(x)
    except Exception:  # x may be any object at all
        return None


def _value(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        x = x.tolist()
    if isinstance(x, np.generic):
        x = x.item()
    if x is None or isinstance(x, bool):
        return x
    if isinstance(x, str):
        return str(x).encode().decode()  # refuses what is no text
    if isinstance(x, int) and abs(x) < _MOST_INTEGER:
        return int(x)
    if isinstance(x, int | float):  # JSON has no NaN, which is missing, and no ∞: it is as any number that is too large
        return None if x != x else min(max(x, -_LARGEST), _LARGEST)
    if isinstance(x, Mapping):
        return {_value(str(name)): _value(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_value(value) for value in x]
    raise ValueError("not for JSON")


def label_of(y: Any) -> Any:
    """A label as JSON holds it."""
    found = plain(y)
    if found is None or isinstance(found, dict | list):
        raise ValueError("this label is not one of the model's labels")
    return found


def text_of(ticket: Any) -> str:
    """A ticket, which is a text."""
    if not isinstance(ticket, str):
        raise TicketError("this is not a ticket: bring back the one that came with the answer")
    return ticket


def person_of(unit: Unit) -> str:
    """A person's id as a token has it."""
    return unit.decode() if isinstance(unit, bytes) else unit
