"""Agrawal's generator, in blocks: rows distributed as River draws them, labels as River answers them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

AGRAWAL = ("salary", "commission", "age", "elevel", "car", "zipcode", "hvalue", "hyears", "loan")
"""The nine features of Agrawal, Imielinski and Swami, "Database Mining: A Performance Perspective" (1993)."""


def agrawal_rows(rng: np.random.Generator, rows: int) -> Floats:
    """Rows of the nine features, distributed as River's generator draws them.

    Examples
    --------
    >>> agrawal_rows(np.random.default_rng(0), 2).shape
    (2, 9)
    """
    salary = rng.uniform(20_000, 150_000, rows)
    commission = np.where(salary < 75_000, rng.uniform(10_000, 85_000, rows), 0.0)
    zipcode = rng.integers(0, 9, rows)
    return np.column_stack(
        (
            *(salary, commission, rng.integers(20, 81, rows), rng.integers(0, 5, rows), rng.integers(1, 21, rows)),
            *(zipcode, (8 - zipcode) * rng.uniform(50_000, 150_000, rows), rng.integers(1, 31, rows)),
            rng.uniform(0, 500_000, rows),
        )
    )


def agrawal_label(function: int, x: Floats) -> NDArray[np.bool_]:
    """Whether each row has label 1 by one of the ten functions, numbered from 0, as River answers them.

    Function 4 is River's: for the young and the middle-aged it asks for a salary where the paper asks for a loan.

    Examples
    --------
    >>> agrawal_label(0, np.array([[50_000, 20_000, 35, 2, 7, 3, 500_000, 9, 90_000.0]]))
    array([ True])
    """
    columns: tuple[Floats, ...] = tuple(x.T)
    salary, commission, age, elevel, _, _, hvalue, hyears, loan = columns
    left: Floats
    young, old = age < 40, age >= 60
    total = salary + commission

    def by_age(a: NDArray[np.bool_], b: NDArray[np.bool_], c: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.where(young, a, np.where(old, c, b))

    def within(value: Floats, low: float, high: float) -> NDArray[np.bool_]:
        return (1000 * low <= value) & (value <= 1000 * high)

    match function:
        case 0:
            return np.logical_or(young, old)
        case 1:
            return by_age(within(salary, 50, 100), within(salary, 75, 125), within(salary, 25, 75))
        case 2:
            return by_age(elevel <= 1, (elevel >= 1) & (elevel <= 3), elevel >= 2)
        case 3:
            low, middle, high = within(salary, 25, 75), within(salary, 50, 100), within(salary, 75, 125)
            return by_age(
                np.where(elevel <= 1, low, middle),
                np.where((elevel >= 1) & (elevel <= 3), middle, high),
                np.where(elevel >= 2, middle, low),
            )
        case 4:
            return by_age(
                np.where(within(salary, 50, 100), within(loan, 100, 300), within(salary, 200, 400)),
                np.where(within(salary, 75, 125), (salary >= 200_000) & (loan <= 400_000), within(salary, 300, 500)),
                np.where(within(salary, 25, 75), within(loan, 300, 500), within(loan, 75, 300)),
            )
        case 5:
            return by_age(within(total, 50, 100), within(total, 75, 125), within(total, 25, 75))
        case 6:
            left = 2 * total / 3 - loan / 5 - 20_000
        case 7:
            left = 2 * total / 3 - 5000 * elevel - 20_000
        case 8:
            left = 2 * total / 3 - 5000 * elevel - loan / 5 - 10_000
        case 9:
            equity = np.where(hyears >= 20, hvalue * (hyears - 20) / 10, 0.0)
            left = 2 * total / 3 - 5000 * elevel + equity / 5 - 10_000
        case _:
            raise ValueError(f"function={function} must be from 0 to 9")
    return np.less_equal(left, 1)
