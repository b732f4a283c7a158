"""What an adversary reaches who asks the same question again and again: a lower bound of a gate's true loss."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import nbinom

from confide._checks import integer
from confide.privacy.gate import VOTE, Gate, check_fraction
from confide.privacy.renyi import check_delta


def _constant_query_delta(
    epsilon: NDArray[np.float64], p: NDArray[np.float64], q: NDArray[np.float64], reports: int
) -> NDArray[np.float64]:
    """Exact δ(ε) between the numbers of sure answers before the `reports`-th unsure one, P(unsure) = p against q.

    The likelihood ratio is monotone in that number, so the best test is a threshold on it.
    """
    gain, drift = reports * np.log(p / q), np.log1p((q - p) / (1 - q))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        cut = (epsilon - gain) / drift  # the loss is gain + drift·K, drift < 0 iff p > q
        few = np.floor(cut)
        below = nbinom.cdf(few, reports, p) - np.exp(epsilon) * nbinom.cdf(few, reports, q)
        above = nbinom.sf(np.floor(cut), reports, p) - np.exp(epsilon) * nbinom.sf(np.floor(cut), reports, q)
    return np.nan_to_num(np.maximum(np.where(drift < 0, below, above), 0.0), nan=0.0)


def constant_query_epsilon(
    gate: Gate, *, reports: int, delta: float, poll_fraction: float | Fraction = 1.0
) -> tuple[float, int, int]:
    """The exact ε at δ of the best adversary that always asks where the margin is v: (ε, v, v').

    A lower bound of the gate's true loss over `reports` unsure answers, so `certified / this` measures the accountant.
    With polls the third vote count is the one of v and v' that costs more.
    """
    check_delta(delta)
    reports = integer(reports, "reports", at_least=1)
    share = float(check_fraction(poll_fraction))
    table = np.concatenate([gate.table, np.repeat(gate.table[-1:], VOTE)])
    low, high = table[:-VOTE], table[VOTE:]
    best = (0.0, 0, 0)
    for first, second, towards in ((low, high, VOTE), (high, low, -VOTE)):
        for mixed in (first, second) if share < 1 else (first,):
            p, q = (1 - share) * mixed + share * first, (1 - share) * mixed + share * second
            keep = (p != q) & (p < 1) & (q < 1) & (np.minimum(p, q) > 1e-9)
            lower, upper = np.zeros(p.shape), np.full(p.shape, 64.0)
            for _ in range(40):
                middle = (lower + upper) / 2
                over = np.zeros(p.shape, dtype=bool)
                over[keep] = _constant_query_delta(middle[keep], p[keep], q[keep], reports) > delta
                lower, upper = np.where(over, middle, lower), np.where(over, upper, middle)
            at = int(np.argmax(lower))
            margin = at if towards > 0 else at + VOTE
            if lower[at] > best[0]:
                best = (float(lower[at]), margin, margin + towards)
    return best
