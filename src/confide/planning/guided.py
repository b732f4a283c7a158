"""The guide's numbers, and what they promise: computed from integers alone (docs/proofs/guide.md, exact.md)."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from confide._checks import Numbers, integer
from confide.planning.linear import LinearPart
from confide.planning.stages import MEMORY, SHORTEST, STEADY, Stage, ends_of, epoch_ends, epoch_of, epoch_start
from confide.privacy.exact import Noise, most_mu2, slack_of
from confide.privacy.gaussian import LARGEST
from confide.privacy.renyi import check_delta, check_epsilon
from confide.privacy.sums import MOST_LEAVES, SquareRoot

SCALE = 1 << 16
"""C: gradients are integers in units of 1/C. It costs nothing, since the noise is scaled with it."""

MOST_VALUES = 1 << 24
"""Values in one release, at most: a plan certifies so many without knowing the map, and a guide refuses a wider one."""

_SCALES = ((1 << 9, 1 << 10), (1 << 7, 1 << 7), (1 << 6, 1 << 4))  # of the matrix: the finest that the noise allows
_SQUARED = 1 << 31  # what a kernel squares in 64 bits, twice, is below this
_APART, _WARMED = 0.5, 0.15  # of what a row of the warm-up may cost: its counts, and what it teaches in the warm-up
_TOGETHER = 0.06  # of the whole budget: the counts, where a unit pays for both stages
_LOUD = 4  # leaves of the warm-up, at most, whose rows tell their labels and are not kept
_SEEN = 0.12  # of the rows looked at: a block of values this large must stand four deviations out of the noise
_LOOKED, _PLENTY = 10, 3.0  # look at a tenth of the rounds, and at most at so often as many as show enough
_QUARTER = 4  # … and where a tenth is less than is looked at without an end, at that, up to a quarter
_COLUMNS = 10  # numeric columns that this is worked out for
_FEW, _LEAF = 512, 512  # leaves of a short stream, and rounds of a leaf from which on there are more
_GROWTH = 30  # a leaf is a thirtieth of the past, so that θ is never older than that; more leaves, more noise
_EPOCH, _LONGEST, _SLOWER = 1024, 2048, 256  # without an end: leaves of an epoch, the longest, and their growth
_SHOWN = 1.5  # … and so often as many are looked at
_SHAKE = 0.8  # the noise of a score, in units of the logit
_HEAVY, _HEAVIEST = 2.0, 0.95  # momentum, which pays where the noise allows steps so much longer than steady ones
_LONGER = 20.0  # the memory with momentum: long steps follow the chance in labels too, and a longer mean sheds it


class TooNoisy(ValueError):
    """The promise asks for more noise than the sampler draws."""


@dataclass(frozen=True)
class GuidePlan(LinearPart, Numbers, kind="linear"):
    """Every number of a guide. Its price needs nothing else: the promise does not depend on the feature map.

    Parameters
    ----------
    rounds, history
        Rounds that will be asked, None for a guide without an end, and labelled rows taught before them.
    labels
        How many labels.
    leaves, leaf, growth
        How many leaves, and the rounds (or rows of history) in the longest. A leaf is as long as the rounds before it
        divided by `growth`, at least 16 and at most `leaf`; with a growth of 0 all are alike. Without an end the leaves
        are those of an epoch: after its last leaf another begins, with noise and sums of its own, and θ goes on.
    clip
        κC: the norm of one gradient, an integer in units of 1/scale; ½ for two labels, 1 for more.
    scale
        C.
    unit_labels
        c: the gradients that one unit may add in its life; or, where a promise has periods, in each of them.
    sigma2
        The variance of the noise in every coordinate of a node.
    factor_scale, column_scale
        The integer matrix: the first coefficient of the square root, and the weight of its first column.
    node_values
        The values in a node, at most: the guide refuses a map that needs more.
    range_rounds, range_norm, range_sigma2, range_values
        Rounds whose rows are counted for private ranges (0: none), the norm of one row's counts, the noise's variance,
        the counts released, at most.
    warm_leaves, warm_sigma2, warm_factor_scale, warm_column_scale, warm_step
        The leaves that are learned in these rounds, on a map of declared ranges: their number, the noise, the integer
        matrix and η. They grow as the others do; without private ranges there are none.
    step
        η: θ = −(η/C)·(decoded prefix sum). Without an end step, memory and momentum are those of short leaves, and an
        epoch of longer ones has its own, by rule.
    memory
        The answering θ is a running mean that forgets all but about the last 1/memory of the past; 0 for no mean.
    momentum
        What θ keeps of itself when a leaf ends: above 0 where steps that the noise allows would swing without it.
    apart
        Whether a unit is in the counts and the warm-up, or in the other stage, and never in both, so that it pays for
        the dearer of them. So it is where units are rounds; people pay for both.

    Examples
    --------
    >>> plan = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=200_000)
    >>> plan.leaves, plan.leaf, plan.delta(1.0) <= 1e-6
    (610, 391, True)
    >>> round(plan.epsilon(1e-6), 6), round(plan.epsilon(1e-6, people=10), 2)
    (1.0, 13.51)
    >>> endless = GuidePlan.best(epsilon=1.0, delta=1e-6)
    >>> endless.rounds is None, [endless.epoch(number).start for number in range(4)], endless.delta(1.0) <= 1e-6
    (True, [0, 79416, 1629257, 3726409], True)
    """

    rounds: int | None
    history: int
    labels: int
    leaves: int
    leaf: int
    growth: int
    clip: int
    scale: int
    unit_labels: int
    sigma2: int
    factor_scale: int
    column_scale: int
    node_values: int
    range_rounds: int
    range_norm: int
    range_sigma2: int
    range_values: int
    warm_leaves: int
    warm_sigma2: int
    warm_factor_scale: int
    warm_column_scale: int
    warm_step: float
    step: float
    memory: float
    momentum: float
    apart: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in {
            "history": 0, "labels": 2, "leaves": 1, "leaf": 1, "growth": 0, "clip": 1, "scale": 1,
            "unit_labels": 1, "sigma2": 1, "factor_scale": 1, "column_scale": 1, "node_values": 1, "range_rounds": 0,
            "range_norm": 0, "range_sigma2": 1, "range_values": 0, "warm_leaves": 0, "warm_sigma2": 1,
            "warm_factor_scale": 1, "warm_column_scale": 1,
        }.items():  # fmt: skip
            integer(getattr(self, name), name, at_least=least)
        if self.rounds is not None:
            integer(self.rounds, "rounds", at_least=1)
        if self.clip >= _SQUARED:
            raise ValueError("clip must be below 2³¹, so that its square can be checked: take a smaller scale")
        if max(self.sigma2, self.range_sigma2, self.warm_sigma2) > LARGEST:
            raise ValueError("sigma2 must be at most 2⁸⁴: take fewer unit_labels, a larger epsilon or a smaller scale")
        self._check_leaves()
        steps, memory = (self.step, self.warm_step), self.memory
        if not (min(steps) > 0 and math.isfinite(sum(steps)) and 0 <= memory < math.inf and 0 <= self.momentum < 1):
            raise ValueError("steps must be above 0, memory at least 0, all finite; momentum from 0 to below 1")
        if self.range_rounds and not (self.range_norm and self.range_values):
            raise ValueError("private ranges need range_norm and range_values above 0")
        if self.apart and self.unit_labels > 1:
            raise ValueError("apart is for units that are rounds, and they have one label each: plan for people anew")

    def _check_leaves(self) -> None:
        """Refuse other numbers of leaves than the lengths make, and nodes that do not fit in 64 bits."""
        for leaves, rounds in ((self.leaves, self._length), (self.warm_leaves, self.range_rounds)):
            covered = rounds is None or leaves == len(ends_of(rounds, self.leaf, self.growth))
            if leaves > MOST_LEAVES or not covered:
                raise ValueError(f"the leaves must cover all rounds and be at most {MOST_LEAVES}: take longer ones")
        roots = [self.root] + ([self.warm_root] if self.range_rounds else [])
        if not all(root.room(self.leaf * self.clip) for root in roots):
            raise ValueError("a node would not fit in 64 bits: take shorter leaves or a smaller scale")

    @property
    def endless(self) -> bool:
        """Whether there is no last round."""
        return self.rounds is None

    @property
    def _length(self) -> int | None:
        return None if self.rounds is None else self.rounds + self.history

    @property
    def length(self) -> int:
        """Rounds and rows of history in all; a plan without an end has none."""
        if self._length is None:
            raise ValueError("this plan has no last round: ask for what holds after some number of rounds")
        return self._length

    @property
    def root(self) -> SquareRoot:
        """The integer matrix of the released nodes; without an end, of an epoch's."""
        return SquareRoot(self.leaves, self.factor_scale, self.column_scale)

    @property
    def warm_root(self) -> SquareRoot:
        """That of the nodes released while ranges are counted."""
        return SquareRoot(self.warm_leaves, self.warm_factor_scale, self.warm_column_scale)

    @property
    def main(self) -> Stage:
        """The stage that learns once the map is known: it has leaves for all rounds, should nothing be counted.

        Without an end it is the first epoch's.
        """
        return self.epoch(0)

    def epoch(self, number: int) -> Stage:
        """The leaves of an epoch of that stage; a plan with a last round has one epoch only."""
        integer(number, "number", at_least=0, at_most=None if self.endless else 0)
        if self._length is not None:
            ends = ends_of(self._length, self.leaf, self.growth)
            return Stage("node", 1, ends, self.sigma2, self.root, self.step, self.memory, self.momentum)
        growing = self.leaves, self.leaf, self.growth
        start, ends = epoch_start(number, *growing), epoch_ends(number, *growing)
        pace = _pace(self.step, ends[-1] - (ends[-2] if self.leaves > 1 else start), self.memory)
        return Stage("node", 1, ends, self.sigma2, self.root, *pace, start, number)

    def closed_at(self, rounds: int) -> int:
        """`closed_after` of one number."""
        if not self.endless:
            return bisect_right(self.main.ends, rounds)
        growing = self.leaves, self.leaf, self.growth
        number = epoch_of(rounds, *growing)
        return number * self.leaves + bisect_right(epoch_ends(number, *growing), rounds)

    def began(self, number: int) -> int:
        """After how many rounds of that stage an epoch begins."""
        return epoch_start(number, self.leaves, self.leaf, self.growth)

    def closed_after(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many leaves of that stage, of all epochs, have ended after so many of its rounds."""
        if not self.endless or not rounds.size:
            return np.searchsorted(self.main.ends, rounds, side="right")
        growing, out = (self.leaves, self.leaf, self.growth), np.zeros(rounds.size, dtype=np.int64)
        for number in range(epoch_of(int(rounds.min()), *growing), epoch_of(int(rounds.max()), *growing) + 1):
            ends, here = epoch_ends(number, *growing), rounds >= epoch_start(number, *growing)
            out[here] = number * self.leaves + np.searchsorted(ends, rounds[here], side="right")
        return out

    @property
    def warm(self) -> Stage:
        """The stage that learns while ranges are counted; only a plan of private ranges has one."""
        ends = ends_of(self.range_rounds, self.leaf, self.growth)
        return Stage("warm", 0, ends, self.warm_sigma2, self.warm_root, self.warm_step, self.memory, 0.0)

    @property
    def first(self) -> int:
        """Rounds before the first release, and so before the first answer."""
        return max(self.main.ends[0], self.warm.ends[0] if self.range_rounds else 0)

    @property
    def nodes(self) -> int:
        """How many noisy sums a guide releases, at most; without an end, in its warm-up and first epoch."""
        return self.leaves + self.warm_leaves

    @property
    def load(self) -> int:
        """Λ: the largest squared column norm of that matrix."""
        return self.root.load

    @property
    def vectors(self) -> int:
        """One for two labels, else one for each."""
        return 1 if self.labels == 2 else self.labels

    @property
    def mu2(self) -> Fraction:
        """μ²: by how much one unit moves everything the guide releases, in squared deviations of its noise, at most.

        A unit moves its leaves by at most 2c·κC in total norm, those of both stages and of all epochs together, and the
        counts of ranges by at most √2·range_norm. Apart, it moves the warm-up and the counts, or the other stage; what
        the first two leave of the third is for what is kept (`kept_clip`).
        """
        if self.apart and self.range_rounds:
            first = self._moved(self.warm_root, self.warm_sigma2) + self.range_mu2
            return max(first, self._moved(self.root, self.sigma2))
        return self.labels_mu2 + self.range_mu2

    def _moved(self, root: SquareRoot, sigma2: int) -> Fraction:
        return Fraction((2 * self.unit_labels * self.clip) ** 2 * root.load, sigma2)

    @property
    def labels_mu2(self) -> Fraction:
        """The part of μ² that a unit's labels move, in whichever stage."""
        main = self._moved(self.root, self.sigma2)
        return max(main, self._moved(self.warm_root, self.warm_sigma2)) if self.range_rounds else main

    @property
    def range_mu2(self) -> Fraction:
        """The part of μ² that one row of counts for ranges moves."""
        return Fraction(2 * self.range_norm**2, self.range_sigma2) if self.range_rounds else Fraction(0)

    @property
    def record_clip(self) -> int:
        """κC of a record after the warm-up that may have been asked, and counted, in it.

        Apart, it moves no more than μ² together with the counts of its row.
        """
        return self._clipped(self.mu2 - self.range_mu2) if self.apart else self.clip

    @property
    def kept_clip(self) -> int:
        """κC of what a row of the warm-up teaches once more after it; 0 where nothing is kept.

        Apart, it moves no more than μ² together with the counts of its row and its gradient in the warm-up.
        """
        if not (self.apart and self.range_rounds):
            return 0
        return self._clipped(self.mu2 - self.range_mu2 - self._moved(self.warm_root, self.warm_sigma2))

    @property
    def loud_clip(self) -> int:
        """κC in the first leaves of the warm-up. Their rows are not kept, and labels use that part of the price.

        Apart, it moves no more than μ² together with the counts of its row.
        """
        if not self.kept_clip:
            return self.clip
        left = (self.mu2 - self.range_mu2) / self._moved(self.warm_root, self.warm_sigma2)
        return min(_SQUARED - 1, math.isqrt(math.floor(left * self.clip**2)))

    @property
    def loud_leaves(self) -> int:
        """How many leaves these are. They are few: what is taught in them is not taught again in the other stage."""
        return min(_LOUD, self.warm_leaves // _LOUD) if self.kept_clip else 0

    @property
    def loud_rounds(self) -> int:
        """The rounds of these leaves."""
        return self.warm.ends[self.loud_leaves - 1] if self.loud_leaves else 0

    def _clipped(self, mu2: Fraction) -> int:
        """The longest gradient of the main stage that moves no more than this."""
        return min(self.clip, math.isqrt(math.floor(mu2 / self._moved(self.root, self.sigma2) * self.clip**2)))

    @property
    def noises(self) -> tuple[Noise, ...]:
        """How much noise of which variance is in what one unit moves, at most.

        Without an end c gradients in each of two worlds are in at most 2c epochs.
        """
        epochs = 2 * self.unit_labels if self.endless else 1
        nodes = Noise(epochs * self.leaves * self.node_values, self.sigma2)
        if not self.range_rounds:
            return (nodes,)
        warm = Noise(self.warm_leaves * self.node_values, self.warm_sigma2)
        return nodes, warm, Noise(self.range_values, self.range_sigma2)

    def delta(self, epsilon: float, people: int = 1) -> float:
        """δ at this ε for a guide alone, rounded up; for so many units together who tell each other everything."""
        return self.price().delta(epsilon, integer(people, "people", 1))

    def epsilon(self, delta: float, people: int = 1) -> float:
        """ε at this δ for a guide alone, rounded up."""
        return self.price().epsilon(delta, integer(people, "people", 1))

    def deviation(self) -> float:
        """The rms deviation of a prefix sum's noise, in units of a gradient's norm 1."""
        return float(math.sqrt(self.sigma2 * float(np.mean(self.root.variances()))) / self.scale)

    @property
    def strength(self) -> float:
        """Labels for each deviation of the noise in the sum of their gradients, if every round brings one.

        At the end; of a guide without one at the end of its first epoch.
        """
        return self.main.ends[-1] / self.deviation()

    def together(self, epsilon: float | None = None, delta: float | None = None) -> GuidePlan:
        """The same for people, who may be in both stages and in the counts: a guide alone that keeps (ε, δ).

        Without them one beside copies, that costs no more than this one.
        """
        if not self.apart:
            return self
        how = self.rounds, self.labels, self.unit_labels, self.history
        if epsilon is not None and delta is not None:
            return self.best(epsilon, delta, *how, apart=False)
        mu2, less = float(self.mu2), 1e-14
        made = self.at(mu2, *how, apart=False)
        while made.mu2 > self.mu2:
            made, less = self.at(mu2 * (1 - less), *how, apart=False), 2 * less
        return made

    @classmethod
    def best(
        cls,
        epsilon: float,
        delta: float,
        rounds: int | None = None,
        labels: int = 2,
        unit_labels: int = 1,
        history: int = 0,
        private_ranges: bool = True,
        apart: bool = True,
    ) -> GuidePlan:
        """The plan of a guide alone that keeps (ε, δ) with the least noise; the rest by public rule.

        Without `rounds` it has no end, and learns as well as if it knew one.
        """
        epsilon, delta = check_epsilon(epsilon), check_delta(delta)
        how = rounds, labels, unit_labels, history, private_ranges, apart
        mu2 = most_mu2(epsilon, delta)
        plan, less = cls.at(mu2, *how), 1e-14
        slack = float(slack_of(plan.noises))
        if slack < epsilon / 2:
            mu2 = most_mu2(epsilon - slack, delta * math.exp(-slack / 4))
        while plan.delta(epsilon) > delta:  # what the search says is not rounded, the promise is
            plan, less = cls.at(mu2 * (1 - less), *how), 2 * less
        return plan

    @classmethod
    def at(
        cls,
        mu2: float,
        rounds: int | None = None,
        labels: int = 2,
        unit_labels: int = 1,
        history: int = 0,
        private_ranges: bool = True,
        apart: bool = True,
    ) -> GuidePlan:
        """The plan with the least noise for this μ²; without `rounds` one that has no end."""
        history = integer(history, "history", 0)
        whole = None if rounds is None else integer(rounds, "rounds", 1) + history
        if not mu2 > 0:
            raise ValueError("the guide's share of the budget must be above 0: give it more, or leave it out")
        scale, clip = SCALE, SCALE // 2 if labels == 2 else SCALE
        apart = apart and integer(unit_labels, "unit_labels", 1) == 1
        part = _APART if apart else _TOGETHER
        ranges = _range_rounds(mu2 * part, whole) if private_ranges else 0
        leaves, leaf, growth = (_EPOCH, _LONGEST, _SLOWER) if whole is None else _lengths(whole, 0 if apart else ranges)
        warm_leaves = len(ends_of(ranges, leaf, growth))
        variance = (2 * unit_labels * clip) ** 2 / mu2
        less = 1 - part if ranges else 1.0
        root, sigma2, step = _matrix(leaves, leaf * clip, variance if apart else variance / less)
        warmed = variance / (_WARMED if apart else less)
        warm, warm_sigma2, warm_step = _matrix(max(1, warm_leaves), leaf * clip, warmed)
        range_sigma2 = math.ceil(2 * scale**2 / (mu2 * part) * (1 + 1e-14)) if ranges else 1
        step, memory, momentum = _pace(step, SHORTEST if whole is None else leaf, MEMORY)
        return cls(
            rounds=rounds, history=history, labels=labels, leaves=leaves, leaf=leaf, growth=growth, clip=clip,
            scale=scale, unit_labels=unit_labels, sigma2=sigma2, factor_scale=root.scale, column_scale=root.columns,
            node_values=MOST_VALUES, range_rounds=ranges, range_norm=scale if ranges else 0,
            range_sigma2=range_sigma2, range_values=MOST_VALUES if ranges else 0, apart=bool(apart and ranges),
            warm_leaves=warm_leaves, warm_sigma2=warm_sigma2 if ranges else 1, warm_factor_scale=warm.scale,
            warm_column_scale=warm.columns, warm_step=min(warm_step, STEADY / max(SHORTEST, ranges // growth)),
            step=step, memory=memory, momentum=momentum,
        )  # fmt: skip


def _lengths(rounds: int, ranges: int) -> tuple[int, int, int]:
    """How many leaves so many rounds have, how long the longest is, and how leaves grow."""
    taught = rounds - ranges
    leaf = -(-taught // max(1, min(MOST_LEAVES, max(_FEW, taught // _LEAF), taught // SHORTEST)))
    while len(ends_of(rounds, leaf, _GROWTH)) > MOST_LEAVES:
        leaf += -(-leaf // 16)
    return len(ends_of(rounds, leaf, _GROWTH)), leaf, _GROWTH


def _pace(step: float, leaf: int, memory: float) -> tuple[float, float, float]:
    """Step, memory and momentum for leaves of at most so many rounds: `step` as the noise allows it, or shorter."""
    stable = STEADY / leaf
    momentum = min(_HEAVIEST, (step - stable) / (step + stable)) if step > _HEAVY * stable else 0.0
    return min(step, stable * (1 + momentum) / (1 - momentum)), _LONGER if momentum else memory, momentum


def _matrix(leaves: int, largest: int, variance: float) -> tuple[SquareRoot, int, float]:
    """The finest matrix whose nodes fit in 64 bits and whose noise, of so much variance a load, can be drawn.

    With that noise, and the step with which it shakes a score as it may.
    """
    for scales in _SCALES:
        root = SquareRoot(leaves, *scales)
        sigma2 = math.ceil(variance * root.load * (1 + 1e-14))
        if sigma2 <= LARGEST and root.room(largest):
            return root, sigma2, _SHAKE * SCALE / math.sqrt(sigma2 * float(np.mean(root.variances())))
    if sigma2 > LARGEST:
        raise TooNoisy("so much noise cannot be drawn: take a larger epsilon or delta, or fewer unit_labels")
    raise ValueError("a node would not fit in 64 bits: plan for fewer rounds")


def _enough(mu2: float) -> float:
    """How many rounds show enough of where numbers lie, for so much of the budget."""
    return 4 * math.sqrt(2 * _COLUMNS / mu2) / _SEEN


def _range_rounds(mu2: float, rounds: int | None) -> int:
    """How many rounds are looked at for ranges, for so much of the budget; without an end where `rounds` is None.

    0 if they would show too little: ranges that are mostly noise are worse than a map without ranges.
    """
    enough = _enough(mu2)
    shown = math.ceil(_SHOWN * enough)
    if rounds is None:
        looked = min(shown, epoch_start(1, MOST_LEAVES, _LONGEST, _SLOWER))
        return looked if 2 * looked >= _SHOWN * enough else 0
    looked = min(max(rounds // _LOOKED, min(rounds // _QUARTER, shown)), math.ceil(_PLENTY * enough))
    return looked if 2 * looked >= enough else 0
