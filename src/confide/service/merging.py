"""The merger: lends round numbers to the owners of a model's partitions, adds up their sums, and releases.

It knows no sockets: whoever carries messages calls these methods, one at a time, and repeats what was lost. The merger
calls nobody. Its state is a POP's folder whose guide is taught nothing by anybody: `confide verify` reads it as any
other. The rules, and why they tell nobody anything: docs/proofs/partitions.md.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol, Self

import numpy as np

from confide.errors import StateError
from confide.guide.guide import OTHERS, Guide, Release
from confide.ledger.snapshot import exists
from confide.pop.pop import POP
from confide.pop.sharing import check_shared
from confide.pop.state import MODEL, clear, opened
from confide.privacy.random import Random

__all__ = ["LEASES", "PARTITIONS", "Lease", "Life", "Merger", "Offer", "Post", "Standing", "Told", "partition_of"]

ROLLED_BACK = "its ledger was rolled back, and must not be used"

PARTITIONS = 64
"""Of a model, unless its file says otherwise."""

LEASES = 16
"""Into so many leases, at least, a place's part of a leaf is cut: what is lent and not used is over with the leaf."""

VERSIONS, LIVES = "part/versions", "part/lives"
"""The kinds of the notes that have every partition's version, as of the last release; and the last life that said its
word, and where."""

_VERSION, _LIFE = Struct("<16sqq"), Struct("<16sqq16s")
UNKNOWN = bytes(16)
"""Where a life is of which an earlier Confide noted no place, or none was."""

_RECENT = 64  # releases that are told one by one; who is further behind takes all that there is


class Life(NamedTuple):
    """An open partition: the term (`epoch`) of the claim on its ledger, and the ledger's last durable entry."""

    epoch: int
    version: int


class Offer(NamedTuple):
    """What a partition has of a sealed leaf."""

    partition: int
    life: Life
    sums: bytes
    """Private."""

    def __repr__(self) -> str:
        return f"Offer(partition={self.partition}, life={self.life})"


class Lease(NamedTuple):
    """Round numbers, both included, for one place."""

    first: int
    last: int


class Standing(NamedTuple):
    """Where a merger stands: public."""

    epoch: int
    """Of the claim on its ledger: another one is another merger, who knows no partitions yet."""
    made: int
    """How much was released."""
    sealing: bool
    """Whether it waits for offers."""


class Told(NamedTuple):
    """A release, as everybody may see it."""

    kind: str
    number: int
    row: bytes


_Versions = tuple[list[Life], int]
_Lives = tuple[list[tuple[Life, bytes]], int]


class Post(Protocol):
    """How a place reaches the merger. Any call may raise OSError: then nobody knows whether it came."""

    def standing(self) -> Standing:
        """Where the merger stands."""

    def hello(self, place: str, lives: Mapping[int, Life], rounds: int = 0) -> Standing:
        """These partitions are open at this place, and know of so many rounds: earlier lives of theirs are over."""

    def lend(self, place: str, need: int) -> Lease | None:
        """Numbers for so many questions, fewer or more; None while a leaf waits for its release."""

    def offer(self, epoch: int, made: int, offers: Sequence[Offer]) -> Standing:
        """Sums for the release after so many, by the merger of this term."""

    def releases(self, since: int) -> list[Told]:
        """All releases after so many; all that a fresh guide needs where `since` is 0."""


def partition_of(key: bytes, partitions: int, subject: str) -> int:
    """The partition of a person: a keyed hash of their id, so that nobody chooses whose owner is theirs."""
    named = blake2b(subject.encode("utf-8", "surrogatepass"), key=key, digest_size=16, person=b"partition").digest()
    return int.from_bytes(named, "little") % partitions


class Merger:
    """The one process that releases what many partitions learned.

    Parameters
    ----------
    pop
        A POP that lives in a folder of its own, and that nobody asks or teaches. Use `Merger.open`.
    partitions
        How many there are: fixed when the model is made.
    versions, last
        Of every partition as of the last release, and the last life that said its word, and where; with the entries
        that have them. None for a new model.
    """

    def __init__(
        self, pop: POP, partitions: int, versions: _Versions | None = None, last: _Lives | None = None
    ) -> None:
        self.pop, self.partitions = pop, partitions
        loop = pop.operator.loop
        guiding, book = loop.guiding, loop.account.book
        assert guiding is not None and book is not None
        self.guide: Guide = guiding.guide
        self._keeper, self._account, self._book = pop.keep(), loop.account, book
        self._versions, self._noted = versions or ([Life(0, 0)] * partitions, -1)
        self._last, self._noted_lives = last or ([(life, UNKNOWN) for life in self._versions], -1)
        self._lives = dict[int, tuple[Life, str]]()
        self._offers = dict[int, Offer]()
        self._next, self._end = self._account.rounds + 1, self._account.rounds
        self._sealing = False
        made = (one for one in self.guide.releases() if one.kind not in ("map", "epoch"))
        self._recent = deque(map(_told, made), maxlen=_RECENT)
        self._durably, self.guide.store = guiding.store, self._store
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        """Told whenever `standing` is another one."""
        if versions is None:
            self._note_versions()
            book.wait(book.sequence)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        make: Callable[[], POP],
        partitions: int = PARTITIONS,
        *,
        name: str = MODEL,
        ledger: str | None = None,
        rng: Random | None = None,
    ) -> Self:
        """The merger of a folder, or a new one with the POP that `make()` gives.

        Raises
        ------
        ValueError
            If the model is one that cannot be partitioned, or was made with another number of partitions.
        StateError
            If the state must not be used, or another process has it.
        """
        folder, model = Path(folder), MODEL if ledger is None else name
        if not 1 <= partitions <= 1 << 16:
            raise ValueError("partitions must be from 1 to 65,536")
        if not exists(folder):
            clear(folder, ledger, model)
            pop = make()
            check_shared(pop)
            pop.save(folder, ledger=ledger, model=model)
            return cls(pop, partitions)
        with opened(folder, ledger, model) as saved:
            settings = saved.settings(None, None)
            pop = POP(None, settings.plan, **settings.options(), seed=rng)
            check_shared(pop)
            pop.resume(saved)
            notes = {kind: (sequence, body) for kind, sequence, _, body in saved.journal()}
        noted, body = notes.get(VERSIONS, (-1, b""))
        versions = [Life(*row[1:]) for row in _VERSION.iter_unpack(body)]
        if len(versions) != partitions:
            pop.close()
            raise ValueError(
                f"this model has {len(versions)} partitions for good: people would be counted twice in others"
            )
        said, body = notes.get(LIVES, (-1, b""))  # an earlier Confide wrote none
        last = [(Life(epoch, version), where) for _, epoch, version, where in _LIFE.iter_unpack(body)]
        return cls(pop, partitions, (versions, noted), (last, said) if last else None)

    # ------------------------------------------------------------------ what places ask

    def standing(self) -> Standing:
        """Where it stands."""
        with self._lock:
            return Standing(self._book.epoch, self.guide.made, self._sealing)

    def hello(self, place: str, lives: Mapping[int, Life], rounds: int = 0) -> Standing:
        """These partitions are open at this place; what earlier lives of theirs offered is dropped.

        It is said by a merger that still has its ledger, or by none: who opens a partition goes by how much it is told
        was released. A life that was not known is durable here before it is admitted.

        Raises
        ------
        StateError
            For a life that is over, for a ledger that was rolled back, this one included, and where another merger has
            taken over.
        """
        with self._lock:
            self._check()
            self._book.beat()  # whatever is refused here is refused by the merger itself
            where = blake2b(place.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if rounds > self._account.taken:
                raise StateError("the merger does not know all rounds of its places: " + ROLLED_BACK)
            for number, life in lives.items():
                if not 0 <= number < self.partitions:
                    raise StateError(f"there is no partition {number}: this model has {self.partitions}")
                self._admit(number, life, where)
            fresh = {number: life for number, life in lives.items() if self._last[number][0].epoch < life.epoch}
            if fresh:
                self._note_lives(fresh, where)
            for number, life in lives.items():
                known = self._lives.get(number)
                if known is None or known[0].epoch < life.epoch:
                    self._offers.pop(number, None)
                self._lives[number] = life, place
            return self.standing()

    def _admit(self, number: int, life: Life, where: bytes) -> None:
        released, (said, at) = self._versions[number], self._last[number]
        if life.epoch < said.epoch:
            raise StateError(
                f"partition {number} was opened elsewhere since, or its ledger was rolled back: nothing is taken here "
                "any more"
            )
        twice = life.epoch == said.epoch and at not in (UNKNOWN, where)  # no two claims on one ledger have one epoch
        if twice or life.version < max(said.version, released.version) or life.epoch < released.epoch:
            raise StateError(f"partition {number} does not know all that was said and released of it: " + ROLLED_BACK)

    def lend(self, place: str, need: int) -> Lease | None:
        """Numbers of the open leaf, which were made durable as taken; None where it has none left: it is sealed then.

        How many follows from `need`, from how many are left, and from how many places there are.
        """
        with self._lock:
            self._check()
            if self._next > self._end:
                if self.guide.due is not None:
                    self._seal()
                    return None
                self._reserve()
            left = self._end - self._next + 1
            places = max(1, len({place for _, place in self._lives.values()}))
            last = self._next + min(left, max(need, left // (LEASES * places))) - 1
            lent, self._next = Lease(self._next, last), last + 1
            return lent

    def offer(self, epoch: int, made: int, offers: Sequence[Offer]) -> Standing:
        """Take what partitions have for the release that is due; with the last of them it is made.

        What is for another release or merger, or of a life that is over, changes nothing.
        """
        with self._lock:
            self._check()
            if self._sealing and (epoch, made) == (self._book.epoch, self.guide.made):
                if any(len(one.sums) != 8 * self.guide.due_size for one in offers):
                    raise StateError(OTHERS)
                for one in offers:
                    known = self._lives.get(one.partition)
                    if known is not None and known[0].epoch == one.life.epoch:
                        self._offers[one.partition] = one
                if self._complete():
                    self._release()
            return self.standing()

    def releases(self, since: int) -> list[Told]:
        """What was released after so many releases; all that a guide begins with where `since` is 0."""
        with self._lock:
            behind = self.guide.made - since
            if since and behind <= len(self._recent):
                return list(self._recent)[len(self._recent) - behind :]
            if since and behind:
                raise StateError("this place is too far behind to go on: open its partitions again")
            return [_told(one) for one in self.guide.releases()] if behind else []

    def news(self, known: Standing | None, seconds: float) -> Standing:
        """Where it stands, as soon as that is another than what is known, or after so many seconds."""
        with self._lock:
            self.changed.wait_for(lambda: self._book.ended or self.standing() != known, seconds)
            self._check()
            return self.standing()

    # ------------------------------------------------------------------ what it does

    def missing(self) -> list[int]:
        """Partitions that are open nowhere; or, while a leaf is sealed, that have not offered: for the operator."""
        with self._lock:
            known = self._offers if self._sealing else self._lives
            return [number for number in range(self.partitions) if number not in known]

    @property
    def ended(self) -> bool:
        """Whether nothing is released any more, until the state is opened again (public)."""
        return self._book.ended

    def _check(self) -> None:
        if self._book.ended:
            raise StateError("the merger's ledger could not be written, or is another's: open it again")

    def _reserve(self) -> None:
        """All numbers up to the end of the open leaf are taken, durably, before one of them is lent."""
        self._account.taken = self._end + self.guide.room
        self._keeper.begin()
        self._account.open()
        self._keeper.settle(self._account.enter())
        self._end = self._account.taken

    def _seal(self) -> None:
        self._sealing = True
        self.changed.notify_all()

    def _complete(self) -> bool:
        """Whether every partition has offered."""
        return len(self._offers) == self.partitions

    def _release(self) -> None:
        """Add up, and release: durable with every partition's version before anything is told of it."""
        total = np.zeros(self.guide.due_size, dtype=np.int64)
        for one in self._offers.values():
            total += np.frombuffer(one.sums, dtype="<i8")
        self._keeper.begin()
        self.guide.merge(total)
        for number, one in self._offers.items():
            self._versions[number] = one.life
        self._note_versions()
        self.guide.close_next()
        self._offers.clear()
        self._sealing = self.guide.due is not None
        self.changed.notify_all()

    def _store(self, release: Release) -> None:
        """Durable, with all that was entered before it; then it may be told."""
        self._durably(release)
        self._recent.append(_told(release))

    def _note_versions(self) -> None:
        """Every partition's version, in the entry before the release, and so in its transaction."""
        rows = enumerate(self._versions)
        body = b"".join(_VERSION.pack(b"partition%7d" % number, *life) for number, life in rows)
        sequence = self._account.enter(notes=((VERSIONS, _VERSION.size, body),)).sequence
        if self._noted >= 0:
            self._book.tear(VERSIONS, self._noted)
        self._noted = sequence

    def _note_lives(self, fresh: Mapping[int, Life], where: bytes) -> None:
        """Who has which partition, durable: a ledger from a backup claims an epoch that was there before."""
        last = [(fresh[number], where) if number in fresh else one for number, one in enumerate(self._last)]
        rows = enumerate(last)
        body = b"".join(_LIFE.pack(b"partition%7d" % number, *life, place) for number, (life, place) in rows)
        self._keeper.begin()
        sequence = self._account.enter(notes=((LIVES, _LIFE.size, body),)).sequence
        if self._noted_lives >= 0:
            self._book.tear(LIVES, self._noted_lives)
        self._book.wait(sequence)
        self._last, self._noted_lives = last, sequence

    def save(self) -> None:
        """Write a snapshot: it says what the guide answers by, for `confide verify`."""
        assert self._book.home is not None
        with self._lock:
            self.pop.save(self._book.home)

    def close(self) -> None:
        """Save, and give the state back."""
        with self._lock:
            try:
                if not self._book.ended:
                    self.save()
            finally:
                self.pop.close()


def _told(release: Release) -> Told:
    return Told(release.kind, release.number, release.row.astype("<i8").tobytes())
