"""Theorem 9‴ by enumeration: an adversary over two models of one life, and lives that are kept wrongly on purpose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from confide.planning.guided import GuidePlan
from confide.planning.lives import UNIT, Life, cost_of
from confide.privacy.exact import Noise, delta_of, slack_of
from confide.privacy.sums import SquareRoot
from tests.proofs.test_exact import with_slack

pytestmark = pytest.mark.claim("composition.md")

VARIANCES = (25, 100)  # of the two models: the second has half of the first's deviation for each unit
ROOT = SquareRoot(2, scale=2, columns=2)
F, LOAD = ROOT.matrix.tolist(), ROOT.load
MOST = 2  # labels of a person in a model, in a world, that the adversary may try
PRICES = tuple(Fraction(4 * LOAD, s2) for s2 in VARIANCES)  # m_i, with κC = 1
GRID = 2 * max(VARIANCES)  # the logarithm of the likelihoods' quotient, in units of 1/GRID
SPAN = 9 * GRID
PLACES = np.arange(-SPAN, SPAN + 1)

Used = tuple[int, int]
"""Labels of the person in one model, in each of the two worlds."""


def moved(value: np.ndarray, shift: int, s2: int) -> np.ndarray:
    """The value before a node whose centres differ by `shift`: every outcome, each with its likelihoods' quotient."""
    if shift == 0:
        return value
    reach, scale = 7 * math.isqrt(s2), GRID // (2 * s2)
    outcomes = np.arange(-reach, reach + 1)
    law = np.exp(-(outcomes**2) / (2 * s2))
    out = np.zeros_like(value)
    for y, probability in zip(outcomes.tolist(), (law / law.sum()).tolist(), strict=True):
        out += probability * value[np.clip(PLACES - scale * (shift * shift + 2 * y * shift), -SPAN, SPAN) + SPAN]
    return out


def admitted(used: tuple[Used, ...], budget: Fraction, how: str) -> bool:
    """Whether both worlds' accounts are within the budget, as a ledger keeps them that is right, or broken."""
    for world in range(2):
        labels = [one[world] for one in used]
        charged = [k * m if how == "linear" else k * k * m for k, m in zip(labels, PRICES, strict=True)]
        account = max(charged) if how == "reset" else sum(charged)
        if account > budget:
            return False
    return True


def best(epsilon: float, budget: Fraction, how: str = "right", most: int = MOST) -> float:
    """sup Σ (P − e^ε·Q)⁺ over adversaries who choose, leaf by leaf, what each world's person adds, from all they saw.

    Two models, one after the other, two leaves each. A world's labels in a leaf add an integer of at most their number;
    what counts is the difference, and how many labels each world has used.
    """

    @cache
    def value(model: int, leaf: int, first: int, before: tuple[Used, ...], used: Used) -> bytes:
        if model == len(VARIANCES):
            return np.maximum(0.0, 1 - np.exp(np.minimum(700.0, epsilon + PLACES / GRID))).tobytes()
        if leaf == 2:
            return value(model + 1, 0, 0, (*before, used), (0, 0))
        found = []
        for d, now in moves(used):
            if admitted((*before, now, *((0, 0) for _ in VARIANCES[model + 1 :])), budget, how):
                shift = F[0][0] * d if leaf == 0 else F[1][0] * first + F[1][1] * d
                after = np.frombuffer(value(model, leaf + 1, d if leaf == 0 else first, before, now))
                found.append(moved(after, shift, VARIANCES[model]))
        return np.maximum.reduce(found).tobytes()

    def moves(used: Used) -> Iterator[tuple[int, Used]]:
        """Each difference, and who brings the labels for it: more than it takes are of no use."""
        for d in range(-2 * most, 2 * most + 1):
            for one in range(abs(d) + 1):
                now = used[0] + one, used[1] + abs(d) - one
                if max(now) <= most:
                    yield d, now

    return float(np.frombuffer(value(0, 0, 0, (), (0, 0)))[SPAN])


def bound(epsilon: float, budget: Fraction) -> float:
    """Theorem 17 at μ² = B, with both models' values and the first one's noise, which is the less."""
    s2 = VARIANCES[0]
    return with_slack(epsilon, s2, 2 * ROOT.leaves, float(budget) * s2)


ONE_EACH = PRICES[0] + PRICES[1]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("budget", [PRICES[0], ONE_EACH], ids=["one label", "one in each"])
def test_no_adversary_over_two_models_passes_the_bound_of_one_life(epsilon: float, budget: Fraction) -> None:
    found = best(epsilon, budget, most=1 if budget == ONE_EACH else MOST)
    assert 0.85 * bound(epsilon, budget) < found <= bound(epsilon, budget) * (1 + 1e-9)


@pytest.mark.parametrize("how", ["reset", "linear"])
def test_a_life_that_is_kept_wrongly_is_found_out(how: str) -> None:
    """Accounts that begin anew with the successor, as do those of two heirs; labels charged k·m instead of k²·m."""
    epsilon, budget = 1.0, PRICES[0] if how == "reset" else 2 * PRICES[1]
    assert best(epsilon, budget, how) > bound(epsilon, budget)
    assert best(epsilon, budget, "right") <= bound(epsilon, budget)


def test_every_pair_of_lives_moves_at_most_the_budget_and_nearly_that() -> None:
    """All integers that two worlds may add to four leaves of two models, in fractions."""
    budget, top = ONE_EACH, Fraction(0)
    steps = [(k, d) for k in range(3) for d in range(-k, k + 1)]
    contributions = []
    for (k1, a), (k2, b), (k3, c), (k4, d) in (
        (w, x, y, z) for w in steps for x in steps for y in steps for z in steps
    ):
        if (k1 + k2) ** 2 * PRICES[0] + (k3 + k4) ** 2 * PRICES[1] <= budget:
            contributions.append((a, b, c, d))
    unique = sorted(set(contributions))
    for one in unique:
        for other in unique:
            x = np.array(one) - np.array(other)
            total = Fraction(0)
            for i, s2 in enumerate(VARIANCES):
                shift = ROOT.matrix @ x[2 * i : 2 * i + 2]
                total += Fraction(int(shift @ shift), s2)
            top = max(top, total)
    assert Fraction(9, 10) * budget < top <= budget


# ---------------------------------------------------------------------- the numbers that are kept


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_lifes_budget_is_the_largest_that_keeps_its_promise_with_all_noise_set_aside(epsilon: float) -> None:
    life = Life(epsilon, 1e-6)
    assert len(life.aside) == 1000 and 0.00099 < slack_of(life.aside) / Fraction(epsilon) <= 0.001
    assert delta_of(epsilon, Fraction(life.budget, UNIT), life.aside) <= 1e-6
    assert delta_of(epsilon, Fraction(life.budget + life.budget // 10**5, UNIT), life.aside) > 1e-6
    assert life.epsilon_at(life.budget) <= epsilon and life.epsilon_at(0) == 0.0


@pytest.mark.parametrize("unit_labels", [1, 3])
def test_prices_are_rounded_up_and_a_cap_never_passes_what_is_left(unit_labels: int) -> None:
    plan = GuidePlan.best(1.0, 1e-6, unit_labels=unit_labels, apart=False)
    cost, without = cost_of(plan, True), cost_of(plan, False)
    assert cost.of(unit_labels) >= plan.mu2 * UNIT > cost.of(unit_labels) - unit_labels**2 - 1
    assert without.ranges == 0 and without.label == cost.label
    budget = Life(1.5, 1e-6).budget
    for spent in range(0, budget + 1, budget // 40):
        left = cost.left(budget - spent)
        assert left is None or spent + cost.of(left) <= budget
        assert (left is None) == (spent + cost.ranges > budget)
        assert cost.taken(budget - spent) == (unit_labels + 1 if left is None else unit_labels - left)
        assert left is None or left == unit_labels or spent + cost.of(left + 1) > budget


def test_more_noise_than_was_set_aside_for_is_refused() -> None:
    life, plan = Life(4.0, 1e-6), GuidePlan.best(1.0, 1e-6)
    life.check_noise(plan.noises)
    with pytest.raises(ValueError, match="set aside"):
        life.check_noise(list(plan.noises) * 400)
    with pytest.raises(ValueError, match="set aside"):
        life.check_noise([Noise(10**9, 10**8)])
