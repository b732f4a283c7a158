"""A guide's plan is certified from its integers alone."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from confide.planning.guided import GuidePlan
from confide.privacy.renyi import epsilon_from_renyi

pytestmark = pytest.mark.claim("guide.md")

PLAN = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=100_000)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("labels", [2, 5])
@pytest.mark.parametrize("ranges", [False, True])
def test_the_promise_is_kept_and_not_much_is_left(epsilon: float, labels: int, ranges: bool) -> None:
    plan = GuidePlan.best(epsilon, 1e-6, 50_000, labels=labels, unit_labels=3, private_ranges=ranges)
    assert epsilon * (1 - 1e-6) < plan.epsilon(1e-6) <= epsilon


def test_the_certificate_is_the_formula_in_rationals() -> None:
    for plan in (PLAN, replace(PLAN, range_rounds=0, leaf=200), replace(PLAN, unit_labels=7)):
        kappa2 = (2 * plan.unit_labels * plan.clip) ** 2
        exact = Fraction(plan.order * kappa2 * sum(int(f) ** 2 for f in plan.root.factor), 2 * plan.sigma2)
        if plan.range_rounds:
            exact += Fraction(plan.order * plan.range_norm**2, plan.range_sigma2)
        assert exact <= Fraction(plan.certify()) <= exact * (1 + Fraction(1, 10**15))


def test_every_integer_counts() -> None:
    base = PLAN.certify()
    assert replace(PLAN, sigma2=PLAN.sigma2 // 2).certify() > 1.9 * base
    assert replace(PLAN, clip=PLAN.clip * 2).certify() > 3.8 * base
    assert replace(PLAN, unit_labels=2).certify() > 3.8 * base
    assert replace(PLAN, factor_scale=2 * PLAN.factor_scale).certify() > 3.8 * base
    assert replace(PLAN, range_sigma2=PLAN.range_sigma2 // 100).certify() > 2 * base
    assert replace(PLAN, step=PLAN.step * 1000, memory=0.0).certify() == base  # what is done with releases is free


def test_dp_accounting_agrees() -> None:
    accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    plan = GuidePlan.best(1.0, 1e-6, 100_000, private_ranges=False)
    multiplier = (plan.sigma2 / plan.load) ** 0.5 / (2 * plan.clip)
    accountant = rdp.RdpAccountant(orders=[plan.order])
    accountant.compose(accounting.GaussianDpEvent(multiplier))
    assert accountant.get_epsilon(1e-6) == pytest.approx(plan.epsilon(1e-6), rel=1e-6)
    every = rdp.RdpAccountant(orders=list(range(2, 200)))
    every.compose(accounting.GaussianDpEvent(multiplier))
    assert every.get_epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)  # the order is the best one


def test_a_share_at_an_order_is_kept() -> None:
    plan = GuidePlan.at(order=16, renyi=0.3, rounds=1000)
    assert 0.2999 < plan.certify() <= 0.3 * (1 + 1e-12)
    assert epsilon_from_renyi(plan.certify(), 16, 1e-6) == plan.epsilon(1e-6)


def test_leaves_cover_all_rounds_by_public_numbers() -> None:
    for rounds in (1, 5, 100, 3000, 100_000, 10**6, 10**8):
        plan = GuidePlan.best(1.0, 1e-6, rounds, history=rounds // 3)
        assert plan.leaves <= 1024
        assert plan.leaf * (plan.leaves - 1) < plan.rounds + plan.history - plan.range_rounds <= plan.leaf * plan.leaves


def test_a_plan_is_made_again_from_json() -> None:
    params = json.loads(json.dumps(PLAN.params()))
    assert GuidePlan.from_params(params) == PLAN
    with pytest.raises(ValueError, match="guide"):
        GuidePlan.from_params({**params, "extra": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"sigma2": 0}, {"leaves": 1025, "leaf": 10**6}, {"leaves": 3}, {"step": float("nan")}, {"clip": 0},
        {"leaf": 2**50}, {"unit_labels": 0}, {"order": 1}, {"sigma2": 1.5}, {"range_norm": 0},
        {"clip": 1 << 31, "leaf": 1 << 8}, {"sigma2": (1 << 84) + 1}, {"range_sigma2": (1 << 84) + 1},
    ],
)  # fmt: skip
def test_impossible_plans_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must|need|would"):
        replace(PLAN, **change)  # type: ignore[arg-type]


def test_budgets_too_small_for_anything_are_said() -> None:
    with pytest.raises(ValueError, match="epsilon is too small"):
        GuidePlan.best(1e-3, 1e-300, 1000)
    with pytest.raises(ValueError, match="share"):
        GuidePlan.at(16, 0.0, 1000)


def test_noise_grows_with_what_a_unit_may_bring_and_the_labels_do_not_shrink_besides() -> None:
    """`explain` tells it: five labels a person are five times the noise for the same number of labels."""
    one, five = (GuidePlan.best(1.0, 1e-6, 50_000, unit_labels=most) for most in (1, 5))
    assert five.deviation() / one.deviation() == pytest.approx(5, rel=1e-3)
    assert one.strength / five.strength == pytest.approx(5, rel=1e-3)
