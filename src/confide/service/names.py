"""Which rounds names are of, once they are in memory no more: all that is new of them is four bytes each, and a filter.

A name is known by half of it, 64 bits of a keyed hash. The newest halves are in a dict; every so many of them become a
*run*, a row of SQLite with all halves in order and their rounds. A filter in memory says of nearly every name that was
never asked that it is in no run of its, so that the disk is looked at for names that were asked, and, for each filter,
for two in ten thousand others, which the hash chooses. When runs are made follows from how many names came: that is
public.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["SCHEMA", "Names"]

SCHEMA = "CREATE TABLE run(last INTEGER PRIMARY KEY, names BLOB NOT NULL);"
RUN = 4096
"""Names of a run, or a few more."""

RUNS = 32
"""Runs that share a filter."""

_BITS = 22  # of a place in a filter: 32 bits a name
_MIXED = np.uint64(0x9E3779B97F4A7C15)  # an odd number: another 64 bits of the same half


@dataclass(slots=True, eq=False)
class _Filter:
    """Which names may be in some runs."""

    runs: list[int] = field(default_factory=list)
    """Each by its last round."""
    added: int = 0
    """How many there ever were."""
    bits: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1 << _BITS - 3, dtype=np.uint8), repr=False)

    def add(self, places: NDArray[np.uint64]) -> None:
        """These names are in a run."""
        np.bitwise_or.at(self.bits, places >> np.uint64(3), _bit(places))

    def may_have(self, places: NDArray[np.uint64]) -> list[int]:
        """Which of these names may be."""
        found = (self.bits[places >> np.uint64(3)] & _bit(places)).all(axis=0)
        return np.flatnonzero(found).tolist() if found.any() else []


class Names:
    """Halves of names with their rounds. Its owner holds a lock in all that is done with it.

    Parameters
    ----------
    db
        Where the runs are, in the table that `SCHEMA` makes.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db, self._new, self._filters = db, dict[int, int](), list[_Filter]()

    def add(self, halves: Sequence[int], rounds: Sequence[int]) -> None:
        """Names, in the order of their rounds."""
        self._new.update(zip(halves, rounds, strict=True))
        if len(self._new) < RUN:
            return
        last, run = rounds[-1], np.array([[*self._new], [*self._new.values()]], dtype="<i8").T
        run = run[run[:, 0].argsort()]
        self._db.execute("INSERT INTO run VALUES (?, ?)", (last, run.tobytes()))
        if not self._filters or self._filters[-1].added >= RUNS:
            self._filters.append(_Filter())
        self._filters[-1].runs.append(last)
        self._filters[-1].added += 1
        self._filters[-1].add(_places(run[:, 0]))
        self._new = {}

    def find(self, halves: Sequence[int]) -> dict[int, int]:
        """The last rounds of those names that are known."""
        new = self._new
        found = {} if new.keys().isdisjoint(halves) else {half: new[half] for half in halves if half in new}
        if not self._filters or not halves:
            return found
        wanted = np.array(halves, dtype=np.int64)
        places = _places(wanted)
        for one in reversed(self._filters):
            maybe = [i for i in one.may_have(places) if halves[i] not in found]
            for last in reversed(one.runs) if maybe else ():
                (names,) = self._db.execute("SELECT names FROM run WHERE last = ?", (last,)).fetchone()
                run = np.frombuffer(names, dtype="<i8").reshape(-1, 2)
                at = np.minimum(run[:, 0].searchsorted(wanted[maybe]), len(run) - 1)
                for i, (half, number) in zip(maybe, run[at].tolist(), strict=True):
                    if halves[i] == half:
                        found.setdefault(half, number)
        return found

    def drop(self, number: int) -> None:
        """Names of rounds up to this one need not be known any more."""
        while self._filters and self._filters[0].runs[0] <= number:
            self._db.execute("DELETE FROM run WHERE last = ?", (self._filters[0].runs.pop(0),))
            if not self._filters[0].runs:  # with what it says of names that are gone
                self._filters.pop(0)


def _places(halves: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Four places in a filter for each."""
    one = halves.view(np.uint64) if halves.flags.c_contiguous else np.ascontiguousarray(halves).view(np.uint64)
    other, mask = one * _MIXED, np.uint64((1 << _BITS) - 1)
    shifts = np.uint64(64 - _BITS), np.uint64(8)
    return np.stack([one >> shifts[0], (one >> shifts[1]) & mask, other >> shifts[0], (other >> shifts[1]) & mask])


def _bit(places: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (places & np.uint64(7)).astype(np.uint8))
