"""A model that another process owns: its requests are passed on as they came, once, and what comes back is given back.

This process knows nothing of such a model but where its owner is. It has looked at the caller's token, which the owner
does again; it reads neither question nor answer, keeps nothing, and never sends a request twice: whether the first one
took a round only the owner can tell, by the request's id.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.responses import Response

from confide.service.http import Pool, Told
from confide.service.merging import partition_of
from confide.service.owner import LONG, Busy, Expired, Lane, Unavailable, Work, lane

__all__ = ["PASSED", "Proxy", "Routed"]

WORKS: tuple[Work, ...] = ("ask", "label", "look")

PASSED = "x-confide-passed"
"""The header of a request that was passed on: it is not passed on again, so two that name each other do no harm."""

REASONS = "failed", "draining", "history"
"""Why a model does not answer, as `/readyz` names it."""

CONNECTIONS = 128
"""To an owner, for each kind of work."""

AWAY = "the process that owns this model cannot be reached: come again in a moment, with the same id or ticket"

NEXT = 0.25
"""Seconds after which another owner is asked for a look, too."""

R = TypeVar("R")

_OWN = ((PASSED, "1"), ("content-type", "application/json"))
_BACK = ("content-type", "retry-after", "www-authenticate")


class Proxy:
    """Passes requests for one model on to its owner.

    Questions, labels and looks have rooms and connections of their own, and of labels everybody has a room of their
    own: no refusal tells how many labels others bring.

    Parameters
    ----------
    name
        The model's name, here and there.
    url
        The owner's public port.
    headers
        Names of those by which a caller is known.
    room
        Requests of each kind that may be on their way; of labels, of each sender.
    timeout
        Seconds that anybody waits for an answer or a look. A timeout ends the waiting, never the round; a label has
        none, as at its owner's.
    """

    def __init__(self, name: str, url: str, headers: Sequence[str], *, room: int = 4096, timeout: float = 10.0) -> None:
        self.name, self.url = name, url
        self._headers, self._room, self._timeout = tuple(headers), room, timeout
        self._away = Counter[Lane]()
        self._pools = {work: Pool(url, CONNECTIONS) for work in WORKS}

    async def passed(
        self, work: Work, operation: str, headers: Mapping[str, str], body: bytes | None, whose: str = ""
    ) -> Response:  # fmt: skip
        """What the owner says to this request of somebody, as it says it."""
        names = [name for name in self._headers if name in headers and work != "look"]  # what is open needs none
        known = [(name, headers[name].strip(" \t")) for name in names]
        path = f"/models/{self.name}/{operation}" if operation else f"/models/{self.name}"
        told = await self._sent(work, path, known, body, whose)
        back = {name: told.headers[name] for name in _BACK if name in told.headers}
        return Response(told.content, told.status, back)

    async def look(self) -> dict[str, Any] | None:
        """What everyone may see of the model; None where its owner does not say it."""
        shown = await self._look(f"/models/{self.name}")
        return shown if "guarantee" in shown else None

    async def missing(self) -> str | None:
        """Why the model does not answer; None where it does."""
        shown = await self._look("/readyz")
        reasons = shown.get("models", {})
        if "status" not in shown or not isinstance(reasons, dict):
            return "its owner is away"
        why = reasons.get(self.name)
        return why if why in REASONS else "failed" if self.name in reasons else None

    async def _look(self, path: str) -> dict[str, Any]:
        """What is open to everyone; nothing where the owner does not say it."""
        try:
            shown: Any = json.loads((await self._sent("look", path)).content)
        except (Busy, Expired, Unavailable, ValueError):
            return {}
        return shown if isinstance(shown, dict) else {}

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools.values():
            pool.close()

    async def _sent(
        self, work: Work, path: str, headers: Sequence[tuple[str, str]] = (), body: bytes | None = None, whose: str = ""
    ) -> Told:
        mine = lane(work, whose)
        if self._away[mine] >= self._room:
            raise Busy
        self._away[mine] += 1
        try:
            async with asyncio.timeout(LONG if work == "label" else self._timeout):
                method = "GET" if body is None else "POST"
                told = await self._pools[work].send(method, path, [*_OWN, *headers], body or b"")
        except TimeoutError:
            raise Expired from None
        except OSError:
            raise Unavailable(AWAY) from None
        finally:
            self._away[mine] -= 1
            if not self._away[mine]:
                del self._away[mine]
        if told.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise Unavailable(AWAY)  # whatever answered is no Confide service
        return told


class Routed:
    """Passes requests for a model over partitions on: each person's to the owner of their partition.

    Parameters
    ----------
    key, partitions
        By which a person's partition is known.
    owners
        Those of other processes, by partition; the others are here.
    """

    def __init__(self, key: bytes, partitions: int, owners: Mapping[int, Proxy]) -> None:
        self._key, self._partitions, self._owners = key, partitions, dict(owners)
        self._each = list(dict.fromkeys(owners.values()))

    @property
    def url(self) -> str:
        """Where an operator finds the owners."""
        return ", ".join(one.url for one in self._each)

    def here(self, subject: str) -> bool:
        """Whether this person's partition is this process's own."""
        return partition_of(self._key, self._partitions, subject) not in self._owners

    async def passed(
        self, work: Work, operation: str, headers: Mapping[str, str], body: bytes | None, whose: str = ""
    ) -> Response:  # fmt: skip
        """What the owner of this person's partition says; a look is for any of them who answers."""
        if work != "look":
            owner = self._owners[partition_of(self._key, self._partitions, whose)]
            return await owner.passed(work, operation, headers, body, whose)
        return await _first(partial(one.passed, work, operation, headers, body, whose) for one in self._each)

    async def look(self) -> dict[str, Any] | None:
        """What everyone may see of the model, from the first owner who says it."""
        try:
            return await _first(partial(_seen, one) for one in self._each)
        except Unavailable:
            return None

    async def missing(self) -> str | None:
        """Why the model does not answer everybody; None where it does."""
        found = await asyncio.gather(*(one.missing() for one in self._each))
        return next((why for why in found if why is not None), None)

    def close(self) -> None:
        """Close the connections."""
        for one in self._each:
            one.close()


async def _seen(owner: Proxy) -> dict[str, Any]:
    if (shown := await owner.look()) is None:
        raise Unavailable(AWAY)
    return shown


async def _first(asked: Iterable[Callable[[], Coroutine[Any, Any, R]]]) -> R:
    """What comes first; where all are away, what the last of them said.

    One after the other, and the next one too once the last has said nothing for a moment: an owner that starts listens
    already. So a look, which is open to everyone, costs one request while owners answer.
    """
    failed: Exception = Unavailable(AWAY)
    waiting, left = set[asyncio.Task[R]](), list(asked)
    try:
        while left or waiting:
            if left:
                waiting.add(asyncio.create_task(left.pop(0)()))
            wait = NEXT if left else None
            done, waiting = await asyncio.wait(waiting, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                try:
                    return task.result()
                except (Busy, Expired, Unavailable) as error:
                    failed = error
        raise failed
    finally:
        for one in waiting:
            one.cancel()
