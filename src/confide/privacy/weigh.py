"""The lean for many labels: each label is drawn by a weight that falls with how far it is behind the best.

Claims and proofs: docs/proofs/lean.md, "Many labels". The gate stays as it is, and what the lean costs is added to it.
Two labels have finer tables: `confide.privacy.lean`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from confide._checks import Numbers, integer
from confide.arrays import Floats, Ints, Words
from confide.kernels.compile import jit
from confide.kernels.machine import high_product
from confide.privacy.cost import UP, float_up, log_up
from confide.privacy.gate import VOTE, Gate, check_cost, check_fraction, check_order, thresholds
from confide.privacy.halting import Halting, renyi_of
from confide.privacy.outcomes import survey

TOP = 2**52
"""The weight of the best label."""

MOST_LABELS = 1024
"""So that the weights of all labels add up to less than 2⁶³."""

FAR = 16.0
"""Log-odds at which weights stop falling: 1 in 9 million, and still 29 bits."""


@jit
def offsets_of(scores: Floats, width: float, clip: int, out: Ints) -> None:
    """Log-odds of the labels, up to a constant, as whole votes behind the best, 0 to −clip: the same bits everywhere.

    Where a score is not a number nobody has an opinion: all offsets are 0.
    """
    best, known = scores[0], True
    for label in range(scores.size):
        best = max(best, scores[label])
        known = known and scores[label] == scores[label]
    for label in range(scores.size):
        behind = (best - scores[label]) * width
        votes = int(min(np.floor(behind + 0.5), float(clip))) if behind == behind else clip
        out[label] = -votes if known else 0


@jit
def weigh(word: np.uint64, weights: Words, counts: Ints, offsets: Ints) -> int:
    """The label that one uniform word draws; every label is looked at in the same way, whatever the counts."""
    best = counts[0] + offsets[0]
    for label in range(1, counts.size):
        best = max(best, counts[label] + offsets[label])
    total = np.uint64(0)
    for label in range(counts.size):
        total += weights[min(best - counts[label] - offsets[label], weights.size - 1)]
    point, below, chosen = high_product(np.uint64(word), total), np.uint64(0), 0
    for label in range(counts.size):
        below += weights[min(best - counts[label] - offsets[label], weights.size - 1)]
        chosen += int(point >= below)
    return chosen


def _ratios(values: list[int], apart: int) -> tuple[Fraction, Fraction]:
    """The smallest and the largest ratio, larger over smaller, of two entries so far apart."""
    least, most = (2**64, 1), (1, 1)
    for a, b in zip(values, values[apart:], strict=False):
        high, low = max(a, b), min(a, b)
        most = (high, low) if high * most[1] > most[0] * low else most
        least = (high, low) if high * least[1] < least[0] * low else least
    return Fraction(*least), Fraction(*most)


def _steepest(gate: Gate) -> Fraction:
    """The largest ratio of P(unsure) at margins that one vote may part."""
    unsure = [2**64 - int(sure) for sure in gate.sure]
    return max(_ratios(unsure, apart)[1] for apart in range(1, VOTE + 1))


def _range(step: Fraction, steepest: Fraction, fraction: Fraction) -> Fraction:
    """1 + w̄(r − 1): the most by which one vote moves a label's odds, r = `step`."""
    heavy = fraction * steepest * step
    return 1 + heavy / (1 - fraction + heavy) * (step - 1)


@dataclass(frozen=True, eq=False)
class Weights(Numbers):
    """Integer weights by how many votes a label is behind the best; beyond the last, the last.

    Proof page: docs/proofs/lean.md. Offsets are public whole votes added to the counts.

    Parameters
    ----------
    width
        γ: votes for each unit of log-odds.
    weights
        64-bit integers that never rise, the first of them 2⁵².

    Examples
    --------
    >>> gate = Gate.best(order=12, cost=0.007)
    >>> lean = Weights.beside(gate, order=12, cost=0.003)
    >>> lean.cost(gate, order=12) <= 0.003
    True
    >>> lean.draw(0, [3, 5, 5], [0, 0, -1])
    0
    """

    width: float
    weights: Words = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = np.array(thresholds(self.weights, "weights"))
        falling = weights.size > VOTE and weights[0] == TOP and weights[-1] and (weights[1:] <= weights[:-1]).all()
        if not (falling and 0 < self.width < math.inf):
            raise ValueError(
                "weights are at least 3, begin with 2**52, never rise nor reach 0, and the width is positive"
            )
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def of_width(cls, width: float) -> Weights:
        """Weights e^(−votes/width), rounded up."""
        votes = np.arange(math.floor(FAR * width) + 1)
        return cls(width, np.ceil(np.exp(-votes / width) * TOP).astype(np.uint64))

    @classmethod
    def beside(cls, gate: Gate, *, order: int, cost: float, poll_fraction: float | Fraction = 1.0) -> Weights:
        """The narrowest weights that cost at most `cost` beside this gate.

        Parameters
        ----------
        order, poll_fraction
            As for `Gate.best`.
        cost
            λ: what is added to the gate's own cost.
        """
        order, fraction = check_order(order), check_fraction(poll_fraction)
        check_cost(cost, order)
        steepest, goal = _steepest(gate), math.exp(math.sqrt(2 * cost * (1 - 1e-6) / order))
        low, high = 0.0, 4.0  # of 1/width
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (
                (middle, high) if _range(Fraction(math.exp(middle)), steepest, fraction) < goal else (low, middle)
            )
        if low < 1e-4:
            raise ValueError(f"cost={cost} is too small for a lean: ask for a larger epsilon")
        lean = cls.of_width(1 / low)
        while lean.cost(gate, order=order, poll_fraction=fraction) > cost:  # the integers' rounding
            lean = cls.of_width(lean.width * (1 + 1e-6))
        return lean

    def cost(
        self, gate: Gate, *, order: int, poll_fraction: float | Fraction = 1.0, labels: int = MOST_LABELS
    ) -> float:
        """λ: an upper bound of what the lean adds to the gate's cost, from the integers. docs/proofs/lean.md."""
        order, fraction = check_order(order), check_fraction(poll_fraction)
        labels = integer(labels, "labels", at_least=2, at_most=MOST_LABELS)
        whole = [int(weight) for weight in self.weights]
        least, step = _ratios(whole, 1)
        # One word has 64 bits: a label's probability is its weight's share within this, relative. And the weights'
        # own steps are not quite equal.
        grain = Fraction(labels * TOP, whole[-1] * 2**64)
        uneven = (1 + grain) / (1 - grain) * (step / least) ** 2
        most = _range(step, _steepest(gate), fraction) * uneven
        log = log_up(UP.divide(Decimal(most.numerator), Decimal(most.denominator)))
        # The range is twice this, and the cost order/8 times its square.
        return float_up(UP.multiply(UP.multiply(log, log), UP.divide(Decimal(order), Decimal(2))))

    def draw(self, word: int, counts: list[int], offsets: list[int]) -> int:
        """The label that a word draws: the reference that the kernel `weigh` is held to."""
        votes = [count + offset for count, offset in zip(counts, offsets, strict=True)]
        behind = [min(max(votes) - each, self.weights.size - 1) for each in votes]
        shares = [int(self.weights[each]) for each in behind]
        point, below = word * sum(shares) >> 64, 0
        for label, share in enumerate(shares):
            below += share
            if point < below:
                return label
        raise AssertionError("the shares add up to their sum")

    def params(self) -> dict[str, Any]:
        """What makes the same weights again: JSON's kinds of values only."""
        return {"width": self.width, "weights": self.weights.tolist()}

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Weights:
        """The weights that `params` describes."""
        return cls(params["width"], thresholds(params["weights"], "weights"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Weights):
            return NotImplemented
        return self.width == other.width and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((self.width, self.weights.tobytes()))


def joint_weights(
    lean: Weights,
    gate: Gate,
    halting: Halting,
    *,
    order: int,
    poll_fraction: float | Fraction = 1.0,
    labels: int = MOST_LABELS,
) -> float:
    """Rényi divergence of gate, weighted lean and halting gate together, rounded up; +inf where not bounded."""
    order, fraction = check_order(order), check_fraction(poll_fraction)
    extra = lean.cost(gate, order=order, poll_fraction=fraction, labels=labels)
    coin = np.full((1, gate.sure.size), 2**63, dtype=np.uint64)
    rho, d = survey(gate.sure[None, :], coin, order=order, poll_fraction=fraction).points
    if (order - 1) * extra > 700:
        return math.inf
    factor = math.exp((order - 1) * extra * (1 + 1e-15)) * (1 + 1e-13)  # more than the few roundings of this line
    return renyi_of(rho * factor, d, halting, order=order)
