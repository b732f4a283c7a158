"""Durable before it is seen: every call writes once, whatever came of it, and nothing leaves before that is on disk."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Monitor, StateError, TicketError
from confide.ledger import Book, Ledger
from confide.pop.account import Account
from tests.saved import CLEAR, DOUBT, ECHO, Spy, account, bank_of, echo, full, make, small_plan, spent, teach

pytestmark = pytest.mark.claim("people.md")

MALFORMED = ["x", 0.0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


# ---------------------------------------------------------------------- one write a call


def predictions(pop: POP) -> dict[str, Callable[[], object]]:
    """A call for everything that can come of a question; ann is capped."""
    return {
        "sure": lambda: pop.predict(CLEAR, unit="bob"),
        "unsure": lambda: pop.predict(DOUBT, unit="carl"),
        "capped, sure": lambda: pop.predict(CLEAR, unit="ann"),
        "capped, unsure": lambda: pop.predict(DOUBT, unit="ann"),
        "malformed": lambda: pop.predict(MALFORMED, unit="dora"),
        "no row at all": lambda: pop.predict(object(), unit="dora"),
        "not watched any more": lambda: pop.predict(CLEAR, unit="bob"),
        "a batch": lambda: pop.predict_many([CLEAR], units=["emil"]),
        "a batch, malformed": lambda: pop.predict_many([MALFORMED], units=["fay"]),
    }


def pages(folder: Path) -> int:
    """How many pages were written since SQLite last began its -wal anew: those with the salt of its header."""
    wal = (folder / "ledger.db-wal").read_bytes()
    return sum(wal[at + 8 : at + 16] == wal[16:24] for at in range(32, len(wal), 24 + 4096))


def test_a_question_is_one_write_whatever_comes_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with echo(monitor=Monitor(epsilon=1.0)) as pop:
        pop.save(folder)
        for _ in range(2):
            pop.predict(DOUBT, unit="ann")
        spy, before, grown = Spy(monkeypatch), pages(folder), set[int]()
        for outcome, act in predictions(pop).items():
            assert spy.look(act) == (1, 1, (1, 1, 0)), outcome
            grown.add(pages(folder) - before)
            before = pages(folder)
        assert grown == {2}, "as many pages, too: the model's and the people's"
        assert pop.operator.unsure == 3 and pop.rounds == 11


def test_a_halted_one_writes_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its silence would tell others of the halt before it is durable."""
    with echo(after_halt="fallback") as pop:
        pop.save(folder)
        account(pop).unsure = 10_000
        spy = Spy(monkeypatch)
        assert spy.look(lambda: pop.predict(CLEAR, unit="ann")) == (1, 1, (1, 1, 0)) and pop.state == "halted"
        assert spy.look(lambda: pop.predict(CLEAR, unit="bob")) == (1, 1, (1, 1, 0))
        assert spy.look(lambda: pop.predict_many([CLEAR], units=["carl"])) == (1, 1, (1, 1, 0))


def test_a_label_is_one_write_whatever_comes_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with echo() as pop:
        pop.save(folder)
        good, other, third = (pop.predict(CLEAR, unit=f"person {i}").ticket for i in range(3))
        spy = Spy(monkeypatch)
        for act in (
            lambda: pop.learn(good, "yes"),
            lambda: pop.learn(good, "yes"),
            lambda: pop.learn(other, "perhaps"),
            lambda: pop.learn("nonsense", "yes"),
            lambda: pop.learn_many([other, "nonsense", third], ["yes", "yes", "perhaps"]),
        ):
            assert spy.look(act) == (1, 1, (0, 0, 0))
        assert spy.look(lambda: pop.forget("person 1")) == (1, 1, (1, 1, 1))
        assert spy.look(lambda: pop.forget("nobody")) == (1, 1, (1, 1, 1))
        assert spy.look(lambda: pop.teach(CLEAR, "no", unit="ann")) == (0, 0), "history is free, good or bad"
        assert spy.look(lambda: pop.teach(MALFORMED, "no", unit="ann")) == (0, 0)


def test_writes_that_follow_the_outcome_are_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: here only what changed is written."""
    enter, old = Account.enter, [0]

    def lazy(self: Account, *whos: Any, **more: Any) -> Any:
        whos = whos if self.unsure > old[0] else ()
        self._asked.clear()
        old[0] = self.unsure
        return enter(self, *whos, **more)

    monkeypatch.setattr(Account, "enter", lazy)
    with echo() as pop:
        pop.save(folder)
        spy = Spy(monkeypatch)
        seen = {spy.look(act) for act in predictions(pop).values()}
    assert len(seen) > 1


def test_what_is_spent_is_on_disk_before_the_answer(folder: Path) -> None:
    """Read by another connection, as it is when the answer leaves."""
    with make(monitor=Monitor(epsilon=1.0, rounds_per_unit=2)) as pop:
        pop.save(folder)
        ledger = Ledger(folder / "ledger.db")
        for i in range(6):
            pop.predict(DOUBT, unit=f"person {i % 2}")
            now, kept = account(pop), ledger.read("pop")
            assert (kept.rounds, kept.unsure, kept.shares) == (now.rounds, now.unsure, now.shares)
            assert kept.watched == now.watched
        assert pop.operator.unsure == 4
        pop.forget("person 1")
        assert [copy for _, copy, _ in ledger.read("pop").forgot] == [pop.operator.loop.routing.copy_for(
            pop.operator.loop.routing.who("person 1"))]  # fmt: skip


# ---------------------------------------------------------------------- disks that fail


def everything(pop: POP, tickets: list[str], folder: Path) -> dict[str, Callable[[], object]]:
    return {
        **predictions(pop),
        "several": lambda: pop.predict_many([CLEAR, DOUBT], units=["gil", "hana"]),
        "followed": lambda: pop.follow_many([CLEAR], np.zeros(1, dtype=np.int64), units=["gil"]),
        "a label": lambda: pop.learn(tickets[0], "yes"),
        "a label twice": lambda: pop.learn(tickets[0], "yes"),
        "a bad label": lambda: pop.learn(tickets[1], "perhaps"),
        "no ticket": lambda: pop.learn("nonsense", "yes"),
        "labels": lambda: pop.learn_many(tickets, ["yes"] * len(tickets)),
        "forget": lambda: pop.forget("ann"),
        "save": lambda: pop.save(folder),
    }


@pytest.mark.parametrize("outcome", ["sure", "unsure", "capped, sure", "malformed", "a batch", "followed"])
def test_after_a_failed_write_all_are_refused_alike(
    outcome: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pop = echo()
    pop.save(folder)
    tickets = [pop.predict(DOUBT, unit=who).ticket for who in ("ann", "ann", "ida")]
    acts = everything(pop, tickets, folder)
    with monkeypatch.context() as broken, pytest.raises(StateError, match="nothing is answered any more") as first:
        broken.setattr(Book, "_write", full)
        acts[outcome]()
    for name, act in acts.items():  # there is room again, but what was lost is not known
        with pytest.raises(StateError) as later:
            act()
        assert str(later.value) == str(first.value), name
    assert pop.state == "live" and "ann" not in str(first.value)
    pop.close()
    with POP.load(folder, **ECHO) as back:
        assert (back.rounds, back.operator.unsure) == (3, 3)
        assert back.predict(CLEAR, unit="bob").sure


def test_that_a_label_was_brought_is_not_told_by_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor that somebody was forgotten: others are refused only when they ask something themselves."""
    with echo() as pop:
        ann, bob = (pop.predict(DOUBT, unit=who) for who in ("ann", "bob"))
        pop.save(folder)
        with monkeypatch.context() as broken:
            broken.setattr(Book, "_write", full)
            pop.learn(ann.ticket, "yes")
            with pytest.raises(StateError, match="try again"):
                pop.forget("bob")
        ledger = Ledger(folder / "ledger.db")
        assert not ledger.read("pop").used and not ledger.read("pop").forgot
        assert pop.predict(CLEAR, unit="carl").sure
        assert ledger.read("pop").used == {(0, 1)} and len(ledger.read("pop").forgot) == 1, "with the next question"
    with POP.load(folder, **ECHO) as back:
        for ticket in (ann.ticket, bob.ticket):
            with pytest.raises(TicketError):
                back.learn(ticket, "yes")


def test_all_that_was_shown_on_a_disk_that_fills_up_is_remembered(folder: Path) -> None:
    """SQLite itself runs out of pages while new people come, sure and unsure by turns."""
    pop = echo(plan=small_plan(copies=60, unsure=1000))
    pop.save(folder)
    book = account(pop).book
    assert book is not None
    book._store.db.execute(f"PRAGMA max_page_count = {book._store.rows('PRAGMA page_count')[0][0] + 4}")
    shown = {True: 0, False: 0}
    with pytest.raises(StateError, match="the disk is full"):
        for i in range(2000):
            shown[pop.predict([CLEAR, DOUBT][i % 2], unit=f"person {i}").sure] += 1
    assert shown[False] >= 100
    for x in (CLEAR, DOUBT):
        with pytest.raises(StateError, match="the disk is full"):
            pop.predict(x, unit="person 0")
    pop.close()
    with POP.load(folder, **ECHO) as back:
        assert (back.rounds, back.operator.unsure) == (sum(shown.values()), shown[False])
        assert sum(account(back).shares.values()) == shown[False]


def test_an_interrupted_save_leaves_the_old_snapshot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pop = make()
    teach(pop, 20)
    pop.save(folder)
    before = (folder / "snapshot.npz").read_bytes()
    teach(pop, 20, "late teacher")

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as broken, pytest.raises(StateError, match="No space left"):
            broken.setattr(os, name, fail)
            pop.save(folder)
        assert (folder / "snapshot.npz").read_bytes() == before
    pop.predict(DOUBT, unit="ann")
    pop.save(folder)
    pop.close()
    with POP.load(folder) as back:
        assert bank_of(back) == bank_of(pop) and spent(back) == spent(pop)


def test_what_a_private_call_left_unwritten_does_not_end_a_pop_that_is_saved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pop = make()
    pop.save(folder)

    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Book, "_write", fail)
        for private in (lambda: pop.forget("ann"), lambda: pop.save(folder)):
            with pytest.raises(StateError, match="try again"):
                private()
    pop.predict(DOUBT, unit="bob")
    pop.save(folder)
    pop.close()


def test_a_first_save_that_fails_can_be_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pop = make()
    pop.predict(DOUBT, unit="ann")

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken, pytest.raises(StateError, match="No space left"):
        broken.setattr(np, "savez", fail)
        pop.save(folder)
    pop.predict(DOUBT, unit="ann")
    pop.save(folder)
    pop.close()
    with POP.load(folder) as back:
        assert back.operator.unsure == 2


# ---------------------------------------------------------------------- systems that lack something

ELSEWHERE = """
import os, sys
sys.modules["fcntl"] = None
del os.fdatasync
del os.O_DIRECTORY
from confide import POP
from tests.saved import DOUBT, make, spent
(folder,) = sys.argv[1:]
with make() as pop:
    ticket = pop.predict(DOUBT, unit="ann").ticket
    pop.save(folder)
    pop.predict(DOUBT, unit="ann")
with POP.load(folder) as back:
    back.learn(ticket, "yes")
    assert not back.predict(DOUBT, unit="bob").sure and spent(back)[:2] == (3, 3)
    back.save(folder)
print("done")
"""


def test_without_fcntl_and_fdatasync(tmp_path: Path) -> None:
    """As on Windows, and on macOS."""
    run = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert run.stdout == "done\n", run.stderr
