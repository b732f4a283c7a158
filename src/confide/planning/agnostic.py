"""The plan of one phase of many, for sequences that no hypothesis labels without error, and what all phases cost.

Claims and proofs: docs/proofs/phases.md. The run itself is `confide.pop.phases.Phases`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from confide._checks import Numbers
from confide.planning.arguments import MISTAKE_BETA, check, check_rare, check_tables
from confide.planning.certified import Search, check_lean
from confide.planning.copies import copies_of, early_halt
from confide.planning.design import Found
from confide.planning.mistakes import Rates, quantile, tail
from confide.planning.parts import Unreachable
from confide.planning.plan import Guarantee, Plan
from confide.planning.promise import Promise

COUNTER_RISK = 0.05
"""The monitor's error bound fails in a phase with at most this probability (`Estimate.error`)."""


@dataclass(frozen=True)
class AgnosticBound(Numbers):
    """Mistakes of a run in phases, by the errors OPT of the best hypothesis. Proof page: docs/proofs/phases.md.

    For a learner that makes at most factor·(OPT_j + extra) mistakes on every sequence of its own, and a coin as
    fallback, or a lean, whose rates these are then. Where the sequence is chosen on the way OPT is random, and `opt`
    stands for its expectation.
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

    def likely_mistakes(self, opt: float, beta: float = MISTAKE_BETA) -> int:
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


class AgnosticSearch(Search):
    """The search of certified plans with r = u(0)·T + reserve·b·C·k·D; `mistakes` holds reserve·C·D."""

    reserve = 3.0

    def found(self, copies: int | None) -> tuple[Found, Rates]:
        """The plan of a phase with these copies, or with those that are best, and its rates."""
        try:
            number, tables = self.finished(copies)
        except Unreachable:
            asked = "no number of copies" if copies is None else f"copies={copies}"
            raise ValueError(
                f"{asked} bounds the mistakes at epsilon={self.epsilon:g} over rounds={self.rounds}; ask for a larger "
                "epsilon, more rounds, or a learner with a smaller extra"
            ) from None
        note = "one phase of many: when it halts the next one starts with fresh copies (confide.pop.phases.Phases)"
        unsure, (gate, halting, got, lean), rate = tables
        return Found(number, number, unsure, gate, halting, got, lean=lean, notes=(note,)), rate

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
    beta: float = MISTAKE_BETA,
    copies: int | None = None,
    labels: int = 2,
    reserve: float = 3.0,
    lean: Literal["fill", "additive"] | None = None,
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
    lean
        As for `Plan.certified`.

    Examples
    --------
    >>> plan, bound = agnostic_plan(8.0, 1e-6, 100_000, factor=2.633, extra=math.log(8))
    >>> bound.mistakes(0) < bound.mistakes(1000) < 25_000
    True
    """
    check(epsilon, delta, rounds, beta=beta, labels=labels, copies=copies)
    check_tables(epsilon)
    check_rare(beta, rounds, rounds, room=2.0)
    if not (factor >= 1 and extra > 0 and math.isfinite(factor * extra)):
        raise ValueError("factor must be at least 1 and extra positive: the learner errs at most factor·(OPT + extra)")
    if not 1 < reserve < math.inf:
        raise ValueError(f"reserve={reserve} must be above 1: what is planned must be more than the start costs")
    check_lean(lean, labels)
    error = 1 - 1 / labels
    search = AgnosticSearch(epsilon, delta, rounds, factor * extra * reserve, beta, None, error, labels, lean)
    search.reserve = reserve
    found, rate = search.found(copies)
    early = rounds * early_halt(found.halting, found.unsure)
    promise, parts = Promise(epsilon, delta, rounds, labels), (copies_of(found, labels, early),)
    plan = Plan(promise, parts, "agnostic", Guarantee(found.got.epsilon, delta), notes=found.notes)
    return plan, AgnosticBound(rounds, found.copies, found.unsure, factor, extra, early, rate)
