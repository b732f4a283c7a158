"""Learners with a mistake bound: adversaries that reach it, sequences that never pass it, copies that stay apart."""

import copy
import io
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import confide.learners.agnostic_experts
from confide.banks import Bank, ReplicaBank, StackedBank, bank_for, checks
from confide.learners import Perceptron
from confide.learners.agnostic_experts import AgnosticExperts
from confide.learners.base import Bounded
from confide.learners.classes import ClassLearner, FiniteLearner
from confide.learners.conjunctions import Conjunctions
from confide.learners.halving import Halving
from confide.learners.intervals import Intervals
from confide.learners.parities import Parities
from confide.learners.points import Points
from confide.learners.standard_optimal import StandardOptimal
from confide.learners.theory.littlestone import FiniteClass, Tree
from confide.learners.thresholds import Thresholds
from confide.learners.weighted_majority import WeightedMajority
from confide.learners.winnow import Winnow
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("learners.md")

LINE = np.tri(16, 15, -1)  # thresholds, as a table
LEARNERS: list[partial[ClassLearner]] = [  # made when they are asked for: some compile a search for it
    partial(Points),
    partial(Thresholds, 9),
    partial(Intervals, 9),
    partial(Conjunctions, 4),
    partial(Conjunctions, 4, negations=False),
    partial(Conjunctions, 70),
    partial(Parities, 4),
    partial(Parities, 70),
    partial(Winnow, 4),
    partial(Winnow, 70, relevant=2, eliminate=True),
    partial(Halving, LINE),
    partial(StandardOptimal, np.eye(70)),
    partial(WeightedMajority, LINE),
    partial(AgnosticExperts, np.eye(12), rounds=500),
]
NAMES = [f"{make.func.__name__}-{i}" for i, make in enumerate(LEARNERS)]  # type: ignore[attr-defined]
EVERY = pytest.mark.parametrize("learner", LEARNERS, ids=NAMES, indirect=True)


@pytest.fixture(scope="module")
def learner(request: pytest.FixtureRequest) -> ClassLearner:
    made: ClassLearner = request.param()
    return made


def inputs(learner: ClassLearner, number: int, seed: int = 1) -> NDArray[np.int64]:
    """Questions that the learner takes."""
    draw = np.random.default_rng(seed)
    if learner._features > 1:
        return draw.integers(0, 2, (number, learner._features))
    return draw.integers(0, learner.H.points if isinstance(learner, FiniteLearner) else 10, (number, 1))


def force(learner: Any, questions: Iterable[Sequence[float]]) -> list[tuple[Sequence[float], int]]:
    """Call every answer wrong."""
    told = []
    for x in questions:
        y = 1 - learner.predict(x)
        learner.learn(x, y)
        told.append((x, y))
    return told


def worst(learner: ClassLearner, points: Sequence[Sequence[float]], rows: list[tuple[int, ...]]) -> int:
    """The most mistakes that any sequence can force which some row labels without error, by trying all."""
    seen: dict[tuple[Any, ...], int] = {}

    def most(now: ClassLearner, left: tuple[int, ...]) -> int:
        assert now.learned is not None
        name = (*(array.tobytes() for key, array in now.learned.items() if key != "seen"), left)
        if name not in seen:
            seen[name] = 0
            for i, x in enumerate(points):
                y = 1 - int(now.predict(x) or 0)
                agree = tuple(row for row in left if rows[row][i] == y)
                if agree:
                    taught = copy.deepcopy(now)
                    taught.learn(x, y)
                    seen[name] = max(seen[name], 1 + most(taught, agree))
        return seen[name]

    return most(learner, tuple(range(len(rows))))


# ---------------------------------------------------------------- bounds that are reached


def test_points_err_once() -> None:
    assert len(force(Points(), [[5]])) == Points().mistake_bound() == 1
    assert worst(Points(), [[x] for x in range(6)], [tuple(row) for row in np.eye(6, dtype=int)]) == 1


@pytest.mark.parametrize("points", [1, 2, 3, 6, 7, 8, 1000, 2**40])
def test_bisection_is_forced_to_its_bound(points: int) -> None:
    learner = Thresholds(points)
    low, high, mistakes = 0, points, 0  # of the thresholds that agree
    while low < high:
        x = (low + high - 1) // 2  # as many of them above as not, or one more
        _, y = force(learner, [[x]])[0]
        low, high = (low, x) if y == 1 else (x + 1, high)
        mistakes += 1
    assert mistakes == learner.mistake_bound() == math.floor(math.log2(points + 1))
    if points < 9:
        rows = [tuple(int(x >= a) for x in range(points)) for a in range(points + 1)]
        assert worst(Thresholds(points), [[x] for x in range(points)], rows) == mistakes


@pytest.mark.parametrize("points", [1, 2, 3, 4, 6])
def test_intervals_never_pass_their_bound_and_are_forced_to_it(points: int) -> None:
    rows = [tuple(int(a <= x < b) for x in range(points)) for a in range(points + 1) for b in range(a, points + 1)]
    assert worst(Intervals(points), [[x] for x in range(points)], rows) == Intervals(points).mistake_bound()


@pytest.mark.parametrize("points", [1, 2, 3, 7, 100, 1023, 5000])
def test_the_bound_of_intervals_is_the_largest_over_its_first_point(points: int) -> None:
    most = max((p + 1).bit_length() - 1 + (points - p).bit_length() - 1 for p in range(points))
    assert Intervals(points).mistake_bound() == 1 + most


@pytest.mark.parametrize("n", [1, 5, 64, 65])
def test_elimination_is_forced_to_its_bound(n: int) -> None:
    """The target is the empty conjunction, which is always true: first all ones, then each variable false."""
    whole = np.ones(n)
    for negations in (True, False):
        questions = [whole] if negations else []
        questions += [whole - np.eye(n)[i] for i in range(n)]
        learner = Conjunctions(n, negations)
        told = force(learner, questions)
        assert all(y == 1 for _, y in told) and len(told) == learner.mistake_bound() == n + negations
        assert all(learner.predict(x) == 1 for x in np.random.default_rng(0).integers(0, 2, (20, n)))


@pytest.mark.parametrize("n", [1, 2, 10, 64, 65, 130])
def test_parities_are_forced_to_their_bound(n: int) -> None:
    learner = Parities(n)
    told = force(learner, np.eye(n))
    assert len(told) == learner.mistake_bound() == n
    secret = np.array([y for _, y in told])  # what was told is one parity
    for x in np.random.default_rng(n).integers(0, 2, (30, n)):
        assert learner.predict(x) == secret @ x % 2


@pytest.mark.parametrize(("n", "r"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2)])
@pytest.mark.parametrize("eliminate", [True, False])
def test_winnow_against_all_sequences(n: int, r: int, eliminate: bool) -> None:
    """With elimination the bound is the value of the game, but for n < 4 with all or all but one variable in it."""
    points = list(product((0, 1), repeat=n))
    chosen = [c for size in range(r + 1) for c in combinations(range(n), size)]
    rows = [tuple(int(any(x[i] for i in c)) for x in points) for c in chosen]
    learner = Winnow(n, r, eliminate)
    reached = worst(learner, points, rows)
    assert reached <= learner.mistake_bound() <= reached + (int(r > 1 and n < 4) if eliminate else 3)


@pytest.mark.parametrize("n", [8, 64, 1024])
@pytest.mark.parametrize("eliminate", [True, False])
def test_winnow_is_forced_to_its_bound(n: int, eliminate: bool) -> None:
    """Variable 0 matters. Ones weigh just n/2, zeros just more: the first six or so missed, then all others alarmed."""
    learner = Winnow(n, relevant=1, eliminate=eliminate)
    mistakes = 0
    while True:
        assert learner.learned is not None
        power = learner.learned["power"][0].astype(float)
        weight = np.where(power < -1000, 0.0, 2.0**power)
        room = n / 2 - weight[0] if weight[0] <= n / 2 else n / 2
        x = np.zeros(n)
        for i in sorted(range(1, n), key=lambda i: -weight[i]):
            if 0 < weight[i] <= room:
                x[i] = 1
                room -= weight[i]
        if weight[0] <= n / 2:
            x[0] = 1
        else:
            rest = [i for i in range(1, n) if not x[i] and weight[i] > 0]
            x[min(rest, key=lambda i: weight[i]) if rest else 1] = 1
            if learner.predict(x) == 0:
                break
        assert learner.predict(x) != x[0]
        learner.learn(x, int(x[0]))
        mistakes += 1
    assert mistakes == learner.mistake_bound() - (0 if eliminate else 2)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_halving_is_forced_to_its_bound(n: int) -> None:
    cube = list(product((0, 1), repeat=n))
    assert len(force(Halving(cube), [[x] for x in range(n)])) == Halving(cube).mistake_bound() == n
    line = np.tri(2**n, 2**n - 1, -1, dtype=int)
    rows = [tuple(row) for row in line]
    if n < 4:
        assert worst(Halving(line), [[x] for x in range(2**n - 1)], rows) == n


@pytest.mark.parametrize(
    "table",
    [LINE, np.eye(9), list(product((0, 1), repeat=4)), np.random.default_rng(3).integers(0, 2, (60, 11))],
    ids=["thresholds", "points", "cube", "random"],
)
def test_the_standard_optimal_algorithm_is_forced_to_the_dimension(table: Any) -> None:
    """Down the shattered tree, always the other way: d mistakes, and some hypothesis agrees."""
    known = FiniteClass(table)
    learner, node = StandardOptimal(known), known.tree()
    told = []
    while node.point is not None:
        told += force(learner, [[node.point]])
        child = node.one if told[-1][1] else node.zero
        assert isinstance(child, Tree)
        node = child
    assert len(told) == learner.mistake_bound() == known.dimension()
    assert all(np.asarray(table)[node.hypothesis, int(x[0])] == y for x, y in told)


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_no_sequence_forces_the_standard_optimal_algorithm_further(seed: int) -> None:
    draw = np.random.default_rng(seed)
    table = (draw.random((draw.integers(1, 13), 5)) < 0.4).astype(int)
    known = FiniteClass(table)
    points, rows = [[x] for x in range(5)], [tuple(row) for row in table.tolist()]
    assert worst(StandardOptimal(known), points, rows) == known.dimension()
    assert worst(Halving(known), points, rows) <= Halving(known).mistake_bound()


def test_the_perceptron_is_forced_to_its_bound() -> None:
    """Rows of a Hadamard matrix are orthogonal, so nothing learned from some helps with the others."""
    rows = np.array([[1.0]])
    while len(rows) < 32:
        rows = np.block([[rows, rows], [rows, -rows]])
    rows = rows[:, ::-1]  # the column of ones last: it is the bias
    learner = Perceptron(scale=False)
    mistakes = 0
    for x in rows[:, :-1]:
        mistakes += learner.predict(x) != 1
        learner.learn(x, 1)
    separator = rows.sum(axis=0) / np.linalg.norm(rows.sum(axis=0))
    margin = float((rows @ separator).min())
    assert mistakes == 32 == round((np.linalg.norm(rows[0]) / margin) ** 2)
    assert all(learner.predict(x) == 1 for x in rows[:, :-1])


@pytest.mark.parametrize("beta", [math.exp(-1), 0.7])
def test_weighted_majority_is_forced_close_to_its_bound(beta: float) -> None:
    """Ten hypotheses and all 1024 ways to divide them; the adversary always takes the evenest one.

    No hypothesis errs more than it must, so the bound is all but reached; deterministic learners cannot do better
    than twice the best hypothesis.
    """
    known = FiniteClass(np.array(list(product((0, 1), repeat=10))).T)
    learner = WeightedMajority(known, beta)
    reached = {}
    for mistakes in range(60):
        assert learner.learned is not None
        errors = learner.learned["errors"][0]
        reached[int(errors.min())] = mistakes
        weight = beta ** (errors - errors.min())
        ones = weight @ known.table
        point = int(np.argmin(np.abs(2 * ones - weight.sum())))
        force(learner, [[point]])
    assert all(2 * opt <= made <= learner.mistake_bound(opt) for opt, made in reached.items())
    assert max(made / learner.mistake_bound(opt) for opt, made in reached.items() if opt >= 4) > 0.85


# ---------------------------------------------------------------- bounds that are kept


def concept(learner: ClassLearner, draw: np.random.Generator) -> Callable[[Any], int]:
    """A random function of the learner's class."""
    if isinstance(learner, FiniteLearner):
        row = learner.H.table[draw.integers(learner.H.hypotheses)]
        return lambda x: int(row[int(x[0])])
    if isinstance(learner, Points):
        place = draw.integers(10)
        return lambda x: int(x[0] == place)
    if isinstance(learner, Thresholds):
        start = draw.integers(learner.points + 1)
        return lambda x: int(x[0] >= start)
    if isinstance(learner, Intervals):
        first, end = sorted(draw.integers(0, learner.points + 1, 2))
        return lambda x: int(first <= x[0] < end)
    n = learner._features
    if isinstance(learner, Parities):
        secret = draw.integers(0, 2, n)
        return lambda x: int(secret @ x % 2)
    if isinstance(learner, Winnow):
        few = draw.permutation(n)[: learner.relevant]
        return lambda x: int(np.asarray(x)[few].any())
    some = draw.permutation(n)[: draw.integers(0, 4)]
    value = draw.integers(0, 2, n) if isinstance(learner, Conjunctions) and learner.negations else np.ones(n)
    return lambda x: int((np.asarray(x)[some] == value[some]).all())


@EVERY
@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_function_of_the_class_is_learned_within_the_bound(learner: ClassLearner, seed: int) -> None:
    fresh, target = learner.clone(), concept(learner, np.random.default_rng(seed))
    assert isinstance(fresh, Bounded)
    mistakes = 0
    for x in inputs(learner, 150, seed):
        y = target(x)
        mistakes += fresh.predict(x) != y
        fresh.learn(x, y)
    assert mistakes <= fresh.mistake_bound()


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_without_a_perfect_hypothesis_the_bound_grows_with_the_best(seed: int, noise: float) -> None:
    """Noise 1 is the adversary that calls every answer wrong."""
    draw = np.random.default_rng(seed)
    known = FiniteClass((draw.random((12, 6)) < 0.3).astype(int))
    target = known.table[draw.integers(known.hypotheses)]
    for learner in (WeightedMajority(known), WeightedMajority(known, 0.8), AgnosticExperts(known, rounds=80)):
        errors, mistakes = np.zeros(known.hypotheses, dtype=int), 0
        for _ in range(80):
            point = int(draw.integers(6))
            answer = learner.predict([point])
            wrong = 1 - int(answer or 0)
            y = wrong if noise == 1.0 else int(target[point]) ^ int(draw.random() < noise)
            errors += known.table[:, point] != y
            mistakes += answer != y
            learner.learn([point], y)
        assert mistakes <= learner.mistake_bound(opt=int(errors.min()))


@pytest.mark.parametrize("seed", range(6))
def test_agnostic_experts_are_the_experts_of_the_paper_one_by_one(seed: int) -> None:
    """All Σ C(T, i) experts, each run by itself, and their weighted majority: the same answers."""
    draw = np.random.default_rng(seed)
    known = FiniteClass((draw.random((9, 5)) < 0.4).astype(int))
    rounds, d = 9, known.dimension()
    assert d >= 2
    learner = AgnosticExperts(known, rounds)
    experts = [set(c) for size in range(d + 1) for c in combinations(range(rounds), size)]
    left = [known.everyone] * len(experts)
    weight = np.ones(len(experts))
    assert learner.mistake_bound() == math.floor(math.log(len(experts)) / math.log(2 / (1 + learner.beta)))
    for t in range(rounds):
        said = np.full((len(experts), 5), -1)
        after = {}
        for e, overrules in enumerate(experts):
            answers = [int(known.standard(left[e])[0]) >> point & 1 for point in range(5)]
            for point, answer in enumerate(answers):
                label = answer ^ (t in overrules)
                rest = known.restrict(left[e], point, label) if t in overrules else left[e]
                # Who has more overrulings to come than what is left allows can agree with no hypothesis.
                if rest.any() and sum(i > t for i in overrules) <= known.dimension(rest):
                    said[e, point] = label
                    after[e, point] = rest
        for point in range(5):
            ones, zeros = weight[said[:, point] == 1].sum(), weight[said[:, point] == 0].sum()
            assert abs(ones - zeros) < 1e-9 or learner.predict([point]) == int(ones > zeros)
        point, y = int(draw.integers(5)), int(draw.integers(2))
        weight *= np.where(said[:, point] == y, 1.0, learner.beta) * (said[:, point] >= 0)
        left = [after.get((e, point), left[e]) for e in range(len(experts))]
        learner.learn([point], y)


def test_after_its_rounds_an_agnostic_learner_still_answers() -> None:
    learner = AgnosticExperts(np.eye(5), rounds=20)
    for _ in range(40):
        learner.learn([2], 1)
        learner.learn([1], 0)
    assert [learner.predict([x]) for x in range(5)] == [0, 0, 1, 0, 0]


def test_labels_that_contradict_all_others_are_not_learned() -> None:
    for learner, told, against in (
        (Points(), [([3], 1)], ([4], 1)),
        (Thresholds(9), [([3], 0), ([4], 1)], ([2], 1)),
        (Parities(3), [([1, 1, 0], 1), ([0, 1, 1], 0)], ([1, 0, 1], 0)),
        (Halving(np.eye(4)), [([2], 1)], ([1], 1)),
        (StandardOptimal(np.eye(4)), [([2], 1)], ([1], 1)),
    ):
        for x, y in told:
            learner.learn(x, y)
        before = copy.deepcopy(learner.learned)
        learner.learn(*against)
        assert before is not None and learner.learned is not None
        assert all((before[name] == learner.learned[name]).all() for name in before if name != "seen")


# ---------------------------------------------------------------- banks


def stacked(learner: ClassLearner, copies: int) -> Bank:
    return bank_for(learner, copies, 2, learner._features, Random(seed=1))


def replicas(learner: ClassLearner, copies: int) -> Bank:
    return ReplicaBank(learner, copies, 2, learner._features, Random(seed=1))


@EVERY
@pytest.mark.parametrize("bank", [stacked, replicas])
def test_every_check_of_a_bank(learner: ClassLearner, bank: Callable[[ClassLearner, int], Bank]) -> None:
    draw = np.random.default_rng(4)
    records = [(x.astype(float), int(draw.integers(2))) for x in inputs(learner, 24)]
    checks.check_bank(partial(bank, learner), records)


@EVERY
def test_a_copy_is_the_learner_by_itself_from_the_first_round_on(learner: ClassLearner) -> None:
    draw = np.random.default_rng(5)
    bank = StackedBank(learner, 8, 2, learner._features)
    alone = [learner.clone() for _ in range(8)]
    for x in inputs(learner, 120):
        encoded = bank.encode(x)
        answers = [one.predict(x) for one in alone]
        assert bank.votes(encoded, np.arange(8)).tolist() == [answers.count(0), answers.count(1)]
        taught, y = int(draw.integers(6)), int(draw.integers(2))
        bank.learn(taught, encoded, y)
        alone[taught].learn(x, y)
    bank.reset([0])
    assert bank.votes(encoded, np.array([0])).tolist() == bank.votes(encoded, np.array([7])).tolist()


@EVERY
def test_a_bank_goes_on_from_its_state(learner: ClassLearner) -> None:
    bank, back = (StackedBank(learner, 8, 2, learner._features) for _ in range(2))
    questions = [bank.encode(x) for x in inputs(learner, 60)]
    for i, x in enumerate(questions):
        bank.learn(i % 5, x, i % 3 % 2)
    file = io.BytesIO()
    np.savez(file, **dict(bank.state()))  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file, allow_pickle=False) as held:
        back.load_state({name: held[name].item() if held[name].ndim == 0 else held[name] for name in held})
    for i, x in enumerate(questions):
        for one in (bank, back):
            one.learn(i % 5, x, i % 2)
        assert (bank.votes(x, np.arange(8)) == back.votes(x, np.arange(8))).all()


@pytest.mark.parametrize(
    ("learner", "name", "value"),
    [
        (partial(Thresholds, 9), "cut", -1),
        (partial(Thresholds, 9), "cut", 8),
        (partial(Winnow, 4), "power", 300),
        (partial(Halving, LINE), "dead", 2**64 - 1),
        (partial(StandardOptimal, LINE), "dead", 2**16 - 1),
        (partial(WeightedMajority, LINE), "errors", -1),
        (partial(AgnosticExperts, np.eye(4), 10), "weight", np.nan),
    ],
    indirect=["learner"],
)
def test_a_damaged_state_is_refused(learner: ClassLearner, name: str, value: Any) -> None:
    bank = StackedBank(learner, 4, 2, learner._features)
    bank.learn(2, bank.encode(inputs(learner, 1)[0]), 1)
    state = {key: np.array(held) if isinstance(held, np.ndarray) else held for key, held in bank.state().items()}
    StackedBank(learner, 4, 2, learner._features).load_state(state)
    damaged = state[f"array {name}"]
    assert isinstance(damaged, np.ndarray)
    damaged[:] = value
    with pytest.raises(ValueError, match="damaged"):
        bank.load_state(state)


def test_a_state_belongs_to_its_class() -> None:
    with pytest.raises(ValueError, match="another bank"):
        StackedBank(Halving(LINE), 4, 2, 1).load_state(StackedBank(Halving(LINE[:, ::-1]), 4, 2, 1).state())


def test_a_question_that_is_no_point_gets_no_vote() -> None:
    bank = StackedBank(Halving(LINE), 4, 2, 1)
    for x in ([15], [-1], [2.5], [1e30]):
        assert not bank.votes(bank.encode(x), np.arange(4)).any()
        for refused in (bank.learn, ReplicaBank(Halving(LINE), 4, 2, 1, Random(seed=1)).learn):
            with pytest.raises(ValueError, match="0 to 14"):
                refused(1, bank.encode(x), 1)
        with pytest.raises(ValueError, match="0 to 14"):
            Halving(LINE).predict(x)


@pytest.mark.parametrize("learner", [partial(Parities, 3), partial(StandardOptimal, LINE)], indirect=True)
def test_there_are_two_labels_and_as_many_features_as_were_said(learner: ClassLearner) -> None:
    with pytest.raises(ValueError, match="two labels"):
        StackedBank(learner, 4, 3, learner._features)
    with pytest.raises(ValueError, match="length"):
        StackedBank(learner, 4, 2, learner._features + 1)
    with pytest.raises(ValueError, match="features"):
        learner.predict([0.0] * (learner._features + 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Thresholds(0),
        lambda: Conjunctions(0),
        lambda: Parities(1 << 11),
        lambda: Winnow(4, relevant=5),
        lambda: WeightedMajority(LINE, beta=1.0),
        lambda: AgnosticExperts(LINE, rounds=0),
        lambda: AgnosticExperts(np.eye(4), rounds=10, beta=float("nan")),
        lambda: Halving([[0, 2]]),
    ],
)
def test_parameters_without_meaning_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        make()


def test_a_class_with_too_many_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confide.learners.agnostic_experts, "_MOST_STATES", 31)
    with pytest.raises(ValueError, match="WeightedMajority"):
        AgnosticExperts(list(product((0, 1), repeat=5)), rounds=10)


def test_copies_share_the_class_and_nothing_else() -> None:
    learner = StandardOptimal(LINE)
    twin = copy.deepcopy(learner)
    twin.learn([7], 1)
    assert twin.H is learner.H and learner.clone().H is learner.H
    assert learner.predict([0]) == StandardOptimal(LINE).predict([0]) and twin.predict([0]) == 1
