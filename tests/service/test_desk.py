"""A desk: retries find what was stored, labels are taken once from their holder, and nothing is lost with a process."""

import gc
import shutil
import sqlite3
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from confide import POP, Plan, StateError, TicketError
from confide.errors import ConfideWarning
from confide.learners import DecisionTree, Features, GaussianNB, LogisticRegression
from confide.ledger import Book, Entry, Ledger, file, snapshot
from confide.pop.base import SOURCES
from confide.pop.tickets import Tickets
from confide.service import requests
from confide.service.base import Later, Question, Taught
from confide.service.desk import PopDesk
from confide.service.journal import MOST_LABELS, NOBODY, Columns, Row, Rows
from tests.saved import CLEAR, DOUBT, bank_of, copy_of, echo, full, make, share, small_plan
from tests.service.opened import again, ask, both, folder, guided, killed, kind, learn, open_desk, ticket
from tests.worlds import guided_plan

pytestmark = pytest.mark.claim("people.md")
__all__ = ["folder"]


# ---------------------------------------------------------------------- retries


def test_a_retry_gets_the_stored_answer_and_takes_no_round(folder: Path) -> None:
    desk = open_desk(folder)
    first = ask(desk, "ann", "1", [1.0, 2.0])
    for one in both(desk):
        retry = ask(one, "ann", "1", [1.0, 2.0])
        assert retry.answer == first.answer and retry.round == first.round == 1 and retry.again and not first.again
        assert one.pop.rounds == 1 and share(one.pop, "ann") == 1


def test_another_x_under_the_same_id_is_its_senders_error_alone(folder: Path) -> None:
    with open_desk(folder) as desk:
        first = ask(desk, "ann", "1", [1.0, 2.0])
        other = ask(desk, "ann", "1", [1.0, 3.0])
        assert kind(other.refusal) == "conflict" and other.answer is None and desk.pop.rounds == 1
        bob = ask(desk, "bob", "1", [1.0, 3.0])
        assert bob.answer is not None and not bob.again and desk.pop.rounds == 2, "ids are their sender's own"
        assert ask(desk, "ann", "1", [1.0, 2.0]).answer == first.answer


def test_an_id_twice_in_one_batch_takes_one_round(folder: Path) -> None:
    with open_desk(folder) as desk:
        one, two, other, more = desk.ask(
            [Question("ann", "1", DOUBT), Question("ann", "1", DOUBT), Question("ann", "1", [1.0, 1.0]),
             Question("bob", "1", DOUBT)]
        )  # fmt: skip
        assert one.answer == two.answer and (one.again, two.again) == (False, True)
        assert (one.round, more.round) == (1, 2)
        assert kind(other.refusal) == "conflict" and desk.pop.rounds == 2


def test_the_order_of_names_does_not_make_another_question(folder: Path) -> None:
    with open_desk(folder, features=Features(numeric=("a", "b"))) as desk:
        first = ask(desk, "ann", "1", {"a": 1.0, "b": 2.0})
        assert ask(desk, "ann", "1", {"b": 2.0, "a": 1.0}).answer == first.answer
        assert kind(ask(desk, "ann", "1", {"a": 1.0, "b": 2.5}).refusal) == "conflict"


BAD: list[Any] = [[1.0], [1.0, "two"], None, "words", {"a": 1.0}, [1.0] * 99, "long " * 99, [[], 0.0], object()]
BAD += [{1: 2}, [b"1", 1]]


@pytest.mark.parametrize("x", BAD, ids=lambda x: repr(x)[:20])
def test_what_cannot_be_read_takes_its_round_and_is_told_again(x: Any, folder: Path) -> None:
    desk = open_desk(folder)
    first = ask(desk, "ann", "1", x)
    assert kind(first.refusal) == "malformed" and first.answer is None and first.round == 1
    for one in both(desk):
        retry = ask(one, "ann", "1", x)
        assert retry.refusal == first.refusal and retry.round == 1 and retry.again and one.pop.rounds == 1
    assert not one.private()["open_tickets"]


@pytest.mark.parametrize("x", [{"a": "b"}, {"a": 1.0}, {"x": 1.0, "y": 2.0}], ids=repr)
def test_a_guide_alone_refuses_unknown_names_where_positions_are_declared(x: Any, folder: Path) -> None:
    desk = PopDesk.open(folder, lambda: guided("rounds"))
    first = ask(desk, "ann", "1", x)
    assert kind(first.refusal) == "malformed" and first.answer is None and first.round == 1
    assert ask(desk, "ann", "2", [None, 1.0]).answer is not None, "a missing number is none of that"
    together = desk.ask([Question("bob", str(i), one) for i, one in enumerate([[1.0, 2.0], x])])
    assert together[0].answer is not None and together[1].refusal == first.refusal and desk.pop.rounds == 4
    assert ask(again(desk), "ann", "1", x).refusal == first.refusal


def test_requests_are_remembered_for_so_many_public_rounds(folder: Path) -> None:
    desk = open_desk(folder, ticket_life=20)
    first, late = ask(desk, "ann", "1", DOUBT), ask(desk, "ann", "2", DOUBT)
    for i in range(18):
        ask(desk, "bob", str(i), [0.0, float(i)])
    assert ask(desk, "ann", "1", DOUBT).round == 1, "19 rounds later it is known"
    ask(desk, "bob", "more", DOUBT)
    assert kind(learn(desk, "ann", ticket(first), "no")) == "ticket", "expired"
    assert learn(desk, "ann", ticket(late), "no") is None
    for one, name in zip(both(desk), ("1", "2"), strict=False):
        fresh = ask(one, "ann", name, [1.0, 1.0])
        assert not kind(fresh.refusal) and not fresh.again, "20 rounds later it is a new question"


def test_nothing_grows_with_the_number_of_rounds(folder: Path) -> None:
    with open_desk(folder, ticket_life=40, save_every=50, plan=small_plan(unsure=1000)) as desk:
        seen = []
        for i in range(30):
            got = desk.ask([Question(f"{i} {j}", "1", [float(i), float(j)]) for j in range(10)])
            desk.learn([Taught(f"{i} {j}", ticket(one), "no") for j, one in enumerate(got[:5])])
            notes = [kind for kind, *_ in _journal(desk)]
            seen.append((notes.count("asked"), notes.count("taught"), desk.private()["open_tickets"]))
        assert max(seen[10:])[0] <= 6 and max(taught for _, taught, _ in seen) <= 11
        assert max(waiting for *_, waiting in seen) <= 40


def _journal(desk: PopDesk) -> list[tuple[str, int, int, bytes]]:
    book = desk.pop.operator.loop.account.book
    assert book is not None
    return book._store.notes(book._key)


# ---------------------------------------------------------------------- what a call writes


class Sizes:
    """The sizes of everything that goes into the book."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[Any, ...]] = []
        add = Book.add

        def added(book: Book, entry: Entry) -> int:
            forms = [(kind, width, len(body)) for kind, width, body in entry.notes]
            self.seen.append((len(entry.shares), len(entry.watched), len(entry.used), *forms))
            return add(book, entry)

        monkeypatch.setattr(Book, "add", added)


def test_what_is_written_does_not_depend_on_what_came_of_a_question(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sure, unsure, capped, malformed, too long, halted: the same bytes but for their values."""
    desk = PopDesk.open(folder, lambda: echo(plan=small_plan(unsure=5, copies=60)))
    ask(desk, "somebody", "the first", CLEAR)  # whose entry has the operator's counts too
    sizes = Sizes(monkeypatch)
    sources, kinds = set(), set()
    for i in range(400):
        x: Any = {0: CLEAR, 1: DOUBT, 2: [1.0], 3: [0.5] * 200, 4: "x" * 40}[i % 5]
        got = ask(desk, f"person {i % 40}", str(i), x)
        sources.add(got.answer.source if got.answer else None)
        kinds.add(kind(got.refusal))
        if i == 380:
            desk.pop.operator.loop.account.halted = "budget"  # as it would, sooner or later
    assert sources >= {"copies", "fallback", None} and kinds == {None, "malformed", "halted"}
    assert len(set(sizes.seen)) == 1


def test_a_batch_is_one_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_desk(folder) as desk:
        writes, write = [], Book._write
        monkeypatch.setattr(Book, "_write", lambda book: (writes.append(1), write(book)))
        got = desk.ask([Question(f"{i}", "1", DOUBT) for i in range(50)])
        assert len(writes) == 1
        desk.learn([Taught(f"{i}", ticket(one), "no") for i, one in enumerate(got)])
        assert len(writes) == 2
        desk.ask([Question(f"{i}", "1", DOUBT) for i in range(50)])
        assert len(writes) == 2, "a retry writes nothing"


# ---------------------------------------------------------------------- labels


def test_a_label_is_taken_once_from_its_holder(folder: Path) -> None:
    desk = open_desk(folder)
    mine = ticket(ask(desk, "ann", "1", DOUBT))
    assert kind(learn(desk, "bob", mine, "yes")) == "ticket" and kind(learn(desk, "ann", "1-1-x", "no")) == "ticket"
    assert kind(learn(desk, "ann", mine, "perhaps")) == "label" and desk.pop.operator.taught == 0
    assert learn(desk, "ann", mine, "yes") is None and desk.pop.operator.taught == 1
    for one in both(desk):
        assert learn(one, "ann", mine, "yes") is None, "the acknowledgement may have been lost"
        assert kind(learn(one, "ann", mine, "no")) == "ticket"
        assert kind(learn(one, "bob", mine, "yes")) == "ticket" and one.pop.operator.taught == 1


def test_one_ticket_twice_in_a_batch_of_labels(folder: Path) -> None:
    with open_desk(folder) as desk:
        mine = ticket(ask(desk, "ann", "1", DOUBT))
        said = desk.learn([Taught("ann", mine, y) for y in ("yes", "yes", "no")])
        assert [kind(one) for one in said] == [None, None, "ticket"] and desk.pop.operator.taught == 1


def test_a_ticket_of_the_pop_alone_is_nobodys_at_its_desk_and_the_other_way_round(folder: Path) -> None:
    """One key signs both, in one way: a desk's ticket has its holder and its life in it."""
    with make() as pop:
        own = pop.predict(DOUBT, "ann").ticket
        pop.save(folder)
    with open_desk(folder) as desk:
        assert kind(learn(desk, "ann", own, "yes")) == "ticket"
        desks = ticket(ask(desk, "ann", "1", DOUBT))
        assert learn(desk, "ann", ticket(ask(desk, "ann", "2", DOUBT)), "yes") is None
    with pytest.warns(ConfideWarning, match="teaches nothing here.* `confide serve`"):
        pop = POP.load(folder)
    with pop, pytest.raises(TicketError, match="not issued"):
        pop.learn(desks, "yes")


@pytest.mark.parametrize("text", ["", "-", "1-1-0-0-0", "٣-1-a-b-c", "\0", "x" * 5000, "1-1", "\ud800-1-2-3-4"])
def test_whatever_is_brought_as_a_ticket_is_no_more_than_refused(text: str, folder: Path) -> None:
    with open_desk(folder) as desk:
        ask(desk, "ann", "1", DOUBT)
        assert kind(learn(desk, "ann", text, "yes")) == "ticket"
        assert ask(desk, "ann", "2", DOUBT).round == 2


# ---------------------------------------------------------------------- after a crash


@pytest.mark.parametrize(
    ("learner", "features"),
    [(LogisticRegression(), 2), (GaussianNB(), 2), (DecisionTree(memory=8), Features(numeric=("a", "b")))],
    ids=repr,
)
def test_copies_are_taught_again_bit_for_bit(learner: Any, features: Any, folder: Path) -> None:
    named = not isinstance(features, int)

    def x(i: int) -> Any:
        return {"b": i % 3 - 1.25, "a": i % 7 - 3.0} if named else [i % 7 - 3.0, i % 3 - 1.25]

    desk = open_desk(folder, learner=learner, features=features, plan=small_plan(unsure=1000))
    desk.teach([(f"teacher {i}", x(i), "yes" if i % 7 > 3 else "no") for i in range(60)])
    waiting = []
    for i in range(80):
        waiting.append((f"person {i % 25}", ticket(ask(desk, f"person {i % 25}", str(i), x(i)))))
        if i % 3:
            learn(desk, *waiting.pop(0), "yes" if i % 2 else "no")
        if i == 30:
            desk.save()
        if i in (20, 50):
            desk.forget("person 7")
        if i in (10, 40, 60, 79):
            known = bank_of(desk.pop)
            desk = again(desk)
            assert bank_of(desk.pop) == known
    assert bank_of(desk.pop) != bank_of(make(learner, features=features)), "they had learned something"
    desk.close()


def test_a_rolling_restart_loses_no_ticket(folder: Path) -> None:
    desk, waiting = open_desk(folder), dict[str, str]()
    for life in range(4):
        waiting[f"person {life}"] = ticket(ask(desk, f"person {life}", "1", DOUBT))
        desk.close()
        desk = PopDesk.open(folder, make)
    for who, brought in waiting.items():
        assert learn(desk, who, brought, "yes") is None
    assert desk.pop.operator.taught == 4


def test_who_was_forgotten_leaves_nothing_that_can_be_asked_for(folder: Path) -> None:
    desk = open_desk(folder, features=Features(numeric=("a",), text={"words": 8}))
    x = {"a": 1.0, "words": "a needle in the haystack"}
    used, waiting = (ticket(ask(desk, "ann", name, x)) for name in ("1", "2"))
    bob = ticket(ask(desk, "bob", "1", {"a": 1.0, "words": "straw that stays"}))
    learn(desk, "ann", used, "yes")
    desk.teach([("ann", x, "no")])
    assert b"needle" in b"".join(body for *_, body in _journal(desk))
    desk.forget("ann")
    ann = desk._keeper.who("ann")
    for one in both(desk):
        bodies = b"".join(body for *_, body in _journal(one))
        assert b"needle" not in bodies and ann not in bodies and b"straw" in bodies
        assert one.person("ann")["rounds"] == 0 and one.person("ann")["unsure"] == 2, "what was spent stays spent"
        assert kind(learn(one, "ann", waiting, "yes")) == kind(learn(one, "ann", used, "yes")) == "ticket"
    assert learn(one, "bob", bob, "yes") is None
    one.close()
    assert b"needle" not in (one.folder / "ledger.db").read_bytes(), "the pages themselves were overwritten"


@pytest.mark.parametrize("units", ["people", "rounds"])
def test_who_forgets_somebody_learns_whether_anybody_was_known(folder: Path, units: str) -> None:
    plan = small_plan() if units == "people" else small_plan(unit_unsure=1)
    with open_desk(folder, units=units, plan=plan) as desk:
        ask(desk, "ann", "1", DOUBT)
        desk.teach([("bob", [1.0, 1.0], "yes")])
        assert not desk.forget("anm") and not desk.forget("anm")
        assert desk.forget("ann") and desk.forget("bob")
    with open_desk(folder) as desk:
        assert not desk.forget("anm") and desk.forget("ann") == (units == "people"), "what was counted stays so"


def test_a_repeated_request_takes_no_round_whether_or_not_its_person_was_forgotten(folder: Path) -> None:
    """Else the number of rounds, which is public, would tell that somebody was forgotten."""
    desk = open_desk(folder, ticket_life=20)
    desk.ask([Question("ann", "1", DOUBT), Question("bob", "1", DOUBT), Question("ann", "2", [1.0])])
    desk.forget("ann")
    desk.forget("ann")
    for one in both(desk):
        for name, x in (("1", DOUBT), ("2", [1.0]), ("1", [1.0, 3.0])):
            repeated = ask(one, "ann", name, x)
            assert kind(repeated.refusal) == "conflict" and repeated.answer is None and one.pop.rounds == 3
        assert ask(one, "bob", "1", DOUBT).again, "others are known as before"
    desk = again(one)
    for i in range(18):
        ask(desk, "bob", f"more {i}", [0.0, float(i)])
    assert not ask(desk, "ann", "1", DOUBT).refusal and desk.pop.rounds == 22, "after a ticket's life the id is new"
    assert kind(ask(desk, "ann", "2", DOUBT).refusal) == "conflict", "and not before"
    desk.close()


def test_a_copy_that_was_reset_is_not_taught_what_came_before(folder: Path) -> None:
    desk = open_desk(folder, plan=small_plan(copies=3))
    names = [f"person {i}" for i in range(40)]
    mine = [name for name in names if copy_of(desk.pop, name) == copy_of(desk.pop, names[0])]
    for name in mine[:3]:
        learn(desk, name, ticket(ask(desk, name, "1", [1.0, 1.0])), "yes")
    desk.forget(mine[0])
    learn(desk, mine[1], ticket(ask(desk, mine[1], "2", [0.0, 2.0])), "no")
    known = bank_of(desk.pop)
    assert bank_of(again(desk).pop) == known


def test_clocks_may_jump(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing asks what time it is."""

    def what_time() -> float:
        raise AssertionError("somebody looked at the clock")

    for name in ("time", "monotonic", "perf_counter", "time_ns"):
        monkeypatch.setattr(time, name, what_time)
    desk = open_desk(folder)
    mine = ticket(ask(desk, "ann", "1", DOUBT))
    desk = again(desk)
    assert learn(desk, "ann", mine, "yes") is None
    desk.close()


# ---------------------------------------------------------------------- the guide


def _open_leaf(desk: PopDesk) -> Any:
    guiding = desk.pop.operator.loop.guiding
    assert guiding is not None
    return guiding.guide._leaves.open.copy()


def _life(desk: PopDesk, first: int, rounds: int, people: int = 10**6) -> None:
    for i in range(first, first + rounds):
        who = f"person {i % people}"
        got = ask(desk, who, str(i), [i % 7 - 3.0, i % 5 - 2.0])
        learn(desk, who, ticket(got), "yes" if i % 7 > 3 else "no")


@pytest.mark.parametrize("saved", [False, True], ids=["old snapshot", "new snapshot"])
@pytest.mark.parametrize("units", ["rounds", "people"])
def test_lessons_of_the_open_leaf_are_the_guides_again(units: str, saved: bool, folder: Path) -> None:
    """Those of released leaves are not: not one gradient is twice in what is released."""
    desk = PopDesk.open(folder, lambda: guided(units, epsilon=2.0), save_every=None)
    plan = desk.pop.plan.guide
    assert plan is not None and plan.range_rounds == 0
    ends, warm = plan.main.ends, plan.warm_leaves
    first = plan.range_rounds + (ends[1] + ends[2]) // 2
    _life(desk, 0, first)
    if saved:
        desk.save()
    leaf, released = _open_leaf(desk), desk.public()["guide"]
    caps = dict(desk.pop.operator.loop.account.labels)
    assert leaf.any() and released["released"] == warm + 2
    for _ in range(3):
        desk = again(desk, save_every=None)
        assert (_open_leaf(desk) == leaf).all() and desk.public()["guide"] == released
        assert desk.pop.operator.loop.account.labels == caps, "a replayed gradient is not counted again"
    _life(desk, first, ends[2] - ends[1])
    exact = [desk.pop.operator.loop.guiding.guide._leaves.sums[i].copy() for i in range(3)]  # type: ignore[union-attr]
    desk = again(desk, save_every=None)
    kept = desk.pop.operator.loop.guiding.guide._leaves.sums  # type: ignore[union-attr]
    assert all((kept[i] == exact[i]).all() for i in range(3)) and desk.public()["guide"]["released"] == warm + 3


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_a_question_teaches_after_a_load_what_it_would_have_taught_without(units: str, folder: Path) -> None:
    """One of the warm-up teaches the main stage nothing, and spends no label; those of the main stage the same bits."""
    whole = guided_plan(alone=True, ranges=10, apart=units == "rounds")
    desk = PopDesk.open(
        folder, lambda: POP(None, whole, labels=["no", "yes"], features=2, units=units), save_every=None  # type: ignore[arg-type]
    )
    plan = whole.guide
    assert plan is not None
    early = [ticket(ask(desk, "ann", "early", [3.0, 1.0]))]
    _life(desk, 0, plan.range_rounds + plan.main.ends[0] - 1)
    later = [ticket(ask(desk, "bob", "later", [2.0, -1.0]))]
    _life(desk, 10**4, plan.main.ends[0] - 1)
    before = _open_leaf(desk)
    moved, copy = list[Any](), folder.with_name("copy")
    shutil.copytree(folder, copy)
    for number in range(2):
        one = desk if number == 0 else PopDesk.open(copy, lambda: guided(units), save_every=None)
        spent = dict(one.pop.operator.loop.account.labels)
        assert learn(one, "ann", early[0], "yes") is None
        assert (_open_leaf(one) == before).all() and one.pop.operator.loop.account.labels == spent
        assert learn(one, "bob", later[0], "yes") is None
        moved.append(_open_leaf(one) - before)
        assert (_open_leaf(again(one)) == before + moved[-1]).all(), "a replay reads it as it was, too"
    assert moved[0].any() and (moved[0] == moved[1]).all()


def test_a_cap_is_kept_over_replays(folder: Path) -> None:
    """A person past their cap teaches the guide nothing, and nothing in a replay either."""
    desk = PopDesk.open(folder, lambda: guided("people"))
    plan = desk.pop.plan.guide
    assert plan is not None
    _life(desk, 0, plan.range_rounds + 1)
    at = plan.range_rounds + 1
    for i in range(plan.unit_labels + 3):
        learn(desk, "ann", ticket(ask(desk, "ann", str(i), [3.0, 1.0])), "yes")
    assert desk.person("ann")["guide_labels"] == plan.unit_labels and at
    leaf = _open_leaf(desk)
    desk = again(desk)
    assert (_open_leaf(desk) == leaf).all() and desk.person("ann")["guide_labels"] == plan.unit_labels


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_rows_that_were_counted_for_ranges_are_counted_again_once(units: str, folder: Path) -> None:
    desk = PopDesk.open(folder, lambda: guided(units, rounds=4000))
    plan = desk.pop.plan.guide
    assert plan is not None and plan.range_rounds > 8
    _life(desk, 0, 8, people=5)
    ask(desk, "bad", "1", [1.0])
    ask(desk, "waits", "1", [1.0, 1.0])  # for a label: it is read again, and not counted for that

    def counts(one: PopDesk) -> Any:
        return one.pop.operator.loop.guiding.guide._counted.counts.copy()  # type: ignore[union-attr]

    before = counts(desk)
    assert before.any()
    for _ in range(2):
        desk = again(desk)
        assert (counts(desk) == before).all()


def test_history_is_in_the_journal_too(folder: Path) -> None:
    desk = open_desk(folder)
    good = [1.0, 2.0]
    said = desk.teach([("ann", good, "yes"), ("bob", [1.0], "no"), ("carl", good, "perhaps"), (None, good, "no")])
    assert [kind(one) for one in said] == [None, "malformed", "label", "malformed"]
    known = bank_of(desk.pop)
    back = again(desk)
    assert bank_of(back.pop) == known and back.pop.operator.taught == 1


# ---------------------------------------------------------------------- a ledger that was rolled back


def test_a_ticket_from_beyond_the_ledgers_end_closes_the_model_for_good(folder: Path) -> None:
    desk = open_desk(folder)
    past = ticket(ask(desk, "ann", "1", DOUBT))
    desk.close()
    backup = killed(PopDesk.open(folder, make))
    desk = PopDesk.open(folder, make)
    future = ticket(ask(desk, "ann", "2", DOUBT))
    desk.close()
    rolled = PopDesk.open(backup, make)
    assert learn(rolled, "ann", past, "no") is None, "what it knows is good"
    assert kind(learn(rolled, "bob", future, "no")) == "ticket", "nobody proves anything with another's ticket"
    with pytest.raises(StateError, match="rolled back"):
        learn(rolled, "ann", future, "no")
    for use in (lambda: ask(rolled, "bob", "3", DOUBT), lambda: rolled.forget("ann"), lambda: rolled.teach([])):
        with pytest.raises(StateError, match="rolled back"):
            use()
    assert "rolled back" in rolled.private()["alarms"][0]
    rolled.close()
    with pytest.raises(StateError, match="rolled back"):
        PopDesk.open(backup, make)
    with pytest.raises(StateError, match="rolled back"):
        POP.load(backup)


def test_it_is_found_out_however_far_the_model_went_on(folder: Path) -> None:
    """Neither the round nor the epoch of the ticket is beyond those of the ledger any more: the life's mark is."""
    desk = open_desk(folder)
    ask(desk, "ann", "1", DOUBT)
    desk.close()
    backup = killed(PopDesk.open(folder, make))
    desk = PopDesk.open(folder, make)
    future = ticket(ask(desk, "ann", "2", DOUBT))
    desk.close()
    rolled = PopDesk.open(backup, make)
    for i in range(5):
        ask(rolled, "bob", str(i), DOUBT)
    rolled = again(again(rolled))
    with pytest.raises(StateError, match="rolled back"):
        learn(rolled, "ann", future, "no")


def test_within_one_life_too(folder: Path) -> None:
    """A copy of the folder from the middle of a life: the later rounds of that life have the same mark."""
    desk = open_desk(folder)
    ask(desk, "ann", "1", DOUBT)
    alive = desk.folder.with_name("backup")
    shutil.copytree(desk.folder, alive)
    future = ticket(ask(desk, "ann", "2", DOUBT))
    desk.close()
    rolled = PopDesk.open(alive, make)
    for i in range(5):
        ask(rolled, "bob", str(i), DOUBT)
    with pytest.raises(StateError, match="rolled back"):
        learn(rolled, "ann", future, "no")


# ---------------------------------------------------------------------- disks that fail


def test_after_a_failed_write_nobody_is_answered_and_nothing_shown_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = open_desk(folder)
    mine = ask(desk, "ann", "1", DOUBT)
    with monkeypatch.context() as patch:
        patch.setattr(Book, "_write", full)
        with pytest.raises(StateError, match="make room"):
            ask(desk, "bob", "1", DOUBT)
    for use in (
        lambda: ask(desk, "ann", "1", DOUBT), lambda: ask(desk, "carl", "1", DOUBT), lambda: desk.forget("ann"),
        lambda: learn(desk, "ann", ticket(mine), "no"), lambda: learn(desk, "ann", "nonsense", "no"),
    ):  # fmt: skip
        with pytest.raises(StateError, match="make room"):
            use()
    assert desk.private()["alarms"]
    desk = again(desk)
    assert ask(desk, "ann", "1", DOUBT).answer == mine.answer and desk.pop.rounds == 1
    assert not ask(desk, "bob", "1", DOUBT).again, "its round never took place"
    assert learn(desk, "ann", ticket(mine), "no") is None


def test_a_snapshot_that_cannot_be_written_is_the_operators_worry_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are durable without it."""
    with open_desk(folder, save_every=5) as desk:
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "_replace", lambda *_: (_ for _ in ()).throw(StateError("no room")))
            for i in range(7):
                assert ask(desk, f"person {i}", "1", DOUBT).round == i + 1
            assert "snapshot" in desk.private()["alarms"][0]
        for i in range(7, 12):
            ask(desk, f"person {i}", "1", DOUBT)
        assert not desk.private()["alarms"], "it was written the next time"


def test_a_label_that_could_not_be_written_stops_nobody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = open_desk(folder)
    mine = ticket(ask(desk, "ann", "1", DOUBT))
    with monkeypatch.context() as patch:
        patch.setattr(Book, "_write", full)
        assert kind(learn(desk, "ann", mine, "yes")) == "later"
        assert kind(learn(desk, "ann", mine, "yes")) == "later", "still not durable"
        assert kind(learn(desk, "ann", mine, "no")) == "ticket"
        with pytest.raises(Later):
            desk.forget("bob")
    assert ask(desk, "bob", "1", DOUBT).answer is not None
    assert learn(desk, "ann", mine, "yes") is None and desk.pop.operator.taught == 1
    assert learn(again(desk), "ann", mine, "yes") is None


def test_a_label_that_was_not_acknowledged_may_be_lost_and_brought_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = open_desk(folder)
    mine = ticket(ask(desk, "ann", "1", DOUBT))
    with monkeypatch.context() as patch:
        patch.setattr(Book, "_write", full)
        assert kind(learn(desk, "ann", mine, "yes")) == "later"
        left = desk.folder.with_name("left")
        shutil.copytree(desk.folder, left)
    back = PopDesk.open(left, make)
    assert back.pop.operator.taught == 0 and learn(back, "ann", mine, "no") is None and back.pop.operator.taught == 1


def test_a_ledger_that_another_holds_ends_the_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_PATIENCE", 0.05)
    desk = open_desk(folder)
    with sqlite3.connect(folder / "ledger.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateError, match="another process holds it"):
            ask(desk, "ann", "1", DOUBT)
        other.execute("ROLLBACK")
    other.close()
    with pytest.raises(StateError, match="another process holds it"):
        ask(desk, "ann", "1", DOUBT)


def test_the_operator_sees_no_number_that_a_crash_would_take_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unsure answer waits for the disk: who looks waits too, and what is seen then is there after a kill."""
    desk = open_desk(folder)
    write, may, waits = Book._write, threading.Event(), threading.Event()

    def held(book: Book) -> None:
        waits.set()
        assert may.wait(30)
        write(book)

    monkeypatch.setattr(Book, "_write", held)
    seen = list[Any]()
    asker = threading.Thread(target=ask, args=(desk, "ann", "1", DOUBT))
    looker = threading.Thread(target=lambda: seen.extend((desk.private(), killed(desk))))
    asker.start()
    assert waits.wait(30)
    looker.start()
    looker.join(0.2)
    assert looker.is_alive() and not seen
    may.set()
    asker.join()
    looker.join()
    told, left = seen
    assert (told["rounds"], told["unsure"]) == (1, 1)
    after = PopDesk.open(left, make).private()
    assert (after["rounds"], after["unsure"]) == (1, 1)


def test_a_slow_disk_is_shared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one write is on its way all others wait for the next, together."""
    desk, writes, came = open_desk(folder), list[Book](), threading.Semaphore(0)
    write, wait = Book._write, Book.wait

    def written(book: Book) -> None:
        writes.append(book)
        write(book)

    def waited(book: Book, sequence: int, **how: Any) -> None:
        came.release()
        wait(book, sequence, **how)

    monkeypatch.setattr(Book, "_write", written)
    monkeypatch.setattr(Book, "wait", waited)

    def together(calls: list[Any]) -> list[Any]:
        writes.clear()
        with ThreadPoolExecutor(len(calls)) as threads:
            with desk._book._writing:  # as somebody else's write has it
                said = [threads.submit(call) for call in calls]
                assert all(came.acquire(timeout=60) for _ in calls)
            told = [one.result() for one in said]
        assert len(writes) == 1
        return told

    asked = together([partial(ask, desk, f"person {i}", "0", DOUBT) for i in range(8)])
    assert sorted(one.round for one in asked) == list(range(1, 9))
    labels = [partial(learn, desk, f"person {i}", ticket(one), "no") for i, one in enumerate(asked)]
    assert together(labels) == [None] * 8
    desk.close()


def test_a_second_owner_is_refused(folder: Path) -> None:
    with open_desk(folder), pytest.raises(StateError, match="another process"):
        PopDesk.open(folder, make)
    PopDesk.open(folder, make).close()


def test_a_ledger_older_than_its_snapshot_is_refused(folder: Path) -> None:
    desk = open_desk(folder)
    left = killed(desk)
    desk = PopDesk.open(folder, make)
    ask(desk, "ann", "1", DOUBT)
    desk.close()
    (left / "snapshot.npz").write_bytes((folder / "snapshot.npz").read_bytes())
    with pytest.raises(StateError, match="older than its snapshot"):
        PopDesk.open(left, make)


@pytest.mark.parametrize("at", ["write_key", "create", "claim", "write"])
def test_a_first_save_that_was_killed_is_begun_again(at: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(snapshot if at.startswith("write") else Ledger, at, die)
        open_desk(folder)
    gc.collect()
    with open_desk(folder) as desk:
        assert ask(desk, "ann", "1", DOUBT).round == 1
    (folder / "snapshot.npz").unlink()
    with pytest.raises(StateError, match="snapshot"):
        open_desk(folder)
    assert Ledger(folder / "ledger.db").read("pop").rounds == 1, "what was spent is never taken away"


# ---------------------------------------------------------------------- what may be seen


def test_everyone_sees_the_promise_and_the_operator_the_rest(folder: Path) -> None:
    with PopDesk.open(folder, echo) as desk:
        for i in range(6):
            learn(desk, f"{i}", ticket(ask(desk, f"{i}", "1", DOUBT)), "yes")
        ask(desk, "ann", "1", [1.0])
        public, private, ann = desk.public(), desk.private(), desk.person("ann")
    assert public["rounds"] == 7 and public["state"] == "live" and public["guarantee"]["epsilon"] > 0
    assert not {"unsure", "open_tickets", "taught", "shares"} & set(public)
    assert public["columns"] == []  # these rows are arrays
    assert private["unsure"] == 6 and private["labels"] == 6 and private["error"] == 1.0
    assert private["open_tickets"] == 0
    assert private["series"]["fallback"] == [6] and private["series"]["refused"] == [1]
    assert ann["rounds"] == 1 and ann["sources"] == {"refused": 1} and ann["unsure"] == 0


def test_labels_that_no_row_of_the_journal_can_name_are_refused_before_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(8)
    with pytest.raises(struct.error):
        rows.body(Columns.of([Row(NOBODY, NOBODY, NOBODY, 1, 1, -1, 0, MOST_LABELS + 1, -1, -1, None)]))
    with pytest.raises(ValueError, match="written alike"):
        make(labels=[1, "1"], fallback=1)
    monkeypatch.setattr(requests, "MOST_LABELS", 1)
    pop = guided("rounds")
    with pytest.raises(ValueError, match="1 labels at most"):
        requests.Requests(pop, pop.keep(), None, 8, 0)  # type: ignore[arg-type]


class Hoards:
    """A learner that cannot be pickled any more once it has met a large number."""

    def learn(self, x: Any, y: Any) -> None:
        if x[0] > 100:
            self._last = lambda: x

    def predict(self, x: Any) -> str:
        return "no"


def test_a_lesson_that_cannot_be_written_down_is_an_alarm_and_nobody_elses_business(folder: Path) -> None:
    plan = Plan.tight(200.0, 1e-2, 240, copies=60, unsure=150, silent=30, guide=None)
    desk = PopDesk.open(folder, lambda: POP(Hoards(), plan, labels=["no", "yes"], features=1), save_every=20)
    for i in range(45):
        (reply,) = desk.ask([Question(f"person {i}", f"{i}", [1000.0 if i == 10 else 1.0])])
        assert reply.answer is not None and desk.learn([Taught(f"person {i}", reply.answer.ticket, "no")]) == [None]
    assert any("snapshot" in alarm for alarm in desk.private()["alarms"])
    desk.pop.close()


@pytest.mark.parametrize("kept", [False, True])
def test_tickets_of_a_call_are_read_and_missed_as_one_by_one(kept: bool) -> None:
    """Also where those that were signed last are known: for their holder alone, and never more than so many."""
    tickets = Tickets(bytes(range(32)), 10)
    tickets.kept = kept
    tickets.lives, tickets.epoch = {1: (0xAB, 0), 2: (0xCD, 5)}, 2
    keys = [(1, 3), (1, 9), (2, 6), (2, 7), (2, 40)]
    signed = [tickets.sign(key, b"ann") for key in keys]
    assert len(set(signed)) == len(keys)
    assert tickets.read_many(signed, b"ann") == keys == [tickets.read(one, b"ann") for one in signed]
    bad = ["", "-", "2-6", "2-6-cd-ü", "\ud800-1-2", signed[0][:-1], signed[0].replace("ab", "ac", 1), "x" * 1000]
    assert tickets.read_many(bad, b"ann") == [None] * len(bad)
    assert tickets.read_many(signed, b"bob") == [None] * len(keys)
    lost = [tickets.any_lost([(one, key)], 39) for one, key in zip(signed, keys, strict=True)]
    assert lost == [tickets.lost(one, 39) for one in signed] == [False, True, False, False, True]
    tickets.lives = {1: (0xAB, 0), 2: (0xCE, 5)}  # a ledger that was rolled back has another mark
    assert all(tickets.any_lost([one], 39) for one in zip(signed[2:], keys[2:], strict=True))
    assert not tickets.any_lost([(signed[0], keys[0])], 39)
    for number in range(40, 20_000):
        tickets.sign((2, number), b"ann")
    assert len(vars(tickets)["_known"]) <= 16_384 * kept, "what is remembered is bounded"
    assert tickets.read_many(signed, b"ann") == keys and tickets.read_many(signed, b"bob") == [None] * len(keys)


def test_without_a_journal_the_last_ticket_alone_is_known_and_for_its_holder_alone() -> None:
    tickets = Tickets(bytes(range(32)), 10)
    first, last = tickets.sign((0, 1), b"ann"), tickets.sign((0, 2), b"ann")
    assert list(vars(tickets)["_latest"]) == [last]
    assert (tickets.read(first, b"ann"), tickets.read(last, b"ann")) == ((0, 1), (0, 2))
    for one in (first, last):
        with pytest.raises(TicketError, match="not issued by this POP"):
            tickets.read(one, b"bob")
    tickets.drop(b"ann")
    assert not vars(tickets)["_latest"], "nor whose it was"
    assert "_latest" not in tickets.__getstate__()


def test_a_signature_that_was_looked_at_for_its_holder_is_good_for_nobody_else(folder: Path) -> None:
    """Tickets on their way are known; whoever else brings one meanwhile, before its holder or with them, has none."""
    with open_desk(folder) as desk:
        for order in (["eve", "ann"], ["ann", "eve"], ["eve", "eve", "ann"]):
            mine = ticket(ask(desk, "ann", str(order), DOUBT))
            assert desk.not_theirs([Taught("ann", mine, "no")]) == {}
            said = desk.learn([Taught(who, mine, "yes" if who == "eve" else "no") for who in order])
            assert [refusal is None for refusal in said] == [who == "ann" for who in order]
            assert learn(desk, "ann", mine, "no") is None, "what was learned is what its holder brought"


class _Raises:
    def __hash__(self) -> int:
        raise RuntimeError("what stands in it")


@pytest.mark.parametrize("what", ["label", "ticket"])
def test_what_one_lesson_raises_is_its_bringers_alone(what: str, folder: Path) -> None:
    """Whatever a ticket or a label is: all others of the call are taken, as if it had not been there."""
    odd: list[Any] = [_Raises(), None, float("nan")] if what == "label" else [None, 7, b"1-2-3", "\ud800-1-2"]
    with open_desk(folder) as desk:
        for i, one in enumerate(odd):
            mine, theirs = desk.ask([Question("ann", str(i), DOUBT), Question("bob", str(i), DOUBT)])
            bad = Taught("bob", *((ticket(theirs), one) if what == "label" else (one, "no")))
            assert list(desk.not_theirs([bad])) == ([] if what == "label" else [0])
            said = desk.learn([bad, Taught("ann", ticket(mine), "no")])
            assert [kind(refusal) for refusal in said] == [what, None]


def test_who_is_forgotten_while_their_answer_leaves_is_told_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what their round was answered, whenever in between they are forgotten: never another label."""
    with open_desk(folder) as desk:
        tickets = desk.pop.operator.loop.tickets
        sign, forgotten = tickets.sign_many, list[Any]()

        def while_signed(*some: Any) -> list[str]:
            (stored,) = desk._requests.found(desk._requests.read([Question("ann", "1", DOUBT)], 0))
            assert stored is not None
            forgotten.append(stored.row)
            desk.forget("ann")
            return sign(*some)

        monkeypatch.setattr(tickets, "sign_many", while_signed)
        said = ask(desk, "ann", "1", DOUBT)
        (row,) = forgotten
        assert said.answer is not None and said.answer.label == desk.pop.labels[row.label]
        assert said.answer.source == SOURCES[row.source]
        assert desk.not_theirs([Taught("ann", said.answer.ticket, "no")]) == {}
        assert kind(learn(desk, "ann", said.answer.ticket, "no")) == "ticket"
