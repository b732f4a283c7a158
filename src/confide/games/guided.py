"""What a guide must do in a replay, said independently of the loop that leads it (docs/proofs/guide.md).

Beside the guide that is watched runs a *shadow*: a guide like it on the same coins, led by the script alone, with caps
and counts of its own. Whatever the watched guide releases must be what the shadow releases, to the last bit; then the
shadow goes on from what everybody has seen. A third one, *own*, is led in the same way by the unit's labels alone: the
sums of two worlds may differ by these, and by nothing else.

In the second world every release is replaced by that of the first, just before it is made durable: the proof's two
worlds that show the same, with other noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from confide.arrays import Floats, Ints
from confide.contained import contained
from confide.errors import StateError
from confide.games.script import Ask, AskMany, Cut, Follow, Label, LabelMany, Own, Step, Teach, TeachMany
from confide.games.tape import Tape
from confide.guide.guide import Guide, Release
from confide.guide.model import Batch, Question
from confide.pop.guiding import Guiding
from confide.pop.loop import Loop

Key = tuple[str, int]


@dataclass
class Given:
    """What was given for an ask."""

    copy: int | None
    """Whose lesson it is."""
    who: bytes | None
    own: bool = False
    """Whether the unit asked."""
    guided: Question | None = None
    """The question as the guide takes it."""
    ticket: str | None = None
    closed: bool = False
    """Whether its label was taken, or its person was forgotten."""
    taught: bool = False
    """Whether the guide was given its label."""

    @property
    def key(self) -> tuple[int, int]:
        """Which load issued the ticket, and in which round."""
        epoch, number, _ = (self.ticket or "0-0-").split("-")
        return int(epoch), int(number)


class Released(NamedTuple):
    """One release of a world."""

    kind: str
    number: int
    row: Ints
    """As it was drawn in this world."""
    used: Ints
    """As everybody has seen it."""
    exact: Ints
    own: Ints
    """What of the exact sums is the unit's."""


class Shadow:
    """What the guide of one world must do."""

    def __init__(self, guiding: Guiding, tape: Tape) -> None:
        self.records = False
        """Whether labels come as records: then these are counted, and questions are not."""
        self.given: Mapping[Key, Ints] = {}
        """What the other world released."""
        self.labels: dict[bytes, int] = {}
        """Labels of each person that the guide may have learned."""
        self.counted: set[bytes] = set()
        self.history = 0
        self.recorded = False
        """Whether rows of history are in the counts."""
        self.released: list[Released] = []
        """In this step."""
        self.fault = ""
        self._all: list[Release] = []  # as everybody has seen them
        self._heard: list[tuple[Release, Ints]] = []
        self._own_sums: dict[Key, Ints] = {}
        self._scores: list[Floats] = []  # of the rows of this step, where they came as a batch
        self._begin(guiding, tape)

    @classmethod
    def of(cls, loop: Loop | None, tape: Tape) -> Self | None:
        """A shadow for a mechanism that has a guide and shows it to its operator."""
        if loop is None or loop.guiding is None:
            return None
        if loop.account.periods is not None:
            raise ValueError("two worlds are not yet compared where labels are counted by periods: plan without per")
        found = cls(loop.guiding, tape.spawned[-1].twin())
        found.records = loop.tickets.life == 1
        return found

    def _begin(self, guiding: Guiding, tape: Tape) -> None:
        self.plan, self._tape, self._again = guiding.plan, tape, False
        self.guide = guiding.fresh(tape, self._check)
        self.own = guiding.fresh(tape.twin(), self._keep)
        self._watch(guiding.guide)

    def _watch(self, watched: Guide) -> None:
        self._watched, store = watched, watched.store

        def hear(release: Release) -> None:
            drawn = release.row.copy()
            forced = self.given.get((release.kind, release.number))
            if forced is not None and forced.shape == release.row.shape:
                release.row[:] = forced
            self._heard.append((Release(release.kind, release.number, release.row.copy(), release.exact.copy()), drawn))
            if store is not None:
                store(release)

        watched.store = hear
        run, scores = watched.run, self._scores

        def heard(batch: Batch, labels: Ints, other: Batch | None = None) -> Floats:
            found = run(batch, labels, other)
            scores.extend(found)
            return found

        watched.run = heard  # type: ignore[method-assign]

    def at(self, step: int, loop: Loop) -> None:
        """Turn the coins to a step, in which nothing was released yet."""
        self._tape.at(step)
        self.released = []
        self._scores.clear()
        self._open = {key for key, _ in loop.tickets}

    # ------------------------------------------------------------------ what the script says

    def round(
        self, loop: Loop, step: Ask | AskMany | Follow, row: int, own: bool, given: Given
    ) -> tuple[int, Floats | None]:
        """After a step of the watched guide: one of its rounds for the shadow; its answer, and the row's own scores."""
        x = step.x if isinstance(step, Ask) else step.xs[row]
        given.own = own
        given.guided, answer = self.asked(x, given.who, self._readable(loop, x), own)
        score = None if given.guided is None else self.guide.score(given.guided)
        self.taught(given.guided, step.ys[row] if isinstance(step, Follow) else -1, given.who, own)
        return answer, None if score is None else score[-self.plan.vectors :]

    def cut(self, loop: Loop, step: Cut, own: Own, given: Sequence[Given]) -> None:
        """After a batch that was cut off: the rows before that for the shadow, and all of its rounds are over.

        Of the rows that the guide did not come to, labels are marked as used and people as counted all the same.
        """
        batch, first, left, counting = step.batch, self.guide.rounds, step.after, self.guide.counting
        rows = len(batch.xs)
        for i in range(rows):
            while left and self.own.close_next() and self.guide.close_next():
                left -= 1
            if left == 0:
                self._mark(loop, batch, range(i, rows), counting - i, given)
                break
            self.round(loop, batch, i, own.has(i), given[i])
        for guide in (self.own, self.guide):
            guide.go_to(first + rows)

    def _mark(self, loop: Loop, batch: AskMany | Follow, rows: range, counting: int, given: Sequence[Given]) -> None:
        for at, i in enumerate(rows):
            who = given[i].who
            if who is None or not self._readable(loop, batch.xs[i]):
                continue
            if at < counting:
                self.counted.add(who)
            if isinstance(batch, Follow) and batch.ys[i] >= 0:
                self.labels[who] = min(self.plan.unit_labels, self.labels.get(who, 0) + 1)

    def lead(self, loop: Loop, step: Step | None, own: Own, given: Sequence[Given]) -> None:
        """After a step of the watched guide that asks nothing: the same step for the shadow."""
        match step:
            case Label(ask, y):
                self._label(loop, given[ask - 1], y)
            case LabelMany(asks, ys):
                for ask, y in zip(asks, ys, strict=True):
                    self._label(loop, given[ask - 1], y)
            case Teach(x, y, unit):
                self._record(loop, x, y, loop.routing.who(unit), own.has(0), row=False)
            case TeachMany(xs, ys, units):
                rows = 0 if loop.account.rounds else max(0, min(len(xs), self.plan.history - self.history))
                for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
                    who = None if units is None else loop.routing.who(units[i])
                    self._record(loop, x, y, who, own.has(i), row=i < rows)

    def _label(self, loop: Loop, one: Given, y: Any) -> None:
        """A label teaches once, if its ticket was open, and is not any more."""
        redeemed = self._open - {key for key, _ in loop.tickets}
        if one.ticket is not None and one.key in redeemed and not one.taught:
            one.taught = True
            self.taught(one.guided, _number(loop, y), one.who, one.own)

    def _record(self, loop: Loop, x: Any, y: Any, who: bytes | None, own: bool, row: bool) -> None:
        label = _number(loop, y) if self._readable(loop, x) else -1
        self.record(x, label, who, own, row)

    def _readable(self, loop: Loop, x: Any) -> bool:
        with contained:
            self.guide.read(x)
            return loop.encode(x)[1] is None
        return False

    def asked(
        self, x: Any, who: bytes | None, readable: bool, own: bool, record: bool = False
    ) -> tuple[Question | None, int]:
        """A public round, or row of history: the row as its ticket holds it, and the guide's own answer."""
        for guide in (self.own, self.guide):
            guide.begin_round()
        found = self._scores.pop(0) if self._scores else None
        if not readable:
            return None, -1
        question = self.guide.encode(x)
        score = self.guide.score(question)
        if score is not None and found is not None and not np.array_equal(found, score[-found.size :]):
            self.fault = self.fault or "a row's score in a batch is not, bit for bit, the one that it has by itself"
        if self.guide.finding and ((record or self._asks) if who is None else who not in self.counted):
            self.counted |= set() if who is None else {who}
            self._count(x, own)
        return question, self.guide.answer(question)

    @property
    def _asks(self) -> bool:
        """Whether questions of rounds are counted: not where rows of history are, nor, before a load, other records."""
        return not self.recorded and (self._again or not self.records)

    def _count(self, x: Any, own: bool) -> None:
        for guide in (self.guide, self.own) if own else (self.guide,):
            guide.count(x)

    def taught(
        self, question: Question | None, label: int, who: bytes | None, own: bool, counted: bool = False
    ) -> None:
        """A label that belongs to one of its rounds; one that the warm-up waited for does not teach after it.

        Of a row that may be counted it teaches less after the warm-up.
        """
        if question is None or label < 0 or question.stage != self.guide.stage:
            return
        if who is not None:
            if self.labels.get(who, 0) >= self.plan.unit_labels:
                return
            self.labels[who] = self.labels.get(who, 0) + 1
        for guide in (self.guide, self.own) if own else (self.guide,):
            guide.gradient(question, label, counted=counted)

    def record(self, x: Any, label: int, who: bytes | None, own: bool, row: bool) -> None:
        """A record that was never asked; one of the plan's rows of history takes a row's number."""
        again = self._again and who is None
        if row:
            self.history += 1
            self.recorded |= who is None
            question, _ = self.asked(x, who, label >= 0, own, record=True)
        else:
            question = self.guide.encode(x) if label >= 0 else None
            if question is not None and who is None and not (again or self._asks or self.recorded):
                self._count(x, own)
        counted = not row and who is None and self._asks
        self.taught(question, -1 if again else label, who, own, counted)

    def loaded(self, guiding: Guiding, tape: Tape, rounds: int) -> None:
        """The process died, and a load went on from what was durable: all that was released, and empty open leaves."""
        self.fault, self._heard = "", []
        self.counted, self.recorded = set(), False  # counts that were not released are lost, with whose rows they had
        try:
            self._begin(guiding, tape)
            self.guide.resume(rounds, self._all)
            own = self._own_sums
            empty = [Release(*one[:-1], own.get((one.kind, one.number), one.exact)) for one in self._all]
            self.own.resume(rounds, empty)
        except (StateError, ValueError):
            self.fault = "the load has another guide than the one that was saved"
        self._again = True
        self.compare()

    # ------------------------------------------------------------------ what was released

    def _check(self, release: Release) -> None:
        """The shadow releases: the watched guide must have released the same."""
        kind, number = release.kind, release.number
        heard, drawn = self._heard.pop(0) if self._heard else (None, release.row)
        if heard is None or (heard.kind, heard.number, heard.row.shape) != (kind, number, release.row.shape):
            self.fault = self.fault or f"{kind} {number} was due by the number of rounds, and was not released"
            return
        if not np.array_equal(heard.exact, release.exact):
            self.fault = self.fault or (
                f"{kind} {number} holds other sums than the labels that came, each within its unit's cap, once, and by "
                "what was released"
            )
        elif not np.array_equal(drawn, release.row):
            self.fault = self.fault or f"{kind} {number} is not its sums with the noise that was drawn for it"
        release.row[:] = heard.row
        self._all.append(Release(kind, number, heard.row, heard.exact))
        if (begins := self.guide.begins(release)) is not None:  # a ledger keeps no more of ended epochs either
            self._all = [*(one for one in self._all if one.kind in ("warm", "ranges")), begins]
        own = self._own_sums[kind, number]
        self.released.append(Released(kind, number, drawn, heard.row, heard.exact, own))

    def _keep(self, release: Release) -> None:
        """The unit's own sums; the map and θ are those that everybody has seen."""
        self._own_sums[release.kind, release.number] = release.exact.copy()
        seen = next((one for one, _ in self._heard if (one.kind, one.number) == (release.kind, release.number)), None)
        if seen is not None and seen.row.shape == release.row.shape:
            release.row[:] = seen.row

    def compare(self) -> str:
        """What the watched guide is otherwise than its releases make it."""
        watched, guide = self._watched, self.guide
        if not self.fault and self._heard:
            one = self._heard[0][0]
            self.fault = f"{one.kind} {one.number} was released, and by the number of rounds it was not due"
        if not self.fault and (watched.closed, watched.rounds) != (guide.closed, guide.rounds):
            self.fault = f"the guide has {watched.closed} sums after {watched.rounds} rounds, and {guide.closed} were "
            self.fault += f"released in {guide.rounds}"
        if not self.fault and watched.features != guide.features:
            self.fault = "the guide's map is not the one that what was released makes"
        if not self.fault:
            same = np.array_equal(watched.model.theta, guide.model.theta)
            self.fault = "" if same else "θ is not what released sums and public constants make of it"
        return self.fault


def _number(loop: Loop, y: Any) -> int:
    try:
        return loop.label(y)
    except ValueError:
        return -1
