"""The numbers of a counter's chains: how wide the noise of a node is, and how far off the sums of nodes may be.

Claims and proofs: docs/proofs/counters.md. The counters themselves are in `confide.privacy.counters`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from confide._checks import integer, positive_rational, probability
from confide.privacy.least import least
from confide.privacy.random import FAST, fits

_UP = 1 + 2.0**-40  # far more than the rounding of the few dozen float operations behind a bound


def tree_levels(horizon: int) -> int:
    """L = ⌊log₂ horizon⌋ + 1: the most nodes of the tree counter that an input lies in.

    Examples
    --------
    >>> tree_levels(1_000_000)
    20
    """
    return integer(horizon, "horizon", at_least=1).bit_length()


def tree_scale(epsilon: Fraction | float, horizon: int, shift: int = 1) -> Fraction:
    """b = shift·L/epsilon: the scale that a tree counter of this horizon draws its noise with.

    Rounded up where its terms would be too large for the compiled sampler.

    Examples
    --------
    >>> tree_scale(0.5, 1000)
    Fraction(20, 1)
    """
    return round_up(integer(shift, "shift", at_least=1) * tree_levels(horizon) / exact_epsilon(epsilon))


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


def tree_depths(horizon: int) -> list[int]:
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


def smooth_depths(horizon: int, ones: int, zeros: int) -> list[int]:
    """How many of the steps 1 … horizon have a chain of 0, 1, 2, … nodes: a node for each one above the lowest zero."""
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


def balanced_code(horizon: int) -> tuple[int, int]:
    half = 1
    while math.comb(2 * half, half) <= horizon:
        half += 1
    return half, half


def best_code(horizon: int) -> tuple[int, int]:
    """The (ones, zeros) with the smallest ones·zeros² among those that number `horizon` steps."""
    best = balanced_code(horizon)
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


def union_bound(confidence: float, parts: Sequence[tuple[Fraction, Sequence[int]]]) -> float:
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
    return least(bound, top * 1e-9, top * (1 - 1e-9)) * _UP


def exact_epsilon(epsilon: Fraction | float) -> Fraction:
    if not isinstance(epsilon, float):
        return positive_rational(epsilon, "epsilon")
    if not 0 < epsilon < math.inf:
        raise ValueError("epsilon must be positive and finite")
    return min(Fraction(epsilon), Fraction(repr(float(epsilon))))  # 0.1 is a little more than 1/10


def round_up(scale: Fraction) -> Fraction:
    """The scale itself, or the next one above it whose terms are small enough for the compiled sampler."""
    if fits(scale):
        return scale
    grid = 1
    while grid < 1 << 30 and scale * grid * 2 < FAST - 1:
        grid *= 2
    return Fraction(math.ceil(scale * grid), grid)
