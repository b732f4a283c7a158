"""Routing: which one copy a unit touches. Proof page: docs/proofs/people.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from confide.privacy.random import Prf, Random

__all__ = ["Routing"]


class Routing:
    """The choice of copy: drawn afresh for a round or record, fixed by a secret key for a person.

    Parameters
    ----------
    units
        "rounds" or "people".
    copies
        The number of copies.
    rng
        Draws the copies of rounds.
    secret
        64 bytes: the keys of the choice, and of tickets and of what people are called inside; None for fresh ones. A
        successor has 32 more: it calls people what its predecessor called them, and its tickets are its own.
    """

    def __init__(
        self, units: Literal["rounds", "people"], copies: int, rng: Random, secret: bytes | None = None
    ) -> None:
        if units not in ("rounds", "people"):
            raise ValueError(f"units={units!r} must be 'rounds' or 'people'")
        self.units, self.copies = units, copies
        self.secret = secret if secret is not None else os.urandom(64) if rng.secure else rng.words(8).tobytes()
        self.ticket_key = self.secret[32:64]
        """The key that signs tickets."""
        self.people_key = self.secret[64:] or self.ticket_key
        """The key of what people are called."""
        self._prf, self._rng = Prf(self.secret[:32]), rng

    def who(self, unit: str | bytes | None) -> bytes | None:
        """A keyed hash of the unit's id (ids themselves are never kept); refused when it is missing or not wanted."""
        if self.units == "rounds":
            if unit is not None:
                raise ValueError(
                    "this model protects rounds, not people: leave the id out, or make it with people=True "
                    "(confide.POP: units='people')"
                )
            return None
        if not isinstance(unit, (str, bytes)) or not unit:
            raise ValueError(
                "this model protects people: say whose it is, by a non-empty str or bytes id "
                "(confide.Private: person=, people=; elsewhere: unit=, units=)"
            )
        try:
            name = unit.encode() if isinstance(unit, str) else bytes(unit)
        except UnicodeEncodeError:
            raise ValueError("a unit's id is not valid Unicode: pass bytes instead") from None
        return blake2b(name, key=self.people_key, digest_size=16, person=b"unit").digest()

    def copy_for(self, who: bytes | None) -> int:
        """The copy that learns: the person's own, or one drawn for this round or record alone."""
        return self._rng.below(self.copies) if who is None else self._prf.copy_of(who, self.copies)

    def copies_for(self, whos: Sequence[bytes | None]) -> NDArray[np.int64]:
        """`copy_for` of each."""
        if self.units == "rounds":
            return self._rng.below_many(self.copies, len(whos))
        return np.array([self.copy_for(who) for who in whos], dtype=np.int64)
