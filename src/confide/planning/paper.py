"""The paper's own constants, made explicit: the numbers behind `Plan.paper`.

Claims and proofs: docs/proofs/paper-plan.md, with the repairs of the paper that the code needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from confide.planning.mistakes import Certificate
from confide.privacy.counters import tree_error, tree_levels
from confide.privacy.gate import FLOOR, Gate
from confide.privacy.renyi import epsilon_from_renyi
from confide.privacy.sparse import CounterBudget, smallest_scale, threshold_cost

MOST_COPIES = 4_000_000
"""Beyond this a plan is a number in a table, not something that runs."""

HYPOTHESES = (
    "each copy errs at most d times (realizable)",
    "each label goes to a fresh, uniformly random copy before the next round, and does not depend on its own answer",
    "k ≥ 20·γ·ln(T/β), so that a poll with fewer than a fifth dissenting is answered",
)


@dataclass(frozen=True)
class PaperSize:
    """The paper's parameters for a promise."""

    copies: int
    unsure: int
    scale: float
    """γ, in votes."""
    order: int
    literal: int
    """20·γ·ln(T/β): the copies that the paper's mistake bound needs."""
    counter: CounterBudget


@dataclass(frozen=True)
class PaperCertified:
    """What the paper's mechanism costs with these tables."""

    epsilon: float
    delta: float
    order: int


def reports(copies: int, mistakes: int, beta: float) -> int:
    """r: rounds in which a fifth of the copies err, with probability 1 − β: 18(dk+1) + 6·ln(1/β), plus dk.

    The paper prints 18dk + 18 + ln(1/β); the coin game's bound solves to this. docs/proofs/paper-plan.md.
    """
    return math.ceil(18 * (mistakes * copies + 1) + 6 * math.log(1 / beta) + mistakes * copies)


def _counter(epsilon: float, rounds: int, unsure: int, beta: float, delta: float) -> CounterBudget:
    return CounterBudget.make(epsilon=epsilon, rounds=rounds, unsure=unsure, beta=beta / 3, delta=delta / 4)


@lru_cache(maxsize=64)
def _scale(epsilon: float, delta: float, visible: int) -> tuple[float, int]:
    """γ and the order for `visible` unsure answers; a vote's step of 1 in v/2 is a threshold query's step of 1."""
    # Past 3000 reports the table's cost scales as 1/γ² to four digits: search at a smaller size, then scale up.
    least = min(visible, 3_000)
    grown = math.sqrt(visible / least)
    scale, order = smallest_scale(lambda s, a: threshold_cost(s, order=a), epsilon=epsilon, delta=delta, reports=least)
    return scale * grown * 1.002, order


def size(
    epsilon: float,
    delta: float,
    rounds: int,
    mistakes: int,
    *,
    beta: float = 0.05,
    copies: int | None = None,
    unsure: int | None = None,
    counter_share: float | None = None,
) -> PaperSize:
    """The paper's parameters; k and r are mutually dependent, so k is found by iteration when it is not given."""
    shares = [counter_share] if counter_share is not None else [0.02, 0.05, 0.1, 0.2, 0.3, 0.4]
    if any(not 0 < share < 1 for share in shares):
        raise ValueError(f"counter_share={counter_share} must lie strictly between 0 and 1")

    def at(copies_now: int) -> PaperSize:
        r = reports(copies_now, mistakes, beta / 3) if unsure is None else unsure
        # γ ∝ √N/ε_gate decides which share of ε the counter should have.
        counters = {share: _counter(epsilon * share, rounds, r, beta, delta) for share in shares}
        share = min(counters, key=lambda s: math.sqrt(counters[s].visible) / (1 - s))
        counter = counters[share]
        scale, order = _scale(epsilon * (1 - share), delta / 2, counter.visible)
        literal = math.ceil(20 * scale * math.log(3 * rounds / beta))
        return PaperSize(copies_now, r, scale, order, literal, counter)

    if copies is not None:
        return at(copies)
    found = at(10_000)
    for _ in range(60):
        if found.literal <= found.copies <= found.literal * 1.01 + 2:
            return found
        found = at(math.ceil(found.literal * 1.002))
    raise ValueError("the paper's equations for k and r found no common solution; ask for a larger epsilon")


class LeakError(ValueError):
    """A number of copies at which the paper's majority would leak."""


def safe_copies(found: PaperSize, delta: float) -> int:
    """Copies at which near-ties, N·x with x = ½·e^{−(k/4 − 1)/γ}, take a quarter of δ."""
    return math.ceil(4 * (1 + found.scale * math.log(max(1.0, found.counter.visible / (2 * delta / 4)))))


def tables(found: PaperSize, *, epsilon: float, delta: float, rounds: int) -> tuple[Gate, PaperCertified]:
    """The shipped table and what it costs; refuses a k at which the paper's majority would leak."""
    if found.copies > MOST_COPIES:
        raise ValueError(
            f"the paper's constants ask for {found.copies:.3g} copies here, more than can be run; give copies= and "
            "unsure= of your own (privacy is certified, the paper's mistake bound is not), or use Plan.tight"
        )
    scale = found.scale
    for _ in range(6):
        gate = Gate.laplace(scale=scale, threshold=found.copies / 4)
        try:
            got = recertify(gate, found.counter, order=found.order, delta=delta, rounds=rounds)
        except ValueError:
            break
        if got.epsilon <= epsilon:
            return gate, got
        scale *= 1.002
    raise LeakError(
        f"copies={found.copies} would leak: in a near-tie the paper releases the exact majority, with probability "
        "above delta"
    )


def recertify(gate: Gate, counter: CounterBudget, *, order: int, delta: float, rounds: int) -> PaperCertified:
    """(ε, δ) from the shipped table and the counter's numbers alone: ε_gate + ε_c and δ' + N·x + δ_λ."""
    if counter.scale * Fraction(counter.epsilon) < tree_levels(rounds):
        raise ValueError("the counter's noise is too small for its epsilon")
    if counter.over < tree_error(rounds, counter.scale, delta / 4):
        raise ValueError("the counter's error bound is smaller than its noise allows")
    ties = math.nextafter(counter.visible * gate.tie_sure * (1 + 1e-15), math.inf)
    rest = math.nextafter(float(Fraction(delta) * 3 / 4 - Fraction(ties)), -math.inf)
    if not rest > 0:
        raise ValueError("near-ties alone have a probability above delta: the plan needs more copies")
    renyi = math.nextafter(counter.visible * gate.cost(order=order) * (1 + 1e-15), math.inf)
    epsilon = epsilon_from_renyi(renyi, order, rest) + counter.epsilon
    return PaperCertified(math.nextafter(epsilon, math.inf), delta, order)


def certificate(found: PaperSize, *, rounds: int, mistakes: int, beta: float) -> Certificate | None:
    """The paper's mistake bound, where k is large enough for it; else None."""
    # The table never falls below 2⁻³⁶, so over very many rounds even agreeing copies are unsure now and then.
    floor = rounds * FLOOR > beta / 3
    if floor or found.copies < found.literal or found.unsure < reports(found.copies, mistakes, beta / 3):
        return None
    most = min(rounds, reports(found.copies, mistakes, beta / 3))
    return Certificate(float(min(rounds, most + beta * rounds)), most, beta, beta, 1.0, HYPOTHESES)
