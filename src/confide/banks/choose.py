"""The right bank for a learner."""

from __future__ import annotations

from typing import Any

from confide.banks.base import Bank
from confide.banks.replicas import ReplicaBank
from confide.banks.stacked import StackedBank
from confide.learners.base import Stacked
from confide.learners.called import Labels, values_of
from confide.learners.features import Encoder, Pipeline
from confide.learners.refit import Refit
from confide.privacy.random import Random


def bank_for(
    learner: Any, copies: int, labels: Labels, features: int | Encoder | None, rng: Random, public_start: bool = False
) -> Bank:
    """A bank of copies of `learner`: stacked where the learner stacks, replicas otherwise.

    Parameters
    ----------
    learner
        A prototype, which is never taught: a Confide learner, one with features in front (`features | learner`), a
        River classifier or pipeline, or a scikit-learn classifier with `partial_fit`, or with `fit` alone (by `Refit`).
    copies
        The number of copies.
    labels
        All labels, as learners of your own, River's and scikit-learn's are to hear them; or their number, and then
        they are 0 … L−1. In the bank's own calls labels are numbers.
    features
        The number of features of an array, or an encoder for dicts; None where the learner brings its own
        features or takes x as it is, as River's do.
    rng
        Where secret keys come from.
    public_start
        Start every copy from what `learner` has learned. For learners trained on public data only.

    Examples
    --------
    >>> from confide.learners import Features, LogisticRegression
    >>> learner = Features(numeric=["age"]) | LogisticRegression()
    >>> bank_for(learner, copies=1000, labels=2, features=None, rng=Random())
    StackedBank(LogisticRegression, copies=1000)
    >>> from river.tree import HoeffdingTreeClassifier
    >>> bank_for(HoeffdingTreeClassifier(), copies=1000, labels=2, features=None, rng=Random())
    ReplicaBank(HoeffdingTreeClassifier, copies=1000)
    """
    if isinstance(learner, Pipeline):
        if features is not None:
            raise ValueError("the learner brings its own features: leave features out")
        learner, features = learner.learner, learner.features
    takes_dicts = hasattr(learner, "predict_one")
    ours = isinstance(learner, Stacked | Refit) or (hasattr(learner, "fit") and not takes_dicts)
    if ours and features is None:
        raise ValueError(
            "say which features come: their number for arrays, or Features(...) | learner for dicts; "
            "taking them from the data would leak"
        )
    if isinstance(learner, Stacked):
        assert features is not None
        return StackedBank(learner, copies, len(values_of(labels)), features, public_start, rng)
    return ReplicaBank(learner, copies, labels, features, rng, public_start)
