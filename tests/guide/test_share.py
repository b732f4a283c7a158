"""Shares of a guide: many partitions' sums make one guide's releases, over warm-ups, ranges and epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from confide.errors import StateError
from confide.guide.guide import Guide, Release
from confide.guide.share import Share
from confide.privacy.random import Random
from tests.guide.test_epochs import ALONE, COLUMNS, COUNTING, LABELS, ROWS, made, same

pytestmark = pytest.mark.claim("partitions.md")

PLANS = {"epochs": ALONE, "ranges, then epochs": COUNTING}


def public_of(plan: Any) -> Guide:
    return Guide(plan, COLUMNS, rng=Random())


@pytest.mark.parametrize("name", PLANS)
def test_three_shares_make_one_guides_releases_over_epochs(name: str) -> None:
    plan, stored = PLANS[name], list[Release]()
    one, merger = made(plan), made(plan, store=stored.append)
    public = public_of(plan)
    shares = [Share(public) for _ in range(3)]
    for i, (x, y) in enumerate(zip(ROWS[:1500], LABELS[:1500].tolist(), strict=True)):
        merger.go_to(i)
        while merger.due is not None:
            merger.merge(sum((share.seal() for share in shares), np.zeros(merger.due_size, dtype=np.int64)))
            merger.close_next()
            public.take(stored[-1])
            for share in shares:
                share.renew()
        share = shares[(i * 7 + i // 11) % 3]
        share.go_to(i)
        for guide in (share, one):
            guide.begin_round()
            question = guide.encode(x)
            if guide.finding:
                guide.count(x)
            guide.gradient(question, y)
        assert share.answer(share.encode(x)) == one.answer(one.encode(x))
    assert one.epoch >= 2 and same(one, public) and same(one, merger) and same(one, shares[0])
    again = public_of(plan)
    again.resume(0, merger.releases())
    assert same(again, one)


def test_a_share_takes_nothing_once_its_leaf_was_offered() -> None:
    public = public_of(ALONE)
    share = Share(public)
    share.begin_round()
    question = share.encode(ROWS[0])
    share.gradient(question, 1)
    sums = share.seal()
    assert sums.any() and np.array_equal(sums, share.seal()), "the same again"
    with pytest.raises(StateError, match="sealed"):
        share.gradient(question, 1)
    with pytest.raises(StateError, match="sealed"):
        share.begin_round()


def test_a_release_is_used_once_and_in_its_order() -> None:
    stored = list[Release]()
    merger, public = made(ALONE, store=stored.append), public_of(ALONE)
    for _ in range(100):
        merger.begin_round()
    first, second = stored[:2]
    for wrong in (second, first._replace(kind="ranges"), first._replace(row=first.row[:-1])):
        with pytest.raises(StateError, match="released next"):
            public.take(wrong)
    public.take(first)
    with pytest.raises(StateError, match="released next"):
        public.take(first)
    public.take(second)
    with pytest.raises(StateError, match="another guide"):
        merger.merge(np.zeros(3, dtype=np.int64))
