"""The perceptron."""

from collections.abc import Sequence

from confide.learners.base import positive
from confide.learners.linear import PERCEPTRON, Linear


class Perceptron(Linear):
    """The perceptron: after a mistake, one step towards the record that was missed.

    With `scale=False`, two labels and a stream that some line through the origin of (x, 1) separates with
    margin γ, while ‖(x, 1)‖ ≤ R, it makes at most (R/γ)² mistakes (Novikoff, "On Convergence Proofs for
    Perceptrons", 1963). γ is not known beforehand, so there is no `mistake_bound`.

    Parameters
    ----------
    l2
        Strength of the pull of all weights, the bias left out, to zero.
    scale
        Standardise features by the copy's own running mean and deviation.
    class_weight, warmup, labels
        As for `Stacked`.

    Examples
    --------
    >>> learner = Perceptron(labels=3)
    >>> for _ in range(10):
    ...     for label, x in enumerate([[0.0, 0.0], [0.0, 5.0], [5.0, 0.0]]):
    ...         learner.learn(x, label)
    >>> [learner.predict(x) for x in ([0.1, 0.2], [0.3, 4.8], [5.5, 0.1])]
    [0, 1, 2]
    """

    rule = PERCEPTRON

    def __init__(
        self,
        l2: float = 0.0,
        scale: bool = True,
        class_weight: Sequence[float] | None = None,
        warmup: int = 1,
        labels: int = 2,
    ) -> None:
        self.l2 = l2
        super().__init__(1.0, positive("l2", l2, zero=True), scale, labels, warmup, class_weight)
