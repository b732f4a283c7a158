"""Questions as a desk holds them: those of a call, and those of a note of the journal, both by columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from math import nan
from operator import add
from typing import Any, NamedTuple

import numpy as np

from confide.pop.keeping import Keeper
from confide.pop.loop import Outcome
from confide.pop.tickets import Key, Waiting
from confide.service.base import Question
from confide.service.journal import NOBODY, Columns, Row, Unreadable, canonical, pack
from confide.service.older import ABOUT, Left, Place, halves_of

__all__ = ["Asked", "Asking", "Hashes", "Stored"]


@dataclass(slots=True, repr=False, eq=False)
class Asking:
    """The questions of a call, each with the keyed hashes that stand for it: those are computed once."""

    questions: Sequence[Question]
    minute: int
    """When they came, by the machine's clock."""
    xs: list[bytes | None]
    """Packed; None where one cannot be stored."""
    whose: list[bytes]
    ids: list[bytes]
    digests: list[bytes]
    """As in `Row`."""
    names: list[bytes]
    """Each stands for whose a question is and its id together: it is known by it once its person was forgotten."""
    counted: list[bytes]
    """Each stands for whose a question is where the rounds of a day are counted."""
    fresh: list[int] = field(default_factory=list)
    """The places of those that take a round: each of the others is in one of the next three, or its rounds are over."""
    again: set[int] = field(default_factory=set)
    """Those that were asked before."""
    wait: dict[int, int] = field(default_factory=dict)
    """Minutes until their sender may take a round, where there is none left for them now."""
    unread: set[int] = field(default_factory=set)
    """Those that were asked before, and the journal cannot give now."""
    wrong: dict[int, str] = field(default_factory=dict)
    """What is wrong with one, where that was found when it was asked."""
    note: Asked | None = None
    """The note that has all of them and no other, in their order."""

    def is_at(self, i: int, place: Place) -> bool:
        """Whether this place is a question's own, or what it left there when its person was forgotten."""
        mine = self.names[i] + self.counted[i] if place.forgotten else self.whose[i] + self.ids[i]
        return place.key == mine

    def some(self, places: Sequence[int]) -> Asking:
        """Those at these places, in a call of their own; itself, where they are all."""
        if len(places) == len(self.questions):
            return self
        columns: tuple[list[Any], ...] = self.xs, self.whose, self.ids, self.digests, self.names, self.counted
        xs, whose, ids, digests, names, counted = [[column[i] for i in places] for column in columns]
        return Asking([self.questions[i] for i in places], self.minute, xs, whose, ids, digests, names, counted)

    def together(self) -> Any:
        """The questions for a POP: one array where all are numbers, and equally many: a batch is then read at once."""
        size, packed = len(self.xs[0] or b""), self.xs
        if all([one is not None and one[:1] == b"d" and len(one) == size for one in packed]):
            whole = b"".join([one[1:] for one in packed if one is not None])
            return np.frombuffer(whole, dtype="<f8").astype(np.float64).reshape(len(packed), -1)
        return [Unreadable() if packed[i] is None else one.x for i, one in enumerate(self.questions)]

    def columns(self, outcomes: Sequence[Outcome], epoch: int, stands: Sequence[int | None] = ()) -> Columns:
        """What the journal has of them, once they were asked; where `stands` says it, that is in the copy's place."""
        n, xs, numbers = len(outcomes), self.xs, list[int]()
        copies, labels, guided, sources = [-1] * n, [-1] * n, [-1] * n, [-1] * n
        for i, one in enumerate(outcomes):
            waiting = one.waiting
            numbers.append(one.number)
            if waiting is not None and xs[i] is not None:
                stand = stands[i] if stands else None
                copies[i] = waiting.copy if stand is None else stand
                labels[i], guided[i], sources[i] = one.label, one.guided, one.source
        about = numbers, [epoch] * n, copies, [self.minute] * n, labels, guided, sources, xs
        return Columns(self.whose, self.ids, self.digests, *about)


class Hashes:
    """What stands for questions, by a key that nobody else has.

    Parameters
    ----------
    room
        Bytes for a packed x.
    """

    def __init__(self, keeper: Keeper, room: int) -> None:
        self._keeper, self._room = keeper, room
        self._begun: tuple[Callable[[], Any], ...] | None = None  # what they begin with

    def read(self, questions: Sequence[Question], minute: int) -> Asking:
        """Questions that came in this minute, of which nothing is known but what was asked, and by whom."""
        keeper, people, room = self._keeper, dict[str, tuple[bytes, bytes]](), self._room
        if self._begun is None:
            self._begun = tuple(keeper.keyed(purpose).copy for purpose in (b"request", b"x", b"asked"))
        new_id, new_digest, new_name = self._begun
        made = Asking(questions, minute, [], [], [], [], [], [])
        xs, whose, ids, digests, names, counted = (
            made.xs.append, made.whose.append, made.ids.append, made.digests.append, made.names.append,
            made.counted.append,
        )  # fmt: skip
        for subject, asked, x in questions:
            known = people.get(subject)
            if known is None:
                who = keeper.who(subject)
                known = people[subject] = who, keeper.hash(b"quota", who)
            id, digest, name, packed = new_id(), new_digest(), new_name(), pack(x)  # as `Keeper.hash` does
            id.update(asked.encode("utf-8", "surrogatepass"))
            digest.update(canonical(x, packed))
            hashed = id.digest()
            name.update(known[0] + hashed)
            xs(packed if packed is None or len(packed) <= room else None)
            whose(known[0])
            counted(known[1])
            ids(hashed)
            digests(digest.digest())
            names(name.digest())
        return made

    def of(self, whose: bytes, id: bytes) -> tuple[bytes, bytes]:
        """What stands for a request by its name, and for its sender where rounds are counted (see `Asking`)."""
        return self._keeper.hash(b"asked", whose, id), self.counted(whose)

    def counted(self, whose: bytes) -> bytes:
        """What stands for somebody where rounds are counted."""
        return self._keeper.hash(b"quota", whose)

    def named(self, row: Row) -> tuple[bytes, bytes]:
        """The same of a row of the journal."""
        return (row.whose, row.id) if row.forgotten else self.of(row.whose, row.id)


@dataclass(slots=True, repr=False, eq=False)
class Asked:
    """Questions of a note that took rounds, in their order, and what came of each since."""

    sequence: int
    """The note."""
    minute: int
    """When it was, by the public clock."""
    rows: Columns
    """As the journal has them."""
    names: list[bytes]
    counted: list[bytes]
    """As in `Asking`."""
    at: Sequence[int]
    """The places of the rows in the note."""
    waiting: list[Waiting | None]
    """What labels will teach; None once one was brought, or where it is to be read again."""
    taught: list[int]
    """The labels that were brought, −1 for none; what came out for them, where labels alone are protected."""
    lesson: list[int]
    """The entries that made that durable; 0 for none."""
    shares: Sequence[tuple[float, ...] | None] = ()
    """The probability of every label, where it was told: public. After a restart nobody knows it any more."""
    watched: bool = False
    """Whether the monitor counts a round, where `waiting` does not say it."""
    first: int = 0
    """Those before this one have left the memory."""

    @classmethod
    def at_place(cls, one: Place, name: bytes, row: Row | None) -> Stored:
        """A question that is not in memory, with its row or what the index has of it."""
        if row is None:
            source = one.key[:16], one.key[16:], NOBODY if one.forgotten else b"", one.number, one.epoch
            row = Row(*source, -1, one.leaf, one.label, -1, one.source, None)
        came = [one.taught], [one.lesson], (one.shares,), one.counted
        return Stored(cls(one.sequence, one.minute, Columns.of([row]), [name], [b""], (one.at,), [None], *came), 0)

    def stored(self) -> list[Stored]:
        """Each of those in memory."""
        return [*map(_STORED, zip(repeat(self), range(self.first, len(self.names))))]


    def leave_behind(self, places: Collection[int]) -> int:
        """The person of these is forgotten: nothing stays of what came of them. How many of these were open."""
        was = sum([Stored(self, i).open for i in places])
        self.rows = self.rows.but({i: self.rows.row(i).left(self.names[i], self.counted[i]) for i in places})
        for i in places:
            self.waiting[i], self.taught[i], self.lesson[i] = None, -1, 0
        if self.shares:  # what is left takes the same room
            self.shares = [
                (nan,) * len(one) if one is not None and i in places else one for i, one in enumerate(self.shares)
            ]
        return was

    def left(self, end: int) -> Left:
        """Those in memory before this one, as the index has them: where the journal has them, and what came of them."""
        cut, rows, names = slice(self.first, end), self.rows, self.names[self.first : end]
        waiting, n = self.waiting[cut], len(names)
        watched = [self.watched if one is None else one.counted for one in waiting]
        about = map(
            ABOUT.pack, rows.number[cut], halves_of(names), map(add, rows.whose[cut], rows.id[cut]),
            repeat(self.sequence), self.at[cut], rows.epoch[cut], rows.leaf[cut], repeat(self.minute),
            rows.label[cut], rows.source[cut], self.taught[cut], self.lesson[cut], watched,
            map(NOBODY.__eq__, rows.digest[cut]),
        )  # fmt: skip
        return Left(rows.number[cut], names, self.counted[cut], [*about], self.shares[cut] or [None] * n)


class Stored(NamedTuple):
    """A question that took a round, with what came of it."""

    note: Asked
    i: int
    """Which of its questions."""

    def __repr__(self) -> str:
        return "Stored(…)"

    @property
    def row(self) -> Row:
        """As the journal has it."""
        return self.note.rows.row(self.i)

    @property
    def key(self) -> Key:
        """Epoch and round."""
        return self.note.rows.epoch[self.i], self.note.rows.number[self.i]

    @property
    def name(self) -> bytes:
        """As in `Asking`."""
        return self.note.names[self.i]

    @property
    def sequence(self) -> int:
        """The entry that made it durable."""
        return self.note.sequence

    @property
    def minute(self) -> int:
        """When it was, by the public clock."""
        return self.note.minute

    @property
    def at(self) -> int:
        """Its place in the note."""
        return self.note.at[self.i]

    @property
    def taught(self) -> int:
        """The label that was brought; −1 for none."""
        return self.note.taught[self.i]

    @property
    def lesson(self) -> int:
        """The entry that made that durable."""
        return self.note.lesson[self.i]

    @property
    def shares(self) -> tuple[float, ...] | None:
        """The probabilities that were told with it."""
        return self.note.shares[self.i] if self.note.shares else None

    @property
    def forgotten(self) -> bool:
        """Whether it is what a question leaves behind whose person was forgotten."""
        return self.note.rows.digest[self.i] == NOBODY

    @property
    def open(self) -> bool:
        """Whether it was answered and waits for a label."""
        return self.note.rows.label[self.i] >= 0 and self.note.taught[self.i] < 0


_STORED: Callable[[Any], Stored] = partial(tuple.__new__, Stored)
