"""Adversaries beyond the worst margin: last drop, groups, people, composition, membership, the paper's simulator."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact

import confide
from confide.games import (
    BOTTOM,
    ChallengeATGame,
    CompositionGame,
    LastDrop,
    Membership,
    OnData,
    OnlineGame,
    Region,
    Repeated,
    Round,
    Simulator,
    SplitVote,
    Unprotected,
    WorstMargin,
    audit,
    audit_game,
    yardstick,
)
from confide.games.scenarios import SCENARIOS, SplitPOP, split_plan
from confide.learners import Perceptron, Thresholds
from confide.pop.loop import Loop
from confide.privacy.sparse import ChallengeAT

PLAN = confide.Plan.tight(8, 1e-6, 300, copies=160, polls=160, unsure=20, silent=0, beta=1e-6, guide=None)


class _ExactCount(Loop):
    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Any) -> tuple[int, int]:
        label = super().live(x, malformed, who, scores)
        self.account.halted = "budget" if self.account.unsure >= 60 else None
        return label


class ExactCount(confide.POP):
    """Broken on purpose: halts exactly at a count."""

    loop_type = _ExactCount


def exact_count() -> ExactCount:
    return ExactCount(SplitVote(), PLAN, labels=[0, 1], features=2, fallback=0)


def test_last_drop_catches_an_exact_count_and_not_the_halting_gate() -> None:
    broken = audit(exact_count, LastDrop(PLAN, at=59), 150, certificate=PLAN)
    assert broken.alarm and broken.advantage > 0.8
    report = audit(SplitPOP(PLAN), LastDrop(PLAN), 60, certificate=PLAN, confidence=1 - 1e-6)
    assert not report.alarm and report.advantage < 0.2
    views = [OnlineGame(SplitPOP(PLAN), LastDrop(PLAN, at=5), 300).play(bit) for bit in (0, 1)]
    assert all(view.answers[5] is BOTTOM and not any(a.sure for a in view.answers[:5]) for view in views)


def test_last_drop_watches_where_the_table_leaks_most() -> None:
    drop = LastDrop(PLAN)
    h = PLAN.halting.table  # type: ignore[union-attr]
    assert 20 < drop.at < h.size - 1
    leaks = [drop._leak(at) for at in range(h.size - 2)]
    assert drop._leak(drop.at) == max(leaks) < 0.1  # what one halt may tell


def test_a_group_leaks_more_than_one_and_less_than_its_theorem() -> None:
    plan = split_plan(2.0, unsure=50, rounds=500, copies=500)
    adversary = WorstMargin(plan, challenges=3)
    assert adversary.law() is None
    region = Region.of(plan)
    with pytest.raises(ValueError, match="more than 1 challenges"):
        audit(SplitPOP(plan), adversary, 20)
    report = audit(SplitPOP(plan), adversary, 300, challenges=3, certificate=region.of_group(3))
    assert 0.05 < report.advantage < region.of_group(3).advantage and not report.alarm
    exact = yardstick(plan, shift=3, step=3)[0].advantage
    assert region.advantage < exact < region.of_group(3).advantage  # three changed votes are not one


@pytest.mark.parametrize("most", [1, 3, 10])
def test_people_of_fifty_rounds_interleaved_and_late(most: int) -> None:
    plan = split_plan(8.0, unsure=20, rounds=400, copies=220, unit_unsure=most)
    adversary = WorstMargin(plan, ones=124, challenges=50, person=True, late=True)
    game = OnlineGame(SplitPOP(plan, "people"), adversary, plan.rounds)
    view = game.play(1)
    hidden = view.answers[:100:2]
    assert hidden == [BOTTOM] * len(hidden) and BOTTOM not in view.answers[1::2]
    report = audit_game(game, 40, certificate=plan)
    assert not report.alarm


def test_without_the_cap_the_count_would_tell() -> None:
    """A person of 50 unsure answers against a table that hides one: the alarm sounds, so the test above can fail."""

    class Uncapped(Loop):
        def live(self, x: Any, malformed: bool, who: bytes | None, scores: Any) -> tuple[int, int]:
            self.account.shares.clear()
            return super().live(x, malformed, who, scores)

    class NoCap(confide.POP):
        loop_type = Uncapped

    plan = split_plan(8.0, unsure=20, rounds=400, copies=220)
    adversary = WorstMargin(plan, ones=124, challenges=30, person=True, late=True)

    def make() -> NoCap:
        return NoCap(SplitVote(), plan, labels=[0, 1], features=2, fallback=0, units="people", after_halt="raise")

    assert audit(make, adversary, 200, certificate=plan, learned=True).alarm


def test_composition_leaks_more_than_one_game_and_less_than_its_theorem() -> None:
    adversary = WorstMargin(PLAN)
    game = CompositionGame(Repeated(SplitPOP(PLAN), adversary, 3), 3)
    region = Region.of(PLAN)
    report = audit_game(game, 150, certificate=region.of_composition(3, 1e-6))
    single = adversary.law()
    assert single is not None
    assert single.advantage / 4 < report.advantage and not report.alarm
    patient, hasty = Repeated(SplitPOP(PLAN), adversary, 3), Repeated(SplitPOP(PLAN), adversary, 3, enough=0.0)
    assert len(CompositionGame(patient, 3).play(0).answers) == 3
    assert len(CompositionGame(hasty, 3).play(0).answers) < 3  # it stops when it has seen enough


def records(rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(11)
    xs = rng.normal(size=(rows, 2))
    return xs, (xs[:, 0] > 0).astype(int)


def test_the_membership_that_is_audited_brings_a_persons_wrong_label() -> None:
    game = next(scenario for scenario in SCENARIOS if scenario.key == "member8").prepare().game
    attack = game.adversary
    x, y = attack.target[0]
    assert len(attack.xs) == 2000 and 600 < attack.ys.sum() < 1400 and len(attack.target) == 10
    assert np.array_equal(attack.probes[0], x) and y == 1 - int(abs(x[2] - 0.5) > 1 / 6)
    views = [OnlineGame(game.make_mechanism, attack, 10).play(bit) for bit in (0, 1)]
    assert [len(view.answers) for view in views] == [10, 10]


def test_membership_is_plain_in_an_unprotected_learner_and_hidden_by_confide() -> None:
    xs, ys = records(400)
    target = [(np.array([8.0, 8.0]), 0)] * 20
    attack = Membership(xs, ys, target, np.tile([2.0, 2.0], (5, 1)))
    plain = audit(lambda: Unprotected(Perceptron()), attack, 100, rounds=10, challenges=20)
    assert plain.advantage > 0.6
    plan = confide.Plan.tight(8, 1e-6, 300, copies=160, polls=160, unsure=20, silent=0, beta=1e-6, guide=None)

    def make() -> confide.POP:
        return confide.POP(Perceptron(), plan, labels=[0, 1], features=2, units="people", after_halt="raise")

    person = Membership(xs, ys, target, np.tile([2.0, 2.0], (5, 1)), people=True)
    private = audit(make, person, 100, rounds=10, certificate=plan, confidence=1 - 1e-6)
    assert private.advantage == 0 and not private.alarm


class Asks:
    """Challenges once, then asks adaptively: the next question is where the last answer was unsure or not."""

    def __repr__(self) -> str:
        return "Asks()"

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        x = 4
        yield Round(((2,), 1), ((6,), 0), challenge=True)
        for _ in range(12):
            seen = yield Round(((x,), int(x > 3)))
            x = (x + 1 + seen.sure + 2 * seen.label) % 8


def test_the_simulator_shows_its_adversary_what_pop_would() -> None:
    """The two laws of every visible answer agree: Fisher's exact test, 26 comparisons at 10⁻⁸ each."""
    copies, games = 200, 20
    plan = confide.Plan.paper(60, 1e-6, 40, copies=copies, unsure=10)
    budget: Any = plan.halting

    def pop() -> confide.POP:
        return confide.POP(Thresholds(8), plan, labels=[0, 1], features=1, after_halt="raise")

    def at(data: Any) -> OnData:
        share = budget.epsilon / 60
        made = ChallengeAT(epsilon=60, delta=1e-6, threshold=-copies // 4, reports=10, rounds=40, counter_share=share)
        return OnData(data, made)

    direct = OnlineGame(pop, Asks(), 13)
    simulated = ChallengeATGame(at, Simulator(Asks(), Thresholds(8), copies, 1), 13)
    for bit in (0, 1):
        sure = [[0] * 13 for _ in range(2)]
        for _ in range(games):
            real, fake = direct.play(bit), simulated.play(bit)
            assert real.answers[0] is fake.answers[0] is BOTTOM
            for i in range(1, 13):
                sure[0][i] += real.answers[i].sure if i < len(real.answers) else 0
                sure[1][i] += (not fake.answers[i]) if i < len(fake.answers) else 0
        for i in range(1, 13):
            table = [[sure[w][i], games - sure[w][i]] for w in (0, 1)]
            assert fisher_exact(table)[1] > 1e-8
    with pytest.raises(ValueError, match="even"):
        Simulator(Asks(), Thresholds(8), 601, 1)
