"""Two worlds with identical coins: what the proofs assume of a POP, checked line by line.

A *script* is what happens to a POP: people ask, bring labels, teach, want to be forgotten; the process is closed or
crashes. Steps wrapped in `Hidden` belong to the one protected unit and have a version for each world; all others are
the same in both. `replay` runs two POPs with the same seed on the two versions, with coins that depend on nothing but
the step and the kind of draw, and raises AssertionError, naming round, copy and cause, unless after every step

- at most one copy differs between the worlds, and always the same one;
- every vote count of a visible round differs by at most one vote;
- the unit was counted unsure at most G times, so that the counts of unsure answers differ by at most G;
- the worlds drew the same coins, and nothing that others see (errors, tickets, rounds, state) differs;
- the monitor's inputs differ by at most its rounds per unit.

A visible answer may differ, by the luck of the coins: that is what ε is paid for. From there on the worlds' counts may
differ by more, and only the unit's own share is compared. Proof pages: docs/proofs/people.md, docs/proofs/monitor.md.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from confide.banks import Bank
from confide.pop import POP, Answer
from confide.randomness import Random

__all__ = ["Ask", "Forget", "Hidden", "Label", "Load", "Outcome", "Script", "Teach", "replay"]


@dataclass(frozen=True)
class Ask:
    """Somebody asks."""

    x: Any
    unit: str | bytes | None = None


@dataclass(frozen=True)
class Label:
    """The label of the script's `ask`-th Ask (from 1) comes in."""

    ask: int
    y: Any


@dataclass(frozen=True)
class Teach:
    """A labelled record that was never asked."""

    x: Any
    y: Any
    unit: str | bytes | None = None


@dataclass(frozen=True)
class Forget:
    """A person wants to be forgotten."""

    unit: str | bytes


@dataclass(frozen=True)
class Load:
    """The process ends and another one loads the state; unless `saved`, it crashed, and an older snapshot is loaded."""

    saved: bool = True


Step = Ask | Label | Teach | Forget | Load


@dataclass(frozen=True)
class Hidden:
    """A step of the protected unit, one version for each world; only an Ask must be in both."""

    first: Step | None
    second: Step | None


Script = Sequence[Step | Hidden]


@dataclass(frozen=True)
class Outcome:
    """What a replay has seen, for tests that want to know that it saw something."""

    copy: int | None
    """The one copy that differed."""
    apart: int
    """Steps after which it differed."""
    parted: tuple[int, ...]
    """Asks whose visible answers differed."""
    unsure: tuple[int, int]
    """Unsure answers counted in each world."""
    hidden: tuple[int, int]
    """Those of them that the unit received."""


class Coins(Random):
    """Coins that belong to a step, a kind of draw and its place in the step: no draw moves another."""

    __slots__ = ("_seed", "_step", "drawn")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed = seed
        self.at(0)

    def at(self, step: int) -> None:
        """Go to a step."""
        self._step = step
        self.drawn: list[str] = []

    def _turn(self, kind: str) -> None:
        name = f"{self._seed} {self._step} {kind} {self.drawn.count(kind)}"
        self.drawn.append(kind)
        self._start(hashlib.sha256(name.encode()).digest())

    def word(self) -> int:
        self._turn("word")
        return super().word()

    def below(self, n: int) -> int:
        self._turn(f"below {n}")
        return int.from_bytes(self.words(4).tobytes(), "little") * n >> 256

    def subset(self, k: int, m: int) -> Any:
        self._turn(f"subset {m} of {k}")
        return super().subset(k, m)


@dataclass
class _World:
    """One of the two POPs, and what its last step showed."""

    pop: POP
    tickets: list[str | None] = field(default_factory=list)
    answer: Answer | None = None
    error: str = ""
    hidden: int = 0
    heard: list[int] = field(default_factory=list)

    def prepare(self, seed: int) -> None:
        """Take the coins into one's own hands."""
        self.pop._rng = Coins(seed)
        bank: Any = self.pop._bank
        if hasattr(bank, "_rng") and bank._rng.secure:  # after a load all randomness is new: the same in both worlds
            bank._rng = Random(seed)
            bank.load_state(bank.state(trusted=True), trusted=True)
        if self.pop._monitor is not None:
            listened: Any = self.pop._monitor
            listened._counter = _Ear(listened._counter, self.heard)

    def act(self, step: Step | None, number: int) -> None:
        """Take one step, and catch whatever comes out."""
        pop = self.pop
        coins: Any = pop._rng
        coins.at(number)
        pop._last, self.answer, self.error = None, None, ""
        try:
            match step:
                case Ask(x, unit):
                    self.tickets.append(None)
                    self.answer = pop.predict(x, unit)
                    self.tickets[-1] = self.answer.ticket
                case Label(ask, y):
                    ticket = self.tickets[ask - 1]
                    if ticket is not None:
                        pop.learn(ticket, y)
                case Teach(x, y, unit):
                    pop.teach(x, y, unit)
                case Forget(unit):
                    pop.forget(unit)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    @property
    def drawn(self) -> list[str]:
        """The kinds of coins that this step drew, without a fallback's coin, which comes last."""
        coins: Any = self.pop._rng
        drawn: list[str] = coins.drawn
        fell_back = self.answer is not None and not self.answer.sure
        return drawn[:-1] if fell_back and drawn[-1:] == [f"below {len(self.pop.labels)}"] else drawn

    @property
    def public(self) -> tuple[object, ...]:
        """What everybody may know."""
        return self.pop.rounds, self.pop.state, self.pop._epoch

    @property
    def shown(self) -> tuple[object, ...]:
        """What the one who took the step sees, but for the label."""
        return self.error, None if self.answer is None else self.answer.ticket


@dataclass
class _Ear:
    """Hears what a counter is told."""

    counter: Any
    heard: list[int]

    def step(self, value: int) -> int:
        self.heard.append(value)
        return int(self.counter.step(value))


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
    load
        Loads a state from a folder, where a Load step says so.
    seed
        Which coins.

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
    _check_script(script)
    with tempfile.TemporaryDirectory() as folder:
        worlds = [_World(make_pop()), _World(make_pop())]
        folders = [Path(folder) / "first", Path(folder) / "second"]
        if any(world.pop.guarantee.secure for world in worlds):
            raise ValueError("a replay needs POPs made with a seed")
        for world, place in zip(worlds, folders, strict=True):
            world.prepare(seed)
            if any(isinstance(step, Load) for step in script):
                world.pop.save(place)
        try:
            return _run(worlds, script, load, folders, seed)
        finally:
            for world in worlds:
                world.pop.close()


def _run(
    worlds: list[_World], script: Script, load: Callable[[Path], POP], folders: list[Path], seed: int
) -> Outcome:
    checker = _Checker(worlds)
    for number, step in enumerate(script, start=1):
        hidden = isinstance(step, Hidden)
        versions = (step.first, step.second) if isinstance(step, Hidden) else (step, step)
        if isinstance(step, Load):
            for world, place in zip(worlds, folders, strict=True):
                if step.saved:
                    world.pop.save(place)
                world.pop.close()
                world.pop, world.error = load(place), ""
                world.prepare(seed + number)
        else:
            for world, version in zip(worlds, versions, strict=True):
                before = world.pop.operator.unsure
                world.act(version, number)
                world.hidden += hidden * (world.pop.operator.unsure - before)
        if worlds[0].pop.halt_reason != worlds[1].pop.halt_reason:
            break  # by the luck of the coins; nothing can be compared from here on
        checker.check(number, step, hidden)
    return checker.outcome


class _Checker:
    """Compares the worlds after every step."""

    def __init__(self, worlds: list[_World]) -> None:
        self.first, self.second = worlds
        self.copy: int | None = None
        self.apart = 0
        self.parted: list[int] = []

    @property
    def outcome(self) -> Outcome:
        first, second = self.first, self.second
        unsure = first.pop.operator.unsure, second.pop.operator.unsure
        return Outcome(self.copy, self.apart, tuple(self.parted), unsure, (first.hidden, second.hidden))

    def check(self, number: int, step: Step | Hidden, hidden: bool) -> None:
        first, second = self.first, self.second
        where = f"round {first.pop.rounds} (step {number} of the script)"
        asked = isinstance(step.first if isinstance(step, Hidden) else step, Ask)
        assert first.public == second.public, (
            f"{where}: everybody sees (rounds, state, loads) = {first.public} in one world, {second.public} in the other"
        )
        if asked or not hidden:
            assert first.drawn == second.drawn, (
                f"{where}: the worlds drew different coins, {first.drawn} and {second.drawn}"
            )
        if not hidden:
            assert first.shown == second.shown, (
                f"{where}: others see (error, ticket) = {first.shown} in one world, {second.shown} in the other"
            )
        if asked and not hidden:
            self._compare_votes(where, step)
            answers = [world.answer and (world.answer.label, world.answer.sure) for world in (first, second)]
            if answers[0] != answers[1]:
                self.parted.append(len(first.tickets))
        self._compare_copies(where)
        self._compare_counts(where)

    def _compare_copies(self, where: str) -> None:
        banks = self.first.pop._bank, self.second.pop._bank
        differing = list(_differing(*banks))
        self.apart += bool(differing)
        for copy in differing:
            if self.copy is None:
                self.copy = copy
            assert copy == self.copy, (
                f"{where}, copy {copy}: its memory differs between the worlds, though the unit's copy is {self.copy}"
            )

    def _compare_votes(self, where: str, step: Any) -> None:
        counts = [world.pop._last for world in (self.first, self.second)]
        if counts[0] is None or counts[1] is None:
            return
        moved = counts[0] - counts[1]
        if max(np.maximum(moved, 0).sum(), np.maximum(-moved, 0).sum()) <= 1:
            return
        banks = self.first.pop._bank, self.second.pop._bank
        x = banks[0].encode(step.x)
        each = [np.array([copy]) for copy in range(banks[0].copies)]
        others = [int(copy[0]) for copy in each if (banks[0].votes(x, copy) != banks[1].votes(x, copy)).any()]
        raise AssertionError(
            f"{where}, copies {others}: the votes {counts[0].tolist()} and {counts[1].tolist()} differ by more than one"
        )

    def _compare_counts(self, where: str) -> None:
        most = self.first.pop.plan.unit_unsure
        for world in (self.first, self.second):
            assert world.hidden <= most, f"{where}: the unit was counted unsure {world.hidden} times, more than {most}"
        if self.parted:
            return
        unsure = [world.pop.operator.unsure for world in (self.first, self.second)]
        assert abs(unsure[0] - unsure[1]) <= most, f"{where}: the unsure counts {unsure} differ by more than {most}"
        watched = self.first.pop._monitor_asked
        if watched is not None:
            heard = self.first.heard, self.second.heard
            assert len(heard[0]) == len(heard[1]), f"{where}: the monitor ticked in one world only"
            moves = sum(abs(a - b) for a, b in zip(*heard, strict=True))
            assert moves <= watched.rounds_per_unit, (
                f"{where}: {moves} of the monitor's inputs differ, more than {watched.rounds_per_unit}"
            )


def _differing(first: Bank, second: Bank) -> Iterator[int]:
    """The copies whose memory is not the same, bit for bit."""
    one, other = _by_copy(first), _by_copy(second)
    yield from sorted(copy for copy in one.keys() | other.keys() if one.get(copy) != other.get(copy))


def _by_copy(bank: Bank) -> dict[int, list[bytes]]:
    """What each taught copy knows. A bank's state has one row a taught copy, or all their pickles end to end."""
    state: Any = bank.state(trusted=True)
    taught = state["taught"].tolist()
    if "pickles" in state:
        rows = [np.split(state["pickles"], np.cumsum(state["sizes"])[:-1])]
    else:
        rows = [value for name, value in state.items() if isinstance(value, np.ndarray) and name != "taught"]
    return {copy: [part[i].tobytes() for part in rows] for i, copy in enumerate(taught)}


def _check_script(script: Script) -> None:
    """One unit is hidden: one person, or one round with its label, or one record."""
    units: dict[bool, set[Any]] = {True: set(), False: set()}
    labelled: dict[bool, set[int]] = {True: set(), False: set()}
    hidden_asks, asks, records = set(), 0, 0
    for step in script:
        hidden = isinstance(step, Hidden)
        versions = (step.first, step.second) if isinstance(step, Hidden) else (step, step)
        if isinstance(versions[0], Ask) != isinstance(versions[1], Ask):
            raise ValueError("whether the unit asks is public: a hidden Ask must be in both worlds")
        if hidden and any(isinstance(version, Load) for version in versions):
            raise ValueError("a Load is public: leave it out of Hidden")
        asks += isinstance(versions[0], Ask)
        hidden_asks |= {asks} if hidden and isinstance(versions[0], Ask) else set()
        records += hidden and any(isinstance(version, Teach) for version in versions)
        units[hidden] |= {version.unit for version in versions if isinstance(version, Ask | Teach | Forget)}
        labelled[hidden] |= {version.ask for version in versions if isinstance(version, Label)}
    if len(units[True]) > 1 or (units[True] == {None} and len(hidden_asks) + records > 1):
        raise ValueError("the hidden steps must all belong to one unit: one person, or one round or record")
    if (units[True] - {None}) & units[False]:
        raise ValueError("every step with the hidden person's id is hidden")
    if labelled[False] & hidden_asks or not labelled[True] <= hidden_asks:
        raise ValueError("a label is hidden where its Ask is, and only there")
