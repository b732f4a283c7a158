"""Batches: the compiled loop and the plain one give the same answers and leave the same POP behind."""

from __future__ import annotations

import contextlib
import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide import POP, Halted, Monitor, Plan, StateError, TicketError, evaluate
from confide import learners as known
from confide.games.worlds import digests
from confide.learners import LogisticRegression
from confide.pop import batches
from confide.pop import evaluate as evaluating
from confide.pop.loop import Loop

pytestmark = pytest.mark.claim("people.md")

ROUNDS = 240
LEARNERS: dict[str, Any] = {
    "logistic": known.LogisticRegression(),
    "perceptron": known.Perceptron(),
    "passive-aggressive": known.PAClassifier(),
    "gaussian": known.GaussianNB(),
    "bernoulli": known.BernoulliNB(),
    "neighbours": known.KNNClassifier(memory=16),
    "tree": known.DecisionTree(memory=24),
    "warm": known.DecisionTree(memory=24, warmup=3),
    "forest": known.ExtraTrees(trees=3, memory=24),
    "points": known.Points(),
    "thresholds": known.Thresholds(15),
    "conjunctions": known.Conjunctions(3),
    "parities": known.Parities(3),
    "winnow": known.Winnow(3),
    "halving": known.Halving(np.eye(8, dtype=int)),
    "batch": known.Refit,
}
WIDTH = {"points": 1, "thresholds": 1, "halving": 1}


def plan(labels: int = 2, polls: int = 9, silent: int = 40, people: int = 1) -> Plan:
    return Plan.tight(
        60.0,
        1e-2,
        ROUNDS,
        copies=30,
        polls=polls,
        unsure=60,
        silent=silent,
        labels=labels,
        unit_unsure=people,
        guide=None,
    )


PLANS = {"polled": plan(), "full": plan(polls=30), "people": plan(people=2), "three": plan(labels=3)}


TWO_LABELS = ("points", "thresholds", "conjunctions", "parities", "winnow", "halving")
PAIRS = [(name, which) for name in LEARNERS for which in PLANS if which != "three" or name not in TWO_LABELS]


def make(name: str, which: str, seed: int | None = 3, **options: Any) -> POP:
    learner = LEARNERS[name]
    if name == "batch":
        from sklearn.tree import DecisionTreeClassifier

        learner = known.Refit(DecisionTreeClassifier(max_depth=2, random_state=0), memory=16)
    chosen = PLANS[which]
    labels = ["a", "b", "c"][: chosen.labels]
    if which == "people":
        options["units"] = "people"
    options = {"after_halt": "raise", **options}
    return POP(learner, chosen, labels=labels, features=WIDTH.get(name, 3), seed=seed, **options)


def stream(name: str, labels: int, seed: int, rows: int = ROUNDS + 20, bad: bool = True) -> tuple[Any, list[str]]:
    rng = np.random.default_rng(seed)
    xs = rng.integers(0, 8 if WIDTH.get(name) == 1 else 2, size=(rows, WIDTH.get(name, 3))).astype(float)
    if name in ("logistic", "gaussian", "neighbours", "tree", "warm"):
        xs += rng.random(xs.shape)
    ys = ["abc"[int(v)] for v in (xs.sum(axis=1) + (rng.random(rows) < 0.1)).astype(int) % labels]
    if bad:
        xs = xs.astype(object)
        xs[rng.integers(rows, size=3), 0] = "x"
    return xs, ys


def ids(rows: int, seed: int) -> list[str]:
    return [f"p{i}" for i in np.random.default_rng(seed).integers(0, 40, size=rows)]


def plain(pop: POP, xs: Any, ys: list[str], units: list[str] | None) -> list[tuple[Any, bool]]:
    """The loop of the docs."""
    seen: list[tuple[Any, bool]] = []
    for i in range(len(ys)):
        try:
            answer = pop.predict(xs[i], None if units is None else units[i])
        except Halted:
            break
        except ValueError:
            seen.append((None, False))
            continue
        seen.append((answer.label, answer.sure))
        pop.learn(answer.ticket, ys[i])
        if pop.halt_reason is not None:
            break
    return seen


def leftovers(pop: POP) -> dict[str, Any]:
    """Everything that the future of a POP depends on."""
    bank = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in pop.operator.bank.state(trusted=True).items()}
    bank.pop("pickles", None)
    bank.pop("sizes", None)
    last = None if pop.operator.counts is None else pop.operator.counts.tolist()
    return {
        "bank": bank, "rounds": pop.rounds, "unsure": pop.operator.unsure, "halted": pop.halt_reason,
        "units": pop.operator.loop.account.shares, "watched": pop.operator.loop.account.watched,
        "taught": pop.operator.taught, "last": last, "tickets": [key for key, _ in pop.operator.loop.tickets],
        "next word": None if pop.halt_reason == "budget" else pop.operator.loop.rng.word(),
        "next coin": None if pop.halt_reason else pop.operator.loop.fallback.answer(None),
        "monitor": None if pop.monitor is None else (pop.monitor.estimate, list(pop.monitor._waiting)),
    }  # fmt: skip


def agree(name: str, which: str, seed: int, **options: Any) -> POP:
    first, second = make(name, which, seed, **options), make(name, which, seed, **options)
    xs, ys = stream(name, len(first.labels), seed)
    units = ids(len(ys), seed) if which == "people" else None
    one = plain(first, xs, ys, units)
    result = evaluate(second, xs, ys, units)
    other = [(None if a < 0 else second.labels[a], bool(s)) for a, s in zip(result.answers, result.sure, strict=True)]
    assert one == other
    assert leftovers(first) == leftovers(second)
    return second


@pytest.mark.parametrize(("name", "which"), PAIRS)
def test_the_compiled_loop_equals_the_plain_one(name: str, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "CHUNK", 50)
    monkeypatch.setattr(batches, "WORDS", 64)
    pop = agree(name, which, seed=3)
    assert batches.fuses(pop.operator.loop) == (name not in ("halving", "batch"))
    assert pop.rounds > 60 and pop.operator.unsure > 0


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(["logistic", "tree", "points", "gaussian"]),
    which=st.sampled_from(["polled", "full", "people"]),
    seed=st.integers(0, 10**6),
    fallback=st.sampled_from(["coin", "a", "public"]),
    monitored=st.booleans(),
)
def test_any_stream_any_fallback(name: str, which: str, seed: int, fallback: str, monitored: bool) -> None:
    monitor = Monitor(epsilon=1.0, delay=7) if monitored else None
    agree(name, which, seed, monitor=monitor, fallback=(lambda x: "b") if fallback == "public" else fallback)


def test_public_start_and_the_papers_plan() -> None:
    taught = LogisticRegression()
    for i in range(30):
        taught.learn([i % 5, i % 3, 1], i % 2)
    xs, ys = stream("logistic", 2, 1)
    pair = [
        POP(taught, PLANS["polled"], labels=["a", "b"], features=3, public_start=True, seed=1, after_halt="raise")
        for _ in range(2)
    ]
    plain(pair[0], xs, ys, None)
    evaluate(pair[1], xs, ys)
    assert leftovers(pair[0]) == leftovers(pair[1])
    literal = Plan.paper(30.0, 1e-2, 200, mistakes=1, beta=0.5)
    papers = [POP(known.Points(), literal, labels=[0, 1], features=1, seed=1, after_halt="raise") for _ in range(2)]
    plain(papers[0], np.ones((20, 1)), [1] * 20, None)  # type: ignore[list-item]
    evaluate(papers[1], np.ones((20, 1)), [1] * 20)
    assert leftovers(papers[0]) == leftovers(papers[1]) and not batches.fuses(papers[1].operator.loop)


@pytest.mark.parametrize("which", ["polled", "people"])
@pytest.mark.parametrize("name", ["logistic", "batch"])
def test_predict_learn_and_teach_many_equal_the_calls_one_by_one(name: str, which: str) -> None:
    first, second = make(name, which, monitor=None), make(name, which, monitor=None)
    xs, ys = stream(name, 2, 5)
    units: Any = ids(len(ys), 5) if which == "people" else [None] * len(ys)
    history, good = slice(0, 40), np.array([type(x[0]) is float for x in xs])
    for x, y, unit in zip(xs[history][good[history]], np.array(ys)[history][good[history]], units, strict=False):
        first.teach(x, str(y), unit)
    whose = units[: int(good[history].sum())] if which == "people" else None
    second.teach_many(xs[history][good[history]], np.array(ys)[history][good[history]].tolist(), whose)
    for start in range(0, ROUNDS + 20, 13):
        part = range(start, min(start + 13, ROUNDS + 20))
        one: list[Any] = []
        for i in part:
            try:
                one.append(first.predict(xs[i], units[i]))
            except Halted:
                one.append(None)
            except ValueError as error:
                one.append(str(error))
        try:
            other = second.predict_many(xs[part.start : part.stop], units[part.start : part.stop] if whose else None)
        except Halted:
            assert set(one) == {None}
            continue
        for a, b in zip(one, other, strict=True):
            if a is None or isinstance(a, str):
                assert b.error and not b.ticket and b.label is None and (a is None or a == b.error)
            else:
                assert a == b
        kept = [(b.ticket, ys[i]) for i, b in zip(part, other, strict=True) if b.ticket]
        for ticket, y in kept:
            first.learn(ticket, y)
        second.learn_many([t for t, _ in kept], [y for _, y in kept])
    assert leftovers(first) == leftovers(second)
    assert first.halt_reason == second.halt_reason is not None


def test_a_bad_row_keeps_no_other_row_from_being_learned() -> None:
    """Else what one unit sends would decide whether many copies are taught."""
    pop = make("logistic", "polled")
    answers = pop.predict_many(np.ones((4, 3)))
    with pytest.raises(TicketError, match=r"row 1 was refused.*not a ticket"):
        pop.learn_many([answers[0].ticket, "nonsense"], ["a", "b"])
    assert pop.operator.taught == 1
    with pytest.raises(ValueError, match=r"row 0 was refused.*this is not one.*1 more rows"):
        pop.learn_many([answers[1].ticket, answers[2].ticket, answers[2].ticket], ["z", "b", "b"])
    assert pop.operator.taught == 2
    with pytest.raises(ValueError, match=r"row 1 was refused.*must be a number"):
        pop.teach_many([[1.0, 2, 3], ["x", 2, 3], [3.0, 2, 1]], ["a", "a", "b"])
    assert pop.operator.taught == 4
    pop.learn_many([answers[1].ticket, answers[3].ticket], ["a", "b"])  # a refused label leaves its ticket as it was
    assert pop.operator.taught == 6
    with pytest.raises(TicketError, match=r"row 0 was refused.*this ticket was used"):
        pop.learn_many([answers[0].ticket], ["a"])


@pytest.mark.parametrize("name", ["logistic", "batch"])
@pytest.mark.parametrize("which", ["polled", "people"])
def test_one_units_bad_row_moves_no_other_copy(name: str, which: str) -> None:
    """Two worlds with the same coins: the unit's label is good in one and unknown in the other."""
    worlds = [make(name, which), make(name, which)]
    xs, units = np.arange(36.0).reshape(12, 3), [f"p{i}" for i in range(12)] if which == "people" else None
    for pop, label in zip(worlds, ("a", "z"), strict=True):
        tickets = [answer.ticket for answer in pop.predict_many(xs, units)]
        with contextlib.suppress(ValueError):
            pop.learn_many(tickets, ["a"] * 5 + [label] + ["b"] * 6)
    held = [digests(pop.operator.bank) for pop in worlds]
    differing = [copy for copy in held[0].keys() | held[1].keys() if held[0].get(copy) != held[1].get(copy)]
    assert len(differing) == 1 and len(held[1]) >= 5
    assert [pop.operator.taught for pop in worlds] == [12, 11]


def test_calls_that_do_not_fit_are_refused_before_anything_happens() -> None:
    pop = make("logistic", "polled")
    with pytest.raises(ValueError, match="2 records for 1"):
        pop.teach_many(np.ones((2, 3)), ["a"])
    with pytest.raises(ValueError, match="protects rounds"):
        pop.predict_many(np.ones((1, 3)), ["alice"])
    people = make("logistic", "people")
    with pytest.raises(ValueError, match="2 units for 1"):
        people.predict_many(np.ones((1, 3)), ["alice", "bob"])
    with pytest.raises(ValueError, match="protects people"):
        people.predict_many(np.ones((1, 3)))
    assert pop.rounds == people.rounds == pop.operator.taught == 0


@pytest.mark.parametrize("which", ["polled", "people"])
def test_what_a_batch_spent_is_on_disk_before_its_answers(which: str, tmp_path: Path) -> None:
    pop = make("logistic", which)
    pop.save(tmp_path / "state")
    xs, ys = stream("logistic", 2, 9, bad=False)
    units = ids(len(ys), 9) if which == "people" else None
    evaluate(pop, xs[:150], ys[:150], None if units is None else units[:150])
    assert pop.operator.unsure > 5
    pop.operator.loop.account.book.close()  # type: ignore[union-attr]  # as a crash would
    again = POP.load(tmp_path / "state")
    assert again.operator.unsure == pop.operator.unsure
    assert again.operator.loop.account.shares == pop.operator.loop.account.shares
    assert again.rounds >= pop.rounds
    again.close()


def test_a_ledger_that_cannot_be_written_answers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pop = make("logistic", "polled")
    pop.save(tmp_path / "state")

    def full(*_: object) -> None:
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(type(pop.operator.loop.account.book), "_write", full)
    for _ in range(2):
        with pytest.raises(StateError, match="full"):
            pop.predict_many(np.ones((100, 3)))
    assert pop.rounds == 200 and pop.halt_reason is None  # taken, and answered by nobody
    monkeypatch.undo()
    with pytest.raises(StateError, match="full"):  # for good, and for everybody
        pop.predict(np.ones(3))
    pop.close()
    with POP.load(tmp_path / "state") as again:
        assert again.rounds == 0


def test_a_subclass_with_a_loop_of_its_own_is_asked_its_own_way() -> None:
    class Stubborn(Loop):
        def live(self, x: Any, malformed: bool, who: bytes | None, scores: Any) -> tuple[int, int]:
            return 1, 3

    class Own(POP):
        loop_type = Stubborn

    pop = Own(LogisticRegression(), PLANS["polled"], labels=["a", "b"], features=3, seed=1)
    assert not batches.fuses(pop.operator.loop)
    assert {a.label for a in pop.predict_many(np.ones((60, 3)))[40:]} == {"b"}


def test_a_learner_that_votes_its_own_way_is_not_compiled() -> None:
    class Stubborn(LogisticRegression):
        def vote(self, arrays: Any, slots: Any, x: Any, counts: Any) -> None:
            counts[1] += (slots >= 0).sum()

    assert Stubborn().compiled() is None and LogisticRegression().compiled() is not None


class Born(known.Thresholds):
    """Every copy draws something before it learns anything."""

    def birth(self, arrays: Any, rng: Any) -> None:
        arrays["cut"][:, 0] = rng.below_many(8, arrays["cut"].shape[0])


def test_birth_gives_every_copy_its_own_start() -> None:
    pair = [POP(Born(15), PLANS["full"], labels=["a", "b"], features=1, seed=4, after_halt="raise") for _ in range(2)]
    cuts = pair[0].operator.bank.state()["array cut"]
    assert len(np.unique(np.asarray(cuts)[:, 0])) > 3
    xs, ys = stream("thresholds", 2, 1)
    plain(pair[0], xs, ys, None)
    evaluate(pair[1], xs, ys)
    assert leftovers(pair[0]) == leftovers(pair[1])
    bank = pair[0].operator.bank
    assert (bank.votes(bank.encode([3.0]), np.arange(30)).sum()) == 30
    bank.reset([3])
    assert (bank.votes(bank.encode([3.0]), np.array([3])).sum()) == 1


def test_a_copied_pop_has_a_memory_of_its_own() -> None:
    """The compiled loop works on addresses: a copy must not keep those of the original."""
    first = make("logistic", "polled")
    xs, ys = stream("logistic", 2, 2)
    evaluate(first, xs[:80], ys[:80])
    second, third = copy.deepcopy(first), pickle.loads(pickle.dumps(first))
    before = first.operator.bank.state()
    for pop in (second, third):
        evaluate(pop, xs[80:], ys[80:])
    assert all(np.array_equal(before[name], value) for name, value in first.operator.bank.state().items())
    evaluate(first, xs[80:], ys[80:])
    assert leftovers(first) == leftovers(second) == leftovers(third)


def test_a_label_whose_mark_cannot_be_written_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When labels come is private: a full disk just then must not tell the next asker that one came."""
    pop = make("logistic", "people")
    pop.save(tmp_path / "state")
    ticket = pop.predict(np.ones(3), "ann").ticket
    book = pop.operator.loop.account.book
    assert book is not None

    def full(*_: object) -> None:
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(type(book), "_write", full)
    pop.learn(ticket, "a")
    with pytest.raises(StateError, match="try again"):
        pop.forget("bob")
    monkeypatch.undo()
    assert pop.predict(np.ones(3), "cid").ticket  # and the marks went out with it
    book.close()
    with POP.load(tmp_path / "state") as again, pytest.raises(TicketError, match="used"):
        again.learn(ticket, "a")


def test_rows_without_a_known_label_are_in_no_error_of_an_evaluation() -> None:
    """Half of the labels are missing: the error is that of the other half."""
    plan = Plan.tight(8.0, 1e-3, 400, guide=1.0)
    pop = POP(None, plan, labels=[0, 1], features=1, seed=1)
    xs = np.arange(400.0)[:, None] % 7 - 3
    ys = [None if i % 2 else int(xs[i, 0] > 0) for i in range(400)]
    result = evaluate(pop, xs, ys)
    wrong = result.answers[::2] != (xs[::2, 0] > 0)
    assert result.error == wrong.mean() and result.known.sum() == 200 and not result.wrong[1::2].any()
    assert result.error_after(0.5) == wrong[100:].mean() and "200 without a label, in no error" in repr(result)
    assert "200 rows without a label are in no error" in result._repr_html_()
