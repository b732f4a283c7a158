"""Copies that are counted when they change, not when they are asked: full polls at a cost that k does not drive.

On a finite domain the bank keeps, for every point, how many copies say 1 there. A question is a lookup. A lesson
changes the counts where one copy's hypothesis moved: one cell for points, two paths of a Fenwick tree (Fenwick, "A New
Data Structure for Cumulative Frequency Tables", 1994) for thresholds and intervals, a row for a class that is
enumerated. A copy is 4 or 8 bytes. Every vote is the one that the learner by itself gives (tests/banks/test_tally.py).

A lesson's time tells whether, and how far, a hypothesis moved: docs/threat-model.md says what to do.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints
from confide.banks.automaton import Automaton, automaton
from confide.banks.base import (
    CURSOR,
    HALTED,
    ROW,
    TAUGHT,
    UNSURE,
    Rounds,
    RowByRow,
    State,
    encode_table,
    in_order,
    lessons_for,
    refuse_others,
    sealed,
)
from confide.banks.rounds import Block, block_of, decide, draw
from confide.kernels.compile import inlined, jit
from confide.kernels.machine import prefetch
from confide.learners.classes import VersionSpace
from confide.learners.features import Encoder, encoder_for
from confide.learners.halving import Halving
from confide.learners.intervals import Intervals, sound_ends, teach_ends
from confide.learners.points import Points
from confide.learners.standard_optimal import StandardOptimal
from confide.learners.thresholds import Thresholds, teach_cut
from confide.privacy.counters import Ticks, tick
from confide.privacy.draws import draw_laplace
from confide.privacy.halting import goes_on

POINTS, CLASS, THRESHOLDS, INTERVALS = range(4)
NOWHERE = -1
"""Where x is no point: all copies abstain, and nothing is learned."""
AHEAD = 64
"""Rows whose copies are sent for together."""

Tallied = Points | Thresholds | Intervals | Halving | StandardOptimal

_NO_TICKS = Ticks(np.zeros(1, np.uint64), np.zeros(2, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64), 1, 1, -1)
"""No counter: a halting table decides."""


class _Tally(NamedTuple):
    """The bank as kernels see it. A place is a point's number, for thresholds and intervals plus 1."""

    kind: int
    points: int
    memory: NDArray[Any]
    """A row for each copy."""
    ones: Ints
    """How many copies say 1: at each place, or as a Fenwick tree of where they begin to, less where they end."""
    moves: NDArray[np.int32]
    answers: NDArray[np.uint8]


@inlined
def _where(tally: _Tally, x: float) -> int:
    if tally.kind <= CLASS:
        return int(x) if 0.0 <= x < tally.points and x == np.floor(x) else NOWHERE
    return int(min(max(x, -1.0), float(tally.points)) // 1.0) + 1


@inlined
def _says_one(tally: _Tally, copy: int) -> tuple[int, int]:
    """The places, from and below, where this copy says 1; not for an enumerated class."""
    memory, points = tally.memory, tally.points
    if tally.kind == POINTS:
        end = int(memory[copy, 0])
        first = max(end - 1, 0)
    elif tally.kind == THRESHOLDS:  # place − 1 = p says 1 iff 2p + 1 − points > cut₀ − cut₁
        first = ((int(memory[copy, 0]) - int(memory[copy, 1]) + points - 1) >> 1) + 2
        end = points + 2
    else:
        first = ((int(memory[copy, 0]) + int(memory[copy, 1]) + 1) >> 1) + 1
        end = ((int(memory[copy, 2]) + int(memory[copy, 3])) >> 1) + 1
        if memory[copy, 3] == 0:
            first = end
    return first, end


@jit
def _add(tree: Ints, place: int, number: int) -> None:
    at = place + 1
    while at < tree.size:
        tree[at] += number
        at += at & -at


@inlined
def _ones_at(tally: _Tally, place: int) -> int:
    """How many copies say 1."""
    if tally.kind <= CLASS:
        return int(tally.ones[place])
    at, ones = place + 1, 0
    while at > 0:
        ones += tally.ones[at]
        at -= at & -at
    return ones


@inlined
def _count(tally: _Tally, copy: int, sign: int) -> None:
    """Add a copy's votes to the counts, or take them out."""
    if tally.kind == CLASS:
        said = tally.answers[tally.memory[copy, 0]]
        for place in range(tally.points):
            tally.ones[place] += sign * said[place]
    elif tally.kind == POINTS:
        if tally.memory[copy, 0] > 0:
            tally.ones[int(tally.memory[copy, 0]) - 1] += sign
    else:
        first, end = _says_one(tally, copy)
        _add(tally.ones, first, sign)
        if tally.kind == INTERVALS:
            _add(tally.ones, end, -sign)


@inlined
def _lesson(tally: _Tally, copy: int, place: int, y: int) -> None:
    memory = tally.memory
    if tally.kind == POINTS:
        if y == 1 and memory[copy, 0] == 0:
            memory[copy, 0] = place + 1
            tally.ones[place] += 1
    elif tally.kind == CLASS:
        after = tally.moves[memory[copy, 0], place, y]
        if after != memory[copy, 0]:
            _count(tally, copy, -1)
            memory[copy, 0] = after
            _count(tally, copy, 1)
    else:
        _count(tally, copy, -1)
        if tally.kind == THRESHOLDS:
            teach_cut(memory[copy], place - 1, tally.points, y)
        else:
            teach_ends(memory[copy], place - 1, tally.points, y)
        _count(tally, copy, 1)


@jit
def _votes(tally: _Tally, poll: Ints, x: float, counts: Ints) -> bool:
    """The votes of these copies, one by one; False where a copy does not exist."""
    place, ones = _where(tally, x), 0
    for copy in poll:
        if copy < 0 or copy >= tally.memory.shape[0]:
            return False
        if place == NOWHERE:
            continue
        if tally.kind == CLASS:
            ones += tally.answers[tally.memory[copy, 0], place]
        else:
            first, end = _says_one(tally, copy)
            ones += first <= place < end
    if place != NOWHERE:
        counts[0], counts[1] = poll.size - ones, ones
    return True


@jit
def _all_votes(tally: _Tally, x: float, counts: Ints) -> None:
    place = _where(tally, x)
    counts[0], counts[1] = 0, 0
    if place != NOWHERE:
        ones = _ones_at(tally, place)
        counts[0], counts[1] = tally.memory.shape[0] - ones, ones


@jit
def _teach(tally: _Tally, copies: Ints, xs: Floats, ys: Ints) -> int:
    """Teach row after row to its copy; how many were taught."""
    taught = 0
    for i in range(ys.size):
        place = _where(tally, xs[i, 0])
        if place != NOWHERE:
            _lesson(tally, copies[i], place, ys[i])
            taught += 1
    return taught


@jit
def _reset(tally: _Tally, copies: Ints) -> None:
    for copy in copies:
        _count(tally, copy, -1)
        tally.memory[copy] = 0
        _count(tally, copy, 1)


@jit
def _recount(tally: _Tally, copies: Ints) -> None:
    for copy in copies:
        _count(tally, copy, 1)


@inlined
def _take(tally: _Tally, rounds: Rounds, ticks: Ticks, block: Block, drawn: int) -> bool:
    """Take the rows that were drawn, until one halts; False where the counter's words ran out."""
    progress, counts, k = rounds.progress, rounds.counts, tally.memory.shape[0]
    for j in range(drawn):
        i, copy, noise, at = progress[ROW], block.copies[j], 0, 0
        live = i >= rounds.silent
        if live and ticks.limit >= 0:
            value, at = draw_laplace(ticks.words, ticks.place[1], ticks.numerator, ticks.denominator)
            if at < 0:
                return False
            noise = int(value)
        place = _where(tally, rounds.xs[i, 0])
        good = place != NOWHERE and not rounds.malformed[i]
        if live:
            ones = _ones_at(tally, place) if good else 0
            counts[0], counts[1] = k - ones if good else 0, ones
            unsure = decide(rounds, i, block.gate[j], block.lean[j])
            if ticks.limit >= 0:
                ticks.place[1] = at
                progress[HALTED] = tick(ticks, unsure, noise) >= ticks.limit
            else:
                progress[HALTED] = not goes_on(block.go[j], rounds.go, progress[UNSURE])
        rounds.copy_of[i], progress[CURSOR] = copy, block.ends[j]
        progress[ROW] += 1
        if rounds.ys[i] >= 0 and good:
            _lesson(tally, copy, place, rounds.ys[i])
            progress[TAUGHT] += 1
        if progress[HALTED]:
            return True
    return True


@jit
def _ask(tally: _Tally, rounds: Rounds, ticks: Ticks) -> None:
    """Ask rows from progress[ROW] on, and teach those that come with a label, until words or budget run out."""
    k, size = tally.memory.shape[0], tally.memory.shape[1] * tally.memory.itemsize
    block = block_of(AHEAD, k, k)
    while rounds.progress[ROW] < rounds.ys.size and rounds.progress[HALTED] == 0:
        drawn = draw(rounds, k, block)
        if drawn == 0:
            return
        for j in range(drawn):
            prefetch(tally.memory.ctypes.data + size * block.copies[j])
        if not _take(tally, rounds, ticks, block, drawn):
            return


class TallyBank(RowByRow):
    """A bank of a learner of a finite class whose votes are tallied: for plans that ask every copy, by the million.

    Parameters
    ----------
    learner
        `Points`, `Thresholds`, `Intervals`, or, for a class so small that all it can come to know is enumerated,
        `Halving` or `StandardOptimal`: a prototype, of which only the parameters are used.
    copies
        The number of copies.
    points
        For `Points` how many there are: x is a whole number from 0 to points − 1. The others know it themselves.
    features
        1, or an encoder whose width is 1.

    Examples
    --------
    >>> bank = TallyBank(Points(), copies=18_000_000, points=1000)
    >>> bank.learn(7, bank.encode([5]), 1)
    >>> bank.tally(bank.encode([5])), bank.nbytes // bank.copies
    (array([17999999,        1]), 4)
    """

    labels = 2

    def __init__(
        self, learner: Tallied, copies: int, *, points: int | None = None, features: int | Encoder = 1
    ) -> None:
        if type(learner) not in (Points, Thresholds, Intervals, Halving, StandardOptimal):
            raise ValueError(
                f"the votes of {type(learner).__name__} cannot be tallied: give Points, Thresholds, Intervals, Halving "
                "or StandardOptimal, or leave the bank out"
            )
        if (points is None) == (type(learner) is Points):
            raise ValueError("give the number of points for Points, and for no other learner")
        self._learner = copying.deepcopy(learner)
        self.copies = integer(copies, "copies", 1, (1 << 31) - 1)
        self._encoder = encoder_for(features)
        if getattr(self._encoder, "width", 0) != 1:
            raise ValueError("x is one number, a point: give features=1")
        self._kind, self._points, width, dtype, self._known = _layout(learner, points)
        try:
            self._memory = np.zeros((self.copies, width), dtype=dtype)
        except MemoryError:
            size = width * np.dtype(dtype).itemsize
            raise ValueError(f"{self.copies:,} copies of {size} bytes each do not fit in memory: take fewer") from None
        self._ones = self._at_start()

    def _at_start(self) -> Ints:
        """The counts when nobody was taught anything: those of one copy, times all."""
        ones = np.zeros(self._points + (0 if self._kind <= CLASS else 4), dtype=np.int64)
        start = self._tally._replace(memory=np.zeros((1, self._memory.shape[1]), self._memory.dtype), ones=ones)
        _recount(start, np.zeros(1, dtype=np.int64))
        return ones * self.copies

    @property
    def _tally(self) -> _Tally:
        ones = getattr(self, "_ones", np.zeros(1, dtype=np.int64))
        return _Tally(self._kind, self._points, self._memory, ones, self._known.moves, self._known.answers)

    @property
    def nbytes(self) -> int:
        """The memory held for the copies and their counts, in bytes."""
        return self._memory.nbytes + self._ones.nbytes

    def encode(self, x: Any) -> Floats:
        """x as a new array of one number; ValueError says what is wrong with it."""
        row: Floats = self._encoder.encode(x)
        self._check(row)
        return row

    def encode_many(self, xs: Any) -> tuple[Floats, dict[int, str]]:
        """All x as rows, and what is wrong with those that are malformed."""
        return encode_table(self._encoder, self.encode, xs, 1)

    def votes(self, x: Floats, poll: Ints) -> Ints:
        """The votes of the polled copies by label, counted one by one; of all of them `tally` knows."""
        self._check(x)
        counts = np.zeros(2, dtype=np.int64)
        if not _votes(self._tally, np.ascontiguousarray(poll, dtype=np.int64), float(x[0]), counts):
            raise ValueError("the poll names a copy that does not exist")
        return counts

    def tally(self, x: Floats) -> Ints:
        """`votes` of all copies: a lookup."""
        self._check(x)
        counts = np.zeros(2, dtype=np.int64)
        _all_votes(self._tally, float(x[0]), counts)
        return counts

    def learn(self, copy: int, x: Floats, y: int) -> None:
        """Teach one copy; ValueError where x is no point."""
        self._check(x)
        copy, y = integer(copy, "a copy", 0, self.copies - 1), integer(y, "a label", 0, 1)
        if not _teach(self._tally, np.array([copy]), np.array([x]), np.array([y])):
            raise ValueError(f"x must be the number of a point, a whole number from 0 to {self._points - 1}")

    def learn_many(self, copies: Ints, xs: Any, ys: Ints) -> int:
        """Teach rows to their copies, in order, but those whose x is no point. How many were taught."""
        xs = np.ascontiguousarray(xs, dtype=np.float64).reshape(-1, 1)
        copies, ys = lessons_for(self, copies, xs, ys)
        return _teach(self._tally, copies, xs, ys)

    @property
    def fuses(self) -> bool:
        """Whether `run` and `run_counted` are there: not for a subclass that votes or learns otherwise."""
        return type(self) is TallyBank

    def run(self, rounds: Rounds) -> None:
        """A chunk of rounds in one compiled loop; every copy is asked."""
        self.run_counted(rounds, _NO_TICKS)

    def run_counted(self, rounds: Rounds, ticks: Ticks) -> None:
        """The same where a noisy counter decides when to halt."""
        if rounds.polls != self.copies:
            raise ValueError("tallied copies are asked all together: plan without polls")
        _ask(self._tally, sealed(rounds), ticks)

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything, and wipe their memory."""
        checked = [integer(copy, "a copy", 0, self.copies - 1) for copy in copies]
        _reset(self._tally, np.array(checked, dtype=np.int64))

    def state(self, trusted: bool = False) -> State:
        """What the copies know that know something: the counts follow from it."""
        taught = np.flatnonzero(self._memory.any(axis=1))
        return {**self._name, "taught": taught, "array memory": self._memory[taught]}

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Take over the state of a bank with the same learner, points and copies."""
        refuse_others(state, self._name)
        taught, memory = np.asarray(state["taught"]), np.asarray(state["array memory"])
        shape = (taught.size, self._memory.shape[1])
        alike = memory.shape == shape and memory.dtype == self._memory.dtype
        if not (in_order(taught, self.copies) and alike and self._sound(memory)):
            raise ValueError("the state is damaged: take an older one")
        self._memory[:] = 0
        self._ones = self._at_start()
        start = self._tally._replace(memory=np.zeros((1, shape[1]), memory.dtype), ones=np.zeros_like(self._ones))
        _recount(start, np.zeros(1, dtype=np.int64))
        self._ones -= start.ones * taught.size
        self._memory[taught] = memory
        _recount(self._tally, taught.astype(np.int64))

    def _sound(self, memory: NDArray[Any]) -> bool:
        """Whether a copy may come to know this: nothing in it leads outside of the counts."""
        rows = memory.astype(np.int64)
        if self._kind == INTERVALS:
            return sound_ends(rows, self._points)
        most = self._known.answers.shape[0] - 1 if self._kind == CLASS else self._points
        return bool((rows.sum(axis=1) <= most).all())

    def __repr__(self) -> str:
        return f"TallyBank({type(self._learner).__name__}, copies={self.copies})"

    @property
    def _name(self) -> dict[str, str | int]:
        return {
            "bank": "TallyBank",
            "learner": repr(self._learner),
            "features": repr(self._encoder),
            "points": self._points,
            "copies": self.copies,
        }

    def _check(self, x: Floats) -> None:
        if not isinstance(x, np.ndarray) or x.dtype != np.float64 or x.shape != (1,):
            raise ValueError("x was not encoded to one number: pass what encode returned")


def _layout(learner: Tallied, points: int | None) -> tuple[int, int, int, Any, Automaton]:
    """Kind, points, numbers a copy and their type, and what an enumerated class can come to know."""
    nothing = Automaton(np.zeros((1, 1, 2), dtype=np.int32), np.zeros((1, 1), dtype=np.uint8))
    if isinstance(learner, Thresholds):
        integer(learner.points, "points", 1, (1 << 32) - 2)
        return THRESHOLDS, learner.points, 2, np.uint32, nothing
    if isinstance(learner, Intervals):
        integer(learner.points, "points", 1, (1 << 16) - 1)  # four numbers in eight bytes
        return INTERVALS, learner.points, 4, np.uint16, nothing
    if isinstance(learner, VersionSpace):
        return CLASS, learner.H.points, 1, np.uint32, automaton(learner)
    assert points is not None
    return POINTS, integer(points, "points", 1, (1 << 32) - 2), 1, np.uint32, nothing
