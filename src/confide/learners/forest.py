"""A small forest in a copy: extremely randomised trees, compiled and stackable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints, Singles, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.kernels.machine import prefetch
from confide.learners.refit import due
from confide.learners.tree import Remembering, keep_record

_STEP = np.uint64(0x9E3779B97F4A7C15)


class ExtraTrees(Remembering):
    """A few trees on a copy's own last records, each with cuts at random places, that vote as one.

    In a node every feature is tried at `cuts` random places between its least and its largest value, and the best of
    all these by Gini's impurity is taken (after Geurts, Ernst and Wehenkel, "Extremely randomized trees", 2006). Every
    tree sees all records. What a tree says counts by how much the largest label of its leaf exceeds the next one.

    Copies that are forests agree more than copies that are trees, above all where the truth is smooth in many features;
    where few cuts decide they are no better, and a vote takes about ten times as long: measure first.

    Nothing is drawn. The random places follow from the copy's own records. So copies differ, and two copies that were
    taught the same records are the same.

    Parameters
    ----------
    trees
        Trees in a copy: an odd number has fewer ties.
    memory, max_depth, min_leaf
        As for `DecisionTree`; the trees are grown anew as often.
    cuts
        Places tried in each feature. With many of them all trees become alike, and like `DecisionTree`.
    class_weight, warmup, labels
        As for `Stacked`.

    Examples
    --------
    >>> learner = ExtraTrees(memory=64)
    >>> for i in range(64):
    ...     x = [i % 8, i // 8]
    ...     learner.learn(x, int(x[0] > 3 and x[1] > 3))
    >>> learner.predict([5, 7]), learner.predict([5, 1]), learner.predict([1, 6])
    (1, 0, 0)
    """

    def __init__(
        self,
        trees: int = 7,
        memory: int = 1024,
        max_depth: int = 32,
        min_leaf: int = 1,
        cuts: int = 3,
        class_weight: Sequence[float] | None = None,
        warmup: int = 1,
        labels: int = 2,
    ) -> None:
        super().__init__(memory, max_depth, min_leaf, class_weight, warmup, labels)
        self.trees = integer(trees, "trees", 1, 1 << 10)
        self.cuts = integer(cuts, "cuts", 1)

    def constants(self) -> Floats:
        numbers = [self.trees, self.memory, self.max_depth, self.min_leaf, self.cuts]
        return np.array([*numbers, *self._weight], dtype=np.float64)


# Nodes are those of `confide.learners.tree`, each tree's after those of the one before, children numbered within the
# tree. The first word of a leaf, where a question has its cut, is what its label counts, as a float32.

_fitted, _targets = compiled.view(np.int64, 0), compiled.view(np.int16, 1)
_records, _nodes, _cuts = compiled.view(np.float32, 2), compiled.view(np.int32, 2), compiled.view(np.float32, 2)


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    """A copy's trees are walked side by side, so that the memory of all of them is waited for at once."""
    nodes, cuts, trees = _nodes(memory, 4), _cuts(memory, 4), int(constants[0])
    x = x.astype(np.float32)
    room, sums, at = nodes.shape[1] // trees, np.empty(counts.size), np.empty(trees, np.int64)
    for j in range(slots.size):
        if j < ahead.size:
            for tree in range(trees):
                prefetch(nodes.ctypes.data + 8 * (max(ahead[j], 0) * nodes.shape[1] + tree * room))
        slot = slots[j]
        if slot < 0:
            continue
        for label in range(counts.size):
            sums[label] = 0.0
        for tree in range(trees):
            at[tree] = tree * room
        walking = True
        while walking:
            walking = False
            for tree in range(trees):  # no branches: who has arrived stays
                word = nodes[slot, at[tree], 1]
                asked = max(word, 0)
                child = tree * room + (asked & 0xFFFF) + (x[asked >> 16] > cuts[slot, at[tree], 0])
                at[tree] = child if word >= 0 else at[tree]
                walking |= word >= 0
        best = -1
        for tree in range(trees):
            label = -1 - nodes[slot, at[tree], 1]
            sums[label] += cuts[slot, at[tree], 0]
            if best < 0 or sums[label] > sums[best]:
                best = label
        counts[best] += 1


@jit
def _mix(word: np.uint64) -> np.uint64:
    """A word in which every bit depends on every bit (Steele, Lea and Flood's SplitMix, 2014)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@jit
def _score(
    column: Singles,
    targets: NDArray[np.int16],
    weight: Floats,
    here: Ints,
    total: Floats,
    cut: np.float32,
    min_leaf: int,
    left: Floats,
) -> float:
    """How pure the two sides of a cut are; −1 where one of them is too small."""
    for y in range(total.size):
        left[y] = 0.0
    size = 0
    for record in here:
        y, goes_left = targets[record], column[record] <= cut
        size += goes_left
        left[y] += weight[y] * goes_left
    if size < min_leaf or here.size - size < min_leaf:
        return -1.0
    left_terms, right_terms, left_weight, right_weight = 0.0, 0.0, 0.0, 0.0
    for y in range(total.size):
        right = total[y] - left[y]
        left_terms += left[y] * left[y]
        right_terms += right * right
        left_weight += left[y]
        right_weight += right
    return left_terms / left_weight + right_terms / right_weight


@jit
def _best_cut(
    columns: Singles,
    targets: NDArray[np.int16],
    weight: Floats,
    here: Ints,
    total: Floats,
    min_leaf: int,
    tries: int,
    word: np.uint64,
) -> tuple[int, np.float32, np.uint64]:
    """Feature (−1 for none) and cut of the best of the random cuts of the records `here`, and the word after these."""
    found, cut, best, left = -1, np.float32(0.0), -1.0, np.empty(total.size)
    for feature in range(columns.shape[0]):
        column = columns[feature]
        low, high = column[here[0]], column[here[0]]
        for record in here:
            low, high = min(low, column[record]), max(high, column[record])
        if not low < high:
            continue
        for _ in range(tries):
            word += _STEP
            share = np.float64(_mix(word) >> np.uint64(11)) / 9007199254740992.0  # 2⁵³
            place = np.float32(np.float64(low) + share * (np.float64(high) - np.float64(low)))
            place = place if place < high else low
            score = _score(column, targets, weight, here, total, place, min_leaf, left)
            if score > best:
                found, cut, best = feature, place, score
    return found, cut, word


@jit
def _sum_up(
    targets: NDArray[np.int16], weight: Floats, here: Ints, label: int, total: Floats
) -> tuple[int, float, int]:
    """The label of the records `here` (`label` decides ties), what it counts, and how many labels there are."""
    for y in range(total.size):
        total[y] = 0.0
    for record in here:
        total[targets[record]] += weight[targets[record]]
    best, kinds, whole, second = label, 0, 0.0, 0.0
    for y in range(total.size):
        kinds += total[y] > 0.0
        whole += total[y]
        if total[y] > total[best]:
            best = y
    for y in range(total.size):
        if y != best:
            second = max(second, total[y])
    return best, (total[best] - second) / whole, kinds


@jit
def _grow(
    columns: Singles,
    targets: NDArray[np.int16],
    weight: Floats,
    max_depth: int,
    min_leaf: int,
    tries: int,
    word: np.uint64,
    nodes: NDArray[np.int32],
    cuts: Singles,
) -> np.uint64:
    """Fill the nodes of one tree, breadth first; a node owns some of the records in `order`. The next random word."""
    size, room = columns.shape[1], nodes.shape[0]
    order, spare, total = np.arange(size), np.empty(size, np.int64), np.empty(weight.size)
    first, last = np.zeros(room, np.int64), np.zeros(room, np.int64)
    depth, label = np.zeros(room, np.int64), np.zeros(room, np.int64)
    last[0], used, node = size, 1, 0
    while node < used:
        a, b = first[node], last[node]
        best, margin, kinds = _sum_up(targets, weight, order[a:b], label[node], total)
        feature, cut = -1, np.float32(0.0)
        if kinds > 1 and b - a >= 2 * min_leaf and depth[node] < max_depth and used + 2 <= room:
            feature, cut, word = _best_cut(columns, targets, weight, order[a:b], total, min_leaf, tries, word)
        if feature < 0:
            nodes[node, 1], cuts[node, 0] = -1 - best, margin
            node += 1
            continue
        nodes[node, 1], cuts[node, 0] = feature << 16 | used, cut
        middle, aside = a, 0
        for i in range(a, b):
            record = order[i]
            if columns[feature, record] <= cut:
                order[middle] = record
                middle += 1
            else:
                spare[aside] = record
                aside += 1
        for i in range(aside):
            order[middle + i] = spare[i]
        first[used], last[used], first[used + 1], last[used + 1] = a, middle, middle, b
        depth[used] = depth[used + 1] = depth[node] + 1
        label[used] = label[used + 1] = best
        used += 2
        node += 1
    return word


@jit
def _plant(
    records: Singles,
    targets: NDArray[np.int16],
    weight: Floats,
    trees: int,
    max_depth: int,
    min_leaf: int,
    tries: int,
    nodes: NDArray[np.int32],
    cuts: Singles,
) -> None:
    """Grow all trees: the records by column, and the first random word from every bit of them."""
    size, features = records.shape
    columns, bits, word = np.empty((features, size), np.float32), records.view(np.uint32), np.uint64(size)
    for i in range(size):
        for feature in range(features):
            columns[feature, i] = records[i, feature]
            word = _mix(word + _STEP + np.uint64(bits[i, feature]))
    room = nodes.shape[0] // trees
    for tree in range(trees):
        part = slice(tree * room, (tree + 1) * room)
        word = _grow(columns, targets, weight, max_depth, min_leaf, tries, word, nodes[part], cuts[part])


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    records, targets, fitted, most = _records(memory, 1), _targets(memory, 2), _fitted(memory, 3), int(constants[1])
    keep_record(records[slot], targets[slot], seen % most, x, y)
    if due(seen + 1, fitted[slot], most):
        size, trees = min(seen + 1, most), int(constants[0])
        depth, leaf, tries = int(constants[2]), int(constants[3]), int(constants[4])
        nodes, cuts = _nodes(memory, 4)[slot], _cuts(memory, 4)[slot]
        _plant(records[slot, :size], targets[slot, :size], constants[5:], trees, depth, leaf, tries, nodes, cuts)
        fitted[slot] = seen + 1


ExtraTrees.kernels = (_vote, _teach)
