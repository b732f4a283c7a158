"""The lean: what is answered when unsure, drawn from the votes of the same poll and a public offset. Two labels.

Claims and proofs: docs/proofs/lean.md. A round uses one word for the gate and one for the lean, whatever it shows. Only
rounds that are counted lean; the offset is a function of that row and of what was released, never of votes or counts;
the lean's probabilities are shown to nobody. Many labels: `confide.privacy.weigh`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from confide._checks import Numbers, integer
from confide.arrays import Floats, Words
from confide.kernels.compile import jit
from confide.privacy.cost import cost_from_excess, rest_of
from confide.privacy.fill import MOST_OFFSETS, check_design, fill_row, lean_width, logistic_rows, whole_offsets
from confide.privacy.gate import FLOOR, TIE_SURE, Gate, check_fraction, check_order, integers, runs_of, thresholds
from confide.privacy.halting import Halting, renyi_of
from confide.privacy.outcomes import Survey, survey

CLIP = 5.0
"""Log-odds at which offsets are cut: 1 in 148."""

CENTRE = 0.95
"""Share of the cost that a filled lean takes where it is steepest."""

SHARE = 0.3
"""Share of the cost that an additive lean takes everywhere."""

MOST_MARGINS = 1_000_000
"""A longer row is refused: no poll is so large."""

TIES = 2  # where two worlds' tops may differ, no margin is larger


@jit
def offset_of(score: float, scale: float, reach: int) -> int:
    """The row of a score: 0 … 2·reach, the middle one for no opinion; to the nearest, halves outwards, cut at the ends.

    `score` is the log-odds of the *first* label, `scale` rows a unit of log-odds (`lean.scale`). What is not a number
    has no opinion. The same bits everywhere: one product, one floor.
    """
    size = abs(score * scale)
    steps = int(min(np.floor(size + 0.5), float(reach))) if size == size else 0
    return reach + steps if score > 0.0 else reach - steps


@jit
def settles(word: np.uint64, sure: Words, offset: int, margin: int) -> bool:
    """The gate's one comparison: sure iff the uniform word lies below the integer of this row and signed margin."""
    reach = sure.shape[1] // 2
    below: bool = np.uint64(word) < sure[offset, min(max(margin, -reach), reach) + reach]
    return below


@jit
def leans(word: np.uint64, first: Words, offset: int, margin: int) -> int:
    """The lean's one comparison: label 0 iff the uniform word lies below the integer of this row and signed margin."""
    reach = first.shape[1] // 2
    return 1 - int(np.uint64(word) < first[offset, min(max(margin, -reach), reach) + reach])


@jit
def lean_answer(
    gate_word: np.uint64, lean_word: np.uint64, sure: Words, first: Words, offset: int, margin: int
) -> tuple[int, bool]:
    """(label, sure): both comparisons are made whatever comes of them; a tie's top is label 0."""
    settled = settles(gate_word, sure, offset, margin)
    leaning, top = leans(lean_word, first, offset, margin), 1 - int(margin >= 0)
    return (top if settled else leaning), settled


class Worst(NamedTuple):
    """The worst rates by lead = votes for the right label less votes for the wrong one, −V … V, over all offsets."""

    unsure: Floats
    wrong: Floats


@dataclass(frozen=True, eq=False)
class Lean(Numbers):
    """Integers by public offset and signed margin: sure of the top, and where unsure the first label.

    Proof page: docs/proofs/lean.md. The signed margin is votes for label 0 less votes for label 1; column j of a table
    is the margin j − V, and beyond the ends the ends are used.

    Parameters
    ----------
    kind
        "additive": one gate for all offsets. "fill": each offset's gate takes what the lean leaves of the cost.
    share
        The share of the cost the lean was designed to take (where it is steepest).
    width
        γ: votes of signed margin for each unit of log-odds. An offset of s votes is worth s/γ.
    offsets
        Whole votes towards label 0: 0 and multiples of one step on both sides of it. The last is the clip.
    sure, first
        64-bit integers, one row for each offset: the top is answered iff a uniform word is below `sure`; otherwise
        label 0 iff a second word is below `first`.

    Examples
    --------
    >>> lean = Lean.fill(order=12, cost=0.01, margins=200, offsets=5)
    >>> lean.cost(order=12) <= 0.01
    True
    >>> lean.offsets[lean.row(0.0)], lean.offsets[lean.row(-1e9)] == lean.offsets[0]
    (0, True)
    >>> lean.draw(2**64 - 1, 0, lean.row(0.0), 3)
    (0, False)
    """

    kind: str
    share: float
    width: float
    offsets: tuple[int, ...]
    sure: Words = field(repr=False)
    first: Words = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        offsets = tuple(integer(each, "offsets") for each in self.offsets)
        reach, step = len(offsets) // 2, offsets[-1] - offsets[-2] if len(offsets) > 1 else 1
        if len(offsets) > MOST_OFFSETS or step < 1 or offsets != tuple(step * i for i in range(-reach, reach + 1)):
            raise ValueError(f"offsets are 0 and multiples of one step on both sides of it, at most {MOST_OFFSETS}")
        if self.kind not in ("additive", "fill") or not 0 < self.share < 1 or not 0 < self.width < math.inf:
            raise ValueError("a lean has a kind, 'additive' or 'fill', a share between 0 and 1 and a positive width")
        for name in ("sure", "first"):
            table = np.array(getattr(self, name))
            if table.dtype != np.uint64 or table.ndim != 2 or table.shape[0] != len(offsets) or table.shape[1] % 2 == 0:
                raise ValueError(f"{name} holds 64-bit integers, a row for each offset, an odd number of margins")
            table.setflags(write=False)
            object.__setattr__(self, name, table)
        if self.sure.shape != self.first.shape or not self.first.all():
            raise ValueError("sure and first have the same shape, and no entry of first is 0")
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def additive(
        cls,
        *,
        order: int,
        cost: float,
        poll_fraction: float | Fraction = 1.0,
        margins: int | None = None,
        tie_sure: float = TIE_SURE,
        share: float = SHARE,
        offsets: int = MOST_OFFSETS,
        clip: float = CLIP,
    ) -> Lean:
        """The best gate of cost (1 − share)·`cost`, and beside it a logistic lean of cost share·`cost`.

        Parameters
        ----------
        order, cost, poll_fraction, tie_sure
            As for `Gate.best`; `cost` is what one unsure answer costs in all.
        margins
            Largest margin of the table (polls that are asked); by default it ends where P(unsure) reaches 2⁻³⁶.
        offsets
            Values that offsets are quantised to, an odd number; 1 for no offsets.
        clip
            Log-odds at which offsets are cut.
        """
        fraction = check_design(order, cost, poll_fraction, share, tie_sure)
        design = cost
        while True:
            gate = Gate.best(
                order=order, cost=design * (1 - share), poll_fraction=fraction, margins=margins, tie_sure=tie_sure
            )
            width = lean_width(order, math.expm1((order - 1) * design * share * (1 - 2e-6)), float(fraction))
            reach, votes = gate.sure.size - 1, whole_offsets(offsets, clip, width)
            row = gate.sure[np.abs(np.arange(-reach, reach + 1))]
            lean = cls(
                "additive", share, width, votes, np.tile(row, (len(votes), 1)), logistic_rows(votes, reach, width)
            )
            # Costs add up for full polls only: with random ones the gate's step makes the lean's dearer.
            got = lean.cost(order=order, poll_fraction=fraction)
            if got <= cost:
                return lean
            design *= cost / got * (1 - 1e-5)

    @classmethod
    def fill(
        cls,
        *,
        order: int,
        cost: float,
        poll_fraction: float | Fraction = 1.0,
        margins: int | None = None,
        tie_sure: float = TIE_SURE,
        share: float = CENTRE,
        offsets: int = MOST_OFFSETS,
        clip: float = CLIP,
    ) -> Lean:
        """A logistic lean with `share` of the cost at its centre, and for each offset the gate that fits the rest.

        Parameters are those of `additive`.
        """
        fraction = check_design(order, cost, poll_fraction, share, tie_sure)
        width = lean_width(order, math.expm1((order - 1) * cost * share * (1 - 2e-6)), float(fraction))
        votes = whole_offsets(offsets, clip, width)
        reach = margins
        if reach is None:  # a lean is done within a few widths of its centre, and the gate alone within its own table
            plain = Gate.best(order=order, cost=cost, poll_fraction=fraction, tie_sure=tie_sure)
            reach = plain.sure.size + math.ceil(8 * width)
        reach, middle = integer(reach, "margins", at_least=2), len(votes) // 2
        target = math.expm1((order - 1) * cost * (1 - 2e-6))
        sure = np.empty((len(votes), 2 * reach + 1), dtype=np.uint64)
        for i in range(middle + 1):
            unsure = np.empty(2 * reach + 1)
            kept = fill_row(order, target, float(fraction), tie_sure, FLOOR, width, float(votes[middle + i]), unsure)
            sure[middle + i] = integers(unsure, kept)
            if i == 0:
                sure[middle, :reach] = sure[middle, :reach:-1]
            sure[middle - i] = sure[middle + i, ::-1]
        if margins is None:
            falling = np.flatnonzero((sure[:, reach + 1 :] != sure[:, reach:-1]).any(axis=0))
            keep = min(reach, int(falling[-1]) + 2 if falling.size else 2)
            sure, reach = sure[:, reach - keep : reach + keep + 1], keep
        return cls("fill", share, width, votes, sure, logistic_rows(votes, reach, width))

    @property
    def scale(self) -> float:
        """Rows a unit of log-odds, for `offset_of`."""
        return self.width / (self.offsets[-1] / (len(self.offsets) // 2)) if len(self.offsets) > 1 else 0.0

    @property
    def margins(self) -> int:
        """V, the largest margin of the tables."""
        return int(self.sure.shape[1]) // 2

    @property
    def tie_sure(self) -> float:
        """x: the largest probability of a sure label at margins −2 to 2, over all offsets, rounded up."""
        ties = int(self.sure[:, max(0, self.margins - TIES) : self.margins + TIES + 1].max())
        return math.nextafter(ties * 2.0**-64, 1.0) if ties else 0.0

    @property
    def unsure(self) -> Floats:
        """P(unsure) by offset and signed margin, rounded to doubles for reading."""
        return rest_of(self.sure)

    def row(self, score: float) -> int:
        """The row of a score, the log-odds of label 0: `offset_of` for these offsets."""
        return int(offset_of(float(score), self.scale, len(self.offsets) // 2))

    def draw(self, gate_word: int, lean_word: int, offset: int, margin: int) -> tuple[int, bool]:
        """(label, sure) of a round: the reference that the kernel `lean_answer` is held to.

        Parameters
        ----------
        gate_word, lean_word
            Two uniform 64-bit words of this round alone.
        offset
            The row, as `row` gives it.
        margin
            Votes for label 0 less votes for label 1, of the round's own poll.
        """
        column = max(-self.margins, min(margin, self.margins)) + self.margins
        if gate_word < int(self.sure[offset, column]):
            return (0 if margin >= 0 else 1), True
        return (0 if lean_word < int(self.first[offset, column]) else 1), False

    def survey(self, *, order: int, poll_fraction: float | Fraction = 1.0) -> Survey:
        """Bounds for all pairs of states, from the integers. Rows that mirror others cost what those do."""
        return _survey(self, check_order(order), check_fraction(poll_fraction))

    def cost(self, *, order: int, poll_fraction: float | Fraction = 1.0) -> float:
        """An upper bound of the smallest τ for which (**) holds, gate and lean together: certified from the integers.

        Proof page: docs/proofs/lean.md. Raises if no τ will do.
        """
        order = check_order(order)
        found = self.survey(order=order, poll_fraction=poll_fraction)
        if not math.isfinite(found.excess):
            p, q = (column - self.margins for column in found.place[1:])
            raise ValueError(
                f"signed margins {p} and {q} are one vote apart, and no cost bounds the step between their entries; "
                "smooth it there"
            )
        return cost_from_excess(found.excess, order)

    def envelope(self) -> Gate:
        """The gate with the largest P(unsure) over all offsets at each margin: for certificates and pictures."""
        least = self.sure.min(axis=0)
        return Gate.from_integers(np.minimum(least[self.margins :], least[: self.margins + 1][::-1]))

    def worst(self) -> Worst:
        """The worst rates by lead, whichever label is right; at a lead of 0 the wrong one may be the top."""
        unsure, sure = self.unsure, self.sure.astype(np.float64) * 2.0**-64
        first = self.first.astype(np.float64) * 2.0**-64
        behind = np.arange(-self.margins, self.margins + 1) <= 0
        if_first = (unsure * rest_of(self.first) + sure * behind).max(axis=0)
        if_second = (unsure * first + sure * behind[::-1]).max(axis=0)[::-1]
        most = unsure.max(axis=0)
        return Worst(np.maximum(most, most[::-1]), np.maximum(if_first, if_second))

    def params(self) -> dict[str, Any]:
        """What makes the same lean again: JSON's kinds of values only, mirrored rows left out."""
        begin = len(self.offsets) // 2 if self.mirrored else 0
        rows = [_runs(row) for row in self.sure[begin:]]
        out = {"kind": self.kind, "share": self.share, "width": self.width, "offsets": list(self.offsets)}
        return {**out, "sure": rows, "first": self.first[begin:].tolist()}

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Lean:
        """The lean that `params` describes."""
        sure = [_unrolled(*row) for row in params["sure"]]
        first = [thresholds(row, "first") for row in params["first"]]
        if len({row.size for row in (*sure, *first)}) != 1 or len(sure) != len(first):
            raise ValueError("a lean's rows have one length: make the plan again")
        if len(sure) == len(params["offsets"]) // 2 + 1:
            sure = [row[::-1] for row in sure[:0:-1]] + sure
            first = [np.uint64(0) - row[::-1] for row in first[:0:-1]] + first
        values = params["kind"], params["share"], params["width"], tuple(params["offsets"])
        return cls(*values, np.stack(sure), np.stack(first))

    @property
    def mirrored(self) -> bool:
        """Whether swapping the labels changes nothing: offset and margin both of the other sign."""
        flipped = np.uint64(0) - self.first[::-1, ::-1]
        return np.array_equal(self.sure, self.sure[::-1, ::-1]) and np.array_equal(self.first, flipped)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lean):
            return NotImplemented
        mine, theirs = ((each.kind, each.share, each.width, each.offsets) for each in (self, other))
        return mine == theirs and np.array_equal(self.sure, other.sure) and np.array_equal(self.first, other.first)

    def __hash__(self) -> int:
        return hash((self.kind, self.width, self.offsets, self.sure.tobytes(), self.first.tobytes()))


def _runs(row: Words) -> tuple[list[int], list[int]]:
    """A row as values and how often each is repeated."""
    starts, lengths = runs_of(row)
    return row[starts].tolist(), lengths.tolist()


def _unrolled(values: list[int], lengths: list[int]) -> Words:
    """The row that `_runs` shortened."""
    times = [integer(length, "how often a value is repeated", at_least=1) for length in lengths]
    if len(times) != len(values) or sum(times) > MOST_MARGINS:
        raise ValueError(f"a lean's row has a length for each value, and at most {MOST_MARGINS:,} margins")
    return np.repeat(thresholds(values, "sure"), times)


@lru_cache(maxsize=4)
def _survey(lean: Lean, order: int, fraction: Fraction) -> Survey:
    begin = len(lean.offsets) // 2 if lean.mirrored else 0
    return survey(lean.sure[begin:], lean.first[begin:], order=order, poll_fraction=fraction)


def joint_lean(lean: Lean, halting: Halting, *, order: int, poll_fraction: float | Fraction = 1.0) -> float:
    """Rényi divergence of gate, lean and halting gate together, rounded up. Proof page: docs/proofs/lean.md.

    The backward programme of docs/proofs/halting.md over three outcomes. Returns +inf where the tables are not bounded.
    """
    return renyi_of(*lean.survey(order=order, poll_fraction=poll_fraction).points, halting, order=order)
