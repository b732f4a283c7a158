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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats, Ints
from confide.errors import StateError
from confide.guide.columns import Columns
from confide.guide.course import OTHERS, Release
from confide.guide.hashed import HashedMap
from confide.guide.importance import importance
from confide.guide.leaves import Kept
from confide.guide.linear import MODELS, add_lesson, ordered, run_rows, scores
from confide.guide.maps import FeatureMap
from confide.guide.model import Batch, Model, Question, encode_batch
from confide.guide.resuming import Resuming, alike
from confide.guide.rows import Table, read_many

__all__ = ["OTHERS", "Asked", "Guide", "Release", "alike"]

Mask = NDArray[np.bool_]

_PIECE = 1 << 13  # rows that are encoded at once: what they are encoded to takes memory


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


class Guide(Resuming):
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
    >>> from confide.guide.columns import Columns
    >>> from confide.planning.guided import GuidePlan
    >>> from confide.privacy.random import Random
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

    _seen: tuple[Any, Columns, Table] | None = None  # rows that were read last, until they are asked

    # ------------------------------------------------------------------ rows

    def read(self, x: Any, /) -> None:
        """Nothing for a row that the guide takes; for another the ValueError that says what is wrong with it."""
        self.encode(x)

    def encode_as_of(self, x: Any, rounds: int, /) -> Question:
        """`x` as the guide took it in the so-many-th of all rounds and rows: for a question that was lost."""
        leaves = self._warm if self._warm is not None and rounds <= self._first else self._leaves
        past = rounds - 1 - (0 if leaves is self._warm else self._before)
        return self._question(x, leaves, leaves.map_after(past))

    def unreadable(self, rows: Any) -> Mask:
        """Which rows the guide cannot read, now or later: that depends on its columns alone."""
        if isinstance(self.features, HashedMap):
            return self.features.encode_many(rows)[2]
        columns = self.features.columns
        table = read_many(columns, rows)
        self._seen = rows, columns, table
        return table.refused

    def count(self, x: Any, /) -> None:
        """Count one row for the private ranges: at most one of a unit, and only before they are released."""
        if self.finding and 0 < self.rounds <= self._first:
            self._counted.add(self._counted.columns.read(x).numbers[None, :])

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
        plain = type(self).gradient is Guide.gradient
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
        run_rows(
            self._leaves.thetas, starts, np.concatenate([one.indices for one in rows]),
            np.concatenate([one.values for one in rows]), given, self._weights, self._leaves.clip, self.plan.scale,
            self._leaves.open, np.empty((len(rows), self.plan.vectors)),
        )  # fmt: skip
        for (question, y), left in zip(taught, given.tolist(), strict=True) if self._keeps else ():
            if left >= 0:
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
                some = self._table(rows, part, self.features.columns)
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
                stage, encoded = self.stage, batch.rows()
                asked.rows.extend([
                    None if row is None else Question(stage, row, None, None if table is None else table.row(i))
                    for i, row in enumerate(encoded)
                ])  # fmt: skip
        self._seen = None
        return asked

    def _table(self, rows: Any, part: slice, columns: Columns) -> Table:
        """Some of the rows by column, as `unreadable` read them just before; nothing is read twice."""
        seen = self._seen
        if seen is not None and seen[0] is rows and seen[1] is columns:
            return seen[2].part(part)
        return read_many(columns, rows[part])

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
        if self.closed:
            known = ~batch.refused
            known[:waiting] = False
            np.copyto(said, found, where=known[:, None])
            np.copyto(answers, found[:, 0] > 0 if self.plan.vectors == 1 else found.argmax(axis=1), where=known)

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

    def __repr__(self) -> str:
        seeded = "" if self._rng.secure else ", insecure: seeded"
        most = f" in epoch {self.epoch}" if self.plan.endless else f" of {self.plan.nodes}"
        return f"Guide(rounds={self.rounds}, closed={self.closed}{most}{seeded})"
