"""Shards as Ray actors: the bits of one bank in one place, and again after real kills.

Ray is not in the extra `test`: it is 80 MB, and a cluster takes five seconds to start. What is above the transport is
tested over threads (tests/banks/test_shards.py).
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from confide import POP, Plan
from confide.banks import ReplicaBank, ShardedBank, beside, shards
from confide.banks.ray import Actor, Actors
from confide.banks.shards import Lost
from confide.banks.sharing import mark
from confide.learners import DecisionTree
from confide.privacy.random import Random

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed: threads alone are tested"),
    pytest.mark.claim("people.md"),
    pytest.mark.filterwarnings("ignore"),
]

ROUNDS, STEP = 2000, 250
DICE = np.random.default_rng(7)
XS = np.round(DICE.normal(size=(ROUNDS, 3)), 3)
YS = (XS[:, 0] + DICE.normal(size=ROUNDS) / 2 > 0).astype(np.int64)
PLAN = Plan.tight(200.0, 1e-2, ROUNDS, copies=60, polls=21, unsure=1500, silent=40, guide=None)


class Doomed(Actor):
    """A shard that can be killed as a machine's memory guard does it."""

    def die(self, _: None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def here(self, _: None) -> int:
        return os.getpid()


class Doomeds(Actors):
    shard = Doomed


@pytest.fixture(scope="module")
def place() -> Iterator[Doomeds]:
    yield Doomeds(shards=2)  # before Ray is loaded
    import_module("ray").shutdown()


def life(learner: Any, bank: Any, kills: bool = False) -> tuple[list[Any], dict[str, Any]]:
    pop = POP(learner, PLAN, labels=[0, 1], features=3, seed=5, bank=bank)
    said = []
    for number, start in enumerate(range(0, ROUNDS, STEP)):
        held = pop.operator.bank
        if kills and number % 2:
            assert isinstance(held, ShardedBank)
            with pytest.raises(Lost):
                bank.finish(bank.begin([held._shards[number // 2 % 2].shard], "die", [None])[0])
        done = pop.follow_many(XS[start : start + STEP], YS[start : start + STEP])
        if kills and number % 2:
            assert (done.margins == -1).all()
            held.settle()  # type: ignore[union-attr]
        said.append(np.array([done.answers, done.margins, done.source]).tolist())
    state = dict(pop.operator.bank.state(trusted=True))
    blob, ends = np.asarray(state.pop("pickles", b"")).tobytes(), np.cumsum(state.pop("sizes", []), dtype=int).tolist()
    # The bytes of a pickle tell also which strings were one object: what the models hold is compared.
    models = [mark(pickle.loads(blob[start:end])) for start, end in pairwise([0, *ends])]
    return said, {"models": models, **{name: np.asarray(value).tobytes() for name, value in state.items()}}


@pytest.mark.parametrize("learner", [DecisionTree(memory=16), SGDClassifier(random_state=0)], ids=type)
def test_bits_are_equal_on_a_cluster_and_again_after_kills(
    place: Doomeds, learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "EVERY", 200)
    said, state = life(learner, None)
    assert life(learner, place) == (said, state)
    killed, after = life(learner, place, kills=True)
    assert killed[::2] == said[::2] and after == state


def test_a_lesson_that_fails_stays_inside(place: Doomeds) -> None:
    bank = ShardedBank(place, SGDClassifier(), 4, 2, 3, Random(seed=1))
    twin = ReplicaBank(SGDClassifier(), 4, 2, 3, Random(seed=1))
    for one in (bank, twin):
        assert one.learn_many(np.array([0, 3]), one.encode_many([[1e308, 0, 0], [1, 0, 0]])[0], np.array([0, 1])) == 2
    assert not bank.silent and bank.failures == twin.failures


def test_shards_on_this_machine_are_told_beside_ray_and_their_end_is_found(
    place: Doomeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a child of this process, made at the wrong moment, holds an end of their pipes: then Ray says so."""
    monkeypatch.setattr(beside, "QUIET", 0.2)
    bank = ShardedBank(place, DecisionTree(memory=16), 4, 2, 3, Random(seed=1))
    held_open = os.dup(bank._shards[1].shard._offered.where.said)
    assert bank.nbytes > 0
    files = len(os.listdir("/proc/self/fd"))
    for held in bank._shards:
        begun = place.begin([held.shard], "here", [None])[0]
        assert begun.lent is not None and place.finish(begun) != os.getpid()
        with pytest.raises(Lost):
            place.finish(place.begin([held.shard], "die", [None])[0])
    os.close(held_open)
    del begun, held
    bank.heed()
    bank.settle()
    gc.collect()
    assert not bank.silent and len(os.listdir("/proc/self/fd")) <= files + 6, "what the lost ones had is given back"
    bank.close()


def test_a_cluster_that_is_started_here_is_closed_to_others(place: Doomeds) -> None:
    ShardedBank(place, DecisionTree(memory=16), 4, 2, 3, Random(seed=1)).settle()
    address = import_module("ray").get_runtime_context().gcs_address
    stranger = f"import ray; ray.init(address={address!r}, log_to_driver=False); print('reached')"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    clean["RAY_gcs_rpc_server_reconnect_timeout_s"] = "1"
    done = subprocess.run([sys.executable, "-c", stranger], env=clean, capture_output=True, text=True, timeout=120)
    assert "reached" not in done.stdout and "AuthenticationError" in done.stderr
