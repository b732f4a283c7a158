"""Replicas of anything: isolated, seeded each for itself, rewound where they must be."""

import pickle
import random
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn
from river import compose, datasets, linear_model, multiclass, naive_bayes, neighbors, preprocessing
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier

from confide.banks import ReplicaBank, StackedBank, bank_for, replicas
from confide.banks.inside import reseed, thaw, walk
from confide.banks.quiet import Quiet
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
        (neighbors.KNNClassifier(), 2, None, "SWINN"),
        (preprocessing.StandardScaler() | neighbors.KNNClassifier(), 2, None, "SWINN"),
        (object(), 2, None, "no learner"),
        (DecisionTree(), 1, 3, "labels"),
    ):
        with pytest.raises(ValueError, match=reason):
            bank_for(learner, 10, labels, features, rng)
    assert bank_for(multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), 10, 3, None, rng).labels == 3


RIVER = {
    "declared": (lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(), ["a", "b"]),
    "as given": (lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(), None),
    "nested": (
        lambda: multiclass.OneVsRestClassifier(preprocessing.StandardScaler() | linear_model.LogisticRegression()),
        ["a", "b"],
    ),
    "invents names": (
        lambda: preprocessing.OneHotEncoder() | preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        None,
    ),
}


def taught_by_river(kind: str) -> ReplicaBank:
    make, features = RIVER[kind]
    bank = ReplicaBank(make(), 6, 2, features, Random(seed=1))
    for i in range(60):
        bank.learn(i % 6, bank.encode({"a": float(i % 7), "b": -1.0}), int(i % 7 > 3))
    return bank


def minds(bank: ReplicaBank) -> list[bytes]:
    return [pickle.dumps(bank._replicas[copy]) for copy in sorted(bank._replicas)]


@pytest.mark.parametrize("kind", RIVER)
def test_a_question_teaches_nobody_while_river_is_told_to_learn_when_asked(kind: str) -> None:
    """The switch is thrown after the bank was made, as by any other thread of the process."""
    bank = taught_by_river(kind)
    mine = bank.encode({"a": 5.0, "b": -1.0})
    before, votes = minds(bank), bank.votes(mine, ALL)
    hidden = bank.encode({"a": 1e6, "b": 1e6})
    with compose.learn_during_predict():
        for _ in range(3):
            bank.votes(hidden, ALL)
            bank.votes_many([hidden, mine], [ALL, ALL])
    assert minds(bank) == before and (bank.votes(mine, ALL) == votes).all()


@pytest.mark.parametrize("x", [{"a": "cat", "b": 0.0}, {"illness": 1.0}, {"a": 2.0, "b": 1.0, "c": "dog"}])
def test_a_question_with_a_new_name_or_category_stays_in_no_copy(x: dict[str, Any]) -> None:
    for kind in ("as given", "invents names"):
        bank = taught_by_river(kind)
        before = minds(bank)
        bank.votes(bank.encode(x), ALL)
        assert minds(bank) == before and not any(b"illness" in mind or b"dog" in mind for mind in before)


@pytest.mark.parametrize("kind", RIVER)
def test_the_work_of_a_vote_tells_nothing_of_what_the_copies_have_seen(kind: str, monkeypatch: Any) -> None:
    """As many copies are rewound, whether or not they know the names and values of x."""
    bank = taught_by_river(kind)
    rewound = 0

    def counting(frozen: bytes | None, thing: Any) -> Any:
        nonlocal rewound
        rewound += 1
        return thaw(frozen, thing)

    monkeypatch.setattr(replicas, "thaw", counting)
    works = []
    for x in ({"a": 1.0, "b": -1.0}, {"new": 1.0}, {}, {"a": 1.0, "b": -1.0, "c": 9.0}):
        rewound = 0
        bank.votes(bank.encode(x), ALL)
        works.append(rewound)
    assert works == [1 if kind == "declared" else 7] * 4


def test_a_river_copy_whose_first_lesson_failed_was_never_taught() -> None:
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    bank = ReplicaBank(model, 2, 2, None, Random(seed=1))
    rows = [bank.encode({"a": a}) for a in ("text", 1.0, "text")]
    with pytest.raises(TypeError):
        bank.learn(0, rows[0], 1)
    assert not bank._replicas
    assert bank.learn_many(np.array([0, 1, 1]), rows, np.array([0, 1, 1])) == 1 and list(bank._replicas) == [1]


def test_columns_keep_their_names_in_river() -> None:
    model = compose.Select("b") | naive_bayes.GaussianNB()
    bank = ReplicaBank(model, 1, 2, ["a", "b"], Random(seed=1))
    for i in range(40):
        bank.learn(0, bank.encode({"a": 1.0, "b": float(i)}), int(i > 20))
    rows = [bank.encode({"a": 0.0, "b": b}) for b in (3.0, 35.0)]
    assert bank.votes_many(rows, [[0], [0]]).tolist() == [[1, 0], [0, 1]]


class Wide:
    """An encoder that says how wide its rows are, and makes them otherwise for some x."""

    width = 2
    buffer = np.zeros(2)

    def encode(self, x: Any) -> Any:
        if isinstance(x, Exception):
            raise x
        if isinstance(x, list):
            self.buffer[:] = x
            return self.buffer
        return x


@pytest.mark.parametrize("learner", [SGDClassifier(), naive_bayes.GaussianNB(), Coin()], ids=lambda m: type(m).__name__)
def test_what_an_encoder_gives_is_checked_and_copied(learner: Any) -> None:
    bank = ReplicaBank(learner, 2, 2, Wide(), Random(seed=1))
    bad = [np.zeros(3), np.zeros((2, 1)), np.zeros((1, 2)), 1.0, "ab", None, np.array([1.0, np.nan]), {"a": 1.0}]
    errors = [OverflowError("SECRET"), RecursionError(), KeyError("SECRET"), MemoryError(), ZeroDivisionError()]
    for x in (*bad, *errors):
        with pytest.raises(ValueError, match=r"encoder|form") as caught:
            bank.encode(x)
        assert "SECRET" not in str(caught.value)
    rows, refused = bank.encode_many([[1.0, 2.0], *bad, [3.0, 4.0], *errors])
    assert [i for i, row in enumerate(rows) if row is not None] == [0, len(bad) + 1]
    assert rows[0].tolist() == [1.0, 2.0] and rows[len(bad) + 1].tolist() == [3.0, 4.0]
    assert sorted(refused) == [i for i, row in enumerate(rows) if row is None]


class Loud:
    """Warns and sets what all of the process uses, whenever it is asked or taught."""

    def predict(self, x: Any) -> int:
        return self.noise()

    def learn(self, x: Any, y: int) -> None:
        self.noise()

    def noise(self) -> int:
        warnings.warn("SECRET", stacklevel=2)
        np.seterr(all="raise")
        sklearn.set_config(assume_finite=True, display="text")
        warnings.simplefilter("error")
        return 0


def test_a_learner_warns_nobody_and_sets_nothing_for_others() -> None:
    heard: list[str] = []
    before = np.geterr(), sklearn.get_config()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: heard.append(str(message))  # type: ignore[assignment]
        bank = ReplicaBank(Loud(), 3, 2, 1, Random(seed=1))
        x = bank.encode([0.0])
        for copy in range(3):
            bank.learn(copy, x, 0)
        assert bank.learn_many(np.array([0, 1]), [x, x], np.array([0, 1])) == 2
        assert bank.votes_many([x, x], [ALL[:3], ALL[:2]]).tolist() == [[3, 0], [2, 0]]
        assert not heard and (np.geterr(), sklearn.get_config()) == before
        warnings.simplefilter("always")
        with Quiet():  # only in its own thread
            other = threading.Thread(target=warnings.warn, args=("of another thread",))
            other.start()
            other.join()
        warnings.warn("afterwards", stacklevel=1)
    assert heard == ["of another thread", "afterwards"]


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
