"""A running POP: its calls, each written down with what it spent before anything of it leaves.

`confide.POP` is a keeper whose owner notes nothing. An owner who keeps a journal, as the service's desk does, gives
each call what to note: it goes into the call's own entry, so that it is durable with what was spent, or not at all.
After a crash `Keeper.reopen` and `Keeper.replay` bring back what waits for a label and what was learned since the
snapshot. Proof page: docs/proofs/people.md, "The journal".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import numpy as np

from confide.contained import contained
from confide.errors import Halted, StateError
from confide.ledger.entries import Erased
from confide.pop import batches
from confide.pop.account import Mark
from confide.pop.batches import Chunk, Records
from confide.pop.lessons import Lesson
from confide.pop.loop import Loop, Outcome
from confide.pop.running import Who
from confide.pop.tickets import Key, Tickets, Waiting

__all__ = ["Keeper", "Note", "Past"]

Note = tuple[str, int, bytes]
"""A kind, the width of a row, and rows that each begin with whose they are: what `Entry.notes` takes."""

_UNKNOWN = (
    "nothing was taught: this state's journal does not have all records that its guide learned from, and one that is "
    "taught twice is not protected; begin a new model to teach it history"
)


class Past(NamedTuple):
    """A lesson from the journal."""

    sequence: int
    copy: int
    x: Any
    label: int
    leaf: int
    number: int
    """The round of the question; 0 for a record of history."""

    def __repr__(self) -> str:
        return f"Past(number={self.number})"


class Keeper:
    """A POP's rounds, labels and records, each with what its owner notes.

    All methods but `settle` hold the lock; nothing they return may leave before `settle` has returned.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop, self._people, self._keyed = loop, loop.routing.units == "people", dict[bytes, Any]()
        self.lock, self._pid = threading.RLock(), os.getpid()
        self.closed = False
        """Whether the state was given back: nothing is called any more."""
        self._sealed: str | None = None

    def journaled(self) -> Keeper:
        """From now on the owner's journal has the open tickets, and the owner decides when they end."""
        loop, self._keyed = self._loop, {}
        loop.tickets.kept = True
        for part in loop.parts:
            part.journaled()
        if loop.account.book is not None:
            loop.tickets.epoch = loop.account.book.epoch
        return self

    def begin(self) -> None:
        """A call begins, under the lock: whatever cut the last one off, its rounds are over, for all parts."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this POP was forked: two processes must not spend one budget; make or load it where it is used"
            )
        if self.closed:
            raise StateError("this POP was closed: load it again from its folder")
        if self._sealed is not None:
            raise StateError(self._sealed)
        loop, account = self._loop, self._loop.account
        account.begin(not loop.goes_on)
        if account.legs is not None:
            loop.renew()
        loop.parts.go_to(account.rounds + account.history)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("lock", "_keyed", "_pid")}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved, lock=threading.RLock(), _keyed={}, _pid=os.getpid())

    # ------------------------------------------------------------------ who and when

    def who(self, subject: str) -> bytes:
        """A keyed hash of somebody's id: the person's own, and whoever asks where rounds are protected."""
        return self.hash(b"unit", subject.encode("utf-8", "surrogatepass"))

    def hash(self, purpose: bytes, *parts: bytes) -> bytes:
        """16 bytes that nobody can compute without this state's key."""
        one = (self._keyed.get(purpose) or self.keyed(purpose)).copy()
        one.update(parts[0] if len(parts) == 1 else b"".join(parts))
        return cast(bytes, one.digest())

    def keyed(self, purpose: bytes) -> Any:
        """What `hash` begins with, to be copied."""
        routing = self._loop.routing
        key = routing.people_key if purpose == b"unit" else routing.ticket_key
        keyed = self._keyed[purpose] = blake2b(key=key, digest_size=16, person=purpose)
        return keyed

    @property
    def tickets(self) -> Tickets:
        """All open tickets: their keys, how they are signed, and for how many public rounds they are good."""
        return self._loop.tickets

    @property
    def unsure(self) -> int:
        """Unsure answers counted: private."""
        return self._loop.account.unsure

    @property
    def rounds(self) -> int:
        """Rounds taken, durable or not."""
        return self._loop.account.rounds

    @property
    def leaf(self) -> int:
        """The stamp before which no lesson may be needed again (public)."""
        return self._loop.parts.closed

    @property
    def stamp(self) -> int:
        """The last that a lesson so far can have; −1 where none is needed again (public)."""
        return self._loop.parts.leaf

    @property
    def counting(self) -> bool:
        """Whether questions themselves still add to something that will be released (public)."""
        return self._loop.parts.counting

    @property
    def together(self) -> int:
        """How many records `teach` may take at once: none of them is in a release before the entry that notes it.

        That follows from public numbers alone.
        """
        return self._loop.parts.together

    # ------------------------------------------------------------------ calls

    def ask(
        self, xs: Any, whos: Sequence[Who], note: Callable[[Sequence[Outcome]], Note] | None = None
    ) -> tuple[list[Outcome], Mark]:
        """Rounds, in order; one that a halt refused has the error `Halted`, and no number."""
        loop, whos = self._loop, whos if self._people else [None] * len(whos)
        outcomes: list[Outcome] = []
        with self.lock:
            self.begin()
            if (loop.account.open() or loop.goes_on) and whos:
                # One round alone is quicker without the batch's preparations, and the same to the last bit.
                outcomes = [loop.ask(xs[0], whos[0])] if len(whos) == 1 else batches.ask_many(loop, xs, whos)
            if len(outcomes) < len(whos):
                outcomes += [self._halted() for _ in range(len(outcomes), len(whos))]
            notes = () if note is None else (note(outcomes),)
            return outcomes, loop.account.enter(*(whos if self._people else ()), notes=notes)

    def ask_one(self, x: Any, who: Who) -> tuple[Outcome, Mark]:
        """One round, which its owner does not note."""
        loop, account = self._loop, self._loop.account
        with self.lock:
            self.begin()
            outcome = loop.ask(x, who) if account.open() or loop.goes_on else self._halted()
            return outcome, account.enter() if who is None else account.enter(who)

    def _halted(self) -> Outcome:
        loop = self._loop
        loop.account.open()  # the rounds may be over
        over = loop.account.halted == "rounds"
        said = "its rounds are over" if over else "its privacy budget is used up; start a new one with a new plan"
        return Outcome(-1, error=Halted(f"this POP has halted: {said}"))

    def follow(self, xs: Any, ys: Any, whos: Sequence[Who]) -> tuple[Chunk | None, Mark]:
        """Rounds, each asked and then taught its label, as many as there are; None where there is none."""
        loop, chunk = self._loop, None
        with self.lock:
            self.begin()
            if (loop.account.open() or loop.goes_on) and len(ys):
                chunk = batches.follow(loop, xs, ys, whos)
                if chunk.rows < len(ys):
                    loop.account.open()  # the rounds may be over, as they are for who asks one by one
            return chunk, loop.account.enter(*loop.people(whos))

    def learn(
        self, labels: Collection[tuple[Key, int]], note: Callable[[Sequence[Lesson]], Note] | None = None
    ) -> tuple[dict[int, ValueError], Mark]:
        """Labels' numbers with the keys of their tickets; by place, what is wrong with those that were not taken.

        A note must name the tickets: of a call that is not cut off, nothing else says that they were used. One that is
        cut off says it in an entry of its own: how many there are is nobody else's to write.
        """
        with self.lock:
            self.begin()
            try:
                taken, refused = self._loop.learn_many(labels)
                if note is None:
                    return refused, self._loop.account.enter()
                return refused, self._loop.account.enter(notes=(note(taken),), noted=[lesson.key for lesson in taken])
            except BaseException:
                if self._loop.account.used:
                    with contained:  # where it cannot be written, they go out with what is next
                        self.settle(self._loop.account.enter(), private=True)
                raise

    def teach(
        self, xs: Any, ys: Sequence[Hashable], whos: Sequence[Who], note: Callable[[Records], Note] | None = None
    ) -> tuple[Records, Mark]:
        """Records; an owner who notes them gives no more than `together`; who does not says `taught` at the end.

        A noted call that is cut off ends the book: what it taught is noted nowhere, and must never be released.
        """
        loop, book, entered = self._loop, None if note is None else self._loop.account.book, Mark(0, 0, None)
        whos = whos if self._people else [None] * len(whos)
        with self.lock:
            self.begin()
            if note is not None and not self._people and not loop.parts.knows:
                raise ValueError(_UNKNOWN)
            try:
                taught = batches.teach_many(loop, xs, ys, whos)
                if note is not None:
                    entered = loop.account.enter(notes=(note(taught),))
                    loop.parts.taught()
                elif loop.parts:
                    entered = loop.account.enter()
                return taught, entered
            except BaseException:
                if book is not None:
                    book.end("an import of history was cut off: load the state again")
                raise

    def teach_one(self, x: Any, y: Hashable, who: Who) -> None:
        """One record, which its owner does not note."""
        loop = self._loop
        with self.lock:
            self.begin()
            loop.teach(x, y, who)
            if loop.parts:
                loop.account.enter()  # whose labels were learned: on the disk before the sum that holds them leaves

    def taught(self) -> None:
        """A call that taught records comes to its end: said last of all, for whoever is cut off before may send again.

        What an earlier call taught then teaches no public part a second time.
        """
        self._loop.parts.taught()

    def forget(self, who: bytes, erased: tuple[Erased, ...] = ()) -> Mark:
        """Reset the copy that knows a person; drop their open questions, and overwrite rows of the journal.

        Where rounds are protected no copy knows a person, and none is reset.
        """
        loop = self._loop
        with self.lock:
            self.begin()
            if not self._people:
                loop.tickets.drop(who)
                return self._loop.account.enter(erased=erased)
            return self._loop.account.enter(who, forgot=((loop.forget(who), who),), erased=erased)

    def settle(self, mark: Mark, *, private: bool = False) -> None:
        """Durable when it returns, and then for everybody to see (`Account.settle`): hold no lock meanwhile."""
        self._loop.account.settle(mark, private=private)

    def knows(self, who: bytes) -> bool:
        """Whether anything was counted of somebody."""
        account = self._loop.account
        return any(who in counted for counted in (account.shares, account.watched, account.labels))

    def labels(self, ys: Iterable[Hashable]) -> list[int]:
        """The labels' numbers; −1 for what is none."""
        given, index = list(ys), self._loop.index
        with contained:  # which says nothing of which one it was
            return [index[y] for y in given]
        return [self._label(y) for y in given]

    def _label(self, y: Hashable) -> int:
        try:
            return self._loop.label(y)
        except ValueError:
            return -1

    def note(self, note: Note) -> None:
        """Write something down by itself: it is durable with whatever is next, when and of which size is public."""
        with self.lock:
            self.begin()
            self._loop.account.enter(notes=(note,))

    def seal(self, why: str) -> Mark:
        """Nobody is to be answered any more, by no later life either."""
        with self.lock:
            self.begin()
            self._sealed = why
            return self._loop.account.enter(sealed=why)

    # ------------------------------------------------------------------ after a load

    def reopen(self, questions: Sequence[tuple[Key, bytes, int, int, Any]]) -> dict[Key, Waiting]:
        """What waits for a label of these questions (key, whose, copy, answered, x), but for those that were used.

        The monitor, which began anew, does not count them.
        """
        loop, people, waiting = self._loop, self._people, dict[Key, Waiting]()
        with self.lock:
            rows, errors = loop.bank.encode_many([x for *_, x in questions])
            for i, (key, whose, copy, answered, x) in enumerate(questions):
                who = whose if people else None
                if i not in errors and key not in loop.tickets.used:
                    read = loop.parts.read_as_of(x, key[1])
                    waiting[key] = Waiting(copy, _own(rows[i]), answered, False, who, read)
        return waiting

    def recount(self, records: Sequence[tuple[bytes, Any]], asked: Sequence[tuple[bytes, Any]]) -> None:
        """Rows of history, and questions (whose, x), that were counted for what was not released: again, in order."""
        given = [[(x, whose if self._people else None) for whose, x in rows] for rows in (records, asked)]
        with self.lock:
            self._loop.parts.recount(*given)
            self._loop.account.named()  # by the entries that these rows are from

    def replay(self, lessons: Sequence[Past], since: int, resets: Iterable[tuple[int, int]]) -> None:
        """Lessons from the journal, in order.

        Those after the snapshot (`since`) teach their copy again, unless it was reset after them (`resets`: sequence
        and copy; the load has reset these copies, and those of a relay that began anew). What a part has not released
        it is taught again, whatever the snapshot: it holds nothing open. What may be in a release never teaches again.
        """
        loop, last = self._loop, dict[int, int]()
        for sequence, copy in resets:
            last[copy] = max(last.get(copy, 0), sequence)
        with self.lock:
            mine = [one for one in lessons if one.copy >= 0 and one.sequence > max(since, last.get(one.copy, 0))]
            mine = [one for one in mine if loop.account.keeps(one.copy, one.number, one.sequence)]
            rows, errors = loop.bank.encode_many([one.x for one in mine])
            good = [i for i in range(len(mine)) if i not in errors]
            if good and loop.plan.copies:
                copies, labels = np.array([(mine[i].copy, mine[i].label) for i in good], dtype=np.int64).T.copy()
                taught: Any = rows[good] if isinstance(rows, np.ndarray) else [rows[i] for i in good]
                loop.lessons.many(copies, taught, labels)
            for one in lessons:
                loop.parts.again(one.x, one.label, one.number, one.leaf)

    def noted(self) -> None:
        """The journal, which was replayed, has all records that ever taught the public parts."""
        for part in self._loop.parts:
            part.noted()


def _own(row: Any) -> Any:
    if not isinstance(row, np.ndarray):
        return row
    row = row.copy()
    row.flags.writeable = False
    return row
