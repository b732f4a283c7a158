"""River's and scikit-learn's models as learners."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.learners.base import Base, Learner, fresh
from confide.learners.features import Pipeline
from confide.learners.refit import Refit, classifies
from confide.learners.rowwise import ABSTAINS, ask, ask_each

__all__ = ["FromRiver", "FromSklearn", "as_learner"]


class FromRiver(Base):
    """A River classifier or pipeline as a learner: `predict_one` and `learn_one`.

    Parameters
    ----------
    model
        The classifier or pipeline.
    labels
        The number of labels; POP and the banks set it.
    names
        What the columns of an array are called; None counts them from 0. A dict brings its own names.

    Examples
    --------
    >>> from river import linear_model, preprocessing
    >>> learner = FromRiver(preprocessing.StandardScaler() | linear_model.LogisticRegression())
    >>> for age in range(20, 60):
    ...     learner.learn({"age": age}, int(age > 40))
    >>> learner.predict({"age": 25}), learner.predict({"age": 55})
    (0, 1)
    """

    def __init__(self, model: Any, labels: int = 2, names: Sequence[str] | None = None) -> None:
        _classifies(model)
        if labels > 2 and not getattr(model, "_multiclass", True):
            raise ValueError("this River model knows two labels only: wrap it in river.multiclass.OneVsRestClassifier")
        self.model, self.labels, self.names = model, labels, names

    def predict(self, x: Any, /) -> int | None:
        """What the model predicts, or None where it predicts nothing."""
        label = self.model.predict_one(self.named(x))
        return None if label is None else int(label)

    def learn(self, x: Any, y: int, /) -> None:
        """Teach the model."""
        self.model.learn_one(self.named(x), y)

    def named(self, x: Any) -> Mapping[Any, Any]:
        """x as River takes it."""
        if isinstance(x, Mapping):
            return x
        row = np.asarray(x).tolist()
        return dict(enumerate(row)) if self.names is None else dict(zip(self.names, row, strict=True))


class FromSklearn(Base):
    """A scikit-learn classifier with `partial_fit` as a learner.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> learner = FromSklearn(GaussianNB())
    >>> for age in range(20, 60):
    ...     learner.learn([age], int(age > 40))
    >>> learner.predict([25]), learner.predict([55])
    (0, 1)
    """

    def __init__(self, model: Any, labels: int = 2) -> None:
        classifies(model)
        self.model, self.labels = model, labels
        self._taught = hasattr(model, "classes_")

    def predict(self, x: Any, /) -> int | None:
        """What the model predicts, or None before it was taught."""
        return int(ask(self.model, np.array([x]))[0]) if self._taught else None

    def predict_many(self, xs: Any, /) -> NDArray[np.int64]:
        """`predict` of each of several rows, −1 where it abstains or fails."""
        return ask_each(self.model, np.asarray(xs)) if self._taught else np.full(len(xs), ABSTAINS)

    def learn(self, x: Any, y: int, /) -> None:
        """Teach the model."""
        first = {} if self._taught else {"classes": np.arange(self.labels)}  # to check them again takes a third of it
        self.model.partial_fit(np.array([x]), np.array([y]), **first)
        self._taught = True


def as_learner(
    model: Any, labels: int | None = None, keep: bool = False, names: Sequence[str] | None = None
) -> Learner:
    """`model` as a learner that has learned nothing: Confide's, River's or scikit-learn's.

    Parameters
    ----------
    model
        Anything with `predict` and `learn`, with River's `predict_one` and `learn_one`, or with
        scikit-learn's `predict` and either `partial_fit` or `fit` (then by `Refit`).
    labels
        The number of labels; None leaves it as the model has it.
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
    if isinstance(model, Pipeline):
        named = getattr(model.features, "names", names)
        return Pipeline(model.features, as_learner(model.learner, labels, keep, named))
    if not keep:
        model = fresh(model)
    number = {} if labels is None else {"labels": labels}
    if hasattr(model, "predict_one") and hasattr(model, "learn_one"):
        return FromRiver(model, names=names, **number)
    if hasattr(model, "predict") and hasattr(model, "partial_fit"):
        return FromSklearn(model, **number)
    if isinstance(model, Learner):
        if labels is None or getattr(model, "labels", labels) == labels:
            return model
        if keep or not hasattr(model, "clone"):
            raise ValueError(f"the learner knows another number of labels than {labels}: make it anew")
        relabelled: Learner = model.clone(labels=labels)
        return relabelled
    if hasattr(model, "predict") and hasattr(model, "fit"):
        return Refit(model, **number)
    raise ValueError(
        f"{type(model).__name__} is no learner: it needs predict and learn, or River's predict_one and "
        "learn_one, or scikit-learn's fit and predict"
    )


def _classifies(model: Any) -> None:
    """Refuse one of River's models that predicts something else than labels."""
    river = sys.modules.get("river.base")
    last = model
    while isinstance(steps := getattr(last, "steps", None), Mapping) and steps:  # a pipeline
        last = list(steps.values())[-1]
    if river is not None and isinstance(last, river.Estimator) and not isinstance(last, river.Classifier):
        raise ValueError(f"{type(last).__name__} does not predict labels: give one of River's classifiers")
