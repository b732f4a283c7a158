"""Stacked banks: a copy is the learner by itself, to the last bit."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import confide.learners
from confide.banks import StackedBank
from confide.learners import DecisionTree, ExtraTrees, Features, KNNClassifier, LogisticRegression, Refit, Stacked
from confide.learners.classes import ClassLearner

STACKED = [
    kind
    for name in confide.learners.__all__
    if isinstance(kind := getattr(confide.learners, name), type) and issubclass(kind, Stacked) and kind is not Stacked
    and not issubclass(kind, ClassLearner)  # two labels: tests/learners/test_mistake_bounded.py
]
GENERATOR = np.random.default_rng(2)
X = GENERATOR.normal(size=(600, 3)) * [1, 50, 1e6]
Y = np.digitize(X[:, 0] + X[:, 1] / 50, [-0.5, 0.5])
ALL = np.arange(40)


def taught(learner: Stacked, copies: int = 40, **options: Any) -> StackedBank:
    bank = StackedBank(learner, copies, 3, 3, **options)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        bank.learn(i * i % 40, bank.encode(x), int(y))
    return bank


def saved(bank: StackedBank) -> dict[str, Any]:
    """The state after a trip through a file that holds no Python objects."""
    file = io.BytesIO()
    np.savez(file, **dict(bank.state()))  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file, allow_pickle=False) as held:
        return {name: held[name].item() if held[name].ndim == 0 else held[name] for name in held}


@pytest.mark.parametrize("kind", STACKED)
def test_a_copy_is_the_learner_by_itself(kind: type[Stacked]) -> None:
    learner = kind(warmup=4)  # type: ignore[call-arg]
    bank = taught(learner)
    for copy in (0, 1, 9, 2):
        alone = learner.clone(labels=3)
        for i in range(600):
            if i * i % 40 == copy:
                alone.learn(X[i], int(Y[i]))
        for x in X[:50]:
            label = alone.predict(x)
            votes = bank.votes(bank.encode(x), np.array([copy]))
            assert votes.tolist() == [int(label == y) for y in range(3)]
        if alone.learned is not None:
            for name, array in alone.learned.items():
                assert array[0].tobytes() == bank._arrays[name][copy].tobytes(), name
        else:
            assert bank._voter[copy] < 0


@pytest.mark.parametrize("kind", STACKED)
@given(st.lists(st.tuples(st.lists(st.floats(-3e38, 3e38), min_size=2, max_size=2), st.integers(0, 2)), min_size=1))
@settings(max_examples=30, deadline=None)
def test_a_taught_copy_votes_once_whatever_it_was_taught(
    kind: type[Stacked], records: list[tuple[list[float], int]]
) -> None:
    bank = StackedBank(kind(), 3, 3, 2)
    for x, y in records:
        bank.learn(1, bank.encode(x), y)
        votes = bank.votes(bank.encode(x), np.array([0, 1, 2]))
        assert sorted(votes) == [0, 0, 1]


def test_the_prototype_is_never_taught_and_its_knowledge_not_used() -> None:
    learner = LogisticRegression(labels=3)
    learner.learn(X[0], 2)
    bank = taught(learner)
    assert learner.learned is not None and learner.learned["seen"][0] == 1
    assert not bank.votes(bank.encode(X[0]), np.array([2])).any()


@pytest.mark.parametrize("kind", [DecisionTree, LogisticRegression, KNNClassifier])
def test_a_public_start_is_where_every_copy_starts(kind: type[Stacked]) -> None:
    learner = kind(labels=3)  # type: ignore[call-arg]
    for x, y in zip(X[:100], Y[:100], strict=True):
        learner.learn(x, int(y))
    bank = StackedBank(learner, 40, 3, 3, public_start=True)
    bank.learn(5, bank.encode(X[100]), int(Y[100]))
    for x in X[:20]:
        votes = bank.votes(bank.encode(x), np.array([0, 1, 2]))
        assert votes[learner.predict(x)] == 3
    learner.learn(X[100], int(Y[100]))  # what the copy learned, and the bank's start did not
    for x in X[:20]:
        assert bank.votes(bank.encode(x), np.array([5]))[learner.predict(x)] == 1
    with pytest.raises(ValueError, match="features"):
        StackedBank(learner, 40, 3, 4, public_start=True)
    with pytest.raises(ValueError, match="labels"):
        StackedBank(learner, 40, 5, 3, public_start=True)


def test_no_lesson_makes_room_for_itself() -> None:
    """All rows are there from the start: how long a lesson takes must not tell how many copies were taught."""
    bank = StackedBank(DecisionTree(), 1000, 2, 9)
    size, arrays = bank.nbytes, dict(bank._arrays)
    row = bank.encode(np.zeros(9))
    for copy in range(0, 1000, 7):
        bank.learn(copy, row, 0)
    assert bank.nbytes == size and all(bank._arrays[name] is array for name, array in arrays.items())


def test_copies_that_no_memory_holds_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = DecisionTree.allocate

    def scarce(self: DecisionTree, features: int, slots: int) -> Any:
        if slots > 1000:
            raise MemoryError
        return allocate(self, features, slots)

    monkeypatch.setattr(DecisionTree, "allocate", scarce)
    with pytest.raises(ValueError, match=r"1,000,000 copies of [\d,]+ bytes each do not fit in memory: take fewer"):
        StackedBank(DecisionTree(), 1_000_000, 2, 9)


def test_a_reset_wipes_the_memory() -> None:
    bank = taught(DecisionTree(memory=8))
    bank.reset([0, 1])
    for array in bank._arrays.values():
        assert not array[:2].any()
    assert not {0, 1} & set(bank.state()["taught"].tolist())  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", STACKED)
def test_a_bank_goes_on_from_its_state_as_if_nothing_had_happened(kind: type[Stacked]) -> None:
    bank, back = taught(kind()), StackedBank(kind(), 40, 3, 3)
    back.load_state(saved(bank))
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        for one in (bank, back):
            one.learn(i % 40, one.encode(x), int(y))
    ours, theirs = bank.state(), back.state()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_state_of_another_bank_or_a_damaged_one_is_refused() -> None:
    state = saved(taught(LogisticRegression()))
    for other in (
        StackedBank(LogisticRegression(), 41, 3, 3),
        StackedBank(LogisticRegression(), 40, 2, 3),
        StackedBank(LogisticRegression(), 40, 3, Features(numeric=["a", "b", "c"])),
        StackedBank(LogisticRegression(l2=0.1), 40, 3, 3),
        StackedBank(DecisionTree(), 40, 3, 3),
    ):
        with pytest.raises(ValueError, match="another bank"):
            other.load_state(state)
    bank = StackedBank(LogisticRegression(), 40, 3, 3)
    for damage in (
        {"taught": state["taught"][::-1]},
        {"taught": state["taught"] + 40},
        {"array seen": state["array seen"][1:]},
        {"array mean": state["array mean"].astype(np.float64)},
    ):
        with pytest.raises(ValueError, match="damaged"):
            bank.load_state({**state, **damage})


def test_a_state_that_would_lead_a_kernel_astray_is_refused() -> None:
    for learner, name, where, value in (
        (DecisionTree(memory=8), "nodes", (0, 0, 1), 3 << 16 | 1),  # asks for a feature that does not exist
        (DecisionTree(memory=8), "nodes", (0, 0, 1), 0),  # leads to itself
        (DecisionTree(memory=8), "nodes", (0, 0, 1), 15),  # leads past the end
        (DecisionTree(memory=8), "nodes", (0, 0, 1), -4),  # answers a label that does not exist
        (DecisionTree(memory=8), "targets", (0, 0), 3),
        (ExtraTrees(trees=3, memory=8), "nodes", (0, 32, 1), 15),  # leads past the end of the last tree
        (ExtraTrees(trees=3, memory=8), "nodes", (0, 16, 1), -4),
        (ExtraTrees(trees=3, memory=8), "targets", (0, 0), 3),
        (KNNClassifier(memory=8), "targets", (0, 0), -1),
        (LogisticRegression(), "seen", (0,), -1),
    ):
        state = saved(taught(learner))
        fresh = StackedBank(learner, 40, 3, 3)
        fresh.load_state(state)
        state[f"array {name}"][where] = value
        with pytest.raises(ValueError, match="damaged"):
            fresh.load_state(state)


def test_what_was_not_encoded_is_refused() -> None:
    bank = StackedBank(LogisticRegression(), 4, 3, 3)
    for x in ([1.0, 2.0, 3.0], np.zeros(4), np.zeros(3, dtype=np.float32), {"a": 1}):
        with pytest.raises(ValueError, match="encode"):
            bank.votes(x, ALL[:1])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="encode"):
            bank.learn(0, x, 0)  # type: ignore[arg-type]


def test_a_learner_that_does_not_stack_is_refused() -> None:
    with pytest.raises(ValueError, match="ReplicaBank"):
        StackedBank(Refit(object.__new__(type("E", (), {"fit": None, "predict": None}))), 4, 2, 3)  # type: ignore[arg-type]
