"""The gate: a table that turns vote counts into a label or *unsure*.

Claims and proofs: docs/proofs/gate.md (what a table costs), docs/proofs/best-table.md (the best one),
docs/proofs/polls.md (asking some of the copies).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide._checks import integer
from confide.kernels.compile import jit
from confide.kernels.machine import high_product
from confide.privacy.cost import ONE, cost_from_excess, pair_excess, rest_of, worst_excess
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

MOST_ENTRIES = 50_000_000
"""A table of more entries is not made: the gate is then asked for its integers one by one."""

LEAST_UNSURE, LEAST_SURE, MOST_SURE = (np.uint64(n) for n in (2**28, 2**8, 2**64 - 2**28))
"""Of a Laplace gate: FLOOR as an integer, where P(label) stops falling, and what FLOOR leaves.

P(label) falls to 2⁻⁵⁶: so 5·10⁹ near-ties, the unsure answers of the paper's longest plans, keep within δ = 10⁻⁶.
"""


_SIGN = 1 << 63


class Rule(NamedTuple):
    """A gate as kernels see it: a table, or the numbers from which Laplace noise's integers are computed.

    Noise of scale γ has the tail ½·e^{−g/4γ} at g quarters of a vote. `high` has 2⁶³·e^{−g/4γ} at every 2^bits-th g and
    `low` has 2⁶⁴·e^{−g/4γ} below that, so that one product gives every tail: about √γ numbers for 120·γ entries.
    """

    table: NDArray[np.uint64]
    """One entry where the integers are computed."""
    centre: int
    """Four times the threshold, or −1 for a table."""
    bits: int
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


@jit
def at_margin(table: NDArray[np.uint64], margin: int) -> np.uint64:
    """What a table has at this margin: its last entry stands for all larger ones."""
    held: np.uint64 = table[min(margin, table.size - 1)]
    return held


@jit
def entry(rule: Rule, margin: int) -> np.uint64:
    """The gate's integer at this margin: the one that its table has, whether or not there is one."""
    if rule.centre < 0:
        return at_margin(rule.table, margin)
    away = 2 * margin - rule.centre
    gap = min(abs(away), (rule.high.size << rule.bits) - 1)
    low = rule.low[gap & ((1 << rule.bits) - 1)]
    tail = np.uint64(high_product(rule.high[gap >> rule.bits], low)) + np.uint64(1)
    if away > 0:
        return np.uint64(0) - max(tail, LEAST_UNSURE)
    return max(tail, LEAST_SURE)


@jit
def passes(word: np.uint64, rule: Rule, margin: int) -> bool:
    """`is_sure` for either kind of gate."""
    return bool(np.uint64(word) < entry(rule, margin))


@jit
def _entries(rule: Rule, margins: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    for i in range(margins.size):
        out[i] = entry(rule, margins[i])


@jit
def _least(rule: Rule, first: int, last: int) -> np.uint64:
    """The smallest integer at margins first … last."""
    found = entry(rule, last)
    for v in range(first, last):
        found = min(found, entry(rule, v))
    return found


@jit
def _next(rule: Rule, sure: np.uint64, v: int, last: int, step: int) -> int:
    """The first margin from v on, in steps of ±1, whose integer is at least `sure` (up) or below it (down)."""
    while 0 <= v <= last and (entry(rule, v) >= sure) == (step < 0):
        v += step
    return v


@jit
def _worst(rule: Rule, first: int, last: int, order: int) -> float:
    """The largest excess of two entries at most one vote apart, at margins from `first` to `last`."""
    worst = 0.0
    a, b = entry(rule, first), entry(rule, first + 1)
    for v in range(first + 2, last + 1):
        c = entry(rule, v)
        worst = max(worst, pair_excess(a, b, order), pair_excess(b, a, order))
        worst = max(worst, pair_excess(a, c, order), pair_excess(c, a, order))
        a, b = b, c
    return max(worst, pair_excess(a, b, order), pair_excess(b, a, order))


@lru_cache(maxsize=8)
def _tails(scale: float) -> tuple[int, NDArray[np.uint64], NDArray[np.uint64]]:
    """`bits`, `high` and `low` of a `Rule`, in decimals: the same integers on every machine."""
    exact = Context(prec=60)
    one = exact.exp(exact.divide(Decimal(-1), exact.multiply(Decimal(4), Decimal(scale))))
    gaps = math.ceil(4 * scale * 39) + 1  # ½·e^{−39} lies below both floors
    bits = gaps.bit_length() // 2

    def powers(base: Decimal, top: int, number: int) -> NDArray[np.uint64]:
        values, value = [], Decimal(1)
        for _ in range(number):
            values.append(min(int(exact.multiply(value, Decimal(top))), ONE - 1))
            value = exact.multiply(value, base)
        made = np.array(values, dtype=np.uint64)
        made.setflags(write=False)
        return made

    many = exact.power(one, 1 << bits)
    return bits, powers(many, ONE // 2, (gaps >> bits) + 1), powers(one, ONE, 1 << bits)


@lru_cache(maxsize=64)
def _laplace_excess(scale: float, centre: int, last: int, order: int) -> float:
    """The largest excess of a Laplace gate: of every pair of its integers, without a table of them."""
    bits, high, low = _tails(scale)
    first = max(0, (centre - (high.size << bits)) // 2 - VOTE)  # below it and above `last` they are all the same
    return _worst(Rule(low[:1], centre, bits, high, low), first, last, order)


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
    return bool(np.uint64(word) < at_margin(sure, margin))


def signed(word: int) -> int:
    """The 64 bits of a word as a number with a sign: a kernel takes it sooner than NumPy's own kind."""
    return (word ^ _SIGN) - _SIGN


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


_Held = tuple[NDArray[np.uint64], tuple[float, int] | None, int]
"""The integers, or the scale and four times the threshold of Laplace noise; and where entries stop changing."""


def runs_of(values: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each run of equal entries begins, and how long it is: tables are constant over long runs."""
    starts = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    return starts, np.diff(np.concatenate([starts, [values.size]]))


class Gate:
    """A table of P(unsure) by margin, held as 64-bit integers and certified as such.

    Proof page: docs/proofs/gate.md.

    Parameters
    ----------
    table
        P(unsure) for margin v = top count − second count, v = 0, 1, …; a larger margin uses the last entry.

    Examples
    --------
    >>> from confide.privacy.gate import Gate
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
        self.__setstate__((integers(unsure, 1.0 - unsure), None, unsure.size - 1))

    def __getstate__(self) -> _Held:
        return self._made, self._laplace, self._last

    def __setstate__(self, held: _Held) -> None:
        self._made, self._laplace, self._last = held

    @property
    def rule(self) -> Rule:
        """The gate as kernels see it."""
        made = self._made.view()
        made.setflags(write=False)
        if self._laplace is None:
            return Rule(made, -1, 0, made[:1], made[:1])
        scale, centre = self._laplace
        bits, high, low = _tails(scale)
        return Rule(made, centre, bits, high, low)

    @classmethod
    def from_integers(cls, sure: Sequence[int] | NDArray[np.uint64]) -> Gate:
        """The gate with these very integers: label iff a uniform 64-bit word is below `sure[v]`."""
        gate, made = cls.__new__(cls), np.array(thresholds(sure, "sure thresholds"))
        gate.__setstate__((made, None, made.size - 1))
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
        check_cost(cost, order)
        check_ties(tie_sure)
        if margins is not None:
            margins = integer(margins, "margins", at_least=2)
        levels = 2**31 - 1 if margins is None else (margins + 1) // 2
        # The integers' rounding costs a little: aim just below, so that the shipped table meets the design cost.
        excess = math.expm1((order - 1) * cost * (1 - 2e-6))
        unsure, sure = descend(order, excess, float(fraction), tie_sure, FLOOR, levels)
        doubled = np.concatenate([[0], np.repeat(np.arange(unsure.size), 2)])
        if margins is not None:
            doubled = doubled[: margins + 1]
        return cls.from_integers(integers(unsure[doubled], sure[doubled]))

    @classmethod
    def laplace(cls, *, scale: float, threshold: float, margins: int | None = None) -> Gate:
        """The paper's table: unsure iff Laplace noise of this scale is at least v/2 − threshold, both in votes.

        Its integers are computed when they are needed, in integers; `sure` makes the table of them.

        Parameters
        ----------
        scale
            γ of the paper, in votes above half (v/2).
        threshold
            Votes above half at which the answer is unsure half of the time, in whole quarters; the paper takes k/4.
        margins
            Largest margin of a table that ends early; by default it ends where P(unsure) reaches 2⁻³⁶.
        """
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"scale={scale} must be a positive number of votes")
        if not (threshold >= 0 and float(4 * threshold).is_integer()):
            raise ValueError(f"threshold={threshold} must be a number of votes ≥ 0, in whole quarters")
        gate, none, numbers = cls.__new__(cls), np.zeros(1, dtype=np.uint64), (float(scale), int(4 * threshold))
        gate.__setstate__((none, numbers, 0))
        if margins is not None:
            return cls.from_integers(gate.entries(np.arange(integer(margins, "margins", at_least=2) + 1)))
        last = max(2, math.ceil(2 * (threshold - scale * math.log(2 * FLOOR))))
        while gate.entries(np.array([last]))[0] != MOST_SURE:
            last += 1
        gate.__setstate__((none, numbers, last))
        return gate

    @property
    def laplace_numbers(self) -> tuple[float, int] | None:
        """Scale and four times the threshold of a Laplace gate: all its integers follow. None for a table."""
        return self._laplace

    @property
    def last(self) -> int:
        """From this margin on all entries are the same."""
        return self._last

    def entries(self, margins: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The integers at these margins."""
        out = np.empty(margins.size, dtype=np.uint64)
        _entries(self.rule, np.maximum(margins, 0).astype(np.int64), out)
        return out

    def unsure_at(self, margins: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(unsure) at these margins."""
        return rest_of(self.entries(margins))

    def most_unsure(self, margin: int) -> float:
        """The largest P(unsure) from this margin on."""
        least = _least(self.rule, min(max(margin, 0), self._last), self._last)
        return float(rest_of(np.array([least], dtype=np.uint64))[0])

    def first(self, *, unsure: float) -> int | None:
        """The smallest margin with P(unsure) ≤ `unsure`; None if there is none."""
        sure = _sure_at_least(unsure)
        found = self._last + 1 if sure is None else _next(self.rule, sure, 0, self._last, 1)
        return found if found <= self._last else None

    @property
    def sure(self) -> NDArray[np.uint64]:
        """The shipped integers: the label is answered iff a uniform 64-bit word is below `sure[v]`."""
        if self._laplace is None:
            return self.rule.table
        if self._last >= MOST_ENTRIES:
            raise ValueError(f"a table of {self._last:,} entries is too long to be made: ask entries(margins) for some")
        made = self.entries(np.arange(self._last + 1))
        made.setflags(write=False)
        return made

    @property
    def table(self) -> NDArray[np.float64]:
        """P(unsure) by margin, rounded to doubles for reading (the integers are what is certified)."""
        return rest_of(self.sure)

    @property
    def tie_sure(self) -> float:
        """x: the largest probability of a label at margins 0 to 2, rounded up."""
        most = self.entries(np.arange(VOTE + 1)).max()
        return float(np.nextafter(float(most) * 2.0**-64, 1.0)) if most else 0.0

    def cost(self, *, order: int, poll_fraction: float | Fraction = 1.0) -> float:
        """An upper bound of the smallest τ for which (*) holds: certified from the integers, never assumed.

        Proof pages: docs/proofs/gate.md and, for `poll_fraction` < 1, docs/proofs/polls.md. Raises if no τ will do.
        """
        order, fraction = check_order(order), check_fraction(poll_fraction)
        if self._laplace is not None and fraction == 1:
            excess = _laplace_excess(*self._laplace, self._last, order)
            if not math.isfinite(excess):
                raise ValueError(f"scale={self._laplace[0]:g} is too small for order {order}: no cost bounds its steps")
            return cost_from_excess(excess, order)
        worst, place = worst_excess(self.sure, order, VOTE, fraction)
        if not math.isfinite(float(worst)):
            p, q, _ = (int(v) for v in place)
            raise ValueError(
                f"margins {p} and {q} are one vote apart, and no cost bounds the step between their entries; "
                "smooth it there"
            )
        return cost_from_excess(float(worst), order)

    def margin(self, *, unsure: float) -> int:
        """The smallest margin from which on P(unsure) ≤ `unsure`; raises if the table never falls so low."""
        if not 0 <= unsure <= 1:
            raise ValueError(f"unsure={unsure} must be a probability")
        sure = _sure_at_least(unsure)
        first = self._last + 1 if sure is None else _next(self.rule, sure, self._last, self._last, -1) + 1
        if first > self._last:
            end = self.most_unsure(self._last)
            raise ValueError(f"the table ends at margin {self._last} with P(unsure) = {end:.3g}")
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
        return top if passes(np.uint64(rng.word()), self.rule, margin) else None

    def __eq__(self, other: object) -> bool:
        """Whether both have the same integers; one that computes them and a table are told apart."""
        if not isinstance(other, Gate) or self._laplace != other.laplace_numbers:
            return False
        return np.array_equal(self._made, other.rule.table)

    def __hash__(self) -> int:
        return hash((self._made.tobytes(), self._laplace))

    def __repr__(self) -> str:
        half = self.first(unsure=0.5)
        where = f"even odds at margin {half}" if half is not None else "always rather unsure"
        return f"Gate({self._last + 1} margins, {where}, {self.most_unsure(self._last):.2g} unsure at the end)"


def _sure_at_least(unsure: float) -> np.uint64 | None:
    """The least integer whose P(unsure), as `table` says it, is at most `unsure`; None where there is none."""
    low, high = 0, ONE
    while low < high:
        middle = (low + high) // 2
        if rest_of(np.array([middle], dtype=np.uint64))[0] <= unsure:
            high = middle
        else:
            low = middle + 1
    return np.uint64(low) if low < ONE else None


def check_order(order: int) -> int:
    """`order` as a whole Rényi order of at least 2."""
    return integer(order, "order", at_least=2)


def check_cost(cost: float, order: int) -> None:
    """Refuse a cost that no table is designed for."""
    if not 1e-15 <= cost * (order - 1) <= 500:
        raise ValueError(f"cost={cost} must be a positive number of nats, at most 500/(order − 1)")


def check_ties(tie_sure: float) -> None:
    """Refuse what is no probability of a label in a near-tie."""
    if not LEAST_TIE_SURE <= tie_sure < 0.5:
        raise ValueError(f"tie_sure={tie_sure} must lie between 2**-56 and 1/2; 1e-12 is usual")


def check_fraction(fraction: float | Fraction) -> Fraction:
    """`fraction` as a share of the eligible copies."""
    if not 0 < fraction <= 1:
        raise ValueError(f"poll_fraction={fraction} must lie in (0, 1]: polls / eligible copies")
    return Fraction(fraction)
