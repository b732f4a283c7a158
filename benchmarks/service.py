"""How many rounds a second a served model takes, over loopback, with its ledger on the disk.

    python benchmarks/service.py            about 3 minutes
    python benchmarks/service.py --quick    about a minute, with wider errors
    python benchmarks/service.py --json F   and writes the numbers to a file
    python benchmarks/service.py --page F   prints the tables of docs/speed.md from such a file, and measures nothing
    python benchmarks/service.py --against F    alternates with the service of another checkout, in the folder F: rounds
                                            a second and a second of the server's processor, in batches of 64, 256 and
                                            1024 and one by one, with ratios; about 10 minutes, with --quick 4

A server process serves one model; this process sends requests over a few connections and waits for every response.
Batches are 64 questions, then their 64 labels. Single questions come over 64 connections at once, then at half the rate
that was reached, at moments that do not wait for responses: p99 is counted from those moments. The same app around a
plain River model, without privacy and without a disk, is what there is to compare with; so is the barest FastAPI app
around it.
Server and sender share the machine: let it do nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from confide.service.doors import Keys, Tokens
from confide.service.server import _loop_factory

T = TypeVar("T")
HERE = Path(__file__).resolve().parents[1]
FEATURES, BATCH, CONNECTIONS = 8, 64, 64
SIZES = 64, 256, 1024
"""Rows of the batches with which two checkouts are compared."""
CROWD = 256
"""Connections of single questions where two checkouts are compared: with 64 both wait for the disk."""
KEPT = 4096
"""Questions that are sent again and again: each is a new one to the service."""
LENGTH = re.compile(rb"content-length: (\d+)")
TICKET = re.compile(rb'"ticket":"([^"]*)"')
WARM = 16_384
"""Rounds before anything is measured: by then the guide has found the columns' ranges, once for all."""
TARGETS = {
    "rounds/s in batches": 5000.0, "single asks/s": 800.0, "p99 at half load, ms": 20.0, "of River's asks/s": 0.5,
}  # fmt: skip
CONFIG = f"""
[public]
port = 0
[operator]
port = 0
[models.m]
folder = "state"
labels = [0, 1]
columns = {FEATURES}
epsilon = 2.0
rounds = 3000000
quota = 3000000
"""


class Connection(asyncio.Protocol):
    """One connection to the server, kept open: a request at a time, in as little work as will do."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token, self.told, self.length = port, token, b"", 0

    async def open(self) -> Connection:
        self.loop = asyncio.get_running_loop()
        self.transport: Any = (await self.loop.create_connection(lambda: self, "127.0.0.1", self.port))[0]
        return self

    def data_received(self, data: bytes) -> None:
        self.told += data
        if not self.length and (end := self.told.find(b"\r\n\r\n")) >= 0:
            self.length = end + 4 + int(LENGTH.search(self.told)[1])  # type: ignore[index]
        if self.length and len(self.told) >= self.length:
            told, self.told, self.length = self.told, b"", 0
            self.waiting.set_result(told)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.waiting.done():
            self.waiting.set_exception(ConnectionError("the server ended a connection"))

    async def send(self, method: str, path: str, content: Any = b"") -> bytes:
        body = content if isinstance(content, bytes) else as_json(content)
        self.waiting = self.loop.create_future()
        head = f"{method} {path} HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\n"
        head += f"authorization: Bearer {self.token}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
        told: bytes = await self.waiting
        text = told.partition(b"\r\n\r\n")[2]
        if not told.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{told.splitlines()[0]!r}: {text[:200]!r}")
        return text

    def close(self) -> None:
        self.transport.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """By the quickest loop that there is: the sender has one processor, as the server has."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def processor(pid: int) -> float:
    """Seconds of processor time that a process has had: what a busy machine does not change; 0 where nobody tells."""
    try:
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def question() -> dict[str, Any]:
    return {"x": [round(random.gauss(0, 1), 3) for _ in range(FEATURES)]}


def label(x: list[float]) -> int:
    return int(sum(x) > 0)


def as_json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class Sender:
    """Sends load to a server, and measures."""

    def __init__(self, port: int, token: str, seconds: float, rows: int = BATCH) -> None:
        self.port, self.token, self.seconds, self.rows = port, token, seconds, rows
        self.batches = list[tuple[bytes, list[int]]]()  # made before, so that the sender does not hold up the server
        self.singles = [as_json(question()) for _ in range(KEPT)]
        for _ in range(max(4, KEPT // rows)):
            questions = [question() for _ in range(rows)]
            self.batches.append((as_json({"questions": questions}), [label(one["x"]) for one in questions]))

    async def connections(self, number: int) -> list[Connection]:
        return [await Connection(self.port, self.token).open() for _ in range(number)]

    async def closed(self, number: int, work: Callable[[Connection], Awaitable[int]]) -> float:
        """Rows a second with so many connections, each of which waits for its response."""
        some = await self.connections(number)
        done, end = 0, time.perf_counter() + self.seconds

        async def one(connection: Connection) -> None:
            nonlocal done
            while time.perf_counter() < end:
                rows = await work(connection)
                done += rows

        began = time.perf_counter()
        await asyncio.gather(*(one(connection) for connection in some))
        took = time.perf_counter() - began
        for connection in some:
            connection.close()
        return done / took

    async def batch(self, connection: Connection) -> int:
        questions, labels = random.choice(self.batches)
        tickets = TICKET.findall(await connection.send("POST", "/models/m/ask-many", questions))
        each = [b'{"ticket":"%b","label":%d}' % both for both in zip(tickets, labels, strict=True)]
        told = await connection.send("POST", "/models/m/label-many", b'{"labels":[%b]}' % b",".join(each))
        if told.count(b'"taken":true') != self.rows:
            raise RuntimeError("a label was refused")
        return self.rows

    async def single(self, connection: Connection) -> int:
        await connection.send("POST", "/models/m/ask", random.choice(self.singles))
        return 1

    async def opened(self, rate: float) -> np.ndarray:
        """Seconds from the moment at which each question was due to its answer, at a rate that waits for nobody."""
        idle, times = asyncio.Queue[Connection](), list[float]()
        for connection in await self.connections(2 * CONNECTIONS):
            idle.put_nowait(connection)

        async def one(due: float) -> None:
            connection = await idle.get()
            await self.single(connection)
            times.append(time.perf_counter() - due)
            idle.put_nowait(connection)

        began, tasks = time.perf_counter(), list[asyncio.Task[None]]()
        for i in range(int(rate * self.seconds)):
            due = began + i / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(one(due)))
        await asyncio.gather(*tasks)
        while not idle.empty():
            idle.get_nowait().close()
        return np.array(times)


@contextmanager
def server(arguments: list[str], **environment: str) -> Iterator[tuple[int, int, int]]:
    """A server process, from its start to its end: its two ports, and its number."""
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("{") and (told := json.loads(line))["event"] == "serving":
                threading.Thread(target=_pass_on, args=(process.stderr,), daemon=True).start()
                yield told["public"], told["operator"], process.pid
                return
        raise RuntimeError("the server did not start")
    finally:
        process.terminate()
        process.wait(60)


def _pass_on(lines: Iterable[str]) -> None:
    """What a server says while it serves: nothing, if all is well."""
    for line in lines:
        if not line.startswith("{") or json.loads(line)["event"] not in ("stopping", "stopped", "closed"):
            print(line, end="", file=sys.stderr)


async def closed(port: int, pid: int, token: str, seconds: float) -> dict[str, Any]:
    """Batches and singles, each of which waits for its response."""
    sender = Sender(port, token, seconds)
    served = 0.0
    while served < WARM:  # kernels are compiled, ranges found, caches filled
        served += await Sender(port, token, 1.0).closed(4, sender.batch)
    begun = processor(pid)
    batches = await sender.closed(4, sender.batch)
    between = processor(pid)
    singles = await sender.closed(CONNECTIONS, sender.single)
    ended = processor(pid)
    return {
        "rounds/s in batches": batches, "single asks/s": singles,
        "server's processor, µs a round in batches": (between - begun) / (batches * seconds) * 1e6,
        "server's processor, µs a single ask": (ended - between) / (singles * seconds) * 1e6,
    }  # fmt: skip


async def load(port: int, pid: int, token: str, seconds: float) -> dict[str, Any]:
    """Batches, singles, and singles at half load."""
    told = await closed(port, pid, token, seconds)
    gc.disable()  # the sender's own pauses are nobody's latency
    times = np.sort(await Sender(port, token, seconds).opened(told["single asks/s"] / 2)) * 1000
    gc.enable()
    quantiles = {f"p{q} at half load, ms": float(np.quantile(times, q / 100)) for q in (50, 99)}
    names = list(told)
    return {**{name: told[name] for name in names[:2]}, **quantiles, **{name: told[name] for name in names[2:]}}


async def both_ways(port: int, pid: int, token: str, seconds: float) -> dict[str, tuple[float, float]]:
    """Rounds a second, and a second of the server's processor: in batches of every size, then one by one."""
    served, told, sender = 0.0, dict[str, tuple[float, float]](), Sender(port, token, 1.0)
    while served < WARM:
        served += await sender.closed(4, sender.batch)
    for rows in (*SIZES, 1):
        sender = Sender(port, token, seconds, rows)
        begun = processor(pid)
        if rows == 1:
            rate = await sender.closed(CROWD, sender.single)
        else:
            rate = await sender.closed(4, sender.batch)
        name = "one by one" if rows == 1 else f"in batches of {rows}"
        told[name] = rate, rate * seconds / (processor(pid) - begun)
    return told


Pair = tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]
"""What this checkout did, and the other."""


def against(other: Path, pairs: int, seconds: float) -> list[Pair]:
    """The same load for both, in pairs of runs; who comes first changes."""
    found = list[Pair]()
    for pair in range(pairs):
        told = dict[Path, dict[str, tuple[float, float]]]()
        for tree in (HERE, other) if pair % 2 else (other, HERE):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                known = "quota" in (tree / "src" / "confide" / "service" / "config.py").read_text()
                config = CONFIG if known else re.sub("quota.*", "", CONFIG)  # 0.2 had none
                (folder / "confide.toml").write_text(config)
                token = Tokens("asker", Keys.make(folder / "keys" / "askers")).sign("ann", expires=3600.0)
                arguments = [sys.executable, "-m", "confide", "serve", str(folder / "confide.toml")]
                with server(arguments, PYTHONPATH=str(tree / "src")) as (public, _, pid):
                    told[tree] = run(both_ways(public, pid, token, seconds))
        found.append((told[HERE], told[other]))
        ratios = [f"{name} {told[HERE][name][1] / told[other][name][1]:.2f}" for name in told[HERE]]
        print(f"pair {pair + 1}, rounds a processor-second: {', '.join(ratios)}", file=sys.stderr, flush=True)
    return found


def compared(pairs: list[Pair]) -> list[tuple[str, ...]]:
    """A line for each load and each of the two numbers: medians here and there, their ratio's median and range."""
    lines = list[tuple[str, ...]]()
    for at, what in enumerate(("rounds a second", "rounds a second of the server's processor")):
        for name in pairs[0][0]:
            mine, theirs = ([one[side][name][at] for one in pairs] for side in (0, 1))
            ratios = sorted(a / b for a, b in zip(mine, theirs, strict=True))
            numbers = f"{statistics.median(mine):,.0f}", f"{statistics.median(theirs):,.0f}"
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            lines.append((f"{what}, {name}", *numbers, f"{statistics.median(ratios):.2f}", spread))
    return lines


async def shares(public: int, operator: int, tokens: tuple[str, str], seconds: float) -> dict[str, dict[str, float]]:
    """Where a batch's time goes, by the server's own numbers: at the desk, in the ledger, and the rest."""
    connection = await Connection(operator, tokens[1]).open()

    async def numbers() -> dict[str, float]:
        text = (await connection.send("GET", "/metrics")).decode()
        names = r"desk_seconds_sum|ledger|request_seconds_sum"
        found = re.findall(rf'^confide_({names})\{{model="m",\w+="([\w-]+)"\}} (\S+)', text, re.M)
        return {f"{name} {what}": float(value) for name, what, value in found}

    told, sender = {}, Sender(public, tokens[0], seconds)
    loads = (("batches", sender.batch, ("ask-many", "label-many")), ("singles", sender.single, ("ask",)))
    for name, work, kinds in loads:
        before = await numbers()
        await sender.closed(1, work)
        after = await numbers()
        spent = {key: after[key] - before.get(key, 0.0) for key in after}
        desk = spent.get("desk_seconds_sum ask", 0.0) + spent.get("desk_seconds_sum label", 0.0)
        whole, ledger = seconds, spent.get("ledger seconds", 0.0)
        inside = sum(spent.get(f"request_seconds_sum {kind}", 0.0) for kind in kinds)
        told[name] = {
            "sender and loopback": (whole - inside) / whole, "HTTP": (inside - desk) / whole,
            "ledger": ledger / whole, "POP and journal": (desk - ledger) / whole,
        }  # fmt: skip
    connection.close()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, metavar="F")
    parser.add_argument("--against", type=Path, metavar="F")
    parser.add_argument("--pairs", type=int, default=7)
    given = parser.parse_args()
    if given.page:
        print(page(given.page))
        return
    seconds = 4.0 if given.quick else 15.0
    if given.against:
        before, seconds = os.getloadavg()[0], 3.0 if given.quick else 10.0
        table = Table(f"{given.pairs} pairs of runs", "here", "there", "ratio", "from … to")
        for line in compared(against(given.against.resolve(), given.pairs, seconds)):
            table.add_row(*line)
        Console().print(table)
        print(f"load before {before:.1f}, after {os.getloadavg()[0]:.1f}")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "confide.toml").write_text(CONFIG)
        asker = Tokens("asker", Keys.make(folder / "keys" / "askers")).sign("ann", expires=3600.0)
        operator = Tokens("operator", Keys.make(folder / "keys" / "operators")).sign("op", expires=3600.0)
        with server([sys.executable, "-m", "confide", "serve", str(folder / "confide.toml")]) as (public, private, pid):
            ours = run(load(public, pid, asker, seconds))
            parts = run(shares(public, private, (asker, operator), seconds / 3))
        others = {}
        for kind in ("same app", "bare app"):
            river = [sys.executable, str(Path(__file__).with_name("service_river.py")), kind, str(folder / "keys")]
            with server(river) as (public, _, pid):
                others[kind] = run(load(public, pid, asker, seconds))
    ours["of River's asks/s"] = ours["single asks/s"] / others["same app"]["single asks/s"]
    show(ours, others, parts)
    if given.json:
        given.json.write_text(json.dumps({"confide": ours, "river": others, "shares": parts}, indent=1) + "\n")
    raise SystemExit("; ".join(missed(ours)) or 0)


def missed(ours: dict[str, Any]) -> list[str]:
    """The targets that were not reached, with what was."""
    return [
        f"{name}: {ours[name]:,.4g} instead of {_bound(name)}"
        for name, target in TARGETS.items()
        if not (ours[name] < target if "ms" in name else ours[name] >= target)
    ]


def _bound(name: str) -> str:
    return f"{'<' if 'ms' in name else '≥'} {TARGETS[name]:,g}" if name in TARGETS else ""


def page(file: Path) -> str:
    """The tables of docs/speed.md."""
    told = json.loads(file.read_text())
    lines = ["| | Confide | target | River, same app | River, bare app |", "|---|---:|---:|---:|---:|"]
    for name, value in told["confide"].items():
        numbers = [value, *(one.get(name) for one in told["river"].values())]
        own, *theirs = ("" if one is None else f"{one:,.3g}" if one < 1000 else f"{one:,.0f}" for one in numbers)
        lines.append(f"| {name} | {own} | {_bound(name)} | {' | '.join(theirs)} |")
    lines += ["", "| share of the time, one connection | batches | singles |", "|---|---:|---:|"]
    batches, singles = told["shares"]["batches"], told["shares"]["singles"]
    lines += [f"| {name} | {batches[name]:.0%} | {singles[name]:.0%} |" for name in batches]
    return "\n".join(lines)


def show(ours: dict[str, Any], others: dict[str, dict[str, Any]], parts: dict[str, dict[str, float]]) -> None:
    console = Console()
    table = Table("", "Confide", "target", *(f"River, {kind}" for kind in others))
    for name, value in ours.items():
        theirs = (f"{one[name]:,.4g}" if name in one else "" for one in others.values())
        table.add_row(name, f"{value:,.4g}", _bound(name), *theirs)
    console.print(table)
    table = Table("share of the time, one connection", *parts)
    for name in parts["batches"]:
        table.add_row(name, *(f"{one[name]:.0%}" for one in parts.values()))
    console.print(table)


if __name__ == "__main__":
    main()
