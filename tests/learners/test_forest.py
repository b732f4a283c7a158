"""Forests: the compiled trees are those of a plain reference, and their votes are counted as described."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.banks import StackedBank
from confide.learners import DecisionTree, ExtraTrees

RECORD = st.tuples(st.sampled_from([-1.5, 0.0, 0.25, 3.0]), st.floats(-9, 9, width=32), st.integers(0, 2))
RECORDS = st.lists(RECORD, min_size=1, max_size=20)
WORD = 1 << 64


def mix(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
    return word ^ word >> 31


class Reference:
    """The same forest once more, with Python's integers and sets of records, as readable as it gets."""

    def __init__(self, learner: ExtraTrees, x: np.ndarray, y: np.ndarray) -> None:
        self.learner, self.x, self.y = learner, x.astype(np.float32), y
        self.weight = np.ones(learner.labels) if learner.class_weight is None else np.array(learner.class_weight)
        self.word = len(x)
        for bits in self.x.view(np.uint32).ravel().tolist():
            self.word = mix((self.word + 0x9E3779B97F4A7C15 + bits) % WORD)
        self.trees = [self.grow() for _ in range(learner.trees)]

    def totals(self, here: np.ndarray) -> np.ndarray:
        return np.bincount(self.y[here], weights=self.weight[self.y[here]], minlength=self.learner.labels)

    def random_cut(self, low: np.float32, high: np.float32) -> np.float32:
        self.word = (self.word + 0x9E3779B97F4A7C15) % WORD
        cut = np.float32(float(low) + (mix(self.word) >> 11) / 2**53 * (float(high) - float(low)))
        return cut if cut < high else low

    def best_cut(self, here: np.ndarray) -> tuple[int, np.float32] | None:
        best, found = -1.0, None
        for feature, column in enumerate(self.x.T):
            low, high = column[here].min(), column[here].max()
            for _ in range(self.learner.cuts if low < high else 0):
                cut = self.random_cut(low, high)
                sides = here[column[here] <= cut], here[column[here] > cut]
                if min(side.size for side in sides) < self.learner.min_leaf:
                    continue
                pure = sum(float((w := self.totals(side)) @ w / w.sum()) for side in sides)
                if pure > best:
                    best, found = pure, (feature, cut)
        return found

    def grow(self) -> list[tuple[int, float, int]]:
        """(feature or −1, cut or what the label counts, first child or label) of each node, breadth first."""
        nodes: list[tuple[int, float, int]] = []
        waiting = [(np.arange(len(self.x)), 0, 0)]
        for here, depth, label in waiting:  # grows on the way
            w = self.totals(here)
            best = label if w[label] == w.max() else int(w.argmax())
            found = None
            if (w > 0).sum() > 1 and here.size >= 2 * self.learner.min_leaf and depth < self.learner.max_depth:
                found = self.best_cut(here)
            if found is None:
                nodes.append((-1, float((w[best] - np.delete(w, best).max()) / w.sum()), best))
                continue
            feature, cut = found
            nodes.append((feature, float(cut), len(waiting)))
            left = self.x[here, feature] <= cut
            waiting += [(here[left], depth + 1, best), (here[~left], depth + 1, best)]
        return nodes

    def predict(self, x: np.ndarray) -> int:
        sums = np.zeros(self.learner.labels)
        best = -1
        for nodes in self.trees:
            feature, value, next_one = nodes[0]
            while feature >= 0:
                feature, value, next_one = nodes[next_one + bool(np.float32(x[feature]) > np.float32(value))]
            sums[next_one] += np.float32(value)
            best = next_one if best < 0 or sums[next_one] > sums[best] else best
        return best


def grown(learner: ExtraTrees, x: np.ndarray, y: np.ndarray) -> ExtraTrees:
    """A forest grown on exactly these records, whatever the schedule of refits."""
    for record, label in zip(x, y, strict=True):
        learner.learn(record, int(label))
        assert learner.learned is not None
        learner.learned["fitted"][0] = 0  # the next lesson refits
    return learner


@given(RECORDS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 8), st.booleans())
@settings(max_examples=80, deadline=None)
def test_the_compiled_forest_is_the_reference(
    records: list[tuple[float, float, int]], cuts: int, min_leaf: int, depth: int, weighted: bool
) -> None:
    data = np.array(records)
    x, y = data[:, :2], data[:, 2].astype(int)
    learner = ExtraTrees(3, 20, depth, min_leaf, cuts, [1.0, 2.0, 0.5] if weighted else None, labels=3)
    reference = Reference(learner, x, y)
    grown(learner, x, y)
    assert learner.learned is not None
    for nodes, wanted in zip(learner.learned["nodes"][0].reshape(3, -1, 2), reference.trees, strict=True):
        for node, (feature, value, next_one) in zip(nodes, wanted, strict=False):
            assert node[1] == (-1 - next_one if feature < 0 else feature << 16 | next_one)
            assert node[:1].view(np.float32)[0] == np.float32(value)
    assert [learner.predict(row) for row in x] == [reference.predict(row) for row in x]


def test_copies_that_were_taught_the_same_are_the_same_and_others_cut_elsewhere() -> None:
    x = np.random.default_rng(3).normal(size=(60, 4))
    y = (x[:, 0] > 0).astype(int)
    one, same = grown(ExtraTrees(memory=64), x, y), grown(ExtraTrees(memory=64), x, y)
    moved = x.copy()
    moved[7, 2] = np.nextafter(np.float32(x[7, 2]), np.float32(9))  # one bit of one record
    other = grown(ExtraTrees(memory=64), moved, y)
    first, second, third = (learner.learned["nodes"] for learner in (one, same, other) if learner.learned is not None)
    assert (first == second).all() and (first != third).any()


def leads(learner: DecisionTree | ExtraTrees) -> np.ndarray:
    """How far ahead the right label is, of 41 copies with 60 records each, where many features matter a little."""
    generator = np.random.default_rng(8)
    x = generator.normal(size=(41 * 60 + 400, 8))
    y = ((x**2).sum(axis=1) > 7.3).astype(np.int64)
    bank = StackedBank(learner, 41, labels=2, features=8)
    bank.learn_many(np.arange(41 * 60) % 41, x[: 41 * 60], y[: 41 * 60])
    counts = np.array([bank.votes(row, np.arange(41)) for row in x[41 * 60 :]])
    right = np.arange(400), y[41 * 60 :]
    return np.asarray(2 * counts[right] - 41)


def test_forests_agree_more_than_trees_where_many_features_matter() -> None:
    trees, forests = leads(DecisionTree()), leads(ExtraTrees())
    assert forests.mean() > 1.1 * trees.mean()


def test_it_forgets_what_is_older_than_its_memory() -> None:
    learner = ExtraTrees(memory=16)
    for i in range(16):
        learner.learn([i], int(i < 8))
    for i in range(32):
        learner.learn([i % 16], int(i % 16 >= 8))
    assert [learner.predict([i]) for i in (2, 13)] == [0, 1]


@pytest.mark.parametrize("bad", [{"trees": 0}, {"memory": 1}, {"min_leaf": 0}, {"max_depth": 0}, {"cuts": 0}])
def test_parameters_without_meaning_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        ExtraTrees(**bad)


def test_more_features_than_a_node_can_name_are_refused() -> None:
    with pytest.raises(ValueError, match="hash them to fewer"):
        ExtraTrees().learn(np.zeros(1 << 15), 0)
