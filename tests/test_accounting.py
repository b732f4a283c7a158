"""From Rényi divergence to a promise: right formulas, rounded up, and nothing but refusals for nonsense."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.constant import constant_query_epsilon
from confide.privacy.gate import Gate
from confide.privacy.renyi import (
    check_delta,
    check_epsilon,
    compose,
    delta_from_renyi,
    epsilon_from_renyi,
    group,
    renyi_from_epsilon,
)

pytestmark = pytest.mark.claim("conversion.md", "composition.md")

CALM = settings(derandomize=True, deadline=None)
ORDERS = st.integers(2, 2000)
DELTAS = st.floats(-40, -0.01).map(lambda power: 10**power)
RENYI = st.one_of(st.just(0.0), st.floats(-12, 4).map(lambda power: 10**power))
BAD_DELTAS = [0.0, -0.0, -1e-9, 1.0, 1.5, math.inf, -math.inf, math.nan]
BAD_EPSILONS = [0.0, -1.0, math.inf, -math.inf, math.nan]


def converted(renyi: float, order: int, delta: float) -> mpmath.mpf:
    """ε = R + ln(1 − 1/α) − ln(α·δ)/(α − 1), to 60 digits."""
    with mpmath.workdps(60):
        alpha = mpmath.mpf(order)
        return renyi + mpmath.log1p(-1 / alpha) - mpmath.log(alpha * mpmath.mpf(delta)) / (alpha - 1)


# --- conversion


@given(RENYI, ORDERS, DELTAS)
@example(0.0, 2, 0.5)
@settings(CALM, max_examples=300)
def test_epsilon_is_the_formula_rounded_up(renyi: float, order: int, delta: float) -> None:
    truth = max(converted(renyi, order, delta), mpmath.mpf(0))
    epsilon = epsilon_from_renyi(renyi, order, delta)
    assert truth <= epsilon <= truth * (1 + mpmath.mpf(2) ** -52) + mpmath.mpf(2) ** -1074


def test_epsilon_does_not_depend_on_the_callers_decimal_context() -> None:
    cases = [(r, order, d) for r in (0.0, 0.37, 12.5) for order in (2, 20, 1999) for d in (1e-6, 3e-11)]
    usual = [epsilon_from_renyi(*case) for case in cases]
    with localcontext(Context(prec=3, rounding=ROUND_FLOOR)):
        assert [epsilon_from_renyi(*case) for case in cases] == usual


@given(RENYI, ORDERS, st.floats(0, 100))
@example(0.0, 2, 0.0)
@example(1e4, 2000, 0.0)
@settings(CALM, max_examples=300)
def test_delta_is_the_formula_rounded_up(renyi: float, order: int, epsilon: float) -> None:
    with mpmath.workdps(60):
        alpha = mpmath.mpf(order)
        power = mpmath.exp((alpha - 1) * (mpmath.mpf(renyi) - mpmath.mpf(epsilon)))
        truth = min(power * (1 - 1 / alpha) ** alpha / (alpha - 1), mpmath.mpf(1))
        delta = delta_from_renyi(renyi, order, epsilon)
        if truth > 1e-300:
            assert truth <= delta <= truth * (1 + mpmath.mpf(10) ** -11)


def test_a_delta_too_small_for_doubles_is_not_rounded_to_none() -> None:
    assert delta_from_renyi(1.0, 10, 1e5) > 0


@given(st.floats(0.01, 20), ORDERS, DELTAS)
@settings(CALM, max_examples=100)
def test_the_conversions_are_each_others_inverse(epsilon: float, order: int, delta: float) -> None:
    renyi = renyi_from_epsilon(epsilon, order, delta)
    if renyi > 0:
        assert epsilon_from_renyi(renyi, order, delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-9)
        assert delta_from_renyi(renyi, order, epsilon) == pytest.approx(delta, rel=1e-6)


def test_conversion_agrees_with_dp_accounting() -> None:
    accountant = pytest.importorskip(
        "dp_accounting.rdp.rdp_privacy_accountant", reason="needs the oracle: pip install dp-accounting"
    )
    for renyi, order, delta in ((0.5, 20, 1e-6), (2.0, 7, 1e-9), (0.05, 90, 1e-5), (7.0, 2, 1e-3)):
        theirs, best = accountant.compute_epsilon([order], [renyi], delta)
        assert best == order and epsilon_from_renyi(renyi, order, delta) == pytest.approx(theirs, rel=1e-12)
    for renyi, order, epsilon in ((0.5, 20, 1.0), (2.0, 7, 4.0), (0.05, 90, 0.3)):
        theirs, _ = accountant.compute_delta([order], [renyi], epsilon)
        assert delta_from_renyi(renyi, order, epsilon) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("renyi", [-1e-300, -1.0, -math.inf, math.nan])
def test_a_renyi_divergence_that_cannot_be_raises(renyi: float) -> None:
    with pytest.raises(ValueError, match="never"):
        epsilon_from_renyi(renyi, 10, 1e-6)
    with pytest.raises(ValueError, match="never"):
        delta_from_renyi(renyi, 10, 1.0)


def test_an_infinite_divergence_promises_nothing() -> None:
    assert epsilon_from_renyi(math.inf, 10, 1e-6) == math.inf
    assert delta_from_renyi(math.inf, 10, 5.0) == 1.0


@pytest.mark.parametrize("order", [1, 0, -3, 2.5, True, math.nan, math.inf])
def test_an_order_that_is_none_raises(order: int) -> None:
    for function, last in ((epsilon_from_renyi, 1e-6), (delta_from_renyi, 1.0)):
        with pytest.raises(ValueError, match=r"order|integer"):
            function(1.0, order, last)


@pytest.mark.parametrize("order", [1, 0, -3, 2.5, True, math.nan, math.inf])
def test_no_divergence_is_allowed_at_an_order_that_is_none(order: int) -> None:
    with pytest.raises(ValueError, match=r"order|integer"):
        renyi_from_epsilon(1.0, order, 1e-6)


@pytest.mark.parametrize("delta", BAD_DELTAS)
def test_a_delta_that_is_none_raises(delta: float) -> None:
    for call in (
        lambda: check_delta(delta),
        lambda: epsilon_from_renyi(1.0, 10, delta),
        lambda: compose(0.1, delta, 3, 1e-9),
        lambda: compose(0.1, 1e-9, 3, delta),
        lambda: group(0.1, delta, 3),
        lambda: constant_query_epsilon(SMALL, reports=3, delta=delta),
    ):
        with pytest.raises(ValueError, match="delta"):
            call()


@pytest.mark.parametrize("epsilon", BAD_EPSILONS)
def test_an_epsilon_that_is_none_raises(epsilon: float) -> None:
    for call in (
        lambda: check_epsilon(epsilon),
        lambda: compose(epsilon, 1e-9, 3, 1e-9),
        lambda: group(epsilon, 1e-9, 3),
    ):
        with pytest.raises(ValueError, match="epsilon"):
            call()


@pytest.mark.parametrize("epsilon", [-1.0, -math.inf, math.nan])
def test_delta_at_an_epsilon_that_is_none_raises(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        delta_from_renyi(1.0, 10, epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(math.nan, 1e-6), (math.inf, 1e-6), (1.0, math.nan), (1.0, 0.0), (1.0, 2.0)]
)
def test_no_divergence_is_allowed_by_a_promise_that_is_none(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        renyi_from_epsilon(epsilon, 10, delta)


# --- composition and groups


@given(st.floats(1e-6, 5), DELTAS, st.integers(1, 10**6), DELTAS)
@example(0.1, 1e-6, 3, 1e-6)
@example(0.7, 1e-6, 3, 1e-6)
@settings(CALM, max_examples=200)
def test_composition_is_the_better_theorem_rounded_up(
    epsilon: float, delta: float, times: int, slack: float
) -> None:
    with mpmath.workdps(50):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(times)
        advanced = mpmath.sqrt(2 * m * mpmath.log(1 / mpmath.mpf(slack))) * e + m * e * mpmath.expm1(e)
        total, lost = compose(epsilon, delta, times, slack)
        best = min(advanced, m * e)
        assert best <= total <= best * (1 + mpmath.mpf(10) ** -11)
        spent = m * mpmath.mpf(delta) + (mpmath.mpf(slack) if advanced < m * e else 0)
        assert min(spent, 1) <= lost <= spent * (1 + mpmath.mpf(10) ** -11)


def test_a_large_epsilon_composes_simply() -> None:
    assert compose(1000.0, 1e-6, 2, 1e-6) == pytest.approx((2000.0, 2e-6), rel=1e-11)


@given(st.floats(1e-6, 5), DELTAS, st.integers(1, 200))
@example(0.1, 1e-6, 3)
@example(0.7, 1e-6, 3)
@example(5.0, 1e-6, 200)
@settings(CALM, max_examples=200)
def test_a_group_pays_the_geometric_sum(epsilon: float, delta: float, size: int) -> None:
    """δ·Σ e^{iε}: what a chain of `size` neighbours gives. Never more than the paper's g·e^{gε}·δ."""
    total, lost = group(epsilon, delta, size)
    with mpmath.workdps(50):
        chain = mpmath.mpf(delta) * mpmath.fsum(mpmath.exp(i * mpmath.mpf(epsilon)) for i in range(size))
        assert min(chain, 1) <= lost <= min(chain * (1 + mpmath.mpf(10) ** -10), 1)
        assert lost <= size * mpmath.exp(size * mpmath.mpf(epsilon)) * mpmath.mpf(delta)
    assert size * Fraction(epsilon) <= Fraction(total) <= size * Fraction(epsilon) * (1 + Fraction(1, 10**11))


def test_a_group_of_one_is_a_unit_and_a_crowd_has_no_promise() -> None:
    assert group(0.5, 1e-6, 1) == pytest.approx((0.5, 1e-6), rel=1e-11)
    assert group(10.0, 1e-6, 10**6) == pytest.approx((1e7, 1.0), rel=1e-11)


@pytest.mark.parametrize("count", [0, -2, 1.5, math.nan, math.inf])
def test_numbers_of_mechanisms_and_units_are_whole(count: int) -> None:
    with pytest.raises(ValueError, match=r"times|integer"):
        compose(0.1, 1e-6, count, 1e-6)
    with pytest.raises(ValueError, match=r"size|integer"):
        group(0.1, 1e-6, count)


# --- what an adversary reaches


SMALL = Gate.best(order=6, cost=0.05, tie_sure=1e-6, margins=24)


def summed_delta(p: float, q: float, reports: int, epsilon: float) -> float:
    """Σ_K max(0, P(K) − e^ε·Q(K)) over the sure answers K before the last unsure one, term by term."""
    terms = math.ceil((60 + 10 * reports) / min(p, q))  # what is left out is below e⁻⁶⁰
    k = np.arange(terms, dtype=np.longdouble)
    ways = np.zeros(k.size, dtype=np.longdouble)
    ways[1:] = np.cumsum(np.log((k[1:] + reports - 1) / k[1:]))
    first, second = (
        ways + reports * np.log(np.longdouble(t)) + k * np.log1p(-np.longdouble(t)) for t in (p, q)
    )
    return float(np.maximum(np.exp(first) - np.exp(epsilon + second), 0).sum())


@pytest.mark.parametrize(("reports", "delta"), [(1, 1e-3), (4, 1e-6)])
@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 4)])
def test_the_constant_adversary_is_summed_exactly(reports: int, delta: float, share: Fraction) -> None:
    epsilon, v, w = constant_query_epsilon(SMALL, reports=reports, delta=delta, poll_fraction=share)
    assert abs(v - w) == 2 and epsilon > 0
    table, q = SMALL.table, float(share)
    deltas: dict[tuple[int, int], float] = {}
    for at in range(table.size - 2):
        for one, other in ((at, at + 2), (at + 2, at)):
            for third in (one, other) if share < 1 else (one,):
                here, there = ((1 - q) * table[third] + q * table[each] for each in (one, other))
                if here != there:
                    at_epsilon = summed_delta(here, there, reports, epsilon + 1e-7)
                    deltas[one, other] = max(deltas.get((one, other), 0.0), at_epsilon)
    assert max(deltas.values()) <= delta  # nobody reaches more than ε …
    near = deltas[v, w]
    assert near >= delta * 0.9999  # … and who always asks there reaches ε


def certified(gate: Gate, order: int, reports: int, delta: float, share: Fraction = Fraction(1)) -> float:
    cost = gate.cost(order=order, poll_fraction=share)
    return epsilon_from_renyi(reports * cost, order, delta - reports * gate.tie_sure)


@pytest.mark.parametrize(
    ("order", "cost", "reports", "share"),
    [
        (4, 0.2, 3, Fraction(1)),
        (10, 0.02, 20, Fraction(1)),
        (25, 0.003, 50, Fraction(1)),
        (10, 0.02, 20, Fraction(1, 8)),
        (6, 0.1, 5, Fraction(2, 3)),
    ],
)
def test_no_constant_adversary_reaches_the_certified_epsilon(
    order: int, cost: float, reports: int, share: Fraction
) -> None:
    gate = Gate.best(order=order, cost=cost, tie_sure=1e-10, poll_fraction=share)
    for delta in (1e-3, 1e-6):
        reached, _, _ = constant_query_epsilon(gate, reports=reports, delta=delta, poll_fraction=share)
        assert 0 < reached < certified(gate, order, reports, delta, share)


@pytest.mark.parametrize(("reports", "order"), [(100, 18), (1000, 20)])
def test_the_accountant_gives_away_less_than_a_tenth(reports: int, order: int) -> None:
    """Exact loss over certified ε at (1, 10⁻⁶), and a cost understated by a fifth is refuted at 1000 reports."""
    cost = renyi_from_epsilon(1.0, order, 0.999e-6) / reports
    gate = Gate.best(order=order, cost=cost, tie_sure=5e-10 / reports)
    promise = certified(gate, order, reports, 1e-6)
    reached, _, _ = constant_query_epsilon(gate, reports=reports, delta=1e-6)
    assert promise <= 1.0
    assert 0.90 <= reached / promise < 1
    if reports == 1000:
        assert reached > epsilon_from_renyi(0.8 * reports * gate.cost(order=order), order, 1e-6)


@pytest.mark.parametrize(
    "change", [{"reports": 0}, {"reports": -1}, {"reports": 2.5}, {"poll_fraction": math.nan}]
)
def test_the_constant_adversary_refuses_nonsense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        constant_query_epsilon(SMALL, **({"reports": 3, "delta": 1e-6} | change))  # type: ignore[arg-type]


def test_a_flat_gate_tells_nothing() -> None:
    assert constant_query_epsilon(Gate([0.5] * 6), reports=9, delta=1e-6)[0] == 0.0
    assert constant_query_epsilon(Gate([0.5]), reports=9, delta=1e-6)[0] == 0.0
