"""A ledger moves between a file and a server: every row arrives, and at no moment can both be spent from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from confide import POP
from confide.cli.app import app
from confide.errors import StateError
from confide.ledger import Entry, Ledger, Spent
from confide.ledger.sqlite import SqliteStore
from confide.ledger.store import Image, Store
from tests.servers import Cluster
from tests.test_successors import TWO, lived, people, taught

pytest.importorskip("psycopg", reason='no psycopg here: pip install "confide[postgres]"')
postgres = pytest.importorskip("confide.ledger.postgres")

STORES = (SqliteStore, postgres.ServerStore)
NAMES = {"pop": "spam", "pop.before": "spam.before"}
BACK = {to: name for name, to in NAMES.items()}
ANN, BOB = b"a" * 16, b"b" * 16
NOTES = (("question", 24, ANN + b"12345678" + BOB + b"\0" * 8),)


def filled(ledger: Ledger) -> Spent:
    """A ledger with something in every table, and an heir's second row."""
    ledger.create("pop")
    ledger.create("pop.before", Spent(labels={ANN: 3}))
    for first in (1, 3):
        with ledger.claim("pop") as book:
            for i in (first, first + 1):
                entry = Entry(
                    rounds=i, unsure=1, shares=((ANN, 1), (BOB, 0)), watched=((BOB, i),), used=((1, i),),
                    forgot=((i, BOB),), labels=((ANN, i),), history=7, released=(("linear", i, b"noisy", b"exact"),),
                    notes=NOTES,
                )  # fmt: skip
                book.wait(book.add(entry))
    return ledger.read("pop")


def image(ledger: Ledger, model: str) -> Image:
    with ledger._place.reader() as reader:
        return reader.image(model)


def usable(ledger: Ledger, model: str) -> bool:
    """Whether somebody could spend from it now."""
    try:
        if model not in ledger.models():
            return False
        ledger.claim(model).close()
    except StateError as error:
        assert "move" in str(error) or "there is no ledger" in str(error), error
        return False
    return True


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db") as ledger:
        yield ledger


@pytest.fixture
def server(cluster: Cluster) -> Iterator[Ledger]:
    with Ledger(cluster.fresh()) as ledger:
        yield ledger


def rows(image: Image) -> dict[str, Any]:
    """All rows but the lives: claiming a model adds one."""
    return {name: found for name, found in image.tables.items() if name != "life"}


def test_every_row_arrives_and_comes_back(disk: Ledger, server: Ledger) -> None:
    spent = filled(disk)
    before, people_before, notes = image(disk, "pop"), disk.people("pop", 2), disk.journal("pop")
    assert all(before.tables[table] for table in before.tables if table != "sealed"), "something is in every table"
    disk.move(server, NAMES)
    moved = image(server, "spam")
    assert rows(moved) == rows(before) and moved.about[1:] == before.about[1:] and moved.lives > before.lives
    assert server.people("spam", 2) == people_before and server.journal("spam") == notes
    with pytest.raises(StateError, match=r"'pop' was moved to the ledger postgresql://.*load the state with that one"):
        disk.claim("pop")
    with pytest.raises(StateError, match="was moved to the ledger"):
        disk.read("pop")
    with server.claim("spam") as book:
        assert book.sequence == spent.sequence
        book.wait(book.add(Entry(rounds=5, unsure=2, shares=((ANN, 2),))))
    server.move(disk, BACK)
    now = disk.read("pop")
    assert (now.rounds, now.unsure, now.shares[ANN]) == (5, 2, 2) and now.released == spent.released
    assert disk.read("pop.before").labels == {ANN: 3} and disk.journal("pop") == notes
    assert usable(disk, "pop") and not usable(server, "spam")
    disk.move(server, NAMES)
    assert usable(server, "spam") and not usable(disk, "pop"), "and away again"


def steps(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Call `act` after every write of a move, with its number: what is before the next one is the same."""
    numbers = count()
    for kind in STORES:
        for name in ("insert", "seal"):
            write = getattr(kind, name)

            def stepped(self: Store, *given: Any, write: Any = write) -> None:
                write(self, *given)
                act(next(numbers))

            monkeypatch.setattr(kind, name, stepped)


class Killed(BaseException):
    """What a crash is to everybody above."""


@pytest.mark.parametrize("away", [True, False], ids=["to the server", "to the file"])
def test_a_crash_at_any_step_leaves_at_most_one_open_and_the_same_call_finishes(
    tmp_path: Path, cluster: Cluster, away: bool
) -> None:
    """Eight writes of two models: both fences, both copies, both last fences, both openings."""
    begun = 0
    for crash in count():
        places: tuple[Any, ...] = (tmp_path / f"{crash}.db", cluster.fresh())
        names = NAMES if away else BACK
        with Ledger(places[not away]) as source, Ledger(places[away]) as target:
            if away:
                filled(source)
            else:
                with Ledger(tmp_path / f"{crash}-first.db") as first:
                    filled(first)
                    first.move(source, NAMES)
            (name, to), *_ = names.items()
            before = rows(image(source, name))

            def die(number: int, at: int = crash) -> None:
                if number == at:
                    raise Killed

            with pytest.MonkeyPatch.context() as patch:
                steps(patch, die)
                try:
                    source.move(target, names)
                    break
                except Killed:
                    begun += 1
            open_ones = [usable(source, name), usable(target, to)]
            assert sum(open_ones) <= 1, crash
            source.move(target, names)
            source.move(target, names)  # and once more does no harm
            assert rows(image(target, to)) == before and usable(target, to) and not usable(source, name), crash
    assert begun == 8, "all writes"


def test_a_copy_that_lost_a_row_is_noticed_and_nothing_opens(
    disk: Ledger, server: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(disk)
    insert = postgres.ServerStore.insert

    def loses(self: Store, model: str, whole: Image, instead: int | None = None) -> None:
        insert(self, model, Image(whole.about, {**whole.tables, "used": whole.tables["used"][1:]}), instead)

    with monkeypatch.context() as patch:
        patch.setattr(postgres.ServerStore, "insert", loses)
        with pytest.raises(StateError, match="neither is open"):
            disk.move(server, NAMES)
    assert not usable(disk, "pop") and not usable(server, "spam")
    disk.move(server, NAMES)
    assert usable(server, "spam")


def test_a_move_that_must_not_be_is_refused_and_changes_nothing(
    disk: Ledger, server: Ledger, cluster: Cluster, tmp_path: Path
) -> None:
    filled(disk)
    with disk.claim("pop"), pytest.raises(StateError, match="in use by another process"):
        disk.move(server, NAMES)
    server.create("spam")
    with pytest.raises(StateError, match="has a model 'spam' already: choose another name"):
        disk.move(server, NAMES)
    assert usable(disk, "pop") and usable(server, "spam"), "another model's row is not touched"
    careless = Ledger(cluster.url("public", synchronous_commit="off"))
    with pytest.raises(StateError, match="may forget what it committed"):
        disk.move(careless, NAMES)
    assert usable(disk, "pop")
    disk.move(server, {"pop": "mail", "pop.before": "mail.before"})
    with Ledger(tmp_path / "other.db") as other:
        with pytest.raises(StateError, match="has no copy of it that waits for this"):
            disk.move(other, {"pop": "pop", "pop.before": "pop.before"})
        assert not usable(other, "pop") and usable(server, "mail")


def test_a_target_that_was_given_up_never_opens(disk: Ledger, server: Ledger, cluster: Cluster) -> None:
    """Two copies of one model wait, on a server whose name says nothing of schemas: only the last move's opens."""
    filled(disk)

    def die(number: int) -> None:
        if number == 3:  # both copies are written
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        steps(patch, die)
        disk.move(server, NAMES)
    with Ledger(cluster.fresh()) as other:
        assert other.name == server.name
        disk.move(other, NAMES)
        with pytest.raises(StateError, match="no copy of it that waits"):
            disk.move(server, NAMES)
        assert usable(other, "spam") and not usable(server, "spam") and not usable(disk, "pop")


def test_a_sealed_model_stays_sealed(disk: Ledger, server: Ledger) -> None:
    disk.create("pop")
    with disk.claim("pop") as book:
        book.wait(book.add(Entry(rounds=1, unsure=0, sealed="it has a successor")))
    disk.move(server, {"pop": "spam"})
    assert server.read("spam").sealed == "it has a successor" == disk.read("pop").sealed


def test_an_heir_goes_on_from_the_server_and_back(tmp_path: Path, cluster: Cluster) -> None:
    url, folder = cluster.fresh(), tmp_path / "2"
    lived(tmp_path / "1").close()
    with people() as heir:
        heir.succeed(tmp_path / "1", folder, TWO)
        rounds = heir.rounds

    def said(*words: object) -> str:
        done = CliRunner().invoke(app, ["ledger", *map(str, words)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return " ".join(done.output.split())

    account = said(folder, "--person", "ann")
    assert "was moved to postgresql://" in said("move", folder, url, "--model", "spam")
    with pytest.raises(StateError, match="was moved to the ledger"):
        POP.load(folder)
    with pytest.raises(StateError, match="was moved to the ledger"):
        said(folder)
    assert said("show", folder, "--ledger", url, "--model", "spam", "--person", "ann") == account
    with POP.load(folder, ledger=url, model="spam") as pop:
        assert pop.rounds == rounds
        taught(pop, "ann")
        pop.save(folder, ledger=url, model="spam")
        rounds = pop.rounds
    said("move", url, folder, "--model", "spam")
    with POP.load(folder) as pop:
        assert pop.rounds == rounds and taught(pop, "carl") == [True]
    with pytest.raises(ValueError, match=r"has no model 'mail': it has spam, spam.before"):
        said("move", url, tmp_path / "3", "--model", "mail")
