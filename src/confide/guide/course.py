"""The course of a guide: which leaf is open, what is due in which round, what was released, and what a question meets.

What is taught is another matter (`confide.guide.guide`), and so is what a ledger has of it (`confide.guide.resuming`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from confide._checks import label_weights as checked_weights
from confide._checks import own_process
from confide.arrays import Floats, Ints
from confide.errors import StateError
from confide.guide.columns import Columns
from confide.guide.counting import RangeCounts
from confide.guide.leaves import Kept, Leaves
from confide.guide.maps import FeatureMap
from confide.guide.model import Map, Question, score_of
from confide.guide.ranges import declared
from confide.planning.guided import GuidePlan
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random

MANY = 1 << 20
NONE = np.zeros(0, dtype=np.int64)
OTHERS = "these sums are of another guide: every owner must have the model's own plan and features"


class Release(NamedTuple):
    """What leaves when a leaf ends: the noisy row is public, the exact sums are for the ledger alone."""

    kind: str
    """"warm" for a sum of the warm-up, "ranges", or "node" for any other sum.

    "epoch" for what an epoch begins with: no release, but all that is needed of those of earlier epochs. "map" for a
    predecessor's map; its number is the epoch that a successor begins with.
    """
    number: int
    """Of this kind, from 0 on. Nodes of all epochs are counted together: of epoch e the first is e · plan.leaves."""
    row: Ints
    exact: Ints

    def __repr__(self) -> str:
        return f"Release(kind={self.kind!r}, number={self.number})"


class Course:
    """What of a guide is led through public rounds: its stages, epochs and leaves, and what is released when one ends.

    Its parameters are those of `confide.guide.guide.Guide`.
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
        weights = np.array(checked_weights(label_weights, range(plan.labels)) or [1.0] * plan.labels)
        # Only ratios count, and the largest is 1: what is above it would be lost where gradients are clipped anyway.
        self.plan, self._weights, self.store = plan, weights / weights.max(), store
        self._rng = Random() if rng is None else rng
        self._failed, self._pid = False, os.getpid()
        self._under_way: Release | None = None
        self.rounds = 0
        """Rounds and rows of history begun so far."""
        self.ranges: Ints | None = None
        """The released counts, where ranges are private."""
        self._first, self._handover = 0, 0  # rounds of the warm-up, and leaves after it until its answers end
        self._keeping = False  # whether what it is taught is kept, and teaches the main stage
        self._teaches = False  # whether that is under way
        self._warm: Leaves | None = None
        self._given: Release | None = None  # the map of a predecessor
        if isinstance(features, Columns) and _counts(plan, features):
            self._first, self._counted = plan.range_rounds, RangeCounts(features, ranges, plan.range_norm)
            if self._counted.counts.size > plan.range_values:
                raise ValueError("there are more numeric columns than the plan certifies counts of: take fewer of them")
            self._range_noise = GaussianNoise(plan.range_sigma2).draw(self._rng, self._counted.counts.size)
            self._keeping = plan.kept_clip > 0
            self._handover = 1 if self._keeping else plan.main.reaching(plan.range_rounds / 2)
            stage = plan.warm
        else:
            stage = plan.main
        known = FeatureMap(features, declared(ranges, features.numeric)) if isinstance(features, Columns) else features
        self._leaves = Leaves(plan, stage, known, self._rng)  # of the stage that learns
        if self._first:
            self._warm = self._leaves
        self._last = sys.maxsize if plan.endless else plan.length
        self._settled: tuple[Leaves | None, int, int] = None, 0, 0  # until when the map stays, as of a leaf

    @property
    def finding(self) -> bool:
        """Whether ranges are to be found yet: the warm-up learns (public)."""
        return self._leaves is self._warm

    @property
    def stage(self) -> int:
        """The stage that learns (public): 0 for the warm-up, 1 for the other."""
        return self._leaves.stage.number

    @property
    def epoch(self) -> int:
        """The epoch that learns, from 0 on (public); a guide with a last round has one only."""
        return self._leaves.stage.epoch

    @property
    def epochs(self) -> list[int]:
        """After how many rounds each epoch began but the first, up to the one that learns (public)."""
        begun = (self._began + self.plan.began(number) for number in range(1, self.epoch + 1))
        return [rounds for rounds in begun if rounds > 0]  # a successor's own

    @property
    def features(self) -> Map:
        """The map of the stage that learns, as it is now."""
        return self._leaves.features

    @property
    def _answers(self) -> Leaves:
        """Whose θ answers: a function of what was released."""
        over = self._leaves is not self._warm and self._leaves.total >= self._handover
        return self._leaves if self._warm is None or over else self._warm

    @property
    def closed(self) -> int:
        """Leaves closed so far, in both stages and all epochs."""
        return self._leaves.total + (0 if self._warm is None or self.finding else self._warm.closed)

    @property
    def ready(self) -> int:
        """Rounds after which there is a θ to answer with (public)."""
        return (self._leaves if self._warm is None else self._warm).stage.ends[0]

    @property
    def behind(self) -> bool:
        """Whether the open leaf ended before the last round, through which this guide was not led (public)."""
        closed, ends = self._leaves.closed, self._leaves.stage.ends
        return closed == len(ends) or self.rounds - self._began > ends[closed]

    @property
    def counting(self) -> int:
        """How many of the next rounds are counted for the ranges (public)."""
        return max(0, self._first - self.rounds)

    @property
    def room(self) -> int:
        """For how many rounds nothing is released but what is due before the first of them (public)."""
        if self._warm is not None and self.rounds < self._first:
            return next(end for end in self._warm.stage.ends if end > self.rounds) - self.rounds
        past = self.rounds - self._before
        closed = self.plan.closed_at(past)
        stage = self.plan.epoch(closed // self.plan.leaves if self.plan.endless else 0)
        return MANY if closed == stage.before + stage.leaves else stage.ends[closed - stage.before] - past

    @property
    def _began(self) -> int:  # rounds before the stage that learns
        return 0 if self.finding else self._before

    @property
    def _before(self) -> int:  # rounds before the main stage: none where it is taught what the warm-up was
        return 0 if self._warm is not None and self._keeping else self._first

    def leaves_of(self, rounds: int) -> Ints:
        """Which leaf each of the next rounds teaches, by the numbers of `closed`; −1 past the last round (public)."""
        return self._leaf_at(self.rounds + np.arange(rounds))

    def _leaf_at(self, before: Ints) -> Ints:
        """Which leaf a round teaches that comes after so many."""
        found = self.plan.closed_after(before - self._before)
        if self._warm is not None:
            warm = self._warm.stage
            early = np.searchsorted(warm.ends, before, side="right")
            found = np.where(before < self._first, early, found + warm.leaves)
        return np.where(before < self._last, found, -1)

    def missed(self, row: int) -> bool:
        """Whether a label of this row, by its number, teaches nothing any more, and would have in time (public).

        Its question is of the warm-up, which is over; or of an earlier leaf than the open one, which is never released.
        """
        return self.missed_rows((row,))[0]

    def missed_rows(self, rows: Sequence[int]) -> list[bool]:
        """`missed` of each."""
        leaves, warm = self._leaves, self._warm
        first = self._first if warm is not None and leaves is not warm else 0
        ends, closed = leaves.stage.ends, leaves.closed
        if closed < len(ends) and self._began + ends[closed] < self._last:  # the open leaf will be released
            return [row <= first for row in rows]
        late = self._leaf_at(np.array(rows, dtype=np.int64) - 1) < self.closed
        return [row <= first or one for row, one in zip(rows, late.tolist(), strict=True)]

    # ------------------------------------------------------------------ rounds

    def go_to(self, rounds: int) -> None:
        """So many rounds are taken: those that this guide was not led through are over, and taught it nothing."""
        if rounds < self.rounds:
            raise StateError("the guide was led through rounds that nobody took: this state must not be used")
        self.rounds = rounds

    def begin_round(self) -> None:
        """Take the next public round, or row of history: first of all, close the leaf that ended before it."""
        while self.close_next():
            pass
        self.rounds += 1

    def _close_due(self) -> None:
        while self.close_next():
            pass

    def close_next(self) -> bool:
        """Release what is due next, if anything is."""
        if self._failed or os.getpid() != self._pid:
            self._check()
        if self._leaves.closed == self._leaves.stage.leaves:
            self._turn()  # where an interrupt came between
        if self._teaches and not self.finding:
            self._teach_kept()
        due = self._due()
        if due is not None:
            self._release(due)
        return due is not None

    # ------------------------------------------------------------------ sums from many places

    @property
    def due(self) -> str | None:
        """The kind of what is to be released before the next round is taken, if anything is (public)."""
        return self._due()

    @property
    def made(self) -> int:
        """How much was released, counts of ranges included (public)."""
        return self.closed + (self.ranges is not None)

    def merge(self, sums: Ints) -> None:
        """What all partitions have for what is due, instead of what this guide was taught (docs/proofs/partitions.md).

        Their integers are added modulo 2⁶⁴.
        """
        place = self._counted.counts if self._due() == "ranges" else self._leaves.open
        if sums.size != place.size:
            raise StateError(OTHERS)
        place[...] = sums.reshape(place.shape)

    @property
    def due_size(self) -> int:
        """How many integers there are in what is due, or would be next (public)."""
        return self._size_of(self._due() or self._leaves.stage.kind)

    def take(self, release: Release) -> None:
        """Use what another process released, of sums that this guide does not have; its rounds are over."""
        leaves, number = self._leaves, 0 if release.kind == "ranges" else self._leaves.total
        if not leaves.full:
            self.rounds = max(self.rounds, self._began + leaves.stage.ends[leaves.closed])
        if release[:2] != (self._due(), number) or release.row.size != self._size_of(release.kind):
            raise StateError("this is not what is released next: go on from all releases there are")
        if release.kind == "ranges":
            self._found(release.row)
        else:
            leaves.load([release.row], [np.zeros_like(leaves.open)])
            self._turn()

    def shared(self, kept: list[Kept] | None = None) -> dict[str, Any]:
        """What a partition's share has of this guide: the released model, and sums of its own, with what it kept."""
        own = self._leaves.emptied([] if kept is None else kept)
        common: dict[str, Any] = {"ranges": self.ranges, "_first": self._first, "_handover": self._handover}
        if self.finding and kept is None:
            common["_counted"] = self._counted.emptied()
        return common | {"_leaves": own, "_warm": own if self.finding else self._warm}

    def _size_of(self, kind: str) -> int:
        return self._counted.counts.size if kind == "ranges" else self._leaves.open.size

    def _turn(self) -> None:
        """After the last leaf of an epoch the next begins: by one assignment, too."""
        if self.plan.endless and self._leaves.full and not self.finding:
            self._leaves = self._leaves.next(self.plan.epoch(self.epoch + 1))

    def begins(self, release: Release) -> Release | None:
        """What the next epoch begins with, if this release, which is not used yet, is the last of its epoch."""
        leaves = self._leaves
        if release.kind != "node" or not self.plan.endless or leaves.closed + 1 < leaves.stage.leaves:
            return None
        stage = self.plan.epoch(self.epoch + 1)
        return Release("epoch", stage.epoch, leaves.left_to(stage, release.row), NONE)

    def _check(self) -> None:
        own_process(self._pid, "guide")  # noise is drawn ahead: two processes would release two sums with one noise
        if self._failed:
            raise StateError("a release could not be stored, and the guide stopped: load it again from its ledger")

    def _taking(self) -> None:
        """StateError where nothing may be taught."""
        self._check()

    def _due(self) -> str | None:
        """What is released by the call that takes the next round."""
        if self.rounds >= self._last:
            return None  # past its rounds the guide is frozen
        leaves, finding = self._leaves, self._leaves is self._warm
        past = self.rounds if finding else self.rounds - self._before
        if leaves.closed < leaves.stage.leaves and past >= leaves.stage.ends[leaves.closed]:
            return leaves.stage.kind
        return "ranges" if finding and past >= self._first else None

    def settle(self) -> int:
        """Close what is due before the next round, and return for how many rounds the maps stay as they then are.

        So many rows may be encoded ahead, and given to `run`.
        """
        self._close_due()
        leaves, rounds = self._leaves, self.rounds
        known, closed, until = self._settled
        if known is not leaves or closed != leaves.closed or until <= rounds:
            ends, handover = leaves.stage.ends, [] if self.finding or not self._handover else [self._handover]
            began, last = self._began, self._last
            later = [began + ends[number - 1] for number in leaves.changing() + handover]
            later += [self._first] if self.finding else []
            later += [began + ends[-1]] if self.plan.endless else []  # the next epoch has its own times
            until = min([at for at in later if rounds < at < last], default=rounds + MANY)
            self._settled = leaves, leaves.closed, until
        return until - rounds

    def _release(self, kind: str) -> None:
        """Make a release, have it made durable, and use it: by one assignment, so that an interrupt tears nothing."""
        release = self._made(kind)
        try:
            if self.store is not None:
                self.store(release)
        except Exception:  # after an interrupt it is tried again, and a ledger has one release of a number
            self._failed = True
            raise
        if kind == "ranges":
            self._found(release.row)
        else:
            self._leaves.close(release.row)
            self._turn()

    def _made(self, kind: str) -> Release:
        """What is due, the same again after an interrupt: a ledger may have it, and what was taught since is lost."""
        number, made = 0 if kind == "ranges" else self._leaves.total, self._under_way
        if made is None or made[:2] != (kind, number):
            exact = self._counted.counts.ravel().copy() if kind == "ranges" else None
            node = self._leaves.node() if exact is None else (exact + self._range_noise, exact)
            made = self._under_way = Release(kind, number, *node)
        return made

    def _found(self, row: Ints) -> None:
        self.ranges = row.copy()
        known = self._counted.map(row, self.plan.range_sigma2**0.5, self._first)
        main = Leaves(self.plan, self.plan.main, known, self._rng, softer=self._first if self._keeping else 0)
        main.kept, self._teaches = self._leaves.kept, self._keeping
        self._leaves = main

    def _teach_kept(self) -> None:
        """What the warm-up was taught in the rounds of the open leaf; the same steps, however few lessons there are."""
        leaves = self._leaves
        leaves.teach_kept(self._weights)
        if leaves.full or leaves.stage.ends[leaves.closed] >= self._first:  # the last that has any
            self._teaches = False
            if self._warm is not None:
                self._warm.kept = []

    # ------------------------------------------------------------------ one question

    def encode(self, x: Any, /) -> Question:
        """`x` as the guide takes it now. A malformed x is a ValueError."""
        leaves, answers = self._leaves, self._leaves if self._warm is None else self._answers
        asked = None if answers is leaves else answers.features.encode(x)
        if self._keeping and leaves is self._warm:
            return self._question(x, leaves, leaves.features)
        return Question(leaves.stage.number, leaves.features.encode(x), asked)

    def _question(self, x: Any, leaves: Leaves, features: Map) -> Question:
        """`x` by a map of this stage, and as it was read, if what it is taught will be kept."""
        if self._keeping and leaves is self._warm and isinstance(features, FeatureMap):
            read = features.columns.read(x)
            return Question(leaves.stage.number, features.encode_row(read), None, read)
        return Question(leaves.stage.number, features.encode(x))

    @property
    def _keeps(self) -> bool:  # whether what is taught now is kept for the main stage
        return self._keeping and self._leaves is self._warm

    def score(self, question: Question, /) -> Floats | None:
        """Log-odds, one a label, up to a constant; None before the first release, or by another map."""
        asked, stage = (question.encoded, question.stage) if question.asked is None else (question.asked, 0)
        leaves = self._leaves if self._warm is None else self._answers
        if leaves.stage.number != stage or (leaves.closed == 0 and (leaves is self._warm or self.closed == 0)):
            return None
        return score_of(leaves.answering, asked)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._pid = os.getpid()  # a secure generator is not pickled, so no noise that protects anybody comes twice


def _counts(plan: GuidePlan, columns: Columns) -> bool:
    """Whether it is counted where numbers lie: also of those whose range is declared, as most are mostly at one end."""
    return bool(plan.range_rounds and columns.numeric)
