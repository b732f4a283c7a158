"""Our own model for labels alone: softmax over the guide's map, boosted trees and a linear rule, mixed by likelihood.

Rows are not protected under this promise, so where columns lie is found in the rows themselves, without noise, and the
last rows are kept with what came out for them. When the map changes they are learned again; when they have doubled the
trees and rule are fitted anew. Both moments depend on how many labels came, never on what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Floats, Ints
from confide.guide.columns import Columns, Row
from confide.guide.hashed import HashedMap
from confide.guide.inputs import columns_for
from confide.guide.maps import Encoded, FeatureMap
from confide.guide.ranges import declared, from_sample
from confide.guide.rows import Table, read_many
from confide.labels.fitted import STOPS, Fitted
from confide.labels.fitting import Fit, next_fit
from confide.labels.softmax import Pace, Softmax, follow_rows
from confide.privacy.response import Response

__all__ = ["Default"]


_MAPS = (64, 512, 4096, 16384)
"""After so many labels the map is made anew from the rows so far, which are then learned again."""
_FIRST, _MEMORY = 512, 1 << 16
"""Rows before trees and rule are fitted for the first time, and those that are kept."""
_MOST = 16
"""Labels up to which there are trees and a rule: each round of boosting has one for each label."""
_CHUNK = 4096


class Default:
    """The model that is taken where none is given.

    Parameters
    ----------
    features
        As POP takes them: a number of columns, names, `Features`, or None for dicts of any names. Declared ranges
        count until the rows show where they lie.
    response
        The law of the labels that it is taught.

    Examples
    --------
    >>> response = Response.best(2.0, labels=2)
    >>> model = Default(1, response)
    >>> rows = model.read_many(np.arange(4000.0)[:, None] % 7)
    >>> outs = response.draw_many((np.arange(4000) % 7 > 3).astype(int), np.arange(4000, dtype=np.uint64) << 51)
    >>> asked = model.follow(rows, outs)
    >>> model.answer(model.read([6.0]))[0], model.answer(model.read([1.0]))[0]
    (1, 0)
    """

    def __init__(self, features: Any, response: Response) -> None:
        self.response = response
        self.taught, self.beside = 0, False
        self._source, ranges = columns_for(features)
        self._map: FeatureMap | HashedMap
        if isinstance(self._source, HashedMap):
            self._map, grows = self._source, False
        else:
            self._map = FeatureMap(self._source, declared(ranges, self._source.numeric))
            grows = bool(self._source.numeric)
        self._renewed: tuple[int, ...] = _MAPS if grows else ()
        self._others = self._many_others()
        self._pace = Pace.of(response.labels)
        self._model = self._blank()
        self._kept = _Kept()
        self._fitted: Fitted | None = None
        self._next: Fit[Fitted] | None = None

    def _many_others(self) -> int:
        """How many predict beside the softmax: trees where there are columns, a rule where there are numbers."""
        columns = self._source
        if not isinstance(columns, Columns) or self.response.labels > _MOST:
            return 0
        trees = len(STOPS) if columns.numeric or columns.categorical else 0
        return trees + bool(columns.numeric)

    # ------------------------------------------------------------------ rows

    def read(self, x: Any) -> Any:
        """The row that x is, or a ValueError that says what is wrong with it."""
        return self._source.encode(x) if isinstance(self._source, HashedMap) else self._source.read(x)

    def read_many(self, xs: Any) -> Any:
        """Many rows at once; `refused` says which could not be read."""
        if isinstance(self._source, HashedMap):
            return _Hashed(*self._source.encode_many(xs))
        return read_many(self._source, xs)

    # ------------------------------------------------------------------ answers and lessons

    def answer(self, row: Any) -> tuple[int, Floats]:
        """The likeliest label for a row that was read, and the probability of every label."""
        found = self._run(self._one(row), np.full(1, -1))[0]
        return int(found.argmax()), found

    def answer_many(self, rows: Sequence[Any]) -> list[tuple[int, Floats | None]]:
        """The same of each."""
        return [self.answer(row) for row in rows]

    def teach(self, row: Any, out: int) -> None:
        """Learn what came out of the response for the label of this row."""
        self.follow_probabilities(self._one(row), np.array([out]))

    def follow(self, rows: Any, outs: Ints) -> Ints:
        """The label of each row, which is taught before the next is asked; −1 for a refused one."""
        return np.where(rows.refused, -1, self.follow_probabilities(rows, outs).argmax(axis=1))

    def follow_probabilities(self, rows: Any, outs: Ints) -> Floats:
        """The probabilities for each row, which is taught before the next is asked; −1 for one without a label.

        A refused row has NaN and is not taught.
        """
        outs = np.where(rows.refused, -1, outs)
        found, at = np.empty((outs.size, self.response.labels)), 0
        while at < outs.size:
            until = min(outs.size, at + _CHUNK)
            until = at + int(np.searchsorted(np.cumsum(outs[at:until] >= 0), self._left(), side="left")) + 1
            part = slice(at, min(until, outs.size, at + _CHUNK))
            some = rows.part(part) if isinstance(rows, _Hashed) else _part(rows, part)
            found[part] = self._run(some, outs[part])
            self._learned(some, outs[part])
            at = part.stop
        found[rows.refused] = np.nan
        return found

    def _one(self, row: Any) -> Any:
        if isinstance(row, Row):
            texts = np.empty((1, len(row.texts)), dtype=np.object_)
            texts[0] = row.texts
            return Table(row.numbers[None], row.codes[None], texts, np.zeros(1, dtype=np.bool_))
        return _Hashed(row, np.array([row.indices.size]), np.zeros(1, dtype=np.bool_))

    def _left(self) -> int:
        """Labels until something is made anew."""
        due = [n for n in self._renewed if n > self.taught]
        if self._others:
            due.append(next_fit(self.taught, _FIRST, _MEMORY))
        if self._next is not None:
            due.append(self._next.at)
        return min(due, default=1 << 62) - self.taught

    def _run(self, rows: Any, outs: Ints) -> Floats:
        encoded, sizes = rows.encoded() if isinstance(rows, _Hashed) else self._encode(rows)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        out = np.empty((outs.size, self.response.labels))
        law = self.response.truth, self.response.lie
        given = starts, encoded.indices, encoded.values, self._said(rows), outs
        follow_rows(self._model, self._pace, *given, *law, out)
        return out

    def _encode(self, rows: Table) -> tuple[Encoded, Ints]:
        assert isinstance(self._map, FeatureMap)
        return self._map.encode_table(rows)

    def _said(self, rows: Any) -> Floats:
        """The probabilities of everybody beside the softmax; NaN before there are any."""
        out = np.full((len(rows.refused), self._others, self.response.labels), np.nan)
        if self._fitted is not None:
            self._fitted.tell(rows, out)
        return out

    def _learned(self, rows: Any, outs: Ints) -> None:
        """Keep what was taught, and make anew what is due."""
        came = outs >= 0
        before, self.taught = self.taught, self.taught + int(came.sum())
        if isinstance(rows, _Hashed) or not (self._renewed or self._others):
            return
        self._kept.add(_part(rows, came), outs[came])
        if any(before < n <= self.taught for n in self._renewed):
            self._renew()
        if self._others and before < next_fit(before, _FIRST, _MEMORY) <= self.taught:
            self._next = self._begun()
        if self._next is not None and self.taught >= self._next.at:
            self._fitted, self._next = self._next.result() or self._fitted, None

    def _renew(self) -> None:
        """A new map from the rows so far, and the same lessons again."""
        rows, outs = self._kept.all()
        assert isinstance(self._source, Columns)
        self._map = FeatureMap(self._source, from_sample(rows.numbers))
        before, fitted = self._model, self._fitted
        self._model, self._fitted = self._blank(), None
        for at in range(0, outs.size, _CHUNK):
            self._run(_part(rows, slice(at, at + _CHUNK)), outs[at : at + _CHUNK])
        self._model, self._fitted = self._model._replace(trust=before.trust, held=before.held), fitted

    def _begun(self) -> Fit[Fitted]:
        """A fit of trees and rule to the rows that are kept now."""
        rows, outs = self._kept.all()
        numbers, codes, outs = rows.numbers.copy(), rows.codes.copy(), outs.copy()
        return Fit(partial(Fitted.to, numbers, codes, outs, self.response), self.taught, self.beside)

    # ------------------------------------------------------------------ files: arrays and numbers, no pickle

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything it knows; all of it is made of rows and outputs, so it may be shown."""
        rows, outs = self._kept.all() if self._kept.size else (None, np.zeros(0, dtype=np.int64))
        found: dict[str, NDArray[Any]] = {
            "taught": np.array([self.taught, self._kept.next]),
            **{f"model/{i}": value for i, value in enumerate(self._model)},
            "kept/outs": outs,
        }
        if isinstance(self._map, FeatureMap):
            found["grids"] = np.array([[np.nan] * 65 if g is None else g for g in self._map.grids]).reshape(-1, 65)
        if rows is not None:
            found |= {"kept/numbers": rows.numbers, "kept/codes": rows.codes, **_texts(rows.texts)}
        if self._next is not None:
            found["next/at"] = np.array(self._next.at)
        for name, fitted in (("fitted", self._fitted), ("next", None if self._next is None else self._next.result())):
            found |= {} if fitted is None else fitted.arrays(name)
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state."""
        self.taught, first = (int(n) for n in state["taught"])
        if isinstance(self._source, Columns):
            grids = [None if np.isnan(g[0]) else tuple(g.tolist()) for g in state["grids"]]
            self._map = FeatureMap(self._source, tuple(grids))
        parts = [state.get(f"model/{i}") for i in range(len(self._model))]
        if [None if part is None else part.shape for part in parts] != [part.shape for part in self._blank()]:
            raise ValueError("this state is of a model with other features or labels, or of another version's model")
        self._model = Softmax(*(np.array(part, dtype=np.float64) for part in parts))
        if "kept/numbers" in state:
            texts = _texts_of(state)
            refused = np.zeros(len(texts), dtype=np.bool_)
            rows = Table(state["kept/numbers"], state["kept/codes"], texts, refused)
            self._kept.add(rows, state["kept/outs"].astype(np.int64))
            self._kept.next = first
        self._fitted = Fitted.of("fitted", state)
        if "next/at" in state:
            self._next = Fit(partial(Fitted.of, "next", state), int(state["next/at"]), False)

    def _blank(self) -> Softmax:
        return Softmax.zeros(self._map.width, self.response.labels, self._others)


def _part(rows: Table, which: Any) -> Table:
    return Table(rows.numbers[which], rows.codes[which], rows.texts[which], rows.refused[which])


def _texts(texts: NDArray[np.object_]) -> dict[str, NDArray[Any]]:
    """Texts as bytes, one behind the other, and how long each is.

    An array of texts has room for the longest in every place, and drops zeros at a text's end.
    """
    each = [text.encode("utf-8", "surrogatepass") for text in texts.ravel()]
    sizes = np.array([len(one) for one in each], dtype=np.int64).reshape(texts.shape)
    return {"kept/texts": np.frombuffer(b"".join(each), dtype=np.uint8), "kept/sizes": sizes}


def _texts_of(state: Mapping[str, NDArray[Any]]) -> NDArray[np.object_]:
    """The texts that `_texts` wrote."""
    whole, sizes = state["kept/texts"].tobytes(), state["kept/sizes"]
    texts, end = np.empty(sizes.size, dtype=np.object_), 0
    for i, size in enumerate(sizes.ravel().tolist()):
        end += size
        texts[i] = whole[end - size : end].decode("utf-8", "surrogatepass")
    return texts.reshape(sizes.shape)


class _Hashed:
    """Rows of any names, encoded."""

    def __init__(self, encoded: Encoded, sizes: Ints, refused: Flags) -> None:
        self._encoded, self._sizes, self.refused = encoded, sizes, refused

    def encoded(self) -> tuple[Encoded, Ints]:
        return self._encoded, self._sizes

    def part(self, which: slice) -> _Hashed:
        ends = np.concatenate([[0], np.cumsum(self._sizes)])
        a, b = ends[which.start], ends[which.stop]
        some = Encoded(self._encoded.indices[a:b], self._encoded.values[a:b])
        return _Hashed(some, self._sizes[which], self.refused[which])


class _Kept:
    """The last rows and outputs: once there is no more room the oldest are replaced."""

    def __init__(self) -> None:
        self.size = self.next = 0
        self._columns: Sequence[NDArray[Any]] = ()

    def add(self, rows: Table, outs: Ints) -> None:
        given = [rows.numbers, rows.codes, rows.texts, rows.refused, outs]
        for at in range(0, outs.size, _CHUNK):
            self._add([column[at : at + _CHUNK] for column in given])

    def _add(self, given: Sequence[NDArray[Any]]) -> None:
        many = len(given[-1])
        room = len(self._columns[-1]) if self._columns else 0
        if self.size + many > room and room < _MEMORY:
            room = min(_MEMORY, max(2 * room, 1024, self.size + many))
            # Zeros: what was in memory before, labels as they came perhaps, must be in no copy of it.
            fresh = [np.zeros((room, *column.shape[1:]), dtype=column.dtype) for column in given]
            for new, old in zip(fresh, self._columns, strict=False):
                new[: self.size] = old[: self.size]
            self._columns = fresh
        places = (self.next + np.arange(many)) % _MEMORY
        for column, values in zip(self._columns, given, strict=True):
            column[places] = values
        self.next = (self.next + many) % _MEMORY
        self.size = min(self.size + many, _MEMORY)

    def all(self) -> tuple[Table, Ints]:
        numbers, codes, texts, refused, outs = (column[: self.size] for column in self._columns)
        return Table(numbers, codes, texts, refused), outs
