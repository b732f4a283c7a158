"""One of the two worlds of a replay: a POP whose coins are in our hands, and a line on what each step left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from confide.games.script import Ask, AskMany, Forget, Hidden, Label, Load, Script, Step, Teach
from confide.pop.base import Answer
from confide.pop.pop import POP
from confide.privacy.random import Random


class Coins(Random):
    """Coins that belong to a step, a kind of draw and its place in the step: no draw moves another."""

    __slots__ = ("_seed", "_step", "drawn", "polls")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed = seed
        self.at(0)

    def at(self, step: int) -> None:
        """Go to a step."""
        self._step = step
        self.drawn: list[str] = []
        self.polls: list[list[int]] = []

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
        poll = super().subset(k, m)
        self.polls.append(sorted(poll.tolist()))
        return poll


class Lesson(NamedTuple):
    """What a copy was taught."""

    copy: int
    record: bytes
    """A digest of x and y as the copy got them."""


@dataclass(frozen=True)
class Line:
    """What one step of a world left behind."""

    public: tuple[object, ...]
    """What everybody may know: rounds, state, loads."""
    drawn: list[str]
    """The kinds of coins drawn, without those of the fallback, which come after all others of a round."""
    shown: tuple[str, ...]
    """Error and tickets, as the one who took the step saw them."""
    answers: list[tuple[object, bool]]
    questions: list[bytes]
    """A digest of each x that copies were asked about."""
    votes: list[int | None]
    """Each copy's vote on the question of a live round."""
    counts: list[int]
    """The poll's votes by label."""
    old_poll: list[int]
    """Copies that were asked by a poll which was not drawn in this step, or was used before in it."""
    lessons: list[Lesson]
    copies: dict[int, bytes]
    """A digest of each taught copy's memory."""
    unsure: int
    heard: list[int]
    """The monitor's inputs so far."""
    lost: str
    """What a load forgot, or brought back though it was used."""


class World:
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
        self.bank: Any = _Listening(bank)
        pop._bank = self.bank
        monitor: Any = pop._monitor
        if monitor is not None:
            monitor._counter = _Ear(monitor._counter, self.heard)

    def live(self, script: Script, which: int, load: Callable[[Path], POP], folder: Path) -> list[Line]:
        """Everything that happens in this world, the first (0) or the second (1)."""
        place, lines = folder / f"world {which}", []
        if any(isinstance(step, Load) for step in script):
            self.pop.save(place)
        for number, step in enumerate(script, start=1):
            lost = ""
            if isinstance(step, Load):
                if step.saved:
                    self.pop.save(place)
                lost = self.reload(lambda: load(place), number)
            version = (step.first, step.second)[which] if isinstance(step, Hidden) else step
            lines.append(self.act(version, number, lost))
        self.pop.close()
        return lines

    def reload(self, load: Callable[[], POP], number: int) -> str:
        """Load twice, as after a crash at the start: nothing that was spent is forgotten, and no coin comes back."""
        before = _spent(self.pop)
        self.pop.close()
        first = load()
        used = _next_coins(first)
        first.close()
        pop = load()
        after, drawn = _spent(pop), _next_coins(pop)
        self.take(pop, self.seed + number)
        if used & drawn:
            return "the load brought back randomness: another load of this state drew the same coins"
        fell = [f"{name} fell from {n} to {after.get(name, 0)}" for name, n in before.items() if after.get(name, 0) < n]
        return f"the load forgot what was spent: {', '.join(fell[:2])}" if fell else ""

    def act(self, step: Step | None, number: int, lost: str = "") -> Line:
        """Take one step, and write down whatever comes of it."""
        self.coins.at(number)
        self.bank.forget()
        self.pop._last = None
        answers: list[Answer] = []
        error = ""
        try:
            answers = self._do(step)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        pop, drawn = self.pop, self.coins.drawn
        questions, lessons = self.bank.questions, self.bank.lessons
        coin = f"below {len(pop.labels)}"
        if isinstance(step, AskMany):
            drawn = [kind for kind in drawn if kind != coin]
        elif answers and not answers[0].sure and drawn[-1:] == [coin]:
            drawn = drawn[:-1]
        live = isinstance(step, Ask) and answers and pop._last is not None
        return Line(
            public=(pop.rounds, pop.state, pop._epoch),
            drawn=drawn,
            shown=(error, *(answer.error or answer.ticket for answer in answers)),
            answers=[(answer.label, answer.sure) for answer in answers],
            questions=questions,
            votes=self._votes(step) if live else [],
            counts=[] if pop._last is None else pop._last.tolist(),
            old_poll=self._old_poll(),
            lessons=lessons,
            copies=digests(self.bank),
            unsure=pop._unsure,
            heard=list(self.heard),
            lost=lost,
        )

    def _do(self, step: Step | None) -> list[Answer]:
        pop = self.pop
        match step:
            case Ask(x, unit):
                self.tickets.append(None)
                answer = pop.predict(x, unit)
                self.tickets[-1] = answer.ticket
                return [answer]
            case AskMany(xs, units):
                self.tickets += [None] * len(xs)
                answers = pop.predict_many(xs, units)
                self.tickets[-len(xs) :] = [answer.ticket or None for answer in answers]
                return answers
            case Label(ask, y):
                ticket = self.tickets[ask - 1]
                if ticket is not None:
                    pop.learn(ticket, y)
            case Teach(x, y, unit):
                pop.teach(x, y, unit)
            case Forget(unit):
                pop.forget(unit)
        return []

    def _old_poll(self) -> list[int]:
        drawn = list(self.coins.polls)
        for poll in self.bank.polls:
            if poll in drawn:
                drawn.remove(poll)
            elif len(poll) < self.bank.copies:
                return list(poll)
        return []

    def _votes(self, step: Any) -> list[int | None]:
        bank = self.bank.bank
        x = bank.encode(step.x)
        each = [bank.votes(x, np.array([copy])) for copy in range(bank.copies)]
        return [int(votes.argmax()) if votes.any() else None for votes in each]


class _Listening:
    """A bank, with an ear on what its copies are asked and taught."""

    def __init__(self, bank: Any) -> None:
        self.bank = bank
        self.forget()

    def forget(self) -> None:
        self.questions: list[bytes] = []
        self.polls: list[list[int]] = []
        self.lessons: list[Lesson] = []

    def votes(self, x: Any, poll: Any) -> Any:
        self.questions.append(_digest(x))
        self.polls.append(sorted(poll.tolist()))
        return self.bank.votes(x, poll)

    def learn(self, copy: int, x: Any, y: int) -> None:
        self.lessons.append(Lesson(copy, _digest((_digest(x), y))))
        self.bank.learn(copy, x, y)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bank, name)


class _Ear(NamedTuple):
    """Hears what a counter is told."""

    counter: Any
    heard: list[int]

    def step(self, value: int) -> int:
        self.heard.append(value)
        return int(self.counter.step(value))


def _spent(pop: POP) -> dict[str, int]:
    """Everything that may only grow."""
    shares = {f"the unsure answers of unit {who.hex()[:6]}": n for who, n in pop._unit_unsure.items()}
    counted = {f"the monitored rounds of unit {who.hex()[:6]}": n for who, n in pop._unit_counted.items()}
    halted = int(pop._halt_reason is not None)
    return {"the rounds": pop._round, "the unsure answers": pop._unsure, "the halt": halted, **shares, **counted}


def _next_coins(pop: POP) -> set[bytes]:
    """What the generators of a POP that was just loaded draw first."""
    bank: Any = pop._bank
    generators = [pop._rng, *([bank._rng] if hasattr(bank, "_rng") else [])]
    return {generator.words(4).tobytes() for generator in generators}


def _digest(thing: Any) -> bytes:
    if isinstance(thing, np.ndarray):
        return hashlib.sha256(repr((thing.dtype, thing.shape)).encode() + thing.tobytes()).digest()
    if isinstance(thing, dict):
        thing = sorted(thing.items(), key=repr)
    return hashlib.sha256(repr(thing).encode()).digest()


def digests(bank: Any) -> dict[int, bytes]:
    """A digest of each taught copy. A bank's state has one row a taught copy, or all their pickles end to end."""
    state = bank.state(trusted=True)
    taught = state["taught"].tolist()
    if "pickles" in state:
        rows: list[Any] = [np.split(state["pickles"], np.cumsum(state["sizes"])[:-1])]
    else:
        rows = [value for name, value in state.items() if isinstance(value, np.ndarray) and name != "taught"]
    known = [b"".join(part[i].tobytes() for part in rows) for i in range(len(taught))]
    return {copy: hashlib.sha256(memory).digest() for copy, memory in zip(taught, known, strict=True)}
