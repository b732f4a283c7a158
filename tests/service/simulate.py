"""Partitions, places and mergers in one thread: the real code, with crashes, lost, repeated and late messages.

    python -m tests.service.simulate            # 10,000 lives of a model, and every rule broken on purpose
    python -m tests.service.simulate --runs 300 --first 17

A seed decides what is asked, taught, sent, lost, repeated, killed, moved and opened twice, and in which order. At the
end all that is durable is held against one owner, who takes the same numbers, is brought the same labels between the
same releases, and draws the same noise: releases and θ must have the same bits, every acknowledged label must be in
exactly one release, no number in two rounds, nobody in two partitions. A pair of lives that differ in what one person
brings must show the same numbers, leases, seals and releases in the same order. Proof page: docs/proofs/partitions.md.
"""

import argparse
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from confide import POP, Plan, StateError
from confide.guide.counting import RangeCounts
from confide.guide.guide import Guide, Release
from confide.guide.leaves import Kept
from confide.learners import Features
from confide.ledger import ledger as ledgers
from confide.ledger.book import Book
from confide.ledger.file import CHECKSUM
from confide.ledger.ledger import Ledger
from confide.ledger.sqlite import SqliteStore
from confide.ledger.store import SCHEMA, Claim, Place, Trouble, checksum
from confide.planning import plan as plans
from confide.pop.sharing import Sharing
from confide.privacy.random import Random
from confide.service import merging, parting
from confide.service.base import NotYet, Question, Taught
from confide.service.desk import PopDesk
from confide.service.following import Follower, Seat
from confide.service.journal import ASKED, TAUGHT, Row, Rows, unpack
from confide.service.merging import Lease, Life, Merger, Offer, Standing, Told, partition_of
from confide.service.parting import PartitionDesk

KEY, OTHER_KEY = b"the door's", b"another's"
LABELS = ["no", "yes"]
SUBJECTS = [f"s{i}" for i in range(12)]
UNIT = SUBJECTS[0]
KINDS = ("people", "people", "rounds", "ranges", "kept")
FINDING = ("ranges", "kept")


class Wrong(AssertionError):
    """A rule did not hold."""


class Killed(BaseException):
    """A process died, here and now."""


# ---------------------------------------------------------------------- ledgers in memory


class MemoryStore(SqliteStore):
    """The ledger's own tables and statements, in memory. Whoever claims a model has it; an earlier owner is fenced."""

    def __init__(self, place: "Memory") -> None:
        self.path, self.name, self.db, self.whole = Path(place.name), place.name, place.db, True
        self._guard = self.db

    def changing(self) -> Any:
        return self.transaction()

    def hold(self) -> None:
        pass

    def close(self) -> None:
        pass

    def release(self, key: int, epoch: int) -> None:
        pass


class Memory(Place):
    def __init__(self, name: str) -> None:
        self.name = name
        self.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.db.create_function(CHECKSUM, -1, checksum, deterministic=True)
        self._lock: Any = NoLock()

    def lock(self) -> Any:
        return self._lock

    def reader(self) -> MemoryStore:
        return MemoryStore(self)

    def store(self) -> MemoryStore:
        self.db.executescript(SCHEMA)
        return MemoryStore(self)

    def claim(self, model: str) -> Claim:
        return MemoryStore(self).begin(model)


class NoLock:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


# ---------------------------------------------------------------------- what may be broken


@dataclass(frozen=True)
class Kinds:
    """The classes that run, and how a person is sent to a partition: doubles have others."""

    merger: type[Merger] = Merger
    follower: type[Follower] = Follower
    desk: type[PartitionDesk] = PartitionDesk
    route: Callable[["World", str, int], int] = lambda world, subject, turn: partition_of(
        KEY, world.partitions, subject
    )


@cache
def plan_of(kind: str) -> Plan:
    """Without ranges to find; with ranges; and with ranges and kept lessons of the warm-up, which is short there."""
    epsilon, most = {"people": (2.0, 3), "ranges": (32.0, 8)}.get(kind, (32.0 if kind == "kept" else 2.0, None))
    people: Any = {"units": "people", "unit_labels": most} if most else {"units": "rounds"}
    plan = Plan.tight(epsilon=epsilon, delta=1e-5, rounds=600, guide=1.0, **people)
    assert plan.guide is not None and (plan.guide.kept_clip > 0) == (kind == "kept")
    assert (plan.guide.range_rounds > 0) == (kind in FINDING)
    return plan


def features_of(kind: str) -> Any:
    if kind in FINDING:
        return Features(numeric=("a", "b"))
    return 2


def make(kind: str, seed: int) -> POP:
    plan = plan_of(kind)
    units: Any = plan.units or "rounds"
    return POP(None, plan, labels=LABELS, features=features_of(kind), units=units, seed=Random(seed), fallback="no")


# ---------------------------------------------------------------------- a world


class Net:
    """Carries what a place says to a merger, if it does; remembers it, and may bring it again."""

    def __init__(self, world: "World", place: str) -> None:
        self._world, self._place = world, place

    def _sent(self, name: str, *args: Any) -> Any:
        world = self._world
        if world.loses():
            raise OSError
        merger = world.merger_for(self._place)
        if merger is None:
            raise OSError
        if name in ("hello", "lend", "offer"):
            world.said.append((name, args))
        told = world.at_merger(merger, name, *args)
        if world.loses():
            raise OSError
        return told

    def standing(self) -> Standing:
        return self._sent("standing")  # type: ignore[no-any-return]

    def hello(self, place: str, lives: Mapping[int, Life], rounds: int = 0) -> Standing:
        return self._sent("hello", place, dict(lives), rounds)  # type: ignore[no-any-return]

    def lend(self, place: str, need: int) -> Lease | None:
        return self._sent("lend", place, need)  # type: ignore[no-any-return]

    def offer(self, epoch: int, made: int, offers: Sequence[Offer]) -> Standing:
        return self._sent("offer", epoch, made, list(offers))  # type: ignore[no-any-return]

    def releases(self, since: int) -> list[Told]:
        return self._sent("releases", since)  # type: ignore[no-any-return]


@dataclass
class Process:
    """A place, alive."""

    name: str
    follower: Follower
    desks: dict[int, PartitionDesk] = field(default_factory=dict)


class Noted(NamedTuple):
    """A row of a partition's journal, and the number of its entry."""

    partition: int
    at: int
    row: Row


@dataclass
class Told1:
    """A round that somebody was told of."""

    subject: str
    partition: int
    number: int
    ticket: str
    label: str
    taken: bool = False


class World:
    """One life of a model."""

    def __init__(self, seed: int, base: Path, kinds: Kinds | None = None, *, secret: int | None = None) -> None:
        self.kinds = kinds or Kinds()
        self.secret = secret  # in a pair of worlds: which one
        self.random, self.faults = random.Random(seed), random.Random(seed + 1)
        self.kind = self.random.choice(KINDS)
        self.partitions, self.base, self.seed = self.random.choice([2, 3, 3]), base, seed
        self.steady = True
        self.said = list[tuple[str, Any]]()
        self.mergers = list[Merger]()
        self.openings = list[tuple[int, int]]()
        self.versions = dict[int, list[Life]]()  # after so many releases
        self.opened = dict[tuple[int, int], tuple[int, int]]()  # a partition's life: its first entry, releases then
        self.places: dict[str, Process | None] = {"a": None, "b": None}
        self.home = dict.fromkeys(range(self.partitions), "a")  # where each is opened next
        self.numbers = dict[int, tuple[str, str]]()
        self.where = dict[str, set[int]]()
        self.told = list[Told1]()
        self.pending = list[tuple[Question, int]]()
        self.asked = 0
        self.labels = 0
        self.kept = 0  # lessons of a warm-up that a later leaf was held against
        self.bomb: tuple[str, str] | None = None
        self.trace = list[Any]()
        self.calls = Counter[str]()

    # -------------------------------------------------- faults

    def loses(self) -> bool:
        return not self.steady and self.faults.random() < 0.04

    def merger_for(self, place: str) -> Merger | None:
        """The last one that was opened; of two, sometimes the other."""
        alive = self.mergers
        if not alive:
            return None
        return alive[0] if len(alive) > 1 and self.faults.random() < 0.4 else alive[-1]

    def at_merger(self, merger: Merger, name: str, *args: Any) -> Any:
        """What a merger says; one that dies of it says nothing, and one that was fenced ends."""
        before = merger.guide.made
        try:
            told = getattr(merger, name)(*args)
        except Killed:
            self.mergers.remove(merger)
            drop(merger.pop)
            raise OSError from None
        except StateError:
            if merger.ended:
                self.mergers.remove(merger)
                raise OSError from None
            raise
        if name == "lend":
            self.trace.append(("lend", told))
            late = [message for message in self.said[-60:] if message[0] == "offer"]
            if told is None and late and not self.steady and self.faults.random() < 0.3:
                self.repeat(self.faults.choice(late))
        if merger.guide.made != before:
            self.trace.append(("released", merger.guide.made))
            self.versions[merger.guide.made] = list(merger._versions)
        return told

    def write(self, book: Book, real: Callable[[Book], None]) -> None:
        """A write of a book, in which a process may die, or for which there is no room."""
        if self.bomb is not None and book.home is not None and self.bomb[0] in (book.home.name, "any"):
            _, how = self.bomb
            self.bomb = None
            if how == "full":
                raise Trouble("the disk is full")
            if how == "before":
                raise Killed
            real(book)
            raise Killed
        real(book)

    # -------------------------------------------------- processes

    def open_merger(self) -> None:
        seed = len(self.openings) + 1000 * self.seed
        try:
            made = self.kinds.merger.open(
                self.base / "m", lambda: make(self.kind, seed), self.partitions, rng=Random(seed)
            )  # fmt: skip
        except Killed:
            return
        self.openings.append((made.guide.made, seed))
        self.versions[made.guide.made] = list(made._versions)  # as the ledger has them
        self.mergers.append(made)

    def place(self, name: str) -> Process:
        found = self.places[name]
        if found is None:
            found = self.places[name] = Process(name, self.kinds.follower(Net(self, name), name))
        return found

    def open(self, number: int, name: str) -> None:
        """Open a partition at a place; whoever had it before, and lives, does not know of it."""
        place = self.place(name)
        if number in place.desks:
            return
        try:
            place.desks[number] = self.kinds.desk.of(
                place.follower, number, self.base / f"p{number}", lambda: make(self.kind, 5), save_every=None
            )
            self.home[number] = name
            book, made = place.desks[number]._book, place.follower.made
            self.opened[number, book.epoch] = place.desks[number]._began, made
        except (OSError, StateError):
            return
        except Killed:
            self.kill(name)

    def kill(self, name: str) -> None:
        """A process is gone: what is not on a disk is gone with it."""
        found, self.places[name] = self.places[name], None
        for desk in found.desks.values() if found is not None else ():
            drop(desk.pop)

    def shut(self, number: int, name: str) -> None:
        """A partition is closed in good order."""
        place = self.places[name]
        if place is not None and number in place.desks:
            desk = place.desks.pop(number)
            try:
                desk.close()
            except StateError:
                drop(desk.pop)
            except Killed:
                self.kill(name)

    def desk(self, number: int) -> tuple[str, PartitionDesk] | None:
        """Whom a door sends a request to: who opened the partition last; sometimes somebody who had it before."""
        names = [name for name, place in self.places.items() if place is not None and number in place.desks]
        if not names:
            return None
        home = self.home[number]
        name = home if home in names and (len(names) == 1 or self.faults.random() < 0.7) else self.faults.choice(names)
        place = self.places[name]
        assert place is not None
        desk = place.desks[number]
        if desk.ended:  # its owner opens it again
            drop(desk.pop)
            place.follower.leave(desk._seat)
            del place.desks[number]
            return None
        return name, desk

    # -------------------------------------------------- people

    def ask(self, questions: list[Question], number: int) -> None:
        found = self.desk(number)
        if found is None:
            self.pending += [(one, number) for one in questions]
            return
        name, desk = found
        try:
            replies = desk.ask(questions)
        except (NotYet, OSError, StateError):
            self.pending += [(one, number) for one in questions]
            return
        except Killed:
            self.pending += [(one, number) for one in questions]
            self.kill(name)
            return
        for question, reply in zip(questions, replies, strict=True):
            if reply.round < 0:
                self.pending.append((question, number))
                continue
            if self.numbers.setdefault(reply.round, (question.subject, question.id)) != (question.subject, question.id):
                raise Wrong(f"round {reply.round} was taken twice")
            self.where.setdefault(question.subject, set()).add(number)
            self.trace.append(("round", question.subject, question.id, reply.round))
            assert reply.answer is not None
            a, b = question.x.values() if isinstance(question.x, dict) else question.x
            label = "yes" if a > b else "no"
            self.told.append(Told1(question.subject, number, reply.round, reply.answer.ticket, label))

    def new_questions(self) -> None:
        first = self.random.choice(SUBJECTS)
        turn = self.random.randrange(10)
        number = self.kinds.route(self, first, turn)
        mine = [one for one in SUBJECTS if self.kinds.route(self, one, turn) == number]
        chosen = [first] + [self.random.choice(mine) for _ in range(self.random.randrange(5))]
        questions = []
        for subject in chosen:
            self.asked += 1
            x = [round(self.random.gauss(0, 1), 3) * 8, round(self.random.gauss(0, 1), 3) * 8]
            questions.append(
                Question(subject, f"q{self.asked}", dict(zip("ab", x, strict=True)) if self.kind in FINDING else x)
            )
        self.ask(questions, number)

    def ask_again(self) -> None:
        if self.pending:
            number = self.random.choice(self.pending)[1]
            again = [one for one, at in self.pending if at == number][:6]
            self.pending = [(one, at) for one, at in self.pending if at != number or one not in again]
            self.ask(again, number)

    def bring(self, one: Told1) -> None:
        """A label; in one of two worlds the unit never brings any."""
        if self.secret is None and one.taken:
            return
        found = self.desk(one.partition)  # which draws by what everybody knows, in both worlds
        if found is None or one.taken or (self.secret == 1 and one.subject == UNIT):
            return
        name, desk = found
        try:
            said = desk.learn([Taught(one.subject, one.ticket, one.label)])[0]
        except (NotYet, OSError, StateError):
            return
        except Killed:
            self.kill(name)
            return
        if said is None:
            one.taken = True
            self.labels += 1
        elif said.kind != "later":
            raise Wrong(f"a good label was refused: {said.kind}: {said.message}")

    def label(self) -> None:
        if self.told:
            self.bring(self.random.choice(self.told[-30:]))

    # -------------------------------------------------- a life

    def step(self) -> None:
        faults, draw = self.faults, self.random.random()
        if draw < 0.45:
            self.new_questions()
        elif draw < 0.80:
            self.label()
        else:
            self.ask_again()
        what = faults.random()
        number, name = faults.randrange(self.partitions), faults.choice(["a", "b"])
        if what < 0.50:
            self.look(name)
            if what < 0.25:
                self.look("b" if name == "a" else "a")
            for one in range(self.partitions) if what > 0.30 else ():  # whoever keeps processes starts them again
                self.open(one, self.home[one])
        elif what < 0.515:
            self.kill(name)
        elif what < 0.55:  # it moves: in good order, or while the old owner knows nothing of it
            if faults.random() < 0.4:
                self.shut(number, self.home[number])
            self.open(number, "b" if self.home[number] == "a" else "a")
        elif what < 0.56 and self.mergers:
            drop(self.mergers.pop().pop)
        elif what < 0.80 and not self.mergers:
            self.open_merger()
        elif what < 0.67 and len(self.mergers) == 1:
            self.open_merger()  # the other one does not know of it
        elif what < 0.71 and self.said:
            self.repeat(faults.choice(self.said[-40:]))
        elif what < 0.72 and self.secret is None:
            self.bomb = faults.choice(["m", "any", f"p{number}"]), faults.choice(["before", "after", "full"])
        elif what < 0.76:
            self.unwritten() if what < 0.74 and self.secret is None else self.left_over(name)
        elif what < 0.77:
            found = self.desk(number)
            if found is not None:
                try:
                    found[1].save()
                except StateError:
                    pass
                except Killed:
                    self.kill(found[0])

    def unwritten(self) -> None:
        """A label whose write fails; then a seal, and all are asked for their sums; then its owner may be gone."""
        waiting = [one for one in self.told[-30:] if not one.taken]
        if not waiting:
            return
        one = self.faults.choice(waiting)
        self.bomb = f"p{one.partition}", "full"
        self.bring(one)
        self.bomb = None
        self.spend()
        for name in ("a", "b", "a"):
            self.look(name)
        if self.faults.random() < 0.5:
            self.kill(self.home[one.partition])

    def left_over(self, name: str) -> None:
        """A seal, while a place has numbers left of the leaf; it hears of it, then it is asked, and others hear."""
        self.new_questions()
        self.spend()
        self.look(name)
        for _ in range(3):
            self.new_questions()
        self.look("b" if name == "a" else "a")

    def spend(self) -> None:
        """All numbers of the open leaf are lent to somebody who is gone then: the next who asks for one seals it."""
        for _ in range(3):
            merger = self.merger_for("")
            if merger is None:
                return
            with suppress(OSError, StateError):
                if self.at_merger(merger, "lend", "gone", 1 << 20) is None:
                    return

    def look(self, name: str) -> None:
        place = self.places[name]
        if place is None:
            return
        try:
            place.follower.look()
        except OSError:
            pass
        except StateError:  # it was taken over, or is behind: whoever keeps the process starts it again
            self.kill(name)
        except Killed:
            self.kill(name)

    def repeat(self, message: tuple[str, Any]) -> None:
        merger = self.merger_for("")
        if merger is not None:
            with suppress(OSError, StateError):
                self.at_merger(merger, message[0], *message[1])

    def live(self, steps: int) -> None:
        self.open_merger()
        for number in range(self.partitions):
            self.home[number] = self.random.choice(["a", "b"])
            self.open(number, self.home[number])
        for _ in range(9 * (self.kind == "ranges")):  # most of its warm-up passes without a question
            self.spend()
            for name in ("a", "b", "a", "b"):
                self.look(name)
        self.steady = False
        for _ in range(steps):
            self.step()
        self.heal()

    def heal(self) -> None:
        """No more faults: everything is opened once more, all is asked and brought again, and leaves go on closing.

        In some lives those who live are left alone: it must go on by itself.
        """
        self.steady, self.bomb = True, None
        if self.seed % 2:
            for name in self.places:
                self.kill(name)
        if self.seed % 4:
            while self.mergers:
                drop(self.mergers.pop().pop)
            self.open_merger()
        while len(self.mergers) > 1:  # one that was replaced
            drop(self.mergers.pop(0).pop)
        if not self.mergers:
            self.open_merger()
        for turn in range(400):
            self.beat()
            if not self.mergers:
                self.open_merger()
            for number in range(self.partitions):
                self.open(number, self.home[number])
            for name in self.places:
                self.look(name)
            self.ask_again()
            if turn % 3 == 0:
                for one in self.told:
                    self.bring(one)
            secret = self.secret == 1
            open_ = [one for one in self.told if not one.taken and not (secret and one.subject == UNIT)]
            if not self.pending and not open_:
                break
        else:
            raise Wrong(f"the model is stuck: {len(self.pending)} questions wait")
        made = self.mergers[-1].guide.made
        for _ in range(200):
            if not self.mergers:  # one that had been replaced by another, which is gone, found out now
                self.open_merger()
            self.new_questions()
            self.ask_again()
            for name in self.places:
                self.look(name)
            if self.mergers and self.mergers[-1].guide.made >= made + 2:
                return
        raise Wrong("no leaf closes any more")

    def beat(self) -> None:
        """Every process finds out whether its ledgers are its own, as an owner's thread does now and then."""
        for place in list(self.places.values()):
            for number, desk in list(place.desks.items()) if place is not None else ():
                with suppress(StateError):
                    desk.beat()
                if desk.ended and place is not None:
                    drop(desk.pop)
                    place.follower.leave(desk._seat)
                    del place.desks[number]

    # -------------------------------------------------- what must hold

    def check(self) -> None:
        asked, taught = list[Noted](), list[Noted]()
        for number in range(self.partitions):
            for kind, at, width, body in Ledger(self.base / f"p{number}" / "ledger.db").journal("pop"):
                rows = [Noted(number, at, row) for row in Rows.of(width).read(body)] if kind in (ASKED, TAUGHT) else []
                (asked if kind == ASKED else taught).extend(rows)
        numbers = Counter(one.row.number for one in asked if one.row.number > 0)
        if numbers and max(numbers.values()) > 1:
            raise Wrong(f"round {numbers.most_common(1)[0][0]} was taken twice")
        if lost := set(self.numbers) - {one.row.number for one in asked}:
            raise Wrong(f"round {min(lost)} was told, and is in no journal")
        if spread := [subject for subject, numbers in self.where.items() if len(numbers) > 1]:
            raise Wrong(f"{spread[0]} is in two partitions")
        learned = Counter((one.partition, one.row.number) for one in taught)
        for one in self.told:
            if one.taken and learned[one.partition, one.number] != 1:
                raise Wrong(f"the label of round {one.number} was learned {learned[one.partition, one.number]} times")
        if plan_of(self.kind).units == "people":
            most = plan_of(self.kind).promise.unit_labels
            capped = Counter((one.partition, one.row.whose) for one in taught if one.row.leaf >= 0)
            if capped and max(capped.values()) > most:
                raise Wrong("somebody taught more than they may")
        self._against_one_owner(asked, taught)

    def releases(self) -> list[Release]:
        found = list[Release]()
        order = {"warm": 0, "ranges": 1, "node": 2}
        for kind, number, noisy, exact in Ledger(self.base / "m" / "ledger.db").read("pop").released:
            name = kind.rpartition("/")[2]
            found.append(
                Release(name, number, *(np.frombuffer(one, dtype="<i8").astype(np.int64) for one in (noisy, exact)))
            )
        return sorted(found, key=lambda one: (order[one.kind], one.number))

    def _against_one_owner(self, asked: Sequence[Noted], taught: Sequence[Noted]) -> None:
        """One owner's guide, with the noise of whoever was the merger, brought the same labels between releases."""
        found, made, past = self.releases(), list[Release](), 0
        if self.mergers and len(found) != self.mergers[-1].guide.made:
            raise Wrong("there are releases that no ledger has")
        lessons: dict[int, list[Row]] = {}
        for one_ in taught:
            lessons.setdefault(one_.row.leaf, []).append(one_.row)
        one = self._owner(self.openings[0][1], made)
        for at, release in enumerate(found):
            for opened, seed in self.openings:
                if opened == at:
                    one = self._owner(seed, made)
            if release.kind == "ranges":
                one.go_to(one.ready and max(one.rounds, one.rounds + one.counting))
                first = dict[Any, Row]()
                for where, _, row in sorted(asked, key=lambda one: one.row.number):
                    if row.x is not None and row.number <= one.rounds and row.label >= 0:
                        first.setdefault(row.number if self.kind == "kept" else (where, row.whose), row)
                for row in first.values():
                    one.count(unpack(row.x))  # type: ignore[arg-type]
            else:
                one.go_to(max(one.rounds, one.rounds + one.room) if one.due is None else one.rounds)
                for row in lessons.pop(one.closed, []):
                    assert row.x is not None
                    one.gradient(one.encode_as_of(unpack(row.x), row.number), row.label)
                if not one.finding:
                    one._leaves.kept = self._kept(one, at, asked, taught)
            closing, made_now = (one.closed, one.rounds, one.due != "ranges"), list[Release]()
            one.store = made_now.append
            if not one.close_next():
                raise Wrong("a leaf was released before its end")
            mine = made_now[0]
            if mine[:2] != release[:2] or not np.array_equal(mine.exact, release.exact):
                raise Wrong(f"{release.kind} {release.number} does not hold what was learned in it, each lesson once")
            if not np.array_equal(mine.row, release.row):
                raise Wrong(f"{release.kind} {release.number} is not what one owner would have released")
            self._between_versions(at, past, *closing, asked, taught)
            past = one.rounds
            made.append(release)
        if any(leaf >= 0 and leaf < one.closed for leaf in lessons):
            raise Wrong("a lesson is in no release")
        theta = one.model.theta.tobytes()
        others = [*(p.follower._guide for p in self.places.values() if p and p.desks)]
        others += [self.mergers[-1].guide] if self.mergers else []
        if any(other and other.made == one.made and other.model.theta.tobytes() != theta for other in others):
            raise Wrong("θ is not one owner's, bit for bit")

    def _between_versions(
        self, at: int, past: int, leaf: int, last: int, teaches: bool, asked: Sequence[Noted], taught: Sequence[Noted]
    ) -> None:
        """The entries of a leaf's rounds and lessons lie between two versions of their partition: the last, its own."""
        before, after = self.versions[at], self.versions[at + 1]
        theirs = [noted for noted in asked if past < noted.row.number <= last]
        theirs += [noted for noted in taught if teaches and noted.row.leaf == leaf]
        for number, entry, row in theirs:
            if not before[number].version < entry <= after[number].version:
                raise Wrong(f"round {row.number} was taken, or taught, after the sum of its leaf was offered")

    def _kept(self, one: Guide, at: int, asked: Sequence[Noted], taught: Sequence[Noted]) -> list[Kept]:
        """What the lives that offered for this release had kept of the warm-up.

        What an earlier life of a partition had kept is lost with it, but for what the journal taught again.
        """
        warm, found = one._warm, list[Kept]()
        if warm is None or not one.plan.kept_clip:
            return found
        for noted in taught:
            number, row = noted.partition, noted.row
            life = self.versions[at + 1][number]
            first, released = self.opened[number, life.epoch]
            again = noted.at <= first
            if warm._loud.leaves <= row.leaf < warm.stage.leaves and (row.leaf >= released or not again):
                until, last = (first, released) if again else (noted.at, row.leaf)
                before = [other.row.number for other in asked if other.partition == number and other.at <= until]
                rounds = max([*before, warm.stage.ends[last - 1] if last else 0])
                read = one.encode_as_of(unpack(row.x), row.number).read  # type: ignore[arg-type]
                assert read is not None
                found.append(Kept(rounds, read, row.label))
        closed, ends = one._leaves.closed, one._leaves.stage.ends
        least = ends[closed - 1] if closed else 0
        self.kept += sum(least < kept.rounds <= ends[closed] for kept in found)
        return sorted((kept for kept in found if kept.rounds > least), key=lambda kept: kept.rounds)

    def _owner(self, seed: int, made: Sequence[Release]) -> Guide:
        guiding = make(self.kind, seed).operator.loop.guiding
        assert guiding is not None
        guiding.guide.resume(0, made)
        return guiding.guide


def drop(pop: POP) -> None:
    """What a killed process leaves: nothing that waits is written, and the claim is gone."""
    book = pop.operator.loop.account.book
    if book is not None:
        book.end("killed")
    pop.close()


# ---------------------------------------------------------------------- running


@contextmanager
def simulated() -> Iterator[Path]:
    """Ledgers in memory, plans that are read once, and a folder for what else is written."""
    memories = dict[str, Memory]()
    reader, place, write = plans.Plan.from_json, ledgers._place, Book._write
    read = cache(lambda text: reader(text))
    ledgers._place = lambda where: memories.setdefault(str(where), Memory(str(where)))  # type: ignore[assignment]
    plans.Plan.from_json = staticmethod(read)  # type: ignore[method-assign, assignment]
    map_ = RangeCounts.map
    found = lru_cache(64)(
        lambda counts, row, deviation, rows: map_(counts, np.frombuffer(row, dtype=np.int64), deviation, rows)
    )
    counted = dict[tuple[str, ...], RangeCounts]()

    def once(counts: RangeCounts, released: Any, deviation: float, rows: int) -> Any:
        """A function of what was released and of the columns: computed once, and not by every process of a life."""
        columns = tuple(counts.columns.numeric)
        return found(counted.setdefault(columns, counts), released.tobytes(), deviation, rows)

    RangeCounts.map = once  # type: ignore[method-assign]
    leases, merging.LEASES = merging.LEASES, 2  # short leaves: more is lent than is asked for all the same
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(dir=shared) as name:
            _current.append(memories)
            yield Path(name)
    finally:
        _current.clear()
        merging.LEASES, RangeCounts.map = leases, map_  # type: ignore[method-assign]
        ledgers._place, plans.Plan.from_json, Book._write = place, reader, write  # type: ignore[method-assign]


_current = list[dict[str, Memory]]()
_write = Book._write


def run(seed: int, base: Path, kinds: Kinds | None = None, steps: int = 60, *, secret: int | None = None) -> World:
    """One life, and what must hold after it."""
    folder = base / f"{seed}-{secret}"
    world = World(seed, folder, kinds, secret=secret)
    Book._write = lambda book: world.write(book, _write)  # type: ignore[method-assign, assignment]
    try:
        stuck: Wrong | None = None
        try:
            world.live(steps)
        except Wrong as error:
            stuck = error
        world.check()  # what is wrong with the ledgers is why a life is stuck, if anything is
        if stuck is not None:
            raise stuck
    finally:
        for name in world.places:
            world.kill(name)
        for merger in world.mergers:
            drop(merger.pop)
        _current[0].clear()
        shutil.rmtree(folder, ignore_errors=True)
    return world


def pair(seed: int, base: Path, kinds: Kinds | None = None, steps: int = 60) -> None:
    """Two worlds that differ in what one person brings: nobody else sees another number, lease, seal or release."""
    one, other = (run(seed, base, kinds, steps, secret=secret) for secret in (0, 1))
    if one.trace != other.trace:
        at = next((i for i, two in enumerate(zip(one.trace, other.trace, strict=False)) if two[0] != two[1]), -1)
        raise Wrong(f"what everybody sees depends on what one person brought (event {at})")


# ---------------------------------------------------------------------- rules broken on purpose


class SealsAtLabel(PartitionDesk):
    """A leaf is sealed when enough labels have come."""

    def _take_labels(self, fresh: Any) -> Any:
        taken = super()._take_labels(fresh)
        self._labels = getattr(self, "_labels", 0) + 1
        if self._labels % 4 == 0:
            net: Any = self._follower._post
            for merger in net._world.mergers:
                merger._next = merger._end + 1
        return taken


class AsksAtLabel(PartitionDesk):
    """Numbers are asked for when a label comes."""

    def _take_labels(self, fresh: Any) -> Any:
        taken = super()._take_labels(fresh)
        with suppress(OSError):
            self._follower.refill(2)
        return taken


class LendsByLabels(PartitionDesk):
    """How many numbers are asked for depends on how many labels were learned."""

    def _refilled(self, need: int, until: float) -> bool:
        return super()._refilled(need + self.pop.operator.loop.account.book.sequence % 3, until)  # type: ignore[union-attr]


class TakesAtSeal(PartitionDesk):
    """A label that comes at a seal is taken at once."""

    def _take_labels(self, fresh: Any) -> Any:
        with self._keeper.lock:
            sealed, self._seat.share.sealed = self._seat.share.sealed, False
            try:
                return super(PartitionDesk, self)._take_labels(fresh)
            finally:
                self._seat.share.sealed = sealed


class Unfenced(Merger):
    """It goes on though its ledger is another's."""

    def _check(self) -> None:
        pass

    @property
    def ended(self) -> bool:
        return False

    def _store(self, release: Release) -> None:
        try:
            super()._store(release)
        except StateError:
            self._recent.append(Told(release.kind, release.number, release.row.astype("<i8").tobytes()))

    def _note_versions(self) -> None:
        with suppress(StateError):
            super()._note_versions()

    def _reserve(self) -> None:
        try:
            super()._reserve()
        except StateError:
            self._end = self._account.taken


class Forgetful(Merger):
    """It lends numbers that its ledger does not have as taken."""

    def _reserve(self) -> None:
        self._account.taken = self._end + self.guide.room
        self._keeper.begin()
        self._end = self._account.taken


class Hurried(Merger):
    """It does not wait for the last partition."""

    def _complete(self) -> bool:
        return len(self._offers) >= self.partitions - 1


class Trusting(Merger):
    """It takes what an earlier life of a partition offers."""

    def hello(self, place: str, lives: Mapping[int, Life], rounds: int = 0) -> Standing:
        before = dict(self._offers)
        told = super().hello(place, lives, rounds)
        self._offers |= before
        return told

    def offer(self, epoch: int, made: int, offers: Sequence[Offer]) -> Standing:
        known = self._lives
        return super().offer(
            epoch, made, [one._replace(life=known.get(one.partition, (one.life, ""))[0]) for one in offers]
        )


class Anytime(Merger):
    """It takes an offer for whatever is due."""

    def offer(self, epoch: int, made: int, offers: Sequence[Offer]) -> Standing:
        return super().offer(epoch, self.guide.made, offers)


class HastyBook:
    """Waits for nothing, and looks for nobody."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)

    def wait(self, sequence: int) -> None:
        pass


class BlindBook(HastyBook):
    def wait(self, sequence: int) -> None:
        self._book.wait(sequence)

    def beat(self) -> None:
        pass


class Hasty(Follower):
    """It offers what is not durable yet."""

    book: type[HastyBook] = HastyBook

    def _offers(self) -> list[Offer]:
        accounts = [seat.account for seat in self._seats.values() if seat.account is not None]
        books = [account.book for account in accounts]
        for account in accounts:
            account.book = self.book(account.book)  # type: ignore[arg-type, assignment]
        try:
            return super()._offers()
        finally:
            for account, book in zip(accounts, books, strict=True):
                account.book = book


class Blind(Hasty):
    """It offers what it has, though another process may have the partition."""

    book = BlindBook


class Hoarding(Follower):
    """It goes on using its numbers when their leaf is sealed."""

    def _seal(self) -> None:
        with self.changed:
            self._sealed = True

    def take(self, want: int, above: int) -> tuple[int, int]:
        sealed, self._sealed = self._sealed, False
        try:
            return super().take(want, above)
        finally:
            self._sealed = sealed


class Unsealed(PopDesk):
    """Its share takes rounds after it was offered."""

    def _take(self, *asked: Any) -> Any:
        share: Any = self.pop.operator.loop.guiding.guide  # type: ignore[union-attr]
        sealed, share.sealed = share.sealed, False
        try:
            return super()._take(*asked)
        finally:
            share.sealed = sealed


class AsksAtSeal(PartitionDesk, Unsealed):
    """A desk over such a share: between its own steps, which look for numbers, it is what it was."""


class Rehearsing(Follower):
    """What was kept of a warm-up teaches leaf after leaf."""

    def _use(self, told: Told) -> None:
        kept = {number: seat.share._leaves.kept for number, seat in self._seats.items()}
        super()._use(told)
        for number, seat in self._seats.items():
            seat.share._leaves.kept = kept[number]


class Unnumbered(Sharing):
    """After a load every lesson is taught again, whichever leaf it says."""

    @property
    def closed(self) -> int:
        return 0


class Retaught(PartitionDesk):
    """Whose lessons have no number of a leaf."""

    @classmethod
    def of(cls, *args: Any, **options: Any) -> Any:
        real = parting.share

        def share(pop: POP, seat: Seat) -> POP:
            pop.operator.loop.parts.swap(Unnumbered(seat, pop))
            return pop

        parting.share = share
        try:
            return super().of(*args, **options)
        finally:
            parting.share = real


def by_two_keys(world: World, subject: str, turn: int) -> int:
    """One door has another key."""
    return partition_of(KEY if turn else OTHER_KEY, world.partitions, subject)


DOUBLES: dict[str, tuple[Kinds, bool]] = {
    "a seal at a label's arrival": (Kinds(desk=SealsAtLabel), True),
    "numbers asked for when labels come": (Kinds(desk=AsksAtLabel), True),
    "a lease whose size depends on labels": (Kinds(desk=LendsByLabels), True),
    "labels taken at a seal": (Kinds(desk=TakesAtSeal), False),
    "a merger without a fence": (Kinds(merger=Unfenced), False),
    "a lease handed out twice": (Kinds(merger=Forgetful), False),
    "a release without the last partition": (Kinds(merger=Hurried), False),
    "an offer that is not durable": (Kinds(follower=Hasty), False),
    "numbers of a sealed leaf": (Kinds(follower=Hoarding, desk=AsksAtSeal), False),
    "an offer of an earlier life": (Kinds(merger=Trusting, follower=Blind), False),
    "an offer for another release": (Kinds(merger=Anytime), False),
    "a kept lesson in many leaves": (Kinds(follower=Rehearsing), False),
    "a lesson without a number": (Kinds(desk=Retaught), False),
    "two routing keys": (Kinds(route=by_two_keys), False),
}
"""What is broken, and whether it shows in a pair of worlds only."""


def caught(name: str, base: Path, seeds: Sequence[int]) -> tuple[int, str] | None:
    """In which of these lives a double was found out, and by which sentence; None for none of them."""
    kinds, paired = DOUBLES[name]
    for seed in seeds:
        try:
            if paired:
                pair(seed, base, kinds)
            else:
                run(seed, base, kinds)
        except (Wrong, StateError) as error:
            return seed, str(error)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args(argv)
    began, counted = time.perf_counter(), Counter[str]()
    with simulated() as base:
        for seed in range(given.first, given.first + given.runs):
            world = run(seed, base, steps=given.steps)
            made = world.mergers[-1].guide.made
            counted += Counter(
                rounds=len(world.numbers), labels=world.labels, releases=made, mergers=len(world.openings),
                lives=len(world.opened), kept=world.kept,
            )  # fmt: skip
            if seed % 10 == 0:
                pair(seed, base, steps=given.steps)
            if (seed - given.first) % 100 == 99:
                print(
                    f"{seed - given.first + 1:,} runs, {time.perf_counter() - began:.0f} s: {dict(counted)}", flush=True
                )
        missed = 0
        for name in DOUBLES:
            found = caught(name, base, range(1, 400))
            missed += found is None
            print(f"{name}: {'NOT CAUGHT' if found is None else f'caught in life {found[0]}: {found[1]}'}", flush=True)
    print(f"{given.runs:,} runs, nothing wrong; {len(DOUBLES) - missed} broken rules caught, {missed} not")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
