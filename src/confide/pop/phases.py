"""The agnostic case: POP in phases, each with fresh copies, for sequences that no hypothesis labels without error.

Claims and proofs: docs/proofs/phases.md.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal

from confide.banks.base import NONE, Failures
from confide.contained import contained
from confide.errors import Halted, TicketError
from confide.frames import rows_of, values_of
from confide.planning.plan import Guarantee, Plan
from confide.pop.base import TICKET_LIFE, Answer, Unit, Xs
from confide.pop.batches import refuse, ticketed
from confide.pop.monitor import Monitor
from confide.pop.pop import POP


class Phases:
    """POP that starts anew, with fresh copies, whenever it halts: the same guarantee for each round, for the whole run.

    A round is asked in one phase and its label is taken in that phase only, so it touches one copy of one phase: what
    `POP` promises to a round holds for all phases together. People would meet several phases, and are refused. Proof
    page: docs/proofs/phases.md.

    Parameters
    ----------
    learner, plan, labels, fallback, features, ticket_life, seed
        As for `POP`; `plan.rounds` is the length of the whole run.
    stop_after
        Also start anew after about this many mistakes, by a private count: the paper's POP_[u,w]. Needs `monitor`.
    monitor
        The private counter for `stop_after`; its price is in the guarantee.

    Examples
    --------
    >>> from confide.learners import Points
    >>> from confide.planning.agnostic import agnostic_plan
    >>> plan, bound = agnostic_plan(8.0, 1e-6, 100_000, factor=1.0, extra=1.0)
    >>> run = Phases(Points(), plan, labels=[0, 1], features=1)
    >>> answer = run.predict([3.0])
    >>> run.learn(answer.ticket, 0)
    >>> run.phase
    1
    """

    def __init__(
        self,
        learner: Any,
        plan: Plan,
        *,
        labels: Sequence[Hashable],
        fallback: Any = "coin",
        features: Any = None,
        ticket_life: int = TICKET_LIFE,
        stop_after: int | None = None,
        monitor: Monitor | None = None,
        seed: int | None = None,
    ) -> None:
        if plan.guide is not None:
            raise ValueError("phases take no guide: plan with guide=None")
        if stop_after is not None and (monitor is None or stop_after < 1):
            raise ValueError("stop_after counts mistakes privately: give it at least 1, and a monitor that pays for it")
        self._settings: dict[str, Any] = {
            "labels": labels,
            "fallback": fallback,
            "features": features,
            "ticket_life": ticket_life,
            "monitor": monitor,
            "after_halt": "raise",
        }
        self._learner, self.plan, self._stop_after, self._seed = learner, plan, stop_after, seed
        self.phase = 0
        """The number of the phase, from 1 (public)."""
        self.rounds = 0
        """Rounds taken so far (public)."""
        self._lock, self._lost = threading.RLock(), NONE
        self._begin()

    def _begin(self) -> None:
        if self.phase:
            self._lost = self.failures
        self.phase += 1
        seed = None if self._seed is None else self._seed + 1_000_003 * self.phase
        self._pop = POP(self._learner, self.plan, **self._settings, seed=seed)
        self._pop.tells = False  # a phase that ends is followed by the next

    def _over(self) -> bool:
        if self._pop.state == "halted":
            return True
        if self._stop_after is None or self._pop.monitor is None or self._pop.monitor.estimate is None:
            return False
        estimate = self._pop.monitor.estimate
        return estimate.mistakes >= self._stop_after + estimate.error

    def predict(self, x: Any, unit: Unit | None = None) -> Answer:
        """Answer one round, in a new phase if the last one is over; raises Halted after `plan.rounds` rounds."""
        with self._lock:
            self._check_round()
            self.rounds += 1
            answer = self._pop.predict(x, unit)
            return self._signed(answer)

    def predict_many(self, xs: Xs, units: Sequence[Unit] | None = None) -> list[Answer]:
        """Answer many rounds: what `predict` would answer one after the other, errors in the answers."""
        rows, answers = rows_of(xs, self._pop.named, self._pop.names), list[Answer]()
        if units is not None:
            raise ValueError("phases protect rounds, not people: leave units out")
        with self._lock:
            while len(answers) < len(rows):
                try:
                    self._check_round()
                except Halted as halted:
                    if not answers:
                        raise
                    answers += [Answer(None, False, "", str(halted))] * (len(rows) - len(answers))
                    break
                before, asked = self._pop.rounds, rows[len(answers) : len(answers) + self.plan.rounds - self.rounds]
                self.rounds += len(asked)  # whatever becomes of them; a halt gives back those after it
                some = self._pop.predict_many(asked)
                taken = self._pop.rounds - before
                self.rounds -= len(asked) - taken
                answers += [self._signed(answer) for answer in some[:taken]]
        return answers

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round; tickets of an ended phase are refused."""
        with self._lock:
            self._pop.learn(self._inner(ticket), y)

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels; all good ones are learned, then ValueError tells of the bad ones. As for `POP`."""
        tickets, ys = values_of(tickets), values_of(ys)
        if len(tickets) != len(ys):
            raise ValueError(f"there are {len(tickets)} tickets for {len(ys)} labels: give one label for each")
        refused: dict[int, ValueError] = {}
        for i in ticketed(tickets):
            try:
                self.learn(tickets[i], ys[i])
            except ValueError as error:
                refused[i] = error
        refuse(refused)

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> None:
        """Teach a labelled record that was never asked to one copy of the present phase."""
        with self._lock:
            self._pop.teach(x, y, unit)

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> None:
        """Teach many records; all good ones are learned, then ValueError tells of the bad ones."""
        with self._lock:
            self._pop.teach_many(xs, ys, units)

    def _check_round(self) -> None:
        if self.rounds >= self.plan.rounds:
            raise Halted("the rounds of this run are over; plan a new one")
        if self._over():
            self._begin()

    def _signed(self, answer: Answer) -> Answer:
        return replace(answer, ticket=answer.ticket and f"{self.phase}:{answer.ticket}")

    def _inner(self, ticket: str) -> str:
        phase, inner = "", ""
        with contained:  # whatever it is
            phase, _, inner = str(ticket).partition(":")
        if phase != str(self.phase):
            raise TicketError("this ticket belongs to a phase that has ended, or to another run")
        return inner

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """All labels, public."""
        return self._pop.labels

    @property
    def units(self) -> Literal["rounds", "people"]:
        """Phases protect rounds."""
        return "rounds"

    @property
    def state(self) -> Literal["silent", "live", "halted"]:
        """Where the run stands (public): a phase that ends is followed by the next one."""
        return "halted" if self.rounds >= self.plan.rounds else "live"

    @property
    def halt_reason(self) -> str | None:
        """None, or "rounds"."""
        return "rounds" if self.rounds >= self.plan.rounds else None

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to each round of the whole run."""
        return self._pop.guarantee

    @property
    def failures(self) -> Failures:
        """How often the learner failed, in all phases: private, for the operator."""
        return self._lost.plus(self._pop.operator.failures)

    @property
    def pop(self) -> POP:
        """The POP of the present phase."""
        return self._pop
