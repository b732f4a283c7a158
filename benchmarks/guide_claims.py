"""What is claimed of the guide besides how often it errs: with what ε does, beside the frequent label, calibration.

    CONFIDE_DATA=folder python benchmarks/guide_claims.py [--seeds 1 2 3]    some minutes of one core
    python benchmarks/guide_claims.py --quick    what was run before alone, and SEA's probabilities
    python benchmarks/guide_claims.py --early    how sure it is in the first rounds, and how often right

**More ε, not more errors** and **beside the frequent label** are read from the lines in benchmarks/results/, for
every stream there. Said is where Confide errs more often at ε = 4 or 8 than at ε = 1, after 40 % of the rows, and where
it errs more often over all rows than the most frequent label of the stream by more than 1 % of them; both by more than
two standard errors: the spread over seeds where there are several, else that of so many rows, each drawn by itself.

**Calibration** is run here, at ε = 4. Of all answers after 40 % of the rows those whose label was said with about the
same probability are taken together, in groups a twentieth wide. The expected calibration error is the mean distance,
over all answers, between what was said and how often it was right; the claim is at most 0.03.

**Early** is measured and not claimed: without a last round, the mean of what was said of the answer and the share that
was right, in the first 400 rounds, in those up to 4,000, and after 40 % of the rows.

Exits with 1 where one of them does not hold.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from guide_streams import STREAMS, Rows

from confide.guide.guide import Guide
from confide.planning.guided import GuidePlan
from confide.planning.plan import Plan
from confide.privacy.random import Random

RESULTS = Path(__file__).parent / "results"
DELTA, LATE, EPSILON, GROUPS = 1e-6, 0.4, 4.0, 20
FIRST = 16  # rounds before the guide answers
MOST, WORSE = 0.03, 1.0  # of calibration; of the rows, in per cent
REAL = ("hotel", "elec", "appointments")

Key = tuple[str, int, float | None, str]


def known() -> dict[Key, list[tuple[float, float]]]:
    """The errors of the table in per cent, late and over all rows, one pair a seed."""
    out: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    for file in sorted(RESULTS.glob("*.jsonl")):
        for line in map(json.loads, file.read_text().splitlines()):
            if line["method"] in ("confide", "majority") and "late" in line:
                key = line["stream"], line["rows"], line["epsilon"], line["method"]
                out[key].append((line["late"], line["all"]))
    return out


def spread(found: list[tuple[float, float]], which: int, rows: int) -> float:
    """The standard error of the mean of some errors, never below that of one run's rows."""
    each = [pair[which] for pair in found]
    mean = float(np.mean(each)) / 100
    chance = 100 * math.sqrt(max(mean * (1 - mean), 1 / rows) / (rows * (1 - LATE if which == 0 else 1.0)))
    return max(chance, float(np.std(each, ddof=1)) / math.sqrt(len(each))) if len(each) > 1 else chance


def rising(table: dict[Key, list[tuple[float, float]]]) -> Iterator[str]:
    """Where more ε means more errors."""
    for (stream, rows, epsilon, method), found in table.items():
        less = table.get((stream, rows, 1.0, "confide"))
        if method == "confide" and epsilon in (4.0, 8.0) and less:
            here, there = (float(np.mean([late for late, _ in each])) for each in (found, less))
            if here - there > 2 * math.hypot(spread(found, 0, rows), spread(less, 0, rows)):
                yield f"{stream} ({rows:,} rows): {here:.2f} % at ε = {epsilon:g}, {there:.2f} % at ε = 1"


def below(table: dict[Key, list[tuple[float, float]]]) -> Iterator[str]:
    """Where the most frequent label errs clearly less over all rows."""
    for (stream, rows, epsilon, method), found in table.items():
        frequent = table.get((stream, rows, None, "majority"))
        if method == "confide" and frequent:
            here, there = float(np.mean([over for _, over in found])), frequent[0][1]
            if here - there > WORSE + 2 * spread(found, 1, rows):
                yield f"{stream} ({rows:,} rows), ε = {epsilon:g}: {here:.2f} %, the frequent label {there:.2f} %"


def followed(name: str, plan: GuidePlan | None, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Of each answer to one stream what was said of it, and whether it was right; None for the plan of its rows."""
    stream = STREAMS[name]()
    labels, n = stream.labels, stream.labels.size
    plan = GuidePlan.best(EPSILON, DELTA, n) if plan is None else plan
    taught = labels
    if stream.units is not None:  # of a person the first label
        _, first = np.unique(stream.units, return_index=True)
        taught = np.full(n, -1)
        taught[first] = labels[first]
    asked = Guide(plan, stream.columns, rng=Random(seed=seed)).follow(Rows(stream), taught)
    score = asked.scores[:, 0]
    return 1 / (1 + np.exp(-np.abs(score))), (score > 0) == (labels == 1)


def calibration(name: str, seed: int) -> float:
    """The expected calibration error on one stream."""
    said, right = followed(name, None, seed)
    late = np.arange(said.size) >= LATE * said.size
    return of_groups(said[late], right[late])


def early(name: str, epsilon: float, seeds: list[int]) -> str:
    """What was said and what was right, early and late."""
    plan = Plan.tight(epsilon, DELTA, units="rounds").guide
    assert plan is not None
    each = [followed(name, plan, seed) for seed in seeds]
    n = each[0][0].size
    parts = {"first 400": slice(FIRST, 400), "to 4,000": slice(400, 4000), "late": slice(int(LATE * n), n)}
    means = {
        part: tuple(float(np.mean([one[which][rows].mean() for one in each])) for which in (0, 1))
        for part, rows in parts.items()
    }
    return f"{name} at ε = {epsilon:g}: " + ", ".join(
        f"{part} said {said:.3f} right {right:.3f}" for part, (said, right) in means.items()
    )


def of_groups(said: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """The mean distance between what was said and what was right, in groups of about the same probability.

    >>> of_groups(np.array([0.5] * 10 + [0.9] * 10), np.array([True, False] * 5 + [True] * 8 + [False] * 2))
    0.05
    """
    group = np.minimum((said * GROUPS).astype(np.int64), GROUPS - 1)
    off = np.bincount(group, said - right, GROUPS)
    return round(float(np.abs(off).sum()) / said.size, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--quick", action="store_true", help="SEA's probabilities instead of those of files, one seed")
    parser.add_argument("--early", action="store_true", help="measure the first rounds, and nothing else")
    args = parser.parse_args()
    if args.early:
        for name in (*REAL, "sea"):
            for epsilon in (0.1, 1.0, 4.0):
                print(early(name, epsilon, args.seeds), flush=True)
        return
    table, missed = known(), 0
    pairs = sum(method == "confide" for *_, method in table)
    for title, found in (
        ("more errors at ε = 4 or 8 than at ε = 1", list(rising(table))),
        ("over all rows worse than the frequent label by more than 1 % of them", list(below(table))),
    ):
        print(f"{title}: {len(found)} of {pairs} pairs of a stream and an ε")
        print("".join(f"  {line}\n" for line in found), end="")
        missed += len(found)
    for name in ("sea",) if args.quick else REAL:
        try:
            each = [calibration(name, seed) for seed in (args.seeds[:1] if args.quick else args.seeds)]
        except FileNotFoundError as error:
            print(f"{name}: could not run: {error}")
            continue
        print(f"calibration of {name} at ε = {EPSILON:g}: {', '.join(f'{one:.3f}' for one in each)} (at most {MOST})")
        missed += max(each) > MOST
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
