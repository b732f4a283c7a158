"""States that 0.1 saved: they load for ever, with all that was spent, and 0.1 refuses them from then on."""

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from confide import POP, StateError, TicketError
from confide.ledger import Ledger, old, snapshot
from confide.ledger.file import File
from confide.ledger.sqlite import SqliteStore
from confide.pop.state import look
from tests.saved import bank_of, copy_of, share

pytestmark = pytest.mark.claim("people.md")

V1 = Path(__file__).parent / "states" / "v1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of what 0.1 wrote: a snapshot, and a journal that goes on after it (tests/states/README.md)."""
    return Path(shutil.copytree(V1, tmp_path / "v1"))


def lines(folder: Path) -> list[bytes]:
    return (folder / "journal").read_bytes().splitlines(keepends=True)


def refused_by_0_1(folder: Path) -> bool:
    """Whether the journal has a whole line that is not as 0.1 writes them, or the snapshot is not of version 1."""
    for number, line in enumerate(lines(folder), 1):
        body, _, checksum = line.rstrip(b"\n").rpartition(b" ")
        if line.endswith(b"\n") and f"{zlib.crc32(body):08x}".encode() != checksum:
            return True
        if line.endswith(b"\n") and json.loads(body)["number"] != number:
            return True
    return snapshot.version(folder) != 1


def test_it_loads_for_ever(folder: Path) -> None:
    assert not refused_by_0_1(folder)
    with POP.load(folder) as pop:
        assert (pop.operator.unsure, pop.operator.taught, pop.units) == (6, 101, "people")
        assert pop.operator.loop.tickets.life == 50
        assert pop.rounds >= 11 and pop.state == "live" and not pop.guarantee.secure
        known = bank_of(pop)["taught"]
        assert copy_of(pop, "person 3") not in known and copy_of(pop, "person 0") in known
        assert share(pop, "ann") == 2
        assert not pop.predict([3.0, 1.0], unit="ann").sure and pop.operator.unsure == 6, "ann is capped"
        rounds = pop.rounds
        pop.predict([0.0, 0.0], unit="carl")
        pop.save(folder)
    with POP.load(folder) as back:
        assert back.operator.unsure in (6, 7) and back.rounds == rounds + 1
        assert copy_of(back, "person 3") == copy_of(pop, "person 3"), "people stay with their copies"


def test_0_1_refuses_it_from_then_on(folder: Path) -> None:
    POP.load(folder).close()
    assert lines(folder)[:-1] == lines(V1), "nothing is lost from the journal"
    assert refused_by_0_1(folder)
    shutil.copy(V1 / "snapshot.npz", folder)
    assert refused_by_0_1(folder), "also where its snapshot is put back"
    with pytest.raises(StateError, match="moved before"):
        POP.load(folder)


def test_another_ledger_is_not_taken_for_its_own(folder: Path) -> None:
    Ledger(folder / "ledger.db").create("pop")
    for _ in range(2):
        with pytest.raises(StateError):
            POP.load(folder)


def test_its_tickets_have_expired(folder: Path) -> None:
    """It does not say which were used, or whose were forgotten, after its snapshot."""
    with POP.load(folder) as pop:
        tickets = pop.operator.loop.tickets
        assert len(tickets) == 0 and tickets.epoch > 0
        with pytest.raises(TicketError, match="loaded again"):
            pop.learn(tickets._sign((0, 1)), "no")


def test_its_status_is_read_without_moving_it(folder: Path) -> None:
    """`confide status` before and after."""
    before = look(folder)
    assert lines(folder) == lines(V1) and not (folder / "ledger.db").exists()
    POP.load(folder).close()
    assert {**look(folder), "plan": None} == {**before, "plan": None} and before["unsure"] == 6


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def killed(*args: Any, **kwargs: Any) -> Any:
    raise Killed


STEPS: dict[str, Callable[[pytest.MonkeyPatch, Path], object]] = {
    "before the journal is closed": lambda patch, folder: patch.setattr(old, "_close", killed),
    "before there is a ledger": lambda patch, folder: patch.setattr(Ledger, "create", killed),
    "with an empty ledger": lambda patch, folder: patch.setattr(File, "_prepare", killed),
    "with a ledger half made": lambda patch, folder: patch.setattr(File, "_check_wal", killed),
    "before the ledger has the model": lambda patch, folder: patch.setattr(SqliteStore, "insert", killed),
    "before the snapshot is written": lambda patch, folder: patch.setattr(snapshot, "write", killed),
    "before the snapshot is in its place": lambda patch, folder: patch.setattr(os, "replace", killed),
    "after it": lambda patch, folder: patch.setattr(Ledger, "claim", killed),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_move_can_be_interrupted_anywhere(step: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 may go on only as long as nothing has been moved, and the next load goes on from what was spent."""
    with monkeypatch.context() as patch:
        STEPS[step](patch, folder)
        with pytest.raises(Killed):
            POP.load(folder)
    assert refused_by_0_1(folder) != (step == "before the journal is closed")
    with POP.load(folder) as pop:
        assert pop.operator.unsure == 6 and share(pop, "ann") == 2 and pop.rounds >= 11
        pop.predict([0.0, 0.0], unit="ann")
    with POP.load(folder) as again:
        assert again.rounds == pop.rounds
