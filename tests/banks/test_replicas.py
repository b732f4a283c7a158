"""Replicas of anything: isolated, seeded each for itself, rewound where they must be."""

import pickle
import random
from typing import Any

import numpy as np
import pytest
from river import compose, datasets, linear_model, multiclass, naive_bayes, preprocessing
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier

from confide.banks import ReplicaBank, StackedBank, bank_for
from confide.banks.inside import reseed, walk
from confide.learners import DecisionTree, Features, LogisticRegression, Refit
from confide.privacy.random import Random

ALL = np.arange(6)


class Coin:
    """A learner that answers at random and remembers what it drew: everything a bank must tame."""

    def __init__(self, labels: int = 2) -> None:
        self.labels = labels
        self.mine, self.numpy = random.Random(1), np.random.default_rng(1)
        self.legacy, self.seed = np.random.RandomState(1), 5
        self.drawn: list[int] = []

    def predict(self, x: Any) -> int:
        self.drawn.append(self.mine.randrange(self.labels))
        return self.drawn[-1]

    def learn(self, x: Any, y: int) -> None:
        self.drawn.append(self.mine.randrange(1 << 30) ^ int(self.numpy.integers(1 << 30)))


class Odd:
    """Answers what it was told last, whatever that is, or fails."""

    answer: Any = None

    def predict(self, x: Any) -> Any:
        if self.answer == "fail":
            raise RuntimeError("no")
        return self.answer

    def learn(self, x: dict[str, Any], y: int) -> None:
        self.answer = x["say"]


class Marks:
    """Changes the x that it is asked."""

    pure = True

    def predict(self, x: dict[str, Any]) -> int:
        x["marked"] = x.get("marked", -1) + 1
        return int(x["marked"])

    def learn(self, x: dict[str, Any], y: int) -> None:
        x.clear()


def draws(bank: ReplicaBank, copy: int) -> list[int]:
    learner: Any = bank._replicas[copy]
    drawn = learner.mine.randrange(1 << 40), int(learner.numpy.integers(1 << 40)), learner.legacy.randint(1 << 30)
    return [*drawn, learner.seed]


def coins(key: int = 1) -> ReplicaBank:
    return ReplicaBank(Coin(), 6, 2, 1, Random(seed=key))


def test_every_copy_draws_a_stream_of_its_own() -> None:
    bank = coins()
    for copy in ALL:
        bank.learn(copy, bank.encode([0.0]), 0)
    streams = [draws(bank, copy) for copy in ALL]
    assert len({value for stream in streams for value in stream}) == 4 * len(ALL)


def test_a_stream_depends_on_key_copy_and_resets_and_on_nobody_else() -> None:
    first, second, third = coins(), coins(), coins(2)
    x = first.encode([0.0])
    for copy in (0, 1, 2, 3):
        first.learn(copy, x, 0)
    for bank in (second, third):
        bank.learn(3, x, 0)
    assert draws(first, 3) == draws(second, 3) != draws(third, 3)
    first.reset([3])
    first.learn(3, x, 0)
    second.learn(3, x, 0)
    assert draws(first, 3) != draws(second, 3)


def test_a_secure_bank_keeps_its_streams_going() -> None:
    """A lesson goes on where the last one stopped: two lessons draw twice, not the same again."""
    bank = ReplicaBank(Coin(), 2, 2, 1, Random())
    for _ in range(2):
        bank.learn(0, bank.encode([0.0]), 0)
    learner: Any = bank._replicas[0]
    assert len(set(learner.drawn)) == 2


def test_predict_is_rewound() -> None:
    bank = coins()
    x = bank.encode([0.0])
    bank.learn(0, x, 0)
    before = pickle.dumps(bank._replicas[0])
    votes = [bank.votes(x, ALL).tolist() for _ in range(20)]
    assert votes.count(votes[0]) == 20 and pickle.dumps(bank._replicas[0]) == before


def test_a_failure_or_an_answer_that_is_no_label_is_an_abstention() -> None:
    bank = ReplicaBank(Odd(), 6, 2, None, Random(seed=1))
    for copy, answer in enumerate(("fail", 2, -1, "1", 0.5, True)):
        bank.learn(copy, bank.encode({"say": answer}), 0)
    assert bank.votes(bank.encode({"say": 0}), ALL).tolist() == [0, 1]


def test_a_failure_while_learning_goes_up() -> None:
    bank = ReplicaBank(Odd(), 6, 2, None, Random(seed=1))
    with pytest.raises(KeyError):
        bank.learn(0, bank.encode({}), 0)


def test_a_learner_that_changes_x_changes_it_for_nobody_else() -> None:
    bank = ReplicaBank(Marks(), 3, 2, None, Random(seed=1))
    x = bank.encode({"a": 1.0})
    for copy in range(2):
        bank.learn(copy, x, 0)
    assert bank.votes(x, ALL[:3]).tolist() == [3, 0] and x == {"a": 1.0}


def test_untaught_copies_vote_like_the_prototype_and_cost_nothing() -> None:
    start = naive_bayes.GaussianNB()
    for i in range(20):
        start.learn_one({"a": float(i)}, int(i > 9))
    fresh, warm = (ReplicaBank(start, 10**6, 2, None, Random(), public_start=public) for public in (False, True))
    x = warm.encode({"a": 15.0})
    assert warm.votes(x, ALL).tolist() == [0, 6] and warm.nbytes == 0
    assert fresh.votes(x, ALL).sum() == 0


def test_replicas_answer_like_the_model_by_itself() -> None:
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    bank, alone = ReplicaBank(model, 6, 2, None, Random()), model.clone()
    for i, (x, y) in enumerate(datasets.Phishing().take(200)):
        assert bank.votes(bank.encode(x), ALL[3:4])[int(alone.predict_one(x) or 0)] == 1
        bank.learn(i % 3, bank.encode(x), int(y))
        bank.learn(3, bank.encode(x), int(y))
        alone.learn_one(x, int(y))


def test_pickles_must_be_trusted_and_wake_up_with_new_streams() -> None:
    bank, back = coins(), coins(3)
    bank.learn(2, bank.encode([0.0]), 0)
    for act in (bank.state, lambda: back.load_state(bank.state(trusted=True))):
        with pytest.raises(ValueError, match="trusted"):
            act()
    back.load_state(bank.state(trusted=True), trusted=True)
    asleep: Any = bank._replicas[2]
    awake: Any = back._replicas[2]
    assert awake.drawn == asleep.drawn and draws(back, 2) != draws(bank, 2)
    damaged = {**bank.state(trusted=True), "sizes": np.array([1])}
    with pytest.raises(ValueError, match="damaged"):
        back.load_state(damaged, trusted=True)


@pytest.mark.parametrize("rng", [Random(seed=1), Random()], ids=["replay", "secure"])
def test_a_model_that_hashes_by_its_seed_keeps_it_while_it_learns(rng: Random) -> None:
    """The two words fall on one column, and the test fails, with probability 2⁻³⁰."""
    model = preprocessing.FeatureHasher(n_features=1 << 30, seed=3, alternate_sign=False)
    bank = ReplicaBank(model | naive_bayes.BernoulliNB(), 2, 2, None, rng)
    for i in range(40):
        bank.learn(0, bank.encode({f"word {i % 2}": 1.0}), i % 2)
    back = ReplicaBank(model | naive_bayes.BernoulliNB(), 2, 2, None, rng)
    back.load_state(bank.state(trusted=True), trusted=True)
    for one in (bank, back):
        assert [one.votes(one.encode({f"word {y}": 1.0}), ALL[:1]).argmax() for y in (0, 1)] == [0, 1]


def test_what_cannot_be_pickled_says_so() -> None:
    model = compose.FuncTransformer(lambda x: x) | linear_model.LogisticRegression()
    bank = ReplicaBank(model, 2, 2, None, Random())
    bank.learn(0, bank.encode({"a": 1.0}), 1)
    assert bank.nbytes > 0
    with pytest.raises(ValueError, match="pickled"):
        bank.state(trusted=True)


def test_the_right_bank_is_chosen() -> None:
    rng = Random(seed=1)
    declared = Features(numeric=["a", "b"])
    for learner, features, kind in (
        (DecisionTree(), 3, StackedBank),
        (declared | DecisionTree(), None, StackedBank),
        (LogisticRegression(), declared, StackedBank),
        (Refit(SGDClassifier()), 3, ReplicaBank),
        (SGDClassifier(), 3, ReplicaBank),
        (declared | RandomForestClassifier(), None, ReplicaBank),
        (declared | linear_model.LogisticRegression(), None, ReplicaBank),
        (linear_model.LogisticRegression(), None, ReplicaBank),
        (Coin(), None, ReplicaBank),
    ):
        bank = bank_for(learner, 10, 2, features, rng)
        assert type(bank) is kind and bank.copies == 10 and bank.labels == 2
    inside = ReplicaBank(declared | LogisticRegression(), 10, 3, None, rng)
    inside.learn(0, inside.encode({"a": 1.0}), 2)
    assert inside.votes(inside.encode({"a": 1.0}), ALL).tolist() == [0, 0, 1]


def test_what_cannot_be_banked_is_refused_with_the_reason() -> None:
    rng = Random(seed=1)
    for learner, labels, features, reason in (
        (DecisionTree(), 2, None, "which features"),
        (SGDClassifier(), 2, None, "which features"),
        (Features(numeric=["a"]) | DecisionTree(), 2, 3, "its own features"),
        (linear_model.LogisticRegression(), 3, None, "OneVsRest"),
        (object(), 2, None, "no learner"),
        (DecisionTree(), 1, 3, "labels"),
    ):
        with pytest.raises(ValueError, match=reason):
            bank_for(learner, 10, labels, features, rng)
    assert bank_for(multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), 10, 3, None, rng).labels == 3


def test_reseeding_reaches_every_generator_and_seed() -> None:
    coin = Coin()
    thing = {"a": [coin, (random.Random(2),)], "forest": RandomForestClassifier(random_state=None)}
    found = [type(here).__name__ for here in walk(thing)]
    assert {"Random", "Generator", "RandomState", "RandomForestClassifier"} <= set(found)
    reseed(thing, b"key", seeds=True)
    first = [coin.mine.random(), coin.numpy.random(), coin.legacy.rand(), thing["a"][1][0].random(), coin.seed]
    reseed(thing, b"key", seeds=False)
    second = [coin.mine.random(), coin.numpy.random(), coin.legacy.rand(), thing["a"][1][0].random(), coin.seed]
    assert first == second and len(set(first)) == 5
    assert isinstance(thing["forest"].random_state, int)  # type: ignore[attr-defined]
