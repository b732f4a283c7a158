"""POP: the loop, its refusals, and what others may and may not notice."""

import copy
import functools
import itertools
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from river import naive_bayes
from scipy.stats import binomtest

from confide import POP, Halted, Monitor, Plan, TicketError
from confide.games.tape import Tape
from confide.learners import Features, LogisticRegression
from confide.planning.copies import Copies
from confide.planning.design import certify
from confide.planning.guarantee import Guarantee
from confide.planning.promise import Promise
from confide.pop.base import Answer
from confide.pop.monitor import MonitorState
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("people.md", "monitor.md")

FALSE_ALARM = 1e-6
DOUBT = [0.0]


def clear(label: int = 0) -> list[float]:
    """A question on which all copies agree."""
    return [label + 1.0]


class Echo:
    """Votes for what x says, or abstains: whether the gate is sure follows from x alone."""

    pure = True

    def __init__(self, labels: Sequence[Any] = ("no", "yes")) -> None:
        self.seen: list[tuple[float, Any]] = []
        self.known = tuple(labels)

    def predict(self, x: Any) -> Any:
        return self.known[int(x[0]) - 1] if x[0] > 0 else None

    def learn(self, x: Any, y: Any) -> None:
        self.seen.append((float(x[0]), y))


@functools.cache
def small_plan(
    *,
    copies: int = 60,
    polls: int | None = None,
    rounds: int = 1000,
    silent: int = 0,
    unsure: int = 300,
    unit_unsure: int = 1,
    labels: int = 2,
) -> Plan:
    """A steep gate for few copies, and an ε that nobody would run."""
    asked = copies if polls is None else polls
    share = Fraction(asked, copies)
    gate = Gate.best(order=2, cost=3.0, poll_fraction=share, margins=asked, tie_sure=1e-6)
    halting = Halting.best(order=2, cost=1.0, unsure=unsure, start=2.0**-40, survive=1e-3, shift=unit_unsure)
    got = certify(gate, halting, order=2, delta=0.02, poll_fraction=share)
    part = Copies(copies, asked, unsure, silent, unit_unsure, labels, 2, 0.01, gate, halting)
    return Plan(Promise(got.epsilon, got.delta, rounds, labels), (part,), "tight")


def make(plan: Plan | None = None, learner: Any = None, **settings: Any) -> POP:
    settings = {"labels": ["no", "yes"], "fallback": "no", "seed": 5, "after_halt": "raise", **settings}
    learner = Echo(settings["labels"]) if learner is None else learner
    return POP(learner, small_plan() if plan is None else plan, **settings)


def people(**settings: Any) -> POP:
    return make(small_plan(unit_unsure=3), units="people", **settings)


def taught(pop: POP) -> list[int]:
    """The copies that know something."""
    known: Any = pop.operator.bank.state(trusted=True)["taught"]
    return list(known.tolist())


# ---------------------------------------------------------------------- the loop


def test_silent_then_live() -> None:
    pop = make(small_plan(silent=3))
    seen = []
    for _ in range(5):
        before = pop.state
        seen.append((before, pop.predict(clear(1))))
    assert [(state, answer.label, answer.sure) for state, answer in seen] == [
        *[("silent", "no", False)] * 3,
        *[("live", "yes", True)] * 2,
    ]
    assert pop.rounds == 5 and pop.operator.unsure == 0


def test_an_unsure_round_gets_the_fallback_and_is_counted() -> None:
    pop = make()
    assert pop.predict(clear(1)).sure and pop.operator.unsure == 0
    answer = pop.predict(DOUBT)
    assert not answer.sure and answer.label == "no" and pop.operator.unsure == 1


def test_the_halting_round_is_answered_and_the_next_is_not() -> None:
    pop = make(small_plan(unsure=3))
    answers = []
    with pytest.raises(Halted, match="budget"):
        for _ in range(200):
            answers.append(pop.predict(DOUBT))
    assert len(answers) == pop.operator.unsure == pop.rounds
    assert pop.state == "halted" and pop.halt_reason == "budget"


def test_a_sure_round_may_be_the_one_that_halts() -> None:
    """The halting draw is made after every round, and the answer of that round is still delivered."""
    pop = make()
    pop.operator.loop.account.unsure = pop.plan.halting.stop  # type: ignore[union-attr]
    answer = pop.predict(clear(1))
    assert answer.sure and answer.label == "yes" and pop.state == "halted"
    pop.learn(answer.ticket, "yes")
    assert pop.operator.taught == 1, "a label may still come after the halt"


def test_after_the_halt_the_fallback_may_answer() -> None:
    pop = make(small_plan(unsure=3), after_halt="fallback", fallback="yes")
    pop.operator.loop.account.unsure = 10_000
    pop.predict(clear())
    rounds, known = pop.rounds, pop.operator.taught
    for x in (clear(0), DOUBT):
        answer = pop.predict(x)
        assert answer == Answer("yes", False, answer.ticket)
        pop.learn(answer.ticket, "no")
    assert pop.rounds == rounds + 2 and pop.operator.taught == known, "rounds count, labels come, no copy learns"
    with pytest.raises(TicketError):
        pop.learn("", "yes")


@pytest.mark.parametrize("after_halt", ["raise", "fallback"])
def test_rounds_run_out(after_halt: Any) -> None:
    pop = make(small_plan(rounds=4), after_halt=after_halt)
    for _ in range(4):
        assert pop.predict(clear(1)).sure
    assert pop.state == "live"
    if after_halt == "raise":
        with pytest.raises(Halted, match="rounds"):
            pop.predict(clear(1))
    else:
        assert not pop.predict(clear(1)).sure
    assert (pop.state, pop.halt_reason, pop.rounds) == ("halted", "rounds", 4 + (after_halt == "fallback"))


def test_a_batch_that_takes_the_last_round_leaves_what_single_rounds_leave() -> None:
    """It is the next question that finds the rounds over, however the last ones came."""
    pop = make(small_plan(rounds=4), after_halt="raise")
    assert all(answer.sure for answer in pop.predict_many([clear(1)] * 4))
    assert (pop.state, pop.halt_reason) == ("live", None)
    other = make(small_plan(rounds=4), after_halt="raise")
    assert [answer.error is None for answer in other.predict_many([clear(1)] * 5)] == [True] * 4 + [False]
    assert (other.state, other.halt_reason) == ("halted", "rounds")


@pytest.mark.parametrize("learner", [Echo((0, 1)), LogisticRegression()], ids=["one by one", "fused"])
def test_rows_that_are_followed_find_the_rounds_over_too(learner: Any) -> None:
    for rows, left in ((4, ("live", None)), (5, ("halted", "rounds"))):
        pop = POP(learner, small_plan(rounds=4), labels=[0, 1], features=1, after_halt="raise", seed=1)
        assert len(pop.follow_many(np.ones((rows, 1)), np.full(rows, -1)).answers) == 4
        assert (pop.state, pop.halt_reason) == left


def test_the_papers_plan_runs_through_the_same_loop() -> None:
    plan = Plan.paper(epsilon=60.0, delta=1e-2, rounds=200, copies=100, unsure=5)
    pop = make(plan)
    assert pop.predict(clear(1)).sure
    with pytest.raises(Halted, match="budget"):
        for _ in range(150):
            pop.predict(DOUBT)
    assert 5 <= pop.operator.unsure < 60
    with pytest.raises(ValueError, match="people"):
        make(plan, units="people")


def test_many_labels() -> None:
    pop = make(small_plan(labels=4), labels=["a", "b", 3, ("c",)], fallback=("c",))
    assert [pop.predict(clear(i)).label for i in range(4)] == ["a", "b", 3, ("c",)]
    assert pop.predict(DOUBT).label == ("c",) and pop.labels == ("a", "b", 3, ("c",))


def test_a_poll_of_some_copies() -> None:
    pop = make(small_plan(copies=200, polls=50))
    assert pop.predict(clear(1)).sure
    counts = pop.operator.counts
    assert counts is not None and counts.tolist() == [0, 50] and pop.operator.margin == 50


def test_a_public_start() -> None:
    prototype = LogisticRegression()
    for i in range(40):
        prototype.learn([i - 20.0], int(i > 20))
    pop = make(learner=prototype, features=1, public_start=True)
    answers = [pop.predict([x]) for x in (15.0, -15.0)]
    assert [(answer.label, answer.sure) for answer in answers] == [("yes", True), ("no", True)]
    assert not make(learner=prototype, features=1).predict([15.0]).sure, "without it copies start from nothing"


def test_threads_take_turns() -> None:
    pop = make(small_plan(rounds=10_000))
    workers = [threading.Thread(target=lambda: [pop.predict(clear()) for _ in range(50)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert pop.rounds == 200


# ---------------------------------------------------------------------- settings that are refused


@pytest.mark.parametrize(
    "settings",
    [
        {"labels": ["no"]},
        {"labels": ["no", "yes", "perhaps"]},
        {"labels": ["no", "no"]},
        {"labels": [0, False]},
        {"units": "persons"},
        {"after_halt": "stop"},
        {"ticket_life": 0},
        {"ticket_life": 2.5},
        {"ticket_life": True},
        {"fallback": "maybe"},
        {"fallback": b"bytes"},
        {"fallback": 3},
        {"fallback": None},
        {"fallback": ["no"]},
    ],
    ids=str,
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        make(**settings)


def test_a_plan_that_claims_too_much() -> None:
    with pytest.raises(ValueError, match="do not run"):
        make(small_plan().but(guarantee=Guarantee(0.5, 0.02)))


# ---------------------------------------------------------------------- fallbacks


class PublicModel:
    def predict_one(self, x: Any) -> str:
        return "yes" if x[0] == 0 else "no"


def test_a_coin_shows_every_label() -> None:
    """False alarms: below 1e-6 if the coin is fair; a coin of 0.6 is rejected."""
    pop = make(small_plan(silent=900, labels=3), labels=["a", "b", "c"], fallback="coin")
    labels = [pop.predict(DOUBT).label for _ in range(900)]
    for label in "abc":
        assert binomtest(labels.count(label), 900, 1 / 3).pvalue > FALSE_ALARM
    assert binomtest(540, 900, 1 / 3).pvalue < FALSE_ALARM


@pytest.mark.parametrize(
    ("fallback", "label"), [("yes", "yes"), (lambda x: "yes" if x == DOUBT else "no", "yes"), (PublicModel(), "yes")]
)
def test_fallbacks(fallback: Any, label: str) -> None:
    assert make(fallback=fallback).predict(DOUBT).label == label


def test_a_label_may_be_called_coin() -> None:
    pop = make(labels=["coin", "paper"], fallback="coin")
    assert {pop.predict(DOUBT).label for _ in range(20)} == {"coin"}


@pytest.mark.parametrize("answer", ["maybe", None, 2, ["no"]], ids=str)
def test_a_fallback_that_knows_no_label(answer: Any) -> None:
    pop = make(fallback=lambda x: answer)
    assert pop.predict(clear(1)).label == "yes"
    with pytest.raises(ValueError, match="fallback"):
        pop.predict(DOUBT)
    assert pop.rounds == 2 and pop.operator.unsure == 1


# ---------------------------------------------------------------------- people


def test_all_rounds_of_a_person_reach_one_copy() -> None:
    pop = people()
    for i in range(20):
        pop.learn(pop.predict(clear(i % 2), unit="ann").ticket, "yes")
        pop.teach(clear(0), "no", unit=b"ann")
    assert len(taught(pop)) == 1
    for i in range(30):
        pop.teach(clear(0), "no", unit=f"person {i}")
    assert len(taught(pop)) > 10


def test_rounds_spread_over_the_copies() -> None:
    pop = make()
    for _ in range(60):
        pop.learn(pop.predict(clear()).ticket, "no")
    assert len(taught(pop)) > 20


@pytest.mark.parametrize("unit", [None, "", b"", 7, 1.5, ("a",)], ids=str)
def test_a_missing_id_is_refused_before_anything_happens(unit: Any) -> None:
    pop = people()
    for call in (pop.predict, lambda x, unit: pop.teach(x, "no", unit), lambda x, unit: pop.forget(unit)):
        with pytest.raises(ValueError, match="unit"):
            call(clear(), unit=unit)
    assert pop.rounds == 0 and not taught(pop)


def test_ids_are_refused_where_rounds_are_protected() -> None:
    pop = make()
    for call in (
        lambda: pop.predict(clear(), "ann"),
        lambda: pop.teach(clear(), "no", "ann"),
        lambda: pop.forget("ann"),
    ):
        with pytest.raises(ValueError, match="people"):
            call()
    assert pop.rounds == 0 and not taught(pop)


def test_a_person_is_capped() -> None:
    """After G unsure answers the fallback answers, nothing more is counted, and the halting draw is still made."""
    coins = Tape(1)
    pop = people(seed=coins)
    drawn = []
    for number, x in enumerate([DOUBT, DOUBT, clear(1), DOUBT, DOUBT, clear(1), clear(1)]):
        coins.at(number)
        drawn.append((pop.predict(x, unit="ann").sure, pop.operator.unsure, coins.position))
    assert [sure for sure, *_ in drawn] == [False, False, True, False, False, False, False]
    assert [count for _, count, _ in drawn] == [1, 2, 2, 3, 3, 3, 3]
    assert len({coins for *_, coins in drawn}) == 1
    assert pop.predict(clear(1), unit="bob").sure
    pop.operator.loop.account.unsure = 10_000
    assert pop.state == "live" and pop.predict(clear(1), unit="ann").label == "no" and pop.state == "halted"


# ---------------------------------------------------------------------- tickets


def other_pop(ticket: str) -> str:
    return make(seed=6).predict(clear()).ticket


def forged(ticket: str) -> str:
    return ticket[:-1] + ("0" if ticket[-1] != "0" else "1")


def renumbered(ticket: str) -> str:
    return "0-2-" + ticket.split("-")[2]


@pytest.mark.parametrize("spoil", [other_pop, forged, renumbered, str.upper, lambda t: t + "0", lambda t: " " + t])
def test_tickets_of_others(spoil: Callable[[str], str]) -> None:
    pop = make()
    ticket = pop.predict(clear()).ticket
    if spoil(ticket) == ticket:
        pytest.skip("this ticket has no letters")
    with pytest.raises(TicketError, match="not issued"):
        pop.learn(spoil(ticket), "no")
    pop.learn(ticket, "no")
    assert pop.operator.taught == 1


@pytest.mark.parametrize(
    "ticket",
    [None, "", "-", "a-b-c", "0-1", "1", 7, b"0-1-00", "0-1-é", "0-1-\ud800", "9" * 5000 + "-1-0", "١-1-0", ("0", 1)],
    ids=ascii,
)
def test_things_that_are_no_tickets(ticket: Any) -> None:
    pop = make()
    pop.predict(clear())
    with pytest.raises(TicketError):
        pop.learn(ticket, "no")


def test_a_ticket_is_good_once() -> None:
    pop = make()
    ticket = pop.predict(clear()).ticket
    pop.learn(ticket, "no")
    with pytest.raises(TicketError, match="used"):
        pop.learn(ticket, "yes")
    assert pop.operator.taught == 1


def test_a_ticket_expires_by_public_rounds_alone() -> None:
    pop = make(ticket_life=5)
    old, young = pop.predict(clear()).ticket, pop.predict(clear()).ticket
    for _ in range(4):
        pop.predict(clear())
    with pytest.raises(TicketError, match="expired"):
        pop.learn(old, "no")
    pop.learn(young, "no")
    for _ in range(50):
        pop.teach(clear(), "no")
    assert pop.operator.taught == 51


def test_labels_come_out_of_order_or_never() -> None:
    pop = make()
    tickets = [pop.predict(clear()).ticket for _ in range(10)]
    for ticket in reversed(tickets[::2]):
        pop.learn(ticket, "yes")
    assert pop.operator.taught == 5


def test_waiting_answers_take_bounded_memory() -> None:
    pop = make(ticket_life=10)
    for _ in range(200):
        pop.predict(clear())
    assert len(pop.operator.loop.tickets) == 10


def test_tickets_tell_the_round_and_nothing_else() -> None:
    """Sure, unsure, capped and silent rounds have tickets of one form."""
    pop = people()
    tickets = [pop.predict(x, "ann").ticket for x in [DOUBT] * 5 + [clear()] * 2]
    assert [ticket.rpartition("-")[0] for ticket in tickets] == [f"0-{i}" for i in range(1, 8)]
    assert len({len(ticket) for ticket in tickets}) == 1


# ---------------------------------------------------------------------- bad questions and labels


@pytest.mark.parametrize(
    "x",
    [
        [1.0],
        [1.0, 2.0, 3.0],
        [1.0, 1j],
        [[0.0], 0.0],
        [b"1", 0],
        ["a", 1],
        None,
        {"a": 1},
        [],
    ],
    ids=lambda x: str(x)[:20],
)
@pytest.mark.parametrize("silent", [0, 5])
def test_a_malformed_question_takes_its_round(x: Any, silent: int) -> None:
    """It raises ValueError to its asker alone, after the same draws as any other round, and is not counted."""
    coins = Tape(1)
    pop = make(small_plan(silent=silent), learner=LogisticRegression(), features=2, seed=coins)
    coins.at(1)
    pop.predict([1.0, 2.0])
    usual = coins.position
    coins.at(2)
    unsure = pop.operator.unsure
    with pytest.raises(ValueError):
        pop.predict(x)
    assert pop.rounds == 2 and pop.operator.unsure == unsure and coins.position == usual
    with pytest.raises(ValueError):
        pop.teach(x, "no")
    assert pop.rounds == 2


def test_a_malformed_question_may_be_the_one_that_halts() -> None:
    pop = make(learner=LogisticRegression(), features=2)
    pop.operator.loop.account.unsure = 10_000
    with pytest.raises(ValueError, match="features"):
        pop.predict([1.0])
    assert pop.state == "halted"


def test_missing_and_emerging_features() -> None:
    declared = make(learner=Features(numeric=["a"], categorical={"b": 4}) | LogisticRegression())
    emerging = make(learner=naive_bayes.GaussianNB())
    for pop in (declared, emerging):
        for x in ({"a": 1.0}, {}, {"a": None, "b": "red"}, {"a": 2.0, "new": 3.0}):
            pop.learn(pop.predict(x).ticket, "yes")
        with pytest.raises(ValueError, match=r"feature.* must be a number"):
            pop.predict({"a": 1j})
        assert pop.rounds == 5


@pytest.mark.parametrize("y", ["maybe", None, 1, float("nan"), ["no"]], ids=str)
def test_an_unseen_label_is_refused_and_the_ticket_stays_good(y: Any) -> None:
    pop = make()
    ticket = pop.predict(clear()).ticket
    with pytest.raises(ValueError, match="label"):
        pop.learn(ticket, y)
    with pytest.raises(ValueError, match="label"):
        pop.teach(clear(), y)
    pop.learn(ticket, "no")
    assert pop.operator.taught == 1


def test_questions_are_not_kept() -> None:
    pop = make()
    x = [1.0]
    ticket = pop.predict(x).ticket
    x[0] = 2.0
    pop.learn(ticket, "yes")
    assert [copy.seen for copy in pop.operator.bank._replicas.values()] == [[(1.0, "yes")]]  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- learners that fail


class Failing(Echo):
    """Fails on 8 when asked, and on 9 when taught."""

    def predict(self, x: Any) -> Any:
        if x[0] == 8:
            raise RuntimeError("the secret is 42")
        return super().predict(x)

    def learn(self, x: Any, y: int) -> None:
        if x[0] == 9:
            raise RuntimeError("the secret is 42")
        super().learn(x, y)


def test_a_learner_that_fails_abstains() -> None:
    pop = make(learner=Failing())
    answer = pop.predict([8.0])
    assert not answer.sure and pop.operator.counts is not None and not pop.operator.counts.any()


def test_a_learner_that_fails_to_learn_is_not_noticed() -> None:
    pop = make(learner=Failing(), fallback="no")
    ticket = pop.predict([9.0]).ticket
    pop.learn(ticket, "yes")
    pop.teach([9.0], "yes")
    assert pop.operator.taught == 0
    with pytest.raises(TicketError, match="used"):
        pop.learn(ticket, "yes")


class FailingStack(LogisticRegression):
    """Fails when a copy is asked that has seen large numbers."""

    def vote(self, arrays: Any, slots: Any, x: Any, counts: Any) -> None:
        if (arrays["mean"][slots[slots >= 0], 0] > 2).any():
            raise RuntimeError("the secret is 42")
        super().vote(arrays, slots, x, counts)


def test_a_stacked_copy_that_fails_costs_one_vote() -> None:
    """Else one person could silence all copies at once, and everybody would see it."""
    pop = make(small_plan(copies=40, unit_unsure=3), learner=FailingStack(), features=1, units="people")
    for i in range(600):
        pop.teach([1.0], "no", unit=f"person {i}")
    assert pop.predict([1.0], unit="ann").sure
    for _ in range(100):
        pop.teach([5.0], "no", unit="ann")
    assert pop.predict([1.0], unit="bob").label == "no"
    assert pop.operator.margin is not None and pop.operator.margin >= 38


# ---------------------------------------------------------------------- history and forgetting


def test_history_replaces_the_silent_start() -> None:
    pop = make(small_plan(copies=40), learner=LogisticRegression(), features=1)
    assert not pop.predict([3.0]).sure
    for i in range(2000):
        pop.teach([i % 7 - 3.0], "yes" if i % 7 > 3 else "no")
    assert pop.rounds == 1 and pop.operator.taught == 2000
    assert pop.predict([3.0]).label == "yes" and pop.predict([-3.0]).sure


def test_forgetting_resets_the_copy_and_no_counts() -> None:
    pop = people()
    waiting = [pop.predict(clear(), unit=f"person {i}").ticket for i in range(100)]
    for _ in range(4):
        pop.learn(pop.predict(DOUBT, unit="ann").ticket, "no")
    before = pop.operator.unsure, pop.rounds, repr(pop)
    assert len(taught(pop)) == 1
    pop.forget("ann")
    assert not taught(pop) and (pop.operator.unsure, pop.rounds, repr(pop)) == before
    assert not pop.predict(clear(1), unit="ann").sure and pop.operator.unsure == 3, "the cap is not reset"
    for ticket in waiting:  # some of them for the copy that was reset
        pop.learn(ticket, "no")
    pop.learn(pop.predict(clear(), unit="ann").ticket, "no")
    pop.forget("somebody who was never here")


# ---------------------------------------------------------------------- the monitor


def test_the_monitor_counts_after_its_delay() -> None:
    pop = make(small_plan(rounds=400), monitor=Monitor(epsilon=50.0, delay=10))
    assert pop.monitor is not None
    for i in range(100):
        assert (pop.monitor.estimate is None) == (i <= 10)
        pop.learn(pop.predict(clear(1)).ticket, "no" if i % 2 else "yes")
    estimate = pop.monitor.estimate
    assert estimate is not None and estimate.rounds == 90 and abs(estimate.mistakes - 45) <= estimate.error < 10


def test_labels_later_than_the_delay_do_not_count() -> None:
    pop = make(monitor=Monitor(epsilon=50.0, delay=3))
    heard = listen(pop)
    tickets = [pop.predict(clear(1)).ticket for _ in range(3)]
    pop.learn(tickets[0], "no")
    tickets.append(pop.predict(clear(1)).ticket)
    pop.learn(tickets[2], "no")
    for _ in range(3):
        tickets.append(pop.predict(clear(1)).ticket)
    pop.learn(tickets[1], "no")  # one round too late
    for _ in range(9):
        pop.predict(clear(1))
    assert heard[:4] == [1, 0, 1, 0] and sum(heard) == 2


def test_only_the_first_rounds_of_a_person_count() -> None:
    """Also when one of them is malformed: which rounds count follows from the public schedule alone."""
    pop = people(monitor=Monitor(epsilon=1.0, rounds_per_unit=2, delay=1), learner=Echo(), features=1)
    heard = listen(pop)
    for i in range(6):
        pop.learn(pop.predict(clear(1), unit="ann").ticket, "no")
        if i == 0:
            with pytest.raises(ValueError):
                pop.predict(["x"], unit="bob")
        else:
            pop.learn(pop.predict(clear(1), unit="bob").ticket, "no")
    pop.predict(clear(), unit="carl")
    assert heard == [1, 0, 1, 1, *[0] * 8]


def test_the_monitors_price_is_in_the_guarantee() -> None:
    plan = small_plan()
    assert make(plan).guarantee.epsilon == plan.guarantee.epsilon
    with_monitor = make(plan, monitor=Monitor(epsilon=200.0))
    assert with_monitor.guarantee.epsilon >= plan.guarantee.epsilon + 200.0
    assert with_monitor.guarantee.delta == plan.guarantee.delta
    assert f"({with_monitor.guarantee.epsilon:.4g}, " in repr(with_monitor), "repr promises what guarantee does"


def monitor_misses(monitor: Monitor, claim: float) -> int:
    """In how many of 200 runs an estimate is further from the truth than `claim` of what is stated."""
    misses = 0
    for seed in range(200):
        state = MonitorState(monitor, 60, Random(seed))
        worst, truth, mistakes = 0.0, 0, [(seed + i) % 3 == 0 for i in range(61)]
        for i, mistake in enumerate(mistakes):
            state.asked()
            if i > 0:
                truth += mistakes[i - 1]
                assert state.latest is not None
                worst = max(worst, abs(state.latest.mistakes - truth) - claim * state.latest.error)
            if mistake:
                state.wrong(0)
        misses += worst > 0
    return misses


def test_the_monitor_keeps_its_stated_error() -> None:
    """With probability 0.95 all estimates of a run are within the error. False alarms: below 1e-6.

    A monitor that stated a third of it would be rejected.
    """
    monitor = Monitor(epsilon=0.5, delay=1)
    assert binomtest(monitor_misses(monitor, 1.0), 200, 0.05, alternative="greater").pvalue > FALSE_ALARM
    assert binomtest(monitor_misses(monitor, 1 / 3), 200, 0.05, alternative="greater").pvalue < FALSE_ALARM


@pytest.mark.parametrize(
    "bad", [{"epsilon": 0.0}, {"epsilon": 1.0, "delay": 0}, {"epsilon": 1.0, "rounds_per_unit": 0}]
)
def test_bad_monitors(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Monitor(**bad)


def listen(pop: POP) -> list[int]:
    """What the monitor's counter is told from now on."""
    heard: list[int] = []
    counter: Any = pop.monitor._counter  # type: ignore[union-attr]
    step = counter.step
    counter.step = lambda value: heard.append(value) or step(value)
    return heard


# ---------------------------------------------------------------------- randomness


def unsure_rate(copies: int, polls: int, rounds: int) -> tuple[int, Plan]:
    """How often unanimous copies are unsure, in so many rounds."""
    plan = small_plan(copies=copies, polls=polls, rounds=10_000, unsure=5000)
    pop = make(plan)
    for _ in range(rounds):
        pop.predict(clear(1))
    assert pop.state == "live"
    return pop.operator.unsure, plan


@pytest.mark.parametrize(("copies", "polls"), [(12, 12), (30, 13)])
def test_the_unsure_rate_is_the_tables(copies: int, polls: int) -> None:
    """False alarms: below 1e-6. The table's entries for a vote more or less are rejected."""
    unsure, plan = unsure_rate(copies, polls, rounds=2500)
    table = plan.gate.table
    assert binomtest(unsure, 2500, table[polls]).pvalue > FALSE_ALARM
    assert binomtest(unsure, 2500, table[polls - 3]).pvalue < FALSE_ALARM


@pytest.mark.parametrize("units", ["rounds", "people"])
def test_every_round_draws_the_same_coins(units: Any) -> None:
    """Sure, unsure, capped, malformed or failing: one word for the gate and one for the halt; all copies are polled."""
    pop = make(small_plan(unit_unsure=3), learner=Failing(), units=units, features=1, seed=(coins := Tape(1)))
    drawn = set()
    for number, x in enumerate([clear(), DOUBT, [8.0], [1.0, 2.0], DOUBT, DOUBT, DOUBT, clear(1), ["x"]]):
        coins.at(number)
        try:
            pop.predict(x, unit="ann" if units == "people" else None)
        except ValueError:
            assert number in (3, 8)
        drawn.add(coins.position)
    assert drawn == {2 if units == "people" else 3}  # a round's copy is drawn too


def test_seeded_says_so() -> None:
    seeded, secure = make(), make(seed=None)
    assert "insecure: seeded" in repr(seeded) and "insecure: seeded" in str(seeded.guarantee)
    assert "insecure" not in repr(secure) + str(secure.guarantee) and secure.guarantee.secure
    assert not seeded.guarantee.secure


def test_a_seed_repeats_a_run_and_no_seed_does_not() -> None:
    def run(seed: int | None) -> list[Any]:
        pop = make(small_plan(silent=64), fallback="coin", seed=seed)
        return [pop.predict(DOUBT).label for _ in range(64)]

    assert run(5) == run(5) != run(6)
    assert run(None) != run(None)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_secure_pop_is_not_copied(duplicate: Callable[[POP], object]) -> None:
    with pytest.raises(TypeError, match="budget"):
        duplicate(POP(LogisticRegression(), small_plan(), labels=[0, 1], features=1, after_halt="raise"))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pop: pickle.loads(pickle.dumps(pop))])
def test_a_seeded_pop_may_be(duplicate: Callable[[POP], POP]) -> None:
    pop = make(fallback="coin")
    tickets = [pop.predict(DOUBT).ticket for _ in range(10)]
    twin = duplicate(pop)
    for one in (pop, twin):
        one.learn(tickets[3], "no")
    assert [pop.predict(DOUBT) for _ in range(20)] == [twin.predict(DOUBT) for _ in range(20)]
    pop.teach(clear(), "no")
    assert (pop.operator.taught, twin.operator.taught) == (2, 1)


def test_a_forked_child_may_not_go_on() -> None:
    pop = people(seed=None)
    ticket = pop.predict(clear(), unit="ann").ticket
    calls: list[Callable[[], object]] = [
        lambda: pop.predict(clear(), unit="ann"),
        lambda: pop.learn(ticket, "no"),
        lambda: pop.teach(clear(), "no", unit="ann"),
        lambda: pop.forget("ann"),
        lambda: pop.save("nowhere"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                refused += "forked" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
    assert pop.predict(clear(1), unit="ann").sure


# ---------------------------------------------------------------------- what is shown


def test_nothing_private_is_shown() -> None:
    """repr, state, guarantee and errors are the same whatever the copies voted, learned and counted."""
    shown = []
    for x, y in ((clear(1), "yes"), (DOUBT, "no")):
        pop = make()
        used = pop.predict(x).ticket
        pop.learn(used, y)
        for _ in range(19):
            pop.learn(pop.predict(x).ticket, y)
        errors = []
        for bad, label in itertools.product(["0-1-00", used, ""], ["no", "maybe"]):
            with pytest.raises(ValueError) as caught:
                pop.learn(bad, label)
            errors.append(str(caught.value))
        shown.append((repr(pop), pop.state, pop.rounds, pop.halt_reason, pop.guarantee, errors))
    assert shown[0] == shown[1]


def test_the_operator_sees_exact_numbers() -> None:
    pop = make()
    assert pop.operator.counts is None and pop.operator.margin is None
    pop.learn(pop.predict(clear(1)).ticket, "yes")
    operator = pop.operator
    assert (operator.unsure, operator.margin, operator.taught) == (0, 60, 1) and operator.nbytes > 0
    assert isinstance(operator.counts, np.ndarray)
    operator.counts[0] = 7
    assert pop.operator.counts is not None and pop.operator.counts[0] == 0, "a copy, not POP's own"
