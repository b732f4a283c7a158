"""Attacks on a service while people go on using it: whoever attacks, and what honest people must not notice.

`python benchmarks/soak.py --attacks` runs them. Attackers are a process of their own, send to 127.0.0.1 only, are
bounded in rate and number, and end by themselves when their time is over or the process that started them ends. Honest
people use `confide.Client` as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import confide
from confide.service.doors import Tokens

COLUMNS = 8
PAUSE = 0.5
"""Seconds that an honest person waits between two rounds, about; as long the label may take to come."""
FULL = 3.0
"""Seconds for which the disk is full, at a third and at two thirds of the time; less in a short run."""
BACK = 10
"""Labels after which a person makes sure that the first of them is there."""
P99 = 1.0
"""Seconds within which 99 of 100 honest requests should be answered, on a quiet machine."""
CONFIG = """
[public]
port = {public}
[operator]
port = {operator}
[models.m]
folder = "state"
labels = [0, 1]
columns = 8
epsilon = 2.0
rounds = {rounds}
save_every = 50000
"""


def planned(minutes: float, people: int) -> int:
    """Rounds for a run: many more than honest people take, so that a person's share of a day is more than theirs."""
    return int(max(100_000, 8 * people * minutes * 60 / PAUSE))


# ---------------------------------------------------------------------- those who attack


@dataclass
class Attackers:
    """Attacks one port until their time is over.

    Parameters
    ----------
    token
        Of the one asker among them who has one.
    """

    port: int
    token: str
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self) -> Counter[str]:
        """All of it; returns how often each thing was done."""
        attacks = [
            *[self._again("greedy questions", self._greedy, 0.05)] * 2,
            *[self._again("slow heads", self._slow_head, 0.1)] * 200,
            *[self._again("large heads", self._large_head, 0.2)] * 2,
            *[self._again("bodies that never begin", self._no_body, 0.1)] * 50,
            *[self._again("idle connections", self._idle, 0.5)] * 400,
            *[self._again("public looks", self._look, 0.01)] * 30,
            *[self._again("responses that nobody reads", self._unread, 0.5)] * 20,
            *[self._again("junk", self._junk, 0.2)] * 5,
        ]
        await asyncio.wait([asyncio.ensure_future(attack()) for attack in attacks], timeout=self.seconds)
        return self.counts

    def _again(self, name: str, attack: Callable[[], Awaitable[None]], pause: float) -> Callable[[], Awaitable[None]]:
        async def repeated() -> None:
            await asyncio.sleep(random.uniform(0, 10 * pause))
            while True:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    self.counts[name] += 1
                    await attack()
                await asyncio.sleep(random.uniform(0.5, 1.5) * pause)

        return repeated

    @contextlib.asynccontextmanager
    async def _connected(self, own: bool = False) -> Any:
        """A connection, from one of a few addresses of this machine, or from the one that honest people have."""
        source = "127.0.0.1" if own else f"127.0.0.{random.randint(2, 5)}"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _greedy(self) -> None:
        """The largest batches, one after another, whatever the service says to them."""
        async with self._connected() as (reader, writer):
            while True:
                questions = [{"x": [random.random() for _ in range(COLUMNS)]} for _ in range(256)]
                body = json.dumps({"questions": questions}).encode()
                writer.write(self._head("POST", "/models/m/ask-many", len(body)) + body)
                status = (await reader.readline())[9:12].decode()
                self.counts[f"greedy questions: status {status}"] += 1
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(0.05)

    async def _slow_head(self) -> None:
        async with self._connected(own=random.random() < 0.5) as (_, writer):
            writer.write(b"GET /healthz HTTP/1.1\r\n")
            for _ in range(60):
                writer.write(b"a: b\r\n")
                await writer.drain()
                await asyncio.sleep(1)

    async def _large_head(self) -> None:
        async with self._connected() as (_, writer):
            writer.write(b"GET /healthz HTTP/1.1\r\na: ")
            for _ in range(300):
                writer.write(b"x" * 1_000_000)
                await writer.drain()

    async def _no_body(self) -> None:
        async with self._connected() as (reader, writer):
            writer.write(self._head("POST", "/models/m/ask", 500))
            await asyncio.wait_for(reader.read(), 60)

    async def _idle(self) -> None:
        async with self._connected(own=random.random() < 0.5):
            await asyncio.sleep(random.uniform(0.5, 3))

    async def _look(self) -> None:
        async with self._connected(own=True) as (reader, writer):
            for path in ("/models/m/plan", "/models", "/metrics", "/models/m", "/docs"):
                writer.write(self._head("GET", path))
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(0.05)

    async def _unread(self) -> None:
        async with self._connected() as (_, writer):
            for _ in range(200):
                writer.write(self._head("GET", "/models/m/plan"))
                await asyncio.wait_for(writer.drain(), 20)
                await asyncio.sleep(0.05)

    async def _junk(self) -> None:
        async with self._connected() as (reader, writer):
            writer.write(random.randbytes(1000))
            await asyncio.wait_for(reader.read(), 20)

    def _head(self, method: str, path: str, length: int | None = None) -> bytes:
        size = "" if length is None else f"content-length: {length}\r\nauthorization: Bearer {self.token}\r\n"
        return f"{method} {path} HTTP/1.1\r\nhost: a\r\n{size}\r\n".encode()


@contextlib.contextmanager
def attackers(port: int, token: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process that attacks, from its start to its end."""
    command = [sys.executable, str(Path(__file__)), str(port), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{token}\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.stdin.close()  # it ends then
        process.wait(30)
        process.stdout.close()


# ---------------------------------------------------------------------- honest people


@dataclass
class Person:
    """Asks, and brings every label, in a thread."""

    url: str
    token: str
    until: float
    times: list[float] = field(default_factory=list)
    answered: int = 0
    learned: int = 0
    brought: list[tuple[str, int]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Until the time is over, and then the labels that are still to come."""
        open_tickets = list[tuple[float, str, int]]()
        try:
            with confide.Client(self.url, self.token, "m") as client:
                while time.monotonic() < self.until or open_tickets:
                    if time.monotonic() < self.until:
                        x = [random.gauss(0, 1) for _ in range(COLUMNS)]
                        answer = self._timed(lambda x=x: client.predict(x))  # type: ignore[misc]
                        self.answered += 1
                        open_tickets.append(
                            (time.monotonic() + random.uniform(0, PAUSE), answer.ticket, int(sum(x) > 0))
                        )
                    time.sleep(random.uniform(0.5, 1.5) * PAUSE)
                    for one in [one for one in open_tickets if one[0] <= time.monotonic()]:
                        open_tickets.remove(one)
                        self._timed(lambda one=one: client.learn(one[1], one[2]))  # type: ignore[misc]
                        self.learned += 1
                        self._look_back(client, one[1], one[2])
        except Exception as error:  # whatever it is, this person was not served
            self.lost.append(f"{type(error).__name__}: {error}")

    def _look_back(self, client: confide.Client, ticket: str, label: int) -> None:
        """Now and then another label is brought for a ticket of a while ago: only one that was forgotten takes it."""
        self.brought.append((ticket, label))
        if len(self.brought) == BACK:
            ticket, label = self.brought[0]
            self.brought.clear()
            with contextlib.suppress(confide.TicketError):
                client.learn(ticket, 1 - label)
                self.lost.append("a label that was acknowledged is not there")

    def _timed(self, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.times.append(time.perf_counter() - began)


@dataclass
class Outcome:
    """What became of honest people."""

    people: list[Person]
    memory: tuple[float, float]
    """MiB of the server before and after."""
    attacks: dict[str, int]
    counted: int
    """Labels that the operator is shown at the end."""

    @property
    def lost(self) -> list[str]:
        """What went wrong, in words; empty if nothing was lost."""
        words = [one for person in self.people for one in person.lost]
        answered, learned = (sum(getattr(one, name) for one in self.people) for name in ("answered", "learned"))
        if learned != answered:
            words.append(f"{answered - learned} answers whose label was not taken")
        if learned != self.counted:
            words.append(f"{learned} labels were acknowledged, and {self.counted} are counted")
        return words

    def quantiles(self) -> tuple[float, float]:
        """p50 and p99 of honest requests, in seconds."""
        times = np.array([one for person in self.people for one in person.times])
        return float(np.quantile(times, 0.5)), float(np.quantile(times, 0.99))

    def __str__(self) -> str:
        p50, p99 = self.quantiles()
        requests, rounds = sum(len(one.times) for one in self.people), sum(one.answered for one in self.people)
        verdict = "nothing was lost" if not self.lost else f"LOST: {'; '.join(sorted(set(self.lost)))}"
        return (
            f"{verdict}: {len(self.people)} honest people, {rounds:,} rounds, {requests:,} requests; p50 "
            f"{1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms ({'within' if p99 < P99 else 'NOT within'} {P99:g} s); the "
            f"server's memory {self.memory[0]:.0f} → {self.memory[1]:.0f} MiB"
        )


class Attacked:
    """Honest people at a service that is attacked.

    Parameters
    ----------
    port
        The service's public port.
    pid
        The server's process.
    asker
        What signs tokens of askers.
    labels
        How many labels the operator is shown.
    seconds
        How long.
    people
        How many honest ones.
    """

    def __init__(
        self, port: int, pid: int, asker: Tokens, labels: Callable[[], int], *, seconds: float, people: int = 50
    ) -> None:
        self.port, self.pid, self.seconds, self.labels = port, pid, seconds, labels
        self.mallory = asker.sign("mallory", expires=7 * 86400.0)
        until, url = time.monotonic() + seconds, f"http://127.0.0.1:{port}"
        tokens = (asker.sign(f"person {i}", expires=7 * 86400.0) for i in range(people))
        self.people = [Person(url, token, until) for token in tokens]

    def run(self, progress: Callable[[float, str], object] = lambda done, words: None) -> Outcome:
        """All of it; `progress` is told the share that is done and how honest people fare."""
        before, began, faults = memory(self.pid), time.monotonic(), [1 / 3, 2 / 3]
        threads = [threading.Thread(target=one.run, daemon=True) for one in self.people]
        with attackers(self.port, self.mallory, self.seconds) as process:
            for thread in threads:
                thread.start()
            while (done := (time.monotonic() - began) / self.seconds) < 1:
                if faults and done > faults[0]:
                    faults.pop(0)
                    self._fill_disk()
                progress(done, self._words())
                time.sleep(min(0.5, self.seconds / 20))
            assert process.stdout is not None
            attacks = json.loads(process.stdout.readline())
        for thread in threads:
            thread.join(120)
        for person, thread in zip(self.people, threads, strict=True):
            if thread.is_alive():
                person.lost.append("somebody still waits")
        return Outcome(self.people, (before, memory(self.pid)), attacks, self.labels())

    def _words(self) -> str:
        rounds, lost = sum(one.answered for one in self.people), sum(len(one.lost) for one in self.people)
        recent = [one for person in self.people for one in person.times[-20:]]
        return f"{rounds:,} rounds, slowest of late {max(recent, default=0):.2f} s, {lost} lost"

    def _fill_disk(self) -> None:
        """The server can write no file for a while, as where a disk is full."""
        soft, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (1, hard))
        time.sleep(min(FULL, self.seconds / 100))
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (soft, hard))


def counted(port: int, token: str) -> int:
    """Labels that the operator is shown, at the operator's port: nobody but honest people brings any."""
    about = urllib.request.Request(f"http://127.0.0.1:{port}/models/m", headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(about, timeout=60) as told:
        return int(json.load(told)["private"]["labels"])


def memory(pid: int) -> float:
    """MiB that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _main() -> None:
    """The process that attacks: its token comes on standard input, whose end is its end."""
    port, seconds, token = int(sys.argv[1]), float(sys.argv[2]), sys.stdin.readline().strip()

    def gone() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=gone, daemon=True).start()

    async def run() -> None:
        counts = await Attackers(port, token, seconds).run()
        print(json.dumps(counts), flush=True)
        os._exit(0)  # with everything that is still on its way

    asyncio.run(run())


if __name__ == "__main__":
    _main()
