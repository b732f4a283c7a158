"""Games in batches: which ones may be taken from a folder, and that no batch repeats another."""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import confide
from confide.games import OnlineGame, Round, SplitVote, View, WorstMargin, audit, audit_game
from confide.games.digest import digest
from confide.games.engine import play_many
from confide.games.scenarios import SplitPOP, split_plan
from confide.planning.guarantee import Guarantee
from confide.pop.base import Answer
from confide.privacy.gate import Gate

PLAN = split_plan(8.0, unsure=20, rounds=300, copies=160)


@dataclass(frozen=True)
class Rate:
    """Shows 1 with probability `zero` or `one`, by what it was told."""

    zero: float
    one: float

    def __call__(self) -> "Told":
        return Told(self)


class Told:
    def __init__(self, rate: Any, rng: Any = None) -> None:
        self.rate, self.told, self.rng = rate, 0, np.random.default_rng() if rng is None else rng

    def predict(self, x: Any) -> Answer:
        return Answer(int(self.rng.random() < (self.rate.zero, self.rate.one)[self.told]), True, "ticket")

    def learn(self, ticket: str, y: int) -> None:
        self.told = y


@dataclass(frozen=True)
class Asker:
    """Tells the bit, then asks."""

    rounds: int = 2

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        yield Round((0, 0), (0, 1), challenge=True)
        yield Round((0, None))

    def score(self, view: View) -> float:
        return float(view.answers[1].label)


def batches(folder: Path) -> int:
    return len(list(folder.rglob("batch-*.npz")))


# ---------------------------------------------------------------------- folders


def test_another_mechanism_is_played_anew(tmp_path: Path) -> None:
    """A broken coin with the folder of a good one: what was played before says nothing about it."""
    good = audit(Rate(0.5, 0.5), Asker(), 300, folder=tmp_path)
    assert good.advantage < 0.2
    broken = audit(Rate(0.05, 0.95), Asker(), 300, folder=tmp_path)
    assert broken.advantage > 0.6 and batches(tmp_path) == 2
    again = audit(Rate(0.05, 0.95), Asker(), 300, folder=tmp_path)
    assert again.points == broken.points and batches(tmp_path) == 2  # and this was not


def lambdas(one: float) -> Callable[[], Any]:
    return lambda: Told(Rate(0.5, one))


def test_so_is_another_closure_or_another_line_of_code(tmp_path: Path) -> None:
    audit(lambdas(0.5), Asker(), 40, folder=tmp_path)
    audit(lambdas(0.5), Asker(), 40, folder=tmp_path)
    assert batches(tmp_path) == 1
    audit(lambdas(0.9), Asker(), 40, folder=tmp_path)
    audit(lambda: Told(Rate(0.5, 0.5)), Asker(), 40, folder=tmp_path)
    audit(lambda: Told(Rate(0.5, 0.6)), Asker(), 40, folder=tmp_path)
    assert batches(tmp_path) == 4


def test_so_are_other_rounds_challenges_tables_and_numbers_of_games(tmp_path: Path) -> None:
    steeper = PLAN.but(gate=Gate(np.concatenate([PLAN.gate.table[:40], 0.99 * PLAN.gate.table[40:]])))
    adversary, other = WorstMargin(PLAN, ones=100), WorstMargin(PLAN, ones=101)
    audits = (
        (PLAN, adversary, 20, 1, 20),
        (steeper, adversary, 20, 1, 20),
        (PLAN, other, 20, 1, 20),
        (PLAN, adversary, 21, 1, 20),
        (PLAN, adversary, 20, 2, 20),
        (PLAN, adversary, 20, 1, 21),
    )
    for played, (plan, against, rounds, challenges, games) in enumerate(audits, start=1):
        game = OnlineGame(_unverified(plan), against, rounds, challenges)
        for _ in range(2):
            play_many(game, games, folder=tmp_path, name="")
        assert batches(tmp_path) == played


def test_so_is_another_version_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit(Rate(0.5, 0.5), Asker(), 40, folder=tmp_path)
    monkeypatch.setattr("confide.games.engine.sources", lambda: "another")
    audit(Rate(0.5, 0.5), Asker(), 40, folder=tmp_path)
    assert batches(tmp_path) == 2


class Unverified(confide.Plan):
    def verify(self) -> Guarantee:
        return self.guarantee


def _unverified(plan: confide.Plan) -> SplitPOP:
    return SplitPOP(Unverified(**{name: getattr(plan, name) for name in plan.__dataclass_fields__}))


class Lazy:
    def __init__(self, base: int) -> None:
        self.base = base

    @cached_property
    def square(self) -> int:
        return self.base**2


def test_a_digest_is_of_values_and_code_and_not_of_what_is_kept() -> None:
    lazy = Lazy(3)
    before = digest(lazy)
    assert lazy.square == 9 and digest(lazy) == before != digest(Lazy(4))
    assert digest({"a": {1, 2}}) == digest({"a": {2, 1}}) != digest({"a": {2, 3}})
    assert digest(np.zeros(2)) != digest(-np.zeros(2)) and digest([1]) != digest((1,)) and digest(1) != digest(True)
    assert digest(partial(max, 1)) != digest(partial(max, 2)) and digest(max) != digest(min)
    assert digest(Rate) == digest(Rate) != digest(Told)
    adversary = WorstMargin(PLAN, ones=100)
    before = digest(adversary)
    assert adversary.law() is not None and digest(adversary) == before

    def again(n: int) -> int:
        return again(n - 1) if n else 0

    assert digest(again) == digest(again)
    with pytest.raises(ValueError, match="cannot be read"):
        digest([threading.Lock()])


# ---------------------------------------------------------------------- seeds


@dataclass
class SeededRate:
    """A factory with a state: the coins of the next mechanism follow from it."""

    rng: Any

    def __call__(self) -> Told:
        return Told(Rate(0.5, 0.5), self.rng)


def seeded_pop() -> confide.POP:
    return confide.POP(SplitVote(), PLAN, labels=[0, 1], features=2, fallback=0, seed=7, after_halt="raise")


def test_a_seeded_factory_is_refused_where_its_batches_would_repeat(tmp_path: Path) -> None:
    """Every worker would unpickle the same state, and every call that goes on would start with it again."""
    for make, adversary in (
        (SeededRate(np.random.default_rng(1)), Asker()),
        (seeded_pop, WorstMargin(PLAN, ones=100)),
    ):
        for where in ({"workers": 2}, {"folder": tmp_path}, {"workers": None}):
            with pytest.raises(ValueError, match="batches would repeat"):
                audit(make, adversary, 40, **where)  # type: ignore[arg-type]
    assert batches(tmp_path) == 0
    audit(SeededRate(np.random.default_rng(1)), Asker(), 40)  # one process, from the first game to the last


@dataclass(frozen=True)
class Reseeded:
    """The same, with a seed for each batch."""

    seed: int

    def for_batch(self, number: int) -> SeededRate:
        return SeededRate(np.random.default_rng([self.seed, number]))

    def __call__(self) -> Told:
        raise AssertionError("a factory of a batch makes the mechanisms")


def test_a_factory_that_takes_a_batchs_number_does_not_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.games.engine.BATCH", 40)
    game = OnlineGame(Reseeded(5), Asker(), 2)
    zeros, ones = play_many(game, 120, workers=1, folder=tmp_path, name="")
    assert not any(np.array_equal(zeros[a], zeros[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    next(tmp_path.rglob("batch-00001.npz")).unlink()
    again = play_many(game, 120, workers=1, folder=tmp_path, name="")
    assert all(np.array_equal(a, b) for one, other in zip((zeros, ones), again, strict=True)
               for a, b in zip(one, other, strict=True))  # fmt: skip


def test_the_right_mechanism_may_use_folders_and_workers(tmp_path: Path) -> None:
    game = OnlineGame(SplitPOP(PLAN), WorstMargin(PLAN, ones=100), PLAN.rounds)
    first = audit_game(game, 20, folder=tmp_path)
    assert audit_game(game, 20, folder=tmp_path).points == first.points and batches(tmp_path) == 1
