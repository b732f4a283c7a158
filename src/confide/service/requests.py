"""What a desk reads from requests, and remembers of them while their tickets are good: by public rounds and a clock.

It is the last part of the ledger's journal, in memory, and an index of the rest (`confide.service.older`); both are
made from the journal again when the desk is opened. It decides nothing.
"""

from __future__ import annotations

import hmac
import sys
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, cast

from confide.banks.base import FORM
from confide.pop.base import COPIES, SOURCES
from confide.pop.keeping import Keeper
from confide.pop.lessons import Lesson
from confide.pop.pop import POP
from confide.pop.tickets import Key, Waiting
from confide.service.asked import Asked, Asking, Hashes, Stored
from confide.service.base import Later, Question, Refusal, Reply, Said
from confide.service.imports import Imported, Imports
from confide.service.journal import ASKED, IMPORT, MOST_LABELS, NOBODY, TAUGHT, Columns, Row, Rows, unpack
from confide.service.older import Bunch, Noted, Older, Place
from confide.service.quota import DAY, Clock, Quota
from confide.service.words import FORGOTTEN, HALTED, OTHER_QUESTION, OVER, UNREAD

__all__ = ["MOST", "RECENT", "Forgotten", "Requests", "refused_for_today"]

RECENT = 4096
"""Rounds whose questions are in memory, as they were read, for a label or a retry that comes soon. Public."""

_BUNCHES = 16
"""The others leave in bunches of this part of them, as each bunch is one write."""

MOST = 64
"""Questions that are over and leave with one call, beside twice as many as it asks. Public."""


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
        self._pop, self._keeper, self._labels = pop, keeper, pop.labels
        alone = pop.operator.randomizing
        self._deadline = alone is not None and alone.part.deadline is not None
        self._tickets, self._life, self._minutes = keeper.tickets, keeper.tickets.life, minutes
        self.long = f"x has no JSON form, or one of more than {room:,} bytes: send a shorter one"
        """What is said of an x that cannot be stored."""
        self.quota, self.clock = Quota(), Clock()
        self._hashes = Hashes(keeper, room)
        self.read = self._hashes.read
        self.imports = Imports()
        """Imports of history that had an id."""
        self.older = older
        """Where those are that are not in memory."""
        self._by_name: dict[bytes, Stored] = {}
        self._notes = deque[Asked]()  # those of which some are in memory, in their order
        self._rounds: dict[Key, Stored] = {}
        self._recalled: dict[Key, Stored] = {}  # older ones, while a call looks at them
        self._found: dict[bytes, Stored] = {}  # the same by their names
        self._unread = set[bytes]()  # names of those that the journal cannot give now
        self._late = set[Key]()  # those in memory that are over, while a call looks at them
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
        self.open = 0
        """Answered questions that wait for a label: private."""

    # ------------------------------------------------------------------ in and out

    def fresh(self, asked: Asking, minute: int) -> Sequence[int]:
        """Those that take a round: the others were asked before, or their sender must wait, and each says so then.

        Or the journal cannot be read where it has what was asked before: that sender is to come again, and nobody else.
        """
        now, known, left, names = self.clock.at(minute), self._by_name, dict[bytes, int](), set[bytes]()
        self.dismiss()
        if self.older.undone:
            self.older.redo()
        if self.older.size:
            self._find(asked)
        found, unread, fresh = self._found, self._unread, asked.fresh
        for i, (name, counted) in enumerate(zip(asked.names, asked.counted, strict=True)):
            if name in known or name in names or name in found:
                asked.again.add(i)
                continue
            if name in unread:
                asked.unread.add(i)
                continue
            rest = left.get(counted)
            if rest is None:
                rest = self.quota.left(counted, now)
            left[counted] = rest - (rest > 0)
            if rest > 0:
                names.add(name)
                fresh.append(i)
            else:
                asked.wait[i] = self.quota.refuse(counted, now)
        return fresh

    def _find(self, asked: Asking) -> None:
        """Those of these questions that were asked, and are not in memory any more."""
        by_name = {name: i for i, name in enumerate(asked.names) if name not in self._by_name}
        places = [(name, self.older.at(number)) for name, number in self.older.find([*by_name]).items()]
        known = {
            name: one
            for name, one in places
            if one is not None and asked.is_at(by_name[name], one) and not self._over(one)
        }
        rows = self.older.rows(one for one in known.values() if not one.forgotten)
        self._unread = {name for name, one in known.items() if not one.forgotten and one.number not in rows}
        self._found = {
            name: Asked.at_place(one, name, rows.get(one.number))
            for name, one in known.items() if name not in self._unread
        }  # fmt: skip

    def refused(self, questions: Sequence[Question], minute: int) -> dict[int, Reply]:
        """Those of one sender, by their places, that `fresh` would find to wait as it did before; it takes no lock."""
        hash, whose = self._keeper.hash, self._keeper.who(questions[0].subject)
        wait = self.quota.refused(hash(b"quota", whose), self.clock.at(minute))
        ids = [hash(b"request", one.id.encode("utf-8", "surrogatepass")) for one in questions if wait]
        names = [hash(b"asked", whose, id) for id in ids]
        recent = {name for name in names if name in self._by_name}  # first: what leaves the memory is in the index then
        known = recent.union(self.older.find(names) if names and self.older.size else ())
        return {i: refused_for_today(wait) for i, name in enumerate(names) if name not in known}

    def replies(self, asked: Asking, found: Sequence[Stored | None]) -> list[Reply]:
        """What the senders are told, once it is durable. Like all that changes something it is said under a lock."""
        note = asked.note
        if note is None or min(note.rows.label) < 0:
            return [self.reply(asked, i, one) for i, one in enumerate(found)]
        rows, labels = note.rows, self._labels
        tickets = self._tickets.sign_many(rows.epoch[0], rows.number, rows.whose)
        sure = map(COPIES.__eq__, rows.source)
        guides = [None if one < 0 else labels[one] for one in rows.guided]
        said, sources = map(labels.__getitem__, rows.label), map(SOURCES.__getitem__, rows.source)
        told = map(self._told, note.shares) if note.shares else repeat(None)
        answers = map(_SAID, zip(said, sure, tickets, sources, guides, told, strict=False))
        return [*map(_REPLY, zip(answers, rows.number, repeat(None), repeat(False), strict=False))]

    def reply(self, asked: Asking, i: int, found: Stored | None) -> Reply:
        """What the sender of one of these is told."""
        if i in asked.wait:
            return refused_for_today(asked.wait[i])
        if i in asked.unread:
            return Reply(None, refusal=Refusal("later", UNREAD))
        if found is None:
            return Reply(None, refusal=Refusal("halted", HALTED))
        again, came = i in asked.again, found.row
        if again and not hmac.compare_digest(came.digest, asked.digests[i]):
            return Reply(None, refusal=Refusal("conflict", FORGOTTEN if came.forgotten else OTHER_QUESTION))
        if came.label < 0:
            wrong = self.long if asked.xs[i] is None else asked.wrong.get(i, "")
            wrong = wrong or self._pop.readable([asked.questions[i].x]).get(0, FORM)
            return Reply(None, came.number, Refusal("malformed", wrong), again)
        labels, ticket = self._labels, self._tickets.sign((came.epoch, came.number), came.whose)
        guide, source = None if came.guided < 0 else labels[came.guided], SOURCES[came.source]
        said = Said(labels[came.label], came.source == COPIES, ticket, source, guide, self._told(found.shares))
        return Reply(said, came.number, None, again)

    def _told(self, shares: tuple[float, ...] | None) -> dict[Any, float] | None:
        return None if shares is None else dict(zip(self._labels, shares, strict=True))

    # ------------------------------------------------------------------ what is remembered

    def found(self, asked: Asking) -> list[Stored | None]:
        """What is stored of questions that `fresh` looked at, also of those whose person was forgotten."""
        found = [*map(self._by_name.get, asked.names)]
        if asked.note is None:
            return [self._found.get(name) if one is None else one for one, name in zip(found, asked.names, strict=True)]
        return found

    def ticket(self, key: Key) -> Stored | None:
        """What is stored of the round that a ticket belongs to; None for one whose person was forgotten.

        Of an older round only after `recall`.
        """
        stored = self._stored(key)
        return None if stored is None or stored.forgotten or key in self._late else stored

    def _stored(self, key: Key) -> Stored | None:
        return self._rounds.get(key) or self._recalled.get(key)

    def recall(self, keys: Iterable[Key | None], rounds: int) -> set[Key]:
        """Find the questions of these tickets for this call; what waits for a label is read again as it was asked.

        Until it is called again, or `dismiss`. What cannot be read now is returned, and nothing was changed; nor does
        it end anything that labels come.
        """
        self.dismiss()
        over, known = (rounds - self._life, self.clock.now - self._minutes), self._rounds
        wanted, unread = dict.fromkeys(key for key in keys if key is not None), set[Key]()
        for key in [key for key in wanted if key not in known]:
            try:
                place = self._place(key, private=True)
            except Later:
                unread.add(key)
                continue
            if place is not None and not place.forgotten and not _is_over(place.number, place.minute, over):
                self._places[key] = place
        if self._places:
            rows = self.older.rows(one for one in self._places.values() if one.open)
            unread |= {key for key, one in self._places.items() if one.open and one.number not in rows}
            read = [(key, one) for key, one in self._places.items() if key not in unread]
            self._recalled = {key: Asked.at_place(one, b"", rows.get(key[1])) for key, one in read}
        some = [(key, one) for key in wanted if (one := self._stored(key)) is not None]
        self._late = {key for key, (note, _) in some if key[1] <= over[0] and _is_over(key[1], note.minute, over)}
        lost = [one for key, one in some if one.note.waiting[one.i] is None and one.open and not one.forgotten]
        self._reopen([one for one in lost if one.key not in self._late and one.key not in self._ended])
        return unread

    def dismiss(self) -> None:
        """Older questions are not looked at any more."""
        self._recalled, self._places, self._found, self._unread, self._late = {}, {}, {}, set(), set()

    def _reopen(self, stored: Sequence[Stored]) -> None:
        """What waits for the labels of these, which was not in memory."""
        asked = [
            (one.key, row.whose, row.copy, row.label, unpack(row.x))
            for one in stored if (row := one.row).x is not None
        ]  # fmt: skip
        if asked:
            again = self._keeper.reopen(asked)
            for note, i in stored:
                waiting = again.get((note.rows.epoch[i], note.rows.number[i]))
                note.waiting[i] = waiting
                if waiting is not None:
                    waiting.counted = note.watched

    def lessons(self, taken: Sequence[Lesson]) -> Columns:
        """What the journal has of labels that were taken."""
        known = [one for lesson in taken if (one := self._stored(lesson.key)) is not None]
        whose = [note.rows.whose[i] for note, i in known]
        copies, xs = [note.rows.copy[i] for note, i in known], [note.rows.x[i] for note, i in known]
        numbers, epochs = [one.key[1] for one in taken], [one.key[0] for one in taken]
        labels, leaves = [one.label for one in taken], [one.leaf for one in taken]
        nobody, answered = [NOBODY] * len(taken), [one.waiting.answered for one in taken]
        none = [-1] * len(taken)
        return Columns(whose, nobody, nobody, numbers, epochs, copies, leaves, labels, answered, none, xs)

    def again(self, body: bytes, width: int, sequence: int, stamp: int) -> None:
        """A note of questions was found in the journal."""
        placed = [*Rows.of(width).placed(body)]
        rows, known = [row for _, row in placed], [self._hashes.named(row) for _, row in placed]
        names, counted, places = [name for name, _ in known], [one for _, one in known], [at for at, _ in placed]
        self._took(Columns.of(rows), names, counted, places, None, sequence)
        self._noted(Columns.of(rows), sequence, stamp, len(body) // width)
        self.age(sys.maxsize)
        self._loaded = sequence

    def asked(
        self, asked: Asking, rows: Columns, waiting: list[Waiting | None], sequence: int, stamp: int | None,
        shares: Sequence[tuple[float, ...] | None] = (),
    ) -> None:  # fmt: skip
        """A note of these questions was written, with what waits for their labels, and the probabilities they are told.

        `stamp` is the last that a lesson before it can have, or None.
        """
        note = self._took(rows, asked.names, asked.counted, range(len(waiting)), waiting, sequence)
        if note is not None and shares:
            note.shares = [told for told, number in zip(shares, rows.number, strict=True) if number > 0]
        if note is not None and len(note.names) == len(waiting):
            asked.note = note
        self._noted(rows, sequence, stamp)

    def _took(
        self, rows: Columns, names: list[bytes], counted: list[bytes], places: Sequence[int],
        waiting: list[Waiting | None] | None, sequence: int,
    ) -> Asked | None:  # fmt: skip
        """These questions took rounds, but for those that have no number."""
        if not rows.number or min(rows.number) <= 0:
            took = [i for i, number in enumerate(rows.number) if number > 0]
            if not took:
                return None
            rows, names, counted = rows.some(took), [names[i] for i in took], [counted[i] for i in took]
            places = [places[i] for i in took]
            waiting = None if waiting is None else [waiting[i] for i in took]
        self.clock.tick(max(rows.leaf))
        now = self.clock.now
        n = len(names)
        note = Asked(sequence, now, rows, names, counted, places, waiting or [None] * n, [-1] * n, [0] * n)
        stored = note.stored()
        self._notes.append(note)
        self._by_name.update(zip(names, stored, strict=True))
        self._rounds.update(zip(zip(rows.epoch, rows.number, strict=True), stored, strict=True))
        self.open += n - rows.label.count(-1)
        for one, rounds in Counter(counted).items():
            self.quota.took(one, now, rounds)
        return note

    def _noted(self, rows: Columns, sequence: int, stamp: int | None, read: int | None = None) -> None:
        """A note of these rows was written; or is read, and had so many rows with those that were erased."""
        # Of somebody forgotten it is not known any more whether something stood for the label: so all count.
        rounds, size = max(0, *rows.number, 0), len(rows.number) if read is None else read
        awaited = rounds if self._deadline else -1
        others = {whose for whose, number in zip(rows.whose, rows.number, strict=True) if number <= 0}
        self.older.note(Noted(sequence, rounds, self.clock.now, awaited, stamp, size), others, read is not None)

    def age(self, durable: int) -> None:
        """What is older than the last `RECENT` rounds leaves the memory, once the entry that has it is durable."""
        most, left = len(self._rounds) - RECENT, list[tuple[Asked, int]]()
        if most < RECENT // _BUNCHES:
            return
        for note in self._notes:
            if most <= 0 or note.sequence > durable:
                break
            left.append((note, min(len(note.names), note.first + most)))
            most -= left[-1][1] - note.first
        if left:
            self._leave(left)

    def _leave(self, notes: Sequence[tuple[Asked, int]]) -> None:
        """Questions of the first notes, up to these, are in the index from now on, and in memory no more: or the book
        ends, as a call that was cut off in between would leave them in both, or in none."""
        names, rounds = self._by_name, self._rounds
        with self.older.whole():
            self.older.add([note.left(end) for note, end in notes])
            for note, end in notes:
                cut = slice(note.first, end)
                both = zip(note.names[cut], note.rows.epoch[cut], note.rows.number[cut], strict=True)
                note.first = end
                for name, epoch, number in both:
                    del rounds[epoch, number]
                    if (stored := names.get(name)) is not None and stored.note is note:
                        del names[name]
            while self._notes and self._notes[0].first == len(self._notes[0].names):
                self._notes.popleft()

    def taught(self, rows: Iterable[Row], sequence: int) -> None:
        """A note of lessons was written: an import's, or one that is read."""
        of, others = cast(Imported | None, None), set[bytes]()
        for row in rows:
            if row.epoch == IMPORT:
                of = self.imports.read(row, sequence, self.clock.now, of)
                others.add(row.whose)
            elif not self._brought((row.epoch, row.number), row.label, sequence):
                others.add(row.whose)
        if others:
            self.older.lessons(sequence, others)

    def learned_now(self, rows: Columns, sequence: int) -> None:
        """A note of labels was written, of questions that are known."""
        known = zip(rows.epoch, rows.number, rows.label, rows.whose, strict=True)
        others = {whose for epoch, number, label, whose in known if not self._brought((epoch, number), label, sequence)}
        if others:
            self.older.lessons(sequence, others)

    def _brought(self, key: Key, label: int, sequence: int) -> bool:
        """The label of a round was noted; whether that round is known."""
        if (stored := self._rounds.get(key)) is not None:
            (note, i), forgotten = stored, stored.forgotten
            if note.taught[i] < 0 and not forgotten:
                self.open -= note.rows.label[i] >= 0
                note.taught[i], note.lesson[i] = label, sequence
                self._ended.discard(key)
            return not forgotten
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
            return stored.note.rows.label[stored.i]
        place = self._place(key)
        return None if place is None else place.label

    def take(self, key: Key) -> Waiting | None:
        """What waits for the label of a round, which waits no more: `Tickets.held`."""
        stored = self._stored(key)
        if stored is None:
            return None
        note, i = stored
        waiting, note.waiting[i] = note.waiting[i], None
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
        left = list[tuple[Asked, int]]()
        for note in self._notes:
            if note.minute > then or note.rows.number[note.first] > last:
                break
            left.append((note, bisect_right(note.rows.number, last)))
        if left:
            self._leave(left)  # as forgetting must find them as long as a note has them, or their lessons
        counted = self._expire_older(most) if most and self.older.size else False
        if self.imports.in_order:
            self.imports.expire(last, then)
        return counted or self._more

    def _expire_older(self, most: int) -> bool:
        """Count those in the index whose time is over, and take out those that no note can have any more."""
        counted = dropped = 0
        while counted < most and (due := self._next_due()) is not None:
            self.open -= due.open
            if self._ended:
                self._ended.difference_update(due.columns[["epoch", "number"]].tolist())
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

    def learned(self, before: int, leaves: int) -> Noted | None:
        """The note up to which those of lessons are not needed; None if all are. If there are any does not enter.

        They go up to a note of questions that is gone, and not after the entry `before`, a snapshot's, and no lesson of
        them has a stamp from `leaves` on. So no note of a lesson goes before its question's: as long as a question is
        known, it is known that its label was taken, however long tickets are set to last meanwhile.
        """
        return self.older.before(min(before, self._torn[ASKED]), leaves)

    def swept(self, last: Noted) -> None:
        """Notes of lessons up to this note are gone."""
        self._tear(TAUGHT, last.sequence)
        self.imports.torn(last.sequence)
        if last.sequence > self._loaded:  # before that tickets may have been set to last longer
            self._untaught = last.rounds - self._life, last.minute - self._minutes

    def _tear(self, kind: str, sequence: int) -> None:
        self.older.torn(kind, sequence)
        self._torn[kind] = sequence

    # ------------------------------------------------------------------ people

    def of(self, whose: bytes) -> list[Stored]:
        """Somebody's requests whose tickets are good; of older ones what the index has, without x."""
        older = [one for one in self.older.of(whose, self._hashes.counted(whose)) if not self._over(one)]
        return [self._at(one) for one in older] + self._recent(whose)

    def _at(self, place: Place) -> Stored:
        """A question of the index, without x."""
        return Asked.at_place(place, self._hashes.of(place.key[:16], place.key[16:])[0], None)

    def _recent(self, whose: bytes) -> list[Stored]:
        """Somebody's requests that are in memory."""
        return [one for note in self._notes for one in note.stored() if note.rows.whose[one.i] == whose]

    def forget(self, whose: bytes) -> Forgotten:
        """What is to be done when somebody is forgotten; nothing is, before that is called.

        That a request was made stays, by its name, for a ticket's life: one that is sent again takes no round, whether
        or not its person was forgotten, and it counts for their quota. Nothing stays of lessons. The digest of an
        import with a record of theirs goes too: whoever has the key could try what it was.
        """
        counted, asked, taught = self._hashes.counted(whose), dict[int, dict[int, Row]](), set[int]()
        older, others = self.older.of(whose, counted), self.older.others(whose)
        known, recent = [self._at(one) for one in older], self._recent(whose)
        for stored in known + recent:
            asked.setdefault(stored.sequence, {})[stored.at] = stored.row.left(stored.name, counted)
            if stored.lesson:
                taught.add(stored.lesson)
        for kind, sequence in others:
            if kind == TAUGHT:
                taught.add(sequence)
            else:
                asked.setdefault(sequence, {})
        digests = self.imports.of(taught)
        erased = [(ASKED, at, whose, [theirs[i] for i in sorted(theirs)]) for at, theirs in sorted(asked.items())]
        erased += [(TAUGHT, at, whose, list[Row]()) for at in sorted(taught)]
        theirs = {(at, one.sums) for one, sequence in digests for at in one.of(sequence)}
        erased += [(TAUGHT, at, sums, list[Row]()) for at, sums in sorted(theirs)]
        erased = [one for one in erased if one[1] > self._torn[one[0]]]
        return Forgotten(whose, erased, [*zip(older, known, strict=True)], recent, digests)

    def forgotten(self, gone: Forgotten) -> None:
        """The journal has it that somebody was forgotten: nothing of theirs is known here any more."""
        for note, some in groupby(gone.recent, attrgetter("note")):
            self.open -= note.leave_behind({one.i for one in some})
        counted = self._hashes.counted(gone.whose)
        for one, stored in gone.older:
            self.open -= one.open and one.number > self._counted
            self.older.change(one.left(stored.name + counted))
        self.dismiss()
        self._ended.difference_update([stored.key for _, stored in gone.older], [stored.key for stored in gone.recent])
        self.older.forget(gone.whose)
        for imported, sequence in gone.digests:
            imported.erase(sequence)

    def check_done(self, gone: Forgotten) -> None:
        """`Later` where something of this could not be written in the index yet."""
        self.older.check_done({gone.whose, *[place.number for place, _ in gone.older]})


class Forgotten(NamedTuple):
    """Somebody who is to be forgotten, as a desk knows them."""

    whose: bytes
    erased: list[tuple[str, int, bytes, list[Row]]]
    """(kind, sequence, whose, rows that take their place) of all notes that have theirs."""
    older: list[tuple[Place, Stored]]
    recent: list[Stored]
    """Their questions, in the index and in memory."""
    digests: list[tuple[Imported, int]]
    """Imports with digests of records of theirs, and the entries of these."""

    def __repr__(self) -> str:
        return "Forgotten(…)"


class _Mark(NamedTuple):
    """What is remembered of a bunch, of which it has nobody: as in `Bunch`."""

    number: int
    minute: int
    sequence: int

    @classmethod
    def of(cls, bunch: Bunch) -> _Mark:
        return cls(bunch.number, bunch.minute, bunch.sequence)


def _is_over(number: int, minute: int, ends: tuple[int, int]) -> bool:
    return number <= ends[0] and minute <= ends[1]


def refused_for_today(minutes: int) -> Reply:
    """What is told to somebody whose rounds of the day are used up, until so many minutes have passed."""
    return Reply(None, refusal=Refusal("quota", OVER, 60 * minutes))


_SAID, _REPLY = (cast(Callable[[Any], Any], partial(tuple.__new__, kind)) for kind in (Said, Reply))
