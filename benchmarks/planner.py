"""Does the planner know? What it chooses, beside a guide alone and copies with a lean, each with the whole promise.

For every stream and ε: the default plan, the guide alone, and a grid of plans with copies of decision trees and a lean
(the labels a copy is taught × the unsure part of the live rounds, without a guide and with half of the budget for one).
Error after 40 % of the rounds: medians of the seeds for the guide and the default, the first seed for the grid. Points
that cannot be had are left out.

python benchmarks/planner.py [--streams hotel,elec] [--epsilons 8,4] [--seeds 1,2,3]
python benchmarks/planner.py --quick    20,000 rows of LED at ε = 8, one seed
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from guide_streams import STREAMS, Rows, Stream, generated

from confide import POP, Plan, evaluate
from confide.learners import DecisionTree, Features
from confide.pop.evaluate import Evaluation

DELTA = 1e-6
EACH = (125, 250, 500)
"""Labels a copy."""
OFTEN = (0.02, 0.1, 0.3)
"""Unsure parts of the live rounds."""
LIVE = 0.6


def grid(stream: Stream, epsilon: float) -> list[tuple[str, Plan]]:
    """Plans with copies and a lean that can be had at this promise."""
    rounds, labels = len(stream.labels), int(stream.labels.max()) + 1
    units: Any = "rounds" if stream.units is None else "people"
    lean: Any = "fill" if labels == 2 else "additive"
    plans = []
    for guide in (None, 0.5):
        for each in EACH:
            for often in OFTEN:
                numbers = {"copies": rounds // each, "unsure": int(often * LIVE * rounds)}
                try:
                    plan = Plan.tight(
                        epsilon, DELTA, rounds, labels=labels, units=units, guide=guide, lean=lean, **numbers
                    )
                except ValueError:
                    continue
                beside = "no guide" if guide is None else "half a guide"
                plans.append((f"{each} labels a copy, {often:.0%} unsure, {beside}", plan))
    return plans


def answered(stream: Stream, plan: Plan, seed: int) -> Evaluation:
    """A run with that plan."""
    columns = stream.columns
    features = Features(
        numeric=columns.numeric,
        categorical=dict.fromkeys(columns.categorical, 16),
        text=dict.fromkeys(columns.text, 256),
    )
    learner, units = DecisionTree() if plan.copies else None, plan.units or "rounds"
    pop = POP(learner, plan, labels=range(plan.labels), features=features, units=units, seed=seed)
    people = None if stream.units is None else [str(unit) for unit in stream.units]
    return evaluate(pop, Rows(stream)[:], stream.labels, people)


def late(stream: Stream, plan: Plan, seed: int) -> float:
    return 100 * answered(stream, plan, seed).error_after(0.4)


def compare(names: list[str], epsilons: list[float], seeds: list[int]) -> None:
    print("       stream   ε  default  copies  guide alone  spread   best grid point")
    for name in names:
        stream = STREAMS[name]()
        units: Any = "rounds" if stream.units is None else "people"
        asked: dict[str, Any] = {"labels": int(stream.labels.max()) + 1, "units": units}
        for epsilon in epsilons:
            default = Plan.tight(epsilon, DELTA, len(stream.labels), **asked)
            alone = Plan.tight(epsilon, DELTA, len(stream.labels), **asked, guide=1.0)
            guides = [late(stream, alone, seed) for seed in seeds]
            chosen = guides if not default.copies else [late(stream, default, seed) for seed in seeds]
            points = [(late(stream, plan, seeds[0]), words) for words, plan in grid(stream, epsilon)]
            best = "none can be had" if not points else "{:.2f}  {} ({} tried)".format(*min(points), len(points))
            print(
                f"{name:>13} {epsilon:3g} {median(chosen):8.2f} {default.copies:7,} {median(guides):12.2f} "
                f"{max(guides) - min(guides):7.2f}   {best}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 rows of LED at ε = 8, one seed")
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--epsilons", default="8,4,2,1")
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    if given.quick:
        given.streams, given.epsilons, given.seeds = "led", "8", "1"
        STREAMS["led"] = generated("led", 20_000)
    epsilons = [float(part) for part in given.epsilons.split(",")]
    try:
        compare(given.streams.split(","), epsilons, [int(seed) for seed in given.seeds.split(",")])
    except FileNotFoundError as missing:
        raise SystemExit(f"could not run: {missing}") from None


if __name__ == "__main__":
    main()
