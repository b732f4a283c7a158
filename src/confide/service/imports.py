"""Imports of history that had an id, as a desk remembers them for a ticket's life."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from confide.service.journal import NOBODY, Row

__all__ = ["Imported", "Imports"]

Piece = tuple[int, int, bytes | None]


@dataclass(slots=True, repr=False)
class Imported:
    """An import of history that had an id."""

    name: bytes
    sequence: int
    """The entry that made what there is of it durable."""
    rounds: int
    """Rounds taken before it."""
    minute: int
    done: int
    """Records that were taken."""
    pieces: dict[int, Piece] = field(default_factory=dict)
    """By entry: where its records begin and end, and their digest; None once one was somebody's who was forgotten."""
    sums: bytes = NOBODY
    """Whose rows the digests are."""

    @property
    def whole(self) -> list[Piece]:
        """The one digest of an older import, which is of all its records."""
        return [piece for piece in self.pieces.values() if piece[1] < 0]

    def of(self, sequence: int) -> list[int]:
        """The entries that have digests of the records of this one."""
        return [at for at, (_, end, digest) in self.pieces.items() if digest and (at == sequence or end < 0)]

    def erase(self, sequence: int) -> None:
        """Somebody in this entry is forgotten: drop the digests that they are in."""
        for at in self.of(sequence):
            begin, end, _ = self.pieces[at]
            self.pieces[at] = begin, end, None


class Imports:
    """By their names, and by the notes that have digests of their records."""

    def __init__(self) -> None:
        self._by_name: dict[bytes, Imported] = {}
        self.in_order: deque[Imported] = deque()
        """All of them, oldest first."""
        self._digests: dict[int, Imported] = {}

    def get(self, name: bytes) -> Imported | None:
        """What is known of one."""
        return self._by_name.get(name)

    def read(self, row: Row, sequence: int, minute: int, of: Imported | None) -> Imported | None:
        """A row of a note, and of which import the note's rows before it are; of which it is itself.

        It has an import's name, with how far it came (its `copy`) from where (its `leaf`), or its digest.
        """
        if row.digest != NOBODY:
            if of is not None:
                of.pieces[sequence], of.sums = (row.leaf, row.copy, row.digest), row.whose
                self._digests[sequence] = of
            return of
        known = self._by_name.get(row.id) if row.leaf > 0 else None
        if known is None:
            done = row.copy if row.copy >= 0 else sys.maxsize  # older ones are whole
            known = Imported(row.id, sequence, row.number, minute, done)
            self._by_name[row.id] = known
            self.in_order.append(known)
        else:
            known.done, known.sequence = row.copy, sequence
        known.pieces[sequence] = row.leaf, row.copy, None  # its digest comes next, unless it was erased
        return known

    def of(self, sequences: Iterable[int]) -> list[tuple[Imported, int]]:
        """Imports with digests of the records in these notes, and the notes."""
        return [(one, at) for at in sorted(sequences) for one in self._digests.values() if at in one.pieces]

    def torn(self, sequence: int) -> None:
        """Notes up to this one are deleted."""
        self._digests = {at: one for at, one in self._digests.items() if at > sequence}

    def expire(self, last: int, then: int) -> None:
        """Those of these rounds and minutes, or earlier, are not known any more."""
        while self.in_order and self.in_order[0].rounds <= last and self.in_order[0].minute <= then:
            old = self.in_order.popleft()
            if self._by_name.get(old.name) is old:
                del self._by_name[old.name]
