"""What is promised to each unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from confide._checks import Numbers
from confide.notebook import card
from confide.privacy.renyi import sum_up


@dataclass(frozen=True)
class Guarantee(Numbers):
    """What is promised to each unit. Proof page: docs/proofs/halting.md."""

    epsilon: float
    delta: float
    unit_unsure: int = 1
    secure: bool = True
    unit_labels: int | None = None
    """Labels of one unit that a guide learns from; None where there is no guide."""
    units: Literal["rounds", "people"] | None = field(default=None, compare=False)
    """Who a unit is, where that was said: for the sentence alone."""
    caps: tuple[str, ...] = field(default=(), compare=False)
    """What one unit may do, at most, part by part: for the sentence alone."""

    def plus(self, epsilon: float) -> Guarantee:
        """The guarantee with another ε-private release beside it, rounded up: never below the exact sum.

        Proof page: docs/proofs/monitor.md.

        Examples
        --------
        >>> Guarantee(0.7, 1e-6).plus(0.1).epsilon > 0.7 + 0.1
        True
        """
        if not 0 <= epsilon < math.inf:
            raise ValueError("what is added to a guarantee is an epsilon of at least 0")
        return replace(self, epsilon=sum_up(self.epsilon, epsilon))

    def __str__(self) -> str:
        seeded = "" if self.secure else " (insecure: seeded, so nothing is promised)"
        return f"({self.epsilon:.4g}, {self.delta:.3g})-challenge-DP{seeded}"

    @property
    def brief(self) -> str:
        """Its numbers."""
        return str(self)

    @property
    def protected(self) -> str:
        """What is protected, and what is not."""
        return "what was asked and what was answered as right are protected; that somebody asked is not"

    def _repr_html_(self) -> str:
        seeded = () if self.secure else ("Insecure: seeded, so nothing is promised.",)
        return card(str(replace(self, secure=True)), alarms=seeded, notes=(self.sentence,))

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence that a lawyer could read."""
        chance = f"{self.delta:.2g}"
        factor = f"{math.exp(self.epsilon):.3g}" if self.epsilon < 700 else f"e to the {self.epsilon:.4g}"
        return (
            f"Whatever {self._whose} told the system, everyone else together, asking adaptively for as long as they "
            "like, sees any given pattern of answers with a probability that changes by at most a factor of "
            f"{factor} (ε = {self.epsilon:.4g}), except with probability {chance}."
        )

    @property
    def _whose(self) -> str:
        if self.units == "rounds":
            return "a single round (a question and its label)"
        who = ", and ".join(self.caps) or "takes part"
        if self.units == "people":
            return f"one person, who {who},"
        return f"one unit (a single round, or a person who {who})"
