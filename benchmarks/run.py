"""All benchmarks, one after the other: python benchmarks/run.py [--quick] [name ...]

In whole they take hours; with --quick each takes its short form, seconds to minutes. Each runs to its end whatever the
others did. At the end stands what missed its target and what could not run, each with its own last words; a traceback
goes to a file in build/bench, not to the terminal. Exits with 1 unless all is well.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LOGS = HERE.parent / "build" / "bench"
FIRST = ("foundation", "randomness", "counters", "trees", "coingame", "speed")  # the others follow by name
PARTS = (
    "run", "service_river", "guide_streams", "dpftrl", "attacks", "served", "agrawal", "constant", "kdd99",
    "endless_served",
)  # fmt: skip
"""Others use them."""
ALL = (*FIRST, *sorted(file.stem for file in HERE.glob("*.py") if file.stem not in (*FIRST, *PARTS)))
CANNOT = "could not run: "
"""How a script begins its last words where something is not there that it needs."""


class Ran(NamedTuple):
    """How a benchmark ended: its status, and its last words where it is not well."""

    name: str
    status: str
    words: str
    seconds: float


def ended(name: str, code: int, errors: str, seconds: float, logs: Path = LOGS) -> Ran:
    """A script that says what it missed exits with 1; one that raised leaves a traceback, which is put aside."""
    lines = [line for line in errors.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"exit status {code}"
    if code == 0:
        return Ran(name, "done", "", seconds)
    if code == 1 and last.startswith(CANNOT):
        return Ran(name, "could not run", last.removeprefix(CANNOT), seconds)
    if code == 1 and "Traceback (most recent call last)" not in errors:
        return Ran(name, "missed", last if lines else "its target: see its table above", seconds)
    logs.mkdir(parents=True, exist_ok=True)
    (logs / f"{name}.log").write_text(errors, encoding="utf-8")
    return Ran(name, "could not run", f"{last} (whole message: {logs.name}/{name}.log)", seconds)


def run(script: Path, *arguments: str, logs: Path = LOGS) -> Ran:
    """Run one script; its tables go to the terminal as they come."""
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, str(script), *arguments], stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    return ended(script.stem, process.returncode, process.stderr, time.perf_counter() - started, logs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="each in its short form")
    parser.add_argument("names", nargs="*", metavar="name", help="some of them alone")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(ALL)):
        parser.error(f"there is no benchmark {unknown[0]}: take some of {', '.join(ALL)}")
    found: list[Ran] = []
    for name in given.names or ALL:
        print(f"\n== benchmarks/{name}.py{' --quick' * given.quick}", flush=True)
        found.append(run(HERE / f"{name}.py", *["--quick"] * given.quick))
        print(f"   {found[-1].status} after {found[-1].seconds:,.0f} s", flush=True)
    unwell = [one for one in found if one.status != "done"]
    print(f"\n{len(found) - len(unwell)} of {len(found)} benchmarks done, {sum(one.seconds for one in found):,.0f} s")
    for one in unwell:
        print(f"{one.status}: benchmarks/{one.name}.py: {one.words}")
    raise SystemExit(bool(unwell))


if __name__ == "__main__":
    main()
