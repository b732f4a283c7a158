"""Gates: what a table costs, what the best one reaches, and what `decide` does with it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, nbinom

from confide.accounting import epsilon_from_renyi, renyi_from_epsilon
from confide.bounds import ONE, worst_excess
from confide.gate import Gate
from confide.randomness import Random

CALM = settings(derandomize=True, deadline=None)
DELTA = 1e-6
Tables = NDArray[np.uint64]


# --- what a table costs, against brute force


def random_tables(draw: np.random.Generator, count: int, size: int) -> Tables:
    """Integer tables whose logit walks down, or down and up, by steps of many sizes from many starts."""
    scale = 10 ** draw.uniform(-3, 0.2, size=(count, 1))
    walk = draw.exponential(scale, size=(count, size))
    up = draw.random((count, size)) < np.where(np.arange(count)[:, None] % 2, 0.4, 0.0)
    logit = draw.uniform(-6, 12, size=(count, 1)) - np.cumsum(np.where(up, -walk, walk), axis=1)
    sure = (2.0**63 / (1 + np.exp(logit))).astype(np.uint64) * np.uint64(2)
    return sure | draw.integers(0, 2, size=sure.shape).astype(np.uint64)


def brute_force(sure: Tables, order: int, fraction: Fraction = Fraction(1)) -> NDArray[np.longdouble]:
    """max A_u/(1 − A_s) − 1 over all pairs (triples) of margins at most 2 apart, straight from the definition."""
    s = sure.astype(np.longdouble) / np.longdouble(2) ** 64
    u = np.where(sure == 0, np.longdouble(1), (np.uint64(0) - sure).astype(np.longdouble) / np.longdouble(2) ** 64)
    share = np.longdouble(fraction.numerator) / np.longdouble(fraction.denominator)
    margins = range(sure.shape[1])
    worst = np.zeros(sure.shape[0], dtype=np.longdouble)
    for p, q, m in product(margins, margins, margins if fraction < 1 else (0,)):
        if p == q or abs(p - q) > 2 or (fraction < 1 and max(abs(p - m), abs(q - m)) > 2):
            continue
        p_s, q_s = ((1 - share) * s[:, m] + share * s[:, each] for each in (p, q))
        p_u, q_u = ((1 - share) * u[:, m] + share * u[:, each] for each in (p, q))
        with np.errstate(divide="ignore", invalid="ignore"):
            a_u, a_s = p_u * (p_u / q_u) ** (order - 1), p_s * (p_s / q_s) ** (order - 1)
            needed = np.where(a_s < 1, a_u / (1 - a_s) - 1, np.inf)
        worst = np.maximum(worst, np.where(sure[:, p] == sure[:, q], 0, needed))
    return worst


def exact_excess(table: list[int], order: int, fraction: Fraction) -> Fraction | None:
    """The same in rational arithmetic; None for infinity."""
    worst = Fraction(0)
    margins = range(len(table))
    for p, q, m in product(margins, repeat=3):
        if table[p] == table[q] or max(p, q, m) - min(p, q, m) > 2:
            continue
        p_s, q_s = (((1 - fraction) * table[m] + fraction * table[each]) / ONE for each in (p, q))
        a_u = (1 - p_s) ** order / (1 - q_s) ** (order - 1)
        if q_s == 0 or p_s**order >= q_s ** (order - 1):
            return None
        worst = max(worst, a_u / (1 - p_s**order / q_s ** (order - 1)) - 1)
    return worst


@pytest.mark.parametrize(
    ("size", "order", "count", "fraction"),
    [
        (6, 2, 50_000, Fraction(1)),
        (9, 17, 30_000, Fraction(1)),
        (12, 5, 20_000, Fraction(1)),
        (6, 8, 6_000, Fraction(201, 3200)),
        (7, 3, 4_000, Fraction(1, 2)),
    ],
)
def test_the_cost_is_never_below_brute_force(size: int, order: int, count: int, fraction: Fraction) -> None:
    """Over 110 000 random tables; where extended precision cannot tell, some are settled in rational arithmetic."""
    sure = random_tables(np.random.default_rng(size), count, size)
    bound, _ = worst_excess(sure, order, 2, fraction)
    truth = brute_force(sure, order, fraction)
    finite = np.isfinite(truth)
    assert count / 5 < finite.sum() and (~finite).any()
    below = bound < truth * (1 - np.longdouble(1e-12))
    assert not below.any()
    near = np.flatnonzero(bound <= truth * (1 + np.longdouble(1e-12)))
    suspect = np.flatnonzero(bound < truth)
    for index in np.concatenate([near[:25], suspect[:200]]):
        settled = exact_excess([int(entry) for entry in sure[index]], order, fraction)
        assert np.isinf(bound[index]) if settled is None else Fraction(float(bound[index])) >= settled
    # Not merely an upper bound: the two agree wherever the step is neither invisible nor almost unbounded.
    clear = finite & (truth > 1e-6) & (truth < 1e6)
    assert (bound[clear] <= truth[clear] * (1 + np.longdouble(1e-6))).mean() > 0.999
    # And the comparison can fail: without the steps of 2 most costs are too low.
    assert (worst_excess(sure, order, 1, fraction)[0][finite] < truth[finite] * 0.999).mean() > 0.3


def test_the_trap_of_steps_of_one_is_caught() -> None:
    """A table made for steps of 1 in the margin: binary votes move it by 2, and the promise of ε = 1 becomes 2.14."""
    reports, order = 1000, 20
    design = renyi_from_epsilon(1, order, DELTA * 0.999) / reports
    gate = Gate.best(order=order, cost=design, tie_sure=1e-12)
    levels = np.concatenate([gate.sure[:3], gate.sure[3::2]])
    trap = Gate.from_integers(levels)
    assert worst_excess(levels, order, 1)[0] <= math.expm1((order - 1) * design)  # what the trap's maker looked at
    promises = []
    for each in range(2, 40):
        try:
            cost = trap.cost(order=each)
        except ValueError as refusal:
            assert "one vote apart" in str(refusal)
        else:
            promises.append(epsilon_from_renyi(reports * cost, each, DELTA - reports * trap.tie_sure))
    assert min(promises) == pytest.approx(2.14, abs=0.01)


# --- the best table


@pytest.mark.parametrize("tie_sure", [2.0**-50, 1e-12, 1e-6])
@pytest.mark.parametrize("fraction", [Fraction(1), Fraction(1, 16)])
@pytest.mark.parametrize("order", [2, 8, 20, 30, 60])
def test_the_best_table_costs_at_most_its_design(order: int, fraction: Fraction, tie_sure: float) -> None:
    for cost in (1e-4, 1e-3, 1e-2):
        gate = Gate.best(order=order, cost=cost, poll_fraction=fraction, tie_sure=tie_sure)
        assert gate.tie_sure <= tie_sure * (1 + 1e-12)
        assert cost * 0.9999 <= gate.cost(order=order, poll_fraction=fraction) <= cost


def test_a_costly_best_table_is_not_one_that_its_own_certificate_refuses() -> None:
    gate = Gate.best(order=16, cost=1.0)
    assert gate.cost(order=16) <= 1.0


@pytest.mark.parametrize(
    ("reports", "epsilon", "half", "thousandth"),
    [(100, 1, 132, 480), (1000, 1, 313, 1304), (1000, 2, 167, 689), (1000, 4, 89, 373)],
)
def test_the_best_table_reaches_the_margins_it_is_known_for(
    reports: int, epsilon: float, half: float, thousandth: float
) -> None:
    """Votes above half at which P(unsure) falls to ½ and 10⁻³ at δ = 10⁻⁶: at most 2 % above docs/proofs/best-table.md."""
    worse = math.inf
    for order in range(5, 24):
        budget = renyi_from_epsilon(epsilon, order, DELTA * 0.999)
        if budget <= 0:
            continue
        gate = Gate.best(order=order, cost=budget / reports, tie_sure=DELTA * 5e-4 / reports, margins=3 * thousandth)
        try:
            here = max(gate.margin(unsure=0.5) / 2 / half, gate.margin(unsure=1e-3) / 2 / thousandth)
        except ValueError:  # this order's table is still above 10⁻³ there
            continue
        ties = reports * gate.tie_sure
        assert epsilon_from_renyi(reports * gate.cost(order=order), order, DELTA - ties) <= epsilon
        worse = min(worse, here)
    assert worse <= 1.02


SHORT = Gate.best(order=12, cost=0.02, tie_sure=1e-4, margins=60)


@given(st.integers(1, 60), st.floats(0.02, 3), st.booleans())
@settings(CALM, max_examples=150)
def test_one_changed_entry_is_refused_or_priced(entry: int, size: float, up: bool) -> None:
    """`size` is in steps of the table. Raising one of the last two entries really is free, as is raising entry 0."""
    if up:
        entry = min(entry, 58)
    logit = np.log(SHORT.table) - np.log1p(-SHORT.table)
    logit[entry] += size * (logit[min(max(entry, 3), 58)] - logit[min(max(entry, 3), 58) + 2]) * (1 if up else -1)
    table = 1 / (1 + np.exp(-logit))
    changed = Gate(table)
    if changed.tie_sure > SHORT.tie_sure * 1.001:
        assert entry <= 2 and not up  # the price is a larger bad event
        return
    try:
        cost = changed.cost(order=12)
    except ValueError:
        return
    assert cost > SHORT.cost(order=12)


def test_doubled_entries_cover_every_step_of_at_most_two() -> None:
    gate = Gate.best(order=9, cost=0.01)
    assert (gate.sure[1:-1:2] == gate.sure[2::2]).all() and gate.sure[0] == gate.sure[1]
    for fraction in (Fraction(1), Fraction(1, 4)):
        gate = Gate.best(order=9, cost=0.01, poll_fraction=fraction, tie_sure=1e-6)
        binary = Gate.from_integers(np.repeat(gate.sure[2::2], 2))  # pairs (v, v ± 2) alone have this same cost
        assert gate.cost(order=9, poll_fraction=fraction) == binary.cost(order=9, poll_fraction=fraction)


def test_fewer_polls_cost_less_and_the_middle_vote_count_matters() -> None:
    gate = Gate.best(order=10, cost=0.05, tie_sure=1e-6)
    costs = [gate.cost(order=10, poll_fraction=Fraction(1, k)) for k in (1, 2, 4, 16, 64)]
    assert all(a > b for a, b in zip(costs, costs[1:], strict=False))
    table = [int(entry) for entry in gate.sure[40:47]]
    settled = exact_excess(table, 10, Fraction(1, 4))
    assert settled is not None
    found = Gate.from_integers(table).cost(order=10, poll_fraction=0.25)
    assert found >= math.log1p(settled) / 9 * (1 - 1e-14)
    assert found <= math.log1p(settled) / 9 * (1 + 1e-9)


def test_the_laplace_table_is_the_papers() -> None:
    gate = Gate.laplace(scale=20, threshold=50)
    for v in (0, 3, 99, 100, 101, 200, 400):
        noise = 0.5 * math.exp(-abs(v / 2 - 50) / 20)
        assert gate.table[v] == pytest.approx(noise if v >= 100 else 1 - noise, rel=1e-9)
    # leading order α/γ²: near it, and never certified by it
    assert gate.cost(order=4) == pytest.approx(4 / 20**2, rel=0.2)


def test_a_laplace_table_with_a_high_threshold_has_a_cost() -> None:
    """P(label) = ½·e^{−60} at a tie is below 2⁻⁶⁴; the noise never makes it impossible, so neither may the integers."""
    assert Gate.laplace(scale=10, threshold=600).cost(order=4) < 1


# --- Theorem 1, exactly


def best_delta(table: list[float], reports: int, epsilon: float, pitch: float, ties: bool) -> float:
    """δ(ε) of the best adaptive adversary against `reports` unsure answers, by dynamic programming; rounded up.

    h(ℓ) is what a transcript of likelihood ratio e^ℓ is worth, per unit of Q's mass. It is convex in e^ℓ, so reading
    it between two points of the lattice of `pitch` overstates it, and it is exact where the steps fall on the lattice.
    """
    first, last = round(-8 / pitch), round((epsilon + 7) / pitch)
    ratio = np.exp(np.arange(first, last + 1) * pitch)
    worth = np.maximum(ratio - math.exp(epsilon), 0)
    pairs = [(table[v + i], table[v + 2 - i]) for v in range(len(table) - 2) for i in (0, 2)]
    p, q = np.array([pair for pair in pairs if pair[0] != pair[1]]).T
    show = max(1 - t for t in table[:3])  # a label at a tie: only one world can show it

    class Move:
        def __init__(self, step: NDArray[np.float64]) -> None:
            whole = np.floor(step / pitch + 1e-9)
            at = np.arange(ratio.size) + whole[:, None].astype(int)
            self.low, self.high = np.clip(at, 0, ratio.size - 1), np.clip(at + 1, 0, ratio.size - 1)
            share = np.expm1(np.maximum(step - whole * pitch, 0)) / math.expm1(pitch)
            self.share = np.where(share < 1e-9, 0, share)[:, None]
            self.beyond = np.where(at + (self.share > 0) >= ratio.size, ratio * np.exp(step)[:, None], 0)

        def __call__(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
            here = (1 - self.share) * value[self.low] + self.share * value[self.high]
            return np.where(self.beyond > 0, self.beyond, here)

    unsure, sure = Move(np.log(p / q)), Move(np.log((1 - p) / (1 - q)))
    for _ in range(reports):
        spent = q[:, None] * unsure(worth)
        after = np.maximum(worth, show * ratio + (1 - show) * worth) if ties else worth
        for _ in range(2000):
            better = np.maximum(after, (spent + (1 - q)[:, None] * sure(after)).max(axis=0))
            done = bool((better <= after * (1 + 1e-10)).all())
            after = better
            if done:
                break
        worth = after
    return float(worth[-first])


@pytest.mark.parametrize(("order", "cost", "tie_sure"), [(4, 0.3, 1e-4), (10, 0.5, 1e-3), (3, 0.02, 0.03)])
def test_no_adaptive_adversary_exceeds_the_certified_promise(order: int, cost: float, tie_sure: float) -> None:
    gate = Gate.best(order=order, cost=cost, tie_sure=tie_sure, margins=12)
    certified = gate.cost(order=order)
    for reports, target in product((1, 2, 3), (0.03, 1e-5)):
        epsilon = epsilon_from_renyi(reports * certified, order, target)
        table = list(gate.table)
        alone = best_delta(table, reports, epsilon, 0.02, ties=False)
        with_ties = best_delta(table, reports, epsilon, 0.02, ties=True)
        assert 0 < alone < with_ties  # the bad event is really there
        assert alone <= target
        assert with_ties <= target + reports * gate.tie_sure


def test_the_same_adversary_refutes_a_cost_that_is_understated_by_a_fifth() -> None:
    """One pair of entries whose losses lie on a lattice, so that the programme is exact; 30 reports, δ = 10⁻³⁰."""
    reports, order, target, p = 30, 10, 1e-30, 0.3
    low, high = 0.2, p  # find q with ln(p/q) = 2·ln((1−q)/(1−p))
    while high - low > 1e-16 and low < (low + high) / 2 < high:
        q = (low + high) / 2
        low, high = (low, q) if math.log(p / q) < 2 * math.log((1 - q) / (1 - p)) else (q, high)
    table = [p, p, p, q, q]
    certified = Gate(table).cost(order=order)
    pitch = math.log((1 - q) / (1 - p))
    epsilon = epsilon_from_renyi(reports * certified, order, target)
    delta = best_delta(table, reports, epsilon, pitch, ties=False)
    constant = (math.ceil(-(-epsilon - reports * math.log(p / q)) / pitch), q, p)  # always ask where P(unsure) is lower
    asked = nbinom.sf(constant[0] - 1, reports, constant[1])
    asked -= math.exp(epsilon) * nbinom.sf(constant[0] - 1, reports, constant[2])
    assert 0.9 * asked < delta <= target
    understated = epsilon_from_renyi(0.8 * reports * certified, order, target)
    assert best_delta(table, reports, understated, pitch, ties=False) > 1.5 * target
