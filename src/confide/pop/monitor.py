"""A private accuracy monitor: mistakes counted under continual observation, for numbers that others may see.

Claims and proofs: docs/proofs/monitor.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from confide.privacy.counters import SmoothCounter
from confide.privacy.random import Random
from confide.privacy.renyi import check_epsilon


class Estimate(NamedTuple):
    """What the monitor may show to anybody."""

    mistakes: int
    """Noisy number of wrong answers among those whose time for a label is over."""
    rounds: int
    """How many rounds that is about: all of them. Of a person only the first c can be among the mistakes: where people
    are protected, mistakes / rounds is no rate of errors."""
    error: float
    """All estimates of this counter are within this of the truth, with probability 0.95."""


@dataclass(frozen=True)
class Monitor:
    """Ask a POP to keep a private count of its wrong answers.

    A round's outcome enters the count exactly `delay` public rounds after it was asked, wrong if its label had come by
    then and differed from the answer shown. So one unit changes at most `rounds_per_unit` inputs by 1 each, whenever
    its labels come, and the count costs `epsilon` on top of the plan. Proof page: docs/proofs/monitor.md.

    Parameters
    ----------
    epsilon
        What the monitor adds to the guarantee.
    rounds_per_unit
        c: for one unit only its first c answered rounds are counted, for life (1 is right for units that are rounds).
    delay
        Public rounds after which a label no longer counts.
    """

    epsilon: float
    rounds_per_unit: int = 1
    delay: int = 1000

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        for name in ("rounds_per_unit", "delay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value} must be a whole number of at least 1")


class MonitorState:
    """The counter of a running monitor, and the outcomes that wait for their tick."""

    def __init__(self, monitor: Monitor, horizon: int, rng: Random) -> None:
        self.rounds_per_unit = monitor.rounds_per_unit
        self._delay = monitor.delay
        self._counter = SmoothCounter(Fraction(monitor.epsilon), horizon, monitor.rounds_per_unit, rng)
        self._waiting: deque[int] = deque()  # 1 where a wrong answer is known; position = rounds since asked
        self._asked = 0
        self._error = self._counter.error(0.05)
        self.latest: Estimate | None = None
        """The newest estimate: not to be shown before the rounds behind it are durable."""
        self._shown: Estimate | None = None
        self.ear: Callable[[int], object] | None = None
        """Told every input of the counter: for replays. The inputs are private."""

    def asked(self) -> None:
        """A round was asked: its outcome starts to wait, and the outcome that waited `delay` rounds is counted."""
        self._asked += 1
        self._waiting.append(0)
        if len(self._waiting) > self._delay:
            noisy = self.count(self._waiting.popleft())
            self.latest = Estimate(noisy, self._asked - self._delay, self._error)

    def count(self, value: int) -> int:
        """Tell the counter; its noisy total."""
        if self.ear is not None:
            self.ear(value)
        return self._counter.step(value)

    def wrong(self, age: int) -> None:
        """The answer given `age` rounds ago (0: the last one) was wrong."""
        if age < len(self._waiting):
            self._waiting[-1 - age] = 1

    def show(self, latest: Estimate | None) -> None:
        """The rounds behind this estimate are durable: anybody may see it."""
        if latest is not None and (self._shown is None or latest.rounds > self._shown.rounds):
            self._shown = latest

    @property
    def estimate(self) -> Estimate | None:
        """The latest private estimate; None until the first `delay` rounds are over."""
        return self._shown

    def numbers(self, units: str) -> dict[str, float] | None:
        """The latest estimate by names, for anybody. Of people the rounds are left out: they are no denominator."""
        if self._shown is None:
            return None
        shown = self._shown._asdict()
        if units == "people":
            del shown["rounds"]
            shown["rounds_per_unit"] = self.rounds_per_unit
        return shown

    def among(self, units: str) -> str:
        """Which answers its mistakes are among, in words; of people only the first few of each can be."""
        if units == "people":
            first = f"first {self.rounds_per_unit:,} answers" if self.rounds_per_unit > 1 else "first answer"
            return f"among the {first} to each person, and no others"
        return "" if self._shown is None else f"in {self._shown.rounds:,} rounds, silent ones too"
