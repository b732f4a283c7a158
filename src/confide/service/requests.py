"""What a desk reads from requests, and remembers of them while their tickets are good: by public rounds and a clock.

It is a copy of the ledger's journal in memory, and is made from it again when the desk is opened. It decides nothing.
"""

from __future__ import annotations

import hmac
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confide.banks.base import FORM
from confide.pop.base import COPIES, SOURCES, Answer, Told
from confide.pop.keeping import Keeper
from confide.pop.loop import Outcome
from confide.pop.pop import POP
from confide.pop.tickets import Key, Waiting
from confide.service.base import Question, Refusal, Reply
from confide.service.journal import ASKED, IMPORT, MOST_LABELS, NOBODY, STANDS, TAUGHT, Row, canonical, pack
from confide.service.quota import DAY, Clock, Quota
from confide.service.words import FORGOTTEN, HALTED, OTHER_QUESTION, OVER

__all__ = ["Imported", "Request", "Requests", "Stored", "refused_for_today"]


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
    wrong: str = ""
    """What is wrong with it, where that was found when it was asked."""

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
    waiting: Waiting | None = None
    """What its label will teach; None once that was brought."""
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
    """The last of the guide's leaves that has a gradient of it, or the last question with a deadline; −1 for none."""
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
    room
        Bytes for a stored question.
    minutes
        For how many minutes a ticket is good at least: it ends when both are over, so that nobody ends others' by
        taking many rounds.
    """

    def __init__(self, pop: POP, keeper: Keeper, room: int, minutes: int) -> None:
        if len(pop.labels) > MOST_LABELS:
            raise ValueError(f"a served model has {MOST_LABELS:,} labels at most: join those that are rare")
        if len({str(label) for label in pop.labels}) < len(pop.labels):
            raise ValueError("two labels of a served model have one name in JSON, as 1 and '1' have: rename one")
        self._pop, self._keeper, self._room, self._labels = pop, keeper, room, pop.labels
        self._life, self._minutes = keeper.tickets.life, minutes
        self.long = f"x has no JSON form, or one of more than {room:,} bytes: send a shorter one"
        """What is said of an x that cannot be stored."""
        self.quota, self.clock = Quota(), Clock()
        self._keyed: tuple[Any, Any, Any] | None = None  # what the hashes of ids, questions and names begin with
        self._by_name: dict[bytes, Stored] = {}
        self._rounds: OrderedDict[Key, Stored] = OrderedDict()  # in their order
        self._imports: dict[bytes, Imported] = {}
        self._imported: deque[Imported] = deque()
        self._notes: dict[str, deque[_Note]] = {ASKED: deque(), TAUGHT: deque()}
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

    def fresh(self, requests: Iterable[Request], minute: int) -> list[Request]:
        """Those that take a round: the others were asked before, or their sender must wait, and each says so then."""
        now, known, left = self.clock.at(minute), self._by_name, dict[bytes, int]()
        fresh: dict[bytes, Request] = {}
        for one in requests:
            name, counted = one.name, one.counted
            if name in fresh or name in known:
                one.again = True
                continue
            if counted not in left:
                left[counted] = self.quota.left(counted, now)
            if left[counted] > 0:
                left[counted] -= 1
                fresh[name] = one
            else:
                one.wait = self.quota.refuse(counted, now)
        return list(fresh.values())

    def refused(self, questions: Sequence[Question], minute: int) -> dict[int, Reply]:
        """Those of one sender, by their places, that `fresh` would find to wait as it did before; it takes no lock."""
        hash, whose = self._keeper.hash, self._keeper.who(questions[0].subject)
        wait = self.quota.refused(hash(b"quota", whose), self.clock.at(minute))
        ids = [hash(b"request", one.id.encode("utf-8", "surrogatepass")) for one in questions if wait]
        names = [hash(b"asked", whose, id) for id in ids]
        return {i: refused_for_today(wait) for i, name in enumerate(names) if name not in self._by_name}

    def reply(self, one: Request, found: Stored | None) -> Reply:
        """What the sender of a request is told, once it is durable."""
        if one.wait:
            return refused_for_today(one.wait)
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
        """What is stored of a request, also of one whose person was forgotten: that it took its round."""
        return self._by_name.get(name)

    def ticket(self, key: Key) -> Stored | None:
        """What is stored of the round that a ticket belongs to; None for one whose person was forgotten."""
        stored = self._rounds.get(key)
        return None if stored is None or stored.row.digest == NOBODY else stored

    def questions(self, keys: Iterable[Key]) -> list[Row]:
        """The rows of questions that are known."""
        return [self._rounds[key].row for key in keys]

    def imported(self, name: bytes) -> Imported | None:
        """What is stored of an import."""
        return self._imports.get(name)

    def again(self, rows: list[Row], sequence: int) -> None:
        """A note of questions was found in the journal."""
        known = [(row.whose, row.id) if row.forgotten else self.hashes(row.whose, row.id) for row in rows]
        about = [(row, name, counted, None) for row, (name, counted) in zip(rows, known, strict=True)]
        self.asked(about, sequence, max((row.number for row in rows), default=0))

    def asked(self, about: Sequence[tuple[Row, bytes, bytes, Waiting | None]], sequence: int, rounds: int) -> None:
        """A note of questions was written, with what stands for them (see `Request`), and what waits for a label."""
        rows, taken = [one[0] for one in about], [one for one in about if one[0].number > 0]
        if taken:
            self.clock.tick(max([one[0].leaf for one in taken]))
        now, names, numbers = self.clock.now, self._by_name, self._rounds
        for row, name, _, waiting in taken:
            key = row.epoch, row.number
            names[name] = numbers[key] = Stored(name, row, key, now, sequence, waiting)
            self.open += row.label >= 0
        for counted, rows_taken in Counter([one[2] for one in taken]).items():
            self.quota.took(counted, now, rows_taken)
        awaited = max([row.number for row in rows if row.copy <= STANDS], default=-1)
        self._notes[ASKED].append(_Note(sequence, rounds, now, awaited, [row.whose for row in rows], rows))

    def taught(self, rows: Iterable[Row], sequence: int, rounds: int) -> None:
        """A note of lessons was written."""
        note = _Note(sequence, rounds, self.clock.now, -1, [], [])
        for row in rows:
            note.whose.append(row.whose)
            if row.epoch == IMPORT:
                self._import(note, row)
                continue
            if row.leaf > note.leaf:
                note.leaf = row.leaf
            stored = self.ticket((row.epoch, row.number))
            if stored is not None and stored.taught < 0:
                self.open -= stored.row.label >= 0
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

    def take(self, key: Key) -> Waiting | None:
        """What waits for the label of a round, which waits no more: `Tickets.held`."""
        stored = self._rounds.get(key)
        if stored is None:
            return None
        waiting, stored.waiting = stored.waiting, None
        return waiting

    def reopen(self, waiting: Mapping[Key, Waiting]) -> None:
        """After a load, what waits for labels."""
        for key, one in waiting.items():
            self._rounds[key].waiting = one

    def expire(self, rounds: int) -> bool:
        """Drop what was asked, or imported, a ticket's life ago or earlier, by public rounds and the journal's clock.

        Who brought labels does not enter. Whether tickets ended with that.
        """
        last, then, before = rounds - self._life, self.clock.now - self._minutes, len(self._rounds)
        while self._rounds and (first := next(iter(self._rounds.values()))).key[1] <= last and first.minute <= then:
            del self._rounds[first.key]
            self.open -= first.open
            if self._by_name.get(first.name) is first:
                del self._by_name[first.name]
        while self._imported and self._imported[0].rounds <= last and self._imported[0].minute <= then:
            old = self._imported.popleft()
            if self._imports.get(old.name) is old:
                del self._imports[old.name]
        return len(self._rounds) < before

    def outlived(self, kind: str, rounds: int, before: int, leaves: int) -> int | None:
        """Up to which entry notes are no longer needed; None if all are.

        Nothing of them is within a ticket's life or a quota's day, they are not after the entry `before`, and no
        lesson of theirs has a stamp from `leaves` on.
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
        return [stored for stored in self._rounds.values() if stored.row.whose == whose]

    def forget(self, whose: bytes) -> list[tuple[str, int, bytes, list[Row]]]:
        """Drop somebody's requests; (kind, sequence, whose, rows that take their place) of all notes that have theirs.

        That a request was made stays, by its name, for a ticket's life: one that is sent again takes no round, whether
        or not its person was forgotten, and it counts for their quota. Nothing stays of lessons. The digest of an
        import with a record of theirs goes too: whoever has the key could try what it was.
        """
        for stored in self.of(whose):
            self.open, stored.waiting = self.open - stored.open, None
            stored.row = stored.row.left(stored.name, self._keeper.hash(b"quota", whose))
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

    def waiting(self) -> Iterator[Stored]:
        """Answered questions that wait for a label, in order."""
        return (one for one in self._rounds.values() if one.open)


def refused_for_today(minutes: int) -> Reply:
    """What is told to somebody whose rounds of the day are used up, until so many minutes have passed."""
    return Reply(None, refusal=Refusal("quota", OVER, 60 * minutes))
