"""How many mistakes POP makes: bounds in expectation and with probability 1 − β.

Claims and proofs: docs/proofs/certificate.md, with the hypotheses; the privacy of a plan never depends on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import hypergeom

from confide.gate import Gate

HYPOTHESES = (
    "every copy errs at most d times on the records it is taught (realizable)",
    "unit = round, so that each label goes to a fresh, uniformly random copy",
    "every round is labelled before the next one is asked",
    "an abstention counts as an error",
)


@dataclass(frozen=True)
class Certificate:
    """A bound on all mistakes of a run, with what it assumes. Proof page: docs/proofs/certificate.md."""

    expected_mistakes: float
    """E[mistakes] is at most this."""
    mistakes: int
    """With probability at least 1 − beta there are at most this many mistakes."""
    beta: float
    early_halt: float
    """The run halts before its rounds are over with at most this probability."""
    hypotheses: tuple[str, ...] = HYPOTHESES


@dataclass(frozen=True)
class Rates:
    """Worst-case rates of a gate, by the fraction e of copies that would err."""

    unsure_floor: float
    """u(0): P(unsure) when no copy errs."""
    unsure_slope: float
    """b = max (u(e) − u(0))/e."""
    wrong_floor: float
    """g(0)."""
    wrong_slope: float
    """a = max (g(e) − g(0))/e."""


def rates(gate: Gate, *, copies: int, polls: int, fallback_error: float) -> Rates:
    """Suprema over all vote patterns, many labels and abstentions included. Proof page: docs/proofs/certificate.md.

    Parameters
    ----------
    fallback_error
        Probability that the answer to an unsure round is wrong: 1 − 1/L for a coin over L labels, 1 for a constant.
    """
    table = gate.table
    wrong_in_poll = np.arange(polls + 1)
    lead = polls - 2 * wrong_in_poll
    least = table[np.minimum(np.maximum(lead, 0), table.size - 1)]  # smallest margin: all errors on one label
    most = table[np.minimum(np.abs(lead), table.size - 1)]
    unsure = least
    wrong = np.where(lead > 0, least * fallback_error, (1 - most) + most * fallback_error)
    if polls == copies:
        u, g = unsure, wrong
    else:
        u, g = _poll_average(unsure, wrong, copies, polls)
    e = np.arange(1, copies + 1) / copies
    return Rates(
        float(u[0]),
        max(0.0, float(((u[1:] - u[0]) / e).max())),
        float(g[0]),
        max(0.0, float(((g[1:] - g[0]) / e).max())),
    )


def _poll_average(
    unsure: NDArray[np.float64], wrong: NDArray[np.float64], copies: int, polls: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hypergeometric averages over the poll, for every number of erring copies."""
    u, g = np.empty(copies + 1), np.empty(copies + 1)
    inside = np.arange(polls + 1)
    for first in range(0, copies + 1, 4096):
        bad = np.arange(first, min(first + 4096, copies + 1))
        weights = hypergeom.pmf(inside[None, :], copies, bad[:, None], polls)
        weights = np.nan_to_num(weights)
        u[bad], g[bad] = weights @ unsure, weights @ wrong
    return u, g


def tail(count: float, *, budget: float, floor: float, slope: float) -> float:
    """P[events ≥ count] when events have conditional rate ≤ floor_i + slope·e_i and Σ e_i is paid from `budget` = d·k.

    `floor` is the sum of the floors over all rounds. min over φ > 0 of exp(φ·budget + floor·(e^θ−1) − θ·count) with
    e^θ = 1 + (1−e^{−φ})/slope: docs/proofs/certificate.md (a negative-binomial quantile would not be a bound).
    """
    if slope <= 0:
        return 1.0 if count <= floor else math.exp(min(0.0, count - floor - count * math.log(count / max(floor, 1e-300))))

    def exponent(log_phi: float) -> float:
        gain = -math.expm1(-math.exp(log_phi)) / slope
        return math.exp(log_phi) * budget + floor * gain - math.log1p(gain) * count

    found = minimize_scalar(exponent, bounds=(-25.0, 5.0), method="bounded", options={"xatol": 1e-6})
    return math.exp(min(0.0, float(exponent(float(found.x)))))


def quantile(probability: float, *, budget: float, floor: float, slope: float) -> int:
    """The smallest count (to 10⁻⁶ of it) with `tail` ≤ probability."""
    low, high = 0.0, max(16.0, 2 * (floor + slope * budget))
    while tail(high, budget=budget, floor=floor, slope=slope) > probability:
        low, high = high, 2 * high
    while high - low > max(0.5, 1e-6 * high):
        middle = (low + high) / 2
        if tail(middle, budget=budget, floor=floor, slope=slope) > probability:
            low = middle
        else:
            high = middle
    return math.ceil(high)


def certificate(
    rate: Rates, *, rounds: int, budget: float, unsure: int, start: float, after_halt: float, beta: float
) -> Certificate:
    """The certificate of a run of `rounds` rounds, or ValueError when it cannot have one at this β.

    Parameters
    ----------
    budget
        d·k: the errors that all copies together can make.
    unsure
        r: below this count the halting gate fires with probability `start` per round.
    after_halt
        Error rate of what answers after a halt.
    """
    early = min(1.0, rounds * start)
    full = tail(unsure, budget=budget, floor=rate.unsure_floor * rounds, slope=rate.unsure_slope)
    expected = rate.wrong_floor * rounds + rate.wrong_slope * budget + after_halt * rounds * min(1.0, early + full)
    left = beta - early - full
    if left <= 0:
        raise ValueError(
            f"the run may halt early with probability {early + full:.3g}, above beta={beta:g}; "
            "ask for a larger beta or more copies"
        )
    most = quantile(left, budget=budget, floor=rate.wrong_floor * rounds, slope=rate.wrong_slope)
    return Certificate(min(float(rounds), expected * (1 + 1e-9)), min(rounds, most), beta, min(1.0, early + full))
