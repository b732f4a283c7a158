"""What a desk reads from requests, and remembers of them while their tickets are good: by public rounds and a clock.

It is the last part of the ledger's journal, in memory, and an index of the rest (`confide.service.older`); both are
made from the journal again when the desk is opened. It decides nothing.
"""

from __future__ import annotations

import hmac
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confide.banks.base import FORM
from confide.pop.base import COPIES, SOURCES, Answer, Told
from confide.pop.keeping import Keeper
from confide.pop.loop import Outcome
from confide.pop.pop import POP
from confide.pop.tickets import Key, Waiting
from confide.service.base import Later, Question, Refusal, Reply
from confide.service.journal import ASKED, IMPORT, MOST_LABELS, NOBODY, STANDS, TAUGHT, Row, canonical, pack, unpack
from confide.service.older import Bunch, Noted, Older, Place, halves_of
from confide.service.quota import DAY, Clock, Quota
from confide.service.words import FORGOTTEN, HALTED, OTHER_QUESTION, OVER, UNREAD

__all__ = ["MOST", "RECENT", "Imported", "Request", "Requests", "Stored", "refused_for_today"]

RECENT = 4096
"""Rounds whose questions are in memory, as they were read, for a label or a retry that comes soon. Public."""

_BUNCHES = 16
"""The others leave in bunches of this part of them, as each bunch is one write."""

MOST = 64
"""Questions that are over and leave with one call, beside twice as many as it asks. Public."""


@dataclass(slots=True, repr=False)
class Request:
    """A question as a desk takes it, with the keyed hashes that stand for it: each is computed once."""

    question: Question
    minute: int
    """When it came, by the machine's clock."""
    x: bytes | None
    """Packed; None where it cannot be stored."""
    whose: bytes
    id: bytes
    digest: bytes
    """As in `Row`."""
    name: bytes
    """Stands for whose it is and its id together: by it a request is known once its person was forgotten."""
    counted: bytes
    """Stands for whose it is where the rounds of a day are counted."""
    again: bool = False
    """Whether it was asked before."""
    wait: int = 0
    """Minutes until its sender may take a round; 0 if they may now."""
    unread: bool = False
    """Whether it was asked before, and the journal cannot give it now."""
    wrong: str = ""
    """What is wrong with it, where that was found when it was asked."""

    def is_at(self, place: Place) -> bool:
        """Whether this place is its own, or what it left there when its person was forgotten."""
        return place.key == (self.name + self.counted if place.forgotten else self.whose + self.id)

    def row(self, outcome: Outcome, epoch: int, copy: int | None = None) -> Row:
        """What the journal has of it, once it was asked, with its copy or what else `Row.copy` says."""
        waiting, label, guided, source, x = outcome.waiting, outcome.label, outcome.guided, outcome.source, self.x
        if waiting is None or x is None:
            copy = label = guided = source = -1
        elif copy is None:
            copy = waiting.copy
        whose = self.whose
        return Row(whose, self.id, self.digest, outcome.number, epoch, copy, self.minute, label, guided, source, x)


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
    at: int
    """Its place in the note."""
    waiting: Waiting | None = None
    """What its label will teach; None once that was brought, or where it is to be read again."""
    taught: int = -1
    """The label that was brought; what came out for it, where labels alone are protected."""
    lesson: int = 0
    """The entry that made that durable."""
    shares: tuple[float, ...] | None = None
    """The probability of every label, where it was told: public. After a restart nobody knows it any more."""
    counted: bool = False
    """Whether the monitor counts the round, where `waiting` does not say it."""

    def place(self, half: int) -> Place:
        """Where the journal has it, and what came of it: all that is kept of it outside of the memory."""
        row, waiting = self.row, self.waiting
        counted = self.counted if waiting is None else waiting.counted
        about = row.leaf, self.minute, row.label, row.source, self.taught, self.lesson, counted, row.forgotten
        return Place(row.number, half, row.whose + row.id, self.sequence, self.at, row.epoch, *about, self.shares)

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


class Requests:
    """Requests by their ids and by their tickets, and which notes of the journal are still needed.

    The last `RECENT` of them are in memory, by public rounds; the others are in the journal (`confide.service.older`).

    Parameters
    ----------
    keeper
        Has the key of the hashes, and for how many public rounds a ticket is good.
    room
        Bytes for a stored question.
    minutes
        For how many minutes a ticket is good at least: it ends when both are over, so that nobody ends others' by
        taking many rounds.
    """

    def __init__(self, pop: POP, keeper: Keeper, older: Older, room: int, minutes: int) -> None:
        if len(pop.labels) > MOST_LABELS:
            raise ValueError(f"a served model has {MOST_LABELS:,} labels at most: join those that are rare")
        self._pop, self._keeper, self._room, self._labels = pop, keeper, room, pop.labels
        alone = pop.operator.randomizing
        self._deadline = alone is not None and alone.part.deadline is not None
        self._life, self._minutes = keeper.tickets.life, minutes
        self.long = f"x has no JSON form, or one of more than {room:,} bytes: send a shorter one"
        """What is said of an x that cannot be stored."""
        self.quota, self.clock = Quota(), Clock()
        self._keyed: tuple[Any, Any, Any] | None = None  # what the hashes of ids, questions and names begin with
        self.older = older
        """Where those are that are not in memory."""
        self._by_name: dict[bytes, Stored] = {}
        self._rounds: OrderedDict[Key, Stored] = OrderedDict()  # in their order
        self._recalled: dict[Key, Stored] = {}  # older ones, while a call looks at them
        self._found: dict[bytes, Stored] = {}  # the same by their names
        self._unread = set[bytes]()  # names of those that the journal cannot give now
        self._late = set[Key]()  # those in memory that are over, while a call looks at them
        self._digests: dict[int, Imported] = {}  # imports, by the notes that have their digests
        self._ended: set[Key] = set()  # taken for a label that was not noted: the call was cut off
        self._last = self._then = -1  # what is over, by rounds and by minutes
        self._counted = -1  # the round up to which what is in the index was found to be over
        self._due: _Mark | None = None  # the next of the index to be over
        self._kept: _Mark | None = None  # the first of the index that is still needed
        self._more = False  # whether notes of questions were left to the next call
        self._torn = {ASKED: 0, TAUGHT: 0}  # up to which entry the journal has no notes any more
        self._loaded = 0  # the last note of questions that the journal had when the desk was opened
        self._untaught = -1, -1  # of what was asked by then, in rounds and minutes, the journal has no lesson any more
        self._places: dict[Key, Place] = {}  # those of `_recalled`
        self._imports: dict[bytes, Imported] = {}
        self._imported: deque[Imported] = deque()
        self.open = 0
        """Answered questions that wait for a label: private."""

    # ------------------------------------------------------------------ in and out

    def read(self, questions: Iterable[Question], minute: int) -> list[Request]:
        """Questions that came in this minute, of which nothing is known but what was asked, and by whom."""
        keeper, people, made, room = self._keeper, dict[str, tuple[bytes, bytes]](), list[Request](), self._room
        if self._keyed is None:
            self._keyed = keeper.keyed(b"request"), keeper.keyed(b"x"), keeper.keyed(b"asked")
        ids, xs, names = self._keyed
        ids, xs, names = ids.copy, xs.copy, names.copy
        for one in questions:
            subject, asked, x = one
            known = people.get(subject)
            if known is None:
                whose = keeper.who(subject)
                known = people[subject] = whose, keeper.hash(b"quota", whose)
            (whose, counted), packed = known, pack(x)
            named, digest, name = ids(), xs(), names()  # as `Keeper.hash` does
            named.update(asked.encode("utf-8", "surrogatepass"))
            digest.update(canonical(x, packed))
            id = named.digest()
            name.update(whose + id)
            if packed is not None and len(packed) > room:
                packed = None
            made.append(Request(one, minute, packed, whose, id, digest.digest(), name.digest(), counted))
        return made

    def hashes(self, whose: bytes, id: bytes) -> tuple[bytes, bytes]:
        """What stands for a request by its name, and for its sender where rounds are counted (see `Request`)."""
        return self._keeper.hash(b"asked", whose, id), self._keeper.hash(b"quota", whose)

    def fresh(self, requests: Sequence[Request], minute: int) -> list[Request]:
        """Those that take a round: the others were asked before, or their sender must wait, and each says so then.

        Or the journal cannot be read where it has what was asked before: that sender is to come again, and nobody else.
        """
        now, known, left = self.clock.at(minute), self._by_name, dict[bytes, int]()
        fresh: dict[bytes, Request] = {}
        self.dismiss()
        if self.older.undone:
            self.older.redo()
        if self.older.size:
            self._find(requests)
        for one in requests:
            name, counted = one.name, one.counted
            if name in fresh or name in known or name in self._found:
                one.again = True
                continue
            if name in self._unread:
                one.unread = True
                continue
            if counted not in left:
                left[counted] = self.quota.left(counted, now)
            if left[counted] > 0:
                left[counted] -= 1
                fresh[name] = one
            else:
                one.wait = self.quota.refuse(counted, now)
        return list(fresh.values())

    def _find(self, requests: Sequence[Request]) -> None:
        """Those of these requests that were asked, and are not in memory any more."""
        asked = {one.name: one for one in requests if one.name not in self._by_name}
        places = [(name, self.older.at(number)) for name, number in self.older.find([*asked]).items()]
        known = {
            name: one for name, one in places if one is not None and asked[name].is_at(one) and not self._over(one)
        }
        rows = self.older.rows(one for one in known.values() if not one.forgotten)
        self._unread = {name for name, one in known.items() if not one.forgotten and one.number not in rows}
        self._found = {
            name: _of(one, name, rows.get(one.number)) for name, one in known.items() if name not in self._unread
        }

    def refused(self, questions: Sequence[Question], minute: int) -> dict[int, Reply]:
        """Those of one sender, by their places, that `fresh` would find to wait as it did before; it takes no lock."""
        hash, whose = self._keeper.hash, self._keeper.who(questions[0].subject)
        wait = self.quota.refused(hash(b"quota", whose), self.clock.at(minute))
        ids = [hash(b"request", one.id.encode("utf-8", "surrogatepass")) for one in questions if wait]
        names = [hash(b"asked", whose, id) for id in ids]
        recent = {name for name in names if name in self._by_name}  # first: what leaves the memory is in the index then
        known = recent.union(self.older.find(names) if names and self.older.size else ())
        return {i: refused_for_today(wait) for i, name in enumerate(names) if name not in known}

    def reply(self, one: Request, found: Stored | None) -> Reply:
        """What the sender of a request is told, once it is durable."""
        if one.wait:
            return refused_for_today(one.wait)
        if one.unread:
            return Reply(None, refusal=Refusal("later", UNREAD))
        if found is None:
            return Reply(None, refusal=Refusal("halted", HALTED))
        came = found.row  # read once: whoever is forgotten meanwhile has another one
        if one.again and not hmac.compare_digest(came.digest, one.digest):
            return Reply(None, refusal=Refusal("conflict", FORGOTTEN if came.forgotten else OTHER_QUESTION))
        if came.label < 0:
            wrong = self.long if one.x is None else one.wrong or self._pop.readable([one.question.x]).get(0, FORM)
            return Reply(None, came.number, Refusal("malformed", wrong), one.again)
        labels, ticket = self._labels, self._keeper.tickets.sign(found.key, came.whose)
        guide, source = None if came.guided < 0 else labels[came.guided], SOURCES[came.source]
        answer = Answer(labels[came.label], came.source == COPIES, ticket, None, source, guide)
        if found.shares is not None:
            told = dict(zip(labels, found.shares, strict=True))
            answer = Told(answer.label, False, ticket, None, source, guide, told)
        return Reply(answer, came.number, None, one.again)

    # ------------------------------------------------------------------ what is remembered

    def request(self, name: bytes) -> Stored | None:
        """What is stored of a request that `fresh` looked at, also of one whose person was forgotten."""
        return self._by_name.get(name) or self._found.get(name)

    def ticket(self, key: Key) -> Stored | None:
        """What is stored of the round that a ticket belongs to; None for one whose person was forgotten.

        Of an older round only after `recall`.
        """
        stored = self._stored(key)
        return None if stored is None or stored.row.digest == NOBODY or key in self._late else stored

    def _stored(self, key: Key) -> Stored | None:
        return self._rounds.get(key) or self._recalled.get(key)

    def recall(self, keys: Iterable[Key | None], rounds: int) -> set[Key]:
        """Find the questions of these tickets for this call; what waits for a label is read again as it was asked.

        Until it is called again, or `dismiss`. What cannot be read now is returned, and nothing was changed; nor does
        it end anything that labels come.
        """
        self.dismiss()
        over = rounds - self._life, self.clock.now - self._minutes
        wanted, unread = dict.fromkeys(key for key in keys if key is not None), set[Key]()
        for key in wanted:
            try:
                place = None if key in self._rounds else self._place(key, private=True)
            except Later:
                unread.add(key)
                continue
            if place is not None and not place.forgotten and not _is_over(place.number, place.minute, over):
                self._places[key] = place
        if self._places:
            rows = self.older.rows(one for one in self._places.values() if one.open)
            unread |= {key for key, one in self._places.items() if one.open and one.number not in rows}
            known = [(key, one) for key, one in self._places.items() if key not in unread]
            self._recalled = {key: _of(one, b"", rows.get(key[1])) for key, one in known}
        self._late = {
            key for key in wanted
            if (one := self._rounds.get(key)) is not None and _is_over(one.key[1], one.minute, over)
        }  # fmt: skip
        self._reopen([one for key in wanted if (one := self.ticket(key)) is not None])
        return unread

    def dismiss(self) -> None:
        """Older questions are not looked at any more."""
        self._recalled, self._places, self._found, self._unread, self._late = {}, {}, {}, set(), set()

    def _reopen(self, stored: Iterable[Stored]) -> None:
        """Of these, what waits for a label and is not in memory."""
        closed = [one for one in stored if one.open and one.waiting is None and one.key not in self._ended]
        asked = [
            (one.key, one.row.whose, one.row.copy, one.row.label, unpack(one.row.x))
            for one in closed if one.row.x is not None
        ]  # fmt: skip
        if asked:
            again = self._keeper.reopen(asked)
            for one in closed:
                one.waiting = again.get(one.key)
                if one.waiting is not None:
                    one.waiting.counted = one.counted

    def questions(self, keys: Iterable[Key]) -> list[Row]:
        """The rows of questions that are known."""
        return [stored.row for key in keys if (stored := self._stored(key)) is not None]

    def imported(self, name: bytes) -> Imported | None:
        """What is stored of an import."""
        return self._imports.get(name)

    def again(self, placed: list[tuple[int, Row]], sequence: int, stamp: int) -> None:
        """A note of questions was found in the journal, each row with its place."""
        rows = [row for _, row in placed]
        known = [(row.whose, row.id) if row.forgotten else self.hashes(row.whose, row.id) for row in rows]
        about = [(row, name, counted, None) for row, (name, counted) in zip(rows, known, strict=True)]
        places = [at for at, _ in placed]
        self.asked(about, sequence, max((row.number for row in rows), default=0), stamp, places)
        self.age(sys.maxsize)
        self._loaded = sequence

    def asked(
        self, about: Sequence[tuple[Row, bytes, bytes, Waiting | None]], sequence: int, rounds: int, stamp: int | None,
        places: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """A note of questions was written, with what stands for them (see `Request`), and what waits for a label.

        `stamp` is the last that a lesson before it can have, or None; `places` are those of the rows, where some are
        missing.
        """
        rows, taken = [one[0] for one in about], [one for one in about if one[0].number > 0]
        if taken:
            self.clock.tick(max([one[0].leaf for one in taken]))
        now, names, numbers = self.clock.now, self._by_name, self._rounds
        for at, (row, name, _, waiting) in zip(range(len(about)) if places is None else places, about, strict=True):
            if row.number > 0:
                key = row.epoch, row.number
                names[name] = numbers[key] = Stored(name, row, key, now, sequence, at, waiting)
                self.open += row.label >= 0
        for counted, rows_taken in Counter([one[2] for one in taken]).items():
            self.quota.took(counted, now, rows_taken)
        # Of somebody forgotten it is not known any more whether something stood for the label.
        due = self._deadline
        awaited = max([row.number for row in rows if row.copy <= STANDS or (due and row.forgotten)], default=-1)
        others = {row.whose for row in rows if row.number <= 0}
        self.older.note(Noted(sequence, rounds, now, awaited, stamp, len(rows)), others, places is not None)

    def age(self, durable: int) -> None:
        """What is older than the last `RECENT` rounds leaves the memory, once the entry that has it is durable."""
        left = list[Stored]()
        if len(self._rounds) < RECENT + RECENT // _BUNCHES:
            return
        while len(self._rounds) > RECENT and next(iter(self._rounds.values())).sequence <= durable:
            left.append(self._rounds.popitem(last=False)[1])
        if left:
            self._leave(left)

    def _leave(self, stored: Sequence[Stored]) -> None:
        """These are in the index from now on, and in memory no more."""
        halves = halves_of([one.name for one in stored])
        self.older.add([one.place(half) for one, half in zip(stored, halves, strict=True)])
        for one in stored:
            if self._by_name.get(one.name) is one:
                del self._by_name[one.name]

    def taught(self, rows: Iterable[Row], sequence: int) -> None:
        """A note of lessons was written."""
        note, others = _Note(sequence, self.clock.now), set[bytes]()
        for row in rows:
            if row.epoch == IMPORT:
                self._import(note, row)
                others.add(row.whose)
            elif not self._brought((row.epoch, row.number), row.label, sequence):
                others.add(row.whose)
        if others:
            self.older.lessons(sequence, others)

    def _brought(self, key: Key, label: int, sequence: int) -> bool:
        """The label of a round was noted; whether that round is known."""
        if (stored := self._rounds.get(key)) is not None:
            if stored.taught < 0 and not stored.row.forgotten:
                self.open -= stored.open
                stored.taught, stored.lesson = label, sequence
                self._ended.discard(key)
            return not stored.row.forgotten
        place = self._places.get(key) or self._place(key)
        if place is None or place.forgotten:
            return False
        if place.taught < 0:
            self.open -= place.open and place.number > self._counted
            self.older.change(place.brought(label, sequence))
            self._ended.discard(key)
        return True

    def _place(self, key: Key, *, private: bool = False) -> Place | None:
        """What the index has of a round."""
        place = self.older.at(key[1], private=private) if self.older.size else None
        return None if place is None or place.epoch != key[0] else place

    def answered(self, key: Key) -> int | None:
        """What was answered in a round; None where that is not known."""
        if (stored := self._rounds.get(key)) is not None:
            return stored.row.label
        place = self._place(key)
        return None if place is None else place.label

    def _import(self, note: _Note, row: Row) -> None:
        """A row of an import: its name, with how far it came (its `copy`) from where (its `leaf`), or its digest."""
        known = self._imports.get(row.id) if row.leaf > 0 else None
        if row.digest != NOBODY:
            if note.imported is not None:
                note.imported.pieces[note.sequence] = row.leaf, row.copy, row.digest
                self._digests[note.sequence] = note.imported
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

    def take(self, key: Key) -> Waiting | None:
        """What waits for the label of a round, which waits no more: `Tickets.held`."""
        stored = self._stored(key)
        if stored is None:
            return None
        waiting, stored.waiting = stored.waiting, None
        self._ended.add(key)  # whatever cuts the call off, it is never read again
        return waiting

    # ------------------------------------------------------------------ what ends

    def _over(self, one: Place | _Mark) -> bool:
        """Whether a ticket's life was over when the last call came that ends some."""
        return _is_over(one.number, one.minute, (self._last, self._then))

    def expire(self, rounds: int, most: int = 0) -> bool:
        """Drop what was asked, or imported, a ticket's life ago or earlier, by public rounds and the journal's clock.

        Who brought labels does not enter, and public calls alone come here. Whether notes may be needed no more. What
        is not in memory ends by itself; of that so many at most are counted, and taken out of the index: after a long
        pause there are many.
        """
        if self.older.undone:
            self.older.redo()
        last, then = rounds - self._life, self.clock.now - self._minutes
        self._last, self._then = last, then
        left = list[Stored]()
        while self._rounds and (first := next(iter(self._rounds.values()))).key[1] <= last and first.minute <= then:
            left.append(self._rounds.pop(first.key))
        if left:
            self._leave(left)  # as forgetting must find them as long as a note has them, or their lessons
        counted = self._expire_older(most) if most and self.older.size else False
        while self._imported and self._imported[0].rounds <= last and self._imported[0].minute <= then:
            old = self._imported.popleft()
            if self._imports.get(old.name) is old:
                del self._imports[old.name]
        return counted or self._more

    def _expire_older(self, most: int) -> bool:
        """Count those in the index whose time is over, and take out those that no note can have any more."""
        counted = dropped = 0
        while counted < most and (due := self._next_due()) is not None:
            self.open -= due.open
            if self._ended:
                self._ended.difference_update((one.epoch, one.number) for one in due.places)
            self._counted, counted = due.number, counted + len(due)
        while dropped < most and (gone := self._next_gone()) is not None:
            self.older.drop(gone)
            dropped += len(gone)
        return counted > 0

    def _next_due(self) -> Bunch | None:
        """The next bunch to be counted, as it is now, if its time is over."""
        if self._due is not None and not self._over(self._due):
            return None
        bunch = self.older.after(self._counted)
        self._due = None if bunch is None else _Mark.of(bunch)
        return bunch if self._due is not None and self._over(self._due) else None

    def _next_gone(self) -> Bunch | None:
        """The first bunch, as it is now, if no note can have any of it any more."""
        if self._kept is not None and self._needed(self._kept):
            return None
        bunch = self.older.after(-1)
        self._kept = None if bunch is None else _Mark.of(bunch)
        return None if self._kept is None or self._needed(self._kept) else bunch

    def _needed(self, one: _Mark) -> bool:
        """Whether a ticket of theirs was good when that was looked at, or a note may have one, or a lesson of it.

        Whether there is a lesson does not enter: others' calls are the same whoever brought a label.
        """
        good = one.number > self._counted or one.sequence > self._torn[ASKED]
        return good or not _is_over(one.number, one.minute, self._untaught)

    def outlived(self, rounds: int, before: int, durable: int, leaves: int, most: int) -> int | None:
        """Up to which entry notes of questions are no longer needed, of so many rows, or one note; None if all are.

        Nothing of them is within a ticket's life or a quota's day, they are not after the entry `before`, they are
        durable, as what is not is written after others were dropped, and nothing that stands for a label has a stamp
        from `leaves` on.
        """
        day = 0 if self.quota.most is None else DAY
        done, seen, then = None, 0, self.clock.now - max(self._minutes, day)
        self._more = False
        for one in self.older.notes(self._torn[ASKED]):
            old = one.rounds <= rounds - self._life and one.minute <= then
            if not old or one.sequence > min(before, durable) or one.leaf >= leaves:
                break
            seen += one.rows
            if done is not None and seen > most:
                self._more = True
                break
            done = one.sequence
        if done is not None:
            self._tear(ASKED, done)
        return done

    def learned(self, before: int, leaves: int) -> int | None:
        """Up to which entry notes of lessons are no longer needed; None if all are. If there are any does not enter.

        They go up to a note of questions that is gone, and not after the entry `before`, a snapshot's, and no lesson of
        them has a stamp from `leaves` on. So no note of a lesson goes before its question's: as long as a question is
        known, it is known that its label was taken, however long tickets are set to last meanwhile.
        """
        last = self.older.before(min(before, self._torn[ASKED]), leaves)
        if last is None:
            return None
        self._tear(TAUGHT, last.sequence)
        self._digests = {at: one for at, one in self._digests.items() if at > last.sequence}
        if last.sequence > self._loaded:  # before that tickets may have been set to last longer
            self._untaught = last.rounds - self._life, last.minute - self._minutes
        return last.sequence

    def _tear(self, kind: str, sequence: int) -> None:
        self.older.torn(kind, sequence)
        self._torn[kind] = sequence

    # ------------------------------------------------------------------ people

    def of(self, whose: bytes) -> list[Stored]:
        """Somebody's requests whose tickets are good; of older ones what the index has, without x."""
        older = [one for one in self.older.of(whose) if not self._over(one)]
        found = [_of(one, self.hashes(whose, one.key[16:])[0]) for one in older]
        return found + [stored for stored in self._rounds.values() if stored.row.whose == whose]

    def forget(self, whose: bytes) -> list[tuple[str, int, bytes, list[Row]]]:
        """Drop somebody's requests; (kind, sequence, whose, rows that take their place) of all notes that have theirs.

        That a request was made stays, by its name, for a ticket's life: one that is sent again takes no round, whether
        or not its person was forgotten, and it counts for their quota. Nothing stays of lessons. The digest of an
        import with a record of theirs goes too: whoever has the key could try what it was.
        """
        counted, asked, taught = self._keeper.hash(b"quota", whose), dict[int, dict[int, Row]](), set[int]()
        older, others = self.older.of(whose), self.older.others(whose)  # `Later`, before anything was changed
        self.open -= sum(one.open for one in older if one.number > self._counted)
        names = [self.hashes(whose, one.key[16:])[0] for one in older]
        for stored in [_of(one, name) for one, name in zip(older, names, strict=True)] + [
            stored for stored in self._rounds.values() if stored.row.whose == whose
        ]:
            left = stored.row.left(stored.name, counted)
            asked.setdefault(stored.sequence, {})[stored.at] = left
            if stored.lesson:
                taught.add(stored.lesson)
            if stored.key in self._rounds:
                self.open, stored.waiting, stored.row = self.open - stored.open, None, left
        for one, name in zip(older, names, strict=True):
            self.older.change(one.left(name + counted))
        self.dismiss()
        for kind, sequence in others:
            if kind == TAUGHT:
                taught.add(sequence)
            else:
                asked.setdefault(sequence, {})
        self.older.forget(whose)
        erased = [(ASKED, at, whose, [theirs[i] for i in sorted(theirs)]) for at, theirs in sorted(asked.items())]
        for at in sorted(taught):
            erased.append((TAUGHT, at, whose, []))
            for imported in [one for one in self._digests.values() if at in one.pieces]:
                erased += [(TAUGHT, one, imported.sums, []) for one in imported.erase(at)]
        return [one for one in erased if one[1] > self._torn[one[0]]]


class _Mark(NamedTuple):
    """What is remembered of a bunch, of which it has nobody: as in `Bunch`."""

    number: int
    minute: int
    sequence: int

    @classmethod
    def of(cls, bunch: Bunch) -> _Mark:
        return cls(bunch.number, bunch.minute, bunch.sequence)


@dataclass(slots=True, repr=False)
class _Note:
    """A note of lessons, while its rows are read."""

    sequence: int
    minute: int
    imported: Imported | None = None


def _is_over(number: int, minute: int, ends: tuple[int, int]) -> bool:
    return number <= ends[0] and minute <= ends[1]


def _of(one: Place, name: bytes, row: Row | None = None) -> Stored:
    """A question that is not in memory, with its row or what the index has of it."""
    if row is None:
        source = one.key[:16], one.key[16:], NOBODY if one.forgotten else b"", one.number, one.epoch
        row = Row(*source, -1, one.leaf, one.label, -1, one.source, None)
    key = one.epoch, one.number
    found = Stored(name, row, key, one.minute, one.sequence, one.at, None, one.taught, one.lesson, one.shares)
    found.counted = one.counted
    return found


def refused_for_today(minutes: int) -> Reply:
    """What is told to somebody whose rounds of the day are used up, until so many minutes have passed."""
    return Reply(None, refusal=Refusal("quota", OVER, 60 * minutes))
