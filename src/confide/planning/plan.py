"""Plans: from (ε, δ, rounds, …) to every number of a run, and from the numbers back to a proof.

Claims and proofs: docs/proofs/halting.md (tight and certified plans), docs/proofs/certificate.md (mistakes),
docs/proofs/paper-plan.md (the paper's own constants).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from confide.planning import certified as certified_plans
from confide.planning import paper as paper_plans
from confide.planning.design import Budget, Certified, Split, build, certify, reach, search, sketch
from confide.planning.mistakes import Certificate, certificate, rates
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.renyi import check_delta, check_epsilon, group
from confide.privacy.sparse import CounterBudget

DISSENT = 0.1
"""Where the user leaves the number of copies open: room for this share of the poll to disagree."""

POLLS = 129
"""Copies asked in a round unless the user says otherwise: enough votes, and a round stays cheap at any k."""


@dataclass(frozen=True)
class Guarantee:
    """What is promised to each unit. Proof page: docs/proofs/halting.md."""

    epsilon: float
    delta: float
    unit_unsure: int = 1
    secure: bool = True

    def __str__(self) -> str:
        seeded = "" if self.secure else " (insecure: seeded, so nothing is promised)"
        return f"({self.epsilon:.4g}, {self.delta:.3g})-challenge-DP{seeded}"

    def plus(self, epsilon: float) -> Guarantee:
        """The same with so much more ε, rounded up."""
        total = self.epsilon + epsilon
        return replace(self, epsilon=math.nextafter(total, math.inf))

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence that a lawyer could read."""
        chance = f"{self.delta:.2g}"
        factor = f"{math.exp(self.epsilon):.3g}"
        return (
            "Whatever one unit (a single round, or a person who receives at most "
            f"{self.unit_unsure} unsure answer{'s' if self.unit_unsure > 1 else ''}) told the system, everyone else "
            "together, asking adaptively for as long as they like, sees any given pattern of answers with a "
            f"probability that changes by at most a factor of {factor} (ε = {self.epsilon:.4g}), except with "
            f"probability {chance}."
        )


Kind = Literal["tight", "certified", "paper", "agnostic"]


@dataclass(frozen=True)
class Plan:
    """Every number of a run, and the guarantee that they certify.

    Make one with `Plan.tight` (a stream and a budget), `Plan.certified` (a mistake bound as well) or `Plan.paper` (the
    paper's own constants). `print(plan)` says what is promised, to whom, and what it costs.

    Examples
    --------
    >>> import confide
    >>> plan = confide.Plan.tight(epsilon=1.0, delta=1e-6, rounds=1_000_000, copies=5000, polls=129, unsure=1000)
    >>> plan.guarantee.epsilon <= 1.0
    True
    >>> print(plan.guarantee)
    (1, 1e-06)-challenge-DP
    """

    kind: Kind
    rounds: int
    copies: int
    polls: int
    unsure: int
    silent: int
    unit_unsure: int
    labels: int
    beta: float
    order: int
    gate: Gate
    halting: Halting | CounterBudget
    guarantee: Guarantee
    certificate: Certificate | None = None
    mistakes: int | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def live(self) -> int:
        """Rounds that are answered by the copies: all but the silent ones."""
        return self.rounds - self.silent

    @property
    def poll_fraction(self) -> Fraction:
        """q = polls / eligible copies."""
        return Fraction(self.polls, self.copies)

    @classmethod
    def tight(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        *,
        copies: int | None = None,
        unsure: int | None = None,
        polls: int | None = None,
        silent: int | None = None,
        unit_unsure: int = 1,
        labels: int = 2,
        beta: float = 0.01,
        dissent: float = DISSENT,
    ) -> Plan:
        """The best tables for a stream: what you give is kept, the rest is chosen and explained in `notes`.

        Proof page: docs/proofs/halting.md.

        Parameters
        ----------
        epsilon, delta
            The promise to each unit.
        rounds
            T: all predict() calls, the silent ones included; past it the run halts.
        copies
            k; by default the fewest that leave room for `dissent`.
        unsure
            r: the unsure answers the run is planned to have; by default √rounds.
        polls
            m: copies asked in a round; by default 129, or all when there are not many more.
        silent
            Rounds at the start in which copies learn and the fallback answers; by default 40 % of the rounds.
        unit_unsure
            G: unsure answers that one unit may receive (1 for units that are rounds).
        labels
            How many labels there are; any number from 2.
        beta
            Probability of halting although fewer than `unsure` answers were unsure.
        dissent
            The share of a poll that may disagree and still be answered; only used to choose `copies`.
        """
        _check(epsilon, delta, rounds, copies, unsure, polls, silent, unit_unsure, labels, beta)
        if not 0 <= dissent < 0.5:
            raise ValueError(f"dissent={dissent} must be a share of the poll from 0 to below 1/2; 0.1 is usual")
        notes = []
        if silent is None:
            silent = int(0.4 * rounds)
            notes.append(f"silent={silent:,}: copies learn for 40 % of the rounds before their votes are used")
        live = rounds - silent
        if unsure is None:
            unsure = max(1, min(round(math.sqrt(rounds)), live // 10))
            notes.append(f"unsure={unsure:,}: the square root of the rounds")
        if unsure > live:
            raise ValueError(f"unsure={unsure} is more than the {live} live rounds; plan for a tenth of them at most")
        given = polls is not None
        if polls is None:
            polls = _default_polls(copies)
            notes.append(f"polls={polls:,}: copies asked in a round; more ask more precisely and take longer")
        allowed = unsure / (2 * live)
        asked = _Asked(epsilon, delta, live, unsure, unit_unsure, beta, polls, allowed)
        if copies is None:
            copies = asked.fewest_copies((1 - 2 * dissent) * polls)
            notes.append(
                f"copies={copies:,}: the fewest that leave room for {dissent:.0%} of a poll to dissent; "
                f"each is taught about {rounds / copies:,.0f} labels"
            )
        gate, halting, got = asked.tables(copies)
        if gate.table[min(polls, gate.sure.size - 1)] > allowed:
            raise ValueError(asked.refusal(copies, given))
        margin = reach(gate, allowed) / polls
        notes.append(
            f"the gate answers when the winning label leads by {margin:.0%} of the poll "
            f"({reach(gate, 0.5) / polls:.0%} for even odds)"
        )
        return cls(
            kind="tight",
            rounds=rounds,
            copies=copies,
            polls=polls,
            unsure=unsure,
            silent=silent,
            unit_unsure=unit_unsure,
            labels=labels,
            beta=beta,
            order=got.order,
            gate=gate,
            halting=halting,
            guarantee=Guarantee(got.epsilon, got.delta, unit_unsure),
            notes=tuple(notes),
        )

    @classmethod
    def certified(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        mistakes: int,
        *,
        beta: float = 0.05,
        copies: int | None = None,
        polls: int | None = None,
        labels: int = 2,
        fallback_error: float | None = None,
    ) -> Plan:
        """The plan with the smallest certified expected number of mistakes for a learner that errs at most d times.

        Proof pages: docs/proofs/halting.md (privacy), docs/proofs/certificate.md (mistakes). Privacy holds whether or
        not the promise of d mistakes does; a broken promise can only end the run early.

        Parameters
        ----------
        mistakes
            d: each copy's own mistake bound.
        beta
            The certificate's failure probability.
        copies, polls
            k and m; by default k is optimised and every copy is asked.
        fallback_error
            Error probability of the answer to an unsure round: by default a coin's, 1 − 1/labels.
        """
        _check(epsilon, delta, rounds, copies, None, polls, 0, 1, labels, beta)
        mistakes = _bound(mistakes)
        error = 1 - 1 / labels if fallback_error is None else float(fallback_error)
        found = certified_plans.best(
            epsilon, delta, rounds, mistakes, beta=beta, copies=copies, polls=polls, fallback_error=error
        )
        return cls(
            kind="certified",
            rounds=rounds,
            copies=found.copies,
            polls=found.polls,
            unsure=found.unsure,
            silent=0,
            unit_unsure=1,
            labels=labels,
            beta=beta,
            order=found.got.order,
            gate=found.gate,
            halting=found.halting,
            guarantee=Guarantee(found.got.epsilon, found.got.delta),
            certificate=found.certificate,
            mistakes=mistakes,
            notes=(f"copies={found.copies:,} minimises the expected mistakes that can be certified",)
            if copies is None
            else (),
        )

    @classmethod
    def paper(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        mistakes: int = 1,
        *,
        beta: float = 0.05,
        copies: int | None = None,
        unsure: int | None = None,
        labels: int = 2,
        counter_share: float | None = None,
    ) -> Plan:
        """The paper's POP with its own mechanisms and explicit constants. Proof page: docs/proofs/paper-plan.md.

        Its units are rounds: for people the counter would have to hide twice as many changes (see there).

        Parameters
        ----------
        mistakes
            d, the learner's mistake bound; it sets `unsure` unless that is given.
        copies
            k; by default the paper's k ≥ 20·γ·ln(T/β). Fewer are accepted as long as privacy holds, without a mistake
            certificate.
        unsure
            r; by default 18(dk+1) + 6·ln(1/β) + dk.
        counter_share
            The part of ε that pays for the private counter; optimised by default.
        """
        _check(epsilon, delta, rounds, copies, unsure, None, 0, 1, labels, beta)
        mistakes = _bound(mistakes)

        def sizes(k: int | None) -> paper_plans.PaperSize:
            return paper_plans.size(
                epsilon, delta, rounds, mistakes, beta=beta, copies=k, unsure=unsure, counter_share=counter_share
            )

        size = sizes(copies)
        try:
            gate, got = paper_plans.tables(size, epsilon=epsilon, delta=delta, rounds=rounds)
        except paper_plans.LeakError as error:

            def keeps(k: int) -> bool:
                try:
                    paper_plans.tables(sizes(k), epsilon=epsilon, delta=delta, rounds=rounds)
                except paper_plans.LeakError:
                    return False
                return True

            low, high = size.copies, paper_plans.safe_copies(size, delta)
            while not keeps(high):  # r, and so γ, may grow with k
                low, high = high, max(high + 1, paper_plans.safe_copies(sizes(high), delta))
            while high - low > max(1, high // 100):
                middle = (low + high) // 2
                low, high = (low, middle) if keeps(middle) else (middle, high)
            raise ValueError(f"{error}; copies={high} is enough for ({epsilon:g}, {delta:g})") from None
        return cls(
            kind="paper",
            rounds=rounds,
            copies=size.copies,
            polls=size.copies,
            unsure=size.unsure,
            silent=0,
            unit_unsure=1,
            labels=labels,
            beta=beta,
            order=got.order,
            gate=gate,
            halting=size.counter,
            guarantee=Guarantee(got.epsilon, got.delta),
            certificate=paper_plans.certificate(size, rounds=rounds, mistakes=mistakes, beta=beta),
            mistakes=mistakes,
            notes=(
                f"noise of scale γ = {size.scale:,.1f} votes, counter noise {float(size.counter.scale):,.1f} per node, "
                f"halts at a noisy count of {size.counter.limit:,}",
            ),
        )

    def verify(self) -> Guarantee:
        """Re-certify from the tables alone; raises ValueError if they do not keep what `guarantee` says."""
        claimed = self.guarantee
        if isinstance(self.halting, Halting):
            if self.halting.shift != self.unit_unsure:
                raise ValueError("the halting table hides another shift than unit_unsure says")
            got: Certified | paper_plans.PaperCertified = certify(
                self.gate, self.halting, order=self.order, delta=claimed.delta, poll_fraction=self.poll_fraction
            )
        else:
            if self.unit_unsure != 1:
                raise ValueError("the paper's plan protects rounds: its unit_unsure is 1")
            got = paper_plans.recertify(
                self.gate,
                self.halting,
                order=self.order,
                delta=claimed.delta,
                rounds=self.rounds,
            )
        if got.epsilon > claimed.epsilon:
            raise ValueError(
                f"the tables cost ε = {got.epsilon:.6g} at δ = {claimed.delta:.3g}, more than the claimed "
                f"{claimed.epsilon:.6g}: do not run this plan"
            )
        self._verify_certificate()
        return replace(claimed, epsilon=got.epsilon)

    def _verify_certificate(self) -> None:
        """Refuse a mistake bound that says less than the tables certify."""
        said = self.certificate
        if said is None:
            return
        if self.mistakes is None:
            raise ValueError("a mistake certificate needs the learner's mistake bound")
        if isinstance(self.halting, Halting):
            rate = rates(self.gate, copies=self.copies, polls=self.polls, fallback_error=said.fallback_error)
            true = certificate(
                rate,
                rounds=self.rounds,
                budget=self.mistakes * self.copies,
                unsure=self.unsure,
                start=float(self.halting.table[: self.unsure + 1].max()),
                after_halt=said.fallback_error,
                beta=said.beta,
            )
            least = true.expected_mistakes, true.mistakes
        else:
            most = min(self.rounds, paper_plans.reports(self.copies, self.mistakes, said.beta / 3))
            least = float(most), most
        if said.expected_mistakes < least[0] * (1 - 1e-9) or said.mistakes < least[1]:
            raise ValueError("the mistake certificate says less than the tables certify: do not believe this plan")

    def to_json(self) -> str:
        """The plan as JSON, tables as run-length lists of integers in decimal; `Plan.from_json` reads it back."""
        halting: dict[str, Any]
        if isinstance(self.halting, Halting):
            halting = {"go": _runs(self.halting.go), "shift": self.halting.shift}
        else:
            c = self.halting
            halting = {
                "counter_epsilon": c.epsilon,
                "scale": str(c.scale),
                "unsure": c.unsure,
                "late": c.late,
                "over": c.over,
            }
        plain = {
            name: getattr(self, name)
            for name in (
                *("kind", "rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "labels", "beta"),
                *("order", "mistakes", "notes"),
            )
        }
        certificate = None if self.certificate is None else vars(self.certificate)
        body = {
            "format": "confide-plan",
            "version": 1,
            **plain,
            "guarantee": {"epsilon": self.guarantee.epsilon, "delta": self.guarantee.delta},
            "certificate": certificate,
            "gate": {"sure": _runs(self.gate.sure)},
            "halting": halting,
        }
        return json.dumps(body, indent=1, default=int)  # NumPy's integers are integers

    @classmethod
    def from_json(cls, text: str | Path) -> Plan:
        """Read a plan that `to_json` wrote (text, or a path), check its form and re-certify its tables."""
        try:
            body = json.loads(text.read_text() if isinstance(text, Path) else text)
            if body["format"] != "confide-plan" or body["version"] != 1 or body["kind"] not in get_args(Kind):
                raise ValueError("not a plan of this version")
            saved = body["halting"]
            halting: Halting | CounterBudget
            if "go" in saved:
                halting = Halting(_expand(saved["go"]), int(saved["shift"]))
            else:
                halting = CounterBudget(
                    float(saved["counter_epsilon"]),
                    Fraction(saved["scale"]),
                    int(saved["unsure"]),
                    float(saved["late"]),
                    float(saved["over"]),
                )
            stated = body["certificate"]
            certificate = None
            if stated is not None:
                certificate = Certificate(**{**stated, "hypotheses": tuple(stated["hypotheses"])})
            plan = cls(
                kind=body["kind"],
                rounds=int(body["rounds"]),
                copies=int(body["copies"]),
                polls=int(body["polls"]),
                unsure=int(body["unsure"]),
                silent=int(body["silent"]),
                unit_unsure=int(body["unit_unsure"]),
                labels=int(body["labels"]),
                beta=float(body["beta"]),
                order=int(body["order"]),
                gate=Gate.from_integers(_expand(body["gate"]["sure"])),
                halting=halting,
                guarantee=Guarantee(
                    check_epsilon(body["guarantee"]["epsilon"]),
                    check_delta(body["guarantee"]["delta"]),
                    int(body["unit_unsure"]),
                ),
                certificate=certificate,
                mistakes=None if body["mistakes"] is None else int(body["mistakes"]),
                notes=tuple(body["notes"]),
            )
        except (KeyError, TypeError, OverflowError, ZeroDivisionError, json.JSONDecodeError) as error:
            raise ValueError(f"this is not a plan written by Plan.to_json: {type(error).__name__} {error}") from None
        _check(
            plan.guarantee.epsilon,
            plan.guarantee.delta,
            plan.rounds,
            plan.copies,
            plan.unsure,
            plan.polls,
            plan.silent,
            plan.unit_unsure,
            plan.labels,
            plan.beta,
        )
        plan.verify()
        return plan

    def __str__(self) -> str:
        if isinstance(self.halting, Halting):
            stop = f"halts for certain by {self.halting.stop:,}"
        else:
            stop = f"halts at a noisy count of {self.halting.limit:,}"
        people = f"each person, up to {self.unit_unsure} unsure answers"
        rows = [
            ("promise", str(self.guarantee)),
            ("to whom", "each round" if self.unit_unsure == 1 else people),
            ("rounds", f"{self.rounds:,}, the first {self.silent:,} silent" if self.silent else f"{self.rounds:,}"),
            ("copies", f"{self.copies:,}, each taught about {self.rounds / self.copies:,.0f} labels"),
            ("polls", f"{self.polls:,} copies asked in a round" + (" (all)" if self.polls == self.copies else "")),
            ("unsure answers", f"planned for {self.unsure:,}; {stop}"),
            ("gate", self._gate_row()),
            ("labels", f"{self.labels}"),
            ("Rényi order", f"{self.order}"),
        ]
        if self.certificate is not None:
            c = self.certificate
            most = f"{c.mistakes:,} with probability {1 - c.beta:g}"
            rows.append(("mistakes", f"at most {c.expected_mistakes:,.0f} expected, {most}"))
        else:
            rows.append(("mistakes", "no mistake certificate"))
        if self.unit_unsure == 1:
            grown = group(self.guarantee.epsilon, self.guarantee.delta, 10)
            promise = f"({grown[0]:.3g}, {grown[1]:.2g}) by group privacy; see unit_unsure"
            rows.append(("ten rounds of one person", promise))
        width = max(len(name) for name, _ in rows)
        lines = [f"Plan.{self.kind}", *(f"  {name:<{width}}  {value}" for name, value in rows)]
        return "\n".join([*lines, *(f"  · {note}" for note in self.notes)])

    def _gate_row(self) -> str:
        half, rare = reach(self.gate, 0.5), reach(self.gate, 1e-3)
        rare_text = f"{rare / self.polls:.0%}" if rare <= self.polls else "more than all"
        half_text = f"{half / self.polls:.0%}" if half <= self.polls else "more than all"
        return f"unsure half of the time at a lead of {half_text} of the poll, one in 1000 at {rare_text}"


@dataclass(frozen=True)
class _Asked:
    """What `Plan.tight` was asked for; knows the tables for each number of copies."""

    epsilon: float
    delta: float
    live: int
    unsure: int
    shift: int
    beta: float
    polls: int
    allowed: float

    def budget(self, copies: int, unsure: int | None = None, margins: int | None = None) -> Budget:
        return Budget(
            self.epsilon,
            self.delta,
            self.unsure if unsure is None else unsure,
            min(0.25, self.beta / max(1, self.live)),
            self.shift,
            Fraction(self.polls, copies),
            margins,
        )

    def split(self, copies: int, start: Split | None = None) -> Split:
        # A table somewhat longer than the poll tells which split is steepest; its end stands for what lies beyond.
        budget = self.budget(copies, margins=max(256, 4 * self.polls))

        def lead(gate: Gate) -> float:
            found = reach(gate, self.allowed)
            beyond = math.log(max(1.0, float(gate.table[-1]) / self.allowed))
            return found if math.isfinite(found) else gate.sure.size * (2 + beyond)

        return search(budget, lead, start)

    def tables(self, copies: int) -> tuple[Gate, Halting, Certified]:
        return build(self.budget(copies, margins=max(2, self.polls)), self.split(copies))

    def needs(self, copies: int, split: Split) -> float:
        """The margin that the tables for this many copies need."""
        gate = sketch(self.budget(copies, margins=max(256, 4 * self.polls)), split)
        return math.inf if gate is None else reach(gate, self.allowed) * (1 + 1e-3)

    def fewest_copies(self, margin: float) -> int:
        """The fewest copies whose gate falls to the allowed rate within `margin` votes of the poll."""
        high = max(2 * self.polls, 64)
        split = self.split(high)
        while self.needs(high, split) > margin:
            high *= 2
            if high > 10**9:
                raise ValueError(
                    f"polls={self.polls} cannot reach epsilon={self.epsilon:g} with unsure={self.unsure} for any "
                    "number of copies; ask more of them, or plan for a larger share of unsure answers"
                )
        split = self.split(high)
        low = max(self.polls, high // 2)
        while high - low > max(1, high // 200):
            middle = (low + high) // 2
            low, high = (low, middle) if self.needs(middle, split) <= margin else (middle, high)
        return high

    def works(self, copies: int) -> bool:
        """Whether finished tables for this many copies are sure enough of unanimous polls."""
        gate = self.tables(copies)[0]
        return bool(gate.table[min(self.polls, gate.sure.size - 1)] <= self.allowed)

    def with_unsure(self, unsure: int) -> _Asked:
        return replace(self, unsure=unsure, allowed=unsure / (2 * self.live))

    def refusal(self, copies: int, polls_given: bool) -> str:
        """Why these copies will not do, and the nearest plans that would: each of them was tried."""
        ways = [self._more_copies(copies, polls_given), self._other_unsure(copies)]
        if self.polls < copies and replace(self, polls=copies).works(copies):
            ways.append(f"polls={copies} (all)")
        can = " can, or ".join(way for way in ways if way)
        return (
            f"copies={copies} cannot reach epsilon={self.epsilon:g} with unsure={self.unsure} and "
            f"polls={self.polls} over {self.live:,} live rounds: even unanimous copies would be unsure too often; "
            + (f"{can} can" if can else "ask for a larger epsilon")
        )

    def _more_copies(self, copies: int, polls_given: bool) -> str | None:
        try:
            more = self.fewest_copies(float(self.polls))
        except ValueError:
            return None
        for _ in range(40):
            if more > copies and self.works(more):
                same = polls_given or _default_polls(more) == self.polls
                return f"copies={more}" if same else f"copies={more} with polls={self.polls}"
            more = math.ceil(more * 1.005)
        return None

    def _other_unsure(self, copies: int) -> str | None:
        """Fewer unsure answers make the gate steeper, more of them allow a higher rate: either may do."""
        split = self.split(copies)
        for factor in (0.8, 0.6, 0.4, 0.25, 0.15, 0.1, 0.05, 0.02, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0):
            number = round(self.unsure * factor)
            if not 1 <= number <= self.live:
                continue
            other = self.with_unsure(number)
            if other.needs(copies, split) <= self.polls and other.works(copies):
                return f"unsure={number}"
        return None


def _default_polls(copies: int | None) -> int:
    """129, or every copy where there are not many more."""
    return copies if copies is not None and copies < 2 * POLLS else POLLS


def _bound(mistakes: int) -> int:
    if isinstance(mistakes, bool) or not isinstance(mistakes, (int, np.integer)) or mistakes < 1:
        raise ValueError(f"mistakes={mistakes} must be the learner's mistake bound, a whole number of at least 1")
    return int(mistakes)


def _check(
    epsilon: float,
    delta: float,
    rounds: int,
    copies: int | None,
    unsure: int | None,
    polls: int | None,
    silent: int | None,
    unit_unsure: int,
    labels: int,
    beta: float,
) -> None:
    """Refuse what cannot be planned, one clear sentence each."""
    check_epsilon(epsilon)
    check_delta(delta)
    if not 0 < beta < 1:
        raise ValueError(f"beta={beta} must lie strictly between 0 and 1; 0.01 is usual")
    whole = {"rounds": rounds, "copies": copies, "unsure": unsure, "polls": polls, "unit_unsure": unit_unsure}
    for name, value in whole.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name}={value} must be a whole number of at least 1")
    if isinstance(labels, bool) or not isinstance(labels, (int, np.integer)) or labels < 2:
        raise ValueError(f"labels={labels} must be a whole number of at least 2: there is nothing to predict otherwise")
    if silent is not None and (
        isinstance(silent, bool) or not isinstance(silent, (int, np.integer)) or not 0 <= silent < rounds
    ):
        raise ValueError(f"silent={silent} must be a whole number from 0 to rounds − 1 = {rounds - 1}")
    if polls is not None and copies is not None and polls > copies:
        raise ValueError(f"polls={polls} asks more copies than the copies={copies} there are; use polls ≤ copies")


def _runs(values: Any) -> list[list[Any]]:
    """Run-length form [[value, times], …] with values in decimal strings (64-bit integers do not fit JSON numbers)."""
    changes = np.flatnonzero(np.diff(values)) + 1
    starts = np.concatenate([[0], changes])
    ends = np.concatenate([changes, [len(values)]])
    return [[str(int(values[s])), int(e - s)] for s, e in zip(starts, ends, strict=True)]


def _expand(runs: list[list[Any]]) -> list[int]:
    lengths = [int(times) for _, times in runs]
    if min(lengths, default=0) < 1 or sum(lengths) > 50_000_000:
        raise ValueError("a table's runs are at least 1 long, and 50 million together at most")
    return [int(value) for value, times in runs for _ in range(int(times))]
