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
    per: int | None = field(default=None, kw_only=True)
    """Rounds of a period, where ε is for what one person told within one; None where it is for life."""
    periods: int | None = field(default=None, kw_only=True)
    """In how many periods one person teaches, at most."""
    life: float | None = field(default=None, kw_only=True)
    """ε for all that one person ever told, in all their periods together, at the same δ."""
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
        life = None if self.life is None else sum_up(self.life, epsilon)
        return replace(self, epsilon=sum_up(self.epsilon, epsilon), life=life)

    def __str__(self) -> str:
        seeded = "" if self.secure else " (insecure: seeded, so nothing is promised)"
        said = f"({self.epsilon:.4g}, {self.delta:.3g})-challenge-DP"
        if self.life is not None:
            many = f"{self.periods:,} period{'s' * (self.periods != 1)}"
            said += f" a period of {self.per:,} rounds, ({self.life:.4g}, {self.delta:.3g}) for {many}"
        return f"{said}{seeded}"

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
        within = "" if self.per is None else f" within one period of {self.per:,} rounds"
        said = (
            f"Whatever {self._whose} told the system{within}, everyone else together, asking adaptively for as long as "
            "they like, sees any given pattern of answers with a probability that changes by at most a factor of "
            f"{_factor(self.epsilon)}, except with probability {self.delta:.2g}."
        )
        if self.life is None:
            return said
        return (
            f"{said} That holds even if all that they told in other periods is known. One person teaches in at most "
            f"{self.periods:,} periods; for all that they ever told the factor is at most {_factor(self.life)}, with "
            "the same exception."
        )

    @property
    def _whose(self) -> str:
        if self.units == "rounds":
            return "a single round (a question and its label)"
        who = ", and ".join(self.caps) or "takes part"
        if self.units == "people":
            return f"one person, who {who},"
        return f"one unit (a single round, or a person who {who})"


def _factor(epsilon: float) -> str:
    factor = f"{math.exp(epsilon):.3g}" if epsilon < 700 else f"e to the {epsilon:.4g}"
    return f"{factor} (ε = {epsilon:.4g})"
