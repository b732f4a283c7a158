"""A guide without an end that hardly anybody teaches any more: what it knows stays, and what is taught is learned."""

from __future__ import annotations

import json
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.guide import leaves as leaves_module
from confide.guide.carried import Carried
from confide.guide.change import SLOW, Part, Told
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.linear import MODELS
from confide.guide.silence import Silence, Span, often
from confide.planning.guided import GuidePlan
from confide.planning.stages import ends_of
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

COLUMNS, ROUNDS, MORE = Columns.of_array(3), 24_000, 4000
ROWS = np.random.default_rng(7).uniform(0, 10, (ROUNDS + MORE, 3))
FIRST, OTHER = ((ROWS[:, 0] + ROWS[:, i] > 9).astype(np.int64) for i in (1, 2))
TESTED = slice(ROUNDS, None)


def planned(epsilon: float, leaf: int) -> GuidePlan:
    """A plan whose epochs are short: 128 leaves, of at most so many rounds."""
    best, growth = GuidePlan.best(epsilon, 1e-6), 64
    warm = len(ends_of(best.range_rounds, leaf, growth))
    return replace(best, leaves=128, leaf=leaf, growth=growth, warm_leaves=warm)


PLAN, LONGER = planned(8.0, 128), planned(8.0, 1024)


def error(guide: Guide, labels: NDArray[np.int64]) -> float:
    """How often its model errs on rows that it was not taught."""
    model = guide.model
    said = np.array([model.score(model.features.encode(x)) for x in ROWS[TESTED]]).argmax(axis=1)
    return float((said != labels[TESTED]).mean())


def again(guide: Guide, seed: int = 9) -> Guide:
    """The same guide, loaded, with other noise to come."""
    other = Guide(guide.plan, COLUMNS, rng=Random(seed=seed))
    other.resume(guide.rounds, guide.releases())
    return other


def taught(plan: GuidePlan, rounds: int, seed: int = 1) -> Guide:
    guide = Guide(plan, COLUMNS, rng=Random(seed=seed))
    guide.follow(ROWS[:rounds], FIRST[:rounds])
    return guide


def asked(guide: Guide, epochs: float, labels: NDArray[np.int64] = FIRST, each: int = 0, seed: int = 1) -> None:
    """So many epochs in which of each leaf's rounds only so many bring a label."""
    rng = np.random.default_rng(seed)
    for _ in range(int(epochs * guide.plan.leaves)):
        if each:
            rows = rng.integers(0, ROUNDS, each)
            guide.follow(ROWS[rows], labels[rows])
        guide.go_to(guide._began + guide._leaves.stage.ends[guide._leaves.closed])
        guide._close_due()


@cache
def silent(seed: int = 1) -> tuple[Guide, float]:
    """After thirty epochs without a label, and how it erred before them."""
    guide = taught(PLAN, ROUNDS, seed)
    before = error(guide, FIRST)
    later = again(guide, seed + 100)
    asked(later, 30)
    return later, before


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_learned_stays_when_nobody_teaches_any_more(seed: int) -> None:
    guide, before = silent(seed)
    assert before < 0.05 and guide._leaves.silence.quiet
    assert error(guide, FIRST) < 1.1 * before + 0.005


def test_in_silence_what_answers_has_the_same_bits_for_ever() -> None:
    guide = again(silent()[0])
    model = json.dumps(guide.model.params())
    for _ in range(8):
        asked(guide, 0.5)
        assert json.dumps(guide.model.params()) == model
    assert guide._leaves.silence.epochs > 25


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_only_asks_does_not_bring_an_old_rule_back(seed: int) -> None:
    """A young model, of a rule that has changed: the one of before errs twice as often."""
    rounds = 13_000
    guide = Guide(LONGER, COLUMNS, rng=Random(seed=seed))
    guide.follow(ROWS[:rounds], np.where(np.arange(rounds) < 12_000, FIRST[:rounds], OTHER[:rounds]))
    before = error(guide, OTHER)
    asked(guide, 0.5)
    assert guide._leaves.silence.quiet
    assert error(guide, OTHER) < 1.1 * before + 0.005 < 0.2


@pytest.mark.parametrize("stops", [-150, 150])
def test_what_stays_is_hardly_noisier_where_an_epoch_has_just_begun(stops: int) -> None:
    guide = taught(PLAN, 15_392 + stops)  # where PLAN's second epoch ends
    assert guide.epoch == (1 if stops < 0 else 2)
    before = error(guide, FIRST)
    asked(guide, 2)
    assert guide._leaves.silence.quiet
    assert error(guide, FIRST) < 1.1 * before + 0.002


def test_where_nothing_waits_the_model_becomes_a_coin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double: the same silence, and the same noise, without the rule."""
    monkeypatch.setattr(leaves_module, "often", lambda part, units: None)
    guide = taught(PLAN, ROUNDS)
    before = error(guide, FIRST)
    asked(guide, 40)
    assert error(guide, FIRST) > 4 * before + 0.01


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_while_labels_come_often_not_one_bit_is_otherwise(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(epsilon, 256)
    guide = taught(plan, ROUNDS)
    assert guide.epoch > 0 and guide._leaves.silence.often and not guide._leaves.silence.quiet
    monkeypatch.setattr(leaves_module, "often", lambda part, units: None)
    other = taught(plan, ROUNDS)
    assert guide.model.params() == other.model.params()
    assert guide._leaves.theta.tobytes() == other._leaves.theta.tobytes()


def rarely(each: int, epochs: int) -> tuple[float, float]:
    """How a guide errs that was taught little, then few labels of another rule: before, and after so many epochs."""
    guide = taught(LONGER, 6000)
    asked(guide, 1)
    assert guide._leaves.silence.quiet
    before = error(guide, OTHER)
    asked(guide, epochs, OTHER, each)
    assert guide._leaves.silence.quiet  # they never came often
    return before, error(guide, OTHER)


@pytest.mark.parametrize(("each", "epochs"), [(8, 8), (1, 40)])
def test_rare_labels_are_learned(each: int, epochs: int) -> None:
    """One round in 128 has a label, or one in 1,024."""
    before, after = rarely(each, epochs)
    assert before > 0.25 and after < before / 2


def test_a_guide_that_never_hears_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double: nothing is ever better than what answers."""
    monkeypatch.setattr(Silence, "better", lambda self, told: (-1, False))
    before, after = rarely(8, 8)
    assert before == after > 0.25


def test_a_guide_that_forgets_what_it_heard_when_an_epoch_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double: every epoch listens anew, and so hardly any label is ever heard."""
    over = Silence.over

    def forgets(self: Silence, told: Told) -> Silence:
        found = over(self, told)
        return replace(found, trial=Span.after(found.window.variance.size))

    monkeypatch.setattr(Silence, "over", forgets)
    before, after = rarely(1, 40)
    assert before == after


def test_labels_that_come_often_again_teach_as_ever() -> None:
    guide = again(silent()[0])
    answers = guide.follow(ROWS, OTHER).answers
    assert not guide._leaves.silence.quiet
    assert (answers != OTHER)[-MORE:].mean() < 0.08


@pytest.mark.parametrize("seed", [1, 6])
def test_noise_of_a_long_silence_is_not_taken_for_what_was_learned(seed: int) -> None:
    """With seed 6 the silence's sums were above 0, by noise: θ went on from them when labels came again."""
    found, before = silent(seed)
    guide, rng = again(found, seed + 200), np.random.default_rng(seed)
    while guide._leaves.silence.quiet:
        rows = rng.integers(0, ROUNDS, 40)
        guide.follow(ROWS[rows], FIRST[rows])
    assert error(guide, FIRST) < 1.1 * before + 0.005


def test_labels_that_were_all_exchanged_in_a_long_silence_are_found() -> None:
    guide = again(silent()[0])
    rounds, wrong = guide.rounds, guide.follow(ROWS, 1 - FIRST).answers == FIRST
    assert wrong[:200].mean() > 0.9
    assert rounds // 20 < ROUNDS + MORE - 2000 and wrong[rounds // 20 :].mean() < 0.05


def alike(one: Any, other: Any) -> bool:
    """To the last bit, whatever is in it."""
    if is_dataclass(one):
        assert type(one) is type(other)
        return alike(tuple(vars(one).values()), tuple(vars(other).values()))
    if isinstance(one, tuple):
        return all(alike(a, b) for a, b in zip(one, other, strict=True))
    return np.array_equal(np.asarray(one), np.asarray(other))


def test_a_load_in_the_midst_of_silence_has_the_same_bits() -> None:
    """Other exact sums, the same released rows: whether labels came is decided by what was released."""
    guide = again(silent()[0])
    for step in range(6):
        asked(guide, 0.3, OTHER, each=[0, 1, 0, 60, 60, 0][step])
        other = Guide(PLAN, COLUMNS, rng=Random(seed=20 + step))
        other.resume(guide.rounds, [one._replace(exact=np.zeros_like(one.exact)) for one in guide.releases()])
        mine, its = guide._leaves, other._leaves
        assert mine.theta.tobytes() == its.theta.tobytes() and mine.models.tobytes() == its.models.tobytes()
        assert guide.model.params() == other.model.params()
        assert alike(mine.silence, its.silence)


def test_what_an_epoch_leaves_to_the_next_is_all_of_it() -> None:
    leaves = silent()[0]._leaves
    stage = leaves.plan.epoch(leaves.stage.epoch + 1)
    carried = leaves.carried()
    found = Carried.unpack(carried.pack(leaves.features, stage.before), leaves.features, 1, stage)
    assert found is not None
    assert alike(carried.silence, found[0].silence)


def part(rows: list[float], noise: float, rounds: int) -> Part:
    return Part(np.array([*rows, 0.0]), np.full(len(rows), noise), rounds)


def test_labels_come_often_where_a_loss_has_gained_a_row_in_64_rounds() -> None:
    units = np.array([3, 3, 3, 2, 1, 1])
    none = [0.0] * MODELS
    assert often(part([*none, 0.0, 61.0], 10.0, 3840), units) is True
    assert often(part([*none, 0.0, -61.0], 10.0, 3840), units) is True  # whichever way
    assert often(part([*none, 0.0, 59.0], 10.0, 3776), units) is None  # not clear of noise
    assert often(part([*none, 0.0, 61.0], 10.0, 64 * 62), units) is None  # it may be noise that it is less
    assert often(part([*none, 0.0, 61.0], 10.0, 64 * 102), units) is False
    assert often(part([*none, 0.0, 0.0], 10.0, 64 * 40), units) is None
    assert often(part([*none, 0.0, 0.0], 10.0, 64 * 41), units) is False
    far = part([0.0, 0.0, 1e9, 0.0, 0.0, 0.0], 10.0, 64 * 41)  # what is not counted tells nothing
    assert often(far, np.array([3, 3, 0, 2, 1, 1])) is False


def test_noise_alone_is_hardly_ever_better_than_what_answers() -> None:
    """By six deviations: so few false alarms that none comes in the life of a service."""
    guide, _ = silent()
    silence, told = guide._leaves.silence, guide._leaves._known(guide._leaves.closed)
    for found, better in ((-1.0, -1), (1e-3, 0), (1e9, 0)):
        rows = np.zeros(told.rows.shape[1])
        rows[SLOW] = found
        trial = Span(rows, np.ones(rows.size - 1), 10, told.closed)
        best, sure = replace(silence, trial=trial).better(told)
        assert (best < 0) is (better < 0) and sure is (found > 100)
