"""How small a fault does an audit find? Exactly, from the laws of the right and of the wrong mechanism.

A mechanism may be wrong in a table's entry, in its halting draws, or in its count. The worst-margin adversary's counts
have an exact law in each of these cases, so the probability that an audit of n games notices is a sum of binomial
probabilities. Proof page: docs/proofs/audit.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, Self

import numpy as np
from scipy.stats import binom

from confide._checks import integer, probability
from confide.games.adversaries import WorstMargin
from confide.games.auditor import Terms, planned
from confide.games.bounds import BACKWARDS, at_most
from confide.games.fit import cuts, odd_hits
from confide.games.laws import Curve, Law, Outcomes, outcomes
from confide.games.region import Region
from confide.games.report import ALARM
from confide.planning.plan import Plan
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting

Kind = Literal["entry", "skipped", "shifted"]
STEPS = 40
"""Parts into which the number of false positives is cut: more of them make the bound a little better."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a mechanism. Without arguments nothing is.

    Parameters
    ----------
    entry
        Share by which P(unsure) is too small at the margin that the adversary asks for.
    skipped
        Share of the halting draws after sure answers that are left out.
    shifted
        How many times too often the hidden unsure answer is counted.
    """

    entry: float = 0.0
    skipped: float = 0.0
    shifted: int = 0


@dataclass(frozen=True)
class Power:
    """The probabilities, at least, that an audit notices."""

    fit: float
    """That the games do not follow the laws of the plan's tables."""
    certificate: float
    """That more leaks than is certified: with the score and the thresholds of one who knows the fault."""


@dataclass(frozen=True, repr=False)
class _Wrong(WorstMargin):
    """The adversary's laws for a mechanism with a fault. Its plan has the table that runs, not the promised one."""

    fault: Fault = Fault()

    @classmethod
    def of(cls, right: WorstMargin, fault: Fault) -> Self:
        held = {field.name: getattr(right, field.name) for field in fields(WorstMargin)}
        return cls(**{**held, "plan": _changed(right.plan, right.ones, fault.entry)}, fault=fault)

    @cached_property
    def _hidden(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        zero, one = super()._hidden
        return zero, (one[0], *[0.0] * self.fault.shifted, *one[1:])

    def _outcomes(self, share: float, halting: Halting, hidden: int, rounds: int) -> Outcomes:
        return outcomes(share, halting, hidden, rounds, skipped=self.fault.skipped)


def _changed(plan: Plan, ones: int, share: float) -> Plan:
    """The plan with P(unsure) smaller by this share at the margins of the polls that so many ones make likeliest."""
    if not share:
        return plan
    if plan.lean is not None:
        raise ValueError("an entry's fault is one of a gate's: take a plan without a lean")
    unsure = plan.tables.gate.table.copy()
    margin = min(round(abs(2 * ones - plan.copies) * plan.polls / plan.copies), unsure.size - 1)
    pair = slice(margin - 1 + margin % 2, margin + 1 + margin % 2)  # entries come in pairs: 2j+1 and 2j+2
    unsure[pair] *= 1 - share
    return plan.but(gate=Gate(unsure))


def faulty_laws(adversary: WorstMargin, fault: Fault) -> list[Law]:
    """The exact laws of the adversary's numbers where it plays against a mechanism with this fault."""
    zero, one = (world.flat for world in _Wrong.of(adversary, fault).worlds)
    return [Law(law.name, law.values, zero, one) for law in adversary.laws()]


def power(plan: Plan, games: int, fault: Fault, *, ones: int = 0, level: float = ALARM) -> Power:
    """How likely an audit of `WorstMargin` with so many games at each bit notices this fault, at least.

    The probability of the best single test, so that of all tests together is larger; at level `level`, as `audit` has
    it: half for the fit, half for the certificate.

    Examples
    --------
    >>> import confide
    >>> plan = confide.Plan.tight(8, 1e-6, 300, copies=160, polls=160, unsure=20, silent=0, guide=None)
    >>> found = power(plan, 3000, Fault(entry=0.1))
    >>> found.fit > 0.99, found.certificate < 0.01
    (True, True)
    """
    audit = _Audit(WorstMargin(plan, ones), integer(games, "games", 20), probability(level, "level"))
    return Power(audit.fit(fault), audit.certificate(fault))


def smallest(
    plan: Plan,
    games: int,
    kind: Kind,
    by: Literal["fit", "certificate"] = "fit",
    *,
    ones: int = 0,
    level: float = ALARM,
    chance: float = 0.9,
) -> float | None:
    """The smallest fault of a kind that an audit with so many games finds with probability `chance`; None for none.

    Of an entry and of skipped draws the share, to a thousandth; of a shifted count the number.
    """
    audit = _Audit(WorstMargin(plan, ones), integer(games, "games", 20), probability(level, "level"))

    def found(size: float) -> bool:
        fault = Fault(**{kind: size})  # type: ignore[arg-type]
        return (audit.fit if by == "fit" else audit.certificate)(fault) >= chance

    assert isinstance(plan.halting, Halting)
    unit, most = (1, plan.halting.stop) if kind == "shifted" else (1e-3, 1000)
    low, high = 0, most
    if not found(high * unit):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle * unit) else (middle, high)
    return high * unit


@dataclass(frozen=True)
class _Audit:
    """An audit that is only thought of."""

    adversary: WorstMargin
    games: int
    level: float

    @cached_property
    def region(self) -> Region:
        return Region.of(self.adversary.plan)

    @cached_property
    def limits(self) -> list[tuple[int, int, float, int, int]]:
        """The cuts of the fit, and how many hits are odd."""
        known = cuts(self.adversary.laws())
        level = self.level / 2 / len(known)
        return [(number, bit, cut, *odd_hits(self.games, share, level)) for number, bit, cut, share in known]

    def fit(self, fault: Fault) -> float:
        """Of the best single cut."""
        laws, best = faulty_laws(self.adversary, fault), 0.0
        for number, bit, cut, low, high in self.limits:
            p = float(laws[number].tails(bit, np.array([cut]))[0])
            best = max(best, float(binom.cdf(low - 1, self.games, p) + binom.sf(high, self.games, p)))
        return best

    def certificate(self, fault: Fault) -> float:
        """Of the best single threshold of the fault's own likelihood."""
        known = faulty_laws(self.adversary, fault)[0]
        law = Curve(known.zero, known.one)
        choices = [choice for choice in planned(law, self.games, Terms()) if not choice.below]
        total, best = sum(choice.share for choice in choices) / (1 - BACKWARDS), 0.0
        tails = law.tails(np.array([choice.threshold for choice in choices]))
        for choice, p, q in zip(choices, *(tail.tolist() for tail in tails), strict=True):
            if not self.region.holds(p, q):  # else no number of games would do
                best = max(best, self._outside(p, q, self.level / 2 * choice.share / total / 2))
        return best

    def _outside(self, p: float, q: float, level: float) -> float:
        """P(the measured point of a test with these rates lies outside the certified region), at least."""
        n = self.games
        places = np.concatenate([np.linspace(0, 1, STEPS + 1)[1:-1], 1 - np.geomspace(1e-3, 1e-9, 3)])
        edges = np.unique(np.clip(binom.ppf(places, n, p), 0, n).astype(np.int64))
        chances = np.diff(np.concatenate([[0.0], binom.cdf(edges, n, p)]))  # at most so many false positives
        allowed = np.array([self.region.power(at_most(int(edge), n, level)) for edge in edges])
        least = np.where(allowed < 1, binom.isf(level, n, np.minimum(allowed, 1 - 1e-15)) + 1, n)
        return float((chances * binom.sf(least, n, q)).sum())  # one hit more than is needed
