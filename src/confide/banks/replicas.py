"""Copies of anything: a learner, a River model, a scikit-learn estimator."""

from __future__ import annotations

import copy as copying
import hashlib
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.banks.base import RowByRow, State
from confide.banks.inside import is_pure, reseed, weigh
from confide.learners.base import Learner
from confide.learners.features import Encoder, encoder_for
from confide.learners.foreign import FromRiver, as_learner
from confide.privacy.random import Random

__all__ = ["ReplicaBank"]


class ReplicaBank(RowByRow):
    """A bank of anything that learns online, each copy an object of its own.

    A copy is made, as a deep copy of the prototype, when it is first taught; until then its vote is the
    prototype's. Every generator and seed found inside a copy is set anew from a secret key, the copy's
    number and how often it was reset, so no copy's randomness depends on who was taught before. A learner
    that is not known to stay as it is when it predicts votes by a copy of itself that is thrown away: slow,
    but nothing moves. An exception while voting, or an answer that is no label, is an abstention.

    What two deep copies still share (class attributes, module globals, `random` and `numpy.random`
    themselves) no bank can separate: `confide.banks.checks` finds it, as far as votes and memory show it.

    Parameters
    ----------
    learner
        The prototype: never taught, only its parameters are used.
    copies
        The number of copies.
    labels
        The number of labels.
    features
        An encoder, the number of features of an array, or None to hand x over as it is.
    rng
        Where the secret key comes from.
    public_start
        Start every copy from what the prototype has learned. For prototypes trained on public data only.

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
        labels: int,
        features: int | Encoder | None,
        rng: Random,
        public_start: bool = False,
    ) -> None:
        self._public_start = public_start
        self._prototype = as_learner(learner, labels, keep=public_start)
        if public_start:
            self._prototype = copying.deepcopy(self._prototype)
        self._untaught = copying.deepcopy(self._prototype)  # votes for the untaught copies
        self._pure = is_pure(self._prototype)
        self._copies, self._labels = integer(copies, "copies", 1), integer(labels, "labels", 2)
        self._encoder = encoder_for(features)
        self._replicas: dict[int, Learner] = {}
        self._resets: dict[int, int] = {}
        self._lessons: dict[int, int] = {}  # counted in replays only
        self._rng = rng
        self._key = rng.words(4).tobytes()

    @property
    def copies(self) -> int:
        """The number of copies."""
        return self._copies

    @property
    def labels(self) -> int:
        """The number of labels."""
        return self._labels

    @property
    def nbytes(self) -> int:
        """The memory of the taught copies in bytes, estimated by what they pickle to."""
        return sum(weigh(replica) for replica in self._replicas.values())

    def encode(self, x: Any) -> Any:
        """x for the learner, sharing nothing with what was given; ValueError says what is wrong with it."""
        return self._encoder.encode(x)

    def votes(self, x: Any, poll: NDArray[np.int64]) -> NDArray[np.int64]:
        """The votes of the polled copies by label."""
        counts = np.zeros(self._labels, dtype=np.int64)
        untaught = 0
        for copy in np.asarray(poll, dtype=np.int64).tolist():
            if not 0 <= copy < self._copies:
                raise ValueError("the poll names a copy that does not exist")
            replica = self._replicas.get(copy)
            if replica is None:
                untaught += 1
            elif (label := self._vote(replica, x)) is not None:
                counts[label] += 1
        if untaught and (label := self._vote(self._untaught, x)) is not None:
            counts[label] += untaught
        return counts

    def learn(self, copy: int, x: Any, y: int) -> None:
        """Teach one copy; its learner's exceptions go up."""
        copy, y = integer(copy, "a copy", 0, self._copies - 1), integer(y, "a label", 0, self._labels - 1)
        replica = self._replicas.get(copy)
        if replica is None:
            replica = copying.deepcopy(self._prototype)
            reseed(replica, self._seed(copy), seeds=not self._public_start)
            self._replicas[copy] = replica
        try:
            replica.learn(_own(x), y)
        finally:
            if not self._rng.secure:  # a replay: generators that the lesson made from system entropy too
                self._lessons[copy] = self._lessons.get(copy, 0) + 1
                reseed(replica, self._seed(copy), seeds=False)

    def reset(self, copies: Iterable[int]) -> None:
        """Make the copies forget everything: each starts again with a randomness of its own."""
        for copy in [integer(copy, "a copy", 0, self._copies - 1) for copy in copies]:
            self._replicas.pop(copy, None)
            self._lessons.pop(copy, None)
            self._resets[copy] = self._resets.get(copy, 0) + 1

    def state(self, trusted: bool = False) -> State:
        """Everything the copies know; `trusted` because models of others can only be pickled."""
        if not trusted:
            raise ValueError(
                "these copies are Python objects and can only be pickled, and loading a pickle runs what is "
                "in it: pass trusted=True if nobody else can write the file"
            )
        taught = sorted(self._replicas)
        try:
            blobs = [pickle.dumps(self._replicas[copy]) for copy in taught]
        except Exception as error:
            raise ValueError("the learner cannot be pickled: avoid lambdas in it") from error
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
        for key, value in self._name().items():
            if state.get(key) != value:
                raise ValueError(f"the state belongs to another bank: its {key} is not {value}")
        taught, sizes = np.asarray(state["taught"]), np.asarray(state["sizes"])
        blob = np.asarray(state["pickles"], dtype=np.uint8).tobytes()
        if taught.shape != sizes.shape or sizes.sum() != len(blob):
            raise ValueError("the state is damaged: take an older one")
        self._key, self._resets, self._lessons = self._rng.words(4).tobytes(), {}, {}
        ends = np.cumsum(sizes).tolist()
        self._replicas = {}
        for copy, end, size in zip(taught.tolist(), ends, sizes.tolist(), strict=True):
            replica = pickle.loads(blob[end - size : end])
            reseed(replica, self._seed(copy), seeds=False)
            self._replicas[copy] = replica

    def __repr__(self) -> str:
        return f"ReplicaBank({self._kind()}, copies={self._copies})"

    def _vote(self, learner: Learner, x: Any) -> int | None:
        try:
            pure = self._pure and (not isinstance(learner, FromRiver) or learner.knows(x))
            voter = learner if pure else copying.deepcopy(learner)
            label = voter.predict(_own(x))
        except Exception:
            return None
        known = isinstance(label, int | np.integer | np.bool_) and 0 <= label < self._labels
        return int(label) if known and label is not None else None

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
            "copies": self._copies,
            "labels": self._labels,
        }


def _own(x: Any) -> Any:
    """x for one learner alone. A dict could be changed and handed on; encoded arrays are read-only."""
    return x.copy() if isinstance(x, dict) else x
