"""The gate: a table that turns vote counts into a label or *unsure*.

Claims and proofs: docs/proofs/gate.md (what a table costs), docs/proofs/best-table.md (the best one),
docs/proofs/polls.md (asking some of the copies).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide._jit import jit
from confide.bounds import ONE, cost_from_excess, worst_excess

FLOOR = 2.0**-36
"""Tables stop falling here: below it 64-bit rounding would cost more privacy than the last unsure answers are worth."""

TIE_SURE = 2.0**-40
"""Default probability of answering a label although the margin is 2 or less (the bad event of docs/proofs/gate.md)."""

SURE_FLOOR = 2.0**-50
"""Where a noise table's probability of a label stops falling, for the same reason as FLOOR."""

VOTE = 2
"""One changed vote moves a margin by at most this much."""


class Words(Protocol):
    """Anything that gives uniform 64-bit words, such as `confide.randomness.Random`."""

    def word(self) -> int: ...


def integers(unsure: NDArray[np.float64], sure: NDArray[np.float64]) -> NDArray[np.uint64]:
    """⌊sure·2⁶⁴⌋, read from whichever of the two complementary probabilities is the more precise; at most 2⁶⁴ − 1."""
    small = np.ceil(np.minimum(unsure, 0.5) * float(ONE))
    from_unsure = np.uint64(0) - np.maximum(small, 1.0).astype(np.uint64)
    from_sure = np.floor(np.minimum(sure, 0.5) * float(ONE)).astype(np.uint64)
    return np.where(unsure <= 0.5, from_unsure, from_sure)


class Gate:
    """A table of P(unsure) by margin, held as 64-bit integers and certified as such.

    Proof page: docs/proofs/gate.md.

    Parameters
    ----------
    table
        P(unsure) for margin v = top count − second count, v = 0, 1, …; a larger margin uses the last entry.

    Examples
    --------
    >>> from confide import Gate
    >>> gate = Gate.best(order=30, cost=0.001)
    >>> gate.cost(order=30) <= 0.001
    True
    >>> gate.margin(unsure=0.5) < gate.margin(unsure=1e-3)
    True

    A table that leaps is refused, with the place:

    >>> Gate([1.0, 1.0, 1.0, 1.0, 0.0]).cost(order=2)
    Traceback (most recent call last):
    ...
    ValueError: margins 4 and 2 are one vote apart, and no cost bounds the step between their entries; smooth it there
    """

    def __init__(self, table: ArrayLike) -> None:
        unsure = np.asarray(table, dtype=np.float64)
        if unsure.ndim != 1 or unsure.size < 1:
            raise ValueError("a gate's table is a non-empty one-dimensional list of probabilities by margin")
        if not bool(np.all((unsure >= 0) & (unsure <= 1))):
            raise ValueError("a gate's table holds probabilities: every entry must lie in [0, 1]")
        self._set(integers(unsure, 1.0 - unsure))

    def _set(self, sure: NDArray[np.uint64]) -> None:
        self._sure = np.array(sure, dtype=np.uint64)
        self._sure.setflags(write=False)

    @classmethod
    def from_integers(cls, sure: Sequence[int] | NDArray[np.uint64]) -> Gate:
        """The gate with these very integers: label iff a uniform 64-bit word is below `sure[v]`."""
        values = [int(s) for s in sure]
        if not values or min(values) < 0 or max(values) >= ONE:
            raise ValueError("sure thresholds are integers from 0 to 2**64 − 1, one per margin, at least one")
        gate = cls.__new__(cls)
        gate._set(np.array(values, dtype=np.uint64))
        return gate

    @classmethod
    def best(
        cls,
        *,
        order: int,
        cost: float,
        poll_fraction: float | Fraction = 1.0,
        margins: int | None = None,
        tie_sure: float = TIE_SURE,
    ) -> Gate:
        """The steepest table whose cost is `cost` per unsure answer (docs/proofs/best-table.md).

        Parameters
        ----------
        order
            The integer Rényi order α ≥ 2.
        cost
            The design τ; the shipped integers' own cost is `gate.cost(...)`.
        poll_fraction
            q = polls / eligible copies (docs/proofs/polls.md).
        margins
            Largest margin of the table; by default it ends where P(unsure) reaches 2⁻³⁶.
        tie_sure
            x, the probability of a label at margins 0 to 2.
        """
        order, fraction = _check_order(order), _check_fraction(poll_fraction)
        if not (cost > 0 and math.isfinite(cost)):
            raise ValueError(f"cost={cost} must be a positive number of nats per unsure answer")
        if not 0 < tie_sure < 0.5:
            raise ValueError(f"tie_sure={tie_sure} must lie between 0 and 1/2; 1e-12 is usual")
        if margins is not None and margins < 2:
            raise ValueError("margins must be at least 2, since ties end there")
        levels = 2**31 - 1 if margins is None else (margins + 1) // 2
        # The integers' rounding costs a little: aim just below, so that the shipped table meets the design cost.
        excess = math.expm1((order - 1) * cost * (1 - 2e-6))
        unsure, sure = _descend(order, excess, float(fraction), tie_sure, FLOOR, levels)
        doubled = np.concatenate([[0], np.repeat(np.arange(unsure.size), 2)])
        if margins is not None:
            doubled = doubled[: margins + 1]
        gate = cls.__new__(cls)
        gate._set(integers(unsure[doubled], sure[doubled]))
        return gate

    @classmethod
    def laplace(cls, *, scale: float, threshold: float, margins: int | None = None) -> Gate:
        """The paper's table: unsure iff Laplace noise of this scale is at least v/2 − threshold, both in votes.

        Parameters
        ----------
        scale
            γ of the paper, in votes above half (v/2).
        threshold
            Votes above half at which the answer is unsure half of the time; the paper takes k/4.
        margins
            Largest margin of the table; by default it ends where P(unsure) reaches 2⁻³⁶.
        """
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"scale={scale} must be a positive number of votes")
        if not (threshold >= 0 and math.isfinite(threshold)):
            raise ValueError(f"threshold={threshold} must be a number of votes ≥ 0")
        if margins is None:
            margins = max(2, math.ceil(2 * (threshold - scale * math.log(2 * FLOOR))))
        distance = (np.arange(margins + 1) / 2.0 - threshold) / scale
        floor = np.where(distance > 0, FLOOR, SURE_FLOOR)
        tail = np.maximum(0.5 * np.exp(-np.abs(distance)), floor)
        gate = cls.__new__(cls)
        gate._set(integers(np.where(distance > 0, tail, 1.0 - tail), np.where(distance > 0, 1.0 - tail, tail)))
        return gate

    @property
    def sure(self) -> NDArray[np.uint64]:
        """The shipped integers: the label is answered iff a uniform 64-bit word is below `sure[v]`."""
        return self._sure

    @property
    def table(self) -> NDArray[np.float64]:
        """P(unsure) by margin, rounded to doubles for reading (the integers are what is certified)."""
        sure = self._sure
        return np.where(sure == 0, 1.0, (np.uint64(0) - sure).astype(np.float64) * 2.0**-64)

    @property
    def tie_sure(self) -> float:
        """x: the largest probability of a label at margins 0 to 2, rounded up."""
        return float(np.nextafter(float(self._sure[:3].max()) * 2.0**-64, 1.0)) if self._sure[:3].max() else 0.0

    def cost(self, *, order: int, poll_fraction: float | Fraction = 1.0) -> float:
        """An upper bound of the smallest τ for which (*) holds: certified from the integers, never assumed.

        Proof pages: docs/proofs/gate.md and, for `poll_fraction` < 1, docs/proofs/polls.md. Raises if no τ will do.
        """
        order, fraction = _check_order(order), _check_fraction(poll_fraction)
        excess, place = worst_excess(self._sure, order, VOTE, fraction)
        if not math.isfinite(float(excess)):
            p, q, _ = (int(v) for v in place)
            raise ValueError(
                f"margins {p} and {q} are one vote apart, and no cost bounds the step between their entries; "
                "smooth it there"
            )
        return cost_from_excess(float(excess), order)

    def margin(self, *, unsure: float) -> int:
        """The smallest margin from which on P(unsure) ≤ `unsure`; raises if the table never falls so low."""
        above = np.flatnonzero(self.table > unsure)
        first = int(above[-1]) + 1 if above.size else 0
        if first >= self._sure.size:
            raise ValueError(f"the table ends at margin {self._sure.size - 1} with P(unsure) = {self.table[-1]:.3g}")
        return first

    def decide(self, counts: ArrayLike, rng: Words) -> int | None:
        """The top label's index, or None for unsure; one comparison with one random word, whatever the counts.

        A tie for the top is a margin of 0 and goes to the smallest index.
        """
        votes = np.asarray(counts)
        if votes.ndim != 1 or votes.size < 2:
            raise ValueError("counts is one number of votes per label, for at least two labels")
        if votes.dtype.kind not in "iu" or bool((votes < 0).any()):
            raise ValueError("counts are whole numbers of votes, none negative")
        top, margin = lead(votes.astype(np.int64))
        return top if rng.word() < int(self._sure[min(margin, self._sure.size - 1)]) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gate) and np.array_equal(self._sure, other._sure)

    def __hash__(self) -> int:
        return hash(self._sure.tobytes())

    def __repr__(self) -> str:
        table = self.table
        half = int(np.argmax(table <= 0.5)) if bool((table <= 0.5).any()) else None
        where = f"even odds at margin {half}" if half is not None else "always rather unsure"
        return f"Gate({self._sure.size} margins, {where}, {table[-1]:.2g} unsure at the end)"


def _check_order(order: int) -> int:
    if isinstance(order, bool) or int(order) != order or order < 2:
        raise ValueError(f"order={order} must be a whole Rényi order of at least 2")
    return int(order)


def _check_fraction(fraction: float | Fraction) -> Fraction:
    if not (0 < fraction <= 1):
        raise ValueError(f"poll_fraction={fraction} must lie in (0, 1]: polls / eligible copies")
    return Fraction(fraction)


@jit
def lead(counts: NDArray[np.int64]) -> tuple[int, int]:
    """(top label, margin): every count is looked at once, in the same way whatever it is; ties go to the first."""
    top, first, second = 0, counts[0], np.int64(-1)
    for label in range(1, counts.size):
        count = counts[label]
        above = count > first
        second = max(second, min(count, first))
        top = label if above else top
        first = max(first, count)
    return top, first - second


@jit
def _excess(p_u: float, p_s: float, q_u: float, q_s: float, fall: float, order: int) -> float:
    """e^c − 1 that one ordered pair needs; `fall` = P(unsure) − Q(unsure). For design: bounds.py certifies."""
    ratio_s, ratio_u = -fall / q_s, fall / q_u
    if ratio_s <= -1.0 or ratio_u <= -1.0:
        return np.inf
    gain_s = p_s * math.expm1((order - 1) * math.log1p(ratio_s))
    gain_u = p_u * math.expm1((order - 1) * math.log1p(ratio_u))
    room = p_u - gain_s
    if room <= 0.0:
        return np.inf
    return (gain_u + gain_s) / room


@jit
def _step_excess(theta: float, delta: float, order: int, q: float) -> float:
    """Largest excess of the step from logit θ to θ − δ, both orders, both mixtures."""
    a_u, a_s = 1.0 / (1.0 + math.exp(-theta)), 1.0 / (1.0 + math.exp(theta))
    b_u, b_s = 1.0 / (1.0 + math.exp(delta - theta)), 1.0 / (1.0 + math.exp(theta - delta))
    fall = a_u * b_s * -math.expm1(-delta) * q
    worst = 0.0
    for mixed in range(2 if q < 1.0 else 1):
        m_u, m_s = (1.0 - q) * (a_u if mixed == 0 else b_u), (1.0 - q) * (a_s if mixed == 0 else b_s)
        x_u, x_s, y_u, y_s = m_u + q * a_u, m_s + q * a_s, m_u + q * b_u, m_s + q * b_s
        worst = max(worst, _excess(x_u, x_s, y_u, y_s, fall, order), _excess(y_u, y_s, x_u, x_s, -fall, order))
    return worst


@jit
def widest_step(theta: float, guess: float, order: int, q: float, target: float, up: bool) -> float:
    """The widest allowed step of the logit down from θ (or up), by bracketing and false position in ln δ."""
    low, f_low, high, f_high = 0.0, 0.0, 0.0, 0.0  # f = ln(excess/target): ≤ 0 allowed, > 0 not
    step = guess
    for _ in range(200):
        excess = _step_excess(theta + step if up else theta, step, order, q)
        f = math.log(excess / target) if excess > 0.0 else -800.0
        if f <= 0.0:
            low, f_low = step, f
            if f > -1e-8:
                break
        else:
            high, f_high = step, f
        if high == 0.0:
            if low > 64.0:
                break
            step = low * 1.1
        elif low == 0.0:
            step = high / 1.1
        elif high - low < 1e-10 * high:
            break
        elif f_high > 1.0 or f_low < -1.0:
            step = 0.5 * (low + high)
        else:
            share = (0.0 - f_low) / (f_high - f_low)
            step = low + (high - low) * min(max(share * 0.999, 1e-3), 1.0 - 1e-3)
    return low


@jit
def _descend(
    order: int, target: float, q: float, tie_sure: float, floor: float, most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Greedy descent in logit space: each level is the lowest that the level before allows."""
    size = 1024
    unsure, sure = np.empty(size), np.empty(size)
    theta = math.log1p(-tie_sure) - math.log(tie_sure)
    lowest = math.log(floor) - math.log1p(-floor)
    unsure[0], sure[0] = 1.0 / (1.0 + math.exp(-theta)), 1.0 / (1.0 + math.exp(theta))
    count, delta = 1, 1.0
    while count < most and theta > lowest:
        delta = widest_step(theta, delta, order, q, target, False)
        theta = max(theta - delta, lowest)
        if count == size:
            unsure, sure = np.append(unsure, np.empty(size)), np.append(sure, np.empty(size))
            size *= 2
        unsure[count], sure[count] = 1.0 / (1.0 + math.exp(-theta)), 1.0 / (1.0 + math.exp(theta))
        count += 1
    return unsure[:count], sure[:count]
