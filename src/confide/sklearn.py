"""POP as a scikit-learn classifier: `fit` teaches history, `predict` asks, one round a row."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import FrameType
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.pipeline import Pipeline
    from sklearn.utils import Tags, get_tags
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as missing:
    if missing.name not in ("sklearn", "sklearn.base"):
        raise
    needed = 'confide.sklearn needs scikit-learn: pip install "confide[sklearn]"'
    raise ModuleNotFoundError(needed, name="sklearn") from None

from confide._checks import label_weights
from confide.contained import Contained, contained
from confide.errors import ConfideWarning, Halted
from confide.frames import rows_of, values_of
from confide.learners import Features
from confide.planning.chosen import Kept, check_given, kept, refuse_another
from confide.planning.plan import Plan
from confide.planning.promise import Promise
from confide.planning.shares import LEAST
from confide.pop.pop import POP
from confide.privacy.random import Random
from confide.privacy.renyi import sum_up

__all__ = ["PrivateClassifier"]

_MANY = 100_000  # rows that surely are enough, where fewer are refused
_TWO = 32  # rows that make two leaves: so the first ends with the shortest history, or soon after

_ROWS_ONLY = "fit and predict know no people, so this class protects rows: for people take confide.Private(people=True)"

_LABELS_ONLY = (
    "PrivateClassifier gives labels only where its plan has no guide: probabilities and scores would show how the "
    "copies voted, which leaks what people told them; give a promise instead of a plan to have one"
)


@lru_cache(maxsize=64)
def _made(make: Callable[..., Plan], labels: int, history: int = 0) -> Plan:
    """What makes a plan for so many labels and, where it has a guide and does not say it, so many rows of history."""
    plan = make(labels=labels)
    if history and isinstance(plan, Plan) and plan.guide is not None and not plan.guide.history:
        return make(labels=labels, history=history)
    return plan


def _guided(model: PrivateClassifier) -> bool:
    """Whether there are probabilities; where there are none, AttributeError says why."""
    pop: POP | None = getattr(model, "pop_", None)
    plan = (_made(model.plan, 2) if callable(model.plan) else model.plan) if pop is None else pop.plan
    if isinstance(plan, Plan) and plan.guide is None and plan.promise.protect == "rows":
        raise AttributeError(_LABELS_ONLY)
    return True


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Makes a classifier private between the people whose rows it learns and answers.

    `fit` teaches all rows as history, free of charge: to the guide, a linear model learned from noisy sums, and, where
    the plan has copies of an estimator, each to one copy drawn at random. `predict` takes one round a row: the copies
    answer where they are sure, else the guide. `predict_proba`, `predict_log_proba` and `decision_function` are the
    guide's own: it was released privately as a whole, so asking it is free and takes no round. (ε, δ)-challenge-DP for
    each round, a row asked about and the same row taught, with the numbers of `pop_.guarantee`. Every `fit` is a new
    promise that adds to the earlier ones. Proof pages: docs/proofs/guide.md, docs/proofs/halting.md,
    docs/proofs/people.md.

    Put everything that learns inside: `PrivateClassifier(make_pipeline(StandardScaler(), model))`. In front of it, as
    in `make_pipeline(StandardScaler(), PrivateClassifier(model))`, a scaler has seen everybody and is shared by all
    copies; that leaks, and `fit` warns about it. The guide needs no scaler.

    Parameters
    ----------
    estimator
        None: the guide alone, which is what tables of less than millions of rows need. Or a scikit-learn classifier or
        pipeline, a Confide learner, or a River classifier: a prototype, never taught, of which there are copies. It is
        refused where they would not answer. Where the promise is to labels alone one fresh model like it is taught
        randomized labels.
    promise
        A `confide.Promise`: ε, δ, and how many rows may be asked about while it goes on learning. None: ε = 1,
        δ = 10⁻⁶. Without rounds it learns from its history, and then answers any number of rows, each always alike;
        past rounds that were given a guide answers as it is then, and copies, which need a number, halt.
    plan
        A `confide.Plan` that keeps a promise, instead of one: for copies, leans and shares of your own choice. Where
        labels are read from y it may be what makes a plan for so many labels, and as many rows of history as `fit` has:
        `functools.partial(Plan.tight, 8.0, 1e-6, 100_000, copies=400, unsure=300, silent=0)`.
    history
        Rows that will be taught before the first is asked about, by one call or many; public. None: those of the first
        call, whose number then counts as public; where a plan is given, what the plan says.
    ranges
        Where columns lie, as far as is public: (low, high), or one such pair a column, for a guide alone: it starts
        from them, until private counts of the first rows show more; of small tables, which have no such counts, it
        knows nothing else. Say them if you can. None: found privately, or done without if the rows are few.
    classes
        All labels, public. None: those of the first y, which then count as public.
    label_weights
        One positive public number a label, in the order of `classes_` or by class: how much the guide makes of it.
    fallback
        What answers when nothing private may be used and there is no guide yet: "coin", one of the labels, or a
        callable of one row.
    after_halt
        What becomes of rows after a halt: answered by the guide, else the "fallback"; or "raise" `confide.Halted`, from
        the next call of `predict` on. A guide alone halts only where rounds are promised.
    seed
        For tests and benchmarks only: whatever is made with one promises nothing. Or a generator.

    Attributes
    ----------
    classes_
        All labels.
    n_features_in_, feature_names_in_
        The number of features, and their names where X had them.
    pop_
        The POP underneath: its state, its guarantee, its guide, its operator's view.

    Examples
    --------
    One label in twenty is wrong; logistic regression that is not private scores 0.88.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(11_000, flip_y=0.1, random_state=1)
    >>> model = PrivateClassifier(ranges=(-5, 5), seed=1).fit(X[:10_000], y[:10_000])
    >>> round(float(model.score(X[10_000:], y[10_000:])), 2)
    0.87
    >>> model.predict_proba(X[:2]).shape, model.pop_.guarantee.epsilon <= 1
    ((2, 2), True)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        promise: Promise | None = None,
        plan: Plan | Callable[..., Plan] | None = None,
        history: int | None = None,
        ranges: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        label_weights: Mapping[Any, float] | ArrayLike | None = None,
        fallback: Any = "coin",
        after_halt: Literal["raise", "fallback"] = "fallback",
        seed: int | Random | None = None,
    ) -> None:
        self.estimator = estimator
        self.promise = promise
        self.plan = plan
        self.history = history
        self.ranges = ranges
        self.classes = classes
        self.label_weights = label_weights
        self.fallback = fallback
        self.after_halt = after_halt
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        """Start anew: teach every row as history, and answer from now on. Their number is public.

        A batch with a NaN or an infinity is refused as a whole: clean rows one by one before, so that nobody's row
        decides whether another's is taught.
        """
        self._look_in_front()
        X, y = self._records(X, y, reset=True)
        self._start(np.unique(y) if self.classes is None else self.classes, y, online=False)
        self._add_up()
        if len(y) < self.pop_.plan.copies:
            warnings.warn(
                f"{len(y)} records for {self.pop_.plan.copies} copies: most copies know nothing, so nearly every "
                "answer will be unsure; give more history, fewer copies or a larger epsilon",
                stacklevel=2,
            )
        self._seen += len(y)
        self.pop_.teach_many(X, y.tolist())
        return self

    def _add_up(self) -> None:
        """Warn of a second promise: rows that are in both tables have paid for both."""
        guarantee, before = self.pop_.guarantee, getattr(self, "_promised", 0.0)
        if not guarantee.secure:
            return
        self._promised = sum_up(before, guarantee.epsilon)
        if before:
            warnings.warn(
                f"this object was fitted before: for a row that was in all tables ε is {self._promised:.4g} by now, "
                f"not {guarantee.epsilon:.4g}; each fit is a promise of its own, and they add up",
                ConfideWarning,
                stacklevel=3,
            )

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Teach more rows; the first call needs all labels, here or at construction.

        Rows of the planned history teach the guide one after the other; those after it wait for the end of its leaf,
        which comes as rows are asked about, so plan `rounds` for them. From the second call on a row that cannot be
        read, or whose label is unknown, is left out, all others are learned, and then ValueError says so: nobody's row
        decides whether another's is taught.
        """
        self._look_in_front()
        stated = self.classes if classes is None else classes
        if not hasattr(self, "pop_"):
            X, y = self._records(X, y, reset=True)
            if stated is None:
                raise ValueError("the first partial_fit needs all classes: labels are public and fixed")
            self._start(stated, y, online=self.history is None)
        elif stated is not None and not np.array_equal(np.unique(stated), self.classes_):
            raise ValueError("classes differ from those of the first call: labels are public and fixed")
        else:
            refuse_another(self._kept, (self.promise, self.plan))
            y = values_of(y)  # each label by itself: as an array, one text would make texts of all
            rows = self._rows(X, len(y))
            if isinstance(rows, list):
                with contextlib.suppress(ValueError):
                    self.pop_.teach_many(rows, y)
                self._complain(X)
            X = rows
        if self._frozen(len(y)):
            warnings.warn(
                "the guide has learned all that was planned, so these rows teach it nothing: promise rounds=, the rows "
                "to be asked about while it learns, or give history=, the rows to be taught before",
                stacklevel=2,
            )
        self._seen += len(y)
        self.pop_.teach_many(X, values_of(y))
        return self

    def _frozen(self, rows: int) -> bool:
        """Whether so many rows more teach nobody: there is a guide alone, with neither history nor rounds to come."""
        plan, rounds = self.pop_.plan, self.pop_.rounds
        if plan.guide is None or plan.copies or plan.horizon > max(_TWO, rounds):
            return False
        return rounds > 0 or self._seen + rows > plan.guide.history

    def predict(self, X: Any) -> NDArray[Any]:
        """Answer every row, one round each, in order.

        A batch with a row that cannot be read takes as many rounds as it has rows, each of the good ones a round like
        any other, and then raises ValueError: what is in a row must not change what happens to the others. The error
        concerns the whole batch, so ask in batches of one asker.
        """
        check_is_fitted(self, "pop_")
        refuse_another(self._kept, (self.promise, self.plan))
        pop = self.pop_
        if pop.state == "halted" and self.after_halt == "raise" and not self._endless:
            raise Halted(f"this classifier has halted, its {pop.halt_reason} used up: fit anew, which is a new promise")
        rows = self._rows(X)
        given = pop.predict_many(rows)
        if isinstance(rows, list):
            self._complain(X)
        for answer in given:
            if answer.error is not None:
                raise ValueError(answer.error)
        if pop.halt_reason is not None and pop.plan.copies:
            warnings.warn(
                f"halted, its {pop.halt_reason} used up: the {'fallback' if pop.guide is None else 'guide'} answers "
                "all further rows",
                stacklevel=2,
            )
        return np.array([answer.label for answer in given], dtype=self.classes_.dtype)

    @available_if(_guided)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The guide's probabilities, a column a class: free, and no round. All alike before it has learned anything.

        Where copies answer too, the most probable class is not always what `predict` says.
        """
        check_is_fitted(self, "pop_")
        refuse_another(self._kept, (self.promise, self.plan))
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.array([list(self.pop_.probabilities(x).values()) for x in X])

    @available_if(_guided)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithms of `predict_proba`."""
        return np.asarray(np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny)))

    @available_if(_guided)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The guide's log-odds of the second class; with more than two the logarithms of all probabilities."""
        scores = self.predict_log_proba(X)
        return scores if self.classes_.size > 2 else np.asarray(scores[:, 1] - scores[:, 0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _records(self, X: Any, y: Any, reset: bool) -> tuple[NDArray[np.float64], NDArray[Any]]:
        try:
            X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        except ValueError as error:
            raise ValueError(_own_words(error)) from None
        check_classification_targets(y)
        return X, y

    def _start(self, classes: ArrayLike, y: NDArray[Any], online: bool) -> None:
        labels = np.unique(np.asarray(classes))
        if labels.size < 2:
            raise ValueError(f"at least two classes are needed, got {labels.size} class: there is nothing to predict")
        _check_known(y, labels)
        if self.after_halt not in ("raise", "fallback"):
            raise ValueError(f"after_halt={self.after_halt!r} must be 'raise' or 'fallback'")
        plan = self._plan(labels.size, len(y), online)
        self.pop_ = POP(
            self.estimator,
            plan,
            labels=labels.tolist(),
            features=self._features(plan),
            fallback=self.fallback,
            label_weights=label_weights(self.label_weights, labels.tolist()),
            seed=self.seed,
            after_halt="fallback",  # rows of one batch after the halt; the next batch is refused above
            ticket_life=1,  # no ticket is ever brought back, so none needs to be kept
        )
        self._kept: Kept = self.promise, self.plan
        self.pop_.tells = False  # `predict` and `partial_fit` do, in words of this class
        self.classes_ = labels
        self._seen = 0  # rows taught

    def _features(self, plan: Plan) -> int | Features:
        if self.ranges is None:
            return int(self.n_features_in_)
        if plan.copies:
            raise ValueError("ranges are for a guide alone, and this plan has copies: leave ranges out")
        try:
            pairs = np.broadcast_to(np.asarray(self.ranges, dtype=np.float64), (self.n_features_in_, 2))
        except (TypeError, ValueError):
            raise ValueError("ranges must be (low, high), or one such pair for each column") from None
        return Features(numeric={str(i): (low, high) for i, (low, high) in enumerate(pairs.tolist())})

    def _plan(self, labels: int, rows: int, online: bool) -> Plan:
        """The plan; a guide alone that nobody promised rounds for learns from its history only."""
        rows_before = 0 if online else rows
        given = self.promise, _made(self.plan, labels, rows_before) if callable(self.plan) else self.plan
        promise, plan = check_given(given)
        if plan is not None and self.history is not None:
            raise ValueError("a plan says how much history there is: leave history out")
        if (promise if plan is None else plan).units == "people":
            raise ValueError(_ROWS_ONLY)
        alone = (promise if plan is None else plan.promise).protect == "labels"
        unended = promise.rounds is None if plan is None else plan.endless
        self._endless = unended and (alone or self.estimator is None)
        if self.after_halt == "raise" and self._endless:
            raise ValueError("a guide alone without rounds never halts: leave after_halt out, or promise rounds")
        if alone and self.history is not None:
            raise ValueError("where labels alone are protected history needs no plan: leave history out")
        history = rows if self.history is None else self.history
        if alone:
            return kept(given, labels, self.estimator)
        if plan is not None:
            if plan.guide is not None and plan.guide.history < rows_before:
                warnings.warn(
                    f"the plan is for {plan.guide.history:,} rows of history, and fit has {rows_before:,}: the guide "
                    f"learns little from the others; plan with history={rows_before}",
                    ConfideWarning,
                    stacklevel=4,
                )
            return kept(given, labels, self.estimator)
        if self.estimator is not None or online or not self._endless:
            return kept(given, labels, self.estimator, silent=0, history=history)
        short = replace(promise, rounds=max(1, _TWO - history))
        try:
            return kept((short, None), labels, None, history=history)
        except ValueError:
            many = replace(short, rounds=_MANY)  # where that is no plan either, it says what else is wrong
            guide = kept((many, None), labels, None, history=history).guide
            assert guide is not None
            enough = float(f"{LEAST * guide.deviation():.1g}")
            raise ValueError(
                f"{history} rows are too few for epsilon={short.epsilon:g} at delta={short.delta:g}: the noise would "
                f"hide all that they say; give more than {enough:,.0f} rows, or a larger epsilon"
            ) from None

    def _complain(self, X: Any) -> NoReturn:
        """Say what is wrong with X, in scikit-learn's words as far as they lead nobody astray."""
        with Contained(TypeError, ValueError):
            try:
                validate_data(self, X, dtype=np.float64, reset=False)
            except ValueError as error:
                raise ValueError(_own_words(error)) from None
        raise ValueError("X has a row that is no array of numbers that float64 can hold")

    def _rows(self, X: Any, rows: int | None = None) -> Any:
        """X as an array if scikit-learn takes it; else row by row, as a list, None for each that it would refuse."""
        with contained:
            return validate_data(self, X, dtype=np.float64, reset=False)
        count, shape = 1 if rows is None else rows, getattr(X, "shape", None)
        with contained:
            count = int(shape[0]) if isinstance(shape, tuple) and shape else len(X)
            return [x if _is_finite(x) else None for x in rows_of(X, named=False)[:count]]
        return [None] * count  # it has no rows that could be looked at: each is malformed

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
            way = f"Put it inside: PrivateClassifier(make_pipeline({inside}, model), ...)"
            way = "Leave it out: the guide needs no scaler, and takes ranges=" if self.estimator is None else way
            warnings.warn(
                f"{', '.join(shared)} in front of PrivateClassifier learns from everybody and is shared by all: "
                f"that leaks. {way}",
                stacklevel=level,
            )


def _own_words(error: ValueError) -> str:
    """What scikit-learn says, without its advice to impute: an imputer that is fitted sees everybody's rows."""
    said = str(error)
    if "NaN" not in said or "\n" not in said:
        return said
    return (
        f"{said.partition(chr(10))[0]} Replace what is missing in each row by itself, with a public value: an imputer "
        "that is fitted sees everybody's rows, and leaks. Or take confide.Private, where NaN is a missing value"
    )


def _check_known(y: NDArray[Any], classes: NDArray[Any]) -> None:
    if not np.isin(y, classes).all():
        raise ValueError("y has labels that are not among the classes: labels are public and fixed, declare them all")


def _is_finite(x: Any) -> bool:
    """Whether scikit-learn takes this row: finite numbers alone."""
    with contained:
        return bool(np.isfinite(np.asarray(x, dtype=np.float64)).all())
    return False


def _learns(step: Any) -> bool:
    """Whether a step of a pipeline has to be fit; True for steps that nobody knows."""
    if step is None or isinstance(step, str):
        return False
    for name in ("steps", "transformer_list", "transformers"):
        if isinstance(parts := getattr(step, name, None), list):
            return any(_learns(part[1]) for part in parts)
    return bool(get_tags(step).requires_fit)
