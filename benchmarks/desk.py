"""A desk without HTTP: rounds a second with a durable ledger, and where the time goes.

    python benchmarks/desk.py            about a minute; --folder for the disk to be measured
    python benchmarks/desk.py --quick    a fifth of the rounds
    python benchmarks/desk.py --ledger postgresql://…    the ledger on a server, in a schema or database of its own

Every round is asked and labelled, each durable before the call returns. Threads share writes: with a slow disk more of
them help, up to what one processor computes. "rounds a processor second" is what a machine with nothing else to do, and
a fast disk, would reach. Shares are of the processor's time of all threads: the POP (rounds, guide, copies), the ledger
(SQLite, or the client of PostgreSQL), and the desk itself (ids, hashes, tickets, rows).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
import warnings
from collections import Counter
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
from confide.pop.keeping import Keeper
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk


@contextmanager
def clocks(spent: Counter[str]) -> Iterator[None]:
    """Add up the processor's time of the POP and of the ledger."""
    places: list[tuple[Any, str, str]] = [
        (batches, "ask_many", "POP"), (Keeper, "learn", "POP"), (Book, "_write", "ledger"),
    ]  # fmt: skip
    kept = [getattr(place, name) for place, name, _ in places]

    def timed(function: Callable[..., Any], what: str) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            began, inside = time.thread_time(), spent["ledger"]
            try:
                return function(*args, **named)
            finally:
                spent[what] += time.thread_time() - began - (spent["ledger"] - inside if what == "POP" else 0)  # type: ignore[assignment]

        return run

    for (place, name, what), function in zip(places, kept, strict=True):
        setattr(place, name, timed(function, what))
    try:
        yield
    finally:
        for (place, name, _), function in zip(places, kept, strict=True):
            setattr(place, name, function)


def measure(folder: Path, units: str, threads: int, size: int, rounds: int, ledger: str | None) -> list[str]:
    """One line of the table."""
    plan = confide.Plan.tight(epsilon=2.0, delta=1e-6, rounds=1_000_000, units=units)  # type: ignore[arg-type]
    rows = np.random.default_rng(1).normal(size=(rounds, 10))
    xs, ys = rows.tolist(), (rows[:, 0] > rows[:, 1]).astype(int).tolist()
    learner = None if not plan.copies else confide.learners.LogisticRegression()
    desk = PopDesk.open(
        folder, lambda: confide.POP(learner, plan, labels=[0, 1], features=10, units=units), room=128,  # type: ignore[arg-type]
        ledger=ledger, name=f"bench-{os.urandom(6).hex()}",
    )  # fmt: skip

    def work(first: int) -> None:
        for at in range(first * size, rounds - size + 1, threads * size):
            asked = [Question(f"user {i % 5000}", f"request {i}", xs[i]) for i in range(at, at + size)]
            tickets = [said.answer.ticket for said in desk.ask(asked) if said.answer is not None]
            desk.learn([Taught(one.subject, tickets[i], ys[at + i]) for i, one in enumerate(asked)])

    desk.ask([Question("nobody", "first", xs[0])])
    spent: Counter[str] = Counter()
    workers = [threading.Thread(target=work, args=(first,)) for first in range(threads)]
    with clocks(spent):
        wall, processor = time.perf_counter(), time.process_time()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    desk.close()
    shares = [spent["POP"] / processor, spent["ledger"] / processor]
    return [
        units, str(size), str(threads), f"{rounds / wall:,.0f}", f"{rounds / processor:,.0f}",
        *(f"{share:.0%}" for share in (*shares, 1 - sum(shares))),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--ledger", default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    table = Table("units", "batch", "threads", "rounds/s", "rounds a processor second", "POP", "ledger", "desk")
    for units, threads, size, rounds in (
        ("rounds", 1, 64, 25_600), ("rounds", 4, 64, 51_200), ("rounds", 8, 64, 51_200), ("people", 8, 64, 51_200),
        ("rounds", 64, 1, 6400),
    ):  # fmt: skip
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            rounds //= 5 if given.quick else 1
            table.add_row(*measure(Path(folder) / "model", units, threads, size, rounds, given.ledger))
    Console().print(table)


if __name__ == "__main__":
    main()
