"""Copies of a stacked learner side by side in arrays, and compiled kernels for the polled ones."""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.banks.base import State
from confide.banks.rounds import FREE, TAUGHT, UNTAUGHT, WARMING, ask, teach_rows
from confide.kernels.compile import jit
from confide.kernels.memory import TEACH, VOTE, Descriptor, describe, kernel
from confide.learners.base import Arrays, Floats, Ints, Slots, Stacked, holds_all
from confide.learners.features import Columns, Encoder, encoder_for
from confide.learners.foreign import as_learner
from confide.privacy.random import Random

__all__ = ["StackedBank"]

class StackedBank:
    """A bank of one of Confide's own learners: linear, naive Bayes, nearest neighbours or trees.

    A copy gets a slot in the arrays when it is first taught, so an untaught copy costs eight bytes and a bit. The
    arrays double when they are full; once there are slots for all copies, a copy's slot is its own number. Which slot a
    copy has is of no consequence; the state does not show it.

    Parameters
    ----------
    learner
        The prototype: never taught, only its parameters are used.
    copies
        The number of copies.
    labels
        The number of labels.
    features
        The number of features, or an encoder with a `width`.
    public_start
        Start every copy from what the prototype has learned. For prototypes trained on public data only.
    rng
        For learners with a `birth`: where each copy's own randomness comes from.

    Examples
    --------
    >>> from confide.learners import DecisionTree
    >>> bank = StackedBank(DecisionTree(memory=64), copies=1000, labels=2, features=2)
    >>> for i in range(64):
    ...     bank.learn(7, bank.encode([i % 8, i // 8]), int(i % 8 > 3))
    >>> bank.votes(bank.encode([6, 1]), np.array([3, 7, 9]))
    array([0, 1])
    """

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
        self._copies = integer(copies, "copies", 1)
        self._encoder = encoder_for(features)
        self._features = integer(getattr(self._encoder, "width", 0), "the encoder's width", 1)
        self._arrays: Arrays = kind.allocate(self._features, 0)
        self._start = self._learner.learned
        if self._start is not None and not self._fits(self._start, 1):
            raise ValueError(f"the prototype has learned from other than {self._features} features")
        self._slot = np.full(copies, UNTAUGHT, dtype=np.int32)
        self._voter = self._slot.copy()  # the same, but for copies that still warm up
        self._idle = np.empty(0, dtype=np.uint64)  # a bit for every copy that does not vote
        self._free = np.empty(0, dtype=np.int32)  # slots that no copy has, the next one last; not in a dense bank
        self._mark_idle()
        self._described: tuple[Descriptor, Descriptor] | None = None  # addresses: never copied with the bank
        if hasattr(self._learner, "birth"):
            self._rng = Random() if rng is None else rng
            self._arrays = self._born(copies)
            self._slot[:] = self._voter[:] = np.arange(copies)
            self._mark_idle()

    @property
    def copies(self) -> int:
        """The number of copies."""
        return self._copies

    @property
    def labels(self) -> int:
        """The number of labels."""
        return self._learner.labels

    @property
    def nbytes(self) -> int:
        """The memory held for the copies, in bytes."""
        tables = sum(table.nbytes for table in (self._slot, self._voter, self._idle, self._free))
        return tables + sum(array.nbytes for array in self._arrays.values())

    def encode(self, x: Any) -> Floats:
        """x as a new array of the right length; ValueError says what is wrong with it."""
        row: Floats = self._encoder.encode(x)
        return row

    def votes(self, x: Floats, poll: Ints) -> Ints:
        """The votes of the polled copies by label."""
        self._check(x)
        poll = np.asarray(poll, dtype=np.int64)
        slots = _find(self._voter, poll)
        counts = np.zeros(self._learner.labels, dtype=np.int64)
        if self._start is not None and self._start["seen"][0] >= self._learner.warmup:
            alike = np.zeros_like(counts)
            self._learner.vote(self._start, np.zeros(1, dtype=np.int32), x, alike)
            counts += alike * np.count_nonzero(slots == UNTAUGHT)
        before = counts.copy()
        try:
            self._learner.vote(self._arrays, slots, x, counts)
        except Exception:  # one copy that fails must not take the others' votes with it
            counts = before
            for slot in slots[slots >= 0]:
                one = np.zeros_like(counts)
                try:
                    self._learner.vote(self._arrays, np.array([slot], dtype=np.int32), x, one)
                except Exception:
                    continue
                counts += one
        return counts

    def learn(self, copy: int, x: Floats, y: int) -> None:
        """Teach one copy."""
        self._check(x)
        copy = integer(copy, "a copy", 0, self._copies - 1)
        y = integer(y, "a label", 0, self._learner.labels - 1)
        slot = int(self._slot[copy])
        if slot < 0:
            slot = self._take(copy)
        seen = int(self._arrays["seen"][slot])
        self._learner.teach(self._arrays, slot, seen, x, y)
        self._arrays["seen"][slot] = seen + 1
        self._voter[copy] = slot if seen + 1 >= self._learner.warmup else WARMING
        self._mark_idle(copy)

    @property
    def compiles(self) -> bool:
        """Whether `ask_rows` and `learn_rows` are there: whether the learner has kernels for compiled loops."""
        return self._learner.compiled() is not None

    def encode_many(self, xs: Any) -> tuple[Floats, NDArray[np.bool_], dict[int, str]]:
        """All x as rows, which of them are malformed, and what is wrong with those."""
        table = type(xs) is np.ndarray and xs.ndim == 2 and xs.dtype.kind in "fiub"
        if table and type(self._encoder) is Columns and xs.shape[1] == self._features:
            rows = np.array(xs, dtype=np.float64, order="C")
            malformed = ~holds_all(rows)
            wrong = "x has a NaN, an infinity or a number above float32's range: clean it first"
            return rows, malformed, {int(i): wrong for i in np.flatnonzero(malformed)}
        rows, malformed = np.zeros((len(xs), self._features)), np.zeros(len(xs), dtype=np.bool_)
        errors: dict[int, str] = {}
        for i, x in enumerate(xs):
            try:
                row = self.encode(x)
                self._check(row)
                rows[i] = row
            except ValueError as error:
                malformed[i], errors[i] = True, str(error)
            except Exception:  # whatever x is, its round goes on as any other
                malformed[i], errors[i] = True, "x is not of a form that this POP takes"
        return rows, malformed, errors

    def learn_rows(self, copies: Ints, xs: Floats, ys: Ints) -> int:
        """Teach rows to their copies, in order, in one compiled loop. How many were taught."""
        kernels = self._learner.compiled()
        assert kernels is not None
        progress = np.zeros(6, dtype=np.int64)
        n, k, labels = ys.size, self._copies, self._learner.labels
        if xs.shape != (n, self._features) or copies.size != n:
            raise ValueError("the lessons do not fit this bank: give an encoded x, a copy and a label for each")
        if n and not (0 <= copies.min() <= copies.max() < k and 0 <= ys.min() <= ys.max() < labels):
            raise ValueError("the lessons name a copy or a label that does not exist")
        memory = self._memory(n, progress)
        try:
            teach_rows(kernel(kernels[1], TEACH), *memory, progress, copies, np.ascontiguousarray(xs), ys)
        finally:  # an interrupt comes when the loop is done
            self._free = self._free[: progress[FREE]]
        return int(progress[TAUGHT])

    def ask_rows(self, progress: Ints, lessons: int, *args: Any) -> None:
        """`confide.banks.rounds.ask` with this bank's memory; room is made for so many lessons."""
        kernels = self._learner.compiled()
        assert kernels is not None
        vote, teach = kernel(kernels[0], VOTE), kernel(kernels[1], TEACH)
        memory = self._memory(lessons, progress)
        try:
            ask(vote, teach, *memory, *args)
        finally:  # an interrupt comes when the loop is done
            self._free = self._free[: progress[FREE]]

    def _memory(
        self, lessons: int, progress: Ints
    ) -> tuple[Descriptor, Descriptor, Floats, int, Slots, Slots, NDArray[np.uint64], Slots]:
        self.make_room(lessons)
        if self._described is None:
            start = np.empty((0, 5), dtype=np.int64) if self._start is None else describe(self._start)
            self._described = describe(self._arrays), start
        progress[FREE] = self._free.size
        constants, warmup = self._learner.constants(), self._learner.warmup
        return *self._described, constants, warmup, self._slot, self._voter, self._idle, self._free

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything, and wipe their memory."""
        for copy in [integer(copy, "a copy", 0, self._copies - 1) for copy in copies]:
            slot = int(self._slot[copy])
            if slot >= 0:
                for array in self._arrays.values():
                    array[slot] = 0
                if hasattr(self._learner, "birth"):
                    for name, array in self._born(1).items():
                        self._arrays[name][slot] = array[0]
                    continue
                self._slot[copy] = self._voter[copy] = UNTAUGHT
                self._mark_idle(copy)
                if not self._dense:
                    self._free = np.append(self._free, np.int32(slot))

    def state(self, trusted: bool = False) -> State:
        """Everything the copies know, as plain arrays in the order of the copies."""
        taught = np.flatnonzero(self._slot >= 0)
        known = {f"array {name}": array[self._slot[taught]] for name, array in self._arrays.items()}
        return {**self._name(), "taught": taught, **known}

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Take over the state of a bank with the same learner, copies, labels and features."""
        for key, value in self._name().items():
            if state.get(key) != value:
                raise ValueError(f"the state belongs to another bank: its {key} is not {value}")
        taught = np.asarray(state["taught"])
        arrays: Arrays = {name: np.array(state[f"array {name}"], order="C") for name in self._arrays}
        in_order = (np.diff(taught) > 0).all() and ((taught >= 0) & (taught < self._copies)).all()
        if not (in_order and self._fits(arrays, taught.size) and self._learner.sound(arrays)):
            raise ValueError("the state is damaged: take an older one")
        self._arrays = self._learner.allocate(self._features, taught.size)
        for name, array in arrays.items():
            self._arrays[name][:] = array
        self._free, self._described = np.empty(0, dtype=np.int32), None
        self._slot[:] = self._voter[:] = UNTAUGHT
        self._slot[taught] = np.arange(taught.size)
        self._voter[taught] = np.where(arrays["seen"] >= self._learner.warmup, self._slot[taught], WARMING)
        self._mark_idle()

    def __repr__(self) -> str:
        return f"StackedBank({type(self._learner).__name__}, copies={self._copies})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_described": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in ("_slot", "_voter", "_idle", "_free"):  # what came from a read-only file must be writable again
            setattr(self, name, np.require(state[name], requirements=["C", "W"]))
        self._arrays = {name: np.require(array, requirements=["C", "W"]) for name, array in self._arrays.items()}

    def _name(self) -> dict[str, str | int]:
        return {
            "bank": "StackedBank",
            "learner": repr(self._learner),
            "features": repr(self._encoder),
            "copies": self._copies,
        }

    def _fits(self, arrays: Arrays, slots: int) -> bool:
        ours = self._arrays.items()
        return all((arrays[n].dtype, arrays[n].shape) == (a.dtype, (slots, *a.shape[1:])) for n, a in ours)

    def _check(self, x: Floats) -> None:
        if not isinstance(x, np.ndarray) or x.dtype != np.float64 or x.shape != (self._features,):
            raise ValueError("x was not encoded: pass what encode returned")

    def _born(self, slots: int) -> Arrays:
        """Slots of learners that draw something of their own before they learn anything."""
        arrays = self._learner.allocate(self._features, slots)
        self._learner.birth(arrays, self._rng)  # type: ignore[attr-defined]
        return arrays

    @property
    def _dense(self) -> bool:
        """Whether there are slots for all copies: then a copy's slot is its own number."""
        return self._arrays["seen"].size == self._copies

    def make_room(self, lessons: int) -> None:
        """Have slots ready for so many copies that were never taught, as far as there are copies."""
        held = self._arrays["seen"].size
        more = min(lessons, self._copies - held + self._free.size) - self._free.size
        if self._dense or more <= 0:
            return
        size = min(self._copies, held + max(more, held, 16))
        grown, taught = self._learner.allocate(self._features, size), np.flatnonzero(self._slot >= 0)
        places = taught if size == self._copies else self._slot[taught]
        for name, array in self._arrays.items():
            grown[name][places] = array[self._slot[taught]]
        slot, voter = self._slot.copy(), self._voter.copy()
        slot[taught] = places
        voter[taught] = np.where(voter[taught] >= 0, places, voter[taught])
        spare = np.arange(size - 1, held - 1, -1, dtype=np.int32)
        free = spare[:0] if size == self._copies else np.append(spare, self._free)
        # All at once: an interrupt in between must not leave slots that point into other arrays.
        vars(self).update(_slot=slot, _voter=voter, _free=free, _arrays=grown, _described=None)

    def _mark_idle(self, copy: int | None = None) -> None:
        """Bring the bits up to date: of one copy, or of all."""
        if copy is None:
            bits = np.zeros(-(-self._copies // 64) * 64, dtype=np.uint8)
            bits[: self._copies] = self._voter < 0
            self._idle = np.packbits(bits, bitorder="little").view(np.uint64)
        elif self._voter[copy] < 0:
            self._idle[copy >> 6] |= np.uint64(1 << (copy & 63))
        else:
            self._idle[copy >> 6] &= ~np.uint64(1 << (copy & 63))

    def _take(self, copy: int) -> int:
        self.make_room(1)
        slot = copy
        if not self._dense:
            slot, self._free = int(self._free[-1]), self._free[:-1]
        self._slot[copy] = slot  # it votes once its first lesson is learned
        if self._start is not None:
            for name, array in self._arrays.items():
                array[slot] = self._start[name][0]
        return slot


@jit
def _find(voters: Slots, poll: Ints) -> Slots:
    """The slot of each polled copy, negative where it abstains."""
    slots = np.empty(poll.size, dtype=np.int32)
    for i in range(poll.size):
        if poll[i] < 0 or poll[i] >= voters.size:
            raise ValueError("the poll names a copy that does not exist")
        slots[i] = voters[poll[i]]
    return slots
