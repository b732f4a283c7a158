"""Labels alone: a label is randomized once, written down before it is taught, and kept nowhere.

Statistical tests run on fixed seeds or state their false-alarm rate.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import linear_model, preprocessing, tree
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from confide import POP, TicketError, evaluate
from confide.errors import StateError
from confide.labels.models import Doubled
from confide.pop.base import Durable, Mechanism
from confide.pop.randomized import Randomized

pytestmark = pytest.mark.claim("labels.md")

LABELS = ["no", "yes"]


class Last:
    """Repeats the last label that it was taught: it shows what came out."""

    def __init__(self) -> None:
        self.said: Any = None

    def predict(self, x: Any) -> Any:
        return self.said

    def learn(self, x: Any, y: Any) -> None:
        self.said = y


class Listening:
    """Writes down all that it is taught."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, Any]] = []

    def predict(self, x: Any) -> Any:
        return "no"

    def learn(self, x: Any, y: Any) -> None:
        self.heard.append((tuple(x), y))


def make(learner: Any = None, **options: Any) -> Randomized:
    settings = {"labels": LABELS, "epsilon": 1.0, "features": 2, "seed": 1, **options}
    return Randomized(learner, **settings)


MODELS: dict[str, Callable[[], Any]] = {
    "our own": lambda: None,
    "River's tree": tree.HoeffdingTreeClassifier,
    "River's pipeline": lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    "partial_fit": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "an own class": Last,
}
every = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def rows(n: int, seed: int = 0) -> tuple[Any, Any]:
    xs = np.random.default_rng(seed).normal(size=(n, 2))
    return xs, np.where(xs[:, 0] > 0, "yes", "no").tolist()


@every
def test_it_is_a_mechanism(model: Callable[[], Any]) -> None:
    mechanism = make(model())
    assert isinstance(mechanism, Mechanism) and isinstance(mechanism, Durable)
    answer = mechanism.predict([1.0, 2.0])
    assert answer.label in LABELS and answer.ticket and mechanism.rounds == 1
    with pytest.raises(ValueError, match="label"):
        mechanism.learn(answer.ticket, "maybe")
    mechanism.learn(answer.ticket, "yes")
    for y in LABELS:
        with pytest.raises(TicketError, match="used"):
            mechanism.learn(answer.ticket, y)
    with pytest.raises(TicketError):
        mechanism.learn("nonsense", "yes")
    for x in (None, "text", [1.0], object()):
        with pytest.raises(ValueError):
            mechanism.predict(x)
    assert mechanism.rounds == 5 and mechanism.state == "live" and mechanism.halt_reason is None
    answers = mechanism.predict_many([[1.0, 2.0], None, [0.5, 0.5]])
    assert [a.error is None for a in answers] == [True, False, True]
    with pytest.raises(ValueError, match="row 1 was refused"):
        mechanism.learn_many([answers[0].ticket, "nonsense", answers[2].ticket], ["yes", "yes", "no"])
    with pytest.raises(ValueError, match="row 1 was refused"):
        mechanism.teach_many([[1.0, 2.0], None, [1.0, 1.0]], ["yes", "yes", "no"])


@every
def test_many_rows_are_as_one_by_one(model: Callable[[], Any]) -> None:
    xs, ys = rows(700)
    one, many = make(model()), make(model())
    result = evaluate(many, xs, ys)
    singly = []
    for x, y in zip(xs, ys, strict=True):
        answer = one.predict(x)
        singly.append(answer.label)
        one.learn(answer.ticket, y)
    assert [LABELS[i] for i in result.answers] == singly
    assert one.rounds == many.rounds and one.frequencies == many.frequencies


@every
def test_it_learns_although_labels_lie(model: Callable[[], Any]) -> None:
    if model is Last:
        pytest.skip("it repeats")
    xs, ys = rows(4000)
    assert evaluate(make(model(), epsilon=2.0), xs, ys).error_after(0.5) < 0.1


def test_it_promises_what_its_integers_cost_and_says_what_is_not_protected() -> None:
    mechanism = make(units="people", unit_labels=3, seed=None)
    guarantee = mechanism.guarantee
    assert guarantee.delta == 0.0 and 0.999 < guarantee.epsilon <= 1.0 and guarantee.secure
    assert 3 * mechanism.response.cost() <= guarantee.epsilon
    assert "rows, and whether and when a label came, are not" in guarantee.sentence
    assert "challenge" not in str(guarantee)
    assert not make().guarantee.secure
    due = make(deadline=5, missing="no").guarantee
    assert "within 5 rounds; rows are not" in due.sentence


def test_what_is_taught_is_what_came_out_and_nothing_else() -> None:
    """At a tiny ε the output is nearly a coin, whatever the label: were the true one taught, all would be "yes"."""
    mechanism = make(Listening(), epsilon=0.01)
    for i in range(400):
        mechanism.learn(mechanism.predict([i, 0]).ticket, "yes")
    heard = [y for _, y in mechanism.model.learner.heard]
    assert len(heard) == 400 and 120 < heard.count("yes") < 280


def test_a_label_past_a_persons_cap_is_refused_for_life(tmp_path: Path) -> None:
    options: dict[str, Any] = {"units": "people", "unit_labels": 2}
    mechanism = make(**options)
    mechanism.save(tmp_path / "state")
    for x in range(2):
        mechanism.learn(mechanism.predict([x, 0], unit="ann").ticket, "yes")
    mechanism.forget("ann")
    for y in LABELS:
        with pytest.raises(ValueError, match="2 labels are taken, for life"):
            mechanism.teach([5, 0], y, unit="ann")
    mechanism.learn(mechanism.predict([1, 0], unit="bob").ticket, "no")
    mechanism.close()
    again = Randomized.load(tmp_path / "state", labels=LABELS, epsilon=1.0, features=2, seed=2, **options)
    with pytest.raises(ValueError, match="for life"):
        again.teach([5, 0], "no", unit=b"ann")
    followed = again.follow_many([[0, 0]] * 3, np.array([1, 1, 1]), ["ann", "bob", "bob"])
    assert (followed.answers >= 0).all() and sum(again._taken.values()) == 4
    again.close()


def test_labels_that_wait_together_do_not_pass_a_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two open questions of one person: with a deadline, and with a disk that was full for both."""
    due = make(Listening(), units="people", deadline=3, missing="no")
    tickets = [due.predict([i, 0], unit="ann").ticket for i in range(2)]
    for ticket in tickets:
        due.learn(ticket, "yes")
    for i in range(4):
        due.predict([9, 9], unit=f"other {i}")
    heard = [x for x, _ in due.model.learner.heard]  # type: ignore[attr-defined]
    assert heard == [(0.0, 0.0), (9.0, 9.0)]
    disk, model = Full(monkeypatch), make(Listening(), units="people")
    model.save(tmp_path / "state", trusted=True)
    tickets, disk.full = [model.predict([i, 0], unit="ann").ticket for i in range(2)], True
    with pytest.raises(StateError, match="could not be written"):
        model.learn(tickets[0], "yes")
    with pytest.raises(ValueError, match="for life"):  # the place is the first one's, which may still be written
        model.learn(tickets[1], "yes")
    disk.full = False
    model.learn(tickets[0], "yes")
    assert len(model.model.learner.heard) == 1  # type: ignore[attr-defined]
    model.close()


class Full:
    """A disk that is full now and then: `os.write` fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self._write = False, os.write
        monkeypatch.setattr("confide.labels.journal.os.write", self.write)

    def write(self, file: int, body: Any) -> int:
        if self.full:
            self._write(file, bytes(body)[:7])
            raise OSError(28, "No space left on device")
        return self._write(file, body)


def test_a_label_that_could_not_be_written_is_told_again_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty tries, with the other label too: one output. A draw anew would be alike with probability 2⁻²⁰."""
    disk = Full(monkeypatch)
    mechanism = make(Listening(), epsilon=0.01)
    mechanism.save(tmp_path / "state", trusted=True)
    answer = mechanism.predict([1, 0])
    disk.full, drawn = True, set()
    for turn in range(20):
        with pytest.raises(StateError, match="could not be written"):
            mechanism.learn(answer.ticket, LABELS[turn % 2])
        drawn |= {asked.out for _, asked in mechanism._tickets}  # type: ignore[attr-defined]
        assert mechanism.model.learner.heard == [], "written before it is taught"
    disk.full = False
    mechanism.learn(answer.ticket, "yes")
    assert len(drawn) == 1 and [LABELS[i] for i in drawn] == [y for _, y in mechanism.model.learner.heard]
    with pytest.raises(TicketError):
        mechanism.learn(answer.ticket, "yes")
    mechanism.close()


@every
def test_what_was_written_is_taught_after_a_crash_and_never_drawn_again(
    model: Callable[[], Any], tmp_path: Path
) -> None:
    xs, ys = rows(80)
    options = {"labels": LABELS, "epsilon": 1.0, "features": 2}
    first = make(model())
    first.save(tmp_path / "state", trusted=True)
    for x, y in zip(xs[:40], ys[:40], strict=True):
        first.learn(first.predict(x).ticket, y)
    first.follow_many(xs[40:], np.array([LABELS.index(y) for y in ys[40:]]))
    waiting = first.predict(xs[0])
    first.close()  # nothing was saved since
    again = Randomized.load(tmp_path / "state", model(), trusted=True, **options)
    assert again.frequencies == first.frequencies and again.rounds == 80
    assert again.predict(xs[3]).label == first.predict(xs[3]).label
    with pytest.raises(TicketError):
        again.learn(waiting.ticket, "yes")
    again.close()


def test_a_state_of_one_promise_is_not_loaded_as_another(tmp_path: Path) -> None:
    mechanism = make()
    mechanism.save(tmp_path / "state")
    with pytest.raises(StateError):
        Randomized.load(tmp_path / "state", labels=LABELS, epsilon=1.0, features=2)  # it is in use
    mechanism.close()
    for options in ({"epsilon": 2.0}, {"labels": ["a", "b", "c"]}, {"units": "people", "unit_labels": 2}):
        with pytest.raises(StateError, match="another promise"):
            Randomized.load(tmp_path / "state", **{"labels": LABELS, "epsilon": 1.0, "features": 2, **options})
    with pytest.raises(StateError):
        POP.load(tmp_path / "state")
    with pytest.raises(StateError, match="trusted"):
        make(Last()).save(tmp_path / "other")


def test_before_its_deadline_a_label_changes_nothing() -> None:
    """Two worlds: in one the label comes, in the other it does not. Until the deadline nothing differs but the draw."""
    worlds = [make(Listening(), deadline=3, missing="no", epsilon=9.0) for _ in range(2)]
    tickets = [world.predict([1, 0]).ticket for world in worlds]
    worlds[0].learn(tickets[0], "yes")
    for _ in range(2):
        for world in worlds:
            world.predict([2, 0])
    assert [world.model.learner.heard for world in worlds] == [[], []]
    for world in worlds:
        world.predict([3, 0])
    assert [world.model.learner.heard for world in worlds] == [[((1.0, 0.0), "yes")], [((1.0, 0.0), "no")]]
    with pytest.raises(TicketError, match="expired"):
        worlds[1].learn(tickets[1], "yes")


def test_an_unreadable_label_is_not_quoted() -> None:
    mechanism = make()
    answer = mechanism.predict([0, 0])
    for y in ("a secret diagnosis", ["unhashable"], None, object()):
        with pytest.raises(ValueError) as told:
            mechanism.learn(answer.ticket, y)
        assert "secret" not in str(told.value) and told.value.__cause__ is None
    mechanism.learn(answer.ticket, "yes")


def test_when_a_model_is_refitted_depends_on_how_many_labels_came_alone() -> None:
    fits: list[list[int]] = []
    for label in LABELS:
        mechanism = make(LogisticRegression())
        model, moments = mechanism.model, list[int]()
        assert isinstance(model, Doubled)
        original = model._fit
        model._fit = lambda m=moments, o=original, k=model: (m.append(k.taught), o())[1]  # type: ignore[method-assign]
        mechanism.follow_many(np.ones((300, 2)), np.full(300, LABELS.index(label)))
        fits.append(moments)
    assert fits[0] == fits[1] == [64, 128, 256]


def test_a_pipeline_with_a_one_hot_encoder_takes_dicts() -> None:
    encoder = ColumnTransformer([("city", OneHotEncoder(handle_unknown="ignore"), ["city"])], remainder="passthrough")
    model = Randomized(make_pipeline(encoder, LogisticRegression()), labels=LABELS, epsilon=3.0, seed=1)
    xs = [{"city": ("Rome", "Oslo", "Bern")[i % 3], "age": float(i % 50)} for i in range(600)]
    result = evaluate(model, xs, ["yes" if x["city"] == "Oslo" else "no" for x in xs])
    assert result.error_after(0.5) < 0.05 and model.failures.lessons == 0
    told = model.predict(xs[1])
    assert told.label == "yes" and told.probabilities is not None
    assert sum(told.probabilities.values()) == pytest.approx(1.0)


def test_rare_labels_are_not_lost_and_frequencies_are_unbiased() -> None:
    """Five labels, one of which has 80 %: whose outputs are 43 %, and an own model still tells the others apart."""
    rng = np.random.default_rng(1)
    ys = rng.choice(5, 20_000, p=[0.8, 0.1, 0.05, 0.03, 0.02])
    xs = np.eye(5)[ys] + rng.normal(0, 0.1, (20_000, 5))
    model = Randomized(labels=range(5), epsilon=1.5, features=5, seed=1)
    result = evaluate(model, xs, ys)
    assert result.error_after(0.5) < 0.01
    assert list(model.frequencies.values()) == pytest.approx([0.8, 0.1, 0.05, 0.03, 0.02], abs=0.03)


def test_our_own_probabilities_are_calibrated() -> None:
    """Of answers that are said with probability p so many are right, within 5 hundredths on average."""
    rng = np.random.default_rng(2)
    xs = rng.normal(size=(20_000, 3))
    true = 1 / (1 + np.exp(-2 * xs[:, 0]))
    ys = (rng.random(20_000) < true).astype(np.int64)
    model = Randomized(labels=[0, 1], epsilon=1.0, features=3, seed=3)
    model.follow_many(xs[:16_000], ys[:16_000])
    said = np.array([model.predict(x).probabilities[1] for x in xs[16_000:16_600]])  # type: ignore[index]
    assert np.abs(said - true[16_000:16_600]).mean() < 0.08


def test_it_is_neither_copied_nor_used_by_a_fork() -> None:
    with pytest.raises(TypeError, match="save"):
        make().__reduce__()
    mechanism = make()
    mechanism._pid += 1
    with pytest.raises(RuntimeError):
        mechanism.predict([0, 0])


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_exact_advantage_is_reached_and_not_passed(epsilon: float) -> None:
    """A model that repeats what it was taught shows the output whole: 4000 games a bit, 6 standard errors."""
    shown = []
    for label in LABELS:
        mechanism = make(Last(), epsilon=epsilon, seed=5)
        mechanism.response  # noqa: B018
        count = 0
        for _ in range(4000):
            mechanism.learn(mechanism.predict([0, 0]).ticket, label)
            count += mechanism.model.learner.said == "yes"
        shown.append(count / 4000)
    exact = math.expm1(epsilon) / (math.exp(epsilon) + 1)
    assert abs(shown[1] - shown[0] - exact) < 6 * math.sqrt(0.5 / 4000)


@pytest.mark.parametrize("ys", [[0], [0, 2], [0, -2], [[0], [1]]])
def test_rows_without_one_label_each_are_refused_before_any_round_is_taken(ys: Any) -> None:
    model = Randomized(labels=LABELS, epsilon=1.0, features=2, seed=1)
    with pytest.raises(ValueError, match="for each row"):
        model.follow_many(np.ones((2, 2)), np.array(ys))
    assert model.rounds == 0


def test_a_batch_that_is_cut_off_has_taken_its_rounds_and_caps_before_anything_is_taught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who goes on at `model.rounds` brings no label a second time: two draws of one label would cost twice."""
    model = Randomized(labels=LABELS, epsilon=1.0, features=2, units="people", seed=1)

    def cut_off(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(model.model, "follow", cut_off)
    with pytest.raises(KeyboardInterrupt):
        model.follow_many(np.ones((3, 2)), np.array([0, 1, 1]), ["ann", "bob", "carl"])
    monkeypatch.undo()
    assert model.rounds == 3
    for name in ("ann", "bob", "carl"):
        with pytest.raises(ValueError, match="for life"):
            model.teach([1.0, 1.0], "yes", name)


def test_half_a_label_is_none_and_takes_no_round() -> None:
    model = Randomized(None, labels=["no", "yes"], epsilon=1.0, features=2, seed=1)
    with pytest.raises(ValueError, match="give one number"):
        model.follow_many([[1.0, 2.0]] * 3, np.array([0.0, 0.5, 1.0]))  # type: ignore[arg-type]
    assert model.rounds == 0
