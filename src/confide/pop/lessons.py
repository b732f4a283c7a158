"""Lessons on their way to the copies: brought at any time, learned when the next public round begins.

So bringing a label takes the same time whatever its copy knows. No vote is counted in between, so the copies are those
that had learned at once. Proof page: docs/proofs/people.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from confide.banks.base import Bank
from confide.contained import contained
from confide.pop.tickets import Key, Waiting

__all__ = ["MORE", "NEVER_LATE", "TOO_LATE", "Late", "Lesson", "Lessons"]

MOST = 1 << 16
"""Lessons that may wait: more come only where history is taught one by one."""


TOO_LATE = "it learns as rounds are asked, so bring the labels of some hundred rows before the next rows are asked"
"""What to do about labels that come too late; …"""


MORE = ", and plan for more rounds than these"
"""… and where a number of rounds was promised."""


PAST = "they teach nothing; bring labels sooner, or plan with longer periods"
"""… and about those of a period that is over."""


ANEW = "they teach no copy; bring labels sooner, or plan with longer legs"
"""… and about those of a relay whose copy was reset."""


class Lesson(NamedTuple):
    """A label that was taken."""

    key: Key
    """The ticket that it used."""
    waiting: Waiting
    label: int
    leaf: int
    """The open releases of public parts that have it (`confide.pop.several.Parts.stamp`); −1 for none."""

    def __repr__(self) -> str:
        return f"Lesson(key={self.key})"


class Late(NamedTuple):
    """Labels that came too late to teach anything (`Loop._miss`)."""

    labels: int = 0
    old: int = 0
    """Those of them that came after a tenth of all rounds or more, as where all is asked before anything is taught."""
    past: int = 0
    """Those of them that came after the period in which their question was asked."""
    anew: int = 0
    """Labels that taught no copy, as theirs had begun anew since the question: in a relay."""

    def plus(self, rounds: int, number: int) -> Late:
        """One more, of this round, after so many rounds."""
        return self._replace(labels=self.labels + 1, old=self.old + (10 * (rounds - number) >= rounds))

    def one_past(self) -> Late:
        """One more, of a period that is over."""
        return self._replace(labels=self.labels + 1, past=self.past + 1)

    def one_anew(self) -> Late:
        """One more, of a copy that had begun anew."""
        return self._replace(anew=self.anew + 1)

    @property
    def sentence(self) -> str:
        """In words, where they are worth any; else nothing."""
        said = [f"{self.labels:,} labels came too late to teach anything: {TOO_LATE}"] if self.old else []
        said += [f"{self.past:,} labels came later than the period of their question: {PAST}"] if self.past else []
        said += [f"{self.anew:,} labels came after their copy had begun anew: {ANEW}"] if self.anew else []
        return "; ".join(said)


NEVER_LATE = Late()


class Lessons:
    """A queue in front of a bank."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._queue: list[tuple[int, Any, int]] = []
        self._taught = self._failed = 0

    @property
    def failed(self) -> int:
        """Labels that a learner failed to learn: private, for the operator."""
        self.apply()
        return self._failed

    @property
    def taught(self) -> int:
        """Labels taught: private, for the operator."""
        self.apply()
        return self._taught

    def add(self, copy: int, x: Any, label: int) -> None:
        """Teach this later."""
        self._queue.append((copy, x, label))
        if len(self._queue) >= MOST:
            self.apply()

    def apply(self) -> None:
        """Teach what waits, in order. A learner's exception reaches nobody: it would tell of what the copy knows."""
        if not self._queue:
            return
        queue, self._queue = self._queue, []  # an interrupt loses lessons; it never teaches one twice
        if len(queue) == 1:
            with contained:
                self._bank.learn(*queue[0])
                self._taught += 1
                return
            self._failed += 1
            return
        copies, labels = np.array([(copy, label) for copy, _, label in queue], dtype=np.int64).T.copy()
        self.many(copies, [x for _, x, _ in queue], labels)

    def many(self, copies: Any, rows: Any, labels: Any) -> None:
        """Teach these now, after whatever waits."""
        self.apply()
        taught = 0
        with contained:
            taught = self._bank.learn_many(copies, rows, labels)
        self.count(taught, len(labels) - taught)

    def count(self, taught: int, failed: int = 0) -> None:
        """So many were taught by fused rounds, or before a load."""
        self._taught += taught
        self._failed += failed
