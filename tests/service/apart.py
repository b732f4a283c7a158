"""A model over many processes, killed at random moments, and people who go on asking until they are answered.

    python -m tests.service.apart --kills 100
    python -m tests.service.apart --kills 100 --postgres    # all ledgers in one server, which is killed too

A merger, two owners with two partitions each and two doors are real processes of `confide serve`. People ask at both
doors, and bring labels; each sends a request until it is answered. Then everything is stopped, and the ledgers are held
against what people were told: every round that was told is in a journal, no number twice, every acknowledged label is
in one journal once, every release holds exactly the lessons of its leaf, and nobody is in two partitions.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from confide.guide.guide import Release
from confide.ledger.ledger import Ledger
from confide.privacy.random import Random
from confide.service.config import read_config
from confide.service.doors import Keys, Tokens
from confide.service.journal import ASKED, TAUGHT, Row, Rows, unpack
from confide.service.merging import partition_of
from confide.service.models import maker, partition_key
from tests.service.nursery import free_ports

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
COMMON = """
[public]
port = {public}
[operator]
port = {operator}
[models.spam]
folder = "state"
labels = ["no", "yes"]
units = "people"
unit_labels = 8
epsilon = 8.0
{ledger}
[models.spam.columns]
a = "category"
b = "category"
[models.spam.partitions]
number = 4
key = "keys/spam"
"""


class Deployment:
    """Its files, and its processes."""

    def __init__(self, base: Path, ledger: str | None = None) -> None:
        self.base, self.ledger = base, ledger
        ports = iter(free_ports(11))
        self.ports = {name: next(ports) for name in ("merger", "a", "b", "door", "other")}
        merges = next(ports)
        (base / "keys").mkdir()
        key = base / "keys" / "spam"
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32))
        url = "http://127.0.0.1:{}".format
        owns = {"a": "0-1", "b": "2-3"}
        self.files = dict[str, Path]()
        for name, port in self.ports.items():
            said = COMMON.format(
                public=port, operator=next(ports), ledger="" if ledger is None else f'ledger = "{ledger}"'
            )
            said += f'merger = "{url(merges)}"\n'
            if name in owns:
                said += f'owns = "{owns[name]}"\n'
            if name == "merger":
                said += f"merges = {{ port = {merges} }}\n"
            said += "[models.spam.partitions.owners]\n"
            said += "".join(f'"{span}" = "{url(self.ports[one])}"\n' for one, span in owns.items() if one != name)
            self.files[name] = base / f"{name}.toml"
            self.files[name].write_text(said)
        self.config = read_config(self.files["a"])
        self.tokens = Tokens("asker", Keys.make(self.config.doors.asker_keys))
        Keys.make(self.config.doors.operator_keys)
        self.key = partition_key(key)
        self.running = dict[str, subprocess.Popen[bytes]]()
        self.log = open(base / "log", "ab")  # noqa: SIM115

    def start(self, name: str) -> None:
        # `-c` and not `-m`: the tests need no installed package, only this interpreter's path.
        command = [sys.executable, "-c", "from confide.cli.main import main; main()", "serve", str(self.files[name])]
        self.running[name] = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log)

    def ready(self, name: str, seconds: float = 90.0) -> None:
        """Wait until it listens."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.running[name].poll() is not None:
                raise AssertionError(f"{name} ended: {self.written()}")
            connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=5)
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
                connection.request("GET", "/healthz")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(f"{name} does not serve: {self.written()}")

    def written(self) -> str:
        return (self.base / "log").read_text()[-3000:]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(90)

    def stop(self) -> None:
        """In good order: doors, owners, merger."""
        for name in ("door", "other", "a", "b", "merger"):
            if name in self.running and (code := self.kill(name, signal.SIGTERM)) != 0:
                raise AssertionError(f"{name} ended with {code}: {self.written()}")
        self.log.close()

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self.log.close()

    def send(self, door: str, subject: str, operation: str, body: Any) -> tuple[int, Any, str | None]:
        """Status, content and Retry-After; 0 where the connection is lost."""
        token = self.tokens.sign(subject, expires=3600.0)
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports[door], timeout=40)
            connection.request(
                "POST", f"/models/spam/{operation}", json.dumps(body),
                {"authorization": f"Bearer {token}", "content-type": "application/json"},
            )  # fmt: skip
            response = connection.getresponse()
            return response.status, json.loads(response.read()), response.headers.get("retry-after")
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None, None
        finally:
            with contextlib.suppress(Exception):
                connection.close()


class People(threading.Thread):
    """Somebody who asks, and brings labels, until it is enough."""

    def __init__(self, deployment: Deployment, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.deployment, self.number, self.over = deployment, number, over
        self.rounds = dict[int, tuple[str, str]]()
        self.labels = dict[int, str]()
        self.statuses = Counter[int]()
        self.free, self.wrong = 0, list[str]()
        self.random = random.Random(number)

    def run(self) -> None:
        asked, waiting = 0, list[tuple[str, int, str]]()
        try:
            while not self.over.is_set():
                asked += 1
                subject = f"p{self.number}-{self.random.randrange(12)}"
                many = [{"id": f"{asked}-{i}", "x": self._x()} for i in range(self.random.randrange(1, 6))]
                told = self._until(subject, "ask-many", {"questions": many}, self._answered)
                for one, answer in zip(many, told["answers"], strict=True):
                    number = answer["round"]
                    if self.rounds.setdefault(number, (subject, one["id"])) != (subject, one["id"]):
                        self.wrong.append(f"round {number} twice")
                    waiting.append((subject, number, answer["ticket"]))
                for _ in range(min(len(waiting), self.random.randrange(4))):
                    subject, number, ticket = waiting.pop(self.random.randrange(len(waiting)))
                    label = self.random.choice(["no", "yes"])
                    self._until(subject, "label", {"ticket": ticket, "label": label}, lambda status, _: status == 200)
                    self.labels[number] = label
        except BaseException as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _x(self) -> dict[str, str]:
        return {"a": self.random.choice("klmnop"), "b": self.random.choice("uvwxyz")}

    def _answered(self, status: int, told: Any) -> bool:
        """Whether all have a round; those that the released model answered without one are asked again by their id."""
        if status != 200 or any("error" in one and one["error"] for one in told["answers"]):
            return False
        free = sum(not one["ticket"] for one in told["answers"])
        self.free += free
        return not free

    def _until(self, subject: str, operation: str, body: Any, good: Callable[[int, Any], bool]) -> Any:
        until = time.monotonic() + 240.0
        while time.monotonic() < until:
            door = self.random.choice(["door", "other", "a", "b"])
            status, told, retry = self.deployment.send(door, subject, operation, body)
            self.statuses[status] += 1
            if status and good(status, told):
                return told
            if status not in (0, 200, 429, 503, 504):
                raise AssertionError(f"{operation} was refused with {status}: {told}")
            if status in (429, 503, 504) and retry is None:
                raise AssertionError("no Retry-After")
            time.sleep(0.05)
        raise AssertionError(f"{operation} was never answered")


def check(deployment: Deployment, people: list[People]) -> Counter[str]:
    """What is durable against what was told."""
    asked, taught = list[tuple[int, Row]](), list[tuple[int, Row]]()
    where = deployment.base / "state"
    place = deployment.ledger

    def ledger(name: str) -> tuple[Ledger, str]:
        if place is None:
            return Ledger(where / name / "ledger.db"), "pop"
        return Ledger(place), "spam.merger" if name == "merger" else f"spam.{name[1:]}"

    for number in range(PARTITIONS):
        book, model = ledger(f"p{number}")
        for kind, _, width, body in book.journal(model):
            rows = [(number, row) for row in Rows.of(width).read(body)] if kind in (ASKED, TAUGHT) else []
            (asked if kind == ASKED else taught).extend(rows)
    taken = Counter(row.number for _, row in asked if row.number > 0)
    assert max(taken.values()) == 1, "a number was taken twice"
    told = {number: who for one in people for number, who in one.rounds.items()}
    assert len(told) == sum(len(one.rounds) for one in people), "a round was told to two"
    assert set(told) <= set(taken), "a round that was told is in no journal"
    homes = {number: at for at, row in asked if (number := row.number) > 0}
    for number, (subject, _) in told.items():
        assert homes[number] == partition_of(deployment.key, PARTITIONS, f"tokens:{subject}"), (
            "somebody is in two partitions"
        )
    learned = Counter(row.number for _, row in taught)
    labels = {number: label for one in people for number, label in one.labels.items()}
    assert all(learned[number] == 1 for number in labels), "an acknowledged label was not learned once"
    book, model = ledger("merger")
    pop = maker("spam", deployment.config.models["spam"])()
    guiding = pop.operator.loop.guiding
    assert guiding is not None
    guide, lessons = guiding.fresh(Random(), lambda release: None), dict[int, list[Row]]()
    for _, row in taught:
        lessons.setdefault(row.leaf, []).append(row)
    released = sorted(book.read(model).released, key=lambda one: one[1])
    for kind, number, noisy, exact in released:
        for row in lessons.pop(guide.closed, []):
            assert row.x is not None
            guide.gradient(guide.encode_as_of(unpack(row.x), row.number), row.label)
        mine = guide._leaves.open.copy()
        assert np.array_equal(mine, np.frombuffer(exact, dtype="<i8")), f"release {number} is not its lessons' sum"
        guide._leaves.open[:] = 0
        row_ = np.frombuffer(noisy, dtype="<i8").astype(np.int64)
        guide.take(Release(kind.rpartition("/")[2], number, row_, np.zeros_like(row_)))
    assert all(leaf < 0 or leaf >= guide.closed for leaf in lessons), "a lesson is in no release"
    assert not any(one.wrong for one in people), [one.wrong for one in people if one.wrong]
    return Counter(rounds=len(told), labels=len(labels), releases=len(released), free=sum(one.free for one in people))


def run(
    base: Path,
    kills: int,
    seed: int = 1,
    ledger: str | None = None,
    restart: Callable[[], None] | None = None,
    seconds: float = float("inf"),
) -> Any:
    """Kill so many processes under load, or as many as there is time for; hold the ledgers against what was told."""
    deployment, dice, over = Deployment(base, ledger), random.Random(seed), threading.Event()
    people = [People(deployment, number, over) for number in range(3)]
    killed = Counter[str]()
    try:
        for name in deployment.files:
            deployment.start(name)
        for name in deployment.files:
            deployment.ready(name)
        for one in people:
            one.start()
        until = time.monotonic() + seconds
        for _ in range(kills):
            if time.monotonic() > until:
                break
            time.sleep(dice.uniform(0.2, 1.5))
            name = dice.choice([*deployment.files, "a", "b", "merger", *(["postgres"] if restart else [])])
            killed[name] += 1
            if name == "postgres":
                assert restart is not None
                restart()
                continue
            if name not in deployment.running:
                raise AssertionError(f"{name} is gone: {deployment.written()}")
            deployment.kill(name)
            if dice.random() < 0.4:
                time.sleep(dice.uniform(0.0, 2.0))
            deployment.start(name)
            if dice.random() < 0.7:
                deployment.ready(name)
        for name in deployment.files:
            deployment.ready(name)
        enough = [(one, one.statuses[200] + 3) for one in people]  # everybody is answered some more times
        while any(one.is_alive() and one.statuses[200] < answers for one, answers in enough):
            time.sleep(0.05)
        over.set()
        for one in people:
            one.join(300)
            assert not one.is_alive(), "somebody is never answered"
        deployment.stop()
        counted = check(deployment, people)
    finally:
        over.set()
        with contextlib.suppress(Exception):
            deployment.end()
    statuses = sum((one.statuses for one in people), Counter[int]())
    return counted, killed, statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which nobody is killed any more")
    parser.add_argument("--postgres", action="store_true")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ledger, restart = None, None
        if given.postgres:
            from tests.servers import start

            cluster = start()
            stack.callback(cluster.end)
            ledger = cluster.fresh()

            def restart() -> None:
                cluster.stop("immediate")
                cluster.start()

        began = time.monotonic()
        counted, killed, statuses = run(base, given.kills, given.seed, ledger, restart, given.seconds)
        print(
            f"killed {killed.total()}, {dict(killed)}, in {time.monotonic() - began:.0f} s; statuses {dict(statuses)}"
        )
        print(f"nothing acknowledged was lost, nothing is there twice: {dict(counted)}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
