"""Gradients are integers within the clip, from one row and θ alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.guide.linear import MODELS, Thetas, add_gradient, add_lesson, average, follow, run_rows, scores, units

pytestmark = pytest.mark.claim("guide.md")

SCALE = 1 << 16


def gradient(theta: np.ndarray, indices: list[int], values: list[float], y: int, weight: float = 1.0) -> np.ndarray:
    leaf = np.zeros(theta.size, dtype=np.int64)
    clip = SCALE // 2 if theta.shape[1] == 1 else SCALE
    add_gradient(theta, np.array(indices, np.int64), np.array(values, float), y, weight, clip, SCALE, leaf)
    return leaf


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=12),
    st.lists(st.floats(-1e9, 1e9), min_size=12, max_size=12),
    st.integers(0, 2),
    st.sampled_from([1, 3]),
    st.floats(1e-3, 1e12),
)
def test_no_gradient_is_longer_than_the_clip(
    values: list[float], theta: list[float], y: int, vectors: int, weight: float
) -> None:
    table = np.resize(np.array(theta), (12, vectors))
    clip = SCALE // 2 if vectors == 1 else SCALE
    leaf = gradient(table, list(range(len(values))), values, y, weight)
    assert int((leaf.astype(object) ** 2).sum()) <= clip**2
    if not np.isfinite(values).all():
        assert not leaf.any()


def test_two_labels_give_the_logistic_gradient_toward_zero() -> None:
    theta = np.array([[0.5], [-1.0], [2.0]])
    leaf = gradient(theta, [0, 2], [0.6, -0.5], 1)
    residual = 1 / (1 + np.exp(-(0.5 * 0.6 - 2.0 * 0.5))) - 1
    assert abs(residual) * np.hypot(0.6, 0.5) < 0.55
    factor = min(1.0, 0.5 / (abs(residual) * np.hypot(0.6, 0.5)))
    exact = residual * factor * SCALE * np.array([0.6, 0.0, -0.5])
    assert (np.abs(leaf) <= np.abs(exact) + 1e-6).all()
    assert (np.abs(leaf - exact) < 1 + 1e-6).all()


def test_many_labels_give_the_softmax_gradient() -> None:
    theta = np.array([[0.1, 0.2, -0.3], [1.0, 0.0, 0.5]])
    leaf = gradient(theta, [0, 1], [0.3, 0.4], 2).reshape(2, 3)
    score = np.array([0.3, 0.4]) @ theta
    p = np.exp(score) / np.exp(score).sum() - np.array([0, 0, 1])
    assert np.abs(leaf - np.outer([0.3, 0.4], p) * SCALE).max() < 1.001


def test_weights_scale_before_the_clip() -> None:
    theta = np.zeros((1, 1))
    assert gradient(theta, [0], [0.25], 1, 2.0)[0] == 2 * gradient(theta, [0], [0.25], 1)[0] != 0
    assert gradient(theta, [0], [1.0], 1, 100.0)[0] == -SCALE // 2


@pytest.mark.parametrize("weight", [1e150, 1e200, 1e300, 1.7e308])
@pytest.mark.parametrize("score", [-300.0, -375.0, -400.0, -700.0])
def test_absurd_weights_do_not_pass_the_clip_where_squares_underflow(weight: float, score: float) -> None:
    """The residual is 10⁻¹⁶⁰ or less: its square is 0, its product with the weight more than 64 bits hold."""
    for size in (1, 4):
        leaf = gradient(np.full((size, 1), score), list(range(size)), [size**-0.5] * size, 0, weight)
        assert int((leaf.astype(object) ** 2).sum()) <= (SCALE // 2) ** 2


@pytest.mark.parametrize("indices", [[1, 1], [2, 1], [0, 3], [-1, 0]])
def test_places_that_repeat_or_do_not_exist_add_nothing(indices: list[int]) -> None:
    assert not gradient(np.zeros((3, 1)), indices, [0.5, 0.5], 1).any()


def thetas_of(theta: np.ndarray, answering: np.ndarray, models: np.ndarray, frequent: int, clip: int) -> Thetas:
    return Thetas(theta, answering, models, frequent, units(clip, theta.shape[1]))


def lesson(thetas: Thetas, indices: list[int], values: list[float], y: int, weight: float, clip: int) -> np.ndarray:
    leaf = np.zeros(thetas.theta.size + thetas.units.size, np.int64)
    row, said = (np.array(indices, np.int64), np.array(values, float)), np.zeros(thetas.theta.shape[1])
    scores(thetas.answering, *row, said)
    add_lesson(thetas, said, *row, y, weight, clip, SCALE, leaf)
    return leaf


ANY = st.floats(width=64)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=12),
    st.lists(ANY | st.floats(-3, 3), min_size=12, max_size=60),
    st.integers(0, 2),
    st.sampled_from([1, 3]),
    ANY,
    st.sampled_from([1, 7, 10, 1000, 1 << 15, 1 << 16, (1 << 31) - 1]),
)
def test_no_row_is_longer_than_the_clip_with_its_losses(
    values: list[float], theta: list[float], y: int, vectors: int, weight: float, clip: int
) -> None:
    """Whatever row, label, weight and θ, infinite and missing ones included: Σ losses² + Σg² ≤ clip², in integers."""
    tables = np.resize(np.array(theta), (12, (2 + MODELS) * vectors))
    one, two, models = tables[:, :vectors], tables[:, vectors : 2 * vectors], tables[:, 2 * vectors :]
    thetas = thetas_of(one.copy(), two.copy(), models.copy(), 1, clip)
    leaf = lesson(thetas, list(range(len(values))), values, y, weight, clip)
    assert int((leaf.astype(object) ** 2).sum()) <= clip**2
    if not np.isfinite(values).all():
        assert not leaf.any()


def test_a_row_whose_clip_is_shorter_than_its_losses_teaches_without_them() -> None:
    """A record that may have been counted, in the first leaf: it is not lost, and is no longer than its clip."""
    clip = SCALE // 2
    thetas = thetas_of(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[1.0, -1.0, -1.0, -1.0]]), 0, clip)
    short = clip * 7 // 10
    leaf = lesson(thetas, [0], [1.0], 1, 1.0, short)
    assert 0.9 * short < -leaf[0] <= short and not leaf[1:].any()
    assert lesson(thetas, [0], [1.0], 1, 1.0, clip)[1:].any()


def test_a_row_tells_of_every_candidate() -> None:
    """By how much each errs more than the usual window, whether it was too sure, and which label it had."""
    clip, models = SCALE // 2, np.array([[1.0, -1.0, 1.0, -1.0]])  # the windows say 1, 0 and 1, the line says 0
    thetas = thetas_of(np.zeros((1, 1)), np.array([[2.0]]), models, 0, clip)
    right, wrong = (lesson(thetas, [0], [0.5], y, 1.0, clip)[1:] / thetas.units for y in (1, 0))
    assert right[[0, 1, 2, 3, 5]].tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert wrong[[0, 1, 2, 3, 5]].tolist() == [-1.0, 0.0, -1.0, -1.0, -1.0]
    p = 1 / (1 + np.exp(-1.0))
    assert right[4] == pytest.approx(4 * (p - 1) * p * (1 - p), abs=1e-3)
    assert wrong[4] == pytest.approx(4 * p * p * (1 - p), abs=1e-3)
    half = lesson(thetas, [0], [0.5], 1, 0.5, clip)[1:] / thetas.units
    assert half == pytest.approx(right / 2, abs=1e-3), "a label's weight is that of its losses, too"


@pytest.mark.parametrize("indices", [[1, 1], [2, 1], [0, 3], [-1, 0]])
def test_losses_of_places_that_repeat_or_do_not_exist_are_not_added(indices: list[int]) -> None:
    thetas = thetas_of(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((3, 3)), 0, 1000)
    leaf = np.zeros(8, np.int64)
    add_lesson(thetas, np.zeros(1), np.array(indices), np.array([0.5, 0.5]), 1, 1.0, 1000, SCALE, leaf)
    assert not leaf.any()


@pytest.mark.parametrize("vectors", [1, 4])
def test_a_chunk_gives_the_bits_of_single_rows_whatever_stands_beside_them(vectors: int) -> None:
    rng = np.random.default_rng(1)
    theta, answering = rng.normal(size=(30, vectors)), rng.normal(size=(30, vectors))
    starts = np.arange(0, 8 * 40 + 1, 8)
    indices = np.concatenate([np.sort(rng.choice(30, 8, replace=False)) for _ in range(40)]).astype(np.int64)
    values, labels = rng.normal(size=320) / 8, rng.integers(-1, max(vectors, 2), 40)
    weights = np.ones(max(vectors, 2))
    clip = SCALE // 2 if vectors == 1 else SCALE
    thetas = thetas_of(theta, answering, rng.normal(size=(30, 3 * vectors)), 1, clip)
    leaf, out = np.zeros(30 * vectors + thetas.units.size, np.int64), np.zeros((40, vectors))
    run_rows(thetas, starts, indices, values, labels, weights, clip, SCALE, leaf, out)
    total, one = np.zeros_like(leaf), np.zeros(vectors)
    for i in range(40):
        row = slice(starts[i], starts[i + 1])
        scores(answering, indices[row], values[row], one)
        assert np.array_equal(one, out[i])
        if labels[i] >= 0:
            alone = np.zeros_like(leaf)
            add_lesson(thetas, one, indices[row], values[row], labels[i], 1.0, clip, SCALE, alone)
            total += alone
    assert np.array_equal(total, leaf)


NO_MEAN = np.zeros(0)


def test_a_candidate_is_a_running_mean() -> None:
    models = np.zeros((1, 2))
    for value in (1.0, 2.0, 3.0):
        average(np.array([[value]]), np.array([1.0, 0.5]), models)
    assert models.tolist() == [[3.0, 2.125]]


def test_momentum_is_steepest_descent_with_a_heavy_ball() -> None:
    rng, momentum, rate = np.random.default_rng(1), 0.8, 0.3
    theta, sums = np.zeros((3, 1)), np.zeros(3)
    ball, velocity = np.zeros(3), np.zeros(3)
    for _ in range(1, 40):
        gradient = rng.normal(size=3)
        sums += gradient
        follow(sums, rate, momentum, NO_MEAN, 0.0, theta)
        velocity = momentum * velocity - rate * (1 - momentum) * gradient
        ball += velocity
        assert np.allclose(theta[:, 0], ball, atol=1e-12)


def test_along_the_mean_row_a_share_of_the_sums_is_left_out() -> None:
    theta, mean = np.zeros((2, 1)), np.array([0.6, 0.8])
    follow(np.array([0.6, 0.8, 0.0]), 1.0, 0.0, mean, 0.75, theta)  # the last is no feature's
    assert theta[:, 0] == pytest.approx([-0.15, -0.2])
    follow(np.array([0.8, -0.6, 0.0]), 1.0, 0.0, mean, 0.75, theta)
    assert theta[:, 0] == pytest.approx([-0.8, 0.6])
