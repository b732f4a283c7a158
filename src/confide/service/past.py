"""What the operator's door remembers while the service runs: how models did over time, and which operator did what.

Both are in memory only, and for operators alone. Of a person that was looked up or forgotten nothing is kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["EVERY", "Deeds", "Past"]

EVERY = 30.0
"""Seconds between two moments, at first."""

MOMENTS, DEEDS = 256, 200


class Past:
    """How one model did, moment by moment. When there are many, every second one is dropped.

    Then they come half as often.

    Parameters
    ----------
    clock
        Seconds since 1970; for tests.

    Examples
    --------
    >>> past = Past(clock=lambda: 60.0)
    >>> past.note({"rounds": 9, "monitor": None}, {"labels": 3, "guide_labels": 2, "taught": 0})
    >>> past.moments
    [{'time': 60.0, 'rounds': 9, 'mistakes': None, 'labels': 3, 'learned': 2}]
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._every = clock, EVERY
        self.moments: list[dict[str, float | None]] = []
        """Time, rounds and mistakes by the private monitor, which are public; labels that came and labels learned."""

    def note(self, public: Mapping[str, Any], private: Mapping[str, Any]) -> None:
        """What a model shows now, unless the last moment was just before."""
        now, monitor = self._clock(), public["monitor"]
        if self.moments and now - (self.moments[-1]["time"] or 0.0) < self._every:
            return
        learned = private.get("guide_labels")
        self.moments.append(
            {
                "time": now,
                "rounds": public["rounds"],
                "mistakes": None if monitor is None else monitor["mistakes"],
                "labels": private.get("labels", 0),
                "learned": learned if learned is not None else private.get("taught") or None,
            }
        )
        if len(self.moments) > MOMENTS:
            self.moments, self._every = self.moments[::2], 2 * self._every


class Deeds:
    """Which operator did what, to which model, and when: the last 200, never about whom.

    Examples
    --------
    >>> deeds = Deeds(clock=lambda: 60.0)
    >>> deeds.note("tokens:eve", "drain", "spam")
    >>> deeds.of("spam")
    [{'time': 60.0, 'operator': 'tokens:eve', 'operation': 'drain'}]
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._deeds: deque[tuple[float, str, str, str]] = deque(maxlen=DEEDS)

    def note(self, operator: str, operation: str, model: str) -> None:
        """An operator does something."""
        self._deeds.appendleft((self._clock(), operator, operation, model))

    def of(self, model: str) -> list[dict[str, Any]]:
        """What was done to one model, the latest first."""
        told = [(when, who, what) for when, who, what, whose in self._deeds if whose == model]
        return [{"time": when, "operator": who, "operation": what} for when, who, what in told]
