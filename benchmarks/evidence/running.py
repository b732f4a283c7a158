"""How a cell is run, by this process or by several, and how long it takes."""

from __future__ import annotations

import gc
import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from . import peers, private
from .cells import Cell, Line, read, record, score, write
from .streams import load

RUN: dict[str, Callable[[Cell], dict[str, Any]]] = {
    "confide": private.defaults,
    "labels": private.labels_alone,
    "guide": private.guide,
    "pop": private.copies,
    "nonprivate-guide": private.guide_without_noise,
    "paper": private.paper,
    "majority": peers.majority,
    "nonprivate": peers.one_tree,
    "boosted": peers.boosted,
    "river": peers.hoeffding,
    "forest": peers.adaptive_forest,
    "rr": peers.randomized_response,
    "rr-boosted": peers.randomized_boosted,
}
TUNED: dict[str, Callable[[Cell, dict[str, Any] | None], dict[str, Any]]] = {
    "guide-hindsight": private.hindsight,
    "dpftrl": peers.tuned_dpftrl,
}
"""Methods that are tuned in hindsight at seed 1: other seeds take the parameters of that."""
TYPICAL = {
    "majority": 0.1, "confide": 25, "labels": 150, "guide": 25, "pop": 40, "guide-hindsight": 75,
    "nonprivate-guide": 25, "paper": 1, "nonprivate": 30, "boosted": 60, "river": 100, "forest": 2000, "dpftrl": 70,
    "rr": 30, "rr-boosted": 60,
}  # fmt: skip
"""Microseconds a row, before any was measured."""
USUAL_ROWS = 120_000


def run(cell: Cell, known: Mapping[str, Line] | None = None) -> Line:
    """The line of one cell.

    Of the lines that are known two spare work: that of the defaults, where they chose the guide alone, stands for the
    guide; and that of seed 1 says how a method was tuned.
    """
    known = known or {}
    begin = time.process_time()
    try:
        stream = load(cell.stream, cell.rows)
    except FileNotFoundError as missing:
        return record(cell, "unknown", cell.rows, 0.0, {"missing": str(missing)})
    units = "rounds" if stream.units is None else "people"
    same = known.get(replace(cell, method="confide").name) if cell.method == "guide" else None
    if same is not None and same.get("parameters", {}).get("copies") == 0:
        kept = ("parameters", "late", "all", "precision", "recall", "answered")
        got: dict[str, Any] = {name: same[name] for name in kept if name in same}
        return record(cell, units, len(stream.labels), 0.0, {**got, "same": same["cell"]})
    try:
        if cell.method in TUNED:
            tuned = known.get(replace(cell, seed=1).name) if cell.seed != 1 else None
            got = TUNED[cell.method](cell, None if tuned is None else tuned["parameters"])
        else:
            got = RUN[cell.method](cell)
    except private.Missing as reason:
        got = {"missing": str(reason)}
    else:
        got |= score(got.pop("answers"), stream.labels)
    return record(cell, units, len(stream.labels), time.process_time() - begin, got)


def seconds(cell: Cell, lines: dict[str, Line]) -> float:
    """How long it will take: as the same method took, on the same stream if it was there, by the row."""
    rows = cell.rows or next((ln["rows"] for ln in lines.values() if ln["stream"] == cell.stream), None) or USUAL_ROWS
    method = "confide" if cell.method == "guide" else cell.method  # most of them are one run, and measured there
    took = [ln for ln in lines.values() if ln["method"] == method and ln["seconds"] and ln["rows"]]
    near = [ln for ln in took if ln["stream"] == cell.stream] or took
    if not near:
        return TYPICAL[cell.method] * rows * 1e-6
    return float(statistics.median(ln["seconds"] / ln["rows"] for ln in near) * rows)


def tasks(cells: Iterable[Cell]) -> Iterator[list[Cell]]:
    """Cells that share a stream, in the order given: a process reads the stream once."""
    grouped: dict[tuple[str, int | None], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.stream, cell.rows), []).append(cell)
    yield from grouped.values()


def run_all(groups: list[list[Cell]], folder: Path, workers: int, done: Callable[[Cell, Line], None]) -> None:
    """Run groups of cells in this order, by so many processes; every line is written when it is there."""
    if workers == 1:
        for group in groups:
            for cell, line in _group(group, folder):
                done(cell, line)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting = {pool.submit(_whole, group, folder) for group in groups}
        while waiting:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ready:
                for cell, line in future.result():
                    done(cell, line)


def _whole(group: list[Cell], folder: Path) -> list[tuple[Cell, Line]]:
    return list(_group(group, folder))


def _group(group: list[Cell], folder: Path) -> Iterator[tuple[Cell, Line]]:
    lines = read(folder)
    for cell in group:
        try:
            line = run(cell, lines)
        except Exception:  # the other cells are run all the same, and this one is missing still: the log says why
            traceback.print_exc()
            continue
        gc.collect()  # a model of many labels holds gigabytes, in cycles
        lines[cell.name] = line
        if line["units"] != "unknown":  # a file that is not there may be there tomorrow
            write(line, folder)
        yield cell, line
