"""Who chooses the leg: an adversary that asks, labels nothing, and waits for a leg in which the draw did not fire.

Such a leg is rare, and in an endless relay it comes. What is promised of the hidden round in it holds given that it
came: nothing that is bad may have happened before the unit's round. docs/proofs/relay.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from confide.planning.plan import Plan
from confide.pop.account import Account
from confide.privacy.halting import Halting
from confide.privacy.random import Random

pytestmark = pytest.mark.claim("relay.md")

WORD = 1 << 64


def goes_on(account: Account, count: int) -> int:
    """Of all 2⁶⁴ words, how many the real account goes on with, having counted so many unsure answers in its leg."""
    low, high = 0, WORD
    while low < high:
        middle = (low + high) // 2
        legs = account.legs
        assert legs is not None
        account.unsure = account._over + count
        account.spend(None, False, middle)
        swapped, account.legs, account._over, account.unsure = account.legs != legs, legs, 0, 0
        low, high = (low, middle) if swapped else (middle + 1, high)
    return low


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.tight(4.0, 1e-6, 40_000, copies=1600, unsure=1500, polls=129, guide=None, relay=True)


def leak(epsilon: float, p: Fraction, q: Fraction) -> float:
    """What is above e^ε, in both orders, of a draw that goes on with these probabilities in the two worlds."""
    over = (float(a) - math.exp(epsilon) * float(b) for one in ((p, q), (1 - p, 1 - q)) for a, b in (one, one[::-1]))
    return max(0.0, *over)


def test_a_hidden_round_is_protected_in_whichever_leg_it_is_asked(plan: Plan) -> None:
    """At every count that a leg can come to: the unit's answer was counted in one world, and not in the other."""
    account, halting = Account(plan, Random(seed=1)), plan.halting
    assert isinstance(halting, Halting)
    goes = [Fraction(goes_on(account, n), WORD) for n in range(halting.stop - 160, halting.stop + 4)]
    worst = max(leak(plan.promise.epsilon, p, q) for p, q in pairwise(goes) if p)
    assert worst <= plan.promise.delta


def test_so_many_legs_as_one_likes_do_not_pass_delta(plan: Plan) -> None:
    """The whole game, exactly: ask until a leg has survived count N; then the unit, malformed in one world."""
    account, halting = Account(plan, Random(seed=1)), plan.halting
    assert isinstance(halting, Halting) and plan.gate is not None
    unsure, last = 1 - int(plan.gate.sure[0]) / WORD, halting.visible
    assert last < plan.live  # so that a leg has rounds enough
    steps = np.array([goes_on(account, n) / WORD for n in range(last + 2)])
    reached = float(np.prod(steps[1:-1] * unsure))  # all answers unsure, one after another: a lower bound
    for legs in (1, 1_000, 33_306, 10**8, 10**12):
        here = -math.expm1(legs * math.log1p(-reached))  # at least one of them
        p, q = (here * Fraction(steps[at]) for at in (last, last + 1))  # goes on after the hidden round
        assert leak(plan.promise.epsilon, p, q) <= plan.promise.delta, f"{legs:,} legs"
