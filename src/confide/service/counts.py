"""What an operator sees of a model's past: counts over public rounds, in few bins. Private: for their eyes alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from copy import copy
from struct import Struct
from typing import Any

from confide.pop.base import GUIDE, OWN_SOURCES, SOURCES
from confide.service.journal import NOBODY, Columns, stands_of

__all__ = ["Counts"]

_BINS = 256


class Counts:
    """Rounds by source, labels that came and how many differed from the answer, by the round of the question.

    At most 256 bins: when they are full each takes twice as many rounds. They are durable as a note of the journal.

    Parameters
    ----------
    older
        What an earlier Confide kept in a file of its own, as JSON; None for nothing.
    parts
        What answers of the plan's parts are called; those of Confide's own are counted anyway.
    """

    def __init__(self, older: bytes | None = None, parts: Sequence[str] = ()) -> None:
        self.sources = (*OWN_SOURCES, *sorted({name for name in parts if name} - {*OWN_SOURCES}))
        """Who may answer."""
        self._columns = (*self.sources, "refused", "labels", "wrong", "unsure")
        self._column = {SOURCES.index(name): i for i, name in enumerate(self.sources)} | {-1: len(self.sources)}
        self._note = Struct(f"<16s3q{_BINS * len(self._columns)}q")
        about: dict[str, Any] = {"width": 64, "last": 0, "bins": []} if older is None else json.loads(older)
        self.sequence: int = about.get("sequence", -1)
        """The ledger's entry up to which everything is in the note; −1 for none."""
        self.width, self.last = int(about["width"]), int(about["last"])
        """Rounds of a bin, and the last round that was counted."""
        self.bins: list[list[int]] = about["bins"]

    @classmethod
    def together(cls, each: Sequence[Counts]) -> Counts:
        """Those of several desks, whose rounds have different numbers, as one."""
        made = copy(each[0])
        made.bins, made.width, made.last = [], max(one.width for one in each), max(one.last for one in each)
        for one in each:
            for i, row in enumerate(one.bins):
                found = made.bin(1 + i * one.width)
                found[:] = _joined(found, row)
        return made

    def asked(self, numbers: Sequence[int], sources: Sequence[int], unsure: int) -> None:
        """Rounds were answered from these sources, −1 where they were refused; so many unsure answers were counted."""
        if not numbers:
            return
        self.last = max(self.last, *numbers)
        last = self.bin(self.last)  # then there is a bin for each of them
        last[-1] = max(unsure, last[-1])
        places = [(number - 1) // self.width for number in numbers]
        for (found, source), rounds in Counter(zip(places, sources, strict=True)).items():
            # A number that this process does not know is of a part.
            self.bins[found][self._column.get(source, GUIDE)] += rounds

    def awaited(self, rows: Columns) -> None:
        """Questions were asked: where labels have a deadline, each counts with what stands for its label."""
        for number, place, label in zip(rows.number, rows.copy, rows.label, strict=True):
            if number > 0 and (stands := stands_of(place)) >= 0:
                found = self.bin(number)
                found[-3] += 1
                found[-2] += stands != label

    def labelled(self, rows: Columns, answered: Sequence[int]) -> None:
        """The labels of rounds came, each in place of what stood for it, and some differ from what was answered."""
        if not rows.number:
            return
        self.bin(max(rows.number))
        places = [(number - 1) // self.width for number in rows.number]
        for label, stands, said, place in zip(rows.label, map(stands_of, rows.copy), answered, places, strict=True):
            found = self.bins[place]
            if stands < 0:
                found[-3] += 1
                found[-2] += label != said
            else:
                found[-2] += (label != said) - (stands != said)

    def bin(self, number: int) -> list[int]:
        """The counts that a round belongs to, to be added to."""
        while (found := (number - 1) // self.width) >= _BINS:
            pairs = zip(self.bins[::2], [*self.bins[1::2], [0] * len(self._columns)], strict=False)
            self.bins, self.width = [_joined(one, other) for one, other in pairs], 2 * self.width
        while found >= len(self.bins):
            self.bins.append([0] * len(self._columns))
        return self.bins[found]

    @property
    def empty(self) -> bool:
        """Whether nothing was counted yet."""
        return self.last == 0

    def totals(self) -> dict[str, int]:
        """All bins together."""
        return {name: sum(row[i] for row in self.bins) for i, name in enumerate(self._columns[:-1])}

    def series(self) -> dict[str, Any]:
        """The bins: `round` is the first round of each, `unsure` the count at its end, 0 where nothing was asked."""
        columns = {name: [row[i] for row in self.bins] for i, name in enumerate(self._columns)}
        return {"width": self.width, "round": [1 + i * self.width for i in range(len(self.bins))], **columns}

    def note(self) -> bytes:
        """Everything, as a row of the journal that is nobody's; its size does not depend on what was counted."""
        numbers = [number for row in self.bins for number in row]
        room = [0] * (_BINS * len(self._columns) - len(numbers))
        return self._note.pack(NOBODY, self.width, self.last, len(self.bins), *numbers, *room)

    def read(self, note: bytes, sequence: int) -> None:
        """Go on from what `note` gave, which has everything up to this entry of the ledger."""
        _, self.width, self.last, bins, *numbers = self._note.unpack(note)
        self.bins = [numbers[i * len(self._columns) :][: len(self._columns)] for i in range(bins)]
        self.sequence = sequence


def _joined(one: list[int], other: list[int]) -> list[int]:
    return [*map(sum, zip(one[:-1], other[:-1], strict=True)), max(one[-1], other[-1])]
