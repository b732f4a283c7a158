"""Bounds from counts, exact curves, certified regions."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from confide.games import Curve, Region
from confide.games.bounds import Choice, Point, at_least, at_most, choose, measure
from confide.planning.plan import Guarantee


@pytest.mark.parametrize("games", [7, 40, 300])
@pytest.mark.parametrize("level", [0.2, 0.01, 1e-6])
def test_clopper_pearson_fails_at_most_as_often_as_it_says(games: int, level: float) -> None:
    hits = np.arange(games + 1)
    upper = np.array([at_most(int(h), games, level) for h in hits])
    lower = np.array([at_least(int(h), games, level) for h in hits])
    worst = 0.0
    for p in np.concatenate([np.linspace(0.001, 0.999, 199), upper[:-1] + 1e-9, lower[1:] - 1e-9]):
        law = binom.pmf(hits, games, p)
        worst = max(worst, law[upper < p].sum(), law[lower > p].sum())
    assert worst <= level * (1 + 1e-6)
    assert worst > level / 3  # and it is not needlessly wide


def test_a_bound_that_is_too_narrow_would_be_seen() -> None:
    """The same check rejects the normal approximation."""
    games, level, hits = 40, 0.01, np.arange(41)
    rate = hits / games
    upper = rate + norm.isf(level) * np.sqrt(rate * (1 - rate) / games)
    worst = max(binom.pmf(hits, games, p)[upper < p].sum() for p in np.linspace(0.001, 0.999, 199))
    assert worst > 5 * level


def test_all_points_hold_together() -> None:
    """Exactly: each point's two bounds fail with at most its share, and the shares add up to the whole."""
    choices = [Choice(0.5, 0.5, "epsilon"), Choice(1.5, 0.25, "advantage"), Choice(2.5, 0.25, "curve")]
    rng = np.random.default_rng(1)
    zero, one = (rng.integers(4, size=500).astype(float) for _ in range(2))
    points = measure(choices, zero, one, 0.04)
    for choice, point in zip(choices, points, strict=True):
        level = 0.04 * choice.share / 2
        assert point.false == at_most(int((zero > choice.threshold).sum()), 500, level)
        assert point.true == at_least(int((one > choice.threshold).sum()), 500, level)


def test_epsilon_of_a_point_is_the_definition_both_ways() -> None:
    point = Point(0.0, "curve", (1, 1), (0, 0), false=0.1, true=0.4)
    assert point.epsilon(0.01) == pytest.approx(math.log(0.39 / 0.1))
    point = Point(0.0, "curve", (1, 1), (0, 0), false=0.6, true=0.9)
    assert point.epsilon(0.01) == pytest.approx(math.log(0.39 / 0.1))
    assert Point(0.0, "curve", (1, 1), (0, 0), false=0.5, true=0.4).epsilon(0.01) == 0


def test_thresholds_are_chosen_where_games_can_show_most() -> None:
    thresholds = np.linspace(-4, 4, 801)
    zero, one = norm.sf(thresholds), norm.sf(thresholds - 1)
    choices = {choice.aim: choice.threshold for choice in choose(thresholds, zero, one, 100_000, 0.01, 1e-6)}
    assert choices["advantage"] == pytest.approx(0.5, abs=0.02)
    assert abs(choices["epsilon"] - 0.5) > 2  # in a tail, but not where no game comes
    assert 20 < 100_000 * min(norm.sf(choices["epsilon"]), norm.cdf(choices["epsilon"] - 1)) < 2000


def test_curve_of_two_gaussians() -> None:
    grid = np.linspace(-12, 13, 20_001)
    zero, one = norm.pdf(grid), norm.pdf(grid - 1)
    curve = Curve(zero / zero.sum(), one / one.sum())
    assert curve.advantage == pytest.approx(2 * norm.cdf(0.5) - 1, abs=1e-5)
    assert curve.power(0.05) == pytest.approx(norm.sf(norm.isf(0.05) - 1), abs=1e-3)
    epsilon = curve.epsilon(1e-6)
    exact = norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-0.5 - epsilon)
    assert exact == pytest.approx(1e-6, rel=0.02)
    assert curve.tails(np.array([-np.inf, 0.0, np.inf])) == (
        pytest.approx([1, norm.sf(0.5), 0], abs=1e-3),
        pytest.approx([1, norm.cdf(0.5), 0], abs=1e-3),
    )


def test_region_is_what_the_definition_allows() -> None:
    region = Region.of(Guarantee(1.0, 0.01))
    for false in np.linspace(0, 1, 101):
        most = min(math.e * false + 0.01, 1 - (1 - false - 0.01) / math.e, 1)
        assert region.power(false) == pytest.approx(max(most, false))
    assert region.holds(0.2, region.power(0.2)) and not region.holds(0.2, region.power(0.2) + 1e-9)
    several = Region(((1.0, 0.01), (0.5, 0.1)))
    assert several.power(0.3) == min(region.power(0.3), Region.of((0.5, 0.1)).power(0.3))
