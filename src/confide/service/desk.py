"""The desk: one model's owner, who answers, learns, and remembers every request for as long as its ticket is good.

A call computes under a lock, writes one entry into the ledger with everything that must outlive it, and returns when
that is on the disk. So a retry finds the stored answer, and after a crash no ticket and no acknowledged label is gone.
Why that tells nobody anything: docs/proofs/people.md, "The journal". What is on the disk: docs/state.md.
"""

from __future__ import annotations

import contextlib
import hmac
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from confide.errors import StateError
from confide.ledger.snapshot import exists, read_extra, write_extra
from confide.planning.plan import Plan
from confide.pop.batches import Records
from confide.pop.keeping import Entered, Note
from confide.pop.lessons import Lesson
from confide.pop.loop import Outcome
from confide.pop.pop import POP
from confide.pop.state import MODEL, Saved, clear, opened
from confide.pop.tickets import Key
from confide.service.base import Asked, Later, Question, Refusal, Taught
from confide.service.clerk import Clerk, Said
from confide.service.counts import Counts
from confide.service.history import History, Import
from confide.service.memory import Memory
from confide.service.replay import replay
from confide.service.rows import ASKED, NOBODY, TAUGHT, Row, Rows, Unreadable, together
from confide.service.signing import RolledBack, Signer
from confide.service.views import person, private, public
from confide.service.words import (
    AGAIN,
    GONE,
    NO_LABEL,
    NOT_YOURS,
    OTHER_LABEL,
    OTHER_RECORDS,
    ROLLED_BACK,
    UNSAVED,
    UNWRITTEN,
)

__all__ = ["PopDesk"]

Fresh = Mapping[tuple[bytes, bytes], tuple[Question, Row]]
"""New requests, by whose they are and what they are called."""

_COUNTS = "counts.json"


class PopDesk:
    """A POP with its ledger, as the service's doors need it (`confide.service.base.Desk`).

    Parameters
    ----------
    name
        The model's name, public.
    pop
        A POP that lives in a folder. Use `PopDesk.open`, which loads it or makes it.
    saved
        The state that the POP was loaded from, whose journal is then taken up; None for a new one.
    room
        Bytes for a stored question, the same for all: a longer one is refused. Public.
    save_every
        Public rounds after which a snapshot is written; None to write it only when it is asked for.
    """

    def __init__(
        self,
        name: str,
        pop: POP,
        folder: Path,
        saved: Saved | None = None,
        *,
        room: int = 512,
        save_every: int | None = 100_000,
    ) -> None:
        book = pop.operator.loop.account.book
        if book is None:
            raise StateError("a desk needs a POP that was saved: use PopDesk.open")
        self._name, self.pop, self.folder = name, pop, folder
        self._keeper, self._book, self._rows = pop.keep(), book, Rows(room)
        self._memory, self._counts = Memory(self._keeper.life), Counts(read_extra(folder, _COUNTS))
        self._lock = threading.RLock()
        self._sealed: str | None = None
        self._every, self._saved, self._unsaved = save_every, pop.rounds, False
        lives: Mapping[int, tuple[int, int]] = {book.epoch: (book.mark, pop.rounds)}
        self._snapshot = book.sequence
        if saved is not None:
            lives, self._snapshot = saved.spent.lives, saved.header["sequence"]
            replay(saved, self._keeper, self._memory, self._counts)
        self._signer = Signer(self._keeper, lives)
        self._clerk = Clerk(pop, self._keeper, self._signer, room)

    # ------------------------------------------------------------------ open and close

    @classmethod
    def open(
        cls,
        folder: str | Path,
        make: Callable[[], POP],
        *,
        name: str = "model",
        room: int = 512,
        save_every: int | None = 100_000,
        learner: Any = None,
        fallback: Any = None,
        trusted: bool = False,
        ledger: str | None = None,
    ) -> Self:
        """The desk of the model in a folder; a folder that is not there, or empty, gets the POP that `make()` gives.

        After a crash everything that was durable is there: copies from the snapshot, taught again what came since;
        open tickets; stored answers. `learner`, `fallback` and `trusted` are as for `POP.load`;
        `ledger` names a PostgreSQL server that has the ledger, where the model is then called `name`.

        Raises
        ------
        StateError
            If the state must not be used: another process owns it, it was rolled back, or it is damaged.
        """
        folder, model = Path(folder), MODEL if ledger is None else name
        if not exists(folder):
            clear(folder, ledger, model)
            pop = make()
            pop.save(folder, ledger=ledger, model=model)
            return cls(name, pop, folder, room=room, save_every=save_every)
        with opened(folder, ledger, model) as saved:
            settings = saved.settings(learner, fallback)
            pop = POP(settings.learner, settings.plan, **settings.options()).resume(saved, trusted)
            return cls(name, pop, folder, saved, room=room, save_every=save_every)

    @property
    def name(self) -> str:
        """The model's name, public."""
        return self._name

    @property
    def plan(self) -> Plan:
        """Every number of the run, public."""
        return self.pop.plan

    def timed_by(self, clock: Callable[[], float]) -> Self:
        """Tell the operator how long writes take, by this clock; without one nobody looks at any."""
        self._book.clock = clock
        return self

    def save(self) -> None:
        """Write a snapshot, and drop what it makes needless from the journal.

        When it is called must not depend on anything private.
        """
        with self._lock:
            self._check()
            self.pop.save(self.folder)
            write_extra(self.folder, _COUNTS, self._counts.dump(self._book.sequence))
            self._snapshot, self._saved, self._unsaved = self._book.sequence, self._keeper.rounds, False
            self._tear(TAUGHT)

    def _save_when_due(self) -> None:
        """A snapshot that cannot be written is an alarm, and tried again later: the answers are durable without it."""
        with self._lock:
            if self._every is None or self._keeper.rounds - self._saved < self._every:
                return
            try:
                self.save()
            except StateError:
                if self._book.ended:
                    raise
                self._unsaved, self._saved = True, self._keeper.rounds

    def close(self) -> None:
        """Save, and give the model back: another process may open it then."""
        with self._lock:
            try:
                if not self._book.ended and self._sealed is None:
                    self.save()
            finally:
                self.pop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._sealed is not None:
            raise StateError(self._sealed)

    def _tear(self, kind: str) -> None:
        keeper = self._keeper
        before = self._snapshot if kind == TAUGHT else -1 if keeper.counting else self._book.sequence
        done = self._memory.outlived(kind, keeper.rounds, before, keeper.leaf)
        if done is not None:
            self._book.tear(kind, done)

    # ------------------------------------------------------------------ ask

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        """Answer these in order, as one group commit whose size depends on how many are new, and on nothing else.

        A request whose id is known, to the same subject, within a ticket's life, takes no round: it gets the stored
        answer; if its x is another one, a refusal.
        """
        with self._lock:
            self._check()
            self._memory.expire(self._keeper.rounds)
            self._tear(ASKED)
            requests = [self._clerk.row(one) for one in questions]
            fresh: dict[tuple[bytes, bytes], tuple[Question, Row]] = {}
            again = list[bool]()
            for one, row in zip(questions, requests, strict=True):
                name = row.whose, row.id
                again.append(name in fresh or self._memory.request(*name) is not None)
                if not again[-1]:
                    fresh[name] = one, row
            said: Said = {}
            entered = self._take(fresh, said) if fresh else None
            found = [self._memory.request(row.whose, row.id) for row in requests]
            self._memory.expire(self._keeper.rounds)
        if entered is not None:
            self._keeper.settle(entered)
        else:
            self._book.wait(max((one.sequence for one in found if one is not None), default=0))
        self._save_when_due()
        return [self._clerk.reply(*about, said) for about in zip(questions, requests, found, again, strict=True)]

    def _take(self, fresh: Fresh, said: Said) -> Entered:
        """Take the rounds, and write them down with what came of each; `said` gets what is wrong with a question."""
        rows = list[Row]()

        def note(outcomes: Sequence[Outcome]) -> Note:
            epoch = self._keeper.epoch
            for (_, row), outcome in zip(fresh.values(), outcomes, strict=True):
                waiting = outcome.waiting if row.x is not None else None
                if waiting is not None:
                    came = waiting.copy, -1, outcome.label, outcome.guided, outcome.source, row.x
                else:
                    came = -1, -1, -1, -1, -1, row.x
                rows.append(Row(row.whose, row.id, row.digest, outcome.number, epoch, *came))
            return ASKED, self._rows.width, self._rows.body(rows)

        xs = [one.x if row.x is not None else Unreadable() for one, row in fresh.values()]
        asked = together(xs, [row.x for _, row in fresh.values()])
        outcomes, entered = self._keeper.ask(asked, [row.whose for _, row in fresh.values()], note)
        self._memory.asked(rows, entered[0].sequence, self._keeper.rounds)
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome.error is not None:
                said[row.whose, row.id] = str(outcome.error)
        taken = [row for row in rows if row.number]
        self._counts.asked([row.number for row in taken], [row.source for row in taken], self.pop.operator.unsure)
        return entered

    # ------------------------------------------------------------------ labels

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """Take labels: each once, in time, from the ticket's holder; durable when this returns.

        The same label again, from the same holder, is acknowledged again, and nothing is learned: the first
        acknowledgement may have been lost on its way. Another label is refused.
        """
        with self._lock:
            self._check()
            self._memory.expire(self._keeper.rounds)
            labels = self._keeper.labels(one.label for one in lessons)
            said: list[Refusal | None] = []
            fresh: dict[Key, int] = {}
            places: dict[Key, int] = {}
            earlier = 0
            for i, (one, label) in enumerate(zip(lessons, labels, strict=True)):
                key = self._key(one)
                stored = None if key is None else self._memory.ticket(key)
                before = -1 if stored is None else stored.taught
                if key is None:
                    said.append(Refusal("ticket", NOT_YOURS))
                elif label < 0:
                    said.append(Refusal("label", NO_LABEL))
                elif stored is None:
                    said.append(Refusal("ticket", GONE))
                elif (before if before >= 0 else fresh.get(key, label)) != label:
                    said.append(Refusal("ticket", OTHER_LABEL))
                else:
                    said.append(None)
                    earlier = max(earlier, stored.lesson)
                    if before < 0:
                        fresh[key], places[key] = label, i
            entered = None
            if fresh:
                refused, entered = self._take_labels(fresh)
                for key, error in refused.items():
                    said[places[key]] = Refusal("ticket", str(error))
        return self._durable(said, entered, earlier)

    def _key(self, one: Taught) -> Key | None:
        """The round of a ticket; None for one that is not theirs. One from beyond the ledger's end seals the model."""
        try:
            return self._signer.key(one.ticket, self._keeper.who(one.subject))
        except RolledBack:
            self._sealed = ROLLED_BACK
            self._keeper.settle(self._keeper.seal(ROLLED_BACK))
            raise StateError(ROLLED_BACK) from None

    def _take_labels(self, fresh: Mapping[Key, int]) -> tuple[dict[Key, ValueError], Entered]:
        rows = list[Row]()

        def note(taken: Sequence[Lesson]) -> Note:
            for lesson in taken:
                stored = self._memory.ticket(lesson.key)
                assert stored is not None
                about = lesson.waiting.copy, lesson.leaf, lesson.label, -1, -1, stored.row.x
                rows.append(Row(stored.row.whose, NOBODY, NOBODY, lesson.key[1], lesson.key[0], *about))
            wrong = [lesson.label != lesson.waiting.answered for lesson in taken]
            self._counts.labelled([row.number for row in rows], wrong)
            return TAUGHT, self._rows.width, self._rows.body(rows)

        refused, entered = self._keeper.learn(fresh, note)
        self._memory.taught(rows, entered[0].sequence, self._keeper.rounds)
        return refused, entered

    def _durable(self, said: list[Refusal | None], entered: Entered | None, earlier: int) -> list[Refusal | None]:
        """What is told once it is durable; where it is not, what was good is to be brought again."""
        try:
            if entered is not None:
                self._keeper.settle(entered, private=True)
            else:
                self._book.wait(earlier, private=True)
        except StateError:
            if self._book.ended:
                raise
            return [Refusal("later", AGAIN) if one is None else one for one in said]
        return said

    def teach(self, rows: History, id: str | None = None) -> list[Refusal | None]:
        """History: labelled records (subject, x, label) that were never asked; durable when this returns.

        With an id, the same records again, within a ticket's life, are acknowledged again and teach nothing: the first
        acknowledgement may have been lost on its way. Other records are refused.
        """
        given = Import(self._keeper, rows, id, room=self._rows.room, people=self.pop.units == "people")
        with self._lock:
            self._check()
            self._memory.expire(self._keeper.rounds)
            before = self._memory.imported(given.name)
            if before is None:
                unreadable, entered = self._take_history(given)
            else:
                unreadable = self.pop.readable(given.xs)
        if before is None:
            self._keeper.settle(entered)  # the operator's, at times that are public
        else:
            self._book.wait(before.sequence)
            if before.digest is None or not hmac.compare_digest(before.digest, given.digest):
                return [Refusal("conflict", OTHER_RECORDS) for _ in rows]
        return given.said(unreadable, self._clerk.long)

    def _take_history(self, given: Import) -> tuple[dict[int, str], Entered]:
        noted = list[Row]()

        def note(taught: Records) -> Note:
            noted.extend(given.rows(taught, self._keeper.rounds))
            return TAUGHT, self._rows.width, self._rows.body(noted)

        records, entered = self._keeper.teach(given.xs, given.ys, given.whos, note)
        self._memory.taught(noted, entered[0].sequence, self._keeper.rounds)
        return {i: str(error) for i, error in records.refused.items()}, entered

    # ------------------------------------------------------------------ forget

    def forget(self, subject: str) -> None:
        """Reset the copy that knows this person; delete their stored questions, answers, request ids and lessons.

        `Later` if it could not be made durable: to be asked for again. The snapshot still holds the old copy until the
        next one is written.
        """
        with self._lock:
            self._check()
            whose = self._keeper.who(subject)
            keys = [one.key for one in self._memory.of(whose)]
            entered = self._keeper.forget(whose, keys, tuple(self._memory.forget(whose)))
        try:
            self._keeper.settle(entered, private=True)
        except StateError:
            if self._book.ended:
                raise
            raise Later(AGAIN) from None

    # ------------------------------------------------------------------ what may be seen

    def public(self) -> Mapping[str, Any]:
        """What everyone may see: guarantee, plan, labels, units, state, rounds, monitor, guide."""
        return public(self.name, self.pop, self._keeper.life, self._rows.room)

    def private(self) -> Mapping[str, Any]:
        """For the operator's eyes: spent budget, shares by source, errors of labels that came, open tickets, alarms."""
        with self._lock:
            alarms = [] if self._sealed is None else [self._sealed]
            alarms += [UNWRITTEN] * self._book.ended + [UNSAVED] * self._unsaved
            seen = private(self.pop, self._counts, self._memory.open, alarms)
        return self._kept(seen)

    def person(self, subject: str) -> Mapping[str, Any]:
        """For the operator's eyes: one person's rounds and shares."""
        with self._lock:
            whose = self._keeper.who(subject)
            seen = person(self.pop, whose, self._keeper.life, self._memory.of(whose))
        return self._kept(seen)

    def _kept(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Exact numbers, once they are durable: a crash takes none back. Where nothing can be, they are shown."""
        with contextlib.suppress(StateError):
            self._book.wait(self._book.sequence, private=True)
        return seen
