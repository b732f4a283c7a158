"""The linear learners against models that others wrote, and against their own definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Perceptron as SklearnPerceptron
from sklearn.linear_model import SGDClassifier

from confide.learners import LogisticRegression, PAClassifier, Perceptron
from confide.learners.linear import Linear

GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(150, 6))
Y = (X @ GENERATOR.normal(size=6) > 0.3).astype(int)
Y3 = np.digitize(X @ GENERATOR.normal(size=6), [-0.5, 0.5])


def row(learner: Linear) -> np.ndarray:
    """Weights and bias of a learner, one row a label (one for two labels)."""
    assert learner.learned is not None
    return learner.learned["weights"][0][: X.shape[1] + 1].T


def taught(learner: Linear, x: np.ndarray, y: np.ndarray) -> Linear:
    for record, label in zip(x, y, strict=True):
        learner.learn(record, int(label))
    return learner


def test_logistic_regression_takes_scikit_learns_steps() -> None:
    ours = taught(LogisticRegression(learning_rate=0.05, scale=False), X, Y)
    theirs = SGDClassifier(loss="log_loss", alpha=0.0, learning_rate="constant", eta0=0.05, shuffle=False)
    for record, label in zip(X, Y, strict=True):
        theirs.partial_fit([record], [label], classes=[0, 1])
    np.testing.assert_allclose(row(ours)[0], [*theirs.coef_[0], theirs.intercept_[0]], rtol=1e-4, atol=1e-5)


def test_the_perceptron_takes_scikit_learns_steps() -> None:
    ours = taught(Perceptron(scale=False), X, Y)
    theirs = SklearnPerceptron(shuffle=False)
    for record, label in zip(X, Y, strict=True):
        theirs.partial_fit([record], [label], classes=[0, 1])
    np.testing.assert_allclose(row(ours)[0], [*theirs.coef_[0], theirs.intercept_[0]], rtol=1e-4, atol=1e-4)


def test_the_softmax_takes_gradient_steps() -> None:
    ours = taught(LogisticRegression(learning_rate=0.05, l2=0.1, scale=False, labels=3), X, Y3)
    weights = np.zeros((3, 7))
    for record, label in zip(X, Y3, strict=True):
        z = np.append(record, 1.0)
        p = np.exp(weights @ z)
        p /= p.sum()
        weights[:, :6] *= 1 - 0.05 * 0.1
        weights -= 0.05 * np.outer(p - (np.arange(3) == label), z)
    np.testing.assert_allclose(row(ours), weights, rtol=1e-3, atol=1e-5)


def test_a_passive_aggressive_step_reaches_margin_one_and_not_further() -> None:
    for labels, y in ((2, Y), (3, Y3)):
        learner = taught(PAClassifier(C=1e9, scale=False, labels=labels), X[:5], y[:5])
        for record, label in zip(X[5:], y[5:], strict=True):
            z = np.append(record, 1.0)
            before = row(learner) @ z
            learner.learn(record, int(label))
            after = row(learner) @ z
            if labels == 2:
                old, new = (scores[0] * (1 if label == 1 else -1) for scores in (before, after))
            else:
                rival = max(set(range(3)) - {label}, key=before.__getitem__)
                old, new = (scores[label] - scores[rival] for scores in (before, after))
            assert new == pytest.approx(max(1.0, old), rel=1e-3)


def test_standardising_inside_is_standardising_outside() -> None:
    """The weights, turned back into the units of x, answer as if x had been standardised as it came."""
    ours = LogisticRegression(learning_rate=0.05)
    unscaled = X * 10.0 ** np.arange(-3, 3) + 5.0
    weights = np.zeros(7)
    for n, (record, label) in enumerate(zip(unscaled, Y, strict=True), start=1):
        ours.learn(record, int(label))
        mean, deviation = unscaled[:n].mean(axis=0), unscaled[:n].std(axis=0)
        with np.errstate(invalid="ignore"):
            z = np.append(np.where(deviation > 0, (record - mean) / deviation, 0.0), 1.0)
        weights += (label - 1 / (1 + np.exp(-weights @ z))) * min(0.05, 4 / (z @ z)) * z
    inside = row(ours)[0]
    np.testing.assert_allclose(inside[:6] * deviation, weights[:6], rtol=0.01, atol=1e-3)
    assert inside[6] + inside[:6] @ mean == pytest.approx(weights[6], rel=0.01, abs=1e-3)


@pytest.mark.parametrize("kind", [LogisticRegression, PAClassifier, Perceptron])
def test_a_constant_that_float32_cannot_hold_is_no_feature(kind: type[Linear]) -> None:
    constant = np.full((150, 1), np.log1p(255.0))
    learner = taught(kind(), np.hstack([X, constant]), Y)
    assert learner.learned is not None
    assert learner.learned["weights"][0, 6, 0] == 0
    assert np.mean([learner.predict([*x, constant[0, 0]]) == y for x, y in zip(X, Y, strict=True)]) > 0.8


@given(st.lists(st.tuples(st.lists(st.floats(-3e38, 3e38), min_size=3, max_size=3), st.integers(0, 2)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_input_makes_a_weight_infinite(records: list[tuple[list[float], int]]) -> None:
    for kind in (LogisticRegression, PAClassifier, Perceptron):
        learner = kind(labels=3)
        for x, y in records:
            learner.learn(x, y)
            assert learner.predict(x) in (0, 1, 2)
        assert learner.learned is None or np.isfinite(learner.learned["weights"]).all()


def test_a_class_weight_moves_answers_towards_its_label() -> None:
    fair, biased = (taught(LogisticRegression(class_weight=w), X, Y) for w in (None, [1.0, 20.0]))
    ones = [sum(learner.predict(x) == 1 for x in X) for learner in (fair, biased)]
    assert ones[0] < ones[1]


@pytest.mark.parametrize("bad", [{"learning_rate": 0}, {"learning_rate": float("nan")}, {"l2": -1}, {"warmup": 0}])
def test_parameters_without_meaning_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        LogisticRegression(**bad)  # type: ignore[arg-type]
