"""Search for the best gate and halting gate of a budget: how (ε, δ) is split, optimised and not guessed.

Nothing here is trusted: `certify` reads the finished integer tables and says what they cost. Claims and proofs:
docs/proofs/halting.md, docs/proofs/conversion.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from confide._checks import Numbers
from confide.planning.mistakes import Certificate
from confide.planning.parts import Unreachable, left_of
from confide.privacy.gate import FLOOR, LEAST_TIE_SURE, Gate
from confide.privacy.halting import Halting, backward, joint_renyi
from confide.privacy.lean import Lean, joint_lean
from confide.privacy.renyi import epsilon_from_renyi, renyi_from_epsilon, sum_up
from confide.privacy.weigh import MOST_LABELS as MANY
from confide.privacy.weigh import Weights, joint_weights

AnyLean = Lean | Weights | None

MOST_JOINT = 10
"""For larger shifts the joint programme would take long; the plain sum is certified instead."""

MOST_LEVELS, MOST_COUNTS = 200_000, 5_000_000
"""A halting table of more levels would take minutes to make, one of more counts too much memory."""

LEAST_START = 2.0**-40
"""The rarest halt that a table begins with: below it 64-bit integers are too coarse for its first steps."""


class Spending(NamedTuple):
    """What tables cost at an order, before the conversion: read from the integers, rounded up."""

    renyi: float
    """Joint Rényi divergence of gate and halting gate."""
    gate_cost: float
    """τ, the gate's cost per unsure answer."""
    halting_cost: float
    """τ_h, what the halt costs once."""
    ties: float
    """(n_stop − G)·x: a label was shown although the two worlds' tops differ."""
    survive: float
    """δ_h: the halting gate did not fire in time."""

    @property
    def bad(self) -> Fraction:
        """The probability of what may go wrong."""
        return Fraction(self.ties) + Fraction(self.survive)


class Certified(NamedTuple):
    """The (ε, δ) of a pair of tables, and what they cost."""

    epsilon: float
    delta: float
    order: int
    spent: Spending
    rest: float
    """What bad events leave of δ: it is spent in the conversion from Rényi divergence."""


def spends(
    gate: Gate, halting: Halting, *, order: int, poll_fraction: Fraction, lean: AnyLean = None, labels: int = MANY,
    relay: bool = False,
) -> Spending:  # fmt: skip
    """What these very tables cost; `gate_cost` is that of gate and lean together. A lean of two labels is the gate too.

    In a relay the halt is paid in one leg, and the votes in another, in which both worlds have the same count. Proof
    pages: docs/proofs/halting.md, docs/proofs/lean.md, docs/proofs/relay.md.
    """
    how: dict[str, Any] = {"order": order, "poll_fraction": poll_fraction}
    run: Callable[..., float]
    if isinstance(lean, Lean):
        tau, tie_sure, run = lean.cost(**how), lean.tie_sure, partial(joint_lean, lean)
    else:
        tau, tie_sure, run = gate.cost(**how), gate.tie_sure, partial(joint_renyi, gate)
    if isinstance(lean, Weights):
        tau = math.nextafter(tau + lean.cost(gate, labels=labels, **how), math.inf)
        run = partial(joint_weights, lean, gate, labels=labels)
    voted = halting.alike() if relay else halting
    joint = run(voted, **how) if halting.shift <= MOST_JOINT else math.inf
    halt = halting.relay_cost(order=order) if relay else halting.cost(order=order)
    summed = math.nextafter((voted.visible * tau + (0.0 if relay else halt)) * (1 + 1e-15), math.inf)
    ties = math.nextafter(voted.visible * tie_sure * (1 + 1e-15), math.inf)
    spent = min(joint, summed)
    return Spending(sum_up(spent, halt) if relay else spent, tau, halt, ties, halting.survive)


def certify(
    gate: Gate, halting: Halting, *, order: int, delta: float, poll_fraction: Fraction, beside: float = 0.0,
    lean: AnyLean = None, labels: int = MANY, relay: bool = False,
) -> Certified:  # fmt: skip
    """The (ε, δ) of these very tables at this total δ, with a guide of so much Rényi divergence `beside` them.

    Proof pages: docs/proofs/halting.md, docs/proofs/conversion.md, docs/proofs/guide.md.
    """
    spent = spends(gate, halting, order=order, poll_fraction=poll_fraction, lean=lean, labels=labels, relay=relay)
    rest = left_of(delta, spent.bad)
    return Certified(epsilon_from_renyi(sum_up(spent.renyi, beside), order, rest), delta, order, spent, rest)


@dataclass(frozen=True)
class Budget(Numbers):
    """What tables are to be designed for."""

    epsilon: float
    delta: float
    unsure: int
    start: float
    """P(halt) per round until `unsure` is used up."""
    shift: int
    poll_fraction: Fraction
    margins: int | None = None
    guide: float = 0.0
    """The part of the Rényi budget that is kept for a guide."""
    relay: bool = False


@dataclass(frozen=True)
class Found(Numbers):
    """What a search found: the numbers and tables of a plan, with what they cost."""

    copies: int
    polls: int
    unsure: int
    gate: Gate
    halting: Halting
    got: Certified
    silent: int = 0
    certificate: Certificate | None = None
    lean: AnyLean = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Split(Numbers):
    """How a budget is divided: the things the search moves."""

    order: int
    halting: float = 0.02
    """Share of the Rényi budget that the halting gate is designed for."""
    survive: float = 0.01
    """δ_h as a share of δ."""
    ties: float = 0.001
    """(n_stop − G)·x as a share of δ."""


def _whole_budget(budget: Budget, split: Split) -> float:
    main = budget.delta * (1 - split.survive - split.ties)
    return renyi_from_epsilon(budget.epsilon * (1 - 1e-9), split.order, main)


def renyi_budget(budget: Budget, split: Split) -> float:
    """R: the Rényi divergence of this order that the budget allows; not positive where the order is useless."""
    whole = _whole_budget(budget, split)
    return whole if budget.guide == 0 else (1 - budget.guide) * whole


def _halting_cost(budget: Budget, split: Split) -> float:
    # Beyond e^5 the table's steps stand so near to where no cost bounds them that 64-bit rounding would cross.
    return min(split.halting * renyi_budget(budget, split), 5 / (split.order - 1))


def _too_long(budget: Budget, split: Split) -> bool:
    """Whether the halting table would be too long to make; to leading order its logit climbs by √(2·cost/α) a level."""
    cost = _halting_cost(budget, split)
    if cost * (split.order - 1) < 1e-12:
        return True
    levels = math.log(1 / budget.start) / min(1.0, math.sqrt(2 * cost / split.order))
    return levels > MOST_LEVELS or levels * budget.shift + budget.unsure > MOST_COUNTS


def _halting(budget: Budget, split: Split) -> Halting:
    try:
        return Halting.best(
            order=split.order,
            cost=_halting_cost(budget, split),
            unsure=budget.unsure,
            start=budget.start,
            survive=budget.delta * split.survive,
            shift=budget.shift,
        )
    except ValueError as error:
        raise Unreachable(str(error)) from None


def beside(budget: Budget, split: Split) -> float:
    """The Rényi divergence of this order that the budget keeps for a guide."""
    return budget.guide * max(0.0, _whole_budget(budget, split))


def gate_for(budget: Budget, split: Split, tau: float, visible: int) -> Gate:
    """The steepest gate of cost τ whose `visible` near-ties keep to this split's share of δ."""
    return Gate.best(
        order=split.order,
        cost=max(1e-12, min(tau, 400 / (split.order - 1))),
        poll_fraction=budget.poll_fraction,
        margins=budget.margins,
        tie_sure=min(0.25, max(LEAST_TIE_SURE, budget.delta * split.ties / visible)),
    )


def draft(budget: Budget, split: Split) -> tuple[float, int] | None:
    """(τ, n_stop − G) that this split leaves, by the joint programme with every gate pair at its limit.

    While h is flat each unsure answer costs τ, so the programme is run from a few counts before the planned number on.
    """
    renyi = renyi_budget(budget, split)
    if renyi <= 0 or _too_long(budget, split):
        return None
    flat = min(budget.unsure, 2 * budget.shift + 20)
    skipped = budget.unsure - flat
    try:
        halting = _halting(replace(budget, unsure=flat), split)
    except Unreachable:
        return None
    if budget.shift > 3:  # the programme is slow for many hidden answers; `build` corrects this estimate
        visible = halting.visible + skipped
        return renyi * (1 - split.halting / 2) / visible, visible
    if budget.relay:
        halting, renyi = halting.alike(), renyi * (1 - split.halting)
    halt, room = halting.moments(split.order)
    goal = renyi * (split.order - 1)
    visible = halting.visible + skipped
    tau = renyi / visible
    for _ in range(8):
        ratio = math.exp((split.order - 1) * tau)
        points = np.array([1.0, 1.0, ratio, ratio]), np.array([0.0, 1.0, FLOOR / 8, 1.0])
        got = backward(points[0], points[1], halt, room) + skipped * (split.order - 1) * tau
        tau *= goal / got if math.isfinite(got) else 0.5
        if abs(goal / got - 1) < 1e-4:
            break
    return tau, visible


def sketch(budget: Budget, split: Split) -> Gate | None:
    """A drafted gate: close to what `build` makes, quickly, and not certified."""
    drafted = draft(budget, split)
    return None if drafted is None else gate_for(budget, split, *drafted)


class Built(NamedTuple):
    """Finished tables."""

    gate: Gate
    """With a lean of two labels its envelope: the largest P(unsure) over all offsets."""
    halting: Halting
    got: Certified
    lean: AnyLean = None


def build(budget: Budget, split: Split) -> Built:
    """Finished tables whose certified ε is at most the budget's, as close below as a few corrections bring it."""
    drafted = draft(budget, split)
    if drafted is None:
        raise Unreachable(f"epsilon={budget.epsilon:g} at delta={budget.delta:g} is out of reach at this split")
    tau, halting = drafted[0], _halting(budget, split)
    best: Built | None = None
    renyi, kept, share = renyi_budget(budget, split), beside(budget, split), budget.poll_fraction
    for _ in range(12):
        gate = gate_for(budget, split, tau, halting.visible)
        certified = certify(
            gate, halting, order=split.order, delta=budget.delta, poll_fraction=share, beside=kept, relay=budget.relay
        )
        if certified.epsilon <= budget.epsilon and (best is None or certified.epsilon > best.got.epsilon):
            best = Built(gate, halting, certified)
            if certified.epsilon > budget.epsilon * (1 - 2e-4):
                break
        tau *= min(4.0, renyi / certified.spent.renyi) * (1 - 2e-5)
    if best is None:
        raise Unreachable(f"no tables were found for epsilon={budget.epsilon:g} at delta={budget.delta:g}")
    return best


def reach(gate: Gate, unsure: float) -> float:
    """The margin at which P(unsure) falls to `unsure`, between the table's entries; +inf if it never does."""
    v = gate.first(unsure=unsure)
    if v is None:
        return math.inf
    if v < 3:
        return float(v)
    high, low = (math.log(p) for p in gate.unsure_at(np.array([v - 1, v])))
    return v - 2 + 2 * (high - math.log(unsure)) / (high - low)


Objective = Callable[[Gate], float]


def search(budget: Budget, objective: Objective, start: Split | None = None) -> Split:
    """The split whose drafted tables have the smallest objective: coordinate descent on a lattice of splits."""
    known: dict[Split, float] = {}

    def value(split: Split) -> float:
        if split not in known:
            gate = sketch(budget, split)
            known[split] = math.inf if gate is None else objective(gate)
        return known[split]

    def improve(split: Split, options: Iterable[Split]) -> Split:
        return min([split, *options], key=value)

    def climb(split: Split, step: Callable[[Split, int], Split]) -> Split:
        for direction in (1, -1):
            moved = step(split, direction)
            while value(moved) < value(split):
                split, moved = moved, step(moved, direction)
        return split

    def order_step(split: Split, direction: int) -> Split:
        stride = direction * max(1, split.order // 40)
        return Split(max(2, split.order + stride), split.halting, split.survive, split.ties)

    def halting_step(split: Split, direction: int) -> Split:
        return Split(split.order, min(0.5, split.halting * 1.5**direction), split.survive, split.ties)

    if start is None:
        guess = 1 + math.log(1 / budget.delta) / budget.epsilon * 1.35
        orders = sorted({max(2, round(guess * f)) for f in (0.6, 0.75, 0.9, 1, 1.15, 1.4, 1.8, 2.5)})
        start = improve(Split(orders[0]), [Split(order) for order in orders])
    split = start
    for _ in range(3):
        before = split
        split = climb(split, order_step)
        split = climb(split, halting_step)
        deltas = product((0.001, 0.003, 0.01), (1e-3, 1e-2, 3e-2))
        options = [Split(split.order, split.halting, survive, ties) for survive, ties in deltas]
        split = improve(split, options)
        if split == before:
            break
    if not math.isfinite(value(split)):
        raise Unreachable(f"epsilon={budget.epsilon:g} at delta={budget.delta:g} is out of reach of every order")
    return split
