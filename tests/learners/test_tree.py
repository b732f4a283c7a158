"""Trees: every split is the best one, and the limits hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from confide.learners import DecisionTree

SMALL = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), min_size=2, max_size=24)


def impurity(y: np.ndarray, weight: np.ndarray, criterion: str) -> float:
    """Weighted impurity of a set of labels times its weight."""
    w = np.bincount(y, weights=weight[y], minlength=weight.size)
    total = w.sum()
    if criterion == "gini":
        return float(total - (w * w).sum() / total)
    p = w[w > 0] / total
    return float(-total * (p * np.log(p)).sum())


def best_impurity(x: np.ndarray, y: np.ndarray, weight: np.ndarray, min_leaf: int, criterion: str) -> float:
    """The least impurity after one split, by trying all; infinite if there is none."""
    best = np.inf
    for f in range(x.shape[1]):
        for cut in np.unique(x[:, f])[:-1]:
            left = x[:, f] <= cut
            if min(left.sum(), (~left).sum()) >= min_leaf:
                parts = (impurity(y[side], weight, criterion) for side in (left, ~left))
                best = min(best, sum(parts))
    return best


def fitted(learner: DecisionTree, x: np.ndarray, y: np.ndarray) -> DecisionTree:
    """A tree grown on exactly these records, whatever the schedule of refits."""
    for record, label in zip(x, y, strict=True):
        learner.learn(record, int(label))
        assert learner.learned is not None
        learner.learned["fitted"][0] = 0  # the next lesson refits
    return learner


def parts(learner: DecisionTree, x: np.ndarray) -> list[tuple[int, int, np.ndarray, float]]:
    """(node, depth, the records that reach it, cut or NaN in a leaf) of each node that can be reached."""
    assert learner.learned is not None
    words, cuts = learner.learned["nodes"][0, :, 1], learner.learned["nodes"][0].view(np.float32)[:, 0]
    found, stack = [], [(0, 0, np.arange(len(x)))]
    while stack:
        node, depth, here = stack.pop()
        leaf = words[node] < 0
        found.append((node, depth, here, np.nan if leaf else float(cuts[node])))
        if not leaf:
            left = x[here, words[node] >> 16] <= cuts[node]
            child = words[node] & 0xFFFF
            stack += [(child, depth + 1, here[left]), (child + 1, depth + 1, here[~left])]
    return found


@given(SMALL, st.integers(1, 3), st.sampled_from(["gini", "entropy"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_split_is_the_best_one(
    records: list[tuple[int, int, int]], min_leaf: int, criterion: str, weighted: bool
) -> None:
    data = np.array(records)
    x, y = data[:, :2].astype(float), data[:, 2]
    weight = np.array([1.0, 2.5, 0.5]) if weighted else np.ones(3)
    learner = DecisionTree(32, 8, min_leaf, criterion, weight.tolist(), labels=3)
    fitted(learner, x, y)
    assert learner.learned is not None
    words = learner.learned["nodes"][0, :, 1]
    for node, depth, here, cut in parts(learner, x):
        best = best_impurity(x[here], y[here], weight, min_leaf, criterion)
        assert here.size >= min_leaf or node == 0
        if np.isnan(cut):
            assert len(set(y[here])) == 1 or best == np.inf or depth == 8
            totals = np.bincount(y[here], weights=weight[y[here]], minlength=3)
            assert totals[-1 - words[node]] == totals.max()
        else:
            left = x[here, words[node] >> 16] <= cut
            chosen = sum(impurity(y[here][side], weight, criterion) for side in (left, ~left))
            assert chosen <= best + 1e-6 * max(1.0, best)


def test_it_is_as_good_as_scikit_learns() -> None:
    generator = np.random.default_rng(5)
    x = generator.normal(size=(1200, 5))
    y = ((x[:, 0] > 0.2) ^ (x[:, 1] * x[:, 2] > 0)).astype(int)
    ours = fitted(DecisionTree(memory=200), x[:200], y[:200])
    theirs = DecisionTreeClassifier(random_state=0).fit(x[:200], y[:200])
    right = np.mean([ours.predict(record) == label for record, label in zip(x[200:], y[200:], strict=True)])
    assert right > theirs.score(x[200:], y[200:]) - 0.05
    assert all(ours.predict(record) == label for record, label in zip(x[:200], y[:200], strict=True))


def test_depth_is_limited() -> None:
    x = np.arange(64.0)[:, None]
    learner = fitted(DecisionTree(memory=64, max_depth=3), x, np.arange(64) % 2)
    assert max(depth for _, depth, _, _ in parts(learner, x)) == 3


def test_a_cut_lies_between_neighbours_that_float32_can_just_tell_apart() -> None:
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2.0))
    learner = fitted(DecisionTree(memory=4), np.array([[low], [high]], dtype=float), np.array([0, 1]))
    assert (learner.predict([low]), learner.predict([high])) == (0, 1)


def test_it_forgets_what_is_older_than_its_memory() -> None:
    learner = DecisionTree(memory=16)
    for i in range(16):
        learner.learn([i], int(i < 8))
    for i in range(32):
        learner.learn([i % 16], int(i % 16 >= 8))
    assert [learner.predict([i]) for i in (2, 13)] == [0, 1]


@pytest.mark.parametrize("bad", [{"memory": 1}, {"min_leaf": 0}, {"max_depth": 0}, {"criterion": "luck"}])
def test_parameters_without_meaning_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        DecisionTree(**bad)  # type: ignore[arg-type]
