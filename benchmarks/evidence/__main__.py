"""Run the cells that are missing, say how long they will take, or run some again."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from . import __doc__ as words
from .cells import CLASSES, QUICK, QUICK_RESULTS, RESULTS, Cell, Line, read
from .running import run, run_all, seconds, tasks

console = Console()
TOLD = ("late", "all", "precision", "recall", "parameters", "answered", "missing")


def missing(cells: list[Cell], lines: dict[str, Line], most: float) -> list[Cell]:
    """Those that have no line yet, and take no longer than that."""
    seen = set(lines)
    left = [cell for cell in dict.fromkeys(cells) if cell.name not in seen]
    return [cell for cell in left if seconds(cell, lines) <= most]


def estimate(classes: dict[str, list[Cell]], lines: dict[str, Line]) -> None:
    total = 0.0
    for name, cells in classes.items():
        left = missing(cells, lines, float("inf"))
        took = sum(seconds(cell, lines) for cell in left)
        total += took
        console.print(f"{name:>10}: {len(left):5,} of {len(set(cells)):5,} cells are missing, {took / 60:7.1f} minutes")
    console.print(f"{'all':>10}: {total / 3600:.2f} core-hours")


def go_on(classes: dict[str, list[Cell]], folder: Path, workers: int, most: float) -> None:
    """Run what is missing, what is worth most first."""
    lines = read(folder)
    bar = Progress(
        TextColumn("{task.description:<42}"), BarColumn(), TextColumn("{task.percentage:5.1f} %"),
        TimeElapsedColumn(), TimeRemainingColumn(), console=console,
    )  # fmt: skip
    expected: dict[str, float] = {}
    groups: list[list[Cell]] = []
    for cells in classes.values():
        left = [cell for cell in missing(cells, lines, most) if cell.name not in expected]
        expected |= {cell.name: seconds(cell, lines) for cell in left}
        groups += tasks(left)
    with bar:
        task = bar.add_task("", total=sum(expected.values()))

        def done(cell: Cell, line: Line) -> None:
            bar.update(task, advance=expected[cell.name], description=cell.name)
            if not console.is_terminal:
                said = line.get("late", line.get("missing"))
                print(f"{cell.name:<44} {said}  {line['seconds']} s, expected {expected[cell.name]:.1f}", flush=True)

        run_all(groups, folder, workers, done)


def check(number: int, folder: Path, seed: int | None) -> bool:
    """Run so many random cells again; every seed is fixed, so every number must be the same."""
    lines = [line for line in read(folder).values() if "same" not in line]
    agree = 0
    chosen = random.Random(seed).sample(lines, min(number, len(lines)))
    for line in chosen:
        again = run(Cell.named(line["cell"]))
        told = {name: (line.get(name), again.get(name)) for name in TOLD if line.get(name) != again.get(name)}
        agree += not told
        console.print(f"{line['cell']:<44} {'agrees' if not told else f'differs: {told}'}", soft_wrap=True)
    console.print(f"{agree} of {len(chosen)} agree")
    return agree == len(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence", description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small streams, into build/evidence-quick")
    parser.add_argument("--estimate", action="store_true", help="say how long what is missing will take")
    parser.add_argument("--check", type=int, metavar="N", help="run N random cells again, and compare")
    parser.add_argument("--cell", action="append", help="run this cell, and print its line")
    parser.add_argument("--classes", help=f"only these, separated by commas: {', '.join(CLASSES)}")
    parser.add_argument("--streams", help="only these streams, separated by commas")
    parser.add_argument("--methods", help="only these methods, separated by commas")
    parser.add_argument("--most", type=float, default=float("inf"), metavar="S", help="leave out what takes longer")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; by default all cores")
    parser.add_argument("--seed", type=int, help="of the choice that --check makes")
    parser.add_argument("--results", type=Path, help="the folder of the results")
    given = parser.parse_args()
    classes = QUICK if given.quick else CLASSES
    folder = given.results or (QUICK_RESULTS if given.quick else RESULTS)
    if given.classes:
        classes = {name: CLASSES[name] for name in given.classes.split(",")}
    if given.streams:
        wanted = set(given.streams.split(","))
        classes = {name: [cell for cell in cells if cell.stream in wanted] for name, cells in classes.items()}
    if given.methods:
        chosen = set(given.methods.split(","))
        classes = {name: [cell for cell in cells if cell.method in chosen] for name, cells in classes.items()}
    if given.cell:
        for name in given.cell:
            print(json.dumps(run(Cell.named(name)), ensure_ascii=False, indent=1))
    elif given.check:
        sys.exit(not check(given.check, folder, given.seed))
    elif given.estimate:
        estimate(classes, read(folder))
    else:
        go_on(classes, folder, given.workers, given.most)


if __name__ == "__main__":
    main()
