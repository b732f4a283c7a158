"""Every learner in every bank passes every check, and every check can fail."""

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from river import facto, forest, linear_model, multiclass, naive_bayes, preprocessing, tree
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import BernoulliNB as SklearnBernoulliNB
from sklearn.naive_bayes import GaussianNB as SklearnGaussianNB
from sklearn.tree import DecisionTreeClassifier

import confide.learners
from confide.banks import Bank, ReplicaBank, StackedBank, bank_for, checks, replicas
from confide.banks.inside import _SWITCH
from confide.learners import (
    BernoulliNB,
    Bounded,
    DecisionTree,
    Features,
    HashedFeatures,
    Learner,
    LogisticRegression,
    Pipeline,
    Refit,
    Stacked,
)
from confide.learners.classes import ClassLearner
from confide.privacy.random import Random

# Learners that take arguments; all others are made with their defaults.
EXAMPLES: dict[type, list[Any]] = {
    Refit: [Refit(DecisionTreeClassifier(max_features=1), memory=32), Refit(SklearnGaussianNB(), memory=32)],
    Pipeline: [HashedFeatures(16) | BernoulliNB(), HashedFeatures(8) | DecisionTree(memory=32)],
}
FOREIGN = [
    preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    naive_bayes.GaussianNB(),
    tree.HoeffdingTreeClassifier(grace_period=5),
    facto.FMClassifier(n_factors=2, seed=1),  # draws weights when it predicts
    forest.ARFClassifier(n_models=1, seed=1),  # random, and made anew when it predicts
    SGDClassifier(random_state=1),
    SklearnGaussianNB(),
    SklearnBernoulliNB(),  # asked row by row
    preprocessing.OneHotEncoder() | preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    multiclass.OneVsRestClassifier(preprocessing.StandardScaler() | linear_model.LogisticRegression()),
]
DECLARED = [preprocessing.StandardScaler() | linear_model.LogisticRegression(), naive_bayes.GaussianNB()]
GROWING = {"FMClassifier", "ARFClassifier", "HoeffdingTreeClassifier"}  # River promises no bound for these


def learners() -> Iterator[Any]:
    for name in confide.learners.__all__:
        kind = getattr(confide.learners, name)
        if not isinstance(kind, type) or not hasattr(kind, "predict") or kind in (Bounded, Learner, Stacked):
            continue
        if issubclass(kind, ClassLearner):  # two labels, and x of its own: tests/learners/test_mistake_bounded.py
            continue
        yield from EXAMPLES.get(kind) or [kind()]


def cases() -> Iterator[Any]:
    for learner in learners():
        name, names = type(learner).__name__, isinstance(learner, Pipeline)
        features = None if names else 4
        for labels in (2, 3) if isinstance(learner, Stacked) else (3,):
            make = partial(chosen_bank, learner, labels, features)
            records = checks.example_records(labels=labels, names=names)
            yield pytest.param(make, records, id=f"{name}-{labels}")
        if isinstance(learner, Stacked):
            make = partial(replica_bank, learner)
            yield pytest.param(make, checks.example_records(), id=f"{name}-replicas")
    for model in FOREIGN:
        home, names = type(model).__module__.partition(".")[0], hasattr(model, "predict_one")
        make = partial(chosen_bank, model, 2, None if names else 4)
        records = checks.example_records(number=30, names=names)
        yield pytest.param(make, records, id=f"{home}-{type(model).__name__}")
    for model in DECLARED:  # and so asked without rewinding
        make = partial(chosen_bank, Features(numeric=[f"f{j}" for j in range(4)]) | model, 2, None)
        yield pytest.param(make, checks.example_records(number=30, names=True), id=f"declared-{type(model).__name__}")


def chosen_bank(learner: Any, labels: int, features: int | None, copies: int) -> Bank:
    return bank_for(learner, copies, labels, features, Random(seed=1))


def replica_bank(learner: Any, copies: int) -> Bank:
    return ReplicaBank(learner, copies, 2, 4, Random(seed=1))


@pytest.mark.parametrize("check", list(checks.yield_checks()), ids=lambda check: check.__name__)
@pytest.mark.parametrize(("make", "records"), list(cases()))
def test_every_learner_passes_every_check(
    check: checks.Check, make: checks.Make, records: checks.Records, request: pytest.FixtureRequest
) -> None:
    if check is checks.memory_is_bounded and any(name in request.node.name for name in GROWING):
        pytest.skip("River promises no bound on the memory of this model")
    # To try a model out takes most of a bank's time: one check does it, the one that sees what it draws.
    whole = check is checks.global_randomness_is_left_alone
    with contextlib.nullcontext() if whole else patch.object(replicas, "try_out"):
        check(make, records)


# One broken bank for each demand. Each is a good bank but for the one thing named.


class OverCounting(StackedBank):
    def votes(self, x: Any, poll: Any) -> Any:
        return super().votes(x, poll) * 2


class OneForAll(StackedBank):
    """A scaler in front of the copies: what one copy is taught moves everybody's questions."""

    shift = 0.0

    def votes(self, x: Any, poll: Any) -> Any:
        return super().votes(self.encode(x - self.shift), poll)

    def learn(self, copy: int, x: Any, y: int) -> None:
        super().learn(copy, x, y)
        self.shift += 0.01 * x[0]


class SharedDraws(ReplicaBank):
    """Randomness handed out in the order in which copies are first taught."""

    def _seed(self, copy: int) -> bytes:
        return self._rng.words(4).tobytes()


class LearnsFromQuestions(StackedBank):
    def votes(self, x: Any, poll: Any) -> Any:
        votes = super().votes(x, poll)
        if len(poll):
            self.learn(int(poll[0]), x, int(votes.argmax()))
        return votes


class KeepsInputs(StackedBank):
    """Learns what x is at the next lesson, not what it was when it came."""

    late: Any = None

    def encode(self, x: Any) -> Any:
        super().encode(x)
        return x

    def votes(self, x: Any, poll: Any) -> Any:
        return super().votes(super().encode(x), poll)

    def learn(self, copy: int, x: Any, y: int) -> None:
        if self.late is not None:
            copy_then, x_then, y_then = self.late
            super().learn(copy_then, super().encode(x_then), y_then)
        self.late = copy, x, y


class DrawsFromTheProcess(StackedBank):
    def learn(self, copy: int, x: Any, y: int) -> None:
        if random.random() < 2:
            super().learn(copy, x, y)


class DrawsFromNumpy(StackedBank):
    def learn(self, copy: int, x: Any, y: int) -> None:
        if np.random.random() < 2:
            super().learn(copy, x, y)


class RemembersAfterReset(StackedBank):
    def reset(self, copies: Any) -> None:
        super().reset([copy for copy in copies if not self.votes(self.encode(np.ones(4)), [copy]).any()])


class ResetsANeighbour(StackedBank):
    def reset(self, copies: Any) -> None:
        copies = list(copies)
        super().reset([*copies, *((copy + 1) % self.copies for copy in copies)])


class ForgetfulState(StackedBank):
    def state(self, trusted: bool = False) -> Any:
        state = dict(super().state())
        return {k: v[:0] if isinstance(v, np.ndarray) else v for k, v in state.items()}


class StateOfAnySize(StackedBank):
    def load_state(self, state: Any, trusted: bool = False) -> None:
        super().load_state({**state, "copies": self.copies})


class ObjectsInState(StackedBank):
    def state(self, trusted: bool = False) -> Any:
        return {**super().state(), "learner object": np.array([self._learner], dtype=object)}


class Hoarding(StackedBank):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kept: list[Any] = []

    @property
    def nbytes(self) -> int:
        return super().nbytes + 40 * len(self.kept)

    def learn(self, copy: int, x: Any, y: int) -> None:
        super().learn(copy, x, y)
        self.kept.append(x)


class TakesAnything(StackedBank):
    def encode(self, x: Any) -> Any:
        return super().encode(x if isinstance(x, list | np.ndarray) else np.zeros(4))


class CountsFromTheEnd(StackedBank):
    def learn(self, copy: int, x: Any, y: int) -> None:
        super().learn(copy % self.copies, x, y)


class Centres(StackedBank):
    """Takes the mean of a batch off its rows: each row feels who else is there."""

    def votes_many(self, xs: Any, polls: Any) -> Any:
        return super().votes_many(xs - xs.mean(axis=0) if len(xs) else xs, polls)


class Backwards(StackedBank):
    def learn_many(self, copies: Any, xs: Any, ys: Any) -> int:
        return super().learn_many(copies[::-1], xs[::-1], ys[::-1])


class MiscountsLessons(StackedBank):
    def learn_many(self, copies: Any, xs: Any, ys: Any) -> int:
        return super().learn_many(copies, xs, ys) + 1


class StopsAtABadRow(StackedBank):
    def encode_many(self, xs: Any) -> Any:
        rows, errors = super().encode_many(xs)
        first = min(errors, default=len(xs))
        return rows, {i: errors[first] for i in range(first, len(xs))}


class QuotesTheRow(StackedBank):
    def encode_many(self, xs: Any) -> Any:
        rows, errors = super().encode_many(xs)
        for i in errors:
            with contextlib.suppress(ValueError):
                try:
                    float(xs[i])
                except Exception as error:
                    errors[i] = str(error)
        return rows, errors


class LetsOut(StackedBank):
    def learn_many(self, copies: Any, xs: Any, ys: Any) -> int:
        raise SystemExit


class Listens(ReplicaBank):
    """Decides once, when it is made, that its River models stay as they are, and River may say otherwise later."""

    def __init__(self, *_: Any) -> None:
        model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
        super().__init__(model, 5, 2, 4, Random(seed=1))
        vars(self._prototype.model).pop(_SWITCH)  # type: ignore[attr-defined]
        self._start = None
        assert self._pure


BROKEN: list[tuple[type, Callable[..., None]]] = [
    (OverCounting, checks.votes_are_counts),
    (OneForAll, checks.teaching_one_copy_moves_no_other),
    (SharedDraws, checks.teaching_one_copy_moves_no_other),
    (LearnsFromQuestions, checks.voting_changes_nothing),
    (KeepsInputs, checks.inputs_are_left_alone),
    (DrawsFromTheProcess, checks.global_randomness_is_left_alone),
    (DrawsFromNumpy, checks.global_randomness_is_left_alone),
    (RemembersAfterReset, checks.reset_forgets_everything),
    (ResetsANeighbour, checks.reset_forgets_everything),
    (ForgetfulState, checks.state_round_trips),
    (StateOfAnySize, checks.state_round_trips),
    (ObjectsInState, checks.state_round_trips),
    (Hoarding, checks.memory_is_bounded),
    (TakesAnything, checks.nonsense_is_refused),
    (CountsFromTheEnd, checks.nonsense_is_refused),
    (Centres, checks.a_batch_votes_row_by_row),
    (Backwards, checks.a_batch_is_taught_in_order),
    (MiscountsLessons, checks.a_batch_is_taught_in_order),
    (StopsAtABadRow, checks.a_bad_row_touches_no_other),
    (QuotesTheRow, checks.a_bad_row_touches_no_other),
    (Listens, checks.rivers_switch_teaches_nobody),
    (LetsOut, checks.failures_stay_with_their_copy),
]


def broken_bank(kind: type, copies: int) -> Any:
    if issubclass(kind, ReplicaBank):
        return kind(Refit(DecisionTreeClassifier(max_features=1), memory=32), copies, 2, 4, Random(seed=1))
    return kind(LogisticRegression(), copies, 2, 4)


@pytest.mark.parametrize(("kind", "check"), BROKEN, ids=lambda value: value.__name__)
def test_every_check_can_fail(kind: type, check: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        check(lambda copies: broken_bank(kind, copies), checks.example_records())


def test_no_check_is_without_a_bank_that_fails_it() -> None:
    assert {check for _, check in BROKEN} == set(checks.yield_checks())


class SharedByClass:
    """A learner whose copies share a class attribute: deep copies cannot separate that."""

    __module__ = "confide.shared"  # else it is refused when it is given
    tally: dict[int, int] = {}  # noqa: RUF012

    def predict(self, x: Any) -> int:
        return max(self.tally, key=self.tally.__getitem__, default=0)

    def learn(self, x: Any, y: int) -> None:
        self.tally[y] = self.tally.get(y, 0) + 1

    def __reduce__(self) -> Any:
        return _shared_by_class, ()


def _shared_by_class() -> SharedByClass:
    return SharedByClass()


def test_what_deep_copies_share_is_found() -> None:
    def make(copies: int) -> ReplicaBank:
        SharedByClass.tally = {}
        return ReplicaBank(SharedByClass(), copies, 2, 4, Random(seed=1))

    with pytest.raises(AssertionError):
        checks.check_bank(make, checks.example_records())
