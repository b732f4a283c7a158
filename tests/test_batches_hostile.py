"""Batches against single calls, by a hostile reader: random walks through every public call, on two POPs with one seed.

One POP only ever gets single calls (the loop to read); the other gets the same as batches, cut anywhere.
After every step both must have given the same answers and errors, and must be the same in everything that their future
depends on: the copies' memory, the counts, the open tickets, the next random word.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Halted, Monitor, Plan, evaluate
from confide import learners as known
from confide.banks import StackedBank, stacked
from confide.learners.features import Columns
from confide.pop import batches
from confide.pop import evaluate as evaluating
from confide.privacy.random import Random

ROUNDS = 200
LABELS = ["a", "b", "c", "d", "e", "f"]


def plan(copies: int, polls: int, silent: int = 25, labels: int = 2, people: int = 1, unsure: int = 50) -> Plan:
    return Plan.tight(
        60.0,
        1e-2,
        ROUNDS,
        copies=copies,
        polls=polls,
        unsure=unsure,
        silent=silent,
        labels=labels,
        unit_unsure=people,
        guide=None,
    )


PLANS = {
    "polled": plan(130, 9),
    "whole words": plan(64, 30),
    "one copy more": plan(65, 65),
    "few": plan(20, 20, unsure=17),
    "many labels": plan(70, 11, labels=6),
    "people": plan(130, 9, people=2),
    "all people": plan(33, 33, people=3),
    "loud": plan(130, 9, silent=0),
}


def public(x: Any) -> str:
    """A fallback that is not known to compiled code."""
    return "b" if np.size(x) > 1 and np.asarray(x).sum() > 2 else "a"


def started() -> known.LogisticRegression:
    learner = known.LogisticRegression()
    for i in range(40):
        learner.learn([i % 5, i % 3, i % 2], int(i % 5 > 2))
    return learner


@dataclass
class Case:
    """One random walk."""

    learner: Any
    plan: str = "polled"
    options: dict[str, Any] = field(default_factory=dict)
    width: int = 3

    def given(self) -> Any:
        """The learner, taught now if it comes with something learned."""
        return started() if self.learner is started else self.learner


CASES = {
    "logistic": Case(known.LogisticRegression(), options={"monitor": Monitor(epsilon=1.0, delay=9)}),
    "perceptron, whole words": Case(known.Perceptron(), "whole words", {"fallback": public, "after_halt": "fallback"}),
    "bayes, all polled": Case(known.GaussianNB(), "one copy more", {"fallback": "b", "ticket_life": 11}),
    "warm trees, few": Case(known.DecisionTree(memory=8, warmup=4), "few", {"after_halt": "fallback"}),
    "six labels": Case(known.LogisticRegression(), "many labels", {"ticket_life": 30}),
    "six labels, neighbours": Case(known.KNNClassifier(n_neighbors=2, memory=5, warmup=2), "many labels"),
    "people": Case(known.LogisticRegression(), "people", {"units": "people", "fallback": public}),
    "people, trees": Case(known.DecisionTree(memory=6), "all people", {"units": "people", "after_halt": "fallback"}),
    "people, watched": Case(
        known.BernoulliNB(), "people", {"units": "people", "monitor": Monitor(1.0, rounds_per_unit=2, delay=9)}
    ),
    "public start": Case(started, "polled", {"public_start": True}),
    "points, loud": Case(known.Points(), "loud", {"ticket_life": 1}, width=1),
    "thresholds": Case(known.Thresholds(15), "whole words", {"ticket_life": 40}, width=1),
    "not compiled": Case(known.Halving(np.eye(8, dtype=int)), "polled", {"after_halt": "fallback"}, width=1),
}


def make(case: Case, seed: int) -> POP:
    chosen = PLANS[case.plan]
    return POP(
        case.given(),
        chosen,
        labels=LABELS[: chosen.labels],
        features=case.width,
        seed=seed,
        **{"after_halt": "raise", **case.options},
    )


class Walk:
    """Two POPs, and a random sequence of calls."""

    def __init__(self, case: Case, seed: int, folder: Path) -> None:
        self.case, self.dice, self.folder, self.loads = case, random.Random(seed), folder, 0
        self.first, self.second = make(case, seed), make(case, seed)
        self.people = self.first.units == "people"
        self.tickets: list[str] = []

    # what is asked

    def x(self) -> Any:
        values = [self.dice.choice([0, 1, 2, 3, self.dice.random()]) for _ in range(self.case.width)]
        kind = self.dice.random()
        if kind < 0.03:
            nans = [float("nan")] * self.case.width
            return self.dice.choice([nans, [1.0] * 7, "text", None, {"a": 1.0}, [1e39], 3.0])
        return values if kind < 0.5 else np.array(values, dtype=self.dice.choice(["f4", "f8", "i8", "?"]))

    def table(self, rows: int) -> Any:
        """Many x, as one of the many things that they can come as."""
        form = self.dice.randrange(6)
        if form == 0:
            return [self.x() for _ in range(rows)]
        table = np.array([[self.dice.choice([0, 1, 2, 3]) for _ in range(self.case.width)] for _ in range(rows)])
        table = table.reshape(rows, self.case.width)
        if form == 1:
            return table.astype(self.dice.choice(["f4", "i4", "u1", "?", "f2", "O"]))
        table = table + np.array([[self.dice.random()] for _ in range(rows)]).reshape(rows, 1)
        if rows and self.dice.random() < 0.2:
            table[self.dice.randrange(rows), 0] = self.dice.choice([np.nan, np.inf, 1e300, -3.5e38])
        if form == 2:
            return np.asfortranarray(table)
        if form == 3:
            return np.repeat(np.repeat(table, 2, axis=0), 2, axis=1)[::2, ::2]
        if form == 4:
            table.flags.writeable = False
        return table

    def units(self, rows: int) -> list[str | bytes] | None:
        names: list[str | bytes] = [*(f"p{i}" for i in range(25)), b"p0", "é"]
        return [self.dice.choice(names) for _ in range(rows)] if self.people else None

    def size(self) -> int:
        return self.dice.choice([0, 1, 2, 3, 5, 8, 20, 33])

    def labels(self, rows: int) -> list[str]:
        return [self.dice.choice(self.first.labels) for _ in range(rows)]  # type: ignore[misc]

    # what happens

    def predict(self) -> None:
        xs = self.table(self.size())
        units = self.units(len(xs))
        one: list[Any] = []
        for i in range(len(xs)):
            try:
                one.append(self.first.predict(xs[i], None if units is None else units[i]))
            except ValueError as error:
                one.append(str(error))
            except Halted as halted:
                one.append(halted)
        try:
            other = self.second.predict_many(xs, units)
        except Halted:
            assert one and all(isinstance(answer, Halted) for answer in one)
            return
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            if isinstance(a, str | Halted):
                assert (b.label, b.sure, b.ticket, b.error) == (None, False, "", str(a))
            else:
                assert a == b
        self.tickets += [answer.ticket for answer in other if answer.ticket]

    def learn(self) -> None:
        """Some open tickets, out of order; now and then one ticket or label is bad, and the others are learned."""
        chosen = self.dice.sample(self.tickets, min(len(self.tickets), self.size()))
        good = [t for t in chosen if self.redeems(t)]
        ys = self.labels(len(good))
        if self.dice.random() < 0.3:
            used = [t for t in self.tickets if not self.redeems(t)]
            bad: Any = self.dice.choice([*used, "1-2-3", " ", 7])
            none: Any = self.dice.choice(["", None])  # a question that was refused: passed over
            at = self.dice.randrange(len(good) + 1)
            with pytest.raises(ValueError, match=f"row {at + 1} was refused"):
                self.second.learn_many([none, *good[:at], bad, *good[at:], none], ["a", *ys[:at], "a", *ys[at:], "no"])
            with pytest.raises(ValueError, match="no ticket: this question was refused"):
                self.second.learn(none, "a")
            for ticket, y in zip(good, ys, strict=True):
                self.first.learn(ticket, y)
            self.same()
            if good:
                with pytest.raises(ValueError, match=r"row 0 was refused.*was used"):
                    self.second.learn_many([good[0]], ["a"])
            good, ys = [], []
        elif good and self.dice.random() < 0.3:
            with pytest.raises(ValueError, match=rf"row {len(good) - 1} was refused.*this is not one"):
                self.second.learn_many(good, [*ys[:-1], "nothing"])
            for ticket, y in zip(good[:-1], ys[:-1], strict=True):
                self.first.learn(ticket, y)
            self.same()
            good, ys = good[-1:], ys[-1:]
            with pytest.raises(ValueError, match=r"row 1 was refused.*was used"):
                self.second.learn_many([*good, good[0]], [*ys, "a"])
            self.first.learn(good[0], ys[0])
            good, ys = [], []
        for ticket, y in zip(good, ys, strict=True):
            self.first.learn(ticket, y)
        self.second.learn_many(good, ys)
        if self.dice.random() < 0.5:
            self.tickets = [t for t in self.tickets if t not in good]

    def redeems(self, ticket: str) -> bool:
        try:
            tickets = copy.deepcopy(self.first.operator.loop.tickets)
            tickets.take(tickets.read(ticket), self.first.operator.loop.account.rounds)
        except ValueError:
            return False
        return True

    def teach(self) -> None:
        xs = self.table(self.size())
        ys, units = self.labels(len(xs)), self.units(len(xs))
        bad = [i for i in range(len(xs)) if not self.encodes(xs[i])]
        for i in range(len(xs)):
            with contextlib.suppress(ValueError):
                self.first.teach(xs[i], ys[i], None if units is None else units[i])
        if bad:
            with pytest.raises(ValueError, match=f"row {bad[0]} was refused"):
                self.second.teach_many(xs, ys, units)
        else:
            self.second.teach_many(xs, ys, units)

    def encodes(self, x: Any) -> bool:
        try:
            self.first.operator.bank.encode(x)
        except ValueError:
            return False
        return True

    def evaluate(self) -> None:
        """The loop of the docs; it ends where the rounds do."""
        xs = self.table(self.size())
        ys, units = self.labels(len(xs)), self.units(len(xs))
        one: list[tuple[int, bool]] = []
        pop = self.first
        if len(xs) and not any(self.encodes(x) for x in xs):
            with pytest.raises(ValueError, match="can be read"):
                evaluate(self.second, xs, ys, units)
            return
        for i in range(len(xs)):
            if pop.halt_reason is None and pop.rounds == pop.plan.rounds and not pop.operator.loop.goes_on:
                with contextlib.suppress(Halted):
                    pop.predict(xs[i], None if units is None else units[i])
            if pop.halt_reason is not None and not pop.operator.loop.goes_on:
                break
            try:
                answer = pop.predict(xs[i], None if units is None else units[i])
            except ValueError:
                one.append((-1, False))
                continue
            one.append((pop.labels.index(answer.label), answer.sure))
            pop.learn(answer.ticket, ys[i])
        done = evaluate(self.second, xs, ys, units)
        assert list(zip(done.answers.tolist(), done.sure.tolist(), strict=True)) == one

    def forget(self) -> None:
        if self.people:
            (unit,) = self.units(1) or []
            for pop in (self.first, self.second):
                pop.forget(unit)

    def copied(self) -> None:
        """A copy goes on as the original would have."""
        if self.second.operator.loop.account.book is None and self.case.options.get("fallback") is not public:
            pickled = self.dice.random() < 0.5
            self.second = pickle.loads(pickle.dumps(self.second)) if pickled else copy.deepcopy(self.second)

    def saved(self) -> None:
        """Save and load; both draw anew from there on, from one seed."""
        self.loads += 1
        again: list[POP] = []
        forget = self.people and self.dice.random() < 0.5
        for name, pop in (("one", self.first), ("other", self.second)):
            book = pop.operator.loop.account.book
            home = self.folder / f"{name}{self.loads}" if book is None else book.home
            pop.save(home)
            if forget:
                pop.forget("p1")
            pop.close()
            fallback = public if self.case.options.get("fallback") is public else None
            given = "public_start" in self.case.options or isinstance(self.case.learner, known.Halving)
            learner = self.case.given() if given else None
            again.append(POP.load(home, fallback=fallback, learner=learner, rng=Random(self.loads)))
        self.first, self.second = again

    def same(self) -> None:
        assert everything(self.first) == everything(self.second)
        for pop in (self.first, self.second):
            isolated(pop)

    def go(self, steps: int) -> None:
        moves = [self.predict, self.learn, self.teach, self.evaluate, self.forget, self.copied]
        for _ in range(steps):
            self.dice.choices(moves, [5, 4, 2, 3, 1, 1])[0]()
            self.same()
            if self.dice.random() < 0.03 and self.second.halt_reason is None:
                self.saved()
                self.same()


def everything(pop: POP) -> dict[str, Any]:
    """Everything that the future of a POP depends on."""
    bank = pop.operator.bank.state(trusted=True)
    watch: Any = None if pop.monitor is None else (list(pop.monitor._waiting), pop.monitor._asked)
    loop, account = pop.operator.loop, pop.operator.loop.account
    opened = [(key, w.copy, np.asarray(w.x).tolist(), w.answered, w.counted, w.who) for key, w in loop.tickets]
    coin = copy.deepcopy(loop.fallback).answer([0.0])
    words = None if account.halted else (copy.deepcopy(loop.rng).words(3).tolist(), coin)
    return {
        "bank": {name: v.tobytes() if isinstance(v, np.ndarray) else v for name, v in bank.items()},
        "counts": (account.rounds, account.unsure, pop.operator.taught, account.shares, account.watched),
        "halt": (pop.halt_reason, pop.state),
        "last": None if pop.operator.counts is None else pop.operator.counts.tolist(),
        "open": opened,
        "next words": words,
        "watch": watch,
    }


def isolated(pop: POP) -> None:
    """The tables of a bank agree: a copy votes under its own number, once it has learned enough."""
    bank = pop.operator.bank
    if not isinstance(bank, StackedBank) or not bank.fuses:
        return
    seen = bank._arrays["seen"]
    votes = (seen >= bank._learner.warmup) & (seen > 0)
    assert (bank._voter[seen == 0] == -1).all()
    assert ((bank._voter >= 0) == votes).all() and (bank._voter[votes] == np.flatnonzero(votes)).all()
    bits = np.unpackbits(bank._idle.view(np.uint8), bitorder="little")[: bank.copies]
    assert (bits == ~votes).all()


@pytest.mark.parametrize("name", CASES)
def test_any_walk_through_batches_equals_single_calls(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "CHUNK", 7)
    for seed, words in enumerate((64, 1 << 17)):
        monkeypatch.setattr(batches, "WORDS", words)
        walk = Walk(CASES[name], seed, tmp_path / str(seed))
        walk.go(40)
        assert batches.fuses(walk.second.operator.loop) == (name != "not compiled")
        assert walk.second.rounds > 40 and walk.second.operator.taught > 3
        walk.second.close()
        walk.first.close()


# What a batch must bear: each of these was once wrong.


def rows(n: int = 60) -> tuple[Any, list[str]]:
    xs = np.random.default_rng(5).random((n, 3))
    return xs, ["ab"[int(value > 0.5)] for value in xs[:, 0]]


@pytest.mark.parametrize("call", ["predict", "evaluate", "teach"])
def test_an_interrupt_repeats_no_word_and_lets_no_two_copies_share(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a kernel comes up right after it."""
    pop, (xs, ys) = make(CASES["logistic"], 1), rows()
    rng = pop.operator.loop.rng
    position = rng._produced - (rng._buffer.size - rng._cursor)
    ran: list[int] = []

    def interrupted(kernel: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            kernel(*args)
            ran.append(1)
            signal.raise_signal(signal.SIGINT)

        return run

    for name in ("ask", "teach_rows"):
        monkeypatch.setattr(stacked, name, interrupted(getattr(stacked, name)))
    with pytest.raises(KeyboardInterrupt):
        if call == "predict":
            pop.predict_many(xs)
        elif call == "evaluate":
            evaluate(pop, xs, ys)
        else:
            pop.teach_many(xs, ys)
    monkeypatch.undo()
    assert ran
    isolated(pop)
    assert rng._produced - (rng._buffer.size - rng._cursor) >= position + 60
    for x, y in zip(xs, ys, strict=True):
        pop.teach(x, y)
    isolated(pop)
    if call != "teach":
        assert pop.operator.loop.account.rounds == 60 and pop.operator.unsure > 0


@pytest.mark.parametrize("wrong", [KeyError, ValueError])
def test_a_fallback_that_fails_spoils_its_own_row_alone(wrong: type[Exception]) -> None:
    def failing(x: Any) -> str:
        if x[0] > 0.8:
            raise wrong("no")
        return "a"

    pop, (xs, _) = make(Case(known.LogisticRegression(), options={"fallback": failing}), 1), rows()
    answers = pop.predict_many(xs)
    assert [answer.error is not None for answer in answers] == (xs[:, 0] > 0.8).tolist()
    assert pop.rounds == 60 and len(pop.operator.loop.tickets) == (xs[:, 0] <= 0.8).sum()


class Bad(str):
    """A label that cannot be looked up, a ticket that cannot be read."""

    def split(self, *_: Any) -> Any:
        raise RuntimeError("private")

    def __hash__(self) -> int:
        raise RuntimeError("private")


@pytest.mark.parametrize("bad", ["ticket", "label", "record"])
def test_a_bad_label_spoils_its_own_row_alone(bad: str) -> None:
    """What one unit brings must not decide whether another's label is learned."""
    pop = POP(known.LogisticRegression(), PLANS["polled"], labels=["a", "b"], features=3, after_halt="raise")
    xs = [[1.0, 2.0, 3.0]] * 5
    tickets, ys = [answer.ticket for answer in pop.predict_many(xs)], ["a"] * 5
    (tickets if bad == "ticket" else ys)[2] = Bad("a")
    with pytest.raises(ValueError, match="row 2"):
        pop.teach_many(xs, ys) if bad == "record" else pop.learn_many(tickets, ys)
    assert pop.operator.taught == 4


def test_an_encoder_of_ones_own_is_asked_in_batches_too() -> None:
    class Clipped(Columns):
        def encode(self, x: Any, /) -> Any:
            return super().encode(np.clip(x, 0, 0.1))

    pair = [
        POP(known.GaussianNB(), PLANS["polled"], labels=["a", "b"], features=Clipped(3), seed=1, after_halt="raise")
        for _ in range(2)
    ]
    xs, ys = rows()
    for x, y in zip(xs, ys, strict=True):
        pair[0].teach(x, y)
    pair[1].teach_many(xs, ys)
    assert everything(pair[0]) == everything(pair[1])


def test_a_learner_with_other_arrays_is_not_compiled() -> None:
    class Wider(known.LogisticRegression):
        def layout(self, features: int) -> Any:
            return {"mine": ((features,), np.float64), **super().layout(features)}

    assert Wider().compiled() is None


class Frame:
    """Like a table of named columns: its length is that of the rows, it iterates over the names."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return iter(["x", "y", "z"])


@pytest.mark.parametrize("call", [evaluate, POP.teach_many])
def test_what_is_longer_or_shorter_than_it_says_is_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"rows|records"):
        call(make(CASES["logistic"], 1), Frame(), ["a", "b"])


def test_one_name_is_not_a_list_of_units() -> None:
    with pytest.raises(ValueError, match="unit"):
        make(CASES["people"], 1).predict_many(np.ones((3, 3)), "bob")


def test_a_copy_whose_first_lesson_failed_does_not_vote() -> None:
    class Picky(known.DecisionTree):
        fails = False

        def teach(self, arrays: Any, slot: int, seen: int, x: Any, y: int) -> None:
            if self.fails:
                raise ValueError("no")
            super().teach(arrays, slot, seen, x, y)

    bank = StackedBank(Picky(), copies=4, labels=2, features=1)
    Picky.fails = True  # after it was tried
    with pytest.raises(ValueError, match="no"):
        bank.learn(0, bank.encode([1.0]), 1)
    assert bank._voter[0] < 0  # a tree that was never grown has no leaf to stop at


def test_rows_for_copies_labels_or_features_that_are_not_there_are_refused() -> None:
    bank = StackedBank(known.LogisticRegression(), copies=70, labels=2, features=3)
    bank.learn(69, bank.encode([1.0, 2.0, 3.0]), 1)
    one = np.ones(1, dtype=np.int64)
    for copies, xs, ys in ((-one, np.ones((1, 3)), one), (one, np.ones((1, 3)), -one), (one, np.ones((1, 2)), one)):
        with pytest.raises(ValueError):
            bank.learn_many(copies, xs, ys)
    with pytest.raises(ValueError, match="label"):
        known.LogisticRegression().follow(np.ones((2, 3)), np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize("learner", [known.Points(), known.Halving(np.eye(8, dtype=int))])
def test_evaluate_ends_at_the_same_row_compiled_or_not(learner: Any) -> None:
    case = Case(learner, "polled", {"after_halt": "fallback"}, width=1)
    ending, halting = make(case, 1), make(case, 1)
    ending.operator.loop.account.take(ROUNDS - 5)
    halting.operator.loop.account.take(50)
    halting.operator.loop.account.unsure = 10**6
    ended = evaluate(ending, np.ones((9, 1)), ["a"] * 9)
    assert ended.rounds == 9 and ended.margins.tolist()[5:] == [-1] * 4 and ending.halt_reason == "rounds"
    assert ended.source.tolist()[5:] == [0] * 4, "the fallback goes on"
    done = evaluate(halting, [["x"], [1.0], [1.0]], ["a"] * 3)
    assert done.halted_at == 1 and done.margins.tolist() == [0, -1, -1] and halting.halt_reason == "budget"
