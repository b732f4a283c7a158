"""The showcase: visits that are kept or missed, like a clinic's records: mixed columns, labels that are partly chance.

Whether a visit is missed is drawn with a probability that its row decides, so nobody can know it: who knew that
probability would still be wrong about one visit in six or seven, and whoever always says "kept" about three in ten.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.data.rows import Item, Row, Stream
from confide.learners import Features

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_REASONS = ("check", "follow-up", "test", "pain", "vaccination", "other")
_WARDS = tuple(f"ward {i}" for i in range(1, 41))
_OF_DAY = np.array([0.4, -0.2, -0.3, 0.0, 0.5, 0.9])
_OF_REASON = np.array([0.5, 0.1, -0.3, -1.6, 0.3, 0.0])
_OF_WARD = np.sin(np.arange(len(_WARDS)) * 2.4) * 1.2  # some wards have more patience than others

BLOCK = 4096
"""Rows made at a time."""

VISITS = Features(
    numeric=("age", "hour", "missed before", "days ahead", "distance"),
    categorical={"weekday": 16, "reason": 16, "ward": 128, "reminded": 4},
)
"""What a visit's row holds; where its numbers lie is not declared, as for most people's files."""

Block = dict[str, NDArray[Any]]


def block(rng: np.random.Generator, rows: int) -> Block:
    """Columns of so many visits, categories by their numbers."""
    return {
        "age": np.clip(rng.normal(45, 22, rows), 0, 100).round(),
        "hour": rng.integers(14, 40, rows) / 2,
        "missed before": rng.poisson(rng.gamma(0.6, 1.5, rows)).astype(np.float64),
        "days ahead": rng.exponential(25, rows).round(),
        "distance": np.exp(rng.normal(1.2, 1.1, rows)).round(1),
        "weekday": rng.integers(0, len(_DAYS), rows),
        "reason": rng.integers(0, len(_REASONS), rows),
        "ward": np.minimum(rng.geometric(0.08, rows), len(_WARDS)) - 1,
        "reminded": rng.integers(0, 5, rows) // 3,
    }


def chances(x: Block) -> NDArray[np.float64]:
    """The probability of each visit that it is missed: the generator's own, and nobody's to know."""
    wait = np.log1p(x["days ahead"]) - 3.0
    young = np.maximum(0.0, 35.0 - x["age"]) / 10.0
    score = (
        -1.7 + 1.5 * wait + 1.1 * np.sqrt(x["missed before"]) + 0.5 * young
        + 0.35 * np.log1p(x["distance"]) * (x["hour"] < 9.0)
        + _OF_DAY[x["weekday"]] + _OF_REASON[x["reason"]] + _OF_WARD[x["ward"]]
        - x["reminded"] * (0.6 + 0.8 * np.maximum(0.0, wait))
    )  # fmt: skip
    return np.asarray(1 / (1 + np.exp(-1.3 * score)))


def visits(name: str, rows: int, seed: int) -> Stream:
    """So many visits; x is a dict.

    Examples
    --------
    >>> first = next(visits("visits", 10, seed=0).rows())
    >>> first.x["reason"], first.y
    ('test', 'kept')
    """
    names = {"weekday": _DAYS, "reason": _REASONS, "ward": _WARDS, "reminded": ("no", "yes")}

    def source(dicts: bool) -> Iterator[Item]:
        rng = np.random.default_rng(seed)
        for start in range(0, rows, BLOCK):
            made = block(rng, BLOCK)
            missed = (rng.random(BLOCK) < chances(made)).tolist()
            lists = {key: column.tolist() for key, column in made.items()}
            columns = [[names[key][i] for i in part] if key in names else part for key, part in lists.items()]
            for *values, y in islice(zip(*columns, missed, strict=True), rows - start):
                yield Row(dict(zip(made, values, strict=True)), "missed" if y else "kept")

    return Stream(name, ("kept", "missed"), (*VISITS.numeric, *names), VISITS, source, rows)
