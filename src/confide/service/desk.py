"""The desk: one model's owner, who answers, learns, and remembers every request for as long as its ticket is good.

A call computes under a lock, writes one entry into the ledger with everything that must outlive it, and returns when
that is on the disk. So a retry finds the stored answer, and after a crash no ticket and no acknowledged label is gone.
Why that tells nobody anything: docs/proofs/people.md, "The journal". What is on the disk: docs/state.md.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, Self, TypedDict, Unpack

from confide.banks import Place
from confide.errors import StateError
from confide.ledger.snapshot import exists, read_extra
from confide.planning.plan import Plan
from confide.pop.account import Mark
from confide.pop.keeping import Note
from confide.pop.lessons import Lesson
from confide.pop.loop import Outcome
from confide.pop.pop import POP
from confide.pop.randomizing import NO_HISTORY, Randomizing
from confide.pop.state import MODEL, Saved, clear, opened
from confide.pop.tickets import Key
from confide.service.asked import Asking, Stored
from confide.service.base import Later, Life, NotYet, Question, Records, Refusal, Reply, Slices, Taught
from confide.service.counts import Counts
from confide.service.journal import ASKED, COUNTED, PAST, STANDS, TAUGHT, Columns, Rows, head
from confide.service.older import Older
from confide.service.recovery import recover
from confide.service.requests import MOST, Forgotten, Requests
from confide.service.teaching import Teacher
from confide.service.views import person, private, public
from confide.service.words import (
    AGAIN,
    CAPPED,
    FIRST,
    GONE,
    NO_LABEL,
    NOT_YOURS,
    OTHER_LABEL,
    ROLLED_BACK,
    UNREAD,
    UNSAVED,
    UNSWEPT,
    UNWRITTEN,
)

__all__ = ["PopDesk"]

_COUNTED = 1024
"""Public rounds after which the operator's counts are noted; a ticket's life, if that is less."""


class DeskOptions(TypedDict, total=False):
    """What a desk takes by name, as `PopDesk` says it."""

    room: int
    save_every: int | None
    ticket_hours: int
    wall: Callable[[], float]


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
    ticket_hours
        For how long a ticket is good at least, however many rounds are taken meanwhile. Public.
    wall
        The machine's clock, in seconds; for tests. The journal has what it showed at every question.
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
        ticket_hours: int = 0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        book = pop.operator.loop.account.book
        if book is None:
            raise StateError("a desk needs a POP that was saved: use PopDesk.open")
        self._name, self.pop, self.folder = name, pop, folder
        self._keeper, self._book, self._rows = pop.keep(), book, Rows(room)
        self._alone: Randomizing | None = pop.operator.randomizing  # where labels alone are protected
        if self._alone is not None and self._alone.part.deadline is not None:
            ticket_hours = 0
        self._older = Older(folder, book)
        self._requests = Requests(pop, self._keeper, self._older, room, 60 * ticket_hours)
        self._hours, self._wall = ticket_hours, wall
        self._counts = Counts(read_extra(folder, "counts.json"), [part.source for part in pop.operator.loop.parts])
        self._noted = 0
        self._counted = -1  # the entry of the last counts that were noted at a public time
        self._stamps = True  # whether the next note of questions says which stamps lessons before it can have
        self._closed = 0  # where labels alone are protected: what the last snapshot had that was written at one
        self._over = False  # whether notes of questions may be needed no more
        self._life = self._keeper.tickets.life
        self._note_every = min(_COUNTED, self._life)
        self._lock = threading.RLock()
        self._sealed: str | None = None
        self._every, self._saved, self._unsaved = save_every, pop.rounds, False
        lives: Mapping[int, tuple[int, int]] = {book.epoch: (book.mark, pop.rounds)}
        self._began = self._snapshot = book.sequence
        if saved is not None:
            lives, self._snapshot = saved.spent.lives, saved.header["sequence"]
            try:
                recover(saved, self._keeper, self._requests, self._counts)
            except BaseException:
                self._older.close()
                raise
        self._lives = self._keeper.tickets.lives = lives
        self._keeper.tickets.held = self._requests.take
        parts = pop, self._keeper, book, self._requests, self._rows
        self._teacher = Teacher(*parts, self._requests.long, self._lock, self._check_and_expire)
        self._seen = private(pop, self._counts, self._requests.open, ())

    # ------------------------------------------------------------------ open and close

    @classmethod
    def open(
        cls,
        folder: str | Path,
        make: Callable[[], POP],
        *,
        name: str = "model",
        learner: Any = None,
        fallback: Any = None,
        trusted: bool = False,
        ledger: str | None = None,
        succeeds: Callable[[POP, str | None, str], object] | None = None,
        bank: Place | None = None,
        shared: Callable[[POP], POP] | None = None,
        **options: Unpack[DeskOptions],
    ) -> Self:
        """The desk of the model in a folder; a folder that is not there, or empty, gets the POP that `make()` gives.

        After a crash everything that was durable is there: copies from the snapshot, taught again what came since;
        open tickets; stored answers. `learner`, `fallback` and `trusted` are as for `POP.load`;
        `ledger` names a PostgreSQL server that has the ledger, where the model is then called `name`; `succeeds` saves
        a new POP there as another's successor (`POP.succeed`); `bank` is where loaded copies are to live; `shared`
        makes a fresh POP a partition's (`confide.pop.sharing`). The other options are those of `PopDesk`.

        Raises
        ------
        StateError
            If the state must not be used: another process owns it, it was rolled back, or it is damaged.
        """
        folder, model = Path(folder), MODEL if ledger is None else name
        shared = shared or (lambda pop: pop)
        if not exists(folder):
            if succeeds is None:
                clear(folder, ledger, model)
            pop = shared(make())
            pop.keep()  # before it is saved: the state says that all it learns is in a journal
            if succeeds is None:
                pop.save(folder, ledger=ledger, model=model)
            else:
                succeeds(pop, ledger, model)
            return cls(name, pop, folder, **options)
        with opened(folder, ledger, model) as saved:
            settings = saved.settings(learner, fallback)
            pop = shared(POP(settings.learner, settings.plan, **settings.options(), bank=bank)).resume(saved, trusted)
            return cls(name, pop, folder, saved, **options)

    @property
    def name(self) -> str:
        """The model's name, public."""
        return self._name

    @property
    def plan(self) -> Plan:
        """Every number of the run, public."""
        return self.pop.plan

    @property
    def ended(self) -> bool:
        """Whether nobody is answered any more, until the model is opened again (public)."""
        return self._sealed is not None or self._book.ended

    @property
    def life(self) -> Life:
        """What whoever opens the model after this desk must find in its ledger."""
        return self._book.epoch, self._book.mark, self._book.durable

    @property
    def waits(self) -> bool:
        """Whether the first question waits for the end of an import of history (public)."""
        return self._teacher.busy and self._keeper.rounds == 0

    def follows(self, life: Life) -> None:
        """Seal a model whose ledger does not know another desk's life, or not all of it: it was rolled back."""
        epoch, mark, durable = life
        if self._lives.get(epoch, (0, 0))[0] != mark or self._began < durable:
            self._seal()

    def limited(self, quota: int | None) -> Self:
        """Let nobody take more rounds than these in a day (public); what they took before counts too."""
        with self._lock:
            self._requests.quota.limit(quota)
        return self

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
            self._count()
            self.pop.save(self.folder)
            self._snapshot, self._saved, self._unsaved = self._book.sequence, self._keeper.rounds, False
            self._closed = self._keeper.leaf
            done = self._requests.learned(self._before(self._snapshot), self._leaves)
            if done is not None and self._book.sweep(tear={TAUGHT: done.sequence}):
                self._requests.swept(done)  # until then forgetting must find the lessons in them

    def beat(self) -> None:
        """Look whether the ledger is there; if not, the desk has ended: where nobody asks, no one else finds out."""
        self._book.beat()

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
                self.leave()

    def leave(self) -> None:
        """Give the model back as its journal has it, without a snapshot."""
        try:
            self.pop.close()
        finally:
            self._older.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._sealed is not None:
            raise StateError(self._sealed)

    def _begin(self) -> None:
        """Where no round is taken: as many are over as where one is, so that no call decides what others find."""
        with self._keeper.lock:
            self._keeper.begin()

    def _note_counts(self) -> None:
        """The operator's counts go into the journal, before what they were counted from is dropped or erased."""
        note = self._counts.note()
        self._keeper.note((COUNTED, len(note), note))
        if self._counts.sequence >= 0:
            self._book.tear(COUNTED, self._counts.sequence)
        self._counts.sequence = self._book.sequence

    def _count(self) -> None:
        """The same at a public time, from which on notes of questions before it may go."""
        self._note_counts()
        self._counted, self._noted, self._stamps = self._counts.sequence, self._keeper.rounds, True

    def _before(self, sequence: int) -> int:
        """Up to which entry notes may go, of which this one has all that matters."""
        return -1 if self._keeper.counting else sequence

    @property
    def _leaves(self) -> int:
        """From which stamp on lessons may be needed again: whether somebody was forgotten does not enter."""
        return self._keeper.leaf if self._alone is None else self._closed

    def _tear(self, most: int) -> None:
        """Drop a few notes of questions that are over."""
        keeper, before = self._keeper, self._before(self._counted)
        done = self._requests.outlived(keeper.rounds, before, self._book.durable, self._leaves, most)
        if done is not None:
            self._book.tear(ASKED, done)

    # ------------------------------------------------------------------ ask

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        """Answer these in order, as one group commit whose size depends on how many are new, and on nothing else.

        A request whose id is known, to the same subject, within a ticket's life, takes no round: it gets the stored
        answer; if its x is another one, a refusal. Nor does one of somebody whose rounds of the day are used up, which
        is refused whatever is in it.
        """
        requests, keeper = self._requests, self._keeper
        with self._lock:
            self._check()
            if self.waits:
                raise NotYet(FIRST)
            minute = int(self._wall() // 60)
            requests.age(self._book.durable)
            asked, most = requests.read(questions, minute), MOST + 2 * len(questions)
            fresh = requests.fresh(asked, minute)
            entered: Mark | None = None
            if fresh:
                entered = self._take(asked, fresh)
            else:
                self._begin()
            found = requests.found(asked)
            replies = requests.replies(asked, found)
            requests.dismiss()
            rounds = keeper.rounds
            self._over |= requests.expire(rounds, most)
            if self._over and entered is not None:  # else it would go with the next write, which may be a label's
                self._tear(most)
                self._over = False
            due = self._every is not None and rounds - self._saved >= self._every
        if entered is not None:
            keeper.settle(entered)
        else:
            self._book.wait(max((one.sequence for one in found if one is not None), default=0))
        if due:
            self._save_when_due()
        return replies

    def refused(self, questions: Sequence[Question]) -> Mapping[int, Reply]:
        """Those of one sender, by their places, that `ask` would refuse as it did before: their day is used up.

        It takes no lock and changes nothing. `ask` decides: whoever it did not refuse yet is not among them.
        """
        if not self._requests.quota.over or self.ended:
            return {}
        return self._requests.refused(questions, int(self._wall() // 60))

    def _check_and_expire(self) -> None:
        """The operator's history comes at times that are public."""
        self._check()
        self._begin()
        self._requests.expire(self._keeper.rounds)

    def _take(self, asked: Asking, fresh: Sequence[int]) -> Mark:
        """Take the rounds, and write them down with what came of each."""
        keeper, alone = self._keeper, self._alone
        noted, part = list[Columns](), asked.some(fresh)
        if keeper.rounds - self._noted >= self._note_every or self._counts.sequence < 0:
            self._count()  # also before the first: who is forgotten finds a note to be written anew

        def note(outcomes: Sequence[Outcome]) -> Note:
            stands = () if alone is None else self._stands(outcomes)
            noted.append(part.columns(outcomes, self._book.epoch, stands))
            return ASKED, self._rows.width, self._rows.body(noted[0])

        outcomes, entered = keeper.ask(part.together(), part.whose, note)
        (rows,) = noted
        waiting = [one.waiting if label >= 0 else None for one, label in zip(outcomes, rows.label, strict=True)]
        asked.wrong |= {i: str(one.error) for i, one in zip(fresh, outcomes, strict=True) if one.error is not None}
        shares = () if alone is None else [alone.told(one.waiting) for one in outcomes]
        stamp, self._stamps = keeper.stamp if self._stamps else None, False
        self._requests.asked(part, rows, waiting, entered.sequence, stamp, shares)
        took = rows if min(rows.number) > 0 else rows.some([i for i, number in enumerate(rows.number) if number > 0])
        self._counts.asked(took.number, took.source, keeper.unsure)
        if alone is not None:
            self._counts.awaited(took)
        return entered

    def _stands(self, outcomes: Sequence[Outcome]) -> list[int | None]:
        """What takes a copy's place in a question's row: with a deadline what stands for its label, or that none does.

        So a deadline writes nothing, in a round that is somebody else's, whether or not the label came before it.
        """
        assert self._alone is not None
        seen = [self._alone.seen(one.waiting) for one in outcomes]
        return [
            None if one is None or one.stands < 0 else PAST if one.past else STANDS - one.stands
            for one in seen
        ]  # fmt: skip

    # ------------------------------------------------------------------ labels

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """Take labels: each once, in time, from the ticket's holder; durable when this returns.

        The same label again, from the same holder, is acknowledged again, and nothing is learned: the first
        acknowledgement may have been lost on its way. Another label is refused; but where labels alone are protected
        nobody knows what was brought before, so that any label for a used ticket is acknowledged, and none is drawn.
        """
        with self._lock:
            self._check()
            self._begin()
            labels, keys = self._keeper.labels([one.label for one in lessons]), self._keys(lessons)
            unread = self._requests.recall(keys, self._keeper.rounds)
            said: list[Refusal | None] = [None] * len(lessons)
            fresh: dict[Key, int] = {}
            earlier, used, ticket, alone = 0, Counter[bytes](), self._requests.ticket, self._alone
            for i, (key, label) in enumerate(zip(keys, labels, strict=True)):
                stored = None if key is None else ticket(key)
                if key is None:
                    said[i] = Refusal("ticket", NOT_YOURS)
                elif label < 0:
                    said[i] = Refusal("label", NO_LABEL)
                elif key in unread:
                    said[i] = Refusal("later", UNREAD)
                elif stored is None:
                    said[i] = Refusal("ticket", GONE)
                else:
                    taught = stored.note.taught[stored.i]
                    if alone is None and (taught if taught >= 0 else fresh.get(key, label)) != label:
                        said[i] = Refusal("ticket", OTHER_LABEL)
                    elif taught >= 0:
                        earlier = max(earlier, stored.lesson)
                    elif key not in fresh:
                        if alone is not None and self._capped(stored, used):
                            said[i] = Refusal("label", CAPPED.format(f"{self.plan.promise.unit_labels:,}"))
                        else:
                            fresh[key] = label
            entered = None
            if fresh:
                refused, entered = self._take_labels(fresh)
                names = list(fresh) if refused else []
                wrong = {names[at]: Refusal("ticket", str(error)) for at, error in refused.items()}
                for i, key in enumerate(keys) if wrong else ():
                    if key in wrong and said[i] is None:
                        said[i] = wrong[key]
            self._requests.dismiss()
        return self._durable(said, entered, earlier)

    def _capped(self, stored: Stored, used: Counter[bytes]) -> bool:
        """Where labels alone are protected: whether one is past its person's cap, those of this call included."""
        if self._alone is None or self.pop.units != "people":
            return False
        if self._alone.part.deadline is not None:
            return stored.row.copy == PAST
        whose = stored.row.whose
        if self.pop.operator.loop.account.labels.get(whose, 0) + used[whose] >= self.plan.promise.unit_labels:
            self._alone.over += 1
            return True
        used[whose] += 1
        return False

    def not_theirs(self, lessons: Sequence[Taught]) -> Mapping[int, Refusal]:
        """Those, by their places, whose ticket is not their sender's: its signature tells that, without a lock."""
        if self.ended:
            return {}
        keys = self._read(lessons)
        return {i: Refusal("ticket", NOT_YOURS) for i, key in enumerate(keys) if key is None} if None in keys else {}

    def _read(self, lessons: Sequence[Taught]) -> list[Key | None]:
        """The rounds of their tickets; None for one that is not its sender's."""
        keeper, keys = self._keeper, list[Key | None]()
        for subject, some in groupby(lessons, attrgetter("subject")):
            keys += keeper.tickets.read_many([one.ticket for one in some], keeper.who(subject))
        return keys

    def _keys(self, lessons: Sequence[Taught]) -> list[Key | None]:
        """As `_read`; a ticket from beyond the ledger's end seals the model."""
        keys = self._read(lessons)
        signed = [(one.ticket, key) for one, key in zip(lessons, keys, strict=True) if key is not None]
        if self._keeper.tickets.any_lost(signed, self._keeper.rounds):
            self._seal()
        return keys

    def _seal(self) -> NoReturn:
        self._sealed = ROLLED_BACK
        self._keeper.settle(self._keeper.seal(ROLLED_BACK))
        raise StateError(ROLLED_BACK)

    def _take_labels(self, fresh: Mapping[Key, int]) -> tuple[dict[int, ValueError], Mark]:
        noted = list[Columns]()

        def note(taken: Sequence[Lesson]) -> Note:
            noted.append(rows := self._requests.lessons(taken))
            self._counts.labelled(rows, rows.guided)
            return TAUGHT, self._rows.width, self._rows.body(rows)

        refused, entered = self._keeper.learn(fresh.items(), note)
        self._requests.learned_now(noted[0], entered.sequence)
        return refused, entered

    def _durable(self, said: list[Refusal | None], entered: Mark | None, earlier: int) -> list[Refusal | None]:
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

    def teach(self, rows: Records, id: str | None = None) -> list[Refusal | None]:
        """All slices of `teaching`, one after the other."""
        return [one for part in self.teaching(rows, id) for one in part]

    def teaching(self, rows: Records, id: str | None = None) -> Slices:
        """History: labelled records (subject, x, label) that were never asked; a slice is durable when it comes.

        With an id, the same records again, within a ticket's life, are acknowledged again, and only those are taught
        that were not: the first acknowledgement may have been lost on its way. Other records are refused. Until the
        end the first question waits: what comes after it is no history any more (docs/proofs/guide.md).
        """
        if self._alone is not None and self._alone.part.deadline is not None:
            raise ValueError(NO_HISTORY)
        return self._teacher.slices(rows, id)

    # ------------------------------------------------------------------ forget

    def forget(self, subject: str) -> bool:
        """Reset the copy that knows this person; delete their stored questions, answers and lessons.

        For a ticket's life a keyed hash of each request stays, of person and id together: sent again, it takes no
        round, as if nobody had been forgotten. That somebody was is not public. `Later` if it could not be made
        durable: to be asked for again. The snapshot still holds the old copy until the next one is written.

        Where labels alone are protected what was randomized stays, in the model and so in a snapshot that is written
        first. Whether anything was stored or counted under this name: for the operator's eyes.
        """
        with self._lock:
            self._check()
            whose = self._keeper.who(subject)
            drawn = [] if self._alone is None else [one.key[1] for one in self._requests.of(whose)]
            gone = self._requests.forget(whose)
            self._look(gone)  # before anything is added, which would go with somebody else's write
            if self._alone is not None:
                self._save_first()
            if not self._counts.empty:  # before the first question its call alone notes them
                self._note_counts()
            known = bool(gone.erased) or self._keeper.knows(whose)
            erased = tuple((kind, at, who, tuple(map(head, left))) for kind, at, who, left in gone.erased)
            entered = self._keeper.forget(whose, erased)
            if self._alone is not None:
                self._alone.drop(drawn)
            self._requests.forgotten(gone)  # last: a call that is cut off before finds all of theirs again
        try:
            self._keeper.settle(entered, private=True)
        except StateError:
            if self._book.ended:
                raise
            raise Later(AGAIN) from None
        self._requests.check_done(gone)
        return known

    def _look(self, gone: Forgotten) -> None:
        """`Later` where a note cannot be read that is to be written over: else the next public write would end all."""
        try:
            for kind, at, *_ in gone.erased:
                if at <= self._book.durable:
                    self._book.look(kind, at)
        except StateError:
            if self._book.ended:
                raise
            raise Later(AGAIN) from None

    def _save_first(self) -> None:
        """A snapshot that has all that came out so far, before rows of the journal are erased.

        What is dropped from the journal, and when the next one is due, are as if it had not been written.
        """
        try:
            if not self._counts.empty:
                self._note_counts()
            self.pop.save(self.folder)
        except StateError:
            if self._book.ended:
                raise
            raise Later(AGAIN) from None

    # ------------------------------------------------------------------ what may be seen

    @property
    def moment(self) -> Hashable:
        """Another one whenever `public` shows something else: labels that come do not change it."""
        monitor, guide = self.pop.monitor, self.pop.guide
        estimate = None if monitor is None else monitor.estimate
        released = 0 if guide is None else guide.released
        return self.pop.rounds, self.pop.halt_reason, estimate, released, self._requests.quota.most

    def public(self) -> Mapping[str, Any]:
        """What everyone may see: guarantee, plan, labels, units, state, rounds, monitor, guide."""
        times = self._life, self._hours, self._requests.quota.most
        return public(self.name, self.pop, *times, self._rows.room)

    def private(self) -> Mapping[str, Any]:
        """For the operator's eyes: spent budget, shares by source, errors of labels that came, open tickets, alarms.

        Exact numbers, once they are durable: a crash takes none back. Where nothing can be, the last ones that were.
        """
        with self._lock:
            alarms = [] if self._sealed is None else [self._sealed]
            alarms += [UNWRITTEN] * self._book.ended + [UNSAVED] * self._unsaved + [UNSWEPT] * self._book.owes
            seen = private(self.pop, self._counts, self._requests.open, alarms)
        if self._kept():
            self._seen = seen
        return {**self._seen, "alarms": seen["alarms"]}

    def person(self, subject: str) -> Mapping[str, Any]:
        """For the operator's eyes: one person's rounds and shares, durable where anything can be."""
        with self._lock:
            whose = self._keeper.who(subject)
            seen = person(self.pop, whose, self._life, self._requests.of(whose))
        self._kept()
        return seen

    def _kept(self) -> bool:
        """Whether all that was done so far is durable now."""
        with contextlib.suppress(StateError):
            self._book.wait(self._book.sequence, private=True)
            return True
        return False
