"""Theorem 13″ by enumeration: an adversary over periods and epochs, and caps that are kept wrongly on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from confide.planning.guided import GuidePlan
from confide.planning.periods import Periods, together
from confide.privacy.exact import hockey_stick
from tests.proofs.test_exact import with_slack

pytestmark = pytest.mark.claim("guide.md", "exact.md")

S2, CLIP = 36, 2  # the noise's variance, and κC
LEAF, PER, ROUNDS = 2, 3, 8  # an epoch is one leaf of two rounds; the second has rounds of the first two periods
REACH = 7 * math.isqrt(S2)
OUTCOMES = np.arange(-REACH, REACH + 1)
LAW = np.exp(-(OUTCOMES**2) / (2 * S2)) / np.exp(-(OUTCOMES**2) / (2 * S2)).sum()
SPAN = 900  # e^{±12.5}
PLACES = np.arange(-SPAN, SPAN + 1)

Admit = Callable[[int, int], int | None]
"""What a person's count becomes by a label in a round; None where it is not learned."""


def right(most: int, labels: int = 1) -> Admit:
    """The code's own rule."""
    periods = Periods(PER, most, labels)
    return lambda count, number: periods.one_more(count, periods.at(number))


@cache
def reached(shift: int) -> np.ndarray:
    """Where the likelihoods' quotient goes, from each place, by each outcome of a node whose centres differ so much."""
    places = PLACES[None, :] - shift * shift - 2 * OUTCOMES[:, None] * shift
    return (np.clip(places, -SPAN, SPAN) + SPAN).astype(np.int32)


def node(value: np.ndarray, shift: int) -> np.ndarray:
    """The value before such a node: over every outcome. Noise is even, so that the sign of the shift is no matter."""
    return value if shift == 0 else LAW @ value[reached(shift)]


def best(epsilon: float, admit: Admit, hidden: Callable[[int], bool]) -> float:
    """sup Σ (P − e^ε·Q)⁺ over adversaries who choose what the person brings, round by round, from all they saw.

    In `hidden` rounds each world brings what it likes: nothing, or a gradient of either sign. In all others both bring
    the same, and whether it is learned follows from what each world has brought before.
    """

    @cache
    def value(first: int, zero: int, one: int) -> bytes:
        if first > ROUNDS:
            return np.maximum(0.0, 1 - np.exp(np.minimum(700.0, epsilon + PLACES / (2 * S2)))).tobytes()
        ways = {(0, zero, one)}
        for number in range(first, first + LEAF):
            ways = {way for before in ways for way in moves(number, *before)}
        ways = {(abs(moved), *counts) for moved, *counts in ways}
        after = {way: np.frombuffer(value(first + LEAF, *way[1:])) for way in ways}
        return np.maximum.reduce([node(after[way], CLIP * way[0]) for way in sorted(ways)]).tobytes()

    def moves(number: int, moved: int, zero: int, one: int) -> set[tuple[int, int, int]]:
        found = set()
        for a, b in product((0, 1, -1), repeat=2):
            if a == b or hidden(number):
                (x, left), (y, right) = taken(number, a, zero), taken(number, b, one)
                found.add((moved + x - y, left, right))
        return found

    def taken(number: int, brought: int, count: int) -> tuple[int, int]:
        more = admit(count, number) if brought else None
        return (0, count) if more is None else (brought, more)

    return float(np.frombuffer(value(1, 0, 0))[SPAN])


def period(number: int, *more: int) -> Callable[[int], bool]:
    """The rounds of a period are hidden, or of several."""
    return lambda round_: (round_ - 1) // PER in (number, *more)


def whole(_: int) -> bool:
    """All rounds are hidden."""
    return True


def moved_by(squares: int) -> int:
    """Σ‖Δ‖² where gradients of one world have a sum of squares of so many κC."""
    return 4 * CLIP**2 * squares


@cache
def bound(epsilon: float, squares: int) -> float:
    return with_slack(epsilon, S2, ROUNDS // LEAF, moved_by(squares))


def near(epsilon: float, squares: int) -> float:
    """Of a mechanism whose noise is continuous."""
    return float(hockey_stick(Decimal(epsilon), Decimal(moved_by(squares) / S2).sqrt()))


TINY = replace(GuidePlan.best(4.0, 1e-6, private_ranges=False), leaves=1, leaf=LEAF)


def squares_of(most: int) -> int:
    """What the code says that all periods cost, in prices of one."""
    found = together(TINY, Periods(PER, most, 1)).mu2
    assert found is not None
    return int(found / TINY.mu2)


# ---------------------------------------------------------------------- the right caps


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("most", [1, 2])
def test_what_differs_within_one_period_costs_what_one_period_does(number: int, most: int) -> None:
    """Also where that period used up one of a person's, so that a later one is learned in one world only."""
    found = best(1.0, right(most), period(number))
    assert 0.85 * near(1.0, 1) < found <= bound(1.0, 1) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize(("most", "squares"), [(1, 1), (2, 4), (3, 5)])
def test_all_periods_together_cost_what_the_code_says_and_nearly_that(epsilon: float, most: int, squares: int) -> None:
    """Two periods meet in one epoch, and add up there; the third is in noise of its own. Three would not be enough."""
    assert squares_of(most) == squares
    found = best(epsilon, right(most), whole)
    assert 0.85 * near(epsilon, squares) < found <= bound(epsilon, squares) * (1 + 1e-9)
    assert most == 1 or found > bound(epsilon, most)


# ---------------------------------------------------------------------- broken on purpose


def own_time(count: int, number: int) -> int | None:
    """A person's periods begin with their first label, not at public rounds; one label in each of three."""
    begun, used = divmod(count, 10)
    if used and number < begun + PER:
        return None
    return None if used == 3 else 10 * number + used + 1


def restarted(count: int, number: int) -> int | None:
    """A load in round 4 forgets all counts."""
    kept = right(1)
    if number < 4:
        return kept(count, number)
    found = kept(max(0, count - 10**9) if count >= 10**9 else 0, number)
    return None if found is None else found + 10**9


BROKEN: dict[str, tuple[Admit, Callable[[int], bool], int]] = {
    "a cap not counted over a restart": (restarted, whole, 1),
    "the number of periods not kept": (right(3), whole, squares_of(2)),
    "caps of which each period forgets the others": (right(3), whole, 3),
    "labels of an earlier period's questions": (right(3), period(0, 1), 1),
    "a cap of two": (right(3, labels=2), period(1), 1),
}


@pytest.mark.parametrize("double", BROKEN)
def test_caps_that_are_kept_wrongly_are_found_out(double: str) -> None:
    admit, hidden, squares = BROKEN[double]
    assert best(1.0, admit, hidden) > bound(1.0, squares)


def test_periods_that_begin_at_a_persons_own_time_are_found_out() -> None:
    """With a public period of four rounds, two of the person's own fit into it."""
    assert best(1.0, own_time, lambda number: 1 <= number <= 4) > bound(1.0, 1)
    assert best(1.0, right(3), period(0)) <= bound(1.0, 1)


# ---------------------------------------------------------------------- the code's numbers


@pytest.mark.parametrize(("per", "length"), [(1, 1), (1, 2), (2, 4), (3, 4), (4, 4), (5, 4), (7, 5)])
def test_no_choice_of_periods_puts_more_into_epochs_than_the_price_says(per: int, length: int) -> None:
    """All sets of three periods, each in any of its rounds, epochs of one length that begin anywhere."""
    guide, rounds = replace(TINY, leaf=length), 4 * max(per, length)
    price, most = together(guide, Periods(per, 3, 1)).mu2, 0
    assert price is not None
    for shift in range(length):
        for chosen in combinations(range(1, rounds + 1), 3):
            if len({(number - 1) // per for number in chosen}) == 3:
                blocks = [(number + shift) // length for number in chosen]
                most = max(most, sum(blocks.count(block) ** 2 for block in set(blocks)))
    assert most == price / guide.mu2


def test_a_plan_with_an_end_has_one_epoch_and_the_square_of_all_periods_is_its_price() -> None:
    plan = GuidePlan.best(1.0, 1e-6, 20_000, unit_labels=2)
    price = together(plan, Periods(5000, 4, 2))
    assert price.mu2 == 16 * (plan.mu2 - plan.range_mu2) + plan.range_mu2 and price.noises == plan.noises
    endless = GuidePlan.best(1.0, 1e-6, unit_labels=2)
    price = together(endless, Periods(10**7, 4, 2))
    assert price.mu2 == 8 * (endless.mu2 - endless.range_mu2) + endless.range_mu2
    assert price.noises[0].values == 4 * endless.noises[0].values and price.noises[1:] == endless.noises[1:]


def test_a_count_never_falls_and_says_what_was_taught() -> None:
    """Every way to bring labels in twelve rounds, beside a plain record of them."""
    periods = Periods(4, 2, 2)
    for brought in product((False, True), repeat=12):
        count, record = 0, list[int]()
        for number in (number for number, come in enumerate(brought, 1) if come):
            now = periods.at(number)
            may = record.count(now) < 2 and len({*record, now}) <= 2
            assert periods.left(count, now) == (2 - record.count(now) if len({*record, now}) <= 2 else 0)
            more = periods.one_more(count, now)
            assert (more is not None) == may
            if more is not None:
                assert more > count
                count, record = more, [*record, now]
        assert (periods.taught(count), periods.used(count)) == (len(record), len({*record}))
        last = max(record, default=0)
        for now in range(last, 4):
            assert periods.over(count, now) == (len({*record}) == 2 and (now > last or record.count(last) == 2))


def test_rounds_that_went_back_teach_nothing_and_a_count_has_its_room() -> None:
    periods = Periods(1, 5, 2)
    count = periods.one_more(0, 7)
    assert count is not None and periods.one_more(count, 6) is None and periods.left(count, 6) == 0
    assert periods.one_more(count, 1 << 45) is None
    assert Fraction(count) < 1 << 46
