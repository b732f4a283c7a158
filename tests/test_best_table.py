"""Rounding the best table to 64-bit integers costs nothing; tables made from noise need their floor."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.privacy.gate import FLOOR, Gate, integers
from confide.privacy.tables import descend

pytestmark = pytest.mark.claim("best-table.md")


def shipped(order: int, cost: float, tie_sure: float, floor: float) -> Gate:
    """`Gate.best` with another floor."""
    unsure, sure = descend(order, math.expm1((order - 1) * cost * (1 - 2e-6)), 1.0, tie_sure, floor, 2**31 - 1)
    doubled = np.concatenate([[0], np.repeat(np.arange(unsure.size), 2)])
    return Gate.from_integers(integers(unsure[doubled], sure[doubled]))


@pytest.mark.parametrize("power", [30, 36, 44, 50, 56, 60])
def test_a_lower_floor_costs_nothing(power: int) -> None:
    assert 1 - 2.1e-6 < shipped(20, 5e-4, 1e-12, 2.0**-power).cost(order=20) / 5e-4 <= 1


@pytest.mark.parametrize("power", [30, 40, 50, 56])
def test_a_smaller_x_costs_nothing(power: int) -> None:
    assert 1 - 2.1e-6 < shipped(20, 5e-4, 2.0**-power, FLOOR).cost(order=20) / 5e-4 <= 1


@pytest.mark.parametrize(("order", "cost"), [(2, 1.0), (2, 1e-6), (64, 1e-6)])
def test_nor_does_rounding_at_other_orders_and_costs(order: int, cost: float) -> None:
    assert 1 - 2.1e-6 < shipped(order, cost, 1e-12, FLOOR).cost(order=order) / cost <= 1


def laplace(scale: float, floor: float) -> NDArray[np.uint64]:
    """The falling end of a Laplace table, rounded entry by entry."""
    margins = np.arange(math.ceil(-2 * scale * math.log(2 * floor)) + 1)
    tail = np.maximum(0.5 * np.exp(-margins / 2 / scale), floor)
    return integers(tail, 1 - tail)


def test_a_table_made_from_noise_needs_its_floor() -> None:
    """Looked at where it begins, the dearest place but for rounding, and where it ends, with the coarsest integers."""
    cost = {}
    for power in (36, 44, 50):
        table = laplace(20_000.0, 2.0**-power)
        cost[power] = max(Gate.from_integers(part).cost(order=100) for part in (table[:1000], table[-100_000:]))
    assert cost[44] == pytest.approx(cost[36], rel=1e-3) and 1.95 < cost[50] / cost[36] < 2


@pytest.mark.parametrize("table", [[1.0, 1.0, 1.0, 0.9], [0.5, 0.5, 0.5, 2.0**-64]])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_no_step_leads_from_certainty_or_to_nothing(table: list[float], share: float) -> None:
    """f(1) = 1, and f(a) > 0: the pairs that docs/proofs/best-table.md leaves out are refused, (1, 1) is not."""
    with pytest.raises(ValueError, match="no cost bounds the step"):
        Gate(table).cost(order=2, poll_fraction=share)
    assert Gate([1.0, 1.0, 1.0, 1.0]).cost(order=2, poll_fraction=share) == 0
