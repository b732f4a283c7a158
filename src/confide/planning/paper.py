"""The paper's own constants, made explicit: the numbers behind `Plan.paper`.

Claims and proofs: docs/proofs/paper-plan.md, with the repairs of the paper that the code needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from confide._checks import Numbers
from confide.planning.arguments import MISTAKE_BETA
from confide.planning.mistakes import Certificate
from confide.planning.parts import Price, TooRare
from confide.privacy.counters import tree_error, tree_scale
from confide.privacy.gate import Gate
from confide.privacy.sparse import CounterBudget, leading_scale, smallest_scale, threshold_cost

MOST_COPIES = 1 << 30
"""Beyond this a plan is a number in a table, not something that runs; so many run where votes are tallied."""

MOST_SEARCHED = 4_000_000
"""Beyond this the fewest copies that do not leak are estimated: each trial would look at every integer of its gate."""

WIDE = 20_000.0
"""Noise of this scale, in votes, makes tables that are too long to be searched over."""

HYPOTHESES = (
    "each copy errs at most d times (realizable)",
    "each label goes to a fresh, uniformly random copy before the next round, and does not depend on its own answer",
    "k ≥ 20·γ·ln(T/β), so that a poll with fewer than a fifth dissenting is answered",
)


@dataclass(frozen=True)
class PaperSize(Numbers):
    """The paper's parameters for a promise."""

    copies: int
    unsure: int
    scale: float
    """γ, in votes."""
    order: int
    literal: int
    """20·γ·ln(T/β): the copies that the paper's mistake bound needs."""
    counter: CounterBudget


def reports(copies: int, mistakes: int, beta: float) -> int:
    """r: rounds in which a fifth of the copies err, with probability 1 − β: 18(dk+1) + 6·ln(1/β), plus dk.

    The paper prints 18dk + 18 + ln(1/β); the coin game's bound solves to this. docs/proofs/paper-plan.md.
    """
    return math.ceil(18 * (mistakes * copies + 1) + 6 * math.log(1 / beta) + mistakes * copies)


def _scale(epsilon: float, delta: float, visible: int) -> tuple[float, int]:
    """γ and the order for `visible` unsure answers; a vote's step of 1 in v/2 is a threshold query's step of 1."""
    # Past 3000 reports the table's cost scales as 1/γ² to four digits: search at a smaller size, then scale up.
    least = min(visible, 3_000)
    scale, order = _searched_scale(epsilon, delta, least)
    return scale * math.sqrt(visible / least) * 1.002, order


@lru_cache(maxsize=64)
def _searched_scale(epsilon: float, delta: float, reports: int) -> tuple[float, int]:
    guess, order = leading_scale(epsilon, delta, reports)
    if guess > WIDE:  # a wide table is long, and its cost that of the leading order to five digits
        return guess, order
    return smallest_scale(lambda s, a: threshold_cost(s, order=a), epsilon=epsilon, delta=delta, reports=reports)


@dataclass(frozen=True)
class PaperRequest(Numbers):
    """What `Plan.paper` is asked for; see there."""

    epsilon: float
    delta: float
    rounds: int
    mistakes: int
    beta: float = MISTAKE_BETA
    copies: int | None = None
    unsure: int | None = None
    counter_share: float | None = None


def size(asked: PaperRequest) -> PaperSize:
    """The paper's parameters; k and r are mutually dependent, so k is found by iteration when it is not given."""
    epsilon, delta, rounds, beta, counter_share = (
        asked.epsilon, asked.delta, asked.rounds, asked.beta, asked.counter_share
    )  # fmt: skip
    shares = [counter_share] if counter_share is not None else [0.02, 0.05, 0.1, 0.2, 0.3, 0.4]
    if any(not 0 < share < 1 for share in shares):
        raise ValueError(f"counter_share={counter_share} must lie strictly between 0 and 1; 0.1 is usual")

    def at(copies_now: int) -> PaperSize:
        r = reports(copies_now, asked.mistakes, beta / 3) if asked.unsure is None else asked.unsure
        # γ ∝ √N/ε_gate decides which share of ε the counter should have.
        how: dict[str, Any] = {"rounds": rounds, "unsure": r, "beta": beta / 3, "delta": delta / 4}
        counters = {share: CounterBudget.make(epsilon=epsilon * share, **how) for share in shares}
        share = min(counters, key=lambda s: math.sqrt(counters[s].visible) / (1 - s))
        counter = counters[share]
        try:
            scale, order = _scale(epsilon * (1 - share), delta / 2, counter.visible)
        except ValueError:
            raise ValueError(
                f"epsilon={epsilon:g} at delta={delta:g} is out of reach of the paper's noise; ask for a larger epsilon"
            ) from None
        literal = math.ceil(20 * scale * math.log(3 * rounds / beta))
        return PaperSize(copies_now, r, scale, order, literal, counter)

    if asked.copies is not None:
        return at(asked.copies)
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


def tables(found: PaperSize, *, epsilon: float, delta: float, rounds: int) -> tuple[Gate, float]:
    """The shipped table and the ε that it costs; refuses a k at which the paper's majority would leak."""
    if found.copies > MOST_COPIES:
        raise ValueError(
            f"the paper's constants ask for {found.copies:.3g} copies here, more than can be run; give copies= and "
            "unsure= of your own (privacy is certified, the paper's mistake bound is not), or use Plan.tight"
        )
    scale, hopeless = found.scale, found.copies < safe_copies(found, 4 * delta)
    for _ in range(0 if hopeless else 6):
        gate = Gate.laplace(scale=scale, threshold=found.copies / 4)
        try:
            got = recertify(gate, found.counter, order=found.order, delta=delta, rounds=rounds)
        except ValueError:
            break
        if got <= epsilon:
            return gate, got
        scale *= max(1.002, got / epsilon)
    raise LeakError(
        f"copies={found.copies} would leak: in a near-tie the paper releases the exact majority, with probability "
        "above delta"
    )


def best(asked: PaperRequest) -> tuple[PaperSize, Gate, float]:
    """The paper's plan and its ε, or ValueError with the fewest copies that do not leak."""
    found = size(asked)
    try:
        return found, *tables(found, epsilon=asked.epsilon, delta=asked.delta, rounds=asked.rounds)
    except LeakError as error:
        enough = _fewest_copies(asked, found)
        promise = f"({asked.epsilon:g}, {asked.delta:g})"
        raise ValueError(f"{error}; copies={enough} is enough for {promise}") from None


def _fewest_copies(asked: PaperRequest, found: PaperSize) -> int:
    """The fewest copies, to one in a hundred, whose majority does not leak."""

    def sizes(k: int) -> PaperSize:
        return size(replace(asked, copies=k))

    def keeps(k: int) -> bool:
        try:
            tables(sizes(k), epsilon=asked.epsilon, delta=asked.delta, rounds=asked.rounds)
        except LeakError:
            return False
        return True

    low, high = found.copies, safe_copies(found, asked.delta)
    if high > MOST_SEARCHED:
        raise ValueError(
            f"copies={found.copies} would leak: about {high:.2g} would not; give so many, ask for a larger epsilon, or "
            "use Plan.tight"
        )
    while not keeps(high):  # r, and so γ, may grow with k
        low, high = high, max(high + 1, safe_copies(sizes(high), asked.delta))
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def recertify(gate: Gate, counter: CounterBudget, *, order: int, delta: float, rounds: int) -> float:
    """ε at this δ from the shipped table and the counter's numbers alone: ε_gate + ε_c and δ' + N·x + δ_λ."""
    check_counter(counter, delta=delta, rounds=rounds)
    try:
        return price(gate, counter, order).converted(delta, order)
    except TooRare:
        raise ValueError("near-ties alone have a probability above delta: the plan needs more copies") from None


def check_counter(counter: CounterBudget, *, delta: float, rounds: int) -> None:
    """Refuse a counter whose numbers do not belong together, or to these rounds, or to a quarter of δ."""
    if counter.scale != tree_scale(counter.noise_epsilon, rounds):
        raise ValueError("the counter's noise is not that of its epsilon and these rounds: do not run this plan")
    if not (counter.unsure >= 1 and 0 <= counter.late < math.inf):
        raise ValueError("the counter's halt must come after an unsure answer or more: do not run this plan")
    if not _at_least(counter.over, tree_error(rounds, counter.scale, delta / 4)):
        raise ValueError("the counter's error bound is smaller than its noise allows: do not run this plan")


def price(gate: Gate, counter: CounterBudget, order: int) -> Price:
    """What the gate costs for all reports that the counter lets through but for a quarter of δ, and the counter's ε."""
    ties = math.nextafter(counter.visible * gate.tie_sure * (1 + 1e-15), math.inf)

    def curve(order: int) -> float:
        return math.nextafter(counter.visible * gate.cost(order=order) * (1 + 1e-15), math.inf)

    return Price(curve=curve, bad=Fraction(ties), part_of_delta=Fraction(1, 4), pure=counter.epsilon, order=order)


def _at_least(stated: float, found: float) -> bool:
    """Whether a stated error bound is no smaller than the one found now, up to the last digits of two searches.

    `found` is a bound times 1 + 2⁻⁴⁰, so that what is allowed here is still one.
    """
    return found * (1 - 2.0**-42) <= stated < math.inf


def check_delay(counter: CounterBudget, *, rounds: int, beta: float) -> None:
    """Refuse a counter that halts before `unsure` answers with a probability above β/3."""
    if not _at_least(counter.late, tree_error(rounds, counter.scale, beta / 3)):
        raise ValueError(
            "the counter halts before its unsure answers are used up more often than beta says: do not believe it"
        )


def bounded(gate: Gate, *, copies: int, unsure: int, mistakes: int, rounds: int, beta: float) -> Certificate | None:
    """Theorem 12's bound, where these very integers keep its two conditions; else None.

    The counter's delay is its third part: `check_delay`.
    """
    # A table need not fall everywhere, and beyond its end the last entry stands.
    most = reports(copies, mistakes, beta / 3)
    if unsure < most or not rounds * gate.most_unsure(-(-3 * copies // 5)) <= beta / 3:
        return None
    most = min(rounds, most)
    return Certificate(float(min(rounds, most + beta * rounds)), most, beta, beta, 1.0, HYPOTHESES)
