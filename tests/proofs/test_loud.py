"""The first leaves of a warm-up, in calls that bring many labels: a row moves at most μ², and nobody else's sums.

As in test_apart.py lives of a row are led through the POP itself, at releases that the adversary chose. Here others ask
and teach in the same calls, and what two lives are apart must be the same with them and without them, to the last bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from confide import POP, Plan
from confide.guide.guide import Guide, Release
from confide.guide.leaves import Kept
from confide.guide.model import Question
from confide.planning.guided import GuidePlan
from confide.planning.promise import Promise
from confide.pop.guiding import Guiding
from tests.proofs.test_apart import TOLD, Life, farthest

pytestmark = pytest.mark.claim("guide.md", "exact.md")

Exact = dict[tuple[str, int], np.ndarray]
ROUNDS = 24
THREE = replace(TOLD, labels=3, clip=2 * TOLD.clip, sigma2=4 * TOLD.sigma2, warm_sigma2=4 * TOLD.warm_sigma2)
EPOCHS = replace(TOLD, rounds=None, leaves=3)  # of six rounds: what is kept of ten is in two of them
EPOCHS = replace(EPOCHS, sigma2=TOLD.sigma2 * EPOCHS.load // TOLD.load)


@cache
def plan_of(guide: GuidePlan) -> Plan:
    return Plan(Promise(guide.epsilon(0.01), 0.01, guide.rounds, guide.labels), (guide,), "tight")


class Forced:
    """What a guide releases, and what everybody sees in its place: noise alone, the same in all worlds."""

    def __init__(self, pop: POP, kind: type[Guide]) -> None:
        self.exact: Exact = {}
        running = pop.operator.loop.guiding
        assert running is not None
        self._guiding: Guiding = running
        running.guide.__class__, running.guide.store = kind, self

    def __call__(self, release: Release) -> None:
        guide, plan = self._guiding.guide, self._guiding.plan
        exact = guide._counted.counts.ravel() if release.kind == "ranges" else release.exact
        self.exact[release.kind, release.number] = exact.copy()
        sigma2 = {"ranges": plan.range_sigma2, "warm": plan.warm_sigma2, "node": plan.sigma2}[release.kind]
        drawn = np.random.default_rng(zlib.crc32(repr(release[:2]).encode())).normal(size=release.row.size)
        release.row[:] = np.rint(drawn * sigma2**0.5)


def other(number: int, guide: GuidePlan) -> tuple[list[float], int]:
    return [float(number * 7 % 11) - 3.0], number % guide.labels


def calls(pop: POP, guide: GuidePlan, life: Life, others: bool) -> None:
    """Two questions at a time, then one call with their labels and one with records."""
    mine = ""
    for first in range(1, ROUNDS, 2):
        numbers = range(first, first + 2)
        rows = [[life.a] if number == life.asked else other(number, guide)[0] for number in numbers]
        given, records = list[tuple[str, int]](), [([9.0], 1)] if others else []
        for number, answer in zip(numbers, pop.predict_many(rows), strict=True):
            if number == life.asked:
                mine = answer.ticket
            elif others:
                given.append((answer.ticket, other(number, guide)[1]))
        if life.taught in numbers and life.record:
            records.insert(0, ([life.a], life.label))  # type: ignore[list-item]
        elif life.taught in numbers and mine:
            given.insert(1, (mine, life.label))
        with suppress(ValueError):
            pop.learn_many([ticket for ticket, _ in given], [label for _, label in given])
        with suppress(ValueError):
            pop.teach_many([x for x, _ in records], [label for _, label in records])


def streams(pop: POP, guide: GuidePlan, life: Life, others: bool) -> None:
    """Seven rounds at a time, each asked and taught; a record, if it is one, after them."""
    for first in range(1, ROUNDS, 7):
        numbers = range(first, first + 7)
        rows = [[life.a] if number == life.asked else other(number, guide)[0] for number in numbers]
        labels = [other(number, guide)[1] if others and number != life.asked else -1 for number in numbers]
        if life.asked in numbers and life.asked == life.taught and not life.record:
            labels[numbers.index(life.asked)] = life.label
        pop.follow_many(rows, np.array(labels))
        if life.taught in numbers and life.record:
            with suppress(ValueError):
                pop.teach([life.a], life.label)


Lead = Callable[[POP, GuidePlan, Life, bool], None]


def led(guide: GuidePlan, life: Life, lead: Lead, others: bool, kind: type[Guide] = Guide) -> Exact:
    pop = POP(None, plan_of(guide), labels=range(guide.labels), features=1, seed=1)
    forced = Forced(pop, kind)
    lead(pop, guide, life, others)
    return forced.exact


def noisy(guide: GuidePlan, exact: Exact) -> Exact:
    """What noise is added to: the counts, and leaves' sums as the nodes of their epoch weigh them."""
    nodes: Exact = {("ranges", 0): exact["ranges", 0]}
    for name, root in (("warm", guide.warm_root), ("node", guide.root)):
        factor, weights = root.factor.tolist(), root.weights.tolist()
        for i in range(sum(at[0] == name for at in exact)):
            first = i - i % root.leaves
            terms = (factor[i - s] * weights[s - first] * exact[name, s].astype(object) for s in range(first, i + 1))
            nodes[name, i] = sum(terms)
    return nodes


def lives_of(guide: GuidePlan, lead: Lead) -> list[Life]:
    """Asked in round 2, which is loud; its label comes then, in the next leaf, late in the warm-up, or after it."""
    last = guide.labels - 1
    rows: Sequence[tuple[float | str, int]] = (0.5, 0), (0.5, last), (900.0, last)
    taught = (2,) if lead is streams else (2, 4, 10)
    tickets = [Life(2, when, False, *row) for when, row in product(taught, rows)]
    return [
        *tickets, *(Life(2, when, True, *row) for when, row in product((2, 8, 20), rows)),
        *(Life(2, None, False, a, 0) for a in (0.5, 900.0, "word")),
    ]  # fmt: skip


class Twice(Guide):
    """What is taught in a loud leaf by a call of many is kept, too."""

    def gradients(self, questions: Sequence[Question], ys: Sequence[int], /) -> None:
        super().gradients(questions, ys)
        if self.finding and self._leaves.loud:
            pairs = zip(questions, ys, strict=True)
            self._leaves.kept.extend(Kept(self.rounds, one.read, y) for one, y in pairs if one.read is not None)


@pytest.mark.parametrize("lead", [calls, streams])
@pytest.mark.parametrize("guide", [TOLD, THREE, EPOCHS], ids=["two labels", "three labels", "epochs"])
def test_many_labels_at_once_move_no_more_than_certified_and_nobody_else(guide: GuidePlan, lead: Lead) -> None:
    assert guide.loud_rounds == 2 and guide.kept_clip > 0 and guide.loud_clip > 1.5 * guide.clip
    lives = lives_of(guide, lead)
    worlds, alone = ([led(guide, life, lead, others) for life in lives] for others in (True, False))
    for with_others, own in zip(worlds, alone, strict=True):
        assert with_others.keys() == worlds[0].keys() == own.keys()
        for name, sums in with_others.items():
            assert np.array_equal(sums - worlds[0][name], own[name] - alone[0][name])
    nodes = [noisy(guide, one) for one in worlds]
    assert 0.5 * guide.mu2 < farthest(guide, nodes) <= guide.mu2


def test_what_a_call_of_many_keeps_of_a_loud_leaf_is_found() -> None:
    lives = Life(2, 2, False, 0.5, 0), Life(2, 2, False, 900.0, 1)
    for kind, beyond in ((Guide, False), (Twice, True)):
        one, another = (noisy(TOLD, led(TOLD, life, calls, True, kind)) for life in lives)
        assert (farthest(TOLD, [one, another]) > TOLD.mu2) is beyond
