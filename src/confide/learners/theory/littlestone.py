"""Finite classes and their Littlestone dimension: how often the best learner can be made to err.

Claims and proofs: docs/proofs/learners.md.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.arrays import Words
from confide.learners.theory.search import pack, sauer, search

_LOCK = threading.RLock()
_MOST_ENTRIES = 1 << 16
_PLACES = 18  # of the memo: at most 2¹⁸, and 16 MiB


class FiniteClass:
    """Finitely many functions from points 0 … m−1 to labels 0 and 1, with what is worked out about them.

    The class is public, and everything here is a pure function of it. Copies of a learner share one object without
    sharing anything about people: what is kept is about the class as a whole, and what labels leave of it is worked out
    anew each time it is asked for, so that the time of a lesson does not tell whether another copy had the same one. It
    cannot be changed, and a copy of it is itself.

    Parameters
    ----------
    H
        One row for each function, one column for each point, of 0 and 1. Equal rows count once.

    Examples
    --------
    >>> H = FiniteClass([[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]])
    >>> H.hypotheses, H.points, H.dimension()
    (4, 3, 2)
    """

    pure = True

    def __init__(self, H: ArrayLike | FiniteClass) -> None:
        table = np.asarray(H.table if isinstance(H, FiniteClass) else H)
        if table.ndim != 2 or table.size == 0:
            raise ValueError("H must be a two-dimensional array, hypotheses × points, with at least one of each")
        if table.dtype.kind not in "biuf" or not np.isin(table, (0, 1)).all():
            raise ValueError("H must hold labels 0 and 1 only")
        self.table: NDArray[np.uint8]
        self.table, self.first = np.unique(table.astype(np.uint8), axis=0, return_index=True)
        self.table.flags.writeable = False
        self.hypotheses, self.points = int(self.table.shape[0]), int(self.table.shape[1])
        self.columns = pack(np.ascontiguousarray(self.table.T))  # bit h of row x: what h says about x
        self.everyone = pack(np.ones((1, self.hypotheses), dtype=np.uint8))[0]
        for shared in (self.columns, self.everyone):
            shared.flags.writeable = False
        shape = f"{self.hypotheses} × {self.points} "
        self.digest = hashlib.blake2b(shape.encode() + self.table.tobytes(), digest_size=16).hexdigest()
        flipped = self.table ^ self.table[0]  # a column and its complement split alike
        useful = np.unique(flipped, axis=1)
        useful = useful[:, useful.any(axis=0)] if self.hypotheses > 1 else useful[:, :1]
        self._rows = pack(np.ascontiguousarray(useful))
        self._sums = sauer(useful.shape[1], self.hypotheses.bit_length())

    def memo(self, alive: Words | None = None) -> Memo:
        """Room for what is worked out about the class, or about what is left of it: for public questions only."""
        words = 2 * self._rows.shape[1]
        size = self.points * (self.hypotheses if alive is None else int(np.bitwise_count(alive).sum()))
        places = 1 << min(_PLACES, max(8, size.bit_length()), max(1, 21 - words.bit_length()))
        keys = np.zeros((places, words), dtype=np.uint64)
        return Memo(keys, np.zeros((places, 2), dtype=np.int8), {}, {}, threading.RLock())

    def _memo(self, alive: Words) -> Memo:
        """The one that is kept, for the class as a whole; for what labels leave of it, one that is thrown away."""
        if alive is not self.everyone:
            return self.memo(alive)
        with _LOCK:  # not an attribute: who walks through a learner to reseed or to weigh it need not come by here
            memo = _MEMOS.get(self)
            if memo is None:
                memo = _MEMOS[self] = self.memo()
            return memo

    def dimension(self, alive: Words | None = None, memo: Memo | None = None) -> int:
        """The Littlestone dimension of the class, or of what labelled points leave of it (−1 for nothing).

        `alive` has a bit for each row of `table`, as `restrict` makes it. What is found goes into `memo`.
        """
        alive = self.everyone if alive is None else alive
        memo = self._memo(alive) if memo is None else memo
        name = alive.tobytes()
        with memo.lock:
            known = memo.dimensions
            if name not in known:
                if len(known) >= _MOST_ENTRIES:
                    known.clear()
                if not self._whole(alive):
                    raise ValueError("alive is not what labelled points leave of the class: make a class of its own")
                depth = -1
                while self._shatters(alive, depth + 1, memo):
                    depth += 1
                known[name] = depth
            return known[name]

    def _shatters(self, alive: Words, depth: int, memo: Memo) -> bool:
        """Whether what is alive shatters a complete tree of this depth."""
        size = int(np.bitwise_count(alive).sum())
        if size < 1 << depth:
            return False
        if depth <= 1:
            return True
        chosen = self._rows[self._picked(alive)]  # a copy: the search changes the order of its rows
        with memo.lock:  # the kernel lets go of the interpreter's lock
            return search(chosen, depth, self._sums, memo.keys, memo.bounds)

    def restrict(self, alive: Words, point: int, label: int) -> Words:
        """What is left when `point` has `label`."""
        column = self.columns[point]
        left: Words = alive & (column if label else ~column)
        return left

    def standard(self, alive: Words, memo: Memo | None = None) -> Words:
        """What the Standard Optimal Algorithm answers: a bit for each point, where `alive` is left of the class.

        The label whose restriction keeps the dimension, if there is one; otherwise what most hypotheses say.
        """
        memo = self._memo(alive) if memo is None else memo
        name = alive.tobytes()
        with memo.lock:
            known = memo.answers
            if name not in known:
                if len(known) >= _MOST_ENTRIES:
                    known.clear()
                answers = np.zeros((1, self.points), dtype=np.uint8)
                depth = self.dimension(alive, memo)
                for point in range(self.points):
                    zero, one = self.restrict(alive, point, 0), self.restrict(alive, point, 1)
                    larger = int(np.bitwise_count(one).sum()) > int(np.bitwise_count(zero).sum())
                    if self._shatters(one if larger else zero, depth, memo):
                        answers[0, point] = larger
                    else:
                        smaller = self._shatters(zero if larger else one, depth, memo)
                        answers[0, point] = not larger if smaller else larger
                words = pack(answers)[0]
                words.flags.writeable = False
                known[name] = words
            return known[name]

    def tree(self) -> Tree:
        """A complete tree, as deep as the dimension, that the class shatters."""
        memo = self.memo()
        return self._tree(self.everyone, self.dimension(memo=memo), memo)

    def _tree(self, alive: Words, depth: int, memo: Memo) -> Tree:
        if depth == 0:
            return Tree(None, hypothesis=int(self.first[np.flatnonzero(self._picked(alive))[0]]))
        ones = np.bitwise_count(self.columns & alive).sum(axis=1, dtype=np.int64)
        smaller = np.minimum(ones, int(np.bitwise_count(alive).sum()) - ones)
        for point in np.argsort(-smaller, kind="stable").tolist():
            zero, one = self.restrict(alive, point, 0), self.restrict(alive, point, 1)
            if self._shatters(zero, depth - 1, memo) and self._shatters(one, depth - 1, memo):
                return Tree(point, self._tree(zero, depth - 1, memo), self._tree(one, depth - 1, memo))
        raise AssertionError("a class of this dimension has a point to begin its tree with")

    def _whole(self, alive: Words) -> bool:
        """Whether `alive` has all rows that agree where all of it agrees: what the search's memo takes for granted."""
        chosen = self._rows[self._picked(alive)]
        if not chosen.size:
            return True
        both, either = np.bitwise_and.reduce(chosen), np.bitwise_or.reduce(chosen)
        agree = ((self._rows & both) == both) & ((self._rows | either) == either)
        return int(agree.all(axis=1).sum()) == int(chosen.shape[0])

    def _picked(self, alive: Words) -> NDArray[np.bool_]:
        octets = alive.astype("<u8").view(np.uint8)
        return np.unpackbits(octets, count=self.hypotheses, bitorder="little").view(np.bool_)

    def __repr__(self) -> str:
        return f"FiniteClass({self.hypotheses} hypotheses, {self.points} points, {self.digest})"

    def __copy__(self) -> FiniteClass:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FiniteClass:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        name = (self.hypotheses, self.points, np.packbits(self.table).tobytes())
        with _LOCK:
            _KNOWN.setdefault(name, self)
        return _again, name


@dataclass(frozen=True)
class Memo:
    """What was worked out about a class: pure functions of it, but when it was asked for shows in the time it takes."""

    keys: Words
    bounds: NDArray[np.int8]
    dimensions: dict[bytes, int]
    answers: dict[bytes, Words]
    lock: threading.RLock


_MEMOS: weakref.WeakKeyDictionary[FiniteClass, Memo] = weakref.WeakKeyDictionary()
_KNOWN: weakref.WeakValueDictionary[tuple[int, int, bytes], FiniteClass] = weakref.WeakValueDictionary()


def _again(hypotheses: int, points: int, packed: bytes) -> FiniteClass:
    """A class from its pickle: one object for all pickles of the same class."""
    with _LOCK:
        made = _KNOWN.get((hypotheses, points, packed))
        if made is None:
            bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=hypotheses * points)
            made = _KNOWN[(hypotheses, points, packed)] = FiniteClass(bits.reshape(hypotheses, points))
        return made


@dataclass(frozen=True)
class Tree:
    """A complete binary tree of points, for each of whose branches some hypothesis gives the labels along it."""

    point: int | None
    """The column asked at this node; None at a leaf."""
    zero: Tree | None = None
    one: Tree | None = None
    hypothesis: int | None = None
    """At a leaf: the row of H that gives the labels on the way here."""

    @property
    def depth(self) -> int:
        """The number of points on a branch."""
        return 0 if self.zero is None else 1 + self.zero.depth

    def branches(self) -> Iterator[tuple[list[tuple[int, int]], int]]:
        """Every branch as its pairs (point, label), with the row of H that agrees."""
        if self.point is None or self.zero is None or self.one is None:
            assert self.hypothesis is not None
            yield [], self.hypothesis
            return
        for label, child in enumerate((self.zero, self.one)):
            for pairs, hypothesis in child.branches():
                yield [(self.point, label), *pairs], hypothesis


@overload
def littlestone_dimension(H: ArrayLike | FiniteClass, tree: Literal[False] = False) -> int: ...
@overload
def littlestone_dimension(H: ArrayLike | FiniteClass, tree: Literal[True]) -> tuple[int, Tree]: ...
def littlestone_dimension(H: ArrayLike | FiniteClass, tree: bool = False) -> int | tuple[int, Tree]:
    """The Littlestone dimension of a finite class: the mistakes that the best learner can be forced to make.

    Exact. The search is exponential in the worst case; 10⁴ random hypotheses on 64 points take a few seconds,
    whatever the share of ones in them.

    Parameters
    ----------
    H
        One row for each hypothesis, one column for each point, of 0 and 1.
    tree
        Return a shattered tree of that depth too: a witness, whose branches a reader can check one by one.

    Examples
    --------
    >>> import numpy as np
    >>> littlestone_dimension(np.tri(8, 7, -1))  # thresholds: 7 points, 8 functions
    3
    >>> dimension, tree = littlestone_dimension(np.eye(4), tree=True)
    >>> dimension, tree.point, [labels for labels, _ in tree.branches()]
    (1, 0, [[(0, 0)], [(0, 1)]])
    """
    known = H if isinstance(H, FiniteClass) else FiniteClass(H)
    return (known.dimension(), known.tree()) if tree else known.dimension()
