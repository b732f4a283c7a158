"""Two worlds with identical coins: what the proofs assume of a POP, checked line by line.

A *script* is what happens to a POP: people ask, bring labels, teach, want to be forgotten; the process is closed or
crashes. Steps wrapped in `Hidden` belong to the one protected unit and have a version for each world; all others are
the same in both. `replay` runs two POPs with the same seed on the two versions, with coins that depend on nothing but
the step and the kind of draw, and raises AssertionError, naming round, copy and cause, unless after every step

- at most one copy differs between the worlds, and always the same one;
- a label went to one copy, and whatever others asked and taught reached the copies unchanged;
- the poll was drawn for this round alone;
- every vote count of a visible round differs by at most one vote;
- the unit was counted unsure at most G times, so that the counts of unsure answers differ by at most G;
- the worlds drew the same coins, and nothing that others see (errors, tickets, rounds, state) differs;
- the monitor's inputs differ by at most its rounds per unit;
- a load forgot nothing that was spent, and brought no coin back.

A visible answer may differ, by the luck of the coins: that is what ε is paid for. From there on the worlds' counts may
differ by more, and only the unit's own share is compared. Whether the noise itself is large enough is not seen here:
that is for `confide.games`. Proof pages: docs/proofs/people.md, docs/proofs/monitor.md.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from confide.games.script import Ask, AskMany, Forget, Hidden, Label, Load, Script, Step, Teach, check_script
from confide.games.worlds import Coins, Line, World
from confide.pop.pop import POP

__all__ = [
    "Ask",
    "AskMany",
    "Coins",
    "Forget",
    "Hidden",
    "Label",
    "Load",
    "Outcome",
    "Script",
    "Step",
    "Teach",
    "replay",
]


@dataclass(frozen=True)
class Outcome:
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


def replay(
    make_pop: Callable[[], POP], script: Script, *, load: Callable[[Path], POP] = POP.load, seed: int = 0
) -> Outcome:
    """Run a script in two worlds; AssertionError names the round, the copy and the cause of the first difference.

    Parameters
    ----------
    make_pop
        Makes a POP with a seed, the same one each time.
    script
        What happens; see the module.
    load, seed
        How a state is loaded from a folder where the script says so, and which coins.

    Examples
    --------
    >>> import confide
    >>> from confide.learners import LogisticRegression
    >>> plan = confide.Plan.tight(epsilon=60, delta=1e-2, rounds=500, copies=40, polls=40, unsure=100, silent=20)
    >>> def make():
    ...     return confide.POP(LogisticRegression(), plan, labels=[0, 1], features=2, seed=1)
    >>> secret = [Hidden(Ask([0.3, 1]), Ask([0.9, -1])), Hidden(Label(1, 0), Label(1, 1))]
    >>> others = [step for i in range(2, 60) for step in (Ask([i % 7 / 7, i % 3]), Label(i, i % 2))]
    >>> replay(make, secret + others).apart > 0
    True
    """
    check_script(script)
    with tempfile.TemporaryDirectory() as folder:  # one world after the other, so that what they share is noticed
        first, second = (World(make_pop(), seed).live(script, which, load, Path(folder)) for which in (0, 1))
    checker = _Checker(make_pop())
    for number, (step, one, other) in enumerate(zip(script, first, second, strict=True), start=1):
        if not checker.check(number, step, one, other):
            break
    return Outcome(checker.copy, checker.apart, checker.parted, checker.unsure, checker.hidden)


class _Checker:
    """Compares the worlds line by line."""

    def __init__(self, pop: POP) -> None:
        self.most = pop.plan.unit_unsure
        self.inputs = 0 if pop._monitor_asked is None else pop._monitor_asked.rounds_per_unit
        self.copy: int | None = None
        self.parted: list[int] = []
        self.apart, self.unsure, self.hidden = 0, [0, 0], [0, 0]

    def check(self, number: int, step: Step | Hidden, first: Line, second: Line) -> bool:
        """Compare one step; False when one world has halted, by the luck of the coins, and the other not."""
        where = f"round {first.public[0]} (step {number} of the script)"
        hidden = isinstance(step, Hidden)
        asked = isinstance(step.first if isinstance(step, Hidden) else step, Ask)
        _demand(not first.lost + second.lost, f"{where}: {first.lost or second.lost}")
        for line in (first, second):
            used = f"{where}, copies {line.old_poll}: they were asked by a poll that was not drawn for this round alone"
            _demand(not line.old_poll, used)
        if asked or not hidden:
            _same(first.drawn, second.drawn, f"{where}: the coins that were drawn are", _one_sided(first, second))
        if (first.public[1] == "halted") != (second.public[1] == "halted"):
            return False
        _same(first.public, second.public, f"{where}: what everybody sees (rounds, state, loads) is")
        self._compare_lessons(where, hidden, first, second)
        if not hidden:
            taught = next((f", copy {lesson.copy}" for lesson in first.lessons + second.lessons), "")
            _same(first.shown, second.shown, f"{where}{taught}: what others see (error, tickets) is")
            self._compare_votes(where, first, second)
            if first.answers != second.answers:
                self.parted.append(number)
        self._compare_copies(where, hidden, asked, first, second)
        self._compare_counts(where, hidden, first, second)
        return True

    def _one_copy(self, where: str, what: str, differing: list[int], cause: Callable[[int], str]) -> None:
        for copy in differing:
            if self.copy is None:
                self.copy = copy
            said = f"{where}, copy {copy}: its {what} differs, and the unit's copy is {self.copy}; {cause(copy)}"
            _demand(copy == self.copy, said)

    def _compare_lessons(self, where: str, hidden: bool, first: Line, second: Line) -> None:
        """One step teaches one copy, and the steps of others reach the copies as they are."""
        for line in (first, second):
            copies = [lesson.copy for lesson in line.lessons]
            _demand(len(copies) <= 1, f"{where}, copies {copies}: one label was taught to all of them, not to one")
        if hidden:
            return
        shared = "something that all copies share stands before them, such as a scaler or a vocabulary"
        same = not first.questions or not second.questions or first.questions == second.questions
        _demand(same, f"{where}, every copy: what others asked reached the copies changed by the unit; {shared}")
        for one, other in zip(first.lessons, second.lessons, strict=False):
            where_to = f"{where}: a label of others went to copy {one.copy} or {other.copy}, by what the unit did"
            _demand(one.copy == other.copy, where_to)
            cause = f"{where}, copy {one.copy}: what others taught reached it changed by the unit; {shared}"
            _demand(one.record == other.record, cause)

    def _compare_copies(self, where: str, hidden: bool, asked: bool, first: Line, second: Line) -> None:
        known = sorted(first.copies.keys() | second.copies.keys())
        differing = [copy for copy in known if first.copies.get(copy) != second.copies.get(copy)]
        self.apart += bool(differing)

        def cause(copy: int) -> str:
            if any(lesson.copy == copy for lesson in first.lessons + second.lessons):
                if hidden:
                    return "the unit taught a second copy"
                return "the same lesson left other memories, so copies share a random stream or a memory"
            return "a question changed it" if asked else "a lesson or a reset that was not its own changed it"

        self._one_copy(where, "memory", differing, cause)

    def _compare_votes(self, where: str, first: Line, second: Line) -> None:
        pairs = enumerate(zip(first.votes, second.votes, strict=True))

        def cause(copy: int) -> str:
            apart = first.copies.get(copy) != second.copies.get(copy)
            return "so does its memory" if apart else "its memory does not, so it reads what copies share"

        self._one_copy(where, "vote", [copy for copy, (a, b) in pairs if a != b], cause)
        moved = np.array(first.counts) - np.array(second.counts)
        most = max(moved.clip(0).sum(), (-moved).clip(0).sum())
        _demand(most <= 1, f"{where}: the poll's votes {first.counts} and {second.counts} differ by more than one")

    def _compare_counts(self, where: str, hidden: bool, first: Line, second: Line) -> None:
        now, most = [first.unsure, second.unsure], self.most
        self.hidden = [self.hidden[world] + hidden * (now[world] - self.unsure[world]) for world in (0, 1)]
        self.unsure = now
        _demand(max(self.hidden) <= most, f"{where}: the unit was counted unsure {max(self.hidden)} times, not {most}")
        if self.parted:
            return
        _demand(abs(now[0] - now[1]) <= most, f"{where}: the unsure counts {now} differ by more than {most}")
        _same(len(first.heard), len(second.heard), f"{where}: the monitor's ticks are")
        moves = sum(abs(a - b) for a, b in zip(first.heard, second.heard, strict=True))
        _demand(moves <= self.inputs, f"{where}: {moves} of the monitor's inputs differ, more than {self.inputs}")


def _one_sided(first: Line, second: Line) -> str:
    """Which draws are in one world only."""
    ours, theirs = (Counter(kind.split()[0] for kind in line.drawn) for line in (first, second))
    names = {"word": "a gate or halting draw", "subset": "a poll", "below": "a choice of copy"}
    found = " and ".join(names[kind] for kind in sorted((ours - theirs) | (theirs - ours)))
    return f"{found or 'a coin'} hangs on private data"


def _same(first: object, second: object, what: str, cause: str = "") -> None:
    _demand(first == second, f"{what} {first} in one world and {second} in the other{cause and f'; {cause}'}")


def _demand(kept: bool, otherwise: str) -> None:
    if not kept:  # and no assert, which -O leaves out
        raise AssertionError(otherwise)
