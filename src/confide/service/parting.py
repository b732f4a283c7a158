"""The desk of one partition: its rounds have numbers that were lent, and its labels wait while a leaf is sealed.

Proof page: docs/proofs/partitions.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from confide.pop.account import Mark
from confide.pop.pop import POP
from confide.pop.sharing import share
from confide.pop.tickets import Key
from confide.service.asked import Asking
from confide.service.base import NotYet, Question, Records, Refusal, Reply, Said, Slices, Taught
from confide.service.counts import Counts
from confide.service.desk import PopDesk
from confide.service.following import Follower, Seat

__all__ = ["PartitionDesk"]

NUMBERS = "this model's rounds wait for one of its processes: come again in a moment, with the same id"
LABELS = "this model's labels wait for one of its processes: bring it again in a moment"
NO_IMPORT = "a model over partitions takes no history: its rows are numbered in one place; take one owner"


class _Sealed(NotYet):
    """Labels wait for a release."""


class PartitionDesk(PopDesk):
    """A desk that has one partition of a model. Use `PartitionDesk.of`."""

    _follower: Follower
    _seat: Seat
    _patience: float

    @classmethod
    def of(
        cls,
        follower: Follower,
        number: int,
        folder: str | Path,
        make: Callable[[], POP],
        *,
        patience: float = 0.0,
        **options: Any,
    ) -> Self:
        """The desk of a partition, from its folder or new.

        Parameters
        ----------
        follower
            Those of this process.
        number
            Of the partition.
        patience
            Seconds that a question waits for a number, and a label for a release, before both are told to come again;
            somebody else must look at the merger meanwhile (`Follower.look`).
        options
            As for `PopDesk.open`.

        Raises
        ------
        OSError
            If the merger is away.
        """
        seats = list[Seat]()

        def shared(pop: POP) -> POP:
            seats.append(follower.seat(number, pop))
            return share(pop, seats[0])

        desk = cls.open(folder, make, shared=shared, **options)
        try:
            desk.sit(follower, seats[0], patience)
        except BaseException:
            desk.leave()
            raise
        return desk

    def sit(self, follower: Follower, seat: Seat, patience: float) -> None:
        """Its partition is served from now on, at this place."""
        self._follower, self._seat, self._patience = follower, seat, patience
        if seat.account is None:  # it is new
            seat.greet(self.pop.operator.loop.account)
        seat.sit(self._keeper)

    def close(self) -> None:
        """Save, and give the partition back: another process may open it then."""
        self._follower.leave(self._seat)
        super().close()

    @property
    def counts(self) -> Counts:
        """What the operator is shown of its rounds."""
        return self._counts

    # ------------------------------------------------------------------ numbers

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        """As a desk's; while no number is to be had the released model answers, without a round and without a ticket.

        What it says is a function of what was released and of the asker's own x: everybody may compute it.
        """
        try:
            return super().ask(questions)
        except NotYet:
            return self._meanwhile(questions)

    def _meanwhile(self, questions: Sequence[Question]) -> list[Reply]:
        """What each is told without a number: what is known of it, as ever, whatever is asked beside it."""
        requests, minute = self._requests, int(self._wall() // 60)
        with self._lock:
            asked = requests.read(questions, minute)
            requests.fresh(asked, minute)
            found = requests.found(asked)
            known = {
                i: requests.reply(asked, i, one)
                for i, one in enumerate(found)
                if one is not None or i in asked.wait or i in asked.unread
            }
        released = self.pop.guide is not None and self.pop.guide.released > 0
        if not (released or known):
            raise NotYet(NUMBERS)
        self._book.wait(max((one.sequence for one in found if one is not None), default=0))
        later = Reply(None, refusal=Refusal("later", NUMBERS))
        return [
            known[i] if i in known else self._told(one) if released else later for i, one in enumerate(questions)
        ]

    def _told(self, question: Question) -> Reply:
        if wrong := self.pop.readable([question.x]):
            return Reply(None, refusal=Refusal("malformed", wrong[0]))
        shares = self.pop.probabilities(question.x)
        label = max(shares, key=lambda one: shares[one])
        return Reply(Said(label, False, "", "guide", label))

    def _take(self, asked: Asking, fresh: Sequence[int]) -> Mark:
        """Take the rounds in pieces that each have numbers in a row, all of one leaf."""
        until, account, done = self._until(), self.pop.operator.loop.account, 0
        entered: Mark | None = None
        while done < len(fresh):
            with self._keeper.lock:
                first, taken = self._follower.take(len(fresh) - done, account.taken)
                if taken:
                    account.taken, self._follower.vain = first - 1, False
                    self._keeper.begin()
                    entered = super()._take(asked, fresh[done : done + taken])
                    done += taken
            if not taken and not self._refilled(len(fresh) - done, until):
                raise NotYet(NUMBERS)
        return cast(Mark, entered)

    def _refilled(self, need: int, until: float) -> bool:
        """Whether numbers were found in time."""
        while True:
            try:
                if self._follower.refill(need):
                    return True
            except OSError:  # the merger is away
                pass
            if not self._waited(until):
                self._follower.vain = True
                return False

    def _until(self) -> float:
        return time.monotonic() + (0.0 if self._follower.vain else self._patience)

    def _waited(self, until: float) -> bool:
        """Whether there is time left, after a while or as soon as the merger was heard of.

        A label that waited in vain tells nobody: whether others wait must not depend on whether it came.
        """
        left = until - time.monotonic()
        if left <= 0:
            return False
        with self._follower.changed:
            self._follower.changed.wait(min(left, 0.05))
        return True

    # ------------------------------------------------------------------ labels

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """As a desk's; while a leaf is sealed labels wait for its release, and are taken after it."""
        until = self._until()
        while True:
            try:
                return super().learn(lessons)
            except _Sealed:
                if not self._waited(until):
                    return [self._learned(one) for one in lessons]

    def _learned(self, lesson: Taught) -> Refusal | None:
        """One alone: what is said of it must not depend on whether others' labels are to wait."""
        try:
            return super().learn([lesson])[0]
        except _Sealed:
            return Refusal("later", LABELS)

    def _take_labels(self, fresh: Mapping[Key, int]) -> tuple[dict[int, ValueError], Mark]:
        with self._keeper.lock:
            if self._follower.sealed:
                raise _Sealed(LABELS)
            return super()._take_labels(fresh)

    def teaching(self, rows: Records, id: str | None = None) -> Slices:
        """Refused: history is numbered in one place."""
        raise ValueError(NO_IMPORT)
