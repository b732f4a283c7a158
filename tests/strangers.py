"""Five POPs, each broken on purpose by one plausible mistake. `MAKERS` has them by name: (make, people)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from confide import POP, Monitor
from confide.learners import GaussianNB, LogisticRegression, Perceptron
from confide.pop.account import Account
from confide.pop.base import FALLBACK
from confide.pop.loop import Loop, Outcome
from confide.pop.routing import Routing
from confide.pop.tickets import Waiting
from confide.privacy.gate import is_sure, lead
from tests.worlds import small_plan

LABELS = ["no", "yes"]


# ---------------------------------------------------------------------- 1: the gate reads a share of the turnout


class TurnoutLoop(Loop):
    """Copies that abstain should not count against an answer: the margin is taken as a share of those who voted."""

    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Any) -> tuple[int, int]:
        plan = self.plan
        poll = self.poll()
        gate_word, halting_word = self.rng.word(), self.rng.word()
        counts = np.zeros(plan.labels, dtype=np.int64) if malformed else self.votes(x, poll)
        top, margin = lead(counts)
        voted = int(counts.sum())
        if voted:  # three of three is as good as twelve of twelve
            margin = int(margin) * plan.polls // voted
        sure = bool(is_sure(np.uint64(gate_word), plan.gate.sure, margin))
        self.last = counts
        capped = self.account.capped(who)
        self.account.spend(who, not (sure or malformed or capped), halting_word)
        return (top, 3) if sure and not (malformed or capped) else (-1, 0)


class TurnoutPOP(POP):
    loop_type = TurnoutLoop


def make_1(rng: Any) -> POP:
    """Turnout: one vote moves the margin that the gate reads by up to all of the poll.

    What leaks: one unit's label (and whether it brought one). To whom: anybody who asks while few copies vote: at the
    start, or where most copies abstain. The copies, the counts (`loop.last`), the words drawn and every count of
    unsure answers are those of the true loop; only the number that is compared with the gate's table is not: from
    (0, 0) to (0, 1) it goes from 0 to 12, from (1, 0) to (1, 1) from 12 to 0, where a vote may move it by 1 (or 2).
    Attack: let nobody label anything in the silent rounds but the victim, then ask the victim's x: with probability
    0.64 (a true POP: 10⁻⁶, the bad event) the answer is sure and is the victim's label. Or teach one copy "yes",
    and ask: sure with 0.64 if the victim said yes or nothing, with 10⁻⁶ if it said no.
    """
    return TurnoutPOP(LogisticRegression(), small_plan(), labels=LABELS, features=2, units="rounds", seed=rng)


# ---------------------------------------------------------------------- 2: shares are added up when they are written


class LateAccount(Account):
    """Shares are what the ledger's entry says, so they are added up where it is made: once for each call."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._owed: list[bytes] = []

    def spend(self, who: bytes | None, counted: bool, word: int) -> None:
        super().spend(None, counted, word)
        if counted and who is not None:
            self._owed.append(who)

    def enter(self, *whos: bytes | None, **more: Any) -> Any:
        owed, self._owed = self._owed, []
        for who in owed:
            self.shares[who] = self.shares.get(who, 0) + 1
        return super().enter(*whos, **more)


class OwnLoop(Loop):
    """Asked row by row, also in batches."""


class LatePOP(POP):
    loop_type = OwnLoop

    def _make_loop(self, settings: Any, rng: Any, bank: Any) -> Loop:
        loop = super()._make_loop(settings, rng, bank)
        loop.account = LateAccount(settings.plan, rng)
        return loop


def make_2(rng: Any) -> POP:
    """Late shares: the cap on a person's unsure answers does not hold within one predict_many (or follow_many).

    What leaks: what one person asked (whether the copies agree about their questions), through the private count, to
    everybody: by the time of the halt, and by `state`. One at a time all is as it should be; every draw is made, every
    share is in the ledger in the end. But within a batch `capped` sees the share from before the batch, so m rows of a
    person add up to m to the count, not G = 2, and the two worlds' counts may be m apart. Attack: the victim sends its
    200 rows in one batch, clear ones (the copies agree: most are sure) or doubtful ones (none is). Afterwards the count
    is some 75 or 190: the POP has halted, or goes on for a hundred unsure answers of others.
    """
    return LatePOP(
        LogisticRegression(), small_plan(unit_unsure=2), labels=LABELS, features=2, units="people", seed=rng
    )


# ---------------------------------------------------------------------- 3: votes are remembered, almost correctly


class MemoLoop(Loop):
    """Questions repeat and votes are dear: they are kept until the copies change."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._memo: dict[bytes, Any] = {}

    def votes(self, x: Any, poll: Any) -> Any:
        key = x.tobytes() + poll.tobytes()
        if key not in self._memo:
            self._memo[key] = super().votes(x, poll)
        return self._memo[key].copy()

    def learn(self, ticket: str, y: Any) -> Any:
        self._memo.clear()
        return super().learn(ticket, y)

    def teach(self, x: Any, y: Any, who: bytes | None) -> None:
        self._memo.clear()
        super().teach(x, y, who)

    def forget(self, who: bytes) -> int:
        self._memo.clear()
        return super().forget(who)


class MemoPOP(POP):
    loop_type = MemoLoop


def make_3(rng: Any) -> POP:
    """Memo: votes are kept until a label, a record or a request to be forgotten comes; teach_many passes by all three.

    What leaks: which x one unit asked, and whether it brought a label, to whoever asks the same x later. `teach_many`
    goes from confide.pop.batches straight to the lessons, and does not empty the memo. So after a bulk of history
    an x that somebody asked before is answered by the old votes, and one that nobody asked by the new ones: all copies'
    votes at once. The bank is right at every moment, as is every draw. Attack (asked): in a live round the victim
    asks x or does not. Then teach_many a history that is "yes" around x, enough for every copy, and ask x: sure
    "yes" about every second time if nobody had asked it, never if the victim had. Attack (labelled): ask z yourself,
    the victim brings its label or does not, teach_many, ask z: the label emptied the memo, or it did not.
    """
    return MemoPOP(GaussianNB(), small_plan(), labels=LABELS, features=2, units="rounds", seed=rng)


# ---------------------------------------------------------------------- 4: a seat for everybody, in order of arrival


class SeatRouting(Routing):
    """Hashing leaves some copies empty and others crowded: newcomers take the copies in turn, in a secret order."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._order = sorted(range(self.copies), key=lambda copy: blake2b(b"%d" % copy, key=self.secret[:32]).digest())
        self._seats: dict[bytes, int] = {}

    def copy_for(self, who: bytes | None) -> int:
        if who is None:
            return super().copy_for(None)
        if who not in self._seats:
            self._seats[who] = self._order[len(self._seats) % self.copies]
        return self._seats[who]


class SeatPOP(POP):
    def _make_loop(self, settings: Any, rng: Any, bank: Any) -> Loop:
        loop = super()._make_loop(settings, rng, bank)
        loop.routing = SeatRouting(settings.units, settings.plan.copies, rng, loop.routing.secret)
        return loop


def make_4(rng: Any) -> POP:
    """Seats: a person's copy is fixed at first contact, and whether there was one yet is private.

    What leaks: that (and when) one person taught history, or asked to be forgotten, before their first question, to the
    people who come after: they sit one copy further, all of them, for life. Each person still has one copy for ever,
    and where it is looks at no data; asking is public, so seats taken by asking are as well; but `teach`,
    `teach_many` and `forget` take a seat too. So many copies differ between the worlds, not one. The plain Loop
    runs, fused where it can. Who comes after all of them is only turned by one seat, which nobody sees: it takes
    people before and after. Attack: twelve people come, e0 … e11; those with an even number teach "no" about z, the
    others "yes". Then the victim teaches a record, or does not. Then l0 … l11 come; the even ones teach "yes" about
    z, over and over. Without the victim they sit with the even e's, and all twelve copies say "yes": sure with 0.64.
    With it they sit with the odd ones, and it is six to six: never. (A load forgets the seats; that is not the leak
    that is meant here.)
    """
    return SeatPOP(Perceptron(), small_plan(unit_unsure=2), labels=LABELS, features=2, units="people", seed=rng)


# ---------------------------------------------------------------------- 5: the monitor looks at the copies' answers


class CopiesMonitoredLoop(Loop):
    """The monitor shall tell how good the copies are, not the coin: a person's first c rounds that they answered."""

    def ask(self, x: Any, who: bytes | None) -> Outcome:
        number = self.account.take()
        if self.monitor is not None:
            self.monitor.asked()
        self.tickets.expire(number)
        self.lessons.apply()
        copy = self.routing.copy_for(who)
        encoded, malformed = self.encode(x)
        said, by = self.live(encoded, malformed is not None, who, None) if number > self.plan.silent else (-1, 0)
        label = None if said < 0 else said
        watched = label is not None and self.watch(who)
        other = self.fallback.answer(x)
        shown = other if label is None else label
        error = malformed if malformed is not None else shown if isinstance(shown, ValueError) else None
        if error is not None or not isinstance(shown, int):
            self.tickets.issue(number, None)
            return Outcome(-1, error=error)
        ticket = self.tickets.issue(number, Waiting(copy, encoded, shown, watched, who))
        return Outcome(shown, label is not None, ticket, None, FALLBACK if label is None else by)

    def watch(self, who: bytes | None) -> bool:
        if self.monitor is None:
            return False
        return who is None or self.account.watch(who, self.monitor.rounds_per_unit)


class CopiesMonitoredPOP(POP):
    loop_type = CopiesMonitoredLoop


def make_5(rng: Any) -> POP:
    """Monitor: which of a person's rounds are counted depends on what came of them.

    What leaks: which of one person's questions the copies could answer, hence what they asked, to everybody who reads
    `pop.monitor.estimate`, at twice the price that the guarantee names. A person still fills at most c = 2 places of
    the counter's input, and the counter ticks in every round; but they are the first two *sure* rounds, not the
    first two, so they lie elsewhere in the other world: the inputs differ in up to 2c = 4 places, for a counter
    whose noise covers c. Only the input of the counter shows it: answers, tickets, count, copies and draws are those
    of a true POP. Attack: the victim asks twenty times, and says of every answer that it was wrong. In one world the
    first ten can be read and are clear, the last ten cannot be read (or are in doubt, before it is capped); in the
    other it is the other way round. Two ones early and none late, or none early and two late: subtract the estimate
    at half time from the last, and compare.
    """
    return CopiesMonitoredPOP(
        LogisticRegression(),
        small_plan(unit_unsure=2),
        labels=LABELS,
        features=2,
        units="people",
        monitor=Monitor(epsilon=1.0, rounds_per_unit=2, delay=5),
        seed=rng,
    )


PEOPLE = {1: False, 2: True, 3: False, 4: True, 5: True}

MAKERS = {
    "turnout": (make_1, PEOPLE[1]),
    "late_shares": (make_2, PEOPLE[2]),
    "memo": (make_3, PEOPLE[3]),
    "seats": (make_4, PEOPLE[4]),
    "copies_monitored": (make_5, PEOPLE[5]),
}
