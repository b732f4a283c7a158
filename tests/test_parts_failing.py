"""What a part of one's own raises at one person's row or label is that person's alone, in batches as one by one."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide import POP, Plan
from confide.learners import LogisticRegression
from confide.planning.parts import Part
from confide.planning.promise import Promise
from confide.pop.running import PastCap, Running
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from tests.test_parts import DELTA, GUIDE, ROUNDS, ROW, Count, Counting, open_leaf, stream
from tests.test_parts import make as made

pytestmark = pytest.mark.claim("parts.md")


class Panic(BaseException):
    """As libraries written in Rust raise: it is no Exception."""


RAISED = [ValueError, RuntimeError, Panic, SystemExit, KeyboardInterrupt]
BAD = 666.0
"""The second number of a row at which it raises; the first is negative, so that such a row counts nothing."""


@dataclass(frozen=True)
class Fails(Count, kind="toy-fails"):
    """The count, by a part that raises."""


class Failing(Counting, runs=Fails):
    """Raises in one of its methods, at rows that say so; and remembers what it was taught."""

    when: ClassVar[str] = ""
    raised: ClassVar[type[BaseException]] = RuntimeError

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.heard = list[tuple[float, int]]()

    def _fail(self, method: str, bad: bool) -> None:
        if bad and method == self.when:
            raise self.raised("what nobody else may read")

    def encode(self, x: Any, who: bytes | None) -> Any:
        self._fail("encode", x[1] == BAD)
        super().encode(x, who)
        return float(x[0]), float(x[1])

    def check(self, x: Any) -> None:
        self._fail("check", x[1] == BAD)

    def propose(self, question: Any) -> tuple[int, None]:
        self._fail("propose", question[1] == BAD)
        if self.when == "range" and question[1] == BAD:
            return 7, None
        return super().propose(question)

    def lesson(self, question: Any) -> Any:
        self._fail("lesson", question[1] == BAD)
        return question

    def teach(self, question: Any, label: int, who: bytes | None) -> int:
        self._fail("teach", question[1] == BAD)
        self.heard.append((question[0], label))
        return 0

    def teach_one(self, x: Any, label: int, who: bytes | None) -> int:
        if label >= 0:
            self._fail("teach_one", x[1] == BAD)
            self.heard.append((x[0], label))
        return -1

    def read_as_of(self, x: Any, number: int) -> Any:
        self._fail("read_as_of", x[1] == BAD)
        return float(x[0]), float(x[1])

    def again(self, x: Any, label: int, number: int) -> None:
        self._fail("again", x[1] == BAD)

    def pack(self, question: Any) -> Any:
        self._fail("pack", question[1] == BAD)


@dataclass(frozen=True)
class Refuses(Count, kind="toy-refuses"):
    """The count, by a part that receives labels, and raises at those that are 1."""


class Refusing(Failing, runs=Refuses):
    when = "receive"

    gives: ClassVar[int] = 1

    def receive(self, label: int, who: bytes | None) -> int:
        self._fail("receive", label == 1)
        return self.gives if label else 0


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    Failing.when, Failing.raised, Refusing.raised = "", RuntimeError, RuntimeError
    Refusing.when, Refusing.gives = "receive", 1


def plan_of(*parts: type[Part] | Part) -> Plan:
    each = [part(ROUNDS, 50, 9 * ROW**2) if isinstance(part, type) else part for part in parts]  # type: ignore[call-arg]
    return Plan(Promise(12.0, DELTA, ROUNDS), tuple(each))


def with_copies() -> Plan:
    base = Plan.tight(20.0, DELTA, ROUNDS, copies=40, unsure=60, silent=40, guide=None)
    return Plan(Promise(40.0, 2 * DELTA, ROUNDS), (*base.parts, Fails(ROUNDS, 50, 9 * ROW**2)))


COPIES = with_copies()
PLANS = {
    "alone": lambda: plan_of(Fails),
    "after a guide": lambda: plan_of(GUIDE, Fails),
    "before a guide": lambda: plan_of(Fails, GUIDE),
    "two": lambda: plan_of(Count, Fails),
    "beside copies": lambda: COPIES,
}


def make(plan: Plan, **options: Any) -> POP:
    if not plan.copies:
        return made(plan, **options)
    return POP(LogisticRegression(), plan, labels=[0, 1], features=2, **{"fallback": 0, **options})


def rows(n: int, bad: Sequence[int], seed: int = 1) -> tuple[list[list[float]], list[int]]:
    xs, ys = stream(n, seed)
    for i in bad:
        xs[i] = [-0.5, BAD]
    return xs, ys


def failing(pop: POP) -> Failing:
    found = pop.operator.loop.parts.get(Failing)
    assert found is not None
    return found


Seen = tuple[list[Any], list[Any], list[Any]]


def seen(pop: POP, said: Sequence[int]) -> Seen:
    """Answers (−1 for a refusal), all that was released, and what the part was taught."""
    return list(said), [(name, number, row.tolist()) for name, number, row in pop.released], failing(pop).heard


def one_by_one(pop: POP, xs: Sequence[Any], ys: Sequence[int]) -> Seen:
    said = []
    for x, y in zip(xs, ys, strict=True):
        try:
            answer = pop.predict(x)
        except ValueError as error:
            assert "what nobody" not in str(error) or Failing.raised is ValueError
            said.append(-1)
            continue
        said.append(answer.label)
        if y >= 0:
            pop.learn(answer.ticket, y)
    return seen(pop, said)


def at_once(pop: POP, xs: Sequence[Any], ys: Sequence[int]) -> Seen:
    return seen(pop, pop.follow_many(np.array(xs), np.array(ys)).answers.tolist())


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("when", ["encode", "check", "propose", "lesson", "range"])
@pytest.mark.parametrize("name", PLANS)
def test_a_row_at_which_a_part_raises_is_malformed_and_no_other_is(
    name: str, when: str, raised: type[BaseException]
) -> None:
    xs, ys = rows(230, bad=(3, 60, 61, 170))
    plain = make(PLANS[name](), seed=3)
    Failing.when, Failing.raised = "encode", ValueError  # as its contract allows
    expected = one_by_one(plain, xs, ys)
    assert [i for i, label in enumerate(expected[0]) if label < 0] == [3, 60, 61, 170]
    Failing.when, Failing.raised = when, raised
    single, many = make(PLANS[name](), seed=3), make(PLANS[name](), seed=3)
    assert one_by_one(single, xs, ys) == expected
    assert at_once(many, xs, ys) == expected
    refused = when in ("encode", "check") and raised is ValueError
    for pop in (single, many):
        assert pop.operator.failures.rows == (0 if refused else 4)
        assert ("4 questions" in pop.operator.failures.sentence) is not refused


@pytest.mark.parametrize("raised", RAISED)
def test_in_one_call_with_others_questions_its_asker_alone_is_refused(raised: type[BaseException]) -> None:
    Failing.when, Failing.raised = "encode", raised
    pop = make(PLANS["after a guide"](), seed=3)
    xs, ys = rows(5, bad=(1,))
    with pytest.warns(UserWarning, match="1 of 5 questions"):
        answers = pop.predict_many(xs)
    assert [answer.error is None for answer in answers] == [True, False, True, True, True]
    assert ("what nobody" in str(answers[1].error)) is (raised is ValueError)  # which is for its asker
    pop.learn_many([answer.ticket for answer in answers], ys)
    assert [x for x, _ in failing(pop).heard] == [x[0] for i, x in enumerate(xs) if i != 1]


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("name", PLANS)
def test_a_label_at_which_a_part_raises_teaches_it_nothing_and_all_others_do(
    name: str, raised: type[BaseException]
) -> None:
    xs, ys = rows(230, bad=(3, 60, 61, 170))
    without = [-1 if x[1] == BAD else y for x, y in zip(xs, ys, strict=True)]
    expected = one_by_one(make(plan_of(Fails), seed=3), xs, without)
    Failing.when, Failing.raised = "teach", raised
    single, many, batches = (make(PLANS[name](), seed=3) for _ in range(3))
    answers = one_by_one(single, xs, ys)
    assert at_once(many, xs, ys) == answers and answers[2] == expected[2]
    if name == "alone":
        assert answers == expected
    for i in range(0, 230, 23):
        asked = batches.predict_many(xs[i : i + 23])
        batches.learn_many([answer.ticket for answer in asked], ys[i : i + 23])
        with pytest.raises(ValueError, match="was used"):
            batches.learn(asked[0].ticket, 0)
    assert failing(batches).heard == expected[2]
    for pop in (single, many, batches):
        assert pop.operator.failures.labels == 4 and "4 labels" in pop.operator.failures.sentence


@pytest.mark.parametrize("raised", RAISED)
def test_a_label_that_a_part_fails_to_receive_is_its_bringers_alone_and_teaches_nobody(
    raised: type[BaseException],
) -> None:
    Refusing.raised = raised
    _one_in_two_is_refused(failed=True)


@pytest.mark.parametrize("gives", [-1, -2, 2, 7])
def test_so_is_one_for_which_it_gives_none_or_no_label(gives: int) -> None:
    Refusing.when, Refusing.gives = "", gives
    _one_in_two_is_refused(failed=gives != -1)


def _one_in_two_is_refused(failed: bool) -> None:
    xs, ys = rows(60, bad=())
    many, follow, plain = (make(plan_of(Refuses, GUIDE), seed=3) for _ in range(3))
    asked = many.predict_many(xs)
    with pytest.raises(PastCap, match="all good rows were learned") as told:
        many.learn_many([answer.ticket for answer in asked], ys)
    assert "what nobody" not in str(told.value)
    expected = [(x[0], y) for x, y in zip(xs, ys, strict=True) if y == 0]
    assert failing(many).heard == expected
    for x, y in zip(xs, ys, strict=True):
        ticket = plain.predict(x).ticket
        with suppress(PastCap):
            plain.learn(ticket, y)
    follow.follow_many(np.array(xs), np.array(ys))
    assert failing(plain).heard == failing(follow).heard == expected
    assert [pop.operator.failures.labels for pop in (many, follow, plain)] == [sum(ys) * failed] * 3
    assert open_leaf(follow) == open_leaf(plain), "a guide beside it hears nothing of them either"


@pytest.mark.parametrize("raised", RAISED)
def test_a_record_at_which_a_part_raises_teaches_it_nothing_and_all_others_do(raised: type[BaseException]) -> None:
    xs, ys = rows(9, bad=(2,))
    Failing.when, Failing.raised = "teach_one", raised
    single, many = (make(PLANS["after a guide"](), seed=3) for _ in range(2))
    for x, y in zip(xs, ys, strict=True):
        single.teach(x, y)
    many.teach_many(xs, ys)
    assert failing(single).heard == failing(many).heard == [(x[0], y) for x, y in zip(xs, ys, strict=True) if x[1] < 9]
    assert single.operator.failures.labels == many.operator.failures.labels == 1
    Failing.when = "check"
    with pytest.raises(ValueError):
        single.teach(xs[2], 0)
    with pytest.raises(ValueError, match="row 2 was refused, and all good rows were learned"):
        many.teach_many(xs, ys)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_a_row_that_is_refused_before_is_none_of_its_failures(batch: bool, copies: bool) -> None:
    """What copies, or a part before it, cannot read it is not asked about."""
    Failing.when = "check"
    pop = make(COPIES if copies else PLANS["after a guide"](), seed=3)
    for xs in ([[1.0]], [[1.0], None, [0.5, 0.5]]):
        if batch:
            with pytest.warns(UserWarning, match="were refused"):
                pop.predict_many(xs)
            continue
        for x in xs:
            with suppress(ValueError):
                pop.predict(x)
    with suppress(ValueError):
        pop.teach_many([[1.0]], [0]) if batch else pop.teach([1.0], 0)
    assert pop.rounds == 4 and not pop.operator.failures.rows


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(PLANS)),
    st.sampled_from(["encode", "check", "propose", "lesson", "range", "teach"]),
    st.sampled_from(RAISED),
    st.lists(st.tuples(st.booleans(), st.integers(-1, 1), st.floats(-1, 1)), min_size=1, max_size=130),
    st.integers(1, 130),
)
def test_in_batches_and_one_by_one_whatever_it_raises_at_all_goes_on_alike(
    name: str, when: str, raised: type[BaseException], drawn: list[tuple[bool, int, float]], step: int
) -> None:
    Failing.when, Failing.raised = when, raised
    xs = [[x, BAD if bad else 0.5] for bad, _, x in drawn]
    ys = [y for _, y, _ in drawn]
    single, many = make(PLANS[name](), seed=5), make(PLANS[name](), seed=5)
    expected, said = one_by_one(single, xs, ys), list[int]()
    for i in range(0, len(xs), step):
        said += at_once(many, xs[i : i + step], ys[i : i + step])[0]
    assert seen(many, said) == expected
    assert many.operator.failures == single.operator.failures
    assert many.operator.loop.rng.word() == single.operator.loop.rng.word()


@pytest.mark.parametrize("method", ["encode", "check", "propose", "teach", "receive"])
@pytest.mark.parametrize("batch", [False, True])
def test_what_a_signal_raises_ends_the_call(method: str, batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pop = make(plan_of(Refuses), seed=3)
    act, xs = getattr(Refusing, method), [[0.5, 0.5], [0.5, BAD], [0.5, 0.5]]

    def interrupted(self: Refusing, *given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return act(self, *given)

    monkeypatch.setattr(Refusing, method, interrupted)
    asks = method in ("encode", "check", "propose")
    with pytest.raises(KeyboardInterrupt):
        if not batch:
            ticket = pop.predict(xs[0]).ticket
            pop.learn(ticket, 0)
        elif asks:
            pop.predict_many(xs)
        else:
            pop.learn_many([answer.ticket for answer in pop.predict_many(xs)], [0, 0, 0])
    assert pop.rounds == (3 if batch else 1)
    assert not any(pop.operator.failures)
    monkeypatch.undo()
    pop.learn(pop.predict(xs[0]).ticket, 0)
    assert failing(pop).heard == [(0.5, 0)]


def test_its_own_way_through_many_is_taken_where_it_says_that_nothing_makes_it_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    xs, ys = rows(20, bad=())
    expected = at_once(make(PLANS["alone"](), seed=3), xs, ys)
    ways = ("follow", "teach_many", "teach_rows", "receive_rows")
    for way in ways:
        monkeypatch.setattr(Failing, way, lambda self, *given: pytest.fail("it may raise"))
    pop = make(PLANS["alone"](), seed=3)
    assert at_once(pop, xs, ys) == expected
    pop.learn_many([answer.ticket for answer in pop.predict_many(xs)], ys)
    pop.teach_many(xs, ys)
    for way in ways:
        monkeypatch.setattr(Failing, way, getattr(Running, way))
    monkeypatch.setattr(Failing, "unfailing", True)
    pop = make(PLANS["alone"](), seed=3)
    assert at_once(pop, xs, ys) == expected
    Failing.when = "teach"
    with pytest.raises(RuntimeError):
        at_once(pop, *rows(20, bad=(1,)))


# ---------------------------------------------------------------------- a desk


def desk_at(folder: Path, name: str = "alone") -> PopDesk:
    return PopDesk.open(folder, lambda: make(PLANS[name](), ticket_life=100), save_every=None)


def entries(desk: PopDesk) -> list[Any]:
    """What is added to the ledger from now on."""
    book, added = desk._book, list[Any]()
    add = book.add

    def noticed(entry: Any) -> int:
        added.append(entry)
        return add(entry)

    book.add = noticed  # type: ignore[method-assign]
    return added


PEOPLE = ("ann", "bob", "carl")


def asked_by_all(desk: PopDesk) -> dict[str, Any]:
    """Ann's row is the bad one."""
    xs = dict(zip(PEOPLE, ([-1.0, BAD], [1.0, 0.5], [0.5, 0.5]), strict=True))
    replies = desk.ask([Question(who, "one", x) for who, x in xs.items()])
    return dict(zip(xs, replies, strict=True))


@pytest.mark.parametrize("raised", RAISED)
def test_a_desk_answers_and_teaches_all_others_of_a_call(raised: type[BaseException], tmp_path: Path) -> None:
    Failing.when, Failing.raised = "encode", raised
    with desk_at(tmp_path / "a") as desk:
        said = asked_by_all(desk)
        assert said["ann"].refusal is not None and said["ann"].refusal.kind == "malformed"
        assert said["bob"].answer is not None and said["carl"].answer is not None
    Failing.when = "teach"
    with desk_at(tmp_path / "b") as desk:
        tickets = {who: reply.answer.ticket for who, reply in asked_by_all(desk).items()}
        added = entries(desk)
        assert desk.learn([Taught(who, ticket, 1) for who, ticket in tickets.items()]) == [None] * 3
        assert [label for _, label in failing(desk.pop).heard] == [1, 1]
        assert desk.learn([Taught(who, ticket, 1) for who, ticket in tickets.items()]) == [None] * 3, "as before"
        assert len(failing(desk.pop).heard) == 2 and len(added) == 1
        desk.ask([Question("dora", "one", [1.0, 0.5])])
        assert [one.used for one in added] == [(), ()], "the call's own note has the tickets"
        assert desk.private()["failures"]["labels"] == 1
        assert "what nobody" not in str(desk.private()) + str(desk.public())


def test_a_call_that_a_signal_ends_writes_its_tickets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next question of anybody would write them: how many labels others had brought."""
    with desk_at(tmp_path / "a") as desk:
        tickets = {who: reply.answer.ticket for who, reply in asked_by_all(desk).items()}
        added, teach = entries(desk), Failing.teach
        brought = [Taught(who, ticket, 1) for who, ticket in tickets.items()]

        def interrupted(self: Failing, *given: Any) -> int:
            signal.raise_signal(signal.SIGINT)
            return teach(self, *given)

        monkeypatch.setattr(Failing, "teach", interrupted)
        with pytest.raises(KeyboardInterrupt):
            desk.learn(brought)
        monkeypatch.undo()
        assert [len(one.used) for one in added] == [3] and desk._book.durable == desk._book.sequence
        desk.ask([Question("dora", "one", [1.0, 0.5])])
        assert not added[-1].used
        refused = desk.learn(brought)
        assert all(one is not None and one.kind == "ticket" for one in refused), "each is used"
        assert not failing(desk.pop).heard and not any(desk.pop.operator.failures)


@pytest.mark.parametrize("when", ["read_as_of", "again"])
def test_a_row_or_lesson_of_the_journal_at_which_it_raises_keeps_nobody_out(when: str, tmp_path: Path) -> None:
    desk = desk_at(tmp_path / "a")
    tickets = {who: reply.answer.ticket for who, reply in asked_by_all(desk).items()}
    desk.learn([Taught("carl", tickets["carl"], 1)])
    asked = desk.ask([Question("ann", "two", [-1.0, BAD])])[0]
    desk.learn([Taught("ann", asked.answer.ticket, 1)])  # type: ignore[union-attr]
    desk._book.wait(desk._book.sequence)
    desk._book._release()  # the process is gone: nothing is saved
    Failing.when = when
    with desk_at(tmp_path / "a") as again:
        assert again.learn([Taught(who, tickets[who], 1) for who in ("ann", "bob")]) == [None, None]
        assert (1.0, 1) in failing(again.pop).heard
        failures = again.pop.operator.failures
        assert (failures.rows, failures.labels) == {"read_as_of": (1, 1), "again": (0, 1)}[when]


def test_an_open_question_that_it_cannot_pack_keeps_no_state_from_being_saved(tmp_path: Path) -> None:
    pop = make(PLANS["after a guide"](), seed=3)
    tickets = [pop.predict(x).ticket for x in ([-1.0, BAD], [1.0, 0.5])]
    Failing.when = "pack"
    pop.save(tmp_path / "s")
    pop.close()
    with POP.load(tmp_path / "s") as again:
        again.learn_many(tickets, [1, 1])
