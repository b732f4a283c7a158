"""What is promised where labels alone are protected. Proof page: docs/proofs/labels.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from confide.planning.guarantee import Guarantee

__all__ = ["NOT_PROTECTED", "LabelGuarantee"]

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
        return f"{_up(self.epsilon, 4)}-DP for labels alone{seeded}: {self._said}"

    @property
    def _said(self) -> str:
        if self.deadline is None:
            return NOT_PROTECTED
        return f"labels are protected, and whether one came within {self.deadline:,} rounds; rows are not"

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence that a lawyer could read."""
        factor = _up(math.nextafter(math.exp(self.epsilon), math.inf), 3) if self.epsilon < 700 else "e to the ε"
        whose = "the one label of a round"
        if self.units == "people":
            many = self.unit_labels or 1
            whose = "one person's one label" if many == 1 else f"all labels of one person, {many} at most,"
        return (
            f"Whatever {whose} said, everyone together, asking adaptively for as long as they like and seeing the "
            f"model itself, sees any given pattern with a probability that changes by at most a factor of {factor} "
            f"(ε = {_up(self.epsilon, 4)}); {self._said}."
        )


def _up(value: float, digits: int) -> str:
    """So many digits, rounded up: what is said is never less than what is promised."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(Decimal(repr(value)))):.{digits}g}"
