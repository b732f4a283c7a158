"""The relay in the real POP: copies that go on without an end, alone and in batches, saved, killed, served."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from confide import POP, Plan, StateError, evaluate
from confide.banks import TallyBank, Threads
from confide.cli.app import app
from confide.errors import TicketError
from confide.games.worlds import World
from confide.learners import DecisionTree, GaussianNB, LogisticRegression, Points
from confide.ledger import Ledger
from confide.planning.copies import Copies
from confide.planning.guided import GuidePlan
from confide.planning.lives import Life
from confide.planning.promise import Promise
from confide.pop.legs import KIND, Legs
from confide.pop.state import check, look
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.service.base import Question
from confide.service.config import ModelConfig
from confide.service.desk import PopDesk
from confide.service.models import maker
from tests.saved import CLEAR, DOUBT, Echo, bank_of
from tests.service.opened import again, ask, both, folder, learn, ticket

pytestmark = pytest.mark.claim("relay.md")
__all__ = ["folder"]

LABELS = ["no", "yes"]


@functools.cache
def relay(live: int = 40, silent: int = 20, unsure: int = 10, half: int = 30, polls: int | None = None) -> Plan:
    """A steep gate for few copies, and an ε that nobody would run."""
    gate = Gate.best(order=2, cost=3.0, margins=half, tie_sure=1e-6)
    halting = Halting.best(order=2, cost=1.0, unsure=unsure, start=2.0**-30, survive=1e-3)
    part = Copies(2 * half, polls or half, unsure, silent, 1, 2, 2, 0.01, gate, halting, None, live + silent)
    return Plan(Promise(500.0, 0.02, None, 2, "rounds"), (part,))


def pop_of(learner: Any = None, plan: Plan | None = None, seed: int | None = 1, **settings: Any) -> POP:
    made = LogisticRegression() if learner is None else learner
    return POP(made, plan or relay(), **{"labels": LABELS, "features": 2, "fallback": "no", "seed": seed, **settings})


def legs(pop: POP) -> Legs:
    assert pop.legs is not None
    return pop.legs


def rows(n: int, seed: int = 1) -> tuple[Any, list[str]]:
    xs = np.random.default_rng(seed).normal(size=(n, 2))
    return xs, ["yes" if x[0] > 0 else "no" for x in xs]


def taught(pop: POP) -> set[int]:
    """The copies that know something."""
    return set(bank_of(pop)["taught"])


# ---------------------------------------------------------------------- the plan


def test_a_relay_costs_what_copies_cost_that_stop() -> None:
    how: dict[str, Any] = {"unsure": 1500, "polls": 129, "guide": None}
    stops = Plan.tight(4.0, 1e-6, 40_000, copies=800, **how)
    goes = Plan.tight(4.0, 1e-6, 40_000, copies=1600, relay=True, **how)
    assert goes.endless and goes.relay == 40_000 and goes.eligible == 800 and goes.poll_fraction == stops.poll_fraction
    assert goes.guarantee.epsilon <= 4.0 and goes.verify().epsilon <= 4.0
    assert stops.gate is not None and goes.gate is not None
    lead, other = stops.gate.first(unsure=0.1), goes.gate.first(unsure=0.1)
    assert lead is not None and other is not None and other <= lead + 2, "as narrow a gate, within a vote"


def test_a_plan_of_a_relay_is_written_read_and_verified() -> None:
    plan = relay()
    assert Plan.from_json(plan.to_json()) == plan and '"relay": 60' in plan.to_json()
    assert "relay" not in Plan.tight(4.0, 1e-5, 40_000, copies=1600, unsure=1500, guide=None).to_json()
    with pytest.raises(ValueError, match="no end"):
        Plan.from_json(plan.to_json().replace('"relay": 60', '"relay": 0'))
    with pytest.raises(ValueError, match="more often than beta"):
        Plan.from_json(plan.to_json().replace('"relay": 60', f'"relay": {10**12}'))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"units": "people"}, "not for people"),
        ({"units": None}, "not for people"),
        ({"rounds": 60}, "no last round"),
        ({"unit_unsure": 2}, "not for people"),
    ],
)
def test_what_is_not_proved_of_a_relay_is_refused(other: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        relay().but(**other).verify()


@pytest.mark.parametrize("numbers", [{"copies": 61}, {"polls": 31}, {"relay": -1}])
def test_halves_are_equal_and_polls_are_asked_of_one(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="relay"):
        relay().but(**numbers)


def test_arguments_that_do_not_go_with_a_relay_are_refused() -> None:
    alone = {"copies": None, "guide": 1.0}
    for wrong in ({"rounds": None}, {"units": "people"}, {"copies": 1601}, alone, {"unit_unsure": 2}):
        given: dict[str, Any] = {"rounds": 40_000, "copies": 1600, "relay": True, "guide": None, **wrong}
        with pytest.raises(ValueError, match="relay"):
            Plan.tight(4.0, 1e-6, **given)
    with pytest.raises(ValueError, match="copies=1224 can"):
        Plan.tight(4.0, 1e-6, 40_000, copies=800, unsure=1500, polls=129, guide=None, relay=True)
    with pytest.raises(ValueError, match="people"):
        pop_of(units="people")
    with pytest.raises(ValueError, match="does not halt"):
        pop_of(after_halt="raise")


def test_a_plan_says_in_words_what_a_relay_does() -> None:
    said = relay().explain()
    assert "without an end: one half votes while the other learns" in said and "has begun anew teaches no copy" in said
    assert "60, each taught" in str(relay()) and "a leg of 60 rounds" in str(relay())
    assert "goes on at once" in said and "goes on after 20 more" in relay(live=40, silent=60).explain()
    with pytest.raises(ValueError, match=r"needs a learner; .*Plan.tight\(epsilon, delta, guide=1.0\)"):
        POP(None, relay(), labels=LABELS, features=2)


def test_a_guide_beside_a_relay_has_no_end_either() -> None:
    plan = Plan.tight(4.0, 1e-6, 40_000, copies=1600, unsure=1500, relay=True)
    assert plan.guide is not None and plan.guide.endless and plan.relay and plan.verify().epsilon <= 4.0


# ---------------------------------------------------------------------- halves and legs


def test_one_half_learns_while_the_other_votes_and_then_they_change_places() -> None:
    pop, (xs, ys) = pop_of(), rows(400)
    seen = list[tuple[int, str]]()
    for x, y in zip(xs, ys, strict=True):
        before, known = legs(pop), taught(pop)
        answer = pop.predict(x)
        after = legs(pop)
        if after.number > before.number:
            assert not taught(pop) & set(before.voters), "who has voted forgets everything"
            assert known & set(after.voters) <= taught(pop), "who votes next knows what it knew"
        pop.learn(answer.ticket, y)
        learned = bank_of(pop)["taught"]
        assert set(learned) - known <= set(before.learners(pop.rounds))
        seen.append((after.number, answer.source))
    assert seen[-1][0] >= 5 and any(source == "copies" for number, source in seen if number >= 4)
    assert pop.state in ("silent", "live") and pop.halt_reason is None


def test_a_leg_ends_by_its_rounds_or_by_a_firing_and_the_next_half_learns_first() -> None:
    pop = pop_of(Echo(), relay(live=40, silent=20, unsure=10))
    for _ in range(60):
        assert legs(pop).number == 0
        pop.predict(CLEAR)
    assert legs(pop) == Legs(30, 60, 1, 60, 0), "the other half has learned for forty rounds: it votes at once"
    while legs(pop).number == 1:
        pop.predict(DOUBT)
    fired = pop.rounds
    assert fired < 60 + 40 and legs(pop) == Legs(30, 80, 2, fired, 60) if fired <= 80 else True
    assert pop.operator.loop.account.count == 0, "the count begins anew"
    assert pop.state == ("silent" if fired < 80 else "live")


def test_an_endless_run_does_not_halt() -> None:
    pop = pop_of(Echo(), relay(live=40, silent=0, unsure=10))
    for _ in range(2000):
        assert pop.predict(DOUBT).source == "fallback"
    assert legs(pop).number >= 40 and pop.predict(CLEAR).source == "copies" and pop.halt_reason is None


def test_a_label_goes_to_its_copy_voting_or_not_until_its_reset() -> None:
    pop = pop_of(plan=relay(live=10, silent=0, unsure=10))
    tickets = [pop.predict(CLEAR).ticket for _ in range(31)]
    assert legs(pop).number == 3 and legs(pop).began == 30
    pop.learn(tickets[15], "yes")  # asked in leg 1, for a learner that voted in leg 2 and was reset
    pop.learn(tickets[5], "yes")
    assert not taught(pop) and pop.operator.late.anew == 2
    with pytest.raises(TicketError, match="was used"):
        pop.learn(tickets[5], "yes")
    pop.learn(tickets[25], "yes")  # asked in leg 2: its copy votes now
    pop.predict(CLEAR)
    assert len(taught(pop) & set(legs(pop).voters)) == 1 and pop.operator.late.anew == 2
    assert "begun anew" in pop.operator.late.sentence


def test_records_are_taught_to_who_learns() -> None:
    pop = pop_of(plan=relay(live=10, silent=5))
    for _ in range(50):
        pop.teach(CLEAR, "yes")
    assert taught(pop) and taught(pop) <= set(range(30)), "who will vote first"
    for _ in range(5):
        pop.predict(CLEAR)
    pop.teach_many([CLEAR] * 50, ["yes"] * 50)
    assert taught(pop) - set(range(30)), "and then the others"


# ---------------------------------------------------------------------- batches


LEARNERS = [LogisticRegression(), GaussianNB(), DecisionTree(), Echo()]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("polls", [None, 7])
def test_batches_are_what_single_rounds_are(learner: Any, polls: int | None) -> None:
    one, other = (pop_of(learner, relay(polls=polls)) for _ in range(2))
    xs, ys = rows(600)
    for at in range(0, 600, 75):
        single = [one.predict(x) for x in xs[at : at + 75]]
        many = other.predict_many(xs[at : at + 75])
        assert [(a.label, a.source) for a in single] == [(a.label, a.source) for a in many]
        for answer, y in zip(single, ys[at : at + 75], strict=True):
            one.learn(answer.ticket, y)
        other.learn_many([answer.ticket for answer in many], ys[at : at + 75])
        assert legs(one) == legs(other)
    assert legs(one).number >= 4 and bank_of(one) == bank_of(other)


def test_evaluating_is_asking_and_teaching() -> None:
    one, other, (xs, ys) = pop_of(), pop_of(), rows(500)
    labels = []
    for x, y in zip(xs, ys, strict=True):
        answer = one.predict(x)
        labels.append(answer.label)
        one.learn(answer.ticket, y)
    result = evaluate(other, xs, ys)
    assert [LABELS[i] for i in result.answers] == labels and result.halted_at is None
    assert legs(one) == legs(other) and bank_of(one) == bank_of(other)


def test_copies_may_live_elsewhere() -> None:
    one, other = pop_of(plan=relay(polls=7)), pop_of(plan=relay(polls=7), bank=Threads(2))
    for x, y in zip(*rows(300), strict=True):
        first, second = one.predict(x), other.predict(x)
        assert (first.label, first.source) == (second.label, second.source)
        one.learn(first.ticket, y)
        other.learn(second.ticket, y)
    assert legs(one).number >= 3 and bank_of(one) == bank_of(other)


def test_copies_whose_votes_are_tallied_are_asked_half_by_half() -> None:
    pop = pop_of(Points(), relay(live=20, silent=20), features=1, bank=TallyBank(Points(), copies=60, points=3))
    for i in range(200):
        answer = pop.predict([i % 3])
        pop.learn(answer.ticket, "yes" if i % 3 == 1 else "no")
    assert legs(pop).number >= 3 and not taught(pop) - {*legs(pop).voters, *legs(pop).learners(pop.rounds)}


# ---------------------------------------------------------------------- beside a guide


@functools.cache
def guided() -> Plan:
    part = relay(live=40, silent=20).voters
    assert part is not None
    return Plan(Promise(500.0, 0.02, None, 2, "rounds"), (part, GuidePlan.at(4.0, None)))


def test_the_guide_answers_while_nobody_votes_and_learns_what_no_copy_does() -> None:
    pop, other = (pop_of(Echo(), guided(), features=2) for _ in range(2))
    xs = [CLEAR if i % 5 else DOUBT for i in range(300)]
    sources, tickets = list[str](), list[str]()
    for x in xs:
        answer = pop.predict(x)
        sources.append(answer.source)
        tickets.append(answer.ticket)
    assert legs(pop).number >= 3 and {"copies", "guide"} <= set(sources[100:])
    loop = pop.operator.loop
    lesson = loop.learn(loop.tickets.read(tickets[200]), 1)
    assert pop.operator.late.anew == 1 and not loop.lessons._queue and lesson.leaf >= 0
    many = [answer for at in range(0, 300, 60) for answer in other.predict_many(xs[at : at + 60])]
    assert [answer.source for answer in many] == sources and legs(other) == legs(pop)


def test_a_desk_with_both_is_found_again(folder: Path) -> None:
    desk = PopDesk.open(folder, lambda: pop_of(plan=guided(), seed=None), save_every=33)
    list(served(desk, 0, 150, 10))
    known, where, guide = bank_of(desk.pop), legs(desk.pop), desk.pop.guide
    assert where.number >= 2 and guide is not None
    told, released = guide.probabilities([1.0, 0.5]).tolist(), guide.released
    desk = again(desk)
    desk.pop.operator.loop.lessons.apply()
    assert bank_of(desk.pop) == known and legs(desk.pop) == where and desk.pop.guide is not None
    assert desk.pop.guide.probabilities([1.0, 0.5]).tolist() == told and desk.pop.guide.released == released
    assert check(desk.folder).plan == guided()
    desk.close()


# ---------------------------------------------------------------------- on disk


def led(pop: POP, n: int, seed: int = 1) -> None:
    for x, y in zip(*rows(n, seed), strict=True):
        pop.learn(pop.predict(x).ticket, y)


def left(home: Path, pop: POP, name: str) -> Path:
    """The disk as it is now: what is found after a kill."""
    copy = home.with_name(name)
    shutil.copytree(home, copy)
    return copy


def test_a_state_goes_on_in_its_leg(tmp_path: Path) -> None:
    pop, home = pop_of(seed=None), tmp_path / "one"
    led(pop, 130)
    pop.save(home)
    led(pop, 3)
    pop.save(home)
    now, count, known = legs(pop), pop.operator.loop.account.count, bank_of(pop)
    pop.close()
    loaded = POP.load(home)
    assert now.number >= 1 and legs(loaded) == now and bank_of(loaded) == known
    assert loaded.operator.loop.account.count == count and loaded.state == pop.state
    led(loaded, 200)
    assert legs(loaded).number > now.number


@pytest.mark.parametrize("swaps", [1, 2, 3])
def test_an_old_snapshot_under_a_newer_ledger_revives_nobody(tmp_path: Path, swaps: int) -> None:
    pop, home = pop_of(plan=relay(live=10, silent=0), seed=None), tmp_path / "one"
    led(pop, 25)
    pop.save(home)
    old, before = taught(pop), legs(pop)
    while legs(pop).number < before.number + swaps:
        pop.predict(CLEAR)
    killed = left(home, pop, "two")
    pop.close()
    loaded = POP.load(killed)
    assert legs(loaded) == legs(pop)
    kept = old & set(legs(loaded).voters) if swaps == 1 else set()
    assert taught(loaded) == kept and loaded.operator.loop.account.count == pop.operator.loop.account.count


def test_a_ticket_of_an_earlier_life_teaches_its_copy_if_it_was_not_reset(tmp_path: Path) -> None:
    pop, home = pop_of(plan=relay(live=10, silent=0), seed=None), tmp_path / "one"
    tickets = [pop.predict(CLEAR).ticket for _ in range(15)]
    pop.save(home)
    while legs(pop).number < 2:
        pop.predict(CLEAR)
    pop.close()
    loaded = POP.load(home)
    loaded.learn(tickets[5], "yes")
    loaded.predict(CLEAR)
    assert not taught(loaded) and loaded.operator.late.anew == 1
    loaded.learn(tickets[12], "yes")
    loaded.predict(CLEAR)
    assert len(taught(loaded)) == 1


def test_a_ledger_has_one_row_of_all_legs_and_a_state_is_verified(tmp_path: Path) -> None:
    pop, home = pop_of(Echo(), relay(live=10, silent=0), seed=None), tmp_path / "one"
    pop.save(home)
    for _ in range(100):
        pop.predict(DOUBT)
    assert legs(pop).number >= 4
    rows_ = [one for one in Ledger(home / "ledger.db").read("pop").released if one[0] == KIND]
    assert len(rows_) == 1 and Legs.read(30, rows_)[0] == legs(pop)
    book = pop.operator.loop.account.book
    assert book is not None and len(book._released) == 1, "nor does memory grow"
    assert check(home).guarantee.epsilon <= 500 and look(home)["legs"] == legs(pop)
    assert look(home)["unsure"] == pop.operator.loop.account.count
    with pytest.raises(StateError, match="does not say where its relay stands"):
        Legs.read(30, ())
    pop.close()


def test_a_relay_goes_on_from_a_ledger_elsewhere(tmp_path: Path, place: str) -> None:
    pop, home = pop_of(plan=relay(live=10, silent=0), seed=None), tmp_path / "one"
    led(pop, 12)
    pop.save(home, ledger=place)
    led(pop, 30)
    now, count = legs(pop), pop.operator.loop.account.count
    pop.close()
    loaded = POP.load(home, ledger=place)
    assert now.number >= 3 and legs(loaded) == now and loaded.operator.loop.account.count == count
    assert not taught(loaded), "both halves were reset since the snapshot, and no journal has the lessons"
    led(loaded, 30)
    assert legs(loaded).number > now.number
    loaded.close()


def test_a_swap_is_shown_when_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pop = pop_of(Echo(), relay(live=10, silent=0), seed=None)
    pop.save(tmp_path / "one")
    for _ in range(9):
        pop.predict(CLEAR)
    book = pop.operator.loop.account.book
    assert book is not None
    shown, wait = list[int](), book.wait

    def waiting(sequence: int, **how: Any) -> None:
        shown.append(legs(pop).number)
        wait(sequence, **how)

    monkeypatch.setattr(book, "wait", waiting)
    pop.predict(CLEAR)
    assert shown == [0] and legs(pop).number == 1


def test_what_is_written_has_the_same_form_whether_or_not_a_leg_ends(tmp_path: Path) -> None:
    pop = pop_of(Echo(), relay(live=10, silent=0), seed=None)
    pop.save(tmp_path / "one")
    book = pop.operator.loop.account.book
    assert book is not None
    forms, add = list[Any](), book.add

    def adding(entry: Any) -> int:
        rows_ = [(kind, len(noisy), len(exact)) for kind, _, noisy, exact in entry.released]
        forms.append((rows_, len(entry.dropped)))
        return add(entry)

    book.add = adding  # type: ignore[method-assign]
    for _ in range(25):
        pop.predict(CLEAR)
    assert legs(pop).number == 2 and all(form == forms[0] for form in forms)


@pytest.mark.parametrize("when", ["before", "midst"])
def test_who_is_cut_off_at_a_swap_resets_before_anything_else(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pop = pop_of(plan=relay(live=10, silent=10))
    led(pop, 19)
    known, reset = taught(pop), pop.operator.bank.reset
    assert known & set(range(30)) and known & set(range(30, 60))

    def cut_off(copies: Any) -> None:
        if when == "midst":
            reset(list(copies)[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(pop.operator.bank, "reset", cut_off)
    with pytest.raises(KeyboardInterrupt):
        pop.predict(CLEAR)
    monkeypatch.setattr(pop.operator.bank, "reset", reset)
    assert taught(pop) & set(range(10, 30))
    pop.predict(CLEAR)
    assert legs(pop).number == 1 and not taught(pop) & set(range(30))
    assert taught(pop) & set(range(30, 60)) == known & set(range(30, 60))


def test_a_bank_that_cannot_be_reset_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    pop = pop_of(plan=relay(live=10, silent=0))
    led(pop, 9)

    def fails(copies: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(pop.operator.bank, "reset", fails)
    for _ in range(3):
        with pytest.raises(OSError, match="no room"):
            pop.predict(CLEAR)


def test_a_successor_of_a_relay_is_refused(tmp_path: Path) -> None:
    pop = pop_of(seed=None)
    pop.save(tmp_path / "one")
    pop.close()
    with pytest.raises(ValueError, match="not proved"):
        pop_of(seed=None).succeed(tmp_path / "one", tmp_path / "two", Life(1000.0, 0.05))


# ---------------------------------------------------------------------- served


def desk_of(folder: Path, plan: Plan, **options: Any) -> PopDesk:
    return PopDesk.open(folder, lambda: pop_of(plan=plan, seed=None), **options)


def served(desk: PopDesk, first: int, last: int, late: int = 0) -> Iterator[str]:
    """Questions of many people, each with its label, some of them later."""
    xs, ys = rows(last, seed=3)
    waiting: list[tuple[str, str, str]] = []
    for i in range(first, last):
        reply = ask(desk, f"p{i}", "1", xs[i].tolist())
        waiting.append((f"p{i}", ticket(reply), ys[i]))
        if len(waiting) > late:
            assert learn(desk, *waiting.pop(0)) is None
        assert reply.answer is not None
        yield reply.answer.source
    for one in waiting:
        assert learn(desk, *one) is None


@pytest.mark.parametrize("late", [0, 15, 40])
@pytest.mark.parametrize("every", [7, None])
def test_a_desk_that_is_killed_comes_back_bit_by_bit(folder: Path, late: int, every: int | None) -> None:
    desk = desk_of(folder, relay(live=20, silent=5), save_every=every)
    list(served(desk, 0, 90, late))
    known, where, count = bank_of(desk.pop), legs(desk.pop), desk.pop.operator.loop.account.count
    assert where.number >= 3
    desk = again(desk)
    desk.pop.operator.loop.lessons.apply()
    assert legs(desk.pop) == where and desk.pop.operator.loop.account.count == count
    assert bank_of(desk.pop) == known
    list(served(desk, 90, 200, late))
    assert legs(desk.pop).number > where.number
    desk.close()


def test_a_kill_in_the_very_round_of_a_swap(folder: Path) -> None:
    desk = desk_of(folder, relay(live=10, silent=0), save_every=None)
    asked = [ask(desk, f"p{i}", "1", [1.0, 0.5]) for i in range(10)]
    for i in (2, 7):
        assert learn(desk, f"p{i}", ticket(asked[i]), "yes") is None
    assert legs(desk.pop).number == 1
    desk = again(desk)
    loop = desk.pop.operator.loop
    loop.lessons.apply()
    assert legs(desk.pop) == Legs(30, 10, 1, 10, 0) and loop.account.count == 0
    assert taught(desk.pop) and taught(desk.pop) <= set(range(30, 60)), "asked in leg 0, they teach who votes now"
    for i in range(10):
        ask(desk, f"q{i}", "1", [1.0, 0.5])
    assert not taught(desk.pop) and learn(desk, "p4", ticket(asked[4]), "yes") is None
    ask(desk, "z", "1", [1.0, 0.5])
    assert not taught(desk.pop), "its copy has begun anew"
    desk = again(desk)
    assert not taught(desk.pop) and legs(desk.pop).number == 2
    desk.close()


def test_a_retry_after_a_swap_gets_what_was_stored(folder: Path) -> None:
    desk = desk_of(folder, relay(live=5, silent=0))
    replies = desk.ask([Question(f"p{i}", "1", [1.0, float(i)]) for i in range(12)])
    assert legs(desk.pop).number == 2
    for one in both(desk):
        retried = one.ask([Question(f"p{i}", "1", [1.0, float(i)]) for i in range(12)])
        assert [reply.answer for reply in retried] == [reply.answer for reply in replies]
        assert legs(one.pop).number == 2 and one.pop.rounds == 12


@pytest.mark.parametrize("rounds", [0, 12, 25])
def test_history_is_taught_to_who_learns_and_found_again(folder: Path, rounds: int) -> None:
    desk = desk_of(folder, relay(live=10, silent=0), save_every=None)
    list(served(desk, 0, rounds))
    before = taught(desk.pop)
    desk.teach([(f"h{i}", x.tolist(), y) for i, (x, y) in enumerate(zip(*rows(40), strict=True))], "import 1")
    learners = set(legs(desk.pop).learners(rounds + 1))
    known = bank_of(desk.pop)
    assert taught(desk.pop) > before and taught(desk.pop) - before <= learners
    desk = again(desk)
    desk.pop.operator.loop.lessons.apply()
    assert bank_of(desk.pop) == known
    list(served(desk, rounds, rounds + 30))
    number, known = legs(desk.pop).number, bank_of(desk.pop)
    desk = again(desk)
    desk.pop.operator.loop.lessons.apply()
    assert legs(desk.pop).number == number and bank_of(desk.pop) == known
    desk.close()


def test_a_service_takes_a_plans_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "relay.json").write_text(relay().to_json())
    config = ModelConfig(folder=folder, labels=LABELS, columns=2, plan=tmp_path / "relay.json", learner="logistic")
    with PopDesk.open(folder, maker("model", config)) as desk:
        assert desk.plan == relay() and list(served(desk, 0, 130))
        assert legs(desk.pop).number >= 1
    refused = config.model_copy(update={"units": "people"})
    with pytest.raises(ValueError, match=r"rounds|people"):
        maker("model", refused)()


def test_a_run_of_the_command_line_and_two_worlds_refuse_a_relay(tmp_path: Path) -> None:
    (tmp_path / "relay.json").write_text(relay().to_json())
    stream = ["run", "sea", "-T", "500", "--plan", str(tmp_path / "relay.json"), "--learner", "logistic"]
    ran = CliRunner().invoke(app, stream)
    assert ran.exit_code != 0 and "and no relay: use confide.evaluate" in str(ran.exception)
    made = CliRunner().invoke(app, ["verify", str(tmp_path / "relay.json")])
    assert made.exit_code == 0 and "in a relay of legs of 60 rounds" in made.output.replace("\n", " ")
    with pytest.raises(ValueError, match="not yet compared in a relay"):
        World(lambda rng: pop_of(seed=rng), POP.load, 1, tmp_path / "world")  # type: ignore[arg-type, return-value]


def test_the_command_makes_a_plan_that_is_a_relay(tmp_path: Path) -> None:
    asked = ["plan", "-e", "4", "-T", "40000", "--copies", "1600", "--unsure", "1500", "--no-guide", "--relay"]
    made = CliRunner().invoke(app, [*asked, "--json", str(tmp_path / "relay.json")])
    assert made.exit_code == 0, made.output
    assert Plan.from_json(tmp_path / "relay.json").relay == 40_000
    for more in ("--endless", "--paper"):
        assert CliRunner().invoke(app, ["plan", "--relay", more]).exit_code != 0


def test_a_desk_says_where_the_relay_stands(folder: Path) -> None:
    desk = desk_of(folder, relay(live=10, silent=5))
    assert desk.public()["standing"] == "silent in leg 1, which began with round 1"
    list(served(desk, 0, 20))
    assert desk.public()["state"] == "live" and desk.public()["standing"].startswith("live in leg 2, which began with")
    assert desk.public()["planned_rounds"] is None and desk.private()["unsure"] <= 10
    desk.close()
