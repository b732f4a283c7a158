"""What answers is chosen by released losses, and said as surely as it is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from confide.guide.candidates import Choice, keeps
from confide.guide.columns import Columns
from confide.guide.guide import Guide, Release
from confide.guide.hashed import HashedMap
from confide.guide.linear import MODELS, units
from confide.guide.maps import FeatureMap
from confide.guide.middle import mean_row
from confide.guide.model import Model
from confide.guide.ranges import declared, from_sample
from confide.planning.guided import GuidePlan
from confide.planning.stages import STEADY
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

PLAN = GuidePlan.best(epsilon=4.0, delta=1e-6, rounds=20_000, private_ranges=False)
STAGE, CLIP = PLAN.main, PLAN.clip
UNITS = units(CLIP, 1)


def told(losses: list[float], leaves: int = 200, noise: float = 0.0) -> Choice:
    """What is chosen after so many leaves, each row of which adds these losses, in units of a whole one."""
    choice, sums = Choice.first(STAGE, 1), np.zeros(6)
    for leaf in range(leaves):
        rows = STAGE.ends[leaf] - (STAGE.ends[leaf - 1] if leaf else 0)
        before, sums = sums, sums + rows * np.array(losses) * UNITS
        choice = choice.after(STAGE, UNITS, leaf, sums + noise * UNITS, before + (noise if leaf else 0.0) * UNITS)
    return choice


def test_the_usual_window_answers_unless_another_errs_less_by_more_than_noise_would_say() -> None:
    assert told([0.0] * 6).chosen == 0
    assert told([0.1, 0.1, 0, 0.1, 0, 0]).chosen == 0
    assert told([-1e-4, -1e-4, 0, -1e-4, 0, 0]).chosen == 0, "within the noise"
    assert told([-0.05, 0.02, 0, 0.01, 0, 0]).chosen == 1
    assert told([-0.02, -0.05, 0, 0.01, 0, 0]).chosen == 2
    assert told([-0.02, -0.05, 0, -0.2, 0, 0]).chosen == 4
    assert told([-0.02, -0.05, -0.1, 0.01, 0, 0]).chosen == 3, "the line"


def test_a_line_that_a_map_does_not_have_is_never_chosen() -> None:
    """Its coordinate is noise alone, and noise may say that it errs less."""
    none, sums = UNITS * (np.arange(6) != 2), np.array([0, 0, -1e12, 0, 0, 0])
    assert Choice.first(STAGE, 1).after(STAGE, UNITS, 0, sums, 0 * sums).chosen == 3
    assert Choice.first(STAGE, 1).after(STAGE, none, 0, sums, 0 * sums).chosen == 0
    hashed = Guide(GuidePlan.best(4.0, 1e-6, 3000, private_ranges=False), HashedMap(16))
    assert hashed._leaves is not None and hashed._leaves.thetas.units[2] == 0 < hashed._leaves.thetas.units[1]


@pytest.mark.parametrize("share", [0.05, 0.95])
def test_a_label_that_is_frequent_answers_until_rows_tell_more(share: float) -> None:
    skew = 2 * share - 1
    assert told([0, 0, 0, 0, 0, skew], leaves=5).chosen == 4, "nothing is known of the usual window"
    assert told([0, 0, 0, 0, 0, skew / 3], leaves=5).chosen == 0, "hardly frequent"
    assert told([0, 0, 0, 0.04, 0, skew]).chosen == 0, "it errs more often, by more than the noise"


def test_the_deviation_that_a_choice_allows_for_is_that_of_its_noise() -> None:
    choice = told([0.0] * 6, leaves=100)
    rows, weights = np.random.default_rng(1).normal(size=(100, 4000)), STAGE.root.decoder[:100, :100]
    decoded, counts = weights @ rows, np.zeros(4000)
    for leaf in range(100):
        counts = max(0.0, 1 - 2 / STAGE.weight(leaf)) * counts + decoded[leaf] - (decoded[leaf - 1] if leaf else 0.0)
    assert counts.std() == pytest.approx(np.sqrt((choice.weights**2).sum()), rel=0.06)  # 5 standard errors: 6e-7


@pytest.mark.parametrize(("share", "label"), [(0.07, 0), (0.45, 0), (0.55, 1), (0.999, 1)])
def test_the_frequent_label_and_its_odds_are_read_from_released_counts(share: float, label: int) -> None:
    choice = told([0, 0, 0, 0, 0, 2 * share - 1])
    assert choice.frequent == label
    expected = np.log(max(1 - share, 0.01) / min(share, 0.99))
    assert choice.odds[0] == pytest.approx(-expected, rel=0.02, abs=0.01)


def test_labels_are_told_loudest_where_nothing_else_is_known() -> None:
    """A row adds half of the clip for its label at first and a tenth later; shares are the same whatever it is."""
    label = [int(units(CLIP, 1, leaf)[-1]) for leaf in range(200)]
    assert label[0] == CLIP // 2 and label[96] == label[-1] == CLIP // 10 and sorted(label, reverse=True) == label
    for leaf in (0, 40, 200):
        assert (units(1000, 1, leaf).astype(object) ** 2).sum() <= 0.57 * 1000**2
    choice, sums = Choice.first(STAGE, 1), np.zeros(6)
    for leaf in range(200):
        unit, before = units(CLIP, 1, leaf), sums
        sums = sums + STAGE.length(leaf) * np.array([0, 0, 0, 0, 0, 2 * 0.3 - 1]) * unit
        choice = choice.after(STAGE, unit, leaf, sums, before)
    assert choice.odds[0] == pytest.approx(np.log(3 / 7), abs=0.01)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_labels_shares_speak_for_a_model_until_it_can(share: float) -> None:
    """They have the sign of the frequent label, weigh much at first and ever less, and nothing within their noise."""
    said = [told([0, 0, 0, 0, 0, 2 * share - 1], leaves).prior(STAGE, leaves - 1, CLIP) for leaves in (1, 5, 50)]
    assert all((one > 0) == (share > 0.5) for one in said)
    assert abs(said[0]) > 1 > abs(said[1]) > 0.1 > 10 * abs(said[2])
    assert told([0, 0, 0, 0, 0, 1e-3], 5).prior(STAGE, 4, CLIP) == 0.0


def test_a_row_of_a_loud_leaf_tells_its_label_beside_a_whole_gradient() -> None:
    plan = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=5000)
    plain, loud = units(plan.clip, 1, 3, True), units(plan.clip, 1, 3, True, plan.loud_clip)
    assert np.array_equal(plain[:-1], loud[:-1]) and 1.4 * plan.clip < loud[-1] and plain[-1] < 0.7 * plan.clip
    assert plan.loud_clip**2 - plan.clip**2 - 3 * plan.clip < int((loud.astype(object) ** 2).sum())
    assert int((loud.astype(object) ** 2).sum()) <= plan.loud_clip**2 - plan.clip**2


def test_a_rare_label_is_known_to_be_rare_within_the_first_rounds() -> None:
    """At ε = 1, one label in seventeen: after 96 rounds of which nobody knows more, it is seldom answered."""
    rng, wrong = np.random.default_rng(5), 0
    plan = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=5000)
    for seed in range(40):
        rows, labels = rng.normal(size=(160, 4)), (rng.random(160) < 1 / 17).astype(np.int64)
        answers = Guide(plan, Columns.of_array(4), rng=Random(seed=seed)).follow(rows, labels).answers
        wrong += int((answers[96:] == 1).sum())
    assert wrong < 0.12 * 40 * 64  # 0.21 where labels are not louder


def test_of_many_labels_the_most_frequent_is_found() -> None:
    plan = GuidePlan.best(epsilon=4.0, delta=1e-6, rounds=5000, labels=3, private_ranges=False)
    stage, unit = plan.main, units(plan.clip, 3)
    choice, sums = Choice.first(stage, 3), np.zeros(8)
    for leaf in range(20):
        before, sums = sums, sums + 16 * np.array([0, 0, 0, 0, 0, 0.2, 0.1, 0.7]) * unit
        choice = choice.after(stage, unit, leaf, sums, before)
    assert choice.frequent == 2 and choice.odds.size == 3


def test_what_is_too_sure_is_said_less_surely() -> None:
    less, more = told([0, 0, 0, 0, 0.02, 0]).scale, told([0, 0, 0, 0, -0.02, 0]).scale
    assert less < 0.85 < 1.0 == told([0.0] * 6).scale < 1.15 < more
    assert 0 < told([0, 0, 0, 0, 1.0, 0]).scale < told([0, 0, 0, 0, -1.0, 0]).scale < 21


def test_a_scale_goes_on_over_epochs_and_not_where_a_model_begins_anew() -> None:
    """The next epoch's sums begin at 0; those of a model that begins anew go on, and only what comes later counts."""
    choice, none = told([0, 0, 0, 0, 0.02, 0]), np.zeros(6)
    assert choice.scale < 0.85
    assert choice.over(STAGE).after(STAGE, UNITS, 0, none, none).scale == choice.scale
    sums = STAGE.ends[199] * np.array([0, 0, 0, 0, 0.02, 0]) * UNITS
    assert choice.anew().after(STAGE, UNITS, 200, sums, sums).scale == 1.0


def test_how_sure_a_model_may_be_says_nothing_of_the_frequent_label() -> None:
    """What a leaf tells is told of who answered in it; each finds its own scale again when it is chosen again."""
    too_sure, none = 200 * np.array([0, 0, 0, 0, 1.0, 0]) * UNITS, np.zeros(6)
    model, frequent = replace(told([0.0] * 6), chosen=0), replace(told([0.0] * 6), chosen=MODELS)
    less, more = model.after(STAGE, UNITS, 200, too_sure, none), frequent.after(STAGE, UNITS, 200, -too_sure, none)
    assert less.surer[0] < 0.0 == less.surer[1] and more.surer[0] == 0.0 < more.surer[1]
    both = replace(model, surer=(-1.0, 0.5))
    assert both.scale < 0.4 and replace(both, chosen=MODELS).scale > 1.6


def test_the_shares_of_two_labels_are_never_taken_to_be_too_sure() -> None:
    """A round without a label counts as half of each: shares err towards a coin, and noise alone says otherwise."""
    sums = 200 * np.array([0, 0, 0, 0, 1.0, 0]) * UNITS
    assert replace(told([0.0] * 6), chosen=MODELS).after(STAGE, UNITS, 200, sums, np.zeros(6)).surer == (0.0, 0.0)


def test_where_half_of_the_labels_never_come_the_frequent_label_is_said_as_often_as_it_is_right() -> None:
    """One label in five, by chance alone, taught in every second round: its shares alone say 65 %; 80 % is right."""
    rng, n = np.random.default_rng(3), 60_000
    rows, labels = rng.normal(size=(n, 3)), (rng.random(n) < 0.2).astype(np.int64)
    taught = np.where(rng.random(n) < 0.5, labels, -1)
    plan = GuidePlan.best(epsilon=4.0, delta=1e-6, rounds=n)
    scores = Guide(plan, Columns.of_array(3), rng=Random(seed=1)).follow(rows, taught).scores[n // 2 :, 0]
    said = 1 / (1 + np.exp(-np.abs(scores)))
    assert abs(said.mean() - ((scores > 0) == (labels[n // 2 :] == 1)).mean()) < 0.05


def test_no_release_makes_an_answer_that_is_no_number() -> None:
    kept: list[Release] = []

    def store(release: Release) -> None:
        release.row[:] = (-1) ** release.number * (1 << 62)
        kept.append(release)

    guide = Guide(PLAN, HashedMap(64), rng=Random(seed=1), store=store)
    for i in range(400):
        guide.begin_round()
        guide.gradient(guide.encode({"a": i % 7}), i % 2)
    assert kept and np.isfinite(guide.model.theta).all() and np.isfinite(guide.probabilities({"a": 3})).all()


# ---------------------------------------------------------------------- in a guide


def rows_of(n: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Mostly chance, 8 % of label 1."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), (rng.random(n) < 0.08).astype(np.int64)


def led(kind: str, plan: GuidePlan, xs: np.ndarray, ys: np.ndarray, **named: Any) -> tuple[Guide, np.ndarray]:
    guide = Guide(plan, Columns.of_array(xs.shape[1]), rng=Random(seed=7), **named)
    if kind == "many":
        return guide, guide.follow(xs, ys).answers
    answers = []
    for x, y in zip(xs, ys, strict=True):
        guide.begin_round()
        question = guide.encode(x)
        if guide.finding:
            guide.count(x)
        answers.append(guide.answer(question))
        guide.gradient(question, int(y))
    return guide, np.array(answers)


@pytest.fixture(scope="module")
def chance() -> dict[str, Any]:
    """A stream of chance, led one by one and all at once, and its ledger."""
    xs, ys = rows_of(6000)
    plan, kept = GuidePlan.best(epsilon=4.0, delta=1e-6, rounds=6000), []
    one, answers = led("one", plan, xs, ys, store=kept.append)
    many, same = led("many", plan, xs, ys)
    return {"plan": plan, "ys": ys, "one": one, "many": many, "answers": answers, "same": same, "kept": kept}


def test_single_rounds_and_a_batch_choose_the_same_bits(chance: dict[str, Any]) -> None:
    one, many = chance["one"]._leaves, chance["many"]._leaves
    assert np.array_equal(chance["answers"], chance["same"])
    for name in ("open", "theta", "models", "answering", "rows"):
        assert np.array_equal(getattr(one, name), getattr(many, name)), name
    assert (one.choice.chosen, one.choice.scale) == (many.choice.chosen, many.choice.scale)
    assert one.choice.counts.any() and one.choice.scale != 1.0


def test_a_ledger_gives_the_same_choice(chance: dict[str, Any]) -> None:
    again = Guide(chance["plan"], Columns.of_array(3), rng=Random(seed=8))
    again.resume(6000, chance["kept"])
    old, new = chance["one"]._leaves, again._leaves
    for name in ("theta", "models", "answering"):
        assert np.array_equal(getattr(old, name), getattr(new, name)), name
    for name in ("chosen", "scale", "rounds", "frequent"):
        assert getattr(old.choice, name) == getattr(new.choice, name), name
    assert np.array_equal(old.choice.counts, new.choice.counts)


def test_over_all_rows_chance_is_answered_by_its_frequent_label(chance: dict[str, Any]) -> None:
    """Seeded; the mean error is .6 % of the rows above that of the frequent label."""
    wrong = (chance["answers"] != chance["ys"]).mean()
    assert wrong <= chance["ys"].mean() + 0.01 + 2 * np.sqrt(0.08 * 0.92 / 6000)


def test_an_exported_model_is_as_sure_as_the_guide(chance: dict[str, Any]) -> None:
    guide = chance["one"]
    shipped, x = Model.from_params(guide.export()), np.array([0.3, -1.0, 2.0])
    assert np.array_equal(shipped.probabilities(x), guide.probabilities(x))


def test_said_probabilities_match_frequencies() -> None:
    """Labels follow a known law; said and true probabilities differ by less than .05 in the mean, seeded."""
    rng = np.random.default_rng(5)
    xs = rng.normal(size=(30_000, 2))
    truth = 1 / (1 + np.exp(-3 * xs[:, 0]))
    ys = (rng.random(30_000) < truth).astype(np.int64)
    plan = GuidePlan.best(epsilon=8.0, delta=1e-6, rounds=30_000)
    guide = Guide(plan, Columns.of_array(2), rng=Random(seed=1))
    said = 1 / (1 + np.exp(-guide.follow(xs, ys).scores[15_000:, 0]))
    sure = np.maximum(said, 1 - said)
    right = (said > 0.5) == (ys[15_000:] == 1)
    parts = np.digitize(sure, [0.6, 0.7, 0.8, 0.9])
    apart = sum(abs((sure - right)[parts == part].sum()) for part in range(5)) / sure.size
    assert apart < 0.03


# ---------------------------------------------------------------------- steps


def test_the_mean_row_is_that_of_independent_columns_of_these_grids() -> None:
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.random(20_000) < 0.1, rng.exponential(size=20_000), rng.normal(size=20_000)])
    features = FeatureMap(Columns.of_array(3), from_sample(rows))
    mean, true = mean_row(features), np.zeros(features.width)
    for row in rows[:2000]:
        encoded = features.encode(row)
        true[encoded.indices] += encoded.values / 2000
    assert mean @ true / np.sqrt((mean @ mean) * (true @ true)) > 0.9
    assert np.array_equal(mean, mean_row(FeatureMap(Columns.of_array(3), from_sample(rows)))), "of the map alone"


def test_steps_are_shorter_where_the_mean_row_is_long() -> None:
    stage = replace(STAGE, step=500 / STAGE.longest, momentum=0.5)
    assert stage.steady(0.05) is stage and stage.along(0.05) == 0.0
    for mean2, most in ((0.2, 40.0), (0.9, STEADY / 2)):
        steady = stage.steady(mean2)
        assert steady.momentum == 0.0 and steady.step * steady.longest == pytest.approx(most)
        assert (1 - steady.along(mean2)) * steady.step * steady.longest * mean2 == pytest.approx(4.0)
    unplaced = stage.steady(0.05, 0.8)
    assert unplaced.momentum == 0.0 and unplaced.step * unplaced.longest == pytest.approx(10.0), "nobody knows where"
    assert stage.steady(0.05, 0.1) is stage
    slow = replace(STAGE, step=1 / STAGE.longest, momentum=0.0)
    assert slow.steady(0.9).step == slow.step and slow.along(0.9) == 0.0


def test_of_texts_and_of_names_that_nobody_declared_no_mean_row_is_made_up() -> None:
    columns = Columns(numeric=("a",), text=("t",))
    assert mean_row(HashedMap(64)).size == mean_row(FeatureMap(columns, declared({"a": (0, 1)}, ("a",)))).size == 0


def test_windows_forget_at_their_own_pace() -> None:
    usual, fast, slow = keeps(STAGE, STAGE.leaves - 1)
    assert slow < usual < fast <= 1.0
    assert keeps(replace(STAGE, memory=0.0), 5)[0] == 1.0
