"""The search behind `Plan.certified`: how many copies, and which tables, certify the fewest mistakes.

Claims and proofs: docs/proofs/certificate.md. The search is a heuristic; what it returns is certified from the tables.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from confide._checks import Numbers
from confide.planning.arguments import check_rare, check_tables
from confide.planning.design import (
    LEAST_START,
    Budget,
    Built,
    Found,
    Split,
    draft,
    gate_for,
    reach,
    renyi_budget,
)
from confide.planning.leaning import SHARE, built
from confide.planning.mistakes import Rates, certificate, quantile, rates
from confide.planning.parts import TooRare, Unreachable
from confide.privacy.gate import LEAST_TIE_SURE, Gate
from confide.privacy.lean import Lean
from confide.privacy.weigh import Weights

FILLED = 0.3
"""How much later a filled gate falls than one alone of the same cost: a share of the lead at which that is half."""


class Tables(NamedTuple):
    """Finished tables of a search, and their rates."""

    unsure: int
    built: Built
    rate: Rates


@dataclass
class Search(Numbers):
    """Walks over the number of copies, the Rényi order and the planned unsure answers that fit each other.

    What it is asked for is in `Plan.certified`.
    """

    epsilon: float
    delta: float
    rounds: int
    mistakes: float
    beta: float
    polls: int | None
    fallback_error: float
    labels: int = 2
    lean: str | None = None
    """"fill" or "additive", or None: an unsure answer is the fallback's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Halting early, for either reason, shall cost at most about one mistake in expectation, and a tenth of beta.
        self.rare = max(1e-12, min(0.05 * self.beta, 2.0 / self.rounds))
        self.start = max(LEAST_START, min(0.05 * self.beta, 50.0 / self.rounds) / self.rounds)
        self.split = Split(max(2, round(1 + 1.35 * math.log(1 / self.delta) / self.epsilon)), 0.01, 0.003, 0.01)
        self.guess = 2.4  # unsure answers per d·k
        self.spans: dict[Split, int] = {}

    def _polls(self, copies: int) -> int:
        return copies if self.polls is None else self.polls

    def budget(self, copies: int, unsure: int) -> Budget:
        polls = self._polls(copies)
        return Budget(self.epsilon, self.delta, unsure, self.start, 1, Fraction(polls, copies), max(2, polls))

    def _rates(self, gate: Gate, copies: int, lean: Lean | Weights | None = None) -> Rates:
        error = 1.0 if self.lean is not None and self.labels > 2 else self.fallback_error
        return rates(gate, copies=copies, polls=self._polls(copies), fallback_error=error, lean=lean)

    def _need(self, rate: Rates, copies: int) -> int:
        floor = rate.unsure_floor * self.rounds
        return quantile(self.rare, budget=self.mistakes * copies, floor=floor, slope=rate.unsure_slope)

    def _expected(self, rate: Rates, copies: int) -> float:
        return rate.wrong_floor * self.rounds + rate.wrong_slope * self.mistakes * copies

    def _span(self) -> int:
        """n_stop − G − r: how many counts the halting gate needs to come down, whatever r is."""
        if self.split not in self.spans:
            found = draft(self.budget(self._polls(1000), 1), self.split)
            self.spans[self.split] = 0 if found is None else found[1] - 1
        return self.spans[self.split]

    def _draft(self, copies: int, unsure: int, tau: float, visible: int) -> Gate:
        """About the gate that these numbers have."""
        budget = self.budget(copies, unsure)
        if self.lean is None or self.lean == "additive":
            return gate_for(budget, self.split, tau * (1 if self.lean is None else 1 - SHARE), visible)
        gate = gate_for(budget, self.split, tau, visible)  # a filled one is much the same from a larger lead on
        later = round(FILLED * min(reach(gate, 0.5), gate.sure.size / 2))
        return Gate.from_integers(np.concatenate([np.repeat(gate.sure[:1], later), gate.sure])[: gate.sure.size])

    def drafted(self, copies: int) -> tuple[float, int]:
        """(expected mistakes, unsure) for quickly drafted tables; (inf, 0) where no consistent `unsure` exists."""
        unsure, span = max(1, int(self.guess * self.mistakes * copies)), self._span()
        renyi = renyi_budget(self.budget(copies, unsure), self.split)
        if span == 0 or renyi <= 0 or self.mistakes * copies > self.rounds:
            return math.inf, 0  # copies that may all err in every round certify nothing
        for _ in range(40):
            tau = renyi * (1 - self.split.halting / 2) / (unsure + span)
            rate = self._rates(self._draft(copies, unsure, tau, unsure + span), copies)
            need = self._need(rate, copies)
            if need <= unsure <= need * 1.002 + 1:
                self.guess = unsure / (self.mistakes * copies)
                return self._expected(rate, copies), unsure
            if need > 12 * self.mistakes * copies or need > self.rounds:
                return math.inf, 0
            unsure = math.ceil(need * 1.001)
        return math.inf, 0

    def best_copies(self, low: int) -> int:
        """Golden section over ln k above the smallest feasible k that doubling finds."""
        high = max(low, 16)
        while not math.isfinite(self.drafted(high)[0]):
            low, high = high, math.ceil(high * 1.3)
            if self.mistakes * high > self.rounds:
                raise Unreachable("no number of copies certifies anything")
        a, b = math.log(max(self._polls(1) if self.polls else 2, low)), math.log(high * 1.4)
        ratio = (math.sqrt(5) - 1) / 2
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        f_c, f_d = self.drafted(round(math.exp(c)))[0], self.drafted(round(math.exp(d)))[0]
        while b - a > 0.004:
            if f_c <= f_d and math.isfinite(f_c):
                b, d, f_d = d, c, f_c
                c = b - ratio * (b - a)
                f_c = self.drafted(round(math.exp(c)))[0]
            else:
                a, c, f_c = c, d, f_d
                d = a + ratio * (b - a)
                f_d = self.drafted(round(math.exp(d)))[0]
        return round(math.exp(d if f_d <= f_c else c))

    def tune_order(self, copies: int) -> None:
        """Walk to the best Rényi order for this many copies."""
        best = self.drafted(copies)[0]
        for direction in (1, -1):
            while True:
                old = self.split
                self.split = Split(max(2, old.order + direction), old.halting, old.survive, old.ties)
                value = self.drafted(copies)[0]
                if not value < best:
                    self.split = old
                    break
                best = value

    def tables(self, copies: int) -> Tables:
        """Finished tables for this many copies, with an `unsure` that is large enough for them."""
        expected, unsure = self.drafted(copies)
        if not math.isfinite(expected):
            raise Unreachable("so many copies certify nothing")
        for _ in range(40):
            # No guide goes with a certificate, so a lean has one offset, and its table has all of the budget.
            made = built(self.budget(copies, unsure), self.split, self.lean, self.labels, offsets=1)
            rate = self._rates(made.gate, copies, made.lean)
            need = self._need(rate, copies)
            if need <= unsure:
                return Tables(unsure, made, rate)
            if need > min(self.rounds, 12 * self.mistakes * copies):
                break
            unsure = math.ceil(unsure * 1.002 if made.lean is None else need * 1.002)  # a lean's draft is not so good
        raise Unreachable("no consistent tables")

    def finished(self, copies: int | None) -> tuple[int, Tables]:
        """The given number of copies, or the best, and their tables; for a lean a few more where the best are few."""
        number = self.choose(copies)
        for _ in range(6 if copies is None and self.lean is not None else 0):
            with contextlib.suppress(Unreachable):
                return number, self.tables(number)
            number = math.ceil(1.15 * number)
        return number, self.tables(number)

    def choose(self, copies: int | None) -> int:
        """The given number of copies, or the best; the Rényi order is tuned either way."""
        if copies is not None:
            self.tune_order(copies)
            return copies
        least = self.polls or 16
        first = self.best_copies(least)
        self.tune_order(first)
        return self.best_copies(max(least, int(first * 0.8)))


def check_lean(lean: str | None, labels: int) -> None:
    """Refuse a lean that there is not."""
    if lean not in ("fill", "additive", None) or (lean == "fill" and labels != 2):
        raise ValueError(f'lean={lean!r} must be None, "additive", or for two labels "fill"')


def best(asked: Search, copies: int | None) -> Found:
    """The best certified plan, of so many copies or of any number; or ValueError with the nearest that can be had."""
    check_tables(asked.epsilon)
    check_lean(asked.lean, asked.labels)
    if not 0 <= asked.fallback_error <= 1:
        raise ValueError(f"fallback_error={asked.fallback_error} must be a probability; 1 covers every fallback")
    check_rare(asked.beta, asked.rounds, asked.rounds, room=2.0)
    try:
        return _found(asked, copies)
    except TooRare:
        raise ValueError(_refuse_delta(asked)) from None
    except Unreachable:
        raise ValueError(_refusal(asked, copies)) from None


def _found(asked: Search, given: int | None) -> Found:
    copies, (unsure, (gate, halting, got, lean), rate) = asked.finished(given)
    stated = certificate(
        rate, rounds=asked.rounds, budget=asked.mistakes * copies, unsure=unsure,
        start=float(halting.table[: unsure + 1].max()), after_halt=asked.fallback_error, beta=asked.beta,
    )  # fmt: skip
    best = "minimises" if lean is None else "nearly minimises"
    notes = (f"copies={copies:,} {best} the expected mistakes that can be certified",) if given is None else ()
    polls = copies if asked.polls is None else asked.polls
    return Found(copies, polls, unsure, gate, halting, got, certificate=stated, lean=lean, notes=notes)


def _works(search: Search) -> bool:
    """Whether some number of copies has drafted tables that certify something, and whose near-ties δ can bear."""
    copies = max(16, search.polls or 0)
    while search.mistakes * copies <= search.rounds:
        expected, unsure = search.drafted(copies)
        if math.isfinite(expected) and 2 * unsure <= search.rounds:
            return 100 * unsure * LEAST_TIE_SURE <= search.delta
        copies = math.ceil(copies * 1.6)
    return False


def _refusal(asked: Search, copies: int | None) -> str:
    """Why nothing is certified, and the nearest that is: each of them was drafted."""
    if copies is not None and _works(replace(asked)):
        return (
            f"copies={copies} cannot certify a bound at epsilon={asked.epsilon:g} over rounds={asked.rounds}; "
            "leave copies out and the planner finds the best number"
        )
    mistakes, ways = int(asked.mistakes), []
    halves = (mistakes >> n for n in range(1, mistakes.bit_length()))
    fewer = next((d for d in halves if _works(replace(asked, mistakes=d))), None)
    if fewer is not None:
        ways.append(f"mistakes={fewer}")
    else:
        larger = (float(f"{asked.epsilon * 2**n:.3g}") for n in range(1, 12))
        works = (f"epsilon={e:g}" for e in larger if e <= 64 and _works(replace(asked, epsilon=e)))
        ways += [way for way in [next(works, None)] if way]
    given = "" if asked.polls is None else f" with polls={asked.polls}"
    return (
        f"no number of copies certifies mistakes={mistakes} at epsilon={asked.epsilon:g} and "
        f"delta={asked.delta:g} over rounds={asked.rounds}{given}; "
        + (f"{ways[0]} can" if ways else "ask for a larger epsilon, a larger delta or more rounds")
    )


def _refuse_delta(asked: Search) -> str:
    """Why δ is out of reach, and the nearest that is not: each of them was drafted."""
    said = f"delta={asked.delta:g} is below what 64-bit tables can keep over so many unsure answers; "
    larger = (10.0**power for power in range(max(-16, math.ceil(math.log10(asked.delta))), -2))
    works = (f"delta={delta:g} can" for delta in larger if _works(replace(asked, delta=delta)))
    return said + next(works, "ask for a larger delta or a larger epsilon")
