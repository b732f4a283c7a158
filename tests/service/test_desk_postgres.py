"""A desk whose ledger is on a PostgreSQL server: killed, cut off, rolled back, pointed at another ledger."""

import contextlib
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from confide import POP, StateError
from confide.cli.app import app as command_line
from confide.ledger import Ledger, snapshot
from confide.service.config import read_config
from confide.service.desk import PopDesk
from confide.service.models import open_desk as served
from tests.saved import bank_of, make, share, small_plan
from tests.servers import Cluster
from tests.service import test_desk_lives as lives
from tests.service.opened import ask, folder, kind, learn, ticket
from tests.service.test_serve import SMALL, written

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder"]
postgres = pytest.importorskip("confide.ledger.postgres", reason='no psycopg here: pip install "confide[postgres]"')

DOUBT = [0.0, 0.0]


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.fresh()


@pytest.fixture
def desk(folder: Path, url: str) -> Iterator[PopDesk]:
    opened = PopDesk.open(folder, make, name="spam", ledger=url)
    yield opened
    with contextlib.suppress(StateError):  # its connection may have been cut
        opened.close()


def cut(desk: PopDesk) -> None:
    """End its connection, as a kill -9 or a broken network does."""
    book = desk.pop.operator.loop.account.book
    assert book is not None
    book._store.db.close()  # type: ignore[attr-defined]


def again(desk: PopDesk, url: str, **options: Any) -> PopDesk:
    """Kill it, and open what it left."""
    cut(desk)
    left = desk.folder.with_name(desk.folder.name + "'")
    shutil.copytree(desk.folder, left)
    return PopDesk.open(left, make, name="spam", ledger=url, **options)


def test_a_killed_desk_comes_back_with_everything_it_told(desk: PopDesk, url: str) -> None:
    first, second = ask(desk, "ann", "1", [1.0, 2.0]), ask(desk, "bob", "1", DOUBT)
    assert learn(desk, "ann", ticket(first), "yes") is None
    knew = bank_of(desk.pop)
    with again(desk, url) as back:
        assert bank_of(back.pop) == knew and back.pop.rounds == 2 and share(back.pop, "bob") == 1
        retry = ask(back, "ann", "1", [1.0, 2.0])
        assert retry.again and retry.answer == first.answer and back.pop.rounds == 2
        assert kind(learn(back, "ann", ticket(first), "no")) == "ticket" and back.pop.operator.taught == 1
        assert learn(back, "bob", ticket(second), "no") is None
    assert not list(back.folder.glob("ledger.db*")), "all that was spent is on the server"
    assert Ledger(url).read("spam").rounds == 2


def test_random_lives(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a file: every request is one round, every answer stays, every acknowledged label is learned once."""
    monkeypatch.setattr(lives, "again", lambda desk, **options: again(desk, url, **options))
    monkeypatch.setattr(
        lives.World, "restart", lambda world: (world.desk.close(), setattr(world, "desk", opened(world.desk.folder)))
    )

    def opened(where: Path) -> PopDesk:
        plan = small_plan(unsure=3000, rounds=20_000)
        return PopDesk.open(
            where, lambda: make(plan=plan, ticket_life=lives.LIFE), name="spam", ledger=url, save_every=None
        )

    world = lives.World(opened(folder), random.Random(2))
    for deed in world.coins.choices(list(lives.DEEDS), weights=list(lives.DEEDS.values()), k=80):
        getattr(world, deed)()
        world.check()
    assert world.kills > 2 and world.retries > 1 and world.rounds > 40
    world.desk.close()


def test_after_a_lost_connection_nobody_is_answered_and_nothing_shown_is_lost(desk: PopDesk, url: str) -> None:
    mine = ask(desk, "ann", "1", DOUBT)
    cut(desk)
    assert kind(learn(desk, "ann", ticket(mine), "no")) == "later", "its bringer alone is told"
    for use in (
        lambda: ask(desk, "bob", "1", DOUBT), lambda: ask(desk, "ann", "1", DOUBT), lambda: desk.forget("ann"),
        lambda: learn(desk, "ann", ticket(mine), "no"),
    ):  # fmt: skip
        with pytest.raises(StateError, match="cannot be reached"):
            use()
    assert desk.private()["alarms"]
    with again(desk, url) as back:
        assert ask(back, "ann", "1", DOUBT).answer == mine.answer and back.pop.rounds == 1
        assert learn(back, "ann", ticket(mine), "no") is None


def test_who_was_forgotten_has_no_rows(desk: PopDesk, url: str, cluster: Cluster) -> None:
    learn(desk, "ann", ticket(ask(desk, "ann", "1", [7.25, 1.5])), "yes")
    ask(desk, "bob", "1", [3.5, 1.5])
    x = {who: desk._requests.of(desk._keeper.who(who))[0].row.x for who in ("ann", "bob")}

    def found(who: str) -> int:
        secret = x[who]
        assert secret is not None
        sql = f"SELECT count(*) FROM journal WHERE position('\\x{secret.hex()}'::bytea IN body) > 0"
        return int(cluster.execute(sql, url)[0][0])  # type: ignore[call-overload,no-any-return]

    assert found("ann") == 2 and found("bob") == 1
    desk.forget("ann")
    assert found("ann") == 0 and found("bob") == 1
    with again(desk, url) as back:
        assert kind(ask(back, "ann", "1", DOUBT).refusal) == "conflict" and back.pop.rounds == 2, "no second round"
        assert not ask(back, "ann", "2", DOUBT).again and share(back.pop, "ann") == 2, "what was spent stays spent"


def test_a_second_owner_is_refused(desk: PopDesk, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_HANDOVER", 0.05)
    with pytest.raises(StateError, match="another process"):
        PopDesk.open(desk.folder, make, name="spam", ledger=url)
    assert ask(desk, "ann", "1", DOUBT).round == 1


def test_a_server_that_was_rolled_back_is_found_out(desk: PopDesk, url: str, cluster: Cluster) -> None:
    """By the snapshot, and by a ticket from beyond the ledger's end."""
    found = cluster.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()", url)
    tables = [name for (name,) in found]
    ask(desk, "ann", "1", DOUBT)
    desk.save()
    for name in tables:
        cluster.execute(f"CREATE TABLE kept_{name} AS SELECT * FROM {name}", url)
    past = desk.folder.with_name("past")
    shutil.copytree(desk.folder, past)
    future = ticket(ask(desk, "ann", "2", DOUBT))
    desk.close()
    for name in tables:
        cluster.execute(f"TRUNCATE {name}", url)
        cluster.execute(f"INSERT INTO {name} SELECT * FROM kept_{name}", url)
    with pytest.raises(StateError, match="older than its snapshot"):
        PopDesk.open(desk.folder, make, name="spam", ledger=url)
    rolled = PopDesk.open(past, make, name="spam", ledger=url)
    with pytest.raises(StateError, match="rolled back"):
        learn(rolled, "ann", future, "no")
    rolled.close()
    with pytest.raises(StateError, match="rolled back"):
        POP.load(past, ledger=url, model="spam")


def test_a_snapshot_beside_another_models_ledger_is_refused(desk: PopDesk, url: str, folder: Path) -> None:
    """The same name elsewhere: it was never the same life."""
    other = PopDesk.open(folder.with_name("other"), make, name="bank", ledger=url)
    for i in range(9):
        ask(other, "bob", str(i), DOUBT)
    other.close()
    desk.close()
    with pytest.raises(StateError, match="a life that its ledger does not know"):
        PopDesk.open(desk.folder, make, name="bank", ledger=url)
    with pytest.raises(StateError, match="no ledger"):
        PopDesk.open(desk.folder, make, name="spam")
    PopDesk.open(desk.folder, make, name="spam", ledger=url).close()


@pytest.mark.parametrize("at", ["write_key", "create", "claim", "write"])
def test_a_first_save_that_was_killed_is_begun_again(
    at: str, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    Ledger(url).create("bank")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(snapshot if at.startswith("write") else Ledger, at, die)
        PopDesk.open(folder, make, name="spam", ledger=url)
    with PopDesk.open(folder, make, name="spam", ledger=url) as desk:
        assert ask(desk, "ann", "1", DOUBT).round == 1
    (folder / "snapshot.npz").unlink()
    with pytest.raises(StateError, match="never taken away"):
        PopDesk.open(folder, make, name="spam", ledger=url)
    with pytest.raises(StateError, match="already"):
        PopDesk.open(folder.with_name("fresh"), make, name="spam", ledger=url)
    assert Ledger(url).read("spam").rounds == 1 and Ledger(url).models() == ["bank", "spam"]


def test_a_deployment_names_it_in_its_file(tmp_path: Path, url: str) -> None:
    config = read_config(written(tmp_path, SMALL + f'ledger = "{url}"\n'))
    assert url not in repr(config) + str(config.models["spam"]), "a URL may have a password in it"
    for rounds in (1, 2):
        desk: Any = served("spam", config.models["spam"])
        assert ask(desk, "ann", str(rounds), DOUBT).round == rounds
        desk.close()
    assert Ledger(url).read("spam").rounds == 2


def test_a_state_is_looked_at_and_verified_from_the_command_line(
    desk: PopDesk, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(desk, "ann", "1", [1.0, 2.0])
    place = ["--ledger", url, "--model", "spam"]
    shown = CliRunner().invoke(command_line, ["status", str(desk.folder), *place])
    assert shown.exit_code == 0 and "rounds    1 of" in shown.output
    assert "certified" in CliRunner().invoke(command_line, ["verify", str(desk.folder), *place]).output
    for command in ("status", "verify"):
        other = CliRunner().invoke(command_line, [command, str(desk.folder), "--ledger", url])
        assert isinstance(other.exception, StateError), "it is another model's name"
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "confide.ledger.postgres")
    for command in ("status", "verify"):
        missing = CliRunner().invoke(command_line, [command, str(desk.folder), *place])
        assert isinstance(missing.exception, StateError) and "confide[postgres]" in str(missing.exception)
