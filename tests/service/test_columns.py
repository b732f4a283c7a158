"""Questions by columns say what each says by itself; and what a snapshot makes needless goes in writes of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide import POP, Plan
from confide.ledger import Entry, Ledger
from confide.pop import tickets as signing
from confide.pop.tickets import Tickets
from confide.service.base import Question, Reply, Said
from confide.service.desk import PopDesk
from confide.service.journal import ASKED, NOBODY, TAUGHT, Columns, Row, Rows
from confide.service.requests import Requests
from confide.service.words import UNSWEPT
from tests.label_pops import Last
from tests.saved import CLEAR, DOUBT, echo, small_plan
from tests.service.opened import ask, folder, guided, learn, open_desk, ticket

__all__ = ["folder"]

pytestmark = pytest.mark.claim("people.md")

ANN, BOB = b"ann" * 5 + b"!", b"bob" * 5 + b"!"
CALM = settings(derandomize=True, deadline=None, max_examples=60)


def alone(learner: Any = None) -> POP:
    plan = Plan.labels_alone(1.0, 2, units="people", unit_labels=50)
    return POP(learner, plan, labels=["no", "yes"], features=2, units="people", seed=1)


# ---------------------------------------------------------------------- replies

MADE: dict[str, Callable[[], POP]] = {
    "copies": lambda: echo(seed=1),
    "guided": lambda: guided("people", 3000),
    "guided rounds": lambda: guided("rounds", 3000),
    "labels alone": alone,
    "labels alone, no probabilities": lambda: alone(Last()),
}


@pytest.mark.parametrize("way", MADE)
def test_replies_to_a_call_are_those_to_its_questions_one_by_one(
    way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels, sources, guides' own answers, tickets, probabilities; also of calls with retries and refused ones."""
    replies, seen, fast = Requests.replies, list[Said](), list[bool]()

    def both(self: Requests, asked: Any, found: Sequence[Any]) -> list[Reply]:
        said = replies(self, asked, found)
        fast.append(asked.note is not None and min(asked.note.rows.label) >= 0)
        one_by_one = [self.reply(asked, i, one) for i, one in enumerate(found)]
        assert said == one_by_one
        for one, other in zip(said, one_by_one, strict=True):
            assert type(one) is type(other) is Reply and type(one.again) is type(other.again)
            if one.answer is not None:
                assert type(one.answer) is Said and [*map(type, one.answer)] == [*map(type, other.answer)]  # type: ignore
                seen.append(one.answer)
        return said

    monkeypatch.setattr(Requests, "replies", both)
    with PopDesk.open(folder, MADE[way], save_every=None) as desk:
        for i in range(6):
            xs = [CLEAR, DOUBT, [1.0, float(i)], [2.0, 0.0]]
            said = desk.ask([Question(f"p{k % 3}", f"{i} {k}", x) for k, x in enumerate(xs)])
            assert learn(desk, "p1", ticket(said[1]), "yes" if i % 3 else "no") is None
        assert desk.forget("p2")
        mixed = [("p0", "0 0", CLEAR), ("p0", "new", CLEAR), ("p0", "0 0", DOUBT), ("p2", "0 2", CLEAR)]
        told = desk.ask([Question(*one) for one in [*mixed, ("p1", "wrong", "words")]])
        kinds = [one.refusal and one.refusal.kind for one in told]
        assert kinds == [None, None, "conflict", "conflict", "malformed"]
        ask(desk, "p1", "alone", DOUBT)
    assert fast.count(True) >= 7 and fast[-2:] == [False, True]
    sources = {"copies": {"copies", "fallback"}, "guided": {"guide", "fallback"}}
    assert way.split()[0] not in sources or {one.source for one in seen} == sources[way.split()[0]]
    assert way != "copies" or {one.sure for one in seen} == {False, True}
    assert {one.probabilities is None for one in seen} == {way != "labels alone"}
    assert any(one.guide is not None for one in seen) is (way != "copies"), "a guide, or what stands in its place"


@pytest.mark.parametrize("lives", [{}, {3: (12345, 0), 4: (2**60 + 1, 7)}])
def test_many_tickets_are_signed_as_each_would_be(lives: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (Tickets(b"k" * 32, 100) for _ in range(2))
    for each in (one, other):
        each.kept, each.lives = True, lives
    numbers, whose = [8, 9, 10, 2**40], [ANN, BOB, ANN, b""]
    for epoch in (3, 4):
        signed = one.sign_many(epoch, numbers, whose)
        assert signed == [other.sign((epoch, n), who) for n, who in zip(numbers, whose, strict=True)]
        assert one._known == other._known
        assert one.read_many(signed, ANN) == [(epoch, 8), None, (epoch, 10), None]
        one._known.clear()
        assert one.read_many(signed, ANN) == [(epoch, 8), None, (epoch, 10), None], "by their signatures alone"
        other._known.clear()
    monkeypatch.setattr(signing, "_KNOWN", 6)
    for i in range(10):
        one.sign_many(4, [3 * i, 3 * i + 1, 3 * i + 2], [ANN, BOB, ANN])
        assert 3 <= len(one._known) <= 6


# ---------------------------------------------------------------------- rows by columns

ROOM = 24
hashes = st.binary(min_size=16, max_size=16)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


ROWS = st.builds(
    Row, hashes.filter(lambda one: one != NOBODY), hashes, hashes, whole(64), whole(32), whole(32), whole(32),
    whole(16), whole(16), whole(8), st.none() | st.binary(max_size=ROOM),
)  # fmt: skip


@CALM
@given(st.lists(ROWS, max_size=6), st.data())
def test_rows_come_back_from_columns_and_from_a_notes_body(rows: list[Row], data: st.DataObject) -> None:
    columns, made = Columns.of(rows), Rows(ROOM)
    n = len(rows)
    assert [columns.row(i) for i in range(n)] == rows and Columns.of(iter(rows)) == columns
    body = made.body(columns)
    assert len(body) == n * made.width and [*made.read(body)] == rows
    assert [*made.placed(body)] == [*enumerate(rows)] and [*Rows.of(made.width).read(body)] == rows
    assert [made.at(body, i) for i in range(-1, n + 1)] == [None, *rows, None]
    where, most = st.integers(0, max(0, n - 1)), 6 * (n > 0)
    some = data.draw(st.lists(where, max_size=most))
    assert [columns.some(some).row(i) for i in range(len(some))] == [rows[i] for i in some]
    others = data.draw(st.dictionaries(where, ROWS, max_size=most))
    changed = columns.but(others)
    assert [changed.row(i) for i in range(n)] == [others.get(i, one) for i, one in enumerate(rows)]
    assert [columns.row(i) for i in range(n)] == rows, "those it was made of are as they were"
    assert [*made.read(made.body(changed))] == [changed.row(i) for i in range(n)]
    left = columns.but({i: rows[i].left(b"n" * 16, b"c" * 16) for i in others})
    assert [*made.placed(made.body(left))] == [
        (i, one) for i in range(n) if (one := left.row(i)).whose != NOBODY
    ], "what was erased is not read, and the others are where they were"  # fmt: skip


# ---------------------------------------------------------------------- what is dropped in a write of its own


def test_what_could_not_be_swept_goes_with_the_next_sweep_and_with_no_other_write(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file, and on a server; and what failed in its midst has changed nothing."""
    with Ledger(place) as ledger:
        ledger.create("shop")
        with ledger.claim("shop") as shop:
            lesson = (TAUGHT, 16, ANN), (ASKED, 16, BOB)
            for i in range(4):
                shop.wait(shop.add(Entry(i, 0, used=((0, i),), notes=lesson)))

            def left() -> tuple[list[int], list[int], list[int]]:
                notes = [(kind, at) for kind, at, *_ in shop._store.notes(shop._key)]
                by_kind = [[at for named, at in notes if named == kind] for kind in (TAUGHT, ASKED)]
                return sorted(number for _, number in ledger.read("shop").used), by_kind[0], by_kind[1]

            whole = left()
            assert whole == ([0, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4])
            store, durable = type(shop._store), shop.durable
            tear = store._tear

            def full(*given: Any) -> None:
                tear(*given)
                raise OSError(28, "No space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(store, "_tear", full)
                for prune, last in ((1, 2), (0, 1)):
                    assert not shop.sweep(prune, {TAUGHT: last}) and shop.owes
                    assert left() == whole and shop.durable == durable and not shop.ended
            shop.wait(shop.add(Entry(9, 0)))
            shop.tear(ASKED, 1)
            shop.wait(shop.add(Entry(10, 0)), private=True)
            assert left() == ([0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4]), "a write drops what goes with it alone"
            assert shop.sweep(tear={ASKED: 2}) and not shop.owes
            assert left() == ([2, 3], [3, 4], [3, 4]), "with all that was owed, as far as it was"
            shop.wait(shop.add(Entry(11, 0, used=((0, 1),))))
            shop.sweep()
            assert left() == ([1, 2, 3], [3, 4], [3, 4]), "once"


def test_a_sweep_is_no_part_of_what_waits_to_be_written(place: str) -> None:
    """It takes nothing along, and does not wait for it: what was added before it is not on the disk after it."""
    with Ledger(place) as ledger:
        ledger.create("shop")
        with ledger.claim("shop") as shop:
            shop.wait(shop.add(Entry(1, 0, used=((0, 1),))))
            at = shop.add(Entry(2, 0, used=((0, 2),)))
            shop.sweep(5)
            assert ledger.read("shop").used == frozenset() and ledger.read("shop").rounds == 1
            assert shop.durable == at - 1
            shop.wait(at)
            assert ledger.read("shop").used == {(0, 2)} and ledger.read("shop").rounds == 2


def test_a_snapshot_whose_sweep_failed_is_told_to_the_operator_and_to_nobody_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_desk(folder, save_every=10, plan=small_plan(), ticket_life=20) as desk:
        store = type(desk._book._store)

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(store, "sweep", full)
            assert all(ask(desk, "ann", str(i), CLEAR).answer for i in range(60))
            desk.save()
            assert desk.private()["alarms"] == [UNSWEPT] and not desk.ended
        desk.save()
        assert not desk.private()["alarms"]


def test_what_cannot_be_stored_is_not_read_when_it_is_sent_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be anything, and everybody waits while replies are made."""
    with open_desk(folder) as desk:
        first = ask(desk, "ann", "long", "x" * 10_000)

        def read(*_: Any) -> Any:
            raise AssertionError("it was read")

        monkeypatch.setattr(desk.pop, "readable", read)
        again = ask(desk, "ann", "long", "x" * 10_000)
        assert again.refusal is not None and again.refusal == first.refusal and again.round == first.round
