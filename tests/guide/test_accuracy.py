"""The guide with its defaults against an independent DP-FTRL whose learning rate was chosen after the fact."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.planning.guided import GuidePlan
from confide.privacy.random import Random


def peer() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "dpftrl.py"
    spec = importlib.util.spec_from_file_location("dpftrl", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stream(n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Five columns of very different sizes; the label is linear in two of them, turned by a third, with noise."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.normal(50, 10, n), rng.lognormal(5, 1, n), rng.uniform(-1, 1, n), rng.normal(size=(n, 2))])
    clean = np.where(x[:, 2] > 0, x[:, 0] > 50, x[:, 1] > 150)
    return x, (clean ^ (rng.random(n) < 0.1)).astype(np.int64)


def answers(x: NDArray[np.float64], y: NDArray[np.int64], epsilon: float) -> NDArray[np.bool_]:
    plan = GuidePlan.best(epsilon, 1e-6, len(y))
    guide = Guide(plan, Columns.of_array(x.shape[1]), rng=Random(seed=1))
    return guide.follow(x, y).answers != y


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_defaults_are_no_worse_than_dp_ftrl_with_the_best_rate(epsilon: float) -> None:
    x, y = stream(15_000)
    late = slice(6000, None)
    ours = answers(x, y, epsilon)[late].mean()
    other = peer()
    design, taught = other.design(x, [], []), np.ones(len(y), dtype=np.bool_)
    best = min((other.run(design, y, taught, epsilon, 1e-6, rate, 1) != y)[late].mean() for rate in (0.02, 0.05, 0.2))
    spread = 2 * np.sqrt(best / len(y[late]))
    assert ours <= 1.05 * best + spread
    assert ours < 0.35


def test_labels_without_signal_are_answered_by_their_majority() -> None:
    x, y = stream(10_000)
    y = (np.random.default_rng(2).random(10_000) < 0.2).astype(np.int64)
    assert answers(x, y, 1.0)[4000:].mean() <= y[4000:].mean() + 0.01
