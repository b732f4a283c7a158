"""A guide's plan is certified from its integers alone."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from confide.planning.guided import GuidePlan, TooNoisy
from confide.privacy.renyi import renyi_from_epsilon

pytestmark = pytest.mark.claim("guide.md", "exact.md")

PLAN = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=100_000)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("labels", [2, 5])
@pytest.mark.parametrize("ranges", [False, True])
def test_the_promise_is_kept_and_not_much_is_left(epsilon: float, labels: int, ranges: bool) -> None:
    plan = GuidePlan.best(epsilon, 1e-6, 50_000, labels=labels, unit_labels=3, private_ranges=ranges)
    assert epsilon * (1 - 1e-8) < plan.epsilon(1e-6) <= epsilon * (1 + 1e-14) and plan.delta(epsilon) <= 1e-6
    assert replace(plan, sigma2=plan.sigma2 - plan.sigma2 // 10**6).delta(epsilon) > 1e-6


def test_the_price_is_the_formula_in_rationals() -> None:
    quieter = replace(PLAN, warm_sigma2=PLAN.warm_sigma2 // 2)
    people = replace(PLAN, apart=False, unit_labels=7)
    for plan in (PLAN, replace(PLAN, range_rounds=0, warm_leaves=0), people, replace(people, unit_labels=1), quieter):
        loads = []
        for stage in [plan.main, plan.warm] if plan.warm_leaves else [plan.main]:
            f, w, n = stage.root.factor.tolist(), stage.root.weights.tolist(), stage.leaves
            load = max(sum((each * w[s]) ** 2 for each in f[: n - s]) for s in range(n))
            loads.append(Fraction(load, stage.sigma2))
        counts = Fraction(2 * plan.range_norm**2, plan.range_sigma2) if plan.range_rounds else Fraction(0)
        moved = [(2 * plan.unit_labels * plan.clip) ** 2 * load for load in loads]
        exact = max(moved[0], moved[-1] + counts) if plan.apart else max(moved) + counts
        assert plan.mu2 == exact
        assert exact * 11 <= Fraction(plan.price().at(22)) <= exact * 11 * (1 + Fraction(1, 10**15))


def test_every_integer_counts() -> None:
    base = PLAN.mu2
    assert replace(PLAN, sigma2=PLAN.sigma2 // 2).mu2 > 1.9 * base
    assert replace(PLAN, clip=PLAN.clip * 2).mu2 > 3.8 * base
    people = PLAN.together()
    assert replace(people, unit_labels=2).mu2 > 3.8 * people.mu2 and replace(PLAN, apart=False).mu2 > 1.4 * base
    assert replace(PLAN, factor_scale=2 * PLAN.factor_scale).mu2 > 3.8 * base
    assert replace(PLAN, column_scale=2 * PLAN.column_scale).mu2 > 3.8 * base
    assert replace(PLAN, warm_sigma2=PLAN.warm_sigma2 // 6).mu2 > 1.3 * base
    assert replace(PLAN, warm_factor_scale=2 * PLAN.warm_factor_scale).mu2 > 1.05 * base
    assert replace(PLAN, warm_column_scale=2 * PLAN.warm_column_scale).mu2 > 1.05 * base
    less = replace(PLAN, warm_sigma2=PLAN.warm_sigma2 // 2)  # it is what is kept that pays for it
    assert less.mu2 == base and less.kept_clip < PLAN.kept_clip < PLAN.record_clip < PLAN.clip
    assert PLAN.noises[1].values == PLAN.warm_leaves * PLAN.node_values
    assert replace(PLAN, range_sigma2=PLAN.range_sigma2 // 100).mu2 > 2 * base
    assert replace(PLAN, step=PLAN.step * 1000, memory=0.0).mu2 == base  # what is done with releases is free
    for name in ("node_values", "range_values"):  # the more noise values, the larger the slack for their being discrete
        assert replace(PLAN, **{name: 1 << 36}).delta(1.0) > PLAN.delta(1.0)


def test_a_discrete_count_of_dp_accounting_agrees() -> None:
    accounting = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")
    plan = GuidePlan.best(1.0, 1e-6, 100_000, private_ranges=False)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(accounting.GaussianDpEvent((plan.sigma2 / plan.load) ** 0.5 / (2 * plan.clip)))
    assert accountant.get_epsilon(1e-6) == pytest.approx(1.0, rel=2e-4)


@pytest.mark.parametrize(("epsilon", "less"), [(0.5, 0.929), (1, 0.932), (2, 0.936), (4, 0.941), (8, 0.940)])
def test_exactly_accounted_for_the_noise_is_smaller(epsilon: float, less: float) -> None:
    """Than what the best Rényi order asks for."""
    renyi = max(2 * renyi_from_epsilon(epsilon, order, 1e-6) / order for order in range(2, 200))
    mu2 = float(GuidePlan.best(epsilon, 1e-6, 100_000).mu2)
    assert (renyi / mu2) ** 0.5 == pytest.approx(less, abs=0.001)


def test_a_share_at_an_order_is_kept() -> None:
    plan = GuidePlan.at(2 * 0.3 / 16, 1000)
    assert 0.2999 < plan.price().at(16) <= 0.3 * (1 + 1e-12)


def test_leaves_cover_all_rounds_by_public_numbers() -> None:
    for rounds in (1, 5, 100, 3000, 100_000, 10**6, 10**8):
        plan = GuidePlan.best(1.0, 1e-6, rounds, history=rounds // 3)
        assert plan.leaves <= 1024
        assert plan.main.ends[-1] == plan.rounds + plan.history and len(plan.main.ends) == plan.leaves
        assert plan.warm_leaves == (len(plan.warm.ends) if plan.range_rounds else 0)


def test_a_plan_is_made_again_from_json() -> None:
    params = json.loads(json.dumps(PLAN.params()))
    assert GuidePlan.from_params(params) == PLAN
    with pytest.raises(ValueError, match="linear"):
        GuidePlan.from_params({**params, "extra": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"sigma2": 0}, {"leaves": 1025, "leaf": 10**6}, {"leaves": 3}, {"step": float("nan")}, {"clip": 0},
        {"leaf": 2**50}, {"unit_labels": 0}, {"sigma2": 1.5}, {"range_norm": 0}, {"range_values": 0},
        {"column_scale": 0}, {"node_values": 0}, {"growth": -1}, {"growth": 10**15}, {"growth": 7}, {"leaf": 1},
        {"warm_leaves": 0}, {"warm_leaves": 3}, {"range_rounds": 0}, {"range_rounds": 10**9}, {"warm_sigma2": 0},
        {"warm_sigma2": (1 << 84) + 1}, {"warm_step": 0.0}, {"warm_factor_scale": 0}, {"warm_column_scale": 1 << 40},
        {"clip": 1 << 31, "leaf": 1 << 8}, {"sigma2": (1 << 84) + 1}, {"range_sigma2": (1 << 84) + 1},
    ],
)  # fmt: skip
def test_impossible_plans_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must|need|would"):
        replace(PLAN, **change)  # type: ignore[arg-type]


def test_budgets_too_small_for_anything_are_said() -> None:
    with pytest.raises(TooNoisy, match="a larger epsilon"):
        GuidePlan.best(1e-5, 1e-300, 1000)
    with pytest.raises(ValueError, match="share"):
        GuidePlan.at(0.0, 1000)


def test_noise_grows_with_what_a_unit_may_bring_and_the_labels_do_not_shrink_besides() -> None:
    """`explain` tells it: five labels a person are five times the noise for the same number of labels."""
    one, five = (GuidePlan.best(1.0, 1e-6, 50_000, unit_labels=most, apart=False) for most in (1, 5))
    assert five.deviation() / one.deviation() == pytest.approx(5, rel=1e-3)
    assert one.strength / five.strength == pytest.approx(5, rel=1e-3)
