"""The ledger: what is spent only grows, one process owns a model, and damage is noticed."""

import os
import random
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from confide import StateError
from confide.ledger import Entry, Ledger, Spent, sqlite
from confide.ledger.sqlite import SqliteStore
from confide.ledger.store import checksum

ANN, BOB = b"ann" * 5, b"bob" * 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(place: str) -> Any:
    """In a file, and on a server: what is promised of one is promised of the other."""
    with Ledger(place) as ledger:
        ledger.create("shop")
        yield ledger


@pytest.fixture
def filed(path: Path) -> Any:
    """For what only a file can do."""
    with Ledger(path) as ledger:
        ledger.create("shop")
        yield ledger


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks beside threads
        return os.fork()


class Another:
    """A process of its own, forked now, that acts when it is told to; `told` is the error it met, or nothing."""

    def __init__(self, act: Callable[[], object]) -> None:
        start, self._go = os.pipe()
        self._result, result = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            os.close(self._go)
            os.read(start, 1)
            try:
                act()
            except BaseException as error:
                os.write(result, f"{type(error).__name__}: {error}".encode())
            os._exit(0)
        os.close(start)
        os.close(result)

    def told(self) -> str:
        os.write(self._go, b"!")
        os.waitpid(self._pid, 0)
        with os.fdopen(self._result) as file:
            os.close(self._go)
            return file.read()


# ---------------------------------------------------------------------- what is spent


def test_what_is_added_is_read(ledger: Ledger) -> None:
    assert ledger.read("shop") == Spent() and ledger.models() == ["shop"]
    with ledger.claim("shop") as shop:
        assert (shop.epoch, shop.sequence, shop.durable) == (1, 0, 0)
        first = shop.add(Entry(1, 1, shares=((ANN, 1),), watched=((ANN, 1),)))
        second = shop.add(Entry(2, 1, shares=((BOB, 0),), used=((1, 1),), forgot=((7, ANN),)))
        assert (first, second, shop.sequence, shop.durable) == (1, 2, 2, 0)
        shop.wait(first)
        assert shop.durable == 2, "whoever writes, writes everything"
        shop.wait(shop.add(Entry(3, 2, "budget", shares=((ANN, 2),))))
        assert ledger.read("shop") == Spent(
            rounds=3,
            unsure=2,
            halted="budget",
            shares={ANN: 2},
            watched={ANN: 1},
            epoch=1,
            sequence=3,
            used=frozenset({(1, 1)}),
            forgot=((2, 7, ANN),),
        )
        with pytest.raises(ValueError, match="no entry"):
            shop.wait(4)


def test_nothing_is_ever_lowered(ledger: Ledger) -> None:
    """Late, doubled and foolish entries change nothing."""
    entries = [
        Entry(9, 5, "budget", shares=((ANN, 3),), watched=((ANN, 4),)),
        Entry(2, 1, None, shares=((ANN, 0),), watched=((ANN, 1),)),
        Entry(1, 1, "rounds", shares=((ANN, 2), (ANN, 1))),
    ]
    highest = (9, 5, "budget", {ANN: 3}, {ANN: 4})
    with ledger.claim("shop") as shop:
        for batch in ([entries[0]], [entries[1]], [entries[2]], entries[1:], entries[::-1]):
            for entry in batch:
                shop.add(entry)
            shop.wait(shop.sequence)
            spent = ledger.read("shop")
            assert (spent.rounds, spent.unsure, spent.halted, spent.shares, spent.watched) == highest


def test_models_are_kept_apart(ledger: Ledger) -> None:
    ledger.create("bank")
    with ledger.claim("shop") as shop, ledger.claim("bank") as bank:
        shop.add(Entry(1, 1, shares=((ANN, 1),), used=((1, 1),)))
        bank.add(Entry(5, 0, "rounds", shares=((ANN, 0),), forgot=((3, ANN),)))
        bank.sweep(10)
        bank.wait(1)
        shop.wait(1)
        assert ledger.read("shop") == Spent(1, 1, None, {ANN: 1}, {}, 1, 1, frozenset({(1, 1)}))
        assert ledger.read("bank") == Spent(5, 0, "rounds", epoch=1, sequence=1, forgot=((1, 3, ANN),))
    assert ledger.models() == ["bank", "shop"]


def test_a_model_can_begin_with_what_it_has_spent(ledger: Ledger) -> None:
    spent = Spent(9, 4, None, {ANN: 1}, {BOB: 2}, 3, 17, frozenset({(2, 8)}), ((11, 5, b""), (12, 5, BOB)))
    ledger.create("old", spent)
    assert ledger.read("old") == spent
    with ledger.claim("old") as old:
        assert (old.epoch, old.sequence) == (4, 17) and old.add(Entry(10, 4)) == 18
    with pytest.raises(StateError, match="already"):
        ledger.create("old")
    assert ledger.read("old").rounds == 10, "what is pending is written at the end"


def test_used_tickets_are_dropped_when_they_have_expired(ledger: Ledger) -> None:
    with ledger.claim("shop") as shop:
        shop.wait(shop.add(Entry(9, 0, used=((0, 3), (1, 4), (1, 9)))))
        assert len(ledger.read("shop").used) == 3
        shop.sweep(4)
        assert ledger.read("shop").used == {(1, 9)}


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "a b", "x" * 101, "ä", None, b"x"], ids=repr)
def test_a_name_is_part_of_a_files_name(name: Any, path: Path) -> None:
    with pytest.raises(ValueError, match="name"):
        Ledger(path).create(name)
    assert not path.exists()


def test_what_was_spent_is_not_in_a_repr() -> None:
    text = repr(Spent(rounds=5, unsure=123456, shares={ANN: 98765}, watched={ANN: 87654}, forgot=((1, 76543, ANN),)))
    assert not any(private in text for private in ("123456", "98765", "87654", "76543", "ann"))


def pages(path: Path) -> list[int]:
    """The numbers of the pages in a -wal, in the order in which they were written."""
    wal = path.with_name(path.name + "-wal").read_bytes()
    return [int.from_bytes(wal[at : at + 4]) for at in range(32, len(wal), 24 + 4096)]


def written(path: Path, counts: Callable[[int], int]) -> list[int]:
    """The pages that two rounds of each of 300 people leave, each with so many unsure answers more."""
    with Ledger(path) as ledger:
        ledger.create("shop")
        shop = ledger.claim("shop")
        for i in range(600):
            who = i * 7 % 300
            unsure = counts(who) * (1 + (i >= 300))
            shop.add(Entry(i, unsure, shares=((who.to_bytes(2) * 8, unsure),)))
            if i % 60 == 59:
                shop.wait(shop.sequence)
        return pages(path)


OUTCOMES: list[Callable[[int], int]] = [lambda who: 0, lambda who: 1, lambda who: who % 2, lambda who: 10 ** (who % 7)]


def test_what_is_written_does_not_depend_on_an_outcome(tmp_path: Path) -> None:
    """The same pages in the same order, sure or unsure."""
    seen = [written(tmp_path / f"{i}.db", counts) for i, counts in enumerate(OUTCOMES)]
    assert len(set(seen[0])) > 5 and all(some == seen[0] for some in seen)


@pytest.mark.parametrize("how", ["rows that change only with the count", "numbers that take the room they need"])
def test_what_would_depend_on_an_outcome(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    if how.startswith("rows"):
        monkeypatch.setattr(sqlite, "PERSON", sqlite.PERSON.partition(", sequence = excluded")[0])
    else:
        monkeypatch.setattr(sqlite, "WIDE", 0)
    seen = [written(tmp_path / "sure.db", lambda who: 0), written(tmp_path / "unsure.db", lambda who: who * 10**9)]
    assert seen[0] != seen[1]


def test_files_are_for_their_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with Ledger(path) as ledger:
            ledger.create("shop")
            shop = ledger.claim("shop")
            shop.wait(shop.add(Entry(1, 1)))
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.shop.lock"), 0o600)


# ---------------------------------------------------------------------- one owner


def test_a_second_owner_is_refused(ledger: Ledger, place: str) -> None:
    def claim() -> None:
        Ledger(place).claim("shop").close()

    early, late = Another(claim), Another(claim)
    shop = ledger.claim("shop")
    with pytest.raises(StateError, match=r"in use by another process, .*: two of them must not spend"):
        Ledger(place).claim("shop")
    assert "in use by another process" in early.told()
    shop.wait(shop.add(Entry(1, 1)))
    assert ledger.read("shop").epoch == 1, "who is refused changes nothing"
    shop.close()
    shop.close()
    assert late.told() == ""
    assert ledger.read("shop") == Spent(1, 1, epoch=2, sequence=1)
    with pytest.raises(StateError, match="closed"):
        shop.add(Entry(2, 1))
    with pytest.raises(StateError, match="closed"):
        shop.wait(1)


def test_a_dead_owner_holds_nothing(ledger: Ledger, place: str) -> None:
    def die() -> None:
        shop = Ledger(place).claim("shop")
        shop.wait(shop.add(Entry(3, 2, shares=((ANN, 2),))))
        os._exit(1)

    assert Another(die).told() == ""
    assert ledger.read("shop") == Spent(3, 2, None, {ANN: 2}, epoch=1, sequence=1)
    with ledger.claim("shop") as shop:
        assert (shop.epoch, shop.sequence) == (2, 1)


def test_anybody_reads_while_the_owner_writes(ledger: Ledger, place: str) -> None:
    def look() -> None:
        assert Ledger(place).read("shop").rounds == 2 and Ledger(place).models() == ["shop"]

    other = Another(look)
    with ledger.claim("shop") as shop:
        shop.wait(shop.add(Entry(1, 1)))
        shop.wait(shop.add(Entry(2, 1)))
        assert other.told() == ""
        shop.wait(shop.add(Entry(3, 1)))
        assert ledger.read("shop").rounds == 3


def test_two_processes_own_two_models(ledger: Ledger, place: str) -> None:
    ledger.create("bank")

    def live(name: str) -> None:
        with Ledger(place).claim(name) as one:
            for i in range(1, 31):
                one.wait(one.add(Entry(i, i, shares=((bytes([i]), i),))))
                assert Ledger(place).read(name).rounds == i

    other = Another(lambda: live("bank"))
    told: list[str] = []
    beside = threading.Thread(target=lambda: told.append(other.told()))
    beside.start()
    live("shop")
    beside.join()
    assert told == [""]
    assert ledger.read("shop") == ledger.read("bank") and len(ledger.read("bank").shares) == 30


@pytest.mark.parametrize("name", ["a b", "50%", "why?", "#1", "ä & ö"])
def test_a_folder_may_have_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with Ledger("ledger.db") as ledger:
        ledger.create("shop")
        shop = ledger.claim("shop")
        monkeypatch.chdir(tmp_path)
        shop.wait(shop.add(Entry(1, 1)))
        assert Ledger(tmp_path / name / "ledger.db").read("shop").rounds == ledger.read("shop").rounds == 1


def test_a_forked_process_writes_nothing(ledger: Ledger, place: str) -> None:
    with ledger.claim("shop") as shop:
        first = shop.add(Entry(1, 1))
        uses: list[Callable[[], object]] = [
            lambda: shop.add(Entry(2, 2)),
            lambda: shop.wait(first),
            lambda: shop.sweep(1),
            lambda: ledger.claim("shop"),
            lambda: Ledger(place).claim("shop"),
            lambda: Ledger(place).read("shop"),
            lambda: ledger.create("second"),
        ]
        for use in uses:
            assert "forked" in Another(use).told()
        assert Another(shop.close).told() == "", "nothing to do"
        assert Another(sys.exit).told() == "SystemExit: "
        assert shop.durable == 0
        other = subprocess.run([sys.executable, "-c", CLAIM, place], capture_output=True, text=True)
        assert "in use by another process" in other.stderr, "no fork has given the lock back"
        shop.wait(first)
    assert ledger.read("shop") == Spent(1, 1, epoch=1, sequence=1)


CLAIM = "import sys; from confide.ledger import Ledger; shop = Ledger(sys.argv[1]).claim('shop')"


def test_an_owner_that_lost_its_lock_writes_nothing(filed: Ledger, path: Path) -> None:
    """Say, somebody removed the lock's file: the epoch still tells the owners apart."""
    first = filed.claim("shop")
    first.wait(first.add(Entry(1, 1)))
    path.with_name("ledger.db.shop.lock").unlink()
    second = Ledger(path).claim("shop")
    assert (first.epoch, second.epoch) == (1, 2)
    second.wait(second.add(Entry(2, 1)))
    for _ in range(2):
        with pytest.raises(StateError, match="taken over"):
            first.wait(first.add(Entry(9, 9)))
    first.close()
    second.wait(second.add(Entry(3, 1)))
    second.close()
    assert filed.read("shop") == Spent(3, 1, epoch=2, sequence=3)


def test_a_book_that_is_dropped_gives_the_model_back(filed: Ledger, path: Path) -> None:
    shop = filed.claim("shop")
    shop.wait(shop.add(Entry(4, 1)))
    del shop
    path.with_name("ledger.db-wal").unlink()  # all of it is in the tables
    assert filed.read("shop").rounds == 4
    filed.claim("shop").close()


def test_a_process_may_end_without_a_close(filed: Ledger, path: Path) -> None:
    subprocess.run([sys.executable, "-c", CLAIM, str(path)], check=True)
    path.with_name("ledger.db-wal").unlink()
    assert filed.read("shop").epoch == 1
    filed.claim("shop").close()


def test_the_disk_is_asked_every_time(filed: Ledger) -> None:
    with filed.claim("shop") as shop:
        (synchronous,) = shop._store.db.execute("PRAGMA synchronous").fetchone()
        (mode,) = shop._store.db.execute("PRAGMA journal_mode").fetchone()
    assert (synchronous, mode) == (2, "wal")


# ---------------------------------------------------------------------- damage


@pytest.fixture
def left(filed: Ledger, path: Path) -> Path:
    """What a process leaves that was killed: something in the tables, something in the -wal."""
    with filed.claim("shop") as shop:
        for i in range(40):
            shop.add(Entry(i, i // 2, shares=((bytes([i]) * 16, i % 3),), used=((0, i),), forgot=((i, bytes([i])),)))
        shop.add(Entry(40, 20, labels=((b"a", 1),), history=3, released=(("node", 0, b"noisy" * 9, b"exact" * 9),)))
        shop.add(Entry(40, 20, notes=(("asked", 20, b"a" * 60),), sealed="for a test"))

    def die() -> None:
        shop = Ledger(path).claim("shop")
        shop.wait(shop.add(Entry(41, 20)))
        os._exit(1)

    assert Another(die).told() == ""
    return path


@pytest.mark.parametrize("junk", [b"", b"\0" * 5000, b"SQLite format 3\0" + b"x" * 5000, os.urandom(5000)], ids=len)
def test_what_is_not_a_ledger_is_refused(junk: bytes, path: Path) -> None:
    path.write_bytes(junk)
    for use in (Ledger.models, lambda ledger: ledger.read("shop"), lambda ledger: ledger.claim("shop")):
        with pytest.raises(StateError, match=r"not a ledger|damaged"):
            use(Ledger(path))
    if junk:
        with pytest.raises(StateError, match=r"not a ledger|damaged"):
            Ledger(path).create("shop")
        assert path.read_bytes() == junk
    else:
        Ledger(path).create("shop")  # what a process leaves that was killed while it made the file
        assert Ledger(path).models() == ["shop"]


def test_other_peoples_databases_are_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE model(name)")
    db.close()
    before = path.read_bytes()
    for use in (Ledger.models, lambda ledger: ledger.create("shop"), lambda ledger: ledger.claim("shop")):
        with pytest.raises(StateError, match="not a ledger"):
            use(Ledger(path))
    assert path.read_bytes() == before


def test_a_missing_ledger_is_not_made_by_looking(path: Path, tmp_path: Path) -> None:
    for use in (Ledger.models, lambda ledger: ledger.read("shop"), lambda ledger: ledger.claim("shop")):
        with pytest.raises(StateError, match="no ledger"):
            use(Ledger(path))
    assert not list(tmp_path.iterdir())
    with pytest.raises(StateError, match="cannot be made"):
        Ledger(tmp_path / "no folder" / "ledger.db").create("shop")


def test_a_missing_model_is_refused(ledger: Ledger) -> None:
    for use in (ledger.read, ledger.claim):
        with pytest.raises(StateError, match="no model"):
            use("bank")


def test_a_later_version_is_refused(filed: Ledger, path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 6")
    db.close()
    for use in (filed.read, filed.claim, filed.create):
        with pytest.raises(StateError, match="version 6"):
            use("shop")


def copied(left: Path, folder: Path) -> Path:
    """The ledger and its -wal elsewhere, without SQLite's index of it."""
    folder.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):
        shutil.copy(left.with_name(name), folder)
    return folder / "ledger.db"


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_missing_wal_is_refused(how: str, left: Path, tmp_path: Path) -> None:
    """The tables alone would be a whole ledger, and forget what was spent last."""
    path = copied(left, tmp_path / "copy")
    wal = path.with_name("ledger.db-wal")
    wal.unlink()
    if how == "empty":
        wal.touch()
    for use in (Ledger.read, Ledger.claim, Ledger.read):  # more than once: looking makes an empty one
        with pytest.raises(StateError, match=r"ledger\.db-wal is missing"):
            use(Ledger(path), "shop")
    path.with_name("ledger.db-shm").unlink(missing_ok=True)
    shutil.copy(left.with_name("ledger.db-wal"), path.parent)
    assert Ledger(path).read("shop").rounds == 41


def test_who_closes_last_leaves_the_wal_to_others(left: Path) -> None:
    """The dead owner of another model still counts on it; SQLite would remove it."""
    with Ledger(left) as ledger:
        ledger.create("bank")
        ledger.claim("bank")
    assert left.with_name("ledger.db-wal").stat().st_size > 0
    assert Ledger(left).read("shop").rounds == 41
    Ledger(left).claim("shop").close()


def test_after_a_clean_end_the_file_alone_is_the_ledger(left: Path, tmp_path: Path) -> None:
    with Ledger(left) as ledger:
        ledger.claim("shop")
    path = copied(left, tmp_path / "copy")
    path.with_name("ledger.db-wal").unlink()
    assert Ledger(path).read("shop") == Ledger(left).read("shop")


def test_a_changed_byte_is_noticed(left: Path, tmp_path: Path) -> None:
    """Wherever it is: the file is refused, or says the same as before."""
    with Ledger(left) as ledger:
        ledger.claim("shop")  # everything is in the tables
    whole, spent = left.read_bytes(), Ledger(left).read("shop")
    coins = random.Random(1)
    used = [at for at, byte in enumerate(whole) if byte]
    refused = 0
    for i in range(80):
        path = tmp_path / f"{i}.db"
        at = coins.choice(used)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << coins.randrange(8)]) + whole[at + 1 :])
        try:
            with SqliteStore(path) as file:
                file.check_whole()
            assert Ledger(path).read("shop") == spent, f"byte {at}"
        except StateError:
            refused += 1
    assert refused > 40


def test_a_row_that_is_no_models_any_more_is_noticed(left: Path) -> None:
    """One bit of a table's first row takes it out of its model, and the table stays in order."""
    with Ledger(left) as ledger:
        ledger.claim("shop")
    with closing(sqlite3.connect(left)) as db, db:
        first = "(SELECT min(sequence) FROM forgot)"
        assert db.execute(f"UPDATE forgot SET model = 0 WHERE sequence = {first}").rowcount == 1
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with pytest.raises(StateError, match="damaged"):
        Ledger(left).claim("shop")


@pytest.mark.parametrize("table", ["person", "used", "forgot", "life", "sealed"])
def test_a_row_that_went_to_another_model_is_noticed(table: str, path: Path) -> None:
    """One bit of a row's model, where a ledger has several: a sealed model was open again, a used ticket good."""
    with Ledger(path) as ledger:
        for name in ("shop", "bank"):
            ledger.create(name)
        spent = Entry(1, 1, shares=((ANN, 1),), used=((1, 1),), forgot=((0, ANN),), sealed="an old backup")
        with ledger.claim("shop") as book:
            book.wait(book.add(spent))
    with closing(sqlite3.connect(path)) as db, db:
        bank = "(SELECT id FROM model WHERE name = 'bank')"
        assert db.execute(f"UPDATE {table} SET model = {bank}").rowcount == 1
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    for name in ("shop", "bank"):
        with pytest.raises(StateError, match="damaged"):
            Ledger(path).claim(name)


def test_a_person_whose_row_is_not_as_it_was_written_is_not_signed_anew(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.create("shop")
        book = ledger.claim("shop")
        book.wait(book.add(Entry(1, 0, shares=((ANN, 0),), labels=((ANN, 3),))))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE person SET labels = labels - 2")
        with pytest.raises(StateError, match="damaged"):
            book.wait(book.add(Entry(2, 0, shares=((ANN, 0), (BOB, 0)))))
        book.close()
    with pytest.raises(StateError, match="damaged"):
        Ledger(path).read("shop")


def test_a_model_whose_row_is_not_as_it_was_written_is_not_signed_anew(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.create("shop")
        book = ledger.claim("shop")
        book.wait(book.add(Entry(rounds=9, unsure=5)))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE model SET unsure = 4")
        with pytest.raises(StateError, match="damaged"):
            book.wait(book.add(Entry(rounds=10, unsure=5)))
        book.close()


def test_a_table_that_is_not_as_it_was_made_is_noticed(left: Path) -> None:
    """One bit of SQLite's own list, in PRIMARY KEY, and a sealed model was open again."""
    with Ledger(left) as ledger:
        ledger.claim("shop")
    whole = left.read_bytes()
    at = whole.index(b"PRIMARY", whole.index(b"TABLE sealed("))
    for byte in range(at, at + 7):
        left.with_name("ledger.db-wal").unlink(missing_ok=True)
        left.write_bytes(whole[:byte] + bytes([whole[byte] ^ 2]) + whole[byte + 1 :])
        with pytest.raises(StateError, match="damaged"):
            Ledger(left).claim("shop")


def test_no_statement_numbers_its_values() -> None:
    """From Python 3.12 on SQLite's module warns of that, and where warnings are errors nothing would be written."""
    folder = Path(sqlite.__file__).parent
    assert not [at.name for at in folder.parent.rglob("*.py") if re.search(r"\?[0-9]", at.read_text())]


def test_a_checksum_tells_what_kind_of_value_each_is() -> None:
    """One bit of a row's header makes a text of bytes, and its checksum was the same."""
    alike = 0, None, "", b"", "\0" * 8, b"\0" * 8
    assert len({checksum(1, value) for value in alike}) == len(alike)


def test_a_damaged_page_is_refused_before_anything_is_spent(left: Path) -> None:
    with Ledger(left) as ledger:
        ledger.claim("shop")
    whole = left.read_bytes()
    for page in range(1, len(whole) // 4096):
        left.with_name("ledger.db-wal").unlink(missing_ok=True)  # it would hide the damage
        left.write_bytes(whole[: page * 4096 + 8] + b"\xff" * 8 + whole[page * 4096 + 16 :])
        with pytest.raises(StateError, match="damaged"):
            Ledger(left).claim("shop")
    left.write_bytes(whole)
    assert Ledger(left).read("shop").rounds == 41


# ---------------------------------------------------------------------- many threads


def test_one_thread_writes_for_all(filed: Ledger) -> None:
    """What any thread has waited for is in the file, and there are fewer transactions than entries."""
    shop = filed.claim("shop")
    commits: list[str] = []
    shop._store.db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    write = shop._write

    def slow() -> None:
        """A disk that takes its time: the first time until everybody has come."""
        until = time.monotonic() + 30
        while shop.sequence < 16 and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.005)
        write()

    shop._write = slow  # type: ignore[method-assign]
    reported: list[tuple[int, bytes]] = []
    account, count = threading.Lock(), 0

    def ask(thread: int) -> None:
        nonlocal count
        for i in range(12):
            who = bytes([thread, i]) * 8
            with account:
                count += 1
                number = shop.add(Entry(count, count, shares=((who, 1),)))
            shop.wait(number)
            assert shop.durable >= number
            reported.append((count, who))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen = list(reported)
        spent = filed.read("shop")
        assert all(who in spent.shares for _, who in seen)
    for thread in threads:
        thread.join()
    spent = filed.read("shop")
    assert len(reported) == 192 == len(spent.shares) == spent.rounds == spent.sequence
    assert len(commits) <= 192 - 15  # all sixteen threads' first entries went out together
    shop.close()


def test_whoever_claims_a_model_waits_for_another_who_settles_the_file(tmp_path: Path) -> None:
    """SQLite refuses a second checkpoint at once, however long writes wait: `claim` failed under load."""
    Ledger(tmp_path / "ledger.db").create("m")
    store, busy = SqliteStore(tmp_path / "ledger.db"), [(1, 0, 0)] * 3

    class Busy:
        def execute(self, sql: str) -> Any:
            return SimpleNamespace(fetchone=lambda: busy.pop() if busy else (0, 0, 0))

    with closing(store):
        held, store.db = store.db, Busy()  # type: ignore[assignment]
        store.settle()
        store.db = held
    assert not busy


def test_books_of_many_models_share_the_file(ledger: Ledger) -> None:
    names = [f"model-{i}" for i in range(4)]
    for name in names:
        ledger.create(name)

    def live(name: str) -> None:
        with ledger.claim(name) as one:
            for i in range(10):
                one.wait(one.add(Entry(i + 1, i)))

    threads = [threading.Thread(target=live, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ledger.read(name) == Spent(10, 9, epoch=1, sequence=10) for name in names)
