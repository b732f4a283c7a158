"""Somebody is forgotten: no write of others' shows it, nothing of a label stays, and who is cut off begins again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Monitor, Plan
from confide.service import requests
from confide.service.base import Question, Reply
from confide.service.desk import PopDesk
from confide.service.older import ABOUT
from tests.label_pops import alone as labels_alone
from tests.saved import make
from tests.service.opened import again, ask, folder, guided, learn, ticket
from tests.worlds import LABELS, guided_plan

__all__ = ["folder"]

pytestmark = pytest.mark.claim("people.md")

X, HERS = [1.0, 2.0], [7.5, 7.25]
ANN, BOB = b"ann" * 5 + b"!", b"bob" * 5 + b"!"
WAYS: dict[str, Callable[..., POP]] = {
    "copies": lambda **more: make(seed=1, **{"ticket_life": 20, **more}),
    "guided": lambda **more: guided("people", 3000, **{"ticket_life": 20, **more}),
    "alone": lambda **more: POP(
        None, Plan.labels_alone(1.0, 2, units="people", unit_labels=50), labels=["no", "yes"], features=2,
        units="people", seed=1, **{"ticket_life": 20, **more},
    ),
    "due": lambda **more: labels_alone(units="people", unit_labels=1, due=(40, "no"), seed=1, **more),
    "leaves": lambda **more: POP(
        None, guided_plan(alone=True, rounds=3000, unit_labels=40), labels=LABELS, features=2, units="people",
        ticket_life=10, **more,
    ),
}  # fmt: skip


class Wall:
    minutes = 1000

    def __call__(self) -> float:
        return 60.0 * self.minutes


def opened(folder: Path, way: str = "guided", made: dict[str, Any] | None = None, **options: Any) -> PopDesk:
    given: dict[str, Any] = {"save_every": None, "wall": Wall(), **options}
    return PopDesk.open(folder, lambda: WAYS[way](**(made or {})), **given)


def many(desk: PopDesk, subject: str, name: str, count: int, x: Any = X) -> list[Reply]:
    return desk.ask([Question(subject, f"{name} {i}", x) for i in range(count)])


def bodies(desk: PopDesk) -> list[tuple[str, bytes]]:
    """What the journal has on the disk: nothing that waits is written for this."""
    return [(named, body) for named, _, _, body in desk._book._store.notes(desk._book._key)]


def journaled(desk: PopDesk, x: Any = HERS) -> int:
    """How many of the journal's rows have this x."""
    desk._book.wait(desk._book.sequence)
    return sum(body.count(np.array(x).tobytes()) for _, body in bodies(desk))


def shown(desk: PopDesk, act: Callable[[], object]) -> Any:
    """All statements that ledger and index are made to run meanwhile, and the sizes of all notes after it."""
    ran, ledger, index = list[Any](), desk._book._store.db, desk._requests.older._db  # type: ignore[attr-defined]
    for db in (ledger, index):
        kinds = lambda said: re.findall("'(asked|taught|counted|part/[a-z]+)'", said)  # noqa: E731
        db.set_trace_callback(lambda said: ran.append((" ".join(said.split()[:3]), kinds(said))))  # noqa: B023
    act()
    for db in (ledger, index):
        db.set_trace_callback(None)
    return ran, ledger.execute("SELECT kind, length(body) FROM journal ORDER BY kind, sequence").fetchall()


def bobs(desk: PopDesk, calls: int, name: str = "b") -> list[Any]:
    """What a few of bob's questions do, call by call."""
    return [shown(desk, lambda at=i: ask(desk, "bob", f"{name} {at}", X)) for i in range(calls)]  # type: ignore[misc]


def same(one: list[Any], other: list[Any]) -> None:
    differ = [(i, a, b) for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    assert not differ, (len(differ), differ[0])


def places(desk: PopDesk) -> list[Any]:
    found, last = list[Any](), -1
    while (bunch := desk._requests.older.after(last)) is not None:
        found, last = found + bunch.places, bunch.number
    return found


# ---------------------------------------------------------------------- what others write


@pytest.mark.parametrize("way", ["alone", "guided", "copies"])
def test_a_snapshot_that_forgetting_writes_changes_no_later_write(way: str, folder: Path) -> None:
    worlds = []
    for forgotten in (False, True):
        with opened(folder / str(forgotten), way) as desk:
            ask(desk, "ann", "1", HERS)
            many(desk, "bob", "x", 30)
            assert not forgotten or desk.forget("ann")
            worlds.append(bobs(desk, 30))
    same(*worlds)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("before", [0, 1, 11])
@pytest.mark.parametrize("way", ["guided", "alone"])
def test_the_first_counts_are_noted_whether_or_not_somebody_was_forgotten(
    way: str, before: int, restarted: bool, folder: Path
) -> None:
    """Before the first question, or a life's first, and before counts are noted at a public time for the first time.

    Nor does a label come with what the first entry of a life says of all.
    """
    worlds = []
    for secret in ("nothing", "forget", "label"):
        desk = opened(folder / secret, way)
        if before:
            mine = ticket(ask(desk, "ann", "1", X))
            many(desk, "bob", "x", before)
        if restarted:
            desk = again(desk, save_every=None, wall=Wall())
        assert secret != "forget" or desk.forget("ann") == (before > 0)
        assert secret != "label" or before == 0 or learn(desk, "ann", mine, "yes") is None
        worlds.append([(ran, [one for one in held if one[0] != "taught"]) for ran, held in bobs(desk, 25)])
        desk.close()
    same(worlds[0], worlds[1])
    same(worlds[0], worlds[2])
    assert any(said.startswith("DELETE") for ran, _ in worlds[0] for said, kinds in ran if kinds == ["counted"])


def test_somebody_who_was_forgotten_and_asks_again_has_one_row_for_a_bunch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RECENT", 64)
    worlds = []
    for forgotten in (False, True):
        with opened(folder / str(forgotten), made={"ticket_life": 200}) as desk:
            for name in ("ann", "bob"):
                ask(desk, name, "1", X)
            assert not forgotten or desk.forget("ann")
            ask(desk, "ann", "2", X)
            many(desk, "bob", "x", 60)
            rows = list[Any]()
            for one in bobs(desk, 12):
                held = desk._requests.older._db.execute("SELECT first, count(*) FROM asker GROUP BY first").fetchall()
                rows.append((one, held))
            worlds.append(rows)
    same(*worlds)
    assert any(held and held[0][1] == 2 for _, held in worlds[1]), "hers and bob's"


@pytest.mark.parametrize("what", ["past her cap", "unreadable"])
def test_a_note_waits_for_its_deadline_also_where_nothing_stood_for_a_label(
    what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RECENT", 4)
    worlds = []
    for forgotten in (False, True):
        desk = opened(folder / str(forgotten), "due")
        if what == "past her cap":
            ask(desk, "ann", "0", X)
        for i in range(3):
            many(desk, "bob", f"pre{i}", 20)
        desk.save()
        for i in range(3):
            ask(desk, "ann", f"q{i}", X if what == "past her cap" else "words")
        many(desk, "bob", "a", 15)
        assert not forgotten or desk.forget("ann")
        with again(desk, save_every=None, wall=Wall()) as desk:
            seen = bobs(desk, 40)
            desk.save()
            worlds.append(seen + bobs(desk, 5, "saved"))
    same(*worlds)
    assert any(("DELETE FROM journal", ["asked"]) in ran for ran, _ in worlds[0]), "they go after a snapshot"


@pytest.mark.parametrize("way", ["leaves", "alone"])
def test_what_a_snapshot_makes_needless_goes_with_no_question(way: str, folder: Path) -> None:
    """Neither how many labels came, nor whether one came just now, shows in the next question's write."""
    worlds = []
    for labels, late in ((0, False), (3, False), (3, True)):
        with opened(folder / f"{labels} {late}", way) as desk:
            for i in range(6):
                for one in many(desk, "ann", str(i), 3)[:labels]:
                    assert learn(desk, "ann", ticket(one), "yes") is None
                many(desk, "bob", f"y{i}", 7)
            many(desk, "bob", "z", 10)
            mine = ticket(ask(desk, "ann", "last", X))
            ask(desk, "bob", "before", X)
            had = sum(named == "taught" for named, _ in bodies(desk))
            ran, _ = shown(desk, desk.save)
            assert not labels or ("DELETE FROM used", []) in ran
            if way == "leaves":
                assert ("DELETE FROM journal", ["taught"]) in ran, "whether or not there are any"
                assert sum(named == "taught" for named, _ in bodies(desk)) < max(1, had)
            assert not late or learn(desk, "ann", mine, "yes") is None
            worlds.append([ran for ran, _ in bobs(desk, 3)])
            whole = [one for ran in worlds[-1] for one in ran]
            assert not any(said == "DELETE FROM used" or kinds == ["taught"] for said, kinds in whole)
    same(worlds[0], worlds[1])
    same(worlds[1], worlds[2])


def test_what_is_over_goes_with_a_questions_write_and_not_with_a_label_after_a_retry(folder: Path) -> None:
    worlds = []
    for label in (False, True):
        wall = Wall()
        with opened(folder / str(label), "copies", {"ticket_life": 10}, ticket_hours=1, wall=wall) as desk:
            for i in range(4):
                many(desk, "bob", f"x{i}", 66)
            wall.minutes += 40
            mine = [ticket(one) for one in many(desk, "ann", "a", 12)]
            many(desk, "bob", "w", 12)
            wall.minutes += 21
            seen = list[Any]()
            for i in range(8):
                seen += bobs(desk, 1, f"b{i}")
                assert ask(desk, "bob", f"b{i} 0", X).again
                assert not label or learn(desk, "ann", mine[i], "yes") is None
            worlds.append([ran for ran, _ in seen])
    same(*worlds)
    assert sum(("DELETE FROM journal", ["asked"]) in ran for ran in worlds[0]) > 2


# ---------------------------------------------------------------------- what stays


@pytest.mark.parametrize("window", [4, 64])
@pytest.mark.parametrize("way", ["copies", "guided", "alone"])
def test_nothing_stays_of_a_label_or_an_answer_of_who_is_forgotten(
    way: str, window: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, and in the index, which she reaches before she is forgotten or after: as if no label had come."""
    monkeypatch.setattr(requests, "RECENT", window)
    worlds = []
    for labels in ([], [0, 2]):
        made = {"monitor": Monitor(1.0)} if way == "copies" else {}
        with opened(folder / str(len(labels)), way, made) as desk:
            said = many(desk, "ann", "1", 3, HERS)
            for i in labels:
                assert learn(desk, "ann", ticket(said[i]), "yes") is None
            many(desk, "bob", "a", 10)
            ask(desk, "bob", "b", X)
            assert desk.forget("ann") and desk._requests._ended == set()
            for note in desk._requests._notes:
                for one in note.stored():
                    assert not one.forgotten or (one.taught, one.lesson, note.waiting[one.i]) == (-1, 0, None)
                    assert not one.forgotten or one.shares is None or np.isnan(one.shares).all()
            for i in range(3):
                many(desk, "bob", f"c{i}", 30)
            left = [one._replace(half=0, key=b"") for one in places(desk) if one.number <= 3]
            assert all(one.forgotten and one.shares is None and one.lesson == 0 for one in left)
            worlds.append([[one._replace(sequence=0) for one in left]])
            assert len(left) == 3 and desk.private()["open_tickets"] == len(desk._requests.of(desk._keeper.who("bob")))
    same(*worlds)


def test_bunches_with_forgotten_people_have_the_width_of_those_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those where all were forgotten: the probabilities that were told leave their room."""
    monkeypatch.setattr(requests, "RECENT", 16)
    worlds = []
    for forgotten in (False, True):
        with opened(folder / str(forgotten), "alone") as desk:
            said = many(desk, "carl", "c", 4)
            assert [learn(desk, "carl", ticket(one), "yes") for one in said] == [None] * 4
            told = many(desk, "ann", "1", 20, HERS)
            assert all(one.answer is not None and one.answer.probabilities for one in told)
            assert not forgotten or desk.forget("ann")
            seen = list[Any]()
            for i in range(30):
                ask(desk, "bob", str(i), X)
                every = desk._requests.older._db.execute("SELECT first, width, length(about) FROM bunch").fetchall()
                seen.append(every)
            worlds.append(seen)
    same(*worlds)
    widths = {width for every in worlds[1] for _, width, _ in every}
    assert max(widths) == ABOUT.size + 2 * 8
