"""Copies as a part: how many, whom they ask, their gate, what ends them, and what is answered when they are unsure.

Claims and proofs: docs/proofs/gate.md, halting.md, lean.md, relay.md, paper-plan.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from confide._checks import Numbers, integer, real
from confide.planning import outlook, paper
from confide.planning.design import Found, Spending, reach, spends
from confide.planning.parts import Cap, Part, Price
from confide.planning.tight import labels_each
from confide.privacy.gate import Gate, runs_of
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.renyi import check_beta
from confide.privacy.sparse import CounterBudget
from confide.privacy.weigh import Weights

if TYPE_CHECKING:
    from confide.planning.plan import Plan
    from confide.planning.promise import Promise

SLACK = 1e-9
"""Two searches for the least value of a bound may differ by this much, relative to it."""

MOST_SCALE = 3e6
"""A file whose gate's noise is wider is refused: no number of copies that can be run needs it."""

MOST_ENTRIES = 50_000_000
"""A file whose tables are longer is refused."""

MANY_POLLS = 10_000
"""Copies asked in a round beyond which rounds are slow and hardly anything is gained."""

MANY_COPIES = 1_000_000
"""Copies beyond which a round that asks all of them takes milliseconds."""


@dataclass(frozen=True)
class Copies(Part, Numbers, kind="copies"):
    """Copies of a learner that vote.

    Parameters
    ----------
    copies, polls
        k, and m of them that are asked in a round.
    unsure
        r: the unsure answers the run is planned to have.
    silent
        Rounds at the start in which copies learn and do not answer.
    unit_unsure
        G: unsure answers that one unit may receive.
    labels
        How many labels they vote for.
    order
        The Rényi order that the tables were made for.
    beta
        The probability of halting although fewer than `unsure` answers were unsure.
    gate, halting, lean
        The tables; the paper's own plan has its noisy counter for a halting table.
    relay
        Rounds of a leg, its silent ones included, where the copies are a relay: two halves, of which one votes while
        the other learns, exchanged whenever the halting gate fires or a leg's rounds are over. Then the promise has no
        last round. 0 for copies that halt for good.
    """

    copies: int
    polls: int
    unsure: int
    silent: int
    unit_unsure: int
    labels: int
    order: int
    beta: float
    gate: Gate
    halting: Halting | CounterBudget
    lean: Lean | Weights | None = None
    relay: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in {"copies": 1, "polls": 1, "unsure": 1, "silent": 0, "unit_unsure": 1, "labels": 2}.items():
            integer(getattr(self, name), name, at_least=least)
        if self.polls > self.copies:
            raise ValueError(f"polls={self.polls} asks more than the copies={self.copies} there are: ask all, or fewer")
        integer(self.relay, "relay", at_least=0)
        if self.relay and (self.copies % 2 or self.polls > self.eligible):
            raise ValueError(
                f"relay: half of the copies={self.copies} vote while the others learn, so that they must be an even "
                f"number, and polls={self.polls} at most half of it"
            )

    @property
    def eligible(self) -> int:
        """K: the copies that may vote in a round; of a relay half of them."""
        return self.copies // 2 if self.relay else self.copies

    @property
    def poll_fraction(self) -> Fraction:
        """q = polls / eligible copies."""
        return Fraction(self.polls, self.eligible)

    # ------------------------------------------------------------------ price

    def price(self) -> Price:
        """The joint divergence of gate, lean and halt at the tables' order, with near-ties and a late halt as bad."""
        if isinstance(self.halting, CounterBudget):
            return paper.price(self.gate, self.halting, self.order)
        spent = self._spends(self.halting, self.order)

        def curve(order: int) -> float:
            return spent.renyi if order == self.order else self._spends(halting, order).renyi

        halting = self.halting
        return Price(curve=curve, bad=spent.bad, order=self.order)

    def _spends(self, halting: Halting, order: int) -> Spending:
        how: dict[str, Any] = {"poll_fraction": self.poll_fraction, "lean": self.lean, "labels": self.labels}
        return spends(self.gate, halting, order=order, relay=self.relay > 0, **how)

    def check(self, promise: Promise) -> None:
        """Refuse tables that do not keep what the numbers say of them."""
        if self.labels != promise.labels:
            raise ValueError("the copies vote for another number of labels than the promise says: do not run this plan")
        rounds = self._check_relay(promise) if self.relay else promise.rounds
        if rounds is None:
            raise ValueError(
                "copies are planned for a number of rounds, and this promise has no end: give it one, or make the "
                "copies a relay"
            )
        if not self.silent < rounds:
            raise ValueError(f"silent={self.silent} must be from 0 to rounds − 1 = {rounds - 1}")
        if isinstance(self.halting, CounterBudget):
            self._check_paper(self.halting, promise, rounds)
            return
        if self.halting.shift != self.unit_unsure:
            raise ValueError("the halting table hides another shift than unit_unsure says")
        if (rounds - self.silent) * early_halt(self.halting, self.unsure) > self.beta * (1 + SLACK):
            raise ValueError("the halting table halts early more often than beta says: do not believe this plan")
        two = self.labels == 2
        if isinstance(self.lean, Lean) and not (two and np.array_equal(self.lean.envelope().sure, self.gate.sure)):
            raise ValueError("the lean is for two labels, and the gate its envelope: do not run this plan")

    def _check_relay(self, promise: Promise) -> int:
        """Refuse what is not proved of a relay; the rounds of its legs."""
        if promise.rounds is not None:
            raise ValueError("a relay has no last round, and this promise has one: leave one of them out")
        if promise.units != "rounds" or self.unit_unsure != 1:
            raise ValueError(
                "a relay is proved for rounds, not for people: say units='rounds', with unit_unsure=1, or plan for "
                "people without a relay"
            )
        if isinstance(self.halting, CounterBudget):
            raise ValueError("the paper's plan halts by a counter for one run: it is no relay")
        return self.relay

    def _check_paper(self, counter: CounterBudget, promise: Promise, rounds: int) -> None:
        if self.lean is not None:
            raise ValueError("the paper's plan tosses a coin when unsure: do not run this plan")
        if self.unit_unsure != 1:
            raise ValueError("the paper's plan protects rounds: its unit_unsure is 1")
        if self.polls != self.copies or self.silent or counter.unsure != self.unsure:
            raise ValueError("the paper's plan asks every copy, is never silent and counts to its unsure answers")
        paper.check_counter(counter, delta=promise.delta, rounds=rounds)
        paper.check_delay(counter, rounds=rounds, beta=self.beta)

    # ------------------------------------------------------------------ files

    def params(self) -> dict[str, Any]:
        """What makes the same part again, tables as run-length lists of integers in decimal."""
        names = ("copies", "polls", "unsure", "silent", "unit_unsure", "labels", "order", "beta")
        return {
            **{name: getattr(self, name) for name in (*names, *(["relay"] if self.relay else []))},
            "gate": _gate_params(self.gate),
            "halting": _halting_params(self.halting),
            "lean": None if self.lean is None else self.lean.params(),
        }

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> Copies:
        """The part that `params` describes."""
        lean = params["lean"]
        if lean is not None:
            lean = Weights.from_params(lean) if "weights" in lean else Lean.from_params(lean)
        tables = {"gate": _gate(params["gate"]), "halting": _halting(params["halting"]), "lean": lean}
        check_beta(params["beta"])
        return cls(**{**params, **tables})

    # ------------------------------------------------------------------ words

    @property
    def cap(self) -> Cap:
        """Unsure answers."""
        answers = f"{self.unit_unsure} unsure answer{'s' * (self.unit_unsure > 1)}"
        return Cap(self.unit_unsure, answers, f"receives at most {answers}")

    def rows(self, plan: Plan) -> list[tuple[str, str]]:
        """Numbers, gate, and what is answered when unsure."""
        if isinstance(self.halting, Halting):
            stop = f"halts for certain by {self.halting.stop:,}"
            if self.relay:
                stop = f"a leg has more than {self.halting.visible:,} with probability {self.halting.survive:.1e}"
        else:
            stop = f"halts at a noisy count of {self.halting.limit:,}"
        every, half = self.polls == self.eligible, " that vote" if self.relay else ""
        leg = f" a leg of {self.relay:,} rounds; one half votes while the other learns" if self.relay else ""
        return [
            ("copies", f"{self.copies:,}, each taught {labels_each(outlook.taught(plan), self.eligible)}{leg}"),
            ("polls", f"{self.polls:,} copies asked in a round" + (f" (all{half})" if every else "")),
            ("unsure answers", f"planned for {self.unsure:,}{' a leg' if self.relay else ''}; {stop}"),
            ("gate", _gate_words(self.gate, self.polls)),
            ("when unsure", f"{plan.rest} answers" if self.lean is None else self._leans(plan)),
        ]

    def _leans(self, plan: Plan) -> str:
        return f"drawn from the votes{' and the score of the guide' if plan.guide is not None else ''}"

    def sentences(self, plan: Plan) -> list[str]:
        """From when on they vote, and what is answered when they are unsure."""
        if self.relay:
            return [*self._in_legs(plan), self._when_unsure(plan)]
        return [
            f"{self.copies:,} copies of the learner vote from round {self.silent + 1:,} on, each taught "
            f"{labels_each(outlook.taught(plan), self.copies)}; {self.unsure:,} of the votes may be unsure before they "
            "stop.",
            self._when_unsure(plan),
            *outlook.more_for_copies(plan),
        ]

    def _in_legs(self, plan: Plan) -> list[str]:
        return [
            f"{self.copies:,} copies of the learner are a relay without an end: one half votes while the other learns. "
            f"After {self.relay - self.silent:,} rounds with votes, or when about {self.unsure:,} votes were unsure, "
            "they change places: the half that voted forgets all it knew, and begins to learn.",
            f"A half votes once it has learned for {self.silent:,} rounds, with "
            f"{labels_each(self.silent, self.eligible)} a copy: the first from round {self.silent + 1:,} on. A label "
            "that comes after its copy has begun anew teaches no copy.",
        ]

    def _when_unsure(self, plan: Plan) -> str:
        stopped = "while a half has not learned enough" if self.relay else "once they have stopped"
        if self.lean is None:
            return f"Where they are unsure, and {stopped}, {plan.rest} answers."
        return (
            f"Where they are unsure the lean answers: its label is {self._leans(plan)}, so that a lead too small to be "
            f"sure of still counts, within the same budget. {stopped[0].upper()}{stopped[1:]} {plan.rest} answers."
        )

    def warnings(self, plan: Plan) -> list[str]:
        """Warn of more copies than rounds, and of polls that take long."""
        found, rounds = [], self.relay or plan.rounds
        if self.eligible > rounds:
            found.append(
                f"copies={self.copies:,} over rounds={rounds:,}: most copies learn nothing in this run, so nearly "
                "every answer will be unsure unless history is taught first; plan with fewer copies or more rounds"
            )
        if self.polls > MANY_POLLS and plan.kind == "tight":
            found.append(
                f"polls={self.polls:,}: every round asks so many copies, and takes as long; 129 to 1,000 are usual"
            )
        if plan.kind == "paper" and self.polls > MANY_COPIES:
            found.append(
                f"polls={self.polls:,}: every round asks so many copies; it runs where their votes are tallied, with "
                "bank=confide.banks.TallyBank(...), else take Plan.certified"
            )
        return found

    def certified(self, plan: Plan) -> str:
        """How many, and how many are asked."""
        relay = f" in a relay of legs of {self.relay:,} rounds" if self.relay else ""
        return f"{self.copies:,} copies{relay}, {self.polls:,} polled"


def copies_of(found: Found, labels: int, beta: float, relay: int = 0) -> Copies:
    """What a search found, as a part; as a relay it is what one of the halves is."""
    got, shift, copies = found.got, found.halting.shift, found.copies * (2 if relay else 1)
    numbers = copies, found.polls, found.unsure, found.silent, shift, labels, got.order, beta
    return Copies(*numbers, found.gate, found.halting, found.lean, relay)


def early_halt(halting: Halting, unsure: int) -> float:
    """The largest probability of halting in a round while at most `unsure` answers were unsure."""
    return float(halting.table[: unsure + 1].max())


def _gate_words(gate: Gate, polls: int) -> str:
    half, rare = reach(gate, 0.5), reach(gate, 1e-3)
    rare_text = f"{rare / polls:.0%}" if rare <= polls else "more than all"
    half_text = f"{half / polls:.0%}" if half <= polls else "more than all"
    return f"unsure half of the time at a lead of {half_text} of the poll, one in 1000 at {rare_text}"


# ---------------------------------------------------------------------- tables in files


def _gate_params(gate: Gate) -> dict[str, Any]:
    """A gate's integers, or the two numbers from which all integers of a Laplace gate follow."""
    if gate.laplace_numbers is None:
        return {"sure": _runs(gate.sure)}
    scale, quarters = gate.laplace_numbers
    return {"laplace_scale": scale, "laplace_quarters": quarters}


def _gate(saved: dict[str, Any]) -> Gate:
    if "sure" in saved:
        return Gate.from_integers(_expand(saved["sure"]))
    scale, quarters = real(saved["laplace_scale"], "laplace_scale"), integer(saved["laplace_quarters"], "a threshold")
    if not (0 < scale <= MOST_SCALE and 0 <= quarters <= paper.MOST_COPIES):
        raise ValueError("a gate's noise or threshold is larger than any that can be run")
    return Gate.laplace(scale=scale, threshold=quarters / 4)


def _halting_params(halting: Halting | CounterBudget) -> dict[str, Any]:
    if isinstance(halting, Halting):
        return {"go": _runs(halting.go), "shift": halting.shift}
    numbers = {"counter_epsilon": halting.epsilon, "scale": str(halting.scale), "unsure": halting.unsure}
    return {**numbers, "late": halting.late, "over": halting.over}


def _halting(saved: dict[str, Any]) -> Halting | CounterBudget:
    if "go" in saved:
        return Halting(_expand(saved["go"]), saved["shift"])
    return CounterBudget(
        saved["counter_epsilon"], Fraction(str(saved["scale"])), saved["unsure"], saved["late"], saved["over"]
    )


def _runs(values: Any) -> list[list[Any]]:
    """Run-length form [[value, times], …] with values in decimal strings (64-bit integers do not fit JSON numbers)."""
    return [[str(int(values[start])), int(length)] for start, length in zip(*runs_of(values), strict=True)]


def _expand(runs: list[list[Any]]) -> list[int]:
    lengths = [integer(times, "a table's runs") for _, times in runs]
    if min(lengths, default=0) < 1 or sum(lengths) > MOST_ENTRIES:
        raise ValueError("a table's runs are at least 1 long, and 50 million together at most")
    return [entry for (value, _), times in zip(runs, lengths, strict=True) for entry in [_entry(value)] * times]


def _entry(value: Any) -> int:
    """A table's entry, which stands there in decimal digits."""
    if not (isinstance(value, str) and value.isascii() and value.isdigit()):
        raise ValueError("a table's entries are whole numbers in decimal digits")
    return int(value)
