"""A monitor beside any plan adds its ε and nothing to δ: docs/proofs/monitor.md, counted out in fractions."""

from __future__ import annotations

import pytest

from tests.proofs.tiny import F, Tables, tape_leak

pytestmark = pytest.mark.claim("monitor.md")

UNSURE = tuple(1 - s for s in (F(1, 50), F(1, 50), F(1, 50), F(1, 10)))
HALTING = Tables(UNSURE, (F(1, 20), F(3, 40), F(1, 10), F(3, 20), F(1, 5)))
COUNTER = Tables(UNSURE, (F(0),))
"""No halting table: a noisy counter is one more noisy bit, as in the paper's plan."""
PRICE = F(3)
"""e^{ε_c} of a bit that is told truly three times in four."""


@pytest.mark.parametrize("grow", [F(3, 2), F(2), F(3)])
@pytest.mark.parametrize("schedule", ["ovmv", "omvv", "ovvm"])
def test_with_a_halting_table(grow: F, schedule: str) -> None:
    alone = tape_leak(grow, HALTING, schedule.replace("m", ""))
    assert tape_leak(grow * PRICE, HALTING, schedule) <= alone
    assert tape_leak(grow, HALTING, schedule) > alone  # it is not free


@pytest.mark.parametrize("grow", [F(3, 2), F(3)])
@pytest.mark.parametrize("schedule", ["mvmv", "vmmv"])
def test_with_the_papers_counter(grow: F, schedule: str) -> None:
    """Gate, halting counter and monitor: the counters' two prices multiply, δ is the gate's alone."""
    alone = tape_leak(grow, COUNTER, "vv")
    assert tape_leak(grow * PRICE**2, COUNTER, schedule) <= alone
    assert tape_leak(grow * PRICE, COUNTER, schedule) > alone  # one of the two prices is not enough


def test_a_mistake_that_may_move_to_another_tick_costs_twice() -> None:
    """Counted when its label comes: two noisy bits differ, and the price of one is too little."""
    alone = tape_leak(F(2), HALTING, "ov")
    assert tape_leak(2 * PRICE, HALTING, "ovm") <= alone < tape_leak(2 * PRICE, HALTING, "ovmm")
    assert tape_leak(2 * PRICE**2, HALTING, "ovmm") <= alone
