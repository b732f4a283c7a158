"""A place: the partitions that one process has, the model that was released, and the numbers that were lent to it.

It speaks to the merger by a `Post`, which may lose what it carries; whatever is unclear is asked again. It knows no
sockets and starts no threads. The rules: docs/proofs/partitions.md.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

import numpy as np

from confide.errors import StateError
from confide.guide.guide import Guide, Release
from confide.guide.share import Share
from confide.pop.account import Account
from confide.pop.keeping import Keeper
from confide.pop.pop import POP
from confide.privacy.random import Random
from confide.service.merging import Lease, Life, Offer, Post, Standing, Told

__all__ = ["Follower", "Seat"]

NOTHING = Lease(1, 0)

BEHIND = "the merger knows fewer releases than were used here: its ledger was rolled back, and must not be used"
MOVED = "the released model has gone on while this partition was opened: open it again"


class Seat:
    """An open partition at its place."""

    def __init__(self, follower: Follower, number: int, share: Share) -> None:
        self.number, self.share, self._follower = number, share, follower
        self.keeper: Keeper | None = None
        self.account: Account | None = None
        self._offer: tuple[tuple[int, int], Offer] | None = None

    @property
    def life(self) -> Life:
        """As the merger is to know it."""
        assert self.account is not None and self.account.book is not None
        return Life(self.account.book.epoch, self.account.book.durable)

    @property
    def rounds(self) -> int:
        """The last round that its ledger knows of."""
        assert self.account is not None
        return self.account.taken

    def greet(self, account: Account) -> None:
        """Say that the partition is open here; from now on no release is made without it."""
        self.account = account
        self._follower.greet(self)

    def sit(self, keeper: Keeper) -> None:
        """From now on it is served: it takes numbers and labels, and offers what it has when a leaf is sealed."""
        self.keeper = keeper
        self._follower.sit(self)

    def offered(self, epoch: int, made: int) -> Offer:
        """What it has of the sealed leaf, when all of it is durable: the same again if it is asked again.

        It is for one merger, by its epoch. That this process still has the partition's ledger is found out after that
        merger was heard of: otherwise an earlier life could offer to a later merger what is not all there is.
        """
        if self._offer is None or self._offer[0] != (epoch, made):
            assert self.keeper is not None and self.account is not None and self.account.book is not None
            book = self.account.book
            with self.keeper.lock:
                sums, version = self.share.seal(), book.sequence
            book.wait(version)
            book.beat()
            offer = Offer(self.number, Life(book.epoch, version), sums.astype("<i8").tobytes())
            self._offer = (epoch, made), offer
        return self._offer[1]

    def renew(self, rounds: int) -> None:
        """Use what was released, under the keeper's lock: all rounds up to here are over."""
        self.share.renew()
        assert self.account is not None
        self.account.taken = max(self.account.taken, rounds)
        self._offer = None


class Follower:
    """What all partitions of one process have in common.

    Parameters
    ----------
    post
        How the merger is reached.
    place
        The name of this process, which no other has.
    """

    def __init__(self, post: Post, place: str) -> None:
        self._post, self.place = post, place
        self._guide: Guide | None = None
        self._seats = dict[int, Seat]()
        self._lease = NOTHING
        self._sealed = False
        self._epoch = -1  # of the merger that knows these partitions
        self._given: tuple[int, int, frozenset[int]] | None = None  # what it has: its epoch, which release, whose sums
        self._hearing = threading.RLock()  # one conversation at a time, and never under a partition's lock
        self.coming = 0
        """Questions that this process was asked at once, and that have no number yet: one lease is for all (public)."""
        self.vain = False
        """Whether the last question that waited did so in vain: then nobody waits until numbers are there (public)."""
        self.changed = threading.Condition()
        """Told whenever numbers or a release have come."""

    # ------------------------------------------------------------------ partitions come and go

    def seat(self, number: int, pop: POP) -> Seat:
        """A place for a partition that is being opened, with the released model as it is."""
        guiding = pop.operator.loop.guiding
        assert guiding is not None
        with self._hearing:
            if self._guide is None or not self._seats:
                guide = guiding.fresh(Random(), _never)
                known = [_release(one) for one in self._post.releases(0)]
                guide.resume(0, known)
                self._guide = guide
                self._begin(guide)  # what is sealed now is heard with the first word
            return Seat(self, number, Share(self._guide))

    def greet(self, seat: Seat) -> None:
        """See `Seat.greet`."""
        with self._hearing:
            standing = self._post.hello(self.place, {seat.number: seat.life}, seat.rounds)
            if not self._seats:
                self._epoch = standing.epoch
            self._hear(standing)
            if self.made < standing.made:
                raise ConnectionError("the merger's releases did not come")
            seat.share.renew()
            assert seat.account is not None
            seat.account.taken = max(seat.account.taken, seat.share.rounds)

    def sit(self, seat: Seat) -> None:
        """See `Seat.sit`."""
        with self._hearing:
            if seat.share.public is not self._guide or seat.share.made != self._guide.made:
                raise StateError(MOVED)
            self._post.hello(self.place, {seat.number: seat.life}, seat.rounds)  # it may be another merger by now
            self._seats[seat.number] = seat

    def leave(self, seat: Seat) -> None:
        """A partition is closed here."""
        with self._hearing:
            if self._seats.get(seat.number) is seat:
                del self._seats[seat.number]
                self._given = None

    @property
    def made(self) -> int:
        """How many releases are in use here (public)."""
        return 0 if self._guide is None else self._guide.made

    # ------------------------------------------------------------------ numbers

    def take(self, want: int, above: int) -> tuple[int, int]:
        """The first of so many numbers in a row, and how many there are: 0 where none is left, or the leaf is sealed.

        To be called under the lock of the partition that takes them. Its numbers only grow, also where it was at
        another place before: those up to `above` are over.
        """
        with self.changed:
            first, last = max(self._lease.first, above + 1), self._lease.last
            taken = 0 if self._sealed else max(0, min(want, last - first + 1))
            self._lease, self.coming = Lease(first + taken, last), max(0, self.coming - taken)
            return first, taken

    def refill(self, need: int) -> bool:
        """Whether there are numbers now: the merger is asked for some, if need be. Under no partition's lock."""
        with self._hearing:
            while self._sealed or self._lease.first > self._lease.last:
                lent, made = None if self._sealed else self._post.lend(self.place, max(need, self.coming)), self.made
                if lent is None or not self._open(lent):
                    self.look()
                if lent is not None and self._open(lent) and not self._sealed:
                    with self.changed:
                        self._lease = lent
                        self.changed.notify_all()
                elif self._sealed or self.made == made:  # otherwise the release was made meanwhile: it is asked again
                    return False
            return True

    def _open(self, lent: Lease) -> bool:
        """Whether these numbers are of the leaf that is open here: others are over, or not to be used yet."""
        guide = self._guide
        if guide is None or guide.due is not None:
            return False
        return guide.rounds < lent.first and lent.last <= guide.rounds + guide.room

    @property
    def sealed(self) -> bool:
        """Whether labels wait for a release (public)."""
        return self._sealed

    # ------------------------------------------------------------------ what the merger says

    def look(self, standing: Standing | None = None) -> Standing:
        """Ask the merger where it stands, unless that was just heard, and do what is to be done."""
        with self._hearing:
            if standing is None or (standing.epoch, standing.made) < (self._epoch, self.made):
                standing = self._post.standing()  # others have heard more since
            return self._hear(standing) if self._seats else standing

    def _hear(self, standing: Standing) -> Standing:
        """Use what was released, and offer what is asked for, until nothing is left to do."""
        asked = False
        while True:
            if standing.epoch < self._epoch:
                self._post.hello(self.place, {})  # so that it finds out, and is opened again where it is
                raise ConnectionError("this merger was replaced by another one")
            if standing.epoch > self._epoch:
                rounds = max((seat.rounds for seat in self._seats.values()), default=0)
                lives = {number: seat.life for number, seat in self._seats.items()}
                standing = self._post.hello(self.place, lives, rounds)
                self._epoch = standing.epoch
            if standing.made < self.made:
                raise StateError(BEHIND)
            if standing.made > self.made:
                told = self._post.releases(self.made)
                for one in told:
                    self._use(one)
                if not told:
                    return standing
            elif standing.sealing:
                self._seal()
                offers = self._offers()
                giving = self._epoch, self.made, frozenset(one.partition for one in offers)
                if giving == self._given or not offers:
                    return standing
                standing = self._post.offer(self._epoch, self.made, offers)
                if standing.epoch == self._epoch:  # one that does not know that it was replaced has dropped it
                    self._given = giving
            elif self._sealed and not asked:  # by a merger that is gone: where all are sealed nobody asks for numbers
                asked = self._post.lend(self.place, 0) is None
                standing = self._post.standing()
                if not asked:
                    return standing
            else:
                return standing

    def _seal(self) -> None:
        """No number is used any more: those that are left are over."""
        with self.changed:
            self._sealed, self._lease = True, NOTHING

    def _offers(self) -> list[Offer]:
        """Of all partitions here whose ledgers can be written; the leaf waits for the others."""
        offers = list[Offer]()
        for seat in self._seats.values():
            assert seat.account is not None and seat.account.book is not None
            try:
                offers.append(seat.offered(self._epoch, self.made))
            except StateError:
                if not seat.account.book.ended:
                    raise
        return offers

    def _use(self, told: Told) -> None:
        """A release, for all partitions here at once."""
        guide = self._guide
        assert guide is not None
        with ExitStack() as held:
            for _, seat in sorted(self._seats.items()):
                assert seat.keeper is not None
                held.enter_context(seat.keeper.lock)
            guide.take(_release(told))
            for seat in self._seats.values():
                seat.renew(guide.rounds)
            self._begin(guide)

    def _begin(self, guide: Guide) -> None:
        """The next leaf is open, without numbers; what is due without any question is sealed, whoever says so."""
        with self.changed:
            self._sealed, self._lease = guide.due is not None, NOTHING
            self.changed.notify_all()


def _release(told: Told) -> Release:
    row = np.frombuffer(told.row, dtype="<i8").astype(np.int64)
    return Release(told.kind, told.number, row, np.zeros_like(row) if told.kind in ("warm", "node") else row[:0])


def _never(release: Release) -> None:
    raise StateError("a place releases nothing")
