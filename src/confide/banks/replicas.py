"""Copies of anything: a learner, a River model, a scikit-learn estimator."""

from __future__ import annotations

import copy as copying
import hashlib
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.arrays import Ints
from confide.banks.base import FORM, Failures, State, encode_rows, lessons_for, refuse_others, within
from confide.banks.inside import freeze, hold_still, is_pure, reseed, stand_apart, thaw, weigh
from confide.banks.quiet import Apart, Quiet
from confide.banks.trial import stands_still, try_out
from confide.contained import Contained, contained, tried
from confide.errors import StateError
from confide.learners.base import Learner, vector
from confide.learners.called import NO_LABEL, RAISED, Labels, NoLabel, called_by, values_of
from confide.learners.features import AsGiven, Encoder, encoder_for
from confide.learners.foreign import FromRiver, FromSklearn, as_learner
from confide.learners.refit import Refit
from confide.privacy.random import Random


class ReplicaBank:
    """A bank of anything that learns online, each copy an object of its own.

    A copy is made when it is first taught; until then its vote is the prototype's. Every generator and seed found
    inside a copy is set anew from a secret key, the copy's number and how often it was reset, so no copy's randomness
    depends on who was taught before. A learner that is not known to stay as it is when it predicts votes by a twin that
    is made for each question and thrown away, whatever was asked and learned before: slow, but nothing moves, and the
    work tells nothing. River's models are known to stay only where x has the same names always, so declare them:
    `features=["age", "income"]` or `Features(...)`. An exception while voting, or an answer that is no label, is an
    abstention, and counted in `failures`. Warnings of learners are dropped, and what they set in numpy or scikit-learn
    is set back.

    What two deep copies still share (class attributes, module globals, `random` and `numpy.random` themselves) no bank
    can separate: a learner that does is refused, as far as rows that are made up show it (`confide.banks.sharing`).

    Parameters are those of `bank_for`; `features` may also be the names of numbers in a dict, or None to hand x over as
    it is.

    Examples
    --------
    >>> from river import naive_bayes
    >>> bank = ReplicaBank(naive_bayes.GaussianNB(), copies=1000, labels=2, features=None, rng=Random())
    >>> for age in range(20, 60):
    ...     bank.learn(7, bank.encode({"age": age}), int(age > 40))
    >>> bank.votes(bank.encode({"age": 55}), np.array([3, 7, 9]))
    array([0, 1])
    """

    def __init__(
        self,
        learner: Any,
        copies: int,
        labels: Labels,
        features: int | Sequence[str] | Encoder | None,
        rng: Random,
        public_start: bool = False,
    ) -> None:
        self._public_start = public_start
        self.copies, self.labels = integer(copies, "copies", 1), integer(len(values_of(labels)), "labels", 2)
        self._encoder = encoder_for(features)
        self._width: int | None = getattr(self._encoder, "width", None)
        names = getattr(self._encoder, "names", None)
        self._prototype = copying.deepcopy(as_learner(learner, labels, keep=public_start, names=names))
        stand_apart(self._prototype)
        hold_still(self._prototype)
        self._called = called_by(self._prototype, labels)
        self._pure = is_pure(self._prototype, fixed=self._width is not None)
        self._river = isinstance(self._prototype, FromRiver)
        self._batches = self._pure and self._width is not None and isinstance(self._prototype, FromSklearn | Refit)
        self._start = freeze(self._prototype)
        stands_still(self._encoder)
        try_out(self._prototype, self._called, self._width, self._encoder)
        self.failures = Failures()
        """Votes lost so far, as a learner raised or answered no label. Private, for the operator."""
        self._replicas: dict[int, Learner] = {}
        self._frozen: dict[int, bytes | None] = {}  # of those that are rewound
        self._resets: dict[int, int] = {}
        self._lessons: dict[int, int] = {}  # counted in replays only
        self._rng = rng
        self._key = rng.words(4).tobytes()

    @property
    def nbytes(self) -> int:
        """The memory of the taught copies in bytes, estimated by what they pickle to."""
        frozen = sum(len(twin) for twin in self._frozen.values() if twin is not None)
        return frozen + sum(weigh(replica) for replica in self._replicas.values())

    def encode(self, x: Any) -> Any:
        """x for the learner, sharing nothing with what was given; ValueError says what is wrong with it."""
        with Contained(ValueError):
            encoded = self._encoder.encode(x)
            if self._width is None:
                return encoded if isinstance(self._encoder, AsGiven) else copying.deepcopy(encoded)
            try:
                return vector(encoded, self._width)  # also a buffer that an encoder uses again becomes a row of its own
            except ValueError:
                raise ValueError(f"the encoder did not give {self._width} finite numbers, as its width says") from None
        raise ValueError(FORM)

    def encode_many(self, xs: Any) -> tuple[list[Any], dict[int, str]]:
        """All x, None for each that is malformed, and what is wrong with those."""
        return encode_rows(self.encode, xs)

    def votes(self, x: Any, poll: Ints) -> Ints:
        """The votes of the polled copies by label."""
        counts: Ints = self.votes_many([x], [poll])[0]
        return counts

    def votes_many(self, rows: Sequence[Any], polls: Sequence[Ints] | Ints) -> Ints:
        """The votes of each row's polled copies by label; none for a malformed row.

        A copy is asked once about all rows that poll it, if its learner answers each as if it were alone.
        """
        if len(rows) != len(polls):
            raise ValueError(f"there are {len(polls)} polls for {len(rows)} rows: give one poll for each")
        if not len(rows):
            return np.zeros((0, self.labels), dtype=np.int64)
        sizes = [len(poll) if x is not None else 0 for x, poll in zip(rows, polls, strict=True)]
        asked = [np.asarray(poll, dtype=np.int64) for poll, size in zip(polls, sizes, strict=True) if size]
        copies = np.concatenate([*asked, np.empty(0, dtype=np.int64)])
        if not within(copies, self.copies):
            raise ValueError("the poll names a copy that does not exist")
        row = np.repeat(np.arange(len(rows)), sizes)
        with Quiet():
            ask = self._labels_by_copy if self._batches else self._labels_one_by_one
            labels = ask(rows, copies, row)
        self.failures = self.failures.with_votes(labels)
        votes = labels >= 0
        cells = row[votes] * self.labels + labels[votes]
        return np.bincount(cells, minlength=len(rows) * self.labels).reshape(len(rows), self.labels)

    def learn(self, copy: int, x: Any, y: int) -> None:
        """Teach one copy; its learner's exceptions go up."""
        copy, y = integer(copy, "a copy", 0, self.copies - 1), integer(y, "a label", 0, self.labels - 1)
        try:
            self._teach(copy, x, y)
        finally:
            self._freeze([copy])

    def learn_many(self, copies: Ints, rows: Sequence[Any], ys: Ints) -> int:
        """Teach rows to their copies, in order; one whose learner fails is passed over. How many were taught."""
        copies, ys = lessons_for(self, copies, rows, ys)
        taught = 0
        try:
            for copy, x, y in zip(copies.tolist(), rows, ys.tolist(), strict=True):
                with contained:
                    self._teach(copy, x, y)
                    taught += 1
        finally:
            self._freeze(set(copies.tolist()))
        return taught

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything: each starts again with a randomness of its own."""
        for copy in [integer(copy, "a copy", 0, self.copies - 1) for copy in copies]:
            self._replicas.pop(copy, None)
            self._frozen.pop(copy, None)
            self._lessons.pop(copy, None)
            self._resets[copy] = self._resets.get(copy, 0) + 1

    def state(self, trusted: bool = False) -> State:
        """Everything the copies know; `trusted` because models of others can only be pickled."""
        if not trusted:
            raise ValueError(
                "these copies are Python objects and can only be pickled, and loading a pickle runs what is "
                "in it: pass trusted=True if nobody else can write the file"
            )
        return self._written(range(self.copies))

    def part(self, among: range) -> State:
        """What these copies know, pickled, and in a seeded bank where the randomness of each stands.

        `load_state` of another bank like this one goes on from there; of a secure one with fresh randomness.
        """
        if self._rng.secure:
            return self._written(among)
        which = sorted(copy for copy in {*self._resets, *self._lessons} if copy in among)
        rows = [(copy, self._resets.get(copy, 0), self._lessons.get(copy, 0)) for copy in which]
        seeds = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return {**self._written(among), "key": self._key.hex(), "seeds": seeds}

    def _written(self, among: range) -> dict[str, NDArray[Any] | str | int]:
        taught = sorted(copy for copy in self._replicas if copy in among)
        blobs, failed = tried(lambda: [pickle.dumps(self._replicas[copy]) for copy in taught])
        if failed is not None:
            raise StateError("the learner cannot be pickled: avoid lambdas in it") from failed
        return {
            **self._name(),
            "taught": np.array(taught, dtype=np.int64),
            "pickles": np.frombuffer(b"".join(blobs), dtype=np.uint8),
            "sizes": np.array([len(blob) for blob in blobs], dtype=np.int64),
        }

    def load_state(self, state: State, trusted: bool = False) -> None:
        """Take over a state; every generator in it starts anew under a fresh key."""
        if not trusted:
            raise ValueError("loading a pickle runs what is in it: pass trusted=True if nobody else wrote it")
        refuse_others(state, self._name())
        taught, sizes = np.asarray(state["taught"]), np.asarray(state["sizes"])
        blob = np.asarray(state["pickles"], dtype=np.uint8).tobytes()
        if taught.shape != sizes.shape or sizes.sum() != len(blob):
            raise ValueError("the state is damaged: take an older one")
        self._key, self._resets, self._lessons = self._rng.words(4).tobytes(), {}, {}
        if "key" in state and not self._rng.secure:  # a replay goes on where it was
            self._key = bytes.fromhex(str(state["key"]))
            for copy, resets, lessons in np.asarray(state["seeds"]).tolist():
                self._resets[copy], self._lessons[copy] = resets, lessons
        ends = np.cumsum(sizes).tolist()
        self._replicas, self._frozen = {}, {}
        for copy, end, size in zip(taught.tolist(), ends, sizes.tolist(), strict=True):
            replica = pickle.loads(blob[end - size : end])
            reseed(replica, self._seed(copy), seeds=False)
            self._replicas[copy] = replica
        self._freeze(self._replicas)

    def __repr__(self) -> str:
        return f"ReplicaBank({self._kind()}, copies={self.copies})"

    # Untaught copies vote as the prototype does. It is asked about every row, also where none of them is polled.

    def _labels_by_copy(self, rows: Sequence[Any], copies: Ints, row: Ints) -> Ints:
        """What each copy says of its row, each asked once: by learners whose answer to a row knows no other row."""
        table = np.array([np.zeros(self._width or 1) if x is None else x for x in rows])
        labels = _predict_numbers(self._prototype, table)[row]
        order = np.argsort(copies, kind="stable")
        ends = (np.flatnonzero(np.diff(copies[order], append=-1)) + 1).tolist()
        for first, end in zip([0, *ends], ends, strict=False):
            these = order[first:end]
            replica = self._replicas.get(int(copies[these[0]]))
            if replica is not None:
                labels[these] = _predict_numbers(replica, table[row[these]])
        return labels

    def _labels_one_by_one(self, rows: Sequence[Any], copies: Ints, row: Ints) -> Ints:
        """The same with a question for each copy and row."""
        if isinstance(self._prototype, FromRiver):
            rows = [x if x is None else self._prototype.named(x) for x in rows]
        start = [self._answer(self._prototype, self._start, self._pure and not self._river, x) for x in rows]
        labels = np.array(start, dtype=np.int64)[row]
        order = np.argsort(copies, kind="stable")  # all of a copy's rows while it is in the cache
        for place, copy, i in zip(order.tolist(), copies[order].tolist(), row[order].tolist(), strict=True):
            replica = self._replicas.get(copy)
            if replica is not None:
                labels[place] = self._answer(replica, self._frozen.get(copy), self._pure, rows[i])
        return labels

    def _answer(self, learner: Learner, frozen: bytes | None, pure: bool, x: Any) -> int:
        """The number of what the learner answers, or a twin of it that nobody asks again; negative where it fails."""
        with contained:
            try:
                if pure:
                    return self._called.number(learner.predict(_own(x)))
                with Apart():
                    return self._called.number(thaw(frozen, learner).predict(_own(x)))
            except NoLabel:
                return NO_LABEL
        return RAISED

    def _teach(self, copy: int, x: Any, y: int) -> None:
        replica = self._replicas.get(copy)
        new = replica is None
        if replica is None:
            replica = thaw(self._start, self._prototype)
            reseed(replica, self._seed(copy), seeds=not self._public_start)
            self._replicas[copy] = replica
        try:
            with Apart():
                replica.learn(_own(x), self._called.values[y])
        except BaseException:
            if new and self._river:  # it may not know all names: one that was asked about them now would change
                del self._replicas[copy]
            raise
        finally:
            if not self._rng.secure:  # a replay: generators that the lesson made from system entropy too
                self._lessons[copy] = self._lessons.get(copy, 0) + 1
                reseed(replica, self._seed(copy), seeds=False)

    def _freeze(self, copies: Iterable[int]) -> None:
        """Have a twin ready of each copy that votes by one: here, so that no vote takes longer after a lesson."""
        if not self._pure:
            self._frozen.update({copy: freeze(self._replicas[copy]) for copy in copies if copy in self._replicas})

    def _seed(self, copy: int) -> bytes:
        which = f"{copy} {self._resets.get(copy, 0)} {self._lessons.get(copy, 0)}".encode()
        return hashlib.blake2b(which, key=self._key, person=b"confide replica").digest()

    def _kind(self) -> str:
        return type(getattr(self._prototype, "model", self._prototype)).__name__

    def _name(self) -> dict[str, str | int]:
        return {
            "bank": "ReplicaBank",
            "learner": self._kind(),
            "features": repr(self._encoder),
            "copies": self.copies,
            "labels": self.labels,
        }


def _own(x: Any) -> Any:
    """x for one learner alone. A dict could be changed and handed on; encoded arrays are read-only."""
    return x.copy() if isinstance(x, dict) else x


def _predict_numbers(learner: Any, rows: NDArray[Any]) -> Ints:
    with contained:
        return np.array(learner.predict_numbers(rows), dtype=np.int64).reshape(len(rows))
    return np.full(len(rows), RAISED)
