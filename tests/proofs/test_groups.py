"""Groups and mechanisms at the same time, counted out in fractions: docs/proofs/composition.md."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise, permutations, product

import pytest

from tests.proofs.tiny import F, Procedure, Tables, game_leak, pairs, tape_leak

pytestmark = pytest.mark.claim("composition.md")

HALT = (F(1, 20), F(3, 40), F(1, 10), F(3, 20), F(1, 5))
SMALL = Tables(tuple(1 - s for s in (F(1, 50), F(1, 50), F(1, 50), F(1, 10))), HALT, copies=3)
FIVE = Tables(tuple(1 - s for s in (*[F(1, 50)] * 3, *[F(1, 25)] * 2, F(2, 25))), HALT, copies=5)
POLLED = Tables((F(49, 50), F(49, 50), F(9, 10)), HALT, copies=3, polls=2)


# ---------------------------------------------------------------------------- members who tell each other their answers

GROW = F(2718, 1000)  # below e, so the mechanism is (1, 0)-challenge-DP
NUMBERS = 1000


def _mechanism() -> dict[tuple[int, bool], F]:
    """P(the bell rings) by the first round's bit, and whether the second guessed the number that the first was told.

    The first asker is told a uniform number of NUMBERS, the second names one; then everybody hears a bell, or not.
    """
    low = F(1, 100)
    down = low * (1 + (1 / GROW - 1) / NUMBERS)  # P(bell) at bit 1, the number named without knowing it
    up = GROW * down / (1 + (GROW - 1) / NUMBERS)
    return {(0, False): up, (0, True): up * GROW, (1, False): low, (1, True): low / GROW}


def _close(p: F, q: F) -> bool:
    """Whether two probabilities of a bell are within a factor GROW of each other, bell and silence, in both orders."""
    return all(a <= GROW * b and b <= GROW * a for a, b in ((p, q), (1 - p, 1 - q)))


def test_two_members_who_talk_can_lose_three_times_what_one_does() -> None:
    """Each single round is protected with ε = 1; a group of two whose answers flow loses more than 2.99."""
    bell = _mechanism()
    for bit in (0, 1):  # the second round is hidden: the adversary saw the number, and both guesses are right or wrong
        assert _close(bell[bit, True], bell[bit, False])
    blind = [bell[bit, True] / NUMBERS + bell[bit, False] * (NUMBERS - 1) / NUMBERS for bit in (0, 1)]
    assert _close(*blind)  # the first is hidden: the number is not known, whatever the second names
    # Both hidden, the number told on and named in both worlds: the bell is loud in one and soft in the other.
    loss = bell[0, True] / bell[1, True]
    assert loss > F(math.exp(2.99)) > GROW**2  # Theorem 9 without its hypothesis would say GROW²
    assert loss <= GROW**3  # one way only: guess → anything, bit, anything → guess
    apart = bell[0, False] / bell[1, False]
    assert apart <= GROW**2  # members who do not talk stay within Theorem 9


def test_the_geometric_sum_is_reached_only_while_the_complements_allow_it() -> None:
    """w₀ = e^ε·w₁ + δ, w₁ = δ, w₂ = 0: allowed, complements included, up to w₀ ≤ (e^ε+δ)/(e^ε+1), not up to 1."""

    def allowed(w: list[F], grow: F, delta: F) -> bool:
        steps = list(pairwise(w))
        steps += [(b, a) for a, b in steps]
        return all(a <= grow * b + delta and 1 - a <= grow * (1 - b) + delta for a, b in steps)

    grow = F(27, 10)
    for delta, reached in ((F(1, 100), True), (F(15, 100), True), (F(26, 100), False)):
        w = [grow * delta + delta, delta, F(0)]
        assert w[0] <= 1
        assert allowed(w, grow, delta) == reached == (w[0] <= (grow + delta) / (grow + 1))


# ------------------------------------------------------------------------------------------------------ groups in POP


def _step(grow: F, tables: Tables, own: str) -> F:
    """One step of the hybrid: one member's copy and count, all others' hidden rounds alike."""
    others = own.replace("o", "s")
    places = [i for i, letter in enumerate(own) if letter == "o"]
    return max(tape_leak(grow, tables, others[:i] + "o" + others[i + 1 :]) for i in places)


@pytest.mark.parametrize(("tables", "schedule"), [(SMALL, "oovv"), (SMALL, "ovov"), (FIVE, "oovv"), (FIVE, "ooov")])
@pytest.mark.parametrize("grow", [F(3, 2), F(2), F(3)])
def test_a_group_costs_at_most_its_steps(tables: Tables, schedule: str, grow: F) -> None:
    """The best adversary on the tape's level against g copies and g counts, and against one of each."""
    members = schedule.count("o")
    group = tape_leak(grow**members, tables, schedule, apart=members)
    one = _step(grow, tables, schedule)
    assert 0 < group <= one * sum(grow**i for i in range(members)) < 1
    assert tape_leak(grow, tables, schedule, apart=members) > one  # a group at the price of one unit is refuted


def test_a_group_of_two_pays_more_than_twice_the_delta() -> None:
    """g·δ in place of the geometric sum is refuted by a POP, not only by two numbers."""
    assert tape_leak(F(25), SMALL, "oovv", apart=2) > 2 * _step(F(5), SMALL, "oovv")


TALKING = [
    (Procedure((first,), say), Procedure(ask, then))
    for first, say, ask, then in (
        (3, (0, 0), (3, 3), (0, 0)),
        (2, (1, 1), (2, 2), (1, 1)),
        (2, (0, 1), (2, 3), (0, 1)),
        (2, (1, 0), (3, 2), (1, 0)),
        (3, (1, 1), (2, 3), (0, 1)),
    )
]
"""What two members do: what the second asks and says hangs on what the first was answered."""


@pytest.mark.parametrize("tables", [SMALL, POLLED])
def test_hidden_answers_that_flow_buy_nothing(tables: Tables) -> None:
    """The game itself, with hidden coins and answers told on, against the bound that is proved tape by tape."""
    grow, seen = F(3), []
    one = max(_step(grow, tables, "oovv"), _step(grow, tables, "ovov"))
    for schedule, how_many in (("hhvv", 2 if tables.polls else 4), ("hvhv", 0 if tables.polls else 2)):
        for worlds in permutations(TALKING[:how_many], 2):
            seen.append(game_leak(grow**2, tables, schedule, worlds))
    assert max(seen) <= one * (1 + grow) < 1
    assert max(seen) > one  # the price of one unit would be too little, even at the loss of two
    if not tables.polls:
        both = max(tape_leak(grow**2, tables, schedule, apart=2) for schedule in ("oovv", "ovov"))
        assert max(seen) <= both


# ------------------------------------------------------------------------------------------- two POPs at the same time


def _two_at_once(grow: F, tables: Tables, schedule: str) -> F:
    """The tape's level for two POPs that run at once, each with its halt: capital letters are the second's rounds."""
    visible = pairs(tables, 1)

    @cache
    def worth(ratio: F, i: int, counts: tuple[tuple[int, int] | None, ...]) -> F:
        if i == len(schedule):
            return max(F(0), 1 - grow * ratio)
        which = int(schedule[i].isupper())
        here = counts[which]
        if here is None:  # halted: nothing is drawn any more
            return worth(ratio, i + 1, counts)
        if schedule[i] in "oO":
            return max(draw(F(1), ratio, i, counts, (here[0] + a, here[1] + b)) for a, b in product((0, 1), repeat=2))
        best = F(0)
        for one, other in visible:
            total = F(0)
            for outcome, chance in one.items():
                more = int(outcome is None)
                after = (here[0] + more, here[1] + more)
                total += draw(chance, ratio * other.get(outcome, F(0)), i, counts, after)
            best = max(best, total)
        return best

    def draw(p: F, q: F, i: int, counts: tuple[tuple[int, int] | None, ...], after: tuple[int, int]) -> F:
        which = int(schedule[i].isupper())
        h, g = tables.stops(after[0]), tables.stops(after[1])
        total = F(0)
        for left, right, now in ((p * h, q * g, None), (p * (1 - h), q * (1 - g), after)):
            held = tuple(now if j == which else c for j, c in enumerate(counts))
            total += left * worth(right / left, i + 1, held)
        return total

    return worth(F(1), 0, ((0, 0), (0, 0)))


@pytest.mark.parametrize("schedule", ["oOvV", "ovOV"])
@pytest.mark.parametrize("grow", [F(3, 2), F(2)])
def test_two_pops_at_once_cost_the_sum(schedule: str, grow: F) -> None:
    """A unit in both, carrying hidden answers across: (ε₁+ε₂, δ₁+e^{ε₁}δ₂), and not the price of one."""
    one = tape_leak(grow, SMALL, "ov")
    both = _two_at_once(grow**2, SMALL, schedule)
    assert both <= one * (1 + grow)
    assert _two_at_once(grow, SMALL, schedule) > one
