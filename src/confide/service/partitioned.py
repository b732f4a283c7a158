"""All partitions of a model that one process has, as one desk: each person's requests go to their partition's own.

A thread of its own hears what the merger says. Proof page: docs/proofs/partitions.md.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, Self

from confide.errors import StateError
from confide.planning.plan import Plan
from confide.service.base import Life, Question, Records, Refusal, Reply, Slices, Taught
from confide.service.counts import Counts
from confide.service.following import Follower
from confide.service.merging import Standing, partition_of
from confide.service.parting import NO_IMPORT, PartitionDesk
from confide.service.views import private

__all__ = ["ELSEWHERE", "PartitionedDesk"]

ELSEWHERE = "this person's part of the model is not here now: come again in a moment, with the same id or ticket"
STALLED = "a leaf waits for partitions that are away: until they are back labels wait, and answers have no tickets"
DEAF = "what the merger says is not heard here any more ({}): the model is opened again"
PAUSE, PATIENCE = 0.2, 10.0
_ADDED = "unsure", "taught", "guide_labels", "people_ended", "open_tickets", "nbytes", "late_labels"


class News(Protocol):
    """How a desk hears of the merger."""

    def news(self, known: Standing | None) -> Standing:
        """Where it stands, as soon as that is another than what is known."""

    def close(self) -> None:
        """Nothing is heard any more."""


class PartitionedDesk:
    """A desk over partitions (`confide.service.base.Desk`).

    Parameters
    ----------
    name
        The model's.
    key, partitions
        By which a person's partition is known.
    desks
        Those that are here, by their numbers.
    follower
        What they have in common.
    post
        How the merger is reached; it is closed with the desk.
    """

    waits = False

    def __init__(
        self,
        name: str,
        key: bytes,
        partitions: int,
        desks: Mapping[int, PartitionDesk],
        follower: Follower,
        post: News,
    ) -> None:
        self.name, self._key, self._partitions, self._desks = name, key, partitions, dict(sorted(desks.items()))
        self._follower, self._post = follower, post
        self._first = next(iter(self._desks.values()))
        self._failed: str | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._hear, name=f"news {name}", daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        """Do what the merger asks for, at once; where it cannot be reached, ask again."""
        known: Standing | None = None
        while not self._closing.is_set():
            try:
                known = self._follower.look(self._post.news(known))
            except OSError:
                known = None
                self._closing.wait(PAUSE)
            except StateError as error:  # it is not to be gone on with: the owner opens everything again
                self._failed = str(error)
                return
            except BaseException as error:  # its words may be about anything: they are nobody's
                self._failed = DEAF.format(type(error).__name__)
                return

    # ------------------------------------------------------------------ as one desk

    @property
    def plan(self) -> Plan:
        """Every number of the run, public."""
        return self._first.plan

    @property
    def ended(self) -> bool:
        """Whether one of them answers nobody any more: then all are opened again."""
        return self._failed is not None or any(desk.ended for desk in self._desks.values())

    @property
    def life(self) -> Life:
        """Of all of them the merger knows the versions: who opens them next is told by it."""
        return 0, 0, 0

    def follows(self, life: Life) -> None:
        """The merger has admitted them."""

    def _check(self) -> None:
        if self._failed is not None:
            raise StateError(self._failed)

    def _desk(self, subject: str) -> PartitionDesk | None:
        return self._desks.get(partition_of(self._key, self._partitions, subject))

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        """Each partition's questions in order, one group commit each."""
        self._check()
        replies: list[Reply | None] = [None] * len(questions)
        theirs = self._by_desk(one.subject for one in questions)
        left = sum(len(places) for desk, places in theirs if desk is not None)
        for desk, places in theirs:
            self._follower.coming = left
            told = _elsewhere(len(places)) if desk is None else desk.ask([questions[i] for i in places])
            left -= len(places) if desk is not None else 0
            for i, reply in zip(places, told, strict=True):
                replies[i] = reply
        return [reply for reply in replies if reply is not None]

    def learn(self, lessons: Sequence[Taught]) -> list[Refusal | None]:
        """Each partition's labels in order."""
        self._check()
        said: list[Refusal | None] = [None] * len(lessons)
        for desk, places in self._by_desk(one.subject for one in lessons):
            later: list[Refusal | None] = [Refusal("later", ELSEWHERE)] * len(places)
            for i, one in zip(places, later if desk is None else desk.learn([lessons[i] for i in places]), strict=True):
                said[i] = one
        return said

    def _by_desk(self, subjects: Iterable[str]) -> list[tuple[PartitionDesk | None, list[int]]]:
        found = dict[int, list[int]]()
        for i, subject in enumerate(subjects):
            found.setdefault(partition_of(self._key, self._partitions, subject), []).append(i)
        return [(self._desks.get(number), places) for number, places in found.items()]

    def refused(self, questions: Sequence[Question]) -> Mapping[int, Reply]:
        """Those of one sender whose day is used up."""
        desk = self._desk(questions[0].subject)
        return {} if desk is None else desk.refused(questions)

    def not_theirs(self, lessons: Sequence[Taught]) -> Mapping[int, Refusal]:
        """Those of one sender whose ticket is not theirs."""
        desk = self._desk(lessons[0].subject)
        return {} if desk is None else desk.not_theirs(lessons)

    def teaching(self, rows: Records, id: str | None = None) -> Slices:
        """Refused: history is numbered in one place."""
        raise ValueError(NO_IMPORT)

    def forget(self, subject: str) -> bool:
        """In this person's partition."""
        return self._theirs(subject).forget(subject)

    def person(self, subject: str) -> Mapping[str, Any]:
        """From this person's partition."""
        return self._theirs(subject).person(subject)

    def _theirs(self, subject: str) -> PartitionDesk:
        desk = self._desk(subject)
        if desk is None:
            number = partition_of(self._key, self._partitions, subject)
            raise ValueError(f"this person is in partition {number}, which another process has: go to that one")
        return desk

    @property
    def moment(self) -> Hashable:
        """Another one whenever `public` shows something else."""
        return self._first.moment, self._rounds

    @property
    def _rounds(self) -> int:
        return max(desk.pop.rounds for desk in self._desks.values())

    def public(self) -> Mapping[str, Any]:
        """What everyone may see; rounds are those that this process knows of."""
        return {**self._first.public(), "rounds": self._rounds, "partitions": self._partitions}

    def private(self) -> Mapping[str, Any]:
        """For the operator's eyes: numbers of the partitions that are here, together."""
        each = [desk.private() for desk in self._desks.values()]
        seen = private(self._first.pop, Counts.together([desk.counts for desk in self._desks.values()]), 0, ())
        for name in _ADDED:
            seen[name] = sum(one[name] for one in each) if each[0][name] is not None else None
        ledgers = [one["ledger"] for one in each]
        seen["ledger"] = {name: sum(one[name] for one in ledgers) for name in ("commits", "seconds")}
        alarms = dict.fromkeys(alarm for one in each for alarm in one["alarms"])
        seen["alarms"] = [*alarms, *([STALLED] if self._follower.sealed else [])]
        return {**seen, "partitions": {"here": list(self._desks), "of": self._partitions}}

    def limited(self, quota: int | None) -> Self:
        """Let nobody take more rounds than these in a day."""
        for desk in self._desks.values():
            desk.limited(quota)
        return self

    def save(self) -> None:
        """Snapshots of all of them."""
        for desk in self._desks.values():
            desk.save()

    def beat(self) -> None:
        """Look whether all ledgers are there."""
        self._check()
        for desk in self._desks.values():
            desk.beat()

    def close(self) -> None:
        """Save, and give all of them back; whatever fails, the others are given back too."""
        self._closing.set()
        self._post.close()
        failed: BaseException | None = None
        for desk in self._desks.values():
            try:
                desk.close()
            except BaseException as error:
                failed = failed or error
        self._thread.join(PATIENCE)
        if failed is not None:
            raise failed


def _elsewhere(many: int) -> list[Reply]:
    return [Reply(None, refusal=Refusal("later", ELSEWHERE))] * many


def open_partitions(
    opens: Callable[[int], PartitionDesk], numbers: Iterable[int], seconds: float
) -> dict[int, PartitionDesk]:
    """All desks; the merger is waited for so long."""
    desks, until = dict[int, PartitionDesk](), time.monotonic() + seconds
    try:
        for number in numbers:
            while number not in desks:
                try:
                    desks[number] = opens(number)
                except OSError as error:
                    if time.monotonic() > until:
                        _give_up(error)
                    time.sleep(PAUSE)
    except BaseException:
        for desk in desks.values():
            with contextlib.suppress(Exception):
                desk.close()
        raise
    return desks


def _give_up(error: OSError) -> NoReturn:
    raise StateError(f"the merger of this model cannot be reached ({error}): start it, then this process again")
