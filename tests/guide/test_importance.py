"""Which columns a guide has learned from: those that say something, and none by noise alone."""

from __future__ import annotations

import numpy as np
import pytest

from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.hashed import HashedMap
from confide.guide.importance import importance
from confide.guide.leaves import Leaves
from confide.guide.maps import FeatureMap
from confide.guide.ranges import declared
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random

COLUMNS = Columns(numeric=("a", "b"), categorical=("k",), text=("t",))
MAP = FeatureMap(COLUMNS, declared({"a": (-2, 2)}, COLUMNS.numeric), partitions=6, places=8, words=16)
PLAN = GuidePlan.best(4.0, 1e-6, 2000, private_ranges=False)


def taught(labels: bool, features: FeatureMap | HashedMap = MAP, seed: int = 1) -> Guide:
    """2,000 rows whose label is that of column a, which nobody brings unless it is asked for."""
    guide, rng = Guide(PLAN, features, rng=Random(seed=seed)), np.random.default_rng(seed)
    for a, b in rng.normal(size=(2000, 2)).tolist():
        guide.begin_round()
        question = guide.encode({"a": a, "b": b, "k": str(int(3 * b)), "t": "a word"})
        if labels:
            guide.gradient(question, int(a > 0))
    return guide


def test_every_feature_belongs_to_the_column_that_moves_it() -> None:
    names, plain = ("a", "b", "k", "t"), {"a": 0.1, "b": 0.2, "k": "x", "t": "some words"}
    other = {"a": 1.9, "b": -300.0, "k": "y", "t": "another text altogether"}
    assert MAP.owners.shape == (MAP.width,) and set(MAP.owners.tolist()) == {-1, 0, 1, 2, 3}
    for j, name in enumerate(names):
        before, after = (set(MAP.encode({**plain, name: one[name]}).indices.tolist()) for one in (plain, other))
        moved = MAP.owners[sorted(before ^ after)]
        assert set(moved.tolist()) <= {j, -1} and j in MAP.owners[sorted(before | after)]


def test_the_column_that_tells_the_label_is_named_and_first() -> None:
    shares = taught(labels=True).importance()
    assert next(iter(shares)) == "a" and shares["a"] > 0.5 and sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_alone_names_none_and_a_quarter_of_it_said_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of ten blocks stands out by chance with probability 1e-4 or so; the seeds are fixed."""
    (leaves,) = [one for one in vars(taught(labels=False, seed=seed)).values() if isinstance(one, Leaves)]
    assert importance(leaves) == {}
    squares, plain, parted = leaves.standing()
    monkeypatch.setattr(leaves, "standing", lambda: (squares, plain / 4, parted / 4))
    assert len(importance(leaves)) >= 2


def test_hashed_names_have_no_columns() -> None:
    assert taught(labels=True, features=HashedMap(64)).importance() == {}
