"""A guide without an end follows a change: by what it released, and by nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.guide import leaves as leaves_module
from confide.guide.change import TRIED, told_by
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.leaves import Leaves
from confide.guide.line import draw_line
from confide.guide.linear import MODELS, WINDOWS, units
from confide.guide.model import Map
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

PLAN = GuidePlan.best(8.0, 1e-6)
CHANGE, ROUNDS = 24_000, 36_000
COLUMNS = Columns.of_array(6)
ROWS = np.random.default_rng(3).uniform(0, 1, (ROUNDS, 6))
LATER = np.arange(ROUNDS) >= CHANGE


def boxes(first: int, second: int) -> NDArray[np.bool_]:
    """A label that two columns tell together, and neither alone."""
    return np.asarray((ROWS[:, first] > 0.5) ^ (ROWS[:, second] > 0.5))


STREAMS = {
    "as ever": boxes(0, 1),
    "exchanged": boxes(0, 1) ^ LATER,
    "other columns": np.where(LATER, boxes(2, 3), boxes(0, 1)),
}


@cache
def led(name: str, plan: GuidePlan = PLAN, share: float = 1.0) -> tuple[Guide, NDArray[np.bool_]]:
    """A guide after the stream, and which rows it answered wrongly; after the change a share of labels comes."""
    labels = STREAMS[name].astype(np.int64)
    rare = LATER & (np.random.default_rng(4).random(ROUNDS) > share)
    guide = Guide(plan, COLUMNS, rng=Random(seed=2))
    return guide, guide.follow(ROWS, np.where(rare, -1, labels)).answers != labels


def test_labels_that_were_exchanged_are_answered_as_well_as_before_after_a_twentieth_of_the_rounds() -> None:
    guide, wrong = led("exchanged")
    before, back = wrong[CHANGE - CHANGE // 10 : CHANGE].mean(), CHANGE + CHANGE // 20
    assert wrong[CHANGE : CHANGE + 200].mean() > 0.8
    assert wrong[back : back + CHANGE // 10].mean() < 1.2 * before + 0.01
    assert guide._leaves.anew == 0  # it went on, and did not begin anew


def test_where_other_columns_tell_the_label_the_model_begins_anew() -> None:
    guide, wrong = led("other columns")
    assert CHANGE < guide._leaves.anew < CHANGE + CHANGE // 4
    assert wrong[-2000:].mean() < 0.2


def test_a_stream_that_stays_as_it_is_is_never_begun_anew() -> None:
    guide, _ = led("as ever")
    assert guide._leaves.anew == guide._leaves._tried == guide._leaves._since_leaf == 0


@pytest.mark.parametrize("share", [0.1, 0.0])
def test_labels_that_come_more_rarely_or_no_more_are_no_change(share: float) -> None:
    guide, _ = led("as ever", share=share)
    assert guide._leaves.anew == guide._leaves._since_leaf == 0


def test_a_plan_with_a_last_round_goes_on_as_ever() -> None:
    guide, _ = led("exchanged", GuidePlan.best(8.0, 1e-6, ROUNDS))
    assert guide._leaves.anew == guide._leaves._tried == guide._leaves._since_leaf == 0


@pytest.mark.parametrize("name", ["exchanged", "other columns"])
def test_all_of_it_follows_from_released_rows(name: str) -> None:
    """Other exact sums, other noise ahead, the same released rows: the same θ, map and choice, to the last bit."""
    guide, _ = led(name)
    other = Guide(PLAN, COLUMNS, rng=Random(seed=2))
    other.resume(guide.rounds, [one._replace(exact=np.zeros_like(one.exact)) for one in guide.releases()])
    mine, its = guide._leaves, other._leaves
    assert mine.theta.tobytes() == its.theta.tobytes() and mine.models.tobytes() == its.models.tobytes()
    assert (mine.anew, mine._since_leaf, mine.features) == (its.anew, its._since_leaf, its.features)
    assert guide.model.params() == other.model.params() and mine._since_leaf > 0


def test_one_by_one_a_guide_does_the_same_as_with_many_rounds_at_once() -> None:
    whole, _ = led("other columns")
    first, last = CHANGE, whole._leaves.anew + 2000
    one = Guide(PLAN, COLUMNS, rng=Random(seed=2))
    labels = STREAMS["other columns"].astype(np.int64)
    one.follow(ROWS[:first], labels[:first])
    for x, y in zip(ROWS[first:last], labels[first:last].tolist(), strict=True):
        one.begin_round()
        one.gradient(one.encode(x), y)
    assert one._leaves.anew == whole._leaves.anew > 0
    one.follow(ROWS[last:], labels[last:])
    assert one.model.params() == whole.model.params()


def test_what_is_only_tried_never_answers_and_is_not_carried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, tried = STREAMS["as ever"].astype(np.int64), []
    guide = Guide(PLAN, COLUMNS, rng=Random(seed=2))
    monkeypatch.setattr(leaves_module, "suspected", lambda told: told.closed == 100)  # for no reason
    chosen = Leaves._chosen

    def watched(self: Leaves, choice: object, models: NDArray[np.float64], trying: bool) -> NDArray[np.float64]:
        if trying:
            tried.append(models[:, WINDOWS - 1].copy())
            carried = Leaves._untried(self, models)
            assert carried[:, WINDOWS - 1].tobytes() == models[:, 0].tobytes()
            for number in range(WINDOWS):  # whichever is chosen
                object.__setattr__(choice, "chosen", number)
                assert chosen(self, choice, models, trying)[:, 0] @ models[:, WINDOWS - 1] <= 0  # type: ignore[arg-type]
        return chosen(self, choice, models, trying)  # type: ignore[arg-type]

    sources = []

    def drawing(features: Map, models: NDArray[np.float64], vectors: int, closed: int, source: int) -> None:
        sources.append(source)
        draw_line(features, models, vectors, closed, source)

    monkeypatch.setattr(Leaves, "_chosen", watched)
    monkeypatch.setattr(leaves_module, "draw_line", drawing)
    guide.follow(ROWS[:8000], labels[:8000])
    assert sources.count(0) == TRIED and sources[guide.plan.warm.leaves + 100 :][:TRIED] == [0] * TRIED
    assert len(tried) == TRIED and all(one.tobytes() == tried[0].tobytes() for one in tried)
    assert guide._leaves._since_leaf == 0  # the opposite was worse


def test_what_was_not_counted_in_a_leaf_is_not_heard() -> None:
    """Where nothing of a leaf's labels was kept, what is released of them is noise: it moves no count."""
    unit = units(PLAN.clip, 1)
    unit[MODELS + 1 :] = 0
    losses = np.append(np.zeros(MODELS + 1), 1e12)
    assert told_by(np.zeros(unit.size + 1), losses, unit, 16, 1).tolist() == [0.0] * unit.size + [8.0]
