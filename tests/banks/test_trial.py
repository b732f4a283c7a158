"""A learner is taught labels and returns labels; one that cannot be used is refused when it is given."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from river import feature_extraction, forest, linear_model, naive_bayes, neighbors, preprocessing, tree
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

import confide
from confide.banks import ReplicaBank, bank_for
from confide.banks.base import Failures
from confide.learners import DecisionTree, Features, LogisticRegression, Refit
from confide.privacy.random import Random

WORDS = ["no", "yes"]


@cache
def plan() -> confide.Plan:
    return confide.Plan.tight(20.0, 1e-2, 400, copies=40, unsure=100, silent=100, beta=1e-6, guide=None)


def given(learner: Any, labels: Any = WORDS, features: Any = 2) -> Any:
    return bank_for(learner, 5, labels, features, Random(seed=1))


class Remembers:
    """Answers the label that it was taught last."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def predict(self, x: Any) -> Any:
        return self.heard[-1] if self.heard else None

    def learn(self, x: Any, y: Any) -> None:
        self.heard.append(y)


def answers(said: Callable[[Any], Any]) -> Any:
    """A learner whose answer is computed from x alone."""
    return type("Answers", (Remembers,), {"predict": lambda self, x: said(x)})()


def raises(*_: Any) -> Any:
    raise ArithmeticError("always")


# ---------------------------------------------------------------------- refused


@pytest.mark.parametrize("features", [2, None, Features(numeric=["a", "b"])], ids=["number", "none", "declared"])
@pytest.mark.parametrize(
    "said", [lambda x: 1, lambda x: 0.5, lambda x: np.array(["yes"]), lambda x: "Yes", lambda x: {"yes": 0.9}]
)
def test_an_answer_that_is_no_label_is_refused_when_the_learner_is_given(said: Any, features: Any) -> None:
    with pytest.raises(ValueError, match=r"none of the labels 'no', 'yes': return the label itself"):
        given(answers(said), features=features)


def test_a_learner_that_always_raises_is_refused_when_it_is_given() -> None:
    with pytest.raises(ValueError, match=r"failed whenever .*ArithmeticError"):
        confide.POP(answers(raises), plan(), labels=WORDS, features=2)
    deaf = type("Deaf", (Remembers,), {"learn": raises})()
    with pytest.raises(ValueError, match=r"Deaf .* failed whenever"):
        given(deaf)
    half = type("Half", (), {"predict": lambda self: None, "learn": lambda self, x, y: None})()
    with pytest.raises(ValueError, match=r"Half .* failed whenever .*TypeError"):
        given(half)


@pytest.mark.parametrize("learner", [Remembers, GaussianNB, tree.HoeffdingTreeClassifier, DecisionTree])
def test_a_class_is_refused_with_what_to_give(learner: Any) -> None:
    with pytest.raises(ValueError, match=rf"is a class: give one made of it, {learner.__name__}\("):
        given(learner)


def test_a_subclass_of_confides_own_that_raises_is_refused() -> None:
    broken = type("Broken", (LogisticRegression,), {"vote": raises})()
    with pytest.raises(ValueError, match=r"Broken .* failed whenever"):
        given(broken)


def test_a_model_of_public_data_that_knows_other_labels_is_refused() -> None:
    xs, model = np.eye(2), GaussianNB()
    model.partial_fit(xs, [1, 2], classes=[1, 2])
    with pytest.raises(ValueError, match="other labels"):
        ReplicaBank(model, 5, [0, 1], 2, Random(seed=1), public_start=True)
    bank = ReplicaBank(model, 5, [2, 1], 2, Random(seed=1), public_start=True)
    assert bank.votes(bank.encode([1.0, 0.0]), np.arange(5)).tolist() == [0, 5]  # 1, which is the second label
    river = naive_bayes.GaussianNB()
    for i in range(20):
        river.learn_one({"a": float(i)}, 1)
    with pytest.raises(ValueError, match="something else than labels"):
        ReplicaBank(river, 5, WORDS, None, Random(seed=1), public_start=True)


# ---------------------------------------------------------------------- not refused


HONEST: dict[str, tuple[Any, Any]] = {
    "remembers": (Remembers(), 2),
    "takes dicts": (answers(lambda x: "yes" if x["age"] > 40 else "no"), None),
    "takes texts": (answers(lambda x: "yes" if "win" in x["text"].split() else None), None),
    "copies a feature": (answers(lambda x: x["last"]), None),
    "takes arrays": (answers(lambda x: WORDS[int(x[0] > 0)]), None),
    "fails on zeros": (answers(lambda x: WORDS[int(1 / x[0])]), 2),
    "needs neighbours": (KNeighborsClassifier(5), 3),
    "of text": (feature_extraction.BagOfWords(on="text") | naive_bayes.MultinomialNB(), None),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", HONEST)
def test_no_honest_learner_is_refused_or_warned_about(name: str) -> None:
    learner, features = HONEST[name]
    given(learner, features=features)


def test_where_nothing_is_known_of_the_rows_a_failure_is_a_warning_alone() -> None:
    seven = answers(lambda x: WORDS[int((np.ones(7) @ x) > 0)])
    with pytest.warns(confide.ConfideWarning, match="declare features="):
        given(seven, features=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given(seven, features=7)


def test_a_trial_leaves_no_trace() -> None:
    learner = Remembers()
    pop = confide.POP(learner, plan(), labels=WORDS, features=2, seed=1)
    assert learner.heard == [] and pop.operator.failures == Failures()
    assert pop.operator.bank.votes(pop.operator.bank.encode([0.0, 0.0]), np.arange(40)).sum() == 0


# ---------------------------------------------------------------------- labels, not their numbers


@pytest.mark.parametrize("labels", [["no", "yes"], [1, 0], [2, 1], [True, False], ["b", "a", "c"], [("x", 1), "y"]])
def test_own_learners_are_taught_the_labels_and_return_them(labels: list[Any]) -> None:
    bank = given(Remembers(), labels)
    x = bank.encode([0.0, 0.0])
    for copy, number in enumerate((0, 1, 1)):
        bank.learn(copy, x, number)
    assert [bank._replicas[copy].heard for copy in range(3)] == [[labels[0]], [labels[1]], [labels[1]]]
    assert bank.votes(x, np.arange(5)).tolist()[:2] == [1, 2]


SKLEARN = [GaussianNB(), MultinomialNB(), SGDClassifier(), SVC(), Refit(SVC(), memory=8)]
RIVER = [
    naive_bayes.GaussianNB(), tree.HoeffdingTreeClassifier(), linear_model.LogisticRegression(),
    forest.ARFClassifier(2, seed=1),
    preprocessing.StandardScaler() | linear_model.Perceptron(), neighbors.KNNClassifier(engine=neighbors.LazySearch()),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("labels", [["no", "yes"], [1, 0], [2, 1], [False, True], [1, "one"]], ids=str)
@pytest.mark.parametrize("model", [*SKLEARN, *RIVER], ids=lambda model: type(model).__name__)
def test_models_of_others_never_take_a_number_for_a_label(model: Any, labels: list[Any]) -> None:
    bank = given(model, labels)
    low, high = bank.encode([1.0, 9.0]), bank.encode([9.0, 1.0])
    for i in range(40):
        bank.learn(0, bank.encode((low, high)[i % 2] + np.array([i % 3, i % 5 / 2])), i % 2)
    assert bank.votes(low, np.array([0])).tolist() == [1, 0] and bank.votes(high, np.array([0])).tolist() == [0, 1]
    assert bank.failures.sentence == ""


def test_parameters_that_name_labels_mean_these_labels() -> None:
    rare = SGDClassifier(class_weight={"no": 1.0, "yes": 50.0}, random_state=1)
    bank = given(rare)
    for i in range(40):
        bank.learn(0, bank.encode([1.0, 1.0]), int(i % 8 == 0))
    assert bank.votes(bank.encode([1.0, 1.0]), np.array([0])).tolist() == [0, 1]
    with pytest.raises(ValueError, match="failed whenever"):
        given(MLPClassifier(hidden_layer_sizes=0))


# ---------------------------------------------------------------------- failures of a run


class Failing:
    """Fails on 8, answers no label on 7, does not learn 9."""

    pure = True

    def predict(self, x: Any) -> Any:
        if x[0] == 8:
            raise RuntimeError("the secret is 42")
        return 42 if x[0] == 7 else "no"

    def learn(self, x: Any, y: Any) -> None:
        if x[0] == 9:
            raise RuntimeError("the secret is 42")


def test_failures_are_counted_for_the_operator_alone(tmp_path: Any) -> None:
    pop = confide.POP(Failing(), plan(), labels=WORDS, features=1, fallback="no")
    pop.predict_many([[0.0]] * 100)
    pop.teach([9.0], "no")
    pop.teach_many([[9.0], [1.0]], ["no", "yes"])
    pop.predict([8.0])
    pop.predict_many([[7.0], [0.0]])
    assert pop.operator.failures == Failures(120, 40, 40, 2)
    said = pop.operator.failures.sentence
    assert "of 120 votes 40 were lost as it raised, 40 as it answered" in said and "2 labels were not learned" in said
    assert "failed" not in repr(pop) + pop._repr_html_() and "42" not in said
    pop.save(tmp_path / "pop")
    pop.close()
    with confide.POP.load(tmp_path / "pop", learner=Failing(), trusted=True) as again:
        assert again.operator.failures == Failures(120, 40, 40, 2)
        again.predict([8.0])
        assert again.operator.failures == Failures(160, 80, 40, 2)


def test_an_evaluation_says_how_often_the_learner_failed() -> None:
    pop = confide.POP(Failing(), plan(), labels=WORDS, features=1, fallback="no")
    done = confide.evaluate(pop, np.full((200, 1), 8.0), ["no"] * 200)
    assert done.failures == Failures(4000, 4000) and "the learner failed" in repr(done) + done._repr_html_()
    again = confide.evaluate(pop, np.full((100, 1), 1.0), ["no"] * 100)
    assert again.failures.sentence == "" and "failed" not in repr(again) + again._repr_html_()


def test_a_learner_that_stacks_and_raises_is_counted_too() -> None:
    """It is a subclass of Confide's own, and fails once it has learned."""

    class Breaks(LogisticRegression):
        def vote(self, arrays: Any, slots: Any, x: Any, counts: Any) -> None:
            if x[0] == 8:
                raise RuntimeError("the secret is 42")
            super().vote(arrays, slots, x, counts)

    pop = confide.POP(Breaks(), plan(), labels=WORDS, features=1, fallback="no")
    for _ in range(100):
        pop.learn(pop.predict([1.0]).ticket, "no")
    pop.predict([8.0])
    assert pop.operator.failures.raised > 10 and "the learner failed: of 40 votes" in pop.operator.failures.sentence
