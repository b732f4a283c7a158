"""A model that is served elsewhere, as a mechanism: what games, runs and adapters take, they can be given over HTTP."""

from __future__ import annotations

import http.client
import json
import math
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Self, cast
from urllib.parse import quote, urlsplit

import numpy as np

from confide.errors import Halted, StateError, TicketError
from confide.frames import rows_of, values_of
from confide.planning.guarantee import Guarantee
from confide.planning.plan import Plan
from confide.pop.base import Answer, Unit, Xs
from confide.pop.batches import refuse

__all__ = ["Client"]

Token = str | Callable[[str], str]
_MOST_INTEGER = 2**63


class Client:
    """Asks and teaches a model of a Confide service.

    Each question has an id of its own. When a connection is lost, or the service is busy or stops for a moment, the
    same request is sent again with it, and a round that was taken is not taken twice.

    Parameters
    ----------
    url
        The public port: "https://confide.example.org".
    token
        An asker's token; or, where one client speaks for many people, a function from a person's id to theirs.
    model
        The model's name.
    operator
        The operator's port and a token for it, for `teach` and `forget`: both are the operator's.
    tries, timeout
        How often a request is sent at most, and how many seconds each waits.
    batch
        Rows that are sent together, at most.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        model: str,
        *,
        operator: tuple[str, str] | None = None,
        tries: int = 5,
        timeout: float = 30.0,
        batch: int = 1024,
    ) -> None:
        self._door = _Connection(url, timeout, tries)
        self._operator = None if operator is None else (_Connection(operator[0], timeout, tries), operator[1])
        for connection in (self._door, *(self._operator or ())[:1]):
            weakref.finalize(self, connection.close)
        self._token, self._model, self._batch = token, model, batch
        self._fixed = self.look()
        self._holders: dict[str, str] = {}
        self._plan: Plan | None = None

    # ------------------------------------------------------------------ what may be seen

    def __repr__(self) -> str:
        return f"Client({self._model!r}, {self._fixed['guarantee']['text']}, for {self.units})"

    def look(self) -> dict[str, Any]:
        """What everyone may see of the model, as it is now."""
        return self._get()

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """All labels, public."""
        return tuple(self._fixed["labels"])

    @property
    def units(self) -> Literal["rounds", "people"]:
        """Whose privacy is protected."""
        return cast(Literal["rounds", "people"], self._fixed["units"])

    @property
    def rounds(self) -> int:
        """Rounds taken so far, by everybody."""
        return int(self.look()["rounds"])

    @property
    def state(self) -> Literal["silent", "live", "halted"]:
        """Where the model stands."""
        return cast(Literal["silent", "live", "halted"], self.look()["state"])

    @property
    def halt_reason(self) -> str | None:
        """None, "budget" or "rounds"."""
        reason: str | None = self.look()["halt_reason"]
        return reason

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to each unit."""
        told = self.look()["guarantee"]
        return Guarantee(**{name: told[name] for name in Guarantee.__dataclass_fields__ if name in told})

    @property
    def plan(self) -> Plan:
        """Every number of the run, certified anew from its tables."""
        if self._plan is None:
            self._plan = Plan.from_json(json.dumps(self._get("/plan")))
        return self._plan

    @property
    def named(self) -> bool:
        """Whether x may be a dict of named features: rows are sent as they are."""
        return True

    # ------------------------------------------------------------------ asking and teaching

    def predict(self, x: Any, unit: Unit | None = None) -> Answer:
        """Answer one round. An x that cannot be read takes its round too, then raises ValueError to its asker."""
        told = self._post("ask", {"id": secrets.token_hex(12), "x": _plain(x)}, self._token_of(unit))
        return self._answer(told, unit)

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round. A ticket is good once."""
        token = self._token_of(self._holders.get(ticket) if isinstance(ticket, str) else None, checked=False)
        self._post("label", {"ticket": _text(ticket), "label": _label(y)}, token)

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> None:
        """Teach a labelled record that was never asked: needs the operator's port."""
        refused = self._teach([x], [y], None if unit is None else [unit])
        if refused:
            raise refused[0]

    def hold(self, ticket: str, unit: Unit) -> None:
        """Bring this ticket's label with this person's token: for a ticket that another client got."""
        self._holders[ticket] = _person(unit)
        if len(self._holders) > self._fixed["ticket_life"]:  # as many rounds ago: it has expired
            del self._holders[next(iter(self._holders))]

    def forget(self, unit: Unit) -> None:
        """Forget a person: needs the operator's port."""
        self._operate("forget", {"subject": _person(unit)})

    def predict_many(self, xs: Xs, units: Sequence[Unit] | None = None) -> list[Answer]:
        """Answer many rounds; errors in the answers. People's rows are sent apart: a token speaks for one."""
        rows, units, answers = rows_of(xs, self.named), values_of(units), list[Answer]()
        for part, unit in self._parts(len(rows), units):
            questions = [{"id": secrets.token_hex(12), "x": _plain(row)} for row in rows[part]]
            told = self._post("ask-many", {"questions": questions}, self._token_of(unit))
            if answers == [] and all(one.get("error", {}).get("kind") == "halted" for one in told["answers"]):
                raise _error(410, told["answers"][0])
            answers += [self._answer(one, unit, alone=False) for one in told["answers"]]
        return answers

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels; all good ones are learned, then ValueError tells of the bad ones."""
        tickets, ys = values_of(tickets), values_of(ys)
        if len(tickets) != len(ys):
            raise ValueError(f"there are {len(tickets)} tickets for {len(ys)} labels: give one label for each")
        refused = list[ValueError | None]()
        holders = [self._holders.get(ticket, "") if isinstance(ticket, str) else "" for ticket in tickets]
        for part, unit in self._parts(len(tickets), holders if callable(self._token) else None):
            pairs = zip(tickets[part], ys[part], strict=True)
            labels = [{"ticket": _text(ticket), "label": _label(y)} for ticket, y in pairs]
            told = self._post("label-many", {"labels": labels}, self._token_of(unit, checked=False))
            refused += [None if one["taken"] else cast(ValueError, _error(422, one)) for one in told["results"]]
        refuse({i: error for i, error in enumerate(refused) if error is not None})

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> None:
        """Teach many records; all good ones are learned, then ValueError tells of the bad ones."""
        rows, ys, units = rows_of(xs, self.named), values_of(ys), values_of(units)
        if len(rows) != len(ys):
            raise ValueError(f"there are {len(rows)} records for {len(ys)} labels: give one label for each")
        refuse(self._teach(rows, ys, units))

    def close(self) -> None:
        """Close the connections."""
        self._door.close()
        if self._operator is not None:
            self._operator[0].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ parts

    def _teach(self, rows: Any, ys: Sequence[Hashable], units: Sequence[Unit] | None) -> dict[int, ValueError]:
        sent = [{"x": _plain(row), "label": _label(y)} for row, y in zip(rows, ys, strict=True)]
        for i, row in enumerate(sent if units is not None else ()):
            row["subject"] = _person(cast(Sequence[Unit], units)[i])
        told = self._operate("history", {"id": secrets.token_hex(12), "rows": sent})
        return {one["row"]: cast(ValueError, _error(422, one)) for one in told["refused"]}

    def _operate(self, operation: str, content: Mapping[str, Any]) -> dict[str, Any]:
        if self._operator is None:
            raise ValueError("history and forgetting are the operator's: give the client operator=(url, token)")
        connection, token = self._operator
        status, told = connection.send("POST", self._path(operation), content, token)
        if status != 200:
            raise _error(status, told)
        return told

    def _parts(self, rows: int, units: Sequence[Unit] | None) -> list[tuple[slice, Unit | None]]:
        """Stretches of rows that one request may hold: one person's, in order."""
        if units is None or not callable(self._token):
            owners: Sequence[Unit | None] = [None] * rows if units is None else units
        else:
            owners = units
        if isinstance(owners, str | bytes) or len(owners) != rows:
            raise ValueError(f"units must be a sequence of ids, one for each of {rows} rows")
        parts, at = list[tuple[slice, Unit | None]](), 0
        while at < rows:
            end = at + 1
            while end < min(rows, at + self._batch) and owners[end] == owners[at]:
                end += 1
            parts.append((slice(at, end), owners[at]))
            at = end
        return parts

    def _token_of(self, unit: Unit | None, checked: bool = True) -> str:
        if callable(self._token):
            return self._token("" if unit is None else _person(unit))
        if checked and unit is not None:
            raise ValueError("this client speaks for the person in its token alone: give a function from ids to tokens")
        return self._token

    def _get(self, part: str = "") -> dict[str, Any]:
        status, told = self._door.send("GET", f"/models/{quote(self._model, safe='')}{part}", None, None)
        if status != 200:
            raise _error(status, told)
        return told

    def _path(self, operation: str) -> str:
        return f"/models/{quote(self._model, safe='')}/{operation}"

    def _post(self, operation: str, content: Mapping[str, Any], token: str) -> dict[str, Any]:
        status, told = self._door.send("POST", self._path(operation), content, token)
        if status != 200:
            raise _error(status, told)
        return told

    def _answer(self, told: Mapping[str, Any], unit: Unit | None, alone: bool = True) -> Answer:
        if "error" in told and told["error"] is not None:
            if alone:
                raise _error(422, told)
            return Answer(None, False, "", told["error"]["message"])
        if callable(self._token) and unit is not None:
            self.hold(told["ticket"], unit)
        return Answer(told["label"], told["sure"], told["ticket"], None, told["source"], told["guide"])


class _Connection:
    """Sends requests to one place, again where that is safe; a connection serves one request at a time."""

    def __init__(self, url: str, timeout: float, tries: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must be like https://confide.example.org or http://127.0.0.1:8000")
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        self._timeout, self._tries = timeout, max(1, tries)
        self._idle: deque[http.client.HTTPConnection] = deque()

    def send(self, method: str, path: str, content: Any, token: str | None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the response. The same bytes are sent again, so an id or a ticket is the same too."""
        body = None if content is None else json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
        headers = {"content-type": "application/json"} | ({} if token is None else {"authorization": f"Bearer {token}"})
        for left in reversed(range(self._tries)):
            try:
                status, text, wait = self._once(method, self._base + path, body, headers)
                if status not in (429, 503, 504) or not left:
                    return status, json.loads(text)
            except (OSError, http.client.HTTPException):
                if not left:
                    raise ConnectionError("the service cannot be reached: try again later") from None
                wait = 0.05 * 2 ** (self._tries - 1 - left)
            except ValueError:
                raise ConnectionError("what answered is no Confide service: check the url") from None
            time.sleep(min(wait, self._timeout))
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes, float]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._make(self._host, self._port, timeout=self._timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            told = response.status, response.read(), float(response.headers.get("retry-after", 1))
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return told

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        while self._idle:
            self._idle.pop().close()


def _error(status: int, told: Mapping[str, Any]) -> Exception:
    """What a mechanism raises in such a case."""
    error = told.get("error") or {}
    kind, message = error.get("kind"), str(error.get("message", f"the service refused with status {status}"))
    if kind == "halted":
        return Halted(message)
    if status in (429, 503, 504):
        return StateError(message)
    return TicketError(message) if kind == "ticket" else ValueError(message)


def _plain(x: Any) -> Any:
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
    if isinstance(x, float) and math.isfinite(x):
        return float(x)
    if isinstance(x, Mapping):
        return {_value(str(name)): _value(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_value(value) for value in x]
    raise ValueError("not for JSON")


def _label(y: Any) -> Any:
    plain = _plain(y)
    if plain is None or isinstance(plain, dict | list):
        raise ValueError("this label is not one of the model's labels")
    return plain


def _text(ticket: Any) -> str:
    if not isinstance(ticket, str):
        raise TicketError("this is not a ticket: bring back the one that came with the answer")
    return ticket


def _person(unit: Unit) -> str:
    return unit.decode() if isinstance(unit, bytes) else unit
