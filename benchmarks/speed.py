"""How fast rounds are, as ratios that were measured side by side in one run.

    python benchmarks/speed.py           about 5 minutes of one core
    python benchmarks/speed.py --quick   about a minute

A round is everything: random words, poll, votes, gate, halting draw, lesson. Every number is a median over repetitions,
with the quartiles beside it where it is a ratio. Both sides of a ratio are measured in turn, again and again, so that a
busy machine slows both. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from river import linear_model, naive_bayes

import confide
from confide.kernels.compile import jit
from confide.kernels.memory import VOTE, kernel
from confide.learners import DecisionTree, GaussianNB, LogisticRegression
from confide.pop import batches
from confide.privacy.draws import draw_marked
from confide.privacy.gate import lead
from confide.privacy.random import Random

POLLS, FEATURES, ROWS = 129, 20, 4096
console = Console(width=118)


def make(learner: Any, copies: int, features: int = FEATURES, polls: int = POLLS, lessons: int = 12) -> confide.POP:
    """A POP whose copies have had so many lessons each; the budget is ample, since it is time that is measured."""
    plan = confide.Plan.tight(
        60.0, 1e-2, 10**7, copies=copies, polls=polls, unsure=10**5, silent=0, beta=0.1, guide=None
    )
    pop = confide.POP(learner, plan, labels=[0, 1], features=features, fallback=0)
    xs, ys = rows(features, 200_000)
    for start in range(0, copies * lessons, len(ys)):
        part = slice(0, min(len(ys), copies * lessons - start))
        pop.teach_many(xs[part], ys[part])
    return pop


def rows(features: int, n: int = ROWS, seed: int = 0) -> tuple[Any, Any]:
    """Rows that a linear learner tells apart soon."""
    rng = np.random.default_rng(seed)
    ys = rng.integers(0, 2, size=n)
    return rng.normal(size=(n, features)) + 1.5 * (2 * ys[:, None] - 1), ys


def micros(work: Callable[[], object], count: int) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) / count * 1e6


def in_turn(repeat: int, **works: tuple[Callable[[], object], int]) -> dict[str, np.ndarray[Any, Any]]:
    """Microseconds a round of each, measured in turn."""
    for work, _ in works.values():
        work()  # compiled, and warm
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeat):
        for name, (work, count) in works.items():
            found[name].append(micros(work, count))
    return {name: np.array(values) for name, values in found.items()}


def spread(values: Any, digits: str = ".2f") -> str:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:{digits}} ({low:{digits}} to {high:{digits}})"


class Targets:
    """Targets met and missed."""

    def __init__(self) -> None:
        self.table = Table("what", "measured", "target", "", title="Targets")
        self.missed: list[str] = []

    def check(self, what: str, values: Any, target: float, at_least: bool, digits: str = ".2f") -> None:
        middle = float(np.median(values))
        met = middle >= target if at_least else middle <= target
        sign = "≥" if at_least else "≤"
        if not met:
            self.missed.append(f"{what}: {middle:{digits}} instead of {sign} {target:g}")
        verdict = "[green]met[/]" if met else "[red]missed[/]"
        self.table.add_row(what, spread(values, digits), f"{sign} {target:g}", verdict)


def rounds_of(pop: confide.POP, features: int = FEATURES, n: int = ROWS) -> tuple[Callable[[], object], int]:
    xs, ys = rows(features, n, seed=1)
    return lambda: confide.evaluate(pop, xs, ys), n


def against_river(targets: Targets, repeat: int, pops: dict[int, confide.POP]) -> None:
    """A thousand deep copies of River's logistic regression, asked one by one, each round's label to one of them."""
    xs, ys = rows(FEATURES, 400, seed=2)
    dicts = [dict(enumerate(x.tolist())) for x in xs]
    models = [copy.deepcopy(linear_model.LogisticRegression()) for _ in range(1000)]
    for i, model in enumerate(models):
        for j in range(5):
            model.learn_one(dicts[(i + j) % 400], bool(ys[(i + j) % 400]))
    chosen = np.random.default_rng(0).integers(0, 1000, size=400)

    def river() -> None:
        for i in range(4):
            votes = sum(model.predict_one(dicts[i]) is True for model in models)
            models[chosen[i]].learn_one(dicts[i], bool(ys[i]))
            assert 0 <= votes <= 1000

    works = {f"k{k}": rounds_of(pop) for k, pop in pops.items()}
    found = in_turn(repeat, river=(river, 4), **works)
    for k in pops:
        ratio = found["river"] / found[f"k{k}"]
        targets.check(f"rounds, times 1000 River copies one by one; k = {k:,}", ratio, 300, True, ".0f")
    console.print(f"1000 River copies one by one: {np.median(found['river']):,.0f} µs a round")


@jit
def read_rows(weights: Any, slots: Any) -> float:
    """The physical limit: one load from each cache line of the polled rows, two lines a row."""
    total = np.float32(0.0)
    for i in range(slots.shape[0]):
        for j in range(slots.shape[1]):
            total += weights[slots[i, j], 0, 0] + weights[slots[i, j], 16, 0]
    return total


@jit
def only_votes(vote: Any, memory: Any, constants: Any, slots: Any, xs: Any, counts: Any) -> None:
    for i in range(xs.shape[0]):
        vote(memory, constants, slots[i], slots[min(i + 1, xs.shape[0] - 1)], xs[i], counts)


@jit
def only_polls(words: Any, copies: int, polls: int, rows: int, out: Any) -> int:
    cursor, taken = 0, np.zeros((copies + 63) >> 6, np.uint64)
    for _ in range(rows):
        cursor = draw_marked(words, 0, copies, polls, out, taken)
    return cursor


@jit
def only_gates(counts: Any, words: Any, sure: Any, go: Any, rows: int) -> int:
    """Margin, gate draw and halting draw of so many rounds."""
    unsure = 0
    for i in range(rows):
        counts[0] = i & 127
        _, margin = lead(counts)
        unsure += words[i & 1023] >= sure[min(margin, sure.size - 1)]
        unsure += words[(i + 1) & 1023] >= go[min(unsure, go.size - 1)]
    return unsure


def against_memory(targets: Targets, repeat: int, pop: confide.POP) -> None:
    bank: Any = pop.operator.bank
    copies, weights = bank.copies, bank._arrays["weights"]
    ours = bank._kernels()[2]
    memory, constants = ours.memory, ours.constants
    vote, counts = kernel(bank._learner.compiled()[0], VOTE), np.zeros(2, dtype=np.int64)
    rng, xs = np.random.default_rng(3), rows(FEATURES)[0]

    def fresh() -> Any:
        return rng.integers(0, copies, size=(ROWS, POLLS)).astype(np.int32)

    slots = [fresh() for _ in range(6)]  # so many rows that no cache holds them all
    turn = [0]

    def next_slots() -> Any:
        turn[0] += 1
        return slots[turn[0] % len(slots)]

    found = in_turn(
        repeat,
        limit=(lambda: read_rows(weights, next_slots()), ROWS),
        votes=(lambda: only_votes(vote, memory, constants, next_slots(), xs, counts), ROWS),
        whole=rounds_of(pop),
    )
    where = f"share of the row-read limit; k = {copies:,}"
    targets.check(f"votes alone, {where}", found["limit"] / found["votes"], 0.6, True)
    targets.check(f"whole round, {where}", found["limit"] / found["whole"], 0.35, True)
    limit, votes, whole = (np.median(found[name]) for name in ("limit", "votes", "whole"))
    console.print(f"k = {copies:,}: reading the rows {limit:.2f} µs, votes {votes:.2f} µs, whole round {whole:.2f} µs")


def shares(targets: Targets, repeat: int, pop: confide.POP) -> None:
    """Shares of a round, each part timed by itself beside the whole."""
    plan, rng = pop.plan, Random()
    words, out, counts = rng.words(4096), np.empty(POLLS, dtype=np.int64), np.zeros(2, dtype=np.int64)
    need = ROWS * (POLLS + 4)

    def refill() -> None:
        for _ in range(need // batches.WORDS + 1):
            _, cursor = rng.reserve(batches.WORDS)
            rng.commit(cursor + batches.WORDS)

    found = in_turn(
        repeat,
        whole=rounds_of(pop),
        words=(refill, ROWS),
        polls=(lambda: only_polls(words, plan.copies, POLLS, ROWS, out), ROWS),
        gates=(lambda: only_gates(counts, words, plan.gate.sure, plan.halting.go, ROWS), ROWS),
    )
    randomness = (found["words"] + found["polls"]) / found["whole"]
    where = f"share of a round; k = {plan.copies:,}"
    targets.check(f"gate and halting, {where}", found["gates"] / found["whole"], 0.05, False, ".4f")
    targets.check(f"randomness, {where}", randomness, 0.20, False, ".3f")
    with tempfile.TemporaryDirectory() as folder:
        saved = make(LogisticRegression(), 1000)
        plain = make(LogisticRegression(), 1000)
        saved.save(Path(folder) / "state")
        both = in_turn(max(3, repeat // 2), journal=rounds_of(saved), plain=rounds_of(plain))
        times = spread(both["journal"] / both["plain"])
        console.print(f"with a journal on disk, in batches of 4096 rows: {times} times the time")
        saved.close()


def trees(targets: Targets, repeat: int, quick: bool) -> None:
    copies = 1000 if quick else 5000
    pop = make(DecisionTree(memory=200), copies, lessons=220)
    found = in_turn(repeat, whole=rounds_of(pop))["whole"]
    targets.check(f"trees of 200 records, rounds a second; k = {copies:,}", 1e6 / found, 5000, True, ",.0f")


def generic(targets: Targets, repeat: int) -> None:
    """River's naive Bayes in replicas: a round asks the polled copies only."""
    xs, ys = rows(5, 400, seed=4)
    dicts = [dict(enumerate(x.tolist())) for x in xs]
    pops = {}
    for copies in (1_000, 10_000):
        plan = confide.Plan.tight(
            60.0, 1e-2, 10**6, copies=copies, polls=POLLS, unsure=10**4, silent=0, beta=0.1, guide=None
        )
        pop = confide.POP(naive_bayes.GaussianNB(), plan, labels=[0, 1], fallback=0)
        for copy_number in range(copies):  # so that every polled copy is an object of its own
            pop.operator.bank.learn(copy_number, dicts[copy_number % 400], int(ys[copy_number % 400]))
        pops[copies] = pop

    def one_by_one(pop: confide.POP) -> None:
        for x, y in zip(dicts[:40], ys[:40].tolist(), strict=True):
            pop.learn(pop.predict(x).ticket, y)

    found = in_turn(
        repeat,
        small=(lambda: one_by_one(pops[1_000]), 40),
        large=(lambda: one_by_one(pops[10_000]), 40),
    )
    ratio = found["large"] / found["small"]
    targets.check("River's GaussianNB, time a round at k = 10⁴ over k = 10³", ratio, 1.2, False)
    console.print(f"River's GaussianNB in replicas: {np.median(found['small']):,.0f} µs a round at k = 1,000")


def growth(repeat: int, quick: bool, pops: dict[int, confide.POP]) -> None:
    columns = ("learner", "copies", "polls", "features", "µs a round", "rounds a second", "bytes a copy")
    table = Table(*columns, title="Growth")

    def line(name: str, pop: confide.POP, features: int) -> None:
        found = in_turn(repeat, whole=rounds_of(pop, features))["whole"]
        per_copy = pop.operator.nbytes / pop.plan.copies
        table.add_row(
            name, f"{pop.plan.copies:,}", str(pop.plan.polls), str(features), spread(found),
            f"{1e6 / np.median(found):,.0f}", f"{per_copy:,.0f}",
        )  # fmt: skip

    for pop in pops.values():
        line("logistic", pop, FEATURES)
    for polls in (33, 513):
        line("logistic", make(LogisticRegression(), 10_000, polls=polls), FEATURES)
    for features in (5, 100):
        line("logistic", make(LogisticRegression(), 10_000, features), features)
    for copies in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        line("naive Bayes", make(GaussianNB(), copies), FEATURES)
    for copies in (1_000,) if quick else (1_000, 10_000):
        line("tree, 200 records", make(DecisionTree(memory=200), copies, lessons=100), FEATURES)
    console.print(table)
    one = pops[1_000]
    xs, ys = rows(FEATURES, 8 * ROWS, seed=5)
    found = in_turn(repeat, once=rounds_of(one), eight=(lambda: confide.evaluate(one, xs, ys), 8 * ROWS))
    console.print(f"time a round in a run eight times as long: {spread(found['eight'] / found['once'])} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and sizes")
    quick = parser.parse_args().quick
    repeat = 7 if quick else 25
    started, targets = time.perf_counter(), Targets()
    with console.status("teaching copies"):
        sizes = (1_000, 10_000, 100_000, 1_000_000)
        pops = {k: make(LogisticRegression(), k, lessons=3 if k > 100_000 else 12) for k in sizes}
    against_river(targets, repeat, {k: pops[k] for k in (1_000, 100_000)})
    against_memory(targets, 2 * repeat, pops[1_000_000])
    shares(targets, 2 * repeat, pops[100_000])
    trees(targets, repeat, quick)
    generic(targets, repeat)
    growth(max(3, repeat // 3), quick, pops)
    console.print(targets.table)
    console.print(f"{time.perf_counter() - started:.0f} s; medians with quartiles")
    raise SystemExit("; ".join(targets.missed) or 0)


if __name__ == "__main__":
    main()
