"""What shards cost: CPU a round, all processes together, against the same copies in one place.

One run alternates the places, batch by batch, on the same rows under the same seed, and checks that the answers agree.
Ratios are what counts: `python benchmarks/shards.py --help`; without Ray, threads alone; `--quick` takes seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import confide
from confide.banks import Threads
from confide.banks.ray import Actors
from confide.learners import LogisticRegression


def descendants() -> float:
    """Seconds of CPU that all descendants of this process have used, to the nanosecond (Linux).

    What /proc says is in steps of 10 ms for each process, which is more than a shard needs for a small batch.
    """
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine and pid not in mine}:
        mine |= more
    return sum(map(used, mine - {os.getpid()}))


def used(pid: int) -> float:
    """Seconds of CPU that a process has used: what `clock_getcpuclockid` makes of its number, on Linux."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def learner_of(name: str) -> Any:
    """What the copies are."""
    if name == "mlp":
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier((32,), random_state=0)
    return LogisticRegression()


def main() -> None:
    """Print CPU a round in each place, and its ratio to one place."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--learner", choices=["logistic", "mlp"], default="logistic")
    ask.add_argument("--copies", type=int, default=100_000)
    ask.add_argument("--polls", type=int, default=513)
    ask.add_argument("--features", type=int, default=20)
    ask.add_argument("--lessons", type=int, default=2, help="taught before, about, to each copy")
    ask.add_argument("--batch", type=int, nargs="+", default=[4096, 512])
    ask.add_argument("--batches", type=int, default=8)
    ask.add_argument("--shards", type=int, default=2)
    known = ["threads", *(["ray"] if find_spec("ray") else [])]
    ask.add_argument("--places", nargs="+", default=known, choices=["threads", "ray"])
    ask.add_argument("--quick", action="store_true", help="few copies, in threads alone: seconds")
    asked = ask.parse_args()
    if asked.quick:
        asked.copies, asked.polls, asked.batch, asked.batches, asked.places = 2000, 51, [512], 2, ["threads"]
    places: dict[str, Any] = {"local": None}
    for name in asked.places:
        places[name] = Threads(asked.shards) if name == "threads" else Actors(shards=asked.shards)
    rounds = max(asked.batch) * (asked.batches + 2)
    print(f"{asked.copies:,} copies of {asked.learner}, {asked.polls} asked in a round, {asked.shards} shards")
    plan = confide.Plan.tight(
        500.0, 1e-2, rounds, copies=asked.copies, polls=asked.polls, unsure=rounds // 2, silent=0, guide=None
    )
    for batch in asked.batch:
        measure(places, plan, asked, batch)


def measure(places: dict[str, Any], plan: Any, asked: Any, batch: int) -> None:
    """One size of batches."""
    dice = np.random.default_rng(1)
    xs = dice.normal(size=((asked.batches + 1) * batch, asked.features))
    ys = (xs[:, 0] > 0).astype(np.int64)
    pops = {
        name: confide.POP(learner_of(asked.learner), plan, labels=[0, 1], features=asked.features, seed=1, bank=place)
        for name, place in places.items()
    }
    for pop in pops.values():
        times = asked.lessons * asked.copies // len(xs) + 1
        pop.teach_many(np.tile(xs, (times, 1)), np.tile(ys, times))
    spent, wall = dict.fromkeys(pops, 0.0), dict.fromkeys(pops, 0.0)
    for start in range(0, len(xs), batch):
        said = []
        for name, pop in pops.items():
            others = descendants() if isinstance(places[name], Actors) else 0.0
            own, began = time.process_time(), time.perf_counter()
            said.append(pop.follow_many(xs[start : start + batch], ys[start : start + batch]).answers)
            if start:  # the first compiles, and starts what is to be started
                spent[name] += time.process_time() - own
                wall[name] += time.perf_counter() - began
                spent[name] += descendants() - others if isinstance(places[name], Actors) else 0.0
        assert all((one == said[0]).all() for one in said), "the answers differ"
    rows = asked.batches * batch
    for name in pops:
        print(
            f"batches of {batch}: {name:8} {1e6 * spent[name] / rows:9.1f} µs CPU a round, "
            f"{spent[name] / spent['local']:.2f} × local; wall {wall[name] / wall['local']:.2f} ×"
        )


if __name__ == "__main__":
    main()
