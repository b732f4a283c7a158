"""The counters' chains, their price, and their error: by brute force where small, by counting where large."""

import copy
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from confide.privacy import chains, counters
from confide.privacy.counters import SmoothCounter, TreeCounter, tree_error, tree_levels
from confide.privacy.random import Random, discrete_laplace

pytestmark = pytest.mark.claim("counters.md")

Made = TreeCounter | SmoothCounter


def tree(horizon: int, epsilon: Fraction | float = 1, shift: int = 1) -> TreeCounter:
    return TreeCounter(epsilon, horizon, shift, Random(seed=1))


def smooth(horizon: int, epsilon: Fraction | float = 1, shift: int = 1) -> SmoothCounter:
    return SmoothCounter(epsilon, horizon, shift, Random(seed=1))


def balanced(horizon: int, epsilon: Fraction | float = 1, shift: int = 1) -> SmoothCounter:
    return SmoothCounter(epsilon, horizon, shift, Random(seed=1), balanced=True)


def endless(horizon: int, epsilon: Fraction | float = 1, shift: int = 1) -> TreeCounter:
    return TreeCounter(epsilon, None, shift, Random(seed=1))


KINDS = [tree, smooth, balanced, endless]
Kind = Callable[..., Made]


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int | Fraction]]:
    """Replaces the counters' noise by a chosen value, and remembers the scale that was asked for."""
    chosen: dict[str, int | Fraction] = {"value": 0}

    def fixed(rng: Random, scale: Fraction) -> int:
        chosen["scale"] = scale
        return int(chosen["value"])

    monkeypatch.setattr(counters, "discrete_laplace", fixed)
    yield chosen


def price(counter: Made, inputs: list[int], noise: dict[str, int | Fraction]) -> tuple[Fraction, int]:
    """Σ over nodes of |exact sum|/scale for these inputs, and the longest chain."""
    cost, depth = Fraction(0), 0
    for value in inputs:
        counter.step(value)
        sums = counter._state[2]
        cost += Fraction(sums[-1]) / noise["scale"]
        depth = max(depth, len(sums))
    return cost, depth


# Chains


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_the_answer_is_the_sum(kind: Kind, noise: dict[str, int | Fraction]) -> None:
    for horizon in range(1, 75):
        counter = kind(horizon, shift=3)
        inputs = Random(seed=horizon).below_many(4, horizon).tolist()
        assert [counter.step(value) for value in inputs] == np.cumsum(inputs).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 8, 19, 34, 64, 69, 70])
def test_every_input_costs_at_most_epsilon(
    kind: Kind, horizon: int, noise: dict[str, int | Fraction]
) -> None:
    """By linearity, the nodes' change is their value on the input that is 1 at one place and 0 elsewhere."""
    for epsilon in (Fraction(1, 3), 0.1):
        costs = []
        for place in range(horizon):
            inputs = [int(t == place) for t in range(horizon)]
            cost, depth = price(kind(horizon, epsilon), inputs, noise)
            costs.append(cost)
            counter = kind(horizon, epsilon)
            if isinstance(counter, SmoothCounter):
                assert depth <= counter.ones
            elif counter.horizon is not None:
                assert depth <= tree_levels(horizon)
        assert max(costs) <= Fraction(epsilon) and max(costs) <= Fraction(str(epsilon))
        if kind is tree and epsilon == Fraction(1, 3):
            assert max(costs) == epsilon  # and no noise is wasted


@pytest.mark.parametrize(("ones", "zeros"), [(1, 1), (2, 2), (3, 3), (4, 2), (2, 4), (7, 1)])
def test_full_code_uses_what_it_pays_for(ones: int, zeros: int, noise: dict[str, int | Fraction]) -> None:
    """At the last step that a code can number, both its promises are attained."""
    horizon = math.comb(ones + zeros, zeros) - 1
    costs, depths = [], []
    for place in range(horizon):
        counter = smooth(horizon)
        counter.ones, counter.zeros, counter.scale = ones, zeros, Fraction(zeros)
        counter._state = 0, (1 << ones) - 1, (), (0,)
        cost, depth = price(counter, [int(t == place) for t in range(horizon)], noise)
        costs.append(cost)
        depths.append(depth)
    assert max(costs) == 1 and max(depths) == ones


def longest_stream(ones: int, zeros: int) -> int:
    """The most steps that any chains with these two limits can number: split at the first outermost block."""
    if ones == 0 or zeros == 0:
        return 0
    return longest_stream(ones, zeros - 1) + 1 + longest_stream(ones - 1, zeros)


def test_codes_are_the_best_chains() -> None:
    for ones, zeros in itertools.product(range(1, 7), repeat=2):
        assert longest_stream(ones, zeros) == math.comb(ones + zeros, zeros) - 1
    for horizon in [*range(1, 300), 10**4, 10**6]:
        found = chains.best_code(horizon)
        assert (
            longest_stream(*found) >= horizon if horizon < 300 else math.comb(sum(found), found[1]) > horizon
        )
        value = found[0] * found[1] ** 2
        for zeros in range(1, 30):
            ones = (value - 1) // zeros**2  # the most ones that would beat it
            assert math.comb(ones + zeros, zeros) <= horizon
        half = chains.balanced_code(horizon)[0]
        assert math.comb(2 * half, half) > horizon >= (math.comb(2 * half - 2, half - 1) if half > 1 else 1)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 400), st.booleans())
def test_depth_counts(horizon: int, even: bool) -> None:
    assert (
        chains.tree_depths(horizon)
        == np.bincount(
            [t.bit_count() for t in range(1, horizon + 1)], minlength=horizon.bit_length() + 1
        ).tolist()
    )
    counter = balanced(horizon) if even else smooth(horizon)
    lengths = [len(counter._state[2]) for _ in range(horizon) if counter.step(0) is not None]
    depths = chains.smooth_depths(horizon, counter.ones, counter.zeros)
    assert depths == np.bincount(lengths, minlength=counter.ones + 1).tolist()


def test_memory_stays_logarithmic() -> None:
    for kind, limit in ((tree, 12), (endless, 24), (smooth, 40), (balanced, 14)):
        counter = kind(4000)
        assert max(len(counter._state[2]) for _ in range(4000) if counter.step(1) is not None) <= limit


# Privacy, exactly


Adversary = Callable[[tuple[int, ...]], tuple[int, int]]  # past answers → the next input in the two worlds


def fixed_pair(a: tuple[int, ...], b: tuple[int, ...]) -> Adversary:
    return lambda past: (a[len(past)], b[len(past)])


def adaptive(past: tuple[int, ...]) -> tuple[int, int]:
    """Sets its challenge after the first positive answer, else at the end; other inputs follow answers."""
    asked = any(answer > 0 for answer in past[:-1])
    if not asked and ((past and past[-1] > 0) or len(past) == 2):
        return (0, 1) if sum(past) % 2 else (1, 0)
    return (past[-1] % 2,) * 2 if past else (1, 1)


def largest_loss(
    make: Callable[[], Made], adversary: Adversary, noise: dict[str, int | Fraction]
) -> Fraction:
    """The largest log-ratio of the two worlds' probabilities over all answers in a box, exactly.

    The answers fix the inputs and so the noises: P(answers) = Π exp(−|noise|/scale)/norm; the norms cancel.
    """
    worst = Fraction(0)
    for answers in itertools.product(range(-3, 5), repeat=3):
        logs = []
        for world in (0, 1):
            counter, log = make(), Fraction(0)
            for t, answer in enumerate(answers):
                value = adversary(answers[:t])[world]
                before = counter._state
                noise["value"] = 0
                gap = answer - counter.step(value)
                log -= Fraction(abs(gap)) / noise["scale"]
                counter._state = before
                noise["value"] = gap
                assert counter.step(value) == answer
            logs.append(log)
        worst = max(worst, abs(logs[0] - logs[1]))
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_privacy_loss_is_at_most_epsilon(
    kind: Kind, noise: dict[str, int | Fraction], monkeypatch: pytest.MonkeyPatch
) -> None:
    epsilon = Fraction(2, 5)
    pairs = [((0, 1, 1), (1, 1, 1)), ((1, 0, 1), (1, 1, 1)), ((0, 1, 0), (0, 1, 1))]
    adversaries = [*(fixed_pair(a, b) for a, b in pairs), adaptive]
    losses = [largest_loss(lambda: kind(3, epsilon), adversary, noise) for adversary in adversaries]
    assert max(losses) == epsilon  # attained, never exceeded
    monkeypatch.setattr(chains, "round_up", lambda scale: scale * Fraction(9, 10))
    assert max(largest_loss(lambda: kind(3, epsilon), a, noise) for a in adversaries[:3]) > epsilon


@pytest.mark.parametrize("kind", KINDS)
def test_shift_covers_a_unit_with_several_inputs(kind: Kind, noise: dict[str, int | Fraction]) -> None:
    """One unit changes two inputs by one, or one input by two."""
    epsilon = Fraction(2, 5)
    for a, b in [((0, 1, 0), (1, 1, 1)), ((0, 1, 1), (1, 0, 1)), ((0, 2, 1), (2, 2, 1))]:
        assert largest_loss(lambda: kind(3, epsilon, shift=2), fixed_pair(a, b), noise) <= epsilon
    worst = largest_loss(lambda: kind(3, epsilon, shift=2), fixed_pair((0, 1, 1), (2, 1, 1)), noise)
    assert worst == epsilon


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(st.floats(1e-6, 1e6), st.fractions(Fraction(1, 10**12), 10**12)),
    st.integers(1, 10**12),
    st.integers(1, 1000),
)
def test_scale_never_undercuts_epsilon(epsilon: float | Fraction, horizon: int, shift: int) -> None:
    for counter in (TreeCounter(epsilon, horizon, shift), SmoothCounter(epsilon, horizon, shift)):
        touched = counter.zeros if isinstance(counter, SmoothCounter) else tree_levels(horizon)
        paid = shift * touched / counter.scale
        assert paid <= counter.epsilon <= Fraction(epsilon)
        if isinstance(epsilon, float):
            assert counter.epsilon <= Fraction(repr(epsilon))
        if Fraction(shift * touched) / Fraction(epsilon) > Fraction(1, 1000):
            assert paid >= counter.epsilon * (1 - Fraction(1, 10**6))  # nor is much wasted


def noises(counter: Made, steps: int) -> NDArray[np.int64]:
    """The noise of every node of a run on zeros."""
    found = []
    for _ in range(steps):
        answer = counter.step(0)
        found.append(answer - counter._state[3][-2])
    return np.array(found)


@pytest.mark.parametrize("kind", [tree, smooth])
def test_nodes_carry_laplace_noise_of_the_stated_scale(kind: Kind) -> None:
    """False-positive rate 10⁻⁷ (chi-square); a scale that is 5 % off is rejected."""
    steps = 80_000
    counter = kind(steps, epsilon=4)
    found = noises(counter, steps)

    def rejected(scale: float) -> bool:
        p = math.exp(-1 / scale)
        edges = np.arange(-15, 17) - 0.5
        below = [(p ** (0.5 - e) if e < 0 else 1 + p - p ** (e + 0.5)) / (1 + p) for e in edges]
        expected = steps * np.diff([0.0, *below, 1.0])
        observed = np.histogram(found, [-np.inf, *edges, np.inf])[0]
        keep = expected >= 20
        statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
        return bool(statistic > chi2.isf(1e-7, keep.sum() - 1))

    assert not rejected(float(counter.scale))
    assert rejected(1.05 * float(counter.scale)) and rejected(float(counter.scale) / 1.05)


# Error


def error_process(counter: Made, steps: int, runs: int, seed: int, stretch: int = 1) -> NDArray[np.int64]:
    """The errors of many runs at once, in the counter's own chains; one row a step."""
    rng = Random(seed=seed)
    chain = [np.zeros(runs, dtype=np.int64)]
    rows = np.empty((steps, runs), dtype=np.int64)
    label = counter._state[1]
    for t in range(steps):
        label, merged, scale = counter._next(label)
        del chain[len(chain) - merged :]
        chain.append(chain[-1] + discrete_laplace(rng, stretch * scale, size=runs))
        rows[t] = chain[-1]
    return rows


@pytest.mark.parametrize("kind", [tree, smooth, balanced])
def test_error_bound_holds_and_is_not_loose(kind: Kind) -> None:
    """1000 runs of 1000 steps; more failures than this have probability 10⁻⁶ if the bound holds.

    Noise of twice the scale is rejected, and the bound is at most twice the measured quantile.
    """
    beta, runs = 0.05, 1000
    allowed = binom.isf(1e-6, runs, beta)
    counter = kind(1000)
    rows = error_process(counter, 1000, runs, seed=51)
    largest = np.abs(rows).max(axis=0)
    assert (largest > counter.error(beta)).sum() <= allowed
    assert (rows.max(axis=0) > counter.error(beta, two_sided=False)).sum() <= allowed
    assert counter.error(beta) <= 2 * np.quantile(largest, 1 - beta)
    doubled = np.abs(error_process(counter, 1000, runs, seed=52, stretch=2)).max(axis=0)
    assert (doubled > counter.error(beta)).sum() > allowed


def test_error_bound_without_horizon_holds_for_all_steps_together() -> None:
    """As above, for 1023 steps in ten trees, each step against its own bound."""
    beta, runs = 0.05, 1000
    counter = endless(0)
    bounds = np.array([[counter.error(beta, at=t)] for t in range(1, 1024)])
    assert (np.diff(bounds[:, 0]) >= 0).all()
    allowed = binom.isf(1e-6, runs, beta)
    rows = np.abs(error_process(counter, 1023, runs, seed=53))
    assert (rows > bounds).any(axis=0).sum() <= allowed
    assert bounds[-1, 0] <= 2.5 * np.quantile(rows[512:].max(axis=0), 1 - beta)
    doubled = np.abs(error_process(endless(0), 1023, runs, seed=54, stretch=2))
    assert (doubled > bounds).any(axis=0).sum() > allowed


def test_smooth_beats_the_tree() -> None:
    for horizon in (10**4, 10**6, 10**8):
        assert smooth(horizon).error(0.05) < 0.8 * balanced(horizon).error(0.05)
        assert balanced(horizon).error(0.05) < 0.62 * tree(horizon).error(0.05)


def test_tree_error_is_the_minimum_of_its_formula() -> None:
    horizon, b, p = 1_000_000, Fraction(200, 3), 0.01
    s = np.linspace(0, 1 / float(b), 200_001)[1:-1]
    grid = ((math.log(horizon / p) - 20 * np.log1p(-((s * float(b)) ** 2))) / s).min()
    assert tree_error(horizon, b, p) == pytest.approx(grid, rel=1e-7)


def test_tree_error_of_the_papers_plan() -> None:
    """At ε = 0.3, T = 10⁶: about 3016 for β = 1 % and 4187 for δ = 5·10⁻⁸."""
    scale = TreeCounter(Fraction(3, 10), 1_000_000).scale
    assert scale == Fraction(200, 3)
    assert math.ceil(tree_error(1_000_000, scale, 0.01)) == 3016
    assert tree_error(1_000_000, scale, 5e-8) == pytest.approx(4187, abs=0.5)


@settings(deadline=None)
@given(st.floats(0.05, 1000), st.floats(0.001, 0.999))
def test_discrete_noise_has_the_lighter_tail(b: float, part: float) -> None:
    """E[exp(s·X)] ≤ 1/(1 − s²b²), so the closed bound covers integer noise too."""
    s, u = part / b, 1 / b
    if u > 600:
        return
    discrete = -math.log1p(-((math.sinh(s / 2) / math.sinh(u / 2)) ** 2))
    assert discrete <= -math.log1p(-(part**2)) * (1 + 1e-9)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**9), st.floats(1e-9, 0.5), st.integers(1, 100))
def test_counted_bound_is_below_the_closed_one(horizon: int, p: float, epsilon: int) -> None:
    counter = TreeCounter(Fraction(epsilon, 10), horizon)
    assert counter.error(p, two_sided=False) <= tree_error(horizon, counter.scale, p) * (1 + 1e-6)
    assert counter.error(p, two_sided=False) <= counter.error(p)
    assert counter.error(p) <= counter.error(p / 2)


# Refusals and manners


@pytest.mark.parametrize("kind", [tree, smooth])
def test_no_step_beyond_the_horizon(kind: Kind) -> None:
    counter = kind(5)
    for _ in range(5):
        counter.step(1)
    with pytest.raises(ValueError, match="horizon"):
        counter.step(0)
    assert counter.time == 5


@pytest.mark.parametrize("value", [-1, 3, 0.5, 1.0, math.nan, None, "1", np.array([1, 0])])
def test_wrong_input_is_refused_and_changes_nothing(value: int) -> None:
    counter = tree(5, shift=2)
    counter.step(True)
    counter.step(np.int64(2))  # type: ignore[arg-type]
    before = counter._state
    with pytest.raises(ValueError, match="input") as refusal:
        counter.step(value)
    assert counter._state == before
    assert repr(value) not in str(refusal.value)


@pytest.mark.parametrize("epsilon", [0, -1, 0.0, math.nan, math.inf, -math.inf, True, "1", None, 1j])
def test_wrong_epsilon_is_refused(epsilon: float) -> None:
    for make in (TreeCounter, SmoothCounter):
        with pytest.raises(ValueError, match="epsilon"):
            make(epsilon, 10)


def test_wrong_numbers_are_refused() -> None:
    for horizon in (0, -1, 2.0, True, "3"):
        with pytest.raises(ValueError, match="horizon"):
            TreeCounter(1, horizon)
        with pytest.raises(ValueError, match="horizon"):
            SmoothCounter(1, horizon)
    with pytest.raises(ValueError, match="horizon"):
        SmoothCounter(1, None)
    for shift in (0, -1, 1.5):
        with pytest.raises(ValueError, match="shift"):
            TreeCounter(1, 10, shift=shift)
    for p in (0, 1, -0.1, math.nan):
        with pytest.raises(ValueError, match="strictly"):
            tree(10).error(p)
        with pytest.raises(ValueError, match="strictly"):
            smooth(10).error(p)
        with pytest.raises(ValueError, match="strictly"):
            tree_error(10, 1, p)
    for scale in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="scale"):
            tree_error(10, scale, 0.1)
    with pytest.raises(ValueError, match="at"):
        tree(10).error(0.1, at=3)
    with pytest.raises(ValueError, match="at"):
        smooth(10).error(0.1, at=3)
    with pytest.raises(ValueError, match="at which one"):
        endless(10).error(0.1)


def test_interrupted_step_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(rng: Random, scale: Fraction) -> int:
        raise KeyboardInterrupt

    for kind in KINDS:
        counter = kind(9)
        for _ in range(3):
            counter.step(1)
        before = counter._state
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(counters, "discrete_laplace", interrupted)
            counter.step(1)
        assert counter._state == before
        patched = [counter.step(1) for _ in range(6)]
        assert len(patched) == 6 and counter.time == 9


def test_repr_holds_public_numbers_only() -> None:
    counter = TreeCounter(Fraction(1, 2), 100)
    counter.step(1)
    assert repr(counter) == "TreeCounter(epsilon=1/2, horizon=100, shift=1)"
    assert repr(smooth(100)) == "SmoothCounter(epsilon=1, horizon=100, shift=1, insecure: seeded)"


def test_secure_counter_is_not_duplicated() -> None:
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ValueError, match="two in one state"):
            duplicate(TreeCounter(1, 100))


def test_counters_are_used_alike() -> None:
    made: list[TreeCounter | SmoothCounter] = [tree(10), smooth(10), endless(10)]
    for counter in made:
        assert isinstance(counter.step(1), int)
        assert counter.epsilon == 1
