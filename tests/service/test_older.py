"""What a desk holds in memory does not grow with the rounds; what left it is found again by its id and its ticket."""

from __future__ import annotations

import itertools
import sqlite3
import sys
from array import array
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.errors import StateError
from confide.service import names as of_names
from confide.service import requests
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from confide.service.journal import IMPORT, NOBODY, TAUGHT, Rows
from confide.service.older import Older, Place
from confide.service.quota import DAY, Quota
from tests.saved import bank_of
from tests.service.opened import again, ask, both, folder, guided, killed, kind, learn, open_desk, ticket

__all__ = ["folder"]

pytestmark = pytest.mark.claim("people.md")

WINDOW = 4
X = [1.0, 2.0]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "RECENT", WINDOW)


class Wall:
    minutes = 1000

    def __call__(self) -> float:
        return 60.0 * self.minutes


def opened(folder: Path, wall: Wall | None = None, **options: Any) -> PopDesk:
    settings = {name: options.pop(name) for name in ("units", "ticket_life", "seed") if name in options}
    given: dict[str, Any] = {"ticket_hours": 24, "save_every": None, **options}
    made = {"units": "people", **settings}
    units = made.pop("units")
    return PopDesk.open(folder, lambda: guided(units, 3000, **made), wall=wall or Wall(), **given)


def held(thing: Any) -> int:
    """How many entries the containers of these have, all the way down, without numbers, names and the POP's own."""
    seen, found = set[int](), 0
    left = [thing]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, (int, float, str, bytes, type, np.ndarray)) or callable(one):
            continue
        seen.add(id(one))
        if type(one).__module__.startswith(("confide.pop", "confide.ledger", "threading", "sqlite3", "_thread")):
            continue
        parts = list[Any]()
        if isinstance(one, dict):
            parts = [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset, deque, array)):
            parts = list(one)
        else:
            names = [*getattr(one, "__dict__", ()), *getattr(type(one), "__slots__", ())]
            parts = [getattr(one, name) for name in names if hasattr(one, name)]
        found += len(parts)
        left += parts
    return found


def many(desk: PopDesk, subject: str, names: Iterator[str] | list[str], x: Any = X) -> list[Any]:
    return desk.ask([Question(subject, name, x) for name in names])


@pytest.mark.parametrize("size", [1, 7])
def test_what_is_held_does_not_grow_with_the_questions(
    size: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a number for each run of names."""
    monkeypatch.setattr(of_names, "RUN", 4)
    with opened(folder).limited(5000) as desk:
        seen, some = list[int](), list[int]()
        for i in range(60):
            said = many(desk, f"person {i % 3}", [f"{i} {j}" for j in range(size)])
            for one in said[: (size + 1) // 2] if i % 2 else ():
                assert learn(desk, f"person {i % 3}", ticket(one), "yes") is None
            seen.append(held(desk._requests))
            some.append(len(desk._requests._rounds))
        assert max(some) <= WINDOW + 2 * size
        runs = 30 * size // 4
        assert max(seen[30:]) <= max(seen[10:30]) + 3 + runs, "labels, ids and tickets of all"
        assert max(seen) < 400 + 60 * size
        assert desk.private()["open_tickets"] == 60 * size - 30 * ((size + 1) // 2)


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_a_label_after_a_long_time_teaches_what_it_would_have(
    units: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit what a desk learns that has all its questions in memory."""
    found = []
    for name, window in (("long", 10**6), ("short", WINDOW)):
        monkeypatch.setattr(requests, "RECENT", window)
        with opened(folder / name, units=units, seed=3) as desk:
            rng = np.random.default_rng(5)
            said = [ask(desk, f"p{i}", "1", rng.normal(size=2).tolist()) for i in range(60)]
            told = [learn(desk, f"p{i}", ticket(said[i]), "yes" if i % 3 else "no") for i in range(50)]
            assert told == [None] * 50
            more = [ask(desk, f"q{i}", "1", rng.normal(size=2).tolist()) for i in range(100)]
            lessons = [Taught(f"q{i}", ticket(one), "no") for i, one in enumerate(more)]
            assert desk.learn(lessons) == [None] * 100
            guiding = desk.pop.operator.loop.guiding
            assert guiding is not None
            found.append((guiding.guide._leaves.open.copy(), [one.answer.label for one in more if one.answer]))
    assert (found[0][0] == found[1][0]).all() and found[0][0].any() and found[0][1] == found[1][1]


def test_a_copy_learns_from_a_label_after_a_long_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name, window in (("long", 10**6), ("short", WINDOW)):
        monkeypatch.setattr(requests, "RECENT", window)
        with open_desk(folder / name, ticket_life=500) as desk:
            said = [ask(desk, f"p{i}", "1", [float(i), 1.0]) for i in range(40)]
            assert [learn(desk, f"p{i}", ticket(said[i]), "yes") for i in range(40)] == [None] * 40
            found.append(desk.pop.operator.taught)
            assert bank_of(desk.pop)
    assert found == [40, 40]


def test_after_a_restart_it_teaches_too_and_once(folder: Path) -> None:
    desk = opened(folder)
    first = [ask(desk, "ann", str(i), [float(i), 1.0]) for i in range(20)]
    assert learn(desk, "ann", ticket(first[3]), "yes") is None
    desk = again(desk, wall=Wall(), ticket_hours=24)
    for i in range(12):
        ask(desk, "bob", str(i), X)
    for i, one in enumerate(both(desk), 5):
        assert learn(one, "ann", ticket(first[3]), "yes") is None, "acknowledged again"
        assert kind(learn(one, "ann", ticket(first[3]), "no")) == "ticket", "another label"
        before = one.private()["labels"]
        assert learn(one, "ann", ticket(first[i]), "no") is None and one.private()["labels"] == before + 1
        assert learn(one, "ann", ticket(first[i]), "no") is None and one.private()["labels"] == before + 1
        assert kind(learn(one, "ann", ticket(first[i]), "yes")) == "ticket"
        assert kind(learn(one, "eve", ticket(first[9]), "yes")) == "ticket", "not hers"


def test_the_same_request_gets_the_same_answer_after_a_long_time(folder: Path) -> None:
    desk = opened(folder)
    first = [ask(desk, "ann", str(i), [float(i), 1.0] if i % 4 else "words") for i in range(20)]
    many(desk, "bob", [str(i) for i in range(20)])
    names = set[str]()
    for one in both(desk):
        rounds = one.pop.rounds
        for i, was in enumerate(first):
            said = ask(one, "ann", str(i), [float(i), 1.0] if i % 4 else "words")
            assert said.again and said.round == was.round
            assert (said.answer, kind(said.refusal)) == (was.answer, kind(was.refusal))
            assert kind(ask(one, "ann", str(i), [9.0, 9.0]).refusal) == "conflict"
        assert one.pop.rounds == rounds
        assert not ask(one, f"carl {len(names)}", "1", X).again, "another's id is another's"
        mixed = many(one, "ann", ["3", "new", "3"], [3.0, 1.0])
        assert [said.again for said in mixed] == [True, "new" in names, True]
        names.add("new")


def test_it_ends_when_both_its_times_are_over(folder: Path) -> None:
    wall = Wall()
    desk = opened(folder, wall, ticket_life=10, ticket_hours=2).limited(5000)
    mine, late = ask(desk, "ann", "1", X), ask(desk, "ann", "2", X)
    many(desk, "bob", [str(i) for i in range(30)])
    assert ask(desk, "ann", "1", X).again, "thirty rounds and no time later"
    assert learn(desk, "ann", ticket(mine), "yes") is None
    wall.minutes += 121
    many(desk, "bob", ["more"])
    assert kind(learn(desk, "ann", ticket(late), "yes")) == "ticket"
    assert kind(learn(desk, "ann", ticket(mine), "yes")) == "ticket", "nor is it acknowledged again"
    assert not ask(desk, "ann", "2", X).again, "a new question"
    assert ask(desk, "ann", "2", X).again
    for i in range(60):
        many(desk, "bob", [f"{i} a", f"{i} b"])
    assert ask(desk, "ann", "2", X).again, "which is known as long as any other"
    desk.close()


def test_what_is_over_leaves_a_little_with_every_call(folder: Path) -> None:
    """After a long pause no call has all of it to do."""
    wall = Wall()
    desk = opened(folder, wall, ticket_life=10, ticket_hours=1)
    for i in range(50):
        many(desk, "bob", [f"{i} {j}" for j in range(20)])
    desk.save()
    wall.minutes += 61
    notes = [_asked(desk)]
    for i in range(120):
        ask(desk, "ann", str(i), X)
        notes.append(_asked(desk))
    gone = [a - b for a, b in itertools.pairwise(notes)]
    assert notes[-1] <= 120, "those of the last hour alone"
    assert max(gone) <= (requests.MOST + 2) // 20 + 1, "of twenty rows each"
    assert desk.private()["open_tickets"] == 120
    sizes = list[int]()
    for pause in range(3):  # what may have had labels goes once a snapshot has them, and their own time is over
        wall.minutes += 61
        desk.save()
        for i in range(30):
            ask(desk, "ann", f"{pause} {i}", X)
            sizes.append(desk._requests.older.size)
    assert sizes[-1] <= 90, "those of the last pauses alone"
    assert max(a - b for a, b in itertools.pairwise(sizes)) <= requests.MOST + 2 + 20
    desk.close()


def _asked(desk: PopDesk) -> int:
    book = desk.pop.operator.loop.account.book
    assert book is not None
    return sum(kind == "asked" for kind, *_ in book._store.notes(book._key))


def test_forgetting_reaches_what_left_the_memory(folder: Path) -> None:
    desk = opened(folder)
    mine = [ask(desk, "ann", str(i), [7.5, 7.25]) for i in range(12)]
    theirs = many(desk, "bob", [str(i) for i in range(12)], [3.5, 3.25])
    assert [learn(desk, "ann", ticket(mine[i]), "yes") for i in (1, 11)] == [None, None]
    assert desk.person("ann")["rounds"] == 12 and desk.person("ann")["labels"] == 2
    assert desk.forget("ann")
    for one in both(desk):
        assert one.person("ann")["rounds"] == 0
        assert kind(learn(one, "ann", ticket(mine[0]), "yes")) == "ticket"
        assert kind(learn(one, "ann", ticket(mine[1]), "yes")) == "ticket"
        again_ = ask(one, "ann", "3", [7.5, 7.25])
        assert kind(again_.refusal) == "conflict" and one.pop.rounds == 24, "no round, as if nobody was forgotten"
        bodies = _bodies(one)
        assert np.array([7.5, 7.25]).tobytes() not in bodies and np.array([3.5, 3.25]).tobytes() in bodies
        assert one.ask([Question("bob", "2", [3.5, 3.25])])[0].again
        assert learn(one, "bob", ticket(theirs[2]), "yes") is None


@pytest.mark.parametrize("name", ["1", "2"])
def test_forgetting_reaches_a_question_whose_id_was_used_again(name: str, folder: Path) -> None:
    """An id is free again after its ticket's life; notes last longer than that."""
    desk = opened(folder, ticket_life=10, ticket_hours=0).limited(5000)
    assert learn(desk, "ann", ticket(ask(desk, "ann", "1", [7.5, 7.25])), "yes") is None
    many(desk, "bob", [f"a{i}" for i in range(15)])
    assert not ask(desk, "ann", name, X).again
    many(desk, "bob", [f"b{i}" for i in range(15)])
    assert _bodies(desk).count(np.array([7.5, 7.25]).tobytes()) == 2, "in the question's note and in the label's"
    assert desk.forget("ann")
    for one in both(desk):
        assert np.array([7.5, 7.25]).tobytes() not in _bodies(one)


def _bodies(desk: PopDesk) -> bytes:
    book = desk.pop.operator.loop.account.book
    assert book is not None
    book.wait(book.sequence)
    return b"".join(body for *_, body in book._store.notes(book._key))


@pytest.mark.parametrize("rounds", [3, 40])
def test_the_digest_of_an_import_goes_with_its_person_also_when_its_id_is_over(rounds: int, folder: Path) -> None:
    desk = opened(folder, ticket_life=10, ticket_hours=0).limited(5000)
    desk.teach([("ann", [7.5, 7.25], "yes"), ("bob", [1.0, 1.0], "no")], "import")
    many(desk, "carl", [f"a{i}" for i in range(rounds)])
    assert _digests(desk) == 1 and desk.forget("ann")
    for one in both(desk):
        assert _digests(one) == 0


def _digests(desk: PopDesk) -> int:
    book = desk.pop.operator.loop.account.book
    assert book is not None
    book.wait(book.sequence)
    notes = [(width, body) for kind, _, width, body in book._store.notes(book._key) if kind == TAUGHT]
    rows = [row for width, body in notes for row in Rows.of(width).read(body)]
    return sum(row.epoch == IMPORT and row.digest != NOBODY for row in rows)


def test_nothing_of_somebody_who_was_forgotten_stays_in_the_index(folder: Path) -> None:
    """Neither whose a question was nor which label came, and not in what its file takes on the disk."""
    with opened(folder) as desk:
        said = [ask(desk, "ann", str(i), X) for i in range(12)]
        assert learn(desk, "ann", ticket(said[0]), "yes") is None
        whose, older = desk._keeper.who("ann"), desk._requests.older
        many(desk, "bob", [str(i) for i in range(9)])
        assert any(whose in place.key for place in _places(older)) and desk.forget("ann")
        assert not any(whose in place.key or (place.forgotten and place.taught >= 0) for place in _places(older))
        ask(desk, "bob", "the next", X)  # its commit writes over what was there
        files = [at for at in Path("/proc/self/fd").iterdir() if f"{folder}/asked" in _goes(at)]
        file = files[-1]
        assert whose not in file.read_bytes()
        signed = desk._keeper.tickets._known
        assert len(signed) == 22 and all(one != whose for one, _ in signed.values())
        assert not any(ticket(one) in signed for one in said), "nor that these tickets were hers"


def test_forgetting_commits_nothing_in_the_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that failed there took back which labels had come, and one was taken again."""
    with opened(folder) as desk:
        said = [ask(desk, name, name, X) for name in ("ann", "carl")]
        many(desk, "bob", [str(i) for i in range(9)])
        ask(desk, "bob", "more", X)
        assert learn(desk, "ann", ticket(said[0]), "yes") is None
        older = desk._requests.older

        def full() -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(older, "_keep", full)
            assert desk.forget("carl") and not desk.ended
            assert kind(learn(desk, "ann", ticket(said[0]), "no")) == "ticket"
        assert ask(desk, "bob", "the next", X).answer is not None


def test_where_what_labels_changed_is_lost_nothing_in_the_index_is_believed(folder: Path) -> None:
    """SQLite ends a transaction by itself when the disk fails: labels wait until the desk is opened again."""
    desk = opened(folder)
    said = ask(desk, "ann", "1", X)
    many(desk, "bob", [str(i) for i in range(9)])
    ask(desk, "bob", "more", X)
    assert learn(desk, "ann", ticket(said), "yes") is None
    older = desk._requests.older

    def lost() -> None:
        older._db.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    older._do(lost, -1)
    assert kind(learn(desk, "ann", ticket(said), "no")) == "later"
    with pytest.raises(StateError, match="index of older requests"):
        ask(desk, "bob", "the next", X)
    assert desk.ended


@pytest.mark.parametrize("size", [1, 3, 40])
def test_a_bunch_has_many_rounds_each_with_what_came_of_it(
    size: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leaves together is found one by one: an id, a label, a person who is forgotten in the midst of others."""
    monkeypatch.setattr(requests, "RECENT", 64)
    desk, names = opened(folder), [str(i) for i in range(200)]
    said = list[Any]()
    for at in range(0, len(names), size):
        said += many(desk, f"person {at % 3}", names[at : at + size])
    whose = [f"person {i // size * size % 3}" for i in range(200)]
    older = desk._requests.older
    assert 64 <= len(desk._requests._rounds) < 64 + 4 + 2 * size and older.size >= 200 - 64 - 4 - 2 * size
    assert [one.number for one in _places(older)] == list(range(1, older.size + 1))
    assert size > 1 or older.size // 4 <= _bunches(older) <= older.size // 4 + 1
    for i in range(0, 120, 7):
        assert learn(desk, whose[i], ticket(said[i]), "yes") is None
    gone = [i for i in range(200) if whose[i] == "person 1"]
    assert desk.forget("person 1") is bool(gone)
    for one in both(desk):
        for i in range(0, 200, 3):
            found = ask(one, whose[i], names[i], X)
            assert found.round == said[i].round if i not in gone else kind(found.refusal) == "conflict"
        assert one.pop.rounds == 200 and one.person("person 0")["rounds"] == whose.count("person 0")
        for i in range(0, 120, 7):
            assert kind(learn(one, whose[i], ticket(said[i]), "no")) == "ticket", "another label, or forgotten"
        assert kind(learn(one, whose[1], ticket(said[1]), "yes")) == ("ticket" if 1 in gone else None)


def _bunches(older: Older) -> int:
    found, last = 0, -1
    while (bunch := older.after(last)) is not None:
        found, last = found + 1, bunch.number
    return found


def _places(older: Older) -> list[Place]:
    found, last = list[Place](), -1
    while (bunch := older.after(last)) is not None:
        found += bunch.places
        last = bunch.number
    return found


def _goes(at: Path) -> str:
    try:
        return str(at.readlink())
    except OSError:
        return ""


def test_a_label_whose_question_cannot_be_read_now_is_to_be_brought_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bringer alone is told, also in one call with others; nothing is taught, and others are served."""
    with opened(folder) as desk:
        old = ask(desk, "ann", "1", X)
        many(desk, "bob", [str(i) for i in range(20)])
        last = ask(desk, "bob", "last", X)
        book = desk.pop.operator.loop.account.book
        assert book is not None

        def broken(*_: object) -> Any:
            raise StateError("the ledger cannot be read")

        with monkeypatch.context() as patch:
            patch.setattr(type(book._store), "look", broken)
            assert kind(learn(desk, "ann", ticket(old), "yes")) == "later"
            both_ = [Taught("ann", ticket(old), "yes"), Taught("bob", ticket(last), "yes")]
            assert [kind(one) for one in desk.learn(both_)] == ["later", None] and desk.private()["labels"] == 1
            said = desk.ask([Question("ann", "1", X), Question("bob", "new", X), Question("bob", "last", X)])
            assert kind(said[0].refusal) == "later" and said[1].answer is not None and said[2].again
            assert desk.pop.rounds == 23, "the new one's round alone was taken"
        assert learn(desk, "ann", ticket(old), "yes") is None and desk.private()["labels"] == 2
        assert ask(desk, "ann", "1", X).again and not desk.ended


def test_who_is_over_their_day_still_gets_what_is_stored(folder: Path) -> None:
    with opened(folder).limited(20) as desk:
        many(desk, "ann", [str(i) for i in range(25)])
        many(desk, "bob", [str(i) for i in range(12)])
        assert kind(ask(desk, "ann", "20", X).refusal) == "quota"
        asked = [Question("ann", name, X) for name in ("1", "19", "21")]
        assert list(desk.refused(asked)) == [2], "those that are stored are not refused"
        said = desk.ask(asked)
        assert [one.again for one in said] == [True, True, False] and kind(said[2].refusal) == "quota"


def test_a_persons_day_takes_a_bounded_place() -> None:
    """Eight bytes a minute with rounds, however many these are; nobody takes more than these in 24 hours."""
    quota, now = Quota(10**9), 0
    for now in range(5 * DAY):
        quota.took(b"ann", now, 1000)
        quota.took(b"bob", 7, 1)
    sizes = [sys.getsizeof(quota._people[who].when) for who in (b"ann", b"bob")]
    assert sizes[0] <= 2 * DAY * 8 * 1.2 and sizes[1] <= 120
    assert quota.left(b"ann", now) == 10**9 - 1000 * DAY and quota.left(b"ann", now + DAY) == 10**9
    assert sys.getsizeof(quota._people[b"ann"].when) <= 120


def test_it_is_a_file_that_nobody_else_opens_and_that_ends_with_the_desk(folder: Path) -> None:
    desk = opened(folder)
    many(desk, "ann", [str(i) for i in range(20)])
    many(desk, "ann", ["more"])
    assert desk._requests.older.size > 10
    assert {one.name for one in folder.iterdir()} <= {
        "key", "snapshot.npz", "ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.pop.lock",
    }  # fmt: skip
    assert killed(desk).is_dir()
