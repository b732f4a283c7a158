"""Labels alone, as a part in a run: a label is randomized as it comes in, and one model is taught what came out.

The true label ends in `Randomizing.receive`: the loop, the journal, the ledger, snapshots and counts have what came out
and nothing else. That is noted in the same entry as the cap it used, and no answer that it changed leaves before that
entry is on the disk (docs/proofs/people.md, "The journal"). Everything after the draw is a function of rows, times and
outputs, and may be shown. Where no owner keeps a journal the part notes its outputs itself, and each is on the disk
before it is taught. Proof page: docs/proofs/labels.md.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Floats, Ints
from confide.banks.base import Failures
from confide.contained import contained
from confide.errors import ConfideWarning, StateError
from confide.labels.base import Taught
from confide.labels.default import Default
from confide.labels.models import model_for
from confide.labels.writing import UNWRITTEN, as_text, row_of, written
from confide.learners import Encoder, Pipeline
from confide.planning.labels import RandomizedLabels
from confide.pop.account import Account
from confide.pop.running import Asked, PastCap, Running, Who
from confide.pop.several import tried
from confide.pop.tickets import Waiting
from confide.privacy.random import Random

__all__ = ["NO_HISTORY", "Randomizing", "Seen", "read_by", "takes_rows"]

NO_HISTORY = "a record has no deadline, and labels of this model have one: ask it, or begin a model without a deadline"
"""What is said to who teaches a record: it would be taught at once, and past its person's cap."""

_NOBODY = bytes(16)
"""A note begins with whose it is: outputs stay when a person is forgotten."""


@dataclass(slots=True, repr=False)
class Seen:
    """A question as the model read it."""

    row: Any
    number: int
    """Its round."""
    past: bool = False
    """Whether its label will not be taken: with a deadline a person's first questions take their cap, whenever labels
    come, so that which are taught does not depend on that."""
    stands: int = -1
    """With a deadline, what came out for the declared label: it stands for one that does not come."""
    shares: Floats | None = None
    """The probability of every label when it was asked, where the model tells any: public."""


class Held(NamedTuple):
    """What came out, until its deadline."""

    row: Any
    out: int
    who: Who
    noted: bool
    """Whether an owner's journal has it: one that is taken over from a process without a journal is in none."""

    def __repr__(self) -> str:
        return "Held(…)"


class Randomizing(Running, runs=RandomizedLabels):
    """One model and the response in front of it.

    Parameters
    ----------
    part
        The integers that are drawn with.
    features
        What x is. Our own model reads by it; another learner gets what it encodes, unless it takes rows as they are.
    rng
        The generator of the response: one word a label, which is used for nothing else.
    account
        Where each person's labels are counted.
    """

    source = "model"
    notes = unfailing = True

    def __init__(
        self, part: RandomizedLabels, features: Any, label_weights: Any, rng: Random, account: Account
    ) -> None:
        super().__init__(part, features, label_weights, rng, account)
        self._features = features
        self._encoder: Encoder | None = None
        self.model: Taught = Default(None, part.response)
        self.outputs = np.zeros(part.labels, dtype=np.int64)
        """How often each label came out: public."""
        self.over = 0
        """Labels past their person's cap, which were not drawn for: for the operator."""
        self._kept = False  # whether an owner's journal has what comes out
        self._at = self._heard = self._closed = 0
        self._before = Failures()  # in earlier lives: a snapshot's header has these
        self._held: dict[int, Held] = {}  # by round
        self._read_now: tuple[Any, Any] | None = None  # rows of the call under way, as given and as they were read

    def given(self, learner: Any, labels: Sequence[Hashable], records: bool = False) -> None:
        """Make the model: ours, or one of the learner's kind that has learned nothing."""
        self._encoder, own = read_by(learner, self._features)
        self.model = model_for(learner, labels, self.part.response, own)

    def journaled(self) -> None:
        """From now on an owner's journal has what comes out, and fits run beside the answers.

        What waits for its deadline already waits on.
        """
        self._kept = self.model.beside = True

    @property
    def failures(self) -> Failures:
        """How often an own model failed since it was made or loaded: made of rows and outputs, and so public."""
        return self._failures.less(self._before)

    @property
    def _failures(self) -> Failures:
        return getattr(self.model, "failures", Failures())

    @property
    def learned(self) -> int:
        """How many outputs were taught so far (public)."""
        return int(self.outputs.sum())

    @property
    def frequencies(self) -> Floats:
        """The shares of true labels so far, unbiased: from what came out, by the known law (public)."""
        many = self.part.labels
        return self.part.response.frequencies(self.outputs) if self.outputs.any() else np.full(many, 1.0 / many)

    def probabilities(self, x: Any) -> Floats:
        """How likely each label is, the channel undone; ValueError where the model does not say."""
        shares = self.model.answer(self._read(x))[1]
        if shares is None:
            raise ValueError("this model gives labels only: take one that tells probabilities, or none")
        return shares

    def wrongs(self, labels: int, differed: int) -> float | None:
        """How many of so many answers are wrong, where so many differ from what came out: an estimate that can be.

        None while the estimate's standard error may be as large as all of them.
        """
        response = self.part.response
        variance = max(share * (1.0 - share) for share in (response.truth, response.lie)) / response.advantage**2
        if labels <= variance:
            return None
        found = (differed - (1.0 - response.truth) * labels) / response.advantage
        return float(min(labels, max(0.0, found)))

    # ------------------------------------------------------------------ one round

    def go_to(self, rounds: int) -> None:
        """So many rounds are over, and a call begins."""
        self._at, self._read_now = max(self._at, rounds), None

    def begin(self) -> None:
        """A public round begins: what is due is taught first."""
        self._at += 1
        self._settle()

    def _settle(self) -> None:
        """Teach what has reached its deadline, in the order of questions."""
        if self._held:
            due = sorted(n for n in self._held if n + self.part.deadline <= self._at)
            lessons = [self._held.pop(number) for number in due]
            self._write([one[:2] for one in lessons if not one.noted])
            for row, out, *_ in lessons:
                self._learn(row, out)

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget the labels of these rounds that wait for their deadline, whether or not they came."""
        for number in numbers:
            self._held.pop(number, None)

    def forget(self, who: bytes) -> None:
        """Drop what waits for the deadline of this person's questions; what was taught stays."""
        self.drop([number for number, one in self._held.items() if one.who == who])

    def _read(self, x: Any) -> Any:
        row = self.model.read(x if self._encoder is None else self._encoder.encode(x))
        if self._writes:
            as_text(written(row))  # refused to its asker, before anybody has its label
        return row

    @property
    def _writes(self) -> bool:
        return self._account.book is not None and not self._kept

    def encode(self, x: Any, who: Who) -> Seen:
        """x as the model reads it. With a deadline the declared label is drawn for now, whether or not one comes."""
        row = self._read(x)
        if self.part.deadline is None:
            return Seen(row, self._at)
        past = not self._account.learns(who)
        self.over += past
        out = int(self.part.response.draw(self.part.missing, self.rng.fresh_word()))
        if not past:
            self._held[self._at] = Held(row, out, who, self._kept)
        return Seen(row, self._at, past, out)

    def check(self, x: Any) -> None:
        """ValueError for an x that the model cannot read."""
        self._read(x)

    def unreadable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that it cannot read."""
        some: Iterable[int] = range(len(xs))
        if not self._writes and self._encoder is None:
            self._read_now = xs, self.model.read_many(xs)
            some = np.flatnonzero(self._read_now[1].refused).tolist()
        found = ((i, tried(self._read, xs[i])[1]) for i in some)
        return {i: str(error) for i, error in found if error is not None}

    def propose(self, question: Seen | None) -> tuple[int, Floats | None]:
        """The model's label; where it has none, or fails, the most frequent one stands in; −1 before the first."""
        if question is None:
            return -1, None
        return self._said(question, *self.model.answer(question.row)), None

    def _said(self, question: Seen, label: int, shares: Floats | None) -> int:
        question.shares = shares
        return label if label >= 0 else self._leader

    @property
    def in_vain(self) -> str:
        """What an own model has failed to do at all, in words; empty where it has not (public)."""
        return str(getattr(self.model, "in_vain", ""))

    @property
    def _leader(self) -> int:
        """The label that came out most often, as `propose` says one that is not the model's own."""
        return -2 - int(self.outputs.argmax()) if self.outputs.any() else -1

    def receive(self, label: int, who: Who) -> int:
        """Randomize a label: with `receive_rows` the one place that sees it.

        `PastCap` past its person's cap: nothing is drawn for it.
        """
        if label < 0:
            return -1
        if not self._takes(who):
            raise PastCap(self._past)
        return int(self.part.response.draw(label, self.rng.fresh_word()))

    def receive_rows(self, labels: Ints, whos: Sequence[Who]) -> tuple[Ints, dict[int, ValueError]]:
        """The same of many, with the same words: all caps are taken, then all words are drawn."""
        if type(self).receive is not Randomizing.receive:  # a double's
            return super().receive_rows(labels, whos)
        came = labels >= 0
        past = [i for i in np.flatnonzero(came).tolist() if not self._takes(whos[i])]
        came[past] = False
        outs = np.full(len(labels), -1)
        outs[came] = self.part.response.draw_many(labels[came], self.rng.fresh_words(int(came.sum())))
        return outs, {i: PastCap(self._past) for i in past}

    def _takes(self, who: Who) -> bool:
        """Whether one more label of a person is taken, which counts it; with a deadline that was settled before."""
        takes = self.part.deadline is not None or self._account.learns(who)
        self.over += not takes
        return takes

    @property
    def _past(self) -> str:
        return f"of each person {self.part.unit_labels:,} labels are taken, for life: this one was not"

    def teach(self, question: Seen | None, label: int, who: Who) -> int:
        """Teach what came out, or hold it until its deadline; the number by which a journal finds it again."""
        if question is None or question.past or label < 0:
            return -1
        if self.part.deadline is None:
            self._heard += 1
            self._teach([(question.row, label)])
            return self._heard - 1
        if question.number not in self._held:
            return -1  # it was due, and what stood for it was taught
        self._held[question.number] = Held(question.row, label, who, self._kept)
        return question.number

    def _teach(self, lessons: Sequence[tuple[Any, int]]) -> None:
        """Teach what came out, once it is written down."""
        if not self._kept:
            self._write(lessons)
        for row, out in lessons:
            self._learn(row, out)

    def _write(self, lessons: Sequence[tuple[Any, int]]) -> None:
        """Note rows and outputs, on the disk when this returns, with the caps and the tickets that they used."""
        book = self._account.book
        if book is not None and lessons:
            body = _NOBODY + as_text([[out, written(row)] for row, out in lessons])
            book.wait(self._account.enter(notes=((self.note, len(body), body),)).sequence)

    def noted_since(self, body: bytes) -> None:
        """What came out since the snapshot, from a note: it is taught as it was, and never drawn again."""
        for out, row in json.loads(body[len(_NOBODY) :]):
            self._heard += 1
            self._learn(row_of(row), out)

    def _learn(self, row: Any, out: int) -> None:
        self.outputs[out] += 1
        self.model.teach(row, out)

    def missed(self, number: int) -> bool:
        """Never: a ticket that is good teaches."""
        return False

    def missed_many(self, numbers: Sequence[int]) -> list[bool]:
        """`missed` of each."""
        return [False] * len(numbers)

    def seen(self, waiting: Waiting | None) -> Seen | None:
        """A question that was asked now, as the model read it; None for one that it could not read."""
        return waiting.questions[0] if waiting is not None and waiting.questions else None

    def told(self, waiting: Waiting | None) -> tuple[float, ...] | None:
        """The probabilities that belong to an answer; None where the model tells none."""
        asked = self.seen(waiting)
        return None if asked is None or asked.shares is None else tuple(asked.shares.tolist())

    # ------------------------------------------------------------------ many rounds

    def follow(self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Flags, keep: bool = False) -> Asked:
        """Rounds, each asked and then taught what came out for its label, as the methods above do, and faster."""
        if keep and self.part.deadline is None and (labels < 0).all():
            return self._ask(xs, whos, bad)
        if keep or self.part.deadline is not None or not len(labels):
            return super().follow(xs, labels, whos, bad, keep)
        self._at += len(labels)
        known, self._read_now = self._read_now, None
        if known is not None and known[0] is xs:
            rows = known[1]
        else:
            rows = self.model.read_many(xs if self._encoder is None else self._encoded(xs, bad))
        outs = np.where(bad | rows.refused, -1, labels)
        if self._writes:  # whatever could not be written is among the bad
            self._write([(self._read(xs[i]), int(outs[i])) for i in np.flatnonzero(outs >= 0).tolist()])
        before = self.outputs.copy()
        np.add.at(self.outputs, outs[outs >= 0], 1)
        answers = self.model.follow(rows, outs)
        asked = np.flatnonzero(~bad & (answers < 0))
        answers[asked] = _leaders(before, outs, asked)
        self._heard += int((outs >= 0).sum())
        return Asked(np.where(bad, -1, answers), None, [])

    def _ask(self, xs: Any, whos: Sequence[Who], bad: Flags) -> Asked:
        """Rounds between which nothing is taught: the model is asked about all of them at once."""
        rows, answers = list[Seen | None](), np.full(len(bad), -1)
        for i, wrong in enumerate(bad.tolist()):
            self.begin()
            rows.append(None if wrong else self.encode(xs[i], whos[i]))
        asked = [(i, question) for i, question in enumerate(rows) if question is not None]
        said = self.model.answer_many([question.row for _, question in asked])
        for (i, question), one in zip(asked, said, strict=True):
            answers[i] = self._said(question, *one)
        return Asked(answers, None, rows)

    def _encoded(self, xs: Any, bad: Flags) -> list[Any]:
        assert self._encoder is not None
        return [None if wrong else self._encoder.encode(x) for x, wrong in zip(xs, bad.tolist(), strict=True)]

    # ------------------------------------------------------------------ records that were never asked

    def teaching(self) -> None:
        """Refused where labels have a deadline: which questions take a person's cap is settled when they are asked."""
        if self.part.deadline is not None:
            raise ValueError(NO_HISTORY)

    def teach_one(self, x: Any, label: int, who: Who) -> int:
        """One record, whose label was received."""
        return int(self.teach_rows([x], np.array([label]), [who])[0])

    def teach_rows(self, xs: Any, labels: Ints, whos: Sequence[Who]) -> Ints:
        """Many of them, all written down before the first is taught; −1 for one that was refused."""
        came, lessons = labels >= 0, list[tuple[Any, int]]()
        for i in np.flatnonzero(came).tolist():
            with contained:  # it was read before
                lessons.append((self._read(xs[i]), int(labels[i])))
        numbers = np.where(came, self._heard + np.cumsum(came) - 1, -1)
        self._heard += int(came.sum())
        self._teach(lessons)
        return numbers

    # ------------------------------------------------------------------ state

    @property
    def closed(self) -> int:
        """The number from which on a journal has what the last snapshot has not (public)."""
        return self._closed

    @property
    def leaf(self) -> int:
        """The last number that a journal can have (public)."""
        return self._heard - 1 if self.part.deadline is None else self._at

    def read_as_of(self, x: Any, number: int) -> Seen | None:
        """x as it was read when it was asked."""
        with contained:  # it was refused already
            return Seen(self._read(x), number)
        return None

    def again(self, x: Any, label: int, number: int) -> None:
        """What came out since the snapshot, from the journal: it is taught as it was, and never drawn again.

        With a deadline that is first what stands for a label, then what takes its place.
        """
        if label < 0:
            return
        if self.part.deadline is None:
            self.teach_one(x, label, None)
        elif (question := self.read_as_of(x, number)) is not None:
            self._held[number] = Held(question.row, label, None, True)

    def noted(self) -> None:
        """All of the journal was given again: what was due is taught."""
        self._settle()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The model, how far it has heard, and what waits for its deadline and is in no owner's journal."""
        self._settle()
        self._keep_writable()
        own = [(number, one) for number, one in self._held.items() if not one.noted]
        held = [[number, one.out, one.who and one.who.hex(), written(one.row)] for number, one in own]
        deadline = self.part.deadline
        self._closed = self._heard if deadline is None else max(0, self._at - deadline + 1)
        return {
            "numbers": np.array([self._heard, self._closed, self.over], dtype=np.int64),
            "outputs": self.outputs,
            "held": np.frombuffer(as_text(held), dtype=np.uint8),
            "model": np.array(_named(self.model)),
            **{f"learner/{name}": value for name, value in self.model.state().items()},
        }

    def _keep_writable(self) -> None:
        """Drop what waits and cannot be written, or a later entry could not be: rows decide that, who saves is told."""
        bad = [number for number, one in self._held.items() if tried(as_text, written(one.row))[1] is not None]
        self.drop(bad)
        if bad:
            words = f"{len(bad):,} questions that wait for their deadline teach nothing: {UNWRITTEN}"
            warnings.warn(words, ConfideWarning, stacklevel=6)

    def restore(self, arrays: Mapping[str, NDArray[Any]], trusted: bool) -> None:
        """Go on from a snapshot; refused for another model, and for a pickle that nobody vouches for."""
        if str(arrays["model"]) != _named(self.model):
            raise StateError("this state was made with another model: give the same learner again")
        held = {name.removeprefix("learner/"): a for name, a in arrays.items() if name.startswith("learner/")}
        if "pickle" in held and not trusted:
            raise StateError("loading a pickle runs what is in it: say trusted if nobody else can write this folder")
        self._heard, self._closed, self.over = (int(n) for n in arrays["numbers"])
        self.outputs = arrays["outputs"].astype(np.int64)
        self.model.restore(held)
        self._before = self._failures
        for number, out, who, row in json.loads(arrays["held"].tobytes()) if "held" in arrays else ():
            if number + self.part.deadline > self._at:  # what was due by the ledger's rounds was taught, and noted
                self._held[number] = Held(row_of(row), out, who and bytes.fromhex(who), False)

    def pack(self, question: Seen) -> tuple[Any, dict[str, NDArray[Any]]]:
        """Its round, and the row as it was read; `Unwritable` for a row that cannot be written."""
        as_text(row := written(question.row))
        return [question.number, row], {}

    def unpack(self, about: Any, arrays: Mapping[str, NDArray[Any]]) -> Seen:
        """The same question."""
        return Seen(row_of(about[1]), about[0])

    def rehearse(self) -> None:
        """Compile what rounds need, with a model that is thrown away."""
        if isinstance(self.model, Default):
            with contained:
                fresh, features = Default(self._features, self.part.response), self._features
                row = fresh.read([0.0] * features if isinstance(features, int) else {})
                fresh.answer(row)
                fresh.teach(row, 0)


def _leaders(counts: Ints, outs: Ints, asked: Ints) -> Ints:
    """`Randomizing._leader` before each of these rows, counted on by what came out; −1 where nothing did."""
    found, at = np.full(asked.size, -1), 0
    for k, i in enumerate(asked.tolist()):
        some = outs[at:i]
        np.add.at(counts, some[some >= 0], 1)
        found[k], at = -2 - counts.argmax() if counts.any() else -1, i
    return found


def _named(model: Taught) -> str:
    """What kind of model it is: a state of another kind is refused."""
    return "ours" if isinstance(model, Default) else repr(model)


def read_by(learner: Any, features: Any) -> tuple[Encoder | None, Any]:
    """What encodes rows before a model is given them, if anything does; and the features that it reads by itself."""
    if learner is None:
        return None, features
    encodes = isinstance(features, Encoder) and not takes_rows(learner)
    return features if encodes else None, features if isinstance(features, int) else None


def takes_rows(learner: Any) -> bool:
    """Whether a learner takes rows as they are asked: River's, a pipeline of scikit-learn, or features in front."""
    return isinstance(learner, Pipeline) or hasattr(learner, "predict_one") or hasattr(learner, "steps")
