"""Streams as strangers have them: Confide's defaults beside DP-FTRL tuned in hindsight, and the most frequent label.

    python benchmarks/strangers.py FOLDER [--seeds 1 2 3] [--epsilons 1 4] [--only NAME …] [--rows N]
    python benchmarks/strangers.py FOLDER … --peers | --declared
    python benchmarks/strangers.py --quick    20,000 rows of two generated streams, one seed

FOLDER holds one NAME.npz a stream, with X (a number in every place) and y (0 or 1), made by anybody; a stream that is
not there is left out, and said. Errors are in per cent of the rows after the first 40 %, in brackets of all rows.

--peers runs DP-FTRL too and writes its errors to benchmarks/results/strangers.json, where they are read from otherwise:
it has nine rates and two maps to try (bins have never been better on these streams, and are tried at seed 1 only).

--declared runs Confide with and without declared ranges, the smallest and largest value of each column in the first 5 %
of the rows (a column with one value there has none), and says where declaring errs more late than 1.02 times as much,
by more than two standard errors. It takes streams of the table of evidence by name too, those of numbers alone:
`--only sea elec`.

Four streams are kept here by name: words hashed to 256 plain columns (sst2_256), a hotel's bookings one-hot
(hotel_onehot), KDD-99 one-hot in file order (kdd_onehot), flights without their departure's delay (flights_nodep).
Constants of the map and of the step were chosen on sst2_256 and kdd_onehot, and hotel, Agrawal 1 and RBF of the table
of evidence; hotel_onehot and the rest of that table were looked at afterwards. flights_nodep was looked at several
times, to find out why it errs more with a larger ε: it judges nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from dpftrl import RATES, design, noise
from dpftrl import run as dpftrl
from evidence.streams import FILES, GENERATORS, SEED

from confide import POP, Plan, evaluate
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.privacy.random import Random

NAMES = ("sst2_256", "hotel_onehot", "kdd_onehot", "flights_nodep")
DELTA, LATE = 1e-6, 0.4
SAMPLE, WORSE = 20, 1.02  # declared from the first twentieth of the rows; what declaring may err more
RESULTS = Path(__file__).parent / "results" / "strangers.json"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def errors(answers: Ints, y: Ints) -> tuple[float, float]:
    """Wrong answers in per cent, of the late rows and of all."""
    wrong = answers != y
    return round(100 * float(wrong[int(LATE * len(y)) :].mean()), 3), round(100 * float(wrong.mean()), 3)


def defaults(x: Floats, y: Ints, epsilon: float, seed: int) -> tuple[float, float]:
    """Somebody who says nothing but what they promise, and for how long."""
    pop = POP(None, Plan.tight(epsilon, DELTA, len(y)), labels=[0, 1], features=x.shape[1], seed=seed)
    return errors(evaluate(pop, x, y).answers, y)


def ranges_of(x: Floats) -> dict[str, tuple[float, float] | None]:
    """What somebody would declare who knows the first rows of each column."""
    first = x[: len(x) // SAMPLE]
    ends = zip(np.nanmin(first, axis=0).tolist(), np.nanmax(first, axis=0).tolist(), strict=True)
    return {str(i): (low, high) if low < high else None for i, (low, high) in enumerate(ends)}


def side_by_side(key: str, x: Floats, y: Ints, epsilon: float, seeds: list[int]) -> None:
    """Ranges found in private, and declared ones: both errors, and whether declaring did worse."""
    plan, found, given = Plan.tight(epsilon, DELTA, len(y), labels=int(y.max()) + 1), [], []
    columns = Columns.of_array(x.shape[1])
    assert plan.guide is not None
    for seed in seeds:
        for ranges, out in (({}, found), ({n: r for n, r in ranges_of(x).items() if r is not None}, given)):
            guide = Guide(plan.guide, columns, rng=Random(seed=seed), ranges=ranges)
            out.append(errors(guide.follow(x, y).answers, y))
    (late, over), (later, all_) = (zip(*each, strict=True) for each in (found, given))
    noise_ = 2 * np.sqrt(np.var(late, ddof=1) + np.var(later, ddof=1)) / len(seeds) ** 0.5 if len(seeds) > 1 else 0.0
    worse = np.mean(later) > WORSE * np.mean(late) + noise_
    print(
        f"{key:22s} found {_spread(list(late))} ({_spread(list(over))}); declared {_spread(list(later))} "
        f"({_spread(list(all_))}): × {np.mean(later) / np.mean(late):.3f}{', WORSE' if worse else ''}",
        flush=True,
    )


def stream(folder: Path, name: str, rows: int | None) -> tuple[Floats, Ints] | None:
    """A stream of the folder, or one of the table of evidence, all numbers; None where there is none."""
    path = folder / f"{name}.npz"
    if path.exists():
        with np.load(path) as file:
            return file["X"][:rows].astype(np.float64), file["y"][:rows].astype(np.int64)
    if name in FILES and not (kept := FILES[name]()).columns.categorical and not kept.columns.text:
        return kept.numbers[:rows], kept.labels[:rows]
    if name not in GENERATORS:
        print(f"{name} is left out: there is no {path.name} in the folder")
        return None
    x, y = GENERATORS[name](np.random.default_rng(SEED), rows or 10**5)
    return x.astype(np.float64), y


def peer(x: Floats, y: Ints, epsilon: float, seeds: list[int]) -> dict[str, Any]:
    """DP-FTRL: the map and the rate that err least at the first seed, and each seed's errors with them."""
    every = np.ones(len(y), dtype=np.bool_)
    tried = []
    for bins in (0, 16):
        rows = design(x, [], [], bins)
        drawn = noise(seeds[0], rows.shape[1])
        for rate in RATES:
            tried.append((*errors(dpftrl(rows, y, every, epsilon, DELTA, rate, seeds[0], drawn), y), bins, rate))
    late, over, bins, rate = min(tried)
    rows = design(x, [], [], bins)
    rest = [errors(dpftrl(rows, y, every, epsilon, DELTA, rate, seed), y) for seed in seeds[1:]]
    return {"bins": bins, "rate": rate, "late": [late, *(a for a, _ in rest)], "all": [over, *(b for _, b in rest)]}


def _spread(values: list[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{np.mean(values):6.2f} ± {error:4.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="by default strangers/ in the folder CONFIDE_DATA")
    parser.add_argument("--quick", action="store_true", help="20,000 rows of two generated streams, one seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--only", nargs="+", default=NAMES)
    parser.add_argument("--rows", type=int, help="the first rows of each stream: for choosing, not for telling")
    parser.add_argument("--peers", action="store_true", help="run DP-FTRL, and nothing else")
    parser.add_argument("--declared", action="store_true", help="with and without declared ranges, and nothing else")
    asked = parser.parse_args()
    if asked.quick:
        asked.only, asked.rows, asked.seeds = ("sea", "rbf"), 20_000, [1]
    if asked.folder is None:
        asked.folder = Path(os.environ.get("CONFIDE_DATA", ".")) / "strangers"
    if not run(asked):
        raise SystemExit("could not run: none of these streams is in the folder; --quick needs none")


def run(asked: argparse.Namespace) -> int:
    """Print a line a stream and ε; how many streams there were."""
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found = 0
    for name in asked.only:
        known_stream = stream(asked.folder, name, asked.rows)
        if known_stream is None:
            continue
        found += 1
        x, y = known_stream
        common = errors(np.full(len(y), np.bincount(y).argmax()), y)
        for epsilon in asked.epsilons:
            key = f"{name}/{asked.rows or 'all'}/{epsilon:g}"
            if asked.peers:
                known[key] = peer(x, y, epsilon, asked.seeds)
                RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
                print(key, known[key], flush=True)
                continue
            if asked.declared:
                side_by_side(key, x, y, epsilon, asked.seeds)
                continue
            begin = time.process_time()
            late, over = zip(*(defaults(x, y, epsilon, seed) for seed in asked.seeds), strict=True)
            micros = (time.process_time() - begin) / len(y) / len(asked.seeds) * 1e6
            line = f"{key:22s} Confide {_spread(list(late))} ({_spread(list(over))}), {micros:.0f} µs a row;"
            if key in known:
                best = known[key]
                ratio = np.mean(late) / np.mean(best["late"]), np.mean(over) / np.mean(best["all"])
                line += f" DP-FTRL {_spread(best['late'])} ({_spread(best['all'])}): × {ratio[0]:.3f} ({ratio[1]:.3f});"
            print(f"{line} always the most frequent label {common[0]:.2f} ({common[1]:.2f})", flush=True)
    return found


if __name__ == "__main__":
    main()
