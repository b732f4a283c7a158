"""The lean, many labels: what one vote moves, what it costs against every poll of a few copies, and the draw."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.planning.design import certify
from confide.privacy.gate import Gate, lead
from confide.privacy.halting import Halting, joint_renyi
from confide.privacy.weigh import Weights, joint_weights, offsets_of, weigh

pytestmark = pytest.mark.claim("lean.md")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Q = Fraction


# --- what one vote moves


def changed(counts: Ints, gone: int, come: int) -> Ints:
    """One vote less for `gone`, one more for `come`; the number of labels stands for an abstention."""
    out = np.concatenate([counts, np.zeros((len(counts), 1), dtype=np.int64)], axis=1)
    out[:, gone] -= 1
    out[:, come] += 1
    return out[:, :-1]


def behind(counts: Ints, last: int) -> Ints:
    return np.minimum(counts.max(axis=1, keepdims=True) - counts, last)


@pytest.mark.parametrize("last", [2, 3, 4])
def test_two_labels_part_by_two_steps_at_most(last: int) -> None:
    """All counts of four labels near the best and near the table's end, all votes that give way and come."""
    labels = 4
    counts = np.array([each for each in product(range(last + 3), repeat=labels) if max(each) == last + 2])
    before, seen = behind(counts, last), 0
    for gone, mine, other in product(range(labels + 1), repeat=3):
        d, e = (before - behind(changed(counts, gone, come), last) for come in (mine, other))
        for each in (d, e):
            assert (each.max(axis=1) - each.min(axis=1)).max() <= 2
            assert np.abs(each).max() <= 2
        gap, back = d[:, :, None] - d[:, None, :], e[:, None, :] - e[:, :, None]
        assert (np.maximum(gap, 0) + np.maximum(back, 0)).max() <= 2
        seen += counts.shape[0]
    assert seen > 30_000


# --- what it costs


def label_law(lean: Weights, counts: Ints, offsets: Ints) -> Floats:
    """P(label | unsure) from the weights."""
    weights = lean.weights[behind(counts + offsets, lean.weights.size - 1)].astype(np.float64)
    return weights / weights.sum(axis=1, keepdims=True)


def all_counts(size: int, labels: int) -> Ints:
    """Votes for each label, the rest abstain; at least one vote can give way of each kind that is there."""
    return np.array([each for each in product(range(size + 1), repeat=labels) if sum(each) <= size])


def needed(lean: Weights, gate: Gate, order: int, fraction: Fraction, size: int, offsets: Ints) -> float:
    """The largest divergence of order α between the labels' laws, given unsure, over all polls of this size."""
    labels, worst, part = offsets.size, 0.0, float(fraction)
    counts, table = all_counts(size, labels), gate.table
    full = np.concatenate([counts, size - counts.sum(axis=1, keepdims=True)], axis=1)

    def outcome(votes: Ints) -> Floats:
        margin = np.array([lead(each)[1] for each in votes])
        return table[np.minimum(margin, table.size - 1), None] * label_law(lean, votes, offsets)

    for gone in range(labels + 1):
        base = counts[full[:, gone] > 0]
        middle = (1 - part) * outcome(base)
        law = [middle + part * outcome(changed(base, gone, come)) for come in range(labels + 1)]
        law = [each / each.sum(axis=1, keepdims=True) for each in law]
        for p, q in product(law, repeat=2):
            worst = max(worst, float((p**order * q ** (1.0 - order)).sum(axis=1).max()))
    return math.log(worst) / (order - 1)


@pytest.mark.parametrize("fraction", [Q(1), Q(1, 3), Q(1, 20)])
@pytest.mark.parametrize("offsets", [(0, 0, 0), (0, 0, -1000), (0, -2, -4), (-1, 0, -30)])
def test_the_cost_bounds_every_poll_and_half_the_width_is_refuted(fraction: Fraction, offsets: tuple[int, ...]) -> None:
    order, size = 6, 7
    gate = Gate.best(order=order, cost=0.05, poll_fraction=fraction, tie_sure=1e-6)
    lean = Weights.beside(gate, order=order, cost=0.01, poll_fraction=fraction)
    cost = lean.cost(gate, order=order, poll_fraction=fraction)
    assert 0.0099 < cost <= 0.01
    truth = needed(lean, gate, order, fraction, size, np.array(offsets))
    assert truth <= cost
    narrow = Weights.of_width(lean.width / 2)
    assert narrow.cost(gate, order=order, poll_fraction=fraction) > 1.5 * cost
    if fraction == 1 and offsets[2] == -1000:
        assert truth > 0.95 * cost  # two labels level, one vote from one to the other
        assert needed(narrow, gate, order, fraction, size, np.array(offsets)) > cost


def test_polls_that_mix_by_their_fraction_are_refuted() -> None:
    """w = q: beside a steep gate one vote moves the label's law, given unsure, several times as much."""
    order, fraction = 6, Q(1, 20)
    gate = Gate.best(order=order, cost=0.05, poll_fraction=fraction, tie_sure=1e-6)
    lean = Weights.beside(gate, order=order, cost=0.01, poll_fraction=fraction)
    naive = order / 2 * math.log1p(math.expm1(1 / lean.width) / 20) ** 2
    truth = needed(lean, gate, order, fraction, 12, np.array([0, 8, -1000]))
    assert 4 * naive < truth <= lean.cost(gate, order=order, poll_fraction=fraction)


def test_weights_that_end_in_a_part_of_a_step_are_dearer() -> None:
    """The bound takes what the integers are, not what they were meant to be."""
    gate = Gate.best(order=6, cost=0.05)
    lean = Weights.of_width(5.0)
    cut = np.array(lean.weights)
    cut[-1] = cut[-2]
    assert Weights(5.0, cut).cost(gate, order=6) > 4 * lean.cost(gate, order=6)
    leap = np.array(lean.weights)
    leap[10:] //= np.uint64(2)
    assert Weights(5.0, leap).cost(gate, order=6) > 4 * lean.cost(gate, order=6)


def test_full_polls_cost_what_the_formula_says() -> None:
    gate = Gate.best(order=12, cost=0.01)
    assert Weights.of_width(80.0).cost(gate, order=12) == pytest.approx(12 / (2 * 80.0**2), rel=1e-5)
    small = Weights.of_width(80.0).cost(gate, order=12, poll_fraction=Q(1, 100))
    assert small < 12 / (2 * 80.0**2) / 50**2


def test_the_callers_decimal_context_changes_no_cost() -> None:
    gate = Gate.best(order=12, cost=0.007)
    lean = Weights.beside(gate, order=12, cost=0.003)
    cost = lean.cost(gate, order=12)
    with localcontext(Context(prec=3, rounding=ROUND_FLOOR)):
        assert lean.cost(gate, order=12) == cost


def test_gate_and_weights_with_the_halting_gate() -> None:
    """Above the gate's own programme by about what the unsure answers' leans cost, and never above the sum."""
    order, fraction = 8, Q(1, 4)
    gate = Gate.best(order=order, cost=0.01, poll_fraction=fraction)
    halting = Halting.best(order=order, cost=0.05, unsure=20, start=1e-3, survive=1e-4)
    lean = Weights.beside(gate, order=order, cost=0.004, poll_fraction=fraction)
    alone = joint_renyi(gate, halting, order=order, poll_fraction=fraction)
    joint = joint_weights(lean, gate, halting, order=order, poll_fraction=fraction)
    assert alone + 20 * 0.004 < joint < alone + halting.visible * 0.004 * 1.001
    got = certify(gate, halting, lean=lean, order=order, delta=1e-3, poll_fraction=fraction)
    assert got.spent.renyi == joint and got.spent.gate_cost == pytest.approx(0.014, rel=1e-3)


# --- the draw


def test_kernel_and_reference_draw_the_same_and_the_whole_law() -> None:
    """The words that lead to a label are an interval of the length that its weight says, to the last word."""
    lean, draw = Weights.of_width(3.0), np.random.default_rng(2)
    for _ in range(40):
        labels = int(draw.integers(2, 6))
        counts, offsets = draw.integers(0, 40, labels), -draw.integers(0, 9, labels)
        shares = [int(lean.weights[each]) for each in behind((counts + offsets)[None, :], lean.weights.size - 1)[0]]
        total, below = sum(shares), 0
        for label, share in enumerate(shares):
            first, below = -(-below * 2**64 // total), below + share
            final = -(-below * 2**64 // total) - 1
            for word in (first, (first + final) // 2, final):
                assert lean.draw(word, counts.tolist(), offsets.tolist()) == label
                assert weigh(np.uint64(word), lean.weights, counts, offsets) == label
    assert final == 2**64 - 1


def test_scores_become_whole_votes_behind_the_best() -> None:
    out = np.empty(4, dtype=np.int64)
    offsets_of(np.array([1.0, 0.5, -math.inf, 0.951]), 10.0, 30, out)
    assert out.tolist() == [0, -5, -30, 0]
    offsets_of(np.array([1.0, math.nan, 0.0, 0.0]), 10.0, 30, out)
    assert out.tolist() == [0, 0, 0, 0]
    offsets_of(np.array([math.inf, 0.0, 0.0, math.inf]), 10.0, 30, out)
    assert out.tolist()[1:3] == [-30, -30]


def test_weights_are_checked_and_kept() -> None:
    lean = Weights.of_width(4.0)
    assert Weights.from_params(lean.params()) == lean
    for wrong in (lean.weights[:2], lean.weights[1:], lean.weights[::-1], np.append(lean.weights, np.uint64(0))):
        with pytest.raises(ValueError, match="never rise"):
            Weights(4.0, wrong)
    with pytest.raises(ValueError, match="too small for a lean"):
        Weights.beside(Gate.best(order=6, cost=0.05), order=6, cost=1e-12)
