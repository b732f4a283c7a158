"""Run the commands and snippets of the pages, as a newcomer would, in a new folder with a file of their own.

python -m docs.tools.check                        # all of them; make docs-check
python -m docs.tools.check docs/service.md        # one page
"""

from __future__ import annotations

import csv
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from docs.tools.blocks import ROOT, Block, Rule, blocks, commands, pages

LINKED = ("benchmarks", "deploy", "examples")
PATIENCE = 1800  # seconds for one command


def own_file(path: Path, rows: int) -> None:
    """A newcomer's own CSV: numbers, categories, and a label that follows from them most of the time."""
    coins = random.Random(path.name)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "minutes", "day", "channel", "outcome"])
        for _ in range(rows):
            age, minutes = coins.randint(18, 90), round(coins.expovariate(1 / 12), 1)
            channel, day = coins.choice(["phone", "web"]), coins.choice(["Mon", "Tue", "Wed"])
            right = age / 20 + minutes / 10 + (channel == "phone") + coins.gauss(0, 0.5) > 4
            lines.writerow([age, minutes, day, channel, "returns" if right else "leaves"])


def prepare(folder: Path) -> None:
    """What a newcomer has: files of their own, and a checkout's folders."""
    own_file(folder / "visits.csv", 3000)
    own_file(folder / "sample.csv", 1000)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Reader:
    """Someone who goes through a page from top to bottom, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.ports = {"8000": str(free_port()), "8001": str(free_port())}
        self.servers: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "CONFIDE_PUBLIC__PORT": self.ports["8000"],
            "CONFIDE_OPERATOR__PORT": self.ports["8001"],
        }

    def local(self, text: str) -> str:
        """`text` with ports that are free here."""
        return re.sub(r"127\.0\.0\.1:(8000|8001)", lambda found: f"127.0.0.1:{self.ports[found[1]]}", text)

    def python(self, block: Block) -> None:
        """Run a snippet after those before it, as in one session."""
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            exec(compile(self.local(block.text), f"{block.page}:{block.line}", "exec"), self.names)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def shell(self, command: str, rule: Rule | None) -> None:
        """Run a command; what it exports is there for those after it."""
        if rule is not None:
            if rule.instead is None:
                return
            command = rule.instead
        served = re.match(r"(.*&& )?confide serve (?!--)\S+$", command)
        if served:
            if served[1]:
                self.shell(served[1].removesuffix("&& "), None)
            self.serve(command.removeprefix(served[1] or ""))
            return
        kept = self.folder / ".environment"
        script = f"set -eo pipefail\n{self.local(command)}\nenv -0 > '{kept}'"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise RuntimeError(f"`{command}` ended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        pairs = (line.split("=", 1) for line in kept.read_text(encoding="utf-8").split("\0") if "=" in line)
        self.environment = dict(pairs)

    def serve(self, command: str) -> None:
        """Start a service, and wait until it answers."""
        with (self.folder / "served.log").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stderr=log
            )
        self.servers.append(server)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.ports['8000']}/readyz", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                if server.poll() is not None:
                    raise RuntimeError(f"`{command}` ended with {server.returncode}") from None
                time.sleep(0.2)
        raise RuntimeError(f"`{command}` does not answer")

    def read(self, page: Path, shell: bool = True) -> int:
        """Do what the page says; with `shell` its commands too. How many were run."""
        count = 0
        for block in blocks(page):
            if block.title is not None:
                (self.folder / block.title).write_text(block.text, encoding="utf-8")
            elif block.language == "python" and block.excerpt is None:
                self.python(block)
                count += 1
            elif block.language == "sh" and shell:
                for command, rule in commands(block):
                    self.shell(command, rule)
                    count += rule is None or rule.instead not in (None, "true")
        return count

    def close(self) -> None:
        """End the services that were started."""
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def check(page: Path, shell: bool = True) -> int:
    """Read one page in a new folder; how many commands and snippets were run."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prepare(folder)
        stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        reader = Reader(folder)
        stack.callback(reader.close)
        return reader.read(page, shell)


def main(asked: list[str]) -> int:
    """Check pages, each in a process of its own; 1 where one does not hold."""
    if len(asked) == 1:
        print(f"{check((ROOT / asked[0]).resolve())} commands and snippets run")
        return 0
    wrong = 0
    for page in asked or [str(page.relative_to(ROOT)) for page in pages()]:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "docs.tools.check", page], cwd=ROOT, capture_output=True, text=True
        )
        last = done.stdout.strip().splitlines()[-1:] or ["nothing"]
        print(
            f"{page:24} {time.monotonic() - began:5.0f} s  {last[0] if not done.returncode else 'FAILED'}", flush=True
        )
        if done.returncode:
            wrong = 1
            print(done.stdout[-2000:] + done.stderr[-4000:])
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
