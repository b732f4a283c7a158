"""Labels alone as a stranger finds it: what is said is true, models that fail are seen, and numbers are possible."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import linear_model, preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from typer.testing import CliRunner

import confide
from confide import Plan
from confide.cli.app import app
from confide.errors import ConfideWarning
from confide.labels.default import Default
from confide.labels.models import Doubled
from confide.privacy.response import Response
from tests.label_pops import LABELS, Last, alone, part

pytestmark = pytest.mark.claim("labels.md")


def flat(said: str) -> str:
    return " ".join(said.replace("│", " ").split())


def ran(folder: Path, rows: list[str], *options: str) -> tuple[int, str, dict[str, Any]]:
    """The exit code of a run of these rows, what it says, and the report's numbers."""
    (folder / "rows.csv").write_text("\n".join(rows) + "\n")
    report = folder / "report.html"
    given = ["run", str(folder / "rows.csv"), "--label", "y", "--protect", "labels", "--report", str(report), *options]
    told = CliRunner().invoke(app, given, catch_exceptions=False)
    return told.exit_code, flat(told.output), json.loads(report.with_suffix(".json").read_text())


# ---------------------------------------------------------------------- what a run advises


def test_a_run_that_drowns_in_noise_is_told_so_and_not_to_look_for_columns(tmp_path: Path) -> None:
    """One label in forty is rare, and the twin hardly beats the other one: the run errs far more than both."""
    coins = random.Random(3)
    rows = ["who,a,y"] + [f"p{i % 60},{coins.random():.3f},{'bad' if i % 40 == 0 else 'good'}" for i in range(2000)]
    _, said, numbers = ran(tmp_path, rows, "--unit", "who", "--unit-labels", "100", "--seed", "1")
    own = numbers["operator_only"]
    assert own["late_error"] > 4 * own["late_frequent_error"]
    assert "better columns" not in said
    assert "take fewer labels of each person (--unit-labels), each with less noise" in said
    assert "or take a larger --epsilon" in said and "the noise is what costs" in said


@pytest.mark.filterwarnings("always:your model raised")
def test_a_run_whose_learner_always_failed_says_so_and_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    body = "class Raises:\n    def predict(self, x): raise KeyError\n    def learn(self, x, y): raise KeyError\n"
    (tmp_path / "own_always_raises.py").write_text(body)
    rows = ["a,y"] + [f"{i % 7},{'yes' if i % 7 > 3 else 'no'}" for i in range(400)]
    code, said, numbers = ran(tmp_path, rows, "--learner", "own_always_raises:Raises")
    assert code == 3
    assert "The learner failed" in said and "better columns" not in said
    assert not numbers["operator_only"]["verdict"]


# ---------------------------------------------------------------------- promises that are of no use


@pytest.mark.parametrize(
    ("epsilon", "labels", "options"),
    [(0.001, 2, {}), (1.0, 2, {"units": "people", "unit_labels": 100}), (1.0, 200, {})],
    ids=["tiny", "many labels of a person", "many labels"],
)
def test_a_plan_whose_labels_say_next_to_nothing_warns(epsilon: float, labels: int, options: Any) -> None:
    plan = Plan.labels_alone(epsilon, labels, **options)
    assert any("little is learned; take a larger epsilon" in line for line in plan.warnings)
    assert "! a label comes out as it is in" in str(plan)


@pytest.mark.parametrize(("epsilon", "labels"), [(1.0, 2), (0.3, 2), (1.0, 23), (1.0, 10), (4.0, 200)])
def test_a_plan_whose_labels_say_something_does_not(epsilon: float, labels: int) -> None:
    assert not any("little" in line for line in Plan.labels_alone(epsilon, labels).warnings)


def test_the_number_of_labels_that_is_said_is_enough_and_a_tenth_is_not() -> None:
    """Rows of two kinds, at ε = 0.05: after so many labels a count tells each kind's label, 19 times of 20."""
    response = Response.best(0.05, labels=2)
    named: Any = Plan.labels_alone(0.05, 2).parts[0]
    right = []
    for each in (int(named.enough / 2), int(named.enough / 20)):
        came = np.random.default_rng(1).binomial(each, response.truth, size=2000)
        right.append(float((2 * came > each).mean()))
    assert right[0] > 0.95 and right[1] < 0.8


def test_it_is_said_once_when_it_is_made_and_before_a_run(tmp_path: Path) -> None:
    with pytest.warns(ConfideWarning, match="little is learned") as told:
        confide.Private(labels=LABELS, epsilon=0.001, protect="labels")
    assert len(told) == 1
    rows = ["a,y"] + [f"{i % 7},{'yes' if i % 7 > 3 else 'no'}" for i in range(200)]
    _, said, _ = ran(tmp_path, rows, "--epsilon", "0.001", "--no-twin")
    assert said.count("little is learned") == 1
    planned = ["plan", "--protect", "labels", "--units", "people", "--unit-labels", "100"]
    shown = flat(CliRunner().invoke(app, planned).output)
    assert "! a label comes out as it is in" in shown and "fewer labels of each person" in shown


# ---------------------------------------------------------------------- probabilities


def said_and_right(epsilon: float, rows: int, coin: bool) -> tuple[Any, Any]:
    rng, response = np.random.default_rng(2), Response.best(epsilon, labels=2)
    xs, model = rng.random((rows, 1)), Default(1, response)
    ys = rng.integers(0, 2, rows) if coin else (xs[:, 0] > 0.5).astype(np.int64)
    outs = response.draw_many(ys, rng.integers(0, 2**64, rows, dtype=np.uint64))
    told = model.follow_probabilities(model.read_many(xs), outs)
    return told.max(axis=1), told.argmax(axis=1) == ys


@pytest.mark.parametrize("epsilon", [0.001, 0.05, 1.0])
def test_where_nothing_can_be_learned_nothing_is_said_for_sure(epsilon: float) -> None:
    told, right = said_and_right(epsilon, 6000, coin=True)
    assert told[2400:].mean() < right[2400:].mean() + 0.06


def test_what_was_learned_is_said_as_before() -> None:
    for epsilon in (1.0, 4.0):
        told, right = said_and_right(epsilon, 6000, coin=False)
        assert right[3000:].mean() > 0.97 and told[3000:].mean() > 0.95


def test_after_a_few_very_noisy_labels_all_are_nearly_equally_likely() -> None:
    model = alone(units="people", unit_labels=20, seed=4)
    for i in range(3):
        model.learn(model.predict([float(i), 1.0], unit=f"p{i}").ticket, "yes")
    assert all(abs(p - 0.5) < 0.06 for p in model.probabilities([1.0, 1.0]).values())


def test_the_likeliest_label_and_every_bit_stay_in_batches_and_after_a_load() -> None:
    rng, response = np.random.default_rng(5), Response.best(0.2, labels=3)
    xs, outs = rng.random((700, 2)), rng.integers(0, 3, 700)
    one, many, again = (Default(2, response) for _ in range(3))
    whole = many.follow_probabilities(many.read_many(xs), outs)
    single = []
    for x, out in zip(xs, outs.tolist(), strict=True):
        row = one.read(x)
        single.append(one.answer(row)[1])
        one.teach(row, out)
    assert (np.array(single) == whole).all() and np.allclose(whole.sum(axis=1), 1.0)
    again.restore(many.state())
    assert (again.answer(again.read(xs[0]))[1] == many.answer(many.read(xs[0]))[1]).all()
    old = {name: value for name, value in many.state().items() if name != "model/3"}
    with pytest.raises(ValueError, match="another version"):
        again.restore(old)


# ---------------------------------------------------------------------- models that fail


class Says:
    """Learns anything, and answers this."""

    def __init__(self, said: Any = None) -> None:
        self.said = said

    def predict(self, x: Any) -> Any:
        return self.said

    def learn(self, x: Any, y: Any) -> None:
        return


@pytest.mark.parametrize("said", ["YES", 1, np.array(["yes"]), {"yes": 1.0}], ids=lambda said: type(said).__name__)
@pytest.mark.parametrize("batch", [False, True])
def test_a_model_that_answers_no_label_is_told_so_and_stands_so(said: Any, batch: bool) -> None:
    pop = alone(Says(said), seed=1)
    words = rf"none of the labels \['no', 'yes'\], but a value of type {type(said).__name__}"
    with pytest.warns(ConfideWarning, match=words) as told:
        if batch:
            pop.follow_many(np.ones((100, 2)), np.ones(100, dtype=np.int64))
        else:
            for _ in range(100):
                pop.learn(pop.predict([1.0, 1.0]).ticket, "yes")
    assert len(told) == 1 and "YES" not in str(told[0].message)
    assert pop.operator.failures[:4] == (100, 0, 100, 0)
    assert pop.standing == "live, but your model has failed to answer any question"


def test_a_model_that_raises_on_every_question_stands_so() -> None:
    class Mute(Last):
        def predict(self, x: Any) -> Any:
            raise ArithmeticError

    pop = alone(Mute(), seed=1)
    with pytest.warns(ConfideWarning, match="raised ArithmeticError, when it was asked"):
        for _ in range(100):
            pop.learn(pop.predict([1.0, 1.0]).ticket, "yes")
    assert "failed to answer any question" in pop.standing and pop.operator.failures.raised == 100


class Blind(GaussianNB):
    """Tells probabilities that are none, once it was taught."""

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), 2), np.nan)


@pytest.mark.parametrize("batch", [False, True])
def test_probabilities_that_are_no_numbers_are_failures_of_their_own_rows(batch: bool) -> None:
    pop = alone(Blind(), seed=1)
    pop.learn(pop.predict([1.0, 1.0]).ticket, "yes")
    with pytest.warns(ConfideWarning, match="raised ValueError, when it was asked"):
        answers = pop.predict_many(np.ones((80, 2))) if batch else [pop.predict([1.0, 1.0]) for _ in range(80)]
    assert {answer.source for answer in answers} == {"fallback"} and pop.operator.failures.raised == 80
    assert "failed to answer any question" in pop.standing


def test_a_model_that_answered_once_is_not_said_to_have_failed() -> None:
    pop, model = alone(model := Says("yes"), seed=1), model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfideWarning)
        for i in range(100):
            part(pop).model.learner.said = "yes" if i < 5 else "YES"  # type: ignore[attr-defined]
            pop.learn(pop.predict([1.0, 1.0]).ticket, "yes")
    assert pop.standing == "live"


@pytest.mark.parametrize("batch", [False, True])
def test_a_model_that_has_learned_nothing_answers_nothing(batch: bool) -> None:
    """A scaler fails on words, and the regression behind it would say 0.5 for ever."""
    pop = alone(preprocessing.StandardScaler() | linear_model.LogisticRegression(), features=None, seed=1)
    x = {"km": 3.0, "fuel": "diesel"}
    with pytest.warns(ConfideWarning, match="your model raised"):
        if batch:
            found = pop.follow_many([x] * 50, np.ones(50, dtype=np.int64))
            sources = {confide.pop.base.SOURCES[i] for i in found.source}
        else:
            sources = set()
            for _ in range(50):
                answer = pop.predict(x)
                sources.add(answer.source)
                pop.learn(answer.ticket, "yes")
    assert sources == {"fallback"} and "failed to learn anything" in pop.standing


@pytest.mark.parametrize("kind", [LogisticRegression, GaussianNB, linear_model.LogisticRegression, Last])
def test_a_class_instead_of_a_model_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__} is a class: give one made of it"):
        confide.Private(kind, labels=LABELS, epsilon=1.0, protect="labels")


class Odd(LogisticRegression):
    """Tells probabilities of something else than what it was taught."""

    @property
    def classes_(self) -> Any:
        return np.array(["a", "b"])

    @classes_.setter
    def classes_(self, classes: Any) -> None:
        return


# ---------------------------------------------------------------------- many rows at once


def encoded(estimator: Any) -> Any:
    return make_pipeline(ColumnTransformer([("c", OneHotEncoder(handle_unknown="ignore"), ["city"])]), estimator)


class Counting(LogisticRegression):
    asked: list[int] = []  # noqa: RUF012

    def predict_proba(self, X: Any) -> Any:
        self.asked.append(X.shape[0])
        return super().predict_proba(X)


def grown(model: Callable[[], Any], rows: list[Any], **options: Any) -> Any:
    pop = alone(model(), features=None, epsilon=4.0, seed=2, **options)
    for i, x in enumerate(rows):
        pop.learn(pop.predict(x).ticket, LABELS[i % 3 == 0])
    return pop


def test_a_table_is_asked_at_once_and_a_bad_row_spoils_itself_alone() -> None:
    rows: list[Any] = [{"city": ("Rome", "Oslo", "Bern")[i % 3]} for i in range(70)]
    pop = grown(lambda: encoded(Counting()), rows)
    single = [pop.predict(x) for x in rows[:9]]
    Counting.asked.clear()
    many = pop.predict_many(rows[:9])
    assert Counting.asked == [9]
    assert [answer.label for answer in many] == [answer.label for answer in single]
    for one, other in zip(single, many, strict=True):
        assert one.source == other.source == "model"
        assert other.probabilities == pytest.approx(one.probabilities)
    assert len({answer.ticket for answer in many}) == 9
    with pytest.warns(ConfideWarning, match="your model raised"), pytest.warns(ConfideWarning, match="1 of 4"):
        mixed = pop.predict_many([rows[0], None, {"other": 1.0}, rows[1]])
    assert [answer.source for answer in (mixed[0], mixed[2], mixed[3])] == ["model", "fallback", "model"]
    assert mixed[1].error is not None and pop.operator.failures.raised == 1
    pop.learn_many([mixed[0].ticket, mixed[3].ticket], ["yes", "no"])


def test_rows_of_arrays_are_asked_at_once_too() -> None:
    rows = list(np.random.default_rng(1).normal(size=(70, 2)))
    pop = grown(GaussianNB, rows)
    single, many = [pop.predict(x) for x in rows[:9]], pop.predict_many(rows[:9])
    for one, other in zip(single, many, strict=True):
        assert one.label == other.label and other.probabilities == pytest.approx(one.probabilities)


def test_a_model_that_tells_of_other_labels_than_it_was_taught_gives_none() -> None:
    model = Doubled(Odd(), ["no", "maybe", "yes"], Response.best(4.0, 3))
    with pytest.warns(ConfideWarning, match="none of the labels"):
        for i in range(70):
            row = model.read([float(i % 3)])
            assert model.answer(row) == (-1, None)
            model.teach(row, i % 3)
    assert model.failures.no_label == 6


# ---------------------------------------------------------------------- numbers and words


def test_an_estimate_is_possible_or_not_known_yet() -> None:
    found = part(alone(epsilon=0.05))
    assert found.wrongs(20, 15) is None and found.wrongs(0, 0) is None
    sure = part(alone(epsilon=1.0))
    assert sure.wrongs(20, 20) == 20.0 and sure.wrongs(20, 0) == 0.0
    assert sure.wrongs(100, 50) == pytest.approx(50.0)


def test_the_ledger_says_how_many_of_a_persons_labels_were_used(tmp_path: Path) -> None:
    pop = alone(units="people", unit_labels=3, epsilon=3.0)
    pop.save(tmp_path / "state")
    for who in ("ann", "ann", "bob", "carl", "carl", "carl"):
        pop.learn(pop.predict([1.0, 1.0], unit=who).ticket, "yes")
    pop.close()
    told = {
        name: flat(CliRunner().invoke(app, ["ledger", str(tmp_path / "state"), *more], catch_exceptions=False).output)
        for name, more in (("all", []), ("ann", ["--person", "ann"]), ("dora", ["--person", "dora"]))
    }
    assert "labels 2 of 3 used; 1 more of theirs are taken" in told["ann"] and "ε = 2 of 3 so far" in told["ann"]
    assert "labels 0 of 3 used; 3 more of theirs are taken" in told["dora"]
    assert "people 3 who brought labels, of whom 1 have used all" in told["all"]


def test_names_and_numbers_in_refusals_are_those_that_were_given() -> None:
    with pytest.raises(ValueError, match="labels_per_person"):
        confide.Private(labels=LABELS, epsilon=1.0, protect="labels", people=True, labels_per_person=0)
    plan = Plan.labels_alone(1000.0, 2)
    said = next(line for line in plan.warnings if "64 bits" in line).removesuffix(" at most").rpartition(" ")[2]
    assert str(plan.guarantee).startswith(f"{said}-DP")
    shown = flat(CliRunner().invoke(app, ["plan", "-T", "20000", "-e", "4", "--unit-labels", "3"]).output)
    assert "errs less where a person brings few labels" in shown
