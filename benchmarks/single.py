"""One round alone, asked and taught in process: its processor time, beside that of another checkout, in turn.

    python benchmarks/single.py                      this checkout's microseconds a round
    python benchmarks/single.py --against CHECKOUT   and the ratio to the other's: CHECKOUT has a `src` of its own

Three plans of ten thousand copies, a guide alone, and both; one process a checkout, which is asked again and again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import confide
from confide.learners import LogisticRegression

COPIES, FEATURES, ROWS = 10_000, 20, 2_000
PLANS = ("copies", "guide", "both")
TURNS = 7


def rows(n: int, seed: int) -> tuple[Any, list[int]]:
    """Rows that a linear learner tells apart soon."""
    rng = np.random.default_rng(seed)
    ys = rng.integers(0, 2, size=n)
    return rng.normal(size=(n, FEATURES)) + 1.5 * (2 * ys[:, None] - 1), ys.tolist()


def make(what: str) -> confide.POP:
    """Live copies, a guide past its first leaves, which are short; the budget is ample, since time is measured."""
    learner: Any = None if what == "guide" else LogisticRegression()
    if what == "guide":
        plan = confide.Plan.tight(2.0, 1e-6, 100_000)
    else:
        guide: dict[str, Any] = {"guide": None} if what == "copies" else {}
        plan = confide.Plan.tight(
            60.0, 1e-2, 10**7, copies=COPIES, polls=129, unsure=10**5, silent=0, beta=0.1, **guide
        )
    pop = confide.POP(learner, plan, labels=[0, 1], features=FEATURES, fallback=0)
    if plan.copies:
        pop.teach_many(*rows(12 * COPIES, 0))
    xs, ys = rows(10 * ROWS, 2)
    confide.evaluate(pop, xs, np.array(ys))
    return pop


def serve() -> None:
    """For each plan that is named on a line, the microseconds of a round."""
    pops = {what: make(what) for what in PLANS}
    xs, ys = rows(ROWS, 1)
    asked = list(xs)
    for line in sys.stdin:
        pop, started = pops[line.strip()], time.process_time()
        for x, y in zip(asked, ys, strict=True):
            pop.learn(pop.predict(x).ticket, y)
        print((time.process_time() - started) / ROWS * 1e6, flush=True)


class Side:
    """A process that runs a checkout."""

    def __init__(self, checkout: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, __file__, "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def micros(self, what: str) -> float:
        """Of one round of this plan."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """No more questions."""
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout of Confide")
    parser.add_argument("--turns", type=int, default=TURNS, help="of which the median counts")
    parser.add_argument("--quick", action="store_true", help="three turns")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    checkouts = [Path(__file__).resolve().parent.parent, *([args.against] if args.against else [])]
    sides = [Side(one) for one in checkouts]
    for what in PLANS:
        for side in sides:
            side.micros(what)  # compiled, and warm
        turns = range(3 if args.quick else args.turns)
        found = np.array([[side.micros(what) for side in sides] for _ in turns])
        said = ", ".join(f"{middle:.1f} µs" for middle in np.median(found, axis=0))
        if args.against:
            low, middle, high = np.quantile(found[:, 0] / found[:, 1], [0.25, 0.5, 0.75])
            said += f": {middle:.3f} ({low:.3f} to {high:.3f})"
        print(f"{what}: {said}", flush=True)
    for side in sides:
        side.close()


if __name__ == "__main__":
    main()
