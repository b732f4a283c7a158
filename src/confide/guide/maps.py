"""Feature maps: from a row to few active features of norm at most 1, by public constants alone.

A map is made of parts: a constant; each numeric column as a clipped number and as one of its bins; each category as one
of its own hashed places; random partitions of all columns; the words of texts, and the vectors that a public encoder
makes of them. Where all columns are numbers of which something is known, each number once more, with next to no norm: θ
learns nothing there, but may be a plain straight line of these (`confide.guide.line`). Which parts, how many places and
what share of the norm each has is a public rule (`FeatureMap`): it looks at the kinds of columns and at released grids,
never at a stream. A row that is as usual in most of its columns would leave much of its norm unused, and the noise is
that of the whole: so every row is scaled to the whole, by itself alone, all but the line and the constant, which is the
same for every row. What is missing takes no room: a missing category, a missing number of a column of which nothing is
known, an empty text; beside texts each column that is there counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Floats, Ints
from confide.guide.columns import Columns, Row, digest, parts_of, words_of
from confide.guide.levels import STEPS, Grid, bin_cuts, centre_and_inverse, middle_and_inverse, reference
from confide.guide.partitions import DEPTH, Renewal, draw_partitions, find_parts, usual_parts
from confide.guide.ranges import NODES, QUARTERS, between, octave
from confide.guide.rows import Table
from confide.guide.vectors import Encoded, Vectors, weave
from confide.kernels.compile import jit
from confide.kernels.memory import Described, view
from confide.text import Embedding

__all__ = ["Encoded", "FeatureMap"]


_BIAS, _LINEAR, _BINNED, _PARTED = 0.1, 2.5, 0.5, 2.0  # shares of the squared norm, up to scale
_WORDED = _VECTORED = 4.0  # what a text says by its words, and by its vector
_WORTH = 8  # columns that say something: beside a text they have what is written above for all columns
_FIXED = 5  # parts that every row has: all but those of texts
_DENSE = 20  # columns up to which partitions have their whole share: of many, few say much together
_LINED, FAINT, _BEYOND = 32, 2.0**-14, 1.5  # the line: columns, a number's value, how far past its ends it goes
_UNDER = 1 - 2.0**-20  # what is scaled by it stays below 1 however floating point rounds


class _Tables(NamedTuple):
    """The map's constants as the kernel takes them."""

    middle: Floats  # of the line's numbers, none where there is no line
    half: Floats  # 1/half of their ranges
    centre: Floats
    inverse: Floats  # 1/spread; 0 where one value only is known
    first_line: Ints  # of each column; those that are free have one place for each power of two
    cuts: Floats  # of all columns, one after the other
    first_cut: Ints
    first_bin: Ints
    usual_bin: Ints  # the reference; −1 for none
    free: NDArray[np.bool_]  # columns with bins of quarter octaves
    first_place: Ints
    places: int
    column: Ints
    cut: Floats
    salt: NDArray[np.uint64]
    usual_part: Ints
    first_part: int
    bias: float
    linear: float
    binned: float
    category: float
    part: float
    rest: float  # the norm of these parts but the constant: every row is scaled to it, as noise is paid for it anyway


_floats, _ints, _flags = view(np.float64, 0), view(np.int64, 0), view(np.bool_, 0)
_columns, _cuts, _salts = view(np.int64, 1), view(np.float64, 1), view(np.uint64, 1)


@dataclass(frozen=True)
class FeatureMap:
    """The default map of declared columns.

    Parameters
    ----------
    columns
        The columns and their kinds.
    grids
        For each numeric column where it lies (`confide.guide.ranges`), or None: then it is a line between powers of
        two, its bins are quarter octaves, and no partition cuts it.
    partitions
        How many random partitions.
    places
        Hashed places of each category, and `words` of each text; with no places for words only their vectors count.
    seed
        Public: it names the partitions.
    renewed
        Partitions drawn anew since, in this order.

    Examples
    --------
    >>> from confide.guide.ranges import declared
    >>> columns = Columns(numeric=("age",), categorical=("city",))
    >>> features = FeatureMap(columns, declared({"age": (0, 120)}, columns.numeric), partitions=2)
    >>> features.width
    447
    >>> encoded = features.encode({"age": 41, "city": "Rome"})
    >>> encoded.indices.tolist()
    [0, 1, 35, 278, 355, 428]
    >>> bool((encoded.values**2).sum() <= 1)
    True
    """

    columns: Columns
    grids: tuple[Grid, ...] = ()
    partitions: int = 96
    places: int = 256
    words: int = 8192
    seed: int = 0
    renewed: tuple[Renewal, ...] = ()
    width: int = field(init=False, compare=False)
    _tables: _Tables = field(init=False, compare=False, repr=False)
    _held: Described = field(init=False, compare=False, repr=False)
    _first_word: int = field(init=False, compare=False, repr=False)
    _word: float = field(init=False, compare=False, repr=False)
    _rest: float = field(init=False, compare=False, repr=False)
    _vectors: Vectors = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("partitions", "places", "words"):
            integer(getattr(self, name), name, at_least=int(name == "places"), at_most=1 << 20)
        grids = tuple(self.grids) or (None,) * len(self.columns.numeric)
        if len(grids) != len(self.columns.numeric):
            raise ValueError("give one grid, or None, for each numeric column")
        for grid in grids:
            if grid is not None and not _is_grid(np.asarray(grid, dtype=np.float64)):
                raise ValueError(f"a grid is {STEPS + 1} finite numbers in increasing order")
        object.__setattr__(self, "grids", tuple(None if g is None else tuple(map(float, g)) for g in grids))
        self._build()

    def _build(self) -> None:
        d, categories, texts = self._sizes()
        number = self.partitions if d + categories > 1 else 0
        parts = draw_partitions(self.grids, categories, number, self.seed, self.renewed)
        value, rest = self._values(parts.column.shape[0])
        cuts = [bin_cuts(grid) for grid in self.grids]
        bins = [2 * QUARTERS + 2 if g is None else len(cut) + 2 for cut, g in zip(cuts, self.grids, strict=True)]
        lined = [middle_and_inverse(grid) for grid in self.grids[: self.lined]]
        middle, half = np.array(lined).reshape(-1, 2).T.copy()
        first_line = np.cumsum([1 + self.lined, *(NODES if grid is None else 1 for grid in self.grids)], dtype=np.int64)
        first_bin = first_line[-1] + np.concatenate([[0], np.cumsum(bins)]).astype(np.int64)
        first_place = first_bin[-1] + self.places * np.arange(categories + 1, dtype=np.int64)
        first_part = int(first_place[-1])
        first_word = first_part + (parts.column.shape[0] << DEPTH)
        usual = [QUARTERS if g is None else reference(g, cut) for cut, g in zip(cuts, self.grids, strict=True)]
        centre, inverse = np.array([centre_and_inverse(grid) for grid in self.grids]).reshape(d, 2).T.copy()
        tables = _Tables(
            middle,
            half,
            centre,
            inverse,
            first_line,
            np.concatenate([np.zeros(0), *cuts]),
            np.concatenate([[0], np.cumsum([len(cut) for cut in cuts])]).astype(np.int64),
            first_bin,
            np.array(usual, dtype=np.int64),
            np.array([g is None for g in self.grids], dtype=np.bool_),
            first_place,
            self.places,
            *parts,
            usual_parts(parts, self.grids),
            first_part,
            *(*value[:_FIXED], rest),
        )
        object.__setattr__(self, "_tables", tables)
        object.__setattr__(self, "_held", _held(tables))
        object.__setattr__(self, "_first_word", first_word)
        object.__setattr__(self, "_word", value[5])
        object.__setattr__(self, "_rest", math.sqrt(1 - value[0] ** 2) * _UNDER)
        object.__setattr__(self, "_vectors", Vectors(self.columns.encoders, first_word + texts * self.words, value[6]))
        object.__setattr__(self, "width", first_word + texts * self.words + self._vectors.width)

    def _sizes(self) -> tuple[int, int, int]:
        return len(self.columns.numeric), len(self.columns.categorical), len(self.columns.text)

    def _values(self, partitions: int) -> tuple[tuple[float, ...], float]:
        """The value of each part's features, checked: even with all of them at their largest the norm is at most 1.

        And the norm of all parts but the constant and those of texts, to which every row is scaled.
        """
        d, categories, texts = self._sizes()
        encoded = sum(encoder is not None for encoder in self.columns.encoders)
        columns = max(d + categories, 1)  # every column the same, whatever its kind
        shares = [
            _BIAS,
            d * _LINEAR / columns,
            d * _BINNED / columns,
            categories * (_LINEAR + _BINNED) / columns,
            _PARTED * min(1.0, _DENSE / columns) if partitions else 0.0,
            texts * _WORDED if self.words else 0.0,
            encoded * _VECTORED,
        ]
        counts = [1, d, d, categories, partitions, texts, encoded]
        values = [
            math.sqrt(share / sum(shares) / count) * _UNDER if count else 0.0
            for share, count in zip(shares, counts, strict=True)
        ]
        line = _LINED * (Fraction(FAINT) * Fraction(_BEYOND)) ** 2
        if line + sum(count * Fraction(value) ** 2 for count, value in zip(counts, values, strict=True)) > 1:
            raise ArithmeticError("the features' norm exceeds 1: the shares were scaled wrongly")
        return tuple(values), math.sqrt(sum(shares[1:_FIXED]) / sum(shares)) * _UNDER

    @cached_property
    def active(self) -> int:
        """How many features of a row are active, without those of texts."""
        parts, free = int(self._tables.column.shape[0]), self.grids.count(None)
        return 1 + self.lined + 2 * len(self.columns.numeric) + free + len(self.columns.categorical) + parts

    @property
    def lined(self) -> int:
        """How many features, after the constant, are the line's: one a number, or none."""
        d, categories, texts = self._sizes()
        return d if 0 < d <= _LINED and not categories and not texts and None not in self.grids else 0

    @property
    def unplaced(self) -> float:
        """What of a row's squared norm, at most, columns write of which nothing is known: perhaps in all rows alike."""
        return self.grids.count(None) * self._tables.linear**2

    @property
    def constant(self) -> float:
        """The value of the first feature, which is the same for every row."""
        return self._tables.bias

    @property
    def parts(self) -> tuple[int, NDArray[np.int64]]:
        """The first feature of the partitions, and the columns that each of them cuts."""
        return self._tables.first_part, self._tables.column

    @cached_property
    def owners(self) -> Ints:
        """Each feature's column: numbers first, then categories, then texts; −1 for those of all or none."""
        tables, (d, categories, texts) = self._tables, self._sizes()
        of = np.concatenate([np.arange(d), np.arange(d + categories)])
        ends = np.concatenate([tables.first_line, tables.first_bin[1:], tables.first_place[1:]])
        widths = [0 if encoder is None else encoder.width for encoder in self.columns.encoders] or [0] * texts
        said = d + categories + np.arange(texts)
        parted = np.full(self._first_word - tables.first_part, -1)
        fixed = np.concatenate([np.full(1 + self.lined, -1), np.repeat(of, np.diff(ends)), parted])
        return np.concatenate([fixed, np.repeat(said, self.words), np.repeat(said, widths)]).astype(np.int64)

    def encode(self, x: Any, /) -> Encoded:
        """The active features of `x`, or a ValueError that says what is wrong with it."""
        return self.encode_row(self.columns.read(x))

    def encode_row(self, row: Row, /) -> Encoded:
        """The active features of a row that was read."""
        indices, values = np.empty(self.active, dtype=np.int64), np.empty(self.active)
        _encode_here(self._held.memory, row.numbers, row.codes, indices, values)
        if not row.texts:
            return Encoded(indices, values)
        values[1:] *= self._said(row.numbers[None, :], row.codes[None, :])
        fixed = np.array([self.active]), Encoded(indices, values)
        return self._whole(*weave([fixed, self._words([row.texts]), self._vectors.encode([row.texts])]))

    def encode_table(self, table: Table) -> tuple[Encoded, Ints]:
        """The features of rows, one after the other, and how many each has, 0 if refused: the bits of `encode_row`."""
        kept = ~table.refused
        n = int(kept.sum())
        numbers, codes = (table.numbers, table.codes) if n == kept.size else (table.numbers[kept], table.codes[kept])
        indices, values = np.empty((n, self.active), dtype=np.int64), np.empty((n, self.active))
        _encode_many(numbers, codes, self._tables, indices, values)
        sizes = np.where(kept, self.active, 0)
        if not self.columns.text:
            return Encoded(indices.ravel(), values.ravel()), sizes
        texts = table.texts[kept].tolist()
        values[:, 1:] *= self._said(numbers, codes)[:, None]
        fixed = sizes[kept], Encoded(indices.ravel(), values.ravel())
        sizes[kept], encoded = weave([fixed, self._words(texts), self._vectors.encode(texts)])
        return self._whole(sizes[kept], encoded), sizes

    def _said(self, numbers: Floats, codes: NDArray[np.uint64]) -> Floats:
        """What a row's other columns weigh beside its texts: the more of them are not missing, the more."""
        present = (numbers == numbers).sum(axis=1) + (codes != 0).sum(axis=1)
        weight: Floats = np.sqrt(np.maximum(present, 1) / _WORTH)
        return weight

    def _whole(self, sizes: Ints, encoded: Encoded) -> Encoded:
        """Rows with texts, each scaled to the whole norm by itself alone, all but its first feature, the constant."""
        of, first = np.repeat(np.arange(sizes.size), sizes), np.cumsum(sizes) - sizes
        squares = encoded.values * encoded.values
        squares[first] = 0.0
        said = np.bincount(of, squares, minlength=sizes.size)  # added in the order of features: a row's own bits
        scale = self._rest / np.sqrt(np.where(said > 0.0, said, np.inf))[of]
        scale[first] = 1.0
        return Encoded(encoded.indices, encoded.values * scale)

    def _words(self, texts: Sequence[Sequence[str]]) -> tuple[Ints, Encoded]:
        """Hashed words and their parts, by the roots of their counts: norm 1 a text before its share is applied.

        How many features each row has, and the features of all. Equal words are hashed once a call.
        """
        if not self.words:
            return np.zeros(len(texts), dtype=np.int64), Encoded(np.zeros(0, dtype=np.int64), np.zeros(0))
        known: dict[tuple[int, str], list[int]] = {}
        found: list[list[int]] = []
        columns = len(self.columns.text)
        sizes = np.zeros((len(texts), columns), dtype=np.int64)
        for n, row in enumerate(texts):
            for i, text in enumerate(row):
                first = len(found)
                for word in words_of(text):
                    if (i, word) not in known:
                        known[i, word] = [
                            i * self.words + digest(f"{i} {part}") % self.words for part in parts_of(word)
                        ]
                    found.append(known[i, word])
                sizes[n, i] = sum(map(len, found[first:]))
        rows = np.repeat(np.arange(len(texts)), sizes.sum(axis=1))
        tokens = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=rows.size)
        keys, counts = np.unique(rows * (columns * self.words) + tokens, return_counts=True)
        of, place = np.divmod(keys, columns * self.words)
        values = self._word * np.sqrt(counts / sizes[of, place // self.words])
        return np.bincount(of, minlength=len(texts)), Encoded(self._first_word + place, values * _UNDER)

    def params(self) -> dict[str, Any]:
        """What makes the same map again: JSON's kinds of values only."""
        return {
            "columns": {kind: list(getattr(self.columns, kind)) for kind in ("numeric", "categorical", "text")},
            "grids": [None if grid is None else list(grid) for grid in self.grids],
            **{name: getattr(self, name) for name in ("partitions", "places", "words", "seed")},
            "renewed": [[i, list(columns), deal] for i, columns, deal in self.renewed],
            **({"encoders": self._vectors.names()} if self.columns.encoders else {}),
        }

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> FeatureMap:
        """The map that `params` describes."""
        encoders = tuple(None if name is None else Embedding(name) for name in params.get("encoders", ()))
        columns = Columns(**{kind: tuple(names) for kind, names in params["columns"].items()}, encoders=encoders)
        grids = tuple(None if grid is None else tuple(grid) for grid in params["grids"])
        renewed = tuple(Renewal(i, tuple(columns), deal) for i, columns, deal in params["renewed"])
        rest = {name: int(params[name]) for name in ("partitions", "places", "words", "seed")}
        return cls(columns, grids, renewed=renewed, **rest)


def _is_grid(grid: Floats) -> bool:
    return grid.shape == (STEPS + 1,) and bool(np.isfinite(grid).all()) and bool((np.diff(grid) >= 0).all())


@jit
def _nothing(numbers: Floats, codes: NDArray[np.uint64], columns: Ints) -> bool:
    """Whether a row has nothing in any of these columns, categories being numbered after numbers."""
    d, said = numbers.size, 0
    for j in columns:
        said += (numbers[j] == numbers[j]) if j < d else (codes[j - d] != 0)
    return said == 0


@jit
def _encode(numbers: Floats, codes: NDArray[np.uint64], tables: _Tables, indices: Ints, values: Floats) -> None:
    indices[0], values[0] = 0, tables.bias
    d, at, missing = numbers.size, 1, 0
    for j in range(tables.middle.size):
        z = (numbers[j] - tables.middle[j]) * tables.half[j]
        indices[at], values[at] = at, FAINT * (min(max(z, -_BEYOND), _BEYOND) if z == z else 0.0)
        at += 1
    first = at
    for j in range(d):  # a missing number is 0 here
        if tables.free[j]:
            node, here, there = between(numbers[j])
            indices[at], values[at] = tables.first_line[j] + node, tables.linear * here
            at += 1
            indices[at], values[at] = tables.first_line[j] + node + 1, tables.linear * there
        else:
            z = (numbers[j] - tables.centre[j]) * tables.inverse[j]
            z = min(max(z, -1.0), 1.0) if z == z else 0.0
            indices[at], values[at] = tables.first_line[j], tables.linear * z
        at += 1
    for j in range(d):
        value, bin_ = numbers[j], -1  # the first bin is for missing numbers
        if value == value:
            if tables.free[j]:
                place = octave(value, 4)
                bin_ = QUARTERS + (place if value >= 0 else -place)
            else:
                low, high = tables.first_cut[j], tables.first_cut[j + 1]
                while low < high:
                    middle = (low + high) // 2
                    if value >= tables.cuts[middle]:
                        low = middle + 1
                    else:
                        high = middle
                bin_ = int(low - tables.first_cut[j])
        usual = bin_ == tables.usual_bin[j] if bin_ >= 0 else tables.free[j]
        indices[at], values[at] = tables.first_bin[j] + 1 + bin_, 0.0 if usual else tables.binned
        at += 1
    for j in range(codes.size):
        hashed = np.int64(codes[j] % np.uint64(tables.places))
        indices[at], values[at] = tables.first_place[j] + hashed, tables.category if codes[j] else 0.0
        missing += codes[j] == 0
        at += 1
    find_parts(numbers, codes, tables.column, tables.cut, tables.salt, indices[at:])
    for i in range(tables.column.shape[0]):
        part = indices[at]
        indices[at] = tables.first_part + (i << DEPTH) + part
        usual = part == tables.usual_part[i] or (missing > 0 and _nothing(numbers, codes, tables.column[i]))
        values[at] = 0.0 if usual else tables.part
        at += 1
    squares = 0.0
    for a in range(first, at):
        squares += values[a] * values[a]
    whole = tables.rest / np.sqrt(squares) if squares > 0.0 else 0.0
    for a in range(first, at):
        values[a] *= whole


@jit
def _encode_many(numbers: Floats, codes: NDArray[np.uint64], tables: _Tables, indices: Ints, values: Floats) -> None:
    for i in range(numbers.shape[0]):
        _encode(numbers[i], codes[i], tables, indices[i], values[i])


def _held(tables: _Tables) -> Described:
    """The tables as `_encode_here` takes them: a kernel that is called for one row takes one array sooner than many."""
    arrays = {name: value for name, value in tables._asdict().items() if isinstance(value, np.ndarray)}
    whole, shares = ([value for value in tables if type(value) is kind] for kind in (int, float))
    return Described({**arrays, "whole": np.array(whole, dtype=np.int64), "shares": np.array(shares)})


@jit
def _encode_here(memory: Ints, numbers: Floats, codes: NDArray[np.uint64], indices: Ints, values: Floats) -> None:
    """`_encode` by the tables that lie in memory there (`_held`)."""
    whole, share = _ints(memory, 15), _floats(memory, 16)
    tables = _Tables(
        _floats(memory, 0), _floats(memory, 1), _floats(memory, 2), _floats(memory, 3), _ints(memory, 4),
        _floats(memory, 5), _ints(memory, 6), _ints(memory, 7), _ints(memory, 8), _flags(memory, 9),
        _ints(memory, 10), whole[0], _columns(memory, 11), _cuts(memory, 12), _salts(memory, 13),
        _ints(memory, 14), whole[1], share[0], share[1], share[2], share[3], share[4], share[5],
    )  # fmt: skip
    _encode(numbers, codes, tables, indices, values)
