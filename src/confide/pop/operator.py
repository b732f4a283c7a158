"""What the operator alone may see."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from confide.banks.base import Bank, Failures
from confide.pop.lessons import Late
from confide.pop.loop import Loop
from confide.pop.randomizing import Randomizing
from confide.privacy.gate import lead

__all__ = ["Operator"]


class Operator:
    """Exact, private numbers for the operator's eyes only: outside the guarantee, never to be shown to others."""

    def __init__(self, loop: Loop, lock: AbstractContextManager[object]) -> None:
        self.loop = loop
        """The running parts."""
        self._lock = lock  # lessons that wait are taught once, whoever looks

    @property
    def unsure(self) -> int:
        """The exact count of unsure answers; in a relay over all legs."""
        return self.loop.account.unsure

    @property
    def counts(self) -> NDArray[np.int64] | None:
        """Vote counts of the last live round."""
        return None if self.loop.last is None else self.loop.last.copy()

    @property
    def margin(self) -> int | None:
        """Their margin."""
        return None if self.loop.last is None else lead(self.loop.last)[1]

    @property
    def bank(self) -> Bank:
        """The copies, with everything learned that was brought."""
        with self._lock:
            self.loop.lessons.apply()
        return self.loop.bank

    @property
    def nbytes(self) -> int:
        """Memory of the copies, in bytes."""
        return self.loop.bank.nbytes

    @property
    def guide_labels(self) -> int | None:
        """Labels of people that the guide learned from; None where units are rounds, or there is no guide."""
        account = self.loop.account
        if not self.loop.parts or self.loop.routing.units != "people":
            return None
        with self._lock:
            return sum(map(account.learned, account.labels)) - (0 if self.loop.line is None else self.loop.line.taken)

    @property
    def ended(self) -> int | None:
        """People who have taught in all periods that a person has, and teach nothing any more; None without periods."""
        account = self.loop.account
        if (periods := account.periods) is None:
            return None
        with self._lock:
            now = periods.at(account.rounds)
            return sum(periods.over(count, now) for count in account.labels.values())

    @property
    def late(self) -> Late:
        """Labels that came too late to teach anything, since the POP was made or loaded."""
        return self.loop.late

    @property
    def taught(self) -> int:
        """Labels taught."""
        with self._lock:
            return self.loop.lessons.taught if self.randomizing is None else self.randomizing.learned

    @property
    def randomizing(self) -> Randomizing | None:
        """What randomizes labels, and the model that is taught what came out; None where rows are protected."""
        return self.loop.parts.get(Randomizing)

    @property
    def failures(self) -> Failures:
        """How often the learner failed: raised, or answered something else than a label."""
        with self._lock:
            return self.loop.failures.plus(self.loop.parts.failures)
