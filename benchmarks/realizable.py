"""Mistakes of certified plans over a million rounds, beside what was certified, at worst-case orders.

    python benchmarks/realizable.py --out runs.json    (1, 10⁻⁶) for d = 1, 3 and (4, 10⁻⁶) for d = 1, 3, 10
    python benchmarks/realizable.py --quick            50 000 rounds at ε = 8, under a minute

Classes whose Littlestone dimension is d: at most d positive points of 64, thresholds on 2^d − 1 points, monotone
conjunctions of d variables, parities of d variables. For d > 1 the points are conjunctions again: point p is the
question with variable p false and all others true, so a copy says 1 at p once it was told so, and 0 before. That errs
on positive points only, once each, and says what the Standard Optimal Algorithm says. Each class comes with a target
and d hard questions on which an untaught copy errs one after the other. Three orders:

  one by one    each hard question until every copy must have seen it: chosen beforehand
  disagreement  adaptive: reads the votes of all copies on all questions, and asks where they disagree most; where all
                agree, a hard question; looks again after k/64 rounds, 256 where there are 1024 questions
  at random     all questions alike

The label is the target's, so it is fixed before the answer. When all copies know everything, questions are random.
Runs are secure, so they differ each time. `--out` keeps finished runs: start it again and it goes on; all of them take
an hour or two. Exits with 1 when a run halts early or makes more mistakes than certified with probability 1 − β, or
when an order's runs together make more than certified in expectation.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from confide import POP, Plan, evaluate
from confide.learners import Conjunctions, Parities, Points, Thresholds
from confide.planning import paper

DELTA, BETA = 1e-6, 0.05
PROMISES = {False: ((1.0, 1), (1.0, 3), (4.0, 1), (4.0, 3), (4.0, 10)), True: ((8.0, 1), (8.0, 3))}
"""ε and d, for the whole benchmark and for the quick one."""

Questions = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Task:
    """A class, its target, and the questions that hurt."""

    name: str
    learner: Any
    questions: Questions
    """All questions, one row each."""
    labels: Labels
    """The target's labels of them."""
    hard: list[int]
    """The rows on which an untaught copy errs, one after the other."""


def tasks(d: int) -> list[Task]:
    """The classes of dimension d."""
    bits = (np.arange(1 << d)[:, None] >> np.arange(d)) & 1
    line = np.arange((1 << d) - 1)
    full = (1 << d) - 1
    return [
        _points(d),
        Task(
            "thresholds",
            Thresholds(points=line.size),
            line[:, None].astype(float),
            np.ones(line.size, dtype=np.int64),
            [(1 << i) - 1 for i in range(d - 1, -1, -1)],
        ),
        Task(
            "conjunctions",
            Conjunctions(variables=d, negations=False),
            bits.astype(float),
            np.ones(1 << d, dtype=np.int64),
            [full ^ 1 << i for i in range(d)],
        ),
        Task("parities", Parities(variables=d), bits.astype(float), bits.sum(axis=1) % 2, [1 << i for i in range(d)]),
    ]


def _points(d: int) -> Task:
    if d == 1:
        return Task("points", Points(), np.arange(64.0)[:, None], (np.arange(64) == 0).astype(np.int64), [0])
    learner = Conjunctions(variables=64, negations=False)
    return Task("points", learner, 1.0 - np.eye(64), (np.arange(64) < d).astype(np.int64), list(range(d)))


def _rounds(pop: POP, X: Questions, y: Labels) -> tuple[int, int]:
    """Ask every row, then teach its label; mistakes and unsure answers."""
    done = evaluate(pop, X, y)
    return done.mistakes, int((~done.sure).sum())


Look = Callable[[], NDArray[np.int64]]
Order = Callable[[Task, Plan, Look], Iterator[tuple[int, int]]]
"""From the task, the plan and a look at how many copies err on each question, to a row and how often to ask it."""


def one_by_one(task: Task, plan: Plan, look: Look) -> Iterator[tuple[int, int]]:
    """All copies are taught in a stage but with probability 10⁻³, where T allows such long stages."""
    enough = min(math.ceil(plan.copies * math.log(1000 * plan.copies)), plan.rounds // len(task.hard))
    for row in task.hard:
        yield row, enough


def disagreement(task: Task, plan: Plan, look: Look) -> Iterator[tuple[int, int]]:
    """The smallest margin; among equal ones a hard question, in their order."""
    place = np.full(task.labels.size, len(task.hard))
    place[task.hard] = np.arange(len(task.hard))
    while (wrong := look()).any():
        margin = np.where(wrong > 0, np.abs(plan.copies - 2 * wrong), plan.copies + 1)
        yield int(np.lexsort((place, margin))[0]), max(16, plan.copies // 64, place.size // 4)


def at_random(task: Task, plan: Plan, look: Look) -> Iterator[tuple[int, int]]:
    """Nothing chosen."""
    yield from ()


ORDERS: dict[str, Order] = {"one by one": one_by_one, "disagreement": disagreement, "at random": at_random}


def play(task: Task, plan: Plan, order: str, step: Callable[[int], None]) -> dict[str, Any]:
    """One run to the end of its rounds."""
    pop = POP(task.learner, plan, labels=[0, 1], features=task.questions.shape[1])
    everyone = np.arange(plan.copies)
    encoded = [pop.operator.bank.encode(x) for x in task.questions]
    draw = np.random.default_rng()

    def look() -> NDArray[np.int64]:
        votes = np.array([pop.operator.bank.votes(x, everyone) for x in encoded])
        return plan.copies - votes[np.arange(task.labels.size), task.labels]

    twin, known, twin_mistakes = task.learner.clone(), set(), 0
    total, start = np.zeros(2, dtype=np.int64), time.perf_counter()
    script = ORDERS[order](task, plan, look)
    while pop.rounds < plan.rounds and pop.state != "halted":
        row, times = next(script, (-1, 50_000))
        times = min(times, plan.rounds - pop.rounds)
        rows = np.full(times, row) if row >= 0 else draw.integers(0, task.labels.size, times)
        for new in dict.fromkeys(rows.tolist()):
            if new not in known:  # a learner that agrees with all labels so far errs on no question twice
                known.add(new)
                twin_mistakes += twin.predict(task.questions[new]) != task.labels[new]
                twin.learn(task.questions[new], int(task.labels[new]))
        total += _rounds(pop, task.questions[rows], task.labels[rows])
        step(times)
    return {
        "mistakes": int(total[0]),
        "unsure": int(total[1]),
        "rounds": pop.rounds,
        "halted": pop.halt_reason == "budget",
        "left": int(look().sum()),
        "twin": int(twin_mistakes),
        "seconds": round(time.perf_counter() - start, 1),
    }


def literal(epsilon: float, rounds: int, d: int) -> int:
    """The paper's bound on the mistakes with its constants as printed, at the number of copies it asks for."""
    size = paper.size(paper.PaperRequest(epsilon, DELTA, rounds, d, beta=BETA))
    return paper.reports(size.copies, d, BETA / 3)


@dataclass(frozen=True, eq=False)
class Case:
    """One line of the table."""

    epsilon: float
    d: int
    plan: Plan
    task: Task

    def key(self, order: str, number: int) -> str:
        return f"ε={self.epsilon:g} d={self.d} {self.task.name}, {order}, T={self.plan.rounds}, run {number}"

    def row(self, found: dict[str, list[dict[str, Any]]]) -> tuple[bool, list[str]]:
        """Whether the runs kept to the certificate, and the line."""
        plan, bound = self.plan, self.plan.certificate
        assert bound is not None
        runs = [run for order in found.values() for run in order]
        mistakes = {order: [run["mistakes"] for run in these] for order, these in found.items()}
        kept = all(run["rounds"] == plan.rounds and not run["halted"] for run in runs)
        kept &= all(max(m) <= bound.mistakes and np.mean(m) <= bound.expected_mistakes for m in mistakes.values())
        return kept, [
            *(f"{self.epsilon:g}", f"{self.d}", self.task.name, f"{plan.copies:,}"),
            *(f"{max(m):,}" for m in mistakes.values()),
            *(f"{bound.expected_mistakes:,.0f}", f"{bound.mistakes:,}"),
            f"{literal(self.epsilon, plan.rounds, self.d):.1e}",
            f"{max(run['twin'] for run in runs)}",
            f"{max(run['unsure'] for run in runs):,} of {plan.unsure:,}",
            "yes" if kept else "NO",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, one run each")
    parser.add_argument("--rounds", type=int, help="T")
    parser.add_argument("--runs", type=int, help="runs of each worst-case order; there is one at random")
    parser.add_argument("--out", type=Path, help="JSON file of finished runs, to go on from")
    given = parser.parse_args()
    rounds = given.rounds or (50_000 if given.quick else 1_000_000)
    runs = given.runs or (1 if given.quick else 3)
    console = Console()
    if not console.is_terminal:
        console.width = 150
    cases = []
    for epsilon, d in PROMISES[given.quick]:
        plan = Plan.certified(epsilon, DELTA, rounds, d, beta=BETA)
        cases += [Case(epsilon, d, plan, task) for task in tasks(d)]
    quickest = sorted(cases, key=lambda case: case.plan.copies)
    wanted = [(n, case, order) for n in range(1, runs + 1) for case in quickest for order in ORDERS]
    wanted = [(n, case, order) for n, case, order in wanted if n == 1 or order != "at random"]
    done: dict[str, Any] = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    found: dict[Case, dict[str, list[dict[str, Any]]]] = {case: {order: [] for order in ORDERS} for case in cases}
    with Progress(console=console, transient=True) as progress:
        whole = progress.add_task("all runs", total=len(wanted))
        for number, case, order in wanted:
            key = case.key(order, number)
            if done.get(key, {}).get("copies") != case.plan.copies:
                bar = progress.add_task(key, total=rounds)
                outcome = play(case.task, case.plan, order, lambda n, bar=bar: progress.advance(bar, n))
                progress.remove_task(bar)
                done[key] = {"copies": case.plan.copies, **outcome}
                if given.out:
                    new = given.out.with_suffix(".new")
                    new.write_text(json.dumps(done, indent=1, ensure_ascii=False))
                    new.replace(given.out)
            found[case][order].append(done[key])
            progress.advance(whole)
    table = Table(box=SIMPLE, title=f"Mistakes, T = {rounds:,}, δ = {DELTA:g}: the most of {runs} runs, one at random")
    for name in ("ε", "d", "class", "copies", *ORDERS):
        table.add_column(name, justify="left" if name == "class" else "right")
    for name in ("expected ≤", f"{1 - BETA:.0%} ≤", "paper ≤", "not private", "unsure", "kept"):
        table.add_column(name, justify="right")
    rows = [case.row(found[case]) for case in cases]
    for _, line in rows:
        table.add_row(*line)
    console.print(table)
    kept = all(one for one, _ in rows)
    good = "Every run kept to its certificate, and none halted early."
    console.print(good if kept else "A run halted early, or made more mistakes than certified.")
    if not kept:
        raise SystemExit("a run halted early, or made more mistakes than certified")


if __name__ == "__main__":
    main()
