"""Shards on a Ray cluster of this machine, killed from outside: how long until they are heard again, and the same bits.

    python benchmarks/shard_kills.py              50 kills in 10⁵ rounds of 2000 trees, two minutes
    python benchmarks/shard_kills.py --quick      3 kills, in 14 s

One POP has its copies in one place, another on the cluster, both under one seed and on the same rows. Whenever all
shards are heard one of them may be killed (SIGKILL); batches are silent until it is back. Exit code 1 if a batch that
was heard had other answers, or if the copies differ in the end.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import confide
from confide.banks.ray import Actors
from confide.learners import DecisionTree

ROUNDS, ROWS, FEATURES = 100_000, 200, 6


def shards() -> list[int]:
    """The processes of the shards."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::Actor" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def main() -> None:
    """Print how long shards were away, and whether the bits are equal."""
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--kills", type=int, default=50)
    ask.add_argument("--quick", action="store_true")
    given = ask.parse_args()
    if find_spec("ray") is None:
        raise SystemExit("could not run: Ray is not here (pip install 'confide[ray]')")
    most = min(3, given.kills) if given.quick else given.kills
    dice = np.random.default_rng(1)
    xs = np.round(dice.normal(size=(ROUNDS, FEATURES)), 3)
    ys = (xs[:, 0] > 0).astype(np.int64)
    plan = confide.Plan.tight(500.0, 1e-2, ROUNDS, copies=2000, polls=51, unsure=ROUNDS // 2, silent=0, guide=None)
    local, cluster = (
        confide.POP(DecisionTree(memory=64), plan, labels=[0, 1], features=FEATURES, seed=1, bank=place)
        for place in (None, Actors(shards=2))
    )
    kills = silent = heard = alike = 0
    away, since = list[float](), 0.0
    for at in range(0, ROUNDS, ROWS):
        one, other = (pop.follow_many(xs[at : at + ROWS], ys[at : at + ROWS]) for pop in (local, cluster))
        if (other.margins == -1).all():
            silent += 1
            time.sleep(0.5)  # else all rounds would pass meanwhile
            continue
        heard, alike = heard + 1, alike + bool((one.answers == other.answers).all())
        if since:
            away.append(time.perf_counter() - since)
            since = 0.0
        if at and kills < most and random.random() < 0.5:
            os.kill(random.choice(shards()), signal.SIGKILL)
            kills, since = kills + 1, time.perf_counter()
    cluster.operator.bank.settle()  # type: ignore[attr-defined]
    states = [pop.operator.bank.state(trusted=True) for pop in (local, cluster)]
    same = all(np.asarray(states[0][name]).tobytes() == np.asarray(states[1][name]).tobytes() for name in states[0])
    back = f"back after {np.median(away):.1f} s, {max(away):.1f} at most" if away else "nobody was killed"
    print(f"{kills} kills, {back}; {silent} batches were silent, {alike} of {heard} others alike; copies alike: {same}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    raise SystemExit(0 if same and alike == heard else "the bits are not those of one place")


if __name__ == "__main__":
    main()
