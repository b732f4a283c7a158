"""Questions in, answers and tickets out: what a desk makes of a request, and what its sender is told.

A ticket is signed for its holder, and tells whether the ledger has forgotten the round that it came from.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from itertools import pairwise

from confide.banks.base import FORM
from confide.pop.base import COPIES, SOURCES, Answer
from confide.pop.keeping import Keeper
from confide.pop.pop import POP
from confide.pop.randomized import Told
from confide.pop.tickets import Key
from confide.service.base import Question, Refusal, Reply
from confide.service.journal import Row, canonical, pack
from confide.service.requests import Request, Requests, Stored
from confide.service.words import FORGOTTEN, HALTED, OTHER_QUESTION

__all__ = ["Clerk", "RolledBack", "Said", "Signer"]

Said = dict[bytes, str]
"""What is wrong with a question, by its request's name."""


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


class Clerk:
    """Reads requests and writes replies for a desk; decides nothing.

    Parameters
    ----------
    room
        Bytes for a stored question.
    """

    def __init__(self, pop: POP, keeper: Keeper, requests: Requests, signer: Signer, room: int) -> None:
        self._pop, self._keeper, self._requests, self._signer, self._room = pop, keeper, requests, signer, room
        self._labels = pop.labels
        self.long = f"x has no JSON form, or one of more than {room:,} bytes: send a shorter one"
        """What is said of an x that cannot be stored."""

    def id(self, one: Question) -> bytes:
        """A keyed hash of a request's id (`Row.id`)."""
        return self._keeper.hash(b"request", one.id.encode("utf-8", "surrogatepass"))

    def read(self, one: Question, minute: int) -> Request:
        """A question that came in this minute, of which nothing is known but what was asked, and by whom."""
        packed, whose, id = pack(one.x), self._keeper.who(one.subject), self.id(one)
        digest = self._keeper.hash(b"x", canonical(one.x, packed))
        fits = packed is not None and len(packed) <= self._room
        row = Row(whose, id, digest, 0, 0, -1, minute, -1, -1, -1, packed if fits else None)
        return Request(one, row, *self._requests.hashes(whose, id))

    def reply(self, one: Request, found: Stored | None, said: Said) -> Reply:
        """What the sender of a request is told, once it is durable."""
        if found is None:
            return Reply(None, refusal=Refusal("halted", said.get(one.name, HALTED)))
        came = found.row
        if not hmac.compare_digest(came.digest, one.row.digest):
            return Reply(None, refusal=Refusal("conflict", FORGOTTEN if came.forgotten else OTHER_QUESTION))
        if came.label < 0:
            message = self.long if one.row.x is None else said.get(one.name) or self._wrong(one.question)
            return Reply(None, came.number, Refusal("malformed", message), one.again)
        labels, ticket = self._labels, self._signer.ticket(found.key, came.whose)
        guide, source = None if came.guided < 0 else labels[came.guided], SOURCES[came.source]
        answer = Answer(labels[came.label], came.source == COPIES, ticket, None, source, guide)
        if found.shares is not None:
            told = dict(zip(labels, found.shares, strict=True))
            answer = Told(answer.label, False, ticket, None, source, guide, told)
        return Reply(answer, came.number, again=one.again)

    def _wrong(self, one: Question) -> str:
        return str(self._pop.readable([one.x]).get(0, FORM))
