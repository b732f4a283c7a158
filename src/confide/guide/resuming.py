"""A guide from what it released: a load, a successor, and what a ledger that begins now must hold."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from confide.arrays import Ints
from confide.contained import contained
from confide.errors import StateError
from confide.guide.carried import Carried
from confide.guide.course import NONE, Course, Release
from confide.guide.hashed import HashedMap
from confide.guide.leaves import Leaves
from confide.guide.maps import FeatureMap
from confide.guide.model import Map, map_from_params, map_params

_KINDS = ("map", "warm", "ranges", "epoch", "node")


class Resuming(Course):
    """What of a guide is durable: its releases, and the way back from them."""

    def releases(self) -> list[Release]:
        """Everything released so far, in order, with the exact sums: what a ledger that begins now must hold.

        Of earlier epochs only what the open one began with is left, a function of what they had released, as a release
        of kind "epoch": so memory does not grow.
        """
        given = [] if self._given is None else [self._given]
        known = None if self.finding else self.ranges  # which an interrupt may have left half found: they come again
        counts = [] if known is None else [Release("ranges", 0, known.copy(), NONE)]
        warm = [] if self._warm is None else _sums(self._warm)
        begun = [Release("epoch", self.epoch, self._leaves.began, NONE)] if self.epoch else []
        return given + warm + counts + begun + ([] if self.finding else _sums(self._leaves))

    def resume(self, rounds: int, releases: Sequence[Release]) -> None:
        """A fresh guide becomes the one that made these releases, `rounds` rounds after its beginning.

        A release is of rounds that were taken, whatever `rounds` says. The open leaf starts empty and keeps its number;
        θ is computed again from the released rows, bit for bit: from all of them, or from the beginning of an epoch.
        """
        if self.rounds or self.closed or self.ranges is not None:
            raise StateError("resume with a fresh guide: this one has begun already")
        given, warm, ranges, begun, nodes = ([r for r in releases if r.kind == kind] for kind in _KINDS)
        if given:
            self._adopt(given[0], begun)
        epoch = begun[-1].number if begun else 0
        nodes = [r for r in nodes if r.number >= epoch * self.plan.leaves]  # those before are in what it began with
        numbers = [*range(len(warm)), *range(len(ranges)), *(epoch * self.plan.leaves + i for i in range(len(nodes)))]
        if [r.number for r in warm + ranges + nodes] != numbers:
            raise StateError("a release is missing in the ledger: this state must not be used")
        fits = {r.kind for r in releases} <= {"map", "epoch", "node", *(_KINDS[1:3] if self.finding else ())}
        if fits and self.finding:
            fits = _load(self._leaves, warm)
            if fits and ranges:
                fits = self._leaves.full and ranges[0].row.size == self._counted.counts.size
                if fits:
                    self._found(ranges[0].row)
            fits = fits and (not self.finding or not nodes)
        if fits and begun:
            fits = not self.finding and self._begun(epoch, begun[-1].row)
        fits = fits and (self.finding or self._loaded(nodes))
        if not fits:
            raise StateError("the releases do not belong to this guide: load it with its own plan, features and ledger")
        self.rounds = max(rounds, self._began + self._leaves.past, 0 if self.finding else self._first)

    def inherit(self, features: Map, carried: Carried | None, epoch: int) -> None:
        """A fresh guide begins with a predecessor's map, and, without an end, with what it had learned.

        Both are functions of what that one released. `epoch` is the predecessor's: the new one begins in a later one,
        whose leaves are as long as what was learned is old.
        """
        first = max(1, epoch) if carried is not None and self.plan.endless else 0
        body = json.dumps(map_params(features)).encode()
        row = np.frombuffer(body.ljust(-(-len(body) // 8) * 8), dtype="<i8").astype(np.int64)
        releases = [Release("map", first, row, NONE)]
        if first and carried is not None:
            stage = self.plan.epoch(first)
            releases.append(Release("epoch", first, carried.for_heir(stage).pack(features, stage.before), NONE))
        self.resume(0, releases)

    def left(self) -> tuple[Map, Carried | None] | None:
        """What a successor may begin with: the map, and what was learned; None while ranges are to be found."""
        return None if self.finding else (self.features, self._leaves.left())

    def _adopt(self, given: Release, begun: Sequence[Release]) -> None:
        """The map of a predecessor: nothing is counted, and there is no warm-up."""
        known: Map | None = None
        with contained:
            known = map_from_params(json.loads(given.row.astype("<i8").tobytes()))
        mine = self.features
        if known is None or not alike(known, mine) or (given.number and not (self.plan.endless and begun)):
            raise StateError("the releases do not belong to this guide: load it with its own plan, features and ledger")
        stage = self.plan.epoch(given.number)
        self._leaves, self._warm, self._given = Leaves(self.plan, stage, known, self._rng), None, given
        self._leaves.given = known.renewed if isinstance(known, FeatureMap) else ()
        self._first, self._handover = -stage.start, 0

    def _begun(self, epoch: int, row: Ints) -> bool:
        """Begin in an epoch with what was left to it; False where that cannot be."""
        if not (self.plan.endless and epoch > 0):
            return False
        stage = self.plan.epoch(epoch)
        found = Carried.unpack(row, self.features, self.plan.vectors, stage)
        if found is not None:
            given = self._leaves.given
            softer = self._first if self._warm is not None and self._keeping else 0
            self._leaves = Leaves(self.plan, stage, found[1], self._rng, found[0], softer)
            self._leaves.given = given
        return found is not None

    def _loaded(self, nodes: Sequence[Release]) -> bool:
        """What the stage had released, epoch by epoch; False where that cannot be."""
        if not self.plan.endless:
            return _load(self._leaves, nodes)
        for first in range(0, len(nodes), self.plan.leaves):
            if not _load(self._leaves, nodes[first : first + self.plan.leaves]):
                return False
            self._turn()
        return True


def alike(one: Map, other: Map) -> bool:
    """Whether two maps read the same columns."""
    if isinstance(one, HashedMap) or isinstance(other, HashedMap):
        return one == other
    kinds = "numeric", "categorical", "text"
    return all(getattr(one.columns, kind) == getattr(other.columns, kind) for kind in kinds)


def _sums(leaves: Leaves) -> list[Release]:
    """What one stage has released."""
    rows = zip(leaves.rows[: leaves.closed], leaves.sums, strict=False)
    first = leaves.stage.before
    return [Release(leaves.stage.kind, first + i, row.copy(), exact.copy()) for i, (row, exact) in enumerate(rows)]


def _load(leaves: Leaves, releases: Sequence[Release]) -> bool:
    """What one stage had released; False where that cannot be."""
    fits = len(releases) <= leaves.stage.leaves and all(
        r.row.size == r.exact.size == leaves.open.size for r in releases
    )
    if fits:
        leaves.load([r.row for r in releases], [r.exact for r in releases])
    return fits
