"""A plan rehearsed on a public sample: how it would do on a stream of such rows, which may be much longer.

The sample stands for the whole stream: a row at its middle for the rounds at the middle of the stream. So it is read
once, and everything is brought to its length:

- *The guide* lives on the ratio of labels to noise, so the noise is scaled until that ratio is the plan's: with a tenth
  of the lessons it has a tenth of the deviation, and ten times the step. The path of θ, by the part of the stream that
  has gone by, is then the same in the mean. But fewer lessons scatter more by themselves. Where the step would become
  longer than `LONGEST_STEP`, one half of the sample is therefore taught several times over, in random order, and the
  other half asked, each row at its time; then the same with the halves exchanged. So nobody is asked a row that it has
  learned; what is lost is how the sample changes with time. The error is rather over- than understated.
- *A copy* is taught as many labels as it will be in the stream. As many copies as a poll asks are taught, each row
  to any of them with that probability: to several, since there are fewer rows than in the stream. While each copy
  sees but a small part of the sample, two of them share little (`MOST_SHARED`).
- *Gate and lean* are the plan's own integers, and their words are drawn; each unsure answer counts for as many as
  there are rounds for a row, and the copies halt when the planned number is used up.

Reading the sample again and again until it is as long as the stream would not do: from its second time on a row would
be asked of those that have learned its label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Floats, Ints
from confide.banks import bank_for
from confide.data.rows import Row
from confide.guide.guide import Guide
from confide.guide.inputs import columns_for
from confide.learners import Features, Pipeline
from confide.planning.guided import GuidePlan
from confide.planning.plan import Plan
from confide.pop.base import COPIES, FALLBACK, GUIDE, LEAN, SOURCES
from confide.pop.leaning import Leaning
from confide.privacy.random import Random
from confide.runs.regression import Regression
from confide.runs.tally import LATE
from confide.runs.twin import Twin

MOST_SHARED = 0.2
"""The largest part of the sample that a copy may be taught: beyond it copies would agree because they are alike."""

LONGEST_STEP, MOST_LESSONS = 0.3, 200_000
"""The guide's step beyond which single rows move it too far, and the most lessons that are given to avoid that."""

CHUNKS = 200
"""Parts of the sample between which copies learn."""

WINDOWS = 25
"""Points of a learning curve."""

_WORDS = 2.0**64


class TooShort(ValueError):
    """The sample is too short to say what copies would do."""


@dataclass(frozen=True)
class Sample:
    """Public rows with their labels.

    Parameters
    ----------
    xs
        The rows, as a list or an array.
    ys
        The label's number of each; −1 for none.
    labels
        All labels.
    features
        As POP is given them.
    units
        Whose row each is; None where rounds are protected.
    """

    xs: Any
    ys: Ints
    labels: tuple[Hashable, ...]
    features: Any
    units: tuple[str | bytes, ...] | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.ys.size

    @cached_property
    def who(self) -> Ints:
        """The number of each row's unit; every row its own where rounds are protected."""
        if self.units is None:
            return np.arange(self.rows)
        index: dict[str | bytes, int] = {}
        return np.array([index.setdefault(unit, len(index)) for unit in self.units], dtype=np.int64)

    @cached_property
    def turn(self) -> Ints:
        """How many rows of its unit came before each; 0 for all where rounds are protected."""
        seen = Counter[int]()
        turns = np.zeros(self.rows, dtype=np.int64)
        for i, unit in enumerate(self.who.tolist()):
            turns[i] = seen[unit]
            seen[unit] += 1
        return turns

    def at(self, rows: Ints) -> Any:
        """The x of these rows."""
        return self.xs[rows] if isinstance(self.xs, np.ndarray) else [self.xs[i] for i in rows.tolist()]

    def first(self, rows: int) -> Sample:
        """Its first rows."""
        units = None if self.units is None else self.units[:rows]
        return Sample(self.xs[:rows], self.ys[:rows], self.labels, self.features, units)

    def inputs(self, learner: Any) -> int | Features | None:
        """The features for this learner; None where it brings its own, or takes x as it is."""
        own = isinstance(learner, Pipeline) or hasattr(learner, "predict_one")
        return None if own else self.features


@dataclass(frozen=True)
class Guided:
    """What a guide said of each row of the sample before it learned it."""

    answers: Ints
    """−1 where it had no answer yet."""
    scores: Floats


@dataclass(frozen=True)
class Rehearsed:
    """How a plan did on the sample, by the part of the stream that has gone by."""

    wrong: Floats
    """The probability that each row's answer was wrong, history left out."""
    source: NDArray[np.int8]
    """Where each answer came from: a number of `confide.pop.base.SOURCES`."""
    halted: float | None = None
    """The part of the stream after which the copies were out of budget; None if they were not."""
    unsure: float = 0.0
    """The share of polls that were unsure."""

    @property
    def error(self) -> float:
        """Wrong answers a round, over the whole stream."""
        return float(self.wrong.mean())

    @property
    def late_error(self) -> float:
        """The same after the first part of the stream, when most is learned."""
        return float(self.wrong[int(LATE * self.wrong.size) :].mean())

    @property
    def coverage(self) -> dict[str, float]:
        """The share of all rounds that each source answered."""
        return {name: float((self.source == i).mean()) for i, name in enumerate(SOURCES)}

    def last(self, rows: int) -> Rehearsed:
        """The same of the last rows alone."""
        return replace(self, wrong=self.wrong[-rows:], source=self.source[-rows:])

    @property
    def curve(self) -> list[float]:
        """The error in one part of the stream after the other."""
        return [float(part.mean()) for part in np.array_split(self.wrong, min(WINDOWS, self.wrong.size))]


def scaled(guide: GuidePlan, lessons: int, asked: int = 0) -> GuidePlan:
    """The guide whose noise is to so many lessons what the plan's is to its own: the same labels a deviation.

    Between the lessons it is asked so many questions that teach nothing.

    Examples
    --------
    >>> plan = GuidePlan.best(epsilon=1.0, delta=1e-6, rounds=1_000_000)
    >>> short = scaled(plan, 20_000)
    >>> short.rounds, round(short.strength / plan.strength, 3), round(short.step / plan.step)
    (20000, 1.0, 50)
    """
    whole, rows = guide.length, lessons + asked
    if rows == whole:
        return guide
    history = round(rows * guide.history / whole)
    mu2, ranges = float(guide.mu2) * (whole / lessons) ** 2, guide.range_rounds > 0
    made = guide
    for _ in range(3):  # the number of leaves, and with it the noise of a sum, changes a little
        made = GuidePlan.at(mu2, rows - history, guide.labels, guide.unit_labels, history, ranges, guide.apart)
        mu2 *= (guide.strength / (made.strength * lessons / rows)) ** 2
    longer = whole / lessons
    return replace(made, step=guide.step * longer, warm_step=guide.warm_step * longer)


def guided(guide: GuidePlan, sample: Sample) -> Guided:
    """What a guide of this plan, brought to the sample's length, says of each row before it learns it."""
    whole = guide.length
    lessons = min(whole, MOST_LESSONS, round(whole * guide.step / LONGEST_STEP))
    if lessons <= sample.rows:
        return _once(guide, sample)
    answers, scores = np.full(sample.rows, -1), np.zeros((sample.rows, guide.vectors))
    for half in (0, 1):
        _halves(guide, sample, sample.who % 2 == half, lessons, answers, scores)
    return Guided(answers, scores)


def _once(guide: GuidePlan, sample: Sample) -> Guided:
    """Every row is asked, then taught; a unit's labels past its cap are not."""
    made = _guide(scaled(guide, sample.rows), sample)
    turn = sample.turn
    taught = np.where(turn < guide.unit_labels, sample.ys, -1)
    asked = made.follow(sample.xs, taught, turn == 0)
    return Guided(asked.answers, asked.scores)


def _halves(
    guide: GuidePlan, sample: Sample, mine: NDArray[np.bool_], lessons: int, answers: Ints, scores: Floats
) -> None:
    """One half of the units is taught, again and again; the rows of the other are asked, each at its time."""
    rng, taught, asked = Random(), np.flatnonzero(mine), np.flatnonzero(~mine)
    made = _guide(scaled(guide, lessons, asked.size), sample)
    passes = [taught[np.argsort(rng.words(taught.size))] for _ in range(-(-lessons // taught.size))]
    order = np.concatenate(passes)[:lessons]
    places = asked * lessons // sample.rows
    rows, teaches = np.insert(order, places, asked), np.insert(np.ones(lessons, dtype=np.bool_), places, False)
    labels = np.where(teaches & (sample.turn[rows] < guide.unit_labels), sample.ys[rows], -1)
    said = made.follow(sample.at(rows), labels, teaches & (sample.turn[rows] == 0))
    answers[asked], scores[asked] = said.answers[~teaches], said.scores[~teaches]


def _guide(plan: GuidePlan, sample: Sample) -> Guide:
    columns, ranges = columns_for(sample.features)
    return Guide(plan, columns, ranges=ranges)


def votes(learner: Any, plan: Plan, sample: Sample) -> Ints:
    """The votes of a poll on each row, by label, before its copies learn it."""
    labels = (plan.rounds + _history(plan)) / plan.copies
    share = labels / sample.rows
    if share > MOST_SHARED:
        raise TooShort(
            f"a copy would be taught {labels:,.0f} labels: what copies would do is seen on a sample of at least "
            f"{labels / MOST_SHARED:,.0f} rows"
        )
    rng = Random()
    bank = bank_for(learner, plan.polls, sample.labels, sample.inputs(learner), rng.spawn())
    xs, errors = bank.encode_many(sample.xs)
    good = sample.ys >= 0
    good[list(errors)] = False
    poll, counts = np.arange(plan.polls), np.zeros((sample.rows, plan.labels), dtype=np.int64)
    units = int(sample.who.max()) + 1
    mine = rng.words(units * plan.polls).reshape(units, plan.polls) < np.uint64(share * _WORDS)
    for rows in np.array_split(np.arange(sample.rows), min(CHUNKS, sample.rows)):
        asked = np.array([i for i in rows.tolist() if i not in errors], dtype=np.int64)
        part = xs[asked] if isinstance(xs, np.ndarray) else [xs[i] for i in asked.tolist()]
        counts[asked] = bank.votes_many(part, np.broadcast_to(poll, (asked.size, poll.size)))
        rows = rows[good[rows]]
        row, copy = np.nonzero(mine[sample.who[rows]])
        lessons = xs[rows[row]] if isinstance(xs, np.ndarray) else [xs[i] for i in rows[row].tolist()]
        bank.learn_many(copy.astype(np.int64), lessons, sample.ys[rows[row]])
    return counts


def play(plan: Plan, sample: Sample, guide: Guided | None, counts: Ints | None) -> Rehearsed:
    """Who answers each row, and how wrongly: the plan's own tables over these votes and this guide's scores."""
    start = round(sample.rows * _history(plan) / (plan.rounds + _history(plan)))
    rows = np.arange(start, sample.rows)
    ys = sample.ys[rows]
    own = np.full(rows.size, -1) if guide is None else guide.answers[rows]
    source = np.where(own < 0, FALLBACK, GUIDE).astype(np.int8)
    shown, halted, unsure, polled = own.copy(), None, 0, 0
    if plan.copies and counts is not None:
        leaning, rng, spent = Leaning(plan), Random(), Counter[int]()
        offsets = leaning.offsets(None if guide is None else guide.scores[rows], rows.size)
        first, each = int(plan.silent / plan.rounds * rows.size), plan.rounds / rows.size
        words = rng.words(2 * rows.size).tolist()
        for i in range(first, rows.size):
            unit = int(sample.who[rows[i]])
            if spent[unit] >= plan.unit_unsure:
                continue
            decided = leaning.decide(counts[rows[i]], words[2 * i], words[2 * i + 1], offsets[i])
            polled += 1
            if decided.sure:
                shown[i], source[i] = decided.top, COPIES
                continue
            unsure += 1
            spent[unit] += sample.units is not None
            if decided.leaned >= 0:
                shown[i], source[i] = decided.leaned, LEAN
            if unsure * each >= plan.unsure:
                halted = (i + 1) / rows.size
                break
    wrong = np.where(shown < 0, 1 - 1 / plan.labels, shown != ys).astype(np.float64)
    return Rehearsed(wrong, source, halted, unsure / polled if polled else 0.0)


def twin(learner: Any, sample: Sample) -> Rehearsed:
    """What is not private, taught every row: one such learner, or for None a regression over the guide's features."""
    rows = [Row(x, y) for x, y in zip(sample.xs, sample.ys.tolist(), strict=True)]
    inputs = sample.inputs(learner)
    if learner is None:
        said = Regression(sample.features, len(sample.labels)).follow(rows, sample.ys)
    else:
        features = inputs if isinstance(inputs, Features) else None
        said = Twin(learner, sample.labels, features).follow(rows, sample.ys)
    return Rehearsed((said != sample.ys).astype(np.float64), np.full(sample.rows, -1, dtype=np.int8))


def constant(sample: Sample) -> Rehearsed:
    """Always the most frequent label, known from the start."""
    wrong = sample.ys != np.bincount(sample.ys[sample.ys >= 0]).argmax()
    return Rehearsed(wrong.astype(np.float64), np.full(sample.rows, -1, dtype=np.int8))


def _history(plan: Plan) -> int:
    return 0 if plan.guide is None else plan.guide.history


def paired(one: Rehearsed, other: Rehearsed) -> tuple[float, float]:
    """How much less often `one` is wrong than `other` on the same rows, and the standard error of that."""
    gain = other.wrong - one.wrong
    return float(gain.mean()), float(gain.std() / np.sqrt(gain.size))
