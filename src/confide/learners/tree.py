"""Few-shot decision trees: compiled, exact, and stackable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints, Singles, Slots
from confide.kernels import memory as compiled
from confide.kernels.compile import jit
from confide.learners.base import Arrays, Layout, Stacked
from confide.learners.refit import due


class Remembering(Stacked):
    """Base of trees: a copy keeps its last records, and grows anew whenever they have grown by a quarter."""

    trees = 1  # in a copy; their nodes lie one after the other

    def __init__(
        self, memory: int, max_depth: int, min_leaf: int, class_weight: Sequence[float] | None, warmup: int, labels: int
    ) -> None:
        super().__init__(labels, warmup, class_weight)
        self.memory = integer(memory, "memory", 2, 1 << 15)
        self.max_depth = integer(max_depth, "max_depth", 1)
        self.min_leaf = integer(min_leaf, "min_leaf", 1, memory)

    def layout(self, features: int) -> Layout:
        if features >= 1 << 15:
            raise ValueError("a tree takes at most 32767 features: hash them to fewer")
        return {
            "records": ((self.memory, features), np.float32),
            "targets": ((self.memory,), np.int16),
            "fitted": ((), np.int64),  # what `seen` was at the last fit
            "nodes": ((self.trees * 2 * max(1, self.memory // self.min_leaf), 2), np.int32),
        }

    def sound(self, arrays: Arrays) -> bool:
        targets, nodes = arrays["targets"], arrays["nodes"]
        named = bool(((targets >= 0) & (targets < self.labels)).all())
        each = nodes.reshape(-1, nodes.shape[1] // self.trees, 2)
        return super().sound(arrays) and named and leads_on(each, arrays["records"].shape[2], self.labels)


class DecisionTree(Remembering):
    """A classification tree on its own last records, grown anew whenever they have grown by a quarter.

    A copy sees few records, so it keeps them. Before `memory` is full it is refit whenever a quarter more
    have come; afterwards, whenever a quarter of the memory has been replaced. Splits are exact: every
    feature, every place between two values, the best by `criterion` (Breiman, Friedman, Olshen and Stone,
    "Classification and Regression Trees", 1984). Trees need no scaling.

    Parameters
    ----------
    memory
        Records kept; the oldest is replaced first. A copy that will see more labels than this learns little more from
        them; fewer make it forget sooner, where the world changes.
    max_depth
        Questions asked at most.
    min_leaf
        Records in a leaf at least.
    criterion
        "gini" or "entropy".
    class_weight, warmup, labels
        As for `Stacked`.

    Examples
    --------
    >>> learner = DecisionTree(memory=64)
    >>> for i in range(64):
    ...     x = [i % 8, i // 8]
    ...     learner.learn(x, int(x[0] > 3 and x[1] > 3))
    >>> learner.predict([5, 7]), learner.predict([5, 1]), learner.predict([1, 6])
    (1, 0, 0)
    """

    def __init__(
        self,
        memory: int = 1024,
        max_depth: int = 32,
        min_leaf: int = 1,
        criterion: str = "gini",
        class_weight: Sequence[float] | None = None,
        warmup: int = 1,
        labels: int = 2,
    ) -> None:
        super().__init__(memory, max_depth, min_leaf, class_weight, warmup, labels)
        if criterion not in ("gini", "entropy"):
            raise ValueError('criterion must be "gini" or "entropy"')
        self.criterion = criterion

    def constants(self) -> Floats:
        numbers = [self.memory, self.max_depth, self.min_leaf, self.criterion == "entropy"]
        return np.array([*numbers, *self._weight], dtype=np.float64)


# A node is two 32-bit words, so that eight of them share a cache line. The first is the cut, as a float32
# (`cuts` is the same memory as `nodes`). The second is feature << 16 | left child for a question, whose right
# child comes next after the left one, and −1 − label for a leaf.

_fitted, _targets = compiled.view(np.int64, 0), compiled.view(np.int16, 1)
_records, _nodes, _cuts = compiled.view(np.float32, 2), compiled.view(np.int32, 2), compiled.view(np.float32, 2)


@jit
def _vote(memory: Ints, constants: Floats, slots: Slots, ahead: Slots, x: Floats, counts: Ints) -> None:
    nodes, cuts = _nodes(memory, 4), _cuts(memory, 4)
    x = x.astype(np.float32)
    for slot in slots:
        if slot < 0:
            continue
        node = 0
        word = nodes[slot, node, 1]
        while word >= 0:
            node = (word & 0xFFFF) + (x[word >> 16] > cuts[slot, node, 0])
            word = nodes[slot, node, 1]
        counts[-1 - word] += 1


@jit
def keep_record(records: Singles, targets: NDArray[np.int16], place: int, x: Floats, y: int) -> None:
    """Write a record over the one in its place."""
    for i in range(x.size):
        records[place, i] = x[i]
    targets[place] = y


@jit
def leads_on(nodes: NDArray[np.int32], features: int, labels: int) -> bool:
    """Whether every question leads on to nodes that come later, and every leaf has a label."""
    slots, room = nodes.shape[0], nodes.shape[1]
    for slot in range(slots):
        reached = np.zeros(room, np.bool_)
        reached[0] = True
        for node in range(room):
            word = nodes[slot, node, 1]
            if reached[node] and word < 0 and -1 - word >= labels:
                return False
            if reached[node] and word >= 0:
                child = word & 0xFFFF
                if word >> 16 >= features or child <= node or child + 1 >= room:
                    return False
                reached[child] = reached[child + 1] = True
    return True


@jit
def _term(weight: float, entropy: bool) -> float:
    """What one label of the given weight adds to the purity of a side."""
    if entropy:
        return float(weight * np.log(weight)) if weight > 0.0 else 0.0
    return weight * weight


@jit
def _purity(terms: float, weight: float, entropy: bool) -> float:
    """How pure a side is, times its weight, from the sum of its labels' terms."""
    return float(terms - weight * np.log(weight)) if entropy else terms / weight


@jit
def _best_split(
    records: Singles,
    targets: NDArray[np.int16],
    weight: Floats,
    order: Ints,
    total: Floats,
    min_leaf: int,
    entropy: bool,
) -> tuple[int, float]:
    """Feature (−1 for none) and cut of the best split of the records in `order`, sorted by each feature."""
    features, size = order.shape
    left, right = np.zeros(total.size), np.zeros(total.size)
    terms, whole_weight = 0.0, 0.0
    for w in total:
        terms += _term(w, entropy)
        whole_weight += w
    found, cut, best = -1, 0.0, 0.0
    for feature in range(features):
        for y in range(total.size):  # loops, as here, compile in a fraction of the time of slices
            left[y], right[y] = 0.0, total[y]
        left_terms, right_terms, left_weight, right_weight = 0.0, terms, 0.0, whole_weight
        row = order[feature]
        for i in range(size - min_leaf):
            y = targets[row[i]]
            w = weight[y]
            left_terms += _term(left[y] + w, entropy) - _term(left[y], entropy)
            right_terms += _term(right[y] - w, entropy) - _term(right[y], entropy)
            left[y] += w
            right[y] -= w
            left_weight += w
            right_weight -= w
            low, high = records[row[i], feature], records[row[i + 1], feature]
            if i + 1 < min_leaf or not low < high:
                continue
            purity = _purity(left_terms, left_weight, entropy) + _purity(right_terms, right_weight, entropy)
            if found < 0 or purity > best + 1e-9 * abs(best):  # among equals the first feature wins
                found, best = feature, purity
                middle = np.float32(0.5 * (np.float64(low) + np.float64(high)))
                cut = float(middle if middle < high else low)
    return found, cut


@jit
def _sort(records: Singles, feature: int, order: Ints) -> None:
    """Write the records in the order of a feature over `order`, equal ones as they come: runs of 8, then merges."""
    size = order.size
    for start in range(0, size, 8):
        for i in range(start, min(start + 8, size)):
            value, place = records[i, feature], i
            while place > start and records[order[place - 1], feature] > value:
                order[place] = order[place - 1]
                place -= 1
            order[place] = i
    other, run = np.empty(size, np.int64), 8
    while run < size:
        for start in range(0, size, 2 * run):
            middle, end = min(start + run, size), min(start + 2 * run, size)
            left, right = start, middle
            for put in range(start, end):
                from_left = right >= end or (
                    left < middle and records[order[left], feature] <= records[order[right], feature]
                )
                other[put] = order[left] if from_left else order[right]
                left, right = left + from_left, right + (not from_left)
        for i in range(size):
            order[i] = other[i]
        run *= 2


@jit
def _divide(row: Ints, a: int, b: int, goes_left: NDArray[np.bool_], spare: Ints) -> None:
    """Those of row[a:b] that go left first, in the order they had, so that each side stays sorted."""
    put, aside = a, 0
    for i in range(a, b):
        if goes_left[row[i]]:
            row[put] = row[i]
            put += 1
        else:
            spare[aside] = row[i]
            aside += 1
    for i in range(aside):
        row[put + i] = spare[i]


@jit
def _grow(
    records: Singles,
    targets: NDArray[np.int16],
    weight: Floats,
    max_depth: int,
    min_leaf: int,
    entropy: bool,
    nodes: NDArray[np.int32],
    cuts: Singles,
) -> None:
    """Fill `nodes`. `order` has the records sorted by each feature, one row each; a node owns some columns of it."""
    size, features = records.shape
    order = np.empty((features, size), np.int64)
    for f in range(features):
        _sort(records, f, order[f])
    room = nodes.shape[0]
    first, last = np.zeros(room, np.int64), np.zeros(room, np.int64)
    depth, label = np.zeros(room, np.int64), np.zeros(room, np.int64)
    goes_left, spare = np.zeros(size, np.bool_), np.empty(size, np.int64)
    total = np.zeros(weight.size)
    last[0], used, node = size, 1, 0
    while node < used:  # breadth first: the questions that everybody is asked lie together
        a, b = first[node], last[node]
        for y in range(total.size):
            total[y] = 0.0
        for i in range(a, b):
            y = targets[order[0, i]]
            total[y] += weight[y]
        best, kinds = label[node], 0  # the parent's label decides ties
        for y in range(total.size):
            kinds += total[y] > 0.0
            if total[y] > total[best]:
                best = y
        feature, cut = -1, 0.0
        if kinds > 1 and b - a >= 2 * min_leaf and depth[node] < max_depth and used + 2 <= room:
            feature, cut = _best_split(records, targets, weight, order[:, a:b], total, min_leaf, entropy)
        if feature < 0:
            nodes[node, 1] = -1 - best
            node += 1
            continue
        cuts[node, 0] = cut
        nodes[node, 1] = feature << 16 | used
        middle = a
        for i in range(a, b):
            record = order[feature, i]
            goes_left[record] = records[record, feature] <= cuts[node, 0]
            middle += goes_left[record]
        for f in range(features):
            _divide(order[f], a, b, goes_left, spare)
        first[used], last[used], first[used + 1], last[used + 1] = a, middle, middle, b
        depth[used] = depth[used + 1] = depth[node] + 1
        label[used] = label[used + 1] = best
        used += 2
        node += 1


@jit
def _teach(memory: Ints, constants: Floats, slot: int, seen: int, x: Floats, y: int) -> None:
    records, targets, fitted, most = _records(memory, 1), _targets(memory, 2), _fitted(memory, 3), int(constants[0])
    keep_record(records[slot], targets[slot], seen % most, x, y)
    if due(seen + 1, fitted[slot], most):
        size, depth, leaf, entropy = min(seen + 1, most), int(constants[1]), int(constants[2]), constants[3] > 0.0
        nodes, cuts = _nodes(memory, 4)[slot], _cuts(memory, 4)[slot]
        _grow(records[slot, :size], targets[slot, :size], constants[4:], depth, leaf, entropy, nodes, cuts)
        fitted[slot] = seen + 1


DecisionTree.kernels = (_vote, _teach)
