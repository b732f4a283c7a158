"""Boosted trees over binned columns, fitted to randomized labels by the likelihood of what came out.

A tree asks the same question of all rows at each of its levels, so few questions are asked of many rows: labels that
lie teach it little that is wrong. Nothing is drawn: equal rows and outputs make equal trees. What they are fitted to
is the channel's likelihood (docs/proofs/labels.md, “Undoing the channel”), so their scores are those of true labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats, Ints, Words
from confide.kernels.compile import jit
from confide.privacy.response import Response

__all__ = ["BINS", "Binning", "Trees", "fit_trees", "tree_scores"]

Bytes = NDArray[np.uint8]

BINS = 256
_DEPTH, _TREES = 6, 1024
_ROUNDS = 256, 24  # at most, and at least: there are about `_TREES` trees in all
_PACE, _RIDGE = 25.6, 1.0  # the sum of all steps: fewer rounds take longer ones. Who asks may stop earlier
_ROWS = 1 << 14
_MIX = np.array([0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93], dtype=np.uint64)


class Binning(NamedTuple):
    """Where each column is cut, found in rows that were seen: rows are not protected here."""

    cuts: tuple[Floats, ...]
    """The ends of a numeric column's bins; bin 0 is for what is missing."""
    kinds: tuple[Words, ...]
    """The frequent categories of a column, in increasing order; bin 0 is for the others."""

    @classmethod
    def of(cls, numbers: Floats, codes: Words) -> Binning:
        """Bins of equal mass, and the most frequent categories."""
        cuts = []
        for column in numbers.T:
            known = np.sort(column[np.isfinite(column)])
            places = np.linspace(0, known.size - 1, BINS)[1:-1].astype(np.int64)
            cuts.append(np.unique(known[places]) if known.size else np.zeros(0))
        kinds = []
        for column in codes.T:
            values, counts = np.unique(column, return_counts=True)
            often = np.argsort(-counts, kind="stable")[: BINS - 1]
            kinds.append(np.sort(values[often]))
        return cls(tuple(cuts), tuple(kinds))

    def bins(self, numbers: Floats, codes: Words) -> Bytes:
        """The bin of every row in every column, categories after numbers."""
        out = np.zeros((len(numbers), len(self.cuts) + len(self.kinds)), dtype=np.uint8)
        for j, cuts in enumerate(self.cuts):
            place = 1 + np.searchsorted(cuts, numbers[:, j], side="right")
            out[:, j] = np.where(np.isnan(numbers[:, j]), 0, place)
        for j, kinds in enumerate(self.kinds, start=len(self.cuts)):
            column = codes[:, j - len(self.cuts)]
            place = np.minimum(np.searchsorted(kinds, column), kinds.size - 1)
            out[:, j] = np.where(kinds[place] == column, 1 + place, 0)
        return out


class Trees(NamedTuple):
    """Fitted trees: of each the question at every level, and the score of every leaf."""

    first: Floats
    """The scores before the first tree, one for each label."""
    column: Ints
    cut: Ints
    leaf: Floats
    label: Ints
    """Which label's score each tree adds to."""
    categories: int
    """The first column that is a category: it is asked whether it is one bin, a number whether it is above one."""

    def after(self, part: int) -> int:
        """How many trees there are after the first of so many parts of the rounds; a round has one for each label."""
        each = np.unique(self.label).size
        return self.label.size // each // part * each


def fit_trees(bins: Bytes, outs: Ints, response: Response, categories: int) -> Trees:
    """Trees for these rows and outputs."""
    labels = response.labels
    trees = 1 if labels == 2 else labels
    rounds = max(_ROUNDS[1], min(_ROUNDS[0], _TREES // trees))
    rate = min(_PACE / rounds, 0.3)
    share = np.clip(response.frequencies(np.bincount(outs, minlength=labels)), 1.0 / (len(outs) + labels), 1.0)
    first = np.log(share / share.sum())
    found = Trees(
        first,
        np.zeros((rounds * trees, _DEPTH), dtype=np.int64),
        np.full((rounds * trees, _DEPTH), BINS, dtype=np.int64),
        np.zeros((rounds * trees, 1 << _DEPTH)),
        np.tile(np.arange(labels - trees, labels), rounds),
        categories,
    )
    scores = np.tile(first, (len(outs), 1))
    for at in range(0, rounds * trees, trees):
        pull, bend = np.empty((len(outs), trees)), np.empty((len(outs), trees))
        _slopes(scores, outs, response.truth, response.lie, pull, bend)
        for v in range(trees):
            rows = _some(len(outs), at + v)
            one = found.column[at + v], found.cut[at + v], found.leaf[at + v]
            _grow(bins, rows, pull[:, v].copy(), bend[:, v].copy(), categories, rate, *one)
        tree_scores(bins, found, at, at + trees, scores)
    return found


def _some(rows: int, turn: int) -> Ints:
    """The rows that a tree is grown of: about `_ROWS` of many, others for each tree; all of few."""
    if rows <= _ROWS:
        return np.arange(rows)
    mixed = (np.arange(rows, dtype=np.uint64) + _MIX[0] * np.array([turn + 1], dtype=np.uint64)) * _MIX[1]
    return np.flatnonzero((mixed ^ (mixed >> np.uint64(32))) % np.uint64(1 << 16) < np.uint64((_ROWS << 16) // rows))


@jit
def _slopes(scores: Floats, outs: Ints, keep: float, other: float, pull: Floats, bend: Floats) -> None:
    """The loss's slope in each score, and its mean square over outputs (Fisher's information) as the curvature."""
    labels, trees = scores.shape[1], pull.shape[1]
    p = np.empty(labels)
    for i in range(outs.size):
        top, total, power = scores[i].max(), 0.0, 0.0
        for v in range(labels):
            p[v] = np.exp(scores[i, v] - top)
            total += p[v]
        for v in range(labels):
            p[v] /= total
            power += ((keep - other) * p[v]) ** 2 / (other + (keep - other) * p[v])
        out = outs[i]
        weight = (keep - other) * p[out] / (other + (keep - other) * p[out])
        for t in range(trees):
            v = labels - trees + t
            own = ((keep - other) * p[v]) ** 2 / (other + (keep - other) * p[v])
            pull[i, t] = weight * (p[v] - (1.0 if v == out else 0.0))
            bend[i, t] = p[v] ** 2 * (power - own) + own * (1.0 - p[v]) ** 2


@jit
def _grow(
    bins: Bytes,
    rows: Ints,
    pull: Floats,
    bend: Floats,
    categories: int,
    rate: float,
    column: Ints,
    cut: Ints,
    leaf: Floats,
) -> None:
    """One tree: at each level the question that gains most over all its leaves together."""
    columns, at = bins.shape[1], np.zeros(rows.size, np.int64)
    for level in range(column.size):
        leaves = 1 << level
        sums = np.zeros((leaves, columns, BINS, 2))
        for r in range(rows.size):
            i = rows[r]
            for j in range(columns):
                sums[at[r], j, bins[i, j], 0] += pull[i]
                sums[at[r], j, bins[i, j], 1] += bend[i]
        best, gain = 0, np.zeros((columns, BINS))
        for n in range(leaves):
            whole, mass = sums[n, 0, :, 0].sum(), sums[n, 0, :, 1].sum()
            for j in range(columns):
                low, light = 0.0, 0.0
                for b in range(BINS):
                    if j >= categories:
                        low, light = sums[n, j, b, 0], sums[n, j, b, 1]
                    else:
                        low += sums[n, j, b, 0]
                        light += sums[n, j, b, 1]
                    high, heavy = whole - low, mass - light
                    gain[j, b] += (
                        low * low / (light + _RIDGE) + high * high / (heavy + _RIDGE) - whole * whole / (mass + _RIDGE)
                    )
        for k in range(columns * BINS):
            if gain[k // BINS, k % BINS] > gain[best // BINS, best % BINS]:
                best = k
        column[level], cut[level] = best // BINS, best % BINS
        for r in range(rows.size):
            at[r] = 2 * at[r] + _right(bins[rows[r], column[level]], column[level], cut[level], categories)
    total, weight = np.zeros(leaf.size), np.zeros(leaf.size)
    for r in range(rows.size):
        total[at[r]] += pull[rows[r]]
        weight[at[r]] += bend[rows[r]]
    for n in range(leaf.size):
        leaf[n] = -rate * total[n] / (weight[n] + _RIDGE)


@jit
def _right(bin_: int, column: int, cut: int, categories: int) -> int:
    return 1 if (bin_ != cut if column >= categories else bin_ > cut) else 0


@jit
def tree_scores(bins: Bytes, trees: Trees, first: int, last: int, scores: Floats) -> None:
    """Add these trees to the scores of rows."""
    for i in range(bins.shape[0]):
        for t in range(first, last):
            at = 0
            for level in range(trees.column.shape[1]):
                j = trees.column[t, level]
                at = 2 * at + _right(bins[i, j], j, trees.cut[t, level], trees.categories)
            scores[i, trees.label[t]] += trees.leaf[t, at]
