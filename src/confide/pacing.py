"""Answers that leave at ticks, so that the time they took is not told with them.

What an answer's time tells, and what pacing does not hide, is in docs/threat-model.md.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

__all__ = ["Pace"]

P = ParamSpec("P")
R = TypeVar("R")

LAST = 0.001
"""Seconds of the second sleep."""


class Pace:
    """Lets what is done within it leave at ticks: a whole number of `every` after it began, whatever it took.

    The ticks are counted from each question's own arrival. On a clock that all share, an asker could choose the moment
    just before a tick, and would learn on which side of it the work ended. What takes longer than a tick
    leaves at the next, so choose `every` well above what work takes: then all of it leaves at the first.

    The wait is two sleeps. How late a sleeper wakes depends on how long it slept, and one sleep would so tell what it
    hides; here the last sleep is always about a millisecond. Errors leave at ticks too. One Pace serves all
    threads; in each the inner of two nested paces comes first.

    Parameters
    ----------
    every
        Seconds between ticks, more than 0.002.
    clock, sleep
        Where time comes from; for tests.

    Examples
    --------
    >>> pace = Pace(every=0.01)
    >>> with pace:
    ...     answer = 6 * 7  # stands for pop.predict(x, unit=...)
    >>> pace.release(max, 3, 4)
    4
    """

    def __init__(
        self,
        every: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (isinstance(every, float | int) and math.isfinite(every) and every > 2 * LAST):
            raise ValueError(f"every={every!r} must be a number of seconds above {2 * LAST}")
        self.every = float(every)
        self._clock, self._sleep = clock, sleep
        self._begun = threading.local()

    def __enter__(self) -> None:
        if not hasattr(self._begun, "times"):
            self._begun.times = []
        self._begun.times.append(self._clock())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began = self._begun.times.pop()
        if kind is None or issubclass(kind, Exception):  # an interrupt need not wait
            self._wait(began)

    def release(self, function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """What `function` returns or raises, at the tick."""
        with self:
            return function(*args, **named)

    def _wait(self, began: float) -> None:
        # The second sleep must fit in as well, or whoever is done just before a tick would leave without it.
        tick = began + self.every * math.ceil(max(self._clock() - began + LAST, 0.0) / self.every)
        self._sleep(max(tick - LAST - self._clock(), 0.0))
        self._sleep(max(tick - self._clock(), 0.0))

    def __repr__(self) -> str:
        return f"Pace(every={self.every})"
