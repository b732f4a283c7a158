"""River's and scikit-learn's models as learners."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.learners.base import Base, Learner, fresh
from confide.learners.called import ABSTAINS, Called, Labels, NoLabel, values_of
from confide.learners.features import Pipeline
from confide.learners.refit import Refit, classifies
from confide.learners.rowwise import Heard, ask, ask_each


class FromRiver(Base):
    """A River classifier or pipeline as a learner: `predict_one` and `learn_one`.

    It hears the labels as they are given, or by their numbers where they are not all texts or all whole numbers. A
    model that knows two labels only takes truth values: it hears False for the first label and True for the second,
    unless these are False and True, or 0 and 1, themselves.

    Parameters
    ----------
    model
        The classifier or pipeline.
    labels
        All labels, or their number, and then they are 0 … L−1; POP and the banks set it.
    names
        What the columns of an array are called; None counts them from 0. A dict brings its own names.

    Examples
    --------
    >>> from river import linear_model, preprocessing
    >>> model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    >>> learner = FromRiver(model, labels=["young", "old"])
    >>> for age in range(20, 60):
    ...     learner.learn({"age": age}, "old" if age > 40 else "young")
    >>> learner.predict({"age": 25}), learner.predict({"age": 55})
    ('young', 'old')
    """

    numbered = False

    def __init__(self, model: Any, labels: Labels = 2, names: Sequence[str] | None = None) -> None:
        _classifies(model)
        self.model, self.labels, self.names = model, labels, names
        self.called = Called(labels)
        self.hears = Called(Heard(labels).array.tolist())
        if not getattr(model, "_multiclass", True):
            if len(self.called.values) > 2:
                raise ValueError(
                    "this River model knows two labels only: wrap it in river.multiclass.OneVsRestClassifier"
                )
            if set(self.called.values) != {False, True}:
                self.hears = Called((False, True))

    def predict(self, x: Any, /) -> Any:
        """What the model predicts, or None where it predicts nothing."""
        number = self.hears.number(self.model.predict_one(self.named(x)))
        return None if number < 0 else self.called.values[number]

    def learn(self, x: Any, y: Any, /) -> None:
        """Teach the model."""
        self.told(x, self.called.learned(y))

    def told(self, x: Any, number: int, **more: Any) -> None:
        """Teach the model the label of this number; `more` goes to its `learn_one`."""
        self.model.learn_one(self.named(x), self.hears.values[number], **more)

    def named(self, x: Any) -> Mapping[Any, Any]:
        """x as River takes it."""
        if isinstance(x, (dict, Mapping)):  # nearly all are dicts, and that is seen sooner
            return x
        row = np.asarray(x).tolist()
        return dict(enumerate(row)) if self.names is None else dict(zip(self.names, row, strict=True))


class FromSklearn(Base):
    """A scikit-learn classifier with `partial_fit` as a learner.

    It hears the labels as they are given, or by their numbers where they are not all texts or all whole numbers.

    Parameters
    ----------
    model
        The classifier. One that was taught before must know all labels.
    labels
        All labels, or their number, and then they are 0 … L−1; POP and the banks set it.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> learner = FromSklearn(GaussianNB(), labels=["young", "old"])
    >>> for age in range(20, 60):
    ...     learner.learn([age], "old" if age > 40 else "young")
    >>> learner.predict([25]), learner.predict([55])
    ('young', 'old')
    """

    numbered = False

    def __init__(self, model: Any, labels: Labels = 2) -> None:
        classifies(model)
        self.model, self.labels = model, labels
        self.called, self.heard = Called(labels), Heard(labels)
        self.taught = hasattr(model, "classes_")
        if self.taught and set(np.asarray(model.classes_).tolist()) != set(self.heard.array.tolist()):
            raise ValueError("the model was taught other labels than those given: teach it all of them, and no others")

    def predict(self, x: Any, /) -> Any:
        """What the model predicts, or None before it was taught."""
        if not self.taught:
            return None
        number = int(self.heard.numbers(ask(self.model, np.array([x])))[0])
        if number < 0:
            raise NoLabel("the model answered something else than a label")
        return self.called.values[number]

    def predict_numbers(self, xs: Any, /) -> NDArray[np.int64]:
        """The number of `predict` of each of several rows; negative where it abstains or fails."""
        return ask_each(self.model, np.asarray(xs), self.heard) if self.taught else np.full(len(xs), ABSTAINS)

    def learn(self, x: Any, y: Any, /) -> None:
        """Teach the model."""
        self.told(x, self.called.learned(y))

    def told(self, x: Any, number: int, **more: Any) -> None:
        """Teach the model the label of this number; `more` goes to its `partial_fit`."""
        first = {} if self.taught else {"classes": self.heard.array}  # to check them again takes a third of it
        self.model.partial_fit(np.array([x]), self.heard.array[[number]], **first, **more)
        self.taught = True


def made(model: Any) -> None:
    """Refuse a class: a model is made of it."""
    if isinstance(model, type):
        raise ValueError(f"{model.__name__} is a class: give one made of it, {model.__name__}(…)")


def as_learner(
    model: Any, labels: Labels | None = None, keep: bool = False, names: Sequence[str] | None = None
) -> Learner:
    """`model` as a learner that has learned nothing: Confide's, River's or scikit-learn's.

    Parameters
    ----------
    model
        Anything with `predict` and `learn`, with River's `predict_one` and `learn_one`, or with
        scikit-learn's `predict` and either `partial_fit` or `fit` (then by `Refit`).
    labels
        All labels, or their number; None leaves that as the model has it. Confide's own learners call labels by their
        numbers, all others as they are given here.
    keep
        Keep what the model has learned already. For models trained on public data only.
    names
        What the columns of an array are called, for River's models.

    Examples
    --------
    >>> from sklearn.svm import SVC
    >>> as_learner(SVC(), labels=3)
    Refit(estimator=SVC(), memory=256, warmup=1, labels=3)
    """
    made(model)
    if isinstance(model, Pipeline):
        named = getattr(model.features, "names", names)
        return Pipeline(model.features, as_learner(model.learner, labels, keep, named))
    if not keep:
        model = fresh(model)
    number: dict[str, Any] = {} if labels is None else {"labels": labels}
    if hasattr(model, "predict_one") and hasattr(model, "learn_one"):
        return FromRiver(model, names=names, **number)
    if hasattr(model, "predict") and hasattr(model, "partial_fit"):
        return FromSklearn(model, **number)
    if isinstance(model, Learner):
        return model if labels is None else _labelled(model, labels, keep)
    if hasattr(model, "predict") and hasattr(model, "fit"):
        return Refit(model, **number)
    raise ValueError(
        f"{type(model).__name__} is no learner: it needs predict and learn, or River's predict_one and "
        "learn_one, or scikit-learn's fit and predict"
    )


def _labelled(model: Any, labels: Labels, keep: bool) -> Learner:
    """A learner for these labels; one that has learned must be for them already."""
    values, ours = values_of(labels), isinstance(model, Base)
    held: Any = getattr(model, "labels", None)
    wanted = labels if ours and not model.numbered else len(values)
    if not (ours or isinstance(held, int)) or values_of(held) == values_of(wanted):
        return model  # type: ignore[no-any-return]
    if keep or not hasattr(model, "clone"):
        raise ValueError(f"the learner knows other labels than these {len(values)}: make it anew")
    relabelled: Learner = model.clone(labels=wanted)
    return relabelled


def last_step(model: Any) -> Any:
    """The last step of one of River's pipelines; any other model is its own."""
    while isinstance(steps := getattr(model, "steps", None), Mapping) and steps:
        model = list(steps.values())[-1]
    return model


def _classifies(model: Any) -> None:
    """Refuse one of River's models that predicts something else than labels."""
    river, last = sys.modules.get("river.base"), last_step(model)
    if river is not None and isinstance(last, river.Estimator) and not isinstance(last, river.Classifier):
        raise ValueError(f"{type(last).__name__} does not predict labels: give one of River's classifiers")
