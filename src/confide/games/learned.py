"""A score learned from games, for views whose likelihood nobody can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.arrays import Floats
from confide.games.moves import BOTTOM, View

BINS = 24
WINDOWS = 4


def summary(view: View) -> list[float]:
    """Numbers that say much about any view: how long it is, how it ended, unsure answers and labels along it."""
    seen = [answer for answer in view.answers if answer is not BOTTOM]
    unsure = np.array([not getattr(answer, "sure", True) for answer in seen], dtype=float)
    values = np.array([_number(getattr(answer, "label", answer)) for answer in seen], dtype=float)
    after = len(view.answers) - 1 - (view.answers.index(BOTTOM) if BOTTOM in view.answers else -1)
    numbers = [float(len(seen)), float(after), float(view.halted), float(unsure.sum()), float(values.sum())]
    numbers.append(float(len(view.errors)))
    sure = values[unsure == 0]
    numbers.append(float(sure.mean()) if sure.size else 0.5)
    for part in range(WINDOWS):
        inside = slice(part * len(seen) // WINDOWS, (part + 1) * len(seen) // WINDOWS)
        numbers += [float(unsure[inside].sum()), float(values[inside].sum())]
    return numbers


def _number(label: Any) -> float:
    """A number for a label, the same in every process; labels that are no numbers count by their text."""
    if isinstance(label, bool | int | float | np.number):
        return float(label)
    return sum(repr(label).encode()) % 997 / 997


@dataclass(frozen=True)
class Learned:
    """A logistic score of the evidence in each number, binned: fit on training games, and tested on others.

    Each number of a summary is cut into bins of about equal size; a bin's evidence is the smoothed log-ratio of its
    frequencies at bit 1 and bit 0. A logistic regression weighs the evidence of all numbers.
    """

    edges: tuple[Floats, ...]
    evidence: tuple[Floats, ...]
    weights: Floats

    @classmethod
    def fit(cls, zero: Floats, one: Floats) -> Learned:
        """From the summaries of the training games at bit 0 and at bit 1, one row a game."""
        both = np.concatenate([zero, one])
        edges, evidence = [], []
        for column in range(both.shape[1]):
            values = np.unique(both[:, column])
            grid = np.unique(np.quantile(both[:, column], np.linspace(0, 1, BINS + 1)[1:-1], method="lower"))
            cut = values[:-1] if values.size <= 2 * BINS else grid
            counts = [
                np.bincount(np.searchsorted(cut, rows[:, column], side="left"), minlength=cut.size + 1) + 1.0
                for rows in (zero, one)
            ]
            edges.append(cut)
            evidence.append(np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum()))
        found = cls(tuple(edges), tuple(evidence), np.zeros(both.shape[1]))
        rows = found.weigh(both)
        bits = np.concatenate([np.zeros(len(zero)), np.ones(len(one))])
        return cls(found.edges, found.evidence, _logistic(rows, bits))

    def weigh(self, rows: Floats) -> Floats:
        """The evidence of each number of each row."""
        columns = [
            known[np.searchsorted(cut, rows[:, i], side="left")]
            for i, (cut, known) in enumerate(zip(self.edges, self.evidence, strict=True))
        ]
        return np.stack(columns, axis=1)

    def scores(self, rows: Floats) -> Floats:
        """The score of each row, rounded so that equal evidence is equal."""
        return np.round(self.weigh(rows) @ self.weights, 9)


def _logistic(rows: Floats, bits: Floats) -> Floats:
    """Ridge-penalised logistic weights by Newton's method; no intercept, since both bits are equally frequent."""
    weights = np.zeros(rows.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        gradient = rows.T @ (p - bits) + weights
        curvature = (rows * (p * (1 - p))[:, None]).T @ rows + np.eye(rows.shape[1])
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    return weights
