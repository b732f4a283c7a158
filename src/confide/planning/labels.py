"""What is promised where labels alone are protected. Proof page: docs/proofs/labels.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from confide.planning.guarantee import Guarantee

NOT_PROTECTED = "labels are protected; rows, and whether and when a label came, are not"
"""The word of this promise, on every surface."""


@dataclass(frozen=True)
class LabelGuarantee(Guarantee):
    """ε for the labels of a unit, and nothing for its rows; δ is 0.

    Examples
    --------
    >>> print(LabelGuarantee(1.0, 0.0))
    1-DP for labels alone: labels are protected; rows, and whether and when a label came, are not
    """

    deadline: int | None = None
    """Public rounds after which a label that has not come is replaced; None where none is."""

    def __str__(self) -> str:
        seeded = "" if self.secure else " (insecure: seeded, so nothing is promised)"
        return f"{self.epsilon:.4g}-DP for labels alone{seeded}: {self._said}"

    @property
    def _said(self) -> str:
        if self.deadline is None:
            return NOT_PROTECTED
        return f"labels are protected, and whether one came within {self.deadline:,} rounds; rows are not"

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence that a lawyer could read."""
        factor = f"{math.exp(self.epsilon):.3g}" if self.epsilon < 700 else f"e to the {self.epsilon:.4g}"
        whose = "the one label of a round"
        if self.units == "people":
            many = self.unit_labels or 1
            whose = "one person's one label" if many == 1 else f"all labels of one person, {many} at most,"
        return (
            f"Whatever {whose} said, everyone together, asking adaptively for as long as they like and seeing the "
            f"model itself, sees any given pattern with a probability that changes by at most a factor of {factor} "
            f"(ε = {self.epsilon:.4g}); {self._said}."
        )
