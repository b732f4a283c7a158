"""A served model with people through ten million rounds: what its process and its folder take (`endless.py served`)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attacks import memory
from service import Connection, server
from soak import size, sums

from confide.service.doors import Keys, Tokens

BATCH, CONNECTIONS, EVERY = 64, 3, 100_000
"""Rows of a batch, connections, rounds between two looks."""
FIRST, AT_ONCE = 2, 48
"""Rows with which everybody begins, over so many connections: all are known before it is judged whether it grows."""
EACH = 50
"""Rounds of a person at least: shorter runs have fewer people."""
BEGUN = 200_000
"""Rounds before it is judged: by then caches are full, and the guide's second epoch has begun, which drops sums."""
LATE = 300
"""Batches of a connection after which a label of each comes: it is in memory no more then."""
FLAT = 16.0
"""MiB a million rounds that it may grow afterwards: what an allocator does."""
ROOM = 128
A_ROUND = 1500
"""Bytes of the disk that a round takes, at most: question, label and index."""
CONFIG = f"""
[public]
port = 0
[operator]
port = 0
[models.m]
folder = "state"
labels = [0, 1]
columns = 3
epsilon = 4.0
units = "people"
room = {ROOM}
"""


class Lasting:
    """Asks and brings labels over HTTP, and looks at the process that answers."""

    def __init__(self, port: int, pid: int, folder: Path, tokens: list[str], rounds: int) -> None:
        self._port, self._pid, self._folder, self._tokens, self._rounds = port, pid, folder, tokens, rounds
        self._sent = self._done = self._wrong = self._late = 0
        self._new = iter(tokens)
        self.seen: list[dict[str, Any]] = []

    async def run(self) -> None:
        began = time.perf_counter()
        await self._all([self._first(number) for number in range(AT_ONCE)], began)
        await self._all([self._worker(number) for number in range(CONNECTIONS)], began)
        if not self.seen or self.seen[-1]["rounds"] < self._done:
            self._look(time.perf_counter() - began)

    async def _all(self, work: list[Coroutine[Any, Any, None]], began: float) -> None:
        workers = [asyncio.create_task(one) for one in work]
        try:
            while not all(worker.done() for worker in workers):
                await asyncio.wait(workers, timeout=0.2, return_when=asyncio.FIRST_EXCEPTION)
                for worker in workers:
                    if worker.done():
                        worker.result()
                if self._done >= (len(self.seen) + 1) * EVERY:
                    self._look(time.perf_counter() - began)
        finally:
            for worker in workers:
                worker.cancel()

    def _look(self, seconds: float) -> None:
        takes = {"megabytes": memory(self._pid), "sums": sums(self._folder)}
        takes |= {"disk": size(self._folder), "index": hidden(self._pid)}
        self.seen.append({"rounds": self._done, "seconds": seconds, "late": self._late, "wrong": self._wrong, **takes})
        before = self.seen[-2] if len(self.seen) > 1 else {"rounds": 0, "seconds": 0.0, "wrong": 0}
        rounds = max(1, self._done - before["rounds"])
        print(
            f"{self._done:>11,} rounds {seconds:>6,.0f} s, {rounds / (seconds - before['seconds']):>6,.0f} a second, "
            f"error {(self._wrong - before['wrong']) / rounds:.2%}; {takes['megabytes']:.0f} MiB in memory, "
            f"{takes['disk']:,.0f} on the disk, of each the guide's sums {takes['sums']:.0f}; "
            f"{takes['index']:,.0f} for the index",
            flush=True,
        )

    async def _first(self, number: int) -> None:
        """Everybody's first questions."""
        connection, rng = await Connection(self._port, "").open(), np.random.default_rng([9, 0, number])
        for token in self._new:
            connection.token = token
            await self._bring(connection, await self._ask(connection, rng, FIRST))
        connection.close()

    async def _worker(self, number: int) -> None:
        """Batches of somebody's."""
        connection, rng = await Connection(self._port, "").open(), np.random.default_rng([9, 1, number])
        late = deque[tuple[str, dict[str, Any]]]()
        while self._sent < self._rounds:
            connection.token = random.choice(self._tokens)
            labels = await self._ask(connection, rng, BATCH)
            late.append((connection.token, labels[0]))
            await self._bring(connection, labels[1:])
            if len(late) > LATE:
                connection.token, one = late.popleft()
                self._late += 1
                await self._bring(connection, [one])
        connection.close()

    async def _ask(self, connection: Connection, rng: np.random.Generator, rows: int) -> list[dict[str, Any]]:
        self._sent += rows
        x = rng.uniform(0, 10, (rows, 3)).round(3)
        y = (x[:, 0] + x[:, 1] > 8).astype(int).tolist()
        asked = {"questions": [{"x": row, "id": os.urandom(9).hex()} for row in x.tolist()]}
        told = json.loads(await connection.send("POST", "/models/m/ask-many", asked))["answers"]
        self._wrong += sum(one["label"] != label for one, label in zip(told, y, strict=True))
        self._done += rows
        return [{"ticket": one["ticket"], "label": label} for one, label in zip(told, y, strict=True)]

    async def _bring(self, connection: Connection, labels: list[dict[str, Any]]) -> None:
        results = json.loads(await connection.send("POST", "/models/m/label-many", {"labels": labels}))["results"]
        if not all(one["taken"] for one in results):
            raise RuntimeError("a label was refused")


def hidden(pid: int) -> float:
    """MiB of files without a name that a process has open: the index of older requests."""
    total = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(path).endswith("asked.db (deleted)"):
                total += path.stat().st_size
        except OSError:  # it was closed meanwhile
            pass
    return total / 2**20


def served(rounds: int, people: int) -> Iterator[dict[str, Any]]:
    """Everybody asks a little, and then whole batches; every label comes, some of them long after its question."""
    with tempfile.TemporaryDirectory() as name:
        folder, needs = Path(name), rounds * A_ROUND
        if shutil.disk_usage(folder).free < needs:
            raise SystemExit(f"{rounds:,} rounds need {needs / 1e9:,.0f} GB in {folder.parent}: take fewer with --long")
        (folder / "confide.toml").write_text(CONFIG)
        asker = Tokens("asker", Keys.make(folder / "keys" / "askers"))
        tokens = [asker.sign(f"person {i}", expires=7 * 86400.0) for i in range(min(people, rounds // EACH))]
        with server([sys.executable, "-m", "confide", "serve", str(folder / "confide.toml")]) as (port, _, pid):
            lasting = Lasting(port, pid, folder / "state", tokens, rounds)
            asyncio.run(lasting.run())
    seen = lasting.seen
    known = [one for one in seen if one["rounds"] >= max(BEGUN, len(tokens) * FIRST)]
    grows = None
    if len(known) > 2:
        at, takes, planned = (np.array([one[what] for one in known]) for what in ("rounds", "megabytes", "sums"))
        grows = float(np.polyfit(at / 1e6, takes - planned, 1)[0])
    yield {"stream": "served", "people": len(tokens), "seen": seen, "grows": grows, "flat": FLAT}


def said(line: dict[str, Any]) -> str:
    """The verdict."""
    first, last = next((one for one in line["seen"] if one["rounds"] >= BEGUN), {}), line["seen"][-1]
    head = f"{last['rounds']:,} rounds of {line['people']:,} people over HTTP in {last['seconds']:,.0f} s"
    begun, at = first.get("megabytes", 0), first.get("rounds", 0)
    took = f"{begun:.0f} MiB after {at:,} rounds, {last['megabytes']:.0f} at the end"
    grows = "too few rounds to judge"
    if (slope := line["grows"]) is not None:
        verdict = "flat" if slope <= line["flat"] else "IT GROWS"
        grows = f"{slope:+.1f} MiB a million rounds without the guide's sums: {verdict}"
    disk = (last["disk"] + last["index"]) * 2**20 / last["rounds"]
    return f"{head}, {last['late']:,} late labels; {took}, {grows}; {disk:,.0f} bytes a round on the disk"
