"""Server processes that start quickly: everything is imported once, and each is a fork that runs `confide serve`.

Run as a program it is the process that forks: a line of JSON on its standard input starts a server, and its standard
output tells the server's number, then how it ended. What the server writes to standard error is passed on.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import queue
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confide.cli import main as command_line
from confide.ledger import file as ledger_file
from confide.ledger.book import Book
from confide.pop.account import Account
from confide.runs.names import learner_named
from confide.service import models, server
from confide.service.base import Question, Taught
from confide.service.config import ModelConfig, read_config
from confide.service.desk import PopDesk
from confide.service.doors import Keys, Tokens
from confide.service.models import maker

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now: a server that comes back must come back to the same.

    They lie below those that systems give to whoever asks for any, so that no other test has them meanwhile.
    """
    found, dice = set[int](), random.SystemRandom()
    while len(found) < number:
        port = dice.randrange(16_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)


class Mother:
    """The process that forks: one for all deployments of a test run, each of which has a server at a time.

    Parameters
    ----------
    path
        A deployment to load compiled code by.
    """

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", "tests.service.nursery", str(path)]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        self.written = list[str]()
        self.serving: queue.Queue[bool] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.written.append(line)
            if '"serving"' in line:
                self.serving.put(True)

    def told(self) -> dict[str, int]:
        """What it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("".join(self.written[-20:]))
        said: dict[str, int] = json.loads(line)
        return said

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self._reading.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@functools.cache
def _mother(path: Path) -> Mother:
    made = Mother(path)
    atexit.register(made.close)
    return made


_first: list[Path] = []


class Nursery:
    """Starts servers of one deployment, one at a time.

    Parameters
    ----------
    path
        The deployment's file, with ports that are fixed.
    fault
        What is wrong with the servers: a name in `FAULTS`.
    """

    def __init__(self, path: Path, fault: str | None = None) -> None:
        self.config = read_config(path)
        self.public, self.private = (f"http://127.0.0.1:{p.port}" for p in (self.config.public, self.config.operator))
        doors = self.config.doors
        self.asker = Tokens("asker", Keys.make(doors.asker_keys))
        self.operator = Tokens("operator", Keys.make(doors.operator_keys)).sign("op", expires=86400.0)
        self._order = json.dumps({"config": str(path), "fault": fault})
        _first.append(path)
        self._mother = _mother(_first[0])
        self._begun = len(self._mother.written)
        self.pid = 0
        self.serving = False
        """Whether it was waited for until it serves."""

    @property
    def written(self) -> list[str]:
        """All that its servers wrote."""
        return self._mother.written[self._begun :]

    def start(self, wait: bool = True) -> int:
        """Start one; with `wait`, return when it serves."""
        mother = self._mother
        assert mother.process.stdin is not None and not self.pid
        self.serving = False
        while not mother.serving.empty():
            mother.serving.get()
        print(self._order, file=mother.process.stdin, flush=True)
        self.pid = mother.told()["pid"]
        if wait:
            self.wait()
        return self.pid

    def wait(self) -> None:
        """Return when it serves."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._alive():
            with contextlib.suppress(queue.Empty):
                self.serving = self._mother.serving.get(timeout=0.2)
                return
        raise AssertionError("it does not serve: " + "".join(self.written[-20:]))

    def _alive(self) -> bool:
        """Whether the server runs: one that has ended is waited for by its parent at once."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it with a signal; how it ended, as `subprocess` tells it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        code, self.pid = self._mother.told()["ended"], 0
        return code

    def close(self) -> None:
        """End its server."""
        if self.pid:
            self.end()


# ---------------------------------------------------------------------- what can be wrong with a server


def _forgetful() -> None:
    """Says that things are durable which it has not written."""
    Book.wait = lambda *_, **__: None  # type: ignore[assignment, method-assign]


def _wasteful() -> None:
    """Takes one round more for every batch of three."""
    reserve = Account.reserve

    def too_many(account: Account, rounds: int, whos: Iterable[bytes | None]) -> None:
        reserve(account, rounds + (rounds == 3), whos)

    Account.reserve = too_many  # type: ignore[method-assign]


def _slow() -> None:
    """Its disk takes a third of a second for a write, which it tells."""
    write = Book._write

    def slowly(book: Book) -> None:
        time.sleep(0.3)
        write(book)
        print("slow write", file=sys.stderr, flush=True)

    Book._write = slowly  # type: ignore[method-assign]


def _impatient() -> None:
    """Waits a moment only for a ledger that another program holds."""
    ledger_file._PATIENCE = 0.3


def _jumping() -> None:
    """Its clock jumps by hours to and fro, each time that somebody looks."""
    real, looks = time.time, iter(range(10**9))
    time.time = lambda: real() + (9000.0 if next(looks) % 2 else -9000.0)


def _few_files() -> None:
    """May open few files, and fewer unless it asks for more."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))


class _Games(Mapping[str, server.Model]):
    """A fresh model for each name that is asked for; the one before is closed."""

    def __init__(self, make: Callable[[str], server.Model]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._held: dict[str, server.Model] = {}

    def __getitem__(self, name: str) -> server.Model:
        if not name.startswith("game-"):
            raise KeyError(name)
        with self._lock:
            if name not in self._held:
                for old in self._held.values():
                    old.owner.close()
                self._held = {name: self._make(name)}
            return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._held))

    def __len__(self) -> int:
        return len(self._held)


def _games(wrap: Callable[[Any], Any] = lambda desk: desk) -> None:
    """A model that is made anew for every name: many short games against one process."""
    build, planned, plans = server.build, models.planned, list[Any]()

    def once(config: ModelConfig) -> Any:
        """The file's plan is certified once, not for every game."""
        plans.extend([] if plans else [planned(config)])
        return plans[0]

    models.planned = once

    def fresh(config: Any, open_desk: server.OpenDesk, log: Any) -> Any:
        model, limits = next(iter(config.models.values())), config.limits
        service = build(config.model_copy(update={"models": {}}), open_desk, log)

        def make(game: str) -> server.Model:
            part: ModelConfig = model.model_copy(update={"folder": model.folder / game})
            desk = wrap(open_desk(game, part, None))
            return server.Model(server.Owner(desk, service.metrics, room=limits.room, timeout=limits.timeout))

        service.models = _Games(make)
        return service

    server.build = fresh


class _Telling:
    """Broken: every answer is as sure as the first label of a stranger says."""

    def __init__(self, desk: PopDesk) -> None:
        self._desk, self._label = desk, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name)

    def learn(self, lessons: Sequence[Any]) -> Any:
        if self._label is None:
            self._label = lessons[0].label
        return self._desk.learn(lessons)

    def ask(self, questions: Sequence[Any]) -> Any:
        said = self._desk.ask(questions)
        if self._label is None:
            return said
        sure = bool(self._label)
        return [one if one.answer is None else one._replace(answer=one.answer._replace(sure=sure)) for one in said]


FAULTS: dict[str, Callable[[], None]] = {
    "forgetful": _forgetful, "slow": _slow, "impatient": _impatient, "jumping": _jumping, "games": _games,
    "few files": _few_files, "wasteful": _wasteful, "telling games": lambda: _games(_Telling),
}  # fmt: skip


# ---------------------------------------------------------------------- the process that forks


def _warm(path: Path) -> None:
    """Load what is compiled, by two short lives of each model elsewhere."""
    for name, model in read_config(path).models.items():
        learner = learner_named(model.learner) if ":" in model.learner else None
        with tempfile.TemporaryDirectory() as folder:
            for life in range(2):
                desk = PopDesk.open(Path(folder) / "model", maker(name, model), learner=learner)
                for rows in (1, 3):
                    asked = desk.ask([Question("a", f"{life} {rows} {i}", [1.0, 0.5]) for i in range(rows)])
                    tickets = [one.answer.ticket for one in asked if one.answer is not None]
                    desk.learn([Taught("a", ticket, (model.labels or [0])[0]) for ticket in tickets])
                desk.close()


def _with_parent() -> None:
    """End when the process that started this one does, where the system can be told so."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _child(order: Mapping[str, Any]) -> None:
    code = 1
    try:
        _with_parent()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        if order["fault"] is not None:
            FAULTS[order["fault"]]()
        sys.argv = ["confide", "serve", order["config"]]
        command_line.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _main() -> None:
    _with_parent()
    __import__("confide.cli.app")
    _warm(Path(sys.argv[1]))
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _child(json.loads(line))
        print(json.dumps({"pid": child}), flush=True)
        print(json.dumps({"ended": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}), flush=True)


if __name__ == "__main__":
    _main()
