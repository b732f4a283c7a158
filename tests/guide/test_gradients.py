"""Gradients of many labels, added in one call, are those of each label by itself, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from confide.guide.guide import Guide
from confide.guide.inputs import columns_for
from confide.guide.maps import Encoded
from confide.guide.model import Question
from confide.planning.plan import Plan
from confide.privacy.random import Random


def made(labels: int, seed: int) -> Guide:
    """A guide of three undeclared columns, which has a warm-up."""
    plan = Plan.tight(epsilon=2.0, delta=1e-6, rounds=3000, labels=labels)
    assert plan.guide is not None
    columns, ranges = columns_for(3)
    return Guide(plan.guide, columns, None, Random(seed), None, ranges=ranges)


@pytest.mark.parametrize("labels", [2, 4])
def test_many_gradients_are_each_ones_own(labels: int) -> None:
    """In the warm-up, after it, with questions of another stage, labels that are none, and rows out of order."""
    one, many = made(labels, 1), made(labels, 1)
    rows = np.random.default_rng(2).normal(size=(1200, 3))
    first: Question | None = None
    for at in range(0, 1200, 40):
        asked = []
        for guide in (one, many):
            some = []
            for row in rows[at : at + 40]:
                guide.begin_round()
                some.append(guide.encode(row))
            asked.append(some)
        first = first or asked[0][0]
        ys = [int(row.sum() > 0) * (labels - 1) for row in rows[at : at + 40]]
        odd = Question(one.stage, Encoded(np.array([2, 1]), np.array([0.5, 0.5])))
        beyond = Question(one.stage, Encoded(np.array([1 << 40]), np.array([0.5])))
        extra, told = [odd, beyond, first, asked[0][3]], [0, 1, 0, labels]
        for question, y in zip([*asked[0], *extra], [*ys, *told], strict=True):
            one.gradient(question, y)
        many.gradients([*asked[1], *extra], [*ys, *told])
        assert np.array_equal(one._leaves.open, many._leaves.open) and one._leaves.open.any()
    assert one.stage == 1 and one.closed == many.closed > 0
    assert all(np.array_equal(a.row, b.row) for a, b in zip(one.releases(), many.releases(), strict=True))
    assert one.model.theta.tobytes() == many.model.theta.tobytes()


def test_a_guide_whose_gradient_is_another_is_taught_by_it() -> None:
    """So that what is broken on purpose stays so."""
    taught = []

    class Told(Guide):
        def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
            taught.append(y)

    guide = made(2, 3)
    guide.__class__ = Told
    guide.begin_round()
    question = guide.encode(np.zeros(3))
    guide.gradients([question, question], [0, 1])
    assert taught == [0, 1]
