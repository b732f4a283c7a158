"""Labels alone: one model of any kind, taught labels that were randomized as they came.

A label is given to the response once, when it comes, and the true one is kept nowhere: not in a ticket, a journal, a
message or a weight. What came out is written down before it is taught. Everything later is a function of rows, times
and outputs, so answers, probabilities and the model itself may be shown. Rows are not protected, and neither is whether
and when a label came, unless a deadline is declared. Proof page: docs/proofs/labels.md.
"""

from __future__ import annotations

import io
import os
import threading
import zipfile
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from confide._checks import integer
from confide.banks.base import Failures
from confide.contained import contained
from confide.errors import StateError
from confide.frames import rows_of, values_of
from confide.labels.base import Taught
from confide.labels.journal import Entry, Journal
from confide.labels.models import model_for
from confide.ledger import snapshot
from confide.ledger.file import Lock
from confide.planning.labels import LabelGuarantee
from confide.pop.base import FALLBACK, GUIDE, TICKET_LIFE, Answer, Followed, Unit, Xs
from confide.pop.routing import Routing
from confide.pop.tickets import Tickets, Waiting
from confide.privacy.random import Random
from confide.privacy.response import Response, each, together

__all__ = ["Randomized", "Told", "labels_alone"]

Ints = NDArray[np.int64]
Key = tuple[int, int]
_STATE = "labels.npz"
_UNKNOWN = "the label must be one of those that were declared; it was not taken, and may be brought again"


@dataclass(frozen=True, slots=True)
class Told(Answer):
    """An answer with the probability of every label, where the model knows them. All of it is public."""

    probabilities: Mapping[Hashable, float] | None = None


class Randomized:
    """A model for whoever needs labels protected and rows not.

    **Formal guarantee.** Whatever anybody sees of a whole run, the model included, is ε-private for the labels of one
    unit; δ is 0, and a run has no end. Proof page: docs/proofs/labels.md.

    Parameters
    ----------
    learner
        None for our own model; else River's classifier or pipeline, scikit-learn's estimator or pipeline, or anything
        with `predict` and `learn`. It is a prototype: a fresh one like it is taught.
    labels
        All labels, public.
    epsilon
        For all labels of one unit together.
    features
        What x is, as POP takes it; an own model needs none.
    units
        "rounds", or "people", who come with an id in every call.
    unit_labels
        Labels of one person that are ever taken, each at epsilon/unit_labels. Any further one is refused.
    deadline, missing
        So many public rounds after a question its label is due; one that has not come is replaced by `missing`, and
        randomized too. Needed where labels come for one outcome only: without it, that a label came says which.
    ticket_life
        Public rounds after which a ticket expires; with a deadline that is the deadline.
    seed
        For tests alone: nothing is promised then.

    Examples
    --------
    >>> from river.tree import HoeffdingTreeClassifier
    >>> model = Randomized(HoeffdingTreeClassifier(), labels=["genuine", "fraud"], epsilon=1.0)
    >>> answer = model.predict({"amount": 12.5, "country": "NO"})
    >>> model.learn(answer.ticket, "genuine")
    >>> print(model.guarantee)
    1-DP for labels alone: labels are protected; rows, and whether and when a label came, are not
    """

    state: Literal["silent", "live", "halted"] = "live"
    halt_reason: str | None = None
    named = True

    def __init__(
        self,
        learner: Any = None,
        *,
        labels: Sequence[Hashable],
        epsilon: float,
        features: Any = None,
        units: Literal["rounds", "people"] = "rounds",
        unit_labels: int = 1,
        deadline: int | None = None,
        missing: Hashable = None,
        ticket_life: int = TICKET_LIFE,
        seed: int | None = None,
    ) -> None:
        self.labels = tuple(labels)
        self._numbers = {label: i for i, label in enumerate(self.labels)}
        if len(self._numbers) < len(self.labels) or len(self.labels) < 2:
            raise ValueError("labels must be at least two, each named once")
        self.units, self._cap = units, integer(unit_labels, "unit_labels", at_least=1)
        if units == "rounds" and self._cap > 1:
            raise ValueError("a round has one label: leave unit_labels out, or take units='people'")
        if (deadline is None) != (missing is None) or (missing is not None and missing not in self._numbers):
            raise ValueError("declare a deadline together with the label that stands for a missing one, or neither")
        self.deadline = None if deadline is None else integer(deadline, "deadline", at_least=1)
        self._missing = None if missing is None else self._numbers[missing]
        self.epsilon = epsilon
        self.response = Response.best(each(epsilon, self._cap), len(self.labels))
        self.model: Taught = model_for(learner, self.labels, self.response, features)
        self._rng = Random(seed)
        self._routing = Routing(units, 1, self._rng)
        self._tickets = Tickets(self._routing.ticket_key, integer(ticket_life, "ticket_life", at_least=1))
        if self.deadline is not None:
            self._tickets.life = self.deadline
        self._taken: dict[bytes, int] = {}
        self._counts = np.zeros(len(self.labels), dtype=np.int64)
        self._due: deque[Key] = deque()
        self._pending: dict[Key, Waiting] = {}
        self._drawn: dict[Key, int] = {}
        self._journal: Journal | None = None
        self._folder_lock: Lock | None = None
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self.rounds = 0
        self.records = 0
        self._generation = 0

    # ------------------------------------------------------------------ what is public

    @property
    def guarantee(self) -> LabelGuarantee:
        """What is promised to each unit: from the integers that are drawn with."""
        promised = together(self.response.cost(), self._cap)
        cap = self._cap if self.units == "people" else None
        secure = self._rng.secure
        return LabelGuarantee(promised, 0.0, 1, secure, cap, self.units, deadline=self.deadline)

    @property
    def failures(self) -> Failures:
        """How often an own model failed; its answers and lessons are made of outputs, so this is public."""
        return getattr(self.model, "failures", Failures())

    @property
    def frequencies(self) -> dict[Hashable, float]:
        """The shares of true labels so far, unbiased: from what came out, by the known law."""
        if not self._counts.any():
            return dict.fromkeys(self.labels, 1.0 / len(self.labels))
        return dict(zip(self.labels, self.response.frequencies(self._counts).tolist(), strict=True))

    def probabilities(self, x: Any) -> dict[Hashable, float]:
        """How likely each label is, the channel undone; ValueError where the model does not say. It takes no round."""
        with self._own():
            shares = self.model.answer(self.model.read(x))[1]
        if shares is None:
            raise ValueError("this model gives labels only: take one that tells probabilities, or none")
        return dict(zip(self.labels, shares.tolist(), strict=True))

    @property
    def standing(self) -> str:
        """Where it stands, in words (public)."""
        return "live"

    # ------------------------------------------------------------------ asking

    def predict(self, x: Any, unit: Unit | None = None) -> Told:
        """Answer one round. An x that cannot be read takes its round too, then raises ValueError to its asker."""
        with self._own():
            who = self._routing.who(unit)
            self._begin()
            number = self.rounds
            row, failed = None, ""
            try:
                row = self.model.read(x)
            except ValueError as error:
                failed = str(error)
            if failed:
                self._tickets.issue(number, None)
                raise ValueError(failed)
            answer, shares = self.model.answer(row)
            waiting = Waiting(-1, None, answer, False, who, (row,))
            ticket = self._tickets.issue(number, waiting)
            if self.deadline is not None:
                self._due.append((self._tickets.epoch, number))
                self._pending[self._tickets.epoch, number] = waiting
            return self._told(answer, shares, ticket)

    def _told(self, answer: int, shares: NDArray[np.float64] | None, ticket: str) -> Told:
        known = answer >= 0
        label = self.labels[answer if known else int(self._counts.argmax())]
        source: Literal["guide", "fallback"] = "guide" if known else "fallback"
        said = None if shares is None else dict(zip(self.labels, shares.tolist(), strict=True))
        return Told(label, False, ticket, None, source, label if known else None, said)

    def _begin(self) -> None:
        """A public round begins: what is due is taught first."""
        self.rounds += 1
        self._tickets.expire(self.rounds)
        while self._due and self._due[0][1] <= self.rounds - cast(int, self.deadline):
            key = self._due[0]
            if (waiting := self._pending.get(key)) is not None:
                self._settle(key, waiting)
            self._due.popleft()
            self._pending.pop(key, None)

    def _settle(self, key: Key, waiting: Waiting) -> None:
        """The deadline of a question: what came out for its label, or for the declared one, is taught now."""
        if not self._free(waiting.who):
            self._drawn.pop(key, None)  # nobody has seen it
            return
        if key not in self._drawn:
            self._drawn[key] = self._draw(cast(int, self._missing))
        self._take(key, waiting.questions[0], self._drawn[key], waiting.who)
        del self._drawn[key]

    # ------------------------------------------------------------------ labels

    def learn(self, ticket: str, y: Hashable) -> None:
        """Randomize the label of an answered round, and teach what came out. A ticket is good once."""
        with self._own():
            number = self._number(y)
            key, waiting = self._tickets.redeem(ticket, self.rounds)
            if self.deadline is None:
                self._learn(key, waiting, number)
            elif key not in self._drawn and key in self._pending and self._free(waiting.who):
                self._drawn[key] = self._draw(number)  # it waits for its deadline, as a missing one does

    def _learn(self, key: Key, waiting: Waiting, number: int) -> None:
        if not self._free(waiting.who):
            self._drawn.pop(key, None)  # nobody has seen it
            raise ValueError(f"of each person {self._cap:,} labels are taken, for life: this one was not taken")
        if key not in self._drawn:
            self._drawn[key] = self._draw(number)
        try:
            self._take(key, waiting.questions[0], self._drawn[key], waiting.who)
        except BaseException:
            self._tickets.restore(key, waiting)  # the same output is written when it is brought again
            raise
        del self._drawn[key]

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> None:
        """Randomize and teach the label of a record that was never asked: each call is one label."""
        with self._own():
            who, number, row = self._routing.who(unit), self._number(y), self.model.read(x)
            if not self._free(who):
                raise ValueError(f"of each person {self._cap:,} labels are taken, for life: this one was not taken")
            self.records += 1
            self._take((-1, self.records), row, self._draw(number), who)

    def _number(self, y: Hashable) -> int:
        with contained:  # whatever y does when it is looked up
            return self._numbers[y]
        raise ValueError(_UNKNOWN)

    def _draw(self, number: int) -> int:
        """The one place where a label is randomized: one word, which is used for nothing else."""
        return self.response.draw(number, self._rng.word())

    def _free(self, who: bytes | None) -> bool:
        return who is None or self._taken.get(who, 0) < self._cap

    def _take(self, key: Key, row: Any, out: int, who: bytes | None) -> None:
        """Write down what came out, then count and teach it."""
        if self._journal is not None:
            self._journal.add([Entry(key, out, who, row)])
        self._count(out, who)
        self.model.teach(row, out)

    def _count(self, out: int, who: bytes | None) -> None:
        self._counts[out] += 1
        if who is not None:
            self._taken[who] = self._taken.get(who, 0) + 1

    def forget(self, unit: Unit) -> None:
        """Drop a person's open questions. What was randomized stays, and so does what their labels have used."""
        with self._own():
            who = cast(bytes, self._routing.who(unit))
            self._tickets.drop(who)
            for key in [key for key, waiting in self._pending.items() if waiting.who == who]:
                del self._pending[key]
                self._drawn.pop(key, None)

    # ------------------------------------------------------------------ many

    def predict_many(self, xs: Xs, units: Sequence[Unit] | None = None) -> list[Answer]:
        """What `predict` would answer one after the other, errors in the answers."""
        xs = rows_of(xs, True)
        ids = self._ids(units, len(xs))
        out: list[Answer] = []
        for x, unit in zip(xs, ids, strict=True):
            try:
                out.append(self.predict(x, unit))
            except ValueError as error:
                out.append(Answer(None, False, "", str(error)))
        return out

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels; all good ones are taken, then ValueError tells of the bad ones."""
        self._each(list(zip(*self._pairs(tickets, ys), strict=True)), self.learn)

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> None:
        """Teach many records; all good ones are taken, then ValueError tells of the bad ones."""
        rows, labels = self._pairs(rows_of(xs, True), ys)
        self._each(list(zip(rows, labels, self._ids(units, len(rows)), strict=True)), self.teach)

    def _pairs(self, given: Any, ys: Any) -> tuple[Any, Any]:
        given, ys = values_of(given) if not isinstance(given, np.ndarray) else given, values_of(ys)
        if len(given) != len(ys):
            raise ValueError(f"there are {len(given)} rows for {len(ys)} labels: give one label for each")
        return given, ys

    def _ids(self, units: Sequence[Unit] | None, rows: int) -> Sequence[Unit | None]:
        units = values_of(units)
        if units is None:
            return [None] * rows
        if isinstance(units, str | bytes) or len(units) != rows:
            raise ValueError("units must be a sequence of ids, one for each row")
        return units

    def _each(self, given: Sequence[tuple[Any, ...]], act: Any) -> None:
        wrong: list[str] = []
        for i, one in enumerate(given):
            try:
                act(*one)
            except ValueError as error:
                wrong.append(f"row {i} was refused: {error}")
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise ValueError(f"{wrong[0]}{more}; all others were taken")

    def readable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that cannot be read; takes no round."""
        found: dict[int, str] = {}
        for i, x in enumerate(xs):
            try:
                self.model.read(x)
            except ValueError as error:
                found[i] = str(error)
        return found

    def follow_many(self, xs: Any, ys: Ints, units: Sequence[Unit] | None = None) -> Followed:
        """Ask each row, then teach its label (a number, −1 for none) before the next one: as one by one, and faster.

        Rounds and caps are taken before anything is taught, whatever cuts the rest off.
        """
        ids, ys = self._ids(units, len(xs)), np.asarray(ys)
        if ys.ndim != 1 or len(ys) != len(xs) or not ((ys >= -1) & (ys < len(self.labels))).all():
            raise ValueError(f"give one number from 0 to {len(self.labels) - 1} for each row, or −1 for no label")
        if self.deadline is not None:
            return self._one_by_one(xs, ys, ids)
        with self._own():
            who = [self._routing.who(unit) for unit in ids]
            rows = self.model.read_many(xs)
            taken, first = self._allowed(ys >= 0, rows.refused, who), self.rounds + 1
            for _ in range(len(ys)):
                self.rounds += 1
                self._tickets.issue(self.rounds, None)
            self._tickets.expire(self.rounds)
            outs = np.full(len(ys), -1)
            outs[taken] = self.response.draw_many(ys[taken], self._rng.words(int(taken.sum())))
            self._write_down(xs, outs, who, first)
            fallback = self._leaders(outs)
            for i in np.flatnonzero(taken).tolist():
                self._count(int(outs[i]), who[i])
            answers = self.model.follow(rows, outs)
            known = answers >= 0
            source = np.where(rows.refused, -1, np.where(known, GUIDE, FALLBACK)).astype(np.int8)
            shown = np.where(rows.refused, -1, np.where(known, answers, fallback))
            none = np.full(len(ys), -1)
            return Followed(shown, np.zeros(len(ys), dtype=np.bool_), none, source, np.where(known, answers, -1))

    def _allowed(self, comes: NDArray[np.bool_], refused: NDArray[np.bool_], who: Sequence[bytes | None]) -> Any:
        """Which labels are taken: those of rows that were read, up to each person's cap."""
        taken = comes & ~refused
        used: dict[bytes, int] = {}
        for i in np.flatnonzero(taken).tolist() if self.units == "people" else ():
            one = cast(bytes, who[i])
            used[one] = used.get(one, self._taken.get(one, 0)) + 1
            taken[i] = used[one] <= self._cap
        return taken

    def _leaders(self, outs: Ints) -> Ints:
        """The label that led before each row."""
        if self._counts.sum() + outs.size > 0 and (self._counts > 0).any() and not (outs >= 0).any():
            return np.full(outs.size, int(self._counts.argmax()))
        counts, found = self._counts.copy(), np.empty(outs.size, dtype=np.int64)
        for i, out in enumerate(outs.tolist()):
            found[i] = counts.argmax()
            if out >= 0:
                counts[out] += 1
        return found

    def _write_down(self, xs: Any, outs: Ints, who: Sequence[bytes | None], first: int) -> None:
        if self._journal is None:
            return
        came = np.flatnonzero(outs >= 0).tolist()
        epoch = self._tickets.epoch
        self._journal.add([Entry((epoch, first + i), int(outs[i]), who[i], self.model.read(xs[i])) for i in came])

    def _one_by_one(self, xs: Any, ys: Ints, ids: Sequence[Unit | None]) -> Followed:
        found = np.full((4, len(ys)), -1)
        for i, (x, y, unit) in enumerate(zip(xs, np.asarray(ys).tolist(), ids, strict=True)):
            try:
                answer = self.predict(x, unit)
            except ValueError:  # for its asker alone
                continue
            number = self._numbers[answer.label]
            known = answer.source == "guide"
            found[:3, i] = number, GUIDE if known else FALLBACK, number if known else -1
            if y >= 0:
                self.learn(answer.ticket, self.labels[y])
        none = np.zeros(len(ys), dtype=np.bool_)
        return Followed(found[0], none, found[3], found[1].astype(np.int8), found[2])

    # ------------------------------------------------------------------ state

    def save(self, path: str | Path, *, trusted: bool = False) -> None:
        """Write the state to this folder, and from now on write down there what came out before it is taught.

        Parameters
        ----------
        trusted
            Allow the pickle of an own model: loading a pickle runs what is in it.
        """
        with self._own():
            folder = Path(path)
            if self._journal is None:
                if labels_alone(folder):
                    raise StateError(f"{folder} holds another model's state: save to a folder of its own, or load it")
                snapshot.make_folder(folder)
                self._folder_lock = Lock(folder / "lock")
            elif self._journal.path.parent.resolve() != folder.resolve():
                raise StateError("this model is kept in another folder: close it, and load it from there")
            self._save(folder, trusted)

    def _save(self, folder: Path, trusted: bool) -> None:
        """A new snapshot, and with it a new journal: one names the other, so no entry counts twice."""
        old, self._generation = self._journal, self._generation + 1
        held = io.BytesIO()
        np.savez(held, **self._arrays(trusted))  # type: ignore[arg-type]
        snapshot.write_key(folder, self._routing.secret)
        snapshot.write_extra(folder, _STATE, held.getvalue())
        self._journal = Journal(folder / _journal(self._generation))
        if old is not None:
            old.close()
            old.path.unlink(missing_ok=True)

    def _arrays(self, trusted: bool) -> dict[str, NDArray[Any]]:
        state = self.model.state()
        if "pickle" in state and not trusted:
            raise StateError(
                "this model can only be pickled, and loading a pickle runs what is in it: pass trusted=True if nobody "
                "else can write this folder"
            )
        who = sorted(self._taken)
        return {
            **{f"learner/{name}": value for name, value in state.items()},
            "protects": np.array("labels"),
            "numbers": np.array(
                [
                    self.rounds,
                    self._tickets.epoch,
                    self.records,
                    self._generation,
                    *self._promise(),
                ],
                dtype=np.uint64,
            ),
            "counts": self._counts,
            "who": np.frombuffer(b"".join(who), dtype=np.uint8),
            "taken": np.array([self._taken[one] for one in who], dtype=np.int64),
        }

    def _promise(self) -> tuple[int, ...]:
        """What a state must be loaded with again, or the promise, or what is made of labels, would be another."""
        names = int.from_bytes(blake2b(repr(self.labels).encode(), digest_size=8).digest())
        due = self.deadline or 0, 0 if self._missing is None else 1 + self._missing
        return len(self.labels), self.response.other, int(self.units == "people"), self._cap, *due, names

    @classmethod
    def load(cls, path: str | Path, *args: Any, trusted: bool = False, **options: Any) -> Self:
        """Go on from a folder that `save` wrote: give the same learner and options as when it was made.

        What was written down since the last save is taught from there, and never drawn again. Open tickets expire.
        """
        folder = Path(path)
        if not labels_alone(folder):
            raise StateError(f"{folder} holds no state of labels alone: save one there first")
        made = cls(*args, **options)
        lock = Lock(folder / "lock")
        try:
            made._resume(folder, trusted)
        except BaseException:
            lock.release()
            raise
        made._folder_lock = lock
        return made

    def _resume(self, folder: Path, trusted: bool) -> None:
        try:
            with np.load(io.BytesIO(snapshot.read_extra(folder, _STATE) or b""), allow_pickle=False) as file:
                arrays = dict(file)
            rounds, epoch, records, self._generation, *promise = (int(n) for n in arrays["numbers"])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            raise StateError(f"{folder} is damaged: take it from a backup") from None
        if tuple(promise) != self._promise():
            raise StateError(
                "this state has another promise, other labels or people: load it with those that it was made with"
            )
        if "learner/pickle" in arrays and not trusted:
            raise StateError("loading a pickle runs what is in it: pass trusted=True if nobody else wrote it")
        self.rounds, self.records, self._counts = rounds, records, arrays["counts"].astype(np.int64)
        self._routing = Routing(self.units, 1, self._rng, snapshot.read_key(folder))
        self._tickets = Tickets(self._routing.ticket_key, self._tickets.life)
        self._tickets.epoch = epoch + 1
        names = arrays["who"].tobytes()
        people = [names[i : i + 16] for i in range(0, len(names), 16)]
        self._taken = dict(zip(people, arrays["taken"].tolist(), strict=True))
        mine = {name.removeprefix("learner/"): value for name, value in arrays.items() if name.startswith("learner/")}
        self.model.restore(mine)
        self._journal = Journal(folder / _journal(self._generation))
        for entry in self._journal.entries():
            self._count(entry.out, entry.who)
            self.model.teach(entry.row, entry.out)
            self.records = max(self.records, entry.key[1]) if entry.key[0] < 0 else self.records
            self.rounds = max(self.rounds, entry.key[1]) if entry.key[0] >= 0 else self.rounds
        self._save(folder, trusted)  # tickets of this life are no other life's

    def close(self) -> None:
        """Give the folder back; another process may load it then."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()
            if self._folder_lock is not None:
                self._folder_lock.release()
            self._journal = self._folder_lock = None

    @contextmanager
    def _own(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise RuntimeError("a model is not used in a forked process: two would draw and write for one another")
        with self._lock:
            yield

    def __repr__(self) -> str:
        return f"Randomized({self.model!r}, {len(self.labels)} labels, {self.guarantee})"

    def __reduce__(self) -> Any:
        raise TypeError("a model is not copied or pickled, since two of it would draw twice: use save() and load()")


def labels_alone(folder: Path) -> bool:
    """Whether a folder holds a state of this promise."""
    return (folder / _STATE).is_file()


def _journal(generation: int) -> str:
    return f"labels-{generation}.journal"
