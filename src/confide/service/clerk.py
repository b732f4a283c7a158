"""Questions in and answers out: what a desk makes of a request, and what its sender is told."""

from __future__ import annotations

import hmac

from confide.banks.base import FORM
from confide.pop.base import COPIES, SOURCES, Answer
from confide.pop.keeping import Keeper
from confide.pop.pop import POP
from confide.service.base import Asked, Question, Refusal
from confide.service.memory import Stored
from confide.service.rows import Row, canonical, pack
from confide.service.signing import Signer
from confide.service.words import FORGOTTEN, HALTED, OTHER_QUESTION

__all__ = ["Clerk", "Said"]

Said = dict[tuple[bytes, bytes], str]
"""What is wrong with a question, by whose it is and what it is called."""


class Clerk:
    """Reads requests and writes replies for a desk; decides nothing.

    Parameters
    ----------
    room
        Bytes for a stored question.
    """

    def __init__(self, pop: POP, keeper: Keeper, signer: Signer, room: int) -> None:
        self._pop, self._keeper, self._signer, self._room = pop, keeper, signer, room
        self.long = f"x has no JSON form, or one of more than {room:,} bytes: send a shorter one"
        """What is said of an x that cannot be stored."""

    def name(self, one: Question) -> tuple[bytes, bytes]:
        """Whose request it is, and what it is called (`Row.name`)."""
        return self._keeper.who(one.subject), self._keeper.hash(b"request", one.id.encode("utf-8", "surrogatepass"))

    def row(self, one: Question) -> Row:
        """A question's row, of which nothing is known but what was asked, and by whom."""
        keeper, packed = self._keeper, pack(one.x)
        digest = keeper.hash(b"x", canonical(one.x, packed))
        fits = packed is not None and len(packed) <= self._room
        return Row(*self.name(one), digest, 0, 0, -1, -1, -1, -1, -1, packed if fits else None)

    def reply(self, one: Question, row: Row, found: Stored | None, again: bool, said: Said) -> Asked:
        """What the sender of a request is told, once it is durable."""
        name = row.name
        if found is None:
            return Asked(None, refusal=Refusal("halted", said.get(name, HALTED)))
        if not hmac.compare_digest(found.row.digest, row.digest):
            return Asked(None, refusal=Refusal("conflict", FORGOTTEN if found.row.forgotten else OTHER_QUESTION))
        number, came, labels = found.key[1], found.row, self._pop.labels
        if came.label < 0:
            message = self.long if row.x is None else said.get(name) or self._pop.readable([one.x]).get(0, FORM)
            return Asked(None, number, Refusal("malformed", message), again)
        guide = None if came.guided < 0 else labels[came.guided]
        ticket, source = self._signer.ticket(found.key, came.whose), SOURCES[came.source]
        answer = Answer(labels[came.label], came.source == COPIES, ticket, None, source, guide)
        return Asked(answer, number, again=again)
