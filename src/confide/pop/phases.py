"""The agnostic case: POP in phases, each with fresh copies, for sequences that no hypothesis labels without error.

Claims and proofs: docs/proofs/phases.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from confide.errors import Halted, TicketError
from confide.planning.certified import Search
from confide.planning.mistakes import Rates, quantile, tail
from confide.planning.plan import Guarantee, Plan
from confide.pop.base import TICKET_LIFE, Answer, Unit, Xs
from confide.pop.batches import refuse, rows_of
from confide.pop.monitor import Monitor
from confide.pop.pop import POP

COUNTER_RISK = 0.05
"""The monitor's error bound fails in a phase with at most this probability (`Estimate.error`)."""


@dataclass(frozen=True)
class AgnosticBound:
    """Mistakes of a run in phases, by the errors OPT of the best hypothesis. Proof page: docs/proofs/phases.md.

    For a learner that makes at most factor·(OPT_j + extra) mistakes on every sequence of its own, and a coin as
    fallback. Where the sequence is chosen on the way OPT is random, and `opt` stands for its expectation.
    """

    rounds: int
    copies: int
    unsure: int
    """r: the unsure answers a phase is planned for."""
    factor: float
    extra: float
    beta: float
    """The expected number of phases that end before their r-th unsure answer."""
    rates: Rates

    def phases(self, opt: float, stop_after: int | None = None) -> float:
        """E[number of phases] is at most this; `stop_after` as given to `Phases`."""
        b, a, r, T = self.rates.unsure_slope, self.rates.wrong_slope, self.unsure, self.rounds
        ended, spent = self.rates.unsure_floor * T / r + b * self.factor * opt / r, b / r
        if stop_after is not None:
            ended += self.rates.wrong_floor * T / stop_after + a * self.factor * opt / stop_after
            spent += a / stop_after
        left = 1 - spent * self.factor * self.copies * self.extra - (0 if stop_after is None else COUNTER_RISK)
        return (1 + self.beta + ended) / left if left > 0 else math.inf

    def mistakes(self, opt: float, stop_after: int | None = None) -> float:
        """E[mistakes] is at most g(0)·T + a·C·(OPT + k·D·E[phases])."""
        return self._mistakes(opt, self.phases(opt, stop_after))

    def _mistakes(self, opt: float, phases: float) -> float:
        erring = self.rates.wrong_slope * self.factor * (opt + self.copies * self.extra * phases)
        return min(float(self.rounds), (self.rates.wrong_floor * self.rounds + erring) * (1 + 1e-9))

    def likely_mistakes(self, opt: float, beta: float = 0.05) -> int:
        """With probability 1 − beta there are at most this many mistakes or OPT is above `opt` (no `stop_after`)."""
        left = beta - self.beta
        if left <= 0:
            raise ValueError(f"phases may end early with probability {self.beta:.3g}: ask for a larger beta")
        for phases in range(1, self.rounds):
            budget = self.factor * (opt + self.copies * self.extra * phases)
            floor = self.rates.unsure_floor * self.rounds
            more = tail(self.unsure * phases, budget=budget, floor=floor, slope=self.rates.unsure_slope)
            if more <= left / 2:
                floor = self.rates.wrong_floor * self.rounds
                most = quantile(left - more, budget=budget, floor=floor, slope=self.rates.wrong_slope)
                return min(self.rounds, most)
            if self.rates.wrong_slope * budget > self.rounds:
                break
        return self.rounds


class _Agnostic(Search):
    """The search of certified plans with r = u(0)·T + reserve·b·C·k·D; `mistakes` holds reserve·C·D."""

    reserve = 3.0

    def _need(self, rate: Rates, copies: int) -> int:
        return math.ceil(rate.unsure_floor * self.rounds + rate.unsure_slope * self.mistakes * copies)

    def _expected(self, rate: Rates, copies: int) -> float:
        """The bound at OPT = 0."""
        need, erring = self._need(rate, copies), self.mistakes * copies / self.reserve
        phases = (rate.unsure_floor * self.rounds + need) / max(need - rate.unsure_slope * erring, 1)
        return rate.wrong_floor * self.rounds + rate.wrong_slope * erring * phases


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
    reserve: float = 3.0,
) -> tuple[Plan, AgnosticBound]:
    """The plan for one phase of a run of `rounds` rounds, and what all phases together are bounded by.

    Proof pages: docs/proofs/halting.md (privacy), docs/proofs/phases.md (mistakes).

    Parameters
    ----------
    factor, extra
        C and D: on every sequence the learner makes at most C·(OPT + D) mistakes, whatever its coins. For
        `WeightedMajority` over N hypotheses C = 2.633 and D = ln N.
    copies
        k; by default the bound at OPT = 0 is minimised.
    reserve
        A phase is planned for this many times the unsure answers that its copies' own start may cost. The bound has
        a·C·reserve/(reserve − 1) times OPT, so more is better where OPT is large; 2 to 4 is reasonable.

    Examples
    --------
    >>> plan, bound = agnostic_plan(8.0, 1e-6, 100_000, factor=2.633, extra=math.log(8))
    >>> bound.mistakes(0) < bound.mistakes(1000) < 25_000
    True
    """
    if not (factor >= 1 and extra > 0 and math.isfinite(factor * extra)):
        raise ValueError("factor must be at least 1 and extra positive: the learner errs at most factor·(OPT + extra)")
    if not 1 < reserve < math.inf:
        raise ValueError(f"reserve={reserve} must be above 1: what is planned must be more than the start costs")
    error = 1 - 1 / labels
    search = _Agnostic(epsilon, delta, rounds, factor * extra * reserve, beta, None, error)
    search.reserve = reserve
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
        notes=("one phase of many: when it halts the next one starts with fresh copies (confide.pop.phases.Phases)",),
    )
    return plan, AgnosticBound(rounds, copies, unsure, factor, extra, early, rate)


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
        self._lock = threading.RLock()
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

    def predict(self, x: Any, unit: Unit | None = None) -> Answer:
        """Answer one round, in a new phase if the last one is over; raises Halted after `plan.rounds` rounds."""
        with self._lock:
            self._check_round()
            self.rounds += 1
            answer = self._pop.predict(x, unit)
            return self._signed(answer)

    def predict_many(self, xs: Xs, units: Sequence[Unit] | None = None) -> list[Answer]:
        """Answer many rounds: what `predict` would answer one after the other, errors in the answers."""
        rows, answers = rows_of(xs, self._pop.named), list[Answer]()
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
                before = self._pop.rounds
                some = self._pop.predict_many(rows[len(answers) : len(answers) + self.plan.rounds - self.rounds])
                taken = self._pop.rounds - before
                self.rounds += taken
                answers += [self._signed(answer) for answer in some[:taken]]
        return answers

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round; tickets of an ended phase are refused."""
        with self._lock:
            self._pop.learn(self._inner(ticket), y)

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels; all good ones are learned, then ValueError tells of the bad ones."""
        if len(tickets) != len(ys):
            raise ValueError(f"there are {len(tickets)} tickets for {len(ys)} labels: give one label for each")
        refused: dict[int, ValueError] = {}
        for i, (ticket, y) in enumerate(zip(tickets, ys, strict=True)):
            try:
                self.learn(ticket, y)
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
    def pop(self) -> POP:
        """The POP of the present phase."""
        return self._pop
