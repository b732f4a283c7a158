"""A served model through a million rounds: does its process grow, or its folder?

    python benchmarks/soak.py --rounds 1000000    as long as a million rounds over HTTP take
    python benchmarks/soak.py --json F            and writes the numbers to a file
    python benchmarks/soak.py --people 2000       protects people, of whom there are so many
    python benchmarks/soak.py --attacks           an hour under attack: is anything lost of 50 honest people?
    python benchmarks/soak.py --quick             100 000 rounds, too few to judge, or a minute of --attacks

One `confide serve` process, asked in batches of 64 over a few connections; every label comes, some of them late, and a
snapshot is written now and then. What the process holds in memory (all of it, native parts too) and what the folder
holds on the disk is printed over time. The guide keeps its sums for good, as many as its plan says (here a thousand, in
memory and on the disk): they are counted apart, and taken off. The verdict is about the second half of the rounds: by
then requests expire as fast as they come, so a line fitted to the rest must be flat. A person's counts stay too: they
are the budget.

Under attack (`attacks.py`) an asker with a token asks as fast as it can, in batches; others send slow and large heads,
bodies that never begin, junk and floods of connections and looks, and read no response; twice the disk is full
for a while. Honest people ask and bring labels all the time, with `confide.Client`. Anything of theirs that is lost is
an error, and so is a label that was acknowledged and that the operator is not shown; how long they wait is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from attacks import CONFIG as ATTACKED
from attacks import Attacked, counted, memory, planned
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from service import Connection, label, question, server

from confide.service.doors import Keys, Tokens

BATCH, CONNECTIONS, LATE = 64, 3, 20
"""Rows of a batch; connections; batches after which a late label comes."""
FLAT = 16.0
"""MiB a million rounds that the fitted line may rise: what an allocator does."""
CONFIG = """
[public]
port = 0
[operator]
port = 0
[models.m]
folder = "state"
labels = [0, 1]
columns = 8
epsilon = 2.0
rounds = {rounds}
quota = {rounds}
units = "{units}"
save_every = 50000
"""


class Look(NamedTuple):
    """What was seen at some moment; sizes in MiB."""

    rounds: int
    seconds: float
    memory: float
    disk: float
    sums: float
    """The guide's, which the plan bounds."""

    def __str__(self) -> str:
        return (
            f"{self.rounds:>10,} rounds {self.seconds:>6.0f} s; in memory {self.memory:>6.1f} MiB, on the disk "
            f"{self.disk:>6.1f}, of each the guide's sums {self.sums:>6.1f}"
        )


@dataclass
class Soak:
    """Sends rounds, and looks at the process and its folder."""

    port: int
    pid: int
    folder: Path
    tokens: list[str]
    rounds: int
    seen: list[Look] = field(default_factory=list)
    sent: int = 0
    done: int = 0

    async def run(self, progress: Progress) -> None:
        task = progress.add_task("", total=self.rounds)
        workers = [asyncio.create_task(self._worker(i)) for i in range(CONNECTIONS)]
        began, step = time.perf_counter(), max(BATCH, self.rounds // 40)
        try:
            while self.done < self.rounds:
                if any(worker.done() for worker in workers) and self.sent < self.rounds:
                    await asyncio.gather(*workers)
                if self.done >= len(self.seen) * step:
                    self._look(began, progress)
                progress.update(task, completed=self.done)
                await asyncio.sleep(0.2)
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        self._look(began, progress)

    def _look(self, began: float, progress: Progress) -> None:
        seconds, sizes = time.perf_counter() - began, (memory(self.pid), size(self.folder), sums(self.folder))
        self.seen.append(Look(self.done, seconds, *sizes))
        progress.console.print(str(self.seen[-1]), highlight=False)

    async def _worker(self, number: int) -> None:
        connection = await Connection(self.port, "").open()
        late: deque[tuple[str, list[dict[str, Any]]]] = deque()
        while self.sent < self.rounds:
            self.sent += BATCH
            connection.token = random.choice(self.tokens)
            questions = [question() for _ in range(BATCH)]
            answers = json.loads(await connection.send("POST", "/models/m/ask-many", {"questions": questions}))
            pairs = zip(answers["answers"], questions, strict=True)
            labels = [{"ticket": a["ticket"], "label": label(q["x"])} for a, q in pairs]
            late.append((connection.token, labels[:8]))
            await self._bring(connection, labels[8:])
            if len(late) > LATE:
                connection.token, labels = late.popleft()
                await self._bring(connection, labels)
            self.done += BATCH
        connection.close()

    async def _bring(self, connection: Connection, labels: list[dict[str, Any]]) -> None:
        results = json.loads(await connection.send("POST", "/models/m/label-many", {"labels": labels}))["results"]
        if not all(one["taken"] for one in results):
            raise RuntimeError("a label was refused")

    def verdict(self) -> tuple[bool, str]:
        """Whether it stays as large as it is, in a sentence."""
        rounds, _, held, disk, planned = np.array(self.seen[len(self.seen) // 2 :]).T
        slope = float(np.polyfit(rounds / 1e6, held - planned, 1)[0])
        flat = slope <= FLAT
        return flat, (
            f"{'flat' if flat else 'IT GROWS'}: {slope:+.1f} MiB a million rounds over the second half "
            f"without the guide's sums ({self.done:,} rounds in all; in memory {held[0]:.0f} → {held[-1]:.0f} MiB, on "
            f"the disk {disk[0]:.0f} → {disk[-1]:.0f}, of each the sums {planned[0]:.0f} → {planned[-1]:.0f}; "
            f"up to {FLAT:.0f} is taken for flat)"
        )


def size(folder: Path) -> float:
    """MiB in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def sums(folder: Path) -> float:
    """MiB of the guide's sums, as the ledger holds them: noisy and exact."""
    with contextlib.closing(sqlite3.connect(f"{(folder / 'ledger.db').as_uri()}?mode=ro", uri=True)) as db:
        return float(db.execute("SELECT total(length(noisy) + length(exact)) FROM released").fetchone()[0]) / 2**20


def attacked(minutes: float, people: int, file: Path | None, console: Console) -> bool:
    """Whether honest people lose nothing while others attack."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "confide.toml").write_text(ATTACKED.format(public=0, operator=0, rounds=planned(minutes, people)))
        asker, operator = (Tokens(one, Keys.make(folder / "keys" / f"{one}s")) for one in ("asker", "operator"))
        columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with (
            server([sys.executable, "-m", "confide", "serve", str(folder / "confide.toml")]) as (port, private, pid),
            Progress(*columns, console=console) as progress,
        ):
            task = progress.add_task("", total=1.0)

            def told(done: float, words: str) -> None:
                progress.update(task, completed=done, description=words)

            labels = partial(counted, private, operator.sign("op", expires=7 * 86400.0))
            run = Attacked(port, pid, asker, labels, seconds=60 * minutes, people=people)
            outcome = run.run(told)
    console.print(", ".join(f"{number:,} {name}" for name, number in outcome.attacks.items()), highlight=False)
    console.print(str(outcome), highlight=False, soft_wrap=True)
    if file:
        numbers = dict(zip(("p50", "p99"), outcome.quantiles(), strict=True))
        told_all = {"verdict": str(outcome), "lost": outcome.lost, **numbers, "attacks": outcome.attacks}
        file.write_text(json.dumps(told_all, indent=1) + "\n")
    return not outcome.lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attacks", action="store_true")
    parser.add_argument("--quick", action="store_true", help="100 000 rounds; --attacks: a minute, ten people")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--honest", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--people", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given, console = parser.parse_args(), Console()
    if given.quick:
        given.rounds, given.minutes, given.honest = 100_000, 1.0, 10
    if given.attacks:
        sys.exit(0 if attacked(given.minutes, given.honest, given.json, console) else 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        units = "people" if given.people else "rounds"
        (folder / "confide.toml").write_text(CONFIG.format(rounds=max(given.rounds, 10_000) + 10_000, units=units))
        asker = Tokens("asker", Keys.make(folder / "keys" / "askers"))
        tokens = [asker.sign(f"person {i}", expires=7 * 86400.0) for i in range(max(1, given.people))]
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeRemainingColumn())
        with (
            server([sys.executable, "-m", "confide", "serve", str(folder / "confide.toml")]) as (public, _, pid),
            Progress(*columns, console=console) as progress,
        ):
            soak = Soak(public, pid, folder / "state", tokens, given.rounds)
            asyncio.run(soak.run(progress))
    flat, words = soak.verdict()
    console.print(words, highlight=False, soft_wrap=True)
    if given.json:
        seen = [one._asdict() for one in soak.seen]
        given.json.write_text(json.dumps({"verdict": words, "flat": flat, "seen": seen}, indent=1) + "\n")
    if given.quick:
        console.print("So few rounds tell that it runs, not whether it grows.")
    sys.exit(0 if flat or given.quick else 1)


if __name__ == "__main__":
    main()
