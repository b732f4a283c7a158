"""A share of a guide in the loop of one partition's POP: the same caps, marks and journal, and no release of its own.

What was released is the merger's: it is in no partition's ledger, and is heard from the merger at every load. Claims
and proofs: docs/proofs/partitions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from confide.errors import StateError
from confide.guide.guide import Guide, Release
from confide.guide.share import Share
from confide.pop.account import Account
from confide.pop.guiding import Guiding
from confide.pop.pop import POP
from confide.pop.running import Released
from confide.privacy.random import Random

__all__ = ["Seat", "Sharing", "check_shared", "share"]


class Seat(Protocol):
    """A partition's place among those of a process."""

    share: Share

    def greet(self, account: Account) -> None:
        """Say that the partition is open here, and bring the share to where the releases are."""


class Sharing(Guiding):
    """A guide's share, led through the rounds of a partition's POP."""

    guide_type: type[Guide] = Share

    def __init__(self, seat: Seat, pop: POP) -> None:
        loop, options = pop.operator.loop, pop.options
        guiding = loop.guiding
        if guiding is None:
            raise ValueError("partitions share a guide, and this plan has none")
        self._seat = seat
        super().__init__(guiding.plan, options["features"], options["label_weights"], guiding.rng, loop.account)
        self.given(None, pop.labels, options["ticket_life"] == 1)

    def fresh(self, rng: Random, store: Callable[[Release], None], kind: type[Guide] = Guide) -> Guide:
        """The share itself; or a guide to rehearse with."""
        return self._seat.share if kind is Share else super().fresh(rng, store, kind)

    def resume(self, rounds: int, released: Sequence[Released]) -> int:
        """Go on from what the merger has released."""
        if released:
            raise StateError("this ledger has releases of its own: it is no partition's, and must not be opened as one")
        self._again = self._loaded = True
        self._seat.greet(self._account)
        return max(rounds, self.guide.rounds)

    def releases(self) -> tuple[Released, ...]:
        """None: they are in the merger's ledger."""
        return ()

    def fingerprint(self) -> str:
        """None: `confide verify` computes it from the merger's ledger."""
        return ""


def check_shared(pop: POP) -> None:
    """ValueError for a model that cannot be partitioned, by the name of what stands against it."""
    plan = pop.plan
    why = None
    if plan.copies:
        why = "copies: their votes must be counted in one place; plan for a guide alone (copies = 0), or for one owner"
    elif plan.promise.protect == "labels":
        why = "labels alone: what is randomized is learned by one model; take one owner"
    elif plan.guide is None or len(plan.public) != 1:
        why = "parts other than a guide: nothing is proved for them over many owners; take one owner"
    elif plan.guide.history:
        why = "history: its rows are numbered before round 1, in one place; leave history out, or take one owner"
    elif pop.monitor is not None:
        why = "a monitor: each partition's would be a counter with a price of its own; leave it out, or take one owner"
    elif plan.promise.counted is not None:
        why = "caps by period: leave per and periods out, or take one owner"
    elif pop.options["after_halt"] != "fallback":
        why = 'after_halt = "raise": who comes after the last round is answered by the released model; leave it out'
    elif pop.operator.loop.line is not None:
        why = "a predecessor: leave it out, or take one owner"
    if why is not None:
        raise ValueError(f"a model over partitions takes no {why}")


def share(pop: POP, seat: Seat) -> POP:
    """The same POP, fresh as it is, with a share of the guide instead of one of its own."""
    check_shared(pop)
    pop.operator.loop.parts.swap(Sharing(seat, pop))
    return pop
