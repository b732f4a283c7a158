"""The ledger on a PostgreSQL server: what is its own. What both stores promise is in the other tests of the ledger."""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from confide import POP
from confide.errors import StateError
from confide.ledger import Book, Entry, Ledger, Spent
from tests.saved import fork
from tests.servers import Cluster, start
from tests.test_periods import by_period, next_period
from tests.test_periods import people as periodical
from tests.test_periods import taught as teaches
from tests.test_successors import TWO, people, taught

psycopg = pytest.importorskip("psycopg", reason='no psycopg here: pip install "confide[postgres]"')
postgres = pytest.importorskip("confide.ledger.postgres")

ANN, BOB = b"a" * 16, b"b" * 16
ENDED = r"could not be written \(the server cannot be reached.*nothing is answered any more"


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.fresh()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger(url) as made:
        made.create("shop")
        yield made


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A server that may be stopped."""
    running = start()
    yield running
    running.end()


def refused(act: Callable[[], object], match: str = ENDED) -> str:
    with pytest.raises(StateError, match=match) as caught:
        act()
    return str(caught.value)


def pid(book: Book) -> int:
    return int(book._store.db.info.backend_pid)  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- one owner


def test_an_owner_whose_lock_is_gone_writes_nothing(ledger: Ledger, url: str) -> None:
    """Say, a pool between us and the server mixed up the connections: the epoch still tells the owners apart."""
    first = ledger.claim("shop")
    first.wait(first.add(Entry(1, 1)))
    first._store.run("SELECT pg_advisory_unlock_all()")  # type: ignore[attr-defined]
    second = Ledger(url).claim("shop")
    assert (first.epoch, second.epoch) == (1, 2)
    second.wait(second.add(Entry(2, 1)))
    for _ in range(2):
        refused(lambda: first.wait(first.add(Entry(9, 9))), "taken over")
    first.close()
    second.wait(second.add(Entry(3, 1)))
    second.close()
    assert ledger.read("shop") == Spent(3, 1, epoch=2, sequence=3)


def test_locks_are_a_models_own(ledger: Ledger, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither another model nor the same name in another schema is in the way."""
    monkeypatch.setattr(postgres, "_HANDOVER", 0.05)
    ledger.create("bank")
    other = Ledger(cluster.fresh())
    other.create("shop")
    with ledger.claim("shop"), ledger.claim("bank"), other.claim("shop"):
        refused(lambda: ledger.claim("bank"), "bank of the ledger .* in use by another process")


def test_a_lost_connection_is_a_write_that_failed(ledger: Ledger, url: str, cluster: Cluster) -> None:
    """The lock went with it: so nothing is answered any more, and no second connection is made."""
    shop = ledger.claim("shop")
    shop.wait(shop.add(Entry(1, 1)))
    cluster.execute(f"SELECT pg_terminate_backend({pid(shop)})")
    pending = shop.add(Entry(2, 2))
    said = {refused(act) for act in (lambda: shop.wait(pending), lambda: shop.wait(1), lambda: shop.add(Entry(3, 3)))}
    assert len(said) == 1 and shop.durable == 1
    with Ledger(url).claim("shop") as again:
        again.wait(again.add(Entry(2, 1)))
    refused(lambda: shop.add(Entry(9, 9)))
    shop.close()
    assert ledger.read("shop") == Spent(2, 1, epoch=2, sequence=2)


def test_a_label_finds_out_first_and_the_next_question_ends_it(ledger: Ledger, cluster: Cluster) -> None:
    shop = ledger.claim("shop")
    cluster.execute(f"SELECT pg_terminate_backend({pid(shop)})")
    for _ in range(2):
        refused(lambda: shop.wait(shop.add(Entry(0, 0, used=((1, 1),))), private=True), "try again")
    assert not shop.ended
    refused(lambda: shop.wait(shop.add(Entry(1, 0))))
    assert shop.ended and ledger.read("shop").used == frozenset()


def test_a_server_that_restarts_forgets_nothing(own: Cluster) -> None:
    """As after a crash: whatever was waited for is there."""
    url = own.fresh()
    ledger = Ledger(url)
    ledger.create("shop")
    shop = ledger.claim("shop")
    shop.wait(shop.add(Entry(5, 2, shares=((ANN, 2),), notes=(("asked", 40, ANN + bytes(24)),))))
    own.stop("immediate")
    refused(lambda: shop.wait(shop.add(Entry(6, 3))))
    refused(lambda: ledger.read("shop"), "cannot be opened: the server cannot be reached")
    own.start()
    refused(lambda: shop.add(Entry(6, 3)))
    assert ledger.read("shop") == Spent(5, 2, None, {ANN: 2}, epoch=1, sequence=1)
    with ledger.claim("shop") as again:
        assert (again.epoch, again.sequence, len(ledger.journal("shop"))) == (2, 1, 1)
    shop.close()


# ---------------------------------------------------------------------- killed


def _live(url: str, pipe: int) -> None:
    """Two threads that add, wait and tell, until they are killed."""
    book, rounds, account = Ledger(url).claim("shop"), Ledger(url).read("shop").rounds, threading.Lock()

    def ask() -> None:
        nonlocal rounds
        while True:
            with account:
                rounds += 1
                mine, who = rounds, bytes([rounds % 9]) * 16
                number = book.add(Entry(mine, mine, shares=((who, mine),), used=((book.epoch, mine),)))
            book.wait(number)
            os.write(pipe, json.dumps([mine, who.hex(), number, book.epoch]).encode() + b"\n")

    threading.Thread(target=ask, daemon=True).start()
    ask()


def _kill(url: str, after: float) -> list[Any]:
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            _live(url, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.readline()
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told += file.read()
    return [json.loads(line) for line in told.splitlines()]


def _kill_many(ledger: Ledger, url: str, kills: int) -> int:
    told: list[Any] = []
    moments = random.Random(1)
    for _ in range(kills):
        told += _kill(url, moments.uniform(0, 0.05))
        spent = ledger.read("shop")
        for rounds, who, number, epoch in told:
            assert spent.rounds >= rounds <= spent.unsure and spent.sequence >= number and spent.epoch >= epoch
            assert spent.shares[bytes.fromhex(who)] >= rounds and (epoch, rounds) in spent.used
    assert ledger.read("shop").epoch == kills, "every one of them was let in after the one before"
    return len(told)


def test_killed_owners_forget_nothing_and_hold_nothing(ledger: Ledger, url: str) -> None:
    assert _kill_many(ledger, url, 6) > 12


def test_an_owner_that_tells_too_early_is_noticed(ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Book.wait
    monkeypatch.setattr(Book, "wait", lambda book, number: wait(book, number) if number % 50 == 0 else None)
    with pytest.raises((AssertionError, KeyError)):
        _kill_many(ledger, url, 6)


# ---------------------------------------------------------------------- what is written


def test_one_persons_rows_are_overwritten_and_dropped_notes_are_gone(
    ledger: Ledger, url: str, cluster: Cluster
) -> None:
    def seen() -> str:
        return str(cluster.execute("SELECT encode(body, 'escape') FROM journal", url))

    secret = ANN + b"needle" + bytes(18)
    with ledger.claim("shop") as shop:
        at = shop.add(Entry(2, 0, notes=(("asked", 40, secret + BOB + b"straw" + bytes(19)), ("taught", 40, secret))))
        shop.wait(at)
        assert "needle" in seen()
        later = shop.add(Entry(3, 0, notes=(("asked", 40, secret),)))
        theirs = ("asked", at, (b"left",)), ("taught", at, ()), ("asked", later, (b"left",)), ("asked", 99, ())
        erased = tuple((kind, number, ANN, left) for kind, number, left in theirs)
        shop.wait(shop.add(Entry(3, 0, erased=erased)))
        assert "needle" not in seen() and "straw" in seen() and seen().count("left") == 2
        assert len(ledger.journal("shop")) == 3
        shop.tear("asked", later)
        shop.wait(shop.add(Entry(4, 0)))
        assert "straw" not in seen() and [kind for kind, *_ in ledger.journal("shop")] == ["taught"]


@pytest.mark.parametrize(
    "change", ["model SET unsure = 0", "person SET unsure = unsure - 1", "used SET number = 9", "life SET rounds = 7"]
)
def test_a_changed_row_is_refused(change: str, ledger: Ledger, url: str, cluster: Cluster) -> None:
    with ledger.claim("shop") as shop:
        shop.wait(shop.add(Entry(1, 1, shares=((ANN, 1),), used=((1, 1),))))
        cluster.execute(f"UPDATE {change}", url)
        refused(lambda: ledger.read("shop"), "damaged")
        if "model" in change or "person" in change:
            refused(lambda: shop.wait(shop.add(Entry(2, 1, shares=((ANN, 1),)))), "damaged")


def test_a_changed_note_is_refused(ledger: Ledger, url: str, cluster: Cluster) -> None:
    with ledger.claim("shop") as shop:
        shop.wait(shop.add(Entry(1, 1, notes=(("asked", 40, ANN + bytes(24)),))))
    cluster.execute("UPDATE journal SET body = 'x'", url)
    refused(lambda: ledger.journal("shop"), "damaged")


class Wire:
    """The sizes of everything that goes to the server, and comes from it."""

    def __init__(self, book: Book, path: Path) -> None:
        self._file = open(path, "wb+")  # noqa: SIM115  # libpq writes to it
        self._connection = book._store.db.pgconn  # type: ignore[attr-defined]
        self._connection.trace(self._file.fileno())
        self._connection.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)

    def sizes(self) -> list[tuple[bytes, bytes, bytes]]:
        """(who sent it, bytes, kind) of every message."""
        self._connection.untrace()
        self._file.seek(0)
        lines = [line.split(b"\t")[:3] for line in self._file.read().splitlines()]
        found = [tuple(line) for line in lines if line[0] in (b"F", b"B")]
        self._file.close()
        return found  # type: ignore[return-value]


def _written(url: str, path: Path, counts: Callable[[int], int], body: Callable[[int], bytes]) -> list[Any]:
    """The messages that two rounds of each of 20 people are, and the room that their rows take."""
    with Ledger(url) as ledger:
        ledger.create("shop")
        shop = ledger.claim("shop")
        wire = Wire(shop, path)
        for i in range(40):
            unsure = counts(i % 20) * (1 + i // 20)
            who = bytes([i % 20]) * 16
            shop.wait(shop.add(Entry(i + 1, unsure, shares=((who, unsure),), notes=(("asked", 4000, body(i)),))))
        rows = shop._store.rows("SELECT pg_column_size(body) FROM journal")
        rows += shop._store.rows("SELECT pg_column_size(person) FROM person")
        sizes = [one for one in wire.sizes() if one[2] != b"Flush"]  # sent again while an answer is on its way
        return [[one for one in sizes if one[0] == who] for who in (b"F", b"B")] + [sorted(rows)]


OUTCOMES: list[tuple[Callable[[int], int], Callable[[int], bytes]]] = [
    (lambda who: 0, lambda i: bytes(4000)),
    (lambda who: who % 2, lambda i: random.Random(i).randbytes(4000)),
    (lambda who: 10 ** (who % 7), lambda i: b"yes " * 1000),
]


def test_what_is_written_does_not_depend_on_an_outcome(cluster: Cluster, tmp_path: Path) -> None:
    """The same messages of the same sizes, and rows of the same sizes: sure or unsure, whatever was answered."""
    seen = [_written(cluster.fresh(), tmp_path / f"{i}", *outcome) for i, outcome in enumerate(OUTCOMES)]
    assert len(seen[0][0]) > 400 and all(some == seen[0] for some in seen)


@pytest.mark.parametrize("how", ["numbers that take the room they need", "compressed bodies"])
def test_what_would_depend_on_an_outcome(
    how: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""
    server = pytest.importorskip("confide.ledger.server")
    if how.startswith("numbers"):
        monkeypatch.setattr(server, "wide", lambda value: value)
    else:
        monkeypatch.setattr(server, "_PLAIN", ())
    seen = [_written(cluster.fresh(), tmp_path / f"{i}", *outcome) for i, outcome in enumerate(OUTCOMES)]
    assert seen[0] != seen[2]


def test_a_group_of_entries_is_two_ways_there_and_back(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.claim("shop") as shop:
        counts = []
        for size in (1, 50):
            for i in range(size):
                shop.add(Entry(i, i, shares=((bytes([i]) * 16, 1),), used=((1, i),), notes=(("asked", 16, ANN),)))
            wire = Wire(shop, tmp_path / str(size))
            shop.wait(shop.sequence)
            sent = [who for who, *_ in wire.sizes()]
            counts.append(sum(a == b"F" and b == b"B" for a, b in pairwise(sent)))
    assert max(counts) <= 3, "the last is the end of the group itself"


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("value", ["off", "local"])
def test_a_connection_that_may_forget_is_refused(value: str, ledger: Ledger, url: str, cluster: Cluster) -> None:
    careless = cluster.url(url.rpartition("%3D")[2], synchronous_commit=value)
    refused(lambda: Ledger(careless).claim("shop"), "may forget what it committed: set synchronous_commit = on")
    assert ledger.read("shop").epoch == 0


def test_a_server_that_may_forget_is_refused(own: Cluster) -> None:
    url = own.fresh()
    Ledger(url).create("shop")
    for name, value in (("fsync", "off"), ("full_page_writes", "off"), ("wal_compression", "on")):
        own.stop()
        own.start(**{name: value})
        refused(lambda name=name: Ledger(url).claim("shop"), f"set {name} = ")  # type: ignore[misc]


def test_a_database_without_an_encoding_is_as_good_as_any(cluster: Cluster) -> None:
    """Texts came back as bytes: a first start was refused in wrong words, and later ones found their name taken."""
    cluster.execute("CREATE DATABASE plain TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    with Ledger(cluster.url("public").replace("///postgres?", "///plain?")) as ledger:
        ledger.create("shop")
        assert ledger.models() == ["shop"]
        ledger.claim("shop").close()


def test_it_stays_so_when_the_server_is_told_otherwise(ledger: Ledger, cluster: Cluster) -> None:
    with ledger.claim("shop") as shop:
        try:
            cluster.execute("ALTER SYSTEM SET synchronous_commit = off")
            cluster.execute("SELECT pg_reload_conf()")
            shop.wait(shop.add(Entry(1, 0)))
            assert shop._store.rows("SELECT current_setting('synchronous_commit')") == [("on",)]
        finally:
            cluster.execute("ALTER SYSTEM RESET synchronous_commit")
            cluster.execute("SELECT pg_reload_conf()")


def test_other_peoples_tables_are_left_alone(url: str, cluster: Cluster) -> None:
    cluster.execute("CREATE TABLE model(name text)", url)
    refused(lambda: Ledger(url).create("shop"), "a schema or database of its own")
    for use in (Ledger.models, lambda ledger: ledger.read("shop"), lambda ledger: ledger.claim("shop")):
        refused(lambda use=use: use(Ledger(url)), "no ledger")  # type: ignore[misc]
    tables = cluster.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()", url)
    assert tables == [("model",)], "and looking makes nothing"


def test_what_is_not_there_is_refused(ledger: Ledger, url: str, cluster: Cluster) -> None:
    for use in (ledger.read, ledger.claim, ledger.discard):
        refused(lambda use=use: use("bank"), "no model")  # type: ignore[misc]
    refused(lambda: Ledger(cluster.url("nowhere")).create("shop"), "no schema")
    cluster.execute("UPDATE confide_ledger SET version = 6", url)
    for use in (ledger.read, ledger.claim):
        refused(lambda use=use: use("shop"), "version 6")  # type: ignore[misc]


def test_somebody_who_holds_the_tables_is_waited_for_and_then_not(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE", 0.1)
    shop = ledger.claim("shop")
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE model")
        refused(lambda: shop.wait(shop.add(Entry(1, 1))), "another process holds it")


def test_no_password_is_in_a_sentence() -> None:
    ledger = Ledger("postgresql://ann:hunter2@127.0.0.1:1/books?password=hunter3")
    said = refused(ledger.models, "cannot be opened") + repr(ledger) + ledger.name
    assert "hunter" not in said and "postgresql://127.0.0.1:1/books" in said


# ---------------------------------------------------------------------- lives


def test_lives_go_on_over_successors_in_one_ledger(url: str, tmp_path: Path) -> None:
    """Each person teaches one label in each of two models: one is sealed for its heir, and has no other."""
    old = people()
    old.save(tmp_path / "1", ledger=url, model="first")
    assert taught(old, "ann") == [True]
    old.predict([1.0, 2.0], "bob")
    old.close()
    where: dict[str, Any] = {"ledger": url, "old_ledger": url, "old_model": "first"}
    refused(lambda: people().succeed(tmp_path / "1", tmp_path / "2", TWO, model="first", **where), "already")
    new = people()
    assert new.succeed(tmp_path / "1", tmp_path / "2", TWO, model="second", **where).people == 1
    assert taught(new, "ann", "ann", "bob") == [True, False, True]
    new.close()
    refused(lambda: POP.load(tmp_path / "1", ledger=url, model="first"), "has a successor")
    refused(lambda: people().succeed(tmp_path / "1", tmp_path / "3", TWO, model="third", **where), "another successor")
    new = POP.load(tmp_path / "2", ledger=url, model="second")
    assert taught(new, "ann", "bob") == [False, False]
    new.close()
    third, where = people(), {**where, "old_model": "second"}
    assert third.succeed(tmp_path / "2", tmp_path / "4", model="third", **where).spent == 1
    assert taught(third, "ann", "bob") == [False, True]
    third.close()


def test_caps_by_period_live_in_it(url: str, tmp_path: Path) -> None:
    pop = periodical(by_period(periods=2))
    pop.save(tmp_path / "s", ledger=url, model="m")
    for learned in ([True, False], [True, False], [False, False]):
        assert [teaches(pop), teaches(pop)] == learned
        next_period(pop)
        pop.close()
        pop = POP.load(tmp_path / "s", ledger=url, model="m")
    pop.close()
