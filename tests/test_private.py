"""The front: what most people need in a few lines, and a refusal where they would get something else."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import naive_bayes, tree

import confide
from confide._checks import all_labels
from confide.errors import ConfideWarning
from confide.learners import Features
from confide.private import Options


def taught(model: confide.Private, rounds: int = 1500) -> confide.Private:
    for i in range(rounds):
        answer = model.predict({"a": i % 7 - 3.0})
        model.learn(answer.ticket, "yes" if i % 7 > 3 else "no")
    return model


def make(**more: Any) -> confide.Private:
    columns = Features(numeric={"a": (-3, 3)})
    return confide.Private(labels=["no", "yes"], epsilon=4.0, features=columns, rounds=2000, **more)


def test_without_a_learner_our_own_model_answers_and_says_how_likely() -> None:
    model = taught(make(seed=1))
    answer = model.predict({"a": 3.0})
    assert (answer.label, answer.source) == ("yes", "guide")
    said = model.probabilities({"a": 3.0})
    assert set(said) == {"no", "yes"} and said["yes"] > 0.5 and sum(said.values()) == pytest.approx(1)
    assert not model.guarantee.secure and "seeded" in repr(model)


def test_a_learner_that_would_never_answer_is_refused_with_the_three_ways_on() -> None:
    with pytest.raises(ValueError, match="GaussianNB would never answer") as refused:
        confide.Private(naive_bayes.GaussianNB(), labels=[0, 1], epsilon=1.0, rounds=20_000)  # type: ignore[no-untyped-call]
    for way in ("leave the learner out", 'protect="labels"', "confide.POP"):
        assert way in str(refused.value)
    with pytest.raises(ValueError, match="planned for a number of rounds"):
        confide.Private(naive_bayes.GaussianNB(), labels=[0, 1], epsilon=1.0)  # type: ignore[no-untyped-call]


def test_what_it_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="no option 'people_labels'"):
        make(people_labels=2)
    with pytest.raises(ValueError, match="protect='nothing'"):
        make(protect="nothing")
    with pytest.raises(ValueError, match="labels must be two or more"):
        confide.Private(labels=["yes"], epsilon=1.0)
    with pytest.raises(ValueError, match="labels_per_person"):
        make(labels_per_person=2)
    with pytest.raises(ValueError, match="deadline has no meaning"):
        make(deadline=(10, "no"))
    with pytest.raises(ValueError, match="rounds has no meaning"):
        make(protect="labels")


def test_every_option_is_heeded() -> None:
    """Each changes the model, or is refused: none is accepted and ignored."""
    weights = {"yes": 2}
    rounds = make(people=True, labels_per_person=3, history=100, ticket_life=7, fallback="yes", label_weights=weights)
    assert rounds.plan.guide is not None and rounds.plan.guide.unit_labels == 3 and rounds.plan.guide.history == 100
    assert rounds.plan.rounds == 2000 and rounds.mechanism.units == "people"
    assert rounds.mechanism.label_weights == (1.0, 2.0)
    assert rounds.predict({"a": 0.0}, person="ann").label == "yes"
    watched = make(monitor=confide.Monitor(0.1))
    assert watched.guarantee.epsilon > make().guarantee.epsilon
    assert set(Options.__annotations__) == {
        "rounds", "labels_per_person", "per", "periods", "history", "label_weights", "fallback", "ticket_life",
        "monitor", "deadline", "seed",
    }  # fmt: skip


def test_people_come_with_their_names() -> None:
    model = make(people=True)
    with pytest.raises(ValueError):
        model.predict({"a": 1.0})
    assert model.predict({"a": 1.0}, person="ann").ticket


def test_it_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    with make() as model:
        taught(model, 200)
        model.save(tmp_path / "state")
        before = model.probabilities({"a": 3.0})
    with confide.Private.load(tmp_path / "state") as again:
        assert again.rounds == 200 and again.probabilities({"a": 3.0}) == before
        assert again.predict({"a": 3.0}).source == "guide"


def test_batches_and_history() -> None:
    model = make(history=300, seed=1)
    model.teach_many([{"a": i % 7 - 3.0} for i in range(300)], ["yes" if i % 7 > 3 else "no" for i in range(300)])
    answers = model.predict_many([{"a": 3.0}, {"a": -3.0}, {"a": "x"}])
    assert [bool(answer.error) for answer in answers] == [False, False, True]
    model.learn_many([answer.ticket for answer in answers[:2]], ["yes", "no"])
    assert model.rounds == 3


def test_it_explains_itself_in_words() -> None:
    said = make().explain()
    assert "Whatever a single round" in said and "linear model" in said


def test_when_its_rounds_are_over_it_says_so() -> None:
    model = make(seed=1)
    with pytest.warns(ConfideWarning, match="planned rounds are over"):
        for i in range(2002):
            model.predict({"a": i % 7 - 3.0})


# ------------------------------------------------------------------ labels alone


def labels_alone(learner: Any = None, **more: Any) -> confide.Private:
    return confide.Private(learner, labels=["no", "yes"], epsilon=2.0, protect="labels", **more)


def test_a_model_of_ones_own_is_taught_randomized_labels() -> None:
    model = taught(labels_alone(tree.HoeffdingTreeClassifier(), seed=1), 3000)  # type: ignore[no-untyped-call]
    assert model.predict({"a": 3.0}).label == "yes" and model.predict({"a": -3.0}).label == "no"
    assert model.protect == "labels" and model.guarantee.delta == 0 and "rows" in str(model.guarantee)
    assert "are not" in model.explain() and "HoeffdingTree" in model.explain()


def test_without_one_our_own_learns_from_them() -> None:
    model = taught(labels_alone(seed=1), 2000)
    assert model.predict({"a": 3.0}).label == "yes" and model.probabilities({"a": 3.0})["yes"] > 0.7


def test_what_is_for_rows_is_refused_there() -> None:
    for more in ({"history": 5}, {"fallback": "no"}, {"monitor": confide.Monitor(0.1)}, {"label_weights": [1, 2]}):
        with pytest.raises(ValueError, match="has no meaning"):
            labels_alone(**more)
    with pytest.raises(ValueError, match="leave delta out"):
        labels_alone(delta=1e-6)
    with pytest.raises(ValueError, match="the label that stands for a missing one"):
        labels_alone(deadline=(5, "maybe"))


def test_a_state_of_one_promise_is_never_loaded_as_the_other(tmp_path: Path) -> None:
    with labels_alone(features=Features(numeric=["a"])) as model:
        taught(model, 100)
        model.save(tmp_path / "labels")
    with make() as rows:
        rows.save(tmp_path / "rows")
    for name, other in (("labels", "rows"), ("rows", "labels")):
        with confide.Private.load(tmp_path / name) as again:
            assert again.protect == name and again.guarantee.brief.endswith("labels alone") == (name == "labels")
        with pytest.raises(confide.StateError, match=name):
            confide.Private.load(tmp_path / name, protect=other)
        confide.Private.load(tmp_path / name, protect=name).close()


def test_who_was_promised_something_is_promised_it_after_a_load(tmp_path: Path) -> None:
    """A cap that was lost, or people that became rounds, would spend labels a second time."""
    how: dict[str, Any] = {"features": Features(numeric=["a"]), "people": True, "deadline": (5, "no")}
    with labels_alone(**how) as model:
        model.predict({"a": 1.0}, person="ann")
        model.save(tmp_path / "state")
        before = model.guarantee
    with confide.Private.load(tmp_path / "state") as again:
        assert again.rounds == 1 and again.guarantee == before and "within 5 rounds" in str(before)
        again.predict({"a": 2.0}, person="ann")
        alone = again.operator.randomizing
        assert alone is not None and alone.over == 1


def test_whoever_has_few_people_hears_that_their_labels_do_not_count() -> None:
    few = make(people=True)
    with pytest.warns(ConfideWarning, match="from 40 people, .* 1 labels teach: 40 of 400.*labels_per_person"):
        few.predict_many([{"a": 1.0}] * 300, [f"p{i % 40}" for i in range(300)])
        for i in range(100):
            few.predict({"a": 1.0}, f"p{i % 40}")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the first 400")
        few.predict_many([{"a": 1.0}] * 500, [f"p{i % 40}" for i in range(500)])
        make(people=True).predict_many([{"a": 1.0}] * 500, [f"p{i % 200}" for i in range(500)])
        many = make(people=True, labels_per_person=5)
        many.predict_many([{"a": 1.0}] * 500, [f"p{i % 40}" for i in range(500)])


def test_refusals_name_what_this_caller_can_say() -> None:
    with pytest.raises(ValueError, match=r"confide.Private: person="):
        make(people=True).predict({"a": 1.0})
    model = make()
    with pytest.raises(ValueError, match="people=True"):
        model.predict({"a": 1.0}, "ann")
    with pytest.raises(ValueError, match=r"labels=\['no', 'yes'\]") as told:
        model.learn(model.predict({"a": 1.0}).ticket, "a secret")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"epsilon": 50.0}, "epsilon=50 is hardly a promise"),
        ({"epsilon": 0.01}, "epsilon=0.01 leaves .* take a larger epsilon"),
        ({"epsilon": 50.0, "protect": "labels"}, "drawn with 64 bits, so that it is 44"),
    ],
)
def test_python_hears_what_the_command_line_says_of_a_promise(more: dict[str, Any], words: str) -> None:
    with pytest.warns(ConfideWarning, match=words):
        confide.Private(labels=["no", "yes"], features=1, **more)


def test_a_promise_is_neither_changed_nor_misread() -> None:
    model = make()
    with pytest.raises(AttributeError):
        model.epsilon = 5  # type: ignore[attr-defined]
    front, under = confide.Private, confide.POP
    for made in (lambda: front(labels="yes", epsilon=1.0), lambda: under(None, model.plan, labels="no")):
        with pytest.raises(ValueError, match="a sequence of all labels"):
            made()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (2, 'must be a sequence of all labels, as ["no", "yes"], and not int'),
        (None, 'must be a sequence of all labels, as ["no", "yes"], and not NoneType'),
        ({"a", "b"}, "and not a set, which has no order"),
        (frozenset({"a", "b"}), "and not a set, which has no order"),
        ({"a": 1, "b": 2}, "and not a mapping"),
        ([None, 1], "None and NaN are no labels"),
        (["a", float("nan")], "None and NaN are no labels"),
        ([1, "1"], "1 and '1' are two labels that are written alike"),
        (["True", True], "'True' and True are two labels that are written alike"),
        ([["a"], ["b"]], "each must be a text, a number or a truth value, not list"),
    ],
)
def test_labels_that_cannot_be_meant_are_refused_in_words(labels: Any, words: str) -> None:
    for protect in ("rows", "labels"):
        with pytest.raises(ValueError, match=re.escape(words)):
            confide.Private(labels=labels, epsilon=1.0, features=2, protect=protect)  # type: ignore[arg-type]


def test_labels_that_can_be_meant_are_taken() -> None:
    for labels in (["a", 1], [False, True], np.array([0, 1]), range(3), (label for label in "ab"), [1, 2.5]):
        assert len(all_labels(labels)) >= 2
