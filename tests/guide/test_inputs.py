"""From a POP's features to the guide's: kinds of columns, declared ranges, and leaves that begin at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from confide.errors import StateError
from confide.guide.columns import Columns, Malformed
from confide.guide.guide import Guide, Release
from confide.guide.hashed import HashedMap
from confide.guide.inputs import columns_for
from confide.guide.maps import FeatureMap
from confide.guide.model import Model, encode_batch
from confide.guide.ranges import COUNTS, declared, weights_of
from confide.learners import Columns as Arrays
from confide.learners import Features, HashedFeatures, LogisticRegression
from confide.learners.spec import from_spec, to_spec
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

SHORT = GuidePlan.best(20.0, 1e-6, 400)
RANGED = replace(SHORT, range_rounds=44, warm_leaves=3, range_sigma2=SHORT.range_sigma2 // 16)
RANGES = {"a": (-2.0, 2.0), "b": (-2.0, 2.0)}
COLUMNS = Columns(numeric=("a", "b"), categorical=("k",))


def rows(n: int, seed: int = 1) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"a": a, "b": 100 * b, "k": str(int(3 * a))} for a, b in rng.normal(size=(n, 2))]


def play(guide: Guide, asked: list[dict[str, Any]]) -> list[int]:
    answers = []
    for i, x in enumerate(asked):
        guide.begin_round()
        question = guide.encode(x)
        if guide.finding:
            guide.count(x)
        guide.gradient(question, i % 2)
        answers.append(guide.answer(question))
    return answers


def test_every_kind_of_features_has_columns_or_a_map() -> None:
    numbers = Columns.of_array(3), {}
    assert columns_for(3) == columns_for(np.int64(3)) == columns_for(Arrays(3)) == numbers
    named = Columns(numeric=("age", "size"), categorical=("city",), text=("note",))
    features = Features(numeric=["age"], log=["size"], categorical={"city": 4}, text={"note": 8})
    assert columns_for(features) == columns_for(features | LogisticRegression()) == (named, {})
    assert columns_for(["age", "size"]) == (Columns(numeric=("age", "size")), {})
    ranged = Features(numeric={"age": (0, 120)}, log=["size"], categorical={"city": 4}, text={"note": 8})
    assert columns_for(ranged) == (named, {"age": (0.0, 120.0)})
    for undeclared in (None, HashedFeatures(16), HashedFeatures(16) | LogisticRegression(), object(), "age"):
        assert columns_for(undeclared) == (HashedMap(), {})


def test_declared_ranges_leave_the_copies_as_they_were() -> None:
    plain, ranged = Features(numeric=["age"], log=["n"]), Features(numeric={"age": (0, 120)}, log=["n"])
    for x in ({"age": 500, "n": 2}, {}, {"age": -1e9}):
        assert np.array_equal(plain.encode(x), ranged.encode(x))
    assert (plain.ranges, ranged.ranges, ranged.names) == ({}, {"age": (0.0, 120.0)}, ("age", "n"))
    assert repr(from_spec(json.loads(json.dumps(to_spec(ranged))))) == repr(ranged) == repr(ranged.clone())


@pytest.mark.parametrize("ends", [(1, 0), (0, float("inf")), (0, 0), (0,), 5, ("a", "b"), (float("nan"), 1)])
def test_features_with_impossible_ranges_are_refused(ends: Any) -> None:
    with pytest.raises(ValueError, match="'age' must be two finite numbers"):
        Features(numeric={"age": ends})


@pytest.mark.parametrize("ready", ["map", "hashed", "no numbers"])
def test_a_known_map_learns_at_once_and_to_the_end_and_nothing_is_counted(ready: str) -> None:
    """There is no warm-up: its leaves begin at round 0 and cover all rounds."""
    kept: list[Release] = []
    given: dict[str, Any] = {
        "map": {"features": FeatureMap(COLUMNS, declared(RANGES, COLUMNS.numeric), partitions=6, places=8)},
        "hashed": {"features": HashedMap(64)},
        "no numbers": {"features": Columns(categorical=("k",))},
    }[ready]
    guide = Guide(RANGED, rng=Random(seed=1), store=kept.append, **given)
    assert RANGED.range_rounds > 0 and not guide.finding and guide.stage == 1
    answers = play(guide, rows(RANGED.rounds))
    ends = RANGED.main.ends
    assert (answers.index(next(a for a in answers if a >= 0)), guide.closed) == (ends[0], RANGED.leaves - 1)
    assert [(r.kind, r.number) for r in kept] == [("node", i) for i in range(RANGED.leaves - 1)]
    assert all(r.exact.any() for r in kept) and guide._leaves.open.any()
    theta, held = guide._leaves.theta.copy(), guide._leaves.open.copy()
    play(guide, rows(50))
    assert np.array_equal(theta, guide._leaves.theta) and np.array_equal(held, guide._leaves.open)
    assert len(kept) == RANGED.leaves - 1
    many = Guide(RANGED, rng=Random(seed=1), **given)
    asked = rows(RANGED.rounds)
    while many.rounds < RANGED.rounds:
        part = slice(many.rounds, min(RANGED.rounds, many.rounds + many.settle()))
        many.run(encode_batch(many.features, asked[part]), np.arange(RANGED.rounds)[part] % 2)
    assert np.array_equal(many._leaves.theta, theta) and many.closed == RANGED.leaves - 1


@pytest.mark.parametrize("ranges", [{}, {"b": (0.0, 1.0)}, RANGES])
def test_every_numeric_column_is_counted_declared_or_not(ranges: dict[str, tuple[float, float]]) -> None:
    """A row adds the same weights whatever is declared, so the plan's price covers it."""
    kept: list[Release] = []
    guide = Guide(RANGED, COLUMNS, rng=Random(seed=1), store=kept.append, ranges=ranges)
    assert isinstance(guide.features, FeatureMap) and guide.counting == RANGED.range_rounds
    assert guide.features.grids == declared(ranges, COLUMNS.numeric)  # the warm-up has what is declared
    play(guide, rows(RANGED.rounds))
    counts = kept[RANGED.warm_leaves]
    assert (counts.kind, counts.exact.size) == ("ranges", 2 * COUNTS)
    weight, fine = weights_of(RANGED.range_norm, 2)
    assert int(counts.exact.sum()) == RANGED.range_rounds * 2 * (weight + 5 * fine)
    fresh = Guide(RANGED, COLUMNS, ranges=ranges)
    fresh.resume(guide.rounds, kept)
    assert fresh.features == guide.features and np.array_equal(fresh._leaves.theta, guide._leaves.theta)
    for other in ({}, {"b": (0.0, 1.0)}, RANGES):
        if other != ranges:
            with pytest.raises(StateError, match="do not belong"):
                Guide(RANGED, COLUMNS, ranges=other).resume(guide.rounds, kept)


def test_a_declared_range_stands_until_the_counts_show_where_the_column_lies() -> None:
    """The rows' b is a hundred times as wide as declared, and z is missing in every row."""
    columns = Columns(numeric=("a", "b", "z"))
    ranges = {**RANGES, "z": (0.0, 1.0)}
    guide = Guide(RANGED, columns, rng=Random(seed=1), ranges=ranges)
    play(guide, rows(RANGED.rounds))
    assert isinstance(guide.features, FeatureMap)
    a, b, z = guide.features.grids
    assert a is not None and -8 < a[0] < a[-1] < 8
    assert b is not None and b[0] < -10 and b[-1] > 10
    assert z == declared(ranges, ["z"])[0]


def test_ranges_are_counted_whether_they_are_declared_or_not() -> None:
    """Also in few rounds: a declared column that is nearly always 0 errs twice as much if nobody knows that."""
    for ranges in ({}, {"b": (0.0, 1.0)}, RANGES):
        assert Guide(SHORT, COLUMNS, ranges=ranges).counting == SHORT.range_rounds <= SHORT.rounds // 4
    guide = Guide(SHORT, COLUMNS, rng=Random(seed=1), ranges=RANGES)
    play(guide, rows(SHORT.rounds))
    assert guide.ranges is not None and guide.stage == 1


def test_columns_that_are_nearly_always_zero_are_known_as_such_declared_or_not() -> None:
    """Equal steps between 0 and 1 would put zeros at one end, where they fill the norm."""
    columns = Columns.of_array(3)
    sparse = (np.random.default_rng(2).random((RANGED.rounds, 3)) < 0.05).astype(np.float64)
    grids = []
    for ranges in ({}, {str(j): (0.0, 1.0) for j in range(3)}):
        guide = Guide(RANGED, columns, rng=Random(seed=1), ranges=ranges)
        guide.follow(sparse, np.arange(RANGED.rounds) % 2)
        assert isinstance(guide.features, FeatureMap)
        grids.append(guide.features.grids)
    assert all(grid is not None and grid[32] == 0.0 for each in grids for grid in each)


def test_declared_ranges_are_all_there_is_where_a_plan_counts_none() -> None:
    plan = GuidePlan.best(40.0, 1e-6, 400, private_ranges=False)
    guide = Guide(plan, COLUMNS, rng=Random(seed=1), ranges=RANGES)
    play(guide, rows(plan.rounds))
    assert {release.kind for release in guide.releases()} == {"node"}
    assert isinstance(guide.features, FeatureMap) and guide.features.grids == declared(RANGES, COLUMNS.numeric)


@pytest.mark.parametrize(("features", "name"), [(COLUMNS, "k"), (COLUMNS, "z"), (HashedMap(64), "a")])
def test_ranges_of_what_is_no_numeric_column_are_refused(features: Any, name: str) -> None:
    with pytest.raises(ValueError, match="numeric columns"):
        Guide(RANGED, features, ranges={name: (0.0, 1.0)})


class Secretive(dict[str, Any]):
    def get(self, *given: Any) -> Any:
        raise ValueError("Ada, 41, Rome")

    def items(self) -> Any:
        raise KeyError("Ada, 41, Rome")


class Liar(str):
    def __str__(self) -> str:
        raise ValueError("Ada, 41, Rome")

    __format__ = lower = count = __getitem__ = __str__  # type: ignore[assignment]


BAD = [Secretive(), {"a": "one"}, {"a": 1j}, {"k": []}, [1.0, 2.0, "x"], "Ada", np.zeros((2, 2)), None]


@pytest.mark.parametrize("x", BAD)
def test_a_malformed_row_is_known_as_such_in_every_phase_and_not_quoted(x: Any) -> None:
    for guide in (Guide(RANGED, COLUMNS), Guide(RANGED, COLUMNS, ranges=RANGES)):
        for read in (guide.read, guide.encode, guide.probabilities):
            with pytest.raises(Malformed) as caught:
                read(x)
            assert "Ada" not in str(caught.value)
    guide.read({"a": 1})


def test_rows_without_names_are_hashed_and_their_errors_are_not_quoted() -> None:
    features = HashedMap(64)
    assert np.array_equal(features.encode([1, "x"]).indices, features.encode({"0": 1, "1": "x"}).indices)
    for x in (Secretive(a=1), {"a": []}, 7, "Ada", np.zeros((2, 2))):
        with pytest.raises(Malformed) as caught:
            features.encode(x)
        assert "Ada" not in str(caught.value)


def test_texts_that_answer_in_their_own_way_are_read_as_plain_ones() -> None:
    columns = Columns(categorical=("k",), text=("t",))
    features = FeatureMap(columns)
    for known in (features, HashedMap(64)):
        plain, liar = (
            known.encode({"k": "x", "t": "so far so good so"}),
            known.encode({"k": Liar("x"), "t": Liar("so far so good so")}),
        )
        assert np.array_equal(plain.indices, liar.indices)


def test_the_guides_own_answer_ties_and_probabilities() -> None:
    plan = GuidePlan.best(4.0, 1e-6, 200, labels=3, private_ranges=False)
    guide = Guide(plan, HashedMap(64), rng=Random(seed=1))
    x = {"a": 1}
    question = guide.encode(x)
    assert guide.answer(question) == -1
    assert guide.probabilities(x).tolist() == [1 / 3] * 3
    while guide.closed == 0:
        guide.begin_round()
    probabilities = guide.probabilities(x)
    assert guide.answer(question) == probabilities.argmax()
    assert np.array_equal(Model.from_params(json.loads(json.dumps(guide.export()))).probabilities(x), probabilities)
    guide._leaves.answering[:] = 0.0
    assert guide.answer(question) == 0
    guide._leaves.answering[:, 1:] = 1.0
    assert guide.answer(question) == 1
    assert Guide(RANGED, COLUMNS).probabilities(x).tolist() == [0.5, 0.5]


def test_a_guide_of_one_leaf_settles_past_its_end() -> None:
    plan = GuidePlan.best(40.0, 1e-6, 16, private_ranges=False)
    guide = Guide(plan, COLUMNS, ranges=RANGES)
    assert plan.leaves == 1
    for _ in range(25):
        assert guide.settle() > 0
        guide.begin_round()
