"""The tape: all coins of a mechanism, a stream for each step, so that two worlds can be given the same ones.

What a mechanism draws in a step must not depend on anything private. So in two worlds the same words make the same
draws. If they do not, the worlds used the tape differently, and the replay sees it. Gate and halting words can be
forced to what they decided in the other world: that is how the proofs couple two worlds that show the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.privacy.draws import draw_below, draw_subset
from confide.privacy.random import Random

MOST = (1 << 64) - 1
"""A word that is below no threshold."""

LEAST = 1
"""A word that is below every threshold but 0 and 1, and that no draw rejects, as it may reject 0."""


class Tape(Random):
    """A generator with a stream for each step: no draw of one step moves those of another."""

    __slots__ = ("_born", "_name", "_seed", "forced", "spawned")

    def __init__(self, seed: int, name: str = "tape") -> None:
        self._seed, self._name, self._born = seed, name, 0
        self.forced: Mapping[int, int] = {}
        """Words of the present step, by position, that are to be something else."""
        self.spawned: list[Tape] = []
        """Generators of other parts: they turn with this one."""
        super().__init__(seed)
        self.at(0)

    def at(self, step: int, forced: Mapping[int, int] | None = None) -> None:
        """Go to a step."""
        self.forced = {} if forced is None else forced
        self._start(hashlib.sha256(f"{self._seed} {self._name} {step}".encode()).digest())
        for tape in self.spawned:
            tape.at(step)

    def words_of(self, step: int, n: int, forced: Mapping[int, int]) -> NDArray[np.uint64]:
        """The first words of a step, without moving this tape."""
        other = Tape(self._seed, self._name)
        other.at(step, forced)
        return other.words(n)

    def spawn(self) -> Tape:
        """A tape of its own for another part."""
        self.spawned.append(Tape(self._seed, f"{self._name} {len(self.spawned)}"))
        return self.spawned[-1]

    def twin(self) -> Tape:
        """The same words once more, from its beginning."""
        return Tape(self._seed, self._name)

    def _fill(self, out: NDArray[np.uint64]) -> None:
        first = self._produced
        super()._fill(out)
        for at, word in self.forced.items():
            if first <= at < first + out.size:
                out[at - first] = word


@dataclass(frozen=True)
class Drawn:
    """What one round draws."""

    copy: int | None
    """For rounds: whose lesson it is."""
    poll: NDArray[np.int64] | None
    """None in silent rounds."""
    gate: int
    """The position of the gate's word; −1 in silent rounds."""
    end: int
    """Where the next round begins."""

    @property
    def lean(self) -> int:
        """The position of the lean's word, where there is one: right behind the gate's."""
        return self.gate + 1

    @property
    def halt(self) -> int:
        """The position of the halting word: the last."""
        return self.end - 1


def read_rows(
    words: NDArray[np.uint64], rows: int, silent: int, k: int, m: int, people: bool, leans: bool = False
) -> list[Drawn] | None:
    """What the loop draws for so many rounds, of which the first `silent` are silent; None if the words do not suffice.

    This is the order that the proofs speak of: the copy, the poll, the gate's word, that of a lean, the halting word.
    """
    drawn, at = [], 0
    for i in range(rows):
        copy, poll, gate = None, None, -1
        if not people:
            value, at = draw_below(words, at, np.uint64(k))
            copy = int(value)
        if i >= silent and at >= 0:
            poll = np.arange(k)
            if m < k:
                poll = np.empty(m, dtype=np.int64)
                at = draw_subset(words, at, k, m, poll)
            gate, at = at, at + 2 + leans if at >= 0 else at
        if at < 0 or at > words.size:
            return None
        drawn.append(Drawn(copy, poll, gate, at))
    return drawn
