"""Responses that leave at ticks: `confide.pacing` for an event loop, where nobody may block.

An event loop's own timers do not do: they have the grain of a millisecond, and begin it anew whenever the loop wakes,
so that they ring later by what the work took modulo a millisecond. Here a thread of its own rings, at moments that are
fixed when a request has come and before any work begins.

What pacing hides, and what not, is in docs/threat-model.md and docs/service.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Protocol

__all__ = ["LAST", "Bell", "Bells", "Ring", "Ticks", "Turn"]

LAST = 0.005
"""Seconds of the second wait, which is the same for all: how late a sleeper wakes depends on how long it slept."""


class Ring(Protocol):
    """One ringing of a bell."""

    @property
    def rung(self) -> bool:
        """Whether it has rung."""

    def wait(self) -> Awaitable[None]:
        """Until it rings."""


class Bells(Protocol):
    """What rings at moments of the service's clock."""

    def at(self, moment: float) -> Ring:
        """Ring at this moment."""


class _Rung:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._future = loop, loop.create_future()

    @property
    def rung(self) -> bool:
        return self._future.done()

    def wait(self) -> Awaitable[None]:
        return self._future

    def ring(self) -> None:
        """Called by the bell's thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._done)

    def _done(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class Bell:
    """Rings by a thread that sleeps until the next moment, whatever the event loop does meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._order = clock, count()
        self._moments: list[tuple[float, int, _Rung]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def at(self, moment: float) -> Ring:
        """Ring at this moment, in the event loop that asks for it."""
        ring = _Rung(asyncio.get_running_loop())
        with self._changed:
            heapq.heappush(self._moments, (moment, next(self._order), ring))
            if self._moments[0][2] is ring:
                self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bell", daemon=True)
                self._thread.start()
        return ring

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._moments or (left := self._moments[0][0] - self._clock()) > 0:
                    self._changed.wait(left if self._moments else None)
                ring = heapq.heappop(self._moments)[2]
            ring.ring()


class Ticks:
    """When what began at some moment may leave: a whole number of `every` later.

    A tick is counted from the end of the request itself, when all of its body has come: an asker who could choose how
    long before a tick the work begins would learn on which side of it the work ended.

    Parameters
    ----------
    every
        Seconds between ticks, more than 0.01.
    late
        Called when work did not end before its first tick: the operator's alarm.
    clock, bell
        Where time comes from; for tests.
    """

    def __init__(
        self,
        every: float,
        late: Callable[[], object],
        *,
        clock: Callable[[], float] = time.perf_counter,
        bell: Bells | None = None,
    ) -> None:
        if not (math.isfinite(every) and every > 2 * LAST):
            raise ValueError(f"release_every={every!r} must be a number of seconds above {2 * LAST}")
        self.every = float(every)
        self._late, self._clock = late, clock
        self._bell: Bells = Bell(clock) if bell is None else bell

    def turn(self, began: float | None = None) -> Turn:
        """What began at this moment, or now, and has not begun its work: its tick is set now."""
        return Turn(self, self._clock() if began is None else began)

    def rings(self, tick: float) -> tuple[Ring, Ring]:
        """Shortly before a tick, and at the tick."""
        return self._bell.at(tick - LAST), self._bell.at(tick)

    def late(self, began: float) -> int:
        """An alarm; the number of the next tick that can be kept."""
        self._late()
        return max(2, math.ceil((self._clock() - began + LAST) / self.every))


class Turn:
    """One response's way out. Its event loop wakes shortly before the tick and at the tick, whatever the work took."""

    def __init__(self, ticks: Ticks, began: float) -> None:
        self._ticks, self._began = ticks, began
        self._near, self._tick = ticks.rings(began + ticks.every)

    async def leave(self) -> None:
        """The work is done: return at the next tick. Nothing may be held meanwhile."""
        if self._near.rung:
            number = self._ticks.late(self._began)
            self._near, self._tick = self._ticks.rings(self._began + number * self._ticks.every)
        await self._near.wait()
        await self._tick.wait()
