"""The ledger's journal: notes that are durable with their entry, erased in place, dropped in order; lives and seals."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from confide.errors import StateError
from confide.ledger import Entry, Ledger
from confide.ledger.store import VERSION, checksum
from tests.saved import full

pytestmark = pytest.mark.claim("people.md")

ANN, BOB = b"a" * 16, b"b" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def shop(place: str | Path) -> Ledger:
    made = Ledger(place)
    made.create("shop")
    return made


@pytest.fixture
def ledger(place: str) -> Ledger:
    return shop(place)


@pytest.fixture
def filed(path: Path) -> Ledger:
    """For what only a file can do."""
    return shop(path)


def rows(*whose: bytes) -> bytes:
    return b"".join(one + b"secret" * 4 for one in whose)


def test_a_note_is_durable_with_its_entry_and_in_order(ledger: Ledger) -> None:
    with ledger.claim("shop") as book:
        book.add(Entry(1, 0, notes=(("asked", 40, rows(ANN)),)))
        book.wait(book.add(Entry(2, 0, notes=(("taught", 40, rows(BOB)),))))
    assert ledger.journal("shop") == [("asked", 1, 40, rows(ANN)), ("taught", 2, 40, rows(BOB))]


def test_a_note_whose_write_failed_was_never_there(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateError), ledger.claim("shop") as book:
        at = book.add(Entry(1, 0, notes=(("asked", 40, rows(ANN)),)))
        with monkeypatch.context() as patch:
            patch.setattr(type(book._store), "put", lambda *_: full(book))
            book.wait(at)
    assert ledger.journal("shop") == [] and ledger.read("shop").rounds == 0


@pytest.mark.parametrize("together", [False, True], ids=["written before", "in the same write"])
def test_one_persons_rows_are_overwritten(together: bool, filed: Ledger, path: Path) -> None:
    with filed.claim("shop") as book:
        at = book.add(Entry(2, 0, notes=(("asked", 40, rows(ANN, BOB)), ("taught", 40, rows(ANN)))))
        if not together:
            book.wait(at)
        left = (("asked", at, ANN, (b"left",)), ("taught", at, ANN, ()), ("asked", 99, ANN, (b"left",)))
        book.wait(book.add(Entry(2, 0, erased=left)))
        kept = b"left" + bytes(36) + rows(BOB)
        assert filed.journal("shop") == [("asked", at, 40, kept), ("taught", at, 40, bytes(40))]
    assert ANN not in path.read_bytes() and BOB in path.read_bytes()


def test_a_changed_note_is_not_signed_anew_when_somebody_in_it_is_forgotten(filed: Ledger, path: Path) -> None:
    with filed.claim("shop") as book:
        at = book.add(Entry(2, 0, notes=(("taught", 40, rows(ANN, BOB)),)))
        book.wait(at)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE journal SET body = ?", (rows(ANN, BOB)[:-1] + b"T",))
        with pytest.raises(StateError, match="damaged"):
            book.wait(book.add(Entry(2, 0, erased=(("taught", at, ANN, ()),))))
    with pytest.raises(StateError, match="damaged"):
        filed.journal("shop")


def test_old_notes_are_dropped_and_leave_no_bytes(filed: Ledger, path: Path) -> None:
    with filed.claim("shop") as book:
        for i in range(1, 6):
            book.wait(book.add(Entry(i, 0, notes=(("asked", 5000, ANN + bytes([65 + i]) * 4984),))))
        book.tear("asked", 3)
        assert len(filed.journal("shop")) == 5, "with the next write, not by itself"
        book.wait(book.add(Entry(6, 0)))
        assert [sequence for _, sequence, *_ in filed.journal("shop")] == [4, 5]
    assert b"BBBB" not in path.read_bytes() and b"FFFF" in path.read_bytes()


def test_a_changed_note_is_refused(filed: Ledger, path: Path) -> None:
    with filed.claim("shop") as book:
        book.wait(book.add(Entry(1, 0, notes=(("asked", 40, rows(ANN)),))))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE journal SET body = ?", (rows(BOB),))
    db.close()
    with pytest.raises(StateError, match="damaged"):
        filed.journal("shop")


def test_every_life_has_a_mark_of_its_own(ledger: Ledger) -> None:
    marks = []
    for life in range(3):
        with ledger.claim("shop") as book:
            marks.append((book.mark, life * 10))
            book.wait(book.add(Entry(life * 10 + 10, 0)))
    assert ledger.read("shop").lives == {i + 1: mark for i, mark in enumerate(marks)} and len(set(marks)) == 3


def test_a_seal_stays(ledger: Ledger) -> None:
    with ledger.claim("shop") as book:
        book.wait(book.add(Entry(1, 0, sealed="for a reason")))
        book.wait(book.add(Entry(2, 0, sealed="for another")))
    assert ledger.read("shop").sealed == "for a reason"


def test_a_ledger_of_another_version_is_refused(filed: Ledger, path: Path) -> None:
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute(f"PRAGMA user_version = {VERSION - 1}")
    db.close()
    for use in (filed.read, filed.claim):
        with pytest.raises(StateError, match=f"version {VERSION - 1}, and this Confide reads {VERSION}"):
            use("shop")


class Loud(bytes):
    """Bytes that are not to be written out: how long that takes depends on what they are."""

    def __repr__(self) -> str:
        raise AssertionError("an exact sum was written out")


def test_a_checksum_is_of_raw_bytes_and_takes_as_long_whatever_they_are() -> None:
    zeros, large = Loud(bytes(4096)), Loud(b"\xff" * 4096)
    assert len({checksum(1, "node", 2, b"noisy", one) for one in (zeros, large)}) == 2
    assert checksum(12, 3) != checksum(1, 23) and checksum("ab", "c") != checksum("a", "bc")
    assert checksum(b"") != checksum(None) and checksum(-1) != checksum(2**63 - 1)
