"""Two small parts and the best adversary against both, in exact fractions; the unit carries answers between them."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

pytestmark = pytest.mark.claim("parts.md")

ORDER = 3
FIRST = {0: Fraction(3, 5), 1: Fraction(2, 5)}
SECOND = {0: Fraction(2, 3), 1: Fraction(1, 3)}

def moment(p: dict[tuple[int, ...], Fraction], q: dict[tuple[int, ...], Fraction]) -> Fraction:
    """E_Q[(P/Q)^α]."""
    return sum((p[z] ** ORDER / q[z] ** (ORDER - 1) for z in p), Fraction(0))


def bit_law(law: dict[int, Fraction], state: int) -> tuple[Fraction, Fraction]:
    """P(shows 0), P(shows 1) of a randomized bit at this state."""
    return (law[0], law[1]) if state == 0 else (law[1], law[0])


def price(law: dict[int, Fraction]) -> Fraction:
    zero, one = bit_law(law, 0), bit_law(law, 1)
    return max(
        moment({(z,): p[z] for z in (0, 1)}, {(z,): q[z] for z in (0, 1)}) for p, q in ((zero, one), (one, zero))
    )


STRATEGIES = list(itertools.product((0, 1), repeat=4))
"""The second part's state by (hidden answer, what the first part showed)."""


def views(world: int, strategy: tuple[int, ...]) -> dict[int, dict[tuple[int, ...], Fraction]]:
    """By the hidden answer, which is on the tape: the law of what both parts show.

    The unit's state in the first part is the world. Its hidden answer depends on the coin on the tape and on the
    world; its state in the second part on that answer and on what the first part showed.
    """
    laws: dict[int, dict[tuple[int, ...], Fraction]] = {}
    for coin in (0, 1):  # the tape: the hidden answer is coin ⊕ world
        told, law = coin ^ world, {}
        for first in (0, 1):
            state = strategy[2 * told + first]
            for second in (0, 1):
                law[first, second] = bit_law(FIRST, world)[first] * bit_law(SECOND, state)[second]
        laws[coin] = law
    return laws


def worst() -> Fraction:
    """The largest moment over all pairs of strategies, tapes and orders of the worlds."""
    found = Fraction(0)
    for zero, one in itertools.product(STRATEGIES, repeat=2):
        laws = views(0, zero), views(1, one)
        for coin in (0, 1):
            p, q = laws[0][coin], laws[1][coin]
            found = max(found, moment(p, q), moment(q, p))
    return found


def test_the_best_adversary_reaches_the_sum_of_prices_and_never_more() -> None:
    """Moments multiply where divergences add."""
    assert worst() == price(FIRST) * price(SECOND)


def test_the_price_of_one_part_alone_is_refuted() -> None:
    assert worst() > max(price(FIRST), price(SECOND))


def test_a_part_that_shares_its_coin_with_another_is_above_the_sum() -> None:
    """Both parts flip by one coin: what they show together tells the state for certain."""
    joint = {}
    for world in (0, 1):
        law = {(a, b): Fraction(0) for a in (0, 1) for b in (0, 1)}
        for flipped, chance in ((0, Fraction(3, 5)), (1, Fraction(2, 5))):
            law[world ^ flipped, flipped] += chance  # the second shows its coin, though its own state says nothing
        joint[world] = law
    told = [z for z in joint[0] if joint[0][z] and not joint[1][z]]
    assert told, "an outcome that one world never has: no finite price"


def test_mu2_by_the_largest_release_is_refuted_and_by_the_path_is_not() -> None:
    """Two Gaussian releases, the second's distance chosen after the first: the squares add along the path."""
    order, first, second = 4, Fraction(1, 10), Fraction(3, 10)
    path = order * (first**2 + second**2) / 2
    assert path > order * max(first, second) ** 2 / 2
    # E_Q[(P/Q)^α] of two releases is e^{α(α−1)μ²/2} at μ² = first² + second²: the exponents add.
    assert (order - 1) * path == order * (order - 1) * first**2 / 2 + order * (order - 1) * second**2 / 2
