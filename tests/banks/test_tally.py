"""Tallied copies: every vote and every answer is that of the plain bank, for a lookup a question."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide.banks import StackedBank, TallyBank, checks
from confide.banks.automaton import automaton
from confide.learners import Halving, Intervals, LogisticRegression, Points, StandardOptimal, Thresholds
from confide.privacy.counters import TreeCounter, tick
from confide.privacy.draws import draw_laplace
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("paper-plan.md")

POINTS = 9
LINE = np.tri(8, 7, -1)
LEARNERS: dict[str, Callable[[], Any]] = {
    "points": Points,
    "thresholds": partial(Thresholds, POINTS),
    "intervals": partial(Intervals, POINTS),
    "halving": partial(Halving, LINE),
    "standard optimal": partial(StandardOptimal, np.eye(7)),
}
EVERY = pytest.mark.parametrize("name", LEARNERS)


def tallied(name: str, copies: int) -> TallyBank:
    return TallyBank(LEARNERS[name](), copies, points=POINTS if name == "points" else None)


def plain(name: str, copies: int) -> StackedBank:
    return StackedBank(LEARNERS[name](), copies, 2, 1)


def questions(name: str) -> list[list[float]]:
    """Every point; where the learner takes them, what lies beside and between."""
    beyond = [[-7.0], [-1.0], [0.5], [POINTS - 0.5], [POINTS + 0.0], [1e30]]
    return [[float(x)] for x in range(7)] + (beyond if name in ("thresholds", "intervals") else [])


# --- the same votes


@EVERY
def test_every_vote_is_that_of_the_plain_bank(name: str) -> None:
    """Whatever was taught, in whatever order, labels that the class cannot give included; also after resets."""
    ours, theirs, dice = tallied(name, 13), plain(name, 13), np.random.default_rng(1)
    for lesson in range(400):
        one, x, y = int(dice.integers(13)), questions(name)[dice.integers(len(questions(name)))], int(dice.integers(2))
        for bank in (ours, theirs):
            if lesson % 57 == 56:
                bank.reset([one])
            bank.learn(one, bank.encode(x), y)
        for asked in questions(name):
            row = ours.encode(asked)
            poll = dice.permutation(13)[: dice.integers(14)]
            assert (ours.tally(row) == theirs.votes(row, np.arange(13))).all()
            assert (ours.votes(row, poll) == theirs.votes(row, poll)).all()


@EVERY
def test_it_keeps_to_what_a_bank_must(name: str) -> None:
    numbers = np.random.default_rng(2).integers(0, 7, 60)
    records = [(np.array([float(x)]), int(x > 3)) for x in numbers]
    checks.check_bank(lambda copies: tallied(name, copies), records)


@EVERY
def test_what_all_copies_say_is_what_each_of_them_says(name: str) -> None:
    """`tally`, which no check knows, against `votes`, which reads one copy after the other; x that is no point too."""
    bank, dice = tallied(name, 40), np.random.default_rng(3)
    rows = dice.integers(0, 7, (300, 1)).astype(float)
    assert bank.learn_many(dice.integers(0, 40, 300), rows, dice.integers(0, 2, 300)) == 300
    for x in ([0.5], [-3.0], [1e30], *questions(name)):
        assert (bank.tally(bank.encode(x)) == bank.votes(bank.encode(x), np.arange(40))).all()


@pytest.mark.parametrize("name", ["points", "halving", "standard optimal"])
def test_where_x_is_no_point_copies_abstain_and_learn_nothing(name: str) -> None:
    bank = tallied(name, 5)
    for x in (0.5, -1.0, 9.0, 1e30):
        row = bank.encode([x])
        assert not bank.tally(row).any()
        with pytest.raises(ValueError, match="a whole number from 0"):
            bank.learn(1, row, 1)
    assert bank.learn_many(np.arange(3), np.array([[1.0], [0.5], [2.0]]), np.ones(3, dtype=np.int64)) == 2


@EVERY
def test_a_state_brings_back_the_counts(name: str) -> None:
    bank, dice = tallied(name, 30), np.random.default_rng(4)
    bank.learn_many(dice.integers(0, 20, 90), dice.integers(0, 7, (90, 1)).astype(float), dice.integers(0, 2, 90))
    file = io.BytesIO()
    np.savez(file, **dict(bank.state()))  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file, allow_pickle=False) as held:
        state = {key: held[key].item() if held[key].ndim == 0 else held[key] for key in held}
    back = tallied(name, 30)
    back.learn(29, back.encode([3.0]), 1)  # what it knew before is gone
    back.load_state(state)
    for x in questions(name):
        assert (back.tally(back.encode(x)) == bank.tally(bank.encode(x))).all()
    damaged = {**state, "array memory": state["array memory"] + 60_000}
    with pytest.raises(ValueError, match="damaged"):
        back.load_state(damaged)
    with pytest.raises(ValueError, match="another bank"):
        tallied(name, 31).load_state(state)


def test_a_copy_takes_at_most_eight_bytes() -> None:
    for name, most in {"points": 4, "halving": 4, "thresholds": 8, "intervals": 8}.items():
        bank = tallied(name, 1_000_000)
        assert bank.nbytes <= most * bank.copies + 200


def test_what_cannot_be_tallied_is_refused() -> None:
    with pytest.raises(ValueError, match="LogisticRegression cannot be tallied"):
        TallyBank(LogisticRegression(), 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="number of points"):
        TallyBank(Points(), 10)
    with pytest.raises(ValueError, match="number of points"):
        TallyBank(Thresholds(5), 10, points=5)
    with pytest.raises(ValueError, match="too large to be enumerated"):
        TallyBank(Halving(np.random.default_rng(5).integers(0, 2, (300, 40))), 10)


def test_an_enumerated_class_knows_what_its_learner_comes_to_know() -> None:
    learner = Halving(LINE)
    known = automaton(learner)
    for first in range(7):
        for second in range(7):
            alone, state = copy.deepcopy(learner), 0
            for point, label in ((first, 0), (second, 1), (first, 1)):
                alone.learn([point], label)
                state = int(known.moves[state, point, label])
            assert known.answers[state].tolist() == [alone.predict([x]) for x in range(7)]


# --- the same rounds


@cache
def paper_plan(rounds: int = 3000, copies: int = 400) -> Plan:
    return Plan.paper(30.0, 1e-3, rounds, copies=copies, unsure=100)


def stream(name: str, rounds: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Points that are asked again and again, some without a label, some that nobody can read."""
    dice = np.random.default_rng(seed)
    xs = dice.integers(0, 7, (rounds, 1)).astype(float)
    right = (xs[:, 0] == 3) if name != "thresholds" else (xs[:, 0] >= 3)
    xs = xs.astype(object)
    xs[dice.random(rounds) < 0.02] = "x"
    return xs, np.where(dice.random(rounds) < 0.9, right, -1)


def parts(pop: POP) -> tuple[Any, ...]:
    """Everything that a run has come to, coins included."""
    loop = pop._loop
    counter = loop.account.counter
    said = () if counter is None else (counter.time, counter._state, counter._rng.position)
    return loop.account.unsure, loop.account.halted, loop.rng.position, pop.operator.failures, *said


@EVERY
@pytest.mark.parametrize("rounds", [300, 3000])
def test_the_compiled_loop_is_the_plain_one_bit_for_bit(name: str, rounds: int) -> None:
    """The paper's own mechanism, gate and counter: answers, counts, counter nodes, words and copies are the same."""
    plan = paper_plan(rounds)
    xs, ys = stream(name, rounds, 6)
    fused, slow, other = (
        POP(LEARNERS[name](), plan, labels=[0, 1], features=1, seed=7, bank=bank)
        for bank in (tallied(name, plan.copies), tallied(name, plan.copies), plain(name, plan.copies))
    )
    slow._loop.bank.__class__ = type("Slow", (TallyBank,), {})
    half = rounds // 2 + 1
    for part in (slice(0, half), slice(half, None)):
        found = [pop.follow_many(xs[part], ys[part]) for pop in (fused, slow, other)]
        for one, two in pairwise(found):
            assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert parts(fused) == parts(slow)
    assert parts(fused)[:3] == parts(other)[:3]
    for x in range(7):
        row = fused._loop.bank.encode([x])
        votes = [pop._loop.bank.votes(row, np.arange(plan.copies)).tolist() for pop in (fused, slow, other)]
        assert votes[0] == votes[1] == votes[2]


def test_the_run_halts_where_the_plain_one_does() -> None:
    plan = Plan.paper(30.0, 1e-3, 3000, copies=400, unsure=1)
    xs, ys = np.full((3000, 1), 3.0), np.full(3000, 1)
    fused, slow = (
        POP(Points(), plan, labels=[0, 1], features=1, seed=8, bank=tallied("points", 400)) for _ in range(2)
    )
    slow._loop.bank.__class__ = type("Slow", (TallyBank,), {})
    results = [pop.follow_many(xs, ys) for pop in (fused, slow)]
    assert fused.state == slow.state == "halted" and parts(fused) == parts(slow)
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@EVERY
def test_a_certified_plan_runs_tallied_as_it_runs_plain(name: str) -> None:
    plan = Plan.certified(8.0, 1e-4, 3000, 1)
    xs, ys = stream(name, 2000, 9)
    ours, theirs = (
        POP(LEARNERS[name](), plan, labels=[0, 1], features=1, seed=10, bank=bank)
        for bank in (tallied(name, plan.copies), plain(name, plan.copies))
    )
    one, two = ours.follow_many(xs, ys), theirs.follow_many(xs, ys)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True)) and parts(ours)[:3] == parts(theirs)[:3]


def test_questions_in_batches_and_late_labels_are_the_same_too() -> None:
    plan = paper_plan()
    ours, theirs = (
        POP(Points(), plan, labels=[0, 1], features=1, seed=11, bank=bank)
        for bank in (tallied("points", plan.copies), plain("points", plan.copies))
    )
    xs, ys = stream("points", 600, 12)
    for start in range(0, 600, 100):
        part = xs[start : start + 100]
        one, two = ours.predict_many(part), theirs.predict_many(part)
        assert [a.label for a in one] == [a.label for a in two]
        for pop, answers in ((ours, one), (theirs, two)):
            good = [(a.ticket, int(ys[start + i])) for i, a in enumerate(answers) if a.ticket and ys[start + i] >= 0]
            pop.learn_many(*zip(*good, strict=True))
    assert parts(ours)[:3] == parts(theirs)[:3]


def test_a_poll_of_some_copies_is_asked_one_by_one() -> None:
    plan = Plan.tight(30.0, 1e-3, 1000, copies=60, polls=21, unsure=50, silent=10, guide=None)
    xs, ys = stream("points", 400, 13)
    ours, theirs = (
        POP(Points(), plan, labels=[0, 1], features=1, seed=14, bank=bank)
        for bank in (tallied("points", 60), plain("points", 60))
    )
    one, two = ours.follow_many(xs, ys), theirs.follow_many(xs, ys)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_lent_counter_takes_the_steps_that_it_would_take() -> None:
    """Node for node and word for word, wherever the loop stops."""
    mine, twin = (TreeCounter(3.0, 1000, rng=Random(seed=15)) for _ in range(2))
    said, inputs = list[int](), np.random.default_rng(16).integers(0, 2, 1000)
    while len(said) < 1000:
        ticks = mine.lend(300, limit=10**9)
        while len(said) < 1000:
            noise, at = draw_laplace(ticks.words, int(ticks.place[1]), ticks.numerator, ticks.denominator)
            if at < 0 or len(said) % 97 == 96:
                break
            ticks.place[1] = at
            said.append(int(tick(ticks, int(inputs[len(said)]), noise)))
        if len(said) % 97 == 96:
            said.append(mine.step(int(inputs[len(said)])))
    assert said == [twin.step(int(value)) for value in inputs]
    assert mine.time == 1000 and mine._state == twin._state and mine._rng.position == twin._rng.position
