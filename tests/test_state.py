"""State on disk: what is saved comes back, and what was spent stays spent, whatever the snapshot says."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import naive_bayes
from sklearn.naive_bayes import GaussianNB as SklearnGaussianNB

from confide import POP, Halted, Monitor, StateError, TicketError
from confide.learners import DecisionTree, Features, GaussianNB, LogisticRegression
from confide.ledger import Ledger
from confide.pop.state import look
from tests.saved import DOUBT, account, bank_of, copy_of, in_child, make, share, small_plan, spent, teach

pytestmark = pytest.mark.claim("people.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


# ---------------------------------------------------------------------- there and back


@pytest.mark.parametrize("learner", [LogisticRegression(), GaussianNB(), DecisionTree(memory=8)], ids=repr)
def test_copies_come_back_bit_for_bit(learner: Any, folder: Path) -> None:
    pop = make(learner)
    teach(pop)
    pop.save(folder)
    pop.close()
    with POP.load(folder) as back:
        assert bank_of(back) == bank_of(pop) and back.plan == pop.plan


FOREIGN = [
    pytest.param(naive_bayes.GaussianNB(), None, id="River"),
    pytest.param(SklearnGaussianNB(), 2, id="scikit-learn"),
]


@pytest.mark.parametrize(("learner", "features"), FOREIGN)
def test_models_of_others_are_loaded_where_they_are_trusted(learner: Any, features: int | None, folder: Path) -> None:
    pop = make(learner, features=features)
    teach(pop, dicts=features is None)
    pop.save(folder)
    pop.close()
    with pytest.raises(ValueError, match="learner="):
        POP.load(folder, trusted=True)
    with pytest.raises(ValueError, match="trusted"):
        POP.load(folder, learner=learner)
    with POP.load(folder, learner=learner, trusted=True) as back:
        x = back.operator.bank.encode({"a": 3.0, "b": 0.0} if features is None else [3.0, 0.0])
        everyone = np.arange(30)
        assert (back.operator.bank.votes(x, everyone) == pop.operator.bank.votes(x, everyone)).all()


def test_settings_and_counts_come_back(folder: Path) -> None:
    pop = make(after_halt="fallback", ticket_life=77, monitor=Monitor(epsilon=0.5, rounds_per_unit=2, delay=9))
    for who in ("ann", "ann", "ann", "bob"):
        pop.predict(DOUBT, unit=who)
    pop.teach(DOUBT, "no", unit="carl")
    pop.save(folder)
    pop.close()
    with POP.load(folder) as back:
        assert spent(back) == spent(pop) and back.operator.unsure == 3
        assert sorted(account(back).watched.values()) == [1, 2] and back.monitor is not None
        for name in ("labels", "units", "guarantee", "rounds", "state"):
            assert getattr(back, name) == getattr(pop, name)
        assert back.operator.loop.tickets.life == 77
        assert back.operator.taught == 1 and copy_of(back, "ann") == copy_of(pop, "ann")
        assert back.predict(DOUBT, unit="ann").label == "no" and back.operator.unsure == 3, "still capped"


@pytest.mark.parametrize(
    ("learner", "features"),
    [
        (LogisticRegression(class_weight=(1.0, 2.0)), 2),
        (LogisticRegression(class_weight=[1.0, 2.0]), np.int64(2)),
        (LogisticRegression(), Features(numeric=("a", "b"))),
        (Features(numeric=["a"], categorical={"b": 4}) | LogisticRegression(), None),
        (Features(numeric=("a",), text={"b": 4}) | LogisticRegression(), None),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_whatever_can_be_saved_can_be_loaded(learner: Any, features: Any, folder: Path) -> None:
    """A state that was written but never read would take all it learned with it."""
    pop = make(learner, features=features)
    pop.save(folder)
    pop.close()
    POP.load(folder).close()


class Doubled:
    """Somebody's own encoder."""

    width = 2

    def encode(self, x: Any, /) -> Any:
        return np.array([x, x], dtype=np.float64)


def test_an_encoder_of_ones_own_is_refused_before_it_is_too_late(folder: Path) -> None:
    with pytest.raises(StateError):
        make(features=Doubled()).save(folder)


@pytest.mark.parametrize("labels", [[0, 1], [False, True], ["0", "1"]], ids=str)
def test_labels_keep_their_types(labels: list[Any], folder: Path) -> None:
    with make(labels=labels, fallback=labels[0]) as pop:
        pop.save(folder)
    with POP.load(folder) as back:
        assert [(type(label), label) for label in back.labels] == [(type(label), label) for label in labels]
        answer = back.predict(DOUBT, unit="ann")
        assert type(answer.label) is type(labels[0])


def test_a_fallback_that_is_code_is_given_again(folder: Path) -> None:
    with make(fallback=lambda x: "yes") as pop:
        pop.save(folder)
    with pytest.raises(StateError, match="fallback="):
        POP.load(folder)
    with POP.load(folder, fallback=lambda x: "yes") as back:
        assert back.predict(DOUBT, unit="ann").label == "yes"


def test_a_seeded_pop_stays_insecure(folder: Path) -> None:
    with make(seed=1) as pop:
        pop.save(folder)
    with POP.load(folder) as back:
        assert not back.guarantee.secure and "insecure" in repr(back)


def test_all_randomness_is_fresh(folder: Path) -> None:
    with make(seed=1, fallback="coin") as pop:
        pop.save(folder)
        seen = [pop.operator.loop.rng.words(4).tolist()]
    for _ in range(2):
        with POP.load(folder) as back:
            seen.append(back.operator.loop.rng.words(4).tolist())
            assert back.operator.loop.routing.secret == pop.operator.loop.routing.secret
    assert len({tuple(words) for words in seen}) == 3


# ---------------------------------------------------------------------- tickets


def test_tickets_stay_good(folder: Path) -> None:
    pop = make()
    tickets = [pop.predict([1.0, 2.0], unit=f"person {i}").ticket for i in range(4)]
    pop.learn(tickets[0], "yes")
    pop.save(folder)
    late = pop.predict([1.0, 2.0], unit="late").ticket
    pop.close()
    with POP.load(folder) as back:
        for ticket in (tickets[0], late):
            with pytest.raises(TicketError, match="used, or it expired"):
                back.learn(ticket, "yes")
        back.learn(tickets[1], "yes")
        with pytest.raises(TicketError):
            back.learn(tickets[1], "yes")
        assert back.predict([1.0, 2.0], unit="new").ticket not in (*tickets, late)
        back.save(folder)
    with POP.load(folder) as again:
        again.learn(tickets[2], "yes")


def test_old_tickets_expire_by_public_rounds_too(folder: Path) -> None:
    """Else waiting answers would pile up from load to load."""
    with make(ticket_life=10) as pop:
        ticket = pop.predict([1.0, 2.0], unit="ann").ticket
        pop.save(folder)
    for _ in range(3):
        with POP.load(folder) as back:
            for i in range(20):
                back.predict([1.0, 2.0], unit=f"person {i}")
            with pytest.raises(TicketError):
                back.learn(ticket, "yes")
            assert len(back.operator.loop.tickets) <= 10
            back.save(folder)


def test_waiting_questions_of_any_form_are_saved(folder: Path) -> None:
    """One person's odd question must not stop everybody's state from being saved."""
    pop = make(naive_bayes.GaussianNB(), features=None)
    questions: list[Any] = [{"a": 1.0}, [1.0], [1.0, 2.0], {1: 2.0}, {"a": np.float32(1.0)}, {"a": None}, {}]
    tickets = [pop.predict(x, unit=f"person {i}").ticket for i, x in enumerate(questions)]
    kept = [waiting.x for _, waiting in pop.operator.loop.tickets]
    pop.save(folder)
    pop.close()
    with POP.load(folder, learner=naive_bayes.GaussianNB(), trusted=True) as back:
        waiting = {number: waiting.x for (_, number), waiting in back.operator.loop.tickets}
        assert len(waiting) > 2 and all(np.array_equal(x, kept[number - 1]) for number, x in waiting.items())
        back.learn(tickets[0], "yes")


# ---------------------------------------------------------------------- an older snapshot, and the ledger


def test_what_was_spent_since_the_snapshot_counts(folder: Path) -> None:
    """Counts, caps, forgetting and halts are the ledger's; copies are the snapshot's."""
    pop = make(monitor=Monitor(epsilon=1.0, rounds_per_unit=2))
    teach(pop, 60)
    pop.save(folder)
    resting = set(bank_of(pop)["taught"])
    pop.teach(DOUBT, "no", unit="ann")
    for who in ("ann", "ann", "ann", "bob"):
        pop.predict([0.01, 0.3], unit=who)
    pop.forget("teacher 5")
    pop.close()
    with POP.load(folder) as back:
        assert spent(back) == spent(pop) and back.rounds == 4
        assert set(bank_of(back)["taught"]) == resting - {copy_of(pop, "teacher 5")}
        back.teach(DOUBT, "no", unit="teacher 5")
        back.save(folder)
    with POP.load(folder) as again:
        assert set(bank_of(again)["taught"]) == resting, "what was taught after the reset stays"


def test_batches_are_in_the_ledger_too(folder: Path) -> None:
    with make(monitor=Monitor(epsilon=1.0, rounds_per_unit=2)) as pop:
        pop.save(folder)
        pop.predict_many([DOUBT] * 9, units=[f"person {i % 3}" for i in range(9)])
        pop.follow_many(np.zeros((4, 2)), np.zeros(4, dtype=np.int64), units=["ann"] * 4)
    with POP.load(folder) as back:
        assert spent(back) == spent(pop) and back.rounds == 13
        assert (back.operator.unsure, sorted(account(back).watched.values())) == (8, [2, 2, 2, 2])


def test_a_halt_stays(folder: Path) -> None:
    with make(plan=small_plan(unsure=3), after_halt="fallback") as pop:
        pop.save(folder)
        for i in range(300):
            pop.predict(DOUBT, unit=f"person {i}")
    with POP.load(folder) as back:
        assert back.state == "halted" and back.halt_reason == "budget"
        assert back.predict(DOUBT, unit="ann").label == "no", "and the fallback goes on"
    with make(plan=small_plan(rounds=3)) as short:
        short.save(folder.parent / "short")
        with pytest.raises(Halted):
            for i in range(4):
                short.predict(DOUBT, unit=f"person {i}")
    assert look(folder.parent / "short")["halted"] == "rounds"
    with POP.load(folder.parent / "short") as back, pytest.raises(Halted):
        back.predict(DOUBT, unit="ann")


def test_a_status_is_read_beside_a_living_pop(folder: Path) -> None:
    with make(monitor=Monitor(epsilon=1.0)) as pop:
        pop.save(folder)
        pop.predict(DOUBT, unit="ann")
        status = look(folder)
        assert (status["rounds"], status["unsure"], status["halted"]) == (1, 1, None)
        assert status["guarantee"].epsilon == pop.guarantee.epsilon


# ---------------------------------------------------------------------- used tickets, forgotten people


def test_a_label_is_taken_once_whatever_happens(folder: Path) -> None:
    """The snapshot has it open; the process learns it and dies. The ledger remembers."""
    with make() as pop:
        tickets = pop.predict_many([DOUBT] * 4, units=["ann", "bob", "carl", "dora"])
        pop.save(folder)

    def live() -> None:
        pop = POP.load(folder)
        pop.learn(tickets[0].ticket, "yes")
        pop.learn_many([tickets[1].ticket], ["no"])
        os._exit(0)

    assert in_child(live) == ""
    with POP.load(folder) as back:
        for used in tickets[:2]:
            with pytest.raises(TicketError, match="used"):
                back.learn(used.ticket, "yes")
        back.learn(tickets[2].ticket, "yes")
        back.learn(tickets[3].ticket, "yes")
        assert back.operator.taught == 2


def test_used_tickets_are_kept_as_long_as_they_could_be_brought(folder: Path) -> None:
    pop = make(ticket_life=10)
    pop.save(folder)
    for i in range(60):
        pop.learn(pop.predict(DOUBT, unit=f"person {i}").ticket, "yes")
        pop.save(folder)
    pop.close()
    with POP.load(folder) as back:
        book = account(back).book
        assert book is not None
        used = {number for _, number in Ledger(book.place).read("pop").used}
    assert set(range(51, 61)) <= used and len(used) < 14


def test_open_questions_of_the_forgotten_stay_dropped(folder: Path) -> None:
    """Forgotten after the snapshot: their label would teach the copy that has just forgotten them."""
    with make() as pop:
        tickets = {who: pop.predict(DOUBT, unit=who).ticket for who in ("ann", "bob", "carl")}
        pop.forget("carl")
        pop.save(folder)
        pop.forget("ann")
    with POP.load(folder) as back:
        for who in ("ann", "carl"):
            with pytest.raises(TicketError):
                back.learn(tickets[who], "yes")
        back.learn(tickets["bob"], "yes")
        assert set(bank_of(back)["taught"]) == {copy_of(back, "bob")}


def test_who_comes_back_after_being_forgotten_is_welcome(folder: Path) -> None:
    """Forgetting drops what was open then, not what is asked later; what was spent stays spent."""
    with make() as pop:
        pop.save(folder)
        pop.predict(DOUBT, unit="ann")
        pop.forget("ann")
        pop.predict(DOUBT, unit="ann")
        late = pop.predict(DOUBT, unit="ann").ticket
        pop.save(folder)
    with POP.load(folder) as back:
        back.learn(late, "yes")
        assert share(back, "ann") == 2
