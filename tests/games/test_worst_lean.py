"""The worst case of gate and lean: its exact laws against enumeration and games, its audit under the certificate."""

from __future__ import annotations

import numpy as np
import pytest

from confide.games import OnlineGame, Region, WorstMargin, audit
from confide.games.fit import misfit
from confide.games.laws import outcomes, shares, unsure_share
from confide.games.power import Fault, power
from confide.games.scenarios import SCENARIOS, SplitPOP, split_plan
from confide.games.worst_lean import GRAIN, MOST, Tilt, WorstLean, lean_yardstick, leaned_curve
from confide.planning.plan import Plan
from confide.privacy.halting import Halting
from tests.broken.leans import half_width

pytestmark = pytest.mark.claim("audit.md")

PLAN = split_plan(8.0, unsure=20, rounds=240, copies=200, lean="fill")
TINY = Halting([int(0.9 * 2**64), int(0.8 * 2**64), int(0.5 * 2**64), int(0.25 * 2**64), 0], shift=1)


@pytest.mark.parametrize("hidden", [0, 1])
def test_the_law_of_three_outcomes_is_what_enumeration_gives(hidden: int) -> None:
    """All paths of six rounds, each sure, or unsure with either label; a cell holds its paths and no others."""
    rounds, tilt, odds = 6, Tilt(0.3, 0.45), (0.5, 0.65)
    worlds = outcomes(odds[0], TINY, 0, rounds), outcomes(odds[1], TINY, hidden, rounds)
    curve, halted, alive = leaned_curve(worlds, tilt)
    found = np.zeros((2, curve.zero.size))

    def go(bit: int, u: int, s: int, first: int, chance: float) -> None:
        """A round was taken, or none yet; the halting draw is next."""
        h = TINY.table[min(u + (hidden if bit else 0), TINY.stop)]
        labels = int(tilt.steps(u, first))
        found[bit, np.clip(halted[u, s] + labels, -MOST, MOST) + MOST] += chance * h
        if u + s == rounds:
            found[bit, np.clip(alive[u] + labels, -MOST, MOST) + MOST] += chance * (1 - h)
        elif h < 1:
            p, f = odds[bit], (tilt.zero, tilt.one)[bit]
            for more, share in (((0, 1, 0), 1 - p), ((1, 0, 1), p * f), ((1, 0, 0), p * (1 - f))):
                go(bit, u + more[0], s + more[1], first + more[2], chance * (1 - h) * share)

    for bit in (0, 1):
        go(bit, 0, 0, 0, 1.0)
    assert np.allclose(found, [curve.zero, curve.one], atol=1e-14) and curve.zero.sum() == pytest.approx(1)
    likely = np.flatnonzero(curve.zero > 1e-6)
    if hidden == 0:  # then the counts are sufficient, and a cell's place is its log-likelihood but for the grain
        assert np.abs(curve.scores[likely] - (likely - MOST) * GRAIN).max() <= 1.01 * GRAIN


def test_shares_are_those_of_the_leans_middle_row() -> None:
    lean, middle = PLAN.lean, len(PLAN.lean.offsets) // 2  # type: ignore[union-attr]
    for ones in (90, 100, 120, 199):
        column = lean.margins + 200 - 2 * ones  # type: ignore[union-attr]
        unsure, first = shares(PLAN, ones)
        assert unsure == lean.unsure[middle, column] == unsure_share(PLAN, ones)  # type: ignore[union-attr]
        assert first == pytest.approx(unsure * int(lean.first[middle, column]) / 2**64)  # type: ignore[union-attr]
    polled = split_plan(8.0, 30, 500, 300, polls=101, silent=200, lean="fill")
    votes = np.zeros(300, dtype=int)
    votes[:160] = 1
    rng, table = np.random.default_rng(3), polled.lean
    drawn = [101 - 2 * int(rng.choice(votes, 101, replace=False).sum()) for _ in range(3000)]
    sampled = table.unsure[len(table.offsets) // 2, np.array(drawn) + table.margins]  # type: ignore[union-attr]
    assert shares(polled, 160)[0] == pytest.approx(sampled.mean(), abs=6 * sampled.std() / 3000**0.5 + 1e-9)


def test_reading_the_labels_is_the_better_attack_and_stays_under_the_certificate() -> None:
    """Exactly, without games: every test of the best constant query lies in the region that the integers certify."""
    curve, ones = lean_yardstick(PLAN)
    region = Region.of(PLAN)
    false, true = curve.corners
    assert all(region.holds(a, b - 1e-9) for a, b in zip(false[::20], true[::20], strict=True))
    plain = WorstMargin(PLAN)  # the same mechanism, and only sure or unsure looked at
    known = plain.law()
    assert known is not None and curve.advantage > known.advantage + 0.02
    assert 0.85 * 8 < curve.epsilon(1e-6) < 8
    wrong = WorstLean(half_width(PLAN), ones=ones).law()
    false, true = wrong.corners
    assert not all(region.holds(a, b) for a, b in zip(false, true, strict=True)), "γ halved leaks more than is allowed"


def played(plan: Plan, adversary: WorstLean, games: int) -> list[np.ndarray]:
    game = OnlineGame(SplitPOP(plan, "people" if adversary.person else "rounds"), adversary, plan.rounds)
    return [np.array([adversary.numbers(game.play(bit)) for _ in range(games)]) for bit in (0, 1)]


@pytest.mark.parametrize("person", [False, True])
def test_games_have_the_exact_law(person: bool) -> None:
    """Forty games at each bit fit all laws: false positives 10⁻⁷ each."""
    adversary = WorstLean(PLAN, person=person)
    rows = played(PLAN, adversary, 40)
    assert misfit(adversary.laws(), rows[0], rows[1], 1e-7) is None
    moved = [row + np.array([0, 0, 0, 12]) for row in rows]
    assert misfit(adversary.laws(), moved[0], moved[1], 1e-7) is not None  # and it can fail


def test_the_auditor_sees_that_a_lean_has_half_its_width() -> None:
    """Six hundred games at each bit miss it once in 10⁸; on the right width they would object with probability 10⁻⁷."""
    adversary = WorstLean(PLAN, ones=100)
    rows = played(half_width(PLAN), adversary, 600)
    found = misfit(adversary.laws(), rows[0], rows[1], 1e-7)
    assert found is not None and found.number in ("first labels", "score")


def test_an_audit_comes_close_to_the_yardstick() -> None:
    """The alarm's level is 10⁻⁶. The bound is about 0.76 of what is exact, with a deviation of 0.06: 5.5 of them below
    it has a chance of 10⁻⁷, and above the certificate it does not come at all."""
    exact, ones = lean_yardstick(PLAN)
    report = audit(SplitPOP(PLAN), WorstLean(PLAN, ones=ones), 500, certificate=PLAN, yardstick=exact)
    assert not report.alarm and report.misfit is None
    assert 0.42 * exact.advantage < report.advantage < Region.of(PLAN).advantage


def test_the_scenarios_play_a_lean() -> None:
    keys = [scenario.key for scenario in SCENARIOS if scenario.key.startswith("lean")]
    assert keys == ["lean1", "lean4", "lean8"]
    ready = next(scenario for scenario in SCENARIOS if scenario.key == "lean8").prepare()
    assert isinstance(ready.game.adversary, WorstLean) and ready.exact is not None
    assert ready.game.adversary.law().advantage == pytest.approx(ready.exact.advantage, rel=5e-3)


def test_what_it_cannot_play_is_refused() -> None:
    coin = split_plan(8.0, unsure=20, rounds=240, copies=200)
    with pytest.raises(ValueError, match="a lean of two labels"):
        WorstLean(coin)
    for wrong in ({"ones": 200}, {"ones": 100, "late": True}, {"ones": 100, "turned": True}):
        with pytest.raises(ValueError, match=r"WorstLean|both sides"):
            WorstLean(PLAN, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without a lean"):
        power(PLAN, 100, Fault(entry=0.1))


def test_the_region_of_weights_is_theirs() -> None:
    """A region that counted the gate alone would be too small."""
    plan = Plan.tight(8.0, 1e-6, 300, copies=200, polls=200, unsure=20, silent=0, guide=None, lean="additive", labels=3)
    assert Region.of(plan).advantage > Region.of(plan.but(lean=None)).advantage + 0.01
