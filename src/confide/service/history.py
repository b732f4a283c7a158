"""An import of history: labelled records that were never asked, taught once however often they are sent.

An import that has an id leaves two rows of its own in the journal, beside its records' rows: one with its name, and one
with a digest of all records. The second is erased with anybody whose record is among them; the first is nobody's, and
stays for a ticket's life.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from confide.pop.batches import Records
from confide.pop.keeping import Keeper
from confide.service.base import Refusal
from confide.service.rows import IMPORT, NOBODY, Row, Unreadable, canonical, pack
from confide.service.words import NO_LABEL, NO_SUBJECT

__all__ = ["History", "Import"]

History = Sequence[tuple[str | None, Any, Hashable]]
"""Records: subject, x, label."""


class Import:
    """Records as a desk takes them.

    Parameters
    ----------
    records
        As they came.
    name
        The id under which they came; None for none.
    room
        Bytes for a stored x.
    people
        Whether every record must say whose it is.
    """

    def __init__(self, keeper: Keeper, records: History, name: str | None, *, room: int, people: bool) -> None:
        self._people, self._records = people, records
        self._packed = [pack(x) for _, x, _ in records]
        self._good = [
            one is not None and len(one) <= room and (bool(subject) or not people)
            for one, (subject, _, _) in zip(self._packed, records, strict=True)
        ]
        nobody = keeper.hash(b"nobody")
        self.whos = [keeper.who(subject) if subject else nobody for subject, _, _ in records]
        self.labels = keeper.labels(y for _, _, y in records)
        self.name = self.digest = NOBODY
        self._sums = NOBODY
        if name is not None:
            self.name = keeper.hash(b"import", name.encode("utf-8", "surrogatepass"))
            self._sums, self.digest = keeper.hash(b"records", self.name), keeper.hash(b"history", *self._parts())

    def _parts(self) -> list[bytes]:
        """All that the records are, each part with its length before it."""
        parts = list[bytes]()
        for who, packed, (_, x, y) in zip(self.whos, self._packed, self._records, strict=True):
            for part in (who, canonical(x, packed), pack(y) or b""):
                parts += [len(part).to_bytes(8, "little"), part]
        return parts

    @property
    def xs(self) -> list[Any]:
        """The questions, as the POP is given them."""
        return [x if good else Unreadable() for (_, x, _), good in zip(self._records, self._good, strict=True)]

    @property
    def ys(self) -> list[Any]:
        """The labels, as the POP is given them."""
        return [y if good else Unreadable() for (_, _, y), good in zip(self._records, self._good, strict=True)]

    def rows(self, taught: Records, rounds: int) -> list[Row]:
        """For the journal: what was taught, after so many rounds; a record that was refused has a row that is nobody's.

        So what is written, and whether it fits on the disk, follows from how many records there are.
        """
        rows = list[Row]()
        if self.name != NOBODY:
            none = rounds, IMPORT, -1, -1, -1, -1, -1, None
            rows += [Row(self.name, self.name, NOBODY, *none), Row(self._sums, self.name, self.digest, *none)]
        for i, whose in enumerate(self.whos):
            if taught.labels[i] >= 0:
                about = int(taught.copies[i]), int(taught.leaves[i]), int(taught.labels[i]), -1, -1, self._packed[i]
                rows.append(Row(whose, NOBODY, NOBODY, 0, 0, *about))
            else:
                rows.append(Row(NOBODY, NOBODY, NOBODY, 0, 0, -1, -1, -1, -1, -1, None))
        return rows

    def said(self, unreadable: Mapping[int, str], long: str) -> list[Refusal | None]:
        """What the operator is told of each record; `long` of an x that cannot be stored."""
        told = list[Refusal | None]()
        for i, (good, label) in enumerate(zip(self._good, self.labels, strict=True)):
            if not good:
                nameless = self._people and not self._records[i][0]
                told.append(Refusal("malformed", NO_SUBJECT if nameless else long))
            elif label < 0:
                told.append(Refusal("label", NO_LABEL))
            else:
                told.append(Refusal("malformed", unreadable[i]) if i in unreadable else None)
        return told
