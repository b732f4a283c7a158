"""Edges leak more than centres: what one unit sends decides neither what happens to others nor how many rounds pass."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest

from confide import POP, Halted, Plan, evaluate
from confide.guide import columns as read_by
from confide.guide.hashed import HashedMap
from confide.guide.model import Batch, Question
from confide.guide.rows import read_many
from confide.guide.vectors import Encoded
from confide.learners import Columns, Features, Halving, LogisticRegression
from confide.pop.base import Answer
from confide.pop.batches import Records
from confide.pop.keeping import Past
from confide.pop.lessons import Lesson
from confide.pop.randomizing import Held
from confide.pop.tickets import Waiting
from confide.service import base as service

pytestmark = pytest.mark.claim("people.md")

PLAN = Plan.tight(60.0, 1e-2, 400, copies=30, polls=30, unsure=60, silent=0, guide=None)


def make(learner: Any = None, **options: Any) -> POP:
    settings: dict[str, Any] = {"labels": ["no", "yes"], "features": 2, "seed": 1, **options}
    return POP(LogisticRegression() if learner is None else learner, PLAN, **{"after_halt": "raise", **settings})


class Erratic:
    """A number that fails in a way of its own."""

    def __float__(self) -> float:
        raise RuntimeError("private")


@pytest.mark.parametrize("bad", [[1j, 0], [Erratic(), 0], None, "text"], ids=["complex", "erratic", "none", "text"])
@pytest.mark.parametrize("learner", ["compiled", "plain"])
def test_a_row_that_raises_anything_keeps_no_other_from_being_taught(learner: str, bad: Any) -> None:
    width = {"features": 2} if learner == "compiled" else {"features": 1}
    pop = make(None if learner == "compiled" else Halving(np.eye(8, dtype=int)), **width)
    good = [1.0] * width["features"]
    rows = [bad] + [good] * 50
    with pytest.raises(ValueError, match="row 0 was refused, and all good rows were learned"):
        pop.teach_many(rows, ["yes"] * 51)
    assert pop.operator.taught == 50
    with pytest.raises(ValueError):
        pop.teach(bad, "yes")
    assert pop.operator.taught == 50


class WrongShape(Columns):
    """An encoder of somebody's own that returns too much now and then."""

    def encode(self, x: Any, /) -> Any:
        row = super().encode(x)
        return np.ones(3) if row[0] > 5 else row


@pytest.mark.parametrize("x", [[9.0, 0.0], ["x", 0.0]], ids=["wrong shape", "malformed"])
def test_an_encoder_that_returns_a_wrong_shape_skips_no_halting_draw(x: list[Any]) -> None:
    pop = make(features=WrongShape(2))
    pop.operator.loop.account.unsure = 10**6  # where the table says halt
    with pytest.raises(ValueError):
        pop.predict(x)
    assert pop.state == "halted" and pop.rounds == 1


def test_a_refused_row_is_a_wrong_answer_in_every_number() -> None:
    xs: list[Any] = [{"a": 1.0, "b": float(i % 2)} if i % 2 else {"a": "text", "b": 0.0} for i in range(300)]
    ys = ["yes"] * 300
    pop = make(Features(numeric=["a", "b"]) | LogisticRegression(), features=None, fallback="yes")
    result = evaluate(pop, xs, ys)
    assert result.rounds == 300 and result.refused.sum() == 150
    assert result.mistakes >= 150 and result.error >= 0.5
    assert "150 refused" in repr(result) and "array" not in repr(result)


def test_a_stream_of_which_no_row_can_be_read_is_an_error_at_once() -> None:
    pop = make(Features(numeric=["a"]) | LogisticRegression(), features=None)
    with pytest.raises(ValueError, match="none of the first 256 rows can be read"):
        evaluate(pop, [{"a": "text"}] * 300, ["yes"] * 300)
    with pytest.raises(ValueError, match="none of the first 256 labels"):
        evaluate(pop, [{"a": 1.0}] * 300, ["Yes"] * 300)
    assert pop.rounds == 0


def test_draws_do_not_hang_on_the_fallback() -> None:
    """Two POPs with one seed and other fallbacks: the same polls, gates and halting draws, to the last word."""
    pops = [make(fallback=fallback) for fallback in ("coin", "no", lambda x: "yes")]
    for pop in pops:
        for i in range(40):
            pop.predict([i % 3, i % 5])
    assert len({pop.operator.loop.rng.position for pop in pops}) == 1
    assert len({pop.operator.unsure for pop in pops}) == 1 and pops[0].operator.unsure > 10


def test_an_interrupt_inside_a_question_finishes_its_round() -> None:
    class Interrupting(float):
        def __float__(self) -> float:
            signal.raise_signal(signal.SIGINT)
            return 0.0

    pop = make()
    pop.operator.loop.account.unsure = 10**6
    with pytest.raises(KeyboardInterrupt):
        pop.predict([Interrupting(), 1.0])
    assert pop.rounds == 1 and pop.state == "halted"
    with pytest.raises(Halted):
        pop.predict([1.0, 1.0])


def test_no_part_of_a_pop_shows_anything_private() -> None:
    """Not in a log by accident: no repr of a part has a vote, a count, a question or a label in it."""
    pop = make(fallback="no")
    answer = pop.predict([0.123456, 7.654321])
    pop.learn(answer.ticket, "yes")
    pop.operator.loop.account.unsure = 424242
    loop = pop.operator.loop
    parts: list[object] = [pop, loop, loop.account, loop.tickets, loop.lessons, loop.routing, loop.fallback, loop.bank]
    parts += [loop.rng, pop.operator]
    parts += [waiting for _, waiting in loop.tickets]
    said = " ".join(map(repr, parts))
    secrets = ["0.123456", "7.654321", "424242", str(loop.last), loop.routing.secret.hex(), str(loop.routing.secret)]
    assert not [secret for secret in secrets if secret in said]


def test_nothing_on_its_way_through_a_pop_shows_a_question_or_a_label() -> None:
    """Tuples show all they have unless they are told not to."""
    columns = read_by.Columns(numeric=("a",), text=("t",))
    table = read_many(columns, [{"a": 0.123456, "t": "secret"}])
    row = columns.read({"a": 0.123456, "t": "secret"})
    encoded, labels = Encoded(np.array([424242]), np.array([0.123456])), np.array([424242])
    passed = [
        Lesson((1, 2), Waiting(0, 0.123456, 424242, False), 424242, -1), Past(1, 0, "secret", 424242, -1, 3),
        Held("secret", 424242, b"secret", True), Records(labels, labels, labels, {}, {}, 0), row, table, encoded,
        Question(0, encoded, encoded, row), Batch(HashedMap(8), np.array([0, 1]), *encoded, np.zeros(1, dtype=bool)),
        service.Question("secret", "secret", "secret"), service.Taught("secret", "secret", "secret"),
        service.Reply(Answer("secret", True, "secret"), 3),
    ]  # fmt: skip
    for one in passed:
        assert not [secret for secret in ("0.123456", "secret", "424242") if secret in f"{one!r} {one}"], type(one)


def test_a_certificate_that_does_not_hold_with_the_fallback_is_said() -> None:
    """With a constant fallback 3009 mistakes were made against 2087 certified."""
    plan = Plan.certified(8.0, 1e-4, 20_000, mistakes=1)
    with pytest.warns(UserWarning, match="certificate does not hold with this fallback"):
        POP(LogisticRegression(), plan, labels=[0, 1], features=1, fallback=0, after_halt="raise")
    POP(LogisticRegression(), plan, labels=[0, 1], features=1, after_halt="raise")
    careful = Plan.certified(8.0, 1e-4, 20_000, mistakes=1, fallback_error=1.0)
    POP(LogisticRegression(), careful, labels=[0, 1], features=1, fallback=0, after_halt="raise")


def test_an_operator_who_looks_meanwhile_teaches_no_lesson_twice() -> None:
    """Lessons wait for the next round, or for whoever looks at the copies first: one of them teaches, once."""
    pop, stop = make(), threading.Event()

    def look() -> None:
        while not stop.is_set():
            assert pop.operator.taught >= 0 and pop.operator.bank is not None

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for i in range(400):
            pop.teach([float(i % 3), 1.0], "yes")
    finally:
        stop.set()
        watcher.join()
    seen = pop.operator.bank.state()["array seen"]
    assert pop.operator.taught == 400 == int(np.asarray(seen).sum())
