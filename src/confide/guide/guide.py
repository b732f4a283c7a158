"""The guide itself: what is asked, taught and released, in the order of rounds.

Its life, as POP leads it (under the model's lock):

1. `begin_round()`, once for every public round or row of history, first of all. If a leaf ended, its node is made,
   given to `store`, which makes it durable, and only then used. Nothing else ever closes a leaf.
2. `encode(x)`: the row's active features; None while ranges are still being counted, and then `count(x)`, once a unit.
   What is wrong with a malformed x is said in every phase. The map may change when a leaf closes: encode after
   `begin_round`, or as many rows ahead as `settle` says.
3. `score(encoded)`: the log-odds by the answering θ. Public, free, changes nothing; None before the first release.
4. `gradient(encoded, y)`, when the label comes and the unit's cap allows: into the open leaf.

Many rounds at once are `follow`, or `settle`, `encode_batch` and `run` where the caller encodes.

Everything here but the open leaf, the counts and the closed leaves' exact sums is a function of released nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide._checks import own_process
from confide.errors import StateError
from confide.guide.columns import Columns
from confide.guide.counting import RangeCounts
from confide.guide.hashed import HashedMap
from confide.guide.leaves import Leaves
from confide.guide.linear import add_gradient, run_rows
from confide.guide.maps import Encoded, FeatureMap
from confide.guide.model import Batch, Map, Model, encode_batch
from confide.guide.ranges import declared
from confide.guide.rows import read_many
from confide.planning.guided import GuidePlan
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random

__all__ = ["Asked", "Guide", "Release"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MANY = 1 << 20
_PIECE = 1 << 13  # rows that are encoded at once: what they are encoded to takes memory


class Release(NamedTuple):
    """What leaves when a leaf ends: the noisy row is public, the exact sums are for the ledger alone."""

    kind: str
    """"ranges" or "node"."""
    number: int
    row: Ints
    exact: Ints


class Asked(NamedTuple):
    """What the guide says to many rows."""

    answers: Ints
    """Its own label for each row; −1 where it has none."""
    refused: Mask
    """Rows that it cannot read."""
    scores: Floats
    """Log-odds, one column a vector of θ: of label 1 where there are two labels; zeros where there is no answer."""
    rows: list[Encoded | None]
    """The rows encoded, if they were asked for: what `gradient` takes when a label comes later."""


class Guide:
    """A linear model that learns from noisy sums of gradients (docs/proofs/guide.md).

    Parameters
    ----------
    plan
        Its numbers.
    features
        A feature map (`FeatureMap`, or `HashedMap` where no names are declared); or columns: the map is then made from
        `ranges` and those that the plan counts, and needs none where it has none (`confide.guide.inputs.columns_for`).
        With a ready map, or every range declared, nothing is counted: learning begins at once and ends with the last
        leaf, as many rounds before the plan's end as counting would have taken.
    label_weights
        One positive public weight a label, or None: gradients are scaled by it before they are clipped.
    ranges
        Declared ranges of numeric columns, by name.
    rng
        The generator of the noise; by default a secure one of the guide's own.
    store
        Called with every `Release` before it is used, to make it durable.

    Examples
    --------
    >>> plan = GuidePlan.best(epsilon=4.0, delta=1e-6, rounds=5000)
    >>> guide = Guide(plan, Columns(numeric=("a", "b")), rng=Random(seed=1))
    >>> wrong = 0
    >>> for i in range(5000):
    ...     a, b = float(i % 97), float(i % 89)
    ...     guide.begin_round()
    ...     encoded = guide.encode({"a": a, "b": b})
    ...     if encoded is None:
    ...         guide.count({"a": a, "b": b})
    ...         continue
    ...     score, label = guide.score(encoded), int(a > b)
    ...     wrong += i > 3000 and (score is None or int(score[1] > score[0]) != label)
    ...     guide.gradient(encoded, label)
    >>> wrong < 400
    True
    """

    def __init__(
        self,
        plan: GuidePlan,
        features: Map | Columns,
        label_weights: Sequence[float] | None = None,
        rng: Random | None = None,
        store: Callable[[Release], None] | None = None,
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        ranges = ranges or {}
        numeric = features.numeric if isinstance(features, Columns) else ()
        if not set(ranges) <= set(numeric):
            raise ValueError("ranges are declared for numeric columns, by their names; a ready map has its own")
        weights = np.ones(plan.labels) if label_weights is None else np.array(label_weights, dtype=np.float64)
        if weights.shape != (plan.labels,) or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(f"label_weights must hold {plan.labels} positive numbers, one for each label")
        # Only ratios count, and the largest is 1: what is above it would be lost where gradients are clipped anyway.
        self.plan, self._weights, self.store = plan, weights / weights.max(), store
        self._rng = Random() if rng is None else rng
        self._failed, self._pid = False, os.getpid()
        self.rounds = 0
        """Rounds and rows of history begun so far."""
        self.ranges: Ints | None = None
        """The released counts, where ranges are private."""
        self._leaves: Leaves | None = None
        self._first = 0  # rounds before the first leaf
        if isinstance(features, Columns) and plan.range_rounds and set(features.numeric) - set(ranges):
            self._first, self._counted = plan.range_rounds, RangeCounts(features, ranges, plan.range_norm)
            self._range_noise = GaussianNoise(plan.range_sigma2).draw(self._rng, self._counted.counts.size)
        elif isinstance(features, Columns):
            self._leaves = Leaves(plan, FeatureMap(features, declared(ranges, features.numeric)), self._rng)
        else:
            self._leaves = Leaves(plan, features, self._rng)
        self._last = plan.rounds + plan.history
        self._end = min(self._last, self._first + plan.leaves * plan.leaf)  # of the rounds that are learned

    @property
    def features(self) -> Map | None:
        """The map as it is now; None while ranges are counted."""
        return None if self._leaves is None else self._leaves.features

    @property
    def closed(self) -> int:
        """Leaves closed so far."""
        return 0 if self._leaves is None else self._leaves.closed

    @property
    def ready(self) -> int:
        """Rounds after which there is a θ to answer with (public)."""
        return self._first + self.plan.leaf

    @property
    def counting(self) -> int:
        """How many of the next rounds are counted for the ranges, and neither answered nor taught (public)."""
        return max(0, self._first - self.rounds)

    # ------------------------------------------------------------------ rounds

    def begin_round(self) -> None:
        """Take the next public round, or row of history: first of all, close the leaf that ended before it."""
        self._close_due()
        self.rounds += 1

    def _close_due(self) -> None:
        self._check()
        while (due := self._due()) is not None:
            self._failed = True  # until the release is durable and used; the same noise must not meet another sum
            self._release(due)
            self._failed = False

    def _check(self) -> None:
        own_process(self._pid, "guide")  # noise is drawn ahead: two processes would release two sums with one noise
        if self._failed:
            raise StateError("a release could not be stored, and the guide stopped: load it again from its ledger")

    def _due(self) -> str | None:
        """What is released by the call that takes the next round."""
        if self.rounds >= self._last:
            return None  # past its rounds the guide is frozen
        if self._leaves is None:
            return "ranges" if self.rounds >= self._first else None
        ended = (self.rounds - self._first) // self.plan.leaf
        return "node" if self._leaves.closed < min(self.plan.leaves, ended) else None

    def settle(self) -> int:
        """Close what is due before the next round, and return for how many rounds the map stays as it then is.

        So many rows may be encoded ahead, and given to `run`.
        """
        self._close_due()
        if self._leaves is None:
            return self.counting or MANY  # none is left only past the last round
        later = [self._first + leaves * self.plan.leaf for leaves in self._leaves.renewing()]
        return min([at for at in later if self.rounds < at < self._last], default=self.rounds + MANY) - self.rounds

    def _release(self, kind: str) -> None:
        """Make a release, have it made durable, and use it."""
        if self._leaves is None:
            exact = self._counted.counts.ravel()
            release = Release(kind, 0, exact + self._range_noise, exact)
        else:
            release = Release(kind, self._leaves.closed, *self._leaves.node())
        if self.store is not None:
            self.store(release)
        if self._leaves is None:
            self._found(release.row)
        else:
            self._leaves.close(release.row)

    def _found(self, row: Ints) -> None:
        self.ranges = row.copy()
        self._leaves = Leaves(self.plan, self._counted.map(row, self.plan.range_sigma2**0.5), self._rng)

    # ------------------------------------------------------------------ rows

    def read(self, x: Any, /) -> None:
        """Nothing for a row that the guide takes; for another the ValueError that says what is wrong with it."""
        self.encode(x)

    def encode(self, x: Any, /) -> Encoded | None:
        """The active features of `x`; None while its map is not yet known. A malformed x is a ValueError."""
        if self.features is not None:
            return self.features.encode(x)
        self._counted.columns.read(x)
        return None

    def unreadable(self, rows: Any) -> Mask:
        """Which rows the guide cannot read, now or later: that depends on its columns alone."""
        if isinstance(self.features, HashedMap):
            return self.features.encode_many(rows)[2]
        return read_many(self._counted.columns if self.features is None else self.features.columns, rows).refused

    def count(self, x: Any, /) -> None:
        """Count one row for the private ranges: at most one of a unit, and only before they are released."""
        if self._leaves is None and 0 < self.rounds <= self._first:
            self._counted.add(self._counted.columns.read(x).numbers[None, :])

    def score(self, encoded: Encoded, /) -> Floats | None:
        """Log-odds, one a label, up to a constant; None before the first release."""
        return None if self.closed == 0 else self.model.score(encoded)

    def answer(self, encoded: Encoded, /) -> int:
        """The label index with the largest score, of several the first; −1 before the first release."""
        score = self.score(encoded)
        return -1 if score is None else int(score.argmax())

    def probabilities(self, x: Any, /) -> Floats:
        """One a label, all alike before the first release. Public and free: it takes no round and changes nothing."""
        self.read(x)
        return np.full(self.plan.labels, 1 / self.plan.labels) if self.closed == 0 else self.model.probabilities(x)

    def export(self) -> dict[str, Any]:
        """The model as JSON's kinds of values: it was released privately, and may be shipped (`Model.from_params`)."""
        return self.model.params()

    @property
    def model(self) -> Model:
        """The answering model as it is now; it changes with the next release. `model.params()` may be shipped."""
        if self._leaves is None:
            raise ValueError("the ranges are still being counted, so there is no model yet: ask again later")
        return Model(self._leaves.features, self._leaves.answering)

    def gradient(self, encoded: Encoded, y: int, /) -> None:
        """Teach the label index `y`: one gradient into the open leaf. The unit's cap is the caller's to keep."""
        self._check()
        leaves, plan = self._leaves, self.plan
        if leaves is not None and self.rounds <= self._end and 0 <= y < plan.labels:
            weight = float(self._weights[y])
            add_gradient(leaves.theta, *encoded, y, weight, plan.clip, plan.scale, leaves.open)

    # ------------------------------------------------------------------ many rounds

    def follow(
        self, rows: Any, labels: Ints, counted: Mask | None = None, bad: Mask | None = None, keep: bool = False
    ) -> Asked:
        """Rounds in order, each asked and then taught: what the methods above do one by one, to the last bit.

        Parameters
        ----------
        rows
            A sequence of rows, or an array with one in each line.
        labels
            One a row; below 0 for a label that does not come, or that the unit's cap does not allow.
        counted
            Which rows are counted for the ranges, if they still are: at most one of a unit. None for all.
        bad
            Rows that were refused elsewhere: they take their round, and are neither asked, counted nor taught.
        keep
            Whether to return the rows as they were encoded, for labels that come later.
        """
        n = labels.size
        asked = Asked(np.full(n, -1), np.zeros(n, dtype=np.bool_), np.zeros((n, self.plan.vectors)), [])
        counted = np.ones(n, dtype=np.bool_) if counted is None else counted
        bad = np.zeros(n, dtype=np.bool_) if bad is None else bad
        if not len(rows) == n == counted.size == bad.size:
            raise ValueError("give one label, and one entry of each mask, for every row")
        done = 0
        while done < n:
            part = slice(done, min(n, done + self.settle(), done + _PIECE))
            done = part.stop
            if self._leaves is None:
                asked.refused[part] = self._count(rows[part], counted[part] & ~bad[part])
                asked.rows.extend([None] * (part.stop - part.start if keep else 0))
                continue
            batch = encode_batch(self._leaves.features, rows[part])
            asked.refused[part] = batch.refused
            batch = Batch(*batch[:4], batch.refused | bad[part])
            self._ask(batch, labels[part], asked.answers[part], asked.scores[part])
            asked.rows.extend(batch.row(i) for i in range(batch.refused.size if keep else 0))
        return asked

    def _count(self, rows: Any, counted: Mask) -> Mask:
        table = read_many(self._counted.columns, rows)
        if self.counting:
            self._counted.add(table.numbers[counted & ~table.refused])
        self.rounds += table.refused.size
        return table.refused

    def _ask(self, batch: Batch, labels: Ints, answers: Ints, scores: Floats) -> None:
        """`run`, and the answers that follow from the scores."""
        waiting = 0 if self.closed else self.ready - self.rounds
        found = self.run(batch, labels)
        known = np.flatnonzero(~batch.refused[waiting:]) + waiting if self.closed else np.zeros(0, dtype=np.int64)
        scores[known] = found[known]
        answers[known] = found[known, 0] > 0 if self.plan.vectors == 1 else found[known].argmax(axis=1)

    def run(self, batch: Batch, labels: Ints) -> Floats:
        """Many rounds at once, each asked and then taught: the scores, the same bits as one by one.

        A label below 0 never comes, and that of a refused row is not taught: it takes its round all the same. One row
        of scores for each, zeros before the first release.
        """
        plan, n, leaves = self.plan, labels.size, self._leaves
        if self.settle() < n or leaves is None or batch.features is not leaves.features or batch.refused.size != n:
            raise ValueError("the map changes in these rounds: settle, encode as many rows as it says, then run them")
        labels = np.where(batch.refused | (labels >= plan.labels), -1, labels)
        out = np.zeros((n, plan.vectors))
        done = 0
        while done < n:
            self._close_due()
            left = plan.leaf - (self.rounds - self._first) % plan.leaf
            past = self.rounds >= self._end
            size = n - done if past else min(n - done, left, self._end - self.rounds)
            part = slice(done, done + size)
            taught = np.full(size, -1) if past else labels[part]
            run_rows(
                leaves.theta, leaves.answering, batch.starts[done : done + size + 1], batch.indices, batch.values,
                taught, self._weights, plan.clip, plan.scale, leaves.open, out[part],
            )  # fmt: skip
            self.rounds += size
            done += size
        return out

    # ------------------------------------------------------------------ state

    def releases(self) -> list[Release]:
        """Everything released so far, in order, with the exact sums: what a ledger that begins now must hold."""
        counts = [] if self.ranges is None else [Release("ranges", 0, self.ranges.copy(), np.zeros(0, dtype=np.int64))]
        if self._leaves is None:
            return counts
        nodes = zip(self._leaves.rows[: self.closed], self._leaves.sums, strict=False)
        return counts + [Release("node", i, row.copy(), exact.copy()) for i, (row, exact) in enumerate(nodes)]

    def resume(self, rounds: int, releases: Sequence[Release]) -> None:
        """A fresh guide becomes the one that made these releases, `rounds` rounds after its beginning.

        The open leaf starts empty and keeps its number; θ is computed again from the released rows, bit for bit.
        """
        if self.rounds or self.closed or self.ranges is not None:
            raise StateError("resume with a fresh guide: this one has begun already")
        ranges, nodes = ([r for r in releases if r.kind == kind] for kind in ("ranges", "node"))
        if [r.number for r in ranges + nodes] != [*range(len(ranges)), *range(len(nodes))]:
            raise StateError("a release is missing in the ledger: this state must not be used")
        if ranges and self._leaves is None and ranges[0].row.size == self._counted.counts.size:
            self._found(ranges.pop().row)
        known = self._leaves.open.size if self._leaves is not None else None
        fits = not ranges and all(r.row.size == r.exact.size == known for r in nodes) and len(nodes) <= self.plan.leaves
        if not fits:
            raise StateError("the releases do not belong to this guide: load it with its own plan, features and ledger")
        if self._leaves is not None:
            self._leaves.load([r.row for r in nodes], [r.exact for r in nodes])
        self.rounds = rounds

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._pid = os.getpid()  # a secure generator is not pickled, so no noise that protects anybody comes twice

    def __repr__(self) -> str:
        seeded = "" if self._rng.secure else ", insecure: seeded"
        return f"Guide(rounds={self.rounds}, closed={self.closed} of {self.plan.leaves}{seeded})"
