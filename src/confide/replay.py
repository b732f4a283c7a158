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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
    parted: list[int]
    """Steps whose visible answers differed."""
    unsure: list[int]
    """Unsure answers counted in each world."""
    hidden: list[int]
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
        self.drawn.append(kind)
        name = f"{self._seed} {self._step} {kind} {self.drawn.count(kind)}"
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


@dataclass(frozen=True)
class _Line:
    """What one step of a world left behind."""

    public: tuple[object, ...]
    """What everybody may know: rounds, state, loads."""
    drawn: list[str]
    """The kinds of coins drawn, without a fallback's coin, which comes last."""
    shown: tuple[str, str]
    """Error and ticket, as the one who took the step saw them."""
    answer: tuple[object, bool] | None
    votes: list[int | None]
    """Each copy's vote on the question of a live round."""
    counts: list[int]
    """The poll's votes by label."""
    copies: dict[int, bytes]
    """A digest of each taught copy's memory."""
    unsure: int
    heard: list[int]
    """The monitor's inputs so far."""


class _World:
    """One of the two POPs, with its coins in our hands."""

    def __init__(self, pop: POP, seed: int) -> None:
        if pop.guarantee.secure:
            raise ValueError("a replay needs POPs made with a seed")
        self.seed = seed
        self.heard: list[int] = []
        self.tickets: list[str | None] = []
        self.take(pop, seed)

    def take(self, pop: POP, seed: int) -> None:
        """Go on with this POP. After a load all randomness is new: the same in both worlds."""
        self.pop, self.coins = pop, Coins(seed)
        pop._rng = self.coins
        bank: Any = pop._bank
        if hasattr(bank, "_rng") and bank._rng.secure:
            bank._rng = Random(seed)
            bank.load_state(bank.state(trusted=True), trusted=True)
        monitor: Any = pop._monitor
        if monitor is not None:
            monitor._counter = _Ear(monitor._counter, self.heard)

    def live(self, script: Script, which: int, load: Callable[[Path], POP], folder: Path) -> list[_Line]:
        """Everything that happens in this world, the first (0) or the second (1)."""
        place, lines = folder / f"world {which}", []
        if any(isinstance(step, Load) for step in script):
            self.pop.save(place)
        for number, step in enumerate(script, start=1):
            if isinstance(step, Load):
                if step.saved:
                    self.pop.save(place)
                self.pop.close()
                self.take(load(place), self.seed + number)
            lines.append(self.act((step.first, step.second)[which] if isinstance(step, Hidden) else step, number))
        self.pop.close()
        return lines

    def act(self, step: Step | None, number: int) -> _Line:
        """Take one step, and write down whatever comes of it."""
        self.coins.at(number)
        self.pop._last = None
        answer, error = None, ""
        try:
            answer = self._do(step)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        pop, drawn = self.pop, self.coins.drawn
        if answer is not None and not answer.sure and drawn[-1:] == [f"below {len(pop.labels)}"]:
            drawn = drawn[:-1]
        return _Line(
            public=(pop.rounds, pop.state, pop._epoch),
            drawn=drawn,
            shown=(error, "" if answer is None else answer.ticket),
            answer=None if answer is None else (answer.label, answer.sure),
            votes=self._votes(step) if answer is not None and pop._last is not None else [],
            counts=[] if pop._last is None else pop._last.tolist(),
            copies=_digests(pop._bank),
            unsure=pop._unsure,
            heard=list(self.heard),
        )

    def _do(self, step: Step | None) -> Answer | None:
        pop = self.pop
        match step:
            case Ask(x, unit):
                self.tickets.append(None)
                answer = pop.predict(x, unit)
                self.tickets[-1] = answer.ticket
                return answer
            case Label(ask, y):
                ticket = self.tickets[ask - 1]
                if ticket is not None:
                    pop.learn(ticket, y)
            case Teach(x, y, unit):
                pop.teach(x, y, unit)
            case Forget(unit):
                pop.forget(unit)
        return None

    def _votes(self, step: Any) -> list[int | None]:
        bank = self.pop._bank
        x = bank.encode(step.x)
        each = [bank.votes(x, np.array([copy])) for copy in range(bank.copies)]
        return [int(votes.argmax()) if votes.any() else None for votes in each]


class _Ear(NamedTuple):
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
    _check_script(script)
    with tempfile.TemporaryDirectory() as folder:  # one world after the other, so that what they share is noticed
        first, second = (_World(make_pop(), seed).live(script, which, load, Path(folder)) for which in (0, 1))
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

    def check(self, number: int, step: Step | Hidden, first: _Line, second: _Line) -> bool:
        """Compare one step; False when one world has halted, by the luck of the coins, and the other not."""
        where = f"round {first.public[0]} (step {number} of the script)"
        hidden = isinstance(step, Hidden)
        asked = isinstance(step.first if isinstance(step, Hidden) else step, Ask)
        if asked or not hidden:
            _same(first.drawn, second.drawn, f"{where}: the coins that were drawn are")
        if (first.public[1] == "halted") != (second.public[1] == "halted"):
            return False
        _same(first.public, second.public, f"{where}: what everybody sees (rounds, state, loads) is")
        if not hidden:
            _same(first.shown, second.shown, f"{where}: what others see (error, ticket) is")
            self._compare_votes(where, first, second)
            if first.answer != second.answer:
                self.parted.append(number)
        self._compare_copies(where, first, second)
        self._compare_counts(where, hidden, first, second)
        return True

    def _one_copy(self, where: str, what: str, differing: list[int]) -> None:
        for copy in differing:
            if self.copy is None:
                self.copy = copy
            _demand(copy == self.copy, f"{where}, copy {copy}: its {what} differs, and the unit's copy is {self.copy}")

    def _compare_copies(self, where: str, first: _Line, second: _Line) -> None:
        known = sorted(first.copies.keys() | second.copies.keys())
        differing = [copy for copy in known if first.copies.get(copy) != second.copies.get(copy)]
        self.apart += bool(differing)
        self._one_copy(where, "memory", differing)

    def _compare_votes(self, where: str, first: _Line, second: _Line) -> None:
        pairs = enumerate(zip(first.votes, second.votes, strict=True))
        self._one_copy(where, "vote", [copy for copy, (a, b) in pairs if a != b])
        moved = np.array(first.counts) - np.array(second.counts)
        most = max(moved.clip(0).sum(), (-moved).clip(0).sum())
        _demand(most <= 1, f"{where}: the poll's votes {first.counts} and {second.counts} differ by more than one")

    def _compare_counts(self, where: str, hidden: bool, first: _Line, second: _Line) -> None:
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


def _same(first: object, second: object, what: str) -> None:
    _demand(first == second, f"{what} {first} in one world and {second} in the other")


def _demand(kept: bool, otherwise: str) -> None:
    if not kept:  # and no assert, which -O leaves out
        raise AssertionError(otherwise)


def _digests(bank: Bank) -> dict[int, bytes]:
    """A digest of each taught copy. A bank's state has one row a taught copy, or all their pickles end to end."""
    state: Any = bank.state(trusted=True)
    taught = state["taught"].tolist()
    if "pickles" in state:
        rows: list[Any] = [np.split(state["pickles"], np.cumsum(state["sizes"])[:-1])]
    else:
        rows = [value for name, value in state.items() if isinstance(value, np.ndarray) and name != "taught"]
    known = [b"".join(part[i].tobytes() for part in rows) for i in range(len(taught))]
    return {copy: hashlib.sha256(memory).digest() for copy, memory in zip(taught, known, strict=True)}


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
