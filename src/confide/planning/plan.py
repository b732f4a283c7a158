"""Plans: from (ε, δ, rounds, …) to every number of a run, and from the numbers back to a proof.

Claims and proofs: docs/proofs/halting.md (tight and certified plans), docs/proofs/certificate.md (mistakes),
docs/proofs/paper-plan.md (the paper's own constants).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from confide.planning import certified as certified_plans
from confide.planning import files, text, tight, verify
from confide.planning import paper as paper_plans
from confide.planning.arguments import BETA, MISTAKE_BETA, check, mistake_bound
from confide.planning.design import Found
from confide.planning.files import Kind
from confide.planning.guarantee import Guarantee
from confide.planning.mistakes import Certificate
from confide.planning.tight import DISSENT
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.sparse import CounterBudget

__all__ = ["BETA", "MISTAKE_BETA", "Guarantee", "Kind", "Plan", "numbers_of"]


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

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to think twice about before running this plan: one sentence each; `print(plan)` shows them."""
        return text.warnings(self)

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
        beta: float = BETA,
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
        asked = tight.Asked(
            epsilon, delta, rounds, copies, unsure, polls, silent, unit_unsure, labels, beta, dissent
        )
        found = tight.best(asked)
        return cls(**numbers_of(found), kind="tight", rounds=rounds, labels=labels, beta=beta)

    @classmethod
    def certified(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        mistakes: int,
        *,
        beta: float = MISTAKE_BETA,
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
            Error probability of the answer to an unsure round: by default a coin's, 1 − 1/labels. The certificate
            holds for fallbacks that err no more often; 1.0 covers a constant label, or anything.
        """
        check(epsilon, delta, rounds, beta=beta, labels=labels, copies=copies, polls=polls)
        mistakes = mistake_bound(mistakes)
        error = 1 - 1 / labels if fallback_error is None else float(fallback_error)
        asked = certified_plans.Asked(epsilon, delta, rounds, mistakes, beta, copies, polls, error)
        numbers = numbers_of(certified_plans.best(asked))
        return cls(**numbers, kind="certified", rounds=rounds, labels=labels, beta=beta, mistakes=mistakes)

    @classmethod
    def paper(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        mistakes: int = 1,
        *,
        beta: float = MISTAKE_BETA,
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
        check(epsilon, delta, rounds, beta=beta, labels=labels, copies=copies, unsure=unsure)
        mistakes = mistake_bound(mistakes)
        asked = paper_plans.Asked(epsilon, delta, rounds, mistakes, beta, copies, unsure, counter_share)
        size, gate, got = paper_plans.best(asked)
        certificate = paper_plans.bounded(
            gate, copies=size.copies, unsure=size.unsure, mistakes=mistakes, rounds=rounds, beta=beta
        )
        note = (
            f"noise of scale γ = {size.scale:,.1f} votes, counter noise {float(size.counter.scale):,.1f} per node, "
            f"halts at a noisy count of {size.counter.limit:,}"
        )
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
            certificate=certificate,
            mistakes=mistakes,
            notes=(note,),
        )

    def verify(self) -> Guarantee:
        """Re-certify from the tables alone; raises ValueError if they do not keep what the plan states."""
        return verify.verify(self)

    def to_json(self) -> str:
        """The plan as JSON, tables as run-length lists of integers in decimal; `Plan.from_json` reads it back."""
        return files.write(self)

    @classmethod
    def from_json(cls, text: str | Path) -> Plan:
        """Read a plan that `to_json` wrote (text, or a path), check its form and re-certify its tables."""
        plan = cls(**files.read(text))
        plan.verify()
        return plan

    def __str__(self) -> str:
        return text.describe(self)


def numbers_of(found: Found) -> dict[str, Any]:
    """What a search found, by the names that a plan has for it."""
    got, shift = found.got, found.halting.shift
    names = ("copies", "polls", "unsure", "silent", "gate", "halting", "certificate", "notes")
    numbers = {name: getattr(found, name) for name in names}
    return {**numbers, "order": got.order, "unit_unsure": shift, "guarantee": Guarantee(got.epsilon, got.delta, shift)}
