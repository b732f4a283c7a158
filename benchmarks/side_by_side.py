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
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from river import datasets, linear_model, naive_bayes, preprocessing, tree
from river.datasets import synth

from confide import Plan
from confide.learners import BernoulliNB, DecisionTree, Features, LogisticRegression
from confide.river import PrivateClassifier

console = Console(width=170)
Rows = Iterator[tuple[dict[Any, Any], Hashable]]

AGRAWAL = ["salary", "commission", "age", "elevel", "car", "zipcode", "hvalue", "hyears", "loan"]
SHUTTLE = [f"f{i}" for i in range(1, 10)]


@dataclass(frozen=True)
class Stream:
    """A stream, the plain River model for it, and what the copies are: Confide's learner, or a River model.

    A copy sees some hundred labels only, so River's model has other settings there. They were chosen by looking at
    these streams, which are public; on data of your own that would be outside the guarantee.
    """

    open: Callable[[int], Any]
    labels: int
    plain: Callable[[], Any]
    ours: Any
    river: Any


def logistic() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def led(noise: float) -> Stream:
    return Stream(
        lambda seed: synth.LED(seed=seed, noise_percentage=noise),
        10,
        linear_model.SoftmaxRegression,
        Features(list(range(7))) | BernoulliNB(),
        naive_bayes.BernoulliNB(),
    )


STREAMS = {
    "Agrawal": Stream(
        lambda seed: synth.Agrawal(seed=seed),
        2,
        tree.HoeffdingTreeClassifier,
        Features(AGRAWAL) | DecisionTree(),
        tree.HoeffdingTreeClassifier(grace_period=20, delta=0.1, tau=0.2),
    ),
    "SEA": Stream(
        lambda seed: synth.SEA(seed=seed), 2, logistic, Features([0, 1, 2]) | LogisticRegression(), logistic()
    ),
    "LED": led(0.0),
    "LED, noise 10 %": led(0.1),
    "Shuttle": Stream(
        lambda seed: datasets.Shuttle(),
        2,
        tree.HoeffdingTreeClassifier,
        Features(SHUTTLE) | DecisionTree(),
        tree.HoeffdingTreeClassifier(leaf_prediction="nb"),
    ),
}


@dataclass(frozen=True)
class Case:
    """A row: a stream, a promise, how long it runs, and whether Confide's or River's model is inside."""

    stream: str
    epsilon: float
    rounds: int
    silent: int
    unsure: int | None = None
    copies: int | None = None
    polls: int | None = None
    river: bool = False


FULL = (
    Case("Agrawal", 4, 200_000, 80_000),
    Case("Agrawal", 4, 400_000, 300_000, unsure=3000, river=True),
    Case("Agrawal", 2, 200_000, 80_000),
    Case("Agrawal", 1, 1_000_000, 400_000, unsure=1000, copies=5000),
    Case("SEA", 4, 200_000, 80_000, unsure=12_000),
    Case("SEA", 4, 200_000, 80_000, unsure=14_000, river=True),
    Case("SEA", 4, 200_000, 80_000, unsure=10_000, polls=513),
    Case("SEA", 2, 600_000, 240_000, unsure=30_000, polls=513),
    Case("SEA", 1, 600_000, 240_000, unsure=60_000, polls=1025),
    Case("LED", 4, 100_000, 60_000),
    Case("LED", 4, 50_000, 40_000, river=True),
    Case("LED", 1, 400_000, 160_000),
    Case("LED, noise 10 %", 4, 400_000, 160_000, unsure=70_000),
    Case("Shuttle", 4, 49_097, 25_000),
    Case("Shuttle", 4, 49_097, 25_000, river=True),
    Case("Shuttle", 2, 49_097, 25_000),
    Case("Shuttle", 1, 49_097, 25_000),
)
QUICK = (
    Case("Agrawal", 4, 60_000, 40_000),
    Case("SEA", 4, 50_000, 25_000, unsure=5000),
    Case("SEA", 4, 12_000, 9_000, unsure=1000, river=True),
    Case("LED", 4, 50_000, 25_000),
    Case("Shuttle", 4, 49_097, 25_000),
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


def row(case: Case, seed: int) -> list[str]:
    """Run a case, plainly and privately."""
    stream = STREAMS[case.stream]

    def rows() -> Rows:
        return itertools.islice(iter(stream.open(seed)), case.rounds)

    plain = run(stream.plain(), rows(), case.silent)
    plan = Plan.tight(
        case.epsilon,
        1e-6,
        case.rounds,
        silent=case.silent,
        unsure=case.unsure,
        copies=case.copies,
        polls=case.polls,
        labels=stream.labels,
        guide=None,
    )
    model = stream.river if case.river else stream.ours
    labels = tuple(range(stream.labels))
    private = PrivateClassifier(model, plan=plan, labels=labels, after_halt="fallback", seed=seed)
    got = run(private, rows(), case.silent)
    last = getattr(model, "_last_step", model) if case.river else model.learner
    return [
        *(case.stream, f"{case.epsilon:g}", f"{case.rounds:,}", f"{case.silent:,}"),
        *(f"{plan.polls:,}/{plan.copies:,}", f"{plain.error:.2%}", f"{got.error:.2%}"),
        f"{'River' if case.river else 'Confide'} {type(last).__name__.removesuffix('Classifier')}",
        f"{private.pop.operator.unsure:,}/{plan.unsure:,}",
        "live" if got.halted is None else f"halted at {got.halted:,}",
        *(f"{plain.microseconds:.0f}", f"{got.microseconds:.0f}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Plain River models and private ones side by side.")
    parser.add_argument("--quick", action="store_true", help="short streams, under a minute")
    parser.add_argument("--only", default="", help="streams whose name contains this")
    parser.add_argument("--seed", type=int, default=1, help="of the stream and of the coins")
    given = parser.parse_args()
    table = Table(title=f"Errors of the live rounds, plain River beside private; seed {given.seed}")
    for heading in ("stream", "ε", "rounds", "silent", "polls/copies", "plain River", "private", "inside", "unsure"):
        table.add_column(heading, justify="left" if heading in ("stream", "inside") else "right", no_wrap=True)
    for heading in ("at the end", "µs plain", "µs private"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in QUICK if given.quick else FULL:
        if given.only.lower() in case.stream.lower():
            cells = row(case, given.seed)
            console.print("  ".join(cells), style="dim")
            table.add_row(*cells)
    console.print(table)


if __name__ == "__main__":
    main()
