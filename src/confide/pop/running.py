"""Parts in a run: what one part does in a round, with a label, after a crash; and several of them as one.

A part runs by what was released and by public rounds: what it proposes everybody may compute. Whatever it releases is
durable first, under the part's own name. The loop, batches, journal and states talk to `Parts`, and never ask which
parts there are. What a part owes: docs/proofs/parts.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from confide.banks.base import FORM, Failures
from confide.contained import by_signal
from confide.errors import StateError
from confide.ledger.book import Book
from confide.ledger.ledger import Spent
from confide.planning.parts import Part
from confide.planning.plan import Plan
from confide.pop.account import Account
from confide.pop.base import source_number
from confide.privacy.random import Random

__all__ = [
    "Again", "Asked", "Counted", "Parts", "PastCap", "Proposed", "Released", "Running", "check_parts", "released_of",
    "run_of", "tried",
]  # fmt: skip

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Who = bytes | None
Counted = tuple[Any, Who]
"""A row that was counted, and whose it is."""
Released = tuple[str, int, bytes, bytes]
"""(kind, number, noisy row, exact sums) of a release."""

_MOST_STAMP = 2**31 - 1

_runs: dict[type[Part], type[Running]] = {}

R = TypeVar("R", bound="Running")


class Asked(NamedTuple):
    """What a part says to many rows."""

    answers: Ints
    """Its own label for each row; −1 where it has none."""
    scores: Floats | None
    """Log-odds by row, as `propose` has them; zeros where there is no answer; None where it never has any."""
    rows: Sequence[Any]
    """The questions as tickets hold them, if they were asked for."""


class Said(NamedTuple):
    """What public parts say to one row, as one."""

    label: int
    """Of the first part that proposes one; −1 where none does."""
    source: int
    """The number of that part's source; −1 for none."""
    scores: Floats | None
    """The first scores that one of them has."""
    lessons: tuple[Any, ...]
    """What tickets hold, a part each."""
    error: BaseException | None
    """What is wrong with x."""


class Proposed(NamedTuple):
    """What public parts say to many rows, as one."""

    answers: Ints
    sources: NDArray[np.int8]
    scores: Floats | None
    rows: list[tuple[Any, ...]]


class Again(NamedTuple):
    """A part, computed again from what a ledger has."""

    released: int
    """How often it was released."""
    digest: str
    """Of what it answers by; empty where there is nothing yet."""
    compared: bool
    """Whether it was compared with what a snapshot says was in use; not where the sums of then were dropped since."""


class PastCap(ValueError):
    """A label past its person's cap: nothing is drawn for it, and it teaches nothing."""


class Running:
    """One part in a run. What a subclass leaves out does nothing: it never proposes, learns or releases.

    `class Counting(Running, runs=Count)` makes every plan with the part `Count` run with it.

    Parameters
    ----------
    part
        Its numbers.
    features, label_weights
        What the POP was given.
    rng
        The generator of its noise: its own.
    account
        Where caps are kept, and what is released is written down.
    """

    source: ClassVar[str] = ""
    """What `Answer.source` says where it answers; empty where it never proposes."""
    notes: ClassVar[bool] = False
    """Whether it notes what it learns by itself, where no owner keeps a journal."""

    def __init_subclass__(cls, runs: type[Part] | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if runs is not None:
            _runs[runs] = cls

    def __init__(self, part: Any, features: Any, label_weights: Any, rng: Random, account: Account) -> None:
        self.part: Any = part
        self.rng, self._account = rng, account
        self.number = source_number(self.source) if self.source else -1
        self.note = f"part/{part.kind}"
        """The kind of its notes in a journal."""
        self._offered: dict[str, tuple[int, bytes]] = {}  # by kind, the last release that was given to a ledger

    def given(self, learner: Any, labels: Sequence[Hashable], records: bool = False) -> None:
        """What else the POP was given: for a part that teaches a learner itself; and whether labels come as records."""

    def journaled(self) -> None:
        """From now on an owner's journal has every question and every label."""

    # ------------------------------------------------------------------ one round

    def go_to(self, rounds: int) -> None:
        """So many rounds and rows of history are over, also those that it was not led through."""

    def begin(self) -> None:
        """A public round begins: what is due is released first."""

    def encode(self, x: Any, who: Who) -> Any:
        """x as a question; ValueError for one that it cannot read."""
        return None

    def check(self, x: Any) -> None:
        """ValueError for an x that it cannot read; nothing is counted."""

    def unreadable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that it cannot read, now or later."""
        return {}

    def propose(self, question: Any) -> tuple[int, Floats | None]:
        """Its own label and its scores, one a vector of log-odds; −1 and None where it has none."""
        return -1, None

    def lesson(self, question: Any) -> Any:
        """What a label that comes later needs of a question."""
        return question

    def receive(self, label: int, who: Who) -> int:
        """A label comes in; what this gives is all that anything sees of it, and −1 means that none came.

        `PastCap`, for its bringer, where it is not taken.
        """
        return label

    def forget(self, who: bytes) -> None:
        """Drop what waits of a person."""

    def teach(self, question: Any, label: int, who: Who) -> int:
        """A label came. The number of its open release, which has it now; −1 for none: nobody is told."""
        return -1

    def missed(self, number: int) -> bool:
        """Whether a label of this round comes too late to teach it (public)."""
        return True

    # ------------------------------------------------------------------ many rounds

    def follow(self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Bools, keep: bool = False) -> Asked:
        """Rounds, each asked and then taught its label (−1: none), as the methods above do.

        Rows that are `bad` take their round and are neither asked nor taught; no other row may be unreadable.
        """
        answers, rows, scores = np.full(len(labels), -1), list[Any](), list[Floats | None]()
        for i in range(len(labels)):
            self.begin()
            question = None if bad[i] else self.encode(xs[i], whos[i])
            answers[i], score = (-1, None) if bad[i] else self.propose(question)
            scores.append(score)
            if labels[i] >= 0 and not bad[i]:
                self.teach(self.lesson(question), int(labels[i]), whos[i])
            if keep:
                rows.append(None if bad[i] else self.lesson(question))
        width = max((score.size for score in scores if score is not None), default=0)
        said = [np.zeros(width) if score is None else score for score in scores]
        return Asked(answers, np.array(said).reshape(len(labels), width) if width else None, rows)

    # ------------------------------------------------------------------ history

    def teaching(self) -> None:
        """A call that teaches records begins: nothing of them was looked at."""

    def teach_one(self, x: Any, label: int, who: Who) -> int:
        """One labelled record that was never asked; the open release that has it, −1 for none."""
        return -1

    def teach_rows(self, xs: Any, labels: Ints, whos: Sequence[Who]) -> Ints:
        """Labelled records (−1: refused); the open release that has each, −1 for none."""
        return np.array([self.teach_one(xs[i], int(labels[i]), whos[i]) for i in range(len(labels))], dtype=np.int64)

    def taught(self) -> None:
        """A call that taught records has come to its end."""

    @property
    def together(self) -> int:
        """How many records may be taught at once: none of them is in a release before the entry that notes it."""
        return sys.maxsize

    @property
    def knows(self) -> bool:
        """Whether it is known which records taught it; if not, those of rounds teach nothing (public)."""
        return True

    def noted(self) -> None:
        """A journal says which records taught it, and has given those of the open release again."""

    # ------------------------------------------------------------------ what everyone may see

    @property
    def closed(self) -> int:
        """How many of its releases lessons can be in no more (public)."""
        return 0

    @property
    def most(self) -> int:
        """How many of them there are, at most; or, without an end, are told apart where there are other parts."""
        return 0

    @property
    def counting(self) -> bool:
        """Whether questions themselves still add to something that will be released (public)."""
        return False

    def fingerprint(self) -> str:
        """A digest of what it answers by: `confide verify` computes it again from the ledger."""
        return digest_of(self.releases())

    @property
    def failures(self) -> Failures:
        """How often what it is made of failed, since it was made or loaded."""
        return Failures()

    def rehearse(self) -> None:
        """Compile what rounds need; nothing changes."""

    # ------------------------------------------------------------------ state

    def keep(
        self,
        kind: str,
        number: int,
        noisy: Ints,
        exact: Ints,
        *,
        also: Sequence[tuple[str, int, Ints, Ints]] = (),
        drops: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Durable when it returns, with the rounds taken and the mark or cap of every lesson in it.

        It must happen at public rounds. Who is cut off in it gives the same row again, or is refused: one with other
        noise would be a second release of the same sums. What is written with it (`also`) follows from releases, and
        what then is needless, all of a kind before a number, is dropped in the same transaction.
        """
        book = self._account.book
        if book is None:
            return
        row, *others = (
            (f"{self.part.kind}/{name}", at, said.astype("<i8").tobytes(), hidden.astype("<i8").tobytes())
            for name, at, said, hidden in ((kind, number, noisy, exact), *also)
        )
        sequence, offered = book.released(*row[:2]), (number, blake2b(row[2]).digest())
        if sequence is None:
            self._offered[kind] = offered
            dropped = tuple((f"{self.part.kind}/{name}", before) for name, before in drops)
            sequence = self._account.enter(released=(row, *others), dropped=dropped).sequence
        elif self._offered.get(kind) != offered:  # an interrupt came before the wait
            raise StateError("a release is on its way to the disk with other noise: load the state again")
        book.wait(sequence)

    def releases(self) -> tuple[Released, ...]:
        """Everything that it released, for a ledger that begins now."""
        return ()

    def resume(self, rounds: int, released: Sequence[Released]) -> int:
        """Go on after so many rounds and rows of history from what was released; where it then stands."""
        return rounds

    def read_as_of(self, x: Any, number: int) -> Any:
        """x as it read it in this round, for a label that comes later; None where it cannot."""
        return None

    def again(self, x: Any, label: int, number: int) -> None:
        """A lesson of the open release that was lost with the process that had it: its unit's cap has it already."""

    def recount(self, records: Sequence[Counted], asked: Sequence[Counted]) -> None:
        """Rows of history, and questions, that were counted, and are in no release."""

    def noted_since(self, body: bytes) -> None:
        """One of its own notes that is later than the snapshot."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a snapshot keeps of it beside its releases."""
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]], trusted: bool) -> None:
        """Go on from what `arrays` gave; a pickle only where that is `trusted`."""

    def pack(self, question: Any) -> tuple[Any, dict[str, NDArray[Any]]] | None:
        """A question in an open ticket as JSON and arrays; None where there is nothing to keep."""
        return None

    def unpack(self, about: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """The question that `pack` wrote."""
        return None

    @classmethod
    def again_from(
        cls, part: Any, features: Any, released: Sequence[Released], closed: int | None
    ) -> tuple[int, str | None]:
        """From what a ledger has: how often it was released (`closed`, else all), and the fingerprint then.

        None for a fingerprint of long ago: what it is made of was dropped since.
        """
        return len(released), digest_of(released)


def digest_of(released: Iterable[Released]) -> str:
    """A digest of releases; empty where there are none."""
    made, some = blake2b(digest_size=16), False
    for kind, number, noisy, _ in released:
        made.update(f"{kind.rpartition('/')[2]}:{number}:".encode() + noisy)
        some = True
    return made.hexdigest() if some else ""


def run_of(part: Part) -> type[Running]:
    """What runs a part; ValueError where nothing does."""
    found = next((_runs[kind] for kind in type(part).__mro__ if kind in _runs), None)
    if found is None:
        raise ValueError(f"nothing runs the part {part.kind!r}: import what defines it")
    return found


def tried(encode: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """What it gives, or what is wrong with x: whatever x does, its round goes on as any other."""
    try:
        return encode(*args), None
    except BaseException as error:  # what is wrong with x; or what a signal raised: the round is finished first
        return None, error if isinstance(error, ValueError) or by_signal(error) else ValueError(FORM)


class Parts:
    """All public parts of a run, as one."""

    def __init__(self, running: Sequence[Running] = ()) -> None:
        self._each = tuple(running)
        most = [one.most + 2 for one in self._each]
        self._radix = [int(np.prod(most[:i], dtype=object)) for i in range(len(most))]
        if len(most) > 1 and self._radix[-1] * most[-1] > _MOST_STAMP:
            raise ValueError("these parts release more often together than a journal can count: plan for fewer leaves")

    @classmethod
    def of(cls, plan: Plan, features: Any, label_weights: Any, rng: Random, account: Account) -> Parts:
        """The public parts of a plan, each with a generator of its own."""
        return cls([run_of(part)(part, features, label_weights, rng.spawn(), account) for part in plan.public])

    def given(self, learner: Any, labels: Sequence[Hashable], records: bool = False) -> Parts:
        """The same parts, told what else the POP was given."""
        for one in self._each:
            one.given(learner, labels, records)
        return self

    def journaled(self) -> None:
        """From now on an owner's journal has every question and every label."""
        for one in self._each:
            one.journaled()

    def __iter__(self) -> Iterator[Running]:
        return iter(self._each)

    def __bool__(self) -> bool:
        return bool(self._each)

    def get(self, kind: type[R]) -> R | None:
        """The running part of this kind; None where there is none."""
        return next((one for one in self._each if isinstance(one, kind)), None)

    def swap(self, other: Running) -> None:
        """Run a part otherwise: for doubles in tests."""
        self._each = tuple(other if one.part == other.part else one for one in self._each)

    # ------------------------------------------------------------------ one round

    def go_to(self, rounds: int) -> None:
        """So many rounds and rows of history are over."""
        for one in self._each:
            one.go_to(rounds)

    def ask(self, x: Any, who: Who, error: BaseException | None) -> Said:
        """A public round begins; each part is asked x, unless something is wrong with it, here or before."""
        questions: list[Any] = []
        lessons: list[Any] = []
        for one in self._each:
            one.begin()
        for one in self._each if error is None else ():
            question, error = tried(one.encode, x, who)
            if error is not None:
                break
            questions.append(question)
        label, source, scores = -1, -1, None
        for one, question in zip(self._each, questions if error is None else (), strict=False):
            said, found = one.propose(question)
            if scores is None:
                scores = found
            if label < 0 <= said:
                label, source = said, one.number
            lessons.append(one.lesson(question))
        return Said(label, source, scores, tuple(lessons), error)

    def receive(self, label: int, who: Who) -> int:
        """A label comes in: as it is, where rows are protected. It is the one place before anything sees it."""
        for one in self._each:
            label = one.receive(label, who)
        return label

    def receive_rows(self, labels: Ints, whos: Sequence[Who]) -> tuple[Ints, dict[int, ValueError]]:
        """`receive` of each, −1 where there is none, or where it is not taken; and why it is not."""
        refused: dict[int, ValueError] = {}
        if all(type(one).receive is Running.receive for one in self._each):
            return labels, refused
        came = np.full(len(labels), -1)
        for i, (label, who) in enumerate(zip(labels.tolist(), whos, strict=True)):
            try:
                came[i] = self.receive(label, who) if label >= 0 else -1
            except PastCap as error:
                refused[i] = error
        return came, refused

    def forget(self, who: bytes) -> None:
        """Drop what waits of a person."""
        for one in self._each:
            one.forget(who)

    def teach(self, questions: tuple[Any, ...], label: int, who: Who) -> int:
        """A label came; the stamp of the open releases that have it (`stamp`)."""
        return self.stamp(
            [one.teach(question, label, who) for one, question in zip(self._each, questions, strict=False)]
        )

    def stamp(self, leaves: Sequence[int]) -> int:
        """One number for the open releases that have a lesson, a part each; −1 for none.

        Of several parts one that has made more than its `most` counts as none: after a crash it goes without the
        lesson, and no other part has it twice.
        """
        if len(leaves) == 1 or not leaves:
            return leaves[0] if leaves else -1
        digits = [leaf + 1 if leaf <= one.most else 0 for one, leaf in zip(self._each, leaves, strict=True)]
        return sum(digit * radix for digit, radix in zip(digits, self._radix, strict=True)) - 1

    def leaves(self, stamp: int) -> list[int]:
        """The open releases that a stamp says."""
        if len(self._each) <= 1:
            return [stamp] * len(self._each)
        return [(stamp + 1) // radix % (one.most + 2) - 1 for one, radix in zip(self._each, self._radix, strict=True)]

    def missed(self, number: int) -> bool:
        """Whether a label of this round comes too late to teach any of them (public)."""
        return all(one.missed(number) for one in self._each)

    # ------------------------------------------------------------------ many rounds

    def unreadable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that one of them cannot read."""
        errors: dict[int, str] = {}
        for one in self._each:
            errors = {**one.unreadable(xs), **errors}
        return errors

    def follow(self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Bools, keep: bool = False) -> Proposed:
        """Rounds, each asked and then taught its label (−1: none), part by part."""
        answers, sources = np.full(len(labels), -1), np.full(len(labels), -1, dtype=np.int8)
        scores, rows = None, list[Sequence[Any]]()
        for one in self._each:
            asked = one.follow(xs, labels, whos, bad, keep)
            first = (answers < 0) & (asked.answers >= 0)
            answers[first], sources[first] = asked.answers[first], one.number
            scores = asked.scores if scores is None else scores
            rows.append(asked.rows)
        return Proposed(answers, sources, scores, list(zip(*rows, strict=True)) if keep and rows else [])

    # ------------------------------------------------------------------ history

    def check(self, x: Any) -> BaseException | None:
        """What is wrong with a record."""
        return next((error for one in self._each if (error := tried(one.check, x)[1]) is not None), None)

    def teaching(self) -> None:
        """A call that teaches records begins."""
        for one in self._each:
            one.teaching()

    def teach_one(self, x: Any, label: int, who: Who) -> None:
        """One labelled record that was never asked."""
        for one in self._each:
            one.teach_one(x, label, who)

    def teach_rows(self, xs: Any, labels: Ints, whos: Sequence[Who]) -> Ints:
        """Labelled records; the stamp of each."""
        each = [one.teach_rows(xs, labels, whos) for one in self._each]
        if len(each) <= 1:
            return each[0] if each else np.full(len(labels), -1)
        return np.array([self.stamp([int(one[i]) for one in each]) for i in range(len(labels))], dtype=np.int64)

    def taught(self) -> None:
        """A call that taught records has come to its end."""
        for one in self._each:
            one.taught()

    @property
    def together(self) -> int:
        """How many records may be taught at once."""
        return min((one.together for one in self._each), default=sys.maxsize)

    @property
    def knows(self) -> bool:
        """Whether it is known which records taught them."""
        return all(one.knows for one in self._each)

    def noted(self) -> None:
        """A journal has all records that ever taught them."""
        for one in self._each:
            one.noted()

    # ------------------------------------------------------------------ state

    @property
    def closed(self) -> int:
        """From which stamp on lessons may be needed again (public); of several parts, all of them."""
        return self._each[0].closed if len(self._each) == 1 else 0

    @property
    def counting(self) -> bool:
        """Whether questions themselves still add to something that will be released (public)."""
        return any(one.counting for one in self._each)

    def again(self, x: Any, label: int, number: int, stamp: int) -> None:
        """A lesson from a journal: for the parts that have not released it."""
        for one, leaf in zip(self._each, self.leaves(stamp), strict=True):
            if leaf >= one.closed:
                one.again(x, label, number)

    def recount(self, records: Sequence[Counted], asked: Sequence[Counted]) -> None:
        """Rows of history, and questions, from a journal that were counted, and are in no release."""
        for one in self._each:
            if one.counting:
                one.recount(records, asked)

    def read_as_of(self, x: Any, number: int) -> tuple[Any, ...]:
        """x as they read it in this round."""
        return tuple(one.read_as_of(x, number) for one in self._each)

    @property
    def failures(self) -> Failures:
        """How often any of them failed, since they were made or loaded."""
        return reduce(Failures.plus, (one.failures for one in self._each), Failures())

    def rehearse(self) -> None:
        """Compile what rounds need."""
        for one in self._each:
            one.rehearse()

    def spent(self, spent: Spent) -> Spent:
        """With everything that was released, for a ledger that begins now."""
        return replace(spent, released=tuple(release for one in self._each for release in one.releases()))

    def resume(self, spent: Spent, account: Account) -> None:
        """Go on from what a ledger says. A release is of rounds that were taken, whether or not the ledger says so."""
        _check_known(spent, [one.part for one in self._each])
        at = spent.rounds + spent.history
        for one in self._each:
            at = max(at, one.resume(at, released_of(spent, one.part)))
        account.taken = account.rounds = at - spent.history
        self.go_to(at)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a snapshot keeps of parts beside their releases, by name."""
        return {f"part/{one.part.kind}/{name}": held for one in self._each for name, held in one.arrays().items()}

    def restore(self, arrays: Mapping[str, NDArray[Any]], trusted: bool) -> None:
        """Go on from what `arrays` gave."""
        for one in self._each:
            name = f"part/{one.part.kind}/"
            one.restore({key.removeprefix(name): a for key, a in arrays.items() if key.startswith(name)}, trusted)

    @property
    def notes(self) -> bool:
        """Whether one of them notes what it learns by itself."""
        return any(one.notes for one in self._each)

    def saved(self, book: Book) -> None:
        """A snapshot has all that was learned so far: notes up to now are needed no more."""
        for one in self._each:
            if one.notes:
                book.tear(one.note, book.sequence)

    def catch_up(self, journal: Iterable[tuple[str, int, int, bytes]], since: int) -> None:
        """Learn from the parts' own notes what came after the snapshot with this number."""
        own = {one.note: one for one in self._each if one.notes}
        for kind, sequence, _, body in journal if own else ():
            if kind in own and sequence > since:
                own[kind].noted_since(body)

    def fingerprints(self) -> dict[str, list[Any]]:
        """How often each was released, and what it answers by: what `check` computes again."""
        return {one.part.kind: [one.closed, one.fingerprint()] for one in self._each}

    def write(self, questions: tuple[Any, ...], arrays: dict[str, list[NDArray[Any]]]) -> list[Any]:
        """The questions of an open ticket as JSON; what is not JSON is put to `arrays`."""
        written: list[Any] = []
        for one, question in zip(self._each, questions, strict=False):
            made = None if question is None else one.pack(question)
            if made is None:
                written.append(None)
                continue
            for name, values in made[1].items():
                arrays.setdefault(f"{one.part.kind}/{name}", []).append(values)
            written.append([made[0], {name: values.size for name, values in made[1].items()}])
        return written

    def read(self, written: Sequence[Any], arrays: Mapping[str, NDArray[Any]], at: dict[str, int]) -> tuple[Any, ...]:
        """The questions that `write` wrote; `at` says how far the arrays were read."""
        questions = []
        for one, saved in zip(self._each, written, strict=True):
            found = {}
            for name, size in {} if saved is None else saved[1].items():
                key = f"{one.part.kind}/{name}"
                begin = at.get(key, 0)
                found[name], at[key] = arrays[f"open/{key}"][begin : begin + size], begin + size
            questions.append(None if saved is None else one.unpack(saved[0], found))
        return tuple(questions)


def released_of(spent: Spent, part: Part) -> list[Released]:
    """What a ledger says that a part released, by the part's own kinds."""
    name = f"{part.kind}/"
    return [(one[0].removeprefix(name), *one[1:]) for one in spent.released if one[0].startswith(name)]


def _check_known(spent: Spent, parts: Sequence[Part]) -> None:
    """Refuse releases that no part would take up: what is in them would be released again."""
    known = {part.kind for part in parts}
    if any(kind.partition("/")[0] not in known for kind, *_ in spent.released):
        raise StateError("the ledger has releases of a part that the plan does not have: do not use this state")


def check_parts(
    plan: Plan, features: Any, spent: Spent, known: Mapping[str, Sequence[Any]]
) -> dict[str, Again]:
    """How often each part was released, and its fingerprint, all from a ledger; `known` is what a snapshot says.

    StateError where the two differ, or where a ledger has releases of a part that the plan does not have.
    """
    found: dict[str, Again] = {}
    _check_known(spent, plan.public)
    for part in plan.public:
        released, run = released_of(spent, part), run_of(part)
        closed, theta = known[part.kind]
        then = run.again_from(part, features, released, closed)[1]
        if then not in (theta, None):
            raise StateError(
                f"what the part {part.kind!r} answers by, computed again from the ledger, is not what was in use: do "
                "not use this state"
            )
        now, digest = run.again_from(part, features, released, None)
        found[part.kind] = Again(now, digest or "", then is not None)
    return found
