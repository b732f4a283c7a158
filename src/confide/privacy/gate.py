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

from confide._checks import integer
from confide.kernels.compile import jit
from confide.privacy.cost import ONE, cost_from_excess, worst_excess
from confide.privacy.tables import descend

FLOOR = 2.0**-36
"""Tables stop falling here: below it 64-bit rounding would cost more privacy than the last unsure answers are worth."""

TIE_SURE = 2.0**-40
"""Default probability of answering a label although the margin is 2 or less (the bad event of docs/proofs/gate.md)."""

LEAST_TIE_SURE = 2.0**-56
"""Below this 64-bit integers are too coarse for the first steps of a table."""

SURE_FLOOR = 2.0**-50
"""Where a noise table's probability of a label stops falling, for the same reason as FLOOR."""

VOTE = 2
"""One changed vote moves a margin by at most this much."""


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
def is_sure(word: np.uint64, sure: NDArray[np.uint64], margin: int) -> bool:
    """The gate's one comparison: sure iff the uniform word lies below the table's integer at this margin."""
    below: bool = np.uint64(word) < sure[min(margin, sure.size - 1)]
    return below


class Words(Protocol):
    """Anything that gives uniform 64-bit words, such as `confide.privacy.random.Random`."""

    def word(self) -> int: ...


def integers(unsure: NDArray[np.float64], sure: NDArray[np.float64]) -> NDArray[np.uint64]:
    """⌊sure·2⁶⁴⌋, read from whichever of the two complementary probabilities is the more precise; at most 2⁶⁴ − 1."""
    small = np.ceil(np.minimum(unsure, 0.5) * float(ONE))
    from_unsure = np.uint64(0) - np.maximum(small, 1.0).astype(np.uint64)
    from_sure = np.floor(np.minimum(sure, 0.5) * float(ONE)).astype(np.uint64)
    return np.where(unsure <= 0.5, from_unsure, from_sure)


def thresholds(values: Sequence[int] | NDArray[np.uint64], name: str) -> NDArray[np.uint64]:
    """The values as 64-bit integers, none of them rounded on the way."""
    array = np.asarray(values)
    if array.ndim == 1 and array.size and array.dtype == np.uint64:
        return array
    kinds = {type(value) for value in values} if array.ndim == 1 else {float}
    whole = all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds)
    if not (array.size and whole and min(values) >= 0 and max(values) < ONE):
        raise ValueError(f"{name} are integers from 0 to 2**64 − 1, in a list that is not empty")
    return np.array([int(value) for value in values], dtype=np.uint64)


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
        gate = cls.__new__(cls)
        gate._set(thresholds(sure, "sure thresholds"))
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
        order, fraction = check_order(order), check_fraction(poll_fraction)
        if not 1e-15 <= cost * (order - 1) <= 500:
            raise ValueError(f"cost={cost} must be a positive number of nats, at most 500/(order − 1)")
        if not LEAST_TIE_SURE <= tie_sure < 0.5:
            raise ValueError(f"tie_sure={tie_sure} must lie between 2**-56 and 1/2; 1e-12 is usual")
        if margins is not None:
            margins = integer(margins, "margins", at_least=2)
        levels = 2**31 - 1 if margins is None else (margins + 1) // 2
        # The integers' rounding costs a little: aim just below, so that the shipped table meets the design cost.
        excess = math.expm1((order - 1) * cost * (1 - 2e-6))
        unsure, sure = descend(order, excess, float(fraction), tie_sure, FLOOR, levels)
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
        margins = integer(margins, "margins", at_least=2)
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
        order, fraction = check_order(order), check_fraction(poll_fraction)
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
        if not 0 <= unsure <= 1:
            raise ValueError(f"unsure={unsure} must be a probability")
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
        top, margin = lead((votes - votes.min()).astype(np.int64))
        return top if is_sure(np.uint64(rng.word()), self._sure, margin) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gate) and np.array_equal(self._sure, other._sure)

    def __hash__(self) -> int:
        return hash(self._sure.tobytes())

    def __repr__(self) -> str:
        table = self.table
        half = int(np.argmax(table <= 0.5)) if bool((table <= 0.5).any()) else None
        where = f"even odds at margin {half}" if half is not None else "always rather unsure"
        return f"Gate({self._sure.size} margins, {where}, {table[-1]:.2g} unsure at the end)"


def check_order(order: int) -> int:
    """`order` as a whole Rényi order of at least 2."""
    return integer(order, "order", at_least=2)


def check_fraction(fraction: float | Fraction) -> Fraction:
    """`fraction` as a share of the eligible copies."""
    if not 0 < fraction <= 1:
        raise ValueError(f"poll_fraction={fraction} must lie in (0, 1]: polls / eligible copies")
    return Fraction(fraction)
