"""Bounds from counts, exact curves, certified regions."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from confide.games import Curve, Region
from confide.games.auditor import Terms, planned
from confide.games.bounds import Choice, Point, at_least, at_most, choose, gap_at_least, measure
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


@pytest.mark.parametrize("games", [3, 12, 40])
@pytest.mark.parametrize("level", [0.2, 0.01, 1e-4])
def test_the_bound_of_the_advantage_fails_at_most_as_often_as_it_says(games: int, level: float) -> None:
    """Exactly, over all pairs of counts, for pairs of rates however unlike: their sum is no binomial variable."""
    hits = np.arange(games + 1)
    bound = np.array([[gap_at_least((x, y), (games, games), level) for y in hits] for x in hits])
    rates, worst = np.linspace(0, 1, 26), 0.0
    for a in rates:
        for b in rates:
            law = np.outer(binom.pmf(hits, games, a), binom.pmf(hits, games, b))
            worst = max(worst, law[bound > max(0.0, b - a) + 1e-12].sum())
    assert worst <= level * (1 + 1e-6)
    assert gap_at_least((0, 9), (10, 20), level) == 0  # unequal numbers of games are not one count


def test_a_bound_of_the_advantage_at_half_the_deviation_would_be_seen() -> None:
    games, level, hits = 40, 0.01, np.arange(41)
    gaps = (hits[None, :] - hits[:, None]) / games
    narrow = np.maximum(0.0, gaps - norm.isf(level) / 2 * np.sqrt(0.5 / games))
    law = np.outer(binom.pmf(hits, games, 0.4), binom.pmf(hits, games, 0.6))
    assert law[narrow > 0.2].sum() > 5 * level


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_of_randomized_labels_the_bound_is_19_20ths_of_the_exact_advantage(epsilon: float) -> None:
    """10,000 games at each bit that come out as they are expected to: what the bound loses, and not chance."""
    true, games = math.exp(epsilon) / (math.exp(epsilon) + 1), 10_000
    law = Curve(np.array([true, 1 - true]), np.array([1 - true, true]))
    low, high = np.unique(law.scores)
    lies = round((1 - true) * games)
    zero, one = np.full(games, low), np.full(games, high)
    zero[:lies], one[:lies] = high, low
    points = measure(planned(law, games, Terms()), zero, one, 0.01)
    reached = max(point.advantage for point in points) / law.advantage
    assert 0.95 < reached < 1
    assert max(point.true - point.false for point in points) < max(point.advantage for point in points)


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
