"""Copies of a stacked learner side by side in arrays, and compiled kernels for the polled ones."""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from confide._checks import integer
from confide.arrays import Floats, Ints, Slots
from confide.banks.base import (
    NONE,
    TAUGHT,
    Failures,
    Rounds,
    RowByRow,
    State,
    encode_table,
    in_order,
    lessons_for,
    read_only,
    refuse_others,
    sealed,
)
from confide.banks.rounds import UNTAUGHT, WARMING, Asked, Copies, ask, count_rows, mark, teach_rows
from confide.banks.trial import stands_still, try_out
from confide.contained import contained
from confide.kernels.compile import jit
from confide.kernels.memory import TEACH, VOTE, kernel
from confide.learners.base import Arrays, Stacked
from confide.learners.called import Called
from confide.learners.features import Encoder, encoder_for
from confide.learners.foreign import as_learner
from confide.privacy.random import Random

_FLOAT = np.dtype(np.float64)  # which a dtype is compared with sooner than with the type


class StackedBank(RowByRow):
    """A bank of one of Confide's own learners: linear, naive Bayes, nearest neighbours or trees.

    All arrays have a row for every copy from the start, so that no lesson ever makes room for itself: how long a lesson
    takes must not tell what others taught. A row that was never touched takes no memory where that is given on demand.

    Parameters are those of `bank_for`; `labels` is their number, and an encoder has a `width`. For learners with a
    `birth` each copy's own randomness comes from `rng`.

    Examples
    --------
    >>> from confide.learners import DecisionTree
    >>> bank = StackedBank(DecisionTree(memory=64), copies=1000, labels=2, features=2)
    >>> for i in range(64):
    ...     bank.learn(7, bank.encode([i % 8, i // 8]), int(i % 8 > 3))
    >>> bank.votes(bank.encode([6, 1]), np.array([3, 7, 9]))
    array([0, 1])
    """

    failures: Failures = NONE
    """Votes lost so far, as a learner of somebody else's raised, of the polls in which one did: for the operator."""

    def __init__(
        self,
        learner: Stacked,
        copies: int,
        labels: int,
        features: int | Encoder,
        public_start: bool = False,
        rng: Random | None = None,
    ) -> None:
        kind = as_learner(learner, labels, keep=public_start)
        if not isinstance(kind, Stacked):
            raise ValueError(f"{type(learner).__name__} does not stack: use a ReplicaBank")
        self._learner = copying.deepcopy(kind)
        self.copies = integer(copies, "copies", 1)
        self._encoder = encoder_for(features)
        self._features = integer(getattr(self._encoder, "width", 0), "the encoder's width", 1)
        stands_still(self._encoder)
        try_out(self._learner, Called(self._learner.labels), self._features, self._encoder)
        self._start = self._learner.learned
        self._rng = Random() if rng is None else rng
        self._arrays = self._allocate()
        if self._start is not None and not self._fits(self._start, 1):
            raise ValueError(f"the prototype has learned from other than {self._features} features")
        self._voter = np.full(copies, UNTAUGHT, dtype=np.int32)  # a copy's own number once it votes
        self._idle = np.empty(0, dtype=np.uint64)  # a bit for every copy that does not vote
        if self._born:
            self._learner.birth(self._arrays, self._rng)  # type: ignore[attr-defined]
            self._voter[:] = np.arange(copies)
        self._mark_idle()

    @property
    def labels(self) -> int:
        """The number of labels."""
        return self._learner.labels

    @property
    def nbytes(self) -> int:
        """The memory held for the copies, in bytes."""
        return self._voter.nbytes + self._idle.nbytes + sum(array.nbytes for array in self._arrays.values())

    def encode(self, x: Any) -> Floats:
        """x as a new array of the right length; ValueError says what is wrong with it."""
        row: Floats = self._encoder.encode(x)
        self._check(row)
        return row

    def votes(self, x: Floats, poll: Ints) -> Ints:
        """The votes of the polled copies by label."""
        self._check(x)
        slots = np.empty(len(poll), dtype=np.int32)
        if not _find(self._voter, np.ascontiguousarray(poll, dtype=np.int64), slots):
            raise ValueError("the poll names a copy that does not exist")
        with contained:
            counts = self._untaught(slots, x)
            self._learner.vote(self._arrays, slots, x, counts)
            return counts
        counts, raised = self._untaught(slots, x), 0
        for slot in slots[slots >= 0]:  # one copy that fails must not take the others' votes with it
            one, lost = np.zeros_like(counts), 1
            with contained:
                self._learner.vote(self._arrays, np.array([slot], dtype=np.int32), x, one)
                counts += one
                lost = 0
            raised += lost
        self.failures = self.failures.plus(Failures(poll.size, raised))
        return counts

    def _untaught(self, slots: Slots, x: Floats) -> Ints:
        """The votes of those that were never taught: they all say what the prototype says, which may be nothing."""
        counts: Ints = np.zeros(self._learner.labels, dtype=np.int64)
        if self._start is not None and self._start["seen"][0] >= self._learner.warmup:
            self._learner.vote(self._start, np.zeros(1, dtype=np.int32), x, counts)
            counts *= np.count_nonzero(slots == UNTAUGHT)
        return counts

    def learn(self, copy: int, x: Floats, y: int) -> None:
        """Teach one copy."""
        self._check(x)
        if not (type(copy) is type(y) is int and 0 <= copy < self.copies and 0 <= y < self._learner.labels):
            copy = integer(copy, "a copy", 0, self.copies - 1)
            y = integer(y, "a label", 0, self._learner.labels - 1)
        arrays, learner = self._arrays, self._learner
        if self._start is not None and self._voter[copy] == UNTAUGHT:
            for name, array in arrays.items():
                array[copy] = self._start[name][0]
        counts = arrays["seen"]
        seen = counts.item(copy)
        learner.teach(arrays, copy, seen, x, y)
        counts[copy] = seen + 1
        mark(self._voter, self._idle, copy, copy if seen + 1 >= learner.warmup else WARMING)

    def encode_many(self, xs: Any) -> tuple[Floats, dict[int, str]]:
        """All x as rows, and what is wrong with those that are malformed."""
        return encode_table(self._encoder, self.encode, xs, self._features)

    def learn_many(self, copies: Ints, xs: Floats, ys: Ints) -> int:
        """Teach rows to their copies, in order, in one compiled loop where there is one. How many were taught."""
        xs = np.ascontiguousarray(xs, dtype=np.float64).reshape(-1, self._features)
        copies, ys = lessons_for(self, copies, xs, ys)
        if not self.fuses:
            return super().learn_many(copies, xs, ys)
        progress = np.zeros(5, dtype=np.int64)
        _, teach, ours = self._kernels()
        teach_rows(teach, ours, progress, copies, xs, ys)
        return int(progress[TAUGHT])

    @property
    def fuses(self) -> bool:
        """Whether `run` is there: whether the learner has kernels for compiled loops."""
        return type(self) is StackedBank and self._learner.compiled() is not None

    def run(self, rounds: Rounds) -> None:
        """A chunk of rounds in one compiled loop (`confide.banks.rounds`)."""
        ask(*self._kernels(), sealed(rounds))

    def count_rows(self, asked: Asked) -> tuple[Ints, Ints]:
        """Votes row by row, each row's lesson after its votes, and which lessons were taught: for `fuses` alone."""
        xs = np.require(asked.xs, np.float64, ["C", "W"]).reshape(-1, self._features)
        polls, ends, wanted, copies, ys = map(read_only, (asked.polls, asked.ends, asked.asked, asked.copies, asked.ys))
        asked = Asked(asked.first, asked.end, polls, ends, wanted, copies, xs, ys)
        counts, taught = np.zeros((len(xs), self.labels), dtype=np.int64), np.zeros(len(xs), dtype=np.int64)
        count_rows(*self._kernels(), asked, counts, taught)
        return counts, taught

    def _kernels(self) -> tuple[Any, Any, Copies]:
        kernels = self._learner.compiled()
        assert kernels is not None
        start = np.empty((0, 5), dtype=np.int64) if self._start is None else self._start.memory
        vote, teach = kernel(kernels[0], VOTE), kernel(kernels[1], TEACH)
        constants, warmup = self._learner.constants(), self._learner.warmup
        return vote, teach, Copies(self._arrays.memory, start, constants, warmup, self._voter, self._idle)

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything, and wipe their memory."""
        for copy in [integer(copy, "a copy", 0, self.copies - 1) for copy in copies]:
            for array in self._arrays.values():
                array[copy] = 0
            if self._born:
                fresh = self._learner.allocate(self._features, 1)
                self._learner.birth(fresh, self._rng)  # type: ignore[attr-defined]
                for name, array in fresh.items():
                    self._arrays[name][copy] = array[0]
            else:
                mark(self._voter, self._idle, copy, UNTAUGHT)

    def state(self, trusted: bool = False) -> State:
        """Everything the copies know, as plain arrays in the order of the copies."""
        return self.part(range(self.copies))

    def part(self, among: range) -> State:
        """What these copies know: `load_state` of another bank like this one goes on from there."""
        taught = np.flatnonzero(self._voter[among.start : among.stop] != UNTAUGHT) + among.start
        return {**self._name, "taught": taught, **{f"array {name}": a[taught] for name, a in self._arrays.items()}}

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Take over the state of a bank with the same learner, copies, labels and features."""
        refuse_others(state, self._name)
        taught = np.asarray(state["taught"])
        arrays = Arrays({name: np.asarray(state[f"array {name}"]) for name in self._arrays})
        if not (in_order(taught, self.copies) and self._fits(arrays, taught.size) and self._learner.sound(arrays)):
            raise ValueError("the state is damaged: take an older one")
        self._arrays = self._allocate()
        for name, array in arrays.items():
            self._arrays[name][taught] = array
        self._voter[:] = UNTAUGHT
        votes = (arrays["seen"] >= self._learner.warmup) | self._born
        self._voter[taught] = np.where(votes, taught, WARMING)
        self._mark_idle()

    def __repr__(self) -> str:
        return f"StackedBank({type(self._learner).__name__}, copies={self.copies})"

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in ("_voter", "_idle"):  # what came from a read-only file must be writable again
            setattr(self, name, np.require(state[name], requirements=["C", "W"]))
        self._arrays = Arrays({name: np.require(a, requirements=["C", "W"]) for name, a in self._arrays.items()})

    @cached_property
    def _name(self) -> dict[str, str | int]:
        """Whose state it is. Parameters do not change, and to read them from a signature takes long."""
        return {
            "bank": "StackedBank",
            "learner": repr(self._learner),
            "features": repr(self._encoder),
            "copies": self.copies,
        }

    def _allocate(self) -> Arrays:
        try:
            return self._learner.allocate(self._features, self.copies)
        except MemoryError:
            one = sum(array.nbytes for array in self._learner.allocate(self._features, 1).values())
            raise ValueError(
                f"{self.copies:,} copies of {one:,} bytes each do not fit in memory: take fewer copies, fewer "
                "features, or a learner that keeps less"
            ) from None

    def _fits(self, arrays: Arrays, slots: int) -> bool:
        ours = self._arrays.items()
        return all((arrays[n].dtype, arrays[n].shape) == (a.dtype, (slots, *a.shape[1:])) for n, a in ours)

    def _check(self, x: Floats) -> None:
        if type(x) is np.ndarray and x.dtype is _FLOAT and x.shape == (self._features,):
            return  # as nearly all are
        if not isinstance(x, np.ndarray) or x.dtype != _FLOAT or x.shape != (self._features,):
            raise ValueError("x was not encoded to the right number of features: pass what encode returned")

    @property
    def _born(self) -> bool:
        """Whether copies draw something of their own before they learn anything."""
        return hasattr(self._learner, "birth")

    def _mark_idle(self) -> None:
        """Bring the bits up to date."""
        bits = np.zeros(-(-self.copies // 64) * 64, dtype=np.uint8)
        bits[: self.copies] = self._voter < 0
        self._idle = np.packbits(bits, bitorder="little").view(np.uint64)


@jit
def _find(voters: Slots, poll: Ints, slots: Slots) -> bool:
    """Write the slot of each polled copy over `slots`, negative where it abstains; whether there are all of them."""
    for i in range(poll.size):
        if poll[i] < 0 or poll[i] >= voters.size:
            return False
        slots[i] = voters[poll[i]]
    return True
