"""What a desk remembers of requests, for as long as their tickets are good: by public rounds and a public clock.

It is a copy of the ledger's journal in memory, and is made from it again when the desk is opened.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from confide.pop.keeping import Keeper
from confide.pop.tickets import Key
from confide.service.base import Question
from confide.service.journal import ASKED, IMPORT, NOBODY, TAUGHT, Row
from confide.service.quota import DAY, Clock, Quota

__all__ = ["Imported", "Request", "Requests", "Stored"]


@dataclass(slots=True, repr=False)
class Request:
    """A question as a desk takes it, with the keyed hashes that stand for it: each is computed once."""

    question: Question
    row: Row
    """What is known of it before it is answered."""
    name: bytes
    """Stands for whose it is and its id together: by it a request is known once its person was forgotten."""
    counted: bytes
    """Stands for whose it is where the rounds of a day are counted."""
    again: bool = False
    """Whether it was asked before."""
    wait: int = 0
    """Minutes until its sender may take a round; 0 if they may now."""


@dataclass(slots=True, repr=False)
class Stored:
    """A request that took a round, with what came of it."""

    name: bytes
    """As in `Request`."""
    row: Row
    """As the journal has it."""
    key: Key
    """Epoch and round."""
    minute: int
    """When it was, by the public clock."""
    sequence: int
    """The entry that made it durable."""
    taught: int = -1
    """The label that was brought; what came out for it, where labels alone are protected."""
    lesson: int = 0
    """The entry that made that durable."""
    shares: tuple[float, ...] | None = None
    """The probability of every label, where it was told: public. After a restart nobody knows it any more."""

    @property
    def open(self) -> bool:
        """Whether it was answered and waits for a label."""
        return self.row.label >= 0 and self.taught < 0


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

    def erase(self, sequence: int) -> list[int]:
        """Somebody in this entry is forgotten: drop the digests that they are in; the entries that have these."""
        theirs = [at for at, (_, end, digest) in self.pieces.items() if digest and (at == sequence or end < 0)]
        for at in theirs:
            begin, end, _ = self.pieces[at]
            self.pieces[at] = begin, end, None
        return theirs


@dataclass(slots=True, repr=False)
class _Note:
    sequence: int
    rounds: int
    """Rounds taken when it was written, its own included."""
    minute: int
    leaf: int
    """The last of the guide's leaves that has a gradient of it; −1 for none."""
    whose: list[bytes]
    """Whose its rows are, in order."""
    rows: list[Row]
    """Those of questions."""
    imported: Imported | None = None


class Requests:
    """Requests by their ids and by their tickets, and which notes of the journal are still needed.

    Parameters
    ----------
    keeper
        Has the key of the hashes, and for how many public rounds a ticket is good.
    minutes
        For how many minutes a ticket is good at least: it ends when both are over, so that nobody ends others' by
        taking many rounds.
    """

    def __init__(self, keeper: Keeper, minutes: int) -> None:
        self._life, self._minutes = keeper.life, minutes
        self._named, self._counted = partial(keeper.hash, b"asked"), partial(keeper.hash, b"quota")
        self.quota, self.clock = Quota(), Clock()
        self._by_name: dict[bytes, Stored] = {}
        self._tickets: dict[Key, Stored] = {}
        self._order: deque[Stored] = deque()
        self._imports: dict[bytes, Imported] = {}
        self._imported: deque[Imported] = deque()
        self._notes: dict[str, deque[_Note]] = {ASKED: deque(), TAUGHT: deque()}
        self.open = 0
        """Answered questions that wait for a label: private."""

    def hashes(self, whose: bytes, id: bytes) -> tuple[bytes, bytes]:
        """What stands for a request by its name, and for its sender where rounds are counted (see `Request`)."""
        return self._named(whose, id), self._counted(whose)

    def request(self, name: bytes) -> Stored | None:
        """What is stored of a request, also of one whose person was forgotten: that it took its round."""
        return self._by_name.get(name)

    def ticket(self, key: Key) -> Stored | None:
        """What is stored of the round that a ticket belongs to."""
        return self._tickets.get(key)

    def imported(self, name: bytes) -> Imported | None:
        """What is stored of an import."""
        return self._imports.get(name)

    def asked(
        self, rows: list[Row], sequence: int, rounds: int, hashes: Sequence[tuple[bytes, bytes]] | None = None
    ) -> None:
        """A note of questions was written; `hashes` of each where they are known, as they are not after a load."""
        if hashes is None:
            hashes = [(row.whose, row.id) if row.forgotten else self.hashes(row.whose, row.id) for row in rows]
        taken = [(row, *known) for row, known in zip(rows, hashes, strict=True) if row.number > 0]
        if taken:
            self.clock.tick(max(row.leaf for row, *_ in taken))
        now = self.clock.now
        for row, name, counted in taken:
            stored = Stored(name, row, (row.epoch, row.number), now, sequence)
            self._by_name[name] = stored
            self._order.append(stored)
            if not row.forgotten:
                self._tickets[stored.key] = stored
                self.open += row.label >= 0
            self.quota.took(counted, now)
        self._notes[ASKED].append(_Note(sequence, rounds, now, -1, [row.whose for row in rows], rows))

    def wait(self, counted: bytes, minute: int, asked: int) -> int:
        """Minutes until somebody may take one more round, after so many in this call, when it is this minute; or 0."""
        return self.quota.refuse(counted, self.clock.at(minute), asked)

    def refused(self, whose: bytes, minute: int) -> int:
        """Minutes for which somebody whom `wait` held up is still held up; or 0. Reading it takes no lock."""
        return self.quota.refused(self._counted(whose), self.clock.at(minute))

    def taught(self, rows: Iterable[Row], sequence: int, rounds: int) -> None:
        """A note of lessons was written."""
        note = _Note(sequence, rounds, self.clock.now, -1, [], [])
        for row in rows:
            note.whose.append(row.whose)
            if row.epoch == IMPORT:
                self._import(note, row)
                continue
            note.leaf = max(note.leaf, row.leaf)
            stored = self._tickets.get((row.epoch, row.number))
            if stored is not None and stored.taught < 0:
                self.open -= stored.open
                stored.taught, stored.lesson = row.label, sequence
        self._notes[TAUGHT].append(note)

    def _import(self, note: _Note, row: Row) -> None:
        """A row of an import: its name, with how far it came (its `copy`) from where (its `leaf`), or its digest."""
        known = self._imports.get(row.id) if row.leaf > 0 else None
        if row.digest != NOBODY:
            if note.imported is not None:
                note.imported.pieces[note.sequence] = row.leaf, row.copy, row.digest
                note.imported.sums = row.whose
            return
        if known is None:
            done = row.copy if row.copy >= 0 else sys.maxsize  # older ones are whole
            known = Imported(row.id, note.sequence, row.number, note.minute, done)
            self._imports[row.id] = known
            self._imported.append(known)
        else:
            known.done, known.sequence = row.copy, note.sequence
        note.imported = known
        known.pieces[note.sequence] = row.leaf, row.copy, None  # its digest comes next, unless it was erased

    def expire(self, rounds: int) -> list[Key]:
        """Drop what was asked, or imported, a ticket's life ago or earlier; the rounds whose tickets end with that."""
        order, last, then, ended = self._order, rounds - self._life, self.clock.now - self._minutes, list[Key]()
        while order and order[0].key[1] <= last and order[0].minute <= then:
            asked = order.popleft()
            ended.append(asked.key)
            self.close(asked)
            if self._by_name.get(asked.name) is asked:
                del self._by_name[asked.name]
        while self._imported and self._imported[0].rounds <= last and self._imported[0].minute <= then:
            old = self._imported.popleft()
            if self._imports.get(old.name) is old:
                del self._imports[old.name]
        return ended

    def close(self, stored: Stored) -> None:
        """Its ticket is good for nothing any more."""
        if self._tickets.pop(stored.key, None) is not None:
            self.open -= stored.open

    def old(self, kind: str, rounds: int) -> bool:
        """Whether there is a note of this kind from a ticket's life ago, or earlier."""
        notes = self._notes[kind]
        return bool(notes) and notes[0].rounds <= rounds - self._life

    def outlived(self, kind: str, rounds: int, before: int, leaves: int) -> int | None:
        """Up to which entry notes are no longer needed; None if all are.

        Nothing of them is within a ticket's life or a quota's day, they are not after the entry `before`, and no
        gradient of theirs is in a leaf from `leaves` on.
        """
        day = 0 if self.quota.most is None else DAY
        notes, done, then = self._notes[kind], None, self.clock.now - max(self._minutes, day)
        while notes and (first := notes[0]).rounds <= rounds - self._life and first.sequence <= before:
            if first.leaf >= leaves or first.minute > then:
                break
            done = notes.popleft().sequence
        return done

    def of(self, whose: bytes) -> list[Stored]:
        """Somebody's requests."""
        return [stored for stored in self._tickets.values() if stored.row.whose == whose]

    def forget(self, whose: bytes) -> list[tuple[str, int, bytes, list[Row]]]:
        """Drop somebody's requests; (kind, sequence, whose, rows that take their place) of all notes that have theirs.

        That a request was made stays, by its name, for a ticket's life: one that is sent again takes no round, whether
        or not its person was forgotten, and it counts for their quota. Nothing stays of lessons. The digest of an
        import with a record of theirs goes too: whoever has the key could try what it was.
        """
        for stored in self.of(whose):
            self.close(stored)
            stored.row = stored.row.left(stored.name, self._counted(whose))
        erased = list[tuple[str, int, bytes, list[Row]]]()
        for kind, notes in self._notes.items():
            for note in notes:
                if whose not in note.whose:
                    continue
                theirs = [row.left(*self.hashes(whose, row.id)) if row.whose == whose else row for row in note.rows]
                note.rows = theirs
                left = [row for row, who in zip(note.rows, note.whose, strict=False) if who == whose]
                note.whose = [NOBODY if who == whose else who for who in note.whose]
                erased.append((kind, note.sequence, whose, left))
                if (imported := note.imported) is not None:
                    erased += [(kind, at, imported.sums, []) for at in imported.erase(note.sequence)]
        return erased

    def due(self, last: int) -> list[Stored]:
        """Answered questions up to this round that wait for a label, in order."""
        found = list[Stored]()
        for one in self._order:
            if one.key[1] > last:
                break
            if one.open and one.key in self._tickets:
                found.append(one)
        return found

    def waiting(self) -> Iterator[Stored]:
        """Answered questions that wait for a label, in order."""
        return (one for one in self._order if one.key in self._tickets and one.open)
