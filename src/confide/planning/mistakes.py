"""How many mistakes POP makes: bounds in expectation and with probability 1 − β.

Claims and proofs: docs/proofs/certificate.md, with the hypotheses; the privacy of a plan never depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from confide._checks import Numbers, integer
from confide.arrays import Floats
from confide.privacy.gate import Gate
from confide.privacy.lean import Lean
from confide.privacy.least import least
from confide.privacy.weigh import Weights

HYPOTHESES = (
    "every copy errs at most d times on the records it is taught (realizable)",
    "unit = round, so that each label goes to a fresh, uniformly random copy",
    "every round is labelled before the next one is asked, and its label does not depend on its own answer",
    "an abstention counts as an error",
    "no round is silent",
    "the fallback, also after a halt, errs with probability at most fallback_error in every round",
)


@dataclass(frozen=True)
class Certificate(Numbers):
    """A bound on all mistakes of a run, with what it assumes. Proof page: docs/proofs/certificate.md."""

    expected_mistakes: float
    """E[mistakes] is at most this."""
    mistakes: int
    """With probability at least 1 − beta there are at most this many mistakes."""
    beta: float
    early_halt: float
    """The run halts before its rounds are over with at most this probability."""
    fallback_error: float = 1.0
    """It counts with a fallback that is wrong with at most this probability, whatever was asked before."""
    hypotheses: tuple[str, ...] = HYPOTHESES

    def covers(self, fallback: str, labels: int) -> bool:
        """Whether the bound holds with this kind of fallback: "coin", a fair one over so many labels, or any other.

        A constant label, or a model, may be wrong in every round that it answers: such a fallback is covered only by a
        certificate that counts with fallback_error = 1, as `Plan.certified(..., fallback_error=1.0)` makes it.

        Examples
        --------
        >>> half = Certificate(100.0, 120, 0.05, 0.01, fallback_error=0.5)
        >>> half.covers("coin", labels=2), half.covers("coin", labels=3), half.covers("constant", labels=2)
        (True, False, False)
        """
        error = 1 - 1 / labels if fallback == "coin" else 1.0
        return self.fallback_error >= error


@dataclass(frozen=True)
class Rates(Numbers):
    """Worst-case rates of a gate, with its lean if it has one, by the fraction e of copies that would err."""

    unsure_floor: float
    """u(0): P(unsure) when no copy errs."""
    unsure_slope: float
    """b = max (u(e) − u(0))/e."""
    wrong_floor: float
    """g(0)."""
    wrong_slope: float
    """a = max (g(e) − g(0))/e."""


def rates(gate: Gate, *, copies: int, polls: int, fallback_error: float, lean: Lean | Weights | None = None) -> Rates:
    """Suprema over all vote patterns, many labels and abstentions included. Proof page: docs/proofs/certificate.md.

    Parameters
    ----------
    fallback_error
        Probability that the answer to an unsure round is wrong: 1 − 1/L for a coin over L labels, 1 for a constant.
    lean
        What answers unsure rounds instead. Of two labels the rates are those of its tables, at the worst of all its
        offsets; of weights, which offsets may lead anywhere, any unsure answer may be wrong.
    """
    copies, polls = integer(copies, "copies", at_least=1), integer(polls, "polls", at_least=1)
    if polls > copies or not 0 <= fallback_error <= 1:
        raise ValueError("polls must not exceed copies, and fallback_error must be a probability")
    if isinstance(lean, Lean):
        unsure, wrong = _of_lean(lean, polls)
    else:
        unsure, wrong = _of_gate(gate, polls, fallback_error if lean is None else 1.0)
    bad = np.arange(copies + 1) if polls == copies else _grid(copies)
    if polls == copies:
        u, g = unsure, wrong
    else:
        weights = _poll_weights(copies, polls)
        u, g = weights @ unsure, weights @ wrong
    # u and g grow with e, so between two grid points a slope is at most (value at the upper)/(lower); neighbours where
    # the grid is complete need no such care.
    lower = np.where(np.diff(bad) == 1, bad[1:], bad[:-1] + 1) / copies
    return Rates(
        float(u[0]),
        max(0.0, float(((u[1:] - u[0]) / lower).max())),
        float(g[0]),
        max(0.0, float(((g[1:] - g[0]) / lower).max())),
    )


def _of_gate(gate: Gate, polls: int, error: float) -> tuple[Floats, Floats]:
    """P(unsure) and P(wrong), at most, by how many of the polled copies err; an unsure answer is wrong with `error`."""
    table, lead = gate.table, polls - 2 * np.arange(polls + 1)
    # With a right majority the margin is at least `lead`, with a wrong one at most −lead, wherever the errors go: take
    # the worst entry of that range, also for a table that does not fall everywhere.
    highest, lowest = np.maximum.accumulate(table[::-1])[::-1], np.minimum.accumulate(table)
    unsure = highest[np.clip(lead, 0, table.size - 1)]
    sure = 1 - lowest[np.clip(-lead, 0, table.size - 1)]
    return unsure, np.where(lead > 0, unsure * error, sure + (1 - sure) * error)


def _of_lean(lean: Lean, polls: int) -> tuple[Floats, Floats]:
    """The same for two labels: those who err may all be for the wrong one, or abstain, so any larger lead may be."""
    columns = np.clip(polls - 2 * np.arange(polls + 1), -lean.margins, lean.margins) + lean.margins
    unsure, wrong = (np.maximum.accumulate(each[::-1])[::-1][columns] for each in lean.worst())
    return unsure, wrong


def _grid(copies: int) -> NDArray[np.int64]:
    """All numbers of erring copies where they are few, else about a thousand, each at most 1 % above the one before."""
    if copies <= 2048:
        return np.arange(copies + 1)
    points = np.unique(np.round(np.geomspace(1, copies, 1200)).astype(np.int64))
    return np.concatenate([[0], points])


@lru_cache(maxsize=4)
def _poll_weights(copies: int, polls: int) -> NDArray[np.float64]:
    """Hypergeometric probabilities of each number of errors in the poll, one row for each number in the grid.

    From the ratios of neighbours, p(w+1)/p(w) = (bad − w)(polls − w)/((w + 1)(good − polls + w + 1)), then normalised.
    """
    bad, inside = _grid(copies)[:, None], np.arange(polls + 1)[None, :]
    good = copies - bad
    up, down = (bad - inside) * (polls - inside), (inside + 1) * (good - polls + inside + 1)
    possible = (inside <= bad) & (polls - inside <= good)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where((up > 0) & (down > 0), np.log(up / down), 0.0)[:, :-1]
    log = np.concatenate([np.zeros((len(bad), 1)), np.cumsum(steps, axis=1)], axis=1)
    log = np.where(possible, log, -np.inf)
    weights = np.exp(log - log.max(axis=1, keepdims=True))
    normal: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return normal


def _best(bound: Callable[[float], float], slope: float) -> float:
    """Minimum over θ of a bound that holds for every 0 < θ < ln(1 + 1/slope)."""
    top = min(700.0, math.log1p(1 / slope)) if slope > 0 else 700.0
    coarse = np.geomspace(1e-9 * top, top * (1 - 1e-12), 200)
    values = [bound(float(theta)) for theta in coarse]
    at = int(np.argmin(values))
    ends = float(coarse[max(at - 1, 0)]), float(coarse[min(at + 1, coarse.size - 1)])
    return min(values[at], least(bound, *ends))


def _exponent(theta: float, budget: float, floor: float, slope: float) -> float:
    """φ·budget + floor·(e^θ − 1), with the φ that e^θ = 1 + (1 − e^{−φ})/slope asks for."""
    gain = math.expm1(theta)
    return -math.log1p(-min(slope * gain, 1 - 1e-16)) * budget + floor * gain


def tail(count: float, *, budget: float, floor: float, slope: float) -> float:
    """P[events ≥ count] when events have conditional rate ≤ floor_i + slope·e_i and Σ e_i is paid from `budget` = d·k.

    `floor` is the sum of the floors over all rounds. min over φ > 0 of exp(φ·budget + floor·(e^θ−1) − θ·count) with
    e^θ = 1 + (1−e^{−φ})/slope: docs/proofs/certificate.md (a negative-binomial quantile would not be a bound).
    """
    least = _best(lambda theta: _exponent(theta, budget, floor, slope) - theta * count, slope)
    return math.exp(min(0.0, least))


def quantile(probability: float, *, budget: float, floor: float, slope: float) -> int:
    """A count with `tail` ≤ probability: for each θ the bound solves for the count, and the best θ is taken."""
    log = math.log(1 / probability)
    least = _best(lambda theta: (_exponent(theta, budget, floor, slope) + log) / theta, slope)
    return math.ceil(least * (1 + 1e-12))


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
    if not (0 < beta <= 1 and budget >= 0 and 0 <= after_halt <= 1 and start >= 0):
        raise ValueError("beta must lie in (0, 1], budget and start not be negative, after_halt be a probability")
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
    halts = min(1.0, early + full)
    return Certificate(min(float(rounds), expected * (1 + 1e-9)), min(rounds, most), beta, halts, after_halt)
