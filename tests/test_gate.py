"""Gates: what a table costs, what the best one reaches, and what `decide` does with it."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, nbinom

from confide.privacy.cost import ONE, moment_excess, pair_excess, worst_excess
from confide.privacy.gate import Gate
from confide.privacy.random import Random
from confide.privacy.renyi import epsilon_from_renyi, renyi_from_epsilon

pytestmark = pytest.mark.claim("gate.md", "best-table.md", "polls.md")

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
    odd: Tables = draw.integers(0, 2, size=sure.shape).astype(np.uint64)
    tables: Tables = np.bitwise_or(sure, odd)
    return tables


def brute_force(sure: Tables, order: int, fraction: Fraction = Fraction(1)) -> NDArray[np.longdouble]:
    """max A_u/(1 − A_s) − 1 over all pairs (triples) of margins at most 2 apart, straight from the definition."""
    s = sure.astype(np.longdouble) / np.longdouble(2) ** 64
    u = np.where(sure == 0, np.longdouble(1), (np.uint64(0) - sure) / np.longdouble(2) ** 64)
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
    """Over 110 000 random tables; where extended precision cannot tell, some are settled in rational arithmetic.

    A_u/(1 − A_s) is near 1 for small steps and 1 − A_s near P(unsure): brute force knows the excess no better than to
    some 10⁻¹⁸/P(unsure).
    """
    sure = random_tables(np.random.default_rng(size), count, size)
    bound, _ = worst_excess(sure, order, 2, fraction)
    truth = brute_force(sure, order, fraction)
    finite = np.isfinite(truth)
    assert count / 5 < finite.sum() and (~finite).any()
    known = truth[finite] * np.longdouble(1e-12) + 1e-17 / Gate.from_integers(sure.max(axis=1)).table[finite]
    assert not (bound[finite] < truth[finite] - known).any()
    assert (bound[~finite] == np.inf).all()
    near = np.flatnonzero(bound <= truth * (1 + np.longdouble(1e-12)))
    suspect = np.flatnonzero(bound < truth)
    for index in np.concatenate([near[:30], suspect[:60]]):
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
    makers_view, _ = worst_excess(levels, order, 1)
    assert makers_view <= math.expm1((order - 1) * design)
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
        assert cost * 0.999 <= gate.cost(order=order, poll_fraction=fraction) <= cost


def test_a_costly_best_table_is_not_one_that_its_own_certificate_refuses() -> None:
    gate = Gate.best(order=16, cost=1.0)
    assert gate.cost(order=16) <= 1.0


@pytest.mark.parametrize(
    ("reports", "epsilon", "half", "thousandth"),
    [(100, 1, 132, 480), (1000, 1, 313, 1304), (1000, 2, 167, 689), (1000, 4, 89, 373)],
)
def test_the_best_table_reaches_the_margins_it_is_known_for(
    reports: int, epsilon: float, half: int, thousandth: int
) -> None:
    """Votes above half at which P(unsure) falls to ½ and to 10⁻³, at δ = 10⁻⁶: at most 2 % more than these."""
    worse = math.inf
    for order in range(5, 24):
        budget = renyi_from_epsilon(epsilon, order, DELTA * 0.999)
        if budget <= 0:
            continue
        gate = Gate.best(
            order=order, cost=budget / reports, tie_sure=DELTA * 5e-4 / reports, margins=3 * thousandth
        )
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
    near = min(max(entry, 3), 58)
    logit[entry] += size * (logit[near] - logit[near + 2]) * (1 if up else -1)
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
        # The levels as they are met by (v, v ± 2) alone have this same cost.
        binary = Gate.from_integers(np.repeat(gate.sure[2::2], 2))
        assert gate.cost(order=9, poll_fraction=fraction) == binary.cost(order=9, poll_fraction=fraction)


def test_fewer_polls_cost_less_and_the_middle_vote_count_matters() -> None:
    gate = Gate.best(order=10, cost=0.05, tie_sure=1e-6)
    costs = [gate.cost(order=10, poll_fraction=Fraction(1, k)) for k in (1, 2, 4, 16, 64)]
    assert all(a > b for a, b in pairwise(costs))
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


@pytest.mark.parametrize(("scale", "threshold"), [(0.3, 1.0), (5.0, 20.25), (8.0, 0.0), (37.5, 400.0), (301.7, 123.5)])
def test_a_laplace_gate_computes_the_integers_of_its_table(scale: float, threshold: float) -> None:
    """At every margin, beyond both ends too; and they are the noise's tails but for the last two bits."""
    gate = Gate.laplace(scale=scale, threshold=threshold)
    table, beyond = gate.sure, np.arange(gate.last + 50)
    assert (gate.entries(beyond) == table[np.minimum(beyond, table.size - 1)]).all() and table.size == gate.last + 1
    words = Random(seed=1)
    made = Gate.from_integers(table)
    for margin in range(0, table.size, max(1, table.size // 200)):
        decided = gate.decide([margin, 0], Random(seed=margin)), made.decide([margin, 0], Random(seed=margin))
        assert decided[0] == decided[1]
    with localcontext(Context(prec=50)):
        for v in [*range(6), *(int(words.below(table.size)) for _ in range(40)), gate.last]:
            tail = (-abs(Decimal(v) / 2 - Decimal(threshold)) / Decimal(scale)).exp() / 2 * 2**64
            unsure = v / 2 > threshold
            found = 2**64 - int(table[v]) if unsure else int(table[v])
            assert -4 <= found - max(tail, Decimal(2**28 if unsure else 2**8)) <= 2
    assert (np.diff(table.astype(np.float64)) >= 0).all()


@pytest.mark.parametrize("order", [2, 7, 15])
def test_a_laplace_gate_costs_what_its_table_costs(order: int) -> None:
    """Every pair of integers is looked at, in another loop: the same bits."""
    gate = Gate.laplace(scale=41.5, threshold=300.75)
    table = Gate.from_integers(gate.sure)
    assert gate.cost(order=order) == table.cost(order=order)
    assert gate.cost(order=order, poll_fraction=0.5) == table.cost(order=order, poll_fraction=0.5)
    assert (gate.tie_sure, gate.last, repr(gate)) == (table.tie_sure, table.last, repr(table))
    for unsure in (0.9, 0.5, 1e-3, 2.0**-36):
        assert gate.margin(unsure=unsure) == table.margin(unsure=unsure) == gate.first(unsure=unsure)
    for margin in (0, 500, 601, 10**6):
        assert gate.most_unsure(margin) == table.table[min(margin, table.last) :].max()
    for one in (gate, table):
        with pytest.raises(ValueError, match="no cost bounds"):
            one.cost(order=30)


def test_one_pair_costs_the_same_in_both_loops() -> None:
    """`pair_excess` is `moment_excess` once more, for entries that no array holds: bit for bit, extremes included."""
    dice = np.random.default_rng(3)
    p = dice.integers(0, 2**64, 3000, dtype=np.uint64)
    near = p + dice.integers(0, 2**20, p.size, dtype=np.uint64)  # wraps, now and then: then far
    far = dice.integers(0, 2**64, p.size, dtype=np.uint64)
    ends = np.array([0, 1, 2**14, 2**63, 2**64 - 2**28, 2**64 - 1], dtype=np.uint64)
    for first, second in ((p, near), (p, far), (np.repeat(ends, 6), np.tile(ends, 6))):
        for order in (2, 3, 12, 41):
            found = [pair_excess(a, b, order) for a, b in zip(first, second, strict=True)]
            assert moment_excess(first, second, order).tolist() == found


def test_a_gate_for_two_hundred_million_copies_holds_no_table_of_them() -> None:
    """The paper's at (1, 10⁻⁶) and 10¹⁰ rounds: a few thousand numbers stand for 1.6·10⁸ entries."""
    gate = Gate.laplace(scale=499_267.25, threshold=271_022_352 / 4)
    assert gate.last > 1.5e8 and gate.rule.high.size + gate.rule.low.size < 30_000
    assert 5_200_000_000 * gate.tie_sure < 1e-6 / 4  # N·x: at 2⁻⁵⁰ near-ties alone passed δ
    assert gate.first(unsure=0.5) == 271_022_352 // 2 and gate.decide([10**8, 10**8 - 5], Random(seed=1)) is None
    with pytest.raises(ValueError, match="too long"):
        gate.table  # noqa: B018


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
def test_no_adaptive_adversary_exceeds_the_certified_promise(
    order: int, cost: float, tie_sure: float
) -> None:
    gate = Gate.best(order=order, cost=cost, tie_sure=tie_sure, margins=12)
    certified = gate.cost(order=order)
    for reports, target in product((1, 2, 3), (0.03, 1e-5)):
        epsilon = epsilon_from_renyi(reports * certified, order, target)
        table = list(gate.table)
        alone = best_delta(table, reports, epsilon, 0.02, ties=False)
        with_ties = best_delta(table, reports, epsilon, 0.02, ties=True)
        assert 0 < alone <= target
        assert with_ties >= max(alone, gate.tie_sure) * (1 - 1e-6)  # the bad event is really there
        assert with_ties <= target + reports * gate.tie_sure


def test_the_same_adversary_refutes_a_cost_that_is_understated_by_a_fifth() -> None:
    """Entries σ(±0.05): every answer's loss is ±0.05, so the programme is exact but for its far ends (below 1 %)."""
    reports, order, target, pitch = 30, 12, 1e-30, 0.05
    high, low = 1 / (1 + math.exp(-pitch)), 1 / (1 + math.exp(pitch))
    table = [high, high, high, low, low]
    certified = Gate(table).cost(order=order)
    epsilon = epsilon_from_renyi(reports * certified, order, target)
    delta = best_delta(table, reports, epsilon, pitch, ties=False)
    answers = math.floor(
        reports + epsilon / pitch
    )  # for who always asks there: a loss above ε is more than these
    constant = nbinom.sf(answers, reports, low) - math.exp(epsilon) * nbinom.sf(answers, reports, high)
    assert constant * (1 - 1e-9) <= delta <= target
    understated = epsilon_from_renyi(0.8 * reports * certified, order, target)
    assert best_delta(table, reports, understated, pitch, ties=False) > 5 * target


# --- integers


@given(st.lists(st.integers(0, ONE - 1), min_size=1, max_size=20))
@settings(CALM, max_examples=50)
def test_integers_survive_the_round_trip(values: list[int]) -> None:
    gate = Gate.from_integers(values)
    assert [int(each) for each in gate.sure] == values
    again = Gate.from_integers(gate.sure)
    assert again == gate and hash(again) == hash(gate)
    assert Fraction(gate.tie_sure) >= Fraction(max(values[:3]), ONE)
    assert gate.table == pytest.approx([1 - value / ONE for value in values], abs=1e-15)
    assert not gate.sure.flags.writeable


def test_a_label_at_a_tie_is_looked_for_at_margins_0_to_2() -> None:
    for sure in ([9, 0, 0, 99], [0, 9, 0, 99], [0, 0, 9, 99], [0, 9], [9]):
        assert Gate.from_integers(sure).tie_sure == pytest.approx(9 / ONE, rel=1e-12)
    assert Gate.from_integers([0, 0, 0, 99]).tie_sure == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(CALM, max_examples=100)
def test_probabilities_become_the_integers_below_them(table: list[float]) -> None:
    for unsure, sure in zip(table, Gate(table).sure, strict=True):
        assert int(sure) == min(math.floor((1 - Fraction(unsure)) * ONE), ONE - 1)


@pytest.mark.parametrize("values", [[], [-1], [ONE], [0.5, 1.0], [2.0**63 + 2048.0], [[1, 2], [3, 4]]])
def test_what_is_no_table_of_integers_is_refused(values: list[int]) -> None:
    """Floats too: a table that went through doubles is no longer the one that was certified."""
    with pytest.raises(ValueError, match="integers"):
        Gate.from_integers(values)


@pytest.mark.parametrize("table", [[], [[1.0, 0.5]], 0.5, [1.1], [-0.1], [float("nan")], [0.5, float("inf")]])
def test_what_is_no_table_of_probabilities_is_refused(table: object) -> None:
    with pytest.raises(ValueError, match="table"):
        Gate(table)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"order": 1}, "order"),
        ({"order": 2.5}, "order"),
        ({"order": True}, "order"),
        ({"order": math.inf}, "order"),
        ({"cost": 0.0}, "cost"),
        ({"cost": -1.0}, "cost"),
        ({"cost": math.nan}, "cost"),
        ({"cost": math.inf}, "cost"),
        ({"cost": 1e4}, "cost"),
        ({"poll_fraction": 0.0}, "poll_fraction"),
        ({"poll_fraction": 1.5}, "poll_fraction"),
        ({"poll_fraction": math.nan}, "poll_fraction"),
        ({"tie_sure": 0.0}, "tie_sure"),
        ({"tie_sure": 0.5}, "tie_sure"),
        ({"tie_sure": math.nan}, "tie_sure"),
        ({"margins": 1}, "margins"),
    ],
)
def test_best_refuses_nonsense(change: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Gate.best(**({"order": 10, "cost": 0.1} | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [0, 1, 2.5, math.nan, True])
def test_cost_refuses_nonsense(order: float) -> None:
    with pytest.raises(ValueError, match=r"order|integer"):
        SHORT.cost(order=order)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"scale": 0}, {"scale": math.nan}, {"threshold": -1}, {"threshold": math.inf}, {"threshold": 20.1},
        {"margins": -1},
    ],
)
def test_laplace_refuses_nonsense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Gate.laplace(**({"scale": 5, "threshold": 20} | change))  # type: ignore[arg-type]


def test_margin_is_where_the_table_stays_below() -> None:
    gate = Gate([0.9, 0.9, 0.9, 0.3, 0.6, 0.2, 0.1])
    assert [gate.margin(unsure=u) for u in (0.95, 0.5, 0.2, 0.1)] == [0, 5, 5, 6]
    with pytest.raises(ValueError, match="ends at margin 6"):
        gate.margin(unsure=0.05)
    with pytest.raises(ValueError, match="unsure"):
        gate.margin(unsure=math.nan)


# --- decide


class Scripted:
    """Gives the words it is told to, and counts how many were asked for."""

    def __init__(self, word: int = 0) -> None:
        self.next, self.asked = word, 0

    def word(self) -> int:
        self.asked += 1
        return self.next


LADDER = Gate([1.0, 0.97, 0.95, 0.7, 0.5, 0.25, 0.02])


@pytest.mark.parametrize(
    ("counts", "top", "margin"),
    [
        ([5, 5], 0, 0),
        ([3, 4], 1, 1),
        ([0, 0, 0], 0, 0),
        ([2, 7, 7, 1], 1, 0),
        ([1, 0, 0, 0, 6], 4, 5),
        ([40, 1], 0, 6),
        ([0, 10**6], 1, 6),
        ([2**63, 2**63 + 3], 1, 3),
    ],
)
def test_the_answer_is_one_comparison_with_the_margins_integer(
    counts: list[int], top: int, margin: int
) -> None:
    """Ties, many labels, copies that abstained (counts need not add up), margins beyond the table."""
    sure = int(LADDER.sure[margin])
    votes = np.array(counts, dtype=np.uint64)
    assert LADDER.decide(votes, Scripted(sure)) is None
    if sure:
        assert LADDER.decide(votes, Scripted(sure - 1)) == top
    assert LADDER.decide(votes, Scripted(ONE - 1)) is None


def test_every_decision_takes_one_word() -> None:
    rng = Scripted(2**60)
    for asked, counts in enumerate([[0, 0], [9, 9, 9], [50, 0], [1, 2, 3, 4], [10**9, 0]], start=1):
        LADDER.decide(counts, rng)
        assert rng.asked == asked


@pytest.mark.parametrize(
    "counts",
    [[], [3], 3, [[1, 2], [3, 4]], [1, -1], [1.0, 2.0], [1, math.nan], ["a", "b"], [True, False], [None, 1]],
)
def test_what_is_no_vote_count_is_refused(counts: object) -> None:
    rng = Scripted()
    with pytest.raises(ValueError, match="counts"):
        LADDER.decide(counts, rng)  # type: ignore[arg-type]
    assert not rng.asked


def unlikely(seen: list[int], draws: int, claimed: list[float]) -> bool:
    """Whether a table with these P(unsure) makes what was seen, over all margins, rarer than 10⁻⁶."""
    level = 1e-6 / (2 * len(seen))
    chance = (
        min(binom.cdf(n, draws, t), binom.sf(n - 1, draws, t)) for n, t in zip(seen, claimed, strict=True)
    )
    return min(chance) < level


def test_unsure_answers_come_as_often_as_the_table_says() -> None:
    """False positives: below 10⁻⁶. A table that is off by 0.04, or by a quarter of a small entry, is noticed."""
    claimed, draws, rng = [1.0, 0.97, 0.95, 0.7, 0.5, 0.25, 0.02], 12_000, Random(seed=11)
    seen = []
    for margin in range(7):
        counts = np.array([3, 3 + margin, 1])
        seen.append(sum(LADDER.decide(counts, rng) is None for _ in range(draws)))
    assert not unlikely(seen, draws, claimed)
    for margin, wrong in ((0, 0.99), (3, 0.74), (4, 0.54), (5, 0.21), (6, 0.03)):
        assert unlikely(seen, draws, [*claimed[:margin], wrong, *claimed[margin + 1 :]])


def test_a_gate_is_shown_without_its_table() -> None:
    assert repr(LADDER) == "Gate(7 margins, even odds at margin 4, 0.02 unsure at the end)"
    assert "rather unsure" in repr(Gate([0.9]))
    assert Gate([0.9]) != "gate"
