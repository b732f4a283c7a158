"""What it costs not to know the length, and how a guide without an end follows a change.

    CONFIDE_DATA=folder python benchmarks/endless.py length --rounds 10000 100000 [--streams rbf sea] [--seeds 2]
    CONFIDE_DATA=folder python benchmarks/endless.py drift flip elec [--json file]
    python benchmarks/endless.py --quick    10 000 rounds of three generated streams, half a minute

Each line has the error over all rows of a plan told its length, then the quotient of that of a plan without an end,
with all else the same, and in brackets both after 40 % of the rows. A seed is one of the noise; the rows are the same.

The constants (leaves of an epoch, the longest leaf, growth, the look at ranges) were chosen on RBF, Agrawal 1 and
Agrawal 5; SEA, hotel and Agrawal 3 were looked at once, afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from agrawal import agrawal_label, agrawal_rows
from evidence.streams import FILES, asked, load
from guide_streams import Rows

from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random

DELTA, LATER = 1e-6, 0.4
CHOSEN, UNSEEN = ("rbf", "agrawal1", "agrawal5"), ("sea", "hotel", "agrawal3")
CHANGES, CONCEPTS = (90_000, 210_000, 290_000), (1, 3, 5, 2)
"""Of the drifting stream: at which rounds its rule changes, aligned with no epoch, and Agrawal's functions."""

Mask = NDArray[np.bool_]


def errors(plan: GuidePlan, columns: Columns, rows: Any, labels: NDArray[np.int64], seed: int) -> Mask:
    """Which rows a guide answers wrongly, each asked before its label is taught."""
    return np.asarray(Guide(plan, columns, rng=Random(seed=seed)).follow(rows, labels).answers != labels)


def beside(
    name: str, columns: Columns, rows: Any, labels: NDArray[np.int64], epsilon: float, seeds: int
) -> dict[str, Any]:
    """Error of a plan told its length, and without an end, over all rows and after 40 % of them."""
    n, found = labels.size, {}
    for kind, rounds in (("told", n), ("endless", None)):
        plan = GuidePlan.best(epsilon, DELTA, rounds, labels=int(labels.max()) + 1)
        wrong = [errors(plan, columns, rows, labels, seed) for seed in range(1, seeds + 1)]
        found[kind] = [float(np.mean(wrong)), float(np.mean([each[int(LATER * n) :] for each in wrong]))]
    ratio = [b / a for a, b in zip(found["told"], found["endless"], strict=True)]
    return {"stream": name, "rounds": n, "epsilon": epsilon, "seeds": seeds, **found, "ratio": ratio}


def length(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for rounds in args.rounds:
        for name in args.streams:
            stream = load(name, None if name in FILES else rounds)
            rows, labels = asked(stream)[0][:rounds], stream.labels[:rounds]
            for epsilon in args.epsilon:
                yield beside(name, stream.columns, rows, labels, epsilon, args.seeds)


def drift(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Agrawal 1 → 3 → 5 → 2."""
    x = agrawal_rows(np.random.default_rng(7), 400_000)
    parts = zip(CONCEPTS, np.split(x, CHANGES), strict=True)
    y = np.concatenate([agrawal_label(number, part) for number, part in parts]).astype(np.int64)
    yield beside("drift", Columns.of_array(9), x, y, 4.0, args.seeds)


def elec(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    stream = load("elec", None)
    yield beside("elec", stream.columns, Rows(stream)[:], stream.labels, 4.0, args.seeds)  # its columns have names


def flip(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All labels are exchanged at round t: in how many rounds, of t, the error is back within 1.2 times."""
    for name in ("sea", "rbf"):
        t = 200_000
        stream = load(name, 3 * t // 2)
        labels = np.where(np.arange(stream.labels.size) < t, stream.labels, 1 - stream.labels)
        wrong = errors(GuidePlan.best(4.0, DELTA), stream.columns, asked(stream)[0], labels, 1)
        before, step = float(wrong[t - t // 10 : t].mean()), t // 100
        later = [float(part.mean()) for part in np.split(wrong[t:], 50)]
        back = next((i for i, error in enumerate(later) if error <= 1.2 * before), None)
        found = None if back is None else back * step / t
        yield {"stream": f"{name}, flipped", "rounds": t, "before": before, "back": found, "later": later}


KINDS = {"length": length, "drift": drift, "flip": flip, "elec": elec}


def said(line: dict[str, Any]) -> str:
    if "ratio" not in line:
        head = f"{line['stream']} at {line['rounds']:,}: error {line['before']:.2%}"
        return f"{head}, within 1.2 times that after {line['back']} of t"
    told, ratio = line["told"], line["ratio"]
    head = f"{line['stream']:10} {line['rounds']:9,} rounds, ε = {line['epsilon']:g}"
    return f"{head}: {told[0]:.2%} ({told[1]:.2%}) × {ratio[0]:.3f} ({ratio[1]:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(KINDS)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="10 000 rounds of generated streams")
    parser.add_argument("--rounds", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--streams", nargs="+", default=[*CHOSEN, *UNSEEN])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if unknown := sorted(set(args.what) - set(KINDS)):
        parser.error(f"there is no {unknown[0]}: take some of {', '.join(KINDS)}")
    if args.quick:
        args.what, args.rounds, args.streams = ["length"], [10_000], list(CHOSEN)
    try:
        measure(args)
    except FileNotFoundError as missing:
        raise SystemExit(f"could not run: {missing}") from None


def measure(args: argparse.Namespace) -> None:
    lines = []
    for what in args.what or KINDS:
        for line in KINDS[what](args):
            lines.append(line)
            print(said(line), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(lines, indent=1) + "\n")
    ratios = np.array([line["ratio"] for line in lines if "ratio" in line])
    if len(ratios) > 1:
        for word, (all_, after) in (("mean", ratios.mean(axis=0)), ("worst", ratios.max(axis=0))):
            print(f"{word} × {all_:.3f} ({after:.3f})")


if __name__ == "__main__":
    main()
