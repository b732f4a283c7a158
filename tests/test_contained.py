"""Whatever a learner, a fallback, an encoder or a row raises, Exception or not, stays with it: nobody else is told.

Libraries written in Rust panic with what is no Exception, and a program may call `sys.exit`.
"""

from __future__ import annotations

import ast
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import confide
from confide import POP, Plan
from confide.banks import bank_for
from confide.banks.base import Bank
from confide.banks.checks import example_records, failures_stay_with_their_copy
from confide.banks.none import NoBank
from confide.contained import Contained, contained, tried
from confide.guide.columns import Columns
from confide.guide.hashed import HashedMap
from confide.guide.rows import read_many
from confide.learners import Features
from confide.privacy.random import Random
from confide.text.embedding import Embedding
from tests.worlds import guided_plan

pytestmark = pytest.mark.claim("people.md")

SOURCE = Path(confide.__file__).parent


class Panic(BaseException):
    """As pyo3's PanicException is: of polars, tokenizers, and whatever else is written in Rust."""


RAISED = [Panic, SystemExit, KeyboardInterrupt, GeneratorExit, RuntimeError]


class Panics:
    """A learner that fails once it has learned something large."""

    pure = True

    def __init__(self, when: str, raised: type[BaseException]) -> None:
        self.when, self.raised, self.seen = when, raised, list[float]()

    def _fail(self, what: str) -> None:
        if what == self.when and any(seen > 100 for seen in self.seen):
            raise self.raised("what nobody else may read")

    def predict(self, x: Any) -> int:
        self._fail("predict")
        return 0

    def learn(self, x: Any, y: int) -> None:
        self._fail("learn")
        self.seen.append(float(x[0]))


PLAN = Plan.tight(8.0, 1e-2, 400, guide=None, copies=60, polls=60, silent=4, unsure=20)


def make(learner: Any, **more: Any) -> POP:
    return POP(learner, PLAN, labels=[0, 1], features=1, seed=3, **more)


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("when", ["predict", "learn"])
@pytest.mark.parametrize("many", [False, True])
def test_what_a_learner_raises_is_shown_to_nobody(raised: type[BaseException], when: str, many: bool) -> None:
    pop = make(Panics(when, raised))
    for i in range(70):  # some copy learns a second time after the large one
        x = [1000.0]
        ticket = pop.predict_many([x])[0].ticket if many else pop.predict(x).ticket
        pop.learn(ticket, i % 2)
        if many:
            pop.teach_many([x, x], [0, 1])
    failures = pop.operator.failures
    assert failures.lessons if when == "learn" else failures.raised


@pytest.mark.parametrize("raised", RAISED)
def test_what_the_fallback_raises_is_told_to_its_asker_alone(raised: type[BaseException]) -> None:
    def fallback(x: Any) -> int:
        if x[0] > 100:
            raise raised
        return 0

    pop = make(Panics("never", raised), fallback=fallback)
    answers = pop.predict_many([[1.0], [1000.0], [2.0]])
    assert [answer.error is None for answer in answers] == [True, False, True] and pop.rounds == 3
    with pytest.raises(ValueError, match="fallback failed"):
        pop.predict([1000.0])


class Row(dict[str, Any]):
    """A row that fails whoever reads it."""

    raised: type[BaseException] = Panic

    def get(self, *_: Any) -> Any:
        raise self.raised

    __getitem__ = items = keys = __iter__ = __contains__ = get  # type: ignore[assignment]


class Number(float):
    """A number that fails whoever reads it."""

    raised: type[BaseException] = Panic

    def __float__(self) -> float:
        raise self.raised

    __array__ = __index__ = __float__  # type: ignore[assignment]


class Anything:
    """No number, no text, no label."""

    raised: type[BaseException] = Panic

    def __hash__(self) -> int:
        raise self.raised

    __float__ = __array__ = __len__ = __iter__ = __getitem__ = __hash__  # type: ignore[assignment]


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize(
    ("features", "good", "bad"),
    [
        (2, [1.0, 2.0], [Anything(), 1.0]),
        (2, [1.0, 2.0], Anything()),
        (Features(numeric={"a": (0, 10)}), {"a": 1.0}, Row(a=1.0)),
        (Features(numeric={"a": (0, 10)}), {"a": 1.0}, {"a": Anything()}),
        (Features(categorical={"a": 4}), {"a": "b"}, Row(a="b")),
        (None, {"a": 1.0}, Row(a=1.0)),
        (None, {"a": 1.0}, {"a": Number(1.0)}),
    ],
)
def test_what_a_row_raises_refuses_that_row_alone(
    raised: type[BaseException], features: Any, good: Any, bad: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (Row, Number, Anything):
        monkeypatch.setattr(kind, "raised", raised)
    pops = [POP(None, guided_plan(alone=True), labels=[0, 1], features=features, seed=1)]
    if features is not None:  # else a learner takes what it is given
        pops.append(POP(Panics("never", raised), guided_plan(), labels=[0, 1], features=features, seed=1))
    for pop in pops:
        refuses_it_alone(pop, good, bad)


def refuses_it_alone(pop: POP, good: Any, bad: Any) -> None:
    assert [answer.error is None for answer in pop.predict_many([good, bad, good])] == [True, False, True]
    with pytest.raises(ValueError):
        pop.predict(bad)
    with pytest.raises(ValueError):
        pop.teach(bad, 1)
    with pytest.raises(ValueError, match="row 1"):
        pop.teach_many([good, bad, good], [0, 1, 1])
    with pytest.raises(ValueError, match="row 1"):
        pop.teach_many([good, good, good], [0, Anything(), 1])  # type: ignore[list-item]
    assert pop.rounds == 4
    assert list(pop.readable([good, bad])) == [1]


@pytest.mark.parametrize("raised", RAISED)
def test_an_encoder_that_fails_says_nothing_of_the_text(raised: type[BaseException]) -> None:
    class Encoder:
        def encode(self, texts: Any, /) -> Any:
            if "secret" in texts[0]:
                raise raised
            return np.ones((len(texts), 4), dtype=np.float32)

    assert not Embedding(Encoder()).vector("a secret").any()


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("when", ["predict", "learn"])
def test_a_learners_failure_leaves_the_other_copies_alone(raised: type[BaseException], when: str) -> None:
    def bank(copies: int) -> Bank:
        return bank_for(Panics(when, raised), copies, 2, 4, Random(seed=1), False)

    failures_stay_with_their_copy(bank, [(1000 * x, y) for x, y in example_records()])


def test_a_bank_that_fails_as_a_whole_is_noticed() -> None:
    def bank(copies: int) -> Bank:
        made = bank_for(Panics("never", Panic), copies, 2, 4, Random(seed=1), False)

        def votes(*_: Any) -> Any:
            raise Panic

        made.votes = votes  # type: ignore[method-assign]
        return made

    with pytest.raises(AssertionError, match="raises"):
        failures_stay_with_their_copy(bank, example_records())


def fails(raised: type[BaseException]) -> None:
    raise raised


def test_what_a_signal_raises_is_of_who_runs_this_and_passes() -> None:
    with pytest.raises(KeyboardInterrupt), contained:
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(ValueError, match="named"), Contained(ValueError):
        raise ValueError("named")
    for raised in (SystemExit, KeyboardInterrupt):
        with contained:
            raise raised
        assert isinstance(tried(fails, raised)[1], raised)
    with pytest.raises(KeyboardInterrupt):
        tried(signal.raise_signal, signal.SIGINT)


class Handler:
    """Ends the program, as programs do that are told to."""

    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    def __call__(self, *_: Any) -> None:
        raise self.raised

    def method(self, *_: Any) -> None:
        sys.exit(3)


class Signalled(Panics):
    """The signal comes while a copy is asked, or taught."""

    on = False

    def __init__(self, when: str) -> None:
        super().__init__(when, Panic)

    def _fail(self, what: str) -> None:
        if what == self.when and Signalled.on:
            signal.raise_signal(signal.SIGTERM)


EXITS: list[Any] = [
    lambda *_: sys.exit(3), Handler(SystemExit(3)), Handler(SystemExit(3)).method, partial(Handler.method, None),
    Handler(TimeoutError()), Handler(KeyboardInterrupt()),
]  # fmt: skip


@pytest.mark.parametrize("when", ["predict", "learn"])
@pytest.mark.parametrize("handler", EXITS, ids=range(len(EXITS)))
def test_a_handler_that_exits_ends_the_program_also_within_a_learners_call(
    handler: Any, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pop = make(Signalled(when))
    before = signal.signal(signal.SIGTERM, handler)
    try:
        for i in range(8):
            pop.learn(pop.predict([1.0]).ticket, i % 2)
        monkeypatch.setattr(Signalled, "on", True)
        with pytest.raises((SystemExit, TimeoutError, KeyboardInterrupt)):
            for i in range(3):
                pop.learn(pop.predict([1.0]).ticket, i % 2)
    finally:
        signal.signal(signal.SIGTERM, before)
    monkeypatch.setattr(Signalled, "on", False)
    rounds = pop.rounds
    assert rounds > 8 and pop.predict([1.0]).label is not None and pop.rounds == rounds + 1, "the round was taken"
    assert pop.operator.failures.raised == 0


def test_in_another_thread_no_signal_raises_and_all_is_the_learners_own() -> None:
    failures = list[BaseException]()

    def work() -> None:
        try:
            for raised in (SystemExit, KeyboardInterrupt, Panic):
                with contained:
                    raise raised
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures


def test_an_exit_that_a_learner_makes_of_an_interrupt_is_one() -> None:
    def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            sys.exit(1)

    with pytest.raises(SystemExit), contained:
        work()


def catches(path: Path) -> list[str]:
    """Where this module catches every Exception by itself."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        caught = node.type if isinstance(node, ast.ExceptHandler) else None
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "suppress":
            caught = node.args[0]
        if isinstance(caught, ast.Name) and caught.id == "Exception":
            found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")  # type: ignore[attr-defined]
    return found


OURS = {"guide/course.py"}
"""Where it is the project's own work that failed, and is raised again."""


@pytest.mark.parametrize("turns", [1, 5000])
def test_exits_that_lead_back_to_themselves_are_contained_however_many(turns: int) -> None:
    first = last = SystemExit()
    for _ in range(turns):
        last.__context__ = SystemExit()
        last = last.__context__
    last.__context__ = first
    with contained:
        raise first


def test_the_library_says_in_one_place_what_is_contained() -> None:
    rooms = ["banks", "pop", "guide", "learners", "text", "runs"]
    paths = [*(path for room in rooms for path in (SOURCE / room).rglob("*.py")), *SOURCE.glob("*.py")]
    found = [place for path in paths for place in catches(path) if place.partition(":")[0] not in OURS]
    assert not found, f"catch what others raise with `confide.contained`: {found}"


HUGE = 10**5000
"""More digits than Python turns into a text."""


VALUES = [HUGE, -HUGE, Number(1.0), Anything(), [], {}, float("nan"), "\ud800", b"\xff"]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_many_rows_are_read_whatever_stands_in_one(value: Any) -> None:
    columns = Columns(numeric=("a",), categorical=("c",), text=("t",))
    rows: list[Any] = [{"a": 1, "c": "x", "t": "one"}, {"a": 2, "c": 7, "t": "two"}]
    alone = read_many(columns, rows)
    makes: list[Callable[[Any], Any]] = [lambda v: {"a": v}, lambda v: {"c": v}, lambda v: {"t": v}, lambda v: v]
    for made in makes:
        table = read_many(columns, [*rows, made(value)])
        for part, whole in zip(alone, table, strict=True):
            assert np.array_equal(part, whole[:2])
        assert HashedMap().encode_many([*rows, made(value)])[1][:2].all()


@pytest.mark.parametrize(
    "ys",
    [[0, 2], [0, -2], [0], [0, 1, 1], [0.0, 1.0], [[0], [1]]],
    ids=["many", "few", "short", "long", "real", "deep"],
)
def test_labels_that_do_not_fit_take_no_round(ys: Any) -> None:
    """A number that is no label's would be written beside its own copy's memory."""
    pop = POP(None, guided_plan(alone=True), labels=[0, 1], features=2, seed=1)
    with pytest.raises(ValueError):
        pop.follow_many(np.ones((2, 2)), np.array(ys))
    assert pop.rounds == 0


def test_a_name_that_compares_as_it_likes_moves_no_other_row() -> None:
    class Name(str):
        def __str__(self) -> str:
            return self

        def __hash__(self) -> int:
            return hash("age")

        def __eq__(self, other: object) -> bool:
            return True

        def __lt__(self, other: object) -> bool:
            return True

    honest = {"age": 41, "city": "Rome"}
    alone, _, _ = HashedMap().encode_many([honest])
    for i in range(8):
        both, sizes, _ = HashedMap().encode_many([{Name(f"a name {i}"): 1}, honest])
        assert np.array_equal(both.indices[sizes[0] :], alone.indices)


def test_a_label_that_raises_is_no_label_of_an_evaluation() -> None:
    pop = POP(None, guided_plan(alone=True), labels=[0, 1], features=2, seed=1)
    assert confide.evaluate(pop, np.ones((3, 2)), [0, Anything(), 1]).rounds == 3


def test_what_is_for_copies_is_refused_where_there_are_none() -> None:
    for more in ({"public_start": True}, {"bank": NoBank(2)}):
        with pytest.raises(ValueError, match="no copies"):
            POP(None, guided_plan(alone=True), labels=[0, 1], features=2, **more)  # type: ignore[arg-type]


class Same(Panics):
    """A learner whose copies are itself."""

    def __init__(self) -> None:
        super().__init__("never", Panic)
        self.unpicklable = lambda: 0

    def __deepcopy__(self, memo: Any) -> Same:
        return self


def test_a_learner_whose_copies_are_one_object_is_refused() -> None:
    with pytest.raises(ValueError, match="same object"):
        make(Same())


def test_one_rows_content_decides_no_warning_that_others_see() -> None:
    river = pytest.importorskip("confide.river")
    for row in ({"a": 1.0}, {"a": "what"}):
        model = river.PrivateClassifier(
            plan=guided_plan(alone=True), features=Features(numeric={"a": (0, 10)}), labels=(0, 1)
        )
        for i in range(6):
            with suppress(ValueError):
                model.learn_one(row if i == 3 else {"a": 1.0}, 1)
        with pytest.warns(UserWarning, match="never called"):
            model.predict_proba_one({"a": 1.0})
