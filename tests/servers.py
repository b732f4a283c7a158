"""A PostgreSQL server for tests: its own folder, its own socket, no network, gone when it ends."""

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

MEMORY = "/dev/shm"
"""A folder in memory, where there is one: most tests are not about the disk."""
ROOM = 4 << 30
MISSING = "there is no PostgreSQL here: apt-get install postgresql, or put its initdb on the PATH"


def memory() -> str | None:
    """Where folders of tests are made, if there is room in memory for those of all tests."""
    usable = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    return MEMORY if usable else None


class Cluster:
    """A server that runs; `url(schema)` is the place of a ledger in it."""

    def __init__(self, binaries: Path, folder: Path, user: list[str]) -> None:
        self.folder, self._binaries, self._as = folder, binaries, user
        self._numbers = count(1)

    def _run(self, name: str, *options: str) -> None:
        command = [*self._as, str(self._binaries / name), "-D", str(self.folder / "data"), *options]
        with open(self.folder / "said", "ab") as said:
            subprocess.run(command, cwd=self.folder, check=True, stdout=said, stderr=said)

    def make(self) -> None:
        self._run("initdb", "-A", "trust", "-U", "confide", "-N", "--locale=C", "-E", "UTF8")

    def start(self, **settings: str) -> None:
        """Start it, with these settings."""
        given = {"listen_addresses": "''", "unix_socket_directories": str(self.folder), "shared_buffers": "16MB"}
        options = " ".join(f"-c {name}={value}" for name, value in (given | settings).items())
        self._run("pg_ctl", "-w", "-s", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it; immediately is as a crash does."""
        self._run("pg_ctl", "-w", "-s", "-m", how, "stop")

    def url(self, schema: str, **settings: str) -> str:
        options = " ".join(f"-c{name}={value}" for name, value in {"search_path": schema, **settings}.items())
        return f"postgresql:///postgres?user=confide&host={quote(str(self.folder), safe='')}&options={quote(options)}"

    def fresh(self) -> str:
        """The place of a ledger that is not there yet."""
        schema = f"ledger_{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {schema}")
        return self.url(schema)

    def execute(self, sql: str, url: str | None = None) -> list[tuple[object, ...]]:
        """Run this as somebody else would."""
        psycopg = pytest.importorskip("psycopg")
        with psycopg.connect(url or self.url("public"), autocommit=True) as db:
            done = db.execute(sql)
            return done.fetchall() if done.description else []

    def end(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    known = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[-3]))
    return Path(found or known[-1]).parent if found or known else None


def start() -> Cluster:
    """A server, or a skip that says what is missing. PostgreSQL does not run as root: then it is somebody else's."""
    pytest.importorskip("psycopg", reason='no psycopg here: pip install "confide[postgres]"')
    binaries = _binaries()
    if binaries is None:
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="confide-", dir=memory()))
    user: list[str] = []
    if os.getuid() == 0:
        names = {one.pw_name: one for one in pwd.getpwall()}
        other = names.get("postgres") or names.get("nobody")
        if other is None or shutil.which("setpriv") is None:
            folder.rmdir()
            pytest.skip("PostgreSQL does not run as root: run the tests as somebody else")
        os.chown(folder, other.pw_uid, other.pw_gid)
        user = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
    cluster = Cluster(binaries, folder, user)
    cluster.make()
    cluster.start()
    return cluster
