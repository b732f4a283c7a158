"""Two worlds with identical coins: what the proofs assume of a mechanism, checked line by line.

A *script* is what happens to it: people ask, bring labels, teach, want to be forgotten, alone and in batches; the
process is closed or crashes. Steps wrapped in `Hidden` belong to the one protected unit and have a version for each
world; all others are the same in both. `replay` runs the script in two worlds on one tape of coins, the second with its
gates, leans and halting draws forced to what they decided in the first, and raises AssertionError, naming round, copy
and cause, unless after every step all that docs/replay.md lists is so, in each world by itself and between the two.

Of a mechanism that does not show its inside to its operator only what others see is compared. Whether the noise itself
is large enough is not seen here: that is for games (`confide.games`). Proof pages: docs/proofs/people.md,
docs/proofs/monitor.md.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.games.leaned import offsets_for
from confide.games.reference import Line
from confide.games.script import (
    Again,
    Ask,
    AskMany,
    Cut,
    Disk,
    Follow,
    Forget,
    Hidden,
    Label,
    LabelMany,
    Load,
    Over,
    Script,
    Step,
    Teach,
    TeachMany,
    check_script,
    own_rows,
    size,
    version,
)  # fmt: skip
from confide.games.worlds import LoadFrom, Make, World, inside
from confide.ledger.book import Entry
from confide.planning.guided import GuidePlan
from confide.pop.pop import POP
from confide.privacy.random import Random

__all__ = [
    "Again", "Ask", "AskMany", "Cut", "Disk", "Follow", "Forget", "Hidden", "Label", "LabelMany", "Load", "Over",
    "Replayed", "Script", "Step", "Teach", "TeachMany", "replay",
]  # fmt: skip


@dataclass(frozen=True)
class Replayed:
    """What a replay has seen, for tests that want to know that it saw something."""

    copy: int | None
    """The one copy that differed."""
    apart: int
    """Steps after which it differed."""
    parted: list[int]
    """Steps whose visible answers differed."""
    unsure: list[int]
    """Unsure answers counted in each world."""
    hidden: list[int]
    """Those of them that the unit received."""
    steps: int
    """Steps that were compared."""
    sure: int
    """Answers that the copies gave, in the first world."""
    halted: bool
    """Whether the first world halted."""
    released: int = 0
    """Releases of a guide that were compared, in both worlds."""
    moved: float = 0.0
    """By how much the unit moved the guide's sums: the part of what its plan charges."""
    leaned: int = 0
    """Answers that the lean gave, in the first world."""
    led: int = 0
    """Those of them whose offsets were not those of a guide without an opinion."""


def _load(folder: Path, rng: Random) -> POP:
    return POP.load(folder, trusted=True, rng=rng)


def replay(make: Make, script: Script, *, load: LoadFrom = _load, seed: int = 0, forced: bool = True) -> Replayed:
    """Run a script in two worlds; AssertionError names the round, the copy and the cause of the first difference.

    Parameters
    ----------
    make
        Makes the mechanism with a given generator: `lambda rng: confide.POP(..., seed=rng)`.
    script
        What happens; see the module.
    load, seed
        How a state is loaded, with a given generator, where the script says so; and which coins.
    forced
        Whether the second world's gates, leans and halting draws are forced to what they decided in the first. If not,
        they may part by the luck of the coins, and from there on less is compared.

    Examples
    --------
    >>> import confide
    >>> from confide.learners import LogisticRegression
    >>> plan = confide.Plan.tight(60, 1e-2, 500, copies=40, polls=40, unsure=100, silent=20, guide=None)
    >>> def make(rng):
    ...     return confide.POP(LogisticRegression(), plan, labels=[0, 1], features=2, seed=rng)
    >>> secret = [Hidden(Ask([0.3, 1]), Ask([0.9, -1])), Hidden(Label(1, 0), Label(1, 1))]
    >>> others = [step for i in range(2, 60) for step in (Ask([i % 7 / 7, i % 3]), Label(i, i % 2))]
    >>> replay(make, secret + others).apart > 0
    True
    """
    check_script(script)
    with tempfile.TemporaryDirectory() as folder:  # one world after the other, so that what they share is noticed
        first = World(make, load, seed, Path(folder) / "world 0")
        one = first.live(script, 0, len(script))
        second = World(make, load, seed, Path(folder) / "world 1")
        other = second.live(script, 1, len(one), one if forced else None)
    checker, together = _Checker(second.mechanism), True
    for number, (step, *lines) in enumerate(zip(script, one, other, strict=False), start=1):
        where = f"round {lines[0].public[0]} (step {number} of the script)"
        for world, line in enumerate(lines):
            _demand(not line.fault, f"{where}, world {world}: {line.fault}")
        together = together and checker.check(number, where, step, *lines)
    sure, halted = sum(sure for line in one for _, sure in line.answers), any(line.halt is not None for line in one)
    seen = checker.copy, checker.apart, checker.parted, checker.unsure, checker.hidden, checker.steps
    leant = [round.offsets for line in one for round in line.rounds if round.leans]
    led = 0 if first.plan is None else sum(offsets != offsets_for(first.plan, None) for offsets in leant)
    return Replayed(*seen, sure, halted, checker.released, checker.moved, len(leant), led)


class _Checker:
    """Compares the worlds line by line."""

    def __init__(self, mechanism: Any) -> None:
        loop = inside(mechanism)
        self.most = 1 if loop is None else loop.plan.unit_unsure
        self.inputs = 0 if loop is None or loop.monitor is None else loop.monitor.rounds_per_unit
        self.copy: int | None = None
        self.parted: list[int] = []
        self.apart, self.steps, self.unsure, self.hidden = 0, 0, [0, 0], [0, 0]
        self.guide = None if loop is None else loop.plan.guide
        self.leaves: dict[str, list[Any]] = {"warm": [], "node": []}  # by how much the unit's gradients differ in each
        self.released, self.moved, self.counted = 0, 0.0, 0

    def check(self, number: int, where: str, step: Step | Hidden, first: Line, second: Line) -> bool:
        """Compare one step; False where the worlds halt at different rows, as their tables say: they part there."""
        self.steps += 1
        hidden = isinstance(step, Hidden)
        asks = size(version(step, 0)) > 0
        if (asks or not hidden) and None not in (first.used, second.used):
            cause = "; what is drawn hangs on private data"
            _same(first.used, second.used, f"{where}: the words drawn from the tape are", cause)
        together = first.halt == second.halt
        self._compare_shown(number, where, step, first, second)
        if together:
            _same(first.public, second.public, f"{where}: what everybody sees (rounds, state, loads) is")
        self._compare_entries(where, step, first, second)
        self._compare_released(where, first, second)
        self._compare_votes(where, step, first, second)
        self._compare_copies(where, hidden, first, second)
        self._compare_counts(where, step, first, second)
        return together

    def _compare_entries(self, where: str, step: Step | Hidden, first: Line, second: Line) -> None:
        """What is written: of which form, and about whom. A label's entry is its bringer's own."""
        if isinstance(step, Hidden) and not size(version(step, 0)):
            return
        forms = [[_form(entry) for entry in line.entries] for line in (first, second)]
        _demand(forms[0] == forms[1], f"{where}: the form of what is written differs between the worlds")

    def _compare_shown(self, number: int, where: str, step: Step | Hidden, first: Line, second: Line) -> None:
        """What others see: errors and tickets; answers may differ where the copies gave them."""
        own = own_rows(step)
        records = isinstance(version(step, 0), LabelMany | TeachMany)  # their error goes to who brought all of them
        if not (isinstance(step, Hidden) and (records or not own.rows)):
            _same(first.shown[:1], second.shown[:1], f"{where}: the error that others see is")
        until = min(_rows(first), _rows(second))
        for i, (one, other) in enumerate(zip(first.shown[1:], second.shown[1:], strict=False)):
            if not own.has(i) and i < until:
                _same(one, other, f"{where}, row {i}: what others see (error, tickets) is")
        for i, (one, other) in enumerate(zip(first.answers, second.answers, strict=False)):
            if own.has(i) or one == other or i >= until:
                continue
            paid = one[1], other[1], *(line.rounds[i].leans for line in (first, second) if i < len(line.rounds))
            _demand(any(paid), f"{where}, row {i}: the fallback answered {one[0]!r} and {other[0]!r}: it is not public")
            self.parted.append(number)
        for i, (mine, others) in enumerate(zip(first.guided, second.guided, strict=False)):
            if not own.has(i) and i < until:
                _same(mine, others, f"{where}, row {i}: the guide's own answer, which is public, is")

    def _compare_released(self, where: str, first: Line, second: Line) -> None:
        """With the same noise the worlds' releases differ by the unit's own gradients, as the plan charges them."""
        for line in (first, second):
            self.released += len(line.released)
        kinds = [[(one.kind, one.number) for one in line.released] for line in (first, second)]
        _same(kinds[0], kinds[1], f"{where}: what the guide released is")
        for one, other in zip(first.released, second.released, strict=True):
            what, apart = f"{where}, {one.kind} {one.number}", _whole(one.own) - _whole(other.own)
            cause = f"{what}: the exact sums of the worlds differ by more than the unit's own"
            _demand(np.array_equal(_whole(one.exact) - _whole(other.exact), apart), cause)
            moved = apart if one.kind == "ranges" else self._moved(one.kind, apart)
            drawn = _whole(one.row) - _whole(other.row)
            _demand(np.array_equal(drawn, moved), f"{what}: it is not the charged sums with the noise that was drawn")
            if one.kind == "ranges" and self.guide is not None:
                self.counted, most = int((apart**2).sum()), 2 * self.guide.range_norm**2
                _demand(self.counted <= most, f"{what}: the unit counts for more than one row")
        if self.guide is None or not first.released:
            return
        self.moved = self._charged(self.guide)
        _demand(self.moved <= 1 + 1e-12, f"{where}: the unit moved the guide's sums by {self.moved:.2f} of its cap")

    def _charged(self, guide: GuidePlan) -> float:
        """What the unit moved, as a part of what the plan charges: norms of all leaves; where lessons are kept, μ²."""
        total = {kind: sum(math.sqrt(int((leaf**2).sum())) for leaf in leaves) for kind, leaves in self.leaves.items()}
        if not guide.kept_clip:
            return math.fsum(total.values()) / (2 * guide.unit_labels * guide.clip)
        moved = total.get("node", 0.0) ** 2 * guide.load / guide.sigma2
        moved += total.get("warm", 0.0) ** 2 * guide.warm_root.load / guide.warm_sigma2
        return math.sqrt((moved + self.counted / guide.range_sigma2) / float(guide.mu2))

    def _moved(self, kind: str, apart: Any) -> Any:
        """By how much the node of a stage's next leaf moves, if its sums differ by so much."""
        assert self.guide is not None
        root, leaves = self.guide.root if kind == "node" else self.guide.warm_root, self.leaves[kind]
        leaves.append(apart)
        open_epoch = leaves[(len(leaves) - 1) // root.leaves * root.leaves :]
        last = len(open_epoch) - 1
        return sum(int(root.factor[last - s]) * int(root.weights[s]) * leaf for s, leaf in enumerate(open_epoch))

    def _compare_votes(self, where: str, step: Step | Hidden, first: Line, second: Line) -> None:
        own = own_rows(step)
        for i, (one, other) in enumerate(zip(first.rounds, second.rounds, strict=False)):
            changed = "what others asked reached the copies changed by the unit: something that learns stands before"
            _demand(own.has(i) or one.row == other.row, f"{where}, row {i}: {changed} them, a scaler or a vocabulary")
            if not own.has(i) and one.live and other.live:
                _same(one.offsets, other.offsets, f"{where}, row {i}: the lean's offsets, which are public, are")
        pairs_of = [] if isinstance(step, Hidden) else zip(first.votes, second.votes, strict=False)
        for one_votes, other_votes in pairs_of:
            pairs = enumerate(zip(one_votes, other_votes, strict=True))

            def cause(copy: int) -> str:
                apart = first.copies.get(copy) != second.copies.get(copy)
                shared = "its memory does not, so it reads what copies share, or what is asked was changed on its way"
                return "so does its memory" if apart else shared

            self._one_copy(where, "vote", [copy for copy, (a, b) in pairs if a != b], cause)
        for i, (one, other) in enumerate(zip(first.rounds, second.rounds, strict=False)):
            if not own.has(i) and one.counts and other.counts:
                _same(one.malformed, other.malformed, f"{where}, row {i}: whether others' question could be read is")
                moved = np.array(one.counts) - np.array(other.counts)
                most = max(moved.clip(0).sum(), (-moved).clip(0).sum())
                _demand(most <= 1, f"{where}: the poll's votes {one.counts} and {other.counts} differ by more than one")

    def _compare_copies(self, where: str, hidden: bool, first: Line, second: Line) -> None:
        known = sorted(first.copies.keys() | second.copies.keys())
        differing = [copy for copy in known if first.copies.get(copy) != second.copies.get(copy)]
        self.apart += bool(differing)

        def cause(copy: int) -> str:
            if hidden:
                return "the unit taught a second copy"
            return "the same lesson left other memories, so copies share a random stream, a memory or a scaler"

        self._one_copy(where, "memory", differing, cause)

    def _one_copy(self, where: str, what: str, differing: list[int], cause: Callable[[int], str]) -> None:
        for copy in differing:
            self.copy = copy if self.copy is None else self.copy
            said = f"{where}, copy {copy}: its {what} differs, and the unit's copy is {self.copy}; {cause(copy)}"
            _demand(copy == self.copy, said)

    def _compare_counts(self, where: str, step: Step | Hidden, first: Line, second: Line) -> None:
        own, most = own_rows(step), self.most
        for world, line in enumerate((first, second)):
            mine = sum(one.counted for i, one in enumerate(line.rounds) if own.has(i))
            self.hidden[world] += mine
            self.unsure[world] = line.unsure
        _demand(max(self.hidden) <= most, f"{where}: the unit was counted unsure {max(self.hidden)} times, not {most}")
        _same(len(first.heard), len(second.heard), f"{where}: the monitor's ticks are")
        cause = f"{where}: which rounds the monitor counts hangs on private data"
        _demand(first.watched == second.watched, cause)
        if self.parted:
            return
        apart = abs(first.unsure - second.unsure)
        _demand(apart <= most, f"{where}: the unsure counts {self.unsure} differ by more than {most}")
        moves = sum(abs(a - b) for a, b in zip(first.heard, second.heard, strict=True))
        _demand(moves <= self.inputs, f"{where}: {moves} of the monitor's inputs differ, more than {self.inputs}")


def _form(e: Entry) -> object:
    """Of what form an entry is, and whom it is about."""
    return sorted(dict(e.shares)), len(e.used), len(e.forgot), sorted(dict(e.labels)), [one[:2] for one in e.released]


def _rows(line: Line) -> int:
    """The rows that were taken before a halt, the one that halts included; all of them without one."""
    return max(len(line.shown), len(line.answers)) if line.halt is None else line.halt + 1


def _whole(sums: NDArray[np.int64]) -> Any:
    """In integers of any size."""
    return sums.astype(object)


def _same(first: object, second: object, what: str, cause: str = "") -> None:
    _demand(first == second, f"{what} {first} in one world and {second} in the other{cause}")


def _demand(kept: bool, otherwise: str) -> None:
    if not kept:  # and no assert, which -O leaves out
        raise AssertionError(otherwise)
