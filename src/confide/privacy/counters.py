"""Counters under continual observation: noisy prefix sums of a stream, private as a whole.

A counter keeps a chain of *nodes*, each the noisy sum of a block of consecutive inputs. The chain's blocks
make up the whole past, and the answer is the sum of its nodes. Every step makes one new node. Privacy
depends on how many blocks an input lies in, accuracy on how many make up a past. The proofs, also
against an adversary who chooses inputs from answers, are in `docs/proofs/counters.md`.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

from scipy.optimize import minimize_scalar

from confide._checks import integer, positive_rational, probability
from confide.privacy.random import Random, discrete_laplace

__all__ = ["Counter", "SmoothCounter", "TreeCounter", "tree_error", "tree_levels"]

_FAST = 1 << 31  # terms below this keep the noise sampler compiled
_UP = 1 + 2.0**-40  # far more than the rounding of the few dozen float operations behind a bound


class Counter(Protocol):
    """What a private counter offers."""

    @property
    def epsilon(self) -> Fraction:
        """The price of all answers together, for the whole of one unit's inputs."""

    def step(self, value: int, /) -> int:
        """Take the next input, and return the noisy sum of all inputs so far."""

    def error(self, beta: float, two_sided: bool = True, at: int | None = None) -> float:
        """A bound that all answers' errors keep, together, with probability at least 1 − beta."""


class _ChainCounter(ABC):
    """The chain of nodes; a subclass says which of them a step merges, and how wide the noise is."""

    def __init__(
        self, epsilon: Fraction | float, horizon: int | None, shift: int, rng: Random | None
    ) -> None:
        self._epsilon = _exact_epsilon(epsilon)
        self._horizon = None if horizon is None else integer(horizon, "horizon", at_least=1)
        self._shift = integer(shift, "shift", at_least=1)
        self._rng = Random() if rng is None else rng
        # The steps taken, the label of the last, and for the chain's nodes their exact sums (private) and the
        # noisy sums up to their ends. Replaced as a whole, so that an interrupted step has not happened.
        self._state: tuple[int, int, tuple[int, ...], tuple[int, ...]] = (0, 0, (), (0,))

    @property
    def epsilon(self) -> Fraction:
        """The price of all answers together, for the whole of one unit's inputs."""
        return self._epsilon

    @property
    def horizon(self) -> int | None:
        """How many steps may be taken; None for any number."""
        return self._horizon

    @property
    def shift(self) -> int:
        """The largest total change that one unit can make to the inputs."""
        return self._shift

    @property
    def time(self) -> int:
        """How many steps have been taken."""
        return self._state[0]

    @abstractmethod
    def _next(self, label: int) -> tuple[int, int, Fraction]:
        """The label after `label`, how many of the chain's last nodes are merged, and the noise's scale."""

    def step(self, value: int, /) -> int:
        """Take the next input, and return the noisy sum of all inputs so far.

        Parameters
        ----------
        value
            An integer from 0 to `shift`. That one unit changes all its inputs together by at most
            `shift` is the caller's promise; the counter does not know units.
        """
        try:
            value = operator.index(value)
        except TypeError:
            raise ValueError("an input must be an integer") from None
        if not 0 <= value <= self._shift:
            raise ValueError("an input must lie between 0 and shift: clip it, or pay for a larger shift")
        time, label, sums, answers = self._state
        if time == self._horizon:
            raise ValueError("the counter has taken all the steps of its horizon: plan a longer one")
        label, merged, scale = self._next(label)
        keep = len(sums) - merged
        total = value + sum(sums[keep:])
        answer = answers[keep] + total + discrete_laplace(self._rng, scale)
        self._state = time + 1, label, (*sums[:keep], total), (*answers[: keep + 1], answer)
        return answer

    def __repr__(self) -> str:
        seeded = "" if self._rng.secure else ", insecure: seeded"
        name = type(self).__name__
        return f"{name}(epsilon={self._epsilon}, horizon={self._horizon}, shift={self._shift}{seeded})"


class TreeCounter(_ChainCounter):
    """The binary-tree counter, pure epsilon-differentially private (`docs/proofs/counters.md`).

    The chain follows the binary digits of the time: step 6 = 4 + 2 has a node for steps 1 to 4 and one for
    5 to 6. With L = ⌊log₂ horizon⌋ + 1 digits an input lies in at most L nodes, so discrete Laplace noise of
    scale shift·L/epsilon pays for it; a step takes O(log horizon) time and memory. From Dwork, Naor, Pitassi
    and Rothblum, "Differential Privacy under Continual Observation" (2010), and Chan, Shi and Song, "Private
    and Continual Release of Statistics" (2011).

    Parameters
    ----------
    epsilon
        The price of all answers together. A float counts as the smaller of its exact value and of the
        decimal number that it prints as.
    horizon
        The number of steps; None when it is not known. Then a new tree starts at steps 1, 2, 4, 8, …, and
        epsilon holds for ever.
    shift
        The largest total change (sum of absolute changes) that one unit can make to the inputs.
    rng
        The generator; by default a secure one of the counter's own.

    Examples
    --------
    >>> counter = TreeCounter(epsilon=0.5, horizon=1000)
    >>> counter.scale
    Fraction(20, 1)
    >>> noisy = [counter.step(1) for _ in range(1000)]
    >>> round(counter.error(beta=0.01))
    454
    """

    def __init__(
        self, epsilon: Fraction | float, horizon: int | None, shift: int = 1, rng: Random | None = None
    ) -> None:
        super().__init__(epsilon, horizon, shift, rng)
        # of every tree so far; a known horizon has one tree
        self._scales = [self._scale_of(1 if self._horizon is None else tree_levels(self._horizon))]

    def _scale_of(self, levels: int) -> Fraction:
        return _round_up(self._shift * levels / self._epsilon)

    @property
    def scale(self) -> Fraction:
        """The scale of the noise in every node; with an unknown horizon, of the tree now growing."""
        return self._scales[-1]

    def _next(self, label: int) -> tuple[int, int, Fraction]:
        label += 1
        place = label
        if self._horizon is None:  # tree number k = 1, 2, … holds the steps 2ᵏ⁻¹ to 2ᵏ − 1 and has k levels
            levels = label.bit_length()
            if levels > len(self._scales):
                self._scales.append(self._scale_of(levels))
            place -= (1 << (levels - 1)) - 1
        return label, (place & -place).bit_length() - 1, self._scales[-1]

    def error(self, beta: float, two_sided: bool = True, at: int | None = None) -> float:
        """A bound that the errors of all answers keep together, with probability at least 1 − beta.

        With a known horizon it is one number. Without one it grows with the step: with probability at least
        1 − beta, for *every* step t the error of its answer is within `error(beta, at=t)`.
        """
        probability(beta, "beta")
        sides = 2 if two_sided else 1
        if self._horizon is not None:
            if at is not None:
                raise ValueError("with a known horizon one bound holds for all steps: leave out `at`")
            return _union_bound(math.log(sides / beta), [(self.scale, _tree_depths(self._horizon))])
        if at is None:
            raise ValueError("without a horizon the bound grows with the step: say at which one")
        last = integer(at, "at", at_least=1).bit_length()
        # tree number k (from 1) fails with probability at most beta·6/(π²k²), and these add up to beta
        confidence = math.log(sides / beta) + math.log(math.pi**2 * last**2 / 6)
        past = [(self._scale_of(k), (0, 1)) for k in range(1, last)]  # one node each, over all their steps
        now = (self._scale_of(last), _tree_depths(1 << (last - 1)))
        return _union_bound(confidence, [*past, now])


class SmoothCounter(_ChainCounter):
    """A counter whose chains follow numbers with a fixed count of ones (`docs/proofs/counters.md`).

    Label the steps by the integers with `ones` ones and `zeros` zeros in binary, in increasing order. A past
    is then made of at most `ones` nodes and an input lies in at most `zeros` of them, so noise of scale
    shift·zeros/epsilon pays for it. No chains with these two limits reach a longer horizon. With as many ones
    as zeros this is the smooth binary mechanism of Andersson and Pagh, "A Smooth Binary Mechanism for
    Efficient Private Continual Observation" (2023), without noise on nodes that are always empty; the default
    is the pair with the smallest ones·zeros², which is better for Laplace noise.

    Parameters
    ----------
    epsilon, horizon, shift, rng
        As for `TreeCounter`, with a known horizon.
    balanced
        Take as many ones as zeros.

    Examples
    --------
    >>> counter = SmoothCounter(epsilon=0.5, horizon=1000)
    >>> counter.ones, counter.zeros, counter.scale
    (17, 3, Fraction(6, 1))
    >>> noisy = [counter.step(1) for _ in range(1000)]
    >>> round(counter.error(beta=0.01))
    186
    """

    def __init__(
        self,
        epsilon: Fraction | float,
        horizon: int,
        shift: int = 1,
        rng: Random | None = None,
        balanced: bool = False,
    ) -> None:
        horizon = integer(horizon, "horizon", at_least=1)
        super().__init__(epsilon, horizon, shift, rng)
        self._ones, self._zeros = _balanced_code(horizon) if balanced else _best_code(horizon)
        self._scale = _round_up(self._shift * self._zeros / self._epsilon)
        self._state = 0, (1 << self._ones) - 1, (), (0,)

    @property
    def ones(self) -> int:
        """The most nodes a past is made of."""
        return self._ones

    @property
    def zeros(self) -> int:
        """The most nodes an input lies in."""
        return self._zeros

    @property
    def scale(self) -> Fraction:
        """The scale of the noise in every node."""
        return self._scale

    def _next(self, label: int) -> tuple[int, int, Fraction]:
        lowest = label & -label
        carried = label + lowest
        run = (label ^ carried).bit_count() - 1  # the length of the lowest block of ones
        merged = 0 if lowest == 1 else run  # ones at the very bottom stand for empty nodes
        return carried | ((1 << (run - 1)) - 1), merged, self._scale

    def error(self, beta: float, two_sided: bool = True, at: int | None = None) -> float:
        """A bound that the errors of all answers keep together, with probability at least 1 − beta."""
        probability(beta, "beta")
        if at is not None:
            raise ValueError("with a known horizon one bound holds for all steps: leave out `at`")
        assert self._horizon is not None
        depths = _smooth_depths(self._horizon, self._ones, self._zeros)
        return _union_bound(math.log((2 if two_sided else 1) / beta), [(self._scale, depths)])


def tree_levels(horizon: int) -> int:
    """L = ⌊log₂ horizon⌋ + 1: the most nodes of the tree counter that an input lies in.

    Examples
    --------
    >>> tree_levels(1_000_000)
    20
    """
    return integer(horizon, "horizon", at_least=1).bit_length()


def tree_error(horizon: int, scale: Fraction | float, p: float) -> float:
    """The closed one-sided bound λ(p) for a tree counter (`docs/proofs/counters.md`).

    λ(p) = min over 0 < s < 1/scale of [ln(horizon/p) − L·ln(1 − s²·scale²)]/s: with probability at least
    1 − p no answer is too large by λ(p) or more, and the same for too small. It takes L nodes for every
    answer; `TreeCounter.error` counts them and is smaller.

    Examples
    --------
    >>> round(tree_error(1_000_000, Fraction(200, 3), 0.01))
    3016
    """
    levels = tree_levels(horizon)
    b = float(scale)
    if not 0 < b < math.inf:
        raise ValueError("scale must be positive and finite")
    probability(p, "p")
    confidence = math.log(horizon) - math.log(p)
    return _smallest(lambda s: (confidence - levels * math.log1p(-((s * b) ** 2))) / s, 1 / b)


def _tree_depths(horizon: int) -> list[int]:
    """How many of the steps 1 … horizon have a chain of 0, 1, 2, … nodes: their numbers of binary ones."""
    counts = [0] * (horizon.bit_length() + 1)
    above = 0
    for j in reversed(range(horizon.bit_length())):
        if horizon >> j & 1:  # the numbers that agree with horizon above digit j and have 0 there
            for more in range(j + 1):
                counts[above + more] += math.comb(j, more)
            above += 1
    counts[above] += 1  # horizon itself
    counts[0] -= 1  # step 0 gives no answer
    return counts


def _smooth_depths(horizon: int, ones: int, zeros: int) -> list[int]:
    """How many of the steps 1 … horizon have a chain of 0, 1, 2, … nodes: ones above the lowest zero."""
    counts = [0] * (ones + 1)
    above, rank = 0, horizon + 1  # the first horizon + 1 labels, by their leading digits
    for j in reversed(range(ones + zeros)):
        left = ones - above
        under = math.comb(j, left)  # labels that go on with 0 here
        taken = min(rank, under)
        if taken == under:
            for run in range(left + 1):  # a 0 at digit `run`, ones below it
                if run < j:
                    counts[above + left - run] += math.comb(j - run - 1, left - run)
            if left == j:
                counts[above] += 1  # ones down to the bottom
            rank -= under
            above += 1
            if rank == 0:
                break
    counts[0] -= 1
    return counts


def _balanced_code(horizon: int) -> tuple[int, int]:
    half = 1
    while math.comb(2 * half, half) <= horizon:
        half += 1
    return half, half


def _best_code(horizon: int) -> tuple[int, int]:
    """The (ones, zeros) with the smallest ones·zeros² among those that number `horizon` steps."""
    best = _balanced_code(horizon)
    for zeros in range(1, best[1]):
        limit = (best[0] * best[1] ** 2 - 1) // zeros**2  # more ones would be no better
        if math.comb(limit + zeros, zeros) > horizon:
            low, high = 0, limit  # comb(low + zeros, zeros) ≤ horizon < comb(high + zeros, zeros)
            while high - low > 1:
                middle = (low + high) // 2
                if math.comb(middle + zeros, zeros) > horizon:
                    high = middle
                else:
                    low = middle
            best = (high, zeros)
    return best


def _union_bound(confidence: float, parts: Sequence[tuple[Fraction, Sequence[int]]]) -> float:
    """Chernoff's bound over all steps: Σ over steps of E[exp(s·noise)] ≤ exp(s·λ − confidence).

    Each part is a scale and the numbers of steps with 0, 1, 2, … nodes of that scale; parts are independent.
    """
    logs = [(1 / float(b), [(d, math.log(n)) for d, n in enumerate(counts) if n]) for b, counts in parts]

    def bound(s: float) -> float:
        total = confidence
        for u, depths in logs:
            m = -math.log1p(-((math.sinh(s / 2) / math.sinh(u / 2)) ** 2))  # log E[exp(s·noise)]
            terms = [log_count + d * m for d, log_count in depths]
            top = max(terms)
            total += top + math.log(math.fsum(math.exp(term - top) for term in terms))
        return total / s

    return _smallest(bound, min(u for u, _ in logs))


def _smallest(bound: Callable[[float], float], top: float) -> float:
    """The least value found of `bound` on (0, top), rounded up; each of its values would be a valid bound."""
    low, high = top * 1e-9, top * (1 - 1e-9)
    found = minimize_scalar(bound, bounds=(low, high), method="bounded", options={"xatol": top * 1e-7})
    return float(found.fun) * _UP


def _exact_epsilon(epsilon: Fraction | float) -> Fraction:
    if not isinstance(epsilon, float):
        return positive_rational(epsilon, "epsilon")
    if not 0 < epsilon < math.inf:
        raise ValueError("epsilon must be positive and finite")
    return min(Fraction(epsilon), Fraction(repr(float(epsilon))))  # 0.1 is a little more than 1/10


def _round_up(scale: Fraction) -> Fraction:
    """The scale itself, or the next one above it whose terms are small enough for the compiled sampler."""
    if scale.numerator < _FAST and scale.denominator < _FAST:
        return scale
    grid = 1
    while grid < 1 << 30 and scale * grid * 2 < _FAST - 1:
        grid *= 2
    return Fraction(math.ceil(scale * grid), grid)
