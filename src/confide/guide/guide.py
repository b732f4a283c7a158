"""The guide itself: what is asked, taught and released, in the order of rounds.

Its life, as POP leads it (under the model's lock):

1. `begin_round()`, once for every public round or row of history, first of all. If a leaf ended, its node is made,
   given to `store`, which makes it durable, and only then used. Nothing else ever closes a leaf.
2. `encode(x)`: the row's active features; None while ranges are still being counted, and then `count(x)`, once a unit.
   What is wrong with a malformed x is said in every phase. The map may change when a leaf closes: encode after
   `begin_round`, or as many rows ahead as `settle` says.
3. `score(encoded)`: the log-odds by the answering θ. Public, free, changes nothing; None before the first release.
4. `gradient(encoded, y)`, when the label comes and the unit's cap allows: into the open leaf.

Everything here but the open leaf, the counts and the closed leaves' exact sums is a function of released nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.errors import StateError
from confide.guide.columns import Columns
from confide.guide.counting import RangeCounts
from confide.guide.linear import add_gradient, follow, run_rows
from confide.guide.maps import Encoded, FeatureMap
from confide.guide.model import Batch, Map, Model, map_params
from confide.guide.partitions import DEPTH, renewals
from confide.guide.ranges import declared
from confide.planning.guided import GuidePlan
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random
from confide.privacy.sums import decode, encode

__all__ = ["Guide", "Release"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MANY = 1 << 20
_RENEWED = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2)  # parts of the leaves after which partitions may be drawn anew


class Release(NamedTuple):
    """What leaves when a leaf ends: the noisy row is public, the exact sums are for the ledger alone."""

    kind: str
    """"ranges" or "node"."""
    number: int
    row: Ints
    exact: Ints


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
        self.plan, self._weights, self._store = plan, weights, store
        self._rng = Random() if rng is None else rng
        self._noise = GaussianNoise(plan.sigma2)
        self._failed = False
        self.rounds = 0
        """Rounds and rows of history begun so far."""
        self.closed = 0
        """Leaves closed so far."""
        self.ranges: Ints | None = None
        """The released counts, where ranges are private."""
        self.features: Map | None = None
        self._first = 0  # rounds before the first leaf
        if not isinstance(features, Columns):
            self._start(features)
        elif plan.range_rounds and set(features.numeric) - set(ranges):
            self._first, self._counted = plan.range_rounds, RangeCounts(features, ranges, plan.range_norm)
            self._range_noise = GaussianNoise(plan.range_sigma2).draw(self._rng, self._counted.counts.size)
        else:
            self._start(FeatureMap(features, declared(ranges, features.numeric)))
        self._end = min(plan.rounds + plan.history, self._first + plan.leaves * plan.leaf)  # of rounds that are learned

    def _start(self, features: Map) -> None:
        plan, size = self.plan, features.width * self.plan.vectors
        self.features = features
        self._leaf = np.zeros(size, dtype=np.int64)
        self._sums = np.zeros((plan.leaves, size), dtype=np.int64)
        self._rows = np.zeros((plan.leaves, size), dtype=np.int64)
        self._theta = np.zeros((features.width, plan.vectors))
        self._answering = np.zeros((features.width, plan.vectors))
        self._decoded, self._base = np.zeros(size), np.zeros(size)
        self._born: dict[int, int] = {}  # when a renewed partition began, in closed leaves
        self._ahead = self._noise.draw(self._rng, size)

    # ------------------------------------------------------------------ rounds

    def begin_round(self) -> None:
        """Take the next public round, or row of history: first of all, close the leaf that ended before it."""
        self._close_due()
        self.rounds += 1

    def _close_due(self) -> None:
        while (due := self._due(self.rounds)) is not None:
            self._check()
            self._failed = True  # until the release is durable and used; the same noise must not meet another sum
            self._accept(self._release(due))
            self._failed = False

    def _check(self) -> None:
        if self._failed:
            raise StateError("a release could not be stored, and the guide stopped: load it again from its ledger")

    def _due(self, rounds: int) -> str | None:
        """What is released by the call that takes the round after `rounds`."""
        plan = self.plan
        if rounds >= plan.rounds + plan.history:
            return None  # past its rounds the guide is frozen
        if self.features is None:
            return "ranges" if rounds == self._first else None
        return "node" if self.closed < min(plan.leaves, (rounds - self._first) // plan.leaf) else None

    def settle(self) -> int:
        """Close what is due before the next round, and return for how many rounds the map stays as it then is.

        So many rows may be encoded ahead, and given to `run`.
        """
        self._close_due()
        if self.features is None:
            return self._first - self.rounds
        last = self.plan.rounds + self.plan.history
        later = [self._first + leaves * self.plan.leaf for leaves in self._renewing()]
        return min([when for when in later if self.rounds < when < last], default=self.rounds + MANY) - self.rounds

    @property
    def ready(self) -> int:
        """Rounds after which there is a θ to answer with (public)."""
        return self._first + self.plan.leaf

    def _renewing(self) -> list[int]:
        """After which numbers of leaves partitions, if the map has any, may be drawn anew: public."""
        parted = isinstance(self.features, FeatureMap) and len(self.features.parts[1])
        return [max(1, round(part * self.plan.leaves)) for part in _RENEWED] if parted else []

    def _release(self, kind: str) -> Release:
        if kind == "ranges":
            exact = self._counted.counts.ravel()
            return Release(kind, 0, exact + self._range_noise, exact)
        i, row = self.closed, self._ahead.copy()
        self._sums[i] = self._leaf
        encode(self.plan.root.factor, self._sums, i, row)
        return Release(kind, i, row, self._leaf.copy())

    def _accept(self, release: Release) -> None:
        """Use a release, once it is durable."""
        if self._store is not None:
            self._store(release)
        if release.kind == "ranges":
            self._found(release.row)
            return
        self._leaf[:] = 0
        self._learn_from(release.row)
        self._ahead = self._noise.draw(self._rng, self._leaf.size)

    def _found(self, row: Ints) -> None:
        """The map that released counts give: a function of them and of public constants."""
        self.ranges = row.copy()
        self._start(self._counted.map(row, self.plan.range_sigma2**0.5))

    def _learn_from(self, row: Ints) -> None:
        plan = self.plan
        self._rows[self.closed] = row
        decode(plan.root.decoder, self._rows, self.closed, self._decoded)
        self.closed += 1
        since = self._decoded - self._base
        follow(since, plan.step / plan.scale, plan.memory, self.closed, self._theta, self._answering)
        if isinstance(self.features, FeatureMap) and self.closed in self._renewing():
            self._renew(self.features, since)

    def _renew(self, features: FeatureMap, since: Floats) -> None:
        """Draw partitions anew that stand for nothing, by what was released: their sums begin again at 0."""
        first, columns = features.parts
        number, size, vectors = columns.shape[0], 1 << DEPTH, self.plan.vectors
        sums = since[first * vectors : (first + number * size) * vectors].reshape(number, size * vectors)
        noise = np.array([self._variance(self._born.get(i, 0)) for i in range(number)])
        standing = ((sums**2).sum(axis=1) / noise - size * vectors) / np.sqrt(2 * size * vectors)
        changed = renewals(columns, standing, self.closed, features.seed)
        if changed:
            self.features = replace(features, renewed=features.renewed + changed)
        for i, _, _ in changed:
            part = slice(first + i * size, first + (i + 1) * size)
            flat = slice(part.start * vectors, part.stop * vectors)
            self._base[flat] = self._decoded[flat]
            self._theta[part], self._answering[part] = 0.0, 0.0
            self._born[i] = self.closed

    def _variance(self, born: int) -> float:
        """The variance of the noise in a prefix sum now less that after `born` leaves."""
        decoder, now = self.plan.root.decoder, self.closed
        weights = decoder[:now][::-1].copy()
        weights[:born] -= decoder[:born][::-1]
        return self.plan.sigma2 * float((weights**2).sum())

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

    def count(self, x: Any, /) -> None:
        """Count one row for the private ranges: at most one of a unit, and only before they are released."""
        if self.features is None and 0 < self.rounds <= self._first:
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
        if self.features is None:
            raise ValueError("the ranges are still being counted, so there is no model yet: ask again later")
        return Model(self.features, self._answering)

    def gradient(self, encoded: Encoded, y: int, /) -> None:
        """Teach the label index `y`: one gradient into the open leaf. The unit's cap is the caller's to keep."""
        self._check()
        open_ = self.features is not None and self.rounds <= self._end
        if open_ and 0 <= y < self.plan.labels:
            indices, values = encoded
            weight = float(self._weights[y])
            add_gradient(self._theta, indices, values, y, weight, self.plan.clip, self.plan.scale, self._leaf)

    def run(self, batch: Batch, labels: Ints) -> Floats:
        """Many rounds at once, each asked and then taught: the scores, the same bits as one by one.

        A label below 0 never comes, and that of a refused row is not taught: it takes its round all the same. One row
        of scores for each, zeros before the first release.
        """
        plan, n = self.plan, labels.size
        if self.settle() < n or batch.features is not self.features:
            raise ValueError("the map changes in these rounds: settle, encode as many rows as it says, then run them")
        out = np.zeros((n, plan.vectors))
        done = 0
        while done < n:
            self._close_due()
            left = plan.leaf - (self.rounds - self._first) % plan.leaf
            past = self.rounds >= self._end
            size = n - done if past else min(n - done, left, self._end - self.rounds)
            part = slice(done, done + size)
            taught = np.where(batch.refused[part] | past, -1, labels[part])
            run_rows(
                self._theta, self._answering, batch.starts[done : done + size + 1], batch.indices, batch.values, taught,
                self._weights, plan.clip, plan.scale, self._leaf, out[part],
            )  # fmt: skip
            self.rounds += size
            done += size
        return out

    def run_ranges(self, numbers: Floats) -> None:
        """The rounds whose rows are counted for the ranges, many at once; every row is a unit's first."""
        if self.features is not None or self.rounds + len(numbers) > self._first:
            raise ValueError("fewer rounds are left for counting than there are rows")
        self._counted.add(numbers)
        self.rounds += len(numbers)

    # ------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Released rows and public numbers: all that a guide is, but for its open leaf. Nothing in it is private."""
        return {
            "rounds": self.rounds,
            "ranges": None if self.ranges is None else self.ranges.copy(),
            "features": None if self.features is None else map_params(self.features),
            "rows": self._rows[: self.closed].copy() if self.features is not None else None,
        }

    def releases(self) -> list[Release]:
        """Everything released so far, in order, with the exact sums: what a ledger that begins now must hold."""
        counts = [] if self.ranges is None else [Release("ranges", 0, self.ranges.copy(), np.zeros(0, dtype=np.int64))]
        nodes = range(self.closed)
        return counts + [Release("node", i, self._rows[i].copy(), self._sums[i].copy()) for i in nodes]

    def resume(self, rounds: int, releases: Sequence[Release]) -> None:
        """A fresh guide becomes the one that made these releases, `rounds` rounds after its beginning."""
        nodes = [release for release in releases if release.kind == "node"]
        if [release.number for release in nodes] != list(range(len(nodes))):
            raise StateError("a release is missing in the ledger: this state must not be used")
        ranges = next((release.row for release in releases if release.kind == "ranges"), None)
        rows, sums = (np.array([release[i] for release in nodes]) if nodes else None for i in (2, 3))
        self.restore({"rounds": rounds, "ranges": ranges, "rows": rows}, sums)

    def restore(self, state: dict[str, Any], sums: Ints | None) -> None:
        """A fresh guide becomes the one that released `state`; `sums` are the ledger's exact sums of closed leaves.

        The open leaf starts empty and keeps its number; θ is computed again from the released rows, bit for bit.
        """
        if self.rounds or self.closed:
            raise StateError("restore into a fresh guide: this one has begun already")
        if state["ranges"] is not None and self.features is None:
            self._found(np.asarray(state["ranges"], dtype=np.int64))
        rows = state["rows"]
        if rows is not None and len(rows):
            shape = (len(rows), self._leaf.size)
            if sums is None or np.shape(rows) != shape or np.shape(sums) != shape or len(rows) > self.plan.leaves:
                raise StateError("the released rows do not belong to this guide: load it with its own plan and ledger")
            self._sums[: len(rows)] = sums
            for row in np.asarray(rows, dtype=np.int64):
                self._learn_from(row)
        if "features" in state and state["features"] != (None if self.features is None else map_params(self.features)):
            raise StateError("the released rows are those of another map: declare the features as before")
        self.rounds = int(state["rounds"])

    def __repr__(self) -> str:
        seeded = "" if self._rng.secure else ", insecure: seeded"
        return f"Guide(rounds={self.rounds}, closed={self.closed} of {self.plan.leaves}{seeded})"
