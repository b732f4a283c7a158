"""Everybody else: learners without privacy, DP-FTRL, randomized response."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from dpftrl import RATES, design, noise
from dpftrl import run as dpftrl
from guide_streams import Rows
from numpy.typing import NDArray
from river import forest, tree
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier

from confide.learners import DecisionTree

from .cells import DELTA, LATE, Cell
from .streams import first_rounds, labels_of, load, matrix

MEMORY = 4096
"""Records of a tree that learns everything."""
MAPS = {"standardised": 0, "binned": 16}
"""Bins of a column for DP-FTRL."""
BOOSTED_FROM = 1000
"""Rows before boosted trees are fitted for the first time."""


@lru_cache(maxsize=1)
def _matrix(name: str, rows: int | None) -> NDArray[np.float64]:
    return matrix(load(name, rows))


def majority(cell: Cell) -> dict[str, Any]:
    """Always the label that is the most frequent of the whole stream."""
    labels = load(cell.stream, cell.rows).labels
    label = int(np.bincount(labels).argmax())
    return {"answers": np.full(len(labels), label), "parameters": {"label": label}}


def one_tree(cell: Cell) -> dict[str, Any]:
    """One decision tree, taught everything."""
    stream = load(cell.stream, cell.rows)
    learner = DecisionTree(memory=MEMORY, labels=labels_of(stream))
    answers = learner.follow(_matrix(cell.stream, cell.rows), stream.labels)
    return {"answers": answers, "parameters": {"learner": "DecisionTree", "memory": MEMORY}}


def boosted(cell: Cell) -> dict[str, Any]:
    """Boosted trees of all rows so far, fitted anew whenever there are twice as many."""
    stream = load(cell.stream, cell.rows)
    answers = _refitted(cell, stream.labels, np.ones(len(stream.labels), dtype=np.bool_))
    return {"answers": answers, "parameters": {"first": BOOSTED_FROM, "trees": 100}}


def _refitted(cell: Cell, y: NDArray[np.int64], taught: NDArray[np.bool_]) -> NDArray[np.int64]:
    x, at = _matrix(cell.stream, cell.rows).astype(np.float32), BOOSTED_FROM
    answers = np.full(len(y), np.bincount(y[:at]).argmax())
    while at < len(y):
        until, known = min(2 * at, len(y)), np.flatnonzero(taught[:at])
        model = HistGradientBoostingClassifier(random_state=0, early_stopping=False).fit(x[known], y[known])
        answers[at:until] = model.predict(x[at:until])
        at = until
    return answers


def hoeffding(cell: Cell) -> dict[str, Any]:
    """River's adaptive Hoeffding tree."""
    return _river(cell, tree.HoeffdingAdaptiveTreeClassifier(seed=1))


def adaptive_forest(cell: Cell) -> dict[str, Any]:
    """River's adaptive random forest."""
    return _river(cell, forest.ARFClassifier(seed=1))


def _river(cell: Cell, model: Any) -> dict[str, Any]:
    stream = load(cell.stream, cell.rows)
    rows: Any = _matrix(cell.stream, cell.rows) if stream.texts else Rows(stream)[:]
    answers = np.full(len(stream.labels), -1)
    for i, y in enumerate(stream.labels.tolist()):
        x = dict(enumerate(rows[i].tolist())) if stream.texts else rows[i]
        said = model.predict_one(x)
        answers[i] = -1 if said is None else said
        model.learn_one(x, y)
    return {"answers": answers, "parameters": {"model": type(model).__name__}}


@lru_cache(maxsize=2)
def _design(name: str, rows: int | None, kind: str) -> sparse.csr_matrix:
    stream = load(name, rows)
    return design(stream.numbers, stream.categories, stream.texts, MAPS[kind])


@lru_cache(maxsize=2)
def _noise(seed: int, size: int) -> NDArray[np.float64]:
    return noise(seed, size)


def _ftrl(cell: Cell, kind: str, rate: float, seed: int) -> NDArray[np.int64]:
    assert cell.epsilon is not None
    stream, x = load(cell.stream, cell.rows), _design(cell.stream, cell.rows, kind)
    labels = labels_of(stream)
    drawn = _noise(seed, x.shape[1] * (1 if labels == 2 else labels))
    return dpftrl(x, stream.labels, first_rounds(stream), cell.epsilon, DELTA, rate, seed, drawn)


@cache
def _tuned(name: str, rows: int | None, epsilon: float) -> tuple[str, float, NDArray[np.int64]]:
    """The map and the rate that are best at seed 1, by the errors that are told; and its answers."""
    cell, stream = Cell(name, rows, epsilon, "dpftrl", 1), load(name, rows)
    late = slice(int(LATE * len(stream.labels)), None)
    best: tuple[float, str, float, NDArray[np.int64]] | None = None
    for kind in MAPS if stream.numbers.shape[1] else ("binned",):
        for rate in RATES:
            answers = _ftrl(cell, kind, rate, 1)
            error = float((answers != stream.labels)[late].mean())
            if best is None or error < best[0]:
                best = error, kind, rate, answers.astype(np.int8)
    assert best is not None
    return best[1:]


def tuned_dpftrl(cell: Cell, tuned: dict[str, Any] | None = None) -> dict[str, Any]:
    assert cell.epsilon is not None
    known = (tuned["map"], tuned["rate"], None) if tuned else None
    kind, rate, answers = known or _tuned(cell.stream, cell.rows, cell.epsilon)
    if answers is None or cell.seed != 1:
        answers = _ftrl(cell, kind, rate, cell.seed)
    return {"answers": answers, "parameters": {"map": kind, "rate": rate, "tried": list(RATES)}}


def _randomized(cell: Cell) -> tuple[NDArray[np.int64], float]:
    """Labels that lie, and how often they tell the truth. All wrong labels are equally likely.

    So the label that leads is that which leads among the true ones: votes need no correction.
    """
    assert cell.epsilon is not None
    labels, many = load(cell.stream, cell.rows).labels, labels_of(load(cell.stream, cell.rows))
    rng, true = np.random.default_rng(cell.seed), math.exp(cell.epsilon) / (math.exp(cell.epsilon) + many - 1)
    other = (labels + rng.integers(1, many, len(labels))) % many
    return np.where(rng.random(len(other)) < true, labels, other), round(true, 4)


def randomized_response(cell: Cell) -> dict[str, Any]:
    """The tree, taught labels that lie: rows are not protected. Of a person one label is taught."""
    stream, x = load(cell.stream, cell.rows), _matrix(cell.stream, cell.rows)
    said, true = _randomized(cell)
    learner = DecisionTree(memory=MEMORY, labels=labels_of(stream))
    parameters = {"learner": "DecisionTree", "memory": MEMORY, "truth": true}
    if stream.units is None:
        return {"answers": learner.follow(x, said), "parameters": parameters}
    answers = np.full(len(said), -1)
    for i, taught in enumerate(first_rounds(stream).tolist()):
        answer = learner.predict(x[i])
        answers[i] = -1 if answer is None else answer
        if taught:
            learner.learn(x[i], int(said[i]))
    return {"answers": answers, "parameters": parameters}


def randomized_boosted(cell: Cell) -> dict[str, Any]:
    """The same labels, and boosted trees, which withstand lies better than one tree."""
    said, true = _randomized(cell)
    answers = _refitted(cell, said, first_rounds(load(cell.stream, cell.rows)))
    return {"answers": answers, "parameters": {"first": BOOSTED_FROM, "trees": 100, "truth": true}}
