"""All public parts of a run, as one: the loop, batches, journal and states never ask which parts there are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Floats, Ints
from confide.banks.base import FORM, Failures
from confide.contained import Contained, by_signal, contained
from confide.errors import StateError
from confide.ledger.ledger import Spent
from confide.planning.parts import Part
from confide.planning.plan import Plan
from confide.pop.account import Account
from confide.pop.base import FALLBACK
from confide.pop.running import Asked, Counted, PastCap, Released, Running, Who, run_of
from confide.privacy.random import Random

__all__ = ["Again", "Parts", "Proposed", "check_parts", "released_of", "tried"]

_MOST_STAMP = 2**31 - 1

R = TypeVar("R", bound=Running)


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


_NOTHING = Said(-1, -1, None, (), None)

_One = tuple[int, Floats | None, Any]
"""What one part says to one row: a label, scores, and what a ticket holds."""

_UNTAKEN = "this label was not taken, and teaches nothing"


class Proposed(NamedTuple):
    """What public parts say to many rows, as one."""

    answers: Ints
    sources: NDArray[np.int8]
    scores: Floats | None
    rows: list[tuple[Any, ...]]
    errors: dict[int, str]
    """What is wrong with rows that were none of the bad ones."""


class Again(NamedTuple):
    """A part, computed again from what a ledger has."""

    released: int
    """How often it was released."""
    digest: str
    """Of what it answers by; empty where there is nothing yet."""
    compared: bool
    """Whether it was compared with what a snapshot says was in use; not where the sums of then were dropped since."""


class Parts:
    """All public parts of a run, as one.

    What one of a user's own raises at a row or a label reaches nobody else's, nor any other part's (`Running`).

    Parameters
    ----------
    running
        The parts.
    labels
        How many labels there are; what proposes another one has failed. None where nobody looks.
    lean
        Whether scores are used.
    """

    def __init__(self, running: Sequence[Running] = (), labels: int | None = None, lean: bool = True) -> None:
        self._labels, self._lean = labels, lean
        self._failed = Failures()
        self._run(running)
        most = [one.most + 2 for one in self._each]
        self._radix = [int(np.prod(most[:i], dtype=object)) for i in range(len(most))]
        if len(most) > 1 and self._radix[-1] * most[-1] > _MOST_STAMP:
            raise ValueError("these parts release more often together than a journal can count: plan for fewer leaves")

    @classmethod
    def of(cls, plan: Plan, features: Any, label_weights: Any, rng: Random, account: Account) -> Parts:
        """The public parts of a plan, each with a generator of its own."""
        each = [run_of(part)(part, features, label_weights, rng.spawn(), account) for part in plan.public]
        return cls(each, plan.labels, plan.lean is not None)

    def _run(self, running: Sequence[Running]) -> None:
        self._each = tuple(running)
        own = [i for i, one in enumerate(self._each) if not one.unfailing]
        self._own = [self._each[i] for i in own]
        # those that may fail first: what is wrong with a row is then known before the others hear of it
        self._order = own + [i for i, one in enumerate(self._each) if one.unfailing]
        self._checks = len(self._each) > 1 or any(map(_checks, self._own))

    def __iter__(self) -> Iterator[Running]:
        return iter(self._each)

    def __bool__(self) -> bool:
        return bool(self._each)

    def get(self, kind: type[R]) -> R | None:
        """The running part of this kind; None where there is none."""
        for one in self._each:
            if isinstance(one, kind):
                return one
        return None

    def swap(self, other: Running) -> None:
        """Run a part otherwise: for doubles in tests."""
        self._run([other if one.part == other.part else one for one in self._each])

    # ------------------------------------------------------------------ what may fail

    def _tried(self, words: bool, act: Callable[..., Any], *given: Any) -> tuple[Any, BaseException | None]:
        """What it gives, or what its asker is told: its own `words` of a ValueError, else that something is wrong."""
        try:
            return act(*given), None
        except BaseException as error:
            if by_signal(error):
                return None, error
            said = _words(error) if words and isinstance(error, ValueError) else None
        if said is None:
            self._failed = self._failed.plus(Failures(rows=1))
        return None, ValueError(said or FORM)

    def _asked(self, one: Running, x: Any, who: Who) -> tuple[_One | None, BaseException | None]:
        """What one part says to a row that has passed `check`; or what is wrong with the row."""
        if not one.unfailing:
            question, error = self._tried(True, one.encode, x, who)
            return (None, error) if error is not None else self._tried(False, self._proposed, one, question)
        question, error = tried(one.encode, x, who)
        if error is not None:
            return None, error
        said, scores = one.propose(question)
        return (said, scores, one.lesson(question)), None

    def _proposed(self, one: Running, question: Any) -> _One:
        """What a user's own part says, as far as it can be used."""
        label, scores = one.propose(question)
        label, many = int(label), self._labels
        if many is not None and not -2 - many < label < many:
            raise ValueError("there is no such label")
        if scores is not None and not self._lean:
            scores = None
        if scores is not None:
            scores = np.array(scores, dtype=np.float64)
            if scores.ndim != 1 or (many is not None and scores.size != (1 if many == 2 else many)):
                raise ValueError("scores are a vector of log-odds")
        return label, scores, one.lesson(question)

    def _taught(self, one: Running, act: Callable[..., int], *given: Any) -> int:
        """The open release that has this lesson; −1 for none, or where a user's own part fails at it."""
        if one.unfailing:
            return act(*given)
        with contained:
            return int(act(*given))
        self._failed = self._failed.plus(Failures(labels=1))
        return -1

    def _received(self, one: Running, label: int, who: Who) -> int:
        """What a part gives for a label; `PastCap` where it gives none, does not take it, or fails."""
        if one.unfailing or not _hears(one):
            return one.receive(label, who)
        with Contained(PastCap):
            came = int(one.receive(label, who))
            if came >= 0 and (self._labels is None or came < self._labels):
                return came
            if came == -1:
                raise PastCap(_UNTAKEN)
        self._failed = self._failed.plus(Failures(labels=1))
        raise PastCap(_UNTAKEN)

    # ------------------------------------------------------------------ one round

    def go_to(self, rounds: int) -> None:
        """So many rounds and rows of history are over."""
        for one in self._each:
            one.go_to(rounds)

    def ask(self, x: Any, who: Who, error: BaseException | None) -> Said:
        """A public round begins; each part is asked x, unless something is wrong with it, here or before."""
        if not self._each:
            return _NOTHING if error is None else Said(-1, -1, None, (), error)
        for one in self._each:
            one.begin()
        if error is None and self._checks:
            error = self.check(x)
        asked: list[Any] = [None] * len(self._each)
        for i in self._order if error is None else ():
            asked[i], error = self._asked(self._each[i], x, who)
            if error is not None:
                break
        label, source, scores = -1, -1, None
        if error is not None:
            return Said(label, source, scores, (), error)
        for one, (said, found, _) in zip(self._each, asked, strict=True):
            if scores is None:
                scores = found
            if label < 0 and said != -1:
                label, source = (said, one.number) if said >= 0 else (-2 - said, FALLBACK)
        return Said(label, source, scores, tuple([each[2] for each in asked]), None)

    def receive(self, label: int, who: Who) -> int:
        """A label comes in: as it is, where rows are protected. It is the one place before anything sees it."""
        for one in self._each:
            label = self._received(one, label, who)
        return label

    @property
    def hears(self) -> bool:
        """Whether a user's own part receives labels: then each comes after its own question, also in a batch."""
        return any(map(_hears, self._own))

    def receive_rows(self, labels: Ints, whos: Sequence[Who]) -> tuple[Ints, dict[int, ValueError]]:
        """`receive` of each, −1 where there is none, or where it is not taken; and why it is not."""
        refused: dict[int, ValueError] = {}
        for one in self._each:
            labels, past = one.receive_rows(labels, whos) if one.unfailing else self._received_rows(one, labels, whos)
            refused |= past
        return labels, refused

    def _received_rows(self, one: Running, labels: Ints, whos: Sequence[Who]) -> tuple[Ints, dict[int, ValueError]]:
        """The same of a user's own part."""
        came, refused = labels.copy(), dict[int, ValueError]()
        for i in np.flatnonzero(labels >= 0).tolist() if _hears(one) else ():
            try:
                came[i] = self._received(one, int(labels[i]), whos[i])
            except PastCap as error:
                came[i], refused[i] = -1, error.with_traceback(None)  # whose calls hold the label
        return came, refused

    def forget(self, who: bytes) -> None:
        """Drop what waits of a person."""
        for one in self._each:
            one.forget(who)

    def teach(self, questions: tuple[Any, ...], label: int, who: Who) -> int:
        """A label came; the stamp of the open releases that have it (`stamp`)."""
        if not self._each:
            return -1
        each = zip(self._each, questions, strict=False)
        if self._own:
            leaves = [self._taught(one, one.teach, question, label, who) for one, question in each]
        else:
            leaves = [one.teach(question, label, who) for one, question in each]
        return leaves[0] if len(leaves) == 1 else self.stamp(leaves)

    @property
    def plain(self) -> bool:
        """Whether labels are taken as they are: then what one teaches does not decide how the next is taken."""
        return all(type(one).receive is Running.receive for one in self._each)

    def teach_many(self, lessons: Sequence[tuple[tuple[Any, ...], int, Who]]) -> list[int]:
        """`teach` of each, in order."""
        if len(self._each) != 1 or self._own or not all(len(questions) == 1 for questions, *_ in lessons):
            return [self.teach(*one) for one in lessons]
        rows, labels, whos = zip(*lessons, strict=True)
        return self._each[0].teach_many([one[0] for one in rows], labels, whos)

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

    def missed_many(self, numbers: Sequence[int]) -> list[bool]:
        """Of each round, whether a label of it comes too late to teach any of them (public)."""
        if len(self._each) == 1:
            return self._each[0].missed_many(numbers)
        return [all(one.missed(number) for one in self._each) for number in numbers]

    # ------------------------------------------------------------------ many rounds

    def unreadable(self, xs: Any, before: Collection[int] = ()) -> dict[int, str]:
        """What is wrong with rows that one of them cannot read; those of which that is known `before` are not tried."""
        errors: dict[int, str] = {}
        for one in self._each:
            found = one.unreadable(xs) if one.unfailing else self._unreadable(one, xs, {*before, *errors})
            errors = {**found, **errors}
        return errors

    def _unreadable(self, one: Running, xs: Any, before: set[int]) -> dict[int, str]:
        """The same of a user's own part, which `check` says row by row as well."""
        errors: dict[int, str] = {**(self._given(one, one.unreadable, xs) or {})}
        for i in range(len(xs)) if _checks(one) else ():
            error = None if i in errors or i in before else self._tried(True, one.check, xs[i])[1]
            if error is not None:
                errors[i] = _said(error)
        return errors

    def follow(self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Flags, keep: bool = False) -> Proposed:
        """Rounds, each asked and then taught its label (−1: none): a user's own parts row by row, then part by part."""
        answers, sources = np.full(len(labels), -1), np.full(len(labels), -1, dtype=np.int8)
        scores, rows = None, list[Sequence[Any]]()
        led, errors = self._lead(xs, labels, whos, bad, keep) if self._own else ([], {})
        if errors:
            bad = bad.copy()
            bad[list(errors)] = True
        led += [self._each[i].follow(xs, labels, whos, bad, keep) for i in self._order[len(led) :]]
        by_place = dict(zip(self._order, led, strict=True))
        for i, one in enumerate(self._each):
            asked = by_place[i]
            said, own = asked.answers, asked.answers >= 0
            named, by = np.where(own, said, -2 - said), np.where(own, one.number, FALLBACK).astype(np.int8)
            by[named < 0] = -1
            free = answers < 0
            answers, sources = (np.where(free, named, answers), np.where(free, by, sources)) if i else (named, by)
            scores = asked.scores if scores is None else scores
            rows.append(asked.rows)
        return Proposed(answers, sources, scores, list(zip(*rows, strict=True)) if keep and rows else [], errors)

    def _lead(
        self, xs: Any, labels: Ints, whos: Sequence[Who], bad: Flags, keep: bool
    ) -> tuple[list[Asked], dict[int, str]]:
        """What a user's own parts say in these rounds, each; and what is wrong with rows that are not bad."""
        errors, said = dict[int, str](), [list[_One]() for _ in self._own]
        nothing: _One = (-1, None, None)
        for i in range(len(labels)):
            for one in self._own:
                one.begin()
            asked = None if bad[i] else self._row(xs[i], whos[i], i, errors)
            for held, found in zip(said, [nothing] * len(said) if asked is None else asked, strict=True):
                held.append(found if keep else (*found[:2], None))
            if asked is not None and labels[i] >= 0:
                for one, (*_, lesson) in zip(self._own, asked, strict=True):
                    self._taught(one, one.teach, lesson, int(labels[i]), whos[i])
        each = []
        for held in said:
            answers = np.array([label for label, *_ in held], dtype=np.int64)
            each.append(Asked.of(answers, [scores for _, scores, _ in held], [one[2] for one in held] if keep else []))
        return each, errors

    def _row(self, x: Any, who: Who, i: int, errors: dict[int, str]) -> list[_One] | None:
        """What a user's own parts say to row i; None where something is wrong with it."""
        asked = list[_One]()
        for one in self._own:
            found, error = self._asked(one, x, who)
            if error is not None:
                errors[i] = _said(error)
                return None
            assert found is not None
            asked.append(found)
        return asked

    # ------------------------------------------------------------------ history

    def check(self, x: Any) -> BaseException | None:
        """What is wrong with a record."""
        for one in self._each:
            error = (tried(one.check, x) if one.unfailing else self._tried(True, one.check, x))[1]
            if error is not None:
                return error
        return None

    def teaching(self) -> None:
        """A call that teaches records begins."""
        for one in self._each:
            one.teaching()

    def teach_one(self, x: Any, label: int, who: Who) -> None:
        """One labelled record that was never asked."""
        for one in self._each:
            self._taught(one, one.teach_one, x, label, who)

    def teach_rows(self, xs: Any, labels: Ints, whos: Sequence[Who]) -> Ints:
        """Labelled records; the stamp of each."""
        each = [
            one.teach_rows(xs, labels, whos) if one.unfailing else self._records(one, xs, labels, whos)
            for one in self._each
        ]
        if len(each) <= 1:
            return each[0] if each else np.full(len(labels), -1)
        return np.array([self.stamp([int(one[i]) for one in each]) for i in range(len(labels))], dtype=np.int64)

    def _records(self, one: Running, xs: Any, labels: Ints, whos: Sequence[Who]) -> Ints:
        """The same of a user's own part."""
        each = zip(range(len(labels)), labels.tolist(), whos, strict=True)
        return np.array([self._taught(one, one.teach_one, xs[i], *said) for i, *said in each], dtype=np.int64)

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

    # ------------------------------------------------------------------ state

    @property
    def closed(self) -> int:
        """From which stamp on lessons may be needed again (public); of several parts, all of them."""
        return self._each[0].closed if len(self._each) == 1 else 0

    @property
    def leaf(self) -> int:
        """The stamp that a lesson of now has at most; −1 where none takes any (public)."""
        return self.stamp([one.leaf for one in self._each])

    @property
    def counting(self) -> bool:
        """Whether questions themselves still add to something that will be released (public)."""
        return any(one.counting for one in self._each)

    def again(self, x: Any, label: int, number: int, stamp: int) -> None:
        """A lesson from a journal: for the parts that have not released it."""
        for one, leaf in zip(self._each, self.leaves(stamp), strict=True):
            if leaf >= one.closed:
                self._taught(one, _done, one.again, x, label, number)

    def recount(self, records: Sequence[Counted], asked: Sequence[Counted]) -> None:
        """Rows of history, and questions, from a journal that were counted, and are in no release."""
        for one in self._each:
            if one.counting and one.unfailing:
                one.recount(records, asked)
            elif one.counting:
                self._given(one, one.recount, records, asked)

    def read_as_of(self, x: Any, number: int) -> tuple[Any, ...]:
        """x as they read it in this round."""
        return tuple(self._given(one, one.read_as_of, x, number) for one in self._each)

    def _given(self, one: Running, act: Callable[..., Any], *given: Any) -> Any:
        """What it gives; None where a user's own part fails."""
        if one.unfailing:
            return act(*given)
        found, error = self._tried(False, act, *given)
        if error is not None:
            _said(error)
        return found

    @property
    def failures(self) -> Failures:
        """How often any of them failed, since they were made or loaded."""
        return reduce(Failures.plus, (one.failures for one in self._each), self._failed)

    def spent(self, spent: Spent) -> Spent:
        """With everything that was released, for a ledger that begins now."""
        return replace(spent, released=(*spent.released, *(row for one in self._each for row in one.releases())))

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

    def saved(self, sequence: int) -> dict[str, int]:
        """A snapshot has all that was learned up to this entry: notes up to it are needed no more, by their kinds."""
        return {one.note: sequence for one in self._each if one.notes}

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
        asked = list(zip(self._each, questions, strict=False))
        packed = [None if question is None else self._given(one, one.pack, question) for one, question in asked]
        for (one, _), made in zip(asked, packed, strict=True):
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
            questions.append(None if saved is None else self._given(one, one.unpack, saved[0], found))
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


def check_parts(plan: Plan, features: Any, spent: Spent, known: Mapping[str, Sequence[Any]]) -> dict[str, Again]:
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


def _checks(one: Running) -> bool:
    return type(one).check is not Running.check


def _hears(one: Running) -> bool:
    return type(one).receive is not Running.receive


def _done(act: Callable[..., Any], *given: Any) -> int:
    act(*given)
    return -1


def _words(error: ValueError) -> str | None:
    """What it says; None where it cannot even be asked."""
    with contained:
        return str(error)
    return None


def _said(error: BaseException) -> str:
    """What is wrong with a row of many; a signal ends the call."""
    if by_signal(error):
        raise error
    return str(error)


def tried(encode: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """What it gives, or what is wrong with x: whatever x does, its round goes on as any other.

    An error that waits to be raised holds none of the calls that it comes from: one of them may hold a label.
    """
    try:
        return encode(*args), None
    except BaseException as error:  # what is wrong with x; or what a signal raised: the round is finished first
        if by_signal(error):
            return None, error
        return None, error.with_traceback(None) if isinstance(error, ValueError) else ValueError(FORM)
