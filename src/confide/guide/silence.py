"""What answers while hardly anybody teaches, without an end: the model of when labels last came often.

Every epoch adds its noise to θ, and counts of losses fade with rounds. Labels mend the first and renew the second;
without labels both go on for ever, and the model becomes a coin. So θ may go on as it likes, but it does not answer
any more while labels do not come often, until it has shown that it errs less than the model that answers.

*Often.* A label moves each of a row's losses by one row at most: the errors by which the frequent label, or another
window, differs from the model, the label's count, and whether what was said is too sure. So if any of them has gained
more rows than a 64th of the rounds, and that is clear of noise, so many labels came. If none can have gained as many,
labels came more rarely, or told nothing: the model errs as often as the frequent label, which is as frequent as others.
Then it is quiet.

*Quiet.* What answers is what answered when labels were heard last, bit for bit. θ begins there again, and learns from
whatever labels come. Nothing is forgotten from epoch to epoch: sums of n quiet epochs are added up, and divided by √n,
so that their noise in θ is always that of one epoch, while what labels say in them grows with √n. What answers stands
in the place of the long window's mean, so that the losses tell which errs less: it, or one of the candidates that
follow θ. If one of these is better beyond doubt, it answers from then on, and θ begins from there. However rare labels
are, in the end they are heard.

*Often again.* θ goes on, as ever, if it erred less beyond four deviations, else what answered: a sum of noise alone is
above 0 half of the time. The opposite is tried, if the frequent label errs less.

All of this is a function of released rows and public rounds: post-processing, at no price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from confide.arrays import Floats, Ints
from confide.guide.change import CLEAR, SLOW, SURELY, Part, Told, root
from confide.guide.linear import MODELS

_RARELY = 64
"""Rounds for a row that is told of, at most, if labels come often; chosen once, so that every tenth label is often."""


class Span(NamedTuple):
    """Leaves of which something is to be known, also those of earlier epochs."""

    rows: Floats
    """What the leaves of earlier epochs told."""
    variance: Floats
    """Of the noise in that, for each loss."""
    rounds: int = 0
    first: int = 0
    """Leaves of this epoch before the first of them."""

    @classmethod
    def after(cls, losses: int, closed: int = 0) -> Span:
        """Nothing yet: what comes after so many leaves of this epoch."""
        return cls(np.zeros(losses + 1), np.zeros(losses), 0, closed)

    def part(self, told: Told) -> Part:
        """All that they told up to now."""
        if self.first == told.closed:
            return Part(self.rows, np.sqrt(self.variance), self.rounds)
        now = told.between(self.first, told.closed)
        return Part(self.rows + now.rows, np.sqrt(self.variance + now.noise**2), self.rounds + now.rounds)

    def over(self, told: Told) -> Span:
        """The same when the epoch has ended: the next has noise of its own."""
        found = self.part(told)
        return Span(found.rows, found.noise**2, found.rounds)


@dataclass(frozen=True, eq=False)
class Kept:
    """A model as it was at some time."""

    answering: Floats
    models: Floats
    """The candidates."""

    def without(self, part: slice) -> None:
        """What these features said is forgotten: they stand for something else now."""
        self.answering[part], self.models[part] = 0.0, 0.0


@dataclass(frozen=True, eq=False)
class Silence:
    """How often labels come, and what answers while they do not."""

    often: bool
    """Whether they came often when that was last known."""
    quiet: bool
    kept: Kept
    """What answers while it is quiet; before, what it was when labels were heard last."""
    base: Floats
    """The sums from which θ began when it became quiet."""
    epochs: int
    """Quiet epochs that have ended since."""
    window: Span
    """In which labels are listened for."""
    trial: Span
    """In which θ and what answers are compared."""

    @classmethod
    def first(cls, kept: Kept, losses: int) -> Silence:
        """Before labels were ever heard of."""
        none = Span.after(losses)
        return cls(False, False, kept, np.zeros(kept.answering.size), 0, none, none)

    @property
    def weight(self) -> float:
        """What the sums of a quiet epoch weigh."""
        return 1.0 / math.sqrt(1.0 + self.epochs)

    def over(self, told: Told) -> Silence:
        """The same when the next epoch begins.

        If nothing has erred less than what answers, the comparison begins anew. Not sooner: where noise happens to be
        lowest it must rise, and six deviations from there are nothing rare.
        """
        trial = self.trial.over(told) if self.better(told)[0] >= 0 else Span.after(self.window.variance.size)
        return replace(self, epochs=self.epochs + self.quiet, window=self.window.over(told), trial=trial)

    def better(self, told: Told) -> tuple[int, bool]:
        """Which of the candidates that follow θ errs least, and whether less than what answers, beyond doubt.

        −1 if none has erred less up to now.
        """
        part, gained, clear = self.trial.part(told), [0.0] * MODELS, [0.0] * MODELS
        for k in range(MODELS):  # a loss says by how much one errs more than the usual one, which is the first
            found = float(part.rows[SLOW]) - (float(part.rows[k - 1]) if k else 0.0)
            noise = float(part.noise[SLOW]), float(part.noise[k - 1]) if k else 0.0
            gained[k], clear[k] = found, SURELY * root(*noise, math.sqrt(abs(found)))
        best = max((k for k in range(MODELS) if k != SLOW + 1), key=lambda k: gained[k] - clear[k])
        return (best if max(gained) > 0 else -1), gained[best] > clear[best]


def often(part: Part, units: Ints) -> bool | None:
    """Whether so many labels come that some loss has gained a row in 64 rounds; None: not known."""
    known = units > 0
    rows, noise, least = np.abs(part.rows[:-1][known]), part.noise[known], part.rounds / _RARELY
    if ((rows > SURELY * noise) & (rows >= least)).any():
        return True
    return False if (rows + CLEAR * noise < least).all() else None
