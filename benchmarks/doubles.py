"""Every double, how it is caught, and a hundred seeds of the correct mechanisms without an alarm.

    python benchmarks/doubles.py            about 20 minutes of one core
    python benchmarks/doubles.py --quick    5 seeds, without the games that take long: about a minute of one core

The doubles are those of tests/doubles.py. A replay's evidence is the line that it found violated. An audit's evidence
are two bounds that hold together but for probability 10⁻⁶, the alarm level: a test for bit 1 with at most this share of
false and at least that of true positives, where the promise allows fewer true ones. Exits with 1 when a double gets
away or a correct mechanism is accused.
"""

import argparse
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.hunts import hunts
from tests.replays import REPLAYS

REPLAYED = 2
"""Replays of correct mechanisms in each seed; the seeds go round the scripts."""

SHORT = 150
"""Games at each bit and seed of a correct mechanism where all of them would take long."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 seeds, and no slow games")
    parser.add_argument("--seeds", type=int, help="seeds of the correct mechanisms")
    given = parser.parse_args()
    seeds = given.seeds or (5 if given.quick else 100)
    start, missed = time.perf_counter(), 0
    games = [hunt for hunt in hunts() if not (hunt.slow and given.quick)]
    print(f"{'double':<46}{'caught by':<11}evidence")
    for replayed in REPLAYS:
        said = replayed.catch()
        caught = bool(re.search(replayed.cause, said))
        missed += not caught
        print(f"{replayed.name:<46}{'replay' if caught else 'MISSED':<11}{said[:200]}", flush=True)
    for hunt in games:
        report = hunt.run(seed=1)
        point = report.alarm_point or report.best
        missed += not report.alarm
        allowed = "nothing" if report.region is None else f"{report.region.power(point.false):.3f}"
        evidence = f"false ≤ {point.false:.4f}, true ≥ {point.true:.3f}, promised true ≤ {allowed}"
        name = f"{hunt.name:<46}{'audit' if report.alarm else 'MISSED':<11}"
        print(f"{name}{evidence}; {hunt.games:,} games at each bit", flush=True)
    alarms = audits = replays = 0
    for seed in range(seeds):
        for i in range(REPLAYED):
            correct = REPLAYS[(seed * REPLAYED + i) % len(REPLAYS)]
            said = correct.run(seed, broken=False)
            replays, alarms = replays + 1, alarms + bool(said)
            if said:
                print(f"FALSE ALARM, seed {seed}, replay of {correct.name!r}, correct: {said}")
        for hunt in games:
            report = hunt.run(10_000 + seed, broken=False, games=SHORT if hunt.slow else None)
            audits, alarms = audits + 1, alarms + report.alarm
            if report.alarm:
                print(f"FALSE ALARM, seed {seed}, audit of {hunt.name!r}, correct: {report}")
    caught = len(REPLAYS) + len(games) - missed
    print(f"\n{caught} of {len(REPLAYS) + len(games)} caught.")
    print(
        f"Correct mechanisms, {seeds} seeds, alarm level 1e-6: {alarms} false alarms in {audits:,} audits and "
        f"{replays} replays. {time.perf_counter() - start:.0f} s; insecure: seeded."
    )
    if missed or alarms:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
