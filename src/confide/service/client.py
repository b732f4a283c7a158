"""A model that is served elsewhere, as a mechanism: what games, runs and adapters take, they can be given over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, cast

from confide.extras import need
from confide.planning.guarantee import Guarantee
from confide.planning.labels import LabelGuarantee
from confide.planning.plan import Plan
from confide.pop.base import Answer, Unit, Xs
from confide.service.asker import Asker, Token
from confide.service.talk import Place, Send, Steps, Told, go_on

__all__ = ["AsyncClient", "Client"]

DEADLINE = 60.0
"""Seconds after which a request is not sent again: longer than a restart takes, up to half a million rounds a day."""

TIMEOUT, LONG = 15.0, 600.0
"""Seconds that each try waits at the public port, where nobody waits longer than that, and at the operator's."""

CONNECTIONS = 128
"""Of a client that does not block, to each port."""

R = TypeVar("R")
P = ParamSpec("P")


class _Base:
    """What both clients are made of: who asks, and where to."""

    def __init__(
        self,
        url: str,
        token: Token,
        model: str,
        *,
        operator: tuple[str, str] | None = None,
        deadline: float = DEADLINE,
        timeout: float = TIMEOUT,
        batch: int = 1024,
    ) -> None:
        self._asker = Asker(token, model, None if operator is None else operator[1], deadline, batch)
        self._ports = (Place.of(url), timeout), (Place.of(operator[0] if operator else url), max(timeout, LONG))
        self._connect()

    def _connect(self) -> None:
        """Make what the bytes travel by, to each port."""

    def hold(self, ticket: str, unit: Unit) -> None:
        """Bring this ticket's label with this person's token: for a ticket that another client got."""
        self._asker.hold(ticket, unit)


class Client(_Base):
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
    deadline
        Seconds after which a request is not sent again: long enough for a restart of the service. Who is told to come
        again later than that is told so at once, by `StateError`.
    timeout
        Seconds that each try waits for its response; at the operator's port ten minutes, if that is longer.
    batch
        Rows that are sent together, at most.
    """

    def _connect(self) -> None:
        self._pools = [_Pool(place, seconds) for place, seconds in self._ports]
        for pool in self._pools:
            weakref.finalize(self, pool.close)
        self._plan: Plan | None = None
        self.look()

    # ------------------------------------------------------------------ what may be seen

    def __repr__(self) -> str:
        return f"Client({self._asker.model!r}, {self._asker.fixed['guarantee']['text']}, for {self.units})"

    def look(self) -> dict[str, Any]:
        """What everyone may see of the model, as it is now."""
        return self._done(self._asker.look())

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """All labels, public."""
        return tuple(self._asker.fixed["labels"])

    @property
    def units(self) -> Literal["rounds", "people"]:
        """Whose privacy is protected."""
        return cast(Literal["rounds", "people"], self._asker.fixed["units"])

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
        kind = LabelGuarantee if "deadline" in told else Guarantee
        return kind(**{name: told[name] for name in kind.__dataclass_fields__ if name in told})

    @property
    def plan(self) -> Plan:
        """Every number of the run, certified anew from its tables."""
        if self._plan is None:
            self._plan = Plan.from_json(json.dumps(self._done(self._asker.look("/plan"))))
        return self._plan

    @property
    def named(self) -> bool:
        """Whether x may be a dict of named features: rows are sent as they are."""
        return True

    # ------------------------------------------------------------------ asking and teaching

    def predict(self, x: Any, unit: Unit | None = None, *, id: str | None = None) -> Answer:
        """Answer one round. An x that cannot be read takes its round too, then raises ValueError to its asker.

        With an `id` of your own the same question may be asked again later, also by another process: it gets the
        stored answer, and takes no round.
        """
        return self._done(self._asker.predict(x, unit, id=id))

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round. A ticket is good once."""
        self._done(self._asker.learn(ticket, y))

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> None:
        """Teach a labelled record that was never asked: needs the operator's port."""
        self._done(self._asker.teach(x, y, unit))

    def forget(self, unit: Unit) -> None:
        """Forget a person: needs the operator's port."""
        self._done(self._asker.forget(unit))

    def predict_many(
        self, xs: Xs, units: Sequence[Unit] | None = None, *, ids: Sequence[str] | None = None
    ) -> list[Answer]:
        """Answer many rounds; errors in the answers. People's rows are sent apart: a token speaks for one."""
        return self._done(self._asker.predict_many(xs, units, ids=ids))

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels; all good ones are learned, then ValueError tells of the bad ones."""
        self._done(self._asker.learn_many(tickets, ys))

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> None:
        """Teach many records; all good ones are learned, then ValueError tells of the bad ones."""
        self._done(self._asker.teach_many(xs, ys, units))

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools:
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _done(self, steps: Steps[R]) -> R:
        """Have a conversation, and wait for its end."""
        came: Told | OSError | None = None
        try:
            while True:
                step, came = go_on(steps, came), None
                try:
                    if isinstance(step, Send):
                        came = self._pools[step.operator].send(step)
                    else:
                        time.sleep(step)
                except OSError as error:
                    came = error
        except StopIteration as end:
            return cast(R, end.value)


def _awaited(
    operation: Callable[Concatenate[Asker, P], Steps[R]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]:
    """The operation for an event loop."""

    @wraps(operation)
    async def awaited(self: AsyncClient, /, *given: P.args, **named: P.kwargs) -> R:
        return await self._done(operation(self._asker, *given, **named))

    return awaited


class AsyncClient(_Base):
    """`Client` for an event loop: the same operations, to be awaited, and the same rules. Needs the extra `service`.

    Any number of its requests may be on their way at once. They are `predict`, `learn`, `teach`, their `_many`,
    `forget`, `look` and `plan`, with the parameters that `Client` has.

    Examples
    --------
    >>> async def main(url: str, token: str) -> None:
    ...     async with AsyncClient(url, token, "spam") as client:
    ...         answer = await client.predict({"links": 3})
    ...         await client.learn(answer.ticket, "spam")
    """

    predict, predict_many = _awaited(Asker.predict), _awaited(Asker.predict_many)
    learn, learn_many = _awaited(Asker.learn), _awaited(Asker.learn_many)
    teach, teach_many = _awaited(Asker.teach), _awaited(Asker.teach_many)
    forget = _awaited(Asker.forget)

    def _connect(self) -> None:
        pool = need("confide.service.http", "service", "a client for an event loop").Pool
        self._pools = [pool(place.url, CONNECTIONS) for place, _ in self._ports]

    async def look(self) -> dict[str, Any]:
        """What everyone may see of the model, as it is now."""
        return await self._done(self._asker.look())

    async def plan(self) -> Plan:
        """Every number of the run, certified anew from its tables."""
        return Plan.from_json(json.dumps(await self._done(self._asker.look("/plan"))))

    async def close(self) -> None:
        """Close the connections that nobody uses now."""
        for pool in self._pools:
            pool.close()

    async def __aenter__(self) -> Self:
        await self.look()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _done(self, steps: Steps[R]) -> R:
        """Have a conversation."""
        came: Told | OSError | None = None
        try:
            while True:
                step, came = go_on(steps, came), None
                try:
                    if isinstance(step, Send):
                        came = await self._sent(step)
                    else:
                        await asyncio.sleep(step)
                except OSError as error:
                    came = error
        except StopIteration as end:
            return cast(R, end.value)

    async def _sent(self, request: Send) -> Told:
        place, seconds = self._ports[request.operator]
        path, body = place.base + request.path, request.body or b""
        async with asyncio.timeout(seconds):
            told: Told = await self._pools[request.operator].send(request.method, path, request.headers.items(), body)
        return told


class _Pool:
    """Connections to one place; each serves one request at a time."""

    def __init__(self, place: Place, timeout: float) -> None:
        self._make = http.client.HTTPSConnection if place.secure else http.client.HTTPConnection
        self._place, self._timeout = place, timeout
        self._idle: deque[http.client.HTTPConnection] = deque()

    def send(self, request: Send) -> Told:
        """The response to a request that is sent once; `OSError` where none came."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._make(self._place.host, self._place.port, timeout=self._timeout)
        try:
            connection.request(request.method, self._place.base + request.path, request.body, request.headers)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            told = Told(response.status, headers, response.read())
        except http.client.HTTPException:
            connection.close()
            raise ConnectionError("no response") from None
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return told

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        while self._idle:
            self._idle.pop().close()
