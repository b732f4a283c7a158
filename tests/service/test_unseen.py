"""What a label, or that somebody was forgotten, leaves behind in a desk: nothing that shows in others' calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide.errors import StateError
from confide.service import requests
from confide.service.base import Later, Question, Taught
from confide.service.desk import PopDesk
from confide.service.older import Older
from tests.label_pops import alone as labels_alone
from tests.saved import make
from tests.service.opened import again, ask, folder, guided, kind, learn, ticket
from tests.worlds import LABELS, guided_plan

__all__ = ["folder"]

pytestmark = pytest.mark.claim("people.md")

X = [1.0, 2.0]
HERS = [7.5, 7.25]


class Wall:
    minutes = 1000

    def __call__(self) -> float:
        return 60.0 * self.minutes


def many(desk: PopDesk, subject: str, name: str, count: int, x: Any = X) -> list[Any]:
    return desk.ask([Question(subject, f"{name} {i}", x) for i in range(count)])


def taught(desk: PopDesk) -> bytes:
    """All that labels came to."""
    loop = desk.pop.operator.loop
    alone = desk.pop.operator.randomizing
    return alone.outputs.tobytes() if alone is not None else loop.guiding.guide._leaves.open.tobytes()  # type: ignore


def notes(desk: PopDesk) -> list[tuple[str, bytes]]:
    book = desk._book
    book.wait(book.sequence)
    return [(kind, body) for kind, _, _, body in book._store.notes(book._key)]


# ---------------------------------------------------------------------- a label is taken once, whatever is set


MADE: dict[str, Callable[[], POP]] = {
    "rounds": lambda: POP(
        None, guided_plan(alone=True, rounds=3000), labels=LABELS, features=2, units="rounds", ticket_life=10
    ),
    "people": lambda: POP(
        None, guided_plan(alone=True, rounds=3000, unit_labels=40), labels=LABELS, features=2, units="people",
        ticket_life=10,
    ),
    "labels alone": lambda: POP(
        None, Plan.labels_alone(1.0, 2, units="rounds"), labels=["no", "yes"], features=2, units="rounds",
        ticket_life=10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", MADE)
def test_a_label_is_taken_once_also_where_tickets_last_longer_after_a_start(
    name: str, first: int, folder: Path
) -> None:
    """The note of a lesson goes no earlier than the question's, of which a few rows go with each call."""
    wall = Wall()
    desk = PopDesk.open(folder, MADE[name], save_every=None, ticket_hours=first, wall=wall)
    for k in range(10):
        many(desk, "bob", str(k), 100)
    mine = ticket(ask(desk, "ann", "1", X))
    assert learn(desk, "ann", mine, "yes") is None
    for k in range(3):
        many(desk, "bob", f"b{k}", 100)
    wall.minutes += 90
    ask(desk, "bob", "z1", X)
    assert kind(learn(desk, "ann", mine, "yes")) == "ticket", "its time is over"
    desk.save()
    ask(desk, "bob", "z2", X)
    desk = again(desk, save_every=None, ticket_hours=24, wall=wall)
    before = taught(desk)
    assert kind(learn(desk, "ann", mine, "no")) == (None if first and name == "labels alone" else "ticket")
    assert kind(learn(desk, "ann", mine, "yes")) == (None if first else "ticket"), "acknowledged again, if it is known"
    assert taught(desk) == before
    desk.close()


def test_notes_of_lessons_go_once_their_questions_are_gone_and_a_snapshot_has_them(folder: Path) -> None:
    with PopDesk.open(folder, MADE["people"], save_every=None) as desk:
        for k in range(40):
            said = many(desk, "bob", str(k), 10)
            assert learn(desk, "bob", ticket(said[0]), "yes") is None
        assert Counter(kind for kind, _ in notes(desk))["taught"] == 40
        for i in range(8):
            if i % 4 == 0:
                desk.save()
            many(desk, "bob", f"more {i}", 10)
        desk.save()
        assert Counter(kind for kind, _ in notes(desk))["asked"] <= 4
        assert Counter(kind for kind, _ in notes(desk))["taught"] <= 4


# ---------------------------------------------------------------------- the index in two worlds


def statements(desk: PopDesk, calls: Callable[[], object]) -> list[str]:
    """What the index is made to do meanwhile."""
    seen, db = list[str](), desk._requests.older._db
    db.set_trace_callback(lambda said: seen.append(" ".join(said.split()[:3])))
    calls()
    db.set_trace_callback(None)
    return seen


def lives(secret: str, folder: Path, kept: str) -> list[Any]:
    """What others' questions make of the index, when ann brought a label, was forgotten, or did nothing."""
    seen, wall = list[Any](), Wall()

    def others(desk: PopDesk, name: str, calls: int, size: int = 1) -> None:
        for i in range(calls):
            wall.minutes += i % 2
            done = statements(desk, lambda at=i: many(desk, "bob", f"{name} {at}", size))  # type: ignore[misc]
            sizes = [len(body) for kind, body in notes(desk) if kind == "asked"]
            seen.append((name, i, Counter(done), desk._requests.older.size, len(desk._requests._rounds), sizes))

    made = MADE["labels alone"] if kept == "alone" else lambda: make(ticket_life=20, seed=3)
    if kept == "guided":
        made = MADE["people"]
    options: dict[str, Any] = {"save_every": None, "ticket_hours": 1, "wall": wall}
    desk = PopDesk.open(folder, made, **options)
    mine = [ticket(ask(desk, "ann", str(i), X)) for i in range(3)]
    others(desk, "first", 8)
    for at, brought in enumerate(mine):
        if secret == "label":
            assert learn(desk, "ann", brought, "yes") is None
        others(desk, f"between {at}", 9)
    if secret == "forget":
        assert desk.forget("ann")
    others(desk, "after", 9)
    wall.minutes += 61
    others(desk, "over", 9, 3)
    desk.save()
    others(desk, "saved", 12)
    wall.minutes += 61
    others(desk, "over again", 12)
    desk.save()
    others(desk, "saved again", 30)
    desk = again(desk, **options)
    others(desk, "reopened", 15)
    desk.close()
    return seen


@pytest.mark.parametrize("kept", ["copies", "guided", "alone"])
@pytest.mark.parametrize("window", [2, 4096])
def test_what_others_make_the_index_do_tells_neither_labels_nor_who_was_forgotten(
    window: int, kept: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statement for statement: what is in it, and when it goes, follows from public rounds and times."""
    monkeypatch.setattr(requests, "RECENT", window)
    monkeypatch.setattr("confide.service.desk._COUNTED", 16)
    worlds = {secret: lives(secret, folder / secret, kept) for secret in ("nothing", "label", "forget")}
    for secret in ("label", "forget"):
        pairs = zip(worlds["nothing"], worlds[secret], strict=True)
        differ = [(a[:2], a[2] - b[2], b[2] - a[2], a[3:], b[3:]) for a, b in pairs if a != b]
        assert not differ, (secret, differ[:2])
    sizes = [one[3] for one in worlds["nothing"]]
    assert max(sizes) > min(sizes[20:]) and sizes[-16] < max(sizes), "some of it went"


# ---------------------------------------------------------------------- signed tickets


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_forgetting_leaves_others_tickets_as_they_were(units: str, folder: Path) -> None:
    """Hers alone are no longer remembered as signed, and there are as many as before."""
    with PopDesk.open(folder, lambda: guided(units, 3000), save_every=None) as desk:
        said = many(desk, "ann", "1", 8, HERS)
        theirs = [ticket(one) for one in many(desk, "bob", "1", 8)]
        known, whose = desk._keeper.tickets._known, desk._keeper.who("ann")
        assert len(known) == 16 and desk.forget("ann")
        assert len(desk._keeper.tickets._known) == 16
        held = desk._keeper.tickets._known
        assert not any(one == whose for one, _ in held.values()) and all(one in held for one in theirs)
        assert not any(ticket(one) in held for one in said)
        assert kind(learn(desk, "ann", ticket(said[0]), "yes")) == "ticket"
        assert [learn(desk, "bob", one, "yes") for one in theirs] == [None] * 8
        assert not desk.not_theirs([Taught("ann", ticket(said[0]), "yes")]), "it is still hers"


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_nothing_of_somebody_who_was_forgotten_is_in_a_bookmark(
    units: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RECENT", 2)
    with PopDesk.open(folder, lambda: guided(units, 3000), save_every=None) as desk:
        for i in range(8):
            ask(desk, "ann", str(i), HERS)
        assert desk.forget("ann")
        whose = desk._keeper.who("ann")
        for one in (desk._requests._due, desk._requests._kept):
            held = [] if one is None else [getattr(one, name, None) for name in ("about", "key")]
            assert not any(whose in part for part in held if isinstance(part, bytes))


# ---------------------------------------------------------------------- an index that cannot be written


class Full:
    """The index's connection where the disk is full, as the caller says."""

    def __init__(self, db: Any, fails: Callable[[str], bool]) -> None:
        self._db, self._fails = db, fails

    def __getattr__(self, name: str) -> Any:
        said = getattr(self._db, name)
        if name not in ("execute", "executemany", "blobopen"):
            return said

        def call(*given: Any) -> Any:
            if self._fails(str(given[0]) if name != "blobopen" else "BLOB"):
                raise OSError(28, "No space left on device")
            return said(*given)

        return call


@pytest.mark.parametrize("secret", ["forget", "label"])
@pytest.mark.parametrize("what", ["reads", "writes", "commits"])
def test_an_index_that_fails_in_a_private_call_is_its_callers_matter(
    what: str, secret: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else finds out, until a public call finds it failing, too."""
    monkeypatch.setattr(requests, "RECENT", 2)
    broken = [False]

    def fails(said: str) -> bool:
        verb = said.split()[0]
        read, commit = verb in ("SELECT", "BLOB"), verb in ("COMMIT", "BEGIN")
        return broken[0] and {"reads": read, "writes": not read and not commit, "commits": commit}[what]

    desk = PopDesk.open(folder, lambda: guided("people", 3000), save_every=None)
    mine = [ticket(one) for one in many(desk, "ann", "1", 8, HERS)]
    theirs = ticket(many(desk, "bob", "1", 8)[0])
    last = ticket(ask(desk, "bob", "last", X))
    older = desk._requests.older
    older._db = Full(older._db, fails)  # type: ignore[assignment]
    broken[0] = True
    later = gone = False
    if secret == "label":
        said = [kind(one) for one in desk.learn([Taught("ann", mine[0], "yes"), Taught("bob", last, "yes")])]
        assert said[1] is None and said[0] in (None, "later")
    else:
        try:
            gone = desk.forget("ann")
        except Later:
            later = True
        assert later if what == "reads" else gone or what == "writes", "and it commits nothing"
    assert not desk.ended and learn(desk, "bob", last, "yes") is None
    broken[0] = what != "reads"
    assert learn(desk, "bob", theirs, "yes") is None, "of others it can be read"
    broken[0] = False
    assert ask(desk, "bob", "more", X).answer is not None and not desk.ended, "it can be written again"
    if secret == "label":
        assert learn(desk, "ann", mine[0], "yes") is None and desk.private()["labels"] == 3
        assert kind(learn(desk, "ann", mine[0], "no")) == "ticket"
    assert gone or desk.forget("ann") or later
    assert not any(np.array(HERS).tobytes() in body for _, body in notes(desk))
    assert desk._requests.of(desk._keeper.who("ann")) == []
    assert desk._keeper.who("ann") not in _all(older)
    desk.pop.close()


def _all(older: Older) -> bytes:
    rows = [row for table in ("bunch", "asker", "other") for row in older._db.execute(f"SELECT * FROM {table}")]
    return b"".join(one for row in rows for one in row if isinstance(one, bytes))


@pytest.mark.parametrize("secret", ["forget", "label", "nothing"])
def test_and_ends_the_model_at_the_next_public_call_if_it_still_fails(
    secret: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RECENT", 2)
    broken = [False]
    desk = PopDesk.open(folder, lambda: guided("people", 3000), save_every=None)
    mine = [ticket(one) for one in many(desk, "ann", "1", 8, HERS)]
    many(desk, "bob", "1", 8)
    ask(desk, "bob", "last", X)
    older = desk._requests.older
    older._db = Full(older._db, lambda said: broken[0])  # type: ignore[assignment]
    broken[0] = True
    if secret == "label":
        assert kind(learn(desk, "ann", mine[0], "yes")) == "later"
    elif secret == "forget":
        with pytest.raises(Later):
            desk.forget("ann")
    assert not desk.ended
    with pytest.raises(StateError, match="the index of older requests"):
        ask(desk, "bob", "more", X)
    assert desk.ended
    desk.pop.close()


def test_a_label_call_writes_nothing_to_the_disk_of_the_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a partition, where a release moved the rounds since the last question; nor does it end any ticket."""
    for window in (2, 4096):
        monkeypatch.setattr(requests, "RECENT", window)
        made = lambda: guided("people", 3000, ticket_life=100)  # noqa: E731
        with PopDesk.open(folder / str(window), made, save_every=None) as desk:
            mine = [ticket(one) for one in many(desk, "bob", "1", 60)]
            account = desk.pop.operator.loop.account
            for taken, said in ((130, "ticket"), (131, "ticket")):
                account.taken = taken  # what a release does where other partitions have rounds
                first = len(desk._requests._rounds)
                before = desk._requests._last, desk._requests._then, desk._requests.older.size
                refused = list[Any]()
                seen = statements(desk, lambda: refused.append(learn(desk, "bob", mine[0], "yes")))  # noqa: B023
                assert kind(refused[0]) == said, "its rounds are over"
                assert not {"COMMIT", "INSERT", "DELETE"} & {one.split()[0] for one in seen}
                assert len(desk._requests._rounds) == first
                assert (desk._requests._last, desk._requests._then, desk._requests.older.size) == before
                assert learn(desk, "bob", mine[55], "yes") is None, "which others' are not"


@pytest.mark.parametrize("window", [2, 4096])
def test_after_a_release_a_label_decides_nothing_about_others_requests(
    window: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which ids are known again, which labels are in time, and what the index does: the same with a label before."""
    monkeypatch.setattr(requests, "RECENT", window)
    seen = list[Any]()
    for world in ("label", "nothing"):
        with PopDesk.open(folder / world, lambda: guided("people", 3000, ticket_life=100), save_every=None) as desk:
            mine = [ticket(one) for one in many(desk, "ann", "1", 60)]
            theirs = [ticket(one) for one in many(desk, "bob", "1", 60)]
            told = list[Any]()
            for taken in (130, 155):
                desk.pop.operator.loop.account.taken = taken
                if world == "label":
                    assert learn(desk, "ann", mine[55], "yes") is None
                told.append(kind(learn(desk, "bob", theirs[2], "yes")))
                for name in ("1 2", "1 2", "1 50", f"new {taken}"):
                    for _ in range(2):
                        done = statements(desk, lambda id=name: told.append(ask(desk, "bob", id, X).round))  # type: ignore[misc] # noqa: B023
                        told += [Counter(done), desk._requests._last, desk._requests.older.size]
            seen.append(told)
    assert seen[0] == seen[1]


# ---------------------------------------------------------------------- notes that are not on the disk yet


def test_a_note_goes_only_once_it_is_on_the_disk(folder: Path) -> None:
    """Forgetting finds all there is of somebody, also where a slow disk kept questions waiting."""
    desk = PopDesk.open(folder, lambda: make(ticket_life=4), save_every=None)
    many(desk, "bob", "a", 20, X)
    threads, book = list[threading.Thread](), desk._book

    def call(asked: list[Question]) -> None:
        before = book.sequence
        threads.append(threading.Thread(target=desk.ask, args=(asked,)))
        threads[-1].start()
        while book.sequence == before:
            threads[-1].join(0.01)
        with desk._lock:
            pass  # it waits for the disk

    with book._writing:
        call([Question("ann", "1", HERS)])
        for k in range(4):
            call([Question("bob", f"b{k} {i}", X) for i in range(3)])
    for one in threads:
        one.join()
    assert desk.forget("ann")
    assert not any(np.array(HERS).tobytes() in body for _, body in notes(desk))
    desk.close()


def test_a_deadline_waits_after_a_restart_whether_or_not_somebody_was_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a forgotten row the journal does not say any more that something stood for its label."""
    monkeypatch.setattr(requests, "RECENT", 4)
    left = list[tuple[int, int]]()

    def made() -> POP:
        return labels_alone(units="people", unit_labels=500, due=(40, "no"), seed=1)

    for forgotten in (False, True):
        at = tmp_path / str(forgotten)
        desk = PopDesk.open(at, made, save_every=None)
        ask(desk, "ann", "1", X)
        many(desk, "bob", "a", 5)
        if forgotten:
            assert desk.forget("ann")
        with again(desk, save_every=None) as desk:
            for i in range(120):
                ask(desk, "bob", f"b{i}", X)
            asked = [body for named, body in notes(desk) if named == "asked"]
            left.append((len(asked), len(list(desk._requests.older.notes(-1)))))
    assert left[0] == left[1]
