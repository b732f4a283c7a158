"""Tickets: how a label finds the round it belongs to, once, within a public number of rounds.

A ticket expires by its age in public rounds, never by a count of open ones, and only expiry and prior use are ever
reported. Proof page: docs/proofs/people.md.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from confide.contained import contained
from confide.errors import TicketError

__all__ = ["ROLLED_BACK", "Tickets", "Waiting"]

ROLLED_BACK = (
    "a ticket came that this model issued after the last round in its ledger, so the ledger was rolled back and what "
    "was spent since is not counted: nobody is answered any more; bring back the newest ledger, or start a new model"
)

Key = tuple[int, int]
"""Which load of the state issued it, and the number of its round."""

_SIGNED = -33
"""Where the signature begins in a ticket, from its end, with the hyphen before it."""

_KNOWN = 1 << 14
"""Tickets of a journal's owner that are remembered as signed, as most come back soon."""


_LEFT_OUT = ("_keyed", "_known", "_latest")  # of a pickle


@dataclass(slots=True, repr=False)
class Waiting:
    """An answer that waits for its label."""

    copy: int
    """The copy that will learn; −1 for none."""
    x: Any
    answered: int
    counted: bool
    """Whether the monitor counts this round."""
    who: bytes | None = None
    questions: tuple[Any, ...] = ()
    """The row as each public part takes it."""


class Tickets:
    """All open tickets of a run.

    Parameters
    ----------
    key
        32 secret bytes: a ticket is signed with them, so that nobody makes one up.
    life
        Public rounds after which a ticket expires.
    """

    def __init__(self, key: bytes, life: int) -> None:
        self.life, self.epoch = life, 0
        self.kept = False
        """Whether a journal has the open tickets: then neither this nor a snapshot has them, and its owner hands them
        out and ends them."""
        self.held: Callable[[Key], Waiting | None] | None = None
        """Takes an open question out of the store of an owner who keeps a journal; None for one that is not there."""
        self.lives: Mapping[int, tuple[int, int]] = {}
        """(mark, rounds before it) of every life of the model, by its epoch, where tickets name their life."""
        self.used: frozenset[Key] = frozenset()
        """What earlier lives marked as used: never good again, whoever has them as open."""
        self._key, self._keyed = key, _keyed(key)
        # tickets that were signed last: whose, and of which round; keys that are none stand for forgotten people's
        self._known: dict[object, tuple[bytes, Key]] = {}
        self._latest: dict[str, tuple[bytes, Key]] = {}  # without a journal the last one alone, if any
        self._open: dict[Key, Waiting] = {}
        self._ended: dict[Key, str] = {}
        self._due: deque[Key] = deque()  # every round, with a ticket or not: each expiry is the same work

    def issue(self, number: int, waiting: Waiting | None) -> str:
        """The ticket of a round; None, and no ticket, for a round without an answer."""
        if self.kept:
            return ""
        key = self.epoch, number
        self._due.append(key)
        if waiting is None:
            return ""
        self._open[key] = waiting
        return self.sign(key)

    def expire(self, now: int) -> None:
        """Drop what was issued `life` rounds ago or earlier."""
        due, last = self._due, now - self.life
        while due and due[0][1] <= last:
            self._open.pop(due.popleft(), None)

    def sign(self, key: Key, whose: bytes = b"") -> str:
        """The ticket of a round, with the life that issued it; where a journal has them, for its holder alone."""
        text = f"{key[0]}-{key[1]}-{self.lives[key[0]][0]:x}" if self.lives else f"{key[0]}-{key[1]}"
        one = self._keyed.copy()
        one.update(text.encode() + whose)
        ticket = f"{text}-{one.hexdigest()}"
        if not self.kept:
            self._latest = {ticket: (whose, key)}
            return ticket
        if len(self._known) >= _KNOWN:  # as rounds are public, so is when that is, whatever labels come, or wishes
            self._known.clear()
        self._known[ticket] = whose, key
        return ticket

    def sign_many(self, epoch: int, numbers: Sequence[int], whose: Sequence[bytes]) -> list[str]:
        """`sign` of rounds of one life, where a journal has them."""
        if len(self._known) + len(numbers) > _KNOWN:  # as in `sign`
            self._known.clear()
        end, new, known, tickets = f"-{self.lives[epoch][0]:x}" if self.lives else "", self._keyed.copy, self._known, []
        for number, who in zip(numbers, whose, strict=True):
            text, one = f"{epoch}-{number}{end}", new()
            one.update(text.encode() + who)
            ticket = f"{text}-{one.hexdigest()}"
            known[ticket] = who, (epoch, number)
            tickets.append(ticket)
        return tickets

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _LEFT_OUT}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved, _keyed=_keyed(saved["_key"]), _known={}, _latest={})

    def read(self, ticket: str, whose: bytes = b"") -> Key:
        """The key of a ticket that was signed for its holder; TicketError for any other. It needs no lock."""
        known, form = self._known if self.kept else self._latest, False
        found = known.get(ticket) if type(ticket) is str else None
        key = found[1] if found is not None and found[0] == whose else self._key_of(ticket, whose)
        if key is not None:
            return key
        with contained:  # whatever it is
            parts = ticket.split("-", 2)
            form = isinstance(int(parts[0]) + int(parts[1]), int)
        if ticket is None or (type(ticket) is str and not ticket):
            raise TicketError("there is no ticket: this question was refused, and the error of its answer says why")
        if not form:
            raise TicketError("this is not a ticket: bring back the one that came with the answer")
        raise TicketError("this ticket was not issued by this POP")

    def read_many(self, tickets: Iterable[str], whose: bytes) -> list[Key | None]:
        """`read` of each; None for one that was not signed for its holder."""
        keys, known = list[Key | None](), self._known.get
        for ticket in tickets:
            found = known(ticket) if type(ticket) is str else None
            keys.append(found[1] if found is not None and found[0] == whose else self._key_of(ticket, whose))
        return keys

    def _key_of(self, ticket: str, whose: bytes) -> Key | None:
        with contained:  # whatever it is, others' are read
            text, _, mac = ticket.rpartition("-")
            one = self._keyed.copy()
            one.update(text.encode("utf-8", "surrogatepass") + whose)
            if mac.isascii() and hmac.compare_digest(one.hexdigest(), mac):
                epoch, number, *_ = text.split("-", 2)
                return int(epoch), int(number)
        return None

    def any_lost(self, tickets: Iterable[tuple[str, Key]], rounds: int) -> bool:
        """Whether one of these tickets, which we signed, is `lost`."""
        own, end = self.epoch, f"-{self.lives[self.epoch][0]:x}" if self.epoch in self.lives else "-"
        for ticket, (epoch, number) in tickets:
            of_this_life = epoch == own and number <= rounds and ticket[:_SIGNED].endswith(end)
            if not of_this_life and self.lost(ticket, rounds):
                return True
        return False

    def lost(self, ticket: str, rounds: int) -> bool:
        """Whether the ledger, after so many rounds, has forgotten the round that a ticket we signed came from."""
        epoch, number, *mark, _ = ticket.split("-")
        if not mark:  # from before there was a ledger
            return False
        known, life = int(epoch), self.lives.get(int(epoch), (-1, 0))
        if known != self.epoch:
            rounds = min((began for one, (_, began) in self.lives.items() if one > known), default=rounds)
        return life[0] != int(mark[0], 16) or int(number) > rounds

    def take(self, key: Key, now: int) -> Waiting:
        """The question of a ticket, by its key: once, and in time."""
        if key[1] <= now - self.life and not self.kept:
            raise TicketError(
                f"this ticket has expired: labels are taken for {self.life:,} rounds; bring them sooner, or make the "
                "POP with a longer ticket_life"
            )
        waiting = self._open.pop(key, None) if self.held is None else self.held(key)
        if waiting is None:
            if key in self._ended:
                raise TicketError(self._ended[key])
            if key[0] != self.epoch:
                raise TicketError("this ticket was used, or it expired when the POP was loaded again")
            raise TicketError("this ticket was used: a label is taken once")
        return waiting

    def drop(self, who: bytes) -> None:
        """Forget a person's open questions, and whose their tickets were: nobody else's ticket is touched.

        What is remembered of others is as it was, and as much in number: how long their labels take tells nothing.
        """
        gone = [key for key, waiting in self._open.items() if waiting.who == who]
        for key in gone:
            del self._open[key]
        for ticket, (whose, key) in self._known.copy().items():
            if whose == who and self._known.pop(ticket, None) is not None:
                self._known[key] = b"", key
        self._latest = {ticket: one for ticket, one in self._latest.items() if one[0] != who and one[1] not in gone}

    def discard(self, key: Key) -> None:
        """Forget one open question."""
        self._open.pop(key, None)

    def end(self, key: Key, why: str) -> None:
        """Forget one open question; whoever brings its label is told why."""
        self.discard(key)
        self._ended[key] = why

    def __iter__(self) -> Iterator[tuple[Key, Waiting]]:
        return iter(self._open.items())

    def __len__(self) -> int:
        return len(self._open)

    def restore(self, key: Key, waiting: Waiting) -> None:
        """Put an open ticket of an earlier load back, in the order in which they were issued."""
        if key in self.used:
            return
        self._open[key] = waiting
        self._due.append(key)


def _keyed(key: bytes) -> Any:
    """What every signature begins with, to be copied."""
    return blake2b(key=key, digest_size=16, person=b"ticket")
