"""Every double is caught, by a replay or by an audit at alarm level 10⁻⁶, and no correct mechanism is.

Catches are with fixed seeds. On correct mechanisms each audit raises a false alarm with probability at most 10⁻⁶;
benchmarks/doubles.py does the same over a hundred seeds, with the games that take too long for here.
"""

import inspect
import itertools
import math
import os
import re
from collections.abc import Sequence

import numpy as np
import pytest

from confide import POP
from confide.privacy.random import Random
from tests.broken import coins, compiled, copies, disk, guides, leans, seen, tables
from tests.broken.base import Broken
from tests.broken.variants import VARIANTS, SparseVector, Variant
from tests.hunts import EPSILON, REFUSED, Hunt, hunts, refused, sparse_vector
from tests.replays import REPLAYS, ReplayHunt

pytestmark = pytest.mark.claim("people.md")

HUNTS = hunts()
QUICK = [hunt for hunt in HUNTS if not hunt.slow]
LONG = int(os.environ.get("CONFIDE_KILLS", "20")) > 20
"""`make chaos` accuses more often."""
SEEDS = 20 if LONG else 10


@pytest.mark.parametrize("hunt", REPLAYS, ids=[hunt.name for hunt in REPLAYS])
def test_a_replay_catches(hunt: ReplayHunt) -> None:
    """The violated line names the round and the cause. Who shares a copy with the unit follows from the seed."""
    said = hunt.catch()
    assert re.search(rf"round \d+ \(step \d+ of the script\).*({hunt.cause})", said), said


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_replay_accuses_no_correct_mechanism(seed: int) -> None:
    """The seeds go round the scripts: with polls, silence, people, batches that hold the unit, loads, halts."""
    hunt = REPLAYS[seed * 11 % len(REPLAYS)]
    assert hunt.run(seed, broken=False) == ""


@pytest.mark.parametrize("hunt", QUICK, ids=[hunt.name for hunt in QUICK])
def test_an_audit_catches(hunt: Hunt) -> None:
    report = hunt.run(seed=1)
    assert report.alarm, str(report)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_audit_accuses_no_correct_mechanism(seed: int) -> None:
    """At level 10⁻⁶ each; the seeds go round the hunts, with half of their games."""
    hunt = QUICK[seed % len(QUICK)]
    report = hunt.run(1000 + seed, broken=False, games=hunt.games // 2)
    assert not report.alarm, str(report)


def test_every_double_is_hunted_and_says_what_is_broken() -> None:
    """Each has a hunt and a docstring, and what is slow to catch by playing is caught in another way too."""
    found = {
        one for module in (coins, compiled, copies, disk, guides, leans, seen) for name, one in vars(module).items()
        if inspect.isclass(one) and issubclass(one, POP) and one.__module__ == module.__name__ and name[0] != "_"
    }  # fmt: skip
    assert found == {hunt.kind for hunt in REPLAYS} - {POP}
    functions = {tables.steep_entry, tables.one_copy, *(double for double, _ in REFUSED.values())}
    assert all(one.__doc__ != Broken.__doc__ and one.__doc__ for one in found | functions)
    played, replayed = {hunt.name for hunt in QUICK}, {hunt.name for hunt in REPLAYS}
    slow = {hunt.name for hunt in HUNTS if hunt.slow}
    assert "noise of half the scale (AboveThreshold)" in played
    assert slow - replayed == {"noise of half the scale (POP's gate)"}
    assert len(played | replayed | slow) >= 80


# ---------------------------------------------------------------------- leans that cost more than they say


@pytest.mark.parametrize("name", REFUSED)
def test_the_certificate_refuses_a_lean_that_costs_more(name: str) -> None:
    """And the auditor sees that one has half its width: tests/games/test_worst_lean.py."""
    assert re.fullmatch(r"the tables cost ε = .* more than the claimed 3\.9.*: do not run this plan", refused(name))


# ---------------------------------------------------------------------- six variants of one technique


def test_the_private_variants_pass_every_adversary() -> None:
    """Variant 1 is the correct mechanism of the hunts; variant 2 must pass them too."""
    for hunt in QUICK:
        if hunt.name.startswith("sparse"):
            number = int(hunt.name[-1])
            adversary, reports = hunt.adversary, 20 if number == 4 else 1
            assert not sparse_vector(2, adversary, reports, 400).run(seed=7).alarm


def log_probability(variant: Variant, reports: int, values: Sequence[int], outcome: Sequence[int | None]) -> float:
    """ln P(outcome), exactly but for rounding: the sum over the threshold's noise, anew where it is drawn anew."""
    first, second = (float(scale) for scale in variant.scales(EPSILON, reports))
    wide = np.arange(-400, 401)
    rho = np.exp(-np.abs(wide) / first)
    rho /= rho.sum()
    total, part = 0.0, np.zeros(wide.size)
    for value, shown in zip(values, outcome, strict=True):
        if shown is None:
            part += _log_below(wide - value, second)
        elif variant.shows:
            noise = -abs(shown - value) / second + math.log(math.tanh(0.5 / second))
            part += np.where(wide <= shown, noise, -math.inf)
        else:
            part += _log_below(value - wide + 1, second)
        if shown is not None and variant.redraws:
            total, part = total + _log_mean(part, rho), np.zeros(wide.size)
    return total + _log_mean(part, rho)


def _log_below(gap: np.ndarray, scale: float) -> np.ndarray:
    """ln P(discrete Laplace noise < gap); by symmetry ln P(noise > −gap)."""
    if scale == 0:
        return np.where(gap > 0, 0.0, -math.inf)
    tail = np.exp(-np.abs(np.where(gap > 0, gap, 1 - gap)) / scale) / (1 + math.exp(-1 / scale))
    return np.where(gap > 0, np.log1p(-tail), np.log(tail))


def _log_mean(logs: np.ndarray, weights: np.ndarray) -> float:
    top = logs.max()
    return float(top + np.log((np.exp(logs - top) * weights).sum())) if top > -math.inf else -math.inf


def worst_loss(number: int, reports: int, zero: Sequence[int], one: Sequence[int]) -> float:
    """The largest ln P₀(outcome)/P₁(outcome) over all outcomes of these two rows of values."""
    variant, worst = VARIANTS[number], 0.0
    for outcome in itertools.product((None, 1), repeat=len(zero)):
        if variant.stops and sum(shown is not None for shown in outcome[:-1]) >= reports:
            continue
        loss = log_probability(variant, reports, zero, outcome) - log_probability(variant, reports, one, outcome)
        worst = max(worst, loss)
    return worst


ROWS = [
    ((0, 0, 0, 0, 0, 0), (1, 1, 1, -1, -1, -1)),
    ((0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1)),
    ((-9, -9, -9, -9, -9, -9), (-8, -8, -8, -10, -10, -10)),
    ((5, 5, -5, -5, 0, 0), (4, 4, -4, -4, 1, -1)),
]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("reports", [1, 2, 3])
def test_variants_1_and_2_keep_their_promise(number: int, reports: int) -> None:
    losses = [worst_loss(number, reports, *rows) for pair in ROWS for rows in (pair, pair[::-1])]
    assert 0.2 * float(EPSILON) < max(losses) <= float(EPSILON) + 1e-9


@pytest.mark.parametrize("reports", [1, 2, 3])
def test_variant_4_costs_more_than_it_says(reports: int) -> None:
    """It keeps (1 + 6c)/4·ε, and far below the threshold, where reports are rare, comes close to it."""
    true = VARIANTS[4].true_epsilon(float(EPSILON), reports)
    below, above = [-12] * 40, [-12] * reports
    zero, one = [*below, *above], [v + 1 for v in below] + [v - 1 for v in above]
    outcome = [*[None] * 40, *[1] * reports]
    loss = log_probability(VARIANTS[4], reports, zero, outcome) - log_probability(VARIANTS[4], reports, one, outcome)
    assert float(EPSILON) < loss <= true + 1e-9
    assert loss > 0.7 * true
    losses = [worst_loss(4, reports, *rows) for pair in ROWS for rows in (pair, pair[::-1])]
    assert max(losses) <= true + 1e-9


@pytest.mark.parametrize("number", [3, 5, 6])
def test_variants_3_5_and_6_promise_nothing(number: int) -> None:
    """Their loss passes every bound: with more queries, or at once."""
    variant, losses = VARIANTS[number], []
    for m in (1, 20, 80):
        if number == 3:  # a value of 0 is shown, so the threshold was at most that
            zero, one, outcome = [*[0] * m, 0], [*[1] * m, 0], [*[None] * m, 0]
        else:
            zero, one, outcome = [0] * 2 * m, [*[1] * m, *[-1] * m], [*[None] * m, *[1] * m]
        first, second = (log_probability(variant, 1, row, outcome) for row in (zero, one))
        losses.append(first - second if number != 5 else math.inf)
    if number == 5:  # "0 is below, 1 is not" happens; "1 is below, 0 is not" cannot
        assert log_probability(variant, 1, [0, 1], [None, 1]) > -math.inf
        assert log_probability(variant, 1, [1, 0], [None, 1]) == -math.inf
        return
    assert losses[0] < losses[1] < losses[2]
    assert losses[2] > 15 * float(EPSILON)


@pytest.mark.parametrize("number", VARIANTS)
def test_the_exact_losses_are_those_of_the_mechanism(number: int) -> None:
    """P(outcome) as it is computed and as it is drawn agree, at 5 standard deviations (false alarms: 4 in 10⁶)."""
    variant, games, values = VARIANTS[number], 3000, [0, 1, -1]
    rng, hits = Random(seed=number), 0
    outcome = [None, 1, None]
    for _ in range(games):
        sparse = SparseVector(variant, EPSILON, 2, rng)
        hits += [sparse.query(value) for value in values] == outcome
    p = math.exp(log_probability(variant, 2, values, outcome))
    assert abs(hits / games - p) <= 5 * math.sqrt(p * (1 - p) / games) + 1 / games
