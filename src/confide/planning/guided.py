"""The guide's numbers, and what they promise: computed from integers alone (docs/proofs/guide.md)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from confide._checks import integer
from confide.privacy.cost import UP, float_up
from confide.privacy.gate import check_order
from confide.privacy.gaussian import LARGEST
from confide.privacy.renyi import check_delta, check_epsilon, epsilon_from_renyi, renyi_from_epsilon
from confide.privacy.sums import MOST_LEAVES, SquareRoot, divergence

__all__ = ["GuidePlan"]

SCALE = 1 << 16
"""C: gradients are integers in units of 1/C. It costs nothing, since the noise is scaled with it."""

_SQUARED = 1 << 31  # what a kernel squares in 64 bits, twice, is below this
_ORDERS = range(2, 513)
_RANGES = ((20, 0.03), (14, 0.045), (10, 0.06), (8, 0.1))  # look at the first T/20 rounds for 3 % of the budget, or …
_SEEN = 0.12  # … of the rows looked at: a block of values this large must stand four deviations out of the noise
_PLENTY = 4.0  # of what must be shown: rows beyond it are better answered than looked at
_COLUMNS = 10  # numeric columns that this is worked out for
_FEW, _LEAF = 512, 512  # leaves of a short stream, and rounds of a leaf from which on there are more
_SHORTEST = 16  # rounds of a leaf
_SHAKE = 0.8  # the noise of a score, in units of the logit
_MEMORY = 60.0  # the answering θ forgets all but about the last sixtieth of the past: it sheds noise, and follows drift
_STABLE = 64.0  # step · rounds of a leaf: θ waits for a leaf to end, and longer steps would swing …
_HEAVY, _HEAVIEST = 2.0, 0.95  # … without momentum, which pays where the noise allows steps so much longer
_LONGER = 20.0  # the memory with momentum: long steps follow the chance in labels too, and a longer mean sheds it


@dataclass(frozen=True)
class GuidePlan:
    """Every number of a guide. `certify` needs nothing else: the promise does not depend on the feature map.

    Parameters
    ----------
    rounds, history
        Rounds that will be asked, and labelled rows taught before them.
    labels
        How many labels.
    leaves, leaf
        How many leaves, and the rounds (or rows of history) in each.
    clip
        κC: the norm of one gradient, an integer in units of 1/scale; ½ for two labels, 1 for more.
    scale
        C.
    unit_labels
        c: the gradients that one unit may add in its life.
    sigma2
        The variance of the noise in every coordinate of a node.
    factor_scale
        The first coefficient of the integer square root.
    range_rounds, range_norm, range_sigma2
        Rounds whose rows are counted for private ranges (0: none), the norm of one row's counts, the noise's variance.
    order
        The Rényi order at which the promise is computed.
    step
        η: θ = −(η/C)·(decoded prefix sum).
    memory
        The answering θ is a running mean that forgets all but about the last 1/memory of the past; 0 for no mean.
    momentum
        What θ keeps of itself when a leaf ends: above 0 where steps that the noise allows would swing without it.

    Examples
    --------
    >>> plan = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=200_000)
    >>> plan.leaves, plan.leaf, plan.order
    (511, 372, 22)
    >>> plan.epsilon(1e-6) <= 1.0
    True
    """

    rounds: int
    history: int
    labels: int
    leaves: int
    leaf: int
    clip: int
    scale: int
    unit_labels: int
    sigma2: int
    factor_scale: int
    range_rounds: int
    range_norm: int
    range_sigma2: int
    order: int
    step: float
    memory: float
    momentum: float = 0.0

    def __post_init__(self) -> None:
        for name, least in {
            "rounds": 1, "history": 0, "labels": 2, "leaves": 1, "leaf": 1, "clip": 1, "scale": 1, "unit_labels": 1,
            "sigma2": 1, "factor_scale": 1, "range_rounds": 0, "range_norm": 0, "range_sigma2": 1,
        }.items():  # fmt: skip
            integer(getattr(self, name), name, at_least=least)
        if self.clip >= _SQUARED:
            raise ValueError("clip must be below 2³¹, so that its square can be checked: take a smaller scale")
        if max(self.sigma2, self.range_sigma2) > LARGEST:
            raise ValueError("sigma2 must be at most 2⁸⁴: take fewer unit_labels, a larger epsilon or a smaller scale")
        check_order(self.order)
        if self.leaves > MOST_LEAVES or self.leaf * self.leaves < self.rounds + self.history - self.range_rounds:
            raise ValueError(f"the leaves must cover all rounds and be at most {MOST_LEAVES}: take longer ones")
        if not (self.step > 0 and math.isfinite(self.step) and 0 <= self.memory < math.inf and 0 <= self.momentum < 1):
            raise ValueError("step must be above 0, memory at least 0, both finite; momentum from 0 to below 1")
        if self.range_rounds and not self.range_norm:
            raise ValueError("private ranges need range_norm above 0")
        if not self.root.room(self.leaf * self.clip):
            raise ValueError("a node would not fit in 64 bits: take shorter leaves or a smaller scale")

    @property
    def root(self) -> SquareRoot:
        """The integer matrix of the released nodes."""
        return SquareRoot(self.leaves, self.factor_scale)

    @property
    def load(self) -> int:
        """Λ: the largest squared column norm of that matrix."""
        return self.root.load

    @property
    def vectors(self) -> int:
        """One for two labels, else one for each."""
        return 1 if self.labels == 2 else self.labels

    def certify(self) -> float:
        """R(order): the Rényi divergence of everything the guide releases, from integers, rounded up.

        A unit moves its leaves by at most 2c·κC in total norm, and the counts of ranges by at most √2·range_norm.
        """
        total = divergence(self.order, (2 * self.unit_labels * self.clip) ** 2, self.load, self.sigma2)
        if self.range_rounds:
            ranges = divergence(self.order, 2 * self.range_norm**2, 1, self.range_sigma2)
            total = float_up(UP.add(UP.create_decimal(total), UP.create_decimal(ranges)))
        return total

    def epsilon(self, delta: float) -> float:
        """ε at this δ, for a guide alone, rounded up."""
        return epsilon_from_renyi(self.certify(), self.order, delta)

    def deviation(self) -> float:
        """The rms deviation of a prefix sum's noise, in units of a gradient's norm 1."""
        return float(math.sqrt(self.sigma2 * float(np.mean(self.root.variances()))) / self.scale)

    @property
    def strength(self) -> float:
        """Labels for each deviation of the noise in the sum of their gradients, if every round brings one."""
        return (self.rounds + self.history) / self.deviation()

    def params(self) -> dict[str, Any]:
        """What makes the same plan again: JSON's kinds of values only."""
        return asdict(self)

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> GuidePlan:
        """The plan that `params` describes; unknown or missing names are refused."""
        if {"momentum", *params} != {each.name for each in fields(cls)}:  # 0 in plans that were made before it was
            raise ValueError("these are not the numbers of a guide: read the plan again from its file")
        return cls(**params)

    @classmethod
    def best(
        cls,
        epsilon: float,
        delta: float,
        rounds: int,
        labels: int = 2,
        unit_labels: int = 1,
        history: int = 0,
        private_ranges: bool = True,
    ) -> GuidePlan:
        """The plan of a guide alone that keeps (ε, δ): the order with the least noise, the rest by public rule."""
        epsilon, delta = check_epsilon(epsilon), check_delta(delta)
        order = max(_ORDERS, key=lambda a: renyi_from_epsilon(epsilon, a, delta) / a)
        budget = renyi_from_epsilon(epsilon, order, delta)
        if budget <= 0:
            raise ValueError("epsilon is too small for this delta: no noise keeps it; take a larger one of either")
        plan = cls.at(order, budget, rounds, labels, unit_labels, history, private_ranges)
        while plan.epsilon(delta) > epsilon:  # the budget above is not rounded; the promise is
            budget *= 1 - 1e-12
            plan = cls.at(order, budget, rounds, labels, unit_labels, history, private_ranges)
        return plan

    @classmethod
    def at(
        cls,
        order: int,
        renyi: float,
        rounds: int,
        labels: int = 2,
        unit_labels: int = 1,
        history: int = 0,
        private_ranges: bool = True,
    ) -> GuidePlan:
        """The plan with the least noise whose divergence at this order is at most `renyi`."""
        order, rounds, history = check_order(order), integer(rounds, "rounds", 1), integer(history, "history", 0)
        if not renyi > 0:
            raise ValueError("the guide's share of the budget must be above 0: give it more, or leave it out")
        scale, clip = SCALE, SCALE // 2 if labels == 2 else SCALE
        ranges, part = _range_rounds(order, renyi, rounds + history) if private_ranges else (0, 0.0)
        taught = rounds + history - ranges
        leaves = max(1, min(MOST_LEAVES, max(_FEW, taught // _LEAF), taught // _SHORTEST))
        leaf = -(-taught // leaves)
        leaves = -(-taught // leaf)
        load, share = SquareRoot(leaves).load, 1 - part
        shift2 = (2 * integer(unit_labels, "unit_labels", 1) * clip) ** 2
        sigma2 = math.ceil(order * shift2 * load / (2 * renyi * share) * (1 + 1e-14))
        range_sigma2 = math.ceil(order * scale**2 / (renyi * part) * (1 + 1e-14)) if ranges else 1
        root = SquareRoot(leaves)
        shake = math.sqrt(sigma2 * float(np.mean(root.variances()))) / scale
        step, stable = _SHAKE / shake, _STABLE / leaf
        momentum = min(_HEAVIEST, (step - stable) / (step + stable)) if step > _HEAVY * stable else 0.0
        return cls(
            rounds=rounds, history=history, labels=labels, leaves=leaves, leaf=leaf, clip=clip, scale=scale,
            unit_labels=unit_labels, sigma2=sigma2, factor_scale=root.scale, range_rounds=ranges,
            range_norm=scale if ranges else 0, range_sigma2=range_sigma2, order=order,
            step=min(step, stable * (1 + momentum) / (1 - momentum)),
            memory=_LONGER if momentum else _MEMORY, momentum=momentum,
        )  # fmt: skip


def _range_rounds(order: int, renyi: float, rounds: int) -> tuple[int, float]:
    """How many rounds are looked at for ranges, and for which part of the budget: the least that shows enough.

    Where even the most shows too little, none: ranges that are mostly noise are worse than a map that needs none.
    """
    shown = 0.0
    for divisor, part in _RANGES:
        looked = rounds // divisor
        shown = _SEEN * looked / (4 * math.sqrt(order * _COLUMNS / (renyi * part)))
        if shown >= 1:
            return math.ceil(looked * min(1.0, _PLENTY / shown)), part
    return (looked, part) if shown >= 0.5 else (0, 0.0)
