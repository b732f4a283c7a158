"""POP's calls for an owner who keeps a journal: each gives what must be written down, and is written with it.

What the owner notes goes into the call's own entry, so that it is durable with what was spent, or not at all. After a
crash `Keeper.reopen` and `Keeper.replay` bring back what waits for a label and what was learned since the snapshot.
Proof page: docs/proofs/people.md, "The journal".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from confide.errors import Halted
from confide.frames import rows_of
from confide.ledger.entries import Erased
from confide.pop import batches
from confide.pop.account import Mark
from confide.pop.batches import Records
from confide.pop.lessons import Lesson
from confide.pop.loop import Loop, Outcome
from confide.pop.monitor import Estimate
from confide.pop.settings import Settings
from confide.pop.tickets import Key, Waiting

__all__ = ["Entered", "Keeper", "Note", "Past"]

Note = tuple[str, int, bytes]
"""A kind, the width of a row, and rows that each begin with whose they are: what `Entry.notes` takes."""

_UNKNOWN = (
    "nothing was taught: this state's journal does not have all records that its guide learned from, and one that is "
    "taught twice is not protected; begin a new model to teach it history"
)

Entered = tuple[Mark, Estimate | None]
"""What a call wrote down: durable once `Keeper.settle` has returned."""


class Past(NamedTuple):
    """A lesson from the journal."""

    sequence: int
    copy: int
    x: Any
    label: int
    leaf: int
    number: int
    """The round of the question; 0 for a record of history."""


class Keeper:
    """A POP's rounds, labels and records, each with what its owner notes. Made by `POP.keep`.

    All methods but `settle` hold the POP's lock; nothing they return may leave before `settle` has returned.
    """

    def __init__(
        self, settings: Settings, loop: Loop, lock: AbstractContextManager[object], check: Callable[[], None]
    ) -> None:
        self._settings, self._loop, self._lock, self._check = settings, loop, lock, check
        loop.tickets.kept, self._keyed = True, dict[bytes, Any]()
        if loop.account.book is not None:
            loop.tickets.epoch = loop.account.book.epoch

    # ------------------------------------------------------------------ who and when

    def who(self, subject: str) -> bytes:
        """A keyed hash of somebody's id: the person's own, and whoever asks where rounds are protected."""
        name, key = subject.encode("utf-8", "surrogatepass"), self._loop.routing.people_key
        return blake2b(name, key=key, digest_size=16, person=b"unit").digest()

    def hash(self, purpose: bytes, *parts: bytes) -> bytes:
        """16 bytes that nobody can compute without this state's key."""
        keyed = self._keyed.get(purpose)
        if keyed is None:
            keyed = blake2b(key=self._loop.routing.ticket_key, digest_size=16, person=purpose)
            self._keyed[purpose] = keyed
        made = keyed.copy()
        for part in parts:
            made.update(part)
        return bytes(made.digest())

    @property
    def epoch(self) -> int:
        """The epoch of the tickets that are issued now."""
        return self._loop.tickets.epoch

    @property
    def life(self) -> int:
        """Public rounds for which a ticket is good."""
        return self._loop.tickets.life

    @property
    def rounds(self) -> int:
        """Rounds taken, durable or not."""
        return self._loop.account.rounds

    @property
    def leaf(self) -> int:
        """The stamp before which no lesson may be needed again (public)."""
        return self._loop.parts.closed

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
        self, xs: Any, whos: Sequence[bytes], note: Callable[[Sequence[Outcome]], Note]
    ) -> tuple[list[Outcome], Entered]:
        """Rounds, as `POP.predict_many` takes them; one that a halt refused has the error `Halted`, and no number."""
        loop = self._loop
        with self._lock:
            self._check()
            outcomes, units = list[Outcome](), self._units(whos)
            if loop.account.open() or loop.goes_on:
                rows = rows_of(xs, self._settings.named)
                # One round alone is quicker without the batch's preparations, and the same to the last bit.
                outcomes = [loop.ask(rows[0], units[0])] if len(rows) == 1 else batches.ask_many(loop, rows, units)
            if len(outcomes) < len(whos):
                loop.account.open()  # the rounds may be over
            error = Halted("this model has halted: its rounds or its privacy budget are used up")
            outcomes += [Outcome(-1, error=error) for _ in range(len(outcomes), len(whos))]
            return outcomes, loop.enter(*units, notes=(note(outcomes),))

    def learn(
        self, labels: Mapping[Key, int], note: Callable[[Sequence[Lesson]], Note]
    ) -> tuple[dict[Key, ValueError], Entered]:
        """Labels' numbers by ticket, as `POP.learn_many` takes them; what is wrong with those that were not taken.

        The note must name the tickets: of a call that is not cut off, nothing else says that they were used.
        """
        loop, taken, refused = self._loop, list[Lesson](), dict[Key, ValueError]()
        with self._lock:
            self._check()
            for key, label in labels.items():
                try:
                    waiting = loop.tickets.take(key, loop.account.rounds)
                except ValueError as error:
                    refused[key] = error
                else:
                    taken.append(loop.take(key, waiting, label))
            return refused, loop.enter(notes=(note(taken),), noted=[lesson.key for lesson in taken])

    def teach(
        self, xs: Sequence[Any], ys: Sequence[Hashable], whos: Sequence[bytes], note: Callable[[Records], Note]
    ) -> tuple[Records, Entered]:
        """Records, as `POP.teach_many` takes them, no more than `together`.

        A call that is cut off ends the book: what it taught is noted nowhere, and must never be released.
        """
        loop = self._loop
        with self._lock:
            self._check()
            if self._settings.units == "rounds" and not loop.parts.knows:
                raise ValueError(_UNKNOWN)
            rows = rows_of(xs, self._settings.named)
            try:
                taught = batches.teach_many(loop, rows, ys, self._units(whos))
                entered = loop.enter(notes=(note(taught),))
                loop.taught()
                return taught, entered
            except BaseException:
                if loop.account.book is not None:
                    loop.account.book.end("an import of history was cut off: load the state again")
                raise

    def forget(self, who: bytes, keys: Iterable[Key], erased: tuple[Erased, ...]) -> Entered:
        """As `POP.forget`; drop these open questions, and overwrite somebody's rows of the journal (`Entry.erased`).

        Where rounds are protected no copy knows a person, and none is reset.
        """
        loop = self._loop
        with self._lock:
            self._check()
            for key in keys:
                loop.tickets.discard(key)
            if self._settings.units == "rounds":
                return loop.enter(erased=erased)
            return loop.enter(who, forgot=((loop.forget(who), who),), erased=erased)

    def knows(self, who: bytes) -> bool:
        """Whether anything was counted of somebody."""
        account = self._loop.account
        return any(who in counted for counted in (account.shares, account.watched, account.labels))

    def expire(self, keys: Iterable[Key]) -> None:
        """The tickets of these rounds are good no more: when that is, the owner decides, by public things alone."""
        with self._lock:
            for key in keys:
                self._loop.tickets.discard(key)

    def labels(self, ys: Iterable[Hashable]) -> list[int]:
        """The labels' numbers; −1 for what is none."""
        return [self._label(y) for y in ys]

    def _label(self, y: Hashable) -> int:
        try:
            return self._loop.label(y)
        except ValueError:
            return -1

    def note(self, note: Note) -> None:
        """Write something down by itself: it is durable with whatever is next, when and of which size is public."""
        with self._lock:
            self._check()
            self._loop.enter(notes=(note,))

    def seal(self, why: str) -> Entered:
        """Nobody is to be answered any more, by no later life either."""
        with self._lock:
            self._check()
            return self._loop.enter(sealed=why)

    def settle(self, entered: Entered, *, private: bool = False) -> None:
        """Durable when it returns (`Account.settle`). It goes to the disk: hold no lock meanwhile."""
        self._loop.settle(entered, private=private)

    # ------------------------------------------------------------------ after a load

    def reopen(self, questions: Sequence[tuple[Key, bytes, int, int, Any]]) -> None:
        """Questions (key, whose, copy, answered, x) wait for their labels again.

        The monitor, which began anew, does not count them.
        """
        loop, people = self._loop, self._settings.units == "people"
        with self._lock:
            rows, errors = loop.bank.encode_many(rows_of([x for *_, x in questions], self._settings.named))
            for i, (key, whose, copy, answered, x) in enumerate(questions):
                who = whose if people else None
                if i not in errors:
                    questions = loop.parts.read_as_of(x, key[1])
                    loop.tickets.restore(key, Waiting(copy, _own(rows[i]), answered, False, who, questions))

    def recount(self, asked: Iterable[tuple[bytes, Any]]) -> None:
        """Questions (whose, x) that were counted for what was not released: again, in order."""
        people = self._settings.units == "people"
        with self._lock:
            for whose, x in asked:
                self._loop.parts.recount(x, whose if people else None)

    def replay(self, lessons: Sequence[Past], since: int, resets: Iterable[tuple[int, int]]) -> None:
        """Lessons from the journal, in order.

        Those after the snapshot (`since`) teach their copy again, unless it was reset after them (`resets`: sequence
        and copy; the load has reset these copies). What a part has not released it is taught again, whatever the
        snapshot: it holds nothing open. What may be in a release never teaches again.
        """
        loop, last = self._loop, dict[int, int]()
        for sequence, copy in resets:
            last[copy] = max(last.get(copy, 0), sequence)
        with self._lock:
            mine = [one for one in lessons if one.copy >= 0 and one.sequence > max(since, last.get(one.copy, 0))]
            rows, errors = loop.bank.encode_many(rows_of([one.x for one in mine], self._settings.named))
            good = [i for i in range(len(mine)) if i not in errors]
            if good and loop.plan.copies:
                copies, labels = np.array([(mine[i].copy, mine[i].label) for i in good], dtype=np.int64).T.copy()
                taught: Any = rows[good] if isinstance(rows, np.ndarray) else [rows[i] for i in good]
                loop.lessons.many(copies, taught, labels)
            for one in lessons:
                loop.parts.again(one.x, one.label, one.number, one.leaf)

    def noted(self) -> None:
        """The journal, which was replayed, has all records that ever taught the public parts."""
        self._loop.parts.noted()

    def _units(self, whos: Sequence[bytes]) -> list[bytes | None]:
        return [None] * len(whos) if self._settings.units == "rounds" else list(whos)


def _own(row: Any) -> Any:
    if not isinstance(row, np.ndarray):
        return row
    row = row.copy()
    row.flags.writeable = False
    return row
