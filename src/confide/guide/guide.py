"""The guide itself: what is asked, taught and released, in the order of rounds.

Its life, as POP leads it (under the model's lock):

1. `begin_round()`, once for every public round or row of history, first of all. If a leaf ended, its node is made,
   given to `store`, which makes it durable, and only then used. Nothing else ever closes a leaf.
2. `encode(x)`: the row as the guide takes it; while ranges are `finding`, also `count(x)`, once a unit. What is wrong
   with a malformed x is said in every stage. The map may change when a leaf closes: encode after `begin_round`, or as
   many rows ahead as `settle` says.
3. `score(question)`: the log-odds by the answering θ. Public, free, changes nothing; None before the first release.
4. `gradient(question, y)`, when the label comes and the unit's cap allows: into the open leaf.

Many rounds at once are `follow`, or `settle`, `encode_batch` and `run` where the caller encodes.

Where ranges are counted there are two stages: a *warm-up* learns on a map of the declared ranges alone while all are
counted, and then another on a map that has them. Where the plan has the budget for it, what the warm-up was taught is
kept, and teaches the other stage when that begins: it stands then as if it had been there from round 1 on, and answers.
Else the warm-up answers until the other one has learned half as long. Without counts there is one stage only.

Everything here but the open leaf, the counts and the closed leaves' exact sums is a function of released nodes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide._checks import label_weights as checked_weights
from confide._checks import own_process
from confide.arrays import Floats, Ints
from confide.contained import contained
from confide.errors import StateError
from confide.guide.carried import Carried
from confide.guide.columns import Columns
from confide.guide.counting import RangeCounts
from confide.guide.hashed import HashedMap
from confide.guide.importance import importance
from confide.guide.leaves import Kept, Leaves
from confide.guide.linear import MODELS, add_lesson, add_lessons, ordered, run_rows, scores
from confide.guide.maps import FeatureMap
from confide.guide.model import Batch, Map, Model, Question, encode_batch, map_from_params, map_params, score_of
from confide.guide.ranges import declared
from confide.guide.rows import Table, read_many
from confide.planning.guided import GuidePlan
from confide.privacy.gaussian import GaussianNoise
from confide.privacy.random import Random

Mask = NDArray[np.bool_]

MANY = 1 << 20
_PLAIN = 2.0  # how plain counts must be, where all ranges are declared, to be better than what is declared
_KINDS = ("map", "warm", "ranges", "epoch", "node")
_NONE = np.zeros(0, dtype=np.int64)
OTHERS = "these sums are of another guide: every owner must have the model's own plan and features"
_PIECE = 1 << 13  # rows that are encoded at once: what they are encoded to takes memory


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


class Asked(NamedTuple):
    """What the guide says to many rows."""

    answers: Ints
    """Its own label for each row; −1 where it has none."""
    refused: Mask
    """Rows that it cannot read."""
    scores: Floats
    """Log-odds, one column a vector of θ: of label 1 where there are two labels; zeros where there is no answer."""
    rows: list[Question | None]
    """The rows as the guide takes them, if they were asked for: what `gradient` takes when a label comes later."""


class Guide:
    """A linear model that learns from noisy sums of gradients (docs/proofs/guide.md).

    Parameters
    ----------
    plan
        Its numbers.
    features
        A feature map (`FeatureMap`, or `HashedMap` where no names are declared); or columns: the map is then made from
        `ranges` and those that the plan counts, and needs none where it has none (`confide.guide.inputs.columns_for`).
        With a ready map, or no numeric column, nothing is counted, and there is no warm-up.
    label_weights
        One positive public weight a label, or None: gradients are scaled by it before they are clipped.
    ranges
        Declared ranges of numeric columns, by name: they stand until counts show where a column lies.
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
    ...     question, label = guide.encode({"a": a, "b": b}), int(a > b)
    ...     if guide.finding:
    ...         guide.count({"a": a, "b": b})
    ...     wrong += i > 3000 and guide.answer(question) != label
    ...     guide.gradient(question, label)
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
        if isinstance(features, Columns) and _counts(plan, features, ranges):
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
        leaves, warm = self._leaves, self._warm
        if warm is not None and leaves is not warm and row <= self._first:
            return True
        ends, closed = leaves.stage.ends, leaves.closed
        released = closed < len(ends) and self._began + ends[closed] < self._last
        return not released and int(self._leaf_at(np.array([row - 1]))[0]) < self.closed

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
        return Release("epoch", stage.epoch, leaves.left_to(stage, release.row), _NONE)

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
        ends, handover = self._leaves.stage.ends, [] if self.finding or not self._handover else [self._handover]
        began, rounds, last = self._began, self.rounds, self._last
        later = [began + ends[leaves - 1] for leaves in self._leaves.changing() + handover]
        later += [self._first] if self.finding else []
        later += [began + ends[-1]] if self.plan.endless else []  # the next epoch has its own times
        return min([at for at in later if rounds < at < last], default=rounds + MANY) - rounds

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

    # ------------------------------------------------------------------ rows

    def read(self, x: Any, /) -> None:
        """Nothing for a row that the guide takes; for another the ValueError that says what is wrong with it."""
        self.encode(x)

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

    def encode_as_of(self, x: Any, rounds: int, /) -> Question:
        """`x` as the guide took it in the so-many-th of all rounds and rows: for a question that was lost."""
        leaves = self._warm if self._warm is not None and rounds <= self._first else self._leaves
        past = rounds - 1 - (0 if leaves is self._warm else self._before)
        return self._question(x, leaves, leaves.map_after(past))

    def unreadable(self, rows: Any) -> Mask:
        """Which rows the guide cannot read, now or later: that depends on its columns alone."""
        if isinstance(self.features, HashedMap):
            return self.features.encode_many(rows)[2]
        return read_many(self.features.columns, rows).refused

    def count(self, x: Any, /) -> None:
        """Count one row for the private ranges: at most one of a unit, and only before they are released."""
        if self.finding and 0 < self.rounds <= self._first:
            self._counted.add(self._counted.columns.read(x).numbers[None, :])

    def score(self, question: Question, /) -> Floats | None:
        """Log-odds, one a label, up to a constant; None before the first release, or by another map."""
        asked, stage = (question.encoded, question.stage) if question.asked is None else (question.asked, 0)
        leaves = self._leaves if self._warm is None else self._answers
        if leaves.stage.number != stage or (leaves.closed == 0 and (leaves is self._warm or self.closed == 0)):
            return None
        return score_of(leaves.answering, asked)

    def answer(self, question: Question, /) -> int:
        """The label index with the largest score, of several the first; −1 before the first release."""
        score = self.score(question)
        return -1 if score is None else int(score.argmax())

    def probabilities(self, x: Any, /) -> Floats:
        """One a label, all alike before the first release. Public and free: it takes no round and changes nothing."""
        self.read(x)
        return np.full(self.plan.labels, 1 / self.plan.labels) if self.closed == 0 else self.model.probabilities(x)

    def importance(self) -> dict[str, float]:
        """How much of what it has learned each column has (`confide.guide.importance`): public and free.

        Empty before the first release, and while the most frequent label is answered.
        """
        leaves = self._answers
        return importance(leaves) if self.closed and leaves.choice.chosen < MODELS else {}

    def export(self) -> dict[str, Any]:
        """The model as JSON's kinds of values: it was released privately, and may be shipped (`Model.from_params`)."""
        return self.model.params()

    @property
    def model(self) -> Model:
        """The answering model as it is now; it changes with the next release. `model.params()` may be shipped."""
        return Model(self._answers.features, self._answers.answering)

    def gradient(self, question: Question, y: int, /, *, counted: bool = False) -> None:
        """Teach the label index `y`: one gradient into the open leaf, if it was encoded for this stage.

        The unit's cap is the caller's to keep. After the warm-up that of a row that may be `counted` is shorter, where
        the plan has no place for both (`GuidePlan.record_clip`).
        """
        self._taking()
        soft = counted and self._warm is not None and not self.finding
        taught = self._add(question, y, self._leaves.open, self.plan.record_clip if soft else self._leaves.clip)
        if taught:
            self._note(question, y)

    def _note(self, question: Question, y: int) -> None:
        """Keep what was taught just now, where it is kept."""
        if self._keeps and not self._leaves.loud and question.read is not None:
            self._leaves.kept.append(Kept(self.rounds, question.read, y))

    def gradients(self, questions: Sequence[Question], ys: Sequence[int], /) -> None:
        """`gradient` of each, in one call: the same bits."""
        plain = type(self).gradient is Guide.gradient and type(self)._add is Guide._add
        if len(ys) == 1 or self.rounds > self._last or not plain:
            for question, y in zip(questions, ys, strict=True):
                self.gradient(question, y)
            return
        self._taking()
        stage, labels = self.stage, self.plan.labels
        taught = [one for one in zip(questions, ys, strict=True) if one[0].stage == stage and 0 <= one[1] < labels]
        if not taught:
            return
        rows, given = [one.encoded for one, _ in taught], np.array([y for _, y in taught])
        starts = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([one.indices.size for one in rows], out=starts[1:])
        known = add_lessons(
            self._leaves.thetas, starts, np.concatenate([one.indices for one in rows]),
            np.concatenate([one.values for one in rows]), given, self._weights, self._leaves.clip, self.plan.scale,
            self._leaves.open,
        )  # fmt: skip
        for (question, y), good in zip(taught, known.tolist(), strict=True):
            if good:
                self._note(question, y)

    def lesson(self, question: Question, y: int, /) -> Ints:
        """What `gradient` would add: a function of the row, its label and what was released."""
        out = np.zeros_like(self._leaves.open)
        self._add(question, y, out, self._leaves.clip)
        return out

    def _add(self, question: Question, y: int, leaf: Ints, clip: int) -> bool:
        leaves, plan = self._leaves, self.plan
        known = ordered(question.encoded.indices, self.features.width)  # it may come from a file
        if known and question.stage == self.stage and self.rounds <= self._last and 0 <= y < plan.labels:
            said, weight = np.empty(plan.vectors), float(self._weights[y])
            scores(leaves.answering, *question.encoded, said)
            add_lesson(leaves.thetas, said, *question.encoded, y, weight, clip, plan.scale, leaf)
            return True
        return False

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
            some: Any = rows[part]
            if isinstance(self.features, FeatureMap):
                some = read_many(self.features.columns, some)
                if self.counting and self.finding:
                    self._counted.add(some.numbers[counted[part] & ~bad[part] & ~some.refused])
            batch = encode_batch(self.features, some)
            asked.refused[part] = batch.refused
            batch = Batch(*batch[:4], batch.refused | bad[part])
            other = None if self._answers is self._leaves else encode_batch(self._answers.features, some)
            self._ask(batch, labels[part], asked.answers[part], asked.scores[part], other)
            table = some if self._keeps else None
            if table is not None:
                self._keep(table, batch.refused, labels[part])
            if keep:
                stage, read = self.stage, None if table is None else table.row
                asked.rows.extend(
                    None if row is None else Question(stage, row, None, None if read is None else read(i))
                    for i, row in enumerate(batch.rows())
                )
        return asked

    def _keep(self, table: Table, refused: Mask, labels: Ints) -> None:
        """Keep what the last rounds were taught, as `gradient` does."""
        first = self.rounds - labels.size + 1
        taught = ~refused & (labels >= 0) & (labels < self.plan.labels)
        taught[: max(0, self.plan.loud_rounds + 1 - first)] = False
        self._leaves.kept.extend(Kept(first + i, table.row(i), int(labels[i])) for i in np.flatnonzero(taught).tolist())

    def _ask(self, batch: Batch, labels: Ints, answers: Ints, said: Floats, other: Batch | None) -> None:
        """`run`, and the answers that follow from the scores."""
        waiting = 0 if self.closed else self.ready - self.rounds
        found = self.run(batch, labels, other)
        known = np.flatnonzero(~batch.refused[waiting:]) + waiting if self.closed else np.zeros(0, dtype=np.int64)
        said[known] = found[known]
        answers[known] = found[known, 0] > 0 if self.plan.vectors == 1 else found[known].argmax(axis=1)

    def run(self, batch: Batch, labels: Ints, other: Batch | None = None) -> Floats:
        """Many rounds at once, each asked and then taught: the scores, the same bits as one by one.

        A label below 0 never comes, and that of a refused row is not taught: it takes its round all the same. One row
        of scores for each, zeros before the first release. `other` are the rows by the map of the stage that answers,
        while that is another one.
        """
        plan, n = self.plan, labels.size
        same = self.settle() >= n and batch.features is self.features and batch.refused.size == n
        if not same or (batch if other is None else other).features is not self._answers.features:
            raise ValueError("the map changes in these rounds: settle, encode as many rows as it says, then run them")
        labels = np.where(batch.refused | (labels >= plan.labels), -1, labels)
        out, done = np.zeros((n, plan.vectors)), 0
        while done < n:
            self._close_due()
            leaves, past = self._leaves, self.rounds >= self._last
            left = self._last - self.rounds, self._began + leaves.stage.ends[leaves.closed] - self.rounds
            size = n - done if past else min(n - done, *left)
            if size <= 0:
                raise StateError("a leaf has ended and is not released: this state must not be used")
            part, rows = slice(done, done + size), slice(done, done + size + 1)
            taught = np.full(size, -1) if past else labels[part]
            run_rows(
                leaves.thetas, batch.starts[rows], batch.indices, batch.values, taught,
                self._weights, leaves.clip, plan.scale, leaves.open, out[part],
            )  # fmt: skip
            if other is not None:
                asked = self._answers
                run_rows(
                    asked.thetas, other.starts[rows], other.indices, other.values, np.full(size, -1),
                    self._weights, plan.clip, plan.scale, asked.open, out[part],
                )  # fmt: skip
            self.rounds += size
            done += size
        return out

    # ------------------------------------------------------------------ state

    def releases(self) -> list[Release]:
        """Everything released so far, in order, with the exact sums: what a ledger that begins now must hold.

        Of earlier epochs only what the open one began with is left, a function of what they had released, as a release
        of kind "epoch": so memory does not grow.
        """
        given = [] if self._given is None else [self._given]
        known = None if self.finding else self.ranges  # which an interrupt may have left half found: they come again
        counts = [] if known is None else [Release("ranges", 0, known.copy(), _NONE)]
        warm = [] if self._warm is None else _sums(self._warm)
        begun = [Release("epoch", self.epoch, self._leaves.began, _NONE)] if self.epoch else []
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
        releases = [Release("map", first, row, _NONE)]
        if first and carried is not None:
            stage = self.plan.epoch(first)
            releases.append(Release("epoch", first, carried.for_heir(stage).pack(features, stage.before), _NONE))
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._pid = os.getpid()  # a secure generator is not pickled, so no noise that protects anybody comes twice

    def __repr__(self) -> str:
        seeded = "" if self._rng.secure else ", insecure: seeded"
        most = f" in epoch {self.epoch}" if self.plan.endless else f" of {self.plan.nodes}"
        return f"Guide(rounds={self.rounds}, closed={self.closed}{most}{seeded})"


def _counts(plan: GuidePlan, columns: Columns, ranges: Mapping[str, tuple[float, float]]) -> bool:
    """Whether it is counted where numbers lie: not if all ranges are declared, and the counts would be hardly plain."""
    wanting = set(columns.numeric) - set(ranges)
    return bool(plan.range_rounds and columns.numeric and (wanting or plan.endless or plan.plain >= _PLAIN))


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
