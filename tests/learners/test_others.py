"""Naive Bayes, nearest neighbours and Refit against scikit-learn; what all of Confide's learners share."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn import naive_bayes, neighbors
from sklearn.linear_model import LogisticRegression as SklearnLogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from confide.learners import BernoulliNB, DecisionTree, GaussianNB, KNNClassifier, Learner, Refit, as_learner
from confide.learners.refit import due

GENERATOR = np.random.default_rng(11)
X = GENERATOR.normal(size=(240, 5)) * [1, 10, 100, 0.1, 1] + [0, 5, -50, 0, 0]
Y = (X[:, 0] + X[:, 1] / 10 + GENERATOR.normal(size=240) * 0.3 > 0.5).astype(int) + (X[:, 2] > 20)
TRAIN, TEST = slice(0, 120), slice(120, 240)


def answers(learner: Learner) -> list[int | None]:
    for x, y in zip(X[TRAIN], Y[TRAIN], strict=True):
        learner.learn(x, int(y))
    return [learner.predict(x) for x in X[TEST]]


def test_bernoulli_naive_bayes_is_scikit_learns() -> None:
    theirs = naive_bayes.BernoulliNB(alpha=0.5, binarize=0.1).fit(X[TRAIN], Y[TRAIN])
    assert answers(BernoulliNB(alpha=0.5, true_threshold=0.1, labels=3)) == theirs.predict(X[TEST]).tolist()


def test_gaussian_naive_bayes_is_scikit_learns_but_for_smoothing() -> None:
    theirs = naive_bayes.GaussianNB().fit(X[TRAIN], Y[TRAIN]).predict(X[TEST])
    assert np.mean(answers(GaussianNB(smoothing=1e-6, labels=3)) == theirs) > 0.98


def test_gaussian_naive_bayes_leaves_out_what_never_varied() -> None:
    learner = GaussianNB()
    for i in range(20):
        learner.learn([np.log1p(255.0), i % 2 + 0.1 * i], i % 2)
    assert learner.learned is not None
    assert (learner.learned["precision"][0, :, 0] == 0).all()
    assert (learner.learned["precision"][0, :, 1] > 0).all()


def test_a_label_that_a_copy_never_saw_is_not_answered() -> None:
    for learner in (GaussianNB(labels=5), BernoulliNB(labels=5), KNNClassifier(labels=5)):
        assert set(answers(learner)) <= {0, 1, 2}


def test_nearest_neighbours_are_scikit_learns() -> None:
    plain = neighbors.KNeighborsClassifier(1).fit(X[TRAIN], Y[TRAIN])
    assert answers(KNNClassifier(1, scale=False, labels=3)) == plain.predict(X[TEST]).tolist()
    scaler = StandardScaler().fit(X[TRAIN])
    scaled = neighbors.KNeighborsClassifier(1).fit(scaler.transform(X[TRAIN]), Y[TRAIN])
    assert answers(KNNClassifier(1, labels=3)) == scaled.predict(scaler.transform(X[TEST])).tolist()


def test_five_neighbours_vote_and_the_nearest_decides_ties() -> None:
    learner = KNNClassifier(4, scale=False)
    for x, y in ((1, 0), (2, 1), (3, 1), (4, 0), (9, 1)):
        learner.learn([x], y)
    assert learner.predict([0]) == 0
    assert KNNClassifier(4, scale=False, class_weight=[1, 3]).clone(n_neighbors=2).n_neighbors == 2


def test_nearest_neighbours_forget_what_is_older_than_their_memory() -> None:
    learner = KNNClassifier(1, memory=4)
    for i in range(8):
        learner.learn([i % 4], int(i >= 4))
    assert [learner.predict([i]) for i in range(4)] == [1, 1, 1, 1]


def test_refit_is_the_batch_model_on_its_last_records() -> None:
    model = make_pipeline(StandardScaler(), SklearnLogisticRegression())
    learner = Refit(model, memory=64, labels=3)
    fitted = 0
    for seen, (x, y) in enumerate(zip(X, Y, strict=True), start=1):
        learner.learn(x, int(y))
        fitted = seen if due(seen, fitted, 64) else fitted
    last = slice(fitted - 64, fitted)
    assert [learner.predict(x) for x in X] == model.fit(X[last], Y[last]).predict(X).tolist()


def test_refit_answers_the_only_label_it_knows() -> None:
    learner = Refit(SVC(), warmup=2)
    learner.learn([1.0], 1)
    assert learner.predict([0.0]) is None
    learner.learn([2.0], 1)
    assert learner.predict([0.0]) == 1


class Picky(naive_bayes.GaussianNB):  # type: ignore[misc]
    def fit(self, records: np.ndarray, targets: np.ndarray) -> object:
        if len(records) < 9:
            raise RuntimeError("too few")
        return super().fit(records, targets)


def test_refit_survives_a_model_that_refuses_to_be_fit() -> None:
    learner, errors = Refit(Picky()), 0
    for i in range(12):
        try:
            learner.learn([i], i % 2)
        except RuntimeError:
            errors += 1
        assert learner.predict([0.0]) == 0
    assert errors == len([2, 3, 4, 5, 7])


def test_a_refit_is_due_after_a_quarter() -> None:
    fitted, seen_at_fits = 0, []
    for seen in range(1, 2001):
        if due(seen, fitted, 256):
            seen_at_fits.append(seen)
            fitted = seen
    growing = [b / a for a, b in pairwise(seen_at_fits) if b < 256 and a >= 8]
    assert all(1.25 <= ratio < 1.5 for ratio in growing)
    assert {b - a for a, b in pairwise(seen_at_fits) if a >= 256} == {64}


@pytest.mark.parametrize("kind", [BernoulliNB, DecisionTree, GaussianNB, KNNClassifier])
def test_what_all_learners_share(kind: type) -> None:
    learner = kind(warmup=3, labels=3, class_weight=[1, 2, 3])
    assert kind(**learner.params()).params() == learner.params()
    assert repr(learner).startswith(f"{kind.__name__}(") and "class_weight=[1, 2, 3]" in repr(learner)
    for seen, (x, y) in enumerate(zip(X[:20], Y[:20], strict=True)):
        assert (learner.predict(x) is None) == (seen < 3)
        learner.learn(x, int(y))
    other = learner.clone(labels=4, class_weight=None)
    assert (other.labels, other.warmup, other.predict(X[0])) == (4, 3, None)
    for bad in (X[0][:3], [[1, 2]], [np.nan] * 5, [np.inf] * 5, [1e39] * 5, "text", []):
        with pytest.raises(ValueError, match="x "):
            learner.predict(bad)
    for label in (-1, 3, 0.5, None):
        with pytest.raises(ValueError, match="label"):
            learner.learn(X[0], label)
    with pytest.raises(ValueError, match="class_weight"):
        kind(class_weight=[1, -1])


def test_anything_with_predict_and_learn_is_a_learner_and_nothing_else() -> None:
    assert isinstance(DecisionTree(), Learner) and isinstance(Refit(SVC()), Learner)
    with pytest.raises(ValueError, match="is no learner"):
        as_learner(object())
