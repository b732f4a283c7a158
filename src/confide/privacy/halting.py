"""The halting gate: when the run is out of budget, decided so that the decision hides one unit's unsure answers.

Claims and proofs: docs/proofs/halting.md. The exact number of unsure answers is private; only the halt itself is seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.kernels.compile import jit
from confide.privacy.cost import ONE, UP, cost_from_excess, float_up, moment_excess, power_moments, rest_of, triples
from confide.privacy.gate import VOTE, Gate, Words, check_fraction, check_order, integers, runs_of, thresholds
from confide.privacy.tables import climb


@jit
def goes_on(word: np.uint64 | int, go: NDArray[np.uint64], count: int) -> bool:
    """The halting gate's one comparison: go on iff the uniform word lies below the table's integer at this count."""
    below: bool = np.uint64(word) < go[min(count, go.size - 1)]
    return below


class Halting:
    """A table h[0 … n_stop] of the probability to halt by the number n of unsure answers so far.

    After every live round halt iff a uniform 64-bit word is not below `go[n]`. Proof page: docs/proofs/halting.md.

    Parameters
    ----------
    go
        Integers: P(go on) = go[n]/2⁶⁴; the last entry is 0.
    shift
        G: the most unsure answers that one unit can receive, so that two worlds' counts differ by at most G.
    """

    def __init__(self, go: Sequence[int] | NDArray[np.uint64], shift: int = 1) -> None:
        shift = integer(shift, "shift", at_least=1)
        values = thresholds(go, "go thresholds")
        if len(values) < 2 * shift + 2:
            raise ValueError(f"a halting table for shift={shift} needs at least {2 * shift + 2} counts")
        if values[-1] != 0:
            raise ValueError("the last count must halt for certain: its go threshold is 0")
        self._go = np.array(values)
        self._go.setflags(write=False)
        self.shift = shift

    @classmethod
    def best(cls, *, order: int, cost: float, unsure: int, start: float, survive: float, shift: int = 1) -> Halting:
        """The steepest table of this design cost: P(halt) = `start` up to `unsure` answers, then as fast as allowed.

        Parameters
        ----------
        order, cost
            The Rényi order and what the one halt may cost.
        unsure
            r, the unsure answers the run is planned to have.
        start
            P(halt) in each round up to there: at most β/rounds for a run that shall not stop early.
        survive
            δ_h: the probability of going on past the last certified count.
        shift
            G, see above.
        """
        order, unsure = check_order(order), integer(unsure, "unsure", at_least=0)
        shift = integer(shift, "shift", at_least=1)
        if not 1e-12 <= cost * (order - 1) <= 500:
            raise ValueError(f"cost={cost} must be a positive number of nats that order {order} can bear")
        if not 2.0**-40 <= start < 0.5:
            raise ValueError(f"start={start} must lie between 2**-40 and 1/2: plan fewer rounds or a larger beta")
        if not 0 < survive < 1:
            raise ValueError(f"survive={survive} must lie strictly between 0 and 1")
        halt, go = climb(order, math.expm1((order - 1) * cost * (1 - 2e-6)), start, survive, shift)
        flat = unsure + shift
        halt = np.concatenate([np.full(flat, halt[0]), np.repeat(halt[1:], shift), [1.0]])
        go = np.concatenate([np.full(flat, go[0]), np.repeat(go[1:], shift), [0.0]])
        # The end: the first count whose survival is rare enough is n_stop − G; the G counts after it are only met by
        # the other world.
        ends = np.flatnonzero(np.cumsum(np.log(go[1:-1])) <= math.log(survive) - 1e-9)
        if not ends.size:
            raise ValueError(f"cost={cost} is too small for 64-bit steps: ask for a larger epsilon")
        rare = ends[0] + 1
        table = integers(halt, go)[: rare + shift + 1]
        table[-1] = 0
        return cls(table, shift)

    def alike(self) -> Halting:
        """A relay's table where both worlds have the same count: nothing is hidden, and surviving its end is bad."""
        other = object.__new__(Halting)
        other._go, other.shift = self._go[: self.visible + 1], 0
        return other

    def relay_cost(self, *, order: int) -> float:
        """τ_h of a relay, whose draws never read beyond n_stop − G: of every step of the table, whatever was survived.

        For G = 1. Proof page: docs/proofs/relay.md.
        """
        order = check_order(order)
        if self.shift != 1:
            raise ValueError("a relay is proved for units that receive one unsure answer: shift=1")
        go = self._go[: self.visible + 1]
        runs = go[runs_of(go)[0]]  # counts that differ by one are in one run, or in neighbouring ones
        steps = (moment_excess(p, q, order) for p, q in ((runs[1:], runs[:-1]), (runs[:-1], runs[1:])))
        worst = max((float(one.max()) for one in steps if one.size), default=0.0)
        if not math.isfinite(worst):
            raise ValueError("neighbouring counts may be the two worlds', and no cost bounds one of their steps")
        return cost_from_excess(worst, order)

    @property
    def go(self) -> NDArray[np.uint64]:
        """The shipped integers: go on iff a uniform 64-bit word is below `go[n]`."""
        return self._go

    @property
    def table(self) -> NDArray[np.float64]:
        """h[n], the probability to halt at count n, as doubles for reading."""
        return rest_of(self._go)

    @property
    def stop(self) -> int:
        """n_stop: at this count the run halts for certain."""
        return self._go.size - 1

    @property
    def visible(self) -> int:
        """n_stop − G: on the good event no more unsure answers than this are ever seen."""
        return self.stop - self.shift

    @cached_property
    def survive(self) -> float:
        """δ_h = Π (1 − h[i]) for i = 1 … n_stop − G, rounded up."""
        go, product = self._go[1 : self.visible + 1], Decimal(1)
        for first, times in zip(*runs_of(go), strict=True):
            each = UP.divide(Decimal(int(go[first])), Decimal(ONE))
            product = UP.multiply(product, _power_up(each, int(times)))
        return float_up(product)

    def cost(self, *, order: int) -> float:
        """An upper bound of τ_h, certified from the integers. Proof page: docs/proofs/halting.md."""
        order = check_order(order)
        last = self.visible
        # Tables are constant over long runs: it is enough to look at every two runs that hold counts at most G apart.
        start, lengths = runs_of(self._go)
        run = np.repeat(np.arange(start.size), lengths)
        own = np.arange(run[last - 1] + 1)
        end = np.minimum(np.concatenate([start[1:], [self._go.size]])[own] - 1, last - 1)
        first, final = run[np.maximum(start[own] - self.shift, 0)], run[end + self.shift]
        width = int((final - first).max()) + 1
        other = first[:, None] + np.arange(width)[None, :]
        p, q = np.broadcast_to(own[:, None], other.shape)[other <= final[:, None]], other[other <= final[:, None]]
        excess = moment_excess(self._go[start[p]], self._go[start[q]], order)
        at = int(excess.argmax())
        worst, place = float(excess[at]), (int(start[p[at]]), int(start[q[at]]))
        for count in range(max(0, last - self.shift), self.stop + 1):
            pair = power_moments(self._go[last : last + 1], self._go[count : count + 1], order)
            worst = max(worst, float(pair.unsure[0]) - 1.0)
        if not math.isfinite(worst):
            raise ValueError(f"counts {place[0]} and {place[1]} may be the two worlds', and no cost bounds that step")
        return cost_from_excess(worst, order)

    def moments(self, order: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds (hh, 1 − cc) for each number n of visible unsure answers and each pair of hidden ones (n + a, n + b).

        hh is −1 where a pair cannot occur. Surviving the check at n_stop − G is the bad event: there 1 − cc is 1.
        """
        width = self.shift + 1
        # Tables are constant over long runs, so few pairs of entries are distinct: bound those, then look them up.
        first, lengths = runs_of(self._go)
        run = np.repeat(np.arange(first.size), lengths)
        ends = np.minimum(np.arange(self.visible + 1)[:, None] + np.arange(width), self.stop)
        other = np.concatenate([[True], (run[ends[1:]] != run[ends[:-1]]).any(axis=1)])  # another row than before it
        other[max(0, self.visible - self.shift) :] = True
        n = np.flatnonzero(other)[:, None, None]
        p, q = n + np.arange(width)[None, :, None], n + np.arange(width)[None, None, :]
        possible = np.broadcast_to(p <= self.visible, (len(n), width, width))
        p, q = np.minimum(p, self.stop), np.minimum(q, self.stop)
        keys, where = np.unique(run[p] * (run[-1] + 1) + run[q], return_inverse=True)
        of_p, of_q = first[keys // (run[-1] + 1)], first[keys % (run[-1] + 1)]
        pair = power_moments(self._go[of_p], self._go[of_q], order)
        where = where.reshape(possible.shape)
        halt = np.where(possible, pair.unsure[where], -1.0)
        room = np.where(possible, pair.room[where], 0.0)
        room = np.where(p == self.visible, 1.0, room)
        every = np.cumsum(other) - 1
        return halt.reshape(len(halt), -1)[every], room.reshape(len(room), -1)[every]

    def fires(self, count: int, rng: Words) -> bool:
        """Whether to halt now; one comparison with one random word. `count` must never be shown to anybody."""
        if integer(count, "the count") < 0:
            raise ValueError("a count of unsure answers is never negative")
        return not goes_on(np.uint64(rng.word()), self._go, count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Halting) and self.shift == other.shift and np.array_equal(self._go, other.go)

    def __hash__(self) -> int:
        return hash((self._go.tobytes(), self.shift))

    def __repr__(self) -> str:
        return f"Halting(stops by {self.stop} unsure answers, hides a shift of {self.shift})"


def _power_up(base: Decimal, times: int) -> Decimal:
    """base^times, at least 0 and rounded up: as a product whose every step is."""
    out = Decimal(1)
    while times:
        if times & 1:
            out = UP.multiply(out, base)
        base, times = UP.multiply(base, base), times >> 1
    return out


def _gate_points(gate: Gate, order: int, poll_fraction: Fraction) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points (ρ, D) that bound every gate pair: ρ ≥ A_u/(1−A_s), D = 1 − A_s; see `joint_renyi`.

    The programme's value is monotone in D for fixed ρ, so a bucket of pairs is bounded by its largest ρ at both ends of
    its range of D. The first points are the hidden or public round (D = 0) and the round whose tops differ (D = 1).
    """
    sure, polled = gate.sure, poll_fraction != 1
    ratio, low, high = [np.ones(2)], [np.array([0.0, 1.0])], [np.array([0.0, 1.0])]
    windows = max(sure.size - VOTE, 1)
    for i, j, m in [*triples(sure, VOTE, polled), (0, 0, 0)]:
        p, q = sure[i : i + windows], sure[j : j + windows]
        pair = power_moments(p, q, order, sure[m : m + windows] if polled else None, poll_fraction)
        ratio.append(1.0 + pair.excess)
        low.append(pair.room)
        high.append(pair.room_high)
    rho, d_low, d_high = np.concatenate(ratio) * (1 + 2.0**-50), np.concatenate(low), np.concatenate(high)
    if not bool(np.isfinite(rho).all()):
        return np.array([np.inf]), np.array([1.0])
    bucket = np.ceil(-np.log2(np.maximum(d_high, 2.0**-80)) * 4).astype(np.int64)
    points_rho, points_d = [], []
    for each in np.unique(bucket):
        here = bucket == each
        points_rho += [rho[here].max()] * 2
        points_d += [max(0.0, d_low[here].min()), min(1.0, d_high[here].max())]
    return np.array(points_rho), np.array(points_d)


def joint_renyi(gate: Gate, halting: Halting, *, order: int, poll_fraction: Fraction = Fraction(1)) -> float:
    """Rényi divergence of gate and halting gate together, rounded up: never above N·τ + τ_h, usually 2 to 8 % below.

    The backward programme of docs/proofs/halting.md. Returns +inf where the tables are not bounded at this order.
    """
    order, poll_fraction = check_order(order), check_fraction(poll_fraction)
    return renyi_of(*_gate_points(gate, order, poll_fraction), halting, order=order)


def renyi_of(rho: NDArray[np.float64], d: NDArray[np.float64], halting: Halting, *, order: int) -> float:
    """The programme's value for points (ρ, D): Rényi divergence of a whole run, rounded up."""
    log_moment = backward(rho, d, *halting.moments(check_order(order)))
    if not math.isfinite(log_moment):
        return math.inf
    return max(0.0, log_moment + abs(log_moment) * 1e-14 + 1e-14) / (order - 1) * (1 + 1e-15)


@jit
def backward(
    rho: NDArray[np.float64], d: NDArray[np.float64], halt: NDArray[np.float64], room: NDArray[np.float64]
) -> float:
    """ln W(0), rounded up: each W(n) is multiplied by 1 + 2⁻⁴⁸, sixteen roundings' worth and more than it makes."""
    up = 1.0 + 2.0**-48
    w, k_next, scale = 0.0, 0.0, 0.0  # true values are w·e^scale, k_next·e^scale; k_next is K(n+1, W(n+1))
    for n in range(halt.shape[0] - 1, -1, -1):
        unit = math.exp(-scale) * up
        w = max(unit, k_next)
        for pair in range(halt.shape[1]):
            h, e = halt[n, pair] * unit, room[n, pair]
            if h < 0.0 or (pair > 0 and halt[n, pair] == halt[n, pair - 1] and e == room[n, pair - 1]):
                continue
            if e <= 0.0:
                return np.inf
            for g in range(rho.size):
                value = (rho[g] * d[g] * k_next + (1.0 - d[g]) * h) / (d[g] + (1.0 - d[g]) * e)
                w = max(w, value)
        w *= up
        k_next = 0.0
        for pair in range(halt.shape[1]):
            if halt[n, pair] >= 0.0:
                k_next = max(k_next, halt[n, pair] * unit + (1.0 - room[n, pair]) * w)
        k_next *= up
        if w > 1e100:
            w, k_next, scale = w * 1e-100 * up, k_next * 1e-100 * up, scale + math.log(1e100)
        if not math.isfinite(w):
            return np.inf
    return math.log(w) + scale
