"""The agnostic case: POP in phases, each with fresh copies, for sequences that no hypothesis labels without error.

Claims and proofs: docs/proofs/phases.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confide.certificate import Rates
from confide.certified import Search
from confide.monitor import Monitor
from confide.plan import Guarantee, Plan
from confide.pop import POP, TICKET_LIFE, Answer, TicketError
from confide.sparse import Halted


@dataclass(frozen=True)
class AgnosticBound:
    """E[mistakes] of a run in phases, by the errors OPT of the best hypothesis. Proof page: docs/proofs/phases.md.

    For a learner that makes at most factor·(OPT_j + extra) mistakes on every sequence of its own.
    """

    rounds: int
    copies: int
    factor: float
    extra: float
    beta: float
    rates: Rates

    def mistakes(self, opt: float) -> float:
        """g(0)·T + a·C·(2·OPT + (2 + 2β)·k·D), at most T."""
        grown = 2 * opt + (2 + 2 * self.beta) * self.copies * self.extra
        return min(
            float(self.rounds), self.rates.wrong_floor * self.rounds + self.rates.wrong_slope * self.factor * grown
        )

    def phases(self, opt: float) -> float:
        """E[number of phases] is at most 2 + 2β + OPT/(k·D)."""
        return 2 + 2 * self.beta + opt / (self.copies * self.extra)


class _Agnostic(Search):
    """The search of certified plans with r = u(0)·T + 2·b·C·k·D; `mistakes` holds C·D."""

    def _need(self, rate: Rates, copies: int) -> int:
        return math.ceil(rate.unsure_floor * self.rounds + 2 * rate.unsure_slope * self.mistakes * copies)

    def _expected(self, rate: Rates, copies: int) -> float:
        part = (2 + 2 * self.beta) * rate.wrong_slope * self.mistakes * copies
        return rate.wrong_floor * self.rounds + part


def agnostic_plan(
    epsilon: float,
    delta: float,
    rounds: int,
    *,
    factor: float,
    extra: float,
    beta: float = 0.05,
    copies: int | None = None,
    labels: int = 2,
) -> tuple[Plan, AgnosticBound]:
    """The plan for one phase of a run of `rounds` rounds, and what all phases together are bounded by.

    Proof pages: docs/proofs/halting.md (privacy), docs/proofs/phases.md (mistakes).

    Parameters
    ----------
    factor, extra
        C and D: on every sequence the learner makes at most C·(OPT + D) mistakes, whatever its coins. For
        `WeightedMajority` over N hypotheses C = 2.633 and D = ln N.

    Examples
    --------
    >>> plan, bound = agnostic_plan(8.0, 1e-6, 1_000_000, factor=2.633, extra=math.log(64))
    >>> bound.mistakes(0) < bound.mistakes(10_000) < 1_000_000
    True
    """
    if not (factor >= 1 and extra > 0 and math.isfinite(factor * extra)):
        raise ValueError("factor must be at least 1 and extra positive: the learner errs at most factor·(OPT + extra)")
    error = 1 - 1 / labels
    search = _Agnostic(epsilon, delta, rounds, factor * extra, beta, None, error)
    copies = search.choose(copies)
    unsure, gate, halting, got, rate = search.tables(copies)
    early = rounds * float(halting.table[: unsure + 1].max())
    plan = Plan(
        kind="agnostic",
        rounds=rounds,
        copies=copies,
        polls=copies,
        unsure=unsure,
        silent=0,
        unit_unsure=1,
        labels=labels,
        beta=early,
        order=got.order,
        gate=gate,
        halting=halting,
        guarantee=Guarantee(got.epsilon, got.delta),
        notes=("one phase of many: when it halts the next one starts with fresh copies (confide.phases.Phases)",),
    )
    return plan, AgnosticBound(rounds, copies, factor, extra, early, rate)


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
        if stop_after is not None and (monitor is None or stop_after < 1):
            raise ValueError("stop_after counts mistakes privately: give it at least 1, and a monitor that pays for it")
        self._settings: dict[str, Any] = {
            "labels": labels,
            "fallback": fallback,
            "features": features,
            "ticket_life": ticket_life,
            "monitor": monitor,
        }
        self._learner, self.plan, self._stop_after, self._seed = learner, plan, stop_after, seed
        self.phase = 0
        """The number of the phase, from 1 (public)."""
        self.rounds = 0
        """Rounds taken so far (public)."""
        self._begin()

    def _begin(self) -> None:
        self.phase += 1
        seed = None if self._seed is None else self._seed + 1_000_003 * self.phase
        self._pop = POP(self._learner, self.plan, **self._settings, seed=seed)

    def _over(self) -> bool:
        if self._pop.state == "halted":
            return True
        if self._stop_after is None or self._pop.monitor is None or self._pop.monitor.estimate is None:
            return False
        estimate = self._pop.monitor.estimate
        return estimate.mistakes >= self._stop_after + estimate.error

    def predict(self, x: Any) -> Answer:
        """Answer one round, in a new phase if the last one is over; raises Halted after `plan.rounds` rounds."""
        if self.rounds >= self.plan.rounds:
            raise Halted("the rounds of this run are over; plan a new one")
        if self._over():
            self._begin()
        self.rounds += 1
        answer = self._pop.predict(x)
        return replace(answer, ticket=f"{self.phase}:{answer.ticket}")

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round; tickets of an ended phase are refused."""
        phase, _, inner = str(ticket).partition(":")
        if phase != str(self.phase):
            raise TicketError("this ticket belongs to a phase that has ended, or to another run")
        self._pop.learn(inner, y)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to each round of the whole run."""
        return self._pop.guarantee

    @property
    def pop(self) -> POP:
        """The POP of the present phase."""
        return self._pop
