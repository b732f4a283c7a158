"""What a run has spent: rounds, unsure answers, each unit's share of them, monitored rounds, the halt.

It is the only thing that must be durable. Every call writes one entry, whatever came of it, and the entry is on disk
before anything leaves (`Account.enter` under the loop's lock, `Account.settle` outside of it). So neither what is
written nor when tells anything but that there was a call. Proof pages: docs/proofs/halting.md (why the count is
private and what hides it), docs/proofs/people.md (shares, and what is durable).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from confide.ledger.book import Book, Entry
from confide.ledger.entries import Erased
from confide.ledger.ledger import Spent
from confide.planning.plan import Plan
from confide.pop.legs import Legs
from confide.pop.monitor import Estimate, MonitorState
from confide.privacy.counters import TreeCounter
from confide.privacy.gate import signed
from confide.privacy.halting import Halting, goes_on
from confide.privacy.random import Random
from confide.privacy.sparse import CounterBudget

__all__ = ["Account", "Mark"]


class Mark(NamedTuple):
    """What a call wrote down, and what others may see once that is durable."""

    sequence: int
    rounds: int
    halted: str | None
    legs: Legs | None = None
    latest: Estimate | None = None
    """What the monitor said then."""


class Account:
    """The spending of one run.

    Parameters
    ----------
    plan
        Its halting table, its rounds and its cap on a unit's unsure answers.
    rng
        For the paper's noisy counter; tables need none.
    """

    def __init__(self, plan: Plan, rng: Random) -> None:
        self.plan = plan
        self.rounds = 0
        """The round that is led, or was led last."""
        self.taken = 0
        """Rounds taken, no fewer: those of a call under way are, before anything of them is learned or released."""
        self.ends = False
        """Whether a halt ends the answers: then the rounds of a batch after it were never taken."""
        self.unsure = 0
        """Unsure answers counted: private."""
        self.shares: dict[bytes, int] = {}
        """Unsure answers of each person: private."""
        self.watched: dict[bytes, int] = {}
        """Rounds of each person that the monitor counts."""
        self.labels: dict[bytes, int] = {}
        """Labels of each person that public parts learned, or, by periods, a count of them (`Periods`): private."""
        self.history = 0
        """Rows of history taken (public)."""
        self.used: set[tuple[int, int]] = set()
        """Tickets that were used and are not yet written down: each before its label teaches anything."""
        self._named: set[bytes] = set()  # people whose labels are not yet written down
        self._most = plan.promise.unit_labels if plan.public else None
        self.periods = plan.promise.counted
        """How labels are counted by periods; None where a cap is for life."""
        self.halted: str | None = None
        self.legs = Legs(plan.eligible, plan.silent) if plan.relay else None
        """Where a relay stands; None for copies that halt for good."""
        self._over = 0  # unsure answers of the legs that are over: private
        self._entries: list[int | None] = [0, 0]  # those of this leg and the one before; None for one not yet written
        self.book: Book | None = None
        """Where it is durable, once the run has been saved."""
        self.monitor: MonitorState | None = None
        self.counter: TreeCounter | None = None
        """The paper's noisy counter; a table needs none."""
        if isinstance(plan.halting, CounterBudget):
            self.counter = TreeCounter(plan.halting.noise_epsilon, plan.rounds, 1, rng.spawn())
        self._early: set[bytes] = set()  # people whom entries would have named before there was a ledger
        self._asked: set[bytes] = set()  # people of rounds that are taken and not yet written down
        self._shown: tuple[int, str | None] | None = None  # where a halt that everybody may see has left it
        self._settled = 0  # rounds that are durable
        self.legs_shown = self.legs
        """Where a relay stands as far as that is durable: what others may see."""
        self._caller = 0  # the thread whose call is under way, or was cut off

    # ------------------------------------------------------------------ a round

    def open(self) -> bool:
        """Whether there is a round left; the run halts with its rounds."""
        if self.halted is None and self.rounds >= self.plan.horizon:
            self.halted = "rounds"
        return self.halted is None

    def begin(self, ends: bool = False) -> None:
        """A call begins. Rounds that the last one took, and did not come to because it was cut off, are over."""
        self.ends = ends
        if not (ends and self.halted is not None):
            self.rounds = self.taken

    def reserve(self, rounds: int, whos: Sequence[bytes | None]) -> None:
        """The next rounds are these units', and taken, whatever becomes of them; `take` leads through them."""
        self._caller = threading.get_ident()
        if whos:
            self._asked.update([who for who in whos if who is not None])
        if self.rounds + rounds > self.taken:
            self.taken = self.rounds + rounds

    def take(self, rounds: int = 1) -> int:
        """Lead so many rounds, which are taken if they are not yet; the number of the last one."""
        number = self.rounds + rounds
        if number > self.taken:
            self.taken = number
        self.rounds = number
        return number

    @property
    def stated(self) -> int:
        """The rounds that are written down: all that are taken, or, where a halt ends the answers, those that were led.

        There nothing runs ahead of the round that is led, and what comes after a halt was never begun.
        """
        return self.rounds if self.ends else self.taken

    @property
    def count(self) -> int:
        """Unsure answers that the halting gate counts: of a relay those of the leg. Private."""
        return self.unsure - self._over

    def capped(self, who: bytes | None) -> bool:
        """Whether this unit has had all the unsure answers it may receive."""
        return who is not None and self.shares.get(who, 0) >= self.plan.unit_unsure

    def spend(self, who: bytes | None, counted: bool, word: int) -> None:
        """Count a live round's outcome, and make the halting draw: in every live round, whatever happened in it."""
        if counted:
            self.unsure += 1
            if who is not None:
                self.shares[who] = self.shares.get(who, 0) + 1
        halting = self.plan.halting
        if isinstance(halting, Halting):
            # A leg that has come to the table's end has it no more certain: who waits for one must not find a cliff.
            at = self.count if self.legs is None else min(self.count, halting.visible)
            fires = not goes_on(signed(word), halting.go, at)
        else:
            assert self.counter is not None and halting is not None
            fires = self.counter.step(int(counted)) >= halting.limit
        if self.legs is None:
            self.halted = "budget" if fires else self.halted
        elif fires or self.rounds >= self.legs.start + self.plan.live:
            self._swap(self.legs)

    def _swap(self, legs: Legs) -> None:
        """A leg is over: the count begins anew, and with the next entry that is on the disk."""
        self.legs, self._over = legs.swapped(self.rounds, self.plan.silent), self.unsure
        self._entries = [None, self._entries[0]]

    def keeps(self, copy: int, number: int, sequence: int = 0) -> bool:
        """Whether a label of this round may teach its copy: of a relay's not after it was reset (public).

        A record of history has no round, and is known by the entry it is in.
        """
        if self.legs is None:
            return True
        if number > 0:
            return self.legs.keeps(copy, number)
        return sequence > (self._entries[copy in self.legs.voters] or 0)

    def watch(self, who: bytes, most: int) -> bool:
        """Whether the monitor counts this round of a person: their first ones, for life."""
        used = self.watched.get(who, 0)
        if used >= most:
            return False
        self.watched[who] = used + 1
        return True

    def learns(self, who: bytes | None, number: int | None = None) -> bool:
        """Whether one more label of this unit may be learned; if so, it is counted. A round has but one.

        `number` is the round in which it comes: the one that is led, or another one of a batch.
        """
        if who is None or self._most is None:
            return True
        self._named.add(who)  # also past the cap: the form of what is written must not tell
        used = self.labels.get(who, 0)
        more: int | None = used + 1 if used < self._most else None
        if self.periods is not None:
            more = self.periods.one_more(used, self.periods.at(self.rounds if number is None else number))
        if more is not None:
            self.labels[who] = more
        return more is not None

    @property
    def most(self) -> int | None:
        """Labels of one person that teach, in all their life (public); None where there is no such number."""
        return None if self.periods is not None else self._most

    def learned(self, who: bytes) -> int:
        """Labels of a person that count as learned: private."""
        count = self.labels.get(who, 0)
        return count if self.periods is None else self.periods.taught(count)

    def past(self, number: int) -> bool:
        """Whether the period of a round is over: then a label of it teaches nothing (public)."""
        return self.periods is not None and self.periods.at(number) != self.periods.at(self.rounds)

    def barred(self, who: bytes | None) -> bool:
        """Whether earlier models have left this unit nothing at all: then no row of theirs is counted either."""
        if who is None or self._most is None or self.periods is not None:  # by periods there are no earlier models
            return False
        return self.labels.get(who, 0) > self._most

    def name(self, whos: Iterable[bytes | None]) -> None:
        """The next entry says how many labels were learned of each of these, whether or not there were any."""
        if self._most is not None:
            self._named.update(who for who in whos if who is not None)

    def named(self) -> None:
        """The ledger has everybody who was named so far: no entry, which may be a private call's, says it again."""
        self._named.clear()

    # ------------------------------------------------------------------ durable, then seen

    def enter(
        self,
        *whos: bytes | None,
        noted: Collection[tuple[int, int]] = (),
        forgot: tuple[tuple[int, bytes], ...] = (),
        released: tuple[tuple[str, int, bytes, bytes], ...] = (),
        dropped: tuple[tuple[str, int], ...] = (),
        notes: tuple[tuple[str, int, bytes], ...] = (),
        erased: tuple[Erased, ...] = (),
        sealed: str | None = None,
    ) -> Mark:
        """Write down what a call of these units spent. Its form depends on who called, not on what came of it.

        Every entry has the tickets that were used, a release's too: a sum never leaves before the mark of a label in
        it. Those that the call's own notes name (`noted`) are left out.
        """
        sequence, rounds, named = 0, self.stated, self._named
        people: Collection[bytes] = () if released else self._asked
        if whos or people:
            people = sorted({who for who in whos if who is not None}.union(people))
            named = named.union(people) if self._most is not None else named
        if self.book is None:
            if named:
                self._early |= named
        else:
            legs = self._written()
            dropped = (*dropped, *((kind, number) for kind, number, *_ in legs))  # earlier ones are needless
            entry = Entry(
                rounds=rounds,
                unsure=self.unsure,
                halted=self.halted,
                shares=tuple((who, self.shares.get(who, 0)) for who in people),
                watched=tuple((who, self.watched.get(who, 0)) for who in people),
                used=tuple(sorted(self.used.difference(noted))),
                forgot=forgot,
                labels=tuple((who, self.labels.get(who, 0)) for who in sorted(named)),
                history=self.history,
                released=(*released, *legs),
                dropped=dropped,
                notes=notes,
                erased=erased,
                sealed=sealed,
            )
            sequence = self.book.add(entry)
        if self._named:
            self._named.clear()
        if self.used:
            self.used.clear()
        if people and not released:  # which is in the midst of a call
            self._asked.clear()
        return Mark(sequence, rounds, self.halted, self.legs, None if self.monitor is None else self.monitor.latest)

    def _written(self) -> tuple[tuple[str, int, bytes, bytes], ...]:
        """The row of a relay's leg, for the next entry, whether or not a leg began since the last one."""
        if self.legs is None or self.book is None:
            return ()
        now = self.book.sequence + 1
        entries = [now if one is None else one for one in self._entries]
        self._entries = [*entries]
        return (self.legs.row(now, self._over, entries),)

    def settle(self, mark: Mark, *, private: bool = False) -> None:
        """Durable when it returns, and then for everybody to see; a failure is raised, from then on to all alike.

        Of a `private` call (that somebody brought a label, or wants to be forgotten, is nobody else's business) a
        failure is raised to its caller alone: what it wrote goes out with the next public call.
        """
        if self.book is not None:
            self.book.wait(mark.sequence, private=private)
        _, rounds, halted, legs, latest = mark
        if rounds > self._settled:
            self._settled = rounds
        if halted is not None and self._shown is None:
            self._shown = rounds, halted
        if legs is not None and (self.legs_shown is None or legs.number > self.legs_shown.number):
            self.legs_shown = legs
        if self.monitor is not None:
            self.monitor.show(latest)
        self._caller = 0

    @property
    def shown(self) -> tuple[int, str | None]:
        """Rounds taken, as soon as they are, and why the run halted, as soon as that is durable: what others may see.

        That rounds are taken is public before anything of them is: who goes on after them teaches no row twice. Where a
        halt ends the answers it ends the rounds too, so others see these when they are durable.
        """
        if self._shown is not None:
            return self._shown[0] if self.ends else self.taken, self._shown[1]
        early = self.book is None or not self.ends or self._caller == threading.get_ident()
        return self.taken if early else self._settled, None

    @property
    def spent(self) -> Spent:
        """What was spent so far, for a ledger that begins now; what parts released is not in it.

        It has everybody whom entries would have named: of whom nothing else was counted, a row may have been.
        """
        labels, history = dict.fromkeys(self._early | self._named, 0) | self.labels, self.history
        spent = Spent(self.stated, self.unsure, self.halted, self.shares, self.watched, labels=labels, history=history)
        return spent if self.legs is None else replace(spent, released=(self.legs.row(0, self._over, (0, 0)),))

    def keep(self, book: Book) -> None:
        """From now on everything is written there, which has `spent`."""
        self.book, self._entries = book, [0, 0]

    def restore(self, spent: Spent) -> None:
        """Go on from what a ledger says."""
        self.rounds, self.unsure, self.halted = spent.rounds, spent.unsure, spent.halted
        self.taken = self.rounds
        self.shares, self.watched = dict(spent.shares), dict(spent.watched)
        self.labels, self.history = dict(spent.labels), spent.history
        self._settled, self._shown = self.rounds, None if self.halted is None else (self.rounds, self.halted)
        if self.legs is not None:
            self.legs, self._over, entries = Legs.read(self.legs.half, spent.released)
            self.legs_shown, self._entries = self.legs, [*entries]
