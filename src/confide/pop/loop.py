"""The loop: many copies of a learner, a gated vote, each label taught to one copy. To be read beside the proofs.

    x → routing (whose copy) → parts.answer(x) → bank.votes(x, poll) → counts → gate → the top label, or, unsure, what
      the lean draws from votes and score, or a public part's, or the fallback's → account (count, share, halting draw)
      → ticket
    later: (ticket, y) → the unit's one copy learns, and so do the public parts

What is drawn in a round is a function of the plan and of public rounds alone: the copy, the poll, the gate's word, the
lean's, the halting word, the fallback's coin, used or not. After a halt the copies take no part any more; of a relay
the other half goes on. Claims and proofs: docs/proofs/gate.md, docs/proofs/halting.md, docs/proofs/people.md,
docs/proofs/guide.md, docs/proofs/lean.md, docs/proofs/relay.md. Whole chunks of rounds, compiled:
`confide.banks.rounds`; both agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats, Ints
from confide.banks.base import NONE, Bank, Failures
from confide.contained import by_signal, contained
from confide.planning.plan import Plan
from confide.pop.account import Account
from confide.pop.base import COPIES, FALLBACK, LEAN
from confide.pop.fallback import Fallback
from confide.pop.guiding import Guiding
from confide.pop.leaning import Leaning
from confide.pop.lessons import NEVER_LATE, Late, Lesson, Lessons
from confide.pop.monitor import MonitorState
from confide.pop.routing import Routing
from confide.pop.several import Parts, tried
from confide.pop.succession import Line
from confide.pop.tickets import Key, Tickets, Waiting
from confide.privacy.random import Random
from confide.text import Embedding

__all__ = ["NOTHING", "SILENCE", "Loop", "Outcome", "Scores", "merged", "merged_rows"]

Scores = Floats | None
"""The public scores of a row; None where there are none."""

NOTHING = -1
"""No label, no copy."""

_NAMED = 8  # labels that are shown

SILENCE = (NOTHING, FALLBACK)
"""What a live round gives when neither copies nor lean answer."""


@dataclass(slots=True, repr=False)
class Outcome:
    """What came of one round, for its asker."""

    label: int
    """The number of the label shown; −1 where there is none."""
    sure: bool = False
    ticket: str = ""
    error: BaseException | None = None
    """What its asker is told instead of an answer."""
    source: int = FALLBACK
    guided: int = NOTHING
    """The public parts' own answer."""
    number: int = 0
    """The round that it took."""
    waiting: Waiting | None = None
    """What waits for the label."""


@dataclass(repr=False)
class Loop:
    """The parts of a running POP, and the rounds they take together. One thread at a time: POP holds the lock."""

    plan: Plan
    index: Mapping[Hashable, int]
    """The labels' numbers."""
    rng: Random
    bank: Bank
    account: Account
    tickets: Tickets
    routing: Routing
    fallback: Fallback
    lessons: Lessons
    monitor: MonitorState | None = None
    last: Ints | None = None
    """Vote counts of the last live round: private."""
    parts: Parts = field(default_factory=Parts)
    """What works on what was released alone."""
    goes_on: bool = True
    """Whether questions are answered after a halt."""
    leaning: Leaning | None = None
    """The gate, with its lean; None where there are no copies."""
    lost: Failures = NONE
    """What failed in an earlier life, and where a bank failed as a whole: private."""
    encoders: tuple[Embedding, ...] = ()
    """What makes vectors of texts, and counts where it fails."""
    line: Line | None = None
    """What is promised over this model and those before it; None where it is the first."""
    late: Late = NEVER_LATE
    """Labels that came too late in this life: private."""
    leg: int = 0
    """The leg of a relay that the bank's copies are in."""

    def __post_init__(self) -> None:
        self.account.monitor = self.monitor
        self.lost = self.lost.less(self._unread)  # what they did for others before

    # ------------------------------------------------------------------ a question

    def reserve(self, whos: Sequence[bytes | None]) -> None:
        """Take the rounds of a batch before anything of it is learned or released: all, or as many as are left."""
        left = len(whos) if self.goes_on else max(0, self.plan.horizon - self.account.rounds)
        self.account.reserve(min(len(whos), left), self.people(whos))

    def people(self, whos: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Those of a batch's units that are people: rounds have no names, and there may be millions of them."""
        return whos if self.routing.units == "people" else ()

    def ask(self, x: Any, who: bytes | None) -> Outcome:
        """Take one round, whatever x is; the caller has made sure that there is one left, or that it goes on."""
        account, plan = self.account, self.plan
        account.reserve(1, () if who is None else (who,))
        number = account.take()
        # By the public schedule, so it is settled before x is looked at.
        watched = self.monitor is not None and self.watch(who)
        self.tickets.expire(number)
        copy, encoded, error, voting = NOTHING, None, None, False
        if plan.copies:
            self.lessons.apply()
            voting = account.halted is None
            copy = self.copy_for(who, number) if voting else NOTHING
            encoded, error = self.encode(x)
        guided, own, scores, lessons, error = self.parts.ask(x, who, error)
        live = voting and number > (plan.silent if account.legs is None else account.legs.start)
        answer = self.live(encoded, error is not None, who, scores) if live else SILENCE
        given = self.fallback.answer(x)  # which is asked also where it is not needed
        shown, source = merged(answer, (guided, own), given)
        if error is None and isinstance(shown, ValueError):
            error = shown
        if error is not None or not isinstance(shown, int):
            self.tickets.issue(number, None)
            return Outcome(NOTHING, error=error, number=number)
        waiting = Waiting(copy, encoded, shown, watched, who, lessons)
        ticket = self.tickets.issue(number, waiting)
        return Outcome(shown, source == COPIES, ticket, None, source, guided, number, waiting)

    @property
    def guiding(self) -> Guiding | None:
        """The guide among the parts."""
        return self.parts.get(Guiding)

    @property
    def voting(self) -> bool:
        """Whether the copies take part in rounds: until the halt, of which everyone may know."""
        return self.account.halted is None and self.plan.copies > 0

    @property
    def quiet(self) -> int:
        """The last round in which the copies are silent, so far (public)."""
        return self.plan.silent if self.account.legs is None else self.account.legs.start

    def copy_for(self, who: bytes | None, number: int) -> int:
        """The copy that learns what is asked in this round, or taught before it."""
        copy, legs = self.routing.copy_for(who), self.account.legs
        return copy if legs is None else copy + legs.learners(number).start

    def first_of(self, number: int) -> int:
        """The first copy of those that learn in this round: 0, or a relay's learners' (public)."""
        return 0 if self.account.legs is None else self.account.legs.learners(number).start

    def renew(self) -> None:
        """Reset the copies of a relay whose leg is over, before they are asked or taught anything: once a leg.

        Whoever is cut off meanwhile does so again.
        """
        legs = self.account.legs
        if legs is not None and self.leg != legs.number:
            self.bank.reset(legs.renewed(self.leg))
            self.leg = legs.number

    def encode(self, x: Any) -> tuple[Any, BaseException | None]:
        """x for the copies, or what is wrong with it: whatever x does, its round goes on as any other."""
        return tried(self.bank.encode, x)

    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Scores) -> tuple[int, int]:
        """Poll, gate, lean, count, halting draw; the copies' answer or the lean's and which it is, or −1."""
        account, leaning, word = self.account, self.leaning, self.rng.word
        assert leaning is not None
        poll = self.poll()
        gate_word = word()
        lean_word = 0 if self.plan.lean is None else word()
        halting_word = word()
        counts = self.unread() if malformed else self.votes(x, poll)
        if self.silent:
            return SILENCE
        top, _, sure, leaned = leaning.decide(counts, gate_word, lean_word, leaning.offsets_of(scores))
        self.last = counts
        capped = who is not None and account.capped(who)
        account.spend(who, not (sure or malformed or capped), halting_word)
        if account.legs is not None:
            self.renew()
        if malformed or capped:  # only what is charged may lean
            return SILENCE
        return (top, COPIES) if sure else (leaned, LEAN)

    def votes(self, x: Any, poll: Ints | None) -> Ints:
        """The poll's votes, or all copies'; a bank that fails as a whole, which none should, has abstained."""
        bank: Any = self.bank
        with contained:
            counts: Ints = bank.tally(x) if poll is None else bank.votes(x, poll)
            return counts
        asked = self.plan.copies if poll is None else len(poll)
        self.lost = self.lost.plus(Failures(asked, asked))
        return np.zeros(self.plan.labels, dtype=np.int64)

    def unread(self) -> Ints:
        """Nobody's votes, on a row that cannot be read: copies that live elsewhere hear of its round all the same."""
        with contained:
            getattr(self.bank, "heed", int)()
        return np.zeros(self.plan.labels, dtype=np.int64)

    @property
    def silent(self) -> bool:
        """Whether copies are missing (public): then no vote is counted or charged, and all words are thrown away."""
        return bool(getattr(self.bank, "silent", False))

    @property
    def failures(self) -> Failures:
        """How often learners failed: private, for the operator."""
        counted: Failures = getattr(self.bank, "failures", NONE)
        return self.lost.plus(counted).plus(self._unread).plus(Failures(lessons=self.lessons.failed))

    @property
    def _unread(self) -> Failures:
        return Failures(texts=sum(one.asked for one in self.encoders), unread=sum(one.failed for one in self.encoders))

    def poll(self) -> Ints | None:
        """The copies asked in this round: a fresh random subset, or all; None for all of a bank that tallies."""
        plan, legs = self.plan, self.account.legs
        first = 0 if legs is None else legs.voters.start
        if plan.polls < plan.eligible:
            chosen = self.rng.subset(plan.eligible, plan.polls)
            return chosen + first if first else chosen
        return None if self.tallies else np.arange(plan.eligible) + first

    @property
    def tallies(self) -> bool:
        """Whether all copies are asked, and the bank keeps their votes counted."""
        return self.plan.polls == self.plan.copies and hasattr(self.bank, "tally")

    def watch(self, who: bytes | None, number: int | None = None) -> bool:
        """The monitor's tick; whether it counts this round."""
        if self.monitor is None or (self.account.rounds if number is None else number) > self.plan.horizon:
            return False
        self.monitor.asked()
        return who is None or self.account.watch(who, self.monitor.rounds_per_unit)

    # ------------------------------------------------------------------ a label

    def learn(self, key: Key, label: int) -> Lesson:
        """A label comes, with the key of its ticket: its unit's one copy will learn it, and so will the public parts.

        The ticket is marked as used first, whatever cuts off the rest.
        """
        waiting, label, teaches = self._receive(key, label)
        if teaches:
            self._miss((key[1],))
        leaf = self.parts.teach(waiting.questions, label, waiting.who) if teaches else NOTHING
        return Lesson(key, waiting, label, leaf)

    def learn_many(self, labels: Collection[tuple[Key, int]]) -> tuple[list[Lesson], dict[int, ValueError]]:
        """`learn` of each; by place, what is wrong with those that were not taken."""
        taken: list[Lesson] = []
        came: list[tuple[Key, Waiting, int, bool]] = []
        refused: dict[int, ValueError] = {}
        together = len(labels) > 1 and self.parts.plain and type(self).learn is Loop.learn
        for i, (key, label) in enumerate(labels):
            try:
                if together:
                    came.append((key, *self._receive(key, label)))
                else:
                    taken.append(self.learn(key, label))
            except ValueError as error:
                if by_signal(error):
                    raise
                refused[i] = error.with_traceback(None)  # whose calls hold the label
        if not together:
            return taken, refused
        taught = [one for one in came if one[3]]
        if taught:
            self._miss([key[1] for key, *_ in taught])
        lessons = [(waiting.questions, label, waiting.who) for _, waiting, label, _ in taught]
        leaves = iter(self.parts.teach_many(lessons) if lessons else ())
        taken += [
            Lesson(key, waiting, label, next(leaves) if teaches else NOTHING) for key, waiting, label, teaches in came
        ]
        return taken, refused

    def _receive(self, key: Key, label: int) -> tuple[Waiting, int, bool]:
        """A label comes: whose question it answers, what is taken of it, and whether the public parts learn that."""
        waiting = self.tickets.take(key, self.account.rounds)
        self.account.used.add(key)
        label = self.parts.receive(label, waiting.who)
        if self.monitor is not None and waiting.counted and label != waiting.answered:
            self.monitor.wrong(self.account.rounds - key[1])
        if waiting.copy >= 0:
            if self.account.keeps(waiting.copy, key[1]):
                self.lessons.add(waiting.copy, waiting.x, label)
            else:
                self.late = self.late.one_anew()
        if self.account.past(key[1]):
            self.late = self.late.one_past()
            self.account.name((waiting.who,))
            return waiting, label, False
        return waiting, label, True

    def _miss(self, numbers: Sequence[int]) -> None:
        """Count those labels of these rounds that come too late to teach anything (public)."""
        over = self.account.halted is not None or self.account.rounds >= self.plan.horizon
        if self.plan.copies and not over:
            return
        for number, missed in zip(numbers, self.parts.missed_many(numbers), strict=True):
            if missed and not (self.plan.copies and number == self.account.rounds):
                self.late = self.late.plus(self.account.rounds, number)

    def teach(self, x: Any, y: Hashable, who: bytes | None) -> None:
        """A labelled record that was never asked, for its unit's one copy. Its copy is drawn whatever x is.

        That a call was cut off is known wherever it was: one that was refused has come to its end.
        """
        self.parts.teaching()
        try:
            self._teach(x, y, who)
        except ValueError as error:
            if not by_signal(error):
                self.parts.taught()
            raise

    def _teach(self, x: Any, y: Hashable, who: bytes | None) -> None:
        copy = self.copy_for(who, self.account.rounds + 1) if self.plan.copies else NOTHING
        encoded, malformed = self.encode(x)
        malformed = self.parts.check(x) if malformed is None else malformed
        label = self.parts.receive(self.label(y), who)
        if malformed is not None:
            try:
                raise malformed
            finally:
                del malformed  # which would hold this call, and so the label, until cycles are looked for
        if copy >= 0:
            self.lessons.add(copy, encoded, label)
        self.parts.teach_one(x, label, who)

    def label(self, y: Hashable) -> int:
        """The number of a label."""
        try:
            return self.index[y]
        except BaseException as error:  # whatever y does when it is looked up, it is its bringer's alone
            if by_signal(error):
                raise
        some = ", ".join(map(repr, [*self.index][:_NAMED])) + (", …" if len(self.index) > _NAMED else "")
        raise ValueError(f"this is not one of the labels that it was made with, labels=[{some}]: they are fixed")

    def forget(self, who: bytes) -> int:
        """Reset the copy that knows this person and drop their open questions; the copy's number.

        What the guide learned of them is in noisy sums that were released: no one can take it out again.
        """
        copy = self.routing.copy_for(who) if self.plan.copies else 0
        self.lessons.apply()
        self.bank.reset([copy] if self.plan.copies else [])
        self.tickets.drop(who)
        self.parts.forget(who)
        return copy


def merged(copies: tuple[int, int], public: tuple[int, int], fallback: Any) -> tuple[Any, int]:
    """Who answers: the copies, or their lean, whichever `copies` has; else the first public part; else the fallback.

    Each is a label and the number of its source, −1 for none. For rows of a chunk `merged_rows` has the same rule.
    """
    if copies[0] >= 0:
        return copies
    return public if public[0] >= 0 else (fallback, FALLBACK)


def merged_rows(ways: Sequence[tuple[Ints, Any]], fallback: Ints) -> tuple[Ints, NDArray[np.int8]]:
    """For each row the first of the ways (labels and sources by row, −1 for none), else the fallback's."""
    shown, source = fallback, np.full(len(fallback), FALLBACK, dtype=np.int8)
    for labels, sources in reversed(ways):
        some = labels >= 0
        shown, source = np.where(some, labels, shown), np.where(some, sources, source)
    return shown, source.astype(np.int8, copy=False)
