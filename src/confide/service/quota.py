"""How many rounds one person may take in a day, and how much time has passed: by a clock that the journal records.

Rounds are planned, and a ticket is good for so many of them. Whoever could take any number would end the learning for
all. A quota counts the rounds that a person took, which are public, and never open tickets, whose number tells who
brought labels. Proof page: docs/proofs/people.md, "The journal".
"""

from __future__ import annotations

import sys
from array import array

__all__ = ["DAY", "Clock", "Quota", "usual"]

DAY = 24 * 60
"""Minutes of a quota, and the most that the clock goes ahead at once."""

_LEAST, _PART, _ENDLESS = 100, 20, 5000


def usual(rounds: int | None) -> int:
    """The quota where none was chosen: a twentieth of the planned rounds, so that nobody ends them within 20 days.

    Where there is no last round nobody can end them; the quota then keeps one asker from crowding out the others.

    Examples
    --------
    >>> usual(100_000), usual(500), usual(None)
    (5000, 100, 5000)
    """
    return _ENDLESS if rounds is None else max(_LEAST, rounds // _PART)


class Clock:
    """Minutes that have passed, from what the journal says about the machine's clock at every question.

    Where that was turned back, this one stands still; where it was turned ahead, this one moved by a day at most: so
    nobody is shut out for long. It moves with rounds alone, and a load finds it where it was.
    """

    def __init__(self) -> None:
        self.now = 0
        """What it shows."""
        self._both: tuple[int, int | None] = 0, None  # the same, and what the machine's clock showed then

    def at(self, minute: int) -> int:
        """What it would show if the machine's clock showed this minute; reading it takes no lock."""
        now, last = self._both
        return now if last is None else now + min(max(0, minute - last), DAY)

    def tick(self, minute: int) -> None:
        """A round was taken when the machine's clock showed this minute."""
        self.now = self.at(minute)
        self._both = self.now, minute


class Quota:
    """Rounds of everybody within the last day.

    Parameters
    ----------
    most
        Rounds a person and a day; None for any number.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        """Rounds a person and a day; `limit` changes it."""
        self._people: dict[bytes, _Taken] = {}
        self.over: dict[bytes, int] = {}
        """Who was refused, and until when they will be: they take no round meanwhile."""
        self._swept = 0

    def limit(self, most: int | None) -> None:
        """Let everybody take so many rounds a day from now on: what was taken is counted whatever it is."""
        self.most, self.over = most, {}

    def left(self, whose: bytes, now: int) -> int:
        """How many rounds somebody may take."""
        return sys.maxsize if self.most is None else max(0, self.most - self._count(whose, now))

    def wait(self, whose: bytes, now: int) -> int:
        """Minutes until a round of theirs is a day old."""
        taken = self._people.get(whose)
        return DAY if taken is None or not taken.when else max(1, taken.when[0] + DAY - now)

    def refuse(self, whose: bytes, now: int) -> int:
        """Minutes until somebody may take one more round, to whom none is left."""
        wait = self.wait(whose, now)
        if not self.left(whose, now):  # otherwise those of this call, which are not taken yet, are the last
            self.over[whose] = now + wait
        return wait

    def refused(self, whose: bytes, now: int) -> int:
        """Minutes for which somebody who was refused will be; 0 for who was not. Reading it takes no lock."""
        return max(0, self.over.get(whose, 0) - now)

    def took(self, whose: bytes, now: int, rounds: int = 1) -> None:
        """Somebody took rounds."""
        taken = self._people.setdefault(whose, _Taken())
        taken.add(now, rounds)
        if now >= self._swept + DAY:
            self._swept = now
            self._people = {one: about for one, about in self._people.items() if self._count(one, now)}
            self.over = {one: until for one, until in self.over.items() if until > now}

    def _count(self, whose: bytes, now: int) -> int:
        taken = self._people.get(whose)
        if taken is None:
            return 0
        return taken.within(now)


class _Taken:
    """One person's rounds of a day, by minutes: eight bytes for each minute in which they took some."""

    __slots__ = ("rounds", "when")

    def __init__(self) -> None:
        self.rounds = 0
        self.when = array("I")  # a minute, how many rounds, the next minute, how many, …

    def add(self, now: int, rounds: int) -> None:
        """So many were taken now."""
        self.rounds += rounds
        if self.when and self.when[-2] == now:
            self.when[-1] += rounds
        else:
            self.when.extend((now, rounds))

    def within(self, now: int) -> int:
        """How many are less than a day old."""
        over = 0
        while over < len(self.when) and self.when[over] <= now - DAY:
            self.rounds -= self.when[over + 1]
            over += 2
        if over:
            del self.when[:over]
        return self.rounds
