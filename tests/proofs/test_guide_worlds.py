"""The guide's own code against every pair of lives of one unit: what nodes can differ by, in integers.

Releases are forced to what the adversary wants them to be, the same in both worlds. So θ is, and the difference of the
two worlds' nodes must be the factor matrix times the unit's own gradients, within what the plan certifies.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np
import pytest

from confide.guide.guide import Guide, Release
from confide.guide.hashed import HashedMap
from confide.privacy.random import Random
from tests.broken.guides import AtExactSums, LossesBeside
from tests.guide.test_guide import PLAN as LARGE

pytestmark = pytest.mark.claim("guide.md")

MAP = HashedMap(2, pairs=0)  # two coordinates: a constant, and everything else
SMALL: Any = {"rounds": 8, "leaves": 4, "leaf": 2, "growth": 0, "clip": 1 << 10, "scale": 1 << 11, "factor_scale": 4}
PLAN = replace(LARGE, **SMALL, column_scale=8, step=0.5, memory=2.0)
OTHERS = [({"a": 1.0}, 1), ({"b": "x"}, 0), ({"c": -3.0}, 1)]


class Life(NamedTuple):
    """What the unit does in one world: its row, its label, and the round in which its label comes, if it ever does."""

    x: dict[str, Any]
    label: int
    comes: int | None


LIVES = [Life({}, 0, None), *(Life(x, y, i) for x, y, i in product(({}, {"a": 1.0}, {"q": None}), (0, 1), (1, 3, 5)))]


def sums(
    lives: tuple[Life, ...], forced: np.ndarray, others: bool = True, kind: type[Guide] = Guide
) -> list[np.ndarray]:
    """The exact sums of the leaves that close, where the unit asks in round 1 and every release is forced."""
    kept: list[np.ndarray] = []

    def store(release: Release) -> None:
        kept.append(release.exact.copy())
        release.row[:] = forced[release.number]

    guide = kind(PLAN, MAP, rng=Random(seed=1), store=store)
    for i in range(PLAN.rounds):
        guide.begin_round()
        if i == 0:
            asked = [guide.encode(life.x) for life in lives]
        elif others:
            x, y = OTHERS[i % len(OTHERS)]
            guide.gradient(guide.encode(x), y)
        for life, question in zip(lives, asked, strict=True):
            if life.comes == i:
                guide.gradient(question, life.label)
    return kept


def nodes(exact: list[np.ndarray]) -> list[np.ndarray]:
    factor, weights = PLAN.root.factor.tolist(), PLAN.root.weights.tolist()
    return [sum(factor[i - s] * weights[s] * exact[s].astype(object) for s in range(i + 1)) for i in range(len(exact))]


def apart(first: list[np.ndarray], second: list[np.ndarray]) -> int:
    """Σ_i ‖Δ_i‖², by integers."""
    return sum(int(((a - b) ** 2).sum()) for a, b in zip(nodes(first), nodes(second), strict=True))


FORCED = [
    np.zeros((4, 8), np.int64),
    np.array(  # two sums of gradients, and six of losses: here the slow window answers, then the frequent label
        [
            [900, -400, 5, -90000, 0, 7, 10, -800], [-2000, 10, 0, 9999, 8, -990000, 3000, 70],
            [77, 3000, 1, 2, 6, -3, 4, 5], [0, 1, 0, -1, 0, 0, 1, 0],
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize("forced", FORCED)
@pytest.mark.parametrize("labels", [1, 2])
def test_no_two_lives_move_the_nodes_further_than_certified(forced: np.ndarray, labels: int) -> None:
    certified = (2 * labels * PLAN.clip) ** 2 * PLAN.load
    some = [life for life in LIVES if labels == 1 or life.comes in (None, 1)]
    lives = list(combinations_with_replacement(some, labels))
    worlds = [sums(each, forced) for each in lives]
    distances = [apart(a, b) for a, b in product(worlds, worlds)]
    assert max(distances) <= certified
    assert max(distances) > 0.9 * (2 * labels * PLAN.clip) ** 2 * sum(f**2 for f in PLAN.root.column(0).tolist()[:-1])


@pytest.mark.parametrize("forced", FORCED)
def test_losses_beside_whole_gradients_would_move_them_further(forced: np.ndarray) -> None:
    """The same test finds a guide that adds losses outside the norm."""
    reached = sum(f**2 for f in PLAN.root.column(0).tolist()[:-1])  # of the load, by the nodes that are released here
    for kind, beyond in ((Guide, False), (LossesBeside, True)):
        worlds = [sums((life,), forced, kind=kind) for life in LIVES]
        furthest = max(apart(a, b) for a, b in product(worlds, worlds))
        assert (furthest > (2 * PLAN.clip) ** 2 * reached) is beyond


@pytest.mark.parametrize("forced", FORCED)
def test_others_are_the_same_whatever_the_unit_does(forced: np.ndarray) -> None:
    """Subtract the unit's own gradients, taken at the same releases, and nothing of it is left."""
    alone = sums((LIVES[0],), forced)
    for life in LIVES:
        with_others, own = sums((life,), forced), sums((life,), forced, others=False)
        for a, b, c in zip(with_others, own, alone, strict=True):
            assert np.array_equal(a - b, c)


def test_gradients_at_exact_sums_would_reach_others() -> None:
    """The same test finds a guide whose θ follows what it should not know.

    Steps are long, so that a gradient at another θ is not clipped to the same integers.
    """
    life, found, plan = Life({}, 1, 0), [], replace(PLAN, step=16.0)
    for kind in (Guide, AtExactSums):
        worlds = []
        for own in (True, False):
            guide = kind(plan, MAP, rng=Random(seed=1), store=(kept := []).append)
            for i in range(PLAN.leaf + 1):
                guide.begin_round()
                if i == 0 and own:
                    guide.gradient(guide.encode(life.x), life.label)
                if i == 1:
                    guide.gradient(guide.encode(OTHERS[0][0]), OTHERS[0][1])
            worlds.append(kept[0].exact)
        alone = kind(plan, MAP, rng=Random(seed=1), store=(kept := []).append)
        for i in range(PLAN.leaf + 1):
            alone.begin_round()
            if i == 0:
                alone.gradient(alone.encode(life.x), life.label)
        found.append(np.array_equal(worlds[0] - kept[0].exact, worlds[1]))
    assert found == [True, False]
