"""A batch that is cut off, at any line, by anything: its rounds are taken, and no row is in two of the guide's sums.

Whoever goes on after `pop.rounds`, in the same process or after a load, teaches no row twice. The step is next to
nothing, so that a gradient is its own row's, and every row has a place of its own in the sums: what stands there tells
how often it was taught.
"""

from __future__ import annotations

import linecache
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import confide
from confide import POP, StateError, evaluate
from confide.errors import ConfideWarning
from confide.learners import Features, LogisticRegression
from confide.ledger.book import Book
from confide.planning.guided import GuidePlan
from confide.planning.promise import Promise
from confide.pop.tickets import Key
from tests.saved import fork
from tests.worlds import guided_plan

pytestmark = pytest.mark.claim("guide.md")

LONG = int(os.environ.get("CONFIDE_KILLS", "20")) > 20
"""`make chaos` cuts off more often."""
HERE = str(Path(confide.__file__).parent)
ROWS, CHUNK, COUNTED = 150, 40, 12
COLUMNS = Features(numeric=["a"], categorical={"c": 8})


def plan_of(guide: GuidePlan, rounds: int) -> confide.Plan:
    return confide.Plan(Promise(guide.epsilon(0.01), 0.01, rounds), (guide,), "tight")


KINDS = {
    "guide alone": guided_plan(alone=True),
    "ranges counted": guided_plan(alone=True, ranges=COUNTED, apart=True),
    "with copies": guided_plan(copies=12, lean="fill"),
}
_counted = KINDS["ranges counted"].guide
assert _counted is not None
KINDS["lessons kept"] = plan_of(replace(_counted, range_sigma2=1 << 44, warm_sigma2=1 << 62), 400)


@cache
def plan_for(kind: str) -> confide.Plan:
    plan = KINDS[kind]
    assert plan.guide is not None
    return plan.but(guide=replace(plan.guide, step=1e-300, warm_step=1e-300))


def make(kind: str, **more: Any) -> POP:
    learner = COLUMNS | LogisticRegression() if plan_for(kind).copies else None
    features = None if learner is not None else COLUMNS
    return POP(learner, plan_for(kind), labels=[0, 1], features=features, seed=1, **more)


def place_of(encode: Callable[[Any], Any], x: Any) -> int:
    """Where the sums have a row's category: its first place that rows of other categories do not all have too."""
    others = (set(encode({"a": 1.0, "c": f"other {i}"}).indices.tolist()) for i in range(3))
    common = set.intersection(*others)
    return next(place for place in encode(x).indices.tolist() if place not in common)


def rows() -> list[dict[str, Any]]:
    """Rows that each have a place of their own in the sums. The guide hashes categories: some of them meet."""
    guiding = make("guide alone").operator.loop.guiding
    assert guiding is not None and guiding.guide._leaves is not None
    encode = guiding.guide._leaves.features.encode
    found: dict[int, dict[str, Any]] = {}
    for i in range(100 * ROWS):
        x = {"a": 1.0, "c": f"row {i}"}
        found.setdefault(place_of(encode, x), x)
        if len(found) == ROWS:
            break
    return list(found.values())


XS = rows()
YS = np.ones(ROWS, dtype=np.int64)


def taught(pop: POP) -> list[int]:
    """How often each row is in sums that were released, or in the open leaf; of what is kept, in either stage."""
    guiding = pop.operator.loop.guiding
    assert guiding is not None
    guide, times = guiding.guide, np.zeros(ROWS, dtype=np.int64)
    for leaves in {id(one): one for one in (guide._warm, guide._leaves) if one is not None}.values():
        places, here = [place_of(leaves.features.encode, x) for x in XS], np.zeros(ROWS, dtype=np.int64)
        for sums in (*leaves.sums[: leaves.closed], leaves.open):
            each = np.abs(sums[places])
            one = each[each != 0].min(initial=1 << 62)  # gradients of a leaf differ by a little: losses beside them do
            here += np.rint(each / one).astype(np.int64)
        times = np.maximum(times, here) if guide.plan.kept_clip else times + here
    return times.tolist()


def agree(pop: POP) -> None:
    """The account and the guide speak of the same rounds, as soon as anything is called."""
    pop.learn_many([], [])
    loop = pop.operator.loop
    assert loop.guiding is not None
    assert loop.guiding.guide.rounds == loop.account.rounds == pop.rounds


@cache
def left_out(file: str) -> frozenset[int]:
    """The lines of a file that begin with `with` or `try`."""
    begin = ("with", "try:")
    return frozenset(i for i, line in enumerate(linecache.getlines(file), 1) if line.lstrip().startswith(begin))


class Interrupt:
    """Raises KeyboardInterrupt at the so-many-th line of Confide's that runs; without a number it counts them.

    Lines that begin with `with` are left out: Python hears no signal between the end of a block and its `__exit__`. So
    are those that begin with `try`: nothing is done in them, and in a block of `with` its `__exit__` would be left out.
    """

    def __init__(self, at: int = 0) -> None:
        self.at, self.lines = at, 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if event == "call":
            return self.trace if file.startswith(HERE) else None
        if event == "line" and frame.f_lineno not in left_out(file):
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self.trace

    def __enter__(self) -> Interrupt:
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind: Any, *_: Any) -> bool:
        sys.settrace(None)
        return kind is KeyboardInterrupt


def follow(pop: POP) -> None:
    part = slice(pop.rounds, pop.rounds + CHUNK)
    pop.follow_many(XS[part], YS[part])


def lines(kind: str, call: Callable[[POP], object]) -> int:
    """How many lines the call runs: an interrupt at each of them is within it."""
    pop = make(kind)
    with Interrupt() as counting:
        call(pop)
    return counting.lines


def once(pop: POP) -> None:
    """Every row was taught at most once, in whichever stage."""
    agree(pop)
    assert max(taught(pop)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_at_any_line_no_row_is_taught_twice(kind: str) -> None:
    dice, last = random.Random(kind), lines(kind, follow)
    for _ in range(200 if LONG else 3):
        pop = make(kind)
        for _ in range(3):
            before = pop.rounds
            with Interrupt(dice.randrange(1, last)):
                follow(pop)
            assert pop.rounds in (before, before + CHUNK)
            agree(pop)
        follow(pop)
        once(pop)


def test_rows_asked_while_ranges_are_counted_are_counted_once() -> None:
    def ask(pop: POP) -> None:
        pop.predict_many(XS[pop.rounds : pop.rounds + 5])

    dice, last = random.Random(1), lines("ranges counted", ask)
    for _ in range(100 if LONG else 5):
        pop = make("ranges counted")
        for _ in range(2):
            with Interrupt(dice.randrange(1, last)):
                ask(pop)
        while pop.rounds < COUNTED:
            pop.predict(XS[pop.rounds])
        agree(pop)
        guiding = pop.operator.loop.guiding
        assert guiding is not None
        one = make("ranges counted")
        one.predict(XS[0])
        single = one.operator.loop.guiding
        assert single is not None
        assert guiding.guide._counted.counts.sum() <= pop.rounds * single.guide._counted.counts.sum()


class Stops(dict[str, Any]):
    """A row that interrupts whoever reads it."""

    def __getitem__(self, name: str) -> Any:
        signal.raise_signal(signal.SIGINT)

    get = items = keys = __iter__ = __getitem__  # type: ignore[assignment]


def test_whoever_interrupts_the_rounds_are_taken() -> None:
    """A row, the fallback, the progress of an evaluation: what is theirs is called in the midst of a batch."""
    pop = make("guide alone")
    with pytest.raises(KeyboardInterrupt):
        pop.follow_many([*XS[:30], Stops()], YS[:31])
    assert pop.rounds == 31
    agree(pop)

    def stops(x: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    pop = make("with copies", fallback=stops)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            follow(pop)
    assert pop.rounds == 2 * CHUNK
    once(pop)

    pop = make("guide alone")
    with pytest.raises(KeyboardInterrupt):
        evaluate(pop, XS, YS, progress=stops)
    assert pop.rounds == ROWS
    once(pop)


def test_interrupted_history_is_not_taught_again() -> None:
    """Which of its rows were taught nobody knows: the call has taken them, and the guide takes no record any more."""
    plan = guided_plan(alone=True, history=60)
    assert plan.guide is not None
    plan = plan.but(guide=replace(plan.guide, step=1e-300, warm_step=1e-300))

    def fresh() -> POP:
        return POP(None, plan, labels=[0, 1], features=COLUMNS, seed=1)

    def teach(pop: POP) -> None:
        pop.teach_many(XS[:50], YS[:50].tolist())

    dice, pop = random.Random(1), fresh()
    with Interrupt() as counting:
        teach(pop)
    for _ in range(40 if LONG else 4):
        pop = fresh()
        with Interrupt(dice.randrange(1, counting.lines)) as cut:
            teach(pop)
        if cut.lines >= cut.at and taught(pop).count(1):  # some lines run in the first call of all alone
            teach(pop)
        assert max(taught(pop)) <= 1
        pop.predict_many(XS[:10])
        loop = pop.operator.loop
        assert loop.guiding is not None and loop.guiding.guide.rounds == loop.account.rounds + loop.account.history


def test_interrupted_history_is_not_counted_again() -> None:
    """Sent again, it teaches nothing: nor is a row in the counts of the ranges twice, which hide one row of a unit."""
    plan = guided_plan(alone=True, history=60, ranges=100, apart=True)

    def fresh() -> POP:
        return POP(None, plan, labels=[0, 1], features=COLUMNS, seed=1)

    def counts(pop: POP) -> int:
        guiding = pop.operator.loop.guiding
        assert guiding is not None
        return int(guiding.guide._counted.counts.sum())

    def teach(pop: POP) -> None:
        pop.teach_many(XS[:30], YS[:30].tolist())

    teach(fresh())  # what is computed once runs lines that no later call runs
    whole = fresh()
    with Interrupt() as counting:
        teach(whole)
    dice, late = random.Random(1), 0
    for _ in range(40 if LONG else 10):
        pop = fresh()
        with Interrupt(dice.randrange(1, counting.lines - 2)):  # the last three lines only return
            teach(pop)
        late += counts(pop) == counts(whole)
        teach(pop)
        assert counts(pop) <= counts(whole)
    assert late, "some interrupts must come after the rows were counted"


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_between_two_writes_of_a_batch_teaches_no_row_twice(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each write that it makes: a release of the batch, or what the batch has spent."""
    write = Book._write
    for number in range(1, 12 if LONG else 4):
        folder, left = tmp_path / str(number), [number]

        def dies(book: Book, left: list[int] = left) -> None:
            write(book)
            left[0] -= 1
            if left[0] == 0:
                raise SystemExit  # the process is gone, and this write was its last

        pop = make(kind)
        pop.save(folder)
        monkeypatch.setattr(Book, "_write", dies)
        for _ in range(3):
            try:
                follow(pop)
            except SystemExit:
                pop.close()
                pop = POP.load(folder)
                agree(pop)
        once(pop)
        pop.close()
        monkeypatch.undo()


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_with_a_ledger_it_goes_on_or_is_loaded_again(kind: str, tmp_path: Path) -> None:
    dice, pop = random.Random(kind), make(kind)
    pop.save(tmp_path / "first")
    with Interrupt() as counting:
        follow(pop)
    pop.close()
    for number in range(60 if LONG else 4):
        pop = make(kind)
        pop.save(tmp_path / str(number))
        for at in (*(dice.randrange(1, counting.lines) for _ in range(3)), 0, 0):
            try:
                with Interrupt(at) if at else nullcontext():
                    follow(pop)
                agree(pop)
            except StateError:  # a write was interrupted
                pop.close()
                pop = POP.load(tmp_path / str(number))
        once(pop)
        pop.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("durable", [False, True], ids=["before its write", "after its write"])
def test_an_interrupt_between_a_releases_entry_and_its_wait_is_made_good(
    kind: str, durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release is the one that the ledger has, and goes on from there; labels meanwhile may come and be lost."""
    pop, wait, cuts = make(kind), Book.wait, list[int]()
    pop.save(tmp_path / "pop")
    late = pop.predict(XS[0]).ticket

    def interrupted(self: Book, sequence: int, *, private: bool = False) -> None:
        entries = [entry for at, entry in self._pending if at == sequence]
        if entries and entries[0].released and len(cuts) < 2:
            cuts.append(sequence)
            if durable:
                wait(self, sequence)
            raise KeyboardInterrupt
        wait(self, sequence, private=private)

    monkeypatch.setattr(Book, "wait", interrupted)
    for _ in range(12):
        with suppress(KeyboardInterrupt):
            if pop.rounds < ROWS - CHUNK:
                follow(pop)
        if len(cuts) == 1 and late:
            pop.learn(late, 1)  # after the release was made, and before it is used
            late = ""
    once(pop)
    guiding = pop.operator.loop.guiding
    assert len(cuts) == 2 and guiding is not None
    theta, sums = guiding.fingerprint(), [one.exact.tolist() for one in guiding.guide.releases()]
    pop.close()
    with POP.load(tmp_path / "pop") as again:
        back = again.operator.loop.guiding
        assert back is not None and back.fingerprint() == theta
        assert [one.exact.tolist() for one in back.guide.releases()] == sums


def test_a_write_that_was_interrupted_says_so_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pop = make("guide alone")
    pop.save(tmp_path / "pop")

    def interrupted(self: Book) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Book, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pop.predict(XS[0])
    with pytest.raises(StateError, match=r"was interrupted .*load the state again") as said:
        pop.predict(XS[1])
    assert "make room" not in str(said.value)
    pop.close()
    with POP.load(tmp_path / "pop") as again:
        again.predict(XS[2])


def _child(folder: Path, kind: str) -> None:
    pop = POP.load(folder)
    while pop.rounds < ROWS - CHUNK:
        follow(pop)
    os._exit(0)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_in_batches_again_and_again_no_row_is_taught_twice(kind: str, tmp_path: Path) -> None:
    for number in range(15 if LONG else 1):
        folder, dice, kills = tmp_path / str(number), random.Random(number), 0
        pop = make(kind)
        pop.save(folder)
        pop.close()
        for _ in range(6):
            child = fork()
            if child == 0:
                try:
                    _child(folder, kind)
                finally:
                    os._exit(1)
            time.sleep(dice.uniform(0.01, 0.25))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            kills += os.WIFSIGNALED(status)
        pop = POP.load(folder)
        if pop.rounds:
            once(pop)
        pop.close()


def released(pop: POP) -> None:
    """Rounds until the open leaf is released."""
    pop.predict_many([{"a": 1.0, "c": "nobody's"}] * 6)


def crash(pop: POP, folder: Path) -> POP:
    """The process is gone without a word, and another one goes on."""
    book = pop.operator.loop.account.book
    assert book is not None
    book._release()
    return POP.load(folder)


def bring(pop: POP, tickets: list[str]) -> None:
    for ticket in tickets:
        with suppress(ValueError):
            pop.learn(ticket, 1)


def ask(pop: POP, folder: Path) -> list[str]:
    pop.save(folder)
    tickets = [answer.ticket for answer in pop.predict_many(XS[:4])]
    pop.save(folder)  # the snapshot has four open tickets
    return tickets


@pytest.mark.parametrize("kind", ["guide alone", "with copies"])
def test_labels_cut_off_and_released_are_not_taken_again_after_a_crash(kind: str, tmp_path: Path) -> None:
    """Whatever cuts a call off, a sum leaves with the mark of every label in it."""
    dice, pop = random.Random(kind), make(kind)
    tickets = ask(pop, tmp_path / "first")
    with Interrupt() as counting:
        pop.learn_many(tickets, [1] * 4)
    pop.close()
    last = counting.lines
    for number, at in enumerate(
        (last, last - 40, last // 2, *(dice.randrange(1, last) for _ in range(60 if LONG else 2)))
    ):
        folder, pop = tmp_path / str(number), make(kind)
        tickets = ask(pop, folder)
        with Interrupt(at):
            pop.learn_many(tickets, [1] * 4)
        with suppress(StateError):  # the write itself was interrupted
            released(pop)
        pop = crash(pop, folder)
        bring(pop, tickets)
        assert max(taught(pop)) <= 1
        pop.close()


def test_labels_of_a_journal_that_fail_and_are_released_are_not_taken_again(tmp_path: Path) -> None:
    def note(_: Any) -> Any:
        raise MemoryError

    def fresh(pop: POP) -> list[Key]:
        keeper = pop.keep()
        outcomes, entered = keeper.ask(XS[:4], [b"a", b"b", b"c", b"d"], lambda _: ("asked", 16, b""))
        keeper.settle(entered)
        waiting = {(keeper.tickets.epoch, outcome.number): outcome.waiting for outcome in outcomes}
        keeper.tickets.held = lambda key: waiting.pop(key, None)
        return list(waiting)

    pop = make("guide alone")
    pop.save(tmp_path)
    keys = fresh(pop)
    with pytest.raises(MemoryError):
        pop.keep().learn([(key, 1) for key in keys], note)
    released(pop)
    with pytest.warns(ConfideWarning, match="a served model's"):
        pop = crash(pop, tmp_path)
    keeper = pop.keep()
    waiting = keeper.reopen([(key, b"a", -1, 0, XS[i]) for i, key in enumerate(keys)])
    keeper.tickets.held = lambda key: waiting.pop(key, None)
    refused, _ = keeper.learn([(key, 1) for key in keys], lambda _: ("labelled", 16, b""))
    assert len(refused) == len(keys) and max(taught(pop)) == 1
    pop.close()


def test_a_record_that_was_cut_off_and_sent_again_is_in_one_sum() -> None:
    def one(pop: POP) -> None:
        pop.teach(XS[0], 1)

    def two(pop: POP) -> None:
        pop.teach_many(XS[:2], [1, 1])

    for teach in (one, two):
        for at in range(lines("guide alone", teach), 0, -1 if LONG else -5):
            pop = make("guide alone")
            with Interrupt(at):
                teach(pop)
            teach(pop)
            assert max(taught(pop)) <= 1


def test_a_call_that_came_to_its_end_shuts_no_later_record_out() -> None:
    pop = make("guide alone")
    with pytest.raises(ValueError):
        pop.teach({"a": []}, 1)
    pop.teach(XS[0], 1)
    with pytest.raises(ValueError):
        pop.teach_many([XS[1], {"a": []}], [1, 1])
    pop.teach(XS[2], 1)
    assert taught(pop)[:3] == [1, 1, 1]
