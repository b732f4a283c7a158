"""A real server under load that is killed, stopped, or has a bad disk: what people are told stays true."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from confide.errors import StateError
from tests.service.chaos import Asker, Chaos, Person, untold
from tests.service.opened import again, ask, folder, learn, open_desk, ticket

__all__ = ["folder"]

pytestmark = pytest.mark.claim("people.md")

KILLS = int(os.environ.get("CONFIDE_SERVER_KILLS", "20"))


@contextlib.contextmanager
def chaos(folder: Path, **options: Any) -> Iterator[Chaos]:
    made = Chaos(folder, **options)
    try:
        yield made
    finally:
        made.close()


def test_a_server_that_is_killed_under_load_forgets_nothing_that_it_told(tmp_path: Path) -> None:
    """Every count is exact, also of what people brought who were forgotten since."""
    with chaos(tmp_path) as run:
        run.run(KILLS)
        assert not run.wrong, run.verdict(KILLS)
        tally = run.tally
        assert sum(tally.rounds.values()) > 3 * KILLS and sum(tally.labels.values()) > KILLS
        assert tally.later > 2 and tally.lost > 2 and tally.again > 3 * KILLS and tally.unsure > 5
        assert tally.forgotten > 0


def test_a_server_that_is_restarted_under_load_loses_no_ticket(tmp_path: Path) -> None:
    with chaos(tmp_path, seed=1) as run:
        run.run(2, ending=signal.SIGTERM)
        assert not run.wrong, run.verdict(2)
        assert run.tally.later > 5
        assert sum('"closed"' in line for line in run.nursery.written) == 4


def test_a_server_that_says_durable_too_early_is_found_out(tmp_path: Path) -> None:
    with chaos(tmp_path, fault="forgetful", patience=5.0) as run:
        run.run(30)
        assert run.wrong


def test_only_the_last_rounds_of_a_life_may_be_told_to_nobody() -> None:
    """Ten rounds, restarts after the fourth and the seventh; a kill burns two rounds at most."""

    def wrong(*burned: int, begun: tuple[int, ...] = (4, 7), most: int = 2) -> bool:
        return bool(untold([number for number in range(1, 11) if number not in burned], 10, begun, most))

    for good in ((), (4,), (3, 4), (7,), (3, 4, 6, 7)):
        assert not wrong(*good)
    assert not wrong(4, 7, begun=(4, 4, 7)) and not wrong(9, 10, begun=(4, 10))
    assert wrong(2, 3, 4) and wrong(5, 6, 7), "more than were asked at once"
    assert wrong(3) and wrong(2, 4) and wrong(1, 5), "told of a round after it"
    assert wrong(10) and wrong(8), "nobody was killed since"
    assert wrong(4, begun=()) and wrong(4, most=0), "nobody was killed, or nothing was released"
    assert untold([1, 2, 2], 2, (), 0) and untold([1, 3], 2, (), 0) and untold([0, 1], 1, (), 0)


def test_a_server_that_burns_rounds_without_being_killed_is_found_out(tmp_path: Path) -> None:
    with chaos(tmp_path, fault="wasteful") as run:
        run.run(1, advance=lambda: Asker(run, 90).new("copies", "somebody", [[0.0, 0.0]] * 3))
        assert any("told to nobody" in words for words in run.wrong), run.verdict(1)


# ---------------------------------------------------------------------- disks, clocks, neighbours


@pytest.fixture
def bob() -> Any:
    """Makes somebody who asks one deployment; nothing is sent twice unless they do so."""

    class Once(Asker):
        def __init__(self, chaos: Chaos) -> None:
            super().__init__(chaos, 90)

        def once(self, operation: str, model: str, content: Any) -> tuple[int, dict[str, Any]]:
            return self._once("POST", f"/models/{model}/{operation}", content)

        def ready(self) -> int:
            return self._once("GET", "/readyz", None)[0]

        def wait_until_ready(self) -> None:
            """What failed is opened again, without a restart of the process."""
            deadline = time.monotonic() + 60
            while self.ready() != 200 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert self.ready() == 200

        def _once(self, method: str, path: str, content: Any) -> tuple[int, dict[str, Any]]:
            port = self.chaos.nursery.config.public.port
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)) as line:
                headers = {"authorization": f"Bearer {self.token('bob')}"}
                line.request(method, path, None if content is None else json.dumps(content), headers)
                response = line.getresponse()
                return response.status, json.loads(response.read())

    return Once


def test_a_full_disk_ends_the_answers_for_all_alike_and_nothing_told_is_lost(tmp_path: Path, bob: Any) -> None:
    with chaos(tmp_path) as run:
        pid, one = run.nursery.start(), bob(run)
        kept, late = one.new("copies", "bob", [[1.0, 2.0], [2.0, 1.0]])
        one.bring([kept])
        largest = max(path.stat().st_size for path in (tmp_path / "state").rglob("*") if path.is_file())
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest // 2, resource.RLIM_INFINITY))
        label = {"ticket": late.told["ticket"], "label": "yes"}
        status, told = one.once("label", "copies", label)
        assert (status, told["error"]["kind"]) == (503, "later"), "a label's trouble is its bringer's alone"
        assert one.ready() == 200
        new = {"id": "new", "x": [1.0, 1.0]}
        for question in (new, {"id": kept.id, "x": kept.x}, {"id": "bad", "x": None}):
            status, told = one.once("ask", "copies", question)
            assert (status, told["error"]["kind"]) == (503, "unavailable")
        assert one.once("label", "copies", label)[0] == 503 and one.ready() == 503
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        one.wait_until_ready()
        one.retry([kept])
        one.bring([late])
        assert one.once("ask", "copies", new)[1]["round"] == 3, "what was never told took no round"
        assert one.ready() == 200


def test_a_ledger_that_another_program_holds_for_a_while_is_waited_for(tmp_path: Path, bob: Any) -> None:
    text = "[limits]\ntimeout = 0.3\n"
    with chaos(tmp_path, extra=text) as run:
        run.nursery.start()
        one, question = bob(run), {"id": "1", "x": [1.0, 2.0]}
        with contextlib.closing(sqlite3.connect(tmp_path / "state/copies/ledger.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            status, told = one.once("ask", "copies", question)
            assert (status, told["error"]["kind"]) == (504, "timeout")
            other.execute("ROLLBACK")
        status, told = one.ask("ask", "copies", question, "bob")
        assert (status, told["round"]) == (200, 1), "the round was taken while nobody waited"


def test_a_ledger_that_another_program_keeps_ends_the_answers(tmp_path: Path, bob: Any) -> None:
    with chaos(tmp_path, fault="impatient") as run:
        run.nursery.start()
        one, question = bob(run), {"id": "1", "x": [1.0, 2.0]}
        with contextlib.closing(sqlite3.connect(tmp_path / "state/copies/ledger.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert one.once("ask", "copies", question)[0] == 503
            assert one.once("ask", "copies", question)[0] == 503 and one.ready() == 503
            assert one.once("ask", "guide", question)[0] == 200, "each model has its own ledger"
        one.wait_until_ready()
        assert one.once("ask", "copies", question)[1]["round"] == 1


def test_on_a_slow_disk_many_share_a_write_and_a_timeout_ends_no_round(tmp_path: Path, bob: Any) -> None:
    with chaos(tmp_path, fault="slow", extra="[limits]\ntimeout = 0.1\n") as run:
        run.nursery.start()
        people, told = [Person(run, i) for i in range(8)], list[Any]()
        assert bob(run).once("ask", "copies", {"id": "1", "x": [1.0, 2.0]})[0] == 504

        def asking(person: Person) -> None:
            told.append(person.ask("ask", "copies", {"id": "1", "x": [0.0, 1.0]}, f"{person.number}"))

        threads = [threading.Thread(target=asking, args=(person,)) for person in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one["round"] for _, one in told) == list(range(2, 10))
        assert sum("slow write" in line for line in run.nursery.written) < 9, "of nine people some shared one"


def test_clocks_that_jump_change_nothing_but_whether_a_token_is_in_time(tmp_path: Path, bob: Any) -> None:
    with chaos(tmp_path, fault="jumping") as run:
        run.nursery.start()
        one = bob(run)
        records = [one.new("copies", "bob", [[1.0, float(i)]])[0] for i in range(6)]
        one.bring(records[:3])
        one.retry(records)
        assert [record.told["round"] for record in records] == list(range(1, 7))


def test_a_second_server_on_the_same_folder_is_refused_and_the_first_goes_on(tmp_path: Path, bob: Any) -> None:
    with chaos(tmp_path) as run:
        run.nursery.start()
        one = bob(run)
        (record,) = one.new("copies", "bob", [[1.0, 2.0]])
        command = [sys.executable, "-m", "confide", "serve", str(tmp_path / "confide.toml")]
        environment = {**os.environ, "CONFIDE_PUBLIC__PORT": "0", "CONFIDE_OPERATOR__PORT": "0"}
        second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert second.returncode == 2 and "in use by another process" in " ".join(second.stderr.split())
        one.retry([record])
        one.bring([record])


def test_a_kill_between_the_operators_counts_and_a_snapshot_loses_no_count(folder: Path) -> None:
    model = open_desk(folder)
    for i in range(3):
        learn(model, "ann", ticket(ask(model, "ann", str(i), [1.0, 2.0])), "yes")
        if i == 0:
            model.save()
    (folder / "snapshot.npz.new").mkdir()
    with pytest.raises(StateError):
        model.save()
    (folder / "snapshot.npz.new").rmdir()
    back = again(model)
    assert back.private()["labels"] == 3
    back.save()
    assert again(back).private()["labels"] == 3
