"""Logistic regression by stochastic gradient descent."""

from collections.abc import Sequence

from confide.learners.base import positive
from confide.learners.linear import LOGISTIC, Linear


class LogisticRegression(Linear):
    """Logistic regression by stochastic gradient descent: a sigmoid for two labels, a softmax for more.

    A step is `learning_rate` long, and never longer than 4/‖z‖² for the standardised features z: beyond that
    the loss of the record itself may rise, and with many features it would.

    Parameters
    ----------
    learning_rate
        The length of a step.
    l2
        Strength of the pull of all weights, the bias left out, to zero.
    scale
        Standardise features by the copy's own running mean and deviation.
    class_weight, warmup, labels
        As for `Stacked`.

    Examples
    --------
    >>> learner = LogisticRegression()
    >>> learner.predict([0.0, 1.0]) is None
    True
    >>> for _ in range(20):
    ...     learner.learn([0.0, 1000.0], 1)
    ...     learner.learn([1.0, 2000.0], 0)
    >>> learner.predict([0.1, 1100.0]), learner.predict([0.9, 1900.0])
    (1, 0)
    """

    rule = LOGISTIC

    def __init__(
        self,
        learning_rate: float = 0.1,
        l2: float = 0.0,
        scale: bool = True,
        class_weight: Sequence[float] | None = None,
        warmup: int = 1,
        labels: int = 2,
    ) -> None:
        self.learning_rate, self.l2 = learning_rate, l2
        rate, pull = positive("learning_rate", learning_rate), positive("l2", l2, zero=True)
        super().__init__(rate, pull, scale, labels, warmup, class_weight)
