"""Tickets that only their holder can bring, and that tell whether the ledger has forgotten the round they came from."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from itertools import pairwise

from confide.pop.keeping import Keeper
from confide.pop.tickets import Key

__all__ = ["RolledBack", "Signer"]


class RolledBack(Exception):
    """A ticket that this model signed is of a round that its ledger does not have."""


class Signer:
    """Signs tickets for their holders.

    Parameters
    ----------
    lives
        (mark, rounds before it) of every life of the model, by its epoch, as the ledger has them.
    """

    def __init__(self, keeper: Keeper, lives: Mapping[int, tuple[int, int]]) -> None:
        self._keeper, self._lives = keeper, lives
        epochs = sorted(lives)
        self._ends = {one: lives[after][1] for one, after in pairwise(epochs)}

    def ticket(self, key: Key, whose: bytes) -> str:
        """The ticket of a round, for its asker: with the life of the model that issued it."""
        text = f"{key[0]}-{key[1]}-{self._lives[key[0]][0]:x}"
        return f"{text}-{self._keeper.hash(b'holder', text.encode(), whose).hex()}"

    def key(self, ticket: str, whose: bytes) -> Key | None:
        """The round of a ticket; None for one that is not theirs.

        Raises
        ------
        RolledBack
            If it is theirs, and the ledger does not know its round.
        """
        if not self.signed(ticket, whose):
            return None
        epoch, number, mark, _ = ticket.split("-")
        key, life = (int(epoch), int(number)), int(mark, 16)
        if self._beyond(key, life):
            raise RolledBack
        return key

    def signed(self, ticket: str, whose: bytes) -> bool:
        """Whether this model signed a ticket for somebody, which takes no lock; what came of its round is not asked."""
        try:
            text, _, mac = ticket.rpartition("-")
            return hmac.compare_digest(self._keeper.hash(b"holder", text.encode(), whose).hex(), mac)
        except (ValueError, TypeError, AttributeError):  # whatever it is
            return False

    def _beyond(self, key: Key, mark: int) -> bool:
        epoch, number = key
        if epoch not in self._lives or self._lives[epoch][0] != mark:
            return True
        return number > self._ends.get(epoch, self._keeper.rounds)
