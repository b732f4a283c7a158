"""A guide without an end that nobody teaches any more: what it knows stays, by what it released and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.linear import MODELS, Thetas, add_lesson, units
from confide.planning.guided import GuidePlan
from confide.planning.stages import ends_of
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

BEST = GuidePlan.best(8.0, 1e-6)
PLAN = replace(BEST, leaves=128, leaf=128, growth=64, warm_leaves=len(ends_of(BEST.range_rounds, 128, 64)))
COLUMNS, ROUNDS, EPOCHS = Columns.of_array(3), 16_000, 32
ROWS = np.random.default_rng(7).uniform(0, 10, (ROUNDS + 4000, 3))
EDGES = {"unlike": 8.0, "alike": 10.0}  # of two columns: one label twice as often as the other, or not


def labels(name: str) -> NDArray[np.int64]:
    return (ROWS[:, 0] + ROWS[:, 1] > EDGES[name]).astype(np.int64)


@cache
def taught(name: str, seed: int = 1, plan: GuidePlan = PLAN) -> tuple[Guide, float]:
    """A guide after its last label, and how often it then errs."""
    guide = Guide(plan, COLUMNS, rng=Random(seed=seed))
    guide.follow(ROWS[:ROUNDS], labels(name)[:ROUNDS])
    return guide, error(guide, name)


def error(guide: Guide, name: str) -> float:
    model = guide.model
    said = np.array([model.score(model.features.encode(x)) for x in ROWS[ROUNDS:]]).argmax(axis=1)
    return float((said != labels(name)[ROUNDS:]).mean())


def asked(guide: Guide, epochs: int) -> None:
    """So many epochs, in which no label comes."""
    last = guide.epoch + epochs
    while guide.epoch < last:
        guide.go_to(guide._began + guide._leaves.stage.ends[guide._leaves.closed])
        guide._close_due()


@cache
def silent(name: str, seed: int = 1) -> Guide:
    guide, _ = taught(name, seed)
    later = Guide(PLAN, COLUMNS, rng=Random(seed=seed + 100))
    later.resume(guide.rounds, guide.releases())
    asked(later, EPOCHS)
    return later


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", EDGES)
def test_what_was_learned_stays_when_nobody_teaches_any_more(name: str, seed: int) -> None:
    before = taught(name, seed)[1]
    assert before < 0.1
    assert error(silent(name, seed), name) < 2 * before + 0.01


def test_an_epoch_without_labels_leaves_what_it_began_with() -> None:
    guide = silent("alike")
    later = Guide(PLAN, COLUMNS, rng=Random(seed=5))
    later.resume(guide.rounds, guide.releases())
    assert later._leaves.theta.tobytes() == guide._leaves.theta.tobytes()
    sums, theta = guide._leaves._carried.copy(), guide._leaves.theta.copy()
    models, choice = guide._leaves.models.copy(), guide._leaves.choice
    asked(later, 2)
    mine = later._leaves
    assert mine.theta.tobytes() == theta.tobytes() and mine.models.tobytes() == models.tobytes()
    assert mine._carried.tobytes() == sums.tobytes()
    assert mine.choice.counts.tobytes() == choice.counts.tobytes() and mine.choice.chosen == choice.chosen


def test_labels_that_come_again_teach_again() -> None:
    guide = Guide(PLAN, COLUMNS, rng=Random(seed=9))
    guide.resume(silent("alike").rounds, silent("alike").releases())
    other = (ROWS[:, 0] + ROWS[:, 2] > 10).astype(np.int64)
    for _ in range(4):
        wrong = guide.follow(ROWS[:ROUNDS], other[:ROUNDS]).answers != other[:ROUNDS]
    assert wrong.mean() < 0.12


def test_a_load_in_the_midst_of_silence_has_the_same_bits() -> None:
    """Other exact sums, the same released rows: whether labels came is decided by what was released."""
    guide = Guide(PLAN, COLUMNS, rng=Random(seed=9))
    guide.resume(silent("unlike").rounds, silent("unlike").releases())
    guide.follow(ROWS[:3000], labels("unlike")[:3000])  # heard again, and then silent
    asked(guide, 1)
    for _ in range(40):
        guide.go_to(guide._began + guide._leaves.stage.ends[guide._leaves.closed])
        guide._close_due()
    other = Guide(PLAN, COLUMNS, rng=Random(seed=10))
    other.resume(guide.rounds, [one._replace(exact=np.zeros_like(one.exact)) for one in guide.releases()])
    mine, its = guide._leaves, other._leaves
    assert mine.theta.tobytes() == its.theta.tobytes() and mine.models.tobytes() == its.models.tobytes()
    assert guide.model.params() == other.model.params()
    asked(guide, 1)
    rows = [one for one in guide.releases() if one.kind == "epoch"]
    assert rows and rows[-1].number == guide.epoch


@pytest.mark.parametrize("vectors", [1, 3])
@pytest.mark.parametrize("leaf", [0, 5, 500])
def test_with_the_count_no_row_is_longer_than_the_clip(vectors: int, leaf: int) -> None:
    """Σ of all integers that a row adds, squared, is at most clip², and the count does not say which label came."""
    rng, clip = np.random.default_rng([vectors, leaf]), PLAN.clip
    for _ in range(300):
        models = rng.normal(size=(9, MODELS * vectors)) * 10.0 ** rng.integers(-2, 4)
        theta, said = rng.normal(size=(9, vectors)) * 10.0 ** rng.integers(-2, 4), rng.normal(size=vectors)
        thetas = Thetas(theta, theta, models, 0, units(clip, vectors, leaf))
        values, weight = rng.normal(size=9) * 10.0 ** rng.integers(-3, 4), float(rng.choice([0.0, 0.3, 1.0, 1e9]))
        came = []
        for y in (0, 1):
            added = np.zeros(theta.size + 1 + thetas.units.size, dtype=np.int64)
            assert add_lesson(thetas, said, np.arange(9), values, y, weight, clip, PLAN.scale, added)
            assert int((added.astype(object) ** 2).sum()) <= clip**2
            came.append(int(added[theta.size]))
        assert came[0] == came[1] == int(min(weight, 1.0) * int(thetas.units[MODELS]))


@pytest.mark.parametrize("rounds", [5000, None])
def test_labels_are_counted_without_an_end_alone(rounds: int | None) -> None:
    """Where there is an end nothing is otherwise: no coordinate more, and no noise that is left out."""
    plan = GuidePlan.best(8.0, 1e-6, rounds, private_ranges=False)
    guide = Guide(plan, COLUMNS, rng=Random(seed=1))
    leaves = guide._leaves
    assert leaves.open.size == guide.features.width + leaves._units.size + (rounds is None)
    guide.follow(ROWS[:10], labels("alike")[:10])
    unit = int(leaves._units[MODELS])
    if rounds is None:
        assert leaves.open[guide.features.width] == 10 * unit
