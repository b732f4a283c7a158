"""Littlestone dimensions against known values, brute force, and their own witnesses."""

import copy
import pickle
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from confide.learners import Halving, StandardOptimal, WeightedMajority
from confide.learners.theory import littlestone
from confide.learners.theory.littlestone import FiniteClass, littlestone_dimension

pytestmark = pytest.mark.claim("learners.md")

Table = NDArray[np.uint8]


def thresholds(points: int) -> Table:
    return np.tri(points + 1, points, -1, dtype=np.uint8)


def cube(n: int) -> Table:
    return np.array(list(product((0, 1), repeat=n)), dtype=np.uint8)


def subsets(points: int, sizes: range) -> Table:
    chosen = [set(c) for size in sizes for c in combinations(range(points), size)]
    return np.array([[x in c for x in range(points)] for c in chosen], dtype=np.uint8)


def intervals(points: int) -> Table:
    ends = [(a, b) for a in range(points + 1) for b in range(a, points + 1)]
    return np.unique([[a <= x < b for x in range(points)] for a, b in ends], axis=0).astype(np.uint8)


def around(left: int, right: int) -> Table:
    """Intervals that hold a given point, with so many left ends and right ends."""
    return beside(thresholds(left - 1), 1 - thresholds(right - 1))


def parities(n: int) -> Table:
    return (cube(n) @ cube(n).T % 2).astype(np.uint8)


def conjunctions(n: int, negations: bool) -> Table:
    """0 where the literal must not be there, 1 where it must, 2 for either; and the one that is never true."""
    signs = list(product((0, 1, 2) if negations else (1, 2), repeat=n))
    rows = [[all(s in (2, v) for s, v in zip(sign, x, strict=True)) for x in cube(n)] for sign in signs]
    return np.array([*rows, [False] * 2**n] if negations else rows, dtype=np.uint8)


def code(generator: list[str]) -> Table:
    basis = np.array([[int(c) for c in word] for word in generator])
    return (cube(len(generator)) @ basis % 2).astype(np.uint8)


def beside(*classes: Table) -> Table:
    """Any hypothesis of each class, on their points side by side: dimensions add up."""
    return np.array([np.concatenate(rows) for rows in product(*classes)], dtype=np.uint8)


def lines(q: int) -> Table:
    """The lines of the projective plane over the prime q, with its points."""
    triples = [t for t in product(range(q), repeat=3) if any(t)]
    first = [t for t in triples if next(v for v in t if v) == 1]
    return np.array([[np.dot(a, b) % q == 0 for b in first] for a in first], dtype=np.uint8)


def paths(depth: int) -> Table:
    """For each leaf of a binary tree: the turns on the way to it, 0 at all other nodes."""
    rows = np.zeros((2**depth, 2**depth - 1), dtype=np.uint8)
    for leaf in range(2**depth):
        node = 0
        for level in range(depth):
            turn = leaf >> (depth - 1 - level) & 1
            rows[leaf, node] = turn
            node = 2 * node + 1 + turn
    return rows


KNOWN: dict[str, tuple[Callable[[], Table], int]] = {
    "one function": (lambda: np.array([[0, 1, 0]], dtype=np.uint8), 0),
    "two functions": (lambda: np.array([[0, 1, 0], [0, 0, 0]], dtype=np.uint8), 1),
    "points": (lambda: np.eye(9, dtype=np.uint8), 1),
    "points and nothing": (lambda: subsets(9, range(2)), 1),
    "all but a point": (lambda: 1 - np.eye(9, dtype=np.uint8), 1),
    "thresholds, 7": (lambda: thresholds(7), 3),
    "thresholds, 14": (lambda: thresholds(14), 3),
    "thresholds, 15": (lambda: thresholds(15), 4),
    "thresholds, 300": (lambda: thresholds(300), 8),
    "thresholds both ways, 16": (lambda: np.vstack([thresholds(16), 1 - thresholds(16)]), 5),
    "intervals around a point, 8 and 4 ends": (lambda: around(8, 4), 5),
    "intervals around a point, 7 and 9 ends": (lambda: around(7, 9), 5),
    "at most 2 of 12": (lambda: subsets(12, range(3)), 2),
    "at most 3 of 10": (lambda: subsets(10, range(4)), 3),
    "exactly 3 of 9": (lambda: subsets(9, range(3, 4)), 3),
    "exactly 6 of 8": (lambda: subsets(8, range(6, 7)), 2),
    "the cube, 5": (lambda: cube(5), 5),
    "parities, 4": (lambda: parities(4), 4),
    "parities and their complements, 4": (lambda: np.vstack([parities(4), 1 - parities(4)]), 5),
    "monotone conjunctions, 4": (lambda: conjunctions(4, negations=False), 4),
    "monotone disjunctions, 3": (lambda: 1 - conjunctions(3, negations=False)[:, ::-1], 3),
    "one variable of 20": (lambda: np.random.default_rng(1).integers(0, 2, (20, 400)).astype(np.uint8), 4),
    "the Hamming code": (lambda: code(["1000011", "0100101", "0010110", "0001111"]), 4),
    "lines of the plane of order 2": (lambda: lines(2), 2),
    "lines of the plane of order 3": (lambda: lines(3), 2),
    "paths in a tree of depth 6": (lambda: paths(6), 6),
    "two points beside three": (lambda: beside(np.eye(4), np.eye(5)).astype(np.uint8), 2),
    "thresholds beside a cube": (lambda: beside(thresholds(7), cube(2)), 5),
}


def brute(table: Table) -> int:
    @lru_cache(None)
    def depth(left: frozenset[tuple[int, ...]]) -> int:
        best = 0
        for x in range(table.shape[1]):
            zero = frozenset(h for h in left if not h[x])
            if zero and zero != left:
                best = max(best, 1 + min(depth(zero), depth(left - zero)))
        return best

    return depth(frozenset(map(tuple, table.tolist())))


def shatters(table: Table, depth: int) -> bool:
    """The plainest search with a memo, on sets of hypotheses as bits of an integer."""
    distinct = np.unique(table, axis=0)
    columns = [int.from_bytes(np.packbits(column).tobytes()) >> -len(column) % 8 for column in distinct.T]

    @lru_cache(None)
    def reaches(left: int, depth: int) -> bool:
        size = left.bit_count()
        if size < 2**depth or depth <= 1:
            return size >= 2**depth
        for column in columns:
            sides = sorted((left & column, left & ~column), key=int.bit_count)
            if sides[0].bit_count() >= 2 ** (depth - 1) and all(reaches(side, depth - 1) for side in sides):
                return True
        return False

    return reaches((1 << len(distinct)) - 1, depth)


def assert_shattered(table: Table, dimension: int, tree: littlestone.Tree) -> None:
    labels = set()
    for pairs, hypothesis in tree.branches():
        assert all(table[hypothesis, point] == label for point, label in pairs)
        labels.add(tuple(label for _, label in pairs))
    assert tree.depth == dimension and len(labels) == 2**dimension
    assert all(len(branch) == dimension for branch in labels)


@pytest.mark.parametrize("name", KNOWN)
def test_the_dimension_is_the_known_one_and_its_tree_is_shattered(name: str) -> None:
    make, known = KNOWN[name]
    table = make()
    dimension, tree = littlestone_dimension(table, tree=True)
    assert dimension == known == littlestone_dimension(table)
    assert_shattered(table, dimension, tree)


@pytest.mark.parametrize("points", range(1, 8))
def test_intervals_and_conjunctions_against_brute_force(points: int) -> None:
    assert littlestone_dimension(intervals(points)) == brute(intervals(points))
    if points < 3:
        table = conjunctions(points, negations=True)
        assert littlestone_dimension(table) == brute(table) <= points + 1


@given(st.integers(1, 20), st.integers(1, 9), st.sampled_from([0.1, 0.3, 0.5]), st.integers(0, 2**32))
@settings(max_examples=250, deadline=None)
def test_random_classes_against_brute_force(rows: int, points: int, share: float, seed: int) -> None:
    table = (np.random.default_rng(seed).random((rows, points)) < share).astype(np.uint8)
    dimension, tree = littlestone_dimension(table, tree=True)
    assert dimension == brute(table)
    assert_shattered(table, dimension, tree)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_relabelling_doubling_and_constants_change_nothing(seed: int) -> None:
    draw = np.random.default_rng(seed)
    table = (draw.random((40, 70)) < 0.2).astype(np.uint8)  # more points than a word has bits
    dimension = littlestone_dimension(table)
    flipped = table ^ draw.integers(0, 2, 70).astype(np.uint8)
    larger = np.hstack([flipped, flipped[:, :5], np.ones((40, 2), dtype=np.uint8)])[draw.permutation(40)]
    assert littlestone_dimension(np.vstack([larger, larger[:7]])) == dimension
    assert littlestone_dimension(table[:20]) <= dimension <= littlestone_dimension(table[:20]) + 20


@pytest.mark.parametrize("share", [0.5, 0.1, 0.03])
def test_ten_thousand_hypotheses_on_sixty_four_points(share: float) -> None:
    """Random and sparse: the tree proves that the dimension is no smaller, another search that it is no larger."""
    table = (np.random.default_rng(5).random((10_000, 64)) < share).astype(np.uint8)
    dimension, tree = littlestone_dimension(table, tree=True)
    assert_shattered(table, dimension, tree)
    assert dimension == {0.5: 13, 0.1: 6, 0.03: 5}[share]
    assert not shatters(table, dimension + 1)


def test_ten_thousand_small_sets() -> None:
    """All sets of at most 2 of 64 points, and others of 3: more than 2081 rows, so 3 points or more are shattered."""
    table = subsets(64, range(4))[:10_000]
    assert littlestone_dimension(table) == 3


def test_a_memo_of_two_places_gives_the_same_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [(np.random.default_rng(i).random((60, 12)) < 0.3).astype(np.uint8) for i in range(20)]
    dimensions = [littlestone_dimension(table) for table in tables]
    monkeypatch.setattr(littlestone, "_PLACES", 1)
    assert [littlestone_dimension(table) for table in tables] == dimensions
    assert FiniteClass(tables[0]).memo().keys.shape[0] == 2


def test_what_was_asked_before_changes_no_answer() -> None:
    """Within one memo too: an answer is the same whoever asked for what before."""
    table = (np.random.default_rng(8).random((50, 10)) < 0.4).astype(np.uint8)
    ways = [[(x, y) for x in order for y in (0, 1)] for order in (range(10), range(9, -1, -1))]
    answers = []
    for way in ways:
        shared = FiniteClass(table)
        memo, found = shared.memo(), {}
        for x, y in way:
            left = shared.restrict(shared.everyone, x, y)
            for z in range(10):
                deeper = shared.restrict(left, z, 1)
                found[x, y, z] = (shared.dimension(deeper, memo), shared.standard(left, memo).tolist())
        answers.append(found)
    assert answers[0] == answers[1]
    for (x, y, z), (dimension, _) in answers[0].items():
        left = shared.table[(shared.table[:, x] == y) & (shared.table[:, z] == 1)]
        assert dimension == (brute(left) if len(left) else -1)


@pytest.mark.parametrize("kind", [StandardOptimal, Halving, WeightedMajority])
def test_a_lesson_leaves_nothing_behind_for_another_copy(kind: Any) -> None:
    """What is kept with the class, and shared by all copies, is the same whatever one copy was taught."""
    known = FiniteClass(thresholds(15))
    learners = [kind(known) for _ in range(2)]
    known.dimension()

    def kept() -> bytes:
        memo = littlestone._MEMOS[known]
        return pickle.dumps((memo.keys.tobytes(), memo.bounds.tobytes(), memo.dimensions, memo.answers))

    before, slots = kept(), set(vars(known))
    for point in (7, 3, 11, 5):
        learners[0].learn([point], int(point > 6))
    assert kept() == before and set(vars(known)) == slots


def test_a_class_is_one_object_in_all_its_copies() -> None:
    known = FiniteClass(thresholds(7))
    assert copy.deepcopy([known])[0] is known and copy.copy(known) is known
    saved, name = pickle.dumps([known]), repr(known)
    assert pickle.loads(saved)[0] is known
    del known
    first, second = pickle.loads(saved)[0], pickle.loads(saved)[0]
    assert first is second and (first.table == FiniteClass(thresholds(7)).table).all() and repr(first) == name
    assert repr(FiniteClass(thresholds(6))) != name
    with pytest.raises(ValueError, match="read-only"):
        first.table[0, 0] = 1


@pytest.mark.parametrize("bad", [[], [[]], [0, 1], [[0, 2]], [[0, float("nan")]], [["0", "1"]], np.zeros((2, 2, 2))])
def test_what_is_no_class_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="H must"):
        littlestone_dimension(bad)  # type: ignore[call-overload]


def test_a_set_that_no_labels_leave_is_refused() -> None:
    known = FiniteClass(cube(3))
    some = known.everyone.copy()
    some[0] = 0b10010110
    with pytest.raises(ValueError, match="labelled points"):
        known.dimension(some)
