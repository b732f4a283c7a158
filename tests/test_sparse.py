"""AboveThreshold and ChallengeAT: the noise they have, when they halt, what they give away.

Statistical tests run on fixed seeds and say what their false-alarm rate would be without; each also rejects a wrong
mechanism.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from confide.errors import Halted
from confide.privacy import sparse
from confide.privacy.cost import ONE
from confide.privacy.gate import FLOOR, SURE_FLOOR
from confide.privacy.random import Random
from confide.privacy.renyi import epsilon_from_renyi
from confide.privacy.sparse import (
    AboveThreshold,
    ChallengeAT,
    best_order,
    smallest_scale,
    threshold_cost,
    threshold_table,
)

pytestmark = pytest.mark.claim("paper-plan.md")

Floats = NDArray[np.float64]


class Fixed:
    """A source of the words that a test wants."""

    secure = False

    def __init__(self, *words: int) -> None:
        self._words = iter(words)

    def word(self) -> int:
        return next(self._words)


def laplace_tail(scale: float, gap: int) -> float:
    """Pr[noise ≥ gap] for discrete Laplace noise, added up from its weights e^{−|x|/scale}."""
    reach = math.ceil(60 * scale) + abs(gap)
    x = np.arange(-reach, reach + 1)
    weight = np.exp(-np.abs(x) / scale)
    return float(weight[x >= gap].sum() / weight.sum())


def no_report(table: NDArray[np.uint64]) -> Floats:
    return table.astype(np.float64) / 2.0**64


# --- the noise


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 40.0])
def test_the_table_is_the_discrete_laplace_tail(scale: float) -> None:
    table = threshold_table(scale)
    width = table.size // 2
    assert table.size == 2 * width + 1
    for gap in range(-width, width + 1):
        report = laplace_tail(scale, gap)
        if 1 - report > SURE_FLOOR and report > FLOOR:
            assert 1 - no_report(table)[gap + width] == pytest.approx(report, rel=1e-9, abs=1e-15)
    assert no_report(table)[0] == pytest.approx(SURE_FLOOR, rel=1e-3)
    assert 1 - no_report(table)[-1] == pytest.approx(FLOOR, rel=1e-3)


def misfits(seen: Sequence[int], gaps: Sequence[int], queries: int, scale: float) -> bool:
    """Whether a chi-square test at level 10⁻⁷ says that so many reports at these gaps have not this scale's noise."""
    p = np.array([laplace_tail(scale, gap) for gap in gaps])
    statistic = ((np.array(seen) - queries * p) ** 2 / (queries * p * (1 - p))).sum()
    return bool(statistic > chi2.isf(1e-7, len(gaps)))


@pytest.fixture(scope="module")
def talkative() -> AboveThreshold:
    """Has more reports than the tests below use up."""
    return AboveThreshold(epsilon=500.0, delta=0.1, threshold=1000, reports=200_000, rng=Random(seed=7))


def test_reports_come_as_often_as_the_noise_says(talkative: AboveThreshold) -> None:
    """Chi-square over eleven gaps, 15 000 queries each: false alarms have probability 10⁻⁷; scale × 1.1 is rejected."""
    gamma, queries = talkative.scale, 15_000
    gaps = [round(part * gamma) for part in (-2, -1.3, -0.8, -0.4, -0.1, 0, 0.1, 0.5, 1, 1.5, 2.2)]
    seen = [sum(talkative.query(1000 - gap) for _ in range(queries)) for gap in gaps]
    assert not misfits(seen, gaps, queries, gamma)
    assert misfits(seen, gaps, queries, gamma * 1.1) and misfits(seen, gaps, queries, gamma / 1.1)


def test_challenge_at_has_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above for the first query of ChallengeAT: false alarms have probability 10⁻⁷."""
    scale, queries, gaps = 5.0, 8000, (-8, -5, 4, 6, 8)
    monkeypatch.setattr(sparse, "smallest_scale", lambda *_, **__: (scale, 4))
    mechanism = ChallengeAT(epsilon=400.0, delta=0.1, threshold=0, reports=10**6, rounds=40_000, rng=Random(seed=8))
    seen = [sum(mechanism.query(-gap) for _ in range(queries)) for gap in gaps]
    assert not misfits(seen, gaps, queries, scale)
    assert misfits(seen, gaps, queries, scale * 1.1) and misfits(seen, gaps, queries, scale / 1.1)


# --- at least, and not more than


def test_a_value_at_the_threshold_is_reported_more_often_than_not() -> None:
    """value + noise ≥ threshold: noise of 0 reports a value at the threshold, and none below."""
    mechanism = above(epsilon=200.0, delta=0.1, threshold=10, reports=50, rng=Fixed(*[ONE // 2] * 4))
    assert [mechanism.query(v) for v in (9, 10, 11, 8)] == [False, True, True, False]
    assert laplace_tail(5.0, 0) > 0.5 > laplace_tail(5.0, 1)


@pytest.mark.parametrize("gap", [-30, -1, 0, 1, 2, 30])
def test_a_report_is_one_comparison_with_the_gaps_integer(gap: int) -> None:
    """Noise is at least the gap iff the word is not below the table's integer."""
    mechanism = AboveThreshold(epsilon=30.0, delta=1e-3, threshold=5, reports=20)
    edge = int(mechanism.table[gap + mechanism.table.size // 2])
    mechanism._rng = Fixed(edge - 1, edge, 0, ONE - 1)  # type: ignore[assignment]
    assert [mechanism.query(5 - gap) for _ in range(4)] == [False, True, False, True]


@pytest.mark.parametrize("value", [10**9, -(10**9), 10**30, -(10**30)])
def test_far_values_use_the_tables_ends(value: int) -> None:
    mechanism = AboveThreshold(epsilon=30.0, delta=1e-3, threshold=5, reports=20, rng=Random(seed=9))
    assert mechanism.query(value) is (value > 0)


# --- halting


def test_it_halts_after_its_reports_and_delivers_the_last() -> None:
    mechanism = AboveThreshold(epsilon=30.0, delta=1e-3, threshold=0, reports=3, rng=Random(seed=10))
    answers = [mechanism.query(v) for v in (-1000, 1000, -1000, 1000, -1000, -1000)]
    assert answers == [False, True, False, True, False, False] and not mechanism.halted
    assert mechanism.query(1000) is True and mechanism.halted
    for value in (1000, -1000):
        with pytest.raises(Halted, match="new"):
            mechanism.query(value)


def test_queries_without_a_report_are_free() -> None:
    mechanism = AboveThreshold(epsilon=30.0, delta=1e-3, threshold=0, reports=1, rng=Random(seed=11))
    assert not any(mechanism.query(-1000) for _ in range(5000)) and not mechanism.halted


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One search for the scale, for many mechanisms."""
    known: dict[tuple[float, float, int], tuple[float, int]] = {}

    def search(cost: Callable[[float, int], float], *, epsilon: float, delta: float, reports: int, least: float) -> Any:
        key = epsilon, delta, reports
        if key not in known:
            known[key] = smallest_scale(cost, epsilon=epsilon, delta=delta, reports=reports, least=least)
        return known[key]

    monkeypatch.setattr(sparse, "smallest_scale", search)


def reports_until_halt(mechanism: ChallengeAT) -> int:
    count = 0
    while not mechanism.halted:
        count += mechanism.query(10**6)
    with pytest.raises(Halted):
        mechanism.query(0)
    return count


@pytest.mark.usefixtures("quick")
def test_challenge_at_halts_neither_early_nor_late() -> None:
    """Over 500 runs of nothing but reports, r = 30 and β = 0.05.

    Early halts stay within the 10⁻⁷ quantile of binomial(500, β); a run passes N with probability 5·10⁻¹⁰. The
    halt at a noisy count of r, as the paper prints it, is early far more often and is rejected.
    """
    runs, reports, beta = 500, 30, 0.05
    seen: dict[str, list[int]] = {"ours": [], "printed": []}
    for seed in range(runs):
        for kind, counts in seen.items():
            mechanism = ChallengeAT(
                epsilon=40.0, delta=1e-9, threshold=0, reports=reports, rounds=400, beta=beta, rng=Random(seed=seed)
            )
            budget = mechanism.counter_budget
            if kind == "printed":
                mechanism.counter_budget = replace(budget, late=0.0)
            counts.append(reports_until_halt(mechanism))
    most = binom.isf(1e-7, runs, beta)
    assert sum(count < reports for count in seen["ours"]) <= most
    assert sum(count < reports for count in seen["printed"]) > most
    assert max(seen["ours"]) <= budget.visible
    assert reports < np.mean(seen["ours"]) < budget.visible


@pytest.mark.usefixtures("quick")
def test_challenge_at_counts_reports_and_not_queries() -> None:
    mechanism = ChallengeAT(epsilon=40.0, delta=1e-9, threshold=0, reports=30, rounds=400, rng=Random(seed=12))
    assert not any(mechanism.query(-(10**6)) for _ in range(300)) and not mechanism.halted


@pytest.mark.usefixtures("quick")
def test_challenge_at_splits_its_budget() -> None:
    mechanism = ChallengeAT(
        epsilon=40.0, delta=1e-6, threshold=0, reports=30, rounds=400, counter_share=0.25, shift=3, rng=Random(seed=13)
    )
    budget = mechanism.counter_budget
    assert (mechanism.epsilon, mechanism.delta) == (40.0, 1e-6) and budget.epsilon == 10.0
    assert budget.scale == Fraction(3 * 9, 10)  # shift·L/ε_c, L = ⌊log₂ 400⌋ + 1
    assert mechanism.reports == budget.visible >= budget.limit >= 30
    renyi = mechanism.reports * threshold_cost(mechanism.scale, order=mechanism.order)
    assert epsilon_from_renyi(renyi, mechanism.order, 5e-7) <= 30.0


@pytest.mark.usefixtures("quick")
def test_challenge_at_stops_at_its_horizon() -> None:
    mechanism = ChallengeAT(epsilon=40.0, delta=1e-6, threshold=0, reports=30, rounds=10, rng=Random(seed=14))
    for _ in range(10):
        mechanism.query(-(10**6))
    with pytest.raises((ValueError, Halted)):
        mechanism.query(-(10**6))


# --- the constants


@pytest.mark.parametrize(("reports", "constant"), [(10, 2.70), (100, 2.02), (1000, 1.81)])
def test_the_constants_of_the_theory(reports: int, constant: float) -> None:
    """γ·ε/√(r·ln(1/δ)) at (1, 10⁻⁶)."""
    scale, order = smallest_scale(lambda s, a: threshold_cost(s, order=a), epsilon=1.0, delta=1e-6, reports=reports)
    assert scale / math.sqrt(reports * math.log(1e6)) == pytest.approx(constant, rel=0.02)
    assert epsilon_from_renyi(reports * threshold_cost(scale, order=order), order, 1e-6) <= 1.0
    found, _ = best_order(lambda a: reports * threshold_cost(scale * 0.995, order=a), 1e-6, order)
    assert found > 1.0  # the smallest


@pytest.mark.parametrize("sensitivity", [2, 3])
def test_the_scale_grows_with_the_sensitivity(sensitivity: int) -> None:
    one = AboveThreshold(epsilon=4.0, delta=1e-6, threshold=0, reports=20)
    many = AboveThreshold(epsilon=4.0, delta=1e-6, threshold=0, reports=20, sensitivity=sensitivity)
    assert many.scale == pytest.approx(sensitivity * one.scale, rel=0.05)
    renyi = 20 * threshold_cost(many.scale, order=many.order, sensitivity=sensitivity)
    assert epsilon_from_renyi(renyi, many.order, 1e-6) <= 4.0


def test_no_scale_for_what_is_out_of_reach() -> None:
    with pytest.raises(ValueError, match="larger epsilon"):
        smallest_scale(lambda s, a: threshold_cost(s, order=a), epsilon=1e-3, delta=1e-200, reports=5)


# --- privacy, by enumeration


Gaps = tuple[int, ...]
Answers = tuple[bool, ...]


def transcripts(gaps: Gaps, table: NDArray[np.uint64], reports: int) -> Iterator[tuple[Answers, float]]:
    """Every transcript of queries with these gaps, with its probability; it ends with the last report."""
    quiet, width = no_report(table), table.size // 2
    for answers in itertools.product((False, True), repeat=len(gaps)):
        probability, left, length = 1.0, reports, 0
        for gap, answer in zip(gaps, answers, strict=True):
            silent = float(quiet[min(max(gap + width, 0), 2 * width)])
            probability *= 1 - silent if answer else silent
            left, length = left - answer, length + 1
            if left == 0:
                break
        if not any(answers[length:]):  # one representative of what comes after the halt
            yield answers[:length], probability


def exact_delta(first: Gaps, second: Gaps, table: NDArray[np.uint64], reports: int, epsilon: float) -> float:
    """Σ (P − e^ε·Q)⁺ over all transcripts."""
    p, q = dict(transcripts(first, table, reports)), dict(transcripts(second, table, reports))
    assert p.keys() == q.keys() and sum(p.values()) == pytest.approx(1) == sum(q.values())
    return sum(max(0.0, p[t] - math.exp(epsilon) * q[t]) for t in p)


@pytest.mark.parametrize(("reports", "sensitivity"), [(1, 1), (2, 1), (2, 3)])
def test_no_transcript_tells_more_than_the_promise(reports: int, sensitivity: int) -> None:
    """Ten queries at many gaps, neighbours one step off in any pattern: δ at ε is at most what was promised.

    With noise of a quarter of the scale it is not.
    """
    epsilon, delta, queries = 0.8, 0.02, 10
    mechanism = AboveThreshold(
        epsilon=epsilon, delta=delta, threshold=0, reports=reports, sensitivity=sensitivity, rng=Random(seed=15)
    )
    shifts = [
        (sensitivity,) * queries,
        (-sensitivity,) * queries,
        tuple(sensitivity * (-1) ** i for i in range(queries)),
        (sensitivity,) + (0,) * (queries - 1),
    ]

    def worst(scale: float) -> float:
        table = threshold_table(scale)
        found = 0.0
        for part in (-2.0, -0.7, 0.0, 0.4, 1.0, 1.7, 3.0):
            gaps = (round(part * scale),) * queries
            for shift in shifts:
                second = tuple(g + s for g, s in zip(gaps, shift, strict=True))
                found = max(found, exact_delta(gaps, second, table, reports, epsilon))
        return found

    assert worst(mechanism.scale) <= delta
    assert worst(mechanism.scale / 4) > delta


def test_an_adaptive_adversary_gains_nothing_beyond_the_promise() -> None:
    """The best of all adversaries that choose each of six gaps from the answers so far, against the Rényi bound.

    E[(P/Q)^α] is maximised backwards over the gaps at every node, both ways; N·τ must cover it for every order.
    """
    scale, reports, queries = 8.0, 2, 6
    table = threshold_table(scale)
    quiet = no_report(table)
    for order in (2, 5):
        bound = (order - 1) * reports * threshold_cost(scale, order=order)
        p, q = (quiet[:-1], quiet[1:]), (quiet[1:], quiet[:-1])
        terms = []
        for one, other in (p, q):
            silent = one**order * other ** (1 - order)
            loud = (1 - one) ** order * (1 - other) ** (1 - order)
            terms.append((silent, loud))
        silent, loud = (np.concatenate(each) for each in zip(*terms, strict=True))
        value = np.ones((queries + 1, reports + 1))  # by queries left and reports left; none left: 1
        for n, left in itertools.product(range(1, queries + 1), range(1, reports + 1)):
            value[n, left] = max(1.0, float((silent * value[n - 1, left] + loud * value[n - 1, left - 1]).max()))
        assert bound / 3 < math.log(value[queries, reports]) <= bound < math.inf


# --- bad input


def above(**change: Any) -> AboveThreshold:
    return AboveThreshold(**{"epsilon": 30.0, "delta": 1e-3, "threshold": 0, "reports": 3, **change})


def challenge(**change: Any) -> ChallengeAT:
    return ChallengeAT(**{"epsilon": 30.0, "delta": 1e-3, "threshold": 0, "reports": 3, "rounds": 100, **change})


@pytest.mark.parametrize("make", [above, challenge])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epsilon", value) for value in (0.0, -1.0, math.nan, math.inf)),
        *(("delta", value) for value in (0.0, 1.0, -0.1, math.nan)),
        *(("threshold", value) for value in (0.5, math.nan, math.inf, True)),
        *(("reports", value) for value in (0, -5, 1.5, math.nan, math.inf, True)),
        *(("sensitivity", value) for value in (0, -1, 0.5, math.nan, math.inf, True)),
    ],
    ids=str,
)
def test_bad_numbers_are_refused(make: Callable[..., AboveThreshold], name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        make(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("rounds", value) for value in (0, -1, 1.5, math.nan, True)),
        *(("beta", value) for value in (0.0, 1.0, -0.1, math.nan)),
        *(("shift", value) for value in (0, -1, 1.5, True)),
        *(("counter_share", value) for value in (0.0, 1.0, math.nan)),
    ],
    ids=str,
)
def test_bad_numbers_of_a_challenge_are_refused(name: str, value: float) -> None:
    said = "rounds|horizon" if name == "rounds" else name
    with pytest.raises(ValueError, match=said):
        challenge(**{name: value})


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf, -math.inf, True, "3"])
def test_queries_are_whole_numbers(value: Any) -> None:
    mechanism = above(rng=Random(seed=16))
    with pytest.raises(ValueError):
        mechanism.query(value)
    assert mechanism.query(-1000) is False and not mechanism.halted
