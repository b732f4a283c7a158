"""One of the two worlds of a replay: a mechanism with its coins in our hands, and a line on what each step left behind.

Beside the mechanism runs a reference (`confide.games.reference`) that says by itself what each round must show. What
the mechanism did otherwise is a fault of this world alone; what differs between the worlds is for
`confide.games.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from confide.banks.base import Bank
from confide.games.reference import Before, Line, Reference, Round, copy_of, digests
from confide.games.script import (
    Ask,
    AskMany,
    Follow,
    Forget,
    Hidden,
    Label,
    LabelMany,
    Load,
    Script,
    Step,
    Teach,
    TeachMany,
    size,
    units_of,
    version,
)  # fmt: skip
from confide.games.tape import MOST, Drawn, Tape, read_rows
from confide.pop.base import Answer
from confide.pop.loop import Loop
from confide.pop.monitor import Monitor, MonitorState
from confide.pop.pop import Operator
from confide.privacy.halting import Halting
from confide.privacy.random import Random

__all__ = ["Heard", "World", "inside"]

Make = Callable[[Random], Any]
LoadFrom = Callable[[Path, Random], Any]


def inside(mechanism: Any) -> Loop | None:
    """The running parts of a mechanism, where it shows them to its operator: a POP, or what is made of one."""
    for name in ("operator", "pop", "pop_"):
        part = getattr(mechanism, name, None)
        if isinstance(part, Operator):
            return part.loop
        if part is not None:
            return inside(part)
    return None


@dataclass(frozen=True)
class Heard(Monitor):
    """A monitor whose inputs a replay can hear."""

    def start(self, horizon: int, rng: Random) -> MonitorState:
        """The running counter, with an ear on it."""
        return _Listening(self, horizon, rng)


class _Listening(MonitorState):
    """A running monitor that writes down what its counter is told."""

    def __init__(self, monitor: Monitor, horizon: int, rng: Random) -> None:
        super().__init__(monitor, horizon, rng)
        self.inputs: list[int] = []

    def count(self, value: int) -> int:
        self.inputs.append(value)
        return super().count(value)


class World:
    """One of the two worlds."""

    def __init__(self, make: Make, load: LoadFrom, seed: int, folder: Path, reference: bool = True) -> None:
        self.make, self.load, self.seed, self.folder, self.reference = make, load, seed, folder, reference
        self.tickets: list[tuple[str | None, int | None]] = []  # of each ask: the ticket, and whose lesson it is
        self.tape = Tape(seed)
        self.mechanism = make(self.tape)
        self.loads = 0

    def live(self, script: Script, which: int, other: Sequence[Line] | None = None) -> list[Line]:
        """Everything that happens in this world; gate and halting words forced to what they decided in the other."""
        lines: list[Line] = []
        if any(isinstance(step, Load) for step in script):
            self.mechanism.save(self.folder)
        for number, step in enumerate(script, start=1):
            forced = {} if other is None else self._forced(number, version(step, which), step, other[number - 1])
            lines.append(self._act(number, version(step, which), forced))
        if hasattr(self.mechanism, "close"):
            self.mechanism.close()
        return lines

    # ------------------------------------------------------------------ a step

    def _act(self, number: int, step: Step | None, forced: Mapping[int, int]) -> Line:
        fault = self._reload(step, number) if isinstance(step, Load) else ""
        loop = inside(self.mechanism)
        before = Before.of(loop)
        expected, whose = self._expect(loop, number, step, forced)
        fault = fault or before.moved(loop, set(), "a question changed it")
        self.tape.at(number, forced)
        answers, error = self._do(step, whose)
        line = Line(self._public(), [error, *(a.error or a.ticket for a in answers)], [], self.tape.position)
        line.answers = [(answer.label, answer.sure) for answer in answers]
        if loop is None:
            return line
        line.rounds = expected
        if any(one.halts for one in expected) or (before.halted is None and loop.account.halted):
            line.used = None
        if step is not None and not isinstance(step, Load | Follow):
            line.votes = [] if not expected else self._votes(loop, step, expected)
        line.copies, line.unsure = digests(self._bank(loop)), loop.account.unsure
        line.heard = list(getattr(loop.monitor, "inputs", []))
        allowed = set(whose) if not isinstance(step, Load) else None
        line.fault = fault or before.compare(loop, step, expected, line, allowed, self.reference)
        return line

    def _bank(self, loop: Loop) -> Bank:
        loop.lessons.apply()
        return loop.bank

    def _public(self) -> tuple[object, ...]:
        names = ("rounds", "state", "halt_reason", "guarantee", "labels", "units")
        here = getattr(self.mechanism, "pop_", getattr(self.mechanism, "pop", self.mechanism))
        return (*(getattr(here, name, None) for name in names), self.loads)

    def _do(self, step: Step | None, whose: list[int]) -> tuple[list[Answer], str]:
        """Take the step: its answers, and the error that its taker saw."""
        first = len(self.tickets)
        self.tickets += [(None, whose[i] if i < len(whose) else None) for i in range(size(step))]
        try:
            answers = self._call(step)
        except Exception as raised:
            return [], f"{type(raised).__name__}: {raised}"
        if isinstance(step, Ask | AskMany):
            for i, answer in enumerate(answers):
                self.tickets[first + i] = (answer.ticket or None, self.tickets[first + i][1])
        return answers, ""

    def _call(self, step: Step | None) -> list[Answer]:
        mechanism: Any = self.mechanism
        match step:
            case Ask(x, unit):
                return [mechanism.predict(x) if unit is None else mechanism.predict(x, unit)]
            case AskMany(xs, units):
                return list(mechanism.predict_many(xs, units))
            case Follow(xs, ys, units):
                rows = mechanism.follow_many(xs, np.array(ys, dtype=np.int64), units)
                labels = [None if label < 0 else mechanism.labels[label] for label in rows.answers]
                return [Answer(label, bool(sure), "") for label, sure in zip(labels, rows.sure, strict=True)]
            case Label(ask, y):
                if (ticket := self.tickets[ask - 1][0]) is not None:
                    mechanism.learn(ticket, y)
            case LabelMany(asks, ys):
                mechanism.learn_many([self.tickets[ask - 1][0] or "" for ask in asks], ys)
            case Teach(x, y, unit):
                mechanism.teach(x, y) if unit is None else mechanism.teach(x, y, unit)
            case TeachMany(xs, ys, units):
                mechanism.teach_many(xs, ys, units)
            case Forget(unit):
                mechanism.forget(unit)
        return []

    def _reload(self, step: Load, number: int) -> str:
        """Save or crash, then load twice: nothing that was spent is forgotten, and no coin comes back."""
        if step.saved:
            self.mechanism.save(self.folder)
        loop = inside(self.mechanism)
        spent = {} if loop is None else _spent(loop)
        self.mechanism.close()
        coins = []
        for _ in range(2):
            fresh = self.load(self.folder, Random())
            coins.append(_next_coins(inside(fresh)))
            fresh.close()
        if coins[0] & coins[1]:
            return "the load brought back randomness: another load of this state drew the same coins"
        self.tape, self.loads = Tape(self.seed + number), self.loads + 1
        self.mechanism = self.load(self.folder, self.tape)
        again = inside(self.mechanism)
        after = {} if again is None else _spent(again)
        fell = [f"{name} fell from {n} to {after.get(name, 0)}" for name, n in spent.items() if after.get(name, 0) < n]
        return f"the load forgot what was spent: {', '.join(fell[:2])}" if fell else ""

    # ------------------------------------------------------------------ the reference

    def _expect(
        self, loop: Loop | None, number: int, step: Step | None, forced: Mapping[int, int]
    ) -> tuple[list[Round], list[int]]:
        """What the rounds of a step must show, and the copies that may learn in it."""
        if loop is None:
            return [], []
        if isinstance(step, Label | LabelMany):
            asks = [step.ask] if isinstance(step, Label) else step.asks
            return [], [copy for ask in asks if (copy := self.tickets[ask - 1][1]) is not None]
        whos = [self._who(loop, unit) for unit in units_of(step, size(step))]
        if isinstance(step, Forget | Teach | TeachMany):
            rows = len(whos)
            drawn = self._drawn(loop, number, rows, rows, forced) if loop.routing.units == "rounds" else []
            return [], [copy_of(loop, who, drawn[i] if drawn else None) for i, who in enumerate(whos)]
        rows = min(size(step), loop.plan.rounds - loop.account.rounds) if loop.account.halted is None else 0
        silent = max(0, loop.plan.silent - loop.account.rounds)
        drawn = self._drawn(loop, number, rows, silent, forced)
        whose = [copy_of(loop, whos[i], one) for i, one in enumerate(drawn)]
        return Reference(loop, step, whos, drawn, self._words).rounds(), whose

    def _who(self, loop: Loop, unit: Any) -> bytes | None:
        try:
            return loop.routing.who(unit)
        except ValueError:  # refused before anything happens
            return None

    def _drawn(self, loop: Loop, number: int, rows: int, silent: int, forced: Mapping[int, int]) -> list[Drawn]:
        k, m, people = loop.plan.copies, loop.plan.polls, loop.routing.units == "people"
        n = 64 + rows * (m + 6)
        while True:
            self._words = self.tape.words_of(number, n, forced)
            drawn = read_rows(self._words, rows, silent, k, m, people)
            if drawn is not None:
                return drawn
            n *= 2

    def _forced(self, number: int, step: Step | None, given: Step | Hidden, other: Line) -> dict[int, int]:
        """Words that decide here what they decided there: gates of visible rounds, halting draws of all."""
        loop = inside(self.mechanism)
        if loop is None or not other.rounds or isinstance(given, Load) or not isinstance(loop.plan.halting, Halting):
            return {}
        rows = given.rows if isinstance(given, Hidden) else ()
        own = set(range(size(step))) if isinstance(given, Hidden) and not rows else set(rows)
        silent = max(0, loop.plan.silent - loop.account.rounds)
        forced: dict[int, int] = {}
        for i, (there, drawn) in enumerate(
            zip(other.rounds, self._drawn(loop, number, len(other.rounds), silent, {}), strict=True)
        ):
            if drawn.gate >= 0:
                if i not in own and not (there.malformed or there.capped):
                    forced[drawn.gate] = 0 if there.sure else MOST
                forced[drawn.gate + 1] = MOST if there.halts else 0
        return forced

    def _votes(self, loop: Loop, step: Any, rounds: list[Round]) -> list[list[int | None]]:
        """Every copy's vote on each live question, as the copies are."""
        found: list[list[int | None]] = []
        bank = self._bank(loop)
        for i, one in enumerate(rounds):
            if one.live and not one.malformed:
                x = bank.encode(step.x if isinstance(step, Ask) else step.xs[i])
                each = [bank.votes(x, np.array([copy])) for copy in range(bank.copies)]
                found.append([int(votes.argmax()) if votes.any() else None for votes in each])
        return found


def _spent(loop: Loop) -> dict[str, int]:
    """Everything that may only grow."""
    account = loop.account
    shares = {f"the unsure answers of unit {who.hex()[:6]}": n for who, n in account.shares.items()}
    counted = {f"the monitored rounds of unit {who.hex()[:6]}": n for who, n in account.watched.items()}
    halted = int(account.halted is not None)
    return {"the rounds": account.rounds, "the unsure answers": account.unsure, "the halt": halted, **shares, **counted}


def _next_coins(loop: Loop | None) -> set[bytes]:
    """What the generator of a mechanism that was just loaded draws first."""
    return set() if loop is None else {loop.rng.words(4).tobytes()}
