"""What an audit can find: the exact power, against games and against what it must be."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import confide
from confide.games import OnlineGame, SplitVote, WorstMargin
from confide.games.fit import cuts, misfit, odd_hits
from confide.games.power import Fault, faulty_laws, power, smallest
from confide.games.scenarios import split_plan
from confide.pop.loop import Loop

pytestmark = pytest.mark.claim("audit.md")

PLAN = split_plan(8.0, unsure=20, rounds=300, copies=160)


def test_nothing_wrong_is_found_as_rarely_as_stated() -> None:
    for games in (100, 3000):
        found = power(PLAN, games, Fault(), ones=100)
        assert found.fit <= 0.5e-6 and found.certificate <= 0.5e-6


@pytest.mark.parametrize("games, expected", [(40, 0.0), (40, 0.3), (4000, 0.97), (10**6, 1e-7), (50, 1.0)])
@pytest.mark.parametrize("level", [0.1, 1e-6, 1e-9])
def test_odd_hits_are_as_rare_as_they_say_and_not_rarer_than_needed(games: int, expected: float, level: float) -> None:
    low, high = odd_hits(games, expected, level)
    assert binom.cdf(low - 1, games, expected) <= level / 2 and binom.sf(high, games, expected) <= level / 2
    assert low == games or binom.cdf(low, games, expected) > level / 2
    assert high == 0 or binom.sf(high - 1, games, expected) > level / 2


def test_a_larger_fault_and_more_games_are_found_more_often() -> None:
    for kind in ("entry", "skipped"):
        found = [power(PLAN, 4000, Fault(**{kind: size}), ones=100).fit for size in (0.0, 0.05, 0.3, 1.0)]
        assert found == sorted(found) and found[-1] > 0.5
    shifts = [power(PLAN, 4000, Fault(shifted=n), ones=100) for n in (0, 1, 3, 12)]
    assert [one.fit for one in shifts] == sorted(one.fit for one in shifts)
    assert shifts[-1].certificate > 0.99 > shifts[0].certificate  # a count that moves by 13 is a leak
    needed = [smallest(PLAN, games, "entry", ones=100) for games in (100, 10_000)]
    assert needed[0] is not None and needed[1] is not None and 0.001 < 5 * needed[1] < needed[0] < 0.3
    assert smallest(PLAN, 100, "skipped", "certificate", ones=100) is None


class _Skips(Loop):
    """No halting draw after a sure answer."""

    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Any) -> tuple[int, int]:
        label = super().live(x, malformed, who, scores)
        if label[0] >= 0:
            self.account.halted = None
        return label


class _Twice(Loop):
    """Counts the first round's unsure answer thirteen times."""

    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Any) -> tuple[int, int]:
        first = self.account.rounds == 1
        label = super().live(x, malformed, who, scores)
        self.account.unsure += 12 * (first and self.account.unsure)
        return label


SKIPPED, SHIFTED = Fault(skipped=1.0), Fault(shifted=12)


@pytest.mark.parametrize("loop, fault, other", [(_Skips, SKIPPED, SHIFTED), (_Twice, SHIFTED, SKIPPED)])
def test_games_against_faulty_mechanisms_have_the_law_that_the_power_is_made_from(
    loop: Any, fault: Fault, other: Fault
) -> None:
    """Sixty games at each bit fit the fault's own laws (false positives: 10⁻⁷), and not those of another fault."""

    class Faulty(confide.POP):
        loop_type = loop

    adversary = WorstMargin(PLAN, ones=100)
    make = lambda: Faulty(SplitVote(), PLAN, labels=[0, 1], features=2, fallback=0, after_halt="raise")  # noqa: E731
    game = OnlineGame(make, adversary, PLAN.rounds)
    rows = [np.array([adversary.numbers(game.play(bit)) for _ in range(60)]) for bit in (0, 1)]
    found = []
    for one in (fault, other):
        laws = faulty_laws(adversary, one)
        assert laws[0].zero.sum() == pytest.approx(1) == laws[0].one.sum()
        found.append(misfit(laws, rows[0], rows[1], 1e-7))
    assert found[0] is None and found[1] is not None


def test_the_cuts_are_known_before_the_games() -> None:
    laws = WorstMargin(PLAN, ones=100).laws()
    known = cuts(laws)
    assert {number for number, *_ in known} == {0, 1, 2} and {bit for _, bit, *_ in known} == {0, 1}
    for number, bit, threshold, share in known:
        values, law = laws[number].values, (laws[number].zero, laws[number].one)[bit]
        assert share == pytest.approx(law[values > threshold].sum(), abs=1e-12)
    assert [field.name for field in fields(Fault)] == ["entry", "skipped", "shifted"]
