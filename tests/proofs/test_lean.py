"""The lean, two labels: its cost against every poll of a few copies, its joint programme against the best strategy."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.planning.design import Budget, Split, build, certify
from confide.planning.leaning import build_lean
from confide.planning.parts import TooRare
from confide.privacy.cost import ONE
from confide.privacy.fill import lean_width, logistic_rows
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting, joint_renyi
from confide.privacy.lean import Lean, joint_lean, lean_answer, offset_of
from confide.privacy.outcomes import survey, three_outcomes

pytestmark = pytest.mark.claim("lean.md")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Q = Fraction

NAMES = 0, 1, None
"""A vote: a label, or an abstention."""


# --- the definition, poll by poll


@cache
def polls(size: int, abstain: bool) -> Ints:
    """All (margin of P, of Q, of S′): the votes of S′, one of them that gives way, and the unit's in two worlds."""
    votes = NAMES if abstain else NAMES[:2]
    worth = {0: 1, 1: -1, None: 0}
    found = []
    for zeros in range(size + 1):
        for ones in range(size + 1 - zeros):
            idle = size - zeros - ones
            if idle and not abstain:
                continue
            have = {0: zeros, 1: ones, None: idle}
            for gone, mine, other in product(votes, repeat=3):
                if have[gone]:
                    base = zeros - ones
                    found.append([base - worth[gone] + worth[mine], base - worth[gone] + worth[other], base])
    return np.array(found)


def laws(lean: Lean, row: int, margins: Ints) -> Floats:
    """P(sure first), P(sure second), P(unsure, first), P(unsure, second) of each poll, from the mechanism's words."""
    column = np.clip(margins, -lean.margins, lean.margins) + lean.margins
    sure = lean.sure[row, column].astype(np.float64) * 2.0**-64
    unsure = np.where(sure < 0.5, 1 - sure, (np.uint64(0) - lean.sure[row, column]).astype(np.float64) * 2.0**-64)
    first = lean.first[row, column].astype(np.float64) * 2.0**-64
    leads = margins >= 0
    return np.stack([sure * leads, sure * ~leads, unsure * first, unsure * (1 - first)])


def needed(lean: Lean, order: int, fraction: Fraction, size: int, abstain: bool) -> tuple[float, int]:
    """The smallest τ that all polls of this size allow, and their number. Where tops differ only unsure counts."""
    p, q, m = polls(size, abstain).T
    if fraction == 1:
        m = p
    part, worst = float(fraction), 0.0
    split = ~((p >= 0) == (q >= 0)) | ~((p >= 0) == (m >= 0))
    for row in range(len(lean.offsets)):
        third = laws(lean, row, m)
        one, two = (part * laws(lean, row, each) + (1 - part) * third for each in (p, q))
        with np.errstate(divide="ignore", invalid="ignore"):
            moments = np.where(one > 0, one**order * two ** (1.0 - order), 0.0)
        unsure, sure = moments[2:].sum(axis=0), np.where(split, 0.0, moments[:2].sum(axis=0))
        need = np.where(sure < 1, unsure / (1 - sure), np.inf)
        worst = max(worst, float(need[(p != q)].max()))
    return math.log(max(worst, 1.0)) / (order - 1), p.size * len(lean.offsets)


def random_lean(draw: np.random.Generator, reach: int, rows: int) -> Lean:
    """Any table with moderate steps; sure is rare near a tie, as it is in all tables that are used."""
    logit = np.full((rows, 2 * reach + 1), 12.0)
    for side in (1, -1):
        steps = draw.normal(0.3, 0.3, (rows, reach - 2)) * draw.uniform(0.1, 2)
        logit[:, reach + side * np.arange(3, reach + 1)] -= np.cumsum(steps, axis=1)
    sure = (2.0**64 / (1 + np.exp(logit))).astype(np.uint64)
    lean = np.cumsum(draw.normal(0.1, 10 ** draw.uniform(-2, -0.3), (rows, 2 * reach + 1)), axis=1)
    first = (2.0**64 / (1 + np.exp(-np.clip(lean - lean[:, [reach]], -8, 8)))).astype(np.uint64)
    return Lean("additive", 0.3, 1.0, tuple(range(-(rows // 2), rows // 2 + 1)), sure, first)


def test_the_cost_is_what_the_worst_poll_needs() -> None:
    """More than 10⁵ polls of random tables, with abstention: equal to ten digits, never below."""
    draw, seen, close = np.random.default_rng(5), 0, 0
    for i in range(90):
        reach, order = int(draw.integers(3, 6)), int(draw.integers(2, 9))
        fraction = (Q(1), Q(1, 2), Q(1, 7), Q(3, 100))[i % 4]
        lean = random_lean(draw, reach, 3)
        truth, polled = needed(lean, order, fraction, reach + 2, abstain=True)
        plain, fewer = needed(lean, order, fraction, reach + 2, abstain=False)
        seen += polled + fewer
        if truth == math.inf:
            with pytest.raises(ValueError, match="no cost bounds"):
                lean.cost(order=order, poll_fraction=fraction)
            continue
        cost = lean.cost(order=order, poll_fraction=fraction)
        assert plain * (1 - 1e-9) <= truth <= cost * (1 + 1e-9)
        # Where tops differ the code counts sure answers too, that is about x more.
        assert cost <= truth * (1 + 1e-4) + 2 * lean.tie_sure / (order - 1)
        close += cost <= truth * (1 + 1e-8) + 1e-13
    assert seen >= 100_000
    assert close >= 60


@pytest.mark.parametrize("kind", ["fill", "additive"])
@pytest.mark.parametrize(("order", "cost", "fraction"), [(5, 0.05, Q(1)), (9, 0.02, Q(1, 4)), (12, 0.01, Q(1, 30))])
def test_designed_tables_cost_what_they_were_designed_for(
    kind: str, order: int, cost: float, fraction: Fraction
) -> None:
    """And that is what their worst poll needs: with abstention, and never more without."""
    lean = getattr(Lean, kind)(order=order, cost=cost, poll_fraction=fraction, margins=24, offsets=5, clip=2.0)
    got = lean.cost(order=order, poll_fraction=fraction)
    assert cost * 0.93 <= got <= cost
    truth, _ = needed(lean, order, fraction, 26, abstain=True)
    assert truth == pytest.approx(got, rel=1e-7)
    assert needed(lean, order, fraction, 26, abstain=False)[0] <= got


def exact_law(lean: Lean, row: int, votes: tuple[int | None, ...]) -> tuple[Fraction, Fraction]:
    """P(unsure, first), P(unsure, second) of the copies that were asked."""
    margin = votes.count(0) - votes.count(1)
    column = max(-lean.margins, min(margin, lean.margins)) + lean.margins
    unsure, first = 1 - Q(int(lean.sure[row, column]), ONE), Q(int(lean.first[row, column]), ONE)
    return unsure * first, unsure * (1 - first)


def test_polls_averaged_over_all_subsets_in_fractions() -> None:
    """Every vote of five copies, every poll of three: what is seen of unsure answers stays within the cost."""
    draw, seen, order, worst = np.random.default_rng(11), 0, 3, 0.0
    for _ in range(6):
        lean = Lean.fill(order=order, cost=10 ** draw.uniform(-2, -0.5), poll_fraction=Q(3, 5), margins=3, offsets=1)
        grid = np.uint64(2**48)  # few digits, quick fractions
        lean = Lean("fill", 0.95, 1.0, (0,), np.maximum(lean.sure // grid * grid, grid), lean.first // grid * grid)
        bound = math.exp((order - 1) * lean.cost(order=order, poll_fraction=Q(3, 5)))
        for others in product(NAMES, repeat=4):
            averaged = {}
            for own in NAMES:
                asked = [exact_law(lean, 0, subset) for subset in combinations((*others, own), 3)]
                averaged[own] = [sum(law[i] for law in asked) / len(asked) for i in (0, 1)]
            for mine, other in product(NAMES, repeat=2):
                moment = sum(p**order / q ** (order - 1) for p, q in zip(averaged[mine], averaged[other], strict=True))
                assert moment <= bound
                worst = max(worst, (float(moment) - 1) / (bound - 1))
                seen += 1
    assert seen > 4000
    assert worst > 0.3  # the bound is for the worst tape, not for the mean over them, but not idle either


# --- what must be refuted


def test_a_lean_by_the_top_alone_is_refuted() -> None:
    """Between margins of one sign it never moves, so pairs with the same top are free; but −1 and 1 are neighbours."""
    gate = Gate.best(order=6, cost=0.01, margins=20)
    sure = gate.sure[np.abs(np.arange(-20, 21))][None, :]
    first = np.where(np.arange(-20, 21) >= 0, 0.7, 0.3)[None, :]
    lean = Lean("additive", 0.3, 1.0, (0,), sure, (first * 2.0**64).astype(np.uint64))
    same_top = survey(lean.sure[:, 20:], lean.first[:, 20:], order=6, poll_fraction=Q(1)).excess
    assert math.log1p(same_top) / 5 <= 0.01
    truth, _ = needed(lean, 6, Q(1), 22, abstain=True)
    assert truth > 0.3
    assert lean.cost(order=6) == pytest.approx(truth, rel=1e-9)


def test_polls_that_mix_by_their_fraction_are_refuted() -> None:
    """w = q: the lean's law, given unsure, is mixed by q·t/P(unsure), and next to a step of the gate that is more."""
    order, cost, fraction = 12, 0.002, Q(129, 4000)
    gate = Gate.best(order=order, cost=0.7 * cost, poll_fraction=fraction)
    width = lean_width(order, math.expm1((order - 1) * 0.3 * cost), float(fraction))  # where t is 1, and w is q
    reach = gate.sure.size - 1
    sure, first = gate.sure[np.abs(np.arange(-reach, reach + 1))], logistic_rows((-40, 0, 40), reach, width)
    lean = Lean("additive", 0.3, width, (-40, 0, 40), np.tile(sure, (3, 1)), first)
    truth, _ = needed(lean, order, fraction, 60, abstain=True)
    assert truth > 1.25 * cost
    assert lean.cost(order=order, poll_fraction=fraction) >= truth * (1 - 1e-9)


def test_half_the_width_is_refuted() -> None:
    lean = Lean.fill(order=8, cost=0.02, margins=40, offsets=3)
    narrow = Lean(
        "fill", lean.share, lean.width, lean.offsets, lean.sure, logistic_rows(lean.offsets, 40, lean.width / 2)
    )
    truth, _ = needed(narrow, 8, Q(1), 42, abstain=True)
    assert truth > 3 * 0.02
    assert narrow.cost(order=8) == pytest.approx(truth, rel=1e-9)


# --- arithmetic


def exact_terms(
    p: tuple[int, int], q: tuple[int, int], m: tuple[int, int], order: int, part: Fraction
) -> list[Fraction]:
    """(A_s, A_u) in fractions."""
    mixed = []
    for sure, first in (p, q, m):
        s, f = Q(sure, ONE), Q(first, ONE)
        mixed.append([s, (1 - s) * f, (1 - s) * (1 - f)])
    one, two = ([part * a + (1 - part) * b for a, b in zip(each, mixed[2], strict=True)] for each in mixed[:2])
    terms = [a**order / b ** (order - 1) if b else a for a, b in zip(one, two, strict=True)]
    return [terms[0], terms[1] + terms[2]]


def test_bounds_enclose_fractions() -> None:
    """Entries of every size, equal ones and the extremes among them."""
    draw = np.random.default_rng(8)
    edges = [1, 2, 2**24, 2**63, ONE - 2, ONE - 1]
    finite = 0
    for i in range(1500):
        base = [int(ONE * 2.0 ** -draw.uniform(0.1, 60)), int(ONE * 2.0 ** -draw.uniform(0.1, 60))]
        if i % 3 == 0:
            base = [[0, *edges][draw.integers(7)], edges[draw.integers(6)]]
        near = [[max(1, min(ONE - 1, int(b * draw.uniform(0.7, 1.4)))) for b in base] for _ in range(3)]
        p, q, m = ((near[k][0] if draw.random() < 0.8 else base[0], near[k][1]) for k in range(3))
        order, part = int(draw.integers(2, 12)), [Q(1), Q(1, 3), Q(7, 1000)][i % 3 - 1]
        if part == 1:
            m = p
        sure, unsure = exact_terms(p, q, m, order, part)
        share, rest = (math.nextafter(float(part), 0), math.nextafter(float(part), 1)), (0.0, 0.0)
        if part == 1:
            share = (1.0, 1.0)
        else:
            rest = (math.nextafter(float(1 - part), 0), math.nextafter(float(1 - part), 1))
        words = [(np.uint64(each[0]), np.uint64(each[1])) for each in (p, q, m)]
        excess, low, high = three_outcomes(*words, order, share, rest)
        impossible = p[0] > 0 and q[0] == 0 and (part == 1 or m[0] == 0)
        if impossible:
            assert excess == math.inf
            continue
        assert low <= 1 - sure <= high
        if excess == math.inf:
            continue
        finite += 1
        truth = unsure / (1 - sure) - 1
        assert truth <= Q(excess) <= max(truth, 0) * (1 + Q(1, 10**4)) + Q(1, 10**12)
    assert finite > 500


def test_without_a_lean_it_is_the_gate() -> None:
    """A coin in place of the lean costs what the gate does, alone and with the halting gate."""
    for order, fraction in ((8, Q(1)), (8, Q(1, 20))):
        gate = Gate.best(order=order, cost=0.01, poll_fraction=fraction)
        reach = gate.sure.size - 1
        sure = gate.sure[np.abs(np.arange(-reach, reach + 1))][None, :]
        coin = Lean("additive", 0.3, 1.0, (0,), sure, np.full_like(sure, 2**63))
        assert coin.cost(order=order, poll_fraction=fraction) == pytest.approx(
            gate.cost(order=order, poll_fraction=fraction), rel=1e-9
        )
        assert coin.tie_sure == gate.tie_sure and coin.envelope() == gate
        halting = Halting.best(order=order, cost=0.05, unsure=20, start=1e-3, survive=1e-4)
        joint = joint_renyi(gate, halting, order=order, poll_fraction=fraction)
        assert joint_lean(coin, halting, order=order, poll_fraction=fraction) == pytest.approx(joint, rel=1e-6)


# --- with the halting gate


def best_game(lean: Lean, halting: Halting, order: int) -> float:
    """ln of the moment of the worst adaptive adversary and unit, over the game's own states, full polls."""
    p, q, _ = polls(lean.margins + 2, True).T
    rounds = set()
    for row in range(len(lean.offsets)):
        one, two = laws(lean, row, p), laws(lean, row, q)
        moments = np.where(one > 0, one**order * np.where(two > 0, two, 1.0) ** (1.0 - order), 0.0)
        split = (p >= 0) != (q >= 0)
        sure = np.where(split, 0.0, moments[:2].sum(axis=0))
        rounds |= set(zip(moments[2:].sum(axis=0).tolist(), sure.tolist(), strict=True))
    halts, top, shift = halting.table, halting.visible, halting.shift

    @cache
    def draw(m: int, n: int) -> tuple[float, float]:
        halt = halts[m] ** order * halts[n] ** (1.0 - order)
        return halt, 0.0 if m == top else (1 - halts[m]) ** order * (1 - halts[n]) ** (1.0 - order)

    @cache
    def after(n: int, a: int, b: int) -> float:
        if n + a > top:
            return 0.0
        halt, go = draw(n + a, n + b)
        return halt + (go * before(n, a, b) if go else 0.0)

    @cache
    def before(n: int, a: int, b: int) -> float:
        halt, go = draw(n + a, n + b)
        forward = after(n + 1, a, b)
        hidden = [(a + i, b + j) for i, j in ((0, 1), (1, 0), (1, 1)) if max(a + i, b + j) <= shift]
        options = [1.0, halt / (1 - go), *(after(n, *each) for each in hidden)]
        return max(*options, *((unsure * forward + sure * halt) / (1 - sure * go) for unsure, sure in rounds))

    return math.log(before(0, 0, 0))


@pytest.mark.parametrize(("shift", "order"), [(1, 3), (1, 8), (2, 4)])
def test_the_joint_programme_covers_the_best_game(shift: int, order: int) -> None:
    """Never below the game's value, never above the sum; and the gate's own programme is below the game."""
    lean = Lean.fill(order=order, cost=0.15, margins=12, offsets=3, clip=1.0, tie_sure=1e-3)
    halting = Halting.best(order=order, cost=0.3, unsure=2, start=0.01, survive=0.05, shift=shift)
    joint = joint_lean(lean, halting, order=order)
    game = best_game(lean, halting, order) / (order - 1)
    assert game <= joint <= 1.03 * game
    assert joint < halting.visible * lean.cost(order=order) + halting.cost(order=order)
    assert joint_renyi(lean.envelope(), halting, order=order) < 0.97 * game


def test_what_no_cost_bounds_is_infinite_and_refused() -> None:
    lean = Lean.fill(order=6, cost=0.05, margins=20, offsets=1)
    leap = np.array(lean.sure)
    leap[:, 24:] = 2**63
    broken = Lean("fill", 0.95, lean.width, (0,), leap, lean.first)
    halting = Halting.best(order=6, cost=0.1, unsure=2, start=0.01, survive=0.05)
    assert joint_lean(broken, halting, order=6) == math.inf
    with pytest.raises(ValueError, match="signed margins 4 and 2 are one vote apart"):
        broken.cost(order=6)
    for fraction in (Q(1, 2**101), 1 - Q(1, 2**101)):
        with pytest.raises(ValueError, match="too near to 0 or 1"):
            lean.cost(order=6, poll_fraction=fraction)


def test_a_plan_with_a_lean_is_certified_like_one_without() -> None:
    budget, split = Budget(4.0, 1e-6, 100, 1e-6, 1, Q(1)), Split(6, 0.05)
    gate, halting, got, _ = build(budget, split)
    plain = certify(gate, halting, order=6, delta=1e-6, poll_fraction=Q(1))
    lean = Lean.fill(order=6, cost=got.spent.gate_cost, tie_sure=gate.tie_sure, margins=400, offsets=9)
    led = certify(lean.envelope(), halting, lean=lean, order=6, delta=1e-6, poll_fraction=Q(1))
    assert led.epsilon == pytest.approx(plain.epsilon, rel=1e-4)
    assert (led.spent.ties, led.spent.survive) == pytest.approx((plain.spent.ties, plain.spent.survive), rel=1e-6)
    assert led.spent.renyi == joint_lean(lean, halting, order=6)
    many = Halting.best(order=6, cost=0.05, unsure=100, start=1e-6, survive=1e-9, shift=12)
    wide = certify(lean.envelope(), many, lean=lean, order=6, delta=1e-6, poll_fraction=Q(1))
    assert wide.spent.renyi >= many.visible * wide.spent.gate_cost
    with pytest.raises(TooRare, match="bad events alone"):
        certify(lean.envelope(), halting, lean=lean, order=6, delta=1e-10, poll_fraction=Q(1))


@pytest.mark.parametrize(("kind", "fraction"), [("fill", Q(1)), ("fill", Q(101, 1000)), ("additive", Q(101, 1000))])
def test_a_lean_is_built_for_a_budget(kind: str, fraction: Fraction) -> None:
    budget, split = Budget(2.0, 1e-6, 100, 1e-6, 1, fraction, margins=101, guide=0.25), Split(12, 0.05)
    make = partial(getattr(Lean, kind), offsets=9)
    _, halting, led, lean = build_lean(budget, split, make=make)
    assert isinstance(lean, Lean)
    alone = certify(lean.envelope(), halting, lean=lean, order=12, delta=1e-6, poll_fraction=fraction)
    assert led.spent.renyi == alone.spent.renyi
    assert led.epsilon - alone.epsilon == pytest.approx(alone.spent.renyi / 3, rel=0.05)
    assert (0.97 if kind == "additive" else 0.999) * 2.0 < led.epsilon <= 2.0
    assert lean.margins == 101 and len(lean.offsets) <= 9


# --- the draw


def test_kernel_and_reference_draw_the_same() -> None:
    """At, below and above every threshold, and beyond the tables' ends."""
    lean = Lean.fill(order=6, cost=0.05, margins=9, offsets=5, clip=2.0)
    for row in range(len(lean.offsets)):
        for margin in (-40, *range(-9, 10), 40):
            column = max(-9, min(margin, 9)) + 9
            for sure, first in product((-1, 0), repeat=2):
                words = (int(lean.sure[row, column]) + sure) % ONE, (int(lean.first[row, column]) + first) % ONE
                kernel = lean_answer(np.uint64(words[0]), np.uint64(words[1]), lean.sure, lean.first, row, margin)
                assert tuple(kernel) == lean.draw(*words, row, margin)
                if sure == 0:  # at the threshold: unsure, and the lean's word decides
                    assert lean.draw(*words, row, margin) == (0 if first else 1, False)
                elif lean.sure[row, column]:
                    assert lean.draw(*words, row, margin) == (int(margin < 0), True)


def test_scores_become_rows_in_the_same_way_everywhere() -> None:
    lean = Lean.additive(order=8, cost=0.02, margins=20, offsets=9)
    votes = np.array(lean.offsets)
    for score in np.linspace(-9, 9, 721):
        row = lean.row(score)
        assert row == len(votes) - 1 - lean.row(-score)
        nearest = np.abs(votes - np.clip(score * lean.width, votes[0], votes[-1]))
        assert nearest[row] <= nearest.min() + 1e-9
    assert [offset_of(score, 2.0, 3) for score in (0.25, -0.25, 0.249, 1e300, -math.inf)] == [4, 2, 3, 6, 0]
    assert offset_of(math.nan, 2.0, 3) == 3 and Lean.fill(order=8, cost=0.02, margins=9, offsets=1).row(5.0) == 0


def test_swapping_the_labels_changes_nothing() -> None:
    lean = Lean.fill(order=8, cost=0.02, margins=60, offsets=5, poll_fraction=Q(1, 3))
    assert lean.mirrored
    half = survey(lean.sure[2:], lean.first[2:], order=8, poll_fraction=Q(1, 3)).excess
    full = survey(lean.sure, lean.first, order=8, poll_fraction=Q(1, 3)).excess
    assert half == pytest.approx(full, rel=1e-9)
    lopsided = np.array(lean.sure)
    lopsided[0, 3] += np.uint64(1)
    assert not Lean("fill", 0.95, lean.width, lean.offsets, lopsided, lean.first).mirrored


def test_it_is_kept_and_read_again() -> None:
    lean = Lean.fill(order=8, cost=0.02, margins=60, offsets=5)
    assert Lean.from_params(lean.params()) == lean
    lopsided = np.array(lean.first)
    lopsided[0, 3] += np.uint64(1)
    other = Lean("fill", 0.95, lean.width, lean.offsets, lean.sure, lopsided)
    assert Lean.from_params(other.params()) == other != lean
    with pytest.raises(ValueError, match="one length"):
        Lean.from_params({**lean.params(), "first": lean.params()["first"][:-1]})
    with pytest.raises(ValueError, match="at most 1,000,000 margins"):
        Lean.from_params({**lean.params(), "sure": [[[1, 2], [1, 10**12]]] * 3})
    with pytest.raises(ValueError, match="multiples of one step"):
        Lean("fill", 0.95, 1.0, (-1, 0, 2), lean.sure[:3], lean.first[:3])
    with pytest.raises(ValueError, match="no entry of first is 0"):
        Lean("fill", 0.95, 1.0, (0,), lean.sure[:1], np.zeros_like(lean.first[:1]))


# --- what it is good for


def test_the_fill_is_right_more_often() -> None:
    """At the same cost, uniform margins and a right majority: far below the coin, and below the additive split."""
    order, cost = 8, 0.004
    coin = Gate.best(order=order, cost=cost).table[1:].sum() / 2
    fill, additive = (make(order=order, cost=cost, offsets=1) for make in (Lean.fill, Lean.additive))
    wrong = [lean.worst().wrong[lean.margins + 1 :].sum() for lean in (fill, additive)]
    assert wrong[0] < 0.34 * coin and wrong[0] < 0.8 * wrong[1] < 0.55 * coin


def test_worst_rates_follow_a_wrong_majority_and_an_adverse_offset() -> None:
    lean = Lean.fill(order=8, cost=0.02, margins=60, offsets=5, clip=2.0)
    unsure, wrong = lean.worst()
    first, sure = lean.first.astype(np.float64) * 2.0**-64, 1 - lean.unsure
    for lead in (-60, -7, 0, 1, 30):
        rows = [
            lean.unsure[i, 60 + lead] * (1 - first[i, 60 + lead]) + (lead <= 0) * sure[i, 60 + lead] for i in range(5)
        ]
        assert wrong[60 + lead] == pytest.approx(max(rows), rel=1e-9)
        assert unsure[60 + lead] == pytest.approx(lean.unsure[:, 60 + lead].max(), rel=1e-9)
    assert wrong[0] > 0.99 and (np.diff(wrong) <= 1e-9).all()
