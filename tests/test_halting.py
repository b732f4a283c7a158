"""The halting gate: what hiding a shift of the count costs, alone and together with the gate."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from confide.privacy.cost import ONE, power_moments
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting, joint_renyi
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("halting.md")

CALM = settings(derandomize=True, deadline=None)
Pair = tuple[mpmath.mpf, mpmath.mpf]


# --- cost and survival


@pytest.mark.parametrize(
    ("shift", "order", "cost", "unsure", "start", "survive"),
    [
        (1, 2, 0.2, 0, 1e-9, 1e-9),
        (1, 12, 0.01, 300, 2.0**-40, 1e-9),
        (1, 30, 0.2, 40, 1e-9, 1e-4),
        (3, 2, 0.01, 0, 1e-4, 1e-9),
        (3, 12, 0.2, 40, 1e-9, 1e-4),
        (3, 30, 0.05, 40, 2.0**-40, 1e-9),
        (10, 5, 0.05, 0, 1e-9, 1e-4),
        (10, 20, 0.2, 100, 1e-6, 1e-9),
    ],
)
def test_the_best_table_costs_at_most_its_design(
    shift: int, order: int, cost: float, unsure: int, start: float, survive: float
) -> None:
    halting = Halting.best(order=order, cost=cost, unsure=unsure, start=start, survive=survive, shift=shift)
    assert halting.visible == halting.stop - shift == halting.go.size - 1 - shift
    assert halting.table[: unsure + 1] == pytest.approx(start, rel=1e-6)
    assert (np.diff(halting.table) >= 0).all() and halting.table[-1] == 1
    assert halting.survive <= survive
    assert survive < np.prod(1 - halting.table[1 : halting.visible])  # and it stops no later than it must
    assert cost * 0.99 <= halting.cost(order=order) <= cost


def exact_cost(go: list[int], shift: int, order: int) -> mpmath.mpf:
    """τ_h from the definition: (*) up to n_stop − G − 1, the halt term alone at n_stop − G."""
    worst, last = mpmath.mpf(1), len(go) - 1 - shift
    for p, q in product(range(last + 1), range(len(go))):
        if p == q or abs(p - q) > shift:
            continue
        halt = Fraction(ONE - go[p], ONE) ** order / Fraction(ONE - go[q], ONE) ** (order - 1)
        if p == last:
            needed = halt
        elif go[q] == 0 or go[p] ** order >= go[q] ** (order - 1) * ONE:
            return mpmath.inf
        else:
            needed = halt / (1 - Fraction(go[p] ** order, go[q] ** (order - 1) * ONE))
        worst = max(worst, mpmath.mpf(needed.numerator) / needed.denominator)
    return mpmath.log(worst) / (order - 1)


@pytest.mark.parametrize(("shift", "order"), [(1, 2), (1, 9), (2, 5), (3, 3)])
def test_the_cost_is_the_definitions(shift: int, order: int) -> None:
    draw = np.random.default_rng(shift * order)
    finite = 0
    for _ in range(60):
        size = 2 * shift + 5
        steps = draw.exponential(10 ** draw.uniform(-2, 0), size) * draw.choice([1, 1, 1, -1], size)
        halt = 1 / (1 + np.exp(draw.uniform(0, 3) - np.cumsum(steps)))
        go = [*((1 - halt) * 2.0**64).astype(np.uint64).tolist(), 0]
        halting = Halting(go, shift)
        truth = exact_cost(go, shift, order)
        if truth == mpmath.inf:
            with pytest.raises(ValueError, match="no cost bounds"):
                halting.cost(order=order)
            continue
        finite += 1
        cost = halting.cost(order=order)
        assert truth * (1 - mpmath.mpf(10) ** -14) <= cost <= truth * (1 + 1e-6) + 1e-12
    assert 10 <= finite <= 55


def test_the_halt_at_the_last_certified_count_is_priced() -> None:
    """There only the halt term counts, and in this table it is the largest: 0.9²/0.7 = 1.157."""
    go = [int((1 - halt) * 2**64) for halt in (0.82, 0.82, 0.82, 0.9, 0.7)] + [0]
    cost = Halting(go, shift=2).cost(order=2)
    assert cost == pytest.approx(math.log(0.81 / 0.7), rel=1e-9)
    assert cost == pytest.approx(float(exact_cost(go, 2, 2)), rel=1e-12)


@pytest.mark.parametrize("shift", [1, 3, 10])
def test_survive_is_the_exact_product_rounded_up(shift: int) -> None:
    halting = Halting.best(order=10, cost=0.1, unsure=20, start=1e-6, survive=1e-9, shift=shift)
    truth = Fraction(1)
    for go in halting.go[1 : halting.visible + 1]:
        truth *= Fraction(int(go), ONE)
    assert Fraction(math.nextafter(halting.survive, 0)) < truth <= Fraction(halting.survive)
    assert Halting([ONE - 1, 0, 7, 0]).survive == 0.0


PLAIN = Halting.best(order=12, cost=0.05, unsure=5, start=1e-3, survive=1e-7)
CLIMB = range(7, PLAIN.visible - 1)


@given(st.sampled_from(CLIMB), st.floats(0.02, 3), st.sampled_from([-1, 1]))
@settings(CALM, max_examples=100)
def test_one_changed_entry_is_refused_or_priced(count: int, size: float, sign: int) -> None:
    """`size` is in steps of the climbing part of the table, which every entry of it makes as wide as allowed."""
    logit = np.log(PLAIN.table[:-1]) - np.log1p(-PLAIN.table[:-1])
    logit[count] += sign * size * (logit[count + 1] - logit[count])
    go = [*(2.0**64 / (1 + np.exp(logit))).astype(np.uint64).tolist(), 0]
    try:
        cost = Halting(go).cost(order=12)
    except ValueError:
        return
    assert cost > PLAIN.cost(order=12)


def test_a_table_for_a_small_shift_does_not_hide_a_large_one() -> None:
    narrow = Halting.best(order=6, cost=0.05, unsure=5, start=1e-3, survive=1e-7, shift=1)
    wide = Halting(narrow.go, shift=3)
    try:
        assert wide.cost(order=6) > 4 * narrow.cost(order=6)
    except ValueError as refusal:
        assert "no cost bounds" in str(refusal)


# --- gate and halting gate together


def terms(p: Fraction, q: Fraction, order: int) -> Pair:
    """(p^α q^{1−α}, (1−p)^α (1−q)^{1−α})."""
    values = (
        p**order / q ** (order - 1) if q else p,
        (1 - p) ** order / (1 - q) ** (order - 1) if q < 1 else 1 - p,
    )
    first, second = (mpmath.mpf(value.numerator) / value.denominator for value in values)
    return first, second


def gate_terms(gate: Gate, order: int, fraction: Fraction) -> list[Pair]:
    """(A_u, A_s) of every visible round: one top label in both worlds, or two, when a label is the bad event."""
    unsure = [1 - Fraction(int(sure), ONE) for sure in gate.sure]
    margins = range(len(unsure))
    found = set()
    for v, w, m in product(margins, margins, margins if fraction < 1 else (0,)):
        middle = m if fraction < 1 else v
        if max(v, w, middle) - min(v, w, middle) <= 2:
            p, q = ((1 - fraction) * unsure[middle] + fraction * unsure[each] for each in (v, w))
            both = terms(p, q, order)
            found.add(both)
            if v + w <= 2:
                found.add((both[0], mpmath.mpf(0)))
    return sorted(found)


def best_game(gate: Gate, halting: Halting, order: int, fraction: Fraction = Fraction(1)) -> mpmath.mpf:
    """Rényi divergence of the worst adaptive adversary and unit, by dynamic programming over the game itself.

    A state is (visible unsure answers, hidden ones in P, hidden ones in Q); a hidden round may add one to either.
    Each round ends with the halting draw. A round that leaves the state as it was is a loop, and is summed exactly.
    """
    stop, top, shift = halting.stop, halting.visible, halting.shift
    halts = [1 - Fraction(int(go), ONE) for go in halting.go]
    rounds = gate_terms(gate, order, fraction)

    @cache
    def draw(p: int, q: int) -> Pair:
        halt, go = terms(halts[p], halts[min(q, stop)], order)
        return halt, mpmath.mpf(0) if p == top else go  # surviving the last certified count is the bad event

    @cache
    def after(n: int, a: int, b: int) -> mpmath.mpf:
        """What is still to come when the round's answer is out and its halting draw is not."""
        if n + a > top:
            return mpmath.mpf(0)
        halt, go = draw(n + a, n + b)
        return halt + (go * before(n, a, b) if go else 0)

    @cache
    def before(n: int, a: int, b: int) -> mpmath.mpf:
        halt, go = draw(n + a, n + b)
        options = [mpmath.mpf(1), halt / (1 - go)]
        options += [
            after(n, a + i, b + j)
            for i, j in product((0, 1), repeat=2)
            if i + j and max(a + i, b + j) <= shift
        ]
        forward = after(n + 1, a, b)
        options += [(unsure * forward + sure * halt) / (1 - sure * go) for unsure, sure in rounds]
        return max(options)

    return mpmath.log(before(0, 0, 0)) / (order - 1)


def programme(gate: Gate, halting: Halting, order: int, fraction: Fraction = Fraction(1)) -> mpmath.mpf:
    """The backward programme as it is written down: hidden counts are free in every round, so it bounds the game."""
    top, shift = halting.visible, halting.shift
    halts = [1 - Fraction(int(go), ONE) for go in halting.go]
    rounds = [*gate_terms(gate, order, fraction), (mpmath.mpf(0), mpmath.mpf(1))]
    value, ahead = mpmath.mpf(0), mpmath.mpf(0)  # W(n) and K(n + 1, W(n + 1))
    for n in range(top, -1, -1):
        draws = []
        for a, b in product(range(shift + 1), repeat=2):
            if n + a <= top:
                halt, go = terms(halts[n + a], halts[n + b], order)
                draws.append((halt, go if n + a < top else mpmath.mpf(0)))
        loops = [(u * ahead + s * halt) / (1 - s * go) for u, s in rounds for halt, go in draws]
        value = max(mpmath.mpf(1), ahead, *loops)
        ahead = max(halt + go * value for halt, go in draws)
    return mpmath.log(value) / (order - 1)


JOINT = [
    (1, 3, 0.4, Fraction(1)),
    (1, 8, 0.2, Fraction(1)),
    (2, 4, 0.5, Fraction(1)),
    (2, 8, 0.2, Fraction(1)),
    (3, 3, 0.5, Fraction(1)),
    (1, 5, 0.2, Fraction(1, 3)),
]


@pytest.mark.parametrize(("shift", "order", "halt_cost", "fraction"), JOINT)
def test_the_joint_programme_covers_the_best_game(
    shift: int, order: int, halt_cost: float, fraction: Fraction
) -> None:
    """Never below the game's exact value, never above the simple sum, and on these tables nearer to the former."""
    gate = Gate.best(order=order, cost=0.15, tie_sure=1e-3, margins=12, poll_fraction=fraction)
    halting = Halting.best(order=order, cost=halt_cost, unsure=2, start=0.01, survive=0.05, shift=shift)
    joint = joint_renyi(gate, halting, order=order, poll_fraction=fraction)
    simple = halting.visible * gate.cost(order=order, poll_fraction=fraction) + halting.cost(order=order)
    game, written = best_game(gate, halting, order, fraction), programme(gate, halting, order, fraction)
    assert game <= written <= joint <= simple * (1 + 1e-9)
    assert joint < simple * 0.995
    assert joint <= written * 1.01 and joint <= game * 1.02


def test_the_joint_programme_covers_random_tables() -> None:
    draw = np.random.default_rng(3)
    finite = 0
    for _ in range(30):
        order, shift = int(draw.integers(2, 6)), int(draw.integers(1, 3))
        gate = Gate(1 / (1 + np.exp(np.cumsum(draw.normal(0.05, 0.1, size=7)) - 2)))
        halt = 1 / (1 + np.exp(3 - np.cumsum(draw.normal(0.1, 0.15, size=3 * shift + 3))))
        halting = Halting([*((1 - halt) * 2.0**64).astype(np.uint64).tolist(), 0], shift)
        joint = joint_renyi(gate, halting, order=order)
        try:
            simple = halting.visible * gate.cost(order=order) + halting.cost(order=order)
        except ValueError:
            continue
        finite += 1
        written = programme(gate, halting, order)
        assert best_game(gate, halting, order) <= written <= joint <= simple * (1 + 1e-9)
        assert joint <= written * 1.05
    assert finite >= 10


def test_the_joint_programme_counts_the_halt_at_the_last_certified_count() -> None:
    halting = Halting([int((1 - halt) * 2**64) for halt in (0.82, 0.82, 0.82, 0.9, 0.7)] + [0], shift=2)
    gate = Gate([0.5, 0.5, 0.5, 0.499, 0.499])
    joint, written = joint_renyi(gate, halting, order=2), programme(gate, halting, 2)
    assert 0.1 < written <= joint <= written * (1 + 1e-9)


def test_the_comparison_with_the_game_can_fail() -> None:
    """A halting table that ignores the hidden counts' shift of 2 is caught by the same game."""
    gate = Gate.best(order=4, cost=0.15, tie_sure=1e-3, margins=12)
    narrow = Halting.best(order=4, cost=0.5, unsure=2, start=0.01, survive=0.01, shift=1)
    wide = Halting(narrow.go, shift=2)
    claimed = joint_renyi(gate, narrow, order=4)
    assert best_game(gate, wide, 4) > claimed + 0.1


def test_a_realistic_joint_programme_saves_four_to_nine_percent() -> None:
    order = 20
    gate = Gate.best(order=order, cost=4.5e-4, tie_sure=1e-12)
    halting = Halting.best(order=order, cost=0.02, unsure=1000, start=1e-8, survive=1e-8)
    simple = halting.visible * gate.cost(order=order) + halting.cost(order=order)
    joint = joint_renyi(gate, halting, order=order)
    assert 0.8 * simple < joint < 0.98 * simple


def test_unbounded_tables_have_no_joint_cost() -> None:
    halting = Halting.best(order=4, cost=0.5, unsure=2, start=0.01, survive=0.05)
    assert joint_renyi(Gate([1, 1, 1, 1, 0.1]), halting, order=4) == math.inf
    leap = Halting([ONE - 1, ONE - 1, ONE // 100, ONE - 1, 0])
    assert joint_renyi(Gate.best(order=4, cost=0.1), leap, order=4) == math.inf


# --- drawing


class Scripted:
    """Gives the word it is told to, and counts how often it was asked."""

    def __init__(self, word: int) -> None:
        self.next, self.asked = word, 0

    def word(self) -> int:
        self.asked += 1
        return self.next


def test_a_halt_is_one_comparison_with_the_counts_integer() -> None:
    halting = Halting([ONE - 1, 2**63, 12, 0])
    for count, go in enumerate([ONE - 1, 2**63, 12]):
        assert halting.fires(count, Scripted(go)) and not halting.fires(count, Scripted(go - 1))
    for count in (3, 4, 10**9):
        rng = Scripted(0)
        assert halting.fires(count, rng) and rng.asked == 1


def test_halts_come_as_often_as_the_table_says() -> None:
    """False positives: below 10⁻⁶ (exact binomial tails). A table that is off by 0.03 is noticed."""
    halting, rng, draws = Halting([ONE - 1, 3 * 2**62, 2**63, 0]), Random(seed=4), 15_000
    for count, halt in ((1, 0.25), (2, 0.5)):
        seen = sum(halting.fires(count, rng) for _ in range(draws))

        def chance(p: float, seen: int = seen) -> float:
            return float(min(binom.cdf(seen, draws, p), binom.sf(seen - 1, draws, p)))

        assert chance(halt) > 2.5e-7
        assert max(chance(halt - 0.03), chance(halt + 0.03)) < 2.5e-7


def test_a_halting_gate_shows_only_what_is_public() -> None:
    halting = Halting([ONE - 1, 5, 5, 0])
    assert halting == Halting(halting.go) and hash(halting) == hash(Halting(halting.go))
    assert halting != Halting([ONE - 1, 5, 6, 0])
    assert repr(halting) == "Halting(stops by 3 unsure answers, hides a shift of 1)"
    with pytest.raises(ValueError, match="negative") as refusal:
        halting.fires(-17, Scripted(0))
    assert "17" not in str(refusal.value)


# --- refusals


@pytest.mark.parametrize(
    ("go", "shift", "word"),
    [
        ([], 1, "integers"),
        ([5, 5, -1, 0], 1, "integers"),
        ([5, 5, ONE, 0], 1, "integers"),
        ([5, 5.5, 5, 0], 1, "integers"),
        ([5, 5, 5, 5], 1, "certain"),
        ([5, 5, 0], 1, "at least 4"),
        ([5, 5, 5, 5, 0], 2, "at least 6"),
        ([5, 5, 5, 0], 0, "shift"),
        ([5, 5, 5, 0], 1.5, "shift"),
        ([5, 5, 5, 0], True, "shift"),
    ],
)
def test_what_is_no_halting_table_is_refused(go: list[int], shift: int, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Halting(go, shift)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"order": 1}, "order"),
        ({"order": 2.5}, "order"),
        ({"order": True}, "order"),
        ({"cost": 0.0}, "cost"),
        ({"cost": math.nan}, "cost"),
        ({"cost": 1e4}, "cost"),
        ({"start": 0.0}, "start"),
        ({"start": 0.6}, "start"),
        ({"start": math.nan}, "start"),
        ({"survive": 0.0}, "survive"),
        ({"survive": 1.0}, "survive"),
        ({"survive": math.nan}, "survive"),
        ({"unsure": -1}, "unsure"),
        ({"unsure": 2.5}, "unsure"),
        ({"shift": 0}, "shift"),
        ({"shift": 1.5}, "shift"),
    ],
)
def test_best_refuses_nonsense(change: dict[str, float], word: str) -> None:
    fine = {"order": 10, "cost": 0.1, "unsure": 10, "start": 1e-6, "survive": 1e-8}
    with pytest.raises(ValueError, match=word):
        Halting.best(**(fine | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [0, 1, 2.5, True])
def test_costs_refuse_orders_that_are_none(order: int) -> None:
    with pytest.raises(ValueError, match="order"):
        PLAIN.cost(order=order)
    with pytest.raises(ValueError, match="order"):
        joint_renyi(Gate([0.5, 0.5]), PLAIN, order=order)


@pytest.mark.parametrize("fraction", [Fraction(0), Fraction(-1, 2), Fraction(3, 2)])
def test_the_joint_programme_refuses_impossible_polls(fraction: Fraction) -> None:
    with pytest.raises(ValueError, match="poll_fraction"):
        joint_renyi(Gate([0.5, 0.4]), PLAIN, order=4, poll_fraction=fraction)


def test_fires_takes_whole_counts_only() -> None:
    with pytest.raises(ValueError, match="count"):
        PLAIN.fires(2.5, Scripted(0))  # type: ignore[arg-type]


# --- long tables are read run by run


def slow_survive(halting: Halting) -> Fraction:
    product = Fraction(1)
    for go in halting.go[1 : halting.visible + 1].tolist():
        product *= Fraction(go, ONE)
    return product


def slow_moments(halting: Halting, order: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Entry by entry, as the docstring says it."""
    last, width = halting.visible, halting.shift + 1
    halt, room = np.full((last + 1, width * width), -1.0), np.zeros((last + 1, width * width))
    for n in range(last + 1):
        for a in range(width):
            for b in range(width):
                p, q = min(n + a, halting.stop), min(n + b, halting.stop)
                pair = power_moments(halting.go[p : p + 1], halting.go[q : q + 1], order)
                if n + a <= last:
                    halt[n, a * width + b] = pair.unsure[0]
                    room[n, a * width + b] = 1.0 if p == last else pair.room[0]
                elif p == last:
                    room[n, a * width + b] = 1.0
    return halt, room


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_a_table_read_run_by_run_is_the_table_read_entry_by_entry(shift: int) -> None:
    best = Halting.best(order=12, cost=0.5, unsure=40, start=1e-4, survive=1e-8, shift=shift)
    steps = Halting([ONE - 5, ONE - 5, ONE - 9, ONE - 5, ONE // 2, ONE // 2, ONE // 3, 9, 9, 9, 9, 9, 0], shift)
    for halting in (best, steps):
        exact = slow_survive(halting)
        assert exact <= Fraction(halting.survive) <= exact * (1 + Fraction(1, 2**52))
        for quick, slow in zip(halting.moments(12), slow_moments(halting, 12), strict=True):
            assert np.array_equal(quick, slow)


def test_a_table_of_millions_of_counts_is_certified_in_a_moment() -> None:
    """A plan for 10⁹ rounds took eight minutes on a busy machine: five million steps in decimals, six times over."""
    best = Halting.best(order=12, cost=0.5, unsure=40, start=2.0**-38, survive=1e-8)
    halting = Halting(np.concatenate([np.full(5_000_000, best.go[0]), best.go]))
    began = time.process_time()
    assert 0 < halting.survive <= 1e-8
    assert halting.moments(12)[0].shape[0] == halting.visible + 1
    assert time.process_time() - began < 4
