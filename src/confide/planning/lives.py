"""A person's life over several models, one after another: what all of them together may cost (Theorem 9‴).

The account of a person is a sum of squared deviations: what each model's labels and its one row of counts move, at
most. It is kept in whole units, and every price is rounded up. Proof page: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from confide._checks import Numbers
from confide.planning.arguments import promised_delta
from confide.planning.guided import GuidePlan
from confide.planning.parts import Price
from confide.planning.plan import Plan
from confide.privacy.exact import Noise, delta_of, epsilon_of, most_mu2, slack_of
from confide.privacy.renyi import check_epsilon

__all__ = ["UNIT", "Cost", "Life", "check_whole", "cost_of", "noises_of"]

UNIT = 1 << 30
"""An account's unit is a 2³⁰-th of a squared deviation."""

_GROUPS = 1000
"""Kinds of noise that are paid for beforehand, whatever models come later."""


@dataclass(frozen=True)
class Life(Numbers):
    """What one person is promised over all models of a line: (ε, δ) for all that they release together.

    Examples
    --------
    >>> life = Life(2.0, 1e-6)
    >>> life.epsilon_at(life.budget) <= 2.0 < life.epsilon_at(life.budget + life.budget // 10**6)
    True
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
        promised_delta(self.delta)

    @cached_property
    def aside(self) -> tuple[Noise, ...]:
        """Discrete noise costs a slack: a thousandth of ε is set aside for it."""
        values = 2 * 10**6
        return (Noise(values, math.ceil(values * _GROUPS * 1000 / (2 * self.epsilon))),) * _GROUPS

    @cached_property
    def budget(self) -> int:
        """The account at which (ε, δ) is used up, whatever noise the models have; rounded down."""
        slack = float(slack_of(self.aside))
        found, less = most_mu2(self.epsilon - slack, self.delta * math.exp(-slack / 4)), 1e-14
        units = math.floor(found * UNIT)
        while delta_of(self.epsilon, Fraction(units, UNIT), self.aside) > self.delta:
            units, less = math.floor(found * (1 - less) * UNIT), 2 * less
        return units

    def epsilon_at(self, account: int) -> float:
        """ε of a person with this account, at the life's δ, rounded up."""
        return 0.0 if account <= 0 else epsilon_of(self.delta, Fraction(account, UNIT), self.aside)

    def check_noise(self, noises: Sequence[Noise]) -> None:
        """ValueError where a line's models have more noise, too fine, than was set aside for."""
        if len(noises) > _GROUPS or slack_of(noises) > slack_of(self.aside):
            raise ValueError("so many models, or such fine noise, were not set aside for: begin without a predecessor")


class Cost(NamedTuple):
    """What a model costs one person, in units of an account."""

    label: int
    """One label taught; several cost this times their square."""
    ranges: int
    """A row that is counted for ranges; 0 where none is."""
    most: int
    """Labels that the model learns of one person."""

    def of(self, labels: int) -> int:
        """So many labels, and a row that was counted."""
        return self.ranges + labels * labels * self.label

    def left(self, budget: int) -> int | None:
        """How many labels a person with so much left may teach; None: not even a row of theirs may be counted."""
        room = budget - self.ranges
        return None if room < 0 else min(self.most, math.isqrt(room // self.label))

    def taken(self, budget: int) -> int:
        """Labels that count as taught when the model begins; one more than the model takes if no row may be counted."""
        left = self.left(budget)
        return self.most + 1 if left is None else self.most - left


def cost_of(guide: GuidePlan, counts: bool) -> Cost:
    """What a guide costs one person; `counts`: whether rows are counted for its ranges."""
    label = guide.labels_mu2 / guide.unit_labels**2
    return Cost(math.ceil(label * UNIT), math.ceil(guide.range_mu2 * UNIT) if counts else 0, guide.unit_labels)


def noises_of(plans: Sequence[Plan]) -> list[Noise]:
    """The noise of guides alone."""
    return [noise for plan in plans for noise in plan.price().noises]


def check_whole(life: Life, plans: Sequence[Plan]) -> float:
    """ε at the life's δ of a unit that is in all of these models as much as each allows (Theorem 9″).

    ValueError where that is more than the life's, or where their prices do not add up.
    """
    total: Price = plans[0].price()
    for plan in plans[1:]:
        total = total.plus(plan.price())
    epsilon = total.epsilon(life.delta)
    if epsilon > life.epsilon:
        raise ValueError(
            f"all models of this line together cost ε = {Decimal(epsilon):.4g} at δ = {life.delta:g}, and the life's "
            f"is {life.epsilon:g}: declare a larger one, or plan the new model with a smaller epsilon"
        )
    return epsilon
