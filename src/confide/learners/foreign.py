"""River's and scikit-learn's models as learners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from confide.learners.base import Base, Learner, fresh
from confide.learners.features import Pipeline
from confide.learners.refit import Refit

__all__ = ["FromRiver", "FromSklearn", "as_learner"]


class FromRiver(Base):
    """A River classifier or pipeline as a learner: `predict_one` and `learn_one`.

    Examples
    --------
    >>> from river import linear_model, preprocessing
    >>> learner = FromRiver(preprocessing.StandardScaler() | linear_model.LogisticRegression())
    >>> for age in range(20, 60):
    ...     learner.learn({"age": age}, int(age > 40))
    >>> learner.predict({"age": 25}), learner.predict({"age": 55})
    (0, 1)
    """

    def __init__(self, model: Any, labels: int = 2) -> None:
        if labels > 2 and not getattr(model, "_multiclass", True):
            raise ValueError(
                "this River model knows two labels only: wrap it in river.multiclass.OneVsRestClassifier"
            )
        self.model, self.labels = model, labels
        self._names: dict[Any, None] = {}

    def knows(self, x: Any, /) -> bool:
        """Whether all features of `x` were learned from: River's models may make room for new ones when asked."""
        return _named(x).keys() <= self._names.keys()

    def predict(self, x: Any, /) -> int | None:
        """What the model predicts, or None where it predicts nothing."""
        label = self.model.predict_one(_named(x))
        return None if label is None else int(label)

    def learn(self, x: Any, y: int, /) -> None:
        """Teach the model."""
        x = _named(x)
        self._names.update(dict.fromkeys(x))
        self.model.learn_one(x, y)


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
        self.model, self.labels = model, labels
        self._taught = hasattr(model, "classes_")

    def predict(self, x: Any, /) -> int | None:
        """What the model predicts, or None before it was taught."""
        return int(self.model.predict(np.array([x]))[0]) if self._taught else None

    def learn(self, x: Any, y: int, /) -> None:
        """Teach the model."""
        self.model.partial_fit(np.array([x]), np.array([y]), classes=np.arange(self.labels))
        self._taught = True


def as_learner(model: Any, labels: int | None = None, keep: bool = False) -> Learner:
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

    Examples
    --------
    >>> from sklearn.svm import SVC
    >>> as_learner(SVC(), labels=3)
    Refit(estimator=SVC(), memory=256, warmup=1, labels=3)
    """
    if isinstance(model, Pipeline):
        return Pipeline(model.features, as_learner(model.learner, labels, keep))
    if not keep:
        model = fresh(model)
    number = {} if labels is None else {"labels": labels}
    if hasattr(model, "predict_one") and hasattr(model, "learn_one"):
        return FromRiver(model, **number)
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


def _named(x: Any) -> Mapping[Any, Any]:
    return x if isinstance(x, Mapping) else dict(enumerate(np.asarray(x).tolist()))
