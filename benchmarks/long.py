"""A hundred million rounds at ε = 1: what privacy costs when there is much data.

    python benchmarks/long.py --state FOLDER            10⁸ rounds, 300 000 copies; resumable; 10 minutes or more
    python benchmarks/long.py --quick                   5·10⁶ rounds, 50 000 copies, half a minute
    python benchmarks/long.py --state FOLDER --picture docs/images/long.svg
    python benchmarks/long.py --state OTHER --stream sea

Every copy sees one label in 300 000; beside them runs one learner of the same kind that sees all of them and protects
nobody. Two streams, both made on the spot:

overlap  two normal classes in four dimensions, four deviations apart: nobody errs less than 2.275 % of the time, and
         the copies disagree just where the truth is nearly a coin anyway. Naive Bayes.
sea      SEA (Street and Kim, "A Streaming Ensemble Algorithm for Large-Scale Classification", 2001) without noise:
         the right label is certain everywhere, so every unsure answer costs half a mistake. Logistic regression.

An interrupted run goes on from its last checkpoint with the same command; what was spent stays spent. The numbers
printed are exact: the operator's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import confide
from confide.learners import GaussianNB, LogisticRegression, Stacked

BLOCK = 100_000  # rounds a block, each with its own part of the stream
CHECKPOINT = 50  # blocks


Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def sea(block: int) -> Rows:
    """The rows of a block: the same whenever they are asked for."""
    x = np.random.default_rng([8, block]).random((BLOCK, 3)) * 10
    return x, (x[:, 0] + x[:, 1] <= 8).astype(np.int64)


def overlap(block: int) -> Rows:
    """The rows of a block: the same whenever they are asked for."""
    rng = np.random.default_rng([4, block])
    y = rng.integers(0, 2, size=BLOCK)
    return rng.normal(size=(BLOCK, 4)) + (2 * y[:, None] - 1), y


@dataclass(frozen=True)
class Source:
    rows: Callable[[int], Rows]
    learner: Stacked
    features: int
    silent: float
    """Share of the rounds that are silent."""
    least: float
    """The least error that anybody can have."""


STREAMS = {
    "overlap": Source(overlap, GaussianNB(), 4, 0.1, 0.0227501),
    "sea": Source(sea, LogisticRegression(), 3, 0.4, 0.0),
}


def plan_for(source: Source, rounds: int, copies: int, quick: bool) -> confide.Plan:
    """A small run has less to spend, so it stays silent for longer."""
    silent, unsure = (rounds * 9 // 10, rounds // 250) if quick else (int(rounds * source.silent), rounds // 100)
    return confide.Plan.tight(
        1.0, 1e-9, rounds, copies=copies, polls=129, unsure=unsure, silent=silent, beta=0.01, guide=None
    )


def begin(source: Source, plan: confide.Plan, folder: Path | None) -> tuple[confide.POP, Stacked, dict[str, Any]]:
    """A new run, or the one that the folder holds."""
    twin = source.learner.clone()
    if folder is not None and (folder / "curve.json").exists():
        done = json.loads((folder / "curve.json").read_text())
        pop = confide.POP.load(folder / "pop")
        done["block"] = -(-pop.rounds // BLOCK)  # rows that were asked after the checkpoint are not asked again
        for block in range(done["block"]):  # the twin is not kept on disk
            twin.follow(*source.rows(block))
        return pop, twin, done
    pop = confide.POP(source.learner, plan, labels=[0, 1], features=source.features)
    fresh: dict[str, Any] = {"block": 0, "seconds": 0.0, "rounds": [], "private": [], "twin": [], "unsure": []}
    return pop, twin, fresh


def checkpoint(pop: confide.POP, done: dict[str, Any], folder: Path | None) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        pop.save(folder / "pop")
        (folder / "curve.json").write_text(json.dumps(done))


def go(source: Source, plan: confide.Plan, folder: Path | None) -> dict[str, Any]:
    pop, twin, done = begin(source, plan, folder)
    rounds = pop.plan.rounds
    checkpoint(pop, done, folder)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task("blocks of 100 000 rounds", total=rounds // BLOCK, completed=done["block"])
        while done["block"] < rounds // BLOCK and pop.halt_reason is None:
            xs, ys = source.rows(done["block"])
            started, before = time.perf_counter(), pop.rounds
            result = confide.evaluate(pop, xs, ys)
            done["seconds"] += time.perf_counter() - started
            followed = twin.follow(xs, ys)
            live = max(0, pop.plan.silent - before)
            answers, right = result.answers[live:], ys[live : result.rounds]
            done["rounds"].append(pop.rounds)
            done["private"].append([int((answers != right).sum()), int(answers.size)])
            done["twin"].append([int((followed[live : result.rounds] != right).sum()), int(answers.size)])
            done["unsure"].append(pop.operator.unsure)
            done["block"] += 1
            progress.advance(bar)
            if done["block"] % CHECKPOINT == 0:
                checkpoint(pop, done, folder)
    checkpoint(pop, done, folder)
    done |= {"guarantee": str(pop.guarantee), "halted": pop.halt_reason, "copies": pop.plan.copies}
    done |= {"plan_unsure": pop.plan.unsure, "silent": pop.plan.silent, "gigabytes": pop.operator.nbytes / 2**30}
    pop.close()
    return done


def rates(pairs: list[list[int]], parts: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The error in each of so many parts of the live rounds, and the index of the last block of each."""
    live = [i for i, (_, n) in enumerate(pairs) if n]
    groups = [g for g in np.array_split(np.array(live), min(parts, len(live))) if g.size]
    table = np.array(pairs)
    return np.array([table[g, 0].sum() / table[g, 1].sum() for g in groups]), np.array([g[-1] for g in groups])


def show(name: str, done: dict[str, Any]) -> None:
    private, ends = rates(done["private"], 10)
    twin, _ = rates(done["twin"], 10)
    total = sum(n for _, n in done["private"])
    wrong, other = (sum(a for a, _ in done[name]) for name in ("private", "twin"))
    print(f"{name}: {done['rounds'][-1]:,} rounds, {done['copies']:,} copies, 129 asked in a round")
    print(f"{done['guarantee']}; the first {done['silent']:,} rounds silent; copies {done['gigabytes']:.2f} GiB")
    print(f"{'rounds':>13} {'private':>9} {'twin':>9} {'cost':>9}   unsure so far")
    for end, a, b in zip(ends, private, twin, strict=True):
        print(f"{done['rounds'][end]:13,} {a:9.3%} {b:9.3%} {a - b:9.3%}   {done['unsure'][end]:,}")
    used = f"unsure {done['unsure'][-1]:,} of {done['plan_unsure']:,}"
    print(f"in all {wrong / total:.3%} against {other / total:.3%}; {used}")
    print(f"{done['rounds'][-1] / done['seconds']:,.0f} rounds a second; halted: {done['halted']}")


def picture(source: Source, done: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    private, ends = rates(done["private"], 20)
    twin, _ = rates(done["twin"], 20)
    x = np.array(done["rounds"])[ends] / 1e6
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    errors, cost = figure.subplots(1, 2)
    errors.plot(x, 100 * private, color="#22577a", lw=2, label=f"private: {done['guarantee']}")
    errors.plot(x, 100 * twin, color="#e07a1f", lw=2, label="sees everything, not private")
    if source.least:
        errors.axhline(100 * source.least, color="#5b6672", lw=1, ls=":", label="the least that anybody can have")
    errors.set(ylim=(0, 130 * private.max()), ylabel="wrong answers, %")
    errors.legend(frameon=False, loc="center right")
    cost.plot(x, 100 * (private - twin), color="#22577a", lw=2, marker="o", ms=3)
    cost.set(ylim=(0, None), ylabel="cost of privacy, % of the answers")
    for axes in (errors, cost):
        axes.axvspan(0, done["silent"] / 1e6, color="#dfe5ea")
        axes.text(done["silent"] / 2e6, 0.02, "silent", rotation=90, ha="center", transform=axes.get_xaxis_transform())
        axes.set(xlim=(0, x[-1]), xlabel="rounds, in millions")
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5·10⁶ rounds, 50 000 copies")
    parser.add_argument("--stream", choices=STREAMS, default="overlap")
    parser.add_argument("--rounds", type=int, default=100_000_000)
    parser.add_argument("--copies", type=int, default=300_000)
    parser.add_argument("--state", type=Path, help="a folder for checkpoints; the same folder again goes on")
    parser.add_argument("--picture", type=Path, help="where to put the picture, .svg or .png")
    given = parser.parse_args()
    rounds, copies = (5_000_000, 50_000) if given.quick else (given.rounds, given.copies)
    if rounds % BLOCK:
        parser.error(f"--rounds must be a multiple of {BLOCK:,}")
    source = STREAMS[given.stream]
    done = go(source, plan_for(source, rounds, copies, given.quick), given.state)
    show(given.stream, done)
    if given.picture is not None:
        picture(source, done, given.picture)


if __name__ == "__main__":
    main()
