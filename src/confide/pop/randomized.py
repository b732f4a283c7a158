"""Labels alone: one model of any kind, taught labels that were randomized as they came.

A label is given to the response once, when it comes, and the true one is kept nowhere: not in a ticket, a journal, a
message or a weight. What came out is written down before it is taught. Everything later is a function of rows, times
and outputs, so answers, probabilities and the model itself may be shown. Rows are not protected, and neither is whether
and when a label came, unless a deadline is declared. Proof page: docs/proofs/labels.md.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
from confide.labels.journal import Entry, check_writable
from confide.labels.models import model_for
from confide.planning.labels import LabelGuarantee
from confide.pop.base import FALLBACK, GUIDE, TICKET_LIFE, Answer, Followed, Unit, Xs
from confide.pop.label_folder import ROLLED_BACK, LabelFolder, labels_alone
from confide.pop.routing import Routing
from confide.pop.tickets import Tickets, Waiting
from confide.privacy.random import Random
from confide.privacy.response import Response, each, together

__all__ = ["Randomized", "Told"]

Ints = NDArray[np.int64]
Key = tuple[int, int]
_UNKNOWN = "the label must be one of those that were declared; it was not taken, and may be brought again"
_AHEAD = 1024
"""So many rounds are written down as asked, before the first of them is."""


@dataclass(slots=True, repr=False)
class Unlabelled(Waiting):
    """A question that waits for its label."""

    out: int = -1
    """What came out for its label, or until that comes for the one that stands for a missing one; −1 for none."""
    allowed: bool = False
    """Whether its place under the person's cap is taken."""


class _Known(Tickets):
    """Tickets of a model whose lives are known: one of another life, or of a later round, was given out by a copy of
    the folder, or before it was rolled back."""

    def __init__(self, key: bytes, life: int, lives: dict[int, int], rolled_back: Callable[[], None]) -> None:
        super().__init__(key, life)
        self.known, self._rolled_back = lives, rolled_back

    def take(self, key: Key, now: int) -> Waiting:
        if key[1] > self.known.get(key[0], -1):
            self._rolled_back()
        return super().take(key, now)


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
        self._insecure = seed is not None
        self._routing = Routing(units, 1, self._rng)
        life = integer(ticket_life, "ticket_life", at_least=1)
        self._tickets = self._begun({}, life if self.deadline is None else self.deadline)
        self._taken: dict[bytes, int] = {}
        self._counts = np.zeros(len(self.labels), dtype=np.int64)
        self._pending: OrderedDict[Key, Unlabelled] = OrderedDict()
        self._folder: LabelFolder | None = None
        self._rolled = False
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self.rounds = 0
        self.records = 0
        self.past_cap = 0
        """Labels, or with a deadline questions, of people whose cap was reached: for the operator, and not private."""

    def _begun(self, lives: dict[int, int], ticket_life: int) -> _Known:
        """A new life: by its number, which is random, its tickets are told from those of all others."""
        tickets = _Known(self._routing.ticket_key, ticket_life, lives, self._roll_back)
        tickets.epoch = self._rng.word() >> 1
        lives.setdefault(tickets.epoch, 0)
        return tickets

    # ------------------------------------------------------------------ what is public

    @property
    def guarantee(self) -> LabelGuarantee:
        """What is promised to each unit: from the integers that are drawn with."""
        promised = together(self.response.cost(), self._cap)
        cap = self._cap if self.units == "people" else None
        return LabelGuarantee(promised, 0.0, 1, not self._insecure, cap, self.units, deadline=self.deadline)

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
                row = self._read(x)
            except ValueError as error:
                failed = str(error)
            if failed:
                self._tickets.issue(number, None)
                raise ValueError(failed)
            answer, shares = self.model.answer(row)
            asked = Unlabelled(-1, None, answer, False, who, (row,))
            if self.deadline is not None:
                asked.out = self._draw(cast(int, self._missing), self._rng.fresh_word())
                self._pending[self._tickets.epoch, number] = asked
            return self._told(answer, shares, self._tickets.issue(number, asked))

    def _read(self, x: Any) -> Any:
        """The row that x is; where outputs are written down, one that can be written beside them."""
        row = self.model.read(x)
        if self._folder is not None:
            check_writable(row)
        return row

    def _told(self, answer: int, shares: NDArray[np.float64] | None, ticket: str) -> Told:
        known = answer >= 0
        label = self.labels[answer if known else int(self._counts.argmax())]
        source: Literal["guide", "fallback"] = "guide" if known else "fallback"
        said = None if shares is None else dict(zip(self.labels, shares.tolist(), strict=True))
        return Told(label, False, ticket, None, source, label if known else None, said)

    def _begin(self, rounds: int = 1) -> None:
        """Public rounds begin: what is due is taught first."""
        self._ahead(self.rounds + rounds)
        self.rounds += rounds
        self._tickets.expire(self.rounds)
        while self._pending and (key := next(iter(self._pending)))[1] <= self.rounds - cast(int, self.deadline):
            self._settle(key, self._pending[key])
            self._pending.pop(key, None)

    def _ahead(self, number: int) -> None:
        """Write down that these rounds may have been asked, so that their tickets are known after a load."""
        life = self._tickets.epoch
        if self._folder is not None and number > self._tickets.known[life]:
            upto = number + _AHEAD
            self._folder.add([Entry((life, upto), -1, None, None)])
            self._tickets.known[life] = upto
        elif self._folder is None:
            self._tickets.known[life] = number

    def _settle(self, key: Key, asked: Unlabelled) -> None:
        """The deadline of a question: what came out for its label, or for the declared one, is taught now."""
        if self._allow(asked):
            self._write([Entry(key, asked.out, asked.who, asked.questions[0])])
            self._pending.pop(key, None)
            self._teach(asked.questions[0], asked.out)

    # ------------------------------------------------------------------ labels

    def learn(self, ticket: str, y: Hashable) -> None:
        """Randomize the label of an answered round, and teach what came out. A ticket is good once."""
        with self._own():
            number = self._number(y)
            key, waiting = self._tickets.redeem(ticket, self.rounds)
            asked = cast(Unlabelled, waiting)
            if self.deadline is None:
                self._learn(key, asked, number)
            else:  # it waits for its deadline, in the place of what stood for a missing one
                asked.out = self._draw(number, self._rng.fresh_word())

    def _learn(self, key: Key, asked: Unlabelled, number: int) -> None:
        """Nothing is drawn twice, and no cap is passed, wherever this is cut off."""
        if not self._allow(asked):
            raise ValueError(self._past)
        if asked.out < 0:
            asked.out = self._draw(number, self._rng.fresh_word())
        try:
            self._write([Entry(key, asked.out, asked.who, asked.questions[0])])
        except BaseException:
            self._tickets.restore(key, asked)  # the same output is written when it is brought again
            raise
        self._teach(asked.questions[0], asked.out)

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> None:
        """Randomize and teach the label of a record that was never asked: each call is one label."""
        with self._own():
            who, number, row = self._routing.who(unit), self._number(y), self._read(x)
            if not self._allow(Unlabelled(-1, None, -1, False, who)):
                raise ValueError(self._past)
            self.records += 1
            out = self._draw(number, self._rng.fresh_word())
            self._write([Entry((-1, self.records), out, who, row)])
            self._teach(row, out)

    def _number(self, y: Hashable) -> int:
        with contained:  # whatever y does when it is looked up
            return self._numbers[y]
        raise ValueError(_UNKNOWN)

    def _draw(self, number: int, word: int) -> int:
        """The one place where a label is randomized: by one word, which is used for nothing else."""
        return self.response.draw(number, word)

    def _allow(self, asked: Unlabelled) -> bool:
        """Take its place under the person's cap, once, and before anything is drawn or written; False past the cap."""
        if asked.allowed or asked.who is None:
            return True
        used = self._taken.get(asked.who, 0)
        if used >= self._cap:
            self.past_cap += 1
            return False
        self._taken[asked.who], asked.allowed = used + 1, True
        return True

    @property
    def _past(self) -> str:
        return f"of each person {self._cap:,} labels are taken, for life: this one was not taken"

    def _write(self, entries: Sequence[Entry]) -> None:
        """Write down what came out."""
        if self._folder is not None and entries:
            self._folder.add(entries)

    def _teach(self, row: Any, out: int) -> None:
        """Count and teach what was written down."""
        self._counts[out] += 1
        self.model.teach(row, out)

    def forget(self, unit: Unit) -> None:
        """Drop a person's open questions. What was randomized stays, and so does what their labels have used."""
        with self._own():
            who = cast(bytes, self._routing.who(unit))
            self._tickets.drop(who)
            for key in [key for key, asked in self._pending.items() if asked.who == who]:
                del self._pending[key]

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
            except BaseException as error:
                error.add_note(f"cut off in row {i}, which may be taken, as those before it are: go on with the next")
                raise
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
        xs, ys = rows_of(xs, True), np.asarray(ys)
        ids = self._ids(units, len(xs))
        whole = not ys.size or ys.dtype.kind in "iu"  # half a label is none
        if ys.ndim != 1 or len(ys) != len(xs) or not whole or not ((ys >= -1) & (ys < len(self.labels))).all():
            raise ValueError(f"give one number from 0 to {len(self.labels) - 1} for each row, or −1 for no label")
        if self.deadline is not None:
            return self._one_by_one(xs, ys, ids)
        with self._own():
            who = [self._routing.who(unit) for unit in ids]
            rows = self.model.read_many(xs)
            kept = self._kept(xs, rows.refused)
            first = self.rounds + 1
            self._begin(len(ys))
            for number in range(first, self.rounds + 1):
                self._tickets.issue(number, None)
            taken = self._allowed(ys >= 0, rows.refused, who)
            outs = np.full(len(ys), -1)
            outs[taken] = self.response.draw_many(ys[taken], self._rng.fresh_words(int(taken.sum())))
            life, came = self._tickets.epoch, np.flatnonzero(taken).tolist()
            self._write([Entry((life, first + i), int(outs[i]), who[i], kept[i]) for i in came if kept])
            fallback = self._leaders(outs)
            self._counts += np.bincount(outs[taken], minlength=len(self.labels))
            answers = self.model.follow(rows, outs)
            known = answers >= 0
            source = np.where(rows.refused, -1, np.where(known, GUIDE, FALLBACK)).astype(np.int8)
            shown = np.where(rows.refused, -1, np.where(known, answers, fallback))
            none = np.full(len(ys), -1)
            return Followed(shown, np.zeros(len(ys), dtype=np.bool_), none, source, np.where(known, answers, -1))

    def _kept(self, xs: Any, refused: NDArray[np.bool_]) -> list[Any]:
        """The rows as they are written down, where they are; one that cannot be is refused."""
        kept: list[Any] = []
        for i, x in enumerate(xs if self._folder is not None else ()):
            try:
                kept.append(None if refused[i] else self._read(x))
            except ValueError:
                kept.append(None)
                refused[i] = True
        return kept

    def _allowed(self, comes: NDArray[np.bool_], refused: NDArray[np.bool_], who: Sequence[bytes | None]) -> Any:
        """Which labels are taken: those of rows that were read, up to each person's cap, which they have used then."""
        taken = comes & ~refused
        used: dict[bytes, int] = {}
        for i in np.flatnonzero(taken).tolist() if self.units == "people" else ():
            one = cast(bytes, who[i])
            before = used.get(one, self._taken.get(one, 0))
            taken[i] = before < self._cap
            used[one] = before + int(taken[i])
        self.past_cap += int((comes & ~refused & ~taken).sum())
        self._taken.update(used)
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
            folder, arrays = Path(path), self._arrays(trusted)
            if self._folder is None:
                if labels_alone(folder):
                    raise StateError(f"{folder} holds another model's state: save to a folder of its own, or load it")
                self._drop_unwritable()
                self._folder = LabelFolder(folder)
            elif self._folder.path.resolve() != folder.resolve():
                raise StateError("this model is kept in another folder: close it, and load it from there")
            self._folder.save(self._routing.secret, arrays)

    def _drop_unwritable(self) -> None:
        """Questions from before the first save whose rows cannot be written down: their tickets are good no more."""
        for key, asked in [*self._tickets, *self._pending.items()]:
            try:
                check_writable(asked.questions[0])
            except ValueError:
                self._tickets.discard(key)
                self._pending.pop(key, None)

    def _arrays(self, trusted: bool) -> dict[str, NDArray[Any]]:
        state = self.model.state()
        if "pickle" in state and not trusted:
            raise StateError(
                "this model can only be pickled, and loading a pickle runs what is in it: pass trusted=True if nobody "
                "else can write this folder"
            )
        who, lives = sorted(self._taken), self._tickets.known
        numbers = [self.rounds, self.records, self.past_cap, int(self._insecure), *self._promise()]
        return {
            **{f"learner/{name}": value for name, value in state.items()},
            "protects": np.array("labels"),
            "numbers": np.array(numbers, dtype=np.uint64),
            "lives": np.array(list(lives.items()), dtype=np.int64),
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
        kept = LabelFolder(folder)
        try:
            made._resume(kept, trusted)
        except BaseException:
            kept.close()
            raise
        return made

    def _resume(self, folder: LabelFolder, trusted: bool) -> None:
        secret, arrays, entries = folder.load()
        try:
            self.rounds, self.records, self.past_cap, insecure, *promise = (int(n) for n in arrays["numbers"])
            lives = {int(life): int(upto) for life, upto in arrays["lives"]}
        except (KeyError, ValueError):
            raise StateError(f"{folder.path} is damaged: take it from a backup") from None
        if tuple(promise) != self._promise():
            raise StateError(
                "this state has another promise, other labels or people: load it with those that it was made with"
            )
        if "learner/pickle" in arrays and not trusted:
            raise StateError("loading a pickle runs what is in it: pass trusted=True if nobody else wrote it")
        self._insecure |= bool(insecure)
        self._counts = arrays["counts"].astype(np.int64)
        self._routing = Routing(self.units, 1, self._rng, secret)
        names = arrays["who"].tobytes()
        people = [names[i : i + 16] for i in range(0, len(names), 16)]
        self._taken = dict(zip(people, arrays["taken"].tolist(), strict=True))
        mine = {name.removeprefix("learner/"): value for name, value in arrays.items() if name.startswith("learner/")}
        self.model.restore(mine)
        for entry in entries:
            self._replay(entry, lives)
        self._tickets = self._begun(lives, self._tickets.life)  # tickets of this life are no other life's
        folder.save(secret, self._arrays(trusted))
        self._folder = folder

    def _replay(self, entry: Entry, lives: dict[int, int]) -> None:
        """What was written down is taught as it came out, and counts for its person's cap."""
        life, number = entry.key
        if entry.out < 0:
            lives[life] = max(number, lives.get(life, 0))
            return
        if entry.who is not None:
            self._taken[entry.who] = self._taken.get(entry.who, 0) + 1
        self._teach(entry.row, entry.out)
        self.records = max(self.records, number) if life < 0 else self.records
        self.rounds = max(self.rounds, number) if life >= 0 else self.rounds

    def _roll_back(self) -> None:
        """A ticket came that its folder does not know: nobody is answered any more."""
        self._rolled = True
        if self._folder is not None:
            self._folder.seal()
        raise StateError(ROLLED_BACK)

    def close(self) -> None:
        """Give the folder back; another process may load it then, and this model takes no label any more."""
        with self._lock:
            if self._folder is not None:
                self._folder.close()

    @contextmanager
    def _own(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise RuntimeError("a model is not used in a forked process: two would draw and write for one another")
        with self._lock:
            if self._rolled:
                raise StateError(ROLLED_BACK)
            yield

    def __repr__(self) -> str:
        return f"Randomized({self.model!r}, {len(self.labels)} labels, {self.guarantee})"

    def __reduce__(self) -> Any:
        raise TypeError("a model is not copied or pickled, since two of it would draw twice: use save() and load()")
