"""The noise has exactly the law it claims: every path of the sampler, and wrong laws are rejected."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from confide.privacy import gaussian
from confide.privacy.draws import exact_gaussian
from confide.privacy.gaussian import GaussianNoise, _below
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

LEVEL = 1e-6  # false positives of every statistical test here
SIZES = [1 << 20, 10**9 + 7, (1 << 61) + 5, (1 << 83) + 12345]


def rejected(values: NDArray[np.int64], sigma: float, level: float = LEVEL) -> bool:
    """A chi-square test in 64 intervals of equal mass, with half-integer ends: there sum and integral agree."""
    inner = np.round(stats.norm.ppf(np.arange(1, 64) / 64) * sigma) + 0.5
    mass = np.diff(np.concatenate([[0.0], stats.norm.cdf(inner / sigma), [1.0]]))
    seen = np.bincount(np.searchsorted(inner, values), minlength=64)
    return bool(stats.chisquare(seen, mass * len(values)).pvalue < level)


@pytest.mark.parametrize("sigma2", SIZES)
def test_values_have_the_law_and_two_per_cent_less_or_more_is_rejected(sigma2: int) -> None:
    values = GaussianNoise(sigma2).draw(Random(seed=1), 400_000)
    sigma = math.sqrt(sigma2)
    assert not rejected(values, sigma)
    assert rejected(values, sigma * 0.98)
    assert rejected(values, sigma * 1.02)


def test_the_law_holds_integer_by_integer() -> None:
    noise = GaussianNoise(1 << 20)
    values = noise.draw(Random(seed=2), 1_000_000)
    near = values[np.abs(values) <= 50]
    mass = np.exp(-(np.arange(-50, 51) ** 2) / 2.0**21)
    seen = np.bincount(near + 50, minlength=101)
    assert stats.chisquare(seen, mass / mass.sum() * len(near)).pvalue > LEVEL
    low = 2 * math.sqrt(len(near) / 101)
    assert abs(seen[50] - len(near) * mass[50] / mass.sum()) < 3 * low  # zero is counted once, not twice


def test_tails_are_there_and_no_longer_than_they_should_be() -> None:
    values = GaussianNoise(1 << 60).draw(Random(seed=3), 2_000_000)
    for reach in (3.0, 4.0):
        expected = 2 * stats.norm.sf(reach)
        seen = int((np.abs(values) > reach * 2.0**30).sum())
        assert stats.binomtest(seen, len(values), expected).pvalue > LEVEL
        assert stats.binomtest(seen, len(values), expected * 1.5).pvalue < LEVEL


def test_what_floating_point_cannot_decide_is_decided_exactly() -> None:
    noise = GaussianNoise((1 << 60) + 1)
    plain = noise.draw(Random(seed=4), 30_000)
    noise._doubt = 0.05  # one trial in ten is left to Python
    assert not rejected(noise.draw(Random(seed=5), 60_000), 2.0**30)
    again = GaussianNoise((1 << 60) + 1)
    again._doubt = 2.0**-30
    assert np.array_equal(again.draw(Random(seed=4), 30_000), plain)


def test_a_trial_gives_every_integer_its_weight() -> None:
    """P(trial returns ±x) = exp(−x²/2σ²)/(S·w), in cells and beyond them: computed to fifty digits."""
    noise = GaussianNoise(10**7)
    width, edge = 1 << noise._bits, noise._cells << noise._bits
    assert sum(noise._weights) + noise._far_weight <= 1 << 64
    with localcontext(Context(prec=60)):
        for x in (0, 1, width, 17 * width + 3, edge - 1, edge, edge + 100):
            target = (Decimal(-x * x) / (2 * noise.sigma2)).exp() / (noise._total * width)
            if x < edge:
                weight = Decimal(noise._weights[x // width])
                accept = (Decimal(-x * x) / (2 * noise.sigma2)).exp() * (1 << 64) / (noise._total * weight)
                chance = weight / (1 << 64) / width * accept
            else:
                r = (Decimal(-1) / noise._scale).exp()
                proposal = Decimal(noise._far_weight) / (1 << 64) * (1 - r) * r ** (x - edge)
                accept = target / proposal
                chance = proposal * accept
            assert accept <= 1
            assert abs(chance / target - 1) < Decimal("1e-50")


def test_the_tail_continues_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a table that ends at one sigma a third of all values come from the tail's sampler."""
    monkeypatch.setattr(gaussian, "_REACH", 1.0)
    noise = GaussianNoise(1 << 30)
    values = noise.draw(Random(seed=6), 4000)
    assert (np.abs(values) > 2.0**15 * 1.05).mean() > 0.2
    assert not rejected(values, 2.0**15)
    assert rejected(values, 2.0**15 * 1.15)


def test_draws_do_not_depend_on_how_they_are_cut() -> None:
    whole = GaussianNoise(1 << 50).draw(Random(seed=7), 20_000)
    rng, noise = Random(seed=7), GaussianNoise(1 << 50)
    parts = [noise.draw(rng, n) for n in (1, 0, 4095, 4097, 11_807)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_small_variances_use_the_reference() -> None:
    twin = Random(seed=8)
    assert GaussianNoise(25).draw(Random(seed=8), 50).tolist() == [exact_gaussian(twin.below, 25, 1) for _ in range(50)]


def test_lazy_comparison_agrees_with_rationals() -> None:
    rng = Random(seed=9)
    assert sum(_below(rng, rng.word(), lambda digits: Decimal(1) / 3) for _ in range(3000)) in range(850, 1150)
    assert not _below(rng, 1 << 63, lambda digits: Decimal(0))


@pytest.mark.parametrize("bad", [0, -1, 2.5, (1 << 84) + 1])
def test_other_variances_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="sigma2"):
        GaussianNoise(bad)  # type: ignore[arg-type]


def test_opendp_draws_the_same_law() -> None:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    sigma = 2.0**14
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    theirs = np.array(opendp.m.make_gaussian(*space, scale=sigma)([0] * 3000))
    ours = GaussianNoise(1 << 28).draw(Random(seed=10), 3000)
    assert stats.ks_2samp(theirs, ours).pvalue > LEVEL
    assert stats.ks_2samp(theirs * 1.5, ours).pvalue < LEVEL
