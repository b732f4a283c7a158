"""What a desk remembers of requests, for as long as their tickets are good: by public rounds, never by their number.

It is a copy of the ledger's journal in memory, and is made from it again when the desk is opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confide.pop.tickets import Key
from confide.service.rows import ASKED, IMPORT, NOBODY, TAUGHT, Row

__all__ = ["Imported", "Memory", "Stored"]


@dataclass(slots=True, repr=False)
class Stored:
    """A request that took a round, with what came of it."""

    row: Row
    """As the journal has it."""
    key: Key
    """Epoch and round."""
    sequence: int
    """The entry that made it durable."""
    taught: int = -1
    """The label that was brought."""
    lesson: int = 0
    """The entry that made that durable."""

    @property
    def open(self) -> bool:
        """Whether it was answered and waits for a label."""
        return self.row.label >= 0 and self.taught < 0


@dataclass(slots=True, repr=False)
class Imported:
    """An import of history that had an id."""

    name: bytes
    digest: bytes | None
    """Of all its records; None once one of them was somebody's who was forgotten."""
    sequence: int
    """The entry that made it durable."""
    rounds: int
    """Rounds taken before it."""


@dataclass(slots=True, repr=False)
class _Note:
    sequence: int
    rounds: int
    """Rounds taken when it was written, its own included."""
    leaf: int
    """The last of the guide's leaves that has a gradient of it; −1 for none."""
    whose: list[bytes]
    imported: Imported | None = None
    sums: bytes = NOBODY
    """Whose the row with the import's digest is."""


class Memory:
    """Requests by their ids and by their tickets, and which notes of the journal are still needed.

    Parameters
    ----------
    life
        Public rounds for which a ticket is good.
    """

    def __init__(self, life: int) -> None:
        self._life = life
        self._requests: dict[tuple[bytes, bytes], Stored] = {}
        self._tickets: dict[Key, Stored] = {}
        self._order: deque[Stored] = deque()
        self._imports: dict[bytes, Imported] = {}
        self._imported: deque[Imported] = deque()
        self._notes: dict[str, deque[_Note]] = {ASKED: deque(), TAUGHT: deque()}
        self.open = 0
        """Answered questions that wait for a label: private."""

    def request(self, whose: bytes, name: bytes) -> Stored | None:
        """What is stored of a request."""
        return self._requests.get((whose, name))

    def ticket(self, key: Key) -> Stored | None:
        """What is stored of the round that a ticket belongs to."""
        return self._tickets.get(key)

    def imported(self, name: bytes) -> Imported | None:
        """What is stored of an import."""
        return self._imports.get(name)

    def asked(self, rows: Iterable[Row], sequence: int, rounds: int) -> None:
        """A note of questions was written."""
        note = _Note(sequence, rounds, -1, [])
        for row in rows:
            note.whose.append(row.whose)
            if row.number > 0:
                self._store(Stored(row, (row.epoch, row.number), sequence))
        self._notes[ASKED].append(note)

    def _store(self, stored: Stored) -> None:
        self._requests[stored.row.whose, stored.row.id] = stored
        self._tickets[stored.key] = stored
        self._order.append(stored)
        self.open += stored.open

    def taught(self, rows: Iterable[Row], sequence: int, rounds: int) -> None:
        """A note of lessons was written."""
        note = _Note(sequence, rounds, -1, [])
        for row in rows:
            note.whose.append(row.whose)
            note.leaf = max(note.leaf, row.leaf)
            if row.epoch == IMPORT:
                self._import(note, row)
                continue
            stored = self._tickets.get((row.epoch, row.number))
            if stored is not None and stored.taught < 0:
                self.open -= stored.open
                stored.taught, stored.lesson = row.label, sequence
        self._notes[TAUGHT].append(note)

    def _import(self, note: _Note, row: Row) -> None:
        if row.digest == NOBODY:  # the first of the two rows
            note.imported = Imported(row.id, None, note.sequence, row.number)
            self._imports[row.id] = note.imported
            self._imported.append(note.imported)
        elif note.imported is not None:
            note.imported.digest, note.sums = row.digest, row.whose

    def expire(self, rounds: int) -> None:
        """Drop what was asked, or imported, `life` rounds ago or earlier."""
        order, last = self._order, rounds - self._life
        while order and order[0].key[1] <= last:
            self._drop(order.popleft())
        while self._imported and self._imported[0].rounds <= last:
            old = self._imported.popleft()
            if self._imports.get(old.name) is old:
                del self._imports[old.name]

    def _drop(self, stored: Stored) -> None:
        if self._tickets.pop(stored.key, None) is None:
            return
        self.open -= stored.open
        name = stored.row.whose, stored.row.id
        if self._requests.get(name) is stored:
            del self._requests[name]

    def outlived(self, kind: str, rounds: int, before: int, leaves: int) -> int | None:
        """Up to which entry notes are no longer needed; None if all are.

        Nothing of them is within a ticket's life, they are not after the entry `before`, and no gradient of theirs is
        in a leaf from `leaves` on.
        """
        notes, done = self._notes[kind], None
        while notes and (first := notes[0]).rounds <= rounds - self._life and first.sequence <= before:
            if first.leaf >= leaves:
                break
            done = notes.popleft().sequence
        return done

    def of(self, whose: bytes) -> list[Stored]:
        """Somebody's requests."""
        return [stored for stored in self._tickets.values() if stored.row.whose == whose]

    def forget(self, whose: bytes) -> list[tuple[str, int, bytes]]:
        """Drop somebody's requests; the rows (kind, sequence, whose) of the journal that are theirs.

        The digest of an import with a record of theirs goes too: whoever has the key could try what it was.
        """
        for stored in self.of(whose):
            self._drop(stored)
        rows = list[tuple[str, int, bytes]]()
        for kind, notes in self._notes.items():
            for note in notes:
                if whose in note.whose:
                    rows.append((kind, note.sequence, whose))
                    if note.imported is not None and note.imported.digest is not None:
                        note.imported.digest = None
                        rows.append((kind, note.sequence, note.sums))
        return rows

    def waiting(self) -> Iterator[Stored]:
        """Answered questions that wait for a label, in order."""
        return (one for one in self._order if one.key in self._tickets and one.open)
