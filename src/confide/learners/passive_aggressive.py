"""Passive-aggressive learning."""

from collections.abc import Sequence

from confide.learners.base import positive
from confide.learners.linear import PASSIVE_AGGRESSIVE, Linear


class PAClassifier(Linear):
    """Passive-aggressive: the smallest change that answers the record with margin 1, but no step above `C`.

    The variant PA-I of Crammer, Dekel, Keshet, Shalev-Shwartz and Singer, "Online Passive-Aggressive
    Algorithms" (2006). With more than two labels the record's label is moved away from its strongest rival.

    Parameters
    ----------
    C
        The longest step: small is calm, large is aggressive.
    scale
        Standardise features by the copy's own running mean and deviation.
    class_weight, warmup, labels
        As for `Stacked`; the weight multiplies its `C`.

    Examples
    --------
    >>> learner = PAClassifier()
    >>> for _ in range(10):
    ...     learner.learn([0.0, 1000.0], 1)
    ...     learner.learn([1.0, 2000.0], 0)
    >>> learner.predict([0.1, 1100.0]), learner.predict([0.9, 1900.0])
    (1, 0)
    """

    rule = PASSIVE_AGGRESSIVE

    def __init__(
        self,
        C: float = 0.1,
        scale: bool = True,
        class_weight: Sequence[float] | None = None,
        warmup: int = 1,
        labels: int = 2,
    ) -> None:
        self.C = C
        super().__init__(positive("C", C), 0.0, scale, labels, warmup, class_weight)
