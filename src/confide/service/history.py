"""An import of history: labelled records that were never asked, taught once however often they are sent.

It is taught in slices, each durable by itself, between which others are served. An import that has an id leaves rows of
its own in the journal, beside its records' rows: with each piece one with its name and how far it came, and one with a
digest of the records of that piece, and of no other: an import may be cut off, and nobody is in a digest who is not
noted beside it. A digest is erased with anybody whose record is in it; the names are nobody's, and stay for a ticket's
life.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from confide.pop.batches import Records as Taken
from confide.pop.keeping import Keeper
from confide.service.base import Records, Refusal
from confide.service.imports import Imported
from confide.service.journal import IMPORT, NOBODY, NUMBERED, Row, Unreadable, canonical, pack
from confide.service.words import NO_ID, NO_LABEL, NO_SUBJECT

__all__ = ["SLICE", "Import"]

SLICE = 256
"""Records that are taught together: everybody else waits for one slice at most. Public."""


class Import:
    """Records as a desk takes them, slice by slice.

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
    alone
        Whether labels alone are protected: then no digest is of them, since whoever has the key could try each label.
    """

    def __init__(
        self, keeper: Keeper, records: Records, name: str | None, *, room: int, people: bool, alone: bool = False
    ) -> None:
        self._people, self._records, self._alone = people, records, alone
        self._packed = [pack(x) for _, x, _ in records]
        self._good = [
            one is not None and len(one) <= room and (bool(subject) or not people)
            for one, (subject, _, _) in zip(self._packed, records, strict=True)
        ]
        if name is None and len(records) > SLICE:
            raise ValueError(NO_ID)
        nobody = keeper.hash(b"nobody")
        self.whos = [keeper.who(subject) if subject else nobody for subject, _, _ in records]
        self.labels = keeper.labels(y for _, _, y in records)
        self._keeper, self.name, self._sums = keeper, NOBODY, NOBODY
        if name is not None:
            self.name = keeper.hash(b"import", name.encode("utf-8", "surrogatepass"))
            self._sums = keeper.hash(b"records", self.name)

    def same(self, before: Imported) -> bool:
        """Whether these are the records of an import that was begun, as far as it came; False once one was erased."""
        pieces = before.whole or list(before.pieces.values())
        given = ((digest, self._digest(begin, end)) for begin, end, digest in pieces)
        return bool(pieces) and all(kept is not None and hmac.compare_digest(kept, now) for kept, now in given)

    def _digest(self, begin: int, end: int) -> bytes:
        """Of the records of a piece, and of how many there are in all; of an older import, which has one, of all."""
        parts, whole = list[bytes](), end < 0
        piece = slice(0, None) if whole else slice(begin, end)
        given = zip(self.whos[piece], self._packed[piece], self._records[piece], strict=True)
        for who, packed, (_, x, y) in given:
            for part in (who, canonical(x, packed), b"" if self._alone else pack(y) or b""):
                parts += [len(part).to_bytes(8, "little"), part]
        place = () if whole else (b"%d %d %d" % (begin, end, len(self._records)),)
        return self._keeper.hash(b"history", *place, *parts)

    def slices(self, done: int) -> list[slice]:
        """All records in order, so many of which were taken before: they are in slices of their own."""
        last, parts = len(self._records), list[slice]()
        for begin, end in ((0, min(done, last)), (done, last)):
            parts += [slice(at, min(at + SLICE, end)) for at in range(begin, end, SLICE)]
        return parts

    def xs(self, part: slice) -> list[Any]:
        """The questions of a slice, as the POP is given them."""
        given = zip(self._records[part], self._good[part], strict=True)
        return [x if good else Unreadable() for (_, x, _), good in given]

    def ys(self, part: slice) -> list[Any]:
        """The labels of a slice, as the POP is given them."""
        given = zip(self._records[part], self._good[part], strict=True)
        return [y if good else Unreadable() for (_, _, y), good in given]

    def rows(self, part: slice, taught: Taken, rounds: int) -> list[Row]:
        """For the journal: what a slice taught, after so many rounds; of a refused record, whose it was.

        So whoever is forgotten is found in the import, whose digest has refused records too. What is written, and
        whether it fits on the disk, follows from how many records there are.
        """
        rows, packed = list[Row](), self._packed[part]
        if self.name != NOBODY:
            none = -1, -1, -1, None
            rows.append(Row(self.name, self.name, NOBODY, rounds, IMPORT, part.stop, part.start, *none))
            digest = self._digest(part.start, part.stop)
            rows.append(Row(self._sums, self.name, digest, rounds, IMPORT, part.stop, part.start, *none))
        for i, whose in enumerate(self.whos[part]):
            if taught.labels[i] >= 0:
                numbered = NUMBERED if i < taught.numbered else -1
                about = int(taught.copies[i]), int(taught.leaves[i]), int(taught.labels[i]), -1, numbered, packed[i]
                rows.append(Row(whose, NOBODY, NOBODY, 0, 0, *about))
            else:
                rows.append(Row(whose, NOBODY, NOBODY, 0, 0, -1, -1, -1, -1, -1, None))
        return rows

    def said(self, part: slice, unreadable: Mapping[int, str], long: str) -> list[Refusal | None]:
        """What the operator is told of each record of a slice; `long` of an x that cannot be stored."""
        told, records = list[Refusal | None](), self._records[part]
        for i, (good, label) in enumerate(zip(self._good[part], self.labels[part], strict=True)):
            if not good:
                nameless = self._people and not records[i][0]
                told.append(Refusal("malformed", NO_SUBJECT if nameless else long))
            elif label < 0:
                told.append(Refusal("label", NO_LABEL))
            else:
                told.append(Refusal("malformed", unreadable[i]) if i in unreadable else None)
        return told
