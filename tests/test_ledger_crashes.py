"""The ledger when things go wrong: killed processes, full disks, torn writes, systems that lack what ours has.

`CONFIDE_KILLS=300` kills that many processes instead of 20.
"""

import errno
import json
import math
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from confide import StateError
from confide.ledger import Book, Entry, Ledger, Spent
from confide.ledger.sqlite import SqliteStore

KILLS = int(os.environ.get("CONFIDE_KILLS", "20"))
PATIENCE = 60.0
"""Seconds after which a child that tells nothing has hung."""
BROKEN = r"could not be written .*: nothing is answered any more; make room, then load the state again"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def shop(path: Path) -> Any:
    with Ledger(path) as ledger:
        ledger.create("shop")
        yield ledger.claim("shop")


# ---------------------------------------------------------------------- killed at random moments


def live(path: Path, seed: int, tell: Callable[[dict[str, Any]], None]) -> None:
    """Three threads that add, wait and tell, until they are killed."""
    book = Ledger(path).claim("shop")
    spent = Ledger(path).read("shop")
    account, coins = threading.Lock(), random.Random(seed)
    rounds, shares = spent.rounds, dict(spent.shares)

    def ask() -> None:
        nonlocal rounds
        while True:
            with account:
                rounds += 1
                who, copy, mine = bytes([coins.randrange(100)]) * 16, coins.randrange(50), rounds
                shares[who] = count = shares.get(who, 0) + 1
                forgot = ((copy, who),) if mine % 5 == 0 else ()
                number = book.add(Entry(mine, mine, shares=((who, count),), used=((book.epoch, mine),), forgot=forgot))
            book.wait(number)
            tell(
                {"rounds": mine, "who": who.hex(), "count": count, "sequence": number, "epoch": book.epoch}
                | ({"copy": copy} if forgot else {})
            )

    for _ in range(2):
        threading.Thread(target=ask, daemon=True).start()
    ask()


def run_and_kill(path: Path, seed: int, after: float, lines: int) -> list[dict[str, Any]]:
    """Everything that a child told before it was killed, so many seconds after it had told so many lines."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:

        def tell(line: dict[str, Any]) -> None:
            os.write(writing, json.dumps(line).encode() + b"\n")

        try:
            live(path, seed, tell)
        except BaseException as error:
            tell({"error": f"{type(error).__name__}: {error}"})
        os._exit(0)
    os.close(writing)
    deadline, told, more = math.inf, b"", b"\n"
    while more:
        if deadline == math.inf and told.count(b"\n") >= lines:
            deadline = time.monotonic() + after
        left = min(PATIENCE, deadline - time.monotonic())
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            break
        more = os.read(reading, 1 << 16)
        told += more
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as file:
        told += file.read()
    return [json.loads(line) for line in told.splitlines()]


def check(spent: Spent, told: list[dict[str, Any]]) -> None:
    """Nothing that was told is missing."""
    for line in told:
        assert "error" not in line, line
        assert spent.rounds >= line["rounds"] <= spent.unsure, "a round was forgotten"
        assert spent.sequence >= line["sequence"] and spent.epoch >= line["epoch"]
        assert spent.shares[bytes.fromhex(line["who"])] >= line["count"], "a share was forgotten"
        assert (line["epoch"], line["rounds"]) in spent.used, "a ticket was forgotten"
        if "copy" in line:
            assert (line["sequence"], line["copy"], bytes.fromhex(line["who"])) in spent.forgot


def kill_many(path: Path, kills: int) -> tuple[int, int]:
    """Kill so many owners, one after the other; how many of them had told something, and how much in all."""
    ledger, moments = Ledger(path), random.Random(1)
    ledger.create("shop")
    everything: list[dict[str, Any]] = []
    alive = 0
    for kill in range(kills):  # every other one perhaps before it has begun, the rest at work, however slow
        lines = moments.randrange(1, 9) if kill % 2 else 0
        told = run_and_kill(path, kill, after=moments.uniform(0, 0.01 if lines else 0.12), lines=lines)
        alive += bool(told)
        everything += told
        check(ledger.read("shop"), everything)
    return alive, len(everything)


def test_killed_at_random_moments(path: Path) -> None:
    """Whatever was waited for is there, after every kill, and the next owner goes on from it."""
    alive, told = kill_many(path, KILLS)
    assert alive > KILLS / 4 and told > KILLS, "the children were killed before they had done anything"


def test_a_wait_that_returns_too_early_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: here only every fourth wait writes."""
    wait = Book.wait
    monkeypatch.setattr(Book, "wait", lambda book, number: wait(book, number) if number % 4 == 0 else None)
    with pytest.raises((AssertionError, KeyError)):
        kill_many(path, 100)


# ---------------------------------------------------------------------- disks that fail


def refused(act: Callable[[], object], match: str = BROKEN) -> str:
    with pytest.raises(StateError, match=match) as caught:
        act()
    return str(caught.value)


def test_a_full_disk_ends_the_book_for_everybody(shop: Book, path: Path) -> None:
    shop.wait(shop.add(Entry(1, 1)))
    waiting = shop.add(Entry(2, 2, shares=tuple((bytes([i]) * 16, 1) for i in range(250))))
    (size,) = shop._store.db.execute("PRAGMA page_count").fetchone()
    shop._store.db.execute(f"PRAGMA max_page_count = {size}")
    said = {
        refused(act)
        for act in (
            lambda: shop.wait(waiting),
            lambda: shop.wait(waiting),
            lambda: shop.wait(1),
            lambda: shop.add(Entry(2, 1)),
            lambda: shop.sweep(1),
        )
    }
    assert len(said) == 1 and "the disk is full" in said.pop(), "one sentence, whatever was in it"
    assert shop.durable == 1
    shop._store.db.execute("PRAGMA max_page_count = 1000000")
    refused(lambda: shop.add(Entry(2, 1)))
    shop.close()
    assert Ledger(path).read("shop") == Spent(1, 1, epoch=1, sequence=1)
    with Ledger(path).claim("shop") as again:
        again.wait(again.add(Entry(2, 2)))
    assert Ledger(path).read("shop") == Spent(2, 2, epoch=2, sequence=2)


class Failing:
    """A connection whose statements fail from a given one on."""

    def __init__(self, db: sqlite3.Connection, statement: str, error: Exception) -> None:
        self._db, self._statement, self._error = db, statement, error

    def execute(self, sql: str, *values: Any) -> Any:
        if sql.strip().startswith(self._statement):
            raise self._error
        return self._db.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


ERRORS = [
    sqlite3.OperationalError("disk I/O error"),
    sqlite3.DatabaseError("database disk image is malformed"),
    OSError(errno.ENOSPC, "No space left on device"),
    MemoryError(),
]


@pytest.mark.parametrize("statement", ["BEGIN", "UPDATE", "COMMIT"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_any_failed_write_ends_the_book(
    statement: str, error: Exception, shop: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.wait(shop.add(Entry(1, 1)))
    pending = shop.add(Entry(2, 2))
    with monkeypatch.context() as broken:
        broken.setattr(shop._store, "db", Failing(shop._store.db, statement, error))
        first = refused(lambda: shop.wait(pending))
    for act in (lambda: shop.wait(pending), lambda: shop.wait(1), lambda: shop.add(Entry(3, 3))):
        assert refused(act) == first
    assert shop.durable == 1
    shop.close()
    assert Ledger(shop.place).read("shop").rounds == 1


def test_an_interrupted_write_ends_the_book(shop: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether it was written."""
    with monkeypatch.context() as broken:
        broken.setattr(shop._store, "db", Failing(shop._store.db, "COMMIT", KeyboardInterrupt()))  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            shop.wait(shop.add(Entry(1, 1)))
    refused(lambda: shop.add(Entry(2, 2)), "was interrupted .*: nothing is answered any more; load the state again")


def test_all_waiting_threads_are_told_alike(shop: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose entry failed and those who come behind: nobody sees more than that nothing is answered."""
    monkeypatch.setattr(shop._store, "db", Failing(shop._store.db, "COMMIT", sqlite3.OperationalError("full")))
    numbers = [shop.add(Entry(i, i % 2)) for i in range(8)]
    said: list[str] = []

    def ask(number: int) -> None:
        try:
            shop.wait(number)
            said.append("answered")
        except StateError as error:
            said.append(str(error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 8 and len(set(said)) == 1 and "nothing is answered" in said[0]


def test_a_ledger_that_was_replaced_is_left_alone(shop: Book, path: Path, tmp_path: Path) -> None:
    """Somebody restores a backup beneath a living owner: what it wrote now would be lost."""
    shutil.copy(path, tmp_path / "backup")
    os.replace(tmp_path / "backup", path)
    refused(lambda: shop.wait(shop.add(Entry(1, 1))), "moved or replaced")
    path.unlink()
    refused(lambda: shop.add(Entry(1, 1)), "moved or replaced")


LIMITED = """
import resource, signal, sys
from confide.ledger import Entry, Ledger
ledger = Ledger(sys.argv[1])
ledger.create("shop")
shop = ledger.claim("shop")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000))
for i in range(1, 1000):
    shop.wait(shop.add(Entry(i, i, shares=((i.to_bytes(2) * 8, 1),))))
    print(i, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
def test_a_real_limit_is_met_in_order(path: Path) -> None:
    """The system itself refuses to let the files grow: everything that was told is there, and the ledger opens."""
    run = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True)
    told = [int(line) for line in run.stdout.splitlines()]
    assert "nothing is answered any more" in run.stderr and 10 < len(told) < 999
    spent = Ledger(path).read("shop")
    assert spent.rounds == len(spent.shares) >= told[-1] == len(told)
    with Ledger(path).claim("shop") as shop:
        shop.wait(shop.add(Entry(1000, 1000)))


# ---------------------------------------------------------------------- torn writes


def ends(wal: bytes) -> list[int]:
    """Where each transaction of a -wal ends. Behind the last one there may be older ones, of another salt."""
    found = []
    for at in range(32, len(wal), 24 + 4096):
        if wal[at + 8 : at + 16] == wal[16:24] and wal[at + 4 : at + 8] != bytes(4):
            found.append(at + 24 + 4096)
    return found


def cut(path: Path, at: int, folder: Path) -> Path:
    """A copy of a ledger whose -wal ends at this byte."""
    copy = folder / f"{at}.db"
    copy.write_bytes(path.read_bytes())
    copy.with_name(f"{at}.db-wal").write_bytes(path.with_name("ledger.db-wal").read_bytes()[:at])
    return copy


def test_a_torn_wal_is_an_old_state_or_the_new_one(shop: Book, path: Path, tmp_path: Path) -> None:
    """Cut anywhere, the ledger says what it said after one of the writes: the last that was synced by then."""
    ledger, wal = Ledger(path), path.with_name("ledger.db-wal")
    after, synced = [ledger.read("shop")], []
    for i in range(1, 7):
        people = tuple((bytes([i, j]) * 8, i) for j in range(30))
        shop.wait(shop.add(Entry(i, i, shares=people, forgot=((i, b"x"),), used=((1, i),))))
        after.append(ledger.read("shop"))
        synced.append(ends(wal.read_bytes())[-1])
    assert synced == ends(wal.read_bytes()) and len(set(synced)) == 6
    coins = random.Random(1)
    places = {*synced, *(end - 1 for end in synced), *(end + 1 for end in synced), 1, 31, 32, 33, 56}
    places |= {coins.randrange(1, synced[-1]) for _ in range(150)}
    for at in sorted(places):
        whole = sum(end <= at for end in synced)
        assert Ledger(cut(path, at, tmp_path)).read("shop") == after[whole], f"cut at byte {at}"


def test_after_a_torn_write_the_ledger_goes_on(shop: Book, path: Path, tmp_path: Path) -> None:
    shop.wait(shop.add(Entry(1, 1)))
    shop.wait(shop.add(Entry(2, 2)))
    kept, last = ends(path.with_name("ledger.db-wal").read_bytes())
    for at in (kept, kept + 1, kept + 24, kept + 2000, last - 1):
        copy = cut(path, at, tmp_path)
        for rounds in (3, 4):
            with Ledger(copy).claim("shop") as again:
                assert again.sequence == rounds - 2
                again.wait(again.add(Entry(rounds, rounds)))
            assert Ledger(copy).read("shop").rounds == rounds


def test_a_half_made_ledger_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it was created, before or after its tables were there."""
    with monkeypatch.context() as broken:
        broken.setattr(SqliteStore, "_prepare", lambda file: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Ledger(path).create("shop")
    assert path.exists()
    with monkeypatch.context() as broken:
        broken.setattr(SqliteStore, "insert", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Ledger(path).create("shop")
    assert Ledger(path).models() == []
    Ledger(path).create("shop")
    Ledger(path).claim("shop").close()


# ---------------------------------------------------------------------- other systems

ELSEWHERE = """
import os, sys
sys.modules["fcntl"] = None
for name in ("fdatasync", "O_DIRECTORY", "register_at_fork", "fork"):
    delattr(os, name)
from pathlib import Path
import numpy as np
from confide.ledger import Entry, Ledger, snapshot
folder = Path(sys.argv[1]) / "state"
snapshot.make_folder(folder)
with Ledger(folder / "ledger.db") as ledger:
    ledger.create("shop")
    shop = ledger.claim("shop")
    shop.wait(shop.add(Entry(1, 1)))
    snapshot.write_key(folder, b"secret")
    snapshot.write(folder, {"sequence": shop.sequence}, {"a": np.arange(3)})
    try:
        Ledger(folder / "ledger.db").claim("shop")
    except ValueError as error:
        assert "in use" in str(error)
    else:
        raise SystemExit("two owners")
assert snapshot.read(folder)[0]["sequence"] == Ledger(folder / "ledger.db").read("shop").sequence == 1
assert "fcntl" not in [name for name, module in sys.modules.items() if module]
print("done")
"""


def test_where_fcntl_and_fdatasync_do_not_exist(tmp_path: Path) -> None:
    """As on Windows and macOS, as far as one can tell from here."""
    run = subprocess.run([sys.executable, "-c", ELSEWHERE, str(tmp_path)], capture_output=True, text=True)
    assert run.stdout == "done\n", run.stderr
