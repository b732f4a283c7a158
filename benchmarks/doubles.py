"""Every double, how it is caught, and a hundred seeds of the correct mechanisms without an alarm.

    python benchmarks/doubles.py            about 15 minutes of one core
    python benchmarks/doubles.py --quick    5 seeds, without the games that take long: about a minute of one core
    python benchmarks/doubles.py --page     also writes the table of docs/doubles.md

The doubles are those of tests.broken. A replay's evidence is the line that it found violated. An audit's
evidence are two bounds that hold together but for probability 10⁻⁶, the alarm level: a test for bit 1 with at most this
share of false and at least that of true positives, where the promise allows fewer true ones. A certificate's evidence
is what `Plan.verify` says. Each double is also sent
the scripts of the two-world test, which know nothing of it: how many of these see it. Exits with 1 when a double gets
away or a correct mechanism is accused.
"""

import argparse
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confide.games.replay import Disk, Load
from tests.hunts import REFUSED, Hunt, hunts, refused
from tests.replays import REPLAYS, ReplayHunt
from tests.scripts import HALTING
from tests.worlds import Writer, small_plan

PAGE = Path(__file__).resolve().parent.parent / "docs" / "doubles.md"
BEGIN, END = "<!-- the table of benchmarks/doubles.py -->", "<!-- the end of the table -->"

REPLAYED = 2
"""Replays of correct mechanisms in each seed; the seeds go round the scripts."""

SHORT = 150
"""Games at each bit and seed of a correct mechanism where all of them would take long."""

GENERAL = 8
"""Scripts of the two-world test that each double is sent."""


class Caught(NamedTuple):
    """A line of the table."""

    name: str
    how: str
    evidence: str
    general: str


def seen_in_general(hunt: ReplayHunt) -> int:
    """How many scripts see it that were not written for it; with loads and a failing disk where its own has them."""
    saved = any(isinstance(step, Load | Disk) for step in hunt.script(0))
    loads = saved and hunt.settings(True).get("plan") is not HALTING  # which says of itself that it cannot be loaded
    dicts = hunt.name == "a shared vocabulary"
    seen = 0
    for seed in range(GENERAL):
        script = Writer(seed, dicts, people=True, loads=loads).write(12 if saved else 25, between=2)
        seen += bool(hunt.replay([*script, *([Disk(True)] if saved else [])], seed, plan=small_plan(2, 20, 7)))
    return seen


def by_replay(hunt: ReplayHunt) -> Caught:
    said = hunt.catch()
    caught = re.search(hunt.cause, said) is not None
    return Caught(hunt.name, "replay" if caught else "MISSED", said[:200], f"{seen_in_general(hunt)} of {GENERAL}")


def by_audit(hunt: Hunt) -> Caught:
    report = hunt.run(seed=1)
    point = report.alarm_point or report.best
    allowed = "nothing" if report.region is None else f"{report.region.power(point.false):.3f}"
    evidence = f"false ≤ {point.false:.4f}, true ≥ {point.true:.3f}, promised true ≤ {allowed}"
    return Caught(hunt.name, "audit" if report.alarm else "MISSED", f"{evidence}; {hunt.games:,} games at each bit", "")


def by_certificate(name: str) -> Caught:
    said = refused(name)
    return Caught(name, "certificate" if said else "MISSED", said, "")


def correct(seeds: int, games: list[Hunt]) -> tuple[int, int, int]:
    """Alarms, audits and replays of correct mechanisms."""
    alarms = audits = replays = 0
    for seed in range(seeds):
        for i in range(REPLAYED):
            hunt = REPLAYS[(seed * REPLAYED + i) * 11 % len(REPLAYS)]
            said = hunt.run(seed, broken=False)
            replays, alarms = replays + 1, alarms + bool(said)
            if said:
                print(f"FALSE ALARM, seed {seed}, replay of {hunt.name!r}, correct: {said}", flush=True)
        for one in games:
            report = one.run(10_000 + seed, broken=False, games=SHORT if one.slow else None)
            audits, alarms = audits + 1, alarms + report.alarm
            if report.alarm:
                print(f"FALSE ALARM, seed {seed}, audit of {one.name!r}, correct: {report}", flush=True)
    return alarms, audits, replays


def write_page(lines: list[Caught]) -> None:
    """Put the table into docs/doubles.md."""
    rows = [
        f"| {line.name} | {line.how} | {line.general} | {_cell(line.evidence)} |"
        for line in lines
    ]  # fmt: skip
    table = ["| broken | caught by | scripts not written for it | evidence |", "|---|---|---|---|", *rows]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(table) + f"\n\n{END}{after}")


def _cell(evidence: str) -> str:
    """One line of evidence, as a cell."""
    said = re.sub(r"^round (\d+) \(step \d+ of the script\)", r"round \1", evidence).replace("|", "\\|")
    return said if len(said) < 150 else said[:147] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 seeds, and no slow games")
    parser.add_argument("--seeds", type=int, help="seeds of the correct mechanisms")
    parser.add_argument("--page", action="store_true", help="write the table of docs/doubles.md")
    given = parser.parse_args()
    seeds = given.seeds if given.seeds is not None else (5 if given.quick else 100)
    start = time.perf_counter()
    games = [hunt for hunt in hunts() if not (hunt.slow and given.quick)]
    lines: list[Caught] = []
    print(f"{'double':<56}{'caught by':<12}{'general':<9}evidence")
    for hunt in [*REPLAYS, *REFUSED, *games]:
        if isinstance(hunt, str):
            lines.append(by_certificate(hunt))
        else:
            lines.append(by_replay(hunt) if isinstance(hunt, ReplayHunt) else by_audit(hunt))
        line = lines[-1]
        print(f"{line.name:<56}{line.how:<12}{line.general:<9}{line.evidence}", flush=True)
    if given.page:
        write_page(lines)
    alarms, audits, replays = correct(seeds, games)
    missed = sum(line.how == "MISSED" for line in lines)
    print(f"\n{len(lines) - missed} of {len(lines)} caught.")
    print(
        f"Correct mechanisms, {seeds} seeds, alarm level 1e-6: {alarms} false alarms in {audits:,} audits and "
        f"{replays} replays. {time.perf_counter() - start:.0f} s; insecure: seeded."
    )
    if missed or alarms:
        raise SystemExit(f"{missed} broken mechanisms not caught, {alarms} false alarms")


if __name__ == "__main__":
    main()
