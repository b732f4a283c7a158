"""Copies of a stacked learner side by side in arrays, and compiled kernels for the polled ones."""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable
from typing import Any

import numpy as np

from confide._checks import integer
from confide._jit import jit
from confide.banks.base import State
from confide.learners.base import Arrays, Floats, Ints, Stacked
from confide.learners.features import Encoder, encoder_for
from confide.learners.foreign import as_learner

__all__ = ["StackedBank"]

_UNTAUGHT, _WARMING = -1, -2


class StackedBank:
    """A bank of one of Confide's own learners: linear, naive Bayes, nearest neighbours or trees.

    A copy gets a slot in the arrays when it is first taught, so an untaught copy costs eight bytes. The
    arrays double when they are full. Which slot a copy has is of no consequence; the state does not show it.

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
        self, learner: Stacked, copies: int, labels: int, features: int | Encoder, public_start: bool = False
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
        self._slot = np.full(copies, _UNTAUGHT, dtype=np.int64)
        self._free: list[int] = []

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
        return self._slot.nbytes + sum(array.nbytes for array in self._arrays.values())

    def encode(self, x: Any) -> Floats:
        """x as a new array of the right length; ValueError says what is wrong with it."""
        row: Floats = self._encoder.encode(x)
        return row

    def votes(self, x: Floats, poll: Ints) -> Ints:
        """The votes of the polled copies by label."""
        self._check(x)
        poll = np.asarray(poll, dtype=np.int64)
        slots = _find(self._slot, self._arrays["seen"], self._learner.warmup, poll)
        counts = np.zeros(self._learner.labels, dtype=np.int64)
        if self._start is not None and self._start["seen"][0] >= self._learner.warmup:
            alike = np.zeros_like(counts)
            self._learner.vote(self._start, np.zeros(1, dtype=np.int64), x, alike)
            counts += alike * np.count_nonzero(slots == _UNTAUGHT)
        before = counts.copy()
        try:
            self._learner.vote(self._arrays, slots, x, counts)
        except Exception:  # one copy that fails must not take the others' votes with it
            counts = before
            for slot in slots[slots >= 0]:
                one = np.zeros_like(counts)
                try:
                    self._learner.vote(self._arrays, np.array([slot]), x, one)
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

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything, and wipe their memory."""
        for copy in [integer(copy, "a copy", 0, self._copies - 1) for copy in copies]:
            slot = int(self._slot[copy])
            if slot >= 0:
                for array in self._arrays.values():
                    array[slot] = 0
                self._slot[copy] = _UNTAUGHT
                self._free.append(slot)

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
        self._arrays, self._free = arrays, []
        self._slot[:] = _UNTAUGHT
        self._slot[taught] = np.arange(taught.size)

    def __repr__(self) -> str:
        return f"StackedBank({type(self._learner).__name__}, copies={self._copies})"

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

    def _take(self, copy: int) -> int:
        if not self._free:
            held = self._arrays["seen"].size
            more = min(self._copies, max(16, 2 * held)) - held
            spare = self._learner.allocate(self._features, more)
            self._arrays = {name: np.concatenate((a, spare[name])) for name, a in self._arrays.items()}
            self._free = list(range(held + more - 1, held - 1, -1))
        slot = self._free.pop()
        self._slot[copy] = slot
        if self._start is not None:
            for name, array in self._arrays.items():
                array[slot] = self._start[name][0]
        return slot


@jit
def _find(table: Ints, seen: Ints, warmup: int, poll: Ints) -> Ints:
    """The slot of each polled copy, negative where it abstains."""
    slots = np.empty(poll.size, dtype=np.int64)
    for i in range(poll.size):
        if poll[i] < 0 or poll[i] >= table.size:
            raise ValueError("the poll names a copy that does not exist")
        slot = table[poll[i]]
        slots[i] = slot if slot < 0 or seen[slot] >= warmup else _WARMING
    return slots
