"""A model that failed says so, and is opened again when it can be: no restart of the service, and nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from confide.errors import StateError
from confide.ledger import file as ledger_file
from confide.service import mending
from confide.service.base import Desk, Question, Taught
from confide.service.desk import PopDesk
from confide.service.logs import Log
from confide.service.metrics import Metrics
from confide.service.operators import operator_app
from confide.service.owner import Owner, Unavailable
from tests.saved import bank_of, make
from tests.servers import Cluster, start
from tests.service.desks import MemoryDesk, operator, service, until
from tests.service.opened import folder
from tests.service.test_http import X, at, go, post

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder"]

ONE = [1.0, 2.0]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending, "FIRST", 0.02)
    monkeypatch.setattr(mending, "LONGEST", 0.05)


async def until_ready(owner: Owner, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while owner.failure is not None:
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- what is told


def test_a_failed_model_says_so_wherever_somebody_looks_and_is_ready_when_it_is_opened_again() -> None:
    desk = MemoryDesk()

    async def main() -> None:
        made = service(desk)
        owner = made.models["spam"].owner
        async with at(made) as client, at(made, operator_app) as door:
            assert 'confide_ready{model="spam"} 1.0' in (await door.get("/metrics", headers=operator())).text
            desk.broken = True
            assert (await post(client, "ask", X)).status_code == 503
            told = await client.get("/readyz")
            assert (told.status_code, told.json()["models"]) == (503, {"spam": "failed"}) and told.headers[
                "retry-after"
            ]
            assert (await client.get("/healthz")).status_code == 200, "a restart is not needed"
            assert (await client.get("/models/spam")).json()["state"] == "failed"
            assert (await client.get("/models")).json()["models"]["spam"]["state"] == "failed"
            public = (await client.get("/metrics")).text
            assert 'confide_state{model="spam",state="failed"} 1.0' in public
            assert 'confide_state{model="spam",state="live"} 0.0' in public
            assert 'confide_ready{model="spam"} 0.0' in (await door.get("/metrics", headers=operator())).text
            assert (
                "the disk is full" in (await door.get("/models/spam", headers=operator())).json()["service"]["failure"]
            )
            desk.broken = False
            await until_ready(owner)
            assert (await post(client, "ask", X)).status_code == 200
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.get("/models/spam")).json()["state"] != "failed"
            assert 'confide_ready{model="spam"} 1.0' in (await door.get("/metrics", headers=operator())).text
        owner.close()

    go(main())


def test_a_model_whose_opening_exits_is_tried_again() -> None:
    desk, tries = MemoryDesk(), list[int]()

    def reopen() -> Desk:
        tries.append(1)
        if len(tries) < 3:
            raise SystemExit("a library's own")
        return desk

    async def main() -> None:
        owner = Owner(desk, Metrics(Log(io.StringIO())), reopen=reopen)
        desk.broken = True
        with pytest.raises(Unavailable):
            await owner.ask([Question("ann", "1", ONE)])
        desk.broken = False
        await until_ready(owner, 5.0)
        owner.close()

    go(main())
    assert len(tries) == 3


def test_all_that_a_failed_desk_remembered_is_gone_before_its_model_is_opened_again() -> None:
    failed, begun, found = [MemoryDesk()], threading.Event(), list[bool]()
    failed[0].itself = failed[0]  # type: ignore[attr-defined]  # as a desk and its parts name each other
    failed[0].close = lambda: begun.wait(10)  # type: ignore[method-assign]
    known = weakref.ref(failed[0])

    def reopen() -> Desk:
        found.append(known() is None)
        return MemoryDesk()

    opened = threading.Event()
    mender = mending.Mender(failed[0], reopen, lambda why: None, lambda desk: opened.set())
    failed.clear()
    begun.set()
    assert opened.wait(10)
    mender.end()
    assert found == [True]


def test_one_line_a_minute_names_the_disk_or_the_connection() -> None:
    now, written = [100.0], io.StringIO()
    metrics = Metrics(Log(written), lambda: now[0])
    for seconds in range(0, 130, 2):
        now[0] = 100.0 + seconds
        metrics.ready("spam", "the ledger l.db could not be written (the disk is full)")
    metrics.ready("spam", None)
    metrics.ready("spam", None)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [one["event"] for one in lines] == ["failed"] * 3 + ["recovered"]
    assert all("disk is full" in one["why"] for one in lines[:3])


def test_a_process_whose_threads_are_gone_is_not_alive() -> None:
    async def main() -> None:
        made = service(MemoryDesk())
        async with at(made) as client:
            assert (await client.get("/healthz")).status_code == 200
            made.models["spam"].owner._threads.append(threading.Thread())  # one that does not run
            told = await client.get("/healthz")
            assert (told.status_code, told.json()["models"]) == (503, ["spam"])
            told = await client.get("/readyz")
            assert (told.status_code, told.json()["models"]) == (503, {"spam": "failed"}), "nor should it be asked"

    go(main())


# ---------------------------------------------------------------------- what is opened again


class Served:
    """A desk with its owner, and what was written about it."""

    def __init__(self, reopen: Any) -> None:
        self.written = io.StringIO()
        self.opened: list[PopDesk] = []

        def opening() -> Desk:
            self.opened.append(reopen())
            return self.opened[-1]

        self.owner = Owner(opening(), Metrics(Log(self.written)), reopen=opening, timeout=20.0)

    async def ask(self, who: str, name: str) -> Any:
        return (await self.owner.ask([Question(who, name, ONE)]))[0]

    @property
    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.written.getvalue().splitlines()]


def test_a_full_disk_with_room_again_is_used_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served, real, full = Served(partial(PopDesk.open, folder, make)), ledger_file.File.transaction, [False]

    def transaction(self: Any) -> Any:
        if full[0]:
            raise OSError(28, "No space left on device")
        return real(self)

    monkeypatch.setattr(ledger_file.File, "transaction", transaction)

    async def main() -> None:
        first, second = await served.ask("ann", "1"), await served.ask("bob", "1")
        assert (await served.owner.learn([Taught("ann", first.answer.ticket, "yes")])) == [None]
        knew = bank_of(served.opened[0].pop)
        full[0] = True
        for _ in range(3):
            with pytest.raises(Unavailable):
                await served.ask("carl", "1")
            with pytest.raises(Unavailable):
                await served.owner.learn([Taught("bob", second.answer.ticket, "no")])
            await asyncio.sleep(0.05)
        assert "No space left" in str(served.owner.failure)
        full[0] = False
        await until_ready(served.owner)
        back = served.opened[-1]
        assert len(served.opened) == 2 and bank_of(back.pop) == knew
        assert (await served.ask("ann", "1")).answer == first.answer
        assert (await served.owner.learn([Taught("bob", second.answer.ticket, "no")])) == [None]
        assert (await served.ask("carl", "1")).round == 3, "what was never told took no round"

    go(main())
    assert served.events == ["failed", "recovered"]
    served.owner.close()
    PopDesk.open(folder, make).close()


@pytest.mark.parametrize("brought", [False, True])
def test_a_model_that_drains_and_has_lost_its_ledger_is_opened_again_at_a_public_time(
    brought: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No question comes that would find it out, and no label may: others would see that one came."""
    monkeypatch.setattr(mending, "BEAT", 0.05)
    served, real, lost = Served(partial(PopDesk.open, folder, make)), ledger_file.File.transaction, list[Any]()

    def transaction(self: Any) -> Any:
        if self in lost:
            raise OSError(5, "the connection is gone")
        return real(self)

    monkeypatch.setattr(ledger_file.File, "transaction", transaction)

    async def main() -> None:
        first = await served.ask("ann", "1")
        served.owner.drain()
        lost.append(served.opened[0]._book._store)
        label = [Taught("ann", first.answer.ticket, "yes")]
        if brought:
            with contextlib.suppress(Unavailable):  # it may have been found out by now
                await served.owner.learn(label)
        async with asyncio.timeout(60):
            while len(served.opened) < 2 or served.owner.failure is not None:
                await asyncio.sleep(0.01)
        assert (await served.owner.learn(label)) == [None]

    go(main())
    served.owner.close()
    assert served.events == ["failed", "recovered"]


def test_a_label_that_finds_no_room_is_no_reason_to_open_a_model_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written at a public time is not what waits, so that it cannot fail for what waits."""
    with PopDesk.open(folder, make) as desk:
        asked = desk.ask([Question("ann", "1", ONE)])[0].answer
        assert asked is not None
        label = Taught("ann", asked.ticket, "yes")
        with monkeypatch.context() as full:
            full.setattr(type(desk._book._store), "write", _no_room)
            assert [one and one.kind for one in desk.learn([label])] == ["later"]
            desk.beat()
        assert not desk.ended and desk.learn([label]) == [None]


@pytest.mark.parametrize("brought", [False, True])
def test_a_save_that_cannot_be_written_fails_for_the_operator_alone(
    brought: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the save a public write, a label that waits for room would end the model for everybody."""
    with PopDesk.open(folder, make) as desk:
        asked, _ = desk.ask([Question("ann", "1", ONE), Question("bob", "1", ONE)])
        assert asked.answer is not None
        label = Taught("ann", asked.answer.ticket, "yes")
        with monkeypatch.context() as full:
            full.setattr(ledger_file.File, "transaction", _no_room)
            if brought:
                assert [one and one.kind for one in desk.learn([label])] == ["later"]
            with pytest.raises(StateError, match="try again"):
                desk.save()
        assert not desk.ended and desk.public()["state"] == "live"
        desk.save()
        assert desk.learn([label]) == [None] and desk.pop.operator.taught == 1


def _no_room(*_: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_whoever_meets_a_desk_that_is_being_replaced_is_told_to_come_again(folder: Path) -> None:
    """It was closed under them: that is no unknown error, and no line says so."""
    served = Served(partial(PopDesk.open, folder, make))

    async def main() -> None:
        first = await served.ask("ann", "1")
        for work in (served.owner.learn([Taught("ann", first.answer.ticket, "yes")]), served.ask("ann", "2")):
            served.opened[-1].close()
            with pytest.raises(Unavailable, match="until it can be"):
                await work
            await until_ready(served.owner)
        assert (await served.owner.learn([Taught("ann", first.answer.ticket, "yes")])) == [None]

    go(main())
    assert served.events == ["failed", "recovered"] * 2 and "RuntimeError" not in served.written.getvalue()
    served.owner.close()


def test_an_operators_snapshot_that_cannot_be_written_fails_no_model(folder: Path) -> None:
    served = Served(partial(PopDesk.open, folder, make))

    async def main() -> None:
        (folder / "snapshot.npz.new").mkdir()
        with pytest.raises(Unavailable):
            await served.owner.call(lambda desk: desk.save())
        assert served.owner.failure is None
        assert (await served.ask("ann", "1")).round == 1
        (folder / "snapshot.npz.new").rmdir()

    go(main())
    served.owner.close()


def test_a_ledger_that_was_rolled_back_meanwhile_is_sealed(folder: Path) -> None:
    """A restart may not notice; the process that had it does."""
    served = Served(partial(PopDesk.open, folder, make))

    async def main() -> None:
        await served.ask("ann", "1")
        old = {path.name: path.read_bytes() for path in folder.glob("ledger.db*") if not path.name.endswith("lock")}
        await served.ask("ann", "2")
        for name, body in old.items():
            (folder / "new").write_bytes(body)
            (folder / "new").rename(folder / name)
        with pytest.raises(Unavailable):
            await served.ask("ann", "3")
        async with asyncio.timeout(60):
            while "rolled back" not in str(served.owner.failure):
                await asyncio.sleep(0.01)
        with pytest.raises(Unavailable):
            await served.ask("ann", "1")

    go(main())
    served.owner.close()


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A server of this file's own: it is stopped."""
    made = start()
    yield made
    made.end()


def test_after_a_restart_of_the_server_the_model_goes_on(own: Cluster, folder: Path) -> None:
    pytest.importorskip("confide.ledger.postgres", reason='no psycopg here: pip install "confide[postgres]"')
    served = Served(partial(PopDesk.open, folder, make, name="spam", ledger=own.fresh()))

    async def main() -> None:
        first = await served.ask("ann", "1")
        for round in (2, 3):
            own.stop()
            with pytest.raises(Unavailable):
                await served.ask("bob", "1")
            await until(lambda: "cannot be reached" in str(served.owner.failure))
            own.start()
            await until_ready(served.owner)
            assert (await served.ask("ann", "1")).answer == first.answer
            assert (await served.ask("bob", f"{round}")).round == round
        assert (await served.owner.learn([Taught("ann", first.answer.ticket, "yes")])) == [None]

    go(main())
    assert served.events == ["failed", "recovered"] * 2
    served.owner.close()
