"""Copies in several places: the same bank, its copies divided among shards. Transport only; POP decides as ever.

**The protocol.** Shard s has the copies of one range of numbers. A batch goes to all shards: rows, each row's copy and
label, alike; and of the polls that POP's own words drew, who of its own copies is asked. A shard counts the votes of
its own copies row by row, each row's lesson after its votes, and sends counts back; they are added, and the gate
decides here. So no shard draws anything.

**Why the bits are equal.** What is drawn does not depend on votes, so polls and words are drawn first, as in the fused
loop (`confide.banks.rounds`). Votes are whole numbers: their sum knows no order. A copy hears its own lessons in their
order, wherever it lives. And each shard is a bank of *all* copies, of which it is asked and taught its own: a copy has
one number everywhere, and whatever is seeded is seeded by that number. (Copies of other shards cost a stacked bank
addresses, and no memory.) After a halt, when nobody hears copies any more, they have learned the rest of their batch.
Learners that compute by libraries need the same libraries, and the same kind of processor, for the same bits.

**A death.** Batches are numbered. A shard applies the next number only, answers a repeat from what it stored, and
refuses a gap. Lessons are kept here from before they are sent until a snapshot has them; snapshots are of slices of a
shard's copies in turn, after public numbers of rows. A shard that is lost is never restarted as it is: another one
begins with the slices, and is taught again what came after each. From the batch in which it was lost until the first
batch after it is back all rounds are *silent*: words are drawn and thrown away, no vote is counted or charged, lessons
go on, and the guide answers. There is no deadline, and no shard abstains: that a vote is missing would tell of what its
copies learned. Whether rounds are silent is decided by public rounds alone, each of which reaches all shards, also one
whose row cannot be read (`heed`). That a lesson came, or that somebody was forgotten, is private: a shard that such a
call finds lost is brought back from the next public round on, and none that is back takes part again before one.
A learner must not be able to take its process with it (memory, a crash): exceptions stay inside.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np

from confide._checks import integer
from confide.arrays import Flags, Ints
from confide.banks.base import NONE, ROW, Batched, Failures, Rounds, State, lessons_for, sealed, within
from confide.banks.rounds import Block, Cut, block_of, cut_rows, decide_rows, draw_rows
from confide.banks.shard import NOBODY, SLICES, Answer, Batch, Recipe, Shard, cut, divided, joined, lessons_of
from confide.contained import contained
from confide.learners.called import Labels
from confide.privacy.random import Random

__all__ = ["Lost", "Place", "ShardedBank", "Threads", "Unheard"]

ROWS = 4096
"""Rows of a batch, at most."""
EVERY = 8192
"""Rows after which the next slice is written down: a public number."""
AGAIN = 0.5
"""Seconds between two tries to bring a shard back."""

_NO_ROWS = np.zeros((1, 1))


class Lost(Exception):
    """A shard is gone: what it knew is to be brought back."""


class Unheard(Lost):
    """Nobody knows whether a shard has heard: the same batch may be sent once more."""


class Place(ABC):
    """Where shards live, and how they are reached: it carries calls and answers, and decides nothing."""

    @abstractmethod
    def number(self, copies: int) -> int:
        """How many shards there are to be, for so many copies."""

    @abstractmethod
    def start(self, recipe: Recipe, own: range) -> Any:
        """A new shard."""

    @abstractmethod
    def begin(self, shards: Sequence[Any], call: str, given: Sequence[Any]) -> list[Any]:
        """Have each of these shards do `call` with what is given for it, after whatever it was told before."""

    @abstractmethod
    def finish(self, begun: Any) -> Any:
        """What came of it, however long that takes; `Lost` where the shard is gone, ValueError where it says so."""

    @abstractmethod
    def stop(self, shard: Any) -> None:
        """Nobody needs this shard any more, or it is lost: nothing may reach it from now on."""


class Threads(Place):
    """Shards as threads of this process: for stacked learners, whose compiled kernels hold no interpreter lock.

    Parameters
    ----------
    shards
        How many; one for each processor if left out.

    Examples
    --------
    >>> from confide.learners import LogisticRegression
    >>> ShardedBank(Threads(2), LogisticRegression(), 1000, 2, 3, Random())
    ShardedBank(StackedBank(LogisticRegression, copies=1000), shards=2)
    """

    def __init__(self, shards: int | None = None) -> None:
        self._shards = integer(os.cpu_count() or 1 if shards is None else shards, "shards", 1)

    def number(self, copies: int) -> int:
        """As many as were asked for."""
        return min(self._shards, copies)

    def start(self, recipe: Recipe, own: range) -> tuple[Shard, ThreadPoolExecutor]:
        """A shard with a thread of its own."""
        return Shard(recipe, own.start, own.stop), ThreadPoolExecutor(1, "confide-shard")

    def begin(self, shards: Sequence[Any], call: str, given: Sequence[Any]) -> list[Future[Any]]:
        """In their threads."""
        each = zip(shards, given, strict=True)
        return [thread.submit(getattr(shard, call), one) for (shard, thread), one in each]

    def finish(self, begun: Future[Any]) -> Any:
        """Threads do not die."""
        return begun.result()

    def stop(self, shard: tuple[Shard, ThreadPoolExecutor]) -> None:
        """Its thread ends after what it was told."""
        shard[1].shutdown(wait=False)


class _Held:
    """A shard as the bank knows it."""

    def __init__(self, own: range, shard: Any) -> None:
        self.own, self.shard, self.done = own, shard, 0
        self.failures = self.before = NONE
        self.slices = divided(own, SLICES)
        self.parts: list[State | None] = [None] * SLICES
        self.since = np.zeros(SLICES, dtype=np.int64)  # the last number that each slice has
        self.lost = False
        self.back: tuple[Any, int] | None = None  # another shard in its place, and the number that it has reached
        self.thread: threading.Thread | None = None

    def missing(self, batch: Batch) -> Batch:
        """Of a batch in the journal, what its slices do not have."""
        ends = np.array([part.stop for part in self.slices])

        def wanted(copies: Ints) -> Flags:
            here = (copies >= self.own.start) & (copies < self.own.stop)
            late = self.since[np.minimum(np.searchsorted(ends, copies, side="right"), SLICES - 1)] < batch.number
            return here & late

        rows, resets = np.flatnonzero(wanted(batch.copies)), np.array(batch.resets, dtype=np.int64)
        kept = tuple(resets[wanted(resets)].tolist())
        return lessons_of(batch.number, batch.xs, batch.copies, batch.ys, rows, kept)


class ShardedBank(Batched):
    """A bank whose copies live in several places, and that answers as one bank in one place does, to the last bit.

    Parameters
    ----------
    place
        Where: `Threads(...)`, or `confide.banks.ray.Actors(...)`.
    learner, copies, labels, features, rng, public_start
        As for `bank_for`.
    """

    def __init__(
        self,
        place: Place,
        learner: Any,
        copies: int,
        labels: Labels,
        features: Any,
        rng: Random,
        public_start: bool = False,
    ) -> None:
        recipe = Recipe(learner, copies, labels, features, None if rng.secure else rng, public_start)
        if hasattr(getattr(learner, "learner", learner), "birth"):
            raise ValueError(f"copies of {type(learner).__name__} draw when they are made: leave them in one place")
        self._recipe, self._front = recipe, recipe.make()  # which reads rows, and is never taught
        self.copies, self.labels = self._front.copies, self._front.labels
        ranges = divided(range(copies), place.number(copies))
        self._place, self._shards = place, [_Held(own, place.start(recipe, own)) for own in ranges]
        self._journal: list[Batch] = []
        self._polls = np.empty((len(ranges), 0), dtype=np.uint16)
        self._number = self._rows = self._turn = self._silenced = 0
        self._lock = threading.Lock()  # over journal and number, which threads that bring shards back read

    # ------------------------------------------------------------------ a bank

    @property
    def silent(self) -> bool:
        """Whether rounds are silent, as a shard was lost and is not back (public)."""
        return any(held.lost for held in self._shards)

    @property
    def failures(self) -> Failures:
        """What failed, all shards together; and how many rounds were silent. Private, for the operator."""
        each = (part for held in self._shards for part in (held.before, held.failures))
        return reduce(Failures.plus, each, Failures(silent=self._silenced))

    @property
    def nbytes(self) -> int:
        """The memory held for the copies, in bytes, by all shards that are there; it waits for none that is lost."""
        size = 0
        for held in self._shards:
            with suppress(Lost):
                size += 0 if held.lost else self._place.finish(self._place.begin([held.shard], "size", [None])[0])
        return size

    def encode(self, x: Any) -> Any:
        """See `Bank`."""
        return self._front.encode(x)

    def encode_many(self, xs: Any) -> tuple[Any, dict[int, str]]:
        """See `Bank`."""
        return self._front.encode_many(xs)

    def votes_many(self, xs: Any, polls: Any) -> Ints:
        """See `Bank`; nobody's where rounds are silent, which is not an answer: look at `silent`."""
        polls = np.asarray(polls, dtype=np.int64)
        if polls.ndim != 2 or len(polls) != len(xs):
            raise ValueError(f"there are {len(polls)} polls for {len(xs)} rows: give one poll for each")
        if not within(polls, self.copies):
            raise ValueError("the poll names a copy that does not exist")
        if len(xs) and not polls.size:
            return np.zeros((len(xs), self.labels), dtype=np.int64)
        none, cut = np.full(len(xs), -1), self._room(len(xs), polls.shape[1])
        cut_rows(polls, cut)
        return self._apply(xs, none, none, cut, np.ones(len(xs), dtype=np.bool_))[0]

    def heed(self) -> None:
        """A public round goes by in which nobody votes, as its row cannot be read: who is back takes part again."""
        self.votes_many([], np.empty((0, 0)))

    def learn_many(self, copies: Ints, xs: Any, ys: Ints) -> int:
        """See `Bank`."""
        copies, ys = lessons_for(self, copies, xs, ys)
        return int(self._apply(xs, copies, ys)[1].sum())

    def reset(self, copies: Iterable[int]) -> None:
        """See `Bank`."""
        chosen = tuple(integer(copy, "a copy", 0, self.copies - 1) for copy in copies)
        none = np.empty(0, dtype=np.int64)
        self._apply([], none, none, resets=chosen)

    def state(self, trusted: bool = False) -> State:
        """The same as of a bank in one place; it waits for a shard that is being brought back."""
        self._front.state(trusted)  # which says why not
        return joined(self._everywhere("state", trusted))

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Take over the state of such a bank, wherever its copies were."""
        self._front.load_state(cut(state, range(0)), trusted)
        for held, parts in zip(self._shards, self._everywhere("load", state), strict=True):
            held.parts, held.since[:] = [_own(part) for part in parts], held.done
        with self._lock:
            self._journal.clear()

    fuses, words = True, 1 << 21
    """Chunks of rounds are batches, and large ones: 16 MB of words may be lent for one."""

    def run(self, rounds: Rounds) -> None:
        """A batch of rounds: everything is drawn, then all votes are counted, then the gate decides row by row."""
        plain, first, polled = sealed(rounds, xs=_NO_ROWS), int(rounds.progress[ROW]), rounds.polls % self.copies
        size = min(rounds.ys.size - first, ROWS, rounds.words.size // (polled + 1) + 1)
        room, cut = block_of(size, 1, self.copies), self._room(size, polled)
        block = Block(room.copies, np.empty((1, polled), dtype=np.int32), *room[2:])
        drawn = draw_rows(plain, self.copies, block, cut)
        if not drawn:
            return
        these = slice(first, first + drawn)
        good = ~rounds.malformed[these]
        counts, taught = self._apply(
            rounds.xs[these],
            block.copies[:drawn].copy(),
            np.where(good, rounds.ys[these], -1),
            cut,
            good & (np.arange(first, first + drawn) >= rounds.silent),
        )
        decide_rows(plain, block, drawn, counts, taught, self.silent)

    def settle(self) -> None:
        """Wait until all shards are there."""
        self._miss()
        self._adopt()
        while self.silent:
            for held in self._shards:
                if held.thread is not None:
                    held.thread.join()
            self._adopt()

    def close(self) -> None:
        """End all shards."""
        for held in self._shards:
            self._place.stop(held.shard)

    def __repr__(self) -> str:
        return f"ShardedBank({self._front!r}, shards={len(self._shards)})"

    def __reduce__(self) -> Any:
        raise TypeError("a bank whose copies live in several places is not copied: use state() and load_state()")

    # ------------------------------------------------------------------ batches

    def _room(self, rows: int, polled: int) -> Cut:
        """Room for polls of so many copies each, by shards; none where all copies are asked.

        The same room as before where it fits: memory from the system costs more than what is written into it. No batch
        needs its polls once it is answered, and whoever was cut off and reads on is lost.
        """
        edges = np.array([*(held.own.start for held in self._shards), self.copies])
        most, need = int(np.diff(edges).max()), rows * polled + 1
        if not need <= self._polls.shape[1] <= 2 * need:
            self._polls = np.empty((len(self._shards), need), np.uint16 if most <= 1 << 16 else np.int32)
        return Cut(edges, self._polls, np.zeros((len(self._shards), rows if polled else 0), dtype=np.int64))

    def _apply(
        self,
        xs: Any,
        copies: Ints,
        ys: Ints,
        cut: Cut | None = None,
        asked: Flags | None = None,
        resets: tuple[int, ...] = (),
    ) -> tuple[Ints, Ints]:
        """Votes, all shards together, and which lessons were taught, by row. In the journal before it is sent.

        A batch of which nobody is `asked` is no public round.
        """
        public = asked is not None
        self._miss(public)
        if public:
            self._adopt()
        if not (len(ys) or resets or public):
            return np.zeros((0, self.labels), dtype=np.int64), ys
        wanted = np.zeros(len(ys), dtype=np.bool_) if asked is None else asked
        lessons = np.flatnonzero(ys >= 0)
        with self._lock:
            self._number += 1
            if lessons.size or resets:
                self._journal.append(lessons_of(self._number, xs, copies, ys, lessons, resets))
        heard = wanted & (not self.silent)
        batch = Batch(self._number, _table(xs), copies, ys, *NOBODY, heard, resets)
        turn = self._slice_due()
        batches = [batch if turn is None else Batch(*batch[:-1], held.slices[turn]) for held in self._shards]
        if cut is not None and cut.ends.size and heard.any():
            ends = cut.ends[:, : len(ys)]
            polls = [line[: end[-1]] for line, end in zip(cut.polls, ends, strict=True)]
            each = zip(batches, polls, ends, strict=True)
            batches = [one._replace(polls=poll, ends=end) for one, poll, end in each]
        counts, taught = np.zeros((len(ys), self.labels), dtype=np.int64), np.zeros(len(ys), dtype=np.int64)
        here = [(held, one) for held, one in zip(self._shards, batches, strict=True) if not held.lost]
        begun = self._place.begin([held.shard for held, _ in here], "apply", [one for _, one in here])
        for (held, given), one in zip(here, begun, strict=True):
            answer = self._answer(held, one, given, public)
            if answer is not None:
                held.done, held.failures = batch.number, answer.failures
                if turn is not None and answer.part is not None:
                    held.parts[turn], held.since[turn] = _own(answer.part), held.done
                counts, taught = counts + answer.counts, taught + answer.taught
        if self.silent:
            counts[:] = 0
            self._silenced += int(wanted.sum())
            for held in self._shards:
                if held.lost:  # what is in the journal will be taught
                    taught[lessons[(copies[lessons] >= held.own.start) & (copies[lessons] < held.own.stop)]] = 1
        self._rows += len(ys)
        if turn is not None:
            self._forget_written()
        return counts, taught

    def _answer(self, held: _Held, begun: Any, batch: Batch, public: bool) -> Answer | None:
        """A shard's answer, or None where it is lost."""
        for again in (True, False):
            try:
                answer: Answer = self._place.finish(begun)
                return answer
            except Unheard:
                if again:
                    begun = self._place.begin([held.shard], "apply", [batch])[0]
            except (Lost, LookupError):
                break
        self._lose(held, public)
        return None

    def _everywhere(self, call: str, given: Any) -> list[Any]:
        """What all shards say, those that are lost included, once they are back."""
        while True:
            self.settle()
            said = []
            begun = self._place.begin([held.shard for held in self._shards], call, [given] * len(self._shards))
            for held, one in zip(self._shards, begun, strict=True):
                try:
                    said.append(self._place.finish(one))
                except Lost:
                    self._lose(held)
            if not self.silent:
                return said

    # ------------------------------------------------------------------ slices, deaths

    def _slice_due(self) -> int | None:
        """Which slice every shard is to write down with the next batch, which is a matter of rows alone."""
        if self._rows < EVERY:
            return None
        self._rows, turn = 0, self._turn
        self._turn = (turn + 1) % SLICES
        return turn

    def _forget_written(self) -> None:
        """The journal keeps what is in no snapshot.

        A slice that cannot be written down stays as it was, and so does its part of the journal.
        """
        with self._lock:
            oldest = min(int(held.since.min()) for held in self._shards)
            self._journal = [batch for batch in self._journal if batch.number > oldest]

    def _lose(self, held: _Held, public: bool = True) -> None:
        """A shard is lost: nothing reaches it any more. Another one is made in its place, from a public round on."""
        self._place.stop(held.shard)
        held.lost, held.before, held.failures = True, held.before.plus(held.failures), NONE
        held.thread = None
        if public:
            self._replace(held)

    def _replace(self, held: _Held) -> None:
        held.thread = threading.Thread(target=self._bring_back, args=(held,), daemon=True)
        held.thread.start()

    def _bring_back(self, held: _Held) -> None:
        """In a thread of its own, while rounds go on silently."""
        while True:
            with contained:
                shard = self._place.start(self._recipe, held.own)
                parts = [part for part in held.parts if part is not None]
                self._place.finish(self._place.begin([shard], "restore", [parts])[0])
                held.back = shard, self._again(held, shard, 0)
                return
            time.sleep(AGAIN)

    def _again(self, held: _Held, shard: Any, since: int) -> int:
        """Teach a new shard what the journal has after this number; the number that it has reached."""
        with self._lock:
            number, batches = self._number, [batch for batch in self._journal if batch.number > since]
        missing = [held.missing(batch) for batch in batches]
        self._place.finish(self._place.begin([shard], "again", [(number, missing)])[0])
        return number

    def _miss(self, public: bool = True) -> None:
        """Who has not answered, as a call was cut off, is lost."""
        for held in self._shards:
            if not held.lost and held.done != self._number:
                self._lose(held, public)

    def _adopt(self) -> None:
        """A public round begins: who is back takes part again, and for whom a lesson found lost another one is made."""
        for held in self._shards:
            if held.back is not None:
                (held.shard, since), held.back, held.lost = held.back, None, False
                try:
                    held.done = self._again(held, held.shard, since)
                except Lost:
                    self._lose(held)
            elif held.lost and held.thread is None:
                self._replace(held)


def _table(xs: Any) -> Any:
    """Vectors of one length as one array, which travels better, with zeros for None, which nobody reads."""
    if isinstance(xs, np.ndarray):
        return xs
    vectors = [x for x in xs if x is not None]
    shapes = {(x.shape, x.dtype) if isinstance(x, np.ndarray) and x.ndim == 1 else None for x in vectors}
    if len(shapes) != 1 or None in shapes or vectors[0].dtype != np.float64:
        return list(xs)
    nothing = np.zeros_like(vectors[0])
    table = np.array([nothing if x is None else x for x in xs])
    table.flags.writeable = False
    return table


def _own(part: State) -> State:
    """A slice in this process's own memory, wherever it came from."""
    return {name: np.array(a) if isinstance(a, np.ndarray) else a for name, a in part.items()}
