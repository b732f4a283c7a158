"""Responses that leave at ticks: `confide.pacing` for an event loop, where nobody may block.

What pacing hides, and what not, is in docs/threat-model.md and docs/service.md.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

__all__ = ["LAST", "Ticks"]

LAST = 0.005
"""Seconds of the second sleep: an event loop wakes its sleepers to the millisecond, and when it gets to it."""


class Ticks:
    """When what began at some moment may leave: a whole number of `every` later, by two sleeps.

    A tick is counted from the end of the request itself, when all of its body has come: an asker who could choose how
    long before a tick the work begins would learn on which side of it the work ended.

    Parameters
    ----------
    every
        Seconds between ticks, more than 0.01.
    late
        Called when work did not end before its first tick: the operator's alarm.
    clock, sleep
        Where time comes from; for tests.
    """

    def __init__(
        self,
        every: float,
        late: Callable[[], object],
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not (math.isfinite(every) and every > 2 * LAST):
            raise ValueError(f"release_every={every!r} must be a number of seconds above {2 * LAST}")
        self.every = float(every)
        self._late, self._clock, self._sleep = late, clock, sleep

    async def wait(self, began: float) -> None:
        """Return at the next tick. Nothing may be held meanwhile."""
        ticks = max(1, math.ceil((self._clock() - began + LAST) / self.every))
        tick = began + self.every * ticks
        if ticks > 1:
            self._late()
        await self._sleep(max(tick - LAST - self._clock(), 0.0))
        await self._sleep(max(tick - self._clock(), 0.0))
