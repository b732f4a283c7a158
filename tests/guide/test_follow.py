"""Many rounds in one call: the bits of one by one, through ranges, leaves, renewals and the end of rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.guide.columns import Columns
from confide.guide.guide import Guide, Release
from confide.guide.hashed import HashedMap
from confide.guide.model import encode_batch
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("guide.md")

COLUMNS = Columns(numeric=("a", "b"), categorical=("k",))
RANGES = {"a": (-2.0, 2.0), "b": (-2.0, 2.0)}
PLANS = {labels: GuidePlan.best(20.0, 1e-6, 400, labels) for labels in (2, 3)}
BAD: list[Any] = [None, {"a": "text"}, [1.0], {"k": []}]


def rows(n: int) -> list[Any]:
    rng = np.random.default_rng(1)
    return [{"a": a, "b": 10 * b, "k": str(int(3 * a))} for a, b in rng.normal(size=(n, 2))]


def one_by_one(guide: Guide, asked: list[Any], labels: Any, counted: Any, bad: Any) -> list[tuple[int, bool]]:
    out = []
    for x, y, count, wrong in zip(asked, labels, counted, bad, strict=True):
        guide.begin_round()
        try:
            question = guide.encode(x)
        except ValueError:
            out.append((-1, True))
            continue
        answer = -1
        if not wrong:
            answer = guide.answer(question)
            guide.gradient(question, y)
            if count and guide.finding:
                guide.count(x)
        out.append((answer, False))
    return out


@pytest.mark.parametrize("kind", ["private", "mixed", "declared", "hashed"])
@pytest.mark.parametrize("labels", [2, 3])
@settings(deadline=None, max_examples=3)
@given(st.data())
def test_many_rounds_are_the_bits_of_one_by_one(kind: str, labels: int, data: st.DataObject) -> None:
    plan, n = PLANS[labels], 440
    assert plan.range_rounds > 0 and plan.leaves > 16 and n > plan.rounds
    asked = rows(n)
    for i, x in data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.sampled_from(BAD)), max_size=30)):
        asked[i] = x
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    given_labels, counted, bad = rng.integers(-1, labels + 1, n), rng.random(n) < 0.7, rng.random(n) < 0.1
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=12)))
    features: Any = HashedMap(64) if kind == "hashed" else COLUMNS
    ranges = {"declared": RANGES, "mixed": {"a": RANGES["a"]}}.get(kind)
    kept: list[list[Release]] = [[], []]
    one, many = (Guide(plan, features, None, Random(seed=1), k.append, ranges=ranges) for k in kept)
    with pytest.MonkeyPatch.context() as patch:
        half = ("partitions._STRONG", -1e9), ("partitions._WEAK", 1e9), ("partitions._EACH", 96), ("leaves._YOUNG", 0.0)
        half = (*half, ("partitions._IDLE", 1e9))
        for name, value in (*half, ("partitions._singled_out", lambda column, _: np.unique(column))):
            patch.setattr(f"confide.guide.{name}", value)  # half of the partitions are drawn anew each time
        expected = one_by_one(one, asked, given_labels.tolist(), counted, bad)
        for low, high in zip([0, *cuts], [*cuts, n], strict=True):
            part = slice(low, high)
            got = many.follow(asked[part], given_labels[part], counted[part], bad[part])
            assert list(zip(got.answers.tolist(), got.refused.tolist(), strict=True)) == expected[part]
            assert not got.scores[got.answers < 0].any() and not got.rows
            if labels == 3:
                assert np.array_equal(got.scores.argmax(axis=1)[got.answers >= 0], got.answers[got.answers >= 0])
    assert one.features == many.features and (kind == "hashed" or len(one.features.renewed) >= 4 * 48)
    assert [r[:2] for r in kept[0]] == [r[:2] for r in kept[1]] and len(kept[0]) >= plan.leaves - 1
    assert {r.kind for r in kept[0]} == ({"node"} if kind == "hashed" else {"warm", "ranges", "node"})
    for a, b in zip(*kept, strict=True):
        assert np.array_equal(a.row, b.row) and np.array_equal(a.exact, b.exact)
    assert np.array_equal(one._leaves.open, many._leaves.open) and one.rounds == many.rounds == n


def test_rows_that_are_kept_are_the_rows_encoded() -> None:
    plan, asked = PLANS[2], rows(200)
    asked[3] = asked[150] = None
    bad = np.zeros(200, dtype=np.bool_)
    bad[151] = True
    guide = Guide(plan, COLUMNS, rng=Random(seed=1))
    got = guide.follow(asked, np.full(200, -1), bad=bad, keep=True)
    assert not any(release.exact.any() for release in guide.releases() if release.kind != "ranges")
    assert [row is None for row in got.rows] == [i in (3, 150, 151) for i in range(200)]
    assert [row.stage for row in got.rows if row] == [0] * (plan.range_rounds - 1) + [1] * (198 - plan.range_rounds)
    assert got.rows[-1] is not None
    assert np.array_equal(got.rows[-1].encoded.indices, guide.encode(asked[-1]).encoded.indices)


def test_rows_that_cannot_be_read_are_known_before_their_round() -> None:
    asked = [*rows(3), *BAD]
    for guide in (Guide(PLANS[2], COLUMNS), Guide(PLANS[2], COLUMNS, ranges=RANGES), Guide(PLANS[2], HashedMap(8))):
        refused = guide.unreadable(asked)
        assert refused.tolist() == guide.follow(asked, np.zeros(7, dtype=np.int64)).refused.tolist()
        assert not refused[:3].any()
    assert Guide(PLANS[2], COLUMNS).counting == PLANS[2].range_rounds
    assert Guide(PLANS[2], COLUMNS, ranges=RANGES).counting == PLANS[2].range_rounds, "declared or not"


def test_labels_that_are_none_teach_nothing() -> None:
    """A compiled loop has no bounds: a label beyond the last would be a weight from somewhere in memory."""
    guide = Guide(PLANS[2], COLUMNS, ranges=RANGES)
    guide.run(encode_batch(guide.features, rows(2)), np.array([2, 10**9]))
    assert not guide._leaves.open.any()
    guide.run(encode_batch(guide.features, rows(1)), np.array([1]))
    assert guide._leaves.open.any()


def test_as_many_labels_as_rows_are_needed() -> None:
    guide = Guide(PLANS[2], COLUMNS, ranges=RANGES)
    labels, mask = np.zeros(3, dtype=np.int64), np.ones(2, dtype=np.bool_)
    for given_ in ({"rows": rows(2)}, {"rows": rows(3), "bad": mask}, {"rows": rows(3), "counted": mask}):
        with pytest.raises(ValueError, match="one label"):
            guide.follow(labels=labels, **given_)
    with pytest.raises(ValueError, match="run them"):
        guide.run(encode_batch(guide.features, rows(2)), labels)
    assert guide.rounds == 0
