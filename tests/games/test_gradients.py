"""The guide's own worst case, played: found, under its certificate, and other noise than the plan's is noticed."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from confide import POP
from confide.games import Batch, OnlineGame, OppositeLabels, Report, Round, View, audit_game
from confide.games.scenarios import guide_plan
from confide.privacy.random import Random
from tests.broken.guides import CapIgnored, HalfNoise

pytestmark = pytest.mark.claim("audit.md")


def played(epsilon: float, labels: int, games: int, kind: type[POP] = POP, seed: int = 1) -> Report:
    plan, rng, person = guide_plan(epsilon, labels), Random(seed=seed), labels > 1

    def make() -> POP:
        units = "people" if person else "rounds"
        return kind(None, plan, labels=[0, 1], features=1, fallback=0, units=units, seed=rng.below(1 << 62))  # type: ignore[arg-type]

    return audit_game(OnlineGame(make, OppositeLabels(plan, person), plan.rounds), games, certificate=plan)


@pytest.mark.parametrize(("epsilon", "labels", "games"), [(1.0, 1, 150), (4.0, 1, 150), (8.0, 4, 1300)])
def test_the_worst_case_is_found_and_stays_under_the_certificate(epsilon: float, labels: int, games: int) -> None:
    """A false alarm with probability 10⁻⁶; `make audit` has the games that smaller ε need."""
    report = played(epsilon, labels, games)
    assert not report.alarm and report.misfit is None, str(report)
    assert report.epsilon <= epsilon
    assert report.law is not None
    if games > 1000:
        assert 0.8 * report.law.advantage <= report.advantage <= report.law.advantage


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_the_exact_law_is_that_of_two_gaussians(epsilon: float) -> None:
    adversary = OppositeLabels(guide_plan(epsilon))
    guide, mu = adversary.guide, adversary.distance
    released = sum(int(f) ** 2 for f in guide.root.column(0)[:4])
    assert mu == pytest.approx(2 * guide.clip * math.sqrt(released / guide.sigma2), rel=1e-3)
    assert adversary.law().advantage == pytest.approx(2 * norm.cdf(adversary.distance / 2) - 1, rel=1e-4)
    assert 0.9 * epsilon < adversary.law().epsilon(1e-6) <= epsilon


def test_the_score_is_the_likelihood_ratio() -> None:
    adversary = OppositeLabels(guide_plan(4.0))
    rng, sigma = np.random.default_rng(1), math.sqrt(adversary.guide.sigma2)
    zero, one = adversary._means
    factor = adversary.guide.root.column(0)[:4]
    for _ in range(20):
        rows = [int(f) * one + np.rint(rng.normal(0, sigma, one.size)).astype(np.int64) for f in factor]
        exact = sum(
            float((((row - int(f) * zero) / sigma) ** 2 - ((row - int(f) * one) / sigma) ** 2).sum()) / 2
            for f, row in zip(factor, rows, strict=True)
        )
        assert adversary.score(View(released=rows)) == pytest.approx(exact, abs=0.02)


def test_half_of_the_noise_is_another_mechanism_at_once() -> None:
    report = played(8.0, 1, 40, HalfNoise)
    assert report.misfit is not None and report.misfit.number == "noise", str(report)


class _Many(OppositeLabels):
    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        for _ in range(5):
            yield Round(((1.0,), 0), ((1.0,), 1), challenge=True, unit="alice")
        yield Batch(np.ones((28, 1)), None, [f"{i}" for i in range(28)])


def test_a_cap_that_is_ignored_leaks_more_than_is_certified() -> None:
    """Five labels of a person whose guide learns one; the score knows only the one."""
    plan = guide_plan(8.0)
    adversary = _Many(plan, True)
    rng = Random(seed=1)
    reports = []
    for kind in (POP, CapIgnored):

        def make(kind: type[POP] = kind) -> POP:
            return kind(None, plan, labels=[0, 1], features=1, fallback=0, units="people", seed=rng.below(1 << 62))

        reports.append(audit_game(OnlineGame(make, adversary, plan.rounds), 300, certificate=plan))
    assert [report.alarm for report in reports] == [False, True]


@pytest.mark.parametrize("labels", [1, 4])
def test_other_games_are_refused(labels: int) -> None:
    with pytest.raises(ValueError, match="one leaf"):
        OppositeLabels(guide_plan(8.0, 9), person=True)
    with pytest.raises(ValueError, match="another number of sums"):
        OppositeLabels(guide_plan(8.0, labels), person=True).score(View())
