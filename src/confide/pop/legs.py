"""A relay's legs: which half of the copies votes, which one learns, and since when. All of it is public.

Rounds are cut into legs by firings of the halting gate and by round numbers. In a leg one half of the copies votes, the
other one learns; where nobody votes yet, those learn that will. At the end of a leg who has voted forgets everything.
Proof page: docs/proofs/relay.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from confide.errors import StateError

__all__ = ["KIND", "Legs"]

KIND = "copies/leg"
"""What a leg's row is called in a ledger, among what was released."""

_PUBLIC, _PRIVATE = Struct("<4q"), Struct("<3q")

Row = tuple[str, int, bytes, bytes]


class Legs(NamedTuple):
    """Where a relay stands.

    Examples
    --------
    >>> first = Legs(half=100, start=40)
    >>> first.voters, first.learners(40), first.learners(41)
    (range(0, 100), range(0, 100), range(100, 200))
    >>> second = first.swapped(rounds=60, silent=40)
    >>> second.voters, second.start, second.keeps(150, 41), second.keeps(50, 40)
    (range(100, 200), 80, True, False)
    """

    half: int
    """Copies in a half."""
    start: int
    """The leg's last silent round: from the next one on its voters vote."""
    number: int = 0
    began: int = 0
    """The last round before this leg. After it those were reset who learn in this leg."""
    before: int = 0
    """The same of the leg before: after it those were reset who vote in this leg."""

    @property
    def voters(self) -> range:
        """The copies that vote in this leg."""
        return self._half(self.number % 2)

    def learners(self, number: int) -> range:
        """The copies that learn what is asked in this round of the leg: while it is silent, those that will vote."""
        return self._half((self.number + (number > self.start)) % 2)

    def _half(self, which: int) -> range:
        return range(which * self.half, (which + 1) * self.half)

    def keeps(self, copy: int, number: int) -> bool:
        """Whether a copy is still in the life in which it was drawn for this round: else its label teaches no copy."""
        return number > (self.before if copy in self.voters else self.began)

    def renewed(self, since: int) -> list[int]:
        """The copies that were reset since a leg: of the leg before, those that learn in this one."""
        halves = {number % 2 for number in range(since, self.number)}
        return [copy for which in sorted(halves) for copy in self._half(which)]

    def swapped(self, rounds: int, silent: int) -> Legs:
        """The next leg, after so many rounds. It is silent until its voters have learned for `silent` rounds."""
        return Legs(self.half, max(self.start + silent, rounds), self.number + 1, rounds, self.began)

    def row(self, entry: int, unsure: int, sequences: Sequence[int]) -> Row:
        """What an entry has of it, with the unsure answers before it, and the entries in which this and the last began.

        Every entry has such a row, of one size, so that what is written does not tell of a swap before it is durable.
        """
        public = _PUBLIC.pack(self.number, self.start, self.began, self.before)
        return KIND, entry, public, _PRIVATE.pack(unsure, *sequences)

    @classmethod
    def read(cls, half: int, released: Sequence[Row]) -> tuple[Legs, int, tuple[int, int]]:
        """The last leg that a ledger has, and what `row` was given."""
        rows = [row for row in released if row[0] == KIND]
        if not rows:
            raise StateError("the ledger does not say where its relay stands: do not use this state")
        _, _, public, private = max(rows, key=lambda row: row[1])
        (number, start, began, before), (unsure, *sequences) = _PUBLIC.unpack(public), _PRIVATE.unpack(private)
        return cls(half, start, number, began, before), unsure, (sequences[0], sequences[1])
