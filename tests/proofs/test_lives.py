"""Failed writes, crashes, loads, queued lessons and used tickets, counted out: docs/proofs/people.md, section State."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

import pytest

from tests.proofs.tiny import Belief, F, Procedure, State, Tables, asked, hidden, questions, tape_leak

pytestmark = pytest.mark.claim("people.md")

# ------------------------------------------------------------------------- writes that fail when the adversary says so

TABLES = Tables(
    (F(49, 50), F(49, 50), F(49, 50), F(9, 10)), (F(1, 20), F(3, 40), F(1, 10), F(3, 20), F(1, 5)), copies=3
)
LOUD, TIE = Procedure((3,), (0, 0)), Procedure((2,), (1, 1))


def _reverted(belief: Belief, count: dict[State, int], told: bool) -> Belief:
    """What a load goes on from: the durable count; the copies as they are, or (told) as before the hidden lesson."""
    out: Belief = defaultdict(F)
    for state, p in belief.items():
        known, memory, _ = state
        out[known, memory if told else (0,) * len(memory), count[state]] += p
    return out


def _failing(belief: Belief, question: tuple[int, ...], told: bool, kind: str) -> dict[object, Belief]:
    """By what is seen: a visible round whose write fails, and the load after it."""
    seen: dict[object, Belief] = defaultdict(lambda: defaultdict(F))
    for state, p in belief.items():
        for (outcome, halts), after in asked({state: p}, question, TABLES).items():
            held = _reverted(after, {new: state[2] for new in after}, told)
            needs = halts or outcome is None
            what: object = "failed"
            if kind == "written if unsure" and not needs:
                what = outcome  # nothing was to be written, so nothing failed
            if kind == "shown first":
                what = (outcome, halts)
            for new, chance in held.items():
                seen[what][new] += chance
    return seen


def retry_leak(grow: Fraction, asks: int, fails: int, kind: str, worlds: tuple[Procedure, Procedure]) -> Fraction:
    """max over adversaries of Σ (P − grow·Q)⁺: `asks` rounds that are written, `fails` whose write fails, in any order.

    After a failed write comes a load, from a snapshot made before the hidden lesson or after it.
    """

    def worth(first: Belief, second: Belief, asks: int, fails: int) -> Fraction:
        p, q = sum(first.values(), F(0)), sum(second.values(), F(0))
        best = max(F(0), p - grow * q)
        if not p or not q:
            return best
        for question in questions(TABLES, 1) if asks or fails else ():
            if asks:
                left, right = asked(first, question, TABLES), asked(second, question, TABLES)
                total = F(0)
                for seen in left.keys() | right.keys():
                    rest = (0, 0) if seen[1] else (asks - 1, fails)
                    total += worth(left.get(seen, {}), right.get(seen, {}), *rest)
                best = max(best, total)
            for told in (True, False) if fails else ():
                one, other = (_failing(belief, question, told, kind) for belief in (first, second))
                total = F(0)
                for what in one.keys() | other.keys():
                    total += worth(one.get(what, {}), other.get(what, {}), asks, fails - 1)
                best = max(best, total)
        return best

    start: Belief = {((), (0,), 0): F(1)}
    one, other = (hidden(start, 0, does, TABLES) for does in worlds)
    return worth(one[False], other[False], asks, fails) + worth(one[True], other[True], 0, 0)


@pytest.mark.parametrize("worlds", [(LOUD, TIE), (TIE, LOUD)])
def test_failed_writes_and_retries_buy_nothing(worlds: tuple[Procedure, Procedure]) -> None:
    """Two answered rounds, and one whose write fails when the adversary says so: no more than two rounds tell."""
    grow = F(3, 2)
    with_failure = retry_leak(grow, 2, 1, "every round", worlds)
    assert with_failure == retry_leak(grow, 2, 0, "every round", worlds)
    assert with_failure <= tape_leak(grow, TABLES, "ovv")


@pytest.mark.parametrize("kind", ["written if unsure", "shown first"])
def test_writes_that_depend_on_the_outcome_do(kind: str) -> None:
    """Write only what was unsure, or show before writing: uncounted outcomes are seen, as many as failures are made."""
    grow, worlds, bound = F(3, 2), (TIE, LOUD), tape_leak(F(3, 2), TABLES, "ov")
    assert retry_leak(grow, 1, 0, kind, worlds) <= bound
    assert retry_leak(grow, 1, 1, kind, worlds) > F(3, 2) * bound


def _answered(labels: frozenset[int], full: frozenset[int], rounds: int, mark: str) -> tuple[int, ...]:
    """Which public rounds are answered: labels come before rounds `labels`, the disk is full before rounds `full`."""
    answered, broken = [], False
    for i in range(rounds):
        if mark == "by itself" and i in labels and i in full:
            broken = True  # the label's own write failed: from now on nobody is answered
        if not broken:
            answered.append(i)
    return tuple(answered)


def test_a_labels_mark_that_is_written_by_itself_tells_that_a_label_came() -> None:
    """When a hidden label comes is not public: its mark goes with the next round's write, or a full disk tells."""
    came, none, full = frozenset({1}), frozenset[int](), frozenset({1})
    assert _answered(came, full, 4, "by itself") != _answered(none, full, 4, "by itself")
    assert _answered(came, full, 4, "with the next round") == _answered(none, full, 4, "with the next round")


# --------------------------------------------------------------------- copies, tickets and lessons over several lives

COPY = {"h": 0, "a": 0, "b": 1}
"""The tape: the hidden person shares copy 0 with a, b has copy 1."""
Ticket = tuple[str, int]


@dataclass
class Machine:
    """What is in memory, what is in the snapshot, what is in the ledger. Three rules can be broken on purpose."""

    queue: bool = True
    flush: bool = True
    marks: bool = True
    drop: bool = True
    copies: list[list[tuple[Ticket, int]]] = field(default_factory=lambda: [[], []])
    open: dict[str, Ticket] = field(default_factory=dict)
    waiting: list[tuple[Ticket, int]] = field(default_factory=list)
    used: set[Ticket] = field(default_factory=set)
    """Ledger."""
    forgot: list[str] = field(default_factory=list)
    """Ledger, since the snapshot."""
    snapshot: tuple[list[list[tuple[Ticket, int]]], dict[str, Ticket]] = ((), {})  # type: ignore[assignment]
    released: list[Ticket] = field(default_factory=list)
    """Lessons whose effect has left, once for every time they were applied and then a public round answered."""
    fresh: list[Ticket] = field(default_factory=list)
    round: int = 0

    def __post_init__(self) -> None:
        self.save()

    def settle(self) -> None:
        for ticket, y in self.waiting:
            self.copies[COPY[ticket[0]]].append((ticket, y))
            self.fresh.append(ticket)
        self.waiting.clear()

    def ask(self, who: str) -> tuple[object, ...]:
        self.settle()
        self.round += 1
        self.released += self.fresh
        self.fresh.clear()
        self.open[who] = (who, self.round)
        return tuple(tuple(copy) for copy in self.copies)

    def learn(self, who: str, y: int) -> str:
        ticket = self.open.pop(who, None)
        if ticket is None or (self.marks and ticket in self.used):
            return "refused"
        self.used.add(ticket)
        self.waiting.append((ticket, y))
        if not self.queue:
            self.settle()
        return "taken"

    def forget(self, who: str) -> str:
        if self.flush:
            self.settle()
        self.copies[COPY[who]] = []
        self.open.pop(who, None)
        self.forgot.append(who)
        return "forgotten"

    def save(self) -> None:
        self.settle()
        self.snapshot = [list(copy) for copy in self.copies], dict(self.open)
        self.forgot.clear()

    def load(self) -> None:
        """A crash, and a load: older copies, newer ledger."""
        self.copies, self.open = [list(copy) for copy in self.snapshot[0]], dict(self.snapshot[1])
        self.waiting.clear()
        self.fresh.clear()
        for who in self.forgot:
            self.copies[COPY[who]] = []
            if self.drop:
                self.open.pop(who, None)
        if self.marks:
            self.open = {who: ticket for who, ticket in self.open.items() if ticket not in self.used}


def play(machine: Machine, events: tuple[str, ...]) -> Iterator[object]:
    """What is seen of each event by whoever does it. "ask a", "learn a 1", "forget a", "save", "load"."""
    for event in events:
        what, *rest = event.split()
        if what in ("save", "load"):
            getattr(machine, what)()
            yield None
        elif what == "learn":
            yield machine.learn(rest[0], int(rest[1]))
        elif what == "none":
            yield None
        else:
            yield getattr(machine, what)(rest[0])


VISIBLE = ("ask a", "ask b", "learn a 1", "forget a", "save", "load")
SECRET = (("learn h 0", "learn h 1"), ("learn h 1", "none"), ("forget h", "none"), ("learn h 0", "forget h"))


def test_older_copies_under_a_newer_ledger_differ_in_one_copy() -> None:
    """All runs of six events in two worlds: copy 1, and what others are told, are the same, load or no load."""
    public = [(event, event) for event in VISIBLE]
    tail = ("ask b", "ask b")
    looked = 0
    for events in product([*public, ("ask h", "ask h"), *SECRET], repeat=4):
        script = [("ask h", "ask h"), ("ask a", "ask a"), *events, tail]
        worlds = [list(play(Machine(), tuple(pair[b] for pair in script))) for b in (0, 1)]
        for (event, _), one, other in zip(script, *worlds, strict=True):
            if event.startswith("ask"):
                assert one[1:] == other[1:]  # type: ignore[index]
                looked += one[0] != other[0]  # type: ignore[index]
            elif event.endswith((" a", " a 1")):
                assert one == other
    assert looked > 1000  # copy 0 did differ


def _released_twice(machine: Machine, events: tuple[str, ...]) -> bool:
    list(play(machine, events))
    return len(machine.released) > len(set(machine.released))


def test_a_ticket_teaches_once_over_all_lives() -> None:
    """Nothing that has left holds one lesson twice; without durable marks a crash and a load are enough for that."""
    twice = 0
    for events in product(("ask a", "ask b", "learn a 1", "save", "load", "forget a"), repeat=5):
        script = ("ask a", "save", *events, "ask b")
        assert not _released_twice(Machine(), script)
        twice += _released_twice(Machine(marks=False), script)
    assert twice > 0


def test_a_forgotten_persons_ticket_is_gone_after_a_load() -> None:
    script = ("ask a", "save", "forget a", "load", "learn a 1")
    assert list(play(Machine(), script))[-1] == "refused"
    assert list(play(Machine(drop=False), script))[-1] == "taken"


def test_queued_lessons_are_what_lessons_at_once_are() -> None:
    """At every public round the copies are the same; a queue that a forget overtakes brings the forgotten back."""
    events = ("ask a", "ask b", "learn a 1", "learn b 0", "forget a", "save", "load")
    differs = 0
    for chosen in product(events, repeat=4):
        script = ("ask a", "ask b", *chosen, "ask b")
        at_once = list(play(Machine(queue=False), script))
        assert list(play(Machine(), script)) == at_once
        differs += list(play(Machine(flush=False), script)) != at_once
    assert differs > 0


def test_a_record_taught_again_after_a_load_is_two_units_if_the_snapshot_has_it() -> None:
    """Units are rounds: a record's copy is drawn afresh each time it is taught."""

    def differing(snapshot: bool, first: int, second: int) -> int:
        """Copies that differ between a world with the record and one without, after teach, load, teach."""
        copies: list[list[int]] = [[], []]
        copies[first].append(1)
        copies = copies if snapshot else [[], []]
        copies[second].append(1)
        return sum(bool(copy) for copy in copies)

    assert max(differing(False, *places) for places in product((0, 1), repeat=2)) == 1
    assert max(differing(True, *places) for places in product((0, 1), repeat=2)) == 2
