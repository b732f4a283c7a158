"""Mistakes: rates against all vote patterns, the tail against the best adaptive adversary, the sum in a small world."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import binom, nbinom

from confide.planning.guarantee import Guarantee
from confide.planning.mistakes import HYPOTHESES, Rates, certificate, quantile, rates, tail
from confide.privacy.gate import Gate

pytestmark = pytest.mark.claim("certificate.md")

Floats = NDArray[np.float64]


# --- rates


def all_patterns(
    gate: Gate, copies: int, polls: int, labels: int, fallback_error: float, abstain: bool
) -> tuple[Floats, Floats]:
    """sup P(unsure), sup P(wrong) over all vote patterns and right labels, by the number of copies that err."""
    table = gate.table
    unsure, wrong = np.zeros(copies + 1), np.zeros(copies + 1)
    subsets = list(combinations(range(copies), polls))
    outcomes: dict[tuple[int, ...], tuple[float, int]] = {}
    for votes in product(range(labels + abstain), repeat=copies):
        if votes != tuple(sorted(votes)):
            continue  # which copy casts which vote does not matter to a uniform poll
        seen = []
        for subset in subsets:
            cast = tuple(votes[copy] for copy in subset)
            if cast not in outcomes:
                counts = [cast.count(label) for label in range(labels)]
                first, second = sorted(counts, reverse=True)[:2]
                outcomes[cast] = float(table[min(first - second, table.size - 1)]), counts.index(first)
            seen.append(outcomes[cast])
        for right in range(labels):
            errors = copies - votes.count(right)
            u = float(np.mean([t for t, _ in seen]))
            g = float(np.mean([t * fallback_error + (1 - t) * (top != right) for t, top in seen]))
            unsure[errors], wrong[errors] = max(unsure[errors], u), max(wrong[errors], g)
    return unsure, wrong


def slope(values: Floats) -> float:
    fraction = np.arange(1, values.size) / (values.size - 1)
    return max(0.0, float(((values[1:] - values[0]) / fraction).max()))


def falling(seed: int, size: int) -> Gate:
    draw = np.random.default_rng(seed)
    return Gate(1 / (1 + np.exp(np.cumsum(draw.exponential(1.0, size=size)) - 3)))


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("copies", [5, 6])
@pytest.mark.parametrize("size", [3, 9])
def test_rates_are_the_suprema_over_all_vote_patterns(labels: int, copies: int, size: int) -> None:
    for seed, fallback_error in ((1, 0.5), (2, 2 / 3), (3, 1.0), (4, 0.0)):
        gate = falling(seed, size)
        found = rates(gate, copies=copies, polls=copies, fallback_error=fallback_error)
        unsure, wrong = all_patterns(gate, copies, copies, labels, fallback_error, abstain=True)
        truth = Rates(float(unsure[0]), slope(unsure), float(wrong[0]), slope(wrong))
        assert found.__dict__ == pytest.approx(truth.__dict__, rel=1e-12, abs=1e-15)
        unsure, wrong = all_patterns(gate, copies, copies, labels, fallback_error, abstain=False)
        assert found.unsure_slope >= slope(unsure) * (1 - 1e-12)
        assert found.wrong_slope >= slope(wrong) * (1 - 1e-12)


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize(("copies", "polls"), [(5, 2), (5, 3), (6, 1), (6, 5), (7, 4)])
def test_rates_cover_all_vote_patterns_under_polls(labels: int, copies: int, polls: int) -> None:
    for seed, fallback_error in ((1, 0.5), (2, 1.0)):
        gate = falling(seed, 5)
        found = rates(gate, copies=copies, polls=polls, fallback_error=fallback_error)
        unsure, wrong = all_patterns(gate, copies, polls, labels, fallback_error, abstain=True)
        assert found.unsure_floor == pytest.approx(unsure[0], rel=1e-12)
        assert found.wrong_floor == pytest.approx(wrong[0], rel=1e-12)
        assert slope(unsure) * (1 - 1e-12) <= found.unsure_slope <= slope(unsure) * 1.5 + 1e-12
        assert slope(wrong) * (1 - 1e-12) <= found.wrong_slope <= slope(wrong) * 1.5 + 1e-12


def test_rates_of_many_copies_are_covered_by_a_grid() -> None:
    """Beyond some copies only a grid of error numbers is averaged; what lies between must be covered all the same."""
    copies, polls, gate = 5000, 41, Gate.best(order=6, cost=0.3, tie_sure=1e-3)
    found = rates(gate, copies=copies, polls=polls, fallback_error=0.5)
    inside, bad = np.arange(polls + 1), np.arange(copies + 1)
    lead = polls - 2 * inside
    last = gate.table.size - 1
    unsure, sided = gate.table[np.clip(lead, 0, last)], gate.table[np.minimum(np.abs(lead), last)]

    def ways(n: NDArray[np.int64], k: NDArray[np.int64]) -> Floats:
        """ln of n choose k."""
        logarithm = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(np.maximum(n - k, 0) + 1.0)
        return np.where(k <= n, logarithm, -np.inf)

    right, all_copies, all_polls = (copies - bad)[:, None], np.array(copies), np.array(polls)
    weights = np.exp(ways(bad[:, None], inside) + ways(right, polls - inside) - ways(all_copies, all_polls))
    for values, got in (
        (weights @ unsure, found.unsure_slope),
        (weights @ np.where(lead > 0, 0.5 * unsure, 1 - 0.5 * sided), found.wrong_slope),
    ):
        assert slope(values) * (1 - 1e-9) <= got <= slope(values) * 1.02


@pytest.mark.parametrize("polls", [3, 5])
def test_rates_cover_or_refuse_a_table_that_rises(polls: int) -> None:
    """A gate may be any table; where P(unsure) rises with the margin the narrowest margin is not the worst pattern."""
    gate = Gate([0.99, 0.9, 0.5, 0.02, 0.6, 0.01])
    try:
        found = rates(gate, copies=5, polls=polls, fallback_error=0.5)
    except ValueError as refusal:
        assert "falls" in str(refusal) or "monotone" in str(refusal)
        return
    unsure, wrong = all_patterns(gate, 5, polls, 2, 0.5, abstain=True)
    fraction = np.arange(6) / 5
    assert (found.unsure_floor + found.unsure_slope * fraction >= unsure - 1e-12).all()
    assert (found.wrong_floor + found.wrong_slope * fraction >= wrong - 1e-12).all()


@pytest.mark.parametrize(
    "change",
    [{"polls": 6}, {"polls": 0}, {"copies": 0}, {"fallback_error": math.nan}, {"fallback_error": 1.5}],
)
def test_rates_refuse_nonsense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"copies|polls|fallback_error"):
        rates(falling(1, 5), **({"copies": 5, "polls": 5, "fallback_error": 0.5} | change))  # type: ignore[arg-type]


# --- tail


class Adversary:
    """The best adaptive adversary for `count` events in `rounds` rounds, by exact dynamic programming.

    In each round it picks the fraction e of copies that err. An event comes with probability floor + slope·e and,
    independently, an error is paid with probability e; when all are paid, e = 0 is the only choice left.
    """

    def __init__(
        self, count: int, budget: int, floor: float, slope: float, rounds: int, choices: Sequence[float]
    ) -> None:
        self.fractions = np.array([0.0, *choices])
        self.rate = np.minimum(floor + slope * self.fractions, 1.0)
        self.count, self.budget = count, budget
        value = np.zeros((count + 1, budget + 1))
        value[count] = 1.0
        self.plans: list[NDArray[np.int64]] = []
        e, p = self.fractions[:, None, None], self.rate[:, None, None]
        for _ in range(rounds):
            more = value[np.minimum(np.arange(count + 1) + 1, count)]
            less, both = value[:, :-1], more[:, :-1]
            options = p * (1 - e) * more + (1 - p) * (1 - e) * value
            options[:, :, 1:] += e * (p * both + (1 - p) * less)
            options[1:, :, 0] = 0.0
            value = options.max(axis=0)
            self.plans.append(options.argmax(axis=0))
        self.probability = float(value[0, budget])

    def play(self, runs: int, seed: int) -> int:
        """In how many of `runs` games the events reached the count."""
        draw = np.random.default_rng(seed)
        events, left = np.zeros(runs, dtype=np.int64), np.full(runs, self.budget)
        for plan in reversed(self.plans):
            choice = plan[np.minimum(events, self.count), left]
            errs = draw.random(runs) < self.fractions[choice]
            events += draw.random(runs) < self.rate[choice]
            left -= errs
        assert (left >= 0).all()
        return int((events >= self.count).sum())


FRACTIONS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    ("count", "budget", "floor", "slope"),
    [
        (6, 3, 0.0, 0.3),
        (15, 5, 0.0, 1.0),
        (12, 4, 0.01, 0.8),
        (30, 6, 0.0, 3.0),
        (20, 2, 0.05, 2.0),
        (9, 0, 0.02, 1.0),
    ],
)
def test_no_adaptive_adversary_exceeds_the_tail(count: int, budget: int, floor: float, slope: float) -> None:
    rounds = 150
    adversary = Adversary(count, budget, floor, slope, rounds, FRACTIONS)
    bound = tail(count, budget=budget, floor=floor * rounds, slope=slope)
    assert adversary.probability <= bound <= 1
    assert 0 < bound <= 60 * adversary.probability


def test_the_tail_against_play() -> None:
    """False positives: 10⁻⁶, an exact binomial tail. The tail of half the slope is refuted by the same games."""
    count, budget, slope, rounds, runs = 15, 5, 1.0, 250, 20_000
    adversary = Adversary(count, budget, 0.0, slope, rounds, FRACTIONS)
    reached = adversary.play(runs, seed=8)
    assert reached <= binom.isf(1e-6, runs, tail(count, budget=budget, floor=0.0, slope=slope))
    assert reached > binom.isf(1e-6, runs, tail(count, budget=budget, floor=0.0, slope=slope / 2))
    chance = adversary.probability  # the player plays what was computed
    assert binom.isf(1 - 5e-7, runs, chance) <= reached <= binom.isf(5e-7, runs, chance)


def test_a_negative_binomial_quantile_is_no_bound() -> None:
    """Whoever errs with a small fraction has a negative-binomial number of events; an adaptive adversary has more."""
    count, budget, slope = 15, 5, 1.0
    negative_binomial = nbinom.sf(count - 1, budget, 1 / (1 + slope))
    adversary = Adversary(count, budget, 0.0, slope, 2000, (0.01, 0.1, 0.5, 1.0))
    constant = max(
        Adversary(count, budget, 0.0, slope, 2000, (e,)).probability for e in (0.01, 0.1, 0.5, 1.0)
    )
    assert constant <= negative_binomial
    assert adversary.probability > 1.9 * negative_binomial
    assert adversary.probability <= tail(count, budget=budget, floor=0.0, slope=slope)


def test_the_tail_without_a_slope_is_that_of_rare_independent_events() -> None:
    for floor, count in ((3.0, 10), (0.5, 4), (40.0, 60)):
        exact = binom.sf(count - 1, 500, floor / 500)
        chernoff = math.exp(count - floor - count * math.log(count / floor))
        assert exact <= tail(count, budget=7, floor=floor, slope=0.0) <= chernoff * 1.01
    assert tail(3, budget=7, floor=3.0, slope=0.0) == 1.0
    assert tail(1, budget=7, floor=0.0, slope=0.0) < 1e-200


def test_the_tail_falls_in_count_and_rises_in_everything_else() -> None:
    here = tail(40, budget=10, floor=2.0, slope=1.5)
    assert 0 < here < 1
    assert tail(41, budget=10, floor=2.0, slope=1.5) < here
    assert min(tail(40, budget=11, floor=2.0, slope=1.5), tail(40, budget=10, floor=2.5, slope=1.5)) > here
    assert tail(40, budget=10, floor=2.0, slope=1.6) > here
    assert tail(5, budget=10, floor=2.0, slope=1.5) == 1.0


@pytest.mark.parametrize("name", ["count", "budget", "floor", "slope"])
def test_the_tail_of_what_is_no_number_is_refused_or_one(name: str) -> None:
    values = {"count": 40.0, "budget": 10.0, "floor": 2.0, "slope": 1.5} | {name: math.nan}
    with contextlib.suppress(ValueError):
        assert tail(values.pop("count"), **values) == 1.0


def test_the_quantile_is_the_smallest_count() -> None:
    for probability, slope in ((0.05, 1.5), (1e-9, 0.4), (0.01, 0.0)):
        count = quantile(probability, budget=10, floor=2.0, slope=slope)
        assert tail(count, budget=10, floor=2.0, slope=slope) <= probability
        assert tail(count - 2, budget=10, floor=2.0, slope=slope) > probability


@pytest.mark.parametrize("probability", [math.nan, -0.1])
def test_the_quantile_of_what_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError):
        quantile(probability, budget=10, floor=2.0, slope=1.0)


# --- the certificate


def small_world(
    gate: Gate, copies: int, points: int, rounds: int, polls: int, runs: int
) -> NDArray[np.int64]:
    """Mistakes of POP over copies that know a point's label once they were taught it: each errs `points` times at most.

    The adversary shows the point that most copies have wrong. Who errs says the same wrong label, and an unsure round
    is answered by a fair coin.
    """
    draw = np.random.default_rng(6)
    unlearned = np.full((runs, points), copies)
    every, mistakes = np.arange(runs), np.zeros(runs, dtype=np.int64)
    for _ in range(rounds):
        point = unlearned.argmax(axis=1)
        wrong = unlearned[every, point]
        lead = polls - 2 * draw.hypergeometric(wrong, copies - wrong, polls)
        unsure = draw.random(runs) < gate.table[np.minimum(np.abs(lead), gate.table.size - 1)]
        mistakes += np.where(unsure, draw.random(runs) < 0.5, lead <= 0)
        unlearned[every, point] -= draw.random(runs) < wrong / copies
    return mistakes


@pytest.mark.parametrize("polls", [101, 31])
def test_expected_mistakes_hold_in_a_small_world(polls: int) -> None:
    """False positives: 3·10⁻⁷ (five standard errors of 200 independent runs). Half the slope is refuted."""
    copies, points, rounds, runs = 101, 3, 1500, 200
    gate = Gate.best(order=6, cost=0.3, tie_sure=1e-3)
    rate = rates(gate, copies=copies, polls=polls, fallback_error=0.5)
    mistakes = small_world(gate, copies, points, rounds, polls, runs)
    error = mistakes.std() / math.sqrt(runs)

    def bound(rate: Rates) -> float:
        promise = certificate(
            rate,
            rounds=rounds,
            budget=points * copies,
            unsure=rounds + 1,
            start=0.0,
            after_halt=0.5,
            beta=1.0,
        )
        return promise.expected_mistakes

    if rate.unsure_floor * rounds + rate.unsure_slope * points * copies < rounds / 2:
        most = certificate(
            rate, rounds=rounds, budget=points * copies, unsure=rounds, start=1e-9, after_halt=0.5, beta=1e-3
        ).mistakes
        assert bound(rate) < most and mistakes.max() <= most
    assert mistakes.mean() <= bound(rate) + 5 * error
    assert mistakes.mean() > bound(replace(rate, wrong_slope=rate.wrong_slope / 2)) + 5 * error


FINE = Rates(1e-6, 2.0, 5e-7, 1.3)


def test_the_certificate_adds_up() -> None:
    found = certificate(FINE, rounds=10**6, budget=1000, unsure=4000, start=1e-9, after_halt=0.5, beta=0.05)
    full = tail(4000, budget=1000, floor=1.0, slope=2.0)
    assert found.early_halt == pytest.approx(1e-3 + full, rel=1e-9)
    assert found.expected_mistakes == pytest.approx(0.5 + 1300 + 0.5 * 10**6 * (1e-3 + full), rel=1e-6)
    left = 0.05 - found.early_halt
    assert found.mistakes == quantile(left, budget=1000, floor=0.5, slope=1.3)
    assert found.beta == 0.05 and found.hypotheses == HYPOTHESES


def test_a_certificate_never_exceeds_the_rounds() -> None:
    found = certificate(FINE, rounds=500, budget=1000, unsure=4000, start=1e-9, after_halt=1.0, beta=0.5)
    assert found.expected_mistakes == 500 and found.mistakes == 500


def test_a_run_that_may_halt_early_has_no_certificate() -> None:
    with pytest.raises(ValueError, match="halt early"):
        certificate(FINE, rounds=10**6, budget=1000, unsure=2000, start=1e-9, after_halt=0.5, beta=0.05)
    with pytest.raises(ValueError, match="halt early"):
        certificate(FINE, rounds=10**6, budget=1000, unsure=4000, start=1e-6, after_halt=0.5, beta=0.05)


@pytest.mark.parametrize(
    "change",
    [
        {"beta": math.nan},
        {"beta": 2.0},
        {"budget": -1.0},
        {"budget": math.nan},
        {"start": math.nan},
        {"after_halt": -1.0},
    ],
)
def test_the_certificate_refuses_nonsense(change: dict[str, float]) -> None:
    fine = {"rounds": 10**6, "budget": 1000, "unsure": 4000, "start": 1e-9, "after_halt": 0.5, "beta": 0.05}
    with pytest.raises(ValueError):
        certificate(FINE, **(fine | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["unsure_floor", "unsure_slope", "wrong_floor", "wrong_slope"])
def test_rates_that_are_no_numbers_certify_nothing(field: str) -> None:
    with pytest.raises(ValueError):
        rate = replace(FINE, **{field: math.nan})
        certificate(rate, rounds=10**6, budget=1000, unsure=4000, start=1e-9, after_halt=0.5, beta=0.05)


# --- what the page says of slack, of b = 0 and of the fallback


def test_the_slack_is_what_the_page_says() -> None:
    asked = {"rounds": 10**6, "budget": 1000, "unsure": 4000, "start": 1e-9, "after_halt": 0.5, "beta": 0.05}
    found = certificate(FINE, **asked)  # type: ignore[arg-type]
    full = tail(4000, budget=1000, floor=1.0, slope=2.0)
    exact = 5e-7 * 10**6 + 1.3 * 1000 + 0.5 * 10**6 * (10**6 * 1e-9 + full)
    assert 0 < found.expected_mistakes / exact - 1 < 1.1e-9
    left = 0.05 - 10**6 * 1e-9 - full
    assert tail(found.mistakes, budget=1000, floor=0.5, slope=1.3) <= left
    assert tail(found.mistakes - 1, budget=1000, floor=0.5, slope=1.3) > left


def test_without_a_slope_the_errors_of_copies_do_not_matter() -> None:
    """b = 0: every θ with φ = 0, whatever the copies have left to err; the best θ is ln(r/floor)."""
    for budget in (0, 7, 10**9):
        assert tail(12, budget=budget, floor=3.0, slope=0.0) == pytest.approx((3 / 12) ** 12 * math.exp(9), rel=1e-6)


def test_a_coins_certificate_is_void_for_a_constant() -> None:
    """A gate that is always unsure, one round: a coin over two labels errs with ½, the wrong constant for certain."""
    gate = Gate([1.0, 1.0, 1.0])
    said = {f: rates(gate, copies=2, polls=2, fallback_error=f).wrong_floor for f in (0.5, 1.0)}
    assert said == {0.5: 0.5, 1.0: 1.0}


def test_a_promise_that_protects_nobody_still_has_a_sentence() -> None:
    """A model with it can be looked at, and served, like any other."""
    assert "a factor of e to the 1234 (ε = 1234)" in Guarantee(1234.0, 0.5).sentence
    assert "a factor of 2.72 (ε = 1)" in Guarantee(1.0, 1e-6).sentence
