"""Plain River models and `confide.river.PrivateClassifier` side by side, on River's own streams.

    python benchmarks/side_by_side.py            # all rows
    python benchmarks/side_by_side.py --quick    # under a minute
    python benchmarks/side_by_side.py --only shuttle --seed 2

Every row is one run of `predict_one`, then `learn_one`, over the first rounds of a stream. Streams and coins are
seeded, so the errors come out the same again. Errors count from the first live round on, for the plain model too, which
has learned from all rounds before. Silent rounds are answered by a coin and not counted; rounds after a halt are, and
they are answered by a coin as well. δ = 10⁻⁶. The unsure answers are the operator's view: the data are public here.
(This file is not called river.py: a script's folder is searched first, and every `import river` here would find it.)
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from river import datasets, linear_model, preprocessing, tree
from river.datasets import synth

from confide import Plan
from confide.learners import BernoulliNB, DecisionTree, Features, LogisticRegression
from confide.river import PrivateClassifier

console = Console(width=160)
Rows = Iterator[tuple[dict[Any, Any], Hashable]]

AGRAWAL = ["salary", "commission", "age", "elevel", "car", "zipcode", "hvalue", "hyears", "loan"]
SHUTTLE = [f"f{i}" for i in range(1, 10)]


@dataclass(frozen=True)
class Stream:
    """A stream, River's model for it, and Confide's learner for the copies."""

    open: Callable[[int], Any]
    labels: int
    river: Callable[[], Any]
    ours: Any


def logistic() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def led(noise: float) -> Stream:
    return Stream(
        lambda seed: synth.LED(seed=seed, noise_percentage=noise),
        10,
        linear_model.SoftmaxRegression,
        Features(list(range(7))) | BernoulliNB(),
    )


STREAMS = {
    "Agrawal": Stream(
        lambda seed: synth.Agrawal(seed=seed), 2, tree.HoeffdingTreeClassifier, Features(AGRAWAL) | DecisionTree()
    ),
    "SEA": Stream(lambda seed: synth.SEA(seed=seed), 2, logistic, Features([0, 1, 2]) | LogisticRegression()),
    "LED": led(0.0),
    "LED, 10 % noise": led(0.1),
    "Shuttle": Stream(
        lambda seed: datasets.Shuttle(), 2, tree.HoeffdingTreeClassifier, Features(SHUTTLE) | DecisionTree()
    ),
}


@dataclass(frozen=True)
class Case:
    """A row or two: a stream, a promise, and how long it runs; `both` puts River's model inside as well."""

    stream: str
    epsilon: float
    rounds: int
    silent: int
    unsure: int | None = None
    copies: int | None = None
    polls: int | None = None
    both: bool = False


FULL = (
    Case("Agrawal", 4, 200_000, 80_000, both=True),
    Case("Agrawal", 2, 200_000, 80_000),
    Case("Agrawal", 1, 1_000_000, 400_000, unsure=1000, copies=5000),
    Case("SEA", 4, 200_000, 80_000, unsure=12_000, both=True),
    Case("SEA", 4, 200_000, 80_000, unsure=10_000, polls=513),
    Case("SEA", 2, 600_000, 240_000, unsure=30_000, polls=513),
    Case("SEA", 1, 600_000, 240_000, unsure=60_000, polls=1025),
    Case("LED", 4, 100_000, 60_000, both=True),
    Case("LED", 1, 400_000, 160_000),
    Case("LED, 10 % noise", 4, 400_000, 160_000, unsure=70_000),
    Case("Shuttle", 4, 49_097, 25_000, both=True),
    Case("Shuttle", 2, 49_097, 25_000),
    Case("Shuttle", 1, 49_097, 25_000),
)
QUICK = (
    Case("Agrawal", 4, 60_000, 40_000),
    Case("SEA", 4, 50_000, 25_000, unsure=5000),
    Case("LED", 4, 50_000, 25_000),
    Case("Shuttle", 4, 49_097, 25_000),
    Case("SEA", 4, 12_000, 9_000, unsure=1000, both=True),
)


@dataclass(frozen=True)
class Outcome:
    """How a run went."""

    error: float
    halted: int | None
    microseconds: float


def run(model: Any, rows: Rows, silent: int) -> Outcome:
    """One pass: ask, then say what was right; the error of all rounds that are not silent."""
    wrong = rounds = 0
    halted = None
    start = time.perf_counter()
    for x, y in rows:
        answer = model.predict_one(x)
        rounds += 1
        wrong += rounds > silent and answer != y
        if halted is None and isinstance(model, PrivateClassifier) and model.pop.state == "halted":
            halted = rounds
        model.learn_one(x, y)
    took = time.perf_counter() - start
    return Outcome(wrong / (rounds - silent), halted, took / rounds * 1e6)


def rows_of(case: Case, seed: int, add: Callable[..., None]) -> None:
    """Run a case and add its rows to the table."""
    stream = STREAMS[case.stream]

    def rows() -> Rows:
        return itertools.islice(iter(stream.open(seed)), case.rounds)

    plain = run(stream.river(), rows(), case.silent)
    choose = partial(Plan.tight, case.epsilon, 1e-6, case.rounds, silent=case.silent, labels=stream.labels)
    plan = choose(unsure=case.unsure, copies=case.copies, polls=case.polls)
    labels = tuple(range(stream.labels))
    inside: Sequence[Any] = [stream.ours, *([stream.river()] if case.both else [])]
    for model in inside:
        private = PrivateClassifier(model, plan, labels=labels, after_halt="fallback", seed=seed)
        got = run(private, rows(), case.silent)
        last = model.learner if model is stream.ours else getattr(model, "_last_step", model)
        name = f"{'Confide' if model is stream.ours else 'River'} {type(last).__name__.removesuffix('Classifier')}"
        end = "live" if got.halted is None else f"halted at {got.halted:,}"
        add(
            *(
                case.stream,
                f"{case.epsilon:g}",
                f"{case.rounds:,}",
                f"{case.silent:,}",
                f"{plan.polls:,} of {plan.copies:,}",
            ),
            *(f"{plain.error:.2%}", f"{got.error:.2%}", name),
            *(f"{private.pop.operator.unsure:,} of {plan.unsure:,}", end),
            *(f"{plain.microseconds:.0f}", f"{got.microseconds:.0f}"),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Plain River models and private ones side by side.")
    parser.add_argument("--quick", action="store_true", help="short streams, under a minute")
    parser.add_argument("--only", default="", help="streams whose name contains this")
    parser.add_argument("--seed", type=int, default=1, help="of the stream and of the coins")
    given = parser.parse_args()
    table = Table(title=f"Errors of the live rounds, plain River beside private; seed {given.seed}")
    for heading in ("stream", "ε", "rounds", "silent", "copies asked", "plain River", "private", "of what inside"):
        table.add_column(heading, justify="left" if heading in ("stream", "of what inside") else "right")
    for heading in ("unsure", "at the end", "µs plain", "µs private"):
        table.add_column(heading, justify="right")
    for case in QUICK if given.quick else FULL:
        if given.only.lower() in case.stream.lower():
            console.print(f"{case.stream}, ε = {case.epsilon:g} …", style="dim")
            rows_of(case, given.seed, table.add_row)
    console.print(table)


if __name__ == "__main__":
    main()
