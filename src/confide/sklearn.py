"""POP as a scikit-learn classifier: `fit` teaches history, `predict` asks, one round a row."""

from __future__ import annotations

import contextlib
import sys
import warnings
from functools import lru_cache
from types import FrameType
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.pipeline import Pipeline
    from sklearn.utils import Tags, get_tags
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as missing:
    if missing.name not in ("sklearn", "sklearn.base"):
        raise
    needed = 'confide.sklearn needs scikit-learn: pip install "confide[sklearn]"'
    raise ModuleNotFoundError(needed, name="sklearn") from None

from confide.errors import Halted
from confide.planning.plan import Plan
from confide.pop.pop import POP
from confide.privacy.random import Random

__all__ = ["PrivateClassifier"]

ROUNDS = 100_000
"""Rows that may be asked about in all, unless the user says otherwise."""


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Makes a classifier private between the people whose rows it learns and answers.

    `fit` teaches all rows as history, each to one copy drawn at random, free of charge, and starts answering.
    `partial_fit` teaches more of them. `predict` takes one round a row: each row has its own poll, gate draw and
    halting draw, in order, so asking twice may give two answers. (ε, δ)-challenge-DP for each round, a row asked about
    and the same row taught, with the numbers of `pop_.guarantee`. Every `fit` is a new promise that adds to the earlier
    ones. Proof pages: docs/proofs/halting.md, docs/proofs/people.md.

    Put everything that learns inside: `PrivateClassifier(make_pipeline(StandardScaler(), model))`. In front of it, as
    in `make_pipeline(StandardScaler(), PrivateClassifier(model))`, a scaler has seen everybody and is shared by all
    copies; that leaks, and `fit` warns about it.

    Parameters
    ----------
    estimator
        A scikit-learn classifier or pipeline, a Confide learner, or a River classifier: a prototype, never taught.
    epsilon, delta
        The promise.
    rounds
        Rows that may be asked about in all; past it the classifier halts. None: 100 000.
    copies, unsure, polls
        As in `Plan.tight`, which chooses what is None.
    classes
        All labels, public. None: those of the first y, which then count as public.
    fallback
        What answers when nothing private may be used: "coin", one of the labels, or a callable of one row.
    after_halt
        "raise" `confide.Halted`, or answer by the "fallback". Rows of a batch after the halt are always answered by the
        fallback, with a warning.
    seed
        For tests and benchmarks only: whatever is made with one promises nothing. Or a generator.

    Attributes
    ----------
    classes_
        All labels.
    n_features_in_, feature_names_in_
        The number of features, and their names where X had them.
    pop_
        The POP underneath: its state, its guarantee, its operator's view.

    Examples
    --------
    >>> from confide.learners import GaussianNB
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(11_000, centers=3, random_state=1)
    >>> model = PrivateClassifier(GaussianNB(), epsilon=2.0, rounds=1000, seed=1).fit(X[:10_000], y[:10_000])
    >>> float(model.score(X[10_000:], y[10_000:]))
    0.986
    >>> model.pop_.guarantee.epsilon <= 2, model.pop_.rounds
    (True, 1000)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        rounds: int | None = None,
        copies: int | None = None,
        unsure: int | None = None,
        polls: int | None = None,
        classes: ArrayLike | None = None,
        fallback: Any = "coin",
        after_halt: Literal["raise", "fallback"] = "raise",
        seed: int | Random | None = None,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.delta = delta
        self.rounds = rounds
        self.copies = copies
        self.unsure = unsure
        self.polls = polls
        self.classes = classes
        self.fallback = fallback
        self.after_halt = after_halt
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        """Start anew: teach every row to one of fresh copies, and answer from now on.

        A batch with a NaN or an infinity is refused as a whole: clean rows one by one before, so that nobody's row
        decides whether another's is taught.
        """
        self._look_in_front()
        X, y = self._records(X, y, reset=True)
        self._start(np.unique(y) if self.classes is None else self.classes, y)
        if len(y) < self.pop_.plan.copies:
            warnings.warn(
                f"{len(y)} records for {self.pop_.plan.copies} copies: most copies know nothing, so nearly every "
                "answer will be unsure; give more history, fewer copies or a larger epsilon",
                stacklevel=2,
            )
        self.pop_.teach_many(X, y.tolist())
        return self

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Teach every row to one copy; the first call needs all labels, here or at construction.

        From the second call on a row that cannot be read, or whose label is unknown, is left out, all others are
        learned, and then ValueError says so: nobody's row decides whether another's is taught.
        """
        self._look_in_front()
        stated = self.classes if classes is None else classes
        if not hasattr(self, "pop_"):
            X, y = self._records(X, y, reset=True)
            if stated is None:
                raise ValueError("the first partial_fit needs all classes: labels are public and fixed")
            self._start(stated, y)
        elif stated is not None and not np.array_equal(np.unique(stated), self.classes_):
            raise ValueError("classes differ from those of the first call: labels are public and fixed")
        else:
            y = np.asarray(y)
            rows = self._rows(X, len(y))
            if isinstance(rows, list):
                with contextlib.suppress(ValueError):
                    self.pop_.teach_many(rows, y.tolist())
                self._complain(X)
            X = rows
        self.pop_.teach_many(X, y.tolist())
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Answer every row, one round each, in order.

        A batch with a row that cannot be read takes as many rounds as it has rows, each of the good ones a round like
        any other, and then raises ValueError: what is in a row must not change what happens to the others. The error
        concerns the whole batch, so ask in batches of one asker.
        """
        check_is_fitted(self, "pop_")
        pop = self.pop_
        if pop.state == "halted" and self.after_halt == "raise":
            raise Halted(f"this classifier has halted, its {pop.halt_reason} used up: fit anew, which is a new promise")
        rows = self._rows(X)
        given = pop.predict_many(rows)
        if isinstance(rows, list):
            self._complain(X)
        for answer in given:
            if answer.error is not None:
                raise ValueError(answer.error)
        answers = np.array([answer.label for answer in given], dtype=self.classes_.dtype)
        public = sum(not answer.ticket for answer in given)  # no ticket comes after the halt
        if public:
            warnings.warn(
                f"halted, its {pop.halt_reason} used up: the last {public} of {len(rows)} rows were answered by the "
                "fallback",
                stacklevel=2,
            )
        return answers

    @property
    def predict_proba(self) -> NoReturn:
        """Refused: probabilities would show the votes."""
        raise AttributeError(_LABELS_ONLY)

    @property
    def predict_log_proba(self) -> NoReturn:
        """Refused: probabilities would show the votes."""
        raise AttributeError(_LABELS_ONLY)

    @property
    def decision_function(self) -> NoReturn:
        """Refused: margins would show the votes."""
        raise AttributeError(_LABELS_ONLY)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _records(self, X: Any, y: Any, reset: bool) -> tuple[NDArray[np.float64], NDArray[Any]]:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        check_classification_targets(y)
        return X, y

    def _start(self, classes: ArrayLike, y: NDArray[Any]) -> None:
        labels = np.unique(np.asarray(classes))
        if labels.size < 2:
            raise ValueError(f"at least two classes are needed, got {labels.size} class: there is nothing to predict")
        _check_known(y, labels)
        if self.after_halt not in ("raise", "fallback"):
            raise ValueError(f"after_halt={self.after_halt!r} must be 'raise' or 'fallback'")
        rounds = ROUNDS if self.rounds is None else self.rounds
        plan = _plan(self.epsilon, self.delta, rounds, self.copies, self.unsure, self.polls, labels.size)
        self.pop_ = POP(
            self.estimator,
            plan,
            labels=labels.tolist(),
            fallback=self.fallback,
            features=self.n_features_in_,
            after_halt="fallback",  # rows of one batch after the halt; the next batch is refused above
            ticket_life=1,  # no ticket is ever brought back, so none needs to be kept
            seed=None if isinstance(self.seed, Random) else self.seed,
            rng=self.seed if isinstance(self.seed, Random) else None,
        )
        self.classes_ = labels

    def _complain(self, X: Any) -> None:
        """Say what is wrong with X, in scikit-learn's words."""
        try:
            validate_data(self, X, dtype=np.float64, reset=False)
        except (TypeError, ValueError):
            raise
        except Exception:
            raise ValueError("X has a row that is no array of numbers that float64 can hold") from None

    def _rows(self, X: Any, rows: int | None = None) -> Any:
        """X as an array if scikit-learn takes it; else row by row, as a list, whatever is in the rows."""
        try:
            return validate_data(self, X, dtype=np.float64, reset=False)
        except Exception:
            pass
        count, shape = 1 if rows is None else rows, getattr(X, "shape", None)
        try:
            count = int(shape[0]) if isinstance(shape, tuple) and shape else len(X)
            return [X[i] for i in range(count)]
        except Exception:  # it has no rows that could be looked at: each is malformed
            return [None] * count

    def _look_in_front(self) -> None:
        """Warn if pipelines call that fit steps in front of this one: all copies would share them."""
        here: Any = self
        shared: list[str] = []
        frame: FrameType | None = sys._getframe(2)
        level = 3
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "sklearn":
            owner = frame.f_locals.get("self")
            if isinstance(owner, Pipeline) and owner.steps[-1][1] is here:
                shared = [type(step).__name__ for _, step in owner.steps[:-1] if _learns(step)] + shared
                here = owner
            frame = frame.f_back
            level += 1
        if shared:
            inside = ", ".join(f"{name}()" for name in shared)
            warnings.warn(
                f"{', '.join(shared)} in front of PrivateClassifier learns from everybody and is shared by all copies: "
                f"that leaks. Put it inside: PrivateClassifier(make_pipeline({inside}, model), ...)",
                stacklevel=level,
            )


_LABELS_ONLY = (
    "PrivateClassifier gives labels only: probabilities and scores would show how the copies voted, which leaks what "
    "people told them"
)


@lru_cache(maxsize=64)
def _plan(
    epsilon: float, delta: float, rounds: int, copies: int | None, unsure: int | None, polls: int | None, labels: int
) -> Plan:
    """The plan without a silent start; kept, since cross-validation asks for the same one again and again."""
    return Plan.tight(
        epsilon, delta, rounds, copies=copies, unsure=unsure, polls=polls, silent=0, labels=labels, guide=None
    )


def _check_known(y: NDArray[Any], classes: NDArray[Any]) -> None:
    if not np.isin(y, classes).all():
        raise ValueError("y has labels that are not among the classes: labels are public and fixed, declare them all")


def _learns(step: Any) -> bool:
    """Whether a step of a pipeline has to be fit; True for steps that nobody knows."""
    if step is None or isinstance(step, str):
        return False
    for name in ("steps", "transformer_list", "transformers"):
        if isinstance(parts := getattr(step, name, None), list):
            return any(_learns(part[1]) for part in parts)
    return bool(get_tags(step).requires_fit)
