"""Randomized response: a label is said as it is, or replaced by one of all labels, by one word against integers.

Claims and proofs: docs/proofs/labels.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from confide._checks import Numbers, integer, real
from confide.arrays import Floats, Ints, Words
from confide.kernels.compile import jit
from confide.privacy.cost import ONE, UP, float_up
from confide.privacy.renyi import check_epsilon, fraction_up

MOST_LABELS = 1 << 16
"""Every draw compares its word with one threshold for each label."""

_PRECISE = Context(prec=60)
_ABOVE = Context(prec=60, rounding=ROUND_CEILING)
_SLACK = Decimal("1e-45")


@jit
def respond(label: int, word: np.uint64, ends: Words) -> int:
    """What comes out for a label: all thresholds are compared, whatever the label and the word are."""
    said = np.int64(0)
    for end in ends:
        said += np.int64(word >= end)
    kept = np.int64(said == ends.size)
    return int(kept * label + (1 - kept) * said)


@jit
def respond_many(labels: Ints, words: Words, ends: Words, out: Ints) -> None:
    """The same for many labels, each with its own word; a label below 0 stays as it is, and its word is thrown away."""
    for i in range(labels.size):
        said = respond(labels[i], words[i], ends)
        out[i] = said if labels[i] >= 0 else labels[i]


@jit
def _nearest(rows: Floats, lie: float, advantage: float) -> bool:
    """In each row probabilities of outputs become those of labels: the nearest point of the simplex, in place.

    False where a number is not finite.
    """
    fine = True
    for row in rows:
        for y in range(row.size):
            row[y] = (row[y] - lie) / advantage
            fine &= bool(np.isfinite(row[y]))
        rising, total, over = np.sort(row), 0.0, 0.0
        for n in range(1, row.size + 1):
            total += rising[-n]
            if rising[-n] > (total - 1.0) / n:
                over = (total - 1.0) / n
        for y in range(row.size):
            row[y] = max(row[y] - over, 0.0)
    return fine


@dataclass(frozen=True)
class Response(Numbers):
    """The law of what comes out for each of L labels: two integers out of 2⁶⁴, and certified as such.

    Any label other than the true one comes out with probability `other`/2⁶⁴, the true one with what is left.

    **Formal guarantee.** What comes out is `cost()`-differentially private for the label, whatever the labels are:
    the factor between any two cells of the table. Proof page: docs/proofs/labels.md.

    Parameters
    ----------
    labels
        L, at least 2.
    other
        At least 1, and labels·other < 2⁶⁴. `Response.best` finds it.

    Examples
    --------
    >>> response = Response.best(1.0, labels=2)
    >>> round(response.truth, 4), round(response.advantage, 4), 0.999999 < response.cost() <= 1.0
    (0.7311, 0.4621, True)
    >>> response.draw(1, word=0), response.draw(1, word=2**64 - 1)
    (0, 1)
    >>> Response(labels=2, other=2**63)
    Traceback (most recent call last):
    ...
    ValueError: what comes out would say nothing of the label: other must be below 2**64/labels; use Response.best
    """

    labels: int
    other: int

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.labels, "labels", at_least=2, at_most=MOST_LABELS)
        integer(self.other, "other", at_least=1)
        if self.labels * self.other >= ONE:
            raise ValueError(
                "what comes out would say nothing of the label: other must be below 2**64/labels; use Response.best"
            )

    @cached_property
    def ends(self) -> Words:
        """The thresholds that a word is compared with, for `respond`."""
        ends = np.array([self.other * (j + 1) for j in range(self.labels)], dtype=np.uint64)
        ends.flags.writeable = False
        return ends

    @classmethod
    def best(cls, epsilon: float, labels: int) -> Response:
        """The response that tells the truth most often among those that cost at most `epsilon`.

        Examples
        --------
        >>> Response.best(1e-30, labels=2)
        Traceback (most recent call last):
        ...
        ValueError: epsilon is too small for 64-bit integers: take at least 1e-12
        """
        epsilon = check_epsilon(epsilon)
        labels = integer(labels, "labels", at_least=2, at_most=MOST_LABELS)
        least = max(1e-12, 16 * labels**2 / ONE)
        if epsilon < least:
            raise ValueError(f"epsilon is too small for 64-bit integers: take at least {least:.3g}")
        grown = _PRECISE.exp(Decimal(min(epsilon, 100.0)))
        other = int(_PRECISE.divide(Decimal(ONE), _PRECISE.add(grown, Decimal(labels - 1)))) + 1
        found = cls(labels, max(1, other - 2))
        while found.cost() > epsilon:  # no search is trusted: the cost of the integers decides
            found = cls(labels, found.other + 1)
        return found

    @cached_property
    def keep(self) -> int:
        """Of 2⁶⁴ words, how many say the true label."""
        return ONE - (self.labels - 1) * self.other

    @cached_property
    def truth(self) -> float:
        """How often the true label comes out."""
        return self.keep / ONE

    @cached_property
    def lie(self) -> float:
        """How often each of the others does."""
        return self.other / ONE

    @cached_property
    def advantage(self) -> float:
        """True less false positives of the best guess which of two labels it was: the total variation."""
        return (self.keep - self.other) / ONE

    def cost(self) -> float:
        """ε: the logarithm of the largest factor between two cells of the table, rounded up."""
        log = _PRECISE.ln(_ABOVE.divide(Decimal(self.keep), Decimal(self.other)))
        return float_up(UP.add(log, UP.multiply(log.copy_abs(), _SLACK)))

    def draw(self, label: int, word: int) -> int:
        """What comes out for the number of a label and one uniform word, which is used for nothing else."""
        label = integer(label, "label", at_least=0, at_most=self.labels - 1)
        return respond(label, np.uint64(integer(word, "word", at_least=0, at_most=ONE - 1)), self.ends)

    def draw_many(self, labels: Ints, words: Words) -> Ints:
        """The same for many labels, one word each; −1, where no label comes, stays."""
        labels = np.ascontiguousarray(labels, dtype=np.int64)
        words = np.ascontiguousarray(words)
        if words.dtype != np.uint64 or labels.ndim != 1 or words.shape != labels.shape:
            raise ValueError("give one word of 64 bits for each label")
        if labels.size and not (labels.min() >= -1 and labels.max() < self.labels):
            raise ValueError(f"a label must be a number from 0 to {self.labels - 1}, or −1 where none comes")
        out = np.empty_like(labels)
        respond_many(labels, words, self.ends, out)
        return out

    def law(self, label: int) -> Floats:
        """The probability of each output for one label."""
        law = np.full(self.labels, self.lie)
        law[integer(label, "label", at_least=0, at_most=self.labels - 1)] = self.truth
        return law

    # ------------------------------------------------------------------ undoing the channel: all of it is public

    def frequencies(self, counts: ArrayLike) -> Floats:
        """The shares of true labels, from counts of outputs: unbiased, so a rare one may be below 0; they sum to 1.

        Examples
        --------
        >>> Response.best(1.0, labels=2).frequencies([731, 269]).round(3)
        array([1., 0.])
        """
        seen = self._row(counts)
        total = seen.sum()
        if not total > 0:
            raise ValueError("frequencies need at least one output: none was counted")
        found: Floats = (seen / total - self.lie) / self.advantage
        return found

    def undone(self, outputs: ArrayLike) -> Floats:
        """Probabilities of labels, from those of outputs, in the last axis: the nearest point of the simplex.

        Examples
        --------
        >>> Response.best(1.0, labels=2).undone([0.6155, 0.3845]).round(3)
        array([0.75, 0.25])
        """
        found = np.array(outputs, dtype=np.float64, order="C")  # its own
        if (
            found.ndim == 0
            or found.shape[-1] != self.labels
            or not _nearest(found.reshape(-1, self.labels), self.lie, self.advantage)
        ):
            raise ValueError(f"give {self.labels} finite numbers, one for each label")
        return found

    def _row(self, values: ArrayLike) -> Floats:
        row = np.asarray(values, dtype=np.float64)
        if row.shape != (self.labels,) or not (np.isfinite(row) & (row >= 0)).all():
            raise ValueError(f"give {self.labels} numbers of at least 0, one for each label")
        return row

    # ------------------------------------------------------------------ files

    def params(self) -> dict[str, int]:
        """What makes the same response again: integers alone."""
        return {"labels": self.labels, "other": self.other}

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Response:
        """The response that `params` describes; anything else is refused."""
        if set(params) != {"labels", "other"}:
            raise ValueError("a response is written as two integers, labels and other: write it with params()")
        return cls(params["labels"], params["other"])


def each(epsilon: float, number: int) -> float:
    """The largest ε of which `number` add up to at most `epsilon`, as the sum is rounded up.

    Examples
    --------
    >>> each(1.0, 3), together(each(1.0, 3), 3) <= 1.0
    (0.3333333333333333, True)
    """
    number = integer(number, "number", at_least=1)
    share = Fraction(check_epsilon(epsilon)) / number
    found = float(share)
    return found if Fraction(found) <= share else float(np.nextafter(found, 0.0))


def together(epsilon: float, number: int) -> float:
    """What `number` releases at `epsilon` cost together, rounded up."""
    return fraction_up(Fraction(real(epsilon, "epsilon")) * integer(number, "number", at_least=1))
