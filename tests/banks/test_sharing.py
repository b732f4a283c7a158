"""Copies of a learner are apart: what they share through class, module or generator is found when it is given."""

from __future__ import annotations

import random
import secrets
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from river import forest, linear_model, naive_bayes, preprocessing, tree
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier

from confide.banks import bank_for
from confide.learners import LogisticRegression, Perceptron
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("gate.md")

WORDS = ["no", "yes"]
SEEN: list[Any] = []
COUNT = 0
DRAWS = np.random.default_rng(1)


def given(learner: Any, features: Any = 2, labels: Any = WORDS) -> Any:
    return bank_for(learner, 5, labels, features, Random(seed=1))


class Honest:
    """Answers the label that it was taught last; what subclasses do on the way they share."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def predict(self, x: Any) -> Any:
        return self.heard[-1] if self.heard else None

    def learn(self, x: Any, y: Any) -> None:
        self.heard.append(y)
        self.also(x, y)

    def also(self, x: Any, y: Any) -> None:
        pass


class InItsClass(Honest):
    taught: list[Any] = []  # noqa: RUF012

    def also(self, x: Any, y: Any) -> None:
        self.taught.append(y)


class CountsInItsClass(Honest):
    number = 0

    def also(self, x: Any, y: Any) -> None:
        type(self).number += 1


class ByWord(Honest):
    words: Counter[str] = Counter()  # noqa: RUF012

    def also(self, x: Any, y: Any) -> None:
        self.words[y] += 1


class InAGlobal(Honest):
    def also(self, x: Any, y: Any) -> None:
        SEEN.append(y)


def remember(y: Any) -> None:
    SEEN.append(y)


class ByAHelper(Honest):
    def also(self, x: Any, y: Any) -> None:
        (lambda: remember(y))()


class CountsInAGlobal(Honest):
    def also(self, x: Any, y: Any) -> None:
        global COUNT
        COUNT += 1


class InADefault(Honest):
    def also(self, x: Any, y: Any, kept: deque[Any] = deque(maxlen=9)) -> None:  # noqa: B006
        kept.append(tuple(np.asarray(x, dtype=float)))


class DrawsFromAGlobal(Honest):
    def also(self, x: Any, y: Any) -> None:
        DRAWS.integers(9)


class DrawsFromItsClass(Honest):
    rng = random.Random(1)

    def also(self, x: Any, y: Any) -> None:
        self.rng.random()


class DrawsFromPython(Honest):
    def also(self, x: Any, y: Any) -> None:
        random.random()


class DrawsFromNumpy(Honest):
    def also(self, x: Any, y: Any) -> None:
        np.random.rand()


class Elsewhere:
    names: dict[str, int] = {}  # noqa: RUF012


class Vocabulary(Honest):
    def also(self, x: Any, y: Any) -> None:
        Elsewhere.names.setdefault(str(np.asarray(x).tolist()), len(Elsewhere.names))


class Inside(Honest):
    """One object in all copies, which its class hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.table = np.zeros(3)

    def __deepcopy__(self, memo: Any) -> Inside:
        other = type(self)()
        other.table = self.table
        return other

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")

    def also(self, x: Any, y: Any) -> None:
        self.table[0] += 1


def closes() -> Any:
    kept: list[Any] = []

    class Closes(Honest):
        def also(self, x: Any, y: Any) -> None:
            kept.append(y)

    return Closes()


def holds() -> Any:
    kept: list[Any] = []
    learner = Honest()
    learner.also = lambda x, y: kept.append(y)  # type: ignore[method-assign]
    return learner


SHARING: list[tuple[Any, str]] = [
    (InItsClass(), "the class attribute InItsClass.taught"),
    (CountsInItsClass(), "the class attribute CountsInItsClass.number"),
    (ByWord(), "the class attribute ByWord.words"),
    (InAGlobal(), "the global SEEN"),
    (ByAHelper(), "the global SEEN"),
    (CountsInAGlobal(), "the global COUNT"),
    (InADefault(), "a default argument of InADefault.also"),
    (DrawsFromAGlobal(), "the global DRAWS"),
    (DrawsFromItsClass(), "the class attribute DrawsFromItsClass.rng"),
    (DrawsFromPython(), "Python's own generator, `random`"),
    (DrawsFromNumpy(), "numpy's own generator, `numpy.random`"),
    (Vocabulary(), "the class attribute Elsewhere.names"),
    (Inside(), "an object that stands in each of them"),
    (closes(), "closes over as kept"),
    (holds(), "closes over as kept"),
]


@pytest.mark.parametrize(("learner", "said"), SHARING, ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("features", [2, None], ids=["number", "none"])
def test_a_learner_whose_copies_share_what_one_is_taught_is_refused(learner: Any, said: str, features: Any) -> None:
    with pytest.raises(ValueError, match="what one of them is taught or asked would reach the others") as refused:
        given(learner, features)
    assert said in str(refused.value) and "Keep it in the learner itself" in str(refused.value)


class OnDisk(Honest):
    """Shares by what no name of a method leads to; here a file."""

    path = ""

    def predict(self, x: Any) -> Any:
        with open(self.path, encoding="utf-8") as file:
            return file.read() or None

    def learn(self, x: Any, y: Any) -> None:
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(y)


def test_what_no_name_leads_to_shows_in_another_copys_answers(tmp_path: Any) -> None:
    (tmp_path / "shared").touch()
    learner = type("OnDisk", (OnDisk,), {"path": str(tmp_path / "shared")})()
    with pytest.raises(ValueError, match="another copy answers otherwise"):
        given(learner)


class Stacks(Perceptron):
    """Of a stranger who builds on one of Confide's own."""

    seen: list[int] = []  # noqa: RUF012

    def learn(self, x: Any, y: Any) -> None:
        self.seen.append(y)
        super().learn(x, y)


def test_a_subclass_of_confides_own_is_looked_at_too() -> None:
    with pytest.raises(ValueError, match=r"Stacks\.seen"):
        given(Stacks(), labels=2)
    given(LogisticRegression(), labels=2)


# ---------------------------------------------------------------------- not refused


class Draws(Honest):
    """Has a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(1)

    def also(self, x: Any, y: Any) -> None:
        self.heard.append(self.rng.choice(WORDS))


class Late(Honest):
    """Sets up a table in its class once, from nobody's data."""

    table: list[int] | None = None

    def also(self, x: Any, y: Any) -> None:
        if Late.table is None:
            Late.table = list(range(10))


class Coin(Honest):
    """Answers by a coin of the system's: no two copies answer alike, and none tells of another."""

    def predict(self, x: Any) -> Any:
        return secrets.choice(WORDS)


def honest() -> Iterator[tuple[Any, Any]]:
    yield from ((learner, 2) for learner in (Honest(), Draws(), Late(), Coin()))
    yield from ((learner, None) for learner in (Honest(), tree.HoeffdingTreeClassifier(), forest.ARFClassifier(2)))
    yield preprocessing.StandardScaler() | linear_model.LogisticRegression(), 2
    yield from ((learner, 2) for learner in (naive_bayes.GaussianNB(), SGDClassifier(), RandomForestClassifier(3)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("learner", "features"), list(honest()), ids=lambda given: type(given).__name__)
def test_no_learner_that_keeps_apart_is_refused(learner: Any, features: Any) -> None:
    """A coin of two sides is taken for sharing once in 2²⁰ times at most, and then three times in a row."""
    for _ in range(3):
        given(learner, features)


# ---------------------------------------------------------------------- encoders, which stand before all copies


class Counts:
    """Scales by how much it has met."""

    width = 2

    def __init__(self) -> None:
        self.met = 0

    def encode(self, x: Any, /) -> Any:
        self.met += 1
        return np.full(2, 1.0 / self.met)


class Vocabulary2:
    """Numbers names as they come."""

    width = 2

    def __init__(self) -> None:
        self.names: dict[Any, int] = {}

    def encode(self, x: Any, /) -> Any:
        return np.array([float(self.names.setdefault(x["a"], len(self.names))), float(len(self.names))])


class Centres:
    """Takes the running mean off, of a name that a row may lack."""

    width = 1

    def __init__(self) -> None:
        self.met, self.mean = 0, 0.0

    def encode(self, x: Any, /) -> Any:
        age = float(x.get("age", 0.0))
        self.met += 1
        self.mean += (age - self.mean) / self.met
        return np.array([age - self.mean])


class Present(Centres):
    """The same, of rows that have the name."""

    def encode(self, x: Any, /) -> Any:
        return super().encode(x) if "age" in x else np.zeros(1)


class Fixed:
    width = 2

    def encode(self, x: Any, /) -> Any:
        return np.array([float(x["a"]), 1.0])


@pytest.mark.parametrize("encoder", [Counts(), Vocabulary2(), Centres(), Present()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("learner", [Honest(), LogisticRegression()], ids=["replicas", "stacked"])
def test_an_encoder_that_learns_is_refused(encoder: Any, learner: Any) -> None:
    with pytest.raises(ValueError, match="makes something else of a row after it met others"):
        given(learner, encoder, labels=2)
    given(learner, Fixed(), labels=2)
