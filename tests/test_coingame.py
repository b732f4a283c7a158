"""The coin game stays under its bounds, and a game with other rules does not."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import benchmarks.coingame
from benchmarks.coingame import (
    STRATEGIES,
    View,
    best_tail,
    coin_game,
    event_bound,
    reward_bound,
    tail_bound,
)
from confide.planning.paper import reports
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("learners.md")

GAMES = 20_000


def surprise(rewards: np.ndarray, reward: float, most: float) -> float:
    """How likely so many games above `reward` are when each is with probability `most`."""
    return float(binom.sf(int((rewards > reward).sum()) - 1, rewards.size, most))


def greedy(view: View) -> tuple[np.ndarray, np.ndarray]:
    """Against the rules: a loss for fifty rewards."""
    p = np.full(view.budget.size, 0.8)
    return p, p / 50


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("budget", [1, 3])
def test_no_strategy_is_above_its_tail(name: str, budget: int) -> None:
    """60 comparisons, each wrong with probability at most 10⁻⁸: false positives below 10⁻⁶ in all."""
    rewards = coin_game(STRATEGIES[name], budget, 400 * budget, GAMES, Random(seed=41 + budget))
    for reward in (0, 2 * budget, 5 * budget, 10 * budget, reward_bound(budget, 0.5)):
        assert surprise(rewards, reward, min(tail_bound(budget, reward), best_tail(budget, reward))) > 1e-8


@pytest.mark.parametrize("budget", [1, 3])
def test_a_game_with_cheaper_rewards_is_noticed(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison rejects a game in which a loss is rarer than the rules allow, by the paper's bound alone."""
    monkeypatch.setattr(benchmarks.coingame, "_allowed", lambda p, q: True)
    rewards = coin_game(greedy, budget, 400 * budget, 2000, Random(seed=3))
    assert surprise(rewards, reward_bound(budget, 0.1), 0.1) < 1e-8


def test_the_bold_strategy_reaches_the_exact_tail() -> None:
    """Within 6 standard deviations, at 4 places: false positives below 10⁻⁸."""
    rewards = coin_game(STRATEGIES["bold"], 2, 400, GAMES, Random(seed=6))
    for reward in (1, 5, 10, 20):
        exact = best_tail(2, reward)
        assert abs((rewards > reward).mean() - exact) < 6 * math.sqrt(exact * (1 - exact) / GAMES)


@pytest.mark.parametrize("budget", [0, 1, 2, 5, 10, 100, 1000, 30_000])
def test_the_bound_is_above_the_exact_tail_everywhere(budget: int) -> None:
    for reward in np.linspace(0, 20 * (budget + 10), 400):
        assert best_tail(budget, reward) <= tail_bound(budget, reward) * (1 + 1e-9)


@pytest.mark.parametrize("beta", [0.5, 0.05, 1e-9])
def test_the_solution_is_where_the_bound_is_beta(beta: float) -> None:
    for budget in (1, 7, 12_000):
        assert tail_bound(budget, reward_bound(budget, beta)) == pytest.approx(beta, rel=1e-6)
        assert event_bound(budget, beta) == reward_bound(budget, beta) + budget
        printed = 18 * budget + 18 + math.log(1 / beta)  # in the paper
        assert tail_bound(budget, printed) > beta * 1.5
    assert reports(copies=4000, mistakes=3, beta=beta) == math.ceil(event_bound(12_000, beta))


def test_a_budget_of_nothing_gains_nothing_and_rounds_end() -> None:
    assert not coin_game(STRATEGIES["bold"], 0, 50, 100, Random(seed=1)).any()
    assert coin_game(STRATEGIES["bold"], 1000, 50, 100, Random(seed=1)).max() <= 50
    assert best_tail(0, 0) == 0.0 and best_tail(0, -1) == 1.0
    assert coin_game(STRATEGIES["bold"], 1, 5, 3).shape == (3,)


@pytest.mark.parametrize(("p", "q"), [(0.9, 0.1), (0.5, 0.09), (-0.1, 0.5), (0.5, 0.6), (float("nan"), 0.2)])
def test_strategies_keep_to_the_rules(p: float, q: float) -> None:
    with pytest.raises(ValueError, match="strategy"):
        coin_game(lambda view: (np.full(4, p), np.full(4, q)), 1, 1, 4, Random(seed=1))
    with pytest.raises(ValueError, match="strategy"):
        coin_game(lambda view: (np.full(3, 0.5), np.full(3, 0.5)), 1, 1, 4, Random(seed=1))
