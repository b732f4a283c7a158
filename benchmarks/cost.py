"""What a served round costs: processor time by part, fitted on some sizes of batches and checked on others.

    python benchmarks/cost.py            about 4 minutes: a line a part, then what 10⁴, 10⁵, 10⁶ rounds a second need
    python benchmarks/cost.py --quick    about a minute, with wider errors
    python benchmarks/cost.py --json F   and writes the numbers to a file

A round is a question and its label. A batch of n of them costs each part c + r·n: c for its two calls, r for each
round. Both are fitted, by least squares on relative errors, from batches of 4, 16, 64 and 256, and checked on 8, 32
and 128. Each size is measured several times, in turn with the others; the median counts. Questions and labels that come
one by one have ways of their own over HTTP, so that is measured by itself; at the desk those that wait together are a
batch. Parts:

    HTTP      the event loop's thread of a server process: connections, JSON, queues, waking up
    desk      ids, hashes, tickets, the journal's rows, the loop around guide and copies
    guide     reading rows, answering, gradients, releases
    copies    votes and lessons of 4,000 copies, of which 64 are asked; a plan without copies has none of it
    ledger    SQLite's transactions, the system's part of a write included
    door      another process before the owner, which passes everything on: all of it

Times are of processors, not of clocks: a busy machine changes them less, but caches are shared, so the load is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import confide
from confide.ledger import Book
from confide.pop import batches
from confide.pop.guiding import Guiding
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from confide.service.doors import Keys, Tokens

sys.path.insert(0, str(Path(__file__).parent))
from service import CONFIG, FEATURES, Connection, label, question, server

FITTED, CHECKED = (4, 16, 64, 256), (8, 32, 128)
RATES = (10_000, 100_000, 1_000_000)
PARTS = ("HTTP", "desk", "guide", "copies", "ledger", "door")
SINGLE, MANY = 1, 64
SHARED = 16
"""Single questions that share a commit under load: what a group had in `benchmarks/service.py`."""

Costs = dict[str, dict[int, list[float]]]
"""By part and size: µs a round, one for each time it was measured."""


@contextmanager
def clocks(spent: Counter[str], *places: tuple[Any, str, str]) -> Iterator[None]:
    """Add up this thread's processor time by part; what is inside another part is that part's alone."""
    kept, open_parts = [getattr(place, name) for place, name, _ in places], list[float]()

    def timed(function: Callable[..., Any], what: str) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            began = time.thread_time()
            open_parts.append(0.0)
            try:
                return function(*args, **named)
            finally:
                took = time.thread_time() - began
                spent[what] += took - open_parts.pop()  # type: ignore[assignment]
                if open_parts:
                    open_parts[-1] += took

        return run

    for (place, name, what), function in zip(places, kept, strict=True):
        setattr(place, name, timed(function, what))
    try:
        yield
    finally:
        for (place, name, _), function in zip(places, kept, strict=True):
            setattr(place, name, function)


def at_the_desk(folder: Path, sizes: tuple[int, ...], times: int, rounds: int, copies: bool) -> Costs:
    """A desk without HTTP."""
    more: dict[str, Any] = {"copies": 4000, "polls": 64} if copies else {}
    plan = confide.Plan.tight(epsilon=8.0 if copies else 2.0, delta=1e-6, rounds=3_000_000, **more)
    learner = confide.learners.LogisticRegression() if copies else None
    desk = PopDesk.open(folder, lambda: confide.POP(learner, plan, labels=[0, 1], features=FEATURES), room=512)
    rng, made, told = np.random.default_rng(1), 0, defaultdict[str, dict[int, list[float]]](lambda: defaultdict(list))
    places = [
        (Book, "_write", "ledger"), (Guiding, "follow_rows", "guide"), (Guiding, "teach_many", "guide"),
        (Guiding, "encode", "guide"), (Guiding, "teach", "guide"), (Guiding, "begin", "guide"),
    ]  # fmt: skip
    if copies:
        places += [(batches, "_vote", "copies"), (type(desk.pop.operator.loop), "live", "copies")]
        places += [(type(desk.pop.operator.loop.lessons), "apply", "copies")]

    def work(size: int, number: int) -> None:
        nonlocal made
        for _ in range(number):
            rows = rng.normal(size=(size, FEATURES)).round(3).tolist()
            asked = [Question("ann", f"request {made + i}", row) for i, row in enumerate(rows)]
            made += size
            replies = desk.ask(asked)
            lessons = [
                Taught("ann", one.answer.ticket, label(row))
                for one, row in zip(replies, rows, strict=True) if one.answer is not None
            ]  # fmt: skip
            desk.not_theirs(lessons)
            desk.learn(lessons)

    work(64, 400)  # ranges are found, kernels compiled
    for _ in range(times):
        for size in sizes:
            spent, number = Counter[str](), max(8, rounds // size // 4)
            with clocks(spent, *places):
                began = time.thread_time()
                work(size, number)
                spent["desk"] = time.thread_time() - began - sum(spent.values())  # type: ignore[assignment]
            for part, seconds in spent.items():
                told[part][size].append(seconds / (size * number) * 1e6)
    desk.close()
    return told


def threads(pid: int) -> tuple[float, float]:
    """Seconds of the main thread, and of all threads."""
    told = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        told[int(task.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return told[pid], sum(told.values())


async def sent(port: int, token: str, size: int, seconds: float) -> int:
    """Rounds, each asked and labelled, over a few connections; how many."""
    done, end = 0, time.perf_counter() + seconds

    async def one(connection: Connection) -> None:
        nonlocal done
        while time.perf_counter() < end:
            asked = [question() for _ in range(size)]
            if size == 1:
                answers = [json.loads(await connection.send("POST", "/models/m/ask", asked[0]))]
                labels = {"ticket": answers[0]["ticket"], "label": label(asked[0]["x"])}
                await connection.send("POST", "/models/m/label", labels)
            else:
                body = await connection.send("POST", "/models/m/ask-many", {"questions": asked})
                pairs = zip(json.loads(body)["answers"], asked, strict=True)
                rows = [{"ticket": told["ticket"], "label": label(own["x"])} for told, own in pairs]
                await connection.send("POST", "/models/m/label-many", {"labels": rows})
            done += size

    some = [await Connection(port, token).open() for _ in range(4 if size > 1 else 32)]
    await asyncio.gather(*(one(connection) for connection in some))
    for connection in some:
        connection.close()
    return done


def over_http(folder: Path, sizes: tuple[int, ...], times: int, seconds: float) -> Costs:
    """A server process, and one that passes on to it."""
    told: Costs = {"HTTP": defaultdict(list), "door": defaultdict(list)}
    folder.mkdir()
    (folder / "confide.toml").write_text(CONFIG)
    token = Tokens("asker", Keys.make(folder / "keys" / "askers")).sign("ann", expires=3600.0)
    serve = [sys.executable, "-m", "confide", "serve"]
    with server([*serve, str(folder / "confide.toml")]) as (public, _, pid):
        passes = f"[public]\nport = 0\n[operator]\nport = 0\n[models.m]\nowner = 'http://127.0.0.1:{public}'\n"
        (folder / "door.toml").write_text(passes)
        with server([*serve, str(folder / "door.toml")]) as (door, _, door_pid):
            asyncio.run(sent(door, token, 64, 2.0))
            for _ in range(times):
                for size in sizes:
                    before, passed = threads(pid)[0], threads(door_pid)[1]
                    rounds = asyncio.run(sent(door, token, size, seconds))
                    told["HTTP"][size].append((threads(pid)[0] - before) / rounds * 1e6)
                    told["door"][size].append((threads(door_pid)[1] - passed) / rounds * 1e6)
    return told


def fitted(costs: dict[int, float]) -> tuple[float, float]:
    """What a call and what a round costs, from µs a round by size: least squares of relative errors, none below 0."""
    points = {size: costs[size] for size in FITTED}
    a = np.array([[1 / size / cost, 1 / cost] for size, cost in points.items()])
    call, row = np.linalg.lstsq(a, np.ones(len(points)), rcond=None)[0]
    if call < 0:
        return 0.0, 1 / float(np.mean([1 / cost for cost in points.values()]))
    return (float(call), float(row)) if row >= 0 else (float(np.mean([c * s for s, c in points.items()])), 0.0)


def needed(fits: dict[str, tuple[float, float]], singles: dict[str, float], size: int) -> dict[str, float]:
    """µs a round of each part, where so many rows come in a request; single ones share calls of the desk."""
    shared = SHARED if size == SINGLE else size
    told = {part: call / shared + row for part, (call, row) in fits.items()}
    return told | singles if size == SINGLE else told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    times, rounds, seconds = (3, 2048, 0.7) if given.quick else (7, 8192, 1.5)
    sizes, load = tuple(sorted(FITTED + CHECKED)), [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as name:
        costs = dict(at_the_desk(Path(name) / "guide", sizes, times, rounds, copies=False))
        costs["copies"] = at_the_desk(Path(name) / "copies", sizes, times, rounds, copies=True)["copies"]
        costs |= over_http(Path(name) / "served", (SINGLE, *sizes), times, seconds)
    load.append(os.getloadavg()[0])
    medians = {part: {size: statistics.median(costs[part][size]) for size in sizes} for part in PARTS}
    singles = {part: statistics.median(costs[part][SINGLE]) for part in ("HTTP", "door")}
    fits = {part: fitted(medians[part]) for part in PARTS}
    said = {part: {size: fits[part][0] / size + fits[part][1] for size in sizes} for part in PARTS}
    console = Console()
    table = Table("part", "µs a batch", "µs a round", *(f"{size}" for size in CHECKED), "spread", "one by one")
    for part in PARTS:
        off = [f"{said[part][size] / medians[part][size] - 1:+.0%}" for size in CHECKED]
        spread = statistics.median(
            (max(costs[part][size]) - min(costs[part][size])) / medians[part][size] for size in sizes
        )
        single = f"{singles[part]:.0f}" if part in singles else ""
        table.add_row(part, *(f"{one:.1f}" for one in fits[part]), *off, f"{spread:.0%}", single)
    console.print(table)
    console.print(f"load of the machine {load[0]:.1f} before, {load[1]:.1f} after, on {os.cpu_count()} processors")
    table = Table("rounds a second", "sent", "owner", "with copies", "doors", title="processors that are busy")
    for rate in RATES:
        for size, how in ((MANY, "in batches of 64"), (SINGLE, "one by one")):
            one = needed(fits, singles, size)
            owner = sum(one[part] for part in ("HTTP", "desk", "guide", "ledger"))
            cells = (owner, owner + one["copies"], one["door"])
            table.add_row(f"{rate:,}", how, *(f"{cell * rate / 1e6:,.1f}" for cell in cells))
    console.print(table)
    if given.json:
        about = {"load": load, "fits": fits, "singles": singles, "medians": medians, "costs": costs}
        given.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
