"""A part of a bank's copies, in whatever process or thread it lives: what `confide.banks.shards` sends to, and asks."""

from __future__ import annotations

import copy as copying
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Ints, Slots
from confide.banks.base import NONE, Failures, State
from confide.banks.choose import bank_for
from confide.banks.replicas import ReplicaBank
from confide.banks.rounds import Asked
from confide.banks.stacked import StackedBank
from confide.contained import contained
from confide.learners.called import Labels
from confide.privacy.random import Random

__all__ = ["NOBODY", "SLICES", "Answer", "Batch", "Recipe", "Shard", "cut", "divided", "joined", "lessons_of"]

SLICES = 8
"""Parts of a shard's copies that have snapshots of their own."""

NOBODY = np.empty(0, dtype=np.uint16), np.empty(0, dtype=np.int64)
"""Polls and ends of a batch in which nobody is asked, or everybody."""


class Recipe(NamedTuple):
    """What every shard makes its bank of, as `bank_for` takes it."""

    learner: Any
    copies: int
    labels: Labels
    features: Any
    rng: Random | None
    """None for secure ones: each bank then has a generator of its own, which never travels."""
    public_start: bool

    def make(self) -> StackedBank | ReplicaBank:
        """A bank of all copies, the same wherever it is made."""
        rng = Random() if self.rng is None else copying.deepcopy(self.rng)
        bank = bank_for(self.learner, self.copies, self.labels, self.features, rng, self.public_start)
        assert isinstance(bank, StackedBank | ReplicaBank)
        return bank


class Batch(NamedTuple):
    """What a shard is sent: the same as all others, but for the polls."""

    number: int
    xs: Any
    copies: Ints
    ys: Ints
    """−1 for no lesson."""
    polls: NDArray[Any]
    """Who of its copies is asked, row after row, by their numbers less the first one's."""
    ends: Ints
    """Where each row ends in it; empty where all copies are asked."""
    asked: Flags
    resets: tuple[int, ...] = ()
    """Copies that forget everything, before anything else."""
    part: range | None = None
    """Copies to write down, after everything else."""


class Answer(NamedTuple):
    """What a shard made of a batch."""

    counts: Slots
    taught: Flags
    failures: Failures
    part: State | None = None
    """The copies that were to be written down; None also where one of them cannot be."""


class Shard:
    """A range of copies, in whatever process or thread it lives."""

    def __init__(self, recipe: Recipe, first: int, end: int) -> None:
        self._bank, self._own, self._done = recipe.make(), range(first, end), 0
        self._answer: Answer | None = None
        self._lost = NONE

    def apply(self, batch: Batch) -> Answer:
        """The next batch, once; the one before is answered again as it was."""
        if batch.number == self._done and self._answer is not None:
            return self._answer
        if batch.number != self._done + 1:
            raise LookupError(f"batch {batch.number} does not follow on {self._done}")
        answer = self._take(batch)
        part = None if batch.part is None else self._part(batch.part)
        self._answer, self._done = Answer(*answer[:-1], part), batch.number
        return self._answer

    def again(self, given: tuple[int, Sequence[Batch]]) -> None:
        """Lessons of before, in order; the number that was reached by all shards."""
        for batch in given[1]:
            self._take(batch)
        self._done, self._answer = given[0], None

    def restore(self, parts: Sequence[State]) -> None:
        """Go on from slices that another one wrote down."""
        if parts:
            self._bank.load_state(joined(parts), trusted=True)

    def load(self, state: State) -> list[State]:
        """Take over a saved state, of which its own copies alone are kept; their slices."""
        self._bank.load_state(cut(state, self._own), trusted=True)
        return [self._bank.part(among) for among in divided(self._own, SLICES)]

    def state(self, trusted: bool) -> State:
        """Its copies as `Bank.state` says them."""
        return self._bank.state(trusted)

    def size(self, _: None = None) -> int:
        """Bytes held for its copies."""
        share = len(self._own) / self._bank.copies if isinstance(self._bank, StackedBank) else 1
        return int(self._bank.nbytes * share)

    def _part(self, among: range) -> State | None:
        """A slice; None where a copy cannot be written down, by what it learned: that stays inside, too."""
        with contained:
            return self._bank.part(among)
        return None

    def _take(self, batch: Batch) -> Answer:
        rows = len(batch.ys)
        counts, taught = np.zeros((rows, self._bank.labels), dtype=np.int64), np.zeros(rows, dtype=np.int64)
        self._bank.reset([copy for copy in batch.resets if copy in self._own])
        with contained:
            if rows and isinstance(self._bank, StackedBank) and self._bank.fuses:
                own, given = self._own, (batch.polls, batch.ends, batch.asked, batch.copies, batch.xs, batch.ys)
                counts, taught = self._bank.count_rows(Asked(own.start, own.stop, *given))
            elif rows:
                self._one_by_one(batch, counts, taught)
        return Answer(counts.astype(np.int32), taught > 0, self._bank.failures.plus(self._lost))

    def _one_by_one(self, batch: Batch, counts: Ints, taught: Ints) -> None:
        """Rows up to the next lesson of a copy that is here are asked together, by banks that can."""
        own = (batch.ys >= 0) & (batch.copies >= self._own.start) & (batch.copies < self._own.stop)
        lessons = np.flatnonzero(own)
        if not batch.asked.any():
            rows: Any = [_row(batch.xs, i) for i in lessons.tolist()]
            number = self._bank.learn_many(batch.copies[lessons], rows, batch.ys[lessons])
            taught[lessons[:number]] = 1  # nobody is asked, so nobody halts: which of them does not matter
            return
        start = 0
        for i in [*lessons.tolist(), len(taught) - 1]:
            self._count(batch, np.flatnonzero(batch.asked[start : i + 1]) + start, counts)
            if own[i] and start <= i:
                with contained:
                    self._bank.learn(int(batch.copies[i]), _row(batch.xs, i), int(batch.ys[i]))
                    taught[i] = 1
            start = i + 1

    def _count(self, batch: Batch, rows: Ints, counts: Ints) -> None:
        if not rows.size:
            return
        mine = [np.arange(self._own.start, self._own.stop)] * rows.size
        if batch.ends.size:
            each = np.split(batch.polls.astype(np.int64) + self._own.start, batch.ends[:-1])
            mine = [each[row] for row in rows.tolist()]
        xs = [batch.xs[i] for i in rows.tolist()]
        lost = sum(poll.size for poll in mine)
        with contained:
            if isinstance(self._bank, ReplicaBank):
                counts[rows] = self._bank.votes_many(xs, mine)
            else:
                counts[rows] = [self._bank.votes(x, poll) for x, poll in zip(xs, mine, strict=True)]
            lost = 0
        self._lost = self._lost.plus(Failures(lost, lost))


def divided(copies: range, parts: int) -> list[range]:
    """So many ranges, about alike."""
    edges = np.linspace(copies.start, copies.stop, parts + 1).astype(np.int64).tolist()
    return [range(*pair) for pair in pairwise(edges)]


def joined(states: Sequence[State]) -> State:
    """One state of the copies in these, which are in the order of their numbers."""
    arrays = [name for name, value in states[0].items() if isinstance(value, np.ndarray)]
    return {**states[0], **{name: np.concatenate([np.asarray(one[name]) for one in states]) for name in arrays}}


def cut(state: State, own: range) -> State:
    """Of a state, what is of these copies."""
    taught = np.asarray(state.get("taught", [1, 0]))
    if taught.ndim != 1 or not (np.diff(taught) > 0).all():
        raise ValueError("the state is damaged: take an older one")
    first, end = np.searchsorted(taught, (own.start, own.stop)).tolist()
    part = {name: a[first:end] if isinstance(a, np.ndarray) else a for name, a in state.items()}
    if "sizes" in state:
        ends = [0, *np.cumsum(np.asarray(state["sizes"])).tolist()]
        blob = np.asarray(state["pickles"])
        if len(ends) != taught.size + 1 or ends[-1] != blob.size:
            raise ValueError("the state is damaged: take an older one")
        part["pickles"] = blob[ends[first] : ends[end]]
    return part


def lessons_of(number: int, xs: Any, copies: Ints, ys: Ints, rows: Ints, resets: tuple[int, ...]) -> Batch:
    """The lessons in these rows, which nobody else can change, and resets."""
    kept = xs[rows] if isinstance(xs, np.ndarray) else [copying.copy(xs[i]) for i in rows.tolist()]
    return Batch(number, kept, copies[rows], ys[rows], *NOBODY, np.zeros(rows.size, dtype=np.bool_), resets)


def _row(xs: Any, i: int) -> Any:
    """A row for a learner, which may keep it."""
    x = xs[i]
    if isinstance(xs, np.ndarray):
        x = x.copy()
        x.flags.writeable = False
    return x
