"""AboveThreshold and ChallengeAT, as the paper writes them, with constants that are computed.

Claims and proofs: docs/proofs/paper-plan.md and, for the cost of a table, docs/proofs/gate.md. Decided once: queries
are whole numbers, noise is a whole number (discrete Laplace), and the report is `value + noise >= threshold`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from confide._checks import Numbers, integer, own_process
from confide.errors import Halted
from confide.privacy.cost import cost_from_excess, worst_excess
from confide.privacy.counters import TreeCounter, tree_error, tree_scale
from confide.privacy.gate import FLOOR, SURE_FLOOR, integers
from confide.privacy.random import Random
from confide.privacy.renyi import check_beta, check_delta, check_epsilon, epsilon_from_renyi, renyi_from_epsilon


def threshold_table(scale: float) -> NDArray[np.uint64]:
    """P(no report) as integers by gap = threshold − value, from −W to W: Pr[discrete Laplace(scale) < gap].

    Examples
    --------
    >>> table = threshold_table(10.0)
    >>> bool((np.diff(table.astype(np.float64)) >= 0).all())
    True
    """
    # Both ends stop where 64-bit rounding would begin to cost privacy (gate.py says so too).
    width = max(2, math.ceil(-math.log(min(FLOOR, SURE_FLOOR)) * scale))
    gap = np.arange(-width, width + 1)
    fall = math.exp(-1 / scale)
    tail = np.exp(-np.where(gap > 0, gap, 1 - gap) / scale) / (1 + fall)
    tail = np.maximum(tail, np.where(gap > 0, FLOOR, SURE_FLOOR))
    return integers(np.where(gap > 0, tail, 1 - tail), np.where(gap > 0, 1 - tail, tail))


def threshold_cost(scale: float, *, order: int, sensitivity: int = 1) -> float:
    """τ of `threshold_table(scale)` per report, certified from its integers. Proof page: docs/proofs/gate.md."""
    excess, _ = worst_excess(threshold_table(scale), order, sensitivity)
    return cost_from_excess(float(excess), order)


def best_order(renyi: Callable[[int], float], delta: float, hint: int = 8) -> tuple[float, int]:
    """(ε, order): the best whole order for a Rényi curve, walking from `hint` while it improves."""

    def epsilon(order: int) -> float:
        value = renyi(order)
        return epsilon_from_renyi(value, order, delta) if math.isfinite(value) else math.inf

    best = (epsilon(hint), hint)
    for direction in (1, -1):
        order, misses = hint, 0
        while misses < 2 and order + direction >= 2 and order < 2000:
            order += direction * max(1, order // 16)
            found = (epsilon(order), order)
            misses = 0 if found < best else misses + 1
            best = min(best, found)
        if direction == 1 and best[1] > hint:
            break
    return best


def leading_scale(epsilon: float, delta: float, reports: int) -> tuple[float, int]:
    """(γ, order) to leading order, γ = √(reports·order/renyi): where a search starts, never what is certified."""
    check_epsilon(epsilon), check_delta(delta)
    budgets = ((a, renyi_from_epsilon(epsilon, a, delta)) for a in range(2, 2000))
    guesses = [(math.sqrt(reports * a / left), a) for a, left in budgets if left > 0]
    if not guesses:
        raise ValueError(f"epsilon={epsilon:g} at delta={delta:g} is out of reach; ask for a larger epsilon")
    return min(guesses)


def smallest_scale(
    cost: Callable[[float, int], float], *, epsilon: float, delta: float, reports: int, least: float = 1.0
) -> tuple[float, int]:
    """(γ, order): the smallest scale, to 0.1 %, at which `reports` reports of cost(γ, order) each are (ε, δ)-private.

    The leading order only starts the search; the certificate is the shipped table's own.
    """
    first, order = leading_scale(epsilon, delta, reports)
    scale, low, high, best = max(least, first * least), 0.0, math.inf, order

    def total(order: int) -> float:
        return cost(scale, order) * reports

    for _ in range(100):
        if high - low <= 1e-3 * high < math.inf:
            return high, best
        got, order = best_order(total, delta, order)
        if got <= epsilon:
            high, best = scale, order
        else:
            low = scale
        if math.isinf(high):
            scale *= max(1.002, min(2.0, got / epsilon))
        elif low == 0.0:
            scale /= max(1.002, min(2.0, epsilon / max(got, 1e-9)))
        else:
            scale = (low + high) / 2
    raise ValueError(f"no scale was found for epsilon={epsilon:g} and {reports} reports; ask for a larger epsilon")


class AboveThreshold:
    """Reports which whole-number queries of a data set are at least about a threshold, `reports` times.

    (ε, δ)-differentially private under adaptive queries of this sensitivity: docs/proofs/paper-plan.md.

    Parameters
    ----------
    epsilon, delta
        The guarantee for all answers together.
    threshold
        t of the paper.
    reports
        r: after this many positive reports it halts.
    sensitivity
        How much one person can change a query's value.
    rng
        Source of randomness; a seeded one is for tests only.

    Examples
    --------
    >>> from confide.privacy.random import Random
    >>> sparse = AboveThreshold(epsilon=1.0, delta=1e-6, threshold=1000, reports=1, rng=Random(seed=1))
    >>> sparse.query(0), sparse.query(2000), sparse.halted
    (False, True, True)
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        threshold: int,
        reports: int,
        sensitivity: int = 1,
        rng: Random | None = None,
    ) -> None:
        reports, sensitivity = integer(reports, "reports", 1), integer(sensitivity, "sensitivity", 1)
        threshold = integer(threshold, "threshold")
        self.scale, self.order = smallest_scale(
            lambda scale, order: threshold_cost(scale, order=order, sensitivity=sensitivity),
            epsilon=epsilon,
            delta=delta,
            reports=reports,
            least=float(sensitivity),
        )
        self.epsilon, self.delta = epsilon, delta
        self.threshold, self.reports = int(threshold), int(reports)
        self.table = threshold_table(self.scale)
        self.halted = False
        self._rng = Random() if rng is None else rng
        self._left = self.reports
        self._pid = os.getpid()

    def _report(self, value: int) -> bool:
        own_process(self._pid, type(self).__name__)
        value = integer(value, "a query's value")
        if self.halted:
            raise Halted("the planned reports are used up; start a new AboveThreshold with its own budget")
        width = self.table.size // 2
        gap = min(max(self.threshold - int(value), -width), width)
        return self._rng.word() >= int(self.table[gap + width])

    def query(self, value: int) -> bool:
        """Whether value + noise ≥ threshold; the last report is delivered, then it halts."""
        report = self._report(value)
        self._left -= report
        self.halted = self._left == 0
        return report


@dataclass(frozen=True)
class CounterBudget(Numbers):
    """The numbers of the paper's noisy halting rule. Proof page: docs/proofs/paper-plan.md."""

    epsilon: float
    """ε_c, what the counter costs."""
    scale: Fraction
    """b = G·L/ε_c: the noise in each of the tree's nodes."""
    unsure: int
    """r: the run does not halt before this many (with probability 1 − β_c)."""
    late: float
    """λ_β."""
    over: float
    """λ_δ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)

    @classmethod
    def make(
        cls, *, epsilon: float, rounds: int, unsure: int, beta: float, delta: float, shift: int = 1
    ) -> CounterBudget:
        """Error bounds at the two failure probabilities: β is utility, δ is privacy (THEORY's repair of the paper)."""
        scale = tree_scale(Fraction(epsilon), rounds, shift)
        return cls(epsilon, scale, unsure, tree_error(rounds, scale, beta), tree_error(rounds, scale, delta))

    @property
    def noise_epsilon(self) -> Fraction:
        """ε_c as the exact number that the counter's noise is made for."""
        return Fraction(self.epsilon)

    @property
    def limit(self) -> int:
        """Halt when the noisy count is at least this: ⌈r + λ_β⌉."""
        return math.ceil(self.unsure + self.late)

    @property
    def visible(self) -> int:
        """N = ⌈r + λ_β + λ_δ⌉, the reports that the gate is paid for (limit rounded up first)."""
        return math.ceil(self.limit + self.over)


class ChallengeAT(AboveThreshold):
    """AboveThreshold that also hides one query: the halt depends on a private count of the reports.

    (ε, δ)-private in the paper's ChallengeAT-Game: docs/proofs/paper-plan.md. Repaired as THEORY 10 says: it halts at
    the noisy count r + λ_β, the counter's failure probability is δ for privacy and β for utility.

    Parameters
    ----------
    rounds
        The most queries that will be asked.
    beta
        Probability of halting before the r-th report.
    counter_share
        The part of ε that pays for the counter.
    shift
        How many queries one unit hides: each may report in one world and not in the other.

    Examples
    --------
    >>> from confide.privacy.random import Random
    >>> sparse = ChallengeAT(epsilon=4.0, delta=1e-6, threshold=0, reports=50, rounds=1000, rng=Random(seed=1))
    >>> [sparse.query(v) for v in (-10_000, 10_000)]
    [False, True]
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        threshold: int,
        reports: int,
        rounds: int,
        beta: float = 0.01,
        sensitivity: int = 1,
        shift: int = 1,
        counter_share: float = 0.3,
        rng: Random | None = None,
    ) -> None:
        check_epsilon(epsilon), check_delta(delta), check_beta(beta)
        reports, rounds = integer(reports, "reports", 1), integer(rounds, "rounds", 1)
        if not 0 < counter_share < 1:
            raise ValueError(f"counter_share={counter_share} must lie strictly between 0 and 1")
        self.counter_budget = CounterBudget.make(
            epsilon=epsilon * counter_share, rounds=rounds, unsure=reports, beta=beta, delta=delta / 2, shift=shift
        )
        rng = Random() if rng is None else rng
        super().__init__(
            epsilon=epsilon * (1 - counter_share),
            delta=delta / 2,
            threshold=threshold,
            reports=self.counter_budget.visible,
            sensitivity=sensitivity,
            rng=rng,
        )
        self.epsilon, self.delta = epsilon, delta
        self._counter = TreeCounter(Fraction(epsilon * counter_share), rounds, shift, rng)

    def query(self, value: int) -> bool:
        """Whether value + noise ≥ threshold; halts when the noisy count of reports reaches the limit."""
        report = self._report(value)
        self.halted = self._counter.step(int(report)) >= self.counter_budget.limit
        return report
