"""Memory and pipes that a process shares with a shard: the same bits through them, nothing of one call in another.

The actors here live in this process; tests/banks/test_ray.py has real ones.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide.banks import ShardedBank, beside, shards
from confide.banks.beside import SPACE, Lent, Reached, Where, packed, unpacked
from confide.banks.ray import Actor, Actors
from confide.banks.shard import Recipe
from confide.banks.shards import Lost, Unheard
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


CALLS = "meet", "lives", "kept", "told", "told_all"


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

    def _beside(self, memory: memoryview, call: str, sizes: Any) -> tuple[str, Any]:
        return "done", beside.written(memory, packed(getattr(self, call)(unpacked(memory, sizes))))


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
    assert place.told == ["meet"] * 3, "something went through Ray"


@pytest.mark.parametrize(("actor", "stays"), [(Keeping, True), (Careless, False)])
def test_what_a_shard_keeps_stays_as_it_was(actor: type[Actor], stays: bool) -> None:
    place = Here(actor)
    shard = a_shard(place)
    for call, given in (("keep", np.ones(9)), ("hear", np.zeros(90))):
        done(place, shard, call, given)
    assert (done(place, shard, "sum") == 9) == stays
    assert place.told == ["meet"]


def test_a_state_that_a_shard_takes_over_is_its_own() -> None:
    before = make(DecisionTree(memory=16), None)
    list(life(before))
    state = before.operator.bank.state(trusted=True)
    bank = ShardedBank(Here(), DecisionTree(memory=16), 60, 2, 3, before.operator.bank._rng)  # type: ignore[attr-defined]
    bank.load_state(state, trusted=True)
    bank.learn_many(np.arange(60), XS[:60], YS[:60])
    before.operator.bank.learn_many(np.arange(60), XS[:60], YS[:60])
    assert left(bank) == left(before.operator.bank)


def a_shard(place: Here) -> Any:
    return place.start(Recipe(LogisticRegression(), 4, 2, 3, None, False), range(4))


def done(place: Here, shard: Any, call: str, given: Any = None) -> Any:
    return place.finish(place.begin([shard], call, [given])[0])


def test_on_another_machine_calls_travel_otherwise_and_are_sent_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Actor, "meet", lambda self, where: False)
    place = Here()
    each, expected = life(make(Keeps(), place)), life(make(Keeps(), None))
    assert next(each) == next(expected)
    place.unheard = True
    assert list(each) == list(expected)
    assert place.told == ["meet"] * 3 + ["told"] * (3 * ROUNDS // STEP + 1)


def test_without_room_on_the_machine_nothing_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError

    files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert Lent.new() is None and len(os.listdir("/proc/self/fd")) == files
    place = Here()
    assert list(life(make(LogisticRegression(), place))) == list(life(make(LogisticRegression(), None)))
    assert set(place.told) == {"told"}


class Ends(Actor):
    """Calls that end otherwise than with an answer."""

    def refuse(self, _: None) -> None:
        raise ValueError("this is why")

    def fail(self, _: None) -> None:
        raise LookupError("nobody reads this")

    def much(self, _: None) -> Any:
        return np.arange(SPACE // 8)

    def leave(self, _: None) -> None:
        raise SystemExit

    def wait(self, _: None) -> int:
        let_go.wait()
        return 7


let_go = threading.Event()


def test_however_a_call_ends_the_memory_is_there_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Here(Ends)
    shard = a_shard(place)
    with pytest.raises(ValueError, match=r"^this is why$"):
        done(place, shard, "refuse")
    with pytest.raises(Lost, match=r"^$"):
        done(place, shard, "fail")
    assert done(place, shard, "much").size == SPACE // 8 and done(place, shard, "size") > 0
    assert place.told == ["meet", "kept"]
    assert len(place.begin([shard], "restore", [[{"more": np.zeros(SPACE // 8)}]])) == 1
    assert place.told == ["meet", "kept", "told_all"], "there was no room"


def test_a_process_that_cannot_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[int]()
    monkeypatch.setattr(os, "_exit", ended.append)
    place = Here(Ends)
    with pytest.raises(Lost):  # what a call raises, whatever it is, is its answer
        done(place, a_shard(place), "leave")
    assert not ended

    def broken(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Ends, "_beside", broken, raising=False)
    place = Here(Ends)
    with pytest.raises(Lost):  # the thread is gone, and with it its ends of the pipes
        done(place, a_shard(place), "leave")
    assert ended == [1]


def test_while_it_is_quiet_ray_is_asked_whether_the_shard_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "QUIET", 0.001)
    monkeypatch.setattr(Ends, "lives", lambda self: len(asked) < 3 or let_go.set(), raising=False)
    place, asked = Here(Ends), list[str]()
    place.told = asked
    shard = a_shard(place)
    assert done(place, shard, "wait") == 7 and asked.count("lives") >= 2
    let_go.clear()
    begun = place.begin([shard], "wait", [None])[0]
    place.unheard = True
    with pytest.raises(Unheard):
        place.finish(begun)
    let_go.set()


def test_one_call_at_a_time_has_the_memory_and_an_answer_is_copied_out_of_it() -> None:
    lent = Lent.new()
    assert lent is not None
    other = Reached.at(lent.where)
    assert other is not None
    lent.close()
    lent.close()
    heard = list[Any]()

    def do(call: str, sizes: Any) -> tuple[str, Any]:
        given = unpacked(other.memory, sizes)
        heard.append((call, given.tolist(), given.flags.aligned))
        return "done", beside.written(other.memory, packed(2 * given))

    assert lent.begin("first", packed(np.arange(9))) and not lent.begin("second", packed(np.arange(3)))
    threading.Thread(target=other.serve, args=(do,), daemon=True).start()
    _, said = lent.finish(lambda: None)
    assert lent.begin("third", packed(np.zeros(90))) and lent.finish(lambda: None)[1].shape == (90,)
    assert said.tolist() == list(range(0, 18, 2)) and heard[0] == ("first", list(range(9)), True)
    assert not lent.begin("fourth", packed(np.zeros(SPACE // 8))), "there is no room"


REACHES = """
import sys; from confide.banks.beside import *; process, file, name, asked, said = sys.argv[1:]
other = Reached.at(Where(int(process), int(file), name, int(asked), int(said)))
print(other and bytes(other.memory[:4]), flush=True)
other and sys.stdin.read()
"""


def there(where: Where) -> Any:
    named = [sys.executable, "-c", REACHES, *map(str, where)]
    return subprocess.Popen(named, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_another_process_reaches_it_by_its_name_alone_while_it_is_open_and_its_end_is_felt() -> None:
    lent = Lent.new()
    assert lent is not None
    assert lent.begin("call", [memoryview(b"four")])
    with there(lent.where._replace(name="confide-0")) as one, there(lent.where._replace(process=1 << 30)) as two:
        assert one.stdout.read().strip() == two.stdout.read().strip() == "None"
    with there(lent.where) as other:
        assert other.stdout.readline().strip() == "b'four'"
        lent.close()
        assert Reached.at(lent.where) is None
        other.kill()
    with pytest.raises(EOFError):
        lent.finish(lambda: None)


def test_what_nobody_reached_is_given_back() -> None:
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    lent = [Lent.new() for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) > files
    del lent
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


FORKS = """
import ast, os, sys, time
from confide.banks.beside import Reached, Where
lent = Reached.at(Where(*ast.literal_eval(sys.argv[1])))
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("here", flush=True)
time.sleep(60)
"""


def test_the_end_of_a_shard_is_felt_while_its_own_child_holds_the_pipes() -> None:
    """A learner may start processes of its own: they live on when the shard is killed."""
    lent = Lent.new()
    assert lent is not None
    about = repr(tuple(lent.where))
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, about], stdout=subprocess.PIPE, start_new_session=True
    ) as shard:
        assert shard.stdout is not None and shard.stdout.readline() == b"here\n"
        lent.met(shard.pid)
        lent.close()
        assert lent.begin("apply", packed(1))
        shard.kill()
        began = time.monotonic()
        with pytest.raises(EOFError):
            lent.finish(lambda: None)
        assert time.monotonic() - began < beside.QUIET
        os.killpg(shard.pid, signal.SIGKILL)


def test_an_answer_to_another_call_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a process that was forked from the one that lent a memory says nothing through it."""
    lent = Lent.new()
    assert lent is not None
    reached = Reached.at(lent.where)
    assert reached is not None and lent.begin("apply", packed(1))
    reached._say.send_bytes(pickle.dumps((0, "done", [])))
    with pytest.raises(EOFError):
        lent.finish(lambda: None)
    other = Lent.new()
    assert other is not None
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not other.begin("apply", packed(1))
