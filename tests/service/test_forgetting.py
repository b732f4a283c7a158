"""Somebody is forgotten while others are served, or by a call that is cut off: it is done whole, or not at all."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from confide.errors import StateError
from confide.pop.keeping import Keeper
from confide.pop.tickets import Tickets
from confide.service import requests
from confide.service.base import Later
from confide.service.desk import PopDesk
from confide.service.older import Older
from confide.service.requests import Requests
from confide.service.words import UNSWEPT
from tests.label_pops import part
from tests.service.opened import ask, both, folder, guided, kind, learn, ticket
from tests.service.test_forgotten import BOB, HERS, X, bodies, journaled, many, opened, same, shown

__all__ = ["folder"]

pytestmark = pytest.mark.claim("people.md")


class Cut(Exception):
    """Whatever ends a call in its midst."""


def cut(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, after: bool) -> pytest.MonkeyPatch:
    """The next call of this ends by an error, before it does anything or after."""
    real, left = getattr(kind, name), [1]

    def once(*given: Any, **named: Any) -> Any:
        if not left:
            return real(*given, **named)
        left.clear()
        if after:
            real(*given, **named)
        raise Cut

    monkeypatch.setattr(kind, name, once)
    return monkeypatch


PLACES = [(Keeper, "forget"), (Requests, "forgotten"), (Older, "change"), (Older, "forget"), (PopDesk, "_note_counts")]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", PLACES, ids=lambda at: at[1])
@pytest.mark.parametrize("way", ["guided", "due"])
def test_a_forgetting_that_was_cut_off_is_made_whole_by_the_next(
    way: str, at: tuple[type, str], after: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RECENT", 4)
    desk = opened(folder, way)
    old = many(desk, "ann", "1", 3, HERS)
    many(desk, "bob", "x", 6)
    new = many(desk, "ann", "2", 2, HERS)
    for one in (old[0], new[0]):
        assert kind(learn(desk, "ann", ticket(one), "yes")) == ("label" if way == "due" and one is new[0] else None)
    held = dict(part(desk.pop)._held) if way == "due" else {}
    whose, cuts = desk._keeper.who("ann"), cut(monkeypatch, *at, after)
    with pytest.raises(Cut):
        desk.forget("ann")
    known = desk._requests.of(whose)
    if at[1] in ("_note_counts",) or (at[1] == "forget" and at[0] is Keeper and not after):
        assert len(known) == 5 and (way != "due" or part(desk.pop)._held == held), "nothing was changed"
    cuts.undo()
    monkeypatch.setattr(requests, "RECENT", 4)
    assert desk.forget("ann") or at[0] is Older
    for one in both(desk):
        if one is not desk:
            assert journaled(one) == 0
        assert one._requests.of(whose) == [] and one.private()["open_tickets"] == 6
        if way == "due":
            assert all(kept.who != whose for kept in part(one.pop)._held.values())
        assert kind(ask(one, "ann", "1 0", HERS).refusal) == "conflict"
    one.close()


def test_lessons_that_a_snapshot_could_not_drop_are_found_by_who_is_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be dropped is still in the journal: it is not known as gone before it is."""
    with opened(folder, "leaves") as desk:
        for i in range(6):
            assert learn(desk, "ann", ticket(ask(desk, "ann", str(i), HERS)), "yes") is None
            many(desk, "bob", f"x{i}", 5)
        for i in range(8):
            many(desk, "bob", f"y{i}", 10)
        store = type(desk._book._store)
        tear = store._tear

        def full(self: Any, key: int, kinds: Any) -> None:
            if any(named == "taught" for named, _ in kinds):
                raise OSError(28, "No space left on device")
            tear(self, key, kinds)

        with monkeypatch.context() as patch:
            patch.setattr(store, "_tear", full)
            desk.save()
            assert desk.private()["alarms"] == [UNSWEPT]
        assert journaled(desk) > 0 and not desk.ended
        assert desk.forget("ann") and journaled(desk) == 0
        desk.save()
        assert not any(named == "taught" for named, _ in bodies(desk))


# ---------------------------------------------------------------------- beside other calls


@pytest.mark.parametrize("retry", [False, True])
def test_who_is_forgotten_while_their_question_goes_to_the_disk_is_told_its_answer(
    retry: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for forgotten in (False, True):
        with opened(folder / str(forgotten), "copies") as desk, monkeypatch.context() as patch:
            if retry:
                ask(desk, "ann", "1", HERS)
            where: Any = desk._book if retry else desk._keeper
            name = "wait" if retry else "settle"
            real = getattr(where, name)

            def slow(*some: Any, real: Any = real, patch: Any = patch, also: Any = desk.forget, **named: Any) -> Any:
                patch.undo()
                assert also("ann")
                return real(*some, **named)

            if forgotten:
                patch.setattr(where, name, slow)
            said = ask(desk, "ann", "1", HERS)
            assert desk._requests._rounds[1, 1].forgotten is forgotten
            assert said.answer is not None
            told.append(said._replace(answer=said.answer._replace(ticket="")))
    assert told[0] == told[1]


@pytest.mark.parametrize("retry", [False, True])
def test_no_ticket_is_signed_for_somebody_after_they_were_forgotten(
    retry: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signing holds the desk's lock: whoever forgets them waits for it, and drops what was signed."""
    with opened(folder) as desk:
        if retry:
            ask(desk, "ann", "1", HERS)
        done = list[bool]()

        def forget() -> None:
            if desk._lock.acquire(blocking=False):
                done.append(desk.forget("ann"))
                desk._lock.release()

        def meanwhile(real: Callable[..., Any], *some: Any) -> Any:
            other = threading.Thread(target=forget)
            other.start()
            other.join()
            return real(*some)

        for name in ("sign", "sign_many"):
            real = getattr(Tickets, name)
            monkeypatch.setattr(Tickets, name, lambda *some, real=real: meanwhile(real, *some))
        assert ask(desk, "ann", "1", HERS).answer is not None
        assert done or desk.forget("ann")
        assert all(whose != desk._keeper.who("ann") for whose, _ in desk._keeper.tickets._known.values())


def test_tickets_may_be_signed_while_somebodys_are_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what runs wherever memory is taken: a collector's callback, as another thread would."""
    with opened(folder) as desk:
        tickets, whose, numbers = desk._keeper.tickets, desk._keeper.who("ann"), count(10_000)
        many(desk, "ann", "1", 3, HERS)
        theirs = tickets.sign_many(1, range(100, 5000), [BOB] * 4900)
        drop, was = tickets.drop, gc.get_threshold()
        signed = list[str]()

        def sign(phase: str, _: Any) -> None:
            if phase == "start" and len(signed) < 1000:
                signed.append(tickets.sign((1, next(numbers)), BOB))

        def dropped(who: bytes) -> None:
            gc.callbacks.append(sign)
            gc.set_threshold(1)
            try:
                drop(who)
            finally:
                gc.set_threshold(*was)
                gc.callbacks.remove(sign)

        monkeypatch.setattr(tickets, "drop", dropped)
        assert desk.forget("ann") and signed
        assert all(one in tickets._known for one in theirs + signed)
        assert len(tickets._known) == 3 + 4900 + len(signed)
        assert all(one != whose for one, _ in tickets._known.values())
        assert journaled(desk) == 0


def test_a_write_of_the_index_that_waits_holds_up_its_own_person_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RECENT", 4)
    with opened(folder, made={"ticket_life": 200}) as desk:
        mine = ticket(ask(desk, "ann", "1", X))
        theirs = [ticket(ask(desk, name, "1", HERS)) for name in ("carl", "dora")]
        many(desk, "bob", "x", 20)
        ask(desk, "bob", "y", X)
        with monkeypatch.context() as patch:
            patch.setattr(Older, "_put", cut_put)
            learn(desk, "ann", mine, "yes")
        assert desk._requests.older.undone, "hers waits"
        assert desk.person("carl")["rounds"] == 1 and desk.forget("carl")
        assert desk.person("carl")["rounds"] == 0 and desk.person("bob")["rounds"] == 21
        assert learn(desk, "dora", theirs[1], "yes") is None and len(desk._requests.older.undone) == 1
        with pytest.raises(Later):
            desk.forget("ann")
        ask(desk, "bob", "z", X)
        assert not desk._requests.older.undone and desk.forget("ann") and not desk.ended
        assert journaled(desk) == 2, "dora's question and her label"


def cut_put(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("way", ["guided", "alone"])
@pytest.mark.parametrize("damaged", ["asked", "taught"])
def test_a_damaged_note_is_found_by_who_is_forgotten_and_nothing_of_that_goes_with_others(
    damaged: str, way: str, folder: Path
) -> None:
    worlds = []
    for forgotten in (False, True):
        desk = opened(folder / str(forgotten), way)
        assert learn(desk, "ann", ticket(ask(desk, "ann", "1", HERS)), "yes") is None
        many(desk, "bob", "x", 3)
        with sqlite3.connect(desk._book._store.path) as db:  # type: ignore[attr-defined]
            (body, at), *_ = db.execute("SELECT body, rowid FROM journal WHERE kind = ?", (damaged,)).fetchall()
            db.execute("UPDATE journal SET body = ? WHERE rowid = ?", (body[:-1] + bytes([body[-1] ^ 1]), at))
        db.close()
        if forgotten:
            before = desk._book.sequence
            with pytest.raises(Later):
                desk.forget("ann")
            assert desk._book.sequence == before and len(desk._requests.of(desk._keeper.who("ann"))) == 1
        ran, _ = shown(desk, lambda desk=desk: ask(desk, "bob", "new", X))  # type: ignore[misc]
        worlds.append([ran])
        assert not desk.ended
        desk.pop.close()
    same(*worlds)


def test_nothing_stays_of_a_label_whose_call_was_cut_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as desk:
        mine = ticket(ask(desk, "ann", "1", HERS))
        theirs = ticket(ask(desk, "bob", "1", X))
        for subject, brought in (("ann", mine), ("bob", theirs)):
            with monkeypatch.context() as patch:
                cut(patch, Requests, "lessons", False)
                with pytest.raises(Cut):
                    learn(desk, subject, brought, "yes")
        assert len(desk._requests._ended) == 2
        assert desk.forget("ann") and desk._requests._ended == {(1, 2)}


# ---------------------------------------------------------------------- what is cut off on its way out of the memory


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, sqlite3.OperationalError])
def test_a_call_that_is_cut_off_while_questions_leave_the_memory_ends_the_book(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], late: bool
) -> None:
    """They would be in the index and in memory, or in neither; opened again, all of theirs is found and erased."""
    with opened(folder, "leaves") as desk:
        hers = ask(desk, "ann", "hers", HERS)
        assert learn(desk, "ann", ticket(hers), "yes") is None
        add = Older.add

        def cut(self: Older, left: Any) -> None:
            if late:
                add(self, left)
            raise error("somebody's words")

        with monkeypatch.context() as patch:
            patch.setattr(Older, "add", cut)
            with pytest.raises(BaseException) as raised:
                for i in range(20):
                    many(desk, "bob", f"x{i}", 5)
        assert type(raised.value) is error and desk.ended
        for act in (lambda: many(desk, "bob", "again", 5), lambda: desk.forget("ann")):
            with pytest.raises(StateError) as told:
                act()
            assert "cut off" in str(told.value) and "somebody" not in str(told.value)
    with opened(folder, "leaves") as desk:
        many(desk, "bob", "more", 5)
        assert desk.forget("ann") and journaled(desk) == 0


@pytest.mark.parametrize("act", ["nothing", "label", "wrong label", "forget"])
def test_the_first_write_after_a_load_says_again_nobody_of_before(folder: Path, act: str) -> None:
    """Everybody whose row counts for the ranges was in it, unless a private call came first and took them along."""

    def opens() -> PopDesk:
        return PopDesk.open(folder, lambda: guided("people", 3000, ticket_life=500), save_every=None)

    desk = opens()
    said = [ask(desk, f"p{i}", "1", HERS) for i in range(7)]
    desk.leave()
    with opens() as desk:
        if act == "forget":
            assert desk.forget("p1")
        elif act != "nothing":
            learn(desk, "p6", ticket(said[6]) if act == "label" else "no ticket", "yes")
        statements = list[str]()
        desk._book._store.db.set_trace_callback(statements.append)  # type: ignore[attr-defined]
        assert ask(desk, "bob", "1", HERS).answer is not None
        assert sum("INTO person" in one for one in statements) == 1, "bob's own"
