"""Labels alone, attacked: cut off at every line, rolled back, copied, closed, timed by the lines that run, misused."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
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

import confide
from confide import StateError, TicketError
from confide.errors import ConfideWarning
from confide.pop.randomized import Randomized
from confide.privacy import response as laws
from confide.privacy.response import Response
from tests.broken.labels import CountedAfterWriting
from tests.label_worlds import Forced
from tests.test_cut_off import HERE, Interrupt
from tests.test_randomized import LABELS, Full, Listening

pytestmark = pytest.mark.claim("labels.md")

OPTIONS: dict[str, Any] = {"labels": LABELS, "epsilon": 1.0, "features": 2}
PEOPLE: dict[str, Any] = {**OPTIONS, "units": "people"}


def make(kind: type[Randomized] = Randomized, **more: Any) -> Randomized:
    return kind(Listening(), **{**OPTIONS, **more})


def load(folder: Path, **more: Any) -> Randomized:
    return Randomized.load(folder, Listening(), trusted=True, **{**OPTIONS, **more})


def heard(model: Randomized) -> list[Any]:
    return model.model.learner.heard  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails in these tests."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def lines_of(act: Callable[[], object]) -> int:
    with Interrupt() as counting:
        act()
    return counting.lines


# ---------------------------------------------------------------------- cut off


def most_of_one_person(kind: type[Randomized], folder: Path, step: int, begin: float = 0.0) -> int:
    """Interrupted at lines of the first label of a person: how many of theirs are taught, at most."""
    first = make(kind, **PEOPLE)
    first.save(folder / "first", trusted=True)
    first.teach([0, 0], "yes", "bob")
    last, most = lines_of(lambda: first.teach([0, 0], "yes", "ann")), 0
    first.close()
    for at in range(1 + round(begin * last), last, step):
        model = make(kind, **PEOPLE)
        model.save(folder / f"{at}", trusted=True)
        with Interrupt(at):
            model.teach([1, 0], "yes", "ann")
        with suppress(ValueError):
            model.teach([2, 0], "yes", "ann")
        here = len(heard(model))
        model.close()
        again = load(folder / f"{at}", **PEOPLE)
        most = max(most, here, len(heard(again)))
        again.close()
    return most


@pytest.mark.usefixtures("quick")
def test_interrupted_at_any_line_nobody_passes_their_cap(tmp_path: Path) -> None:
    """And a cap that is counted after the write is noticed."""
    assert most_of_one_person(Randomized, tmp_path / "right", step=4) == 1
    assert most_of_one_person(CountedAfterWriting, tmp_path / "wrong", step=1, begin=0.6) == 2


@pytest.mark.usefixtures("quick")
def test_a_batch_that_is_interrupted_at_any_line_passes_nobodys_cap(tmp_path: Path) -> None:
    def batch(model: Randomized) -> None:
        model.follow_many([[1, 0], [2, 0]], np.array([1, 1]), ["ann", "bob"])

    model = make(**PEOPLE)
    model.save(tmp_path / "first", trusted=True)
    last = lines_of(lambda: batch(model))
    model.close()
    for at in range(1, last, 11):
        model = make(**PEOPLE)
        model.save(tmp_path / f"{at}", trusted=True)
        with Interrupt(at):
            batch(model)
        batch(model)
        model.close()
        again = load(tmp_path / f"{at}", **PEOPLE)
        assert len(heard(again)) <= 2
        again.close()


class Counting(Randomized):
    """Counts draws."""

    draws = 0

    def _draw(self, number: int, word: int) -> int:
        self.draws += 1
        return super()._draw(number, word)


@pytest.mark.usefixtures("quick")
def test_interrupted_at_any_line_a_question_has_one_draw_and_is_taught_once(tmp_path: Path) -> None:
    model = make(Counting)
    model.save(tmp_path / "first", trusted=True)
    ticket = model.predict([0, 0]).ticket
    last = lines_of(lambda: model.learn(ticket, "yes"))
    model.close()
    for at in range(1, last, 3):
        model = make(Counting)
        model.save(tmp_path / f"{at}", trusted=True)
        ticket = model.predict([0, 0]).ticket
        with Interrupt(at):
            model.learn(ticket, "yes")
        for y in LABELS:
            with suppress(TicketError):
                model.learn(ticket, y)
        assert isinstance(model, Counting) and model.draws <= 1 and len(heard(model)) <= 1
        model.close()
        again = load(tmp_path / f"{at}")
        assert len(heard(again)) <= 1
        again.close()


@pytest.mark.usefixtures("quick")
def test_what_is_taught_after_an_interrupted_save_is_not_forgotten(tmp_path: Path) -> None:
    """At any line of it: a label that was taken is known to whoever loads the folder."""
    model = make(**PEOPLE)
    model.save(tmp_path / "first", trusted=True)
    last = lines_of(lambda: model.save(tmp_path / "first", trusted=True))
    model.close()
    for at in range(1, last, 4):
        folder, model = tmp_path / f"{at}", make(**PEOPLE)
        model.save(folder, trusted=True)
        model.teach([1, 0], "yes", "ann")
        with Interrupt(at):
            model.save(folder, trusted=True)
        model.teach([2, 0], "yes", "bob")
        model.close()
        again = load(folder, **PEOPLE)
        assert [x for x, _ in heard(again)] == [(1.0, 0.0), (2.0, 0.0)]
        for person in ("ann", "bob"):
            with pytest.raises(ValueError, match="for life"):
                again.teach([3, 0], "no", person)
        again.close()


def test_an_interrupt_at_a_deadline_settles_no_question_twice() -> None:
    def due(model: Randomized) -> None:
        for _ in range(2):
            model.predict([9, 9])

    last = lines_of(lambda: due(make(deadline=1, missing="no")))
    for at in range(1, last, 5):
        model = make(deadline=1, missing="no")
        model.predict([1, 0])
        with Interrupt(at):
            due(model)
        due(model)
        assert [x for x, _ in heard(model)].count((1.0, 0.0)) <= 1


def test_who_is_cut_off_in_the_midst_of_records_is_told_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brought again from the start, the first ones would be drawn for twice."""
    model, taught = make(), Randomized._teach

    def cut_off(self: Randomized, row: Any, out: int) -> None:
        taught(self, row, out)
        if self.records == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Randomized, "_teach", cut_off)
    with pytest.raises(KeyboardInterrupt) as told:
        model.teach_many([[i, 0] for i in range(4)], ["yes"] * 4)
    assert "cut off in row 1, which may be taken" in told.value.__notes__[0] and model.records == 2


# ---------------------------------------------------------------------- folders


def test_a_closed_model_takes_no_label_beside_whoever_loads_its_folder(tmp_path: Path) -> None:
    model = make(**PEOPLE)
    model.save(tmp_path / "state", trusted=True)
    ticket = model.predict([1, 0], unit="ann").ticket
    model.close()
    again = load(tmp_path / "state", **PEOPLE)
    again.teach([1, 0], "yes", "ann")
    for act in (
        lambda: model.learn(ticket, "yes"),
        lambda: model.teach([1, 0], "yes", "carl"),
        lambda: model.follow_many([[1, 0]], np.array([1]), ["dora"]),
        lambda: model.save(tmp_path / "state", trusted=True),
    ):
        with pytest.raises(StateError, match="closed"):
            act()
    assert heard(model) == []
    again.close()


def mixed(now: Path, before: Path, name: str) -> None:
    (now / name).unlink()
    if (before / name).exists():
        shutil.copy(before / name, now / name)


@pytest.mark.parametrize(
    ("name", "said"), [("labels.npz", "older than its journal"), ("key", "key"), ("labels-3.journal", "no journal")]
)
def test_a_part_of_an_old_backup_is_noticed(name: str, said: str, tmp_path: Path) -> None:
    model = make(**PEOPLE)
    model.save(tmp_path / "state", trusted=True)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    (tmp_path / "backup" / "key").write_bytes(bytes(64))
    for person in ("ann", "bob"):
        model.learn(model.predict([1, 0], unit=person).ticket, "yes")
    model.save(tmp_path / "state", trusted=True)
    model.close()
    mixed(tmp_path / "state", tmp_path / "backup", name)
    with pytest.raises(StateError, match=said):
        load(tmp_path / "state", **PEOPLE)


def test_a_whole_old_backup_is_noticed_by_the_first_ticket_from_beyond_it(tmp_path: Path) -> None:
    """Tickets of a life that the backup does not know, and of a round that it cannot know; never loaded again."""
    model = make()
    model.save(tmp_path / "state", trusted=True)
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
    model.save(tmp_path / "state", trusted=True)
    soon = model.predict([0, 0]).ticket
    shutil.copytree(tmp_path / "state", tmp_path / "backup", ignore=shutil.ignore_patterns("lock"))
    model.follow_many(np.zeros((2000, 2)), np.full(2000, -1))
    late = model.predict([1, 0]).ticket
    model.close()
    again = load(tmp_path / "backup")
    with pytest.raises(TicketError, match="loaded again"):
        again.learn(soon, "yes")  # as after any crash
    with pytest.raises(StateError, match="rolled back"):
        again.learn(late, "yes")
    again.close()


@pytest.mark.usefixtures("quick")
def test_the_label_of_every_round_is_known_again_wherever_rounds_were_noted_ahead(tmp_path: Path) -> None:
    model = make()
    model.save(tmp_path / "state", trusted=True)
    for part in (1023, 1, 1, 1, 1, 1023, 1, 1):
        model.follow_many(np.arange(2.0 * part).reshape(part, 2), np.ones(part, dtype=np.int64))
    model.close()
    again = load(tmp_path / "state")
    assert heard(again) == heard(model) and again.rounds == 2052
    again.close()


@pytest.mark.usefixtures("quick")
def test_a_journal_that_ends_in_the_midst_of_a_line_has_all_lines_before_it(tmp_path: Path) -> None:
    model = make()
    model.save(tmp_path / "state", trusted=True)
    for i in range(3):
        model.teach([i, 0], "yes")
    model.close()
    (journal,) = (tmp_path / "state").glob("*.journal")
    body = journal.read_bytes()
    last = body.rindex(b"\n", 0, -1) + 1
    for at in range(last, len(body), 9):
        shutil.copytree(tmp_path / "state", tmp_path / f"{at}")
        (tmp_path / f"{at}" / journal.name).write_bytes(body[:at])
        again = load(tmp_path / f"{at}")
        assert heard(again) == heard(model)[:2]
        again.close()
    journal.write_bytes(body[:20] + b"?" + body[21:])
    with pytest.raises(StateError, match="damaged in line 1"):
        load(tmp_path / "state")


def test_a_state_that_was_made_with_a_seed_promises_nothing_for_ever(tmp_path: Path) -> None:
    model = make(seed=1)
    model.save(tmp_path / "state", trusted=True)
    model.close()
    for _ in range(2):
        again = load(tmp_path / "state")
        assert not again.guarantee.secure
        again.close()


def test_a_row_that_cannot_be_written_down_is_refused_to_its_asker_and_hinders_nobody_else(tmp_path: Path) -> None:
    """It would fail at its deadline, in somebody else's question, and for ever."""
    options: dict[str, Any] = {"labels": LABELS, "epsilon": 1.0, "deadline": 2, "missing": "no"}
    model = Randomized(Listening(), **options)
    model.predict({"when": date(2020, 1, 1)})
    model.save(tmp_path / "state", trusted=True)
    with pytest.raises(ValueError, match="written down"):
        model.predict({"when": date(2020, 1, 1)})
    for _ in range(5):
        model.predict({"a": 1.0})
    model.close()
    plain = make()
    plain.save(tmp_path / "other", trusted=True)
    followed = plain.follow_many(np.array([[1, date(2020, 1, 1)], [2, 3.0]], dtype=object), np.array([0, 1]))
    assert followed.answers.tolist()[0] == -1 and [x for x, _ in heard(plain)] == [(2, 3.0)]
    plain.close()


def test_who_loads_says_which_promise_they_expect(tmp_path: Path) -> None:
    made: dict[str, Any] = {"labels": LABELS, "epsilon": 1.0, "features": 2}
    model = confide.Private(**made, protect="labels")
    model.save(tmp_path / "labels")
    model.close()
    with pytest.raises(StateError, match="labels alone"):
        confide.Private.load(tmp_path / "labels", **made, protect="rows")
    with confide.Private.load(tmp_path / "labels", **made, protect="labels") as again:
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


def forced(model: Randomized) -> Randomized:
    """The words are those whose output is the same for every label."""
    model._rng = Forced(model.response)  # type: ignore[assignment]
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
        model = forced(make(deadline=2, missing="no"))
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
    before = model._rng.position
    model.learn(model.predict([1, 0]).ticket, "yes")
    model.teach([1, 0], "yes")
    model.follow_many([[1, 0]] * 3, np.array([0, 1, 1]))
    assert model._rng.position == before


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
    model = Randomized(Listening(), labels=[0, 1], epsilon=40.0, features=2)  # what comes out is the label
    for y in (1, 1.0, True, np.int64(1), np.bool_(True), np.float32(1)):
        model.teach([0, 0], y)
    assert [y for _, y in heard(model)] == [1] * 6
    with pytest.raises(ValueError, match="each named once"):
        Randomized(labels=[1, True], epsilon=1.0)


@pytest.mark.parametrize(
    "y",
    [Odd(hash("yes"), raises), Odd(hash("yes"), lambda: False), Odd(1, lambda: True), np.array("yes")],
    ids=["raises", "is none", "has another hash", "has no hash"],
)
def test_a_label_that_misbehaves_is_refused_draws_nothing_and_leaves_nothing_in_the_error(y: Any) -> None:
    model = make(Counting)
    ticket = model.predict([0, 0]).ticket
    with pytest.raises(ValueError, match="declared") as told:
        model.learn(ticket, y)
    assert told.value.__context__ is None and told.value.__cause__ is None
    assert isinstance(model, Counting) and model.draws == 0
    model.learn(ticket, "yes")


# ---------------------------------------------------------------------- what the operator hears


def test_labels_past_a_cap_are_counted_for_the_operator(tmp_path: Path) -> None:
    """With a deadline by question, whether its label came or not: so the count says nothing of that."""
    counts = []
    for comes in (True, False):
        due = make(**PEOPLE, deadline=2, missing="no")
        tickets = [due.predict([i, 0], unit="ann").ticket for i in range(2)]
        for ticket in tickets if comes else ():
            due.learn(ticket, "yes")
        for i in range(3):
            due.predict([9, 9], unit=f"other {i}")
        counts.append(due.past_cap)
    assert counts == [1, 1]
    model = make(**PEOPLE)
    model.follow_many([[1, 0]] * 3, np.array([1, 1, 1]), ["ann", "ann", "bob"])
    for person in ("ann", "bob"):
        with pytest.raises(ValueError, match="for life"):
            model.teach([1, 0], "yes", person)
    model.save(tmp_path / "state", trusted=True)
    model.close()
    again = load(tmp_path / "state", **PEOPLE)
    assert model.past_cap == again.past_cap == 3
    again.close()


class Fails:
    """An own model that raises."""

    def predict(self, x: Any) -> Any:
        raise RuntimeError("a secret")

    def learn(self, x: Any, y: Any) -> None:
        raise RuntimeError("a secret")


def test_an_own_model_that_fails_is_warned_of_once_and_nothing_of_it_is_quoted() -> None:
    model = Randomized(Fails(), **OPTIONS)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            model.learn(model.predict([1, 0]).ticket, "yes")
        model.follow_many([[1, 0]], np.array([1]))
    words = [str(one.message) for one in said if one.category is ConfideWarning]
    assert len(words) == 1 and "secret" not in words[0] and model.failures.lessons == model.failures.votes == 4


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
    model = Randomized(Listening(), labels=range(labels), epsilon=1.0, features=2, units="people", unit_labels=cap)
    response = model.response
    exact = cap * mp.log(mpf(response.keep) / mpf(response.other))
    assert exact <= mpf(model.guarantee.epsilon) <= 1 and exact > 1 - mpf(10) ** -9


def test_no_number_that_is_said_is_below_the_one_that_is_promised() -> None:
    for epsilon in np.linspace(0.3, 4.0, 200):
        guarantee = Randomized(Listening(), labels=LABELS, epsilon=float(epsilon), features=2).guarantee
        said = guarantee.sentence
        factor = float(said.split("a factor of ")[1].split(" ")[0])
        assert factor >= np.exp(guarantee.epsilon) * (1 - 1e-12)
        assert float(said.split("(ε = ")[1].split(")")[0]) >= guarantee.epsilon
        assert float(str(guarantee).split("-DP")[0]) >= guarantee.epsilon


def test_a_full_disk_leaves_the_place_to_the_label_that_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, model = Full(monkeypatch), make(**PEOPLE, deadline=1, missing="no")
    model.save(tmp_path / "state", trusted=True)
    model.predict([1, 0], unit="ann")
    disk.full = True
    for _ in range(2):
        with pytest.raises(StateError, match="could not be written"):
            model.predict([2, 0], unit="bob")
    disk.full = False
    model.predict([2, 0], unit="bob")
    assert [x for x, _ in heard(model)] == [(1.0, 0.0)] and model.past_cap == 0
    model.close()
