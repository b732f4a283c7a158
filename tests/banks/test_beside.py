"""Memory that a process shares with a shard's: the same bits through it, and nothing of one call in another.

The actors here live in this process; tests/banks/test_ray.py has real ones.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide.banks import ShardedBank, beside, shards
from confide.banks.beside import SPACE, Lent, Where, packed, reached, unpacked
from confide.banks.ray import Actor, Actors
from confide.banks.shard import Recipe
from confide.banks.shards import Unheard
from confide.banks.sharing import mark
from confide.learners import DecisionTree, LogisticRegression

pytestmark = [
    pytest.mark.claim("people.md"),
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system lends no memory: calls travel otherwise"),
]

ROUNDS, STEP = 240, 30
DICE = np.random.default_rng(7)
XS = np.round(DICE.normal(size=(ROUNDS, 3)), 3)
YS = (XS[:, 0] > 0).astype(np.int64)
PLAN = Plan.tight(200.0, 1e-2, ROUNDS, copies=60, polls=21, unsure=150, silent=30, guide=None)


class Keeps:
    """A learner that keeps the rows that it is asked about and taught: nothing says that it must not."""

    def __init__(self) -> None:
        self._sum, self._rows = 0.0, list[Any]()

    def learn(self, x: Any, y: Any) -> None:
        self._sum += (2 * y - 1) * abs(float(x[0])) + sum(float(row[1]) for row in self._rows)
        self._rows = [*self._rows[-5:], x]

    def predict(self, x: Any) -> int:
        self._rows = [*self._rows[-5:], x]
        return int(self._sum > 0)


class GoneError(Exception):
    """The actor is lost."""


class LostSightError(GoneError):
    """Nobody knows."""


class Here(Actors):
    """Actors in this process, each call at once, its answer through bytes as Ray does it."""

    def __init__(self, actor: type[Actor] = Actor) -> None:
        errors = SimpleNamespace(RayError=GoneError, ActorUnavailableError=LostSightError)
        ray = SimpleNamespace(get=self._get, exceptions=errors, cloudpickle=pickle, put=lambda given: given)
        self._kind, self.told, self.unheard = actor, list[str](), False
        vars(self).update(_ray=ray, _cluster=ray, _shards=3, _actor=SimpleNamespace(remote=self._made))

    def number(self, copies: int) -> int:
        return 3

    def stop(self, shard: Any) -> None:
        pass

    def _made(self, recipe: Recipe, first: int, end: int) -> Any:
        actor = self._kind(recipe, first, end)
        return SimpleNamespace(**{name: SimpleNamespace(remote=self._call(actor, name)) for name in CALLS})

    def _call(self, actor: Actor, name: str) -> Any:
        def remote(*given: Any) -> bytes:
            self.told.append(name)
            try:
                return pickle.dumps(getattr(actor, name)(*pickle.loads(pickle.dumps(given))))
            except ValueError as error:
                return pickle.dumps(error)

        return remote

    def _get(self, said: bytes) -> Any:
        if self.unheard:
            self.unheard = False
            raise LostSightError
        answer = pickle.loads(said)
        if isinstance(answer, ValueError):
            raise answer
        return answer


CALLS = "meet", "told", "told_all", "told_beside"


class Keeping(Actor):
    """A shard that keeps what it is given, as loading a state may."""

    def keep(self, given: Any) -> None:
        self.kept = given

    def hear(self, _: Any) -> None:
        pass

    def sum(self, _: None) -> float:
        return float(self.kept.sum())


class Careless(Keeping):
    """A double: what is given is left in the memory, whoever may keep it."""

    def told_beside(self, call: str, sizes: Any) -> Any:
        assert self._memory is not None
        answer = getattr(self, call)(unpacked(self._memory, sizes))
        return beside.written(self._memory, packed(answer)), None


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices are written down often."""
    monkeypatch.setattr(shards, "EVERY", 25)


def make(learner: Any, place: Any) -> POP:
    return POP(learner, PLAN, labels=[0, 1], features=3, seed=5, bank=place)


def life(pop: POP) -> Iterator[Any]:
    for start in range(0, ROUNDS, STEP):
        done = pop.follow_many(XS[start : start + STEP], YS[start : start + STEP])
        yield done.answers.tolist(), done.margins.tolist()


def left(bank: Any) -> dict[str, Any]:
    """A bank's state; of models that are pickles what they hold: the bytes tell also which parts were one object."""
    state = dict(bank.state(trusted=True))
    blob, ends = np.asarray(state.pop("pickles", b"")).tobytes(), np.cumsum(state.pop("sizes", []), dtype=int).tolist()
    models = [mark(pickle.loads(blob[start:end])) for start, end in pairwise([0, *ends])]
    return {"models": models, **{name: np.asarray(value).tobytes() for name, value in state.items()}}


@pytest.mark.parametrize("learner", [LogisticRegression, Keeps, lambda: DecisionTree(memory=16)])
def test_the_bits_are_those_of_one_bank_in_one_place(learner: Any) -> None:
    place = Here()
    here, there = make(learner(), None), make(learner(), place)
    assert list(life(here)) == list(life(there))
    assert left(here.operator.bank) == left(there.operator.bank)
    assert place.told.count("told_beside") == 3 * (ROUNDS // STEP + 1) and not {"told", "told_all"} & set(place.told)


@pytest.mark.parametrize(("actor", "stays"), [(Keeping, True), (Careless, False)])
def test_what_a_shard_keeps_stays_as_it_was(actor: type[Actor], stays: bool) -> None:
    place = Here(actor)
    shard = place.start(Recipe(LogisticRegression(), 4, 2, 3, None, False), range(4))
    for call, given in (("keep", np.ones(9)), ("hear", np.zeros(90))):
        place.finish(place.begin([shard], call, [given])[0])
    assert (place.finish(place.begin([shard], "sum", [None])[0]) == 9) == stays
    assert set(place.told) == {"meet", "told_beside"}


def test_a_state_that_a_shard_takes_over_is_its_own() -> None:
    before = make(DecisionTree(memory=16), None)
    list(life(before))
    state = before.operator.bank.state(trusted=True)
    bank = ShardedBank(Here(), DecisionTree(memory=16), 60, 2, 3, before.operator.bank._rng)  # type: ignore[attr-defined]
    bank.load_state(state, trusted=True)
    bank.learn_many(np.arange(60), XS[:60], YS[:60])
    before.operator.bank.learn_many(np.arange(60), XS[:60], YS[:60])
    assert left(bank) == left(before.operator.bank)


def test_whoever_is_unheard_may_read_yet_and_nothing_is_written_there_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shards, "EVERY", 1 << 20)
    place = Here()
    pop, twin = make(LogisticRegression(), place), make(LogisticRegression(), None)
    each, expected = life(pop), life(twin)
    assert next(each) == next(expected)
    place.told.clear()
    place.unheard = True
    assert [next(each), next(each)] == [next(expected), next(expected)], "the batch was sent once more"
    assert place.told == ["told_beside"] * 3 + ["told"] + ["told", "told_beside", "told_beside"]


def test_one_call_at_a_time_has_the_memory_and_an_answer_is_copied_out_of_it() -> None:
    lent = Lent.new()
    assert lent is not None
    other = reached(lent.where)
    assert other is not None
    sizes = lent.begin(packed(np.arange(9)))
    assert sizes is not None and lent.begin(packed(np.arange(3))) is None
    given = unpacked(other, sizes)
    assert given.tolist() == list(range(9)) and given.flags.aligned
    said = lent.finish(beside.written(other, packed(2 * given)))
    assert lent.begin(packed(np.zeros(90))) is not None and said.tolist() == list(range(0, 18, 2))
    assert lent.finish(None) is None and lent.begin(packed(np.zeros(SPACE // 8))) is None, "there is no room"
    assert lent.begin(packed(1)) is not None
    lent.close()


def test_another_process_reaches_it_by_its_name_alone_while_it_is_open() -> None:
    lent = Lent.new()
    assert lent is not None
    code = (
        "import sys; from confide.banks.beside import *; where = Where(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
    )
    code += "; memory = reached(where); print(memory and bytes(memory[:4]))"

    def there(where: Where) -> str:
        named = [sys.executable, "-c", code, *map(str, where)]
        return subprocess.run(named, capture_output=True, text=True, check=True).stdout.strip()

    sizes = lent.begin([memoryview(b"four")])
    assert sizes == [4] and there(lent.where) == "b'four'"
    assert there(lent.where._replace(name="confide-0")) == there(lent.where._replace(process=1 << 30)) == "None"
    lent.close()
    assert reached(lent.where) is None


def test_without_room_on_the_machine_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError

    files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert Lent.new() is None and len(os.listdir("/proc/self/fd")) == files
    place = Here()
    assert list(life(make(LogisticRegression(), place))) == list(life(make(LogisticRegression(), None)))
    assert set(place.told) == {"told"}


def test_on_another_machine_calls_travel_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Actor, "meet", lambda self, where: False)
    place = Here()
    assert list(life(make(Keeps(), place))) == list(life(make(Keeps(), None)))
    assert set(place.told) == {"meet", "told"}


def test_an_error_of_a_shard_gives_the_memory_back() -> None:
    place = Here()
    shard = place.start(Recipe(LogisticRegression(), 4, 2, 3, None, False), range(4))
    with pytest.raises(ValueError):
        place.finish(place.begin([shard], "load", [{}])[0])
    assert shard.memory is not None and shard.memory.begin(packed(1)) is not None


def test_nobody_knows_is_said() -> None:
    place = Here()
    shard = place.start(Recipe(LogisticRegression(), 4, 2, 3, None, False), range(4))
    begun = place.begin([shard], "size", [None])[0]
    place.unheard = True
    with pytest.raises(Unheard):
        place.finish(begun)
    assert shard.memory is None
