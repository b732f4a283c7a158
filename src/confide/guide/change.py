"""Whether what people do has changed so much that a model had better begin anew, by losses that are released anyway.

Three of them tell, each in rows by which a candidate errs more than the usual window does: the mean over nearly no
window, which follows a change first; that over a long one; and the frequent label. Labels are counted too, so that it
is known how often the frequent one errs. All of this, and so what is decided by it, is a function of released rows: it
costs no privacy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.guide.linear import MODELS
from confide.planning.stages import Stage
from confide.privacy.sums import overlap

EVERY = 4
"""Leaves from one look to the next: a model that begins anew has another map, and rows are encoded ahead."""

TRIED = 4
"""Leaves for which the opposite of a model is tried."""

_FAST, SLOW, FREQUENT, _SURE = 0, 1, MODELS - 1, MODELS  # of the losses
_LABELS, _WRONG = slice(MODELS + 1, -1), -1  # … and of what is kept with them
_WINDOWS = (8, 16)  # leaves that are looked at, and as many before them: a leaf is a 256th of the past
_KNOWN = 32  # leaves that must be known from before
CLEAR, SURELY = 4.0, 6.0  # deviations of noise and chance; before a model is given up, which nobody may teach again
_LESS, _BETTER = 0.25, 0.01  # of how much better than the most frequent label a model was; of the rows
_STUCK = 0.75  # what is left, in a window, of what was missing in the one before
_LOST = 0.1  # of how much better a model was: nothing is left of it


def spread(decoder: Floats, first: int, last: int) -> float:
    """The variance of what is decoded of the leaves between, for noise of variance 1."""
    before = overlap(decoder, first, first) - 2 * overlap(decoder, first, last) if first else 0.0
    return overlap(decoder, last, last) + before


class Told(NamedTuple):
    """What one epoch's leaves told up to now."""

    stage: Stage
    rows: Floats
    """One line a closed leaf, in rows since the epoch began: losses, counts of labels, errors of the frequent one."""
    units: Ints
    closed: int
    since: int
    """Leaves of this epoch that were closed when the model began (anew)."""

    def between(self, first: int, last: int) -> Part:
        """What leaves told."""
        decoder, rows, ends = self.stage.root.decoder, self.rows, (self.stage.start, *self.stage.ends)
        found = rows[last - 1] - (rows[first - 1] if first else 0.0)
        deviation = math.sqrt(self.stage.sigma2 * spread(decoder, first, last))
        return Part(found, deviation / np.maximum(self.units, 1), ends[last] - ends[first])


class Part(NamedTuple):
    """What some leaves told."""

    rows: Floats
    noise: Floats
    """Its deviation, one for each of a row's losses."""
    rounds: int

    @property
    def least(self) -> float:
        """How often one label for all of them errs, if every round brings one."""
        counts = self.rows[_LABELS]
        return (self.rounds - abs(float(counts[0]))) / 2 if counts.size == 1 else self.rounds - float(counts.max())

    @property
    def better(self) -> float:
        """How much better than that the newest steps are: 1 if they never err."""
        wrong = float(self.rows[_WRONG] - self.rows[FREQUENT] + self.rows[_FAST])
        return 1 - wrong / max(self.least, 1.0)

    @property
    def chance(self) -> float:
        """The deviation of that."""
        noise, least = self.noise[[FREQUENT, _FAST, _SURE + 1]].tolist(), max(self.least, 1.0)
        return root(*noise, math.sqrt(least)) / least

    def less(self, loss: int) -> float:
        """By how many rows a candidate errs less than the usual one, beyond noise and chance."""
        return self.beyond(loss, -float(self.rows[loss]), CLEAR)

    def beyond(self, loss: int, found: float, clear: float) -> float:
        """What is found of a loss, beyond so many deviations of noise and chance."""
        return found - clear * root(float(self.noise[loss]), math.sqrt(abs(found)))


def root(*parts: float) -> float:
    """The root of their squares: rounded alike everywhere, as what θ follows from must be."""
    return math.sqrt(math.fsum(part * part for part in parts))


def told_by(before: Floats, losses: Floats, units: Ints, length: int, frequent: int) -> Floats:
    """One more line of `Told.rows`, of a leaf of so many rounds in which this label was taken for the frequent one.

    What has no unit was not counted in it, and is noise alone.
    """
    each = np.where(units > 0, losses / np.maximum(units, 1), 0.0)
    labels = each[MODELS + 1 :]
    one = float(labels[0]) if frequent else -float(labels[0])
    wrong = (length - one) / 2 if labels.size == 1 else length - float(labels[frequent])
    return np.asarray(before + np.array([*each, wrong]))


def changed(told: Told) -> bool:
    """Whether the newest steps are much worse than the model was, hardly get better, and it is the model's fault.

    The first alone may be that fewer labels come; without the second it learns what is new by itself. At fault is a
    model that errs more than its newest steps, or one that is hardly better than the frequent label, and too sure.
    """
    for window in _WINDOWS:
        first, second = told.closed - 2 * window, told.closed - window
        if first - told.since < _KNOWN:
            return False
        whole, then, now = (
            told.between(*part) for part in ((first, told.closed), (first, second), (second, told.closed))
        )
        newer, sure = -float(whole.rows[_FAST]), float(whole.rows[_SURE])
        behind = whole.beyond(_FAST, newer, SURELY) > 0 and newer > _BETTER * whole.rounds
        if not behind and whole.beyond(_SURE, sure, SURELY) < 0:
            continue
        past = [told.between(start, first) for start in (told.since, max(told.since, first - 2 * window))]
        was = min(past, key=lambda part: part.better)
        short = (1 - _LESS) * was.better - now.better > CLEAR * root(was.chance, now.chance)
        before = was.better - then.better
        lost = max(then.better, now.better) < _LOST * was.better
        if short and (behind or lost) and before > _LESS * was.better and was.better - now.better > _STUCK * before:
            return True
    return False


def suspected(told: Told) -> bool:
    """Whether the model errs more often than the frequent label now, and did not: its opposite may be right."""
    for window in (2, 4):
        first = told.closed - window
        if first - told.since < _KNOWN:
            return False
        before, now = told.between(told.since, first), told.between(first, told.closed)
        if before.rows[FREQUENT] > CLEAR * before.noise[FREQUENT] and now.less(FREQUENT) > 0:
            return True
    return False


def opposite(told: Told, tried: int) -> bool | None:
    """Whether the opposite answers, tried in place of the long window since so many leaves, err less; None: not known.

    Less than the model's own, and than the frequent label's.
    """
    now = told.between(tried, told.closed)
    most = float(now.rows[FREQUENT] - now.rows[SLOW])
    if now.less(SLOW) > 0 and most > CLEAR * root(float(now.noise[SLOW]), float(now.noise[FREQUENT])):
        return True
    return None if told.closed - tried < TRIED else False
