"""Labels alone, attacked: cut off at every line, rolled back, copied, closed, timed by the lines that run, misused."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import sys
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf
from sklearn.linear_model import SGDClassifier

import confide
from confide import POP, StateError, TicketError
from confide.errors import ConfideWarning
from confide.pop.randomizing import Randomizing
from confide.privacy import response as laws
from confide.privacy.response import Response
from confide.river import PrivateClassifier as River
from confide.sklearn import PrivateClassifier as Sklearn
from tests.broken.labels import CountedAfterWriting
from tests.label_pops import LABELS, Full, Listening, alone, part, taught
from tests.label_worlds import Forced
from tests.test_cut_off import HERE, Interrupt

pytestmark = pytest.mark.claim("labels.md")

PEOPLE: dict[str, Any] = {"units": "people"}


def make(runs: type[Randomizing] = Randomizing, **more: Any) -> POP:
    return alone(Listening(), runs=runs, **more)


def load(folder: Path) -> POP:
    return POP.load(folder, learner=Listening(), trusted=True)


def heard(model: POP) -> list[Any]:
    return taught(model).heard  # type: ignore[no-any-return]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails in these tests."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def lines_of(act: Callable[[], object]) -> int:
    with Interrupt() as counting:
        act()
    return counting.lines


# ---------------------------------------------------------------------- cut off


def most_of_one_person(kind: type[Randomizing], folder: Path, step: int, begin: float = 0.0) -> int:
    """Interrupted at lines of the first label of a person: how many of theirs are taught, at most."""
    first = make(kind, **PEOPLE)
    first.save(folder / "first")
    first.teach([0, 0], "yes", "bob")
    last, most = lines_of(lambda: first.teach([0, 0], "yes", "ann")), 0
    first.close()
    for at in range(1 + round(begin * last), last, step):
        model = make(kind, **PEOPLE)
        model.save(folder / f"{at}")
        with suppress(StateError), Interrupt(at):  # SQLite says of an interrupt that it failed
            model.teach([1, 0], "yes", "ann")
        with suppress(ValueError):  # past the cap, or nothing is written any more
            model.teach([2, 0], "yes", "ann")
        here = len(heard(model))
        with suppress(StateError):
            model.close()
        again = load(folder / f"{at}")
        most = max(most, here, len(heard(again)))
        again.close()
        if most > 1:
            break
    return most


@pytest.mark.usefixtures("quick")
def test_interrupted_at_any_line_nobody_passes_their_cap(tmp_path: Path) -> None:
    """And a cap that is counted after the write is noticed."""
    assert most_of_one_person(Randomizing, tmp_path / "right", step=13) == 1
    assert most_of_one_person(CountedAfterWriting, tmp_path / "wrong", step=2, begin=0.6) == 2


@pytest.mark.usefixtures("quick")
def test_a_batch_that_is_interrupted_at_any_line_passes_nobodys_cap(tmp_path: Path) -> None:
    def batch(model: POP) -> None:
        model.follow_many([[1, 0], [2, 0]], np.array([1, 1]), ["ann", "bob"])

    model = make(**PEOPLE)
    model.save(tmp_path / "first")
    last = lines_of(lambda: batch(model))
    model.close()
    for at in range(1, last, 23):
        model = make(**PEOPLE)
        model.save(tmp_path / f"{at}")
        with suppress(StateError), Interrupt(at):
            batch(model)
        with suppress(StateError):
            batch(model)
        assert len(heard(model)) <= 2
        with suppress(StateError):
            model.close()
        again = load(tmp_path / f"{at}")
        assert len(heard(again)) <= 2
        again.close()


class Counting(Randomizing):
    """Counts draws."""

    draws = 0

    def receive(self, label: int, who: Any) -> int:
        out = super().receive(label, who)
        self.draws += 1
        return out


def draws(model: POP) -> int:
    found = part(model)
    assert isinstance(found, Counting)
    return found.draws


@pytest.mark.usefixtures("quick")
def test_interrupted_at_any_line_a_question_has_one_draw_and_is_taught_once(tmp_path: Path) -> None:
    """And one that is open again after a load was seen by nobody."""
    model = make(Counting)
    model.save(tmp_path / "first")
    ticket = model.predict([0, 0]).ticket
    last = lines_of(lambda: model.learn(ticket, "yes"))
    model.close()
    for at in range(1, last, 11):
        model = make(Counting)
        ticket = model.predict([0, 0]).ticket
        model.save(tmp_path / f"{at}")
        with suppress(StateError), Interrupt(at):
            model.learn(ticket, "yes")
        for y in LABELS:
            with suppress(ValueError):
                model.learn(ticket, y)
        before = len(heard(model))
        assert draws(model) <= 1 and before <= 1
        with suppress(StateError):
            model.close()
        again = load(tmp_path / f"{at}")
        with suppress(TicketError):
            again.learn(ticket, "yes")
        assert len(heard(again)) <= 1
        assert not before or heard(again) == heard(model), "what was taught before stands"
        again.close()


@pytest.mark.usefixtures("quick")
def test_what_is_taught_after_an_interrupted_save_is_not_forgotten(tmp_path: Path) -> None:
    """At any line of it: a label that was taken is known to whoever loads the folder."""
    model = make(**PEOPLE)
    model.save(tmp_path / "first")
    last = lines_of(lambda: model.save(tmp_path / "first"))
    model.close()
    for at in range(1, last, 17):
        folder, model = tmp_path / f"{at}", make(**PEOPLE)
        model.save(folder)
        model.teach([1, 0], "yes", "ann")
        with suppress(StateError), Interrupt(at):
            model.save(folder)
        told = [(1.0, 0.0)]
        with suppress(StateError):
            model.teach([2, 0], "yes", "bob")
            told.append((2.0, 0.0))
        with suppress(StateError):
            model.close()
        again = load(folder)
        assert [x for x, _ in heard(again)] == told
        for person in ("ann", "bob")[: len(told)]:
            with pytest.raises(ValueError, match="for life"):
                again.teach([3, 0], "no", person)
        again.close()


def test_an_interrupt_at_a_deadline_settles_no_question_twice() -> None:
    def due(model: POP) -> None:
        for _ in range(2):
            model.predict([9, 9])

    last = lines_of(lambda: due(make(due=(1, "no"))))
    for at in range(1, last, 5):
        model = make(due=(1, "no"))
        model.predict([1, 0])
        with Interrupt(at):
            due(model)
        due(model)
        assert [x for x, _ in heard(model)].count((1.0, 0.0)) <= 1


def test_records_are_all_written_before_the_first_of_them_is_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is cut off in the midst of them, and loads the state, has them all: none is to be brought again."""
    model, learn = make(), Randomizing._learn

    def cut_off(self: Randomizing, row: Any, out: int) -> None:
        learn(self, row, out)
        if self.learned == 2:
            raise KeyboardInterrupt

    model.save(tmp_path / "state")
    with monkeypatch.context() as patched:
        patched.setattr(Randomizing, "_learn", cut_off)
        with pytest.raises(KeyboardInterrupt):
            model.teach_many([[i, 0] for i in range(4)], ["yes"] * 4)
    model.close()
    with load(tmp_path / "state") as again:
        assert [x for x, _ in heard(again)] == [(float(i), 0.0) for i in range(4)]


# ---------------------------------------------------------------------- folders


def test_a_closed_model_takes_no_label_beside_whoever_loads_its_folder(tmp_path: Path) -> None:
    model = make(**PEOPLE)
    model.save(tmp_path / "state")
    ticket = model.predict([1, 0], unit="ann").ticket
    model.close()
    again = load(tmp_path / "state")
    again.teach([1, 0], "yes", "ann")
    for act in (
        lambda: model.learn(ticket, "yes"),
        lambda: model.teach([1, 0], "yes", "carl"),
        lambda: model.follow_many([[1, 0]], np.array([1]), ["dora"]),
        lambda: model.save(tmp_path / "state"),
    ):
        with pytest.raises(StateError, match="closed"):
            act()
    assert heard(model) == []
    again.close()


def test_a_part_of_an_old_backup_is_refused_or_forgets_no_cap(tmp_path: Path) -> None:
    """An old ledger and another key are refused; with an old snapshot the ledger still has what people have used."""
    model = make(**PEOPLE)
    model.save(tmp_path / "state")
    model.close()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    model = load(tmp_path / "state")
    for person in ("ann", "bob"):
        model.learn(model.predict([1, 0], unit=person).ticket, "yes")
    model.save(tmp_path / "state")
    model.close()
    for name in ("ledger.db", "key", "snapshot.npz"):
        mixed = tmp_path / name.partition(".")[0]
        shutil.copytree(tmp_path / "state", mixed)
        shutil.copy(tmp_path / "backup" / name, mixed / name)
        if name == "key":
            (mixed / name).write_bytes(bytes(64))
        if name != "snapshot.npz":
            with pytest.raises(StateError):
                load(mixed)
            continue
        with load(mixed) as again:
            for person in ("ann", "bob"):
                with pytest.raises(ValueError, match="for life"):
                    again.teach([3, 0], "no", person)


def test_a_whole_old_backup_is_noticed_by_the_first_ticket_from_beyond_it(tmp_path: Path) -> None:
    """Tickets of a life that the backup does not know, and of a round that it cannot know; never loaded again."""
    model = make()
    model.save(tmp_path / "state")
    model.predict([0, 0])
    model.close()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    model = load(tmp_path / "state")
    ticket = model.predict([1, 0]).ticket
    model.learn(ticket, "yes")
    model.close()
    again = load(tmp_path / "backup")
    good = again.predict([2, 0]).ticket
    with pytest.raises(StateError, match="rolled back"):
        again.learn(ticket, "yes")
    for act in (lambda: again.predict([0, 0]), lambda: again.learn(good, "yes"), lambda: again.teach([0, 0], "no")):
        with pytest.raises(StateError, match="rolled back"):
            act()
    again.close()
    with pytest.raises(StateError, match="rolled back"):
        load(tmp_path / "backup")


def test_rounds_after_a_backup_of_the_same_life_are_noticed(tmp_path: Path) -> None:
    model = make()
    model.save(tmp_path / "state")
    soon = model.predict([0, 0]).ticket
    model.save(tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    late = model.predict([1, 0]).ticket
    model.close()
    again = load(tmp_path / "backup")
    again.learn(soon, "yes")
    with pytest.raises(StateError, match="rolled back"):
        again.learn(late, "yes")
    again.close()


def test_what_waits_for_its_deadline_waits_on_after_a_load(tmp_path: Path) -> None:
    """Nothing is taught twice or before its time, and what was forgotten does not come back."""
    model = make(due=(3, "no"), epsilon=30.0, **PEOPLE)
    tickets = [model.predict([i, 0], unit=f"{i}").ticket for i in range(3)]
    model.save(tmp_path / "state")
    model.forget("1")
    model.predict([3, 0], unit="3")  # the first is due
    model.close()
    with load(tmp_path / "state") as again:
        assert heard(again) == [((0.0, 0.0), "no")]
        again.learn(tickets[2], "yes")
        for ticket in tickets[:2]:
            with pytest.raises(TicketError):
                again.learn(ticket, "yes")
        for i in range(4, 8):
            again.predict([i, 0], unit=f"{i}")
        assert heard(again)[1:] == [((2.0, 0.0), "yes"), ((4.0, 0.0), "no")]


def test_a_state_that_was_made_with_a_seed_promises_nothing_for_ever(tmp_path: Path) -> None:
    model = make(seed=1)
    model.save(tmp_path / "state")
    model.close()
    for _ in range(2):
        again = load(tmp_path / "state")
        assert not again.guarantee.secure
        again.close()


def test_a_row_that_cannot_be_written_down_is_refused_to_its_asker_and_hinders_nobody_else(tmp_path: Path) -> None:
    """It would fail at its deadline, in somebody else's question, and for ever."""
    model = make(due=(2, "no"), features=None)
    model.predict({"when": date(2020, 1, 1)})
    with pytest.warns(ConfideWarning, match="cannot be written down"):
        model.save(tmp_path / "state")
    with pytest.raises(ValueError, match="written down"):
        model.predict({"when": date(2020, 1, 1)})
    for _ in range(5):
        model.predict({"a": 1.0})
    model.close()
    plain = make()
    waiting = plain.predict([date(2020, 1, 1), 2]).ticket
    with pytest.warns(ConfideWarning, match="cannot be written down"):
        plain.save(tmp_path / "other")
    followed = plain.follow_many(np.array([[1, date(2020, 1, 1)], [2, 3.0]], dtype=object), np.array([0, 1]))
    assert followed.answers.tolist()[0] == -1 and [x for x, _ in heard(plain)] == [(2, 3.0)]
    with pytest.raises(ValueError, match="written down"):
        plain.learn(waiting, "yes")
    plain.close()


def test_who_loads_says_which_promise_they_expect(tmp_path: Path) -> None:
    made: dict[str, Any] = {"labels": LABELS, "epsilon": 1.0, "features": 2}
    model = confide.Private(**made, protect="labels")
    model.save(tmp_path / "labels")
    model.close()
    with pytest.raises(StateError, match="labels alone"):
        confide.Private.load(tmp_path / "labels", protect="rows")
    with confide.Private.load(tmp_path / "labels", protect="labels") as again:
        assert again.protect == "labels"
    with confide.Private(**made) as rows:
        rows.save(tmp_path / "rows")
    with pytest.raises(StateError, match="rows"):
        confide.Private.load(tmp_path / "rows", protect="labels")


# ---------------------------------------------------------------------- time: the lines that run


class Lines:
    """Which lines of Confide run, in order."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "line":
            self.ran.append((frame.f_code.co_filename, frame.f_lineno))
        return self.trace

    def __enter__(self) -> Lines:
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def forced(model: POP) -> POP:
    """The words are those whose output is the same for every label."""
    part(model).rng = Forced(part(model).part.response)  # type: ignore[assignment]
    return model


def test_the_same_lines_run_whatever_the_label_is() -> None:
    ran = []
    for y in LABELS * 2:  # the first of all runs lines that are run once
        model = forced(make())
        ticket = model.predict([1, 0]).ticket
        with Lines() as lines:
            model.learn(ticket, y)
            model.teach([2, 0], y)
        ran.append(lines.ran)
    assert ran[1] == ran[2] == ran[3] and ran[1]


def test_at_a_deadline_the_same_lines_run_whether_a_label_came_or_not() -> None:
    """Somebody else asks then, and may time their answer."""
    ran = []
    for y in ("yes", "no", None, "yes"):
        model = forced(make(due=(2, "no")))
        ticket = model.predict([1, 0]).ticket
        if y is not None:
            model.learn(ticket, y)
        with Lines() as lines:
            for _ in range(3):
                model.predict([2, 0])
        ran.append(lines.ran)
    assert ran[1] == ran[2] == ran[3] and ran[1]


def test_no_word_is_left_in_a_generator() -> None:
    """Who found its state later would know which outputs were replacements."""
    model = make(seed=None)
    before = part(model).rng.position
    model.learn(model.predict([1, 0]).ticket, "yes")
    model.teach([1, 0], "yes")
    model.follow_many([[1, 0]] * 3, np.array([0, 1, 1]))
    assert part(model).rng.position == before


# ---------------------------------------------------------------------- labels that are odd


class Odd:
    """Lies about its hash, about whether it is a label, or raises."""

    def __init__(self, code: int, act: Callable[[], bool]) -> None:
        self._code, self._act = code, act

    def __hash__(self) -> int:
        return self._code

    def __eq__(self, other: object) -> bool:
        return self._act()


def raises() -> bool:
    raise SystemExit("a secret diagnosis")


def test_labels_that_are_equal_are_one_label() -> None:
    model = make(labels=[0, 1], epsilon=40.0)  # what comes out is the label
    for y in (1, 1.0, True, np.int64(1), np.bool_(True), np.float32(1)):
        model.teach([0, 0], y)
    assert [y for _, y in heard(model)] == [1] * 6
    with pytest.raises(ValueError, match="name each once"):
        make(labels=[1, True])


@pytest.mark.parametrize(
    "y",
    [Odd(hash("yes"), raises), Odd(hash("yes"), lambda: False), Odd(1, lambda: True), np.array("yes")],
    ids=["raises", "is none", "has another hash", "has no hash"],
)
def test_a_label_that_misbehaves_is_refused_draws_nothing_and_leaves_nothing_in_the_error(y: Any) -> None:
    model = make(Counting)
    ticket = model.predict([0, 0]).ticket
    with pytest.raises(ValueError, match="not one of the labels") as told:
        model.learn(ticket, y)
    assert told.value.__context__ is None and told.value.__cause__ is None
    assert draws(model) == 0
    model.learn(ticket, "yes")


class Brought(str):
    """A label that can be looked for."""

    __slots__ = ("__weakref__",)


def refusals() -> dict[str, Callable[[Any], object]]:
    """Ways for a label not to be taken."""
    rounds, people = make(), make(**PEOPLE)
    used, other = (rounds.predict([0, 0]).ticket for _ in range(2))
    first, past = (people.predict([0, 0], unit="ann").ticket for _ in range(2))
    rounds.learn(used, "no")
    people.learn(first, "no")
    return {
        "used": lambda y: rounds.learn(used, y),
        "no ticket": lambda y: rounds.learn("none", y),
        "one of many": lambda y: rounds.learn_many([used, other], [y, y]),
        "a bad row": lambda y: rounds.teach([0], y),
        "a bad row of many": lambda y: rounds.teach_many([[0, 0], [0]], [y, y]),
        "past a cap": lambda y: people.learn(past, y),
        "a record past a cap": lambda y: people.teach([0, 0], y, "ann"),
        "many past a cap": lambda y: people.teach_many([[0, 0]], [y], ["ann"]),
    }


def test_nothing_in_the_process_holds_a_label_that_was_refused() -> None:
    """Nor does it wait for the collector of cycles, which a service may turn off."""
    held = []
    for name, bring in refusals().items():
        y = Brought("yes")
        ref = weakref.ref(y)
        gc.disable()
        try:
            with suppress(ValueError):
                bring(y)
                held.append(f"{name} was not refused")
            del y
            held += [name] * (ref() is not None)
        finally:
            gc.enable()
    assert held == []


def test_where_labels_have_a_deadline_records_are_refused_and_pass_nobodys_cap() -> None:
    """A cap is taken by questions there: a record would be drawn for beside it, as often as it is sent."""
    model = make(**PEOPLE, due=(2, "no"))
    for teach in (
        lambda: model.teach([1, 0], "yes", "ann"),
        lambda: model.teach_many([[1, 0], [2, 0]], ["yes", "no"], ["ann", "ann"]),
    ):
        with pytest.raises(ValueError, match="has no deadline"):
            teach()
    assert part(model).learned == 0 and heard(model) == []
    model.learn(model.predict([1, 0], unit="ann").ticket, "yes")


# ---------------------------------------------------------------------- what the operator hears


def test_labels_past_a_cap_are_counted_for_the_operator(tmp_path: Path) -> None:
    """With a deadline by question, whether its label came or not: so the count says nothing of that."""
    counts = []
    for comes in (True, False):
        due = make(**PEOPLE, due=(2, "no"))
        tickets = [due.predict([i, 0], unit="ann").ticket for i in range(2)]
        for ticket in tickets if comes else ():
            due.learn(ticket, "yes")
        for i in range(3):
            due.predict([9, 9], unit=f"other {i}")
        counts.append(part(due).over)
    assert counts == [1, 1]
    model = make(**PEOPLE)
    model.follow_many([[1, 0]] * 3, np.array([1, 1, 1]), ["ann", "ann", "bob"])
    for person in ("ann", "bob"):
        with pytest.raises(ValueError, match="for life"):
            model.teach([1, 0], "yes", person)
    model.save(tmp_path / "state")
    model.close()
    again = load(tmp_path / "state")
    assert part(model).over == part(again).over == 3
    again.close()


class Fails:
    """An own model that raises."""

    def predict(self, x: Any) -> Any:
        raise RuntimeError("a secret")

    def learn(self, x: Any, y: Any) -> None:
        raise RuntimeError("a secret")


def test_an_own_model_that_fails_is_warned_of_once_and_nothing_of_it_is_quoted() -> None:
    model = alone(Fails())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            model.learn(model.predict([1, 0]).ticket, "yes")
        model.follow_many([[1, 0]], np.array([1]))
    words = [str(one.message) for one in said if one.category is ConfideWarning]
    failures = model.operator.failures
    assert len(words) == 1 and "secret" not in words[0] and failures.lessons == failures.votes == 4


# ---------------------------------------------------------------------- the certificate


def test_the_price_is_rounded_up_before_it_becomes_a_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where k and o are nearly the same the logarithm has few digits left: they are kept all the same."""
    prices: list[Decimal] = []
    monkeypatch.setattr(laws, "float_up", lambda value: prices.append(value) or float(value))  # type: ignore[func-returns-value]
    mp.dps = 120
    for labels, less in [(2, 3), *((labels, 0) for labels in range(2, 101))]:
        response = Response(labels, (2**64 - 1) // labels - less)
        response.cost()
        assert mpf(str(prices[-1])) >= mp.log(mpf(response.keep) / mpf(response.other))


@pytest.mark.parametrize("cap", [1, 2, 3, 7])
@pytest.mark.parametrize("labels", [2, 3, 5])
def test_all_labels_of_a_person_together_cost_what_is_promised(cap: int, labels: int) -> None:
    """The exact law of all outputs together, from the integers: the worst factor between any two people's labels."""
    mp.dps = 60
    model = make(labels=range(labels), units="people", unit_labels=cap)
    response = part(model).part.response
    exact = cap * mp.log(mpf(response.keep) / mpf(response.other))
    assert exact <= mpf(model.guarantee.epsilon) <= 1 and exact > 1 - mpf(10) ** -9


def test_no_number_that_is_said_is_below_the_one_that_is_promised() -> None:
    for epsilon in np.linspace(0.3, 4.0, 200):
        guarantee = make(epsilon=float(epsilon)).guarantee
        said = guarantee.sentence
        factor = float(said.split("a factor of ")[1].split(" ")[0])
        assert factor >= np.exp(guarantee.epsilon) * (1 - 1e-12)
        assert float(said.split("(ε = ")[1].split(")")[0]) >= guarantee.epsilon
        assert float(str(guarantee).split("-DP")[0]) >= guarantee.epsilon


def test_a_disk_that_is_full_at_a_deadline_ends_the_answers_and_teaches_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, model = Full(monkeypatch), make(**PEOPLE, due=(1, "no"))
    model.predict([1, 0], unit="ann")
    model.save(tmp_path / "state")
    disk.full = True
    for _ in range(2):
        with pytest.raises(StateError, match="could not be written"):
            model.predict([2, 0], unit="bob")
    assert heard(model) == []
    disk.full = False
    with suppress(StateError):
        model.close()
    with load(tmp_path / "state") as again:
        again.predict([2, 0], unit="bob")
        assert [x for x, _ in heard(again)] == [(1.0, 0.0)] and part(again).over == 0


def takings() -> dict[str, Callable[[Any], object]]:
    """Ways for a label to be taken."""
    rounds, people, late = make(), make(**PEOPLE, unit_labels=9), make(due=(3, "no"))
    failing, weighed = make_failing(), alone(SGDClassifier(loss="log_loss"), labels=LABELS)
    own = [rounds.predict([0, 0]).ticket for _ in range(3)]
    others, held = people.predict([0, 0], "ann").ticket, late.predict([0, 0]).ticket
    lost, known = failing.predict([0, 0]).ticket, [weighed.predict([0.0, 1.0]).ticket for _ in range(2)]
    adapter = River(model=Listening(), promise=confide.Promise(1.0, protect="labels"), labels=LABELS)
    return {
        "a label": lambda y: rounds.learn(own[0], y),
        "labels": lambda y: rounds.learn_many(own[1:], [y, y]),
        "a record": lambda y: rounds.teach([0, 0], y),
        "records": lambda y: rounds.teach_many([[0, 0]] * 2, [y, y]),
        "a person's": lambda y: people.learn(others, y),
        "a person's record": lambda y: people.teach([0, 0], y, "ann"),
        "one that waits": lambda y: late.learn(held, y),
        "one that a model fails to learn": lambda y: failing.learn(lost, y),
        "one that is weighed": lambda y: weighed.learn_many(known, [y, y]),
        "an adapter's": lambda y: adapter.learn_one({"a": 1.0}, y),
    }


class Failing(Listening):
    def learn(self, x: Any, y: Any) -> None:
        raise RuntimeError(y)


def make_failing() -> POP:
    return alone(Failing())


@pytest.mark.filterwarnings("ignore::confide.ConfideWarning")
def test_nothing_in_the_process_holds_a_label_that_was_taken() -> None:
    """Not the model, the ticket, a queue, a count, a warning or a cycle that waits for its collector."""
    held = []
    for name, bring in takings().items():
        y = Brought("yes")
        ref = weakref.ref(y)
        gc.disable()
        try:
            bring(y)
            del y
            held += [name] * (ref() is not None)
        finally:
            gc.enable()
    assert held == []


class Zeros:
    """Words of which the first label comes out, whatever was brought."""

    secure = False

    def fresh_word(self) -> int:
        return 0

    def fresh_words(self, n: int) -> Any:
        return np.zeros(n, dtype=np.uint64)


def adapted(kind: str, y: str) -> bytes:
    """All that an adapter is after it was taught this label, again and again."""
    promise, xs = confide.Promise(1.0, protect="labels"), np.arange(12.0).reshape(6, 2)
    if kind == "River":
        river = River(model=Listening(), promise=promise, labels=LABELS, seed=1)
        part(river.pop).rng = Zeros()  # type: ignore[assignment]
        for x in xs.tolist():
            river.predict_one({"a": x[0]})
            river.learn_one({"a": x[0]}, y)
        return pickle.dumps(river)
    model = Sklearn(promise=promise, classes=LABELS, seed=1)
    model.partial_fit(xs, np.array(["no"] * 6))
    part(model.pop_).rng = Zeros()  # type: ignore[assignment]
    model.partial_fit(xs + 1, np.array([y] * 6))
    assert (model.predict(xs) == model.predict(xs)).all()
    return pickle.dumps(model)


@pytest.mark.parametrize("kind", ["River", "scikit-learn"])
def test_an_adapter_keeps_nothing_of_a_label_but_what_came_out(kind: str) -> None:
    assert adapted(kind, "yes") == adapted(kind, "no")
