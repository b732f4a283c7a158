"""What the planners share about their arguments: defaults, and refusals in one clear sentence each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.planning.design import LEAST_START
from confide.privacy.renyi import check_beta, check_delta, check_epsilon

BETA = 0.01
"""Probability of halting before the unsure answers are used up, unless the user says otherwise."""

MISTAKE_BETA = 0.05
"""Probability that a mistake bound fails, unless the user says otherwise."""

MOST_DELTA = 0.1
"""A promise with a larger δ fails too often to be one."""

HORIZON = 10**12
"""What stands for the rounds of a plan without an end: no run reaches so many."""

MOST_EPSILON = 500.0
"""With a larger ε, e^ε promises nothing, and the tables' arithmetic does not reach it."""


class Unused(ValueError):
    """A number that was given and would change nothing: `name` says which."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__(said)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return Unused, (self.name, str(self))


def check(
    epsilon: float,
    delta: float,
    rounds: int,
    *,
    beta: float,
    labels: int,
    silent: int | None = 0,
    unit_unsure: int = 1,
    copies: int | None = None,
    unsure: int | None = None,
    polls: int | None = None,
) -> None:
    """Refuse what cannot be planned, one clear sentence each."""
    check_epsilon(epsilon)
    promised_delta(delta)
    check_beta(beta)
    whole = {"rounds": rounds, "copies": copies, "unsure": unsure, "polls": polls, "unit_unsure": unit_unsure}
    for name, value in whole.items():
        if value is not None:
            whole_number(name, value)
    if not _is_whole(labels) or labels < 2:
        raise ValueError(f"labels={labels} must be a whole number of at least 2: there is nothing to predict otherwise")
    if silent is not None and not (_is_whole(silent) and 0 <= silent < rounds):
        raise ValueError(f"silent={silent} must be a whole number from 0 to rounds − 1 = {rounds - 1}")
    if polls is not None and copies is not None and polls > copies:
        raise ValueError(f"polls={polls} asks more copies than the copies={copies} there are; use polls ≤ copies")


def promised_delta(delta: float) -> float:
    """`delta` as a float, if a promise with it is one."""
    if check_delta(delta) > MOST_DELTA:
        raise ValueError(f"delta={delta:g} promises nothing: all may be told with that probability; 1e-6 is usual")
    return float(delta)


def check_tables(epsilon: float) -> None:
    """Refuse an ε for which no tables are made."""
    if epsilon > MOST_EPSILON:
        raise ValueError(f"epsilon={epsilon:g} promises nothing; plan with at most 500, and 8 is already weak")


def check_rare(beta: float, rounds: int, live: int, room: float = 1.0) -> None:
    """Refuse a β that so many live draws of 64 bits cannot keep; `room` is how many times it must be met."""
    least = live * LEAST_START * room
    if beta >= least:
        return
    fewer = math.floor(beta / (LEAST_START * room) * rounds / live) - 2
    ways = [f"beta={two_digits_up(least):g}"] if two_digits_up(least) < 1 else []
    ways += [f"rounds={fewer}"] if fewer >= 1 else []
    raise ValueError(
        f"beta={beta:g} is out of reach of rounds={rounds}: a halting draw of 64 bits fires by chance once in 2**40, "
        f"so {live:,} live rounds halt early more often; {' can, or '.join(ways)} can"
    )


def two_digits_up(value: float) -> float:
    """`value`, positive, rounded up to two digits, for a message."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.2g}")


def mistake_bound(mistakes: int) -> int:
    """`mistakes` as a learner's mistake bound d."""
    if not _is_whole(mistakes) or mistakes < 1:
        raise ValueError(f"mistakes={mistakes} must be the learner's mistake bound, a whole number of at least 1")
    return int(mistakes)


def whole_number(name: str, value: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    if not _is_whole(value) or value < 1:
        raise ValueError(f"{name}={value} must be a whole number of at least 1")


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
