"""One of the two worlds of a replay: a mechanism with its coins in our hands, and a line on what each step left behind.

Beside the mechanism runs a reference (`confide.games.reference`) that says by itself what each round must show. What
the mechanism did otherwise is a fault of this world alone; what differs between the worlds is for
`confide.games.replay`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from confide.banks.base import Bank
from confide.errors import StateError
from confide.games.durable import Durable, coins_that_return, spending
from confide.games.guided import Given, Shadow
from confide.games.leaned import Ear, word_for
from confide.games.reference import Before, Expected, Line, Reference, Round, copy_of, digests
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
    Own,
    Script,
    Step,
    Teach,
    TeachMany,
    own_rows,
    size,
    units_of,
    version,
)  # fmt: skip
from confide.games.tape import LEAST, MOST, Drawn, Tape, read_rows
from confide.guide.guide import Asked, Guide
from confide.pop.base import SOURCES, Answer
from confide.pop.loop import Loop
from confide.pop.pop import Operator
from confide.privacy.halting import Halting
from confide.privacy.random import Random

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


class World:
    """One of the two worlds."""

    def __init__(self, make: Make, load: LoadFrom, seed: int, folder: Path, reference: bool = True) -> None:
        self.make, self.load, self.seed, self.folder, self.reference = make, load, seed, folder, reference
        self.tickets: list[Given] = []
        self.disk = Durable(folder, self._public)
        self.tape = Tape(seed)
        self.mechanism = make(self.tape)
        self.loads, self.unsaved = 0, ""
        self.heard: list[int] = []  # the monitor's inputs
        loop = self._listen()
        self.plan = None if loop is None else loop.plan
        if self.plan is not None and self.plan.relay:
            raise ValueError("two worlds are not yet compared in a relay: replay a plan whose copies halt")
        self.shadow = Shadow.of(loop, self.tape)

    def _listen(self) -> Loop | None:
        loop = inside(self.mechanism)
        if loop is not None and loop.monitor is not None:
            loop.monitor.ear = self.heard.append
        self.ear = Ear.on(None if loop is None else loop.leaning)
        return loop

    def live(self, script: Script, which: int, most: int, other: Sequence[Line] | None = None) -> list[Line]:
        """What happens in this world, up to its first fault or so many steps.

        Gate, lean and halting words are forced to what they decided in the other world, where its lines are given.
        """
        lines: list[Line] = []
        if self.shadow is not None and other is not None:
            self.shadow.given = {(one.kind, one.number): one.used for line in other for one in line.released}
        if any(isinstance(step, Load | Disk) or _crashes(step) for step in script):
            self.mechanism.save(self.folder)
            self.disk.listen(inside(self.mechanism))
        for number, step in enumerate(script[:most], start=1):
            lines.append(self._act(number, version(step, which), step, None if other is None else other[number - 1]))
            if lines[-1].fault:  # nothing after it would be worth comparing
                break
        self.disk.turn(True)
        if hasattr(self.mechanism, "close"):
            self.mechanism.close()
        return lines

    # ------------------------------------------------------------------ a step

    def _act(self, number: int, step: Step | None, given: Step | Hidden, other: Line | None) -> Line:
        if isinstance(step, Cut):
            return self._cut(number, step, own_rows(given))
        fault = self._reload(step, number) if isinstance(step, Load) else ""
        if isinstance(step, Disk):
            self.disk.turn(step.works)
        loop, own = inside(self.mechanism), own_rows(given)
        before, public = Before.of(loop), self._public()
        reference = None if loop is None else self._prepare(loop, number, step)
        expected = Expected() if reference is None else reference.done
        forced = {} if reference is None or other is None else self._forced(reference, own, other)
        fault = fault or before.moved(loop, set(), "a question changed it")
        self.tape.at(number, forced)
        self.ear.heard.clear()
        if self.shadow is not None and loop is not None:
            self.shadow.at(number, loop)
        answers, error = self._do(step, expected)
        error = self.unsaved if isinstance(step, Load) else error
        line = Line(self._public(), [error, *map(_beside, answers)], [], [], self.tape.position)
        line.answers, line.sources = [(a.label, a.sure) for a in answers], [a.source for a in answers]
        line.guided = [answer.guide for answer in answers]
        if loop is None or reference is None:
            return line
        fault = fault or self._settle(reference, number, own, forced)
        line.released = [] if self.shadow is None else self.shadow.released
        line.rounds = expected.rounds
        if expected.halts or (before.halted is None and loop.account.halted):
            line.used = None
        if step is not None and not isinstance(step, Load | Follow):
            line.votes = [] if not expected.rounds else self._votes(loop, step, expected.rounds)
        line.copies, line.unsure = digests(self._bank(loop)), loop.account.unsure
        line.heard, line.watched = list(self.heard), dict(loop.account.watched)
        line.entries = self.disk.take(step, public)
        fault = fault or before.compare(loop, step, expected, line, self.reference)
        fault = fault or self.disk.fault or self.disk.entered(step, expected, line) or self._public_fault(loop)
        line.fault = fault or self._tickets_fault(loop, step, error, line)
        return line

    def _cut(self, number: int, step: Cut, own: Own) -> Line:
        """A batch that is cut off: its rounds are taken, and what the guide released of it was released once."""
        loop, rows = inside(self.mechanism), size(step)
        assert loop is not None and loop.goes_on and loop.guiding is not None and self.shadow is not None
        before, public, spent, tickets = Before.of(loop), self._public(), spending(loop), len(self.tickets)
        self.tickets += [Given(None, self._who(loop, unit)) for unit in units_of(step, rows)]
        self.tape.at(number)
        self.shadow.at(number, loop)
        self._interrupted(loop.guiding.guide, step)
        self.shadow.cut(loop, step, own, self.tickets[tickets:])
        seen, taken, fault = self._public()[0], before.rounds + rows, self.shadow.fault
        after = before.rounds if step.crash and not self.shadow.released else taken  # nothing of it was durable
        if step.crash:
            fault = fault or self._reload(Load(saved=False), number, spent)
        else:
            with contextlib.suppress(StateError):
                self.mechanism.learn_many([], [])  # a call that asks nothing and teaches nothing
            fault = fault or self.shadow.compare()
        loop = inside(self.mechanism)
        assert loop is not None
        if (seen, loop.account.rounds) != (taken, after):
            fault = f"a batch was cut off after {taken} rounds were taken; everybody saw {seen}, and it goes on after "
            fault += f"{loop.account.rounds}: what it taught would be taught again"
        line = Line(self._public(), ["cut off"], [], [], None, fault=fault)
        line.released = self.shadow.released
        line.copies, line.unsure = digests(self._bank(loop)), loop.account.unsure
        line.heard, line.watched = list(self.heard), dict(loop.account.watched)
        line.entries = self.disk.take(step, public)
        line.fault = line.fault or self.disk.fault or self._public_fault(loop)
        return line

    def _interrupted(self, guide: Guide, step: Cut) -> None:
        """Take the batch, up to so many releases of the guide or to the end of its part."""
        left, close_next, follow = [step.after], guide.close_next, guide.follow

        def cutting() -> bool:
            closed = close_next()
            left[0] -= closed
            if closed and left[0] == 0:
                raise KeyboardInterrupt
            return closed

        def ended(*args: Any) -> Asked:
            follow(*args)
            raise KeyboardInterrupt

        guide.close_next, guide.follow = cutting, ended  # type: ignore[method-assign, assignment]
        with contextlib.suppress(KeyboardInterrupt):
            self._call(step.batch)
        guide.close_next, guide.follow = close_next, follow  # type: ignore[method-assign]

    def _settle(self, reference: Reference, number: int, own: Own, forced: Mapping[int, int]) -> str:
        """What the step must have done, by the reference; the guide's part first, whose scores a lean goes by."""
        loop, step, done, plan = reference.loop, reference.step, reference.done, reference.loop.plan
        if not isinstance(step, Ask | AskMany | Follow):
            if self.shadow is not None:
                self.shadow.lead(loop, step, own, self.tickets)
            return "" if self.shadow is None else self.shadow.compare()
        if not self.disk.works:
            self.shadow = None  # nothing is answered any more
        drawn, rows = reference.drawn, size(step)
        words = self.tape.words_of(number, drawn[-1].end, forced) if drawn else np.empty(0, dtype=np.uint64)
        while done.taken < rows:
            if not loop.goes_on and (reference.over if plan.copies else done.taken >= self._left):
                break
            i, scores = done.taken, None
            if self.shadow is not None:
                guided, scores = self.shadow.round(loop, step, i, own.has(i), self.tickets[i - rows])
                done.guided.append(guided)
            elif (heard := self.ear.row(i, i, rows)) is not None:
                scores = heard[0]
            done.taken += 1
            if not reference.over:
                reference.decide(words, scores)
        return "" if self.shadow is None else self.shadow.compare()

    def _bank(self, loop: Loop) -> Bank:
        loop.lessons.apply()
        return loop.bank

    def _public(self) -> tuple[object, ...]:
        names = ("rounds", "state", "halt_reason", "guarantee", "labels", "units")
        here = getattr(self.mechanism, "pop_", getattr(self.mechanism, "pop", self.mechanism))
        return (*(getattr(here, name, None) for name in names), self.loads)

    def _public_fault(self, loop: Loop) -> str:
        """Whether what everybody sees is what happened, and the plan is the one that was promised."""
        rounds, _, halted, *_ = self._public()
        if loop.plan is not self.plan and loop.plan != self.plan:
            return "the plan is not the one it began with"
        if not self.disk.failed and (rounds, halted) != (loop.account.rounds, loop.account.halted):
            return f"everybody sees {rounds} rounds and the halt {halted!r}, which is not what happened"
        return ""

    def _tickets_fault(self, loop: Loop, step: Step | None, error: str, line: Line) -> str:
        """A ticket is good once, and not after its person was forgotten."""
        if isinstance(step, Label | LabelMany):
            asks = [step.ask] if isinstance(step, Label) else step.asks
            given = [self.tickets[ask - 1] for ask in asks if self.tickets[ask - 1].ticket is not None]
            if not error and any(one.closed for one in given):
                return "a label was taken for a ticket that was used, or whose person was forgotten"
            for one in given:
                one.closed = one.closed or not error
        if isinstance(step, Forget):
            who = self._who(loop, step.unit)
            if loop.plan.copies:
                self.disk.forgot |= {copy: line.copies.get(copy) for copy in [loop.routing.copy_for(who)]}
            for one in self.tickets:
                one.closed = one.closed or one.who == who
        return ""

    def _do(self, step: Step | None, expected: Expected) -> tuple[list[Answer], str]:
        """Take the step: its answers, and the error that its taker saw."""
        first, copies, whos = len(self.tickets), expected.copies, expected.whos
        for i in range(size(step)):
            self.tickets.append(Given(copies[i] if i < len(copies) else None, whos[i] if i < len(whos) else None))
        try:
            answers = self._call(step)
        except Exception as raised:
            return [], self._said(raised)
        if isinstance(step, Ask | AskMany):
            for i, answer in enumerate(answers):
                self.tickets[first + i].ticket = answer.ticket or None
        return answers, ""

    def _said(self, raised: Exception) -> str:
        return f"{type(raised).__name__}: {raised}".replace(str(self.folder), "the folder")

    def _call(self, step: Step | None) -> list[Answer]:
        mechanism: Any = self.mechanism
        match step:
            case Ask(x, unit):
                return [mechanism.predict(x) if unit is None else mechanism.predict(x, unit)]
            case AskMany(xs, units):
                return list(mechanism.predict_many(xs, units))
            case Again(ask):
                mechanism.again(ask)
            case Over(x, unit):
                mechanism.over(x, unit)
            case Follow(xs, ys, units):
                rows = mechanism.follow_many(xs, np.array(ys, dtype=np.int64), units)
                labels = [None if label < 0 else mechanism.labels[label] for label in rows.answers]
                guides = [None if label < 0 else mechanism.labels[label] for label in rows.guide]
                sources: list[Any] = [SOURCES[number] for number in rows.source.tolist()]
                each = zip(labels, rows.sure, sources, guides, strict=True)
                return [Answer(label, bool(sure), "", None, source, guide) for label, sure, source, guide in each]
            case Label(ask, y):
                if (ticket := self.tickets[ask - 1].ticket) is not None:
                    mechanism.learn(ticket, y)
            case LabelMany(asks, ys):
                mechanism.learn_many([self.tickets[ask - 1].ticket or "" for ask in asks], ys)
            case Teach(x, y, unit):
                mechanism.teach(x, y) if unit is None else mechanism.teach(x, y, unit)
            case TeachMany(xs, ys, units):
                mechanism.teach_many(xs, ys, units)
            case Forget(unit):
                mechanism.forget(unit)
        return []

    def _reload(self, step: Load, number: int, spent: Mapping[str, int] | None = None) -> str:
        """Save or crash, then load: nothing that was spent is forgotten, and no coin comes back."""
        self.unsaved = ""
        try:
            if step.saved:
                self.mechanism.save(self.folder)
                self.disk.forgot.clear()
        except StateError as error:  # then it is as if it had crashed; that it failed is for everybody to see
            self.unsaved = self._said(error)
        loop = inside(self.mechanism)
        spent = spending(loop) if spent is None else spent
        knew = {} if loop is None else digests(self._bank(loop))
        self.mechanism.close()
        fault = coins_that_return(lambda: self.load(self.folder, Random()), inside)
        self.tape, self.loads = Tape(self.seed + number), self.loads + 1
        self.mechanism = self.load(self.folder, self.tape)
        loop = self._listen()
        self.disk.listen(loop)
        if self.shadow is not None and loop is not None and loop.guiding is not None:
            account = loop.account
            self.shadow.loaded(loop.guiding, self.tape.spawned[-1].twin(), account.rounds + account.history)
            fault = fault or self.shadow.fault
        return fault or self.disk.lost(spent, knew, loop)

    # ------------------------------------------------------------------ the reference

    def _prepare(self, loop: Loop, number: int, step: Step | None) -> Reference:
        """What is known of a step before it is taken."""
        self._left = max(0, loop.plan.horizon - loop.account.rounds)
        if isinstance(step, Label | LabelMany):
            asks = [step.ask] if isinstance(step, Label) else step.asks
            copies = [copy for ask in asks if (copy := self.tickets[ask - 1].copy) is not None]
            return Reference(loop, step, [], [], done=Expected(copies=copies, words=0))
        whos = [self._who(loop, unit) for unit in units_of(step, size(step))]
        if isinstance(step, Forget | Teach | TeachMany):
            rows = len(whos)
            drawn = self._drawn(loop, number, rows, rows) if loop.routing.units == "rounds" else []
            copies = [copy_of(loop, who, drawn[i] if drawn else None) for i, who in enumerate(whos) if loop.plan.copies]
            done = Expected(copies=copies, whos=whos, words=drawn[-1].end if drawn else 0)
            return Reference(loop, step, whos, [], done=done)
        rows = min(size(step), loop.plan.horizon - loop.account.rounds) if loop.voting else 0
        silent = max(0, loop.plan.silent - loop.account.rounds)
        drawn = self._drawn(loop, number, rows, silent)
        return Reference(loop, step, whos, drawn, ear=self.ear).prepare()

    def _who(self, loop: Loop, unit: Any) -> bytes | None:
        try:
            return loop.routing.who(unit)
        except ValueError:  # refused before anything happens
            return None

    def _drawn(self, loop: Loop, number: int, rows: int, silent: int) -> list[Drawn]:
        plan, people = loop.plan, loop.routing.units == "people"
        if plan.copies == 0:
            return []
        n = 64 + rows * (plan.polls + 6)
        while True:
            words = self.tape.words_of(number, n, {})
            drawn = read_rows(words, rows, silent, plan.copies, plan.polls, people, plan.lean is not None)
            if drawn is not None:
                return drawn
            n *= 2

    def _forced(self, reference: Reference, own: Own, other: Line) -> dict[int, int]:
        """Words that decide here what they decided there: gates and leans of visible rounds, halting draws of all.

        A visible question's offsets are public, and so those of the other world.
        """
        plan, forced = reference.loop.plan, dict[int, int]()
        if not isinstance(plan.halting, Halting):
            return forced
        for i, (there, drawn) in enumerate(zip(other.rounds, reference.drawn, strict=False)):
            if drawn.gate < 0:
                continue
            if not (own.has(i) or there.malformed or there.capped):
                forced[drawn.gate] = LEAST if there.sure else MOST
                if there.leaned >= 0:
                    counts = reference.polled[i].counts
                    forced[drawn.lean] = word_for(plan, there.leaned, counts, there.offsets)
            forced[drawn.halt] = MOST if there.halts else LEAST
        return forced

    def _votes(self, loop: Loop, step: Any, rounds: list[Round]) -> list[list[int | None]]:
        """Every copy's vote on each live question, as the copies are."""
        found: list[list[int | None]] = []
        bank = self._bank(loop)
        for i, one in enumerate(rounds):
            if one.live and not one.malformed:
                x, _ = loop.encode(step.x if isinstance(step, Ask) else step.xs[i])
                each = [loop.votes(x, np.array([copy])) for copy in range(bank.copies)]
                found.append([int(votes.argmax()) if votes.any() else None for votes in each])
        return found


def _crashes(step: Step | Hidden) -> bool:
    one = version(step, 0)
    return isinstance(one, Cut) and one.crash


def _beside(answer: Answer) -> object:
    """What an asker sees besides the answer itself: an error or a ticket, and whatever else a double puts there."""
    known, seen = {field.name for field in fields(Answer)}, answer.error or answer.ticket
    more = {field.name: getattr(answer, field.name) for field in fields(answer) if field.name not in known}
    return (seen, more) if more else seen
